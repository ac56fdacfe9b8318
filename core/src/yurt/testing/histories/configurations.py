"""The scheduler's configuration, which every agent has one of: requests, and their sequential behaviour."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Answer, Operation, Read, Request
from yurt.testing.histories.kinds import Prepared, latest_index, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

SCHEDULERS: Final = ("Batch", "Service", "System", "SysBatch")
PATH: Final = "/v1/operator/scheduler/configuration"


class Configure(Request, frozen=True):
    """PUT; `preempts` says for each scheduler whether it may preempt."""

    preempts: tuple[bool, ...]
    cas: int | None = None


class ReadConfiguration(Read, frozen=True):
    """GET."""


class Shown(NamedTuple):
    """The configuration in a body."""

    at: int
    preempts: tuple[bool, ...]


class Told(NamedTuple):
    """The body of a change."""

    updated: bool


class ConfigurationState(NamedTuple):
    """The configuration; `preempts` is None until a read shows what the agent began with."""

    at: int = unknown_after(NEVER)
    preempts: tuple[bool, ...] | None = None
    last: int = NEVER


class ConfigurationModel:
    """The sequential behaviour of the configuration."""

    def initial(self) -> ConfigurationState:
        """Nobody has read it."""
        return ConfigurationState()

    def written_at(self, request: Any, answer: Answer) -> int | None:
        """The answer's index when something was written."""
        is_written = isinstance(answer.body, Told) and answer.body.updated
        return answer.index if is_written and not request.is_read else None

    def step(self, state: ConfigurationState, request: Any, answer: Answer | None) -> ConfigurationState | None:
        """See `Model.step`."""
        if isinstance(request, ReadConfiguration):
            return state if answer is None else _read(state, answer)
        may_write = request.cas is None or state.preempts is None or agrees(state.at, request.cas)
        if answer is None:
            low = max(state.last, lowest(state.at))
            return state._replace(at=unknown_after(low), preempts=request.preempts) if may_write else state
        if not isinstance(answer.body, Told):
            return None
        if not answer.body.updated:
            return state if request.cas is not None and request.cas != state.at else None
        if not may_write or answer.index <= max(state.last, request.cas or NEVER, lowest(state.at)):
            return None
        return ConfigurationState(answer.index, request.preempts, answer.index)


def _read(state: ConfigurationState, answer: Answer) -> ConfigurationState | None:
    shown: Shown = answer.body
    if answer.is_refusal:
        return None
    is_same = agrees(state.at, shown.at) and state.preempts == shown.preempts
    return state._replace(at=shown.at, preempts=shown.preempts) if state.preempts is None or is_same else None


class ConfigurationKind:
    """The one configuration of the servers: all its operations are one history."""

    name = "scheduler configuration"

    def __init__(self) -> None:
        self.model = ConfigurationModel()

    def key(self, number: int) -> str:
        """There is only one."""
        return "scheduler configuration"

    def prepare(self, key: str, request: Any) -> Prepared:
        """See `Kind.prepare`."""
        if isinstance(request, ReadConfiguration):
            return Prepared("GET", PATH)
        flags = {f"{name}SchedulerEnabled": on for name, on in zip(SCHEDULERS, request.preempts, strict=True)}
        return put(PATH if request.cas is None else f"{PATH}?cas={request.cas}", {"PreemptionConfig": flags})

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if not isinstance(request, ReadConfiguration):
            return Told(document["Updated"])
        config = document["SchedulerConfig"]
        flags = config["PreemptionConfig"]
        return Shown(config["ModifyIndex"], tuple(flags[f"{name}SchedulerEnabled"] for name in SCHEDULERS))

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        preempts = tuple(rng.random() < 0.5 for _ in SCHEDULERS)
        kind = rng.random()
        if kind < 0.3:
            return ReadConfiguration()
        return Configure(preempts, None if kind < 0.5 else latest_index(past, rng))

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadConfiguration(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()
