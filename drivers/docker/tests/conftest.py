"""A Docker engine of its own for the tests, and registries on loopback."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker  # noqa: F401 - drivers import it in a thread, which would go on behind the end of a test
import pytest
from yurt.testing.services.engines import DockerEngine, missing
from yurt.testing.services.registry import Registry, running_registry

IMAGE = "yurt-test/busybox:1"


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """A running engine with the image `IMAGE`."""
    reason = missing("dockerd", "containerd", "docker", "busybox", "ip")
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="yurt-docker-"))
    made = DockerEngine(folder)
    try:
        made.start()
        made.import_image(IMAGE)
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
