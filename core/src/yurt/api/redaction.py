"""Blanks secrets in configuration data of unknown schema: blocks of plugins, `client.options`, headers.

A value is blank when a word of its name, or of a name above it, says that it is secret, or when the value itself is a
private key or an address with a password. Names that end in a word such as `file` or `path` tell where a secret lies
and are shown, as are switches (true and false), which hold none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

BLANK: Final = "<redacted>"
SECRET_WORDS: Final = frozenset({
    "accesskey", "apikey", "apitoken", "auth", "authorization", "bearer", "bindpw", "cookie", "credential",
    "credentials", "creds", "dsn", "encrypt", "jwt", "key", "keys", "license", "pass", "passphrase", "passwd",
    "password", "passwords", "pin", "privatekey", "pw", "pwd", "sas", "secret", "secretkey", "secrets", "signature",
    "token", "tokens",
})  # fmt: skip
"""Words of a name, in lower case, that make its value secret."""
PLACE_WORDS: Final = frozenset({
    "dir", "directory", "file", "files", "interval", "method", "path", "paths", "threshold", "ttl", "type",
})  # fmt: skip
"""Last words of names that tell something about a secret, and not the secret."""
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORD_IN_ADDRESS: Final = re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s@]*@", re.IGNORECASE)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_FLAG: Final = re.compile(r"-*([A-Za-z][A-Za-z0-9_.-]*)(=?)")


def is_secret_name(name: str) -> bool:
    """Whether a value under this name is likely to be secret: `apiToken`, `registry-auth`, `SECRET_KEY`."""
    words = [word.lower() for word in _WORD.findall(name)]
    return bool(words) and words[-1] not in PLACE_WORDS and not SECRET_WORDS.isdisjoint(words)


def redacted(value: Any, *, name: str = "", is_secret: bool = False) -> Any:
    """The data without its secrets; structure and names stay."""
    is_secret = is_secret or is_secret_name(name)
    match value:
        case None | bool() | "":
            return value
        case Mapping():
            return {key: redacted(item, name=str(key), is_secret=is_secret) for key, item in value.items()}
        case str():
            return BLANK if is_secret or _PRIVATE_KEY.search(value) else _PASSWORD_IN_ADDRESS.sub(rf"\1{BLANK}@", value)
        case Sequence():
            return [redacted(item, is_secret=is_secret) for item in value]
        case _:
            return BLANK if is_secret else value


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Words of a command line: `--token=x`, `-token x` and `TOKEN=x` lose their values."""
    shown, is_value = [], False
    for word in arguments:
        found = _FLAG.match(word)
        is_named = bool(found and is_secret_name(found[1]))
        if is_value and not word.startswith("-"):
            shown.append(BLANK)
            is_value = False
            continue
        if found and found[2] and is_named:
            shown.append(f"{word[: found.end()]}{BLANK}")
        else:
            shown.append(str(redacted(word)))
        is_value = is_named and word.startswith("-") and found is not None and not found[2]
    return shown


def redacted_plugin(body: Mapping[str, Any]) -> dict[str, Any]:
    """The block of a plugin in an agent's configuration: its `args` and its `config`."""
    return {
        key: redacted_arguments([str(word) for word in item]) if key == "args" else redacted(item, name=key)
        for key, item in body.items()
    }
