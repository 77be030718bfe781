"""The documents of a release: the bill of materials (CycloneDX 1.6) and the third-party notices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model import component as cyclonedx
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from tools.supply_chain.components import OURS, Component, license_texts, needed_by_extra

EXTRA = "pelops:extra"  # property: an extra of Pelops that needs the component
_RULE = "=" * 100


def render_bill_of_materials(version: str, components: Iterable[Component], epoch: int) -> str:
    """The bill of materials as JSON, the same for the same input.

    Args:
        version: of the release.
        components: each with the SHA-256 of every file of which one may be installed.
        epoch: seconds since 1970, the time that the document names.
    """
    ours = cyclonedx.Component(
        name=OURS,
        version=version,
        type=cyclonedx.ComponentType.APPLICATION,
        bom_ref=OURS,
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        purl=PackageURL.from_string(f"pkg:pypi/{OURS}@{version}"),
    )
    listed = list(components)
    made = {one.purl: _component(one) for one in listed}
    by_name = {one.name: made[one.purl] for one in listed if one.group is None}
    bom = Bom(
        components=made.values(),
        serial_number=uuid5(NAMESPACE_URL, f"{OURS}@{version}#{epoch}"),
        metadata=BomMetaData(component=ours, timestamp=datetime.fromtimestamp(epoch, UTC)),
    )
    extras = {None, *(extra for one in listed for extra in one.extras)}
    direct = {name for extra in extras for name in needed_by_extra(extra)}
    jars = [made[one.purl] for one in listed if one.group is not None]
    bom.register_dependency(ours, [*(by_name[name] for name in sorted(direct)), *jars])
    for one in listed:
        # What a package needs on other platforms only is not listed.
        needs = [by_name[name] for name in one.needs if name in by_name]
        bom.register_dependency(made[one.purl], needs)
    outputter = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return outputter.output_as_string(indent=2) + "\n"


def render_notices(components: Iterable[Component]) -> str:
    """The license of each component, with the texts that its authors require to be passed on."""
    listed = list(components)
    lines = [
        "Pelops runs with the packages below, each under its own licence. The wheel and the source",
        "archive contain none of them; the container images do.",
        "",
        *(f"{_title(one)}: {one.license}" for one in listed),
        "",
        "PySpark contains Apache Spark and the Java libraries that it needs; their licences are in",
        "pyspark/licenses. The jars hold theirs in META-INF. The images also have Debian packages,",
        "a JRE among them (GPL-2.0-only WITH Classpath-exception-2.0); their licences are in",
        "/usr/share/doc.",
    ]
    for one in listed:
        if one.group is None:
            lines.extend(_texts(one))
    return "\n".join(lines) + "\n"


def _component(one: Component) -> cyclonedx.Component:
    return cyclonedx.Component(
        name=one.name,
        group=one.group,
        version=one.version,
        type=cyclonedx.ComponentType.LIBRARY,
        bom_ref=one.purl,
        licenses=[LicenseFactory().make_from_string(one.license)],
        purl=PackageURL.from_string(one.purl),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in one.sha256],
        properties=[Property(name=EXTRA, value=extra) for extra in sorted(one.extras)],
    )


def _texts(one: Component) -> Iterator[str]:
    for name, text in license_texts(one.name):
        yield from ("", _RULE, f"{_title(one)}: {name}", _RULE, "", text)


def _title(one: Component) -> str:
    return f"{one.group}:{one.name} {one.version}" if one.group else f"{one.name} {one.version}"
