"""Ways to ask about entries: through the operator, or Redis itself.

    (default)             `kubectl exec` into a replica of the operator, which asks that replica
                          through its socket; needs pods/exec in the operator's namespace
    --service-account SA  the operator's HTTP endpoint behind the API server's proxy, as the user of
                          a token that is created for it; needs serviceaccounts/token and
                          services/proxy
    --redis-url URL       Redis, read by this process; pods are not looked up
    --in-pod              the socket of the replica in this pod: what `kubectl exec` runs

The answer is the same JSON object in every way.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import stat
import tempfile
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.cli.flags import add_operator_namespace_flag
from pelops.cli.kubectl import GROUPS, Kubectl, KubectlFailed

Answer = dict[str, Any]
Asked = dict[str, Any]  # a question: pelops.redis_streams.inspection.questions

AUDIENCE: Final = "pelops.dev/inspection"
SERVICE: Final = "pelops-operator-metrics"
OPERATOR_NAMESPACE: Final = "pelops-system"
ANSWER_TIMEOUT_S: Final = 90.0
_PATH: Final = "/inspection"
_NOT_FOUND: Final = frozenset({401, 403, 404})


def add_way_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a way."""
    group = parser.add_argument_group("ways to ask; default: kubectl exec into the operator")
    way = group.add_mutually_exclusive_group()
    way.add_argument("--redis-url", metavar="URL", help="read Redis directly; do not look up pods")
    way.add_argument(
        "--service-account",
        metavar="NAME",
        help="ask the operator over HTTP as this ServiceAccount of the namespace; the operator "
        "must run with --inspection token",
    )
    way.add_argument(
        "--in-pod",
        action="store_true",
        help=argparse.SUPPRESS,  # for `kubectl exec`: the socket
    )
    add = group.add_argument
    add_operator_namespace_flag(group)
    add(
        "--stream",
        metavar="KEY",
        help="with --redis-url: the stream, if there is no StreamConsumerGroup",
    )
    add("--group", metavar="NAME", help="with --redis-url: the consumer group on --stream")


def ask(
    arguments: argparse.Namespace, console: Console, asked: Asked, words: Sequence[str]
) -> Answer:
    """Return the answer to a question.

    `asked` has the fields of a question but its namespace; `words` is the same question as a
    command line, without the flags of any way.

    Raises:
        CommandFailed: there is no answer; the message says why, and the code is 3 if the object
            does not exist or the user has no right to it.
    """
    if arguments.in_pod:
        named = {**asked, "namespace": getattr(arguments, "namespace", None) or ""}
        return _ask_socket(find_socket(), named)
    if arguments.redis_url:
        return _ask_redis(arguments, console, asked)
    kubectl = Kubectl.of(arguments, console)
    if not asked.get("name"):
        raise CommandFailed("name the StreamConsumerGroup", code=ExitCode.USAGE)
    if arguments.service_account:
        return _ask_http(kubectl, arguments, asked)
    return _ask_by_exec(kubectl, arguments, words)


def choose_group(arguments: argparse.Namespace, console: Console) -> str:
    """Return the resource that is asked about: the given name, or the only one of the namespace.

    Raises:
        CommandFailed: there are several, or none.
    """
    name: str | None = arguments.name
    if name or arguments.stream or arguments.in_pod:
        return name or ""
    kubectl = Kubectl.of(arguments, console)
    group_names = [one["metadata"]["name"] for one in kubectl.list_objects(GROUPS)]
    if len(group_names) == 1:
        return str(group_names[0])
    if not group_names:
        raise CommandFailed(
            f"there is no StreamConsumerGroup in namespace {kubectl.namespace}; choose one with -n",
            code=ExitCode.NOT_FOUND,
        )
    names = ", ".join(sorted(group_names)[:10])
    raise CommandFailed(
        f"namespace {kubectl.namespace} has {len(group_names)} StreamConsumerGroups: name one "
        f"of {names}",
        code=ExitCode.USAGE,
    )


# -- kubectl exec


def _ask_by_exec(kubectl: Kubectl, arguments: argparse.Namespace, words: Sequence[str]) -> Answer:
    from pelops.cli.operator_pods import run_in_operator

    command = ["pelops", *words, "--namespace", kubectl.namespace, "--in-pod", "-o", "json"]
    done = run_in_operator(kubectl, command, namespace=arguments.operator_namespace)
    if done.exit_code:
        message = done.errors.strip().removeprefix("pelops: ") or "the operator gave no answer"
        raise CommandFailed(message, code=_known_code(done.exit_code))
    return _load(done.output, "the operator")


def _known_code(code: int) -> ExitCode:
    return ExitCode(code) if code in set(ExitCode) else ExitCode.PROBLEM


# -- the socket in the pod


