"""When a run is due, by the rules of CronJobs."""

from datetime import UTC, datetime, timedelta

import pytest

from pelops.errors import InvalidSpec
from pelops.policy.audit.schedule import find_due, parse_schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "minute", "is_due"),
    [
        ("* * * * *", "2026-05-04T03:02", True),
        ("*/15 * * * *", "2026-05-04T03:30", True),
        ("*/15 * * * *", "2026-05-04T03:31", False),
        ("5/20 * * * *", "2026-05-04T03:45", True),
        ("0 1-3,7 * * *", "2026-05-04T07:00", True),
        ("0 1-3,7 * * *", "2026-05-04T04:00", False),
        ("0 3 * MAY mon-fri", "2026-05-04T03:00", True),  # a Monday
        ("0 3 * jun MON", "2026-05-04T03:00", False),
        ("0 3 1 * 1", "2026-05-04T03:00", True),  # day or weekday, when both are named
        ("0 3 4 * 0", "2026-05-04T03:00", True),
        ("0 3 5 * 0", "2026-05-04T03:00", False),
        ("0 3 */2 * 1", "2026-05-04T03:00", True),  # a star with a step restricts the days
        ("0 3 */2 * 1", "2026-05-05T03:00", True),
        ("0 3 */2 * 1", "2026-05-06T03:00", False),
        ("0 3 */1 * 1", "2026-05-05T03:00", False),  # every day: only the weekday restricts
        ("0 3 2,* * 1", "2026-05-05T03:00", False),
        ("0 3 4-31/2 * ?", "2026-05-05T03:00", False),
        ("@hourly", "2026-05-04T03:00", True),
        ("@weekly", "2026-05-03T00:00", True),  # a Sunday
        ("@yearly", "2026-01-01T00:00", True),
    ],
)
def test_a_schedule_is_due_in_its_minutes(schedule: str, minute: str, is_due: bool) -> None:
    assert parse_schedule(schedule).is_due(at(minute)) is is_due


def test_a_time_zone_moves_the_hours_with_its_summer() -> None:
    schedule = parse_schedule("0 3 * * *", "Europe/Berlin")
    assert schedule.is_due(at("2026-05-04T01:00")) and schedule.is_due(at("2026-01-04T02:00"))


def test_what_was_missed_is_due_once_and_only_of_late() -> None:
    schedule = parse_schedule("*/5 * * * *")
    now = at("2026-05-04T03:12") + timedelta(seconds=30)
    assert find_due(schedule, after=now - timedelta(minutes=30), now=now) == at("2026-05-04T03:10")
    assert find_due(schedule, after=at("2026-05-04T03:10"), now=now) is None
    assert find_due(schedule, after=now, now=now) is None


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "60 * * * *", "5-1 * * * *", "* * 0 * *", "*/0 * * * *", "a * * * *"],
)
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(InvalidSpec, match="schedule"):
        parse_schedule(schedule)


def test_an_unknown_zone_is_refused_by_name() -> None:
    with pytest.raises(InvalidSpec, match="Nowhere/There"):
        parse_schedule("@daily", "Nowhere/There")
