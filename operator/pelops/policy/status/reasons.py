"""Every condition type and every reason that Pelops shows, each with a sentence.

They are part of the API: people search for them and programs match on them.
`docs/reference/conditions.md` says what to do about each.
"""

from __future__ import annotations

import re
from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition states."""

    # Everything that was asked for works; the first problem of the others is informed here as well.
    READY = "Ready"
    # Not ready yet, and Pelops works on it or tries again; absent otherwise.
    RECONCILING = "Reconciling"
    # Not ready, and waiting does not help; absent otherwise.
    STALLED = "Stalled"
    # The group, its dead letters and its ledger exist in Redis, and are this resource's to act on.
    GROUP_READY = "GroupReady"
    # The workers run, as many as wanted.
    WORKLOAD_READY = "WorkloadReady"
    # Somebody decides the number of workers; the reason says who.
    SCALING_ACTIVE = "ScalingActive"
    # Stuck entries recover again; present when spec.recovery asks for it.
    RECOVERY_HEALTHY = "RecoveryHealthy"
    # The stream is trimmed; present when spec.retention asks for it.
    RETENTION_ACTIVE = "RetentionActive"
    # Nothing is changed, since spec.suspend is true; absent otherwise.
    SUSPENDED = "Suspended"
    # Entries were trimmed before the group was given them; stays until acknowledged.
    DATA_LOSS = "DataLoss"
    # The group was found behind where it had been; stays until acknowledged.
    POSITION_WENT_BACK = "PositionWentBack"
    # Somebody deleted consumers that had entries pending; stays until acknowledged.
    PENDING_ENTRIES_DROPPED = "PendingEntriesDropped"
    # Pending entries that no script can move.
    UNMOVABLE_ENTRIES = "UnmovableEntries"
    # The server may drop any key when memory runs short: stream, group and dead letters.
    EVICTION_POSSIBLE = "EvictionPossible"
    # A consumer group reads the dead-letter stream, so dead letters do not expire.
    DEAD_LETTER_STREAM_IN_USE = "DeadLetterStreamInUse"
    # Consumers with pending entries that no pod matches.
    UNMATCHED_CONSUMERS = "UnmatchedConsumers"
    # Copies wait in the retry stream, and no worker reads it.
    RETRY_STREAM_NOT_READ = "RetryStreamNotRead"
    # The retry stream is no longer asked for and holds copies that nothing moves.
    RETRY_STREAM_NOT_EMPTY = "RetryStreamNotEmpty"
    # Stuck entries are on offer to workers that claim, and none takes them.
    OFFERS_NOT_TAKEN = "OffersNotTaken"
    # An audit proves entries lost that nobody has acknowledged.
    LOSS_DETECTED = "LossDetected"
    # The stream is trimmed close to what an audit has not archived yet, or beyond.
    ARCHIVE_BEHIND_RETENTION = "ArchiveBehindRetention"
    # An audit does not run, or cannot account for every entry.
    AUDIT_FAILING = "AuditFailing"


# True is bad and absent is good: somebody should look, and Ready does not suffer.
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
# The same, told by a StreamAudit: of itself and of the groups concerned.
AUDIT_ALARMS = (
    ConditionType.LOSS_DETECTED,
    ConditionType.ARCHIVE_BEHIND_RETENTION,
    ConditionType.AUDIT_FAILING,
)


class Reason(StrEnum):
    """Why a condition is as it is, or why an Event was written."""

    # --- what is well

    # Everything that was asked for works.
    READY = "Ready"
    # The group is complete in Redis.
    GROUP_EXISTS = "GroupExists"
    # As many workers are ready as are wanted.
    WORKERS_READY = "WorkersReady"
    # No worker is wanted, and none runs.
    SCALED_TO_ZERO = "ScaledToZero"
    # Stuck entries are looked for and recover again.
    SCANNING = "Scanning"
    # The stream is trimmed below what every group has finished.
    TRIMMING = "Trimming"
    # No workers are declared: whoever consumes, such as a Spark job, is left alone.
    NO_WORKLOAD = "NoWorkload"
    # The audit runs at the times that it names.
    SCHEDULED = "Scheduled"

    # --- who decides the number of workers

    # spec.replicas says the number.
    MANUAL = "Manual"
    # Another resource with the same workload decides, and counts the demand of this group.
    FOLLOWING = "Following"
    # scaling.mode is Follow, and no other resource decides for the workload: the replicas stay.
    LEADER_MISSING = "LeaderMissing"
    # Nobody here decides it: the workload keeps its own.
    SCALING_DISABLED = "ScalingDisabled"
    # A HorizontalPodAutoscaler has the same target, and is left to it.
    SCALED_BY_AUTOSCALER = "ScaledByAutoscaler"
    # The number follows the backlog of the group.
    SCALED = "Scaled"
    # The backlog is empty, and no worker is wanted.
    IDLE = "Idle"
    # maxReplicas or behavior allows fewer workers than are wanted.
    LIMITED = "Limited"
    # The backlog cannot be seen: the number stays as it is.
    BACKLOG_UNKNOWN = "BacklogUnknown"
    # How much is undelivered is not known: never fewer workers, and never zero.
    LAG_UNKNOWN = "LagUnknown"
    # Somebody else moves the replicas again and again, and is left to it for a while.
    SCALED_BY_OTHERS = "ScaledByOthers"
    # More workers would not help: they do not become ready, or entries end as dead letters.
    SCALING_INEFFECTIVE = "ScalingIneffective"

    # --- what is under way, or asked for

    # The group or the Deployment is being created.
    CREATING = "Creating"
    # The group exists, and something that belongs to it is being added.
    COMPLETING = "Completing"
    # Nothing is lacking in Redis.
    COMPLETE = "Complete"
    # spec.suspend is true: Pelops looks and changes nothing.
    SUSPENDED = "Suspended"
    # spec.recovery.dryRun is true: Pelops decides and writes nothing.
    DRY_RUN = "DryRun"
    # The workers start when the group exists.
    WAITING_FOR_GROUP = "WaitingForGroup"

    # --- what is wrong with the resource

    # A field of the resource, or of its Secret, cannot be used.
    INVALID_SPEC = "InvalidSpec"
    # An older resource acts on the same group, or decides for the same workload.
    CONFLICT = "Conflict"
    # A StreamAudit names a StreamConsumerGroup that does not exist, or a dry run a group in Redis.
    GROUP_MISSING = "GroupMissing"
    # The Spark operator that a StreamAudit asks for is not installed, or may not be used.
    BACKEND_MISSING = "BackendMissing"
    # The dead-letter stream of the user's choice lies in another slot than the stream.
    DEAD_LETTER_IN_ANOTHER_SLOT = "DeadLetterInAnotherSlot"
    # The dead-letter stream holds something else, or a consumer group reads it.
    DEAD_LETTER_STREAM_IN_USE = "DeadLetterStreamInUse"
    # A key that Pelops keeps for the group holds something else.
    STREAM_IN_USE = "StreamInUse"

    # --- what keeps entries from being recovered

    # Other groups of the stream would be given every copy as well.
    REQUEUE_WOULD_DUPLICATE = "RequeueWouldDuplicate"
    # The group's position lies ahead of the stream: a copy would never be delivered.
    POSITION_AHEAD = "PositionAhead"
    # Whether a lock exists cannot be told: its key lies in another slot.
    LOCK_IN_ANOTHER_SLOT = "LockInAnotherSlot"
    # The stream's slot is on its way to another node; scripts are refused until it is there.
    SLOT_MIGRATING = "SlotMigrating"
    # The expiry of locks is asked for and cannot be heard; recovery works without it.
    KEYSPACE_NOTIFICATIONS_UNAVAILABLE = "KeyspaceNotificationsUnavailable"

    # --- what somebody should look at, though all works

    # Entries were trimmed before the group was given them.
    DATA_LOSS = "DataLoss"
    # The group was found behind where it had been: a failover, or a restored backup.
    POSITION_WENT_BACK = "PositionWentBack"
    # Somebody deleted consumers that had entries pending: these are not delivered again.
    PENDING_ENTRIES_DROPPED = "PendingEntriesDropped"
    # Pending entries that no script can move.
    UNMOVABLE_ENTRIES = "UnmovableEntries"
    # maxmemory-policy allkeys-* lets the server drop stream, group and dead letters.
    EVICTION_POSSIBLE = "EvictionPossible"
    # Consumers with pending entries that no pod matches: their entries wait for the processing
    # timeout.
    UNMATCHED_CONSUMERS = "UnmatchedConsumers"
    # Copies wait in the retry stream, and no worker reads it.
    RETRY_STREAM_NOT_READ = "RetryStreamNotRead"
    # The retry stream is no longer asked for and holds copies that nothing moves.
    RETRY_STREAM_NOT_EMPTY = "RetryStreamNotEmpty"
    # Stuck entries are on offer to workers that claim, and none takes them: they stay pending.
    OFFERS_NOT_TAKEN = "OffersNotTaken"
    # An audit proves entries lost that nobody has acknowledged.
    LOSS_DETECTED = "LossDetected"
    # The stream is trimmed close to what an audit has not archived yet, or beyond.
    ARCHIVE_BEHIND_RETENTION = "ArchiveBehindRetention"
    # The last run of an audit ended in failure, or was ended.
    RUN_FAILED = "RunFailed"
    # A run of an audit ended well, and entries that it should have seen are not accounted for.
    RUN_INCOMPLETE = "RunIncomplete"
    # An audit could not see what it needs to account for every entry.
    AUDIT_INCONCLUSIVE = "AuditInconclusive"
    # What an audit recorded cannot be read.
    SUMMARY_UNREADABLE = "SummaryUnreadable"

    # --- what is wrong with Redis

    # A Secret that spec.redis names does not exist.
    SECRET_MISSING = "SecretMissing"
    # The credentials of the Secret may not go to the host that the resource, or a Sentinel, names.
    CREDENTIALS_NOT_ALLOWED = "CredentialsNotAllowed"
    # The address of Redis is one that this installation of Pelops does not connect to.
    ADDRESS_NOT_ALLOWED = "AddressNotAllowed"
    # Redis does not answer.
    REDIS_UNREACHABLE = "RedisUnreachable"
    # Redis answers with what is no valid reply: too large, too slow, or of another shape.
    INVALID_REDIS_REPLY = "InvalidRedisReply"
    # Redis has no memory left and refuses writes.
    REDIS_OUT_OF_MEMORY = "RedisOutOfMemory"
    # Redis takes no writes: a replica, or a server that cannot save or replicate its data.
    REDIS_REFUSES_WRITES = "RedisRefusesWrites"
    # Redis answers and serves nothing for now: it loads its data, or is busy with a script.
    REDIS_NOT_READY = "RedisNotReady"
    # Redis does not accept the username or password.
    AUTHENTICATION_FAILED = "AuthenticationFailed"
    # The ACL of the operator's Redis user forbids a command or a key.
    PERMISSION_DENIED = "PermissionDenied"
    # One of the group's keys holds another type than a stream.
    WRONG_TYPE = "WrongType"
    # Keys that belong together lie in different slots of the cluster.
    CROSS_SLOT = "CrossSlot"
    # The server lacks a command that is needed.
    UNSUPPORTED_SERVER = "UnsupportedServer"
    # The group or its stream was removed between two looks.
    GROUP_NOT_FOUND = "GroupNotFound"
    # Redis answered with an error that Pelops does not know.
    REDIS_ERROR = "RedisError"

    # --- what is wrong with the workload

    # The object that spec.targetRef names does not exist.
    TARGET_MISSING = "TargetMissing"
    # The operator's role does not allow it to scale the target.
    TARGET_FORBIDDEN = "TargetForbidden"
    # An object of somebody else has the name of the Deployment that would be made.
    NAME_TAKEN = "NameTaken"
    # Pods cannot be created: a quota, a policy or an admission webhook refuses them.
    PODS_REFUSED = "PodsRefused"
    # A worker ends again and again.
    CRASH_LOOPING = "CrashLooping"
    # A worker waits for a reason that is no word fit to be shown as one.
    CONTAINER_WAITING = "ContainerWaiting"
    # A worker waits for its image.
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff"
    # The image could not be pulled just now.
    ERR_IMAGE_PULL = "ErrImagePull"
    # The name of the image cannot be read.
    INVALID_IMAGE_NAME = "InvalidImageName"
    # A ConfigMap or Secret that the container's environment needs is missing.
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError"
    # The container could not be made.
    CREATE_CONTAINER_ERROR = "CreateContainerError"
    # The container could not be started: the command is missing, for example.
    RUN_CONTAINER_ERROR = "RunContainerError"
    # A node that workers run on is not ready.
    NODE_NOT_READY = "NodeNotReady"
    # Fewer workers are ready than are wanted, and nothing says why.
    WORKERS_NOT_READY = "WorkersNotReady"
    # The rollout of the Deployment has made no progress for its progressDeadlineSeconds.
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"

    # --- what is wrong with Kubernetes

    # The API server does not answer.
    KUBERNETES_UNAVAILABLE = "KubernetesUnavailable"
    # Another writer was faster; the next turn looks again.
    WRITE_CONFLICT = "WriteConflict"
    # RBAC, a quota or an admission rule refuses a request of the operator.
    FORBIDDEN = "Forbidden"
    # The API server finds an object invalid that the resource asks for.
    REJECTED = "Rejected"
    # Something that the resource refers to is not there.
    NOT_FOUND = "NotFound"
    # The API server answered with an error that Pelops does not know.
    KUBERNETES_ERROR = "KubernetesError"
    # The work on the resource took longer than its deadline and was cancelled.
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    # An error without a diagnosis: a gap in Pelops.
    UNEXPECTED_ERROR = "UnexpectedError"

    # --- told by Events alone

    # More workers are wanted than before.
    SCALED_UP = "ScaledUp"
    # Fewer workers are wanted than before.
    SCALED_DOWN = "ScaledDown"
    # Somebody else's PodDisruptionBudget selects the workers, so the operator's own is removed.
    POD_DISRUPTION_BUDGET_CONFLICT = "PodDisruptionBudgetConflict"
    # The workers' PodDisruptionBudget may not be made; they run without one.
    POD_DISRUPTION_BUDGET_REFUSED = "PodDisruptionBudgetRefused"
    # The group was created for the first time.
    GROUP_CREATED = "GroupCreated"
    # The group had existed and was gone; it was created anew where nothing is skipped.
    GROUP_RECREATED = "GroupRecreated"
    # The group's position is another one than before, by an act of the operator.
    POSITION_CHANGED = "PositionChanged"
    # Stuck entries were copied to the end and acknowledged.
    REQUEUED = "Requeued"
    # Stuck entries were offered to other workers under their own IDs.
    RELEASED = "Released"
    # Entries were given up: they are in the dead-letter stream.
    DEAD_LETTERED = "DeadLettered"
    # Pending entries whose body was deleted were acknowledged, and told to the dead letters.
    PAYLOAD_GONE = "PayloadGone"
    # The body of a pending entry was deleted while its worker holds it: nothing was done yet.
    PENDING_ENTRY_DELETED = "PendingEntryDeleted"
    # A consumer without a pod and without pending entries was removed.
    CONSUMER_REMOVED = "ConsumerRemoved"
    # Entries that no group needs any more were trimmed.
    TRIMMED = "Trimmed"
    # An audit has accounted for further windows.
    WINDOW_AUDITED = "WindowAudited"
    # Dead letters went because of their age.
    DEAD_LETTERS_EXPIRED = "DeadLettersExpired"
    # The group stays in Redis, as the resource asks.
    RETAINED = "Retained"
    # The group and its own keys are being destroyed.
    DESTROYING = "Destroying"
    # The resource is gone as it asked to: with its group, or without.
    GROUP_REMOVED = "GroupRemoved"
    # The group could not be destroyed in time; the resource went without it.
    GROUP_NOT_DESTROYED = "GroupNotDestroyed"


# A condition may hold more, an Event no more than 128 characters (events.k8s.io/v1).
_FIT = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?")


# What ends by itself within seconds: told, but no warning.
UNDER_WAY = frozenset({Reason.CREATING, Reason.WAITING_FOR_GROUP, Reason.WORKERS_NOT_READY})
# Waiting does not help: somebody must change the resource, or what it refers to. A resource that is
# not ready for one of these is Stalled at once.
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
        Reason.CROSS_SLOT,
        Reason.UNSUPPORTED_SERVER,
        Reason.NAME_TAKEN,
        Reason.REJECTED,
        Reason.TARGET_FORBIDDEN,
        Reason.INVALID_IMAGE_NAME,
        Reason.PROGRESS_DEADLINE_EXCEEDED,
    }
)


def fit_reason(found: str, otherwise: str = Reason.CONTAINER_WAITING) -> str:
    """A reason that somebody else gave, when it can be shown as ours; else `otherwise`."""
    return found if _FIT.fullmatch(found) else otherwise
