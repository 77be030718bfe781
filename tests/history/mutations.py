"""SDKs with one rule taken out, to check that their history shows it."""

from __future__ import annotations

from collections.abc import Mapping

from tests.faults.mutations import Mutation, Replacement

ACKNOWLEDGING = "worker/engine/exchange.py"

MUTATIONS: Mapping[str, Mutation] = {
    "acknowledge-first": Mutation(
        rule="an entry is acknowledged when its handler is through",
        fault="kill",
        replacements=(
            Replacement(
                file=ACKNOWLEDGING,
                old="    acks, checked = _split(done, ",
                new="    done += offered\n    acks, checked = _split(done, ",
            ),
        ),
    ),
    "refresh-any": Mutation(
        rule="a heartbeat takes nothing back from its new owner",
        fault="stop",
        replacements=(
            Replacement(
                file="worker/server/lua/renew.lua",
                old="  if entry and entry[2] == me then\n",
                new="  if entry then\n",
            ),
        ),
    ),
    "ignore-loss": Mutation(
        rule="what a heartbeat finds in other hands is given up",
        fault="stop",
        replacements=(
            Replacement(
                file=ACKNOWLEDGING,
                old="    lost = [entry for entry in (*sent.done, *sent.kept)"
                " if _is_in(entry, answer.lost)]\n",
                new="    lost: list[Entry] = []\n",
            ),
        ),
    ),
}
