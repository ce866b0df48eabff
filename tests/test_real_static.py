"Vectors out of a trained encoder: which sentences are read, which contexts a seed draws, and how rules judge records."

import json
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from xlnb.base.core import ConfigError, append_record, read_records
from xlnb.text.vectors import WordVectors
from xlnb.text.vocab import train_vocab
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.pretraining.claims import claim_rows, judge_rule
from xlnb.pretraining.experiments import missing
from xlnb.results import real_static
from xlnb.results.real_static import (
    CLAIMS,
    EXPERIMENTS,
    RECIPE,
    RULES,
    SHARES,
    Sentence,
    Settings,
    accuracy_of,
    aggregated,
    beyond_words,
    candidates,
    contexts_of_language,
    coverage,
    covering_sentences,
    difference,
    encoder_scores,
    known_entries,
    mapped,
    packed,
    plot_vectors,
    real_runs,
    resolve,
    sentences_of,
    similarity_rows,
    spoiled_entries,
    table_rows,
    unpacked,
    worst_gains_most,
    x2static_vectors,
)

PAIRS = ("de-en", "en-es", "en-fi")
LAYERS = (0, 3, 6, 9, 12)


def toy_record(right: dict, words: int = 800, seed: int = 0, across=0.1, within=0.1) -> dict:
    "A record whose systems translate these shares of words: the first ones, or the last of negative shares."
    metrics = {}
    hits = {}
    counts = {}
    for pair in PAIRS:
        for test in (f"muse/{pair}", f"muse/{'-'.join(pair.split('-')[::-1])}"):
            counts[test] = [2 * words, words]
            for system, share in right.items():
                share = share.get(pair, 0.5) if isinstance(share, dict) else share
                translated = np.arange(words) < abs(share) * words
                translated = translated[::-1] if share < 0 else translated
                metrics[f"{test}/{system}/acc@1"] = float(translated.mean())
                metrics[f"{test}/{system}/nearest@1"] = float(translated.mean())
                metrics[f"{test}/{system}/words"] = words
                hits[f"{test}/{system}"] = packed(translated)
    for name, value in (("de", within), ("de-en", across)):
        metrics[f"similarity/{name}/difference"] = value
        metrics[f"similarity/{name}/half"] = 0.02
        metrics[f"similarity/{name}/lsa/harmonic"] = 0.5
    parameters = Settings(seed=seed).for_record()
    learned = {"ln(accuracy@1 / spelled alike)": 2.0}
    return {
        "parameters": parameters,
        "run": {"finished": True},
        "encoder": "toy-encoder-0123456789ab",
        "base_learned": learned,
        "coverage": counts,
        "metrics": metrics,
        "hits": hits,
    }


EQUAL = {
    **{f"aggregated/layer{k}/{space}": 0.5 for k in LAYERS for space in ("unmapped", "mapped")},
    **{f"aggregated/layer6/right{right}": 0.5 for right in SHARES},
    "fasttext/rotation": 0.5,
    "fasttext/rcsls": 0.5,
    "lsa": 0.5,
}


def directions(change: dict, claim: str, **more) -> list[str]:
    runs = {seed: toy_record(EQUAL | change, seed=seed, **more) for seed in range(5)}
    finished = dict.fromkeys(EXPERIMENTS, {"e5-small": runs})
    return [judge_rule(rule, finished)["direction"] for rule in RULES[claim]]


@pytest.mark.parametrize(
    "claim, change, expected",
    [
        ("static-01", {}, ["as in the paper"]),
        ("static-01", {"fasttext/rotation": 0.2}, ["opposite"]),
        ("static-01", {"fasttext/rotation": 0.35}, ["open"]),
        ("static-04", {"aggregated/layer12/unmapped": 0.4}, ["as in the paper", "open"]),
        ("static-04", {"aggregated/layer12/mapped": 0.6}, ["open", "opposite"]),
        ("static-04", {"aggregated/layer12/mapped": -0.51}, ["open", "open"]),
        ("static-05", {"aggregated/layer6/right10": 0.1}, ["as in the paper", "open"]),
    ],
)
def test_rules_take_the_side_of_the_records(claim, change, expected):
    assert directions(change, claim) == expected


def test_a_map_gains_by_three_points():
    gains = {"aggregated/layer6/mapped": 0.6, "fasttext/rotation": 0.6, "fasttext/rcsls": 0.8}
    assert directions(gains, "static-02") == ["as in the paper"] * 3
    assert directions({"aggregated/layer6/mapped": 0.4}, "static-02")[0] == "opposite"


