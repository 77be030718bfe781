"""What resources ask for, and the right of Kubernetes that their author needs for it.

docs/guides/rights.md shows them as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.control_plane.tenants import right

GROUP: Final = "orders"
AUDIT: Final = "nightly"

Rule = dict[str, Any]

_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    "scg": ("StreamConsumerGroup", GROUP),
    "saudit": ("StreamAudit", AUDIT),
    "srd": ("StreamRedrive", "after-fix"),
}

CREATE_DEPLOYMENTS = right("create", "deployments", "apps")
CREATE_BUDGETS = right("create", "poddisruptionbudgets", "policy")
CREATE_CRON_JOBS = right("create", "cronjobs", "batch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something to ask for. Without any one of the rights it is refused, with all it is done."""

    kind: str  # scg, saudit or srd
    spec: Mapping[str, Any]  # with what it begins
    rights: tuple[Rule, ...]  # that are needed beside those on resources of Pelops
    names: str  # in the refusal
    change: Mapping[str, Any] | None = None  # of the spec; None: what is asked for is its creation


def group(**more: Any) -> dict[str, Any]:
    """A StreamConsumerGroup that asks for nothing that is guarded."""
    return {"redis": {"url": "redis://redis"}, "stream": "orders", **more}


def audit(**more: Any) -> dict[str, Any]:
    """A StreamAudit."""
    return {"groups": [GROUP], "schedule": "@yearly", "archive": {"path": "/archive"}, **more}


def template(image: str = "worker", **pod: Any) -> dict[str, Any]:
    """A pod template."""
    return {"spec": {"containers": [{"name": "worker", "image": image}], **pod}}


def get_secret(name: str) -> Rule:
    return right("get", "secrets", "", name)


def spark(operator: str) -> dict[str, Any]:
    return {"type": "SparkApplication", "sparkOperator": operator}


def manifest(case: Case) -> dict[str, Any]:
    """The resource that a case is about."""
    kind, name = _KINDS[case.kind]
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": dict(case.spec),
    }


_WITH_SECRET = group(redis={"secretRef": {"name": "redis"}})
_WITH_TEMPLATE = group(template=template(), replicas=1)
_WITH_TARGET = group(targetRef={"name": "workers"}, scaling={"mode": "Manual"})
_PATCH_WORKERS = right("patch", "deployments/scale", "apps", "workers")
_PATCH_OWN = right("patch", "deployments/scale", "apps", f"{GROUP}-workers")

_SENTINEL: Final = {"masterName": "m", "nodes": ["s-0:26379"]}
# The long form of `redis.secretRef`: each Secret that it may name.
_PARTS: Final[Mapping[str, dict[str, Any]]] = {
    "redis.authSecretRef": {"authSecretRef": {"name": "redis"}},
    "redis.tls.caSecretRef": {"tls": {"caSecretRef": {"name": "redis"}}},
    "redis.tls.certSecretRef": {"tls": {"certSecretRef": {"name": "redis"}}},
    "redis.sentinel.authSecretRef": {"sentinel": {**_SENTINEL, "authSecretRef": {"name": "redis"}}},
}


def _with_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"url": "rediss://redis", **part}


