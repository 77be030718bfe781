"""What the demo applies and prints: manifest, kubectl's row, summary."""

from pathlib import Path

import pytest
import yaml

from demo.corpus import Source
from demo.counting import FileCounts, count_source
from demo.declaration import MANIFEST, read_declarations, render_manifest
from demo.following import Line
from demo.notices import read_event
from demo.recovery import Letter, Move
from demo.summary import render_dead_letters, render_moves, render_summary
from demo.watching import split_table, without_ages
from pelops.api.group.scaling import ScalingMode
from pelops.api.group.stream_consumer_group import StreamConsumerGroup

pytestmark = pytest.mark.full

TABLE = """\
NAME       READY   OLDEST   DLQ   AGE
indexers   True             0     7s
"""
OTHER = "plain      False   2s       1     12s\n"


def test_an_empty_cell_of_kubectls_row_stays_in_its_column() -> None:
    header, cells, others = split_table(TABLE + OTHER)
    assert header == ["NAME", "READY", "OLDEST", "DLQ", "AGE"]
    assert cells == ["indexers", "True", "", "0", "7s"]
    assert others == ["plain", "False", "2s", "1", "12s"]


def test_growing_older_is_no_change() -> None:
    header, cells = split_table(TABLE)
    older = split_table(TABLE.replace("7s", "8s"))[1]
    assert without_ages(header, cells) == without_ages(header, older)
    assert without_ages(header, cells) != without_ages(header, [*cells[:3], "1", "7s"])


@pytest.mark.parametrize("root", ["/src", "/with space/and: colon # hash", '/quo"te', "/$HOME"])
def test_any_directory_can_hold_the_workers_code(root: str) -> None:
    manifest = render_manifest(
        MANIFEST.read_text(), redis_url="redis://localhost:6379", source_root=Path(root)
    )
    documents = list(yaml.safe_load_all(manifest))
    for document in documents[2:]:
        container = document["spec"]["template"]["spec"]["containers"][0]
        assert {"name": "PYTHONPATH", "value": root} in container["env"]
    assert documents[1]["stringData"] == {"url": "redis://localhost:6379"}


def test_the_manifest_declares_what_the_demo_goes_by() -> None:
    manifest = render_manifest(MANIFEST.read_text(), redis_url="", source_root=Path("/"))
    scaled, fixed = [
        StreamConsumerGroup.model_validate(document)
        for document in list(yaml.safe_load_all(manifest))[2:]
    ]
    first, second = declarations = read_declarations(manifest)
    for declaration, parsed in zip(declarations, (scaled, fixed), strict=True):
        assert declaration.stream == parsed.spec.stream
        assert declaration.group == declaration.name == parsed.metadata.name
        assert declaration.namespace == parsed.metadata.namespace
    assert scaled.spec.scaling is not None
    assert scaled.spec.scaling.mode is ScalingMode.AUTO
    limits = (scaled.spec.scaling.min_replicas, scaled.spec.scaling.max_replicas)
    assert (first.least, first.most) == limits
    assert fixed.spec.scaling is None
    assert second.least == second.most == fixed.spec.replicas


def test_a_pod_belongs_to_the_group_whose_workers_it_is_one_of() -> None:
    manifest = render_manifest(MANIFEST.read_text(), redis_url="", source_root=Path("/"))
    for declaration in read_declarations(manifest):
        own = f"{declaration.name}-workers-55b8dbf976-thv47"
        owners = [one.name for one in read_declarations(manifest) if one.owns(f"{own}:uid")]
        assert owners == [declaration.name]


def test_the_manifest_holds_no_path_of_this_machine() -> None:
    assert str(Path(__file__).parents[2]) not in MANIFEST.read_text()


def test_the_summary_has_a_row_for_each_source_and_one_for_all() -> None:
    paths = (Path("/a.py"), Path("/b.py"))
    sources = [
        Source(label=label, found=1, every=1, paths=(path,))
        for label, path in zip(("one", "two"), paths, strict=True)
    ]
    results = {"/a.py": count_source(b"def f(): ...\n" * 1200), "/b.py": count_source(b"x = 1\n")}
    header, one, two, total = render_summary(sources, results).splitlines()
    assert header.split()[:3] == ["files", "lines", "functions"]
    assert one.split() == ["one", "1", "1,200", "1,200", "0", "0", "0"]
    assert two.split() == ["two", "1", "1", "0", "0", "0", "0"]
    assert total.split() == ["total", "2", "1,201", "1,200", "0", "0", "0"]


def test_each_dead_letter_is_reported_with_what_python_says_of_the_file() -> None:
    letter = Letter(path="/lib/b/x.py", original_id="", reason="Why", error="", retry_count=3)
    expected = {"/lib/b/x.py": FileCounts(error="SyntaxError: " + "no " * 50)}
    header, row = render_dead_letters([letter], expected).splitlines()
    assert header.split()[:3] == ["file", "failed", "attempts"]
    assert row.split()[:4] == ["b/x.py", "3", "Why", "SyntaxError:"]
    assert row.endswith("...")
    assert render_dead_letters([letter], {}).splitlines()[1].split() == ["b/x.py", "3", "Why"]


def test_copies_are_counted_without_dead_letters() -> None:
    moves = [
        Move(
            kind=kind,
            entry_id="1-1",
            original_id="1-1",
            consumer="c",
            delivered_ms=0,
            moved_ms=0,
            copied_ms=0,
            attempts=0,
        )
        for kind in ("requeued", "requeued", "dead-lettered")
    ]
    reported = render_moves(moves, [5, 1_200])
    assert reported.split()[0] == "2"
    assert "all within 1,200 ms" in reported
    assert render_moves([], []).split()[0] == "0"


@pytest.mark.parametrize("reason", ["Requeued", "ScaledUp", "ScaledDown"])
def test_new_events_of_recovery_and_scaling_are_printed(reason: str) -> None:
    text = "{}   Normal   {}   Requeued 7 entries of a: b"
    reported = read_event(Line(text=text.format("ADDED", reason), came_ms=0))
    assert reported is not None
    assert reported.endswith("Requeued 7 entries of a: b")
    for kind, other in (("MODIFIED", reason), ("ADDED", "Ready")):
        assert read_event(Line(text=text.format(kind, other), came_ms=0)) is None
    assert read_event(Line(text="No resources found", came_ms=0)) is None
