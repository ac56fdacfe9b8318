"""The queues of node pools: the jobs that wait in them, and what their tenants have used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from yurt.api.page import escaped_token, read_token
from yurt.http.answers import changed_view
from yurt.http.call import Call, read_answer, read_headers
from yurt.http.errors import Refused

if TYPE_CHECKING:
    from yurt.queue.accuracy import Summary
    from yurt.server.views.queue import Place, TenantUse

Json = dict[str, Any]

DYNAMIC: Final = "dynamic_priority"


async def jobs(call: Call) -> web.Response:
    """GET /v1/queue/jobs: the jobs that wait for a node pool."""
    from yurt.server.views.queue import PoolQueueRows

    view, index = await changed_view(call, PoolQueueRows.watched(), lambda view: view.of(PoolQueueRows).index)
    queue, pool = view.of(PoolQueueRows), call.query.get("node_pool", "")
    kind, at = queue.type_of(pool), 0
    places: list[Place] = []
    if kind != "passthrough":
        # By the rights that the caller has now: they may have changed when the report is there.
        allowed = view.for_thread().of(PoolQueueRows)
        report = await queue.report(call.server_facts.queue_reports, pool, region=call.settings.region)
        at, places = report.at, await call.context.env.in_thread(allowed.visible, report)
    if call.query.get("sort") != "priority":
        places.sort(key=lambda place: (place.entry.job.id, place.entry.job.namespace))
    page, token = _page(places, call.options.next_token, call.options.per_page)
    body = _envelope(call, index) | {
        "NextToken": token,
        "Type": kind,
        "Workloads": [_workload(_corrected(call, place, at), kind) for place in page],
        "Accuracy": _accuracy(call.server_facts.queue_accuracy(pool)),
    }
    return read_answer(call, body, index, next_token=token)


async def tenants(call: Call) -> web.Response:
    """GET /v1/queue/tenants: what the tenants of a node pool's queue have used."""
    from yurt.server.views.queue import PoolQueueRows

    view, index = await changed_view(call, PoolQueueRows.watched(), lambda view: view.of(PoolQueueRows).index)
    queue, pool, now = view.of(PoolQueueRows), call.query.get("node_pool", ""), call.context.env.now()
    kind = queue.type_of(pool)
    has_tenants = kind not in ("passthrough", "fifo")
    uses = await call.context.env.in_thread(lambda: queue.tenants(pool, now)) if has_tenants else []
    rows = [_tenant(use) for use in uses] if has_tenants else None
    return read_answer(call, _envelope(call, index) | {"NextToken": "", "Type": kind, "Tenants": rows}, index)


def _corrected(call: Call, place: Place, now: int) -> Place:
    """A place with the expected start as earlier forecasts of this leader suggest it."""
    from yurt.queue.accuracy import Forecast

    plain = Forecast(now, place.expected_start, place.expected_by, place.start_by_limits)
    forecast = call.server_facts.corrected(place.entry.job.node_pool, place.entry.job.key, plain)
    return place._replace(expected_start=forecast.likely, expected_by=forecast.by)


def _accuracy(summary: Summary | None) -> Json | None:
    """The accuracy of forecasts; None while unknown. Times in nanoseconds."""
    if summary is None:
        return None
    return {
        "Starts": summary.starts,
        "MedianError": summary.median_error,
        "MedianErrorPercent": round(summary.median_error_percent, 1),
        "AnyTimeErrorPercent": round(summary.any_time_error_percent, 1),
        "ByExpectedStartPercent": round(summary.by_likely_percent, 1),
        "ByExpectedByPercent": round(summary.by_percent, 1),
        "WithLatestStart": summary.with_latest,
        "AfterLatestStart": summary.after_latest,
        "ByWait": [
            {
                "Below": each.below,
                "Starts": each.starts,
                "MedianWait": each.median_wait,
                "MedianError": each.median_error,
                "MedianErrorPercent": round(each.median_error_percent, 1),
                "ByExpectedStartPercent": round(each.by_likely_percent, 1),
            }
            for each in summary.by_wait
        ],
    }


def _envelope(call: Call, index: int) -> Json:
    """What Nomad's answers about queues repeat of their headers."""
    headers = read_headers(call, index)
    return {
        "Index": index,
        "KnownLeader": headers["X-Nomad-KnownLeader"] == "true",
        "LastContact": int(headers["X-Nomad-LastContact"]),
    }


def _page(places: list[Place], token: str, size: int) -> tuple[list[Place], str]:
    """The page that begins at a token, and the token of the next one."""
    token = read_token(token)
    tokens = [_token(place) for place in places]
    start = tokens.index(token) if token in tokens else 0
    if token and token not in tokens:
        # Its job has left the queue: what came after it is left to be shown.
        index, _, job_id = token.partition(".")
        if not index.isdigit():
            raise Refused(400, f'next_token "{token[:64]}" is not one of this list')
        places = [
            place for place in places if (place.entry.waiting.create_index, place.entry.job.id) > (int(index), job_id)
        ]
        tokens = [_token(place) for place in places]
    end = start + size if size > 0 else len(places)
    return places[start:end], escaped_token(tokens[end]) if end < len(places) else ""


def _token(place: Place) -> str:
    return f"{place.entry.waiting.create_index}.{place.entry.job.id}"


def _workload(place: Place, kind: str) -> Json:
    from yurt.server.views.queue import price_parts

    job, waiting = place.entry.job, place.entry.waiting
    row: Json = {
        "JobID": job.id,
        "Namespace": job.namespace,
        "Status": place.status,
        "Position": place.position,
        "CreatedAt": waiting.since,
        "CreateIndex": waiting.create_index,
        "Reason": place.reason,
        "WaitsFor": place.waits_for[1] if place.waits_for else "",
        "GPUs": waiting.asked.gpu / price_parts(),
        "ExpectedStart": place.expected_start,
        "ExpectedBy": place.expected_by,
        "LatestStart": place.latest_start,
    }
    if kind != "fifo":
        row |= {"Tenant": _tenant_name(waiting.tenant), "BasePriority": job.priority}
    adjusted = place.adjusted
    if kind == DYNAMIC and adjusted is not None:
        row |= {
            "AdjustedPriority": adjusted.priority,
            "FairshareAdjustment": adjusted.fairshare,
            "UsageAdjustment": adjusted.fairshare,
            "AgeAdjustment": adjusted.age,
            "CpuAdjustment": adjusted.cpu,
            "MemoryAdjustment": adjusted.memory,
            "GPUAdjustment": adjusted.gpu,
        }
    return row


def _tenant(use: TenantUse) -> Json:
    own, total = _shown(use.used), _shown(use.total)
    return {
        "TenantID": _tenant_name(use.tenant),
        "PercentageUsed": use.percent,
        "TenantFairshare": own,
        "TotalFairshare": total,
        "TenantUsage": own,
        "TotalUsage": total,
        "Waiting": use.waiting,
    }


def _shown(amounts: Any) -> Json:
    from yurt.server.views.queue import price_parts

    return {"cpu": float(amounts.cpu), "memory": float(amounts.memory), "gpu": amounts.gpu / price_parts()}


def _tenant_name(path: tuple[str, ...]) -> str:
    """`vision`, `vision/ann`; the namespace alone for jobs that name no user."""
    return "/".join(part for part in path if part)
