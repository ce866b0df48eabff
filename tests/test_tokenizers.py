"""Vocabularies made by others: XLM-R's, mBERT's, Gemma's kind and one of our own train any paper."""

import json, os, shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write
from tokenizer_kinds import KINDS, LANGS, SPECIAL, text
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from xlnb import meta_xlm, veco, xlm_e, xy_lent
from xlnb.base.core import CheckpointError, ConfigError
from xlnb.measures.alignment import _subwords
from xlnb.measures.finetuning import _first_subwords
from xlnb.pretraining import pretraining
from xlnb.pretraining.pretraining import with_vocabulary
from xlnb.text.batches import prepare
from xlnb.text.corpora import Corpus
from xlnb.text.tokenizers import (
    ids_without_text,
    is_recorded_vocabulary,
    number_of_ids,
    open_vocabulary,
)
from xlnb.text.tokens import SpecialIds
from xlnb.training.objectives import MaskIds, mask_tokens

TINY = dict(
    langs="de,hi,ru",
    steps=2,
    width=32,
    layers=2,
    batch_tokens=256,
    test_lines=8,
    max_minutes=0.5,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("vocabularies")
    for name, make in KINDS.items():
        make(root / name)
    return root


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    return tmp_path


def run_unmeasured(recipe, settings) -> dict:
    "The record of a run whose network is not evaluated."
    return pretraining.run(replace(recipe, evaluate=lambda *_: ({}, "nothing")), settings)


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_are_those_of_the_tokenizer(folders, kind):
    vocabulary = open_vocabulary(folders / kind)
    *ids, mask = SPECIAL[kind]
    mask = vocabulary.size - 1 if mask is None else mask
    assert SpecialIds.of(vocabulary.tokenizer) == SpecialIds(*ids, mask)
    bos, pad, eos, _ = ids
    assert vocabulary.token_ids == {
        "bos_token_id": bos,
        "pad_token_id": pad,
        "eos_token_id": eos,
        "mask_token_id": mask,
    }
    assert vocabulary.name == kind and is_recorded_vocabulary(vocabulary.recorded)
    unused = {"mbert": {*range(1, 100)}, "gemma": {5, 6}}.get(kind, set())
    assert {*ids_without_text(vocabulary.tokenizer)} == {*ids, mask} | unused


def test_ids_are_read_once_until_tokens_are_added(folders, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(folders / "mbert")
    ids = MaskIds.of(tokenizer)
    with monkeypatch.context() as m:
        m.setattr(type(tokenizer), "get_vocab", None)  # would fail when called
        assert MaskIds.of(tokenizer) == ids
    tokenizer.add_special_tokens({"additional_special_tokens": ["<de>"]})
    assert MaskIds.of(tokenizer).vocab_size == ids.vocab_size + 1
    assert MaskIds.of(tokenizer).special == (*ids.special, ids.vocab_size)


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_replacements_are_subwords_of_text(folders, kind):
    tokenizer = open_vocabulary(folders / kind).tokenizer
    ids = MaskIds.of(tokenizer)
    lines = [line for of_lang in text().values() for line in of_lang[:40]]
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    masked = mask_tokens(batch, tokenizer, torch.Generator().manual_seed(0), 0.9, "80-10-10")
    is_masked = masked["labels"] != -100
    without_text = torch.tensor(ids_without_text(tokenizer))
    assert not torch.isin(masked["labels"][is_masked], without_text).any()
    # special tokens and padding stay as they were
    special = torch.isin(batch["input_ids"], without_text)
    assert not is_masked[special].any()
    seen = masked["input_ids"][is_masked]
    original = masked["labels"][is_masked]
    replaced = seen[(seen != ids.mask) & (seen != original)]
    assert len(replaced) > 50 and (seen == ids.mask).float().mean() > 0.7
    assert not torch.isin(replaced, without_text).any()
    assert replaced.max() < number_of_ids(tokenizer)


def test_numbers_without_a_token_are_never_drawn(folders, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folders / "gemma")
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = state["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    vocabulary[last] += 500  # as where tokens were removed
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    gap = PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "tokenizer.json"),
        **{f"{role}_token": f"<{role}>" for role in ("bos", "eos", "pad", "unk", "mask")},
    )
    ids = MaskIds.of(gap)
    assert ids.vocab_size == len(gap) + 500
    batch = {"input_ids": torch.full((1, 4000), vocabulary["▁д"] if "▁д" in vocabulary else 300)}
    masked = mask_tokens(batch, ids, torch.Generator().manual_seed(0), 1.0, "80-10-10")
    drawn = masked["input_ids"].unique()
    assert {*drawn.tolist()} <= {*vocabulary.values()}


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_has_no_reserved_id_and_its_own_unknown(folders, kind, tmp_path):
    lines = {lang: of_lang[:30] for lang, of_lang in text().items()}
    tokenizer = open_vocabulary(folders / kind).tokenizer
    odd = tokenizer.convert_ids_to_tokens([i for i in ids_without_text(tokenizer)])
    lines["de"] = [*lines["de"], f"Haus {odd[0]} {tokenizer.mask_token} {tokenizer.pad_token}"]
    corpus = Corpus("small", tuple(LANGS), lines, {}, {}, tests={})
    data = prepare(corpus, 0, folder=tmp_path, vocabulary=folders / kind)
    special = SpecialIds.of(tokenizer)
    ids = np.concatenate([data.store.text["de"][n] for n in range(31)])
    reserved = {special.bos, special.pad, special.eos, special.mask}
    assert not reserved & {*ids.tolist()} and special.unk in ids
    assert data.store.manifest["vocabulary"] == number_of_ids(tokenizer)
    # the same tokenizer in another folder is the same store
    tokenizer.save_pretrained(tmp_path / "copy")
    assert prepare(corpus, 0, folder=tmp_path, vocabulary=tmp_path / "copy").folder == data.folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lang", LANGS)
def test_words_begin_where_blanks_end(folders, kind, lang):
    tokenizer = open_vocabulary(folders / kind).tokenizer
    sentences = [line.split() for line in text()[lang][:40]]
    by_word = _subwords(sentences, tokenizer, SpecialIds.of(tokenizer))
    for words, (_, numbers) in zip(sentences, by_word):
        assert [*dict.fromkeys(numbers)] == [*range(len(words))]
    for words in sentences:
        line = " ".join(words)
        encoded = tokenizer(line, return_offsets_mapping=True)
        numbers = meta_xlm.word_numbers(line, encoded["offset_mapping"])
        assert [*dict.fromkeys(numbers[numbers >= 0])] == [*range(len(words))]
        firsts = _first_subwords(words, encoded.encodings[0])
        assert len({*firsts}) == len(words) and (np.diff(firsts) > 0).all() and firsts[0] >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_xlm_e_trains_on_it_and_saves_it(folders, kind, runs):
    path = folders / kind
    settings = xlm_e.resolve(xlm_e.Settings(vocabulary=str(path), **TINY))
    vocabulary = open_vocabulary(path)
    assert settings.vocab_size == vocabulary.size
    record = run_unmeasured(xlm_e.RECIPE, settings)
    assert record["parameters"]["vocabulary"] == vocabulary.recorded
    assert record["tokenizer"] == {"name": kind, "sha256": vocabulary.sha256}
    assert str(folders) not in json.dumps(record)
    (folder,) = runs.glob("runs/*/discriminator")
    saved = AutoTokenizer.from_pretrained(folder)
    line = "1. Januar und घर дом"
    assert saved(line)["input_ids"] == vocabulary.tokenizer(line)["input_ids"]
    config = json.loads((folder / "config.json").read_text())
    assert {name: config[name] for name in vocabulary.token_ids} == vocabulary.token_ids
    card = (folder / "README.md").read_text()
    assert kind in card and vocabulary.sha256[:12] in card and str(folders) not in card
    # the run's folder names it too
    assert open_vocabulary(folder.parent).sha256 == vocabulary.sha256


@pytest.mark.parametrize("kind", KINDS)
def test_veco_trains_on_it(folders, kind, runs):
    settings = veco.resolve(veco.Settings(vocabulary=str(folders / kind), **TINY))
    record = run_unmeasured(veco.RECIPE, settings)
    assert record["run"]["finished"] and record["tokenizer"]["name"] == kind


def test_rows_beyond_the_ids_are_never_predicted(folders, runs):
    settings = xlm_e.Settings(vocabulary=str(folders / "xlmr"), vocab_size=635, **TINY)
    settings = xlm_e.resolve(settings)
    data = xlm_e.prepare_data(settings)
    model = xlm_e.RECIPE.phase.model(settings, data)
    head = model.generator.head
    assert head.weight.shape == (635, 32)
    assert head(torch.randn(4, 32)).softmax(-1)[:, 600:].sum() == 0
    trained = pretraining.train_phase(xlm_e.RECIPE.phase, settings, data).model
    assert (trained.generator.head.bias[600:] == head.bias[600:]).all()


@pytest.mark.parametrize("rows", [599, 665])
def test_a_size_that_is_not_the_vocabularys_is_refused(folders, rows):
    settings = xlm_e.Settings(vocabulary=str(folders / "xlmr"), vocab_size=rows)
    with pytest.raises(
        ConfigError, match=f"vocab_size={rows} .* has 600 ids: leave vocab_size out"
    ):
        xlm_e.resolve(settings)


def test_the_papers_recipe_takes_the_ids_of_the_vocabulary(folders, runs):
    path = str(folders / "xlmr")
    papers = {
        xlm_e: dict(size="base"),
        xy_lent: dict(size="base", langs="de,en,hi"),
        meta_xlm: dict(recipe="default", langs="de,en"),
        veco: dict(size="base"),
    }
    for paper, more in papers.items():
        settings = paper.Settings(**{"recipe": "paper", "vocabulary": path, **more})
        assert paper.resolve(settings).vocab_size == 600, paper.__name__
    settings = xlm_e.resolve(xlm_e.Settings(recipe="paper", size="base", langs="de,en"))
    assert settings.vocab_size == 250_002
    with pytest.raises(ConfigError, match="size=250002 is larger than .* or give vocabulary"):
        xlm_e.prepare_data(settings)


def test_a_record_reads_back_without_the_folder(folders):
    settings = xlm_e.resolve(xlm_e.Settings(vocabulary=str(folders / "mbert"), **TINY))
    recorded = settings.for_record()
    again = xlm_e.resolve(xlm_e.Settings(**recorded))
    assert again.for_record() == recorded
    assert "vocabulary" not in xlm_e.resolve(xlm_e.Settings(**TINY)).for_record()


def test_what_pretraining_cannot_use_is_refused_with_what_to_do(folders, tmp_path):
    for role in ("mask", "pad"):
        tokenizer = AutoTokenizer.from_pretrained(folders / "gemma")
        setattr(tokenizer, f"{role}_token", None)
        tokenizer.save_pretrained(tmp_path / role)
        with pytest.raises(ConfigError, match=f"has no {role} token.*add_special_tokens"):
            open_vocabulary(tmp_path / role)
    (tmp_path / "slow").mkdir()
    config = {"tokenizer_class": "CanineTokenizer"}
    (tmp_path / "slow" / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="is a slow tokenizer .*: give a fast one"):
        open_vocabulary(tmp_path / "slow")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no tokenizer"):
        open_vocabulary(tmp_path / "empty")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="holds no tokenizer that loads"):
        open_vocabulary(tmp_path / "broken")
    with pytest.raises(
        CheckpointError, match="absent is not a folder here .*: give the folder of a saved to"
    ):
        open_vocabulary(tmp_path / "absent")
    settings = veco.Settings(vocabulary=str(folders / "xlmr"), init="somewhere")
    with pytest.raises(ConfigError, match="leave vocabulary out"):
        with_vocabulary(settings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lang", LANGS)
def test_ids_spell_their_text_and_its_words(folders, kind, lang):
    tokenizer = open_vocabulary(folders / kind).tokenizer
    for line in text()[lang][:40]:
        ids = tokenizer(line, add_special_tokens=False)["input_ids"]
        spelled, spans = meta_xlm.spelled(ids, tokenizer)
        numbers = meta_xlm.word_numbers(spelled, spans)
        words = spelled.split()
        assert [*dict.fromkeys(numbers[numbers >= 0])] == [*range(len(words))]
        if kind == "mbert":  # which cuts before punctuation marks, as a blank does
            assert "".join(words) == "".join(line.split())
        else:
            assert words == line.split()


@pytest.mark.parametrize("kind", ["mbert", "gemma"])
def test_metaxlm_trains_on_it_beside_a_teacher(folders, kind, runs):
    settings = meta_xlm.Settings(
        **{**TINY, "langs": "de,en", "source_lang": "en"},
        vocabulary=str(folders / kind),
        meta_steps=2,
        distil=1.0,
    )
    record = run_unmeasured(meta_xlm.RECIPE, meta_xlm.resolve(settings))
    assert record["run"]["finished"] and record["tokenizer"]["name"] == kind
    (config,) = runs.glob("runs/meta_xlm-*/generator/config.json")
    special = open_vocabulary(folders / kind).token_ids
    assert {name: json.loads(config.read_text())[name] for name in special} == special


def test_a_name_in_the_cache_of_the_hub(folders, tmp_path, monkeypatch):
    for name in ("some--encoder", "single-name"):
        repository = tmp_path / f"models--{name}"
        shutil.copytree(folders / "mbert", repository / "snapshots" / ("0" * 40))
        write(repository / "refs" / "main", "0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    vocabulary = open_vocabulary("some/encoder")
    assert vocabulary.sha256 == open_vocabulary(folders / "mbert").sha256
    assert vocabulary.recorded.startswith("some/encoder@")
    assert open_vocabulary("single-name").sha256 == vocabulary.sha256

    def no_network(self, name, **_):
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", no_network)
    with pytest.raises(CheckpointError, match=r"cannot be reached: .* \(hf download some/other\)"):
        open_vocabulary("some/other")


def test_a_tokenizer_is_fetched_without_the_weights_beside_it(folders, monkeypatch):
    asked = []
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda self, name, **_: None)

    def fetch(name, local_files_only=False, allow_patterns=None, **_):
        if local_files_only:
            raise OSError("not here")
        asked.append(allow_patterns)
        return str(folders / "mbert")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert open_vocabulary("some-lab/encoder").sha256 == open_vocabulary(folders / "mbert").sha256
    assert len(asked) == 1 and not any("safetensors" in pattern for pattern in asked[0])


@pytest.mark.slow
def test_the_vocabulary_of_xlm_r_itself(runs):
    "250,002 ids in a model whose embedding matrix has 250,037 rows."
    folder = Path(os.environ.get("XLNB_MODELS", "/nowhere")) / "multilingual-e5-small"
    if not folder.exists():
        pytest.skip("XLNB_MODELS names no folder with multilingual-e5-small")
    settings = xlm_e.resolve(xlm_e.Settings(vocabulary=str(folder), **TINY))
    assert settings.vocab_size == 250_002
    padded = xlm_e.Settings(vocabulary=str(folder), vocab_size=250_037, **TINY)
    assert xlm_e.resolve(padded).vocab_size == 250_037
    paper = xlm_e.Settings(vocabulary=str(folder), recipe="paper", size="base", langs="de,en")
    assert xlm_e.resolve(paper).vocab_size == 250_002
    data = xlm_e.prepare_data(settings)
    assert SpecialIds.of(data.tokenizer) == SpecialIds(0, 1, 2, 3, 250_001)
    summary = pretraining.train_phase(xlm_e.RECIPE.phase, settings, data).summary
    assert summary["finished"]
