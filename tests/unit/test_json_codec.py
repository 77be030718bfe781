"""Records as JSON: strict reading, errors with the path of the field, and hostile documents."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

import pytest

from pelops.domain.records.json_codec import Codec, Count, Id, Ratio, ValueLimits, names
from pelops.domain.records.state import (
    GroupState,
    ScanReport,
    parse_report,
    parse_state,
    render_report,
)
from pelops.domain.recovery import PodRecord, parse_pod_record, render_pod_record
from pelops.errors import InvalidSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    count: Count
    ratio: Ratio | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    parts: Annotated[tuple[Part, ...], ValueLimits(fail_fast=True)] = ()
    by_name: dict[str, Part] | None = None
    entry_id: Id | None = None
    is_new: bool = False
    __pydantic_config__: ClassVar[Any] = names(entry_id="id", is_new="new")


CODEC: Final = Codec(Whole, "the record", limit=1024 * 1024)
HOSTILE: Final = ("NaN", "1e400", "-Infinity", "true", '"1"', "[]", "{}", "-1", "1.5", "9" * 5000)
DEEP: Final = "[" * 100_000


def test_a_record_is_read_as_it_was_written() -> None:
    text = '{"parts": [{"count": 1, "ratio": 0.5}], "by_name": null, "id": "5-1", "new": true}'
    assert CODEC.render(CODEC.parse(text)) == text
    assert CODEC.render(Whole(), has_defaults=False) == "{}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"parts": [{"count": 1}, {"count": "1"}]}', r"parts\[1\].count: must be a valid integer"),
        ('{"parts": [{"count": 1, "ratio": "1"}]}', r"parts\[0\].ratio: must be a valid number"),
        ('{"parts": {"0": {"count": 1}}}', "parts: must be a valid array"),
        ('{"by_name": {"a": {}}}', "by_name.a.count: is missing"),
        ('{"by_name": {"a b": {}}}', r"by_name\['a b'\].count: is missing"),
        ('{"new": 1}', "new: must be a valid boolean"),
        ('{"id": "1"}', "id: must match pattern"),
        ("[]", "must be an object"),
        ('{"parts": [{"count": 1}', "is not valid JSON: EOF while parsing a list"),
    ],
)
def test_an_error_has_the_path_of_the_field(text: str, message: str) -> None:
    with pytest.raises(InvalidSpec, match=f"^the record(: | ){message}"):
        CODEC.parse(text)


@pytest.mark.parametrize("value", [*HOSTILE, DEEP, r'"\ud800"'])
def test_a_count_of_a_stranger_is_refused(value: str) -> None:
    with pytest.raises(InvalidSpec, match=r"parts\[0\].count: must be|is not valid JSON"):
        CODEC.parse(f'{{"parts": [{{"count": {value}}}]}}')


def test_the_limit_is_in_bytes_and_precedes_the_parser() -> None:
    for text in ("é" * 600_000, ("é" * 600_000).encode(), "\ud800" * 600_000):
        with pytest.raises(InvalidSpec, match="the record is longer than 1048576 bytes"):
            CODEC.parse(text)


def test_a_large_document_of_faults_costs_little_and_is_not_repeated() -> None:
    for text in (f'{{"parts": [{"0," * 500_000}0]}}', f'{{"by_name": {{"{"x" * 10**6}": 1}}}}'):
        CODEC.parse("{}")
        tracemalloc.start()
        with pytest.raises(InvalidSpec) as raised:
            CODEC.parse(text)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(str(raised.value)) < 300
        assert peak < 64 * 1024 * 1024


def test_of_a_repeated_name_the_last_value_counts() -> None:
    assert CODEC.parse('{"new": 1, "new": true}') == Whole(is_new=True)


@pytest.mark.parametrize("value", [*HOSTILE, DEEP, '"\\ud800"'])
def test_a_damaged_report_of_a_scan_counts_as_never_written(value: str) -> None:
    for field in ("waiting", "unmatched", "stuck"):
        if (field, value) != ("unmatched", "[]"):
            text = f'{{"reason": "R", "{field}": {value}}}'
            assert parse_state({"sweep:report": text}) == GroupState()


def test_a_report_has_replacements_for_bytes_that_are_not_text() -> None:
    text = render_report(ScanReport(unmatched=("w-\udcff",), stuck=0))
    assert text == r'{"stuck": 0, "unmatched": ["w-\ufffd"]}'
    assert parse_report(text) == ScanReport(unmatched=("w-\ufffd",), stuck=0)


POD: Final = '{"uid":"u","name":"n","node":"m","grace_s":30.0,"namespace":"shop"}'


@pytest.mark.parametrize("value", ["NaN", "-1", '"1"', "true", "null", "[]", DEEP])
def test_a_damaged_record_of_a_pod_is_none(value: str) -> None:
    assert parse_pod_record(POD.replace("30.0", value)) is None


@pytest.mark.parametrize("text", [None, "", "[]", POD.replace('"u"', '""'), "x" * 100_000])
def test_a_record_of_no_pod_is_none(text: str | None) -> None:
    assert parse_pod_record(text) is None


def test_the_grace_period_of_a_recorded_pod_is_bounded() -> None:
    record = PodRecord(uid="u", name="n", node="m", grace_s=30.0, namespace="shop")
    assert render_pod_record(record) == POD
    assert parse_pod_record(POD) == record
    for value in ("1e400", "1e300"):
        read = parse_pod_record(POD.replace("30.0", value))
        assert read is not None and read.grace_s == 1e9


def test_records_are_imported_without_pydantic() -> None:
    program = (
        "import sys; sys.modules['pydantic'] = sys.modules['pydantic_core'] = None\n"
        "from pelops.domain import recovery\n"
        "from pelops.domain.records import audit, inspection, json_codec, redrive, state"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
