"""A Kubernetes control plane as four processes, each of which a test may kill, pause or restart."""

import hashlib
import json
import ssl
import subprocess
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cluster.binaries import Binaries, find_binaries
from local_cluster.errors import LocalClusterError
from local_cluster.kubectl import run_kubectl
from local_cluster.parts import SERVERS, Layout, build_arguments
from local_cluster.pki import KeyPair
from local_cluster.processes import Process, start_process, wait_until
from local_cluster.progress import step

# Three seconds on an idle machine; a minute when it compiles something beside.
READY_TIMEOUT_S = 180.0
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


@dataclass(kw_only=True)
class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on loopback."""

    state: Path
    kubectl_path: Path
    controllers: bool
    detached: bool
    _layout: Layout
    _binaries: Binaries
    _tls: ssl.SSLContext
    _processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        state: Path,
        *,
        detached: bool = False,
        controllers: bool = True,
        prepare: Callable[["ControlPlane"], None] | None = None,
    ) -> "ControlPlane":
        """A ready control plane, its default ServiceAccount included, in an empty directory.

        Without `controllers` there are only etcd and the API server: nothing is scheduled,
        rolled out or collected. `prepare` is called when the API server answers, before the
        controllers start. The garbage collector knows the kinds of CRDs that are applied there
        from the beginning; for later ones it looks every 30 s. A start that fails raises
        LocalClusterError with the end of the failing part's log, and leaves nothing running.
        """
        binaries = find_binaries()
        state = state.absolute()
        if (state / "pki").exists():
            raise LocalClusterError(f"{state} is the state of another control plane")
        (state / "logs").mkdir(parents=True, exist_ok=True)
        layout = Layout.create(state)
        plane = cls(
            state=state,
            kubectl_path=binaries.paths["kubectl"],
            controllers=controllers,
            detached=detached,
            _layout=layout,
            _binaries=binaries,
            _tls=_build_tls(layout),
        )
        with step(f"starting the control plane ({binaries.origin})"):
            plane._start_all(prepare)
        return plane

    @property
    def origin(self) -> str:
        """Where its programs come from, for people."""
        return self._binaries.origin

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._layout.kubeconfig

    @property
    def url(self) -> str:
        """Where the API server listens."""
        return self._layout.url("kube-apiserver")

    @property
    def ca_file(self) -> Path:
        """The certificate authority of the API server."""
        return self._layout.identities.authority.files.certificate

    @property
    def tls(self) -> ssl.SSLContext:
        """How the administrator reaches the API server."""
        return self._tls

    @property
    def front_proxy_ca_file(self) -> Path:
        """The certificate authority of the API server's own client certificate towards servers
        behind an APIService: its holder may name the user who is asking in headers.
        """
        return self._layout.identities.front_proxy.files.certificate

    @property
    def audit_log(self) -> Path:
        """One JSON object (audit.k8s.io/v1 Event, level Metadata) per answered request."""
        return self._layout.audit_log

    def kubectl(
        self, *args: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """What kubectl says as administrator; the caller's own kubectl settings play no part.

        With `check`, KubectlError is raised when it fails.
        """
        return run_kubectl(self.kubectl_path, self.kubeconfig, *args, stdin=stdin, check=check)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for `user` in `groups`, by a client certificate; the same file when asked
        again. A user's name has 64 characters at most, as X.509 demands.
        """
        digest = hashlib.sha256("\0".join([user, *groups]).encode()).hexdigest()[:16]
        path = self._layout.kubeconfig_of(f"user-{digest}")
        if not path.exists():
            client = self._layout.identities.authority.issue_client(path.name, user, groups)
            self._layout.access(client).write_kubeconfig(path)
        return path

    def serving_certificate_for(self, host: str) -> KeyPair:
        """A serving certificate for a host name, signed by the authority of `ca_file`: what a
        webhook or a server behind an APIService (`<service>.<namespace>.svc`) needs.
        """
        return self._layout.identities.authority.issue_server(f"server-{host}", [host])

    def process(self, part: str) -> Process:
        """The process of a part: etcd, kube-apiserver, kube-controller-manager, kube-scheduler."""
        return self._processes[part]

    def restart(self, part: str) -> None:
        """Start a part again on the same port and state, and wait until it answers.

        One that still runs is killed first.
        """
        self._processes[part].kill()
        self._start(part)
        self._await_url(self._layout.health_url(part), f"an answer of {part}", [part])

    def stop(self) -> None:
        """End every part; the state directory stays. Nothing when it has ended."""
        # Killed, not asked: an API server takes up to a minute to end its watches. Only the logs
        # on disk are still of use.
        for part in reversed(SERVERS):
            if part in self._processes:
                self._processes[part].kill()

    def get(self, path: str) -> bytes:
        """The body of a GET as administrator; raises OSError unless the answer is 200."""
        return self._fetch(self.url + path)

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float,
        content_type: str = "application/json",
    ) -> bytes:
        """The answer to any request as administrator, its body sent as JSON.

        `content_type` is for a PATCH. It costs far less than a kubectl. Raises HTTPError unless
        the status is 2xx, another OSError when there is no answer.
        """
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        return self._fetch(
            urllib.request.Request(
                self.url + path,
                data=data,
                method=method,
                headers={"Content-Type": content_type},
            ),
            timeout_s,
        )

    def _start_all(self, prepare: Callable[["ControlPlane"], None] | None) -> None:
        try:
            self._start_all_of("etcd")
            self._start_all_of("kube-apiserver")
            if prepare is not None:
                prepare(self)
            if self.controllers:
                self._start_all_of("kube-controller-manager", "kube-scheduler")
                self._await_url(self.url + DEFAULT_ACCOUNT, "the default ServiceAccount", SERVERS)
        except BaseException:
            self.stop()
            raise

    def _start(self, part: str) -> None:
        program = str(self._binaries.paths[part])
        arguments = build_arguments(self._layout, part, controllers=self.controllers)
        log = self.state / "logs" / f"{part}.log"
        self._processes[part] = start_process(
            part, [program, *arguments], log=log, cwd=self.state, detached=self.detached
        )

    def _start_all_of(self, *parts: str) -> None:
        for part in parts:
            self._start(part)
        for part in parts:
            self._await_url(self._layout.health_url(part), f"an answer of {part}", SERVERS)

    def _await_url(self, url: str, what: str, needed: Sequence[str]) -> None:
        try:
            wait_until(lambda: self._answers(url, needed), timeout_s=READY_TIMEOUT_S, what=what)
        except TimeoutError as error:
            logs = self.state / "logs"
            raise LocalClusterError(
                f"the control plane is not ready: {error}; see {logs}"
            ) from error

    def _answers(self, url: str, needed: Sequence[str]) -> bool:
        for part, process in self._processes.items():
            if part in needed and not process.is_alive():
                raise LocalClusterError(f"{part} has ended; its log:\n{process.tail()}")
        try:
            self._fetch(url)
        except OSError:
            return False
        return True

    def _fetch(self, asked: str | urllib.request.Request, timeout_s: float = 10.0) -> bytes:
        # No proxy: the environment's may claim loopback too.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
        )
        with opener.open(asked, timeout=timeout_s) as answer:
            return bytes(answer.read())


def _build_tls(layout: Layout) -> ssl.SSLContext:
    them = layout.identities
    tls = ssl.create_default_context(cafile=str(them.authority.files.certificate))
    tls.load_cert_chain(them.admin.certificate, them.admin.key)
    return tls
