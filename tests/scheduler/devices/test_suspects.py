"""Whether a node would give a suspect device: the quick answers are those of its grants."""

from __future__ import annotations

from random import Random
from time import thread_time

import pytest
from yurt.scheduler.devices.bookings import instance_key
from yurt.scheduler.devices.offers import grant_devices, suspects_of
from yurt.scheduler.devices.suspects import Requests, SuspectQuestion
from yurt.sdk.device import device_of
from yurt.structs.constraint import Affinity
from yurt.structs.node import Node
from yurt.structs.resources import DeviceTopology, RequestedDevice
from yurt.testing.nightly import cases

from tests.scheduler.devices.test_device_placing import A100, H100, _ask, _card, _kind, _node


def by_grant(node: Node, in_use: tuple[str, ...], requests: Requests) -> bool:
    """The answer of the grant itself."""
    granted = grant_devices(node, in_use, requests)
    ids = {device_of(each) for _, device in granted.devices for each in device.device_ids} if granted else set()
    return not ids.isdisjoint(suspects_of(node))


def any_node(random: Random) -> tuple[Node, tuple[str, ...]]:
    """A node of one or two kinds of cards, some of them suspect, failed or in use."""
    kinds = []
    for name in random.choice(((H100,), (A100,), (H100, A100))):
        cards = [
            _card(
                f"{name[-4:]}-{number}",
                healthy=random.random() < 0.9,
                state=random.choice(("healthy", "healthy", "suspect")),
                numa_node=random.randrange(2),
            )
            for number in range(random.randint(1, 5))
        ]
        kinds.append(_kind(name, cards))
    keys = [instance_key(kind, each.id) for kind in kinds for each in kind.instances if random.random() < 0.3]
    in_use = tuple(f"{key}::0|mps|1024|10" if random.random() < 0.3 else key for key in keys)
    return _node(1, *kinds), in_use


def any_request(random: Random) -> RequestedDevice:
    """A request, mostly for any whole cards."""
    name = random.choice(("gpu", "nvidia/gpu", f"nvidia/gpu/{H100}"))
    count = random.choice((1, 1, 2, 3))
    match random.randrange(8):
        case 0:
            return _ask(name, count, topology=DeviceTopology(numa="require"))
        case 1:
            return _ask(name, count, share="mps", memory_mb=40_000)
        case 2:
            rule = Affinity(l_target="${device.model}", r_target=A100, operand="=", weight=random.choice((-50, 50)))
            return _ask(name, count, affinities=(rule,))
        case 3:
            return _ask(name, all_of_node=True)
        case _:
            return _ask(name, count)


@pytest.mark.parametrize("seed", range(cases(20)))
def test_quick_answers_are_those_of_the_grants(seed: int) -> None:
    random = Random(seed)
    for _ in range(50):
        requests = [(f"task{at}", any_request(random)) for at in range(random.choice((1, 1, 2, 3)))]
        question = SuspectQuestion(requests)
        node, in_use = any_node(random)
        if grant_devices(node, in_use, requests) is not None:
            assert question.grants_suspect(node, in_use) == by_grant(node, in_use, requests), (
                seed,
                node,
                in_use,
                requests,
            )


def test_nodes_with_enough_or_too_few_sound_cards_answer_without_a_choice() -> None:
    """An evaluation asks all nodes with a suspect card: with 1,000 of them the choices took 20 ms."""
    nodes = [
        _node(number, _kind(H100, [_card(f"{number}-{at}", state="suspect" if at < bad else "healthy", numa_node=at % 2)
                                   for at in range(8)]))
        for number, bad in enumerate((1, 8) * 100, 1)
    ]  # fmt: skip
    requests = [("task", _ask(count=4))]
    question = SuspectQuestion(requests)

    def seconds_of(*, is_quick: bool) -> float:
        taken = []
        for _ in range(4):
            begin = thread_time()
            answers = [question.grants_suspect(n, ()) if is_quick else by_grant(n, (), requests) for n in nodes]
            taken.append(thread_time() - begin)
            assert answers == [False, True] * 100
        return min(taken)

    assert seconds_of(is_quick=True) < seconds_of(is_quick=False) / 3
