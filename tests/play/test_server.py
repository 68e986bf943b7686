"""The playground's server: its own folder and nothing else, whatever is asked for."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mast_swarm.errors import MastError
from mast_swarm.play import server as serving
from mast_swarm.play.config import PlayConfig
from mast_swarm.play.run import site_files
from mast_swarm.play.server import folder_files, make_server, running
from shared import mast, one_line


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with a secret beside it."""
    base = tmp_path_factory.mktemp("served")
    site = base / "site"
    (site / "policies").mkdir(parents=True)
    (site / "index.html").write_text("<h1>page</h1>")
    (site / "a b.wasm").write_bytes(b"\0asm")
    (site / "policies" / "policies.json").write_text("[]")
    (base / "secret.txt").write_text("secret")
    return site


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[tuple[str, int]]:
    with running(make_server("127.0.0.1", 0, folder_files(folder))) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


def ask(
    address: tuple[str, int], path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.putrequest(method, path, skip_host=False)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", b"<h1>page</h1>"),
        ("/index.html?x=1", "text/html; charset=utf-8", b"<h1>page</h1>"),
        ("/a%20b.wasm", "application/wasm", b"\0asm"),
        ("/policies/policies.json", "application/json", b"[]"),
    ],
)
def test_files_come_with_their_kind_and_may_use_threads(
    address: tuple[str, int], path: str, kind: str, body: bytes
) -> None:
    answer, found = ask(address, path)
    assert (answer.status, answer.headers["Content-Type"], found) == (200, kind, body)
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    head, nothing = ask(address, path, "HEAD")
    assert (head.status, head.headers["Content-Length"], nothing) == (200, str(len(body)), b"")


def test_what_a_browser_has_already_is_not_sent_again(folder: Path, address: tuple[str, int]) -> None:
    (folder / "later.js").write_text("1")
    with running(make_server("127.0.0.1", 0, folder_files(folder))) as url:
        here = str(urlsplit(url).hostname), int(urlsplit(url).port or 0)
        tag = ask(here, "/later.js")[0].headers["ETag"]
        again, nothing = ask(here, "/later.js", If_None_Match=tag)
        assert (again.status, nothing) == (304, b"")
        (folder / "later.js").write_text("22")
        assert ask(here, "/later.js", If_None_Match=tag)[1] == b"22"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/policies/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%5csecret.txt",
        "//secret.txt",
        "/./../secret.txt",
        "/policies",
        "/policies/",
        "/etc/passwd",
        "//etc/passwd",
        "/index.html%00.txt",
        "/INDEX.HTML/",
    ],
)
def test_nothing_else_is_served(address: tuple[str, int], path: str) -> None:
    answer, body = ask(address, path)
    assert answer.status == 404 and b"secret" not in body and b"root:" not in body


PIECES = ["..", ".", "", "%2e%2e", "%2f", "..%5c", "secret.txt", "policies", "site", "index.html", "~", "%00", "?", "#"]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), max_size=6))
def test_no_path_leads_outside(address: tuple[str, int], pieces: list[str]) -> None:
    answer, body = ask(address, "/" + "/".join(pieces))
    assert answer.status in (200, 404) and (body in (b"<h1>page</h1>", b"[]") or answer.status == 404)
    assert b"secret\n" not in body and body != b"secret"


