"""Measures which kinds of peer may make which call between agents, over real connections.

A server listens on its `rpc` and `serf` ports with TLS. Each peer dials both with its certificate, greets as the agent
that it says it is, and makes every call of every port. What decides is the agent's own: the handshake, the names of the
certificate, the greeting, the ports that the connection is offered, and the declaration of the call. Only what a call
does once it is admitted is replaced, so that no call changes what the next one meets.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from msgspec import inspect

from yurt.agent.cluster.members_listener import MembersListener
from yurt.agent.cluster.members_port import PORT as MEMBERS
from yurt.agent.cluster.members_port import MembersPort
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.config import AgentConfig
from yurt.agent.remote_agents import ClosableApi, FarClients
from yurt.agent.tls import TlsSettings, channel_credentials
from yurt.client.ports import ServerPort
from yurt.http.api_port import ApiPort
from yurt.rpc.certificates import CLIENT, SERVER, CertificatePair, Wish, make_authority, make_certificate, role_name
from yurt.rpc.contract import PortMethod, contract_of
from yurt.rpc.dialling import Dialler, Security
from yurt.rpc.frames import Hello
from yurt.rpc.listener import Caller, PeerSession
from yurt.rpc.peer import Peer, Served
from yurt.rpc.proxy import ANSWER_LIMIT_S
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied, YurtError
from yurt.sdk.value import replace
from yurt.server.peers import LeaderPort, PeerPort
from yurt.server.ports import NodePort
from yurt.structs.commands import RegisterNode
from yurt.structs.member import Member
from yurt.testing import factories
from yurt.testing.http_api import NODE_ID, UNKNOWN_ID, serving
from yurt.testing.unique_ports import free_ports

REGION, FOREIGN = "global", "mars"
SECRET: Final = "the secret of the node"
RPC, SERF = "rpc", "serf"
OFFERS: Final = (
    (RPC, "server", ServerPort), (RPC, "server", LeaderPort), (RPC, "peer", PeerPort),
    (RPC, f"node:{NODE_ID}", NodePort), (RPC, "api", ApiPort), (SERF, MEMBERS, MembersPort),
)  # fmt: skip
"""Where a port is offered, and under which name: the calls of a leader for clients and for servers share theirs."""


class PeerKind(NamedTuple):
    """An agent that connects: its certificate (None: no TLS; "": TLS without a certificate) and its greeting."""

    name: str
    certificate: str | None
    hello: Hello
    about: str = NODE_ID
    """The node that its calls name."""


def _greets(role: str, region: str = REGION, *, node: str = NODE_ID, secret: str = SECRET) -> Hello:
    name = f"peer.{region}" if role == SERVER else "peer"
    return Hello(role=role, region=region, name=name, node_id=node, secret_id=secret)


STRANGER, CLI = "of another authority", f"cli.{REGION}.nomad"
OF_CLIENT, OF_SERVER = role_name(CLIENT, REGION), role_name(SERVER, REGION)
ELSEWHERE_CLIENT, ELSEWHERE_SERVER = role_name(CLIENT, FOREIGN), role_name(SERVER, FOREIGN)
PEERS: Final = (
    PeerKind("no TLS", None, _greets(CLIENT)),
    PeerKind("no certificate", "", _greets(CLIENT)),
    PeerKind("no certificate, as a server", "", _greets(SERVER)),
    PeerKind("certificate of another authority", STRANGER, _greets(SERVER)),
    PeerKind("command line's certificate", CLI, _greets(CLIENT)),
    PeerKind("new node", OF_CLIENT, _greets(CLIENT, node=UNKNOWN_ID), UNKNOWN_ID),
    PeerKind("new node, about another node", OF_CLIENT, _greets(CLIENT, node=UNKNOWN_ID)),
    PeerKind("node", OF_CLIENT, _greets(CLIENT)),
    PeerKind("node, about another node", OF_CLIENT, _greets(CLIENT), UNKNOWN_ID),
    PeerKind("node with a wrong secret", OF_CLIENT, _greets(CLIENT, secret="another")),
    PeerKind("client's certificate, as a server", OF_CLIENT, _greets(SERVER)),
    PeerKind("client's certificate of another region", ELSEWHERE_CLIENT, _greets(CLIENT, FOREIGN)),
    PeerKind("server's certificate, as a node", OF_SERVER, _greets(CLIENT)),
    PeerKind("server", OF_SERVER, _greets(SERVER)),
    PeerKind("server of another region", ELSEWHERE_SERVER, _greets(SERVER, FOREIGN)),
    PeerKind("server of another region, as one of this", ELSEWHERE_SERVER, _greets(SERVER)),
)  # fmt: skip


class NamedCall(NamedTuple):
    """A call of a port under a name that is unique across all ports."""

    name: str
    method: PortMethod


def calls() -> Iterator[tuple[str, str, NamedCall]]:
    """Every call between agents, with the listener and the name under which its port is offered."""
    for where, offered, port in OFFERS:
        for name, method in contract_of(port).items():
            yield where, offered, NamedCall(f"{port.__name__}.{name}", method)


async def measure_calls() -> dict[str, Any]:
    """The names of all peers and, for each call, those whose call reached its implementation."""
    found: dict[str, list[str]] = {call.name: [] for _, _, call in calls()}
    async with _listening() as world:
        for peer in PEERS:
            for name in [*await _carried_out(world, peer, RPC), *await _carried_out(world, peer, SERF)]:
                found[name].append(peer.name)
    return {"peers": [peer.name for peer in PEERS], "calls": found}


async def _carried_out(world: _World, kind: PeerKind, where: str) -> list[str]:
    """The names of the calls at one listener that reach their implementation for this peer."""
    async with world.connected(kind, where) as connection:
        if connection is None:
            return []
        return [
            call.name for at, offered, call in calls()
            if at == where and await _is_carried_out(world.admitted, connection, offered, call, kind.about)
        ]  # fmt: skip


def text_of_calls(made: Mapping[str, Any]) -> str:
    """The measured calls as JSON with one line for each call, so that a change is one line of a diff."""
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in made["calls"].items()]
    return f'{{"peers": {json.dumps(made["peers"])},\n"calls": {{\n' + ",\n".join(lines) + "\n}}\n"


def read_calls(text: str) -> dict[str, Any]:
    """Read the measured calls from the text of `text_of_calls`."""
    made: dict[str, Any] = json.loads(text)
    return made


async def _is_carried_out(admitted: list[str], connection: Peer, offered: str, call: NamedCall, node_id: str) -> bool:
    """Whether a call reaches its implementation, which always fails here; a refusal comes earlier."""
    admitted.clear()
    request = sample(call.method.request, node_id)
    try:
        if call.method.is_stream:
            inputs = _no_input() if call.method.input_name else None
            async for _ in connection.stream(offered, call.method, request, inputs):
                pass
        else:
            await connection.call(offered, call.method, request, limit_s=ANSWER_LIMIT_S)
    except (Invalid, NotFound, PermissionDenied):
        # On a connection of another kind the same name may stand for another port.
        return admitted == [call.name]
    raise AssertionError(f"{call.name} ended without an error")


async def _no_input() -> AsyncIterator[Any]:
    nothing: tuple[Any, ...] = ()
    for item in nothing:
        yield item


def sample(hint: Any, node_id: str) -> Any:
    """The smallest valid value of a type; ids of nodes in it are `node_id`."""
    info = inspect.type_info(hint)
    return _sample(info, node_id)


def _sample(info: inspect.Type, node_id: str, name: str = "") -> Any:
    match info:
        case inspect.StructType(cls=cls, fields=fields) | inspect.NamedTupleType(cls=cls, fields=fields):
            needed = (each for each in fields if each.required or each.name == "node_id" or _is_id_of_node(cls, each))
            return cls(**{each.name: _sample(each.type, node_id, _named(cls, each)) for each in needed})
        case inspect.StrType():
            return node_id if name == "node_id" else ""
        case inspect.UnionType(types=types):
            is_optional = any(isinstance(each, inspect.NoneType) for each in types)
            return None if is_optional else _sample(types[0], node_id, name)
        case inspect.EnumType(cls=kinds):
            return next(iter(kinds))
        case inspect.TupleType(item_types=types):
            return tuple(_sample(each, node_id) for each in types)
        case inspect.LiteralType(values=values):
            return values[0]
    return _EMPTY[type(info)]


def _is_id_of_node(cls: type, field: inspect.Field) -> bool:
    return cls.__name__ == "Node" and field.name == "id"


def _named(cls: type, field: inspect.Field) -> str:
    return "node_id" if _is_id_of_node(cls, field) else field.name


_EMPTY: Final[Mapping[type, Any]] = {
    inspect.IntType: 0, inspect.FloatType: 0.0, inspect.BoolType: False, inspect.BytesType: b"",
    inspect.VarTupleType: (), inspect.ListType: [], inspect.DictType: {}, inspect.AnyType: None,
}  # fmt: skip


class _Admitted:
    """Replaces the implementation of every call: records the call's name, then fails."""

    def __init__(self, served: Served, admitted: list[str]) -> None:
        self._admitted = admitted
        names = set(served.contract)
        self._port = next(port.__name__ for _, _, port in OFFERS if set(contract_of(port)) == names)
        self._contract = served.contract

    def __getattr__(self, name: str) -> Any:
        async def call(**_: Any) -> Any:
            self._admitted.append(f"{self._port}.{name}")
            raise Invalid("nothing is carried out here")

        async def stream(**given: Any) -> AsyncGenerator[Any]:
            yield await call(**given)

        return stream if self._contract[name].is_stream else call


