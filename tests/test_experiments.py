"Experiments: the listing of a real notebook, records that count, runs that end badly or are interrupted."

import fcntl, json, math, os, re, signal, subprocess, sys, threading, time
from dataclasses import asdict, dataclass, replace
from operator import itemgetter

import pytest
from warm import run_module

from xlnb.base.core import ConfigError, DataError, repo_root
from xlnb.pretraining import experiments
from xlnb.pretraining.experiments import (
    Experiment,
    Grid,
    check_one_start,
    run_identity,
    finished_runs,
    missing,
    plot_grid,
    recipe_of,
    records_of,
    run_missing,
    run_one,
    run_rows,
    runs_of_size,
)
from xlnb.pretraining.reports import current_parameters


@pytest.fixture(scope="module")
def xlm_e():
    return recipe_of("03_xlm_e")


def test_every_experiment_of_xlm_e_can_be_resolved(xlm_e):
    assert xlm_e.experiments
    for experiment in xlm_e.experiments.values():
        assert experiment.claim.endswith(".")
        runs = [
            tuple(sorted(run_identity(xlm_e, given).items(), key=str))
            for _, given in experiment.runs()
        ]
        assert len(set(runs)) == len(runs), "two arms are the same run"


def test_a_record_counts_for_every_experiment_that_names_its_parameters(xlm_e):
    given = xlm_e.experiments["tasks"].runs()[0][1]
    record = {
        "parameters": {**run_identity(xlm_e, given), "max_minutes": 1.0, "out": "x"},
        "run": {"finished": True},
    }
    todo = missing(xlm_e.experiments["tasks"], xlm_e, [record])
    assert len(todo) == len(xlm_e.experiments["tasks"].runs()) - 1
    unfinished = {**record, "run": {"finished": False}}
    assert len(missing(xlm_e.experiments["tasks"], xlm_e, [unfinished])) == len(todo) + 1


# ---- parameters that are gone
# ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToySettings:
    rate: float = 0.1
    seed: int = 0
    out: str = ""

    def for_record(self):
        return asdict(self)


TOY = Experiment("A toy.", {"slow": {}, "fast": {"rate": 0.5}}, {}, seeds=(0,))


RECIPE = Grid("99_toy", ToySettings, lambda settings: settings, {"grid": TOY}, frozenset({"out"}))


def record(finished=True, **parameters):
    return {"parameters": parameters, "run": {"finished": finished}}


def test_a_record_with_an_unknown_parameter_is_refused_by_name():
    records = [record(seed=0), record(seed=0, tied=False), record(seed=0, tied=True, size=3)]
    with pytest.raises(ConfigError) as refused:
        records_of(TOY, RECIPE, records)
    for words in (
        "3 finished records of 99_toy",
        "tied=False in no. 2, 2 in all",
        "size=3 in no. 3, 1 in all",
    ):
        assert words in str(refused.value)
    assert records_of(TOY, RECIPE, [record(finished=False, tied=False), records[0]])["slow"] == {
        0: records[0]
    }


@pytest.mark.parametrize(
    "damaged", [{}, {"parameters": {}, "run": {}}, {"parameters": [], "run": {"finished": True}}]
)
def test_a_record_that_lacks_a_part_is_named(damaged):
    with pytest.raises(DataError, match="record 2 of 99_toy, the oldest first, lacks"):
        records_of(TOY, RECIPE, [record(seed=0), damaged])


@pytest.mark.parametrize(
    "renamed, given, arm",
    [
        ({"speed": "rate"}, {"speed": 0.5}, "fast"),
        ({"colour": None}, {"colour": "red"}, "slow"),
        ({"speed": ("rate", {"high": 0.5, "low": 0.1})}, {"speed": "high"}, "fast"),
        ({"tied": lambda tied: tied}, {"tied": True, "rate": 0.5}, "fast"),
        ({}, {"out": "elsewhere"}, "slow"),
    ],
)
def test_what_became_of_a_parameter_is_read_from_the_recipe(renamed, given, arm):
    one = record(seed=0, **given)
    assert finished_runs({"toy": TOY}, replace(RECIPE, renamed=renamed), [one]) == {
        "toy": {arm: {0: one}}
    }


def test_parameters_of_every_paper_are_read_under_their_current_names():
    old = record(seed=0, relative_start="random", relative_across="own")
    assert current_parameters(old) == {
        "seed": 0,
        "relative_bias_init": "random",
        "cross_sentence_buckets": "separate",
    }


@dataclass(frozen=True)
class StartedSettings(ToySettings):
    init: str = "here-152f33691ee0"


