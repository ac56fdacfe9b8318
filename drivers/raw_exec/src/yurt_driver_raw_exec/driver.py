"""The raw_exec driver: a command as a process of the host, without isolation."""

from __future__ import annotations

import os

from yurt.sdk.driver import UNDETECTED, Capabilities, Fingerprint, TaskRequest
from yurt.sdk.errors import DriverError
from yurt.sdk.executor import ProcessDriver, ProcessExecutor, ProcessSpec
from yurt.sdk.value import replace

from yurt_driver_raw_exec.config import PluginConfig, TaskConfig, denied, process_spec

NAME = "raw_exec"
CAPABILITIES = Capabilities(send_signals=True, exec=True, fs_isolation="none", network_modes=("host", "group"))
DISABLED = "the raw_exec driver is disabled: it runs commands with the rights of the agent"
ENABLE = 'set plugin "raw_exec" { config { enabled = true } } in the configuration of this client'


def raw_exec_driver(config: PluginConfig, executor: ProcessExecutor) -> ProcessDriver[ProcessSpec]:
    """The driver for the agent's configuration; when disabled, it explains how to enable it."""

    def process_for(request: TaskRequest) -> ProcessSpec:
        check_user(config, request.user)
        return process_spec(request, config.denied_envvars)

    disabled = Fingerprint(health=UNDETECTED, description=DISABLED, fix=ENABLE)
    return ProcessDriver(
        NAME,
        task_config=TaskConfig,
        process_for=process_for,
        executor=executor,
        fingerprint=None if config.enabled else disabled,
        capabilities=replace(CAPABILITIES, dynamic_users=config.dynamic_users),
    )


def check_user(config: PluginConfig, user: str) -> None:
    """Check that a user has no denied ids; without a user, check the agent's own ids. Raises DriverError."""
    ids = ProcessExecutor.ids_of_user(user)
    uid = denied([ids.uid], config.denied_uids)
    gid = denied([ids.gid, *ids.groups], config.denied_gids)
    if uid is None and gid is None:
        return
    what = f"uid {uid} (denied_host_uids)" if uid is not None else f"gid {gid} (denied_host_gids)"
    who = f'user "{user}"' if user else f"the agent's own user (uid {os.geteuid()})"
    raise DriverError(f"raw_exec may not run tasks as {who}: this client denies {what}; set another `user`")
