"""Fingerprints of packages on a client: their attributes, their failures, and their exclusion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from yurt.client.config import AddedHooks, FingerprintRetry
from yurt.sdk.errors import DriverError, Invalid, Unavailable
from yurt.sdk.fingerprints import ATTRIBUTES_MAX, node_attributes
from yurt.testing.fakes import FakeServerPort, eventually

from .conftest import MakeClient


class Rack:
    """Answers what the test puts into it: attributes, or a failure."""

    name = "rack"

    def __init__(self, *answers: Mapping[str, str] | Exception) -> None:
        self.answers: asyncio.Queue[Mapping[str, str] | Exception] = asyncio.Queue()
        for each in answers:
            self.answers.put_nowait(each)

    async def fingerprint(self) -> AsyncIterator[Mapping[str, str]]:
        while True:
            answer = await self.answers.get()
            if isinstance(answer, Exception):
                raise answer
            yield answer

    async def close(self) -> None:
        """Nothing is held."""


def added(rack: Rack) -> AddedHooks:
    """The package's part of a client's configuration."""
    return AddedHooks(fingerprints={"rack": rack})


def of_rack(server: FakeServerPort) -> dict[str, str]:
    """The attributes of the fingerprint, as the servers know them."""
    (node,) = server.nodes.values()
    return {name: value for name, value in node.attributes.items() if "rack" in name}


async def test_the_first_registration_has_the_attributes(run_client: MakeClient, server: FakeServerPort) -> None:
    async with run_client(added=added(Rack({"row": "7", "unique.slot": "12"}))):
        assert of_rack(server) == {"rack.row": "7", "unique.rack.slot": "12"}


async def test_an_answer_replaces_the_former_one(run_client: MakeClient, server: FakeServerPort) -> None:
    rack = Rack({"row": "7", "unique.slot": "12"})
    async with run_client(added=added(rack)):
        rack.answers.put_nowait({"row": "8"})
        await eventually(lambda: of_rack(server) == {"rack.row": "8"})


@pytest.mark.parametrize("answer", [Unavailable("no file"), {"row": 7}, {"a b": "c"}])
async def test_a_failure_is_told_and_the_node_is_ready_all_the_same(
    run_client: MakeClient, server: FakeServerPort, answer: Mapping[str, str] | Exception
) -> None:
    async with run_client(added=added(Rack(answer))) as client:
        assert client.is_ready
        (name,) = of_rack(server)
        assert name == "fingerprint.rack.reason"
        await eventually(lambda: "Fingerprint rack failed" in messages(server))


async def test_a_failed_one_keeps_its_attributes_and_is_asked_again(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    rack = Rack({"row": "7"})
    async with run_client(added=added(rack), fingerprint_retries={"rack": FingerprintRetry(interval_s=0.01)}):
        rack.answers.put_nowait(Unavailable("no file"))
        await eventually(lambda: len(of_rack(server)) == 2)
        assert of_rack(server) == {"rack.row": "7", "fingerprint.rack.reason": "Unavailable: no file"}
        rack.answers.put_nowait({"row": "8"})
        await eventually(lambda: of_rack(server) == {"rack.row": "8"})
        await eventually(lambda: "Fingerprint rack: works again" in messages(server))


async def test_a_failed_one_is_not_asked_again_after_its_attempts(
    run_client: MakeClient, server: FakeServerPort
) -> None:
    rack = Rack(Unavailable("first"), Unavailable("second"), {"row": "7"})
    retry = FingerprintRetry(interval_s=0.001, attempts=1)
    async with run_client(added=added(rack), fingerprint_retries={"rack": retry}):
        await eventually(lambda: "second" in messages(server))
        await asyncio.sleep(0.01)
        assert rack.answers.qsize() == 1 and "rack.row" not in of_rack(server)


async def test_a_failed_one_ends_the_agent_where_the_operator_wants_that(run_client: MakeClient) -> None:
    retry = {"rack": FingerprintRetry(ends_agent=True)}
    with pytest.RaisesGroup(pytest.RaisesExc(DriverError, match="exit_on_failure.*no file"), flatten_subgroups=True):
        async with run_client(added=added(Rack(Unavailable("no file"))), fingerprint_retries=retry):
            await asyncio.sleep(5)


async def test_an_excluded_one_is_not_asked(run_client: MakeClient, server: FakeServerPort) -> None:
    rack = Rack({"row": "7"})
    async with run_client(added=added(rack), options={"fingerprint.denylist": "rack"}):
        assert not of_rack(server) and rack.answers.qsize() == 1


def test_too_many_attributes_are_refused() -> None:
    with pytest.raises(Invalid, match="too many"):
        node_attributes("rack", {f"k{number}": "v" for number in range(ATTRIBUTES_MAX + 1)})


def messages(server: FakeServerPort) -> str:
    """What the events of the node say."""
    return "\n".join(event.message for request in server.events for event in request.events)
