"""Claims on devices: reports to several plugins, and which claims cannot be served at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from yurt.client.devices.holders import excludes
from yurt.client.devices.manager import DeviceManager
from yurt.sdk.device import MIG, MPS, SLICE, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.errors import DriverError
from yurt.testing.fake_devices import FakeDevices

UNUSED: Any = None


class FailingDevices(FakeDevices):
    """A plugin that takes no reports."""

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        raise DriverError("the driver hangs")


def claimed(share: str, start: int = 0, memory_mb: int = 9856) -> ClaimedDevices:
    numbers = (str(start),) if share else ()
    return ClaimedDevices(
        vendor="v", type="t", name="n", ids=("card",), share=share, memory_mb=memory_mb, numbers=numbers
    )


async def test_a_plugin_that_fails_withholds_no_report_from_the_others() -> None:
    good = FakeDevices("card", name="good")
    async with asyncio.TaskGroup() as group:
        manager = DeviceManager(
            {"bad": FailingDevices("other", name="bad"), "good": good},
            UNUSED, node=UNUSED, group=group, health=UNUSED, on_plugin=lambda name, problem: None,
        )  # fmt: skip
        claim = DeviceClaim(alloc_id="a", task_name="task", devices=(claimed(WHOLE),))
        with pytest.raises(DriverError, match="the driver hangs"):
            await manager.report_claims(lambda: (claim,))

    assert good.reported_claims == [(claim,)]


@pytest.mark.parametrize(
    ("mine", "theirs", "is_excluded"),
    [
        (claimed(MIG), claimed(WHOLE), True),
        (claimed(MIG), claimed(MPS), True),
        (claimed(SLICE), claimed(MIG, 3), True),
        (claimed(MPS), claimed(MPS, 1), False),
        (claimed(MIG, 2), claimed(MIG, 2), True),
        (claimed(MIG, 2), claimed(MIG, 3), False),
        (claimed(MIG, 2), claimed(MIG, 0, memory_mb=40448), True),
    ],
)
def test_a_card_serves_one_mode_and_instances_that_cannot_overlap(
    mine: ClaimedDevices, theirs: ClaimedDevices, is_excluded: bool
) -> None:
    assert excludes(mine, theirs) is is_excluded
