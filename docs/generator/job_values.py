"""Values in job files: where variables come from, the operators of constraints, and what `${...}` may name."""

from __future__ import annotations

import inspect
import re

from yurt.client import task_env
from yurt.client.tasks.identities import variable_of
from yurt.rules.validation import policies
from yurt.scheduler.constraints import operators, targets
from yurt.structs.alloc import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    Allocation,
    AllocNetworkStatus,
)
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import PortMapping
from yurt.structs.node import Node
from yurt.structs.service import WorkloadIdentity
from yurt.structs.task import Task

from docs.generator.markdown import code, notes, require, table

OPERATORS = notes("""
=                 Both sides are the same text; also written `==` and `is`. The default.
!=                They differ, or one is missing; also written `not`.
<                 Whole numbers, then other numbers, else texts are compared; also `<=`, `>` and `>=`.
regexp            The value, a regular expression, matches somewhere in the attribute.
version           The attribute is a version within the value, such as `>= 1.2, < 2.0`; `~> 1.2` lets its end grow.
semver            The same by the strict rules of semantic versions.
set_contains      The attribute, a list with commas, holds every element of the value; also `set_contains_all`.
set_contains_any  It holds at least one of them.
is_set            The attribute exists.
is_not_set        It does not.
distinct_hosts    No two allocations on one node. In a job or group only.
distinct_property At most `value` allocations for each value of the attribute. In a job or group only.
""")
ALSO = {"==": "=", "is": "=", "not": "!=", "<=": "<", ">": "<", ">=": "<", "set_contains_all": "set_contains"}
NODE_NAMES = notes("""
node.unique.id    The node's id.
node.unique.name  Its name.
node.region       Its region.
node.datacenter   Its datacenter.
node.class        Its class.
node.pool         Its pool.
""")
VARIABLES = notes("""
NOMAD_ALLOC_DIR          The folder that all tasks of the allocation share.
NOMAD_TASK_DIR           The task's own `local` folder.
NOMAD_SECRETS_DIR        The task's folder for secrets.
NOMAD_UNIX_ADDR          The task's socket to the HTTP API of its agent: `unix://` and a path in the folder for secrets.
NOMAD_TOKEN              With `identity { env = true }`: the default identity, a token for the API.
NOMAD_TOKEN_<name>       The same of the identity `name`.
NOMAD_ALLOC_ID           The allocation's id.
NOMAD_SHORT_ALLOC_ID     Its first eight characters.
NOMAD_ALLOC_NAME         `<job>.<group>[<index>]`.
NOMAD_ALLOC_INDEX        The index; among running allocations of a group no two have the same.
NOMAD_TASK_NAME          The task.
NOMAD_GROUP_NAME         Its group.
NOMAD_JOB_ID             Its job's id.
NOMAD_JOB_NAME           Its job's name.
NOMAD_JOB_PARENT_ID      The job that this one is a child of; only there.
NOMAD_DC                 The node's datacenter.
NOMAD_REGION             The region.
NOMAD_NAMESPACE          The namespace.
NOMAD_PARENT_CGROUP      The cgroup above the task's, where the node has one.
NOMAD_MEMORY_LIMIT       MiB.
NOMAD_MEMORY_MAX_LIMIT   MiB, with `memory_max`.
NOMAD_CPU_LIMIT          MHz.
NOMAD_CPU_CORES          Reserved cores such as `0-2,5`, with `cores`.
NOMAD_IP_<label>         The address of a port.
NOMAD_PORT_<label>       Its number, inside the task's network.
NOMAD_ADDR_<label>       Address and number.
NOMAD_HOST_IP_<label>    The host's address.
NOMAD_HOST_PORT_<label>  The number on the host.
NOMAD_HOST_ADDR_<label>  Both.
NOMAD_ALLOC_IP_<label>   The address inside the allocation's network, where it has one; also
                         `NOMAD_ALLOC_PORT_<label>`, `NOMAD_ALLOC_ADDR_<label>` and `NOMAD_ALLOC_INTERFACE_<label>`.
NOMAD_META_<name>        Metadata of job, group and task, the innermost; as it is written and in capitals.
""")
SOURCES = """
## Variables and expressions

A variable gets its value from the last of these that has one:

1. `default` in its block
2. the environment, `NOMAD_VAR_<name>`
3. `-var-file` files, in the order given
4. `-var name=value`, in the order given

A text from the environment or from `-var` is taken as it is when the variable is a string, a number or has no type,
and read as an expression otherwise. `-hcl2-strict=false` turns values for undeclared variables into warnings.
`variable` blocks take `type`, `default`, `description`, `sensitive`, `nullable` and `validation` blocks; a
`variables` block holds `name = default` lines.

Expressions have the operators, conditions, `for`, splats, heredocs and `%{ if }` templates of HCL. `var.<name>` and
`local.<name>` are known; any other `${...}` is left as it is, for the node to replace. `dynamic` blocks work in every
block.
"""


