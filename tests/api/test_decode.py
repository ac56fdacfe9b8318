"""JSON to jobs: keys, nulls, warnings, bounds and messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import inspect
from yurt.api.decode import DURATIONS_MAX, check_bounds, decode_job, decode_json, decode_value, is_plainly_bounded
from yurt.api.encode import to_wire
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, Value
from yurt.structs.job import Job
from yurt.structs.policies import IdlePolicy

JOB: dict[str, Any] = {
    "ID": "web",
    "Type": "service",
    "TaskGroups": [
        {"Name": "g", "Count": 2, "Tasks": [{"Name": "t", "Driver": "raw_exec", "Config": {"command": "a"}}]}
    ],
}


def test_keys_match_whatever_their_case() -> None:
    job, warnings = decode_job({"id": "web", "TASKGROUPS": [{"name": "g", "tasks": [{"NAME": "t", "driver": "d"}]}]})
    assert (job.id, job.task_groups[0].tasks[0].driver, warnings) == ("web", "d", ())


def test_an_exactly_spelled_key_wins_over_another_case() -> None:
    assert decode_job({"priority": 10, "Priority": 20, "ID": "a"})[0].priority == 20
    assert decode_job({"Priority": 20, "priority": 10, "ID": "a"})[0].priority == 20


class Timed(Value):
    """A type with a duration."""

    wait: Duration = Duration(0)


class Named(Timed):
    """The same with a text."""

    wait: str = ""


def test_a_type_reads_a_field_by_its_own_annotation_and_not_by_that_of_its_base() -> None:
    assert decode_value({"Wait": "1s"}, Timed, name="A")[0] == Timed(wait=Duration(1_000_000_000))
    assert decode_value({"Wait": "1s"}, Named, name="A")[0] == Named(wait="1s")


@pytest.mark.parametrize("texts", [["1s"] * 3, ["nonsense"]])
def test_a_list_where_one_duration_is_needed_is_not_read(texts: list[str]) -> None:
    with pytest.raises(Invalid, match=r"TaskGroups\[0\].ShutdownDelay: expected integer, got list"):
        decode_job({"ID": "web", "TaskGroups": [{"ShutdownDelay": texts}]})


def test_a_list_of_durations_has_a_bound() -> None:
    policy, _ = decode_value({"Warn": ["1s", 2]}, IdlePolicy, name="Idle")
    assert policy.warn == (10**9, 2)
    with pytest.raises(Invalid, match=r"Idle.Warn has 1001 durations, at most 1000 are possible"):
        decode_value({"Warn": ["1s"] * (DURATIONS_MAX + 1)}, IdlePolicy, name="Idle")


def test_null_means_absent() -> None:
    job, _ = decode_job(JOB | {"Priority": None, "Datacenters": None, "Meta": {"a": None}, "Update": None})
    assert (job.priority, job.datacenters, job.meta) == (50, ("*",), {"a": ""})


def test_a_drivers_config_is_left_alone() -> None:
    group = {"Name": "g", "Tasks": [{"Name": "t", "Config": {"COMMAND": None, "Args": [{"x": None}]}}]}
    job, warnings = decode_job({"ID": "a", "TaskGroups": [group]})
    assert (job.task_groups[0].tasks[0].config, warnings) == ({"COMMAND": None, "Args": [{"x": None}]}, ())


def test_an_unknown_key_is_a_warning_with_the_nearest_name() -> None:
    _, warnings = decode_job(JOB | {"TaskGroups": [{"Name": "g", "Contraints": [], "Zzz": 1}]})
    assert warnings == (
        'unknown key "Job.TaskGroups[0].Contraints" is ignored; did you mean "Constraints"?',
        'unknown key "Job.TaskGroups[0].Zzz" is ignored',
    )


def test_warnings_are_bounded() -> None:
    _, warnings = decode_job({"ID": "a"} | {f"Key{number}": 1 for number in range(1000)})
    assert len(warnings) == 20


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"TaskGroups": [{"Count": "3"}]}, "Job.TaskGroups[0].Count: expected integer, got string"),
        ({"TaskGroups": 5}, "Job.TaskGroups: expected list, got integer"),
        ({"TaskGroups": [[]]}, "Job.TaskGroups[0]: expected object, got list"),
        ({"Meta": {"a": 3}}, "Job.Meta[...]: expected string, got integer"),
        ({"Priority": 1.5}, "Job.Priority: expected integer, got number"),
        ({"Update": []}, "Job.Update: expected object, got list"),
        ({"Payload": "%%"}, "Job.Payload: Invalid base64 encoded string"),
        ({"Stop": "yes"}, "Job.Stop: expected boolean, got string"),
    ],
)
def test_a_wrong_type_is_told_with_its_path(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid) as caught:
        decode_job(JOB | changes)
    assert str(caught.value) == text


@pytest.mark.parametrize("document", [[], "job", 5, True, None])
def test_a_job_must_be_an_object(document: Any) -> None:
    with pytest.raises(Invalid, match="Job: expected object, got"):
        decode_job(document)


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b'"\xff"', b'{"a":"\\ud800"}', b"[" * 100_000, b'{"a":' * 70 + b"1" + b"}" * 70, b"{", b"", b'{"a":NaN}',
     b'{"a":1' + b"0" * 30 + b"}", b'{"a":1' + b"0" * 5000 + b"}", b'{"a":-9223372036854775809}'],
)  # fmt: skip
def test_a_broken_document_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid, match="Failed to decode body"):
        decode_json(raw)


def test_what_is_written_can_be_read_back() -> None:
    job, _ = decode_job(JOB)
    again, warnings = decode_job(to_wire(job))
    assert (again, warnings) == (job, ())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["ID", "id", "TaskGroups", "Tasks", "Name", "Count", "Config", "Meta", "Update", "x"]),
        inner, max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["ID", "TaskGroups", "taskgroups", "Type", "Update", "Periodic"]), json_values))
def test_any_document_gives_a_job_or_an_invalid(document: dict[str, Any]) -> None:
    try:
        check_bounds(document)
        decode_job(document)
    except Invalid as error:
        assert str(error)


@given(json_values)
def test_what_is_bounded_by_its_text_is_bounded_in_full(document: Any) -> None:
    raw = json.dumps(document).encode()
    assume(b"Infinity" not in raw)  # no JSON, though Python writes it
    if is_plainly_bounded(raw):
        check_bounds(msgspec.json.decode(raw))


def test_null_and_absent_mean_the_same_in_all_parts_of_a_job() -> None:
    for cls in parts_of(inspect.type_info(Job)):
        info = inspect.type_info(cls)
        assert isinstance(info, inspect.StructType)
        assert not info.forbid_unknown_fields, cls
        for field in info.fields:
            kinds = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
            if any(isinstance(kind, inspect.NoneType) for kind in kinds):
                assert field.default is None, (cls, field.name)


@pytest.mark.parametrize("empty", [{}, None])
def test_an_empty_collection_where_null_is_no_value_is_none(empty: Any) -> None:
    service = {"Name": "s", "Provider": "nomad", "Meta": empty, "CanaryMeta": empty}
    task = {"Name": "t", "Driver": "raw_exec", "Services": [service]}
    job, _ = decode_job({**JOB, "TaskGroups": [{"Name": "g", "Tasks": [task]}]})
    assert job.task_groups[0].tasks[0].services[0].meta == {}


def parts_of(kind: inspect.Type) -> set[type]:
    """The types of a value and of all that is in it."""
    found: set[type] = set()
    waiting = [kind]
    while waiting:
        this = waiting.pop()
        if isinstance(this, inspect.StructType) and this.cls not in found:
            found.add(this.cls)
            waiting.extend(field.type for field in this.fields)
        elif isinstance(this, inspect.UnionType):
            waiting.extend(this.types)
        elif isinstance(this, inspect.VarTupleType):
            waiting.append(this.item_type)
        elif isinstance(this, inspect.DictType):
            waiting.append(this.value_type)
    return found
