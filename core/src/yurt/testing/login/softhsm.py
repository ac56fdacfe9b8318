"""PKCS#11 tokens of SoftHSM for tests. Needs Debian's package `softhsm2`."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MODULES: Final = (Path("/usr/lib/softhsm/libsofthsm2.so"), Path("/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"))
PIN: Final = "246810"
MAKE_KEYS: Final = """
import json, sys
import pkcs11
spec = json.loads(sys.argv[1])
token = pkcs11.lib(spec["lib"]).get_token(token_label=spec["token"])
with token.open(rw=True, user_pin=spec["pin"]) as session:
    for key_id, (label, kind) in spec["keys"].items():
        make = session.generate_key if kind == "AES" else session.generate_keypair
        key_type, bits = (pkcs11.KeyType.AES, 256) if kind == "AES" else (pkcs11.KeyType.RSA, 2048)
        make(key_type, bits, label=label, id=bytes.fromhex(key_id), store=True)
"""


def softhsm_missing() -> str:
    """The missing programs and libraries for tests with SoftHSM; "" when all are installed."""
    if not shutil.which("softhsm2-util") or not any(path.exists() for path in MODULES):
        return "SoftHSM is not installed (Debian package softhsm2)"
    return "" if importlib.util.find_spec("pkcs11") else "the Python package python-pkcs11 is not installed"


def softhsm_module() -> Path:
    """The path of SoftHSM's PKCS#11 module."""
    return next(path for path in MODULES if path.exists())


class SoftHsm:
    """Tokens in a folder; processes that have `environment` see them."""

    def __init__(self, folder: Path, module: Path) -> None:
        self.module = module
        self.tokens = folder / "tokens"
        self.tokens.mkdir(parents=True)
        settings = folder / "softhsm2.conf"
        settings.write_text(f"directories.tokendir = {self.tokens}\nobjectstore.backend = file\nlog.level = ERROR\n")
        self.environment = {"SOFTHSM2_CONF": str(settings)}

    def make_token(self, label: str, pin: str = PIN) -> None:
        """Initialize a token."""
        self._run("softhsm2-util", "--init-token", "--free", "--label", label, "--pin", pin, "--so-pin", "13579")

    def make_keys(self, token: str, keys: Mapping[str, tuple[str, str]], pin: str = PIN) -> None:
        """Generate keys by id, each with a label and a kind: AES of 256 bits, or an RSA pair of 2,048 bits."""
        spec = {"lib": str(self.module), "token": token, "pin": pin, "keys": dict(keys)}
        self._run(sys.executable, "-c", MAKE_KEYS, json.dumps(spec))

    def _run(self, *command: str) -> None:
        subprocess.run(
            command, env={**os.environ, **self.environment}, check=True, stdout=subprocess.DEVNULL, timeout=60
        )  # fmt: skip
