"""What follows from the rows that a command changes: counters of summaries and of deployments."""
