"""Commands for the racks of a site: `yurt racks list` shows which node stands where."""

from yurt.sdk.commands import TEXT, CommandCall, CommandFailed, CommandFlag, PackageCommand
from yurt.sdk.plugin import plugin_function

ROW = "rack.row"


def list_racks(call: CommandCall) -> int:
    row = call.text("row")
    rows = []
    for node in call.get("/v1/nodes") or []:
        attributes = call.get(f"/v1/node/{node['ID']}")["Attributes"] or {}
        if attributes.get(ROW) and row in ("", attributes[ROW]):
            rows.append((attributes[ROW], node["Name"], node["Status"]))
    if not rows:
        raise CommandFailed(f"no node tells its row{f' as {row}' if row else ''}; is the fingerprint set up?")
    call.table(("Row", "Node", "Status"), sorted(rows))
    return 0


@plugin_function
def yurt_commands() -> list[PackageCommand]:
    row = CommandFlag("row", TEXT, "Show this row only.")
    return [PackageCommand("racks list", "Show the nodes of each row", list_racks, flags=(row,))]
