"""kubectl as a child process, with the contexts, plugins and proxies that the user set up.

`kubectl -n shop pelops` is refused by kubectl itself, so the flags of the command line are passed
on here.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.domain.site import page_url

Object = dict[str, Any]

GROUPS: Final = "streamconsumergroups.pelops.dev"
REDRIVES: Final = "streamredrives.pelops.dev"
AUDITS: Final = "streamaudits.pelops.dev"
PROGRAM: Final = "kubectl"
# Longer than a slow API server needs, short enough for a person who waits.
REQUEST_TIMEOUT_S: Final = 30.0
EXEC_TIMEOUT_S: Final = 300.0
_WITH_MANAGERS: Final = ("-o", "json", "--show-managed-fields=true")
_GRACE_S: Final = 5.0  # for kubectl to report its own timeout first


class KubectlFailed(CommandFailed):
    """kubectl ended with an error; the message is its reason in one sentence."""

    def __init__(self, message: str, *, code: ExitCode, reason: str) -> None:
        """`reason` is the word of the API server, such as NotFound, Forbidden, Invalid or
        Conflict; else Unreachable, NoSuchKind or Failed.
        """
        super().__init__(message, code=code)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of a pod."""

    namespace: str
    pod: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A command that ran in a container."""

    output: str
    errors: str
    exit_code: int


class Kubectl:
    """Calls of kubectl with the context of one command line.

    Every method raises KubectlFailed with a sentence for the user. Its exit code is 3 if the object
    does not exist or the user has no right to it, 124 if the answer took too long, else 1.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
        on_call: Callable[[str], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        """`on_call` gets each call as a line, `on_warning` each warning of the API server."""
        flags = {"--context": context, "--kubeconfig": kubeconfig}
        self._flags = [f"{flag}={value}" for flag, value in flags.items() if value]
        self._namespace = namespace
        self._on_call = on_call
        self._on_warning = on_warning

    @classmethod
    def of(cls, arguments: Namespace, console: Console) -> Kubectl:
        """Return the kubectl that the common flags of a command line ask for."""
        verbose = getattr(arguments, "verbose", None)
        kubeconfig = getattr(arguments, "kubeconfig", None)
        if kubeconfig and not Path(kubeconfig).exists():
            # kubectl reports this as a missing context where it only reads the kubeconfig.
            raise CommandFailed(
                f"--kubeconfig {kubeconfig}: there is no such file", code=ExitCode.USAGE
            )
        return cls(
            namespace=getattr(arguments, "namespace", None),
            context=getattr(arguments, "context", None),
            kubeconfig=kubeconfig,
            on_call=console.note if verbose else None,
            on_warning=console.note,
        )

    @property
    def namespace(self) -> str:
        """The namespace of the command: `-n`, else that of the context, else `default`."""
        if self._namespace is None:
            shown = self.run("config", "view", "--minify", "-o", "jsonpath={..namespace}")
            self._namespace = shown.strip() or "default"
        return self._namespace

    def get(self, kind: str, name: str, *, namespace: str | None = None) -> Object:
        """Return one object, with its managedFields."""
        return self._load("get", kind, name, *_WITH_MANAGERS, *self._in(namespace))

    def find(self, kind: str, name: str, *, namespace: str | None = None) -> Object | None:
        """Return one object, or None if it does not exist."""
        try:
            return self.get(kind, name, namespace=namespace)
        except KubectlFailed as error:
            if error.reason != "NotFound":
                raise
            return None

    def list_objects(
        self,
        kind: str,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        selector: str | None = None,
        field_selector: str | None = None,
    ) -> list[Object]:
        """Return the objects of a kind in one namespace, or in all of them."""
        where = ["--all-namespaces"] if all_namespaces else self._in(namespace)
        chosen = {"--selector": selector, "--field-selector": field_selector}
        flags = [f"{flag}={value}" for flag, value in chosen.items() if value]
        items: list[Object] = self._load("get", kind, "-o", "json", *where, *flags)["items"]
        return items

    def raw(self, path: str) -> str:
        """Return the body of a GET of a path of the API server."""
        return self.run("get", "--raw", path)

    def patch(
        self, kind: str, name: str, change: Mapping[str, Any], *, namespace: str | None = None
    ) -> Object:
        """Merge a change into an object, and return the object."""
        words = ("patch", kind, name, "--type=merge", "--patch", json.dumps(change))
        return self._load(*words, "-o", "json", *self._in(namespace))

    def create(
        self, manifest: Mapping[str, Any], *, namespace: str | None = None, dry_run: bool = False
    ) -> Object:
        """Create an object and return it. A dry run is checked by the API server, not stored."""
        where = namespace or manifest["metadata"].get("namespace")
        words = ["create", "--filename=-", "-o", "json", *self._in(where)]
        if dry_run:
            words.append("--dry-run=server")
        return self._load(*words, stdin=json.dumps(manifest))

    def exec(
        self,
        container: Container,
        command: Sequence[str],
        *,
        stdin: str | None = None,
        timeout_s: float = EXEC_TIMEOUT_S,
    ) -> Finished:
        """Run a command in a container. Its exit code is part of the answer, not an error."""
        words = ["exec", container.pod, f"--container={container.name}"]
        words.append(f"--namespace={container.namespace}")
        if stdin is not None:
            words.append("--stdin")
        done = self._call([*words, "--", *command], stdin, timeout_s)
        ended = _COMMAND_ENDED.search(done.stderr)
        if done.returncode and ended is None:
            raise explain_failure(done.stderr)
        errors = _COMMAND_ENDED.sub("", done.stderr)
        return Finished(output=done.stdout, errors=errors, exit_code=done.returncode)

    def can(self, verb: str, resource: str, *, namespace: str | None = None) -> bool:
        """Return whether the user has a right, such as `create` on `pods/exec`."""
        kind, _, subresource = resource.partition("/")
        words = ["auth", "can-i", verb, kind, *self._in(namespace)]
        if subresource:
            words.append(f"--subresource={subresource}")
        done = self._call(words, None, REQUEST_TIMEOUT_S)
        if done.stdout.strip() not in {"yes", "no"}:
            raise explain_failure(done.stderr)
        return done.stdout.strip() == "yes"

    def run(
        self, *words: str, stdin: str | None = None, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> str:
        """Run kubectl with these words and return its standard output."""
        done = self._call(words, stdin, timeout_s)
        if done.returncode:
            raise explain_failure(done.stderr)
        if self._on_warning is not None:
            for line in done.stderr.splitlines():
                if line.startswith("Warning:"):
                    self._on_warning(line)
        return done.stdout

    def _load(self, *words: str, stdin: str | None = None) -> Object:
        text = self.run(*words, stdin=stdin)
        try:
            loaded: Object = json.loads(text)
        except ValueError as error:
            raise KubectlFailed(
                f"the answer to `kubectl {' '.join(words[:3])}` is not JSON",
                code=ExitCode.PROBLEM,
                reason="Failed",
            ) from error
        return loaded

    def _in(self, namespace: str | None) -> list[str]:
        """The flag for a namespace; without one, kubectl takes that of the context itself."""
        chosen = namespace or self._namespace
        return [f"--namespace={chosen}"] if chosen else []

    def _call(
        self, words: Sequence[str], stdin: str | None, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        command = [PROGRAM, *words[:1], *self._flags, *words[1:]]
        if words[0] not in {"config", "exec"}:
            command.insert(2, f"--request-timeout={timeout_s:g}s")
        if self._on_call is not None:
            self._on_call(" ".join(command))
        try:
            return subprocess.run(
                command,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=timeout_s + _GRACE_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise KubectlFailed(
                "kubectl is not on the PATH. Install it: https://kubernetes.io/docs/tasks/tools/",
                code=ExitCode.PROBLEM,
                reason="Failed",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise KubectlFailed(
                f"no answer to `kubectl {words[0]}` within {timeout_s:g} s",
                code=ExitCode.TIMEOUT,
                reason="Unreachable",
            ) from error


def run_together(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same time; most of their time is that of kubectl processes.

    Returns:
        The result of each, or the CommandFailed that it raised, in the same order.
    """
    results: list[Any] = [None] * len(functions)

    def call(at: int) -> None:
        try:
            results[at] = functions[at]()
        except CommandFailed as error:
            results[at] = error
        except Exception as error:  # raised again in the caller's thread
            broken.append(error)

    broken: list[Exception] = []
    threads = [threading.Thread(target=call, args=(at,), daemon=True) for at in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
    return results


_COMMAND_ENDED: Final = re.compile(r"^command terminated with exit code \d+\n?", re.MULTILINE)
_SERVER_ERROR: Final = re.compile(r"Error from server(?: \((\w+)\))?: (.*)", re.DOTALL)
_LOG_LINE: Final = re.compile(r"[EWIF]\d{4} [\d:.]+ ")
_NO_KIND: Final = re.compile(
    r"the server doesn't have a resource type \"([^\"]+)\""
    r"|the server could not find the requested resource|no matches for kind \"([^\"]+)\""
)
_UNREACHABLE: Final = re.compile(
    r"Unable to connect to the server|The connection to the server|connection refused"
    r"|i/o timeout|no such host|TLS handshake|EOF$"
)
_SLOW: Final = re.compile(r"Client\.Timeout|context deadline exceeded|request timed out|Timeout:")
_NO_LOGIN: Final = re.compile(r"You must be logged in|Unauthorized|provide credentials")
_SETTINGS: Final = re.compile(
    r"context .* does not exist|Error in configuration|cannot locate context|error loading config"
    r"|kubeconfig|: stat "
)
# Without a current context, kubectl asks this address, where nothing listens.
_NO_CONTEXT: Final = re.compile(
    r"current-context must exist|The connection to the server localhost:8080 was refused"
)
_REFUSED: Final = frozenset({"NotFound", "Forbidden", "Unauthorized"})


def explain_failure(errors: str) -> KubectlFailed:
    """Return the error for what a failed kubectl wrote to standard error."""
    lines = [line for line in errors.splitlines() if line and not _LOG_LINE.match(line)]
    text = " ".join(line.strip() for line in lines) or errors.strip() or "kubectl failed"
    for pattern, reason, code, sentence in _EXPLANATIONS:
        if pattern.search(text):
            return KubectlFailed(sentence.format(text=_clean(text)), code=code, reason=reason)
    answered = _SERVER_ERROR.search(text)
    if answered is None:
        return KubectlFailed(_clean(text), code=ExitCode.PROBLEM, reason="Failed")
    reason = answered[1] or "Failed"
    code = ExitCode.NOT_FOUND if reason in _REFUSED else ExitCode.PROBLEM
    return KubectlFailed(answered[2], code=code, reason=reason)


_EXPLANATIONS: Final = (
    (
        _NO_KIND,
        "NoSuchKind",
        ExitCode.NOT_FOUND,
        "{text}. If it is a kind of Pelops, install the CustomResourceDefinitions: "
        + page_url("get-started/install"),
    ),
    (
        _NO_LOGIN,
        "Unauthorized",
        ExitCode.NOT_FOUND,
        "the cluster does not accept your credentials: {text}",
    ),
    (
        _NO_CONTEXT,
        "Failed",
        ExitCode.USAGE,
        "kubectl has no current context: choose one with --context, or set KUBECONFIG",
    ),
    (_SLOW, "Unreachable", ExitCode.TIMEOUT, "the API server did not answer in time: {text}"),
    (_UNREACHABLE, "Unreachable", ExitCode.PROBLEM, "the API server cannot be reached: {text}"),
    (_SETTINGS, "Failed", ExitCode.USAGE, "{text}. See `kubectl config get-contexts`"),
)


def _clean(text: str) -> str:
    answered = _SERVER_ERROR.search(text)
    message = answered[2] if answered else _PREFIX.sub("", text)
    return message.strip().rstrip(".")


_PREFIX: Final = re.compile(r"^(error: |Error in configuration: )")
