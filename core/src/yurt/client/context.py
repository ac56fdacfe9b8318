"""The parts of a client that all runners of allocations and tasks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from yurt.client.config import ClientConfig
from yurt.client.csi.manager import Csi
from yurt.client.devices.activity import DeviceActivity
from yurt.client.devices.holders import DeviceHolders
from yurt.client.devices.manager import DeviceManager
from yurt.client.files.dynamic_users import DynamicUsers
from yurt.client.networks.manager import Networks
from yurt.client.ports import ServerPort, ServeTask
from yurt.client.templates.context import TemplateContext
from yurt.client.volumes.host_volumes import DynamicHostVolumes
from yurt.client.volumes.writers import VolumeWriters
from yurt.runtime.env import Env
from yurt.runtime.metrics import CLIENT_PREFIX, Metrics
from yurt.sdk.driver import Driver
from yurt.storage.client_db import ClientDatabase
from yurt.structs.node import Node


class ClientContext(msgspec.Struct, frozen=True):
    """The shared parts; `node` returns the current node."""

    config: ClientConfig
    env: Env
    store: ClientDatabase
    drivers: Mapping[str, Driver]
    host_env: Mapping[str, str]
    node: Callable[[], Node]
    server: ServerPort
    devices: DeviceManager
    holders: DeviceHolders
    activity: DeviceActivity
    """The recorded use of running allocations' cards."""
    networks: Networks
    csi: Csi
    host_volumes: DynamicHostVolumes
    writers: VolumeWriters
    """The tasks that write to host volumes."""
    templates: TemplateContext
    task_api: ServeTask | None
    """Serves the agent's API at the sockets of tasks; None when not available."""
    users: DynamicUsers
    """The user ids for tasks without a user."""
    metrics: Metrics = msgspec.field(default_factory=lambda: Metrics(CLIENT_PREFIX))
    """The client's counters."""