def variables_section() -> str:
    """Where variables come from."""
    return SOURCES


def operators_section() -> str:
    """The operators of constraints and affinities."""
    known = {
        *policies._COMPARISONS,
        *policies._SETS,
        *policies._VERSIONS,
        "regexp",
        "is_set",
        "is_not_set",
        operators.DISTINCT_HOSTS,
        operators.DISTINCT_PROPERTY,
    }
    require("operators", known - set(ALSO), OPERATORS)
    rows = [(code(name), text) for name, text in OPERATORS.items()]
    text = (
        "## Operators\n\nOf constraints and affinities. A side that does not resolve on a node makes every operator "
        "false but `!=` and "
        "`is_not_set`. Regular expressions are RE2's, without scripts as `\\p{Greek}`."
    )
    return text + "\n\n" + table(("Operator", "Holds when"), rows)


def sample_environment() -> set[str]:
    """The names that a task with everything gets; the port's label is `x`."""
    task, group = Task(name="t", driver="d", meta={"m": "1"}), TaskGroup(name="g")
    given = AllocatedTaskResources(
        cpu=AllocatedCpuResources(cpu_shares=1, reserved_cores=(0,)),
        memory=AllocatedMemoryResources(memory_mb=1, memory_max_mb=2),
    )
    shared = AllocatedSharedResources(ports=(PortMapping(label="x", value=1, to=1, host_ip="127.0.0.1"),))
    alloc = Allocation(
        id="0" * 36,
        name="j.g[0]",
        allocated_resources=AllocatedResources(tasks={"t": given}, shared=shared),
        network_status=AllocNetworkStatus(interface_name="eth0", address="127.0.0.1"),
    )
    inputs = task_env.EnvInputs(
        node=Node(id="n", cgroup_parent="p"),
        region="global",
        alloc=alloc,
        job=Job(id="j", parent_id="p"),
        group=group,
        task=task,
        alloc_dir="/alloc",
        task_dir="/local",
        secrets_dir="/secrets",
    )
    identities = {variable_of(WorkloadIdentity(name=name)) for name in ("", "<name>")}
    names = identities | {re.sub(r"_x$", "_<label>", name) for name in task_env.build_env(inputs)}
    return {re.sub(r"_META_[mM]$", "_META_<name>", name) for name in names}


def node_names() -> set[str]:
    """The `node.*` names that tasks may use."""
    return set(task_env.node_values(Node(), ""))


def interpolation_section() -> str:
    """What `${...}` may name."""
    require("node names", node_names(), NODE_NAMES)
    told = sample_environment() - {f"NOMAD_ALLOC_{part}_<label>" for part in ("PORT", "ADDR", "INTERFACE")}
    require("task variables", told, VARIABLES)
    in_constraints = set(re.findall(r'"(node\.[a-z.]+)"', inspect.getsource(targets.resolve)))
    rows = [
        (code(f"${{{name}}}"), text, "yes" if name in in_constraints else "no") for name, text in NODE_NAMES.items()
    ]
    rows += [
        (code("${attr.<name>}"), "An attribute; `yurt node status -verbose` shows those of a node.", "yes"),
        (code("${meta.<name>}"), "Metadata of the node, from `client { meta { } }`.", "yes"),
        (code('${env["<name>"]}'), "A variable of the task's environment; empty where there is none.", "no"),
        (code("${<name>}"), "A variable of the task's environment, mostly one of those below.", "no"),
    ]
    return "\n\n".join(
        (
            "## Interpolation\n\nReplaced on the node, in `config`, `env` and the like of a task; constraints, "
            "affinities and spreads "
            "take those marked. A name that nobody knows stays as it is written.",
            table(("Name", "Is", "In constraints"), rows),
            "### Variables of a task\n\nLater ones win: the agent's own environment (only for drivers that do not "
            "isolate the file "
            "system, without the names of `env.denylist`), the variables below, the task's `env` block. In names "
            "every character but "
            "letters, digits and `_` becomes `_`.",
            table(("Name", "Is"), [(code(name), text) for name, text in VARIABLES.items()]),
        )
    )
