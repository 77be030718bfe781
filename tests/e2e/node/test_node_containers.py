"""What a pod on the node stand-in gets: environment, volumes, rights, logs, order."""

import json
from pathlib import Path

import pytest

from tests.e2e.node.pods import PATIENT, WAIT_S, Manifest, PodNamespace, build_pod, build_secret

pytestmark = pytest.mark.full


def test_pods_get_the_environment_and_volumes_they_ask_for(pods: PodNamespace) -> None:
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "CONSUMER", "value": "$(POD_NAME):$(POD_UID) $$(POD_NAME) $(NOPE)"},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
        {"name": "CA_FILE", "value": "/etc/redis/ca.crt"},
    ]
    mounts = [{"name": "redis", "mountPath": "/etc/redis"}]
    volumes = [{"name": "redis", "secret": {"secretName": "redis"}}]
    pods.apply(build_secret("redis", **{"password": "p w", "ca.crt": "CERT"}))
    template = build_pod(
        "x", PATIENT, args=("$(POD_NAME)",), env=env, volumeMounts=mounts, volumes=volumes
    )
    labels = {"app": "web"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }
    pods.apply(deployment)
    pods.kubectl("rollout", "status", "deployment/web", f"--timeout={WAIT_S:.0f}s")

    found = pods.all("-l", "app=web")
    assert len({pod["status"]["podIP"] for pod in found}) == 3
    for pod in found:
        meta = pod["metadata"]
        said = json.loads(pods.until_said(meta["name"]))
        assert said["argv"] == [meta["name"]]
        assert said["env"]["CONSUMER"] == f"{meta['name']}:{meta['uid']} $(POD_NAME) $(NOPE)"
        assert said["env"]["PASSWORD"] == "p w"
        ca_file = Path(said["env"]["CA_FILE"])
        assert ca_file.read_text() == "CERT"
        assert ca_file.stat().st_mode & 0o777 == 0o600
        assert "VIRTUAL_ENV" not in said["env"]
        assert "PYTHONPATH" not in said["env"]


def test_a_missing_secret_is_waited_for_and_named(pods: PodNamespace) -> None:
    ref = {"secretKeyRef": {"name": "later", "key": "password"}}
    pods.apply(build_pod("waits", PATIENT, env=[{"name": "PASSWORD", "valueFrom": ref}]))

    pods.until(lambda: "message" in pods.container("waits")["state"].get("waiting", {}), "it")
    waiting = pods.container("waits")["state"]["waiting"]
    assert waiting == {
        "reason": "CreateContainerConfigError",
        "message": 'secret "later" not found',
    }
    assert pods.get("pod", "waits")["status"]["phase"] == "Pending"

    pods.apply(build_secret("later", password="x"))
    assert pods.until_running("waits")["restartCount"] == 0


def test_probes_decide_readiness_and_restart(pods: PodNamespace, tmp_path: Path) -> None:
    ready, alive = tmp_path / "ready", tmp_path / "alive"
    program = """
    import http.server, os
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if os.path.exists(self.path) else 503)
            self.end_headers()
    http.server.ThreadingHTTPServer((os.environ["POD_IP"], 8080), Answer).serve_forever()
    """
    env = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]

    def build_probe(path: Path) -> Manifest:
        get = {"port": 8080, "path": str(path)}
        return {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 5}

    alive.touch()
    pod = build_pod(
        "probed",
        program,
        env=env,
        livenessProbe=build_probe(alive),
        readinessProbe=build_probe(ready),
    )
    pods.apply(pod)
    pods.until_running("probed")
    assert not pods.container("probed")["ready"]
    ready.touch()
    pods.until(lambda: pods.container("probed")["ready"], "readiness")
    restarts = pods.container("probed")["restartCount"]
    alive.unlink()
    pods.until(lambda: pods.container("probed")["restartCount"] > restarts, "the restart")
