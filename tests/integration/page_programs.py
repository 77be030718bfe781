"""The programs of docs/worker/sdk.md at work, and what becomes of their entries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import redis

from pelops.domain.naming import derive_keys
from tests.worker_page import blocks

ROOT: Final = Path(__file__).parents[2]
KEYS: Final = derive_keys("orders:events", "order-processing")
# What the programs import: it notes what they do.
SHOP: Final = """
import asyncio
from pathlib import Path

NOTES = Path("notes")
shipped = set()


class Busy(Exception):
    pass


class NoSuchCustomer(Exception):
    pass


def note(*words):
    with NOTES.open("a") as notes:
        notes.write(" ".join(map(str, words)) + "\\n")


def is_noted(words):
    return NOTES.exists() and words in NOTES.read_text().splitlines()


async def ship(order):
    number, customer = order["number"], order.get("customer")
    note("begun", number)
    if customer == "nobody":
        raise NoSuchCustomer("nobody has this name")
    if customer == "hasty" and not is_noted("busy"):
        note("busy")
        raise Busy
    while customer == "patient" and not is_noted("shipped 3"):
        await asyncio.sleep(0.01)
    ship_now(order)


def ship_now(order):
    note("shipped", order["number"])


async def store(orders):
    numbers = [order["number"] for order in orders]
    note("store", *numbers)
    refused = {3} - shipped
    shipped.update(numbers)
    return {numbers.index(number) for number in refused if number in numbers}
"""


def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it never came"
        time.sleep(0.02)


class Page:
    """The page's programs at work, and what becomes of the entries."""

    def __init__(self, url: str, directory: Path) -> None:
        self.server: Any = redis.Redis.from_url(url, decode_responses=True)
        self._url = url
        self._directory = directory
        self._stack = ExitStack()
        (directory / "shop.py").write_text(SHOP)

    def run(self, heading: str, more: str = "", **variables: str) -> subprocess.Popen[bytes]:
        """Start the one program below this heading."""
        (program,) = blocks(heading, "python")
        return self.start(program + more, **variables)

    def start(self, program: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a program as the page's are."""
        (self._directory / "worker.py").write_text(program)
        environment = {key: value for key, value in os.environ.items() if "PELOPS" not in key}
        environment |= {
            "PYTHONPATH": f"{ROOT / 'operator'}",
            "PELOPS_STREAM": KEYS.stream,
            "PELOPS_GROUP": KEYS.group,
            "PELOPS_REDIS_URL": self._url,
            **variables,
        }
        output = self._stack.enter_context((self._directory / "output").open("wb"))
        process = subprocess.Popen(
            [sys.executable, "-u", "worker.py"],
            env=environment,
            cwd=self._directory,
            stdout=output,
            stderr=output,
        )
        self._stack.callback(_end, process)
        return process

    def create_group(self) -> None:
        self.server.xgroup_create(KEYS.stream, KEYS.group, "0", mkstream=True)

    def add(self, *orders: dict[str, Any]) -> list[str]:
        return [self.server.xadd(KEYS.stream, {"order": json.dumps(one)}) for one in orders]

    def await_the_end(self) -> None:
        """Wait until all is delivered and nothing is pending."""

        def owes_nothing() -> bool:
            (group,) = self.server.xinfo_groups(KEYS.stream)
            last = self.server.xinfo_stream(KEYS.stream)["last-generated-id"]
            return bool(group["last-delivered-id"] == last and group["pending"] == 0)

        until(owes_nothing)

    def letters(self) -> dict[str, dict[str, str]]:
        """Dead letters, by their reasons."""
        found = self.server.xrange(KEYS.dead_letter)
        return {letter["_reason"]: letter for _, letter in found}

    def noted(self) -> list[str]:
        path = self._directory / "notes"
        text = path.read_text() if path.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()  # the last may be half written

    def output(self) -> str:
        return (self._directory / "output").read_text()

    def close(self) -> None:
        self._stack.close()
        self.server.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
