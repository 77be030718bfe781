"""Label selectors in both of their forms."""

import pytest

from pelops.kube.workload_observation import (
    Requirement,
    Selector,
    parse_label_selector,
    parse_selector,
)

LABELS = {"app": "orders", "tier": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("app=orders", True),
        ("app==orders", True),
        ("app = orders , tier", True),
        ("app!=orders", False),
        ("other!=x", True),
        ("app in (a, orders)", True),
        ("app notin (orders)", False),
        ("other notin (x,y)", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("tier=", True),
        ("app in (orders),!tier", False),
        ("", False),
        (",", False),
    ],
)
def test_a_selector_in_text_selects(text: str, expected: bool) -> None:
    assert parse_selector(text).matches(LABELS) is expected


def test_a_label_selector_keeps_all_its_requirements() -> None:
    selector = parse_label_selector(
        {
            "matchLabels": {"tier": "web", "app": "orders"},
            "matchExpressions": [
                {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert str(selector) == "app=orders,tier=web,zone notin (a,b),!old"
    assert parse_selector(str(selector)) == selector


@pytest.mark.parametrize("empty", [None, {}, {"matchLabels": None, "matchExpressions": None}])
def test_an_empty_selector_selects_nothing(empty: dict[str, None] | None) -> None:
    assert parse_label_selector(empty) == Selector()
    assert not parse_label_selector(empty).matches(LABELS)


def test_only_a_single_value_is_required() -> None:
    several = Selector((Requirement("app", "In", ("a", "b")), Requirement("app", "Exists")))
    assert several.required_value("app") is None
    assert parse_selector("tier,app=a").required_value("app") == "a"
