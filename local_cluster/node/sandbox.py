"""What the containers of one pod share: address, directories, volumes and environment."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster.node.addresses import PodAddresses
from local_cluster.node.api import Api
from local_cluster.node.environment import (
    PodFacts,
    build_command,
    build_environment,
    find_references,
)
from local_cluster.node.fields import KubeObject
from local_cluster.node.mounts import TOKEN_MOUNT, Mount, build_mounts, rewrite, rewrite_argument
from local_cluster.node.pod_object import PodObject
from local_cluster.node.process import Launch
from local_cluster.node.references import References
from local_cluster.node.settings import HOST_IP, NodeSettings
from local_cluster.node.tokens import PodTokens, build_kubeconfig, write_kubeconfig
from local_cluster.node.volumes import (
    build_files,
    has_content,
    plain_directory,
    volume_references,
    volume_tokens,
    write_volume,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What all pods of the node share."""

    settings: NodeSettings
    api: Api
    references: References
    addresses: PodAddresses
    allocatable: Mapping[str, str]


class Sandbox:
    """One pod's place on this machine."""

    def __init__(self, host: Host, pod: PodObject, pod_ip: str) -> None:
        self._object = pod
        self.pod_ip = pod_ip
        self.directory = host.settings.sandboxes / pod.uid
        self.logs = host.settings.sandboxes / f"{pod.namespace}_{pod.name}_{pod.uid}"
        self._host = host
        self._tokens = PodTokens(host.api, pod.newest)
        self._volumes: dict[str, Path] = {}

    @property
    def pod(self) -> KubeObject:
        """The newest version seen."""
        return self._object.newest

    @property
    def facts(self) -> PodFacts:
        addresses = {
            "status.podIP": self.pod_ip,
            "status.podIPs": self.pod_ip,
            "status.hostIP": HOST_IP,
            "status.hostIPs": HOST_IP,
        }
        return PodFacts(pod=self.pod, addresses=addresses, allocatable=self._host.allocatable)

    async def prepare(self) -> None:
        """Make the directories and volumes; raises ConfigError, ApiError or ApiUnavailable."""
        for directory in (self.logs, self.directory / "home"):
            directory.mkdir(parents=True, exist_ok=True)
        for volume in self._object.spec.get("volumes") or []:
            directory = self.directory / "volumes" / volume["name"]
            if has_content(volume):
                await self._write(volume, directory)
                self._volumes[volume["name"]] = directory
            else:
                self._volumes[volume["name"]] = plain_directory(volume, directory)

    async def refresh(self) -> None:
        """Bring volumes made of Secrets, ConfigMaps and tokens up to date; raises as `prepare`."""
        for volume in self._object.spec.get("volumes") or []:
            if has_content(volume) and volume["name"] in self._volumes:
                await self._write(volume, self._volumes[volume["name"]])

    @property
    def is_refreshable(self) -> bool:
        return any(map(has_content, self._object.spec.get("volumes") or []))

    async def _write(self, volume: KubeObject, directory: Path) -> None:
        namespace = self._object.namespace
        objects = await self._host.references.fetch(namespace, volume_references(volume))
        tokens = {wish: await self._tokens.get(wish) for wish in volume_tokens(volume)}
        directory.mkdir(parents=True, exist_ok=True)
        if write_volume(directory, build_files(volume, self.facts, objects, tokens)):
            self._write_kubeconfig(directory)

    def _write_kubeconfig(self, mounted: Path) -> None:
        if (mounted / "token").exists() and (mounted / "ca.crt").exists():
            url = self._host.api.endpoint.url
            namespace = self._object.namespace
            path = self.directory / f"{mounted.name}.kubeconfig"
            write_kubeconfig(path, build_kubeconfig(url, mounted, namespace))

    async def build_launch(self, container: KubeObject) -> Launch:
        """How to start the container now; raises ConfigError, ApiError or ApiUnavailable."""
        namespace = self._object.namespace
        objects = await self._host.references.fetch(namespace, find_references(container))
        values = self._service() | build_environment(container, self.facts, objects)
        mounts = build_mounts(container, self._volumes, values)
        for mount in mounts:
            if not mount.directory.exists():
                mount.directory.mkdir(parents=True)
        command = [rewrite_argument(part, mounts) for part in build_command(container, values)]
        temporary = self.directory / "tmp" / container["name"]
        temporary.mkdir(parents=True, exist_ok=True)
        environment = self._base(temporary) | self._kubeconfig(mounts)
        return Launch(
            command=command,
            environment=environment | {key: rewrite(one, mounts) for key, one in values.items()},
            directory=self._working_directory(container, mounts),
            temporary=temporary,
        )

    def _service(self) -> dict[str, str]:
        settings = self._host.settings
        return {
            "KUBERNETES_SERVICE_HOST": settings.api_host,
            "KUBERNETES_SERVICE_PORT": str(settings.api_port),
        }

    def _base(self, temporary: Path) -> dict[str, str]:
        return {
            "PATH": self._host.settings.path,
            "HOME": str(self.directory / "home"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(temporary),
            "HOSTNAME": self._object.name,
        }

    def _kubeconfig(self, mounts: tuple[Mount, ...]) -> dict[str, str]:
        for mount in mounts:
            if mount.path == TOKEN_MOUNT:
                return {"KUBECONFIG": str(self.directory / f"{mount.directory.name}.kubeconfig")}
        return {}

    def _working_directory(self, container: KubeObject, mounts: tuple[Mount, ...]) -> Path:
        wished = Path(rewrite(container.get("workingDir") or "", mounts))
        is_there = wished.is_absolute() and wished.is_dir()
        return wished if is_there else self.directory / "home"

    def remove(self) -> None:
        """Remove everything but the logs, of which the node keeps those of the last pods."""
        shutil.rmtree(self.directory, ignore_errors=True)
