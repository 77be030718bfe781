"""Which files are read, what they do not cover, and what makes them useless."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_cluster.redis_servers import ServerOptions
from pelops.domain.entry_id import EntryId
from pelops.pipeline.evidence import EvidenceUnusable
from pelops.pipeline.evidence.append_only_files import ListedFile, choose_chain, read_acts
from tests.pipeline.evidence_adapter import FILES, VERSIONS, Witnessed, witness

KEPT = ServerOptions(append_only="no", config={**FILES.config, "aof-disable-auto-gc": "yes"})


@pytest.fixture(params=VERSIONS)
def witnessed(request: pytest.FixtureRequest) -> Iterator[Witnessed]:
    with witness(request.param) as one:
        yield one


@pytest.fixture
def witnessed_86() -> Iterator[Witnessed]:
    with witness("8.6") as one:
        yield one


def test_the_files_of_a_new_server_report_everything(witnessed: Witnessed) -> None:
    witnessed.add(1)
    assert witnessed.evidence().begins_empty
    assert witnessed.rows()[1]["covered"]


def test_after_a_rewrite_what_happened_before_proves_nothing(witnessed: Witnessed) -> None:
    _live_through_a_rewrite(witnessed)
    evidence = witnessed.evidence()
    assert not evidence.begins_empty
    assert witnessed.proofs() == {2: "acknowledged", 3: "acknowledged", 5: "acknowledged", 6: None}
    covered = {number for number, row in witnessed.rows().items() if row["covered"]}
    assert covered == {5, 6}


def test_a_base_of_commands_proves_its_state_and_no_history(witnessed: Witnessed) -> None:
    witnessed.ask("CONFIG", "SET", "aof-use-rdb-preamble", "no")
    _live_through_a_rewrite(witnessed)
    rows = witnessed.rows()
    assert {number: row["proof"] for number, row in rows.items()} == {
        1: None, 2: "acknowledged", 3: "acknowledged", 4: None, 5: "acknowledged", 6: None,
    }  # fmt: skip
    assert rows[1]["fate"] == "undelivered"  # acknowledged, which the base does not show
    assert not rows[1]["covered"]
    assert {number for number, row in rows.items() if row["covered"]} == {5, 6}


@pytest.mark.parametrize("version", VERSIONS)
def test_superseded_files_are_read_when_asked_for(version: str) -> None:
    with witness(version, KEPT) as witnessed:
        _live_through_a_rewrite(witnessed)
        assert witnessed.evidence(with_history=True).begins_empty
        assert list(witnessed.proofs(with_history=True).values()) == [
            "acknowledged", "acknowledged", "acknowledged", "skipped", "acknowledged", None,
        ]  # fmt: skip
        assert not witnessed.evidence().begins_empty


def test_entries_up_to_a_bound_are_left_out(witnessed_86: Witnessed) -> None:
    witnessed_86.add(6)
    witnessed_86.create()
    witnessed_86.read(4)
    witnessed_86.acknowledge(1, 4)
    witnessed_86.ask("XTRIM", "orders", "MAXLEN", 1)
    rows = witnessed_86.rows(after=EntryId(3))
    assert {number: (row["fate"], row["removal"]) for number, row in rows.items()} == {
        4: ("acknowledged", "trimmed"),
        5: ("undelivered", "trimmed"),
        6: ("undelivered", "present"),
    }


def test_an_end_that_is_still_being_written_has_not_happened(witnessed_86: Witnessed) -> None:
    witnessed_86.add(2)
    witnessed_86.create()
    witnessed_86.read(2)
    witnessed_86.acknowledge(1)
    written = witnessed_86.proofs()
    [file] = witnessed_86.directory.glob("*.incr.aof")
    whole = file.read_bytes()
    for end in range(len(whole) - 20, len(whole)):
        acts = read_acts(io.BytesIO(whole[:end]), may_be_cut=True)
        assert [b"XACK", b"orders", b"workers", b"1-0"] not in [one for act in acts for one in act]
    assert written == {1: "acknowledged", 2: None}


def test_a_transaction_without_an_end_has_not_happened() -> None:
    data = _commands(["SET", "a", "1"], ["MULTI"], ["SET", "b", "1"])
    assert _read(data) == [[[b"SET", b"a", b"1"]]]
    assert len(_read(data + _commands(["EXEC"]))) == 2


@pytest.mark.parametrize("block", range(1, 60))
def test_time_stamps_are_found_wherever_a_block_ends(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pelops.pipeline.evidence.append_only_files._BLOCK", block)
    data = b"#TS:5\r\n" + _commands(["SET", "a", "\r\n#TS:6\r\n"]) + b"#TS:7\r\n"
    data += _commands(["MULTI"], ["SET", "#TS:8\r\n", "#"]) + b"#TS:9\r\n" + _commands(["EXEC"])
    assert _read(data) == [
        [[b"#TS:", b"5"]],
        [[b"SET", b"a", b"\r\n#TS:6\r\n"]],
        [[b"#TS:", b"7"]],
        [[b"#TS:", b"9"]],
        [[b"SET", b"#TS:8\r\n", b"#"]],
    ]


@pytest.mark.parametrize(
    "data", [b"hello\r\n", b"$3\r\nabc\r\n", b"*1\r\n:1\r\n*0\r\n", b"\0" * 100]
)
def test_a_damaged_file_is_refused_and_named(data: bytes, witnessed_86: Witnessed) -> None:
    witnessed_86.add(1)
    [file] = witnessed_86.directory.glob("*.incr.aof")
    with file.open("ab") as writing:
        writing.write(data + _commands(["PING"]))
    with pytest.raises(EvidenceUnusable, match=r"incr\.aof"):
        witnessed_86.evidence()


def test_only_the_last_file_may_be_cut() -> None:
    data = _commands(["SET", "a", "1"])
    for end in range(1, len(data)):
        with pytest.raises(EvidenceUnusable, match="ends within a command"):
            list(read_acts(_named(data[:end]), may_be_cut=False))


def test_a_directory_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceUnusable, match="appenddirname"):
        Witnessed.evidence(_Elsewhere(tmp_path))  # type: ignore[arg-type]


def test_a_missing_file_is_named(witnessed_86: Witnessed) -> None:
    [file] = witnessed_86.directory.glob("*.incr.aof")
    file.unlink()
    with pytest.raises(EvidenceUnusable, match=r"incr\.aof is missing"):
        witnessed_86.evidence()


def test_a_gap_in_the_files_ends_the_history() -> None:
    listed = [_file("b.3.base.rdb", 3, "b"), _file("b.1.base.rdb", 1, "h")]
    listed += [_file(f"i.{number}.incr.aof", number, "h") for number in (1, 3)]
    listed += [_file("i.4.incr.aof", 4, "i")]
    chain = choose_chain(listed, with_history=True)
    assert [one.name for one in chain] == ["i.3.incr.aof", "i.4.incr.aof"]
    assert [one.name for one in choose_chain(listed, with_history=False)] == [
        "b.3.base.rdb",
        "i.4.incr.aof",
    ]


def _live_through_a_rewrite(witnessed: Witnessed) -> None:
    """Entry 1 is acknowledged before it, 2 and 3 are pending, 4 waits; 5 and 6 come after it."""
    witnessed.add(4)
    witnessed.create()
    witnessed.read(3)
    witnessed.acknowledge(1)
    witnessed.rewrite()
    witnessed.ask("XCLAIM", "orders", "workers", "b", 0, "2-0", "3-0", "JUSTID")
    witnessed.acknowledge(2, 3)
    witnessed.add(2)
    witnessed.ask("XDEL", "orders", "4-0")
    witnessed.read(1)
    witnessed.acknowledge(5)


class _Elsewhere:
    def __init__(self, directory: Path) -> None:
        self.directory = directory


def _file(name: str, number: int, kind: str) -> ListedFile:
    return ListedFile(name=name, number=number, kind=kind)


def _commands(*commands: list[str]) -> bytes:
    return b"".join(
        b"*%d\r\n" % len(words)
        + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
        for words in commands
    )


def _named(data: bytes) -> Any:
    file = io.BytesIO(data)
    file.name = "a.incr.aof"
    return file


def _read(data: bytes) -> list[list[list[bytes]]]:
    return list(read_acts(_named(data), may_be_cut=True))


@pytest.mark.parametrize(
    "data",
    [
        b"+card 4929 1234 5678\r\n",
        b"$9\r\n4929 1234\r\n",
        b"*2\r\n$6\r\nSELECT\r\n$9\r\n4929 1234\r\n",
    ],
)
def test_an_error_about_a_file_shows_no_payload(data: bytes, witnessed_86: Witnessed) -> None:
    witnessed_86.add(1)
    (file,) = witnessed_86.directory.glob("*.incr.aof")
    with file.open("ab") as end:
        end.write(data)
    try:
        witnessed_86.evidence()
    except EvidenceUnusable as error:
        chain: BaseException | None = error
        while chain is not None:
            assert "4929" not in str(chain)
            chain = chain.__cause__
    else:
        pytest.fail("what no server writes was taken")
