"""The replicated state machine: the effect of each log command on the state, and snapshots of the state."""

from yurt.fsm.dispatch import ApplyResult, apply

__all__ = ["ApplyResult", "apply"]
