"""Selects the allocation, task or node that a command's arguments refer to."""

from __future__ import annotations

from yurt.cli.api.identifier_hints import is_job
from yurt.cli.api.lookup import alloc_or_none, api_path, find_alloc, find_job, find_node
from yurt.cli.declaration import Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.json_object import Json


def chosen_alloc(call: Invocation, name: str) -> Json:
    """The allocation with that id; the newest running one of a job with -job, or when only a job has that id."""
    if not call.flags.is_on("job"):
        return alloc_or_newest(call, name, call.flags.text("group"))
    return _newest_of_job(call, name, call.flags.text("group"))


def alloc_or_newest(call: Invocation, name: str, group: str = "") -> Json:
    """The allocation with that id; the newest running one of a job when only a job has that id."""
    alloc = alloc_or_none(call, name)
    if alloc is not None:
        return alloc
    if not is_job(call, name):
        return find_alloc(call, name)
    return _newest_of_job(call, name, group)


def _newest_of_job(call: Invocation, name: str, group: str) -> Json:
    job = find_job(call, name)
    return newest_running(call, job["ID"], job.get("Namespace") or "default", group)


def newest_running(call: Invocation, job_id: str, namespace: str, group: str) -> Json:
    """The newest running allocation of a job or one of its groups; when none runs, the newest of all."""
    allocs: list[Json] = call.api.get(api_path("job", job_id, "allocations"), {"namespace": namespace}) or []
    fitting = [alloc for alloc in allocs if not group or alloc["TaskGroup"] == group]
    running = [alloc for alloc in fitting if alloc["ClientStatus"] == "running"] or fitting
    if not running:
        where = f' in the group "{group}"' if group else ""
        raise CliError(f'The job "{job_id}" has no allocations{where}')
    newest = max(running, key=lambda alloc: alloc.get("CreateIndex") or 0)
    whole: Json = call.api.get(api_path("allocation", newest["ID"]))
    return whole


def named_task(call: Invocation) -> str:
    """The task that -task names, or else the second argument; "" for none. The flag wins, as in Nomad."""
    return call.flags.text("task") or (call.args[1] if len(call.args) > 1 else "")


def chosen_task(alloc: Json, name: str) -> str:
    """The task with that name; without a name the only one."""
    tasks = task_names(alloc)
    if name:
        if name not in tasks:
            raise CliError(f'The allocation has no task "{name}"; it has {", ".join(tasks)}')
        return name
    if len(tasks) == 1:
        return tasks[0]
    raise CliError(
        f'Allocation "{alloc["ID"][:8]}" is running the following tasks:\n  * '
        + "\n  * ".join(tasks)
        + "\n\nPlease specify the task."
    )


def task_names(alloc: Json) -> list[str]:
    """The tasks of the allocation's group."""
    groups = (alloc.get("Job") or {}).get("TaskGroups") or []
    named = [
        task["Name"] for group in groups if group["Name"] == alloc["TaskGroup"] for task in group.get("Tasks") or ()
    ]
    return named or sorted(alloc.get("TaskStates") or {})


def chosen_node(call: Invocation, *, self_wins: bool = False) -> Json:
    """The node with that id, or with -self the node of the queried agent.

    `self_wins`: -self wins over an argument, as in Nomad where a node is only shown. A change of a node is refused with
    both, as in Nomad.
    """
    if not call.flags.is_on("self"):
        if not call.args:
            raise UsageError("This command takes one argument: <node>, or -self")
        return find_node(call, call.args[0])
    if call.args and not self_wins:
        raise UsageError(f"-self means the agent's own node; leave out -self or the argument {call.args[0]}")
    about: Json = call.api.get("/v1/agent/self") or {}
    node_id = ((about.get("stats") or {}).get("client") or {}).get("node_id")
    if not node_id:
        raise CliError("The agent that was asked runs no client, so it has no node of its own")
    node: Json = call.api.get(api_path("node", node_id))
    return node
