"""Each condition under which a MIG instance is created, kept or destroyed, on a driver in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.sdk.device import MIG, WHOLE, ClaimedDevices, DeviceClaim
from yurt.sdk.errors import DriverError, RecoverableError
from yurt_device_nvidia.mig_cards import RETIRED, UNLISTED
from yurt_device_nvidia.mig_control import GpuInstance
from yurt_device_nvidia.mig_record import InstanceOwner, MigRecord, RecordedCard

from .mig_bench import HALF, SMALL, claim
from .mig_driver import ALL_ID, CARD, HALF_ID, OTHER, Bench, Driver, owner, small


def by_hand(*uuids: str, share: str = WHOLE) -> DeviceClaim:
    """A claim on instances that were made by hand."""
    numbers = tuple("0" for _ in uuids) if share == MIG else ()
    devices = ClaimedDevices(vendor="nvidia", type="gpu", name="H100", ids=uuids, share=share, numbers=numbers)
    return DeviceClaim(alloc_id="x", task_name="by hand", devices=(devices,))


WHOLE_CARD = claim("whole", (0, 0), share=WHOLE)


# -- what is managed ---------------------------------------------------------------------------------------------------


def test_a_recorded_card_that_is_not_listed_is_retired_and_takes_nothing_new(tmp_path: Path) -> None:
    cards = Bench(tmp_path, owners=(owner(1, 0),)).cards
    assert cards.is_used and cards.manages(CARD)
    verdict = cards.verdict(CARD)
    assert verdict is not None and (verdict.severity, verdict.reason) == ("degraded", RETIRED)


def test_a_listed_card_is_managed_once_its_profiles_are_known_and_has_no_verdict_while_split(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD)
    assert not bench.cards.manages(CARD)
    bench.cards.report(())
    bench.learn()
    assert bench.cards.manages(CARD) and set(bench.cards.texts()) == {CARD}
    bench.take(claim("task", SMALL, 0))
    assert bench.cards.verdict(CARD) is None


def test_a_card_of_known_profiles_that_is_not_listed_is_not_managed(tmp_path: Path) -> None:
    """Its profiles were asked for by an old plan, which was refused."""
    bench = Bench(tmp_path, OTHER, driver=Driver(small(7, 3)))
    bench.cards.report(())
    with pytest.raises(DriverError, match="may not split"):
        bench.take(claim("task", SMALL, 0))
    bench.cards.report(())
    assert not bench.cards.manages(CARD) and bench.cards.texts() == {}
    assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == [], "another tool's instance stays"


@pytest.mark.parametrize("listed", [(OTHER,), ()], ids=["another card is listed", "no card is listed"])
@pytest.mark.parametrize("start", [0, 3], ids=["another place", "the same place"])
def test_a_claim_that_is_reported_changes_nothing_on_a_card_that_is_neither_listed_nor_recorded(
    tmp_path: Path, listed: tuple[str, ...], start: int
) -> None:
    """All claims are reported, also the one of an old plan before its task is refused."""
    bench = Bench(tmp_path, *listed, driver=Driver(small(7, 3)))
    bench.cards.report((claim("task", SMALL, start),))
    bench.learn()
    assert not bench.cards.keep(bench.control)
    assert bench.cards.manages(CARD) and bench.cards.texts() == {}
    verdict = bench.cards.verdict(CARD)
    assert verdict is not None and (verdict.severity, verdict.reason) == ("degraded", UNLISTED)
    with pytest.raises(DriverError, match="may not split"):
        bench.take(claim("task", SMALL, start))
    assert not bench.cards.keep(bench.control)
    bench.cards.report(())
    assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == [], "another tool's instance stays, and so does its mode"
    assert not bench.cards.manages(CARD) and bench.cards.verdict(CARD) is None
    assert CARD not in MigRecord(str(tmp_path)).read(), "a recorded card would be the plugin's after a restart"


def test_a_claim_during_a_reservation_changes_nothing_on_a_card_that_is_neither_listed_nor_recorded(
    tmp_path: Path,
) -> None:
    """The look comes while the claim that was refused is still counted."""
    bench = Bench(tmp_path, OTHER, driver=Driver(small(7, 3)))
    bench.cards.report(())
    with pytest.raises(DriverError, match="may not split"):
        bench.take(claim("task", SMALL, 0))
    assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == [] and CARD not in MigRecord(str(tmp_path)).read()


def test_a_claim_does_not_withdraw_the_instances_by_hand_that_tasks_have(tmp_path: Path) -> None:
    """On a card that is neither listed nor recorded: they stay offered, and nothing new goes to the card."""
    bench = Bench(tmp_path, OTHER, driver=Driver(small(7, 3), small(5, 2)))
    bench.cards.report((claim("task", SMALL, 0), by_hand("MIG-1")))
    bench.cards.see({"MIG-1": (CARD, 5)})
    assert not bench.cards.keep(bench.control)
    with pytest.raises(DriverError, match="may not split"):
        bench.take(claim("task", SMALL, 0))
    assert bench.driver.changes == [] and not bench.cards.manages(CARD)
    verdict = bench.cards.verdict(CARD)
    assert verdict is not None and verdict.reason == UNLISTED


def test_a_whole_card_that_is_neither_listed_nor_recorded_keeps_its_mode_while_a_task_claims_an_instance(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path, OTHER, driver=Driver(small(7, 3)))
    bench.cards.report((claim("task", SMALL, 0),))
    assert bench.take(WHOLE_CARD) == {}
    assert bench.driver.changes == []


def test_instances_by_hand_that_tasks_have_keep_a_listed_card_out_of_management(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(5, 2)))
    bench.cards.report((by_hand("MIG-1"),))
    bench.learn()
    bench.cards.see({"MIG-1": (CARD, 5)})
    assert not bench.cards.manages(CARD) and bench.cards.texts() == {}
    bench.cards.keep(bench.control)
    assert bench.driver.changes == []


def test_instances_by_hand_on_a_card_that_is_not_listed_are_no_sign_of_a_fault(tmp_path: Path) -> None:
    cards = Bench(tmp_path, OTHER).cards
    cards.report((by_hand("MIG-1"),))
    cards.see({"MIG-1": (CARD, 5)})
    assert cards.verdict(CARD) is None


# -- MIG mode ----------------------------------------------------------------------------------------------------------


def test_a_card_is_asked_for_its_profiles_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD)
    bench.cards.report(())
    bench.learn()
    bench.learn()
    assert bench.driver.asked_profiles == 1


def test_a_retired_card_is_asked_for_its_profiles_and_keeps_its_mode(tmp_path: Path) -> None:
    bench = Bench(tmp_path, driver=Driver(is_on=False), owners=(owner(1, 0),))
    bench.cards.report(())
    bench.learn()
    assert bench.driver.asked_profiles == 1 and bench.driver.changes == []


def test_a_retired_card_of_unknown_profiles_does_not_enter_mig_mode(tmp_path: Path) -> None:
    MigRecord(str(tmp_path)).write({CARD: RecordedCard(owners=(owner(1, 0),))})
    bench = Bench(tmp_path, OTHER, driver=Driver(is_on=False))
    bench.cards.report(())
    bench.learn()
    assert bench.driver.asked_profiles == 1 and bench.driver.changes == []


@pytest.mark.parametrize(
    ("claims", "is_free", "is_reported", "is_switched"),
    [((), True, True, True), ((), False, True, False), ((), True, False, False), ((WHOLE_CARD,), True, True, False)],
    ids=["free", "in use", "before the first report", "claimed"],
)
def test_a_card_enters_mig_mode_to_be_asked_only_while_it_is_known_to_be_free(
    tmp_path: Path, claims: tuple[DeviceClaim, ...], *, is_free: bool, is_reported: bool, is_switched: bool
) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(is_on=False))
    if is_reported:
        bench.cards.report(claims)
    assert bench.learn(is_free=is_free) is is_switched
    assert bench.driver.changes == ([("mode", CARD, True)] if is_switched else [])


def test_a_listed_card_of_known_profiles_does_not_enter_mig_mode_without_a_task(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(is_on=False), owners=(owner(1, 0),))
    bench.cards.report(())
    bench.learn()
    assert bench.driver.changes == []


def test_a_task_may_turn_its_own_whole_card_into_an_instance_and_no_other_tasks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(is_on=False), owners=(owner(9, 6, "ended"),))
    bench.cards.report((claim("task", (0, 0), share=WHOLE),))
    bench.cards.prepare(bench.control, claim("task", SMALL, 0))
    assert bench.driver.changes == [("mode", CARD, True), ("create", "1g.10gb", 0)]
    other = Bench(tmp_path, CARD, driver=Driver(is_on=False))
    other.cards.report((WHOLE_CARD,))
    with pytest.raises(RecoverableError, match="still in use by another task as a whole"):
        other.cards.prepare(other.control, claim("task", SMALL, 0))
    assert other.driver.changes == []


# -- creating ----------------------------------------------------------------------------------------------------------


def test_a_task_keeps_its_instance_and_it_is_completed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(4, 2)), owners=(owner(4, 2, "task"),))
    bench.cards.report((claim("task", SMALL, 2),))
    ((_, prepared),) = bench.take(claim("task", SMALL, 2)).items()
    assert (prepared.number, prepared.is_new) == (4, False)
    assert bench.driver.changes == [("complete", 4)]


@pytest.mark.parametrize(
    ("present", "owned"),
    [
        (GpuInstance(4, HALF_ID, 0, 4), owner(4, 0, "task")),
        (small(4, 0), owner(4, 0, "ended")),
        (small(4, 0), owner(3, 0, "task")),
    ],
    ids=["another profile", "another owner", "another number"],
)
def test_what_is_not_the_tasks_own_instance_makes_way(
    tmp_path: Path, present: GpuInstance, owned: InstanceOwner
) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(present), owners=(owned,))
    bench.cards.report(())
    bench.take(claim("task", SMALL, 0))
    assert bench.driver.changes == [("destroy", 4), ("create", "1g.10gb", 0)]


def test_instances_of_other_tasks_do_not_make_way(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0), small(2, 4)), owners=(owner(1, 0), owner(2, 4, "next")))
    bench.cards.report((claim("running", SMALL, 0), claim("next", SMALL, 4)))
    with pytest.raises(RecoverableError, match="still in use by the MIG instance of another task"):
        bench.take(claim("task", HALF, 0))
    assert bench.driver.changes == []


def test_a_tasks_own_smaller_instance_makes_way_for_its_larger_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=(owner(1, 0, "task"),))
    bench.cards.report((claim("task", SMALL, 0),))
    bench.cards.prepare(bench.control, claim("task", HALF, 0))
    assert bench.driver.changes == [("destroy", 1), ("create", "3g.40gb", 0)]


def test_a_number_that_the_driver_gives_again_has_its_new_owner(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(), owners=(owner(1, 0, "ended"),))
    bench.cards.report(())
    bench.take(claim("task", SMALL, 0))
    recorded = MigRecord(str(tmp_path)).read()[CARD].owners
    assert [(each.number, each.task_name) for each in recorded] == [(1, "task")]


def test_instances_by_hand_for_one_task_are_none_of_the_plugins(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD)
    assert bench.take(by_hand("MIG-1", "MIG-2", share=MIG)) == {}
    assert bench.driver.changes == []


# -- whole cards -------------------------------------------------------------------------------------------------------


def test_a_whole_card_waits_for_instances_by_hand_on_a_listed_card_only(tmp_path: Path) -> None:
    for listed, is_refused in ((CARD, True), (OTHER, False)):
        bench = Bench(tmp_path / listed, listed, driver=Driver(small(5, 2)))
        bench.cards.report((by_hand("MIG-1"),))
        bench.cards.see({"MIG-1": (CARD, 5)})
        if is_refused:
            with pytest.raises(RecoverableError, match="still in use"):
                bench.take(WHOLE_CARD)
        else:
            assert bench.take(WHOLE_CARD) == {}
        assert bench.driver.changes == []


@pytest.mark.parametrize(
    ("present", "owned"),
    [(small(3, 0), owner(3, 0, "whole")), (GpuInstance(3, ALL_ID, 0, 8), owner(3, 0, "ended"))],
    ids=["its own smaller one", "the largest of another task"],
)
def test_only_its_own_largest_instance_stands_for_a_tasks_card(
    tmp_path: Path, present: GpuInstance, owned: InstanceOwner
) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(present), owners=(owned,))
    bench.cards.report(())
    assert bench.take(WHOLE_CARD) == {}
    assert bench.driver.changes == [("destroy", 3), ("mode", CARD, False)]


def test_a_card_that_cannot_leave_mig_mode_stays_in_it_and_keeps_its_instance_of_the_whole(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, owners=(owner(9, 6, "ended"),))
    bench.driver.leaves_by_reset = True
    bench.cards.report(())
    ((card, prepared),) = bench.take(WHOLE_CARD).items()
    assert (card, prepared.is_new) == (CARD, True)
    assert bench.driver.changes == [("mode", CARD, False), ("mode", CARD, True), ("create", "7g.80gb", 0)]
    bench.cards.report((WHOLE_CARD,))
    bench.cards.keep(bench.control)
    assert [each.profile_id for each in bench.driver.present] == [ALL_ID]
    assert bench.take(WHOLE_CARD)[CARD].is_new is False


# -- what stays --------------------------------------------------------------------------------------------------------


def test_before_the_first_report_other_tasks_instances_are_not_destroyed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=(owner(1, 0),))
    assert not bench.cards.keep(bench.control)
    with pytest.raises(RecoverableError, match="still in use"):
        bench.take(claim("task", SMALL, 0))
    stranger = Bench(tmp_path, CARD, driver=Driver(small(2, 0)), owners=(owner(1, 0),))
    with pytest.raises(RecoverableError, match="still in use"):
        stranger.take(claim("task", SMALL, 0))
    assert bench.driver.changes == stranger.driver.changes == []
    own = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=(owner(1, 0),))
    own.take(claim("running", HALF, 0))
    assert own.driver.changes == [("destroy", 1), ("create", "3g.40gb", 0)]


def test_an_instance_at_a_claimed_place_stays_while_profiles_are_not_known(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    MigRecord(str(folder)).write({CARD: RecordedCard(owners=(owner(1, 0), owner(2, 5, "ended")))})
    bench = Bench(folder, driver=Driver(small(1, 0), small(2, 5)))
    bench.cards.report((claim("running", SMALL, 0),))
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("destroy", 2)]


def test_an_owned_instance_is_not_kept_by_a_claim_on_one_by_hand(tmp_path: Path) -> None:
    bench = Bench(tmp_path, driver=Driver(small(1, 0)), owners=(owner(1, 0, "ended"),))
    bench.cards.report((by_hand("MIG-unlisted"),))
    assert bench.cards.keep(bench.control)
    assert ("destroy", 1) in bench.driver.changes


def test_the_owner_of_an_instance_is_not_replaced_by_a_claim_on_its_place(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=(owner(1, 0, "ended"),))
    bench.cards.report((claim("task", SMALL, 0),))
    bench.cards.keep(bench.control)
    recorded = MigRecord(str(tmp_path)).read()[CARD].owners
    assert [each.task_name for each in recorded] == ["ended"]


def test_a_retired_card_is_given_back_once_and_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, driver=Driver(small(1, 0)), owners=(owner(1, 0),))
    bench.cards.report((claim("running", SMALL, 0),))
    bench.cards.keep(bench.control)
    assert bench.driver.changes == [], "a task still has an instance"
    verdict = bench.cards.verdict(CARD)
    assert verdict is not None and (verdict.severity, verdict.reason) == ("degraded", RETIRED)
    bench.cards.report(())
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("destroy", 1), ("mode", CARD, False)]
    assert not bench.cards.manages(CARD) and bench.cards.verdict(CARD) is None
    assert CARD not in MigRecord(str(tmp_path)).read()
    assert not bench.cards.keep(bench.control)
    assert len(bench.driver.changes) == 2


def test_a_retired_card_out_of_mig_mode_is_given_back_as_it_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, driver=Driver(is_on=False), owners=(owner(1, 0),))
    bench.cards.report(())
    bench.cards.keep(bench.control)
    assert bench.driver.changes == [] and not bench.cards.manages(CARD)


def is_forgotten(bench: Bench, folder: Path) -> bool:
    """Whether the first card is another tool's, now and after a restart."""
    has_say = bench.cards.is_used or bench.cards.manages(CARD) or bench.cards.verdict(CARD) is not None
    return not has_say and CARD not in MigRecord(str(folder)).read()


