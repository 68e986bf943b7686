"""The server of the playground: hands out the files of one folder and nothing else."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import os
import socket
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from mast_swarm.errors import MastError
from mast_swarm.play.config import PORT

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}
# A page may use several threads only where no other site's page shares its process.
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}
_TRIED = 20  # ports after the usual one
_BLOCK = 1 << 18

Files = Mapping[str, Path | bytes]
"""What is served, by its path in the address, without the first slash."""


def folder_files(folder: Path) -> dict[str, Path | bytes]:
    """The files of a folder, by their paths in it. What is not in this list is not served, whatever is asked for."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in found}


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the files of its server."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mast", ""
    timeout: ClassVar[float] = 30.0  # seconds that a client may keep a thread waiting

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, body: bool) -> None:
        try:
            path = unquote(urlsplit(self.path).path, errors="strict").lstrip("/")
        except ValueError:  # neither an address nor text
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        name = path or "index.html"
        found = self.server.files.get(name)
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            with io.BytesIO(found) if isinstance(found, bytes) else found.open("rb") as source:
                size, made = len(found) if isinstance(found, bytes) else 0, 0
                if not isinstance(found, bytes):
                    size, made = os.fstat(source.fileno()).st_size, os.fstat(source.fileno()).st_mtime_ns
                tag = f'"{size:x}-{made:x}"'
                kept = made > 0 and self.headers.get("If-None-Match") == tag  # the browser has this file already
                self.send_response(HTTPStatus.NOT_MODIFIED if kept else HTTPStatus.OK)
                self.send_header("ETag", tag)
                if not kept:
                    self.send_header("Content-Type", TYPES.get(Path(name).suffix, "application/octet-stream"))
                    self.send_header("Content-Length", str(size))
                self.end_headers()
                while body and not kept and (block := source.read(_BLOCK)):
                    self.wfile.write(block)
        except (ConnectionError, TimeoutError):  # the browser left
            self.close_connection = True
        except OSError:  # the file is gone
            self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *args: Any) -> None:
        """A page asks for many files: none of them is news."""


class Server(ThreadingHTTPServer):
    """Serves `files` on one address."""

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # on Windows two servers would share a port

    def __init__(self, address: tuple[str, int], files: Files) -> None:
        self.files = files
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, Handler)

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page."""
        host, port = self.server_address[0], self.server_address[1]
        name = str(host)
        if ipaddress.ip_address(name).is_unspecified:
            name = "127.0.0.1" if ":" not in name else "::1"
        return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What a client does wrong ends its own connection and is not shown."""
        if not isinstance(sys.exception() if hasattr(sys, "exception") else sys.exc_info()[1], OSError | ValueError):
            super().handle_error(request, client_address)


def make_server(host: str, port: int | None, files: Files) -> Server:
    """A server that listens. port None: the usual one, or the next that is free; 0: any free one."""
    tried = range(PORT, PORT + _TRIED) if port is None else [port]
    for number in tried:
        try:
            return Server((host, number), files)
        except PermissionError:
            raise MastError(f"port {number} may not be used here: give another --port, from 1024 on") from None
        except socket.gaierror:
            raise MastError(f"--host {host} is no address: give one of this machine, as 127.0.0.1") from None
        except OSError as error:
            if error.errno != _busy():
                raise MastError(f"cannot serve on {host}: {error.strerror}; give another --host") from None
    if port is None:
        raise MastError(f"ports {PORT} to {PORT + _TRIED - 1} are all in use: give a --port, 0 for any free one")
    raise MastError(f"port {port} is in use: give another --port, or none for one that is free")


def _busy() -> int:
    import errno

    return errno.EADDRINUSE


@contextlib.contextmanager
def running(server: Server) -> Iterator[str]:
    """The server at work in a thread of its own, for the length of a block; its address."""
    from threading import Thread

    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def show(url: str) -> bool:
    """Open the page in a browser with windows; whether there was one to ask."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # a browser in the terminal would take it over, and cannot show the page
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
