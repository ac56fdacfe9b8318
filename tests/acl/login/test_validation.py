"""What is wrong with a login method or a binding rule is told when it is written."""

from __future__ import annotations

import pytest
from yurt.acl.validation import check_auth_method, check_binding_rule
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, Duration
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig, ACLBindingRule

MINUTE = Duration(60 * NANOSECONDS)


def problem_of_rule(**changes: str) -> str:
    fields = {"auth_method": "ci", "bind_type": "policy", "bind_name": "ops", **changes}
    try:
        check_binding_rule(ACLBindingRule(**fields))  # type: ignore[arg-type]
    except Invalid as error:
        return str(error)
    return ""


def problem_of_method(name_format: str = "", **config: object) -> str:
    made = ACLAuthMethodConfig(jwks_url="https://id/keys", **config)  # type: ignore[arg-type]
    method = ACLAuthMethod(
        name="ci", type="JWT", token_locality="local", max_token_ttl=MINUTE, token_name_format=name_format, config=made
    )
    try:
        check_auth_method(method, min_ttl=MINUTE, max_ttl=MINUTE)
    except Invalid as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "selector", ["", "value.team == web", "any list.groups as g { g == ops }", '"x" in list["a b"]']
)
@pytest.mark.parametrize("bind_name", ["ops", "${value.team}", "team-${value.a.b}-rw"])
def test_a_rule_that_can_bind_is_stored(selector: str, bind_name: str) -> None:
    assert problem_of_rule(selector=selector, bind_name=bind_name) == ""


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        ("value.team ==", "the expression ends where a selector or a value is expected"),
        ("claims.team == web", "1:1 (0): 'claims' is not one of list, value"),
        ("value.team == a and Value.x == b", "1:21 (20): 'Value' is not one of list, value"),
        ("value.team matches `(?=a)`", "failed to compile regular expression"),
        ("value.team < 5", "expected an operator"),
        ("(" * 100 + "value.a == b", "nested deeper"),
    ],
)
def test_a_selector_that_cannot_be_read_is_refused(selector: str, text: str) -> None:
    found = problem_of_rule(selector=selector)
    assert "binding rule 0 invalid" in found and "selector is invalid: " in found and text in found


@pytest.mark.parametrize(
    ("bind_name", "text"),
    [
        ("${value.team", "bind name is invalid: the ${ at character 1 is not closed"),
        ("${team}", "bind name is invalid: team is unknown, only ${value.NAME} is possible"),
        ("${upper(value.team)}", "is not a variable"),
        ("a b", 'bind name is invalid: "a b" cannot become the name of a role or policy'),
        ("$${value.team}", "cannot become the name"),
        ("team_${value.team}", "cannot become the name"),
    ],
)
def test_a_bind_name_that_can_never_be_a_name_is_refused(bind_name: str, text: str) -> None:
    assert text in problem_of_rule(bind_name=bind_name)


@pytest.mark.parametrize(
    ("name_format", "text"),
    [
        ("", ""),
        ("${auth_method_type}-${auth_method_name}-${value.team}", ""),
        ("${value.other}", "invalid TokenNameFormat: no claim is mapped to value.other"),
        ("${", "invalid TokenNameFormat: the ${ at character 1 is not closed"),
    ],
)
def test_a_token_name_format_uses_mapped_claims(name_format: str, text: str) -> None:
    found = problem_of_method(name_format, claim_mappings={"team": "team"})
    assert text in found and bool(text) is bool(found)


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "hs512", "RS1", "", "rs256"])
def test_only_signatures_of_public_keys_are_configured(algorithm: str) -> None:
    assert f'unsupported signing algorithm "{algorithm}"' in problem_of_method(signing_algs=("RS256", algorithm))
    assert problem_of_method(signing_algs=("RS256", "ES384", "PS512", "EdDSA")) == ""


@pytest.mark.parametrize("field", ["claim_mappings", "list_claim_mappings"])
def test_two_claims_of_one_name_are_refused(field: str) -> None:
    found = problem_of_method(**{field: {"a": "x", "b": "x"}})
    assert 'claims "a" and "b" are both mapped to "x"' in found
