"""Texts that the driver puts together row by row, as Spark does."""

from __future__ import annotations

import pyarrow as pa

from pelops.pipeline.engine.arrow import functions as F  # noqa: N812
from pelops.pipeline.engine.arrow.frame import Frame


def test_a_row_of_nulls_alone_is_an_empty_text_and_stays_a_row() -> None:
    rows = pa.table({"ms": pa.array([1, None, 3, None]), "seq": pa.array([0, None, None, 4])})
    reported = Frame.of(rows).select(F.concat_ws("-", "ms", "seq").alias("id"))
    assert reported.table["id"].to_pylist() == ["1-0", "", "3", "4"]
