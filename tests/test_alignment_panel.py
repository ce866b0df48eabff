"One pair in all layers, its picture, and the panel: links, gold, neighbours, the slider, and errors as sentences."

import pytest
import torch
from xlnb.base.core import DataError
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.measures.alignment import (
    METHODS,
    EncodedPair,
    align,
    encode_pair,
    usual_method,
    word_states,
)
from xlnb.text.cldr import cldr_corpus
from xlnb.text.vocab import train_vocab

PAIR = ("das Haus in Norwegen", "the house in Norway")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    "A small untrained encoder and its tokenizer; the folder that holds both."
    folder = tmp_path_factory.mktemp("encoder")
    corpus = cldr_corpus("de,en", parallel_lines=10, monolingual_lines=400, test_lines=10)
    tokenizer = train_vocab(corpus.text, 500, folder)
    model = new_model(Encoder, config_for("tiny", len(tokenizer)), seed=0)
    model.save_pretrained(folder)
    return model, tokenizer, folder


def test_a_pair_encoded_once_has_the_links_of_align(encoder):
    model, tokenizer, _ = encoder
    encoded = encode_pair(*PAIR, model, tokenizer)
    assert isinstance(encoded["argmax"], EncodedPair) and encoded.keys() == METHODS.keys()
    for method in METHODS:
        by_layer = align([PAIR], model, "all", method, tokenizer, quiet=True)
        expected = [links for (links,) in by_layer]
        assert [encoded[method].links(layer, method) for layer in range(4)] == expected
    assert usual_method(model.config) == "optimal_transport"
    with pytest.raises(DataError, match="the second sentence has no words"):
        encode_pair("house", " ", model, tokenizer)


def test_states_of_words_are_means_of_their_subwords(encoder):
    model, tokenizer, _ = encoder
    sides = [side.split() for side in PAIR]
    states = word_states([*sides, ["\u200b", "Haus"]], model, tokenizer, quiet=True)
    assert [tuple(side.shape) for side in states] == [(4, 4, 128), (4, 4, 128), (4, 2, 128)]
    assert states[2][:, 0].isnan().all() and states[2][:, 1].isfinite().all()
    for layer in range(4):
        for side, vectors in zip(
            states, encode_pair(*PAIR, model, tokenizer)["argmax"].word_vectors(layer)
        ):
            torch.testing.assert_close(side[layer], vectors, atol=1e-4, rtol=0)  # other batches
    with pytest.raises(DataError, match=r"sentence 1 has \d+ subwords"):
        word_states([["a"], ["1"] * 9000], model, tokenizer, quiet=True)
