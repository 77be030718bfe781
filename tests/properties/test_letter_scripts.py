"""Invariant 14 on real servers: no entry goes that Pelops has not written for that group,
whatever is in a stream before, and whatever provisions, adopts, releases, expires or destroys.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from pelops.domain.entry_id import EntryId
from pelops.domain.naming import GroupKeys, derive_keys
from pelops.errors import PelopsError
from pelops.redis_streams.group.lifecycle import destroy_group, provision_group, release_group
from pelops.redis_streams.group.maintenance import expire_dead_letters, trim_retry_stream
from tests.integration.redis_adapter import an_owner
from tests.integration.retaining import letter_pairs
from tests.properties.server_adapter import ServerAdapter
from tests.redis_fixtures import on_newest_unless_full

pytestmark = on_newest_unless_full

_NUMBERS = count()
OLD_MS: Final = 1_700_000_000_000
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("provision", "release", "expire", "trim", "destroy", "add", "read")),
        st.integers(0, 1),
        st.sampled_from(("mine", "other", "none")),
    ),
    max_size=14,
)


async def _step(adapter: ServerAdapter, what: str, keys: GroupKeys, uid: str) -> None:
    server, owner = adapter.server, an_owner(uid)
    if what == "provision":
        await provision_group(server, keys, start=EntryId.MIN, owner=owner, with_retry=True)
    elif what == "release":
        await release_group(server, keys, owner)
    elif what == "destroy":
        await destroy_group(server, keys, owner)
    elif what == "trim":
        await trim_retry_stream(server, keys, owner)
    elif what == "read":
        await server.execute("XGROUP", "CREATE", keys.dead_letter, "theirs", "0", "MKSTREAM")
    elif what == "expire":
        await expire_dead_letters(server, keys, owner, kept=timedelta(days=1))


@settings(max_examples=40)
@given(
    before=st.sampled_from(("mine", "other", "none", "nothing")),
    is_taken=st.booleans(),
    steps=STEPS,
)
def test_invariant_14_only_our_own_dead_letters_go(
    adapter: ServerAdapter, before: str, is_taken: bool, steps: list[tuple[str, int, str]]
) -> None:
    tag = f"letters-{next(_NUMBERS)}"
    shared = f"{{{tag}}}:shared"
    groups = [derive_keys(f"{{{tag}}}:{n}", "g", dead_letter=shared) for n in range(2)]
    # Another application's stream, at a key that Pelops would derive for the first group.
    live = groups[0].retry
    numbers = count(1)
    written = {"mine": letter_pairs(groups[0]), "other": letter_pairs(groups[1])}
    strangers: dict[str, set[bytes]] = {shared: set(), live: set()}

    def add(key: str, kind: str) -> None:
        entry_id = f"{OLD_MS}-{next(numbers)}"
        adapter.ask("XADD", key, entry_id, *written.get(kind, ["f", "v"]))
        if kind not in written:
            strangers[key].add(entry_id.encode())

    if is_taken:
        add(live, "none")
    first = [] if before == "nothing" else [("add", 0, before)]
    for what, which, kind in (*first, *steps):
        if what == "add":
            add(shared, kind)
        else:
            with suppress(PelopsError):
                adapter.wait(_step(adapter, what, groups[which], f"uid-{which}"))
        for key, ids in strangers.items():
            assert ids <= {one for one, _ in adapter.ask("XRANGE", key, "-", "+")}
