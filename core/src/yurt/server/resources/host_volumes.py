"""Dynamic host volumes: creation, registration and deletion on nodes.

The volume is stored as pending before its node is asked, so nothing that a node makes is unknown here. It becomes
ready when the node's registration names it.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress

from yurt.fsm.basis import expectation
from yurt.rules.problems import near_hint
from yurt.scheduler.constraints.operators import holds
from yurt.scheduler.constraints.targets import resolve
from yurt.sdk.errors import Conflict, Invalid, NotFound, Reason, YurtError
from yurt.sdk.value import replace
from yurt.server.log.log_writer import Committed, Stale
from yurt.server.log.replica import Replica
from yurt.server.ports import FindNode
from yurt.state.host_volumes import users
from yurt.state.store import Snapshot
from yurt.structs.commands import DeleteHostVolume, DeleteHostVolumeClaim, Expectation, PutHostVolume
from yurt.structs.node import Node
from yurt.structs.predicates import is_ready
from yurt.structs.volumes import host as modes
from yurt.structs.volumes.host import HostVolume, HostVolumeMade

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(\[[0-9]{1,6}\])?")
PLUGIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
PARAMETERS_MAX = 256


class HostVolumes:
    """Operations on dynamic host volumes."""

    def __init__(self, replica: Replica, find_node: FindNode, *, region: str) -> None:
        self._replica = replica
        self._region = region
        self._find_node = find_node

    async def create(self, requested: HostVolume, *, reads_nodes: bool = False) -> tuple[HostVolume, int]:
        """Create a volume on a node, or change the one with this id; returns the volume and its index.

        `reads_nodes`: errors name the node by its name, too.
        """
        check(requested)
        if not requested.plugin_id:
            raise Invalid('missing plugin_id: name a plugin of the node, such as "mkdir"')
        if requested.host_path:
            raise Invalid("host_path is for `volume register`; the plugin chooses the path of a volume that it makes")
        return await self._place(requested, is_registered=False, reads_nodes=reads_nodes)

    async def register(self, requested: HostVolume, *, reads_nodes: bool = False) -> tuple[HostVolume, int]:
        """Register an existing folder of a node; returns the volume and its index. `reads_nodes` as in `create`."""
        check(requested)
        if not requested.node_id:
            raise Invalid("missing node_id: name the node that has the folder")
        if not requested.host_path.startswith("/"):
            raise Invalid("missing host_path: name the folder by its full path")
        return await self._place(requested, is_registered=True, reads_nodes=reads_nodes)

    async def _place(self, requested: HostVolume, *, is_registered: bool, reads_nodes: bool) -> tuple[HostVolume, int]:
        state = self._replica.state
        existing = self._existing(state, requested) if requested.id else None
        node_id = existing.node_id if existing is not None else requested.node_id
        if not node_id:
            node = self._least_used(state, requested, needs_plugin=not is_registered)
        else:
            node = self._node(state, node_id)
            reason = "" if existing is not None else unfit(state, node, requested, needs_plugin=not is_registered)
            if reason:
                named = f"{node.name} ({node.id[:8]})" if reads_nodes else node.id[:8]
                raise Invalid(f"node {named} cannot have the volume: {reason}")
        volume = replace(
            requested,
            id=requested.id or self._replica.env.uuid(),
            node_id=node.id,
            node_pool=node.node_pool,
            host_path=requested.host_path if existing is None else existing.host_path,
            capacity_bytes=_capacity(requested, existing, is_registered=is_registered),
            state=modes.PENDING if existing is None else existing.state,
        )
        most, size = volume.requested_capacity_max_bytes, volume.capacity_bytes
        if 0 < most < size:  # no folder shrinks below what it holds
            raise Invalid(f"capacity_max ({most}) must not be below the volume's capacity ({size})")
        port = self._find_node(node.id)
        basis = (expectation(state, "host_volumes", volume.id),)
        pending = await self._put(volume, based_on=basis, region=self._region)
        try:
            made = await (port.register_host_volume(volume) if is_registered else port.create_host_volume(volume))
        except YurtError:
            await self._take_back(volume.id, existing, pending)
            raise
        committed = await self._note_made(volume.id, made)
        return committed.state.host_volumes[volume.id], committed.index

    async def _put(self, volume: HostVolume, *, based_on: tuple[Expectation, ...], region: str = "") -> Committed:
        """Store a volume; with a region under the quota of its namespace there."""
        now = self._replica.env.now()
        try:
            return await self._replica.propose(PutHostVolume(volume=volume, now=now, region=region, based_on=based_on))
        except Stale:
            raise Conflict(f"volume {volume.id} was changed by somebody else at the same time; try again") from None

    async def _take_back(self, volume_id: str, before: HostVolume | None, stored: Committed) -> None:
        """Undo what this request has stored, unless the volume was changed since."""
        basis = (expectation(stored.state, "host_volumes", volume_id),)
        with suppress(Conflict, NotFound):
            if before is None:
                namespace = stored.state.host_volumes[volume_id].namespace
                now = self._replica.env.now()
                await self._replica.propose(
                    DeleteHostVolume(namespace=namespace, id=volume_id, now=now, based_on=basis)
                )
            else:
                await self._put(before, based_on=basis)

    async def _note_made(self, volume_id: str, made: HostVolumeMade) -> Committed:
        """Store the node's report on a volume in its present row; raises Conflict when the volume was deleted."""

        async def decision(state: Snapshot) -> PutHostVolume:
            stored = state.host_volumes.get(volume_id)
            if stored is None:
                raise Conflict(f"volume {volume_id} was deleted at the same time")
            volume = replace(stored, host_path=made.path, capacity_bytes=max(0, made.capacity_bytes))
            basis = (expectation(state, "host_volumes", volume_id),)
            return PutHostVolume(volume=volume, now=self._replica.env.now(), based_on=basis)

        return await self._replica.decide(decision)

    def _existing(self, state: Snapshot, requested: HostVolume) -> HostVolume:
        existing = self.find(state, requested.namespace, requested.id)
        if existing.state == modes.DELETING:
            raise Conflict(f"volume {existing.id} is being deleted")
        for field in ("name", "plugin_id", "node_id", "node_pool", "host_path"):
            value = getattr(requested, field)
            if value and value != getattr(existing, field):
                raise Invalid(f"{field} of host volume {existing.id} cannot be changed; delete it and make another")
        return existing

    @staticmethod
    def _node(state: Snapshot, node_id: str) -> Node:
        """A node by its id; raises NotFound."""
        node = state.nodes.get(node_id)
        if node is None:
            raise NotFound(f"Unknown node {node_id}", reason=Reason.UNKNOWN_NODE)
        return node

    @staticmethod
    def _least_used(state: Snapshot, requested: HostVolume, *, needs_plugin: bool) -> Node:
        """The feasible node with the fewest volumes; raises Conflict."""
        reasons: Counter[str] = Counter()
        fit: list[Node] = []
        for node in state.nodes.values():
            reason = unfit(state, node, requested, needs_plugin=needs_plugin)
            reasons[reason] += 1
            if not reason:
                fit.append(node)
        if not fit:
            counts = (
                "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items()))
                or "the cluster has no nodes"
            )
            raise Conflict(f"no node can have the volume ({counts})")

        def rank(node: Node) -> tuple[bool, int, str]:
            return requested.name in node.host_volumes, state.host_volumes.count_where("node", node.id), node.id

        return min(fit, key=rank)

    @staticmethod
    def find(state: Snapshot, namespace: str, volume_id: str) -> HostVolume:
        """A volume by its id; raises NotFound."""
        volume = state.host_volumes.get(volume_id)
        if volume is None or volume.namespace != namespace:
            raise NotFound("volume not found")
        return volume

    async def delete(self, namespace: str, volume_id: str, *, force: bool = False) -> int:
        """Delete an unused volume with its data; `force` ignores failures of its node or plugin."""

        async def closing(state: Snapshot) -> PutHostVolume:
            volume = self.find(state, namespace, volume_id)
            _check_unused(state, volume)
            return PutHostVolume(
                volume=replace(volume, state=modes.UNAVAILABLE),
                now=self._replica.env.now(),
                keeps_state=True,
                based_on=(expectation(state, "host_volumes", volume_id),),
            )

        committed = await self._replica.decide(closing)
        # Clients of an earlier version do not know the state of a volume that is being deleted.
        volume = replace(committed.state.host_volumes[volume_id], state=modes.UNAVAILABLE)
        try:
            _check_unused(committed.state, volume)
            await self._find_node(volume.node_id).delete_host_volume(volume)
        except YurtError as error:
            if not force or isinstance(error, Conflict):
                await self._take_back(volume_id, volume, committed)
                raise
        command = DeleteHostVolume(namespace=namespace, id=volume_id, now=self._replica.env.now())
        return (await self._replica.propose(command)).index

    async def delete_claim(self, namespace: str, claim_id: str) -> int:
        """Delete a sticky claim; raises NotFound."""
        command = DeleteHostVolumeClaim(id=claim_id, namespace=namespace, now=self._replica.env.now())
        return (await self._replica.propose(command)).index


