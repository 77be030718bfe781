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
        description="Seconds to wait after the first failure. With 0 no entry ever waits.",
    )
    factor: Annotated[int, Field(ge=1, le=10)] = Field(
        default=2, description="Factor by which the wait grows with each further failure."
    )
    max_seconds: Annotated[int, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = Field(
        default=300, description="Longest wait, in seconds."
    )


_KEY_TEMPLATE_RULES = cel(
    Rule(
        rule=r"self.matches('^([^$]|[$][$]|[$]stream|[$]tag)*[$]id')",
        message="keyTemplate must contain $id: each entry has a lock of its own",
    ),
    Rule(
        rule=r"self.matches('^([^$]|[$][$]|[$]stream|[$]tag|[$]id)*$')",
        message="keyTemplate knows $stream, $tag and $id; any other $ is written $$",
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
        description="Key of the lock of an entry: $stream stands for the stream's name, $tag for"
        " its hash tag, $id for the entry's ID and $$ for a dollar sign. On a Cluster the key must"
        " be in the hash slot of the stream, which {$tag} ensures.",
    )
    grace_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None = Field(
        default=None,
        description="Seconds from the delivery of an entry until a missing lock frees it, even from"
        " a live worker. Take the lock of every entry that was read within that time. Default: 30,"
        " or processingTimeoutSeconds if that is shorter.",
    )


_FIELD_PREFIX_RULES = cel(
    Rule(
        rule="self == oldSelf",
        message="fieldPrefix cannot be changed: delete this resource with deletionPolicy Retain,"
        " which keeps the group, and create it again with another prefix once no copy is pending",
        reason=RuleReason.FORBIDDEN,
    )
)


class TuningSpec(ApiModel):
    """Details of recovery that few groups need to change."""

    batch_size: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=100,
        description="Largest number of entries that one script moves. More is faster; fewer block"
        " the server for a shorter time.",
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
        description="Prefix of the names of the fields that Pelops adds to copies, as in"
        " _original_id and _retry_count. Cannot be changed: copies with the former prefix would"
        " count as new entries.",
    )
    keyspace_notifications: bool = Field(
        default=False,
        description="Listen for the expiry of locks, so that some entries are recovered before the"
        " next scan. Redis sends these events late or never, so nothing depends on them. The server"
        " must have notify-keyspace-events set; the operator does not change it.",
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
        description="What a scan does with a stuck entry. Requeue copies it to the end of the"
        " stream and acknowledges it in one step, which suits every worker; if the stream has other"
        " groups, nothing is copied, because they would receive the copy too. RetryStream copies it"
        " to a stream of this group alone, which the workers must read as well. Release leaves it"
        " in place under its ID and offers it to workers that claim, such as those of the SDK."
        " Disabled only counts stuck entries, which stay pending.",
    )
    dry_run: bool = Field(
        default=False,
        description="Observe and decide, and write nothing: not to the stream, the group, the dead"
        " letters or any other key in Redis, and not to the workers. status.recovery.dryRun, an"
        " Event and a metric say what recovery would do with how many entries. A group or stream"
        " that does not exist is not created, and Ready is False then. Set it to false to begin.",
    )
    processing_timeout_seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] = Field(
        default=300,
        description="Seconds for which a live worker, or one of which nothing is known, may hold an"
        " entry without a heartbeat before the entry is stuck. Set it longer than the longest"
        " handler. Entries of workers that certainly died do not wait for it.",
    )
    unmatched_consumer_timeout_seconds: (
        Annotated[int, Field(ge=1, le=LONGEST_WAIT_SECONDS)] | None
    ) = Field(
        default=None,
        description="A shorter processing timeout, in seconds, for entries of consumers whose name"
        " matches no pod, such as workers outside of the cluster. Set it longer than their longest"
        " handler. Default: processingTimeoutSeconds.",
    )
    scan_period_seconds: Annotated[int, Field(ge=1, le=86400)] = Field(
        default=60,
        description="Seconds between two scans of the group for stuck entries. The death of a pod"
        " triggers a scan at once.",
    )
    max_retries: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=3,
        description="Number of failed retries after which an entry becomes a dead letter. With 0"
        " nothing is retried. Crashes that another entry caused are not counted.",
    )
    backoff: BackoffSpec | None = Field(
        default=None,
        description="Wait of an entry that failed, before the operator or a worker on the SDK tries"
        " it again. Absent: the operator does not wait, and the SDK waits 1, 2, 4 seconds and so"
        " on.",
    )
    max_entry_bytes: Annotated[int, Field(ge=1024, le=MOST_ENTRY_BYTES)] = Field(
        default=DEFAULT_MAX_ENTRY_BYTES,
        description="Largest stuck entry that is copied, in bytes of its fields and values; the"
        " default is 8 MiB. A copy takes the memory once more and blocks the server for about 1 ms"
        " per MiB. A larger entry stays pending, and the condition UnmovableEntries reports it.",
    )
    locks: LocksSpec | None = Field(
        default=None,
        description="For workers that hold a lock for each entry: while the lock exists, the entry"
        " stays; without it the entry is stuck after graceSeconds, even if its worker is alive."
        " Absent: no locks are looked at.",
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


# Their last words are those of `DerivedKey`, but for the dead letters.
_STREAM_RULES = cel(
    Rule(
        rule="!self.matches('^[{][^}]+[}](:[^:]+)?:[^:]+"
        ":(ledger|state|started|worker-state|worker-ledger|retry|handover|audit)$')",
        message="deadLetter.stream must not be a key that Pelops keeps for a group: its ledger,"
        " state, started, worker-state, worker-ledger, retry, handover or audit key",
    )
)


class DeadLetterSpec(ApiModel):
    """Where entries go that cannot be processed, and for how long they are kept."""

    stream: Annotated[KeyName, Field(json_schema_extra=_STREAM_RULES)] | None = Field(
        default=None,
        description="Key of the dead-letter stream: a key that does not exist, or that holds dead"
        " letters of this group alone. In a Cluster it must be in the hash slot of the stream."
        " After a change the dead letters in the former stream stay there and no longer expire."
        " Default: {STREAM}:GROUP:dlq.",
    )
    retention_seconds: Annotated[int, Field(ge=60, le=MAX_SECONDS)] = Field(
        default=1_209_600,
        description="Seconds for which a dead letter is kept; the default is two weeks. Dead"
        " letters are deleted by age only, however many there are.",
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
        description="Number of entries to keep, approximately. Older ones are trimmed once every"
        " group has acknowledged them.",
    )
    max_age_seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = Field(
        default=None,
        description="Seconds to keep entries. Older ones are trimmed once every group has"
        " acknowledged them.",
    )
