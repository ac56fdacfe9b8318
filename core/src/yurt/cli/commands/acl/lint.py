"""`yurt acl lint`: problems of a policy beyond its syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.flags import switch
from yurt.cli.json_object import Json
from yurt.sdk.errors import Reason

if TYPE_CHECKING:
    from yurt.acl.lint import LintFinding, Names

FOUND = 1
TROUBLE = 2


def run(call: Invocation) -> int:
    """Print findings as FILE:LINE:COLUMN; 0 for none, 1 for some, 2 for an unreadable policy."""
    from yurt.acl.lint import lint
    from yurt.acl.policy import PolicyError
    from yurt.cli.files.source import read_text

    path = call.args[0]
    text = read_text(path)
    filename = "stdin" if path == "-" else path
    names = None if call.flags.is_on("offline") else _names(call)
    try:
        rows = [_row(filename, each) for each in lint(text, names=names, filename=filename)]
    except PolicyError as error:
        rows = [
            {
                "File": filename, "Line": each.line, "Column": each.column, "Severity": "error", "Code": "invalid",
                "Message": f"{each.summary}: {each.detail}", "Hint": each.hint or "",
            }
            for each in error.diagnostics
        ]  # fmt: skip
    if call.flags.is_on("json"):
        call.screen.json(rows)
    else:
        for row in rows:
            hint = f" {row['Hint']}" if row["Hint"] else ""
            place = f"{row['File']}:{row['Line']}:{row['Column']}"
            call.screen.line(f"{place}: {row['Severity']}: {row['Message']}{hint} [{row['Code']}]")
    return FOUND if rows else 0


def _row(filename: str, found: LintFinding) -> Json:
    return {
        "File": filename, "Line": found.line, "Column": found.column, "Severity": "warning", "Code": found.code,
        "Message": found.text, "Hint": found.hint,
    }  # fmt: skip


def _names(call: Invocation) -> Names | None:
    """The names that the servers know; None where the caller may not see all of them, and one would seem unknown."""
    from yurt.acl.lint import Names

    complete = {"complete": "true"}
    try:
        namespaces = call.api.get("/v1/namespaces", complete) or []
        pools = call.api.get("/v1/node/pools", complete) or []
        volumes = call.api.get("/v1/volumes", {"type": "host", "namespace": "*"}) or []
        static = [name for node in call.api.get("/v1/nodes") or [] for name in _host_volumes(call, node["ID"])]
    except ApiError as error:
        if error.reason is Reason.PERMISSION_DENIED:
            return None
        raise
    except CliError as error:
        raise CliError(f"{error}\nWithout an agent: yurt acl lint -offline {call.args[0]}") from None
    return Names(
        namespaces=[row["Name"] for row in namespaces],
        node_pools=[row["Name"] for row in pools],
        host_volumes=[*(row["Name"] for row in volumes), *static],
    )


def _host_volumes(call: Invocation, node_id: str) -> list[str]:
    """The volumes that the configuration of a client offers."""
    return list(call.api.get(f"/v1/node/{node_id}").get("HostVolumes") or {})


COMMANDS = (
    CliCommand(
        "acl lint",
        "Find probable mistakes in a valid policy",
        run,
        (switch("offline", "Ask no server which names there are."), switch("json", "Print the findings as JSON.")),
        (1, 1),
        "<file>",
        "one argument: <file>",
        details=(
            "The file holds the rules in HCL or JSON; - reads them from standard input. Found are rules that never "
            "count (never-matches), words that others include (redundant), and namespaces, node pools and host volumes "
            "that do not exist (unknown-name), where the token is a management token.\n\n"
            "The exit code is 0 without findings, 1 with some, and 2 where the policy could not be looked at."
        ),
        failure_code=TROUBLE,
        usage_code=TROUBLE,
    ),
)
