"""Variables and root keys of a running server: sealed in log and snapshot, versions, locks on the clock, rotation."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from yurt.fsm.snapshot import encode
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Unavailable
from yurt.sdk.value import replace, seconds
from yurt.server.keys.keyring import Keyring
from yurt.server.resources.variables import VariableConflict, checked_lock, metadata_of
from yurt.storage.checksummed_file import checked, unchecked
from yurt.storage.memory import MemoryLog
from yurt.structs.commands import encode_command
from yurt.structs.rpc import TemplateQuery
from yurt.structs.variable import KEY_ACTIVE, KEY_INACTIVE, KEY_PREPUBLISHED
from yurt.testing import factories

PATH = "nomad/jobs/web"
LOCK = checked_lock(seconds(10), seconds(20))


async def put(bench: Any, path: str = PATH, **items: str) -> Any:
    return await bench.server.resources.variables.put("default", path, items or {"password": "geheim"})


async def test_log_and_snapshot_hold_no_item_in_the_clear(run_server: Any) -> None:
    log = MemoryLog()
    async with run_server(log) as bench:
        written = await put(bench, password="geheim-4711")
        assert written.items == {"password": "geheim-4711"}
        entries = [command async for entry in log.entries(0) for command in entry.commands]
        state = bench.server.state
    stored = b"".join([*encode(state), *map(encode_command, entries)])
    assert PATH.encode() in stored
    assert b"geheim" not in stored and b"password" not in stored


async def test_a_sealed_variable_moved_elsewhere_cannot_be_opened(bench: Any) -> None:
    await put(bench)
    sealed = bench.server.state.variables[("default", PATH)]
    moved = type(sealed)(namespace="default", path="app/mine", key_id=sealed.key_id, data=sealed.data)
    with pytest.raises(Conflict, match="has been changed"):
        bench.server.resources.variables.open(moved)


async def test_a_check_index_refuses_another_version_and_tells_which_there_is(bench: Any) -> None:
    first = await put(bench, a="1")
    with pytest.raises(VariableConflict) as refused:
        await bench.server.resources.variables.put("default", PATH, {"a": "2"}, check_index=0)
    assert refused.value.current is not None and refused.value.current.items == {"a": "1"}
    second = await bench.server.resources.variables.put("default", PATH, {"a": "2"}, check_index=first.modify_index)
    assert (second.create_index, second.modify_index > first.modify_index) == (first.create_index, True)
    with pytest.raises(VariableConflict):
        await bench.server.resources.variables.delete("default", PATH, check_index=first.modify_index)
    await bench.server.resources.variables.delete("default", PATH, check_index=second.modify_index)
    assert not len(bench.server.state.variables)


@pytest.mark.parametrize("path", ["", "a b", "nomad", "nomad/x", "nomad/jobsx", "nomad/job-templates", "ä", "x" * 129])
async def test_a_path_that_is_none_is_refused(bench: Any, path: str) -> None:
    with pytest.raises(Invalid):
        await put(bench, path)


async def test_items_are_needed_and_bounded(bench: Any) -> None:
    with pytest.raises(Invalid, match="missing required Items"):
        await bench.server.resources.variables.put("default", PATH, {})
    await put(bench, value="x" * (64 * 1024 - 5))
    with pytest.raises(Invalid, match="64KiB"):
        await put(bench, value="x" * (64 * 1024 - 4))
    with pytest.raises(NotFound, match="nonexistent namespace"):
        await bench.server.resources.variables.put("nope", PATH, {"a": "b"})


async def test_a_lock_keeps_others_out_until_it_is_released(bench: Any) -> None:
    variables = bench.server.resources.variables
    held = await variables.acquire("default", PATH, LOCK, {"a": "1"})
    assert held.lock is not None and held.lock.id
    with pytest.raises(VariableConflict) as refused:
        await put(bench, a="2")
    assert refused.value.current is not None and refused.value.current.lock is not None
    assert not refused.value.current.lock.id
    for attempt in (variables.acquire("default", PATH, LOCK, {}), variables.delete("default", PATH)):
        with pytest.raises(VariableConflict):
            await attempt
    assert (await variables.put("default", PATH, {"a": "3"}, lock_id=held.lock.id)).items == {"a": "3"}
    released = await variables.release("default", PATH, held.lock.id)
    assert released == metadata_of(bench.server.replica.state.variables["default", PATH])
    assert released.lock is None and (await variables.put("default", PATH, {"b": "5"})).items == {"b": "5"}
    await put(bench, a="4")


async def test_a_lock_ends_with_its_time_and_its_delay_keeps_others_out(bench: Any) -> None:
    variables = bench.server.resources.variables
    held = await variables.acquire("default", PATH, LOCK, {"a": "1"})
    await bench.env.advance(8)
    await variables.renew("default", PATH, held.lock.id)
    await bench.env.advance(8)
    assert bench.server.state.variables[("default", PATH)].lock is not None
    await bench.env.advance(3)
    await bench.until(lambda: bench.server.state.variables[("default", PATH)].lock is None)
    with pytest.raises(VariableConflict):
        await variables.renew("default", PATH, held.lock.id)
    with pytest.raises(VariableConflict, match="a moment ago"):
        await variables.acquire("default", PATH, LOCK, {})
    await bench.env.advance(21)
    assert (await variables.acquire("default", PATH, LOCK, {})).items == {"a": "1"}


async def test_a_new_leader_gives_every_lock_its_whole_time(run_server: Any) -> None:
    log = MemoryLog()
    async with run_server(log) as first:
        held = await first.server.resources.variables.acquire("default", PATH, LOCK, {"a": "1"})
        keyring, env = first.server.keys.keyring, first.env
    async with run_server(log, env) as second:
        for key in second.server.state.root_keys.values():
            second.server.keys.keyring.add(keyring.get(key.key_id))
        await second.env.advance(9)
        renewed = await second.server.resources.variables.renew("default", PATH, held.lock.id)
        assert renewed.lock is not None
        await second.env.advance(11)
        await second.until(lambda: second.server.state.variables[("default", PATH)].lock is None)


@pytest.mark.parametrize(("ttl", "delay"), [(9, 0), (90_000, 0), (10, 90_000)])
def test_a_lock_has_bounds(ttl: int, delay: int) -> None:
    with pytest.raises(Invalid, match="must be between"):
        checked_lock(seconds(ttl), seconds(delay))


async def test_a_full_rotation_seals_everything_again_and_the_old_key_can_go(bench: Any) -> None:
    before = await put(bench)
    for number in range(60):
        await put(bench, f"app/{number}", a=str(number))
    (old,) = bench.server.keys.root_keys.listed()
    new = await bench.server.keys.root_keys.rotate(is_full=True)
    await bench.until(lambda: bench.server.state.root_keys[old.key_id].state == KEY_INACTIVE)
    assert bench.server.state.root_keys[new.key_id].state == KEY_ACTIVE
    assert {variable.key_id for variable in bench.server.state.variables.values()} == {new.key_id}
    after = bench.server.resources.variables.open(bench.server.state.variables[("default", PATH)])
    assert after == before
    await bench.server.keys.root_keys.remove(old.key_id, is_forced=False)
    assert old.key_id not in bench.server.keys.keyring


async def test_a_key_in_use_goes_by_force_only_and_the_active_one_never(bench: Any) -> None:
    await put(bench)
    (old,) = bench.server.keys.root_keys.listed()
    with pytest.raises(Invalid, match="call rotate first"):
        await bench.server.keys.root_keys.remove(old.key_id, is_forced=True)
    await bench.server.keys.root_keys.rotate(is_full=False)
    with pytest.raises(Conflict, match="in use"):
        await bench.server.keys.root_keys.remove(old.key_id, is_forced=False)
    await bench.server.keys.root_keys.remove(old.key_id, is_forced=True)
    with pytest.raises(Unavailable, match="restore its file"):
        bench.server.resources.variables.open(bench.server.state.variables[("default", PATH)])


async def test_a_key_published_ahead_becomes_active_at_its_time(bench: Any) -> None:
    first = await bench.server.keys.root_keys.active()
    ahead = await bench.server.keys.root_keys.rotate(is_full=False, publish_time=bench.env.now() + seconds(60))
    assert ahead.state == KEY_PREPUBLISHED
    assert (await bench.server.keys.root_keys.active()).key_id == first.key_id
    await bench.env.advance(61)
    await bench.until(lambda: bench.server.state.root_keys[ahead.key_id].state == KEY_ACTIVE)
    assert bench.server.state.root_keys[first.key_id].state == KEY_INACTIVE


async def test_a_key_that_is_old_is_replaced_by_itself(run_server: Any) -> None:
    async with run_server(root_key_rotation_s=100.0) as bench:
        first = await bench.server.keys.root_keys.active()
        await bench.env.advance(40)
        assert bench.server.keys.root_keys.listed() == (first,)
        await bench.env.advance(30)
        await bench.until(lambda: len(bench.server.keys.root_keys.listed()) == 2)
        _, second = bench.server.keys.root_keys.listed()
        assert (second.state, second.publish_time) == (KEY_PREPUBLISHED, first.create_time + 100_000_000_000)
        assert (await bench.server.keys.root_keys.active()).key_id == first.key_id
        await bench.env.advance(40)
        await bench.until(lambda: bench.server.state.root_keys[first.key_id].state == KEY_INACTIVE)
        assert (await bench.server.keys.root_keys.active()).key_id == second.key_id
        assert len(bench.server.keys.root_keys.listed()) == 2
        await bench.env.advance(40)
        assert len(bench.server.keys.root_keys.listed()) == 2, "the next one comes half of the time after that"


def test_keys_are_kept_and_readable_by_their_owner_only(tmp_path: Path) -> None:
    first = Keyring(tmp_path)
    one, two = factories.number_id(1, kind=8), factories.number_id(2, kind=8)
    first.create(one)
    sealed = first.encrypt(one, b"text", context=b"here")
    (path,) = (tmp_path / "keystore").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = Keyring(tmp_path)
    assert again.decrypt(one, sealed, context=b"here") == b"text"
    assert again.jwks([one, two]) == first.jwks([one])


@pytest.mark.parametrize("place", [3, 60, 200, -10])
def test_a_key_of_which_one_bit_flipped_counts_as_missing_and_seals_nothing(tmp_path: Path, place: int) -> None:
    one = factories.number_id(1, kind=8)
    made = Keyring(tmp_path).create(one)
    (path,) = (tmp_path / "keystore").iterdir()
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    again = Keyring(tmp_path)
    assert one not in again
    with pytest.raises(Unavailable, match="is damaged"):
        again.get(one)
    again.add(made)
    assert Keyring(tmp_path).get(one) == made


@pytest.mark.parametrize("key_id", ["../outside", "/outside", "one", "", f"{factories.number_id(1)}\n"])
def test_a_key_id_that_is_not_a_uuid_never_names_a_file(tmp_path: Path, key_id: str) -> None:
    victim = tmp_path / "outside.key.json"
    victim.write_text("kept")
    keyring = Keyring(tmp_path)
    made = keyring.create(factories.number_id(1, kind=8))
    with pytest.raises(Invalid, match="is not a UUID"):
        keyring.add(replace(made, key_id=key_id))
    with pytest.raises(Invalid, match="is not a UUID"):
        keyring.get(key_id)
    keyring.remove(key_id)
    assert victim.read_text() == "kept"
    assert [path.name for path in (tmp_path / "keystore").iterdir()] == [f"{made.key_id}.key.json"]


def test_a_kept_key_whose_id_is_not_a_uuid_counts_as_missing(tmp_path: Path) -> None:
    made = Keyring(tmp_path).create(factories.number_id(1, kind=8))
    (path,) = (tmp_path / "keystore").iterdir()
    path.write_bytes(checked(unchecked(path.read_bytes()).replace(made.key_id.encode(), b"../outside")))
    again = Keyring(tmp_path)
    assert made.key_id not in again
    with pytest.raises(Unavailable, match="not a UUID"):
        again.get(made.key_id)


async def test_a_template_is_answered_for_an_allocation_of_its_node_only(bench: Any) -> None:
    node = await bench.add_node()
    await bench.server.resources.jobs.register(factories.job())
    await bench.until(bench.live)
    (alloc, *_) = bench.live()
    await put(bench, a="1")
    query = TemplateQuery(node_id=node.id, alloc_id=alloc.id, task="web", kind="variable", name=PATH, timeout_s=0.1)
    answer = await bench.server.clients.calls.ask_for_template(query)
    assert answer.data["Items"] == {"a": "1"}
    again = type(query)(
        node_id=node.id, alloc_id=alloc.id, task="web", kind="variables", name="nomad/", min_index=0, timeout_s=0.1
    )
    assert [row["Path"] for row in (await bench.server.clients.calls.ask_for_template(again)).data] == [PATH]
    stranger = type(query)(node_id="x" * 36, alloc_id=alloc.id, task="web", kind="variable", name=PATH)
    with pytest.raises(PermissionDenied):
        await bench.server.clients.calls.ask_for_template(stranger)
    odd = type(query)(node_id=node.id, alloc_id=alloc.id, task="web", kind="nonsense")
    with pytest.raises(Invalid):
        await bench.server.clients.calls.ask_for_template(odd)
