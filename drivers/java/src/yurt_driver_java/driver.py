"""The java driver: a jar or a class in the host's virtual machine, isolated like exec.

Where the client cannot isolate tasks, it runs none: an unisolated task would be a program of the host, as
with raw_exec, which the operator must enable. Here the setting is `allow_unisolated`.
"""

from __future__ import annotations

import os

from yurt.sdk.driver import (
    HEALTHY,
    UNDETECTED,
    UNHEALTHY,
    Capabilities,
    Driver,
    Fingerprint,
    PluginContext,
    TaskRequest,
)
from yurt.sdk.errors import DriverError
from yurt.sdk.executor import (
    DEFAULT_USER,
    ContainerExecutor,
    ContainerSpec,
    ProcessDriver,
    ProcessExecutor,
    ProcessSpec,
    Program,
    UserRules,
    check_task_user,
    denied_names,
    host_binds,
)
from yurt.sdk.value import replace

from yurt_driver_java.config import NAME, TaskConfig, container_spec, plugin_config, process_spec, version_attributes

NETWORKS = ("host", "group")
ISOLATED = Capabilities(
    send_signals=True, exec=True, fs_isolation="chroot", network_modes=NETWORKS, mounts=True, devices=True
)
PLAIN = Capabilities(send_signals=True, exec=True, fs_isolation="none", network_modes=NETWORKS)
INSTALL = "apt install default-jre-headless"
OR_PLAIN = (
    'or let java tasks run as programs of the host: allow_unisolated = true in plugin "java" of the configuration'
)


def java_driver(context: PluginContext) -> Driver:
    """The driver: isolated, or plain where isolation is impossible and the operator permits tasks without it."""
    isolating = ContainerExecutor.from_context(context)
    reason, _ = isolating.obstacle()
    is_plain = reason and plugin_config(context.config).allow_unisolated
    return plain_driver(context) if is_plain else isolated_driver(context, isolating)


def isolated_driver(context: PluginContext, executor: ContainerExecutor) -> ProcessDriver[ContainerSpec]:
    """Tasks in private namespaces."""
    config, rules, program = plugin_config(context.config), user_rules(context), Program(NAME, "-version")

    def container_for(request: TaskRequest) -> ContainerSpec:
        java, home = program_and_home(program)
        spec = container_spec(request, config, java=java, host=host_binds(context.chroot_env), java_home=home)
        check_task_user(rules, spec.process.user)
        return spec

    async def probe() -> Fingerprint:
        found = await fingerprint_of(program)
        reason, fix = executor.obstacle()
        if not reason or found.health != HEALTHY:
            return found
        return Fingerprint(
            health=UNHEALTHY, description=f"the java driver cannot isolate tasks: {reason}", fix=f"{fix}, {OR_PLAIN}"
        )

    return ProcessDriver(
        NAME,
        task_config=TaskConfig,
        process_for=container_for,
        executor=executor,
        fingerprint=probe,
        capabilities=ISOLATED,
    )


def plain_driver(context: PluginContext) -> ProcessDriver[ProcessSpec]:
    """Tasks as processes of the host, where the agent is not root or has no runc and the operator permits it."""
    plugin_config(context.config)
    rules, program = user_rules(context), Program(NAME, "-version")

    def process_for(request: TaskRequest) -> ProcessSpec:
        user = request.user or (DEFAULT_USER if os.geteuid() == 0 else "")
        if user:
            check_task_user(rules, user)
        return replace(process_spec(request, program_and_home(program)[0]), user=user, search=())

    return ProcessDriver(
        NAME,
        task_config=TaskConfig,
        process_for=process_for,
        executor=ProcessExecutor.from_context(context),
        fingerprint=lambda: fingerprint_of(program),
        capabilities=PLAIN,
    )


def user_rules(context: PluginContext) -> UserRules:
    """The users that tasks of this driver must not run as."""
    return UserRules(names=denied_names(NAME, context.options))


async def fingerprint_of(program: Program) -> Fingerprint:
    """Whether Java is installed, and its version."""
    found = await program.look()
    if not found.path:
        return Fingerprint(health=UNDETECTED, description="java is not on PATH", fix=INSTALL)
    attributes = version_attributes(found.version_text)
    if found.problem or not attributes:
        reason = found.problem or f"`{found.path} -version` does not tell a version"
        return Fingerprint(health=UNHEALTHY, description=reason, fix=INSTALL)
    return Fingerprint(health=HEALTHY, description="Healthy", attributes=attributes)


def program_and_home(program: Program) -> tuple[str, str]:
    """The path of java with links resolved, and its installation folder."""
    path = program.find()
    if not path:
        raise DriverError(f"java is not on the PATH of this client; {INSTALL}")
    real = os.path.realpath(path)
    return real, os.path.dirname(os.path.dirname(real))