@pytest.mark.parametrize(
    "init, counts",
    [("here-152f33691ee0", True), ("elsewhere-1-152f33691ee0", True), ("here-94b1c0de77aa", False)],
)
def test_a_start_is_told_by_its_weights_and_not_by_its_folder(init, counts):
    recipe = replace(RECIPE, Settings=StartedSettings)
    old = record(seed=0, init=init)
    assert bool(records_of(TOY, recipe, [old])["slow"]) == counts


def test_a_parameter_that_came_later_is_read_as_it_was_before():
    old = record(seed=0)
    new = record(seed=0, rate=0.5)
    recipe = replace(RECIPE, former_values={"rate": 0.5})
    assert records_of(TOY, recipe, [old]) == {"slow": {}, "fast": {0: old}}
    assert records_of(TOY, recipe, [old, new])["fast"] == {0: new}


@pytest.mark.parametrize(
    "renamed, given, name",
    [
        ({"tied": lambda tied: tied}, {"tied": False}, "tied=False"),
        ({"speed": "pace"}, {"speed": 1}, "speed=1"),
        ({"speed": ("rate", {"high": 0.5})}, {"speed": "low"}, "speed='low'"),
        ({"speed": "rate"}, {"rate": 0.1, "speed": 0.5}, "speed=0.5"),
    ],
)
def test_a_table_of_renames_lets_nothing_else_through(renamed, given, name):
    with pytest.raises(ConfigError, match=name):
        records_of(TOY, replace(RECIPE, renamed=renamed), [record(seed=0, **given)])


def test_runs_from_different_networks_are_refused_by_name():
    runs = {0: {"start": "copy-1"}, 1: {"start": "copy-1"}}
    check_one_start({"grid": {"slow": runs, "fast": runs}}, itemgetter("start"))
    apart = {"slow": runs, "fast": {0: {"start": "copy-2"}}}
    with pytest.raises(DataError, match="runs of grid start from different networks, copy-1, cop"):
        check_one_start({"grid": apart}, itemgetter("start"))


# ---- running
# ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["", "/elsewhere"])
def test_the_records_of_runs_are_kept_in_the_repository(tmp_path, monkeypatch, given):
    (tmp_path / "settings.ini").touch()
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    monkeypatch.setenv("XLNB_RESULTS", given)
    output = tmp_path / "arm.ipynb"
    ask = "import os; print(os.environ['XLNB_RESULTS'])"
    assert run_one([sys.executable, "-c", ask], output, threading.Event()) == "done"
    assert output.with_suffix(".log").read_text().strip() == (
        given or str(tmp_path / "data" / "results")
    )


def test_a_failed_run_is_named_and_the_others_continue(tmp_path, monkeypatch):
    (tmp_path / "settings.ini").touch()
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))

    def write(nb, given, output):
        return [sys.executable, "-c", f"x = 1 / {given['seed']}; open({str(output)!r}, 'w')"]

    monkeypatch.setattr(experiments, "run_command", write)
    todo = [("arm", {"seed": seed}) for seed in (0, 1, 2)]
    failed = run_missing("toy", "grid", todo, workers=1, report=lambda line: None)
    assert len(failed) == 1 and "arm, seed 0: failed" in failed[0] and ".log" in failed[0]
    assert len(list(tmp_path.rglob("*.ipynb"))) == 2


@pytest.fixture
def command(monkeypatch):
    "The command line's function, which leaves this process's answer to a signal as it is."
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return experiments.main


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["03_xlm"], "did you mean '03_xlm_e'?"),
        (["03_xlm_e", "task"], "did you mean 'tasks'?"),
        (["00_core"], "names no experiments"),
        (["index"], "names no experiments"),
        ([], "NOTEBOOK"),
    ],
)
def test_misspelt_names_end_with_a_sentence(command, arguments, sentence):
    with pytest.raises(SystemExit, match=f"^xlnb: .*{re.escape(sentence)}"):
        command(arguments)


@pytest.mark.parametrize("ask", ["-h", "--help"])
def test_help_is_an_answer(command, capsys, ask):
    with pytest.raises(SystemExit) as end:
        command([ask])
    text = capsys.readouterr().out
    assert not end.value.code and text.startswith("usage: ")
    assert "NOTEBOOK" in text and "those to run" in text and "--workers" in text


@pytest.mark.slow
def test_the_sentence_is_all_that_a_command_says():
    done = run_module("xlnb.pretraining.experiments", "03_xlm")
    assert (
        done.returncode == 1 and done.stderr.startswith("xlnb: ") and done.stderr.count("\n") == 1
    )


