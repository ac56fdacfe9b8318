"""A task's claim on devices, and the part of a reservation that its driver can provide. Pure."""

from __future__ import annotations

from yurt.client.devices.wire import claimed
from yurt.sdk.device import DeviceClaim, Reservation
from yurt.sdk.driver import Driver
from yurt.sdk.errors import DriverError
from yurt.structs.alloc import AllocatedTaskResources, Allocation


def claim_of(alloc: Allocation, task_name: str) -> DeviceClaim:
    """The devices that the scheduler assigned to a task."""
    resources = alloc.allocated_resources.tasks.get(task_name, AllocatedTaskResources())
    return DeviceClaim(alloc_id=alloc.id, task_name=task_name, devices=tuple(map(claimed, resources.devices)))


def reachable(reservation: Reservation, driver: Driver) -> Reservation:
    """The part of a reservation that the driver can provide; raises DriverError when devices would be missing.

    A task without isolation sees the machine's files: environment variables name its devices, and mounts are not needed
    as long as they keep the host's path.
    """
    able = driver.capabilities
    mounts = reservation.mounts
    if able.fs_isolation == "none":
        moved = next((each for each in mounts if each.host_path != each.task_path), None)
        if moved is not None:
            raise DriverError(
                f"the devices need {moved.host_path} at {moved.task_path}, which driver {driver.name!r} cannot do: it "
                "isolates no file system; use one that does"
            )
        return Reservation(env=reservation.env)
    needs_more = bool(reservation.nodes or reservation.cdi_devices or reservation.engine_devices)
    if (needs_more and not able.devices) or (mounts and not able.mounts):
        raise DriverError(
            f"driver {driver.name!r} cannot give devices to its tasks; use one that can: exec, docker and podman do, "
            "raw_exec tasks see all of the machine"
        )
    return reservation
