"Text that no paper can train on: a sentence with what to do from each command, before anything is trained."

import re

import pytest
from conftest import write
from test_own import ENGLISH, GERMAN, lines

from xlnb import xlm_e
from xlnb.base.core import CheckpointError
from xlnb.command import main
from xlnb.text import tokens
from xlnb.text.hub import saved_folder
from xlnb.text.vocab import train_vocab


def no_network(self, name, **_):
    raise ConnectionError


PAPERS = {  # recipe → languages, and options that they need
    "xlm-e": ["--langs", "de,en"],
    "xy-lent": ["--langs", "de,en,fr"],
    "meta-xlm": ["--langs", "de,en", "--source_lang", "de"],
    "veco": ["--langs", "de,en"],
    "translator": ["--langs", "de,en", "--source", "en", "--target", "de"],
}
ONE = {
    "xlm-e": "langs='de': give two languages",
    "xy-lent": "langs='de': name at least three languages",
    "meta-xlm": "langs='de': give two languages",
    "veco": "langs='de': give two languages",
    "translator": "langs='de': give two languages",
}


def bitext(folder, german=GERMAN, english=ENGLISH, third=GERMAN, **options):
    "Three languages side by side."
    for lang, text in {"de": german, "en": english, "fr": third}.items():
        write(folder / f"train.{lang}", lines(text))


def empty(folder):
    folder.mkdir()


def no_text(folder):
    write(folder / "table.csv", "a,b\n")


def another_encoding(folder):
    bitext(folder)
    (folder / "train.de").write_bytes(lines(GERMAN).encode("latin-1"))


def unequal(folder):
    bitext(folder, german=GERMAN[:-3])


def one_language(folder):
    write(folder / "de.txt", lines(GERMAN))


def few_lines(folder):
    bitext(folder, GERMAN[:5], ENGLISH[:5], GERMAN[5:10])


FOLDERS = {
    empty: "holds no text to train on: text is read as de.txt",
    no_text: "holds no text to train on; not read: table.csv .no form that is read: write it with tabs",
    another_encoding: "train.de:1: .* is not UTF-8 but rather Latin-1 .*: convert the file first",
    unequal: "train.de:497: this file ends after 497 lines, .* has 500: aligned files match",
    one_language: "has no text of en.*; it has de",
    few_lines: "falls into the 3% that are held out by hash: put some hundred into files such as",
}


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    "Runs, surveys and models in a folder of the test's own, without a network."
    for name in ("XLNB_ROOT", "XLNB_CACHE", "XLNB_RESULTS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "XLNB_ROOT").mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", no_network)


def _without(words: list[str], options) -> list[str]:
    "Names and values but for those that are given anew."
    pairs = [pair for pair in zip(words[::2], words[1::2]) if pair[0] not in options]
    return [word for pair in pairs for word in pair]


def sentence(paper, corpus, *options) -> str:
    "What `xlnb pretrain` ends with."
    short = ["--steps", "2", "--width", "32", "--layers", "2", "--batch_tokens", "512"]
    with pytest.raises(SystemExit) as e:
        main(
            [
                "pretrain",
                paper,
                "--corpus",
                str(corpus),
                *_without(PAPERS[paper], options),
                *short,
                *options,
            ]
        )
    text = str(e.value)
    assert text.startswith("xlnb: ") and "\n" not in text and "Errno" not in text
    return text


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("make", FOLDERS, ids=lambda make: make.__name__)
def test_a_folder_that_cannot_be_trained_on(make, paper, tmp_path):
    make(tmp_path / "text")
    assert re.search(FOLDERS[make], said := sentence(paper, tmp_path / "text")), said


@pytest.mark.parametrize("paper", PAPERS)
def test_one_language_where_two_are_needed(paper, tmp_path):
    bitext(tmp_path / "text")
    assert ONE[paper] in sentence(paper, tmp_path / "text", "--langs", "de")


@pytest.fixture(scope="module")
def maskless(tmp_path_factory):
    "The folder of a tokenizer that has no mask."
    folder = tmp_path_factory.mktemp("vocabularies") / "maskless"
    tokenizer = train_vocab({"de": GERMAN, "en": ENGLISH}, 200, folder.with_name("own"))
    del tokenizer.init_kwargs["xlnb_sha256"]
    tokenizer.mask_token = None
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("paper", PAPERS)
def test_a_vocabulary_without_a_mask(paper, maskless, tmp_path):
    bitext(tmp_path / "text")
    said = sentence(paper, tmp_path / "text", "--vocabulary", str(maskless))
    assert "has no mask token" in said and "tokenizer.add_special_tokens" in said


@pytest.mark.parametrize("kind", ["vocabulary", "encoder", "data set"])
@pytest.mark.parametrize("paper", PAPERS)
def test_a_name_on_the_hub_without_a_network(paper, kind, tmp_path, monkeypatch):
    bitext(tmp_path / "text")
    corpus = tmp_path / "text"
    options = []
    if kind == "vocabulary":
        options = ["--vocabulary", "some-lab/none"]
    elif kind == "encoder":
        options = ["--source" if paper == "meta-xlm" else "--init", "some-lab/none"]
    else:
        pytest.importorskip("datasets")
        corpus = "hf:some-lab/none"
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", no_network)
    said = sentence(paper, corpus, *options)
    assert "some-lab/none is not a folder here" in said and "hub cannot be reached" in said


def test_an_interrupted_preparation_is_not_taken_for_whole(tmp_path, monkeypatch, capsys):
    bitext(tmp_path / "text")
    finish = tokens.finish_store

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    arguments = ["pretrain", "xlm-e", "--corpus", str(tmp_path / "text"), *PAPERS["xlm-e"]]
    with monkeypatch.context() as m:
        m.setattr(tokens, "finish_store", interrupted)
        with pytest.raises(SystemExit) as e:
            main(arguments)
    assert (
        e.value.code == 130 and "interrupted; the same command goes on" in capsys.readouterr().err
    )
    assert not [*tmp_path.rglob("manifest.json")] and tokens.finish_store is finish
    settings = xlm_e.resolve(xlm_e.Settings(corpus=str(tmp_path / "text"), langs="de,en"))
    data = xlm_e.RECIPE.prepare(settings)
    assert {*data.store.text} == {"de", "en"} and [*tmp_path.rglob("manifest.json")]


def test_a_model_of_nearly_this_name_is_named(tmp_path, monkeypatch):
    (tmp_path / "multilingual-e5-small").mkdir()
    monkeypatch.setenv("XLNB_MODELS", str(tmp_path))
    for name in ("multilingual-e5-smal", str(tmp_path / "multilingual-e5-smal")):
        with pytest.raises(CheckpointError, match=r"\(nearest: multilingual-e5-small\): give the"):
            saved_folder(name, "model")
