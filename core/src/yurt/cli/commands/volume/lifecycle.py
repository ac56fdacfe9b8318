"""`yurt volume create`, `delete`, `register`, `deregister` and `detach`."""

from __future__ import annotations

import time

from yurt.cli.api.lookup import api_path, find_node
from yurt.cli.commands.volume.lookup import find_any, find_csi
from yurt.cli.commands.volume.secrets import SECRET, secret_header
from yurt.cli.commands.volume.specification import CSI, HOST, NO_CONTROLLER, requested_volume
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text, without_effect
from yurt.cli.json_object import Json

READY_LIMIT_S = 60.0
STEP_S = 0.2


def create_volume(call: Invocation) -> int:
    """Make the volume of a file and wait until its node offers it."""
    spec = requested_volume(call)
    if spec.kind == CSI:
        raise CliError(NO_CONTROLLER)
    volume = call.api.put("/v1/volume/host/create", {"Volume": spec.fields})["Volume"]
    call.screen.line(f'Created host volume "{volume["Name"]}" with ID {volume["ID"]}')
    if call.flags.is_on("detach"):
        return 0
    call.screen.line(f'Monitoring volume "{call.short(volume["ID"])}" on node {call.short(volume["NodeID"])}')
    end = time.monotonic() + READY_LIMIT_S
    while volume["State"] != "ready" and time.monotonic() < end:
        time.sleep(STEP_S)
        volume = call.api.get(f"/v1/volume/host/{volume['ID']}", {"namespace": volume["Namespace"]})
    call.screen.line(f'Volume "{call.short(volume["ID"])}" is {volume["State"]}')
    return 0 if volume["State"] == "ready" else 1


def delete_volume(call: Invocation) -> int:
    """Delete the volume and its data."""
    given, asked = call.args[0], call.flags.text("type")
    if asked not in ("", HOST, CSI):
        raise UsageError(f'-type is host or csi, not "{asked}"')
    kind, volume = find_any(call, given, asked)
    if kind == CSI:
        # A host volume may be meant that is gone already: the beginning of an ID is then no sign of this volume.
        if not asked and given not in (volume["ID"], volume["Name"]):
            raise CliError(
                f'No volume has the ID or name "{given}". To delete the CSI volume {volume["ID"]}, give its whole ID.'
            )
        return _delete_csi(call, volume)
    query = {"namespace": volume["Namespace"], "force": call.flags.is_on("force") or None}
    call.api.delete(f"/v1/volume/host/{volume['ID']}/delete", query)
    call.screen.line(f'Successfully deleted volume "{volume["ID"]}"!')
    return 0


def _delete_csi(call: Invocation, volume: Json) -> int:
    """Let the volume's plugin delete it; agents whose plugins cannot report that."""
    path = api_path("volume", "csi", volume["ID"], "delete")
    call.api.delete(path, {"namespace": volume["Namespace"]}, headers=secret_header(call))
    call.screen.line(f'Successfully deleted volume "{volume["ID"]}"!')
    return 0


def register_volume(call: Invocation) -> int:
    """Offer a folder that is on a node as a volume, or one that a CSI plugin has in its storage."""
    spec = requested_volume(call)
    if spec.kind == CSI:
        volume_id = str(spec.fields.get("ID") or "")
        if not volume_id:
            raise CliError(f"{call.args[0]}: missing id: the name by which jobs ask for the volume")
        call.api.put(api_path("volume", "csi", volume_id), {"Volumes": [spec.fields]})
        call.screen.line(f'Registered CSI volume "{volume_id}"')
        return 0
    volume = call.api.put("/v1/volume/host/register", {"Volume": spec.fields})["Volume"]
    call.screen.line(f'Registered host volume "{volume["Name"]}" with ID {volume["ID"]}')
    return 0


def deregister_volume(call: Invocation) -> int:
    """Deregister the volume; its data is kept."""
    volume = find_csi(call, call.args[0])
    query = {"namespace": volume["Namespace"], "force": call.flags.is_on("force") or None}
    call.api.delete(api_path("volume", "csi", volume["ID"]), query)
    call.screen.line(f'Successfully deregistered volume "{volume["ID"]}"!')
    return 0


def detach_volume(call: Invocation) -> int:
    """Detach the volume from a node."""
    volume, node = find_csi(call, call.args[0]), find_node(call, call.args[1])
    query = {"namespace": volume["Namespace"], "node": node["ID"]}
    call.api.delete(api_path("volume", "csi", volume["ID"], "detach"), query)
    call.screen.line(f'Volume "{volume["ID"]}" is detached from node {node["ID"]}')
    return 0


COMMANDS = (
    CliCommand(
        "volume create",
        "Create a host volume from a file in HCL or JSON",
        create_volume,
        (
            switch("detach", "Do not wait until the volume is ready."),
            switch("verbose", "Whole ids."),
            without_effect("policy-override"),
            text("id", "Change the volume with this id."),
        ),
        (1, 1),
        "<input>",
        "one argument: <input>",
    ),
    CliCommand(
        "volume delete",
        "Delete a host volume that no allocation uses, and its content",
        delete_volume,
        (
            SECRET,
            text("type", "The type of the volume: host or csi; either without it, a CSI volume by its whole ID."),
            switch("force", "Forget the volume even when its node or plugin fails."),
        ),
        (1, 1),
        "<vol id>",
        "one argument: <vol id>",
    ),
    CliCommand(
        "volume register",
        "Register a folder of a node or a CSI volume, from a file",
        register_volume,
        (without_effect("policy-override"), text("id", "Change the volume with this id.")),
        (1, 1),
        "<input>",
        "one argument: <input>",
    ),
    CliCommand(
        "volume deregister",
        "Forget a CSI volume that no allocation uses, and keep its content",
        deregister_volume,
        (switch("force", "Forget the volume even while allocations use it."),),
        (1, 1),
        "<id>",
        "one argument: <id>",
    ),
    CliCommand(
        "volume detach",
        "Make sure that no allocation on a node has a CSI volume any more",
        detach_volume,
        (),
        (2, 2),
        "<vol id> <node id>",
        "two arguments: <vol id> <node id>",
        details="""
An allocation has its volumes until it has ended and they are unmounted; while one on the node has the volume, the
command fails and names it.
""",
    ),
)
