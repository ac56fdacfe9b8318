"""A log engine that can be read with a pager: one line of text for each batch, and a file for each snapshot."""

import asyncio
import base64
import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import IO

from yurt.sdk.driver import PluginContext
from yurt.sdk.errors import Conflict, Unavailable
from yurt.sdk.log_engines import LogBatch, LogContent, LogEngine
from yurt.sdk.plugin import plugin_function

SNAPSHOTS_KEPT = 2


class Journal:
    """Lines of `digest {"first": 1, "commands": [...]}`, with the last acknowledged index in a separate file.

    An incomplete last line is the remnant of a crash and is cut off, unless that index shows that it was acknowledged.
    """

    name = "journal"

    def __init__(self) -> None:
        self.folder = Path()
        self.file: IO[bytes] | None = None
        self.next_index = 1
        self.failure = ""
        self.has_mark = False

    async def open(self, folder: str) -> LogContent:
        self.folder = Path(folder)
        return await asyncio.to_thread(self.load)

    def load(self) -> LogContent:
        self.file = (self.folder / "journal").open("a+b")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.file.close()
            raise Conflict(f"{self.folder} is in use by another process") from None
        batches = list(self.lines())
        snapshot = max(self.snapshots(), default=0)
        last = batches[-1].first_index + len(batches[-1].commands) - 1 if batches else 0
        if last < self.acknowledged():
            raise Conflict(f"{self.folder}/journal ends at command {last}, {self.acknowledged()} were acknowledged")
        self.file.truncate(len(self.whole_lines()))
        self.next_index = max(last, snapshot) + 1
        self.has_mark = (self.folder / "acknowledged").exists()
        first = batches[0].first_index if batches else 0
        return LogContent(last_index=self.next_index - 1, first_index=first, snapshot_index=snapshot)

    def acknowledged(self) -> int:
        try:
            return int((self.folder / "acknowledged").read_bytes())
        except FileNotFoundError:
            return 0
        except ValueError:
            raise Conflict(f"{self.folder}/acknowledged is damaged") from None

    def whole_lines(self) -> bytes:
        data = (self.folder / "journal").read_bytes()
        return data[: data.rfind(b"\n") + 1]

    def lines(self) -> Iterator[LogBatch]:
        expected = 0
        for line in self.whole_lines().split(b"\n")[:-1]:
            digest, _, body = line.partition(b" ")
            if hashlib.sha256(body).hexdigest().encode() != digest:
                raise Conflict(f"a line of {self.folder}/journal is damaged: {line[:80]!r}")
            found = json.loads(body)
            batch = LogBatch(found["first"], [base64.b64decode(each) for each in found["commands"]])
            if expected and batch.first_index != expected:
                raise Conflict(f"{self.folder}/journal lacks the commands from {expected} on")
            expected = batch.first_index + len(batch.commands)
            yield batch

    async def append(self, batch: LogBatch) -> None:
        if self.failure:
            raise Unavailable(self.failure)
        if batch.first_index != self.next_index:
            raise Conflict(f"the next index is {self.next_index}, not {batch.first_index}")
        try:
            await asyncio.to_thread(self.write, batch)
        except OSError as error:
            self.failure = f"{self.folder}/journal cannot be written: {error}"
            raise Unavailable(self.failure) from None
        self.next_index += len(batch.commands)

    def write(self, batch: LogBatch) -> None:
        commands = [base64.b64encode(each).decode() for each in batch.commands]
        body = json.dumps({"first": batch.first_index, "commands": commands}).encode()
        assert self.file is not None
        self.file.write(hashlib.sha256(body).hexdigest().encode() + b" " + body + b"\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        with (self.folder / "acknowledged").open("r+b" if self.has_mark else "wb") as mark:
            mark.write(b"%020d" % (batch.first_index + len(batch.commands) - 1))
            mark.flush()
            os.fsync(mark.fileno())
        self.has_mark = True

    async def read(self, after: int) -> AsyncIterator[LogBatch]:
        for batch in await asyncio.to_thread(lambda: list(self.lines())):
            if batch.first_index + len(batch.commands) - 1 > after:
                yield batch

    def snapshots(self) -> list[int]:
        return [int(path.suffix[1:]) for path in self.folder.glob("snapshot.*") if path.suffix[1:].isdigit()]

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        await asyncio.to_thread(self.save, index, chunks)

    def save(self, index: int, chunks: Iterable[bytes]) -> None:
        draft, hashing = self.folder / "draft", hashlib.sha256()
        with draft.open("wb") as file:
            file.write(b" " * hashing.digest_size)
            for chunk in chunks:
                hashing.update(chunk)
                file.write(chunk)
            file.seek(0)
            file.write(hashing.digest())
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.folder / f"snapshot.{index}")
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        for old in sorted(self.snapshots())[:-SNAPSHOTS_KEPT]:
            (self.folder / f"snapshot.{old}").unlink()

    async def load_snapshot(self, up_to: int | None) -> tuple[int, Iterable[bytes]] | None:
        return await asyncio.to_thread(self.newest, up_to)

    def newest(self, up_to: int | None) -> tuple[int, Iterable[bytes]] | None:
        for index in sorted(self.snapshots(), reverse=True):
            data = (self.folder / f"snapshot.{index}").read_bytes()
            if (up_to is None or index <= up_to) and hashlib.sha256(data[32:]).digest() == data[:32]:
                return index, (data[32:],)
        return None

    async def trim(self, below: int) -> None:
        """The journal keeps everything: it is there to be read."""

    async def scrub(self) -> str:
        try:
            await asyncio.to_thread(lambda: list(self.lines()))
        except Conflict as error:
            return str(error)
        return ""

    async def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


@plugin_function
def yurt_log_engines(context: PluginContext) -> list[LogEngine]:
    return [Journal()]
