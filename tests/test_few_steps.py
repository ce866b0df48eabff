"""The notebooks that train, by papermill with a few steps: every cell runs, and a record is left.

`make test-all` runs them at their defaults."""

import json, os
from pathlib import Path

import pytest
from warm import run_notebook

from xlnb.base.terminal import notebook_parameters

ROOT = Path(__file__).parents[1]
ELSEWHERE = (
    "03_xlm_e",  # tests/test_papermill.py runs it as users do
    "03b_negatives",  # it shows records of other notebooks, which lie in the checkout
)
FEW = {
    "steps": 12,
    "meta_steps": 3,
    "domain_steps": 3,
    "pretraining_steps": 3,
    "transfer_steps": 3,
    "test_lines": 16,
    "epochs": 2,
    "max_minutes": 0.06,
}
FEWER_LANGUAGES = {"04_xy_lent": "de,en,ru", "05_meta_xlm": "en,ru", "06_veco": "en,ru"}
PARAMETERS = {
    path: notebook_parameters(json.loads(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "nbs").rglob("*.ipynb"))
    if ".ipynb_checkpoints" not in path.parts
}
NO_RECORD = (
    "07_x2static",  # it distils from a network made on the spot, as a lesson
    # they show the records on file: a run has to be asked for by its arm or tasks
    "08d_real_objectives",
    "08e_real_meta_xlm",
    "08f_real_translation",
    "08h_real_transfer",
    "08i_real_tasks",
)
NOT_STOPPED = ("04c_continued",)  # its second part needs the first one finished
TRAINING = [
    pytest.param(path, marks=[pytest.mark.slow] * (path.parent.name == "results"), id=path.stem)
    for path, names in PARAMETERS.items()
    if "steps" in names and path.stem not in ELSEWHERE
]


@pytest.mark.parametrize("path", TRAINING)
def test_the_notebook_runs_with_a_few_steps(path, tmp_path):
    given = {name: value for name, value in FEW.items() if name in PARAMETERS[path]}
    if path.stem in FEWER_LANGUAGES:
        given["langs"] = FEWER_LANGUAGES[path.stem]
    if path.stem in NOT_STOPPED:
        given["max_minutes"] = 10
    folders = {
        f"XLNB_{name}": str(tmp_path / name.lower()) for name in ("ROOT", "RESULTS", "FIGURES")
    }
    done = run_notebook(path, tmp_path / "out.ipynb", given, env={**os.environ, **folders})
    assert done.returncode == 0, done.stderr[-3000:]
    records = [*(tmp_path / "results").glob(f"{path.stem}.*.jsonl")]
    assert bool(records) == (path.stem not in NO_RECORD)