def _check_unused(state: Snapshot, volume: HostVolume) -> None:
    ids = sorted({alloc.id for alloc, _ in users(state, volume)})
    if ids:
        raise Conflict(f"volume {volume.id} in use by allocations: [{' '.join(ids)}]")


def unfit(state: Snapshot, node: Node, volume: HostVolume, *, needs_plugin: bool) -> str:
    """The reason why a node cannot have the volume, or "".

    A dynamic volume that the node offers and that has no row was deleted. The node may still have it, or its report
    is older than the deletion: the node itself decides.
    """
    if not is_ready(node):
        return "not ready and eligible"
    if volume.node_pool not in ("", "all", node.node_pool):
        return f'not in node pool "{volume.node_pool}"'
    if needs_plugin and f"plugins.host_volume.{volume.plugin_id}.version" not in node.attributes:
        return f'no host volume plugin "{volume.plugin_id}"'
    for rule in volume.constraints:
        if not holds(rule.operand, resolve(rule.l_target, node), resolve(rule.r_target, node)):
            return f"constraint {rule.l_target} {rule.operand} {rule.r_target}"
    same_name = state.host_volumes.where("name", volume.name)
    offered = node.host_volumes.get(volume.name)
    is_static = offered is not None and not offered.id
    if is_static or any(other.node_id == node.id for other in same_name):
        return f'has a host volume "{volume.name}" already'
    return ""


