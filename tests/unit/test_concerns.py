"""What several kinds declare of the same objects: each hears of its own resources alone."""

from __future__ import annotations

import logging

import pytest

from pelops.controller.runtime.cache import (
    Cache,
    Concern,
    Name,
    ObjectChange,
    concern_itself,
    keep_nothing,
)
from pelops.kube.client import Kind, Manifest
from tests.cached_objects import build

SHELF, BOOK, CARD = (
    Kind(group="pelops.dev", version="v1", kind=kind, plural=f"{kind.lower()}s")
    for kind in ("Shelf", "Book", "Card")
)
ATLAS: Name = ("shop", "atlas")


def break_down(_: ObjectChange) -> set[Name]:
    raise ValueError("a mistake of ours")


def keep_uid(manifest: Manifest) -> Manifest:
    return {"metadata": {"uid": manifest["metadata"]["uid"]}}


def follow_cards(cache: Cache, owner: Kind) -> None:
    """A resource of this kind is due when the card of its name changes."""
    cache.follow(owner, concern_itself(owner), Concern(kind=CARD, find=lambda one: {one.name}))


def listen(cache: Cache) -> list[tuple[Kind, Kind, set[Name]]]:
    """What is announced from now on: the kind that is due, the kind that changed, the names."""
    reported: list[tuple[Kind, Kind, set[Name]]] = []
    for owner in (SHELF, BOOK):
        cache.listen(owner, lambda kind, names, owner=owner: reported.append((owner, kind, names)))  # type: ignore[misc]
    return reported


def test_one_object_makes_resources_of_several_kinds_due() -> None:
    cache = Cache()
    follow_cards(cache, SHELF)
    follow_cards(cache, BOOK)
    reported = listen(cache)
    cache.handle_event(CARD, build("atlas"), False)
    assert reported == [(SHELF, CARD, {ATLAS}), (BOOK, CARD, {ATLAS})]


def test_a_write_makes_all_loops_due_except_the_writer() -> None:
    cache = Cache()
    follow_cards(cache, SHELF)
    follow_cards(cache, BOOK)
    reported = listen(cache)
    assert cache.put_answer(CARD, build("atlas"), writer=BOOK) == {ATLAS}
    assert cache.remove_deleted(CARD, ATLAS, writer=SHELF) == {ATLAS}
    assert reported == [(SHELF, CARD, {ATLAS}), (BOOK, CARD, {ATLAS})]


def test_a_mistake_in_one_kind_hides_nothing_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = Cache()
    cache.follow(SHELF, Concern(kind=CARD, find=break_down))
    follow_cards(cache, BOOK)
    reported = listen(cache)
    with caplog.at_level(logging.ERROR):
        cache.handle_event(CARD, build("atlas"), False)
        cache.handle_event(CARD, build("atlas"), True)
    assert reported == [(BOOK, CARD, {ATLAS}), (BOOK, CARD, {ATLAS})]
    assert ATLAS not in cache.objects(CARD)
    assert [one.getMessage() for one in caplog.records] == [
        "Could not find the shelfs that depend on the Card shop/atlas"
    ] * 2


@pytest.mark.parametrize("others", [keep_nothing, keep_uid], ids=["nothing", "a part"])
def test_the_whole_object_is_kept_if_one_kind_needs_it(others: object) -> None:
    cache = Cache()
    cache.follow(SHELF, Concern(kind=CARD, find=lambda _: set(), keep=others))  # type: ignore[arg-type]
    follow_cards(cache, BOOK)
    cache.put(CARD, build("atlas", spec={"text": "a"}))
    assert cache.objects(CARD)[ATLAS]["spec"] == {"text": "a"}


def test_a_part_is_kept_though_others_need_nothing() -> None:
    cache = Cache()
    cache.follow(SHELF, Concern(kind=CARD, find=lambda _: set(), keep=keep_nothing))
    cache.follow(BOOK, Concern(kind=CARD, find=lambda _: set(), keep=keep_uid))
    cache.put(CARD, build("atlas", spec={"text": "a"}))
    assert cache.objects(CARD)[ATLAS] == {"metadata": {"uid": "uid-atlas"}}
