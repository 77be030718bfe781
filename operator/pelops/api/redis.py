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
        message="url must not hold credentials: put username and password into a Secret and name"
        " it in authSecretRef, or put the whole url there and name it in secretRef",
        reason=RuleReason.FORBIDDEN,
    ),
    Rule(
        # What other rules refuse passes here, so that one mistake gives one message.
        rule="self.matches('^[a-z]+://([^/?#]*@)?"
        + HOST.replace("\\", "\\\\")
        + f"(:{PORT})?(/[0-9]{{0,5}})?([?#].*)?$')",
        message="url must read redis://HOST[:PORT][/DATABASE], or rediss:// for TLS",
    ),
    Rule(
        rule="!self.contains('?') && !self.contains('#')",
        message="url must not carry options: name certificates in tls, or in the Secret of"
        " secretRef; everything else is detected",
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
        description="Secret with the key ca.crt: the only authorities that are trusted, in PEM."
        " Default: those of the operator's image.",
    )
    cert_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the keys tls.crt and tls.key: the certificate that is shown to"
        " Redis, such as a Secret of cert-manager. Its annotation pelops.dev/redis-hosts must list"
        " the host of url.",
    )
    server_name: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)] | None
    ) = Field(
        default=None,
        description="Name that the certificate of every server and Sentinel must hold, for servers"
        " that are connected to by another name. Default: the host that is connected to.",
    )


class SentinelSpec(ApiModel):
    """Sentinel, which knows the address of the current master."""

    master_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00\s]+$")] = (
        Field(description="The name under which the sentinels know the master, such as mymaster.")
    )
    nodes: Annotated[tuple[SentinelNode, ...], Field(min_length=1, max_length=32)] = Field(
        description="Addresses of sentinels, each HOST:PORT. One that answers is enough; the"
        " others are learned from it.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    auth_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the keys username and password for the Sentinels; username may be"
        " absent. Its annotation pelops.dev/redis-hosts must list the Sentinels. Default: the"
        " credentials for Redis, and only for Sentinels that ask for a password.",
    )


class RedisSpec(ApiModel):
    """Where Redis (7.0 or later) or Valkey (7.2 or later) is, and with which credentials."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="has(self.url) || has(self.secretRef) || has(self.sentinel)",
                message="one of url, secretRef and sentinel is needed to find Redis",
                reason=RuleReason.REQUIRED,
            ),
            Rule(
                rule="!has(self.secretRef) || !has(self.authSecretRef)",
                message="secretRef is the short form of url, authSecretRef and tls: name the Secret"
                " in one of secretRef and authSecretRef",
                field_path=".authSecretRef",
                reason=RuleReason.FORBIDDEN,
            ),
            Rule(
                rule="!has(self.secretRef) || !has(self.tls)"
                " || (!has(self.tls.caSecretRef) && !has(self.tls.certSecretRef))",
                message="secretRef is the short form of url, authSecretRef and tls: put ca.crt,"
                " tls.crt and tls.key into its Secret, or use url and authSecretRef in its place",
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
        description="Address of Redis: redis://HOST[:PORT][/DATABASE], or rediss:// for TLS. The"
        " default port is 6379, the default database 0. Standalone servers, nodes of a Cluster and"
        " proxies are detected. Credentials are refused here. Beside secretRef it replaces the host"
        " of the Secret's url, if the Secret allows that host. Beside sentinel only its scheme and"
        " its database count.",
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Short form: one Secret with any of the keys url, username, password, ca.crt,"
        " tls.crt and tls.key. Its url may hold credentials; the keys username and password come"
        " before those. Credentials go to the host of the Secret's own url, and to the hosts that"
        " its annotation pelops.dev/redis-hosts lists. Changes of the Secret take effect within a"
        " minute.",
    )
    auth_secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with the keys username and password; username may be absent. Its"
        " annotation pelops.dev/redis-hosts must list the host of url, unless its own key url names"
        " that host and port.",
    )
    tls: TlsSpec | None = Field(
        default=None,
        description="Certificates, and the name that is verified. Connections use TLS when url, or"
        " the url of the Secret, begins with rediss://; with sentinel and no url, if this is set.",
    )
    sentinel: SentinelSpec | None = Field(
        default=None,
        description="Sentinels that are asked for the master, in place of a fixed address."
        " Failovers are followed.",
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
