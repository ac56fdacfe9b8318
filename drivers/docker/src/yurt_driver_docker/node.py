"""What a container's limits need of this machine's files."""

from __future__ import annotations

PROFILE_BYTES_MAX = 1024 * 1024


def read_text(path: str) -> str:
    """A small file, for a seccomp profile."""
    with open(path, encoding="utf-8") as file:
        return file.read(PROFILE_BYTES_MAX)
