"""`yurt doctor`: what this host lacks for an agent, and how to fix it; no agent is needed."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.flags import switch, text, texts
from yurt.cli.tree import NOUNS

if TYPE_CHECKING:
    from yurt.agent.config import AgentConfig
    from yurt.plugins.manager import LoadedPlugins
    from yurt.sdk.fingerprints import NodeFingerprint

FINE, NOTE, BAD = "ok", "note", "problem"
PYTHON_MIN = (3, 11)
DISK_FREE_MIN = 1024**3
FINGERPRINT_LIMIT_S = 10.0
T = TypeVar("T")
_STYLES = {FINE: "green", NOTE: "yellow", BAD: "red"}


class Finding(NamedTuple):
    """The result of one check."""

    state: str
    subject: str
    detail: str
    fix: str = ""


def run(call: Invocation) -> int:
    """Run all checks and print them; 1 when an agent could not run. Or look for what an agent left behind."""
    if call.flags.is_on("leftovers") or call.flags.is_on("clean"):
        return show_leftovers(call)
    findings = list(look(call))
    if call.flags.is_on("json"):
        call.screen.json([finding._asdict() for finding in findings])
    else:
        for finding in findings:
            mark = call.screen.style(f"[{finding.state}]".ljust(9), _STYLES[finding.state])
            call.screen.line(f"{mark} {finding.subject}: {finding.detail}")
            if finding.fix:
                call.screen.line(f"{' ' * 9} fix: {finding.fix}")
    problems = sum(finding.state == BAD for finding in findings)
    if not call.flags.is_on("json"):
        call.screen.line()
        call.screen.line(
            "This host is fit for `yurt agent -dev`." if not problems else f"{problems} to mend, see above."
        )
    return 1 if problems else 0


def show_leftovers(call: Invocation) -> int:
    """List an agent's leftovers, or remove them; 1 when any remain."""
    import asyncio

    from yurt.agent.config import make_config
    from yurt.agent.config_files import read_files
    from yurt.agent.leftovers import REMOVED, clear

    from_files, sources = read_files(call.flags.texts("config"))
    data_dir = call.flags.text("data-dir") or str(from_files.get("data_dir", ""))
    if not data_dir:
        call.screen.error("Say which agent's: -data-dir=/var/lib/yurt, or -config=FILE with its data_dir.")
        return 1
    is_named = {"server", "client"} & from_files.keys()
    roles = {} if is_named else {"client": {"enabled": True}, "server": {"enabled": True}}
    config = make_config({**roles, **from_files}, {"data_dir": data_dir}, is_dev=False, sources=sources)
    outcomes = asyncio.run(clear(config, removes=call.flags.is_on("clean")))
    left = [each for each in outcomes if each.state != REMOVED]
    if call.flags.is_on("json"):
        names = ("kind", "name", "detail", "state", "problem")
        call.screen.json([{name: getattr(each, name) for name in names} for each in outcomes])
        return 1 if left else 0
    for each in outcomes:
        mark = call.screen.style(f"[{each.state}]".ljust(9), "green" if each.state == REMOVED else "yellow")
        call.screen.line(f"{mark} {each.kind} {each.name}{f': {each.detail}' if each.detail else ''}")
        if each.problem:
            call.screen.line(f"{' ' * 9} {each.problem}")
    call.screen.line(_leftovers_line(data_dir, removed=len(outcomes) - len(left), left=len(left), call=call))
    return 1 if left else 0


def _leftovers_line(data_dir: str, *, removed: int, left: int, call: Invocation) -> str:
    if not removed and not left:
        return f"Nothing is left of the agent of {data_dir}."
    if not call.flags.is_on("clean"):
        return f"{left} left by the agent of {data_dir}. Remove it with -clean; nothing was changed."
    return f"{removed} removed, {left} left, see above." if left else f"{removed} removed."


def look(call: Invocation) -> Iterator[Finding]:
    """All checks, in order."""
    import asyncio

    from yurt.agent.config import make_config
    from yurt.agent.config_files import read_files
    from yurt.sdk.errors import YurtError

    yield python_version(sys.version_info[:2], optimized=not __debug__)
    yield operating_system(platform.system(), platform.release())
    yield control_groups(Path("/sys/fs/cgroup"), is_root=_is_root())
    flags: dict[str, str] = {"data_dir": call.flags.text("data-dir")} if call.flags.text("data-dir") else {}
    try:
        from_files, sources = read_files(call.flags.texts("config"))
        config = make_config(from_files, flags, is_dev=call.flags.is_on("dev") or not sources.files, sources=sources)
    except YurtError as error:
        for line in str(error).splitlines():
            yield Finding(BAD, "configuration", line)
        return
    if sources.files:
        yield Finding(FINE, "configuration", f"{', '.join(sources.names)} can be used")
    yield from ports(config.http_addresses, config.http_port)
    yield data_directory(config.data_dir)
    yield artifact_isolation(config.client)
    yield from asyncio.run(plugins(config))


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def python_version(version: tuple[int, ...], *, optimized: bool) -> Finding:
    """New enough, and with its asserts on."""
    shown = ".".join(map(str, version))
    if version < PYTHON_MIN:
        return Finding(BAD, "python", f"{shown} is too old", "install Python 3.11 or newer")
    if optimized:
        return Finding(
            BAD, "python", "started with -O, which switches Yurt's own checks off", "start python without -O"
        )
    return Finding(FINE, "python", f"{shown} at {sys.executable}")


