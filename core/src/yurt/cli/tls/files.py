"""Files of certificates: read with a clear error, written once and never over one that is there."""

from __future__ import annotations

import os
import time
from pathlib import Path

from yurt.cli.errors import CliError
from yurt.sdk.value import UnixNano

KEY_MODE, CERTIFICATE_MODE = 0o600, 0o644


def now() -> UnixNano:
    """The time at which a certificate is made."""
    return UnixNano(time.time_ns())


def read(path: str) -> bytes:
    """The file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CliError(f"{path}: cannot be read: {error.strerror}") from None


def check_free(*paths: str) -> None:
    """None of the files may be there yet."""
    for path in paths:
        if os.path.lexists(path):
            raise CliError(
                f"{path} exists already; move it away first, for what it has signed would lose its authority"
            )


def write(path: str, data: bytes, *, mode: int) -> None:
    """A new file."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
