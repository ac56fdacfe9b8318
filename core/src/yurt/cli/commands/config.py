"""`yurt config`: check configuration files of an agent."""

from __future__ import annotations

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError


def validate_config(call: Invocation) -> int:
    """Read configuration files as an agent does, later ones over earlier ones, and report every error."""
    from yurt.agent.blocks.without_effect import no_effects
    from yurt.agent.component_configs import cgroup_parent
    from yurt.agent.config import make_config
    from yurt.agent.config_files import read_files
    from yurt.agent.tls import tls_settings
    from yurt.sdk.errors import YurtError

    try:
        data, sources = read_files(call.args)
        if not sources.files:
            raise CliError(f"{', '.join(call.args)}: no configuration file there; a folder's end in .hcl or .json")
        config = make_config(data, {}, is_dev=False, sources=sources)
        tls_settings(config)
        cgroup_parent(config.client)
    except YurtError as error:
        raise CliError(f"Configuration is invalid:\n{error}") from None
    for key, reason in no_effects(data).items():
        call.screen.line(f"Warning: {key} has no effect: {reason}")
    call.screen.line("Configuration is valid!")
    return 0


COMMANDS = (
    CliCommand(
        "config validate",
        "Check configuration files of an agent without starting it",
        validate_config,
        (),
        (1, -1),
        "<config_path> [<config_path>...]",
        "at least one argument: a configuration file, or a folder of them",
        is_client=False,
    ),
)
