"""Connections to the Redis servers that resources name, and the Secrets that these need.

Secrets are read one by one: the operator may `get` them, and neither list nor watch them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pelops.api.redis import RedisSpec, SecretRef, TlsSpec
from pelops.domain.condition import Finding
from pelops.domain.destinations import REDIS_HOSTS, AddressRules, split_host_list
from pelops.domain.endpoint import (
    RedisEndpoint,
    build_endpoint,
    confine_credentials,
    confine_sentinel_login,
)
from pelops.errors import (
    AuthenticationFailed,
    CredentialsNotAllowed,
    Forbidden,
    InvalidReply,
    InvalidSpec,
    NotFound,
    PelopsError,
    PermissionDenied,
    RedisUnavailable,
)
from pelops.kube.client import SECRET, Address, KubeApi
from pelops.kube.container_environment import WorkerAccess, name_secrets
from pelops.policy.status.diagnosis import diagnose
from pelops.policy.status.reasons import Reason
from pelops.redis_core.pool import ServerPool
from pelops.redis_core.server import Server

MAX_AGE_S: Final = 60.0
OUTAGE_FRESH_S: Final = 10.0  # maximum age of a Secret while its Redis cannot be reached
FRESH_S: Final = 2.0  # a Secret that was read so recently may decide what is written
_NOWHERE: Final = "0.0.0.0/32"  # a list that no host is on
UNUSED: Final = timedelta(minutes=5)  # then a connection is closed

_OUTAGES: Final = (RedisUnavailable, InvalidReply)
_MENDABLE: Final = (AuthenticationFailed, InvalidSpec, PermissionDenied, *_OUTAGES)


@dataclass(frozen=True, slots=True)
class _Read:
    at: float
    fields: Mapping[str, bytes]


class Secrets:
    """Secrets, cached for a minute. `forget` drops one from the cache."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._reads: dict[tuple[str, str], _Read] = {}

    async def read(
        self, namespace: str, name: str, *, max_age_s: float = MAX_AGE_S
    ) -> Mapping[str, bytes]:
        """The decoded fields, and the annotation that allows hosts under its name.

        No field can have that name, since it holds a slash. Raises NotFound, or Forbidden when the
        role does not allow it.
        """
        known = self._reads.get((namespace, name))
        now = self._clock()
        if known is not None and now - known.at < max_age_s:
            return known.fields
        self._reads.pop((namespace, name), None)
        try:
            manifest = await self._api.get(Address(kind=SECRET, namespace=namespace, name=name))
        except NotFound as error:
            raise NotFound(f"Secret {namespace}/{name} does not exist") from error
        fields = {
            key: _decode(name, key, text) for key, text in (manifest.get("data") or {}).items()
        }
        annotations = (manifest.get("metadata") or {}).get("annotations") or {}
        if REDIS_HOSTS in annotations:
            fields[REDIS_HOSTS] = str(annotations[REDIS_HOSTS]).encode()
        self._reads[namespace, name] = _Read(now, fields)
        return fields

    def age(self, namespace: str, name: str) -> float:
        """Seconds since the last read; 0 if it is not cached."""
        known = self._reads.get((namespace, name))
        return 0.0 if known is None else self._clock() - known.at

    def forget(self, namespace: str, name: str) -> None:
        """Read the Secret again at the next use: its content did not work."""
        self._reads.pop((namespace, name), None)

    def prune(self) -> None:
        """Drop Secrets that were not used for long, so that they do not stay in memory."""
        oldest = self._clock() - 2 * MAX_AGE_S
        self._reads = {key: read for key, read in self._reads.items() if read.at >= oldest}


