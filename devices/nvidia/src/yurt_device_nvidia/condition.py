"""Asks NVML for the condition of a GPU: memory errors, remapped rows, what the driver wants done, throttling, links.

Older bindings do not have all constants; values without a constant are not queried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from yurt_device_nvidia.facts import Condition

LINKS_MAX: Final = 18
RECOVERY_ACTION: Final = "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"
LINK_ERRORS: Final = (
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
)
Ask = Callable[..., Any]
"""The answer of NVML to a question, or None where this driver or card has none."""


def condition_of(nvml: Any, ask: Ask, handle: Any) -> Condition:
    """A card's condition; raises CardLost."""
    uncorrected, corrected = (
        ask(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, nvml.NVML_VOLATILE_ECC)
        for kind in (nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)
    )
    rows = ask(nvml.nvmlDeviceGetRemappedRows, handle)
    pending, failed = (bool(rows[2]), bool(rows[3])) if rows else (False, False)
    slowed = _number(nvml, "nvmlClocksEventReasonHwThermalSlowdown") | _number(nvml, "nvmlClocksEventReasonHwSlowdown")
    clocks = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    fields = _fields(nvml, ask, handle)
    links = [fields[name] for name in LINK_ERRORS if name in fields]
    return Condition(
        uncorrected_errors=uncorrected or 0,
        corrected_errors=corrected,
        remap_pending=pending,
        remap_failed=failed,
        recovery_action=fields.get(RECOVERY_ACTION, 0),
        is_throttled=bool(((ask(clocks, handle) if clocks is not None else 0) or 0) & slowed),
        link_errors=sum(links) if links else None,
    )


def active_links(nvml: Any, ask: Ask, handle: Any) -> dict[int, bool]:
    """For each NVLink of a card whether it is up; empty for a card or a driver that does not report its links."""
    found = {}
    for number in range(LINKS_MAX):
        state = ask(nvml.nvmlDeviceGetNvLinkState, handle, number)
        if state is not None:
            found[number] = state == nvml.NVML_FEATURE_ENABLED
        elif not number:
            break
    return found


def _number(nvml: Any, name: str) -> int:
    """A constant of the bindings; 0 where they do not have it."""
    return int(getattr(nvml, name, 0))


def _fields(nvml: Any, ask: Ask, handle: Any) -> dict[str, int]:
    """The values of the fields that bindings and driver know, by name; all of them are asked for by one call."""
    ids = {getattr(nvml, name, None): name for name in (RECOVERY_ACTION, *LINK_ERRORS)}
    wanted = [field for field in ids if field is not None]
    found = (ask(nvml.nvmlDeviceGetFieldValues, handle, wanted) if wanted else None) or ()
    return {ids[each.fieldId]: number_of(nvml, each) for each in found if each.nvmlReturn == nvml.NVML_SUCCESS}


def number_of(nvml: Any, field: Any) -> int:
    """The whole number of a field, by the type that the driver gives it."""
    kinds = {nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal", nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal"}
    return int(getattr(field.value, kinds.get(field.valueType, "ullVal")))
