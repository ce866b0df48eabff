"MetaXLM from a real model: pages held out, rows shuffled, a run and its record, claims over seeds, what is refused."

import json

import numpy as np
import pytest
from conftest import LINES, write
from scipy import sparse

from xlnb.base.core import ConfigError
from xlnb.text.matching import Matching, match_vocabulary
from xlnb.text.vocab import train_vocab
from xlnb.pretraining.claims import claim_rows
from xlnb.pretraining.experiments import missing, records_of, run_identity
from xlnb.pretraining.pretraining import run
from xlnb.results import real_meta_xlm as M

pytestmark = pytest.mark.usefixtures("root")

LANGS = "de,en,ru,zh"


def test_pages_are_held_out_whole_and_share_no_line_with_training():
    rows = [(f"page{n // 5}#par{n}", f"line {n % 700}") for n in range(2000)]
    train, held_out = M.split_pages(rows, 1500)
    assert len(train) == 1500 and held_out
    assert not {*train} & {*held_out}
    text_of = dict(rows)
    pages = {key.split("#")[0] for key, text in text_of.items() if text in held_out}
    assert len(pages) < 100


def test_shuffled_rows_exchange_the_vectors_of_matched_subwords_alone():
    rules = np.array(["special"] * 2 + ["exact", "normalised", "dictionary"] * 20 + ["unmatched"])
    matching = Matching(sparse.csr_array(np.eye(len(rules), dtype=np.float32)), rules, None, None)
    order, again, other = (
        M.shuffled(matching, seed).weights.toarray().argmax(axis=1) for seed in (0, 0, 1)
    )
    assert sorted(order) == list(range(len(rules)))
    assert (order == again).all() and (order != other).any()
    fixed = np.isin(rules, ("special", "unmatched"))
    assert (order[fixed] == np.flatnonzero(fixed)).all()
    assert (order[~fixed] != np.flatnonzero(~fixed)).mean() > 0.9


def test_shuffled_rows_without_word_vectors_are_refused():
    with pytest.raises(ConfigError, match="takes no word vectors"):
        M.resolve(M.Settings(rows="shuffled", parts="body"))
    with pytest.raises(ConfigError, match="rows='mixed' is not one of matched, shuffled"):
        M.resolve(M.Settings(rows="mixed"))


def test_a_run_has_one_identity_with_and_without_its_model(tmp_path, monkeypatch):
    parameters = dict(M.ARMS["both"], seed=3)
    monkeypatch.delenv("XLNB_MODELS", raising=False)
    before = run_identity(M.RECIPE, parameters)
    assert before["source"] == "all-MiniLM-L6-v2"
    recorded = {"parameters": before, "run": {"finished": True}}
    experiment = M.EXPERIMENTS["real_starts"]
    assert records_of(experiment, M.RECIPE, [recorded])["both"] == {3: recorded}
    assert len(missing(experiment, M.RECIPE, [recorded])) == len(experiment.runs()) - 1


@pytest.fixture(scope="module")
def data_root(tmp_path_factory):
    "Help pages and tagged sentences of four languages."
    root = tmp_path_factory.mktemp("data")
    tagged = "\n".join("a\tDET\nword\tNOUN\nis\tVERB\n" for _ in range(260))
    for lang, code in zip(LANGS.split(","), ("de", "en", "ru", "zh-Hans")):
        pages = [f"p{n // 4}#{n}\t{LINES[n % len(LINES)]} {n}\n" for n in range(900)]
        write(root / f"libreoffice-help/{code}.tsv.gz", "".join(pages))
        write(root / f"udpos-xtreme/dev-{lang}.tsv.gz", tagged)
    return root


@pytest.mark.slow
def test_a_run_records_losses_tags_and_what_was_matched(saved_network, data_root, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(data_root))
    free = dict.fromkeys(
        ("width", "layers", "norm", "initializer_range", "relative_positions", "dropout")
    )
    settings = M.resolve(
        M.Settings(
            source=str(saved_network),
            rows="shuffled",
            vocab_size=60,
            steps=2,
            precision=None,
            **free,
        )
    )
    record = json.loads(json.dumps(run(M.RECIPE, settings)))
    assert record["parameters"]["rows"] == "shuffled"
    assert record["parameters"]["source"] == saved_network.name
    assert record["source"].startswith(f"{saved_network.name}-")
    assert "exact" in record["matched"]["subwords"]
    layers = record["parameters"]["layers"]
    assert len(M.tags_by_layer(record, "de", "before/")) == layers + 1
    assert M.floor_elsewhere(record, "words") == 100
    assert M.loss_elsewhere(record) < 5
    [row] = M.arm_rows({"both": {0: record}})
    assert row["seeds"] == 1
    M.draw_losses({"both": {0: record}})


