"""The files in /etc by which tasks resolve names, stored with the record of their allocation's network."""

from __future__ import annotations

import asyncio

from yurt.client.networks.records import NetworkRecord, RecordFolder
from yurt.client.networks.resolving import NAMES, RESOLVER, host_resolver, hosts_text, merged, resolver_text
from yurt.sdk.driver import Mount
from yurt.structs.alloc import AllocNetworkStatus
from yurt.structs.network import DNSConfig, NetworkResource


class EtcFiles:
    """Writes /etc/hosts and /etc/resolv.conf of allocations."""

    def __init__(self, folder: RecordFolder) -> None:
        self._folder = folder

    async def of_namespace(self, record: NetworkRecord, network: NetworkResource) -> tuple[Mount, ...]:
        """Both files for the tasks of a namespace."""
        return await asyncio.to_thread(self._write, record, network)

    def _write(self, record: NetworkRecord, network: NetworkResource) -> tuple[Mount, ...]:
        status = record.status or AllocNetworkStatus()
        hostname = network.hostname or record.alloc_id[:8]
        text = hosts_text(hostname, tuple(dict.fromkeys((status.address, status.address_ipv6))))
        names = self._folder.write_file(record.alloc_id, NAMES, text.encode(), may_grow=True)
        own = merged(network.dns, status.dns or DNSConfig())
        resolver = merged(own, host_resolver(is_namespaced=True))
        return (
            Mount(host_path=str(names), task_path="/etc/hosts", is_read_only=True),
            self._resolver(record.alloc_id, resolver),
        )

    async def of_host(self, alloc_id: str, dns: DNSConfig) -> tuple[Mount, ...]:
        """The resolver for tasks in the host's network whose group requests another one."""
        return (await asyncio.to_thread(self._write_resolver, alloc_id, dns),)

    def _write_resolver(self, alloc_id: str, dns: DNSConfig) -> Mount:
        return self._resolver(alloc_id, merged(dns, host_resolver(is_namespaced=False)))

    def _resolver(self, alloc_id: str, resolver: DNSConfig) -> Mount:
        path = self._folder.write_file(alloc_id, RESOLVER, resolver_text(resolver).encode())
        return Mount(host_path=str(path), task_path="/etc/resolv.conf", is_read_only=True)
