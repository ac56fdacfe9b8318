"""Common code of the commands on access control: explanations of refusals, look-ups by id, times as Go prints them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps

from yurt.api.uuids import uuid_prefix
from yurt.cli.api.lookup import UUID_CHARACTERS, check_prefix, even_prefix
from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.json_object import Json
from yurt.sdk.errors import DENIED, Reason

Run = Callable[[Invocation], int]

UUID_LENGTH = 36
DISABLED = "ACL support disabled"
NAME_RULE = "a name has 1 to 128 letters, digits and dashes"
_MISTAKES = re.compile(r"((?P<thing>[a-z ]+) 0 invalid: )?\d+ errors? occurred:\n(?P<items>.*)", re.DOTALL)


def explained(run: Run) -> Run:
    """Replace common refusals of access control routes by a sentence that says what to do."""

    @wraps(run)
    def explaining(call: Invocation) -> int:
        try:
            return run(call)
        except ApiError as error:
            raise _explanation(error, has_token=bool(call.api.connection.token)) from None

    return explaining


def _explanation(error: ApiError, *, has_token: bool) -> CliError | ApiError:
    text = str(error)
    if text == DISABLED:
        return CliError(f"Error: {DISABLED}: the agent runs without access control")
    if text == DENIED and error.reason is Reason.PERMISSION_DENIED:
        why = "the token lacks this right, has expired or was revoked"
        return CliError(f"Error: {DENIED}: {why if has_token else 'no token was given; see -token and NOMAD_TOKEN'}")
    return listed_mistakes(error)


def listed_mistakes(error: ApiError, thing: str = "request") -> CliError | ApiError:
    """The mistakes in a refusal as sentences about the named subject; other errors stay unchanged."""
    text = str(error)
    mistakes = _MISTAKES.fullmatch(text)
    return error if mistakes is None else CliError(_listed(mistakes["thing"] or thing, mistakes["items"]))


def _listed(thing: str, items: str) -> str:
    """One mistake in one sentence, several in one line each."""
    texts = [_with_remedy(line.removeprefix("\t* ").strip()) for line in items.splitlines() if line.strip()]
    if len(texts) == 1:
        return f"Error: the {thing} is not valid: {texts[0]}"
    return "\n".join((f"Error: the {thing} is not valid:", *(f"  - {text}" for text in texts)))


def _with_remedy(text: str) -> str:
    return f"{text}; {NAME_RULE}" if text.startswith("invalid name ") else text


def whole_id(call: Invocation, prefix: str, path: str, thing: str, *, key: str = "ID") -> str:
    """The only id in the list at `path` with this prefix; a complete id is returned without a request."""
    prefix = uuid_prefix(prefix)
    if len(prefix) == UUID_LENGTH:
        return prefix
    check_prefix(prefix)
    stubs: list[Json] = []
    if UUID_CHARACTERS.issuperset(prefix):
        stubs = call.api.get(path, {"prefix": even_prefix(prefix)}) or []
    found = [each[key] for each in stubs if each[key].startswith(prefix)]
    if not found:
        raise CliError(f'No {thing}(s) with prefix or id "{prefix}" found')
    if len(found) > 1:
        raise CliError(f"Prefix matched multiple {thing}s: {', '.join(found)}")
    return str(found[0])


def go_time(text: str | None) -> str:
    """`2006-01-02 15:04:05.9 +0000 UTC` for the RFC 3339 text of a time in UTC; `<none>` for none."""
    if not text or text.startswith("0001-"):
        return "<none>"
    return f"{text.removesuffix('Z').replace('T', ' ')} +0000 UTC"


def duration_flag(flag: str, value: str) -> str:
    """The flag's text, which is a duration; raises UsageError."""
    from yurt.cli.terminal.text import parse_duration

    try:
        parse_duration(value)
    except ValueError as error:
        raise UsageError(f"-{flag}: {error}") from None
    return value
