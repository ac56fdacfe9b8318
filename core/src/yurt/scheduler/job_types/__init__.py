"""One scheduler for each type of job: reconcile, place, and say how the evaluation ends."""
