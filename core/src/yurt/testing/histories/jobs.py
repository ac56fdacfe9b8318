"""A job and its versions: requests, and their sequential behaviour.

The job has two groups, `a` and `b`, and a mark in its meta that tells registrations apart. Its specification is the
mark, the counts and whether it is stopped: a registration that changes none of them makes no version. Versions are
bounded by the servers, so a refusal may call a version unknown that the newest `KEPT_VERSIONS` do not include.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from yurt.testing.histories.history import Read, Reply, Request
from yurt.testing.histories.log_index import NEVER, agrees, lowest, unknown_after

GROUPS: Final = ("a", "b")
TAG: Final = "named"
KEPT_VERSIONS: Final = 5
"""The newest versions that are always kept, whichever are stable or tagged."""
REMEMBERED_VERSIONS: Final = 64
_CONFLICT: Final = re.compile(r"conflicting job modify index: (\d+)")
_PRIOR: Final = re.compile(r"Current job has version (\d+); enforcing version")
_TAGGED: Final = re.compile(r"already exists on version (\d+)")
_NO_JOB: Final = re.compile(r'^job ("[^"]*" )?(in namespace "[^"]*" )?not found|^Job not found')
_NO_VERSION: Final = re.compile(r"at version \d+ not found|has no version \d+|version \d+ not found")

Counts = tuple[int, int]


class Register(Request, frozen=True):
    """PUT /v1/jobs; `enforce` is EnforceIndex with this JobModifyIndex."""

    mark: str
    counts: Counts
    enforce: int | None = None
    keeps_counts: bool = False


class DeregisterRequest(Request, frozen=True):
    """DELETE /v1/job/:id."""

    purge: bool = False


class Scale(Request, frozen=True):
    """PUT /v1/job/:id/scale."""

    group: str
    count: int
    enforce: int | None = None


class Revert(Request, frozen=True):
    """PUT /v1/job/:id/revert."""

    version: int
    prior: int | None = None


class SetStable(Request, frozen=True):
    """PUT /v1/job/:id/stable."""

    version: int
    stable: bool


class SetTag(Request, frozen=True):
    """PUT /v1/job/:id/versions/:name/tag; without a version the newest one is named."""

    version: int | None = None


class ClearTag(Request, frozen=True):
    """DELETE /v1/job/:id/versions/:name/tag."""


class Evaluate(Request, frozen=True):
    """PUT /v1/job/:id/evaluate."""


class ReadJob(Read, frozen=True):
    """GET /v1/job/:id."""


class ReadVersions(Read, frozen=True):
    """GET /v1/job/:id/versions."""


Write = Register | DeregisterRequest | Scale | Revert | SetStable | SetTag | ClearTag | Evaluate


class AcceptedWrite(NamedTuple):
    """The body of a write that succeeded."""

    job_modify_index: int


class Version(NamedTuple):
    """A version of the job, in states and in answers."""

    number: int
    at: int
    """Its JobModifyIndex."""
    mark: str
    counts: Counts
    stop: bool = False
    stable: bool = False

    @property
    def specification(self) -> tuple[str, Counts, bool]:
        """The fields whose change creates a new version."""
        return self.mark, self.counts, self.stop


class SeenVersion(NamedTuple):
    """A version as a read shows it."""

    version: Version
    tag: str = ""


class JobState(NamedTuple):
    """The newest versions, the current one first (none: the job does not exist), and the tagged version."""

    versions: tuple[Version, ...] = ()
    tagged: int | None = None
    last: int = NEVER
    """The highest index at which a request on the job is known to have taken effect."""

    @property
    def current(self) -> Version | None:
        """The current version."""
        return self.versions[0] if self.versions else None

    def find(self, number: int) -> Version | None:
        """A version by its number."""
        return next((each for each in self.versions if each.number == number), None)

    def may_lack(self, number: int) -> bool:
        """Whether the servers may have pruned this version, or never had it."""
        return all(each.number != number for each in self.versions[:KEPT_VERSIONS])

    def marked(self, version: Version) -> JobState:
        """The state with one version replaced."""
        return self._replace(
            versions=tuple(version if each.number == version.number else each for each in self.versions)
        )


class JobModel:
    """The sequential behaviour of a job."""

    def initial(self) -> JobState:
        """The job does not exist."""
        return JobState()

    def written_at(self, request: Any, answer: Reply) -> int | None:
        """The answer's index, unless nothing was written."""
        return None if answer.is_refusal or request.is_read else answer.index

    def step(self, state: JobState, request: Any, answer: Reply | None) -> JobState | None:
        """See `Model.step`."""
        if isinstance(request, ReadJob | ReadVersions):
            return state if answer is None else _read(state, request, answer)
        if answer is None:
            found = _bound_to_condition(state, request)
            done = None if found is None else _written(found, request, unknown_after(_low(found)))
            return state if done is None else done
        if answer.is_refusal:
            return _refused(state, request, str(answer.body))
        found = _bound_to_condition(state, request)
        if found is None or answer.index <= _low(found):
            return None
        done = _written(found, request, answer.index)
        if done is None or not _tells_of(done, request, answer):
            return None
        return done._replace(last=answer.index)


def _low(state: JobState) -> int:
    """A lower bound for the index of any later request."""
    return max(state.last, lowest(state.current.at) if state.current else NEVER)


def _bound(state: JobState, answered: int) -> JobState | None:
    """The state with its unknown JobModifyIndex set to the answered one; None when they contradict."""
    current = state.current
    if current is None or not agrees(current.at, answered):
        return None
    return state if current.at == answered else state.marked(current._replace(at=answered))


