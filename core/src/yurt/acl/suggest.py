"""Computes the smallest policy that satisfies given needs, for example those of a token's past requests.

A need may be satisfied in several ways; where other needs leave the choice open, the weakest right is taken. Then
every right is left out again that nothing asks for, until each one that is left is needed: without it some need would
not be satisfied. Rights are judged by the engine that decides about requests (`yurt.acl.rights`). The result is a
small policy and not always the smallest one possible, which would be as hard to find as a smallest set cover.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple, assert_never

from yurt.access import ANYWHERE, Need, Scope
from yurt.access.needs import (
    AllOf,
    Anonymous,
    AnyInNamespace,
    AnyOf,
    Area,
    AsNode,
    AsOperator,
    AsWorkload,
    AtLevel,
    Authenticated,
    Capability,
    EachRow,
    InNamespace,
    InNodePool,
    Leaf,
    Management,
    OnHostVolume,
    OnVariable,
)
from yurt.acl.compiled import CompiledPolicies
from yurt.acl.globs import STAR
from yurt.acl.policy import SEPARATOR, AreaLevel, Block, Granted, PathBlock, Policy, Rule, path_label
from yurt.acl.rights import AuthenticationLevel, Rights
from yurt.acl.vocabulary import HOST_VOLUME, INCLUDED, LEVELS, NAMESPACE, NODE_POOL, PASSES, PATH, RANKS

WAYS_MAX: Final = 256
"""Alternatives examined for one need."""


class Requirement(NamedTuple):
    """A need that has to be satisfied in a scope; a part of the scope that is None: in every namespace (`*`)."""

    need: Need
    scope: Scope


class Right(NamedTuple):
    """One word of a policy: a capability under a label, or the level of an area (`word` has no label then)."""

    kind: str
    label: str
    word: str


class Suggestion(NamedTuple):
    """A policy, and the needs that no policy can satisfy."""

    rights: tuple[Right, ...]
    text: str
    ungrantable: tuple[Requirement, ...]


_RULE: Final = Rule("suggested", 0, 0, "")
_AREAS: Final = frozenset(Area)
Way = frozenset[Right]


def suggest(requirements: Iterable[Requirement]) -> Suggestion:
    """A minimal policy that satisfies the requirements."""
    distinct = tuple(dict.fromkeys(requirements))
    ways = {each: _ways(each.need, each.scope) for each in distinct}
    grantable = [each for each in distinct if ways[each]]
    rights = _pruned(_chosen(grantable, ways), grantable)
    ordered = tuple(sorted(rights))
    return Suggestion(ordered, policy_text(ordered), tuple(each for each in distinct if not ways[each]))


def rights_of(rights: Iterable[Right]) -> Rights:
    """The operations permitted by a token's rights."""
    return Rights(AuthenticationLevel.KNOWN, CompiledPolicies((_policy(rights),)))


# Choosing.


def _chosen(requirements: Sequence[Requirement], ways: Mapping[Requirement, Sequence[Way]]) -> set[Right]:
    """Rights that satisfy all requirements; those without an alternative are chosen first."""
    chosen: set[Right] = set()
    for each in requirements:
        if len(ways[each]) == 1:
            chosen |= ways[each][0]
    pending = [each for each in requirements if len(ways[each]) > 1]
    # A new label hides a glob that satisfied another need before, so all are looked at again.
    for _ in range(len(pending) + 1):
        missing = [each for each in pending if not rights_of(chosen).allows(*each)]
        if not missing:
            break
        for each in missing:
            if not rights_of(chosen).allows(*each):
                chosen |= min(ways[each], key=lambda way: (len(way - chosen), sum(map(_power, way)), sorted(way)))
    assert all(rights_of(chosen).allows(*each) for each in requirements), "the chosen policy allows every request"
    return chosen


def _pruned(chosen: set[Right], requirements: Sequence[Requirement]) -> set[Right]:
    """The rules without those that nothing requires, strongest first."""
    while True:
        for right in sorted(chosen, key=lambda right: (-_power(right), right)):
            rights = rights_of(chosen - {right})
            if all(rights.allows(*each) for each in requirements):
                chosen = chosen - {right}
                break
        else:
            return chosen


def _power(right: Right) -> int:
    """The strength of a right: the rank of its level, or the number of other capabilities that it implies."""
    if right.word in RANKS:
        return RANKS[right.word]
    return len(INCLUDED.get(right.kind, {}).get(right.word, ())) + len(PASSES.get(right.word, ()))


def _ways(need: Need, scope: Scope) -> tuple[Way, ...]:
    """The alternative sets of rights that satisfy a need; none where no policy does."""
    match need:
        case AnyOf(needs=parts):
            return tuple(dict.fromkeys(way for part in parts for way in _ways(part, scope)))
        case AllOf(needs=parts):
            found = [_ways(part, scope) for part in parts]
            return tuple(frozenset().union(*each) for each, _ in zip(product(*found), range(WAYS_MAX), strict=False))
        case EachRow(need=inner):
            return (frozenset(),) if scope == ANYWHERE else _ways(inner, scope)
        case _:
            return tuple(frozenset((right,)) for right in _leaf_rights(need, scope)) or _free(need)


