"""The plugin's configuration."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from yurt.sdk.driver import PluginContext
from yurt.sdk.errors import Invalid
from yurt.sdk.schema import decode_config
from yurt.sdk.value import Value

from yurt_device_nvidia.library import FAKE_PREFIX, LIBRARY

DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
PERIOD_MIN_S = 0.05


class NvidiaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the `config` block of plugin "nvidia"."""

    enabled: bool = True
    ignored_gpu_ids: list[str] = []
    fingerprint_period: str = "1m"
    health_period: str = "5s"
    xid_quiet_period: str = "5m"
    ignored_xids: list[int] = []
    mig_gpu_ids: list[str] = []
    sharing: list[str] = msgspec.field(default_factory=lambda: ["mps", "slice"])
    mps_dir: str = ""
    library: str = LIBRARY
    device_dir: str = "/dev"


class Settings(Value):
    """The options with times in seconds."""

    options: NvidiaOptions
    fingerprint_s: float
    health_s: float
    quiet_s: float


def settings_of(context: PluginContext) -> Settings:
    """The plugin's settings; raises Invalid with the invalid option."""
    options = decode_config(NvidiaOptions, context.config)
    unknown = sorted(set(options.sharing) - {"mps", "slice"})
    if unknown:
        raise Invalid(f'sharing = ["{unknown[0]}"]: modes of sharing a card are "mps" and "slice"')
    for device in options.mig_gpu_ids:
        if device != "all" and not device.startswith("GPU-"):
            raise Invalid(
                f'mig_gpu_ids = ["{device}"]: write ids of whole cards (nvidia-smi -L lists GPU-...), or "all"'
            )
    check_fake(options.library)
    return Settings(
        options=options,
        fingerprint_s=max(PERIOD_MIN_S, seconds("fingerprint_period", options.fingerprint_period)),
        health_s=max(PERIOD_MIN_S, seconds("health_period", options.health_period)),
        quiet_s=seconds("xid_quiet_period", options.xid_quiet_period),
    )


def check_fake(library: str) -> None:
    """Check the layout or the file of a fake; raises Invalid. A missing library is detected later."""
    name = library.removeprefix(FAKE_PREFIX)
    if name == library or ("/" in name and Path(name).is_file()):
        return
    if "/" in name:
        raise Invalid(f'library = "{library}": the file {name} does not exist')
    from yurt_device_nvidia.fake.layouts import LAYOUTS

    if name not in LAYOUTS:
        raise Invalid(f'library = "{library}": unknown machine; use {", ".join(LAYOUTS)}, or fake:/path')


def seconds(name: str, text: str) -> float:
    """A duration such as 1m, 30s or 1h30m."""
    parts = DURATION.findall(text.replace(" ", ""))
    if text.strip() == "0":
        return 0.0
    if not parts or "".join(number + unit for number, unit in parts) != text.replace(" ", ""):
        raise Invalid(f'{name} = "{text}" is not a valid duration; write a number and a unit, such as 30s, 1m or 1h30m')
    return sum(float(number) * SECONDS[unit] for number, unit in parts)
