"The scripts of `examples/` at tiny size, with stand-ins for SLURM's commands that run everything here."

import os, subprocess, sys
from pathlib import Path

import pytest
from conftest import ROOT
from test_preparation import SBATCH
from test_processes import free_port, write_text
from test_tokens import WORDS, word_tokenizer

from xlnb.text.tokens import open_store
from xlnb.training.training import read_log

pytestmark = pytest.mark.slow

SRUN = """#!/bin/bash
for node in $(seq 0 $((SLURM_NNODES - 1))); do
    SLURM_NODEID=$node "$@" &
    started="$started $!"
done
for process in $started; do wait "$process" || exit 1; done
"""
XLNB = """#!/bin/bash
exec {python} -c 'from xlnb.command import main; main()' "$@"
"""
TINY = (
    "--size tiny --width 32 --layers 2 --steps 4 --batch-tokens 256 --micro-tokens 128 --tasks mlm"
)


def environment(folder: Path, **programs: str) -> dict:
    "Variables of the scripts, with these programs before all others."
    (folder / "bin").mkdir()
    for name, program in programs.items():
        (folder / "bin" / name).write_text(program)
        (folder / "bin" / name).chmod(0o755)
    write_text(folder / "text")
    word_tokenizer(WORDS).save_pretrained(folder / "vocabulary")
    paths = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {
        "PATH": os.pathsep.join(paths),
        "TEXT": str(folder / "text"),
        "VOCABULARY": str(folder / "vocabulary"),
        "XLNB_ROOT": str(folder),
        "XLNB_RESULTS": str(folder / "results"),
        "OMP_NUM_THREADS": "1",
    }


def run(script: str, variables: dict):
    done = subprocess.run(
        ["bash", ROOT / "examples" / script],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("nodes, gpus", [(1, 2), (2, 1)])
def test_two_processes_train_by_the_script(tmp_path, nodes, gpus):
    variables = environment(tmp_path, srun=SRUN, scontrol="#!/bin/bash\necho 127.0.0.1\n")
    variables |= {
        "LANGUAGES": "de,en",
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NODELIST": "here",
        "GPUS": str(gpus),
        "PORT": str(free_port()),
        "OUT": str(tmp_path / "run"),
        "OPTIONS": TINY,
    }
    assert "finished: 4 of 4 steps" in run("xlm_e_base.slurm", variables)
    assert [line["step"] for line in read_log(tmp_path / "run")] == [0, 1, 2, 3]


def test_two_tasks_prepare_by_the_script(tmp_path):
    pytest.importorskip("datatrove")
    variables = environment(
        tmp_path,
        sbatch=SBATCH.format(python=sys.executable),
        srun='#!/bin/bash\nshift 3\nexec "$@"\n',
        scontrol="#!/bin/bash\necho here\n",
        merge_stats="#!/bin/bash\n",
        xlnb=XLNB.format(python=sys.executable),
    )
    output = f"--output {tmp_path / 'store'} --langs de,en"
    run(
        "prepare_100_languages.sh",
        variables | {"PARTITION": "cpu", "TASKS": "2", "OPTIONS": output},
    )
    assert set(open_store(tmp_path / "store").text) == {"de", "en"}
