"""The options that say which streams are read or written, and what the rows of a read are."""

from __future__ import annotations

from pyspark_redis_streams.option import EVERY_USE, EVERY_VIEW, Alias, Option, View
from pyspark_redis_streams.option_kinds import NAMES, TEXT, choice

SELECTION = (
    Option(
        name="stream",
        kind=TEXT,
        default=None,
        uses=EVERY_USE,
        views=EVERY_VIEW,
        sentence='The stream; `load("orders")` and `save("orders")` say the same.',
    ),
    Option(
        name="streams",
        kind=NAMES,
        default=None,
        views=EVERY_VIEW,
        sentence="Several streams: `a,b` or a JSON list.",
        kafka=Alias(name="subscribe", kind=NAMES),
    ),
    Option(
        name="streamPattern",
        kind=TEXT,
        default=None,
        views=EVERY_VIEW,
        sentence="Streams whose name fits a glob, as in `SCAN MATCH`.",
    ),
    Option(
        name="path",
        kind=TEXT,
        default=None,
        uses=EVERY_USE,
        views=EVERY_VIEW,
        sentence="The same as `stream`: this is how Spark hands on what `load` was given.",
    ),
    Option(
        name="paths",
        kind=NAMES,
        default=None,
        views=EVERY_VIEW,
        sentence='The same as `streams`: this is how Spark hands on `load(["a", "b"])`.',
    ),
    Option(
        name="view",
        kind=choice(*View),
        default="entries",
        views=EVERY_VIEW,
        sentence="What the rows are; a streaming read has `entries` only.",
    ),
    Option(
        name="missingStream",
        kind=choice("fail", "empty"),
        default="fail",
        views=EVERY_VIEW,
        sentence="Whether a stream that does not exist is an error or has no entries.",
    ),
)
