"""`pelops completion`: scripts that complete command lines."""

from __future__ import annotations

import argparse
from typing import Final

from pelops.cli.command_parser import add_examples
from pelops.cli.console import Console
from pelops.cli.errors import ExitCode

_BASH: Final = """\
_pelops() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :*) [ "$line" = :4 ] && compopt +o default 2>/dev/null ;;
            *) COMPREPLY+=("${line%%$'\\t'*}") ;;
        esac
    done < <(pelops __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _pelops pelops
"""
_ZSH: Final = """\
#compdef pelops
_pelops() {
    local line
    local -a found
    for line in ${(f)"$(pelops __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
        case $line in
            :0) _files; return ;;
            :*) ;;
            *) found+=("${${line//:/\\\\:}/$'\\t'/:}") ;;
        esac
    done
    _describe pelops found
}
compdef _pelops pelops
"""
_FISH: Final = """\
function __pelops_complete
    set -l words (commandline -opc) (commandline -ct)
    pelops __complete $words[2..] 2>/dev/null | string match -v -r '^:'
end
complete -c pelops -f -a '(__pelops_complete)'
"""
# kubectl runs the program kubectl_complete-pelops that it finds on the PATH.
_KUBECTL: Final = """\
#!/bin/sh
exec kubectl pelops __complete "$@"
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "kubectl": _KUBECTL}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "shell",
        choices=list(_SCRIPTS),
        help="shell to load the script in; for kubectl: a program kubectl_complete-pelops to put "
        "on the PATH",
    )
    add_examples(
        parser,
        "# complete in this shell",
        "pelops completion bash",
        "",
        "# complete `kubectl pelops`: a program on the PATH",
        "pelops completion kubectl > kubectl_complete-pelops",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    console.write(_SCRIPTS[arguments.shell].removesuffix("\n"))
    return ExitCode.SUCCESS
