"""The used part of etcd's quota: that of the member with the largest database, since each member has its own. Pure.

Database sizes differ although all members hold the same data: each writes and frees its pages at its own pace. The
first one beyond the quota stops all of them. So a server counts the size of its own member, checked twice a second,
those of the others, which it queries from their servers, and the bytes appended since each of these was measured.

Free space inside a file does not count as available: an entry needs consecutive pages, and the pages of deleted entries
become free only some transactions later. A file grows up to a tenth of a second after etcd has acknowledged an entry,
so a size counts as including only the entries stored before the previous measurement.

A compaction takes space before it frees any: an old value of the log's end lies next to each entry, and its removal
rewrites the entry, so that for a while the file holds twice all entries appended since the last compaction. Therefore
compactions follow the growth of the log in steps, and the space for the next one is reserved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

from yurt.storage.etcd.membership import EtcdStatus
from yurt.storage.log import DatabaseSize

CROWDED, LARGE, FULL = 0.5, 0.75, 0.9
"""Parts of the quota from which the log is kept short, sparse files are rewritten, and appends are refused."""
DENSE: Final = 0.75
"""The used part of a file from which a rewrite is not worthwhile."""
GROWTH: Final = 2
"""The number of bytes by which a file may grow per byte of an entry until its next measurement."""
ASK_PART: Final = 1 / 64
"""The part of the quota after whose possible use the other servers are queried again."""
ASK_S, ASK_MAX_S = 0.2, 2.0
"""Seconds between two queries while files are large: with appends in progress, and without."""
SILENT_S: Final = 2.0
"""After this many seconds without an answer a server counts with its last report: an absent member does not grow."""
FORGOTTEN_S: Final = 10.0
"""After this many seconds a silent server does not count at all: an absent member must not block writes."""
STEP_PART: Final = 1 / 32
"""The part of the quota after whose use old revisions are compacted."""
COMPACT_FULL_S: Final = 2.0
"""Seconds between compactions while space is exhausted; more entries may be deletable by then."""
SETTLE_S: Final = 0.6
"""Seconds after which a compaction shows in the sizes of the files."""
MARKS_MAX: Final = 4_096
LOOK_S, LOOK_CROWDED_S = 0.5, 0.2
"""Seconds between two measurements of the own member: usually, and when space runs short."""


class Appended:
    """Bytes appended to the log by any server, by etcd's revision; recorded in the order of the entries."""

    def __init__(self) -> None:
        self._revisions, self._totals = [0], [0]

    def add(self, revision: int, size: int) -> None:
        """Record an entry stored at a revision; a repeated one is not counted again."""
        if revision <= self._revisions[-1]:
            return
        self._revisions.append(revision)
        self._totals.append(self._totals[-1] + size)
        if len(self._revisions) > MARKS_MAX:
            self._forget_every_other()

    @property
    def newest(self) -> int:
        """The revision of the newest entry, 0 before the first one."""
        return self._revisions[-1]

    def since(self, revision: int) -> int:
        """Bytes of the entries after a revision; rounded up for old revisions."""
        return self._totals[-1] - self._totals[max(0, bisect_right(self._revisions, revision) - 1)]

    def _forget_every_other(self) -> None:
        """Thin out the marks, but keep the newest."""
        self._revisions = [*self._revisions[:-1:2], self._revisions[-1]]
        self._totals = [*self._totals[:-1:2], self._totals[-1]]


class SizeReport(NamedTuple):
    """A server's last report, and the time since which a later query is unanswered."""

    database: DatabaseSize
    queried_at: float | None = None

    def silent_s(self, now: float) -> float:
        """The seconds for which an answer has been outstanding."""
        return 0.0 if self.queried_at is None else now - self.queried_at


