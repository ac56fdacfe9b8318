"""`yurt var get`, `put`, `list`, `purge` and `init`: variables read and written."""

from __future__ import annotations

from urllib.parse import urlencode

from yurt.cli.api.namespaces import warn_of_namespace
from yurt.cli.api.paging import next_page, page_query
from yurt.cli.api.variables import WriteConflict, check_index, read_variable, write
from yurt.cli.commands.var.output import TEMPLATE, checked_form, conflict_error, is_terminal, out_flag, show
from yurt.cli.commands.var.specification import read_spec
from yurt.cli.declaration import UI, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.files.source import read_text
from yurt.cli.flags import number, switch, text
from yurt.cli.json_object import Json
from yurt.cli.suggest import did_you_mean
from yurt.cli.terminal.data import rendered
from yurt.cli.terminal.text import local_time

GET_FORMS = ("go-template", "hcl", "json", "none", "table")

PUT_FORMS = ("go-template", "hcl", "json", "none", "table")
LIST_FORMS = ("go-template", "json", "table", "terse")
JSON = """\
{
  "Namespace": "default",
  "Path": "path/to/variable",
  "Items": {
    "key1": "value 1",
    "key2": "value 2"
  }
}
"""


HCL = """\
# A variable's path is where it is stored. Tasks may read those that lie at
#   nomad/jobs, nomad/jobs/<job>, nomad/jobs/<job>/<group>, nomad/jobs/<job>/<group>/<task>
# of their own job without any further permission.
path = "path/to/variable"

# The namespace, unless -namespace or NOMAD_NAMESPACE says another.
# namespace = "default"

# The stored items: names and texts, 64 KiB in all, encrypted.
items {
  key1 = "value 1"
  key2 = "value 2"
}
"""


def print_variable(call: Invocation) -> int:
    """One variable, or one of its items."""
    form = checked_form(call, GET_FORMS, default="table" if is_terminal() else "json")
    item = call.flags.text("item")
    if item and (call.flags.is_given("out") or call.flags.is_given("template")):
        raise UsageError("The -item flag prints the value alone; it goes with neither -out nor -template")
    variable = read_variable(call, call.args[0])
    _open_page(call, variable)
    if not item:
        show(call, variable, form)
        return 0
    items = variable.get("Items") or {}
    if item not in items:
        raise CliError(f'Variable "{variable["Path"]}" does not contain an "{item}" item{did_you_mean(item, items)}')
    call.screen.line(items[item])
    return 0


def put_variable(call: Invocation) -> int:
    """Store a variable from a file, from standard input and from the command line."""
    form = checked_form(call, PUT_FORMS, default="none" if is_terminal() else "json")
    if call.flags.text("in") not in ("hcl", "json"):
        raise UsageError(f'Invalid value "{call.flags.text("in")}" for -in; it is one of hcl, json')
    index = check_index(call)
    if index is not None and call.flags.is_on("force"):
        raise UsageError("-check-index and -force contradict each other; leave out one of the two")
    spec = _spec(call)
    if index is None and not call.flags.is_on("force"):
        index = int(spec.pop("ModifyIndex", 0) or 0)
    query = {} if index is None else {"cas": str(index)}
    if spec.get("Namespace") and not call.api.connection.namespace:
        query["namespace"] = spec["Namespace"]
    body = {key: spec[key] for key in ("Path", "Items", "Lock") if spec.get(key)}
    try:
        written = write(call, "PUT", spec["Path"], body, **query)
    except WriteConflict as conflict:
        raise conflict_error(conflict.current, index or 0, doing="put") from None
    if call.is_verbose or (form == "none" and is_terminal()):
        call.screen.error(
            f'Successfully created or updated variable "{written["Path"]}" at index {written["ModifyIndex"]}'
        )
    show(call, written, form)
    _open_page(call, written)
    return 0


def _open_page(call: Invocation, variable: Json | None = None) -> None:
    """With -ui open the page of a variable, or of all."""
    from yurt.cli.views.browser import open_page, page

    if not call.flags.is_on("ui"):
        return
    path = page("variables", variable["Path"]) if variable else page("variables")
    namespace = (variable or {}).get("Namespace") or call.api.namespace
    open_page(call, f"{path}?{urlencode({'namespace': namespace})}")


def _spec(call: Invocation) -> Json:
    """The variable to store: from the file, overridden by the command line."""
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
            raise UsageError(f'"{pair}" is not a valid item; give items as key=value')
        spec["Items"][name] = _value(value)
    if not spec.get("Path"):
        raise CliError("The variable has no path; name it in the file or as the first argument")
    if not spec["Items"]:
        raise CliError("The variable has no items; give at least one as key=value or in the file")
    return spec


