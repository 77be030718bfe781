"""What one node was started with."""

import sys
from dataclasses import dataclass
from pathlib import Path

HOST_IP = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    name: str
    state: Path
    light: bool = False
    bin_paths: tuple[Path, ...] = ()
    api_host: str = HOST_IP
    api_port: int = 443
    lease_s: float = 12
    renew_s: float = 3

    @property
    def max_pods(self) -> int:
        """A light pod costs no process, so a light node takes thousands."""
        return 2000 if self.light else 250

    @property
    def sandboxes(self) -> Path:
        """Where each running pod has a directory, named by its uid."""
        return self.state / "pods"

    @property
    def path(self) -> str:
        """The PATH of every container."""
        # Not resolved: the directory of a virtual environment's Python must stay that one.
        first = [Path(sys.executable).parent, *self.bin_paths]
        usual = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
        return ":".join([*(str(path) for path in first), *usual])
