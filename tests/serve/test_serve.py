"""The page of `tasso serve`: its answers over HTTP, and a person with an image in a real Chromium."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import tasso
from conftest import draw
from tasso.cli import main

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package, reason=f"no {package} here: pip install 'tasso[serve]'")

from tasso.serve.app import make_app  # noqa: E402
from tasso.serve.listen import listen, server_for  # noqa: E402
from tasso.serve.models import load_models  # noqa: E402

MOST = 200_000
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(18, 22, 28)"


@pytest.fixture(scope="module")
def run_folder(tiny_model: str, mini_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three tasks, of which the second one's checkpoint has been removed."""
    out = tmp_path_factory.mktemp("served") / "run"
    run = tasso.learn(
        benchmark="mtil-mini", data_root=str(mini_root), check_counts=False, model=tiny_model,
        sequence="dtd,eurosat,actions", steps=2, batch_size=8, reference_batch_size=8, lr=1e-2,
        method={"name": "tasso", "rank": 6}, device="cpu", out=str(out),
    )  # fmt: skip
    run.folder.checkpoint_file(1, "eurosat").unlink()
    return out


@pytest.fixture(scope="module")
def url(run_folder: Path) -> Iterator[str]:
    """The server in a thread of this process."""
    app = make_app(load_models(tasso.load(run_folder)), "127.0.0.1", MOST)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = server_for(app)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"  # the socket listens: who comes early waits
        server.should_exit = True
        thread.join()


def png(size: int = 24) -> bytes:
    file = io.BytesIO()
    draw(1, 3, size).save(file, "PNG")
    return file.getvalue()


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON, whatever the status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else text.decode()


def test_all_models_that_are_there(url: str, run_folder: Path) -> None:
    status, about = ask(f"{url}run.json")
    assert status == 200
    assert about["stages"] == ["before all tasks", "after 1. dtd", "after 3. actions"]
    assert about["gone"] == ["eurosat"]
    assert str(run_folder) not in json.dumps(about), "where the run lies is nobody's business"
    status, found = ask(f"{url}classify?top=4", png())
    assert status == 200
    assert found["among"] == "9 classes of 3 tasks"
    image = Image.open(io.BytesIO(png()))
    for stage, after in zip(found["stages"], ("0", "dtd", "actions"), strict=True):
        expected = tasso.load(run_folder, after=after).classify(image, top=4)[0]
        assert stage["predictions"] == [guess.to_dict() for guess in expected]
    for query, tasks in (("task=eurosat", {"eurosat"}), ("classes=red%20thing,blue%20thing", {None})):
        found = ask(f"{url}classify?{query}", png())[1]
        assert {guess["task"] for stage in found["stages"] for guess in stage["predictions"]} == tasks