class Connections:
    """The servers that resources refer to."""

    def __init__(
        self, pool: ServerPool, secrets: Secrets, rules: AddressRules | None = None
    ) -> None:
        """`rules` are the addresses that this installation allows; None: all."""
        self._pool = pool
        self._secrets = secrets
        self._rules = rules

    async def server(self, redis: RedisSpec, namespace: str) -> Server:
        """The server. Raises PelopsError with the cause; see also `forget_mendable_secret`."""
        return await self._pool.server(await self._endpoint(redis, namespace))

    async def reach(self, redis: RedisSpec, namespace: str) -> Server:
        """The server. If a Secret may be the cause of a failure, the next call reads it again.

        Raises PelopsError with the cause.
        """
        try:
            return await self.server(redis, namespace)
        except PelopsError as error:
            self.forget_mendable_secret(redis, namespace, error)
            raise

    def forget_mendable_secret(self, redis: RedisSpec, namespace: str, error: PelopsError) -> None:
        """Read the Secrets again at the next use if they may have caused this failure."""
        if not isinstance(error, _MENDABLE):
            return
        # An outage is seldom caused by a Secret: reading it once in a while is enough.
        is_refusal = isinstance(error, CredentialsNotAllowed)
        is_outage = isinstance(error, _OUTAGES) and not is_refusal
        for reference in redis.secret_refs:
            if not is_outage or self._secrets.age(namespace, reference.name) > OUTAGE_FRESH_S:
                self._secrets.forget(namespace, reference.name)

    def forget_stale_secrets(self, references: Iterable[SecretRef | None], namespace: str) -> bool:
        """Read stale ones of these Secrets again at the next use; False if none is stale."""
        named = [reference for reference in references if reference is not None]
        stale = [one for one in named if self._secrets.age(namespace, one.name) > FRESH_S]
        for reference in stale:
            self._secrets.forget(namespace, reference.name)
        return bool(stale)

    async def access_of(
        self, redis: RedisSpec, own_secret: SecretRef | None, namespace: str
    ) -> WorkerAccess:
        """The Secrets that workers or jobs use, `own_secret` first. A missing one is empty."""
        own = redis.login_ref.name if redis.login_ref else None
        name = own_secret.name if own_secret else own
        keys = await self._secret_keys(namespace, name)
        whole = redis.secret_ref.name if redis.secret_ref else None
        whole_keys = keys if name == whole else await self._secret_keys(namespace, whole)
        # A Secret's url may hold credentials, which spec.redis.url cannot. That of authSecretRef
        # only says which host the Secret is for.
        has_url = "url" in keys and (own_secret is not None or whole is not None)
        access = name_secrets(redis, own_secret)
        return replace(
            access,
            url=redis.url,
            url_secret=name if has_url else whole if "url" in whole_keys else None,
            secret_keys=keys,
            rules=self._rules,
            credential_hosts=await self._listed_hosts(
                namespace, name, access.cert_secret, access.sentinel_secret
            ),
        )

    async def check_job_secret(
        self, redis: RedisSpec, own_secret: SecretRef, namespace: str
    ) -> None:
        """Check that a job may take the credentials of `own_secret` to where Redis is.

        Raises CredentialsNotAllowed, InvalidSpec, NotFound and other errors of reading Secrets.
        """
        secret = dict(await self._secrets.read(namespace, own_secret.name))
        url = redis.url
        if redis.secret_ref is not None and "url" not in secret:
            url = _bare_url(await self._secrets.read(namespace, redis.secret_ref.name)) or url
        await self._endpoint_with(
            redis.model_copy(update={"url": None if "url" in secret else url}),
            own_secret,
            namespace,
        )

    async def prune(self) -> None:
        """Forget Secrets and close connections that were not used for long."""
        self._secrets.prune()
        await self._pool.close_unused(UNUSED)

    async def _endpoint(self, redis: RedisSpec, namespace: str) -> RedisEndpoint:
        return await self._endpoint_with(redis, redis.login_ref, namespace)

    async def _endpoint_with(
        self, redis: RedisSpec, reference: SecretRef | None, namespace: str
    ) -> RedisEndpoint:
        """The endpoint with the credentials of its Secrets, as far as each of them allows.

        `reference` is the Secret with username and password; one that is not of `redis` comes with
        a client certificate of its own, or without one.
        """
        tls, sentinel = redis.tls or TlsSpec(), redis.sentinel
        secret = await self._read_secret(namespace, reference)
        fields = secret
        if reference is not None and reference == redis.auth_secret_ref:
            fields = _choose(secret, reference, ("password",), ("username",))
        cert_ref = tls.cert_secret_ref if reference in {None, redis.login_ref} else None
        cert = await self._read_secret(namespace, cert_ref, "tls.crt", "tls.key")
        trusted = await self._read_secret(namespace, tls.ca_secret_ref, "ca.crt")
        endpoint = build_endpoint(
            url=redis.url,
            secret={**fields, **_only(trusted, "ca.crt"), **_only(cert, "tls.crt", "tls.key")},
            sentinel_master=sentinel.master_name if sentinel else None,
            sentinel_nodes=sentinel.nodes if sentinel else (),
            tls=redis.tls is not None,
        )
        endpoint = replace(endpoint, rules=self._rules, server_name=tls.server_name)
        # Each Secret with credentials must allow the host: its own, or one that it lists.
        if cert_ref is not None:
            endpoint = confine_credentials(endpoint, cert, name=cert_ref.name)
        if sentinel is not None and sentinel.auth_secret_ref is not None:
            name = sentinel.auth_secret_ref.name
            login = await self._secrets.read(namespace, name)
            endpoint = confine_sentinel_login(endpoint, login, name=name)
        if reference is not None:
            endpoint = confine_credentials(endpoint, secret, name=reference.name)
        return endpoint

    async def _read_secret(
        self, namespace: str, reference: SecretRef | None, *needed: str
    ) -> Mapping[str, bytes]:
        """The fields of a Secret; none without one. Raises InvalidSpec when one is missing."""
        if reference is None:
            return {}
        secret = await self._secrets.read(namespace, reference.name)
        _choose(secret, reference, needed)
        return secret

    async def _listed_hosts(self, namespace: str, *names: str | None) -> str | None:
        """The hosts that all Secrets list which list any, in the words of the first."""
        lists = [
            (await self._secrets.read(namespace, name))[REDIS_HOSTS].decode()
            for name in dict.fromkeys(names)
            if name is not None and REDIS_HOSTS in await self._secret_keys(namespace, name)
        ]
        if not lists:
            return None
        first, *others = lists
        known = [split_host_list(other) for other in others]
        common = [one for one in split_host_list(first) if all(one in other for other in known)]
        return (",".join(common) or _NOWHERE) if others else first

    async def _secret_keys(self, namespace: str, name: str | None) -> frozenset[str]:
        if name is None:
            return frozenset()
        try:
            return frozenset(await self._secrets.read(namespace, name))
        except (NotFound, Forbidden):
            return frozenset()


