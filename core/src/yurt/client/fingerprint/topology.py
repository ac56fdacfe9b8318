"""The topology of the processors: sockets, NUMA nodes and their distances, and the speed of each core.

Blocking; call in a thread. A file that the kernel does not have counts as one socket, one NUMA node, and no speed of
its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from yurt.client.fingerprint.host import CpuFacts
from yurt.structs.node import ProcessorCore, ProcessorTopology

SYSTEM = Path("/sys/devices/system")
KHZ_PER_MHZ = 1000
LOCAL_DISTANCE = 10
"""The distance of a NUMA node from itself, as firmware counts."""


def topology_of(cpu: CpuFacts, *, override_mhz: int = 0, system: Path = SYSTEM) -> ProcessorTopology:
    """The topology of the cores that this agent may use; `override_mhz` is the configured total of all, or 0."""
    by_core = {core: node for node in _numa_nodes(system) for core in _cores_of(system, node)}
    nodes = tuple(sorted({by_core.get(core, 0) for core in cpu.cores}))
    return ProcessorTopology(
        nodes=nodes,
        distances=_distances(system, nodes),
        cores=tuple(_core(system, core, by_core.get(core, 0), cpu.mhz) for core in cpu.cores),
        override_total_compute=override_mhz,
    )


def _core(system: Path, core: int, node: int, mhz: int) -> ProcessorCore:
    folder = system / "cpu" / f"cpu{core}"
    base, most = (_number(folder / "cpufreq" / name) // KHZ_PER_MHZ for name in ("base_frequency", "cpuinfo_max_freq"))
    return ProcessorCore(
        id=core,
        node_id=node,
        socket_id=max(_number(folder / "topology" / "physical_package_id"), 0),
        base_speed=base,
        max_speed=most,
        guess_speed=0 if base or most else mhz,
    )


def _numa_nodes(system: Path) -> tuple[int, ...]:
    return parse_list(_text(system / "node" / "online"))


def _cores_of(system: Path, node: int) -> tuple[int, ...]:
    return parse_list(_text(system / "node" / f"node{node}" / "cpulist"))


def _distances(system: Path, nodes: Iterable[int]) -> tuple[tuple[int, ...], ...]:
    """The rows of the distance table; a single node has `LOCAL_DISTANCE` to itself."""
    rows = (_text(system / "node" / f"node{node}" / "distance").split() for node in nodes)
    return tuple(tuple(int(each) for each in row if each.isdigit()) or (LOCAL_DISTANCE,) for row in rows)


def parse_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's list of numbers: `0-3,8` is 0, 1, 2, 3 and 8."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found.extend(range(int(first), int(last if last.isdigit() else first) + 1))
    return tuple(found)


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
