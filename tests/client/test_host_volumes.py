"""Dynamic host volumes on a node: the built-in plugin, programs and their failures, and what survives a restart."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from yurt.client.config import ClientConfig
from yurt.client.node.local_node import LocalNode
from yurt.client.volumes import registered_folders, volume_programs
from yurt.client.volumes.host_volumes import DynamicHostVolumes
from yurt.client.volumes.registered_folders import RegisteredFolders
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase
from yurt.structs.node import HostVolumeInfo, Node
from yurt.structs.volumes.host import HostVolume
from yurt.testing import factories

VOLUME = HostVolume(id=factories.number_id(1, kind=5), name="data", plugin_id="mkdir", node_id="n")
NODE = factories.node()
GOOD = """#!/bin/sh
case "$1" in
fingerprint) echo '{"version": "1.0.0"}' ;;
create) %s ;;
delete) %s ;;
esac
"""


async def opened(folder: Path, database: ClientDatabase, *listed: str) -> DynamicHostVolumes:
    config = ClientConfig(
        state_dir=str(folder / "state"),
        alloc_dir=str(folder / "alloc"),
        host_volumes={"fixed": HostVolumeInfo(path="/srv")},
        host_volumes_dir=str(folder / "volumes"),
        host_volume_plugin_dir=str(folder / "plugins"),
        host_volume_register_dirs=tuple(str(folder / each) for each in listed),
    )
    made = DynamicHostVolumes(config, database, LocalNode(NODE))
    await made.open()
    return made


def write_plugin(folder: Path, create: str = "", delete: str = "") -> None:
    path = folder / "plugins" / "script"
    path.parent.mkdir(exist_ok=True)
    path.write_text(GOOD % (create or ":", delete or ":"))
    path.chmod(0o755)


def offered(volumes: DynamicHostVolumes) -> dict[str, HostVolumeInfo]:
    return dict(volumes.applied(Node()).host_volumes)


async def test_a_program_that_others_can_exchange_is_no_plugin(
    tmp_path: Path, database: ClientDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    write_plugin(tmp_path)
    (tmp_path / "plugins" / "script").chmod(0o777)
    volumes = await opened(tmp_path, database)
    with pytest.raises(NotFound, match="script"):
        await volumes.create(replace(VOLUME, plugin_id="script"))
    assert "chmod go-w" in caplog.text


async def test_mkdir_makes_offers_and_removes_a_folder(tmp_path: Path, database: ClientDatabase) -> None:
    volumes = await opened(tmp_path, database)
    made = await volumes.create(replace(VOLUME, parameters={"mode": "2750"}))
    path = tmp_path / "volumes" / VOLUME.id
    assert made.path == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o2750
    assert offered(volumes)["data"] == HostVolumeInfo(path=made.path, id=VOLUME.id)
    assert volumes.applied(Node()).attributes == {"plugins.host_volume.mkdir.version": "0.1.0"}
    (path / "file").write_text("kept")
    assert await volumes.create(VOLUME) == made
    again = await opened(tmp_path, database)
    assert offered(again) == offered(volumes) and (path / "file").read_text() == "kept"
    await again.delete(VOLUME)
    assert not path.exists() and set(offered(again)) == {"fixed"}
    assert await database.host_volumes() == ()
    await again.delete(VOLUME)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"parameters": {"mode": "rwx"}}, 'mode = "rwx" must be octal'),
        ({"parameters": {"uid": "root"}}, 'uid = "root" must be a number'),
        ({"parameters": {"size": "1"}}, 'unknown parameter "size"'),
        ({"id": "../../etc"}, "is not a valid volume ID"),
        ({"name": "fixed"}, 'offers a host volume "fixed" already'),
        ({"plugin_id": "absent"}, 'no host volume plugin "absent"; it has mkdir'),
    ],
)
async def test_what_cannot_be_made_is_refused_with_its_reason(
    tmp_path: Path, database: ClientDatabase, changes: dict[str, object], error: str
) -> None:
    volumes = await opened(tmp_path, database)
    with pytest.raises((Invalid, Conflict, NotFound), match=error):
        await volumes.create(replace(VOLUME, **changes))
    assert set(offered(volumes)) == {"fixed"} and await database.host_volumes() == ()


async def test_a_program_is_told_and_understood(tmp_path: Path, database: ClientDatabase) -> None:
    create = """mkdir -p "$DHV_VOLUMES_DIR/x"; env | grep ^DHV_ | sort > "$DHV_VOLUMES_DIR/x/told"
    printf '{"path": "%s", "bytes": 7}' "$DHV_VOLUMES_DIR/x" """
    write_plugin(tmp_path, create, 'rm -r "$DHV_CREATED_PATH"')
    volumes = await opened(tmp_path, database)
    volume = replace(VOLUME, plugin_id="script", parameters={"a": "b"}, requested_capacity_min_bytes=5)
    made = await volumes.create(volume)
    assert (made.path, made.capacity_bytes) == (str(tmp_path / "volumes" / "x"), 7)
    told = dict(line.split("=", 1) for line in (tmp_path / "volumes" / "x" / "told").read_text().splitlines())
    assert told == {
        "DHV_OPERATION": "create", "DHV_VOLUMES_DIR": str(tmp_path / "volumes"), "DHV_VOLUME_ID": VOLUME.id,
        "DHV_VOLUME_NAME": "data", "DHV_NODE_ID": NODE.id, "DHV_NODE_POOL": "default", "DHV_NAMESPACE": "default",
        "DHV_CAPACITY_MIN_BYTES": "5", "DHV_CAPACITY_MAX_BYTES": "0", "DHV_PARAMETERS": '{"a":"b"}',
        "DHV_PLUGIN_DIR": str(tmp_path / "plugins"),
    }  # fmt: skip
    await volumes.delete(volume)
    assert not (tmp_path / "volumes" / "x").exists()


@pytest.mark.parametrize(
    ("create", "error"),
    [
        ("echo it is full >&2; exit 3", "create failed with exit code 3: it is full"),
        ("echo nonsense", "create printed no JSON"),
        ("""echo '{"path": ""}'""", "create must print"),
        ("""echo '{"path": "/nowhere/at/all"}'""", "is not a folder of this node"),
        ("""echo '{"path": "/"}'""", "is not a folder of this node"),
        ("head -c 100000 /dev/zero", "printed more than 65536 bytes"),
        ("sleep 60", "create took longer than 0.5 s"),
    ],
)
async def test_a_program_that_fails_is_named_with_its_reason(
    tmp_path: Path, database: ClientDatabase, monkeypatch: pytest.MonkeyPatch, create: str, error: str
) -> None:
    monkeypatch.setattr(volume_programs, "CALL_LIMIT_S", 0.5)
    write_plugin(tmp_path, create)
    volumes = await opened(tmp_path, database)
    with pytest.raises(Invalid, match=error):
        await volumes.create(replace(VOLUME, plugin_id="script"))
    assert "data" not in offered(volumes) and await database.host_volumes() == ()


async def test_a_volume_stays_offered_when_its_plugin_cannot_remove_it(
    tmp_path: Path, database: ClientDatabase
) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    write_plugin(tmp_path, f"""echo '{{"path": "{folder}"}}'""", "exit 1")
    volumes = await opened(tmp_path, database)
    volume = replace(VOLUME, plugin_id="script")
    await volumes.create(volume)
    with pytest.raises(Invalid, match="it gave no reason"):
        await volumes.delete(volume)
    assert offered(volumes)["data"].path == str(folder)
    assert [record.volume.id for record in await database.host_volumes()] == [VOLUME.id]


async def test_a_registered_folder_is_offered_while_it_is_there(tmp_path: Path, database: ClientDatabase) -> None:
    folder = tmp_path / "listed" / "mine"
    folder.mkdir(parents=True)
    volumes = await opened(tmp_path, database, "listed")
    await volumes.register(replace(VOLUME, host_path=str(folder)))
    assert offered(await opened(tmp_path, database, "listed"))["data"].path == str(folder)
    assert "data" not in offered(await opened(tmp_path, database))
    folder.rename(tmp_path / "gone")
    assert "data" not in offered(await opened(tmp_path, database, "listed"))
    await volumes.delete(VOLUME)
    assert (tmp_path / "gone").exists()


async def test_no_folder_can_be_registered_that_the_configuration_does_not_list(
    tmp_path: Path, database: ClientDatabase
) -> None:
    (tmp_path / "mine").mkdir()
    for listed in ((), ("listed",)):
        volumes = await opened(tmp_path, database, *listed)
        for path in ("/etc", "/", str(tmp_path / "mine"), f"{tmp_path}/listed/../mine", f"{tmp_path}/listed2"):
            with pytest.raises(Invalid, match=r"not beneath a folder that may be registered|given by its full path"):
                await volumes.register(replace(VOLUME, host_path=path))
    assert set(offered(volumes)) == {"fixed"} and await database.host_volumes() == ()


async def test_a_link_in_a_registered_path_is_refused_at_registration_and_before_a_mount(
    tmp_path: Path, database: ClientDatabase
) -> None:
    listed = tmp_path / "listed"
    (listed / "real" / "deep").mkdir(parents=True)
    (listed / "out").symlink_to("/etc")
    (listed / "in").symlink_to("real")
    volumes = await opened(tmp_path, database, "listed")
    for name, reason in (("out", "leaves the listed folder"), ("in/deep", "register '.*/real/deep' itself")):
        with pytest.raises(Invalid, match=reason):
            await volumes.register(replace(VOLUME, host_path=str(listed / name)))
    path = str(listed / "real" / "deep")
    await volumes.register(replace(VOLUME, host_path=path))
    volumes.check_mounts((path, "/not/a/volume"))
    (listed / "real").rename(listed / "moved")
    (listed / "real").symlink_to("/etc")
    (tmp_path / "deep").mkdir()
    with pytest.raises(Invalid, match="may be offered"):
        volumes.check_mounts((path,))


async def test_a_registered_folder_overlaps_with_no_other_volume_and_not_with_the_agent(
    tmp_path: Path, database: ClientDatabase
) -> None:
    (tmp_path / "one" / "inner").mkdir(parents=True)
    volumes = await opened(tmp_path, database, ".")
    await volumes.register(replace(VOLUME, host_path=str(tmp_path / "one")))
    other = replace(VOLUME, id=factories.number_id(2, kind=5), name="other")
    for name in ("one/inner", "one", "alloc", "state", "volumes"):
        (tmp_path / name).mkdir(exist_ok=True)
        with pytest.raises(Invalid, match="overlaps with"):
            await volumes.register(replace(other, host_path=str(tmp_path / name)))


def test_where_the_kernel_has_no_openat2_links_are_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered_folders, "has_openat2", lambda: False)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folders = RegisteredFolders((str(tmp_path),), own=())
    folders.check(str(tmp_path / "real"))
    with pytest.raises(Invalid, match="symbolic link"):
        folders.check(str(tmp_path / "link"))
