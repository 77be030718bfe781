"""Build the documentation site: `python -m tools.docs_site build|version`.

- build: writes build/docs-pages from docs/, then build/site with Zensical in strict mode. Exits 1
  when a link, an anchor or a navigation entry leads nowhere, a page loads something from another
  host, or an ordered list has only one item.
- version: builds the site with a selector of versions in the header of each page. Adds it to a
  directory of versions, each in a directory of its own, with the versions.json that the selector
  reads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.docs_site.links import find_problems
from tools.docs_site.navigation import find_navigation_problems, render_settings
from tools.docs_site.pages import write_pages
from tools.docs_site.versions import add_version

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build" / "docs-pages"
SETTINGS = ROOT / "build" / "mkdocs.yml"
SITE = ROOT / "build" / "site"


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs_site",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    build, version = commands.add_parser("build"), commands.add_parser("version")
    for one in (build, version):
        one.add_argument(
            "--zensical", default="zensical", help="the program (default: on the PATH)"
        )
    version.add_argument("name", help="for example 0.1")
    version.add_argument("--into", type=Path, required=True, help="directory of all versions")
    version.add_argument("--alias", default="latest", help="second name (default: latest)")
    given = parser.parse_args(argv)
    if given.command == "build":
        return _build(given.zensical, None)
    code = _build(given.zensical, given.alias)
    if code == 0:
        add_version(SITE, given.into, given.name, given.alias)
    return code


def _build(zensical: str, default_version: str | None) -> int:
    write_pages(ROOT, PAGES)
    settings = render_settings(ROOT, default_version=default_version)
    SETTINGS.write_text(settings, encoding="utf-8")
    command = [zensical, "build", "--strict", "--clean", "--config-file", str(SETTINGS)]
    built = subprocess.run(command, cwd=ROOT, check=False)
    if built.returncode:
        return built.returncode
    problems = [*find_navigation_problems(ROOT), *find_problems(SITE)]
    for problem in problems:
        print(problem)
    pages = len(list(SITE.rglob("*.html")))
    print(f"{SITE.relative_to(ROOT)}: {pages} pages, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
