"""The suggested policy allows what was asked for, and nothing of it can be left out: judged by the slow oracle."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.access import ANYWHERE, Need, Scope, needs
from yurt.access.needs import (
    Area,
    AsOperator,
    AtLevel,
    Capability,
    EachRow,
    HostVolumeMountCapability,
    InNamespace,
    InNodePool,
    Leaf,
    Level,
    NodePoolCapability,
    OnHostVolume,
    OnVariable,
    OperatorCapability,
    VariableCapability,
    satisfied,
)
from yurt.acl import AuthenticationLevel, CompiledPolicies, Rights, parse_policy
from yurt.acl.suggest import Requirement, Right, policy_text, suggest
from yurt.acl.vocabulary import INCLUDED, LEVELS, PASSES
from yurt.http.route_table import ROUTES
from yurt.testing.nightly import cases

LEVEL_OF = {"list": ("list", "read"), "read": ("read", "write"), "write": ("write",)}


@dataclass(frozen=True)
class Oracle:
    """A slow reading of a few rights, by the words of the reference."""

    rights: frozenset[Right]

    def words(self, kind: str, name: str) -> set[str]:
        """What is granted for a name: by its own label, else by the glob `*`."""
        labels = {right.label for right in self.rights if right.kind == kind}
        if kind == "namespace":
            labels |= {right.label.partition("\0")[0] for right in self.rights if right.kind == "path"}
        label = name if name in labels else "*"
        own = {right.word for right in self.rights if (right.kind, right.label) == (kind, label)}
        return own | {more for word in own for more in INCLUDED.get(kind, {}).get(word, ())}

    def level(self, area: str) -> str:
        order = ["", "list", "read", "write"]
        return max((r.word for r in self.rights if r.kind == area and r.word in order), key=order.index, default="")

    def holds(self, leaf: Leaf, scope: Scope) -> bool:
        match leaf:
            case InNamespace(capabilities=required):
                if scope.namespace is None:
                    return any(r.word in required for r in self.rights if r.kind == "namespace") or any(
                        more in required for r in self.rights if r.kind == "namespace"
                        for more in INCLUDED["namespace"].get(r.word, ())
                    )  # fmt: skip
                return bool(self.words("namespace", scope.namespace) & set(required))
            case OnVariable(capability=required):
                return required in self.words("path", f"{scope.namespace}\0{scope.variable}")
            case InNodePool(capability=required):
                return required in self.words("node_pool", scope.node_pool or "*")
            case OnHostVolume(capabilities=required):
                return bool(self.words("host_volume", scope.host_volume or "*") & set(required))
            case AtLevel(area=area, level=level):
                own = self.level(area)
                return own in (("read",) if (area, level) == ("plugin", "read") else LEVEL_OF[level])
            case AsOperator(capability=required):
                own = {r.word for r in self.rights if r.kind == "operator"}
                return required in own or required in LEVELS["operator"].get(self.level("operator"), ())
            case _:
                raise AssertionError(leaf)

    def allows(self, need: Need, scope: Scope) -> bool:
        return satisfied(need, lambda leaf: self.holds(leaf, scope), has_row=True)


NAMES = st.sampled_from(["a", "b", "prod"])
CAPABILITIES = st.sampled_from(sorted(Capability))
SCOPES = NAMES.map(lambda name: Scope(namespace=name))
SPACES = st.lists(CAPABILITIES, min_size=1, max_size=3, unique=True).map(lambda found: needs.namespace(*found))
SCOPED = st.one_of(
    st.tuples(st.one_of(SPACES, SPACES.map(needs.each_row)), SCOPES),
    st.tuples(SPACES, st.just(ANYWHERE)),
    st.tuples(
        st.sampled_from(sorted(VariableCapability)).map(needs.variable),
        st.builds(lambda name, path: Scope(namespace=name, variable=path), NAMES, st.sampled_from(["app", "app/db"])),
    ),
    st.tuples(
        st.sampled_from(sorted(NodePoolCapability)).map(needs.node_pool), NAMES.map(lambda name: Scope(node_pool=name))
    ),
    st.tuples(
        st.sampled_from(sorted(HostVolumeMountCapability)).map(needs.host_volume),
        NAMES.map(lambda name: Scope(host_volume=name)),
    ),
    st.tuples(st.sampled_from(sorted(OperatorCapability)).map(needs.operator), st.just(ANYWHERE)),
    st.tuples(
        st.builds(AtLevel, area=st.sampled_from(sorted(set(Area) - {Area.PLUGIN})),
                  level=st.sampled_from([Level.READ, Level.WRITE])),
        st.just(ANYWHERE),
    ),
    st.tuples(st.sampled_from([needs.PLUGIN_LIST, needs.PLUGIN_READ]), st.just(ANYWHERE)),
    st.tuples(st.builds(needs.any_of, SPACES, st.just(needs.NODE_READ)), SCOPES),
    st.tuples(st.builds(needs.all_of, SPACES, st.just(needs.PLUGIN_READ)), SCOPES),
)  # fmt: skip


@settings(max_examples=cases(300))
@given(st.lists(SCOPED, max_size=7))
def test_the_policy_allows_each_need_and_without_any_right_one_is_refused(
    asked: list[tuple[Need, Scope]],
) -> None:
    found = suggest(Requirement(*each) for each in asked)
    oracle = Oracle(frozenset(found.rights))
    compiled = Rights(AuthenticationLevel.KNOWN, CompiledPolicies([parse_policy("p", found.text)]))
    assert not found.ungrantable
    for each in asked:
        assert oracle.allows(*each), each
        assert compiled.allows(*each), (each, found.text)
    for right in found.rights:
        rest = Oracle(frozenset(found.rights) - {right})
        assert not all(rest.allows(*each) for each in asked), (right, found.text)


def test_the_weakest_way_is_taken_unless_another_one_is_there_already() -> None:
    register = Requirement(needs.namespace(Capability.SUBMIT_JOB, Capability.REGISTER_JOB), Scope(namespace="prod"))
    only_submit = Requirement(needs.namespace(Capability.SUBMIT_JOB), Scope(namespace="prod"))
    assert [right.word for right in suggest([register]).rights] == ["register-job"]
    assert [right.word for right in suggest([register, only_submit]).rights] == ["submit-job"]


def test_what_only_management_may_do_is_told_apart() -> None:
    asked = [Requirement(needs.MANAGEMENT, ANYWHERE), Requirement(needs.NODE_READ, ANYWHERE)]
    found = suggest(asked)
    assert found.ungrantable == (asked[0],)
    assert found.text == 'node {\n  policy = "read"\n}\n'


@pytest.mark.parametrize("need", [needs.ANONYMOUS, needs.AUTHENTICATED, EachRow(need=needs.MANAGEMENT)])
def test_what_every_token_may_do_needs_no_rule(need: Need) -> None:
    found = suggest([Requirement(need, ANYWHERE)])
    assert (found.rights, found.text, found.ungrantable) == ((), "", ())


def test_a_label_that_hides_a_glob_gets_what_the_glob_gave() -> None:
    everywhere = Requirement(needs.namespace(Capability.LIST_JOBS), ANYWHERE)
    choice = Requirement(needs.namespace(Capability.LIST_JOBS, Capability.READ_JOB), Scope(namespace="prod"))
    exact = Requirement(needs.namespace(Capability.SUBMIT_JOB), Scope(namespace="prod"))
    found = suggest([everywhere, choice, exact])
    assert Right("namespace", "prod", "submit-job") in found.rights
    assert len([right for right in found.rights if right.label == "prod"]) == 2


def test_the_text_is_written_as_people_write_it() -> None:
    rights = (
        Right("namespace", "prod", "read-job"), Right("namespace", "prod", "list-jobs"),
        Right("path", "prod\0app/db", "read"), Right("path", "dev\0a", "write"), Right("node_pool", "gpu", "read"),
        Right("operator", "", "read"), Right("operator", "", "snapshot-save"),
    )  # fmt: skip
    assert policy_text(rights) == (
        'namespace "dev" {\n  variables {\n    path "a" {\n      capabilities = ["write"]\n    }\n  }\n}\n\n'
        'namespace "prod" {\n  capabilities = ["list-jobs", "read-job"]\n\n  variables {\n    path "app/db" {\n'
        '      capabilities = ["read"]\n    }\n  }\n}\n\n'
        'node_pool "gpu" {\n  capabilities = ["read"]\n}\n\n'
        'operator {\n  policy = "read"\n  capabilities = ["snapshot-save"]\n}\n'
    )


def of_namespace(need: Need) -> list[set[str]]:
    """The capabilities of each leaf in a namespace."""
    parts = getattr(need, "needs", None) or ([need.need] if isinstance(need, EachRow) else [])
    return (
        [set(need.capabilities)] if isinstance(need, InNamespace) else [x for part in parts for x in of_namespace(part)]
    )


@pytest.mark.parametrize(("strong", "weak"), [(strong, weak) for strong, many in PASSES.items() for weak in many])
def test_a_capability_passes_every_route_that_another_one_passes(strong: str, weak: str) -> None:
    found = [leaf for route in ROUTES for leaf in of_namespace(route.needs) if weak in leaf]
    assert found
    assert all(strong in leaf for leaf in found), found
