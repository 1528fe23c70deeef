"""Attacks on `tasso serve`, a process of its own."""

from __future__ import annotations

import contextlib
import io
import json
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image

import tasso
from tasso.errors import ConfigError, DataError

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package, reason=f"no {package} here: pip install 'tasso[serve]'")

from tasso.data.images.files import read_upload  # noqa: E402
from tasso.serve.app import MAX_PIXELS, make_app  # noqa: E402
from tasso.serve.listen import listen, server_for  # noqa: E402

GIB = 2**30


@pytest.fixture(scope="module")
def run_folder(tiny_model: str, mini_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("attacked") / "run"
    tasso.learn(
        benchmark="mtil-mini", data_root=str(mini_root), check_counts=False, model=tiny_model, sequence="dtd",
        steps=1, batch_size=8, reference_batch_size=8, lr=1e-3, method={"name": "tasso", "rank": 6}, device="cpu",
        out=str(out),
    )  # fmt: skip
    return out


@dataclass
class Served:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    url: str

    @property
    def address(self) -> tuple[str, int]:
        host, port = re.fullmatch(r"http://(.*):(\d+)/", self.url).groups()  # type: ignore[union-attr]
        return host, int(port)

    def bytes(self, what: str) -> int:
        """Memory, as Linux counts it: VmRSS now, or VmHWM at most."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(rf"{what}:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def classify(self, body: bytes, **headers: str) -> tuple[int, Any]:
        request = urllib.request.Request(f"{self.url}classify", body, headers)
        try:
            with urllib.request.urlopen(request) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
                return error.code, json.loads(text) if text.startswith(b"{") else text


@contextlib.contextmanager
def serving(run_folder: Path, *options: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "tasso", "serve", str(run_folder), "--port", "0", "--device", "cpu", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Served(process, process.stdout.readline().split()[0])
        finally:
            process.kill()


def encoded(mode: str, size: tuple[int, int], kind: str = "PNG", **options: Any) -> bytes:
    """A small file of a large image of one colour."""
    file = io.BytesIO()
    Image.new(mode, size).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux, which counts memory")
def test_many_large_images_at_once_take_the_memory_of_one(run_folder: Path) -> None:
    """Just small enough, too large, and a JPEG that is made smaller while it is decoded; 200 clients."""
    files = [
        encoded("RGBA", (MAX_PIXELS // 6000, 6000)),
        encoded("P", (10_000, 10_000)),
        encoded("RGB", (9_900, 9_900), "JPEG", progressive=True),
    ]
    with serving(run_folder) as server:
        assert server.classify(encoded("RGB", (20, 20)))[0] == 200
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # VmHWM begins again
        idle = server.bytes("VmRSS")
        with ThreadPoolExecutor(200) as clients:
            answers = list(clients.map(server.classify, [files[1]] * 190 + files[:1] * 4 + files[2:] * 6))
        assert server.bytes("VmHWM") - idle < 1.5 * GIB
        statuses = [status for status, _ in answers]
        assert statuses == [415] * 190 + [200] * 10
        assert "10000 × 10000 pixels" in answers[0][1]["error"]


@pytest.mark.parametrize(
    ("mode", "size", "kind"),
    [("P", (10_000, 10_000), "PNG"), ("RGB", (12_000, 12_000), "JPEG"), ("L", (30_000, 10), "PNG")],
    ids=["pixels", "stored", "side"],
)
def test_images_that_would_take_much_memory_are_refused(mode: str, size: tuple[int, int], kind: str) -> None:
    with pytest.raises(DataError, match=f"{size[0]} × {size[1]} pixels"):
        read_upload(encoded(mode, size, kind), MAX_PIXELS)


def test_a_large_photo_is_made_smaller_while_it_is_decoded() -> None:
    assert read_upload(encoded("RGB", (8400, 8200), "JPEG"), MAX_PIXELS).shape == (2050, 2100, 3)
    assert read_upload(encoded("RGB", (4000, 3000), "JPEG"), MAX_PIXELS).shape == (3000, 4000, 3)


# -- slow clients --------------------------------------------------------------------------------------------------


def connected(address: tuple[str, int], said: bytes) -> socket.socket:
    connection = socket.create_connection(address, timeout=20)
    connection.sendall(said)
    return connection


UNFINISHED = b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc"


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=lambda stop: stop.name)
def test_slow_clients_neither_block_others_nor_the_end(run_folder: Path, stop: signal.Signals) -> None:
    with serving(run_folder) as server, contextlib.ExitStack() as stack:
        for said in [b"", b"GET / HT", UNFINISHED] * 20:
            stack.enter_context(connected(server.address, said))
        assert server.classify(encoded("RGB", (20, 20)))[0] == 200
        server.process.send_signal(stop)
        server.process.wait(timeout=5)
        assert server.process.stderr is not None
        assert "Traceback" not in server.process.stderr.read()


class NoModels:
    """In the place of the models of a run: the server answers without any."""

    metadata: ClassVar[dict[str, Any]] = {}
    stages = ()

    def candidates(self, task: str | None, classes: list[str] | None) -> str:
        return "no classes"

    def predict(self, image: Any, candidates: str, top: int) -> list[Any]:
        return []


@contextlib.contextmanager
def in_a_thread(host: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """A server without models; its address."""
    app = make_app(NoModels(), host, 10_000)  # type: ignore[arg-type]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as bound:
        server = server_for(app)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            yield bound.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: local"], ids=["nothing", "half"])
def test_a_connection_without_a_request_is_closed(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.serve.listen.HEADER_SECONDS", 0.1)
    with in_a_thread() as address, connected(address, said) as client:
        assert client.recv(100) == b""


def test_a_connection_is_one_request() -> None:
    """Else a second one could be begun and never ended."""
    with in_a_thread() as address, connected(address, b"GET /run.json HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
        answer = client.makefile("rb").read()  # until the server closes it
        assert b"connection: close" in answer


def test_an_upload_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.serve.app.BODY_SECONDS", 0.1)
    with in_a_thread() as address, connected(address, UNFINISHED) as client:
        assert client.recv(100).startswith(b"HTTP/1.1 408")


def test_uploads_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.serve.app.MAX_HELD", 10_000)
    large = UNFINISHED.replace(b"1000\r", b"9999\r") + bytes(6000)
    with in_a_thread() as address:
        with connected(address, large) as first, connected(address, large) as second:
            answered, _, _ = select.select([first, second], [], [], 20)
            assert answered[0].recv(100).startswith(b"HTTP/1.1 503")
        with connected(address, UNFINISHED.replace(b"1000\r", b"3\r")) as third:
            assert third.recv(100).startswith(b"HTTP/1.1 415"), "there is room again: it is read, and no image"


# -- other sites and other hosts -----------------------------------------------------------------------------------


def status_of(address: tuple[str, int], host: str, *lines: str, path: str = "/classify") -> int:
    body = encoded("RGB", (9, 9))
    head = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *lines, "", ""]
    with connected(address, "\r\n".join(head).encode() + body) as client:
        return int(client.recv(100).split()[1])


def test_a_foreign_origin_is_refused_without_fetch_metadata() -> None:
    """Not every browser sends Sec-Fetch-Site."""
    with in_a_thread() as address:
        host = f"localhost:{address[1]}"
        assert status_of(address, host) == 200
        assert status_of(address, host, f"Origin: http://{host}", "Sec-Fetch-Site: same-origin") == 200
        for origin in ("http://evil.example", "null", f"http://{host}.evil.example", "http://localhost:1", "http://["):
            assert status_of(address, host, f"Origin: {origin}") == 403, origin


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_only_its_own_hosts_are_answered(host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip("this machine has no such address")
    with in_a_thread(host) as address:
        for own in (f"[::1]:{address[1]}", "[::1]", "127.0.0.1:80", "LOCALHOST"):
            assert status_of(address, own) == 200, own
        for other in ("evil.example", "[::2]:80", "[::1", "", "::1", "localhost.evil.example", "a@b:c:d"):
            assert status_of(address, other) == 400, other


def test_no_address_is_not_all_addresses() -> None:
    with pytest.raises(ConfigError, match="host: "), listen("", 0):
        pass
