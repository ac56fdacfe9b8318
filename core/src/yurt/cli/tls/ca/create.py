"""`yurt tls ca create`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number, switch, text, texts
from yurt.cli.tls import files

SUBJECT = ("country", "postal-code", "province", "locality", "street-address", "organization", "organizational-unit")


def run(call: Invocation) -> int:
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
    files.check_free(certificate_file, key_file)
    wish = Wish(
        common_name=flags.text("common-name") or f"{domain.capitalize()} Agent CA",
        days=days,
        permitted_domains=tuple(permitted),
        subject=tuple((name.replace("-", "_"), flags.text(name)) for name in SUBJECT),
    )
    try:
        made = make_authority(wish, files.now())
    except YurtError as error:
        raise CliError(str(error)) from None
    files.write(key_file, made.key, mode=files.KEY_MODE)
    files.write(certificate_file, made.certificate, mode=files.CERTIFICATE_MODE)
    call.screen.line(f"==> CA certificate saved to: {certificate_file}")
    call.screen.line(f"==> CA certificate key saved to: {key_file}")
    return 0


COMMAND = Command(
    "tls ca create",
    "Make an authority for the certificates of agents, in two files of this folder.",
    run,
    (
        text("domain", "The domain of the certificates.", default="nomad"),
        number("days", "How many days it is valid.", default=1825),
        switch("name-constraint", "Let it sign for its domain only."),
        texts("additional-domain", "A further domain that it may sign for, with -name-constraint; may be repeated."),
        text("common-name", "The name of the authority."),
        *(text(name, f"The {name.replace('-', ' ')} in its subject.") for name in SUBJECT),
    ),
    is_client=False,
)