def test_the_worst_pair_leads():
    unmapped = {"de-en": 0.6, "en-es": 0.6, "en-fi": 0.2}
    gained = {"de-en": 0.62, "en-es": 0.62, "en-fi": 0.4}
    change = {"aggregated/layer6/unmapped": unmapped, "aggregated/layer6/mapped": gained}
    assert directions(change, "static-03") == ["as in the paper"]
    record = toy_record(EQUAL | change)
    assert worst_gains_most(record) == pytest.approx(18, abs=1)
    assert accuracy_of(record, "aggregated/layer6/unmapped", "en-fi") == pytest.approx(20, abs=0.2)


def test_similarity_needs_both_sides():
    assert directions({}, "static-06", across=0.01, within=-0.1) == [
        "as in the paper",
        "as in the paper",
    ]
    assert directions({}, "static-06", across=0.2, within=0.1) == ["opposite", "opposite"]


def test_a_difference_inside_its_interval_is_zero():
    record = toy_record(EQUAL | {"a": 0.5, "b": -0.51, "c": 0.7})
    assert beyond_words(*difference(record, "b", "a")) == 0.0
    mean, half = difference(record, "c", "a")
    assert mean == pytest.approx(20, abs=0.5) and 0.5 < half < 2
    assert beyond_words(1.0, 2.0) == 0.0 and beyond_words(-3.0, 2.0) == -3.0


