"""How questions reach a replica: a Unix socket beside it, and a path of its HTTP endpoint.

    POST /inspection    a JSON question (redis_streams/inspection/questions.py)

The socket is for `kubectl exec`. Only the user of the process can open its directory, so all its
clients run in the container, with the rights of the operator.

The HTTP path is for service teams, through the API server's proxy. The proxy does not identify the
client: the API server removes the Authorization header, and a client that reaches the pod directly
can write any other header. So the identity is a token in the body, which the API server issued for
the audience `AUDIENCE`:

    TokenReview            the token is genuine, and for this audience
    SubjectAccessReview    get streamconsumergroups/NAME in the namespace that is asked about,
                           and get streamconsumergroups/payloads for the values of fields
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from pelops.controller.inspection.inspector import Inspector, check_question
from pelops.controller.runtime.access import (
    FORBIDDEN,
    OK,
    TOO_MANY,
    UNAUTHORIZED,
    UNAVAILABLE,
    TokenAccess,
)
from pelops.domain.records.inspection import Document
from pelops.errors import (
    DeadlineExceeded,
    Forbidden,
    InvalidSpec,
    KubernetesUnavailable,
    NotFound,
    PelopsError,
    PermissionDenied,
    RedisUnavailable,
)
from pelops.kube.client import STREAM_CONSUMER_GROUP
from pelops.policy.status.diagnosis import diagnose
from pelops.redis_streams.inspection.entry_history import NoSuchEntry
from pelops.redis_streams.inspection.questions import (
    QUESTION_LIMIT,
    Question,
    parse_question,
)

log = logging.getLogger(__name__)

PATH: Final = "/inspection"
AUDIENCE: Final = "pelops.dev/inspection"
PAYLOADS: Final = "payloads"  # the subresource whose `get` allows the values of fields
ANSWERED_AT_ONCE: Final = 16  # requests; more are refused

_REASONS: Final = {
    400: "BadRequest",
    UNAUTHORIZED: "Unauthorized",
    FORBIDDEN: "Forbidden",
    404: "NotFound",
    TOO_MANY: "TooManyRequests",
    500: "InternalError",
    502: "RedisError",
    UNAVAILABLE: "ServiceUnavailable",
    504: "Timeout",
}

GetInspector = Callable[[], Inspector | None]
Handler = Callable[[web.Request], Awaitable[web.Response]]


class InspectionServer:
    """Answers requests, a limited number at once."""

    def __init__(self, inspector: GetInspector) -> None:
        """`inspector` returns None until the replica knows the cluster."""
        self._inspector = inspector
        self._answering = 0

    def trusting(self) -> Handler:
        """A handler for requests of the operator's own user."""

        async def answer(request: web.Request) -> web.Response:
            return await self._limited(request, None)

        return answer

    def guarded(self, access: Callable[[], TokenAccess | None]) -> Handler:
        """A handler for requests with a token in their body."""

        async def answer(request: web.Request) -> web.Response:
            return await self._limited(request, access)

        return answer

    async def _limited(
        self, request: web.Request, access: Callable[[], TokenAccess | None] | None
    ) -> web.Response:
        if self._answering >= ANSWERED_AT_ONCE:
            return _failure(TOO_MANY, "too many inspections run at once: repeat it later")
        self._answering += 1
        try:
            return await self._answer(request, access)
        finally:
            self._answering -= 1

    async def _answer(
        self, request: web.Request, access: Callable[[], TokenAccess | None] | None
    ) -> web.Response:
        try:
            question = await _read_request(request)
        except InvalidSpec as error:
            # Without a valid token, the answer does not describe valid questions.
            return _failure(400, "the request is not a question" if access else str(error))
        if access is not None:
            refused = await _check_rights(access(), question)
            if refused is not None:
                return refused
        inspector = self._inspector()
        if inspector is None:
            return _failure(UNAVAILABLE, "the operator is starting: repeat it later")
        try:
            return web.json_response(await inspector.answer(question))
        except PelopsError as error:
            return _explain(error)


async def _read_request(request: web.Request) -> Question:
    if (request.content_length or 0) > QUESTION_LIMIT:
        raise InvalidSpec("the question is too long")
    question = parse_question(await request.content.read(QUESTION_LIMIT + 1))
    check_question(question)
    return question


