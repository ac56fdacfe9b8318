"""The kinds of rows and their fields, by the names that the API gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from yurt.readmodels import alloc_facts
from yurt.readmodels.alloc_facts import alloc_status
from yurt.readmodels.job_facts import JobFacts
from yurt.readmodels.node_facts import NodeFacts
from yurt.sdk.errors import Invalid
from yurt.structs.alloc import Allocation

R = TypeVar("R")

Of = Callable[[Any], Any]
"""Gives the value of a field of a row."""
NAME_MAX: Final = 256


class RowKind(NamedTuple, Generic[R]):
    """A kind of rows. Each field holds texts, numbers, flags or tuples of texts throughout; a flag may be None."""

    name: str
    fields: Mapping[str, Of]
    defaults: tuple[str, ...]
    key: tuple[str, ...]
    """The fields that name a row, and decide ties in the order."""
    searched: Of
    """A row's text for searches, in lower case."""
    maps: Mapping[str, Of]
    """Fields of which each entry is a field: `Meta.owner`; filters write it the same way."""

    def field(self, name: str) -> Of:
        """The getter of a field; raises Invalid for an unknown one."""
        found = self.fields.get(name)
        if found is not None:
            return found
        group, dot, entry = name.partition(".")
        of_map = self.maps.get(group)
        if of_map is None or not dot or not entry or len(name) > NAME_MAX:
            known = ", ".join((*self.fields, *(f"{each}.<key>" for each in self.maps)))
            raise Invalid(f'{self.name} have no field "{name[:64]}"; the fields are {known}')
        return lambda row: of_map(row).get(entry, "")

    def key_of(self, row: R) -> tuple[str, ...]:
        """The key of a row."""
        return tuple(self.fields[name](row) for name in self.key)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _listed(**paths: str) -> dict[str, Of]:
    return {name: attrgetter(path) for name, path in paths.items()}


JOBS: Final = RowKind[JobFacts](
    name="jobs",
    fields=_listed(
        ID="id", Namespace="namespace", Name="name", Type="type", Kind="kind", Status="status", Reason="reason",
        Desired="desired", Running="running", Starting="starting", Waiting="waiting", Failed="failed", Lost="lost",
        Complete="complete", Unknown="unknown", NodePool="node_pool", Priority="priority", Version="version",
        SubmitTime="submit_time", JobStatus="job_status", Stop="is_stopped", ParentID="parent_id",
        CreateIndex="create_index", ModifyIndex="modify_index", Datacenters="datacenters",
        ChildrenPending="children_pending", ChildrenRunning="children_running", ChildrenDead="children_dead",
        DeploymentID="deployment_id", DeploymentStatus="deployment_status", NeedsPromotion="needs_promotion",
        WaitingSince="waiting_since", WaitingReasons="waiting_reasons",
    ),
    defaults=_names(
        "ID Namespace Name Type Kind Status Reason Desired Running Starting Waiting Failed Lost NodePool Priority "
        "Version SubmitTime"
    ),
    key=("Namespace", "ID"),
    searched=attrgetter("searched"),
    maps={"Meta": attrgetter("meta")},
)  # fmt: skip

