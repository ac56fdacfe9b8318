"""The page about `yurt.sdk`: every public class, function and plugin function, read from the source.

The text is the docstrings' own. `yurt.sdk.containers`, which only drivers of container engines need, is told shortly.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from docs.generator.markdown import cell, code, page, table

SDK = Path(__file__).resolve().parent.parent / "core" / "src" / "yurt" / "sdk"
TITLE = """# SDK

What packages of task drivers, device plugins, hooks, service providers, template providers, fingerprints, artifact
getters, log engines and commands import. The how-to pages ([drivers](../howto/write-a-driver.md),
[devices](../howto/write-a-device-plugin.md), [hooks](../howto/write-a-hook.md),
[templates](../howto/write-a-template-provider.md), [fingerprints](../howto/write-a-fingerprint.md),
[artifacts](../howto/write-an-artifact-getter.md), [log engines](../howto/write-a-log-engine.md),
[commands](../howto/write-a-command.md)) show complete packages; `yurt.testing` holds a conformance suite for each
kind. A class that is a `Protocol` is implemented by the package, a `Value` is an immutable struct that is compared by
its content. Made from the source by `make docs`."""
FIRST = (
    "plugin",
    "driver",
    "device",
    "hooks",
    "services",
    "templates",
    "fingerprints",
    "artifacts",
    "log_engines",
    "commands",
)
"""The contracts in the order in which packages meet them; what they share comes after."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page_text() -> str:
    """The page."""
    names = sorted(path.stem for path in SDK.glob("*.py") if path.stem != "__init__")
    ordered = [*FIRST, *(name for name in names if name not in FIRST)]
    modules = [text for name in ordered if (text := _module(f"yurt.sdk.{name}", SDK / f"{name}.py"))]
    return page(TITLE, *modules, _containers())


def _module(name: str, path: Path) -> str:
    tree = ast.parse(path.read_text())
    parts = [_class(node) for node in _public(tree) if isinstance(node, ast.ClassDef)]
    functions = [node for node in _public(tree) if isinstance(node, Function)]
    if not parts and not functions:
        return ""
    parts.append(_members("function", functions))
    return page(f"## {code(name)}", _doc(tree), *parts)


def _public(tree: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | Function]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
            yield node


def _class(node: ast.ClassDef) -> str:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    methods = [each for each in _public(node) if isinstance(each, Function)]
    return page(
        f"### {code(node.name)}" + (f" ({code(bases)})" if bases else ""),
        _doc(node),
        _fields(node),
        _members("method", methods),
    )


def _fields(node: ast.ClassDef) -> str:
    rows = []
    for number, each in enumerate(node.body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            default = code(ast.unparse(each.value)) if each.value is not None else ""
            told = _text_at(node.body, number + 1)
            rows.append((code(each.target.id), code(ast.unparse(each.annotation)), default, cell(told)))
    return table(("field", "type", "default", "meaning"), rows) if rows else ""


def _text_at(body: list[ast.stmt], number: int) -> str:
    """The text of a docstring that stands alone behind what it is about."""
    follows = body[number] if number < len(body) else None
    if isinstance(follows, ast.Expr) and isinstance(follows.value, ast.Constant):
        return str(follows.value.value)
    return ""


def _members(kind: str, found: list[Function]) -> str:
    rows = [(code(_signature(each)), cell(_doc(each))) for each in found]
    return table((kind, "what it does"), rows) if rows else ""


def _signature(node: Function) -> str:
    given = ast.unparse(node.args)
    given = given.removeprefix("self").removeprefix("cls").removeprefix(", ")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
    wait = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return f"{node.name}{returns}" if is_property else f"{wait}{node.name}({given}){returns}"


def _doc(node: ast.Module | ast.ClassDef | Function) -> str:
    return ast.get_docstring(node) or ""


def _containers() -> str:
    rows = []
    folder = SDK / "containers"
    for path in sorted(folder.rglob("*.py")):
        names = list(_public(ast.parse(path.read_text())))
        module = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        rows += [(code(module), code(each.name), cell(_doc(each).partition("\n\n")[0])) for each in names]
    intro = "What drivers of container engines share: the way to an engine, its events, the states of tasks, images."
    return page("## `yurt.sdk.containers`", intro, table(("module", "name", "what it is"), rows))