def test_other_methods_are_refused(address: tuple[str, int]) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        assert ask(address, "/", method)[0].status == 501


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a browser that speaks TLS
        b"GET " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 300 + b"\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n",  # and no more
        b"",
    ],
    ids=range(10),
)
def test_malformed_requests_do_no_harm(address: tuple[str, int], sent: bytes, capfd: pytest.CaptureFixture) -> None:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while connection.recv(1 << 16):
                pass
    assert ask(address, "/")[0].status == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_client_that_leaves_in_the_middle_does_no_harm(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "large.bin").write_bytes(bytes(30_000_000))
    with running(make_server("127.0.0.1", 0, folder_files(tmp_path))) as url:
        parts = urlsplit(url)
        for _ in range(3):
            with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
                connection.sendall(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
                connection.recv(1000)
        answer, body = ask((str(parts.hostname), int(parts.port or 0)), "/large.bin")
        assert answer.status == 200 and len(body) == 30_000_000
        (tmp_path / "large.bin").unlink()
        assert ask((str(parts.hostname), int(parts.port or 0)), "/large.bin")[0].status == 404
    assert "Traceback" not in capfd.readouterr().err


def test_a_busy_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_server("127.0.0.1", 0, {}) as first:
        port = int(first.server_address[1])
        with pytest.raises(MastError, match=f"port {port} is in use: give another --port"):
            make_server("127.0.0.1", port, {})
        monkeypatch.setattr(serving, "PORT", port)
        with make_server("127.0.0.1", None, {}) as second:
            assert port < int(second.server_address[1]) < port + 20
        monkeypatch.setattr(serving, "_TRIED", 1)
        with pytest.raises(MastError, match="all in use"):
            make_server("127.0.0.1", None, {})


def test_bad_settings() -> None:
    with pytest.raises(MastError, match="--port 70000"):
        PlayConfig(port=70000)
    with pytest.raises(MastError, match="is no address"):
        make_server("no such host.", 0, {})
    with pytest.raises(MastError, match="cannot serve on 192"):  # an address of nobody
        make_server("192.0.2.1", 0, {})


def test_the_default_is_this_machine_alone() -> None:
    with make_server(PlayConfig().host, 0, {}) as server:
        assert server.server_address[0] == "127.0.0.1" and server.url.startswith("http://127.0.0.1:")
    with make_server("0.0.0.0", 0, {}) as server:
        assert server.url.startswith("http://127.0.0.1:")  # where this machine finds it


def test_without_a_built_page_it_says_what_to_do(tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(MastError, match="make web"):
            site_files((), tmp_path, folder)


def test_policies_of_ones_own_are_exported_and_listed(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    (folder / "policies" / "policies.json").write_text(json.dumps([{"name": "navigation/mast-m"}]))
    files = site_files(("navigation/mast-m-paper", "navigation/mast-m"), tmp_path / "made", folder)
    listed = files["policies/policies.json"]
    assert isinstance(listed, bytes)
    assert [one["name"] for one in json.loads(listed)] == ["navigation/mast-m", "navigation/mast-m-paper"]
    about = json.loads(listed)[1]
    assert about["exploration"] is None and about["parity"] < 1e-4
    for part in ("perceive", "team"):
        assert Path(str(files[f"policies/{about['folder']}/{part}.onnx"])).stat().st_size > 10_000
    for name, match in (("coverage/lpac-k3", "kind lpac"), ("navigation/mast-c", "variant M or L"), ("x", "unknown")):
        with pytest.raises(MastError, match=match):
            site_files((name,), tmp_path / "made", folder)


def test_the_command_serves_until_it_is_stopped(folder: Path) -> None:
    """As a process, so that Ctrl-C is tried too."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell may have turned it off
        "import mast_swarm.play.run as run, sys\nfrom pathlib import Path\nfrom mast_swarm.cli import main\n"
        f"site_files = run.site_files\nrun.site_files = lambda p, m: site_files(p, m, Path({str(folder)!r}))\n"
        "main(['play', '--no-open', '--port', '0'])"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        told = started.stdout.readline()
        url = urlsplit(told.split(" at ")[1].split(" ")[0])
        answer, body = ask((str(url.hostname), int(url.port or 0)), "/")
        assert (answer.status, body) == (200, b"<h1>page</h1>")
        os.kill(started.pid, signal.SIGINT)
        _, error = started.communicate(timeout=20)
        assert started.returncode == 0 and error == ""
    finally:
        started.kill()


def test_serving_the_built_page_loads_nothing_heavy() -> None:
    code = "import sys, mast_swarm.play.run\nprint('torch' in sys.modules, 'onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_the_command_line_says_bad_input_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("play", "--no-open", "--port", "-1") == 2
    assert "--port -1" in one_line(capsys)
