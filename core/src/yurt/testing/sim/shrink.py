"""Makes a failing plan smaller while it still fails: fewer faults, features, users and nodes, and less time.

A smaller plan of the same seed is another run; what counts is that it fails by the same invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from yurt.sdk.value import replace
from yurt.testing.sim.plan import Plan
from yurt.testing.sim.run import Report

Run = Callable[[Plan], Report]
RUNS_MAX = 60
SHORTEST_S = 10.0


def kind_of(problem: str) -> str:
    """The kind of a failure: an invariant's number, or a traceback's last line up to its values."""
    last = problem.strip().splitlines()[-1]
    return last.split(" ", 1)[0] if last[:1].isalpha() and last[1:2].isdigit() else last.split(":", 1)[0]


def shrink(
    report: Report, run: Run, *, runs_max: int = RUNS_MAX, tell: Callable[[str], None] = lambda _: None
) -> Report:
    """The smallest report found with the same kind of failure."""
    wanted, best, runs = kind_of(report.problem), report, 0
    is_smaller = True
    while is_smaller and runs < runs_max:
        is_smaller = False
        for plan in _smaller(best.plan):
            if runs >= runs_max:
                break
            runs += 1
            found = run(plan)
            if found.problem and kind_of(found.problem) == wanted:
                best, is_smaller = found, True
                tell(f"still fails: {_size_of(plan)}")
                break
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Smaller plans, with the largest reductions first."""
    if plan.active_s > SHORTEST_S:
        yield replace(plan, active_s=max(SHORTEST_S, plan.active_s / 2))
    for field in ("faults", "features"):
        names = getattr(plan, field)
        for part in (names[: len(names) // 2], names[len(names) // 2 :]):
            if names and len(part) < len(names) and (part or field == "faults"):
                yield replace(plan, **{field: part})
    if plan.rest_actions:
        yield replace(plan, rest_actions=0)
    if plan.clients > 1:
        yield replace(plan, clients=plan.clients // 2)
    if plan.users > 1:
        yield replace(plan, users=1)
    for field in ("faults", "features"):
        names = getattr(plan, field)
        for name in names if len(names) > 1 else ():
            yield replace(plan, **{field: tuple(each for each in names if each != name)})


def _size_of(plan: Plan) -> str:
    return (
        f"{plan.active_s:g} s, {plan.clients} clients, {plan.users} users, "
        f"faults {', '.join(plan.faults) or 'none'}, features {', '.join(plan.features)}"
    )
