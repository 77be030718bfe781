"""What scripts write to the ledger and to dead letters is what Python declares."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from pelops.domain.records.ledger import ENTRY_WORDS, EVENT_FIELDS, LETTER_FIELDS, LedgerKind
from pelops.scripts.declaration import (
    OPERATOR_SCRIPTS,
    WORKER_SCRIPTS,
    list_scripts,
    read_declaration,
    read_include,
)

_NAME = re.compile(r"(?<![\w.])(\w+) = ")
_EVENT = re.compile(r"(?:ledger_event|record)\((?:'([a-z-]+)'|kind)[^{}()]*\{(.*?)\}", re.DOTALL)


def sources() -> list[str]:
    """Every Lua text, includes among them."""
    folders = [files(one).joinpath("lua") for one in (OPERATOR_SCRIPTS, WORKER_SCRIPTS)]
    folders += [one.joinpath("include") for one in folders]
    return [
        one.read_text("utf-8")
        for folder in folders
        for one in folder.iterdir()
        if one.name.endswith(".lua")
    ]


def test_every_event_kind_has_its_fields_and_a_script_writing_it() -> None:
    assert set(EVENT_FIELDS) == set(LedgerKind)
    texts = "".join(sources())
    for kind in LedgerKind:
        assert f"'{kind}'" in texts


def test_an_event_has_no_field_that_is_not_declared() -> None:
    found = 0
    for text in sources():
        for kind, fields in _EVENT.findall(text):
            allowed = EVENT_FIELDS[LedgerKind(kind or "requeued")]
            assert set(_NAME.findall(fields)) <= set(allowed), kind
            found += 1
    assert found >= 14


def test_no_script_spells_an_event_out() -> None:
    for text in sources():
        assert not re.search(r"'kind', '[a-z-]+'", text)
        assert not re.search(r"'XADD', ledger, '\*', (?!unpack\(ledger_event\()", text)


def test_a_dead_letter_has_the_declared_fields_in_their_order() -> None:
    text = read_include("dead_letter")
    values = re.search(r"local values = \{(.*?)\n  \}", text, re.DOTALL)
    assert values is not None
    assert tuple(_NAME.findall(values[1])) == LETTER_FIELDS


@pytest.mark.parametrize("package", [OPERATOR_SCRIPTS, WORKER_SCRIPTS])
def test_lua_has_what_is_declared(package: str) -> None:
    writing = [read_declaration(name, package).text for name in list_scripts(package)]
    events = [text for text in writing if "ledger_event(" in text]
    assert events
    for text in events:
        assert text.count("local function ledger_fields(kind)") == 1
        assert f"local function ledger_entry({', '.join(ENTRY_WORDS)})" in text
        for kind, names in EVENT_FIELDS.items():
            assert f"['{kind}'] = '{' '.join(names)}'," in text
