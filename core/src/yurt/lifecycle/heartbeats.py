"""The time of a client's next message to its servers, after a success and after each kind of failure.

Times are seconds on a monotonic clock. Being cut off never changes anything about running tasks; only a group's
`stop_on_client_after` does, and `disconnect_stop_at` is its clock.
"""

from __future__ import annotations

from yurt.sdk.value import NANOSECONDS, Value, replace
from yurt.structs.job import TaskGroup
from yurt.structs.status import JOB_BATCH, JOB_SERVICE

FIRST_HEARTBEAT_MAX_S = 10.0
REGISTER_RETRY_S = 15.0
DEV_RETRY_S = 1.0
MISSED_RECENTLY_S = 30.0
RETRY_CAP_S = 25.0
RETRY_CAP_JITTER_S = 5.0


class Contact(Value):
    """The client's contact with the servers: the last TTL, and the last answer (0: never)."""

    is_dev: bool = False
    is_registered: bool = False
    ttl_s: float = 0.0
    last_ok_s: float = 0.0


def first_delay(contact: Contact, chance: float) -> float:
    """The delay before the first heartbeat."""
    assert 0.0 <= chance < 1.0, chance
    return 0.0 if contact.is_dev else FIRST_HEARTBEAT_MAX_S * chance


def answered(contact: Contact, *, ttl_s: float, now_s: float) -> Contact:
    """The servers answered with a TTL."""
    return replace(contact, is_registered=True, ttl_s=ttl_s, last_ok_s=now_s)


def register_retry(contact: Contact, chance: float) -> float:
    """The delay after a failed registration."""
    assert 0.0 <= chance < 1.0, chance
    return DEV_RETRY_S if contact.is_dev else REGISTER_RETRY_S * (1.0 + chance)


def heartbeat_retry(contact: Contact, *, has_leader: bool, now_s: float, chance: float) -> float:
    """The delay after a failed heartbeat; short while the TTL can still be met or was just missed."""
    if contact.is_dev:
        return DEV_RETRY_S
    if not contact.is_registered or not has_leader:
        return REGISTER_RETRY_S * (1.0 + chance)
    assert 0.0 <= chance < 1.0, chance
    left_s = contact.last_ok_s + contact.ttl_s - now_s
    if left_s < -MISSED_RECENTLY_S:
        return RETRY_CAP_S + RETRY_CAP_JITTER_S * chance
    minimum_s = 1.0 + chance
    return min(max(minimum_s, left_s * chance), RETRY_CAP_S + RETRY_CAP_JITTER_S * chance)


def stop_on_client_after_s(group: TaskGroup, job_type: str) -> float:
    """Seconds without contact after which the client stops the group's allocations itself; 0: never."""
    if job_type not in (JOB_SERVICE, JOB_BATCH) or group.disconnect is None:
        return 0.0
    return group.disconnect.stop_on_client_after / NANOSECONDS


def is_cut_off(after_s: float, *, last_contact_s: float, now_s: float) -> bool:
    """Whether the allocation must end because its client has been disconnected longer than the group permits."""
    return after_s > 0 and now_s > last_contact_s + after_s
