"""What happens before a run of a task may start: its directory, environment, configuration, volumes and artifacts.

The steps follow each other in one place (`TaskSetup.prepare`). Each raises what stands in its way as a SetupProblem,
whose event the user reads; a recoverable one is tried again by the task's restart policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from yurt.client.artifacts import hook as artifacts
from yurt.client.context import ClientContext
from yurt.client.csi.places import make_folders
from yurt.client.csi.volumes import csi_requests, is_lasting
from yurt.client.devices.claims import claim_of, reachable
from yurt.client.files import alloc_dir
from yurt.client.files.link_owners import link_owners, task_users
from yurt.client.files.safe_files import Owners
from yurt.client.networks.manager import TaskNetwork
from yurt.client.requirements import notice, unavailable
from yurt.client.task_env import (
    EnvInputs,
    build_env,
    lookup_in,
    ports_given,
    ports_of_task,
    replace_in,
    visible_dirs,
)
from yurt.client.tasks.identities import TaskIdentities, handed_out, is_final
from yurt.client.templates.control import Spawn, TaskControl
from yurt.client.templates.manager import TaskTemplates
from yurt.client.templates.targets import TemplatePlace
from yurt.client.volumes.mounts import VolumesThere, absent_paths, mounts_of
from yurt.client.waiting import finish_unless, value_unless
from yurt.lifecycle import events
from yurt.sdk.device import Reservation
from yurt.sdk.driver import Driver, LogRotation, Mount, NameServers, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError, Invalid, RecoverableError, YurtError
from yurt.sdk.schema import decode_config
from yurt.sdk.value import Value, no_entries, replace
from yurt.structs.alloc import AllocatedTaskResources, Allocation, TaskEvent
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.task import Task

MIB = 1024 * 1024
NUMA_REQUIRE = "require"


class SetupProblem(Exception):
    """A run cannot be prepared; `event` says why."""

    def __init__(self, event: TaskEvent, *, is_recoverable: bool = False) -> None:
        super().__init__(event.display_message)
        self.event = event
        self.is_recoverable = is_recoverable


class TaskSpec(Value):
    """A task where it stands: its allocation, at the version of the job that this runs."""

    alloc: Allocation
    job: Job
    group: TaskGroup
    task: Task
    devices: Reservation = Reservation()
    memory_nodes: tuple[int, ...] = ()
    network: TaskNetwork = TaskNetwork()
    volumes: Mapping[str, str] = no_entries()
    """Where the group's CSI volumes are, by name."""
    plugin_env: Mapping[str, str] = no_entries()
    plugin_mounts: tuple[Mount, ...] = ()
    template_env: Mapping[str, str] = no_entries()


def task_spec(alloc: Allocation, task_name: str) -> TaskSpec:
    """The task of an allocation that is known to have it."""
    assert alloc.job is not None, alloc.id
    group = alloc.job.group(alloc.task_group)
    assert group is not None, alloc.task_group
    task = group.task(task_name)
    assert task is not None, task_name
    return TaskSpec(alloc=alloc, job=alloc.job, group=group, task=task)


def run_id(alloc: Allocation, task_name: str, run: int) -> str:
    """The name of one run of a task for its driver."""
    return f"{alloc.id}/{task_name}/{run}"


