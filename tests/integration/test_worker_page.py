"""What docs/worker/sdk.md shows works as it says. Its tables: tests/unit/test_worker_page.py."""

from __future__ import annotations

import json
import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import redis

from local_cluster.redis_servers import StandaloneServers
from tests.integration.page_programs import KEYS, Page, until
from tests.worker_page import PAGE, blocks

APPLICATION: Final = """
async def main():
    import shop

    async with lifespan(None):
        while not shop.is_noted("shipped 1"):
            await asyncio.sleep(0.01)
        shop.note(worker.is_ready, worker.is_live)
    shop.note(worker.describe())


asyncio.run(main())
"""


@pytest.fixture
def page(program_redis: StandaloneServers, tmp_path: Path) -> Iterator[Page]:
    shown = Page(program_redis.url, tmp_path)
    yield shown
    shown.close()


def test_ten_lines_lead_from_nothing_to_a_worker(page: Page) -> None:
    heading = "In ten lines"
    shell, create = blocks(heading, "sh")
    lines = [line for block in blocks(heading) for line in block.splitlines() if line]
    assert len(lines) <= 10

    reported = [word.partition("=") for word in shlex.split(shell.splitlines()[0])[1:]]
    variables = {name: value for name, _, value in reported}
    assert "PELOPS_REDIS_URL" in variables
    del variables["PELOPS_REDIS_URL"]  # the test's own server takes its place
    process = page.run(heading, **variables)
    until(lambda: "NoSuchGroup" in page.output())
    page.server.execute_command(*shlex.split(create)[1:])
    (entry,) = page.add({"number": 1})
    until(lambda: f"{entry} {{'number': 1}}" in page.output())
    page.await_the_end()
    process.terminate()
    assert process.wait(60) == 0
    assert page.server.xinfo_consumers(KEYS.stream, KEYS.group) == []


def test_the_error_of_an_invalid_entry_does_not_contain_its_values(page: Page) -> None:
    page.create_group()
    page.run("The entry")
    page.add({"number": "secret", "amount": 1}, {"number": 2, "amount": 2.5})
    page.await_the_end()
    assert "shipped 2" in page.noted()
    (reason, letter), *more = page.letters().items()
    assert (reason, more) == ("Undecodable", [])
    assert "secret" in letter["order"]
    assert "secret" not in letter["_error"] + page.output()


def test_failures_become_what_the_table_says(page: Page) -> None:
    page.create_group()
    page.run("Failures")
    page.add(
        {"number": 1},
        {"number": 2, "customer": "hasty"},
        {"number": 3, "customer": "nobody"},
        {"customer": "without a number"},
    )
    until(lambda: len(page.letters()) == 2)
    page.await_the_end()
    noted = page.noted()
    assert {line for line in noted if "shipped" in line} == {"shipped 1", "shipped 2"}
    assert noted.count("begun 2") == 2
    assert noted.count("begun 3") == 1
    assert page.letters()["NoSuchCustomer"]["_error"] == "[...] has this name"
    assert page.letters()["HandlerFailed"]["_error"] == "KeyError: 'number'"
    assert "without a number" not in page.output()


def test_of_a_batch_only_what_was_refused_comes_again(page: Page) -> None:
    page.create_group()
    page.add(*({"number": number} for number in range(1, 6)))
    page.run("Batches")
    page.await_the_end()
    stored = [line.split()[1:] for line in page.noted()]
    assert stored[-1] == ["3"]
    assert sorted(number for batch in stored for number in batch) == list("123345")
    assert max(map(len, stored)) > 1


def test_entries_of_one_customer_run_one_after_another_and_others_beside_them(page: Page) -> None:
    page.create_group()
    page.add(
        {"number": 1, "customer": "patient"},
        {"number": 2, "customer": "patient"},
        {"number": 3, "customer": "other"},
    )
    page.run("Order by key")
    page.await_the_end()
    noted = page.noted()
    assert noted.index("shipped 3") < noted.index("shipped 1") < noted.index("begun 2")


