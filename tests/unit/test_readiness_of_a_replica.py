"""What `/readyz` and `/livez` of a replica follow."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from pelops.controller.replica import Replica
from pelops.controller.runtime.settings import parse_settings
from pelops.controller.runtime.watch import Watch


class SilentWatch(Watch):
    """A watch that is as silent as a test says."""

    def __init__(self) -> None:
        self.said = ""

    def problem(self) -> str:
        return self.said


@pytest.fixture
async def replica() -> Replica:
    return Replica(parse_settings([], {}), asyncio.Event())


async def test_a_replica_is_not_ready_before_its_cache_is_filled(replica: Replica) -> None:
    assert replica.why_not_ready() == "no request to the API server has completed yet"


async def test_a_silent_watch_makes_a_replica_unready_and_not_dead(replica: Replica) -> None:
    watch = SilentWatch()
    replica.begin(watch)
    assert replica.why_not_ready() == ""
    watch.said = "the watch of pods has received nothing for 61 s"
    assert replica.why_not_ready() == watch.said
    assert replica.why_not_alive() == ""
    watch.said = ""
    assert replica.why_not_ready() == ""


@pytest.mark.full
def test_a_replica_takes_as_many_file_descriptors_as_it_may() -> None:
    begin = (
        "import resource as r; _, hard = r.getrlimit(r.RLIMIT_NOFILE);"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, hard));"
        "from pelops.controller import replica; replica.raise_file_limit();"
        "soft, hard = r.getrlimit(r.RLIMIT_NOFILE);"
        "print(soft == (replica.FILES if hard == r.RLIM_INFINITY else min(hard, replica.FILES)))"
    )
    said = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "True"
