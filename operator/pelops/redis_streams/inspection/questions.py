"""Questions about a group and their answers, as JSON.

The command line sends a question to the operator through its socket or its HTTP endpoint, or
answers it itself by reading Redis.

    {"command": "why", "namespace": "shop", "name": "orders", "id": "1760000000000-0"}
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.domain.records.inspection import Answer, Document, render_answer
from pelops.domain.records.json_codec import Codec, ValueLimits
from pelops.redis_streams.inspection.dead_letters import (
    list_letters,
    read_letters_page,
    show_letter,
)
from pelops.redis_streams.inspection.entry_history import explain_entry, explain_match
from pelops.redis_streams.inspection.group_view import GroupInspection
from pelops.redis_streams.inspection.pending_entries import list_by_age, list_by_consumer

QUESTION_LIMIT: Final = 64 * 1024  # bytes
TOKEN_LIMIT: Final = 16 * 1024  # characters


class QuestionKind(StrEnum):
    """The kind of a question."""

    WHY = "why"
    PENDING = "pending"
    LETTERS = "dlq-list"
    LETTER = "dlq-show"
    EXPORT = "dlq-export"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question about one group."""

    command: QuestionKind
    namespace: str = ""  # of the StreamConsumerGroup
    name: str = ""
    # Of an entry or of a dead letter; of `dlq-export`: the last one of the page before.
    id: str = ""
    field: str = ""  # `why`: the name of a field, and with it
    value: str = ""  # the value that is searched for
    letter: bool = False  # the ID is a dead letter's
    discarded: bool = False  # the discarded dead letters instead
    deep: bool = False  # search more
    payload: bool = False  # answer the values of fields as well
    by_age: bool = False  # `pending`: a line for each entry instead of each consumer
    # Of the user who asks; over HTTP only.
    token: Annotated[str, ValueLimits(max_length=TOKEN_LIMIT)] = dataclasses.field(
        default="", repr=False
    )
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    @property
    def reads_payloads(self) -> bool:
        """Whether the answer reveals something about the values of fields."""
        return self.payload or bool(self.field)

    @property
    def entry_id(self) -> EntryId:
        """The ID. Raises InvalidEntryId."""
        return parse_entry_id(self.id)


_QUESTIONS: Final = Codec(Question, "the question", limit=QUESTION_LIMIT)


def parse_question(text: str | bytes) -> Question:
    """The question from a JSON text. Raises InvalidSpec for anything else."""
    return _QUESTIONS.parse(text)


async def answer_question(inspection: GroupInspection, question: Question) -> Document:
    """The answer. Raises NoSuchEntry, InvalidEntryId, and as every read of Redis does."""
    return render_answer(await _answer(inspection, question))


async def _answer(inspection: GroupInspection, question: Question) -> Answer:
    match question.command:
        case QuestionKind.WHY if question.field:
            return await explain_match(
                inspection, question.field, question.value, deep=question.deep
            )
        case QuestionKind.WHY:
            return await explain_entry(
                inspection, question.entry_id, is_letter=question.letter, deep=question.deep
            )
        case QuestionKind.PENDING if question.by_age:
            return await list_by_age(inspection)
        case QuestionKind.PENDING:
            return await list_by_consumer(inspection)
        case QuestionKind.LETTERS:
            return await list_letters(inspection, deep=question.deep)
        case QuestionKind.LETTER:
            return await show_letter(inspection, question.entry_id, is_discarded=question.discarded)
        case QuestionKind.EXPORT:
            after = question.entry_id if question.id else None
            return await read_letters_page(inspection, after=after, is_discarded=question.discarded)
