"""Every fault by its name: how it is done, how often, and what it must not meet."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults import (
    aiming,
    cluster_faults,
    data_faults,
    hindering,
    redriving,
    reusing,
    server_faults,
    worker_faults,
)

# Of a World; those of `hindering` do with any Scene.
Inject = Callable[[Any, random.Random], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way to do harm. `inject` returns when it is over, and says what it did."""

    inject: Inject
    every_s: float  # on average, when it comes alone
    domain: str  # of two in the same, one waits for the other; empty: it never waits


FAULTS: Mapping[str, Fault] = {
    "sigkill": Fault(inject=worker_faults.kill_worker, every_s=2, domain=""),
    "sigstop": Fault(inject=worker_faults.pause_worker, every_s=3, domain=""),
    "offers": Fault(inject=worker_faults.ignore_offers, every_s=6, domain="offers"),
    "restart": Fault(inject=worker_faults.restart_worker, every_s=2, domain=""),
    "delete": Fault(inject=worker_faults.delete_pod, every_s=3, domain=""),
    "operator": Fault(inject=cluster_faults.kill_operators, every_s=4, domain="operators"),
    "redis": Fault(inject=server_faults.kill_redis, every_s=6, domain="data"),
    "failover": Fault(inject=server_faults.fail_over, every_s=12, domain="data"),
    "lag": Fault(inject=server_faults.fail_over_with_lag, every_s=12, domain="data"),
    "migration": Fault(inject=server_faults.move_slots, every_s=5, domain="data"),
    "network": Fault(inject=cluster_faults.hurt_network, every_s=4, domain="network"),
    "apiserver": Fault(inject=cluster_faults.hurt_api_server, every_s=6, domain="api"),
    "rights": Fault(inject=cluster_faults.delay_rights, every_s=10, domain="api"),
    "watch": Fault(inject=cluster_faults.hurt_watch, every_s=6, domain="api"),
    "skew": Fault(inject=cluster_faults.skew_operators, every_s=6, domain="operators"),
    "flush": Fault(inject=data_faults.flush_all, every_s=12, domain="data"),
    "destroy": Fault(inject=data_faults.destroy_group, every_s=8, domain="data"),
    "trim": Fault(inject=data_faults.trim_stream, every_s=5, domain="data"),
    "vanish": Fault(inject=data_faults.delete_stream, every_s=12, domain="data"),
    "group": Fault(inject=data_faults.add_group, every_s=6, domain="data"),
    "strategy": Fault(inject=data_faults.leave_retry_stream, every_s=12, domain="data"),
    "delconsumer": Fault(inject=data_faults.delete_consumer, every_s=5, domain="data"),
    "midway": Fault(inject=aiming.kill_in_mid_recovery, every_s=6, domain="operators"),
    "owed": Fault(inject=aiming.destroy_while_owed, every_s=8, domain="data"),
    "phase": Fault(inject=aiming.declare_failed, every_s=5, domain=""),
    "names": Fault(inject=reusing.reuse_names, every_s=10, domain="api"),
    "kill": Fault(inject=hindering.kill, every_s=2, domain=""),
    "stop": Fault(inject=hindering.stop, every_s=3, domain=""),
    "overtake": Fault(inject=hindering.overtake, every_s=5, domain=""),
    "terminate": Fault(inject=hindering.terminate, every_s=3, domain=""),
    "partition": Fault(inject=hindering.cut_off, every_s=4, domain=""),
    "upgrade": Fault(inject=cluster_faults.upgrade_operators, every_s=40, domain="operators"),
    "redrive": Fault(inject=redriving.redrive, every_s=12, domain="redrives"),
    "twins": Fault(inject=cluster_faults.disturb_twins, every_s=5, domain="operators"),
}
