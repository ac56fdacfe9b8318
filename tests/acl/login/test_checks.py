"""The values of claims against what a login method demands."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.acl.login.checks import checked_id_token, checked_jwt, is_redirect_allowed
from yurt.sdk.errors import Invalid, PermissionDenied
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano
from yurt.structs.acl import ACLAuthMethod, ACLAuthMethodConfig

S = 1_700_000_000
NOW = UnixNano(S * NANOSECONDS)
ISSUER = "https://id.example"
NOT_BOUND = "invalid JWT audience: none of the method's bound audiences"
ID_TOKEN = {"iss": ISSUER, "sub": "alice", "aud": "client", "nonce": "n1", "iat": S, "exp": S + 300}


def seconds(value: int) -> Duration:
    return Duration(value * NANOSECONDS)


def jwt(**config: object) -> ACLAuthMethod:
    return ACLAuthMethod(name="ci", type="JWT", config=ACLAuthMethodConfig(**config))  # type: ignore[arg-type]


def oidc(**config: object) -> ACLAuthMethod:
    made = ACLAuthMethodConfig(oidc_discovery_url=ISSUER, oidc_client_id="client", **config)  # type: ignore[arg-type]
    return ACLAuthMethod(name="sso", type="OIDC", config=made)


def problem_of_jwt(claims: Mapping[str, object], **config: object) -> str:
    try:
        checked_jwt(jwt(**config), claims, NOW)
    except PermissionDenied as error:
        assert error.status == 401
        return str(error).removeprefix("unable to validate provided token: ")
    return ""


def problem_of_id_token(changes: Mapping[str, object], nonce: str = "n1", **config: object) -> str:
    claims = {name: value for name, value in {**ID_TOKEN, **changes}.items() if value is not None}
    try:
        checked_id_token(oidc(**config), claims, nonce=nonce, now=NOW)
    except PermissionDenied as error:
        return str(error).removeprefix("unable to validate provided token: ")
    return ""


@pytest.mark.parametrize(
    ("claims", "config", "problem"),
    [
        # No bounds on issuer and audience.
        ({"exp": S + 1}, {}, ""),
        ({"exp": S + 1, "iss": "a", "aud": "b"}, {}, ""),
        # Issuers: one of the list, and required then.
        ({"exp": S + 1, "iss": "b"}, {"bound_issuer": ("a", "b")}, ""),
        ({"exp": S + 1, "iss": "c"}, {"bound_issuer": ("a", "b")}, "invalid JWT issuer: c"),
        ({"exp": S + 1}, {"bound_issuer": ("a",)}, "invalid JWT issuer: "),
        ({"exp": S + 1, "iss": ["a"]}, {"bound_issuer": ("a",)}, "invalid JWT issuer: ['a']"),
        # Audiences: any of the list.
        ({"exp": S + 1, "aud": "b"}, {"bound_audiences": ("a", "b")}, ""),
        ({"exp": S + 1, "aud": ["x", "b"]}, {"bound_audiences": ("a", "b")}, ""),
        ({"exp": S + 1, "aud": ["x"]}, {"bound_audiences": ("a",)}, NOT_BOUND),
        ({"exp": S + 1}, {"bound_audiences": ("a",)}, NOT_BOUND),
        ({"exp": S + 1, "aud": {"a": 1}}, {"bound_audiences": ("a",)}, "the audience is not a text or a list of texts"),
        ({"exp": S + 1, "aud": ["a", 1]}, {"bound_audiences": ("a",)}, "the audience is not a text or a list of texts"),
    ],
)  # fmt: skip
def test_issuer_and_audience_of_a_jwt(claims: dict[str, object], config: dict[str, object], problem: str) -> None:
    assert problem_of_jwt(claims, **config) == problem


EXPIRED, EARLY, FUTURE = "token is expired", "token is not valid yet", "token was issued in the future"
NO_SKEW = {"clock_skew_leeway": Duration(-1)}


@pytest.mark.parametrize(
    ("claims", "config", "problem"),
    [
        ({}, {}, "at least one of the claims iat, nbf and exp must be set"),
        ({"exp": 0, "iat": None}, {}, "at least one of the claims iat, nbf and exp must be set"),
        # 60 s of clock skew unless configured; negative is none.
        ({"exp": S - 60}, {}, ""),
        ({"exp": S - 61}, {}, EXPIRED),
        ({"exp": S}, NO_SKEW, ""),
        ({"exp": S - 1}, NO_SKEW, EXPIRED),
        ({"exp": S - 10}, {"clock_skew_leeway": seconds(10)}, ""),
        ({"exp": S - 11}, {"clock_skew_leeway": seconds(10)}, EXPIRED),
        ({"nbf": S + 60, "exp": S + 900}, {}, ""),
        ({"nbf": S + 61, "exp": S + 900}, {}, EARLY),
        ({"iat": S + 61, "nbf": S, "exp": S + 900}, {}, FUTURE),
        # A missing exp: the later of iat and nbf, and 150 s.
        ({"iat": S - 150}, NO_SKEW, ""),
        ({"iat": S - 151}, NO_SKEW, EXPIRED),
        ({"iat": S - 900, "nbf": S - 150}, NO_SKEW, ""),
        ({"iat": S - 1}, {**NO_SKEW, "expiration_leeway": Duration(-1)}, EXPIRED),
        ({"iat": S - 5}, {**NO_SKEW, "expiration_leeway": seconds(5)}, ""),
        # A missing nbf: iat, else 150 s before exp.
        ({"exp": S + 150}, NO_SKEW, ""),
        ({"exp": S + 151}, NO_SKEW, EARLY),
        ({"exp": S + 900, "iat": S}, NO_SKEW, ""),
        ({"exp": S + 1}, {**NO_SKEW, "not_before_leeway": Duration(-1)}, EARLY),
        # What is no time.
        ({"exp": "soon"}, {}, "the claim exp is not a time in seconds"),
        ({"exp": True}, {}, "the claim exp is not a time in seconds"),
        ({"exp": 1e300}, {}, "the claim exp is not a time in seconds"),
        ({"exp": float("nan")}, {}, "the claim exp is not a time in seconds"),
        ({"exp": S + 1, "iat": -5}, {}, "the claim iat is not a time in seconds"),
        ({"exp": S + 0.5}, NO_SKEW, ""),
    ],
)
def test_times_of_a_jwt(claims: dict[str, object], config: dict[str, object], problem: str) -> None:
    assert problem_of_jwt(claims, **config) == problem


TIMES = st.none() | st.integers(S - 400, S + 400)


@given(issued=TIMES, begins=TIMES, ends=TIMES)
def test_an_accepted_jwt_is_within_all_its_times(issued: int | None, begins: int | None, ends: int | None) -> None:
    if problem_of_jwt({"iat": issued, "nbf": begins, "exp": ends}):
        return
    assert all(start <= S + 60 for start in (issued, begins) if start is not None)
    last = ends if ends is not None else max(each for each in (issued, begins) if each is not None) + 150
    assert last + 60 >= S


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"iss": ISSUER + "/"}, f"invalid issuer: {ISSUER}/"),
        ({"iss": None}, "invalid issuer: "),
        ({"sub": None}, "the ID token has no subject"),
        ({"nonce": "n2"}, "invalid nonce"),
        ({"nonce": None}, "invalid nonce"),
        ({"aud": "other"}, "invalid audience"),
        ({"aud": None}, "invalid audience"),
        ({"aud": ["client"]}, ""),
        ({"azp": "client"}, ""),
        ({"azp": "other"}, "the authorized party (azp) is not the client of the method"),
        ({"aud": ["client", "x"]}, "the authorized party (azp) is not the client of the method"),
        ({"aud": ["client", "x"], "azp": "client"}, ""),
        ({"exp": None}, "the ID token has no expiration time"),
        ({"exp": S - 1}, EXPIRED),
        ({"exp": S}, ""),
        ({"iat": S + 60}, ""),
        ({"iat": S + 61}, FUTURE),
        ({"nbf": S + 61}, EARLY),
    ],
)
def test_values_of_an_id_token(changes: dict[str, object], problem: str) -> None:
    assert problem_of_id_token(changes) == problem


def test_bound_audiences_stand_for_the_client_and_need_its_azp() -> None:
    assert problem_of_id_token({"aud": "api", "azp": "client"}, bound_audiences=("api",)) == ""
    assert "azp" in problem_of_id_token({"aud": "api"}, bound_audiences=("api",))
    assert problem_of_id_token({}, bound_audiences=("api",)) == "invalid audience"


def test_an_empty_nonce_never_matches() -> None:
    assert problem_of_id_token({"nonce": ""}, nonce="") == "invalid nonce"


def test_user_info_adds_claims_but_neither_issuer_nor_subject() -> None:
    info = {"sub": "alice", "iss": "https://evil", "groups": ["ops"], "nonce": "other"}
    checked = checked_id_token(oidc(), ID_TOKEN, nonce="n1", now=NOW, user_info=info)
    assert checked.claims == {**ID_TOKEN, "groups": ["ops"], "nonce": "other"}
    with pytest.raises(PermissionDenied, match="another subject"):
        checked_id_token(oidc(), ID_TOKEN, nonce="n1", now=NOW, user_info={**info, "sub": "bob"})


def test_a_method_of_another_type_checks_nothing() -> None:
    with pytest.raises(Invalid, match="unsupported auth-method type: OIDC"):
        checked_jwt(oidc(), {"exp": S + 1}, NOW)
    with pytest.raises(Invalid, match="unsupported auth-method type: JWT"):
        checked_id_token(jwt(), ID_TOKEN, nonce="n1", now=NOW)


@pytest.mark.parametrize(
    ("uri", "is_allowed"),
    [
        ("https://yurt.example/callback", True),
        ("https://yurt.example/callback/", False),
        ("https://yurt.example:8443/callback", False),
        ("http://localhost:4649/oidc/callback", True),
        ("http://localhost:50000/oidc/callback", True),
        ("http://localhost/oidc/callback", True),
        ("https://localhost:4649/oidc/callback", False),
        ("http://127.0.0.1:4649/oidc/callback", False),
        ("http://localhost:4649/other", False),
        ("http://user@localhost:4649/oidc/callback", False),
        ("http://localhost.evil:4649/oidc/callback", False),
        ("http://localhost:port/oidc/callback", False),
        ("http://[", False),
    ],
)
def test_redirects_are_exact_but_for_the_port_of_a_loopback_host(uri: str, is_allowed: bool) -> None:
    allowed = ("https://yurt.example/callback", "http://localhost:4649/oidc/callback")
    assert is_redirect_allowed(ACLAuthMethodConfig(allowed_redirect_uris=allowed), uri) is is_allowed


def test_without_a_list_of_redirects_any_is_allowed() -> None:
    assert is_redirect_allowed(ACLAuthMethodConfig(), "https://anything.example")


def test_discovered_keys_are_for_the_issuer_that_led_to_them() -> None:
    found = jwt(oidc_discovery_url=ISSUER)
    assert checked_jwt(found, {"iss": ISSUER, "iat": 1, "exp": 4_000_000_000}, NOW)
    with pytest.raises(PermissionDenied, match="invalid JWT issuer: https://other"):
        checked_jwt(found, {"iss": "https://other", "iat": 1, "exp": 4_000_000_000}, NOW)
    listed = jwt(oidc_discovery_url=ISSUER, bound_issuer=("https://other",))
    assert checked_jwt(listed, {"iss": "https://other", "iat": 1, "exp": 4_000_000_000}, NOW)
