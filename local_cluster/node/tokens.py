"""ServiceAccount tokens of one pod, from the TokenRequest API, renewed before they expire."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from local_cluster.node.api import Api
from local_cluster.node.container_state import parse_time
from local_cluster.node.fields import KubeObject
from local_cluster.node.volumes import TokenWish

# As the kubelet: renewed when a fifth of its life is left.
_RENEW_AT = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    renew_at: float


class PodTokens:
    """Tokens bound to one pod: the API server refuses them once the pod is deleted."""

    def __init__(self, api: Api, pod: KubeObject) -> None:
        self._api = api
        self._pod = pod
        self._held: dict[TokenWish, _Token] = {}

    async def get(self, wish: TokenWish) -> str:
        """A token that is good for a while; raises ApiError or ApiUnavailable."""
        held = self._held.get(wish)
        if held is None or time.time() >= held.renew_at:
            self._held[wish] = held = await self._request(wish)
        return held.text

    async def _request(self, wish: TokenWish) -> _Token:
        meta = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{account}/token"
        now = time.time()
        answer = await self._api.post(path, build_token_request(meta, wish))
        expires = parse_time(answer["status"]["expirationTimestamp"])
        life_s = expires.timestamp() - now if expires else wish.expiration_s
        return _Token(text=answer["status"]["token"], renew_at=now + life_s * _RENEW_AT)


def build_token_request(meta: KubeObject, wish: TokenWish) -> KubeObject:
    """A TokenRequest bound to the pod."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [wish.audience] if wish.audience else [],
            "expirationSeconds": wish.expiration_s,
            "boundObjectRef": bound,
        },
    }


def build_kubeconfig(server: str, mounted: Path, namespace: str) -> KubeObject:
    """A kubeconfig of exactly the token and CA in `mounted`, as a container sees them."""
    # Both forms of the token: clients differ in which they read, and only a file can be renewed.
    user = {"tokenFile": str(mounted / "token"), "token": (mounted / "token").read_text()}
    cluster = {"server": server, "certificate-authority": str(mounted / "ca.crt")}
    context = {"cluster": "local", "user": "serviceaccount", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": cluster}],
        "users": [{"name": "serviceaccount", "user": user}],
        "contexts": [{"name": "local", "context": context}],
        "current-context": "local",
    }


def write_kubeconfig(path: Path, kubeconfig: KubeObject) -> None:
    """Write it in one step, readable by its owner alone. JSON is YAML."""
    fresh = path.with_name(path.name + ".tmp")
    fresh.touch(mode=0o600)
    fresh.write_text(json.dumps(kubeconfig, indent=1))
    fresh.replace(path)
