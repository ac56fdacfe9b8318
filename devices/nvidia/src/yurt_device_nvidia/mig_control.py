"""MIG through NVML: the profiles of a card, its mode, and its instances. All calls block, like those of `nvml`.

An instance of this plugin is a GPU instance with one compute instance that has all of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from yurt.sdk.mig import MigProfile
from yurt.sdk.value import Value

T = TypeVar("T")
MIG_OFF, MIG_ON = 0, 1
FIX = {
    "NVML_ERROR_NO_PERMISSION": "the agent must run as root, or with access to the capability mig/config",
    "NVML_ERROR_IN_USE": "a process still uses it",
    "NVML_ERROR_NOT_SUPPORTED": "this card has no MIG",
    "NVML_ERROR_INSUFFICIENT_RESOURCES": "instances of another tool take its slices; nvidia-smi mig -lgi lists them",
}


class MigProblem(Exception):
    """The driver refuses a change or does not answer a question; `is_temporary` when a retry may help."""

    def __init__(self, reason: str, *, is_temporary: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_temporary = is_temporary


class CardProfile(Value):
    """A profile with the driver's number of it on this card, and its compute slices."""

    id: int
    slices: int
    offered: MigProfile


class GpuInstance(Value):
    """An existing GPU instance, with its place in memory slices."""

    id: int
    profile_id: int
    start: int
    size: int

    def overlaps(self, start: int, size: int) -> bool:
        """Whether it has a slice of this place."""
        return self.start < start + size and start < self.start + self.size


