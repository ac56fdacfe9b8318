"""What servers do about tokens on their own: collect expired ones, and say when a restore made tokens valid."""

from __future__ import annotations

import io
import logging
from collections.abc import AsyncIterator

import pytest
from yurt.duties.acl_gc import BATCH, expired
from yurt.fsm import snapshot
from yurt.fsm.restore import framed
from yurt.sdk.value import UnixNano, replace
from yurt.server.config import AclConfig
from yurt.server.log.restore import Restored, restore
from yurt.state import Snapshot
from yurt.structs import acl
from yurt.structs import commands as c
from yurt.testing.factories import NOW, number_id
from yurt.testing.http_api import Api, serving
from yurt.testing.replica import Replica

HOUR = 3_600_000_000_000
TOKEN = acl.ACLToken(type=acl.CLIENT, policies=("ops",))
READ, WRITE = 'node { policy = "read" }', 'node { policy = "write" }'


@pytest.fixture
async def served() -> AsyncIterator[Api]:
    async with serving(acl=AclConfig(enabled=True)) as api:
        yield api


def test_what_is_over_is_collected_in_bounded_commands() -> None:
    replica = Replica()
    for number in range(BATCH + 1):
        token = acl.ACLToken(
            accessor_id=number_id(number), secret_hash=f"hash-{number}", create_time=NOW, expiration_time=NOW + 1
        )
        replica.apply(c.CreateACLToken(token=token))
    later = UnixNano(NOW + HOUR)
    assert not list(expired(replica.state, NOW, later))
    assert not list(expired(replica.state, later, NOW))
    commands = list(expired(replica.state, later, later))
    assert [len(each.accessor_ids) for each in commands] == [BATCH, 1]
    replica.apply(*commands)
    assert len(replica.state.acl_tokens) == 0


async def test_system_gc_forgets_expired_tokens_however_young(served: Api) -> None:
    tokens = served.server.resources.acl_tokens
    made = await tokens.create(replace(TOKEN, expiration_ttl=60_000_000_000))
    kept = await tokens.create(TOKEN)
    gone = replace(
        made.token, accessor_id=number_id(1), secret_hash="other", expiration_time=made.token.create_time + 1
    )
    await served.server.replica.propose(c.CreateACLToken(token=gone))
    assert await tokens.collect(age_s=3600.0) == 0
    await served.server.resources.system.collect_garbage()
    assert set(served.server.state.acl_tokens.keys()) == {made.token.accessor_id, kept.token.accessor_id}


async def test_a_restore_names_what_became_valid(served: Api, caplog: pytest.LogCaptureFixture) -> None:
    tokens, policies = served.server.resources.acl_tokens, served.server.resources.acl_policies
    made, kept = await tokens.create(TOKEN), await tokens.create(TOKEN)
    await policies.put_policy(acl.ACLPolicy(name="same", rules=READ))
    await policies.put_policy(acl.ACLPolicy(name="narrowed", rules=WRITE))
    await policies.put_policy(acl.ACLPolicy(name="deleted", rules=WRITE))
    earlier = served.server.state
    await tokens.delete(made.token.accessor_id)
    await policies.put_policy(acl.ACLPolicy(name="narrowed", rules=READ))
    await policies.delete_policy("deleted")
    with caplog.at_level(logging.WARNING):
        restored = await _restore(served, earlier)
    assert (restored.access.acl_tokens, restored.access.acl_policies) == ((), ("deleted", "narrowed"))
    assert "count=2 acl_policies='deleted,narrowed'" in caplog.text
    async with serving(acl=AclConfig(enabled=True)) as other:
        restored = await _restore(other, earlier)
    ids = tuple(sorted((made.token.accessor_id, kept.token.accessor_id)))
    assert (restored.access.acl_tokens, restored.access.count) == (ids, 5)


async def test_a_restore_without_a_change_of_rights_says_nothing(served: Api, caplog: pytest.LogCaptureFixture) -> None:
    await served.server.resources.acl_tokens.create(TOKEN)
    restored = await _restore(served, served.server.state)
    assert restored.access.count == 0 and "access control changed" not in caplog.text


async def _restore(api: Api, state: Snapshot) -> Restored:
    data = b"".join(framed(snapshot.encode(state)))
    return await restore(api.server.replica, api.server.leader, io.BytesIO(data), len(data))
