"""Many consumers, many groups, many streams: each has its part, and none is forgotten."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pelops.domain.naming import audit_index_key
from pelops.pipeline.run import glob_expression
from tests.pipeline.audited import GROUP, Audited

CONSUMERS, GROUPS = 3000, 500
NAME = "shop/nightly"


@pytest.mark.full
def test_thousands_of_consumers_and_hundreds_of_groups_are_looked_at(audited: Audited) -> None:
    ids = audited.add(CONSUMERS + 100)
    audited.create_group()
    many = audited.client.pipeline(transaction=False)
    for number in range(CONSUMERS):
        many.xreadgroup(GROUP, f"worker-{number}", {audited.stream: ">"}, count=1)
    for number in range(100):
        many.xgroup_createconsumer(audited.stream, GROUP, f"idle-{number}")
    for number in range(GROUPS):
        many.xgroup_create(audited.stream, f"group-{number}", id="0" if number % 2 else "$")
    # The name is not UTF-8, so no audit of this group can be requested.
    many.xgroup_create(audited.stream, b"\xff\xfe", id="0")
    many.execute()
    audited.acknowledge(*ids[:1000])
    some = tuple(audited.target(group) for group in (GROUP, "group-0", "group-499"))
    ours, at_end, at_start = audited.audit(targets=some)
    assert audited.counts(ours) == {
        "acknowledged_inferred": 1000, "in_flight": 2000, "undelivered": 100,
    }  # fmt: skip
    assert len({row["consumer"] for row in audited.rows("exceptions")} - {None}) == 2000
    assert audited.counts(at_start) == {"undelivered": CONSUMERS + 100}
    assert sum(audited.counts(at_end).values()) == CONSUMERS + 100


@pytest.mark.full
def test_a_pattern_records_the_groups_of_all_its_streams(audited: Audited) -> None:
    streams = [f"{audited.prefix}shard-{number}" for number in range(2)]
    for stream in streams:
        audited.client.xadd(stream, {"number": 1})
        audited.client.xgroup_create(stream, GROUP, id="0")
    audited.client.xgroup_create(streams[0], b"\xff\xfe", id="0")
    pattern = audited.prefix.replace("{", "\\{") + "shard-*"
    summaries = audited.audit(targets=(), pattern=pattern, name=NAME + audited.prefix[6:12])
    assert sorted(one.stream for one in summaries) == streams
    key = audit_index_key(NAME + audited.prefix[6:12])
    found: Any = json.loads(audited.client.hget(key, "groups"))
    audited.client.delete(key)
    assert sorted(found) == [[stream, GROUP] for stream in streams]
    _go(audited, streams, pattern)


def _go(audited: Audited, streams: list[str], pattern: str) -> None:
    """A stream and a group that disappear are reported once, and left out afterwards."""
    audited.client.delete(streams[0])
    audited.client.xgroup_create(streams[1], "other", id="0")
    reported = audited.audit(targets=(), pattern=pattern)
    kinds = {(one.stream, one.group): {f.kind for f in one.findings} for one in reported}
    assert {"epoch-break", "stream-missing"} <= kinds[streams[0], GROUP]
    assert kinds[streams[1], GROUP] == set()
    audited.client.xgroup_destroy(streams[1], GROUP)
    reported = audited.audit(targets=(), pattern=pattern)
    assert [(one.stream, one.group) for one in reported] == [
        (streams[0], GROUP),
        (streams[1], "other"),
        (streams[1], GROUP),
    ]
    assert reported[-1].findings[0].kind == "group-missing"
    reported = audited.audit(targets=(), pattern=pattern)
    assert {one.stream for one in reported} == {streams[1]}


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("*", ["", "a", "a\nb"], []),
        ("h?llo", ["hello"], ["hllo", "heello"]),
        ("h[ae-g]llo", ["hallo", "hfllo"], ["hillo", "h-llo"]),
        ("h[^e]llo", ["hallo"], ["hello"]),
        ("\\{a\\}:*", ["{a}:b"], ["a:b", "\\{a}:b"]),
        ("a.b+*", ["a.b+", "a.b+["], ["axb+["]),
        ("a[b", ["ab"], ["a[b"]),
        ("a[^]b", ["axb"], ["ab"]),
        ("a[\\]x]b", ["a]b", "axb"], ["ayb"]),
        ("a[", [], ["a["]),
        ("a\\", ["a\\"], ["a"]),
    ],
)
def test_a_pattern_means_what_it_means_to_the_server(
    audited: Audited, pattern: str, fitting: list[str], others: list[str]
) -> None:
    found = glob_expression(pattern)
    for name in [*fitting, *others]:
        assert bool(found.fullmatch(name)) == (name in fitting)
        if name:
            audited.client.set(f"{audited.prefix}{name}", "1")
    escaped = audited.prefix.replace("{", "\\{") + pattern
    served = {key.decode().removeprefix(audited.prefix) for key in audited.client.keys(escaped)}
    assert served == {name for name in fitting if name}
