"""Help texts: of all commands, of a group and of one command."""

from __future__ import annotations

from collections.abc import Sequence

from yurt.cli.declaration import CLIENT_FLAGS, CliCommand
from yurt.cli.flags import BOOL, MAYBE_BOOL, Flag
from yurt.cli.tree import ALIASES, COMMON, NOUNS, noun

_WIDTH = 96
_DETAILS_WIDTH = 120


def root_help() -> str:
    """The common commands, then the others."""
    width = max(map(len, NOUNS))
    lines = ["Usage: yurt [-version] [-help] <command> [args]", "", "Common commands:"]
    lines += [f"    {name.ljust(width)}    {NOUNS[name]}" for name in COMMON]
    lines += ["", "Other commands:"]
    lines += [f"    {name.ljust(width)}    {summary}" for name, summary in NOUNS.items() if name not in COMMON]
    lines += _package_lines(width)
    lines += ["", "Help for one of them: yurt <command> -help"]
    lines += ["Completion in bash, zsh and fish: yurt -autocomplete-install (or -autocomplete-uninstall)"]
    return "\n".join(lines)


def _package_lines(width: int) -> list[str]:
    """The words of installed packages; their code is not imported."""
    from yurt.cli.package_nouns import package_nouns

    added = package_nouns()
    if not added:
        return []
    reason = "not available, because Yurt has commands of that name"
    shown = {word: f"{noun.summary}: {reason}" if word in NOUNS else noun.summary for word, noun in added.items()}
    return ["", "Commands of packages:", *(f"    {word.ljust(width)}    {line}" for word, line in shown.items())]


def group_help(group: str) -> str:
    """The commands of a group."""
    found = noun(group.split(maxsplit=1)[0])
    inside = found.below(group)
    width = max(map(len, inside))
    lines = [f"Usage: yurt {group} <subcommand> [options] [args]", "", f"  {found.groups[group]}", "", "Subcommands:"]
    lines += [f"    {name.ljust(width)}    {summary}" for name, summary in inside.items()]
    lines += ["", f"Help for one of them: yurt {group} <subcommand> -help"]
    return "\n".join(lines)


def command_help(command: CliCommand) -> str:
    """Usage, flags and details of a command."""
    aliases = [alias for alias, target in ALIASES.items() if target == command.name]
    lines = [f"Usage: yurt {command.name} [options] {command.usage}".rstrip()]
    if aliases:
        lines.append(f"Alias: {', '.join(f'yurt {alias}' for alias in aliases)}")
    lines += ["", *_wrapped(f"{command.summary}.", 2)]
    for paragraph in command.details.strip().split("\n\n") if command.details else ():
        lines += ["", *(row for text in paragraph.splitlines() for row in _details(text.rstrip()))]
    flags = [flag for flag in command.flags if flag.has_effect]
    if flags:
        lines += ["", "Options:", *_flag_lines(flags)]
    if command.is_client:
        lines += ["", "Options of every command that asks an agent:", *_flag_lines(CLIENT_FLAGS)]
    return "\n".join(lines)


def _details(text: str) -> list[str]:
    """A line of a command's details; one that its author has not broken is broken here."""
    return _wrapped(text, 2) if len(text) > _DETAILS_WIDTH and not text.startswith(" ") else [f"  {text}".rstrip()]


def _flag_lines(flags: Sequence[Flag]) -> list[str]:
    lines: list[str] = []
    for flag in flags:
        value = "" if flag.kind in (BOOL, MAYBE_BOOL) else "=<value>"
        lines += ["", f"  -{flag.name}{value}"]
        default = f" (default {str(flag.default).lower()})" if flag.default else ""
        lines += _wrapped(flag.help + default, 6)
    return lines[1:]


def _wrapped(text: str, indent: int) -> list[str]:
    lines, row = [], ""
    for word in text.split():
        if row and len(row) + len(word) + 1 > _WIDTH - indent:
            lines.append(" " * indent + row)
            row = word
        else:
            row = f"{row} {word}" if row else word
    return [*lines, " " * indent + row] if row else lines
