"""The cluster-wide configurations of the scheduler and of autopilot: requests, and their sequential behaviour."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, latest_index, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

SCHEDULERS: Final = ("Batch", "Service", "System", "SysBatch")
SCHEDULER: Final = "/v1/operator/scheduler/configuration"
AUTOPILOT: Final = "/v1/operator/autopilot/configuration"
LOGS_MIN, LOGS_MAX = 10_000, 1_000_000
"""Entries that a server may be behind: enough for those that a test freezes."""


class Configure(Request, frozen=True):
    """PUT of the configuration; settings that are left out get their defaults."""

    settings: tuple[int, ...]
    cas: int | None = None


class ReadConfiguration(Read, frozen=True):
    """GET of the configuration."""


class ShownConfiguration(NamedTuple):
    """The configuration in a body."""

    at: int
    settings: tuple[int, ...]


class ConfigurationChange(NamedTuple):
    """The body of a change."""

    updated: bool


class ConfigurationState(NamedTuple):
    """The configuration; `settings` is None until a read shows the initial one."""

    at: int = unknown_after(NEVER)
    settings: tuple[int, ...] | None = None
    last: int = NEVER


class ConfigurationModel:
    """The sequential behaviour of the configuration."""

    def initial(self) -> ConfigurationState:
        """No client has read the configuration."""
        return ConfigurationState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index when something was written."""
        is_written = isinstance(answer.body, ConfigurationChange) and answer.body.updated
        return answer.index if is_written and not request.is_read else None

    def step(self, state: ConfigurationState, request: Any, answer: Reply | None) -> ConfigurationState | None:
        """See `Model.step`."""
        if isinstance(request, ReadConfiguration):
            return state if answer is None else _read(state, answer)
        may_write = request.cas is None or state.settings is None or agrees(state.at, request.cas)
        if answer is None:
            low = max(state.last, lowest(state.at))
            return state._replace(at=unknown_after(low), settings=request.settings) if may_write else state
        if not isinstance(answer.body, ConfigurationChange):
            return None
        if not answer.body.updated:
            return state if request.cas is not None and request.cas != state.at else None
        if not may_write or answer.index <= max(state.last, request.cas or NEVER, lowest(state.at)):
            return None
        return ConfigurationState(answer.index, request.settings, answer.index)


def _read(state: ConfigurationState, answer: Reply) -> ConfigurationState | None:
    shown: ShownConfiguration = answer.body
    if answer.is_refusal:
        return None
    is_same = agrees(state.at, shown.at) and state.settings == shown.settings
    return state._replace(at=shown.at, settings=shown.settings) if state.settings is None or is_same else None


class ConfigurationKind:
    """The scheduler configuration's preemption settings; all operations form one history."""

    name = "scheduler configuration"

    def __init__(self) -> None:
        self.model = ConfigurationModel()

    def key(self, number: int) -> str:
        """There is only one."""
        return "scheduler configuration"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        if isinstance(request, ReadConfiguration):
            return PreparedRequest("GET", SCHEDULER)
        flags = {f"{name}SchedulerEnabled": bool(on) for name, on in zip(SCHEDULERS, request.settings, strict=True)}
        return put(_conditional(SCHEDULER, request), {"PreemptionConfig": flags})

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if not isinstance(request, ReadConfiguration):
            return ConfigurationChange(document["Updated"])
        config = document["SchedulerConfig"]
        flags = config["PreemptionConfig"]
        return ShownConfiguration(
            config["ModifyIndex"], tuple(int(flags[f"{name}SchedulerEnabled"]) for name in SCHEDULERS)
        )

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        return _chosen(rng, past, tuple(int(rng.random() < 0.5) for _ in SCHEDULERS))

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadConfiguration(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


class AutopilotKind:
    """Autopilot's configuration, with the allowed lag of a healthy server; all operations form one history."""

    name = "autopilot configuration"

    def __init__(self) -> None:
        self.model = ConfigurationModel()

    def key(self, number: int) -> str:
        """There is only one."""
        return "autopilot configuration"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        if isinstance(request, ReadConfiguration):
            return PreparedRequest("GET", AUTOPILOT)
        return put(_conditional(AUTOPILOT, request), {"MaxTrailingLogs": request.settings[0]})

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if not isinstance(request, ReadConfiguration):
            return ConfigurationChange(document)
        return ShownConfiguration(document["ModifyIndex"], (document["MaxTrailingLogs"],))

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        return _chosen(rng, past, (rng.randrange(LOGS_MIN, LOGS_MAX),))

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadConfiguration(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ()


def _conditional(path: str, request: Configure) -> str:
    return path if request.cas is None else f"{path}?cas={request.cas}"


def _chosen(rng: random.Random, past: Sequence[Operation], settings: tuple[int, ...]) -> Request:
    kind = rng.random()
    if kind < 0.3:
        return ReadConfiguration()
    return Configure(settings, None if kind < 0.5 else latest_index(past, rng))
