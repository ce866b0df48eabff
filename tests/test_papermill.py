"papermill's command line as people type it: at a terminal (a pseudo-terminal here) and redirected."

import fcntl, json, os, pty, re, select, shutil, struct, subprocess, sys, termios, time
from pathlib import Path

import nbformat, pytest
from conftest import ROOT
from papermill.inspection import inspect_notebook

from xlnb.base.terminal import notebook_parameters

ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "OMP_NUM_THREADS": "1",
}
for name in ("XLNB_ROOT", "XLNB_RESULTS", "XLNB_FIGURES"):
    ENVIRONMENT.pop(name, None)


def at_terminal(*command, cwd, timeout=60, interrupt_at=None):
    "Exit status and everything shown of a command at a terminal of 24 x 100; Ctrl-C is pressed when a text is shown."
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    shown = b""
    deadline = time.monotonic() + timeout
    try:
        while select.select([master], [], [], max(0, deadline - time.monotonic()))[0]:
            try:
                block = os.read(master, 65536)
            except OSError:
                break  # Linux's way to say that the other end is closed
            if not block:
                break
            shown += block
            if interrupt_at and interrupt_at in shown.decode(errors="replace"):
                os.write(master, b"\x03")
                interrupt_at = None
        return process.wait(timeout=max(1, deadline - time.monotonic())), shown.decode()
    finally:
        process.kill()
        process.wait()
        os.close(master)


def redirected(*command, cwd, timeout=60):
    "Exit status, stdout and stderr of a command with no terminal."
    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path):
    "A folder with a notebook that leaves a file behind when it runs."
    parameters = nbformat.v4.new_code_cell(
        'size: str = "tiny" # tiny | base\nlangs: str = "en,el,ka" # codes',
        metadata={"tags": ["parameters"]},
    )
    body = nbformat.v4.new_code_cell(
        "from xlnb.base.core import choose\n"
        'open("ran", "w").write(choose("size", size, ["tiny", "base"]))'
    )
    nb = nbformat.v4.new_notebook(cells=[parameters, body])
    nb.metadata["kernelspec"] = {"name": "python3", "display_name": "python3", "language": "python"}
    nbformat.write(nb, tmp_path / "toy.ipynb")
    return tmp_path


def without_our_imports(path):
    nb = nbformat.read(path, as_version=4)
    nb.cells[1].source = 'open("ran", "w").write(size)'
    nbformat.write(nb, path)


@pytest.mark.parametrize(
    "command", [["papermill"], [sys.executable, "-m", "papermill"]], ids=["command", "module"]
)
def test_as_typed_at_a_terminal(folder, command):
    before = (folder / "toy.ipynb").read_bytes()
    status, shown = at_terminal(*command, "toy.ipynb", "-p", "size", "base", cwd=folder)
    assert status == 0, shown
    assert (folder / "ran").read_text() == "base"
    assert "runs/toy-base.ipynb" in shown and (folder / "runs" / "toy-base.ipynb").exists()
    assert (folder / "toy.ipynb").read_bytes() == before


@pytest.fixture
def training(folder):
    "The same, with a cell that says how far it is, as a training does, and a cell that is quiet."
    nb = nbformat.read(folder / "toy.ipynb", as_version=4)
    nb.cells[1:] = [
        nbformat.v4.new_code_cell(source)
        for source in (
            'import time\nfrom xlnb.base.core import progress\nprogress("en, el, ka\\n12 '
            'steps", keep=True)',
            'for i in range(12):\n    progress(f"step {i} of 12, loss 3.2")\n    time.sleep(0.2)',
            "time.sleep(2)",
        )
    ]
    nbformat.write(nb, folder / "toy.ipynb")
    return folder


def on_screen(shown):
    "Lines as they stand in the end, after every carriage return has done its work."
    lines = shown.replace("\r\n", "\n").split("\n")
    return [line.rpartition("\r")[2].rstrip() for line in lines]


