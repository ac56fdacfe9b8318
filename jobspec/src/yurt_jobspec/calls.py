"""Function calls: look the function up, convert the arguments, and report a failure at the right argument.

Three functions are not in the registry because they do not take plain values: `try` and `can` look at whether an
argument has a value at all, and the second argument of `convert` is a type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from .budget import BudgetExhausted
from .diagnostics import EvaluationError, OffsetDiagnostic, fail
from .functions.registry import FunctionError, FunctionSpec, Parameter, lookup, suggestion
from .syntax.nodes import Expr, FunctionCall, Parentheses, place
from .types import read_type
from .values import ConversionError, Value, convert, entries_of, is_null, items_of

if TYPE_CHECKING:
    from .evaluator import Evaluator, NameScope


def call(evaluator: Evaluator, node: FunctionCall, scope: NameScope) -> Value:
    if node.name in _SPECIAL and node.name not in evaluator.functions:
        return _SPECIAL[node.name](evaluator, node, scope)
    function = evaluator.functions.get(node.name) or lookup(node.name)
    if function is None:
        hint = suggestion(node.name)
        detail = f'There is no function named "{node.name}".'
        raise fail("Call to unknown function", detail, node.start, node.name_end, hint=hint)
    arguments, nodes = spread_arguments(evaluator, node, scope)
    for value in arguments:
        evaluator.budget.charge_work(value, node)
    check_count(node, function, arguments, nodes)
    converted = converted_arguments(function, arguments, nodes)
    if node.name in _WORK:
        evaluator.budget.charge_steps(_work(node.name, converted), node)
    try:
        result = function.run(converted, evaluator.files) if function.reads_files else function.run(converted)
    except FunctionError as error:
        function_failed(node, function, error, nodes)
    except (ArithmeticError, ValueError) as error:
        reason = FunctionError(f"a number is outside what this function can work with ({type(error).__name__})")
        function_failed(node, function, reason, nodes)
    charge_result(evaluator, result, node)
    return result


def _work(name: str, arguments: list[Value]) -> int:
    """The work of a function that is slow even for little data."""
    from .functions import hashing

    steps: int = getattr(hashing, f"{name}_work")(arguments)
    return steps


def spread_arguments(evaluator: Evaluator, node: FunctionCall, scope: NameScope) -> tuple[list[Value], list[Expr]]:
    """The argument values, each with its expression; a last argument with `...` is expanded."""
    values = evaluator.every(node.arguments, scope)
    nodes = list(node.arguments)
    if not node.spread:
        return values, nodes
    last = items_of(values[-1])
    if last is None:
        detail = "The expanded argument (indicated by ...) must be of a tuple, list, or set type."
        raise fail("Invalid expanding argument value", detail, nodes[-1].start, nodes[-1].end)
    evaluator.budget.charge(len(last), node)
    return [*values[:-1], *last], [
        *nodes[:-1],
        *(Parentheses(nodes[-1], nodes[-1].start, nodes[-1].end),) * len(last),
    ]


def check_count(node: FunctionCall, function: FunctionSpec, arguments: list[Value], nodes: list[Expr]) -> None:
    required = function.required
    if len(arguments) < required:
        missing = function.parameters[len(arguments)].name
        detail = f'Function "{node.name}" expects {function.count_text} argument(s). Missing value for "{missing}".'
        raise fail("Not enough function arguments", detail, node.close, node.close + 1)
    if function.variadic is None and len(arguments) > len(function.parameters):
        detail = f'Function "{node.name}" expects only {function.count_text} argument(s).'
        raise fail("Too many function arguments", detail, *place(nodes[len(function.parameters)]))


def converted_arguments(function: FunctionSpec, arguments: list[Value], nodes: list[Expr]) -> list[Value]:
    """The arguments as their parameters' types; reports all wrong types at once, then nulls."""
    converted: list[Value] = []
    problems: list[OffsetDiagnostic] = []
    for index, value in enumerate(arguments):
        try:
            converted.append(convert(value, parameter_of(function, index).type))
        except ConversionError as error:
            detail = f'Invalid value for "{parameter_of(function, index).name}" parameter: {error}.'
            problems.append(OffsetDiagnostic("Invalid function argument", detail, *place(nodes[index])))
    if problems:
        raise EvaluationError(problems)
    for index, value in enumerate(arguments):
        parameter = parameter_of(function, index)
        if is_null(value) and not parameter.nullable:
            detail = f'Invalid value for "{parameter.name}" parameter: argument must not be null.'
            raise fail("Invalid function argument", detail, *place(nodes[index]))
    return converted


