"""What allocations, jobs and namespaces used of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yurt.http.answers import changed_view
from yurt.http.call import Call, object_missing, read_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import job_key
from yurt.http.lists import check_uuid
from yurt.server.views.jobs import JobRows
from yurt.server.views.scheduling import AllocationRows

if TYPE_CHECKING:
    from yurt.queue.account import AllocAccount
    from yurt.structs.accounting.usage_day import UsageDay

Json = dict[str, Any]
HOUR_MS: Final = 3_600_000
DAY_S: Final = 86_400
MJ_OF_KWH: Final = 3_600_000_000
MILLI: Final = 1000
JOBS_MAX: Final = 1_000
"""Jobs in a report: those with the most GPU-hours."""


async def of_allocation(call: Call) -> web.Response:
    """GET /v1/yurt/allocation/:id/accounting: what one allocation used; `Accounting` is null for one without GPUs."""
    from yurt.server.views.accounting import Accounts, with_one

    alloc_id = check_uuid(call.part("id"), "alloc")
    view, index = await changed_view(
        call, [AllocationRows.watched(alloc_id)], lambda view: view.of(AllocationRows).index_of(alloc_id)
    )
    alloc = view.of(AllocationRows).get(alloc_id)
    if alloc is None:
        return object_missing(call, "alloc not found", index)
    account = view.of(Accounts).of_alloc(alloc, call.context.env.now())
    document = None if account is None else sum_document(with_one(alloc, account)) | _own(account)
    return read_answer(call, {"ID": alloc.id, "Namespace": alloc.namespace, "Accounting": document}, index)


async def of_job(call: Call) -> web.Response:
    """GET /v1/yurt/job/:id/accounting: what a job's allocations used; `Accounting` is null without GPUs."""
    from yurt.server.views.accounting import Accounts

    view, index = await changed_view(call, Accounts.watched(), lambda view: view.of(Accounts).index)
    key, now = job_key(call), call.context.env.now()
    accounts = view.for_thread().of(Accounts)
    total = await call.context.env.in_thread(lambda: accounts.of_job(key, now))
    if total is None and view.of(JobRows).get(key) is None:
        return object_missing(call, "job not found", index)
    account = None if total is None else sum_document(total)
    return read_answer(call, {"ID": key[1], "Namespace": key[0], "Accounting": account}, index)


async def report(call: Call) -> web.Response:
    """GET /v1/yurt/accounting: the sums of namespaces since a time, and of the jobs that the state still holds."""
    from yurt.server.views.accounting import Accounts

    view, index = await changed_view(call, Accounts.watched(), lambda view: view.of(Accounts).index)
    since_s = _since(call.query.get("since", ""))
    now, namespace = call.context.env.now(), call.options.namespace
    accounts = view.for_thread().of(Accounts)
    usage = await call.context.env.in_thread(lambda: accounts.report(namespace, since_s // DAY_S, now))
    largest = sorted(usage.jobs.items(), key=lambda item: (-item[1].card_ms, item[0]))
    body = {
        "Since": since_s // DAY_S * DAY_S,
        "Namespaces": [
            {"Namespace": name, **sum_document(row), "Running": _running(usage.running.get(name))}
            for name, row in sorted(usage.namespaces.items())
        ],
        "Jobs": [{"Namespace": key[0], "JobID": key[1], **sum_document(row)} for key, row in largest[:JOBS_MAX]],
        "JobsLeftOut": max(0, len(largest) - JOBS_MAX),
    }
    return read_answer(call, body, index)


def _since(text: str) -> int:
    """Unix seconds; 0 for all that is kept."""
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise Refused(400, f'since "{text[:64]}" is not a time; give it in unix seconds')
    return int(text)


def _running(row: UsageDay | None) -> Json:
    """The part of a namespace that has not ended."""
    return {"Allocs": row.allocs if row else 0, "GPUHours": _hours(row.card_ms) if row else 0.0}


def _hours(card_ms: int) -> float:
    return round(card_ms / HOUR_MS, 4)


def sum_document(row: UsageDay) -> Json:
    """Sums as the API writes them: hours of a card, kilowatt hours, seconds."""
    return {
        "Allocs": row.allocs,
        "Failed": row.failed,
        "Preempted": row.preempted,
        "IdleEnded": row.idle_ended,
        "IdleSparedByUse": row.idle_spared_by_use,
        "IdleSparedByKeep": row.idle_spared_by_keep,
        "GPUHours": _hours(row.card_ms),
        "MeasuredGPUHours": _hours(row.measured_ms),
        "UnattributedGPUHours": _hours(row.unattributed_ms),
        "UsedGPUHours": _hours(row.busy_ms),
        "IdleGPUHours": _hours(row.idle_ms),
        "ThrottledGPUHours": _hours(row.throttled_ms),
        "LostGPUHours": {reason: _hours(amount) for reason, amount in sorted(row.lost_ms.items())},
        "EnergyKWh": round(row.energy_mj / MJ_OF_KWH, 4),
        "VRAMPeakMB": row.memory_peak_mb,
        "PCIeBytes": row.pcie_bytes,
        "NVLinkBytes": row.nvlink_bytes,
        "QueueWaitSeconds": round(row.wait_ms / row.waited / MILLI, 3) if row.waited else None,
        "QueueWaitMaxSeconds": row.wait_max_ms / MILLI,
        "Cost": _hours(row.priced_ms),
    }


def _own(account: AllocAccount) -> Json:
    """The account of a single allocation."""
    used = account.used
    return {
        "GPUs": account.cards / MILLI,
        "Price": account.price / MILLI,
        "VRAMBookedMB": used.memory_booked_mb,
        "VRAMMeanMB": used.memory_mean_mb,
        "ThrottleReasons": {reason: _hours(amount) for reason, amount in sorted(used.throttle_reasons.items())},
        "LostReason": account.lost_reason,
    }
