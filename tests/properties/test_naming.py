"""No two consumer groups share a key, and all of one group's lie in a slot, whatever the names."""

from hypothesis import given
from hypothesis import strategies as st

from pelops.domain.naming import derive_keys, escape_glob, key_slot, parse_derived_key

# Small alphabets of what could collide find collisions; any text finds what was not thought of.
RISKY = st.text(alphabet="{}:%a0123AF5dlq", min_size=1, max_size=12)
PARTS = st.lists(
    st.sampled_from(["{", "}", ":", "%", "%3A", "%25", "a", "g", ":dlq", "{a}", "{}", "20658"]),
    min_size=1,
    max_size=6,
).map("".join)
ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
NAME = st.one_of(RISKY, PARTS, ANY)
PAIR = st.tuples(NAME, NAME)


@given(PAIR)
def test_every_derived_key_names_its_stream_and_group(pair: tuple[str, str]) -> None:
    for key in derive_keys(*pair).derived():
        found = parse_derived_key(key)
        assert found is not None
        assert found[:2] == pair


@given(PAIR, PAIR)
def test_two_groups_share_no_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    shared = set(derive_keys(*one).derived()) & set(derive_keys(*other).derived())
    assert bool(shared) == (one == other)


@given(PAIR)
def test_all_keys_of_a_group_lie_in_the_slot_of_its_stream(pair: tuple[str, str]) -> None:
    keys = derive_keys(*pair)
    assert {key_slot(key) for key in keys.derived()} == {key_slot(pair[0])}


@given(PAIR)
def test_a_group_has_ten_keys_and_none_is_its_stream(pair: tuple[str, str]) -> None:
    keys = derive_keys(*pair)
    assert len({keys.stream, *keys.derived()}) == 11


@given(NAME)
def test_a_key_that_reads_as_derived_is_derived(key: str) -> None:
    found = parse_derived_key(key)
    if found is not None:
        stream, group, what = found
        assert f"{derive_keys(stream, group).prefix}:{what}" == key


@given(NAME, NAME)
def test_a_pattern_for_one_name_matches_it_alone(name: str, other: str) -> None:
    pattern = escape_glob(name)
    assert matches(pattern, name)
    blank = dict.fromkeys(map(ord, "\t\n\v\f\r \0"), "?")
    assert matches(pattern, other) == (len(name) == len(other) and _agree(name, other, blank))


def _agree(name: str, other: str, blank: dict[int, str]) -> bool:
    pairs = zip(name.translate(blank), other, name, strict=True)
    return all(mine == theirs or was in "\t\n\v\f\r \0" for mine, theirs, was in pairs)


def matches(pattern: str, text: str) -> bool:
    """What Redis' glob does with a pattern that holds only escapes and question marks."""
    at = 0
    for character in text:
        if at >= len(pattern):
            return False
        if pattern[at] == "\\":
            at += 1
            if pattern[at] != character:
                return False
        elif pattern[at] not in {"?", character}:
            return False
        at += 1
    return at == len(pattern)
