"""The texts in a file: what users read, and what maintainers read, each with its place."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import yaml

from tools.prose.rules import may_break_glossary


class Kind(Enum):
    """Who reads a text, and which rules hold for it."""

    SOURCE = auto()  # comments and strings for maintainers: the glossary alone
    PLAIN_SOURCE = auto()  # docstrings and comments in Python and Lua: all rules
    USER = auto()
    METRIC_HELP = auto()
    FIELD_DESCRIPTION = auto()


@dataclass(frozen=True)
class Text:
    """One paragraph, message or description. What was code in it stands as one white bullet."""

    line: int
    words: str
    kind: Kind = Kind.USER


# Files whose messages users read. The operator's are collected in docs/reference/messages.md.
_USER_MESSAGES: Final = re.compile(
    r"(demo|operator/pyspark_redis_streams|operator/pelops/(cli|pipeline|worker)|tools/dashboards)/"
)
_DIRECTIVE: Final = re.compile(r"#\s*(noqa|type:|fmt:|!)")
_CODE: Final = "\N{WHITE BULLET}"
_CODE_SPAN: Final = re.compile(r"``[^`]*``|`[^`]*`")
_METRIC_CLASSES: Final = re.compile(r"(Counter|Gauge|Histogram|Summary|Info)(MetricFamily)?$")
_METRIC_TABLES: Final = re.compile(r"_(COUNTERS|GAUGES|HISTOGRAMS|METRICS)$")
_SENTENCE: Final = re.compile(r"(?:[a-z]+[ ,;:.]+){2}[a-z]", re.IGNORECASE)
_SQL: Final = re.compile(r"\b(SELECT|CASE WHEN|coalesce\()|\bOVER \(|\b(STRING|BIGINT)\b, ")


def find_texts(file: str, source: str) -> Iterator[Text]:
    """Yield the texts of one file, by the ending of its name."""
    if file.endswith(".py"):
        yield from find_python_texts(file, source)
    elif file.endswith(".lua"):
        yield from _find_lua_comments(source)
        yield from _find_lua_headers(source)
    elif file.endswith(".yaml") and file.startswith("crds/"):
        yield from find_field_descriptions(source)
    elif file.endswith(".yaml"):
        yield from _find_yaml_comments(source)
    elif file.endswith(".html"):
        yield from _find_template_texts(source)
    elif file.endswith("Makefile"):
        yield from _find_make_texts(source)
    else:
        yield from find_markdown_texts(source)


def mask_code(text: str) -> str:
    """Put one white bullet in place of each code span, and keep the lines."""
    return _CODE_SPAN.sub(lambda found: _CODE + "\n" * found.group().count("\n"), text)


# Markdown


_FENCE: Final = re.compile(r"\s*(```|~~~)")
_BLOCK_START: Final = re.compile(r"\s*([-*+]|\d+[.)])\s+|\s*#+\s+|\s*>\s?")
_ADMONITION: Final = re.compile(r"\s*[!?]{3}\+?\s+\w+")
_LINK: Final = re.compile(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])")
_ADDRESS: Final = re.compile(r"<?https?://\S+")
_TAG: Final = re.compile(r"<!--.*?-->|</?[a-zA-Z][^>]*>|\{[:#.][^}]*\}", re.DOTALL)


def find_markdown_texts(source: str) -> Iterator[Text]:
    """Yield headings, paragraphs, items of lists and cells of tables; no code."""
    lines = _blank_code_blocks(source).split("\n")
    block: list[str] = []
    start = 0
    for number, line in enumerate([*lines, ""], 1):
        is_row = line.lstrip().startswith("|")
        begins = _BLOCK_START.match(line)
        titled = _ADMONITION.match(line)
        if block and (is_row or begins or titled or not line.strip()):
            yield from _to_texts(start, "\n".join(block))
            block = []
        if is_row:
            for cell in re.split(r"(?<!\\)\|", _CODE_SPAN.sub(_CODE, line)):
                yield from _to_texts(number, cell)
        elif titled:
            yield from _to_texts(number, line[titled.end() :])
        elif line.strip():
            start = start if block else number
            block.append(line[begins.end() :] if begins else line)


def _to_texts(line: int, block: str) -> Iterator[Text]:
    words = _LINK.sub(lambda found: found.group(1), mask_code(block))
    words = _TAG.sub("", _ADDRESS.sub(_CODE, words))
    if words.strip():
        yield Text(line, words)


def _blank_code_blocks(source: str) -> str:
    """Return the lines with empty ones in place of front matter, comments and fenced code."""
    lines = source.split("\n")
    fence = "---" if lines[0] == "---" else None
    kept = []
    for number, line in enumerate(lines):
        if number == 0 and fence:
            kept.append("")
        elif fence:
            kept.append("")
            fence = None if line.strip().startswith(fence) else fence
        elif found := _FENCE.match(line):
            fence = found.group(1)
            kept.append("")
        else:
            kept.append(line)
    return re.sub(
        r"<!--.*?-->",
        lambda found: "\n" * found.group().count("\n"),
        "\n".join(kept),
        flags=re.DOTALL,
    )


# Python


def find_python_texts(file: str, source: str) -> Iterator[Text]:
    """Yield comments, docstrings and strings; those that users read are of their own kinds."""
    if may_break_glossary(source):  # reading tokens is what takes long
        yield from _find_comments_and_strings(source)
    tree = ast.parse(source)
    for docstring in _find_docstrings(tree):
        yield from _split_docstring(docstring)
    yield from _find_comments(source)
    if _USER_MESSAGES.match(file) or "prometheus_client" in source:
        yield from _find_user_texts(file, tree)


def _find_user_texts(file: str, tree: ast.Module) -> Iterator[Text]:
    helps = {id(node): node for node in _find_metric_helps(tree)}
    for help_text in helps.values():
        yield Text(help_text.lineno, mask_code(_join(help_text)), Kind.METRIC_HELP)
    docstrings = {id(node) for node in _find_docstrings(tree)}
    if _USER_MESSAGES.match(file):
        for string in _find_strings(tree, helps.keys() | docstrings):
            words = _join(string)
            if _SENTENCE.search(words) and not _SQL.search(words):
                yield Text(string.lineno, mask_code(words))


def _find_comments_and_strings(source: str) -> Iterator[Text]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and _SENTENCE.search(token.string)
        ):
            yield Text(token.start[0], mask_code(token.string), Kind.SOURCE)


def _find_comments(source: str) -> Iterator[Text]:
    """Yield comments; those on successive lines of their own are one text."""
    words: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        line, is_whole_line = token.start[0], not token.line[: token.start[1]].strip()
        if words and not (is_whole_line and line == last + 1):
            yield Text(start, mask_code("\n".join(words)), Kind.PLAIN_SOURCE)
            words = []
        start = start if words else line
        words.append(token.string.lstrip("# "))
        last = line if is_whole_line else -1
    if words:
        yield Text(start, mask_code("\n".join(words)), Kind.PLAIN_SOURCE)


def _find_metric_helps(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the second argument of metrics, and the values of tables of helps."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[_, text, *_]):
                if _METRIC_CLASSES.search(name) and _is_text(text):
                    yield text
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(values=values)):
                if _METRIC_TABLES.search(name):
                    yield from filter(_is_text, values)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(values=values)):
                if _METRIC_TABLES.search(name):
                    yield from filter(_is_text, values)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _find_docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Module(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_])
                | ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_])
                | ast.AsyncFunctionDef(body=[ast.Expr(value=ast.Constant(value=str()) as text), *_])
            ):
                yield text


def _split_docstring(node: ast.Constant) -> Iterator[Text]:
    """Yield its paragraphs and items; examples are code."""
    words = re.sub(r"^\s*(>>>|\.\.\.).*$", "", str(node.value), flags=re.MULTILINE)
    words = re.sub(r"::\n((\n|    +.*\n?)+)", lambda found: "\n" * found.group().count("\n"), words)
    for text in find_markdown_texts(words):
        yield Text(node.lineno + text.line - 1, text.words, Kind.PLAIN_SOURCE)


def _find_strings(node: ast.AST, skipped: Set[int]) -> Iterator[ast.expr]:
    """Yield strings and formatted strings, each once and whole."""
    for child in ast.iter_child_nodes(node):
        if id(child) in skipped:
            continue
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.expr) and _is_text(child)):
            yield child
        else:
            yield from _find_strings(child, skipped)


def _join(node: ast.expr) -> str:
    """Return the words of a string; what is filled in stands as a white bullet."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    words = "".join(str(part.value) if isinstance(part, ast.Constant) else _CODE for part in parts)
    return re.sub(r"%[sdr]|\{\w*\}", _CODE, words)


