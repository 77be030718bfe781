"""What one sweep tells people: each thing once, and nothing that did not happen."""

from pelops.controller.findings import Findings
from pelops.domain.entry_id import EntryId
from pelops.domain.recovery import Trigger


def test_a_sweep_that_did_nothing_tells_nothing() -> None:
    assert Findings(trigger=Trigger.SWEEP).happenings() == []


def test_bodies_that_are_gone_are_told_while_a_worker_still_holds_the_entries() -> None:
    """C2: a worker that claims would drop such entries without a word."""
    findings = Findings(trigger=Trigger.SWEEP, dangling=2, lowest_dangling=EntryId(5, 1))
    (told,) = findings.happenings()
    assert (told.type, told.reason, told.occurrence) == ("Warning", "PayloadGone", "5-1")
    assert "5-1" in told.note


def test_the_same_bodies_are_told_once() -> None:
    one, again = (
        Findings(trigger=Trigger.SWEEP, dangling=count, lowest_dangling=EntryId(5, 1))
        for count in (1, 7)
    )
    assert one.happenings() == again.happenings()


def test_consumers_that_were_removed_are_told_in_one_event() -> None:
    findings = Findings(trigger=Trigger.SWEEP, removed=[f"pod-{n}" for n in range(7)])
    (told,) = findings.happenings()
    assert "pod-0, pod-1, pod-2, pod-3, pod-4 and 2 more" in told.note
