"""LISTs are read page by page, in smaller pages where objects are large."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio import client as aio_client

from pelops.errors import KubernetesUnavailable
from pelops.kube import client
from pelops.kube.client import DEPLOYMENT, STREAM_CONSUMER_GROUP, KubeApi

PAGE_BYTES = 100_000


class Server:
    """Lists objects of these sizes, and remembers the limits that it was asked for."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.limits: list[int] = []
        self.text: str | None = None

    async def answer(self, request: web.Request) -> web.Response:
        limit, start = int(request.query["limit"]), int(request.query.get("continue") or 0)
        self.limits.append(limit)
        end = min(start + limit, len(self.sizes))
        items = [
            {"metadata": {"name": str(number)}, "spec": "x" * self.sizes[number]}
            for number in range(start, end)
        ]
        following = str(end) if end < len(self.sizes) else ""
        listed = {"items": items, "metadata": {"resourceVersion": "7", "continue": following}}
        text = self.text if self.text is not None else json.dumps(listed)
        return web.Response(text=text, content_type="application/json")


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def api(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubeApi]:
    monkeypatch.setattr(client, "PAGE_BYTES", PAGE_BYTES)
    app = web.Application()
    app.router.add_get("/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    configuration: Any = aio_client.Configuration()
    configuration.host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    api = KubeApi(configuration)
    yield api
    await api.close()
    await runner.cleanup()


async def names(api: KubeApi) -> list[str]:
    return [one["metadata"]["name"] for one in await api.list_all(STREAM_CONSUMER_GROUP)]


@pytest.mark.parametrize("sizes", [[], [10], [10] * 1_200])
async def test_small_objects_come_in_large_pages(
    server: Server, api: KubeApi, sizes: list[int]
) -> None:
    server.sizes = sizes
    assert await names(api) == [str(number) for number in range(len(sizes))]
    assert set(server.limits) == {500}


@pytest.mark.parametrize("size", [5_000, 60_000, 3 * PAGE_BYTES])
async def test_large_objects_come_in_pages_of_a_bounded_size(
    server: Server, api: KubeApi, size: int
) -> None:
    server.sizes = [size] * 50
    assert await names(api) == [str(number) for number in range(50)]
    assert server.limits[-1] * size < 2 * PAGE_BYTES or server.limits[-1] == 1


async def test_pages_grow_again_after_large_objects(server: Server, api: KubeApi) -> None:
    server.sizes = [60_000] * 5 + [10] * 500
    assert len(await names(api)) == 505
    assert max(server.limits[-3:]) > 50


async def test_a_page_that_is_read_in_part_leads_to_the_next(server: Server, api: KubeApi) -> None:
    server.sizes = [10] * 6
    seen = []
    async for page in api.list_pages(STREAM_CONSUMER_GROUP, page=2):
        seen.append(next(page.items())["metadata"]["name"])
    assert seen == ["0", "2", "4"]


@pytest.mark.parametrize("text", ["<html>", '{"items":[{'])
async def test_an_answer_that_is_no_list_counts_as_none(
    server: Server, api: KubeApi, text: str
) -> None:
    server.text = text
    with pytest.raises(KubernetesUnavailable, match="not JSON"):
        await names(api)


async def test_each_item_says_what_it_is_as_in_an_event(api: KubeApi, server: Server) -> None:
    server.sizes = [10]
    (item,) = await api.list_all(DEPLOYMENT)
    assert (item["apiVersion"], item["kind"]) == ("apps/v1", "Deployment")
