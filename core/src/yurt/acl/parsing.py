"""Reads the text of a policy, in native syntax or JSON.

All mistakes are found together, each with its file, line and column, and with the name that was probably meant. A
strict reading, which a policy has to pass when it is written, also refuses unknown names inside of blocks, which Nomad
ignores: a misspelled `capabilities` would silently lose a denial. A lenient reading is for policies that are stored
already, perhaps by a newer version: it ignores names that it does not know, which grants nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from yurt_jobspec import JobspecError
from yurt_jobspec.diagnostics import Near, OffsetDiagnostic, SourceText
from yurt_jobspec.documents import read_document
from yurt_jobspec.findings import Findings
from yurt_jobspec.syntax.jsonsyntax import JsonArray, JsonNode, JsonObject, JsonScalar
from yurt_jobspec.syntax.nodes import Label

from yurt.access.needs import Area
from yurt.acl.policy import AreaLevel, Block, Granted, PathBlock, Policy, PolicyError, Rule, Written, path_label
from yurt.acl.vocabulary import (
    AREAS,
    BLOCKS,
    CAPABILITIES,
    DENY,
    GRANTABLE,
    HOST_VOLUME,
    INCLUDED,
    LABELLED,
    LEVELS,
    NAMESPACE,
    NODE_POOL,
    PATH,
    POLICY,
    VARIABLES,
)

RULES_CHARACTERS_MAX: Final = 128 * 1024
"""A longer policy is refused unread, which bounds the time of reading (60 ms)."""
_LABELS: Final = {
    NAMESPACE: r"[a-zA-Z0-9\-*]{1,128}",
    NODE_POOL: r"[a-zA-Z0-9\-_*]{1,128}",
    HOST_VOLUME: r"[a-zA-Z0-9\-*]{1,128}",
}
_TITLES: Final = {NODE_POOL: "node pool", HOST_VOLUME: "host volume", PATH: "variable"}
"""Blocks whose name in messages is not that of the block."""
_NOWHERE: Final = Rule("", 0, 0, "")


def parse_policy(
    name: str, text: str, *, filename: str = "rules", is_strict: bool = True, words: list[Written] | None = None
) -> Policy:
    """The policy; raises PolicyError with all problems of its text. An empty text is an empty policy.

    What the text says word by word goes into `words`, for those who look at how a policy is written.
    """
    if not text:
        return Policy(name)
    source = SourceText(filename, text)
    findings = Findings()
    try:
        if len(text) > RULES_CHARACTERS_MAX:
            detail = f"A policy may hold {RULES_CHARACTERS_MAX} characters at most; this one holds {len(text)}."
            findings.add(source, OffsetDiagnostic("Policy too large", detail, 0, 0))
            findings.raise_errors()
        policy = _PolicyParser(name, source, findings, is_strict, words).policy(read_document(source))
        findings.raise_errors(by_place=True)
    except JobspecError as error:
        raise PolicyError(error.diagnostics) from None
    return policy


class _PolicyParser:
    """Reads one policy; mistakes are added to the findings, and reading continues."""

    def __init__(
        self, name: str, source: SourceText, findings: Findings, is_strict: bool, words: list[Written] | None
    ) -> None:
        self._name = name
        self._words = words
        self._label = ""
        """That of the block that is read."""
        self._block = 0
        self._source = source
        self._findings = findings
        self._is_strict = is_strict

    def policy(self, root: JsonObject) -> Policy:
        """The policy in a file."""
        blocks = {
            kind: [each for name, value in root.members if name.text == kind for each in self._labelled(name, value)]
            for kind in LABELLED
        }
        areas = self._areas(root)
        if self._is_strict:
            self._find_unknown(root)
        return Policy(
            name=self._name,
            namespaces=tuple(self._labelled_block(NAMESPACE, *each) for each in blocks[NAMESPACE]),
            node_pools=tuple(self._labelled_block(NODE_POOL, *each) for each in blocks[NODE_POOL]),
            host_volumes=tuple(self._labelled_block(HOST_VOLUME, *each) for each in blocks[HOST_VOLUME]),
            variables=tuple(path for each in blocks[NAMESPACE] for path in self._variables(*each)),
            levels=tuple(level for level, _ in areas.values() if level.level),
            operator=tuple(granted for area, (_, granted) in areas.items() if area == Area.OPERATOR and granted),
        )

    def _find_unknown(self, root: JsonObject) -> None:
        for name, _ in root.members:
            if name.text not in BLOCKS:
                detail = f'"{name.text}" is not a block of a policy.'
                self._add("Invalid or duplicate policy keys", detail, name, Near(name.text, BLOCKS))
        if not any(name.text in BLOCKS for name, _ in root.members):
            detail = f"it has no rules: write a block such as {NAMESPACE}, {NODE_POOL}, node or agent."
            self._add("Invalid policy", detail, Label("", 0, 0))

    def _areas(self, root: JsonObject) -> Mapping[str, tuple[AreaLevel, Granted]]:
        """The blocks without a label; of two in a stored policy the last counts."""
        found: dict[str, tuple[AreaLevel, Granted]] = {}
        for name, value in root.members:
            for content in self._objects(value, name.text) if name.text in AREAS else ():
                if name.text in found and self._is_strict:
                    self._add("Invalid or duplicate policy keys", f'"{name.text}" may stand once.', name)
                found[name.text] = self._area(name, content)
        return found

    # Blocks.

    def _labelled(self, name: Label, value: JsonNode) -> Iterator[tuple[Label, JsonObject]]:
        """The blocks of a kind with their labels."""
        for group in self._objects(value, name.text):
            for label, content in group.members:
                title = _TITLES.get(name.text, name.text)
                if isinstance(content, JsonScalar) or not self._is_of_objects(content):
                    detail = f'write a label: {name.text} "default" {{ ... }}.'
                    self._add(f"Invalid {title} name", detail, label)
                    continue
                if not re.fullmatch(_LABELS[name.text], label.text):
                    others = ', "_"' if name.text == NODE_POOL else ""
                    detail = f'"{label.text[:64]}" must have 1 to 128 letters, digits, "-"{others} or "*".'
                    self._add(f"Invalid {title} name", detail, label)
                for each in self._objects(content, name.text):
                    yield label, each

    def _labelled_block(self, kind: str, label: Label, content: JsonObject) -> Block:
        names = (POLICY, CAPABILITIES, VARIABLES) if kind == NAMESPACE else (POLICY, CAPABILITIES)
        members = self._members(content, names)
        head = f'{kind} "{label.text}"'
        self._begin_block(label.text)
        granted: dict[str, Rule] = {}
        self._read_level(kind, members, head, granted)
        self._read_capabilities(kind, members, head, granted)
        return Block(label.text, _closed(kind, granted), self._rule(label, f"{head} {{ }}"))

    def _variables(self, namespace: Label, content: JsonObject) -> Iterator[PathBlock]:
        for name, value in content.members:
            if name.text != VARIABLES:
                continue
            groups = self._objects(value, VARIABLES)
            paths = [path for group in groups for path in self._paths_of_group(namespace, group)]
            if not paths:
                self._add("Invalid variable policy", f"no variable paths in namespace {namespace.text}", name)
            yield from paths

    def _paths_of_group(self, namespace: Label, group: JsonObject) -> Iterator[PathBlock]:
        for name, value in group.members:
            if name.text == PATH:
                yield from self._paths(namespace, value)
            elif self._is_strict:
                detail = f'"{name.text}" is not a valid name in a variables block.'
                self._add("Invalid variable policy", detail, name, Near(name.text, (PATH,)))

    def _paths(self, namespace: Label, value: JsonNode) -> Iterator[PathBlock]:
        for group in self._objects(value, PATH):
            for label, content in group.members:
                if isinstance(content, JsonScalar) or not self._is_of_objects(content):
                    self._add("Invalid missing variable path", f"in namespace {namespace.text}", label)
                    continue
                if not label.text:
                    self._add("Invalid missing variable path", f"in namespace {namespace.text}", label)
                if label.text.startswith("/"):
                    detail = f"\"{label.text[:64]}\" in namespace {namespace.text}: cannot start with a leading '/'"
                    self._add("Invalid variable path", detail, label)
                for each in self._objects(content, PATH):
                    yield self._path(namespace, label, each)

    def _path(self, namespace: Label, label: Label, content: JsonObject) -> PathBlock:
        head = f'{NAMESPACE} "{namespace.text}" {{ {VARIABLES} {{ {PATH} "{label.text}"'
        self._begin_block(path_label(namespace.text, label.text))
        granted: dict[str, Rule] = {}
        self._read_capabilities(PATH, self._members(content, (CAPABILITIES,)), head, granted)
        return PathBlock(namespace.text, label.text, _closed(PATH, granted), self._rule(label, f"{head} {{ }}"))

    def _area(self, name: Label, content: JsonObject) -> tuple[AreaLevel, Granted]:
        """The level and the capabilities of a block without a label."""
        area = name.text
        names = (POLICY, CAPABILITIES) if area in GRANTABLE else (POLICY,)
        label = self._label_of(content, names)
        if label is not None:
            detail = f'it takes no label: write {area} {{ policy = "read" }}, for all of them.'
            self._add(f"Invalid {area} policy", detail, label)
            return AreaLevel(area, "", _NOWHERE), _closed(area, {})
        members = self._members(content, names)
        self._begin_block("")
        granted: dict[str, Rule] = {}
        level, rule = self._read_level(area, members, area, granted)
        if area in GRANTABLE:
            self._read_capabilities(area, members, area, granted)
        elif not level and POLICY not in members:
            self._add(f"Invalid {area} policy", f"it needs a level: policy = {_choice(AREAS[area])}", name)
        return AreaLevel(area, level, rule), _closed(area, granted)

    def _label_of(self, content: JsonObject, names: Sequence[str]) -> Label | None:
        """The label that an author has given to a block without one; it reads as a block inside it."""
        blocks = (
            name for name, value in content.members if not isinstance(value, JsonScalar) and name.text not in names
        )
        return next(blocks, None) if self._is_strict else None

    # Attributes.

    def _members(self, content: JsonObject, names: Sequence[str]) -> dict[str, tuple[Label, JsonNode]]:
        """The attributes of a block by name; a repeated one is a mistake, because only one of them could count."""
        found: dict[str, tuple[Label, JsonNode]] = {}
        for name, value in content.members:
            if name.text not in names:
                if self._is_strict:
                    detail = f'"{name.text}" is not expected here.'
                    self._add("Unknown name in a policy", detail, name, Near(name.text, tuple(names)))
            elif name.text in found and name.text != VARIABLES:
                self._add("Attribute redefined", f'"{name.text}" may be set once in a block.', name)
            else:
                found[name.text] = (name, value)
        return found

    def _read_level(
        self, kind: str, members: Mapping[str, tuple[Label, JsonNode]], head: str, granted: dict[str, Rule]
    ) -> tuple[str, Rule]:
        """The level of a block, "" without one; its capabilities are added to `granted`."""
        if POLICY not in members:
            return "", _NOWHERE
        name, value = members[POLICY]
        levels = AREAS.get(kind) or tuple(LEVELS[kind])
        level = value.value if isinstance(value, JsonScalar) else None
        if not isinstance(level, str) or level not in levels:
            if level == "" and kind not in AREAS:
                return "", _NOWHERE
            shown = f'"{level[:64]}"' if isinstance(level, str) else "this"
            near = Near(level, levels) if isinstance(level, str) else None
            title = _TITLES.get(kind, kind)
            self._add(f"Invalid {title} policy", f"{shown} is not a valid level; write {_choice(levels)}.", value, near)
            return "", _NOWHERE
        rule = self._rule(name, f'{head} {{ policy = "{level}" }}')
        self._keep(kind, level, rule, is_level=True)
        for capability in LEVELS.get(kind, {}).get(level, ()):
            granted.setdefault(str(capability), rule)
        return level, rule

    def _read_capabilities(
        self, kind: str, members: Mapping[str, tuple[Label, JsonNode]], head: str, granted: dict[str, Rule]
    ) -> None:
        """The capabilities that a block names, and those that they include."""
        name, value = members.get(CAPABILITIES, (None, None))
        if name is None or value is None:
            return
        title = _TITLES.get(kind, kind)
        if not isinstance(value, JsonArray):
            self._add(f"Invalid {title} capability", f'write a list: {CAPABILITIES} = ["..."].', value)
            return
        grantable = GRANTABLE[kind]
        for item in value.items:
            text = item.value if isinstance(item, JsonScalar) else None
            if not isinstance(text, str) or text not in grantable:
                shown = f'"{text[:64]}"' if isinstance(text, str) else "this"
                is_level = isinstance(text, str) and text in LEVELS.get(kind, {})
                otherwise = f'"{text}" is a level: policy = "{text}".' if is_level else None
                near = Near(text, grantable, otherwise) if isinstance(text, str) else None
                self._add(f"Invalid {title} capability", f"{shown} is not a capability of this block.", item, near)
                continue
            rule = self._rule(item, f'{head} {{ capabilities = ["{text}"] }}')
            self._keep(kind, text, rule, is_level=False)
            for each in (text, *INCLUDED.get(kind, {}).get(text, ())):
                granted.setdefault(str(each), rule)

    # Shapes and places.

    def _begin_block(self, label: str) -> None:
        self._label = label
        self._block += 1

    def _keep(self, kind: str, word: str, rule: Rule, *, is_level: bool) -> None:
        if self._words is not None:
            self._words.append(Written(kind, self._label, self._block, word, is_level, rule))

    def _objects(self, value: JsonNode, name: str) -> Iterator[JsonObject]:
        """The objects under a block's name: one, or those of a list as in JSON."""
        if isinstance(value, JsonObject):
            yield value
        elif isinstance(value, JsonArray) and self._is_of_objects(value):
            for item in value.items:
                yield from self._objects(item, name)
        else:
            self._add("Invalid policy", f'"{name}" is a block: {name} {{ ... }}.', value)

    def _is_of_objects(self, value: JsonNode) -> bool:
        return isinstance(value, JsonObject) or (
            isinstance(value, JsonArray) and all(isinstance(item, JsonObject) for item in value.items)
        )

    def _rule(self, at: Label | JsonNode, text: str) -> Rule:
        line, column = self._source.position(at.start)
        return Rule(self._name, line, column, text)

    def _add(self, summary: str, detail: str, at: Label | JsonNode, near: Near | None = None) -> None:
        self._findings.add(self._source, OffsetDiagnostic(summary, detail, at.start, at.end, near))


def _closed(kind: str, granted: dict[str, Rule]) -> Granted:
    """A denial excludes everything else."""
    return {DENY: granted[DENY]} if DENY in granted else granted


def _choice(names: Sequence[str]) -> str:
    return " or ".join(f'"{name}"' for name in names)