@pytest.mark.parametrize(
    ("query", "body", "status", "complaint"),
    [
        ("", b"no image at all", 415, "not an image"),
        ("", b"", 415, "not an image"),
        ("", png()[:60], 415, "not an image"),
        ("", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not an image"),
        ("", b"x" * (MOST + 1), 413, "larger than the 0.191 MiB"),
        ("task=birds", png(), 400, "no task 'birds'"),
        ("classes=%20,", png(), 400, "at least one class name"),
        ("classes=" + "a,b" * 1000, png(), 400, "more than the 1000"),
        ("top=0", png(), 400, "top: must lie in 1"),
        ("top=x", png(), 400, "top: must lie in 1"),
    ],
)
def test_bad_questions_get_reasons(url: str, query: str, body: bytes, status: int, complaint: str) -> None:
    found, answer = ask(f"{url}classify?{query}", body)
    assert (found, complaint in answer["error"]) == (status, True), answer


def test_a_small_file_of_a_huge_image_is_not_decoded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.serve.app.MOST_PIXELS", 24 * 24 - 1)
    status, answer = ask(f"{url}classify", png())
    assert status == 415
    assert "24 × 24 pixels are more than" in answer["error"]


def test_other_names_and_other_sites_are_refused(url: str) -> None:
    assert ask(f"{url}run.json", Host="evil.example")[0] == 400
    status, answer = ask(f"{url}classify", png(), **{"Sec-Fetch-Site": "cross-site"})
    assert (status, answer["error"]) == (403, "sent by another site")
    assert ask(f"{url}classify", png(), **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert ask(f"{url}../../etc/passwd")[0] == 404
    with urllib.request.urlopen(url) as response:
        assert "default-src 'none'" in response.headers["content-security-policy"]
        text = response.read().decode()
    assert "http" not in text.replace("http-equiv", ""), "everything comes from here"


def test_command_serves_until_it_is_stopped(run_folder: Path) -> None:
    command = [sys.executable, "-m", "tasso", "serve", str(run_folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        assert ask(f"{address}classify", png())[0] == 200
        process.send_signal(signal.SIGINT)
        complaints = process.stderr.read()
        assert process.wait() == 0
    assert "Traceback" not in complaints
    assert "goes on from what is saved" not in complaints


def test_what_cannot_be_served_is_said(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as (taken, _):
        port = taken.split(":")[-1].strip("/")
        for words, complaint in (
            (["--port", port], f"cannot listen at 127.0.0.1, port {port}"),
            (["--port", "70000"], "cannot listen"),
            (["--max-mib", "0"], "max_mib: must lie in"),
        ):
            with pytest.raises(SystemExit) as stop:
                main(["serve", str(run_folder), *words])
            assert stop.value.code == 2
            assert complaint in capsys.readouterr().err


# -- in a browser ------------------------------------------------------------------------------------------------


class Visitor:
    """Someone with an image."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get(url)
        self.wait(lambda: self.find("#task").text)

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [node.text for node in self.browser.find_elements("css selector", selector)]

    def run(self, script: str, *words: Any) -> Any:
        return self.browser.execute_script(script, *words)

    def wait(self, until: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, 20, poll_frequency=0.05).until(lambda _: until())

    def wait_for_caption(self, words: str) -> None:
        self.wait(lambda: words in self.find("#caption").text)

    def complaints(self) -> list[Any]:
        return list(self.browser.get_log("browser"))


@pytest.fixture
def visitor(browser: Any, url: str) -> Iterator[Visitor]:
    found = Visitor(browser, url)
    yield found
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_pick_a_image_and_see_the_table(visitor: Visitor, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    (tmp_path / "mine.png").write_bytes(png())
    assert "eurosat" in visitor.find("#gone").text, "what was removed is named"
    visitor.find("#file").send_keys(str(tmp_path / "mine.png"))
    visitor.wait_for_caption("9 classes of 3 tasks")
    assert visitor.texts("thead th") == ["Rank", "before all tasks", "after 1. dtd", "after 3. actions"]
    assert [len(visitor.texts(f"tbody tr:nth-child({n}) td")) for n in range(1, 6)] == [3] * 5
    assert visitor.find("tbody tr:first-child td:last-child").get_attribute("class") == "best"
    assert "%" in visitor.find("#status").text
    assert visitor.find("#preview").get_attribute("alt") == "The image mine.png"
    Select(visitor.find("#task")).select_by_value("eurosat")
    visitor.wait_for_caption("3 classes of task eurosat")
    assert set(visitor.texts("td .of")) == {"eurosat"}
    names = visitor.find("#names")
    names.send_keys("a red thing, a blue thing", Keys.ENTER)
    visitor.wait_for_caption("2 classes named by you")
    assert set(visitor.texts("td > :first-child")) == {"a red thing", "a blue thing"}
    visitor.find("input[value=all]").click()
    visitor.wait_for_caption("9 classes of 3 tasks")
    assert not visitor.complaints()


def test_drop_a_image_then_a_file_that_is_none(visitor: Visitor) -> None:
    drop = """
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(arguments[0])], arguments[1], {type: "image/png"}));
    const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
    document.getElementById("drop").dispatchEvent(drop);
    return drop.defaultPrevented;
    """
    assert visitor.run(drop, list(png()), "dropped.png"), "else the browser would leave the page"
    visitor.wait_for_caption("9 classes of 3 tasks")
    assert not visitor.complaints()
    visitor.run(drop, list(b"not at all"), "wrong.png")
    visitor.wait(lambda: visitor.find("#error").text)
    assert visitor.find("#error").text == "This is not an image, or a damaged one"
    assert not visitor.find("#results").is_displayed(), "no old table beside a new complaint"
    visitor.complaints()  # the browser notes the answer 415 itself
    visitor.run(drop, [0] * (MOST + 1), "large.png")
    visitor.wait(lambda: "arge.png is larger than the 0.191 MiB" in visitor.find("#error").text)
    assert not visitor.complaints(), "it was not even sent"


def test_keyboard_screen_reader_and_both_colours(visitor: Visitor) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    order = []
    for _ in range(6):
        ActionChains(visitor.browser).send_keys(Keys.TAB).perform()
        focused = visitor.browser.switch_to.active_element
        order.append(focused.get_attribute("id") or focused.get_attribute("value") or focused.get_attribute("class"))
    assert order[:5] == ["skip", "file", "all", "task", "names"]
    tree = visitor.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]}
    assert {("combobox", "Task"), ("textbox", "Class names, separated by commas"), ("radio", "one task")} <= named
    assert any(role == "button" and "Drop an image here" in (name or "") for role, name in named)
    for scheme, colour in (("light", LIGHT), ("dark", DARK)):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        visitor.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert visitor.run("return getComputedStyle(document.body).backgroundColor") == colour
    assert not visitor.complaints()