def test_instances_without_a_recorded_owner_stay_on_a_retired_card_and_it_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The operator took the card off the list and split it by hand before the agent started again."""
    caplog.set_level("INFO")
    bench = Bench(tmp_path, driver=Driver(small(7, 0), small(8, 3)), owners=())
    assert not bench.cards.keep(bench.control)
    assert bench.cards.manages(CARD), "before the first report any may be a task's"
    bench.cards.report(())
    for _ in range(2):
        bench.learn()
        assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == [] and is_forgotten(bench, tmp_path)
    assert caplog.text.count("leaving MIG mode and instances of a card") == 1


@pytest.mark.parametrize("claims", [(), (by_hand("MIG-unlisted"),), (by_hand("MIG-2"),)])
def test_of_a_retired_cards_instances_those_of_ended_tasks_are_destroyed_and_others_stay(
    tmp_path: Path, claims: tuple[DeviceClaim, ...]
) -> None:
    bench = Bench(tmp_path, driver=Driver(small(1, 0), small(2, 5)), owners=(owner(1, 0, "ended"),))
    bench.cards.report(claims)
    bench.cards.see({"MIG-2": (CARD, 2)})
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("destroy", 1)] and is_forgotten(bench, tmp_path)


def test_a_retired_card_with_instances_of_others_is_forgotten_after_its_last_task(tmp_path: Path) -> None:
    bench = Bench(tmp_path, driver=Driver(small(1, 0), small(2, 5)), owners=(owner(1, 0),))
    bench.cards.report((claim("running", SMALL, 0),))
    assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == [] and bench.cards.manages(CARD)
    bench.cards.report(())
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("destroy", 1)] and is_forgotten(bench, tmp_path)


def test_a_retired_card_keeps_its_mode_while_a_task_has_an_instance_by_hand_of_it(tmp_path: Path) -> None:
    """The driver names no GPU instance at this moment, and named the task's one at the last look."""
    bench = Bench(tmp_path, owners=())
    bench.cards.report((by_hand("MIG-1"),))
    bench.cards.see({"MIG-1": (CARD, 5)})
    assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == []


