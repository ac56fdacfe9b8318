"""Evaluates expressions.

The evaluator is pure: an expression, a scope and nothing else decide the result. It has two peculiarities that come
from job files.

A root name that nobody defines is not an error. `${attr.kernel.name}` means something to the client that runs the
task, so a reference to an unknown root evaluates to its own text, `${attr.kernel.name}`, with all the attributes and
constant indexes written behind it.

Work is bounded: whatever a loop, a function or a template produces is charged to a budget, see `budget`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import calls, numbers
from .budget import BudgetExhausted, EvaluationBudget
from .diagnostics import EvaluationError, Near, OffsetDiagnostic, fail
from .functions.registry import FunctionSpec
from .suggestions import undeclared_hint
from .syntax.nodes import (
    Attr,
    Binary,
    Conditional,
    Embedded,
    Expr,
    For,
    FunctionCall,
    Index,
    LiteralValue,
    ObjectOf,
    Parentheses,
    RootVariable,
    Splat,
    Step,
    TemplateExpr,
    TemplateFor,
    TemplateIf,
    TemplatePart,
    Traversal,
    TupleOf,
    Unary,
    Wrap,
    place,
)
from .values import (
    ConversionError,
    ListValue,
    SetValue,
    TooLarge,
    Value,
    convert,
    entries_of,
    equal,
    is_null,
    items_of,
    pairs_of,
    type_name,
    type_of,
    unify,
)

_ARITHMETIC = {
    "+": numbers.add,
    "-": numbers.subtract,
    "*": numbers.multiply,
    "/": numbers.divide,
    "%": numbers.remainder,
}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda left, right: bool(left < right),
    ">": lambda left, right: bool(left > right),
    "<=": lambda left, right: bool(left <= right),
    ">=": lambda left, right: bool(left >= right),
}


class RootObject:
    """A root object whose attributes are evaluated on demand, such as `local`."""

    def __init__(self, get: Callable[[str], Value], names: Callable[[], tuple[str, ...]]) -> None:
        self.get = get
        self.names = names

    def everything(self) -> dict[str, Value]:
        return {name: self.get(name) for name in self.names()}


class NameScope:
    """Names and their values; inner scopes are searched first."""

    __slots__ = ("names", "parent")

    def __init__(self, names: Mapping[str, Any], parent: NameScope | None = None) -> None:
        self.names = names
        self.parent = parent

    def find(self, name: str) -> tuple[bool, Any]:
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.names:
                return True, scope.names[name]
            scope = scope.parent
        return False, None


class Evaluator:
    """Evaluates the expressions of one file; `text` is its text, `functions` adds to the built-in ones."""

    def __init__(
        self,
        text: str,
        *,
        budget: EvaluationBudget | None = None,
        files: Any = None,
        functions: Mapping[str, FunctionSpec] | None = None,
    ) -> None:
        self.text = text
        self.budget = budget or EvaluationBudget()
        self.files = files
        self.functions = functions or {}

    def evaluate(self, node: Expr, scope: NameScope) -> Value:
        """The value of an expression. Raises EvaluationError."""
        if type(node) is LiteralValue:
            return node.value
        try:
            return _HANDLERS[type(node)](self, node, scope)
        except TooLarge:
            raise BudgetExhausted(
                (OffsetDiagnostic("Expression result too large", "The value's type is too large.", *place(node)),)
            ) from None

    def as_type(self, node: Expr, scope: NameScope, target: str, summary: str, detail: str) -> Any:
        """The expression's value, converted to a primitive type; raises for null."""
        value = self.evaluate(node, scope)
        if is_null(value):
            raise fail(summary, f"{detail} The value is null.", node.start, node.end)
        try:
            return convert(value, target)
        except ConversionError as error:
            raise fail(summary, f"{detail} Unsuitable value: {error}.", node.start, node.end) from None

    # Structure.

    def wrap(self, node: Wrap | Parentheses, scope: NameScope) -> Value:
        return self.evaluate(node.inner, scope)

    def make_tuple(self, node: TupleOf, scope: NameScope) -> Value:
        self.budget.charge(len(node.items), node)
        return self.weighed(tuple(self.every(node.items, scope)), node)

    def weighed(self, value: Value, node: Any) -> Value:
        """The value; raises when it exceeds the size limit."""
        self.budget.weigh(value, node)
        return value

    def every(self, nodes: tuple[Expr, ...], scope: NameScope) -> list[Value]:
        """The values of all expressions; raises with the problems of all that fail."""
        values: list[Value] = []
        problems: list[OffsetDiagnostic] = []
        for node in nodes:
            if type(node) is LiteralValue:
                values.append(node.value)
                continue
            try:
                values.append(self.evaluate(node, scope))
            except BudgetExhausted:
                raise
            except EvaluationError as error:
                problems.extend(error.problems)
        if problems:
            raise EvaluationError(problems)
        return values

    def make_object(self, node: ObjectOf, scope: NameScope) -> Value:
        self.budget.charge(len(node.items), node)
        values = self.every(tuple(value for _, value in node.items), scope)
        return self.weighed(
            {self.object_key(key, scope): value for (key, _), value in zip(node.items, values, strict=True)}, node
        )

    def object_key(self, node: Expr, scope: NameScope) -> str:
        if isinstance(node, Traversal) and isinstance(node.source, RootVariable):
            detail = (
                "A key must be a name or a string; to use the value of a reference as the key, put it in parentheses."
            )
            raise fail("Ambiguous attribute key", detail, node.start, node.end)
        return self.key(self.evaluate(node, scope), node)

    def key(self, value: Value, node: Expr) -> str:
        if is_null(value):
            raise fail("Null value as key", "Can't use a null value as a key.", *place(node))
        try:
            key: str = convert(value, "string")
        except ConversionError as error:
            raise fail("Incorrect key type", f"Can't use this value as a key: {error}.", *place(node)) from None
        return key

    def embedded(self, node: Embedded, scope: NameScope) -> Value:
        """Evaluate an expression in a JSON string; its problems are reported at the string."""
        try:
            return Evaluator(node.text, budget=self.budget, files=self.files, functions=self.functions).evaluate(
                node.inner, scope
            )
        except EvaluationError as error:
            raise type(error)(
                [problem._replace(start=node.start, end=node.end) for problem in error.problems]
            ) from None

    # References.

    def variable(self, node: RootVariable, scope: NameScope) -> Value:
        found, value = scope.find(node.name)
        if not found:
            return "${" + node.name + "}"
        return value.everything() if isinstance(value, RootObject) else value

    def access(self, node: Traversal, scope: NameScope) -> Value:
        source, steps = node.source, node.steps
        if type(source) is not RootVariable:
            return self.walk(self.evaluate(source, scope), steps, scope)
        found, value = scope.find(source.name)
        if not found:
            count = _constant_steps(steps)
            text = "${" + self.text[source.start : steps[count - 1].end if count else source.end] + "}"
            return self.walk(text, steps[count:], scope)
        if isinstance(value, RootObject):
            first = steps[0]
            if type(first) is not Attr:
                return self.walk(value.everything(), steps, scope)
            if first.name not in value.names():
                raise _undeclared(source.name, first, value.names())
            value, steps = value.get(first.name), steps[1:]
        elif source.name == "var" and type(steps[0]) is Attr:
            entries = entries_of(value)
            if entries is not None and steps[0].name not in entries:
                raise _undeclared(source.name, steps[0], tuple(entries))
        return self.walk(value, steps, scope)

    def walk(self, value: Value, steps: tuple[Step, ...], scope: NameScope) -> Value:
        for step in steps:
            if type(step) is Attr:
                value = self.attribute(value, step)
            elif type(step) is Index:
                value = self.index(value, self.evaluate(step.key, scope), step)
            else:
                assert type(step) is Splat
                value = self.splat(value, step, scope)
        return value

    def attribute(self, value: Value, step: Attr) -> Value:
        entries = entries_of(value)
        if entries is not None:
            if step.name in entries:
                return entries[step.name]
            raise _missing_attribute(step, tuple(entries))
        if is_null(value):
            raise fail(
                "Attempt to get attribute from null value",
                "This value is null, so it does not have any attributes.",
                step.start,
                step.end,
            )
        detail = f"Can't access attributes on a value of type {type_name(type_of(value))}."
        hint = "Use [*] to get the attribute of each element." if items_of(value) is not None else None
        raise fail("Unsupported attribute", detail, step.start, step.end, hint=hint)

    def index(self, value: Value, key: Value, step: Index) -> Value:
        if is_null(value) or is_null(key):
            what = "value" if is_null(value) else "index"
            raise fail("Invalid index", f"The {what} is null.", step.start, step.end)
        items = items_of(value)
        if items is not None and type(value) is not SetValue:
            return self.element(items, key, step)
        entries = entries_of(value)
        if entries is None:
            detail = f"A value of type {type_name(type_of(value))} does not have any indices."
            raise fail("Invalid index", detail, step.start, step.end)
        try:
            name = convert(key, "string")
        except ConversionError as error:
            raise fail(
                "Invalid index", f"The given key does not identify an element: {error}.", step.start, step.end
            ) from None
        if name not in entries:
            raise fail(
                "Invalid index",
                "The given key does not identify an element in this collection value.",
                step.start,
                step.end,
            )
        return entries[name]

    def element(self, items: tuple[Value, ...], key: Value, step: Index) -> Value:
        try:
            position = convert(key, "number")
        except ConversionError as error:
            raise fail(
                "Invalid index", f"The given key does not identify an element: {error}.", step.start, step.end
            ) from None
        if not isinstance(position, int) or not 0 <= position < len(items):
            detail = f"The given index does not identify an element: the collection has {len(items)}."
            raise fail("Invalid index", detail, step.start, step.end)
        return items[position]

    def splat(self, value: Value, step: Splat, scope: NameScope) -> Value:
        if is_null(value):
            if value is not None and not isinstance(value.type, str):
                raise fail(
                    "Splat of null value",
                    "Splat expressions cannot be applied to null sequences.",
                    step.origin,
                    step.start,
                )
            return ()
        items = items_of(value)
        self.budget.charge(1 if items is None else len(items), step)
        if items is None:
            return (self.walk(value, step.steps, scope),)
        results = tuple(self.walk(item, step.steps, scope) for item in items)
        self.budget.charge_work(results, step)
        if type(value) is tuple:
            return results
        element = unify([type_of(item) for item in results])
        return results if element is None else ListValue(element, results)

    # Operators.

    def unary(self, node: Unary, scope: NameScope) -> Value:
        if node.operator == "!":
            return not self.as_type(node.operand, scope, "bool", "Invalid operand", "The operand must be a bool.")
        return numbers.negate(
            self.as_type(node.operand, scope, "number", "Invalid operand", "The operand must be a number.")
        )

    def binary(self, node: Binary, scope: NameScope) -> Value:
        """Evaluate a left-leaning chain of operators without recursion."""
        chain = [node]
        while type(chain[-1].left) is Binary:
            chain.append(chain[-1].left)
        result: Value = self.evaluate(chain[-1].left, scope) if chain[-1].operator in ("==", "!=") else _UNSET
        for current in reversed(chain):
            result = self.operate(current, result, scope)
        return result

    def operate(self, node: Binary, left: Value, scope: NameScope) -> Value:
        operator = node.operator
        if operator in ("==", "!="):
            if left is _UNSET:
                left = self.evaluate(node.left, scope)
            right = self.evaluate(node.right, scope)
            self.budget.charge_work(left, node)
            self.budget.charge_work(right, node)
            return equal(left, right) == (operator == "==")
        operand_type = "bool" if operator in ("&&", "||") else "number"
        first, second = self.operands(node, left, operand_type, scope)
        if operator == "&&":
            return first and second
        if operator == "||":
            return first or second
        if operator in _COMPARISONS:
            return _COMPARISONS[operator](first, second)
        try:
            return _ARITHMETIC[operator](first, second)
        except ZeroDivisionError:
            raise fail("Division by zero", "Cannot divide by zero.", node.start, node.end) from None
        except ValueError as error:
            raise fail("Operation failed", str(error), node.start, node.end) from None

    def operands(self, node: Binary, left: Value, target: str, scope: NameScope) -> tuple[Any, Any]:
        results: list[Any] = []
        problems: list[OffsetDiagnostic] = []
        for side, operand in (("left", node.left), ("right", node.right)):
            value = LiteralValue(left, operand.start, operand.end) if side == "left" and left is not _UNSET else operand
            try:
                results.append(
                    self.as_type(value, scope, target, "Invalid operand", f"The {side} operand must be a {target}.")
                )
            except BudgetExhausted:
                raise
            except EvaluationError as error:
                problems.extend(error.problems)
        if problems:
            raise EvaluationError(problems)
        return results[0], results[1]

    def conditional(self, node: Conditional, scope: NameScope) -> Value:
        yes, no = self.evaluate(node.yes, scope), self.evaluate(node.no, scope)
        self.budget.charge_work(yes, node)
        self.budget.charge_work(no, node)
        common = unify([type_of(yes), type_of(no)])
        if common is None:
            detail = (
                "The true and false result expressions must have consistent types; "
                f"the first is {type_name(type_of(yes))}, the second {type_name(type_of(no))}."
            )
            raise fail("Inconsistent conditional result types", detail, node.yes.start, node.no.end)
        chosen = self.as_type(
            node.condition, scope, "bool", "Incorrect condition type", "The condition expression must be of type bool."
        )
        try:
            return convert(yes if chosen else no, common)
        except ConversionError as error:
            raise fail(
                "Inconsistent conditional result types",
                f"The result is unsuitable: {error}.",
                node.yes.start,
                node.no.end,
            ) from None

    # Loops.

    def for_expression(self, node: For, scope: NameScope) -> Value:
        results: list[Value] = []
        entries: dict[str, Value] = {}
        groups: dict[str, list[Value]] = {}
        problems: list[OffsetDiagnostic] = []
        for names in self.loop(node, node.collection, scope):
            inner = NameScope(names, scope)
            if node.condition is not None and not self.for_condition(node.condition, inner):
                continue
            if node.key is None:
                results.append(self.evaluate(node.value, inner))
                continue
            key = self.key(self.evaluate(node.key, inner), node.key)
            value = self.evaluate(node.value, inner)
            if node.group:
                groups.setdefault(key, []).append(value)
            elif key in entries:
                detail = f"Two different items produced the key \"{key}\" in this 'for' expression."
                hint = "Write an ellipsis (...) after the value expression to group the values by key."
                problems.append(OffsetDiagnostic("Duplicate object key", detail, *place(node.key), hint))
                raise EvaluationError(problems)
            else:
                entries[key] = value
        if node.key is None:
            return self.weighed(tuple(results), node)
        return self.weighed({key: tuple(values) for key, values in groups.items()} if node.group else entries, node)

    def for_condition(self, node: Expr, scope: NameScope) -> bool:
        result: bool = self.as_type(node, scope, "bool", "Invalid 'for' condition", "The 'if' clause must be a bool.")
        return result

    def loop(self, node: For | TemplateFor, collection: Expr, scope: NameScope) -> Any:
        """Yield the names defined in each iteration of a `for`."""
        value = self.evaluate(collection, scope)
        pairs = pairs_of(value)
        if pairs is None:
            what = "a null value" if is_null(value) else f"a value of type {type_name(type_of(value))}"
            detail = f"A 'for' expression needs a list, set, tuple, map or object; this is {what}."
            raise fail("Iteration over non-iterable value", detail, collection.start, collection.end)
        for key, item in pairs:
            self.budget.charge(1, node)
            names = {node.value_name: item}
            if node.key_name is not None:
                names[node.key_name] = key
            yield names

    # Templates.

    def template(self, node: TemplateExpr, scope: NameScope) -> str:
        text = "".join(self.pieces(node.parts, scope))
        self.budget.charge_text(len(text), node)
        return text

    def pieces(self, parts: tuple[TemplatePart, ...], scope: NameScope) -> list[str]:
        texts: list[str] = []
        problems: list[OffsetDiagnostic] = []
        for part in parts:
            try:
                texts.append(part if isinstance(part, str) else self.piece(part, scope))
            except BudgetExhausted:
                raise
            except EvaluationError as error:
                problems.extend(error.problems)
        if problems:
            raise EvaluationError(problems)
        return texts

    def piece(self, part: Expr | TemplateIf | TemplateFor, scope: NameScope) -> str:
        if isinstance(part, TemplateIf):
            chosen = self.as_type(
                part.condition, scope, "bool", "Incorrect condition type", "The condition must be of type bool."
            )
            return "".join(self.pieces(part.yes if chosen else part.no, scope))
        if isinstance(part, TemplateFor):
            texts: list[str] = []
            for names in self.loop(part, part.collection, scope):
                text = "".join(self.pieces(part.body, NameScope(names, scope)))
                self.budget.charge_text(len(text), part)
                texts.append(text)
            return "".join(texts)
        value = self.evaluate(part, scope)
        if is_null(value):
            detail = "The expression result is null. Cannot include a null value in a string template."
            raise fail("Invalid template interpolation value", detail, part.start, part.end)
        try:
            text = convert(value, "string")
        except ConversionError as error:
            detail = f"Cannot include the given value in a string template: {error}."
            raise fail("Invalid template interpolation value", detail, part.start, part.end) from None
        self.budget.charge_text(len(text), part)
        return str(text)


