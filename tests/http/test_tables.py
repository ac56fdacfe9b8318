"""What the event stream and the search say of every table, from its declaration alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from yurt.api.encode import encode_builtins
from yurt.http.resources.events import parse_topics
from yurt.server.views.events import NEEDS, EventFilter
from yurt.state import TABLES, Change, Snapshot
from yurt.structs.commands import AnyCommand, RegisterJob
from yurt.testing.events import events_of
from yurt.testing.http_api import Api
from yurt.testing.rows.filled import filled

WITH_TOPIC = [name for name, table in TABLES.items() if table.topic is not None]
WITH_CONTEXT = [name for name, table in TABLES.items() if table.search is not None]


def row_of(name: str) -> tuple[Any, Any]:
    """A row with something in every field, and its key."""
    table = TABLES[name]
    row = filled(table.codec.row_type, 1)
    assert table.key_of is not None
    return table.key_of(row), row


@pytest.mark.parametrize("name", WITH_TOPIC)
def test_a_changed_row_is_told_to_those_who_want_its_topic_and_key(name: str) -> None:
    key, row = row_of(name)
    change, topic = Change(name, key, None, row), TABLES[name].topic
    (event,) = events_of(7, (change,), RegisterJob.event_type)
    assert topic is not None and topic.name in NEEDS

    def is_told(expected: str) -> bool:
        asked = EventFilter(parse_topics([f"{topic.name}:{expected}"]), event["Namespace"])
        return list(events_of(7, (change,), RegisterJob.event_type, event_filter=asked)) == [event]

    assert all(map(is_told, (event["Key"], *event["FilterKeys"], "*")))
    assert not is_told("other")
    assert all([event["Key"], *event["FilterKeys"]])


@pytest.mark.parametrize("name", WITH_TOPIC)
def test_no_event_tells_a_secret(name: str) -> None:
    key, row = row_of(name)
    (event,) = events_of(7, (Change(name, key, None, row),), RegisterJob.event_type)
    assert not [path for path, text in _texts(json.loads(encode_builtins(event))) if text.startswith("secret")]


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if table.topic is None])
def test_a_table_without_a_topic_has_no_events(name: str) -> None:
    row = filled(TABLES[name].codec.row_type, 1)
    kinds = [command.event_type for command in get_args(AnyCommand)]
    assert not [event for kind in kinds for event in events_of(7, (Change(name, "", None, row),), kind)]


@pytest.mark.parametrize("name", WITH_CONTEXT)
async def test_a_row_is_found_by_the_beginning_of_its_id_and_by_its_name(api: Api, name: str) -> None:
    key, row = row_of(name)
    search = TABLES[name].search
    assert search is not None
    namespace, row_id, label = search.entry(row)
    edit = Snapshot.empty().edit(9)
    edit.put(TABLES[name], key, row)
    api.server.log.writer.state = edit.commit()
    query = f"?namespace={namespace}" if namespace else ""
    found = (await api.put(f"/v1/search{query}", {"Prefix": row_id[:4], "Context": search.name})).json
    assert row_id in found["Matches"][search.name]
    found = (await api.put(f"/v1/search/fuzzy{query}", {"Text": (label or row_id)[:4], "Context": "all"})).json
    shown = label if search.is_shown_by_name else row_id
    assert shown in [match["ID"] for match in found["Matches"][search.name]]


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _texts(each, f"{path}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, path)
    elif isinstance(value, str):
        yield path, value
