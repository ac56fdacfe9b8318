"""Sessions of browsers: what makes one, what it may do, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any

import pytest
from yurt.access import ShownToken
from yurt.acl.resolver import SESSION_OVER, SIGNED_OUT, Resolver
from yurt.acl.rights import AuthenticationLevel
from yurt.duties.acl_gc import expired
from yurt.http import leases
from yurt.sdk.value import UnixNano
from yurt.server.keys import sessions
from yurt.testing.access import READ_PROD, Callers, bootstrapped
from yurt.testing.http_api import HttpAnswer, serving

PATH = "/v1/yurt/session"
UI = {"X-Yurt-Client": "test"}


@pytest.fixture
async def acl() -> AsyncIterator[Callers]:
    async with bootstrapped() as callers:
        await callers.put("/v1/namespace", {"Name": "prod"})
        yield callers


async def ask(acl: Callers, method: str, path: str, body: Any = None, *, cookie: str = "", **more: str) -> HttpAnswer:
    """A request as a page of the agent sends it, with the session alone."""
    acl.api.client.session.cookie_jar.clear()
    headers = UI | {name.replace("_", "-"): text for name, text in more.items()}
    return await acl.api.call(method, path, body, headers=headers | ({"Cookie": cookie} if cookie else {}))


async def signed_in(acl: Callers, secret: str, **more: str) -> tuple[HttpAnswer, str]:
    """The answer to a sign-in, and the cookie that a browser would send from then on."""
    answer = await ask(acl, "POST", PATH, {"SecretID": secret}, **more)
    assert answer.status == 200, answer.text
    name, morsel = next(iter(SimpleCookie(answer.headers["Set-Cookie"]).items()))
    return answer, f"{name}={morsel.value}"


async def test_a_session_has_the_rights_of_its_token_and_shows_no_secret(acl: Callers) -> None:
    secret = await acl.secret_for(READ_PROD)
    answer, cookie = await signed_in(acl, secret)
    assert answer.json["SignedIn"] and answer.json["Token"]["Type"] == "client"
    assert "read-job" in answer.json["Can"]["Namespaces"]["prod"]
    assert "default" not in answer.json["Can"]["Namespaces"] and not answer.json["Can"]["Management"]
    assert secret not in answer.text and secret not in answer.headers["Set-Cookie"]
    assert (await ask(acl, "GET", "/v1/jobs?namespace=prod", cookie=cookie)).status == 200
    assert (await ask(acl, "GET", "/v1/jobs?namespace=default", cookie=cookie)).status == 403
    own = await ask(acl, "GET", "/v1/acl/token/self", cookie=cookie)
    assert own.json["SecretID"] == "" and own.json["AccessorID"] == answer.json["Token"]["AccessorID"]
    once = await ask(acl, "POST", "/v1/acl/token/onetime", cookie=cookie)
    assert once.status == 400 and "a session makes no one-time token" in once.text.lower()


async def test_the_cookie_is_out_of_the_reach_of_scripts_and_sites(acl: Callers) -> None:
    plain, _ = await signed_in(acl, acl.root["SecretID"])
    flags = {each.strip().partition("=")[0].lower() for each in plain.headers["Set-Cookie"].split(";")[1:]}
    assert {"httponly", "samesite", "path", "max-age"} <= flags and "secure" not in flags
    assert not plain.json["IsSecure"] and plain.headers["Cache-Control"] == "no-store"
    tls, cookie = await signed_in(acl, acl.root["SecretID"], X_Forwarded_Proto="https")
    assert cookie.startswith("__Host-yurt=") and "; Secure" in tls.headers["Set-Cookie"]
    assert "Domain" not in tls.headers["Set-Cookie"] and tls.json["IsSecure"]


async def test_deleting_the_token_ends_its_sessions_at_once(acl: Callers) -> None:
    await acl.policy("reader")
    token = await acl.token("reader")
    _, cookie = await signed_in(acl, token["SecretID"])
    assert (await ask(acl, "GET", "/v1/jobs?namespace=prod", cookie=cookie)).status == 200
    assert (await acl.call("DELETE", f"/v1/acl/token/{token['AccessorID']}")).status == 200
    assert (await ask(acl, "GET", "/v1/jobs?namespace=prod", cookie=cookie)).status == 403
    assert (await ask(acl, "POST", PATH, cookie=cookie)).status == 403
    described = (await ask(acl, "GET", PATH, cookie=cookie)).json
    assert not described["SignedIn"] and described["Problem"]


async def test_a_session_that_nobody_renews_ends(acl: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    renewed = await ask(acl, "POST", PATH, cookie=cookie)
    assert renewed.status == 200 and "Set-Cookie" in renewed.headers
    env = acl.api.server.replica.env
    later = UnixNano(env.now() + int(sessions.IDLE_S * 1e9) + 1)
    monkeypatch.setattr(type(env), "now", lambda _: later)
    over = await ask(acl, "POST", PATH, cookie=cookie)
    assert (over.status, over.text) == (403, SESSION_OVER)
    assert (await ask(acl, "GET", "/v1/jobs", cookie=cookie)).status == 403


async def test_a_session_ends_with_the_root_key_that_sealed_it(acl: Callers) -> None:
    """Who had got hold of the key could have sealed sessions without end."""
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    assert (await ask(acl, "GET", "/v1/jobs", cookie=cookie)).status == 200
    old = (await acl.get("/v1/operator/keyring/keys")).json[0]["KeyID"]
    assert (await acl.put("/v1/operator/keyring/rotate")).status == 200
    assert (await ask(acl, "GET", "/v1/jobs", cookie=cookie)).status == 200
    removed = await acl.call("DELETE", f"/v1/operator/keyring/key/{old}?force=true")
    assert removed.status == 200, removed.text
    assert (await ask(acl, "GET", "/v1/jobs", cookie=cookie)).status == 403
    renewed = await ask(acl, "POST", PATH, cookie=cookie)
    assert (renewed.status, renewed.text) == (403, sessions.UNKNOWN)


async def test_with_tls_only_the_cookie_that_no_other_port_can_set_counts(acl: Callers) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    assert cookie.startswith("yurt=")
    tls = {"X_Forwarded_Proto": "https"}
    assert (await ask(acl, "GET", "/v1/jobs", cookie=cookie)).status == 200
    assert (await ask(acl, "GET", "/v1/jobs", cookie=cookie, **tls)).status == 403
    safe = cookie.replace("yurt=", "__Host-yurt=")
    assert (await ask(acl, "GET", "/v1/jobs", cookie=f"yurt=ys_; {safe}", **tls)).status == 200


async def test_a_session_is_renewed_up_to_its_end_only() -> None:
    session = sessions.Session(
        "id", "hash", started_at=UnixNano(0), renewed_at=UnixNano(int(sessions.LIFE_S * 1e9) - 5)
    )
    assert session.idle_at == session.ends_at == int(sessions.LIFE_S * 1e9)


@pytest.mark.parametrize(
    "cookie", ["yurt=ys_", "yurt=ys_AAAA", "yurt=ys_" + "A" * 200, "yurt=nonsense", "__Host-yurt=ys_%00"]
)
async def test_a_cookie_that_is_no_session_gives_nothing(acl: Callers, cookie: str) -> None:
    assert (await ask(acl, "GET", "/v1/jobs?namespace=prod", cookie=cookie)).status == 403
    described = await ask(acl, "GET", PATH, cookie=cookie)
    assert described.status == 200 and not described.json["SignedIn"]


async def test_a_one_time_token_signs_in_once(acl: Callers) -> None:
    once = (await acl.call("POST", "/v1/acl/token/onetime")).json["OneTimeToken"]["OneTimeSecretID"]
    first = await ask(acl, "POST", PATH, {"OneTimeSecretID": once})
    assert (
        first.status == 200 and first.json["Can"]["Management"] and "list-jobs" in first.json["Can"]["Namespaces"]["*"]
    )
    assert (await ask(acl, "POST", PATH, {"OneTimeSecretID": once})).status == 403


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"SecretID": "11111111-2222-4333-8444-555555555555"}, 403, "no token has this secret"),
        ({"SecretID": "hunter2"}, 403, "no token has this secret"),
        ({}, 400, "Nothing to sign in with"),
        ({"SecretID": "a", "OneTimeSecretID": "b"}, 400, "one of SecretID, OneTimeSecretID"),
    ],
)
async def test_what_signs_nobody_in(acl: Callers, body: dict[str, str], status: int, text: str) -> None:
    answer = await ask(acl, "POST", PATH, body)
    assert answer.status == status and text in answer.text and "Set-Cookie" not in answer.headers


async def test_a_form_of_another_site_cannot_use_a_session_nor_sign_in(acl: Callers) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    acl.api.client.session.cookie_jar.clear()
    bare = await acl.api.call("POST", "/v1/namespace", {"Name": "evil"}, headers={"Cookie": cookie})
    assert bare.status == 403 and "X-Yurt-Client" in bare.text
    login = await acl.api.call("POST", PATH, {"SecretID": acl.root["SecretID"]})
    assert login.status == 400 and "X-Yurt-Client" in login.text
    cross = {"Cookie": cookie, "Origin": "http://evil.example", **UI}
    assert (await acl.api.call("POST", "/v1/namespace", {"Name": "evil"}, headers=cross)).status == 403
    socket = {"Cookie": cookie, "Connection": "Upgrade", "Upgrade": "websocket"}
    refused = await acl.api.get("/v1/client/allocation/x/exec?command=%5B%5D&task=a", headers=socket)
    assert refused.status == 403 and "Origin" in refused.text
    assert (await acl.get("/v1/namespace/evil")).status == 404
    assert (await ask(acl, "POST", "/v1/namespace", {"Name": "own"}, cookie=cookie)).status == 200


async def test_a_token_that_is_shown_beats_the_cookie(acl: Callers) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    weak = await acl.secret_for(READ_PROD)
    answer = await ask(acl, "GET", "/v1/jobs?namespace=default", cookie=cookie, X_Nomad_Token=weak)
    assert answer.status == 403


async def test_signing_out_ends_the_session_for_copies_of_its_cookie_too(acl: Callers) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    renewed = await ask(acl, "POST", PATH, cookie=cookie)
    copy = f"yurt={SimpleCookie(renewed.headers['Set-Cookie'])['yurt'].value}"
    _, other = await signed_in(acl, acl.root["SecretID"])
    answer = await ask(acl, "DELETE", PATH, cookie=cookie)
    assert answer.status == 204 and "Max-Age=0" in answer.headers["Set-Cookie"]
    for each in (cookie, copy):
        assert (await ask(acl, "GET", "/v1/jobs", cookie=each)).status == 403
        again = await ask(acl, "POST", PATH, cookie=each)
        assert (again.status, again.text) == (403, SIGNED_OUT)
        assert (await ask(acl, "DELETE", PATH, cookie=each)).status == 204
    assert (await ask(acl, "GET", "/v1/jobs", cookie=other)).status == 200


async def test_signing_out_ends_open_streams(acl: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "CHECK_S", 0.02)
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    headers = {"Cookie": cookie}
    async with acl.api.client.get("/v1/event/stream?topic=Job", headers=headers) as stream:
        assert stream.status == 200
        assert (await ask(acl, "DELETE", PATH, cookie=cookie)).status == 204
        async with asyncio.timeout(30):
            while b"the rights of this request have ended" not in (line := await stream.content.readline()):
                assert line, "the stream ended without its reason"


async def test_a_session_is_over_after_its_last_day_also_for_an_open_stream(acl: Callers) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    server = acl.api.server
    assert server.keys.callers is not None
    caller = await server.keys.callers.shown(cookie.partition("=")[2])
    assert isinstance(caller, ShownToken) and caller.session_id
    resolver = Resolver()
    assert (
        resolver.resolve(server.state, caller, server.replica.env.now()).rights.kind is AuthenticationLevel.MANAGEMENT
    )
    assert resolver.resolve(server.state, caller, caller.valid_until).rights.kind is AuthenticationLevel.NOBODY


async def test_an_ended_session_is_forgotten_when_none_of_its_cookies_could_count(acl: Callers) -> None:
    _, cookie = await signed_in(acl, acl.root["SecretID"])
    assert (await ask(acl, "DELETE", PATH, cookie=cookie)).status == 204
    state, now = acl.api.server.state, acl.api.server.replica.env.now()
    (ended,) = state.ended_sessions.values()
    assert list(expired(state, now, now)) == []
    (collected,) = expired(state, UnixNano(ended.forget_at), now)
    await acl.api.server.replica.propose(collected)
    assert not list(acl.api.server.state.ended_sessions.keys())


async def test_without_access_control_everything_is_allowed() -> None:
    async with serving() as api:
        found = (await api.get(PATH)).json
        assert not found["ACL"] and not found["SignedIn"] and found["Can"]["Management"]
        assert "submit-job" in found["Can"]["Namespaces"]["*"] and found["Can"]["Node"] == "write"
        refused = await api.call("POST", PATH, {"SecretID": "x"}, headers=UI)
        assert (refused.status, refused.text) == (400, "ACL support disabled")


async def test_a_stranger_is_told_that_it_may_do_nothing(acl: Callers) -> None:
    found = (await ask(acl, "GET", PATH)).json
    assert found["ACL"] and not found["SignedIn"] and found["Problem"] == "" and found["Token"] is None
    assert found["Can"]["Namespaces"] == {} and found["Can"]["Node"] == ""
