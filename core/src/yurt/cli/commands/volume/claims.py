"""`yurt volume claim`: the claims of allocations on sticky volumes."""

from __future__ import annotations

from yurt.cli.commands.volume.lookup import find_claim
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.flags import switch, text
from yurt.cli.terminal.confirm import confirm
from yurt.cli.terminal.data import show_data, wants_data


def delete_claim(call: Invocation) -> int:
    """Delete a claim: the next allocation may use another volume."""
    claim = find_claim(call, call.args[0])
    question = f'Are you sure you want to delete the claim of job "{claim["JobID"]}" on "{claim["VolumeName"]}"?'
    is_sure = call.flags.is_on("y") or call.flags.is_on("yes")
    if not is_sure and not confirm(question):
        call.screen.line("Cancelled")
        return 1
    call.api.delete(f"/v1/volumes/claim/{claim['ID']}", {"namespace": claim["Namespace"]})
    call.screen.line(f'Host volume claim "{claim["ID"]}" has been deleted')
    return 0


def list_claims(call: Invocation) -> int:
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


COMMANDS = (
    CliCommand(
        "volume claim delete",
        "Delete the claim of an allocation on a sticky host volume",
        delete_claim,
        (switch("y", "Skip the confirmation."), switch("yes", "Skip the confirmation.")),
        (1, 1),
        "<id>",
        "one argument: <id>",
        details="The next allocation may go to another volume.",
    ),
    CliCommand(
        "volume claim list",
        "List the claims on sticky host volumes",
        list_claims,
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
        details="A claim must match all flags and the id prefix.",
    ),
)
