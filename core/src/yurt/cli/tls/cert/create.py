"""`yurt tls cert create`."""

from __future__ import annotations

from pathlib import Path

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number, switch, text, texts
from yurt.cli.tls import files

ROLES = ("server", "client", "cli")
NUMBERS_MAX = 1000


def run(call: Invocation) -> int:
    """Make a certificate for a server, a client or the command line, and write it to two files of this folder."""
    from yurt.rpc.certificates import Pair, Wish, make_certificate, role_name
    from yurt.sdk.errors import YurtError

    flags = call.flags
    role, domain, days = role_of(call), flags.text("domain"), flags.number("days")
    if days < 1:
        raise UsageError("-days must be 1 or more")
    authority = Pair(
        certificate=files.read(flags.text("ca").replace("#DOMAIN#", domain)),
        key=files.read(flags.text("key").replace("#DOMAIN#", domain)),
    )
    region = flags.text("region")
    wish = Wish(
        common_name=role_name(role, region, domain),
        days=days,
        names=("localhost", *flags.texts("additional-dnsname")),
        addresses=("127.0.0.1", *flags.texts("additional-ipaddress")),
        is_server=role != "cli",
    )
    try:
        made = make_certificate(wish, authority, files.now())
    except YurtError as error:
        raise CliError(str(error)) from None
    certificate_file, key_file = free_names(f"{region}-{role}-{domain}")
    files.write(key_file, made.key, mode=files.KEY_MODE)
    files.write(certificate_file, made.certificate, mode=files.CERTIFICATE_MODE)
    call.screen.line(f"==> {role.capitalize()} certificate saved to: {certificate_file}")
    call.screen.line(f"==> {role.capitalize()} certificate key saved to: {key_file}")
    return 0


def role_of(call: Invocation) -> str:
    """The one role that the flags name."""
    given = [role for role in ROLES if call.flags.is_on(role)]
    if len(given) != 1:
        raise UsageError("name one of -server, -client and -cli")
    return given[0]


def free_names(stem: str) -> tuple[str, str]:
    """Files that are not there yet: further certificates of a role are numbered."""
    for number_of in range(NUMBERS_MAX):
        suffix = f"-{number_of}" if number_of else ""
        names = f"{stem}{suffix}.pem", f"{stem}{suffix}-key.pem"
        if not any(Path(name).exists() for name in names):
            return names
    raise CliError(f"{stem}.pem and {NUMBERS_MAX - 1} more are in this folder; move some away")


COMMAND = Command(
    "tls cert create",
    "Make a certificate for an agent or for the command line, signed by the authority of `tls ca create`.",
    run,
    (
        switch("server", "For a server."),
        switch("client", "For a client."),
        switch("cli", "For the command line."),
        text("ca", "The authority's certificate.", default="#DOMAIN#-agent-ca.pem"),
        text("key", "The authority's key.", default="#DOMAIN#-agent-ca-key.pem"),
        text("domain", "The domain of the certificate.", default="nomad"),
        text("region", "The region of the agent.", default="global"),
        number("days", "How many days it is valid.", default=365),
        texts("additional-dnsname", "A further name of the owner; may be repeated."),
        texts("additional-ipaddress", "A further address of the owner; may be repeated."),
    ),
    is_client=False,
)
