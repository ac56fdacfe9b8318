"""The choice of devices by topology, against brute force over every set."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest
from yurt.scheduler.devices.topology import IGNORE, PREFER, REQUIRE, Layout, TopologyRequest, choose, layout_of, members
from yurt.sdk.value import replace
from yurt.structs.node import Attribute, NodeDevice, NodeDeviceResource
from yurt.testing.nightly import cases


def _brute(layout: Layout, allowed: int, free: int, wish: TopologyRequest) -> tuple[int, ...] | None:
    """Every set, scored by the rules as they are told, with nothing shared with what is tested."""
    best = None
    for chosen in combinations(members(allowed), wish.number):
        pairs = list(combinations(chosen, 2))
        nodes = {layout.numa[one] for one in chosen}
        apart = [pair for pair in pairs if not layout.links[pair[0]][pair[1]]]
        if (wish.nvlink == REQUIRE and apart) or (wish.numa == REQUIRE and len(nodes) > 1):
            continue
        is_linked = any(any(row) for row in layout.links) and wish.nvlink != IGNORE
        left = [one for one in members(free) if one not in chosen]
        groups = [sum(layout.numa[one] == node for one in left) for node in set(layout.numa)]
        groups += [sum(layout.islands[one] == island for one in left) for island in set(layout.islands)]
        cost = (
            sum(wish.last >> one & 1 for one in chosen),
            len(apart) if is_linked else 0,
            len(nodes) if wish.numa != IGNORE else 0,
            -sum(layout.links[a][b] for a, b in pairs) if is_linked else 0,
            sum(layout.distances[a][b] for a, b in pairs),
            -sum(size * size for size in groups),
            chosen,
        )
        best = cost if best is None or cost < best else best
    return None if best is None else best[-1]


def _layout(random: Random) -> Layout:
    """Machines as they are built, and others: pairs, quads, meshes, switches, one or more NUMA nodes."""
    size = random.choice((1, 2, 3, 4, 4, 6, 8, 8))
    nodes = random.choice((1, 1, 2, 2, 4))
    numa = tuple(one * nodes // size for one in range(size))
    links = [[0] * size for _ in range(size)]
    distances = [[0] * size for _ in range(size)]
    kind = random.choice(("none", "switch", "pairs", "quads", "mesh"))
    has_ways = random.random() < 0.5
    for one, other in combinations(range(size), 2):
        count = {
            "none": 0,
            "switch": 18,
            "pairs": 4 * (one // 2 == other // 2),
            "quads": 2 * (one // 4 == other // 4),
            "mesh": random.choice((0, 1, 2)),
        }[kind]
        links[one][other] = links[other][one] = count
        way = (1 if one // 2 == other // 2 else 4 if numa[one] == numa[other] else 5) if has_ways else 0
        distances[one][other] = distances[other][one] = way
    if random.random() < 0.2:
        numa = tuple(random.randrange(nodes) for _ in range(size))
    return Layout(numa, tuple(map(tuple, links)), tuple(map(tuple, distances)))


@pytest.mark.parametrize("block", range(4))
def test_the_choice_is_the_one_of_brute_force(block: int) -> None:
    for number in range(cases(500) // 4):
        random = Random(block * 1_000_003 + number)
        layout = _layout(random)
        free = random.randrange(1 << layout.size)
        allowed = free & (random.randrange(1 << layout.size) if random.random() < 0.3 else -1)
        stances = (PREFER, PREFER, REQUIRE, IGNORE)
        wish = TopologyRequest(random.randint(1, layout.size), random.choice(stances), random.choice(stances))
        wish = replace(wish, last=random.choice((0, random.randrange(1 << layout.size))))
        found = choose(layout, allowed, free, wish)
        assert (None if found is None else tuple(members(found))) == _brute(layout, allowed, free, wish), number


def _gpu(number: int, **attributes: str | int) -> NodeDevice:
    made = {
        name: Attribute(string_val=value) if isinstance(value, str) else Attribute(int_val=value)
        for name, value in attributes.items()
    }
    return NodeDevice(id=f"GPU-{number}", healthy=True, attributes=made)


def test_a_layout_is_read_from_the_attributes_of_the_instances() -> None:
    devices = (
        NodeDeviceResource(
            vendor="nvidia", type="gpu", name="H100",
            instances=(
                _gpu(0, numa_node=0, nvlink_peers="GPU-1", topology="GPU-1=PIX,GPU-2=SYS"),
                _gpu(1, numa_node=0, nvlink_links="GPU-0=12"),
                _gpu(2, numa_node=1),
            ),
        ),
    )  # fmt: skip
    layout = layout_of(devices)
    assert layout.numa == (0, 0, 1)
    assert layout.links == ((0, 12, 0), (12, 0, 0), (0, 0, 0))
    assert layout.distances == ((0, 1, 5), (1, 0, 0), (5, 0, 0))
    assert layout_of(devices) is layout and choose(layout, 7, 7, TopologyRequest(2)) == 3
    assert choose(layout, 6, 6, TopologyRequest(2, nvlink=REQUIRE)) is None


def test_a_single_device_is_taken_from_a_pair_that_is_broken_already() -> None:
    pairs = tuple(tuple(4 * (one != other and one // 2 == other // 2) for other in range(4)) for one in range(4))
    layout = Layout((0, 0, 0, 0), pairs, tuple((0,) * 4 for _ in range(4)))
    assert choose(layout, 0b1110, 0b1110, TopologyRequest(1)) == 0b0010
    assert choose(layout, 0b1110, 0b1110, TopologyRequest(2)) == 0b1100


def test_very_many_different_devices_are_searched_greedily_and_still_meet_what_is_required() -> None:
    random = Random(7)
    size = 24
    links = [[0] * size for _ in range(size)]
    for one, other in combinations(range(size), 2):
        links[one][other] = links[other][one] = random.randrange(1, 9) if one // 6 == other // 6 else 0
    empty = tuple((0,) * size for _ in range(size))
    layout = Layout(tuple(one // 12 for one in range(size)), tuple(map(tuple, links)), empty)
    everything = (1 << size) - 1
    found = choose(layout, everything, everything, TopologyRequest(6, nvlink=REQUIRE, numa=REQUIRE))
    assert found is not None and len({one // 6 for one in members(found)}) == 1
    assert choose(layout, everything, everything, TopologyRequest(7, nvlink=REQUIRE)) is None