def test_a_task_with_a_whole_retired_card_destroys_no_instance_without_a_recorded_owner(tmp_path: Path) -> None:
    """The plan is older than the end of the listing; the look has not come yet."""
    bench = Bench(tmp_path, driver=Driver(small(7, 0)), owners=())
    bench.cards.report(())
    with pytest.raises(DriverError, match="MIG instances that the plugin did not create"):
        bench.take(WHOLE_CARD)
    assert bench.driver.changes == []


def test_a_retired_card_whose_mode_cannot_change_says_why_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A monitoring program has the card open."""
    bench = Bench(tmp_path, owners=())
    bench.driver.refusal = "turning MIG mode off failed: In use by another client"
    bench.cards.report(())
    for _ in range(2):
        assert not bench.cards.keep(bench.control)
        verdict = bench.cards.verdict(CARD)
        assert verdict is not None and verdict.severity == "degraded" and bench.driver.refusal in verdict.reason
        assert bench.cards.manages(CARD) and CARD in MigRecord(str(tmp_path)).read()
    assert caplog.text.count(bench.driver.refusal) == 1
    bench.driver.refusal = ""
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("mode", CARD, False)] and is_forgotten(bench, tmp_path)


def test_a_retired_card_that_leaves_mig_mode_only_by_a_reset_is_asked_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, owners=())
    bench.driver.leaves_by_reset = True
    bench.cards.report(())
    for _ in range(2):
        assert not bench.cards.keep(bench.control)
    assert bench.driver.changes == [("mode", CARD, False)] and is_forgotten(bench, tmp_path)


def test_a_retired_card_with_an_instance_that_cannot_be_destroyed_says_why(tmp_path: Path) -> None:
    bench = Bench(tmp_path, driver=Driver(small(1, 0)), owners=(owner(1, 0, "ended"),))
    bench.driver.refusal = "destroying MIG instance 1 failed: a process still uses it"
    bench.cards.report(())
    assert not bench.cards.keep(bench.control)
    verdict = bench.cards.verdict(CARD)
    assert verdict is not None and verdict.severity == "degraded" and bench.driver.refusal in verdict.reason
    bench.driver.refusal = ""
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("destroy", 1), ("mode", CARD, False)] and is_forgotten(bench, tmp_path)


def test_an_instance_without_an_owner_on_a_retired_card_is_given_to_no_task_and_outlives_all(tmp_path: Path) -> None:
    """It may be another tool's since the card left the list."""
    bench = Bench(tmp_path, driver=Driver(small(1, 0)), owners=(owner(9, 6, "ended"),))
    bench.cards.report((claim("running", SMALL, 0),))
    bench.cards.keep(bench.control)
    with pytest.raises(DriverError, match="may not split"):
        bench.take(claim("running", SMALL, 0))
    bench.cards.report(())
    bench.cards.keep(bench.control)
    assert bench.driver.changes == [] and is_forgotten(bench, tmp_path)


