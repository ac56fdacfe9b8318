"""The declaration of a command, and one invocation of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from yurt.cli.errors import UsageError
from yurt.cli.flags import BOOL, Flag, Flags, switch, text, without_effect
from yurt.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient

CLIENT_FLAGS: tuple[Flag, ...] = (
    text("address", "The agent's address, or unix://PATH; NOMAD_ADDR, else http://127.0.0.1:4646."),
    text("region", "The region to ask; NOMAD_REGION."),
    text("namespace", "The namespace to work in; NOMAD_NAMESPACE, else default."),
    switch("no-color", "Print without colours, also with -force-color; NOMAD_CLI_NO_COLOR."),
    switch("force-color", "Print colours also when standard output is not a terminal; NOMAD_CLI_FORCE_COLOR."),
    text("ca-cert", "A PEM file with the authority to trust; NOMAD_CACERT."),
    text("ca-path", "A folder of PEM files with authorities to trust; NOMAD_CAPATH."),
    text("client-cert", "A PEM file with the client's certificate; NOMAD_CLIENT_CERT."),
    text("client-key", "The key of -client-cert; NOMAD_CLIENT_KEY."),
    switch("insecure", "Do not check the agent's certificate; NOMAD_SKIP_VERIFY."),
    switch("tls-skip-verify", "The same as -insecure."),
    text("tls-server-name", "The name to expect in the agent's certificate; NOMAD_TLS_SERVER_NAME."),
    text("token", "The token to send; NOMAD_TOKEN."),
)
COLOR_FLAGS = frozenset({"no-color", "force-color"})
JSON_FLAGS: tuple[Flag, ...] = (
    switch("json", "Print the answer of the API as JSON."),
    text("t", "Format the answer with a Go template."),
)
VERBOSE: Flag = switch("verbose", "Print whole ids and more columns.")
UI: Flag = switch("ui", "Open the web page of the shown object in a browser.")
DETACH: Flag = switch("detach", "Print the evaluation's id and return, instead of following it.")


class CliCommand(NamedTuple):
    """One command. `arguments` is how many positional arguments it takes (least, most; -1: any number).

    `usage_code` is what it exits with for a wrong command line; 0: with `failure_code`.
    `exclusive` names pairs of flags of which one can be given. Pairs that Nomad accepts are not refused: there, one of
    both has no effect. A flag and an argument for the same thing are accepted, too: the flag wins, as in Nomad.
    """

    name: str
    summary: str
    run: Callable[[Invocation], int]
    flags: tuple[Flag, ...] = ()
    arguments: tuple[int, int] = (0, 0)
    usage: str = ""
    takes: str = "no arguments"
    details: str = ""
    is_client: bool = True
    failure_code: int = 1
    usage_code: int = 0
    stop_at_argument: bool = False
    exclusive: tuple[tuple[str, str], ...] = ()

    @property
    def all_flags(self) -> tuple[Flag, ...]:
        """Its own flags and those of every client.

        A command that asks no agent takes the latter too, as scripts pass them to every command; of them only colours
        have an effect there. The agent has flags of its own.
        """
        if self.is_client:
            return self.flags + CLIENT_FLAGS
        return self.flags if self.name == "agent" else self.flags + self._local_flags()

    def _local_flags(self) -> tuple[Flag, ...]:
        own = {flag.name for flag in self.flags}
        return tuple(
            flag if flag.name in COLOR_FLAGS else without_effect(flag.name, kind=flag.kind)
            for flag in CLIENT_FLAGS
            if flag.name not in own
        )

    def check_arguments(self, arguments: list[str]) -> None:
        """Raises UsageError for too few or too many arguments."""
        least, most = self.arguments
        if len(arguments) < least or (most >= 0 and len(arguments) > most):
            extra = f" (got {len(arguments)}: {' '.join(arguments)})" if arguments else ""
            raise UsageError(f"This command takes {self.takes}{extra}")

    def check_contradictions(self, flags: Flags) -> None:
        """Raises UsageError for flags that exclude each other; one that has its default counts as absent."""
        for pair in self.exclusive:
            shown = [text for name in pair if (text := self._given(name, flags))]
            if len(shown) == 2:
                raise UsageError(f"{shown[0]} and {shown[1]} contradict each other; leave out one of the two")

    def _given(self, name: str, flags: Flags) -> str:
        """A flag as it was given, shortened; "" where it has its default."""
        flag = next(each for each in self.all_flags if each.name == name)
        if flag.kind == BOOL:
            return f"-{name}" if flags.is_on(name) else ""
        value = flags.text(name)
        return "" if value in ("", str(flag.default)) else f"-{name}={value[:64]}"


class Invocation:
    """One invocation of a command: flags and arguments, the screen, the API client."""

    def __init__(self, command: CliCommand, flags: Flags, args: list[str]) -> None:
        self.command = command
        self.flags = flags
        self.args = args

    @cached_property
    def screen(self) -> Screen:
        """Standard output."""
        if self.command.name == "agent":
            return Screen.standard(no_color=False, force_color=False)
        return Screen.standard(no_color=self.flags.is_on("no-color"), force_color=self.flags.is_on("force-color"))

    @cached_property
    def api(self) -> ApiClient:
        """The client of the agent that flags and environment name."""
        from yurt.cli.api.connect import connect

        return connect(self.flags, os.environ)

    def close(self) -> None:
        """Close the connection to the agent, if there is one."""
        api = self.__dict__.get("api")
        if api is not None:
            api.close()

    @property
    def id_length(self) -> int:
        """The number of characters of an id to show."""
        return 36 if self.is_verbose else 8

    @property
    def is_verbose(self) -> bool:
        """`-verbose` was given."""
        return self.flags.is_on("verbose")

    def short(self, identifier: str | None) -> str:
        """An id shortened for display."""
        return (identifier or "")[: self.id_length]
