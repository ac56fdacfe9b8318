"""Opening files below a folder: cheap enough to be done for each piece of a log."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from yurt.sdk.opening import READ_FLAGS, RESOLVE_BENEATH, has_openat2, openat2


@pytest.mark.skipif(not has_openat2(), reason="the kernel has no openat2")
def test_opening_files_leaves_nothing_for_the_garbage_collector(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = os.open(tmp_path, os.O_RDONLY)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            os.close(openat2(folder, "file", READ_FLAGS, resolve=RESOLVE_BENEATH))
        assert gc.collect() < 100
    finally:
        gc.enable()
        os.close(folder)
