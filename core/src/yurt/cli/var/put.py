"""`yurt var put`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.variables import Conflict, check_index, write
from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.var.shown import TEMPLATE, checked_form, conflict_error, is_terminal, out_flag, show
from yurt.cli.var.spec import read_source, read_spec

Json = dict[str, Any]

FORMS = ("go-template", "hcl", "json", "none", "table")


def run(call: Invocation) -> int:
    """Store a variable from a file, from standard input and from the command line."""
    form = checked_form(call, FORMS, default="none" if is_terminal() else "json")
    if call.flags.text("in") not in ("hcl", "json"):
        raise UsageError(f'Invalid value "{call.flags.text("in")}" for -in; it is one of hcl, json')
    index = check_index(call)
    if index is not None and call.flags.is_on("force"):
        raise UsageError("-check-index and -force contradict each other; leave out one of both")
    spec = _spec(call)
    if index is None and not call.flags.is_on("force"):
        index = int(spec.pop("ModifyIndex", 0) or 0)
    query = {} if index is None else {"cas": str(index)}
    if spec.get("Namespace") and not call.api.connection.namespace:
        query["namespace"] = spec["Namespace"]
    body = {key: spec[key] for key in ("Path", "Items", "Lock") if spec.get(key)}
    try:
        written = write(call, "PUT", spec["Path"], body, **query)
    except Conflict as conflict:
        raise conflict_error(conflict.held, index or 0, doing="put") from None
    if call.is_verbose or (form == "none" and is_terminal()):
        call.screen.error(
            f'Successfully created or updated variable "{written["Path"]}" at index {written["ModifyIndex"]}'
        )
    show(call, written, form)
    return 0


def _spec(call: Invocation) -> Json:
    """The variable to store: what a file says, then what the command line says."""
    first, *rest = call.args
    form = call.flags.text("in")
    if first == "-" or first.startswith("@"):
        spec = read_spec(first.removeprefix("@"), form=form)
    else:
        spec = {"Path": first, "Items": {}}
        if rest and (rest[0] == "-" or rest[0].startswith("@")):
            spec = read_spec(rest.pop(0).removeprefix("@"), form=form) | {"Path": first}
    for pair in rest:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f'"{pair}" is no item; give items as key=value')
        spec["Items"][name] = _value(value)
    if not spec.get("Path"):
        raise CliError("The variable has no path; name it in the file or as the first argument")
    if not spec["Items"]:
        raise CliError("The variable has no items; give at least one as key=value or in the file")
    return spec


def _value(given: str) -> str:
    """A value as given, or of a file (`@name`) or standard input (`-`); `\\@` begins a value with an at sign."""
    if given == "-" or given.startswith("@"):
        return read_source(given.removeprefix("@"))
    return given[1:] if given.startswith(("\\@", "\\-")) else given


COMMAND = Command(
    "var put",
    "Create or change a variable.",
    run,
    (
        switch("force", "Write over whatever is there, of whatever index."),
        text("check-index", "Write only if it was last changed at this index; 0: only if there is none."),
        text(
            "in", "The form of standard input, and of files whose name does not tell it: hcl or json.", default="json"
        ),
        out_flag("go-template, hcl, json, none or table", "what was written"),
        TEMPLATE,
        VERBOSE,
    ),
    (1, -1),
    "[<path>] [@<file> | -] [<key>=<value> ...]",
    "a path, a file (@name or - for standard input) or both, and items as key=value",
    details="Without -check-index and -force an existing variable is changed only when the file has its index "
    "(modify_index). A value may be @FILE, or - for standard input. Without -out: nothing on a terminal, else JSON.",
)
