"""`yurt volume create`."""

from __future__ import annotations

import time

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, text, without_effect
from yurt.cli.volume.spec import CSI, NO_CONTROLLER, asked_volume

READY_LIMIT_S = 60.0
STEP_S = 0.2


def run(call: Invocation) -> int:
    """Make the volume of a file and wait until its node offers it."""
    spec = asked_volume(call)
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


COMMAND = Command(
    "volume create",
    "Make a host volume as a file describes it, in HCL or JSON.",
    run,
    (
        switch("detach", "Do not wait until the volume is ready."),
        switch("verbose", "Whole ids."),
        without_effect("policy-override"),
        text("id", "Change the volume with this id."),
    ),
    (1, 1),
    "<input>",
    "one argument: <input>",
)