_UNSET = object()
_HANDLERS: dict[type, Callable[..., Value]] = {
    RootVariable: Evaluator.variable,
    Traversal: Evaluator.access,
    FunctionCall: calls.call,
    Unary: Evaluator.unary,
    Binary: Evaluator.binary,
    Conditional: Evaluator.conditional,
    Parentheses: Evaluator.wrap,
    Wrap: Evaluator.wrap,
    Embedded: Evaluator.embedded,
    TupleOf: Evaluator.make_tuple,
    ObjectOf: Evaluator.make_object,
    For: Evaluator.for_expression,
    TemplateExpr: Evaluator.template,
}


def _constant_steps(steps: tuple[Step, ...]) -> int:
    """The number of leading steps that need no evaluation."""
    for count, step in enumerate(steps):
        if type(step) is Splat or (type(step) is Index and type(step.key) is not LiteralValue):
            return count
    return len(steps)


def _undeclared(scope: str, step: Attr, names: tuple[str, ...]) -> EvaluationError:
    detail = f'This object does not have an attribute named "{step.name}".'
    return fail("Unsupported attribute", detail, step.start, step.end, hint=undeclared_hint(scope, step.name, names))


def _missing_attribute(step: Attr, names: tuple[str, ...]) -> EvaluationError:
    detail = f'This object does not have an attribute named "{step.name}".'
    return fail("Unsupported attribute", detail, step.start, step.end, hint=Near(step.name, names))
