"""The exec driver: a host command isolated by namespaces, a private file system and cgroups."""

from __future__ import annotations

from yurt.sdk.driver import HEALTHY, UNHEALTHY, Capabilities, Fingerprint, PluginContext, TaskRequest
from yurt.sdk.executor import Abilities, ContainerExecutor, ContainerSpec, ProcessDriver, check_task_user, host_binds
from yurt.sdk.value import replace

from yurt_driver_exec.config import NAME, TaskConfig, container_spec, plugin_config, user_rules

CAPABILITIES = Capabilities(
    send_signals=True, exec=True, fs_isolation="chroot", network_modes=("host", "group"), mounts=True, devices=True
)


def fingerprint_of(abilities: Abilities) -> Fingerprint:
    """The fingerprint of a working driver, with the isolation this machine lacks."""
    attributes = {
        f"driver.{NAME}": "1",
        f"driver.{NAME}.seccomp": "false" if abilities.filter_problem else "true",
        f"driver.{NAME}.user_namespaces": "false" if abilities.user_namespace_problem else "true",
    }
    if not abilities.filter_problem:
        return Fingerprint(health=HEALTHY, description="Healthy", attributes=attributes)
    return Fingerprint(
        health=HEALTHY,
        description=f"tasks run without a filter of system calls: {abilities.filter_problem}",
        fix="install a runc and a kernel that have seccomp",
        attributes=attributes,
    )


def exec_driver(context: PluginContext, executor: ContainerExecutor) -> ProcessDriver[ContainerSpec]:
    """The driver for the agent's configuration."""
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
        return fingerprint_of(await executor.abilities())

    return ProcessDriver(
        NAME,
        task_config=TaskConfig,
        process_for=container_for,
        executor=executor,
        fingerprint=probe,
        capabilities=replace(CAPABILITIES, dynamic_users=config.dynamic_users),
    )
