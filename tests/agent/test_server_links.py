"""Servers joined by real connections: what they offer each other, to whom, and what becomes of it when one goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace as replace_hello
from yurt.agent.config import AgentConfig
from yurt.agent.peers import PEER, ServerLinks
from yurt.agent.remote_agents import FarClients
from yurt.agent.tls import TlsSettings
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.listener import Caller
from yurt.rpc.peer import ConnectionLost
from yurt.rpc.proxy import far_port
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Unavailable
from yurt.sdk.value import replace, seconds
from yurt.server.peers import PeerPort
from yurt.structs.commands import KeepAlloc
from yurt.structs.commands.versions import UNPUBLISHED_RULES
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.structs.member import ALIVE, FAILED, LEFT, Member
from yurt.structs.rpc import FileInfo, RegisterNodeRequest
from yurt.structs.rules import RULES_VERSION
from yurt.testing import factories
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.fakes import eventually
from yurt.testing.unique_ports import free_ports

FIRST, SECOND, THIRD = NAMES


def run_of(name: str) -> str:
    """What a server proves itself with."""
    return f"run of {name}" if name in NAMES else ""


class FakeDirectory:
    """The members, as the test says."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.known = {
            name: Member(
                name=name,
                region="global",
                datacenter="dc1",
                version="1",
                address="127.0.0.1:0",
                rpc_addr=f"127.0.0.1:{port}",
                http_addr="127.0.0.1:0",
                rules=RULES_VERSION,
            )
            for name, port in ports.items()
        }
        self.listeners: list[Callable[[], None]] = []

    def members(self) -> tuple[Member, ...]:
        """Sorted by name."""
        return tuple(self.known[name] for name in sorted(self.known))

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Be called by `change`."""
        self.listeners.append(on_change)

    def published_rules(self) -> dict[str, int]:
        """Of the members that have not left."""
        return {name: each.rules for name, each in self.known.items() if each.status != LEFT}

    def change(self, name: str, **changes: object) -> None:
        """A member is another one."""
        self.known[name] = replace(self.known[name], **changes)
        for on_change in self.listeners:
            on_change()


class Joined:
    """Three servers on a shared log that reach each other over the loopback interface."""

    def __init__(self) -> None:
        self.ports = dict(zip(NAMES, free_ports(3), strict=True))
        self.directory = FakeDirectory(self.ports)
        self.links = {name: self._make_links(name) for name in NAMES}
        self.listeners: dict[str, FarClients] = {}
        self.group = ServerGroup(RealEnv(), peers=self.links)

    def _config(self, name: str) -> AgentConfig:
        port = self.ports[name]
        return AgentConfig(
            name=name.partition(".")[0],
            rpc_address="127.0.0.1",
            rpc_port=port,
            http_addresses=("127.0.0.1",),
            advertise_rpc=f"127.0.0.1:{port}",
        )

    def _make_links(self, name: str) -> ServerLinks:
        return ServerLinks(
            self._config(name), directory=self.directory, env=RealEnv(), tls=TlsSettings(), run_id=run_of(name)
        )

    async def join(self, name: str, stack: AsyncExitStack, tasks: asyncio.TaskGroup) -> None:
        """Have a server listen and dial."""
        far = self.listeners[name] = FarClients(self._config(name), self.group[name].rpc, TlsSettings(), run_of=run_of)
        await far.start()
        stack.push_async_callback(far.stop)
        running = tasks.create_task(self.links[name].run())
        stack.callback(running.cancel)

    def is_joined(self) -> bool:
        """Everybody reaches everybody."""
        return all(link.server for each in self.links.values() for link, _ in each._links.values()) and all(
            len(each._links) == 2 for each in self.links.values()
        )


@pytest.fixture
async def joined() -> AsyncIterator[Joined]:
    """Three servers of which the first leads."""
    made = Joined()
    group = made.group
    async with group.running(), asyncio.TaskGroup() as tasks, AsyncExitStack() as stack:
        for name in NAMES:
            await made.join(name, stack, tasks)
        await eventually(made.is_joined)
        await eventually(lambda: group[FIRST].is_leader)
        yield made


class Files:
    """A client of which only files are asked."""

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        return (FileInfo(name=path, is_dir=False, size=1, file_mode="-rw-r--r--", mod_time=0),)

    async def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncGenerator[bytes]:
        for number in range(40):
            yield b"%d " % number

    async def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        yield ExecFrame(stream="stdout", data=request.command[0].encode())
        async for given in inputs:
            yield ExecFrame(stream="stdout", data=given.data)
        yield ExecFrame(exit_code=0)


async def typed() -> AsyncIterator[ExecInput]:
    """What somebody types."""
    for number in range(30):
        yield ExecInput(data=b"%d" % number)


async def test_calls_keys_states_and_nodes_go_from_server_to_server(joined: Joined) -> None:
    group = joined.group
    node = factories.node(status="initializing")
    reply = await group[SECOND].clients.calls.register_node(RegisterNodeRequest(node=node))
    assert reply.servers == tuple(sorted(f"127.0.0.1:{port}" for port in joined.ports.values()))
    made = await group[FIRST].keys.root_keys.rotate(is_full=False)
    assert all(made.key_id in server.keys.keyring for server in group.servers.values())

    files: Any = Files()
    group[THIRD].clients.node_ports.attach(node.id, files)
    await eventually(lambda: node.id in group[SECOND].state.nodes)
    port = group[SECOND].clients.node_ports.find(node.id)
    assert [entry.name for entry in await port.list_files("a", "/x")] == ["/x"]
    pieces = [piece async for piece in port.read_file("a", "/x", offset=0, limit=0)]
    assert b"".join(pieces) == b"".join(b"%d " % number for number in range(40))
    asked = ExecRequest(alloc_id="a", task="main", command=("cat",))
    frames = [frame async for frame in port.exec_task(asked, typed())]
    assert [frame.data for frame in frames] == [b"cat", *(b"%d" % number for number in range(30)), b""]
    assert frames[-1].exit_code == 0
    group[THIRD].clients.node_ports.detach(node.id, files)
    with pytest.raises(Unavailable, match="No path to node"):
        await port.list_files("a", "/x")

    parts = [part async for part in joined.links[SECOND].peer(FIRST).snapshot(0)]
    assert parts[0].index == group[FIRST].state.index
    assert parts[-1].digest


async def test_a_client_is_offered_nothing_of_what_servers_offer_each_other(joined: Joined) -> None:
    hello = Hello(version="1", role="client", region="global", name="c", node_id=factories.new_id(), secret_id="s")
    link = Link((f"127.0.0.1:{joined.ports[FIRST]}",), dialler=Dialler(lambda: hello), serves={}, env=RealEnv())
    port: PeerPort = far_port(contract_of(PeerPort), PEER, link.peer)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(link.run())
        with pytest.raises(Invalid, match="does not offer peer"):
            await port.root_key("any")
        running.cancel()


async def test_only_the_certificate_of_a_server_lets_in_as_one(joined: Joined) -> None:
    config = AgentConfig(name="srv1", rpc_address="127.0.0.1")
    far = FarClients(config, joined.group[FIRST].rpc, TlsSettings(rpc=True), run_of=run_of)
    hello = Hello(version="1", role="server", region="global", name=SECOND)
    for names in ((), ("client.global.nomad",), ("server.other.nomad",)):
        with pytest.raises(PermissionDenied, match="server"):
            far._accept(hello, Caller("127.0.0.1:1", names))
    offered = far._accept(hello, Caller("127.0.0.1:1", ("server.global.nomad",))).serves
    assert offered.get(PEER) is not None


async def test_without_certificates_only_a_server_that_was_met_is_let_in_as_one(joined: Joined) -> None:
    far = joined.listeners[FIRST]
    known = Hello(version="1", role="server", region="global", name=SECOND, secret_id=run_of(SECOND))
    assert far._accept(known, Caller("127.0.0.1:1")).serves.get(PEER) is not None
    strangers = (
        replace_hello(known, secret_id=""),
        replace_hello(known, secret_id="guessed"),
        replace_hello(known, name="stranger.global", secret_id=""),
        replace_hello(known, name="stranger.mars", region="mars", secret_id=""),
    )
    for stranger in strangers:
        with pytest.raises(Unavailable, match="is not known here; servers meet on the serf port"):
            far._accept(stranger, Caller("127.0.0.1:1"))


async def test_a_server_that_left_is_no_longer_dialled_and_one_that_failed_still_counts(joined: Joined) -> None:
    links = joined.links[SECOND]
    assert (links.names, links.voters) == ((FIRST, THIRD), 3)
    joined.directory.change(THIRD, status=FAILED)
    await eventually(lambda: THIRD not in links._links)
    assert (links.names, links.voters) == ((FIRST,), 3)
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await links.peer(THIRD).status()
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        links.api(THIRD)
    joined.directory.change(THIRD, status=LEFT)
    assert links.voters == 2
    joined.directory.change(THIRD, status=ALIVE)
    await eventually(lambda: THIRD in links._links and links._links[THIRD][0].server)
    assert (await links.peer(THIRD).status()).index == joined.group[THIRD].state.index


async def test_the_leader_writes_by_the_rules_of_the_oldest_server(joined: Joined) -> None:
    jobs, log = joined.group[FIRST].resources.jobs, joined.group.log
    asked = KeepAlloc(alloc_id="a", duration=seconds(60))

    async def written_by() -> int:
        await jobs.register(factories.job())
        return log.entries[-1].commands[-1].rules_version

    assert await written_by() == RULES_VERSION
    joined.directory.change(THIRD, rules=0)
    assert await written_by() == UNPUBLISHED_RULES
    with pytest.raises(Conflict, match=f"these run an older one: {THIRD}"):
        await joined.group[FIRST].replica.propose(asked)
    joined.directory.change(THIRD, status=FAILED)
    assert await written_by() == UNPUBLISHED_RULES, "it reads the log when it comes back"
    joined.directory.change(THIRD, rules=RULES_VERSION)
    assert await written_by() == RULES_VERSION
    with pytest.raises(NotFound):
        await joined.group[FIRST].replica.propose(asked)


async def test_a_server_that_answers_at_the_address_of_another_is_not_taken_for_it(joined: Joined) -> None:
    known = joined.directory.known
    known["srv4.global"] = replace(known[FIRST], name="srv4.global")
    joined.directory.change("srv4.global", status=ALIVE)
    links = joined.links[SECOND]
    await eventually(lambda: "srv4.global" in links._links and links._links["srv4.global"][0].server)
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        await links.peer("srv4.global").status()
