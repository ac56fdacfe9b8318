"""The topology of processors, read from a folder in the shape of the kernel's."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from yurt.client.fingerprint.host import CpuFacts
from yurt.client.fingerprint.topology import parse_list, topology_of
from yurt.structs.node import ProcessorCore

CPU = CpuFacts(cores=(0, 1, 3), mhz=2000, total_mhz=6000, model="m")


def test_nodes_sockets_and_speeds_come_from_the_kernel(tmp_path: Path) -> None:
    for path, text in {
        "node/online": "0-1\n", "node/node0/cpulist": "0-1\n", "node/node1/cpulist": "2-3\n",
        "node/node0/distance": "10 20\n", "node/node1/distance": "20 10\n",
        "cpu/cpu3/topology/physical_package_id": "1\n", "cpu/cpu3/cpufreq/base_frequency": "2200000\n",
        "cpu/cpu3/cpufreq/cpuinfo_max_freq": "3500000\n",
    }.items():  # fmt: skip
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    found = topology_of(CPU, override_mhz=9000, system=tmp_path)

    assert (found.nodes, found.distances, found.override_total_compute) == ((0, 1), ((10, 20), (20, 10)), 9000)
    assert found.cores[0] == ProcessorCore(id=0, guess_speed=2000)
    assert found.cores[2] == ProcessorCore(id=3, node_id=1, socket_id=1, base_speed=2200, max_speed=3500)


def test_a_kernel_that_says_nothing_has_one_node(tmp_path: Path) -> None:
    found = topology_of(CPU, system=tmp_path)

    assert (found.nodes, found.distances) == ((0,), ((10,),)) and {core.node_id for core in found.cores} == {0}


@given(st.sets(st.integers(0, 300)))
def test_a_list_of_single_numbers_is_read_back(numbers: set[int]) -> None:
    assert parse_list(",".join(map(str, sorted(numbers)))) == tuple(sorted(numbers))