def parameter_of(function: FunctionSpec, index: int) -> Parameter:
    parameter = function.parameters[index] if index < len(function.parameters) else function.variadic
    assert parameter is not None
    return parameter


RELATIVE_PATHS = "A relative path begins at the folder of the job file."


def function_failed(node: FunctionCall, function: FunctionSpec, error: FunctionError, nodes: list[Expr]) -> NoReturn:
    if error.argument is not None and error.argument < len(nodes):
        detail = f'Invalid value for "{parameter_of(function, error.argument).name}" parameter: {error.detail}.'
        raise fail("Invalid function argument", detail, *place(nodes[error.argument])) from None
    raise fail(
        "Error in function call",
        f'Call to function "{node.name}" failed: {error.detail}.',
        node.start,
        node.name_end,
        hint=RELATIVE_PATHS if function.reads_files else None,
    ) from None


def charge_result(evaluator: Evaluator, result: Value, node: FunctionCall) -> None:
    if isinstance(result, str):
        evaluator.budget.charge_text(len(result), node)
        return
    members = items_of(result) or entries_of(result)
    if members:
        evaluator.budget.charge(len(members), node)
        evaluator.budget.weigh(result, node)


def try_all(evaluator: Evaluator, node: FunctionCall, scope: NameScope) -> Value:
    """The function `try`: the first argument that evaluates without an error."""
    if not node.arguments:
        raise fail("Not enough function arguments", "try needs at least one argument.", node.close, node.close + 1)
    reasons: list[str] = []
    for argument in node.arguments:
        try:
            return evaluator.evaluate(argument, scope)
        except BudgetExhausted:
            raise
        except EvaluationError as error:
            reasons.append(str(error))
    detail = "No expression succeeded: " + "; ".join(reasons)
    raise fail("Error in function call", f'Call to function "try" failed: {detail}', node.start, node.name_end)


def can(evaluator: Evaluator, node: FunctionCall, scope: NameScope) -> bool:
    """The function `can`: whether the argument evaluates without an error."""
    if len(node.arguments) != 1:
        raise fail("Not enough function arguments", "can needs exactly one argument.", node.close, node.close + 1)
    try:
        evaluator.evaluate(node.arguments[0], scope)
    except BudgetExhausted:
        raise
    except EvaluationError:
        return False
    return True


def convert_call(evaluator: Evaluator, node: FunctionCall, scope: NameScope) -> Value:
    """The function `convert(value, type)`; its second argument is a type expression."""
    if len(node.arguments) != 2:
        raise fail("Not enough function arguments", "convert needs a value and a type.", node.close, node.close + 1)
    value, target = evaluator.evaluate(node.arguments[0], scope), read_type(node.arguments[1])
    evaluator.budget.charge_work(value, node)
    try:
        return convert(value, target)
    except ConversionError as error:
        detail = f'Call to function "convert" failed: {error}.'
        raise fail("Error in function call", detail, node.start, node.name_end) from None


_WORK = ("bcrypt", "rsadecrypt")
_SPECIAL: dict[str, Callable[[Evaluator, FunctionCall, NameScope], Value]] = {
    "try": try_all,
    "can": can,
    "convert": convert_call,
}
