"""Pure scheduling: reconcile, feasibility, rank, plan check."""
