"""The operator's own HTTP endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from pelops.controller.replica import start_serving


class Health:
    """What is not well, to be changed by a test."""

    alive = ""
    ready = "the cache is not filled yet"


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[str, Health]]:
    health = Health()
    runner, port = await start_serving(
        host="127.0.0.1", port=0, is_alive=lambda: health.alive, is_ready=lambda: health.ready
    )
    yield f"http://127.0.0.1:{port}", health
    await runner.cleanup()


async def get(url: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_a_probe_says_what_is_not_well(endpoint: tuple[str, Health]) -> None:
    url, health = endpoint
    assert (await get(f"{url}/livez"))[:2] == (200, "ok\n")
    assert (await get(f"{url}/readyz"))[:2] == (503, "the cache is not filled yet\n")
    health.ready = ""
    assert (await get(f"{url}/readyz"))[:2] == (200, "ok\n")


async def test_metrics_are_served_for_prometheus(endpoint: tuple[str, Health]) -> None:
    status, text, kind = await get(f"{endpoint[0]}/metrics")
    assert status == 200
    assert kind.startswith("text/plain")
    assert "# HELP pelops_reconciles_total" in text


async def test_single_metrics_are_served_by_their_names(endpoint: tuple[str, Health]) -> None:
    names = "name[]=pelops_members&name[]=pelops_resources"
    _, text, _ = await get(f"{endpoint[0]}/metrics?{names}")
    shown = {line.split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert shown == {"pelops_members", "pelops_resources"}


async def test_guarded_metrics_need_permission_and_probes_do_not() -> None:
    asked: list[str] = []

    async def access(authorization: str) -> int:
        asked.append(authorization)
        return {"": 401, "Bearer other": 403, "Bearer well": 200}[authorization]

    runner, port = await start_serving(
        host="127.0.0.1", port=0, is_alive=str, is_ready=str, access=access
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession() as session:
            for header, status in (("Bearer other", 403), ("Bearer well", 200)):
                headers = {"Authorization": header}
                async with session.get(f"{url}/metrics", headers=headers) as answer:
                    text = await answer.text()
                    assert (answer.status, "pelops_" in text) == (status, status == 200)
            async with session.get(f"{url}/metrics") as answer:
                assert (answer.status, await answer.text()) == (401, "")
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert [(await get(f"{url}{probe}"))[0] for probe in ("/livez", "/readyz")] == [200, 200]
    finally:
        await runner.cleanup()
    assert asked == ["Bearer other", "Bearer well", ""]


async def test_nothing_else_is_served(endpoint: tuple[str, Health]) -> None:
    assert (await get(f"{endpoint[0]}/"))[0] == 404
