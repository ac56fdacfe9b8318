"""Help texts, from the tables alone."""

from __future__ import annotations

from collections.abc import Sequence

from yurt.cli.command import CLIENT_FLAGS, Command
from yurt.cli.flags import BOOL, MAYBE_BOOL, Flag
from yurt.cli.tree import ALIASES, COMMANDS, COMMON, GROUPS

_WIDTH = 96


def root_help() -> str:
    """The common commands, then the others."""
    tops = sorted({name.split()[0] for name in COMMANDS})
    shown = [(name, summary_of(name)) for name in COMMON]
    others = [(name, summary_of(name)) for name in tops if name not in COMMON]
    width = max(len(name) for name, _ in shown + others)
    lines = ["Usage: yurt [-version] [-help] <command> [args]", "", "Common commands:"]
    lines += [f"    {name.ljust(width)}    {summary}" for name, summary in shown]
    lines += ["", "Other commands:"]
    lines += [f"    {name.ljust(width)}    {summary}" for name, summary in others]
    lines += ["", "Help for one of them: yurt <command> -help"]
    return "\n".join(lines)


def group_help(group: str) -> str:
    """The commands of a group."""
    inside = sorted(_children(group))
    width = max(len(name) for name in inside)
    lines = [f"Usage: yurt {group} <subcommand> [options] [args]", "", f"  {GROUPS[group]}", "", "Subcommands:"]
    lines += [f"    {name.ljust(width)}    {summary_of(f'{group} {name}')}" for name in inside]
    lines += ["", f"Help for one of them: yurt {group} <subcommand> -help"]
    return "\n".join(lines)


def command_help(command: Command) -> str:
    """Usage, flags and details of a command."""
    aliases = [alias for alias, target in ALIASES.items() if target == command.name]
    lines = [f"Usage: yurt {command.name} [options] {command.usage}".rstrip()]
    if aliases:
        lines.append(f"Alias: {', '.join(f'yurt {alias}' for alias in aliases)}")
    lines += ["", *_wrapped(command.summary, 2)]
    for paragraph in command.details.strip().split("\n\n") if command.details else ():
        lines += ["", *(f"  {row.rstrip()}".rstrip() for row in paragraph.splitlines())]
    flags = [flag for flag in command.flags if flag.has_effect]
    if flags:
        lines += ["", "Options:", *_flag_lines(flags)]
    if command.is_client:
        lines += ["", "Options of every command that asks an agent:", *_flag_lines(CLIENT_FLAGS)]
    return "\n".join(lines)


def summary_of(name: str) -> str:
    """One line about a command or a group."""
    name = ALIASES.get(name, name)
    return COMMANDS[name][1] if name in COMMANDS else GROUPS.get(name, "")


def _children(group: str) -> set[str]:
    prefix = group + " "
    return {name[len(prefix) :].split()[0] for name in [*COMMANDS, *GROUPS] if name.startswith(prefix)}


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
