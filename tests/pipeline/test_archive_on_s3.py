"""The archive in a bucket: whole audits against a real server of S3, through s3a."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis

from local_cluster.processes import Process, wait_until
from local_cluster.redis_servers import RedisServers
from pelops.domain.naming import derive_keys
from pelops.pipeline.archive.layout import slug, stream_path
from tests.pipeline.audited import FIRST_MS, GROUP, is_made_by
from tests.pipeline.s3_store import BUCKET, S3Store

# The server and the jars are made when they are first asked for.
pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]
ENTRIES = 300
RUN_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A stream with a group, and where its archive is to be."""

    store: S3Store
    port: int
    stream: str
    prefix: str
    logs: Path

    @property
    def archive(self) -> str:
        return f"s3a://{BUCKET}/{self.prefix}"

    @property
    def window(self) -> str:
        """Of the first window, the names of its records."""
        return f"{stream_path(self.prefix, self.stream)}/window=0"

    def audit(self, name: str, **variables: str) -> Process:
        """Begin an audit; what it says is in `logs`."""
        url = f"redis://127.0.0.1:{self.port}/0"
        what = ["--redis-url", url, "--stream", self.stream, "--group", GROUP]
        words = [*what, "--archive", self.archive, "--master", "local[2]"]
        words += ["--window-seconds", "3600"]  # once the first is closed, none is for an hour
        (self.logs / name).mkdir()
        log = self.logs / name / "log"
        return self.store.run(["-m", "pelops.pipeline", "audit", *words], log, **variables)

    def files(self) -> dict[str, Any]:
        """What is in the first window, but for what tells when plan and snapshot were made.

        Bytes; of Parquet the rows, since Java lists the encodings in a footer in any order.
        """
        found = self.store.files(self.prefix)
        return {
            name: pq.read_table(BytesIO(data)) if name.endswith(".parquet") else data
            for name, data in found.items()
            if Path(name).name not in {"plan.json", "snapshot.json"} and "report/" not in name
        }


@pytest.fixture
def case(store: S3Store, redis_86: RedisServers, key_prefix: str, tmp_path: Path) -> Iterator[Case]:
    """A stream of which half is acknowledged and some is pending."""
    case = Case(
        store=store,
        port=redis_86.master().port,
        stream=f"{key_prefix}orders",
        prefix=f"shop/{tmp_path.name}",
        logs=tmp_path,
    )
    keys = derive_keys(case.stream, GROUP)
    client: Any = redis.Redis(port=case.port)
    client.xgroup_create(case.stream, GROUP, id="0", mkstream=True)
    for number in range(ENTRIES):
        client.xadd(case.stream, {"number": number}, id=f"{FIRST_MS + number}-0")
    ((_, read),) = client.xreadgroup(GROUP, "a", {case.stream: ">"}, count=200)
    client.xack(case.stream, GROUP, *[entry_id for entry_id, _ in read[:150]])
    yield case
    client.delete(case.stream, keys.ledger)
    client.close()


def end_of(process: Process) -> tuple[int | None, str]:
    """The exit code, and all that was said."""
    try:
        assert process.ends_within(RUN_S), process.tail(40)
    finally:
        process.kill()
    return process.exit_code, process.log.read_text()


def errors(said: str) -> list[str]:
    return [line for line in said.splitlines() if " ERROR " in line]


def test_a_run_audits_into_an_object_store(case: Case) -> None:
    code, said = end_of(case.audit("run"))
    assert code == 0, said[-3000:]
    assert f"{ENTRIES} of {ENTRIES} produced" in said
    assert any(is_made_by(f"group={slug(GROUP)}", name) for name in case.files())