def find_socket() -> Path:
    """Return the socket of the operator that runs beside this process, as the same user.

    Raises:
        CommandFailed: there is none, or several.
    """
    named = os.environ.get("PELOPS_INSPECTION_SOCKET")
    if named:
        return Path(named)
    directory = Path(tempfile.gettempdir()) / f"pelops-operator-{os.getuid()}"
    sockets = [one for one in sorted(directory.glob("*.sock")) if _is_own_socket(one)]
    if len(sockets) == 1:
        return sockets[0]
    problem = "several operators listen" if sockets else "no operator listens"
    raise CommandFailed(
        f"{problem} in {directory}: set PELOPS_INSPECTION_SOCKET to the socket of the operator"
    )


def _is_own_socket(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()


class _SocketConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ANSWER_TIMEOUT_S)
        # The path of a socket has at most 107 bytes, so its directory is named by a descriptor.
        directory = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{self._path.name}")
        finally:
            os.close(directory)


def _ask_socket(path: Path, question: Asked) -> Answer:
    connection = _SocketConnection(path)
    try:
        body = json.dumps(question).encode()
        connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        status, text = response.status, response.read().decode("utf-8", "replace")
    except (OSError, HTTPException) as error:
        raise CommandFailed(f"the operator does not answer on {path}: {error}") from error
    finally:
        connection.close()
    answer = _load(text, "the operator")
    if status != 200:
        code = ExitCode.NOT_FOUND if status in _NOT_FOUND else ExitCode.PROBLEM
        raise CommandFailed(str(answer.get("message") or f"status {status}"), code=code)
    return answer


# -- HTTP behind the API server


def _ask_http(kubectl: Kubectl, arguments: argparse.Namespace, asked: Asked) -> Answer:
    """The token is in the body, since the API server passes no identity on to a backend."""
    namespace = kubectl.namespace
    token = _create_token(kubectl, arguments.service_account)
    where = arguments.operator_namespace or OPERATOR_NAMESPACE
    path = f"/api/v1/namespaces/{where}/services/http:{SERVICE}:http/proxy{_PATH}"
    question = json.dumps({**asked, "namespace": namespace, "token": token})
    try:
        text = kubectl.run(
            "create", "--raw", path, "--filename=-", stdin=question, timeout_s=ANSWER_TIMEOUT_S
        )
    except KubectlFailed as error:
        raise CommandFailed(str(error), code=error.code) from error
    return _load(text, "the operator")


def _create_token(kubectl: Kubectl, account: str) -> str:
    """Return a short-lived token that only the operator accepts."""
    words = ("create", "token", account, f"--namespace={kubectl.namespace}")
    try:
        return kubectl.run(*words, f"--audience={AUDIENCE}", "--duration=10m").strip()
    except KubectlFailed as error:
        # kubectl wraps the error of the API server, so its reason is only in the text.
        is_refused = "is forbidden" in str(error) or "not found" in str(error)
        raise CommandFailed(
            str(error), code=ExitCode.NOT_FOUND if is_refused else error.code
        ) from error


# -- Redis itself


def _ask_redis(arguments: argparse.Namespace, console: Console, asked: Asked) -> Answer:
    import asyncio

    from pelops.api.group.recovery import RecoverySpec
    from pelops.api.group.stream_consumer_group import StreamConsumerGroup
    from pelops.domain.endpoint import build_endpoint
    from pelops.domain.naming import derive_keys
    from pelops.redis_core.pool import ServerPool
    from pelops.redis_streams.inspection.group_view import GroupInspection
    from pelops.redis_streams.inspection.questions import answer_question, parse_question

    question = parse_question(json.dumps(asked))
    recovery = RecoverySpec()
    if arguments.stream:
        if not arguments.group:
            raise CommandFailed("--stream needs --group", code=ExitCode.USAGE)
        keys = derive_keys(arguments.stream, arguments.group)
    else:
        manifest = Kubectl.of(arguments, console).get(GROUPS, str(asked.get("name") or ""))
        resource = StreamConsumerGroup.parse(manifest)
        letters = resource.spec.dead_letter.stream
        keys = derive_keys(resource.spec.stream, resource.group_name, dead_letter=letters)
        recovery = resource.spec.recovery
    endpoint = build_endpoint(secret={"url": arguments.redis_url.encode()})

    async def read() -> Answer:
        pool = ServerPool()
        try:
            inspection = GroupInspection(
                server=await pool.server(endpoint),
                keys=keys,
                recovery=recovery,
                with_payload=question.payload,
            )
            return await answer_question(inspection, question)
        finally:
            await pool.close()

    return asyncio.run(read())


def _load(text: str, who: str) -> Answer:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"the answer of {who} is not JSON") from error
    if not isinstance(found, dict):
        raise CommandFailed(f"the answer of {who} is not a JSON object")
    return found
