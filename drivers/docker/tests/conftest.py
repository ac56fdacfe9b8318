"""A Docker engine of its own for the tests, and a registry on loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.engines import DockerEngine, busybox_archive, missing

IMAGE = "yurt-test/busybox:1"
START_LIMIT_S = 60.0
USERS = "user:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"
"""One user, whose password is `secret`, as htpasswd writes it."""


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


class Registry:
    """A registry on loopback that lets `user` in with `secret`, or everybody."""

    def __init__(self, folder: Path, *, is_open: bool) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        users = folder / "users"
        users.write_text(USERS)
        auth = f"auth: {{htpasswd: {{realm: test, path: {users}}}}}" if not is_open else ""
        config = folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {folder / 'store'}}}}}\n"
            f"http: {{addr: {self.address}}}\n{auth}\n"
        )
        with (folder / "registry.log").open("ab") as log:
            self.process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=log, stderr=log)

    def push(self, engine: DockerEngine, name: str) -> str:
        """Put a new image there under a name, and forget it here; the name to pull."""
        full = f"{self.address}/{name}"
        imported = engine.run("import", "--change", f"LABEL name={full}", "-", full, data=busybox_archive())
        assert imported.returncode == 0, imported.stderr
        limit = time.monotonic() + START_LIMIT_S
        engine.run("login", "-u", "user", "-p", "secret", self.address)
        while engine.run("push", full).returncode != 0:
            assert time.monotonic() < limit, "the registry takes nothing"
            engine.run("login", "-u", "user", "-p", "secret", self.address)
        assert engine.run("rmi", full).returncode == 0
        return full

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(START_LIMIT_S)


def running_registry(folder: Path, *, is_open: bool) -> Iterator[Registry]:
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (apt install docker-registry)")
    made = Registry(folder, is_open=is_open)
    yield made
    made.stop()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that everybody may use."""
    yield from running_registry(tmp_path, is_open=True)


@pytest.fixture
def closed_registry(tmp_path: Path) -> Iterator[Registry]:
    """A registry that asks who is there."""
    yield from running_registry(tmp_path, is_open=False)
