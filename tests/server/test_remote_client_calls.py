"""A client that is connected from elsewhere may ask all that the port of a client offers."""

from __future__ import annotations

from yurt.client.ports import ServerPort
from yurt.server.remote_clients import RemoteClient


def test_every_call_of_the_port_is_served() -> None:
    calls = {name for name in vars(ServerPort) if not name.startswith("_")}
    assert calls
    assert not {name for name in calls if not callable(getattr(RemoteClient, name, None))}
