"""Record commands in a terminal as a picture: `python -m tools.docs_site.recording SCRIPT PICTURE`.

Each line of SCRIPT is a command for bash, and runs in a shell of its own. The picture is an SVG
that shows each line when it appeared, with long pauses cut short, and everything at the end.
Viewers without animation show the end. Lines that begin with `#` are shown, those with `@` run
unseen.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LONGEST_PAUSE_S = 0.7
TYPING_S = 0.5  # before a command appears
COLUMNS = 118
_CHARACTER = 7.83
_LINE = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the terminal."""

    at_s: float  # since the beginning
    text: str
    is_command: bool = False


def main(argv: Sequence[str]) -> int:
    """Run the script and write the picture; return the exit code. Raises CalledProcessError."""
    script, picture = (Path(one) for one in argv)
    lines: list[Line] = []
    started = time.monotonic()
    for command in script.read_text("utf-8").splitlines():
        if command.startswith("#"):
            lines.append(Line(at_s=time.monotonic() - started, text=command, is_command=True))
            continue
        hidden = command.startswith("@")
        if not hidden:
            lines.append(
                Line(at_s=time.monotonic() - started, text="$ " + command, is_command=True)
            )
        for text in _run(command.removeprefix("@")):
            if not hidden:
                lines.append(Line(at_s=time.monotonic() - started, text=text))
    picture.write_text(render_picture(lines), encoding="utf-8")
    print("\n".join(line.text for line in lines))
    return 0


def _run(command: str) -> Iterator[str]:
    shell = ["bash", "-euo", "pipefail", "-c", command]
    environment = {**os.environ, "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(
        shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        for line in process.stdout or ():
            yield line.rstrip("\n").expandtabs()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def render_picture(lines: Sequence[Line]) -> str:
    """Return an SVG of a terminal in which the lines appear one after the other."""
    rows = [row for line in _shorten_pauses(lines) for row in _wrap(line)]
    height = 46 + _LINE * len(rows)
    width = round(32 + _CHARACTER * COLUMNS)
    drawn = "\n".join(
        f'<text class="{"command" if row.is_command else "output"}" x="16" '
        f'y="{48 + _LINE * number}" style="animation-delay:{row.at_s:.1f}s" '
        f'xml:space="preserve">{html.escape(row.text)}</text>'
        for number, row in enumerate(rows)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{html.escape("; ".join(row.text for row in rows if row.is_command))}</title>
<style>
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #c9d1d9;
  animation: appear 0.1s backwards; }}
.command {{ fill: #7ee787; font-weight: 600; }}
@keyframes appear {{ from {{ opacity: 0.15; }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none; }} }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/>\
<circle cx="56" cy="18" r="5" fill="#28c840"/>
{drawn}
</svg>
"""


def _shorten_pauses(lines: Sequence[Line]) -> Iterator[Line]:
    before, shown = 0.0, 0.0
    for line in lines:
        shown += min(line.at_s - before, LONGEST_PAUSE_S) + TYPING_S * line.is_command
        before = line.at_s
        yield Line(at_s=shown, text=line.text, is_command=line.is_command)


def _wrap(line: Line) -> Iterator[Line]:
    text = line.text or " "
    while text:
        cut = COLUMNS if len(text) > COLUMNS else len(text)
        if len(text) > COLUMNS and " " in text[40:COLUMNS]:
            cut = text.rindex(" ", 40, COLUMNS) + 1
        yield Line(at_s=line.at_s, text=text[:cut], is_command=line.is_command)
        text = text[cut:] and "    " + text[cut:]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
