"""Damage at every region of every file that a server keeps: no acknowledged write is lost in silence.

A server either starts with all that it had acknowledged, or refuses and says why. 1,000 cases in `make nightly`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from yurt.agent.cluster.cluster_files import CLUSTER_FILE, Founding, load, save
from yurt.fsm import apply, snapshot
from yurt.sdk.errors import NotFound, YurtError
from yurt.server.keys.keyring import Keyring
from yurt.state import Snapshot
from yurt.storage.sqlite import SqliteLog
from yurt.structs.cluster import Namespace
from yurt.structs.commands import AnyCommand, UpsertNamespaces
from yurt.testing import factories
from yurt.testing.faults.corruption import Damage, damages

IS_NIGHTLY = bool(os.environ.get("YURT_NIGHTLY"))
LOG_CASES, KEY_CASES = (1000, 200) if IS_NIGHTLY else (50, 20)
SEED = 17
COMMANDS = 120
KEY_ID = factories.number_id(1, kind=8)


def command(number: int) -> AnyCommand:
    return UpsertNamespaces(namespaces=(Namespace(name=f"n{number}", description="x" * (number * 37 % 900)),))


def state_after(commands: int) -> Snapshot:
    state = Snapshot.empty()
    for index in range(1, commands + 1):
        state = apply(state, command(index), index=index).state
    return state


async def write_server(folder: Path, *, is_killed: bool) -> Path:
    """The folder of a server that was killed or stopped, with two snapshots and a log before and after them."""
    log = SqliteLog(folder / "live" / "log.db")
    await log.open()
    for index in range(1, COMMANDS + 1):
        await log.append(index, [command(index)])
        if index in (40, 80):
            await log.save_snapshot(index, snapshot.encode(state_after(index)))
            await log.trim(index, keep=10)
    if is_killed:
        shutil.copytree(folder / "live", folder / "server")
    await log.close()
    if not is_killed:
        shutil.copytree(folder / "live", folder / "server")
    return folder / "server"


async def restored(path: Path) -> Snapshot:
    """The state that a server starts with, as `Server` restores it; raises YurtError where it refuses."""
    log = SqliteLog(path)
    await log.open()
    try:
        stored = await log.load_snapshot()
        state = Snapshot.empty() if stored is None else snapshot.decode(stored[1])
        async for entry in log.entries(state.index):
            for one in entry.commands[state.index + 1 - entry.first_index :]:
                state = apply(state, one, index=state.index + 1).state
        await log.append(state.index + 1, [command(state.index + 1)])
        return state
    finally:
        await log.close()


def names_in(folder: Path) -> list[str]:
    """The files that hold something, those with the newest commands three times."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size and path.name != "lock")
    names = sorted(str(path.relative_to(folder)) for path in files)
    return names + 2 * [name for name in names if name in ("log.db", "log.db-wal")]


async def outcome(folder: Path, damage: Damage, expected: bytes) -> str:
    """ "refused", "whole", "unchanged"; anything else is a loss in silence."""
    with_damage = folder.parent / "damaged"
    shutil.rmtree(with_damage, ignore_errors=True)
    shutil.copytree(folder, with_damage)
    if not damage.do(with_damage):
        return "unchanged"
    try:
        state = await restored(with_damage / "log.db")
    except YurtError as error:
        assert str(with_damage) in str(error), f"{damage}: the refusal names no file: {error}"
        return "refused"
    return "whole" if encoded(state) == expected else f"silently at index {state.index}"


def encoded(state: Snapshot) -> bytes:
    return b"".join(snapshot.encode(state))


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.timeout(1800)
async def test_a_server_starts_with_all_that_it_acknowledged_or_not_at_all(tmp_path: Path, is_killed: bool) -> None:
    folder = await write_server(tmp_path, is_killed=is_killed)
    expected = encoded(state_after(COMMANDS))
    assert encoded(await restored((shutil.copytree(folder, tmp_path / "untouched")) / "log.db")) == expected
    found = {
        str(damage): await outcome(folder, damage, expected)
        for damage in damages(names_in(folder), LOG_CASES // 2, seed=SEED + is_killed)
    }
    bad = {damage: told for damage, told in found.items() if told not in ("refused", "whole", "unchanged")}
    assert not bad
    assert {"refused", "whole"} <= set(found.values())


def key_of(folder: Path) -> object:
    return Keyring(folder).get(KEY_ID)


def founding_of(folder: Path) -> object:
    return load(folder / CLUSTER_FILE, Founding)


SMALL_FILES: dict[str, tuple[str, Callable[[Path], object], object]] = {
    "root key": (f"keystore/{KEY_ID}.key.json", key_of, None),
    "record of the cluster": (CLUSTER_FILE, founding_of, Founding()),
}


@pytest.mark.parametrize("what", SMALL_FILES)
def test_a_small_file_is_what_it_was_or_is_refused(tmp_path: Path, what: str) -> None:
    name, read, when_removed = SMALL_FILES[what]
    Keyring(tmp_path).create(KEY_ID)
    save(tmp_path / CLUSTER_FILE, Founding(founding={"a": "a:1", "b": "b:1"}, awaited=("b",), met=("c",)))
    whole, content = read(tmp_path), (tmp_path / name).read_bytes()
    for damage in damages([name], KEY_CASES, seed=SEED):
        (tmp_path / name).write_bytes(content)
        damage.do(tmp_path)
        try:
            found = read(tmp_path)
        except (YurtError, NotFound):
            continue
        assert found in ((whole, when_removed) if damage.kind == "remove" else (whole,)), str(damage)


def test_every_file_kind_and_region_gets_its_turn() -> None:
    made = damages(["a", "b"], 104, seed=1)
    assert len({(each.name, each.kind, each.region) for each in made}) == 98
