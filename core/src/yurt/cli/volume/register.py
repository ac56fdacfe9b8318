"""`yurt volume register`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import text, without_effect
from yurt.cli.volume.spec import CSI, asked_volume


def run(call: Invocation) -> int:
    """Offer a folder that is on a node as a volume, or one that a CSI plugin has in its storage."""
    spec = asked_volume(call)
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


COMMAND = Command(
    "volume register",
    "Offer a folder of a node, or a volume in the storage of a CSI plugin, as a file describes it.",
    run,
    (without_effect("policy-override"), text("id", "Change the volume with this id.")),
    (1, 1),
    "<input>",
    "one argument: <input>",
)
