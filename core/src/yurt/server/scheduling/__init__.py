"""The path of evaluations: queues, workers, the plan applier, replays."""
