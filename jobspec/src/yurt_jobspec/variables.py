"""Input variables and locals.

A variable gets its value from its default, the environment (NOMAD_VAR_name), variable files in the order given, and
`-var` settings in the order given; a later source wins. A text from the environment or from `-var` is taken as it is
when the variable is a string, a number or has no type, and read as an expression otherwise. Locals are worked out
when something asks for them, which puts them in order by itself; one that asks for itself is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .budget import BudgetExhausted
from .diagnostics import Diagnostic, EvaluationError, JobspecError, OffsetDiagnostic, Severity, SourceText, fail
from .evaluator import Evaluator, NameScope, RootObject
from .findings import Findings
from .syntax.nodes import AttributeNode, BlockNode, Body, Expr, place
from .syntax.parser import MAX_SOURCE_CHARACTERS, parse_expression, parse_file
from .types import read_type
from .values import ConversionError, Type, Value, convert, entries_of, is_null, items_of, type_of

if TYPE_CHECKING:
    from pathlib import Path

    from .decode import Decoder

ENVIRONMENT_PREFIX = "NOMAD_VAR_"
_UNSET_DETAIL = "A used variable must be set or have a default value."
_TEXT_TYPES = ("string", "number", None)


class Validation(NamedTuple):
    """A condition that the variable's value must meet."""

    condition: Expr
    message: str


class Declaration(NamedTuple):
    """A variable's declaration in the job file."""

    name: str
    type: Type | None
    default: Expr | None
    validations: tuple[Validation, ...]
    start: int
    end: int
    sensitive: bool = False


class Inputs(NamedTuple):
    """The sources of values besides defaults; `leaves_folder`: file functions may read outside the job's folder."""

    variables: Sequence[str] = ()
    var_files: Sequence[Path] = ()
    environ: Mapping[str, str] | None = None
    strict: bool = True
    leaves_folder: bool = False


