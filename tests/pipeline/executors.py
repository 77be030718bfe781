"""The executors of a Spark cluster on this machine, their Python workers, and what they have done.

A master `local-cluster[...]` starts each executor as a process of its own, as a cluster does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyspark

_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"
_DRIVER: Final = b"org.apache.spark.deploy.SparkSubmit"
_WORKER: Final = b"pyspark.daemon\0pyspark.worker\0"
_DELTA: Final = "Delta: "  # what Delta's own jobs describe themselves with, or where they are begun
_DELTA_STAGE: Final = "recordDeltaOperation"


def list_executors(session: int) -> list[int]:
    """The executors of the driver that leads these processes, by the number of their session."""
    return sorted(_list(session, _EXECUTOR))


def list_drivers(session: int) -> list[int]:
    """The JVMs of the drivers in a session of processes."""
    return sorted(_list(session, _DRIVER))


def list_workers(session: int) -> list[int]:
    """Their Python workers, and what forks them."""
    return sorted(_list(session, _WORKER))


def _list(session: int, word: bytes) -> Iterator[int]:
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and word in (process / "cmdline").read_bytes():
                # What follows the name of the program, which may hold anything.
                found = (process / "stat").read_text().rpartition(")")[2].split()
                if int(found[3]) == session:
                    yield int(process.name)
        except OSError:
            continue  # it has ended


def event_options(events: Path) -> dict[str, str]:
    """The options of small executors, and of a log of what they do."""
    return {
        "spark.executor.memory": "512m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def cluster_variables(events: Path) -> dict[str, str]:
    """What a driver needs for such a cluster, and to write down what it does."""
    words = [f"--conf {name}={value}" for name, value in event_options(events).items()]
    return {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_SUBMIT_ARGS": " ".join([*words, "pyspark-shell"]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a log of events says."""

    jobs: int  # without Delta's own
    executors: frozenset[str]  # on which tasks have ended
    lost: int  # executors
    failed: int  # tasks


def read_events(directory: Path) -> Done:
    """What the runs of a directory have done."""
    events: dict[str, list[dict[str, Any]]] = {}
    for log in directory.iterdir():
        for line in log.read_text().splitlines():
            event = json.loads(line)
            events.setdefault(event["Event"].removeprefix("SparkListener"), []).append(event)
    ended = events.get("TaskEnd", [])
    return Done(
        jobs=sum(not _is_of_delta(event) for event in events.get("JobStart", [])),
        executors=frozenset(
            event["Task Info"]["Executor ID"]
            for event in ended
            if event["Task End Reason"]["Reason"] == "Success"
        ),
        lost=len(events.get("ExecutorRemoved", [])),
        failed=sum(event["Task End Reason"]["Reason"] != "Success" for event in ended),
    )


def _is_of_delta(job: dict[str, Any]) -> bool:
    described = (job.get("Properties") or {}).get("spark.job.description", "")
    stages = [stage["Stage Name"] for stage in job["Stage Infos"]]
    return described.startswith(_DELTA) or any(_DELTA_STAGE in name for name in stages)
