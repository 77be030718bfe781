"""Descriptions of fields and help of metrics: short, and begun by what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.metrics import MetricWrapperBase

from pelops import metrics
from pelops.api.crd import build_root_schema
from pelops.api.schema.kind_definitions import KINDS

MOST_SENTENCES: Final = 3
_SENTENCE: Final = re.compile(r"(?<=\.) (?=[A-Z])")
# `Requeue: copies it ...` explains one value of an enum, `Default: 60 s.` is written by the schema.
_VALUE: Final = re.compile(r"(Default|[A-Z][A-Za-z]+): ")
_BEGINNINGS: Final = (
    "Number of ",
    "Seconds ",
    "Time ",
    "Unix time ",
    "Duration of ",
    "Ratio ",
    "1 ",
    "Always 1",
)
# A description begins with a noun or a verb, not with an article or a question word.
_QUESTION: Final = re.compile(r"(The|A|An|When|Whether|How|What|Who|Where|Which|By)\b")
_ADVICE: Final = re.compile(r"\b(should|must|set|check|take|use) ", re.IGNORECASE)


def _fields(schema: dict[str, Any], at: str) -> Iterator[tuple[str, str]]:
    for name, child in schema.get("properties", {}).items():
        path = f"{at}.{name}".lstrip(".")
        if at or name in {"spec", "status"}:
            yield path, child["description"]
        yield from _fields(child, path)
    if "items" in schema:
        yield from _fields(schema["items"], f"{at}[]")


FIELDS: Final = [
    (f"{kind.kind}.{path}", text)
    for kind in KINDS
    for path, text in _fields(build_root_schema(kind), "")
]


def test_every_field_is_described_in_at_most_three_sentences() -> None:
    assert len(FIELDS) > 150
    assert [one for one in FIELDS if not _is_short(*one)] == []


def _is_short(path: str, text: str) -> bool:
    sentences = [one for one in _SENTENCE.split(text) if not _VALUE.match(one)]
    is_root = path.count(".") == 1
    return (
        len(sentences) <= MOST_SENTENCES
        and text.endswith(".")
        and (is_root or _QUESTION.match(text) is None)
    )


def test_every_metric_begins_with_what_it_measures_and_gives_no_advice() -> None:
    ours = [family for collector in _collectors() for family in collector.describe()]
    assert len(ours) > 50
    assert [(one.name, one.documentation) for one in ours if not _is_help(one.documentation)] == []


def _collectors() -> Iterator[metrics.GroupSeries | metrics.ConditionMetric | MetricWrapperBase]:
    for value in vars(metrics).values():
        for one in value.values() if isinstance(value, dict) else (value,):
            if isinstance(one, metrics.GroupSeries | metrics.ConditionMetric | MetricWrapperBase):
                yield one


def _is_help(text: str) -> bool:
    is_one = text.endswith(".") and len(_SENTENCE.split(text)) == 1
    return is_one and text.startswith(_BEGINNINGS) and _ADVICE.search(text) is None
