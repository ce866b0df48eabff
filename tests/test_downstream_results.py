"Downstream results: which encoders and tasks, what is still to run, and how records become differences."

import json, math
from types import SimpleNamespace

import pytest
from conftest import write
from test_evaluation import data, model, small_data  # noqa: F401

from xlnb.base.core import ConfigError, DataError
from xlnb.pretraining.experiments import run_identity, recipe_of
from xlnb.pretraining.reports import spread
from xlnb.results import downstream_results as D

pytestmark = pytest.mark.filterwarnings("ignore:xnli in .* of 30 tested")  # said on purpose


XNLI = "XNLI, accuracy"
NAMES = "PAN-X, F1"
TAGS = "UD-POS, accuracy"
CENTRED = "Tatoeba, vectors centred"


def record(
    encoder, seed, scores, task="xnli", system="model", finished=True, **more
):  # scores: language → percent
    measure = dict(D.COLUMNS.values())[task]
    rows = {
        "system": [system] * len(scores),
        "task": [task] * len(scores),
        "measure": [measure] * len(scores),
        "source": ["en"] * len(scores),
        "target": [*scores],
        "score": [*scores.values()],
    }
    parameters = {"encoder": encoder, "pretraining_seed": seed, "tasks": task, **more}
    return {"parameters": parameters, "run": {"finished": finished}, "scores": rows}


def test_encoders_are_runs_of_their_papers_on_one_corpus_with_one_vocabulary():
    for name, own in D.ENCODERS.items():
        given = run_identity(recipe_of(own.notebook), {**own.settings, "seed": 0})
        assert (given["corpus"], given["langs"], given["vocab_size"]) == (
            "multi30k",
            "de,en,fr",
            3000,
        ), name
    with pytest.raises(ConfigError, match="MLM \\+ TLM"):
        D.trained_folder("BERT", 0)


def test_what_has_no_finished_record_is_asked_for_seed_by_seed():
    there = [record("MLM", 0, {"en": 1.0}), record("MLM", 1, {"en": 1.0}, finished=False)]
    asked = D.missing_records(there, [0, 1], ["MLM"])
    assert asked[:6] == [(D.BASELINES, task, 0) for task in ("tatoeba", *D.LABELLED)]
    assert (
        ("MLM", "xnli", 0) not in asked
        and ("MLM", "xnli", 1) in asked
        and ("MLM", D.LEARNED, 0) in asked
    )
    of_seed = 1 + len(D.TASKS) - len(D.IN_LANGUAGE)  # without the ceilings, with what was learned
    assert [seed for _, _, seed in asked[6:]] == [0] * (of_seed - 1) + [1] * of_seed
    assert (D.UNTRAINED, D.LEARNED, 0) not in D.missing_records([], [0], [D.UNTRAINED])
    assert D.missing_records(there, [], ["MLM"]) == []
    for task in D.IN_LANGUAGE:
        assert [
            name for name in D.ENCODERS if (name, task, 0) in D.missing_records([], [0], [name])
        ] == [D.IN_LANGUAGE_OF]


def test_a_record_of_a_task_as_it_was_asked_once_does_not_count():
    now, once = (
        record("MLM", 0, {"de": score}, "ner", epochs=epochs)
        for score, epochs in ((20.0, 4), (9.0, 1))
    )
    assert ("MLM", "ner", 0) in D.missing_records([once], [0], ["MLM"])
    assert ("MLM", "ner", 0) not in D.missing_records([once, now], [0], ["MLM"])
    assert D.average(NAMES)(D.merged([now, once])["MLM"][0]) == 20.0
    assert D.merged([once]) == {} == D.merged([record("MLM", 0, {"de": 9.0}, finished=False)])


def test_the_newest_of_two_counts_and_baselines_are_rows_of_their_own():
    groups = D.merged(
        [
            record("XLM-E", 0, {"en": 1.0, "de": 2.0}),
            record("XLM-E", 0, {"de": 5.0, "fr": 7.0}),
            record(D.BASELINES, 0, {"en": 30.0, "de": 40.0}, system="majority"),
            record("MLM", 0, {"en": 3.0}),
        ]
    )
    assert [*groups] == ["MLM", "XLM-E", "majority"]
    elsewhere = D.average(XNLI)
    english = D.average(XNLI, "English")
    assert (elsewhere(groups["XLM-E"][0]), english(groups["XLM-E"][0])) == (6.0, 1.0)
    assert math.isnan(D.average(NAMES)(groups["XLM-E"][0]))
    rows = {row["encoder"]: row for row in D.score_rows(groups)}
    assert rows["majority"][XNLI] == spread([40.0]) and rows["MLM"]["seeds"] == "1"


def test_what_an_encoder_has_read_is_told_from_what_it_has_not():
    (scores,) = D.merged(
        [
            record("MLM", 0, {"en": 80.0, "de": 50.0, "fr": 40.0, "fi": 30.0, "ru": 10.0}, "pos"),
            record("MLM", 0, {"de-en": 5.0, "en-fr": 7.0}, "tatoeba"),
        ]
    )["MLM"].values()
    assert [D.average(TAGS, place)(scores) for place in D.LANGUAGE_SETS] == [80.0, 45.0, 20.0]
    assert D.average(CENTRED)(scores) == 6.0
    assert [
        {*row} & {*D.COLUMNS}
        for place in D.LANGUAGE_SETS[1:]
        for row in D.score_rows({"MLM": {0: scores}}, place)
    ] == [{TAGS, CENTRED}, {TAGS}]


