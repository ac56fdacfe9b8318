"""The replicated state machine: what each command of the log does to the state, and snapshots of it."""

from yurt.fsm.dispatch import Step, apply

__all__ = ["Step", "apply"]
