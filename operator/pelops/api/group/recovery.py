"""Where entries go that are stuck, rejected or old: `recovery`, `deadLetter` and `retention`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from pelops.api.schema.base import (
    LONGEST_WAIT_SECONDS,
    MAX_SECONDS,
    ApiModel,
    KeyName,
    PositiveCount,
    Rule,
    RuleReason,
    cel,
)

DEFAULT_GRACE_SECONDS: Final = 30
DEFAULT_MAX_ENTRY_BYTES: Final = 8 * 1024 * 1024
MOST_ENTRY_BYTES: Final = 512 * 1024 * 1024  # the longest value that Redis takes


class RecoveryStrategy(StrEnum):
    """What a scan does with stuck entries.

    "Disabled", since YAML 1.1 reads a bare `Off` as false.
    """

    REQUEUE = "Requeue"
    RETRY_STREAM = "RetryStream"
    RELEASE = "Release"
    DISABLED = "Disabled"


DEFAULT_RECOVERY_STRATEGY: Final = RecoveryStrategy.REQUEUE


class BackoffSpec(ApiModel):
    """Wait of an entry that failed, before it is tried again."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="self.initialSeconds <= self.maxSeconds",
                message="initialSeconds must not be greater than maxSeconds",
                field_path=".initialSeconds",
            )
        )
    )

    initial_seconds: Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = Field(
        default=0,
        description=("Seconds to wait after the first failure of an entry. With 0 no entry waits."),
    )
    factor: Annotated[int, Field(ge=1, le=10)] = Field(
        default=2, description="Factor that multiplies the wait after each further failure."
    )
    max_seconds: Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = Field(
        default=300,
        description="Longest wait, in seconds. It must not be less than initialSeconds.",
    )


_KEY_TEMPLATE_RULES = cel(
    Rule(
        rule=r"self.matches('^([^$]|[$][$]|[$]stream|[$]tag)*[$]id')",
        message="keyTemplate must contain $id, because each entry has its own lock",
    ),
    Rule(
        rule=r"self.matches('^([^$]|[$][$]|[$]stream|[$]tag|[$]id)*$')",
        message="keyTemplate must not contain $ except in $stream, $tag, $id and $$",
    ),
)


class LocksSpec(ApiModel):
    """Locks that workers of your own hold while they process an entry."""

    key_template: Annotated[
        str,
        Field(
            min_length=3,
            max_length=512,
            pattern=r"^[^\x00]+$",
            json_schema_extra=_KEY_TEMPLATE_RULES,
        ),
    ] = Field(
        default="lock:{$tag}:$id",
        description=(
            "Key of the lock of an entry, where $stream is the key of the stream, "
            "$tag its hash tag, $id the ID of the entry, and $$ a dollar sign. On a "
            "Redis Cluster the key must be in the hash slot of the stream, which "
            "{$tag} ensures."
        ),
    )
    grace_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None = Field(
        default=None,
        description=(
            "Seconds after the delivery of an entry from which a missing lock makes "
            "it a stuck entry, even if its worker is alive. Workers must take the "
            "lock of every entry within this time. Default: 30 s, or "
            "processingTimeoutSeconds if that is less."
        ),
    )


_FIELD_PREFIX_RULES = cel(
    Rule(
        rule="self == oldSelf",
        message="fieldPrefix is immutable: delete this resource with deletionPolicy Retain,"
        " which keeps the group, and create it again with another prefix once no copy is pending",
        reason=RuleReason.FORBIDDEN,
    )
)


class TuningSpec(ApiModel):
    """Details of recovery that few groups need to change."""

    batch_size: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=100,
        description=(
            "Largest number of entries that one script moves. A larger batch recovers "
            "faster, but blocks Redis for longer."
        ),
    )
    field_prefix: Annotated[
        str,
        Field(
            min_length=1,
            max_length=32,
            pattern=r"^[A-Za-z0-9_.:-]+$",
            json_schema_extra=_FIELD_PREFIX_RULES,
        ),
    ] = Field(
        default="_",
        description=(
            "Prefix of the names of the fields that Pelops adds to copies, such as "
            "_original_id and _retry_count. Immutable, because copies with another "
            "prefix would count as new entries."
        ),
    )
    keyspace_notifications: bool = Field(
        default=False,
        description=(
            "Subscription to the expiry of locks, which recovers some entries before "
            "the next scan. It needs notify-keyspace-events on the server, which "
            "Pelops does not set. Redis can send these events late or not at all, so "
            "recovery does not depend on them."
        ),
    )


