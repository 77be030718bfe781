"""The plan of a window: made once, before anything is read, and kept for every repetition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pelops.domain.audit import Window
from pelops.domain.entry_id import EntryId, parse_entry_id
from pelops.errors import InvalidSpec
from pelops.pipeline.archive.windows import Checkpoint, milliseconds, moment
from pelops.pipeline.errors import ArchiveUnusable, FileDamaged
from pelops.pipeline.settings import ArchivedPayload, AuditTarget

VERSION: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that decides what a window's archive holds."""

    stream: str
    window: Window
    targets: tuple[AuditTarget, ...]
    payload: ArchivedPayload
    business_key: str | None = None
    cuts: tuple[EntryId, ...] = ()  # where the reading is cut into tasks: a task begins at each
    page_size: int = 1000  # entries of one call
    positions: Mapping[str, EntryId] = field(default_factory=dict)  # before it is archived
    # Copies in the group's own retry stream: after the first ID, up to the second.
    retries: Mapping[str, tuple[EntryId, EntryId]] = field(default_factory=dict)
    ledger_from: Mapping[str, EntryId] = field(default_factory=dict)  # read from after this
    removed: int = 0  # entries of the stream that were gone, when the run began
    retention_margin: float | None = None
    breaks: tuple[str, ...] = ()  # why this window does not go on where the last one ended
    doubts: tuple[str, ...] = ()  # why the stream may be another one than the last window's
    # What shows at the next run whether the stream is still the same one.
    end_digest: str | None = None  # of the last entry of the window; None: it was not there
    max_deleted: EntryId = EntryId.MIN
    run_id: str = ""  # of the server; empty: not known
    made_ms: int = 0

    @property
    def end(self) -> Checkpoint:
        """Where the next window begins."""
        return Checkpoint(at_id=self.window.to_id, added=self.window.to_added, at=self.window.at)

    @property
    def day(self) -> str:
        """The date of the window, as in `2026-01-31`."""
        return self.window.at.date().isoformat()

    @property
    def is_first(self) -> bool:
        """Whether the archive begins with it: what was removed before is in no window."""
        return self.window.number == 0

    @property
    def begins_anew(self) -> bool:
        """Whether it begins with the first entry that was left."""
        return self.is_first or bool(self.breaks)

    @property
    def produced(self) -> int:
        return self.window.to_added - self.window.from_added


def render_plan(plan: Plan) -> dict[str, Any]:
    """The plan as a JSON object."""
    return {
        "version": VERSION,
        "stream": plan.stream,
        "window": render_window(plan.window),
        "targets": [asdict(target) for target in plan.targets],
        "payload": plan.payload.value,
        "business_key": plan.business_key,
        "cuts": [str(cut) for cut in plan.cuts],
        "page_size": plan.page_size,
        "positions": {group: str(at) for group, at in plan.positions.items()},
        "retries": {group: [str(a), str(b)] for group, (a, b) in plan.retries.items()},
        "ledger_from": {group: str(at) for group, at in plan.ledger_from.items()},
        "removed": plan.removed,
        "retention_margin": plan.retention_margin,
        "breaks": list(plan.breaks),
        "doubts": list(plan.doubts),
        "end_digest": plan.end_digest,
        "max_deleted": str(plan.max_deleted),
        "run_id": plan.run_id,
        "made_ms": plan.made_ms,
    }


def parse_plan(found: Mapping[str, Any], path: str) -> Plan:
    """What `render_plan` made. Raises ArchiveUnusable, which names the file, or FileDamaged."""
    try:
        if found["version"] != VERSION:
            raise ArchiveUnusable(
                f"{path} has version {found['version']}; this release reads version {VERSION}. "
                "Give a new directory to --archive, or read this one with the release that made it"
            )
        return _parse(found)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidSpec) as error:
        raise FileDamaged(f"{path} is damaged ({error}): remove its directory") from error


def _parse(found: Mapping[str, Any]) -> Plan:
    return Plan(
        stream=found["stream"],
        window=parse_window(found["window"]),
        targets=tuple(AuditTarget(**one) for one in found["targets"]),
        payload=ArchivedPayload(found["payload"]),
        business_key=found["business_key"],
        cuts=tuple(parse_entry_id(cut) for cut in found["cuts"]),
        page_size=found["page_size"],
        positions={group: parse_entry_id(at) for group, at in found["positions"].items()},
        retries={
            group: (parse_entry_id(a), parse_entry_id(b))
            for group, (a, b) in found["retries"].items()
        },
        ledger_from={group: parse_entry_id(at) for group, at in found["ledger_from"].items()},
        removed=found["removed"],
        retention_margin=found["retention_margin"],
        breaks=tuple(found["breaks"]),
        # Plans of earlier releases lack these.
        doubts=tuple(found.get("doubts", ())),
        end_digest=found.get("end_digest"),
        max_deleted=parse_entry_id(found.get("max_deleted", str(EntryId.MIN))),
        run_id=found.get("run_id", ""),
        made_ms=found["made_ms"],
    )


def render_window(window: Window) -> dict[str, Any]:
    """A window as a JSON object."""
    return {
        "number": window.number,
        "from_id": str(window.from_id),
        "to_id": str(window.to_id),
        "from_added": window.from_added,
        "to_added": window.to_added,
        "at_ms": milliseconds(window.at),
    }


def parse_window(found: Mapping[str, Any]) -> Window:
    """What `render_window` made."""
    return Window(
        number=found["number"],
        from_id=parse_entry_id(found["from_id"]),
        to_id=parse_entry_id(found["to_id"]),
        from_added=found["from_added"],
        to_added=found["to_added"],
        at=moment(found["at_ms"]),
    )
