"""The environment of a task, and what `${...}` becomes."""

from __future__ import annotations

from yurt.client.config import ClientConfig
from yurt.client.task_env import EnvInputs, build_env, core_ranges, lookup_in, ports_of_task, replace_in
from yurt.sdk.value import replace
from yurt.structs.alloc import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
)
from yurt.structs.network import NetworkResource, Port, PortMapping
from yurt.structs.node import Node
from yurt.testing import factories
from yurt.testing.client_objects import placed

NODE = Node(
    id="n-1", name="host1", datacenter="dc7", node_class="big", node_pool="gpu", attributes={"cpu.arch": "amd64"},
    meta={"rack": "r1"},
)  # fmt: skip


def inputs(**changes: object) -> EnvInputs:
    task = factories.task(env={"GREETING": "hi ${NOMAD_TASK_NAME} on ${attr.cpu.arch}", "a-b": '${env["HOME"]}'})
    group = factories.group(tasks=(task,), meta={"color": "blue", "who": "group"})
    job = factories.job(task_groups=(group,), meta={"who": "job", "rack-of": "${meta.rack}"})
    alloc = replace(
        placed("n-1", job=job, number=3),
        allocated_resources=AllocatedResources(
            tasks={
                "web": AllocatedTaskResources(
                    cpu=AllocatedCpuResources(cpu_shares=500, reserved_cores=(0, 1, 4)),
                    memory=AllocatedMemoryResources(memory_mb=256, memory_max_mb=512),
                ),
                "api": AllocatedTaskResources(
                    networks=(NetworkResource(ip="10.0.0.9", dynamic_ports=(Port(label="rpc", value=23000),)),)
                ),
            },
            shared=AllocatedSharedResources(
                ports=(PortMapping(label="http-x", value=21000, to=8080, host_ip="10.0.0.1"),)
            ),
        ),
    )
    made = EnvInputs(
        node=NODE,
        region="global",
        alloc=alloc,
        job=job,
        group=group,
        task=task,
        alloc_dir="/alloc",
        task_dir="/local",
        secrets_dir="/secrets",
        host_env={"HOME": "/root", "NOMAD_DC": "host"},
    )
    return replace(made, **changes)


def test_nomads_variables_are_given():
    env = build_env(inputs())

    expected = {
        "NOMAD_ALLOC_DIR": "/alloc", "NOMAD_TASK_DIR": "/local", "NOMAD_SECRETS_DIR": "/secrets",
        "NOMAD_MEMORY_LIMIT": "256", "NOMAD_MEMORY_MAX_LIMIT": "512", "NOMAD_CPU_LIMIT": "500",
        "NOMAD_CPU_CORES": "0-1,4", "NOMAD_ALLOC_NAME": "web.web[3]", "NOMAD_ALLOC_INDEX": "3",
        "NOMAD_TASK_NAME": "web", "NOMAD_GROUP_NAME": "web", "NOMAD_JOB_ID": "web", "NOMAD_JOB_NAME": "web",
        "NOMAD_DC": "dc7", "NOMAD_REGION": "global", "NOMAD_NAMESPACE": "default", "HOME": "/root",
    }  # fmt: skip
    assert {name: env.get(name) for name in expected} == expected
    assert env["NOMAD_ALLOC_ID"].startswith(env["NOMAD_SHORT_ALLOC_ID"]) and len(env["NOMAD_SHORT_ALLOC_ID"]) == 8


def test_ports_of_the_group_and_of_other_tasks_are_given():
    env = build_env(inputs())

    assert env["NOMAD_PORT_http_x"] == "21000" and env["NOMAD_HOST_PORT_http_x"] == "21000"
    assert env["NOMAD_IP_http_x"] == "10.0.0.1" and env["NOMAD_ADDR_http_x"] == "10.0.0.1:21000"
    assert env["NOMAD_ADDR_api_rpc"] == "10.0.0.9:23000"


def test_a_task_is_given_the_ports_that_it_asked_for_itself():
    (port,) = ports_of_task(inputs().alloc, "api")
    assert (port.label, port.host_ip, port.host_port, port.of_task) == ("rpc", "10.0.0.9", 23000, True)
    assert ports_of_task(inputs().alloc, "web") == ()


def test_a_mapped_port_is_the_one_inside_the_namespace():
    bridged = replace(inputs().group, networks=(NetworkResource(mode="bridge"),))

    env = build_env(inputs(group=bridged))

    assert env["NOMAD_PORT_http_x"] == "8080" and env["NOMAD_HOST_PORT_http_x"] == "21000"


def test_metadata_of_the_innermost_block_wins_and_comes_in_both_spellings():
    env = build_env(inputs())

    assert env["NOMAD_META_who"] == env["NOMAD_META_WHO"] == "group"
    assert env["NOMAD_META_rack_of"] == "r1"


def test_the_env_block_is_interpolated_and_wins():
    env = build_env(inputs())

    assert env["GREETING"] == "hi web on amd64"
    assert env["a_b"] == "/root"


def test_config_is_interpolated_in_all_its_depth():
    lookup = lookup_in(NODE, "global", {"NOMAD_PORT_http": "8080"})

    found = replace_in(
        {"args": ["-p", "${NOMAD_PORT_http}"], "labels": [{"${meta.rack}": "${node.class}"}], "n": 1}, lookup
    )

    assert found == {"args": ["-p", "8080"], "labels": [{"r1": "big"}], "n": 1}


def test_every_node_value_is_known_and_an_unknown_reference_stays():
    lookup = lookup_in(NODE, "eu", {})

    text = "${node.unique.id} ${node.unique.name} ${node.datacenter} ${node.region} ${node.pool} ${attr.none} ${X}"
    assert replace_in(text, lookup) == "n-1 host1 dc7 eu gpu ${attr.none} ${X}"


def test_cores_are_written_as_ranges():
    assert core_ranges((3, 1, 2, 7)) == "1-3,7"


def test_credentials_of_the_agent_are_not_for_tasks():
    config = ClientConfig(state_dir="/s", alloc_dir="/a")
    secrets = (
        "CONSUL_HTTP_AUTH", "NOMAD_HTTP_AUTH", "NOMAD_CLIENT_INTRO_TOKEN", "NOMAD_VAR_password", "NOMAD_TOKEN",
    )  # fmt: skip

    assert config.inherited_env(dict.fromkeys(("HOME", "NOMAD_ADDR", *secrets), "x")) == {
        "HOME": "x",
        "NOMAD_ADDR": "x",
    }


def test_the_operators_list_of_denied_variables_takes_the_place_of_the_usual_one():
    config = ClientConfig(state_dir="/s", alloc_dir="/a", options={"env.denylist": "SECRET_*, ONE"})

    assert config.inherited_env({"SECRET_A": "x", "ONE": "x", "HOME": "x", "NOMAD_TOKEN": "x"}) == {
        "HOME": "x", "NOMAD_TOKEN": "x",
    }  # fmt: skip
