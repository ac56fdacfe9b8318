"""Mistakes in a policy that parses: rules that never match, names that do not exist, redundant capabilities.

Each finding holds for every request. It follows from this policy alone, and from the names of the cluster where they
are given: a rule without effect here may have one for a token that has other policies too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Final, NamedTuple

from yurt.access.needs import Area
from yurt.acl.globs import STAR, matcher
from yurt.acl.parsing import parse_policy
from yurt.acl.policy import SEPARATOR, Policy, Rule, Written, path_label
from yurt.acl.vocabulary import (
    DENY,
    HOST_VOLUME,
    INCLUDED,
    LABELLED,
    LEVELS,
    NAMESPACE,
    NODE_POOL,
    PASSES,
    PATH,
    SENTINEL,
)

NEVER, UNKNOWN, REDUNDANT = "never-matches", "unknown-name", "redundant"
PATH_CHARACTERS: Final = re.compile(r"[a-zA-Z0-9\-_~/*]*")
"""The permitted characters of a variable's path, and the star."""
NAME_MAX: Final = 128
"""Characters of a namespace, node pool, host volume or path."""
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "sentinel-override": "sentinel policies are Nomad Enterprise's",
    "submit-recommendation": "recommendations are Nomad Enterprise's",
}
_TITLES: Final = {NODE_POOL: "node pool", HOST_VOLUME: "host volume", PATH: "path"}


class LintFinding(NamedTuple):
    """One finding and its place."""

    line: int
    column: int
    code: str
    """`never-matches`, `unknown-name` or `redundant`."""
    text: str
    hint: str = ""


class Names(NamedTuple):
    """The names of a cluster; None for those that were not requested."""

    namespaces: Collection[str] | None = None
    node_pools: Collection[str] | None = None
    host_volumes: Collection[str] | None = None


class _Label(NamedTuple):
    """One label of a kind of block, and the first block that has it."""

    kind: str
    text: str
    rule: Rule

    @property
    def shown(self) -> str:
        if self.kind != PATH:
            return f'{_TITLES.get(self.kind, self.kind)} "{self.text}"'
        namespace, _, path = self.text.partition(SEPARATOR)
        return f'path "{path}" in namespace "{namespace}"'


def lint(text: str, *, names: Names | None = None, filename: str = "rules") -> tuple[LintFinding, ...]:
    """Problems of a policy, by position; raises PolicyError for an invalid text."""
    words: list[Written] = []
    policy = parse_policy(filename, text, filename=filename, words=words)
    labels = tuple(_labels(policy))
    found = [
        *_denied(words),
        *_outranked(labels),
        *_hiding(policy, labels),
        *_without_effect(words),
        *_impossible(labels),
        *_redundant(words),
        *_unknown(labels, names or Names()),
    ]
    return tuple(sorted(dict.fromkeys(found)))


def _at(rule: Rule, code: str, text: str, hint: str = "") -> LintFinding:
    return LintFinding(rule.line, rule.column, code, text, hint)


def _labels(policy: Policy) -> Iterator[_Label]:
    """Every label once, with its first block."""
    seen: dict[tuple[str, str], Rule] = {}
    for kind, blocks in ((NAMESPACE, policy.namespaces), (NODE_POOL, policy.node_pools),
                         (HOST_VOLUME, policy.host_volumes)):  # fmt: skip
        for block in blocks:
            seen.setdefault((kind, block.label), block.rule)
    for path in policy.variables:
        seen.setdefault((PATH, path_label(path.namespace, path.path)), path.rule)
    return (_Label(kind, label, rule) for (kind, label), rule in seen.items())


# Rules that never count.


def _denied(words: Iterable[Written]) -> Iterator[LintFinding]:
    """Find capabilities next to a denial: a label that is denied anywhere is denied."""
    denials = {(each.kind, each.label): each.rule for each in reversed(list(words)) if each.word == DENY}
    for each in words:
        denial = denials.get((each.kind, each.label))
        # A level of an area without labels is judged apart from its capabilities, unless it is itself the denial.
        is_apart = each.is_level and each.kind not in (*LABELLED, PATH)
        if denial is not None and each.word != DENY and not is_apart:
            yield _at(each.rule, NEVER, f'"{each.word}" never counts: line {denial.line} denies everything here')


def _outranked(labels: Iterable[_Label]) -> Iterator[LintFinding]:
    """Globs that never apply, because another one matches each of their names and precedes them."""
    globs = [each for each in labels if STAR in each.text]
    for one in globs:
        letters = one.text.replace(STAR, "")
        for other in globs:
            is_like = other.kind == one.kind and other.text != one.text and other.text.replace(STAR, "") == letters
            # As near for every name, so the later one in byte order decides (yurt.acl.globs). A star of the first can
            # only be matched by a star of the second: then that one matches whatever the first matches.
            if is_like and other.text.encode() > one.text.encode() and matcher(other.text)(one.text):
                text = f"{one.shown} never decides: {other.shown} (line {other.rule.line}) matches the same names"
                yield _at(one.rule, NEVER, text, "Leave one of them away.")
                break


