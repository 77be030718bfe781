"""A worker of the shop: what its entries ask for, after the time that `SHOP_HANDLER_MS` gives."""

from __future__ import annotations

import asyncio
import os
import random

from pelops.worker import Entry, Reject, Worker

worker = Worker.from_env()
HANDLER_S = float(os.environ["SHOP_HANDLER_MS"]) / 1000


@worker.handler
async def handle(entry: Entry) -> None:
    """Wait, then do what the entry's field `nature` says."""
    nature = entry["nature"]
    await asyncio.sleep(HANDLER_S * random.uniform(0.5, 1.5))
    if nature == b"rejected":
        raise Reject("UnknownCurrency", "the currency is not known")
    if nature == b"failing" or (nature == b"failing-once" and entry.attempt == 1):
        raise ValueError("the payment provider did not answer")
    if nature == b"crash":
        os._exit(1)


if __name__ == "__main__":
    worker.run()
