"""What the operator is informed at its start: flags, each also a `PELOPS_*` variable."""

from __future__ import annotations

import argparse
import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from pelops.build import describe_build, version
from pelops.domain.destinations import ROUTABLE, AddressRules, parse_address_rules
from pelops.logs import LogFormat

LOG_FORMATS: Final = get_args(LogFormat)
METRICS_AUTHENTICATION: Final = ("none", "token")
INSPECTION: Final = ("none", "token")
LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSettings:
    """All settings of one operator process."""

    kubeconfig: str | None
    namespaces: tuple[str, ...]  # empty: all
    member_namespace: str  # where the member Leases live
    identity: str
    http_host: str
    http_port: int
    guards_metrics: bool  # /metrics requires the right to read it
    serves_inspection: bool  # POST /inspection, which requires the right to get the group
    inspection_socket: Path | None  # None: the usual place
    log_format: LogFormat
    log_level: str
    observe_s: float  # how often a settled group is read
    status_s: float  # how often numbers that move are written to status
    resync_s: float  # how often the cache is compared with a full LIST
    skew_s: float  # how far a node's clock and that of a Redis may differ
    audit_image: str  # of the jobs of audits that name none
    address_rules: AddressRules  # which addresses Redis servers may have


def parse_settings(argv: Sequence[str], environment: Mapping[str, str]) -> ReplicaSettings:
    """Settings from flags, else variables, else defaults. Exits with a usage message when wrong."""
    parser = build_parser(environment)
    given = parser.parse_args(argv)
    _check(parser, given)
    return ReplicaSettings(
        kubeconfig=given.kubeconfig,
        namespaces=_namespaces(given.namespace, environment),
        member_namespace=given.member_namespace,
        identity=given.identity,
        http_host=given.http_host,
        http_port=given.http_port,
        guards_metrics=given.metrics_authentication == "token",
        serves_inspection=given.inspection == "token",
        inspection_socket=Path(given.inspection_socket) if given.inspection_socket else None,
        log_format=given.log_format,
        log_level=given.log_level,
        observe_s=given.observe_interval,
        status_s=given.status_interval,
        resync_s=given.resync_interval,
        skew_s=given.clock_skew,
        audit_image=given.audit_image,
        address_rules=_address_rules(parser, given),
    )


def _address_rules(parser: argparse.ArgumentParser, given: argparse.Namespace) -> AddressRules:
    try:
        return parse_address_rules(given.allowed_networks, given.allowed_hosts)
    except ValueError as error:
        parser.error(f"--allowed-networks or --allowed-hosts: {error}")


