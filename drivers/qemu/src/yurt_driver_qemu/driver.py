"""The qemu driver: a virtual machine as a process of the host that outlives the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator

import msgspec
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.common import owner_of
from yurt.sdk.driver import (
    HEALTHY,
    UNHEALTHY,
    ExecResult,
    ExitResult,
    Fingerprint,
    PluginContext,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.exec import ExecSession
from yurt.sdk.executor import (
    CgroupSpec,
    ProcessDriver,
    ProcessExecutor,
    ProcessSpec,
    Program,
    UserRules,
    check_task_user,
    denied_names,
)
from yurt.sdk.pinned_paths import PinnedPaths
from yurt.sdk.value import NANOSECONDS, Duration, replace

from yurt_driver_qemu.config import (
    ABSENT,
    AGENT_SOCKET,
    CAPABILITIES,
    DEFAULT_EMULATOR,
    INSTALL,
    NAME,
    QMP_SOCKET,
    PluginConfig,
    TaskConfig,
    command_line,
    emulator_of,
    plugin_config,
)
from yurt_driver_qemu.guest_agent import GuestAgent
from yurt_driver_qemu.images import Hold, find_image
from yurt_driver_qemu.monitor import press_power_button
from yurt_driver_qemu.pinned_images import PinnedImages, settle

KVM_DEVICE = "/dev/kvm"
VERSION = re.compile(r"version (\d[\d.]*)")
MONITOR = "monitor"
GUEST_AGENT = "guest_agent"


class QemuDriver:
    """A process driver with an ACPI power button."""

    def __init__(self, context: PluginContext) -> None:
        plugin = plugin_config(context.config)
        rules = UserRules(names=denied_names(NAME, context.options))
        self._program = Program(DEFAULT_EMULATOR, "--version")
        self._monitors: dict[str, str] = {}
        self._agents: dict[str, GuestAgent] = {}
        self._background = DriverTasks(NAME)
        self._places = PinnedPaths(f"{owner_of(context.paths.state_dir)}-{NAME}")
        self._images: dict[str, PinnedImages] = {}
        self._is_dev = context.dev
        self._is_begun = self._are_places_seen = False
        self._processes: ProcessDriver[ProcessSpec] = ProcessDriver(
            NAME,
            task_config=TaskConfig,
            process_for=lambda request: self._spec(request, plugin, rules),
            executor=ProcessExecutor.from_context(context),
            fingerprint=self._probe,
            capabilities=CAPABILITIES,
        )
        self.name = NAME
        self.capabilities = CAPABILITIES

    @property
    def task_config(self) -> type[msgspec.Struct]:
        """The options of a task."""
        return TaskConfig

    async def _probe(self) -> Fingerprint:
        """Whether an emulator is installed, and its version."""
        found = await self._program.look()
        if not found.path:
            return ABSENT
        version = VERSION.search(found.version_text)
        if found.problem or version is None:
            reason = found.problem or f"`{found.path} --version` does not tell a version"
            return Fingerprint(health=UNHEALTHY, description=reason, fix=INSTALL)
        attributes = {f"driver.{NAME}": "1", f"driver.{NAME}.version": version.group(1)}
        return Fingerprint(health=HEALTHY, description="Healthy", attributes=attributes)

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Whether an emulator is installed, and its version; at once and after each change."""
        await self._begin()
        async for found in self._processes.fingerprint():
            yield found

    async def _begin(self) -> None:
        """Remove the mounts of an earlier agent, once."""
        if not self._is_begun:
            self._is_begun = True
            await asyncio.to_thread(self._places.clear)

    def _spec(self, request: TaskRequest, plugin: PluginConfig, rules: UserRules) -> ProcessSpec:
        """The emulator process; a dev agent's process cleans up by itself, because no later agent would."""
        images = self._images[request.task_id]
        spec = process_spec(request, plugin, rules, images.take if images.is_on else None)
        return replace(spec, at_end=images.drop_command if self._is_dev else ())

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the virtual machine; its disks are pinned until it has opened them."""
        if request.task_id in self._images:
            raise DriverError(f"task {request.task_id} starts already; destroy it first")
        images = self._images[request.task_id] = PinnedImages(self._places, is_on=self._are_places_seen)
        try:
            await self._begin()
            images.is_on = self._are_places_seen = self._are_places_seen or await asyncio.to_thread(
                self._places.are_seen
            )
            handle = await self._processes.start_task(request)
        except BaseException:
            images.release()
            raise
        finally:
            del self._images[request.task_id]
        self._background.start("release of disk images", lambda: self._release_when_open(images, handle))
        config: TaskConfig = request.config
        monitor = f"{request.dirs.task_dir}/{QMP_SOCKET}" if config.graceful_shutdown else ""
        agent = f"{request.dirs.task_dir}/{AGENT_SOCKET}" if config.guest_agent else ""
        handle = replace(handle, state={**handle.state, MONITOR: monitor, GUEST_AGENT: agent})
        self._take_up(handle)
        return handle

    async def _release_when_open(self, images: PinnedImages, handle: TaskHandle) -> None:
        """Release the pins once the disks are open; a destroyed machine has ended too."""
        with contextlib.suppress(NotFound):
            await images.release_when_open(handle.pid, lambda wait_s: self._has_ended_within(handle.task_id, wait_s))

    async def recover_task(self, handle: TaskHandle) -> None:
        """Recover a virtual machine of an earlier agent."""
        await self._processes.recover_task(handle)
        self._take_up(handle)

    def _take_up(self, handle: TaskHandle) -> None:
        """Register the sockets of a virtual machine."""
        self._monitors[handle.task_id] = str(handle.state.get(MONITOR, ""))
        if agent := str(handle.state.get(GUEST_AGENT, "")):
            self._agents[handle.task_id] = GuestAgent(agent)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await self._processes.wait_task(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Refuse: a virtual machine receives no signals."""
        self._check_exists(task_id)
        raise DriverError(f"{signal} was not sent: a virtual machine takes no signals; stop or restart the task")

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Press the power button if the task requests it, and wait; then end the emulator."""
        monitor = self._monitors.get(task_id, "")
        if monitor and not await self._has_ended_within(task_id, 0):
            with contextlib.suppress(DriverError):
                await press_power_button(monitor)
                await self._has_ended_within(task_id, timeout / NANOSECONDS)
                timeout = Duration(0)
        await self._processes.stop_task(task_id, signal=signal, timeout=timeout)

    async def _has_ended_within(self, task_id: str, wait_s: float) -> bool:
        """Whether the emulator ends within a time limit."""
        try:
            async with asyncio.timeout(wait_s):
                await self._processes.wait_task(task_id)
        except TimeoutError:
            return False
        return True

    async def destroy_task(self, task_id: str) -> None:
        """Kill remaining processes and forget the task."""
        await self._processes.destroy_task(task_id)
        self._monitors.pop(task_id, None)
        self._agents.pop(task_id, None)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Resource usage of the emulator."""
        return await self._processes.task_stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command through the guest agent, if the task has one."""
        return await self._agent(task_id, command).run(command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start a command through the guest agent: without input, with the output at its end."""
        agent = self._agent(task_id, command)
        if tty:
            raise DriverError("a guest agent gives commands no terminal; run it without one (-t=false)")
        return await agent.begin(command)

    def _agent(self, task_id: str, command: tuple[str, ...]) -> GuestAgent:
        self._check_exists(task_id)
        if task_id not in self._agents:
            raise DriverError(
                f'"{" ".join(command)}" cannot be run in a virtual machine from outside: set guest_agent = true and '
                "install qemu-guest-agent in the guest, or offer another way in, such as SSH on a port of port_map"
            )
        return self._agents[task_id]

    async def close(self) -> None:
        """Close the executor; machines continue, those of a dev agent end."""
        await settle(self._background)
        await self._background.close()
        await asyncio.to_thread(self._places.close)
        await self._processes.close()

    def _check_exists(self, task_id: str) -> None:
        if task_id not in self._monitors:
            raise NotFound(f"no task {task_id} here")


