"""Every condition type and every reason that Pelops shows, each with a sentence.

They are part of the API: people search for them and programs match on them.
`docs/reference/conditions.md` says what to do about each.
"""

from __future__ import annotations

import re
from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition states."""

    # Everything that the resource asks for works. If False, the reason and message are those of the
    # first other condition that is False.
    READY = "Ready"
    # Ready is False, and Pelops works on it or retries; absent otherwise.
    RECONCILING = "Reconciling"
    # Ready is False, and a person must change something; absent otherwise.
    STALLED = "Stalled"
    # The group, its dead-letter stream and its ledger exist in Redis, and this resource manages
    # them.
    GROUP_READY = "GroupReady"
    # As many workers are ready as are wanted.
    WORKLOAD_READY = "WorkloadReady"
    # Something decides the number of workers; the reason says what.
    SCALING_ACTIVE = "ScalingActive"
    # Stuck entries are recovered; absent if spec.recovery.strategy is Disabled.
    RECOVERY_HEALTHY = "RecoveryHealthy"
    # The stream is trimmed; absent without spec.retention.
    RETENTION_ACTIVE = "RetentionActive"
    # spec.suspend is true; absent otherwise.
    SUSPENDED = "Suspended"
    # Entries were lost before the group had finished them; stays until acknowledged.
    DATA_LOSS = "DataLoss"
    # The position of the group went back, so entries are delivered again; stays until acknowledged.
    POSITION_WENT_BACK = "PositionWentBack"
    # Consumers with pending entries were deleted by another client; stays until acknowledged.
    PENDING_ENTRIES_DROPPED = "PendingEntriesDropped"
    # Recovery cannot move some stuck entries; absent otherwise.
    UNMOVABLE_ENTRIES = "UnmovableEntries"
    # Redis may delete any key when memory runs out; absent otherwise.
    EVICTION_POSSIBLE = "EvictionPossible"
    # A consumer group reads the dead-letter stream, so dead letters do not expire; absent
    # otherwise.
    DEAD_LETTER_STREAM_IN_USE = "DeadLetterStreamInUse"
    # Consumers with pending entries match no pod; absent otherwise.
    UNMATCHED_CONSUMERS = "UnmatchedConsumers"
    # Copies wait in the retry stream, and no worker reads it; absent otherwise.
    RETRY_STREAM_NOT_READ = "RetryStreamNotRead"
    # The retry stream is not used any more, but contains copies; absent otherwise.
    RETRY_STREAM_NOT_EMPTY = "RetryStreamNotEmpty"
    # Stuck entries are offered to claiming workers, and no worker takes them; absent otherwise.
    OFFERS_NOT_TAKEN = "OffersNotTaken"
    # An audit proves that entries were lost; stays until acknowledged.
    LOSS_DETECTED = "LossDetected"
    # The stream is trimmed before, or shortly after, an audit archives it; absent otherwise.
    ARCHIVE_BEHIND_RETENTION = "ArchiveBehindRetention"
    # An audit does not run, or cannot account for every entry; absent otherwise.
    AUDIT_FAILING = "AuditFailing"
    # A redrive has ended and moved what it selected; absent otherwise.
    COMPLETE = "Complete"
    # A redrive has ended before it moved all that it selected; absent otherwise.
    FAILED = "Failed"
    # A redrive that needs approval has it; absent if it needs none.
    APPROVED = "Approved"


# Alarms: True requires attention, absent is good. They have no effect on Ready.
ALARMS = (
    ConditionType.DATA_LOSS,
    ConditionType.POSITION_WENT_BACK,
    ConditionType.PENDING_ENTRIES_DROPPED,
    ConditionType.UNMOVABLE_ENTRIES,
    ConditionType.EVICTION_POSSIBLE,
    ConditionType.DEAD_LETTER_STREAM_IN_USE,
    ConditionType.UNMATCHED_CONSUMERS,
    ConditionType.RETRY_STREAM_NOT_READ,
    ConditionType.RETRY_STREAM_NOT_EMPTY,
    ConditionType.OFFERS_NOT_TAKEN,
)
# Alarms of a StreamAudit, reported on itself and on the groups concerned.
AUDIT_ALARMS = (
    ConditionType.LOSS_DETECTED,
    ConditionType.ARCHIVE_BEHIND_RETENTION,
    ConditionType.AUDIT_FAILING,
)


class Reason(StrEnum):
    """Why a condition is as it is, or why an Event was written."""

    # --- healthy

    # Everything that the resource asks for works.
    READY = "Ready"
    # The group and everything that belongs to it exist in Redis.
    GROUP_EXISTS = "GroupExists"
    # As many workers are ready as are wanted.
    WORKERS_READY = "WorkersReady"
    # No worker is wanted, and none runs.
    SCALED_TO_ZERO = "ScaledToZero"
    # Stuck entries are found and recovered.
    SCANNING = "Scanning"
    # The stream is trimmed at the limits of spec.retention.
    TRIMMING = "Trimming"
    # The resource has no workers: another program, such as a Spark job, consumes the group.
    NO_WORKLOAD = "NoWorkload"
    # The audit runs on its schedule.
    SCHEDULED = "Scheduled"

    # A redrive moves dead letters, or counts those that it selects.
    RUNNING = "Running"
    # The trial of a redrive is moved, and its outcome is awaited.
    TRIAL_RUNNING = "TrialRunning"
    # A redrive waits until the backlog of the group is at most spec.maxBacklog.
    BACKLOG_TOO_LARGE = "BacklogTooLarge"
    # A redrive has moved all that it selected, and workers process the entries.
    AWAITING_OUTCOMES = "AwaitingOutcomes"
    # A redrive has ended; the message says what became of the entries.
    COMPLETED = "Completed"
    # A redrive that needs approval has it.
    APPROVED = "Approved"

    # --- who decides the number of workers

    # spec.replicas sets the number of workers.
    MANUAL = "Manual"
    # Another resource with the same workload decides the number of workers.
    FOLLOWING = "Following"
    # scaling.mode is Follow, and no other resource counts the demand of this group.
    LEADER_MISSING = "LeaderMissing"
    # Pelops does not change the number of workers.
    SCALING_DISABLED = "ScalingDisabled"
    # A HorizontalPodAutoscaler has the same target, so Pelops does not scale it.
    SCALED_BY_AUTOSCALER = "ScaledByAutoscaler"
    # The number of workers follows the backlog.
    SCALED = "Scaled"
    # There is no backlog, and no worker is wanted.
    IDLE = "Idle"
    # maxReplicas or behavior allows fewer workers than the backlog calls for.
    LIMITED = "Limited"
    # The backlog cannot be observed, so the number of workers is held.
    BACKLOG_UNKNOWN = "BacklogUnknown"
    # The number of undelivered entries is unknown, so no worker is removed.
    LAG_UNKNOWN = "LagUnknown"
    # Another controller or user keeps changing the replicas, so Pelops pauses its scaling.
    SCALED_BY_OTHERS = "ScaledByOthers"
    # More workers would not help: they do not become ready, or entries become dead letters.
    SCALING_INEFFECTIVE = "ScalingIneffective"

    # --- in progress, or as requested

    # The group, the Deployment or the CronJob is being created.
    CREATING = "Creating"
    # spec.suspend is true: Pelops observes and changes nothing.
    SUSPENDED = "Suspended"
    # spec.recovery.dryRun is true: Pelops decides and writes nothing.
    DRY_RUN = "DryRun"
    # A redrive waits until spec.approved is true.
    APPROVAL_REQUIRED = "ApprovalRequired"
    # An older redrive of the same group has not ended yet.
    ANOTHER_REDRIVE_RUNS = "AnotherRedriveRuns"
    # The StreamConsumerGroup of a redrive is suspended, or a dry run.
    GROUP_SUSPENDED = "GroupSuspended"
    # The group is not ready, and this depends on it.
    WAITING_FOR_GROUP = "WaitingForGroup"

    # --- problems of the resource

    # A field of the resource, or of a Secret that it refers to, is invalid.
    INVALID_SPEC = "InvalidSpec"
    # Another resource manages the same group or dead-letter stream, or scales the same workload.
    CONFLICT = "Conflict"
    # A StreamAudit or StreamRedrive refers to a StreamConsumerGroup that does not exist, or a dry
    # run to a group or stream that does not exist in Redis.
    GROUP_MISSING = "GroupMissing"
    # The Spark operator of a StreamAudit is not installed, or the operator may not use its kinds.
    BACKEND_MISSING = "BackendMissing"
    # The dead-letter stream is not in the hash slot of the stream, on a Redis Cluster.
    DEAD_LETTER_IN_ANOTHER_SLOT = "DeadLetterInAnotherSlot"
    # The key of the dead-letter stream has other contents, or a consumer group reads it.
    DEAD_LETTER_STREAM_IN_USE = "DeadLetterStreamInUse"
    # A key that Pelops needs for the group has other contents.
    STREAM_IN_USE = "StreamInUse"

    # --- problems of recovery

    # Other groups of the stream would receive the copies of stuck entries as well.
    REQUEUE_WOULD_DUPLICATE = "RequeueWouldDuplicate"
    # The position of the group is ahead of the stream: copies would never be delivered.
    POSITION_AHEAD = "PositionAhead"
    # The locks are not in the hash slot of the stream, so they cannot be checked.
    LOCK_IN_ANOTHER_SLOT = "LockInAnotherSlot"
    # The hash slot of the stream is being migrated; scripts are refused meanwhile.
    SLOT_MIGRATING = "SlotMigrating"
    # keyspaceNotifications is true, but Redis sends no notifications; scans work without them.
    KEYSPACE_NOTIFICATIONS_UNAVAILABLE = "KeyspaceNotificationsUnavailable"

    # Too many entries that a redrive moved became dead letters again, so it stopped.
    FAILS_AGAIN = "FailsAgain"
    # Entries that a redrive moved were removed before a worker received them, so it stopped.
    ENTRIES_LOST = "EntriesLost"
    # The group of a redrive was created again, or has another server or dead-letter stream.
    GROUP_CHANGED = "GroupChanged"
    # The regular expression of a redrive takes too long, so it stopped.
    REGEX_TOO_SLOW = "RegexTooSlow"
    # The stream to which a redrive adds entries is at its last ID and takes no more.
    STREAM_EXHAUSTED = "StreamExhausted"

    # --- alarms

    # Entries were lost before the group had finished them.
    DATA_LOSS = "DataLoss"
    # The group passed entries that were removed between two observations; an Event alone.
    POSSIBLE_DATA_LOSS = "PossibleDataLoss"
    # The position of the group went back, after a failover or a restored backup.
    POSITION_WENT_BACK = "PositionWentBack"
    # Another client deleted consumers with pending entries, which are not delivered again.
    PENDING_ENTRIES_DROPPED = "PendingEntriesDropped"
    # Recovery cannot move some stuck entries.
    UNMOVABLE_ENTRIES = "UnmovableEntries"
    # With maxmemory-policy allkeys-*, Redis can delete the stream, the group and the dead letters.
    EVICTION_POSSIBLE = "EvictionPossible"
    # Consumers with pending entries match no pod: only the processing timeout applies to them.
    UNMATCHED_CONSUMERS = "UnmatchedConsumers"
    # Copies wait in the retry stream, and no worker reads it.
    RETRY_STREAM_NOT_READ = "RetryStreamNotRead"
    # The retry stream is not used any more, but contains copies.
    RETRY_STREAM_NOT_EMPTY = "RetryStreamNotEmpty"
    # Stuck entries are offered to claiming workers, and no worker takes them.
    OFFERS_NOT_TAKEN = "OffersNotTaken"
    # An audit proves that entries were lost.
    LOSS_DETECTED = "LossDetected"
    # The stream is trimmed before, or shortly after, an audit archives it.
    ARCHIVE_BEHIND_RETENTION = "ArchiveBehindRetention"
    # The last run of an audit failed.
    RUN_FAILED = "RunFailed"
    # The last run of an audit succeeded without accounting for all entries.
    RUN_INCOMPLETE = "RunIncomplete"
    # An audit does not have the data to account for every entry.
    AUDIT_INCONCLUSIVE = "AuditInconclusive"
    # The results that an audit recorded in Redis cannot be read.
    SUMMARY_UNREADABLE = "SummaryUnreadable"

    # --- problems of Redis

    # A Secret that the resource refers to does not exist.
    SECRET_MISSING = "SecretMissing"
    # The Secret does not list the host to which its credentials would be sent.
    CREDENTIALS_NOT_ALLOWED = "CredentialsNotAllowed"
    # This installation of Pelops does not allow the address of Redis.
    ADDRESS_NOT_ALLOWED = "AddressNotAllowed"
    # Redis does not answer.
    REDIS_UNREACHABLE = "RedisUnreachable"
    # A reply of Redis is invalid: too large, incomplete, or of another shape.
    INVALID_REDIS_REPLY = "InvalidRedisReply"
    # Redis is out of memory and refuses writes.
    REDIS_OUT_OF_MEMORY = "RedisOutOfMemory"
    # Redis refuses writes: it is a replica, or cannot save or replicate its data.
    REDIS_REFUSES_WRITES = "RedisRefusesWrites"
    # Redis answers, but does not serve requests now: it loads its data, or is busy.
    REDIS_NOT_READY = "RedisNotReady"
    # Redis rejects the username or password.
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    # The ACL of the Redis user forbids a command or a key.
    PERMISSION_DENIED = "PermissionDenied"
    # A key of the group has another type than Pelops needs.
    WRONG_TYPE = "WrongType"
    # A newer version of Pelops wrote the state of the group.
    NEWER_FORMAT = "NewerFormat"
    # Keys of the group are in different hash slots of a Redis Cluster.
    CROSS_SLOT = "CrossSlot"
    # Redis does not support a command that Pelops needs.
    UNSUPPORTED_SERVER = "UnsupportedServer"
    # The group or its stream was deleted while Pelops worked on it.
    GROUP_NOT_FOUND = "GroupNotFound"
    # Redis returned an error that Pelops does not know.
    REDIS_ERROR = "RedisError"

    # --- problems of the workload

    # The workload of spec.targetRef does not exist.
    TARGET_MISSING = "TargetMissing"
    # The operator's role does not allow it to scale the workload.
    TARGET_FORBIDDEN = "TargetForbidden"
    # An object with the name that Pelops needs exists, and Pelops did not create it.
    NAME_TAKEN = "NameTaken"
    # Kubernetes refuses to create pods: a quota, a policy or an admission webhook.
    PODS_REFUSED = "PodsRefused"
    # A worker crashes repeatedly.
    CRASH_LOOPING = "CrashLooping"
    # A worker waits for a reason that is not a valid identifier.
    CONTAINER_WAITING = "ContainerWaiting"
    # Pulling the image of a worker failed several times.
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    # The image of a worker could not be pulled.
    ERR_IMAGE_PULL = "ErrImagePull"
    # The name of the image of a worker is invalid.
    INVALID_IMAGE_NAME = "InvalidImageName"
    # A ConfigMap or Secret of a worker is missing.
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    # The container of a worker could not be created.
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    # The container of a worker did not start, for example because its command does not exist.
    RUN_CONTAINER_ERROR = "RunContainerError"
    # A node of the workers is not Ready.
    NODE_NOT_READY = "NodeNotReady"
    # Fewer workers are ready than are wanted; Kubernetes gives no reason.
    WORKERS_NOT_READY = "WorkersNotReady"
    # The rollout of the Deployment exceeded its progressDeadlineSeconds.
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"

    # --- problems of Kubernetes and Pelops

    # The API server does not answer.
    KUBERNETES_UNAVAILABLE = "KubernetesUnavailable"
    # Another client changed the object at the same time.
    WRITE_CONFLICT = "WriteConflict"
    # RBAC, a quota or an admission rule refuses a request of the operator.
    FORBIDDEN = "Forbidden"
    # The API server rejects an object that the resource asks for as invalid.
    REJECTED = "Rejected"
    # An object that the resource refers to does not exist.
    NOT_FOUND = "NotFound"
    # The API server returned an error that Pelops does not know.
    KUBERNETES_ERROR = "KubernetesError"
    # The work on the resource took too long and was cancelled.
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    # An unexpected error: a bug of Pelops.
    UNEXPECTED_ERROR = "UnexpectedError"

    # --- Events only

    # The number of workers was increased.
    SCALED_UP = "ScaledUp"
    # The number of workers was decreased.
    SCALED_DOWN = "ScaledDown"
    # Another PodDisruptionBudget selects the workers, so the operator's own was deleted.
    POD_DISRUPTION_BUDGET_CONFLICT = "PodDisruptionBudgetConflict"
    # Kubernetes refuses the PodDisruptionBudget of the workers.
    POD_DISRUPTION_BUDGET_REFUSED = "PodDisruptionBudgetRefused"
    # The group was created.
    GROUP_CREATED = "GroupCreated"
    # The group had been deleted from Redis, and was created again at a position that skips nothing.
    GROUP_RECREATED = "GroupRecreated"
    # Stuck entries were copied to the end of the stream, and acknowledged.
    REQUEUED = "Requeued"
    # Stuck entries were offered to claiming workers.
    RELEASED = "Released"
    # Entries were moved to the dead-letter stream.
    DEAD_LETTERED = "DeadLettered"
    # Pending entries whose body had been deleted were acknowledged.
    PAYLOAD_GONE = "PayloadGone"
    # The body of a pending entry was deleted while a worker processes it.
    PENDING_ENTRY_DELETED = "PendingEntryDeleted"
    # Consumers without a pod and without pending entries were removed.
    CONSUMER_REMOVED = "ConsumerRemoved"
    # An audit has closed further windows.
    WINDOW_AUDITED = "WindowAudited"
    # A redrive has handled a further tenth of its dead letters.
    REDRIVE_PROGRESS = "RedriveProgress"
    # Dead letters were deleted after their retention.
    DEAD_LETTERS_EXPIRED = "DeadLettersExpired"
    # The resource was deleted, and its group as deletionPolicy says.
    GROUP_REMOVED = "GroupRemoved"
    # The group could not be destroyed in time, and the resource was deleted without it.
    GROUP_NOT_DESTROYED = "GroupNotDestroyed"


# A condition may hold more, an Event no more than 128 characters (events.k8s.io/v1).
_FIT = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")


# Reasons that every new resource passes through, and that end by themselves.
BEGINNING = frozenset({Reason.CREATING, Reason.WAITING_FOR_GROUP, Reason.WORKERS_NOT_READY})
# Reasons that end by themselves, or by an approval: reported, but not as warnings.
UNDER_WAY = BEGINNING | frozenset(
    {
        Reason.RUNNING,
        Reason.TRIAL_RUNNING,
        Reason.BACKLOG_TOO_LARGE,
        Reason.AWAITING_OUTCOMES,
        Reason.APPROVAL_REQUIRED,
        Reason.ANOTHER_REDRIVE_RUNS,
    }
)
# Waiting does not help: a user must change the resource, or what it refers to. A resource that is
# not ready for one of these reasons is Stalled at once.
NEEDS_CHANGE = frozenset(
    {
        Reason.INVALID_SPEC,
        Reason.CONFLICT,
        Reason.DEAD_LETTER_IN_ANOTHER_SLOT,
        Reason.DEAD_LETTER_STREAM_IN_USE,
        Reason.STREAM_IN_USE,
        Reason.REQUEUE_WOULD_DUPLICATE,
        Reason.POSITION_AHEAD,
        Reason.LOCK_IN_ANOTHER_SLOT,
        Reason.CREDENTIALS_NOT_ALLOWED,
        Reason.ADDRESS_NOT_ALLOWED,
        Reason.AUTHENTICATION_FAILED,
        Reason.PERMISSION_DENIED,
        Reason.WRONG_TYPE,
        Reason.NEWER_FORMAT,
        Reason.CROSS_SLOT,
        Reason.UNSUPPORTED_SERVER,
        Reason.NAME_TAKEN,
        Reason.REJECTED,
        Reason.TARGET_FORBIDDEN,
        Reason.INVALID_IMAGE_NAME,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.FAILS_AGAIN,
        Reason.ENTRIES_LOST,
        Reason.GROUP_CHANGED,
        Reason.REGEX_TOO_SLOW,
        Reason.STREAM_EXHAUSTED,
    }
)


def fit_reason(found: str, otherwise: str = Reason.CONTAINER_WAITING) -> str:
    """Return a reason from another source if its format is valid; otherwise `otherwise`."""
    return found if _FIT.fullmatch(found) else otherwise
