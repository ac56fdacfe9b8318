"""Simulates several machines on one: network namespaces on a bridge, with cuts between them.

The host stands on the bridge too, so a test reaches every machine, whatever the machines think of each other. Needs
root; everything goes at the end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from yurt.testing.real_cluster import AgentHost
from yurt.testing.unique_ports import own_subnet


class Network:
    """A bridge `10.<x>.<y>.1/24` with machines at `.2`, `.3` ..."""

    def __init__(self) -> None:
        number, self._prefix = own_subnet()
        self.name = f"yt{number:x}"
        self._machines: dict[str, str] = {}

    def __enter__(self) -> Network:
        _ip("link", "add", self.name, "type", "bridge")
        _ip("addr", "add", f"{self._prefix}.1/24", "dev", self.name)
        _ip("link", "set", self.name, "up")
        self._let_pass("-I")
        return self

    def __exit__(self, *_: object) -> None:
        self._let_pass("-D")
        for namespace in self._machines.values():
            _ip("netns", "del", namespace)
        _ip("link", "del", self.name)

    def machine(self) -> AgentHost:
        """Add a machine."""
        number = len(self._machines) + 2
        address, namespace, link = f"{self._prefix}.{number}", f"{self.name}-{number}", f"{self.name}v{number}"
        _ip("netns", "add", namespace)
        self._machines[address] = namespace
        _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", link, "master", self.name, "up")
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", namespace, "link", "set", device, "up")
        _ip("-n", namespace, "route", "add", "default", "via", f"{self._prefix}.1")
        return AgentHost(address, ("ip", "netns", "exec", namespace))

    @contextmanager
    def cut(self, here: str, *others: str, incoming: bool = True, outgoing: bool = True) -> Iterator[None]:
        """Drop all packets between machine `here` and the others during the block."""
        rules = [("INPUT", "-s", other) for other in others if incoming]
        rules += [("OUTPUT", "-d", other) for other in others if outgoing]
        for rule in rules:
            self._iptables(here, "-A", rule)
        try:
            yield
        finally:
            for rule in rules:
                self._iptables(here, "-D", rule)

    def _let_pass(self, action: str) -> None:
        """Accept the bridge's packets: a container engine may filter all bridges and drop unknown traffic."""
        _run("iptables", "-w", action, "FORWARD", "-i", self.name, "-o", self.name, "-j", "ACCEPT")

    def _iptables(self, address: str, action: str, rule: tuple[str, str, str]) -> None:
        chain, *match = rule
        namespace = self._machines[address]
        _run("ip", "netns", "exec", namespace, "iptables", "-w", action, chain, *match, "-j", "DROP")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
