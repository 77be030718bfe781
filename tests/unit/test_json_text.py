"""What users nest deeply is cut before it is parsed, and a LIST is read item by item."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelops.kube.json_text import (
    MOST_DEPTH,
    TOO_DEEP,
    ListText,
    cut_depth,
    cut_value,
    is_too_deep,
    parse_json,
)


def nested(depth: int, *, opening: str = '{"a":', closing: str = "}") -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@pytest.mark.parametrize("depth", [1, MOST_DEPTH, MOST_DEPTH + 1, 1_100, 10_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('[{"]":', "}]")])
def test_texts_nested_deeper_than_the_limit_are_found(
    depth: int, opening: str, closing: str
) -> None:
    levels = depth * len(closing)
    assert is_too_deep(nested(depth, opening=opening, closing=closing)) is (levels > MOST_DEPTH)


@pytest.mark.parametrize("depth", [MOST_DEPTH + 1, 1_100, 100_000])
async def test_what_lies_too_deep_is_replaced_and_all_else_stays(depth: int) -> None:
    text = b'{"before":[1,{"x":"]}"}],"deep":' + nested(depth) + b',"after":{"y":[]}}'
    value = await parse_json(text)
    assert (value["before"], value["after"]) == ([1, {"x": "]}"}], {"y": []})
    assert depth_of(value) == MOST_DEPTH
    assert TOO_DEEP in json.dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        '"' + "[" * 500 + '"',
        '"\\"' + "{" * 500 + '"',
        '"' + "\\\\" * 3 + '"',
        '"\\n\\\\\\"' + "[" * 99,
    ],
)
def test_brackets_within_strings_do_not_count(text: str) -> None:
    whole = json.dumps({"a": [text], "b": {text: text}}).encode()
    assert not is_too_deep(whole)
    assert cut_depth(whole) == whole


values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a"\\{}[]\n\u00e9', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='a"\\{}[]', max_size=4), inner, max_size=3)
    ),
    max_leaves=20,
)


@given(values, st.integers(0, MOST_DEPTH + 8), st.booleans())
def test_any_value_is_judged_by_its_depth_alone(value: Any, more: int, is_ascii: bool) -> None:
    for _ in range(more):
        value = [value, '"[']
    text = json.dumps(value, ensure_ascii=is_ascii).encode()
    assert is_too_deep(text) is (depth_of(value) > MOST_DEPTH)
    cut = json.loads(cut_depth(text))
    assert depth_of(cut) <= MOST_DEPTH
    assert cut_value(json.loads(text)) == cut
    if depth_of(value) <= MOST_DEPTH:
        assert cut_depth(text) == text


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_a_list_is_read_item_by_item_wherever_its_metadata_is(
    indent: int | None, is_sorted: bool
) -> None:
    items = [{"metadata": {"name": f"one-{number}"}, "items": [1]} for number in range(3)]
    whole = {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items}
    text = ListText(json.dumps(whole, indent=indent, sort_keys=is_sorted))
    assert list(text.items()) == items
    assert text.metadata == {"resourceVersion": "7"}


@pytest.mark.parametrize("items", ["null", "[]"])
def test_an_empty_list_has_no_items(items: str) -> None:
    text = ListText(f'{{"items":{items},"metadata":{{"resourceVersion":"7"}}}}')
    assert list(text.items()) == []
    assert text.metadata == {"resourceVersion": "7"}


@pytest.mark.parametrize("text", ["", "<html>", '{"items":[{"a":1}', '{"items":[{"a":', "[]", "{"])
def test_what_is_no_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        list(ListText(text).items())
