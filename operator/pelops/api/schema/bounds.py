"""Types with bounds: every string, number, list and map of the schema has them.

Without bounds the API server cannot estimate what a CEL rule costs and refuses the whole schema.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AwareDatetime, Field, PlainSerializer

MAX_REPLICAS = 10_000
MAX_SECONDS = 10 * 365 * 24 * 3600
LONGEST_WAIT_SECONDS = 7 * 24 * 3600
MAX_EXACT_INTEGER = 2**53 - 1  # what every JSON reader holds without rounding

DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
HOST = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)"
PORT = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"

# Redis keys may hold any byte; a Kubernetes string holds Unicode, and an environment variable,
# through which workers learn the name, everything but NUL.
RedisName = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00]+$")]
# A derived key holds the stream twice and the group once, with % and : written as three characters.
KeyName = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00]+$")]

ObjectName = Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
ContainerName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
Text = Annotated[str, Field(max_length=1024)]

Replicas = Annotated[int, Field(ge=0, le=MAX_REPLICAS)]
Count = Annotated[int, Field(ge=0, le=MAX_EXACT_INTEGER)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_EXACT_INTEGER)]


def render_time(moment: datetime) -> str:
    """Return RFC 3339 in UTC with whole seconds, as Kubernetes writes times."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[AwareDatetime, PlainSerializer(render_time, when_used="json")]
