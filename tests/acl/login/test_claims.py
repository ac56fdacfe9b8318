"""Claims under their mapped names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.acl.login.claims import ITEMS_MAX, TEXT_MAX, find_claim, mapped_claims
from yurt.sdk.errors import PermissionDenied
from yurt.structs.acl import ACLAuthMethodConfig

GITHUB = {
    "iss": "https://token.actions.githubusercontent.com", "sub": "repo:acme/shop:ref:refs/heads/main",
    "aud": "https://yurt.example", "repository": "acme/shop", "ref": "refs/heads/main", "run_attempt": "1",
    "job_workflow_ref": "acme/shop/.github/workflows/deploy.yml@refs/heads/main",
}  # fmt: skip
KUBERNETES = {
    "iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:prod:web", "aud": ["yurt"],
    "kubernetes.io": {"namespace": "prod", "serviceaccount": {"name": "web", "uid": "u1"}},
}  # fmt: skip
SHAPES = {
    "t": "text", "yes": True, "no": False, "n": 7, "f": 3.9, "minus": -3.9, "big": 2**60, "a": ["x", 1], "null": None,
    "o": {"deep": [{"k": "v"}, "w"]}, "a/b": "slash", "a~b": "tilde", "e": "", "nested": [["x"], "", "y", 2, True],
}  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        ("t", "text"), ("yes", "true"), ("no", "false"), ("n", "7"), ("f", "3"), ("minus", "-3"), ("e", ""),
        ("big", str(2**60)), ("a", '["x",1]'), ("/t", "text"), ("/o/deep/0/k", "v"), ("/o/deep/1", "w"),
        ("/a~1b", "slash"), ("/a~0b", "tilde"), ("a/b", "slash"),
    ],
)  # fmt: skip
def test_a_claim_becomes_a_text(claim: str, text: str) -> None:
    assert mapped_claims(ACLAuthMethodConfig(claim_mappings={claim: "x"}), SHAPES).values == {"x": text}


@pytest.mark.parametrize(
    "claim", ["missing", "null", "/missing", "/o/deep/2", "/o/deep/-1", "/o/deep/x", "/t/0", "/", "", "/o/deep/\u0660"]
)
def test_a_missing_claim_is_left_out(claim: str) -> None:
    config = ACLAuthMethodConfig(claim_mappings={claim: "x"}, list_claim_mappings={claim: "x"})
    assert mapped_claims(config, SHAPES) == ({}, {})


@pytest.mark.parametrize(
    ("claim", "items"),
    [("a", ("x", "1")), ("t", ("text",)), ("n", ("7",)), ("e", ()), ("nested", ('["x"]', "y", "2", "true"))],
)
def test_a_claim_becomes_a_list(claim: str, items: tuple[str, ...]) -> None:
    assert mapped_claims(ACLAuthMethodConfig(list_claim_mappings={claim: "x"}), SHAPES).lists == {"x": items}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"k": 1}, "error converting claim 'c' to string from unknown type object"),
        ("x" * (TEXT_MAX + 1), "claim 'c' is longer than"),
        (float("inf"), "claim 'c' is not a finite number"),
        (float("nan"), "claim 'c' is not a finite number"),
    ],
)
def test_a_claim_that_has_no_text_ends_the_login(value: object, problem: str) -> None:
    for config in (ACLAuthMethodConfig(claim_mappings={"c": "x"}), ACLAuthMethodConfig(list_claim_mappings={"c": "x"})):
        with pytest.raises(PermissionDenied, match=problem) as refused:
            mapped_claims(config, {"c": value})
        assert refused.value.status == 401


@pytest.mark.parametrize(
    ("items", "problem"),
    [([{}], "unknown type object"), ([None], "unknown type null"), (["x"] * (ITEMS_MAX + 1), "has more")],
)
def test_a_list_with_an_unusable_item_ends_the_login(items: list[object], problem: str) -> None:
    with pytest.raises(PermissionDenied, match=problem):
        mapped_claims(ACLAuthMethodConfig(list_claim_mappings={"c": "x"}), {"c": items})


def test_tokens_of_github_and_kubernetes_are_mapped() -> None:
    github = ACLAuthMethodConfig(claim_mappings={"repository": "repo", "ref": "ref"})
    kubernetes = ACLAuthMethodConfig(
        claim_mappings={"/kubernetes.io/namespace": "namespace", "/kubernetes.io/serviceaccount/name": "account"}
    )
    assert mapped_claims(github, GITHUB).values == {"repo": "acme/shop", "ref": "refs/heads/main"}
    assert mapped_claims(kubernetes, KUBERNETES).values == {"namespace": "prod", "account": "web"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, width=32) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(claims=st.dictionaries(st.text(), JSON, max_size=4), data=st.data())
def test_any_claim_is_mapped_left_out_or_refused(claims: dict[str, object], data: st.DataObject) -> None:
    claim = data.draw(st.sampled_from(sorted(claims)) if claims else st.text())
    pointer = "/" + claim.replace("~", "~0").replace("/", "~1")
    assert find_claim(claims, pointer) == claims.get(claim)
    try:
        mapped = mapped_claims(
            ACLAuthMethodConfig(claim_mappings={pointer: "v"}, list_claim_mappings={pointer: "l"}), claims
        )
    except PermissionDenied:
        return
    assert all(isinstance(text, str) for text in (*mapped.values.values(), *mapped.lists.get("l", ())))
    assert ("v" in mapped.values) == (claims.get(claim) is not None)
    msgspec.json.encode(mapped)
