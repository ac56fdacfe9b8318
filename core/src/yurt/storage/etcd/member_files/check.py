"""Decides from the files of an etcd member whether it has lost acknowledged data; see the package."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from yurt.sdk.errors import Invalid
from yurt.storage.etcd.member_files.bolt_file import applied_index
from yurt.storage.etcd.member_files.raft_log import read_segment

log = logging.getLogger(__name__)

SEGMENT_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.wal")


class DamagedMember(Invalid):
    """Files of an etcd member are damaged; the message names the file and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")
        self.what = what
        """The damage, without the remedy."""


def check_member_files(data_dir: Path) -> None:
    """Raises DamagedMember when the member below `data_dir` has lost acknowledged data. Blocks."""
    member = data_dir / "data" / "member"
    found = segments(member / "wal", data_dir)
    database = member / "snap" / "db"
    if not database.exists():
        return  # etcd recreates it from the raft log, or reports that it cannot
    try:
        applied = applied_index(database)
    except (ValueError, OSError) as error:
        raise damaged(data_dir, f"{database} is damaged: {error}") from None
    last, ending = _last_index(found)
    if last < applied:
        raise damaged(
            data_dir,
            f"the raft log of this server's etcd member has lost its end: {ending}, and {database} holds what "
            f"followed up to index {applied}",
        )


def check_has_no_database(data_dir: Path) -> None:
    """Raises DamagedMember when a member without a raft log still has its database: only a part of its data is gone."""
    database = data_dir / "data" / "member" / "snap" / "db"
    if database.exists():
        raise damaged(
            data_dir,
            f"the raft log of this server's etcd member is gone, and the rest of its data is there ({database})",
        )


def holds_entries(data_dir: Path) -> bool:
    """Whether the raft log of the member below `data_dir` has an entry, which is on the disk then. Blocks.

    The first ones of a founder name the members; without them etcd belongs to no cluster, and elects no leader.
    """
    for path in segments(data_dir / "data" / "member" / "wal", data_dir):
        if read_segment(path).last_index:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            return True
    return False


def damaged(data_dir: Path, what: str) -> DamagedMember:
    """The error for a damaged member, with its remedies."""
    return DamagedMember(
        what,
        f"When most of the other servers run: stop this agent, move {data_dir} away and start the agent again; its "
        "member joins again and gets everything from them. Otherwise restore this server's data_dir from a copy, or "
        "begin a new cluster with a snapshot, or with what `yurt operator raft recover -output FILE DATA_DIR` still "
        "finds in these files",
    )


def segments(folder: Path, data_dir: Path) -> list[Path]:
    """The segments in order; raises DamagedMember when one is missing."""
    found = {int(match[1], 16): path for path in folder.glob("*.wal") if (match := SEGMENT_NAME.fullmatch(path.name))}
    numbers = sorted(found)
    for before, number in pairwise(numbers):
        if number != before + 1:
            raise damaged(
                data_dir, f"{folder} lacks the segments between {found[before].name} and {found[number].name}"
            )
    return [found[number] for number in numbers]


def _last_index(segments: Sequence[Path]) -> tuple[int, str]:
    """The last raft index of the log, and a description of the place where it ends.

    A segment without entries may name a snapshot that was made before the last entries of the segment before it.
    """
    last, ending = 0, f"{segments[-1].parent if segments else 'it'} has no entry"
    for path in reversed(segments):
        found = read_segment(path)
        if found.is_torn:
            log.warning("etcd's raft log has a torn end, which etcd cuts off: path=%s byte=%d", path, found.end)
        if found.last_index > last:
            last = found.last_index
            ending = f"{path} ends at raft index {last}, byte {found.end}"
        if found.entry_index:
            break
    return last, ending
