"""How a group restarts, reschedules, updates, migrates and survives a disconnect."""

from __future__ import annotations

from typing import Annotated

from yurt.sdk.value import OWN, Duration, Value


class RestartPolicy(Value):
    """How often the client restarts a task in place before the allocation fails."""

    interval: Duration = Duration(0)
    attempts: int = 0
    delay: Duration = Duration(0)
    mode: str = ""
    render_templates: bool = False


class ReschedulePolicy(Value):
    """How the scheduler replaces a failed allocation on another node."""

    attempts: int = 0
    interval: Duration = Duration(0)
    delay: Duration = Duration(0)
    delay_function: str = ""
    max_delay: Duration = Duration(0)
    unlimited: bool = False


class MigrateStrategy(Value):
    """How fast a drain may move a group's allocations."""

    max_parallel: int = 0
    health_check: str = ""
    min_healthy_time: Duration = Duration(0)
    healthy_deadline: Duration = Duration(0)


class UpdateStrategy(Value):
    """How a new job version is rolled out."""

    stagger: Duration = Duration(0)
    max_parallel: int = 0
    health_check: str = ""
    min_healthy_time: Duration = Duration(0)
    healthy_deadline: Duration = Duration(0)
    progress_deadline: Duration = Duration(0)
    canary: int = 0
    auto_revert: bool = False
    auto_promote: bool = False


class Rendezvous(Value):
    """How the members of a gang find each other: no main task starts before all members are set up.

    `framework` adds the variables that its programs read. `port` is the label of the group's port on which rank 0
    listens, `interface` the network interface for collective communication. Who waits longer than `barrier` fails.
    """

    framework: str = ""
    port: str = ""
    interface: str = ""
    barrier: Duration = Duration(0)


class Gang(Value):
    """Allocations that are placed together or not at all: at least `min` of the group run, or none is placed.

    0 stands for all of the group's count. An elastic gang goes on without lost members and takes new ones in; another
    one waits until it has as many as before.
    """

    min: int = 0
    elastic: Annotated[bool, OWN] = False
    rendezvous: Annotated[Rendezvous | None, OWN] = None


class Requeue(Value):
    """How preempted allocations of a group are requeued: they wait again, after a back-off.

    `attempts` bounds how often; negative: without end.
    """

    attempts: int = -1
    delay: Duration = Duration(0)
    delay_function: str = "exponential"
    max_delay: Duration = Duration(0)


class Checkpoint(Value):
    """How a group's tasks save their work, so that a preempted one continues from there.

    Before a preemption the tasks get `signal` and `grace` to save and end. `path` is the directory that they save to:
    relative to `alloc/data`, or absolute as they see it. `interval` is how often they save by themselves; 0: unknown.
    """

    signal: str = ""
    grace: Duration = Duration(0)
    interval: Duration = Duration(0)
    path: str = ""


class DisconnectStrategy(Value):
    """What happens to allocations of a node that lost contact."""

    lost_after: Duration = Duration(0)
    stop_on_client_after: Duration = Duration(0)
    replace: bool = False
    reconcile: str = ""