def process_spec(request: TaskRequest, plugin: PluginConfig, rules: UserRules, hold: Hold | None = None) -> ProcessSpec:
    """The emulator process of a task, with its files found, checked, and pinned where supported.

    The emulator runs with the rights of the agent unless the task names a user: it gets none of the task's variables
    (LD_PRELOAD among them), and is found by the agent's PATH, never in the task's directory. The guest's memory is
    not all that an emulator needs, so that memory is not limited.
    """
    config: TaskConfig = request.config
    if request.user:
        check_task_user(rules, request.user)
    emulator = shutil.which(emulator_of(config, plugin))
    if emulator is None:
        raise DriverError(f'emulator "{config.emulator or DEFAULT_EMULATOR}" is not on PATH of this client; {INSTALL}')
    if config.accelerator == "kvm" and not os.access(KVM_DEVICE, os.R_OK | os.W_OK):
        raise DriverError(f'accelerator = "kvm": {KVM_DEVICE} cannot be used on this client; set accelerator = "tcg"')
    image = find_image(
        config.image_path,
        task_dir=request.dirs.task_dir,
        alloc_dir=request.dirs.alloc_dir,
        image_paths=plugin.image_paths,
        hold=hold,
    )
    argv = command_line(request, emulator=emulator, image=image, plugin=plugin)
    own = {name: value for name, value in request.env.items() if name.startswith("NOMAD_")}
    return replace(
        ProcessSpec.of_task(request, argv),
        env={**own, "PATH": os.environ.get("PATH", os.defpath)},
        search=(),
        cgroup=replace(CgroupSpec.of_resources(request.resources), memory_bytes=0, memory_reserved_bytes=0),
    )
