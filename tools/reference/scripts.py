"""Tables of the Lua scripts, from their headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pelops.scripts.declaration import (
    OPERATOR_SCRIPTS,
    WORKER_SCRIPTS,
    Declaration,
    DeclaredCommand,
    Many,
    list_scripts,
    read_declaration,
)
from tools.reference.tables import render_table

_FOLDERS: Final = {
    OPERATOR_SCRIPTS: "../../operator/pelops/redis_streams/lua",
    WORKER_SCRIPTS: "../../operator/pelops/worker/server/lua",
}
_HEAD: Final = ("script", "does", "keys", "reads", "writes", "feature")


def render_scripts(package: str) -> Iterator[str]:
    """Yield the table of the scripts of a package: what each does, on which keys, how."""
    return render_table(
        _HEAD, map(lambda name: _render_script(name, package), list_scripts(package))
    )


def _render_script(name: str, package: str) -> tuple[str, ...]:
    declared = read_declaration(name, package)
    cells = (
        f"[`{name}`]({_FOLDERS[package]}/{name}.lua)",
        declared.summary,
        _render_keys(declared),
        _render_runs(declared.reads),
        _render_runs(declared.writes),
        _render_feature(declared),
    )
    return tuple(cell.replace("|", " ") for cell in cells)


def _render_keys(declared: Declaration) -> str:
    forms = {Many.ONE: "{}", Many.OPTIONAL: "[{}]", Many.ANY: "{}..."}
    return ", ".join(forms[key.many].format(key.name) for key in declared.keys)


def _render_runs(runs: Iterable[DeclaredCommand]) -> str:
    return "; ".join(map(_render_run, runs))


def _render_run(run: DeclaredCommand) -> str:
    words = " ".join((run.command.upper(), *run.keys))
    reported = f"[{words}]" if run.is_optional else words
    return f"{reported} (`{'`, `'.join(run.features)}`)" if run.features else reported


def _render_feature(declared: Declaration) -> str:
    if declared.roles == ("auditor",):
        return "(`--role auditor`)"
    return ", ".join(f"`{one}`" for one in declared.features)
