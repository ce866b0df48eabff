"Curves of real encoders: every sentence encoded once, names of measures, printed values, figures out of records."

import shutil

import pytest
import torch
from transformers import BertConfig, BertModel

from xlnb.base.core import ConfigError
from xlnb.measures.alignment import METHODS, aer_by_layer
from xlnb.measures.ibm import AlignedPair
from xlnb.measures.readouts import TATOEBA
from xlnb.measures.retrieval import encode, encode_by_pool, retrieval_by_layer
from xlnb.pretraining.experiments import missing, records_of
from xlnb.results.real_encoders import (
    EXPERIMENTS,
    PAIRS,
    POOLS,
    READINGS,
    RECIPE,
    TITLES,
    Settings,
    aer_curve,
    alignment_metrics,
    best,
    encoder_facts,
    encoder_name,
    newest_records,
    plot_encoders,
    printed_aer,
    printed_retrieval,
    retrieval_curve,
    retrieval_metrics,
    summary_row,
)
from xlnb.text.vocab import train_vocab

SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
GERMAN = ["Januar", "zwei Tage", "eine lange Woche", "drei Monate", "heute"]
ENGLISH = ["January", "two days", "a long week", "three months", "today"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    lines = {"de": GERMAN * 20, "en": ENGLISH * 20}
    return train_vocab(lines, 40, tmp_path_factory.mktemp("vocab") / "vocab")


@pytest.fixture(scope="module")
def model(tokenizer):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **SHAPE)
        return BertModel(config).eval()


def test_vectors_are_those_of_encode(model, tokenizer):
    vectors = encode_by_pool(GERMAN, model, tokenizer, [0, 1, 2], [*POOLS.values()], batch_size=2)
    assert vectors.shape == (len(POOLS), 3, len(GERMAN), 32)
    for of_pool, pool in zip(vectors, POOLS.values()):
        theirs = encode(GERMAN, model, "all", tokenizer, pool=pool, quiet=True)
        torch.testing.assert_close(of_pool, theirs, atol=1e-5, rtol=1e-4)  # other sums of floats


def test_retrieval_is_that_of_the_library(model, tokenizer):
    tests = {"de-en": (GERMAN, ENGLISH)}
    metrics = retrieval_metrics(model, tokenizer, tests)
    for ending, pool in POOLS.items():
        for row in retrieval_by_layer(model, {"tatoeba": tests}, tokenizer, pool=pool):
            measure = f"layer{row['layer']}/acc@1{'c' * row['centred']}{ending}"
            for direction in ("forward", "backward"):
                assert metrics.pop(f"tatoeba/de-en/{direction}/{measure}") == row[direction]
    assert metrics == {}


def test_alignment_is_that_of_the_library(model, tokenizer):
    links = frozenset({(0, 0), (1, 1)})
    pair = AlignedPair(("zwei", "Tage"), ("two", "days"), links, links)
    metrics = alignment_metrics(model, tokenizer, {"de-en": [pair] * 3})
    for reading, (joint, methods) in READINGS.items():
        rows = aer_by_layer(
            model, {"gold": {"de-en": [pair] * 3}}, tokenizer, method=methods, joint=joint
        )
        for row in rows:
            name = f"gold/de-en/{reading}/layer{row['layer']}/aer-{row['method']}"
            assert metrics.pop(name) == pytest.approx(row["aer"], abs=1e-5)  # rounded
    assert metrics == {} and {*READINGS["apart"][1]} == {*METHODS}


def record_of(name, layers=2, level=0.5):
    "A record whose retrieval rises by layer and whose error falls."
    metrics = {}
    for layer in range(layers + 1):
        for lang in TATOEBA["tatoeba-36"]:
            pair = "-".join(sorted((lang, "en")))
            for way, shift in (("forward", 0.1), ("backward", -0.1)):
                for measure in ("acc@1", "acc@1c", "acc@1-special", "acc@1c-special"):
                    score = level + layer / 10 + shift
                    metrics[f"tatoeba/{pair}/{way}/layer{layer}/{measure}"] = score
        for pair in PAIRS:
            for reading, (_, methods) in READINGS.items():
                for method in methods:
                    error = level - layer / 10
                    metrics[f"gold/{pair}/{reading}/layer{layer}/aer-{method}"] = error
    return {
        "parameters": {"model": name, "seed": 0},
        "run": {"finished": True, "processor_minutes": {"retrieval": 1.0}},
        "encoder": {"layers": layers},
        "metrics": metrics,
    }


def test_curves_are_means_in_per_cent():
    record = record_of("some-encoder")
    assert retrieval_curve(record) == pytest.approx([50, 60, 70])
    assert aer_curve(record, "joint", "itermax") == pytest.approx([50, 40, 30])
    assert best(retrieval_curve(record)) == "70.0 at 2"
    assert best(aer_curve(record), lower=True) == "30.0 at 2"
    row = summary_row("some-encoder", record)
    assert row["encoder"] == "some-encoder" and row["minutes of a core"] == "1.0"


def test_printed_values_are_those_of_the_sources():
    assert printed_retrieval("XLM-R") == {7: 54.42, 10: 43.34}
    assert printed_retrieval("XLM-E") == {9: 63.66, 10: 57.14}
    assert printed_aer("XLM-R", ["de-en"])[8] == 19.11
    assert printed_aer("XLM-Align", ["en-fr"])[9] == 6.71
    assert printed_aer("XLM-R")[8] == pytest.approx((19.11 + 6.83 + 33.73 + 28.73) / 4)


def test_any_encoder_is_drawn_beside_the_printed_values():
    old, new = record_of("some-encoder", level=0.2), record_of("some-encoder")
    records = newest_records([old, new, record_of("all-MiniLM-L6-v2", 3)])
    assert [*records] == ["all-MiniLM-L6-v2", "some-encoder"] and records["some-encoder"] is new
    fig = plot_encoders(records)
    labels = {line.get_label() for ax in fig.axes for line in ax.get_lines()}
    printed = {"XLM-R, printed", "XLM-Align, printed", "XLM-E, printed"}
    assert labels == {"some-encoder", TITLES["all-MiniLM-L6-v2"]} | printed


def test_records_name_an_encoder_without_a_path(tmp_path, monkeypatch, model, tokenizer):
    folder = tmp_path / "my-encoder"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert Settings(str(folder)).for_record() == {"model": "my-encoder", "seed": 0}
    shutil.copytree(folder, tmp_path / "models" / "small-encoder")
    monkeypatch.setenv("XLNB_MODELS", str(tmp_path / "models"))
    for name in ("small-encoder", "some-lab/small-encoder"):
        assert encoder_name(name) == "small-encoder"
    facts = encoder_facts(folder, model)
    assert str(tmp_path) not in str(facts) and facts["weights"].startswith("my-encoder-")
    with pytest.raises(ConfigError, match="name an encoder"):
        encoder_name("")


def test_what_has_a_record_is_not_measured_again():
    experiment = EXPERIMENTS["encoders"]
    record = record_of("all-MiniLM-L6-v2")
    assert len(missing(experiment, RECIPE, [record])) == len(TITLES) - 1
    assert records_of(experiment, RECIPE, [record])["MiniLM (English)"] == {0: record}
