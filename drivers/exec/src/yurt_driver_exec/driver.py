"""The exec driver: a command of the host, isolated by namespaces, a file system of its own and cgroups."""

from __future__ import annotations

from yurt.sdk.driver import HEALTHY, UNHEALTHY, Capabilities, Fingerprint, PluginContext, TaskRequest
from yurt.sdk.executor import ContainerExecutor, ContainerSpec, ProcessDriver, check_task_user, host_binds

from yurt_driver_exec.config import NAME, TaskConfig, container_spec, plugin_config, user_rules

CAPABILITIES = Capabilities(
    send_signals=True, exec=True, fs_isolation="chroot", network_modes=("host", "group"), mounts=True, devices=True
)


def exec_driver(context: PluginContext, executor: ContainerExecutor) -> ProcessDriver[ContainerSpec]:
    """The driver as the agent's configuration wants it."""
    config = plugin_config(context.config)
    rules = user_rules(config, context.options)

    def container_for(request: TaskRequest) -> ContainerSpec:
        spec = container_spec(request, config, host=host_binds(context.chroot_env))
        check_task_user(rules, spec.process.user)
        return spec

    async def probe() -> Fingerprint:
        reason, fix = executor.obstacle()
        if reason:
            return Fingerprint(health=UNHEALTHY, description=f"the exec driver cannot run tasks: {reason}", fix=fix)
        return Fingerprint(health=HEALTHY, description="Healthy", attributes={f"driver.{NAME}": "1"})

    return ProcessDriver(
        NAME,
        task_config=TaskConfig,
        process_for=container_for,
        executor=executor,
        fingerprint=probe,
        capabilities=CAPABILITIES,
    )
