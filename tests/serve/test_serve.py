"""The page of `tasso serve`: its responses over HTTP, and its use in Chromium."""

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

pytestmark = pytest.mark.slow

for package in ("starlette", "uvicorn"):
    pytest.importorskip(package, reason=f"no {package} here: pip install 'tasso[serve]'")

from tasso.serve.app import make_app  # noqa: E402
from tasso.serve.listen import listen, server_for  # noqa: E402
from tasso.serve.models import load_models  # noqa: E402

MAX_BYTES = 200_000
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(18, 22, 28)"


@pytest.fixture(scope="module")
def run_folder(tiny_model: str, mini_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three tasks, of which the second one's checkpoint has been removed."""
    out = tmp_path_factory.mktemp("served") / "run"
    run = tasso.learn(
        benchmark="mtil-mini", data_root=str(mini_root), check_counts=False, model=tiny_model,
        sequence="dtd,eurosat,actions", steps=2, batch_size=8, reference_batch_size=8, lr=1e-2,
        method={"name": "tasso-both", "rank": 6}, device="cpu", out=str(out),
    )  # fmt: skip
    run.folder.checkpoint_file(1, "eurosat").unlink()
    return out


@pytest.fixture(scope="module")
def url(run_folder: Path) -> Iterator[str]:
    """The server in a thread of this process."""
    app = make_app(load_models(tasso.load(run_folder)), "127.0.0.1", MAX_BYTES)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = server_for(app)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"  # the socket listens already: early requests wait
        server.should_exit = True
        thread.join()


def png(size: int = 24) -> bytes:
    file = io.BytesIO()
    draw(1, 3, size).save(file, "PNG")
    return file.getvalue()


def request(url: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of a response, whatever the status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
            return error.code, json.loads(text) if text.startswith(b"{") else text.decode()


def test_all_models_of_the_run(url: str, run_folder: Path) -> None:
    status, metadata = request(f"{url}run.json")
    assert status == 200
    assert metadata["stages"] == ["before all tasks", "after 1. dtd", "after 3. actions"]
    assert metadata["removed"] == ["eurosat"]
    assert str(run_folder) not in json.dumps(metadata), "paths of the machine are not sent"
    status, found = request(f"{url}classify?top=4", png())
    assert status == 200
    assert found["candidates"] == "9 classes of 3 tasks"
    image = Image.open(io.BytesIO(png()))
    for stage, after in zip(found["stages"], ("0", "dtd", "actions"), strict=True):
        expected = tasso.load(run_folder, after=after).classify(image, top=4)[0]
        assert stage["predictions"] == [prediction.to_dict() for prediction in expected]
    for query, tasks in (("task=eurosat", {"eurosat"}), ("classes=red%20thing,blue%20thing", {None})):
        found = request(f"{url}classify?{query}", png())[1]
        assert {prediction["task"] for stage in found["stages"] for prediction in stage["predictions"]} == tasks


@pytest.mark.parametrize(
    ("query", "body", "status", "message"),
    [
        ("", b"not an image at all", 415, "not an image"),
        ("", b"", 415, "not an image"),
        ("", png()[:60], 415, "not an image"),
        ("", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not an image"),
        ("", b"x" * (MAX_BYTES + 1), 413, "larger than the 0.191 MiB"),
        ("task=birds", png(), 400, "no task 'birds'"),
        ("classes=%20,", png(), 400, "at least one class name"),
        ("classes=" + "a,b" * 1000, png(), 400, "more than the 1000"),
        ("top=0", png(), 400, "top: must lie in 1"),
        ("top=x", png(), 400, "top: must lie in 1"),
    ],
)
def test_bad_requests_get_a_message(url: str, query: str, body: bytes, status: int, message: str) -> None:
    found, response = request(f"{url}classify?{query}", body)
    assert (found, message in response["error"]) == (status, True), response


def test_a_form_is_told_what_to_send(url: str) -> None:
    body = b'--x\r\ncontent-disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + png() + b"\r\n--x--\r\n"
    status, response = request(f"{url}classify", body, **{"content-type": "multipart/form-data; boundary=x"})
    assert status == 400
    assert "the body must be the image file itself, not a form: curl --data-binary @IMAGE" in response["error"]


def test_a_small_file_of_a_huge_image_is_not_decoded(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasso.serve.app.MAX_PIXELS", 24 * 24 - 1)
    status, response = request(f"{url}classify", png())
    assert status == 415
    assert "24 × 24 pixels are more than" in response["error"]


def test_other_hosts_and_other_sites_are_refused(url: str) -> None:
    assert request(f"{url}run.json", Host="evil.example")[0] == 400
    status, refusal = request(f"{url}classify", png(), **{"Sec-Fetch-Site": "cross-site"})
    assert (status, refusal["error"]) == (403, "request from another site")
    assert request(f"{url}classify", png(), **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert request(f"{url}../../etc/passwd")[0] == 404
    with urllib.request.urlopen(url) as response:
        assert "default-src 'none'" in response.headers["content-security-policy"]
        text = response.read().decode()
    assert "http" not in text.replace("http-equiv", ""), "everything is loaded from this server"


def test_command_serves_until_it_is_stopped(run_folder: Path) -> None:
    command = [sys.executable, "-m", "tasso", "serve", str(run_folder), "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        assert request(f"{address}classify", png())[0] == 200
        process.send_signal(signal.SIGINT)
        stderr = process.stderr.read()
        assert process.wait() == 0
    assert "Traceback" not in stderr
    assert "goes on from what is saved" not in stderr


def test_the_address_on_all_interfaces_names_the_machine() -> None:
    for host in ("0.0.0.0", "127.0.0.1"):
        with listen(host, 0) as (address, _):
            name = socket.gethostname() if host == "0.0.0.0" else host
            assert address.startswith(f"http://{name}:")


def test_bad_options_are_named(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listen("127.0.0.1", 0) as (taken, _):
        port = taken.split(":")[-1].strip("/")
        for args, message in (
            (["--port", port], f"cannot listen at 127.0.0.1, port {port}"),
            (["--port", "70000"], "cannot listen"),
            (["--max-mib", "0"], "max_mib: must lie in"),
        ):
            with pytest.raises(SystemExit) as stop:
                main(["serve", str(run_folder), *args])
            assert stop.value.code == 2
            assert message in capsys.readouterr().err


# -- in a browser ------------------------------------------------------------------------------------------------


class User:
    """A user of the page."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get(url)
        self.wait(lambda: self.find("#task").text)

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [node.text for node in self.browser.find_elements("css selector", selector)]

    def run(self, script: str, *args: Any) -> Any:
        return self.browser.execute_script(script, *args)

    def wait(self, until: Any) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.browser, 20, poll_frequency=0.05).until(lambda _: until())

    def wait_for_caption(self, text: str) -> None:
        self.wait(lambda: text in self.find("#caption").text)

    def console_errors(self) -> list[Any]:
        return list(self.browser.get_log("browser"))


@pytest.fixture
def user(browser: Any, url: str) -> Iterator[User]:
    found = User(browser, url)
    yield found
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_choose_an_image_and_see_the_table(user: User, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import Select

    (tmp_path / "mine.png").write_bytes(png())
    assert "eurosat" in user.find("#removed").text, "removed checkpoints are named"
    user.find("#file").send_keys(str(tmp_path / "mine.png"))
    user.wait_for_caption("9 classes of 3 tasks")
    assert user.texts("thead th") == ["Rank", "before all tasks", "after 1. dtd", "after 3. actions"]
    assert [len(user.texts(f"tbody tr:nth-child({n}) td")) for n in range(1, 6)] == [3] * 5
    assert user.find("tbody tr:first-child td:last-child").get_attribute("class") == "best"
    assert "%" in user.find("#status").text
    assert user.find("#preview").get_attribute("alt") == "The image mine.png"
    Select(user.find("#task")).select_by_value("eurosat")
    user.wait_for_caption("3 classes of task eurosat")
    assert set(user.texts("td .of")) == {"eurosat"}
    names = user.find("#names")
    names.send_keys("a red thing, a blue thing", Keys.ENTER)
    user.wait_for_caption("2 classes named by you")
    assert set(user.texts("td > :first-child")) == {"a red thing", "a blue thing"}
    user.find("input[value=all]").click()
    user.wait_for_caption("9 classes of 3 tasks")
    assert not user.console_errors()


def test_drop_an_image_then_a_file_that_is_not_an_image(user: User) -> None:
    drop = """
    const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(arguments[0])], arguments[1], {type: "image/png"}));
    const drop = new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true});
    document.getElementById("drop").dispatchEvent(drop);
    return drop.defaultPrevented;
    """
    assert user.run(drop, list(png()), "dropped.png"), "otherwise the browser opens the file"
    user.wait_for_caption("9 classes of 3 tasks")
    assert not user.console_errors()
    user.run(drop, list(b"not at all"), "wrong.png")
    user.wait(lambda: user.find("#error").text)
    assert user.find("#error").text == "This is not an image, or a damaged one"
    assert not user.find("#results").is_displayed(), "no old table next to a new error"
    user.console_errors()  # the browser logs the status 415 itself
    user.run(drop, [0] * (MAX_BYTES + 1), "large.png")
    user.wait(lambda: "arge.png is larger than the 0.191 MiB" in user.find("#error").text)
    assert not user.console_errors(), "it was not sent"


def test_keyboard_screen_reader_and_both_colour_schemes(user: User) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    order = []
    for _ in range(6):
        ActionChains(user.browser).send_keys(Keys.TAB).perform()
        focused = user.browser.switch_to.active_element
        order.append(focused.get_attribute("id") or focused.get_attribute("value") or focused.get_attribute("class"))
    assert order[:5] == ["skip", "file", "all", "task", "names"]
    tree = user.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]}
    assert {("combobox", "Task"), ("textbox", "Class names, separated by commas"), ("radio", "one task")} <= named
    assert any(role == "button" and "Drop an image here" in (name or "") for role, name in named)
    for scheme, colour in (("light", LIGHT), ("dark", DARK)):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        user.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        assert user.run("return getComputedStyle(document.body).backgroundColor") == colour
    assert not user.console_errors()
