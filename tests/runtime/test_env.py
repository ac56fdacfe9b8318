"""Ids: fresh ones each time, in each thread and each process."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

from yurt.runtime.env import DRAWN_IDS, RealEnv


def test_ids_are_random_uuids() -> None:
    for _ in range(2 * DRAWN_IDS):
        text = RealEnv().uuid()
        found = uuid.UUID(text)
        assert (str(found), found.version, found.variant) == (text, 4, uuid.RFC_4122)


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(4) as threads:
        parts = threads.map(lambda _: [RealEnv().uuid() for _ in range(2000)], range(4))
        found = [each for part in parts for each in part]
    assert len(set(found)) == len(found) == 8000


def test_a_forked_process_draws_ids_of_its_own() -> None:
    RealEnv().uuid()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, RealEnv().uuid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 36).decode()
    os.close(reader)
    os.close(writer)
    assert theirs not in {RealEnv().uuid() for _ in range(DRAWN_IDS)}
