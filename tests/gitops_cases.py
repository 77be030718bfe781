"""What GitOps tools are to report of a resource, and the files of `manifests/argocd` with it.

    python -m tests.gitops_cases --write

writes the test cases in the format of Argo CD's own repository (a directory for each kind), the
script of the other kinds, and `argocd-cm.yaml`. The script of the first kind is the source.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from pelops.policy.status.reasons import Reason
from tests.message_samples import list_examples
from tests.operators import ROOT
from tests.unit.test_health import LATE, seen

ARGOCD: Final = ROOT / "manifests" / "argocd"
CUSTOMIZATIONS: Final = ARGOCD / "resource_customizations" / "pelops.dev"
KINDS: Final = ("StreamConsumerGroup", "StreamAudit", "StreamRedrive")
SOURCE: Final = CUSTOMIZATIONS / KINDS[0] / "health.lua"
WAITING: Final = "Waiting for the Pelops operator"
DELETED: Final = {"deletionTimestamp": "2026-05-04T03:02:01Z", "deletionGracePeriodSeconds": 0}
SPECS: Final[Mapping[str, dict[str, Any]]] = {
    "StreamConsumerGroup": {
        "redis": {"secretRef": {"name": "orders-redis"}},
        "stream": "orders:events",
        "targetRef": {"name": "order-workers"},
        "scaling": {"maxReplicas": 20},
    },
    "StreamAudit": {
        "groups": ["order-processing"],
        "schedule": "*/15 * * * *",
        "archive": {"path": "/archive"},
    },
    "StreamRedrive": {"groupRef": {"name": "order-processing"}},
}
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A resource, and what Argo CD reports of it."""

    name: str
    thing: Object
    status: str
    message: str


@cache
def messages(kind: str) -> dict[str, str]:
    """A message of Ready for each reason that this kind may show there."""
    examples = [one for one in list_examples() if one.kind == kind and one.shown_in == "Ready"]
    return {one.reason: one.message for one in examples}


def complete(kind: str, thing: Object, **spec: Any) -> Object:
    """The whole resource, of what `seen` makes."""
    return {
        "apiVersion": "pelops.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "orders", "namespace": "shop", **thing["metadata"]},
        "spec": {**SPECS[kind], **spec},
        **({"status": thing["status"]} if "status" in thing else {}),
    }


def list_cases(kind: str) -> Iterator[Case]:
    """The cases that are written to files."""
    good, waits = {
        "StreamConsumerGroup": (Reason.READY, Reason.SECRET_MISSING),
        "StreamAudit": (Reason.SCHEDULED, Reason.SECRET_MISSING),
        "StreamRedrive": (Reason.COMPLETED, Reason.GROUP_MISSING),
    }[kind]
    texts = messages(kind)
    healthy = seen(good, message=texts[good])
    meta = healthy["metadata"]

    def case(name: str, thing: Object, status: str, message: str, **spec: Any) -> Case:
        return Case(name, complete(kind, thing, **spec), status, message)

    yield case("healthy", healthy, "Healthy", texts[good])
    yield case("suspended", healthy, "Suspended", "spec.suspend is true", suspend=True)
    yield case(
        "deleted", {**healthy, "metadata": {**meta, **DELETED}}, "Progressing", "Being deleted"
    )
    fresh: Object = {"metadata": meta, "status": {"observedGeneration": -1}}
    yield case("not-observed", fresh, "Progressing", WAITING)
    changed = {**healthy, "metadata": {**meta, "generation": 2}}
    yield case("changed", changed, "Progressing", WAITING)
    first = seen(waits, message=texts[waits])
    yield case("waiting", first, "Progressing", texts[waits])
    late = seen(waits, before=first, now=LATE, message=texts[waits])
    too_late = f"Not ready for more than 10 minutes: {texts[waits]}"
    yield case("waiting-for-long", late, "Degraded", too_late)
    for name, reason in (
        ("invalid-spec", Reason.INVALID_SPEC),
        ("conflict", Reason.CONFLICT),
        ("name-taken", Reason.NAME_TAKEN),
        ("newer-format", Reason.NEWER_FORMAT),
        ("fails-again", Reason.FAILS_AGAIN),
    ):
        if reason in texts:
            yield case(name, seen(reason, message=texts[reason]), "Degraded", texts[reason])


def render_files() -> dict[Path, str]:
    """All files that are written, with their contents."""
    script = SOURCE.read_text()
    files = {CUSTOMIZATIONS / kind / "health.lua": script for kind in KINDS[1:]}
    for kind in KINDS:
        cases = list(list_cases(kind))
        tests = [
            {
                "healthStatus": {"status": one.status, "message": one.message},
                "inputPath": f"testdata/{one.name}.yaml",
            }
            for one in cases
        ]
        files[CUSTOMIZATIONS / kind / "health_test.yaml"] = _dump({"tests": tests})
        for one in cases:
            files[CUSTOMIZATIONS / kind / "testdata" / f"{one.name}.yaml"] = _dump(one.thing)
    files[ARGOCD / "argocd-cm.yaml"] = _render_config_map(script)
    return files


def _render_config_map(script: str) -> str:
    head = (
        "# The health of all kinds for Argo CD. Applied on the server side, it adds these keys.\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\n  namespace: argocd\n"
        "  labels:\n    app.kubernetes.io/part-of: argocd\ndata:\n"
    )
    indented = "".join(f"    {line}\n" for line in script.splitlines())
    keys = (f"resource.customizations.health.pelops.dev_{kind}" for kind in KINDS)
    return head + "".join(f"  {key}: |\n{indented}" for key in keys)


def _dump(value: Object) -> str:
    plain = json.loads(json.dumps(value))  # without enumerations, and without aliases
    return yaml.safe_dump(plain, sort_keys=False, width=110, allow_unicode=True)


def main() -> None:
    """Write the files, and remove those of cases that are no more."""
    if sys.argv[1:] != ["--write"]:
        raise SystemExit(__doc__)
    files = render_files()
    for kind in KINDS:
        for path in (CUSTOMIZATIONS / kind / "testdata").glob("*.yaml"):
            if path not in files:
                path.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
