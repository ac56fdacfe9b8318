"""`yurt var get`."""

from __future__ import annotations

from yurt.cli.api.variables import read_variable
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import text
from yurt.cli.suggest import did_you_mean
from yurt.cli.var.shown import TEMPLATE, checked_form, is_terminal, out_flag, show

FORMS = ("go-template", "hcl", "json", "none", "table")


def run(call: Invocation) -> int:
    """One variable, or one of its items."""
    form = checked_form(call, FORMS, default="table" if is_terminal() else "json")
    item = call.flags.text("item")
    if item and (call.flags.is_given("out") or call.flags.is_given("template")):
        raise UsageError("The -item flag prints the value alone; it goes with neither -out nor -template")
    variable = read_variable(call, call.args[0])
    if not item:
        show(call, variable, form)
        return 0
    items = variable.get("Items") or {}
    if item not in items:
        raise CliError(f'Variable "{variable["Path"]}" does not contain an "{item}" item{did_you_mean(item, items)}')
    call.screen.line(items[item])
    return 0


COMMAND = Command(
    "var get",
    "Print a variable.",
    run,
    (
        text("item", "Print the value of this item alone."),
        out_flag("go-template, hcl, json, none or table", "the variable"),
        TEMPLATE,
    ),
    (1, 1),
    "<path>",
    "one argument: <path>",
    details="Without -out: a table on a terminal, else JSON.",
)
