"""The decision cases of Nomad's reference, by their number there, as far as policies and identities decide them.

`NAMESPACE: LEVEL` and the other words follow the reference's table; `var N P [caps]` is a path of variables. Cases that
a route decides (which need it has) are tested with the routes. Where Yurt chooses the safe answer in the place of a
quirk, the row says so.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest
from yurt.access import ANYWHERE, Need, Scope, needs
from yurt.access.needs import (
    Capability,
    HostVolumeMountCapability,
    InNamespace,
    NodePoolCapability,
    OperatorCapability,
    VariableCapability,
)
from yurt.acl import AuthenticationLevel, CompiledPolicies, Rights, Workload, decide, parse_policy


def ns(name: str, level: str = "", caps: str = "") -> str:
    return _block(f'namespace "{name}"', level, caps)


def var(name: str, path: str, caps: str) -> str:
    return f'namespace "{name}" {{ variables {{ path "{path}" {{ capabilities = {_list(caps)} }} }} }}'


def block(head: str, level: str = "", caps: str = "") -> str:
    return _block(head, level, caps)


def _block(head: str, level: str, caps: str) -> str:
    policy = f'policy = "{level}"' if level else ""
    capabilities = f"capabilities = {_list(caps)}" if caps else ""
    return f"{head} {{\n{policy}\n{capabilities}\n}}"


def _list(caps: str) -> str:
    return "[" + ", ".join(f'"{each}"' for each in caps.split()) + "]"


def job(*capabilities: str) -> InNamespace:
    return needs.namespace(*map(Capability, capabilities))


def variable(capability: str) -> Need:
    return needs.variable(VariableCapability(capability))


class Case(NamedTuple):
    section: str
    policies: tuple[str, ...]
    allowed: tuple[tuple[Need, Scope], ...] = ()
    denied: tuple[tuple[Need, Scope], ...] = ()
    workload: Workload | None = None


def at(namespace: str, *capabilities: str) -> tuple[tuple[Need, Scope], ...]:
    return tuple((job(each), Scope(namespace=namespace)) for each in capabilities)


def on(namespace: str, path: str, *capabilities: str) -> tuple[tuple[Need, Scope], ...]:
    return tuple((variable(each), Scope(namespace=namespace, variable=path)) for each in capabilities)


def area(*expected: Need) -> tuple[tuple[Need, Scope], ...]:
    return tuple((each, ANYWHERE) for each in expected)


def operator(*expected: str) -> tuple[tuple[Need, Scope], ...]:
    return tuple((needs.operator(OperatorCapability(each)), ANYWHERE) for each in expected)


def pool(name: str, *expected: str) -> tuple[tuple[Need, Scope], ...]:
    return tuple((needs.node_pool(NodePoolCapability(each)), Scope(node_pool=name)) for each in expected)


def mount(name: str, *expected: str) -> tuple[Need, Scope]:
    return needs.host_volume(*map(HostVolumeMountCapability, expected)), Scope(host_volume=name)


PROD, ANY_NAMESPACE = Scope(namespace="prod"), needs.ANY_CAPABILITY
WEB = Workload(namespace="prod", job="web", group="g", task="t")
OWN = ("nomad/jobs", "nomad/jobs/web", "nomad/jobs/web/g", "nomad/jobs/web/g/t")
NOT_OWN = ("nomad/jobs/web/g/u", "nomad/jobs/web/g/t/x", "nomad/jobs/other")

CASES = (
    Case("9.1", (), denied=at("default", "read-job")),
    Case(
        "9.2", (ns("default", "read"),),
        at("default", "read-job", "parse-job", "host-volume-read"), at("default", "submit-job", "read-logs", "read-fs"),
    ),
    Case(
        "9.3", (ns("default", "write"),),
        at("default", "submit-job", "dispatch-job", "alloc-exec", "host-volume-create"),
    ),
    Case(
        "9.4", (ns("default", "write"),),
        denied=at(
            "default", "alloc-node-exec", "sentinel-override", "csi-register-plugin", "host-volume-register",
            "host-volume-delete",
        ),
    ),
    Case(
        "9.5", (ns("default", "write"),),
        tuple(
            (job("submit-job", each), Scope(namespace="default"))
            for each in ("purge-job", "gc-allocation", "revert-job", "tag-job-version")
        ),
    ),
    Case(
        "9.6", (ns("default", "scale"),),
        at("default", "scale-job", "read-job"), at("default", "list-jobs", "parse-job"),
    ),
    Case("9.7", (ns("d", "deny", "read-job"),), denied=at("d", "read-job")),
    Case("9.8", (ns("x", "write"), ns("x", "deny")), denied=at("x", "read-job")),
    Case("9.8 reversed", (ns("x", "deny"), ns("x", "write")), denied=at("x", "read-job")),
    Case("9.9", (ns("*", "write"), ns("x", "deny")), denied=at("x", "read-job")),
    Case("9.10", (ns("*", "deny"), ns("x", "read")), at("x", "read-job")),
    Case("9.11", (ns("*", "write"), ns("prod-*", "read")), denied=at("prod-api", "submit-job")),
    Case("9.12", (ns("*", "deny"), ns("prod-*", "write")), at("prod-api", "submit-job")),
    Case("9.13", (ns("*-prod-*", "deny"), ns("eu-*", "write")), denied=at("eu-prod-1", "submit-job")),
    Case(
        "9.14", (ns("a-*", caps="read-job"), ns("*-c", caps="list-jobs")),
        at("a-b-c", "read-job"), at("a-b-c", "list-jobs"),
    ),
    Case(
        "9.15", (ns("p*d", caps="read-job"), ns("pr*", caps="list-jobs"), ns("*od", caps="submit-job")),
        at("prod", "list-jobs"), at("prod", "read-job", "submit-job"),
    ),
    Case(
        "9.16", (ns("**", caps="read-job"), ns("*", caps="list-jobs")), at("prod", "read-job"), at("prod", "list-jobs")
    ),
    Case("9.17", (ns("*", "write"), var("prod", "a", "read")), denied=at("prod", "read-job", "submit-job")),
    Case("9.18", (ns("t-*", "read"), ns("t-*", caps="submit-job")), at("t-a", "read-job", "submit-job")),
    Case("9.19", (ns("prod-*", "read"),), at("prod-", "read-job"), at("prod", "read-job")),
    Case("9.20", (ns("ab*ba", "read"),), at("abba", "read-job"), at("aba", "read-job")),
    Case(
        "9.21", (ns("a", "read"), ns("b", "deny")), ((job("read-job"), ANYWHERE),), ((job("submit-job"), ANYWHERE),)
    ),
    Case(
        "9.22", (ns("a", "read"), ns("*", "deny")),
        ((job("list-jobs"), ANYWHERE), *at("a", "list-jobs")), at("b", "list-jobs"),
    ),
    Case(
        "9.23", (ns("a", caps="host-volume-write"),),
        at("a", "host-volume-register", "host-volume-create", "host-volume-delete", "host-volume-read"),
    ),
    Case(
        "9.24", (ns("a", caps="host-volume-register"),),
        at("a", "host-volume-create", "host-volume-read"), at("a", "host-volume-delete", "host-volume-write"),
    ),
    Case("9.25", (ns("prod", caps="read-logs"),), ((ANY_NAMESPACE, PROD),), ((ANY_NAMESPACE, Scope(namespace="dev")),)),
    Case("9.26", (var("prod", "a", "read"),), denied=((ANY_NAMESPACE, PROD), *at("prod", "read-job"))),
    Case("9.27", (var("prod", "a", "read"),), on("prod", "a", "read", "list"), on("prod", "a", "write", "destroy")),
    Case("9.28", (var("prod", "a", "write"),), on("prod", "a", "write"), on("prod", "a", "read", "destroy")),
    # Nomad allows it, because a denial of paths does not reach over policies. Here it does.
    Case("9.29 safe", (var("prod", "a", "deny"), var("prod", "a", "read")), denied=on("prod", "a", "read")),
    Case("9.30", (var("prod", "a", "read deny"),), denied=on("prod", "a", "read")),
    Case(
        "9.31", (var("prod", "a/*", "read"), var("prod", "a/b/*", "list")),
        on("prod", "a/b/c", "list"), on("prod", "a/b/c", "read"),
    ),
    Case("9.32", (var("prod", "*", "read"), var("prod", "a", "deny")), denied=on("prod", "a", "read")),
    Case("9.33", (var("prod", "*", "deny"), var("prod", "a/*", "read")), on("prod", "a/x", "read")),
    Case("9.34", (var("*", "secret", "read"), var("prod", "*", "deny")), on("prod", "secret", "read")),
    Case("9.35", (var("*", "app/secret", "deny"), var("prod", "app/secre*", "read")), on("prod", "app/secret", "read")),
    Case("9.36", (ns("prod", "deny"), var("prod", "*", "read")), on("prod", "a", "read")),
    Case(
        "9.37", (var("prod", "a/*", "read"), var("prod", "b*", "read")),
        (*on("prod", "a/x/y", "read"), *on("prod", "bc/d", "read")), on("prod", "a", "read"),
    ),
    Case("9.38", (), tuple(each for path in OWN for each in on("prod", path, "read", "list")), workload=WEB),
    Case(
        "9.39", (),
        denied=(
            *(each for path in NOT_OWN for each in on("prod", path, "read")),
            *on("default", "nomad/jobs/web", "read"),
            *on("prod", "nomad/jobs/web", "write", "destroy"),
        ),
        workload=WEB,
    ),
    Case("9.40", (var("prod", "nomad/*", "deny"),), on("prod", "nomad/jobs/web", "read"), workload=WEB),
    Case("9.41", (var("prod", "nomad/jobs/web", "deny"),), denied=on("prod", "nomad/jobs/web", "read"), workload=WEB),
    Case("9.42", (var("*", "nomad/jobs/web", "deny"),), on("prod", "nomad/jobs/web", "read"), workload=WEB),
    Case(
        "9.43", (var("prod", "nomad/jobs/web", "write"),),
        on("prod", "nomad/jobs/web", "write"), on("prod", "nomad/jobs/web", "read"), WEB,
    ),
    Case(
        "9.44", (var("prod", "nomad/jobs/web*", "write"),), on("prod", "nomad/jobs/web", "read", "write"), workload=WEB
    ),
    Case("9.45", (block("node", "read"), block("node", "deny")), denied=area(needs.NODE_READ)),
    Case("9.45 scale", (block("node", "scale"),), denied=area(needs.NODE_READ)),
    Case("9.46", (block("agent", "read"),), area(needs.AGENT_READ), area(needs.AGENT_WRITE)),
    Case(
        "9.47", (block("operator", "read"),),
        (*area(needs.OPERATOR_READ), *operator("keyring-read")),
        (*area(needs.OPERATOR_WRITE), *operator("keyring-rotate", "snapshot-save")),
    ),
    # Nomad allows it, because level `write` passes the check of a capability. Here a denial wins.
    Case(
        "9.48 safe", (block("operator", "write"), block("operator", caps="deny")),
        area(needs.OPERATOR_WRITE), operator("keyring-rotate"),
    ),
    Case("9.48 write", (block("operator", "write"),), operator("keyring-rotate", "snapshot-save", "keyring-delete")),
    Case(
        "9.49", (block("operator", "read"), block("operator", caps="deny")),
        area(needs.OPERATOR_READ), operator("keyring-read"),
    ),
    Case(
        "9.50", (block("operator", "deny"), block("operator", "write")),
        denied=(*area(needs.OPERATOR_READ, needs.OPERATOR_WRITE), *operator("snapshot-save")),
    ),
    Case(
        "9.50 capability", (block("operator", "deny"), block("operator", caps="snapshot-save")),
        denied=(*area(needs.OPERATOR_READ), *operator("snapshot-save")),
    ),
    Case("9.51", (block("plugin", "list"),), area(needs.PLUGIN_LIST), area(needs.PLUGIN_READ)),
    Case("9.51 read", (block("plugin", "read"),), area(needs.PLUGIN_LIST, needs.PLUGIN_READ)),
    Case("9.52", (block("plugin", "write"),), denied=area(needs.PLUGIN_LIST, needs.PLUGIN_READ)),
    Case(
        "9.52 united", (block("plugin", "read"), block("plugin", "write")),
        denied=area(needs.PLUGIN_LIST, needs.PLUGIN_READ),
    ),
    Case(
        "9.53", (block('node_pool "*"', "write"), block('node_pool "gpu-*"', "deny")),
        pool("cpu", "read", "write", "delete"), pool("gpu-1", "read", "write", "delete"),
    ),
    Case(
        "9.54", (ns("default", "write"), block('host_volume "data"', "read")),
        (mount("data", "mount-readonly", "mount-readwrite"),),
        (mount("data", "mount-readwrite"), mount("other", "mount-readonly")),
    ),
    Case(
        "9.55", (block('host_volume "data"', caps="mount-readwrite"),),
        (mount("data", "mount-readonly", "mount-readwrite"), mount("data", "mount-readwrite")),
        (mount("data", "mount-readonly"),),
    ),
    Case(
        "9.56", (ns("default", "write"), block("plugin", "read")),
        (*at("default", "csi-mount-volume"), *area(needs.PLUGIN_READ)), at("default", "csi-register-plugin"),
    ),
    Case(
        "9.57", (ns("default", caps="register-job"),),
        ((job("submit-job", "register-job"), Scope(namespace="default")),),
        (
            (job("scale-job", "submit-job"), Scope(namespace="default")),
            (job("submit-job", "plan-job"), Scope(namespace="default")),
            *at("default", "dispatch-job"),
        ),
    ),
    Case(
        "9.58", (ns("default", caps="submit-job"),),
        tuple(
            (job("submit-job", each), Scope(namespace="default"))
            for each in ("plan-job", "parse-job", "deregister-job")
        ),
        at("default", "dispatch-job", "read-job"),
    ),
    Case("9.59", (ns("default", "write"),), at("default", "alloc-exec"), at("default", "alloc-node-exec")),
    Case(
        "9.60", (ns("default", caps="read-logs"),),
        ((job("read-fs", "read-logs"), Scope(namespace="default")),), at("default", "read-fs", "read-job"),
    ),
    Case(
        "9.65", (),
        ((needs.WORKLOAD, PROD),),
        ((needs.WORKLOAD, Scope(namespace="other")), *at("prod", "read-job")),  # Nomad: services of any namespace.
        workload=WEB,
    ),
    Case("9.70", (block("node", "read"),), area(needs.NODE_READ), ((needs.WORKLOAD, PROD), *on("prod", "a", "read"))),
    # Nomad refuses the topic, because a rule for namespace "*" does not count for "default"; events are filtered.
    Case(
        "9.71", (var("*", "*", "read"),),
        ((variable("list"), Scope(namespace="default")), *on("default", "a", "list")),
    ),
    Case("9.71 prefix", (var("production", "a", "read"),), denied=((variable("list"), PROD),)),
    Case("2.1 quota", (block("quota", "write"),), area(needs.QUOTA_READ, needs.QUOTA_WRITE)),
    Case("2.1 quota read", (block("quota", "read"),), area(needs.QUOTA_READ), area(needs.QUOTA_WRITE)),
    Case("2.2 case", (ns("Prod", "read"),), denied=at("prod", "read-job")),
    Case("2.2 slash", (var("prod", "a*", "read"),), on("prod", "a/b/c", "read")),
    Case("2.2 denied somewhere", (ns("a", "deny"),), denied=((ANY_NAMESPACE, ANYWHERE),)),
    Case("2.2 service identity", (), on("prod", OWN[2], "read"), on("prod", OWN[3], "read"),
         Workload(namespace="prod", job="web", group="g")),
    Case(
        "1 sentinel", (block("sentinel", "write"), ns("a", "read")), at("a", "read-job"), at("a", "sentinel-override")
    ),
)  # fmt: skip


def rights_of(policies: tuple[str, ...], workload: Workload | None = None) -> Rights:
    compiled = CompiledPolicies(parse_policy(f"p{number}", text) for number, text in enumerate(policies))
    return Rights(AuthenticationLevel.KNOWN, compiled, workload=workload)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.section)
def test_a_case_is_decided_as_the_reference_says(case: Case) -> None:
    rights = rights_of(case.policies, case.workload)
    assert [each for each in case.allowed if not rights.allows(*each)] == []
    assert [each for each in case.denied if rights.allows(*each)] == []


AREA_BLOCKS = ("node {", "agent {", "operator {", "plugin {", "quota {", "sentinel {")
LABELLED = [case for case in CASES if not any(text.startswith(AREA_BLOCKS) for text in case.policies)]


@pytest.mark.parametrize("case", LABELLED, ids=lambda case: case.section)
def test_one_policy_with_all_blocks_says_the_same_as_several(case: Case) -> None:
    rights = rights_of(("\n".join(case.policies),), case.workload)
    assert [each for each in case.allowed if not rights.allows(*each)] == []
    assert [each for each in case.denied if rights.allows(*each)] == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.section)
def test_every_decision_names_a_reason(case: Case) -> None:
    rights = rights_of(case.policies, case.workload)
    for need, scope in (*case.allowed, *case.denied):
        decision = decide(rights, need, scope)
        assert decision.is_allowed is rights.allows(need, scope)
        assert decision.reason, (need, scope)