def explain_unreachable(error: PelopsError, redis: RedisSpec, namespace: str) -> Finding:
    """What keeps a Redis that a resource names from being observed. Never raises."""
    if not redis.secret_refs or not isinstance(error, NotFound):
        return diagnose(error)
    if redis.secret_ref is not None:
        missing, keys = (
            redis.secret_ref.name,
            "url, and username and password if Redis requires them",
        )
        shown = f"Secret {namespace}/{missing} does not exist: create it with the key {keys}"
    else:
        shown = f"{error}: create it with the keys that spec.redis needs"
    return Finding(
        reason=Reason.SECRET_MISSING,
        message=f"{shown}. Pelops continues as soon as it exists",
    )


def _choose(
    secret: Mapping[str, bytes],
    reference: SecretRef,
    needed: Iterable[str],
    optional: Iterable[str] = (),
) -> Mapping[str, bytes]:
    """These keys of a Secret. Raises InvalidSpec when one that is needed is missing or empty."""
    for key in needed:
        if not secret.get(key):
            raise InvalidSpec(f"Secret {reference.name} does not have the key {key}: add it")
    return _only(secret, *needed, *optional)


def _only(secret: Mapping[str, bytes], *keys: str) -> Mapping[str, bytes]:
    return {key: secret[key] for key in keys if key in secret}


def _bare_url(secret: Mapping[str, bytes]) -> str | None:
    """The url of a Secret without its credentials."""
    if not secret.get("url"):
        return None
    found = build_endpoint(secret={"url": secret["url"]})
    return f"{'rediss' if found.tls else 'redis'}://{found.node}/{found.db}"


def _decode(name: str, key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidSpec(f"the key {key} of the Secret {name} is not valid base64") from error
