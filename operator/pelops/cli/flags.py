"""Flags that several commands have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from pelops.cli.console import COLOR_MODES

OUTPUTS: Final = ("text", "wide", "json", "yaml", "name")
COMMON: Final = ("namespace", "all_namespaces", "context", "kubeconfig", "color", "verbose")


def add_common_flags(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add the flags that may stand anywhere in the line of a command that asks the cluster.

    Returns their group. A flag that is not given sets nothing, so that its value before the command
    remains.
    """
    group = parser.add_argument_group("flags of every command that asks the cluster")
    add = group.add_argument
    unset = argparse.SUPPRESS
    add("--namespace", "-n", default=unset, help="namespace; default: that of the context")
    add(
        "--all-namespaces",
        "-A",
        action="store_true",
        default=unset,
        help="all namespaces, where a command lists resources",
    )
    add("--context", default=unset, help="context of the kubeconfig; default: the current one")
    add("--kubeconfig", default=unset, metavar="FILE", help="kubeconfig; default: as kubectl")
    add("--color", choices=COLOR_MODES, default=unset, help="colors; auto: on a terminal")
    add(
        "--verbose",
        "-v",
        action="store_true",
        default=unset,
        help="print each call of kubectl on standard error",
    )
    return group


def add_operator_namespace_flag(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the flag that says where the operator runs."""
    parser.add_argument(
        "--operator-namespace",
        metavar="NAMESPACE",
        help="namespace of the operator; default: all namespaces are searched",
    )


def add_output_flag(
    parser: argparse.ArgumentParser, formats: Sequence[str] = OUTPUTS, *, default: str = "text"
) -> None:
    """Add `-o`, whose value decides what the console prints."""
    parser.add_argument(
        "--output", "-o", choices=list(formats), default=default, help="format of the output"
    )
