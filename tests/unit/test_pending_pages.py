"""Pages of XPENDING that a server gives, and that a hostile one never ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from pelops.errors import InvalidReply
from pelops.redis_core.server import Server
from pelops.redis_streams.recovery.consumers import LOOKED_AT, list_pending_of


class Pages:
    """A server that answers with these pages, and with the last one for ever."""

    def __init__(self, *pages: list[list[Any]]) -> None:
        self._pages = list(pages)
        self.starts: list[str] = []

    async def execute(self, *words: Any, key: str) -> list[list[Any]]:
        self.starts.append(words[3])
        return self._pages.pop(0) if len(self._pages) > 1 else self._pages[0]


def page(first: int, count: int = LOOKED_AT) -> list[list[Any]]:
    return [[b"%d-0" % number, b"me", 7, 1] for number in range(first, first + count)]


def list_all(server: Pages) -> int:
    async def count() -> int:
        pages = list_pending_of(cast(Server, server), "orders", "workers", "me")
        return sum([len(one) async for one in pages])

    return asyncio.run(count())


def test_each_page_goes_on_behind_the_one_before_it() -> None:
    server = Pages(page(1), page(1 + LOOKED_AT, 3))
    assert list_all(server) == LOOKED_AT + 3
    assert server.starts == ["-", f"({LOOKED_AT}-0"]


def test_a_server_that_repeats_a_page_is_refused() -> None:
    with pytest.raises(InvalidReply, match="XPENDING"):
        list_all(Pages(page(1)))
