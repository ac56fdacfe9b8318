"""Findings of a server about a job, with their places in the job file.

The server knows the job but not its file, and speaks in nested lists: "Task group web validation failed: 2 errors
occurred:", each a line below it. Here the nesting is read back into single findings, the words that name a part of
the job ("Task group web", "Constraint 1", "config.comand") are followed into the job, and the positions that the
parser kept lead from there to the line. A message whose last step nobody can follow is shown at the closest block
around it; one that names nothing has no place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from yurt.cli.json_object import Json
from yurt.cli.terminal.text import printable

if TYPE_CHECKING:
    from yurt_jobspec import Diagnostic, Positions, Severity

Path = tuple[str | int, ...]

SUMMARY = "The server refuses this part of the job"
WARNING = "The server warns about this part of the job"
_FAILED = " validation failed: "
_MANY = re.compile(r"(.*?)(?: validation failed)?:? ?(\d{1,6}) (?:error|warning)s? occurred:", re.DOTALL)
_WARNINGS = re.compile(r"(\d{1,6}) warnings?:")
_PATH = re.compile(r"\bJob((?:\.[A-Za-z_]\w*|\[[^\]\[]+\])+)")
_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[([^\]\[]+)\]")
_HINT = re.compile(r" \((did you mean [^()]*|add [^()]*)\)$")
_LINES_MAX, _DEPTH_MAX = 1000, 20


class PathStep(NamedTuple):
    """A part of the job while a message is followed: the path so far and what lies there."""

    path: Path
    value: Any

    def step(self, *steps: str | int) -> PathStep:
        """Descend as far as the job goes."""
        path, value = self.path, self.value
        for step in steps:
            found = _member(value, step)
            path, value = (*path, step), found
        return PathStep(path, value)

    def named(self, field: str, name: str, key: str = "Name") -> PathStep | None:
        """The element of a list that has the name."""
        for index, item in enumerate(_list(_member(self.value, field))):
            if isinstance(item, dict) and (item.get(key) or "") == name:
                return self.step(field, index)
        return None


def _member(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    return value[step] if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def findings(job: Json, positions: Positions | None, text: str, *, is_warning: bool = False) -> list[Diagnostic]:
    """The findings in a server's text, each with its position in the file where known."""
    return [diagnostic_of(job, positions, message, is_warning=is_warning) for message in messages(text)]


def diagnostic_of(job: Json, positions: Positions | None, message: str, *, is_warning: bool = False) -> Diagnostic:
    """A single message with its position and the fix."""
    from yurt_jobspec import Diagnostic

    from yurt.cli.files.repair_advice import fix_of

    path = follow(job, message)
    found = positions.nearest(path) if positions is not None and path else None
    hint = _HINT.search(message)
    detail = message[: hint.start()] if hint else message
    summary = WARNING if is_warning else SUMMARY
    if found is None:
        summary = summary.replace("this part of the job", "the job")
    advice = hint[1][0].upper() + hint[1][1:] if hint else fix_of(message)
    severity: Severity = "warning" if is_warning else "error"
    if found is None:
        return Diagnostic(severity, summary, detail, hint=advice)
    return Diagnostic(severity, summary, detail, *found, hint=advice)


# Nested lists to single messages.


