"The XLM-E notebook in JupyterLab, in a headless Chromium: all cells run, figures appear, no error does."

import os, re, shutil, socket, subprocess, sys, time, urllib.error, urllib.request
from contextlib import contextmanager

import nbformat, pytest

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'"
)
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-dev-shm-usage",
]
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": '{"fetchNews": "false"}',  # its pop-up covers the notebook
    "@jupyterlab/notebook-extension/tracker": '{"windowingMode": "none"}',  # draw all cells, not those near the window
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def jupyterlab(root, state):
    "Address of a JupyterLab that serves `root` and keeps everything of its own in `state`."
    for name, text in SETTINGS.items():
        path = state / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "JUPYTER_CONFIG_DIR": str(state / "config"),
        "JUPYTER_DATA_DIR": str(state / "data"),
        "JUPYTER_RUNTIME_DIR": str(state / "runtime"),
        "IPYTHONDIR": str(state / "ipython"),
        "JUPYTERLAB_SETTINGS_DIR": str(state / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(state / "workspaces"),
    }
    for name in ("MPLBACKEND", "XLNB_ROOT"):
        environment.pop(name, None)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={root}",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.ip=127.0.0.1",
        "--IdentityProvider.token=t",
        "--LabApp.expose_app_in_browser=True",
        "--no-browser",
        "--allow-root",
    ]
    with open(state / "server.log", "w") as log:
        server = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(f"{address}/api/status?token=t", server, state / "server.log")
        yield address
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()


def wait_for(address, server, log, seconds=60):
    for _ in range(seconds * 4):
        assert server.poll() is None, log.read_text()
        try:
            return urllib.request.urlopen(address, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise AssertionError(f"JupyterLab did not answer in {seconds} s: {log.read_text()}")


def shorten(path, **values):
    "Set defaults in the cell tagged `parameters`."
    nb = nbformat.read(path, as_version=4)
    cell = next(cell for cell in nb.cells if "parameters" in cell.metadata.get("tags", []))
    for name, value in values.items():
        cell.source, n = re.subn(
            rf"^({name}: .+? = )[^#\n]+?(\s*#|$)", rf"\g<1>{value}\2", cell.source, flags=re.M
        )
        assert n == 1, f"no parameter {name}"
    for cell in nb.cells:
        cell.update({"outputs": []} if cell.cell_type == "code" else {})
    nbformat.write(nb, path)


# The open notebook's own data: in the page an error looks like any stderr, and long notebooks are
# drawn in part.
CELLS = """() => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
    .filter(cell => cell.cell_type == 'code').map(cell => ({
        ran: cell.execution_count, errors: cell.outputs.filter(o => o.output_type == 'error').map(o => o.evalue)}))"""
# in the status bar, once a kernel is connected and has nothing to do
IDLE = "text=/ipykernel.* \\| Idle/"


def run_all_cells(page):
    "Run the open notebook to its end or first error; what each cell did."
    page.click(".lm-MenuBar-itemLabel:text-is('Run')")
    page.click(".lm-Menu-itemLabel:text-is('Run All Cells')")
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        cells = page.evaluate(CELLS)
        if any(cell["errors"] for cell in cells):
            break
        if all(cell["ran"] for cell in cells) and page.is_visible(IDLE):
            break
        page.wait_for_timeout(500)
    return cells


@contextmanager
def opened(p, address, notebook, state):
    "The page of a notebook in JupyterLab, whose kernel is there."
    browser = p.chromium.launch_persistent_context(
        state / "profile",
        executable_path=BROWSER,
        args=FLAGS,
        viewport={"width": 1400, "height": 1000},
    )
    page = browser.pages[0]
    page.goto(f"{address}/lab/tree/{notebook}?token=t&reset")
    page.wait_for_selector(IDLE, timeout=90_000)
    yield page
    browser.close()


needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here (Debian, Ubuntu: apt-get install chromium)"
)


@pytest.mark.slow
@needs_browser
def test_xlm_e_runs_in_jupyterlab(checkout, tmp_path_factory):
    shorten(checkout / "nbs" / "03_xlm_e.ipynb", steps=3, langs='"en,ru"', test_lines=20)
    state = tmp_path_factory.mktemp("jupyter")
    with (
        jupyterlab(checkout, state) as address,
        playwright.sync_playwright() as p,
        opened(p, address, "nbs/03_xlm_e.ipynb", state) as page,
    ):
        assert not any(cell["ran"] for cell in page.evaluate(CELLS))
        cells = run_all_cells(page)
        page.screenshot(path=state / "notebook.png")
        assert [error for cell in cells for error in cell["errors"]] == []
        assert len(cells) > 3 and all(cell["ran"] for cell in cells), (
            f"cells did not run; see {state / 'notebook.png'}"
        )
        page.wait_for_timeout(1000)  # the last output is on its way to the page
        drawn = page.evaluate(
            "() => [...document.querySelectorAll('.jp-OutputArea img')].map(i => i.naturalWidth)"
        )
        assert drawn and min(drawn) > 100, "no figure, or an empty one"
    assert list((checkout / "runs" / "figures").glob("xlme_*.png"))


PANEL = """from xlnb.measures.alignment_panel import alignment_panel
alignment_panel({first!r}, {second!r}, {folder!r}, layer=0)"""


@pytest.mark.slow
@needs_browser
def test_the_slider_of_the_alignment_panel_redraws(saved_network, tmp_path):
    first, second = ("das Haus", "the house")
    source = PANEL.format(first=first, second=second, folder=str(saved_network))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "python3"}
    root = tmp_path / "root"
    state = tmp_path / "jupyter"
    root.mkdir()
    state.mkdir()
    nbformat.write(notebook, root / "panel.ipynb")
    with (
        jupyterlab(root, state) as address,
        playwright.sync_playwright() as p,
        opened(p, address, "panel.ipynb", state) as page,
    ):
        assert [cell["errors"] for cell in run_all_cells(page)] == [[]]
        title = page.locator(".xlnb-alignment svg > text").first
        assert title.text_content(timeout=60_000).startswith("layer 0 of 2 (embeddings)")
        page.locator(".xlnb-alignment .noUi-handle").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(".xlnb-alignment svg > text:text('layer 1 of 2')", timeout=60_000)
        field = page.locator(".xlnb-alignment input[type=text]").first
        field.fill("")
        field.press("Enter")
        page.wait_for_selector("text=the first sentence is empty", timeout=60_000)
        assert page.locator(".xlnb-alignment svg").count() == 0