def test_progress_stands_at_the_terminal(training):
    status, shown = at_terminal("papermill", "toy.ipynb", cwd=training)
    assert status == 0, shown
    assert re.search(r"\r2 of 4 cells, \d\d:\d\d, step \d of 12, loss 3.2", shown), shown
    assert re.search(r"\r3 of 4 cells, \d\d:\d\d *\r", shown), "a cell that is over left its line"
    screen = on_screen(shown)
    assert screen[-4:-2] == ["en, el, ka", "12 steps"], "what is kept stays, the bar is erased"
    assert (
        screen[-2].startswith("notebook: ")
        and screen[-2].endswith("toy-tiny.ipynb")
        and screen[-1] == ""
    )
    assert "warning" not in shown.lower()


def test_progress_is_not_shown_without_a_terminal(training):
    status, out, err = redirected("papermill", "toy.ipynb", "out.ipynb", cwd=training)
    assert status == 0 and "step" not in out + err and "Executing: 100%" in err


def test_an_interrupt_ends_with_one_line(training):
    status, shown = at_terminal("papermill", "toy.ipynb", cwd=training, interrupt_at=" of 12, loss")
    assert status == 130
    assert on_screen(shown)[-2:] == [
        "interrupted; the same command goes on from the last checkpoint",
        "",
    ]
    assert "Traceback" not in shown and "Aborted" not in shown and "ERROR" not in shown


def test_output_goes_to_runs_of_the_checkout(checkout, folder):
    "From inside nbs/ too; `checkout` and `folder` are the same temporary folder."
    (folder / "toy.ipynb").rename(checkout / "nbs" / "toy.ipynb")
    status, shown = at_terminal("papermill", "toy.ipynb", cwd=checkout / "nbs")
    assert status == 0, shown
    assert (checkout / "runs" / "toy-tiny.ipynb").exists()


@pytest.mark.slow
def test_a_run_changes_nothing_that_git_tracks(checkout, folder):
    nb = nbformat.read(folder / "toy.ipynb", as_version=4)
    nb.cells[1].source = (
        "from xlnb.base.core import append_record, figure, save_figure\n"
        'fig, ax = figure()\nsave_figure(fig, "toy")\nappend_record("03_xlm_e", {"n": 1}, "cldr")'
    )
    (folder / "toy.ipynb").unlink()
    nbformat.write(nb, checkout / "nbs" / "toy.ipynb")
    shutil.copy(Path(__file__).parents[1] / ".gitignore", checkout)

    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=checkout, check=True, capture_output=True
        ).stdout.decode()

    git("init", "-q")
    git("add", ".")
    git(
        "-c",
        "user.name=xlnb",
        "-c",
        "user.email=xlnb@users.noreply.example",
        "commit",
        "-q",
        "-m",
        "as it was",
    )
    status, shown = at_terminal("papermill", "nbs/toy.ipynb", cwd=checkout)
    assert status == 0, shown
    assert (checkout / "runs" / "results" / "03_xlm_e.cldr.jsonl").exists()
    assert (checkout / "runs" / "figures" / "toy.svg").exists()
    assert git("status", "--porcelain") == ""


def test_a_named_output_is_respected_and_its_folder_made(folder):
    status, shown = at_terminal("papermill", "toy.ipynb", "new/out.ipynb", cwd=folder)
    assert status == 0, shown
    assert (folder / "new" / "out.ipynb").exists() and not (folder / "runs").exists()


@pytest.mark.slow
def test_other_notebooks_are_left_alone(folder):
    "papermill's own answers: a missing output path at a terminal, and unknown parameters that pass."
    without_our_imports(folder / "toy.ipynb")
    status, shown = at_terminal("papermill", "toy.ipynb", cwd=folder)
    assert status == 2 and "Missing argument 'OUTPUT_PATH'" in shown
    assert (
        redirected("papermill", "toy.ipynb", "out.ipynb", "-p", "sise", "base", cwd=folder)[0] == 0
    )


def test_redirected_output_is_the_notebook(folder):
    status, out, _ = redirected("papermill", "toy.ipynb", "-p", "size", "base", cwd=folder)
    assert status == 0 and (folder / "ran").read_text() == "base"
    assert any(
        "injected-parameters" in cell["metadata"]["tags"] for cell in json.loads(out)["cells"]
    )
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    "given", [("-p", "sise", "base"), ("-r", "sise", "base"), ("-y", "{sise: base}")]
)
def test_misspelt_parameter_stops_before_anything_runs(folder, given):
    status, shown = at_terminal("papermill", "toy.ipynb", *given, cwd=folder)
    assert status == 2 and "did you mean 'size'?" in shown
    status, _, shown = redirected("papermill", "toy.ipynb", "out.ipynb", *given, cwd=folder)
    assert status == 2 and "did you mean 'size'?" in shown and "Traceback" not in shown
    assert [p.name for p in folder.iterdir()] == ["toy.ipynb"]


