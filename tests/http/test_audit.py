"""The audit log of requests: who did what, what was decided, and what never stands in it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yurt.audit import events
from yurt.audit.files import AuditFile
from yurt.audit.settings import AuditSettings, AuditSinkSettings, FilterSettings
from yurt.server.config import AclConfig
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.testing.http_api import NODE_ID, Api, add_ready_node, job_document, serving

ACCESSOR = "5e5d0f3c-1111-4222-8333-444444444444"
MARKER = "0f4c2b1e-9a3d-4c55-8e77-5ec2e7ba5eba"
"""A secret that is put wherever a request has room for one."""
JWT = f"eyJhbGciOiJSUzI1NiJ9.{MARKER.replace('-', '')}.c2ln"
NO_READS = FilterSettings(name="reads", endpoints=("*",), stages=("*",), operations=("GET",))


class Audited:
    """An API with an audit log."""

    def __init__(self, api: Api, path: Path) -> None:
        self.api = api
        self.path = path
        self.root = ""

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line)["payload"] for line in self.path.read_text().splitlines()]

    async def call(self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str) -> int:
        secret = self.root if token is None else token
        shown = {"X-Nomad-Token": secret} if secret else {}
        return (await self.api.call(method, path, body, headers=shown | headers)).status

    async def new_lines(self, method: str, path: str, body: Any = None, **options: Any) -> list[dict[str, Any]]:
        before = len(self.lines())
        await self.call(method, path, body, **options)
        return self.lines()[before:]

    async def token(self, *policies: str) -> dict[str, Any]:
        answer = await self.api.call(
            "PUT", "/v1/acl/token", {"Type": "client", "Name": "ci", "Policies": list(policies)},
            headers={"X-Nomad-Token": self.root},
        )  # fmt: skip
        made: dict[str, Any] = answer.json
        return made


@asynccontextmanager
async def auditing(
    tmp_path: Path, *filters: FilterSettings, is_enforced: bool = True, **settings: Any
) -> AsyncIterator[Audited]:
    path = tmp_path / "audit.log"
    sink = AuditSinkSettings(name="audit", path=str(path), is_enforced=is_enforced)
    async with serving(audit=AuditSettings(sinks=(sink,), filters=filters), **settings) as api:
        yield Audited(api, path)


@pytest.fixture
async def acl(tmp_path: Path) -> AsyncIterator[Audited]:
    async with auditing(tmp_path, acl=AclConfig(enabled=True)) as found:
        answer = await found.api.call("POST", "/v1/acl/bootstrap")
        found.root = answer.json["SecretID"]
        rules = 'namespace "default" { policy = "write" }'
        assert await found.call("PUT", "/v1/acl/policy/dev", {"Name": "dev", "Rules": rules}) == 200
        yield found


def stages(lines: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(line["stage"], line.get("response", {}).get("status_code", 0)) for line in lines]


# What a line says.


async def test_a_write_has_a_line_before_and_one_after_it(acl: Audited) -> None:
    made = await acl.token("dev")
    before, after = await acl.new_lines("PUT", "/v1/jobs", {"Job": job_document("web")}, token=made["SecretID"])
    assert stages([before, after]) == [("OperationReceived", 0), ("OperationComplete", 200)]
    assert before["request"]["id"] == after["request"]["id"]
    assert after["auth"] == {
        "accessor_id": made["AccessorID"], "name": "ci", "type": "client", "global": False, "policies": ["dev"],
        "resolved_by": "token", "problem": "",
    }  # fmt: skip
    asked = after["request"]
    assert (asked["operation"], asked["endpoint"], asked["route"]) == ("PUT", "/v1/jobs", "/v1/jobs")
    assert (asked["object"], asked["namespace"]) == ({"type": "job", "id": "web"}, {"id": "default"})
    assert asked["request_meta"] == {"remote_address": "127.0.0.1", "certificate_name": ""}
    decided = {"need": "submit-job or register-job", "namespace": "default", "allowed": True}
    assert decided in after["decisions"]
    assert (after["response"]["result"], after["response"]["error"]) == ("allowed", "")
    assert after["response"]["duration_ms"] > 0


async def test_what_both_lines_of_a_request_show_is_encoded_once(acl: Audited, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[events.AuditedRequest] = []
    encode = events.encode_request

    def counted(asked: events.AuditedRequest, clean: events.Clean) -> events.EncodedRequest:
        encoded.append(asked)
        return encode(asked, clean)

    monkeypatch.setattr(events, "encode_request", counted)
    first, second = await acl.new_lines("PUT", "/v1/jobs", {"Job": job_document("web")}, token=acl.root)
    assert (first["request"]["object"]["id"], second["request"]["object"]["id"]) == ("", "web")
    assert len(encoded) == 2, "the body names the job after the first line"
    before, after = await acl.new_lines("PUT", "/v1/job/web/evaluate", {"JobID": "web"}, token=acl.root)
    assert len(encoded) == 3 and before["request"] == after["request"] and before["auth"] == after["auth"]


def test_no_text_that_is_too_short_to_be_looked_through_holds_a_secret() -> None:
    secret = str(uuid.uuid4())
    assert len(secret) == events.SECRET_LENGTH
    clean = events.cleaner(lambda text: text == secret, "shown-token")
    assert [clean(text) for text in (secret, "a shown-token", "eyJa.b.c", "web")] == [
        events.BLANK, f"a {events.BLANK}", events.BLANK, "web",
    ]  # fmt: skip


async def test_a_read_has_one_line_unless_a_filter_leaves_it_out(tmp_path: Path) -> None:
    async with auditing(tmp_path / "a") as audited:
        assert stages(await audited.new_lines("GET", "/v1/jobs")) == [("OperationComplete", 200)]
    async with auditing(tmp_path / "b", NO_READS) as audited:
        assert await audited.new_lines("GET", "/v1/jobs") == []
        assert len(await audited.new_lines("PUT", "/v1/jobs", {"Job": job_document()})) == 2


async def test_a_refusal_says_who_and_why(acl: Audited) -> None:
    made = await acl.token("dev")
    (line,) = await acl.new_lines("DELETE", "/v1/acl/policy/dev", token=made["SecretID"])
    assert (line["stage"], line["auth"]["accessor_id"]) == ("OperationComplete", made["AccessorID"])
    assert (line["response"]["status_code"], line["response"]["result"]) == (403, "refused")
    assert line["response"]["error"] == "permission-denied"
    assert line["request"]["object"] == {"type": "acl/policy", "id": "dev"}
    assert line["decisions"] == [{"need": "management", "allowed": False}]


async def test_a_body_for_a_namespace_without_right_is_refused_in_the_record_too(acl: Audited) -> None:
    made = await acl.token("dev")
    body = {"Job": job_document("web", Namespace="prod")}
    lines = await acl.new_lines("PUT", "/v1/jobs", body, token=made["SecretID"])
    assert stages(lines) == [("OperationReceived", 0), ("OperationComplete", 403)]
    assert lines[-1]["request"]["namespace"] == {"id": "prod"}
    assert lines[-1]["decisions"][-1]["allowed"] is False


async def test_a_hidden_object_is_a_refusal_in_the_record_although_the_caller_is_told_it_is_missing(
    acl: Audited,
) -> None:
    await acl.call("PUT", "/v1/namespace", {"Name": "prod"})
    body = {"Job": job_document("web", Namespace="prod")}
    registered = await acl.api.call("PUT", "/v1/jobs", body, headers={"X-Nomad-Token": acl.root})
    made, eval_id = await acl.token("dev"), registered.json["EvalID"]
    (line,) = await acl.new_lines("GET", f"/v1/evaluation/{eval_id}", token=made["SecretID"])
    assert (line["response"]["status_code"], line["response"]["result"]) == (404, "refused")
    (line,) = await acl.new_lines("GET", f"/v1/evaluation/{uuid.uuid4()}", token=made["SecretID"])
    assert (line["response"]["status_code"], line["response"]["result"]) == (404, "allowed")


@pytest.mark.parametrize(
    ("token", "resolved_by", "problem"),
    [
        ("", "no token", ""),
        (str(uuid.UUID(int=7)), "token", "ACL token not found"),
        ("hunter2", "invalid token", "the token is neither a secret nor a signed identity"),
    ],
)
async def test_callers_without_a_token_are_recorded(acl: Audited, token: str, resolved_by: str, problem: str) -> None:
    (line,) = await acl.new_lines("PUT", "/v1/acl/role", {}, token=token)
    assert line["response"]["status_code"] == 403
    assert (line["auth"]["resolved_by"], line["auth"]["problem"]) == (resolved_by, problem)


async def test_who_deletes_the_own_token_is_still_named(acl: Audited) -> None:
    own = await acl.api.call(
        "PUT", "/v1/acl/token", {"Type": "management", "Name": "mine"}, headers={"X-Nomad-Token": acl.root}
    )
    lines = await acl.new_lines("DELETE", f"/v1/acl/token/{own.json['AccessorID']}", token=own.json["SecretID"])
    assert {line["auth"]["accessor_id"] for line in lines} == {own.json["AccessorID"]}


async def test_bootstrap_is_recorded_with_the_token_that_it_made(tmp_path: Path) -> None:
    async with auditing(tmp_path, acl=AclConfig(enabled=True)) as audited:
        answer = await audited.api.call("POST", "/v1/acl/bootstrap")
        made, again = answer.json, await audited.call("POST", "/v1/acl/bootstrap")
        before, after, _, refused = audited.lines()
    assert before["auth"]["resolved_by"] == "no token"
    assert after["request"]["object"] == {"type": "acl/token", "id": made["AccessorID"]}
    assert made["SecretID"] not in (tmp_path / "audit.log").read_text()
    assert (again, refused["response"]["status_code"]) == (400, 400)


async def test_a_page_of_another_site_is_recorded_as_refused(acl: Audited) -> None:
    (line,) = await acl.new_lines("PUT", "/v1/jobs", {}, Origin="https://evil.example")
    assert (line["response"]["status_code"], line["request"]["route"]) == (403, "")


async def test_a_path_that_does_not_exist_is_no_line(acl: Audited) -> None:
    assert await acl.new_lines("GET", "/v1/none-such") == []


async def test_without_access_control_the_caller_is_only_an_address(tmp_path: Path) -> None:
    async with auditing(tmp_path) as audited:
        _, line = await audited.new_lines("PUT", "/v1/jobs", {"Job": job_document()}, token="anything")
    assert (line["auth"]["resolved_by"], line["auth"]["accessor_id"]) == ("access control is off", "")
    assert line["request"]["request_meta"]["remote_address"] == "127.0.0.1"


async def test_a_list_of_many_rows_has_a_bounded_line(tmp_path: Path) -> None:
    async with auditing(tmp_path, acl=AclConfig(enabled=True)) as audited:
        answer = await audited.api.call("POST", "/v1/acl/bootstrap")
        audited.root = answer.json["SecretID"]
        for number in range(40):
            await audited.call("PUT", "/v1/namespace", {"Name": f"team-{number}"})
        (line,) = await audited.new_lines("GET", "/v1/namespaces", token="")
    assert len(line["decisions"]) == 32
    assert line["decisions_omitted"] >= 8


# Streams and websockets.


async def test_a_stream_has_a_line_at_its_start_and_one_at_its_end(tmp_path: Path) -> None:
    async with auditing(tmp_path) as audited, asyncio.timeout(20):
        client = audited.api.client
        async with client.get("/v1/event/stream?topic=Job", timeout=aiohttp.ClientTimeout(20)):
            assert stages(audited.lines()) == [("OperationReceived", 0)]
        while len(audited.lines()) < 2:  # noqa: ASYNC110 - the server notices the end by itself
            await asyncio.sleep(0.01)
        last = audited.lines()[-1]
    assert (last["stage"], last["response"]["status_code"]) == ("OperationComplete", 200)
    assert last["request"]["route"] == "/v1/event/stream"


class EchoNode:
    """A node on which one command runs until its input ends."""

    async def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        yield ExecFrame()
        async for _ in inputs:
            break
        yield ExecFrame(exit_code=0)


async def test_a_command_in_a_task_has_a_line_before_the_upgrade_and_one_at_its_end(tmp_path: Path) -> None:
    async with auditing(tmp_path, NO_READS_BUT_EXEC) as audited, asyncio.timeout(30):
        await add_ready_node(audited.api)
        audited.api.server.clients.node_ports.attach(NODE_ID, EchoNode())
        await audited.api.register()
        (stub,) = await audited.api.wait_until("/v1/job/web/allocations", len)
        before = len(audited.lines())
        query = f"task=main&command={json.dumps(['echo', MARKER])}"
        async with audited.api.client.ws_connect(f"/v1/client/allocation/{stub['ID']}/exec?{query}") as socket:
            assert stages(audited.lines()[before:]) == [("OperationReceived", 0)]
            await socket.send_str("{}")
            await socket.receive()
        while len(audited.lines()) < before + 2:  # noqa: ASYNC110 - the server ends by itself
            await asyncio.sleep(0.01)
        last = audited.lines()[-1]
    assert (last["response"]["status_code"], last["request"]["object"]["type"]) == (101, "allocation")
    assert last["request"]["namespace"] == {"id": "default"}
    assert MARKER not in (tmp_path / "audit.log").read_text()


async def test_a_refused_websocket_has_the_status_of_its_refusal(tmp_path: Path) -> None:
    async with auditing(tmp_path, NO_READS_BUT_EXEC) as audited, asyncio.timeout(30):
        path = f"/v1/client/allocation/{NODE_ID}/exec?task=main&command={json.dumps(['echo', MARKER])}"
        async with audited.api.client.ws_connect(path) as socket:
            assert (await socket.receive()).data == 1008
        last = audited.lines()[-1]
    assert (last["stage"], last["response"]["status_code"]) == ("OperationComplete", 404)
    assert MARKER not in (tmp_path / "audit.log").read_text()


NO_READS_BUT_EXEC = FilterSettings(
    name="reads", endpoints=("/v1/job/*", "/v1/jobs", "/v1/metrics"), stages=("*",), operations=("GET",)
)


# Delivery.


async def test_where_a_line_cannot_be_written_nothing_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with auditing(tmp_path) as audited:
        monkeypatch.setattr(AuditFile, "write", fail)
        answer = await audited.api.put("/v1/jobs", {"Job": job_document("web")})
        assert (answer.status, answer.headers["X-Yurt-Error"]) == (500, "unavailable")
        assert answer.text == (
            "the audit log cannot be written, and its delivery is enforced: the request was not carried out"
        )
        assert (await audited.api.get("/v1/jobs")).status == 500
        assert not len(audited.api.server.state.jobs)
        monkeypatch.undo()
        assert (await audited.api.put("/v1/jobs", {"Job": job_document("web")})).status == 200


async def test_a_change_that_was_made_is_told_also_where_its_last_line_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = AuditFile.write, []

    def write_once(self: AuditFile, lines: bytes, now_ns: int) -> None:
        if written:
            fail()
        written.append(lines)
        real(self, lines, now_ns)

    async with auditing(tmp_path) as audited:
        monkeypatch.setattr(AuditFile, "write", write_once)
        assert (await audited.api.put("/v1/jobs", {"Job": job_document("web")})).status == 200
        assert stages(audited.lines()) == [("OperationReceived", 0)]
        assert audited.api.server.metrics.counters["audit.failed"] == 1


async def test_a_stream_does_not_begin_where_its_line_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with auditing(tmp_path) as audited:
        monkeypatch.setattr(AuditFile, "write", fail)
        assert (await audited.api.get("/v1/event/stream?topic=Job")).status == 500


async def test_best_effort_lets_requests_through_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with auditing(tmp_path, is_enforced=False) as audited:
        monkeypatch.setattr(AuditFile, "write", fail)
        assert (await audited.api.put("/v1/jobs", {"Job": job_document("web")})).status == 200
        while audited.api.server.metrics.counters["audit.failed"] < 2:  # noqa: ASYNC110 - written beside the request
            await asyncio.sleep(0.01)


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


# Secrets.


def corpus() -> list[tuple[str, str, Any]]:
    """Requests that hold a secret wherever one may stand, and in some places where one must not."""
    task = {
        "Name": "main", "Driver": "mock_driver", "Config": {"run_for": "1h", "password": MARKER},
        "Env": {"DB_PASSWORD": MARKER}, "Meta": {"note": MARKER},
        "Templates": [{"EmbeddedTmpl": MARKER, "DestPath": "local/a"}],
    }  # fmt: skip
    group = {"Name": "group", "Count": 1, "Tasks": [task]}
    job = job_document("web", TaskGroups=[group], Meta={"secret": MARKER})
    variable = {"Path": "app/db", "Namespace": "default", "Items": {"password": MARKER}}
    method = {
        "Name": "sso", "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "1h",
        "Config": {"OIDCDiscoveryURL": "https://x", "OIDCClientID": "y", "OIDCClientSecret": MARKER},
    }  # fmt: skip
    return [
        ("PUT", "/v1/jobs", {"Job": job, "Submission": {"Source": MARKER, "Format": "hcl2", "Variables": MARKER}}),
        ("PUT", "/v1/jobs", MARKER.encode()),
        ("PUT", "/v1/jobs/parse", {"JobHCL": f'job "{MARKER}" {{', "Variables": MARKER}),
        ("PUT", "/v1/validate/job", {"Job": job}),
        ("PUT", "/v1/job/web/plan", {"Job": job, "Diff": True}),
        ("PUT", "/v1/job/web/dispatch", {"Payload": MARKER, "Meta": {"a": MARKER}}),
        ("PUT", "/v1/var/app/db", variable),
        ("PUT", "/v1/var/app/db?cas=7", variable),
        ("GET", f"/v1/var/app/db?token={MARKER}", None),
        ("DELETE", f"/v1/var/app/db?token={MARKER}", None),
        ("GET", f"/v1/jobs?token={MARKER}&filter={MARKER}&prefix={MARKER}&index={MARKER}", None),
        ("PUT", "/v1/search", {"Prefix": MARKER, "Context": "jobs"}),
        ("PUT", "/v1/acl/bootstrap", {"BootstrapSecret": MARKER}),
        ("PUT", "/v1/acl/token", {"Type": "client", "AccessorID": "x", "SecretID": MARKER, "Policies": ["dev"]}),
        ("PUT", f"/v1/acl/token/{ACCESSOR}", {"AccessorID": ACCESSOR, "SecretID": MARKER, "Type": "client"}),
        ("PUT", "/v1/acl/token/onetime", None),
        ("PUT", "/v1/acl/token/onetime/exchange", {"OneTimeSecretID": MARKER}),
        ("PUT", "/v1/acl/auth-method", method),
        ("PUT", "/v1/acl/login", {"AuthMethodName": "sso", "LoginToken": JWT}),
        ("PUT", "/v1/acl/oidc/auth-url", {"AuthMethodName": "sso", "ClientNonce": MARKER, "RedirectURI": MARKER}),
        ("PUT", "/v1/acl/oidc/complete-auth", {"AuthMethodName": "sso", "Code": MARKER, "State": MARKER}),
        ("PUT", "/v1/acl/identity/client-introduction-token", {}),
        ("GET", f"/v1/acl/token/{MARKER}", None),
        ("DELETE", f"/v1/acl/token/{MARKER.upper()}", None),
        ("GET", f"/v1/job/{MARKER}", None),
        ("GET", f"/v1/var/tokens/{MARKER}/x", None),
        ("DELETE", f"/v1/job/{JWT}", None),
        ("PUT", f"/v1/acl/policy/{JWT}", {"Name": JWT, "Rules": MARKER}),
        ("GET", f"/v1/client/fs/cat/{uuid.uuid4()}?path={MARKER}", None),
        ("GET", f"/v1/client/allocation/{uuid.uuid4()}/exec?command=[%22{MARKER}%22]&task=main", None),
    ]


@pytest.mark.parametrize("shown", [MARKER, JWT, "root"])
async def test_no_secret_gets_into_the_log(acl: Audited, shown: str) -> None:
    headers = {"X-Nomad-Token": acl.root}
    body = {
        "Type": "management" if shown == MARKER else "client", "AccessorID": str(uuid.UUID(int=9)), "SecretID": MARKER,
        "Policies": ["dev"],
    }  # fmt: skip
    if shown == MARKER:
        body |= {"Type": "client"}
    made = await acl.api.call("PUT", "/v1/acl/token", body, headers=headers)
    assert made.status == 200, made.text
    token = acl.root if shown == "root" else shown
    for method, path, document in corpus():
        await acl.call(method, path, document, token=token, Cookie=f"session={MARKER}")
        await acl.call(method, path, document, token=token, Referer=f"http://x/{MARKER}")
        with contextlib.suppress(aiohttp.ClientError):
            await acl.call(method, path, document, token="", Authorization=f"Bearer {token}", **{"User-Agent": MARKER})
    text = acl.path.read_text().lower()
    assert len(acl.lines()) > len(corpus())
    for secret in (MARKER, MARKER.replace("-", ""), JWT.lower(), acl.root):
        assert secret not in text
    assert "<redacted>" in text


async def test_answers_hold_secrets_and_lines_do_not(acl: Audited) -> None:
    made = await acl.token("dev")
    once = await acl.api.call("PUT", "/v1/acl/token/onetime", headers={"X-Nomad-Token": made["SecretID"]})
    secret = once.json["OneTimeToken"]["OneTimeSecretID"]
    await acl.call("PUT", "/v1/acl/token/onetime/exchange", {"OneTimeSecretID": secret}, token="")
    await acl.call("PUT", "/v1/acl/identity/client-introduction-token", {})
    text = acl.path.read_text()
    assert acl.lines()[-3]["request"]["object"]["id"] == made["AccessorID"]
    for each in (secret, made["SecretID"], acl.root, "eyJ"):
        assert each not in text
