"""References in a job that no node replaces are warned of, with what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from yurt.api.decode import decode_job
from yurt.rules.references import label_problems, reference_doubts

NODE_NAMES = ("attr.kernel.name", "attr.cpu.arch", "meta.rack")


def job(*, task: dict[str, Any] | None = None, **group: Any) -> dict[str, Any]:
    """A job with these fields in its group and its task, and a port `http`."""
    made = {"Name": "t", "Driver": "d", **(task or {})}
    networks = [{"DynamicPorts": [{"Label": "http"}, {"Label": "two-words"}]}]
    return {"ID": "j", "TaskGroups": [{"Name": "g", "Networks": networks, "Tasks": [made], **group}]}


def doubts(document: dict[str, Any]) -> list[str]:
    def lacks(name: str) -> Iterable[str] | None:
        kind = name.partition(".")[0]
        return None if name in NODE_NAMES else [each[5:] for each in NODE_NAMES if each.startswith(kind)]

    return list(reference_doubts(decode_job(document)[0], lacks))


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


@pytest.mark.parametrize("target", ["${node.class}", "${node.region}", "${attr.cpu.arch}", "${meta.rack}", "linux"])
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
            'there is no variable NOMAD_ALOC_ID, so the text stays as it is (did you mean "${NOMAD_ALLOC_ID}"?)',
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
        "${NOMAD_PORT_other_http}", "${NOMAD_TOKEN_db}", "${NOMAD_SHORT_ALLOC_ID}", "${env[\"NOMAD_DC\"]}", "$${x",
    ],
)  # fmt: skip
def test_a_text_that_may_be_meant_is_not_warned_of(text: str) -> None:
    assert doubts(job(task={"Config": {"args": [text]}})) == []


def test_a_template_may_define_any_variable() -> None:
    task = {"Templates": [{"Envvars": True}], "Env": {"NOMAD_ALOC_ID": "x"}, "Config": {"a": "${NOMAD_PORT_db}"}}
    assert doubts(job(task=task)) == []


def test_a_port_label_of_a_driver_must_be_one_of_the_group() -> None:
    group = decode_job(job())[0].task_groups[0]

    assert list(label_problems(["http", "${NOMAD_META_port}", "two-words"], group)) == []
    assert list(label_problems(["htp"], group)) == ['config.ports: the group has no port "htp" (did you mean "http"?)']
    (told,) = label_problems(["metrics"], group)
    assert told.endswith('(add port "metrics" to its network block)')
