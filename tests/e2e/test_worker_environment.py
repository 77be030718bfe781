"""Workers learn from their environment where Redis is and what their group is called."""

from __future__ import annotations

import json
import sys
from typing import Any

import yaml

from local_cluster.nodes import Node
from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers, ServerOptions, StandaloneServers
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import UserRole, acl_rules
from tests.e2e.declaring import (
    NAME,
    WAIT_S,
    WORKERS,
    Object,
    a_spec,
    await_object,
    env_of,
    group_of,
    secret,
)
from tests.operators import Resources, sleeping_template
from tests.redis_fixtures import RunRedis

PASSWORD = "s3cret-$(HOME)-of-nobody-else"

# Connects as any worker would, and leaves its environment in Redis.
REPORTER = """
import json, os, signal, ssl, redis
env = {k: v for k, v in os.environ.items() if k.startswith(("PELOPS_", "POD_"))}
options = {}
if "PELOPS_REDIS_CA_FILE" in env:
    options = {"ssl_ca_certs": env["PELOPS_REDIS_CA_FILE"],
               "ssl_certfile": env["PELOPS_REDIS_CERT_FILE"],
               "ssl_keyfile": env["PELOPS_REDIS_KEY_FILE"]}
client = redis.Redis.from_url(
    env["PELOPS_REDIS_URL"], username=env.get("PELOPS_REDIS_USERNAME"),
    password=env.get("PELOPS_REDIS_PASSWORD"), **options)
client.set("environment:" + os.environ["REPORT_AS"], json.dumps(env))
signal.pause()
"""


def a_reporting_template(name: str, *env: Object) -> Object:
    """A worker that stores its variables below `environment:` and its name."""
    template = sleeping_template()
    container = template["spec"]["containers"][0]
    container["command"] = [sys.executable, "-c", REPORTER]
    container["env"] = [{"name": "REPORT_AS", "value": name}, *env]
    return template


def reported(servers: RedisServers, name: str) -> dict[str, str]:
    """The variables that the worker of this name has seen."""
    key = f"environment:{name}"
    wait_until(
        lambda: servers.cli("EXISTS", key) == "1", timeout_s=WAIT_S, what=f"{key}", every_s=0.2
    )
    found: dict[str, str] = json.loads(servers.cli("GET", key))
    return found


def test_a_worker_reaches_redis_by_the_parts_that_a_secret_each_holds(
    resources: Resources, node: Node, redis_tls: StandaloneServers, stream: str
) -> None:
    user, held = f"worker-{stream}", redis_tls.secret()
    redis_tls.acl_setuser(user, "on", f">{PASSWORD}", "+@all", "~*", "&*")
    parts = (
        secret("login", username=user, password=PASSWORD),
        secret("ca", **{"ca.crt": held["ca.crt"]}),
        secret("cert", **{key: held[key] for key in ("tls.crt", "tls.key")}),
    )
    for part in parts:
        part["metadata"]["annotations"] = {"pelops.dev/redis-hosts": "127.0.0.1, localhost"}
    resources.apply_raw(*parts)
    redis = {
        "url": redis_tls.url,
        "authSecretRef": {"name": "login"},
        "tls": {
            "caSecretRef": {"name": "ca"},
            "certSecretRef": {"name": "cert"},
            "serverName": "localhost",
        },
    }
    spec = a_spec(
        redis_tls.url, stream, redis=redis, template=a_reporting_template(stream), replicas=1
    )
    resources.apply(NAME, spec)
    seen = reported(redis_tls, stream)
    assert (seen["PELOPS_REDIS_USERNAME"], seen["PELOPS_REDIS_PASSWORD"]) == (user, PASSWORD)
    assert seen["PELOPS_REDIS_TLS_SERVER_NAME"] == "localhost"
    resources.await_condition(NAME, reason="Ready")


def test_the_template_gets_exactly_the_promised_variables_and_no_secret_in_clear(
    resources: Resources, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(password=PASSWORD))
    resources.apply_raw(secret("redis", url=servers.url, password=PASSWORD))
    recovery = {
        "processingTimeoutSeconds": 42,
        "maxRetries": 7,
        "backoff": {"initialSeconds": 3},
        "tuning": {"fieldPrefix": "x_"},
    }
    resources.apply(
        NAME, a_spec(servers.url, stream, redis={"secretRef": {"name": "redis"}}, recovery=recovery)
    )
    deployment = await_object(resources, "deployment", WORKERS)
    keys = derive_keys(stream, NAME)

    def from_secret(key: str, **more: bool) -> Object:
        return {"secretKeyRef": {"name": "redis", "key": key, **more}}

    plain = {name: v["value"] for name, v in env_of(deployment).items() if "value" in v}
    assert plain == {
        "PELOPS_CONSUMER": "$(POD_NAME):$(POD_UID)",
        "PELOPS_STREAM": stream,
        "PELOPS_GROUP": NAME,
        "PELOPS_RETRY_STREAM": keys.retry,
        "PELOPS_HANDOVER_STREAM": keys.offer_stream,
        "PELOPS_STARTED_KEY": keys.started,
        "PELOPS_WORKER_STATE_KEY": keys.worker_state,
        "PELOPS_WORKER_LEDGER_STREAM": keys.worker_ledger,
        "PELOPS_DEAD_LETTER_STREAM": keys.dead_letter,
        "PELOPS_IDLE_LIMIT_MS": "42000",
        "PELOPS_MAX_RETRIES": "7",
        "PELOPS_FIELD_PREFIX": "x_",
        "PELOPS_MAX_ENTRY_BYTES": "8388608",
        "PELOPS_BACKOFF_INITIAL_SECONDS": "3",
        "PELOPS_BACKOFF_FACTOR": "2",
        "PELOPS_BACKOFF_MAX_SECONDS": "300",
    }
    referring = {name: v["valueFrom"] for name, v in env_of(deployment).items() if "valueFrom" in v}
    assert {name: _without_defaults(source) for name, source in referring.items()} == {
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "PELOPS_REDIS_URL": from_secret("url"),
        "PELOPS_REDIS_USERNAME": from_secret("username", optional=True),
        "PELOPS_REDIS_PASSWORD": from_secret("password", optional=True),
    }
    assert PASSWORD not in yaml.safe_dump(deployment)


