"""What the window before has left for this one, as far as its files are whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from pelops.domain.audit import AuditFinding
from pelops.pipeline.damage import Damage, find_damage_of_window
from pelops.pipeline.footers import count_rows
from pelops.pipeline.layout import slug
from pelops.pipeline.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The window before the one that is worked on; there is none before window 0."""

    work: Work  # of the window after it
    damage: tuple[Damage, ...] = ()

    @property
    def exists(self) -> bool:
        return self.work.plan.window.number > 0

    def marker(self, stage: str) -> dict[str, Any]:
        """What the marker of a stage says; empty without one."""
        if not self.exists:
            return {}
        return self.work.run.storage.read_json(self.work.place.before.part(f"{stage}.json")) or {}

    def table(self, group: str, name: str) -> DataFrame | None:
        """A table of a group's results; None when it holds nothing, or cannot be trusted."""
        stage = _stage(group)
        if not self.exists or any((one.stage, one.part) == (stage, name) for one in self.damage):
            return None
        path = self.work.place.before.part(f"{stage}/{name}")
        if not self.work.run.storage.exists(path) or not count_rows(self.work.session, path):
            return None
        return self.work.load(path)

    def findings(self, group: str) -> list[AuditFinding]:
        """What keeps a group's entries from being accounted for: one finding, or none."""
        stages = {f"group={slug(target.group)}" for target in self.work.plan.targets}
        others = stages - {_stage(group)}
        found = [one for one in self.damage if one.stage not in others]
        if not found:
            return []
        number, place = self.work.plan.window.number, self.work.place
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        sentence = (
            f"the archive is damaged: of window {number - 1} {found[0]}{more}. What was open there "
            "may not be looked at again. Put the files back, remove manifest.json, published.json "
            f"and every group=* of {place.path}, and audit again"
        )
        return [AuditFinding(kind="archive-damaged", count=len(found), sentence=sentence)]


def look_back(work: Work) -> Previous:
    """The window before, and what is damaged of it. Raises ArchiveUnusable."""
    if work.plan.window.number == 0:
        return Previous(work=work)
    damage = find_damage_of_window(work.run.storage, work.place.before)
    return Previous(work=work, damage=tuple(damage))


def _stage(group: str) -> str:
    return f"group={slug(group)}"
