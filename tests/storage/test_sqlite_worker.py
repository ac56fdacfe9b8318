"""Functions that run in transactions: what one of them wrote before it failed is gone, alone or beside others."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial
from pathlib import Path

import pytest
from yurt.sdk.errors import Conflict
from yurt.storage.sqlite_worker import SqliteWorker

SCHEMA = "CREATE TABLE IF NOT EXISTS numbers (number INTEGER NOT NULL)"


def insert(number: int, connection: sqlite3.Connection) -> None:
    """Write a number; negative ones fail after that."""
    connection.execute("INSERT INTO numbers VALUES (?)", (number,))
    if number < 0:
        raise ValueError(number)


def numbers(connection: sqlite3.Connection) -> list[int]:
    """What is there."""
    return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


@pytest.mark.parametrize("together", [1, 5])
async def test_a_function_that_fails_loses_its_own_changes_alone(tmp_path: Path, together: int) -> None:
    worker = SqliteWorker(tmp_path / "numbers.db", schema=SCHEMA, name="numbers")
    expected = [1, -2, 3, -4, 5, 6]
    try:
        told: list[BaseException | None] = []
        for first in range(0, len(expected), together):
            part = expected[first : first + together]
            calls = (worker.call(partial(insert, number)) for number in part)
            told += await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(error, ValueError) for error in told] == [number < 0 for number in expected]
        assert await worker.call(numbers) == [1, 3, 5, 6]
        assert worker.failure == ""
    finally:
        await worker.close()


def insert_checked(number: int, connection: sqlite3.Connection) -> None:
    """Write a number; negative ones fail before that."""
    if number < 0:
        raise ValueError(number)
    connection.execute("INSERT INTO numbers VALUES (?)", (None if number == 0 else number,))


@pytest.mark.parametrize("together", [1, 5])
async def test_a_single_statement_is_a_transaction_by_itself(tmp_path: Path, together: int) -> None:
    worker = SqliteWorker(tmp_path / "numbers.db", schema=SCHEMA, name="numbers")
    ran: list[str] = []
    numbers_sent = [1, -2, 0, 4, 5]
    try:
        await worker.call(lambda connection: connection.set_trace_callback(ran.append))
        ran.clear()
        told: list[BaseException | None] = []
        for first in range(0, len(numbers_sent), together):
            part = numbers_sent[first : first + together]
            calls = (worker.call(partial(insert_checked, number), is_statement=True) for number in part)
            told += await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in told] == [type(None), ValueError, Conflict, type(None), type(None)]
        if together == 1:
            assert [each.split()[0] for each in ran] == ["INSERT"] * 4
        assert await worker.call(numbers) == [1, 4, 5]
        assert worker.failure == ""
    finally:
        await worker.close()
