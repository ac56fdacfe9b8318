"""Logins by JWT: who gets which token, and who gets none."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from yurt.testing.login.provider import encoded, hang, jwk_of, signed, signing_key
from yurt.testing.login.site import Site, jwt, now_s

PEM = signing_key("k1").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


async def refusal(site: Site, token: str, method: str = "ci") -> str:
    """The text with which a login is refused, which makes no token."""
    answer = await site.log_in(token, method)
    assert answer.status >= 400 and site.tokens == 0, answer.text
    return f"{answer.status} {answer.text}"


async def test_a_login_gives_a_token_with_the_rights_of_the_rules_and_an_end(site: Site) -> None:
    await site.jwt_method(BoundIssuer=["https://ci.example.com"], BoundAudiences=["yurt"])
    await site.rule("ci", Selector="value.team==web")
    answer = await site.log_in(jwt(aud="yurt"))
    assert answer.status == 200, answer.text
    token = answer.json
    assert (token["Name"], token["Type"], token["Policies"], token["Global"], token["ExpirationTTL"]) == (
        "JWT-ci", "client", ["deploy"], False, "10m0s",
    )  # fmt: skip
    own = await site.api.get("/v1/acl/token/self", headers={"X-Nomad-Token": token["SecretID"]})
    assert own.json["AccessorID"] == token["AccessorID"] and int(answer.headers["X-Nomad-Index"]) > 0
    jobs = await site.api.get("/v1/jobs?namespace=prod", headers={"X-Nomad-Token": token["SecretID"]})
    refused = await site.api.get("/v1/jobs?namespace=default", headers={"X-Nomad-Token": token["SecretID"]})
    assert (jobs.status, refused.status) == (200, 403)


@pytest.mark.parametrize("shown", ["5b4d9f0c-0000-4000-8000-000000000000", "not a token", "a.b.c"])
async def test_a_token_that_nobody_knows_keeps_nobody_from_logging_in(site: Site, shown: str) -> None:
    await site.jwt_method()
    await site.rule("ci")
    answer = await site.put("/v1/acl/login", {"AuthMethodName": "ci", "LoginToken": jwt()}, token=shown)
    assert answer.status == 200, answer.text


async def test_rules_bind_roles_by_interpolation_and_management_alone(site: Site) -> None:
    await site.jwt_method(ListClaimMappings={"groups": "groups"})
    await site.manage("/v1/acl/role", {"Name": "team-web", "Policies": [{"Name": "deploy"}]})
    await site.rule("ci", BindType="role", BindName="team-${value.team}")
    await site.rule("ci", BindType="management", BindName="", Selector='"admins" in list.groups')
    role = (await site.log_in(jwt(team="WEB", groups=["users"]))).json
    assert (role["Type"], role["Policies"], [each["Name"] for each in role["Roles"]]) == ("client", None, ["team-web"])
    root = (await site.log_in(jwt(groups=["users", "admins"]))).json
    assert (root["Type"], root["Policies"], root["Roles"]) == ("management", None, None)


async def test_a_login_without_a_binding_is_refused(site: Site) -> None:
    await site.jwt_method()
    assert await refusal(site, jwt()) == "400 no role or policy bindings matched"
    await site.rule("ci", Selector="value.team==other")
    await site.rule("ci", BindName="missing")
    assert await refusal(site, jwt()) == "400 no role or policy bindings matched"


async def test_what_a_request_lacks_is_said(site: Site) -> None:
    await site.oidc_method()
    empty = await site.put("/v1/acl/login", {})
    assert (empty.status, empty.text) == (400, "invalid login request: missing auth method name, missing login token")
    assert await refusal(site, "x.y.z", "none") == '400 auth-method "none" not found'
    assert await refusal(site, "x.y.z", "sso") == "400 unsupported auth-method type: OIDC"


async def test_keys_come_from_texts_a_key_set_or_a_discovery_document(site: Site) -> None:
    await site.jwt_method("texts", JWTValidationPubKeys=[PEM])
    await site.jwt_method("set")
    await site.jwt_method("found", OIDCDiscoveryURL=site.provider.issuer)
    for name in ("texts", "set", "found"):
        await site.rule(name)
        answer = await site.log_in(jwt(iss=site.provider.issuer), name)
        assert answer.status == 200, answer.text
    # Without a list of issuers, the one whose document led to the keys is meant: issuers may share their keys.
    told = await site.log_in(jwt(), "found")
    assert (told.status, "invalid JWT issuer: https://ci.example.com" in told.text) == (401, True)


def forged(header: Any, claims: Any, key: bytes | None = None) -> str:
    body = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims).encode())}"
    return f"{body}." + ("" if key is None else encoded(hmac.digest(key, body.encode(), "sha256")))


DAY_S = 86_400
"""Further ahead than the time between the collection of these cases and their run."""
GOOD = {"iss": "https://ci.example.com", "aud": "yurt", "team": "web", "iat": now_s(), "exp": 4_000_000_000}
OTHER_KEY = {"jwk": jwk_of("evil"), "x5c": [base64.b64encode(b"evil").decode()], "jku": "http://127.0.0.1:1/keys",
             "x5u": "http://127.0.0.1:1/cert"}  # fmt: skip
FORGED = {
    "none": (forged({"alg": "none"}, GOOD), "signing algorithm 'none'"),
    "None in another case": (forged({"alg": "nOnE", "kid": "k1"}, GOOD), "signing algorithm 'nOnE'"),
    "HMAC with the public key": (forged({"alg": "HS256", "kid": "k1"}, GOOD, PEM.encode()), "algorithm 'HS256'"),
    "HMAC with nothing": (forged({"alg": "HS256", "kid": "k1"}, GOOD, b""), "algorithm 'HS256'"),
    "another algorithm": (forged({"alg": "ES256", "kid": "k1"}, GOOD, b"x"), "algorithm 'ES256'"),
    "no signature": (forged({"alg": "RS256", "kid": "k1"}, GOOD), "signature is not by a key of the issuer"),
    "a key of its own": (signed(GOOD, "evil", kid="k1", **OTHER_KEY), "signature is not by a key of the issuer"),
    "an unknown key": (signed(GOOD, "evil", **OTHER_KEY), "no key of the issuer has the token's key id"),
    "a path as key id": (signed(GOOD, "evil", kid="../../../../dev/null"), "no key of the issuer"),
    "SQL as key id": (signed(GOOD, "evil", kid="x' UNION SELECT 'k1"), "no key of the issuer"),
    "a key id that is no text": (signed(GOOD, "k1", kid={"k1": 1}), "its header cannot be read"),
    "critical extensions": (signed(GOOD, crit=["b64"], b64=False), "it has critical extensions"),
    "expired": (signed({**GOOD, "exp": now_s() - 120}), "token is expired"),
    "not valid yet": (signed({**GOOD, "nbf": now_s() + DAY_S}), "token is not valid yet"),
    "issued in the future": (signed({**GOOD, "iat": now_s() + DAY_S, "nbf": now_s()}), "issued in the future"),
    "no time": (signed({k: v for k, v in GOOD.items() if k not in ("iat", "exp")}), "iat, nbf and exp must be set"),
    "another issuer": (signed({**GOOD, "iss": "https://evil"}), "invalid JWT issuer: https://evil"),
    "no issuer": (signed({k: v for k, v in GOOD.items() if k != "iss"}), "invalid JWT issuer"),
    "another audience": (signed({**GOOD, "aud": "other"}), "invalid JWT audience"),
    "no audience": (signed({k: v for k, v in GOOD.items() if k != "aud"}), "invalid JWT audience"),
    "an object as a mapped claim": (signed({**GOOD, "team": {"a": "web"}}), "error converting claim 'team'"),
    "not a JWT": ("hunter2", "it is not a signed JWT of three parts"),
    "encrypted": ("a.b.c.d.e", "it is not"),
    "too long": (signed({**GOOD, "x": "x" * 40_000}), "it is longer than"),
}


@pytest.mark.parametrize(("token", "why"), FORGED.values(), ids=FORGED.keys())
async def test_a_forged_or_unfit_token_grants_nothing(site: Site, token: str, why: str) -> None:
    await site.jwt_method(BoundIssuer=["https://ci.example.com"], BoundAudiences=["yurt"])
    await site.rule("ci")
    text = await refusal(site, token)
    assert text.startswith("401 unable to validate provided token: ") and why in text
    # The server asked nobody but the issuer for keys.
    assert set(site.provider.asked) <= {"/keys"}


# Providers that lie or do not answer.


async def huge(request: web.Request) -> web.StreamResponse:
    return web.Response(body=json.dumps({"keys": [jwk_of("k1")], "x": "x" * 10_000_000}).encode())


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


async def bomb(request: web.Request) -> web.StreamResponse:
    response = web.json_response({"keys": [jwk_of("k1")]})
    response.enable_compression(web.ContentCoding.gzip)
    response.headers["Content-Encoding"] = "gzip"
    return response


async def redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "/keys2"})


def text(body: str, status: int = 200) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=status)

    return answer


LIES = {
    "10 MB": (huge, "an answer longer than 262144 bytes"),
    "without an end": (endless, "an answer longer than 262144 bytes"),
    "compressed": (bomb, "a compressed answer"),
    "redirect": (redirect, "status 302: redirects are not followed"),
    "error": (text("{}", 503), "status 503"),
    "not JSON": (text("<html>"), "the key set cannot be read"),
    "deep JSON": (text("[" * 100_000), "the key set cannot be read"),
    "no keys": (text('{"keys":[]}'), "the key set has no usable key"),
    "a shared secret": (text('{"keys":[{"kty":"oct","k":"aGk","kid":"k1"}]}'), "the type 'oct' is not supported"),
    "a private file": (text("root:x:0:0"), "the key set cannot be read"),
}


@pytest.mark.parametrize(("handler", "why"), LIES.values(), ids=LIES.keys())
async def test_an_issuer_that_lies_about_its_keys_grants_nothing(site: Site, handler: Any, why: str) -> None:
    await site.jwt_method()
    await site.rule("ci")
    site.provider.replaced["/keys"] = handler
    told = await refusal(site, jwt())
    assert told.startswith('500 the provider of auth-method "ci" failed: ') and why in told
    assert site.provider.issuer not in told and "/keys2" not in site.provider.asked


async def test_an_issuer_that_hangs_fails_the_login_and_holds_up_nobody_else(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.server.login.fetching.FETCH_S", 1.0)
    await site.jwt_method("slow")
    await site.jwt_method("fast", JWTValidationPubKeys=[PEM])
    for name in ("slow", "fast"):
        await site.rule(name)
    site.provider.replaced["/keys"] = hang
    slow = [asyncio.ensure_future(site.log_in(jwt(), "slow")) for _ in range(3)]
    assert (await site.log_in(jwt(), "fast")).status == 200
    assert not any(each.done() for each in slow)
    for answer in await asyncio.gather(*slow):
        assert (answer.status, "no whole answer within 1 s" in answer.text) == (500, True)
    # They waited for one request.
    assert site.provider.asked == ["/keys"]


async def test_too_many_logins_of_a_method_are_refused_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.server.login.service.RUNNING_MAX", 1)
    monkeypatch.setattr("yurt.server.login.service.LOGIN_S", 1.0)
    await site.jwt_method()
    is_asked = asyncio.Event()

    async def hang_and_tell(request: web.Request) -> web.StreamResponse:
        is_asked.set()
        return await hang(request)

    site.provider.replaced["/keys"] = hang_and_tell
    first = asyncio.ensure_future(site.log_in(jwt()))
    await is_asked.wait()
    second = await site.log_in(jwt())
    assert (second.status, "too many auth requests" in second.text) == (429, True)
    assert "took longer than 1 s" in (await first).text


async def test_an_unreachable_issuer_fails_the_login_without_naming_its_address(site: Site) -> None:
    await site.jwt_method(JWKSURL="http://127.0.0.1:1/keys")
    told = await refusal(site, jwt())
    assert told == '500 the provider of auth-method "ci" failed: it cannot be reached; the server\'s log says why'


# What is fetched again.


async def test_keys_are_fetched_once_and_again_for_a_new_key_but_not_for_made_up_ones(site: Site) -> None:
    await site.jwt_method()
    await site.rule("ci")
    for _ in range(3):
        assert (await site.log_in(jwt())).status == 200
    assert site.provider.asked == ["/keys"]
    site.provider.key_ids = ["k2"]
    assert (await site.log_in(signed(GOOD, "k2"))).status == 200
    assert site.provider.asked == ["/keys"] * 2
    for number in range(5):
        assert (await site.log_in(signed(GOOD, "evil", kid=f"made-up-{number}"))).status == 401
    # The key that the issuer withdrew opens nothing.
    assert (await site.log_in(jwt())).status == 401
    assert site.provider.asked == ["/keys"] * 2


async def test_a_made_up_key_holds_up_nobody_whose_key_is_known(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.server.login.fetching.FETCH_S", 2.0)
    monkeypatch.setattr("yurt.server.login.key_sets.KEYS_PAUSE_S", 0.0)
    await site.jwt_method()
    await site.rule("ci")
    assert (await site.log_in(jwt())).status == 200
    site.provider.replaced["/keys"] = hang
    made_up = asyncio.ensure_future(site.log_in(signed(GOOD, "evil")))
    while len(site.provider.asked) < 2:
        assert (await site.log_in(jwt())).status == 200
    assert (await site.log_in(jwt())).status == 200 and not made_up.done()
    assert (await made_up).status == 500
    assert (await site.log_in(jwt())).status == 200


async def test_keys_that_are_too_old_are_not_used_when_the_issuer_fails(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.jwt_method()
    await site.rule("ci")
    assert (await site.log_in(jwt())).status == 200
    monkeypatch.setattr("yurt.server.login.key_sets.KEYS_AGE_S", 0.0)
    site.provider.replaced["/keys"] = text("", 500)
    assert (await site.log_in(jwt())).status == 500


async def test_a_method_that_changes_has_its_keys_fetched_anew(site: Site) -> None:
    await site.jwt_method()
    await site.rule("ci")
    assert (await site.log_in(jwt())).status == 200
    await site.jwt_method(JWKSURL=f"{site.provider.issuer}/others")
    assert (await site.log_in(jwt())).status == 500
    assert site.provider.asked == ["/keys", "/others"]


# What changes while a login is on its way.


@pytest.mark.parametrize("change", ["method deleted", "method changed", "rule deleted", "policy deleted"])
async def test_what_changes_in_the_middle_of_a_login_counts(
    site: Site, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.jwt_method()
    await site.rule("ci")
    (rule,) = site.api.server.state.acl_binding_rules.keys()
    server = site.api.server
    propose, done = server.replica.writer.propose, []

    async def meddled(command: Any) -> Any:
        """After the decision, before its command reaches the log."""
        if type(command).__name__ == "CreateACLLoginToken" and not done:
            done.append(change)
            path = {"method deleted": "/v1/acl/auth-method/ci", "rule deleted": f"/v1/acl/binding-rule/{rule}",
                    "policy deleted": "/v1/acl/policy/deploy"}.get(change)  # fmt: skip
            if path is None:
                await site.jwt_method(BoundAudiences=["other"])
            else:
                await site.api.call("DELETE", path, headers={"X-Nomad-Token": site.secret})
        return await propose(command)

    monkeypatch.setattr(type(server.replica.writer), "propose", lambda self, command: meddled(command))
    told = await refusal(site, jwt())
    assert done and told in (
        '400 auth-method "ci" has changed during the login: log in again', "400 no role or policy bindings matched",
    )  # fmt: skip


# Shapes of well-known issuers.


async def test_a_workflow_of_github_actions_logs_in(site: Site) -> None:
    """Claims as GitHub documents them for workflows, with the issuer's address replaced."""
    mappings = {"repository": "repo", "ref": "ref", "environment": "environment"}
    await site.jwt_method(
        "github", OIDCDiscoveryURL=site.provider.issuer, BoundAudiences=["https://yurt.example.com"],
        ClaimMappings=mappings,
    )  # fmt: skip
    await site.rule("github", Selector='value.repo == "octo-org/octo-repo" and value.ref == "refs/heads/main"')
    claims = {
        "jti": "example-id", "sub": "repo:octo-org/octo-repo:environment:prod", "environment": "prod",
        "aud": "https://yurt.example.com", "ref": "refs/heads/main", "sha": "example-sha",
        "repository": "octo-org/octo-repo", "repository_owner": "octo-org", "actor_id": "12", "repository_id": "74",
        "repository_owner_id": "65", "run_id": "example-run-id", "run_number": "10", "run_attempt": "2",
        "runner_environment": "github-hosted", "actor": "octocat", "workflow": "example-workflow", "head_ref": "",
        "base_ref": "", "event_name": "workflow_dispatch", "ref_type": "branch",
        "job_workflow_ref": "octo-org/octo-automation/.github/workflows/oidc.yml@refs/heads/main",
        "iss": site.provider.issuer, "nbf": now_s() - 60, "exp": now_s() + 600, "iat": now_s(),
    }  # fmt: skip
    assert (await site.log_in(signed(claims), "github")).json["Policies"] == ["deploy"]
    for change in ({"ref": "refs/heads/evil"}, {"repository": "evil/octo-repo"}, {"aud": "https://github.com/evil"}):
        assert (await site.log_in(signed({**claims, **change}), "github")).status in (400, 401)


