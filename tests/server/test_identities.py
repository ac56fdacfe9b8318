"""Tokens of workload identities: what they say, who gets them, and that anybody can check them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied
from yurt.sdk.value import replace, seconds
from yurt.structs.rpc import IdentityQuery
from yurt.structs.service import WorkloadIdentity
from yurt.testing import factories


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def checked(token: str, jwks: dict[str, Any]) -> dict[str, Any]:
    """The claims of a token whose signature is right."""
    head, body, signature = token.split(".")
    header = json.loads(decoded(head))
    (key,) = [each for each in jwks["keys"] if each["kid"] == header["kid"]]
    numbers = rsa.RSAPublicNumbers(int.from_bytes(decoded(key["e"])), int.from_bytes(decoded(key["n"])))
    numbers.public_key().verify(decoded(signature), f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    assert header == {"alg": "RS256", "kid": key["kid"], "typ": "JWT"}
    claims: dict[str, Any] = json.loads(decoded(body))
    return claims


async def placed(bench: Any, *identities: WorkloadIdentity) -> tuple[Any, Any]:
    node = await bench.add_node()
    job = factories.job()
    group = job.task_groups[0]
    task = replace(group.tasks[0], identities=identities)
    await bench.server.resources.jobs.register(replace(job, task_groups=(replace(group, tasks=(task,)),)))
    await bench.until(bench.live)
    return node, bench.live()[0]


async def test_a_token_says_whose_it_is_and_when_it_ends(bench: Any) -> None:
    named = WorkloadIdentity(name="db", audience=("db.example",), ttl=seconds(60), file=True)
    node, alloc = await placed(bench, named)
    task = alloc.job.task_groups[0].tasks[0].name
    query = IdentityQuery(node_id=node.id, alloc_id=alloc.id, task=task, name="db")
    signed = await bench.server.clients.calls.sign_identity(query)
    claims = checked(signed.token, await bench.server.keys.root_keys.jwks())
    now = bench.env.now() // 1_000_000_000
    assert claims.pop("jti")
    assert claims == {
        "aud": "db.example", "exp": now + 60, "iat": now, "nbf": now, "nomad_allocation_id": alloc.id,
        "nomad_job_id": "web", "nomad_namespace": "default", "nomad_task": task,
        "sub": f"global:default:web:{alloc.task_group}:{task}:db",
    }  # fmt: skip
    assert signed.expires_at == (now + 60) * 1_000_000_000


async def test_the_default_identity_is_always_there_and_stays_valid_after_a_rotation(bench: Any) -> None:
    node, alloc = await placed(bench)
    task = alloc.job.task_groups[0].tasks[0].name
    query = IdentityQuery(node_id=node.id, alloc_id=alloc.id, task=task)
    signed = await bench.server.clients.calls.sign_identity(query)
    await bench.server.keys.root_keys.rotate(is_full=False)
    jwks = await bench.server.keys.root_keys.jwks()
    claims = checked(signed.token, jwks)
    assert claims["aud"] == "nomadproject.io" and "exp" not in claims and signed.expires_at == 0
    head, body, signature = signed.token.split(".")
    forged = base64.urlsafe_b64encode(decoded(body).replace(b"web", b"adm")).rstrip(b"=").decode()
    with pytest.raises(InvalidSignature):
        checked(f"{head}.{forged}.{signature}", jwks)


async def test_only_the_node_that_runs_it_gets_a_token(bench: Any) -> None:
    node, alloc = await placed(bench)
    task = alloc.job.task_groups[0].tasks[0].name
    good = IdentityQuery(node_id=node.id, alloc_id=alloc.id, task=task)
    for query, error in (
        (replace(good, node_id="x" * 36), PermissionDenied),
        (replace(good, alloc_id="x" * 36), NotFound),
        (replace(good, task="other"), NotFound),
        (replace(good, name="other"), Invalid),
    ):
        with pytest.raises(error):
            await bench.server.clients.calls.sign_identity(query)
    await bench.report("complete")
    with pytest.raises(PermissionDenied):
        await bench.server.clients.calls.sign_identity(good)
