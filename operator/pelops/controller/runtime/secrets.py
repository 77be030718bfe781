"""Secrets, read one by one when needed: the operator may `get` them, not list or watch them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pelops.errors import InvalidSpec
from pelops.kube.client import Address, KubeApi
from pelops.kube.resources import SECRET

MAX_AGE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Read:
    at: float
    fields: Mapping[str, bytes]


class Secrets:
    """Secrets as read within the last minute; `forget` makes the next look a fresh one."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._reads: dict[tuple[str, str], _Read] = {}

    async def read(
        self, namespace: str, name: str, *, max_age_s: float = MAX_AGE_S
    ) -> Mapping[str, bytes]:
        """The decoded fields. Raises NotFound, or Forbidden when the role does not allow it."""
        known = self._reads.get((namespace, name))
        now = self._clock()
        if known is not None and now - known.at < max_age_s:
            return known.fields
        self._reads.pop((namespace, name), None)
        manifest = await self._api.get(Address(kind=SECRET, namespace=namespace, name=name))
        fields = {
            key: _decode(name, key, text) for key, text in (manifest.get("data") or {}).items()
        }
        self._reads[namespace, name] = _Read(now, fields)
        return fields

    def age(self, namespace: str, name: str) -> float:
        """Seconds since the last read; 0 when the next look will be fresh."""
        known = self._reads.get((namespace, name))
        return 0.0 if known is None else self._clock() - known.at

    def forget(self, namespace: str, name: str) -> None:
        """Read the Secret anew at the next look: its content did not work."""
        self._reads.pop((namespace, name), None)

    def prune(self) -> None:
        """Drop what has not been looked at for long, so that secrets do not stay in memory."""
        oldest = self._clock() - 2 * MAX_AGE_S
        self._reads = {key: read for key, read in self._reads.items() if read.at >= oldest}


def _decode(name: str, key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidSpec(f"the key {key} of the Secret {name} is no base64") from error
