"""Lists as columns: filters, facets, order and pages agree with a slow and obvious reading of the query."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.readmodels.job_facts import JobFacts
from yurt.readmodels.kinds import JOBS, KINDS
from yurt.readmodels.node_facts import NodeFacts
from yurt.readmodels.query import PER_PAGE_MAX, Asked, parse_query, token_of
from yurt.readmodels.selection import VERDICTS_MAX, SelectedRows, Selection, Verdicts, text_of
from yurt.sdk.errors import Invalid
from yurt.testing import factories

STATUS, POOLS = ("running", "failed", "waiting"), ("default", "gpu", "")


def row(number: int, status: str, pool: str, running: int, hosts: tuple[str, ...], owner: str) -> JobFacts:
    name = f"job-{number}"
    return JobFacts(
        id=name, namespace="default" if number % 2 else "ops", name=name, status=status, node_pool=pool,
        running=running, datacenters=hosts, meta={"owner": owner} if owner else {}, needs_promotion=running > 2,
        searched=f"{name}\0{pool}".casefold(),
    )  # fmt: skip


ROWS = st.lists(
    st.builds(
        row, st.integers(0, 99), st.sampled_from(STATUS), st.sampled_from(POOLS), st.integers(0, 4),
        st.lists(st.sampled_from(("dc1", "dc2", "*")), unique=True, max_size=2).map(tuple),
        st.sampled_from(("", "ann")),
    ),
    max_size=40, unique_by=lambda each: each.id,
)  # fmt: skip
SORT = st.sampled_from(
    ("", "Status", "-Status", "Running,-NodePool", "-Running,Status,-ID", "Datacenters", "-Meta.owner,Running",
     "NeedsPromotion,-Datacenters")
)  # fmt: skip
WHERE = st.lists(
    st.sampled_from(
        ("Status:failed", "Status:running", "NodePool:gpu", "NodePool:", "NeedsPromotion:true", "Datacenters:dc1",
         "Meta.owner:ann", "Running:2")
    ),
    max_size=3,
).map(tuple)  # fmt: skip
SEARCH = st.sampled_from(("", "job", "JOB-1", "1 gpu", "none such"))
FILTERS = ("", "Running == 2", 'Status == "failed" or NodePool == "gpu"', '"dc1" in Datacenters', 'Meta.owner == "ann"')


def selected(rows: list[JobFacts], asked: Asked, *, slice_size: int = 7) -> SelectedRows:
    selection = Selection(JOBS, parse_query(JOBS, asked))
    for start in range(0, len(rows), slice_size):
        selection.add(rows[start : start + slice_size])
    return selection.page()


def holds_filter(each: JobFacts, text: str) -> bool:
    match FILTERS.index(text):
        case 0:
            return True
        case 1:
            return each.running == 2
        case 2:
            return each.status == "failed" or each.node_pool == "gpu"
        case 3:
            return "dc1" in each.datacenters
        case _:
            return each.meta.get("owner") == "ann"


def values_of(each: JobFacts, name: str) -> tuple[Any, ...]:
    found = JOBS.field(name)(each)
    return found if isinstance(found, tuple) else (found,)


def holds_where(each: JobFacts, where: tuple[str, ...], *, but: str = "") -> bool:
    names = {text.partition(":")[0] for text in where} - {but}
    return all(
        any(text_of(value) == text.partition(":")[2] for value in values_of(each, name) for text in where
            if text.partition(":")[0] == name)
        for name in names
    )  # fmt: skip


def in_order(rows: list[JobFacts], sort: str) -> list[JobFacts]:
    found = sorted(rows, key=lambda each: (each.namespace, each.id))
    for name in reversed(sort.split(",") if sort else []):
        found.sort(key=JOBS.field(name.removeprefix("-")), reverse=name.startswith("-"))
    return found


@settings(deadline=None, max_examples=50)
@given(ROWS, SORT, WHERE, SEARCH, st.sampled_from(FILTERS), st.integers(1, 9))
def test_all_pages_together_are_the_list_in_its_order(
    rows: list[JobFacts], sort: str, where: tuple[str, ...], search: str, filter: str, per_page: int
) -> None:
    words = search.casefold().split()
    candidates = [each for each in rows if all(word in each.searched for word in words) and holds_filter(each, filter)]
    expected = in_order([each for each in candidates if holds_where(each, where)], sort)
    found, token, pages = list[tuple[str, str]](), "", 0
    while True:
        asked = Asked(
            fields="Namespace,ID", sort=sort, where=where, search=search, filter=filter, per_page=per_page,
            next_token=token, facets="Status,NodePool",
        )  # fmt: skip
        page = selected(rows, asked)
        assert page.total == len(expected)
        found += zip(page.columns["Namespace"], page.columns["ID"], strict=True)
        pages += 1
        for name in ("Status", "NodePool"):
            counts = Counter(JOBS.field(name)(each) for each in candidates if holds_where(each, where, but=name))
            assert dict(page.facets[name].values) == counts
        token = page.next_token
        if not token:
            break
        assert pages <= len(rows)
    assert found == [(each.namespace, each.id) for each in expected]


def test_more_rows_than_are_kept_give_the_same_first_page() -> None:
    rows = [row(number, "running", "default", number % 7, (), "") for number in range(5_000)]
    page = selected(rows, Asked(fields="ID", sort="-Running", per_page=3), slice_size=400)
    assert page.total == 5_000
    assert page.columns["ID"] == [each.id for each in in_order(rows, "-Running")[:3]]


def test_a_row_that_leaves_between_two_pages_moves_no_other() -> None:
    rows = [row(number, "running", "default", 1, (), "") for number in range(1, 20, 2)]
    first = selected(rows, Asked(fields="ID", per_page=4))
    rest = [each for each in rows if each.id not in (first.columns["ID"][1], first.columns["ID"][3])]
    second = selected(rest, Asked(fields="ID", per_page=4, next_token=first.next_token))
    assert not set(first.columns["ID"]) & set(second.columns["ID"])
    assert second.columns["ID"] == sorted(each.id for each in rows)[4:8]


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Asked(fields="ID,Nope"), 'jobs have no field "Nope"; the fields are ID, Namespace'),
        (Asked(sort="-Nope"), 'no field "Nope"'),
        (Asked(sort="ID,Name,Type,Status"), "sort names 4 fields; 3 is the most"),
        (Asked(where=("Status",)), "is not Field:value"),
        (Asked(where=("<b>:x",)), 'no field "<b>"'),
        (Asked(facets="Meta."), 'no field "Meta."'),
        (Asked(per_page=PER_PAGE_MAX + 1), "is the largest page"),
        (Asked(per_page=-1), "is the largest page"),
        (Asked(search="x" * 257), "search is longer"),
        (Asked(next_token="!!!"), "next_token is not one"),
        (Asked(next_token="W10"), "next_token is not one"),
        (Asked(next_token="x" * 9_000), "next_token is not one"),
        (Asked(filter="Nope == 1"), "Nope"),
        (Asked(filter="Status =="), "failed to read filter"),
    ],
)
def test_a_bad_request_is_told_what_is_wrong(asked: Asked, text: str) -> None:
    with pytest.raises(Invalid, match=re.escape(text)):
        selected([row(1, "running", "default", 1, (), "")], asked)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.lists(st.text())), min_size=3, max_size=3)
)
def test_a_forged_token_is_refused_or_harmless(values: list[Any]) -> None:
    rows = [row(number, "running", "default", number, ("dc1",), "") for number in range(3)]
    try:
        selected(rows, Asked(fields="ID", sort="Running", next_token=token_of(tuple(values))))
    except Invalid as error:
        assert "next_token" in str(error)


def test_every_field_of_every_kind_can_be_shown_sorted_and_counted() -> None:
    samples: dict[str, list[Any]] = {
        "jobs": [JobFacts(), row(1, "failed", "gpu", 2, ("dc1",), "ann")],
        "nodes": [NodeFacts(), NodeFacts(id="n", drivers=("mock",))],
        "allocations": [factories.alloc(), factories.alloc(index=1)],
    }
    for name, kind in KINDS.items():
        for field in kind.fields:
            query = parse_query(kind, Asked(fields=field, sort=f"-{field}", facets=field))
            selection = Selection(kind, query)
            selection.add(samples[name])
            page = selection.page()
            assert len(page.columns[field]) == len(samples[name]), (name, field)
        assert set(kind.defaults) | set(kind.key) <= set(kind.fields)


def test_verdicts_on_a_field_that_changes_for_ever_stay_bounded() -> None:
    verdicts = Verdicts(lambda row: row, frozenset({"7"}))

    assert [value for value in verdicts.of_rows(range(2 * VERDICTS_MAX)) if value] == [True]
    assert len(verdicts) <= VERDICTS_MAX
    assert verdicts.of_rows([7, 8]) == [True, False]
