"""The context of a plugin: its folders, its options and the paths that it must keep from tasks."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.agent.component_configs import cgroup_parent, client_folder
from yurt.agent.config import AgentConfig
from yurt.agent.data_dir import AgentDataDir
from yurt.executor.cgroups import missing_controllers
from yurt.sdk.driver import AgentPaths, PluginContext
from yurt.sdk.errors import Invalid


def plugin_context(config: AgentConfig, data: AgentDataDir, name: str, options: Mapping[str, str]) -> PluginContext:
    """The facts that core gives to the plugin of that name."""
    folder = client_folder(config, data) / "plugins" / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return PluginContext(
        dev=config.is_dev,
        options=options,
        chroot_env=config.client.get("chroot_env", {}),
        cgroup_parent=cgroup_parent(config.client),
        paths=AgentPaths(state_dir=str(folder), run_dir=str(data.run), secret=secret_paths(config, data)),
    )


def check_cgroup_parent(config: AgentConfig) -> None:
    """Raise Invalid where tasks below the configured parent would lack a controller that this host has."""
    parent = cgroup_parent(config.client)
    missing = missing_controllers(parent) if parent else ()
    if missing:
        raise Invalid(
            f'client cgroup_parent: tasks below "{parent}" would have no limits of {", ".join(missing)}: the cgroup '
            "cannot be made or written to there, or a level above does not pass the controller on; check "
            "cgroup.subtree_control and the permissions of each level, or remove cgroup_parent"
        )


def secret_paths(config: AgentConfig, data: AgentDataDir) -> tuple[str, ...]:
    """The agent's data directory, its configuration files, and the files that they name, such as keys."""
    return (str(data.root), *config.files, *sorted(files_named(config.raw)))


def files_named(block: object) -> set[str]:
    """Absolute paths in a configuration that are the values of a key such as `key_file`."""
    if isinstance(block, (list, tuple)):
        return {path for each in block for path in files_named(each)}
    if not isinstance(block, Mapping):
        return set()
    own = {
        value
        for key, value in block.items()
        if key.endswith(("_file", "_client_key")) and isinstance(value, str) and value[:1] == "/"
    }
    return own | {path for value in block.values() for path in files_named(value)}
