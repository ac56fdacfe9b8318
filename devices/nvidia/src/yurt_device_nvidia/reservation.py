"""Builds the reservation by which a task uses its assigned GPUs and no others. Pure, except for two readers of files.

Processes of the machine obey `CUDA_VISIBLE_DEVICES`, containers `NVIDIA_VISIBLE_DEVICES`; both name devices by their
ids, which mean the same everywhere. Engines are given names of the Container Device Interface when a specification on
this machine has them, or a request to NVIDIA's own hook (`--gpus`); bundles of `exec` get the device nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from yurt.sdk.device import DeviceClaim, Reservation
from yurt.sdk.driver import DeviceNode, EngineDevices

from yurt_device_nvidia.facts import CardFacts, MigFacts

CDI_KIND = "nvidia.com/gpu"
CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
CDI_NAME = re.compile(r"""["']?name["']?\s*:\s*["']?([A-Za-z0-9:._-]+)""")
CDI_BYTES_MAX = 8 << 20
SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
REQUIRED_NODES = ("nvidiactl", "nvidia-uvm")
ENGINE_CAPABILITIES = ("gpu", "compute", "utility")
MIG_MINORS = Path("/proc/driver/nvidia-caps/mig-minors")


def visible(ids: Iterable[str]) -> dict[str, str]:
    """The variables with the devices' ids."""
    text = ",".join(ids)
    return {"NVIDIA_VISIBLE_DEVICES": text, "CUDA_VISIBLE_DEVICES": text}


def reservation(
    claim: DeviceClaim, cards: Iterable[CardFacts], *, folder: Path, cdi_names: frozenset[str], mig_minors: str
) -> Reservation:
    """The reservation of a task for these devices, which all must be among the cards'."""
    found = {device: (card, mig) for card in cards for device, mig in parts_of(card)}
    chosen = {device: found[device] for device in claim.ids}
    names = [cdi_name(device, *chosen[device], names=cdi_names) for device in chosen]
    return Reservation(
        env=visible(chosen),
        nodes=tuple(device_nodes(chosen.values(), folder=folder, mig_minors=mig_minors)),
        cdi_devices=tuple(f"{CDI_KIND}={name}" for name in names if name) if all(names) else (),
        engine_devices=(EngineDevices(driver="nvidia", ids=tuple(chosen), capabilities=ENGINE_CAPABILITIES),),
    )


def parts_of(card: CardFacts) -> Iterable[tuple[str, MigFacts | None]]:
    """The devices under which a card is offered."""
    if card.mig:
        return [(each.uuid, each) for each in card.migs]
    return [(card.uuid, None)]


def cdi_name(device: str, card: CardFacts, mig: MigFacts | None, *, names: frozenset[str]) -> str:
    """A device's CDI name: its id or its number; empty when no specification contains it.

    On a card that the plugin splits only the id counts: instances come and go, and with them what a number means,
    while the specification stays as it was written.
    """
    if card.is_managed:
        return device if device in names else ""
    number = str(card.index) if mig is None else f"{card.index}:{card.migs.index(mig)}"
    return next((name for name in (device, number) if name in names), "")


def device_nodes(
    chosen: Iterable[tuple[CardFacts, MigFacts | None]], *, folder: Path, mig_minors: str
) -> Iterable[DeviceNode]:
    """The device files: of the cards, of the driver, and of the capabilities for MIG instances."""
    minors = parsed_minors(mig_minors)
    nodes: dict[str, None] = {}
    for card, mig in chosen:
        nodes[f"nvidia{card.minor}"] = None
        if mig is not None:
            gpu = f"gpu{card.minor}/gi{mig.gpu_instance}"
            access = (f"{gpu}/access", f"{gpu}/ci{mig.compute_instance}/access")
            nodes |= {f"nvidia-caps/nvidia-cap{minors[each]}": None for each in access if each in minors}
    for name in SHARED_NODES:
        if name in REQUIRED_NODES or (folder / name).exists():
            nodes[name] = None
    return [DeviceNode(host_path=str(folder / name), task_path=f"/dev/{name}", permissions="rw") for name in nodes]


def parsed_minors(text: str) -> Mapping[str, int]:
    """Parses rows such as `gpu0/gi1/access 12`."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}


def read_cdi_names(folders: Iterable[Path] = CDI_FOLDERS) -> frozenset[str]:
    """The devices of kind nvidia.com/gpu in this machine's specifications, in JSON or YAML."""
    found: set[str] = set()
    for folder in folders:
        for file in sorted((*folder.glob("*.json"), *folder.glob("*.yaml"), *folder.glob("*.yml"))):
            try:
                text = file.read_bytes()[:CDI_BYTES_MAX].decode(errors="replace")
            except OSError:
                continue
            if CDI_KIND in text:
                found.update(CDI_NAME.findall(text))
    return frozenset(found)


def read_mig_minors(file: Path = MIG_MINORS) -> str:
    """The kernel's list of capability files; empty without one."""
    try:
        return file.read_text()
    except OSError:
        return ""
