"""Every error that Pelops raises, in one tree.

The split that matters to a caller is *did it happen?* (after Jepsen's fail and info)::

    PelopsError
    ├── InvalidSpec               the user must change the resource
    │   ├── DeadLetterInAnotherSlot
    │   └── InvalidEntryId        also a ValueError
    ├── DeadlineExceeded          the work on one resource took too long and was cancelled
    ├── InternalError             an error of Pelops itself, met in the work on one resource
    ├── RedisError
    │   ├── RedisUnavailable      not sent or refused: it did not happen; retry freely
    │   │   ├── AddressNotAllowed      this installation does not let servers be there
    │   │   ├── CredentialsNotAllowed  the Secret does not allow its credentials to go there
    │   │   ├── SlotMigrating     the keys are on their way to another node
    │   │   ├── OutOfMemory       refused for want of memory; what needs none is done
    │   │   ├── WritesRefused     a replica, or a server that cannot persist or replicate
    │   │   └── NotServing        it answers, and serves nobody now: it loads, or is busy
    │   ├── OutcomeUnknown        sent, no answer: it may have happened; repeat what repeats safely
    │   │   └── InvalidReply      an answer that is none: too large, or not what was asked for
    │   ├── AuthenticationFailed  the credentials are wrong
    │   ├── PermissionDenied      the ACL forbids a command or a key
    │   ├── WrongType             a key holds another type
    │   ├── StreamInUse           a key that Pelops would fill and empty is somebody else's
    │   │   └── DeadLetterStreamInUse
    │   ├── CrossSlot             keys of one script live in different slots
    │   ├── NoSuchStream
    │   ├── NoSuchGroup
    │   ├── NotOurs               another resource acts on the group
    │   ├── WouldDuplicate        other groups of the stream would see a copy too
    │   ├── PositionAhead         the group would never be given a copy
    │   ├── ChunkChanged          another replica was faster; look again
    │   └── UnsupportedServer     this server lacks a needed command
    └── KubernetesError
        ├── NotFound
        ├── Conflict              another writer was faster, or the object is another one by now
        ├── Forbidden             RBAC or admission refused
        ├── Rejected              the API server finds the object invalid
        └── KubernetesUnavailable no answer, or a server error: retry

Adapters translate what their client raises and always chain the original as the cause.
"""

from __future__ import annotations


class PelopsError(Exception):
    """Base of all errors of Pelops."""


class InvalidSpec(PelopsError):
    """The resource asks for something that cannot be: its author must change it."""


class DeadLetterInAnotherSlot(InvalidSpec):
    """The dead-letter stream that the user named lies in another slot than the stream."""


class InvalidEntryId(InvalidSpec, ValueError):
    """A text or a pair of numbers that is no entry ID."""


class DeadlineExceeded(PelopsError):
    """The work on one resource took too long and was cancelled; it is repeated."""


class InternalError(PelopsError):
    """An error of Pelops itself that the work on one resource met; the cause is chained."""


class RedisError(PelopsError):
    """Redis refused, or could not be asked."""


class RedisUnavailable(RedisError):
    """Not sent, or refused before it began: it did not happen."""


class AddressNotAllowed(RedisUnavailable):
    """Nothing was connected to: the address is one that this installation does not allow."""


class CredentialsNotAllowed(RedisUnavailable):
    """Nothing was sent: the Secret does not allow its credentials to go to that host."""


class SlotMigrating(RedisUnavailable):
    """The slot of the keys is being migrated: refused until all of them have arrived."""


class OutOfMemory(RedisUnavailable):
    """Redis has no memory left: writes that need some are refused, others are done."""


class WritesRefused(RedisUnavailable):
    """Redis reads and takes no writes: READONLY, NOREPLICAS or MISCONF."""


class NotServing(RedisUnavailable):
    """Redis answers and serves nothing for now: it loads its data, is busy, or lacks a master."""


class OutcomeUnknown(RedisError):
    """Sent, but no answer came: it may have happened."""


class InvalidReply(OutcomeUnknown):
    """Answered by what is no valid reply: too large, too deep, too slow, or of another shape.

    Its message never quotes the server.
    """


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
    """A key that Pelops derives for a group holds what Pelops has not written: it is left alone."""


class DeadLetterStreamInUse(StreamInUse):
    """The dead-letter stream holds what is no dead letter of this group, or others consume it."""


class CrossSlot(RedisError):
    """Keys that one script needs live in different slots of the cluster."""


class NoSuchStream(RedisError):
    """The stream does not exist."""


class NoSuchGroup(RedisError):
    """The consumer group does not exist."""


class NotOurs(RedisError):
    """Another resource acts on the group, or none is known to."""


class WouldDuplicate(RedisError):
    """The stream has other groups, which would be given the copy of a stuck entry as well."""


class PositionAhead(RedisError):
    """The group's position lies beyond the end of the stream: it would never be given a copy."""


class RetryBatchChanged(RedisError):
    """Another replica has released suspects since they were looked at."""


class UnsupportedServer(RedisError):
    """This server lacks a command that is needed."""


class KubernetesError(PelopsError):
    """The API server refused, or could not be asked."""


class NotFound(KubernetesError):
    """The object, or its kind, does not exist."""


class Conflict(KubernetesError):
    """Another writer was faster, or the object was replaced by another one of the same name."""


class Forbidden(KubernetesError):
    """RBAC, a quota or an admission rule refused the request."""


class Rejected(KubernetesError):
    """The API server finds the object invalid; its message says which field."""


class KubernetesUnavailable(KubernetesError):
    """No answer, or a server error: nothing is known of the outcome; repeat."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        """`retry_after_s` is how long the server asks to be left alone; 0: it does not say."""
        super().__init__(message)
        self.retry_after_s = retry_after_s
