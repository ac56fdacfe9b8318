"""Completion of command lines for bash, zsh and fish, with live ids, and its installation.

The shell calls `yurt` with the line in COMP_LINE (`complete -C`, as Nomad installs it) and reads one candidate a line.
An agent that does not answer within AGENT_LIMIT_S gives no ids; no error reaches the line that the user types.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import BOOL, MAYBE_BOOL, parse
from yurt.cli.package_nouns import package_nouns
from yurt.cli.tree import ALIASES, NOUNS, find, noun
from yurt.sdk.errors import YurtError

LINE, POINT = "COMP_LINE", "COMP_POINT"
INSTALL, UNINSTALL = "-autocomplete-install", "-autocomplete-uninstall"
AGENT_LIMIT_S = 1.0
IDS_MAX = 100
_CONTEXTS = (
    ("allocation", "allocs"), ("deployment", "deployment"), ("eval", "evals"), ("node-pool", "node_pools"),
    ("node pool", "node_pools"), ("namespace", "namespaces"), ("node", "nodes"), ("job", "jobs"), ("vol", "volumes"),
    ("plugin", "plugins"), ("quota", "quotas"), ("policy_id", "scaling_policy"),
)  # fmt: skip
"""A word of an argument's name, and the search context with its ids; the first that fits counts."""
_FLAG_CONTEXTS = {
    "namespace": "namespaces", "node-id": "nodes", "alloc": "allocs", "job": "jobs", "quota": "quotas",
    "node-pool": "node_pools",
}  # fmt: skip
_ARGUMENT = re.compile(r"<([^<>]+)>|\[([^\[\]<>]+)\]")
"""An argument in a usage: `<job>`, `[<task>]`, `[path ...]`."""
_FILE_WORDS = ("path", "file", "input", "config")
_FILE_FLAGS = frozenset({
    "config", "var-file", "ca-cert", "client-cert", "client-key", "ca-path", "output", "data-dir", "plugin-dir",
})  # fmt: skip


def print_candidates() -> int:
    """Answer the shell: what the word under the cursor may become."""
    line = os.environ[LINE]
    point = os.environ.get(POINT, "")
    found = candidates(line[: int(point)] if point.isdigit() else line)
    replaced = sys.argv[2] if len(sys.argv) > 2 else "-"
    for candidate in found:
        # Bash takes what follows `-namespace=` for the word, the other shells all of it.
        print(candidate if replaced.startswith("-") else candidate.partition("=")[2] or candidate)
    return 0


def candidates(line: str) -> list[str]:
    """Completions of the last word of a line, sorted."""
    words = _words(line)
    before, last = words[1:-1], words[-1]
    found: list[str] = []
    with contextlib.suppress(CliError, YurtError, OSError, ValueError, KeyError):
        found = [each for each in _possible(before, last) if each.startswith(last)]
    return sorted(set(found))


