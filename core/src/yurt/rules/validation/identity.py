"""Rules for the `identity` blocks of a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from yurt.rules.problems import duplicates, escapes, is_open, is_signal, near_hint
from yurt.structs.cluster import Namespace
from yurt.structs.service import WorkloadIdentity
from yurt.structs.task import Task

NAME: Final = re.compile(r"[a-zA-Z0-9-_]{1,128}\Z")
DEFAULT: Final = "default"
MODES: Final = ("", "noop", "restart", "signal")
AUDIENCES_MAX: Final = 32
"""The maximum number of audiences: a token must fit into a header of 8 KiB."""
AUDIENCE_MAX: Final = 256
TASK_DEPTH: Final = 1
"""The depth of a task's directory inside its allocation's directory."""


def identities_of(task: Task) -> tuple[WorkloadIdentity, ...]:
    """The identities of a task that its job declares."""
    return (*((task.identity,) if task.identity is not None else ()), *task.identities)


def identity_problems(task: Task) -> Iterator[str]:
    """Problems of a task's identities."""
    for identity in identities_of(task):
        name = (identity.name or DEFAULT)[:64]
        yield from (f'Identity "{name}" is invalid: {problem}' for problem in _problems(identity))
    for name in duplicates(identity.name or DEFAULT for identity in identities_of(task)):
        is_default = name == DEFAULT
        yield "Duplicate default identities found" if is_default else f'Duplicate identities "{name[:64]}" found'


def identity_doubts(task: Task) -> Iterator[str]:
    """Valid but probably unintended settings of a task's identities."""
    for identity in identities_of(task):
        name = (identity.name or DEFAULT)[:64]
        yield from (f'Identity "{name}": {doubt}' for doubt in _doubts(identity))


def unknown_claims(task: Task, namespace: Namespace) -> Iterator[str]:
    """Extra claims that identities request and their namespace does not define: tokens are signed without them."""
    offered = {*namespace.optional_extra_claims, *namespace.required_extra_claims}
    for identity in identities_of(task):
        for name in identity.extra_claims:
            if name not in offered:
                near = get_close_matches(name, offered, n=1)
                hint = f' (did you mean "{near[0]}"?)' if near else ""
                yield (
                    f'Identity "{(identity.name or DEFAULT)[:64]}": extra claim "{name[:64]}" is none of the optional '
                    f'ones of namespace "{namespace.name}", so tokens come without it{hint}'
                )


def _problems(identity: WorkloadIdentity) -> Iterator[str]:
    name = identity.name or DEFAULT
    if not NAME.match(name):
        yield f'invalid name "{name[:64]}": letters, digits, - and _, 1 to 128'
    yield from (
        f"an empty string is an invalid audience ({number})"
        for number, each in enumerate(identity.audience, 1)
        if not each
    )
    if len(identity.audience) > AUDIENCES_MAX or any(len(each) > AUDIENCE_MAX for each in identity.audience):
        yield f"it has more than {AUDIENCES_MAX} audiences, or one of more than {AUDIENCE_MAX} characters"
    yield from _change_problems(identity)
    if identity.filepath and not identity.file:
        yield "file parameter must be true in order to specify filepath"
    if escapes(identity.filepath, depth=TASK_DEPTH):
        yield "filepath escapes the allocation's directory"
    if identity.ttl < 0:
        yield "ttl must be >= 0"
    elif identity.ttl and name == DEFAULT:
        yield "ttl for default identity not yet supported"


def _change_problems(identity: WorkloadIdentity) -> Iterator[str]:
    mode, signal = identity.change_mode, identity.change_signal
    if mode not in MODES:
        yield f"invalid change_mode: {mode[:64]}; use noop, restart or signal{near_hint(mode, MODES)}"
    if mode == "signal" and not signal:
        yield "change_signal must be specified when using change_mode=signal"


def _doubts(identity: WorkloadIdentity) -> Iterator[str]:
    signal = identity.change_signal
    if signal and not is_open(signal) and not is_signal(signal.upper()):
        yield f'change_signal "{signal[:64]}" is not a valid signal; write a name such as "SIGTERM"'
    if not identity.name or identity.name == DEFAULT:
        if identity.audience:
            yield "aud has no effect: the audience of a default identity is fixed"
        return
    if not identity.audience:
        yield "identities without an audience are insecure"
    elif len(identity.audience) > 1:
        yield "while multiple audiences are allowed, it is more secure to use 1 audience per identity"
    if not identity.ttl:
        yield "identities without an expiration are insecure"
    elif identity.env and identity.change_mode != "restart":
        yield 'env needs change_mode = "restart": the environment of a running task keeps the token that expires'
