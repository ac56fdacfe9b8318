"""`yurt volume claim delete`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.terminal.confirm import confirm
from yurt.cli.volume.lookup import find_claim


def run(call: Invocation) -> int:
    """Delete it: the next allocation may go to another volume."""
    claim = find_claim(call, call.args[0])
    question = f'Are you sure you want to delete the claim of job "{claim["JobID"]}" on "{claim["VolumeName"]}"?'
    is_sure = call.flags.is_on("y") or call.flags.is_on("yes")
    if not is_sure and not confirm(question):
        call.screen.line("Cancelled")
        return 1
    call.api.delete(f"/v1/volumes/claim/{claim['ID']}", {"namespace": claim["Namespace"]})
    call.screen.line(f'Host volume claim "{claim["ID"]}" has been deleted')
    return 0


COMMAND = Command(
    "volume claim delete",
    "Delete a claim of a sticky host volume: the next allocation may go to another one.",
    run,
    (switch("y", "Do not ask."), switch("yes", "Do not ask.")),
    (1, 1),
    "<id>",
    "one argument: <id>",
)
