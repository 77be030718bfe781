"""Names of streams, groups and consumers that no file system and no page expects."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.pipeline.report.places import group_path, report_path, slug
from pelops.pipeline.settings import AuditTarget
from tests.pipeline.audited import Audited

ODD = "\U0001f600 new\nline\t%41 : {} / .. \\ * ? [a], ' \" <b>é</b> & $x"
LONG = "é%" * 100  # 300 bytes
AT_MOST = 255 - len("group=")

names = st.text(st.characters(codec="utf-8"), max_size=300)


@given(names, names)
def test_names_are_alike_as_directories_only_when_they_are_alike(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)
    assert len(slug(one)) <= AT_MOST
    assert slug(one).isascii() and not {"/", ":", "*", "\\"} & set(slug(one))
    assert slug(one)[0] not in "._"


OWN = ["..", ".", "", "_x", "a.json", "audit.html", "c.unfinished", "x" * 300]


@pytest.mark.parametrize("name", OWN)
def test_no_name_is_that_of_another_file_of_the_archive(name: str) -> None:
    reported = slug(name)
    assert reported and reported != name
    assert not reported.endswith((".json", ".html", ".unfinished"))


@pytest.mark.parametrize("name", ["report", "statuses", "audit.html", "audit.json", ""])
def test_a_stream_of_any_name_stays_out_of_the_reports_of_others(name: str) -> None:
    of_stream = Path(report_path(name))
    assert of_stream.parent == Path(report_path())
    assert of_stream.name not in {"audit.html", "audit.json"}
    of_group = Path(group_path("orders", name))
    assert of_group.parent == Path(report_path("orders"))
    assert of_group.name not in {"audit.html", "audit.json"}


def test_a_long_name_shows_its_beginning_and_is_still_its_own() -> None:
    one, other = slug(LONG + "1"), slug(LONG + "2")
    assert one != other
    assert one[:100] == other[:100] == slug(LONG)[:100]


def test_names_of_any_characters_are_audited_and_nothing_leaves_the_archive(
    audited: Audited, tmp_path: Path
) -> None:
    targets = [
        AuditTarget(stream=f"{audited.prefix}{ODD}", group=ODD),
        AuditTarget(stream=f"{audited.prefix}{LONG}", group=LONG),
        # As directories beside each other, one of these would be a file of the other.
        *(AuditTarget(stream=audited.stream, group=group) for group in ("..", "a", "a.json")),
    ]
    for target in targets:
        if not audited.client.exists(target.stream):
            for number in range(5):
                audited.client.xadd(target.stream, {"number": number})
        audited.client.xgroup_create(target.stream, target.group, id="0")
        audited.client.xreadgroup(target.group, ODD, {target.stream: ">"}, count=3)
    before = set(tmp_path.iterdir())
    settings = {"targets": tuple(targets), "name": "shop/nightly"}
    summaries = audited.audit(**settings)
    assert sorted((one.stream, one.group) for one in summaries) == sorted(
        (one.stream, one.group) for one in targets
    )
    for summary in summaries:
        assert audited.counts(summary) == {"in_flight": 3, "undelivered": 2}
    page = audited.write_report(targets=tuple(targets[:2])).read_text()
    assert "<b>é</b>" not in page
    assert "&lt;b&gt;é&lt;/b&gt;" in page
    assert set(tmp_path.iterdir()) - before == {audited.archive}