def test_the_owner_of_an_instance_on_a_listed_card_is_found_by_the_first_report(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=())
    bench.cards.report((claim("running", SMALL, 0),))
    bench.cards.keep(bench.control)
    ((_, prepared),) = bench.take(claim("running", SMALL, 0)).items()
    assert (prepared.number, prepared.is_new) == (1, False)


def test_a_later_report_finds_no_owner_of_an_instance(tmp_path: Path) -> None:
    """A task that is new in it would get the instance of a task that has ended."""
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=())
    bench.cards.report(())
    bench.driver.refusal = "a process still uses it"
    bench.cards.keep(bench.control)
    bench.cards.report((claim("new", SMALL, 0),))
    bench.driver.refusal = ""
    bench.cards.keep(bench.control)
    ((_, prepared),) = bench.take(claim("new", SMALL, 0)).items()
    assert prepared.is_new and bench.driver.changes == [("destroy", 1), ("create", "1g.10gb", 0)]


def test_a_card_whose_instance_cannot_be_destroyed_is_suspect(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=(owner(1, 0),))
    bench.driver.refusal = "a process still uses it"
    bench.cards.report(())
    bench.cards.keep(bench.control)
    verdict = bench.cards.verdict(CARD)
    assert verdict is not None and (verdict.severity, verdict.reason) == ("suspect", bench.driver.refusal)
    bench.driver.refusal = ""
    bench.cards.keep(bench.control)
    assert bench.cards.verdict(CARD) is None


def test_a_task_that_owns_an_instance_is_given_no_other_by_the_first_report(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 6), small(2, 0)), owners=(owner(1, 6),))
    bench.cards.report((claim("running", SMALL, 0),))
    bench.cards.keep(bench.control)
    ((_, prepared),) = bench.take(claim("running", SMALL, 0)).items()
    assert prepared.is_new and ("destroy", 2) in bench.driver.changes


def test_a_listed_card_is_not_given_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CARD, driver=Driver(small(1, 0)), owners=(owner(1, 0),))
    bench.cards.report(())
    assert bench.cards.keep(bench.control)
    assert bench.driver.changes == [("destroy", 1)] and bench.cards.manages(CARD)
