"""How to reach Redis: an address, a Secret, Sentinel."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from pelops.api.schema.base import HOST, PORT, ApiModel, ObjectName, Rule, RuleReason, cel

_URL_RULES = cel(
    Rule(
        rule="self.startsWith('redis://') || self.startsWith('rediss://')",
        message="url must begin with redis:// or, for TLS, rediss://",
    ),
    Rule(
        # An @ has no other use in such a URL, and a password may hold a slash before it.
        rule="!self.contains('@') && !self.matches('(?i)[?&](user|username|pass|password|auth)=')",
        message="url must not hold credentials: put username and password into a Secret and name"
        " it in spec.redis.secretRef",
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
        message="url must not carry options: certificates belong into the Secret as ca.crt,"
        " tls.crt and tls.key; everything else is detected",
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


class SentinelSpec(ApiModel):
    """Sentinel, which tells the address of the current master."""

    master_name: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[^\x00\s]+$")] = (
        Field(description="The name under which the sentinels know the master, such as mymaster.")
    )
    nodes: Annotated[tuple[SentinelNode, ...], Field(min_length=1, max_length=32)] = Field(
        description="Addresses of sentinels, each HOST:PORT. One that answers is enough; the"
        " others are learned from it.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class RedisSpec(ApiModel):
    """Where Redis (7.0 or later) or Valkey (7.2 or later) is, and with which credentials."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            Rule(
                rule="has(self.url) || has(self.secretRef) || has(self.sentinel)",
                message="one of url, secretRef and sentinel is needed to find Redis",
                reason=RuleReason.REQUIRED,
            )
        )
    )

    url: Url | None = Field(
        default=None,
        description="Address of Redis: redis://HOST[:PORT][/DATABASE], or rediss:// for TLS; the"
        " port is 6379 and the database 0 unless said. Standalone servers, any node of a Cluster"
        " and proxied endpoints are told apart by asking. Credentials are refused here: they"
        " belong into the Secret. Without url, the Secret's key url is the address. With both, this"
        " one is, and the credentials go there only if the Secret's url names the same host and"
        " port, or its annotation pelops.dev/redis-hosts lists the host; rediss:// in the Secret"
        " asks for rediss:// here. Beside sentinel only its scheme and its database count.",
    )
    secret_ref: SecretRef | None = Field(
        default=None,
        description="Secret with any of the keys url, username, password, ca.crt, tls.crt and"
        " tls.key. Its url may hold credentials; the keys username and password come before"
        " those. Its credentials go to the host and port of its own url, and to the hosts that its"
        " annotation pelops.dev/redis-hosts lists; with sentinel, or with a url here and none in"
        " the Secret, the annotation is needed. A changed Secret is picked up without a restart.",
    )
    sentinel: SentinelSpec | None = Field(
        default=None,
        description="Ask these sentinels for the master instead of connecting to a fixed address."
        " Failovers are followed.",
    )
