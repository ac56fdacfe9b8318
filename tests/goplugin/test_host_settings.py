"""What a plugin of Nomad learns of its host in SetConfig; a driver such as exec2 ends without the node's processors."""

from __future__ import annotations

from yurt.goplugin.plugin import nomad_config
from yurt.goplugin.process import PluginSpec
from yurt.structs.node import ProcessorCore, ProcessorTopology

TOPOLOGY = ProcessorTopology(
    nodes=(0, 1),
    distances=((10, 20), (20, 10)),
    cores=(
        ProcessorCore(id=0, base_speed=2000, max_speed=3000),
        ProcessorCore(id=1, socket_id=1, node_id=1, grade=False, disable=True, guess_speed=1500),
    ),
    override_total_compute=5000,
)


def spec_with(topology: ProcessorTopology | None) -> PluginSpec:
    return PluginSpec(name="exec2", path="/plugins/exec2", folder="/state", ports=(20000, 32000), topology=topology)


def test_a_plugin_learns_the_processors_and_ports_of_the_node() -> None:
    driver = nomad_config(spec_with(TOPOLOGY)).driver
    topology = driver.Topology
    assert (driver.ClientMinPort, driver.ClientMaxPort) == (20000, 32000)
    assert (list(topology.node_ids), topology.override_total_compute) == ([0, 1], 5000)
    assert (topology.distances.dimension, list(topology.distances.values)) == (2, [10, 20, 20, 10])
    first, second = topology.cores
    assert (first.core_id, first.base_speed, first.max_speed, first.core_grade) == (0, 2000, 3000, 0)
    assert (second.socket_id, second.node_id, second.core_id, second.guess_speed) == (1, 1, 1, 1500)
    assert second.disable and second.core_grade != 0


def test_a_node_that_does_not_know_its_processors_sends_none() -> None:
    assert not nomad_config(spec_with(None)).driver.HasField("Topology")
