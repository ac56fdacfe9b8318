"""Files with one secret of the operator: a passphrase or a PIN."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from yurt.sdk.errors import Invalid

GROUP_AND_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_secret(where: str, path: Path, *, shortest: int, longest: int, noun: str) -> bytes:
    """The secret without the line end; raises Invalid for a file that is missing, readable by others or malformed.

    `where` begins each message; `shortest` and `longest` are lengths in bytes.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(longest + 2).rstrip(b"\r\n")
    except OSError as error:
        raise Invalid(f"{where}: {path} cannot be read: {error.strerror or error}") from None
    if stat.S_ISREG(mode) and mode & GROUP_AND_OTHERS:
        raise Invalid(f"{where}: {path} can be read by others; chmod 600 {path}")
    if not shortest <= len(text) <= longest:
        raise Invalid(f"{where}: {path} must hold a {noun} of {shortest} to {longest} characters")
    return text