def _words(line: str) -> list[str]:
    """The words of a line, the last one perhaps empty; a quote that is still open counts as closed."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not line or line[-1].isspace() else words
    return [*line.split(), ""]


def _possible(before: Sequence[str], last: str) -> Iterator[str]:
    name, command, rest = find(before)
    if command is None:
        yield from () if rest else _next_words(name)
        return
    flags = {flag.name: flag for flag in command.all_flags if flag.has_effect}
    if last.startswith("-") and "=" not in last:
        dashes = "--" if last.startswith("--") else "-"
        yield from (f"{dashes}{flag}" for flag in (*flags, "help"))
        return
    given, equals, start = last.partition("=")
    if equals and given.startswith("-"):
        yield from (f"{given}={value}" for value in _values(command, given.lstrip("-"), list(rest), start))
        return
    flag_name = rest[-1].lstrip("-") if rest and rest[-1].startswith("-") else ""
    flag = flags.get(flag_name)
    if flag is not None and flag.kind not in (BOOL, MAYBE_BOOL):
        yield from _values(command, flag_name, rest[:-1], last)
        return
    yield from _arguments(command, rest, last)


def _next_words(group: str) -> Iterator[str]:
    if not group:
        yield from (*NOUNS, *ALIASES, *package_nouns())
    else:
        yield from noun(group.split(maxsplit=1)[0]).below(group)


def _values(command: CliCommand, flag: str, rest: list[str], last: str) -> Iterator[str]:
    if flag in _FILE_FLAGS:
        yield from _files(last)
    elif flag in _FLAG_CONTEXTS:
        yield from _ids(command, rest, _FLAG_CONTEXTS[flag], last)


def _arguments(command: CliCommand, rest: list[str], last: str) -> Iterator[str]:
    """Ids or files, as the usage of the command names its arguments."""
    _, arguments = parse(rest, command.all_flags)
    named = [first or second for first, second in _ARGUMENT.findall(command.usage)]
    argument = named[min(len(arguments), len(named) - 1)] if named else ""
    if not named or (command.arguments[1] >= 0 and len(arguments) >= command.arguments[1]):
        return
    if command.name.startswith("var ") and argument in ("path", "prefix"):
        yield from _ids(command, rest, "vars", last)
        return
    if any(word in argument for word in _FILE_WORDS):
        yield from _files(last)
    context = next((kind for word, kind in _CONTEXTS if word in argument), "")
    if argument in ("id", "identifier"):
        context = {"volume": "volumes"}.get(command.name.split()[0], "all")
    if context:
        yield from _ids(command, rest, context, last)


def _ids(command: CliCommand, rest: list[str], context: str, last: str) -> Iterator[str]:
    """The ids that the agent knows, of the context or of all."""
    flags, arguments = parse(rest, command.all_flags)
    if not command.is_client:
        return
    call = Invocation(command, flags, arguments)
    try:
        call.api.connection = call.api.connection._replace(timeout_s=AGENT_LIMIT_S)
        answer: dict[str, Any] = call.api.put("/v1/search", {"Prefix": last, "Context": context}) or {}
    finally:
        call.close()
    for ids in (answer.get("Matches") or {}).values():
        yield from (ids or ())[:IDS_MAX]


def _files(last: str) -> Iterator[str]:
    """Files and folders; a folder ends in a slash, so that its content can follow."""
    folder, _, _ = last.rpartition("/")
    base = Path(f"{folder}/" if folder or last.startswith("/") else ".").expanduser()
    start = last[: len(last) - len(last.rpartition("/")[2])]
    for entry in os.scandir(base):
        if not entry.name.startswith(".") or last.rpartition("/")[2].startswith("."):
            yield f"{start}{entry.name}{'/' if entry.is_dir() else ''}"


_PROGRAM = "yurt"
_ZSH = "autoload -Uz compinit bashcompinit; (( $+functions[compdef] )) || compinit; bashcompinit"
"""A file without a completion of its own has not loaded zsh's."""
_FISH = """\
function __complete_yurt
    set -lx COMP_LINE (commandline -cp)
    test -z (commandline -ct)
    and set COMP_LINE "$COMP_LINE "
    {program}
end
complete -f -c yurt -a "(__complete_yurt)"
"""


def install(*, remove: bool) -> int:
    """Add completion to the files of the user's shells, or remove it; only existing files are changed."""
    program = shlex.quote(_own_path())
    home = Path.home()
    line = f"complete -C {program} {_PROGRAM}"
    changed = [
        *_change_lines(home / ".bashrc", [line], remove=remove),
        *_change_lines(home / ".zshrc", [_ZSH, line], remove=remove),
        *_change_fish(home / ".config" / "fish", _FISH.format(program=program), remove=remove),
    ]
    for path in changed:
        print(f"{'Removed completion from' if remove else 'Added completion to'} {path}")
    if not changed:
        what = "is in none of" if remove else "is there already, or there is none of"
        print(f"Nothing was changed: completion {what} ~/.bashrc, ~/.zshrc and ~/.config/fish", file=sys.stderr)
        return 1
    if not remove:
        print("It works in shells that are started from now on.")
    return 0


def _own_path() -> str:
    found = Path(sys.argv[0])
    return str(found.resolve()) if found.name == _PROGRAM and found.exists() else _PROGRAM


def _change_lines(path: Path, lines: list[str], *, remove: bool) -> list[Path]:
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    there = text.splitlines()
    remaining = [line for line in there if not _is_ours(line)]
    is_done = remaining == there if remove else all(line in there for line in lines)
    if is_done:
        return []
    if not remove:
        remaining += [line for line in lines if _is_ours(line) or line not in there]
    path.write_text("".join(f"{line}\n" for line in remaining), encoding="utf-8")
    return [path]


def _is_ours(line: str) -> bool:
    return line.startswith("complete -C ") and line.endswith(f" {_PROGRAM}")


def _change_fish(folder: Path, text: str, *, remove: bool) -> list[Path]:
    path = folder / "completions" / f"{_PROGRAM}.fish"
    if remove:
        if not path.is_file():
            return []
        path.unlink()
        return [path]
    if not folder.is_dir() or (path.is_file() and path.read_text(encoding="utf-8") == text):
        return []
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [path]
