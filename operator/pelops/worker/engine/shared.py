"""What all loops of one worker share."""

from __future__ import annotations

from dataclasses import dataclass

from pelops.worker.engine.clock import Clock
from pelops.worker.engine.deliveries import Receiving
from pelops.worker.engine.in_flight import InFlight
from pelops.worker.engine.key_order import OrderBy
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.prefetch import Prefetcher
from pelops.worker.engine.refusals import Complaints
from pelops.worker.entry import Terms
from pelops.worker.server.adapter import GroupAdapter
from pelops.worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One worker while it serves."""

    adapter: GroupAdapter
    settings: WorkerSettings
    observer: Observer
    clock: Clock
    complaints: Complaints
    in_flight: InFlight
    prefetcher: Prefetcher
    receiving: Receiving


def build_shared(
    adapter: GroupAdapter,
    settings: WorkerSettings,
    observer: Observer,
    clock: Clock,
    order_by: OrderBy | None,
) -> Shared:
    """Everything that a worker has before it begins."""
    in_flight = InFlight(settings.concurrency, order_by, idle_s=settings.idle_s)
    prefetcher = Prefetcher(
        concurrency=settings.concurrency,
        prefetch=settings.prefetch,
        prefetch_bytes=settings.prefetch_bytes,
    )
    terms = Terms(clock, settings.idle_s, settings.field_prefix.encode())
    return Shared(
        adapter=adapter,
        settings=settings,
        observer=observer,
        clock=clock,
        complaints=Complaints(observer, clock),
        in_flight=in_flight,
        prefetcher=prefetcher,
        receiving=Receiving(in_flight, terms, prefetcher.sizes, observer),
    )
