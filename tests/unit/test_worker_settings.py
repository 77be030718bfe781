"""What a worker reads from its environment."""

from __future__ import annotations

import pytest

from pelops.worker.engine.retries import Again, GivenUp, RetryPolicy, decide_settlement
from pelops.worker.outcomes import Reject, Retry
from pelops.worker.redaction import describe_failure
from pelops.worker.settings import WorkerSettings, WrongWorkerSettings, read_place
from pelops.worker.worker import Worker

REPORTED = {
    "PELOPS_REDIS_URL": "redis://127.0.0.1:6379/0",
    "PELOPS_STREAM": "orders",
    "PELOPS_GROUP": "shipping",
    "PELOPS_CONSUMER": "web-1:uid",
}


def test_what_the_operator_injects_is_what_is_used() -> None:
    reported = {**REPORTED, "PELOPS_IDLE_LIMIT_MS": "300000", "PELOPS_MAX_RETRIES": "5"}
    worker = Worker.from_env({**reported, "PELOPS_FIELD_PREFIX": "x_"}, concurrency=7)
    place = read_place(reported)
    assert (place.keys.stream, place.keys.group, place.consumer) == (
        "orders",
        "shipping",
        "web-1:uid",
    )
    assert place.keys.started == "{orders}:shipping:started"
    assert worker.settings.processing_timeout_ms == place.processing_timeout_ms == 300_000
    assert worker.settings.retry.max_retries == 5
    assert (worker.settings.field_prefix, worker.settings.concurrency) == ("x_", 7)


def test_the_backoff_of_the_resource_is_that_of_the_worker() -> None:
    reported = {
        **REPORTED,
        "PELOPS_MAX_RETRIES": "5",
        "PELOPS_BACKOFF_INITIAL_SECONDS": "20",
        "PELOPS_BACKOFF_FACTOR": "1.5",
        "PELOPS_BACKOFF_MAX_SECONDS": "40",
    }
    policy = WorkerSettings.from_env(reported).retry
    assert policy == RetryPolicy(max_retries=5, initial_s=20, factor=1.5, max_s=40)
    assert WorkerSettings.from_env(REPORTED).retry == RetryPolicy()
    assert (
        WorkerSettings.from_env({**REPORTED, "PELOPS_BACKOFF_INITIAL_SECONDS": "0"}).retry.wait_s(3)
        == 0
    )


def test_without_an_operator_an_entry_is_idle_after_half_a_minute() -> None:
    assert (
        read_place(REPORTED).processing_timeout_ms
        == WorkerSettings.from_env(REPORTED).processing_timeout_ms
        == 30_000
    )


def test_the_consumer_is_named_for_the_pod_when_nothing_names_it() -> None:
    reported = {key: value for key, value in REPORTED.items() if key != "PELOPS_CONSUMER"}
    assert read_place({**reported, "POD_NAME": "web-2", "POD_UID": "9a"}).consumer == "web-2:9a"
    assert read_place(reported).consumer


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PELOPS_REDIS_URL", ""),
        ("PELOPS_STREAM", ""),
        ("PELOPS_GROUP", ""),
        ("PELOPS_REDIS_URL", "http://nowhere"),
        ("PELOPS_IDLE_LIMIT_MS", "soon"),
        ("PELOPS_IDLE_LIMIT_MS", "0"),
        ("PELOPS_MAX_RETRIES", "-1"),
        ("PELOPS_MAX_RETRIES", "1.5"),
        ("PELOPS_BACKOFF_INITIAL_SECONDS", "-1"),
        ("PELOPS_BACKOFF_FACTOR", "nan"),
        ("PELOPS_BACKOFF_MAX_SECONDS", "long"),
        ("PELOPS_CONCURRENCY", "0"),
        ("PELOPS_GRACE_SECONDS", "nan"),
        ("PELOPS_TIMEOUT_SECONDS", "inf"),
        ("PELOPS_PREFETCH", "-1"),
    ],
)
def test_a_variable_that_is_missing_or_wrong_is_named(variable: str, value: str) -> None:
    with pytest.raises(WrongWorkerSettings, match=variable):
        Worker.from_env({**REPORTED, variable: value})


def test_the_password_is_not_shown() -> None:
    place = read_place({**REPORTED, "PELOPS_REDIS_PASSWORD": "hunter2"})
    assert "hunter2" not in repr(place)


def test_a_worker_without_a_handler_and_with_two_says_so() -> None:
    worker = Worker.from_env(REPORTED)
    worker.handler(lambda entry: None)
    with pytest.raises(WrongWorkerSettings):
        worker.handler(lambda entry: None)
    with pytest.raises(TypeError):
        Worker.from_env(REPORTED).handler(5)


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (5000, 300)]
)
def test_each_failure_doubles_the_wait_up_to_a_limit(failures: int, wait_s: float) -> None:
    assert RetryPolicy().wait_s(failures) == wait_s


def describe(error: BaseException) -> str:
    return describe_failure(error, (), None)


@pytest.mark.parametrize(
    ("outcome", "failures", "settlement"),
    [
        (None, 0, None),
        (ValueError("x"), 0, Again(wait_s=1.0, counts=True)),
        (ValueError("x"), 2, Again(wait_s=4.0, counts=True)),
        (ValueError("x"), 3, GivenUp(reason="HandlerFailed", error="ValueError: x")),
        (Retry(after=7), 1, Again(wait_s=7, counts=True)),
        (Retry(), 3, GivenUp(reason="HandlerFailed", error="Retry: retry")),
        (Retry(after=7, counts=False), 99, Again(wait_s=7, counts=False)),
        (Reject("Fraud", "x"), 0, GivenUp(reason="Fraud", error="x")),
        (SystemExit(1), 0, Again(wait_s=1.0, counts=True)),
    ],
)
def test_what_becomes_of_an_entry(outcome: object, failures: int, settlement: object) -> None:
    found = decide_settlement(outcome, failures, RetryPolicy(max_retries=3), describe)  # type: ignore[arg-type]
    assert found == settlement


def test_a_rejection_carries_the_error_that_led_to_it() -> None:
    try:
        try:
            raise ValueError("no such card")
        except ValueError as error:
            raise Reject("Card") from error
    except Reject as rejection:
        found = decide_settlement(rejection, 0, RetryPolicy(), describe)
    assert found == GivenUp(reason="Card", error="ValueError: no such card")


def test_each_part_of_redis_reaches_the_worker() -> None:
    sentinel = {
        "PELOPS_REDIS_SENTINEL_MASTER": "m",
        "PELOPS_REDIS_SENTINEL_NODES": "a:26379",
        "PELOPS_REDIS_SENTINEL_USERNAME": "guard",
        "PELOPS_REDIS_SENTINEL_PASSWORD": "hunter2",
        "PELOPS_REDIS_TLS": "true",
        "PELOPS_REDIS_TLS_SERVER_NAME": "redis.shop",
    }
    group = {"PELOPS_STREAM": "orders", "PELOPS_GROUP": "shipping"}
    endpoint = read_place({**group, **sentinel}).endpoint
    assert endpoint.sentinel is not None
    assert (endpoint.sentinel.username, endpoint.sentinel.password) == ("guard", "hunter2")
    assert (endpoint.tls, endpoint.server_name) == (True, "redis.shop")
    assert "hunter2" not in repr(endpoint)


def test_a_worker_that_must_speak_tls_refuses_a_url_that_does_not() -> None:
    with pytest.raises(WrongWorkerSettings, match="PELOPS_REDIS_TLS is set and PELOPS_REDIS_URL"):
        read_place({**REPORTED, "PELOPS_REDIS_TLS": "true"})
