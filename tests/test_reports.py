"What a run leaves behind, read back: losses beside their baselines, the best layer, a row per group of runs."

import math

from xlnb.pretraining.reports import (
    _as_list,
    _card_scores,
    best_accuracy,
    last_held_out,
    score_lines,
    summarise,
)


def record(**held_out):
    line = {"step": 9, **{f"held_out/{name}": value for name, value in held_out.items()}}
    metrics = {
        "T3/de-en/layer0/acc@1c": 0.2,
        "T3/de-en/layer1/acc@1c": 0.4,
        "T3/de-en/lsa/acc@1c": 0.9,
        "T3/de-en/layer1/acc@1": 0.5,
    }
    return {
        "parameters": {"seed": 0},
        "run": {"tokens": 2e6},
        "curve": [{"step": -1}, line],
        "metrics": metrics,
        "corpus": {},
    }


def test_losses_are_read_as_what_they_stand_below():
    last = last_held_out(
        record(unigram=5.0, text_mlm=4.0, tlm_gap=0.3, tlm_gap_across=0.1, text_rtd_auc=0.7)
    )
    known = {name: value for name, value in last.items() if not math.isnan(value)}
    assert known == {
        "MLM below unigram": 1.0,
        "RTD AUC": 0.7,
        "translation gain, TLM": 0.3,
        "translation gain across scripts": 0.1,
    }


def test_accuracy_is_of_the_best_layer_of_a_line():
    line = record(found_layer0=0.25, found_layer1=0.125, text_mlm=4.0)["curve"][-1]
    assert best_accuracy(line) == 25 and math.isnan(best_accuracy({"step": 0}))


def test_a_summary_has_the_same_columns_in_all_rows():
    with_aer = record(tlm_gap=0.5)
    with_aer["metrics"] |= {"gold/de-en/layer1/aer": 0.5}
    rows = summarise({"none": [], "plain": {0: record(), 1: record()}, "aligned": [with_aer]})
    assert [row["run"] for row in rows] == ["plain", "aligned"] and rows[0].keys() == rows[1].keys()
    # which no seed moves
    assert [rows[0][f"T3, {name}"] for name in ("best layer", "lsa")] == ["40", "90"]
    assert rows[0]["gold, best layer"] == "–"
    assert rows[1]["translation gain, TLM"] == "0.5" and rows[1]["gold, best layer"] == "50"


def test_a_card_says_what_was_measured_in_which_unit():
    card = _as_list(
        {
            "text_mlm": 7.114,
            "text_accuracy": 0.0444,
            "tlm_gap": 0.3,
            "found_layer0": 0.0723,
            "found_layer12": 0.5,
            "mlm/de": 6.0,
            "bleu/T3": 12.5,
            "text_rtd_auc": 0.7,
            "new/x": 1.0,
        }
    )
    assert card.splitlines() == [
        "- MLM loss: 7.11 nats",
        "- MLM accuracy: 4.4 %",
        "- translation gain, TLM (loss beside a random sentence minus beside the translation): 0.3 nats",
        "- retrieval accuracy@1, centred, layer 0: 7.2 %",
        "- retrieval accuracy@1, centred, layer 12: 50.0 %",
        "- MLM loss, de: 6 nats",
        "- BLEU, T3: 12.5",
        "- RTD AUC: 0.7",
        "- new, x: 1",
    ]


def test_a_run_says_what_it_has_reached_beside_what_needs_no_training():
    run = record(unigram=5.0, text_mlm=5.25, tlm_unigram=4.0, tlm=3.5, found_layer1=0.5)
    run |= {"losses": ["mlm", "tlm"]}
    run["metrics"]["T3/de-en/untrained/layer1/acc@1c"] = 0.1
    assert score_lines(run) == [
        "MLM: loss 0.25 nats worse than guessing by word frequency",
        "TLM: loss 0.50 nats better than guessing by word frequency",
        "T3: retrieval accuracy 40.0 % (untrained network 10.0; LSA without a network 90.0)",
    ]
    detected = run | {"metrics": {}, "losses": ["rtd"]}
    detected["curve"] = record(text_rtd_loss=0.3, text_rtd_base_loss=0.4)["curve"]
    assert score_lines(detected) == [
        "replaced tokens: loss 25% better than guessing by their share"
    ]
    translator = run | {"metrics": {"bleu/T3": 12.5}, "losses": [], "curve": []}
    assert score_lines(translator) == ["BLEU, T3: 12.5"]


def test_a_test_that_was_trained_on_is_said_to_be_so():
    run = record() | {"losses": []}
    overlap = {
        "test_lines": {"T3": {"de": 100, "en": 100}},
        "overlap": {"T3": {"de": 97, "en": 90}},
    }
    run["corpus"] = overlap | {"near_overlap": {"T3": {"de": 0, "en": 7}}}
    note = "; 97 % of its lines stand in the training text"
    assert score_lines(run)[-1].endswith(note)
    translator = run | {"metrics": {"bleu/T3": 12.5}}
    assert score_lines(translator) == ["BLEU, T3: 12.5" + note]
    said = "In the training text, word for word or nearly: 97 % of the lines of T3."
    run["parameters"]["corpus"] = "own"
    assert _card_scores(run).splitlines()[-2:] == ["", said]
    assert said in _card_scores(translator)
