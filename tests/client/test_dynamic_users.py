"""Tasks without a user get one of their node's pool, where the driver supports that."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.client.files.dynamic_users import DynamicUsers, ids_of_processes, is_of_host
from yurt.client.files.inherited_files import Inheritance, give_inherited_files
from yurt.client.files.link_owners import TaskUser, link_owners
from yurt.client.files.users import UserRange, ids_of
from yurt.executor.process_context import look_up_user
from yurt.goplugin.convert import capabilities_message, capabilities_of
from yurt.sdk.driver import Capabilities, PluginContext
from yurt.sdk.dynamic_users import dynamic_uid, dynamic_user_name
from yurt.sdk.errors import RecoverableError
from yurt.sdk.value import replace
from yurt.storage.client_db import AllocRecord, TaskRecord
from yurt.structs.resources import EphemeralDisk
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING, DESIRED_STOP
from yurt.testing import factories
from yurt.testing.client_objects import placed, with_task
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually
from yurt.testing.real_agent import agent_client, shell_alloc

FIRST, LAST = 80_000, 89_999
POOL = UserRange(first=FIRST, last=LAST)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts tasks as other users")
STEPS = st.lists(st.tuples(st.sampled_from(["take", "release", "restart"]), st.integers(0, 4), st.integers(0, 2)))


def nobody(_uid: int) -> bool:
    return False


def pool(first: int = FIRST, last: int = LAST) -> DynamicUsers:
    return DynamicUsers(UserRange(first=first, last=last), is_known=nobody, in_use=frozenset)


@given(STEPS)
def test_no_two_tasks_have_an_id_at_the_same_time(steps: list[tuple[str, int, int]]) -> None:
    users, mine = pool(100, 105), dict[tuple[str, str], int]()
    with tempfile.TemporaryDirectory() as folder:
        for step, alloc, task in steps:
            alloc_id = f"a{alloc}"
            if step == "take" and (len(mine) < 6 or (alloc_id, f"t{task}") in mine):
                uid = users.take(alloc_id, f"t{task}")
                assert mine.setdefault((alloc_id, f"t{task}"), uid) == uid
                Path(folder, alloc_id).mkdir(exist_ok=True)
            elif step == "release":
                users.release(alloc_id)
                mine = {key: uid for key, uid in mine.items() if key[0] != alloc_id}
            elif step == "restart":
                users = pool(100, 105)
                users.restore(records_of(mine), (), folder)
            assert len(users) == len(mine) == len(set(mine.values()))
            assert all(100 <= uid <= 105 for uid in mine.values())


def records_of(mine: dict[tuple[str, str], int]) -> list[AllocRecord]:
    return [AllocRecord(id=alloc, tasks={task: TaskRecord(dynamic_uid=uid)}) for (alloc, task), uid in mine.items()]


def test_an_id_is_used_again_as_late_as_possible_and_never_one_of_the_host() -> None:
    users = DynamicUsers(UserRange(first=1, last=4), is_known=lambda uid: uid == 2, in_use=frozenset)
    assert users.take("a", "t") == 1
    users.release("a")
    assert [users.take(alloc, "t") for alloc in "bcd"] == [3, 4, 1]
    with pytest.raises(RecoverableError, match="ids from 1 to 4 are taken"):
        users.take("e", "t")


def test_an_id_that_a_process_has_is_left_out_and_processes_are_read_once_a_take() -> None:
    scans = []

    def in_use() -> frozenset[int]:
        scans.append(1)
        return frozenset({1, 3})

    users = DynamicUsers(UserRange(first=1, last=4), is_known=nobody, in_use=in_use)
    assert [users.take("a", "t"), users.take("a", "t"), users.take("b", "t")] == [2, 2, 4]
    assert len(scans) == 2
    with pytest.raises(RecoverableError, match="by tasks or processes"):
        users.take("c", "t")


def test_the_ids_of_processes_are_those_of_their_status_files(tmp_path: Path) -> None:
    for name, text in (("7", "Name:\tx\nUid:\t1\t2\t2\t2\nGid:\t3\t3\t3\t3\nGroups:\t4 5 \n"), ("self", "Uid:\t9\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status").write_text(text)
    (tmp_path / "8").mkdir()
    assert ids_of_processes(str(tmp_path)) == {1, 2, 3, 4, 5}
    assert ids_of_processes(str(tmp_path / "none")) == frozenset()
    if os.path.isdir("/proc/self"):
        assert {os.getuid(), os.getgid()} <= ids_of_processes()


def test_an_id_of_a_group_of_the_host_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(known: int) -> Callable[[int], int]:
        return lambda number: {known: number}[number]

    monkeypatch.setattr("pwd.getpwuid", look_up(1))
    monkeypatch.setattr("grp.getgrgid", look_up(2))
    assert [is_of_host(number) for number in (1, 2, 3)] == [True, True, False]


def test_the_host_is_asked_outside_of_the_lock_and_a_taken_id_is_not_given_twice() -> None:
    inner: list[int] = []

    def is_known(_uid: int) -> bool:
        if not inner:
            inner.append(0)
            inner[0] = users.take("b", "t")
        return False

    users = DynamicUsers(UserRange(first=1, last=3), is_known=is_known, in_use=frozenset)
    assert (users.take("a", "t"), inner) == (2, [1])


@needs_root
def test_ids_of_lost_records_are_found_by_the_owners_of_folders(tmp_path: Path) -> None:
    (tmp_path / "lost/web/private").mkdir(parents=True)
    os.chown(tmp_path / "lost/web/private", FIRST, FIRST)
    users = pool()
    users.restore((), ("lost", "gone"), str(tmp_path))
    assert users.uid_of("lost", "web") == FIRST
    assert users.take("new", "web") == FIRST + 1


def test_a_name_has_the_form_that_drivers_for_nomad_expect() -> None:
    assert dynamic_user_name(FIRST) == "nomad-80000"
    assert dynamic_uid("nomad-80000") == FIRST
    for other in ("", "nomad", "nomad-", "nomad-0", "nomad-01", "nomad--1", "nomad-99999999999", "xnomad-1"):
        assert dynamic_uid(other) is None
    found = look_up_user("nomad-80000")
    assert (found.uid, found.gid, found.groups) == (FIRST, FIRST, (FIRST,))
    assert ids_of("nomad-80000") == ((FIRST, FIRST) if os.geteuid() == 0 else None)


def test_the_capability_passes_through_the_protocol_of_plugins() -> None:
    for given_ in (Capabilities(dynamic_users=True), Capabilities()):
        assert capabilities_of(capabilities_message(given_)).dynamic_users is given_.dynamic_users


def test_a_dynamic_user_does_not_make_the_agents_files_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    driver.capabilities = replace(driver.capabilities, dynamic_users=True)
    tasks = [TaskUser(name="t", driver="fake")]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert link_owners(tasks, {"fake": driver}) == frozenset()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert link_owners(tasks, {"fake": driver}) == frozenset({1000}), (
        "such an agent gives no users: its own is the task's"
    )


@pytest.fixture
def dynamic(driver: FakeDriver) -> FakeDriver:
    """The fake driver, which supports dynamic users."""
    driver.capabilities = replace(driver.capabilities, dynamic_users=True)
    return driver


def user_of(driver: FakeDriver, alloc_id: str) -> str:
    request = driver.host.tasks[f"{alloc_id}/web/0"].request
    assert request is not None
    return request.user


@needs_root
async def test_a_task_keeps_its_user_over_a_restart_of_the_agent_until_its_directory_goes(
    run_client, server: FakeServerPort, dynamic: FakeDriver, tmp_path: Path
) -> None:
    async with run_client() as client:
        first = placed(client.node_id)
        server.put_alloc(first)
        await eventually(lambda: server.status_of(first.id) == CLIENT_RUNNING)
        folder = tmp_path / "alloc" / first.id / "web"
        assert user_of(dynamic, first.id) == f"nomad-{FIRST}"
        for part in ("secrets", "private"):
            found = (folder / part).stat()
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (FIRST, FIRST, 0o700)
        texts = [event.display_message for event in server.last_update(first.id).task_states["web"].events]
        assert any(f"runs as the dynamic user nomad-{FIRST}" in text for text in texts)

    async with run_client() as client:
        second = placed(client.node_id)
        server.put_alloc(second)
        await eventually(lambda: server.status_of(second.id) == CLIENT_RUNNING)
        assert user_of(dynamic, second.id) == f"nomad-{FIRST + 1}"
        server.put_alloc(replace(first, desired_status=DESIRED_STOP))
        await eventually(lambda: server.status_of(first.id) == CLIENT_COMPLETE)
        users = client.alloc_service._context.users
        assert len(users) == 2
        server.drop_alloc(first.id)
        await eventually(lambda: len(users) == 1)
        assert not folder.exists()


@needs_root
async def test_no_job_takes_a_dynamic_user_by_its_name(run_client, server: FakeServerPort, dynamic: FakeDriver) -> None:
    async with run_client() as client:
        alloc = with_task(placed(client.node_id), user="nomad-80001")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        texts = [event.display_message for event in server.last_update(alloc.id).task_states["web"].events]
        assert any("has the form of a dynamic user" in text for text in texts)


async def test_other_drivers_and_tasks_with_a_user_of_their_own_get_none(
    run_client, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        plain = placed(client.node_id)
        server.put_alloc(plain)
        await eventually(lambda: server.status_of(plain.id) == CLIENT_RUNNING)
        driver.capabilities = replace(driver.capabilities, dynamic_users=True)
        own = with_task(placed(client.node_id), user="daemon")
        server.put_alloc(own)
        await eventually(lambda: server.status_of(own.id) == CLIENT_RUNNING)
        assert (user_of(driver, plain.id), user_of(driver, own.id)) == ("", "daemon")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(name)


@needs_root
async def test_a_real_process_runs_as_its_dynamic_user_and_writes_its_own_files(open_folder: Path) -> None:
    plugin = pytest.importorskip("yurt_driver_raw_exec.plugin", reason="the raw_exec driver is not installed")

    def make(context: PluginContext) -> object:
        return plugin.yurt_task_drivers(replace(context, config={"dynamic_users": True}))[0]

    server = FakeServerPort()
    # Ids of its own: other tests at the same time expect that no process has the first ones.
    ids = UserRange(first=LAST - 99, last=LAST)
    async with agent_client(open_folder, server, make, users=ids) as client:
        alloc = shell_alloc(client.node_id, "id -u; id -g; echo x > $NOMAD_SECRETS_DIR/own && echo written")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        stream = client.calls.stream_logs(alloc.id, "web", kind="stdout", offset=0, origin="start", follow=True)
        said = b"".join([frame.data async for frame in stream]).split()
        assert said[0] == said[1] and ids.first <= int(said[0]) <= ids.last and said[2:] == [b"written"]


def inherited(tmp_path: Path, *tasks: str) -> Path:
    """The tree of an allocation that took over data of earlier users."""
    build_alloc_dir(str(tmp_path), "a")
    for task in tasks:
        build_task_dir(str(tmp_path), "a", task)
    return tmp_path / "a"


def owned(path: Path, uid: int) -> Path:
    path.write_text("x")
    os.chown(path, uid, uid)
    return path


@needs_root
def test_files_of_the_predecessor_become_those_of_the_task_and_no_others(tmp_path: Path) -> None:
    base = inherited(tmp_path, "web")
    local, data = base / "web" / "local", base / "alloc" / "data"
    (local / "deep").mkdir()
    outside = owned(tmp_path / "outside", 80_001)
    (local / "link").symlink_to(outside)
    os.chown(local / "link", 80_001, 80_001, follow_symlinks=False)
    mine = [owned(local / "deep" / "f", 80_001), owned(data / "f", 80_001)]
    other = owned(data / "other", 80_002)

    given = give_inherited_files(
        str(tmp_path), "a", "web", Inheritance(uid=80_009, old=80_001, pool=POOL, is_alone=True)
    )

    assert given == 3 and [path.stat().st_uid for path in mine] == [80_009, 80_009]
    assert (other.stat().st_uid, outside.stat().st_uid, (local / "link").lstat().st_uid) == (80_002, 80_001, 80_009)


@needs_root
@pytest.mark.parametrize(("is_alone", "shared"), [(True, 80_009), (False, 80_002)])
def test_data_of_another_node_goes_to_the_task_in_whose_folder_its_user_wrote(
    tmp_path: Path, is_alone: bool, shared: int
) -> None:
    base = inherited(tmp_path, "web")
    local, data = base / "web" / "local", base / "alloc" / "data"
    mine = [owned(local / "f", 80_001), owned(data / "f", 80_001)]
    other, hosts = owned(data / "other", 80_002), owned(local / "hosts", 1_000)
    linked = owned(tmp_path / "secret", 80_003)
    os.link(linked, local / "secret")

    asked = Inheritance(uid=80_009, old=0, pool=POOL, is_alone=is_alone)
    give_inherited_files(str(tmp_path), "a", "web", asked)

    assert {path.stat().st_uid for path in mine} == {80_009}
    assert (other.stat().st_uid, hosts.stat().st_uid, linked.stat().st_uid) == (shared, 1_000, 80_003)


@needs_root
async def test_a_sticky_replacement_owns_what_its_predecessor_wrote(
    run_client, server: FakeServerPort, dynamic: FakeDriver, tmp_path: Path
) -> None:
    disk = EphemeralDisk(sticky=True)
    job = factories.job(task_groups=(factories.group(ephemeral_disk=disk, update=None, migrate=None),))
    async with run_client() as client:
        first, second = placed(client.node_id, job=job), placed(client.node_id, job=job)
        server.put_alloc(first)
        await eventually(lambda: server.status_of(first.id) == CLIENT_RUNNING)
        owned(tmp_path / "alloc" / first.id / "web" / "local" / "f", FIRST)
        server.put_alloc(replace(first, desired_status=DESIRED_STOP))
        server.put_alloc(replace(second, previous_allocation=first.id))
        await eventually(lambda: server.status_of(second.id) == CLIENT_RUNNING)
        assert user_of(dynamic, second.id) == f"nomad-{FIRST + 1}"
        assert (tmp_path / "alloc" / second.id / "web" / "local" / "f").stat().st_uid == FIRST + 1