def operating_system(name: str, release: str) -> Finding:
    """Linux, or something that at least has processes and signals."""
    if name == "Linux":
        return Finding(FINE, "system", f"{name} {release}")
    return Finding(NOTE, "system", f"{name} {release}: tasks run, but without limits on memory and CPU", "use Linux")


def control_groups(root: Path, *, is_root: bool) -> Finding:
    """Which hierarchy limits tasks, and whether this user may use it."""
    if not root.is_dir():
        return Finding(NOTE, "cgroups", "none are mounted, so tasks run without limits", f"mount them at {root}")
    version = "v2" if (root / "cgroup.controllers").exists() else "v1"
    if not is_root and not os.access(root, os.W_OK):
        fix = (
            "run the agent as root, or in a delegated slice: systemd-run --user --scope -p Delegate=yes yurt agent -dev"
        )
        return Finding(NOTE, "cgroups", f"{version}, but not writable by this user, so tasks run without limits", fix)
    if version == "v2":
        controllers = set((root / "cgroup.controllers").read_text().split())
        missing = sorted({"cpu", "memory"} - controllers)
        if missing:
            return Finding(NOTE, "cgroups", f"v2 without {', '.join(missing)}", "boot with cgroup_enable=memory")
    return Finding(FINE, "cgroups", f"{version} at {root}")


def ports(addresses: tuple[str, ...], port: int) -> Iterator[Finding]:
    """Whether an agent could listen."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                fix = "stop what uses it (an agent may run already), or set `ports { http = ... }`"
                yield Finding(BAD, "port", f"{address}:{port} cannot be used: {error.strerror}", fix)
                continue
        yield Finding(FINE, "port", f"{address}:{port} is free")


def data_directory(path: str) -> Finding:
    """Whether the data directory is writable and has free space."""
    import tempfile

    root = Path(path) if path else Path(tempfile.gettempdir())
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    if not existing.is_dir():
        return Finding(BAD, "data directory", f"{existing} is not a directory", "choose another with -data-dir")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding(
            BAD,
            "data directory",
            f"{existing} is not writable by this user",
            "chown it, or choose another with -data-dir",
        )
    free = shutil.disk_usage(existing).free
    if free < DISK_FREE_MIN:
        return Finding(NOTE, "data directory", f"{root} has only {free // 1024**2} MiB left", "free some space")
    return Finding(FINE, "data directory", f"{root} is writable, {free // 1024**3} GiB free")


def artifact_isolation(client: Mapping[str, Any]) -> Finding:
    """How downloads of artifacts are isolated from the host."""
    from yurt.client.artifacts.confinement import isolation

    subject, block = "artifact isolation", client.get("artifact", {})
    found = isolation(is_confined=not block.get("disable_filesystem_isolation", False))
    if found.missing:
        return Finding(NOTE, subject, f"{found.text}: {'; '.join(found.missing)}")
    return Finding(FINE, subject, f"{found.text}, Landlock v{found.landlock}")


async def plugins(config: AgentConfig) -> list[Finding]:
    """Load every plugin and ask each driver for its first fingerprint, all at once."""
    import asyncio
    import tempfile

    from yurt.plugins.manager import OK, SKIPPED, PluginManager
    from yurt.sdk.driver import AgentPaths, Driver, PluginContext

    with tempfile.TemporaryDirectory(prefix="yurt-doctor-") as folder:
        manager = PluginManager()
        paths = AgentPaths(state_dir=folder, run_dir=folder)
        context = PluginContext(dev=config.is_dev, options=config.client.get("options", {}), paths=paths)
        loaded = manager.load(lambda name: context, configs=config.plugins)
        findings = [Finding(NOTE, "configuration", loaded.unused_text(label)) for label in loaded.unused]
        for status in loaded.statuses:
            if status.state != OK:
                state = NOTE if status.state == SKIPPED else BAD
                findings.append(Finding(state, f"plugin {status.name}", f"{status.state}: {status.reason}"))
        names = sorted(loaded.drivers)
        found = await asyncio.gather(*(_fingerprint(name, loaded.drivers[name]) for name in names))
        offers = await asyncio.gather(*map(_devices, loaded.devices, loaded.devices.values()), return_exceptions=True)
        seen = await asyncio.gather(*map(_attributes, loaded.fingerprints, loaded.fingerprints.values()))
        await manager.close()
    if not names:
        findings.append(Finding(BAD, "drivers", "none is installed", "pip install 'yurt[all]'"))
    assert all(isinstance(driver, Driver) for driver in loaded.drivers.values())
    for name, offer in zip(loaded.devices, offers, strict=True):
        findings.append(
            Finding(BAD, f"devices {name}", f"failed: {offer}") if isinstance(offer, BaseException) else offer
        )
    findings += [
        Finding(FINE, f"templates {name}", f"answers {', '.join(provider.functions)}")
        for name, provider in loaded.providers.items()
    ]
    findings += other_parts(loaded)
    return findings + list(seen) + list(found)


def other_parts(loaded: LoadedPlugins) -> Iterator[Finding]:
    """A line for each hook with its place in the order, service provider, artifact getter and log engine."""
    from yurt.sdk.hooks import ALLOC_HOOKS, TASK_HOOKS, order

    orders = (
        ("task hook", loaded.task_hooks, order(TASK_HOOKS, tuple(loaded.task_hooks.values()))),
        ("allocation hook", loaded.alloc_hooks, order(ALLOC_HOOKS, tuple(loaded.alloc_hooks.values()))),
    )
    for kind, added, names in orders:
        for name in added:
            at = names.index(name) + 1
            place = f"right before {names[at]}" if at < len(names) else "last"
            yield Finding(FINE, f"{kind} {name}", f"is called {place}")
    for name in loaded.service_providers:
        yield Finding(FINE, f"service provider {name}", f'registers services with provider = "{name}"')
    for name in loaded.artifact_getters:
        yield Finding(FINE, f"artifact getter {name}", f'downloads artifacts whose source begins with "{name}::"')
    for name in loaded.log_engines:
        yield Finding(FINE, f"log engine {name}", f'is used with server {{ raft_logstore {{ backend = "{name}" }} }}')


async def _in_time(answer: Coroutine[Any, Any, T]) -> T:
    """The first answer of a plugin's part; raises TimeoutError when there is none."""
    import asyncio

    return await asyncio.wait_for(answer, FINGERPRINT_LIMIT_S)


