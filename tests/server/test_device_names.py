"""A registration warns of devices that no node has or shares as asked, and says what there is instead."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from yurt.sdk.value import replace
from yurt.server.config import ServerConfig
from yurt.server.resources.admission import admit
from yurt.server.resources.device_names import DOUBTS_MAX, device_doubts
from yurt.state import Snapshot, Tables
from yurt.structs.job import Job
from yurt.structs.node import Attribute, NodeDevice, NodeDeviceResource, NodeResources
from yurt.structs.resources import RequestedDevice
from yurt.testing import factories

A100, H100, MI300 = ("nvidia", "A100"), ("nvidia", "H100"), ("amd", "MI300")
Has = Mapping[tuple[str, str], str]
"""The cards of a node, and how they may be shared."""
WEB = 'Group "{group}" has warnings: Task "{task}" has warnings: '


def cluster(*nodes: Has) -> Snapshot:
    edit = Snapshot.empty().edit(2)
    for number, has in enumerate(nodes):
        kinds = tuple(
            NodeDeviceResource(
                vendor=vendor, type="gpu", name=name, instances=(NodeDevice(id="GPU-1", healthy=True),),
                attributes={"sharing": Attribute(string_val=sharing)} if sharing else {},
            )
            for (vendor, name), sharing in has.items()
        )  # fmt: skip
        node = replace(factories.node(), id=f"n{number}", node_resources=NodeResources(devices=kinds))
        edit.put(Tables.nodes, node.id, node)
    return edit.commit()


def asking(*requests: RequestedDevice) -> Job:
    job = factories.job()
    (group,) = job.task_groups
    resources = replace(group.tasks[0].resources, devices=requests)
    return replace(job, task_groups=(replace(group, tasks=(replace(group.tasks[0], resources=resources),)),))


def gpu(name: str, share: str = "") -> RequestedDevice:
    return RequestedDevice(name=name, share=share, memory_mb=1000 if share else 0)


def doubts(state: Snapshot, job: Job, *, reads_nodes: bool = True) -> list[str]:
    (group,) = job.task_groups
    prefix = WEB.format(group=group.name, task=group.tasks[0].name)
    warnings = admit(state, job, ServerConfig(name="s"), reads_nodes=reads_nodes).warnings
    return [text.removeprefix(prefix) for text in warnings if " on no node" in text]


@pytest.mark.parametrize(
    ("nodes", "request_", "told"),
    [
        ([{A100: ""}, {}], gpu("nvidia/gpu"), []),
        ([{A100: ""}], gpu("nvidia/gpu/H100"), ['device "nvidia/gpu/H100" is on no node; nodes have nvidia/gpu/A100']),
        ([{MI300: ""}, {}], gpu("nvidia/gpu"), ['device "nvidia/gpu" is on no node; nodes have amd/gpu/MI300']),
        ([{A100: "", H100: "", MI300: "", ("intel", "Max"): ""}], gpu("fpga"),
         ['device "fpga" is on no node; nodes have amd/gpu/MI300, intel/gpu/Max, nvidia/gpu/A100 and 1 more']),
        ([{}], gpu("nvidia/gpu"),
         ['device "nvidia/gpu" is on no node; no node has any device: `yurt plugin list` on a node says why']),
        ([{A100: "slice"}, {H100: "mps,slice"}], gpu("nvidia/gpu", "mps"), []),
        ([{A100: "slice"}], gpu("nvidia/gpu", "mps"),
         ['device "nvidia/gpu" is shared by mps on no node; nodes share it by slice']),
        ([{A100: ""}], gpu("nvidia/gpu", "mps"),
         ['device "nvidia/gpu" is shared by mps on no node; nodes give it only as a whole']),
        ([{A100: "mig"}], gpu("nvidia/gpu", "mps"),
         ['device "nvidia/gpu" is shared by mps on no node; nodes give it only as a whole']),
        ([{A100: ""}], gpu("gpu\n\x1b[2J"),
         [r'device "gpu\n\u001b[2J" is on no node; nodes have nvidia/gpu/A100']),
        ([{A100: ""}], RequestedDevice(first_available=(gpu("nvidia/gpu/H100"), gpu("nvidia/gpu/A100"))), []),
        ([], gpu("nvidia/gpu"), []),
    ],
)  # fmt: skip
def test_what_no_node_has_is_told_with_what_there_is(
    nodes: list[Has], request_: RequestedDevice, told: list[str]
) -> None:
    assert doubts(cluster(*nodes), asking(request_)) == told


def test_a_caller_who_may_not_read_nodes_does_not_learn_what_they_have() -> None:
    state = cluster({A100: "slice"})
    asked = asking(gpu("amd/gpu"), gpu("nvidia/gpu", "mps"))

    assert doubts(state, asked, reads_nodes=False) == [
        'device "amd/gpu" is on no node', 'device "nvidia/gpu" is shared by mps on no node',
    ]  # fmt: skip


def test_many_missing_devices_cost_one_look_at_the_nodes_and_are_told_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = cluster(*({A100: "slice"} for _ in range(20)))
    assert doubts(state, asking(gpu("first"))) == ['device "first" is on no node; nodes have nvidia/gpu/A100']
    monkeypatch.setattr(type(state.nodes), "values", lambda _: pytest.fail("the nodes are read again"))

    told = list(device_doubts(state, asking(*(gpu(f"gpu-{number}") for number in range(500))), reads_nodes=True))

    assert told[-1] == f"more devices are on no node; the first {DOUBTS_MAX} are named"
    assert len(told) == DOUBTS_MAX + 1
