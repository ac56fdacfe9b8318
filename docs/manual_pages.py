"""Writes manual pages from the tree of commands: `python -m docs.manual_pages FOLDER`, or `make man`.

One page for `yurt` and one for each first word of its commands (`man yurt-job`), in section 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from yurt.cli.declaration import CLIENT_FLAGS, CliCommand
from yurt.cli.flags import BOOL, MAYBE_BOOL, Flag
from yurt.cli.tree import ALIASES, NOUNS, noun

SECTION = "1"


def pages() -> dict[str, str]:
    """File names and contents."""
    found = {f"yurt.{SECTION}": _root()}
    for word in NOUNS:
        found[f"yurt-{word}.{SECTION}"] = _noun(word)
    return found


def _root() -> str:
    lines = [*_head("yurt", "workload orchestrator that speaks Nomad's API, job files and command line")]
    lines += [".SH SYNOPSIS", ".B yurt", "[\\-version] [\\-help] <command> [options] [arguments]", ".SH COMMANDS"]
    for word, summary in NOUNS.items():
        lines += [".TP", f".B {_text(word)}", f"{_text(summary)}. See yurt\\-{_text(word)}({SECTION})."]
    lines += [".SH SHORT NAMES"]
    for alias, target in sorted(ALIASES.items()):
        lines += [".TP", f".B yurt {_text(alias)}", f"yurt {_text(target)}"]
    lines += [".SH OPTIONS", "Of every command that asks an agent:", *_flags(CLIENT_FLAGS)]
    lines += [
        ".SH EXIT STATUS",
        "0: success; 1: an error; 2: something could not be placed; 127: no such command; 130: Ctrl\\-C; "
        "141: the reader of the output has gone.",
    ]
    return "\n".join(lines) + "\n"


def _noun(word: str) -> str:
    found = noun(word)
    lines = [*_head(f"yurt-{word}", NOUNS[word]), ".SH SYNOPSIS"]
    for name in sorted(found.commands):
        lines += [".PP", f".B yurt {_text(name)}", f"[options] {_text(found.commands[name].usage)}".rstrip()]
    lines += [".SH COMMANDS"]
    for name in sorted(found.commands):
        lines += _command(found.commands[name])
    lines += [".SH SEE ALSO", f".BR yurt ({SECTION}),", "which has the options of every command that asks an agent."]
    return "\n".join(lines) + "\n"


def _command(command: CliCommand) -> Iterator[str]:
    yield f".SS yurt {_text(command.name)}"
    yield f"{_text(command.summary)}."
    for paragraph in command.details.strip().split("\n\n") if command.details else ():
        yield ".PP"
        yield from (_text(line) for line in paragraph.splitlines())
    yield from _flags(tuple(flag for flag in command.flags if flag.has_effect))


def _flags(flags: tuple[Flag, ...]) -> Iterator[str]:
    for flag in flags:
        value = "" if flag.kind in (BOOL, MAYBE_BOOL) else "=\\fIvalue\\fP"
        yield ".TP"
        yield f"\\fB\\-{_text(flag.name)}\\fP{value}"
        default = f" (default {str(flag.default).lower()})" if flag.default else ""
        yield _text(flag.help + default)


def _head(name: str, summary: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "{SECTION}" "" "Yurt" "Yurt manual"'
    yield ".SH NAME"
    yield f"{_text(name)} \\- {_text(summary[:1].lower() + summary[1:])}"


def _text(text: str) -> str:
    """Plain text as roff reads it: backslashes, dashes and a leading dot or quote are escaped."""
    escaped = text.strip().replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(arguments: list[str]) -> int:
    """Write all pages into a folder; the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("Usage: python -m docs.manual_pages FOLDER\n")
        return 1
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (folder / name).write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