def messages(text: str) -> list[str]:
    """The single messages of a server's text, each with the places that it is nested in in front."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][:_LINES_MAX]
    entries: list[str] = []
    for line in lines:
        if line.startswith("* ") or not entries or _MANY.fullmatch(entries[-1]) or _WARNINGS.fullmatch(entries[-1]):
            entries.append(line.removeprefix("* "))
        else:
            entries[-1] += " " + line
    at = 0
    found: list[str] = []
    while at < len(entries):
        at = _flatten(entries, at, "", found)
    return found


def one_line(text: str) -> str:
    """The messages of a text with nested ones, in one line for a terminal."""
    return printable("; ".join(messages(text)))


def _flatten(entries: list[str], at: int, outer: str, found: list[str]) -> int:
    """Add what stands at `at` to `found`; the index behind it."""
    entry = entries[at]
    many = _MANY.fullmatch(entry)
    count = int(many[2]) if many else 0
    inner = outer
    if many and many[1]:
        inner = f"{outer}{many[1]}{_FAILED}"
    if many is None:
        warnings = _WARNINGS.fullmatch(entry)
        count = int(warnings[1]) if warnings else 0
    at += 1
    if not count or outer.count(_FAILED) > _DEPTH_MAX:
        found.append(outer + entry)
        return at
    for _ in range(count):
        if at < len(entries):
            at = _flatten(entries, at, inner, found)
    return at


# Messages to places.


def follow(job: Json, message: str) -> Path:
    """The part of the job that a message concerns; () for none."""
    named = _PATH.search(message)
    if named is not None:
        return json_path(named[1])
    place, rest = PathStep((), job), message
    while True:
        for pattern, enter in _ENTER:
            match = pattern.match(rest)
            inner = enter(place, match) if match else None
            if match and inner is not None:
                place, rest = inner, rest[match.end() :]
                break
        else:
            return _leaf(place, rest).path


def json_path(text_path: str) -> Path:
    """`.TaskGroups[0].Config.comand` as a path."""
    steps: list[str | int] = []
    for name, index in _STEP.findall(text_path):
        step = name or index.strip("\"'")
        steps.append(int(step) if step.isdigit() else step)
    return tuple(steps)


def _leaf(place: PathStep, message: str) -> PathStep:
    for pattern, fields in _fields():
        if pattern.search(message):
            return place.step(*fields)
    return place


Enter = Callable[[PathStep, "re.Match[str]"], "PathStep | None"]


def _group(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.named("TaskGroups", match["name"])


def _task(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.named("Tasks", match["name"])


def _service(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.named("Services", match["name"])


def _check(place: PathStep, match: re.Match[str]) -> PathStep | None:
    found = place.named("Checks", match["name"])
    return found or (place.step("Checks", int(match["number"]) - 1) if match["number"] else None)


def _volume(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.step("Volumes", match["name"])


def _port(place: PathStep, match: re.Match[str]) -> PathStep | None:
    for index, network in enumerate(_list(_member(place.value, "Networks"))):
        for field in ("ReservedPorts", "DynamicPorts"):
            found = PathStep((), network).named(field, match["name"], "Label")
            if found is not None:
                return place.step("Networks", index, *found.path)
    return None


def _numbered(field: str, first: int = 1) -> Enter:
    def enter(place: PathStep, match: re.Match[str]) -> PathStep | None:
        found = place.step(field, int(match["number"]) - first)
        return found if found.value is not None else None

    return enter


def _repeated_group(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.step("TaskGroups", int(match["number"]) - 1, "Name")


def _repeated_task(place: PathStep, match: re.Match[str]) -> PathStep | None:
    """The last task of that name, which is the one that repeats it."""
    tasks = _list(_member(place.value, "Tasks"))
    named = [index for index, task in enumerate(tasks) if _member(task, "Name") == match["name"]]
    return place.step("Tasks", named[-1], "Name") if named else None


def _device(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.step("Resources").named("Devices", match["name"])


def _idle(place: PathStep, match: re.Match[str]) -> PathStep | None:
    """A field of the group's block on idle devices, which lies at one of its devices."""
    for task, each in enumerate(_list(_member(place.value, "Tasks"))):
        for device, request in enumerate(_list(_member(_member(each, "Resources"), "Devices"))):
            if _member(request, "Idle"):
                return place.step("Tasks", task, "Resources", "Devices", device, "Idle", match["field"].capitalize())
    return None


def _variable(place: PathStep, match: re.Match[str]) -> PathStep | None:
    return place.step("Env", match["name"])


def _option(place: PathStep, match: re.Match[str]) -> PathStep | None:
    """A driver's option; one that is missing is shown at the block that should have it."""
    path = json_path("." + match["option"])
    return place.step("Config", *path)


def _fixed(*fields: str) -> Enter:
    return lambda place, match: place.step(*fields)


