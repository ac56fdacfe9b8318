"""Pages of other sites reach nothing through their reader's browser; other clients notice nothing of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from yurt.cli.main import main
from yurt.http.edge.hosts import HostPolicy, is_host, is_own_host, is_own_origin
from yurt.http.route_table import ROUTES
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, Api, job_document, serving

EVIL = "https://evil.example"
CROSS: Mapping[str, str] = {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
IMAGE: Mapping[str, str] = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101", "Accept": "image/*"}
"""An `<img>` on a page of another site, as it asks a plain HTTP address: with nothing that names the page."""
PROXY = "nomad.example.com"
JOB = json.dumps({"Job": job_document("planted")}).encode()


def own(api: Api) -> str:
    """Where the application is, as a browser writes it."""
    return f"127.0.0.1:{api.client.port}"


async def jobs(api: Api) -> list[str]:
    return [job["ID"] for job in (await api.get("/v1/jobs")).json]


# Writes.


@pytest.mark.parametrize(
    "signs",
    [
        {"Origin": EVIL}, {"Origin": "null"}, {"Origin": "http://localhost:8000"}, {"Origin": "http://127.0.0.1:80"},
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Referer": f"{EVIL}/page"},
        {"Origin": "nonsense"}, {"Origin": ""}, {"Origin": "https://evil.example\udc80"},
        {"Origin": EVIL, "X-Yurt-Forwarded": "server", "X-Yurt-From-Region": "1"},
    ],
    ids=str,
)  # fmt: skip
async def test_a_page_of_another_site_registers_no_job(api: Api, signs: Mapping[str, str]) -> None:
    answer = await api.call("POST", "/v1/jobs", JOB, headers={"Content-Type": "text/plain", **signs})
    assert answer.status == 403
    assert "http_allowed_hosts" in answer.text
    assert await jobs(api) == []


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v1/agent/servers?address=evil:4647", "/v1/system/gc", "/v1/nonsense", "/ui/"])
async def test_every_method_but_a_read_is_refused_whatever_the_path(api: Api, method: str, path: str) -> None:
    assert (await api.call(method, path, headers=CROSS)).status == 403


@pytest.mark.parametrize("path", [f"/v1/client/allocation/{UNKNOWN_ID}/exec", "/v1/job/web/action"])
@pytest.mark.parametrize("region", ["", "&region=mars"])
async def test_a_websocket_of_another_site_is_refused(api: Api, path: str, region: str) -> None:
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    }  # fmt: skip
    answer = await api.get(f"{path}?task=t&command=%5B%22sh%22%5D&action=a{region}", headers=upgrade | {"Origin": EVIL})
    assert answer.status == 403
    same = await api.get(f"{path}?task=t", headers=upgrade | {"Origin": f"http://{own(api)}"})
    assert same.status == 101


async def test_a_refusal_is_counted_and_makes_one_line_a_minute(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        await api.call("POST", "/v1/jobs", JOB, headers=CROSS)
    assert api.server.metrics.counters["http.refuse_browser"] == 20
    assert len([line for line in caplog.records if "evil.example" in line.getMessage()]) == 1


# Reads.


def filled(path: str) -> str:
    """A route with something in the place of its parts."""
    return re.sub(r"\{[^}]*\}", NODE_ID, path)


def get_paths(api: Api) -> list[str]:
    assert api.client.app is not None
    return sorted({filled(resource.canonical) for resource in api.client.app.router.resources()})


async def test_no_get_of_a_hostile_page_is_answered(api_with_node: Api) -> None:
    for path in get_paths(api_with_node):
        for signs in (CROSS, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
            answer = await api_with_node.get(path, headers=signs)
            assert answer.status == 403, (path, signs)


async def test_no_get_that_hides_whose_page_it_is_has_a_side_effect(api_with_node: Api) -> None:
    api = api_with_node
    effects = {filled(route.path) for route in ROUTES if route.has_effect_on_get}
    assert effects == {"/v1/client/gc", f"/v1/client/allocation/{NODE_ID}/gc"}
    before = api.server.state.index
    for path in get_paths(api):
        if path in ("/v1/event/stream", "/v1/agent/monitor") or path.startswith("/v1/agent/pprof"):
            continue
        answer = await api.get(path, headers=IMAGE)
        assert ("side effect" in answer.text) == (path in effects), path
        assert api.server.state.index == before, path


async def test_a_get_with_a_side_effect_works_for_sdks_and_a_put_for_all(api: Api) -> None:
    for path in ("/v1/client/gc", f"/v1/client/allocation/{UNKNOWN_ID}/gc"):
        assert (await api.get(path, headers={"User-Agent": "Go-http-client/1.1"})).status in (400, 404)
        assert (await api.call("PUT", path)).status in (400, 404)
        refused = await api.get(path, headers={"Sec-Fetch-Site": "none"})
        assert (refused.status, "PUT" in refused.text) == (403, True)


async def test_reads_are_opened_to_no_site_by_default(api: Api) -> None:
    answer = await api.get(f"/v1/client/fs/ls/{UNKNOWN_ID}")
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("readers", "origin", "status"),
    [
        ("*", EVIL, 200), ("*", "null", 200), (EVIL, EVIL, 200), (EVIL, "https://evil.example.org", 403),
        (EVIL, "http://evil.example", 403), (EVIL, "https://evil.example:444", 403), ("null", "null", 403),
        (f"{EVIL} https://a.example", EVIL, 403), ("", EVIL, 403),
    ],
)  # fmt: skip
async def test_an_operator_opens_reads_to_exactly_one_origin_or_to_all(readers: str, origin: str, status: int) -> None:
    async with serving(facts={"response_headers": {"access-control-allow-origin": readers}}) as api:
        signs = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        assert (await api.get("/v1/jobs", headers=signs)).status == status
        assert (await api.call("POST", "/v1/jobs", JOB, headers=signs)).status == 403
        ask = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "x-nomad-token"}
        preflight = await api.call("OPTIONS", "/v1/client/stats", headers=signs | ask)
        assert preflight.status == (204 if status == 200 else 403)
        write = await api.call("OPTIONS", "/v1/jobs", headers=signs | {"Access-Control-Request-Method": "PUT"})
        assert write.status == 403


async def test_one_may_follow_a_link_to_a_page_and_not_into_a_frame(api: Api) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await api.get("/ui/", headers=link)).status == 200
    assert (await api.get("/", headers=link)).status == 307
    assert (await api.get("/v1/jobs", headers=link)).status == 403
    assert (await api.get("/ui/", headers=link | {"Sec-Fetch-Dest": "iframe"})).status == 403


# Names.


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example:4646", 403), ("evil.example", 403), ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403), ("2130706433", 403), ("0x7f.1", 403), ("a b", 403), ("user@127.0.0.1", 403),
        ("[::1", 403), ("127.0.0.1:x", 403),
        ("localhost:4646", 200), ("LOCALHOST.", 200), ("web.localhost:1", 200), ("[::1]:4646", 200), ("10.1.2.3", 200),
        ("server1:4646", 200), (PROXY, 200), (f"{PROXY}:8443", 200), ("a.b.internal", 200), ("internal", 403),
    ],
)  # fmt: skip
async def test_only_names_of_the_agent_are_answered(host: str, status: int) -> None:
    facts = {"http_addr": "server1:4646", "allowed_hosts": (PROXY, "*.internal")}
    async with serving(facts=facts) as api:
        for path in ("/v1/jobs", "/ui/"):
            answer = await api.get(path, headers={"Host": host})
            assert answer.status == status, answer.text
        if status == 403:
            assert "http_allowed_hosts" in answer.text


async def test_the_pages_work_where_they_are_and_behind_a_proxy_with_a_name_of_the_setting() -> None:
    async with serving(facts={"allowed_hosts": (PROXY,)}) as api:
        same = {"Sec-Fetch-Site": "same-origin", "Referer": f"http://{own(api)}/ui/"}
        assert (await api.get("/ui/", headers=same)).status == 200
        keeps_host = {"Host": PROXY, "Origin": f"https://{PROXY}", "Sec-Fetch-Site": "same-origin"}
        assert (await api.call("PUT", "/v1/system/gc", headers=keeps_host)).status == 200
        own_host = {"Origin": f"https://{PROXY}", "Sec-Fetch-Site": "same-origin"}
        assert (await api.call("PUT", "/v1/system/gc", headers=own_host)).status == 200
        other_port = {"Origin": f"https://{PROXY}:9999", "Sec-Fetch-Site": "same-origin"}
        assert (await api.call("PUT", "/v1/system/gc", headers=other_port)).status == 403


def test_origins_and_hosts_are_compared_by_name_port_and_scheme() -> None:
    policy = HostPolicy(names=("here",), allowed=("ui.example:8443",))
    assert is_own_origin("https://here", policy, ("here",), is_tls=True)
    assert not is_own_origin("http://here", policy, ("here",), is_tls=True)
    assert is_own_origin("https://ui.example:8443", policy, ("10.0.0.1",), is_tls=False)
    assert not is_own_origin("https://ui.example", policy, ("10.0.0.1",), is_tls=False)
    assert is_own_host("", policy)
    assert [is_host(text) for text in ("a.b", "*.b", "a.b:1", "[::1]", "*", "a.*", "http://a", "", "a:b")] == [
        True, True, True, True, False, False, False, False, False,
    ]  # fmt: skip


# Other clients.


async def test_curl_the_command_line_and_python_nomad_are_unaffected(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import nomad

    monkeypatch.setenv("NOMAD_ADDR", f"http://{own(api)}")
    child = await asyncio.create_subprocess_exec(
        "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d", JOB.decode(), f"http://{own(api)}/v1/jobs",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert (await child.communicate())[0] == b"200"
    assert await asyncio.to_thread(main, ["system", "gc"]) == 0

    def other() -> Any:
        sdk = nomad.Nomad(host="127.0.0.1", port=api.client.port)
        sdk.job.register_job("sdk", {"Job": job_document("sdk")})
        sdk.job.deregister_job("planted")
        return sorted(job["ID"] for job in sdk.jobs.get_jobs())

    assert await asyncio.to_thread(other) == ["planted", "sdk"]
    capsys.readouterr()
