"""The parser's entry points: texts to trees.

A file is read twice at most. `lines` reads what is plainly right, which is nearly every file; where it finds anything
that it does not know for certain, the file is read again as a whole, token by token, and that reading finds all
mistakes and says where they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from yurt_jobspec.diagnostics import Diagnostic, JobspecError, OffsetDiagnostic, SourceText
from yurt_jobspec.findings import Findings

from . import lines
from .bodies import BodyParser
from .expressions import ExpressionParser, SyntaxProblem
from .lexer import END, Tokens, tokenize
from .nodes import Body, Expr

MAX_SOURCE_CHARACTERS = 4 * 1024 * 1024
"""A job file longer than this is refused before it is read."""


class SyntaxFindings(JobspecError):
    """The syntax errors of a file; `body` is the rest of it, where its braces leave no doubt about the nesting.

    `more` errors are only counted, by the last diagnostic.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic], body: Body | None, more: int) -> None:
        super().__init__(diagnostics)
        self.body = body
        self.more = more


def parse_file(source: SourceText, *, is_lenient: bool = False) -> Body:
    """The body of a file in native syntax; `is_lenient` accepts the older syntax of agent files.

    Raises SyntaxFindings with all syntax errors.
    """
    check_size(source)
    body = lines.read_body(source.text, is_lenient=is_lenient)
    return parse_tokens(source, is_lenient=is_lenient) if body is None else body


def parse_tokens(source: SourceText, *, is_lenient: bool = False) -> Body:
    """The body of a file, read without the fast path; raises SyntaxFindings with all syntax errors."""
    tokens = tokenize(source.text)
    parser = BodyParser(source.text, tokens, is_lenient=is_lenient)
    try:
        body = parser.body(None)
    except RecursionError:
        raise too_deep(source) from None
    findings = problem_findings(source, tokens, parser.problems)
    try:
        findings.raise_errors()
    except JobspecError as error:
        rest = body if _is_balanced(tokens, parser) else None
        raise SyntaxFindings(error.diagnostics, rest, findings.more) from None
    return body


def _is_balanced(tokens: Tokens, parser: BodyParser) -> bool:
    """Whether no mistake swallowed a brace, so that each item lies in the block in which it was read."""
    depth = 0
    for kind in tokens.kinds:
        depth += (kind == "{") - (kind == "}")
        if depth < 0:
            return False
    is_closed = all(problem.summary != "Unclosed configuration block" for problem in parser.problems)
    return depth == 0 and is_closed and tokens.contained.issuperset(tokens.problems)


def parse_expression(source: SourceText) -> Expr:
    """The text as a single expression, as for variables on the command line."""
    check_size(source)
    tokens = tokenize(f"({source.text}\n)")
    shifted = SourceText(source.filename, source.text)
    tokens = _unwrap(tokens)
    parser = ExpressionParser(source.text, tokens)
    try:
        expr = parser.expression()
        parser.finish()
    except SyntaxProblem as error:
        parser.problems.append(error.problem)
        raise_problems(shifted, tokens, parser.problems)
        raise AssertionError("a syntax problem was lost") from error
    raise_problems(shifted, tokens, parser.problems)
    return expr


def _unwrap(tokens: Tokens) -> Tokens:
    """Remove the parentheses that made line ends insignificant."""
    end = tokens.ends[-1] - 3
    closed = tokens.kinds[-2] == ")" and len(tokens.kinds) > 2
    last = -2 if closed else -1
    return Tokens(
        [*tokens.kinds[1:last], END],
        [*(start - 1 for start in tokens.starts[1:last]), end],
        [*(stop - 1 for stop in tokens.ends[1:last]), end],
        tokens.comments,
        [_shifted(problem, end) for problem in tokens.problems],
        {_shifted(problem, end): (since - 1, until - 1) for problem, (since, until) in tokens.mended.items()},
        frozenset(_shifted(problem, end) for problem in tokens.contained),
    )


def _shifted(problem: OffsetDiagnostic, end: int) -> OffsetDiagnostic:
    return problem._replace(start=min(problem.start - 1, end), end=min(problem.end - 1, end))


def check_size(source: SourceText) -> None:
    """Raise for a text above the size limit."""
    if len(source.text) > MAX_SOURCE_CHARACTERS:
        detail = f"A file may hold {MAX_SOURCE_CHARACTERS} characters at most; this one holds {len(source.text)}."
        raise JobspecError([source.diagnostic(OffsetDiagnostic("File too large", detail, 0, 0))])


def too_deep(source: SourceText) -> JobspecError:
    """The error for nesting above the bound."""
    return JobspecError(
        [source.diagnostic(OffsetDiagnostic("Nested too deeply", "The file's constructs are nested too deeply.", 0, 0))]
    )


def raise_problems(source: SourceText, tokens: Tokens, problems: list[OffsetDiagnostic]) -> None:
    """Raise the problems of lexer and parser, if any."""
    problem_findings(source, tokens, problems).raise_errors()


def problem_findings(source: SourceText, tokens: Tokens, problems: list[OffsetDiagnostic]) -> Findings:
    """The problems of lexer and parser, in the order of the file."""
    findings = Findings()
    findings.add_all(source, sorted(all_problems(tokens, problems), key=lambda problem: problem.start))
    return findings


def all_problems(tokens: Tokens, problems: list[OffsetDiagnostic]) -> list[OffsetDiagnostic]:
    """The problems of the lexer and the parser, without mere consequences. Behind a mistake that is not contained in
    its line the parser's findings mean little. A string that does not end on its line may be caused by a sequence in it
    that does not end.
    """
    hard = [problem for problem in tokens.problems if problem not in tokens.mended]
    first = min((problem.start for problem in hard if problem not in tokens.contained), default=None)
    if first is not None:
        problems = [
            problem
            for problem in problems
            if problem.start < first and problem.summary != "Unclosed configuration block"
        ]
    starts = sorted(problem.start for problem in problems)
    own = [
        problem
        for problem, (since, until) in tokens.mended.items()
        if bisect_left(starts, since) == bisect_left(starts, until)
    ]
    return [*hard, *own, *problems]
