"""Renders a template: walks its tree and counts steps and output against the limits.

`break` and `continue` travel up as signals. Variables are a stack: a block forgets those that it declared. Each
nested body and parenthesis counts as one of `limits.depth`, so that neither a template that includes itself nor a deep
tree exhausts Python's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal as One
from typing import assert_never

from yurt.gotemplate.errors import EvaluationFailure, TemplateError
from yurt.gotemplate.functions import TemplateFunction
from yurt.gotemplate.limits import Limits
from yurt.gotemplate.nodes import (
    ActionNode,
    Body,
    Break,
    Called,
    Chain,
    CommandNode,
    Continue,
    Dot,
    If,
    Include,
    LiteralNode,
    Nested,
    Nil,
    Node,
    Operand,
    Pipeline,
    Range,
    Text,
    VariableNode,
    With,
)
from yurt.gotemplate.source import TemplateText
from yurt.gotemplate.values import MISSING, fields_of, is_true, kind_of, printed, sorted_items

Signal = One["", "break", "continue"]
CHARACTERS_A_STEP = 16


def never(mapping: Mapping[str, object]) -> bool:
    """No mapping stands for a struct."""
    return False


class Run:
    """The state of one rendering."""

    def __init__(
        self,
        source: TemplateText,
        templates: Mapping[str, Body],
        functions: Mapping[str, TemplateFunction],
        *,
        limits: Limits,
        is_record: Callable[[Mapping[str, object]], bool],
        left_out: Mapping[str, object],
    ) -> None:
        self._source = source
        self._templates = templates
        self._functions = functions
        self._limits = limits
        self._is_record = is_record
        self._left_out = left_out
        self._pieces: list[str] = []
        self._written = 0
        self._steps = 0
        self._depth = 0
        self._variables: list[tuple[str, object]] = []

    def rendered(self, body: Body, data: object) -> str:
        """The whole text."""
        self._variables = [("$", data)]
        self._body(body, data)
        return "".join(self._pieces)

    def _error(self, at: int, problem: str) -> TemplateError:
        return self._source.error(at, problem)

    def _spend(self, at: int, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > self._limits.steps:
            raise self._error(at, f"the template takes more than {self._limits.steps} steps")

    def _deeper(self, at: int) -> None:
        self._depth += 1
        if self._depth > self._limits.depth:
            raise self._error(at, f"templates, blocks and parentheses are nested deeper than {self._limits.depth}")

    def _write(self, at: int, text: str) -> None:
        self._written += len(text)
        if self._written > self._limits.output:
            raise self._error(at, f"the output is longer than {self._limits.output} characters")
        self._pieces.append(text)

    def _body(self, body: Body, dot: object) -> Signal:
        for node in body:
            self._spend(node.at)
            signal = self._node(node, dot)
            if signal:
                return signal
        return ""

    def _node(self, node: Node, dot: object) -> Signal:
        match node:
            case Text():
                self._write(node.at, node.text)
            case ActionNode():
                value = self._pipeline(node.pipeline, dot)
                if not node.pipeline.variables:
                    self._write(node.at, self._text(node.at, value))
            case If() | With():
                return self._branch(node, dot)
            case Range():
                return self._range(node, dot)
            case Include():
                self._include(node, dot)
            case Break():
                return "break"
            case Continue():
                return "continue"
            case _:
                assert_never(node)
        return ""

    def _text(self, at: int, value: object) -> str:
        try:
            return printed(value)
        except EvaluationFailure as failure:
            raise self._error(at, str(failure)) from None

    def _branch(self, node: If | With, dot: object) -> Signal:
        scope = len(self._variables)
        self._deeper(node.at)
        value = self._pipeline(node.pipeline, dot)
        if is_true(value):
            signal = self._body(node.body, value if isinstance(node, With) else dot)
        else:
            signal = self._body(node.otherwise, dot)
        self._depth -= 1
        del self._variables[scope:]
        return signal

    def _range(self, node: Range, dot: object) -> Signal:
        scope = len(self._variables)
        self._deeper(node.at)
        value = self._pipeline(node.pipeline, dot, is_loop=True)
        is_empty = True
        for key, element in self._elements(node, value):
            is_empty = False
            inner = len(self._variables)
            self._name_element(node.pipeline, key, element)
            signal = self._body(node.body, element)
            del self._variables[inner:]
            self._spend(node.at)
            if signal == "break":
                break
        outcome = self._body(node.otherwise, dot) if is_empty else ""
        self._depth -= 1
        del self._variables[scope:]
        return outcome

    def _name_element(self, pipeline: Pipeline, key: object, element: object) -> None:
        names = pipeline.variables
        values = (key, element) if len(names) == 2 else (element,)
        for name, value in zip(names, values, strict=False):
            self._set(name, value, is_assignment=pipeline.is_assignment)

    def _elements(self, node: Range, value: object) -> Iterator[tuple[object, object]]:
        match value:
            case Mapping():
                yield from sorted_items(value)
            case list() | tuple():
                yield from enumerate(value)
            case int() if not isinstance(value, bool):
                yield from ((each, each) for each in range(value))
            case bytes():
                yield from enumerate(value)
            case _ if value is None or value is MISSING:
                return
            case _:
                raise self._error(node.pipeline.at, f"range can't iterate over {kind_of(value)} {printed(value)[:60]}")

    def _include(self, node: Include, dot: object) -> None:
        body = self._templates.get(node.name)
        if body is None:
            raise self._error(node.at, f'template "{node.name}" not defined')
        data = None if node.pipeline is None else self._pipeline(node.pipeline, dot)
        outer, self._variables = self._variables, [("$", data)]
        self._deeper(node.at)
        self._body(body, data)
        self._depth -= 1
        self._variables = outer

    def _set(self, name: str, value: object, *, is_assignment: bool) -> None:
        if not is_assignment:
            self._variables.append((name, value))
            return
        for at in reversed(range(len(self._variables))):
            if self._variables[at][0] == name:
                self._variables[at] = (name, value)
                return

    def _pipeline(self, pipeline: Pipeline, dot: object, *, is_loop: bool = False) -> object:
        """The last command's value, stored in the declared variable; a loop stores its elements itself."""
        passed: tuple[object, ...] = ()
        for command in pipeline.commands:
            passed = (self._command(command, dot, passed),)
        value = passed[0]
        if pipeline.variables and not is_loop:
            self._set(pipeline.variables[0], value, is_assignment=pipeline.is_assignment)
        return value

    def _command(self, command: CommandNode, dot: object, passed: tuple[object, ...]) -> object:
        self._spend(command.at)
        first, *others = command.words
        if isinstance(first, Called):
            return self._call(first, tuple(others), dot, passed)
        if others or passed:
            return self._call_method(first, tuple(others), dot, passed)
        if isinstance(first, Nil):
            raise self._error(first.at, "nil is not a command")
        return self._operand(first, dot)

    def _operand(self, operand: Operand, dot: object) -> object:
        match operand:
            case Dot():
                return dot
            case Nil():
                return None
            case LiteralNode():
                return operand.value
            case VariableNode():
                return next(value for name, value in reversed(self._variables) if name == operand.name)
            case Called():
                return self._call(operand, (), dot, ())
            case Nested():
                self._deeper(operand.at)
                value = self._pipeline(operand.pipeline, dot)
                self._depth -= 1
                return value
            case Chain():
                value = self._operand(operand.operand, dot)
                for field in operand.fields:
                    value = self._field(operand.at, value, field)
                return value
            case _:
                assert_never(operand)

    def _field(self, at: int, value: object, field: str) -> object:
        if value is MISSING:
            return MISSING
        if value is None:
            raise self._error(at, f"nil pointer evaluating field {field}")
        fields = fields_of(value)
        if field in fields:
            return fields[field]
        if not isinstance(value, Mapping):
            raise self._error(at, f"can't evaluate field {field} in type {kind_of(value)}")
        if field in value:
            return value[field]
        if self._is_record(value):
            if field in self._left_out:
                return self._left_out[field]
            raise self._error(at, f"can't evaluate field {field}{_near(field, value)}")
        return MISSING

    def _call(self, called: Called, words: tuple[Operand, ...], dot: object, passed: tuple[object, ...]) -> object:
        if called.name in ("and", "or"):
            return self._short_cut(called, words, dot, passed)
        function = self._functions[called.name]
        count = len(words) + len(passed)
        if count < function.least or 0 <= function.most < count:
            expected = _expected_arguments(function)
            raise self._error(called.at, f"wrong number of args for {called.name}: want {expected} got {count}")
        values = [self._operand(word, dot) for word in words] + list(passed)
        return self._result(called.at, called.name, function.call, values)

    def _call_method(
        self, first: Operand, words: tuple[Operand, ...], dot: object, passed: tuple[object, ...]
    ) -> object:
        """A function that a value has as a field: `.Tags.Contains "x"`."""
        method = self._operand(first, dot) if isinstance(first, Chain) else None
        if not callable(method):
            raise self._error(first.at, f"can't give arguments to {_named(first)}: it is not a function")
        values = [self._operand(word, dot) for word in words] + list(passed)
        return self._result(first.at, _named(first), method, values)

    def _result(self, at: int, name: str, function: Callable[..., object], values: list[object]) -> object:
        self._spend(at)
        try:
            result = function(*(None if value is MISSING else value for value in values))
        except (EvaluationFailure, ValueError, TypeError, ArithmeticError) as error:
            if isinstance(error, TemplateError):
                raise
            raise self._error(at, f"error calling {name}: {error}") from None
        if isinstance(result, str | bytes):
            if len(result) > self._limits.output:
                raise self._error(at, f"{name} makes more than {self._limits.output} characters")
            self._spend(at, len(result) // CHARACTERS_A_STEP)
        elif isinstance(result, list | tuple | Mapping):
            self._spend(at, len(result))
        return result

    def _short_cut(self, called: Called, words: tuple[Operand, ...], dot: object, passed: tuple[object, ...]) -> object:
        if not words and not passed:
            raise self._error(called.at, f"wrong number of args for {called.name}: want at least 1 got 0")
        value: object = None
        for word in words:
            value = self._operand(word, dot)
            if is_true(value) == (called.name == "or"):
                return value
        return passed[0] if passed else value


def _expected_arguments(function: TemplateFunction) -> str:
    if function.most < 0:
        return f"at least {function.least}"
    return str(function.least) if function.least == function.most else f"{function.least} to {function.most}"


def _named(operand: Operand) -> str:
    match operand:
        case Chain():
            return f'"{operand.fields[-1]}"'
        case VariableNode():
            return f'"{operand.name}"'
        case LiteralNode():
            return f'"{operand.value}"'
    return "this value"


def _near(field: str, mapping: Mapping[str, object]) -> str:
    """What the field may have been meant to be, and what there is."""
    same = [key for key in mapping if key.lower() == field.lower()]
    names = same or sorted(mapping)
    shown = ", ".join(names[:30])
    return f": did you mean {shown}?" if same else f": the fields are {shown}"
