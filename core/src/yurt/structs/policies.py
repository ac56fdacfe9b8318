"""Policies of a group: restart, reschedule, update, migrate, disconnect, gang, requeue, checkpoint and idle devices."""

from __future__ import annotations

from typing import Annotated

from yurt.sdk.value import OWN, Duration, Value


class RestartPolicy(Value):
    """The number and delay of restarts in place by the client before the allocation fails."""

    interval: Duration = Duration(0)
    attempts: int = 0
    delay: Duration = Duration(0)
    mode: str = ""
    render_templates: bool = False


class ReschedulePolicy(Value):
    """The number and delay of replacements of a failed allocation on other nodes."""

    attempts: int = 0
    interval: Duration = Duration(0)
    delay: Duration = Duration(0)
    delay_function: str = ""
    max_delay: Duration = Duration(0)
    unlimited: bool = False


class MigrateStrategy(Value):
    """The pace at which a group's allocations leave drained nodes and failed devices."""

    max_parallel: int = 0
    health_check: str = ""
    min_healthy_time: Duration = Duration(0)
    healthy_deadline: Duration = Duration(0)


class UpdateStrategy(Value):
    """The rollout of a new job version."""

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
    """The way in which the members of a gang find each other: no main task starts before all members are set up.

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
    """The requeueing of preempted allocations of a group: they wait again, after a back-off.

    `attempts` bounds how often; negative: without end.
    """

    attempts: int = -1
    delay: Duration = Duration(0)
    delay_function: str = "exponential"
    max_delay: Duration = Duration(0)


class Checkpoint(Value):
    """The way in which a group's tasks save their work, so that a preempted one continues from there.

    Before a preemption the tasks get `signal` and `grace` to save and end. `path` is the directory that they save to:
    relative to `alloc/data`, or absolute as they see it. `interval` is how often they save by themselves; 0: unknown.
    """

    signal: str = ""
    grace: Duration = Duration(0)
    interval: Duration = Duration(0)
    path: str = ""


class InteractiveHours(Value):
    """The hours in which people work interactively with a group's tasks, in the form of a task's `schedule`.

    `start` is a cron expression of a daily time, `end` the minute and the hour of the same day.
    """

    start: str = ""
    end: str = ""
    timezone: str = ""


class InteractivePolicy(Value):
    """The rules for idleness in interactive use: in `hours`, or always if there are none.

    `window` replaces the policy's own; 0: in these hours nothing is ended. `keep` is how often `alloc keep` may put the
    end off while others wait.
    """

    window: Duration = Duration(0)
    keep: int = 3
    hours: InteractiveHours | None = None


class IdlePolicy(Value):
    """The policy on allocations that do not use their devices.

    A device is idle that is busy for less than `below` percent, whose memory use does not change by more than 1 % and
    whose traffic with the host is at most 1 MB/s. An allocation is idle when `all` of its devices are, or `any`. Time
    counts from `first` after the start of its tasks on. When it has been idle for `window`, the end is announced, and
    comes after `grace`: with the action `requeue`, `stop` or `shrink`, always or while a waiting job would fit
    (`contended`). `warn` are idle times at which a warning is given.
    """

    below: int = 2
    gpus: str = "all"
    window: Duration = Duration(0)
    first: Duration = Duration(0)
    warn: tuple[Duration, ...] = ()
    action: str = "notify"
    grace: Duration = Duration(0)
    when: str = "contended"
    interactive: InteractivePolicy | None = None
    enforce: Annotated[bool, OWN] = False
    """Whether it overrides the policies of jobs; for namespaces and node pools."""
    source: Annotated[str, OWN] = ""
    """The owner of a default policy: `namespace "x"` or `node pool "y"`; "" for the job's own."""


class DisconnectStrategy(Value):
    """The treatment of allocations on a node that lost contact."""

    lost_after: Duration = Duration(0)
    stop_on_client_after: Duration = Duration(0)
    replace: bool = False
    reconcile: str = ""
