"""What all commands have in common, and what `apply` answers."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from yurt.sdk.errors import Reason
from yurt.sdk.value import UnixNano, Value, wire_name


class Expectation(Value):
    """A row as the proposer of a command saw it.

    `index` is the row's modify index, for a job the index of its specification (`job_modify_index`); 0: no such row.
    """

    table: str
    key: str | tuple[str | int, ...]
    index: int = 0


class EventType(NamedTuple):
    """The name under which the event stream publishes the changes of a command."""

    name: str
    """The events' type, in Nomad's words."""
    publishes_deletion: bool = False
    """Readers of the event stream also get the rows that the command deletes."""


class Command(Value, tag_field="$", rename=wire_name, kw_only=True):
    """Base of all commands; the tag is the class name.

    A tag that ends with SKIPPABLE says that a server of a version without that command may pass over it: nothing that
    servers must agree on may come of it.

    `based_on` names the rows that the command was decided on where the decision is too large for `apply`: when one of
    them has changed, the command is rejected as stale, and its proposer decides again on the newer state.

    `rules_version` is that of the rules that it is subject to; the log writer sets it to the newest that all servers of
    the region apply. What an earlier version stored has a lower one, or none: it was acknowledged by the rules of its
    time, and a replay must come to the same state. A server that does not know the version does not apply the command.
    """

    based_on: tuple[Expectation, ...] = ()
    rules_version: int = 0
    event_type: ClassVar[EventType | None] = None
    """None: the event stream omits the command's changes."""


class EvalSeed(Value):
    """The input from which `apply` creates the evaluations of a command; their ids derive from `seed`."""

    seed: str
    now: UnixNano


class Applied(Value):
    """The command changed the state at `index`."""

    index: int


RejectionKind = Literal["not_found", "conflict", "invalid", "denied", "stale"]
"""Stale: a row on which the command was decided has changed. The others are classes of `yurt.sdk.errors`."""


class Rejected(Value):
    """The command did not fit the state; the same on every replica.

    `reason` is more exact than the kind where a caller has to know.
    """

    kind: RejectionKind
    message: str
    reason: Reason | None = None


Result = Applied | Rejected
