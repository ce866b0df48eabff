"Experiments: the listing of a real notebook, records that count, runs that end badly or are interrupted."
import os, signal, subprocess, sys, time

import pytest

from xlnb import experiments, xlm_e
from xlnb.experiments import filled_in, missing, run_missing


def test_every_experiment_of_xlm_e_can_be_resolved():
    assert xlm_e.EXPERIMENTS
    for experiment in xlm_e.EXPERIMENTS.values():
        assert experiment.claim.endswith(".")
        runs = [tuple(sorted(filled_in(xlm_e, given).items(), key=str)) for _, given in experiment.runs()]
        assert len(set(runs)) == len(runs), "two arms are the same run"


def test_a_record_counts_for_every_experiment_that_names_its_parameters():
    given = xlm_e.EXPERIMENTS["tasks"].runs()[0][1]
    record = {"parameters": {**filled_in(xlm_e, given), "max_minutes": 1.0, "out": "x"}, "run": {"finished": True}}
    todo = missing(xlm_e.EXPERIMENTS["tasks"], xlm_e, [record])
    assert len(todo) == len(xlm_e.EXPERIMENTS["tasks"].runs()) - 1
    unfinished = {**record, "run": {"finished": False}}
    assert len(missing(xlm_e.EXPERIMENTS["tasks"], xlm_e, [unfinished])) == len(todo) + 1


def test_a_failed_run_is_named_and_the_others_go_on(tmp_path, monkeypatch):
    (tmp_path / "settings.ini").touch()
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    write = lambda nb, given, output: [sys.executable, "-c", f"x = 1 / {given['seed']}; open({str(output)!r}, 'w')"]
    monkeypatch.setattr(experiments, "run_command", write)
    todo = [("arm", {"seed": seed}) for seed in (0, 1, 2)]
    failed = run_missing("toy", "grid", todo, workers=1, say=lambda line: None)
    assert len(failed) == 1 and "arm, seed 0: failed" in failed[0] and ".log" in failed[0]
    assert len(list(tmp_path.rglob("*.ipynb"))) == 2


@pytest.mark.parametrize("arguments, sentence", [
    (["03_xlm"], "did you mean '03_xlm_e'?"), (["03_xlm_e", "task"], "did you mean 'tasks'?"),
    (["00_core"], "names no experiments"), ([], "notebook")])
def test_misspelt_names_end_with_a_sentence(arguments, sentence):
    done = subprocess.run([sys.executable, "-m", "xlnb.experiments", *arguments], capture_output=True, text=True)
    assert done.returncode and sentence in done.stderr and "Traceback" not in done.stderr


def test_the_listing_runs_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-m", "xlnb.experiments", "03_xlm_e"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in xlm_e.EXPERIMENTS: assert f"{name}: " in done.stdout


def test_an_interrupt_ends_the_runs(tmp_path):
    (tmp_path / "settings.ini").touch()
    code = ("import sys\nfrom xlnb import experiments\n"
            "experiments.run_command = lambda nb, given, out: [sys.executable, '-c', 'import time; time.sleep(300)']\n"
            "experiments.run_missing('toy', 'grid', [('arm', {'seed': 0})], workers=1)")
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "XLNB_ROOT": str(tmp_path)},
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert "1 of 1" in process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    process.communicate(timeout=30)
    assert time.monotonic() - started < 20
