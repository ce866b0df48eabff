"One pair in all layers, its picture, and the panel: links, gold, neighbours, the slider, and errors as sentences."

import json, sys
from dataclasses import asdict
from xml.etree import ElementTree

import pytest
import torch
from conftest import ROOT
from nbformat.v4 import new_code_cell, new_output

import xlnb.measures.alignment_panel as alignment_panel_module
from xlnb.base.core import ConfigError, DataError
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.measures.alignment import (
    METHODS,
    EncodedPair,
    align,
    encode_pair,
    usual_method,
    word_states,
)
from xlnb.measures.alignment_panel import (
    AlignmentPanel,
    AlignmentPicture,
    alignment_panel,
    alignment_picture,
    save_picture,
    sentence_words,
)
from xlnb.text.cldr import cldr_corpus
from xlnb.text.corpora import AlignedPair
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


# ---- the picture


GOLD = "0-0 1-1 2-2 3-3"
NEIGHBOURS = ["Haus in Italien", "Norwegen und Kenia", "<b> & Haus"]


def texts(svg):
    "The texts of a drawing that is well-formed XML, without the marks of direction."
    root = ElementTree.fromstring(svg)
    found = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    return [text.strip("\u2068\u2069") for text in found]


def test_a_picture_has_words_links_gold_and_neighbours(encoder):
    model, tokenizer, folder = encoder
    first = ["das", "<b>", "&", "Haus"]
    picture = alignment_picture(
        first, PAIR[1], folder, 1, "argmax", GOLD, word="Haus", neighbours=NEIGHBOURS
    )
    expected = align([(first, PAIR[1].split())], model, 1, "argmax", tokenizer, quiet=True)[0]
    assert [link[:2] for link in picture.links] == [link[:2] for link in expected]
    assert len(picture.aer) == 4 and str(picture).startswith("layer 1 of 3, argmax: AER ")
    drawn = texts(picture._repr_svg_())
    assert {*first, *PAIR[1].split()} <= {*drawn} and drawn.count("AER (%) by layer") == 1
    (_, others), (_, listed) = picture.neighbours
    assert {row[0] for row in others} == {*PAIR[1].split()}
    assert any("Haus in Italien" in text for text in drawn)
    assert [row[1] for row in listed] == sorted((row[1] for row in listed), reverse=True)
    again = AlignmentPicture(**json.loads(json.dumps(asdict(picture))))
    assert again._repr_svg_() == picture._repr_svg_()


def test_a_word_nearest_to_itself_is_found_among_neighbours(encoder):
    model, tokenizer, _ = encoder
    texts = ["in Norwegen", "das Haus in Norwegen"]
    picture = alignment_picture(
        *PAIR, model, layer=2, word="Norwegen", neighbours=texts, tokenizer=tokenizer
    )
    word, cosine, before, after = picture.neighbours[1][1][0]
    assert (word, before, after) == ("Norwegen", "das Haus in", "") and cosine > 0.999


def test_words_of_scripts_without_blanks_are_subwords(encoder):
    tokenizer = encoder[1]
    assert sentence_words("das  Haus", tokenizer) == ["das", "Haus"]
    assert "".join(sentence_words("家在哪里", tokenizer)) == "家在哪里"
    assert sentence_words("家 在哪里", tokenizer) == ["家", "在哪里"]


def test_a_picture_is_saved_as_svg(encoder, tmp_path):
    picture = alignment_picture(*PAIR, *encoder[:1], tokenizer=encoder[1])
    save_picture(picture, tmp_path / "pair.svg")
    assert (tmp_path / "pair.svg").read_text("utf-8") == picture._repr_svg_()


