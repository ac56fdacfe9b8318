"""Decides whether a symbolic link stays inside its tree. Pure.

A target is judged by its text and by the set of real folders, without following any link. `..` is accepted only after
real folders (or other leading `..`), because only there it leads where the text says. The rest of a target only
descends, through folders or through further links that obey the same rule. So no chain of links of any length can leave
the tree, and the decision does not depend on how far a resolver would follow it.
"""

from __future__ import annotations

from collections.abc import Set

Parts = tuple[str, ...]

TARGET_BYTES_MAX = 4095
"""The longest target that Linux accepts."""


def leads_inside(folder: Parts, target: str, folders: Set[Parts]) -> bool:
    """Whether a link in `folder` stays below the top; `folders` are the tree's real folders, by their parts."""
    if (
        not target
        or target.startswith("/")
        or "\0" in target
        or len(target.encode(errors="replace")) > TARGET_BYTES_MAX
    ):
        return False
    at, is_real = folder, True
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not is_real or not at:
                return False
            at = at[:-1]
        elif is_real:
            at = (*at, part)
            is_real = at in folders
    return True