class TaskSetup:
    """Prepares the runs of one task, and knows what earlier ones left that need not be done again."""

    def __init__(
        self,
        task_name: str,
        context: ClientContext,
        *,
        control: TaskControl,
        spawn: Spawn,
        saved: Callable[[], Awaitable[None]],
        killed: asyncio.Event,
    ) -> None:
        self.name = task_name
        self.fetched: set[str] = set()
        self.templates = TaskTemplates(task_name, context.templates, control=control, spawn=spawn)
        self.identities = TaskIdentities(task_name, context, control=control, spawn=spawn)
        self._context = context
        self._control = control
        self._spawn = spawn
        self._resuming: asyncio.Task[None] | None = None
        self._resumed: TaskSpec | None = None
        """What is known again of a run that an earlier agent started."""
        self._saved = saved
        self._killed = killed

    async def prepare(self, alloc: Allocation, run: int) -> TaskRequest:
        """Everything that the driver needs for a run; raises SetupProblem."""
        spec = task_spec(alloc, self.name)
        driver = self._driver(spec)
        unheard = notice(spec.group, spec.task) if run == 0 else ""
        if unheard:
            self._control.note(events.task_setup(unheard))
        dirs = await self._make_dirs(spec)
        spec = await self._with_devices(spec, driver)
        spec = replace(spec, template_env=await self._sign_identities(spec, dirs))
        spec = await self._with_network(spec, driver)
        spec = await self._as_plugin(spec, driver)
        spec = await self._with_csi_volumes(spec)
        try:
            request = self._request(spec, driver, dirs=dirs, run=run)
        except Invalid as error:
            raise SetupProblem(events.failed_validation(str(error))) from None
        await self._check_volumes(request)
        await self._fetch_artifacts(spec.alloc, spec.task, request)
        env = await self._render_templates(spec, request)
        if not env:
            return request
        return self._request(replace(spec, template_env={**spec.template_env, **env}), driver, dirs=dirs, run=run)

    def stop(self) -> None:
        """The task ends: nothing is followed any more."""
        self.templates.stop()
        self.identities.stop()
        if self._resuming is not None:
            self._resuming.cancel()

    def resume(self, alloc: Allocation) -> None:
        """Follow templates and identities of a task that an earlier agent started."""
        spec = task_spec(alloc, self.name)
        driver = self._context.drivers.get(spec.task.driver)
        if driver is not None and (spec.task.templates or spec.task.actions or handed_out(spec.task)):
            self._resuming = self._spawn(self._resume(spec, driver), lambda _: None)

    def env_again(self, alloc: Allocation, driver: Driver) -> Mapping[str, str]:
        """The environment of a run that an earlier agent started, as far as it is known again."""
        spec = self._resumed or task_spec(alloc, self.name)
        return self._env_of(replace(spec, template_env={**spec.template_env, **self.templates.env}), driver)

    async def _resume(self, spec: TaskSpec, driver: Driver) -> None:
        """Templates are compared with what the task has seen, so they need its environment as it was."""
        status = self._context.networks.status(spec.alloc.id)
        if status is not None:
            spec = replace(spec, alloc=replace(spec.alloc, network_status=status))
        are_devices_known = True
        try:
            spec = await self._with_devices(spec, driver)
        except SetupProblem as problem:
            are_devices_known = False
            without = "Templates stay as they are, and actions know neither their variables nor those of devices"
            self._control.note(events.task_setup(f"{without}: {problem}"))
        self._resumed = spec
        tokens = await self.identities.env_again(spec.alloc, spec.task, self._dirs(spec))
        spec = self._resumed = replace(spec, template_env=tokens)
        if spec.task.templates and are_devices_known:
            env, owners = self._env_of(spec, driver), await self._link_owners(spec.alloc)
            self.templates.resume(_template_place(spec, self._dirs(spec), env, owners))

    def _env_of(self, spec: TaskSpec, driver: Driver) -> dict[str, str]:
        return build_env(self._env_inputs(spec, driver, self._dirs(spec)))

    def _dirs(self, spec: TaskSpec) -> TaskDirs:
        return alloc_dir.task_dirs(self._context.config.alloc_dir, spec.alloc.id, self.name)

    async def _sign_identities(self, spec: TaskSpec, dirs: TaskDirs) -> dict[str, str]:
        """The tokens that the task gets to see: in its files, and those that its environment holds."""
        if not handed_out(spec.task):
            return {}
        try:
            return await self.identities.env_for_start(spec.alloc, spec.task, dirs)
        except YurtError as error:
            failure = events.setup_failure(f"cannot hand out the task's identity: {error}")
            raise SetupProblem(failure, is_recoverable=not is_final(error)) from None

    async def _render_templates(self, spec: TaskSpec, request: TaskRequest) -> dict[str, str]:
        """Write the task's templates once all that they ask for is there; the variables that they give."""
        env: dict[str, str] = {}
        if not spec.task.templates:
            return env

        async def render() -> None:
            place = _template_place(spec, request.dirs, request.env, await self._link_owners(spec.alloc))
            env.update(await self.templates.rendered_env(place))

        try:
            await finish_unless(self._killed, render())
        except Invalid as error:
            raise SetupProblem(events.template(str(error), is_failure=True)) from None
        return env

    def _driver(self, spec: TaskSpec) -> Driver:
        reason = unavailable(spec.group, spec.task)
        driver = self._context.drivers.get(spec.task.driver)
        if not reason and driver is None:
            reason = f"driver {spec.task.driver!r} is not on this node; install its plugin or constrain the job"
        if reason or driver is None:
            raise SetupProblem(events.setup_failure(reason))
        return driver

    async def _make_dirs(self, spec: TaskSpec) -> TaskDirs:
        """The task's tree; meanwhile the intent to start this run, and all before it, is written down."""
        saving = asyncio.ensure_future(self._saved())  # noqa: TID251 - awaited or cancelled below
        try:
            dirs = await asyncio.to_thread(self._build_dirs, spec)
            await saving
        except (OSError, Invalid) as error:
            failure = events.setup_failure(f"cannot build the task's directory: {error}")
            raise SetupProblem(failure, is_recoverable=isinstance(error, OSError)) from None
        finally:
            saving.cancel()
        return dirs

    def _build_dirs(self, spec: TaskSpec) -> TaskDirs:
        """The task's tree and its dispatch payload; blocking."""
        config, task = self._context.config, spec.task
        secrets_mb = alloc_dir.NO_MOUNT if config.dev else task.resources.secrets_mb
        dirs = alloc_dir.build_task_dir(
            config.alloc_dir, spec.alloc.id, task.name, user=task.user, secrets_mb=secrets_mb
        )
        wanted = task.dispatch_payload
        if wanted is not None and wanted.file and spec.job.payload:
            alloc_dir.write_dispatch_payload(dirs, wanted.file, spec.job.payload)
        return dirs

    async def _with_devices(self, spec: TaskSpec, driver: Driver) -> TaskSpec:
        """The task with what it needs to see the devices that it was given."""
        claim = claim_of(spec.alloc, self.name)
        if not claim.devices:
            return spec
        try:
            reservation = await self._context.devices.reserve(claim)
            nodes = self._context.devices.memory_nodes(claim) if is_bound(spec.task) else ()
            return replace(spec, devices=reachable(reservation, driver), memory_nodes=nodes)
        except DriverError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None

    async def _with_network(self, spec: TaskSpec, driver: Driver) -> TaskSpec:
        """The task with its group's network, which the first task of the group makes."""
        try:
            network = await self._context.networks.join(spec.alloc, spec.group, driver)
        except DriverError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None
        alloc = replace(spec.alloc, network_status=network.status) if network.status else spec.alloc
        return replace(spec, alloc=alloc, network=network)

    async def _as_plugin(self, spec: TaskSpec, driver: Driver) -> TaskSpec:
        """A task that is a CSI plugin, with the folders in which it listens and mounts."""
        block = spec.task.csi_plugin_config
        if block is None:
            return spec
        try:
            place = self._context.csi.places.of_task(spec.alloc.id, self.name, block, driver)
        except Invalid as error:
            raise SetupProblem(events.failed_validation(str(error))) from None
        await asyncio.to_thread(make_folders, place.folders)
        return replace(spec, plugin_env=place.env, plugin_mounts=place.mounts)

    async def _with_csi_volumes(self, spec: TaskSpec) -> TaskSpec:
        """The task with its group's CSI volumes, which the first task of the group has mounted."""
        if not csi_requests(spec.group):
            return spec
        mounting = self._context.csi.volumes.publish(
            spec.alloc, spec.group, lambda text: self._control.note(events.task_setup(text))
        )
        try:
            found = await value_unless(self._killed, mounting)
        except YurtError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=not is_lasting(error)) from None
        return replace(spec, volumes=found or {})

    async def _check_volumes(self, request: TaskRequest) -> None:
        if not request.mounts:
            return
        paths = tuple(mount.host_path for mount in request.mounts)
        try:
            await asyncio.to_thread(self._context.host_volumes.check_mounts, paths)
        except Invalid as error:
            raise SetupProblem(events.setup_failure(str(error)), is_recoverable=True) from None
        absent = await asyncio.to_thread(absent_paths, request.mounts)
        if absent:
            text = f"the folder {absent[0]} of a host volume is not on this node; make it, or mount what holds it"
            raise SetupProblem(events.setup_failure(text), is_recoverable=True)

    async def _link_owners(self, alloc: Allocation) -> Owners:
        return await asyncio.to_thread(link_owners, task_users(alloc), self._context.drivers)

    async def _fetch_artifacts(self, alloc: Allocation, task: Task, request: TaskRequest) -> None:
        """Download what the task has not got yet; its kill ends that at once."""
        if not task.artifacts:
            return
        context = self._context
        try:
            wanted = artifacts.plan(
                task.artifacts,
                artifacts.TaskPlace(
                    task_name=self.name, dirs=request.dirs, user=task.user, link_owners=await self._link_owners(alloc)
                ),
                lookup=lookup_in(context.node(), context.config.region, request.env),
                limits=context.config.artifact,
            )
            missing = {digest: fetch for digest, fetch in wanted.items() if digest not in self.fetched}
            if missing:
                self._control.note(events.downloading_artifacts())
                await finish_unless(self._killed, artifacts.fetch_all(missing, on_done=self.fetched.add))
        except (Invalid, RecoverableError) as error:
            failure = events.failed_artifact_download(str(error))
            raise SetupProblem(failure, is_recoverable=isinstance(error, RecoverableError)) from None

    def _request(self, spec: TaskSpec, driver: Driver, *, dirs: TaskDirs, run: int) -> TaskRequest:
        alloc, group, task = spec.alloc, spec.group, spec.task
        inputs = self._env_inputs(spec, driver, dirs)
        env = build_env(inputs)
        lookup = lookup_in(inputs.node, inputs.region, env)
        return TaskRequest(
            task_id=run_id(alloc, task.name, run),
            alloc_id=alloc.id,
            task_name=task.name,
            job_id=alloc.job_id,
            group_name=alloc.task_group,
            namespace=alloc.namespace,
            config=decode_config(driver.task_config, replace_in(task.config, lookup)),
            env=env,
            dirs=dirs,
            resources=resources_of(spec, inputs.node),
            logs=LogRotation(
                max_files=task.log_config.max_files,
                max_bytes=task.log_config.max_file_size_mb * MIB,
                disabled=task.log_config.disabled,
            ),
            user=task.user,
            ports=(*ports_given(alloc), *ports_of_task(alloc, task.name)),
            network_namespace=spec.network.namespace,
            mounts=(
                *mounts_of(
                    task,
                    group,
                    alloc=alloc,
                    driver=driver,
                    there=VolumesThere(host=inputs.node.host_volumes, csi=spec.volumes),
                    lookup=lookup,
                ),
                *spec.plugin_mounts,
                *spec.devices.mounts,
                *spec.network.mounts,
            ),
            devices=spec.devices.nodes,
            cdi_devices=spec.devices.cdi_devices,
            engine_devices=spec.devices.engine_devices,
            hostname=next((network.hostname for network in group.networks), ""),
            name_servers=name_servers_of(group),
        )

    def _env_inputs(self, spec: TaskSpec, driver: Driver, dirs: TaskDirs) -> EnvInputs:
        context = self._context
        isolation = driver.capabilities.fs_isolation
        shared, local, secrets = visible_dirs(dirs, isolation)
        return EnvInputs(
            node=context.node(),
            region=context.config.region,
            alloc=spec.alloc,
            job=spec.job,
            group=spec.group,
            task=spec.task,
            alloc_dir=shared,
            task_dir=local,
            secrets_dir=secrets,
            host_env=context.host_env if isolation != "image" else {},
            template_env={**spec.template_env, **spec.plugin_env},
            device_env=spec.devices.env,
        )


