"""Callers who show a signed identity: of a task, of a node, and what only looks like one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.access import Access, Actor, InvalidToken, NoToken, ShownNode, ShownToken, ShownWorkload, needs
from yurt.access.needs import VariableCapability
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.server.config import AclConfig
from yurt.server.keys.tokens import signed_token
from yurt.server.views import View
from yurt.server.views.search import SearchView
from yurt.server.views.variables import VariableRows
from yurt.structs.commands import AllocUpdate, RegisterNode, SetNodeStatus, UpdateAllocsFromClient
from yurt.structs.rpc import HeldIdentity, IdentityQuery, NodeReply
from yurt.testing import factories
from yurt.testing.http_api import NODE_ID, Api, HttpAnswer, job_document, ready_node, serving

SECRET = str(uuid.uuid4())
"""The secret of the node."""
READ = 'namespace "default" { policy = "read" }'


class Cluster:
    """An API with access control, a node, and a running task of the job `web`."""

    def __init__(self, api: Api, root: str) -> None:
        self.api = api
        self.root = root
        self.alloc_id = ""

    async def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> HttpAnswer:
        headers = {"X-Nomad-Token": self.root if token is None else token}
        return await self.api.call(method, path, body, headers=headers)

    async def status(self, path: str, token: str, method: str = "GET", body: Any = None) -> int:
        return (await self.call(method, path, body, token=token)).status

    async def run(self, job_id: str = "web") -> None:
        """Register the job, and wait for its allocation."""
        answer = await self.call("PUT", "/v1/jobs", {"Job": job_document(job_id)})
        assert answer.status == 200, answer.text
        self.alloc_id = await self.placed(job_id)

    async def placed(self, job_id: str) -> str:
        state = await self.api.server.replica.wait_past(
            [("allocs", "job", ("default", job_id))],
            lambda state: state.allocs.count_where("job", ("default", job_id)),
            min_index=0,
            timeout_s=30,
        )
        (alloc,) = state.allocs.where("job", ("default", job_id))
        return alloc.id

    async def variable(self, path: str) -> None:
        answer = await self.call("PUT", f"/v1/var/{path}", {"Path": path, "Items": {"key": path}})
        assert answer.status == 200, answer.text

    async def policy(self, name: str, rules: str, **job_acl: str) -> None:
        body = {"Name": name, "Rules": rules} | ({"JobACL": job_acl} if job_acl else {})
        assert (await self.call("PUT", f"/v1/acl/policy/{name}", body)).status == 200

    async def token(self, alloc_id: str = "") -> str:
        """The default identity of the task."""
        query = IdentityQuery(node_id=NODE_ID, alloc_id=alloc_id or self.alloc_id, task="main")
        return (await self.api.server.clients.calls.sign_identity(query)).token

    async def node_token(self) -> str:
        with_identity = self.api.server.clients.local_calls._registrations._node_identities.with_identity
        reply = await with_identity(NodeReply(heartbeat_ttl_s=1.0, index=1), NODE_ID, HeldIdentity(must_renew=True))
        return reply.identity

    async def signed(self, **claims: Any) -> str:
        """A token with these claims, signed by the active root key."""
        key = await self.api.server.keys.root_keys.active()
        return signed_token(self.api.server.keys.keyring, key.key_id, claims)

    async def end(self) -> None:
        """The task has ended."""
        now = UnixNano(self.api.server.replica.env.now())
        update = AllocUpdate(id=self.alloc_id, node_id=NODE_ID, client_status="complete")
        seed = self.api.server.replica.mint().seed()
        await self.api.server.replica.propose(UpdateAllocsFromClient(updates=(update,), seed=seed, now=now))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with serving(acl=AclConfig(enabled=True), data_dir=str(tmp_path)) as api:
        root = (await api.call("POST", "/v1/acl/bootstrap")).json["SecretID"]
        await api.server.replica.propose(RegisterNode(node=replace(ready_node(), secret_id=SECRET)))
        await api.server.replica.propose(SetNodeStatus(node_id=NODE_ID, status="ready", updated_at=1))
        found = Cluster(api, root)
        await found.run()
        yield found


# Tasks.


async def test_a_task_reads_its_own_variables_and_no_others(cluster: Cluster) -> None:
    own = ("nomad/jobs", "nomad/jobs/web", "nomad/jobs/web/group", "nomad/jobs/web/group/main")
    foreign = ("nomad/jobs/other", "nomad/jobs/web/group/side", "nomad/jobs/web/group/main/x", "secret")
    for path in (*own, *foreign):
        await cluster.variable(path)
    token = await cluster.token()
    for path in own:
        assert await cluster.status(f"/v1/var/{path}", token) == 200, path
    for path in foreign:
        assert await cluster.status(f"/v1/var/{path}", token) == 403, path
    listed = (await cluster.call("GET", "/v1/vars", token=token)).json
    assert [row["Path"] for row in listed] == list(own)
    assert await cluster.status("/v1/var/nomad/jobs/web", token, "PUT", {"Items": {"a": "b"}}) == 403
    assert await cluster.status("/v1/var/nomad/jobs/web", token, "DELETE") == 403


async def test_a_refusal_does_not_tell_whether_a_variable_exists(cluster: Cluster) -> None:
    await cluster.variable("nomad/jobs/other")
    token = await cluster.token()
    there = await cluster.call("GET", "/v1/var/nomad/jobs/other", token=token)
    absent = await cluster.call("GET", "/v1/var/nomad/jobs/absent", token=token)
    assert (there.status, there.text) == (absent.status, absent.text) == (403, "Permission denied")


async def test_no_row_is_looked_at_for_a_caller_who_may_find_none(cluster: Cluster) -> None:
    await cluster.variable("a")
    search = View(cluster.api.server.state, Access(Actor(caller=NoToken()), authority=cluster.api.server.authority))
    for context in ("jobs", "allocs", "nodes", "vars"):
        assert not tuple(search.of(SearchView).of_context(context).rows), context
    need = needs.each_row(needs.variable(VariableCapability.LIST))
    access = Access(Actor(caller=NoToken()), need, cluster.api.server.authority)
    assert not tuple(View(cluster.api.server.state, access).of(VariableRows).all().rows)
    path = 'path "a" { capabilities = ["list"] }'
    await cluster.policy("anonymous", f'namespace "default" {{ variables {{ {path} }} }}')
    view = View(cluster.api.server.state, access)
    assert [row.path for row in view.of(VariableRows).all()] == ["a"]
    assert [path for _, path, _ in view.of(SearchView).of_context("vars")] == ["a"]


async def test_a_task_reads_the_services_of_its_namespace_and_nothing_else(cluster: Cluster) -> None:
    token = await cluster.token()
    assert await cluster.status("/v1/services", token) == 200
    assert await cluster.status("/v1/service/web", token) == 200
    assert (await cluster.call("GET", "/v1/services?namespace=*", token=token)).json == []
    for path in (
        "/v1/jobs",
        "/v1/job/web",
        f"/v1/allocation/{cluster.alloc_id}/services",
        "/v1/nodes",
        "/v1/acl/tokens",
    ):
        assert await cluster.status(path, token) == 403, path
    assert await cluster.status("/v1/services?namespace=prod", token) == 403


async def test_policies_attached_to_a_task_its_job_or_its_namespace_count(cluster: Cluster) -> None:
    token = await cluster.token()
    assert await cluster.status("/v1/jobs", token) == 403
    await cluster.policy("side", READ, Namespace="default", JobID="web", Group="group", Task="side")
    assert await cluster.status("/v1/jobs", token) == 403
    await cluster.policy("main", READ, Namespace="default", JobID="web", Group="group", Task="main")
    assert await cluster.status("/v1/jobs", token) == 200
    assert [row["Name"] for row in (await cluster.call("GET", "/v1/acl/policy/self", token=token)).json] == ["main"]
    assert [row["Name"] for row in (await cluster.call("GET", "/v1/acl/policies", token=token)).json] == ["main"]
    assert await cluster.status("/v1/acl/policy/main", token) == 200
    assert await cluster.status("/v1/acl/policy/side", token) == 403
    assert (await cluster.call("DELETE", "/v1/acl/policy/main")).status == 200
    assert await cluster.status("/v1/jobs", token) == 403
    await cluster.policy("all", READ, Namespace="default")
    assert await cluster.status("/v1/jobs", token) == 200


async def test_a_task_has_no_acl_token_and_makes_none(cluster: Cluster) -> None:
    token = await cluster.token()
    own = await cluster.call("GET", "/v1/acl/token/self", token=token)
    assert (own.status, own.text) == (404, "ACL token not found")
    assert await cluster.status("/v1/acl/token/onetime", token, "POST") == 403
    assert (await cluster.call("GET", "/v1/acl/policy/self", token=token)).json is None
    assert (await cluster.call("GET", "/v1/acl/roles", token=token)).json == []


async def test_an_identity_ends_with_its_allocation(cluster: Cluster) -> None:
    token = await cluster.token()
    assert await cluster.status("/v1/services", token) == 200
    await cluster.end()
    assert await cluster.status("/v1/services", token) == 403


async def test_an_identity_of_an_allocation_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    claims = {"nomad_allocation_id": str(uuid.uuid4()), "nomad_namespace": "default", "nomad_job_id": "web"}
    assert await cluster.status("/v1/services", await cluster.signed(**claims)) == 403


async def test_an_identity_for_another_audience_counts_too(cluster: Cluster) -> None:
    claims = {"nomad_allocation_id": cluster.alloc_id, "nomad_namespace": "default", "nomad_job_id": "web"}
    assert await cluster.status("/v1/services", await cluster.signed(**claims, aud="vault.example", iss="x")) == 200


async def test_times_count_with_a_leeway_of_a_minute(cluster: Cluster) -> None:
    claims = {"nomad_allocation_id": cluster.alloc_id, "nomad_namespace": "default", "nomad_job_id": "web"}
    now = cluster.api.server.replica.env.now() // NANOSECONDS
    for times, status in (
        ({"exp": now - 50}, 200), ({"exp": now - 61}, 403), ({"nbf": now + 50}, 200), ({"nbf": now + 70}, 403),
        ({"iat": now + 50}, 200), ({"iat": now + 70}, 403), ({"exp": "soon"}, 403),
    ):  # fmt: skip
        assert await cluster.status("/v1/services", await cluster.signed(**claims, **times)) == status, times


async def test_a_remembered_identity_still_expires(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    env = cluster.api.server.replica.env
    now = env.now()
    claims = {"nomad_allocation_id": cluster.alloc_id, "nomad_namespace": "default", "nomad_job_id": "web"}
    token = await cluster.signed(**claims, exp=now // NANOSECONDS + 10)
    assert await cluster.status("/v1/services", token) == 200
    monkeypatch.setattr(env, "now", lambda: UnixNano(now + 71 * NANOSECONDS))
    assert await cluster.status("/v1/services", token) == 403


async def test_a_removed_root_key_ends_what_it_signed(cluster: Cluster) -> None:
    token = await cluster.token()
    keys = cluster.api.server.keys.root_keys
    old = await keys.active()
    await keys.rotate(is_full=False)
    assert await cluster.status("/v1/services", token) == 200
    await keys.remove(old.key_id, is_forced=True)
    assert await cluster.status("/v1/services", token) == 403


# What only looks like an identity.


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def with_header(token: str, **changes: Any) -> str:
    head, body, signature = token.split(".")
    header = json.loads(base64.urlsafe_b64decode(head + "=="))
    return f"{part(header | changes)}.{body}.{signature}"


FORGERIES: dict[str, Callable[[str], str]] = {
    "alg none": lambda token: with_header(token, alg="none").rpartition(".")[0] + ".",
    "alg none with the signature": lambda token: with_header(token, alg="none"),
    "another algorithm": lambda token: with_header(token, alg="PS256"),
    "the other algorithm of keys": lambda token: with_header(token, alg="EdDSA"),
    "a changed claim": lambda token: token.replace(token.split(".")[1], part({"nomad_allocation_id": "x"})),
    "no signature": lambda token: token.rpartition(".")[0] + ".",
    "two parts": lambda token: token.rpartition(".")[0],
    "four parts": lambda token: f"{token}.x",
    "a key id that is a path": lambda token: with_header(token, kid="../../keys/a"),
    "a key id that is no text": lambda token: with_header(token, kid=["a"]),
    "an unknown key": lambda token: with_header(token, kid=str(uuid.uuid4())),
    "a key of its own": lambda token: with_header(token, kid=str(uuid.uuid4()), jwk={"kty": "oct", "k": "AAAA"}),
    "no base64": lambda token: f"!{token}",
    "long": lambda token: token + "A" * 4_000,
    "text": lambda _: "not a token",
    "nothing but dots": lambda _: "..",
}


@pytest.mark.parametrize("kind", FORGERIES)
async def test_a_forged_identity_has_no_rights(cluster: Cluster, kind: str) -> None:
    await cluster.policy("anonymous", READ)
    forged = FORGERIES[kind](await cluster.token())
    assert await cluster.status("/v1/services", forged) == 403
    assert await cluster.status("/v1/jobs", forged) == 403, "not even those of a caller without a token"


async def test_a_public_key_is_no_secret_of_an_hmac(cluster: Cluster) -> None:
    token = await cluster.token()
    keyring = cluster.api.server.keys.keyring
    key = await cluster.api.server.keys.root_keys.active()
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = keyring.signer(key.key_id).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = with_header(token, alg="HS256").rpartition(".")[0]
    forged = f"{signed}.{part(hmac.new(public, signed.encode(), hashlib.sha256).digest())}"
    assert await cluster.status("/v1/services", forged) == 403


async def test_an_introduction_token_is_no_caller(cluster: Cluster) -> None:
    token = await cluster.api.server.clients.introductions.make()
    assert await cluster.status("/v1/services", token) == 403
    assert await cluster.status("/v1/nodes", token) == 403
    found = await cluster.api.server.keys.callers.shown(token)  # type: ignore[union-attr]
    assert isinstance(found, InvalidToken) and "introduction" in found.problem


# Nodes.


@pytest.mark.parametrize("shows", ["secret", "identity"])
async def test_a_node_reads_nodes_and_agents_and_nothing_of_jobs(cluster: Cluster, shows: str) -> None:
    token = SECRET if shows == "secret" else await cluster.node_token()
    for path in ("/v1/nodes", f"/v1/node/{NODE_ID}", "/v1/agent/self", "/v1/agent/members"):
        assert await cluster.status(path, token) == 200, path
    for path in ("/v1/jobs", "/v1/services", "/v1/var/nomad/jobs/web", "/v1/acl/policy/self", "/v1/acl/tokens"):
        assert await cluster.status(path, token) == 403, path
    assert (await cluster.call("GET", "/v1/vars", token=token)).json == []
    assert await cluster.status("/v1/acl/token/self", token) == 404
    for change in ("evaluate", "purge"):
        assert await cluster.status(f"/v1/node/{NODE_ID}/{change}", token, "POST", {}) == 403


@pytest.mark.parametrize("shows", ["secret", "identity"])
async def test_a_node_drains_itself_and_no_other_node(cluster: Cluster, shows: str) -> None:
    token = SECRET if shows == "secret" else await cluster.node_token()
    other = factories.node("aaaaaaaa-2222-4333-8444-000000000009", name="other")
    await cluster.api.server.replica.propose(RegisterNode(node=other))
    spec = {"DrainSpec": {"Deadline": 60_000_000_000}}
    assert await cluster.status(f"/v1/node/{other.id}/drain", token, "POST", spec) == 403
    assert await cluster.status(f"/v1/node/{NODE_ID}/drain", await cluster.token(), "POST", spec) == 403
    assert await cluster.status(f"/v1/node/{NODE_ID}/drain", token, "POST", spec) == 200
    nodes = cluster.api.server.state.nodes
    assert nodes[NODE_ID].drain_strategy is not None and nodes[other.id].drain_strategy is None


async def test_what_callers_show(cluster: Cluster) -> None:
    callers = cluster.api.server.keys.callers
    assert callers is not None
    assert await callers.shown("") == NoToken()
    assert isinstance(await callers.shown(cluster.root), ShownToken)
    assert await callers.shown(SECRET.upper()) == ShownNode(node_id=NODE_ID)
    assert isinstance(await callers.shown(str(uuid.uuid4())), ShownToken), "refused where it is looked up"
    found = await callers.shown(await cluster.token())
    assert isinstance(found, ShownWorkload)
    assert (found.alloc_id, found.namespace, found.job, found.task) == (cluster.alloc_id, "default", "web", "main")
    node = await callers.shown(await cluster.node_token())
    assert isinstance(node, ShownNode) and node.node_id == NODE_ID and node.valid_until > 0
