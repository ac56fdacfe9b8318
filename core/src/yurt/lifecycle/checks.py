"""One health check of a service: its next time, its result, and when it requires a restart of its task.

A check is pending until its first answer. It restarts its task after `limit` failures in a row that came after the
grace since the task's last start; the count then restarts. A check with `on_update = "ignore"` is one of
readiness: it is shown, and a deployment does not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from yurt.sdk.value import Duration, UnixNano, Value, no_entries, replace
from yurt.structs.rpc import AllocCheckStatus

CheckStatus = Literal["pending", "success", "failure"]
PENDING: Final = "pending"
SUCCESS: Final = "success"
FAILURE: Final = "failure"
HEALTHINESS: Final = "healthiness"
READINESS: Final = "readiness"
SECOND: Final = 1_000_000_000
OUTPUT_MAX: Final = 3 * 1024


class CheckSpec(Value):
    """A check ready to run, with all names and addresses filled in. `task` is "" for a check of the whole group."""

    id: str
    name: str
    kind: str
    service: str
    group: str
    task: str = ""
    mode: str = HEALTHINESS
    host: str = ""
    port: int = 0
    protocol: str = "http"
    method: str = "GET"
    path: str = "/"
    header: Mapping[str, tuple[str, ...]] = no_entries()
    body: str = ""
    tls_server_name: str = ""
    tls_skip_verify: bool = False
    interval: Duration = Duration(10 * SECOND)
    timeout: Duration = Duration(2 * SECOND)
    limit: int = 0
    grace: Duration = Duration(0)


class CheckOutcome(msgspec.Struct, frozen=True):
    """The result of one probe; `status_code` is 0 without an HTTP answer."""

    is_ok: bool
    output: str
    status_code: int = 0


class CheckRun(Value):
    """The state of a check; failures count from `counts_from` on."""

    next_at: UnixNano
    counts_from: UnixNano
    status: CheckStatus = PENDING
    failures: int = 0
    output: str = "nomad: waiting to run"
    status_code: int = 0
    timestamp: UnixNano = UnixNano(0)


class CheckStep(NamedTuple):
    """The check after a result, and whether its task must be restarted."""

    run: CheckRun
    is_restart: bool


def begin(spec: CheckSpec, *, now: UnixNano) -> CheckRun:
    """A check whose task has just started: due at once."""
    return CheckRun(next_at=now, counts_from=UnixNano(now + spec.grace))


def observed(spec: CheckSpec, run: CheckRun, outcome: CheckOutcome, *, now: UnixNano) -> CheckStep:
    """Process a result received at `now`."""
    failures = 0 if outcome.is_ok else run.failures + (now >= run.counts_from)
    is_restart = 0 < spec.limit <= failures
    after = replace(
        run,
        next_at=UnixNano(now + spec.interval),
        status=SUCCESS if outcome.is_ok else FAILURE,
        failures=0 if is_restart else failures,
        counts_from=UnixNano(now + spec.grace) if is_restart else run.counts_from,
        output=outcome.output[:OUTPUT_MAX],
        status_code=outcome.status_code,
        timestamp=now,
    )
    assert not (is_restart and outcome.is_ok), "a check that passes restarts nothing"
    assert after.failures >= 0, after.failures
    assert spec.limit <= 0 or after.failures < spec.limit, (
        after.failures,
        spec.limit,
        "a restart resets the count",
    )
    assert run.failures == 0 or run.status == FAILURE, (run.status, run.failures)
    return CheckStep(after, is_restart)


def restarted(spec: CheckSpec, run: CheckRun, *, now: UnixNano) -> CheckRun:
    """The check after a restart of its task for any reason: due at once, with a new grace period."""
    return replace(run, next_at=now, counts_from=UnixNano(now + spec.grace), failures=0)


def all_pass(checks: Iterable[tuple[CheckSpec, CheckRun]]) -> bool:
    """Whether the last result of every check required for a deployment was success."""
    return all(run.status == SUCCESS for spec, run in checks if spec.mode == HEALTHINESS)


def status_of(spec: CheckSpec, run: CheckRun) -> AllocCheckStatus:
    """The check in the API's form; its time is in Unix seconds."""
    return AllocCheckStatus(
        id=spec.id,
        check=spec.name,
        group=spec.group,
        mode=spec.mode,
        output=run.output,
        service=spec.service,
        task=spec.task,
        status=run.status,
        status_code=run.status_code,
        timestamp=run.timestamp // SECOND,
    )


def http_outcome(status_code: int, text: str) -> CheckOutcome:
    """The result of an HTTP answer: any of 200 to 299 is success."""
    if 200 <= status_code < 300:
        return CheckOutcome(True, "nomad: http ok", status_code)
    return CheckOutcome(False, text[:OUTPUT_MAX] or f"nomad: http answered {status_code}", status_code)


def refused(kind: str, reason: str) -> CheckOutcome:
    """The result of a refused connection."""
    return CheckOutcome(False, f"nomad: {kind} check failed: {reason}")


def tcp_outcome() -> CheckOutcome:
    """The result of an accepted connection."""
    return CheckOutcome(True, "nomad: tcp ok")
