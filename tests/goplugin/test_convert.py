"""What plugins are told of a task, and what our drivers are told by a host."""

from __future__ import annotations

from yurt.goplugin.convert import request_of, task_config
from yurt.sdk.driver import LogRotation, Mount, NameServers, TaskDirs, TaskRequest, TaskResources

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip
DATA = Mount(host_path="/srv/data", task_path="/data")
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


def test_without_such_words_the_file_is_mounted() -> None:
    message = task_config(request(), msgpack_config=b"", outputs=("", ""))
    assert not message.HasField("dns")
    assert [mount.task_path for mount in message.mounts] == ["/data", "/etc/resolv.conf"]
    assert request_of(message, {}, logs_dir="/logs", logs=LogRotation()).name_servers is None
