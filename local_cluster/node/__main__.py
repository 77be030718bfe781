"""`python -m local_cluster.node`: runs one node until SIGTERM or SIGINT."""

import argparse
import asyncio
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path

from local_cluster.node.agent import Agent
from local_cluster.node.api import read_kubeconfig
from local_cluster.node.guardian import start_guardian
from local_cluster.node.settings import NodeSettings


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m local_cluster.node", description="A node that runs pods as processes."
    )
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True, help="name of the Node object")
    parser.add_argument("--state", type=Path, required=True, help="directory for pods and logs")
    parser.add_argument("--light", action="store_true", help="pods turn Ready without processes")
    parser.add_argument(
        "--bin-path", type=Path, action="append", default=[], help="directory on containers' PATH"
    )
    parser.add_argument("--verbose", action="store_true")
    return parser


async def run(settings: NodeSettings, kubeconfig: Path) -> None:
    """Run the node until SIGTERM or SIGINT."""
    agent = Agent(settings, read_kubeconfig(kubeconfig))
    loop = asyncio.get_running_loop()
    running = asyncio.create_task(agent.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    loop.add_signal_handler(signal.SIGUSR1, agent.fail)
    loop.add_signal_handler(signal.SIGUSR2, agent.recover)
    try:
        with suppress(asyncio.CancelledError):
            await running
    finally:
        await agent.shut_down()


def main() -> None:
    arguments = build_parser().parse_args()
    logging.basicConfig(
        level=logging.DEBUG if arguments.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    settings = NodeSettings(
        name=arguments.name,
        state=arguments.state.resolve(),
        light=arguments.light,
        bin_paths=tuple(path.resolve() for path in arguments.bin_path),
    )
    settings.sandboxes.mkdir(parents=True, exist_ok=True)
    guard = start_guardian(settings.sandboxes)
    try:
        asyncio.run(run(settings, arguments.kubeconfig))
    finally:
        os.close(guard)


if __name__ == "__main__":
    main()
