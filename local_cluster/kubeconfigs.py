"""Kubeconfig files, each whole in one file."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from local_cluster.pki import KeyPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where an API server is, and who is calling."""

    url: str
    ca_file: Path
    client: KeyPair

    def write_kubeconfig(self, path: Path, *, name: str = "pelops-local") -> Path:
        """Write a kubeconfig that holds all of it, the private key too; readable by its owner."""
        cluster = {"server": self.url, "certificate-authority-data": _encode(self.ca_file)}
        user = {
            "client-certificate-data": _encode(self.client.certificate),
            "client-key-data": _encode(self.client.key),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2) + "\n")  # JSON is YAML
        return path


def _encode(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
