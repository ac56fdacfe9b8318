"""The functions of NVML that turn MIG mode on and off and create and destroy instances; they change the machine.

A GPU's `mig_profiles` are those it has; `mig_needs_reset` lets it take over a new mode only later. As the driver does,
a mode is accepted while a process uses the card (`mig_pending`) and the status says that it is not active.
GPU instances stand in its `gis`, and once they have their compute instance in `migs`, as in a layout with instances.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_uint, c_void_p
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pynvml

from yurt_device_nvidia.fake.library import CARD_HANDLES, FakeFailure, FakeLibrary, Handle, Pointer, nvml, put
from yurt_device_nvidia.fake.machine import Json

GI_HANDLES, CI_HANDLES, PER_CARD = 0x200000, 0x400000, 0x100
COMPUTE_SLICES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 5: 8, 6: 6}


def change_card(lib: FakeLibrary, handle: int, edit: Any) -> None:
    """Change a card in the machine and its file."""
    uuid = lib.card(handle)["uuid"]
    lib.machine.change(lambda state: edit(next(each for each in state["gpus"] if each["uuid"] == uuid)))


def owner_of(handle: int, base: int) -> tuple[int, int]:
    """The card's handle, and the number of the GPU instance."""
    return CARD_HANDLES + (handle - base) // PER_CARD, (handle - base) % PER_CARD


def profile_of(lib: FakeLibrary, handle: int, number: int) -> Json:
    """A profile by NVML's number; fails as a card that does not know it."""
    card = lib.card(handle)
    found = [each for each in card.get("mig_profiles", ()) if each["number"] == number]
    if not found or not card["mig"]:
        raise FakeFailure("NOT_SUPPORTED")
    return dict(found[0])


def profile_by_id(lib: FakeLibrary, handle: int, profile: int) -> Json:
    """A profile by its id on the card."""
    found = [each for each in lib.card(handle).get("mig_profiles", ()) if each["id"] == profile]
    if not found:
        raise FakeFailure("INVALID_ARGUMENT")
    return dict(found[0])


def gi_of(lib: FakeLibrary, handle: int, function: str = "") -> tuple[int, Json]:
    """The card's handle and the GPU instance of a handle; fails as the card's `errors` want it of the function."""
    card, number = owner_of(handle, GI_HANDLES)
    if function in lib.card(card).get("errors", {}):
        raise FakeFailure(lib.card(card)["errors"][function])
    found = [each for each in lib.card(card).get("gis", ()) if each["id"] == number]
    if not found:
        raise FakeFailure("NOT_FOUND")
    return card, found[0]


@nvml("nvmlDeviceSetMigMode", Handle, c_uint, Pointer)
def set_mig_mode(lib: FakeLibrary, handle: int, mode: int, out: int) -> None:
    card = lib.card(handle)
    if not card.get("mig_profiles"):
        raise FakeFailure("NOT_SUPPORTED")
    if card.get("gis"):
        raise FakeFailure("IN_USE")
    is_change = bool(card["mig"]) != bool(mode)
    status = pynvml.NVML_SUCCESS
    if is_change and card.get("mig_needs_reset"):
        status = pynvml.NVML_ERROR_RESET_REQUIRED
    elif is_change and card["processes"]:
        status = pynvml.NVML_ERROR_IN_USE
    put(out, c_uint, status)
    active = bool(card["mig"]) if status else bool(mode)
    change_card(lib, handle, lambda gpu: gpu.update(mig=active, mig_pending=bool(mode)))


@nvml("nvmlDeviceGetGpuInstanceProfileInfoV", Handle, c_uint, Pointer)
def profile_info(lib: FakeLibrary, handle: int, number: int, out: int) -> None:
    found = profile_of(lib, handle, number)
    info = ctypes.cast(out, POINTER(pynvml.c_nvmlGpuInstanceProfileInfo_v2_t)).contents
    info.id, info.sliceCount, info.memorySizeMB = found["id"], found["slices"], found["memory_mib"]
    info.instanceCount, info.multiprocessorCount = len(found["starts"]), found["multiprocessors"]
    info.name = f"MIG {found['name']}".encode()


@nvml("nvmlDeviceGetGpuInstancePossiblePlacements_v2", Handle, c_uint, Pointer, Pointer)
def placements(lib: FakeLibrary, handle: int, profile: int, out: int | None, size: int) -> None:
    found = profile_by_id(lib, handle, profile)
    array = ctypes.cast(out or 0, POINTER(pynvml.c_nvmlGpuInstancePlacement_t))
    for at, start in enumerate(found["starts"]):
        array[at].start, array[at].size = start, found["size"]
    put(size, c_uint, len(found["starts"]))


@nvml("nvmlDeviceGetGpuInstances", Handle, c_uint, Pointer, Pointer)
def gpu_instances(lib: FakeLibrary, handle: int, profile: int, out: int, size: int) -> None:
    found = [each for each in lib.card(handle).get("gis", ()) if each["profile"] == profile]
    array = ctypes.cast(out, POINTER(c_void_p))
    for at, each in enumerate(found):
        array[at] = GI_HANDLES + (handle - CARD_HANDLES) * PER_CARD + each["id"]
    put(size, c_uint, len(found))


@nvml("nvmlDeviceGetGpuInstanceById", Handle, c_uint, Pointer)
def gpu_instance_by_id(lib: FakeLibrary, handle: int, number: int, out: int) -> None:
    address = GI_HANDLES + (handle - CARD_HANDLES) * PER_CARD + number
    gi_of(lib, address)
    put(out, c_void_p, address)