class EtcdQuotaUsage:
    """The sizes of all members' databases as one server knows them; without a quota, space is never short."""

    def __init__(self, quota_bytes: int, *, name: str) -> None:
        self.quota_bytes = quota_bytes
        self.appended = Appended()
        self.own = DatabaseSize()
        self._name = name
        self._others: dict[str, SizeReport] = {}
        self._looked_revision = -1
        self._query_revision, self._query_time = 0, float("-inf")
        self._marked = self._compacted = self._settled = self._refused = 0
        self._compacted_at = float("-inf")
        self._settling: deque[tuple[float, int]] = deque()

    @property
    def is_crowded(self) -> bool:
        """Whether the log must be kept short."""
        return self.own.size_in_use >= CROWDED * self.quota_bytes

    @property
    def is_loose(self) -> bool:
        """Whether this server's member should be defragmented."""
        return self._is_loose(self.own)

    def look(self, status: EtcdStatus) -> None:
        """Record the status of this server's member."""
        revision = self._looked_revision if self._looked_revision >= 0 else status.revision
        self.own = DatabaseSize(
            size=status.size, size_in_use=status.size_in_use, revision=min(revision, status.revision)
        )
        self._looked_revision = status.revision

    def rewrite(self) -> None:
        """Record that this server's member is being defragmented: its free space is 0, and growth counts from there."""
        self.own = DatabaseSize(size=self.own.size_in_use, size_in_use=self.own.size_in_use, revision=self.own.revision)

    def record(self, server: str, size: DatabaseSize) -> None:
        """Record another server's report on its member."""
        self._others[server] = SizeReport(size)

    def is_asking_due(self, now: float) -> bool:
        """Whether the other servers are due to be queried."""
        added, waited_s = GROWTH * self.appended.since(self._query_revision), now - self._query_time
        if added >= ASK_PART * self.quota_bytes:
            return True
        is_busy = added > 0 or self.is_full(self._refused, now)
        return self.is_near(now) and waited_s >= (ASK_S if is_busy else ASK_MAX_S)

    def record_query(self, now: float) -> None:
        """Record that the other servers are being queried."""
        self._query_revision, self._query_time = self.appended.newest, now
        for server, report in self._others.items():
            if report.queried_at is None:
                self._others[server] = SizeReport(report.database, now)

    def largest(self, now: float) -> tuple[int, str]:
        """The largest database's estimated present size in bytes, and its server."""
        sizes = [(self._grown(self.own), self._name)]
        for server, report in self._others.items():
            if (silent_s := report.silent_s(now)) < FORGOTTEN_S:
                sizes.append((self._grown(report.database) if silent_s < SILENT_S else report.database.size, server))
        return max(sizes)

    def reserve(self, now: float) -> int:
        """Reserve bytes that the next compaction may need temporarily."""
        while self._settling and now - self._settling[0][0] >= SETTLE_S:
            self._settled = self._settling.popleft()[1]
        return self.appended.since(self._settled)

    def is_full(self, size: int, now: float) -> bool:
        """Whether an entry of this size must be refused."""
        used_bytes, _ = self.largest(now)
        needed = used_bytes + self.reserve(now) + GROWTH * size
        return used_bytes >= FULL * self.quota_bytes or needed >= self.quota_bytes

    def is_near(self, now: float) -> bool:
        """Whether space is short, or may become so soon."""
        return self.largest(now)[0] >= CROWDED * self.quota_bytes or self.is_full(self._refused, now)

    def look_pause_s(self, now: float) -> float:
        """The seconds until the next measurement."""
        return LOOK_CROWDED_S if self.is_near(now) else LOOK_S

    def refused(self, size: int) -> None:
        """Record that an entry of this size was refused, so that space is freed for it."""
        self._refused = size

    def next_compaction(self, now: float) -> int:
        """The revision to compact up to; 0 while the log has not grown by a step and space is sufficient.

        It is the newest one of the last call, for who watches the log may be a moment behind.
        """
        revision, self._marked = self._marked, self.appended.newest
        is_due = self.appended.since(self._compacted) >= STEP_PART * self.quota_bytes
        if now - self._compacted_at >= COMPACT_FULL_S and self.is_full(self._refused, now):
            revision, is_due = self._looked_revision, True
        return revision if is_due and revision > self._compacted else 0

    def compacted(self, revision: int, *, now: float) -> None:
        """Record a compaction of revisions before this one."""
        if revision > self._compacted:
            self._compacted, self._compacted_at = revision, now
            self._settling.append((now, revision))

    def is_another_loose(self, now: float) -> bool:
        """Whether the member of another server should be defragmented."""
        return any(
            self._is_loose(report.database) and report.silent_s(now) < SILENT_S for report in self._others.values()
        )

    def _grown(self, database: DatabaseSize) -> int:
        return database.size + GROWTH * self.appended.since(database.revision)

    def _is_loose(self, database: DatabaseSize) -> bool:
        return database.size >= LARGE * self.quota_bytes and database.size_in_use <= DENSE * database.size
