"""Creates all hooks of a client: Yurt's own and those of packages, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.config import AddedHooks
from yurt.client.context import ClientContext
from yurt.client.hooks.alloc_hook_calls import AllocHookCalls
from yurt.client.hooks.artifacts import ArtifactsHook
from yurt.client.hooks.checkpoint import CheckpointHook
from yurt.client.hooks.configuration import ConfigurationHook
from yurt.client.hooks.csi import AllocCsiVolumesHook, CsiPluginHook, CsiPluginsHook, TaskCsiVolumesHook
from yurt.client.hooks.devices import DevicesHook
from yurt.client.hooks.ephemeral_disk import DiskHook
from yurt.client.hooks.gang import GangHook
from yurt.client.hooks.health import HealthHook
from yurt.client.hooks.identities import IdentitiesHook
from yurt.client.hooks.logs import LogsHook
from yurt.client.hooks.network import AllocNetworkHook, TaskNetworkHook
from yurt.client.hooks.services import ServicesHook
from yurt.client.hooks.task_api import TaskApiHook
from yurt.client.hooks.task_hook_calls import TaskHookCalls
from yurt.client.hooks.templates import TemplatesHook
from yurt.client.hooks.volumes import VolumesHook
from yurt.client.services.nomad import NomadServices
from yurt.client.tasks.client_task import ClientTask
from yurt.client.tasks.task_setup import TaskSetup
from yurt.sdk.hooks import ALLOC_HOOKS, TASK_HOOKS, AllocHookOf, OrderedHook, TaskHookOf, order

S = TypeVar("S", bound=OrderedHook)


class ClientHooks:
    """The hooks of one client."""

    def __init__(self, context: ClientContext, added: AddedHooks) -> None:
        nomad = NomadServices(context.server, context.node)
        configuration, task_api = ConfigurationHook(context.node), TaskApiHook(context)
        self.services = ServicesHook(context, {**added.service_providers, nomad.name: nomad})
        of_tasks: list[TaskHookOf[ClientTask]] = [
            DevicesHook(context.devices, context.holders, context.env),
            IdentitiesHook(context),
            task_api,
            TaskNetworkHook(context.networks),
            CsiPluginHook(context.csi.places),
            TaskCsiVolumesHook(context.csi.volumes),
            LogsHook(),
            configuration,
            VolumesHook(context.host_volumes, context.writers, context.node, env=context.env),
            CheckpointHook(context.env),
            ArtifactsHook(context.config.artifact, added.getters, context.env),
            TemplatesHook(context.templates),
            GangHook(context.server, context.env),
        ]
        of_allocs: list[AllocHookOf[ClientAlloc]] = [
            DiskHook(context.config.alloc_dir, context.server),
            AllocNetworkHook(context.networks),
            self.services,
            CsiPluginsHook(context.csi),
            AllocCsiVolumesHook(context.csi.volumes),
            HealthHook(context.env, self.services),
        ]
        env, metrics = context.env, context.metrics
        self.task = TaskHookCalls(_in_order(TASK_HOOKS, of_tasks, tuple(added.task.values())), env, metrics=metrics)
        self.alloc = AllocHookCalls(
            _in_order(ALLOC_HOOKS, of_allocs, tuple(added.alloc.values())), env, metrics=metrics
        )
        providers = frozenset(self.services.providers)
        self.setup = TaskSetup(context, self.task, configuration, task_api=task_api, providers=providers)


def _in_order(names: Sequence[str], own: Sequence[S], added: Sequence[S]) -> tuple[S, ...]:
    assert tuple(hook.name for hook in own) == tuple(names), "the order in the SDK is the order of the calls"
    by_name = {hook.name: hook for hook in (*own, *added)}
    return tuple(by_name[name] for name in order(names, added))
