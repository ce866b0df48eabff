"Experiments: the listing of a real notebook, records that count, runs that end badly or are interrupted."
import fcntl, math, os, signal, subprocess, sys, threading, time

import pytest

from xlnb import experiments, xlm_e
from xlnb.core import ConfigError, read_records
from xlnb.experiments import (Experiment, Rule, filled_in, judge_rule, missing, plot_grid, rule_rows, run_missing,
                              run_one)


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


# ---- rules -----------------------------------------------------------------------------------------------------------

def runs_of(**arms): return {"toy": {arm: {seed: {"score": v} for seed, v in enumerate(values)}
                                     for arm, values in arms.items()}}


RISE = Rule("a above b", dict.fromkeys("ab", "toy"), lambda arms: arms["a"]["score"] - arms["b"]["score"])


@pytest.mark.parametrize("a, b, verdict, because", [
    ((3, 4, 5), (1, 2, 3), "reproduced", ""), ((1, 2, 3), (3, 4, 5), "contradicted", ""),
    ((1, 5, 3), (3, 1, 4), "not at this scale", "undecided"),
    ((3, 4), (1, 2), "not at this scale", "fewer than 3 seeds"),
    ((3, math.nan, 5), (1, 2, 3), "not at this scale", "no value")])
def test_two_standard_errors_decide_a_rule_without_a_sign(a, b, verdict, because):
    row = judge_rule(RISE, runs_of(a=a, b=b))
    assert (row["verdict"], row["because"], row["seeds"]) == (verdict, because, min(len(a), len(b)))


@pytest.mark.parametrize("sign, verdict, counted", [
    (lambda n: 1 if n > 1 else -1, "reproduced", (2, 1)), (lambda n: -1, "contradicted", (0, 3)),
    (lambda n: 0, "not at this scale", (0, 0)), (lambda n: 1 if n > 3 else 0, "not at this scale", (1, 0))])
def test_most_seeds_decide_a_rule_with_a_sign(sign, verdict, counted):
    row = judge_rule(Rule(RISE.measure, RISE.arms, RISE.number, sign), runs_of(a=(3, 4, 5), b=(1, 0, 4)))
    assert (row["verdict"], (row["for"], row["against"])) == (verdict, counted)


@pytest.mark.parametrize("baselines, verdict, because", [
    ({"low": lambda r: 1.0}, "reproduced", ""),
    ({"low": lambda r: 1.0, "high": lambda r: 4.0}, "not at this scale", "a no better than high"),
    ({"some lack it": lambda r: math.nan if r["score"] == 3 else 1.0}, "reproduced", "")])
def test_a_rule_says_nothing_of_an_arm_that_is_no_better_than_what_is_free(baselines, verdict, because):
    rule = Rule(RISE.measure, RISE.arms, RISE.number, None, "a", lambda r: r["score"], baselines)
    row = judge_rule(rule, runs_of(a=(3, 4, 5), b=(1, 2, 3)))
    assert (row["verdict"], row["because"]) == (verdict, because)


def test_a_rule_beside_a_baseline_that_nobody_ran_is_refused():
    rule = Rule("a rise", RISE.arms, RISE.number, None, "a", lambda r: r["score"], {"lsa": lambda r: math.nan})
    with pytest.raises(ConfigError, match="a rise: no record has 'lsa'"): judge_rule(rule, runs_of(a=(3, 4), b=(1, 2)))


def test_rules_without_runs_have_no_rows():
    rules = {"toy-01": [RISE], "toy-02": []}
    assert rule_rows(rules, {}) == rule_rows(rules, runs_of(a=(3, 4))) == []
    assert [row["claim"] for row in rule_rows(rules, runs_of(a=(3, 4), b=(1, 2)))] == ["toy-01"]


def test_a_figure_has_a_panel_for_what_is_on_record():
    groups = {"a": [{"x": 1.0}, {"x": 2.0}], "b": [{"x": 3.0}]}
    measures = {"x": lambda r: r["x"], "y": lambda r: r.get("y", math.nan)}
    assert [ax.get_title(loc="left") for ax in plot_grid(groups, measures).axes] == ["x"]
    with pytest.raises(ConfigError, match="any of these measures: y"): plot_grid(groups, {"y": measures["y"]})
