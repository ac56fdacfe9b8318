"""Bugs of CSI volumes: their claims and their mounts."""

from __future__ import annotations

from typing import Final

from yurt.testing.sim.planted.patch import CALM_USERS, SMALL, Bug, Patch

CSI: Final = ("service", "batch", "update", "stop", "alloc-stop", *("csi",) * 2)
CALM_CSI: Final = CALM_USERS | {"features": CSI, "active_s": 40.0}

BUGS: Final[dict[str, Bug]] = {
    "second-writer-claims-a-volume": Bug(
        (
            Patch(
                "yurt.server.resources.csi_volumes",
                "reason = conflict_of(request, source, earlier)",
                'reason = "" if earlier else conflict_of(request, source, earlier)',
            ),
        ),
        ("C2",),
        CALM_CSI,
    ),
    "end-is-reported-before-the-unmount": Bug(
        (
            Patch(
                "yurt.client.hooks.csi",
                "            alloc.report_still_running(UNMOUNTING)\n            await self._volumes.release(alloc.id)",
                "            pass",
            ),
        ),
        ("C2", "200 s after"),
        CALM_CSI,
    ),
    "claims-go-with-their-job": Bug(
        (
            Patch(
                "yurt.state.claims",
                '    keys = [key for key in snapshot.allocs.index_values("csi")',
                "    return claims_of_current_jobs(snapshot, namespace)\n"
                '    keys = [key for key in snapshot.allocs.index_values("csi")',
            ),
            Patch(
                "yurt.state.claims",
                "    keys = [(namespace, volume),",
                "    return claims_of_current_jobs(snapshot, namespace).get(volume, [])\n"
                "    keys = [(namespace, volume),",
            ),
        ),
        ("C2", "D9"),
        CALM_CSI | {"features": (*CSI, "purge")},
    ),
    "used-volume-is-deregistered": Bug(
        (Patch("yurt.fsm.csi_volumes", "        if users:\n", "        if len(users) > 3:\n"),),
        ("D9",),
        CALM_CSI,
    ),
    "restarted-agent-leaves-volumes-mounted": Bug(
        (
            Patch(
                "yurt.client.csi.volumes",
                "self._uses = {(use.alloc_id, use.volume): use for use in await self._store.csi_uses()}",
                "await self._store.csi_uses()",
            ),
        ),
        ("C2", "D9", "200 s after"),
        SMALL | {"features": CSI, "faults": ("kill-client",), "fault_pause_s": 1.5},
    ),
}
