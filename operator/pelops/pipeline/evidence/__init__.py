"""What a server's append-only files say of every entry: see `docs/pipeline-evidence.md`."""

from pelops.pipeline.evidence.errors import EvidenceUnusable
from pelops.pipeline.evidence.fates import Act, Fate, Removal
from pelops.pipeline.evidence.reader import Evidence, Source, read_evidence
from pelops.pipeline.evidence.tables import SCHEMA

__all__ = [
    "SCHEMA",
    "Act",
    "Evidence",
    "EvidenceUnusable",
    "Fate",
    "Removal",
    "Source",
    "read_evidence",
]
