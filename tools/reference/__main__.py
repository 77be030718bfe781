"""The program that writes the generated parts of the documentation.

`python -m tools.reference --write` writes them; `--check` exits 1 and shows the difference when a
page is not what the code says.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pelops.api.generated_files import write_or_check
from pelops.api.schema.kind_definitions import KINDS
from pelops.scripts.declaration import OPERATOR_SCRIPTS, WORKER_SCRIPTS
from tools.reference.alerts import render_alerts
from tools.reference.commands import (
    render_cli,
    render_common_flags,
    render_operator,
    render_output,
)
from tools.reference.environment import render_worker_variables
from tools.reference.fields import render_columns, render_fields, render_rules
from tools.reference.metrics import SECTIONS, render_metrics
from tools.reference.parts import Renderer, fill_pages
from tools.reference.scripts import render_scripts
from tools.reference.versions import render_versions

ROOT: Final = Path(__file__).parents[2]


def list_renderers() -> dict[str, Renderer]:
    """Return every part that some page must have, by its name."""
    renderers: dict[str, Renderer] = {
        "scripts of the operator": partial(render_scripts, OPERATOR_SCRIPTS),
        "scripts of workers": partial(render_scripts, WORKER_SCRIPTS),
        "commands of pelops": render_cli,
        "common flags of pelops": render_common_flags,
        "settings of the operator": render_operator,
        "variables of workers": render_worker_variables,
        "versions": render_versions,
        "alerts": render_alerts,
    }
    for section in SECTIONS:
        renderers[f"metrics, {section}"] = partial(render_metrics, section)
    for kind in KINDS:
        for part in ("spec", "status"):
            renderers[f"{kind.kind}, {part}"] = partial(render_fields, kind, part)
        renderers[f"{kind.kind}, rules"] = partial(render_rules, kind)
        renderers[f"{kind.kind}, columns"] = partial(render_columns, kind)
    return renderers


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit code."""
    pages = fill_pages(ROOT, list_renderers(), render_output)
    return write_or_check(pages, "python -m tools.reference", __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
