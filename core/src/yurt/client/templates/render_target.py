"""Resolves a template of a task: source, destination, mode, owner and wait times."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

from yurt.client.files.safe_files import Owners
from yurt.client.task_env import replace_references
from yurt.client.templates import files
from yurt.client.templates.settings import TemplateSettings
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.value import NANOSECONDS, Value
from yurt.structs.task import Template

MODE = 0o644
MODE_MAX = 0o7777
MODE_BITS = 0o777
"""Permitted mode bits: the agent writes the file, so a job must not obtain a setuid file through it."""


class TemplatePlace(Value):
    """The task for which templates are rendered; `env` is its environment, `dirs` are its directories on the host."""

    alloc_id: str
    task: str
    namespace: str
    dirs: TaskDirs
    env: Mapping[str, str]
    templates: tuple[Template, ...]
    job_id: str = ""
    group: str = ""
    is_rendered_each_start: bool = False
    link_owners: Owners = None


class RenderTarget(Value):
    """A template ready to be rendered; waits in seconds; `source` is a path, or empty when the text is in the job."""

    template: Template
    name: str
    root: str
    path: str
    source: str
    mode: int
    owner: tuple[int, int]
    wait_min_s: float
    wait_max_s: float


def targets(
    place: TemplatePlace, settings: TemplateSettings, *, lookup: Callable[[str], str | None]
) -> tuple[RenderTarget, ...]:
    """The templates in the job's order; raises Invalid."""
    return tuple(_target(template, place, settings, lookup) for template in place.templates)


def _target(
    template: Template, place: TemplatePlace, settings: TemplateSettings, lookup: Callable[[str], str | None]
) -> RenderTarget:
    dirs = place.dirs
    on_host = {
        "NOMAD_ALLOC_DIR": dirs.shared_dir,
        "NOMAD_TASK_DIR": dirs.local_dir,
        "NOMAD_SECRETS_DIR": dirs.secrets_dir,
    }

    def resolve(name: str) -> str | None:
        return on_host.get(name) or lookup(name)

    name = template.dest_path or "template"
    try:
        root, path = files.place(replace_references(template.dest_path, resolve), dirs)
        mode = _mode(template.perms)
    except Invalid as error:
        raise Invalid(f"template with destination {name!r}: {error}") from None
    wait = template.wait
    return RenderTarget(
        template=template,
        name=name,
        root=root,
        path=path,
        source=replace_references(template.source_path, resolve),
        mode=mode,
        owner=(_id(template.uid), _id(template.gid)),
        wait_min_s=_bounded(wait.min if wait is not None else None, settings.wait_min_s, settings),
        wait_max_s=_bounded(max(wait.max, wait.min) if wait is not None else None, settings.wait_max_s, settings),
    )


def _bounded(wait_ns: int | None, usual: float, settings: TemplateSettings) -> float:
    """A job's wait time within the operator's bounds."""
    wait_s = usual if wait_ns is None else wait_ns / NANOSECONDS
    return min(max(wait_s, settings.bound_min_s), settings.bound_max_s)


def _id(owner_id: int | None) -> int:
    return -1 if owner_id is None or owner_id < 0 else owner_id


def _mode(perms: str) -> int:
    try:
        mode = int(perms, 8) if perms else MODE
    except ValueError:
        mode = -1
    if not 0 <= mode <= MODE_MAX:
        raise Invalid(f"perms {perms!r} are not an octal mode; use a mode such as 0644")
    return mode & MODE_BITS


def text_of(target: RenderTarget, place: TemplatePlace, settings: TemplateSettings) -> bytes:
    """The template's text; raises Invalid. Blocking when it is a file."""
    if not target.source:
        return target.template.embedded_tmpl.encode("utf-8", "surrogateescape")
    try:
        return files.read_file(target.source, place.dirs, is_sandboxed=settings.is_sandboxed, owners=place.link_owners)
    except YurtError as error:
        raise Invalid(f"template with source {target.source!r}: {error}") from None


def node_addresses() -> dict[str, tuple[str, ...]]:
    """The node's IPv4 and global IPv6 addresses by interface. Blocking."""
    import psutil

    found = {}
    for name, entries in sorted(psutil.net_if_addrs().items()):
        resolved = [entry.address for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)]
        found[name] = tuple(address for address in resolved if "%" not in address)
    return found
