"""Commands in a virtual machine by the agent in the guest: a peer that speaks its protocol, and a real guest."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import boot_sector
import pytest
import pytest_asyncio
from test_qemu_machine import Machines, machines
from yurt.sdk.driver import ExecResult, TaskHandle
from yurt.sdk.errors import DriverError
from yurt.sdk.exec import ExecOutput
from yurt.sdk.value import seconds
from yurt.testing.services import guest
from yurt_driver_qemu import guest_agent
from yurt_driver_qemu.guest_agent import GuestAgent

PARTS = guest.find_parts()
MISSING = [program for program in ("qemu-system-x86_64", "busybox", "ldd") if shutil.which(program) is None]
Answer = Callable[[dict[str, Any]], Any]


class Peer:
    """Speaks as qemu-ga does: it answers `guest-sync-delimited`, and `answer` decides about the rest."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.heard: list[dict[str, Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        while line := await reader.readline():
            message = json.loads(line.lstrip(b"\xff"))
            if message["execute"] == "guest-sync-delimited":
                stale = json.dumps({"return": {}}).encode() + b"\n"
                writer.write(stale + b"\xff" + json.dumps({"return": message["arguments"]["id"]}).encode() + b"\n")
                continue
            self.heard.append(message)
            reply = self._answer(message)
            if reply is not None:
                writer.write(json.dumps(reply).encode() + b"\n")
        writer.close()


class Talk:
    """A peer and the agent's side of it."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "qa.sock")
        self._server: asyncio.Server | None = None

    async def with_peer(self, answer: Answer) -> tuple[GuestAgent, Peer]:
        peer = Peer(answer)
        self._server = await asyncio.start_unix_server(peer.serve, self._path)
        return GuestAgent(self._path), peer

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


@pytest_asyncio.fixture
async def talk(tmp_path: Path) -> AsyncIterator[Talk]:
    made = Talk(tmp_path)
    yield made
    await made.close()


def ending(*statuses: dict[str, Any]) -> Answer:
    """A guest whose one command goes through these states."""
    left = list(statuses)

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        if message["execute"] == "guest-exec":
            return {"return": {"pid": 71}}
        return {"return": left.pop(0) if len(left) > 1 else left[0]}

    return answer


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_a_command_is_begun_and_asked_for_until_it_has_ended(talk: Talk) -> None:
    ended = {"exited": True, "exitcode": 4, "out-data": encoded(b"inside\n"), "err-data": encoded(b"oh\n")}
    agent, peer = await talk.with_peer(ending({"exited": False}, {"exited": False}, ended))

    found = await agent.run(("sh", "-c", "exit 4"), timeout=seconds(10))

    assert found == ExecResult(exit_code=4, stdout=b"inside\n", stderr=b"oh\n")
    assert peer.heard[0]["arguments"] == {"path": "sh", "arg": ["-c", "exit 4"], "capture-output": True}
    assert [each["execute"] for each in peer.heard[1:]] == ["guest-exec-status"] * 3


async def test_a_signal_is_an_exit_code_as_a_shell_tells_it(talk: Talk) -> None:
    agent, _ = await talk.with_peer(ending({"exited": True, "signal": 9}))
    assert (await agent.run(("sleep", "9"), timeout=seconds(10))).exit_code == 137


async def test_a_command_that_takes_too_long_is_killed_in_the_guest(talk: Talk) -> None:
    agent, peer = await talk.with_peer(ending({"exited": False}))
    with pytest.raises(DriverError, match=r"did not end within 0\.2 s"):
        await agent.run(("sleep", "9"), timeout=seconds(0.2))
    assert peer.heard[-1]["arguments"]["path"] == "kill"
    assert peer.heard[-1]["arguments"]["arg"] == ["-9", "71"]


async def test_what_the_guest_refuses_is_told_in_its_words(talk: Talk) -> None:
    reason = "Command guest-exec has been disabled"
    agent, _ = await talk.with_peer(lambda message: {"error": {"class": "CommandNotFound", "desc": reason}})
    with pytest.raises(DriverError, match=reason):
        await agent.run(("true",), timeout=seconds(10))


@pytest.mark.parametrize("reply", [{"return": {"pid": "many"}}, {"return": 7}, {"unheard": {}}])
async def test_an_answer_that_is_none_is_an_error(talk: Talk, reply: dict[str, Any]) -> None:
    agent, _ = await talk.with_peer(lambda message: reply)
    with pytest.raises(DriverError, match="cannot be talked to"):
        await agent.run(("true",), timeout=seconds(10))


async def test_a_guest_without_an_agent_is_named_after_a_bounded_wait(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_agent, "ANSWER_LIMIT_S", 0.2)
    agent, _ = await talk.with_peer(lambda message: None)
    with pytest.raises(DriverError, match="is qemu-guest-agent installed in the guest"):
        await agent.run(("true",), timeout=seconds(10))


@pytest.mark.skipif(bool(MISSING), reason=f"{', '.join(MISSING)} not installed (apt install qemu-system-x86)")
async def test_a_task_without_guest_agent_says_how_to_get_one(tmp_path: Path) -> None:
    bench = machines(tmp_path, {})
    try:
        handle = await bench.boot(boot_sector.waits())
        with pytest.raises(DriverError, match="set guest_agent = true"):
            await bench.driver.exec_task(handle.task_id, ("hostname",), timeout=seconds(5))
    finally:
        await bench.close()


async def booted(bench: Machines, folder: Path) -> TaskHandle:
    """A guest with Linux, busybox and the agent; its disk stays empty."""
    assert PARTS is not None
    (folder / "initramfs").write_bytes(guest.initramfs(PARTS))
    handle = await bench.boot(
        boot_sector.waits(),
        guest_agent=True,
        args=[
            *("-kernel", str(PARTS.kernel), "-initrd", str(folder / "initramfs")),
            *("-append", "console=ttyS0 quiet panic=-1"),
        ],
    )
    await bench.wait_printed("guest is up", limit_s=100)
    return handle


@pytest.mark.skipif(
    PARTS is None or bool(MISSING),
    reason="no kernel and guest agent for a guest: .ci/run unpacks Debian's linux-image-cloud-amd64 and "
    "qemu-guest-agent below /opt/yurt-guest",
)
async def test_commands_run_in_a_real_guest_also_for_the_next_agent(tmp_path: Path) -> None:
    bench = machines(tmp_path, {"args_allowlist": ["*"]})
    try:
        handle = await booted(bench, tmp_path)
        found = await bench.driver.exec_task(
            handle.task_id, ("sh", "-c", "cat /proc/sys/kernel/ostype; echo oh >&2; exit 4"), timeout=seconds(20)
        )
        assert found == ExecResult(exit_code=4, stdout=b"Linux\n", stderr=b"oh\n")
        with pytest.raises(DriverError, match="no/such/program"):
            await bench.driver.exec_task(handle.task_id, ("/no/such/program",), timeout=seconds(5))
        with pytest.raises(DriverError, match="did not end within"):
            await bench.driver.exec_task(handle.task_id, ("sleep", "4321"), timeout=seconds(0.5))

        await bench.throw_away()
        await bench.driver.recover_task(handle)
        session = await bench.driver.exec_stream(handle.task_id, ("sh", "-c", "ps; seq 100000"), tty=False)
        pieces: list[ExecOutput] = [piece async for piece in session.output()]
        assert await session.wait() == 0
        await session.close()
        said = b"".join(piece.data for piece in pieces)
        assert b"sleep 4321" not in said and said.endswith(b"\n100000\n")
    finally:
        await bench.close()