class RecoverySpec(ApiModel):
    """When an entry counts as stuck, and what is done with it then."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="!has(self.unmatchedConsumerTimeoutSeconds)"
                " || self.unmatchedConsumerTimeoutSeconds <= self.processingTimeoutSeconds",
                message="unmatchedConsumerTimeoutSeconds must be less than or equal to"
                " processingTimeoutSeconds, which it shortens: lower it, or raise"
                " processingTimeoutSeconds",
                field_path=".unmatchedConsumerTimeoutSeconds",
            ),
            Rule(
                rule="!has(self.locks) || !has(self.locks.graceSeconds)"
                " || self.locks.graceSeconds <= self.processingTimeoutSeconds",
                message="locks.graceSeconds must be less than or equal to"
                " processingTimeoutSeconds: lower it, or raise processingTimeoutSeconds",
                field_path=".locks.graceSeconds",
            ),
            Rule(
                rule="!self.tuning.keyspaceNotifications || has(self.locks)",
                message="tuning.keyspaceNotifications needs locks: only their expiry is listened"
                " for. Set locks, or leave it out",
                field_path=".tuning.keyspaceNotifications",
                reason=RuleReason.FORBIDDEN,
            ),
        )
    )

    strategy: RecoveryStrategy = Field(
        default=DEFAULT_RECOVERY_STRATEGY,
        description=(
            "Action of a scan on a stuck entry. Requeue: copies it to the end of "
            "the stream and acknowledges it, in one step; if the stream has other "
            "groups, which would receive the copies as well, nothing is copied. "
            "RetryStream: copies it to a stream of this group alone, which the "
            "workers must read as well. Release: offers it under its ID to workers "
            "that claim entries, such as those of the SDK. Disabled: leaves it "
            "pending and counts it."
        ),
    )
    dry_run: bool = Field(
        default=False,
        description=(
            "Dry run: Pelops observes and decides, but writes nothing to Redis and "
            "does not change the workers. status.recovery.dryRun, an Event and the "
            "metric pelops_dry_run_entries report what recovery would do. A missing "
            "group or stream is not created, and Ready is False then."
        ),
    )
    processing_timeout_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] = Field(
        default=300,
        description=(
            "Seconds after the last delivery or heartbeat of an entry from which it "
            "is stuck, unless its worker is known to have ended: then it is stuck at "
            "once. Set it longer than the longest time that a worker without "
            "heartbeats needs for one entry."
        ),
    )
    unmatched_consumer_timeout_seconds: (
        Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None
    ) = Field(
        default=None,
        description=(
            "Processing timeout, in seconds, of consumers whose name matches no pod, "
            "such as workers outside of the cluster. Set it longer than the longest "
            "time that they need for one entry. Default: processingTimeoutSeconds."
        ),
    )
    scan_period_seconds: Annotated[int, Field(ge=1, le=86400)] = Field(
        default=60,
        description=(
            "Seconds between two scans of the group for stuck entries. The end of a "
            "worker pod triggers a scan immediately. A group of which no entry is pending "
            "is scanned every fourth time."
        ),
    )
    max_retries: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=3,
        description=(
            "Number of failed retries after which an entry becomes a dead letter. "
            "With 0 no entry is retried. A crash that another entry of the same "
            "worker caused is not counted."
        ),
    )
    backoff: BackoffSpec | None = Field(
        default=None,
        description=(
            "Wait of a failed entry before the operator or an SDK worker tries it "
            "again. If absent, the operator does not wait, and SDK workers wait 1, 2, "
            "4 s and so on."
        ),
    )
    max_entry_bytes: Annotated[int, Field(ge=1024, le=MOST_ENTRY_BYTES)] = Field(
        default=DEFAULT_MAX_ENTRY_BYTES,
        description=(
            "Largest stuck entry that recovery copies, in bytes of its fields and "
            "values (8388608 bytes are 8 MiB). A copy needs the memory once more and "
            "blocks Redis for about 1 ms per MiB. A larger entry stays pending, and "
            "the condition UnmovableEntries reports it."
        ),
    )
    locks: LocksSpec | None = Field(
        default=None,
        description=(
            "Locks of workers that take one for each entry. An entry is not stuck "
            "while its lock exists; without its lock it is stuck after graceSeconds, "
            "even if its worker is alive. If absent, locks are ignored."
        ),
    )
    tuning: TuningSpec = Field(
        default=TuningSpec(), description="Details of recovery that few groups need to change."
    )

    @property
    def is_enabled(self) -> bool:
        """Whether stuck entries are recovered; else they are only counted."""
        return self.strategy is not RecoveryStrategy.DISABLED

    @property
    def copies_entries(self) -> bool:
        """Whether a stuck entry is copied, to the stream or to the retry stream."""
        return self.strategy in {RecoveryStrategy.REQUEUE, RecoveryStrategy.RETRY_STREAM}

    @property
    def lock_free_seconds(self) -> int:
        """Return the idle time in seconds after which an entry without its lock is free."""
        grace = self.locks.grace_seconds if self.locks else None
        return min(grace or DEFAULT_GRACE_SECONDS, self.processing_timeout_seconds)


# The suffixes in this rule are those of `DerivedKey`, without that of the dead-letter stream.
_STREAM_RULES = cel(
    Rule(
        rule="!self.matches('^[{][^}]+[}](:[^:]+)?:[^:]+"
        ":(ledger|state|started|worker-state|worker-ledger|retry|handover|audit|discarded)$')",
        message="deadLetter.stream must not be a key that Pelops uses for a group: its ledger,"
        " state, started, worker-state, worker-ledger, retry, handover, audit or discarded key",
    )
)


class DeadLetterSpec(ApiModel):
    """Where entries go that cannot be processed, and for how long they are kept."""

    stream: Annotated[KeyName, Field(json_schema_extra=_STREAM_RULES)] | None = Field(
        default=None,
        description=(
            "Key of the dead-letter stream: a key that does not exist, or the stream "
            "with the dead letters of this group; on a Redis Cluster in the hash slot "
            "of spec.stream. After a change, dead letters in the previous stream stay "
            "there and no longer expire. Default: {STREAM}:GROUP:dlq."
        ),
    )
    retention_seconds: Annotated[int, Field(ge=60, le=MAX_SECONDS)] = Field(
        default=1_209_600,
        description=(
            "Seconds after which a dead letter is deleted (1209600 s are two weeks). "
            "The number of dead letters is not limited."
        ),
    )


class RetentionSpec(ApiModel):
    """How long the stream keeps entries that no group needs any more."""

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
        description=(
            "Number of entries to keep, approximately. Older entries are trimmed if "
            "every group has acknowledged them. If absent, the number is not limited."
        ),
    )
    max_age_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = Field(
        default=None,
        description=(
            "Seconds to keep an entry. Older entries are trimmed if every group has "
            "acknowledged them. If absent, the age is not limited."
        ),
    )