class VariableReader:
    """Reads the declarations of one file and determines each variable's value; problems go to `findings`."""

    def __init__(self, source: SourceText, evaluator: Evaluator, findings: Findings) -> None:
        self.source = source
        self.evaluator = evaluator
        self.findings = findings
        self.declarations: dict[str, Declaration] = {}
        self.broken: set[str] = set()

    def report(self, problem: OffsetDiagnostic, source: SourceText | None = None) -> None:
        self.findings.add(source or self.source, problem)

    def general(self, summary: str, detail: str, *, severity: Severity = "error", hint: str | None = None) -> None:
        """Add a finding without a place."""
        self.findings.add_diagnostic(Diagnostic(severity, summary, detail, hint=hint))

    # Declarations.

    def declare_all(self, body: Body) -> None:
        for block in body.blocks:
            if block.type == "variable":
                self.declare(block)
            elif block.type == "variables":
                for attribute in block.body.attributes:
                    self.add(
                        Declaration(attribute.name, None, attribute.value, (), attribute.start, attribute.name_end)
                    )

    def add(self, declaration: Declaration) -> None:
        if declaration.name in self.declarations:
            detail = f'A variable named "{declaration.name}" is declared twice.'
            self.report(OffsetDiagnostic("Duplicate variable", detail, declaration.start, declaration.end))
            return
        self.declarations[declaration.name] = declaration

    def declare(self, block: BlockNode) -> None:
        if len(block.labels) != 1:
            detail = "A variable block has exactly one label, the variable's name."
            self.report(OffsetDiagnostic("Invalid variable block", detail, block.start, block.name_end))
            return
        name = block.labels[0].text
        attributes = {attribute.name: attribute for attribute in block.body.attributes}
        for attribute in block.body.attributes:
            if attribute.name not in ("type", "default", "description", "sensitive", "nullable"):
                detail = f'An argument named "{attribute.name}" is not expected here.'
                self.report(OffsetDiagnostic("Unsupported argument", detail, attribute.start, attribute.name_end))
        target = None
        if "type" in attributes:
            try:
                target = read_type(attributes["type"].value, exact=True)
            except EvaluationError as error:
                self.broken.add(name)
                self.findings.add_all(self.source, error.problems)
                return
        default = attributes["default"].value if "default" in attributes else None
        validations = self.validations(block)
        sensitive = "sensitive" in attributes and self.is_true(attributes["sensitive"])
        self.add(Declaration(name, target, default, validations, block.start, block.labels[0].end, sensitive))

    def is_true(self, attribute: AttributeNode) -> bool:
        node = attribute.value
        try:
            return bool(convert(self.evaluator.evaluate(node, NameScope({})), "bool") is True)
        except EvaluationError as error:
            self.findings.add_all(self.source, error.problems)
        except ConversionError as error:
            self.report(OffsetDiagnostic("Unsuitable value type", f"Unsuitable value: {error}", *place(node)))
        return False

    def validations(self, block: BlockNode) -> tuple[Validation, ...]:
        found: list[Validation] = []
        for inner in block.body.blocks:
            if inner.type != "validation":
                detail = f'Blocks of type "{inner.type}" are not expected here.'
                self.report(OffsetDiagnostic("Unsupported block type", detail, inner.start, inner.name_end))
                continue
            arguments = {attribute.name: attribute for attribute in inner.body.attributes}
            missing = [name for name in ("condition", "error_message") if name not in arguments]
            if missing:
                place_ = inner.body.missing
                detail = f'The argument "{missing[0]}" is required, but no definition was found.'
                self.report(OffsetDiagnostic("Missing required argument", detail, place_, place_))
                continue
            message = self.message(arguments["error_message"])
            if message is not None:
                found.append(Validation(arguments["condition"].value, message))
        return tuple(found)

    def message(self, attribute: AttributeNode) -> str | None:
        node = attribute.value
        try:
            value = self.evaluator.evaluate(node, NameScope({}))
            text = "" if is_null(value) else convert(value, "string")
        except (EvaluationError, ConversionError):
            self.report(
                OffsetDiagnostic(
                    "Invalid validation error message", "The error message must be a string.", node.start, node.end
                )
            )
            return None
        if not text.strip():
            detail = "An empty or blank string is not a valid nor useful error message."
            self.report(OffsetDiagnostic("Invalid validation error message", detail, node.start, node.end))
            return None
        return str(text)

    # Values.

    def values(self, inputs: Inputs) -> dict[str, Value]:
        """The value of each declared variable."""
        values = self.defaults()
        self.from_environment(values, inputs.environ or {})
        for path in inputs.var_files:
            self.from_file(values, path, inputs.strict)
        self.from_settings(values, inputs.variables, inputs.strict)
        for name, declaration in self.declarations.items():
            if name not in values and name not in self.broken:
                hint = f"Pass -var {name}=... or add a default."
                unset = OffsetDiagnostic(
                    f'Unset variable "{name}"', _UNSET_DETAIL, declaration.start, declaration.end, hint
                )
                self.findings.add(self.source, unset)
            elif name in values:
                self.validate(declaration, values[name])
        return values

    def defaults(self) -> dict[str, Value]:
        values: dict[str, Value] = {}
        for name, declaration in list(self.declarations.items()):
            if declaration.default is None:
                continue
            try:
                value = self.evaluator.evaluate(declaration.default, NameScope({}))
                self.hide(declaration, value)
                if declaration.type is None and not is_null(value):
                    self.declarations[name] = declaration._replace(type=type_of(value))
                values[name] = value if declaration.type is None else convert(value, declaration.type)
            except EvaluationError as error:
                self.failed(name, error)
            except ConversionError as error:
                detail = f"This default value is not compatible with the variable's type constraint: {error}."
                hint = "Change the default or the type, so that they fit."
                where = place(declaration.default)
                self.report(OffsetDiagnostic("Invalid default value for variable", detail, *where, hint))
                self.broken.add(name)
        return values

    def hide(self, declaration: Declaration, value: Value) -> None:
        """Redact a sensitive variable's value in all findings."""
        if declaration.sensitive:
            self.findings.hide(texts_of(value))

    def failed(self, name: str, error: EvaluationError) -> None:
        self.broken.add(name)
        self.findings.add_all(self.source, error.problems)
        if isinstance(error, BudgetExhausted):
            self.findings.raise_errors()

    def from_environment(self, values: dict[str, Value], environ: Mapping[str, str]) -> None:
        for key in sorted(environ):
            name = key.removeprefix(ENVIRONMENT_PREFIX)
            if key.startswith(ENVIRONMENT_PREFIX) and name in self.declarations:
                self.set_text(values, name, environ[key], f"environment variable {key}")

    def from_settings(self, values: dict[str, Value], settings: Sequence[str], strict: bool) -> None:
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals:
                self.general(
                    "Invalid -var option", f'The setting "{setting}" has no equals sign; it is written name=value.'
                )
            elif name in self.declarations:
                self.set_text(values, name, text, f"-var {name}")
            elif name not in self.broken:
                self.undeclared(name, "Undefined -var variable", strict)

    def undeclared(self, name: str, summary: str, strict: bool) -> None:
        detail = f'A "{name}" variable was set but is not among the variables that the job file declares.'
        hint = f'Add to the job file: variable "{name}" {{}}'
        self.general(summary, detail, severity="error" if strict else "warning", hint=hint)

    def set_text(self, values: dict[str, Value], name: str, text: str, origin: str) -> None:
        declaration = self.declarations[name]
        value: Value = text
        self.hide(declaration, text)
        if declaration.type not in _TEXT_TYPES:
            source = SourceText(f"<value for {origin}>", text)
            try:
                value = self.in_source(source).evaluate(parse_expression(source), NameScope({}))
            except JobspecError as error:
                for diagnostic in error.diagnostics:
                    self.findings.add_diagnostic(diagnostic)
                self.broken.add(name)
                return
            except EvaluationError as error:
                self.findings.add_all(source, error.problems)
                self.broken.add(name)
                return
        self.hide(declaration, value)
        self.set_value(values, declaration, value, origin)

    def set_value(self, values: dict[str, Value], declaration: Declaration, value: Value, origin: str) -> None:
        try:
            values[declaration.name] = value if declaration.type is None else convert(value, declaration.type)
        except ConversionError as error:
            detail = f"The value of {origin} is not compatible with the variable's type constraint: {error}."
            self.general(f"Invalid value for variable {declaration.name}", detail)
            self.broken.add(declaration.name)

    def in_source(self, source: SourceText) -> Evaluator:
        """An evaluator for another file's text with the same budget."""
        return Evaluator(source.text, budget=self.evaluator.budget)

    # Variable files.

    def from_file(self, values: dict[str, Value], path: Path, strict: bool) -> None:
        source = read_source(path)
        evaluator = self.in_source(source)
        body = _parse_var_file(source)
        for block in body.blocks:
            detail = "A variable file holds only lines of the form name = value."
            self.report(OffsetDiagnostic("Unexpected block", detail, block.start, block.name_end), source)
        for attribute in body.attributes:
            declaration = self.declarations.get(attribute.name)
            if declaration is None:
                if attribute.name not in self.broken:
                    self.undeclared(attribute.name, "Undefined variable", strict)
                continue
            try:
                value = evaluator.evaluate(attribute.value, NameScope({}))
                self.hide(declaration, value)
                values[attribute.name] = value if declaration.type is None else convert(value, declaration.type)
            except EvaluationError as error:
                for problem in error.problems:
                    self.report(problem, source)
                self.broken.add(attribute.name)
            except ConversionError as error:
                detail = f"This value is not compatible with the variable's type constraint: {error}."
                self.report(OffsetDiagnostic("Invalid value for variable", detail, *place(attribute.value)), source)
                self.broken.add(attribute.name)

    # Validation.

    def validate(self, declaration: Declaration, value: Value) -> None:
        scope = NameScope({"var": {declaration.name: value}})
        for rule in declaration.validations:
            node = rule.condition
            try:
                result = self.evaluator.evaluate(node, scope)
                if is_null(result):
                    raise ConversionError("the result is null")
                if not convert(result, "bool"):
                    self.report(OffsetDiagnostic("Invalid value for variable", rule.message, node.start, node.end))
            except EvaluationError as error:
                self.failed(declaration.name, error)
            except ConversionError as error:
                detail = f"Invalid validation condition result value: {error}."
                self.report(OffsetDiagnostic("Invalid variable validation result", detail, node.start, node.end))


