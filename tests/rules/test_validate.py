"""The rules of jobs: each broken rule is named, and a good job has no problems."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from yurt.api.decode import decode_job
from yurt.rules.problems import escapes, multi_error
from yurt.rules.validation.job import validate_job
from yurt.sdk.value import replace

TASK: dict[str, Any] = {"Name": "main", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
GROUP: dict[str, Any] = {"Name": "web", "Count": 1, "Tasks": [TASK]}
JOB: dict[str, Any] = {"ID": "job", "Type": "service", "Datacenters": ["*"], "TaskGroups": [GROUP]}
SECOND = 1_000_000_000
HTTP_PORT = {"Label": "a", "Value": 80}


def job(**changes: Any) -> dict[str, Any]:
    """The job with other fields."""
    return copy.deepcopy(JOB) | changes


def group(**changes: Any) -> dict[str, Any]:
    """The job with other fields in its group."""
    kind = changes.pop("Type", "service")
    return job(Type=kind, TaskGroups=[copy.deepcopy(GROUP) | changes])


def task(**changes: Any) -> dict[str, Any]:
    """The job with other fields in its task."""
    kind = changes.pop("Type", "service")
    return group(Type=kind, Tasks=[copy.deepcopy(TASK) | changes])


def service(**changes: Any) -> dict[str, Any]:
    """The job with one service."""
    return group(Services=[{"Name": "svc", "Provider": "nomad"} | changes])


def check(**changes: Any) -> dict[str, Any]:
    """The job with one check."""
    body = {"Name": "c", "Type": "tcp", "Interval": 10 * SECOND, "Timeout": SECOND, "PortLabel": "80"}
    return service(Checks=[body | changes])


def problems(document: dict[str, Any]) -> tuple[str, ...]:
    """The errors of a document."""
    return validate_job(decode_job(document)[0])[0]


@pytest.mark.parametrize("kind", ["service", "batch", "system", "sysbatch"])
def test_a_plain_job_of_any_type_is_valid(kind: str) -> None:
    assert problems(job(Type=kind)) == ()


@pytest.mark.parametrize(
    "document",
    [
        check(), service(PortLabel="8080"), task(Env={"A": "b"}),
        task(Templates=[{"EmbeddedTmpl": "x", "DestPath": "local/x"}]),
        group(Networks=[{"Mode": "bridge", "DynamicPorts": [{"Label": "http", "To": -1}]}]),
        group(
            Volumes={"v": {"Name": "v", "Type": "host", "Source": "s"}},
            Tasks=[TASK | {"VolumeMounts": [{"Volume": "v", "Destination": "/v"}]}],
        ),
        job(Type="batch", Periodic={"Spec": "*/5 * * * *", "SpecType": "cron", "Enabled": True}),
        job(Constraints=[{"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="}]),
        job(Constraints=[{"Operand": "distinct_hosts", "RTarget": "true"}]),
        job(Constraints=[{"LTarget": "${attr.v}", "RTarget": ">= 1.2, < 2.0", "Operand": "version"}]),
        job(Constraints=[{"LTarget": "${attr.v}", "RTarget": "~>1.2.0beta1", "Operand": "version"}]),
        group(Type="batch", ReschedulePolicy={"Attempts": 3, "Interval": 3600 * SECOND, "Delay": 5 * SECOND}),
    ],
)  # fmt: skip
def test_good_blocks_have_no_problems(document: dict[str, Any]) -> None:
    assert problems(document) == ()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (job(ID="a b"), "Job ID contains a space"),
        (job(ID="a\0b"), "Job ID contains a null character"),
        (job(ID="x" * 2000), "1024 characters at most"),
        (job(Type="core"), 'Invalid job type: "core"; use service, batch, system or sysbatch'),
        (job(Type="batch", ParameterizedJob={"Payload": "x"}), "use optional, required or forbidden"),
        (job(Type="_core"), "job type cannot be core"),
        (job(Datacenters=[""]), "Job datacenter must be non-empty string"),
        (job(TaskGroups=[]), "Missing job task groups"),
        (job(TaskGroups=[GROUP, GROUP]), "Job task group 2 redefines 'web' from group 1"),
        (job(TaskGroups=[{"Tasks": [TASK]}]), "Job task group 1 missing name"),
        (job(Namespace="a.b"), "invalid namespace name"),
        (job(NodePool="a.b"), "invalid node pool"),
        (job(Payload="aGk="), "Job can't be submitted with a payload, only dispatched"),
        (job(Periodic={"Spec": "* * * * *", "SpecType": "cron"}), "Periodic can only be used with"),
        (job(Type="batch", Periodic={"Spec": "61 * * * *", "SpecType": "cron"}), "minute"),
        (job(Type="batch", Periodic={"Spec": "* * * * *", "SpecType": "cron", "TimeZone": "Mars/X"}), "time zone"),
        (job(ParameterizedJob={"Payload": "optional"}), "Parameterized job can only be used with"),
        (job(Type="batch", ParameterizedJob={"MetaRequired": ["a"], "MetaOptional": ["a"]}), "should be disjoint"),
        (job(Constraints=[{"LTarget": "a", "Operand": "like"}]), 'Unknown constraint type "like"'),
        (job(Constraints=[{"LTarget": "a", "Operand": "regexp", "RTarget": "["}]), "failed to compile"),
        (job(Constraints=[{"LTarget": "a", "Operand": "version", "RTarget": "new"}]), "Malformed constraint"),
        (job(Constraints=[{"LTarget": "a", "Operand": "version", "RTarget": ">= 1.2.beta"}]), "Malformed constraint"),
        (job(Constraints=[{"LTarget": "a", "Operand": "distinct_property", "RTarget": "0"}]), "count of 1 or greater"),
        (job(Constraints=[{"RTarget": "a", "Operand": "="}]), "No LTarget provided"),
        (job(Affinities=[{"LTarget": "a", "RTarget": "b", "Operand": "=", "Weight": 0}]), "weight cannot be zero"),
        (job(Type="system", Affinities=[{"LTarget": "a", "Operand": "=", "Weight": 5}]), "may not have an affinity"),
        (job(Spreads=[{"Attribute": "a", "Weight": 200}]), "positive weight from 0 to 100"),
        (group(Count=-1), "Task group count can't be negative"),
        (group(Type="system", Count=2), "Count cannot exceed 1 with system scheduler"),
        (group(Tasks=[]), "Missing tasks for task group"),
        (group(Tasks=[TASK, TASK]), "Task name 'main' is used more than once"),
        (group(Tasks=[TASK | {"Lifecycle": {"Hook": "prestart"}}]), "no main task"),
        (group(EphemeralDisk={"SizeMB": 5}), "minimum DiskMB value is 10"),
        (group(MaxRunDuration=5), "max_run_duration can only be used with"),
        (group(RestartPolicy={"Mode": "maybe"}), 'Unsupported restart mode: "maybe"'),
        (group(RestartPolicy={"Interval": 1}), "Interval can not be less than 5s"),
        (group(RestartPolicy={"Attempts": 9, "Delay": SECOND, "Interval": 5 * SECOND}), "restart the TaskGroup"),
        (group(Type="sysbatch", ReschedulePolicy={"Attempts": 3}), "should not have a reschedule policy"),
        (group(ReschedulePolicy={"DelayFunction": "random"}), "Invalid delay function"),
        (group(Type="batch", Update={"MaxParallel": 1}), "does not allow update block"),
        (group(Update={"MaxParallel": -1}), "Max parallel can not be less than zero"),
        (group(Update={"AutoPromote": True}), "Auto Promote requires a Canary count"),
        (group(Type="batch", Migrate={"MaxParallel": 1}), "does not allow migrate block"),
        (group(Disconnect={"LostAfter": 5, "StopOnClientAfter": 5}), "cannot be used together"),
        (group(Disconnect={"Reconcile": "luck"}), 'reconcile "luck" is not one of'),
        (group(Scaling={"Min": 5, "Max": 2}), "maximum count must not be less than minimum"),
        (group(Networks=[{}, {}]), "Only a single network block"),
        (group(Networks=[{"Mode": "magic"}]), 'invalid network mode "magic"'),
        (group(Networks=[{"ReservedPorts": [{"Label": "a", "Value": 70000}]}]), "invalid port 70000"),
        (group(Networks=[{"ReservedPorts": [HTTP_PORT, HTTP_PORT | {"Label": "b"}]}]), "already reserved by a"),
        (group(Networks=[{"DynamicPorts": [{"Label": "a"}, {"Label": "a"}]}]), "Port label a already in use"),
        (group(Volumes={"v": {"Type": "nfs", "Source": "x"}}), 'unrecognized type "nfs"'),
        (group(Volumes={"v": {"Type": "csi", "Source": "x"}}), "must have an attachment mode"),
        (task(Name="a/b"), "Task name cannot include slashes"),
        (task(Name="alloc"), 'Task name "alloc" is reserved'),
        (task(Driver=""), "Missing task driver"),
        (task(KillTimeout=-1), "KillTimeout must be a positive value"),
        (task(Resources={"CPU": 100, "Cores": 2, "MemoryMB": 64}), "'cpu' or 'cores' resource, not both"),
        (task(Resources={"CPU": 100, "MemoryMB": 64, "MemoryMaxMB": 32}), "should be larger than MemoryMB"),
        (task(LogConfig={"MaxFiles": 0, "MaxFileSizeMB": 10}), "minimum number of files is 1"),
        (task(LogConfig={"MaxFiles": 100, "MaxFileSizeMB": 10}), "must be less than requested disk capacity"),
        (task(Templates=[{"DestPath": "x", "EmbeddedTmpl": "a\n{{ if }}"}]), "its line 2, column"),
        (task(Templates=[{"DestPath": "x", "EmbeddedTmpl": "<< x", "LeftDelim": "<<"}]), "parse at its line 1"),
        (task(Templates=[{"DestPath": "local/x"}]), "source path or have an embedded template"),
        (task(Templates=[{"EmbeddedTmpl": "x", "DestPath": "../../x"}]), "destination escapes"),
        (task(Templates=[{"EmbeddedTmpl": "x", "DestPath": "x", "ChangeMode": "signal", "Envvars": True}]), "signals"),
        (task(Templates=[{"EmbeddedTmpl": "x", "DestPath": "x", "Perms": "rw"}]), "octal"),
        (task(Artifacts=[{"GetterSource": "http://x", "RelativeDest": "../../../etc"}]), "destination escapes"),
        (task(Artifacts=[{"GetterSource": "http://x", "GetterMode": "tar"}]), "invalid artifact mode"),
        (task(VolumeMounts=[{"Volume": "nope", "Destination": "/x"}]), 'undefined volume "nope"'),
        (task(Constraints=[{"Operand": "distinct_hosts"}]), "disallowed Operand at task level"),
        (task(Actions=[{"Name": "a b", "Command": "x"}]), "invalid name"),
        (task(Identities=[{"Name": "a!"}]), 'Identity "a!" is invalid: invalid name "a!"'),
        (task(Identities=[{"Name": "a", "Audience": [""]}]), "an empty string is an invalid audience (1)"),
        (task(Identities=[{"Name": "a", "Audience": ["x" * 257]}]), "more than 256 characters"),
        (task(Identities=[{"Name": "a", "ChangeMode": "x"}]), "invalid change_mode: x"),
        (task(Identities=[{"Name": "a", "ChangeMode": "signal"}]), "change_signal must be specified"),
        (task(Identities=[{"Name": "a", "TTL": -1}]), "ttl must be >= 0"),
        (task(Identities=[{"Name": "a", "Filepath": "local/x"}]), "file parameter must be true"),
        (task(Identities=[{"Name": "a", "File": True, "Filepath": "../../x"}]), "filepath escapes"),
        (task(Identity={"Name": "default", "TTL": 1}), "ttl for default identity not yet supported"),
        (task(Identity={"Name": "default"}, Identities=[{"Name": ""}]), "Duplicate default identities found"),
        (task(Identities=[{"Name": "a"}, {"Name": "a"}]), 'Duplicate identities "a" found'),
        (service(Name="a_b"), "RFC 1123"),
        (service(PortLabel="http"), 'unknown port label "http"'),
        (service(Connect={"Native": True}), "cannot include Connect"),
        (check(Type="script"), 'invalid check type ("script")'),
        (check(Interval=1), "interval must be 1s or more"),
        (check(Type="http"), "http type must have http path"),
        (check(Type="http", Path="http://x/"), "relative http path required"),
        (check(SuccessBeforePassing=3), "may only be set for Consul checks"),
    ],
)  # fmt: skip
def test_a_broken_rule_is_named(document: dict[str, Any], text: str) -> None:
    assert text in multi_error(problems(document)), problems(document)


@pytest.mark.parametrize(
    ("document", "word"),
    [
        (job(Type="servic"), "service"),
        (group(Networks=[{"Mode": "brige"}]), "bridge"),
        (group(Volumes={"v": {"Type": "hosts", "Source": "s"}}), "host"),
        (
            group(Volumes={"v": {"Type": "host", "Source": "s", "AccessMode": "single-node-writr"}}),
            "single-node-writer",
        ),
        (group(RestartPolicy={"Mode": "fial", "Attempts": 1, "Interval": 60 * SECOND}), "fail"),
        (
            group(ReschedulePolicy={"Unlimited": True, "Delay": 9 * SECOND, "DelayFunction": "exponental"}),
            "exponential",
        ),
        (group(Update={"MaxParallel": 1, "HealthCheck": "cheks"}), "checks"),
        (group(Migrate={"MaxParallel": 1, "HealthCheck": "task_state"}), "task_states"),
        (group(Disconnect={"Reconcile": "best_scor"}), "best_score"),
        (group(Constraints=[{"LTarget": "${attr.cpu.arch}", "RTarget": "a", "Operand": "regex"}]), "regexp"),
        (check(Type="htp"), "http"),
        (check(InitialStatus="passed"), "passing"),
        (task(Lifecycle={"Hook": "prestrat"}), "prestart"),
        (task(Templates=[{"DestPath": "a", "EmbeddedTmpl": "b", "ChangeMode": "restrat"}]), "restart"),
        (task(Artifacts=[{"GetterSource": "http://a/b", "GetterMode": "fil"}]), "file"),
        (task(Vault={"ChangeMode": "nop"}), "noop"),
        (task(Resources={"CPU": 9, "MemoryMB": 9, "NUMA": {"Affinity": "prefr"}}), "prefer"),
        (task(CSIPluginConfig={"ID": "a", "Type": "nodes"}), "node"),
        (task(Identities=[{"Name": "a", "ChangeMode": "singal"}]), "signal"),
        (job(Type="batch", ParameterizedJob={"Payload": "forbiden"}), "forbidden"),
    ],
)
def test_a_misspelt_choice_has_the_nearest_one(document: dict[str, Any], word: str) -> None:
    assert f'(did you mean "{word}"?)' in "".join(problems(document))


@pytest.mark.parametrize(
    ("document", "choices"),
    [
        (group(RestartPolicy={"Mode": "x", "Attempts": 1, "Interval": 60 * SECOND}), "use fail or delay"),
        (group(Update={"MaxParallel": 1, "HealthCheck": "x"}), "use checks, task_states or manual"),
    ],
)
def test_a_choice_that_is_like_none_names_them_all(document: dict[str, Any], choices: str) -> None:
    assert choices in "".join(problems(document))


def test_problems_are_nested_by_place() -> None:
    (found,) = problems(task(Driver=""))
    assert found.startswith("Task group web validation failed: 1 error occurred:\n\t* Task main validation failed: ")


def test_a_large_max_parallel_is_a_warning() -> None:
    _, warnings = validate_job(decode_job(group(Count=2, Update={"MaxParallel": 5}))[0])
    assert "greater than task group count (5 > 2)" in warnings[0]


def test_huge_numbers_are_checked_at_once() -> None:
    policy = {
        "Attempts": 10**18,
        "Interval": 10**18,
        "Delay": 1,
        "DelayFunction": "fibonacci",
        "MaxDelay": 10**18,
        "Unlimited": False,
    }
    assert problems(group(Type="batch", ReschedulePolicy=policy))


@pytest.mark.parametrize(
    ("path", "depth", "is_outside"),
    [
        ("a/b", 0, False),
        ("../a", 0, True),
        ("../a", 1, False),
        ("../../a", 1, True),
        ("/../a", 0, True),
        ("a/../..", 0, True),
    ],
)
def test_a_path_that_leaves_its_folder_is_seen(path: str, depth: int, is_outside: bool) -> None:
    assert escapes(path, depth=depth) is is_outside


@pytest.mark.parametrize("name", ["SIGTERM", "hup", "9", "SIGRTMIN+3", "${meta.signal}", ""])
def test_a_signal_is_taken_in_every_form(name: str) -> None:
    _, warnings = validate_job(decode_job(task(KillSignal=name))[0])
    assert warnings == ()


def test_a_name_that_is_no_signal_is_doubted() -> None:
    template = {"DestPath": "x", "EmbeddedTmpl": "x", "ChangeMode": "signal", "ChangeSignal": "SIGBAR"}
    _, warnings = validate_job(decode_job(task(KillSignal="SIGFOO", Templates=[template]))[0])
    assert ['kill_signal "SIGFOO"' in warnings[0], 'change_signal "SIGBAR"' in warnings[1]] == [True, True]


def test_a_group_that_was_looked_at_before_is_judged_by_the_type_of_each_job() -> None:
    service_job = decode_job(group(Migrate={"MaxParallel": 1}))[0]
    batch_job = replace(service_job, type="batch")
    assert [validate_job(each)[0] for each in (service_job, service_job)] == [(), ()]
    assert "does not allow migrate block" in validate_job(batch_job)[0][0]
    assert validate_job(service_job)[0] == ()


SAVES = {"Path": "/saved"}


@pytest.mark.parametrize(
    ("block", "changes", "text"),
    [
        ("Requeue", {"Delay": -1}, "requeue delay can't be negative"),
        ("Requeue", {"DelayFunction": "linear"}, "use constant, exponential or fibonacci"),
        ("Requeue", {"Delay": 9 * SECOND, "MaxDelay": SECOND}, "max_delay (1s) is shorter than delay (9s)"),
        ("Checkpoint", {"Signal": "SIGSAVE"}, 'checkpoint signal "SIGSAVE" is not a signal'),
        ("Checkpoint", {"Grace": 3601 * SECOND}, "checkpoint grace must be above 0 and at most 1h0m0s"),
        ("Checkpoint", {"Interval": -SECOND}, "checkpoint interval can't be negative"),
        ("Checkpoint", {"Path": "a/../b"}, 'must have no empty part, "." or ".."'),
        ("Checkpoint", {"Path": "${NOMAD_TASK_DIR}/x"}, "must be plain"),
        ("Checkpoint", SAVES, "lies in no volume_mount"),
    ],
)
def test_preemption_blocks_name_what_is_wrong(block: str, changes: dict[str, Any], text: str) -> None:
    (problem,) = problems(group(Type="batch", **{block: changes}))
    assert text in problem
    found = problems(group(Type="service", **{block: changes}))
    assert any("can only be used with batch jobs" in each for each in found)


def test_a_checkpoint_brings_a_requeue_and_a_disk_that_follows_unless_that_is_declined() -> None:
    made = decode_job(job(Type="batch", Checkpoint={"Interval": SECOND}))[0].task_groups[0]
    assert made.checkpoint is not None and made.requeue is not None
    assert (made.checkpoint.path, made.checkpoint.interval, made.requeue.attempts) == ("checkpoint", SECOND, -1)
    assert made.ephemeral_disk.sticky and made.ephemeral_disk.migrate
    disk = {"Sticky": False}
    (problem,) = problems(group(Type="batch", Checkpoint={}, EphemeralDisk=disk))
    assert "set sticky = true in ephemeral_disk" in problem
    mounted = copy.deepcopy(TASK) | {"VolumeMounts": [{"Volume": "v", "Destination": "/saved"}]}
    volume = {"v": {"Name": "v", "Type": "host", "Source": "s"}}
    assert problems(group(Type="batch", Checkpoint=SAVES, Tasks=[mounted], Volumes=volume)) == ()


MEET: dict[str, Any] = {"Framework": "torch", "Port": "meet", "Barrier": 60 * SECOND}
WITH_PORT: dict[str, Any] = {"Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "meet"}]}]}
SECOND_TASK = [TASK, TASK | {"Name": "other"}]


def gang(changes: dict[str, Any], *, of_gang: dict[str, Any] | None = None, **of_group: Any) -> dict[str, Any]:
    """A job with a rendezvous."""
    block = {"Rendezvous": MEET | changes} | (of_gang or {})
    return group(Count=2, Gang=block, **{"Type": "batch", **WITH_PORT, **of_group})


def test_a_rendezvous_needs_a_port_of_the_hosts_network() -> None:
    assert problems(gang({})) == ()
    assert problems(gang({"Framework": "none", "Interface": "ib0"}, of_gang={"Min": 1, "Elastic": True})) == ()
    canaries = {"MaxParallel": 1, "Canary": 2}
    assert problems(group(Type="service", Count=3, Gang={"Min": 2}, Update=canaries)) == ()


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (gang({"Framework": "caffe"}), 'rendezvous framework "caffe" is not valid'),
        (gang({"Barrier": 1}), "rendezvous barrier must be from 1s"),
        (gang({"Interface": "a name with spaces"}), "is not the name of a network interface"),
        (gang({"Port": ""}), "rendezvous needs a port"),
        (gang({"Port": "met"}), 'rendezvous port "met" is not a port of the group\'s network block; there are: meet'),
        (gang({}, Networks=[]), 'rendezvous port "meet" is not a port'),
        (
            gang({}, Networks=[{"Mode": "bridge", "DynamicPorts": [{"Label": "meet"}]}]),
            'needs a network with mode = "host"',
        ),
        (gang({}, Type="service", Update={"MaxParallel": 1}), "update max_parallel is 1 and the group's count 2"),
        (gang({}, Type="service", Update={"MaxParallel": 2, "Canary": 1}), "can have no canaries"),
        (gang({}, Tasks=SECOND_TASK), "has one main task, this one has 2 (main, other)"),
        (group(Count=2, Gang={"Elastic": True}), "gang elastic needs a rendezvous block"),
        (group(Count=2, Gang={"Min": 3}), "gang min is 3 and the group's count 2"),
        (
            group(Type="service", Count=3, Gang={"Min": 2}, Update={"MaxParallel": 1, "Canary": 1}),
            "update canary is 1, fewer than the 2 that must run together: set canary = 2, or 0 for none",
        ),
        (group(Type="system", Gang={}), "gang can only be used with service and batch jobs"),
    ],
)
def test_gangs_name_what_is_wrong(document: dict[str, Any], text: str) -> None:
    assert any(text in problem for problem in problems(document)), problems(document)


def of_devices(*devices: dict[str, Any]) -> dict[str, Any]:
    return task(Resources={"Devices": list(devices)})


PART: dict[str, Any] = {"Name": "nvidia/gpu", "Share": "mig", "MemoryMB": 8192}


@pytest.mark.parametrize(
    "devices",
    [
        [PART],
        [PART, {"Name": "intel/fpga", "Count": 2}],
        [PART, {"Name": "amd/gpu"}, {"Name": "amd/gpu/MI300X"}],
        [{"Name": "gpu", "FirstAvailable": [PART, {"Name": "nvidia/gpu", "Count": 2}]}],
        [{"Name": "nvidia/gpu", "Count": 2}, {"Name": "amd/gpu"}],
    ],
)
def test_one_mig_instance_is_enough_for_a_task(devices: list[dict[str, Any]]) -> None:
    assert problems(of_devices(*devices)) == ()


def test_several_mig_instances_for_one_task_are_refused() -> None:
    (found,) = problems(of_devices(PART | {"Count": 2}))
    assert 'device "nvidia/gpu" has share = "mig" and a count of 2: ' in found
    assert "a process sees one MIG instance only; ask for count = 1" in found


@pytest.mark.parametrize(
    "other",
    [
        PART | {"Name": "gpu"},
        {"Name": "nvidia/gpu/H100"},
        {"Name": "gpu", "FirstAvailable": [{"Name": "nvidia/gpu"}, {"Name": "amd/gpu"}]},
    ],
)
def test_a_mig_instance_beside_another_gpu_is_refused(other: dict[str, Any]) -> None:
    (found,) = problems(of_devices(PART, other))
    assert 'device "nvidia/gpu" has share = "mig" together with device "' in found
    assert "ask for them in separate tasks" in found


def test_an_alternative_that_is_several_mig_instances_is_refused() -> None:
    (found,) = problems(of_devices({"Name": "gpu", "FirstAvailable": [PART | {"Count": 3}]}))
    assert 'Alternative "nvidia/gpu"' in found
    assert "a count of 3" in found
