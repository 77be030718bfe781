"""`kubectl exec`: one command beside a container's process, over a WebSocket.

The API server passes the WebSocket of kubectl on to a node that declares FEATURE. Each binary
message of v5.channel.k8s.io begins with the number of its channel (Kubernetes KEP-4006).
"""

import asyncio
import json
import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import WSMsgType, web

from local_cluster.node.containers import Container
from local_cluster.node.process import ContainerProcess, Launch

FEATURE: Final = "ExtendWebSocketsToKubelet"
PROTOCOL: Final = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR, _CLOSE = 0, 1, 2, 3, 255
_CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """The command, and whether it reads what kubectl sends."""

    command: list[str]
    has_stdin: bool


def parse_exec_request(request: web.Request) -> ExecRequest:
    """The kubelet's query parameters; raises ValueError."""
    command = request.query.getall("command", [])
    if not command:
        raise ValueError("you must specify at least 1 command for the container")
    if request.query.get("tty") in {"1", "true"}:
        raise ValueError("this node has no terminals: leave out --tty")
    return ExecRequest(command=command, has_stdin=request.query.get("input") in {"1", "true"})


async def answer_exec(request: web.Request, container: Container) -> web.StreamResponse:
    """Run the command in the environment of the container; its output, then its exit code."""
    try:
        wanted = parse_exec_request(request)
    except ValueError as error:
        return web.Response(status=400, text=f"{error}\n")
    launch = container.launch
    if launch is None:
        return web.Response(status=400, text=f'container "{container.name}" does not run\n')
    socket = web.WebSocketResponse(protocols=[PROTOCOL])
    if not socket.can_prepare(request).ok:
        return web.Response(status=400, text="this node needs kubectl 1.31 or later for exec\n")
    await socket.prepare(request)
    status = await _run(replace(launch, command=wanted.command), socket, wanted)
    with suppress(ConnectionError):
        await socket.send_bytes(bytes([_ERROR]) + json.dumps(status).encode())
        await socket.close()
    return socket


async def _run(launch: Launch, socket: web.WebSocketResponse, wanted: ExecRequest) -> object:
    """Run the command; a Status of the API, as the kubelet reports it."""
    ours_in, ours_out, ours_error = os.pipe(), os.pipe(), os.pipe()
    theirs = (ours_in[0], ours_out[1], ours_error[1])
    try:
        process = ContainerProcess(
            *(launch, theirs[1]), owns_leftovers=False, stdin=theirs[0], errors=theirs[2]
        )
    except OSError as error:
        for pipe in (*ours_in, *ours_out, *ours_error):
            os.close(pipe)
        return {**_FAILED, "reason": "InternalError", "message": f"cannot start: {error}"}
    for pipe in theirs:
        os.close(pipe)
    sending = asyncio.gather(
        _send(ours_out[0], _STDOUT, socket), _send(ours_error[0], _STDERR, socket)
    )
    receiving = asyncio.create_task(_receive(ours_in[1], socket, process, wanted))
    try:
        code = await asyncio.shield(process.exited)
        await sending
    finally:
        process.signal(signal.SIGKILL)
        for task in (sending, receiving):
            task.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    return _report_exit(code)


_FAILED: Final = {"metadata": {}, "status": "Failure"}


def _report_exit(code: int) -> object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    message = f"command terminated with exit code {code}"
    causes = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    return {**_FAILED, "reason": "NonZeroExitCode", "message": message, "details": causes}


async def _send(pipe: int, channel: int, socket: web.WebSocketResponse) -> None:
    """Pass the output of the command on, to its end."""
    reader = asyncio.StreamReader(limit=_CHUNK)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    try:
        while chunk := await reader.read(_CHUNK):
            await socket.send_bytes(bytes([channel]) + chunk)
    finally:
        transport.close()


async def _receive(
    pipe: int, socket: web.WebSocketResponse, process: ContainerProcess, wanted: ExecRequest
) -> None:
    """Pass the input on; end the command when kubectl has gone."""
    with os.fdopen(pipe, "wb", buffering=0) as stdin:
        if not wanted.has_stdin:
            stdin.close()
        async for message in socket:
            if message.type is not WSMsgType.BINARY or not message.data or stdin.closed:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == _STDIN:
                with suppress(BrokenPipeError):
                    await asyncio.to_thread(stdin.write, data)
            elif channel == _CLOSE:
                stdin.close()
    process.kill()
