"""The tree of commands. This module lists only the nouns, with one line about each; a noun's commands are declared in
its module, `yurt.cli.commands.<noun>`, which is imported when that noun is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from yurt.cli.declaration import CliCommand

COMMON = ("agent", "job", "alloc", "node", "deployment", "eval", "status", "doctor", "version")

NOUNS = {
    "acl": "Bootstrap access control, change policies, tokens and roles",
    "agent": "Run an agent: a server, a client or both",
    "agent-info": "Show runtime statistics of the agent, with the ID of its cluster",
    "alloc": "Show allocations and act on them",
    "check": "Report the health of the agent in one line",
    "config": "Check the configuration of agents",
    "deployment": "Show deployments and control them",
    "doctor": "Show what this host lacks for an agent, and how to fix it",
    "driver": "Write, test and serve task drivers",
    "eval": "Show, repeat and delete evaluations",
    "fmt": "Format job files: indentation and aligned equals signs",
    "job": "Run jobs, show them and change them",
    "login": "Log in by a JWT or in the browser, and print the token",
    "monitor": "Follow the log of the agent",
    "namespace": "Show namespaces and change them",
    "node": "Show client nodes and act on them",
    "operator": "Tools for the operators of a cluster",
    "plugin": "Show plugins: drivers, device plugins, CSI plugins",
    "queue": "Show the jobs that wait for node pools",
    "quota": "Show quotas and their usage, and change them",
    "scaling": "Show how groups may be scaled",
    "server": "Show the servers and change who belongs to the cluster",
    "service": "Show registered services",
    "status": "Show the object with an ID, or list jobs",
    "system": "Work on the cluster as a whole",
    "tls": "Certificates for agents and the command line",
    "top": "Show what allocations, jobs and nodes use, live",
    "ui": "Open the web pages of the agent in a browser",
    "var": "Show variables and change them",
    "version": "Print the version of Yurt",
    "volume": "Show, create, register and delete volumes",
    "whatif": "Show what would run or wait with other nodes, quotas or jobs",
}
"""The first words of commands; for a word that is itself a command, the line is also its summary."""

ALIASES = {
    "action": "job action",
    "alloc-status": "alloc status",
    "alloc-exec": "alloc exec",
    "debug": "operator debug",
    "eval-status": "eval status",
    "exec": "alloc exec",
    "fs": "alloc fs",
    "init": "job init",
    "inspect": "job inspect",
    "logs": "alloc logs",
    "node-drain": "node drain",
    "node-status": "node status",
    "plan": "job plan",
    "run": "job run",
    "start": "job start",
    "server-force-leave": "server force-leave",
    "server-join": "server join",
    "server-members": "server members",
    "stop": "job stop",
    "validate": "job validate",
}


class Noun(NamedTuple):
    """The commands that begin with a word, and the groups among them, by their whole names."""

    commands: Mapping[str, CliCommand]
    groups: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether there is a command or a group of that name."""
        return name in self.commands or name in self.groups

    def below(self, name: str) -> dict[str, str]:
        """The next words after a name, with one line about each."""
        start = f"{name} "
        lines = {each: command.summary for each, command in self.commands.items()} | dict(self.groups)
        inside = {each.removeprefix(start): lines[each] for each in sorted(lines) if each.startswith(start)}
        return {words: line for words, line in inside.items() if " " not in words}


@cache
def noun(word: str, second: str = "") -> Noun:
    """The commands of one of NOUNS or of a package; raises CliError for a package whose commands cannot be loaded.

    With a second word, of a noun that is a package only those of the modules that have this word, as far as it has one.
    """
    if word not in NOUNS:
        from yurt.cli.package_nouns import package_nouns
        from yurt.cli.packages import package_commands

        added = package_commands(word)
        return Noun(added, {} if word in added else {word: package_nouns()[word].summary})
    path = f"yurt.cli.commands.{word.replace('-', '_')}"
    package = import_module(path)
    index: Mapping[str, tuple[str, ...]] = getattr(package, "MODULES", {})
    chosen = [name for name, words in index.items() if second in words] or list(index)
    modules = [import_module(f"{path}.{name}") for name in chosen] or [package]
    commands: dict[str, CliCommand] = {command.name: command for module in modules for command in module.COMMANDS}
    own = {} if word in commands else {word: NOUNS[word]}
    return Noun(commands, {**own, **getattr(package, "GROUPS", {})})


def is_noun(word: str) -> bool:
    """Whether commands begin with the word: Yurt's own, or else those of an installed package."""
    if word in NOUNS:
        return True
    if not word or word.startswith("-"):
        return False
    from yurt.cli.package_nouns import package_nouns

    return word in package_nouns()


def find(words: Sequence[str]) -> tuple[str, CliCommand | None, list[str]]:
    """The longest command or group name at the start of the words, its command, and the remaining words."""
    if words and words[0] in ALIASES:
        name = ALIASES[words[0]]
        return name, command(name), list(words[1:])
    if not words or not is_noun(words[0]):
        return "", None, list(words)
    found, name, used = noun(*words[:2]), words[0], 1
    while used < len(words) and found.has(f"{name} {words[used]}"):
        name, used = f"{name} {words[used]}", used + 1
    return name, found.commands.get(name), list(words[used:])


def command(name: str) -> CliCommand:
    """The command with that whole name."""
    return noun(*name.split()[:2]).commands[name]


def command_names() -> list[str]:
    """The whole names of all commands, sorted; imports every noun."""
    return sorted(name for word in NOUNS for name in noun(word).commands)


def group_names() -> list[str]:
    """The whole names of all groups, sorted; imports every noun."""
    return sorted(name for word in NOUNS for name in noun(word).groups)
