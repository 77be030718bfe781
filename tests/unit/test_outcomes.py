"""Did it happen? What each error of Redis and of the connection means."""

import logging
import socket
import ssl

import pytest
from redis import exceptions

from pelops.errors import (
    AddressNotAllowed,
    AuthenticationFailed,
    CredentialsNotAllowed,
    CrossSlot,
    InvalidReply,
    InvalidSpec,
    NoSuchGroup,
    NoSuchStream,
    NotServing,
    OutcomeUnknown,
    OutOfMemory,
    PermissionDenied,
    RedisError,
    RedisUnavailable,
    SlotMigrating,
    UnknownRefusal,
    UnsupportedServer,
    WritesRefused,
    WrongType,
)
from pelops.redis_core.errors import (
    common_kind,
    describe_failure,
    is_passing,
    is_refusal,
    translate_failure,
    translate_reply,
)


def parsed(text: str) -> Exception:
    """The exception that redis-py makes of an error on the wire."""
    from redis.connection import DefaultParser

    error: Exception = DefaultParser.parse_error(text)  # type: ignore[no-untyped-call]
    return error


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", NotServing),
        ("BUSY Redis is busy running a script.", NotServing),
        ("READONLY You can't write against a read only replica.", WritesRefused),
        ("READONLY You can't write script: ab12, on @user_script:9.", WritesRefused),
        ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory),
        ("NOREPLICAS Not enough good replicas to write.", WritesRefused),
        ("MISCONF Errors writing to the AOF file", WritesRefused),
        ("MASTERDOWN Link with MASTER is down", NotServing),
        ("TRYAGAIN Multiple keys request during rehashing of slot", SlotMigrating),
        ("CLUSTERDOWN The cluster is down", NotServing),
        ("MOVED 3999 127.0.0.1:6381", RedisUnavailable),
        ("ERR max number of clients reached", NotServing),
        ("WRONGPASS invalid username-password pair or user is disabled.", AuthenticationFailed),
        ("NOAUTH Authentication required.", AuthenticationFailed),
        ("NOPERM User x has no permissions to run the 'xadd' command", PermissionDenied),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", WrongType),
        ("NOGROUP No such key 's' or consumer group 'g'", NoSuchGroup),
        ("CROSSSLOT Keys in request don't hash to the same slot", CrossSlot),
        ("ERR Script attempted to access a non local key in a cluster node", CrossSlot),
        ("ERR unknown command 'XNACK', with args beginning with: 'pay'", UnsupportedServer),
        ("ERR unknown subcommand 'SLOTS'. Try CLUSTER HELP.", UnsupportedServer),
        ("ERR Unknown Redis command called from script", UnsupportedServer),
        ("ERR DB index is out of range", InvalidSpec),
        ("ERR SELECT is not allowed in cluster mode", InvalidSpec),
        ("ERR something new", UnknownRefusal),
    ],
)
def test_an_answer_to_a_write_is_sorted(answer: str, kind: type[Exception]) -> None:
    error = translate_reply(parsed(answer), command="EVALSHA", key="orders", writes=True)
    assert type(error) is kind
    assert "pay" not in str(error)


def test_an_unknown_refusal_of_a_read_leaves_nothing_in_doubt() -> None:
    error = translate_reply(parsed("ERR new"), command="XLEN", key="s", writes=False)
    assert type(error) is RedisError


@pytest.mark.parametrize(
    ("answer", "command", "lacking"),
    [
        ("ERR unknown command 'XAUTOCLAIM', with args", "XAUTOCLAIM", "the command XAUTOCLAIM"),
        ("ERR unknown command `EVALSHA`, with args", "observe_group", "the command EVALSHA"),
        ("ERR Unknown Redis command called from script script: f", "observe_group",
         "a command of the script observe_group.lua"),
    ],
)  # fmt: skip
def test_a_command_that_the_server_does_not_support_is_named(
    answer: str, command: str, lacking: str
) -> None:
    error = translate_reply(parsed(answer), command=command, key="s", writes=False)
    assert type(error) is UnsupportedServer
    assert str(error) == f"this Redis does not support {lacking}"