_END = r"(?: validation failed: | has warnings: |: | )"
_ENTER: tuple[tuple[re.Pattern[str], Enter], ...] = tuple(
    (re.compile(pattern), enter)
    for pattern, enter in (
        (rf'(?:Task group|Group) "?(?P<name>[^" ]+)"?{_END}', _group),
        (rf'Task group volume "(?P<name>[^"]*)"{_END}', _volume),
        (rf'Task "?(?P<name>[^" ]+)"?{_END}', _task),
        (rf"Service\[(?P<name>[^\]]*)\]{_END}", _service),
        (rf"check (?P<name>#(?P<number>\d{{1,6}})|.*?){_END}", _check),
        (r"Job task group (?P<number>\d{1,6}) (?=redefines)", _repeated_group),
        (r"Task name '(?P<name>[^']*)' (?=is used more than once)", _repeated_task),
        (r'device "(?P<name>[^"]*)" ', _device),
        (r'has share = "mig" and a (?=count of)', _fixed("Count")),
        (r"idle (?P<field>[a-z]+)(?=[ :])", _idle),
        (r"env\.(?P<name>\S+?): ", _variable),
        (r"config\.(?P<option>[A-Za-z_][\w.\[\]]*)(?=: )", _option),
        (rf"Constraint (?P<number>\d{{1,6}}){_END}", _numbered("Constraints")),
        (rf"Affinity (?P<number>\d{{1,6}}){_END}", _numbered("Affinities")),
        (rf"Spread (?P<number>\d{{1,6}}){_END}", _numbered("Spreads")),
        (rf"Template (?P<number>\d{{1,6}}){_END}", _numbered("Templates")),
        (rf"Artifact (?P<number>\d{{1,6}}){_END}", _numbered("Artifacts")),
        (r"Volume Mount \((?P<number>\d{1,6})\) ", _numbered("VolumeMounts", 0)),
        (r"Port (?P<name>\S+) (?=has invalid port|cannot be mapped)", _port),
        (rf"periodic{_END}", _fixed("Periodic")),
    )
)
"""Prefixes of messages, and the part of the job that each refers to."""