class _Offered(Mapping[str, Served]):
    """The ports that a connection offers, without an implementation."""

    def __init__(self, real: Mapping[str, Served], admitted: list[str]) -> None:
        self._real = real
        self._admitted = admitted

    def __getitem__(self, name: str) -> Served:
        served = self._real[name]
        return replace(served, target=_Admitted(served, self._admitted))

    def __iter__(self) -> Iterator[str]:
        return iter(self._real)

    def __len__(self) -> int:
        return len(self._real)


class _NoApi:
    """A stand-in for the HTTP API, which these calls never reach."""

    async def close(self) -> None:
        """Nothing is open."""


@dataclasses.dataclass(frozen=True, slots=True)
class _World:
    """A server's listeners, certificate files by name, and the names of the calls that were admitted last."""

    ports: Mapping[str, int]
    files: Mapping[str, Path]
    admitted: list[str]

    @contextlib.asynccontextmanager
    async def connected(self, kind: PeerKind, where: str) -> AsyncIterator[Peer | None]:
        """Connect as this peer to a listener; yields None when the listener refuses the connection."""
        dialler = Dialler(lambda: kind.hello, self._security(kind.certificate))
        try:
            wire = await dialler.reach(f"127.0.0.1:{self.ports[where]}")
        except YurtError:
            yield None
            return
        try:
            await dialler.greet(wire)
        except YurtError:
            wire.close()
            yield None
            return
        peer = Peer(wire, serves={}, is_dialler=True)
        running = asyncio.ensure_future(peer.run())
        try:
            yield peer
        finally:
            peer.close()
            await running

    def _security(self, certificate: str | None) -> Security | None:
        if certificate is None:
            return None
        own = self.files[certificate or CLI]
        settings = _settings(self.files["ca"], own)

        def credentials() -> ssl.SSLContext:
            if certificate:
                return channel_credentials(settings)
            return ssl.create_default_context(cafile=settings.ca_file)

        return Security(credentials, OF_SERVER)


