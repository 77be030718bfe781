"""Whose a consumer is, by its name (rule A4 of the recovery protocol)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pelops.domain.recovery import GonePod, OwnerMatch
from pelops.domain.workload import PodObservation
from pelops.policy.recovery.owners import Owners
from tests.builders import pod

UID = "3f2b8c1e-0a4d-4c6f-9b1e-5d7a2c8e9f10"
OTHER = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
NAME = "web-7d9f-abcde"
LONG = "checkout-with-a-name-that-is-longer-than-any-hostname-may-be-7d9f8-x-abcde"


def named(name: str, uid: str = "", hostname: str = "") -> PodObservation:
    return pod(name=name, uid=uid or f"uid-of-{name}", hostname=hostname or name[:63].rstrip("-."))


def gone(name: str, uid: str = "") -> GonePod:
    return GonePod(pod=named(name, uid), labels={}, seen_gone=0.0)


def match_owner(
    consumer: str, pods: Iterable[PodObservation], ended: Iterable[GonePod] = ()
) -> OwnerMatch:
    return Owners(pods, ended).match(consumer)


def names(match: OwnerMatch) -> list[str]:
    return [one.name for one in match.pods] + [one.pod.name for one in match.gone]


@pytest.mark.parametrize(
    "consumer",
    [
        NAME,
        f"{NAME}-12345",
        f"{NAME}:{UID}",
        f"app@{NAME}",
        f"{NAME}.orders.shop.svc",
        f"orders/{NAME}/3",
        f"worker_{NAME}_0",
        f"é{NAME}é",
        f"{NAME}-{OTHER}",
        f"{OTHER}@{NAME}",
    ],
)
def test_a_consumer_belongs_to_the_pod_whose_delimited_name_it_contains(consumer: str) -> None:
    assert names(match_owner(consumer, [named(NAME, UID)])) == [NAME]
    assert names(match_owner(consumer, [], [gone(NAME, UID)])) == [NAME]


def test_a_hostname_truncated_to_63_characters_matches_its_pod() -> None:
    assert len(LONG) > 63
    assert names(match_owner(LONG[:63].rstrip("-."), [named(LONG)])) == [LONG]
    assert names(match_owner("chosen-17", [named(NAME, hostname="chosen")])) == [NAME]


@pytest.mark.parametrize(
    "consumer", ["web-10", "xweb-1", "web-1a", "WEB-1", "web", "1", "", "worker-1", "laptop"]
)
def test_a_name_with_only_an_equal_prefix_or_suffix_is_unknown(consumer: str) -> None:
    match = match_owner(consumer, [named("web-1")], [gone("web-1")])
    assert match.is_unknown
    assert names(match) == []


def test_the_longest_name_wins() -> None:
    pods = [named("web-1"), named("web-1-canary-x")]
    assert names(match_owner("web-1-canary-x", pods)) == ["web-1-canary-x"]
    assert names(match_owner("web-1-canary-x-77", [], [gone("web-1"), gone("web-1-canary-x")])) == [
        "web-1-canary-x"
    ]
    assert names(match_owner("web-1-33", pods)) == ["web-1"]


def test_the_longer_name_of_a_foreign_pod_matches_no_shorter_name() -> None:
    owners = Owners([named("web-1")], is_stranger=lambda name: name == "web-1-canary-x")
    match = owners.match("web-1-canary-x")
    assert match.is_unknown
    assert match.is_strangers
    assert names(owners.match("web-1")) == ["web-1"]


def test_several_pods_of_equally_long_names_are_all_meant() -> None:
    assert names(match_owner("web-1+web-2", [named("web-1"), named("web-2")])) == ["web-1", "web-2"]


def test_a_name_matches_a_pod_and_its_predecessors_of_that_name() -> None:
    match = match_owner("web-1", [named("web-1", "second")], [gone("web-1", "first")])
    assert [one.uid for one in match.pods] == ["second"]
    assert [one.pod.uid for one in match.gone] == ["first"]
    assert not match.is_by_uid


def test_a_uid_decides_alone_whatever_pod_has_the_name_now() -> None:
    match = match_owner(f"web-1:{UID}", [named("web-1", OTHER)], [gone("web-1", UID)])
    assert match.pods == ()
    assert [one.pod.uid for one in match.gone] == [UID]
    assert match.is_by_uid


def test_a_consumer_with_an_unknown_uid_belongs_to_a_vanished_pod() -> None:
    match = match_owner(f"web-1:{UID}", [named("web-1", OTHER)])
    assert names(match) == []
    assert match.vanished_uid == UID
    assert not match.is_unknown


@pytest.mark.parametrize("consumer", [f"worker-{UID}", UID, f"Laptop:{UID}", f"a:b:{UID}"])
def test_an_identifier_that_users_made_up_is_no_pods(consumer: str) -> None:
    # One process each, and alive though no pod has ever had such a uid.
    assert match_owner(consumer, [named(NAME)]).is_unknown


def test_a_name_of_any_length_and_shape_is_answered() -> None:
    for consumer in ("-" * 5000, "a-" * 5000, "a." * 500, "\udcff", "\0", "-", ":"):
        assert match_owner(consumer, [named("web-1")]).is_unknown