@nvml("nvmlGpuInstanceGetInfo", Pointer, Pointer)
def gpu_instance_info(lib: FakeLibrary, handle: int, out: int) -> None:
    _, found = gi_of(lib, handle, "nvmlGpuInstanceGetInfo")
    info = ctypes.cast(out, POINTER(pynvml.c_nvmlGpuInstanceInfo_t)).contents
    info.id, info.profileId = found["id"], found["profile"]
    info.placement.start, info.placement.size = found["start"], found["size"]


@nvml("nvmlDeviceCreateGpuInstanceWithPlacement", Handle, c_uint, Pointer, Pointer)
def create_gpu_instance(lib: FakeLibrary, handle: int, profile: int, place: int, out: int) -> None:
    card, known = lib.card(handle), profile_by_id(lib, handle, profile)
    wanted = ctypes.cast(place, POINTER(pynvml.c_nvmlGpuInstancePlacement_t)).contents
    start, size = wanted.start, wanted.size
    if not card["mig"]:
        raise FakeFailure("NOT_SUPPORTED")
    if start not in known["starts"] or size != known["size"]:
        raise FakeFailure("INVALID_ARGUMENT")
    present = card.get("gis", [])
    slices = sum(profile_by_id(lib, handle, each["profile"])["slices"] for each in present) + known["slices"]
    is_taken = any(each["start"] < start + size and start < each["start"] + each["size"] for each in present)
    if is_taken or slices > 7:
        raise FakeFailure("INSUFFICIENT_RESOURCES")
    number = next(each for each in range(1, PER_CARD) if each not in {gi["id"] for gi in present})
    new = {"id": number, "profile": profile, "start": start, "size": size}
    change_card(lib, handle, lambda gpu: gpu.update(gis=[*gpu.get("gis", ()), new]))
    put(out, c_void_p, GI_HANDLES + (handle - CARD_HANDLES) * PER_CARD + number)


@nvml("nvmlGpuInstanceDestroy", Pointer)
def destroy_gpu_instance(lib: FakeLibrary, handle: int) -> None:
    card, found = gi_of(lib, handle)
    if any(each["gi"] == found["id"] for each in lib.card(card)["migs"]):
        raise FakeFailure("IN_USE")
    change_card(lib, card, lambda gpu: gpu.update(gis=[each for each in gpu["gis"] if each["id"] != found["id"]]))


@nvml("nvmlGpuInstanceGetComputeInstanceProfileInfoV", Pointer, c_uint, c_uint, Pointer)
def compute_profile_info(lib: FakeLibrary, handle: int, number: int, engine: int, out: int) -> None:
    card, found = gi_of(lib, handle, "nvmlGpuInstanceGetComputeInstanceProfileInfoV")
    slices = COMPUTE_SLICES.get(number, 99)
    if slices > profile_by_id(lib, card, found["profile"])["slices"]:
        raise FakeFailure("NOT_SUPPORTED")
    info = ctypes.cast(out, POINTER(pynvml.c_nvmlComputeInstanceProfileInfo_v2_t)).contents
    info.id, info.sliceCount = number, slices


@nvml("nvmlGpuInstanceCreateComputeInstance", Pointer, c_uint, Pointer)
def create_compute_instance(lib: FakeLibrary, handle: int, profile: int, out: int) -> None:
    card, found = gi_of(lib, handle, "nvmlGpuInstanceCreateComputeInstance")
    known = profile_by_id(lib, card, found["profile"])
    if COMPUTE_SLICES.get(profile) != known["slices"]:
        raise FakeFailure("NOT_SUPPORTED")

    def add(gpu: Json) -> None:
        gpu["migs_made"] = gpu.get("migs_made", 0) + 1
        gpu["migs"].append({
            "uuid": f"MIG-{uuid5(NAMESPACE_OID, gpu['uuid'] + str(gpu['migs_made']))}", "profile": known["name"],
            "memory_mib": known["memory_mib"], "reserved_mib": 0, "used_mib": 0,
            "multiprocessors": known["multiprocessors"], "gi": found["id"], "ci": 0, "processes": [],
        })  # fmt: skip

    change_card(lib, card, add)
    put(out, c_void_p, CI_HANDLES + handle - GI_HANDLES)


@nvml("nvmlGpuInstanceGetComputeInstances", Pointer, c_uint, Pointer, Pointer)
def compute_instances(lib: FakeLibrary, handle: int, profile: int, out: int, size: int) -> None:
    card, found = gi_of(lib, handle, "nvmlGpuInstanceGetComputeInstances")
    slices = profile_by_id(lib, card, found["profile"])["slices"]
    has_one = any(each["gi"] == found["id"] for each in lib.card(card)["migs"])
    is_there = has_one and COMPUTE_SLICES.get(profile) == slices
    if is_there:
        ctypes.cast(out, POINTER(c_void_p))[0] = CI_HANDLES + handle - GI_HANDLES
    put(size, c_uint, int(is_there))


@nvml("nvmlComputeInstanceDestroy", Pointer)
def destroy_compute_instance(lib: FakeLibrary, handle: int) -> None:
    card, number = owner_of(handle, CI_HANDLES)
    of_gi = [each for each in lib.card(card)["migs"] if each["gi"] == number]
    if not of_gi:
        raise FakeFailure("NOT_FOUND")
    if of_gi[0]["processes"]:
        raise FakeFailure("IN_USE")
    change_card(lib, card, lambda gpu: gpu.update(migs=[each for each in gpu["migs"] if each["gi"] != number]))
