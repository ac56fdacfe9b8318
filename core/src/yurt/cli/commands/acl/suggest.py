"""`yurt acl policy suggest`: the smallest policy for the requests of a token, from the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.sdk.errors import Invalid

if TYPE_CHECKING:
    from yurt.acl.suggest import Suggestion
    from yurt.audit.reading import AuditedLine, Needs

INCOMPLETE = 2
"""The exit code where the policy does not allow all that the token did."""
SHOWN_MAX = 10


def run(call: Invocation) -> int:
    """Print the policy; 0 when it allows everything that was done, 2 where something needs more than a policy."""
    from yurt.acl.suggest import Requirement, suggest
    from yurt.audit.reading import needs_of

    path = call.flags.text("from-audit")
    if not path:
        raise UsageError("-from-audit=<file> is required: an audit log, or - for standard input")
    lines = _read(path)
    accessor_id = _accessor(call.flags.text("accessor").lower(), lines)
    needs = needs_of(lines, accessor_id, with_refused=call.flags.is_on("refused"))
    found = suggest(Requirement(*each) for each in needs.needs)
    problems = _problems(found, needs)
    if call.flags.is_on("json"):
        call.screen.json(
            {"AccessorID": accessor_id, "Requests": needs.requests, "Policy": found.text, "Problems": problems}
        )
    else:
        call.screen.line(f"# {needs.requests} requests of {accessor_id}")
        for problem in problems:
            call.screen.line(f"# {problem}")
        if found.text:
            call.screen.line(found.text.rstrip("\n"))
    return INCOMPLETE if problems else 0


def _read(path: str) -> list[AuditedLine]:
    from yurt.audit.reading import read_lines
    from yurt.cli.files.source import read_text

    try:
        return list(read_lines(read_text(path).splitlines()))
    except Invalid as error:
        raise CliError(f"{path}: {error}") from None


def _accessor(prefix: str, lines: list[AuditedLine]) -> str:
    """The only accessor id with this prefix; raises CliError."""
    from yurt.audit.reading import callers

    counted = callers(lines)
    matches = sorted(each for each in counted if each.startswith(prefix) and each)
    if len(matches) == 1:
        return matches[0]
    shown = ", ".join(f"{each} ({counted[each]})" for each in matches[:SHOWN_MAX])
    more = f" and {len(matches) - SHOWN_MAX} more" if len(matches) > SHOWN_MAX else ""
    if matches:
        raise CliError(f"Several callers made requests: {shown}{more}; choose one with -accessor")
    raise CliError(
        f'No request of a caller "{prefix}" is in the audit log' if prefix else "No caller is in the audit log"
    )


def _problems(found: Suggestion, needs: Needs) -> list[str]:
    """Requests that the policy does not cover."""
    from yurt.access.needs import describe

    problems = [f"no policy can grant this: {describe(each.need)}" for each in found.ungrantable]
    problems += [f"not covered, because nobody found the object: {each}" for each in needs.unplaced]
    if needs.omitted:
        problems.append(f"not covered: {needs.omitted} decisions that the log left out")
    return problems


COMMANDS = (
    CliCommand(
        "acl policy suggest",
        "Write the smallest policy for what a token did, from the audit log",
        run,
        (
            text("from-audit", "The audit log, a file of JSON lines; - for standard input."),
            text(
                "accessor", "The accessor id of the token, or a beginning of it; needed where several are in the log."
            ),
            switch("refused", "Also allow the refused requests."),
            switch("json", "Print the policy and what it does not cover as JSON."),
        ),
        usage="-from-audit=<file>",
        details=(
            "Nothing is changed, and no server is asked. The policy names each namespace and path that was used; "
            "without any of its capabilities something that was done would be refused. What only a management token "
            "may do stands in comments.\n\n"
            "The exit code is 0 when the policy allows everything that was done, 2 where it cannot, and 1 for errors."
        ),
        is_client=False,
    ),
)