def _without_defaults(source: Object) -> Object:
    source.get("fieldRef", {}).pop("apiVersion", None)
    return source


def test_the_deployment_belongs_to_its_resource(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    deployment = await_object(resources, "deployment", WORKERS)
    owner = deployment["metadata"]["ownerReferences"]
    resource = resources.get("scg", NAME)
    assert resource is not None
    assert [(o["kind"], o["name"], o["uid"], o["controller"]) for o in owner] == [
        ("StreamConsumerGroup", NAME, resource["metadata"]["uid"], True)
    ]


def test_names_with_any_character_reach_the_process_as_they_are(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    names = {
        "dollars": (f"{stream} $(HOME) $$(HOME) $PATH $", "$$(POD_NAME)"),
        "quotes": (f'{stream} it\'s "quoted"\\ \U0001f984\nnext\tline', "{a}:b%3A*?[x]"),
        "braces": (f"{stream} a{{}}b", "a}b"),
        "tagged": (f"{{{stream}}}:b", "a}b:c"),
    }
    for name, (odd_stream, odd_group) in names.items():
        template = a_reporting_template(f"{stream}-{name}")
        more: dict[str, Any] = {"group": odd_group, "template": template, "replicas": 1}
        resources.apply(name, a_spec(redis_86.url, odd_stream, **more))
    for name, (odd_stream, odd_group) in names.items():
        seen = reported(redis_86, f"{stream}-{name}")
        keys = derive_keys(odd_stream, odd_group)
        assert (seen["PELOPS_STREAM"], seen["PELOPS_GROUP"]) == (odd_stream, odd_group)
        assert seen["PELOPS_DEAD_LETTER_STREAM"] == keys.dead_letter
        assert seen["PELOPS_WORKER_LEDGER_STREAM"] == keys.worker_ledger
        assert redis_86.cli("EXISTS", keys.dead_letter, keys.ledger, odd_stream) == "3"
        assert seen["PELOPS_CONSUMER"] == f"{seen['POD_NAME']}:{seen['POD_UID']}"
        resources.await_condition(name, reason="Ready")


def test_a_variable_that_the_user_sets_wins(
    resources: Resources, node: Node, redis_86: RedisServers, stream: str
) -> None:
    theirs = (
        {"name": "PELOPS_FIELD_PREFIX", "value": "theirs_"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "BASE", "value": "theirs"},
        {"name": "PELOPS_MAX_RETRIES", "value": "$(BASE)-$(PELOPS_GROUP)"},
    )
    template = a_reporting_template(stream, *theirs)
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template, replicas=1))
    seen = reported(redis_86, stream)
    assert seen["PELOPS_FIELD_PREFIX"] == "theirs_"
    assert seen["PELOPS_MAX_RETRIES"] == f"theirs-{NAME}"
    assert seen["PELOPS_STREAM"] == stream
    # Pelops' variable refers to one that the user has overridden.
    assert seen["PELOPS_CONSUMER"] == f"{seen['POD_NAME']}:{seen['POD_UID']}"


def test_only_the_reading_container_of_several_gets_them(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    template = sleeping_template()
    first = template["spec"]["containers"][0]
    template["spec"]["containers"] = [first | {"name": "proxy"}, first | {"name": "reader"}]
    resources.apply(NAME, a_spec(redis_86.url, stream, template=template, containerName="reader"))
    deployment = await_object(resources, "deployment", WORKERS)
    proxy, reader = deployment["spec"]["template"]["spec"]["containers"]
    assert "env" not in proxy
    assert "PELOPS_STREAM" in {variable["name"] for variable in reader["env"]}


def test_a_worker_reaches_redis_over_tls_as_a_user_of_its_own(
    resources: Resources, node: Node, redis_tls: StandaloneServers, stream: str
) -> None:
    keys = derive_keys(stream, NAME)
    user, worker = f"operator-{stream}", f"worker-{stream}"
    redis_tls.acl_setuser(user, "on", f">{PASSWORD}", *acl_rules(keys, UserRole.OPERATOR))
    redis_tls.acl_setuser(worker, "on", ">worker-password", "+@all", "~environment:*")
    entries = redis_tls.secret()
    resources.apply_raw(
        secret("redis", **entries, username=user, password=PASSWORD),
        secret("worker", **entries, username=worker, password="worker-password"),
    )
    spec = a_spec(
        redis_tls.url,
        stream,
        redis={"secretRef": {"name": "redis"}},
        workerSecretRef={"name": "worker"},
        template=a_reporting_template(stream),
        replicas=1,
    )
    resources.apply(NAME, spec)
    seen = reported(redis_tls, stream)
    assert (seen["PELOPS_REDIS_USERNAME"], seen["PELOPS_REDIS_PASSWORD"]) == (
        worker,
        "worker-password",
    )
    resources.await_condition(NAME, reason="Ready")
    assert group_of(redis_tls, stream, NAME)
    assert PASSWORD not in json.dumps(resources.get("deployment", WORKERS))