def _value(value: str) -> str:
    """A value as given, or of a file (`@name`) or standard input (`-`); `\\@` begins a value with an at sign."""
    if value == "-" or value.startswith("@"):
        return read_text(value.removeprefix("@"))
    return value[1:] if value.startswith(("\\@", "\\-")) else value


def list_variables(call: Invocation) -> int:
    """Metadata of the variables whose path begins with a prefix."""
    form = checked_form(call, LIST_FORMS, default="table" if is_terminal() else "terse")
    prefix = call.args[0] if call.args else ""
    answer = call.api.read("/v1/vars", {"prefix": prefix, **page_query(call)})
    rows: list[Json] = answer.data or []
    if not rows:
        warn_of_namespace(call)
    _open_page(call)
    match form:
        case "json":
            call.screen.json(rows)
        case "go-template":
            call.screen.line(rendered(call.flags.text("template"), rows))
        case "terse":
            for row in rows:
                call.screen.line(row["Path"])
        case _:
            _show_table(call, rows)
    if answer.next_token:
        call.screen.error(next_page(call, answer.next_token))
    return 0


def _show_table(call: Invocation, rows: list[Json]) -> None:
    if not rows:
        call.screen.line("No variables found")
        return
    shown = [[row["Namespace"], row["Path"], local_time(row.get("ModifyTime") or 0)] for row in rows]
    call.screen.table("Namespace|Path|Last Updated", shown)


def purge_variable(call: Invocation) -> int:
    """Delete a variable for good."""
    path, index = call.args[0], check_index(call)
    query = {} if index is None else {"cas": str(index)}
    try:
        write(call, "DELETE", path, None, **query)
    except WriteConflict as conflict:
        raise conflict_error(conflict.current, index or 0, doing="purge") from None
    call.screen.line(f'Successfully purged variable "{path}"!')
    return 0


def write_example(call: Invocation) -> int:
    """Write an example file."""
    from pathlib import Path

    form = call.flags.text("out")
    if form not in ("hcl", "json"):
        raise UsageError(f'Invalid value "{form}" for -out; it is one of hcl, json')
    path = Path(call.args[0] if call.args else f"spec.nv.{form}")
    if path.exists():
        raise CliError(f"File {path} already exists; name another one")
    content = JSON if form == "json" else _without_comments(HCL) if call.flags.is_on("quiet") else HCL
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error}") from None
    if not call.flags.is_on("quiet"):
        call.screen.line(f"Example variable specification written to {path}")
    return 0


def _without_comments(content: str) -> str:
    return "\n".join(line for line in content.splitlines() if line and not line.startswith("#")) + "\n"


COMMANDS = (
    CliCommand(
        "var get",
        "Print a variable",
        print_variable,
        (
            text("item", "Print the value of this item alone."),
            out_flag("go-template, hcl, json, none or table", "the variable"),
            TEMPLATE,
            UI,
        ),
        (1, 1),
        "<path>",
        "one argument: <path>",
        details="Without -out: a table on a terminal, else JSON.",
    ),
    CliCommand(
        "var put",
        "Create or change a variable",
        put_variable,
        (
            switch("force", "Write over whatever is there, of whatever index."),
            text("check-index", "Write only if it was last changed at this index; 0: only if there is none."),
            text(
                "in",
                "The form of standard input, and of files whose name does not tell it: hcl or json.",
                default="json",
            ),
            out_flag("go-template, hcl, json, none or table", "what was written"),
            TEMPLATE,
            UI,
            VERBOSE,
        ),
        (1, -1),
        "[<path>] [@<file> | -] [<key>=<value> ...]",
        "a path, a file (@name or - for standard input) or both, and items as key=value",
        details="Without -check-index and -force an existing variable is changed only when the file has its index "
        "(modify_index). A value may be @FILE, or - for standard input. "
        "Without -out: nothing on a terminal, else JSON.",
    ),
    CliCommand(
        "var list",
        "List variables, by a prefix of their paths",
        list_variables,
        (
            number("per-page", "How many to print; 0 prints all."),
            text("page-token", "Where the page begins."),
            text("filter", "Print those for which an expression holds."),
            out_flag("go-template, json, table or terse", "the list"),
            TEMPLATE,
            UI,
        ),
        (0, 1),
        "[prefix]",
        "at most one argument: [prefix]",
        details="Without -out: a table on a terminal, else the paths alone.",
    ),
    CliCommand(
        "var purge",
        "Delete a variable for good",
        purge_variable,
        (text("check-index", "Delete it only if it was last changed at this index."),),
        (1, 1),
        "<path>",
        "one argument: <path>",
    ),
    CliCommand(
        "var init",
        "Write an example file of a variable",
        write_example,
        (
            text("out", "The form of the file: hcl or json.", default="hcl"),
            switch("quiet", "No comments in the file, and nothing on the screen."),
        ),
        (0, 1),
        "[filename]",
        "at most one argument: [filename]",
        is_client=False,
    ),
)
