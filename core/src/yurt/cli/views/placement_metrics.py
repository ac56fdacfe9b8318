"""Prints the metrics that evaluations and allocations store about a placement: reasons of failures, and scores."""

from __future__ import annotations

from yurt.cli.json_object import Json
from yurt.cli.terminal.screen import Screen, columns


def metric_lines(metric: Json, *, prefix: str = "  ", screen: Screen | None = None) -> list[str]:
    """The reasons in one metric."""
    lines = []
    if not metric.get("NodesEvaluated"):
        lines.append("No nodes were eligible for evaluation")
    for datacenter, count in sorted((metric.get("NodesAvailable") or {}).items()):
        if not count:
            lines.append(f'No nodes are available in datacenter "{datacenter}"')
    for name, count in sorted((metric.get("ClassFiltered") or {}).items()):
        lines.append(f'Class "{name}": {count} nodes excluded by filter')
    for name, count in sorted((metric.get("ConstraintFiltered") or {}).items()):
        line = f'Constraint "{name}": {count} nodes excluded by filter'
        lines.append(screen.style(line, "red") if screen and "missing drivers" in name else line)
    if metric.get("NodesExhausted"):
        lines.append(f"Resources exhausted on {metric['NodesExhausted']} nodes")
    for name, count in sorted((metric.get("ClassExhausted") or {}).items()):
        lines.append(f'Class "{name}" exhausted on {count} nodes')
    for name, count in sorted((metric.get("DimensionExhausted") or {}).items()):
        lines.append(f'Dimension "{name}" exhausted on {count} nodes')
    lines += [f'Quota limit hit "{name}"' for name in metric.get("QuotaExhausted") or ()]
    if metric.get("Gang"):
        lines.append(f"Gang: {metric['Gang']}")
    return [f"{prefix}* {line}" for line in lines]


def ruled_out_lines(metric: Json) -> list[str]:
    """The reasons that ruled out nodes for a placed allocation; empty where none was ruled out."""
    return metric_lines(metric) if metric.get("NodesFiltered") or metric.get("NodesExhausted") else []


def score_table(metric: Json, *, id_length: int, prefix: str = "  ") -> list[str]:
    """The nodes that were ranked, with the score of each scorer and the final one."""
    ranked = metric.get("ScoreMetaData") or []
    if not ranked:
        return []
    scorers = sorted({name for each in ranked for name in each.get("Scores") or {} if name != "normalized-score"})
    rows = [["Node", *scorers, "final score"]]
    for each in ranked:
        scores = each.get("Scores") or {}
        final = each.get("NormScore", 0.0)
        rows.append([each["NodeID"][:id_length], *(f"{scores.get(name, 0):.3g}" for name in scorers), f"{final:.3g}"])
    return ["", *(prefix + line for line in columns(rows).splitlines())]


def failure_lines(failed: Json, screen: Screen, *, verbose: bool, id_length: int) -> list[str]:
    """One paragraph a task group that could not be placed."""
    lines = []
    for group in sorted(failed):
        metric = failed[group]
        count = metric.get("CoalescedFailures", 0) + 1
        noun = "allocation" if count == 1 else "allocations"
        lines.append(f'Task Group "{group}" (failed to place {count} {noun}):')
        lines += metric_lines(metric, screen=screen)
        if verbose:
            lines += score_table(metric, id_length=id_length)
    return lines
