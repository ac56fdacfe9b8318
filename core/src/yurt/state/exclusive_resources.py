"""The exclusive resources in use on a node: ports, cores, devices, volumes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

import immutables
import msgspec

from yurt.state.usage import Usage

K = TypeVar("K", bound=Hashable)


class ExclusiveResources(msgspec.Struct, frozen=True):
    """The exclusive resources in use on a node. `extra` counts further holders of the same resource."""

    ports: immutables.Map[str, int] = immutables.Map()
    cores: int = 0
    devices: frozenset[str] = frozenset()
    volumes: frozenset[str] = frozenset()
    extra: immutables.Map[tuple[str, Hashable], int] = immutables.Map()


NOTHING_IN_USE = ExclusiveResources()


def with_usage(in_use: ExclusiveResources, usage: Usage, sign: int) -> ExclusiveResources:
    """The resources after a usage was added (`sign` 1) or removed (-1)."""
    ports, extra = in_use.ports, in_use.extra.mutate()
    cores, devices = in_use.cores, in_use.devices
    for address, port in usage.ports:
        bits = ports.get(address, 0)
        if _is_counted(extra, ("port", (address, port)), sign=sign, is_in_use=bool(bits >> port & 1)):
            bits ^= 1 << port
            ports = ports.set(address, bits) if bits else ports.delete(address)
    for core in usage.cores:
        if _is_counted(extra, ("core", core), sign=sign, is_in_use=bool(cores >> core & 1)):
            cores ^= 1 << core
    for device in usage.devices:
        if _is_counted(extra, ("device", device), sign=sign, is_in_use=device in devices):
            devices = devices ^ {device}
    volumes = in_use.volumes
    for volume in usage.volumes:
        if _is_counted(extra, ("volume", volume), sign=sign, is_in_use=volume in volumes):
            volumes = volumes ^ {volume}
    return ExclusiveResources(ports, cores, devices, volumes, extra.finish())


def _is_counted(
    extra: immutables.MapMutation[tuple[str, Hashable], int], key: tuple[str, Hashable], *, sign: int, is_in_use: bool
) -> bool:
    """Whether the first holder was added or the last one removed; others are counted in `extra`."""
    more = extra.get(key, 0)
    assert is_in_use or not more, (key, more, "a resource has further holders only while it is in use")
    if sign > 0:
        if is_in_use:
            extra[key] = more + 1
        return not is_in_use
    if more > 1:
        extra[key] = more - 1
    elif more == 1:
        del extra[key]
    return is_in_use and not more


def content_of(in_use: ExclusiveResources) -> tuple[object, ...]:
    """The content in a canonical form."""

    def entries(mapping: Mapping[K, int]) -> Iterator[tuple[str, int]]:
        return iter(sorted((repr(key), value) for key, value in mapping.items()))

    exclusive = (in_use.cores, tuple(sorted(in_use.devices)), tuple(sorted(in_use.volumes)))
    return (tuple(entries(in_use.ports)), *exclusive, tuple(entries(in_use.extra)))
