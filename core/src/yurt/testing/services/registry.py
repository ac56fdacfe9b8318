"""An image registry on loopback (Debian's docker-registry) for tests of image pulls."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from yurt.testing.services.engines import START_LIMIT_S, DockerEngine, PodmanEngine, busybox_archive
from yurt.testing.unique_ports import quiet_port

USER, PASSWORD = "user", "secret"
USERS = "user:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW"
"""That user with that password, as htpasswd writes them."""
RETRY_S = 0.1


class Registry:
    """A registry that is open or requires a password."""

    def __init__(self, folder: Path, *, is_open: bool) -> None:
        self.address = f"127.0.0.1:{quiet_port()}"
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

    def push(self, engine: DockerEngine | PodmanEngine, name: str) -> str:
        """Push a new image under a name and remove the local copy; returns the name to pull."""
        full = f"{self.address}/{name}"
        imported = engine.run("import", "--change", f"LABEL name={full}", "-", full, data=busybox_archive())
        assert imported.returncode == 0, imported.stderr
        limit = time.monotonic() + START_LIMIT_S
        while not self._is_pushed(engine, full):
            assert time.monotonic() < limit, "the registry takes nothing"
            time.sleep(RETRY_S)
        assert engine.run("rmi", full).returncode == 0
        return full

    def _is_pushed(self, engine: DockerEngine | PodmanEngine, full: str) -> bool:
        if isinstance(engine, PodmanEngine):
            options = ("--tls-verify=false", "--creds", f"{USER}:{PASSWORD}")
            return engine.run("push", *options, full).returncode == 0
        engine.run("login", "-u", USER, "-p", PASSWORD, self.address)
        return engine.run("push", full).returncode == 0

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.wait(START_LIMIT_S)


def running_registry(folder: Path, *, is_open: bool) -> Iterator[Registry]:
    """Run a registry for a test; skips the test when a program is missing."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (apt install docker-registry)")
    made = Registry(folder, is_open=is_open)
    try:
        yield made
    finally:
        made.stop()
