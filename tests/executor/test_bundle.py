"""The pure step from an isolated task to an OCI configuration."""

from __future__ import annotations

from typing import Any

from yurt.executor.container_executor import explained
from yurt.executor.oci.bundle import (
    Bind,
    ContainerSpec,
    DeviceFile,
    IdMap,
    LinuxCapabilities,
    Machine,
    container_id,
    oci_config,
)
from yurt.executor.oci.runc import failure_in
from yurt.executor.spec import UserIds
from yurt.sdk.driver import DeviceNode, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.value import replace

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip
REQUEST = TaskRequest(
    task_id="a/web/0", alloc_id="a", task_name="web", job_id="j", group_name="g", namespace="default", config=None,
    env={"TOKEN": "x"}, dirs=DIRS, resources=TaskResources(cpu_shares=100, memory_mb=64),
)  # fmt: skip
HOST = tuple(Bind(source=folder, target=folder) for folder in ("/usr", "/etc"))
SPEC = ContainerSpec.of_task(REQUEST, ("serve", "-p", "80"), host=HOST)
NOBODY = UserIds(uid=65534, gid=65534, groups=(65534, 7))


ROOT = UserIds(uid=0, gid=0)
MACHINE = Machine(kernel=(6, 1), architecture="x86_64")


def config_of(spec: ContainerSpec, *, user: UserIds = NOBODY, machine: Machine = MACHINE) -> dict[str, Any]:
    return oci_config(spec, argv=spec.process.argv, user=user, cgroup_path="/yurt.slice/x.scope", machine=machine)


def mounted(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["destination"]: mount for mount in config["mounts"]}


def namespaces(config: dict[str, Any]) -> set[str]:
    return {each["type"] for each in config["linux"]["namespaces"]}


def test_the_hosts_folders_are_read_only_throughout_and_the_shared_one_is_writable() -> None:
    mounts = mounted(config_of(SPEC))
    assert (mounts["/usr"]["source"], mounts["/usr"]["options"]) == ("/usr", ["rbind", "rro", "nosuid", "nodev"])
    assert (mounts["/alloc"]["source"], mounts["/alloc"]["options"][1]) == ("/a/alloc", "rw")


def test_an_old_kernel_shows_of_a_host_folder_only_what_it_can_make_read_only() -> None:
    mounts = mounted(config_of(SPEC, machine=replace(MACHINE, kernel=(5, 11))))
    assert mounts["/usr"]["options"][:2] == ["bind", "ro"]
    assert mounts["/alloc"]["options"][:2] == ["rbind", "rw"]


def test_the_tasks_directory_is_its_root_and_first_folder() -> None:
    config = config_of(SPEC)
    assert (config["root"]["path"], config["process"]["cwd"]) == ("/a/web", "/")


def test_the_process_has_its_user_groups_rights_and_no_way_to_more() -> None:
    process = config_of(SPEC)["process"]
    assert process["user"] == {"uid": 65534, "gid": 65534, "additionalGids": [65534, 7]}
    assert process["noNewPrivileges"] is True
    assert set(map(tuple, process["capabilities"].values())) == {()}


def test_root_has_its_rights_and_another_user_those_that_were_asked_for() -> None:
    spec = replace(SPEC, rights=LinuxCapabilities(of_root=("CAP_CHOWN", "CAP_KILL"), of_others=("CAP_KILL",)))
    of_root = config_of(spec, user=ROOT)["process"]["capabilities"]
    assert of_root["effective"] == of_root["permitted"] == of_root["bounding"] == ["CAP_CHOWN", "CAP_KILL"]
    assert of_root["inheritable"] == of_root["ambient"] == []
    assert set(map(tuple, config_of(spec)["process"]["capabilities"].values())) == {("CAP_KILL",)}


def test_system_calls_are_filtered_unless_task_or_machine_say_otherwise() -> None:
    assert "seccomp" in config_of(SPEC)["linux"]
    assert "seccomp" not in config_of(replace(SPEC, is_filtered=False))["linux"]
    assert "seccomp" not in config_of(SPEC, machine=replace(MACHINE, runs_filters=False))["linux"]


