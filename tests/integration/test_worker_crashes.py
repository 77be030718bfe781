"""An entry that ends every process in which it runs, with real processes and no operator."""

from __future__ import annotations

from tests.worker_process import WorkerProcesses, until

POISON = """
@worker.handler
async def handle(entry):
    if entry["n"] == b"3":
        os._exit(9)
    say("handled", entry.id)
worker.run()
"""


def test_what_ends_process_after_process_becomes_a_dead_letter_without_an_operator(
    workers: WorkerProcesses,
) -> None:
    ids = workers.add(8)
    ended = 0
    process = workers.start("pod-0", POISON, PELOPS_MAX_CRASHES="2")

    def is_settled() -> bool:
        nonlocal ended, process
        if process.poll() is not None:  # as Kubernetes does, under another name
            assert process.returncode == 9
            ended += 1
            process = workers.start(f"pod-{ended}", POISON, PELOPS_MAX_CRASHES="2")
        return bool(workers.letters()) and not workers.pending()

    until(is_settled, 120)
    (letter,) = workers.letters()
    assert (letter["n"], letter["_reason"]) == ("3", "MaxRetriesExceeded")
    assert ended == 4  # two among others, two alone
    handled = {one for number in range(ended + 1) for one in workers.ids(f"pod-{number}")}
    assert handled == {*ids} - {ids[3]}
    found = workers.server.hgetall(workers.keys.worker_state)
    assert not [name for name in found if name.startswith("alone:")]