def texts_of(value: Value) -> Iterator[str]:
    """All strings and numbers in a value, as text."""
    if is_null(value) or type(value) is bool:
        return
    parts = items_of(value)
    entries = entries_of(value)
    if parts is None and entries is None:
        yield str(convert(value, "string"))
    for part in (*(parts or ()), *(entries or {}).values()):
        yield from texts_of(part)


def read_source(path: Path) -> SourceText:
    """The text of a file; raises JobspecError."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read(MAX_SOURCE_CHARACTERS + 1)
    except OSError as error:
        raise JobspecError([Diagnostic("error", "Cannot read variable file", f"{path}: {error.strerror}.")]) from None
    return SourceText(path.name, text)


def _parse_var_file(source: SourceText) -> Body:
    if source.text.lstrip().startswith("{"):
        from .syntax.jsonsyntax import parse_json_body

        return parse_json_body(source)
    return parse_file(source)


class Locals:
    """The `local` namespace: values are evaluated on demand and cached."""

    def __init__(self, decoder: Decoder, body: Body, scope: NameScope) -> None:
        self.source = decoder.source
        self.evaluator = decoder.evaluator
        self.findings = decoder.findings
        self.scope = scope
        self.expressions: dict[str, AttributeNode] = {}
        self.values: dict[str, Value] = {}
        self.failures: dict[str, EvaluationError] = {}
        self.working: list[str] = []
        for block in body.blocks:
            if block.type == "locals":
                self._declare(block)

    def _declare(self, block: BlockNode) -> None:
        for attribute in block.body.attributes:
            if attribute.name in self.expressions:
                detail = f'A local named "{attribute.name}" is defined twice.'
                problem = OffsetDiagnostic("Duplicate local definition", detail, attribute.start, attribute.name_end)
                self.findings.add(self.source, problem)
            self.expressions.setdefault(attribute.name, attribute)
        for inner in block.body.blocks:
            problem = OffsetDiagnostic(
                "Unsupported block type", "A locals block holds only arguments.", inner.start, inner.name_end
            )
            self.findings.add(self.source, problem)

    def namespace(self) -> RootObject:
        return RootObject(self.get, lambda: tuple(self.expressions))

    def get(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self.failures:
            raise self.failures[name]
        attribute = self.expressions[name]
        if name in self.working:
            circle = " -> ".join([*self.working[self.working.index(name) :], name])
            raise fail(
                "Circular local definition",
                f"These locals refer to one another: {circle}.",
                attribute.start,
                attribute.name_end,
            )
        self.working.append(name)
        try:
            self.values[name] = self.evaluator.evaluate(attribute.value, self.scope)
        except EvaluationError as error:
            self.failures[name] = error
            raise
        finally:
            self.working.pop()
        return self.values[name]

    def check_all(self) -> None:
        """Evaluate every local and report each failure once."""
        for name in self.expressions:
            try:
                self.get(name)
            except BudgetExhausted:
                raise
            except EvaluationError as error:
                self.findings.add_all(self.source, error.problems)
