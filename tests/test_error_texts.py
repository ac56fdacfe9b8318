"""Nothing decides by the text of an error: reasons are compared (`yurt.sdk.errors`), texts are for people.

Log lines begin with fixed words, so that they can be searched.

The edges that read what foreign programs say are listed with their reasons; they turn words into a class or a reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.server import failures

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("core/src", "jobspec/src", "drivers", "devices")

LOGS_CHANGES = "logs a lasting failure again only when its text changes"
EDGES: dict[str, str] = {
    "core/src/yurt/rpc/link.py::_report_problem": LOGS_CHANGES,
    "core/src/yurt/agent/cluster/dead_servers.py::run": LOGS_CHANGES,
    "core/src/yurt/server/resources/region_replication.py::_forever": LOGS_CHANGES,
    "core/src/yurt/client/csi/volumes.py::_claimed": LOGS_CHANGES,
    "core/src/yurt/client/fingerprint/package_fingerprints.py::_broke": LOGS_CHANGES,
    "core/src/yurt/cli/commands/acl/answers.py::_explanation": "agents of Nomad tell these refusals in words only",
    "core/src/yurt/cli/commands/acl/answers.py::listed_mistakes": "agents of Nomad tell these refusals in words only",
    "core/src/yurt/agent/cluster/joining.py::_try": "shows the address once, whoever named it",
    "drivers/docker/src/yurt_driver_docker/images.py::_pull_with_auth": "Docker tells a refused login in words only",
    "drivers/podman/src/yurt_driver_podman/images.py::_pull_with_auth": "Podman tells a refused login in words only",
    "core/src/yurt/testing/driver_suite/commands.py::test_a_command_that_is_not_there_says_so": (
        "the suite checks the text that a driver gives people"
    ),
}
"""`path::function`: why it may look at the text of an error."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
CUTS = frozenset({
    "startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count", "partition",
    "rpartition", "search", "match", "fullmatch", "findall", "loads",
})  # fmt: skip
ERRORS = ("Error", "Exception", "NotFound", "Invalid", "Conflict", "PermissionDenied", "Unavailable")


class Finding(NamedTuple):
    """A decision by the text of an error."""

    place: str
    line: int
    code: str


def error_names(function: Function) -> set[str]:
    """What holds an error: what `except` binds, and parameters that are annotated as one."""
    found = {node.name for node in ast.walk(function) if isinstance(node, ast.ExceptHandler) and node.name}
    arguments = function.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        words = ast.unparse(each.annotation).replace("|", " ").split() if each.annotation else ()
        if any(word.endswith(ERRORS) for word in words):
            found.add(each.arg)
    return found


class Texts:
    """The expressions of a function that hold the text of an error, by way of names too."""

    def __init__(self, function: Function) -> None:
        self._errors = error_names(function)
        self._names: set[str] = set()
        self.may_exist = bool(self._errors)
        """Most functions hold no error, and so no text of one."""
        if not self.may_exist:
            return
        assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.NamedExpr)]
        for _ in assigned:
            before = len(self._names)
            for node in assigned:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                is_made_by_call = isinstance(node.value, ast.Call | ast.Await)
                if self._is_text(node.value) or (not is_made_by_call and self.are_in(node.value)):
                    self._names |= {ast.unparse(target) for target in targets}
            if len(self._names) == before:
                break

    def are_in(self, node: ast.AST) -> bool:
        """Whether an expression holds such a text."""
        return any(self._is_text(each) for each in ast.walk(node))

    def _is_text(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Name(id="str" | "repr"), args=[ast.Name(id=name)]):
                return name in self._errors
            case ast.FormattedValue(value=ast.Name(id=name)):
                return name in self._errors
            case ast.Attribute(value=ast.Name(id=name), attr="args" | "message" | "strerror"):
                return name in self._errors
            case ast.Name() | ast.Attribute():
                return ast.unparse(node) in self._names
        return False


def decisions(function: Function) -> Iterator[ast.expr | ast.match_case]:
    """Where a function decides by the text of an error, or takes it apart."""
    texts = Texts(function)
    for node in ast.walk(function) if texts.may_exist else ():
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                by_identity = all(isinstance(each, ast.Is | ast.IsNot) for each in ops)
                if not by_identity and any(texts.are_in(each) for each in (left, *others)):
                    yield node
            case ast.Call(func=func, args=args):
                name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                owner = [func.value] if isinstance(func, ast.Attribute) else []
                looked_at = (*owner, *args) if name in CUTS else args if name.startswith(("is_", "has_")) else ()
                if any(texts.are_in(each) for each in looked_at):
                    yield node
            case ast.Match(subject=subject) if texts.are_in(subject):
                yield subject


