"""What the page about the protocol asks of a worker is enough, in any language and client."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from local_cluster.nodes import Node
from local_cluster.processes import Process, start_process, wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import UserRole, acl_rules
from tests.e2e.declaring import Object
from tests.e2e.other_languages import LANGUAGES, CannotBuild, Program, find_program
from tests.e2e.recovering import Group
from tests.operators import Resources, sleeping_template
from tests.redis_fixtures import RunRedis

T = TypeVar("T")

WAIT_S = 180.0
GROUP = "order-processing"
CONSUMER = "web-7d9f-abcde:3f2b8c1e"
PASSWORD = "of-the-worker"


@pytest.fixture(
    scope="session",
    params=[
        "python",
        *(pytest.param(one, marks=pytest.mark.full) for one in LANGUAGES if one != "python"),
    ],
)
def program(request: pytest.FixtureRequest) -> Program:
    """The worker in each language in turn; skipped where its toolchain cannot be had."""
    try:
        return find_program(request.param)
    except CannotBuild as error:
        if request.param in {"python", "go"}:  # what builds the control plane builds these
            raise
        pytest.skip(str(error))


class Trial:
    """A stream, and processes of one program that work it with the rights of a plain worker."""

    def __init__(
        self, program: Program, servers: RedisServers, stream: str, directory: Path
    ) -> None:
        self.stream = stream
        self.redis: Any = redis.Redis.from_url(servers.url, decode_responses=True)
        self._program = program
        self._directory = directory
        self._processes: list[Process] = []
        self._servers = servers
        self._user = f"worker-{stream}"
        self.add_user()
        self._variables = {
            "PELOPS_REDIS_URL": servers.url,
            "PELOPS_REDIS_USERNAME": self._user,
            "PELOPS_REDIS_PASSWORD": PASSWORD,
            "PELOPS_STREAM": stream,
            "PELOPS_GROUP": GROUP,
            "PELOPS_CONSUMER": CONSUMER,
        }

    def add_user(self) -> None:
        """Let the processes in, to what a plain worker needs and no more."""
        rules = acl_rules(derive_keys(self.stream, GROUP), UserRole.WORKER)
        self._servers.acl_setuser(self._user, "on", f">{PASSWORD}", *rules)

    def start(self) -> Process:
        """Start a process, of the same consumer's name as each before it."""
        log = self._directory / f"{len(self._processes)}.log"
        process = start_process(
            "worker", self._program.command, log=log, env=os.environ | self._variables
        )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.kill()
        self.redis.close()

    def create_group(self) -> None:
        """As the operator does."""
        self.redis.xgroup_create(self.stream, GROUP, "0", mkstream=True)

    def add(self, count: int, work_ms: str = "0") -> list[str]:
        """Add entries, each of which takes that long; their IDs."""
        return [self.redis.xadd(self.stream, {"work_ms": work_ms}) for _ in range(count)]

    def done(self) -> Counter[str]:
        """How often each entry had its effect."""
        lines = (line.split() for line in self._said())
        return Counter(words[1] for words in lines if words[:1] == ["done"])

    def await_done(self, ids: list[str]) -> None:
        """Return once each of these had its effect and is acknowledged."""
        wanted = set(ids)
        self.until(lambda: wanted <= self.done().keys(), f"{len(wanted)} entries to be done")
        self.until(lambda: not wanted & self.pending().keys(), "acknowledgements")

    def await_said(self, words: str) -> None:
        """Return once a process has written a line that holds these."""
        self.until(lambda: any(words in line for line in self._said()), f"{words!r} in its output")

    def await_reader(self) -> None:
        """Return once a process waits in a blocking read."""
        self.until(lambda: any(int(c["flags"].count("b")) for c in self._clients()), "a reader")

    def cut_connections(self) -> None:
        """Close every connection of the processes."""
        self.redis.client_kill_filter(user=self._user)

    def pending(self) -> dict[str, str]:
        """The pending entries and their owners."""
        lines = self.redis.xpending_range(self.stream, GROUP, "-", "+", 10_000)
        return {line["message_id"]: line["consumer"] for line in lines}

    def until(self, condition: Callable[[], T], what: str) -> T:
        """The first truthy answer."""
        try:
            return wait_until(condition, timeout_s=WAIT_S, what=what)
        except TimeoutError as error:
            error.add_note("\n".join(self._said()[-20:]))
            raise

    def _said(self) -> list[str]:
        """The whole lines so far; the last one may be half written when it is read."""
        logs = [process.log for process in self._processes]
        texts = [log.read_text() for log in logs if log.exists()]
        return [line for text in texts for line in text.split("\n")[:-1]]

    def _clients(self) -> list[dict[str, str]]:
        return [client for client in self.redis.client_list() if client["user"] == self._user]


@pytest.fixture
def trial(program: Program, redis_86: RedisServers, stream: str, tmp_path: Path) -> Iterator[Trial]:
    """On the newest server, before there is a group."""
    trial = Trial(program, redis_86, stream, tmp_path)
    yield trial
    trial.stop()


