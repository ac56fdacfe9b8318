"""A device plugin that a test controls: offered devices, their health and their usage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from yurt.sdk.device import (
    DeviceClaim,
    DeviceFingerprint,
    DeviceGroup,
    DeviceInstance,
    DeviceProcess,
    DeviceUse,
    Quantity,
    Reservation,
    SelfTest,
    Severity,
    Stat,
)
from yurt.sdk.driver import Mount
from yurt.sdk.errors import DriverError, YurtError
from yurt.sdk.value import UnixNano

VENDOR, TYPE, NAME = "acme", "fpga", "A1"


class FakeDevices:
    """A device plugin; `reserve` answers with the ids in `FPGA_IDS`."""

    def __init__(self, *ids: str, name: str = "fake") -> None:
        self.name = name
        self.ids = ids
        self.reasons: dict[str, str] = {}
        self.severities: dict[str, Severity] = {}
        self.claims: list[DeviceClaim] = []
        self.reported_claims: list[tuple[DeviceClaim, ...]] = []
        self.uses: dict[str, DeviceUse] = {}
        self.mounts: tuple[Mount, ...] = ()
        self.reserve_errors: list[YurtError] = []
        self.is_failing = False
        self._changed = asyncio.Event()
        self._changed.set()

    def change(
        self,
        *,
        ids: tuple[str, ...] | None = None,
        reasons: Mapping[str, str] | None = None,
        severities: Mapping[str, Severity] | None = None,
    ) -> None:
        """Offer other devices, or let some be unhealthy for these reasons, as failed unless a severity is given."""
        self.ids = self.ids if ids is None else ids
        self.reasons = dict(self.reasons if reasons is None else reasons)
        self.severities = dict(self.severities if severities is None else severities)
        self._changed.set()

    def fail(self) -> None:
        """Let the fingerprint raise an unexpected exception."""
        self.is_failing = True
        self._changed.set()

    def use(self, device: str, processes: Mapping[int, int]) -> None:
        """Set how many bytes of a device each process uses, by pid."""
        self.uses[device] = DeviceUse(
            at=UnixNano(1),
            summary=Stat(value=sum(processes.values()) >> 20, of=81920, unit="MiB"),
            stats={"Temperature": Stat(value=31, unit="C")},
            processes=tuple(DeviceProcess(pid=pid, memory_bytes=size) for pid, size in processes.items()),
        )

    async def fingerprint(self) -> AsyncIterator[DeviceFingerprint]:
        """Yield the offered devices now and after each change."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self.is_failing:
                self.is_failing = False
                raise RuntimeError("the plugin has a defect")
            yield DeviceFingerprint(groups=self._groups())

    def _groups(self) -> tuple[DeviceGroup, ...]:
        instances = tuple(
            DeviceInstance(
                id=each,
                is_healthy=each not in self.reasons or self.severities.get(each) == "suspect",
                severity=self.severities.get(each, "failed" if each in self.reasons else ""),
                reason=self.reasons.get(each, ""),
                pci_bus_id="0000:01:00.0",
                attributes={"slot": number, "numa_node": 0},
            )
            for number, each in enumerate(self.ids)
        )
        memory = Quantity(value=80, unit="GiB")
        group = DeviceGroup(vendor=VENDOR, type=TYPE, name=NAME, instances=instances, attributes={"memory": memory})
        return (group,) if instances else ()

    async def reserve(self, claim: DeviceClaim) -> Reservation:
        """The environment variables for these devices."""
        if self.reserve_errors:
            raise self.reserve_errors.pop(0)
        unknown = [each for each in claim.ids if each not in self.ids]
        if unknown:
            raise DriverError(f"no device {unknown[0]}")
        self.claims.append(claim)
        return Reservation(env={"FPGA_IDS": ",".join(claim.ids)}, mounts=self.mounts)

    async def update_claims(self, claims: Sequence[DeviceClaim]) -> None:
        """Record the current claims."""
        self.reported_claims.append(tuple(claims))

    async def stats(self) -> Mapping[str, DeviceUse]:
        """The usage that the test set."""
        return self.uses

    async def close(self) -> None:
        """Nothing is held."""


class SelfTestingDevices(FakeDevices):
    """A device plugin with a self-test, which waits until the test answers it."""

    def __init__(self, *ids: str, name: str = "fake") -> None:
        super().__init__(*ids, name=name)
        self.tests: list[tuple[str, asyncio.Future[SelfTest]]] = []

    async def self_test(self, device_id: str) -> SelfTest:
        """The answer of the test."""
        answer: asyncio.Future[SelfTest] = asyncio.get_running_loop().create_future()
        self.tests.append((device_id, answer))
        return await answer
