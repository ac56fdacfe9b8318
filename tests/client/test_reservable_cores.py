"""The cores that an operator lets tasks reserve, and those that it keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yurt.agent.component_configs import core_list
from yurt.client.config import ClientConfig, Reserved
from yurt.client.fingerprint.host import CpuFacts, host_attributes
from yurt.client.fingerprint.node import build_node, with_reservable
from yurt.sdk.errors import Invalid
from yurt.storage.client_db import NodeIdentity

CPU = CpuFacts((0, 1, 2, 3), 1000, 4000, "model", (0, 1, 2, 3))


def config(*, reservable: tuple[int, ...] = (), reserved: tuple[int, ...] = (), mhz: int = 0) -> ClientConfig:
    return ClientConfig(
        state_dir="", alloc_dir="", reservable_cores=reservable, reserved=Reserved(cores=reserved, cpu=mhz)
    )


@pytest.mark.parametrize(("text", "cores"), [("", ()), ("0-2, 5", (0, 1, 2, 5)), ("3,1,1", (1, 3))])
def test_a_list_of_cores_is_written_as_the_kernel_writes_it(text: str, cores: tuple[int, ...]) -> None:
    assert core_list(text, setting="x") == cores


@pytest.mark.parametrize("text", ["all", "3-1", "1,,2", "-1", "0-99999"])
def test_what_is_no_list_of_cores_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"client reservable_cores: .* is not a core or a range of cores"):
        core_list(text, setting="client reservable_cores")


def test_reservable_cores_are_those_named_or_all_that_are_not_kept() -> None:
    assert with_reservable(CPU, config()).reservable == (0, 1, 2, 3)
    assert with_reservable(CPU, config(reservable=(1, 2))).reservable == (1, 2)
    kept = with_reservable(CPU, config(reserved=(0,)))
    assert kept.reservable == (1, 2, 3)
    assert host_attributes(kept)["cpu.reservablecores"] == "3"


def test_cores_that_are_absent_or_named_twice_are_refused() -> None:
    with pytest.raises(Invalid, match="client reservable_cores names the cores 9, but this agent may use 0,1,2,3"):
        with_reservable(CPU, config(reservable=(3, 9)))
    with pytest.raises(Invalid, match="both name 1"):
        with_reservable(CPU, config(reservable=(1, 2), reserved=(0, 1)))


def test_a_node_tells_its_reservable_cores_and_keeps_the_mhz_of_its_own(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    made = ClientConfig(
        state_dir=str(tmp_path), alloc_dir=str(tmp_path), cpu_total_compute=1000 * len(mine),
        reserved=Reserved(cores=(mine[0],)),
    )  # fmt: skip
    node = build_node(made, NodeIdentity(node_id="n", secret_id="s"), {})
    assert node.node_resources.cpu.reservable_cpu_cores == tuple(mine[1:])
    assert node.reserved_resources.cpu.cpu_shares == 1000
