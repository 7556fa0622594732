"""The explorers in a real JupyterLab: a browser moves their controls by keyboard.

Needs the Python package ``playwright`` and a Chromium of the system (Debian: ``apt-get install
chromium``); skipped, with the reason, where one is missing.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

for package in ("playwright", "jupyterlab", "nbformat", "torch", "triton"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)

import nbformat  # noqa: E402
from playwright.sync_api import Locator, Page, expect, sync_playwright  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("trips", "roofline", "fusion", "block", "rows")
# Chromium as it comes asks its maker for updates and experiments; a test talks to no one.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-client-side-phishing-detection",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--metrics-recording-only",
)
NO_CHROMIUM = "no Chromium on this machine (Debian: apt-get install chromium)"
SECONDS = 1000  # playwright counts in milliseconds


def chromium() -> str | None:
    """The path of the system's Chromium, if there is one."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


def write_notebook(path: Path, sources: list[str]) -> None:
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": ""}},
    )
    nbformat.write(notebook, path)


def write_setting(folder: Path, plugin: str, setting: dict) -> None:
    path = folder / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(setting), encoding="utf-8")


class Lab(NamedTuple):
    """A running JupyterLab: the folder that it serves, its address and token."""

    folder: Path
    address: str
    token: str


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A JupyterLab that serves an empty folder and reads no one's settings."""
    if chromium() is None:
        pytest.skip(NO_CHROMIUM)
    folder = tmp_path_factory.mktemp("lab")
    settings, token = folder / ".settings", secrets.token_hex(16)
    # All cells at once, also those out of view; and nothing that asks the network or the user.
    write_setting(settings, "notebook-extension/tracker", {"windowingMode": "none"})
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    write_setting(settings, "apputils-extension/notification", quiet)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTER_DATA_DIR": str(folder / ".data"),
        "JUPYTER_RUNTIME_DIR": str(folder / ".runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / ".workspaces"),
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--ip=127.0.0.1"]
    command += [f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={token}"]
    command += ["--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"]
    with open(folder / "server.log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for_server(server, f"{address}/api/status?token={token}", folder / "server.log")
            yield Lab(folder, address, token)
        finally:
            server.terminate()  # shuts its kernels down too
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def wait_for_server(server: subprocess.Popen, url: str, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if server.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text(encoding='utf-8')[-2000:]}")


@pytest.fixture
def page() -> Iterator[Page]:
    """A page of a headless Chromium."""
    path = chromium()
    if path is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            page = browser.new_page(viewport={"width": 1100, "height": 1000})
            page.set_default_timeout(40 * SECONDS)
            yield page
        finally:
            browser.close()


def open_notebook(page: Page, lab: Lab, name: str) -> None:
    page.goto(f"{lab.address}/lab/tree/{name}?token={lab.token}&reset")
    page.wait_for_function("window.jupyterapp && window.jupyterapp.restored.then(() => true)")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()


def run_all(page: Page) -> None:
    # What is sent before the kernel is connected is lost in JupyterLab 4.6.
    page.wait_for_function(
        """() => {
            const context = window.jupyterapp.shell.currentWidget?.sessionContext;
            const kernel = context?.session?.kernel;
            return context?.isReady && kernel?.connectionStatus === "connected"
                && kernel.status === "idle";
        }"""
    )
    # Not awaited here: an evaluation knows no time-out.
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")


def picture(image: Locator) -> str:
    """A digest of the bytes that an <img> shows."""
    return image.evaluate(
        """async (image) => {
            await image.decode();
            const bytes = await (await fetch(image.src)).arrayBuffer();
            const digest = await crypto.subtle.digest("SHA-256", bytes);
            return Array.from(new Uint8Array(digest)).join(" ");
        }"""
    )


def wait_for_change(image: Locator, before: str) -> str:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with contextlib.suppress(Exception):  # the picture is being replaced just now
            if (now := picture(image)) != before:
                return now
        time.sleep(0.05)
    pytest.fail("the picture did not change")


def tab_stops(page: Page, first: Locator, last: Locator) -> list[str]:
    """What has the focus, in words, on the way from one control to another by the Tab key."""
    where = """() => {
        const here = document.activeElement;
        return here.getAttribute("role") || here.type || here.tagName.toLowerCase();
    }"""
    first.focus()
    stops = [page.evaluate(where)]
    for _ in range(40):
        if last.evaluate("here => here === document.activeElement"):
            return stops
        page.keyboard.press("Tab")
        stops.append(page.evaluate(where))
    pytest.fail(f"Tab never reached the last control: {stops}")


def test_explorers_redraw_in_jupyterlab_by_keyboard(page: Page, lab: Lab, tmp_path: Path):
    sources = ["import course_utils\n\nmachine = course_utils.setup()"]
    sources += [f"course_utils.explorers.{name}_explorer()" for name in NAMES]
    write_notebook(lab.folder / "explorers.ipynb", sources)
    open_notebook(page, lab, "explorers.ipynb")
    run_all(page)
    cells = page.locator(".jp-CodeCell")
    for index, name in enumerate(NAMES, start=1):
        cell = cells.nth(index)
        image = cell.locator("img.widget-image")
        image.wait_for()
        expect(cell.locator(".jp-RenderedImage")).to_have_count(0)  # controls, no second picture
        expect(cell.locator(".jp-RenderedMarkdown")).to_be_visible()  # the caption
        cell.scroll_into_view_if_needed()
        before = picture(image)
        said = cell.locator(".widget-html [aria-live]")
        words = said.inner_text()
        cell.screenshot(path=tmp_path / f"{name}_before.png")

        slider = cell.get_by_role("slider").first
        slider.focus()
        page.keyboard.press("ArrowRight")
        now = wait_for_change(image, before)
        expect(said).not_to_have_text(words)

        cell.locator("select", has=page.locator("option", has_text="T4")).focus()
        page.keyboard.type("T4")
        wait_for_change(image, now)
        expect(said).to_contain_text("T4")
        cell.screenshot(path=tmp_path / f"{name}_after.png")
        assert cell.locator('[role="alert"]').count() == 0

    trips = cells.nth(1)
    said = trips.locator(".widget-html [aria-live]")
    words = said.inner_text()
    trips.get_by_role("button", name="bfloat16").focus()
    page.keyboard.press("Space")
    expect(said).not_to_have_text(words)  # half the bytes
    first, last = trips.locator("input[type=checkbox]").first, trips.locator("select").last
    stops = tab_stops(page, first, last)
    assert stops.count("checkbox") == 10  # nine ops and "in place"
    assert stops.count("slider") == 1
    assert stops.count("select-one") == 1  # GPU

    rows = cells.nth(1 + NAMES.index("rows"))
    a_program = rows.locator("select").first.locator("option")
    expect(a_program).to_have_count(1)  # a loop has one row
    rows.get_by_role("button", name="several rows").focus()
    page.keyboard.press("Space")
    expect(a_program).to_have_text(["2", "4", "8"])
    expect(rows.locator(".widget-html [aria-live]")).to_contain_text("programs of 4 rows each")
    rows.screenshot(path=tmp_path / "rows_several.png")

    page.evaluate(
        "void window.jupyterapp.commands.execute("
        "'apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
    page.locator("#jupyterlab-splash").wait_for(state="detached")
    trips.screenshot(path=tmp_path / "trips_dark.png")


def test_a_saved_explorer_shows_its_picture_without_a_kernel(page: Page, lab: Lab, tmp_path: Path):
    """As a notebook is committed: executed, without widget state, and not run by the reader."""
    from course_utils.explorers import roofline_explorer

    data, metadata = roofline_explorer()._repr_mimebundle_()
    del data["application/vnd.jupyter.widget-view+json"]
    path = lab.folder / "saved.ipynb"
    write_notebook(path, ["course_utils.explorers.roofline_explorer()"])
    notebook = nbformat.read(path, as_version=4)
    output = nbformat.v4.new_output("display_data", data=data, metadata=metadata)
    notebook.cells[0].outputs = [output]
    nbformat.write(notebook, path)
    open_notebook(page, lab, "saved.ipynb")
    image = page.locator(".jp-RenderedImage img")
    image.wait_for()
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1080
    assert image.get_attribute("width") == "720"
    page.screenshot(path=tmp_path / "saved.png")
