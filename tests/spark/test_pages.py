"""Pages of a range: nothing is missed in silence, whatever happens to the stream meanwhile."""

from collections.abc import Callable, Iterator

import pytest

from pelops.redis_core import EntryId, parse_entry_id
from pyspark_redis_streams.batch.pages import EntryRange, PageLimits, PageReader, PageSizer
from pyspark_redis_streams.errors import DataLoss, ServerUnavailable
from pyspark_redis_streams.options.option import Use
from pyspark_redis_streams.options.parsed import parse_read_options
from pyspark_redis_streams.redis.server_connections import ServerConnections
from tests.redis_fixtures import RunRedis
from tests.spark.streams import FIRST_MS, Streams


@pytest.fixture
def connections(streams: Streams) -> Iterator[ServerConnections]:
    with open_adapter(streams) as connections:
        yield connections


def open_adapter(streams: Streams) -> ServerConnections:
    return ServerConnections(
        parse_read_options(streams.options | {"stream": "any"}, Use.READ).server
    )


def read(
    connections: ServerConnections, streams: Streams, *,
    page_size: int = 10, keeps_last: bool = True, fails: bool = True,
    until: EntryId | None = None, rate: int | None = None,
) -> Iterator[list[str]]:  # fmt: skip
    ids = streams.ids()
    wanted = EntryRange(
        stream=streams.name(),
        first=parse_entry_id(ids[0]),
        last=until or parse_entry_id(ids[-1]),
        keeps_last=keeps_last,
    )
    pace = PageLimits(page_size=page_size, entries_per_second=rate, fail_on_data_loss=fails)
    for page in PageReader(connections, wanted, pace).pages():
        yield [entry[0].decode() for entry in page]


def flat(pages: Iterator[list[str]]) -> list[str]:
    return [entry_id for page in pages for entry_id in page]


@pytest.mark.parametrize("page_size", [1, 2, 3, 10, 24, 25, 26, 100])
@pytest.mark.parametrize("keeps_last", [True, False])
@pytest.mark.parametrize("number", [1, 2, 25, 200])
def test_pages_hold_each_entry_once(
    connections: ServerConnections, streams: Streams, page_size: int, keeps_last: bool, number: int
) -> None:
    streams.fill(number)
    found = flat(read(connections, streams, page_size=page_size, keeps_last=keeps_last))
    assert found == (streams.ids() if keeps_last else streams.ids()[:-1])


@pytest.mark.parametrize(
    ("entries", "most"),
    [
        ([{"a": "x" * 400_000}] * 100, 3),
        ([{f"field {number}": "1" for number in range(500)}] * 200, 20),
    ],
    ids=["large", "many fields"],
)
def test_large_entries_come_in_small_pages(
    connections: ServerConnections, streams: Streams, entries: list[dict[str, str]], most: int
) -> None:
    streams.add(*entries)
    sizes = [len(page) for page in read(connections, streams, page_size=1000)]
    assert sum(sizes) == len(entries)
    assert max(sizes[1:]) <= most


def test_entries_added_behind_the_range_are_not_read(
    connections: ServerConnections, streams: Streams
) -> None:
    streams.fill(50)
    before = streams.ids()
    pages = read(connections, streams)
    first = next(pages)
    streams.fill(50, first_ms=FIRST_MS + 1000)
    assert first + flat(pages) == before


def trim_to_five(streams: Streams) -> None:
    streams.client.xtrim(streams.name(), maxlen=5, approximate=False)


def create_again(streams: Streams) -> None:
    streams.client.delete(streams.name())
    streams.fill(5)


def lose_the_tail(streams: Streams) -> None:
    """A replica that had 30 of 50 entries became master, and producers continued."""
    streams.client.delete(streams.name())
    streams.fill(30)
    streams.fill(50, first_ms=FIRST_MS + 1000)


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (trim_to_five, r"lost entries from .* it was trimmed"),
        (lambda one: one.run("DEL", one.name()), "no longer exists: it was deleted or flushed"),
        (lambda one: one.run("UNLINK", one.name()), "no longer exists: it was deleted or flushed"),
        (create_again, "went back"),
        (lose_the_tail, "a failover lost it"),
    ],
    ids=["trimmed", "deleted", "unlinked", "created again", "failover"],
)
def test_entries_that_are_lost_between_pages_are_data_loss(
    connections: ServerConnections,
    streams: Streams,
    lose: Callable[[Streams], None],
    message: str,
) -> None:
    streams.fill(50)
    pages = read(connections, streams)
    next(pages)
    lose(streams)
    with pytest.raises(DataLoss, match=message):
        flat(pages)


def test_trimming_behind_the_reader_is_no_loss(
    connections: ServerConnections, streams: Streams
) -> None:
    streams.fill(50)
    before = streams.ids()
    pages = read(connections, streams)
    found = next(pages) + next(pages)
    streams.client.xtrim(streams.name(), maxlen=35, approximate=False)
    assert found + flat(pages) == before


def test_deleting_single_entries_is_no_loss(
    connections: ServerConnections, streams: Streams
) -> None:
    streams.fill(50)
    before = streams.ids()
    pages = read(connections, streams)
    found = next(pages)
    deleted = [before[30], *before[45:50]]
    streams.client.xdel(streams.name(), *deleted)
    assert found + flat(pages) == [entry_id for entry_id in before if entry_id not in deleted]


def test_what_is_left_is_read_when_loss_is_no_error(
    connections: ServerConnections, streams: Streams
) -> None:
    streams.fill(50)
    before = streams.ids()
    pages = read(connections, streams, fails=False)
    found = next(pages)
    trim_to_five(streams)
    found += flat(pages)
    assert found[:10] == before[:10]
    assert found[-5:] == before[-5:]
    assert len(found) == len(set(found))


def test_a_dropped_connection_is_no_matter(
    connections: ServerConnections, streams: Streams
) -> None:
    streams.fill(50)
    pages = read(connections, streams)
    found = []
    for page in pages:
        found += page
        streams.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert found == streams.ids()


def test_a_server_that_restarts_is_awaited(run_redis: RunRedis) -> None:
    with Streams(run_redis(), "") as streams, open_adapter(streams) as connections:
        streams.fill(50)
        before = streams.ids()
        pages = read(connections, streams)
        found = next(pages)
        streams.run("SAVE")
        streams.servers.master().restart()
        assert found + flat(pages) == before


def test_a_server_that_stays_away_is_named(run_redis: RunRedis) -> None:
    servers = run_redis()
    streams = Streams(servers, "")
    with open_adapter(streams) as connections:
        streams.fill(50)
        pages = read(connections, streams)
        next(pages)
        servers.master().kill()
        with pytest.raises(ServerUnavailable, match=r"XRANGE orders at .* tried 4 times"):
            flat(pages)


def test_an_entry_without_a_body_teaches_nothing_of_sizes() -> None:
    """A server that is none may send it."""
    sizer = PageSizer(1000)
    sizer.observe([[b"1-1", None], [b"1-2", [b"f", b"v"]]])
    assert sizer.count == 1000
