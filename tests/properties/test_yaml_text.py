"""The YAML that the command line writes is what a YAML parser reads."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from pelops.cli.display.yaml_text import render_yaml

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(
        ["on", "No", "~", "1.5", "0x1", "\x7f", "2026-05-04", "a: b", "- a", "null", "=", "<<"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc#: -\n1", max_size=5), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_yaml_is_read_as_the_value_that_was_written(value: object) -> None:
    assert yaml.safe_load(render_yaml(value)) == value
