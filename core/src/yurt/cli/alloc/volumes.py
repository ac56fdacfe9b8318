"""The volumes of an allocation's group on the screen."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Invocation
from yurt.cli.errors import ApiError
from yurt.cli.views.csi import mount_options, shown_bool

Json = dict[str, Any]
_INDEX = re.compile(r"\[([0-9]+)\]$")


def show_volumes(call: Invocation, alloc: Json, group: Json) -> None:
    """Tables of host volumes and of CSI volumes, as far as the group asks for any."""
    requests: list[Json] = [each for _, each in sorted((group.get("Volumes") or {}).items())]
    hosts = [[_source(alloc, each), shown_bool(each.get("ReadOnly"))] for each in requests if each["Type"] == "host"]
    if hosts:
        call.screen.title("Host Volumes:")
        call.screen.table("ID|Read Only", hosts)
    rows = [_csi_row(call, alloc, each) for each in requests if each["Type"] == "csi"]
    if rows:
        call.screen.title("CSI Volumes:")
        call.screen.table("Name|ID|Plugin|Provider|Schedulable|Read Only|Mount Options", rows)


def _source(alloc: Json, request: Json) -> str:
    """The id of the volume; with `per_alloc` each allocation has one of its own."""
    index = _INDEX.search(alloc["Name"])
    return str(request["Source"]) + (index[0] if request.get("PerAlloc") and index is not None else "")


def _csi_row(call: Invocation, alloc: Json, request: Json) -> list[str]:
    """What the servers know of the volume; little when it was deregistered."""
    source = _source(alloc, request)
    volume: Json = {}
    with contextlib.suppress(ApiError):
        volume = call.api.get(api_path("volume", "csi", source), {"namespace": alloc["Namespace"]})
    options = mount_options(request.get("MountOptions") or volume.get("MountOptions"))
    return [
        request["Name"], source, volume.get("PluginID") or "", volume.get("Provider") or "",
        shown_bool(volume.get("Schedulable")), shown_bool(request.get("ReadOnly")), options,
    ]  # fmt: skip