def check(volume: HostVolume) -> None:
    """Raises Invalid for a volume that no node can create."""
    problems = []
    if not NAME.fullmatch(volume.name):
        problems.append(f'name "{volume.name[:64]}" must be of letters, digits, "_", "." and "-"')
    if volume.plugin_id and not PLUGIN.fullmatch(volume.plugin_id):
        problems.append(f'plugin_id "{volume.plugin_id[:64]}" must be of letters, digits, "_", "." and "-"')
    least, most = volume.requested_capacity_min_bytes, volume.requested_capacity_max_bytes
    if least < 0 or most < 0 or 0 < most < least:
        problems.append(f"capacity_max ({most}) must be larger than capacity_min ({least})")
    if volume.capacity_bytes < 0:
        problems.append(f"capacity ({volume.capacity_bytes} bytes) must be 0 or more")
    if not volume.requested_capabilities:
        problems.append("must include at least one capability block")
    for capability in volume.requested_capabilities:
        if capability.access_mode not in modes.ACCESS_MODES:
            word, hint = capability.access_mode[:64], near_hint(capability.access_mode, modes.ACCESS_MODES)
            problems.append(f'access_mode "{word}" must be one of {", ".join(modes.ACCESS_MODES)}{hint}')
        if capability.attachment_mode == modes.BLOCK_DEVICE:
            problems.append('attachment_mode "block-device" is not available in this version; use "file-system"')
        elif capability.attachment_mode != modes.FILE_SYSTEM:
            problems.append(f'attachment_mode "{capability.attachment_mode}" must be "file-system"')
    if len(volume.parameters) > PARAMETERS_MAX:
        problems.append(f"at most {PARAMETERS_MAX} parameters may be given")
    if problems:
        raise Invalid("; ".join(problems))


def _capacity(requested: HostVolume, existing: HostVolume | None, *, is_registered: bool) -> int:
    """The capacity in bytes before the node reports: of a registered volume the user knows it, of others the plugin."""
    if existing is None or (is_registered and requested.capacity_bytes):
        return requested.capacity_bytes
    return existing.capacity_bytes
