"""Decisions of compiled policies are those of a slow reading of the rules, for random policies and names.

The oracle takes each policy as written and walks the reference's section 2.2 step by step: it unites nothing before,
and matches globs by trying every way to cut a name.
"""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from yurt.access import ANYWHERE, Decision, Scope, needs
from yurt.access.needs import Capability, VariableCapability
from yurt.acl import AuthenticationLevel, CompiledPolicies, Rights, Workload, decide, parse_policy
from yurt.acl.globs import Labels, matcher

Written = tuple[str, str, tuple[str, ...]]
"""(namespace, path or "", capabilities); without a path a block of the namespace."""


@cache
def covers(glob: str, name: str) -> bool:
    if not glob:
        return not name
    if glob[0] == "*":
        return any(covers(glob[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and glob[0] == name[0] and covers(glob[1:], name[1:])


def distance(glob: str, name: str) -> int:
    return len(name) - len(glob) + glob.count("*")


def deciding_label(labels: set[str], name: str) -> str | None:
    if name in labels and "*" not in name:
        return name
    globs = [label for label in labels if "*" in label and covers(label, name)]
    return min(sorted(globs, reverse=True), key=lambda glob: distance(glob, name), default=None)


def capabilities_of(blocks: list[tuple[str, tuple[str, ...]]], label: str | None) -> set[str]:
    found = {capability for written, named in blocks if written == label for capability in named}
    return set() if "deny" in found else found


def allowed(blocks: list[tuple[str, tuple[str, ...]]], name: str, capability: str) -> bool:
    label = deciding_label({written for written, _ in blocks}, name)
    return label is not None and capability in capabilities_of(blocks, label)


TEXTS = st.text("ab-*", min_size=1, max_size=5)
NAMES = st.text("ab-", min_size=1, max_size=6)
NAMESPACE_CAPABILITIES = st.lists(st.sampled_from(["deny", "read-job", "list-jobs", "submit-job"]), max_size=3)
PATH_CAPABILITIES = st.lists(st.sampled_from(["deny", "list", "write", "destroy"]), min_size=1, max_size=3)
BLOCKS = st.tuples(TEXTS, st.just(""), NAMESPACE_CAPABILITIES.map(tuple))
PATHS = st.tuples(TEXTS, st.text("ab/*", min_size=1, max_size=5).filter(lambda path: path[0] != "/"),
                  PATH_CAPABILITIES.map(tuple))  # fmt: skip
POLICIES = st.lists(st.lists(st.one_of(BLOCKS, PATHS), min_size=1, max_size=4), max_size=4)


def text_of(blocks: list[Written]) -> str:
    lines = []
    for namespace, path, named in blocks:
        inner = "capabilities = [" + ", ".join(f'"{each}"' for each in named) + "]"
        if path:
            inner = f'variables {{ path "{path}" {{ {inner} }} }}'
        lines.append(f'namespace "{namespace}" {{ {inner} }}')
    return "\n".join(lines)


def rights_of(policies: list[list[Written]], workload: Workload | None = None) -> Rights:
    compiled = CompiledPolicies(parse_policy(f"p{at}", text_of(blocks)) for at, blocks in enumerate(policies))
    return Rights(AuthenticationLevel.KNOWN, compiled, workload=workload)


@given(POLICIES, NAMES, st.sampled_from([Capability.READ_JOB, Capability.LIST_JOBS, Capability.SUBMIT_JOB]))
def test_a_namespace_is_decided_as_the_rules_say(
    policies: list[list[Written]], name: str, expected: Capability
) -> None:
    # A block of variables counts as a block of its namespace without capabilities.
    blocks = [(space, () if path else named) for each in policies for space, path, named in each]
    rights = rights_of(policies)
    need, scope = needs.namespace(expected), Scope(namespace=name)
    assert rights.allows(need, scope) is allowed(blocks, name, expected)
    label = deciding_label({written for written, _ in blocks}, name)
    assert rights.allows(needs.ANY_CAPABILITY, scope) is bool(capabilities_of(blocks, label))


@given(POLICIES, st.sampled_from([Capability.READ_JOB, Capability.SUBMIT_JOB]))
def test_anywhere_means_that_some_rule_grants(policies: list[list[Written]], capability: Capability) -> None:
    blocks = [(space, () if path else named) for each in policies for space, path, named in each]
    expected = any(capability in capabilities_of(blocks, label) for label, _ in blocks)
    assert rights_of(policies).allows(needs.namespace(capability), ANYWHERE) is expected


@given(
    POLICIES, NAMES, st.text("ab/", min_size=1, max_size=6), st.sampled_from(list(VariableCapability)), st.booleans()
)
def test_a_variable_is_decided_as_the_rules_say(
    policies: list[list[Written]], name: str, path: str, capability: VariableCapability, is_own: bool
) -> None:
    blocks = [(f"{space}\0{path}", named) for each in policies for space, path, named in each if path]
    workload = Workload(namespace=name, job="web", group="g", task="t") if is_own else None
    path = "nomad/jobs/web/g" if is_own else path
    expected = allowed(blocks, f"{name}\0{path}", capability)
    has_exact = any(label == f"{name}\0{path}" for label, _ in blocks)
    if is_own and not has_exact and capability in ("list", "read"):
        expected = True
    rights = rights_of(policies, workload)
    need = needs.variable(capability)
    assert rights.allows(need, Scope(namespace=name, variable=path)) is expected
    if expected:
        # What the dispatcher asks before the row is known lets through whoever may do it somewhere.
        assert rights.allows(need, Scope(variable=path))
        assert rights.allows(need, Scope(namespace=name))
        assert rights.allows(need, ANYWHERE)


@given(POLICIES, NAMES, st.sampled_from([Capability.READ_JOB, Capability.SUBMIT_JOB]))
def test_everywhere_means_in_every_namespace(policies: list[list[Written]], name: str, expected: Capability) -> None:
    rights, need = rights_of(policies), needs.namespace(expected)
    if rights.allows_everywhere(need):
        assert rights.allows(need, Scope(namespace=name))


@given(POLICIES, st.lists(st.frozensets(NAMES, max_size=4), min_size=1, max_size=4))
def test_the_namespaces_allowed_are_those_that_are_allowed_one_by_one(
    policies: list[list[Written]], asked: list[frozenset[str]]
) -> None:
    rights, read, submit = (
        rights_of(policies),
        needs.namespace(Capability.READ_JOB),
        needs.namespace(Capability.SUBMIT_JOB),
    )
    for names in asked:
        for need in (read, submit):
            expected = {name for name in names if rights.allows(need, Scope(namespace=name))}
            assert rights.namespaces_allowed(need, names) == expected


@given(POLICIES, NAMES)
def test_the_order_of_policies_decides_nothing(policies: list[list[Written]], name: str) -> None:
    need, scope = needs.namespace(Capability.READ_JOB), Scope(namespace=name)
    once, turned = rights_of(policies), rights_of(policies[::-1])
    assert once.allows(need, scope) is turned.allows(need, scope)


@given(st.text("ab*", max_size=6).filter(lambda glob: "*" in glob), st.text("ab", max_size=8))
def test_a_glob_matches_what_some_cut_of_the_name_matches(glob: str, name: str) -> None:
    assert matcher(glob)(name) is covers(glob, name)


@given(st.lists(st.text("ab*", min_size=1, max_size=5), unique=True), st.lists(NAMES, max_size=3))
def test_the_nearest_label_decides(labels: list[str], names: list[str]) -> None:
    table = Labels({label: label for label in labels})
    for name in (*names, *names):
        assert table.find(name) == deciding_label(set(labels), name)


def test_a_reason_names_policy_and_rule() -> None:
    text = '\nnamespace "prod-*" {\n  policy = "read"\n  capabilities = ["submit-job"]\n}\n'
    rights = Rights(AuthenticationLevel.KNOWN, CompiledPolicies([parse_policy("ops", text)]))

    def why(capability: Capability, name: str) -> Decision:
        return decide(rights, needs.namespace(capability), Scope(namespace=name))

    assert why(Capability.READ_JOB, "prod-a").reason == (
        'read-job: namespace "prod-*" { policy = "read" } (policy "ops", line 3)'
    )
    assert why(Capability.SUBMIT_JOB, "prod-a").reason.endswith(
        'capabilities = ["submit-job"] } (policy "ops", line 4)'
    )
    assert why(Capability.READ_LOGS, "prod-a").reason.startswith('read-logs is not granted for namespace "prod-a"')
    assert why(Capability.READ_JOB, "dev").reason == 'no rule matches namespace "dev"'
