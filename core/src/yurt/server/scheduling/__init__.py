"""Evaluations on their way: queues, workers, the plan applier, replays."""
