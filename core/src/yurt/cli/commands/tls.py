"""`yurt tls`: a certificate authority and certificates for agents and the command line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number, switch, text, texts

if TYPE_CHECKING:
    from yurt.sdk.value import UnixNano

KEY_MODE, CERTIFICATE_MODE = 0o600, 0o644

SUBJECT = ("country", "postal-code", "province", "locality", "street-address", "organization", "organizational-unit")
ROLES = ("server", "client", "cli")
NUMBERS_MAX = 1000


def time_now() -> UnixNano:
    """The time at which a certificate is made."""
    from yurt.sdk.value import UnixNano

    return UnixNano(time.time_ns())


def read_file(path: str) -> bytes:
    """The file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None


def check_free(*paths: str) -> None:
    """None of the files may be there yet."""
    for path in paths:
        if os.path.lexists(path):
            raise CliError(
                f"{path} exists already; move it away first, for what it has signed would lose its authority"
            )


def write_file(path: str, data: bytes, *, mode: int) -> None:
    """A new file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def show(call: Invocation, *, is_authority: bool) -> int:
    """The facts of a certificate in a file."""
    from yurt.rpc.certificates import facts_of
    from yurt.sdk.errors import YurtError

    path = call.args[0]
    try:
        facts = facts_of(read_file(path))
    except YurtError as error:
        raise CliError(f"{path}: {error}") from None
    if is_authority and not facts.is_authority:
        raise CliError(f"{path} is not a certificate of an authority; see `yurt tls cert info`")
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


def create_authority(call: Invocation) -> int:
    """Make an authority and write it to two files of this folder."""
    from yurt.rpc.certificates import Wish, make_authority
    from yurt.sdk.errors import YurtError

    flags = call.flags
    domain, days = flags.text("domain"), flags.number("days")
    if days < 1:
        raise UsageError("-days must be 1 or more")
    if flags.texts("additional-domain") and not flags.is_on("name-constraint"):
        raise UsageError("-additional-domain limits what the authority may sign; it needs -name-constraint")
    permitted = (domain, "localhost", *flags.texts("additional-domain")) if flags.is_on("name-constraint") else ()
    certificate_file, key_file = f"{domain}-agent-ca.pem", f"{domain}-agent-ca-key.pem"
    check_free(certificate_file, key_file)
    wish = Wish(
        common_name=flags.text("common-name") or f"{domain.capitalize()} Agent CA",
        days=days,
        permitted_domains=tuple(permitted),
        subject=tuple((name.replace("-", "_"), flags.text(name)) for name in SUBJECT),
    )
    try:
        made = make_authority(wish, time_now())
    except YurtError as error:
        raise CliError(str(error)) from None
    write_file(key_file, made.key, mode=KEY_MODE)
    write_file(certificate_file, made.certificate, mode=CERTIFICATE_MODE)
    call.screen.line(f"==> CA certificate saved to: {certificate_file}")
    call.screen.line(f"==> CA certificate key saved to: {key_file}")
    return 0


def show_authority(call: Invocation) -> int:
    """Print its facts."""
    return show(call, is_authority=True)


def create_certificate(call: Invocation) -> int:
    """Make a certificate for a server, a client or the command line, and write it to two files of this folder."""
    from yurt.rpc.certificates import CertificatePair, Wish, make_certificate, role_name
    from yurt.sdk.errors import YurtError

    flags = call.flags
    role, domain, days = role_of(call), flags.text("domain"), flags.number("days")
    if days < 1:
        raise UsageError("-days must be 1 or more")
    authority = CertificatePair(
        certificate=read_file(flags.text("ca").replace("#DOMAIN#", domain)),
        key=read_file(flags.text("key").replace("#DOMAIN#", domain)),
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
        made = make_certificate(wish, authority, time_now())
    except YurtError as error:
        raise CliError(str(error)) from None
    certificate_file, key_file = free_names(f"{region}-{role}-{domain}")
    write_file(key_file, made.key, mode=KEY_MODE)
    write_file(certificate_file, made.certificate, mode=CERTIFICATE_MODE)
    call.screen.line(f"==> {role.capitalize()} certificate saved to: {certificate_file}")
    call.screen.line(f"==> {role.capitalize()} certificate key saved to: {key_file}")
    return 0


def role_of(call: Invocation) -> str:
    """The one role that the flags name."""
    roles = [role for role in ROLES if call.flags.is_on(role)]
    if len(roles) != 1:
        raise UsageError("name one of -server, -client and -cli")
    return roles[0]


def free_names(stem: str) -> tuple[str, str]:
    """Files that are not there yet: further certificates of a role are numbered."""
    for number_of in range(NUMBERS_MAX):
        suffix = f"-{number_of}" if number_of else ""
        names = f"{stem}{suffix}.pem", f"{stem}{suffix}-key.pem"
        if not any(Path(name).exists() for name in names):
            return names
    raise CliError(f"{stem}.pem and {NUMBERS_MAX - 1} more are in this folder; move some away")


def show_certificate(call: Invocation) -> int:
    """Print its facts."""
    return show(call, is_authority=False)


COMMANDS = (
    CliCommand(
        "tls ca create",
        "Create an authority for the certificates of agents",
        create_authority,
        (
            text("domain", "The domain of the certificates.", default="nomad"),
            number("days", "How many days it is valid.", default=1825),
            switch("name-constraint", "Let it sign for its domain only."),
            texts(
                "additional-domain", "A further domain that it may sign for, with -name-constraint; may be repeated."
            ),
            text("common-name", "The name of the authority."),
            *(text(name, f"The {name.replace('-', ' ')} in its subject.") for name in SUBJECT),
        ),
        is_client=False,
        details="It writes two files into the current folder.",
    ),
    CliCommand(
        "tls ca info",
        "Show what the certificate of an authority says",
        show_authority,
        (),
        (1, 1),
        "<CA file>",
        "one argument: <CA file>",
        is_client=False,
    ),
    CliCommand(
        "tls cert create",
        "Create a certificate for an agent or the command line",
        create_certificate,
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
        details="The authority of `tls ca create` signs it.",
    ),
    CliCommand(
        "tls cert info",
        "Show what a certificate says",
        show_certificate,
        (),
        (1, 1),
        "<certificate file>",
        "one argument: <certificate file>",
        is_client=False,
    ),
)
GROUPS = {
    "tls ca": "The authority that signs certificates",
    "tls cert": "Certificates that the authority signs",
}
