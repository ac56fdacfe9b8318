"""Changes that most duties of a leader follow: all but new allocations without a past."""

from yurt.sdk.value import replace
from yurt.state import Change, has_change_among, without_plain_placements
from yurt.structs.alloc import AllocDeploymentStatus, IdleState, RescheduleTracker
from yurt.testing import factories


def test_only_new_allocations_without_a_past_are_left_out() -> None:
    plain = factories.alloc()
    ended = replace(plain, client_status="complete")
    kept = (
        Change("evals", "e", None, object()),
        Change("allocs", "replaces", None, replace(plain, reschedule_tracker=RescheduleTracker())),
        Change("allocs", "healthy", None, replace(plain, deployment_status=AllocDeploymentStatus(healthy=True))),
        Change("allocs", "idle", None, replace(plain, idle=IdleState())),
        Change("allocs", "changed", plain, ended),
        Change("allocs", "deleted", plain, None),
    )
    assert without_plain_placements((Change("allocs", plain.id, None, plain), *kept)) == kept


def test_a_change_among_tables_is_found() -> None:
    changes = (Change("jobs", "a", None, object()), Change("evals", "b", None, object()))
    assert has_change_among(changes, frozenset({"evals", "nodes"}))
    assert not has_change_among(changes, frozenset({"allocs"}))
    assert not has_change_among((), frozenset({"allocs"}))
