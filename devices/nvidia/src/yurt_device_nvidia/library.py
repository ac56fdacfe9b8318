"""Whether this machine has an NVIDIA card and the driver's library: all that an agent without either imports."""

from __future__ import annotations

import ctypes
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
FAKE_PREFIX = "fake:"
PCI_FOLDER = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = "0x03"


def has_library(library: str) -> bool:
    """Whether the driver's library can be loaded."""
    if library.startswith(FAKE_PREFIX):
        return True
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_card(folder: Path = PCI_FOLDER) -> bool:
    """Whether an NVIDIA card is on the PCI bus, driver or not."""
    for entry in folder.glob("*/vendor"):
        try:
            kind = (entry.parent / "class").read_text()
            if entry.read_text().strip() == NVIDIA_VENDOR and kind.startswith(DISPLAY_CLASS):
                return True
        except OSError:
            continue
    return False
