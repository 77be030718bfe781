"""What the operator is told at its start: flags, each also a `PELOPS_*` variable."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pelops.logs import LogFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of one operator process."""

    kubeconfig: str | None
    namespaces: tuple[str, ...]  # empty: all
    member_namespace: str  # where the member Leases live
    identity: str
    http_host: str
    http_port: int
    log_format: LogFormat
    log_level: str
    observe_s: float  # how often a settled group is looked at
    status_s: float  # how often numbers that move are written to status
    resync_s: float  # how often the cache is compared with a full LIST


def parse_settings(argv: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from flags, else variables, else defaults. Exits with a usage message when wrong."""
    parser = _parser(environment)
    given = parser.parse_args(argv)
    if min(given.observe_interval, given.status_interval, given.resync_interval) <= 0:
        parser.error("intervals are seconds above 0")
    return Settings(
        kubeconfig=given.kubeconfig,
        namespaces=tuple(sorted(set(given.namespace))),
        member_namespace=given.member_namespace,
        identity=given.identity,
        http_host=given.http_host,
        http_port=given.http_port,
        log_format=given.log_format,
        log_level=given.log_level,
        observe_s=given.observe_interval,
        status_s=given.status_interval,
        resync_s=given.resync_interval,
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    def variable(name: str, default: str) -> str:
        return environment.get(f"PELOPS_{name}") or default

    parser = argparse.ArgumentParser(
        prog="pelops-operator",
        description="Own the life of Redis Streams consumer groups on Kubernetes.",
        epilog="Each flag is also a variable: --http-port is PELOPS_HTTP_PORT.",
    )
    add = parser.add_argument
    kubeconfig = environment.get("PELOPS_KUBECONFIG") or environment.get("KUBECONFIG")
    add("--kubeconfig", default=kubeconfig, help="default: KUBECONFIG, else the ServiceAccount")
    namespaces = variable("NAMESPACE", "").replace(",", " ").split()
    add("--namespace", nargs="*", default=namespaces, help="watch only these; default: all")
    add("--member-namespace", default=variable("MEMBER_NAMESPACE", "pelops-system"))
    identity = variable("IDENTITY", f"{socket.gethostname()}-{os.getpid()}".lower())
    add("--identity", default=identity, help="unique per replica; default: the host and process")
    add("--http-host", default=variable("HTTP_HOST", "127.0.0.1"))
    add("--http-port", type=int, default=variable("HTTP_PORT", "8080"), help="0: any free port")
    add("--log-format", choices=("json", "console"), default=variable("LOG_FORMAT", "json"))
    add("--log-level", default=variable("LOG_LEVEL", "INFO"))
    add("--observe-interval", type=float, default=variable("OBSERVE_INTERVAL", "5"), metavar="S")
    add("--status-interval", type=float, default=variable("STATUS_INTERVAL", "10"), metavar="S")
    add("--resync-interval", type=float, default=variable("RESYNC_INTERVAL", "450"), metavar="S")
    return parser
