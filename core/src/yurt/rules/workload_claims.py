"""The claims of a workload identity token, named as in Nomad's documentation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from yurt.sdk.value import NANOSECONDS, UnixNano, Value
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import Namespace
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.service import WorkloadIdentity

DEFAULT: Final = "default"
"""The name of the default identity, which every task has."""
AUDIENCE: Final = "nomadproject.io"
"""The audience of default identities and of those of nodes."""
EXTRA_CLAIMS_MAX: Final = 32
"""The maximum number of extra claims of one namespace: a token must fit into a header of 8 KiB."""
EXTRA_CLAIM_CHARACTERS_MAX: Final = 512
_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_CLAIM_NAME: Final = re.compile(r"[\x21-\x7e]{1,128}\Z")


class Signing(Value):
    """The values of claims that depend on the cluster and the time."""

    region: str
    issuer: str
    """The base URL of the discovery document; "" if there is none."""
    now: UnixNano
    token_id: str
    """An id that is unique to the token."""


def identity_name(identity: WorkloadIdentity) -> str:
    """The name of an identity; without a name it is the default one."""
    return identity.name or DEFAULT


def job_of_claims(job: Job) -> str:
    """The job that claims name: the parent of a dispatched or periodic child."""
    return job.parent_id or job.id


def workload_claims(
    alloc: Allocation, task: str, identity: WorkloadIdentity, *, signing: Signing, extra: Mapping[str, str]
) -> dict[str, Any]:
    """The claims of a task's identity; the audience of the default identity is fixed."""
    assert alloc.job is not None, alloc.id
    name, job_id, now = identity_name(identity), job_of_claims(alloc.job), signing.now // NANOSECONDS
    claims: dict[str, Any] = {
        "iat": now,
        "jti": signing.token_id,
        "nbf": now,
        "nomad_allocation_id": alloc.id,
        "nomad_job_id": job_id,
        "nomad_namespace": alloc.namespace,
        "nomad_task": task,
        "sub": ":".join((signing.region, alloc.namespace, job_id, alloc.task_group, task, name)),
    }
    audience = (AUDIENCE,) if name == DEFAULT else identity.audience
    if audience:
        claims["aud"] = audience[0] if len(audience) == 1 else list(audience)
    if signing.issuer:
        claims["iss"] = signing.issuer
    if identity.ttl > 0:
        claims["exp"] = now + max(identity.ttl // NANOSECONDS, 1)
    if extra:
        claims["extra_claims"] = dict(extra)
    return claims


def extra_claims(
    namespace: Namespace | None, identity: WorkloadIdentity, lookup: Callable[[str], str | None]
) -> dict[str, str]:
    """The namespace's claims for an identity: those for all identities, and the optional ones that it requests."""
    if namespace is None:
        return {}
    optional = namespace.optional_extra_claims
    requested = {name: optional[name] for name in identity.extra_claims if name in optional}
    return {name: _filled(text, lookup) for name, text in {**requested, **namespace.required_extra_claims}.items()}


def claim_lookup(
    alloc: Allocation, task: str, *, region: str, node: Node | None
) -> Callable[[str], str | None]:  # fmt: skip
    """The values of `${...}` in an extra claim; those of the node are empty in default identities."""
    job = alloc.job
    assert job is not None, alloc.id
    values = {
        "job.region": region,
        "job.namespace": alloc.namespace,
        "job.id": job_of_claims(job),
        "job.node_pool": job.node_pool,
        "group.name": alloc.task_group,
        "alloc.id": alloc.id,
        "task.name": task,
        "node.id": node.id if node is not None else "",
        "node.datacenter": node.datacenter if node is not None else "",
        "node.pool": node.node_pool if node is not None else "",
        "node.class": node.node_class if node is not None else "",
    }

    def lookup(name: str) -> str | None:
        return job.meta.get(name.removeprefix("job.meta.")) if name.startswith("job.meta.") else values.get(name)

    return lookup


def extra_claim_problems(namespace: Namespace) -> Iterator[str]:
    """Problems of a namespace's extra claims."""
    required, optional = namespace.required_extra_claims, namespace.optional_extra_claims
    if (count := len(required) + len(optional)) > EXTRA_CLAIMS_MAX:
        yield f"it has {count} extra claims; {EXTRA_CLAIMS_MAX} are possible"
    for name, text in (*required.items(), *optional.items()):
        if not _CLAIM_NAME.match(name):
            yield f"the extra claim {name[:64]!r} needs a name of 1 to 128 visible ASCII characters"
        if len(text) > EXTRA_CLAIM_CHARACTERS_MAX:
            yield f"the extra claim {name[:64]!r} is longer than {EXTRA_CLAIM_CHARACTERS_MAX} characters"


def _filled(text: str, lookup: Callable[[str], str | None]) -> str:
    """The text with its references replaced; unknown references stay as written."""

    def value(match: re.Match[str]) -> str:
        found = lookup(match.group(1).strip())
        return match.group(0) if found is None else found

    return _REFERENCE.sub(value, text)