def _bound_to_condition(state: JobState, request: Write) -> JobState | None:
    """The state that meets the request's condition; None when no such state is possible."""
    match request:
        case Register(enforce=0):
            return state if state.current is None else None
        case Register(enforce=int(enforced)) | Scale(enforce=int(enforced)):
            return _bound(state, enforced)
        case Revert(prior=int(prior)):
            return state if state.current is not None and state.current.number == prior else None
        case _:
            return state


def _written(state: JobState, request: Write, at: int) -> JobState | None:
    """The state after a successful request at an index; None when it must be refused."""
    current = state.current
    if isinstance(request, Register):
        counts = current.counts if request.keeps_counts and current is not None else request.counts
        return _stored(state, (request.mark, counts, False), at)
    if isinstance(request, DeregisterRequest):
        return state if current is None else _stopped(state, current, at, purge=request.purge)
    if current is None:
        return None
    match request:
        case Scale():
            return _stored(state, (current.mark, _scaled(current.counts, request), current.stop), at)
        case Revert(version=number):
            old = state.find(number)
            return None if old in (None, current) else _stored(state, (old.mark, old.counts, False), at)
        case SetStable(version=number, stable=stable):
            marked = state.find(number)
            return None if marked is None else state.marked(marked._replace(stable=stable))
        case SetTag():
            return _tagged(state, current.number if request.version is None else request.version)
        case ClearTag():
            return None if state.tagged is None else state._replace(tagged=None)
        case _:
            return state


def _scaled(counts: Counts, request: Scale) -> Counts:
    return (request.count, counts[1]) if request.group == GROUPS[0] else (counts[0], request.count)


def _stored(state: JobState, specification: tuple[str, Counts, bool], at: int) -> JobState:
    current = state.current
    if current is not None and current.specification == specification:
        return state
    mark, counts, stop = specification
    version = Version(0 if current is None else current.number + 1, at, mark, counts, stop)
    return state._replace(versions=(version, *state.versions)[:REMEMBERED_VERSIONS])


def _stopped(state: JobState, current: Version, at: int, *, purge: bool) -> JobState:
    if purge:
        return JobState(last=_low(state))
    return _stored(state, (current.mark, current.counts, True), at)


def _tagged(state: JobState, number: int) -> JobState | None:
    if state.find(number) is None or state.tagged not in (None, number):
        return None
    return state._replace(tagged=number)


def _tells_of(state: JobState, request: Write, answer: Reply) -> bool:
    """Whether the body shows the job as this request left it, and not as a later one did."""
    current = state.current
    if current is None or not isinstance(answer.body, AcceptedWrite):
        return True
    if isinstance(request, DeregisterRequest) and answer.body.job_modify_index == answer.index:
        return True
    return agrees(current.at, answer.body.job_modify_index)


def _refused(state: JobState, request: Write, text: str) -> JobState | None:
    """The state, with what the refusal reveals about it; None when nothing in it explains this refusal."""
    current = state.current
    if found := _CONFLICT.search(text):
        answered = int(found[1])
        return _bound(state, answered) if answered != getattr(request, "enforce", None) else None
    if found := _PRIOR.search(text):
        is_so = current is not None and current.number == int(found[1]) != getattr(request, "prior", None)
        return state if is_so else None
    if found := _TAGGED.search(text):
        return state if state.tagged == int(found[1]) else None
    number = current.number if current is not None else None
    reasons = (
        ("job already exists", current is not None and getattr(request, "enforce", None) == 0),
        ("job does not exist", current is None and bool(getattr(request, "enforce", None))),
        ("can't revert to current version", isinstance(request, Revert) and request.version == number),
        (f'tag "{TAG}" not found', isinstance(request, ClearTag) and state.tagged is None),
    )
    for words, is_reason in reasons:
        if words in text:
            return state if is_reason else None
    if _NO_VERSION.search(text):
        return state if _may_lack_version(state, request) else None
    return state if _NO_JOB.search(text) and current is None else None


def _may_lack_version(state: JobState, request: Write) -> bool:
    number = getattr(request, "version", None)
    return number is not None and state.tagged != number and state.may_lack(number)


def _read(state: JobState, request: ReadJob | ReadVersions, answer: Reply) -> JobState | None:
    if answer.is_refusal:
        return state if state.current is None and "not found" in str(answer.body) else None
    if state.current is None:
        return None
    seen: tuple[SeenVersion, ...] = (answer.body,) if isinstance(request, ReadJob) else answer.body
    if answer.index < seen[0].version.at:
        return None
    if isinstance(request, ReadVersions) and not _are_newest(state, seen):
        return None
    for each in seen:
        found = state.find(each.version.number)
        if found is None and each.version.number < state.versions[-1].number:
            continue
        if found is None or not _shows(each, found, state.tagged):
            return None
        state = state.marked(each.version)
    return state if seen[0].version.number == state.versions[0].number else None


def _are_newest(state: JobState, seen: tuple[SeenVersion, ...]) -> bool:
    """Whether a read shows all versions that are always kept."""
    numbers = {each.version.number for each in seen}
    return all(each.number in numbers for each in state.versions[:KEPT_VERSIONS])


def _shows(seen: SeenVersion, stored: Version, tagged: int | None) -> bool:
    """Whether a read shows this version; indexes that no answer has shown match any."""
    has_tag = seen.tag == (TAG if tagged == stored.number else "")
    return has_tag and agrees(stored.at, seen.version.at) and seen.version == stored._replace(at=seen.version.at)
