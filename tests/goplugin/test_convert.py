"""What plugins are told of a task, and what our drivers are told by a host."""

from __future__ import annotations

from pathlib import Path

import msgspec
from yurt.goplugin.convert import GO_ZERO_TIME_S, network_message, request_of, task_config, timestamp_fields, unix_nano
from yurt.goplugin.messages import driver_message
from yurt.goplugin.serve_driver import DriverService
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import LogRotation, Mount, NameServers, PortGiven, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.value import UnixNano, replace
from yurt_driver_mock.config import PluginOptions
from yurt_driver_mock.driver import MockDriver

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip
DATA = Mount(host_path="/srv/data", task_path="/data", selinux_label="z")
RESOLVER = Mount(host_path="/run/resolv.conf", task_path="/etc/resolv.conf", is_read_only=True)


def request(name_servers: NameServers | None = None) -> TaskRequest:
    return TaskRequest(
        task_id="a/web/0", alloc_id="a", task_name="web", job_id="shop", group_name="front", namespace="default",
        config={}, env={}, dirs=DIRS, resources=TaskResources(cpu_shares=500, node_cpu_shares=4000, memory_mb=64),
        mounts=(DATA, RESOLVER), name_servers=name_servers,
    )  # fmt: skip


def test_the_tasks_part_of_the_node_is_what_hard_limits_are_made_of() -> None:
    message = task_config(request(), msgpack_config=b"", outputs=("", ""))
    assert message.resources.linux_resources.PercentTicks == 0.125
    found = request_of(message, {}, logs_dir="/logs", logs=LogRotation())
    assert (found.resources.cpu_shares, found.resources.node_cpu_shares) == (500, 4000)


def test_name_servers_of_the_group_are_told_in_words_and_the_file_is_the_plugins() -> None:
    told = NameServers(servers=("10.0.0.2",), searches=("corp",), options=("ndots:2",))
    message = task_config(request(told), msgpack_config=b"", outputs=("", ""))
    assert (list(message.dns.servers), list(message.dns.searches)) == (["10.0.0.2"], ["corp"])
    assert [mount.task_path for mount in message.mounts] == ["/data"]
    assert request_of(message, {}, logs_dir="/logs", logs=LogRotation()).name_servers == told
    assert request_of(message, {}, logs_dir="/logs", logs=LogRotation()).mounts == (DATA,)


def test_without_such_words_the_file_is_mounted() -> None:
    message = task_config(request(), msgpack_config=b"", outputs=("", ""))
    assert not message.HasField("dns")
    assert [mount.task_path for mount in message.mounts] == ["/data", "/etc/resolv.conf"]
    assert request_of(message, {}, logs_dir="/logs", logs=LogRotation()).name_servers is None


def test_a_time_that_never_came_is_gos_zero_time() -> None:
    never = driver_message("TaskStatus", completed_at=timestamp_fields(UnixNano(0))).completed_at
    assert never.seconds == GO_ZERO_TIME_S and unix_nano(never) == 0
    now = driver_message("TaskStatus", completed_at=timestamp_fields(UnixNano(7_000_000_001))).completed_at
    assert unix_nano(now) == 7_000_000_001


async def test_a_running_task_has_all_that_a_host_in_go_reads(tmp_path: Path) -> None:
    service = DriverService(tmp_path, RealEnv())
    service.driver = MockDriver(PluginOptions())
    config = msgspec.msgpack.encode({"run_for": "1h"})
    task = task_config(request(), msgpack_config=config, outputs=("/dev/null", "/dev/null"))
    answer = await service.start(driver_message("StartTaskRequest", task=task))
    assert not answer.driver_error_msg

    found = (await service.inspect(driver_message("InspectTaskRequest", task_id=task.id))).task

    assert found.HasField("started_at") and found.HasField("completed_at") and found.HasField("result")
    await service.destroy(driver_message("DestroyTaskRequest", task_id=task.id, force=True))
    await service.close()


def test_a_host_hears_of_a_tasks_own_address_and_of_its_ports_inside() -> None:
    http = PortGiven(label="http", host_ip="192.0.2.1", host_port=20001, to=80)
    ports = (http, PortGiven(label="raw", host_ip="192.0.2.1", host_port=20002))
    config = task_config(replace(request(), ports=ports), msgpack_config=b"", outputs=("", ""))
    told = network_message(config, "10.9.0.2")
    assert told.addr == "10.9.0.2" and dict(told.port_map) == {"http": 80, "raw": 20002}
    assert network_message(config, "") is None
