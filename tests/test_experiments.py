"Experiments: the listing of a real notebook, records that count, runs that end badly or are interrupted."
import fcntl, os, signal, subprocess, sys, threading, time

import pytest

from xlnb import experiments, xlm_e
from xlnb.core import read_records
from xlnb.experiments import Experiment, filled_in, missing, run_missing, run_one


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


def test_a_run_that_another_process_holds_is_left_alone_with_its_log(tmp_path):
    output, stop = tmp_path / "arm-seed0.ipynb", threading.Event()
    output.with_suffix(".log").write_text("what the other process wrote")
    with open(output.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_one([sys.executable, "-c", "print(1)"], output, stop) == "running elsewhere"
    assert output.with_suffix(".log").read_text() == "what the other process wrote"
    assert run_one([sys.executable, "-c", "print(1)"], output, stop) == "done"
    assert output.with_suffix(".log").read_text() == "1\n"


@pytest.mark.slow
def test_a_missing_run_goes_through_papermill_and_is_then_on_record(checkout, monkeypatch):
    monkeypatch.setenv("XLNB_ROOT", str(checkout))
    shared = dict(steps=3, test_lines=20, langs="en,ru")
    small = Experiment("Three steps.", {"MLM": {"tasks": "mlm"}}, shared, seeds=(0,))
    assert run_missing("03_xlm_e", "small", missing(small, xlm_e, read_records("03_xlm_e")), workers=1) == []
    assert missing(small, xlm_e, read_records("03_xlm_e")) == []
