"""Sizes in the text form of quota specifications: `512`, `10 GiB`."""

from __future__ import annotations

import re
from typing import Final

_SIZE: Final = re.compile(r"\s*(-?[0-9]{1,15})\s*(MB|MiB|GB|GiB|TB|TiB)?\s*", re.IGNORECASE)
_MIB: Final = {"": 1, "m": 1, "g": 1024, "t": 1024 * 1024}


def parse_mib(text: str) -> int | None:
    """The MiB of a size; None for a text that is not one. `GB` means GiB, as in Nomad, and no unit means MiB."""
    match = _SIZE.fullmatch(text)
    return None if match is None else int(match[1]) * _MIB[(match[2] or "")[:1].lower()]
