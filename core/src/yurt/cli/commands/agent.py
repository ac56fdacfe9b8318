"""`yurt agent`: flags to configuration, then the composition root."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError
from yurt.cli.flags import INT, MAYBE_BOOL, TEXT, Flag, choice, number, switch, text, texts, without_effect
from yurt.cli.tree import NOUNS

WITHOUT_EFFECT = ""
"""Instead of a help text: the flag is accepted, and no help shows it."""
_TEXT_FLAGS: dict[str, tuple[str, str]] = {
    "bind": ("bind_addr", "The address to listen on."),
    "region": ("region", "The region of the agent."),
    "data-dir": ("data_dir", "Where state, allocations and logs live."),
    "plugin-dir": ("plugin_dir", "Where plugin binaries lie; default is DATA_DIR/plugins."),
    "dc": ("datacenter", "The datacenter of the agent."),
    "log-level": ("log_level", "TRACE, DEBUG, INFO, WARN, ERROR or OFF."),
    "node": ("name", "The name of the agent; default is the host name."),
    "state-dir": ("client.state_dir", "Where the client keeps its state; default is DATA_DIR/client."),
    "alloc-dir": ("client.alloc_dir", "Where allocations live; default is DATA_DIR/alloc."),
    "alloc-mounts-dir": ("client.alloc_mounts_dir", WITHOUT_EFFECT),
    "host-volumes-dir": ("client.host_volumes_dir", "Where dynamic host volumes live."),
    "host-volume-plugin-dir": ("client.host_volume_plugin_dir", "Where plugins of dynamic host volumes lie."),
    "node-class": ("client.node_class", "The class of the node."),
    "node-pool": ("client.node_pool", "The pool of the node."),
    "client-intro-token": ("client.intro_token", "The token of `node intro create`, for a node's first registration."),
    "network-interface": ("client.network_interface", "The interface whose address tasks get."),
    "preferred-address-family": ("client.preferred_address_family", "ipv4 or ipv6."),
    "retry-interval": ("server.retry_interval", "The longest pause between two attempts of -retry-join."),
    "encrypt": (
        "server.encrypt",
        "Refused: servers have no gossip key, mutual TLS protects their traffic (tls block).",
    ),
    "acl-replication-token": ("acl.replication_token", "The management token of the authoritative region."),
}
_SWITCHES: dict[str, tuple[str, str]] = {
    "server": ("server.enabled", "Run a server."),
    "client": ("client.enabled", "Run a client."),
    "log-json": ("log_json", "Log in JSON."),
    "log-include-location": ("log_include_location", "Each line names the line of source that logged it."),
    "rejoin": ("server.rejoin_after_leave", "Go back to the servers that were known before this one left."),
    "acl-enabled": ("acl.enabled", "Enforce access control."),
}
_NUMBERS: dict[str, tuple[str, str]] = {
    "bootstrap-expect": ("server.bootstrap_expect", "How many servers to wait for before the first leader."),
    "raft-protocol": ("server.raft_protocol", WITHOUT_EFFECT),
    "network-speed": ("client.network_speed", "Mbit/s of the node's network as it is shown; bandwidth is not counted."),
    "retry-max": ("server.retry_max", "How often -retry-join is tried before the agent gives up; 0 means for ever."),
}
_LISTS: dict[str, tuple[str, str]] = {
    "join": ("server.start_join", "An address of a server to join."),
    "retry-join": ("server.retry_join", "An address of a server to join, tried again until it answers."),
}
IMPORT_LOT: Final = 1_500
"""The number of new objects that Python's collector examines together while modules are imported. It examines none
twice: nearly all of them stay for the life of the process."""
NEVER: Final = 1 << 30

FLAGS: tuple[Flag, ...] = (
    switch("dev", "Run a server and a client in one process, with state in memory; Ctrl-C stops every task."),
    switch("acl", "With -dev: enforce access control, and print a management token."),
    texts("config", "A configuration file or a folder of them; may be repeated, later ones win."),
    texts("meta", "key=value for the node's metadata; may be repeated."),
    text("servers", "Addresses of servers, separated by commas."),
    *(text(name, help_text) for name, (_, help_text) in _TEXT_FLAGS.items() if help_text),
    *(choice(name, help_text) for name, (_, help_text) in _SWITCHES.items() if help_text),
    *(number(name, help_text) for name, (_, help_text) in _NUMBERS.items() if help_text),
    *(texts(name, help_text) for name, (_, help_text) in _LISTS.items()),
    *(
        without_effect(name, kind=kind)
        for kind, table in ((TEXT, _TEXT_FLAGS), (MAYBE_BOOL, _SWITCHES), (INT, _NUMBERS))
        for name, (_, help_text) in table.items()
        if help_text == WITHOUT_EFFECT
    ),
)


def run(call: Invocation) -> int:
    """Read the configuration and run until a signal."""
    if not __debug__:
        raise CliError(
            "The agent does not run under `python -O`: its own checks would be off. Start python without -O."
        )
    collector = gc.get_threshold()
    gc.set_threshold(IMPORT_LOT, NEVER, NEVER)
    flags = call.flags
    from yurt.agent.config import AgentConfig, make_config
    from yurt.agent.config_check import check
    from yurt.agent.config_files import read_files
    from yurt.agent.config_keys import ROOT
    from yurt.agent.run import run_agent
    from yurt.sdk.errors import YurtError

    if flags.is_on("acl") and not flags.is_on("dev"):
        raise CliError(
            "-acl is for dev agents. Switch access control on with -acl-enabled, or acl { enabled = true } in the "
            "configuration, and make the first token with: yurt acl bootstrap"
        )
    from_flags, problems = check(flag_data(call), ROOT)
    if problems:
        raise CliError("\n".join(f"command line: {problem.text}" for problem in problems))

    def read() -> AgentConfig:
        from_files, sources = read_files(flags.texts("config"))
        return make_config(
            from_files, from_flags, is_dev=flags.is_on("dev"), makes_token=flags.is_on("acl"), sources=sources
        )

    try:
        return run_agent(read(), collector=collector, reload=read)
    except YurtError as error:
        print(f"==> {error}", file=sys.stderr)
        return 1


def flag_data(call: Invocation) -> dict[str, Any]:
    """The flags as configuration data in the shape of a file."""
    flags = call.flags
    data: dict[str, Any] = {}
    for name, (path, _) in _TEXT_FLAGS.items():
        if flags.is_given(name):
            _put(data, path, flags.text(name))
    for name, (path, _) in _SWITCHES.items():
        if flags.is_given(name):
            _put(data, path, flags.choice(name))
    for name, (path, _) in _NUMBERS.items():
        if flags.is_given(name):
            _put(data, path, flags.number(name))
    for name, (path, _) in _LISTS.items():
        if flags.is_given(name):
            _put(data, path, flags.texts(name))
    if flags.is_on("acl"):
        if flags.is_given("acl-enabled") and not flags.choice("acl-enabled"):
            raise CliError("-acl and -acl-enabled=false contradict each other; leave one of them away")
        _put(data, "acl.enabled", True)
    if flags.is_given("servers"):
        _put(data, "client.servers", [part for part in flags.text("servers").split(",") if part])
    if flags.is_given("meta"):
        _put(data, "client.meta", dict(_pair(item) for item in flags.texts("meta")))
    return data


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *blocks, name = path.split(".")
    for block in blocks:
        data = data.setdefault(block, {})
    data[name] = value


def _pair(raw_text: str) -> tuple[str, str]:
    name, equals, value = raw_text.partition("=")
    if not equals:
        raise CliError(f'-meta needs key=value, not "{raw_text}"')
    return name, value


COMMANDS = (
    CliCommand(
        "agent",
        NOUNS["agent"],
        run,
        FLAGS,
        is_client=False,
        details="""
A server holds the state of the cluster; a client runs tasks.

`yurt agent -dev` is all that is needed to try Yurt on one machine: state is kept in memory, and Ctrl-C stops
every task and leaves nothing behind. `yurt agent -dev -acl` does the same with access control, and prints a
management token.

`yurt agent -config FILE` runs with a data directory: tasks outlive the agent, and the next start finds them again.
""",
    ),
)
