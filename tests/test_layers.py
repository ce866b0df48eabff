"One pass of an encoder gives all its layers, whatever they are read for."

import pytest
from conftest import LINES

from xlnb.text.corpora import AlignedPair
from xlnb.encoder.loading import load_model_and_tokenizer
from xlnb.measures.alignment import METHODS, aer_by_layer, align
from xlnb.measures.probes import cldr_tasks, linear_probe
from xlnb.measures.retrieval import encode, retrieval_by_layer

WORDS = [line.split() for line in LINES]
GOLD = [AlignedPair(words, words, frozenset({(0, 0)}), frozenset({(0, 0)})) for words in WORDS]


def probe(model, tokenizer, layer):
    task = cldr_tasks(["de", "en"], train=20, test=20)["tags"]
    linear_probe(model, tokenizer, task, "en", layer, in_language=False)


READ = {
    "encode": lambda model, tokenizer, layer: encode(LINES, model, layer, tokenizer),
    "retrieval": lambda model, tokenizer, layer: retrieval_by_layer(
        model, {"T": {"de-en": (LINES, LINES[::-1])}}, tokenizer, layer
    ),
    "links": lambda model, tokenizer, layer: align(
        list(zip(WORDS, WORDS)),
        model,
        layer,
        [name for name in METHODS if METHODS[name]],
        tokenizer,
    ),
    "alignment error rate": lambda model, tokenizer, layer: aer_by_layer(
        model, {"T": {"de-en": GOLD}}, tokenizer, layer, [*METHODS], joint=False
    ),
    "probe": probe,
}


@pytest.mark.parametrize("name", READ)
def test_all_layers_come_out_of_as_many_passes_as_one(saved_network, name):
    model, tokenizer = load_model_and_tokenizer(saved_network)
    passes = []
    model.register_forward_pre_hook(lambda *_: passes.append(name))

    def count(layer):
        passes.clear()
        READ[name](model, tokenizer, layer)
        return len(passes)

    assert 0 < count("all") == count(1)
