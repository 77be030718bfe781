"""Kubeconfig files, each whole in one file; and reads of the API server that one names."""

import base64
import json
import ssl
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_cluster.errors import LocalClusterError
from local_cluster.pki import KeyPair

READ_TIMEOUT_S = 30.0


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


class Reader:
    """Reads objects as the user of a kubeconfig that `Access` wrote.

    A read costs a fiftieth of the processor time of a kubectl.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._url: str = cluster["server"]
        tls = ssl.create_default_context(cadata=_decode(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:  # ssl reads only files
            pair.write(_decode(user["client-certificate-data"]) + _decode(user["client-key-data"]))
            pair.flush()
            tls.load_cert_chain(pair.name)
        # No proxy: the environment's may claim loopback too.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
        )

    def get(self, path: str) -> dict[str, Any]:
        """The object at a path. Raises LocalClusterError unless the answer is 200."""
        try:
            with self._opener.open(self._url + path, timeout=READ_TIMEOUT_S) as answer:
                found: dict[str, Any] = json.loads(answer.read())
        except OSError as error:
            raise LocalClusterError(f"GET {path}: {error}") from error
        return found


def _decode(data: str) -> str:
    return base64.b64decode(data).decode()


def _encode(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