def test_a_worker_serves_within_the_life_of_an_application(page: Page) -> None:
    page.create_group()
    page.add({"number": 1})
    process = page.run("Within an application", APPLICATION)
    assert process.wait(60) == 0, page.output()
    assert page.noted()[-2:] == ["True True", "not running"]
    page.await_the_end()
    assert page.server.xinfo_consumers(KEYS.stream, KEYS.group) == []


def test_what_is_acknowledged_is_deleted_where_the_server_can(page: Page) -> None:
    page.create_group()
    page.add({"number": 1})
    process = page.run("Options")
    try:
        page.server.execute_command("XACKDEL", "no-stream", "no-group", "IDS", 1, "0-1")
    except redis.ResponseError:
        assert process.wait(60) == 1
        assert "UnsupportedServer" in page.output()
    else:
        until(lambda: page.server.xlen(KEYS.stream) == 0)
        assert page.noted() == ["shipped 1"]


def test_an_observer_hears_of_failures(page: Page) -> None:
    page.create_group()
    page.run("Probes, metrics, and logs")
    (entry,) = page.add({"customer": "without a number"})
    until(lambda: page.noted() == [f"failed {entry} KeyError"])


def test_entries_are_added_once_for_each_key_where_the_server_can(page: Page) -> None:
    assert page.run("Adding entries").wait(60) == 0, page.output()
    added = [json.loads(pairs["order"]) for _, pairs in page.server.xrange(KEYS.stream)]
    can = int(page.server.info("server")["redis_version"].split(".")[0]) >= 8
    assert page.output().splitlines()[-1] == f"{can} {can}"
    assert [order["number"] for order in added] == ([1, 2, 3] if can else [1, 1, 2, 3])


@pytest.mark.parametrize(
    ("handler", "variables", "code", "reported"),
    [
        ("raise SystemExit(7)", {}, 7, "SystemExit"),
        ("raise KeyboardInterrupt", {}, 130, "KeyboardInterrupt"),
        ("pass", {"PELOPS_REDIS_PASSWORD": "wrong"}, 1, "AuthenticationFailed"),
        ("pass", {"PELOPS_HEALTH_PORT": "{taken}"}, 2, "PELOPS_HEALTH_PORT"),
        ("pass", {"PELOPS_CONCURRENCY": "many"}, 2, "PELOPS_CONCURRENCY"),
    ],
)
def test_a_worker_ends_with_the_exit_code_that_the_page_says(
    page: Page, handler: str, variables: dict[str, str], code: int, reported: str
) -> None:
    page.create_group()
    page.add({"number": 1})
    (program,) = blocks("In ten lines", "python")
    program = re.sub(r"print\(.*\)", handler, program)
    with socket.create_server(("", 0)) as listening:
        taken = listening.getsockname()[1]
        reported_to = {name: value.format(taken=taken) for name, value in variables.items()}
        assert page.start(program, **reported_to).wait(60) == code, page.output()
    assert reported in page.output()


def test_a_worker_that_may_not_read_tries_on(page: Page) -> None:
    page.create_group()
    page.server.execute_command("ACL", "SETUSER", "blind", "on", ">x", "~*", "+@all", "-xreadgroup")
    blind = {"PELOPS_REDIS_USERNAME": "blind", "PELOPS_REDIS_PASSWORD": "x"}
    process = page.run("In ten lines", **blind)
    until(lambda: "forbids xreadgroup" in page.output())
    page.server.execute_command("ACL", "SETUSER", "blind", "+xreadgroup")
    (entry,) = page.add({"number": 1})
    until(lambda: entry in page.output())
    assert process.poll() is None


def test_no_program_of_the_page_goes_untested() -> None:
    tested = {
        "In ten lines",
        "The entry",
        "Failures",
        "Batches",
        "Order by key",
        "Within an application",
        "Options",
        "Probes, metrics, and logs",
        "Adding entries",
        "Testing handlers",
    }
    shown = re.findall(r"^##+ (.*)$|^```(python)$", PAGE, flags=re.M)
    headings = [heading for heading, _ in shown if heading]
    assert {heading for heading in headings if blocks(heading, "python")} == tested
    assert sum(bool(code) for _, code in shown) == len(tested)
