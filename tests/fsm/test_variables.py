"""Variables and root keys in the state machine: versions, locks, and what a rotation leaves."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from yurt.sdk.value import replace, seconds
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace
from yurt.structs.commands import Applied, Rejected
from yurt.structs.variable import (
    KEY_ACTIVE,
    KEY_INACTIVE,
    KEY_REKEYING,
    EncryptedVariable,
    RootKeyMeta,
    VariableLock,
)
from yurt.testing.replica import Replica
from yurt.testing.rows.random_commands import random_history

KEY = ("default", "app/db")


@pytest.fixture
def replica() -> Replica:
    made = Replica()
    made.apply(c.PutRootKey(key=RootKeyMeta(key_id="k1")))
    return made


def sealed(data: bytes = b"1", **changes: Any) -> EncryptedVariable:
    return replace(EncryptedVariable(path="app/db", key_id="k1", data=data), **changes)


def put(replica: Replica, **changes: Any) -> Any:
    return replica.step(replace(c.PutVariable(variable=sealed()), **changes)).result


def lock(replica: Replica, lock_id: str, data: bytes = b"") -> Any:
    held = VariableLock(id=lock_id, ttl=seconds(10))
    return replica.step(c.LockVariable(variable=sealed(data, lock=held))).result


def test_an_index_that_does_not_fit_is_a_conflict(replica: Replica) -> None:
    assert isinstance(put(replica, check_index=3), Rejected)
    assert isinstance(put(replica, check_index=0), Applied)
    first = replica.state.variables[KEY]
    assert put(replica, check_index=0).kind == "conflict"
    assert isinstance(put(replica, check_index=first.modify_index), Applied)
    second = replica.state.variables[KEY]
    assert (second.create_index, second.create_time) == (first.create_index, first.create_time)
    assert second.modify_index > first.modify_index


def test_only_the_holder_of_a_lock_changes_what_is_locked(replica: Replica) -> None:
    assert isinstance(lock(replica, "mine", b"1"), Applied)
    for refused in (
        put(replica),
        put(replica, lock_id="other"),
        lock(replica, "other"),
        replica.step(c.DeleteVariable(namespace="default", path="app/db")).result,
        replica.step(c.ReleaseVariableLock(namespace="default", path="app/db", lock_id="other")).result,
    ):
        assert isinstance(refused, Rejected) and refused.kind == "conflict"
    assert isinstance(put(replica, variable=sealed(b"2"), lock_id="mine"), Applied)
    assert isinstance(lock(replica, "mine"), Applied)
    assert replica.state.variables[KEY].data == b"2"
    replica.apply(c.ReleaseVariableLock(namespace="default", path="app/db", lock_id="mine"))
    assert replica.state.variables[KEY].lock is None
    assert put(replica, lock_id="mine").kind == "conflict"
    assert isinstance(put(replica), Applied)


def test_a_rotation_leaves_one_active_key_and_rekeying_moves_no_index(replica: Replica) -> None:
    put(replica)
    before = replica.state.variables[KEY]
    replica.apply(c.PutRootKey(key=RootKeyMeta(key_id="k2"), is_full=True))
    states = {key.key_id: key.state for key in replica.state.root_keys.values()}
    assert states == {"k1": KEY_REKEYING, "k2": KEY_ACTIVE}
    again = replace(before, key_id="k2", data=b"again")
    replica.apply(c.RekeyVariables(variables=(again, replace(again, path="app/gone"), replace(again, modify_index=1))))
    assert replica.state.variables[KEY] == again
    replica.apply(c.PutRootKey(key=RootKeyMeta(key_id="k3")))
    assert replica.state.root_keys["k2"].state == KEY_INACTIVE
    assert isinstance(replica.step(c.DeleteRootKeys(key_ids=("k2",))).result, Rejected)
    assert isinstance(replica.step(c.DeleteRootKeys(key_ids=("k1",))).result, Applied)
    assert isinstance(replica.step(c.DeleteRootKeys(key_ids=("k3",), is_forced=True)).result, Rejected)


def test_a_namespace_with_variables_stays(replica: Replica) -> None:
    replica.apply(c.UpsertNamespaces(namespaces=(Namespace(name="ops"),)))
    replica.apply(c.PutVariable(variable=sealed(namespace="ops")))
    assert isinstance(replica.step(c.DeleteNamespaces(names=("ops",))).result, Rejected)
    replica.apply(c.DeleteVariable(namespace="ops", path="app/db"))
    assert isinstance(replica.step(c.DeleteNamespaces(names=("ops",))).result, Applied)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_one_key_is_active_and_a_lock_changes_hands_only_when_it_is_free(seed: int) -> None:
    before: dict[Any, EncryptedVariable] = {}
    for step in random_history(Random(seed), 250):
        active = [key for key in step.state.root_keys.values() if key.state == KEY_ACTIVE]
        assert len(active) <= 1
        now = dict(step.state.variables.items())
        for key, row in now.items():
            old = before.get(key)
            if old is not None and old.lock is not None and row.lock is not None:
                assert old.lock.id == row.lock.id
            assert row.modify_index <= step.state.index and row.create_index <= row.modify_index
        before = now
