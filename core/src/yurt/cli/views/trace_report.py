"""What a played trace came to: figures as data and as tables, and limits on them for CI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from yurt.cli.errors import UsageError
from yurt.cli.json_object import Json
from yurt.cli.suggest import did_you_mean
from yurt.cli.terminal.text import printable
from yurt.sdk.value import NANOSECONDS

if TYPE_CHECKING:
    from yurt.cli.terminal.screen import Screen
    from yurt.queue.played_trace import TraceJob
    from yurt.server.simulation.trace_play import TraceOutcome

HOUR_S: Final = 3600
REASONS_SHOWN: Final = 5
WAIT_FIGURES: Final = {
    "mean_wait": "MeanS", "median_wait": "MedianS", "p95_wait": "P95S", "longest_wait": "LongestS",
}  # fmt: skip
OTHER_FIGURES: Final = {
    "slowdown": "BoundedSlowdown", "utilisation": "UtilisationPercent", "stranded": "StrandedPercent",
    "worse": "WorsePercent", "rho": "WorstRho", "jain": "Jain1d", "unplaced": "Unplaced", "preemptions": "Preemptions",
    "cut": "CutAtLimit", "lost_hours": "LostHours",
}  # fmt: skip
_CHECK: Final = re.compile(r"([a-z0-9_]+)(?::([0-9a-z+-]+))?\s*(<=|>=|<|>)\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|%)?")
_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": HOUR_S, "d": 24 * HOUR_S}


class FigureLimit(NamedTuple):
    """A limit on one figure."""

    text: str
    figure: str
    size: str
    """The size class of a wait."""
    operator: str
    limit: float
    """Waits in seconds."""

    def holds(self, value: float) -> bool:
        """Whether the figure keeps the limit."""
        match self.operator:
            case "<=":
                return value <= self.limit
            case "<":
                return value < self.limit
            case ">=":
                return value >= self.limit
            case _:
                return value > self.limit


def parse_check(text: str) -> FigureLimit:
    """A limit like `p95_wait:8+ <= 4h` or `utilisation >= 60%`; raises UsageError."""
    from yurt.queue.played_trace import ALL, NO_UNITS, SIZE_CLASSES

    found = _CHECK.fullmatch(text.strip())
    names = (*WAIT_FIGURES, *OTHER_FIGURES)
    if found is None:
        raise UsageError(f'-check {text}: write FIGURE OPERATOR LIMIT, for example "p95_wait <= 4h" or "jain >= 0.6"')
    figure, size, operator, number, unit = found.groups()
    if figure not in names:
        raise UsageError(
            f'-check {text}: "{figure}" is not a figure of the report{did_you_mean(figure, names)}; '
            f"the figures are {', '.join(names)}"
        )
    sizes = (ALL, NO_UNITS, *(name for name, _, _ in SIZE_CLASSES))
    if size and (figure not in WAIT_FIGURES or size not in sizes):
        raise UsageError(f"-check {text}: only waits have a size class; the classes are {', '.join(sizes)}")
    if (unit in _SECONDS) != (figure in WAIT_FIGURES):
        raise UsageError(f"-check {text}: waits have a limit with a unit of time (s, m, h, d), other figures do not")
    return FigureLimit(text, figure, size or ALL, operator, float(number) * _SECONDS.get(unit or "", 1))


def report_of(jobs: Sequence[TraceJob], outcome: TraceOutcome, unit: str) -> Json:
    """The figures as data; times in seconds."""
    from yurt.queue.played_trace import WINDOW_HOURS, mean_slowdown, private_ends, rho, waits_by_class

    compared = rho(jobs, outcome.ends, private_ends(jobs, outcome.capacity))
    unit_s = outcome.capacity * max(1, outcome.last - outcome.first) / NANOSECONDS
    worst = max(compared.by_tenant.values(), default=1.0)
    reasons: dict[str, int] = {}
    for reason in outcome.unplaced.values():
        reasons[reason] = reasons.get(reason, 0) + 1
    return {
        "Unit": unit,
        "Capacity": outcome.capacity,
        "KeptByServices": outcome.kept,
        "WithoutUnits": sum(not job.size for job in jobs),
        "RoundedUp": outcome.rounded,
        "Submissions": len(jobs),
        "Started": len(outcome.starts),
        "Ended": len(outcome.ends),
        "Unplaced": len(outcome.unplaced),
        "UnplacedReasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "CutAtLimit": outcome.cut,
        "Preemptions": outcome.preemptions,
        "LostHours": round(outcome.lost_s / HOUR_S, 2),
        "SpanS": round((outcome.last - outcome.first) / NANOSECONDS),
        "Evaluations": outcome.attempts,
        "Waits": {name: _waits(one._asdict()) for name, one in waits_by_class(jobs, outcome.starts).items()},
        "BoundedSlowdown": round(mean_slowdown(jobs, outcome.ends), 3),
        "UtilisationPercent": round(100 * outcome.tally.busy_s / unit_s, 1),
        "StrandedPercent": round(100 * outcome.tally.idle_unused_s / unit_s, 1),
        **{f"Jain{name.replace(' ', '')}": round(outcome.tally.jain(hours), 3) for name, hours in WINDOW_HOURS.items()},
        "WorsePercent": round(compared.worse_percent, 1),
        "WorstRho": round(worst, 2),
        "Rho": {name: round(value, 2) for name, value in compared.by_tenant.items()},
        "Forecasts": _forecasts(outcome),
    }


def _waits(one: Mapping[str, float]) -> Json:
    return {
        "Jobs": one["jobs"],
        "MeanS": round(one["mean_s"]),
        "MedianS": round(one["median_s"]),
        "P95S": round(one["p95_s"]),
        "LongestS": round(one["longest_s"]),
    }


def _forecasts(outcome: TraceOutcome) -> Json | None:
    found = outcome.accuracy
    if found is None:
        return None
    return {
        "Starts": found.starts,
        "MedianErrorS": round(found.median_error / NANOSECONDS),
        "MedianErrorPercent": round(found.median_error_percent, 1),
        "AnyTimeErrorPercent": round(found.any_time_error_percent, 1),
        "ByExpectedStartPercent": round(found.by_likely_percent, 1),
        "ByExpectedByPercent": round(found.by_percent, 1),
        "WithLatestStart": found.with_latest,
        "AfterLatestStart": found.after_latest,
    }


def checked(report: Json, checks: Iterable[FigureLimit]) -> list[Json]:
    """Each check with the value of its figure."""
    rows: list[Json] = []
    for check in checks:
        value = (
            report["Waits"][check.size][WAIT_FIGURES[check.figure]]
            if check.figure in WAIT_FIGURES
            else report[OTHER_FIGURES[check.figure]]
        )
        rows.append({"Check": check.text, "Value": value, "Limit": check.limit, "Holds": check.holds(value)})
    return rows


def show_report(screen: Screen, report: Json) -> None:
    """The tables."""
    from yurt.queue.played_trace import NO_UNITS

    unit = report["Unit"]
    screen.pairs(
        [
            (
                "Submissions",
                f"{report['Submissions']}; {report['Started']} started, {report['Ended']} ended",
            ),
            ("Pool", _pool(report)),
            *_shapes(report),
            ("Utilization", f"{report['UtilisationPercent']} % over {_time(report['SpanS'])}"),
            ("Free Though Wanted", f"{report['StrandedPercent']} %"),
            ("Bounded Slowdown", f"{report['BoundedSlowdown']}"),
            ("Jain's Index", f"{report['Jain1h']} by hour, {report['Jain1d']} by day (1 is equal)"),
            ("Worse Than On A Private Share", f"{report['WorsePercent']} % of jobs"),
            ("Preemptions", f"{report['Preemptions']}, {report['LostHours']} {unit} hours lost"),
            ("Ended At Their Limit", f"{report['CutAtLimit']}"),
            ("Evaluations", f"{report['Evaluations']}"),
        ]
    )
    screen.line()
    rows = [
        [name, one["Jobs"], *(_time(one[key]) for key in ("MeanS", "MedianS", "P95S", "LongestS"))]
        for name, one in report["Waits"].items()
        if one["Jobs"] or name != NO_UNITS
    ]
    screen.table(f"{_plural(unit)}|Jobs|Mean Wait|Median|95 %|Longest", rows)
    screen.line()
    screen.table("Tenant|Rho", [[name, value] for name, value in report["Rho"].items()])
    _show_rest(screen, report)


def _show_rest(screen: Screen, report: Json) -> None:
    found = report["Forecasts"]
    if found is not None:
        screen.line()
        screen.pairs(
            [
                ("Starts Forecast", f"{found['Starts']}"),
                ("Median Error", _time(found["MedianErrorS"])),
                ("Median Error On Arrival", f"{found['MedianErrorPercent']} % of the wait"),
                ("Median Error While Waiting", f"{found['AnyTimeErrorPercent']} % of the wait"),
                ("Started By Expected Start", f"{found['ByExpectedStartPercent']} % (50 is right)"),
                ("Started In 4 Of 5 Cases By", f"{found['ByExpectedByPercent']} % (80 is right)"),
            ]
        )
    elif report["HasForecasts"]:
        screen.line("No job waited whose start could be forecast: without limits, run times are known after 5 runs")
    if report["Unplaced"]:
        screen.line()
        screen.line(f"{report['Unplaced']} jobs never started:")
        shown = list(report["UnplacedReasons"].items())[:REASONS_SHOWN]
        for reason, number in shown:
            screen.line(f"  {number}: {printable(reason)}")
    if report.get("Checks"):
        screen.line()
        rows = [[one["Check"], one["Value"], "yes" if one["Holds"] else "NO"] for one in report["Checks"]]
        screen.table("Check|Value|Holds", rows)


def _pool(report: Json) -> str:
    reserved = report["KeptByServices"]
    shown = f"{report['Capacity']} {_plural(report['Unit'])}"
    return f"{shown} for jobs; services and system jobs keep {reserved} more" if reserved else shown


def _shapes(report: Json) -> list[tuple[str, str]]:
    """How jobs were taken that the unit, or equal allocations, do not fit."""
    without, rounded = report["WithoutUnits"], report["RoundedUp"]
    units = _plural(report["Unit"])
    rows: list[tuple[str, str]] = []
    if without:
        rows.append((f"Without {units}", f"{_jobs(without)}, which take CPU and memory only"))
    if rounded:
        rows.append(("Rounded Up", f"{_jobs(rounded)}, whose size no useful number of equal allocations divides"))
    return rows


def _jobs(number: int) -> str:
    return f"{number} job{'' if number == 1 else 's'}"


def _plural(unit: str) -> str:
    return {"gpu": "GPUs", "core": "Cores"}.get(unit, unit)


def _time(seconds: float) -> str:
    """Like 2d3h, 1h12m, 5m30s or 12s."""
    whole = round(seconds)
    days, hours, minutes = whole // 86_400, whole // HOUR_S % 24, whole // 60 % 60
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{whole % 60}s" if minutes else f"{whole}s"
