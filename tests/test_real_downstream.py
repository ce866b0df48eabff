"Frozen probes of real encoders: what a record keeps, and what tables make of it."

import pytest
from test_evaluation import data, model, small_data  # noqa: F401  fixtures

from xlnb.base.core import ConfigError, read_records
from xlnb.pretraining.experiments import missing
from xlnb.results import real_downstream as D

SMALL = dict(langs="en,de", train_split="dev", train_examples=30)


@pytest.fixture
def records(model, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(D, "PROBED", {"xnli": SMALL})
    monkeypatch.setattr(D, "TUNED", ("xnli",))
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    for name in (model, D.BASELINES):
        D.main(["--model", name, "--tasks", "xnli"])
    return read_records(D.NOTEBOOK)


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_a_record_keeps_the_chosen_layer_and_the_means_of_all(records, model):  # noqa: F811
    probed, plain = records
    assert probed["parameters"]["task"] == "xnli" and probed["run"]["cpu_seconds"] > 0
    assert probed["layers"]["layer"] == [0, 1, 2] and len(probed["layers"]["others"]) == 3
    rows = probed["rows"]
    assert [*zip(rows["target"], rows["seed"])] == [(t, s) for t in ("en", "de") for s in range(3)]
    assert len({*zip(rows["seed"], rows["layer"])}) == 3
    assert {*plain["rows"]["system"]} == {"majority", "character n-grams"}


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_tables_have_the_newest_record_as_tasks_are_asked_now(records):
    older = records[0] | {"measure": "older"}
    other = records[0] | {"parameters": records[0]["parameters"] | {"train_examples": 7}}
    fig = D.layer_figure(D.newest(records))
    assert [len(line.get_xdata()) for line in fig.axes[0].lines] == [3]
    scores = D.score_frame([older, *records, other])
    assert {*scores.measure} == {"accuracy"} and len(scores) == 3 * 2 * 3
    rows = D.table_rows(scores)
    assert {r["system"] for r in rows} >= {"majority", "character n-grams"} and len(rows) == 3
    (row,) = [r for r in rows if r["layer"]]
    of_model = scores[scores.system == row["system"]].groupby("target").score.mean()
    gap = of_model["en"] - of_model["de"]
    assert float(row["gap"].split(" ±")[0]) == pytest.approx(gap, abs=0.5)


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_a_fine_tuned_encoder_is_a_system_of_its_own(records, model):  # noqa: F811
    D.main(["--model", model, "--way", "tuned"])
    *_, tuned = read_records(D.NOTEBOOK)
    name = records[0]["parameters"]["model"]
    assert tuned["parameters"]["train_examples"] == 2000 and "layers" not in tuned
    by_task = D.newest([*records, tuned])
    assert [*by_task] == [(name, "xnli"), (D.BASELINES, "xnli"), (f"{name}, fine-tuned", "xnli")]
    assert len(D.layer_figure(by_task).axes) == 1
    rows = {row["system"]: row for row in D.table_rows(D.score_frame([*records, tuned]))}
    assert rows[f"{name}, fine-tuned"]["languages"] == 2
    # a record of before there were two ways is of a probe
    older = records[0] | {"parameters": dict(records[0]["parameters"])}
    del older["parameters"]["way"]
    assert [*D.newest([older])] == [(name, "xnli")]


def test_ways_that_there_are_not(model):  # noqa: F811
    with pytest.raises(ConfigError, match="way='slow' is not one of probed, tuned"):
        D.main(["--model", model, "--way", "slow"])
    with pytest.raises(ConfigError, match="they train no network; leave way out"):
        D.main(["--model", D.BASELINES, "--way", "tuned"])


def test_a_probe_has_all_draws_in_one_run(model):  # noqa: F811
    with pytest.raises(ConfigError, match="seed=1 with way='probed': a run has all 3 draws"):
        D.main(["--model", model, "--seed", "1"])


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_trainings_of_several_seeds_stand_together(records, model):  # noqa: F811
    for seed in (0, 1):
        D.main(["--model", model, "--way", "tuned", "--seed", str(seed)])
    scores = D.score_frame(read_records(D.NOTEBOOK))
    tuned = scores[scores.system.str.endswith("fine-tuned")]
    assert {*zip(tuned.target, tuned.seed)} == {("en", 0), ("de", 0), ("en", 1), ("de", 1)}


def test_records_on_file_count_for_the_experiments_and_others_do_not():
    recorded = read_records(D.NOTEBOOK)
    for experiment in D.EXPERIMENTS.values():
        assert not missing(experiment, D.RECIPE, recorded)
    other = recorded[0] | {"parameters": recorded[0]["parameters"] | {"train_examples": 7}}
    with pytest.raises(ConfigError, match="train_examples=7"):
        missing(D.EXPERIMENTS["probed"], D.RECIPE, [*recorded, other])


def test_only_tasks_with_settings_are_probed(model):  # noqa: F811
    with pytest.raises(ConfigError, match="xquad"):
        D.task_record(model, "xquad")
    assert D.task_settings("pos").seeds == D.SEEDS
    assert D.TaskRuns(model).way == "probed"
    assert [*D.ways()["tuned"]] == ["pos", "xnli", "ner", "paws-x"]