def _template_place(spec: TaskSpec, dirs: TaskDirs, env: Mapping[str, str], owners: Owners) -> TemplatePlace:
    return TemplatePlace(
        alloc_id=spec.alloc.id,
        task=spec.task.name,
        namespace=spec.alloc.namespace,
        dirs=dirs,
        env=env,
        templates=spec.task.templates,
        job_id=spec.job.id,
        group=spec.group.name,
        is_rendered_each_start=spec.task.restart_policy.render_templates,
        link_owners=owners,
    )


def is_bound(task: Task) -> bool:
    """Whether the task's memory must be near its devices."""
    numa = task.resources.numa
    return numa is not None and numa.affinity == NUMA_REQUIRE


def name_servers_of(group: TaskGroup) -> NameServers | None:
    """What the group's network block says of the resolver."""
    dns = next((network.dns for network in group.networks), None)
    return NameServers(servers=dns.servers, searches=dns.searches, options=dns.options) if dns is not None else None


def resources_of(spec: TaskSpec, node: Node) -> TaskResources:
    """What the scheduler gave to the task."""
    given = spec.alloc.allocated_resources.tasks.get(spec.task.name, AllocatedTaskResources())
    return TaskResources(
        cpu_shares=given.cpu.cpu_shares or spec.task.resources.cpu,
        node_cpu_shares=node.node_resources.cpu.cpu_shares,
        reserved_cores=given.cpu.reserved_cores,
        memory_nodes=spec.memory_nodes,
        memory_mb=given.memory.memory_mb or spec.task.resources.memory_mb,
        memory_max_mb=given.memory.memory_max_mb,
    )