async def _check_rights(access: TokenAccess | None, question: Question) -> web.Response | None:
    """The refusal; None when the token's user has all the rights that the question needs."""
    if access is None:
        return _failure(UNAVAILABLE, "the operator is starting: repeat it later")
    needed = ["", *([PAYLOADS] if question.reads_payloads else [])]
    for subresource in needed:
        status = await access.check(question.token, _right(question, subresource), what=PATH)
        if status != OK:
            return _refuse(status, question, subresource)
    return None


def _right(question: Question, subresource: str) -> dict[str, Any]:
    return {
        "resourceAttributes": {
            "verb": "get",
            "group": STREAM_CONSUMER_GROUP.group,
            "resource": STREAM_CONSUMER_GROUP.plural,
            "namespace": question.namespace,
            "name": question.name,
            **({"subresource": subresource} if subresource else {}),
        }
    }


def _refuse(status: int, question: Question, subresource: str) -> web.Response:
    what = "/".join(filter(None, ("streamconsumergroups", subresource)))
    messages = {
        UNAUTHORIZED: f"the request has no valid token for the audience {AUDIENCE}: create one "
        f"with `kubectl create token SERVICEACCOUNT --audience {AUDIENCE}`",
        FORBIDDEN: f"the user of the token may not get {what} {question.name!r} in the namespace "
        f"{question.namespace!r}",
        TOO_MANY: "too many requests wait for the API server: repeat it later",
    }
    return _failure(status, messages.get(status, "the API server did not answer: repeat it later"))


def _explain(error: PelopsError) -> web.Response:
    statuses: tuple[tuple[tuple[type[PelopsError], ...], int], ...] = (
        ((NotFound, NoSuchEntry), 404),
        ((InvalidSpec,), 400),
        ((DeadlineExceeded,), 504),
        ((KubernetesUnavailable, RedisUnavailable), UNAVAILABLE),
        ((Forbidden, PermissionDenied), 502),
    )
    status = next((code for kinds, code in statuses if isinstance(error, kinds)), 502)
    is_ours = isinstance(error, (NotFound, NoSuchEntry, InvalidSpec, DeadlineExceeded))
    return _failure(status, str(error) if is_ours else diagnose(error).message)


def _failure(status: int, message: str) -> web.Response:
    """A Status as the API server writes it: kubectl prints its message."""
    body: Document = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(status, "InternalError"),
        "code": status,
    }
    return web.json_response(body, status=status)


# -- the socket


def default_socket(port: int) -> Path:
    """Where the socket of a replica with this HTTP port is, unless the settings name a path."""
    return Path(tempfile.gettempdir()) / f"pelops-operator-{os.getuid()}" / f"{port}.sock"


async def listen_on_socket(server: InspectionServer, path: Path) -> web.AppRunner | None:
    """Answer on a Unix socket from now on; the caller cleans the runner up.

    None when there is no place for it, which is logged: an inspection by `kubectl exec` fails then.
    """
    app = web.Application(client_max_size=QUESTION_LIMIT)
    app.router.add_post(PATH, server.trusting())
    runner = web.AppRunner(app, access_log=None)
    try:
        _make_private(path.parent)
        await runner.setup()
        with _open_directory(path.parent) as directory:
            _remove_stale(path, f"{directory}/{path.name}")
            await web.UnixSite(runner, f"{directory}/{path.name}").start()
        path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    except OSError as error:
        await runner.cleanup()
        log.warning("Could not listen on the socket %s for inspections: %s", path, error)
        return None
    return runner


def _make_private(directory: Path) -> None:
    """Make the directory, for this user alone. Raises OSError for one of another user."""
    directory.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user")
    if stat.S_IMODE(status.st_mode) != stat.S_IRWXU:
        directory.chmod(stat.S_IRWXU)


@contextmanager
def _open_directory(directory: Path) -> Iterator[str]:
    """Give a short name of the directory: the path of a socket has at most 107 bytes (unix(7))."""
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}"
    finally:
        os.close(opened)


def _remove_stale(path: Path, address: str) -> None:
    """Remove the socket of a process that has ended. Raises OSError if one listens on it."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(address) == 0:
            raise FileExistsError(f"another process listens on {path}")
    path.unlink()
