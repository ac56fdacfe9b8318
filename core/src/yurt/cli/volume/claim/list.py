"""`yurt volume claim list`."""

from __future__ import annotations

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import switch, text
from yurt.cli.terminal.data import show_data, wants_data


def run(call: Invocation) -> int:
    """Claims of sticky volumes."""
    is_data = wants_data(call)
    query = {
        "job_id": call.flags.text("job"),
        "task_group": call.flags.text("group"),
        "volume_name": call.flags.text("volume-name"),
        "prefix": call.args[0] if call.args else "",
    }
    found = call.api.get("/v1/volumes/claims", query) or []
    if is_data:
        return show_data(call, found)
    if not found:
        call.screen.line("No host volume claims found")
        return 0
    rows = [
        [call.short(each["ID"]), each["Namespace"], each["JobID"], call.short(each["VolumeID"]), each["VolumeName"]]
        for each in found
    ]
    call.screen.table("ID|Namespace|Job ID|Volume ID|Volume Name", rows)
    return 0


COMMAND = Command(
    "volume claim list",
    "List the claims of sticky host volumes.",
    run,
    (
        text("job", "Claims of this job."),
        text("group", "Claims of this group."),
        text("volume-name", "Claims on volumes of this name."),
        switch("verbose", "Whole ids."),
        *JSON_FLAGS,
    ),
    (0, 1),
    "[claim_id]",
    "at most one argument: [claim_id]",
)