def _free(leaf: Leaf) -> tuple[Way, ...]:
    return (frozenset(),) if isinstance(leaf, Anonymous | Authenticated) else ()


def _leaf_rights(leaf: Leaf, scope: Scope) -> tuple[Right, ...]:
    """The words that satisfy a leaf, each alone."""
    match leaf:
        case InNamespace(capabilities=required):
            return tuple(Right(NAMESPACE, scope.namespace or STAR, each) for each in required)
        case AnyInNamespace():
            return (Right(NAMESPACE, scope.namespace or STAR, Capability.LIST_JOBS),)
        case OnVariable(capability=capability):
            label = path_label(scope.namespace or STAR, scope.variable or STAR)
            return (Right(PATH, label, capability),)
        case InNodePool(capability=capability):
            return (Right(NODE_POOL, scope.node_pool or STAR, capability),)
        case OnHostVolume(capabilities=volume_words):
            return tuple(Right(HOST_VOLUME, scope.host_volume or STAR, each) for each in volume_words)
        case AtLevel(area=area, level=level):
            return (Right(area, "", level),)
        case AsOperator(capability=operator_word):
            return (Right(Area.OPERATOR, "", operator_word),)
        case Anonymous() | Authenticated() | Management() | AsWorkload() | AsNode():
            return ()
        case _:
            assert_never(leaf)


# The policy.


def _policy(rights: Iterable[Right]) -> Policy:
    """The rights as a policy that was read."""
    granted: dict[tuple[str, str], dict[str, Rule]] = {}
    levels: dict[str, str] = {}
    for kind, label, word in rights:
        if kind in _AREAS and word in RANKS:
            levels[kind] = max(levels.get(kind, word), word, key=RANKS.__getitem__)
        else:
            words = (word, *INCLUDED.get(kind, {}).get(word, ()))
            granted.setdefault((kind, label), {}).update(dict.fromkeys(map(str, words), _RULE))
    # A block of variables is a block of its namespace too.
    for label in [label for kind, label in granted if kind == PATH]:
        granted.setdefault((NAMESPACE, label.partition(SEPARATOR)[0]), {})
    of_level = LEVELS[Area.OPERATOR].get(levels.get(Area.OPERATOR, ""), ())
    operator = granted.get((Area.OPERATOR, ""), {}) | dict.fromkeys(map(str, of_level), _RULE)
    return Policy(
        name=_RULE.policy,
        namespaces=_blocks(granted, NAMESPACE),
        node_pools=_blocks(granted, NODE_POOL),
        host_volumes=_blocks(granted, HOST_VOLUME),
        variables=tuple(_path_block(label, each) for (kind, label), each in granted.items() if kind == PATH),
        levels=tuple(AreaLevel(area, level, _RULE) for area, level in levels.items()),
        operator=(operator,) if operator else (),
    )


def _path_block(label: str, granted: Granted) -> PathBlock:
    namespace, _, path = label.partition(SEPARATOR)
    return PathBlock(namespace, path, granted, _RULE)


def _blocks(granted: Mapping[tuple[str, str], Granted], required: str) -> tuple[Block, ...]:
    return tuple(Block(label, each, _RULE) for (kind, label), each in granted.items() if kind == required)


def policy_text(rights: Sequence[Right]) -> str:
    """The policy in its language, blocks in a fixed order."""
    words: dict[tuple[str, str], list[str]] = {}
    for kind, label, word in rights:
        words.setdefault((kind, label), []).append(word)
    spaces = dict.fromkeys(label.partition(SEPARATOR)[0] for kind, label in sorted(words) if kind in (NAMESPACE, PATH))
    blocks = [_namespace_text(name, words) for name in sorted(spaces)]
    for kind in (NODE_POOL, HOST_VOLUME):
        blocks += [
            f'{kind} "{label}" {{\n  {_list(found)}\n}}' for (of, label), found in sorted(words.items()) if of == kind
        ]
    blocks += [_area_text(area, words[area, ""]) for area in Area if (area, "") in words]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def _namespace_text(name: str, words: Mapping[tuple[str, str], Sequence[str]]) -> str:
    lines = [f'namespace "{name}" {{']
    if (NAMESPACE, name) in words:
        lines.append(f"  {_list(words[NAMESPACE, name])}")
    paths = {
        label.partition(SEPARATOR)[2]: found
        for (kind, label), found in sorted(words.items())
        if kind == PATH and label.partition(SEPARATOR)[0] == name
    }
    if paths:
        lines += [""] * (len(lines) > 1) + ["  variables {"]
        for path, found in paths.items():
            lines += [f'    path "{path}" {{', f"      {_list(found)}", "    }"]
        lines.append("  }")
    return "\n".join((*lines, "}"))


def _area_text(area: Area, words: Sequence[str]) -> str:
    levels = [word for word in words if word in RANKS]
    named = [word for word in words if word not in RANKS]
    lines = [f"{area} {{"]
    if levels:
        lines.append(f'  policy = "{max(levels, key=RANKS.__getitem__)}"')
    if named:
        lines.append(f"  {_list(named)}")
    return "\n".join((*lines, "}"))


def _list(words: Iterable[str]) -> str:
    return "capabilities = [" + ", ".join(f'"{each}"' for each in sorted(words)) + "]"