NODES: Final = RowKind[NodeFacts](
    name="nodes",
    fields=_listed(
        ID="id", Name="name", Status="status", Pool="pool", Datacenter="datacenter", Class="node_class",
        Allocations="allocations", CPU="cpu", CPUUsed="cpu_used", MemoryMB="memory_mb", MemoryUsedMB="memory_used_mb",
        DiskMB="disk_mb", DiskUsedMB="disk_used_mb", Cores="cores", CoresUsed="cores_used", Cards="cards",
        CardsUsed="cards_used", UnhealthyCards="unhealthy_cards", VRAMMB="vram_mb", VRAMUsedMB="vram_used_mb",
        ReservedCPU="reserved_cpu", ReservedMemoryMB="reserved_memory_mb", Version="version",
        NodeStatus="node_status", Eligibility="eligibility", IsDraining="is_draining",
        DrainDeadline="drain_deadline", Address="address", OS="os", Arch="arch", Drivers="drivers",
        UnhealthyDrivers="unhealthy_drivers", HostVolumes="host_volumes", LastEvent="last_event",
        LastEventTime="last_event_time", StatusUpdatedAt="status_updated_at", CreateIndex="create_index",
        ModifyIndex="modify_index", CertificateEnds="certificate_ends", AuthorityEnds="authority_ends",
    ),
    defaults=_names(
        "ID Name Status Pool Datacenter Class Allocations CPU CPUUsed MemoryMB MemoryUsedMB DiskMB DiskUsedMB Cards "
        "CardsUsed VRAMMB VRAMUsedMB Version"
    ),
    key=("ID",),
    searched=attrgetter("searched"),
    maps={"Meta": attrgetter("meta"), "Attr": attrgetter("attributes")},
)  # fmt: skip


def _of_event(name: str) -> Of:
    def value(alloc: Allocation) -> Any:
        event = alloc_facts.last_event(alloc)
        empty = 0 if name == "time" else ""
        return empty if event is None else getattr(event, name)

    return value


def _of_job(name: str, missing: Any) -> Of:
    return lambda alloc: missing if alloc.job is None else getattr(alloc.job, name)


def _searched_alloc(alloc: Allocation) -> str:
    parts = (alloc.id, alloc.job_id, alloc.namespace, alloc.task_group, alloc.name, alloc.node_name, alloc.node_id)
    return "\0".join(parts).casefold()


ALLOCATIONS: Final = RowKind[Allocation](
    name="allocations",
    fields=_listed(
        ID="id", Namespace="namespace", JobID="job_id", TaskGroup="task_group", Name="name", NodeID="node_id",
        NodeName="node_name", ClientStatus="client_status", DesiredStatus="desired_status",
        DesiredDescription="desired_description", DeploymentID="deployment_id", EvalID="eval_id",
        FollowupEvalID="followup_eval_id", PreviousAllocation="previous_allocation", NextAllocation="next_allocation",
        PreemptedBy="preempted_by_allocation", CreateTime="create_time", ModifyTime="modify_time",
        CreateIndex="create_index", ModifyIndex="modify_index", DiskMB="allocated_resources.shared.disk_mb",
    ) | {
        "Status": alloc_status, "Reason": alloc_facts.reason, "Healthy": alloc_facts.healthy,
        "Canary": lambda alloc: alloc.deployment_status is not None and alloc.deployment_status.canary,
        "Restarts": alloc_facts.restarts, "FailedTask": alloc_facts.deciding_task,
        "Tasks": lambda alloc: len(alloc.task_states), "TasksRunning": alloc_facts.tasks_running,
        "LastEventType": _of_event("type"), "LastEventTime": _of_event("time"),
        "StartedAt": alloc_facts.started_at, "FinishedAt": alloc_facts.finished_at,
        "CPU": alloc_facts.booked_mhz, "MemoryMB": alloc_facts.booked_memory,
        "MemoryMaxMB": alloc_facts.booked_memory_max,
        "Cores": alloc_facts.booked_cores,
        "Cards": alloc_facts.booked_cards, "VRAMMB": alloc_facts.booked_vram,
        "IsReplaced": alloc_facts.is_replaced, "JobVersion": _of_job("version", 0), "JobType": _of_job("type", ""),
        "NodePool": _of_job("node_pool", ""),
    },
    defaults=_names(
        "ID Namespace JobID TaskGroup Name NodeID NodeName Status Reason JobVersion Restarts CPU MemoryMB CreateTime "
        "ModifyTime"
    ),
    key=("ID",),
    searched=_searched_alloc,
    maps={},
)  # fmt: skip

KINDS: Final[Mapping[str, RowKind[Any]]] = {each.name: each for each in (JOBS, ALLOCATIONS, NODES)}
