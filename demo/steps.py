"""What the demo does, step by step, with the time that each step took the last time."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from local_cluster.progress import report


@dataclass(frozen=True, slots=True)
class StepText:
    """One step, for people."""

    name: str  # as the file of durations has it
    title: str


INSTALL = StepText("install", "Install what is missing")
CLUSTER = StepText("cluster", "Start a Kubernetes control plane, a node and Redis")
OPERATOR = StepText("operator", "Install the operator: kubectl apply -k")
GROUPS = StepText("groups", "Declare two consumer groups")
KILL = StepText("kill", "Add the entries, kill two workers of each group, recover what they held")
WORK = StepText("work", "Process all entries")
REDRIVE = StepText("redrive", "Scale to zero, repair the handler, and redrive the dead letters")
AUDIT = StepText("audit", "Audit every entry")
CHECK = StepText("check", "Check every claim against a direct computation")
STOP = StepText("stop", "Stop the cluster")
STEPS = (INSTALL, CLUSTER, OPERATOR, GROUPS, KILL, WORK, REDRIVE, AUDIT, CHECK, STOP)


@dataclass(kw_only=True)
class Steps:
    """The steps of one run. What each took is written to `file` when it has succeeded."""

    file: Path
    texts: tuple[StepText, ...]
    last: Mapping[str, float]  # seconds by name, of earlier runs
    took: dict[str, float] = field(default_factory=dict)

    @classmethod
    def open(cls, file: Path, *, without: Sequence[StepText] = ()) -> "Steps":
        """The steps of a run, some of which this run does not need."""
        texts = tuple(one for one in STEPS if one not in without)
        return cls(file=file, texts=texts, last=read_durations(file))

    @contextmanager
    def run(self, text: StepText) -> Iterator[None]:
        """Announce the step, and measure the block."""
        number = self.texts.index(text) + 1
        report(f"\n[{number}/{len(self.texts)}] {text.title}{self._describe_last(text)}")
        began = time.monotonic()
        yield
        self.took[text.name] = time.monotonic() - began
        write_durations(self.file, {**self.last, **self.took})

    def describe(self) -> str:
        """The table of all steps."""
        rows = [
            f"  {number}  {text.title}{self._describe_last(text)}"
            for number, text in enumerate(self.texts, start=1)
        ]
        return "\n".join(rows)

    def describe_last_total(self) -> str:
        """How long the last run took; empty when a step has never succeeded."""
        if any(text.name not in self.last for text in self.texts):
            return ""
        return f" (last time: {sum(self.last[text.name] for text in self.texts):.0f} s)"

    def _describe_last(self, text: StepText) -> str:
        seconds = self.last.get(text.name)
        return "" if seconds is None else f" (last time: {seconds:.0f} s)"


def read_durations(file: Path) -> dict[str, float]:
    """Seconds by step; empty without a file, or when it cannot be parsed."""
    try:
        found = json.loads(file.read_text())
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_durations(file: Path, seconds: Mapping[str, float]) -> None:
    """Replace the file. Its loss would cost a line of output, so a full disk is ignored."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({name: round(one, 1) for name, one in seconds.items()}))
        fresh.replace(file)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
