"""Secrets in memory: mounted while the allocation runs, gone at its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir, remove_alloc_dir
from yurt.client.files.secrets_dir import mount_secrets, secrets_mounts, unmount_secrets
from yurt.sdk.value import replace
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, DESIRED_STOP, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually
from yurt.testing.rights import may_mount

mounting = pytest.mark.skipif(not may_mount(), reason="mounting takes root with CAP_SYS_ADMIN on Linux")

MOUNTS = (
    "30 1 0:5 / /a/id/web/secrets rw - tmpfs yurt-secrets rw\n"
    "31 1 0:6 / /a/id/with\\040space/secrets rw shared:1 - tmpfs yurt-secrets rw\n"
    "32 1 0:7 / /a/id/web/data rw - tmpfs tmpfs rw\n"
    "33 1 0:8 / /a/id2/web/secrets rw - tmpfs yurt-secrets rw\n"
)


def test_only_our_mounts_beneath_a_folder_are_ours(tmp_path: Path):
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS)
    assert secrets_mounts("/a/id", str(file)) == ("/a/id/web/secrets", "/a/id/with space/secrets")
    assert secrets_mounts("/a", str(tmp_path / "none")) == ()


@mounting
def test_a_link_in_the_place_of_the_secrets_is_not_mounted_over(tmp_path: Path):
    build_alloc_dir(str(tmp_path), "id")
    secrets, host = Path(build_task_dir(str(tmp_path), "id", "web").secrets_dir), tmp_path / "host"
    host.mkdir()
    secrets.rmdir()
    secrets.symlink_to(host)

    with pytest.raises(OSError, match="symbolic links"):
        mount_secrets(str(secrets))

    assert not os.path.ismount(host)


@mounting
def test_secrets_lie_in_memory_of_a_size_for_the_tasks_user_alone(tmp_path: Path):
    build_alloc_dir(str(tmp_path), "id")
    secrets = Path(build_task_dir(str(tmp_path), "id", "web", user="nobody", secrets_mb=2).secrets_dir)
    (secrets / "token").write_text("s")
    found = os.statvfs(secrets)

    build_task_dir(str(tmp_path), "id", "web", user="nobody", secrets_mb=2)

    assert found.f_blocks * found.f_frsize == 2 * 1024 * 1024
    assert os.stat(secrets).st_mode & 0o777 == 0o700 and secrets.owner() == "nobody"
    assert (secrets / "token").read_text() == "s" and len(secrets_mounts(str(tmp_path))) == 1
    remove_alloc_dir(str(tmp_path), "id")
    assert secrets_mounts(str(tmp_path)) == () and not secrets.exists()


@mounting
def test_to_mount_twice_is_one_mount(tmp_path: Path):
    assert mount_secrets(str(tmp_path)) and mount_secrets(str(tmp_path))
    assert secrets_mounts(str(tmp_path)) == (str(tmp_path),)
    unmount_secrets(str(tmp_path))
    unmount_secrets(str(tmp_path))
    assert secrets_mounts(str(tmp_path)) == ()


@mounting
async def test_a_running_allocation_has_them_and_an_ended_one_has_not(
    run_client, server: FakeServerPort, driver: FakeDriver, tmp_path: Path
):
    async with run_client(dev=False) as client:
        alloc = placed(client.node_id, job=factories.job(type=JOB_BATCH))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert len(secrets_mounts(str(tmp_path))) == 1

        driver.finish(f"{alloc.id}/web/0")

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        await eventually(lambda: secrets_mounts(str(tmp_path)) == ())


@mounting
async def test_they_outlive_the_agent_and_go_with_the_allocation(run_client, server: FakeServerPort, tmp_path: Path):
    async with run_client(dev=False) as client:
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    assert len(secrets_mounts(str(tmp_path))) == 1

    async with run_client(dev=False):
        server.put_alloc(replace(alloc, desired_status=DESIRED_STOP))
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        await eventually(lambda: secrets_mounts(str(tmp_path)) == ())


async def test_a_dev_agent_mounts_nothing_for_nobody_would_unmount_it(
    run_client, server: FakeServerPort, tmp_path: Path
):
    async with run_client(dev=True) as client:
        alloc = placed(client.node_id)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert secrets_mounts(str(tmp_path)) == ()
