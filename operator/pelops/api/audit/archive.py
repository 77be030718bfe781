"""Where an audit keeps what it read: a path, a volume or a bucket, and for how long."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from pelops.api.redis import SecretRef
from pelops.api.schema.base import ApiModel, Rule, RuleReason, cel
from pelops.api.schema.bounds import ObjectName

_PATH_RULES = cel(
    Rule(
        rule="self.matches('^(/|[a-z][a-z0-9+.-]*://)') && !self.matches('(^|/)[.][.](/|$)')",
        message="path must begin with / or with a scheme such as hdfs://, and hold no ..",
    ),
    Rule(
        rule="!self.matches('^[a-z0-9+.-]+://[^/]*@')",
        message="path must not hold credentials: use archive.s3 with a Secret",
        reason=RuleReason.FORBIDDEN,
    ),
)
_SUB_PATH_RULES = cel(
    Rule(
        rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",
        message="subPath must be relative and hold no ..",
    )
)
_ENDPOINT_RULES = cel(
    Rule(
        rule="self.matches('^https?://[^/?#@]+/?$')",
        message="endpoint must read https://HOST[:PORT], without credentials and without a path",
    )
)

ArchivePath = Annotated[
    str,
    Field(min_length=1, max_length=1024, pattern=r"^[^\x00\s]+$", json_schema_extra=_PATH_RULES),
]
SubPath = Annotated[
    str,
    Field(min_length=1, max_length=512, pattern=r"^[^\x00]+$", json_schema_extra=_SUB_PATH_RULES),
]


class Payload(StrEnum):
    """What of an entry's fields is archived."""

    NONE = "None"
    HASH = "Hash"
    FULL = "Full"


class ClaimSpec(ApiModel):
    """A volume in the same namespace."""

    claim_name: ObjectName = Field(description="Name of the PersistentVolumeClaim.")
    sub_path: SubPath | None = Field(
        default=None, description="Directory in the volume to use; the whole volume unless said."
    )


class S3Spec(ApiModel):
    """A bucket, written to through s3a."""

    bucket: Annotated[
        str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*[a-z0-9]$")
    ] = Field(description="Name of the bucket.")
    prefix: SubPath | None = Field(
        default=None, description="What the keys begin with; the bucket's root unless said."
    )
    endpoint: (
        Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=_ENDPOINT_RULES)]
        | None
    ) = Field(
        default=None,
        description="Address of an S3 of your own, such as https://minio.storage:9000; AWS unless"
        " said.",
    )
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$")] | None = (
        Field(default=None, description="Region of the bucket.")
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the keys accessKeyId and secretAccessKey, and sessionToken if"
        " there is one. Without it the pod's own identity is used.",
    )


class ArchiveSpec(ApiModel):
    """Where the windows of an audit are kept, as Parquet. Windows are written once each."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="(has(self.path) ? 1 : 0) + (has(self.pvc) ? 1 : 0) + (has(self.s3) ? 1 : 0)"
                " == 1",
                message="exactly one of path, pvc and s3 says where the archive is",
                reason=RuleReason.REQUIRED,
            )
        )
    )

    path: ArchivePath | None = Field(
        default=None,
        description="A path that Spark can write to: a directory that spec.template mounts, or an"
        " address such as hdfs://namenode/audits. What is written inside of the container alone is"
        " gone with it.",
    )
    pvc: ClaimSpec | None = Field(
        default=None, description="A PersistentVolumeClaim, mounted at /archive."
    )
    s3: S3Spec | None = Field(default=None, description="A bucket of AWS or of an S3 of your own.")


class EvidenceSpec(ApiModel):
    """What else may prove what became of entries."""

    aof_path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/[^\x00]*$")] = Field(
        description="Directory with the append-only files of Redis (appenddirname): every delivery"
        " and acknowledgement since the last rewrite stands there, so that what is inferred without"
        " them is proven. The path inside of the container.",
    )
    aof_claim: ClaimSpec | None = Field(
        default=None,
        description="The volume that holds them, mounted read-only at aofPath. Without it"
        " spec.template mounts it.",
    )
