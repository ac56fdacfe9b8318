"""Logins by OIDC: what the browser is sent, what comes back, and what a provider, a thief or an attacker may try."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from yurt.testing.login.provider import FakeProvider, hang, signed, signing_key
from yurt.testing.login.site import REDIRECT, Site

UNKNOWN = (500, "no OIDC request found for client nonce")


async def refused(site: Site, query: dict[str, str], code: str | None = None, **changes: str) -> tuple[int, str]:
    """Status and text of a login that is refused, and makes no token."""
    answer = await site.complete(query, code, **changes)
    assert answer.status >= 400 and site.tokens == 0, answer.text
    return answer.status, answer.text


async def test_a_login_leads_through_the_browser_to_a_token(site: Site) -> None:
    await site.oidc_method(OIDCScopes=["groups"], TokenNameFormat="x")
    await site.rule("sso", Selector='value.team==web and "ops" in list.groups')
    query = await site.begin()
    assert {name: query[name] for name in ("client_id", "redirect_uri", "response_type", "scope")} == {
        "client_id": "yurt", "redirect_uri": REDIRECT, "response_type": "code", "scope": "openid groups",
    }  # fmt: skip
    assert query["state"].startswith("st_") and "code_challenge" not in query
    site.provider.claims |= {"team": "web"}
    # UserInfo adds what the ID token lacks, and does not change who it is about.
    site.provider.user_info |= {"groups": ["ops"], "iss": "https://evil"}
    answer = await site.complete(query)
    assert answer.status == 200, answer.text
    assert (answer.json["Policies"], answer.json["Name"], answer.json["ExpirationTTL"]) == (
        ["deploy"],
        "OIDC-sso",
        "10m0s",
    )
    (form,) = site.provider.forms
    assert form == {"grant_type": "authorization_code", "code": "code-0", "redirect_uri": REDIRECT}
    proof = site.provider.headers[1]["Authorization"]
    assert base64.b64decode(proof.removeprefix("Basic ")) == b"yurt:hush"
    assert site.provider.asked == ["/.well-known/openid-configuration", "/token", "/keys", "/userinfo"]


async def test_pkce_binds_the_code_to_the_request(site: Site) -> None:
    await site.oidc_method(OIDCEnablePKCE=True)
    await site.rule("sso")
    mine, theirs = await site.begin(), await site.begin()
    assert mine["code_challenge_method"] == "S256" and mine["code_challenge"] != theirs["code_challenge"]
    code = site.provider.authorize(theirs)
    assert await refused(site, mine, code) == (500, 'the provider of auth-method "sso" refused the code: invalid_grant')
    assert (await site.complete(await site.begin())).status == 200


async def test_a_request_is_bound_to_nonce_method_and_redirect_and_used_once(site: Site) -> None:
    await site.oidc_method()
    await site.oidc_method("other")
    await site.rule("sso")
    site.provider.keeps_codes = True
    query = await site.begin()
    for change in ({"ClientNonce": "n2"}, {"AuthMethodName": "other"}, {"RedirectURI": REDIRECT + "/x"}):
        assert await refused(site, query, **change) == UNKNOWN
    for state in ("st_", "st_AAAA", query["state"][:-4] + "AAAA", query["state"][3:], "st_" + "A" * 3000, "ü"):
        assert await refused(site, query, State=state) == UNKNOWN
    code = site.provider.authorize(query)
    assert (await site.complete(query, code)).status == 200
    again = await site.complete(query, code)
    assert ((again.status, again.text), site.tokens) == (UNKNOWN, 1)


async def test_a_request_whose_login_failed_is_used_up(site: Site) -> None:
    await site.oidc_method()
    query = await site.begin()
    assert "refused the code" in (await refused(site, query, "guess"))[1]
    assert await refused(site, query) == UNKNOWN


async def test_another_server_completes_a_request_and_nobody_completes_it_twice(site: Site) -> None:
    """A new leader remembers nothing: the request opens with the root key, and `apply` knows its token."""
    await site.oidc_method()
    await site.rule("sso")
    site.provider.keeps_codes = True
    query = await site.begin()
    code = site.provider.authorize(query)
    logins = site.api.server.http.operation_dependencies.logins
    logins.cache_clear()  # type: ignore[attr-defined]
    made = await site.complete(query, code)
    assert made.status == 200, made.text
    logins.cache_clear()  # type: ignore[attr-defined]
    again = await site.complete(query, code)
    assert (again.status, again.text) == UNKNOWN
    # Not even after the token was revoked.
    gone = await site.api.call(
        "DELETE", f"/v1/acl/token/{made.json['AccessorID']}", headers={"X-Nomad-Token": site.secret}
    )
    assert gone.status == 200
    logins.cache_clear()  # type: ignore[attr-defined]
    assert await refused(site, query, code) == UNKNOWN


async def test_a_request_is_over_after_five_minutes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.oidc_method()
    await site.rule("sso")
    monkeypatch.setattr("yurt.server.login.requests.REQUEST_S", 0.0)
    query = await site.begin()
    assert await refused(site, query) == UNKNOWN


async def test_a_method_that_changes_ends_the_logins_on_their_way(site: Site) -> None:
    await site.oidc_method()
    await site.rule("sso")
    query = await site.begin()
    await site.oidc_method(BoundAudiences=["yurt"])
    assert await refused(site, query) == (400, 'auth-method "sso" has changed during the login: log in again')
    assert site.provider.forms == []


async def test_what_requests_lack_is_said(site: Site) -> None:
    await site.jwt_method()
    answer = await site.put("/v1/acl/oidc/auth-url", {"ClientNonce": "n" * 5000})
    assert (answer.status, answer.text) == (
        400, "invalid OIDC auth-url request: missing auth method name, missing redirect URI, client nonce too long",
    )  # fmt: skip
    answer = await site.put("/v1/acl/oidc/complete-auth", {"AuthMethodName": "sso"})
    assert (answer.status, answer.text) == (
        400,
        "invalid OIDC complete-auth request: missing client nonce, missing state, missing code, missing redirect URI",
    )
    body = {"AuthMethodName": "ci", "RedirectURI": REDIRECT, "ClientNonce": "n"}
    wrong = await site.put("/v1/acl/oidc/auth-url", body)
    missing = await site.put("/v1/acl/oidc/auth-url", {**body, "AuthMethodName": "none"})
    assert wrong.text == "unsupported auth-method type: JWT" and missing.text == 'auth-method "none" not found'


async def test_only_listed_addresses_get_a_code_whatever_the_port_of_this_host(site: Site) -> None:
    await site.oidc_method(AllowedRedirectURIs=["http://localhost:4649/oidc/callback", "https://ui.example.com/cb"])
    assert await site.begin(redirect="http://localhost:50123/oidc/callback")
    body = {"AuthMethodName": "sso", "ClientNonce": "n"}
    for uri in ("https://evil.example.com/cb", "https://ui.example.com/cb/x", "http://localhost@evil/oidc/callback"):
        answer = await site.put("/v1/acl/oidc/auth-url", {**body, "RedirectURI": uri})
        assert (answer.status, answer.text) == (400, f"unauthorized redirect_uri: {uri}")


# How the client proves who it is.


def pem_of(key_id: str) -> str:
    return signing_key(key_id).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def parts_of(token: str) -> tuple[Any, Any, bytes, bytes]:
    first, second, third = token.split(".")
    decoded = [base64.urlsafe_b64decode(part + "==") for part in (first, second, third)]
    return json.loads(decoded[0]), json.loads(decoded[1]), f"{first}.{second}".encode(), decoded[2]


async def assertion_of(site: Site, assertion: Any, **config: Any) -> tuple[Any, Any, bytes, bytes]:
    await site.oidc_method(OIDCClientAssertion=assertion, **config)
    await site.rule("sso")
    answer = await site.complete(await site.begin())
    assert answer.status == 200, answer.text
    (form,) = site.provider.forms
    assert (form["client_id"], form["client_assertion_type"]) == (
        "yurt", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    )  # fmt: skip
    assert "client_secret" not in form and "Authorization" not in site.provider.headers[1]
    return parts_of(form["client_assertion"])


async def test_a_private_key_signs_the_assertion_of_the_client(site: Site) -> None:
    key = {"PemKey": pem_of("client"), "KeyID": "client-1"}
    header, claims, body, signature = await assertion_of(
        site, {"KeySource": "private_key", "PrivateKey": key, "ExtraHeaders": {"typ": "client-authentication+jwt"}}
    )
    assert header == {"typ": "JWT", "alg": "RS256", "kid": "client-1"} | {"typ": header["typ"]}
    signing_key("client").public_key().verify(signature, body, padding.PKCS1v15(), hashes.SHA256())
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("yurt", "yurt", [site.provider.issuer])
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"], len(claims["jti"])) == (300, 1, 36)


async def test_the_secret_or_a_root_key_signs_the_assertion_too(site: Site) -> None:
    secret = "s" * 48
    header, *_ = await assertion_of(
        site, {"KeySource": "client_secret", "KeyAlgorithm": "HS384", "Audience": ["a"]}, OIDCClientSecret=secret
    )
    assert header["alg"] == "HS384" and "kid" not in header
    site.provider.forms.clear()
    site.provider.headers.clear()
    header, _, body, signature = await assertion_of(site, {"KeySource": "nomad"}, OIDCClientSecret="")
    public = site.api.server.keys.keyring.signer(header["kid"]).public_key()
    public.verify(signature, body, padding.PKCS1v15(), hashes.SHA256())


async def test_a_provider_that_wants_the_secret_in_the_form_gets_it_there(site: Site) -> None:
    site.provider.document["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    await site.oidc_method()
    await site.rule("sso")
    assert (await site.complete(await site.begin())).status == 200
    assert site.provider.forms[0]["client_secret"] == "hush" and "Authorization" not in site.provider.headers[1]


async def test_a_key_file_that_cannot_be_read_is_told_without_its_content(site: Site) -> None:
    key = {"PemKeyFile": "/etc/hostname", "KeyID": "k"}
    await site.oidc_method(OIDCClientAssertion={"KeySource": "private_key", "PrivateKey": key})
    status, text = await refused(site, await site.begin())
    assert (status, text) == (
        500,
        "the private key of the client assertion cannot be used: it is not a private key in PEM without a password",
    )  # fmt: skip


# Providers that lie.


def token_of(**changes: Any) -> Any:
    """A token endpoint whose ID token has other claims."""

    def make(provider: FakeProvider) -> Any:
        async def answer(request: web.Request) -> web.Response:
            asked = provider.codes[str((await request.post())["code"])]
            return web.json_response({"id_token": provider.id_token(asked, **changes), "access_token": "at"})

        return answer

    return make


def fixed(body: Any, status: int = 200) -> Any:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return lambda provider: answer


LIES: dict[str, tuple[str, Any, str]] = {
    "another issuer": ("/token", token_of(iss="https://evil"), "invalid issuer: https://evil"),
    "another audience": ("/token", token_of(aud="other"), "invalid audience"),
    "another nonce": ("/token", token_of(nonce="other"), "invalid nonce"),
    "no nonce": ("/token", token_of(nonce=None), "invalid nonce"),
    "expired": ("/token", token_of(exp=1), "token is expired"),
    "no end": ("/token", token_of(exp=None), "no expiration time"),
    "another party": ("/token", token_of(aud=["yurt", "other"], azp="other"), "azp"),
    "no subject": ("/token", token_of(sub=""), "no subject"),
    "another key": ("/token", fixed({"id_token": signed({"sub": "x"}, "evil")}), "no key of the issuer"),
    "no signature": ("/token", fixed({"id_token": "eyJhbGciOiJub25lIn0.e30."}), "signing algorithm 'none'"),
    "no ID token": ("/token", fixed({"access_token": "at"}), "an answer without an ID token"),
    "an ID token that is no text": ("/token", fixed({"id_token": 7}), "an answer without an ID token"),
    "a text of its own": ("/token", fixed({"error": "<script>"}, 400), "refused the code: status 400"),
    "UserInfo of another": ("/userinfo", fixed({"sub": "mallory"}), "UserInfo is about another subject"),
    "UserInfo that fails": ("/userinfo", fixed({}, 401), "its UserInfo endpoint gave status 401"),
    "UserInfo that is a list": ("/userinfo", fixed([]), "its UserInfo answer is not a JSON object"),
    "10 MB of UserInfo": ("/userinfo", fixed({"sub": "alice", "x": "x" * 10_000_000}), "longer than 262144 bytes"),
    "10 MB of tokens": ("/token", fixed({"x": "x" * 10_000_000}), "longer than 262144 bytes"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "lie", "why"), LIES.values(), ids=LIES.keys())
async def test_a_provider_that_lies_grants_nothing(site: Site, path: str, lie: Any, why: str) -> None:
    await site.oidc_method()
    await site.rule("sso")
    query = await site.begin()
    site.provider.replaced[path] = lie(site.provider)
    status, text = await refused(site, query)
    assert status in (401, 500) and why in text and "hush" not in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"issuer": "https://evil"}, 'it says that it is the issuer "https://evil"'),
        ({"issuer": None}, "its discovery document is not a JSON object"),
        ({"jwks_uri": ""}, "the jwks_uri of its discovery document is not an address"),
        ({"jwks_uri": "file:///etc/passwd"}, "the jwks_uri of its discovery document is not an address"),
        (
            {"token_endpoint": "http://169.254.169.254/latest"},
            "the token_endpoint of its discovery document must begin",
        ),
        ({"userinfo_endpoint": "http://u:p@127.0.0.1/"}, "must not hold a user"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "the authorization_endpoint of its discovery document"),
        ({"authorization_endpoint": ""}, "has no authorization_endpoint"),
    ],
)
async def test_a_discovery_document_that_lies_begins_no_login(site: Site, change: Any, why: str) -> None:
    site.provider.document |= change
    await site.oidc_method()
    body = {"AuthMethodName": "sso", "RedirectURI": REDIRECT, "ClientNonce": "n1"}
    answer = await site.put("/v1/acl/oidc/auth-url", body)
    assert answer.status == 500 and why in answer.text


async def test_a_provider_that_hangs_fails_the_login(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.oidc_method()
    await site.rule("sso")
    query = await site.begin()
    monkeypatch.setattr("yurt.server.login.fetching.FETCH_S", 0.5)
    site.provider.replaced["/token"] = hang
    assert await refused(site, query) == (500, 'the provider of auth-method "sso" failed: no whole answer within 0.5 s')


async def test_a_callback_from_another_issuer_is_refused(site: Site) -> None:
    """Mix-up attacks (RFC 9207)."""
    await site.oidc_method()
    await site.rule("sso")
    wrong = (500, "invalid or missing issuer parameter in callback")
    assert await refused(site, await site.begin(), Iss="https://evil") == wrong
    site.provider.document["authorization_response_iss_parameter_supported"] = True
    await site.oidc_method(VerboseLogging=True)
    assert await refused(site, await site.begin()) == wrong
    assert site.provider.forms == []
    assert (await site.complete(await site.begin(), Iss=site.provider.issuer)).status == 200


async def test_no_secret_of_a_login_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await site.oidc_method(VerboseLogging=True, OIDCEnablePKCE=True)
    await site.rule("sso")
    query = await site.begin()
    made = await site.complete(query)
    assert made.status == 200 and "login claims: method=sso" in caplog.text
    secrets = ("hush", "code-0", query["nonce"], query["state"], site.provider.forms[0]["code_verifier"])
    assert not [secret for secret in (*secrets, made.json["SecretID"]) if secret in caplog.text]
