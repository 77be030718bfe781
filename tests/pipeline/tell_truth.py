"""A life of many entries, checked entry by entry: python -m tests.pipeline.tell_truth --entries N

Prints what became of them and what reading the files cost; ends with 1 when the files give an
entry a wrong status, or when a wrong status is proven without them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from local_cluster.redis_servers import start_standalone
from pelops.pipeline.evidence import EvidenceLocation, read_evidence
from pelops.pipeline.session import open_session
from pelops.pipeline.settings import PipelineSettings, read_place
from tests.pipeline.evidence_adapter import FILES, VERSIONS
from tests.pipeline.mishaps import Life, live, open_life
from tests.pipeline.seeing import check_with_files, check_without_files, see

_ROUND: Final = 1000  # entries between two mishaps


async def report(
    spark: SparkSession, version: str, entries: int, seed: int, directory: Path | None
) -> None:
    """Live through it and check. Raises AssertionError, which names entries."""
    with start_standalone(version, options=FILES) as servers:
        async with open_life(servers, seed=seed, size=_ROUND) as life:
            began = time.monotonic()
            await live(life, entries)
            print(f"lived in {time.monotonic() - began:.1f} s: {life.happened}")
            files = servers.server.directory / "appendonlydir"
            _show_cost(life, files)
            for truth in (life.driver.main, life.driver.retry):
                seen = await see(life, truth, files)
                check_with_files(spark, seen)
                check_without_files(spark, seen)
                counts = {status.value: number for status, number in truth.counts().items()}
                print(f"{truth.stream}: {len(truth)} entries, all as expected: {counts}")
                if directory is not None:
                    truth.write(directory / f"{truth.stream.replace(':', '-')}.parquet")


def _show_cost(life: Life, files: Path) -> None:
    size = sum(one.stat().st_size for one in files.iterdir())
    began = time.process_time()
    evidence = read_evidence(EvidenceLocation(directory=files), [life.driver.keys])
    print(
        f"read {size / 1e6:.0f} MB in {time.process_time() - began:.1f} CPU-seconds, "
        f"{evidence.acts} acts"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--server", choices=VERSIONS, default="8.6")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="directory for the truth as Parquet")
    chosen = parser.parse_args()
    settings = PipelineSettings(place=read_place({}, "redis://127.0.0.1:1/0"), archive="none")
    spark = open_session(settings, chosen.entries)
    try:
        asyncio.run(report(spark, chosen.server, chosen.entries, chosen.seed, chosen.out))
    except AssertionError as wrong:
        print(wrong, file=sys.stderr)
        return 1
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
