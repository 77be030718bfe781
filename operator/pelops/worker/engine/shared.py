"""What all loops of one worker share."""

from __future__ import annotations

from dataclasses import dataclass

from pelops.worker.engine.clock import Clock
from pelops.worker.engine.deliveries import Receiving
from pelops.worker.engine.in_flight import Holding
from pelops.worker.engine.observer import Observer
from pelops.worker.engine.ordering import OrderBy
from pelops.worker.engine.prefetch import Intake
from pelops.worker.engine.refusals import Complaints
from pelops.worker.entry import Terms
from pelops.worker.server.adapter import Door
from pelops.worker.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One worker while it serves."""

    door: Door
    settings: Settings
    observer: Observer
    clock: Clock
    complaints: Complaints
    holding: Holding
    intake: Intake
    receiving: Receiving


def build_shared(
    door: Door, settings: Settings, observer: Observer, clock: Clock, order_by: OrderBy | None
) -> Shared:
    """Everything that a worker has before it begins."""
    holding = Holding(settings.concurrency, order_by, idle_s=settings.idle_s)
    intake = Intake(
        concurrency=settings.concurrency,
        prefetch=settings.prefetch,
        prefetch_bytes=settings.prefetch_bytes,
    )
    terms = Terms(clock, settings.idle_s, settings.field_prefix.encode())
    return Shared(
        door=door,
        settings=settings,
        observer=observer,
        clock=clock,
        complaints=Complaints(observer, clock),
        holding=holding,
        intake=intake,
        receiving=Receiving(holding, terms, intake.sizes, observer),
    )
