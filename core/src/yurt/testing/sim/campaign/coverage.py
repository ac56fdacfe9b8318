"""What runs have exercised: commands, changes of status, and pairs of faults; what is missing steers new seeds.

A counter has the keys `command RegisterJob`, `change allocs pending running` (a row's status before and after) and
`faults cut-server kill-server` (two faults at one time, by name). The ledger lists the commands and pairs that no run
has had, and those lists are the memory: a search reads them, prefers plans that can fill them, and writes them back.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, get_args

from yurt.sdk.value import replace
from yurt.state import Changes
from yurt.structs.commands import AnyCommand
from yurt.testing.sim.plan import FAULTS, LATE_FAULTS, OF_CSI, OF_DEVICES, Plan

BEGIN, END = "<!-- sim-coverage: begin -->", "<!-- sim-coverage: end -->"
STATUS_OF: Final = {"allocs": "client_status", "evals": "status", "deployments": "status", "nodes": "status"}
"""The field of each table whose changes are counted."""
ALL_FAULTS: Final = (*FAULTS, *OF_DEVICES, *LATE_FAULTS, *OF_CSI)
PAIRS: Final = frozenset(itertools.combinations(sorted(ALL_FAULTS), 2))
COMMANDS: Final = frozenset(each.__name__ for each in get_args(AnyCommand))
NAMES: Final = hashlib.sha256(" ".join((*sorted(COMMANDS), *ALL_FAULTS)).encode()).hexdigest()[:12]
"""A digest of what is counted: a new command or fault starts a new table, as no row of it says that it is missing."""
STEERED_PAIRS: Final = 2
"""How many missing pairs a steered plan adds to the faults that it has drawn."""
STEERED_PAUSE_S: Final = 3.0
FEATURE_OF: Final = {
    "ApplyPlan": "service", "DeleteEvaluations": "gc", "DeleteJobs": "gc", "DeleteVariable": "histories",
    "DeregisterJob": "stop", "DispatchJob": "dispatch", "EvaluateJob": "evaluate",
    "LaunchPeriodicJob": "periodic", "LockVariable": "histories",
    "PromoteDeployment": "promote", "PutVariable": "variables", "ReleaseVariableLock": "histories",
    "ScaleJob": "scale", "SetDeploymentStatus": "update", "SetDesiredTransitions": "alloc-stop",
    "SetSchedulerConfiguration": "preemption",
    "SetNodeDrain": "drain", "SetNodeEligibility": "eligibility", "UpsertNamespaces": "histories",
    "UpsertNodePools": "histories", "UpsertQuotas": "quota", "PutHostVolume": "volumes",
    "DeleteHostVolume": "volumes", "DeleteHostVolumeClaim": "volumes",
    "UpsertVolumes": "csi", "DeleteVolumes": "csi",
}  # fmt: skip
"""The feature of plans that makes users or duties send a command."""


class Gaps(NamedTuple):
    """The commands and the pairs of faults that no run has had."""

    commands: frozenset[str] = COMMANDS
    pairs: frozenset[tuple[str, str]] = PAIRS

    def without(self, seen: Collection[str]) -> Gaps:
        """What is still missing after a run with these keys."""
        commands = frozenset(each for each in self.commands if f"command {each}" not in seen)
        return Gaps(commands, frozenset(pair for pair in self.pairs if f"faults {' '.join(pair)}" not in seen))


class Coverage:
    """Counts what one run exercises."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def applied(self, command: AnyCommand, changes: Changes) -> None:
        """Count a command and the changes of status that it made."""
        self.counts[f"command {type(command).__name__}"] += 1
        for change in changes:
            field = STATUS_OF.get(change.table)
            if field is None:
                continue
            before = "none" if change.before is None else getattr(change.before, field)
            after = "none" if change.after is None else getattr(change.after, field)
            if before != after:
                self.counts[f"change {change.table} {before} {after}"] += 1

    def struck(self, kind: str, others: Iterable[str]) -> None:
        """Count a fault together with each kind of fault that lasts at that time."""
        for other in set(others) - {kind}:
            self.counts[f"faults {' '.join(sorted((kind, other)))}"] += 1


def steered(plan: Plan, gaps: Gaps) -> Plan:
    """The plan with features and faults that can fill some gaps; the same for the same plan and gaps."""
    chance = random.Random(f"steer {plan.seed}")
    wanted = {FEATURE_OF[each] for each in gaps.commands if each in FEATURE_OF}
    features = (*plan.features, *sorted(wanted - {*plan.features}))
    pairs = sorted(gaps.pairs)
    if not pairs:
        return replace(plan, features=features)
    chosen = {kind for pair in chance.sample(pairs, k=min(STEERED_PAIRS, len(pairs))) for kind in pair}
    return replace(
        plan,
        features=features,
        faults=tuple(each for each in ALL_FAULTS if each in chosen or each in plan.faults),
        has_devices=plan.has_devices or bool(chosen & {*OF_DEVICES}),
        fault_pause_s=min(plan.fault_pause_s, STEERED_PAUSE_S),
    )


def gaps_text(gaps: Gaps) -> str:
    """The gaps as a table: commands, and for each fault the later ones of the alphabet that it never met."""
    total = (
        f"{len(PAIRS) - len(gaps.pairs)} of {len(PAIRS)} pairs of faults have happened at one time "
        f"(commands and faults `{NAMES}`)."
    )
    rows = [f"| commands | {', '.join(sorted(gaps.commands)) or 'none'} |"]
    for first, pairs in itertools.groupby(sorted(gaps.pairs), key=lambda pair: pair[0]):
        rows.append(f"| {first} with | {', '.join(other for _, other in pairs)} |")
    return "\n".join(["", total, "", "| not exercised | |", "|---|---|", *rows, ""])


def read_gaps(text: str) -> Gaps:
    """The gaps in a ledger's text; everything when it has no table yet, or one of other commands and faults."""
    if f"`{NAMES}`" not in _between(text):
        return Gaps()
    found = dict(re.findall(r"^\| ([\w-]+)(?: with)? \| ([\w, -]+) \|$", _between(text), re.MULTILINE))
    commands = frozenset(found.pop("commands").split(", ")) & COMMANDS
    pairs = {(first, other) for first, others in found.items() for other in others.split(", ")}
    return Gaps(commands, frozenset(pairs & PAIRS))


def with_gaps(text: str, gaps: Gaps) -> str:
    """The ledger's text with these gaps in it."""
    return text.replace(f"{BEGIN}{_between(text)}{END}", f"{BEGIN}{gaps_text(gaps)}{END}")


def _between(text: str) -> str:
    begin = text.index(BEGIN) + len(BEGIN)
    return text[begin : text.index(END)]
