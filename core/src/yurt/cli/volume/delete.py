"""`yurt volume delete`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import LIST, switch, text, without_effect
from yurt.cli.volume.lookup import find_volume
from yurt.cli.volume.spec import NO_CONTROLLER


def run(call: Invocation) -> int:
    """Delete it, with what is in it."""
    if call.flags.text("type") != "host":
        raise CliError(NO_CONTROLLER)
    volume = find_volume(call, call.args[0])
    query = {"namespace": volume["Namespace"], "force": call.flags.is_on("force") or None}
    call.api.delete(f"/v1/volume/host/{volume['ID']}/delete", query)
    call.screen.line(f'Successfully deleted volume "{volume["ID"]}"!')
    return 0


COMMAND = Command(
    "volume delete",
    "Delete a host volume that no allocation uses, with what is in it.",
    run,
    (
        without_effect("secret", kind=LIST),
        text("type", "The type of the volume: host.", default="host"),
        switch("force", "Forget the volume even when its node or plugin fails."),
    ),
    (1, 1),
    "<vol id>",
    "one argument: <vol id>",
)
"""The default of `-type` is host, for no CSI volume can be deleted yet."""
