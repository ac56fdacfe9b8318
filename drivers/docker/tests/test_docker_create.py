"""Every option of a task, as the engine gets it; no engine is needed here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.containers.creation import container_name
from yurt.sdk.driver import (
    AgentPaths,
    DeviceNode,
    EngineDevices,
    NameServers,
    PluginContext,
    PortGiven,
    TaskDirs,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.driver import Mount as HostMount
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.schema import check_config, decode_config, schema_of
from yurt_driver_docker.config import TaskConfig, plugin_config
from yurt_driver_docker.create import Site, create_body, log_config
from yurt_driver_docker.node import read_text

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip
PORTS = (
    PortGiven(label="http", host_ip="10.0.0.1", host_port=23456, to=8080),
    PortGiven(label="db", host_ip="10.0.0.1", host_port=23457),
)
LINKS = {"/a/web/escape": "/etc", "/a/web/inside": "/a/alloc/data", "/a/web/secrets/qmp.sock": "/a/db/secrets/qmp.sock"}


def request(config: Mapping[str, Any] | None = None, **changes: Any) -> TaskRequest:
    given: dict[str, Any] = {
        "env": {"B": "2", "A": "1"},
        "resources": TaskResources(cpu_shares=500, memory_mb=64),
        "ports": PORTS,
        **changes,
    }
    return TaskRequest(
        task_id="alloc-1/web/0",
        alloc_id="alloc-1",
        task_name="web",
        job_id="shop",
        group_name="front",
        namespace="default",
        config=decode_config(TaskConfig, {"image": "app:1", **(config or {})}),
        dirs=DIRS,
        **given,
    )


def site(plugin: Mapping[str, Any] | None = None, *, dev: bool = False, **changes: Any) -> Site:
    context = PluginContext(dev=dev, config=plugin or {}, paths=AgentPaths(state_dir="/state", run_dir="/run"))
    given: dict[str, Any] = {
        "image_id": "sha256:1",
        "core_mhz": 2000.0,
        "resolve": lambda path: LINKS.get(path, path),
        "read_text": {"/profile.json": '{ "defaultAction": "SCMP_ACT_ALLOW" }'}.__getitem__,
        **changes,
    }
    return Site(config=plugin_config(context), **given)


def body(config: Mapping[str, Any] | None = None, *, at: Site | None = None, **changes: Any) -> dict[str, Any]:
    return create_body(request(config, **changes), at or site())


def host(config: Mapping[str, Any] | None = None, *, at: Site | None = None, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = body(config, at=at, **changes)["HostConfig"]
    return found


OPEN = site({"volumes": {"enabled": True}, "allow_privileged": True, "allow_caps": ["all"]})
ALLOC, LOCAL, SECRETS = "/a/alloc:/alloc", "/a/web/local:/local", "/a/web/secrets:/secrets"


def test_the_container_bears_nomads_name_and_labels() -> None:
    assert container_name(request()) == "web-alloc-1"
    labels = body({"labels": {"team": "x"}})["Labels"]
    assert labels["com.hashicorp.nomad.alloc_id"] == "alloc-1"
    assert (labels["team"], labels["yurt.task_id"]) == ("x", "alloc-1/web/0")


def test_extra_labels_are_chosen_by_pattern() -> None:
    labels = body(at=site({"extra_labels": ["job_name", "task*"]}))["Labels"]
    assert {name.rpartition(".")[2] for name in labels if name.startswith("com.hashicorp")} == {
        "alloc_id", "job_name", "task_name", "task_group_name",
    }  # fmt: skip


def test_a_task_cannot_take_the_labels_of_another() -> None:
    assert body({"labels": {"yurt.task_id": "other", "yurt.owner": "x"}})["Labels"]["yurt.task_id"] == "alloc-1/web/0"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"command": "serve", "args": ["-p", "80"]}, {"Cmd": ["serve", "-p", "80"]}),
        ({"args": ["-p"]}, {"Cmd": ["-p"]}),
        ({"entrypoint": ["/run"]}, {"Entrypoint": ["/run"]}),
        ({"work_dir": "/srv"}, {"WorkingDir": "/srv"}),
        ({"tty": True, "interactive": True}, {"Tty": True, "OpenStdin": True}),
        ({"healthchecks": {"disable": True}}, {"Healthcheck": {"Test": ["NONE"]}}),
        ({"hostname": "box"}, {"Hostname": "box"}),
        ({"mac_address": "02:68:b3:29:da:98"}, {"MacAddress": "02:68:b3:29:da:98"}),
        ({}, {"Env": ["A=1", "B=2"], "Image": "sha256:1", "User": ""}),
    ],
)
def test_options_of_the_container(config: dict[str, Any], expected: dict[str, Any]) -> None:
    made = body(config)
    assert {name: made.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, {"Memory": 64 << 20, "MemorySwap": 64 << 20, "CpuShares": 500, "NetworkMode": "default"}),
        ({"memory_hard_limit": 128}, {"Memory": 128 << 20, "MemoryReservation": 64 << 20}),
        ({"cpu_hard_limit": True}, {"CpuPeriod": 100_000, "CpuQuota": 25_000}),
        ({"cpu_hard_limit": True, "cpu_cfs_period": 50_000}, {"CpuPeriod": 50_000, "CpuQuota": 12_500}),
        ({"cpuset_cpus": "0-1"}, {"CpusetCpus": "0-1"}),
        ({"pids_limit": 20}, {"PidsLimit": 20}),
        ({"shm_size": 1024}, {"ShmSize": 1024}),
        ({"init": True}, {"Init": True}),
        ({"readonly_rootfs": True}, {"ReadonlyRootfs": True}),
        ({"sysctl": {"net.core.somaxconn": "16384"}}, {"Sysctls": {"net.core.somaxconn": "16384"}}),
        (
            {"ulimit": {"nofile": "2048:4096", "nproc": "42"}},
            {"Ulimits": [{"Name": "nofile", "Soft": 2048, "Hard": 4096}, {"Name": "nproc", "Soft": 42, "Hard": 42}]},
        ),
        ({"storage_opt": {"size": "40G"}}, {"StorageOpt": {"size": "40G"}}),
        ({"group_add": ["audio"]}, {"GroupAdd": ["audio"]}),
        ({"oom_score_adj": 300}, {"OomScoreAdj": 300}),
        ({"cgroupns": "private"}, {"CgroupnsMode": "private"}),
        ({"isolation": "default"}, {"Isolation": "default"}),
        ({"ipc_mode": "private"}, {"IpcMode": "private"}),
        ({"dns_servers": ["1.1.1.1"], "dns_options": ["ndots:1"]}, {"Dns": ["1.1.1.1"], "DnsOptions": ["ndots:1"]}),
        ({"dns_search_domains": ["local"]}, {"DnsSearch": ["local"]}),
        ({"extra_hosts": ["db:10.0.0.9"]}, {"ExtraHosts": ["db:10.0.0.9"]}),
        ({"network_mode": "host"}, {"NetworkMode": "host"}),
        ({"security_opt": ["no-new-privileges"]}, {"SecurityOpt": ["no-new-privileges"]}),
        ({"security_opt": ["seccomp=builtin"]}, {"SecurityOpt": ["seccomp=builtin"]}),
        ({"runtime": "runc"}, {"Runtime": "runc"}),
    ],
)
def test_options_of_the_host_part(config: dict[str, Any], expected: dict[str, Any]) -> None:
    made = host(config)
    assert {name: made.get(name) for name in expected} == expected


def test_memory_max_makes_memory_a_reservation_and_minus_one_is_no_limit() -> None:
    limited = host(resources=TaskResources(cpu_shares=1, memory_mb=64, memory_max_mb=256))
    free = host(resources=TaskResources(cpu_shares=1, memory_mb=64, memory_max_mb=-1))
    assert (limited["Memory"], limited["MemoryReservation"], limited["CpuShares"]) == (256 << 20, 64 << 20, 2)
    assert ("Memory" in free, free["MemoryReservation"]) == (False, 64 << 20)


def test_reserved_cores_win_over_cpuset_cpus() -> None:
    resources = TaskResources(cpu_shares=100, memory_mb=64, reserved_cores=(1, 3))
    assert host({"cpuset_cpus": "0"}, resources=resources)["CpusetCpus"] == "1,3"


def test_the_folders_of_the_task_are_where_nomad_puts_them() -> None:
    assert host()["Binds"] == [ALLOC, LOCAL, SECRETS]


@pytest.mark.parametrize(
    ("volume", "bind"),
    [
        ("local/data:/data", "/a/web/local/data:/data"),
        ("../alloc/x:/x:ro", "/a/alloc/x:/x:ro"),
        ("inside:/data", "/a/alloc/data:/data"),
        ("../db/local/data:/data", "/a/db/local/data:/data"),
        (".:/task", "/a/web:/task"),
        ("secrets/key:/key", "/a/web/secrets/key:/key"),
    ],
)
def test_a_volume_within_the_allocation_is_always_allowed(volume: str, bind: str) -> None:
    assert host({"volumes": [volume]})["Binds"][3:] == [bind]


@pytest.mark.parametrize("source", ["/etc", "../../etc", "escape", "/a/../etc", "/ab"])
def test_a_path_that_leads_out_needs_volumes_enabled(source: str) -> None:
    for config in ({"volumes": [f"{source}:/x"]}, {"mount": {"type": "bind", "source": source, "target": "/x"}}):
        with pytest.raises(DriverError, match=r"volumes \{ enabled = true \}"):
            body(config)
        assert body(config, at=OPEN)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("..", "the directory of the whole allocation"),
        ("../alloc/..", "the directory of the whole allocation"),
        ("../db", 'private to the task "db"'),
        ("../db/secrets", 'private to the task "db"'),
        ("../db/private/key", 'private to the task "db"'),
        ("secrets/qmp.sock", 'private to the task "db"'),
    ],
)
def test_what_would_make_a_task_the_master_of_others_needs_volumes_enabled(source: str, reason: str) -> None:
    with pytest.raises(DriverError, match=f"is {reason}; mount a folder that the tasks share"):
        body({"volumes": [f"{source}:/x"]})
    assert body({"volumes": [f"{source}:/x"]}, at=OPEN)


def test_what_lies_in_the_allocation_is_told_to_the_engine_by_the_name_under_which_it_is_held() -> None:
    config = {
        "volumes": ["local/x:/x:ro", "/srv:/srv"],
        "mount": [{"type": "bind", "source": "../alloc/y", "target": "/y"}],
    }
    at = site({"volumes": {"enabled": True}}, hold=lambda source, target, **how: f"/held{target}")
    made = host(config, at=at)
    assert made["Binds"][3:] == ["/held/x:/x:ro", "/held/srv:/srv"]
    assert [each["Source"] for each in made["Mounts"]] == ["/held/y"]


def test_a_dev_agent_allows_host_paths_unless_it_is_told_not_to() -> None:
    assert host({"volumes": ["/srv:/srv"]}, at=site(dev=True))["Binds"][3:] == ["/srv:/srv"]
    with pytest.raises(DriverError):
        body({"volumes": ["/srv:/srv"]}, at=site({"volumes": {"enabled": False}}, dev=True))


def test_the_selinux_label_is_set_on_every_bind() -> None:
    at = site({"volumes": {"enabled": True, "selinuxlabel": "z"}})
    assert host({"volumes": ["/s:/s:ro", "/t:/t"]}, at=at)["Binds"][2:] == [f"{SECRETS}:z", "/s:/s:ro,z", "/t:/t:z"]


@pytest.mark.parametrize("volume", ["/only", ":/x", "a:relative", ""])
def test_a_volume_that_is_none_is_refused(volume: str) -> None:
    with pytest.raises(DriverError, match="source:/target"):
        body({"volumes": [volume]})


def test_the_three_kinds_of_mount() -> None:
    config = {
        "mount": [
            {"type": "bind", "source": "local", "target": "/b", "bind_options": {"propagation": "rslave"}},
            {"type": "tmpfs", "target": "/t", "tmpfs_options": {"size": 1000, "mode": 511}},
        ],
        "mounts": [{"target": "/v", "source": "name", "readonly": True, "volume_options": {"no_copy": True}}],
    }
    bind, tmpfs, volume = host(config)["Mounts"]
    assert (bind["Source"], bind["BindOptions"]) == ("/a/web/local", {"Propagation": "rslave"})
    assert tmpfs["TmpfsOptions"] == {"SizeBytes": 1000, "Mode": 511}
    assert (volume["Type"], volume["Source"], volume["ReadOnly"]) == ("volume", "name", True)
    assert volume["VolumeOptions"]["NoCopy"] is True


def test_volume_drivers_are_gated_like_host_paths() -> None:
    driver = {"volume_options": {"driver_config": {"name": "local", "options": {"device": "/etc", "o": "bind"}}}}
    for config in (
        {"mount": {"source": "v", "target": "/v", **driver}},
        {"volume_driver": "pxd", "volumes": ["v:/v"]},
    ):
        with pytest.raises(DriverError, match="volume drivers are off"):
            body(config)
        assert body(config, at=OPEN)


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"privileged": True}, "allow_privileged = true"),
        ({"pid_mode": "host"}, "allowed_modes"),
        ({"ipc_mode": "host"}, "allowed_modes"),
        ({"uts_mode": "host"}, "allowed_modes"),
        ({"userns_mode": "host"}, "allowed_modes"),
        ({"pid_mode": "container:other"}, "allowed_modes"),
        ({"cgroupns": "host"}, 'allowed_modes { cgroup = ["host"] }'),
        ({"security_opt": ["seccomp=unconfined"]}, "allow_privileged = true"),
        ({"security_opt": ["seccomp:unconfined"]}, 'allow_security_opt = ["seccomp=unconfined"]'),
        ({"security_opt": ["seccomp=/profile.json"]}, 'allow_security_opt = ["seccomp=/profile.json"]'),
        ({"security_opt": ['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}']}, "allow_security_opt"),
        ({"security_opt": ["apparmor=unconfined"]}, "allow_privileged = true"),
        ({"security_opt": ["apparmor:unconfined"]}, "allow_privileged = true"),
        ({"security_opt": ["label=disable"]}, "allow_privileged = true"),
        ({"security_opt": ["systempaths=unconfined"]}, "allow_privileged = true"),
        ({"security_opt": ["no-new-privileges=false"]}, "allow_privileged = true"),
        ({"cap_add": ["net_admin"]}, "allow_caps"),
        ({"cap_add": ["CAP_SYS_ADMIN"]}, "allow_caps"),
        ({"cap_add": ["all"]}, "allow_caps"),
        ({"devices": [{"host_path": "/dev/sda"}]}, "volumes { enabled = true }"),
    ],
)
def test_rights_over_the_host_are_refused_unless_the_operator_allows_them(config: dict[str, Any], hint: str) -> None:
    with pytest.raises(DriverError) as caught:
        body(config)
    assert hint in str(caught.value)
    assert body(config, at=OPEN)


def replaced_profiles(**changes: Any) -> Site:
    return site({"allow_security_opt": ["seccomp=*"]}, **changes)


def test_a_seccomp_profile_that_the_operator_allows_is_given_by_content() -> None:
    made = host({"security_opt": ["seccomp=/profile.json"]}, at=replaced_profiles())
    assert made["SecurityOpt"] == ['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}']


def test_a_seccomp_profile_that_cannot_be_read_is_named() -> None:
    def missing(path: str) -> str:
        raise OSError(f"no such file: {path}")

    with pytest.raises(DriverError, match="seccomp profile"):
        body({"security_opt": ["seccomp=/proc/none/such"]}, at=replaced_profiles(read_text=missing))


def test_a_pattern_of_profiles_cannot_be_left_by_a_detour() -> None:
    at = site({"allow_security_opt": ["seccomp=/etc/profiles/*"]}, read_text=lambda _path: "{}")
    assert host({"security_opt": ["seccomp=/etc/profiles/a.json"]}, at=at)["SecurityOpt"] == ["seccomp={}"]
    with pytest.raises(DriverError, match="allow_security_opt"):
        body({"security_opt": ["seccomp=/etc/profiles/../x.json"]}, at=at)


def test_one_namespace_mode_can_be_allowed_alone() -> None:
    at = site({"allowed_modes": {"pid": ["host"]}})
    assert host({"pid_mode": "host"}, at=at)["PidMode"] == "host"
    with pytest.raises(DriverError):
        body({"ipc_mode": "host"}, at=at)


def test_capabilities_are_the_usual_ones_less_dropped_and_with_added() -> None:
    usual = host()["CapAdd"]
    assert (host()["CapDrop"], len(usual), "CAP_NET_RAW" in usual) == (["ALL"], 13, False)
    assert host({"cap_drop": ["all"], "cap_add": ["chown"]})["CapAdd"] == ["CAP_CHOWN"]
    assert "CAP_MKNOD" not in host({"cap_drop": ["CAP_MKNOD"]})["CapAdd"]
    assert host({"cap_drop": ["ALL"], "cap_add": ["net_raw"]}, at=OPEN)["CapAdd"] == ["CAP_NET_RAW"]
    assert host(at=site({"allow_caps": ["kill"]}))["CapAdd"] == ["CAP_KILL"]


def test_a_privileged_container_keeps_the_engines_capabilities() -> None:
    made = host({"privileged": True}, at=OPEN)
    assert (made["Privileged"], "CapDrop" in made) == (True, False)


def test_a_device_gets_the_rights_it_asks_for() -> None:
    config = {"devices": [{"host_path": "/dev/fuse", "cgroup_permissions": "rw"}]}
    assert host(config, at=OPEN)["Devices"] == [
        {"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rw"}
    ]
    with pytest.raises(DriverError, match="rwm"):
        body({"devices": [{"host_path": "/dev/fuse", "cgroup_permissions": "x"}]}, at=OPEN)


def test_ports_are_published_for_both_protocols_on_the_address_of_the_host() -> None:
    made = body({"ports": ["http", "db"]})
    binding = [{"HostIp": "10.0.0.1", "HostPort": "23456"}]
    assert made["HostConfig"]["PortBindings"]["8080/tcp"] == binding
    assert set(made["ExposedPorts"]) == {"8080/tcp", "8080/udp", "23457/tcp", "23457/udp"}


def test_a_port_map_says_the_port_inside() -> None:
    assert set(host({"port_map": {"db": 5432}})["PortBindings"]) == {"5432/tcp", "5432/udp"}


def test_ports_that_the_task_asked_for_itself_are_published_unasked() -> None:
    own = PortGiven(label="redis", host_ip="10.0.0.1", host_port=24_000, of_task=True)
    shared = PortGiven(label="http", host_ip="10.0.0.1", host_port=24_001)
    assert set(host(ports=(own, shared))["PortBindings"]) == {"24000/tcp", "24000/udp"}
    mapped = host({"port_map": {"redis": 6379}}, ports=(own, shared))["PortBindings"]
    assert mapped["6379/tcp"] == [{"HostIp": "10.0.0.1", "HostPort": "24000"}] and set(mapped) == {
        "6379/tcp",
        "6379/udp",
    }


def test_an_unknown_port_is_named_with_those_that_exist() -> None:
    with pytest.raises(DriverError, match=r'no port "web".*db, http'):
        body({"ports": ["web"]})


@pytest.mark.parametrize("mode", ["host", "none"])
def test_no_port_is_published_without_a_network_of_its_own(mode: str) -> None:
    assert "PortBindings" not in host({"ports": ["http"], "network_mode": mode})


def test_in_the_namespace_of_its_group_a_container_sets_no_network_of_its_own() -> None:
    made = body({"ports": ["http"]}, at=site(pause_id="p1"), hostname="box", network_namespace="/proc/7/ns/net")
    assert made["HostConfig"]["NetworkMode"] == "container:p1"
    assert "Hostname" not in made
    assert not {"PortBindings", "Dns", "ExtraHosts"} & set(made["HostConfig"])


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"dns_servers": ["10.0.0.2"]}, r"dns_servers .*network \{ dns"),
        ({"dns_search_domains": ["corp"]}, r"dns_search_domains .*network \{ dns"),
        ({"hostname": "web"}, r"hostname .*network \{ hostname \} of the group"),
    ],
)
def test_names_that_the_network_of_the_group_decides_are_refused(config: dict[str, Any], hint: str) -> None:
    resolver = HostMount(host_path="/run/r", task_path="/etc/resolv.conf", is_read_only=True)
    with pytest.raises(DriverError, match=hint):
        body(config, at=site(pause_id="p1"), network_namespace="/proc/7/ns/net", mounts=(resolver,))


def test_name_servers_of_the_group_are_used_where_the_task_names_none() -> None:
    group = NameServers(servers=("10.0.0.2",), searches=("corp",))
    made = host({"dns_search_domains": ["own"]}, name_servers=group)
    assert (made["Dns"], made["DnsSearch"], made["DnsOptions"]) == (["10.0.0.2"], ["own"], [])


def test_a_container_that_joins_another_has_its_names() -> None:
    for config in ({"dns_options": ["ndots:2"]}, {"extra_hosts": ["db:10.0.0.5"]}, {"hostname": "web"}):
        with pytest.raises(DriverError, match="set it in the container that it joins"):
            body({**config, "network_mode": "container:other"})


def test_names_and_addresses_in_a_network_of_the_user() -> None:
    config = {"network_mode": "lan", "network_aliases": ["db"], "ipv4_address": "10.9.0.4", "ipv6_address": "fd::4"}
    assert body(config)["NetworkingConfig"] == {
        "EndpointsConfig": {
            "lan": {"IPAMConfig": {"IPv4Address": "10.9.0.4", "IPv6Address": "fd::4"}, "Aliases": ["db"]}
        }
    }
    with pytest.raises(DriverError, match="docker network create"):
        body({"network_aliases": ["db"]})


def test_a_task_with_gpus_gets_their_runtime_where_the_engine_has_it() -> None:
    env = {"NVIDIA_VISIBLE_DEVICES": "GPU-1"}
    assert host(env=env, at=site(runtimes=("nvidia", "runc")))["Runtime"] == "nvidia"
    with pytest.raises(DriverError, match="nvidia-container-toolkit"):
        body(env=env, at=site(runtimes=("runc",)))
    assert "Runtime" not in host(env={"NVIDIA_VISIBLE_DEVICES": "none"})


@pytest.mark.parametrize(
    ("plugin", "config", "expected"),
    [
        ({}, {}, {"Type": "json-file", "Config": {"max-file": "2", "max-size": "20m"}}),
        ({"logging": {"type": "journald"}}, {}, {"Type": "journald", "Config": {}}),
        ({}, {"logging": {"type": "local"}}, {"Type": "local", "Config": {}}),
        ({}, {"logging": {"driver": "gelf", "config": {"tag": "x"}}}, {"Type": "gelf", "Config": {"tag": "x"}}),
    ],
)
def test_the_log_driver(plugin: dict[str, Any], config: dict[str, Any], expected: dict[str, Any]) -> None:
    assert log_config(request(config).config, site(plugin).config) == expected


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"work_dir": "srv"}, "absolute"),
        ({"memory_hard_limit": 10}, "below the task's memory"),
        ({"ulimit": {"nofile": "many"}}, "1024:2048"),
        ({"oom_score_adj": -1}, "negative"),
        ({"runtime": "kata"}, "allow_runtimes"),
        ({"mount": {"type": "npipe", "target": "/x"}}, "bind, volume or tmpfs"),
        ({"mount": {"type": "tmpfs", "target": "x"}}, "absolute"),
        ({"port_map": {"db": 70000}}, "not a valid port number"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(config: dict[str, Any], message: str) -> None:
    def missing(path: str) -> str:
        raise OSError(f"no such file: {path}")

    with pytest.raises(DriverError, match=message):
        body(config, at=site(read_text=missing))


def test_the_agents_limit_of_processes_is_the_most_and_the_default() -> None:
    at = site({"pids_limit": 100})
    assert (host(at=at)["PidsLimit"], host({"pids_limit": 7}, at=at)["PidsLimit"]) == (100, 7)
    with pytest.raises(DriverError, match="100"):
        body({"pids_limit": 101}, at=at)


def test_a_misspelt_option_is_told_at_registration() -> None:
    (problem,) = check_config(schema_of(TaskConfig), {"image": "x", "privilegd": True})
    assert problem.hint == 'did you mean "privileged"?'


def test_a_wrong_duration_of_the_agent_names_its_option() -> None:
    with pytest.raises(Invalid, match=r"gc\.image_delay"):
        site({"gc": {"image_delay": "soon"}})


def test_volumes_of_the_group_are_mounted_though_paths_of_the_job_are_not_allowed() -> None:
    volume = HostMount(host_path="/srv/data", task_path="/data", is_read_only=True, propagation="host-to-task")
    assert body(mounts=(volume,))["HostConfig"]["Mounts"] == [
        {"Type": "bind", "Source": "/srv/data", "Target": "/data", "ReadOnly": True,
         "BindOptions": {"Propagation": "rslave"}},
    ]  # fmt: skip


def test_a_volume_of_the_group_with_a_label_is_a_bind_because_mounts_have_none() -> None:
    volume = HostMount(host_path="/srv/data", task_path="/data", is_read_only=True, selinux_label="Z")
    made = body(mounts=(volume,))["HostConfig"]
    assert not made["Mounts"]
    assert made["Binds"][-1] == "/srv/data:/data:ro,Z,rprivate"


GPUS: dict[str, Any] = {
    "env": {"NVIDIA_VISIBLE_DEVICES": "GPU-1"},
    "devices": (DeviceNode(host_path="/dev/nvidia0", task_path="/dev/nvidia0"),),
    "cdi_devices": ("nvidia.com/gpu=GPU-1",),
    "engine_devices": (EngineDevices(driver="nvidia", ids=("GPU-1",), capabilities=("gpu", "compute")),),
}


def test_gpus_go_by_the_container_device_interface_where_the_engine_has_it() -> None:
    given = host(at=site(has_cdi=True, runtimes=("nvidia", "runc")), **GPUS)

    assert given["DeviceRequests"] == [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=GPU-1"]}]
    assert ("Runtime" in given, given["Devices"]) == (False, [])


def test_gpus_go_by_nvidias_runtime_where_the_engine_has_only_that() -> None:
    given = host(at=site(runtimes=("nvidia", "runc")), **GPUS)

    assert (given["Runtime"], "DeviceRequests" in given) == ("nvidia", False)


def test_gpus_are_requested_as_by_the_gpus_flag_otherwise() -> None:
    given = host(at=site(runtimes=("runc",)), **GPUS)

    asked = {"Driver": "nvidia", "DeviceIDs": ["GPU-1"], "Capabilities": [["gpu", "compute"]]}
    assert (given["DeviceRequests"], "Runtime" in given) == ([asked], False)


def test_devices_without_an_engines_own_way_are_device_nodes() -> None:
    given = host(devices=(DeviceNode(host_path="/dev/fpga0", task_path="/dev/fpga", permissions="r"),))

    assert given["Devices"] == [{"PathOnHost": "/dev/fpga0", "PathInContainer": "/dev/fpga", "CgroupPermissions": "r"}]


def test_memory_is_kept_to_the_nodes_of_the_devices() -> None:
    near = TaskResources(cpu_shares=500, memory_mb=64, memory_nodes=(0, 1))

    assert host(resources=near)["CpusetMems"] == "0,1"
    assert "CpusetMems" not in host()


def test_a_seccomp_profile_that_is_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "profile")
    with pytest.raises(DriverError, match="it is not a plain file"):
        body({"security_opt": [f"seccomp={tmp_path}/profile"]}, at=replaced_profiles(read_text=read_text))
