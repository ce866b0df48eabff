"A trimmed model computes what the full one does, for tokenizers of every kind, and is written whole or not at all."

import json

import numpy as np
import pytest
import torch
from tokenizer_kinds import KINDS, text
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from xlnb.base.core import CheckpointError, ConfigError, DataError
from xlnb.encoder.encoder import config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.encoder.loading import load_model_and_tokenizer
from xlnb.encoder.trimming import (
    corpus_lines,
    count_subwords,
    kept_subwords,
    main,
    trim_model,
    trim_tokenizer,
)
from xlnb.text.own import open_corpus
from xlnb.text.tokenizers import ROLES, number_of_ids, role_id


@pytest.fixture(scope="module", params=KINDS)
def model(request, tmp_path_factory):
    "Folder of a BERT with a tokenizer of that kind, and spare rows."
    folder = tmp_path_factory.mktemp(request.param)
    KINDS[request.param](folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = {f"{role}_token_id": role_id(tokenizer, role) for role in ("pad", "bos", "eos")}
    config = BertConfig(
        vocab_size=number_of_ids(tokenizer) + 40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        **ids,
    )
    torch.manual_seed(0)
    BertForMaskedLM(config).save_pretrained(folder)
    return folder


def outputs(folder, lines):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        batch = tokenizer(lines, return_tensors="pt", padding=True)
        return tokenizer, batch, model(**batch, output_hidden_states=True)


def test_states_are_the_full_models(model, tmp_path):
    lines = text()["de"]
    trimmed = trim_model(model, lines, tmp_path / "german")
    tokenizer, full_batch, full = outputs(model, lines[:50])
    fewer, batch, small = outputs(trimmed.folder, lines[:50])
    assert len(fewer) < len(tokenizer)
    assert trimmed.subwords == (number_of_ids(tokenizer) + 40, number_of_ids(fewer))
    for line in lines:
        assert fewer.tokenize(line) == tokenizer.tokenize(line)
    assert torch.equal(full_batch["attention_mask"], batch["attention_mask"])
    for states, same in zip(full.hidden_states, small.hidden_states, strict=True):
        assert torch.equal(states, same)
    kept = kept_subwords(tokenizer, count_subwords(tokenizer, lines))
    # a product with fewer columns may be summed in another order
    torch.testing.assert_close(full.logits[..., kept], small.logits, atol=1e-6, rtol=0)


def test_special_tokens_keep_their_roles(model, tmp_path):
    trimmed = trim_model(model, text()["ru"], tmp_path / "russian")
    tokenizer, fewer = (AutoTokenizer.from_pretrained(f) for f in (model, trimmed.folder))
    for role in ROLES:
        old, new = role_id(tokenizer, role), role_id(fewer, role)
        assert tokenizer.convert_ids_to_tokens(old) == fewer.convert_ids_to_tokens(new)
    config = json.loads((trimmed.folder / "config.json").read_text())
    for role in ("pad", "bos", "eos"):
        assert config[f"{role}_token_id"] == role_id(fewer, role)
    load_model_and_tokenizer(trimmed.folder)  # compares them


def test_words_of_other_text_are_spelled(tmp_path):
    "A German word that the text does not have is cut into its characters, not lost."
    KINDS["xlmr"](tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    lines = text()["de"]
    fewer = trim_tokenizer(
        tokenizer, kept_subwords(tokenizer, count_subwords(tokenizer, lines[:40]))
    )
    new_line = next(line for line in lines[40:] if fewer.tokenize(line) != tokenizer.tokenize(line))
    assert fewer.unk_token_id not in fewer(new_line)["input_ids"]


def test_rare_subwords_go_with_a_threshold(model, tmp_path):
    lines = text()["de"]
    once = trim_model(model, lines, tmp_path / "one")
    often = trim_model(model, lines, tmp_path / "ten", min_count=10)
    assert often.subwords[1] < once.subwords[1]


def test_our_encoder_and_its_checksums(tmp_path):
    KINDS["trained"](tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    network = new_model(EncoderForMaskedLM, config_for("tiny", len(tokenizer)), 0)
    network.save_pretrained(tmp_path / "model")
    trimmed = trim_model(tmp_path / "model", text()["de"], tmp_path / "german")
    encoder, fewer = load_model_and_tokenizer(trimmed.folder)
    assert encoder.config.vocab_size == len(fewer) == trimmed.subwords[1]
    assert trimmed.parameters[0] > trimmed.parameters[1]
    assert "Trimmed vocabulary" in (trimmed.folder / "README.md").read_text()


def test_several_files_and_copies_in_other_formats(model, tmp_path):
    folder = tmp_path / "shards"
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.save_pretrained(folder)
    BertForMaskedLM.from_pretrained(model).save_pretrained(folder, max_shard_size="20KB")
    assert (folder / "model.safetensors.index.json").exists()
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "onnx").mkdir()
    (folder / "pytorch_model.bin").write_bytes(b"the same weights")
    trimmed = trim_model(folder, text()["de"], tmp_path / "german")
    _, _, full = outputs(model, text()["de"][:9])
    _, _, small = outputs(trimmed.folder, text()["de"][:9])
    assert torch.equal(full.hidden_states[-1], small.hidden_states[-1])
    assert (trimmed.folder / "1_Pooling" / "config.json").exists()
    assert not (trimmed.folder / "onnx").exists()
    assert not (trimmed.folder / "pytorch_model.bin").exists()


def test_faults_leave_no_folder(model, tmp_path):
    output = tmp_path / "german"
    with pytest.raises(DataError, match="no subwords"):
        trim_model(model, [], output)
    with pytest.raises(ConfigError, match="min_count"):
        trim_model(model, ["Haus"], output, min_count=0)
    with pytest.raises(CheckpointError, match="not a folder"):
        trim_model(tmp_path / "none", ["Haus"], output)
    with pytest.raises(ConfigError, match="special tokens"):
        trim_tokenizer(AutoTokenizer.from_pretrained(model), [700])
    assert not output.exists()
    before = sorted(path.name for path in model.iterdir())
    for folder in (model, tmp_path):  # which would be replaced
        with pytest.raises(ConfigError, match="exists: name a new folder"):
            trim_model(model, ["Haus"], folder)
    assert sorted(path.name for path in model.iterdir()) == before


def test_units_that_are_as_many_as_ids_are_refused(tmp_path):
    "Rows of a matrix and ids could not be told apart."
    KINDS["trained"](tmp_path / "model")
    rows = number_of_ids(AutoTokenizer.from_pretrained(tmp_path / "model"))
    config = BertConfig(vocab_size=rows, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    config.intermediate_size = rows
    BertForMaskedLM(config).save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match="outside its first dimension"):
        trim_model(tmp_path / "model", text()["de"], tmp_path / "german")
    assert not (tmp_path / "german").exists()


def test_counts_do_not_depend_on_batches(tmp_path):
    lines = text()["de"] * 4
    KINDS["trained"](tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    counts = count_subwords(tokenizer, lines)
    ids = tokenizer(lines, add_special_tokens=False)["input_ids"]
    assert np.array_equal(counts, np.bincount(np.concatenate(ids), minlength=len(counts)))


def test_from_the_terminal(model, tmp_path, capsys):
    lines = text()["de"]
    (tmp_path / "de.txt").write_text("\n".join(lines))
    for name, options in (
        ("file", ["--text", str(tmp_path / "de.txt")]),
        ("corpus", ["--text", "cldr", "--langs", "de"]),
    ):
        main([str(model), *options, "--output", str(tmp_path / name)])
        assert "subwords" in capsys.readouterr().out
        fewer = AutoTokenizer.from_pretrained(tmp_path / name)
        tokenizer = AutoTokenizer.from_pretrained(model)
        assert [fewer.tokenize(line) for line in lines] == [
            tokenizer.tokenize(line) for line in lines
        ]


def test_held_out_text_counts_too(tmp_path):
    corpus = open_corpus("cldr", ("de", "ru"), test_lines=20)
    lines = {*corpus_lines(corpus)}
    for pairs in (*corpus.valid.values(), *corpus.pairs.values()):
        assert all({*pair} <= lines for pair in pairs)
    for sides in corpus.tests.values():
        assert all({*side} <= lines for pair in sides.values() for side in pair)
