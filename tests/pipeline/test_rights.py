"""A whole audit under exactly the rights that `pelops acl --role auditor` prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pelops.domain.outcome import EntryStatus
from pelops.domain.records.audit import TOTALS_PREFIX, AuditEvidence
from pelops.pipeline.session import LazySession
from pelops.pipeline.settings import ArchivedPayload, read_place
from pelops.redis_streams.access import UserRole, acl_rules
from tests.pipeline.audited import FIRST_MS, Audited, by_password_file, changed

NAME = "shop/nightly"
# What clients ask of any server, and do without.
OWN_ACCORD = {"client|setinfo", "cluster|slots"}


@pytest.fixture(params=[pytest.param("redis_70", marks=pytest.mark.full), "redis_86"])
def restricted(
    request: pytest.FixtureRequest, lazy_spark: LazySession, key_prefix: str, tmp_path: Path
) -> Iterator[Audited]:
    """A stream and a group, and audits of them by a user who may do no more than an auditor."""
    servers = request.getfixturevalue(request.param)
    with Audited(lazy_spark, servers, key_prefix, tmp_path / "archive") as audited:
        user = f"auditor-{abs(hash(key_prefix))}"
        rules = acl_rules(audited.keys, UserRole.AUDITOR)
        audited.client.execute_command("ACL", "SETUSER", user, "on", ">secret", *rules)
        audited.client.execute_command("ACL", "LOG", "RESET")
        place = read_place({}, f"redis://{user}:secret@127.0.0.1:{audited.port}/0")
        place = by_password_file(place, tmp_path)
        audited.settings = changed(
            audited.settings, place=place, name=NAME, payload=ArchivedPayload.FULL
        )
        yield audited
        audited.client.execute_command("ACL", "DELUSER", user)


def test_an_auditor_needs_no_other_right_and_writes_one_key(restricted: Audited) -> None:
    audited = restricted
    _live(audited)
    before = _keys(audited)
    summary = audited.audit_one()
    assert summary.evidence is AuditEvidence.LEDGER
    assert summary.counts[EntryStatus.DEAD_LETTERED] == 1
    assert summary.counts[EntryStatus.REQUEUED] == 1
    audited.add(5)
    assert audited.audit_one().produced == 5
    assert _refused(audited) == set()
    assert _keys(audited) - before == {audited.keys.audit}
    assert f"{TOTALS_PREFIX}{NAME}".encode() in audited.client.hgetall(audited.keys.audit)


def _live(audited: Audited) -> None:
    """A bit of everything that an audit reads: a ledger, copies, dead letters, pending entries."""
    keys = audited.keys
    audited.create_group()
    ids = audited.add(200)
    audited.deliver(150)
    audited.acknowledge(*ids[:100])
    audited.client.xgroup_create(keys.retry, keys.group, id="0", mkstream=True)
    copy = f"{FIRST_MS + 50}-0"
    pairs = ("number", 0, "_original_id", ids[0], "_retry_count", 1)
    audited.client.execute_command("XADD", keys.retry, copy, *pairs)
    audited.client.execute_command("XADD", keys.dead_letter, "*", "number", 1, "_reason", "Poison")
    audited.record("bookmark", "entries_added", 200, "last_generated", ids[-1])
    audited.record("requeued", "target", keys.retry, ids[0], f"{copy} {ids[0]} 1 1 40")
    audited.record("dead-lettered", "reason", "Poison", ids[1], f"9-9 {ids[1]} 3 4 70")


def _keys(audited: Audited) -> set[str]:
    found = audited.client.scan_iter(match=f"*{audited.keys.tag}*")
    return {key.decode() for key in found}


def _refused(audited: Audited) -> set[str]:
    """The commands and keys that were refused, as the server has logged them."""
    log = audited.client.execute_command("ACL", "LOG")
    return {one[b"object"].decode() for one in log} - OWN_ACCORD