CASES: Final[Mapping[str, Case]] = {
    # --- a new StreamConsumerGroup
    "name a Secret in `redis.secretRef`": Case(
        kind="scg",
        spec=_WITH_SECRET,
        rights=(get_secret("redis"),),
        names="may not get Secret",
    ),
    **{
        f"name a Secret in `{path}`": Case(
            kind="scg",
            spec=group(redis=_with_part(part)),
            rights=(get_secret("redis"),),
            names=f"spec.{path}: ",
        )
        for path, part in _PARTS.items()
    },
    "name a Secret in `workerSecretRef`": Case(
        kind="scg",
        spec=group(workerSecretRef={"name": "workers"}),
        rights=(get_secret("workers"),),
        names="may not get Secret",
    ),
    "have workers run from a `template`": Case(
        kind="scg",
        spec=_WITH_TEMPLATE,
        rights=(CREATE_DEPLOYMENTS, CREATE_BUDGETS),
        names="may not create",
    ),
    "name a ServiceAccount in a `template`": Case(
        kind="scg",
        spec=group(template=template(serviceAccountName="admin")),
        rights=(CREATE_DEPLOYMENTS, CREATE_BUDGETS),
        names="may not create",
    ),
    "mount Secrets, ConfigMaps and claims in a `template`": Case(
        kind="scg",
        spec=group(
            template=template(
                volumes=[
                    {"name": "secret", "secret": {"secretName": "foreign"}},
                    {"name": "claim", "persistentVolumeClaim": {"claimName": "foreign"}},
                ]
            )
        ),
        rights=(CREATE_DEPLOYMENTS, CREATE_BUDGETS),
        names="may not create",
    ),
    "name a Deployment in `targetRef`": Case(
        kind="scg",
        spec=_WITH_TARGET,
        rights=(_PATCH_WORKERS,),
        names="may not patch deployments/scale",
    ),
    "name a StatefulSet in `targetRef`": Case(
        kind="scg",
        spec=group(targetRef={"kind": "StatefulSet", "name": "workers"}),
        rights=(right("update", "statefulsets/scale", "apps", "workers"),),
        names="may not patch statefulsets/scale",
    ),
    "name another kind in `targetRef`": Case(
        kind="scg",
        spec=group(
            targetRef={"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "workers"}
        ),
        rights=(right("patch", "rollouts/scale", "argoproj.io", "workers"),),
        names="may not patch rollouts/scale",
    ),
    # --- a StreamConsumerGroup that is there
    "send the Secret's credentials to another address": Case(
        kind="scg",
        spec=group(redis={"url": "redis://redis", "secretRef": {"name": "redis"}}),
        change={"redis": {"url": "redis://eve"}},
        rights=(get_secret("redis"),),
        names="may not get Secret",
    ),
    "use the Secret's credentials on another key": Case(
        kind="scg",
        spec=_WITH_SECRET,
        change={"deadLetter": {"stream": "others", "retentionSeconds": 60}},
        rights=(get_secret("redis"),),
        names="may not get Secret",
    ),
    "use the Secret's credentials to trim": Case(
        kind="scg",
        spec=_WITH_SECRET,
        change={"retention": {"maxLength": 1}},
        rights=(get_secret("redis"),),
        names="may not get Secret",
    ),
    "add a Secret": Case(
        kind="scg",
        spec=group(),
        change={"redis": {"secretRef": {"name": "redis"}}},
        rights=(get_secret("redis"),),
        names="may not get Secret",
    ),
    "give the workers' Secret to another address": Case(
        kind="scg",
        spec=group(workerSecretRef={"name": "workers"}),
        change={"redis": {"url": "redis://eve"}},
        rights=(get_secret("workers"),),
        names="may not get Secret",
    ),
    "change the `template`": Case(
        kind="scg",
        spec=_WITH_TEMPLATE,
        change={"template": template("eve")},
        rights=(CREATE_DEPLOYMENTS,),
        names="may not create Deployments",
    ),
    "add a `template`": Case(
        kind="scg",
        spec=group(),
        change={"template": template()},
        rights=(CREATE_DEPLOYMENTS, CREATE_BUDGETS),
        names="may not create",
    ),
    "remove the `template`": Case(
        kind="scg",
        spec=_WITH_TEMPLATE,
        change={"template": None},
        rights=(right("delete", "deployments", "apps", f"{GROUP}-workers"),),
        names="may not delete Deployment",
    ),
    "change `replicas` of a `template`": Case(
        kind="scg",
        spec=_WITH_TEMPLATE,
        change={"replicas": 9},
        rights=(_PATCH_OWN,),
        names="may not patch deployments/scale",
    ),
    "change `scaling` of a target": Case(
        kind="scg",
        spec=_WITH_TARGET,
        change={"scaling": {"mode": "Auto", "maxReplicas": 1000}},
        rights=(_PATCH_WORKERS,),
        names="may not patch deployments/scale",
    ),
    "change `replicas` of a target": Case(
        kind="scg",
        spec=_WITH_TARGET,
        change={"replicas": 9},
        rights=(_PATCH_WORKERS,),
        names="may not patch deployments/scale",
    ),
    "name another target": Case(
        kind="scg",
        spec=_WITH_TARGET,
        change={"targetRef": {"name": "others"}},
        rights=(right("patch", "deployments/scale", "apps", "others"),),
        names="may not patch deployments/scale",
    ),
    "end `suspend` where a Secret is named": Case(
        kind="scg",
        spec={**_WITH_SECRET, "suspend": True},
        change={"suspend": False},
        rights=(get_secret("redis"),),
        names="may not get Secret",
    ),
    "end `suspend` where a target is named": Case(
        kind="scg",
        spec={**_WITH_TARGET, "suspend": True},
        change={"suspend": False},
        rights=(_PATCH_WORKERS,),
        names="may not patch deployments/scale",
    ),
    # --- a new StreamAudit
    "have an audit run by a CronJob": Case(
        kind="saudit",
        spec=audit(),
        rights=(CREATE_CRON_JOBS,),
        names="may not create CronJobs",
    ),
    "choose image, ServiceAccount and volumes of an audit": Case(
        kind="saudit",
        spec=audit(image="eve", template=template(serviceAccountName="admin")),
        rights=(CREATE_CRON_JOBS,),
        names="may not create CronJobs",
    ),
    "have an audit run by Kubeflow's Spark operator": Case(
        kind="saudit",
        spec=audit(backend=spark("Kubeflow")),
        rights=(right("create", "scheduledsparkapplications", "sparkoperator.k8s.io"),),
        names="may not create ScheduledSparkApplications",
    ),
    "have an audit run by Apache's Spark operator": Case(
        kind="saudit",
        spec=audit(backend=spark("Apache")),
        rights=(right("create", "sparkapplications", "spark.apache.org"),),
        names="may not create SparkApplications",
    ),
    "name a Secret in an audit's `redis.secretRef`": Case(
        kind="saudit",
        spec={
            **{k: v for k, v in audit().items() if k != "groups"},
            "streamPattern": "*",
            "redis": {"secretRef": {"name": "redis"}},
        },
        rights=(CREATE_CRON_JOBS, get_secret("redis")),
        names="may not",
    ),
    **{
        f"name a Secret in an audit's `{path}`": Case(
            kind="saudit",
            spec={
                **{k: v for k, v in audit().items() if k != "groups"},
                "streamPattern": "*",
                "redis": _with_part(part),
            },
            rights=(CREATE_CRON_JOBS, get_secret("redis")),
            names="may not",
        )
        for path, part in _PARTS.items()
    },
    "name a Secret in `jobSecretRef`": Case(
        kind="saudit",
        spec=audit(jobSecretRef={"name": "job"}),
        rights=(CREATE_CRON_JOBS, get_secret("job")),
        names="may not",
    ),
    "name a Secret in `archive.s3.secretRef`": Case(
        kind="saudit",
        spec=audit(archive={"s3": {"bucket": "audits", "secretRef": {"name": "bucket"}}}),
        rights=(CREATE_CRON_JOBS, get_secret("bucket")),
        names="may not",
    ),
    # --- a new StreamRedrive
    "name a ConfigMap in `selection.planRef`": Case(
        kind="srd",
        spec={"groupRef": {"name": GROUP}, "selection": {"planRef": {"name": "plan"}}},
        rights=(right("get", "configmaps", "", "plan"),),
        names="may not get ConfigMap",
    ),
    # --- a StreamAudit that is there
    "change the image of an audit": Case(
        kind="saudit",
        spec=audit(),
        change={"image": "eve"},
        rights=(CREATE_CRON_JOBS,),
        names="may not create CronJobs",
    ),
    "change where a bucket's credentials are sent": Case(
        kind="saudit",
        spec=audit(archive={"s3": {"bucket": "audits", "secretRef": {"name": "bucket"}}}),
        change={"archive": {"s3": {"endpoint": "https://eve"}}},
        rights=(CREATE_CRON_JOBS, get_secret("bucket")),
        names="may not",
    ),
    "change `backend` of an audit": Case(
        kind="saudit",
        spec=audit(),
        change={"backend": spark("Kubeflow")},
        rights=(
            right("create", "scheduledsparkapplications", "sparkoperator.k8s.io"),
            right("delete", "cronjobs", "batch", f"{AUDIT}-audit"),
        ),
        names="may not",
    ),
    "end `suspend` of an audit": Case(
        kind="saudit",
        spec=audit(suspend=True),
        change={"suspend": False},
        rights=(CREATE_CRON_JOBS,),
        names="may not create CronJobs",
    ),
}

# What needs no right but those on the resource itself, however much the resource is guarded.
GUARDED: Final = Case(
    kind="scg",
    spec=group(
        redis={"secretRef": {"name": "redis"}},
        workerSecretRef={"name": "workers"},
        targetRef={"name": "workers"},
        scaling={"mode": "Manual"},
    ),
    rights=(),
    names="",
)
GUARDED_TEMPLATE: Final = Case(
    kind="scg",
    spec=group(redis={"secretRef": {"name": "redis"}}, template=template()),
    rights=(),
    names="",
)
GUARDED_AUDIT: Final = Case(
    kind="saudit", spec=audit(jobSecretRef={"name": "job"}), rights=(), names=""
)
