"""A CSI volume and the job that runs its plugin: requests, and their sequential behaviour.

A volume can be registered, and changed, while a job names its plugin. It stays when that job is purged, and nobody uses
it, so it can always be deregistered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.job_requests import job_document
from yurt.testing.histories.kinds import PreparedRequest, job_records, put
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after


class RegisterPlugin(Request, frozen=True):
    """PUT /v1/jobs: a job whose task is the plugin."""


class PurgePlugin(Request, frozen=True):
    """DELETE /v1/job/:id?purge=true."""


class RegisterVolume(Request, frozen=True):
    """PUT /v1/volume/csi/:id."""

    mark: str


class DeregisterVolume(Request, frozen=True):
    """DELETE /v1/volume/csi/:id."""


class ReadCsiVolume(Read, frozen=True):
    """GET /v1/volume/csi/:id."""


class ShownCsiVolume(NamedTuple):
    """The volume in a body."""

    at: int
    created: int
    mark: str


class CsiVolumeState(NamedTuple):
    """The volume's index (NEVER: it does not exist), and whether its plugin is known."""

    has_plugin: bool = False
    at: int = NEVER
    created: int = NEVER
    mark: str = ""
    last: int = NEVER


class CsiVolumeModel:
    """The sequential behaviour of a volume."""

    def initial(self) -> CsiVolumeState:
        """Neither the plugin nor the volume exists."""
        return CsiVolumeState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: CsiVolumeState, request: Any, answer: Reply | None) -> CsiVolumeState | None:
        """See `Model.step`."""
        low = max(state.last, lowest(state.at))
        if answer is None:
            return state if request.is_read else (_after(state, request, unknown_after(low)) or state)
        if answer.is_refusal:
            is_refused = request.is_read or _after(state, request, NEVER) is None
            return state if is_refused and _is_reason(state, request, str(answer.body)) else None
        if request.is_read:
            return _read(state, answer.body)
        after = _after(state, request, answer.index) if answer.index > low else None
        return None if after is None else after._replace(last=answer.index)


def _after(state: CsiVolumeState, request: Any, at: int) -> CsiVolumeState | None:
    """The state after a request; None when it must be refused."""
    match request:
        case RegisterPlugin():
            return state._replace(has_plugin=True)
        case PurgePlugin():
            return state._replace(has_plugin=False)
        case RegisterVolume(mark=mark) if state.has_plugin:
            return state._replace(at=at, created=at if state.at == NEVER else state.created, mark=mark)
        case DeregisterVolume() if state.at != NEVER:
            return CsiVolumeState(has_plugin=state.has_plugin, last=max(state.last, lowest(state.at)))
        case _:
            return None


def _is_reason(state: CsiVolumeState, request: Any, text: str) -> bool:
    if isinstance(request, RegisterVolume):
        return "no CSI plugin" in text
    return state.at == NEVER and "volume not found" in text


def _read(state: CsiVolumeState, shown: ShownCsiVolume) -> CsiVolumeState | None:
    is_same = agrees(state.at, shown.at) and agrees(state.created, shown.created) and state.mark == shown.mark
    return state._replace(at=shown.at, created=shown.created) if state.at != NEVER and is_same else None


class CsiVolumeKind:
    """A volume whose plugin is named by one job and runs on no node."""

    name = "CSI volume"

    def __init__(self) -> None:
        self.model = CsiVolumeModel()

    def key(self, number: int) -> str:
        """The id of the volume, of its plugin and of the job."""
        return f"csi-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/volume/csi/{key}"
        match request:
            case RegisterPlugin():
                return put("/v1/jobs", {"Job": _plugin_document(key)})
            case PurgePlugin():
                return PreparedRequest("DELETE", f"/v1/job/{key}?purge=true")
            case RegisterVolume(mark=mark):
                modes = [{"AttachmentMode": "file-system", "AccessMode": "single-node-writer"}]
                volume = {"ID": key, "PluginID": key, "ExternalID": mark, "RequestedCapabilities": modes}
                return put(at, {"Volumes": [volume]})
            case DeregisterVolume():
                return PreparedRequest("DELETE", at)
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        if not isinstance(request, ReadCsiVolume):
            return None
        return ShownCsiVolume(document["ModifyIndex"], document["CreateIndex"], document["ExternalID"])

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        requests = RegisterPlugin(), PurgePlugin(), RegisterVolume(mark), DeregisterVolume(), ReadCsiVolume()
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return (ReadCsiVolume(),)

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return job_records(key)


def _plugin_document(key: str) -> dict[str, Any]:
    document = job_document(key, (1,), {}, Type="service")
    (group,) = document["TaskGroups"]
    tasks = [{**task, "CSIPluginConfig": {"ID": key, "Type": "node", "MountDir": "/csi"}} for task in group["Tasks"]]
    return {**document, "TaskGroups": [{**group, "Tasks": tasks}]}


_WEIGHTS: Final = (3, 2, 6, 4, 5)
