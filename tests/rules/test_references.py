"""References in a job that no node replaces are warned of, with what was probably meant."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import pytest
from yurt.api.decode import decode_job
from yurt.rules import references
from yurt.rules.bounds import PORTS_MAX, is_costly
from yurt.rules.references import DOUBTS_MAX, TASK_NAMES, label_problems, reference_doubts

NODE_NAMES = ("attr.kernel.name", "attr.cpu.arch", "meta.rack")


def job(*, task: dict[str, Any] | None = None, **group: Any) -> dict[str, Any]:
    """A job with these fields in its group and its task, and a port `http`."""
    made = {"Name": "t", "Driver": "d", **(task or {})}
    networks = [{"DynamicPorts": [{"Label": "http"}, {"Label": "two-words"}]}]
    return {"ID": "j", "TaskGroups": [{"Name": "g", "Networks": networks, "Tasks": [made], **group}]}


class Names:
    """The names that the nodes of a test have."""

    def has(self, name: str) -> bool | None:
        return name in NODE_NAMES

    def nearest(self, name: str) -> str | None:
        return next(iter(get_close_matches(name, NODE_NAMES, n=1, cutoff=0.75)), None)


def ports(label: str) -> dict[str, Any]:
    """The resources of a task with a port of its own."""
    return {"Networks": [{"DynamicPorts": [{"Label": label}]}]}


def doubts(document: dict[str, Any]) -> list[str]:
    return list(reference_doubts(decode_job(document)[0], Names()))


def constraint(target: str, operand: str = "=") -> dict[str, Any]:
    return {"LTarget": target, "RTarget": "x", "Operand": operand}


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("${node.clas}", 'no node has ${node.clas} (did you mean "${node.class}"?)'),
        ("${kernel.name}", 'no node has ${kernel.name} (did you mean "${attr.kernel.name}"?)'),
        ("${attr.kernel.nam}", 'no node has the attribute "kernel.nam" (did you mean "${attr.kernel.name}"?)'),
        ("${attr.gpu}", 'no node has the attribute "gpu"'),
        ("${meta.rak}", 'no node has the metadata "rak" (did you mean "${meta.rack}"?)'),
        ("kernel.name", '"kernel.name" is plain text, the same for every node (did you mean "${attr.kernel.name}"?)'),
        ("${node.region}", "no node has ${node.region}"),
        (
            "${ node.class }",
            '"${ node.class }" has blanks inside of its braces, so no node has it (write "${node.class}")',
        ),
        ("node.class", '"node.class" is plain text, the same for every node (did you mean "${node.class}"?)'),
    ],
)
def test_a_constraint_that_looks_at_nothing_is_warned_of(target: str, told: str) -> None:
    assert doubts(job(Constraints=[constraint(target)])) == [f'Group "g" has warnings: Constraint 1: {told}']


def test_affinities_spreads_and_other_levels_have_their_places() -> None:
    document = job(
        Affinities=[constraint("${node.clas}")],
        Spreads=[{"Attribute": "${attr.cpu.arc}", "Weight": 50}],
        task={"Constraints": [constraint("${node.clas}")]},
    ) | {"Constraints": [constraint("${attr.cpu.arch}"), constraint("${node.clas}")]}

    places = [line.partition(": no node")[0] for line in doubts(document)]

    group = 'Group "g" has warnings: '
    inner = f'{group}Task "t" has warnings: '
    assert places == ["Constraint 2", f"{group}Affinity 1", f"{group}Spread 1", f"{inner}Constraint 1"]


@pytest.mark.parametrize(
    "target", ["${node.class}", "${attr.cpu.arch}", "${meta.rack}", "linux", "eu.west", "meta.none"]
)
def test_what_nodes_have_is_not_warned_of(target: str) -> None:
    assert doubts(job(Constraints=[constraint(target)])) == []


def test_asking_whether_something_is_set_is_not_warned_of() -> None:
    assert doubts(job(Constraints=[constraint("${attr.gpu}", "is_not_set"), constraint("${meta.x}", "is_set")])) == []
    assert doubts(job(Affinities=[constraint("${attr.platform.aws}")])) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${node.clas}", 'no node has ${node.clas}, so the text stays as it is (did you mean "${node.class}"?)'),
        ("a${attr.cpu.arc}b", 'no node has the attribute "cpu.arc" (did you mean "${attr.cpu.arch}"?)'),
        (
            "${NOMAD_PORT_htp}",
            'the group has no port "htp", so NOMAD_PORT_htp is not set (did you mean "${NOMAD_PORT_http}"?)',
        ),
        (
            "${NOMAD_HOST_ADDR_db}",
            'the group has no port "db", so NOMAD_HOST_ADDR_db is not set (add the port to its network block)',
        ),
        (
            "${NOMAD_ALOC_ID}",
            'variable NOMAD_ALOC_ID does not exist, so the text stays as it is (did you mean "${NOMAD_ALLOC_ID}"?)',
        ),
    ],
)
def test_a_text_of_a_task_that_stays_as_it_is_is_warned_of(text: str, told: str) -> None:
    place = 'Group "g" has warnings: Task "t" has warnings: '
    assert doubts(job(task={"Config": {"args": ["-x", text]}})) == [f"{place}config.args: {told}"]
    assert doubts(job(task={"Env": {"A": text}})) == [f"{place}env.A: {told}"]


@pytest.mark.parametrize(
    "text",
    [
        "${HOME}", "${attr.none.like.it}", "${NOMAD_META_owner}", "${NOMAD_PORT_http}", "${NOMAD_ADDR_two_words}",
        "${NOMAD_PORT_other_admin}", "${NOMAD_ADDR_own}", "${NOMAD_TOKEN_db}", "${NOMAD_UPSTREAM_ADDR_db}",
        "${NOMAD_ALOC_ID:0:8}", "${NOMAD_ALOC_INDEX:-0}", "${NOMAD_ALOC_INDEX-0}", "${node.x:-y}", "${node.region}",
        "${NOMAD_SHORT_ALLOC_ID}", "${env[\"NOMAD_DC\"]}", "$${x",
    ],
)  # fmt: skip
def test_a_text_that_may_be_meant_is_not_warned_of(text: str) -> None:
    document = job(task={"Config": {"args": [text]}, "Resources": ports("own")})
    document["TaskGroups"][0]["Tasks"].append({"Name": "other", "Driver": "d", "Resources": ports("admin")})
    assert doubts(document) == []


@pytest.mark.parametrize("name", TASK_NAMES)
def test_metadata_may_be_named_like_a_variable(name: str) -> None:
    assert doubts(job(task={"Config": {"args": [f"${{NOMAD_META_{name.removeprefix('NOMAD_')}}}"]}})) == []


@pytest.mark.parametrize(
    "name", ["NOMAD_PORT_other_http", "NOMAD_PORT_admin", "NOMAD_PORT_t_own", "NOMAD_PORT_x_admin"]
)
def test_a_port_of_another_task_is_named_with_that_task(name: str) -> None:
    document = job(task={"Config": {"args": [f"${{{name}}}"]}, "Resources": ports("own")})
    document["TaskGroups"][0]["Tasks"].append({"Name": "other", "Driver": "d", "Resources": ports("admin")})
    (told,) = doubts(document)
    assert f"so {name} is not set" in told


def test_only_so_many_references_are_warned_of() -> None:
    texts = [f"${{node.clas{number}}}" for number in range(DOUBTS_MAX + 5)]

    told = doubts(job(task={"Config": {"args": texts}}))

    assert len(told) == DOUBTS_MAX + 1
    assert told[-1] == "more references have no value; the first 20 are named"
    assert len(doubts(job(task={"Config": {"args": texts[:DOUBTS_MAX]}}))) == DOUBTS_MAX


@pytest.mark.parametrize("fields", [{"Config": {"a": [{"b": ["${x} ${y}"] * 40}]}}, {"Env": {"A": "${x}" * 80}}])
def test_a_job_with_many_references_is_checked_in_a_thread(fields: dict[str, Any]) -> None:
    assert is_costly(decode_job(job(task=fields))[0])
    assert not is_costly(decode_job(job(task={"Config": {"a": ["${x}"] * 9}}))[0])


def test_a_template_may_define_any_variable() -> None:
    task = {"Templates": [{"Envvars": True}], "Env": {"NOMAD_ALOC_ID": "x"}, "Config": {"a": "${NOMAD_PORT_db}"}}
    assert doubts(job(task=task)) == []


def test_a_port_label_of_a_driver_must_be_one_of_the_group() -> None:
    group = decode_job(job(task={"Resources": ports("own")}))[0].task_groups[0]
    (task,) = group.tasks

    assert list(label_problems(["http", "${NOMAD_META_port}", "two-words", "own"], group, task)) == []
    assert list(label_problems(["htp"], group, task)) == [
        'config.ports: the group has no port "htp" (did you mean "http"?)'
    ]
    (told,) = label_problems(["metrics"], group, task)
    assert told.endswith('(add port "metrics" to its network block)')
    assert len(list(label_problems(["x"] * 1_000, group, task))) == DOUBTS_MAX


def many_ports(count: int) -> list[dict[str, Any]]:
    return [{"DynamicPorts": [{"Label": f"port-{number}"} for number in range(count)]}]


def test_the_ports_of_a_task_are_collected_once_for_all_its_references(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[int] = []
    port_labels = references.port_labels
    monkeypatch.setattr(references, "port_labels", lambda *owner: collected.append(1) or port_labels(*owner))
    env = {f"E{number}": f"${{NOMAD_PORT_port_{number}}}" for number in range(50)}
    document = job(task={"Env": env}, Networks=many_ports(100))
    assert doubts(document) == []
    assert collected == [1]


class Label(str):
    """A label that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Label.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_labels_of_a_drivers_option_are_not_compared_with_each_port() -> None:
    group = decode_job(job(Networks=many_ports(PORTS_MAX)))[0].task_groups[0]
    labels = [Label(f"port-{PORTS_MAX - 1 - number % 5}") for number in range(100)]
    Label.compared = 0
    assert list(label_problems(labels, group, group.tasks[0])) == []
    assert Label.compared <= 2 * len(labels)