async def _fingerprint(name: str, driver: object) -> Finding:
    from yurt.sdk.driver import HEALTHY, Driver, Fingerprint

    assert isinstance(driver, Driver)

    async def first() -> Fingerprint | None:
        async for found in driver.fingerprint():
            return found
        return None

    try:
        found = await _in_time(first())
    except TimeoutError:
        return Finding(BAD, f"driver {name}", f"said nothing within {FINGERPRINT_LIMIT_S:.0f} s")
    except Exception as error:
        return Finding(BAD, f"driver {name}", f"failed: {error}")
    if found is None:
        return Finding(BAD, f"driver {name}", "ended without saying whether it works")
    if found.health == HEALTHY:
        state = NOTE if found.fix else FINE
        return Finding(state, f"driver {name}", found.description or "healthy", found.fix)
    return Finding(NOTE, f"driver {name}", f"{found.health}: {found.description or 'no reason given'}", found.fix)


async def _devices(name: str, plugin: object) -> Finding:
    """The first devices that a device plugin reports."""
    from yurt.client.devices.manager import summary
    from yurt.sdk.device import DeviceFingerprint, DevicePlugin

    assert isinstance(plugin, DevicePlugin)

    async def first() -> DeviceFingerprint:
        async for found in plugin.fingerprint():
            return found
        return DeviceFingerprint(description="ended without saying what it offers")

    try:
        works, text = summary(await _in_time(first()))
    except TimeoutError:
        return Finding(BAD, f"devices {name}", f"said nothing within {FINGERPRINT_LIMIT_S:.0f} s")
    return Finding(FINE if works else NOTE, f"devices {name}", text)


async def _attributes(name: str, fingerprint: NodeFingerprint) -> Finding:
    """The first attributes that a package's fingerprint reports."""
    from yurt.sdk.fingerprints import node_attributes

    async def first() -> Mapping[str, str]:
        async for found in fingerprint.fingerprint():
            return node_attributes(name, found)
        return {}

    try:
        found = await _in_time(first())
    except TimeoutError:
        return Finding(BAD, f"fingerprint {name}", f"said nothing within {FINGERPRINT_LIMIT_S:.0f} s")
    except Exception as error:
        return Finding(BAD, f"fingerprint {name}", f"failed: {error}")
    return Finding(FINE, f"fingerprint {name}", f"finds {', '.join(sorted(found)) or 'nothing'}")


COMMANDS = (
    CliCommand(
        "doctor",
        NOUNS["doctor"],
        run,
        (
            switch("dev", "Look for `agent -dev`, which is the default without -config."),
            texts("config", "A configuration file or a folder of them; may be repeated."),
            text("data-dir", "Where the agent would keep its data."),
            switch("json", "Print the findings as JSON."),
            switch("leftovers", "List what the agent of -config or -data-dir, which is gone, left on this host."),
            switch("clean", "Remove it: tasks, cgroups, containers, networks and mounts. Data stays."),
        ),
        is_client=False,
        details=(
            "Run it where the agent is to run and as the same user. The exit code is 1 when an agent could not run.\n\n"
            "With -leftovers or -clean it looks for what an agent left that is gone for good, or was killed and will "
            "not be started again: those are refused while the agent runs. The exit code is 1 when something is left."
        ),
    ),
)
