"""`yurt volume deregister`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.volume.lookup import find_csi


def run(call: Invocation) -> int:
    """Forget it; what is in it stays where it is."""
    volume = find_csi(call, call.args[0])
    query = {"namespace": volume["Namespace"], "force": call.flags.is_on("force") or None}
    call.api.delete(api_path("volume", "csi", volume["ID"]), query)
    call.screen.line(f'Successfully deregistered volume "{volume["ID"]}"!')
    return 0


COMMAND = Command(
    "volume deregister",
    "Forget a CSI volume that no allocation uses; its content stays in the storage.",
    run,
    (switch("force", "Forget the volume even while allocations use it."),),
    (1, 1),
    "<id>",
    "one argument: <id>",
)
