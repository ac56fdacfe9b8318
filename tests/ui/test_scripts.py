"""The scripts of the web UI: small documented modules, one way to the server, no door for markup, budgets of sizes."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.http.ui_routes.shell import PageFiles, headers_of_pages

UI = Path(__file__).resolve().parents[2] / "core/src/yurt/ui"
APP = UI / "app"
GENERATED = {APP / "data/job_schema.js"}
PAGES = PageFiles(UI)
MODULES = sorted(APP.rglob("*.js"))
MAX_LINES, MAX_COLUMNS, MAX_MODULES = 400, 140, 25
FIRST_PAGE_KB, STYLES_KB, WHOLE_KB = 60, 12, 430
STATIC = re.compile(r'^(?:import|export) [^;]*?from "([^"]+)";|^import "([^"]+)";', re.MULTILINE | re.DOTALL)
DYNAMIC = re.compile(r'import\("([^"]+)"\)')
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|dangerouslySetInnerHTML|srcdoc"
    r"|DOMParser|\beval\(|new Function|setTimeout\(\s*[\"'`]|javascript:"
)
FETCHES = {"core/api.js", "core/hub.js", "early.js"}
"""The scripts that ask the server: all others go through the first; the worker of live updates has its own, and
`early.js`, which stands in the shell, asks before there is a module."""


def name_of(path: Path) -> str:
    return path.relative_to(APP).as_posix()


def imports_of(path: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    for found in pattern.finditer(path.read_text()):
        yield (path.parent / next(group for group in found.groups() if group)).resolve()


def reached(start: Path, *, lazily: bool) -> set[Path]:
    """The modules that a page needs which begins with `start`; with `lazily` also those that it may load later."""
    found, left = set(), [start]
    while left:
        path = left.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        if UI / "vendor" not in path.parents:
            left += [*imports_of(path, STATIC), *(imports_of(path, DYNAMIC) if lazily else ())]
    return found


def zipped(paths: set[Path]) -> float:
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in paths) / 1024


def faults_of(path: Path) -> Iterator[str]:
    """What is wrong with a module."""
    text, name = path.read_text(), name_of(path)
    if not text.startswith("/**"):
        yield "a module begins with its theory"
    if found := MARKUP.search(text):
        yield f"text never becomes markup or code: {found[0]}"
    if path not in GENERATED and text.count("\n") > MAX_LINES:
        yield f"more than {MAX_LINES} lines"
    if long := [number for number, line in enumerate(text.split("\n"), 1) if len(line) > MAX_COLUMNS]:
        yield f"lines of more than {MAX_COLUMNS} columns: {long}"
    if name not in FETCHES and re.search(r"(?<![\w.])fetch\(", text):
        yield "the server is asked through core/api.js"
    if bare := re.findall(r'(?:from|import) "([^."][^"]*)"', text):
        yield f"imports are relative: {bare}"
    expected = [*imports_of(path, STATIC), *imports_of(path, DYNAMIC)]
    if missing := [str(target) for target in expected if not target.is_file()]:
        yield f"missing: {missing}"


def test_modules_are_small_documented_and_make_no_markup() -> None:
    assert [f"{name_of(path)}: {fault}" for path in MODULES for fault in faults_of(path)] == []


@pytest.mark.parametrize(
    "text", ["box.innerHTML = a", "eval(a)", "new Function(a)", "fetch(a)", 'import "preact"', "x" * 141]
)
def test_a_fault_is_seen(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.APP", tmp_path)
    (tmp_path / "bad.js").write_text(f"/** Bad. */\n{text};\n")

    assert list(faults_of(tmp_path / "bad.js"))


def test_no_module_is_dead_and_no_folder_crowded() -> None:
    used = reached(APP / "main.js", lazily=True) | {APP / "core/worker.js", APP / "early.js"}
    folders = {folder: len(list(folder.glob("*.js"))) for folder in {path.parent for path in MODULES}}

    assert sorted(name_of(path) for path in set(MODULES) - used) == []
    assert max(folders.values()) <= MAX_MODULES, folders


def test_the_first_page_and_the_whole_stay_within_their_budgets() -> None:
    first = (
        {APP / "early.js"} | reached(APP / "main.js", lazily=False) | reached(APP / "pages/overview.js", lazily=False)
    )
    every = reached(APP / "main.js", lazily=True)

    assert not {path.name for path in first} & {"codemirror.js", "xterm.js", "uplot.js"}
    assert zipped(first) <= FIRST_PAGE_KB
    assert zipped({UI / "app.css"}) <= STYLES_KB
    assert zipped(every) <= WHOLE_KB


ROUTES = re.findall(r'pattern: "([^"]*)".*? page: "(\w+)"', (APP / "routes.js").read_text())


def test_the_shell_holds_one_script_and_names_the_first_files() -> None:
    text = (UI / "index.html").read_text().replace("<script>{{early}}</script>", "", 1)

    assert set(re.findall(r"\{\{assets\}\}/([^\"]+)", text)) == {"app/main.js", "app.css", "icon.svg"}
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=|https?://", text)


def test_the_script_in_the_shell_is_the_one_that_its_policy_allows() -> None:
    (script,) = re.findall(r"<script>(.*?)</script>", PAGES.shell("jobs", ""), re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert f"script-src 'self' 'sha256-{allowed}';" in headers_of_pages("", PAGES.early)["Content-Security-Policy"]
    assert "script-src 'self';" in headers_of_pages()["Content-Security-Policy"]
    assert script == (APP / "early.js").read_text()
    assert not re.search(r"</script|<!--", script)


@pytest.mark.parametrize(("pattern", "page"), ROUTES)
def test_the_shell_names_all_modules_of_a_page_at_once(pattern: str, page: str) -> None:
    path = re.sub(r"[:*](\w+)", r"some-\1", pattern)
    named = [UI / name for name in re.findall(r'modulepreload" href="/ui/a/\w+/([^"]+)"', PAGES.shell(path, ""))]
    shown = [
        name for name in named if re.search(rf"^export (?:async )?(?:function|const) {page}\b", name.read_text(), re.M)
    ]

    assert len(shown) == 1, f"the module of {page}"
    assert set(named) == reached(APP / "main.js", lazily=False) | reached(shown[0], lazily=False)


def test_an_unknown_page_needs_the_frame_alone() -> None:
    assert {UI / name for name in PAGES.modules.of_path("no/such/page")} == reached(APP / "main.js", lazily=False)


def test_the_state_of_a_card_is_shown_in_one_way() -> None:
    """Agents of a version before states report only whether it is healthy: one part of the page knows that."""
    assert [name_of(path) for path in MODULES if re.search(r"\bcard\.State\b", path.read_text())] == ["parts/status.js"]
