"""Evidence of every entry from a server's append-only files: see `docs/audits/evidence.md`."""

from pelops.pipeline.evidence.append_only_files import EvidenceUnusable
from pelops.pipeline.evidence.entry_histories import AcknowledgementKind, Fate, Removal
from pelops.pipeline.evidence.file_evidence import (
    SCHEMA,
    EvidenceLocation,
    FileEvidence,
    read_evidence,
)

__all__ = [
    "SCHEMA",
    "AcknowledgementKind",
    "EvidenceLocation",
    "EvidenceUnusable",
    "Fate",
    "FileEvidence",
    "Removal",
    "read_evidence",
]
