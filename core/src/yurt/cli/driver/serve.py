"""`yurt driver serve`: a driver of Yurt as a plugin of a Nomad agent."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from yurt import __version__
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import text

if TYPE_CHECKING:
    from yurt.goplugin.serve import Offer
    from yurt.sdk.driver import Driver

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF")
DETAILS = """A Nomad agent starts this command by itself, from a script in its plugin_dir that is named like the driver:

    #!/bin/sh
    exec yurt driver serve raw_exec

The driver is then configured by the agent's block `plugin "raw_exec" { config { ... } }`, and jobs use it by its name.
Tasks outlive this command and the agent."""


def run(call: Invocation) -> int:
    """Serve until the host ends it."""
    from yurt.goplugin.serve import default_folder, host_problem, serve
    from yurt.runtime.env import RealEnv
    from yurt.runtime.logs import set_up_logging

    name = call.args[0]
    folder = os.path.abspath(call.flags.text("state-dir") or default_folder(name))
    problem = host_problem(os.environ)
    found = find_plugin(name)
    if problem:
        raise CliError(problem)
    os.makedirs(folder, exist_ok=True, mode=0o700)
    level = call.flags.text("log-level").upper()
    if level not in LEVELS:
        raise CliError(f"-log-level {level} is not known; write one of: {', '.join(LEVELS)}")
    set_up_logging(level, as_json=True, stream=sys.stderr)
    logging.getLogger("grpc").setLevel(logging.ERROR)
    offer = offer_of(name, found, folder)
    asyncio.run(serve(offer, RealEnv(), environment=os.environ, say=lambda line: print(line, flush=True)))
    return 0


def find_plugin(name: str) -> EntryPoint:
    """The installed plugin that has the driver; raises CliError that names those that there are."""
    from yurt.sdk.hooks import ENTRY_POINT_GROUP

    found = {each.name: each for each in entry_points(group=ENTRY_POINT_GROUP)}
    short = name.removesuffix("_driver")
    if name in found or short in found:
        return found.get(name) or found[short]
    installed = ", ".join(sorted(found)) or "none"
    raise CliError(f'No plugin "{name}" is installed; installed are: {installed}.')


def offer_of(name: str, plugin: EntryPoint, folder: str) -> Offer:
    """The driver as it is offered; raises CliError when the plugin has none of that name."""
    from yurt.goplugin.serve import Offer
    from yurt.plugins.manager import options_of
    from yurt.sdk.schema import Schema, schema_of

    options = options_of(plugin)
    first = make_driver(name, plugin, folder, {})
    return Offer(
        name=first.name,
        version=f"v{plugin.dist.version if plugin.dist else __version__}",
        options=schema_of(options) if options else Schema(),
        make=lambda config: make_driver(name, plugin, folder, config),
        folder=folder,
    )


def make_driver(name: str, plugin: EntryPoint, folder: str, config: Mapping[str, Any]) -> Driver:
    """The driver with a configuration; raises CliError that says why there is none."""
    from yurt.plugins.manager import make_parts
    from yurt.sdk.driver import AgentPaths, PluginContext
    from yurt.sdk.errors import DriverError
    from yurt.sdk.hooks import PluginSkipped

    paths = AgentPaths(state_dir=folder, run_dir=folder)
    try:
        drivers = make_parts(plugin, PluginContext(config=config, paths=paths)).drivers
    except PluginSkipped as reason:
        raise DriverError(f"The plugin {plugin.name} offers nothing on this machine: {reason}") from None
    named = [driver for driver in drivers if driver.name == name] or list(drivers[:1])
    if not named:
        raise CliError(f"The plugin {plugin.name} has no task driver.")
    return named[0]


COMMAND = Command(
    "driver serve",
    "Offer an installed driver to a Nomad agent, as a plugin in its plugin_dir.",
    run,
    (
        text("state-dir", "Where the driver keeps its state; default is /var/lib/yurt/served/NAME as root."),
        text(
            "log-level",
            "TRACE, DEBUG, INFO, WARN, ERROR or OFF: the least level of what is logged; default is INFO.",
            default="INFO",
        ),
    ),
    arguments=(1, 1),
    usage="NAME",
    takes="one argument: the name of a driver",
    details=DETAILS,
    is_client=False,
)
