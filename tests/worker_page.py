"""The content of docs/worker/sdk.md, for the tests that check its claims."""

import re
from pathlib import Path
from typing import Final

PAGE: Final = (Path(__file__).parents[1] / "docs" / "worker" / "sdk.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text below this heading."""
    return re.split(r"^##+ ", PAGE.split(f"# {heading}\n")[1], flags=re.M)[0]


def blocks(heading: str, language: str | None = None) -> list[str]:
    """The code below this heading; of this language, or all of it."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", section(heading), flags=re.M | re.S)
    return [code for name, code in found if language in (name, None)]


def rows(heading: str) -> list[list[str]]:
    """The cells of all tables below this heading."""
    lines = [line for line in section(heading).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell: str) -> list[str]:
    """What stands as code in a cell."""
    return re.findall(r"`([^`]+)`", cell)
