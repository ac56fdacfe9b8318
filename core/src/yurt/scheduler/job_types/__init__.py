"""One scheduler per job type: reconcile, place, and decide how the evaluation ends."""
