"""The commands of the README with the newest and the oldest releases that pyproject.toml admits, in environments of
their own: the tested versions are pinned, and what users get is not."""

import re, subprocess, sysconfig, tomllib, venv

import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def releases(age):
    "What pip is asked for; NumPy stays as it is, since the pandas that is shared asks for a later one than the oldest."
    lines = [line for line in DEPENDENCIES if not line.startswith("torch")]
    if age == "newest":
        return lines
    return [line.replace(">=", "==") for line in lines if not line.startswith("numpy")]


def environment(folder, age):
    "An environment with releases of the direct dependencies but torch, which it shares with this one."
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    where = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    packages = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    (folder / "shared.pth").write_text(sysconfig.get_path("purelib"))
    (folder / "shared.pth").rename(f"{packages}/shared.pth")
    command = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--upgrade",
        "--disable-pip-version-check",
        *releases(age),
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )
    if re.search(
        "No matching distribution|Could not find a version|ConnectionError|NewConnectionError",
        done.stderr,
    ):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr[-2000:]
    return python


@pytest.mark.slow
@pytest.mark.parametrize("age", ["newest", "oldest"])
def test_the_commands_run_with_the_releases_that_are_admitted(age, tmp_path):
    python = environment(tmp_path / age, age)
    settings = {
        "PYTHONPATH": str(ROOT),
        "XLNB_ROOT": str(tmp_path),
        "XLNB_RESULTS": str(tmp_path / "results"),
        "OMP_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }
    (tmp_path / "de.txt").write_text("Deutschland und Norwegen\nGeorgien\n")
    (tmp_path / "en.txt").write_text("Germany and Norway\nGeorgia\n")

    def xlnb(*arguments, text=""):
        program = "from xlnb.command import main; main()"
        done = subprocess.run(
            [python, "-c", program, *map(str, arguments)],
            input=text,
            capture_output=True,
            text=True,
            env=settings,
            cwd=tmp_path,
            timeout=600,
        )
        assert done.returncode == 0, f"{arguments[0]}: {done.stderr[-3000:]}"
        assert "deprecated" not in done.stderr, done.stderr
        return done.stdout

    few = ("--steps", 2, "--langs", "de,en", "--test_lines", 20, "--vocab_size", 300, "--out")
    xlnb("pretrain", "xlm-e", *few, tmp_path / "xlm-e")
    model = ("--model", tmp_path / "xlm-e" / "discriminator")
    assert xlnb("align", "de.txt", "en.txt", *model).count("\n") == 2
    assert xlnb("align", "de.txt", "en.txt").count("\n") == 2
    xlnb("encode", "de.txt", *model, "--output", "de.npy")
    assert (tmp_path / "de.npy").stat().st_size > 0
    chosen = ("--tasks", "cldr", "--langs", "en,de")
    assert "cldr" in xlnb("evaluate", *model, *chosen, "--out", tmp_path / "scores")
    direction = ("--source", "de", "--target", "en")
    xlnb("pretrain", "translator", *few, tmp_path / "translation", *direction)
    translator = ("--model", tmp_path / "translation" / "translator", "--beams", 2)
    assert xlnb("translate", *translator, text="Georgien\n\nNorwegen\n").count("\n") == 3
    words = ("--text", "de.txt", "--language", "de", "--min_count", 1, "--output", "de.vec")
    xlnb("distil", *model, *words)
    assert (tmp_path / "de.vec").stat().st_size > 0
    (tmp_path / "counts.csv").write_text("pair,count\nde-en,1000\nde-sw,10\nen-sw,20\n")
    assert "de-sw" in xlnb("sample", "counts.csv", "--temperature", 2)
