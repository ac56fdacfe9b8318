"""The server: proposing and applying commands, workers, the plan applier, the leader's duties."""
