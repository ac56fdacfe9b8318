"""Paged lists: their flags, the query, and the hint at the next page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yurt.cli.declaration import Invocation
from yurt.cli.flags import BOOL, Flag, number, text

PAGE_FLAGS: tuple[Flag, ...] = (
    number("per-page", "How many at a time."),
    text("page-token", "Where to go on."),
)
UNREPEATED = frozenset({"page-token", "token"})
"""Not printed again: the place of this page, and a secret."""


def page_query(call: Invocation) -> dict[str, Any]:
    """The query for the requested page of the filtered list."""
    return {
        "filter": call.flags.text("filter"),
        "per_page": call.flags.number("per-page") or None,
        "next_token": call.flags.text("page-token"),
    }


def show_next_page(call: Invocation, next_token: str) -> None:
    """Print below a table the command for the next page, if there is one."""
    if next_token:
        call.screen.line(f"\n{next_page(call, next_token)}")


def next_page(call: Invocation, next_token: str) -> str:
    """The command for the next page, with the given flags and arguments quoted for a shell."""
    from shlex import quote

    words = [word for flag in call.command.all_flags for word in _repeated(call, flag)]
    ends_flags = ["--"] if any(argument.startswith("-") for argument in call.args) else []
    arguments = " ".join(quote(word) for word in [*words, "-page-token", next_token, *ends_flags, *call.args])
    return f"Results have been paginated. To get the next page run:\n\nyurt {call.command.name} {arguments}"


def _repeated(call: Invocation, flag: Flag) -> Iterator[str]:
    """The words that repeat a flag; none when it was not given."""
    flags = call.flags
    if not flags.is_given(flag.name) or flag.name in UNREPEATED:
        return
    if flag.kind == BOOL:
        yield f"-{flag.name}" if flags.is_on(flag.name) else f"-{flag.name}=false"
    else:
        yield from (f"-{flag.name}", flags.text(flag.name))
