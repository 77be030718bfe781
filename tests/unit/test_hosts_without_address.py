"""A host that no name server can look up, which a Sentinel may name, is a server that is away."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructType

from pyspark_redis_streams.errors import ServerUnavailable
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import parse_read_options
from pyspark_redis_streams.views.entries import EntriesReader


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "a..example"])
def test_a_name_of_the_wrong_form_cannot_be_resolved(host: str) -> None:
    options = {"host": host, "stream": "orders", "view": "entries", "numRetries": "0"}
    reader = EntriesReader(
        StructType().add("id", StringType()), parse_read_options(options, Use.READ)
    )
    with pytest.raises(ServerUnavailable, match="its host name cannot be resolved"):
        reader.partitions()
