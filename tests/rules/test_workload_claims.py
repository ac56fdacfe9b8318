"""What identities of tasks say."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.rules import workload_claims as w
from yurt.rules.namespaces import configuration_problems
from yurt.rules.validation.identity import unknown_claims
from yurt.sdk.value import NANOSECONDS, UnixNano, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace
from yurt.structs.service import WorkloadIdentity
from yurt.testing import factories

NOW = UnixNano(1_700_000_000 * NANOSECONDS)
SIGNING = w.Signing(region="eu", issuer="https://nomad.example", now=NOW, token_id="t")
NODE = replace(factories.node(), id="n1", node_pool="gpu", node_class="big", datacenter="dc2")


def alloc(**job: Any) -> Allocation:
    made = replace(factories.job(), **job)
    return replace(factories.alloc(), job=made, job_id=made.id, task_group="g", namespace="prod")


def claims(identity: WorkloadIdentity, of: Allocation | None = None, **extra: str) -> dict[str, Any]:
    return w.workload_claims(of or alloc(), "t", identity, signing=SIGNING, extra=extra)


def test_the_default_identity_has_a_fixed_audience_and_no_end() -> None:
    made = claims(WorkloadIdentity(audience=("vault.example",)))
    assert (made["aud"], made["sub"], made["iss"]) == (
        "nomadproject.io", "eu:prod:web:g:t:default", "https://nomad.example"
    )  # fmt: skip
    assert "exp" not in made and "extra_claims" not in made
    assert made["iat"] == made["nbf"] == NOW // NANOSECONDS


def test_an_extra_claim_that_the_namespace_does_not_offer_is_warned_of() -> None:
    namespace = Namespace(name="prod", optional_extra_claims={"team": "a"}, required_extra_claims={"region": "eu"})
    identity = WorkloadIdentity(name="vault", extra_claims=("team", "region", "taem"))
    task = replace(factories.task(), identities=(identity,))
    assert list(unknown_claims(task, namespace)) == [
        'Identity "vault": extra claim "taem" is none of the optional ones of namespace "prod", so tokens come without '
        'it (did you mean "team"?)'
    ]


def test_without_an_issuer_there_is_no_claim_of_one() -> None:
    silent = replace(SIGNING, issuer="")
    assert "iss" not in w.workload_claims(alloc(), "t", WorkloadIdentity(), signing=silent, extra={})


@pytest.mark.parametrize(
    ("audience", "expected"), [((), None), (("a",), "a"), (("a", "b"), ["a", "b"])]
)  # fmt: skip
def test_another_identity_has_its_own_audience(audience: tuple[str, ...], expected: object) -> None:
    made = claims(WorkloadIdentity(name="aws", audience=audience, ttl=seconds(90)))
    assert made.get("aud") == expected
    assert made["exp"] - made["iat"] == 90


def test_children_speak_for_their_parent() -> None:
    child = alloc(id="web/dispatch-1-a", parent_id="web")
    made = claims(WorkloadIdentity(), child)
    assert (made["nomad_job_id"], made["sub"]) == ("web", "eu:prod:web:g:t:default")


def test_extra_claims_are_those_of_the_namespace() -> None:
    namespace = Namespace(
        name="prod",
        required_extra_claims={"team": "payments", "where": "${job.region}/${node.pool}/${node.class}"},
        optional_extra_claims={"unit": "${job.meta.unit}", "secret": "x", "odd": "${job.meta.none} ${unknown}"},
    )
    of = alloc(meta={"unit": "42"})
    found = w.extra_claims(
        namespace,
        WorkloadIdentity(name="aws", extra_claims=("unit", "odd", "absent")),
        w.claim_lookup(of, "t", region="eu", node=NODE),
    )
    assert found == {
        "unit": "42", "odd": "${job.meta.none} ${unknown}", "team": "payments", "where": "eu/gpu/big",
    }  # fmt: skip
    assert claims(WorkloadIdentity(name="aws"), **found)["extra_claims"] == found
    assert w.extra_claims(None, WorkloadIdentity(extra_claims=("unit",)), lambda _: None) == {}


def test_an_optional_claim_overrides_no_required_one() -> None:
    namespace = Namespace(required_extra_claims={"team": "a"}, optional_extra_claims={"team": "b"})
    identity = WorkloadIdentity(extra_claims=("team",))
    assert w.extra_claims(namespace, identity, lambda _: None) == {"team": "a"}


def test_each_reference_is_known() -> None:
    of = alloc()
    lookup = w.claim_lookup(of, "t", region="eu", node=NODE)
    known = {
        "job.region": "eu", "job.namespace": "prod", "job.id": "web", "job.node_pool": "default", "group.name": "g",
        "alloc.id": of.id, "task.name": "t", "node.id": "n1", "node.datacenter": "dc2", "node.pool": "gpu",
        "node.class": "big",
    }  # fmt: skip
    assert {name: lookup(name) for name in known} == known
    without = w.claim_lookup(alloc(), "t", region="eu", node=None)
    assert (without("node.id"), without("node.pool"), without("vault.role")) == ("", "", None)


def test_claims_that_no_token_can_hold_are_refused_with_their_names() -> None:
    many = {f"c{number}": "" for number in range(33)}
    assert list(configuration_problems(Namespace(required_extra_claims=many))) == [
        "it has 33 extra claims; 32 are possible"
    ]
    odd = Namespace(required_extra_claims={"": "x", "a b": "x"}, optional_extra_claims={"long": "x" * 513})
    assert [text.split("'")[1] for text in configuration_problems(odd)] == ["", "a b", "long"]