# Lua, YAML, HTML and make


def _find_lua_comments(source: str) -> Iterator[Text]:
    header = _LUA_HEADER.match(source)
    body = header.group().count("\n") + 1 if header else 1
    for number, line in enumerate(source.split("\n"), 1):
        _, sign, comment = line.partition("--")
        if sign and not re.match(r"\s*(include:|KEYS|ARGV|READS|WRITES)", comment):
            yield Text(number, mask_code(comment), Kind.SOURCE)
            if number >= body:
                yield Text(number, mask_code(comment), Kind.PLAIN_SOURCE)


_LUA_HEADER: Final = re.compile(r"(?:--.*\n)+")
# How a script is declared, and what its keys and answers are: names in columns.
_LUA_DECLARED: Final = re.compile(r"include:|[A-Z]{4,}\b")


def _find_lua_headers(source: str) -> Iterator[Text]:
    """Yield the paragraphs at the head of a script; `docs/reference/scripts.md` shows the first."""
    header = _LUA_HEADER.match(source)
    words: list[str] = []
    start, has_cost = 1, False
    for number, line in enumerate([*(header.group().splitlines() if header else ()), ""], 1):
        comment = line.removeprefix("--").removeprefix(" ")
        is_column = comment.startswith(" ") and not has_cost
        begins = comment.startswith(("Costs", "Repeats", "Invariant"))
        if words and (begins or not comment or is_column or _LUA_DECLARED.match(comment)):
            yield Text(start, mask_code("\n".join(words)))
            words = []
        has_cost = comment.startswith("Costs") or (has_cost and comment.startswith(" "))
        if comment and not is_column and not _LUA_DECLARED.match(comment):
            start = start if words else number
            words.append(comment)


