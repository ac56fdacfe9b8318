"""Secrets for CSI plugins, and other key=value pairs of the volume commands."""

from __future__ import annotations

from yurt.cli.declaration import Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import texts

SECRET = texts("secret", "key=value for the CSI plugin; may be repeated. Nothing stores it.")
_HEADER = "X-Nomad-CSI-Secrets"


def key_values(call: Invocation, flag: str) -> dict[str, str]:
    """The pairs of a repeated flag; raises UsageError, which shows no secret."""
    found = {}
    for pair in call.flags.texts(flag):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            shown = "key=value" if flag == SECRET.name else f'key=value, not "{pair}"'
            raise UsageError(f"-{flag} needs {shown}")
        found[name] = value
    return found


def secret_header(call: Invocation) -> dict[str, str]:
    """The header that carries secrets; the address of a request would be logged."""
    pairs = key_values(call, SECRET.name)
    for name, value in pairs.items():
        if "," in name + value or not (name + value).isprintable():
            raise UsageError(
                f'-{SECRET.name}: the secret "{name.partition(",")[0][:64]}" holds a comma or a control character, '
                "which the header of the request cannot carry; write it into a secrets block of the specification"
            )
    return {_HEADER: ",".join(f"{name}={value}" for name, value in sorted(pairs.items()))} if pairs else {}
