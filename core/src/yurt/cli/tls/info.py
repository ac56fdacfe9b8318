"""What `yurt tls ca info` and `yurt tls cert info` print."""

from __future__ import annotations

from yurt.cli.command import Invocation
from yurt.cli.errors import CliError
from yurt.cli.tls import files


def show(call: Invocation, *, is_authority: bool) -> int:
    """The facts of a certificate in a file."""
    from yurt.rpc.certificates import facts_of
    from yurt.sdk.errors import YurtError

    path = call.args[0]
    try:
        facts = facts_of(files.read(path))
    except YurtError as error:
        raise CliError(f"{path}: {error}") from None
    if is_authority and not facts.is_authority:
        raise CliError(f"{path} is no certificate of an authority; see `yurt tls cert info`")
    rows = {
        "Serial Number": facts.serial,
        "Issuer": facts.issuer,
        "Subject": facts.subject,
        "Names": ", ".join(facts.names) or "<none>",
        "Valid From": facts.begins.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Expiry Date": facts.ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "Is CA": str(facts.is_authority).lower(),
    }
    width = max(map(len, rows))
    for name, value in rows.items():
        call.screen.line(f"{name:{width}} = {value}")
    return 0
