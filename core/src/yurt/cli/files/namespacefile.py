"""Namespaces in HCL: the API's form of a file, and its errors with their positions.

A name that nobody knows is refused everywhere: a misspelled `enabled_task_drivers` would leave the namespace open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from yurt_jobspec import JobspecError
from yurt_jobspec.diagnostics import Near, OffsetDiagnostic, SourceText
from yurt_jobspec.documents import read_document
from yurt_jobspec.findings import Findings
from yurt_jobspec.syntax.jsonsyntax import JsonArray, JsonNode, JsonObject, JsonScalar
from yurt_jobspec.syntax.nodes import Label

from yurt.cli.errors import CliError
from yurt.cli.json_object import Json

_TEXTS: Final = {"name": "Name", "description": "Description", "quota": "Quota"}
_META: Final = "meta"
_IDLE: Final = "idle"
"""The block on idle devices; servers know its keys, and say which are wrong."""
_CAPABILITIES: Final = {
    "enabled_task_drivers": "EnabledTaskDrivers",
    "disabled_task_drivers": "DisabledTaskDrivers",
    "enabled_network_modes": "EnabledNetworkModes",
    "disabled_network_modes": "DisabledNetworkModes",
}
_NODE_POOLS: Final = {"default": "Default", "allowed": "Allowed", "denied": "Denied"}
_BLOCKS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "capabilities": ("Capabilities", _CAPABILITIES),
    "node_pool_config": ("NodePoolConfiguration", _NODE_POOLS),
}
_IN_BLOCKS_TEXTS: Final = frozenset({"default"})


def read_namespace_hcl(filename: str, text: str) -> Json:
    """The namespace of a file in HCL; raises CliError with all findings."""
    from yurt.cli.files.jobfile import rendered

    source, findings = SourceText(filename, text), Findings()
    try:
        space = _NamespaceReader(source, findings).namespace(read_document(source))
        findings.raise_errors(by_place=True)
    except JobspecError as error:
        raise CliError(rendered(error, {filename: text})) from None
    return space


class _NamespaceReader:
    """Reads one file; problems are added to the findings, and reading continues."""

    def __init__(self, source: SourceText, findings: Findings) -> None:
        self._source = source
        self._findings = findings

    def namespace(self, root: JsonObject) -> Json:
        """The whole file."""
        space: Json = {}
        for name, value in root.members:
            if name.text in _TEXTS:
                self._set(space, _TEXTS[name.text], name, self._text(name, value))
            elif name.text == _META:
                space.setdefault("Meta", {}).update(self._meta(name, value))
            elif name.text == _IDLE:
                for block in self._objects(name, value):
                    self._set(space, "Idle", name, _plain(block))
            elif name.text in _BLOCKS:
                key, names = _BLOCKS[name.text]
                for block in self._objects(name, value):
                    self._read_block(space.setdefault(key, {}), block, names)
            else:
                self._add_unknown(name, (*_TEXTS, _META, _IDLE, *_BLOCKS))
        if not space.get("Name") and not any(name.text == "name" for name, _ in root.members):
            self._add("Missing name", 'A namespace needs a name: name = "team".', Label("", 0, 0))
        return space

    def _read_block(self, found: Json, block: JsonObject, names: Mapping[str, str]) -> None:
        for name, value in block.members:
            if name.text not in names:
                self._add_unknown(name, tuple(names))
                continue
            read = self._text if name.text in _IN_BLOCKS_TEXTS else self._list
            self._set(found, names[name.text], name, read(name, value))

    def _set(self, found: Json, key: str, name: Label, value: Any) -> None:
        if key in found:
            self._add("Attribute redefined", f'"{name.text}" may be set once.', name)
        found[key] = value

    # Values.

    def _text(self, name: Label, node: JsonNode) -> str:
        if isinstance(node, JsonScalar) and isinstance(node.value, str):
            return node.value
        self._add("Invalid value", f'"{name.text}" is a text: {name.text} = "...".', node)
        return ""

    def _list(self, name: Label, node: JsonNode) -> list[str]:
        items = node.items if isinstance(node, JsonArray) else ()
        texts = [item.value for item in items if isinstance(item, JsonScalar) and isinstance(item.value, str)]
        if not isinstance(node, JsonArray) or len(texts) != len(items):
            self._add("Invalid value", f'"{name.text}" is a list of texts: {name.text} = ["..."].', node)
        return texts

    def _meta(self, name: Label, node: JsonNode) -> Json:
        found: Json = {}
        for block in self._objects(name, node):
            for key, value in block.members:
                if isinstance(value, JsonScalar) and value.value is not None:
                    plain = value.value
                    found[key.text] = str(plain).lower() if isinstance(plain, bool) else str(plain)
                else:
                    self._add("Invalid value", f'"{key.text}" is a text: {key.text} = "...".', value)
        return found

    def _objects(self, name: Label, node: JsonNode) -> Iterator[JsonObject]:
        if isinstance(node, JsonObject):
            yield node
        elif isinstance(node, JsonArray) and all(isinstance(item, JsonObject) for item in node.items):
            yield from (item for item in node.items if isinstance(item, JsonObject))
        else:
            self._add("Invalid block", f'"{name.text}" is a block: {name.text} {{ ... }}.', name)

    # Findings.

    def _add_unknown(self, name: Label, names: tuple[str, ...]) -> None:
        self._add("Unknown name", f'"{name.text}" is not expected here.', name, Near(name.text, names))

    def _add(self, summary: str, detail: str, at: Label | JsonNode, near: Near | None = None) -> None:
        self._findings.add(self._source, OffsetDiagnostic(summary, detail, at.start, at.end, near))


def _plain(node: JsonNode) -> Any:
    """The value that a node stands for."""
    if isinstance(node, JsonObject):
        return {name.text: _plain(value) for name, value in node.members}
    if isinstance(node, JsonArray):
        return [_plain(item) for item in node.items]
    assert isinstance(node, JsonScalar)
    return node.value
