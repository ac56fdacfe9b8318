"""A podman engine of its own for the tests, and registries on loopback."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import podman.api.client  # noqa: F401 - drivers import it in a thread, which would go on behind the end of a test
import pytest
from yurt.testing.services.engines import PodmanEngine, missing
from yurt.testing.services.registry import Registry, running_registry


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


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that everybody may use."""
    yield from running_registry(tmp_path, is_open=True)


@pytest.fixture
def closed_registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that asks who is there."""
    yield from running_registry(tmp_path, is_open=False)
