"""Where servers come from: the user's directory, the machine, the cache, or an installation."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local_cluster.redis_servers import NoSuchServer, RedisBinaries, binaries, find_binaries
from local_cluster.redis_servers.versions import Wished


@pytest.fixture
def real() -> RedisBinaries:
    return find_binaries("8.6")


@pytest.fixture
def bare_machine(real: RedisBinaries, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No server on PATH, none named, an empty cache; the cache's path."""
    monkeypatch.delenv("PELOPS_REDIS_86", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("PELOPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "redis"


def link(program: RedisBinaries, folder: Path) -> Path:
    """A directory that holds the programs of a server."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in (program.server, program.cli):
        (folder / path.name).symlink_to(path)
    return folder


def install_by(*ways: Callable[[Wished, Path], None]) -> tuple[tuple[str, binaries.Way], ...]:
    return tuple((f"way {number}", way) for number, way in enumerate(ways, 1))


def test_a_directory_with_another_version_is_refused_by_name(
    real: RedisBinaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PELOPS_REDIS_70", str(real.server.parent))
    with pytest.raises(NoSuchServer, match=r"PELOPS_REDIS_70=.* holds no .* of Redis 7\.0"):
        find_binaries("7.0")


def test_without_any_way_the_error_says_what_to_do(bare_machine: Path) -> None:
    with pytest.raises(NoSuchServer) as failed:
        find_binaries("8.6")
    text = str(failed.value)
    assert "no apt-get" in text
    assert "set PELOPS_REDIS_86 to the directory" in text
    assert [path for path in bare_machine.iterdir() if path.is_dir()] == []


def test_of_many_who_ask_at_once_one_installs(
    real: RedisBinaries, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installs: list[Path] = []

    def install(_: Wished, prefix: Path) -> None:
        installs.append(prefix)
        time.sleep(0.2)  # the others meet a prefix that is not complete
        link(real, prefix / "bin")

    monkeypatch.setattr(binaries, "WAYS", install_by(install))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(find_binaries, ["8.6"] * 4))
    assert len(installs) == 1
    assert {binary.server for binary in found} == {bare_machine / "8.6" / "bin" / "redis-server"}
