"""A pod's volumes as directories: their content (pure), and how it is written."""

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cluster.node.environment import (
    ConfigError,
    Objects,
    PodFacts,
    Reference,
    read_content,
)
from local_cluster.node.fields import KubeObject, UnknownField, field_value, resource_value

_CONTENT = {"secret", "configMap", "downwardAPI", "projected"}
_SECRET_MODE, _PUBLIC_MODE = 0o600, 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenWish:
    """A ServiceAccount token that a projected volume asks for."""

    path: str
    audience: str = ""  # empty: the API server's own
    expiration_s: int = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFile:
    content: bytes
    mode: int


Files = dict[str, VolumeFile]


def has_content(volume: KubeObject) -> bool:
    """Whether the volume's files come from the API server, and change with it."""
    return bool(_CONTENT & volume.keys())


def volume_references(volume: KubeObject) -> set[Reference]:
    """The Secrets and ConfigMaps that the volume shows."""
    found = set()
    for source in _sources(volume):
        if "secret" in source:
            found.add(("secrets", _name(source["secret"])))
        if "configMap" in source:
            found.add(("configmaps", _name(source["configMap"])))
    return found


def volume_tokens(volume: KubeObject) -> list[TokenWish]:
    """The tokens that the volume shows."""
    wishes = (source.get("serviceAccountToken") for source in _sources(volume))
    return [
        TokenWish(
            path=wish["path"],
            audience=wish.get("audience") or "",
            expiration_s=wish.get("expirationSeconds") or 3600,
        )
        for wish in wishes
        if wish
    ]


def _sources(volume: KubeObject) -> list[KubeObject]:
    if "projected" in volume:
        return volume["projected"].get("sources") or []
    return [volume]


def _name(source: KubeObject) -> str:
    # A secret volume says secretName, a projected secret says name.
    return str(source.get("secretName") or source.get("name") or "")


def build_files(
    volume: KubeObject, facts: PodFacts, objects: Objects, tokens: Mapping[TokenWish, str]
) -> Files:
    """The volume's files by relative path; raises ConfigError when something is missing."""
    files: Files = {wish.path: _secret(tokens[wish].encode()) for wish in volume_tokens(volume)}
    for source in _sources(volume):
        for kind, plural in (("secret", "secrets"), ("configMap", "configmaps")):
            if kind in source:
                files |= _object_files(source[kind], (plural, _name(source[kind])), objects)
        files |= _downward_files(source.get("downwardAPI") or {}, facts)
    return files


def _secret(content: bytes) -> VolumeFile:
    return VolumeFile(content=content, mode=_SECRET_MODE)


def _object_files(source: KubeObject, reference: Reference, objects: Objects) -> Files:
    found = objects.get(reference)
    if found is None:
        if source.get("optional"):
            return {}
        raise ConfigError(f'{reference[0].removesuffix("s")} "{reference[1]}" not found')
    mode = _SECRET_MODE if reference[0] == "secrets" else _PUBLIC_MODE
    content = read_content(reference, found)
    items = source.get("items") or [{"key": key, "path": key} for key in content]
    missing = [item["key"] for item in items if item["key"] not in content]
    if missing and not source.get("optional"):
        raise ConfigError(f"references non-existent {reference[0]} key: {missing[0]}")
    return {
        item["path"]: VolumeFile(content=content[item["key"]], mode=mode)
        for item in items
        if item["key"] in content
    }


def _downward_files(source: KubeObject, facts: PodFacts) -> Files:
    return {
        item["path"]: VolumeFile(content=_downward(item, facts).encode(), mode=_PUBLIC_MODE)
        for item in source.get("items") or []
    }


def _downward(item: KubeObject, facts: PodFacts) -> str:
    try:
        if "fieldRef" in item:
            return field_value(facts.pod, item["fieldRef"]["fieldPath"], facts.addresses)
        return resource_value(facts.pod, {}, item["resourceFieldRef"], facts.allocatable)
    except (UnknownField, ValueError) as error:
        raise ConfigError(str(error)) from error


def plain_directory(volume: KubeObject, directory: Path) -> Path:
    """The directory of a volume without content; raises ConfigError for an unknown kind."""
    if "hostPath" in volume:
        return Path(volume["hostPath"]["path"])
    if "emptyDir" in volume or "ephemeral" in volume:
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    kinds = ", ".join(key for key in volume if key != "name")
    raise ConfigError(f'volume "{volume["name"]}": this node has no volumes of the kind {kinds}')


def write_volume(directory: Path, files: Files) -> bool:
    """Make the directory show exactly `files`, all at once; False if it already did.

    Files are links into `..data`, itself a link that is replaced in one step.
    """
    current = directory / "..data"
    if current.exists() and _read_tree(current) == {
        path: one.content for path, one in files.items()
    }:
        return False
    fresh = directory / f"..{time.time_ns()}"
    for path, file in files.items():
        _write_file(fresh / path, file)
    fresh.mkdir(parents=True, exist_ok=True)
    before = current.resolve() if current.is_symlink() else None
    _replace_link(current, fresh.name)
    _link_names(directory, {Path(path).parts[0] for path in files})
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    return True


def _read_tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.resolve().rglob("*") if path.is_file())
    return {str(path.relative_to(root.resolve())): path.read_bytes() for path in files}


def _write_file(path: Path, file: VolumeFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file.mode)
    with os.fdopen(descriptor, "wb") as target:
        target.write(file.content)


def _replace_link(link: Path, target: str) -> None:
    fresh = link.with_name(link.name + "_tmp")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)


def _link_names(directory: Path, names: set[str]) -> None:
    for old in directory.iterdir():
        if old.is_symlink() and not old.name.startswith("..") and old.name not in names:
            old.unlink()
    for name in names:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