@pytest.mark.parametrize(
    ("answer", "command", "key"),
    [
        ("NOPERM User x has no permissions to run the 'xgroup|create' command",
         "xgroup|create", None),
        ("NOPERM this user has no permissions to run the 'evalsha' command", "evalsha", None),
        ("ERR ACL failure in script: User x has no permissions to run the 'time' command "
         "script: 57f0, on @user_script:5.", "time", None),
        ("NOPERM No permissions to access a key", None, None),
        ("ERR The user executing the script can't run this command or subcommand script: 57f0, "
         "on @user_script:5.", None, None),
        ("ERR The user executing the script can't access at least one of the keys mentioned in the "
         "command arguments script: 57f0, on @user_script:5.", None, None),
    ],
)  # fmt: skip
def test_a_forbidden_command_is_named_where_redis_names_it(
    answer: str, command: str | None, key: str | None
) -> None:
    error = translate_reply(parsed(answer), command="EVALSHA", key="s", writes=True)
    assert isinstance(error, PermissionDenied)
    assert (error.command, error.key) == (command, key)
    assert "add the rules that `pelops acl` prints" in str(error)


@pytest.mark.parametrize(
    ("sent", "writes", "kind"),
    [
        (False, False, RedisUnavailable),
        (False, True, RedisUnavailable),
        (True, False, RedisUnavailable),
        (True, True, OutcomeUnknown),
    ],
)
def test_only_a_write_that_was_sent_leaves_the_outcome_unknown(
    sent: bool, writes: bool, kind: type[Exception]
) -> None:
    cut = exceptions.ConnectionError("Connection closed by server.")
    assert type(translate_failure(cut, address="a:1", sent=sent, writes=writes)) is kind


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("LOADING Redis is loading the dataset in memory", NotServing),
        ("NOAUTH Authentication required.", AuthenticationFailed),
        ("ERR invalid password", AuthenticationFailed),
        ("ERR max number of clients reached", NotServing),
    ],
)
def test_a_refusal_that_ends_the_connection_is_still_a_refusal(
    answer: str, kind: type[Exception]
) -> None:
    error = translate_failure(parsed(answer), address="a:1", sent=True, writes=True)
    assert type(error) is kind


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("ERR no such key", NoSuchStream),
        ("ERR The XGROUP subcommand requires the key to exist. Note that", NoSuchStream),
        ("ERR -NOGROUP No such consumer group 'g' for key name 's' script: 57f0", NoSuchGroup),
        ("ERR No such consumer group 'g'", NoSuchGroup),
        ("ERR Operation against a key holding the wrong kind of value", WrongType),
    ],
)
def test_what_only_the_sentence_says_counts_for_a_read(answer: str, kind: type[Exception]) -> None:
    """A script that writes may have met it halfway."""
    read = translate_reply(parsed(answer), command="EVALSHA", key="orders", writes=False)
    assert type(read) is kind
    write = translate_reply(parsed(answer), command="EVALSHA", key="orders", writes=True)
    assert type(write) is UnknownRefusal


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        ("MOVED 3999 127.0.0.1:6381", True),
        ("ASK 3999 127.0.0.1:6381", True),
        ("TRYAGAIN Multiple keys request during rehashing of slot", True),
        ("CLUSTERDOWN The cluster is down", True),
        ("LOADING Redis is loading the dataset in memory", True),
        ("READONLY You can't write against a read only replica.", True),
        ("MASTERDOWN Link with MASTER is down", True),
        ("BUSY Redis is busy running a script.", True),
        ("UNBLOCKED client unblocked via CLIENT UNBLOCK", True),
        ("ERR max number of clients reached", True),
        ("OOM command not allowed when used memory > 'maxmemory'.", False),
        ("NOREPLICAS Not enough good replicas to write.", False),
        ("MISCONF Errors writing to the AOF file", False),
        ("NOPERM No permissions to access a key", False),
        ("ERR no such key", False),
    ],
)
def test_what_another_node_or_a_later_moment_would_not_answer(answer: str, passes: bool) -> None:
    assert is_refusal(parsed(answer)) or "clients" in answer
    assert is_passing(parsed(answer)) is passes


