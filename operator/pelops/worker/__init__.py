"""Process the entries of a Redis stream as a consumer of one group.

from pelops.worker import Worker

worker = Worker.from_env()

@worker.handler
async def handle(entry): ...

worker.run()
"""

from pelops.worker.engine.observer import Observer
from pelops.worker.engine.retries import RetryPolicy
from pelops.worker.entry import Entry
from pelops.worker.outcomes import Reject, Retry, Undecodable
from pelops.worker.producer import Producer
from pelops.worker.settings import WorkerSettings, WrongWorkerSettings, read_place
from pelops.worker.worker import Worker

__all__ = [
    "Entry",
    "Observer",
    "Producer",
    "Reject",
    "Retry",
    "RetryPolicy",
    "Undecodable",
    "Worker",
    "WorkerSettings",
    "WrongWorkerSettings",
    "read_place",
]
