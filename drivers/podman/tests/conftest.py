"""A podman engine of its own for the tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.engines import PodmanEngine, missing


@pytest.fixture(scope="session")
def engine() -> Iterator[PodmanEngine]:
    """A running engine with its image."""
    reason = missing("podman", "runc", "conmon", "busybox")
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="yurt-podman-"))
    made = PodmanEngine(folder)
    try:
        made.start()
        made.import_image()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
