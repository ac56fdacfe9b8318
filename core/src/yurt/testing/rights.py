"""Checks the privileges of this process, for tests that need special ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CAP_SYS_ADMIN = 21


def may_mount() -> bool:
    """Whether this process may mount file systems: root in a container often may not."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text().partition("CapEff:\t")[2].partition("\n")[0]
    return bool(int(status, 16) >> CAP_SYS_ADMIN & 1)
