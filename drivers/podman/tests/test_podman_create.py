"""The step from a task to podman's request to create a container: every option, and the refused ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from yurt.sdk.driver import (
    DeviceNode,
    Mount,
    NameServers,
    PluginContext,
    PortGiven,
    TaskDirs,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.schema import decode_config
from yurt_driver_podman.config import TaskConfig, plugin_config
from yurt_driver_podman.create import Site, create_body

LINKS = {"/a/web/escape": "/etc", "/a/web/inside": "/a/alloc/data"}
DIRS = TaskDirs(
    alloc_dir="/a",
    shared_dir="/a/alloc",
    task_dir="/a/web",
    local_dir="/a/web/local",
    secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)


def request(config: Mapping[str, Any] | None = None, **changes: Any) -> TaskRequest:
    """A complete task."""
    given: dict[str, Any] = {
        "task_id": "alloc-1/web/0",
        "alloc_id": "alloc-1",
        "task_name": "web",
        "job_id": "job",
        "group_name": "group",
        "namespace": "default",
        "env": {"A": "1"},
        "dirs": DIRS,
        "resources": TaskResources(cpu_shares=500, memory_mb=64),
        "ports": (PortGiven(label="http", host_ip="10.0.0.1", host_port=20001, to=80),),
        **changes,
    }
    return TaskRequest(config=decode_config(TaskConfig, {"image": "app:1", **(config or {})}), **given)


def site(options: Mapping[str, Any] | None = None, *, dev: bool = False, **changes: Any) -> Site:
    """The inputs besides the task."""
    given: dict[str, Any] = {
        "image_id": "1",
        "core_mhz": 2000.0,
        "resolve": lambda path: LINKS.get(path, path),
        **changes,
    }
    return Site(config=plugin_config(PluginContext(dev=dev, config=options or {})), **given)


def body(config: Mapping[str, Any] | None = None, *, at: Site | None = None, **changes: Any) -> dict[str, Any]:
    return create_body(request(config, **changes), at or site())


OPEN = site({"volumes": {"enabled": True}, "allow_privileged": True, "allow_caps": ["all"]})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"image": "1", "env": {"A": "1"}, "restart_policy": "no", "systemd": "false", "privileged": False}),
        ({"command": "serve", "args": ["-p"]}, {"command": ["serve", "-p"]}),
        ({"entrypoint": ["/run"]}, {"entrypoint": ["/run"]}),
        ({"working_dir": "/srv"}, {"work_dir": "/srv"}),
        ({"tty": True, "interactive": True}, {"terminal": True, "stdin": True}),
        ({"hostname": "box"}, {"hostname": "box"}),
        ({"readonly_rootfs": True}, {"read_only_filesystem": True}),
        ({"sysctl": {"net.core.somaxconn": "16384"}}, {"sysctl": {"net.core.somaxconn": "16384"}}),
        ({"ulimit": {"nofile": "2048:4096"}}, {"r_limits": [{"type": "nofile", "soft": 2048, "hard": 4096}]}),
        ({"group_add": ["audio"]}, {"groups": ["audio"]}),
        ({"oom_score_adj": 300}, {"oom_score_adj": 300}),
        ({"shm_size": "256m"}, {"shm_size": 256 << 20}),
        ({"userns": "keep-id:uid=200,gid=210"}, {"userns": {"nsmode": "keep-id", "value": "uid=200,gid=210"}}),
        ({"cgroupns": "private"}, {"cgroupns": {"nsmode": "private", "value": ""}}),
        ({"extra_hosts": ["db:10.0.0.9"]}, {"hostadd": ["db:10.0.0.9"]}),
        ({"dns": ["1.1.1.1"], "dns_search": ["x"]}, {"dns_server": ["1.1.1.1"], "dns_search": ["x"]}),
        ({"dns_options": ["ndots:1"]}, {"dns_option": ["ndots:1"]}),
        ({"security_opt": ["no-new-privileges"]}, {"no_new_privileges": True}),
        ({"security_opt": ["mask=/proc/x:/sys/y"]}, {"mask": ["/proc/x", "/sys/y"]}),
        ({"logging": {"driver": "journald", "options": {"tag": "x"}}}, {
            "log_configuration": {"driver": "journald", "options": {"tag": "x"}}}),
        ({"logging": {"driver": "k8s-file", "options": {"max-size": "1m"}}}, {
            "log_configuration": {"driver": "k8s-file", "size": 1 << 20, "options": {}}}),
    ],
)  # fmt: skip
def test_options_of_the_container(config: dict[str, Any], expected: dict[str, Any]) -> None:
    made = body(config)
    assert {name: made.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"cpu": {"shares": 500}, "memory": {"limit": 64 << 20}}),
        ({"cpu_hard_limit": True}, {"cpu": {"shares": 500, "period": 100_000, "quota": 25_000}}),
        ({"cpuset_cpus": "0-1"}, {"cpu": {"shares": 500, "cpus": "0-1"}}),
        ({"memory_reservation": "32m"}, {"memory": {"limit": 64 << 20, "reservation": 32 << 20}}),
        ({"memory_swap": "96m"}, {"memory": {"limit": 64 << 20, "swap": 96 << 20}}),
        ({"memory_swappiness": 60}, {"memory": {"limit": 64 << 20, "swappiness": 60}}),
        ({"pids_limit": 20}, {"pids": {"limit": 20}}),
    ],
)
def test_limits(config: dict[str, Any], expected: dict[str, Any]) -> None:
    made = body(config)["resource_limits"]
    assert {name: made.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("", {"netns": {"nsmode": "bridge", "value": ""}, "networks": {"podman": {}}}),
        ("host", {"netns": {"nsmode": "host", "value": ""}}),
        ("none", {"netns": {"nsmode": "none", "value": ""}}),
        ("lan", {"netns": {"nsmode": "bridge", "value": ""}, "networks": {"lan": {}}}),
        ("container:db", {"netns": {"nsmode": "container", "value": "db"}}),
        ("task:proxy", {"netns": {"nsmode": "container", "value": "proxy-alloc-1"}}),
        ("ns:/run/netns/x", {"netns": {"nsmode": "path", "value": "/run/netns/x"}}),
        ("slirp4netns:mtu=1400", {"network_options": {"slirp4netns": ["mtu=1400"]}}),
        ("pasta", {"netns": {"nsmode": "pasta"}}),
    ],
)
def test_network_modes(mode: str, expected: dict[str, Any]) -> None:
    made = body({"network_mode": mode})
    assert {name: made.get(name) for name in expected} == expected


def test_a_task_joins_the_namespace_of_its_group() -> None:
    made = body({"ports": ["http"]}, network_namespace="/run/netns/x", hostname="box")
    assert made["netns"] == {"nsmode": "path", "value": "/run/netns/x"}
    assert "portmappings" not in made


def test_names_that_the_network_of_the_group_decides_are_refused_or_shared() -> None:
    shown = tuple(Mount(host_path="/run/x", task_path=path) for path in ("/etc/hosts", "/etc/resolv.conf"))
    group = {"network_namespace": "/run/netns/x", "mounts": shown}
    assert "hostadd" not in body({"extra_hosts": ["db:10.0.0.5"]}, **group)
    assert body({"hostname": "web"}, **group)["hostname"] == "web"
    with pytest.raises(DriverError, match=r"dns_search .*network \{ dns"):
        body({"dns_search": ["corp"]}, **group)
    with pytest.raises(DriverError, match=r"extra_hosts .*the container that it joins"):
        body({"extra_hosts": ["db:10.0.0.5"], "network_mode": "container:other"})


def test_name_servers_come_from_the_task_then_the_group_then_the_agent() -> None:
    group, agent = NameServers(servers=("10.0.0.2",)), site({"dns_servers": ["10.0.0.3"]})
    assert body({"dns": ["10.0.0.1"]}, at=agent, name_servers=group)["dns_server"] == ["10.0.0.1"]
    assert body(at=agent, name_servers=group)["dns_server"] == ["10.0.0.2"]
    assert body(at=agent)["dns_server"] == ["10.0.0.3"]


def test_without_root_the_default_network_is_that_of_a_user() -> None:
    assert body(at=site(is_rootless=True))["netns"] == {"nsmode": "slirp4netns"}


def test_ports_are_mapped_for_both_protocols() -> None:
    made = body({"ports": ["http"]})["portmappings"]
    assert [(each["protocol"], each["container_port"], each["host_port"]) for each in made] == [
        ("tcp", 80, 20001),
        ("udp", 80, 20001),
    ]
    assert body({"port_map": {"http": 8080}})["portmappings"][0]["container_port"] == 8080


def test_mounts_are_those_of_the_task_its_volumes_and_its_group() -> None:
    volume = Mount(host_path="/srv/v", task_path="/v", is_read_only=True, propagation="host-to-task", selinux_label="z")
    made = body({"volumes": ["local/x:/x:ro,Z"], "tmpfs": ["/run:size=1m"]}, mounts=(volume,))["mounts"]
    assert [(each["source"], each["destination"], each["options"]) for each in made] == [
        ("/a/alloc", "/alloc", ["rbind"]),
        ("/a/web/local", "/local", ["rbind"]),
        ("/a/web/secrets", "/secrets", ["rbind"]),
        ("/a/web/local/x", "/x", ["rbind", "ro", "Z"]),
        ("tmpfs", "/run", ["size=1m"]),
        ("/srv/v", "/v", ["rbind", "ro", "rslave", "z"]),
    ]


def test_the_operators_label_is_on_every_folder() -> None:
    made = body({"volumes": ["local/x:/x"]}, at=site({"volumes": {"selinuxlabel": "z"}}))["mounts"]
    assert all(each["options"][-1] == "z" for each in made)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"init": True, "init_path": "/tini"}, {"init": True, "init_path": "/tini"}),
        ({"apparmor_profile": "mine"}, {"apparmor_profile": "mine"}),
        ({"selinux_opts": ["type:spc_t"]}, {"selinux_opts": ["type:spc_t"]}),
        ({"security_opt": ["seccomp=/profile.json"]}, {"seccomp_profile_path": "/profile.json"}),
        ({"security_opt": ["label=disable", "apparmor:x"]}, {"selinux_opts": ["disable"], "apparmor_profile": "x"}),
    ],
)
def test_what_the_operator_allows_reaches_the_engine(config: dict[str, Any], expected: dict[str, Any]) -> None:
    made = body(config, at=OPEN)
    assert {name: made.get(name) for name in expected} == expected


def test_devices_are_those_reserved_and_those_asked_for() -> None:
    node = DeviceNode(host_path="/dev/nvidia0", permissions="rw")
    assert body(devices=(node,))["devices"] == [{"path": "/dev/nvidia0:/dev/nvidia0:rw"}]
    assert body(devices=(node,), cdi_devices=("nvidia.com/gpu=0",))["devices"] == [{"path": "nvidia.com/gpu=0"}]
    assert body({"devices": ["/dev/fuse:/dev/fuse:rw"]}, at=OPEN)["devices"] == [{"path": "/dev/fuse:/dev/fuse:rw"}]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"privileged": True}, "allow_privileged = true"),
        ({"cap_add": ["net_admin"]}, "allow_caps"),
        ({"devices": ["/dev/kmsg"]}, "devices of the host are off"),
        ({"volumes": ["/etc:/x"]}, "leads out of the allocation"),
        ({"volumes": ["escape:/x"]}, "leads out of the allocation"),
        ({"volumes": ["../../etc:/x"]}, "leads out of the allocation"),
        ({"pid_mode": "host"}, 'allowed_modes { pid = ["host"] }'),
        ({"ipc_mode": "container:x"}, "allowed_modes"),
        ({"uts_mode": "ns:/proc/1/ns/uts"}, "allowed_modes"),
        ({"cgroupns": "host"}, 'allowed_modes { cgroup = ["host"] }'),
        ({"userns": "host"}, 'allowed_modes { userns = ["host"] }'),
        ({"init": True, "init_path": "/tini"}, "allow_privileged = true"),
        ({"apparmor_profile": "unconfined"}, 'allow_security_opt = ["apparmor=unconfined"]'),
        ({"selinux_opts": ["disable"]}, 'allow_security_opt = ["label=disable"]'),
        ({"security_opt": ["seccomp=unconfined"]}, "allow_privileged = true"),
        ({"security_opt": ["seccomp:/profile.json"]}, 'allow_security_opt = ["seccomp=/profile.json"]'),
        ({"security_opt": ["apparmor:unconfined"]}, "allow_privileged = true"),
        ({"security_opt": ["label=disable"]}, "allow_privileged = true"),
    ],
)
def test_what_the_operator_must_allow_is_refused_with_the_way_to_allow_it(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(DriverError) as caught:
        body(config)
    assert reason in str(caught.value)
    assert body(config, at=OPEN)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"working_dir": "srv"}, "absolute"),
        ({"shm_size": "much"}, "512k, 100m or 2g"),
        ({"memory_swap": "1m"}, "must not be below"),
        ({"ulimit": {"nofile": "x"}}, "ulimit nofile"),
        ({"oom_score_adj": -1}, "must not be negative"),
        ({"tmpfs": ["run"]}, "absolute"),
        ({"volumes": ["x"]}, "source:/target"),
        ({"ports": ["nope"]}, "its ports are http"),
        ({"network_mode": "host", "network_aliases": ["x"]}, "network of their own"),
        ({"network_mode": "task:"}, "must name a task"),
        ({"security_opt": ["unmask=/proc"]}, "may not be unmasked"),
        ({"logging": {"driver": "k8s-file", "options": {"path": "/etc/x"}}}, "path cannot be chosen"),
        ({"logging": {"driver": "syslog"}}, "journald"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(config: dict[str, Any], reason: str) -> None:
    with pytest.raises(DriverError) as caught:
        body(config, at=OPEN)
    assert reason in str(caught.value)


def test_rights_are_the_usual_ones_less_those_dropped() -> None:
    made = body({"cap_drop": ["mknod", "CAP_CHOWN"]})
    assert made["cap_drop"] == ["ALL"]
    assert "CAP_KILL" in made["cap_add"] and "CAP_CHOWN" not in made["cap_add"] and "CAP_MKNOD" not in made["cap_add"]


def test_a_task_may_have_no_more_processes_than_the_client_allows() -> None:
    with pytest.raises(DriverError, match="pids_limit"):
        body({"pids_limit": 50}, at=site({"pids_limit": 20}))
    assert body(at=site({"pids_limit": 20}))["resource_limits"]["pids"] == {"limit": 20}


def test_a_client_may_have_several_engines_one_of_which_is_the_default() -> None:
    options = {"socket": [{"socket_path": "/run/a.sock"}, {"name": "user", "socket_path": "unix:///run/b.sock"}]}
    assert plugin_config(PluginContext(config=options)).sockets == {"default": "/run/a.sock", "user": "/run/b.sock"}
    for wrong in (
        {"socket": [{"name": "user", "socket_path": "/run/b.sock"}]},
        {"socket_path": "/run/a.sock", **options},
        {"socket_path": "podman.sock"},
        {"socket": [{"socket_path": "/run/a.sock"}, {"socket_path": "/run/b.sock"}]},
        {"client_http_timeout": "soon"},
    ):
        with pytest.raises(Invalid):
            plugin_config(PluginContext(config=wrong))


def test_memory_is_kept_to_the_nodes_of_the_devices() -> None:
    near = TaskResources(cpu_shares=500, memory_mb=64, memory_nodes=(0, 1))

    assert body(resources=near)["resource_limits"]["cpu"]["mems"] == "0,1"
    assert "mems" not in body()["resource_limits"]["cpu"]
