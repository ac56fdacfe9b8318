"""Look-up of objects by a unique prefix of their id, with errors that say why none was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from yurt.api.uuids import HEX_DIGITS, uuid_prefix
from yurt.cli.declaration import Invocation
from yurt.cli.errors import ApiError, CliError
from yurt.cli.json_object import Json
from yurt.cli.terminal.screen import columns

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient

T = TypeVar("T")
UUID_CHARACTERS = HEX_DIGITS | {"-"}


def api_path(*parts: str) -> str:
    """`/v1/job/web` from its parts; a slash inside an id stays part of it."""
    from urllib.parse import quote

    return "/v1/" + "/".join(quote(part, safe="") if at else part for at, part in enumerate(parts))


def check_prefix(prefix: str) -> None:
    """Refuse a prefix that is too short."""
    if len(prefix) < 2:
        raise CliError("Identifier must contain at least two characters.")


def even_prefix(prefix: str) -> str:
    """The prefix cut to an even number of hexadecimal digits, as servers require it of UUIDs."""
    digits = len(prefix) - prefix.count("-")
    return prefix[:-1] if digits % 2 else prefix


def find_job(call: Invocation, prefix: str) -> Json:
    """The stub of the job with that id, else of the only job whose id has that prefix."""
    found = list_jobs(call.api, prefix)
    exact = [job for job in found if job["ID"] == prefix]
    if len(exact) == 1:
        return exact[0]
    if not found:
        raise _missing(call, "jobs", "job", prefix)
    return _only(
        exact or found,
        "",
        lambda jobs: ("jobs", "ID|Namespace|Type|Priority|Status", [_job_row(job) for job in jobs]),
    )


def list_jobs(api: ApiClient, prefix: str = "") -> list[Json]:
    """Stubs of the jobs whose ids have that prefix."""
    found: list[Json] = api.get("/v1/jobs", {"prefix": prefix}) or []
    return found


def _job_row(job: Json) -> list[str]:
    return [job["ID"], job.get("Namespace") or "default", job["Type"], str(job["Priority"]), job["Status"]]


def get_job(call: Invocation, prefix: str) -> Json:
    """The whole job."""
    stub = find_job(call, prefix)
    job: Json = call.api.get(api_path("job", stub["ID"]), {"namespace": stub.get("Namespace")})
    return job


def find_alloc(call: Invocation, prefix: str) -> Json:
    """The whole allocation."""
    alloc = alloc_or_none(call, prefix)
    if alloc is None:
        raise _missing(call, "allocs", "allocation", prefix)
    return alloc


def alloc_or_none(call: Invocation, prefix: str) -> Json | None:
    """The complete allocation; None when no id has that prefix."""
    found = _by_prefix(call, prefix, "/v1/allocations")
    if not found:
        return None
    stub = _only(
        found,
        "",
        lambda allocs: ("allocations", "ID|Job ID|Task Group|Desired|Status", [_alloc_row(call, a) for a in allocs]),
    )
    alloc: Json = call.api.get(api_path("allocation", stub["ID"]))
    return alloc


def _alloc_row(call: Invocation, alloc: Json) -> list[str]:
    return [
        call.short(alloc["ID"]) if "verbose" in {flag.name for flag in call.command.flags} else alloc["ID"][:8],
        alloc["JobID"], alloc["TaskGroup"], alloc["DesiredStatus"], alloc["ClientStatus"],
    ]  # fmt: skip


def find_node(call: Invocation, prefix: str) -> Json:
    """The whole node."""
    found = _by_prefix(call, prefix, "/v1/nodes")
    if not found:
        raise _missing(call, "nodes", "node", prefix)
    stub = _only(
        found,
        "",
        lambda nodes: (
            "nodes",
            "ID|DC|Name|Status",
            [[n["ID"], n["Datacenter"], n["Name"], n["Status"]] for n in nodes],
        ),
    )
    node: Json = call.api.get(api_path("node", stub["ID"]))
    return node


def find_eval(call: Invocation, prefix: str) -> Json:
    """The whole evaluation."""
    found = _by_prefix(call, prefix, "/v1/evaluations")
    if not found:
        raise _missing(call, "evals", "evaluation", prefix)
    stub = _only(
        found,
        "",
        lambda evals: (
            "evaluations",
            "ID|Triggered By|Status",
            [[e["ID"], e["TriggeredBy"], e["Status"]] for e in evals],
        ),
    )
    evaluation: Json = call.api.get(api_path("evaluation", stub["ID"]))
    return evaluation


def find_deployment(call: Invocation, prefix: str) -> Json:
    """The whole deployment."""
    found = _by_prefix(call, prefix, "/v1/deployments")
    if not found:
        raise _missing(call, "deployment", "deployment", prefix)
    stub = _only(
        found,
        "",
        lambda each: ("deployments", "ID|Job ID|Status", [[d["ID"], d["JobID"], d["Status"]] for d in each]),
    )
    deployment: Json = call.api.get(api_path("deployment", stub["ID"]))
    return deployment


def find_scaling_policy(call: Invocation, prefix: str) -> Json:
    """The complete scaling policy, from any namespace."""
    check_prefix(prefix)
    id_prefix = uuid_prefix(prefix)
    stubs: list[Json] = call.api.get("/v1/scaling/policies", {"namespace": "*"}) or []
    stub = _only(
        [each for each in stubs if each["ID"].startswith(id_prefix)],
        f'No scaling policies with prefix or id "{prefix}" found',
        lambda each: ("scaling policies", "ID|Type", [[policy["ID"], policy["Type"]] for policy in each]),
    )
    policy: Json = call.api.get(api_path("scaling", "policy", stub["ID"]))
    return policy


def find_root_key(api: ApiClient, prefix: str) -> Json:
    """The root key with that id or prefix of an id, as lists show it."""
    check_prefix(prefix)
    keys: list[Json] = api.get("/v1/operator/keyring/keys") or []
    return _only(
        [key for key in keys if key["KeyID"].startswith(prefix.lower())],
        f'No root key(s) with prefix or id "{prefix}" found',
        lambda found: ("root keys", "ID|State", [[key["KeyID"], key["State"]] for key in found]),
    )


def read_named(call: Invocation, given: str, read: Callable[[str], T], *, listed_at: str, things: str) -> T:
    """What `read` gives for a name, else for the only name of the list that begins with it.

    Where the list is forbidden, the name's own answer stands: a token may read objects and not list them.
    """
    try:
        return read(given)
    except ApiError as error:
        if error.status != 404:
            raise
        found = _names_with(call, given, listed_at)
        if not found:
            raise
    only = _only(found, "", lambda each: (things, "Name|Description", [_described(row) for row in each]))
    return read(only["Name"])


def _names_with(call: Invocation, prefix: str, listed_at: str) -> list[Json]:
    """The rows of the list whose names begin with the prefix; none where the token may not list."""
    try:
        rows: list[Json] = call.api.get(listed_at, {"prefix": prefix}) or []
    except ApiError as error:
        if error.status == 403:
            return []
        raise
    return [row for row in rows if row["Name"].startswith(prefix)]


def _described(row: Json) -> list[str]:
    return [row["Name"], row.get("Description") or ""]


def _missing(call: Invocation, kind: str, noun: str, prefix: str) -> CliError:
    """The error for a prefix without a match, with hints."""
    from yurt.cli.api.identifier_hints import hint
    from yurt.cli.api.namespaces import check_namespace

    if kind != "nodes":
        check_namespace(call)
    return CliError(f'No {noun}(s) with prefix or id "{prefix}" found{hint(call, kind, prefix)}')


def _by_prefix(call: Invocation, prefix: str, path: str) -> list[Json]:
    check_prefix(prefix)
    prefix = uuid_prefix(prefix)
    if not UUID_CHARACTERS.issuperset(prefix):
        return []
    try:
        found: list[Json] = call.api.get(path, {"prefix": even_prefix(prefix)}) or []
    except ApiError as error:
        if error.status == 404:
            return []
        raise
    return [each for each in found if each["ID"].startswith(prefix)]


Listing = Callable[[Iterable[Json]], tuple[str, str, list[list[str]]]]


def _only(found: list[Json], missing: str, listing: Listing) -> Json:
    if not found:
        raise CliError(missing)
    if len(found) > 1:
        things, header, rows = listing(found)
        table = columns([header.split("|"), *rows])
        raise CliError(f"Prefix matched multiple {things}\n\n{table}")
    return found[0]
