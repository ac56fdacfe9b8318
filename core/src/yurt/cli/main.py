"""The entry point: find the command, read its flags, run it, turn failures into a sentence and an exit code.

Nothing but the standard library is imported before the noun is read, and then only the module of that noun; what a
command needs beyond it is imported when the command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yurt.cli.errors import CliError, OutputClosed, UsageError
from yurt.cli.suggest import did_you_mean
from yurt.cli.tree import ALIASES, NOUNS, find, noun
from yurt.cli.unsupported import ABSENT, absent_command, absent_flag
from yurt.sdk.errors import Reason

if TYPE_CHECKING:
    from yurt.cli.declaration import CliCommand

HELP = frozenset({"-h", "-help", "--help"})
COMPLETION = frozenset({"autocomplete-install", "autocomplete-uninstall"})
VERSION = frozenset({"-v", "-version", "--version"})
EXIT_INTERRUPTED = 130
EXIT_NOT_A_COMMAND = 127
HINTS = {
    Reason.NO_LEADER: "A majority of the servers must reach each other; which ones there are shows: "
    "yurt server members",
    Reason.EVAL_BROKER_ENABLED: "Nothing is scheduled while the broker is paused, which is done with: "
    "yurt operator scheduler set-config -pause-eval-broker=true",
}
NO_TOKEN_HINT = "No token was given; where access control is on, requests need one: see -token and NOMAD_TOKEN"
WEAK_TOKEN_HINT = "The token lacks this right, has expired or was revoked; what it is shows: yurt acl token self"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if "COMP_LINE" in os.environ:
            from yurt.cli.completion import print_candidates

            return print_candidates()
        code = _dispatch(words)
        # At its exit Python would report a closed pipe with a message and code 120.
        if sys.stdout is not None:  # as after `>&-`
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (BrokenPipeError, OutputClosed):
        from yurt.cli.terminal.closed_output import EXIT_CLOSED_PIPE, silence_closed_output

        silence_closed_output()
        return EXIT_CLOSED_PIPE


def _dispatch(words: list[str]) -> int:
    if words and words[0] in VERSION:
        words = ["version"]
    if words and words[0].lstrip("-") in COMPLETION and words[0].startswith("-"):
        from yurt.cli.completion import install

        return install(remove=words[0].endswith("-uninstall"))
    try:
        name, command, rest = find(words)
    except CliError as error:
        _print_error(str(error))
        return 1
    if command is not None:
        return _run(command, rest)
    from yurt.cli.help import group_help, root_help

    text = group_help(name) if name else root_help()
    if not rest or rest[0] in HELP:
        print(text)
        return 0 if rest else _code_of_group(name)
    nouns = _next_words(name)
    words_text = f"{name} {rest[0]}".strip()
    absent = absent_command([*name.split(), *rest])
    if absent:
        print(f"`{absent}` is not in this version of Yurt. {ABSENT[absent]}", file=sys.stderr)
        return 1
    kind = "flag" if rest[0].startswith("-") else "command"
    print(
        f'There is no {kind} "{words_text}"{did_you_mean(rest[0], nouns, prefix=f"{name} ".lstrip())}.', file=sys.stderr
    )
    if kind == "flag" and len(rest) > 1:
        print("Flags stand behind the command: yurt COMMAND -FLAG", file=sys.stderr)
    print(f"See: yurt {name} -help".replace("  ", " "), file=sys.stderr)
    return _code_of_group(name)


def _code_of_group(name: str) -> int:
    """The exit code without a command of the group: a group of Nomad is a command that fails."""
    return 1 if name else EXIT_NOT_A_COMMAND


def _next_words(group: str) -> list[str]:
    from yurt.cli.package_nouns import package_nouns

    return (
        sorted(noun(group.split(maxsplit=1)[0]).below(group)) if group else sorted({*NOUNS, *ALIASES, *package_nouns()})
    )


def _run(command: CliCommand, words: list[str]) -> int:
    from yurt.cli.advice import shows_hints
    from yurt.cli.declaration import Invocation
    from yurt.cli.flags import parse
    from yurt.sdk.errors import YurtError

    own = words[: words.index("--")] if "--" in words else words
    asks_help = own[:1] if command.stop_at_argument else own
    if HELP.intersection(asks_help) and not _is_value_of_flag(command, own):
        from yurt.cli.help import command_help

        print(command_help(command))
        return 0
    call: Invocation | None = None
    try:
        _check_absent_flags(command, own)
        flags, arguments = parse(words, command.all_flags, stop_at_argument=command.stop_at_argument)
        command.check_arguments(arguments)
        command.check_contradictions(flags)
        call = Invocation(command, flags, arguments)
        return command.run(call)
    except UsageError as error:
        _print_error(str(error))
        print(f"For additional help try: yurt {command.name} -help", file=sys.stderr)
        return error.code if error.code is not None else command.usage_code or command.failure_code
    except CliError as error:
        if str(error):
            _print_error(str(error))
        return error.code if error.code is not None else command.failure_code
    except YurtError as error:
        _print_error(str(error), prefix="Error: ")
        if error.reason in HINTS and shows_hints():
            print(HINTS[error.reason], file=sys.stderr)
        if error.reason is Reason.PERMISSION_DENIED and call is not None:
            print(WEAK_TOKEN_HINT if call.api.connection.token else NO_TOKEN_HINT, file=sys.stderr)
        return command.failure_code
    except BrokenPipeError:
        from yurt.cli.terminal.closed_output import is_output_closed

        if is_output_closed():
            raise
        print("The agent closed the connection.", file=sys.stderr)
        return command.failure_code
    except Exception as error:
        return _unexpected(command, error)
    finally:
        if call is not None:
            call.close()


def _print_error(error: str, *, prefix: str = "") -> None:
    """An error, and what to do about it."""
    from yurt.cli.advice import advice

    print(f"{prefix}{error}", file=sys.stderr)
    found = advice(error)
    if found:
        print(found, file=sys.stderr)


def _check_absent_flags(command: CliCommand, words: list[str]) -> None:
    """Say why a flag of Nomad's is not there; raises UsageError."""
    for word in words:
        name = word.lstrip("-").partition("=")[0]
        reason = absent_flag(command.name, name) if word.startswith("-") else ""
        if reason:
            raise UsageError(f"-{name} is not available: {reason}")


def _unexpected(command: CliCommand, error: Exception) -> int:
    """A defect of Yurt in one sentence; the traceback only on request."""
    if os.environ.get("YURT_DEBUG"):
        raise error
    print(
        f"Internal error in `yurt {command.name}`: {type(error).__name__}: {error}. "
        "This is a defect of Yurt; YURT_DEBUG=1 shows where it happened.",
        file=sys.stderr,
    )
    return command.failure_code


def _is_value_of_flag(command: CliCommand, words: list[str]) -> bool:
    """Whether the help word is the value of a flag, as in `-var -h`."""
    at = next(at for at, word in enumerate(words) if word in HELP)
    if at == 0:
        return False
    before = words[at - 1].lstrip("-")
    return words[at - 1].startswith("-") and any(
        flag.name == before and flag.kind in ("text", "int", "list") for flag in command.all_flags
    )


if __name__ == "__main__":
    sys.exit(main())