_YAML_COMMENT: Final = re.compile(r"(?P<code>.*?)(?:^|(?<=\s))#+ (?:-- )?(?P<words>.*)$")


def _find_yaml_comments(source: str) -> Iterator[Text]:
    """Yield comments; those on successive lines of their own are one text."""
    words: list[str] = []
    start = 1
    for number, line in enumerate([*source.split("\n"), ""], 1):
        found = _YAML_COMMENT.match(line)
        is_whole_line = found is not None and not found["code"].strip()
        if words and not is_whole_line:
            yield Text(start, mask_code("\n".join(words)))
            words = []
        if found is not None and is_whole_line:
            start = start if words else number
            words.append(found["words"])
        elif found is not None:
            yield Text(number, mask_code(found["words"]))


def find_field_descriptions(source: str) -> Iterator[Text]:
    """Yield the descriptions in CustomResourceDefinitions."""
    for document in yaml.compose_all(source, Loader=yaml.CSafeLoader):
        yield from _walk_yaml(document)


def _walk_yaml(node: Any) -> Iterator[Text]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "description" and isinstance(value, yaml.ScalarNode):
                line = value.start_mark.line + 1
                yield Text(line, mask_code(value.value), Kind.FIELD_DESCRIPTION)
            else:
                yield from _walk_yaml(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _walk_yaml(item)


_TEMPLATE_CODE: Final = re.compile(r"\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_TEMPLATE_TAG: Final = re.compile(r"<(style|script|svg)\b.*?</\1>|</?[a-zA-Z!][^>]*>", re.DOTALL)
_TEMPLATE_VALUE: Final = re.compile(r"\{\{.*?\}\}", re.DOTALL)


def _find_template_texts(source: str) -> Iterator[Text]:
    def blank(found: re.Match[str]) -> str:
        return "\f" + "\n" * found.group().count("\n")

    words = _TEMPLATE_CODE.sub(blank, source)
    words = _TEMPLATE_TAG.sub(blank, words)
    line = 1
    for part in _TEMPLATE_VALUE.sub(_CODE, words).split("\f"):
        if part.strip():
            yield Text(line, part)
        line += part.count("\n")


def _find_make_texts(source: str) -> Iterator[Text]:
    for number, line in enumerate(source.split("\n"), 1):
        for found in re.finditer(r'## (.+)$|echo "([^"]+)"', line):
            yield Text(number, found.group(1) or found.group(2))
