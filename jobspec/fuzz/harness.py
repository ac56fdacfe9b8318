"""Coverage-guided fuzzing of the job file language with atheris: `make fuzz`, `python jobspec/fuzz/harness.py TARGET`.

A target takes a text and does with it what the package promises to bear. Nothing but JobspecError may come out, no
input may take longer than libFuzzer's -timeout, and what was read must survive being formatted and written. Further
arguments are libFuzzer's own, such as -max_total_time=60 or a file with an input to try again.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["yurt_jobspec"]):
    import yurt_jobspec
    import yurt_jobspec.functions

    for package in (yurt_jobspec, yurt_jobspec.functions):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)

from yurt_jobspec import (
    Inputs,
    JobspecError,
    format_source,
    parse_body,
    parse_job,
    parse_job_with_findings,
    render,
    to_sarif,
    write_job,
)
from yurt_jobspec.diagnostics import EvaluationError, SourceText
from yurt_jobspec.evaluator import Evaluator, NameScope
from yurt_jobspec.syntax import lines
from yurt_jobspec.syntax.expressions import ExpressionParser, SyntaxProblem
from yurt_jobspec.syntax.lexer import tokenize_template
from yurt_jobspec.syntax.parser import parse_expression, parse_tokens
from yurt_jobspec.syntax.templates import parse_template

NAME = "fuzz.hcl"
FOLDER = Path(__file__).parent
FOUND = Path(tempfile.gettempdir(), "yurt-fuzz-found-")
"""What an input that breaks something is saved as."""
DEFAULTS = (
    f"-artifact_prefix={FOUND}",
    "-max_len=4096",
    "-timeout=10",
    "-rss_limit_mb=4096",
    f"-dict={FOLDER / 'hcl.dict'}",
)
_RANDOM = ("uuidv4", "bcrypt", "timestamp")


def job(text: str) -> None:
    """Parse a job file, render its findings, write the job and parse it again."""
    try:
        parsed = parse_job_with_findings(text, filename=NAME)
    except JobspecError as error:
        rendered(error, text)
        return
    json.dumps(parsed.job)
    assert all(place.line >= 1 and place.column >= 1 for place in parsed.positions.values())
    written = write_job(parsed.job)
    if not any(name in text for name in _RANDOM):
        assert parse_job(written.text, filename=NAME) == parsed.job, written.text


def variables(text: str) -> None:
    """Parse a job file with a variable's setting and environment, separated by NUL."""
    source, _, rest = text.partition("\0")
    setting, _, value = rest.partition("\0")
    inputs = Inputs([setting] if setting else [], environ={"NOMAD_VAR_a": value}, strict=False)
    try:
        parse_job_with_findings('variable "a" {}\n' + source, filename=NAME, inputs=inputs)
    except JobspecError as error:
        rendered(error, source)


def body(text: str) -> None:
    """Parse a configuration file."""
    try:
        json.dumps(parse_body(text, filename=NAME))
    except JobspecError as error:
        rendered(error, text)


def layout(text: str) -> None:
    """The formatter is idempotent and keeps the content."""
    try:
        once = format_source(text)
    except JobspecError as error:
        rendered(error, text)
        return
    assert format_source(once) == once, once
    assert content(once) == content(text), once


def content(text: str) -> Any:
    """The content of a file; None for a file with errors. Line ends are normalised as the formatter does."""
    try:
        return parse_body(text.replace("\r\n", "\n"), filename=NAME)
    except JobspecError:
        return None


def template(text: str) -> None:
    """Parse a bare template, as in JSON strings."""
    tokens = tokenize_template(text)
    parser = ExpressionParser(text, tokens)
    try:
        node = parse_template(parser)
        if not tokens.problems and not parser.problems:
            Evaluator(text).evaluate(node, NameScope({"var": {"a": "x", "n": 3, "l": ("a", 1), "o": {"k": True}}}))
    except (SyntaxProblem, EvaluationError):
        return


def expression(text: str) -> None:
    """Evaluate an expression in a scope with a few names."""
    try:
        node = parse_expression(SourceText(NAME, text))
        Evaluator(text).evaluate(node, NameScope({"var": {"a": "x", "n": 3, "l": ("a", 1), "o": {"k": True}}}))
    except JobspecError as error:
        rendered(error, text)
    except EvaluationError as error:
        assert all(0 <= problem.start <= problem.end <= len(text) + 2 for problem in error.problems), error.problems


def lines_and_tokens(text: str) -> None:
    """The fast path and the token parser give the same body."""
    for is_lenient in (False, True):
        found = lines.read_body(text, is_lenient=is_lenient)
        try:
            expected = parse_tokens(SourceText(NAME, text), is_lenient=is_lenient)
        except JobspecError as error:
            assert found is None, error
        else:
            assert repr(found) == repr(expected)


def rendered(error: JobspecError, text: str) -> None:
    """Every finding can be rendered."""
    assert error.diagnostics
    assert render(error.diagnostics, {NAME: text})
    json.dumps(to_sarif(error.diagnostics))
    reported = [item.line or 0 for item in error.diagnostics if item.filename == NAME]
    assert all(line <= text.count("\n") + 2 for line in reported)


TARGETS: dict[str, Callable[[str], None]] = {
    "job": job,
    "variables": variables,
    "body": body,
    "format": layout,
    "template": template,
    "expression": expression,
    "lines": lines_and_tokens,
}


def seeds(target: str, folder: Path) -> None:
    """The project's own examples as the initial corpus."""
    for number, path in enumerate(sorted((FOLDER / "seeds").glob(f"{target}-*")) or sorted(FOLDER.glob("seeds/job-*"))):
        (folder / f"seed{number}").write_bytes(path.read_bytes())


def main() -> None:
    """Fuzz one target until libFuzzer stops."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in TARGETS:
        sys.exit(f"usage: harness.py {'|'.join(TARGETS)} [libFuzzer arguments]")
    target = TARGETS[arguments[0]]

    def run(data: bytes) -> None:
        target(data.decode("utf-8", "surrogateescape"))

    with tempfile.TemporaryDirectory(prefix="yurt-fuzz-") as corpus:
        seeds(arguments[0], Path(corpus))
        given = [argument for argument in arguments[1:] if not argument.startswith("-")]
        atheris.Setup([sys.argv[0], *DEFAULTS, *arguments[1:], *([] if given else [corpus])], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