@contextlib.asynccontextmanager
async def _listening() -> AsyncIterator[_World]:
    with tempfile.TemporaryDirectory() as folder:
        files = _certificates(Path(folder))
        own = files[OF_SERVER]
        tls = _settings(files["ca"], own)
        (rpc_port,) = free_ports(1)
        config = AgentConfig(
            name="server", region=REGION, rpc_address="127.0.0.1", rpc_port=rpc_port, http_addresses=("127.0.0.1",),
            advertise_rpc=f"127.0.0.1:{rpc_port}",
        )  # fmt: skip
        async with serving() as api:
            await api.server.replica.propose(RegisterNode(node=factories.node(NODE_ID, secret_id=SECRET)))
            no_api = cast(ClosableApi, _NoApi())
            far = FarClients(config, api.server.rpc, tls, run_of=lambda _: "", api=no_api)
            member = Member(
                name=f"server.{REGION}", region=REGION, datacenter="dc1", version="1", address="127.0.0.1:0",
                rpc_addr=config.advertise_rpc, http_addr="127.0.0.1:0",
            )  # fmt: skip
            members = MembersListener(Membership(member, env=RealEnv()), security=ServerSecurity(tls))
            admitted: list[str] = []
            for listener in (far._listener, members._listener):
                _keep_decisions(listener, admitted)
            await far.start()
            serf_port = await members.start("127.0.0.1:0")
            try:
                yield _World({RPC: rpc_port, SERF: serf_port}, files, admitted)
            finally:
                await members.stop()
                await far.stop()


def _settings(authority: Path, own: Path) -> TlsSettings:
    return TlsSettings(
        rpc=True, ca_file=str(authority / "ca.pem"), cert_file=str(own / "a.pem"), key_file=str(own / "a.key")
    )


def _keep_decisions(listener: Any, admitted: list[str]) -> None:
    """Replace only the implementation of admitted calls; the agent still decides who may connect and call."""
    real = listener._accept

    def accept(hello: Hello, caller: Caller) -> PeerSession:
        session: PeerSession = real(hello, caller)
        return replace(session, serves=_Offered(session.serves, admitted))

    listener._accept = accept


def _certificates(folder: Path) -> dict[str, Path]:
    """Write a certificate and key for each name, and one authority, into folders of their own."""
    now = RealEnv().now()
    own, other = (make_authority(Wish(common_name=name, days=1), now) for name in ("authority", "another authority"))
    made: dict[str, CertificatePair] = {
        name: make_certificate(Wish(common_name=name, days=1, is_server=name.startswith(SERVER)), own, now)
        for name in (CLI, OF_CLIENT, OF_SERVER, ELSEWHERE_CLIENT, ELSEWHERE_SERVER)
    }
    made[STRANGER] = make_certificate(Wish(common_name=OF_SERVER, days=1, is_server=True), other, now)
    found = {}
    for number, (name, pair) in enumerate(made.items()):
        found[name] = folder / str(number)
        found[name].mkdir()
        (found[name] / "a.pem").write_bytes(pair.certificate)
        (found[name] / "a.key").write_bytes(pair.key)
    found["ca"] = folder
    (folder / "ca.pem").write_bytes(own.certificate)
    return found
