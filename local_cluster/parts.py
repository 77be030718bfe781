"""The command line of each server of the control plane, and how to ask whether it answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.kubeconfigs import Access
from local_cluster.pki import Authority, KeyPair, write_signing_key
from local_cluster.processes import free_port

SERVICE_RANGE = "10.96.0.0/16"
SERVICE_HOSTS = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
HOSTS = (
    "127.0.0.1",
    "localhost",
    *SERVICE_HOSTS,
    f"{SERVICE_HOSTS[-1]}.cluster.local",
    "10.96.0.1",
)
# Who did what and when, without bodies: enough to count the writes of each user, and no secrets.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
SERVERS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Who is who in one control plane."""

    authority: Authority
    front_proxy: Authority  # of its own: what it signs may act as any user
    server: KeyPair
    proxy_client: KeyPair
    service_accounts: KeyPair
    admin: KeyPair
    controller_manager: KeyPair
    scheduler: KeyPair

    @classmethod
    def create(cls, directory: Path) -> "Identities":
        """New ones, in PEM files in the directory."""
        directory.mkdir(mode=0o700, parents=True)
        authority = Authority.create(directory, "ca")
        front_proxy = Authority.create(directory, "front-proxy-ca")
        # Without every right, and without --use-service-account-credentials (which delays the
        # default ServiceAccount by 5-17 s), the controller-manager silently rolls out nothing.
        manager = ("system:kube-controller-manager", ["system:masters"])
        return cls(
            authority=authority,
            front_proxy=front_proxy,
            server=authority.issue_server("server", HOSTS),
            proxy_client=front_proxy.issue_client("front-proxy-client", "front-proxy-client"),
            service_accounts=write_signing_key(directory, "service-accounts"),
            admin=authority.issue_client("admin", "kubernetes-admin", ["system:masters"]),
            controller_manager=authority.issue_client("kube-controller-manager", *manager),
            scheduler=authority.issue_client("kube-scheduler", "system:kube-scheduler"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Files and ports of one control plane."""

    state: Path
    identities: Identities
    ports: Mapping[str, int] = field(
        default_factory=lambda: {part: free_port() for part in SERVERS}
    )
    peer_port: int = field(default_factory=free_port)

    @classmethod
    def create(cls, state: Path) -> "Layout":
        """A new one in an empty state directory, with the files that its servers read."""
        layout = cls(state=state, identities=Identities.create(state / "pki"))
        layout.audit_policy.write_text(json.dumps(AUDIT_POLICY))
        layout.access(layout.identities.admin).write_kubeconfig(layout.kubeconfig)
        for part, client in (
            ("kube-controller-manager", layout.identities.controller_manager),
            ("kube-scheduler", layout.identities.scheduler),
        ):
            layout.access(client).write_kubeconfig(layout.kubeconfig_of(part))
        return layout

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.state / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """One JSON object per answered request."""
        return self.state / "logs" / "audit.log"

    @property
    def audit_policy(self) -> Path:
        """What the audit log holds."""
        return self.state / "audit-policy.json"

    def access(self, client: KeyPair) -> Access:
        """The API server as seen by the holder of a client certificate."""
        ca_file = self.identities.authority.files.certificate
        return Access(url=self.url("kube-apiserver"), ca_file=ca_file, client=client)

    def kubeconfig_of(self, name: str) -> Path:
        """Where a part's or a user's kubeconfig lies."""
        return self.state / "kubeconfigs" / name

    def url(self, part: str) -> str:
        """Where a part listens."""
        scheme = "http" if part == "etcd" else "https"
        return f"{scheme}://127.0.0.1:{self.ports[part]}"

    def health_url(self, part: str) -> str:
        """A page that says 200 once the part does its work; none of them asks who is calling."""
        paths = {"etcd": "/health", "kube-apiserver": "/readyz"}
        return self.url(part) + paths.get(part, "/healthz")


def build_arguments(layout: Layout, part: str, *, controllers: bool) -> list[str]:
    """The arguments of one of SERVERS, without the program."""
    if part == "etcd":
        return _build_etcd(layout)
    if part == "kube-apiserver":
        return _build_apiserver(layout, controllers=controllers)
    if part == "kube-controller-manager":
        return [*_build_controller(layout, part), *_build_controller_manager(layout.identities)]
    return _build_controller(layout, part)


def _build_etcd(layout: Layout) -> list[str]:
    peer_url = f"http://127.0.0.1:{layout.peer_port}"
    return [
        f"--data-dir={layout.state / 'etcd'}",
        # A test's cluster need not survive a power cut, and fsync is most of what a write costs.
        "--unsafe-no-fsync",
        f"--listen-client-urls={layout.url('etcd')}",
        f"--advertise-client-urls={layout.url('etcd')}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--log-level=warn",
    ]


def _build_apiserver(layout: Layout, *, controllers: bool) -> list[str]:
    them = layout.identities
    arguments = [
        f"--etcd-servers={layout.url('etcd')}",
        *_build_listener(layout, "kube-apiserver"),
        # The endpoint of the Service `kubernetes` may not be a loopback address.
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={them.authority.files.certificate}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--profiling=false",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-signing-key-file={them.service_accounts.key}",
        f"--service-account-key-file={them.service_accounts.certificate}",
        *_build_aggregation(them),
        *_build_audit(layout),
    ]
    if not controllers:
        # Without controllers there is no default ServiceAccount, which this plugin insists on.
        arguments.append("--disable-admission-plugins=ServiceAccount")
    return arguments


def _build_aggregation(them: Identities) -> list[str]:
    return [
        f"--requestheader-client-ca-file={them.front_proxy.files.certificate}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={them.proxy_client.certificate}",
        f"--proxy-client-key-file={them.proxy_client.key}",
        # Not --enable-aggregator-routing: it wants endpoints, and these may not be loopback
        # addresses. Without it a Service of type ExternalName leads to `localhost`.
    ]


def _build_audit(layout: Layout) -> list[str]:
    return [
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        # A request's line is there when its answer is: tests count lines.
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=1000",
        "--audit-log-maxbackup=1",
    ]


def _build_listener(layout: Layout, part: str) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[part]}",
        f"--tls-cert-file={layout.identities.server.certificate}",
        f"--tls-private-key-file={layout.identities.server.key}",
    ]


def _build_controller(layout: Layout, part: str) -> list[str]:
    kubeconfig = layout.kubeconfig_of(part)
    return [
        *_build_listener(layout, part),
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--profiling=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _build_controller_manager(them: Identities) -> list[str]:
    return [
        f"--root-ca-file={them.authority.files.certificate}",
        f"--service-account-private-key-file={them.service_accounts.key}",
        f"--cluster-signing-cert-file={them.authority.files.certificate}",
        f"--cluster-signing-key-file={them.authority.files.key}",
        # A node renews its Lease every 10 s; one renewal may come late, not two.
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=16s",
        "--horizontal-pod-autoscaler-sync-period=2s",
        # Of objects of one kind, one is not held up by the slow answers for others.
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
    ]
