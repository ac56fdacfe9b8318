"""Decisions are made in the log: what reads the state and makes a command of it says in the command what it relied on.

A command that was built from a row may be applied after that row has changed. So it carries an expectation (`based_on`,
`check_index` and the like), which `apply` checks, or states an intent that `apply` decides by itself. A function that
reads the state and makes a command without an expectation is found here. An excuse says why nothing acknowledged can be
undone by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from yurt.structs.commands import AnyCommand

ROOT = Path(__file__).resolve().parent.parent / "core/src/yurt"
FOLDERS = ("server", "http", "agent", "duties")
COMMANDS = frozenset(kind.__name__ for kind in get_args(AnyCommand))
EXPECTATIONS = frozenset({
    "based_on", "check_index", "checked_at", "enforce_index", "specification_index", "lock_id", "is_strict",
    "requires_pause", "reports",
})  # fmt: skip
READERS = frozenset({"read_state", "changed_state", "view", "known_view", "loaded_view", "changed_view"})
ANSWERS = frozenset({"committed", "done", "step", "self"})
"""Owners of a `state` that is no snapshot to decide on: what `apply` answered, or a machine's own field."""

BY_WATCHER = "server.deployment_watcher bases the command on the deployment and its job"
BY_DRAINER = "server.resources.drain bases the command on the node"
LOOKED_AT_TWICE = "apply makes the same checks; the look ahead words the refusal as Nomad does"
ROLE_BY_NAME = "a role's id is looked up by its name; apply checks that the role is there"

EXCUSES: dict[str, str] = {
    "server/clients/node_service.py::_granted: AddNodeEvents": "an event changes nothing that anybody was promised",
    "server/clients/node_service.py::register_node: RegisterNode": LOOKED_AT_TWICE,
    "server/clients/node_service.py::_store_schemas: StoreSchema": "keyed by its digest: a schema that is known stays",
    "server/scheduling/plan_applier.py::_check: KeepAlive": "it changes nothing: only its index matters",
    "server/leadership/roles.py::_begin_term: DropStagedPlans": "a term begins: nobody stages a plan yet",
    "server/keys/root_keys.py::_rekey_methods: RekeyACLAuthMethods": "apply leaves out methods that have changed",
    "server/keys/root_keys.py::_rekey_variables: RekeyVariables": "apply leaves out variables whose index has moved",
    "server/resources/services.py::register: RegisterServices": "apply holds each registration against its allocation",
    "server/resources/variables.py::decision: LockVariable": "apply decides who holds it; the caller gives items",
    "server/operations/cluster.py::delete: DeleteNamespaces": LOOKED_AT_TWICE,
    "server/operations/cluster.py::delete: DeleteNodePools": LOOKED_AT_TWICE,
    "server/resources/acl_tokens.py::create: CreateACLToken": ROLE_BY_NAME,
    "server/resources/acl_tokens.py::update: UpdateACLToken": ROLE_BY_NAME,
    "server/resources/acl_tokens.py::exchange_one_time: TakeOneTimeToken": "apply decides who uses it",
    "duties/acl_gc.py::expired: CollectACL": "apply looks at the time of each again",
    "duties/deployments.py::watch: UpsertEvaluations": BY_WATCHER,
    "duties/deployments.py::watch: SetDesiredTransitions": BY_WATCHER,
    "duties/deployments.py::watch: PromoteDeployment": BY_WATCHER,
    "duties/deployments.py::failed: SetDeploymentStatus": BY_WATCHER,
    "duties/drain.py::transition: SetDesiredTransitions": BY_DRAINER,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[Function]:
    """All functions, each without those that are defined inside it."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function and of its lambdas; an inner function answers for itself."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function):
            continue
        yield node
        waiting.extend(ast.iter_child_nodes(node))


def reads_state(function: Function) -> bool:
    """A snapshot comes in as an argument, or the function asks for the newest one."""
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    if any(isinstance(each.annotation, ast.Name) and each.annotation.id == "Snapshot" for each in arguments):
        return True
    return any(map(_is_read, own_nodes(function)))


def _is_read(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return name in READERS
    if not isinstance(node, ast.Attribute) or node.attr != "state":
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id in ANSWERS)


def bare_commands(function: Function) -> Iterator[str]:
    """The commands that a function makes without an expectation."""
    for node in own_nodes(function):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in COMMANDS and not EXPECTATIONS & {keyword.arg for keyword in node.keywords}:
                yield name


def findings_in(path: Path, root: Path = ROOT) -> Iterator[str]:
    """`path::function: command` for each command that was built from the state and does not say so."""
    for function in functions(ast.parse(path.read_text())):
        if reads_state(function):
            for name in bare_commands(function):
                yield f"{path.relative_to(root).as_posix()}::{function.name}: {name}"


def all_findings() -> list[str]:
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    return [finding for path in paths for finding in findings_in(path)]


def test_what_is_built_from_the_state_says_what_it_relied_on() -> None:
    found = [finding for finding in all_findings() if finding not in EXCUSES]
    assert not found, "\n".join(found)


def test_every_excuse_is_still_needed() -> None:
    assert not set(EXCUSES) - set(all_findings()), "excuses without a finding"


def test_the_page_on_concurrent_requests_has_every_command() -> None:
    page = (ROOT.parents[2] / "docs/explanation/concurrent-requests.md").read_text()
    missing = sorted(name for name in COMMANDS if f"`{name}`" not in page)
    assert not missing, f"docs/explanation/concurrent-requests.md has no row for {', '.join(missing)}"
    named = sorted(set(re.findall(r"`((?:tests|e2e)/[\w/]+\.py)`", page)))
    gone = [name for name in named if not (ROOT.parents[2] / name).exists()]
    assert not gone, f"docs/explanation/concurrent-requests.md names tests that are not there: {', '.join(gone)}"


@pytest.mark.parametrize(
    "body",
    [
        "async def stop(self):\n    job = self._server.state.jobs['x']\n    propose(DeregisterJob(job_id=job.id))",
        "async def stop(call):\n    state = call.read_state()\n    await propose(RegisterJob(job=state.jobs['x']))\n",
        "def stop(call):\n    jobs = loaded_view(call).of(JobRows)\n    propose(RegisterJob(job=jobs['x']))\n",
        "def decide(state: Snapshot):\n    return RegisterJob(job=state.jobs['x'])\n",
    ],
)
def test_a_breach_is_seen(tmp_path: Path, body: str) -> None:
    path = tmp_path / "breach.py"
    path.write_text(body)
    assert list(findings_in(path, tmp_path))


@pytest.mark.parametrize(
    "body",
    [
        "def decide(state: Snapshot):\n    return RegisterJob(job=state.jobs['x'], based_on=(seen,))\n",
        "async def stop():\n    committed = await propose(DeregisterJob(job_id='x'))\n    return committed.state\n",
    ],
)
def test_an_intent_and_an_expectation_are_fine(tmp_path: Path, body: str) -> None:
    path = tmp_path / "fine.py"
    path.write_text(body)
    assert not list(findings_in(path, tmp_path))
