"""What `pelops acl` prints can be pasted into redis-cli, whatever the names hold."""

import contextlib
import io

from hypothesis import given
from hypothesis import strategies as st

from pelops.cli.main import main
from pelops.domain.naming import derive_keys
from pelops.redis_streams.access import UserRole, acl_rules
from tests.properties.strategies import NAME

ODD = st.text(alphabet="\"'\\ \t\n\x07a*é>{}", min_size=1, max_size=8)


def split_arguments(line: bytes) -> list[bytes]:
    """The words of a line as redis-cli reads it (sdssplitargs)."""
    words, word, at, quote = [], b"", 0, b""
    started = False
    while at < len(line):
        char = line[at : at + 1]
        if quote == b'"' and char == b"\\":
            word, at = (
                word + unescape(line[at + 1 : at + 4]),
                at + (4 if line[at + 1] == 120 else 2),
            )
            continue
        if quote:
            if char == quote:
                quote = b""
            else:
                word += char
        elif char.isspace() or char == b"\0":
            if started:
                words.append(word)
            word, started = b"", False
            at += 1
            continue
        elif char in (b'"', b"'"):
            quote = char
        else:
            word += char
        started = True
        at += 1
    assert not quote, "unbalanced quotes"
    return [*words, word] if started else words


def unescape(after: bytes) -> bytes:
    """What a backslash within double quotes stands for."""
    if after[:1] == b"x":
        return bytes([int(after[1:3], 16)])
    known = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
    return known.get(after[:1], after[:1])


@given(NAME | ODD, NAME | ODD, st.sampled_from(list(UserRole)))
def test_an_acl_line_says_to_redis_cli_what_was_meant(
    stream: str, group: str, role: UserRole
) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["acl", f"--stream={stream}", f"--group={group}", "--role", role.value])
    line = out.getvalue().removesuffix("\n")
    assert "\n" not in line
    words = [word.decode() for word in split_arguments(line.encode())]
    rules = acl_rules(derive_keys(stream, group), role)
    assert words == ["ACL", "SETUSER", "pelops", "on", ">PASSWORD", *rules]
