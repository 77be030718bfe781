"""A download site on loopback, with the faults that a test asks for."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from local_cluster.binaries import PARTS

KUBERNETES, ETCD = "v1.36.3", "v3.6.8"
VERSIONS = {part: ETCD if part == "etcd" else KUBERNETES for part in PARTS}
_RANGE = re.compile(r"bytes=(\d+)-")


def official_name(part: str, architecture: str = "amd64") -> str:
    if part == "etcd":
        archive = f"etcd-{ETCD}-linux-{architecture}.tar.gz"
        return f"github.com/etcd-io/etcd/releases/download/{ETCD}/{archive}"
    return f"dl.k8s.io/release/{KUBERNETES}/bin/linux/{architecture}/{part}"


def make_release() -> dict[str, bytes]:
    """A program for each part, by its official name, large enough to be sent in many pieces."""
    return {
        name: _pack(part, make_program(part)) if name.endswith(".gz") else make_program(part)
        for part, name in ((part, official_name(part)) for part in PARTS)
    }


def make_program(part: str) -> bytes:
    padding = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(40_000))
    return f"#!/bin/sh\necho {part}\nexit\n".encode() + padding


def _pack(part: str, program: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in ((f"{part}ctl", b"another program"), (part, program)):
            member = tarfile.TarInfo(f"{part}-{ETCD}-linux-amd64/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def make_checksums(release: Mapping[str, bytes]) -> str:
    return "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in release.items()
    )


@dataclass(kw_only=True)
class Site:
    """What it serves, which answers it spoils, and what it was asked for."""

    files: dict[str, bytes]
    cut: dict[str, int] = field(default_factory=dict)  # ends that many answers in their middle
    busy: dict[str, int] = field(default_factory=dict)  # answers that many requests with 503
    asked: list[tuple[str, int]] = field(default_factory=list)  # the target and the first byte
    url: str = ""

    def takes_one(self, faults: dict[str, int], name: str) -> bool:
        left = faults.get(name, 0)
        faults[name] = max(0, left - 1)
        return left > 0


@contextmanager
def serve(files: Mapping[str, bytes]) -> Iterator[Site]:
    site = Site(files=dict(files))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = _RANGE.fullmatch(self.headers.get("Range", ""))
            first = int(found[1]) if found else 0
            site.asked.append((self.path, first))
            # A proxy is asked for the whole address, a server for the path.
            name = re.sub(r"^(http://[^/]*)?/", "", self.path)
            if name not in site.files:
                self.send_error(404)
            elif site.takes_one(site.busy, name):
                self.send_error(503)
            else:
                self.answer(name, first)

        def answer(self, name: str, first: int) -> None:
            rest = site.files[name][first:]
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: len(rest) // 2] if site.takes_one(site.cut, name) else rest)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