def toy_record(seed, value):
    metrics = {}
    for lang in LANGS.split(","):
        metrics |= {f"final/{lang}/mlm": 5 - value - seed / 100, f"final/{lang}/unigram": 5.0}
        for system in ("majority", "words", "strings"):
            metrics[f"pos/en-{lang}/{system}/accuracy"] = 0.2
        for layer in range(7):
            # the layer that is best in English, and no other, counts elsewhere
            score = value / 10 if layer == 3 or lang != "en" and layer == 5 else 0.01
            metrics[f"pos/en-{lang}/layer{layer}/accuracy"] = score * (2 if layer == 5 else 1)
    curve = [{"tokens": 1000, **{f"held_out/mlm/{x}": 5 - value for x in LANGS.split(",")}}]
    return {
        "parameters": {"langs": LANGS, "source_lang": "en", "layers": 6, "seed": seed},
        "losses": ["mlm"],
        "unigram": dict.fromkeys(LANGS.split(","), 5.0),
        "curve": curve,
        "metrics": metrics,
    }


def test_tags_are_read_at_the_layer_that_is_best_in_the_source_language():
    assert M.tags_elsewhere(toy_record(0, 2.0)) == pytest.approx(20)


def finished_of(values: dict, seeds=range(5)) -> dict:  # arm → nats below word frequency
    finished = {}
    for name, arms in (("real_starts", M.ARMS), ("more_starts", M.MORE_ARMS)):
        finished[name] = {
            arm: {seed: toy_record(seed, values[arm] + seed**2 / 1000) for seed in seeds}
            for arm in arms
        }
    return finished


LEADS = {
    "from scratch": -1.0,
    "both": 0.5,
    "body": 0.1,
    "words": -0.2,
    "both, shuffled rows": 0.2,
    "both, dictionary": 0.9,
    "from scratch, distilled": -0.8,
}


def test_claims_have_a_direction_over_five_seeds_of_networks_that_learned():
    rows = claim_rows(M.CLAIMS, {}, finished_of(LEADS))
    assert [row["direction"] for row in rows] == ["as in the paper"] * 4
    rows = claim_rows(M.CLAIMS, {}, finished_of(LEADS, range(4)))
    assert {row["direction"] for row in rows} == {"open"}


def test_an_arm_ahead_that_guesses_worse_than_by_frequency_decides_nothing():
    rows = claim_rows(M.CLAIMS, {}, finished_of(LEADS | {"both": -0.5}))
    why = {row["claim"]: row["why"] for row in rows}
    assert why["metaxlm-01"].startswith("has not learned what the claim needs: both (seed 0, 1")
    assert why["metaxlm-02"] == ""  # of the arm with dictionaries, which has


TEXT = {
    "en": ["the dog sees the red house", "the cat sees the dog", "a red house and a dog"] * 20,
    "de": ["der hund sieht das haus", "die katze sieht den hund", "ein haus und ein hund"] * 20,
}


@pytest.fixture(scope="module")
def matching(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabularies")
    source = train_vocab({"en": TEXT["en"]}, 22, folder / "source")
    return match_vocabulary(source, train_vocab(TEXT, 30, folder / "target"))


def test_focus_fills_what_is_unmatched_and_keeps_the_rest(matching):
    filled = M._by_focus(matching, TEXT, 0)
    same = matching.rule != "unmatched"
    assert abs(filled.weights[same] - matching.weights[same]).max() == 0
    assert (filled.rule == "similarity").any()
    sums = filled.weights.sum(axis=1)[filled.rule == "similarity"]
    np.testing.assert_allclose(sums, 1, atol=1e-6)


def test_wechsel_gives_every_subword_a_mean_but_special_ones(matching, monkeypatch):
    entries = [("hund", "dog"), ("haus", "house"), ("katze", "cat"), ("sieht", "sees")]
    monkeypatch.setattr(M, "dictionary", lambda *_: entries)
    filled = M._by_wechsel(matching, TEXT, "en", 0)
    assert {*filled.rule} <= {"special", "similarity", "unmatched"}
    special = matching.rule == "special"
    assert abs(filled.weights[special] - matching.weights[special]).max() == 0
    assert (filled.rule == "similarity").sum() > (matching.rule == "exact").sum() / 2
    assert (np.diff(filled.weights.indptr)[filled.rule == "similarity"] > 1).any()