def test_records_are_those_of_the_grid(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    assert real_runs() == dict.fromkeys(EXPERIMENTS, {})
    append_record(RECIPE.notebook, toy_record(EQUAL, seed=3))
    other = toy_record(EQUAL, seed=4)
    other["parameters"]["contexts"] = 1
    append_record(RECIPE.notebook, other)
    assert [*real_runs()["vectors"]["e5-small"]] == [3]
    left = missing(EXPERIMENTS["vectors"], RECIPE, list(read_records(RECIPE.notebook)))
    assert [parameters["seed"] for _, parameters in left] == [0, 1, 2, 4]


def test_figure_and_tables_of_records():
    runs = {seed: toy_record(EQUAL, seed=seed) for seed in range(2)}
    plt.close(plot_vectors(runs))
    rows = {row["vectors"]: row for row in table_rows(runs)}
    assert rows["lsa"]["de-en"] == "50.0" and rows["lsa"]["seeds"] == 2
    assert similarity_rows(runs) == [{"vectors": "lsa", "de": "0.500", "de-en": "0.500"}]
    finished = {"layers": {"e5-small": runs}}
    assert [row["claim"] for row in claim_rows(CLAIMS, RULES, finished)] == [*RULES]


# ---------------------------------------------------------------- text, words, tests

WORDS = [f"wort{k}" for k in range(12)]
TEXT = [f"Das {a} steht hier neben {b}." for a in WORDS for b in WORDS if a != b]


def test_sentences_are_cut_and_counted_by_words():
    lines = ["Das ist ein Satz. Kurz. Und noch ein zweiter Satz!", "Das ist ein Satz.", "x " * 40]
    texts = [sentence.text for sentence in sentences_of(lines, "de")]
    assert texts == ["Das ist ein Satz.", "Und noch ein zweiter Satz!"]


@pytest.mark.parametrize("contexts", [1, 2, 4])
def test_every_word_has_its_contexts_and_no_sentence_comes_twice(contexts):
    sentences = sentences_of(TEXT, "de")
    texts = covering_sentences(sentences, {*WORDS}, contexts)
    for word in WORDS:
        assert sum(word in text.lower() for text in texts) >= contexts
    assert len({*texts}) == len(texts) < 12 * contexts
    assert texts == covering_sentences(sentences, {*WORDS}, contexts)


def test_words_of_a_test_are_candidates_where_they_occur_twice():
    sentences = [Sentence("", ["a", "a", "b", "b", "c"])] * 1
    assert candidates(sentences, {"b", "c", "d"}, frequent=1) == {"a", "b"}


def test_no_known_entry_has_a_word_of_a_test(monkeypatch):
    entries = {
        ("de", "en"): [("Hund", "dog"), ("Katze", "cat"), ("Baum", "tree")],
        ("en", "de"): [("dog", "Hund"), ("tree", "Baum"), ("house", "Haus")],
    }
    monkeypatch.setattr(real_static, "dictionary", lambda a, b, *_: entries[a, b])
    tests = {("muse", "de", "en"): [("hund", "hound")], ("muse", "en", "de"): [("cat", "kater")]}
    assert known_entries(tests, "de", "en") == [("baum", "tree"), ("haus", "house")]


def test_coverage_asks_for_both_sides():
    tests = {("muse", "de", "en"): [("hund", "dog"), ("hund", "hound"), ("baum", "tree")]}
    words = {"de": ("hund", "baum"), "en": ("hound",)}
    assert coverage(tests, words) == {"muse/de-en": [2, 1]}
    assert (
        real_static.spelling(
            {("muse", "de", "en"): [("a", "a"), ("b", "c")]}, {"de": "ab", "en": "ac"}
        )
        == 0.5
    )


@pytest.mark.parametrize("words", [1, 7, 8, 1501])
def test_hits_come_back(words):
    hits = np.random.default_rng(words).random(words) < 0.5
    assert np.array_equal(unpacked(packed(hits), words), hits)
    json.dumps(packed(hits))


@pytest.mark.parametrize(
    "wrong",
    [
        dict(hub="it"),
        dict(scored="de"),
        dict(learned_layers="5"),
        dict(layers="a"),
        dict(contexts=0),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(ConfigError):
        resolve(Settings(**wrong))


# ---------------------------------------------------------------- vectors


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real_static")
    tokenizer = train_vocab({"de": TEXT}, 30, folder / "vocab")
    config = config_for("tiny", len(tokenizer), hidden_size=16, num_hidden_layers=2)
    model = new_model(Encoder, config, seed=0).eval()
    by_lang = {}
    for lang in ("de", "en"):
        by_lang[lang] = contexts_of_language(
            model, tokenizer, TEXT, {*WORDS}, lang, [0, 1, 2], folder / lang
        )
    return by_lang


def test_a_seed_draws_the_same_contexts_of_every_layer(contexts):
    by_layer = contexts["de"]
    vectors = [aggregated(by_layer[layer], seed=1) for layer in (0, 2)]
    assert vectors[0].words == vectors[1].words and {*vectors[0].words} == {*WORDS}
    assert vectors[0].made_by == vectors[1].made_by
    again = aggregated(by_layer[2], seed=1)
    other = aggregated(by_layer[2], seed=2)
    assert torch.equal(again.matrix, vectors[1].matrix)
    assert not torch.allclose(other.matrix, vectors[1].matrix)
    every = aggregated(by_layer[2], seed=1, most=1000)
    shard = by_layer[2].shard(by_layer[2].shards[0])
    assert every.made_by["contexts"] == sum((np.bincount(shard["words"]) + 1) // 2)


def test_x2static_is_trained_on_the_contexts_of_the_pass(contexts):
    first = x2static_vectors(contexts["de"][2], seed=0, epochs=1)
    second = x2static_vectors(contexts["de"][2], seed=1, epochs=1)
    assert {*first.words} == {*WORDS} and not torch.equal(first.matrix, second.matrix)


def test_a_space_translates_itself(contexts):
    entries = [(word, word) for word in WORDS]
    tests = {("muse", "de", "en"): entries, ("muse", "en", "de"): entries}
    settings = Settings(langs="de,en", layers="0,1,2", learned_layers="2", epochs=1)
    scores = encoder_scores(settings, tests, [contexts["de"], contexts["en"]], entries)
    unmapped = {name: v for name, v in scores.metrics.items() if "unmapped/acc@1" in name}
    assert {v for name, v in unmapped.items() if "aggregated" in name} == {1.0}
    assert "muse/de-en/aggregated/layer1/right50" in scores.hits
    assert "muse/en-de/x2static/layer2/mapped" in scores.hits
    other = encoder_scores(
        replace(settings, seed=1), tests, [contexts["de"], contexts["en"]], entries
    )
    assert not any("x2static" in name for name in other.metrics)


def test_a_spoiled_dictionary_has_its_share_of_right_entries():
    entries = [(f"a{k}", f"b{k}") for k in range(100)]
    for right in SHARES:
        assert sum(row in entries for row in spoiled_entries(entries, right, 0)) == right


def test_rcsls_is_another_map():
    draw = torch.Generator().manual_seed(0)
    first = WordVectors([f"a{k}" for k in range(60)], torch.randn(60, 8, generator=draw), "de")
    second = WordVectors([f"b{k}" for k in range(60)], torch.randn(60, 8, generator=draw), "en")
    entries = [(f"a{k}", f"b{k}") for k in range(40)]
    rotated, _ = mapped(first, second, entries)
    relaxed, _ = mapped(first, second, entries, "rcsls")
    assert not torch.allclose(rotated.matrix, relaxed.matrix)
    with pytest.raises(ConfigError):
        mapped(first, second, entries, "rotaton")
