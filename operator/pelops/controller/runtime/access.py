"""Checks whether the API server accepts a token, and grants its user a right.

That is a TokenReview, then a SubjectAccessReview. No token is kept: answers are remembered by a
hash. Nothing that a request says of its sender counts, but the token.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pelops.controller.runtime.cache import Recent
from pelops.errors import KubernetesError
from pelops.kube.client import SUBJECT_ACCESS_REVIEW, TOKEN_REVIEW, KubeApi

log = logging.getLogger(__name__)

ALLOWED_S: Final = 60.0  # how long an answer of the API server is believed
REFUSED_S: Final = 10.0
REMEMBERED: Final = 1000  # answers
WAITING: Final = 16  # requests that wait for the API server; more are refused

OK: Final = 200
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
TOO_MANY: Final = 429
UNAVAILABLE: Final = 503


class TokenAccess:
    """Asks the API server about tokens, one at a time, and remembers its answers for a minute."""

    def __init__(
        self, api: KubeApi, clock: Callable[[], float], *, audience: str | None = None
    ) -> None:
        """With `audience`, only tokens that were issued for it count: such a token is of no use
        anywhere else. None: tokens for the API server itself.
        """
        self._api = api
        self._clock = clock
        self._audience = audience
        self._known: Recent[bytes, tuple[float, int]] = Recent(REMEMBERED)
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def check(self, token: str, right: Mapping[str, Any], *, what: str) -> int:
        """The HTTP status for a token's user and a right: 200, 401, 403, 429 or 503.

        `right` is `resourceAttributes` or `nonResourceAttributes` of a SubjectAccessReview; `what`
        is asked for, in the log.
        """
        if not token:
            return UNAUTHORIZED
        asked = json.dumps(right, sort_keys=True)
        key = hashlib.sha256(f"{len(token)} {token} {asked}".encode()).digest()
        known = self._known_status(key)
        if known is not None:
            return known
        if self._waiting >= WAITING:
            return TOO_MANY
        self._waiting += 1
        try:
            async with self._turn:
                return self._known_status(key) or await self._authorize(key, token, right, what)
        finally:
            self._waiting -= 1

    def _known_status(self, key: bytes) -> int | None:
        known = self._known.get(key)
        return known[1] if known is not None and self._clock() < known[0] else None

    async def _authorize(self, key: bytes, token: str, right: Mapping[str, Any], what: str) -> int:
        try:
            status = await self._review(token, right)
        except KubernetesError as error:
            log.warning("Could not authorize a request for %s: %s", what, error)
            return UNAVAILABLE
        lasts_s = ALLOWED_S if status == OK else REFUSED_S
        self._known[key] = (self._clock() + lasts_s, status)
        return status

    async def _review(self, token: str, right: Mapping[str, Any]) -> int:
        asked: dict[str, Any] = {"token": token}
        if self._audience is not None:
            asked["audiences"] = [self._audience]
        body = {
            "apiVersion": TOKEN_REVIEW.api_version,
            "kind": TOKEN_REVIEW.kind,
            "spec": asked,
        }
        reviewed = (await self._api.create(TOKEN_REVIEW, "", body)).get("status") or {}
        # An authenticator that knows no audiences names none: then it is a token for anything.
        is_for_us = self._audience is None or self._audience in (reviewed.get("audiences") or ())
        if not reviewed.get("authenticated") or not is_for_us:
            return UNAUTHORIZED
        user = reviewed.get("user") or {}
        spec = {"user" if name == "username" else name: value for name, value in user.items()}
        body = {
            "apiVersion": SUBJECT_ACCESS_REVIEW.api_version,
            "kind": SUBJECT_ACCESS_REVIEW.kind,
            "spec": {**spec, **right},
        }
        answer = await self._api.create(SUBJECT_ACCESS_REVIEW, "", body)
        return OK if (answer.get("status") or {}).get("allowed") is True else FORBIDDEN
