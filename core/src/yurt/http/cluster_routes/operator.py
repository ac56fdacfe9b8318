"""Operator routes: scheduler configuration and garbage collection."""

from __future__ import annotations

from aiohttp import web

from yurt.api.encode import to_wire
from yurt.http.answers import changed_view
from yurt.http.call import Call, empty_answer, json_answer, read_answer
from yurt.http.errors import Refused, failed_call
from yurt.http.query import number
from yurt.sdk.value import replace
from yurt.server.views.operator import SchedulerConfigurationRows
from yurt.structs.cluster import SchedulerConfiguration

ALGORITHMS = ("binpack", "spread")


async def read_scheduler(call: Call) -> web.Response:
    """GET /v1/operator/scheduler/configuration."""
    view, index = await changed_view(
        call, [SchedulerConfigurationRows.watched()], lambda view: view.of(SchedulerConfigurationRows).index
    )
    configuration = view.of(SchedulerConfigurationRows).current
    answer = {"Index": index, "SchedulerConfig": to_wire(configuration)}
    return read_answer(call, answer | {"KnownLeader": True, "LastContact": 0, "NextToken": ""}, index)


async def set_scheduler(call: Call) -> web.Response:
    """PUT /v1/operator/scheduler/configuration."""
    configuration = await call.body(SchedulerConfiguration)
    if configuration.scheduler_algorithm not in ALGORITHMS:
        raise Refused(
            400, f'invalid scheduler algorithm "{configuration.scheduler_algorithm[:64]}": use binpack or spread'
        )
    check_index = number(call.query, "cas")
    clean = replace(configuration, create_index=0, modify_index=0)
    done = await call.operations.system.set_scheduler_config(clean, check_index=check_index)
    return json_answer(call, {"Index": done.index, "Updated": done.is_updated}, index=done.index)


async def collect(call: Call) -> web.Response:
    """PUT /v1/system/gc."""
    return empty_answer(index=await failed_call(call.operations.system.collect_garbage()))


async def reconcile(call: Call) -> web.Response:
    """PUT /v1/system/reconcile/summaries: no effect, because summaries are exact after every change."""
    return empty_answer(index=call.view().index)