def findings_in(path: Path) -> Iterator[Finding]:
    name, text = path.relative_to(ROOT).as_posix(), path.read_text()
    if not any(word in text for word in ("except", *ERRORS)):  # then no error has a name
        return
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, Function):
            for node in decisions(function):
                yield Finding(f"{name}::{function.name}", node.lineno, ast.unparse(node))


@cache
def all_findings() -> list[Finding]:
    """Two tests ask, and to read every file takes seconds."""
    paths = (path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py")))
    return [
        finding
        for path in paths
        if ".venv" not in path.parts and "tests" not in path.relative_to(ROOT).parts
        for finding in findings_in(path)
    ]


def test_nothing_decides_by_the_text_of_an_error() -> None:
    found = [f"{each.place}:{each.line}: {each.code}" for each in all_findings() if each.place not in EDGES]
    assert not found, "compare `error.reason` instead, and name one where the error is raised:\n" + "\n".join(found)


def test_every_edge_is_still_needed() -> None:
    assert not set(EDGES) - {each.place for each in all_findings()}


@pytest.mark.parametrize("body", [
    "if str(error) == 'gone': pass",
    "return 'in use' in str(error)",
    "return str(error).startswith('No cluster')",
    "text = str(error)\n        return text.endswith('denied')",
    "text = f'{error}'\n        return text != 'x'",
    "self.text = str(error)\n        return self.text in ('a', 'b')",
    "return error.args[0] == 'gone'",
    "return PATTERN.search(str(error))",
    "return is_denied(str(error))",
    "return json.loads(str(error))",
    "match str(error):\n            case 'gone': pass",
])  # fmt: skip
def test_a_decision_by_text_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "breach.py"
    path.write_text(f"def f(self):\n    try:\n        g()\n    except OSError as error:\n        {body}\n")
    assert list(findings_in(path))


@pytest.mark.parametrize("body", [
    "return error.reason is Reason.NO_LEADER",
    "return error.errno == 2",
    "log.info('it failed: %s', str(error))",
    "raise Unavailable(str(error)) from None",
    "return str(error) or 'no answer'",
    "made = build(str(error))\n        return made == 3",
])  # fmt: skip
def test_what_shows_a_text_or_compares_a_reason_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "fine.py"
    path.write_text(f"def f(self):\n    try:\n        g()\n    except OSError as error:\n        {body}\n")
    assert not list(findings_in(path))


def test_the_words_of_a_change_of_leaders_are_written_in_one_place_with_their_reasons() -> None:
    """Whoever raises them by hand forgets the reason, by which alone callers tell that a leader may come."""
    words = {failures.NO_LEADER, failures.SHUTTING_DOWN, failures.UNKNOWN_OUTCOME}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "core/src").rglob("*.py"))
        if path.name != "failures.py" and "testing" not in path.parts
        if any(each in (text := path.read_text()) for each in words)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value in words
    ]
    assert not found, found


MAYBE = re.compile(r"""log\w*\.[a-z]+\([^"']{0,80}f?["'][^A-Za-z]""")
"""Most files hold no such call, and to parse them all takes seconds."""
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
WHOLE_LINES: dict[str, str] = {
    "core/src/yurt/client/allocations/runners.py": "a line of `lifecycle_line`, which begins with fixed words",
    "core/src/yurt/server/log/job_log_lines.py": "the lines of `lifecycle_lines` begin with fixed words",
}
"""Files that log lines made elsewhere, and how those begin."""


def _begins_with_value(text: ast.expr) -> bool:
    """Whether the first word of a format depends on values."""
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return not first.value[:1].isalpha()
    return isinstance(first, ast.FormattedValue)


def log_lines_without_words(tree: ast.AST) -> Iterator[int]:
    """The line numbers of log calls whose message begins with a value."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=level), args=[first, *others]) if level in LEVELS:
                name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
                text = others[0] if level == "log" and others else first
                if "log" in name.lower() and _begins_with_value(text):
                    yield node.lineno


def test_log_lines_begin_with_fixed_words() -> None:
    found = [
        f"{name}:{line}"
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in WHOLE_LINES and ".venv" not in path.parts
        if MAYBE.search(text := path.read_text())
        for line in log_lines_without_words(ast.parse(text))
    ]
    assert not found, f"begin with words that can be searched, and end with key=value pairs: {found}"


@pytest.mark.parametrize(
    ("call", "is_found"),
    [
        ('log.info("%s: name=%s", state, name)', True),
        ('log.log(level, f"{name} is full")', True),
        ("self._log.warning('\"%s\" is not valid', name)", True),
        ('log.info("server joined: name=%s", name)', False),
        ("progress.log(level, text)", False),
    ],
)
def test_a_log_line_that_begins_with_a_value_is_seen(call: str, *, is_found: bool) -> None:
    assert bool(list(log_lines_without_words(ast.parse(call)))) is is_found
