"""The frame of the command line: parsing, what gets imported, exit codes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from argparse import Namespace

import pytest

from pelops.cli import command_line
from pelops.cli import main as cli
from pelops.cli.command_parser import CommandParser, find_examples
from pelops.cli.console import Console
from pelops.cli.errors import CommandFailed, ExitCode
from pelops.errors import InvalidSpec
from tests.unit.conftest import Install

HEAVY = {
    *("kubernetes", "redis", "pydantic", "yaml", "aiohttp", "kopf", "pyarrow"),
    *("asyncio", "logging", "ssl", "http.client", "unittest", "importlib.resources"),
}


def imported_by(*words: str) -> set[str]:
    """The modules that a command line imports, in a process of its own."""
    program = (
        "import contextlib, io, json, sys\n"
        "from pelops.cli.main import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main({list(words)!r})\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("words", [("--help",), ("__complete", ""), ("keys", "--help")])
def test_help_and_completion_import_no_package_and_no_other_command(words: tuple[str, ...]) -> None:
    modules = imported_by(*words)
    assert not modules & HEAVY
    commands = {name for name in modules if name.startswith("pelops.cli.commands.")}
    assert commands <= {"pelops.cli.commands.keys"}


@pytest.mark.parametrize("words", [("status",), ("status", "orders"), ("top", "--once")])
def test_commands_that_show_groups_import_no_package_and_no_network(
    words: tuple[str, ...], install: Install
) -> None:
    group = {"metadata": {"name": "orders", "namespace": "shop"}, "spec": {}}
    install("kubectl", f"echo '{json.dumps({**group, 'items': []})}'")
    modules = imported_by(*words)
    assert f"pelops.cli.commands.{words[0]}" in modules
    assert not modules & HEAVY


def test_every_command_has_a_module_with_arguments_and_a_help_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in command_line.COMMANDS:
        with pytest.raises(SystemExit) as ended:
            cli.main([command.name, "--help"])
        assert ended.value.code == 0
        assert command.help[1:] in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[Namespace]:
    """A command `probe` that asks the cluster, with a command `within` of its own; what it ran."""
    module = type(sys)("pelops.cli.commands.probe")
    ran: list[Namespace] = []

    def add_arguments(parser: CommandParser) -> None:
        within = parser.add_subparsers(required=True).add_parser("within")
        within.add_argument("name")
        within.add_argument("--fail")

    def run(arguments: Namespace, console: Console) -> int:
        ran.append(arguments)
        if arguments.fail == "package":
            import not_installed.at_all  # type: ignore[import-not-found] # noqa: F401
        if arguments.fail:
            raise FAILURES[arguments.fail]
        return ExitCode.SUCCESS

    module.add_arguments, module.run = add_arguments, run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    probe = command_line.CliCommand(name="probe", help="probe", section="Tests", asks_cluster=True)
    monkeypatch.setattr(command_line, "COMMANDS", (*command_line.COMMANDS, probe))
    return ran


FAILURES: dict[str, BaseException] = {
    "not-found": CommandFailed("orders not found", code=ExitCode.NOT_FOUND),
    "invalid": InvalidSpec("orders is invalid"),
    "os": OSError("no space left"),
    "interrupt": KeyboardInterrupt(),
}


@pytest.mark.parametrize(
    "line",
    [
        "-n shop -A --context=c probe within orders",
        "probe -n shop -A within orders --context c",
        "probe within -nshop -A orders --context=c",
    ],
)
def test_common_flags_stand_anywhere_in_the_line(line: str, command: list[Namespace]) -> None:
    cli.main(line.split())
    (arguments,) = command
    assert (arguments.namespace, arguments.all_namespaces, arguments.context) == ("shop", True, "c")
    assert arguments.name == "orders"


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        ("not-found", 3, "pelops: orders not found"),
        ("invalid", 1, "pelops: orders is invalid"),
        ("os", 1, "pelops: no space left"),
        ("interrupt", 130, ""),
        (
            "package",
            1,
            "pelops: `pelops probe`: the package not_installed is not installed. Install Pelops "
            "with the extra [cli]: https://pelops.dev/docs/latest/guides/command-line/",
        ),
    ],
)
@pytest.mark.usefixtures("command")
def test_a_failure_is_an_exit_code_and_a_sentence(
    failure: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["probe", "within", "orders", "--fail", failure])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out, printed.err.strip()) == (code, "", message)


@pytest.mark.parametrize(
    ("line", "name", "namespace"),
    [
        ("why orders 1-1 -n shop", "orders", "shop"),
        ("why orders -n shop 1-1", "orders", "shop"),
        ("why -n shop orders 1-1 --deep", "orders", "shop"),
        ("why --deep orders --redis-url redis://r 1-1 -nshop", "orders", "shop"),
        ("why 1-1", None, None),
        ("dlq show orders -o json 1-1", "orders", None),
        ("dlq show -o json orders --payload 1-1", "orders", None),
    ],
)
def test_flags_and_names_stand_in_any_order(
    line: str, name: str | None, namespace: str | None
) -> None:
    arguments = cli.parse(line.split())
    assert (arguments.name, getattr(arguments, "namespace", None)) == (name, namespace)
    assert "1-1" in (getattr(arguments, "id", ""), getattr(arguments, "entry", ""))


WHY = "usage: pelops why [NAME] ID|FIELD=VALUE [flags]"
SHOW = "usage: pelops dlq show NAME ID [flags]"
LOOKUP = (
    "usage: pelops audit lookup --archive PATH (--id ID | --root ID | --field KEY=VALUE) [flags]"
)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("why orders 1-1 2-2", WHY),
        ("why", WHY),
        ("dlq show orders", SHOW),
        ("dlq show orders 1-1 --letter", SHOW),
        ("keys", "usage: pelops keys --stream KEY --group NAME [flags]"),
        ("-n shop keys --stream s --group g", "keys does not have the flag --namespace"),
        ("audit lookup", LOOKUP),
        ("stauts", "there is no command stauts, did you mean status? See `pelops --help`"),
        ("dlq lst", "did you mean list?"),
        ("xyz", "there is no command xyz. See `pelops --help`"),
    ],
)
def test_a_wrong_line_is_answered_with_its_usage_or_the_command_that_was_meant(
    line: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split())
    assert ended.value.code == ExitCode.USAGE
    errors = capsys.readouterr().err
    assert errors.startswith("usage: ")
    assert answer in (errors.splitlines()[0] if answer.startswith("usage") else errors)


@pytest.mark.parametrize("words", [[], ["dlq"], ["audit"]])
def test_commands_without_a_word_print_their_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    printed = capsys.readouterr()
    assert (ended.value.code, printed.err) == (0, "")
    assert f"usage: {' '.join(['pelops', *words])} COMMAND [flags]" in printed.out


def list_commands() -> list[CommandParser]:
    """The parsers of all commands that do something."""
    parser = command_line.build_parser()
    for one in parser.commands.values():
        one.load()
    return [one for one in parser.walk() if not one.commands]


@pytest.mark.parametrize("parser", list_commands(), ids=lambda parser: parser.prog)
def test_help_describes_each_command_and_flag_and_has_examples_that_are_valid(
    parser: CommandParser,
) -> None:
    assert parser.description
    assert all(action.help for action in parser._actions)
    assert find_examples(parser)
    for example in find_examples(parser):
        words = shlex.split(example, comments=True)
        assert words[: len(parser.prog.split())] == parser.prog.split()
        ends = (at for at, word in enumerate(words) if word in {"|", ">"})
        cli.parse(words[1 : next(ends, None)])


def test_help_shows_each_flag_once_and_hides_internal_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["pending", "--help"])
    text = capsys.readouterr().out
    assert "--output, -o {text,wide,json,yaml}\n" in text
    assert "--in-pod" not in text
    assert "--kubeconfig, --color, -v: see `pelops --help`" in text
    with pytest.raises(SystemExit):
        cli.main(["doctor", "--help"])
    assert "--in-operator" not in capsys.readouterr().out


def test_examples_name_the_program_as_the_user_calls_it() -> None:
    parser = command_line.build_parser("kubectl pelops").commands["status"]
    parser.load()
    assert all(one.startswith("kubectl pelops status") for one in find_examples(parser))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/usr/bin/pelops", "pelops"),
        ("/home/jane/.krew/bin/kubectl-pelops", "kubectl pelops"),
        ("/x/operator/pelops/cli/__main__.py", "pelops"),
    ],
)
def test_help_shows_the_program_as_the_user_calls_it(path: str, name: str) -> None:
    assert cli.find_program_name(path) == name
    assert f"usage: {name} COMMAND" in command_line.build_parser(name).format_help()
