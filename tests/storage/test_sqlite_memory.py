"""A database in memory: each call is a transaction, and nothing is left of deleted rows."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial

import pytest
from yurt.sdk.errors import Unavailable
from yurt.storage.sqlite_memory import SqliteMemory

from tests.storage.test_sqlite_worker import SCHEMA, insert, numbers


async def test_a_function_that_fails_loses_its_changes() -> None:
    database = SqliteMemory(SCHEMA)
    for number in (1, -2, 3):
        if number < 0:
            with pytest.raises(ValueError, match="-2"):
                await database.call(partial(insert, number))
        else:
            await database.call(partial(insert, number))
    assert await database.call(numbers) == [1, 3]
    await database.close()


async def test_the_pages_of_deleted_rows_are_returned() -> None:
    database = SqliteMemory(SCHEMA)

    def pages(connection: sqlite3.Connection) -> int:
        count: int = connection.execute("PRAGMA page_count").fetchone()[0]
        return count

    empty = await database.call(pages)
    await asyncio.gather(*(database.call(partial(insert, number)) for number in range(5_000)))
    assert await database.call(pages) > empty + 10
    await database.call(lambda connection: connection.execute("DELETE FROM numbers").rowcount)
    assert await database.call(pages) == empty
    await database.close()


async def test_a_closed_database_is_unavailable() -> None:
    database = SqliteMemory(SCHEMA)
    await database.close()
    await database.close()
    with pytest.raises(Unavailable, match="the database is closed"):
        await database.call(numbers)
