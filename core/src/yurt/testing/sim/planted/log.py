"""Bugs in the log on etcd, in elections, snapshots, and what follows the log."""

from __future__ import annotations

from typing import Final

from yurt.testing.sim.planted.patch import CALM_USERS, REQUESTS, SMALL, Bug, Patch

BUGS: Final[dict[str, Bug]] = {
    "unknown-append-counts-as-stored": Bug(
        (
            Patch(
                "yurt.storage.etcd.appending",
                'raise Unavailable(f"an append failed, {UNKNOWN}: {error}") from error',
                "term.head = head\n            return",
            ),
        ),
        ("A1", "A2", "E7", "D"),
        SMALL | {"faults": ("etcd-lost-answers",), "fault_pause_s": 3.0},
    ),
    "snapshot-leaves-a-table-out": Bug(
        (
            Patch(
                "yurt.fsm.snapshot",
                "    for table in state.tables():\n        codec =",
                "    for table in state.tables():\n"
                '        if table.name == "evals":\n'
                "            continue\n"
                "        codec =",
            ),
            Patch(
                "yurt.fsm.snapshot",
                "sum(len(table) for table in state.tables())))",
                'sum(len(table) for table in state.tables() if table.name != "evals")))',
            ),
        ),
        ("A7", "A2"),
        SMALL | {"faults": ("snapshot", "kill-server"), "fault_pause_s": 1.5},
    ),
    "two-servers-lead-one-term": Bug(
        (
            Patch(
                "yurt.storage.etcd.leading",
                "compare = [is_at(self._keys.epoch, seen.epoch_revision)]\n"
                '        if reason == "silence":\n'
                "            compare += [",
                "compare = []\n"
                '        if reason == "silence":\n'
                "            compare = [is_at(self._keys.epoch, seen.epoch_revision), ",
            ),
        ),
        ("A3",),
        SMALL | {"faults": ("resign", "kill-server", "etcd-leader", "etcd-slow"), "fault_pause_s": 1.5},
    ),
    "old-term-appends": Bug(
        (
            Patch(
                "yurt.storage.etcd.appending",
                "compare = [self._leading.fence(term), is_value(self._keys.head, encode_head(term.head))]",
                "compare = [is_value(self._keys.head, encode_head(term.head))]",
            ),
        ),
        ("A3",),
        SMALL
        | {
            "faults": ("late-server", "etcd-slow"),
            "fault_pause_s": 1.5,
            "user_pause_s": 0.2,
            "has_own_etcd": False,
        },
    ),
    "stale-leader-reads": Bug(
        (
            Patch(
                "yurt.server.log.current_leader",
                "requested_at = self._env.monotonic()\n        try:\n            if self._log.has_other_servers:",
                "requested_at = self._env.monotonic()\n        if self._has_term:\n            return\n"
                "        try:\n            if self._log.has_other_servers:",
            ),
        ),
        ("L1",),
        REQUESTS
        | {
            "faults": ("pause-server", "cut-server", "cut-one-way"),
            "fault_pause_s": 2.0,
            "active_s": 60.0,
            "histories": ("variable",),
        },
    ),
    "term-begins-on-an-old-state": Bug(
        (Patch("yurt.server.leadership.roles", "            await writer.catch_up()\n", ""),),
        (),
        SMALL | {"faults": ("resign", "kill-server", "slow-threads"), "fault_pause_s": 1.5},
    ),
    "duties-outlive-their-term": Bug(
        (
            Patch(
                "yurt.server.leadership.roles",
                "                work.cancel()\n                await asyncio.wait({work})\n",
                '                if name != "leader":\n'
                "                    work.cancel()\n"
                "                    await asyncio.wait({work})\n",
            ),
        ),
        (),
        SMALL | {"faults": ("resign",), "fault_pause_s": 1.5},
    ),
    "rest-of-a-batch-is-skipped": Bug(
        (
            Patch(
                "yurt.server.log.log_writer",
                "return entry.commands[applied_count:]",
                "return entry.commands if applied_count == 0 else ()",
            ),
        ),
        (),
        SMALL
        | {
            "faults": ("snapshot", "kill-server", "etcd-slow"),
            "fault_pause_s": 1.0,
            "users": 6,
            "user_pause_s": 0.1,
            "turn_s": 0.002,
        },
    ),
    "log-trimmed-too-far": Bug(
        (
            Patch(
                "yurt.storage.etcd.snapshot_reports",
                "return reached[len(reached) // 2] if reached else 0",
                "return max(reached, default=0)",
            ),
        ),
        ("A1",),
        SMALL | {"faults": ("snapshot", "kill-server"), "fault_pause_s": 1.5},
    ),
    "torn-snapshot-is-accepted": Bug(
        (
            Patch(
                "yurt.storage.snapshot_files",
                "return left == 0 and file.read(DIGEST_BYTES) == hasher.digest()",
                "return left == 0",
            ),
        ),
        (),
        SMALL | {"faults": ("snapshot", "damage-snapshot"), "fault_pause_s": 2.0},
    ),
    "folders-stay-open": Bug(
        (
            Patch(
                "yurt.storage.data_dir",
                "    try:\n        os.fsync(descriptor)\n    finally:\n        os.close(descriptor)\n",
                "    os.fsync(descriptor)\n",
            ),
        ),
        ("E9",),
        SMALL | {"faults": ("snapshot",), "fault_pause_s": 1.0},
    ),
    "event-is-skipped": Bug(
        (
            Patch(
                "yurt.server.log.event_buffer",
                "        self._dropped_index = oldest.index\n        return oldest.weight\n",
                "        return oldest.weight\n",
            ),
        ),
        ("A6",),
        CALM_USERS | {"active_s": 60.0, "users": 6, "user_pause_s": 0.2},
    ),
    "index-goes-back": Bug(
        (
            Patch(
                "yurt.server.views.rows",
                '"""When a row of the table changed last."""\n        return self._table.index',
                '"""When a row of the table changed last."""\n'
                "        return max((row.modify_index for row in self._table.values()), default=self._table.index)",
            ),
        ),
        ("A5",),
        CALM_USERS | {"features": ("service", "purge", "lists"), "active_s": 60.0},
    ),
}
