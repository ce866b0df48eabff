"What is measured of a network, and what of it is kept for the next run."
import json, math
from dataclasses import replace

import pytest

from xlnb import reports, retrieval
from xlnb.data import open_corpus, prepare
from xlnb.encoder import Encoder, config_for, new_model
from xlnb.reports import (Probed, best_accuracy, cached_rows, evaluate, free_rows, last_held_out, summarise,
                          untrained_rows)


@pytest.fixture(scope="module")
def data(root): return prepare(open_corpus("cldr", ["en", "de"], test_lines=20), 300)


def network(data, **more): return new_model(Encoder, shaped(len(data.tokenizer), **more), 1)


def shaped(ids, **more):
    config = config_for("tiny", ids)
    for name, value in {"num_hidden_layers": 1, **more}.items(): setattr(config, name, value)
    return config


def test_rows_are_computed_once_for_a_key(tmp_path):
    calls = []
    compute = lambda: calls.append(1) or [{"score": 0.5, "layer": None}, [float("nan")]]
    first, second = (cached_rows(tmp_path, "rows", ["a", 1], compute) for _ in range(2))
    assert len(calls) == 1 and json.dumps(first) == json.dumps(second)
    cached_rows(tmp_path, "rows", ["a", 2], compute)
    cached_rows(tmp_path, "others", ["a", 1], compute)
    assert len(calls) == 3 and len(list(tmp_path.iterdir())) == 3


def test_rows_that_could_not_be_computed_leave_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError): cached_rows(tmp_path, "rows", [], lambda: 1 / 0)
    assert not list(tmp_path.iterdir())


def test_what_is_kept_is_what_would_be_computed(data, monkeypatch):
    whole = reports.probes.cldr_tasks
    tags = lambda langs, **_: whole(langs, train=40, test=40, tasks=("tags",))
    monkeypatch.setattr(reports.probes, "cldr_tasks", tags)
    trained = network(data)
    first, again = (evaluate(trained, data).metrics() for _ in range(2))
    assert first == again
    for path in data.folder.glob("*.json"): path.unlink()
    assert evaluate(trained, data).metrics() == first
    twin = retrieval.untrained(trained)
    own = [r for r in untrained_rows(trained, data, Probed.of(("en", "de"), "en"))[0] if r["pair"] == "de-en"]
    seen = [r for r in retrieval.retrieval_by_layer(twin, data.corpus.tests, data.tokenizer, system="untrained")
            if r["pair"] == "de-en"]
    assert [r["accuracy"] for r in own] == pytest.approx([r["accuracy"] for r in seen])
    for name in ("baselines", "retrieval_by_layer", "untrained"): monkeypatch.delattr(reports.retrieval, name)
    free_rows(data, True)
    untrained_rows(trained, data, Probed.of(("en", "de"), "en"))


@pytest.mark.parametrize("change", [dict(num_hidden_layers=2), dict(initializer_range=0.5)])
def test_a_network_of_another_shape_has_untrained_rows_of_its_own(data, change):
    asked = Probed.of((), None)
    one, other = (untrained_rows(network(data, **more), data, asked) for more in ({}, change))
    assert one[0] != other[0] and one[2] == other[2] == []


def test_other_tests_have_rows_of_their_own(data):
    fewer = replace(data, corpus=replace(data.corpus, tests={test: {pair: (a[:10], b[:10]) for pair, (a, b) in
                                                             by.items()} for test, by in data.corpus.tests.items()}))
    one, other = (free_rows(d, True)[0] for d in (data, fewer))
    assert {r["n"] for r in one} != {r["n"] for r in other}


@pytest.mark.parametrize("langs, source, found", [
    (("en", "de", "xx"), "en", (["en", "de"], "en")), (("xx", "de", "ru"), "xx", (["de", "ru"], "de")),
    ((), None, ([], None))])
def test_probes_are_of_the_languages_that_cldr_has(langs, source, found):
    probed = Probed.of(langs, source)
    assert (probed.langs, probed.source) == found
    if len(found[0]) < 2: assert probed.rows(lambda _: pytest.fail("no task")) == []


def test_what_the_probes_depend_on_is_in_their_key(monkeypatch):
    before = Probed.of(("en", "de"), "en").key()
    assert before != Probed.of(("en", "de", "ru"), "en").key() != Probed.of(("en", "de", "ru"), "ru").key()
    monkeypatch.setattr(reports, "version", lambda name: "0")
    assert before != Probed.of(("en", "de"), "en").key()
    monkeypatch.undo()
    monkeypatch.setattr(reports, "source_hash", lambda *modules: "0")
    assert before != Probed.of(("en", "de"), "en").key()


# ---- records read back -----------------------------------------------------------------------------------------------

def record(**held_out):
    line = {"step": 9, **{f"held_out/{name}": value for name, value in held_out.items()}}
    metrics = {"T3/de-en/layer0/acc@1c": 0.2, "T3/de-en/layer1/acc@1c": 0.4, "T3/de-en/lsa/acc@1c": 0.9,
               "T3/de-en/layer1/acc@1": 0.5}
    return {"parameters": {"seed": 0}, "run": {"tokens": 2e6}, "curve": [{"step": -1}, line], "metrics": metrics}


def test_losses_are_read_as_what_they_stand_below():
    last = last_held_out(record(unigram=5.0, text_mlm=4.0, tlm_gap=0.3, tlm_gap_across=0.1, text_rtd_auc=0.7))
    known = {name: value for name, value in last.items() if not math.isnan(value)}
    assert known == {"MLM below unigram": 1.0, "RTD AUC": 0.7, "translation gain, TLM": 0.3,
                     "translation gain across scripts": 0.1}


def test_accuracy_is_of_the_best_layer_of_a_line():
    line = record(found_layer0=0.25, found_layer1=0.125, text_mlm=4.0)["curve"][-1]
    assert best_accuracy(line) == 25 and math.isnan(best_accuracy({"step": 0}))


def test_a_summary_has_the_same_columns_in_all_rows():
    with_aer = record(tlm_gap=0.5)
    with_aer["metrics"] |= {"gold/de-en/layer1/aer": 0.5}
    rows = summarise({"none": [], "plain": {0: record(), 1: record()}, "aligned": [with_aer]})
    assert [row["run"] for row in rows] == ["plain", "aligned"] and rows[0].keys() == rows[1].keys()
    assert [rows[0][f"T3, {name}"] for name in ("best layer", "lsa")] == ["40 ± 0", "90 ± 0"]
    assert rows[0]["gold, best layer"] == "–"
    assert rows[1]["translation gain, TLM"] == "0.5" and rows[1]["gold, best layer"] == "50"
