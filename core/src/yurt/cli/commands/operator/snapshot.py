"""`yurt operator snapshot`: the state of the cluster in a file."""

from __future__ import annotations

import os

from yurt.cli.commands.operator.rows import lines
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import switch, texts, without_effect
from yurt.cli.terminal.text import SECOND, bytes_text, now_ns
from yurt.sdk.errors import Invalid

RESTORED = (
    ("ACLTokens", "tokens that became valid"),
    ("ACLPolicies", "policies"),
    ("ACLRoles", "roles"),
    ("ACLAuthMethods", "login methods"),
    ("ACLBindingRules", "binding rules"),
)


def inspect_snapshot(call: Invocation) -> int:
    """Show the content of a file; its digests and state are verified."""
    import tempfile
    from pathlib import Path

    from yurt.storage.archive_check import check_archive_here

    path = Path(call.args[0])
    try:
        size = path.stat().st_size
        with path.open("rb") as file, tempfile.TemporaryFile() as state:
            archive, tables = check_archive_here(file, state)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    if call.flags.is_on("json"):
        counts = [{"Type": each.table, "Count": each.rows} for each in tables]
        facts = {"ID": archive.id, "Size": size, "Index": archive.state_index, "Term": archive.term}
        call.screen.json(facts | {"Version": archive.version, "Types": counts})
        return 0
    call.screen.pairs(
        [
            ("ID", archive.id),
            ("Size", bytes_text(size)),
            ("Index", archive.state_index),
            ("Term", archive.term),
            ("Version", archive.version),
        ]
    )
    call.screen.line()
    call.screen.table("Type|Count", [[each.table, str(each.rows)] for each in tables])
    return 0


def restore_snapshot(call: Invocation) -> int:
    """Replace the state of the cluster by the one in the file."""
    from pathlib import Path

    from yurt.cli.api.client import error_of

    path = Path(call.args[0])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    answer = call.api.raw("PUT", "/v1/operator/snapshot", data, {"Content-Type": "application/octet-stream"})
    if answer.status == 400:
        raise CliError(f"{path}: {error_of(answer)}")
    if answer.status >= 400:
        raise error_of(answer)
    call.screen.line("Snapshot Restored")
    _warn_of_access(call, answer.body)
    return 0


def _warn_of_access(call: Invocation, body: bytes) -> None:
    """Name what the restore changed in access control."""
    import json

    access = (json.loads(body) if body else {}).get("RestoredAccess")
    if not access:
        return
    call.screen.line()
    call.screen.line(f"Warning: {access['Count']} objects of access control are as they were in the snapshot.")
    call.screen.line("Revoke or change what must not be valid:")
    for field, what in RESTORED:
        if access[field]:
            call.screen.line(f"  {what}: {', '.join(access[field])}")


def save_snapshot(call: Invocation) -> int:
    """Write the state of the cluster to a file that only its owner can read; never overwrites."""
    import base64
    import hashlib
    from pathlib import Path

    from yurt.cli.api.client import error_of

    path = Path(call.args[0] if call.args else f"backup-{now_ns() // SECOND}.snap")
    answer = call.api.raw("GET", "/v1/operator/snapshot" + ("?stale" if call.flags.is_on("stale") else ""))
    if answer.status >= 400:
        raise error_of(answer)
    digest = base64.b64encode(hashlib.sha256(answer.body).digest()).decode()
    if answer.headers.get("digest") != f"sha-256={digest}":
        raise CliError("The snapshot was damaged on its way: its digest does not fit. Save it again.")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(answer.body)
    except FileExistsError:
        raise CliError(f"{path}: already exists; name another file, or remove it first") from None
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    call.screen.line(f"State file written to {path}")
    return 0


def print_snapshot_state(call: Invocation) -> int:
    """The rows of every table, as JSON."""
    import tempfile
    from pathlib import Path

    from yurt.filters import compile_filter
    from yurt.storage.archive import state_of
    from yurt.storage.archive_check import check_archive_here

    path = Path(call.args[0])
    try:
        filters = [compile_filter(text) for text in call.flags.texts("filter")]
        with path.open("rb") as file, tempfile.TemporaryFile() as state:
            archive, _ = check_archive_here(file, state)
            for line in lines(state_of(archive, state), filters):
                call.screen.line(line)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    return 0


def redact_snapshot(call: Invocation) -> int:
    """Check the file; it contains no key to remove."""
    import tempfile
    from pathlib import Path

    from yurt.storage.archive_check import check_archive_here

    path = Path(call.args[0])
    try:
        with path.open("rb") as file, tempfile.TemporaryFile() as state:
            check_archive_here(file, state)
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None
    call.screen.line(f"{path} is unchanged: snapshots of Yurt hold no keys, and variables only encrypted.")
    return 0


COMMANDS = (
    CliCommand(
        "operator snapshot redact",
        "Check that a snapshot file holds no keys; it never does",
        redact_snapshot,
        (),
        (1, 1),
        "<file>",
        "one argument: <file>",
        details="Root keys are kept outside of snapshots, and variables are stored encrypted; the file stays as it is.",
        is_client=False,
    ),
    CliCommand(
        "operator snapshot inspect",
        "Check a snapshot file and show what it holds",
        inspect_snapshot,
        (switch("json", "Print JSON."),),
        (1, 1),
        "<file>",
        "one argument: <file>",
        is_client=False,
    ),
    CliCommand(
        "operator snapshot restore",
        "Replace the state of the cluster by the one in a snapshot file",
        restore_snapshot,
        (),
        (1, 1),
        "<file>",
        "one argument: <file>",
        details="What runs follows the restored state: allocations that it does not know are stopped.\n\n"
        "Revoked tokens stay revoked, and tokens keep their present rights. Policies, roles, login methods and\n"
        "binding rules become those of the snapshot; the command names the ones that changed.",
    ),
    CliCommand(
        "operator snapshot save",
        "Write the state of the cluster to a snapshot file",
        save_snapshot,
        (switch("stale", "Ask also a server that does not lead."), without_effect("redact")),
        (0, 1),
        "[<file>]",
        "at most one argument: <file>",
        details="Without a file name: backup-<time>.snap in the present folder.",
    ),
    CliCommand(
        "operator snapshot state",
        "Print the state in a snapshot file as JSON",
        print_snapshot_state,
        (texts("filter", "Print only rows that fit this expression; may be given several times, and all must fit."),),
        (1, 1),
        "<file>",
        "one argument: <file>",
        details="""
The output is an object: Index, and for each table that has rows (Jobs, Nodes, Allocs, Evals, ...) their list, one row a
line. Filters are written as those of the API (-filter 'JobID == "web"'); tables without the fields of a filter are left
out. Variables stay encrypted; secrets of nodes, of volumes and of locks are not printed. The file's digests are checked
first.
""",
        is_client=False,
    ),
)