def test_a_connection_that_broke_is_no_refusal() -> None:
    assert not is_refusal(exceptions.ConnectionError("Connection closed by server."))
    assert not is_refusal(exceptions.TimeoutError("Timeout reading from socket"))


def test_credentials_that_redis_py_finds_refused_are_wrong() -> None:
    refused = exceptions.AuthenticationError("Invalid Username or Password")
    error = translate_failure(refused, address="a:1", sent=False, writes=False)
    assert type(error) is AuthenticationFailed


FOREIGN = "zq9-foreign"


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        FOREIGN,
        f"ERR {FOREIGN}",
        f"{FOREIGN.upper()} x",
        f"NOGROUP {FOREIGN}",
        f"ERR no such key {FOREIGN}",
        f"ERR No such consumer group {FOREIGN}",
        f"ERR unknown command '{FOREIGN}'",
        f"NOPERM User x has no permissions to run the '{FOREIGN}' command",
        f"NOPERM No permissions to access the '{FOREIGN}' key",
        f"WRONGTYPE {FOREIGN}",
        f"LOADING {FOREIGN}",
        f"WRONGPASS {FOREIGN}",
        f"CROSSSLOT {FOREIGN}",
        f"MOVED 1 {FOREIGN}:1",
    ],
)
def test_what_a_server_says_is_in_no_message(answer: str, writes: bool) -> None:
    error = translate_reply(parsed(answer), command="EVALSHA", key="orders", writes=writes)
    assert FOREIGN not in str(error).lower()
    assert FOREIGN not in str(vars(error)).lower()
    broken = translate_failure(parsed(answer), address="a:1", sent=True, writes=writes)
    assert FOREIGN not in str(broken).lower()


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__context__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exceptions.InvalidResponse(f"Protocol Error: b'{FOREIGN}'"), "does not speak Redis"),
        (exceptions.ConnectionError("Connection closed by server."), "connection was closed"),
        (exceptions.TimeoutError("Timeout"), "no answer in time"),
        (TimeoutError(), "no answer in time"),
        (ConnectionResetError(104, FOREIGN), "connection was closed"),
        (
            caused(exceptions.ConnectionError(FOREIGN), ConnectionRefusedError(111, FOREIGN)),
            "connection refused",
        ),
        (
            caused(exceptions.ConnectionError(FOREIGN), socket.gaierror(-2, FOREIGN)),
            "cannot be resolved",
        ),
        (OSError(113, FOREIGN), "no route"),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed"), "connection refused"),
        (ssl.SSLError(1, f"[SSL: {FOREIGN}]"), "the TLS handshake failed"),
        (ssl.SSLCertVerificationError(1, FOREIGN), "certificate is not accepted"),
        (ValueError(FOREIGN), "ValueError"),
    ],
)
def test_the_description_of_a_broken_connection_contains_no_foreign_text(
    error: Exception, words: str
) -> None:
    assert words in describe_failure(error)
    assert FOREIGN not in describe_failure(error)


def test_the_words_of_the_server_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="pelops.redis_core.errors"):
        translate_reply(parsed(f"ERR {FOREIGN}"), command="XLEN", key="s", writes=False)
    assert FOREIGN in caplog.text


@pytest.mark.parametrize(
    ("kinds", "kind"),
    [
        ([AddressNotAllowed, AddressNotAllowed], AddressNotAllowed),
        ([CredentialsNotAllowed], CredentialsNotAllowed),
        ([InvalidReply, InvalidReply], InvalidReply),
        ([InvalidReply, RedisUnavailable], RedisUnavailable),
        ([AddressNotAllowed, RedisUnavailable], RedisUnavailable),
        ([AddressNotAllowed, CredentialsNotAllowed], RedisUnavailable),
        ([], RedisUnavailable),
    ],
)
def test_servers_that_are_all_refused_make_one_refusal(
    kinds: list[type[Exception]], kind: type[Exception]
) -> None:
    assert common_kind(one("x") for one in kinds) is kind
