"Static vectors back into a real encoder: settings, what a run starts from, a whole run, and how claims are judged."

from dataclasses import replace

import pytest
from test_real_objectives import corpus, encoder, small  # noqa: F401

from xlnb.base.core import ConfigError
from xlnb.pretraining.claims import judge
from xlnb.pretraining.experiments import records_of
from xlnb.results import real_transfer as subject
from xlnb.results.real_transfer import Settings

FEW = dict(langs="de,en,hi", steps=4, warm_steps=2, words=12, batch_tokens=128)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(loss="dcca"), "loss='dcca' is not one of none, dcca_ey, mse"),
        (dict(teacher="lsa"), "teacher='lsa' is not one of aggregated"),
        (dict(warm_steps=0), "warm_steps=0"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        subject.resolve(Settings(**wrong))


@pytest.mark.slow
def test_a_run_starts_from_the_warmed_encoder_and_ends_with_a_record(request, monkeypatch):
    root, text, start = map(request.getfixturevalue, ("small", "corpus", "encoder"))
    monkeypatch.setattr(subject, "runs_folder", lambda: root)
    monkeypatch.setattr("xlnb.results.static_runs.runs_folder", lambda: root)
    monkeypatch.setattr(subject, "open_corpus", lambda *_: text)
    record = subject.run(Settings("mse", encoder=str(start), **FEW))
    metrics = record["metrics"]
    assert record["losses"] == ["mlm"] and record["transfer"][0] > 0
    for layer in range(5):
        assert 0 <= metrics[f"tatoeba/de-en/before/layer{layer}/acc@1c"] <= 1
        assert 0 <= metrics[f"tatoeba/de-en/layer{layer}/acc@1c"] <= 1
    assert 0 <= metrics["bli/de-en/teacher/mapped/acc@1"] <= 1
    alone = subject.run(Settings(encoder=str(start), **FEW))
    assert alone["encoder"] == record["encoder"] and "transfer" not in alone
    # one start, measured once; what is pulled ends elsewhere
    for name, value in metrics.items():
        if "/before/" in name:
            assert alone["metrics"][name] == value
    ends = [name for name in metrics if name.startswith("own/") and "/before/" not in name]
    assert any(alone["metrics"][name] != metrics[name] for name in ends)
    arms = {"it": dict(loss="mse", encoder="small-bert", **FEW)}
    recipe = replace(subject.RECIPE, experiments={})
    known = records_of(subject.Experiment("A run.", arms, {}, (0,)), recipe, [record, alone])
    assert known["it"] == {0: record}


def run_of(seed: int, tatoeba: float, tags: float = 0.5) -> dict:
    metrics = {}
    for layer in range(13):
        metrics[f"tatoeba/de-en/layer{layer}/acc@1c"] = tatoeba if layer in (6, 7, 8) else 0.1
    for layer in (4, 8, 12):
        for lang in ("de", "hi"):
            metrics[f"tags/{lang}/before/layer{layer}/acc"] = 0.4
            metrics[f"tags/{lang}/layer{layer}/acc"] = tags
    end = {"tokens": 1e5, "held_out/unigram": 5.0, "held_out/text_mlm": 4.0}
    parameters = {"seed": seed, "langs": "de,en,hi"}
    return {"metrics": metrics, "curve": [end], "losses": ["mlm"], "parameters": parameters}


@pytest.mark.parametrize("ahead, direction", [(0.9, "as in the paper"), (0.7, "opposite")])
def test_claims_are_judged_in_the_middle_layers(ahead, direction):
    arms = {}
    for arm in subject.ARMS:
        level = ahead if arm == subject._OWN else 0.8
        arms[arm] = {seed: run_of(seed, level + seed / 1000) for seed in range(5)}
    first, *_ = subject.CLAIMS["static-07"].comparisons
    assert judge(first, {"losses": arms})["direction"] == direction
    assert subject._tatoeba_middle(arms["MLM alone"][0]) == pytest.approx(80)