def test_the_listing_runs_nothing(command, xlm_e, monkeypatch, capsys):
    monkeypatch.setattr(experiments, "run_missing", None)
    command(["03_xlm_e"])
    said = capsys.readouterr().out
    for name in xlm_e.experiments:
        assert f"{name}: " in said


def test_a_run_that_leaves_no_record_is_named(tmp_path, command, monkeypatch):
    "Such as that of a notebook whose cell of parameters has no tag, which shows its records and ends."
    (tmp_path / "settings.ini").touch()
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    monkeypatch.setattr(experiments, "recipe_of", lambda notebook: RECIPE)

    def write(notebook, parameters, output):
        line = json.dumps(record(**vars(ToySettings(**parameters))))
        kept = "" if "rate" in parameters else line
        path = str(tmp_path / "99_toy.jsonl")
        return [sys.executable, "-c", f"open({path!r}, 'a').write({kept!r})"]

    monkeypatch.setattr(experiments, "run_command", write)
    with pytest.raises(SystemExit, match="fast, seed 0: ended without a finished record, see"):
        command(["99_toy", "grid"])


@pytest.mark.slow
def test_an_interrupt_ends_the_runs(tmp_path):
    (tmp_path / "settings.ini").touch()
    code = (
        "import signal, sys\nfrom xlnb.pretraining import experiments\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "experiments.run_command = lambda nb, given, out: [sys.executable, '-c', 'import time; "
        "time.sleep(300)']\n"
        "experiments.run_missing('toy', 'grid', [('arm', {'seed': 0})], workers=1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        env={**os.environ, "XLNB_ROOT": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert "1 of 1" in process.stdout.readline()
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    process.communicate(timeout=30)
    assert time.monotonic() - started < 20


def test_a_run_that_another_process_holds_is_left_alone_with_its_log(tmp_path):
    output = tmp_path / "arm-seed0.ipynb"
    stop = threading.Event()
    output.with_suffix(".log").write_text("what the other process wrote")
    with open(output.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_one([sys.executable, "-c", "print(1)"], output, stop) == "running elsewhere"
    assert output.with_suffix(".log").read_text() == "what the other process wrote"
    assert run_one([sys.executable, "-c", "print(1)"], output, stop) == "done"
    assert output.with_suffix(".log").read_text() == "1\n"


def test_a_figure_has_a_panel_for_what_is_on_record():
    groups = {"a": [{"x": 1.0}, {"x": 2.0}], "b": [{"x": 3.0}]}
    measures = {"x": lambda r: r["x"], "y": lambda r: r.get("y", math.nan)}
    assert [ax.get_title(loc="left") for ax in plot_grid(groups, measures).axes] == ["x"]
    with pytest.raises(ConfigError, match="any of these measures: y"):
        plot_grid(groups, {"y": measures["y"]})


TRAINS = r'^ +"if (\w+):\\n",\n +"    (?:record = (?:run|measure)\(|_run_)'


@pytest.mark.parametrize(
    "notebook, parameter",
    [
        (path.stem, found[1])
        for path in sorted(repo_root().glob("nbs/results/*.ipynb"))
        if (found := re.search(TRAINS, path.read_text(encoding="utf-8"), re.M))
    ],
)
def test_every_arm_names_the_parameter_without_which_its_notebook_trains_nothing(
    notebook, parameter
):
    runs = [run for e in recipe_of(notebook).experiments.values() for _, run in e.runs()]
    assert runs and all(run.get(parameter) for run in runs)


def test_runs_of_one_size_of_several_notebooks():
    experiments, finished = runs_of_size("tiny", "04_xy_lent", "04c_continued")
    assert {"bitext", "continued"} <= experiments.keys() == finished.keys()
    assert {experiment.shared["size"] for experiment in experiments.values()} == {"tiny"}
    row = run_rows(experiments, finished)[0]
    assert row["experiment"] == "bitext" and 0 < row["runs on record"] <= row["of"]
    with pytest.raises(ConfigError, match="did you mean 'tiny'"):
        runs_of_size("tini", "04_xy_lent")


def test_an_experiment_of_one_size_is_no_part_of_another():
    has = {size: runs_of_size(size, "03_xlm_e")[0].keys() for size in ("tiny", "small", "base")}
    assert {"tasks", "long"} < has["tiny"] and not {"wide", "bible"} & has["tiny"]
    assert {"tasks", "wide"} < has["small"] and "bible" in has["base"]