_FIELD_LINES = r"""
^Regular expression                         RTarget
^(Version|Semver) \S+ is invalid            RTarget
^Set contains                               RTarget
^Distinct Property must                     RTarget
^Unknown (constraint|affinity)              Operand
^Missing (constraint|affinity) operand      Operand
^no node has (the|\$)|is plain text, the  LTarget
^Affinity weight                            Weight
^Spread block must have a positive          Weight
^Missing job datacenters|^Job datacenter    Datacenters
^no node is in datacenter                   Datacenters
^Missing job task groups|^Job ID contains   ID
^Invalid job type|^job type cannot          Type
^invalid namespace|is in nonexistent names  Namespace
^invalid node pool|is in nonexistent node   NodePool
^cron \S                                    Spec
^unknown time zone                          TimeZone
^must have a count of 1                     Count
^No path to region                          Region
kill_signal                                 KillSignal
change_signal                               ChangeSignal
the template does not parse                 EmbeddedTmpl
priority                                    Priority
^UI description                             UI Description
^Periodic can only                          Periodic
^Parameterized|^Required and optional meta  ParameterizedJob
^Unknown payload requirement                ParameterizedJob Payload
^Multiregion                                Multiregion
has count|count can't be negative           Count
minimum DiskMB                              EphemeralDisk SizeMB
^max_run_duration                           MaxRunDuration
^ShutdownDelay                              ShutdownDelay
^Scaling policy invalid: max                Scaling Max
^Scaling policy invalid: min                Scaling Min
^[Ss]caling policy                          Scaling
^Unsupported restart mode|^Restart policy   RestartPolicy Mode
^Restart attempts|^Nomad can't restart      RestartPolicy
^Interval can not be less                   RestartPolicy Interval
^Interval cannot be less                    ReschedulePolicy Interval
^Delay cannot be less|^Max Delay            ReschedulePolicy Delay
^Invalid delay function                     ReschedulePolicy DelayFunction
reschedule policy|^Reschedule Policy        ReschedulePolicy
^Nomad can only make                        ReschedulePolicy
update block                                Update
^Invalid health check given                 Update HealthCheck
^Max parallel                               Update MaxParallel
^Canary count|^Auto Promote                 Update Canary
^Minimum healthy time                       Update MinHealthyTime
^Healthy deadline                           Update HealthyDeadline
^Progress deadline                          Update ProgressDeadline
^Stagger                                    Update Stagger
migrate block                               Migrate
^MaxParallel must                           Migrate MaxParallel
^HealthCheck must                           Migrate HealthCheck
^MinHealthyTime                             Migrate MinHealthyTime
^HealthyDeadline                            Migrate HealthyDeadline
^gang can only                              Gang
^gang min                                   Gang Min
^gang elastic                               Gang Elastic
^rendezvous framework                       Gang Rendezvous Framework
^rendezvous barrier                         Gang Rendezvous Barrier
^rendezvous interface                       Gang Rendezvous Interface
^rendezvous (port|needs a port)             Gang Rendezvous Port
^a rendezvous needs a network               Networks 0 Mode
^a group with a rendezvous can have no can  Update Canary
^a group with a rendezvous                  Gang Rendezvous
^update max_parallel                        Update MaxParallel
^requeue delay_function                     Requeue DelayFunction
^requeue max_delay                          Requeue MaxDelay
^requeue delay                              Requeue Delay
^requeue can                                Requeue
^checkpoint signal                          Checkpoint Signal
^checkpoint grace                           Checkpoint Grace
^checkpoint interval                        Checkpoint Interval
^checkpoint path                            Checkpoint Path
^checkpoint can                             Checkpoint
^reconcile                                  Disconnect Reconcile
^lost_after|^stop_on_client_after           Disconnect
^invalid network mode                       Networks 0 Mode
^Hostname                                   Networks 0 Hostname
^Only a single network                       Networks 1
^Static port|^Port label                    Networks 0
^Missing task driver                        Driver
^unknown driver                             Driver
options driver                              Driver
^KillTimeout                                KillTimeout
^minimum CPU                                Resources CPU
^Task can only ask for 'cpu'                Resources Cores
^MemoryMaxMB value                          Resources MemoryMaxMB
MemoryMB value|^minimum MemoryMB            Resources MemoryMB
^SecretsMB                                  Resources SecretsMB
ask for disk                                Resources DiskMB
^numa                                       Resources NUMA
^minimum number of files                    LogConfig MaxFiles
^minimum file size                          LogConfig MaxFileSizeMB
^log storage                                LogConfig
^invalid lifecycle hook                     Lifecycle Hook
lifecycle cannot be the leader              Leader
^CSIPluginConfig                            CSIPluginConfig
[Vv]ault                                    Vault
^dispatch payload                           DispatchPayload
template destination                        DestPath
^Invalid change mode                        ChangeMode
octal permissions                           Perms
^source must be specified                   GetterSource
^invalid artifact mode                      GetterMode
^destination escapes                        RelativeDest
unknown port label|^service port            PortLabel
^Service provider                           Provider
^Service name                               Name
^Service address_mode                       AddressMode
^Service on_update                          OnUpdate
^Service task                               TaskName
^invalid check type                         Type
^interval must                              Interval
^timeout must                               Timeout
http path                                   Path
volume has unrecognized type                Type
volume has an empty source                  Source
references (an empty|undefined) volume      Volume
has no destination                          Destination
invalid propagation mode                    PropagationMode
mbits|task network resources                Resources Networks 0
^max_client_disconnect                      MaxClientDisconnect
^stop_after_client_disconnect               StopAfterClientDisconnect
^Update max parallel                        Update MaxParallel
"""


@cache
def _fields() -> tuple[tuple[re.Pattern[str], Path], ...]:
    """The field of the entered part that the rest of a message concerns."""
    found: list[tuple[re.Pattern[str], Path]] = []
    for line in _FIELD_LINES.strip().splitlines():
        pattern, steps = re.split(r"\s{2,}", line.strip(), maxsplit=1)
        found.append((re.compile(pattern), tuple(int(step) if step.isdigit() else step for step in steps.split())))
    return tuple(found)
