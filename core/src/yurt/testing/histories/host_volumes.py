"""A host volume that a node creates: requests, and their sequential behaviour.

A name has one volume on a node at a time. Making and deleting take several steps in the log; an answer tells the index
of the last one. The node may be ineligible for a moment, which is a reason to refuse a new volume at any time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Operation, Read, Reply, Request
from yurt.testing.histories.kinds import PreparedRequest, put
from yurt.testing.histories.log_index import NEVER

UNTOLD: Final = "?"
"""The id of a volume that no answer showed."""

OVERLAP: Final = "was changed by somebody else at the same time"
"""Why a change is refused while the node carries out another one, or reports the volume."""


class MakeVolume(Request, frozen=True):
    """PUT /v1/volume/host/create; with an id, the volume is changed."""

    id: str = ""


class DeleteVolume(Request, frozen=True):
    """DELETE /v1/volume/host/:id/delete."""

    id: str


class ReadVolume(Read, frozen=True):
    """GET /v1/volume/host/:id."""

    id: str


class VolumeState(NamedTuple):
    """The id of the volume; "" when it does not exist."""

    id: str = ""
    last: int = NEVER


class HostVolumeModel:
    """The sequential behaviour of the volumes of one name."""

    def initial(self) -> VolumeState:
        """The volume does not exist."""
        return VolumeState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: VolumeState, request: Any, answer: Reply | None) -> VolumeState | None:
        """See `Model.step`."""
        is_held = bool(state.id) and state.id in (request.id, UNTOLD)
        if answer is None:
            return state if request.is_read else _unknown(state, request, is_held=is_held)
        if answer.is_refusal:
            text = str(answer.body)
            if isinstance(request, MakeVolume) and not request.id:
                return state if ("already" in text and state.id) or "not ready and eligible" in text else None
            is_overlapped = OVERLAP in text and not request.is_read
            return state if is_overlapped or not state.id or state.id != request.id else None
        if request.is_read:
            return state._replace(id=request.id) if is_held else None
        if answer.index <= state.last:
            return None
        if isinstance(request, MakeVolume) and not request.id:
            return VolumeState(answer.body, answer.index) if not state.id else None
        return VolumeState(request.id if isinstance(request, MakeVolume) else "", answer.index) if is_held else None


def _unknown(state: VolumeState, request: Any, *, is_held: bool) -> VolumeState:
    if isinstance(request, MakeVolume):
        return state._replace(id=UNTOLD) if not request.id and not state.id else state
    return state._replace(id="") if is_held else state


class HostVolumeKind:
    """A volume of the plugin `mkdir` on the cluster's only node."""

    name = "host volume"

    def __init__(self) -> None:
        self.model = HostVolumeModel()

    def key(self, number: int) -> str:
        """A name."""
        return f"volume-{number}"

    def prepare(self, key: str, request: Any) -> PreparedRequest:
        """See `Kind.prepare`."""
        at = f"/v1/volume/host/{request.id}"
        match request:
            case MakeVolume(id=found):
                modes = [{"AttachmentMode": "file-system", "AccessMode": "single-node-writer"}]
                volume = {"Name": key, "PluginID": "mkdir", "RequestedCapabilities": modes}
                return put("/v1/volume/host/create", {"Volume": volume | ({"ID": found} if found else {})})
            case DeleteVolume():
                return PreparedRequest("DELETE", f"{at}/delete")
            case _:
                return PreparedRequest("GET", at)

    def body_of(self, request: Any, document: Any) -> Any:
        """See `Kind.body_of`."""
        return document["Volume"]["ID"] if isinstance(request, MakeVolume) else None

    def choose(self, rng: random.Random, past: Sequence[Operation], mark: str) -> Request:
        """See `Kind.choose`."""
        answers = [each.answer for each in past if each.answer is not None and not each.answer.is_refusal]
        known = [each.body for each in answers if isinstance(each.body, str)]
        if not known:
            return MakeVolume()
        found = known[-1] if rng.random() < _LATEST else rng.choice(known)
        requests = (MakeVolume(), MakeVolume(found), DeleteVolume(found), ReadVolume(found))
        return rng.choices(requests, _WEIGHTS)[0]

    def last_reads(self) -> Sequence[Request]:
        """See `Kind.last_reads`."""
        return ()

    def records(self, key: str) -> Sequence[str]:
        """See `Kind.records`."""
        return ("/v1/volumes?type=host",)


_WEIGHTS: Final = (4, 3, 4, 4)
_LATEST: Final = 0.8
