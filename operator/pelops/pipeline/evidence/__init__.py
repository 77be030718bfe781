"""What a server's append-only files say of every entry: see `docs/pipeline-evidence.md`."""

from pelops.pipeline.evidence.errors import EvidenceUnusable
from pelops.pipeline.evidence.fates import AcknowledgementKind, Fate, Removal
from pelops.pipeline.evidence.reader import EvidenceLocation, FileEvidence, read_evidence
from pelops.pipeline.evidence.tables import SCHEMA

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
