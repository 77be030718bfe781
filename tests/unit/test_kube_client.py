"""What the API server's refusals mean, how bodies are written, and the Events about a resource."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from kubernetes.aio import client as aio_client

from pelops import errors
from pelops.errors import KubernetesUnavailable
from pelops.kube import client
from pelops.kube.client import (
    DEPLOYMENT,
    NAMESPACE,
    STREAM_CONSUMER_GROUP,
    Address,
    KubeApi,
    render_yaml,
    translate_status,
)
from pelops.kube.event_recorder import EventContent, build_event
from tests.builders import NOW, later

STATUS = b'{"kind": "Status", "message": "because"}'

REFUSALS: dict[str, tuple[int, bytes, type[errors.KubernetesError], str]] = {
    "a bad request": (400, STATUS, errors.Rejected, "because"),
    "an invalid object": (422, STATUS, errors.Rejected, "because"),
    "a body that is too large": (413, b"too large", errors.Rejected, "too large"),
    "no permission": (403, STATUS, errors.Forbidden, "because"),
    "no such object": (404, STATUS, errors.NotFound, "because"),
    "another writer": (409, STATUS, errors.Conflict, "because"),
    "a list that is too old": (410, STATUS, errors.Conflict, "because"),
    "an expired token": (
        401,
        STATUS,
        errors.KubernetesUnavailable,
        "returned HTTP status 401: because",
    ),
    "too many requests": (429, STATUS, errors.KubernetesUnavailable, "returned HTTP status 429"),
    "a broken server": (500, STATUS, errors.KubernetesUnavailable, "returned HTTP status 500"),
    "a page of a proxy": (502, b"<html>", errors.KubernetesUnavailable, "<html>"),
    "a template of the wrong shape": (
        500,
        b'{"message": "failed to create typed patch object (shop/w): .spec: expected map"}',
        errors.Rejected,
        "expected map",
    ),
    "an amount that is none": (
        500,
        b'{"message": "failed to convert new object: unable to convert unstructured object to v1: '
        b'quantities must match"}',
        errors.Rejected,
        "quantities must match",
    ),
    "a message that is no text": (422, b'{"message": 5}', errors.Rejected, "5"),
    "an answer that is a list": (422, b"[1]", errors.Rejected, "[1]"),
    "bytes that are no text": (422, b"\xff", errors.Rejected, "\ufffd"),
    "a status of its own": (418, b"teapot", errors.KubernetesError, "teapot"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_becomes(case: tuple[int, bytes, type[errors.KubernetesError], str]) -> None:
    status, body, kind, words = case
    error = translate_status(status, body)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("é", '"\\u00e9"'),
        ("😀", '"😀"'),
        ("\\😀", '"\\\\😀"'),
        ("\\ud83d\\ude00", '"\\\\ud83d\\\\ude00"'),
        ("\x07\x7f\u2028", '"\\u0007\\u007f\\u2028"'),
    ],
)
def test_an_apply_writes_no_surrogates_and_no_raw_control_characters(
    text: str, written: str
) -> None:
    assert render_yaml({"a": text}) == f'{{"a": {written}}}'


SUBJECT = {"metadata": {"name": "orders", "namespace": "shop", "uid": "u-1"}}
HAPPENING = EventContent(type="Warning", reason="Conflict", action="Reconcile", note="two want it")


def test_an_event_names_its_resource_and_reporter() -> None:
    event = build_event(SUBJECT, HAPPENING, reporter="operator-1", now=NOW)
    assert event["metadata"]["namespace"] == "shop"
    assert event["regarding"]["uid"] == "u-1"
    assert event["eventTime"] == "2026-05-04T03:02:01.000000Z"
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Conflict", "two want it")


def test_every_replica_names_an_event_alike_and_each_occurrence_differently() -> None:
    def name(happening: EventContent, reporter: str = "a") -> str:
        now = later(seconds=len(reporter))
        return str(build_event(SUBJECT, happening, reporter=reporter, now=now)["metadata"]["name"])

    assert name(HAPPENING) == name(HAPPENING, "another replica, later")
    assert name(replace(HAPPENING, occurrence="2")) != name(HAPPENING)


def test_a_note_keeps_within_the_bytes_that_an_event_holds() -> None:
    long = replace(HAPPENING, note="é" * 1000)
    assert build_event(SUBJECT, long, reporter="r", now=NOW)["note"] == "é" * 512


def test_a_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        asked.append(str(request.url))
        return web.json_response({"kind": "Namespace"})

    async def ask(no_proxy: str) -> None:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        monkeypatch.setenv("http_proxy", site.name)
        monkeypatch.setenv("no_proxy", no_proxy)
        api = await KubeApi.connect(str(_write_kubeconfig(tmp_path, "http://kubernetes.invalid")))
        try:
            await api.get(Address(kind=NAMESPACE, namespace=None, name="shop"))
        finally:
            await api.close()
            await runner.cleanup()

    asyncio.run(ask(""))
    assert asked == ["http://kubernetes.invalid/api/v1/namespaces/shop"]
    with pytest.raises(errors.KubernetesUnavailable):
        asyncio.run(ask("kubernetes.invalid"))


def _write_kubeconfig(directory: Path, server: str) -> Path:
    content = {
        "current-context": "only",
        "contexts": [{"name": "only", "context": {"cluster": "only", "user": "only"}}],
        "clusters": [{"name": "only", "cluster": {"server": server}}],
        "users": [{"name": "only", "user": {"token": "secret"}}],
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


# --- LISTs are read page by page, in smaller pages where objects are large


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