@pytest.mark.parametrize(
    "first, more, message",
    [
        (" ", {}, "the first sentence is empty: give at least one word"),
        ("a " * 41, {}, "the first sentence has 41 words, and a picture has room for 40"),
        ("a", {"layer": 4}, "layer=.4. is not one of 0"),
        ("a", {"layer": "all"}, "is not one of 0"),
        ("a", {"method": "argmx"}, "argmx"),
        ("a", {"word": "c"}, "word='c' is in neither sentence"),
        ("a", {"gold": "1-0"}, "0, 0|1, 0"),
        ("a", {"gold": AlignedPair(["x"], ["y"], set(), set())}, "gold has other words"),
        ("a", {"neighbours": [" "]}, "neighbours has 0 words"),
        ("a", {"neighbours": "one string"}, "one string"),
    ],
)
def test_what_cannot_be_drawn_is_said(encoder, first, more, message):
    with pytest.raises((ConfigError, DataError), match=message):
        alignment_picture(first, "b", encoder[0], tokenizer=encoder[1], **more)


# ---- the panel


@pytest.fixture
def panel(encoder):
    pytest.importorskip("ipywidgets")
    return alignment_panel(*PAIR, encoder[2], gold=GOLD, neighbours=NEIGHBOURS)


def test_the_slider_draws_another_layer_and_encodes_nothing(encoder, panel, monkeypatch):
    assert panel.fields["layer"].max == 3 and panel.picture.layer == 2
    monkeypatch.setattr(alignment_panel_module, "encode_pair", None)
    for layer in (0, 3, 1):
        panel.fields["layer"].value = layer
        expected = f"layer {layer} of 3"
        assert panel.picture.layer == layer and expected in panel.drawn.value
    panel.fields["method"].value = "itermax"
    assert "layer 1 of 3, itermax" in panel.drawn.value
    panel.fields["word"].value = (1, 1)
    assert "nearest to \u2068house\u2069 in the first sentence" in panel.drawn.value


def test_gold_is_of_the_sentences_that_were_passed(panel):
    assert panel.picture.aer
    panel.fields["second"].value = "the house"
    assert panel.picture.second == ["the", "house"] and not panel.picture.sure
    panel.fields["second"].value = PAIR[1]
    assert panel.picture.aer


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("first", " ", "the first sentence is empty"),
        ("second", "b " * 41, "the second sentence has 41 words"),
        ("encoder", "no/such/../model", "is not a folder"),
    ],
)
def test_an_error_is_a_sentence_in_the_panel(panel, field, value, message):
    before = panel.fields[field].value
    drawn = panel.drawn.value
    panel.fields[field].value = value
    assert panel.picture is None and message in panel.drawn.value
    assert "svg" not in panel.drawn.value and "Traceback" not in panel.drawn.value
    panel.fields["layer"].value = 2  # there is nothing to draw
    assert message in panel.drawn.value
    panel.fields[field].value = before
    assert panel.drawn.value == drawn


def test_a_panel_that_starts_with_an_error_says_so(encoder):
    pytest.importorskip("ipywidgets")
    panel = alignment_panel("", PAIR[1], encoder[2])
    assert isinstance(panel, AlignmentPanel)
    assert "the first sentence is empty" in panel.drawn.value and panel.picture is None
    panel.fields["first"].value = PAIR[0]
    assert panel.picture.first == PAIR[0].split()


def test_where_no_widgets_are_shown_the_picture_is(panel):
    sys.path.insert(0, str(ROOT / "tools"))
    import render

    shown = panel._repr_mimebundle_()
    view = "application/vnd.jupyter.widget-view+json"
    assert view in shown and shown["image/svg+xml"] == panel.picture._repr_svg_()
    outputs = [new_output("display_data", dict(shown)), new_output("display_data", {view: {}})]
    cell = new_code_cell("panel", outputs=outputs)
    render.clean_outputs(cell)
    assert [{*output.data} for output in cell.outputs] == [{"image/svg+xml", "text/plain"}]


def test_without_ipywidgets_a_sentence_says_what_to_install(encoder, without_package):
    without_package("ipywidgets")
    with pytest.raises(ConfigError, match="the panel needs the package ipywidgets.* pip install"):
        alignment_panel(*PAIR, encoder[2])
    assert alignment_picture(*PAIR, encoder[2]).links  # needs none
