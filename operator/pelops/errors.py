"""Every error that Pelops raises, in one tree.

The split that matters to a caller is *did it happen?* (after Jepsen's fail and info)::

    PelopsError
    ├── InvalidSpec               the user must change the resource
    │   ├── DeadLetterInAnotherSlot
    │   └── InvalidEntryId        also a ValueError
    ├── DeadlineExceeded          the work on one resource exceeded its deadline and was cancelled
    ├── InternalError             an unexpected error of Pelops in the work on one resource
    ├── RedisError
    │   ├── RedisUnavailable      not sent or refused: it did not happen; retry freely
    │   │   ├── AddressNotAllowed      this installation does not allow the address
    │   │   ├── CredentialsNotAllowed  the Secret does not list the host
    │   │   ├── SlotMigrating     the hash slot of the keys is being migrated
    │   │   ├── OutOfMemory       refused: Redis is out of memory
    │   │   ├── WritesRefused     a replica, or a server that cannot persist or replicate
    │   │   └── NotServing        Redis answers, but loads its data, or is busy
    │   ├── OutcomeUnknown        sent, no answer: it may have happened; repeat what repeats safely
    │   │   ├── InvalidReply      the reply is too large, or has another shape than expected
    │   │   └── UnknownRefusal    a script ended with an error that no list knows
    │   ├── AuthenticationFailed  the credentials are wrong
    │   ├── PermissionDenied      the ACL forbids a command or a key
    │   ├── WrongType             a key holds another type
    │   ├── StreamInUse           a key that Pelops needs has other contents
    │   │   └── DeadLetterStreamInUse
    │   ├── NewerFormat           a newer version of Pelops wrote the state of the group
    │   ├── CrossSlot             keys of one script are in different hash slots
    │   ├── NoSuchStream
    │   ├── NoSuchGroup
    │   ├── NotOurs               another resource manages the group
    │   ├── WouldDuplicate        other groups of the stream would receive the copies as well
    │   ├── PositionAhead         copies would never be delivered to the group
    │   ├── RetryBatchChanged     another operator replica was faster; observe again
    │   ├── AnotherRedriveRuns    a group has one running redrive at a time
    │   ├── RedriveNotStarted     Redis has no record of the redrive
    │   └── UnsupportedServer     the server does not support a command
    └── KubernetesError
        ├── NotFound
        ├── Conflict              another client changed or replaced the object
        ├── Forbidden             RBAC or admission refused
        ├── Rejected              the API server rejects the object as invalid
        └── KubernetesUnavailable no answer, or a server error: retry

Adapters translate what their client raises and always chain the original as the cause.
"""

from __future__ import annotations


class PelopsError(Exception):
    """Base of all errors of Pelops."""


class InvalidSpec(PelopsError):
    """A field of the resource is invalid: its author must change it."""


class DeadLetterInAnotherSlot(InvalidSpec):
    """The dead-letter stream is in another hash slot than the stream."""


class InvalidEntryId(InvalidSpec, ValueError):
    """A text or a pair of numbers is not an entry ID."""


class DeadlineExceeded(PelopsError):
    """The work on one resource exceeded its deadline and was cancelled; it is retried."""


class InternalError(PelopsError):
    """An unexpected error of Pelops in the work on one resource; the cause is chained."""


class RedisError(PelopsError):
    """Redis refused a request, or could not be reached."""


class RedisUnavailable(RedisError):
    """Not sent, or refused before it began: it did not happen."""


class AddressNotAllowed(RedisUnavailable):
    """No connection was opened: this installation does not allow the address."""


class CredentialsNotAllowed(RedisUnavailable):
    """Nothing was sent: the Secret does not list the host for its credentials."""


class SlotMigrating(RedisUnavailable):
    """The hash slot of the keys is being migrated: refused until the migration ends."""


class OutOfMemory(RedisUnavailable):
    """Redis is out of memory: writes that need memory are refused, others are executed."""


class WritesRefused(RedisUnavailable):
    """Redis serves reads and refuses writes: READONLY, NOREPLICAS or MISCONF."""


class NotServing(RedisUnavailable):
    """Redis answers, but does not serve requests: it loads its data, is busy, or has no master."""


class OutcomeUnknown(RedisError):
    """Sent, but no answer came: it may have happened."""


class InvalidReply(OutcomeUnknown):
    """The reply is invalid: too large, too deep, too slow, or of another shape.

    Its message never quotes the server.
    """


class UnknownRefusal(OutcomeUnknown):
    """Redis answered an error that no list knows: a script may have written before it."""


class AuthenticationFailed(RedisError):
    """Redis does not accept the username or password."""


class PermissionDenied(RedisError):
    """The ACL of this Redis user forbids a command, or the command on a key."""

    def __init__(self, message: str, *, command: str | None = None, key: str | None = None) -> None:
        super().__init__(message)
        self.command = command
        self.key = key


class WrongType(RedisError):
    """A key holds another type than the one needed."""

    def __init__(self, message: str, *, key: str, found: str) -> None:
        super().__init__(message)
        self.key = key
        self.found = found


class StreamInUse(RedisError):
    """A key that Pelops needs for a group has contents that Pelops did not write."""


class DeadLetterStreamInUse(StreamInUse):
    """The dead-letter stream has other contents, or a consumer group reads it."""


class NewerFormat(RedisError):
    """A newer version of Pelops wrote the state of the group; nothing was written to the group."""


class CrossSlot(RedisError):
    """Keys that one script needs are in different hash slots of the Redis Cluster."""


class NoSuchStream(RedisError):
    """The stream does not exist."""


class NoSuchGroup(RedisError):
    """The consumer group does not exist."""


class NotOurs(RedisError):
    """Another resource manages the group, or none is known to."""


class WouldDuplicate(RedisError):
    """The stream has other groups, which would receive copies of stuck entries as well."""


class PositionAhead(RedisError):
    """The position of the group is ahead of the stream: copies would never be delivered."""


class RetryBatchChanged(RedisError):
    """Another operator replica changed the retry batch since it was observed."""


class AnotherRedriveRuns(RedisError):
    """Another redrive of the group runs: this one waits until it ends."""

    def __init__(self, message: str, *, redrive: str) -> None:
        """`redrive` is the other one, as `<name>/<uid>`."""
        super().__init__(message)
        self.redrive = redrive


class RedriveNotStarted(RedisError):
    """Redis has no record of the redrive: it was not started, or the record was lost."""


class UnsupportedServer(RedisError):
    """The server does not support a command that is needed."""


class KubernetesError(PelopsError):
    """The API server refused a request, or could not be reached."""


class NotFound(KubernetesError):
    """The object, or its kind, does not exist."""


class Conflict(KubernetesError):
    """Another client changed the object, or replaced it by another one of the same name."""


class Forbidden(KubernetesError):
    """RBAC, a quota or an admission rule refused the request."""


class Rejected(KubernetesError):
    """The API server rejects the object as invalid; its message names the field."""


class KubernetesUnavailable(KubernetesError):
    """No answer, or a server error: the outcome is unknown; retry."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        """`retry_after_s` is the Retry-After of the server, in seconds; 0: none."""
        super().__init__(message)
        self.retry_after_s = retry_after_s
