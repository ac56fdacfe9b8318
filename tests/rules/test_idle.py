"""The policy on idle devices: defaults, spellings, problems, and whose policy holds."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.rules.canonical import canonicalize_job
from yurt.rules.idle import normalised_idle, with_idle_policy
from yurt.rules.validation.idle import idle_group_problems, idle_problems
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, parse_duration, replace, seconds
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.job import Job
from yurt.structs.policies import Gang, IdlePolicy, InteractiveHours, InteractivePolicy
from yurt.structs.queueing.idle import idle_policy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories

HOUR = seconds(3600)
POLICY = IdlePolicy(window=HOUR, first=HOUR, warn=(seconds(1800),), action="requeue", grace=seconds(300))


def job(*policies: IdlePolicy | None, kind: str = "batch", **group: Any) -> Job:
    devices = tuple(RequestedDevice(name="nvidia/gpu", idle=policy) for policy in policies)
    task = factories.task(resources=Resources(devices=devices))
    return factories.job(type=kind, task_groups=(factories.group(tasks=(task,), **group),))


def holding(given: Job, *, space: IdlePolicy | None = None, pool: IdlePolicy | None = None) -> IdlePolicy | None:
    made = with_idle_policy(given, Namespace(name="team", idle=space), NodePool(name="gpu", idle=pool))
    assert with_idle_policy(made, Namespace(name="team", idle=space), NodePool(name="gpu", idle=pool)) == made
    return idle_policy(made.task_groups[0])


def test_a_block_is_completed_with_warnings_within_its_window() -> None:
    device = {"Name": "nvidia/gpu", "Idle": {"Window": 600 * 10**9, "Interactive": {}}}
    group = {"Name": "g", "Tasks": [{"Name": "t", "Resources": {"Devices": [device]}}]}
    made = canonicalize_job({"ID": "j", "TaskGroups": [group]})
    found = made["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"][0]["Idle"]
    assert found["Warn"] == [300 * 10**9, 500 * 10**9] and found["Action"] == "notify"
    assert (found["First"], found["Grace"], found["Below"]) == (5400 * 10**9, 300 * 10**9, 2)
    assert found["Interactive"] == {"Window": 0, "Keep": 3}


def test_the_job_comes_before_its_namespace_and_that_before_the_pool() -> None:
    space, pool = replace(POLICY, below=3), replace(POLICY, below=4)
    assert holding(job(POLICY), space=space, pool=pool) == POLICY
    assert holding(job(None), space=space, pool=pool) == replace(space, source='namespace "team"')
    assert holding(job(None), pool=pool) == replace(pool, source='node pool "gpu"')
    assert holding(job(None)) is None
    assert holding(job(), space=space) is None, "it has no devices"


def test_of_enforced_policies_the_one_with_the_shorter_window_replaces_the_job_s() -> None:
    strict = replace(POLICY, window=seconds(600), enforce=True)
    lax = replace(POLICY, window=seconds(1200), enforce=True)
    for space, pool in ((strict, lax), (lax, strict)):
        found = holding(job(replace(POLICY, action="notify")), space=space, pool=pool)
        assert found is not None and found.window == strict.window and not found.enforce
    found = holding(job(POLICY), space=POLICY, pool=strict)
    assert found is not None and found.source == 'node pool "gpu"'


def test_a_default_gets_an_action_that_the_group_can_have() -> None:
    shrink = replace(POLICY, action="shrink")
    actions = {
        (kind, str(gang)): found.action
        for kind in ("batch", "service", "system")
        for gang in (None, Gang(min=1, elastic=True))
        if (found := holding(job(None, kind=kind, gang=gang), space=shrink)) is not None
    }
    assert list(actions.values()) == ["requeue", "shrink", "notify", "shrink", "notify", "notify"]
    made = with_idle_policy(job(None), Namespace(name="team", idle=POLICY), None)
    assert made.task_groups[0].requeue is None, "how it waits again follows from how it ended"


def test_whoever_claims_that_a_policy_is_a_default_is_not_believed() -> None:
    assert holding(job(replace(POLICY, source='namespace "team"')), space=None) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"below": 0}, "below must be from 1 to 100 percent (got 0)"),
        ({"action": "reqeue"}, 'idle action "reqeue" is not valid (did you mean "requeue"?)'),
        ({"action": "x"}, 'idle action "x" is not valid: use'),
        ({"when": "contention"}, 'did you mean "contended"'),
        ({"gpus": "any"}, 'gpus = "any" needs action = "notify"'),
        ({"window": Duration(0)}, "window must be from 1s"),
        ({"first": Duration(-1)}, "first must be from 0s"),
        ({"grace": seconds(90_000)}, "grace must be from 0s"),
        ({"warn": (HOUR,)}, "must lie within the window"),
        ({"warn": (seconds(3), seconds(2))}, "ascending order"),
        ({"warn": tuple(seconds(each) for each in range(1, 11))}, "can hold 8 times (got 10)"),
        ({"interactive": InteractivePolicy(window=seconds(1))}, "interactive window must be at least the window"),
        ({"interactive": InteractivePolicy(keep=101)}, "keep must be from 0 to 100"),
        ({"interactive": InteractivePolicy(hours=InteractiveHours(start="0 8 * * *"))}, "hours: end is missing"),
    ],
)
def test_problems_say_what_is_possible(changes: dict[str, Any], text: str) -> None:
    found = list(idle_problems(replace(POLICY, **changes)))
    assert len(found) == 1 and text in found[0], found
    assert not list(idle_problems(POLICY))


def test_a_group_has_one_block_with_an_action_for_its_kind() -> None:
    for given, text in (
        (job(POLICY, POLICY), "there are 2 idle blocks"),
        (job(POLICY, kind="service"), "can only be used with batch jobs"),
        (job(POLICY, kind="system"), "cannot be used with system jobs"),
        (job(replace(POLICY, action="shrink")), "needs an elastic gang"),
        (job(replace(POLICY, enforce=True)), "enforce is for namespaces and node pools"),
    ):
        found = list(idle_group_problems(given, given.task_groups[0]))
        assert any(text in each for each in found), (found, text)
    assert not list(idle_group_problems(job(POLICY), job(POLICY).task_groups[0]))


def test_a_policy_of_the_namespace_does_not_hide_that_a_group_has_two_blocks() -> None:
    given = job(POLICY, POLICY)
    found = with_idle_policy(given, Namespace(name="default", idle=replace(POLICY, enforce=True)), None)
    assert any("there are 2 idle blocks" in each for each in idle_group_problems(found, found.task_groups[0]))


def test_files_and_the_api_spell_the_block_of_a_namespace() -> None:
    file = {"min_gpu": 5, "window": "30m", "warn": ["10m"], "interactive": [{"window": "2h", "hours": {"start": "x"}}]}
    found = normalised_idle([file], parse_duration)
    assert (found["Below"], found["Window"], found["Warn"]) == (5, 1800 * 10**9, [600 * 10**9])
    assert found["Interactive"]["Window"] == 7200 * 10**9 and found["Interactive"]["Hours"] == {"Start": "x"}
    assert normalised_idle(found, parse_duration) == found
    for block, text in (
        ({"windw": 1}, 'unknown key "windw" (did you mean "window"?)'),
        ({"window": "soon"}, "idle window:"),
        ({"warn": "30m"}, "a list of durations"),
        ([1, 2], "one block is needed"),
    ):
        with pytest.raises(Invalid, match=text.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
            normalised_idle(block, parse_duration)
