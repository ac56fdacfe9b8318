"""`yurt volume register`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch, text
from yurt.cli.volume.spec import asked_volume


def run(call: Invocation) -> int:
    """Offer a folder that is on a node as a volume."""
    spec = asked_volume(call)
    volume = call.api.put("/v1/volume/host/register", {"Volume": spec})["Volume"]
    call.screen.line(f'Registered host volume "{volume["Name"]}" with ID {volume["ID"]}')
    return 0


COMMAND = Command(
    "volume register",
    "Offer a folder that is on a node as a host volume, as a file describes it.",
    run,
    (switch("policy-override", "Accepted and without effect."), text("id", "Change the volume with this id.")),
    (1, 1),
    "<input>",
    "one argument: <input>",
)