async def test_a_service_account_of_kubernetes_logs_in(site: Site) -> None:
    """Claims of a projected service account token."""
    mappings = {"/kubernetes.io/namespace": "namespace", "/kubernetes.io/serviceaccount/name": "account"}
    await site.jwt_method("k8s", BoundAudiences=["yurt"], ClaimMappings=mappings, BoundIssuer=[site.provider.issuer])
    await site.rule("k8s", Selector="value.namespace==ci and value.account==deployer")
    claims = {
        "aud": ["https://kubernetes.default.svc", "yurt"], "exp": now_s() + 3600, "iat": now_s(), "nbf": now_s(),
        "iss": site.provider.issuer, "sub": "system:serviceaccount:ci:deployer",
        "kubernetes.io": {"namespace": "ci", "node": {"name": "n1", "uid": "646e"}, "pod": {"name": "p", "uid": "5e0c"},
                          "serviceaccount": {"name": "deployer", "uid": "14ee"}, "warnafter": now_s() + 3000},
    }  # fmt: skip
    assert (await site.log_in(signed(claims), "k8s")).json["Policies"] == ["deploy"]
    other = {**claims, "kubernetes.io": {**claims["kubernetes.io"], "namespace": "evil"}}
    assert (await site.log_in(signed(other), "k8s")).text == "no role or policy bindings matched"


async def test_nothing_of_a_token_is_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await site.jwt_method(VerboseLogging=True)
    await site.rule("ci")
    token = jwt()
    made = (await site.log_in(token)).json
    logged = caplog.text
    assert "login values: method=ci values={'team': 'web'}" in logged and "outcome=bound detail=deploy" in logged
    assert token.split(".")[2] not in logged and made["SecretID"] not in logged
    assert hashlib.sha256(made["SecretID"].encode()).hexdigest() not in logged
