"""How to reach Redis: an address, a Secret, Sentinel."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from pelops.api.schema.base import (
    DNS_SUBDOMAIN,
    HOST,
    PORT,
    ApiModel,
    ObjectName,
    Rule,
    RuleReason,
    cel,
)

_URL_RULES = cel(
    Rule(
        rule="self.startsWith('redis://') || self.startsWith('rediss://')",
        message="url must begin with redis:// or, for TLS, rediss://",
    ),
    Rule(
        # An @ has no other use in such a URL, and a password may hold a slash before it.
        rule="!self.contains('@') && !self.matches('(?i)[?&](user|username|pass|password|auth)=')",
        message="url must not contain credentials: put username and password into a Secret and set"
        " authSecretRef, or put the whole url into a Secret and set secretRef",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        # URLs that other rules refuse pass here, so that one mistake gives one message.
        rule="self.matches('^[a-z]+://([^/?#]*@)?"
        + HOST.replace("\\", "\\\\")
        + f"(:{PORT})?(/[0-9]{{0,5}})?([?#].*)?$')",
        message="url must be redis://HOST[:PORT][/DATABASE], or rediss:// for TLS",
    ),
    Rule(
        rule="!self.contains('?') && !self.contains('#')",
        message="url must not have options: set certificates in tls, or in the Secret of secretRef;"
        " everything else is detected",
        reason=RuleReason.FORBIDDEN,
    ),
)

Url = Annotated[str, Field(min_length=1, max_length=512, json_schema_extra=_URL_RULES)]
SentinelNode = Annotated[
    str,
    Field(
        min_length=3,
        max_length=260,
        pattern=f"^{HOST}:{PORT}$",
    ),
]


class SecretRef(ApiModel):
    """The name of a Secret in the resource's own namespace."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    name: ObjectName = Field(description="Name of the Secret, in the same namespace.")


class TlsSpec(ApiModel):
    """How TLS is spoken: certificates, and the name that is verified."""

    ca_secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the key ca.crt: the only certificate authorities to trust, "
            "in PEM. Default: those of the operator's image."
        ),
    )
    cert_secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the keys tls.crt and tls.key: the client certificate, for "
            "example of cert-manager. Its annotation pelops.dev/redis-hosts must list "
            "the host of url. If absent, no client certificate is sent."
        ),
    )
    server_name: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)] | None
    ) = Field(
        default=None,
        description=(
            "Host name in the certificates of all servers and Sentinels, if they are "
            "reached under another name. Default: the host that is connected to."
        ),
    )


class SentinelSpec(ApiModel):
    """Sentinel, which knows the address of the current master."""

    master_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00\s]+$")] = (
        Field(
            description=(
                "Name of the master in the configuration of the Sentinels, such as mymaster."
            )
        )
    )
    nodes: Annotated[tuple[SentinelNode, ...], Field(min_length=1, max_length=32)] = Field(
        description=(
            "Addresses of Sentinels, as HOST:PORT. One that answers is enough; the "
            "others are discovered from it."
        ),
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    auth_secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the keys username (optional) and password for the Sentinels. "
            "Its annotation pelops.dev/redis-hosts must list the Sentinels. Default: "
            "the credentials for Redis, which are sent only to Sentinels that require "
            "a password."
        ),
    )


class RedisSpec(ApiModel):
    """Where Redis (7.0 or later) or Valkey (7.2 or later) is, and with which credentials."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="has(self.url) || has(self.secretRef) || has(self.sentinel)",
                message="one of url, secretRef and sentinel is required",
                reason=RuleReason.REQUIRED,
            ),
            Rule(
                rule="!has(self.secretRef) || !has(self.authSecretRef)",
                message="secretRef is the short form of url, authSecretRef and tls: set only one of"
                " secretRef and authSecretRef",
                field_path=".authSecretRef",
                reason=RuleReason.FORBIDDEN,
            ),
            Rule(
                rule="!has(self.secretRef) || !has(self.tls)"
                " || (!has(self.tls.caSecretRef) && !has(self.tls.certSecretRef))",
                message="secretRef is the short form of url, authSecretRef and tls: put ca.crt,"
                " tls.crt and tls.key into its Secret, or use url and authSecretRef instead",
                field_path=".tls",
                reason=RuleReason.FORBIDDEN,
            ),
            Rule(
                rule="!has(self.tls) || !has(self.url) || self.url.startsWith('rediss:')",
                message="url must begin with rediss:// when tls is set",
                field_path=".url",
            ),
        )
    )

    url: Url | None = Field(
        default=None,
        description=(
            "Address of Redis: redis://HOST[:PORT][/DATABASE], or rediss:// for TLS, "
            "without credentials; the default port is 6379 and the default database "
            "0. The topology (standalone, Cluster, proxy) is detected. Together with "
            "secretRef it replaces the host of the Secret's url, and together with "
            "sentinel only its scheme and database are used."
        ),
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Short form: one Secret with any of the keys url, username, password, "
            "ca.crt, tls.crt and tls.key; username and password override those in "
            "url. Credentials are sent only to the host of the Secret's url and to "
            "the hosts in its annotation pelops.dev/redis-hosts. A change of the "
            "Secret takes effect within 60 s."
        ),
    )
    auth_secret_ref: SecretRef | None = Field(
        default=None,
        description=(
            "Secret with the keys username (optional) and password. Its annotation "
            "pelops.dev/redis-hosts must list the host of url, unless its own key url "
            "has the same host and port. If absent, no credentials are sent."
        ),
    )
    tls: TlsSpec | None = Field(
        default=None,
        description=(
            "Certificates, and the host name that is verified. Connections use TLS if "
            "url, or the url of the Secret, begins with rediss://; with sentinel and "
            "without url, if this field is set."
        ),
    )
    sentinel: SentinelSpec | None = Field(
        default=None,
        description=(
            "Sentinels that return the address of the master, instead of a fixed "
            "address. Failovers are followed."
        ),
    )

    @property
    def login_ref(self) -> SecretRef | None:
        """The Secret with username and password."""
        return self.auth_secret_ref or self.secret_ref

    @property
    def secret_refs(self) -> tuple[SecretRef, ...]:
        """Every Secret that connecting takes."""
        tls, sentinel = self.tls or TlsSpec(), self.sentinel
        named = (
            *(self.login_ref, tls.ca_secret_ref, tls.cert_secret_ref),
            sentinel.auth_secret_ref if sentinel else None,
        )
        return tuple(one for one in named if one is not None)
