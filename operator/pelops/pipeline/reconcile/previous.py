"""What the window before has left for this one, as far as its files are whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pelops.domain.audit import AuditFinding
from pelops.pipeline.archive.damage import Damage, find_damage
from pelops.pipeline.archive.layout import slug
from pelops.pipeline.archive.plan import parse_plan
from pelops.pipeline.engine.functions import DataFrame
from pelops.pipeline.stages import WindowWork

_STAGES: Final = (
    "entries", "retries", "letters", "snapshot", "acts", "evidence", "copies", "duplicates",
    "truth",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousWindow:
    """The window before the one that is worked on; there is none before window 0."""

    work: WindowWork  # of the window after it
    damage: tuple[Damage, ...] = ()

    @property
    def exists(self) -> bool:
        return self.work.plan.window.number > 0

    def marker(self, stage: str) -> dict[str, Any]:
        """What the marker of a stage says; empty without one."""
        if not self.exists:
            return {}
        return self.work.run.storage.read_json(_marker(self.work, stage)) or {}

    def table(self, group: str, name: str) -> DataFrame | None:
        """A table of a group's results; None when it holds nothing, or cannot be trusted."""
        stage = _stage(group)
        if not self.exists or any((one.stage, one.part) == (stage, name) for one in self.damage):
            return None
        path = self.work.place.before.part(f"{stage}/{name}")
        if not self.work.run.storage.exists(path) or not self.work.count(path):
            return None
        return self.work.load(path)

    def findings(self, group: str) -> list[AuditFinding]:
        """What keeps a group's entries from being accounted for: one finding, or none."""
        stages = {f"group={slug(target.group)}" for target in self.work.plan.targets}
        others = stages - {_stage(group)}
        found = [one for one in self.damage if one.stage not in others]
        if not found:
            return []
        number = self.work.plan.window.number
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        root = f"{self.work.place.root.rstrip('/')}/"
        sentence = (
            f"the archive is damaged: what window {number - 1} left open may not be looked at "
            f"again. Restore the files from a backup, remove all that the archive has of window "
            f"{number}, and audit again. In the archive {str(found[0]).removeprefix(root)}{more}"
        )
        return [AuditFinding(kind="archive-damaged", count=len(found), sentence=sentence)]


def look_back(work: WindowWork) -> PreviousWindow:
    """The window before, and what is damaged of it. Raises ArchiveUnusable."""
    if work.plan.window.number == 0:
        return PreviousWindow(work=work)
    return PreviousWindow(work=work, damage=tuple(_find_damage(work)))


def _find_damage(work: WindowWork) -> Iterator[Damage]:
    """What is damaged of the window before, which was audited to its end."""
    storage, place = work.run.storage, work.place.before
    plan = storage.read_json(place.record("plan.json"))
    manifest = storage.read_json(place.record("manifest.json"))
    if plan is None or manifest is None:
        yield _without_marker(work, "manifest")
        return
    before = WindowWork(run=work.run, plan=parse_plan(plan, place.record("plan.json")), place=place)
    groups = [_stage(group) for group in manifest["groups"]]
    for stage in (*_STAGES, *groups):
        marker = storage.read_json(_marker(work, stage))
        if marker is not None:
            yield from find_damage(storage, before.target, stage, marker)
        elif stage in groups:
            yield _without_marker(work, stage)


def _without_marker(work: WindowWork, stage: str) -> Damage:
    return Damage(stage=stage, part="", path=_marker(work, stage), problem="is missing")


def _marker(work: WindowWork, stage: str) -> str:
    """The marker of a stage of the window before."""
    return work.place.before.record(f"{stage}.json")


def _stage(group: str) -> str:
    return f"group={slug(group)}"