class MigControl:
    """The MIG functions of an open NVML; `handles` are the cards' by UUID.

    A question that fails raises MigProblem: taken for "none", it would let a caller create over what exists, or forget
    whose it is. Only the answers by which a driver says that it does not have a profile mean "none".
    """

    def __init__(self, nvml: Any, handles: Mapping[str, Any]) -> None:
        self._nvml = nvml
        self._handles = handles

    def is_on(self, card: str) -> bool:
        """Whether the card is in MIG mode now."""
        ask = self._nvml.nvmlDeviceGetMigMode
        return bool(self._ask(f"asking GPU {card} for its MIG mode", ask, self._of(card))[0])

    def set_mode(self, card: str, *, is_on: bool) -> bool:
        """Switch MIG mode; False when the card takes it over only by a reset. Raises MigProblem.

        The driver accepts the mode and answers separately whether it is active. When a client of the card is in the
        way, the mode would come into effect at some later time, so it is taken back.
        """
        nvml, handle = self._nvml, self._of(card)
        what = f"turning MIG mode {'on' if is_on else 'off'} on GPU {card}"
        status = self._do(what, nvml.nvmlDeviceSetMigMode, handle, MIG_ON if is_on else MIG_OFF)
        if status in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_RESET_REQUIRED):
            return status == nvml.NVML_SUCCESS and self.is_on(card) == is_on
        self._try(nvml.nvmlDeviceSetMigMode, handle, MIG_OFF if is_on else MIG_ON)
        raise self._problem(what, nvml.NVMLError(status))

    def profiles(self, card: str) -> tuple[CardProfile, ...]:
        """The card's profiles; of several with the same memory and slices the plain one. Raises MigProblem.

        Empty where the driver names none, as out of MIG mode.
        """
        infos = [info for info in self._profile_infos(card) if info.memorySizeMB and info.sliceCount]
        slices_max = max((info.sliceCount for info in infos), default=1)
        found: dict[tuple[int, int], CardProfile] = {}
        for info in infos:
            places = tuple(self._places(card, info))
            if places:
                key = (info.memorySizeMB, info.sliceCount)
                found.setdefault(key, _card_profile(info, places, slices_max))
        return tuple(sorted(found.values(), key=lambda each: (each.offered.memory_mb, each.slices)))

    def _profile_infos(self, card: str) -> Iterator[Any]:
        what, handle = f"asking GPU {card} for its MIG profiles", self._of(card)
        for number in range(self._nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            info = self._ask_for(what, self._profile_info, handle, number)
            if info is not None:
                yield info

    def _profile_info(self, handle: Any, number: int) -> Any:
        """The second version names the profile; older drivers have the first."""
        nvml = self._nvml
        try:
            return nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, 2)
        except nvml.NVMLError_FunctionNotFound:
            return nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, 1)

    def _places(self, card: str, info: Any) -> Iterator[tuple[int, int]]:
        nvml, room = self._nvml, ctypes.c_uint(64)
        array = (nvml.c_nvmlGpuInstancePlacement_t * room.value)()
        what, ask = (
            f"asking GPU {card} for the places of a MIG profile",
            nvml.nvmlDeviceGetGpuInstancePossiblePlacements,
        )
        if self._ask_for(what, ask, self._of(card), info.id, array, ctypes.byref(room)) is not None:
            yield from ((each.start, each.size) for each in array[: room.value])

    def instances(self, card: str) -> tuple[GpuInstance, ...]:
        """The GPU instances that exist, those of other tools and of profiles that are not offered included.

        Raises MigProblem when one question fails, and where the driver names no profile to ask for.
        """
        nvml, handle, found = self._nvml, self._of(card), dict[int, GpuInstance]()
        what = f"asking GPU {card} for its MIG instances"
        profiles = tuple(dict.fromkeys(info.id for info in self._profile_infos(card)))
        if not profiles:
            raise MigProblem(f"{what} failed: the driver names no MIG profiles now", is_temporary=True)
        for number in profiles:
            room = ctypes.c_uint(64)
            array = (nvml.c_nvmlGpuInstance_t * room.value)()
            self._ask(what, nvml.nvmlDeviceGetGpuInstances, handle, number, array, ctypes.byref(room))
            for each in array[: room.value]:
                info = self._ask(what, nvml.nvmlGpuInstanceGetInfo, each)
                found[info.id] = GpuInstance(
                    id=info.id, profile_id=info.profileId, start=info.placement.start, size=info.placement.size
                )
        return tuple(found[number] for number in sorted(found))

    def create(self, card: str, profile: CardProfile, start: int) -> int:
        """Create an instance at a place, and its compute instance; its number. Raises MigProblem."""
        nvml, handle = self._nvml, self._of(card)
        what = f"creating MIG instance {profile.offered.name} at slice {start} of GPU {card}"
        place = nvml.c_nvmlGpuInstancePlacement_t(start, profile.offered.size)
        made = self._do(what, nvml.nvmlDeviceCreateGpuInstanceWithPlacement, handle, profile.id, ctypes.byref(place))
        number = int(self._do(what, nvml.nvmlGpuInstanceGetInfo, made).id)
        try:
            self.complete(card, number, profile)
        except MigProblem:
            self.destroy(card, number)
            raise
        return number

    def complete(self, card: str, number: int, profile: CardProfile) -> None:
        """Create the compute instance of a GPU instance unless it has one. Raises MigProblem."""
        nvml = self._nvml
        what = f"creating the compute instance of MIG instance {profile.offered.name} of GPU {card}"
        instance = self._do(what, nvml.nvmlDeviceGetGpuInstanceById, self._of(card), number)
        if self._compute_instances(what, instance):
            return
        infos = (each for each in self._compute_profiles(what, instance) if each.sliceCount == profile.slices)
        info = next(infos, None)
        if info is None:
            raise MigProblem(f"{what} failed: the driver has no compute profile of {profile.slices} slices")
        self._do(what, nvml.nvmlGpuInstanceCreateComputeInstance, instance, info.id)

    def destroy(self, card: str, number: int) -> None:
        """Destroy an instance with its compute instances. Raises MigProblem."""
        nvml, what = self._nvml, f"destroying MIG instance {number} of GPU {card}"
        instance = self._do(what, nvml.nvmlDeviceGetGpuInstanceById, self._of(card), number)
        for compute in self._compute_instances(what, instance):
            self._do(what, nvml.nvmlComputeInstanceDestroy, compute)
        self._do(what, nvml.nvmlGpuInstanceDestroy, instance)

    def _compute_profiles(self, what: str, instance: Any) -> Iterator[Any]:
        for number in range(self._nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
            info = self._ask_for(what, self._compute_profile_info, instance, number)
            if info is not None:
                yield info

    def _compute_profile_info(self, instance: Any, number: int) -> Any:
        """The second version names the profile; older drivers have the first."""
        nvml = self._nvml
        ask, shared = (
            nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo,
            nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED,
        )
        try:
            return ask(instance, number, shared, 2)
        except nvml.NVMLError_FunctionNotFound:
            return ask(instance, number, shared, 1)

    def _compute_instances(self, what: str, instance: Any) -> list[Any]:
        nvml, found = self._nvml, list[Any]()
        for profile in self._compute_profiles(what, instance):
            room = ctypes.c_uint(64)
            array = (nvml.c_nvmlComputeInstance_t * room.value)()
            self._ask(what, nvml.nvmlGpuInstanceGetComputeInstances, instance, profile.id, array, ctypes.byref(room))
            found += list(array[: room.value])
        return found

    def _of(self, card: str) -> Any:
        handle = self._handles.get(card)
        if handle is None:
            raise MigProblem(f"GPU {card} is not on this machine any more")
        return handle

    def _try(self, question: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None

    def _do(self, what: str, change: Callable[..., T], *arguments: Any) -> T:
        try:
            return change(*arguments)
        except self._nvml.NVMLError as error:
            raise self._problem(what, error) from None

    def _ask(self, what: str, question: Callable[..., T], *arguments: Any) -> T:
        """The answer of the driver. Raises MigProblem, a temporary one unless the driver refuses questions at all."""
        nvml = self._nvml
        try:
            return question(*arguments)
        except nvml.NVMLError as error:
            refusals = (
                nvml.NVML_ERROR_NO_PERMISSION,
                nvml.NVML_ERROR_NOT_SUPPORTED,
                nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            )
            raise self._problem(what, error, is_temporary=error.value not in refusals) from None

    def _ask_for(self, what: str, question: Callable[..., T], *arguments: Any) -> T | None:
        """As `_ask`; None of a profile that the card does not have, or that its driver does not know yet."""
        nvml = self._nvml

        def known() -> T | None:
            try:
                return question(*arguments)
            except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
                return None

        return self._ask(what, known)

    def _problem(self, what: str, error: Any, *, is_temporary: bool = False) -> MigProblem:
        nvml = self._nvml
        words = next((text for name, text in FIX.items() if error.value == getattr(nvml, name)), "")
        reason = f"{what} failed: {error}" + (f"; {words}" if words else "")
        return MigProblem(reason, is_temporary=is_temporary or error.value == nvml.NVML_ERROR_IN_USE)


def _card_profile(info: Any, places: tuple[tuple[int, int], ...], slices_max: int) -> CardProfile:
    name = getattr(info, "name", b"")
    text = (name.decode(errors="replace") if isinstance(name, bytes) else str(name)).removeprefix("MIG ").strip()
    gigabytes = -(-int(info.memorySizeMB) // 1024)
    return CardProfile(
        id=info.id,
        slices=info.sliceCount,
        offered=MigProfile(
            name=text or f"{info.sliceCount}g.{gigabytes}gb",
            memory_mb=int(info.memorySizeMB),
            compute=100 * info.sliceCount // slices_max,
            size=places[0][1],
            starts=tuple(start for start, _ in places),
        ),
    )
