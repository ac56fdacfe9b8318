"""The transcript of a run, line by line, with a digest by which two runs are compared."""

from __future__ import annotations

import hashlib
from collections import Counter

from yurt.testing.sim.loop import SimLoop


class Transcript:
    """Lines `seconds who what`; `counts` holds the number of lines of each kind."""

    def __init__(self, loop: SimLoop) -> None:
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()
        self._loop = loop
        self._hasher = hashlib.blake2b(digest_size=16)

    def note(self, who: str, kind: str, text: str = "") -> None:
        """Add one line."""
        line = f"{self._loop.time():12.6f} {who:<10} {kind} {text}".rstrip()
        self.lines.append(line)
        self.counts[kind] += 1
        self._hasher.update(line.encode())

    @property
    def digest(self) -> str:
        """The digest of all lines so far."""
        return self._hasher.hexdigest()