def test_a_misspelt_value_is_answered_as_a_misspelt_name_is(folder):
    status, shown = at_terminal("papermill", "toy.ipynb", "-p", "size", "bse", cwd=folder)
    assert status == 2 and "size='bse' is not one of tiny, base; did you mean 'base'?" in shown
    assert "Traceback" not in shown


def test_failing_cell_fails_the_command(folder):
    nb = nbformat.read(folder / "toy.ipynb", as_version=4)
    nb.cells[1].source = "import xlnb\n1 / 0"
    nbformat.write(nb, folder / "toy.ipynb")
    status, shown = at_terminal("papermill", "toy.ipynb", cwd=folder)
    assert status == 1 and "ZeroDivisionError" in shown


# ---------------------------------------------------------------- the real notebook

SHORT = ["-p", "steps", "3", "-p", "max_minutes", "5"]
SMALL = [*SHORT, "-p", "langs", "en,ru", "-p", "test_lines", "20"]


def test_help_is_the_manual(checkout):
    status, out, _ = redirected("papermill", "nbs/03_xlm_e.ipynb", "--help-notebook", cwd=checkout)
    assert status == 0
    names = notebook_parameters(json.loads((checkout / "nbs" / "03_xlm_e.ipynb").read_text()))
    assert {
        "size",
        "corpus",
        "langs",
        "tasks",
        "steps",
        "batch_tokens",
        "rtd_weight",
        "alpha",
        "seed",
        "max_minutes",
        "recipe",
        "out",
    } <= names.keys()
    assert all(f"  {name}: " in out for name in names) and "Unknown type" not in out


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").rglob("*.ipynb")), ids=lambda p: p.stem)
def test_no_parameter_is_missing_in_the_help(path):
    "papermill takes a second = in a line for that of an assignment, and skips the parameter."
    names = notebook_parameters(json.loads(path.read_text(encoding="utf-8")))
    assert {*inspect_notebook(path)} == {*names}


def test_xlm_e_as_typed_at_a_terminal(checkout):
    status, shown = at_terminal(
        "papermill", "nbs/03_xlm_e.ipynb", *SMALL, cwd=checkout, timeout=400
    )
    assert status == 0, shown[-3000:]
    nb = nbformat.read(checkout / "runs" / "03_xlm_e-tiny.ipynb", as_version=4)
    found = [output for cell in nb.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in found), (
        "no figure in the executed notebook"
    )
    assert not [output for output in found if output.output_type == "error"]
    assert list((checkout / "runs" / "figures").glob("xlme_*.svg")), "no figure was written"
    records = (checkout / "runs" / "results" / "03_xlm_e.cldr.jsonl").read_text().splitlines()
    assert json.loads(records[-1])["notebook"] == "03_xlm_e"


@pytest.mark.parametrize(
    "given, said, status",
    [
        (["-p", "sise", "base"], "did you mean 'size'?", 2),
        (["-p", "lam", "5"], "now called 'rtd_weight'", 2),
        (["-p", "langs", "en,gr"], "language 'gr'", 2),
        (["-p", "size", "bsae"], "did you mean 'base'?", 2),
    ],
    ids=["name", "former name", "language", "size"],
)
@pytest.mark.slow
def test_xlm_e_refuses_what_it_does_not_know(checkout, given, said, status):
    found, shown = at_terminal(
        "papermill", "nbs/03_xlm_e.ipynb", *given, *SHORT, cwd=checkout, timeout=120
    )
    assert found == status and said in shown, shown[-3000:]
    assert "Traceback" not in shown and not list((checkout / "runs").glob("*.ipynb")), (
        "a notebook was left behind"
    )
    assert not (checkout / "runs" / "figures").exists()
