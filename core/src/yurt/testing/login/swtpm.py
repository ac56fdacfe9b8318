"""A software TPM (Debian's package `swtpm`) with a PKCS#11 token in it, for tests.

A program that speaks to it without a resource manager, which the kernel's /dev/tpmrm0 is for a real TPM, leaves its
transient objects there; so they are flushed after each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from yurt.testing.agent import wait_for
from yurt.testing.unique_ports import free_ports

MODULES: Final = (
    Path("/usr/lib/x86_64-linux-gnu/libtpm2_pkcs11.so.1"),
    Path("/usr/lib/aarch64-linux-gnu/libtpm2_pkcs11.so.1"),
)
PROGRAMS: Final = {
    "swtpm": "swtpm", "tpm2_flushcontext": "tpm2-tools", "tpm2_ptool": "libtpm2-pkcs11-tools",
    "systemd-creds": "systemd",
}  # fmt: skip
PIN: Final = "24681000"
COMMAND_S: Final = 120
PORT_TRIES: Final = 50


def swtpm_missing() -> str:
    """The missing programs and libraries for tests with a TPM; "" when all are installed."""
    packages = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    packages += [] if any(path.exists() for path in MODULES) else ["libtpm2-pkcs11-1"]
    return f"no TPM in software (Debian packages: {', '.join(packages)})" if packages else ""


def tpm2_module() -> Path:
    """The path of the PKCS#11 module for TPMs."""
    return next(path for path in MODULES if path.exists())


class Tpm:
    """A running TPM; processes that have `environment` use it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.tcti = f"swtpm:host=127.0.0.1,port={port}"
        self._store = folder / "store"
        self._store.mkdir()
        self._tools = folder / "tools"
        self.environment = {"TPM2TOOLS_TCTI": self.tcti, "TPM2_PKCS11_TCTI": self.tcti,
                            "TPM2_PKCS11_STORE": str(self._store)}  # fmt: skip
        self._lay_tools()

    def make_token(self, label: str, key_label: str) -> None:
        """Initialize a token with an RSA key pair of 2,048 bits that never leaves the TPM."""
        path = f"--path={self._store}"
        self.run("tpm2_ptool", "init", path)
        self.run("tpm2_ptool", "addtoken", "--pid=1", "--sopin=13579000", f"--userpin={PIN}", f"--label={label}", path)
        self.run("tpm2_ptool", "addkey", "--algorithm=rsa2048", f"--label={label}", f"--userpin={PIN}",
                 f"--key-label={key_label}", path)  # fmt: skip

    def run(self, *command: str, given: str = "") -> str:
        """Run a program that uses the TPM; returns its output."""
        environment = {**os.environ, **self.environment, "PATH": f"{self._tools}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, env=environment, input=given, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        subprocess.run(["tpm2_flushcontext", "-t"], env=environment, check=True, timeout=COMMAND_S)
        return done.stdout

    def _lay_tools(self) -> None:
        """Wrappers of tpm2-tools for tpm2_ptool: each runs the real program, then flushes its transient objects."""
        self._tools.mkdir()
        flush = shutil.which("tpm2_flushcontext")
        for real in Path(flush or "").parent.glob("tpm2_*"):
            if real.name in ("tpm2_ptool", "tpm2_flushcontext"):
                continue
            tool = self._tools / real.name
            tool.write_text(f'#!/bin/sh\n{real} "$@"; code=$?\n{flush} -t >/dev/null 2>&1\nexit $code\n')
            tool.chmod(0o755)


@contextmanager
def running_tpm(folder: Path) -> Iterator[Tpm]:
    """A running TPM with its state in the folder."""
    port, control = _adjacent_ports()
    (folder / "state").mkdir(parents=True)
    command = [
        "swtpm", "socket", "--tpm2", f"--tpmstate=dir={folder / 'state'}", "--flags=not-need-init,startup-clear",
        f"--server=type=tcp,port={port},bindaddr=127.0.0.1", f"--ctrl=type=tcp,port={control},bindaddr=127.0.0.1",
    ]  # fmt: skip
    with (folder / "swtpm.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        tpm = Tpm(folder, port)
        flush = ["tpm2_flushcontext", "-t"]
        environment = {**os.environ, **tpm.environment}
        wait_for(
            "the TPM",
            lambda: (
                not subprocess.run(
                    flush, env=environment, capture_output=True, timeout=COMMAND_S, check=False
                ).returncode
            ),
        )
        yield tpm
    finally:
        process.terminate()
        process.wait(timeout=COMMAND_S)


def _adjacent_ports() -> tuple[int, int]:
    """Two consecutive free ports: clients expect the control channel on the second one."""
    for _ in range(PORT_TRIES):
        port, control = free_ports(2)
        if control == port + 1:
            return port, control
    raise AssertionError("no two free ports are adjacent")
