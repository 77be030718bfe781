"""GitOps tools apply the same YAML again and again: nothing changes, and no writers conflict."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from local_cluster.processes import wait_until
from local_cluster.redis_servers import StandaloneServers
from tests.e2e.declaring import WAIT_S, get, secret
from tests.operators import ROOT, Resources

SHOP = ROOT / "examples" / "gitops" / "shop" / "shop.yaml"
NAME, WORKERS = "order-processing", "order-workers"
TIMES = 5
QUICK = {
    "cooldownSeconds": 1,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
}


@pytest.mark.parametrize(
    ("manager", "forces"), [("argocd-controller", True), ("kustomize-controller", False)]
)
def test_the_same_yaml_applied_again_by_another_manager_changes_nothing(
    resources: Resources, redis_86: StandaloneServers, stream: str, manager: str, forces: bool
) -> None:
    manifests = list(yaml.safe_load_all(SHOP.read_text()))
    manifests[1]["spec"]["stream"] = stream
    manifests[1]["spec"]["scaling"] |= QUICK
    resources.apply_raw(secret("orders-redis", url=redis_86.url))

    def apply() -> None:
        options = ["--server-side", f"--field-manager={manager}"]
        options += ["--force-conflicts"] if forces else []
        resources.plane.kubectl(
            *("apply", "-n", resources.namespace, *options, "-f", "-"),
            stdin=yaml.safe_dump_all(manifests),
        )

    def versions() -> list[dict[str, Any]]:
        found = (get(resources, "scg", NAME), get(resources, "deployment", WORKERS))
        return [
            {key: one["metadata"][key] for key in ("generation", "resourceVersion")}
            for one in found
        ]

    def changes_nothing() -> bool:
        before = versions()
        for _ in range(TIMES):
            apply()
        return versions() == before

    def replicas() -> int:
        return int(get(resources, "deployment", WORKERS)["spec"]["replicas"])

    apply()
    # The API server sets one worker where the YAML has none, and Pelops sets it to what is needed.
    wait_until(lambda: replicas() == 0, timeout_s=WAIT_S, what="no workers", every_s=0.2)
    resources.await_condition(NAME, reason="Ready")
    generation = get(resources, "scg", NAME)["metadata"]["generation"]
    # The last status write may come after Ready; conflicting writers would never stop.
    wait_until(changes_nothing, timeout_s=WAIT_S, what=f"{TIMES} applies without a change")
    assert get(resources, "scg", NAME)["metadata"]["generation"] == generation == 1

    script = "for i = 1, 500 do redis.call('XADD', KEYS[1], '*', 'n', i) end"
    redis_86.cli("EVAL", script, "1", stream)
    wait_until(lambda: replicas() > 0, timeout_s=WAIT_S, what="workers", every_s=0.2)
    shown = resources.plane.kubectl(
        *("get", "deployment", WORKERS, "-n", resources.namespace),
        *("-o", "json", "--show-managed-fields"),
    )
    owners = {
        one["manager"]
        for one in json.loads(shown.stdout)["metadata"]["managedFields"]
        if "f:replicas" in json.dumps(one.get("fieldsV1", {}).get("f:spec", {}))
    }
    assert manager not in owners
    before = replicas()
    apply()
    assert replicas() >= before
