"What each task adds to a trained encoder: settings, measures by hand, how claims are judged, a whole run."

from statistics import fmean

import pytest
from test_real_objectives import LANGS, corpus, encoder, small  # noqa: F401

from xlnb.base.core import ConfigError
from xlnb.measures.probes import cldr_tasks
from xlnb.pretraining.claims import judge
from xlnb.pretraining.experiments import records_of
from xlnb.pretraining.verdicts import measured_by, read_decisions
from xlnb.results import real_objectives, real_tasks as subject
from xlnb.results.real_tasks import Settings


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="tasks='rtd' is not one of"):
        subject.resolve(Settings(tasks="rtd"))
    with pytest.raises(ConfigError, match="generator_layers=0"):
        subject.resolve(Settings(generator_layers=0))


def record(seed=0, tags=0.7, entailment=0.5, retrieval=0.9, english=0.9):
    "A record whose layer 8 is the best before; the other layers are better after."
    metrics = {}
    after = {"tags": tags, "entailment": entailment}
    for layer, before in ((4, 0.4), (8, 0.6), (12, 0.5)):
        for lang in ("de", "en", "hi"):
            for task, score in after.items():
                given = english if lang == "en" else score
                shift = 0.05 if lang == "de" else -0.05
                name = f"{task}/{lang}"
                metrics[f"{name}/before/layer{layer}/acc"] = before
                metrics[f"{name}/layer{layer}/acc"] = 1.0
                metrics[f"{name}/layer8/acc"] = given + (0 if lang == "en" else shift)
    for layer in range(13):
        for pair in ("de-en", "en-hi"):
            # the embeddings do not count
            best = 1.0 if layer == 0 else retrieval if layer == 5 else 0.1
            metrics[f"tatoeba/{pair}/layer{layer}/acc@1c"] = best
    curve = [{"tokens": 1e6, "held_out/unigram": 7.0, "held_out/text_mlm": 5.0}]
    return {
        "metrics": metrics,
        "curve": curve,
        "losses": ["mlm"],
        "parameters": {"langs": "de,en,hi", "seed": seed},
    }


def test_transfer_and_gap_are_read_at_the_layer_that_was_best_before():
    run = record()
    assert subject.elsewhere(run, "tags") == pytest.approx(70)
    assert subject.transfer(run) == pytest.approx(60)
    assert subject.transfer(run, "before") == pytest.approx(60)
    assert subject.gap(run) == pytest.approx(30)
    assert subject.best_retrieval(run) == pytest.approx(90)
    assert set(subject.CLAIMS) == {f"xlme-{n:02}" for n in (1, 3, 4, 6, 7, 9, 14)}


@pytest.mark.parametrize(
    "claim, better",
    [
        ("xlme-07", dict(tags=0.8)),
        ("xlme-07", dict(entailment=0.6)),
        ("xlme-03", dict(entailment=0.6)),
        ("xlme-09", dict(retrieval=0.95)),
        ("xlme-14", dict(english=0.8)),  # a smaller gap
    ],
)
def test_the_arm_that_is_named_first_is_to_be_ahead(claim, better):
    for compared in subject.CLAIMS[claim].comparisons:
        more, less = ({s: record(s, **scores) for s in range(5)} for scores in (better, {}))
        for first, second, found in ((more, less, "as in the paper"), (less, more, "opposite")):
            finished = {"tasks": {}, "gentle": {}}
            for (experiment, arm), runs in ((compared.ahead, first), (compared.behind, second)):
                finished[experiment][arm] = runs
            assert judge(compared, finished)["direction"] == found


def at_two_rates(gentle_masked):
    "Runs of all arms at both rates; entailment of masked ones at the gentler one as given."
    finished = {}
    for name, masked in (("tasks", 0.5), ("gentle", gentle_masked)):
        finished[name] = {}
        for arm in subject.EXPERIMENTS[name].arms:
            entailment = masked if arm.startswith("MLM") else 0.6
            finished[name][arm] = {s: record(s, entailment=entailment) for s in range(5)}
    return finished


def test_a_claim_is_compared_at_each_rate_and_at_the_better_ones():
    rows = {row["claim"]: row for row in subject.rate_rows(at_two_rates(0.62))}
    assert [*rows] == [*subject.MEASURED]
    row = rows["xlme-03"]  # replaced tokens at 60, masked ones at 50 and at the gentler rate at 62
    assert row["arms at their better rate"] == "MRTD + TRTD, 1e-4 before MLM + TLM, 3e-5"
    assert [row[rates][:3] for rates in [*row][2:5]] == ["+10", "-2 ", "-2 "]


def test_rates_without_runs_are_empty():
    rows = subject.rate_rows(at_two_rates(0.62) | {"gentle": {}})
    assert all(row["both at 1e-4"] and not row["both at 3e-5"] for row in rows)


@pytest.mark.parametrize("claim", subject.MEASURED)
def test_every_arm_is_judged_at_its_better_rate(claim):
    measure, *arms = subject.MEASURED[claim]
    finished = subject.real_runs()
    compared = subject.CLAIMS[claim].comparisons[0]
    for arm, judged in zip(arms, (compared.ahead, compared.behind)):
        means = {}
        for gentle in (False, True):
            experiment, name = subject.at_rate(arm, gentle)
            records = [*finished[experiment][name].values()]
            assert len(records) >= 5
            means[experiment, name] = fmean(map(subject.MEASURES[measure], records))
        assert judged == (min if compared.lower else max)(means, key=means.get)
    decisions, _ = read_decisions("real")
    measured = measured_by(subject.CLAIMS[claim], [], decisions[claim])
    assert (measured.ahead, measured.behind) == (compared.ahead, compared.behind)


def test_the_figure_has_the_means_of_both_rates_and_the_start():
    figure = subject.draw_tasks(at_two_rates(0.55))
    first = figure.axes[0]
    assert [text.get_text() for text in first.get_yticklabels()] == [*subject.ARMS]
    dashed = [line for line in first.lines if line.get_linestyle() == "--"]
    assert dashed[0].get_xdata()[0] == pytest.approx(60)
    assert len(first.containers) == 2 * len(subject.ARMS)


@pytest.mark.slow
def test_a_run_measures_both_tasks_and_its_record_is_known(request, monkeypatch):
    _, start = map(request.getfixturevalue, ("small", "encoder"))
    tasks = cldr_tasks(LANGS, train=20, test=10, tasks=("tags", "entailment"))
    monkeypatch.setattr(real_objectives, "_tasks", lambda *_: tasks)
    amounts = real_objectives.Amounts(tested=12, text_tokens=100, gain_pairs=2)
    monkeypatch.setattr(subject, "AMOUNTS", amounts)
    few = dict(tasks="mrtd", encoder=str(start), steps=4, warm_steps=2)
    found = subject.run(Settings(**few))
    for system in ("", "before"):
        assert 0 <= subject.elsewhere(found, "entailment", system) <= 100
        assert 0 <= subject.transfer(found, system) <= 100
    assert "generator_layers" in found["parameters"] and "dense_head" not in found["parameters"]
    arms = {"it": few | {"encoder": "small-bert"}}
    known = records_of(subject.Experiment("A run.", arms, {}, (0,)), subject.RECIPE, [found])
    assert known["it"] == {0: found}
