"""A key encryption key in a PKCS#11 token: a hardware security module, a smart card, a TPM, SoftHSM.

The token's module is native code of a vendor. Each call loads it in a process of its own (`pkcs11_child`) that ends
after it: a module that crashes, hangs or leaks costs one call and never the agent, a token that was taken out and put
back needs no restart, and the PIN is in memory for that call only.

Tokens lock themselves after a few wrong PINs. So a PIN that was refused is not tried again until its file changes, and
the child stops before the last try.
"""

from __future__ import annotations

import base64
import binascii
import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from yurt.sdk.errors import Invalid, Unavailable
from yurt.server.keys.secret_file import read_secret

TIMEOUT_S: Final = 30.0
"""The time limit of one call in seconds, including loading the module; RSA on a smart card takes about 1 s."""
PIN_BYTES_MIN, PIN_BYTES_MAX = 4, 255
ANSWER_BYTES_MAX: Final = 64 * 1024
CHILD: Final = "yurt.server.keys.pkcs11_child"
AES_GCM, OAEP = "AES_GCM", "RSA_PKCS_OAEP"
MECHANISMS: Final = (AES_GCM, OAEP)
HASHES: Final = ("sha1", "sha256")
FORMS: Final = (AES_GCM, *(f"{OAEP}_{name}" for name in HASHES))
"""The mechanism named at the beginning of a wrapped key, before a colon."""
REFUSED, PIN, UNAVAILABLE = "refused", "pin", "unavailable"
"""Kinds of failures that the child process reports."""


class Pkcs11Provider:
    """Wraps keys with a key of the token: AES-GCM, or RSA with OAEP."""

    def __init__(self, provider_id: str, settings: Mapping[str, str]) -> None:
        self._where = f'keyring "{provider_id}"'
        self._settings = settings
        mechanism = settings.get("mechanism", AES_GCM)
        self._form = AES_GCM if mechanism == AES_GCM else f"{OAEP}_{settings.get('rsa_oaep_hash', 'sha256')}"
        self._refused_pin: tuple[int, ...] | None = None
        """The state of the PIN's file that the token has refused."""
        self._calls = threading.Lock()
        """Serialises calls, because many tokens have a single session."""

    def wrap(self, key: bytes, *, context: str) -> str:
        """The mechanism and the encrypted key in base64; raises Invalid or Unavailable."""
        return f"{self._form}:{base64.b64encode(self._call('encrypt', self._form, key, context)).decode()}"

    def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """The key; raises Invalid if the token's key did not wrap it, Unavailable if the token is absent."""
        form, _, text = wrapped.partition(":")
        try:
            data = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            data = b""
        if form not in FORMS or not data:
            raise Invalid("its file has been changed; restore it")
        return self._call("decrypt", form, data, context)

    def _call(self, operation: str, form: str, data: bytes, context: str) -> bytes:
        with self._calls:
            path = Path(self._settings["pin_file"])
            pin = read_secret(self._where, path, shortest=PIN_BYTES_MIN, longest=PIN_BYTES_MAX, noun="PIN")
            version = _file_version(path)
            if version == self._refused_pin:
                raise Invalid(f"{self._where}: {_refused_pin_text(path)}")
            request = {
                "operation": operation, "form": form, "data": base64.b64encode(data).decode(), "context": context,
                "pin": pin.decode("utf-8", "surrogateescape"), **self._settings,
            }  # fmt: skip
            answer = self._run(json.dumps(request).encode())
            if answer.get("kind") == PIN:
                self._refused_pin = version
                raise Invalid(f"{self._where}: {_refused_pin_text(path)}")
        if failure := answer.get("error"):
            text = f"{self._where}: {failure}"
            raise Unavailable(text) if answer.get("kind") == UNAVAILABLE else Invalid(text)
        return base64.b64decode(answer["data"])

    def _run(self, request: bytes) -> Mapping[str, Any]:
        """The child's answer; raises Unavailable when it takes too long, Invalid when it crashes."""
        lib = self._settings["lib"]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", CHILD], input=request, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{self._where}: the module {lib} did not answer within {TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise Unavailable(f"{self._where}: no process for the module {lib}: {error.strerror or error}") from None
        try:
            answer = json.loads(done.stdout) if len(done.stdout) <= ANSWER_BYTES_MAX else None
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not ("error" in answer or isinstance(answer.get("data"), str)):
            how = f"by signal {-done.returncode}" if done.returncode < 0 else f"with exit code {done.returncode}"
            raise Invalid(f"{self._where}: the process that loaded the module {lib} ended {how} without an answer")
        return answer


def _file_version(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def _refused_pin_text(path: Path) -> str:
    return (
        f"the token refused the PIN in {path}; it is not tried again until that file changes, because tokens lock "
        "themselves after a few wrong PINs"
    )
