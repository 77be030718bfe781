"""What a Python source file holds, counted with `ast`; and these counts as text for Redis."""

import ast
import hashlib
import json
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what `ast.parse` raises


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    """One file, counted. What cannot be parsed has lines and a digest, and an error."""

    lines: int = 0
    functions: int = 0
    async_functions: int = 0
    classes: int = 0
    imports: int = 0  # names imported: `from a import b, c` is two
    digest: str = ""  # SHA-256 of the file; empty when it cannot be read
    error: str | None = None  # kind and text of the error; None: counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over files."""

    files: int = 0
    lines: int = 0
    functions: int = 0
    async_functions: int = 0
    classes: int = 0
    imports: int = 0


def try_to_count(path: Path) -> FileCounts:
    """The counts of the file; one that cannot be read or parsed is counted as such, not raised."""
    try:
        source = path.read_bytes()
    except OSError as error:
        return FileCounts(error=_describe(error))
    try:
        return count_source(source)
    except UNPARSABLE as error:
        return replace(_measure(source), error=_describe(error))


def count_source(source: bytes) -> FileCounts:
    """The counts of a file of this content. Raises one of UNPARSABLE when it does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes, in other people's code
        tree = ast.parse(source)
    kinds = [(type(node), node) for node in ast.walk(tree)]
    imports = sum(
        len(node.names) for _, node in kinds if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return replace(
        _measure(source),
        functions=sum(kind is ast.FunctionDef for kind, _ in kinds),
        async_functions=sum(kind is ast.AsyncFunctionDef for kind, _ in kinds),
        classes=sum(kind is ast.ClassDef for kind, _ in kinds),
        imports=imports,
    )


def _measure(source: bytes) -> FileCounts:
    return FileCounts(lines=len(source.splitlines()), digest=hashlib.sha256(source).hexdigest())


def _describe(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else getattr(error, "msg", str(error))
    return f"{type(error).__name__}: {text}"


def add_up(counts: Iterable[FileCounts]) -> Totals:
    """The sums of these files."""
    them = list(counts)
    return Totals(
        files=len(them),
        lines=sum(one.lines for one in them),
        functions=sum(one.functions for one in them),
        async_functions=sum(one.async_functions for one in them),
        classes=sum(one.classes for one in them),
        imports=sum(one.imports for one in them),
    )


def render_counts(counts: FileCounts) -> str:
    """JSON; the same counts give the same text."""
    return json.dumps(asdict(counts), sort_keys=True)


def parse_counts(text: str | bytes) -> FileCounts:
    """The inverse of `render_counts`. Raises ValueError or TypeError for any other text."""
    return FileCounts(**json.loads(text))