def _namespaces(given: Sequence[str] | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    message = environment.get("PELOPS_NAMESPACE", "") if given is None else " ".join(given)
    return tuple(sorted(set(message.replace(",", " ").split())))


def _check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    intervals = (given.observe_interval, given.status_interval, given.resync_interval)
    if not all(0 < interval < math.inf for interval in intervals):
        parser.error(
            "--observe-interval, --status-interval and --resync-interval must be greater than 0 "
            "(seconds)"
        )
    if not 0 <= given.clock_skew < math.inf:
        parser.error("--clock-skew must be greater than or equal to 0 (seconds)")
    if not 0 <= given.http_port <= 65535:
        parser.error(f"--http-port must be from 0 to 65535; it is {given.http_port}")
    if given.metrics_authentication not in METRICS_AUTHENTICATION:
        parser.error(f"--metrics-authentication must be one of {', '.join(METRICS_AUTHENTICATION)}")
    if given.inspection not in INSPECTION:
        parser.error(f"--inspection must be one of {', '.join(INSPECTION)}")
    # argparse checks the choices of flags, and not of what comes from variables.
    if given.log_format not in LOG_FORMATS:
        parser.error(f"--log-format must be one of {', '.join(LOG_FORMATS)}")
    if given.log_level not in LOG_LEVELS:
        parser.error(f"--log-level must be one of {', '.join(LOG_LEVELS)}")


def build_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of the command line, whose defaults are those of the variables."""

    def variable(name: str, default: str) -> str:
        return environment.get(f"PELOPS_{name}") or default

    parser = argparse.ArgumentParser(
        prog="pelops-operator",
        description="Manage Redis Streams consumer groups and their workers on Kubernetes.",
        epilog="An environment variable sets the default of each flag: PELOPS_HTTP_PORT that of "
        "--http-port.",
    )
    add = parser.add_argument
    add("--version", action="version", version=f"pelops-operator {describe_build()}")
    kubeconfig = environment.get("PELOPS_KUBECONFIG") or environment.get("KUBECONFIG")
    add(
        "--kubeconfig",
        default=kubeconfig,
        help="kubeconfig file; default: KUBECONFIG, else the ServiceAccount of the pod",
    )
    only = "namespaces to watch; default: all"
    add("--namespace", nargs="*", action="extend", metavar="NAME", help=only)
    add(
        "--member-namespace",
        default=variable("MEMBER_NAMESPACE", "pelops-system"),
        metavar="NAME",
        help="namespace of the Leases of the replicas",
    )
    identity = variable("IDENTITY", f"{socket.gethostname()}-{os.getpid()}".lower())
    add(
        "--identity",
        default=identity,
        help="name of this replica, which must be unique; default: host name and process ID",
    )
    add(
        "--http-host",
        default=variable("HTTP_HOST", "127.0.0.1"),
        metavar="ADDRESS",
        help="address that the HTTP server listens on; the manifests set 0.0.0.0",
    )
    add(
        "--http-port",
        type=int,
        default=variable("HTTP_PORT", "8080"),
        help="port of metrics and probes; 0: any free port",
    )
    who = "token: requests for /metrics need a bearer token that RBAC allows to get /metrics"
    authentication = variable("METRICS_AUTHENTICATION", "none")
    add(
        "--metrics-authentication", choices=METRICS_AUTHENTICATION, default=authentication, help=who
    )
    inspected = (
        "token: the HTTP endpoint answers questions about entries (POST /inspection) to users "
        "who may get the StreamConsumerGroup, by a token for the audience pelops.dev/inspection"
    )
    add("--inspection", choices=INSPECTION, default=variable("INSPECTION", "none"), help=inspected)
    path = (
        "Unix socket for questions from within the pod; default: PORT.sock in a directory of the "
        "user in the directory for temporary files"
    )
    add("--inspection-socket", default=variable("INSPECTION_SOCKET", ""), metavar="PATH", help=path)
    add(
        "--log-format",
        choices=LOG_FORMATS,
        default=variable("LOG_FORMAT", "json"),
        help="format of the log",
    )
    add(
        "--log-level",
        type=str.upper,
        choices=LOG_LEVELS,
        default=variable("LOG_LEVEL", "INFO"),
        help="least severe messages of the log",
    )
    durations = {
        "observe-interval": ("5", "time between two observations of a group that is unchanged"),
        "status-interval": ("10", "least time between two updates of the numbers in a status"),
        "resync-interval": ("450", "time between two comparisons of the cache with a full LIST"),
        "clock-skew": ("2", "largest difference between the clocks of a node and of Redis"),
    }
    for name, (seconds, text) in durations.items():
        default = variable(name.replace("-", "_").upper(), seconds)
        add(f"--{name}", type=float, default=default, metavar="SECONDS", help=text)
    image = variable("AUDIT_IMAGE", f"registry.pelops.dev/pelops-pipeline:{version()}")
    add("--audit-image", default=image, help="image of StreamAudits without spec.image")
    networks = (
        f"networks of Redis servers that Pelops may connect to, such as 10.0.0.0/8,{ROUTABLE}. "
        f"{ROUTABLE} is every address except loopback, link-local and metadata services; list "
        f"those as networks, such as 127.0.0.0/8. Default: {ROUTABLE}, or none with --allowed-hosts"
    )
    add(
        "--allowed-networks",
        default=variable("ALLOWED_NETWORKS", ""),
        metavar="LIST",
        help=networks,
    )
    hosts = "host names of Redis servers that Pelops may connect to, such as *.cache.example.com"
    add("--allowed-hosts", default=variable("ALLOWED_HOSTS", ""), metavar="LIST", help=hosts)
    return parser