def test_a_cell_says_how_many_seeds_it_has_where_not_all():
    found = D.merged(
        [record("MLM", s, {"de": 40.0 + s}) for s in (0, 1)]
        + [record("MLM", 0, {"de": 9.0}, "ner")]
    )
    (row,) = D.score_rows(found)
    assert (row[XNLI], row[NAMES], TAGS in row) == (spread([40.0, 41.0]), "9 (1)", False)


def test_differences_are_of_seeds_that_both_have():
    groups = D.merged(
        [record("XLM-E", s, {"de": 50.0 + s}) for s in (0, 1, 3)]
        + [record("MLM + TLM", s, {"de": 40.0}) for s in (1, 2, 3)]
    )
    found = D.difference(groups, ("XLM-E", "MLM + TLM"), XNLI)
    # Student's t of one degree of freedom, standard error 1
    assert found == (12.0, pytest.approx(12.706, abs=1e-3), 2)
    assert D.difference(groups, ("XLM-E", "VECO"), XNLI)[2] == 0


def test_an_encoder_and_the_baselines_leave_records_that_merge(model, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(D, "trained_folder", lambda name, seed, size: model)
    monkeypatch.setitem(D.TASKS, "xnli", dict(langs="de,en", train_split="dev", epochs=1))
    monkeypatch.setattr(D.Settings, "folder", property(lambda self: tmp_path))
    found = [
        D.encoder_record("MLM", "xnli", 0),
        D.encoder_record(D.UNTRAINED, "xnli", 0),
        D.baseline_record("xnli"),
    ]
    groups = D.merged(found)
    assert [*groups] == ["MLM", D.UNTRAINED, "majority", "character n-grams"]
    assert all(0 <= D.average(XNLI)(runs[0]) <= 100 for runs in groups.values())
    own = {key[2:] for key in groups["character n-grams"][0]}
    assert own == {("en", "en"), ("en", "de"), ("de", "de")}  # learned in the language too
    assert found[0]["parameters"]["model_hash"] != found[1]["parameters"]["model_hash"]
    wanted = [(D.BASELINES, task, 0) for task in ("tatoeba", *D.LABELLED[1:])]
    assert D.missing_records(found, [0], ["MLM"])[:5] == wanted


def test_how_far_an_encoder_has_learned_is_read_in_its_log(monkeypatch, tmp_path):
    lines = [
        {"step": 0, "mlm": 7.0, "held_out/text_mlm": 7.0, "held_out/unigram": 5.5},
        {
            "step": 9,
            "mlm": 3.0,
            "held_out/text_mlm": 3.0,
            "held_out/unigram": 5.5,
            "held_out/tlm": 2.0,
            "held_out/tlm_unigram": 5.0,
            "held_out/text_rtd_loss": 0.25,
            "held_out/text_rtd_base_loss": 0.35,
        },
        {"step": 10, "mlm": 2.0},
    ]  # where nothing was measured
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(D, "trained_folder", lambda *_: tmp_path / "generator")
    ((_, losses),) = D.merged([D.learned_record("MLM", 0)])["MLM"].items()
    # no TLM
    assert losses == {
        ("learned", "MLM", "", ""): 2.5,
        ("learned", "RTD", "", ""): pytest.approx(0.1),
    }
    # by language: levels from its text
    line = {"step": 9, "mlm": 3.0, "held_out/mlm/de": 3.0, "held_out/mlm/en": 2.5}
    (tmp_path / "log.jsonl").write_text(json.dumps(line) + "\n")
    texts = {lang: SimpleNamespace(unigram=5.5) for lang in ("de", "en")}
    monkeypatch.setattr(D, "_run", lambda *_: (None, SimpleNamespace(source_lang="en"), None))
    monkeypatch.setattr(D.meta_xlm, "hold_out", lambda *_: SimpleNamespace(texts=texts))
    ((_, losses),) = D.merged([D.learned_record("MetaXLM", 0)])["MetaXLM"].items()
    assert losses == {("learned", "MLM", "", "de"): 2.5, ("learned", "MLM", "", "en"): 3.0}


def test_no_encoder_is_trained_for_a_test_that_cannot_be_scored(tmp_path, monkeypatch):
    write(tmp_path / "panx" / "dev-de.tsv", "de:Hund\tO\n")
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    monkeypatch.setattr(D, "trained_folder", lambda *_: pytest.fail("it trains"))
    with pytest.raises(DataError, match="nothing to test: .*ner in de: .*without a span"):
        D.encoder_record("MLM", "ner", 0)
    with pytest.raises(DataError, match="nothing to test: .*looked for"):
        D.encoder_record("MLM", "xnli", 0)
    with pytest.raises(FileNotFoundError):
        D.encoder_record("MLM", "tatoeba", 0)
