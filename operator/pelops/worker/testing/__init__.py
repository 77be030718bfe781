"""A stream and its consumer group in memory, for the tests of handlers.

    def test_an_order_is_shipped_again_after_a_crash():
        group = MemoryGroup()
        group.add({"order": "17"})
        worker = group.worker()

        @worker.handler
        async def handle(entry):
            shipped.append(entry["order"])
            if len(shipped) == 1:
                group.crash()

        assert group.run(worker).crashed
        group.redeliver()
        group.run(worker)
        assert shipped == [b"17", b"17"] and not group.pending

The worker is the real one; only its adapter is replaced. When all tasks wait, the clock moves at
once: a run takes only the time that its handlers compute, and is deterministic.
"""

from pelops.worker.testing.clock import MovableClock
from pelops.worker.testing.group import Ended, MemoryGroup, Pending
from pelops.worker.testing.memory_adapter import MemoryAdapter

__all__ = ["Ended", "MemoryAdapter", "MemoryGroup", "MovableClock", "Pending"]
