"""What an error quotes of an entry does not get into a dead letter."""

import json

import pydantic
import pytest

from pelops.worker import Reject, Retry, RetryPolicy
from pelops.worker.entry import Arrival, Entry, Terms
from pelops.worker.outcomes import REPORTED_AT_MOST
from pelops.worker.redaction import Redact, cause_of, describe_failure
from pelops.worker.server.adapter import DeliverySource
from pelops.worker.testing import MemoryGroup

CARD = "4929 1234 5678 9012"
ORDER = json.dumps({"card": CARD, "customer_id": 90210, "note": "call before you deliver, please"})


def entry_of(*pairs: bytes) -> Entry:
    terms = Terms(lambda: 0.0, 30.0)
    return Entry(Arrival(b"orders", DeliverySource.NEW, 0.0, terms), [b"17-1", list(pairs), 0, 0])


def shown(error: BaseException, *entries: Entry) -> str:
    return describe_failure(error, entries or (entry_of(b"order", ORDER.encode()),), None)


class Order(pydantic.BaseModel):
    card: int


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("no such customer", "ValueError: no such customer"),
        (f"invalid literal: '{CARD}'", "ValueError: invalid literal: '[...]'"),
        ("customer_id 90210 is blocked", "ValueError: customer_id [...] is blocked"),
        ("customer_id 902101 is blocked", "ValueError: customer_id 902101 is blocked"),
        ("input_value='call before you del...'", "ValueError: input_value='[...]...'"),
        (f"got {ORDER}", "ValueError: got [...]"),
    ],
)
def test_what_a_message_quotes_of_the_entry_is_taken_out(message: str, text: str) -> None:
    assert shown(ValueError(message)) == text


def test_a_field_that_is_no_json_is_taken_out_too() -> None:
    entry = entry_of(b"name", "Zoë O'Neil".encode(), b"raw", b"\xff\xfe\xfdsecret")
    assert shown(ValueError("Zoë O'Neil is unknown"), entry) == "ValueError: [...] is unknown"
    assert shown(KeyError("Zoë O'Neil"), entry) == 'KeyError: "[...]"'
    assert "secret" not in shown(ValueError(str(entry["raw"])), entry)


def test_an_error_of_validation_names_places_and_kinds_alone() -> None:
    with pytest.raises(pydantic.ValidationError) as raised:
        Order.model_validate_json(ORDER)
    assert shown(raised.value) == "ValidationError: card: int_parsing"


def test_a_batch_hides_what_its_other_entries_hold() -> None:
    one, other = entry_of(b"card", b"4000-1"), entry_of(b"card", b"4000-2")
    assert shown(ValueError("4000-1, then 4000-2"), one, other) == "ValueError: [...], then [...]"


def test_for_an_entry_too_large_to_search_only_the_type_is_recorded() -> None:
    entry = entry_of(b"blob", b"x" * 200_000)
    assert shown(ValueError("anything"), entry) == "ValueError: [...]"


def test_words_of_a_rejection_are_treated_alike() -> None:
    assert shown(Reject("Card", f"{CARD} is stolen")) == "[...] is stolen"


def test_the_cause_is_recorded_where_an_error_has_no_text() -> None:
    error, cause = Reject("Card"), ValueError("x")
    error.__cause__ = cause
    assert cause_of(error) is cause
    assert cause_of(Retry()).args == Retry().args
    assert cause_of(Reject("Card", "stolen")).args == ("Card: stolen",)


def test_a_text_is_of_bounded_length() -> None:
    entry = entry_of(b"a", b"1")
    assert len(shown(ValueError("y" * 10_000), entry)) == REPORTED_AT_MOST
    assert len(describe_failure(ValueError(), [entry], lambda _: "z" * 10_000)) == REPORTED_AT_MOST
    assert describe_failure(ValueError(), [entry], lambda _: "\ud800") == "?"


@pytest.mark.parametrize("answer", [None, 5, ValueError("of the function")])
def test_a_failing_redaction_function_leaves_only_the_type(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    def redact(error: BaseException) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    assert describe_failure(ValueError(CARD), (), redact) == "ValueError"
    assert CARD not in caplog.text and "of the function" not in caplog.text


class BadText(Exception):
    def __str__(self) -> str:
        raise RuntimeError(CARD)


def test_an_error_without_a_text_is_recorded_by_its_type() -> None:
    assert shown(BadText()) == "BadText"


@pytest.mark.parametrize("redact", [None, lambda error: f"hidden {type(error).__name__}"])
@pytest.mark.parametrize("in_batches", [False, True])
def test_dead_letters_and_logs_of_a_worker_contain_no_payload(
    in_batches: bool, redact: Redact | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    group = MemoryGroup()
    group.add({"order": ORDER})
    worker = group.worker(retry=RetryPolicy(max_retries=1), redact=redact)

    def fail(value: bytes) -> None:
        raise ValueError(f"{value.decode()} is no order, nor is {CARD}")

    class Batches:
        async def handle_batch(self, entries: list[Entry]) -> None:
            fail(entries[0]["order"])

    worker.handler(Batches() if in_batches else lambda entry: fail(entry["order"]))
    group.run(worker)
    (letter,) = group.dead_letters
    usual = "ValueError: [...] is no order, nor is [...]"
    shown = letter[b"_error"].decode()
    assert shown == ("hidden ValueError" if redact else usual)
    assert "4929" not in caplog.text
