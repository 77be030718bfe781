"""What runs an audit with a Spark operator, and how the runs of one are read."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pelops.errors import InvalidSpec
from pelops.kube.audit_spark import (
    application_runs,
    build_application,
    build_scheduled_application,
    has_ended,
    scheduled_runs,
)
from pelops.kube.client import Manifest
from pelops.kube.container_environment import mebibytes
from tests.audit_facts import ACCESS, a_plan, after, an_audit

IMAGE = "pelops-pipeline:1"


def spark(operator: str, **backend: Any) -> Any:
    kind = {"type": "SparkApplication", "sparkOperator": operator, **backend}
    return an_audit(backend=kind, timeZone="Europe/Berlin")


def scheduled(audit: Any) -> Manifest:
    return build_scheduled_application(audit, a_plan(audit), ACCESS, image=IMAGE)


def test_kubeflow_starts_the_runs_of_a_scheduled_application() -> None:
    made = scheduled(spark("Kubeflow", executors=2))
    assert made["spec"]["schedule"] == "CRON_TZ=Europe/Berlin */15 * * * *"
    # Theirs would else be that of the Spark operator's pod.
    usual = an_audit(backend={"type": "SparkApplication", "sparkOperator": "Kubeflow"})
    assert scheduled(usual)["spec"]["schedule"] == "CRON_TZ=UTC */15 * * * *"
    assert made["spec"]["concurrencyPolicy"] == "Forbid"
    template = made["spec"]["template"]
    assert (template["type"], template["executor"]["instances"]) == ("Python", 2)
    assert template["driver"]["serviceAccount"] == "spark"
    assert "automountServiceAccountToken" not in template["driver"]["template"]["spec"]
    made = scheduled(spark("Kubeflow"))
    assert made["spec"]["template"]["driver"]["kubernetesMaster"] == "local[*,3]"
    assert made["spec"]["template"]["executor"] == {}


def test_the_pods_of_kubeflow_have_the_names_that_its_operator_looks_for() -> None:
    made = scheduled(spark("Kubeflow", executors=2))
    pods = {
        part: made["spec"]["template"][part]["template"]["spec"] for part in ("driver", "executor")
    }
    for part, spec in pods.items():
        assert [one["name"] for one in spec["containers"]] == [f"spark-kubernetes-{part}"]
    assert pods["driver"]["activeDeadlineSeconds"] == 3600
    assert "activeDeadlineSeconds" not in pods["executor"], "they end with their driver"


def test_a_name_whose_runs_could_not_be_labelled_is_refused() -> None:
    backend = {"type": "SparkApplication", "sparkOperator": "Kubeflow"}

    def build(name: str) -> Manifest:
        return scheduled(an_audit(backend=backend, metadata={"name": name}))

    nanoseconds = 1_777_863_721_000_000_000
    assert len(f"{build('n' * 37)['metadata']['name']}-{nanoseconds}") == 63
    with pytest.raises(InvalidSpec, match=r"metadata\.name must have at most 37 characters"):
        build("n" * 38)


def test_spark_gets_the_resources_of_pods_as_settings() -> None:
    resources = {"requests": {"cpu": "500m"}, "limits": {"memory": "4Gi", "cpu": 2}}
    backend = {"type": "SparkApplication", "sparkOperator": "Kubeflow", "executors": 1}
    made = scheduled(an_audit(backend=backend, resources=resources))
    sizes = {
        "memory": "3072m", "memoryOverhead": "1024m", "coreRequest": "500m", "coreLimit": "2",
    }  # fmt: skip
    for part in ("driver", "executor"):
        assert sizes.items() <= made["spec"]["template"][part].items()
    backend = {"type": "SparkApplication", "sparkOperator": "Apache"}
    apache = an_audit(backend=backend, resources=resources)
    made = build_application(apache, a_plan(apache), ACCESS, image=IMAGE, due=after())
    assert {
        "spark.driver.memory": "3072m",
        "spark.driver.memoryOverhead": "1024m",
        "spark.kubernetes.driver.request.cores": "500m",
        "spark.kubernetes.driver.limit.cores": "2",
    }.items() <= made["spec"]["sparkConf"].items()


@pytest.mark.parametrize(
    ("quantity", "mib"),
    [
        ("2Gi", 2048),
        ("1G", 953),
        ("1.5Gi", 1536),
        (2147483648, 2048),
        ("1e9", 953),
        ("1E", 953674316406),
        ("2147483648000m", 2048),
        ("2147483648000000u", 2048),
    ],
)
def test_memory_is_read_in_every_unit_of_kubernetes(quantity: object, mib: int) -> None:
    assert mebibytes(quantity, field="memory") == mib


@pytest.mark.parametrize("quantity", ["", "2 Gi", "2gi", "lots", "-1Gi", "0x10", "1Gib", "१Gi"])
def test_memory_that_is_no_quantity_is_refused_by_its_field(quantity: str) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.memory must be"):
        mebibytes(quantity, field="spec.memory")


def test_an_application_of_apache_is_named_after_its_minute() -> None:
    audit = spark("Apache")
    names = {
        build_application(audit, a_plan(audit), ACCESS, image=IMAGE, due=after(minutes=m))[
            "metadata"
        ]["name"]
        for m in (0, 0.2, 1)
    }
    assert len(names) == 2
    made = build_application(audit, a_plan(audit), ACCESS, image=IMAGE, due=after())
    assert made["spec"]["sparkConf"]["spark.kubernetes.driver.master"] == "local[*,3]"
    (driver,) = made["spec"]["driverSpec"]["podTemplateSpec"]["spec"]["containers"]
    assert "command" not in driver and driver["name"] == "audit"


def run_of(owner: str, made: str, state: str | None, ended: str | None = None) -> Manifest:
    status = {} if state is None else {"applicationState": {"state": state}}
    return {
        "metadata": {"creationTimestamp": made, "ownerReferences": [{"uid": owner}]},
        "status": {**status, "terminationTime": ended},
    }


def test_the_runs_of_a_scheduled_application_are_those_that_it_owns() -> None:
    owner = {"metadata": {"uid": "u"}, "status": {"lastRunName": "b"}}
    assert scheduled_runs(None, []).exists is False
    never = scheduled_runs(owner, [])
    assert never.exists and never.last_start is None and not never.is_active
    well = run_of("u", "2026-05-04T03:00:00Z", "COMPLETED", "2026-05-04T03:01:00Z")
    runs = scheduled_runs(owner, [well])
    assert runs.last_start == datetime(2026, 5, 4, 3, 0, tzinfo=UTC)
    assert runs.last_success == datetime(2026, 5, 4, 3, 1, tzinfo=UTC)
    assert not runs.is_active
    bad = run_of("u", "2026-05-04T03:15:00Z", "FAILED", "2026-05-04T03:16:00Z")
    runs = scheduled_runs(owner, [bad, well])
    assert runs.last_start == datetime(2026, 5, 4, 3, 15, tzinfo=UTC)
    assert runs.last_success == datetime(2026, 5, 4, 3, 1, tzinfo=UTC)
    assert not runs.is_active
    stranger = run_of("other", "2026-05-04T03:30:00Z", "RUNNING")
    assert not scheduled_runs(owner, [bad, well, stranger]).is_active
    for state in (None, "SUBMITTED", "RUNNING", "FAILING"):
        new = run_of("u", "2026-05-04T03:30:00Z", state)
        assert scheduled_runs(owner, [bad, well, new]).is_active


def application(made: str, *states: str) -> Manifest:
    history = {
        str(n): {"currentStateSummary": state, "lastTransitionTime": f"2026-05-04T03:0{n}:00Z"}
        for n, state in enumerate(states)
    }
    current = {"currentStateSummary": states[-1]} if states else {}
    return {
        "metadata": {"creationTimestamp": made},
        "status": {"currentState": current, "stateTransitionHistory": history},
    }


def test_the_runs_of_applications_are_read_from_their_states() -> None:
    assert application_runs([]).exists
    first = application("2026-05-04T02:00:00Z", "Submitted", "Succeeded", "ResourceReleased")
    second = application("2026-05-04T03:00:00Z", "Submitted", "DriverReady")
    assert has_ended(first) and not has_ended(second)
    runs = application_runs([first, second])
    assert runs.is_active and runs.last_success is not None
    assert runs.last_start is not None and runs.last_start.hour == 3
    assert application_runs([application("2026-05-04T03:00:00Z")]).is_active


def test_only_a_driver_that_makes_executors_has_a_token() -> None:
    def tokens(**more: int) -> list[bool | None]:
        template = scheduled(spark("Kubeflow", **more))["spec"]["template"]
        return [
            template[role]["template"]["spec"].get("automountServiceAccountToken")
            for role in ("driver", "executor")
            if "template" in template[role]
        ]

    assert tokens() == [False]
    assert tokens(executors=2) == [None, False]