@pytest.mark.full
def test_runs_that_lose_the_store_meet_or_come_again_end_in_the_same_files(case: Case) -> None:
    first = case.audit("first")
    try:
        wait_until(
            lambda: "entries.json" in case.store.files(case.window) or not first.is_alive(),
            timeout_s=RUN_S, what="the first stage", every_s=0.02,
        )  # fmt: skip
    finally:
        case.store.stop()
    code, said = end_of(first)
    case.store.start()
    assert code == 1, said[-3000:]
    assert f"{case.archive}/" in errors(said)[-1]
    assert "the object store cannot be reached" in errors(said)[-1]
    assert "Traceback" not in said

    together = [case.audit("one"), case.audit("other")]
    for code, said in map(end_of, together):
        assert code == 0, said[-3000:]
        assert f"{ENTRIES} of {ENTRIES} produced" in said
    files = case.files()
    records = f"_pelops/stream={slug(case.stream)}/window=0"
    entries = f"entries/stream={slug(case.stream)}/windows=0..23/0"
    assert f"{records}/group={slug(GROUP)}/audit.json" in files
    assert f"{entries}/part-00000.parquet" in files
    assert not [name for name in files if ".unfinished" in name or name.endswith(".claim")]
    assert f"report: {case.archive}/report/audit.html" in said

    for name in files:
        if is_made_by("entries", name) or is_made_by(f"group={slug(GROUP)}", name):
            case.store.remove(f"{case.prefix}/{name}")
    for stage in ("entries", f"group={slug(GROUP)}"):
        case.store.remove(f"{case.window}/{stage}.json")
    case.store.remove(f"{case.window}/manifest.json")
    code, said = end_of(case.audit("again"))
    assert code == 0, said[-3000:]
    again = case.files()
    assert again.keys() == files.keys()
    assert not [name for name in files if again[name] != files[name]]

    words = ["audit", "lookup", "--archive", case.archive, "--id", f"{FIRST_MS}-0"]
    code, said = end_of(case.store.run(["-m", "pelops.cli", *words], case.logs / "lookup.log"))
    assert code == 0, said[-3000:]
    assert "is acknowledged, inferred (window 0, inferred)" in said


def test_one_run_makes_a_file_and_any_run_finishes_what_was_half_put_in_place(
    store: S3Store, tmp_path: Path
) -> None:
    words = ["-m", "tests.pipeline.s3_driver", f"s3a://{BUCKET}/{tmp_path.name}"]
    code, said = end_of(store.run(words, tmp_path / "log"))
    assert code == 0, said[-3000:]
    found = json.loads(said.splitlines()[-1])
    (made,) = found["created"]["made"]
    # Whose answer was lost sees its own file, and has made it.
    assert found["created"] == {"made": [made], "found": {"by": made}, "same": True}
    assert found["put"] == ["audit.json", "rows", *(f"part-{n:05d}.parquet" for n in range(6))]
    assert "gone was removed while it was being written" in found["nothing"]
    # What waits to be sent does so where temporary files may be.
    assert list(tmp_path.glob("hadoop-*/s3a"))


@pytest.mark.full
def test_an_object_is_no_archive(case: Case) -> None:
    place = case.store.bucket / case.prefix
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"of somebody else")
    code, said = end_of(case.audit("object"))
    assert code == 1, said[-3000:]
    (line,) = errors(said)
    assert f"the archive path {case.archive} cannot be used: {case.archive} is a file. Give" in line
    words = ["audit", "lookup", "--archive", case.archive, "--id", "1-1"]
    code, said = end_of(case.store.run(["-m", "pelops.cli", *words], case.logs / "lookup.log"))
    assert code == 1
    assert f"{case.archive} cannot be used: {case.archive} is a file. Give the directory" in said
    assert place.read_bytes() == b"of somebody else"


@pytest.mark.full
def test_keys_that_the_store_does_not_know_are_a_clear_error(case: Case) -> None:
    code, said = end_of(case.audit("wrong", AWS_SECRET_ACCESS_KEY="of another store"))
    assert code == 1
    assert "Traceback" not in said
    (line,) = errors(said)
    assert case.archive in line
    assert "these credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)" in line
    assert not case.store.files(case.prefix)