def _hiding(policy: Policy, labels: Iterable[_Label]) -> Iterator[LintFinding]:
    """Labels without rights: they hide the glob that would otherwise apply, or have no effect."""
    granting = {
        (kind, block.label)
        for kind, blocks in ((NAMESPACE, policy.namespaces), (NODE_POOL, policy.node_pools),
                             (HOST_VOLUME, policy.host_volumes))
        for block in blocks
        if block.granted
    }  # fmt: skip
    granting |= {(PATH, path_label(each.namespace, each.path)) for each in policy.variables if each.granted}
    with_paths = {each.namespace for each in policy.variables}
    every = tuple(labels)
    for each in every:
        if (each.kind, each.text) in granting:
            continue
        hidden = _behind(each, every)
        if hidden is not None:
            text = f"{each.shown} grants nothing here, and hides {hidden.shown} (line {hidden.rule.line}) for its names"
            yield _at(each.rule, NEVER, text, "Repeat in this block what it shall grant.")
        elif not (each.kind == NAMESPACE and each.text in with_paths):
            yield _at(each.rule, NEVER, f"{each.shown} grants nothing and denies nothing")


def _behind(label: _Label, labels: Iterable[_Label]) -> _Label | None:
    """The glob that would apply to a label's names without the label."""
    globs = [each for each in labels if each.kind == label.kind and STAR in each.text and each.text != label.text]
    matching = [each for each in globs if matcher(each.text)(label.text)]
    return max(matching, key=lambda each: (len(each.text) - each.text.count(STAR), each.text.encode()), default=None)


def _without_effect(words: Iterable[Written]) -> Iterator[LintFinding]:
    for each in words:
        if each.kind == SENTINEL:
            yield _at(each.rule, NEVER, "sentinel has no effect: sentinel policies are Nomad Enterprise's")
        elif not each.is_level and each.word in _WITHOUT_EFFECT:
            yield _at(each.rule, NEVER, f'"{each.word}" has no effect: {_WITHOUT_EFFECT[each.word]}')
        elif each.is_level and each.word == "scale" and each.kind != NAMESPACE:
            yield _at(each.rule, NEVER, f'level "scale" grants nothing in a {each.kind} block')
        elif each.is_level and (each.kind, each.word) == (Area.PLUGIN, "write"):
            text = 'level "write" grants nothing on plugins, not even what "read" grants'
            yield _at(each.rule, NEVER, text, 'Write policy = "read".')


def _impossible(labels: Iterable[_Label]) -> Iterator[LintFinding]:
    """Labels that no object can have."""
    for each in labels:
        name = each.text.rpartition(SEPARATOR)[2]
        if each.kind == PATH and not PATH_CHARACTERS.fullmatch(name):
            text = f'no variable can have the path "{name}": a path holds letters, digits, "-", "_", "~" and "/"'
            yield _at(each.rule, NEVER, text)
        elif len(name.replace(STAR, "")) > NAME_MAX:
            yield _at(each.rule, NEVER, f"no name has more than {NAME_MAX} characters")


# Words that say nothing new.


def _redundant(words: Iterable[Written]) -> Iterator[LintFinding]:
    """Words whose rights other words under the same label already grant."""
    groups: dict[tuple[str, str], list[Written]] = {}
    for each in words:
        groups.setdefault((each.kind, each.label), []).append(each)
    for (kind, _), group in groups.items():
        if any(each.word == DENY for each in group):
            continue
        left = list(group)
        # The weakest and the last first, so that of two equal words the later one is reported.
        for each in sorted(group, key=lambda each: (len(_closure(each)), -each.rule.line, -each.rule.column)):
            others = [other for other in left if other is not each]
            by = _giving(each, kind, others)
            if by is not None:
                left.remove(each)
                what = f'level "{by.word}"' if by.is_level else f'"{by.word}"'
                own = f'level "{each.word}"' if each.is_level else f'"{each.word}"'
                yield _at(each.rule, REDUNDANT, f"{own} says nothing new: {what} in line {by.rule.line} includes it")


def _giving(word: Written, kind: str, others: Iterable[Written]) -> Written | None:
    """The word that includes all that another one grants."""
    own = _closure(word)
    if not own and not word.is_level:
        return None
    for other in others:
        if kind in (*LABELLED, PATH, Area.OPERATOR) and own and own <= _closure(other):
            # The level of an area means more than its capabilities.
            if word.is_level and kind == Area.OPERATOR:
                continue
            return other
        passed = {each for name in _closure(other) for each in PASSES.get(name, ())}
        if kind == NAMESPACE and not word.is_level and own <= passed | _closure(other):
            return other
    return None


def _closure(word: Written) -> frozenset[str]:
    """The capabilities that a word includes."""
    if word.is_level:
        return frozenset(map(str, LEVELS.get(word.kind, {}).get(word.word, ())))
    return frozenset((word.word, *map(str, INCLUDED.get(word.kind, {}).get(word.word, ()))))


# Names.


def _unknown(labels: Iterable[_Label], names: Names) -> Iterator[LintFinding]:
    catalog = {NAMESPACE: names.namespaces, NODE_POOL: names.node_pools, HOST_VOLUME: names.host_volumes}
    for each in labels:
        of_kind = catalog.get(each.kind)
        if of_kind is None or each.text == STAR:
            continue
        title = _TITLES.get(each.kind, each.kind)
        if STAR in each.text:
            if not any(map(matcher(each.text), of_kind)):
                yield _at(each.rule, UNKNOWN, f'no {title} matches "{each.text}" now')
        elif each.text not in of_kind:
            near = get_close_matches(each.text, of_kind, n=1)
            hint = f'Did you mean "{near[0]}"?' if near else ""
            yield _at(each.rule, UNKNOWN, f'there is no {title} "{each.text}" now', hint)
