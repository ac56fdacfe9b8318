"""What a token does not see of another cluster: lists leave out, without a word, what it may not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from yurt.acl.compiled import CompiledPolicies, GrantLabels
from yurt.acl.globs import STAR
from yurt.acl.parsing import parse_policy
from yurt.acl.policy import PolicyError
from yurt.cli.errors import ApiError
from yurt.cli.other_cluster.answers import Answers
from yurt.cli.terminal.text import printable
from yurt.state import Snapshot
from yurt.state.tables import BUILT_IN_POOLS

NEEDED: Final = ("list-jobs", "read-job")
"""The capabilities in a namespace without which its jobs and allocations are not listed."""
UNNAMED: Final = "?"
"""No label but `*` matches it: labels have letters, digits, hyphens and stars."""
SHOWN_MAX: Final = 10
POLICIES_MAX: Final = 1_000
ROLES_MAX: Final = 100
NO_ACCESS_CONTROL: Final = 400
"""The status of Yurt's agents without access control; Nomad's then show a token called `acls-disabled`."""
EFFECT: Final = "jobs and allocations there are missing, so their nodes seem to have room"


def missing_rights(answers: Answers, state: Snapshot, shown_quotas: Collection[str]) -> Iterator[str]:
    """Warnings about rights that the token lacks and the objects that it cannot see.

    `shown_quotas` are the quotas in the answers, including those left out of the state.
    """
    yield from _missing_in_namespaces(answers, state)
    pools = {node.node_pool for node in state.nodes.values()} | {job.node_pool for job in state.jobs.values()}
    hidden = sorted(pools - set(BUILT_IN_POOLS) - set(state.node_pools.keys()))
    if hidden:
        yield (
            f"node pools are not shown, so they have no queue and no scheduler configuration here: {_listed(hidden)} "
            '(needed: node_pool with policy "read")'
        )
    quotas = {row.quota for row in state.namespaces.values() if row.quota} - set(shown_quotas)
    if quotas:
        yield f"quotas of namespaces are not shown, so they limit nothing here: {_listed(sorted(quotas))}"


def _missing_in_namespaces(answers: Answers, state: Snapshot) -> Iterator[str]:
    try:
        policies = _policies(answers)
    except ApiError as error:
        yield (
            f"the rights of the token are not known ({printable(str(error))}): namespaces in which it lacks "
            f"{' or '.join(NEEDED)} may be missing without notice"
        )
        return
    except PolicyError as error:
        yield f"the policies of the token cannot be read ({printable(str(error))}): namespaces may be missing"
        return
    if policies is None:
        return
    labels = policies.namespaces
    missing = [name for name in sorted(state.namespaces.keys()) if not _sees(labels, name)]
    if missing:
        yield f"the token lacks {' or '.join(NEEDED)} in namespaces: {_listed(missing)}; {EFFECT}"
    names = set(state.namespaces.keys())
    denied = sorted(
        each.label
        for each in labels.values()
        if each.label not in names and not (set(NEEDED) <= each.capabilities) and each.label.strip(STAR)
    )
    if denied:
        yield f"the token lacks {' or '.join(NEEDED)} in namespaces that match {_listed(denied)}; {EFFECT}"
    if not _sees(labels, UNNAMED):
        yield (
            "the token sees only the namespaces that its policies name: if there are others, "
            f'{EFFECT} (needed: namespace "*" with policy "read")'
        )


def _sees(labels: GrantLabels, name: str) -> bool:
    found = labels.find(name)
    return found is not None and set(NEEDED) <= found.capabilities


def _policies(answers: Answers) -> CompiledPolicies | None:
    """The policies of the token; None where it may do everything. Raises ApiError where they are not shown."""
    path = "/v1/acl/token/self"
    try:
        token = answers.object(answers.get(path), path)
    except ApiError as error:
        if error.status == NO_ACCESS_CONTROL:
            return None
        raise
    if token.get("Type") == "management" or token.get("AccessorID") == "acls-disabled":
        return None
    documents = _own_policies(answers, token)
    return CompiledPolicies(
        parse_policy(answers.text(each, "Name", "/v1/acl/policy/self"), _rules(answers, each), is_strict=False)
        for each in documents
    )


def _own_policies(answers: Answers, token: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The policies as the agent lists them, else each that the token and its roles name."""
    from yurt.cli.api.lookup import api_path

    if token.get("AccessorID") == "anonymous":
        return _named(answers, ["anonymous"])
    path = "/v1/acl/policy/self"
    try:
        found = answers.get(path)
    except ApiError:
        found = None
    if isinstance(found, list) and found:
        return [answers.object(each, path, "a policy") for each in found[:POLICIES_MAX]]
    token_path = "/v1/acl/token/self"
    names = answers.names(token, "Policies", token_path)
    for role in answers.objects(token, "Roles", token_path)[:ROLES_MAX]:
        role_path = api_path("acl", "role", answers.text(role, "ID", token_path))
        full_role = answers.object(answers.get(role_path), role_path)
        names += [answers.text(each, "Name", role_path) for each in answers.objects(full_role, "Policies", role_path)]
    return _named(answers, names)


def _named(answers: Answers, names: Sequence[str]) -> list[Mapping[str, Any]]:
    from yurt.cli.api.lookup import api_path

    found: list[Mapping[str, Any]] = []
    for name in dict.fromkeys(names[:POLICIES_MAX]):
        path = api_path("acl", "policy", name)
        try:
            found.append(answers.object(answers.get(path), path))
        except ApiError as error:
            if error.status != 404:
                raise
    return found


def _rules(answers: Answers, policy: Mapping[str, Any]) -> str:
    rules = policy.get("Rules") or ""
    if not isinstance(rules, str):
        raise answers.wrong("/v1/acl/policy/self", "Rules: expected a text")
    return rules


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:SHOWN_MAX])
    return f"{shown} and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else shown