def test_a_user_namespace_maps_all_ids_and_sees_the_hosts_sys() -> None:
    config = config_of(replace(SPEC, id_map=IdMap(first_host_id=100_000, count=65536)))
    rows = [{"containerID": 0, "hostID": 100_000, "size": 65536}]
    assert "user" in namespaces(config)
    assert config["linux"]["uidMappings"] == config["linux"]["gidMappings"] == rows
    assert mounted(config)["/sys"]["options"] == ["rbind", "rro", "nosuid", "noexec", "nodev"]
    assert "user" not in namespaces(config_of(SPEC)) and "uidMappings" not in config_of(SPEC)["linux"]


def test_a_task_without_a_path_gets_the_usual_one() -> None:
    env = config_of(SPEC)["process"]["env"]
    assert "TOKEN=x" in env
    assert any(each.startswith("PATH=/usr/local/sbin:") for each in env)


def test_every_namespace_but_the_networks_is_the_tasks_own() -> None:
    assert namespaces(config_of(SPEC)) == {"mount", "uts", "pid", "ipc"}


def test_namespaces_are_shared_or_joined_as_asked() -> None:
    process = replace(SPEC.process, network_namespace="/run/netns/x")
    config = config_of(replace(SPEC, process=process, pid_mode="host", ipc_mode="host", hostname="web1"))
    assert namespaces(config) == {"mount", "uts", "network"}
    assert {"type": "network", "path": "/run/netns/x"} in config["linux"]["namespaces"]
    assert config["hostname"] == "web1"
    assert mounted(config)["/dev/shm"]["type"] == "bind"


def test_no_device_is_allowed_and_what_is_hidden_is_masked() -> None:
    linux = config_of(replace(SPEC, hidden=("/etc/shadow",)))["linux"]
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]
    assert {"/etc/shadow", "/proc/kcore", "/sys/firmware"} <= set(linux["maskedPaths"])
    assert "/proc/sysrq-trigger" in linux["readonlyPaths"]
    assert linux["cgroupsPath"] == "/yurt.slice/x.scope"


def test_container_names_are_legal_and_differ_for_different_tasks() -> None:
    names = {container_id(task_id) for task_id in ("a/b/0", "a.b/0", "a/b.0", "é/%/0", "-x/../y", "x" * 500)}
    assert len(names) == 6
    assert all(name[0].isalnum() and len(name) < 110 and "/" not in name and name.isascii() for name in names)


def test_the_last_error_in_a_log_of_runc_is_the_reason() -> None:
    log = '{"level":"warning","msg":"w"}\n{"level":"error","msg":"first"}\nnot json\n{"level":"error","msg":"last"}\n'
    assert failure_in(log) == "last"
    assert failure_in('{"level":"info","msg":"fine"}') == ""


def test_a_missing_command_is_explained_in_an_operators_terms() -> None:
    failure = 'exec: "serve": executable file not found in $PATH'
    assert "fetch it with an artifact" in explained(SPEC.process, failure)


def test_a_device_is_made_inside_and_its_cgroup_lets_it_be_used() -> None:
    gpu = DeviceFile(path="/dev/nvidia0", kind="c", major=195, minor=0, mode=0o666, uid=0, gid=44, rights="rw")
    linux = config_of(replace(SPEC, device_files=(gpu,)))["linux"]

    assert linux["devices"] == [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "fileMode": 0o666, "uid": 0, "gid": 44}
    ]
    assert linux["resources"]["devices"] == [
        {"allow": False, "access": "rwm"}, {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"},
    ]  # fmt: skip


def test_the_devices_of_a_request_are_those_of_its_bundle() -> None:
    node = DeviceNode(host_path="/dev/fuse", task_path="/dev/fuse")
    assert ContainerSpec.of_task(replace(REQUEST, devices=(node,)), ("true",), host=()).devices == (node,)
