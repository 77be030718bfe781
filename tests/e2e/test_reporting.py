"""What the operator reports in logs, metrics and Events, and what it leaves out."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from local_cluster.processes import wait_until
from local_cluster.redis_servers import RedisServers, ServerOptions
from tests.e2e.declaring import NAME, WAIT_S, Object, a_spec, await_absence, get, patch, secret
from tests.kstatus import compute
from tests.operators import Operators, Resources, count_exporting, metrics
from tests.redis_fixtures import RunRedis

PASSWORD = "correct-horse-battery-staple"
PAYLOAD = "4111-1111-1111-1111"


def test_logs_metrics_and_objects_contain_no_secret_and_no_payload(
    resources: Resources, operator: Operators, run_redis: RunRedis, stream: str
) -> None:
    servers = run_redis(options=ServerOptions(password=PASSWORD))
    servers.cli("XADD", stream, "*", "card", PAYLOAD)
    with_credentials = servers.url.replace("://", f"://default:{PASSWORD}@")
    resources.apply_raw(
        secret("wrong", url=servers.url, password=f"{PASSWORD}-wrong"),
        secret("broken", url=f"redis://default:{PASSWORD}@:port"),
        secret("right", url=with_credentials),
    )
    outcomes = {"wrong": "AuthenticationFailed", "broken": "InvalidSpec", "right": "Ready"}
    for name, reason in outcomes.items():
        redis = {"secretRef": {"name": name}}
        resources.apply(name, a_spec("", stream, group=NAME, redis=redis))
        resources.await_condition(name, reason=reason)
    servers.cli("XREADGROUP", "GROUP", NAME, "jane", "STREAMS", stream, ">")
    servers.servers[0].kill()
    resources.await_condition("right", reason="RedisUnreachable")
    reported = [process.log.read_text() for process in operator.processes]
    reported += [metrics(port) for port in operator.ports]
    kinds = "streamconsumergroups,deployments,events.events.k8s.io"
    listed = resources.plane.kubectl("get", kinds, "-n", resources.namespace, "-o", "json")
    reported.append(listed.stdout)
    assert not [text for text in reported if PASSWORD in text or PAYLOAD in text]


def test_metrics_of_a_group_exist_as_long_as_its_resource(
    resources: Resources, operator: Operators, redis_86: RedisServers, stream: str
) -> None:
    redis_86.cli("XADD", stream, "*", "sku", "A")
    resources.apply(NAME, a_spec(redis_86.url, stream))
    _await_metric(resources, operator, "pelops_ready", "1.0")
    _await_metric(resources, operator, "pelops_lag_entries", "1.0")
    _await_metric(resources, operator, "pelops_scan_interval_seconds", "60.0")
    everywhere = len(operator.ports)
    _await_line(operator, 'pelops_queue_depth{kind="streamconsumergroups"} 0.0', everywhere)
    build = f'pelops_build_info{{python="{platform.python_version()}",revision='
    _await_line(operator, build, everywhere)
    redis_86.cli("SET", stream, "of another type")
    _await_metric(resources, operator, "pelops_ready", "0.0")
    resources.delete(NAME)
    mark = f'namespace="{resources.namespace}"'
    wait_until(
        lambda: not any(mark in metrics(port) for port in operator.ports),
        timeout_s=WAIT_S,
        what="no metrics",
        every_s=0.2,
    )


def test_kubectl_and_kstatus_see_failure_and_then_health(
    resources: Resources, operator: Operators, redis_86: RedisServers, stream: str
) -> None:
    redis_86.cli("SET", stream, "of another type")
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, "Stalled", reason="WrongType")
    assert compute(get(resources, "scg", NAME)) == "Failed"
    stalled = (
        f'pelops_condition{{kind="StreamConsumerGroup",name="{NAME}",'
        f'namespace="{resources.namespace}",reason="WrongType",status="True",type="Stalled"}} 1.0'
    )
    wait_until(
        lambda: count_exporting(operator, stalled) == 1,
        timeout_s=WAIT_S,
        what=stalled,
        every_s=0.2,
    )
    redis_86.cli("DEL", stream)
    flags = ("-n", resources.namespace, f"--timeout={WAIT_S:.0f}s")
    resources.plane.kubectl("wait", "--for=condition=Ready", f"scg/{NAME}", *flags)
    assert compute(get(resources, "scg", NAME)) == "Current"
    assert not resources.condition(NAME, "Stalled")


def _await_metric(resources: Resources, operator: Operators, name: str, value: str) -> None:
    """One replica exports a group: the one that ranks first for it."""
    line = f'{name}{{name="{NAME}",namespace="{resources.namespace}"}} {value}'
    _await_line(operator, line, 1)


def _await_line(operator: Operators, line: str, replicas: int) -> None:
    wait_until(
        lambda: count_exporting(operator, line) == replicas,
        timeout_s=WAIT_S,
        what=line,
        every_s=0.2,
    )


def test_each_change_of_readiness_is_one_event_however_many_replicas_saw_it(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    redis_86.cli("SET", stream, "of another type")
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="WrongType")
    redis_86.cli("DEL", stream)
    resources.await_condition(NAME, reason="Ready")
    patch(resources, "scg", NAME, {"spec": {"suspend": True}})
    resources.await_condition(NAME, reason="Suspended")
    reported = wait_until(
        lambda: _reported(resources, "WrongType", "Ready", "Suspended"),
        timeout_s=WAIT_S,
        what="three events",
    )
    assert [(event["type"], event["reason"]) for event in reported] == [
        ("Warning", "WrongType"),
        ("Normal", "Ready"),
        ("Normal", "Suspended"),
    ]
    assert (
        "WrongType"
        in resources.plane.kubectl("describe", "scg", NAME, "-n", resources.namespace).stdout
    )


def _reported(resources: Resources, *reasons: str) -> list[Object]:
    """All events, once there is one of each reason."""
    events = [e for e in resources.events(NAME) if e["reason"] in reasons]
    return events if {e["reason"] for e in events} == set(reasons) else []


def test_a_recreated_group_is_reported_in_one_event(
    resources: Resources, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    redis_86.cli("XGROUP", "DESTROY", stream, NAME)
    reported = wait_until(
        lambda: _reported(resources, "GroupRecreated"),
        timeout_s=WAIT_S,
        what="the event",
        every_s=0.2,
    )
    assert len(reported) == 1 and "0-0" in reported[0]["note"]


def test_logs_are_json_lines_that_name_the_resource(
    resources: Resources, operators: Operators, redis_86: RedisServers, stream: str
) -> None:
    resources.apply(NAME, a_spec(redis_86.url, stream))
    resources.await_condition(NAME, reason="Ready")
    process = operators.start(PELOPS_LOG_FORMAT="json", PELOPS_LOG_LEVEL="DEBUG")[0]
    resources.plane.kubectl("delete", "deployment", f"{NAME}-workers", "-n", resources.namespace)
    process.stop(30)
    lines = [json.loads(line) for line in Path(process.log).read_text().splitlines()]
    assert all({"level", "logger", "message", "timestamp"} <= line.keys() for line in lines)
    assert lines[-1]["message"] == "The operator has stopped"
    assert process.exit_code == 0
    await_absence(resources, "scg", "never-there")
    assert get(resources, "scg", NAME)
