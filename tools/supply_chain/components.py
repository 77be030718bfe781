"""The third-party parts that a release runs with: what they are, their license and their hashes.

Packages come from the metadata of the installed ones and from requirements/dev.txt, which pins
them; jars from requirements/jars.sha256.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.supply_chain.distributions import OPERATOR, PARTS

ROOT: Final = Path(__file__).parents[2]
OURS: Final = OPERATOR.name
# Extras that are for maintainers, and in no release.
MAINTAINERS: Final = frozenset({"dev"})
# By their license file, where the metadata have no SPDX license.
_LICENSES: Final = {
    "aiosignal": "Apache-2.0",
    "google-re2": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
    "py4j": "BSD-3-Clause",
}
# By group, from the POM or the license file in each jar.
_LICENSES_OF_JARS: Final = {
    "io.delta": "Apache-2.0",
    "org.apache.hadoop": "Apache-2.0",
    "org.reactivestreams": "MIT-0",
    "org.wildfly.openssl": "Apache-2.0",
    "software.amazon.awssdk": "Apache-2.0",
    "software.amazon.eventstream": "Apache-2.0",
    "software.amazon.s3.analyticsaccelerator": "Apache-2.0",
}
_PIN: Final = re.compile(
    r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;\\]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE
)
_JAR: Final = re.compile(r"(?P<group>[^_]+)_(?P<name>.+)-(?P<version>\d[^-]*)\.jar")
_LICENSE_FILE: Final = re.compile(r"(LICEN[CS]E|NOTICE|COPYING)[^/]*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One package or jar."""

    name: str
    version: str
    license: str  # an SPDX expression
    sha256: tuple[str, ...]  # of each file in which it is published and may be installed
    extras: frozenset[str] = frozenset()  # of Pelops, that need it; all, if Pelops itself does
    needs: tuple[str, ...] = ()  # names of packages
    group: str | None = None  # of a jar: its Maven group

    @property
    def purl(self) -> str:
        """Its package URL."""
        if self.group is not None:
            return f"pkg:maven/{self.group}/{self.name}@{self.version}"
        return f"pkg:pypi/{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What a file of requirements says of a package."""

    version: str
    sha256: tuple[str, ...]


def read_pins(name: str) -> dict[str, Pin]:
    """The packages of requirements/<name>.txt, by their normalized names."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return {
        canonicalize_name(package): Pin(
            version=version, sha256=tuple(re.findall(r"sha256:([0-9a-f]{64})", rest))
        )
        for package, version, rest in _PIN.findall(text)
    }


def released_extras() -> list[str]:
    """The extras that users may install."""
    return sorted(set(_metadata(OURS, "Provides-Extra")) - MAINTAINERS)


def list_packages() -> list[Component]:
    """All packages of others that any extra of a release needs, directly or not, by name.

    Raises:
        ValueError: the license or a hash of a package is not known, or it has another version than
            is pinned.
    """
    wanted: dict[str, set[str]] = {}
    needs: dict[str, set[str]] = {}
    for extra in released_extras():
        for name, asked in _closure(extra):
            if name in PARTS:
                continue
            wanted.setdefault(name, set()).add(extra)
            needs.setdefault(name, set()).update(_needs(distribution(name), asked or None))
    pins = read_pins("dev")
    return [
        _package(name, frozenset(wanted[name]), tuple(sorted(needs[name])), pins.get(name))
        for name in sorted(wanted)
    ]


def list_jars() -> list[Component]:
    """The jars that the pipeline image has beside those of PySpark, by name.

    Raises:
        ValueError: the license of a jar is not known.
    """
    lines = (ROOT / "requirements" / "jars.sha256").read_text().splitlines()
    return [_jar(*reversed(line.split("  "))) for line in lines]


def license_texts(name: str) -> Iterator[tuple[str, str]]:
    """Name and text of each license file that a package was installed with."""
    found = distribution(name)
    for path in sorted(found.files or (), key=str):
        if _LICENSE_FILE.search(path.name) and ".dist-info" in path.parts[0]:
            yield path.name, path.read_text(encoding="utf-8").strip()


def needed_by_extra(extra: str | None) -> list[str]:
    """The third-party packages that an extra of Pelops names itself; None: that all extras need.

    The distributions of Pelops count as one.
    """
    asked = {(OURS, extra or "")} | {one for one in _closure(extra) if one[0] in PARTS}
    return sorted(
        {name for ours, more in asked for name in _needs(distribution(ours), more or None)}
        - set(PARTS)
    )


def parse_license(text: str) -> LicenseExpression | DisjunctiveLicense | None:
    """The license as an SPDX expression; None where the text cannot be parsed as one."""
    parsed = LicenseFactory().make_from_string(text)
    return None if isinstance(parsed, DisjunctiveLicense) and parsed.id is None else parsed


def _closure(extra: str | None) -> set[tuple[str, str]]:
    """All that an extra of Pelops needs, each with the extra of it that is asked for, or nothing.

    None: what is needed without any.
    """
    ours = distribution(OURS)
    left = [*_asked(ours, None), *(_asked(ours, extra) if extra else ())]
    seen = set(left)
    while left:
        name, asked = left.pop()
        more = set(_asked(distribution(name), asked or None)) - seen
        left.extend(more)
        seen |= more
    return seen


def _requirements(package: Distribution, extra: str | None) -> Iterator[Requirement]:
    for text in package.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None:
            if extra is None:
                yield requirement
        # Without an extra in its marker it belongs to no one of them.
        elif marker.evaluate({"extra": extra or ""}) and (extra is None or "extra" in str(marker)):
            yield requirement


def _needs(package: Distribution, extra: str | None) -> list[str]:
    return sorted({canonicalize_name(one.name) for one in _requirements(package, extra)})


def _asked(package: Distribution, extra: str | None) -> list[tuple[str, str]]:
    return [
        (canonicalize_name(one.name), asked)
        for one in _requirements(package, extra)
        for asked in ("", *sorted(one.extras))
    ]


def _package(
    name: str, extras: frozenset[str], needs: tuple[str, ...], pin: Pin | None
) -> Component:
    installed = distribution(name)
    if pin is None or not pin.sha256:
        raise ValueError(f"requirements/dev.txt has no hash of {name}: make locks")
    if pin.version != installed.version:
        raise ValueError(f"{name} is pinned to {pin.version}, {installed.version} is installed")
    return Component(
        name=name,
        version=pin.version,
        license=_license(name),
        sha256=pin.sha256,
        extras=extras,
        needs=needs,
    )


def _license(name: str) -> str:
    declared = [*_metadata(name, "License-Expression"), *_metadata(name, "License")]
    for text in [_LICENSES.get(name), *declared]:
        if text and parse_license(text) is not None:
            return text
    raise ValueError(
        f"the metadata of {name} name no licence of SPDX: read its licence file, and name it in"
        " tools/supply_chain/components.py"
    )


def _metadata(name: str, field: str) -> list[str]:
    return [str(value) for value in distribution(name).metadata.get_all(field) or ()]


def _jar(file: str, digest: str) -> Component:
    found = _JAR.fullmatch(file)
    if found is None or found["group"] not in _LICENSES_OF_JARS:
        raise ValueError(f"the licence of {file} is not known: tools/supply_chain/components.py")
    return Component(
        name=found["name"],
        version=found["version"],
        license=_LICENSES_OF_JARS[found["group"]],
        sha256=(digest,),
        extras=frozenset({"pipeline"}),
        group=found["group"],
    )
