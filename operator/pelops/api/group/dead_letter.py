"""Where entries end: dead letters, and the retention of the stream."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from pelops.api.schema.base import ApiModel, Rule, RuleReason, cel
from pelops.api.schema.bounds import MAX_SECONDS, KeyName, PositiveCount

# Their last words are those of `DerivedKey`, but for the dead letters.
_STREAM_RULES = cel(
    Rule(
        rule="!self.matches('^[{][^}]+[}](:[^:]+)?:[^:]+"
        ":(ledger|state|started|retry|handover|audit)$')",
        message="deadLetter.stream must not be a key that Pelops keeps for a group: its ledger,"
        " state, started, retry, handover or audit key",
    )
)


class DeadLetterSpec(ApiModel):
    """Where entries go that cannot be processed, and for how long they are kept."""

    stream: Annotated[KeyName, Field(json_schema_extra=_STREAM_RULES)] | None = Field(
        default=None,
        description="The dead-letter stream. Absent: {STREAM}:GROUP:dlq, in the hash slot of the"
        " stream. Another one must be in that slot too when Redis is a Cluster, and must not be a"
        " key that Pelops keeps for a group, such as its ledger.",
    )
    retention_seconds: Annotated[int, Field(ge=60, le=MAX_SECONDS)] = Field(
        default=1_209_600,
        description="For how long a dead letter is kept; two weeks unless said. Dead letters are"
        " dropped by age only, never because there are many.",
    )


class RetentionSpec(ApiModel):
    """How long the stream remembers entries that no group needs any more."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="has(self.maxLength) || has(self.maxAgeSeconds)",
                message="retention needs maxLength or maxAgeSeconds, or both",
                reason=RuleReason.REQUIRED,
            )
        )
    )

    max_length: PositiveCount | None = Field(
        default=None,
        description="Keep about this many entries; older ones go once no group needs them.",
    )
    max_age_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = Field(
        default=None,
        description="Keep entries for this long; older ones go once no group needs them.",
    )
