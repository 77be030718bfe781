"""Pelops' worker with its defaults, as one of the measured processes."""

from __future__ import annotations

from benchmarks.worker_meter import CONCURRENCY, Job, make_handler, read_job
from pelops.domain.endpoint import build_endpoint
from pelops.domain.naming import derive_keys
from pelops.worker import Worker, WorkerSettings
from pelops.worker.settings import WorkerPlace


def build_worker(job: Job) -> Worker:
    """A worker of this job's group, with everything that is on by default."""
    url = f"redis://127.0.0.1:{job.port}/0".encode()
    place = WorkerPlace(
        endpoint=build_endpoint(secret={"url": url}),
        keys=derive_keys(job.stream, job.group),
        consumer=job.consumer,
    )
    worker = Worker(place, WorkerSettings(concurrency=CONCURRENCY))
    worker.handler(make_handler(job))
    return worker


if __name__ == "__main__":
    build_worker(read_job()).run()
