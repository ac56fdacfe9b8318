"""The parts of one server's log that exist from `open` to `close`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from yurt.runtime.background import Work
from yurt.runtime.env import Env
from yurt.sdk.value import Value
from yurt.storage.etcd.appending import Appender
from yurt.storage.etcd.client import Connect, EtcdClient
from yurt.storage.etcd.commit_record import CommitRecord
from yurt.storage.etcd.compaction import Compaction
from yurt.storage.etcd.confirmation import Confirmation
from yurt.storage.etcd.defragmentation import FileSize
from yurt.storage.etcd.handover import Handover
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import KeyLayout
from yurt.storage.etcd.leading import Candidate, Leading
from yurt.storage.etcd.quota_recovery import ExhaustedQuota
from yurt.storage.etcd.quota_usage import EtcdQuotaUsage
from yurt.storage.etcd.reading import EntryReader
from yurt.storage.etcd.settings import EtcdSecurity
from yurt.storage.etcd.snapshot_reports import SnapshotReports


class SessionSettings(Value, rename=None):
    """A server's connection to etcd. `quota_bytes` is the quota of its own member; 0: unknown. `connect`: see
    `EtcdClient`."""

    endpoints: tuple[str, ...]
    candidate: Candidate
    security: EtcdSecurity | None = None
    quota_bytes: int = 0
    connect: Connect | None = None


@dataclass(frozen=True)
class EtcdSession:
    """The parts; none connects before its first call."""

    client: EtcdClient
    closing: Interrupt
    reader: EntryReader
    leading: Leading
    confirmation: Confirmation
    appender: Appender
    reports: SnapshotReports
    compaction: Compaction
    handover: Handover
    quota_usage: EtcdQuotaUsage
    file_size: FileSize
    exhausted_quota: ExhaustedQuota

    @property
    def loops(self) -> Mapping[str, Work]:
        """The loops of an open log, by name."""
        return {
            "watch": self.leading.watch,
            "run": self.leading.run,
            "answer_confirms": self.confirmation.answer_confirms,
            "compact_at_times": self.compaction.compact_at_times,
            "compact_as_it_grows": self.compaction.compact_as_it_grows,
            "make_room_when_full": self.exhausted_quota.free_space_when_full,
            "report_snapshots": self.reports.report_snapshots,
            "watch_size": self.file_size.watch_size,
        }

    def interrupt(self) -> None:
        """End all waits and streams."""
        self.closing.raise_()
        self.leading.close()
        self.confirmation.close()


def start_session(settings: SessionSettings, keys: KeyLayout, *, env: Env, witness: CommitRecord) -> EtcdSession:
    """Create the parts of a session."""
    client = EtcdClient(settings.endpoints, security=settings.security, connect=settings.connect)
    candidate = settings.candidate
    quota_usage = EtcdQuotaUsage(settings.quota_bytes if candidate.own_endpoint else 0, name=candidate.name)
    closing, alarm = Interrupt(), asyncio.Event()

    def has_read(revision: int, size: int) -> None:
        quota_usage.appended.add(revision, size)
        leading.has_read(revision)

    reader = EntryReader(client, keys, env=env, closing=closing, on_read=has_read, on_applied=witness.record)
    leading = Leading(
        client, keys, candidate=candidate, env=env, position=lambda: reader.position, on_no_space=alarm.set
    )
    appender = Appender(client, keys, leading=leading, reader=reader, quota_usage=quota_usage, on_no_space=alarm.set)
    reports = SnapshotReports(client, keys, candidate=candidate, env=env)
    compaction = Compaction(client, keys, reader=reader, leading=leading, reports=reports, quota_usage=quota_usage)
    handover = Handover(client, leading=leading, appender=appender, reports=reports)
    return EtcdSession(
        client=client,
        closing=closing,
        reader=reader,
        leading=leading,
        confirmation=Confirmation(client, keys, leading=leading),
        appender=appender,
        reports=reports,
        compaction=compaction,
        handover=handover,
        quota_usage=quota_usage,
        file_size=FileSize(client, keys, leading=leading, quota_usage=quota_usage, handover=handover, alarm=alarm),
        exhausted_quota=ExhaustedQuota(client, leading=leading, compaction=compaction, alarm=alarm),
    )