@pytest.mark.full
def test_a_killed_worker_finishes_its_pending_entries_after_its_restart(trial: Trial) -> None:
    trial.create_group()
    ids = trial.add(250, work_ms="10")  # more than are read at once
    killed = trial.start()
    trial.until(lambda: len(trial.done()) >= 10, "ten to be done")
    killed.kill()
    left = trial.pending()
    assert 0 < len(left) <= 100 and set(left.values()) == {CONSUMER}
    trial.start()
    trial.await_done(ids)
    assert trial.done().keys() == set(ids)
    twice = {entry_id for entry_id, times in trial.done().items() if times > 1}
    # Only what was done and not yet acknowledged at the kill.
    assert len(twice) <= 1 and twice <= left.keys()
    assert trial.redis.xinfo_consumers(trial.stream, GROUP)[0]["name"] == CONSUMER


def test_an_answer_that_was_lost_is_found_in_the_own_history(trial: Trial) -> None:
    trial.create_group()
    process = trial.start()
    trial.await_reader()
    process.pause()
    trial.cut_connections()
    (lost,) = trial.add(1)
    # What the server had sent when the connection broke.
    trial.redis.xreadgroup(GROUP, CONSUMER, {trial.stream: ">"}, 1)
    process.resume()
    trial.await_done([lost, *trial.add(3)])


def test_deleted_and_failing_entries_do_not_block_others(trial: Trial) -> None:
    trial.create_group()
    (gone,), (bad,), good = trial.add(1), trial.add(1, work_ms="banana"), trial.add(3)
    trial.redis.xreadgroup(GROUP, CONSUMER, {trial.stream: ">"}, 4)
    trial.redis.xdel(trial.stream, gone)
    trial.start()
    trial.await_done([*good, *trial.add(2)])
    assert gone not in trial.done()
    assert trial.pending() == {bad: CONSUMER}  # for the operator, once it is idle


@pytest.mark.full
def test_a_worker_waits_for_a_missing_group_and_does_not_create_it(
    program: Program, program_redis: RedisServers, stream: str, tmp_path: Path
) -> None:
    trial = Trial(program, program_redis, stream, tmp_path)
    try:
        process = trial.start()
        trial.await_said("NOGROUP")
        assert not trial.redis.exists(stream)
        trial.create_group()
        trial.await_done(trial.add(2))
        trial.await_reader()
        trial.redis.delete(stream)
        trial.create_group()
        trial.await_done(trial.add(2))
        assert process.is_alive()
    finally:
        trial.stop()


def test_a_worker_outlives_a_server_that_forgot_everything_the_user_too(
    program: Program, run_redis: RunRedis, stream: str, tmp_path: Path
) -> None:
    servers = run_redis()
    trial = Trial(program, servers, stream, tmp_path)
    try:
        trial.create_group()
        process = trial.start()
        trial.await_done(trial.add(1))
        (server,) = servers.everything
        server.kill()
        trial.await_said("waiting:")
        server.start()
        trial.add_user()
        trial.create_group()
        trial.await_done(trial.add(2))
        assert process.is_alive()
    finally:
        trial.stop()


def test_after_sigterm_a_worker_finishes_only_its_current_entry(
    trial: Trial, program: Program
) -> None:
    trial.create_group()
    ids = trial.add(100, work_ms="200")
    process = trial.start()
    trial.until(lambda: len(trial.done()) >= 1, "one to be done")
    process.send(signal.SIGTERM)
    assert process.ends_within(10)
    assert process.exit_code == program.code_after_sigterm
    done = trial.done()
    assert 1 <= len(done) < 20 and set(done.values()) == {1}
    assert trial.pending().keys() == set(ids) - done.keys()


@pytest.mark.full
def test_entries_of_crashed_and_deleted_pods_are_processed_by_new_pods(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str, program: Program
) -> None:
    group = Group(resources, redis_86, stream)
    crashed, deleted = group.declare(
        2, template=_template(program), recovery={"processingTimeoutSeconds": 600}
    )
    ids = [group.redis.xadd(stream, {"work_ms": "20"}) for _ in range(300)]
    both = {crashed.consumer, deleted.consumer}
    group.until(lambda: set(group.owners().values()) == both, "both to hold entries")
    crashed.crash()
    group.delete_pod(deleted)
    group.until(lambda: not group.pending() and _lag(group) == 0, "all to be acknowledged")
    assert group.copies().keys() <= set(ids)
    assert not group.letters()
    group.until(lambda: deleted.consumer not in group.consumers(), "its consumer to go")


def _template(program: Program) -> Object:
    template = sleeping_template()
    template["spec"]["containers"][0]["command"] = list(program.command)
    return template


def _lag(group: Group) -> int:
    (found,) = group.redis.xinfo_groups(group.stream)
    return int(found["lag"])
