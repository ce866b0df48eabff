"Sentences of the results notebooks: their numbers come from the records again, and are those that are shown."

import json, re

import pytest
from conftest import ROOT

from xlnb.base.core import ConfigError, read_records
from xlnb.pretraining.experiments import finished_runs, recipe_of, run_rows, runs_of_size
from xlnb.results import (
    benchmarks,
    claims,
    downstream_results,
    meta_xlm_results,
    static_results,
    veco_results,
    xlm_e_results,
    xy_lent_results,
)


@pytest.fixture(autouse=True)
def records(monkeypatch):
    "The records that the repository holds."
    monkeypatch.setenv("XLNB_RESULTS", str(ROOT / "data" / "results"))


def shown(notebook: str) -> list[str]:
    "The displayed texts of a results notebook."
    path = ROOT / "nbs" / "results" / f"{notebook}.ipynb"
    outputs = [
        output.get("data", {}).get("text/markdown", "")
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
    ]
    return ["".join(text) for text in outputs]


def counted(path) -> list[tuple[str, int, int]]:
    "Experiment, runs on record and runs in all, as the tables of a notebook show them."
    rows = r"<td[^>]*>(\w+)</td><td[^>]*>[^<]*</td><td[^>]*>(\d+)</td><td[^>]*>(\d+)</td>"
    tables = [
        html
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", [])
        if "runs on record" in (html := "".join(output.get("data", {}).get("text/html", "")))
    ]
    return [(row[0], *map(int, row[1:])) for html in tables for row in re.findall(rows, html)]


def runs_on_record(stem: str) -> set[tuple[str, int, int]]:
    "The same for the experiments of a notebook; empty where it has none."
    try:
        recipe = recipe_of(stem)
    except ConfigError:
        return set()
    runs = finished_runs(recipe.experiments, recipe, read_records(recipe.notebook))
    rows = run_rows(recipe.experiments, runs)
    return {(row["experiment"], row["runs on record"], row["of"]) for row in rows}


@pytest.mark.slow
def test_tables_count_the_runs_that_are_on_record():
    paths = sorted(ROOT.glob("nbs/**/*.ipynb"))
    known = set().union(*(runs_on_record(path.stem) for path in paths))
    assert len(known) > 40
    for path in paths:
        assert set(counted(path)) <= known, path.stem


def finished(size: str, *notebooks: str) -> dict:
    return runs_of_size(size, *notebooks)[1]


def test_sentences_of_xlm_e():
    R = xlm_e_results
    wide = finished("small", "03_xlm_e")["wide"]
    bible = finished("base", "03_xlm_e")["bible"]
    R.check_bible(bible, wide)
    texts = shown("03a_xlm_e_results")
    assert R.SUMMARY.format(**R.summary_numbers(finished("tiny", "03_xlm_e"))) in texts
    assert R.WIDE.format(**R.wide_numbers(wide)) in texts
    assert R.BIBLE.format(**R.bible_numbers(bible)) in texts
    rows = R.bible_rows(bible)
    assert [row[0] for row in rows] == [*R.BIBLE_TESTS.values()]


def test_sentences_of_meta_xlm():
    R = meta_xlm_results
    base = finished("base", "05_meta_xlm")["base"]
    R.check_base(base)
    texts = shown("05a_meta_xlm_results")
    experiments, tiny = runs_of_size("tiny", "05_meta_xlm")
    assert R.SUMMARY.format(**R.summary_numbers(tiny)) in texts
    assert R.ARMS.format(**R.arms_numbers(experiments["starts"].shared)) in texts
    rows = dict(R.lead_rows(("both", "body", "from scratch, distilled"), tiny))
    assert rows["body"] == R.summary_numbers(tiny)["body"] and len(rows) == 3
    phrases, captions = R.plateau_rows(tiny)
    assert phrases[2] == rows["both"] and phrases[-1] == "0 of 5" and captions[-1] == "3 of 3"
    assert R.BASE.format(**R.base_numbers(base)) in texts
    assert [row[0] for row in R.base_rows(base)] == [*R.BASE_ARMS, "untrained"]


def test_sentences_of_veco():
    R = veco_results
    arms = finished("tiny", "06_veco", "06a_translation")
    R.check_order(arms)
    assert R.SUMMARY.format(**R.summary_numbers(arms)) in shown("06b_veco_results")


def test_sentences_of_downstream_tasks():
    R = downstream_results
    of_size = [r for r in read_records(R.NOTEBOOK) if r["parameters"].get("size") in (None, "tiny")]
    groups = R.merged(of_size)
    R.check_said(groups, of_size)
    said = f"{R.SAID_1_TO_3}\n{R.SAID_4_TO_6}"
    assert said.format(**R.said_numbers(groups, of_size)) in shown("08a_downstream_results")


def test_sentences_of_all_claims():
    later = claims.later_verdicts("tiny")
    numbers = claims.summary_numbers(claims.own_verdicts("tiny"), claims.real_verdicts(), later)
    assert claims.SUMMARY.format(**numbers) in shown("10_claims")
    reasons = [numbers[name] for name in ("undetected", "few", "power")]
    assert sum(reasons) == numbers["undecided"]
    verdicts = ("reproduced", "equivalent", "contradicted")
    assert sum(numbers[name] for name in verdicts) == numbers["decided"]
    assert sum(numbers[f"real_{name}"] for name in verdicts) == numbers["real_decided"]


def test_sentences_of_measurements_on_a_gpu():
    texts = shown("11_benchmarks")
    numbers = benchmarks.gpu_numbers(benchmarks.on_gpu())
    assert benchmarks.GPU_TESTS.format(**numbers) in texts
    assert benchmarks.GPU_HEAD.format(**numbers) in texts


def test_sentences_of_xy_lent():
    R = xy_lent_results
    runs = finished("tiny", "04_xy_lent", "04b_dro_runs", "04c_continued")
    numbers = R.summary_numbers(runs)
    assert R.SUMMARY.format(**numbers) in shown("04d_xy_lent_results")
    mean, half = {}, {}
    for name in ("xy_others", "xy_pivot", "xy_gain", "rtd_others", "rtd_pivot"):
        mean[name], _, half[name], *_ = numbers[name].split()
    undecided = {name for name in mean if abs(float(mean[name])) < float(half[name])}
    assert undecided == {"xy_others", "xy_pivot", "xy_gain"}
    assert all(float(value) < 0 for name, value in mean.items() if name not in undecided)


def test_sentences_of_static_vectors():
    R = static_results
    texts = shown("07d_static_results")
    runs = finished("tiny", "07c_static_runs")
    of_losses = R.loss_numbers(runs)
    of_frequent_words = R.frequent_numbers(runs)
    vectors = R.more_runs("tiny")["vectors"]["captions"]
    of_maps = R.map_numbers(vectors)
    list_test = "muse-test/de-en/x2static/unmapped/acc@1"
    with_lists = {seed: r for seed, r in vectors.items() if list_test in r["metrics"]}
    of_lists = R.list_numbers(with_lists)
    for template, numbers in (
        (R.LOSSES, of_losses),
        (R.WORDS, of_losses),
        (R.MAPS, of_maps),
        (R.FEW_WORDS, of_maps),
        (R.LISTS, of_lists),
        (R.OUTSIDE, of_frequent_words),
        (R.LSA_ITSELF, of_frequent_words),
        (R.TEACHERS, of_frequent_words),
    ):
        assert template.format(**numbers) in texts
