"A trimmed model computes what the full one does, for tokenizers of every kind, and is written whole or not at all."

import json, shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizer_kinds import KINDS, all_lines, text
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

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
    trimmed_copy,
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


def test_bytes_spell_other_scripts(tmp_path):
    "A byte-level tokenizer that is trimmed to German loses nothing of another text."
    KINDS["roberta"](tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    counts = count_subwords(tokenizer, text()["de"])
    fewer = trim_tokenizer(tokenizer, kept_subwords(tokenizer, counts))
    assert len(fewer) < len(tokenizer)
    for line in (*text()["hi"], *text()["ru"], "日本 🙂"):
        ids = fewer(line, add_special_tokens=False)["input_ids"]
        assert fewer.unk_token_id not in ids and fewer.decode(ids) == line


def roberta_of(folder, vocab_size, **changes):
    "A RoBERTa, which counts positions from the id of padding, beside the tokenizer in a folder."
    shape = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    config = RobertaConfig(
        vocab_size=vocab_size, **shape | dict(max_position_embeddings=130) | changes
    )
    torch.manual_seed(0)
    network = RobertaForMaskedLM(config)
    network.save_pretrained(folder)
    return network


def states_of(folder, lines):
    network = RobertaForMaskedLM.from_pretrained(folder).eval()
    batch = AutoTokenizer.from_pretrained(folder)(lines, return_tensors="pt", padding=True)
    with torch.no_grad():
        return network(**batch, output_hidden_states=True).hidden_states


def assert_same_states(full, trimmed, lines):
    for states, same in zip(states_of(full, lines), states_of(trimmed, lines), strict=True):
        assert torch.equal(states, same)


def test_positions_stay_where_subwords_before_padding_go(tmp_path):
    letters = sorted({letter for line in text()["de"] for letter in line})
    subwords = ["abc", "abd", "[UNK]", "[CLS]", "[PAD]", "[SEP]", "[MASK]", *letters]
    subwords += [f"##{letter}" for letter in letters]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(subwords))}
    folder = tmp_path / "model"
    BertTokenizerFast(vocab=vocabulary, do_lower_case=False).save_pretrained(folder)
    roberta_of(folder, len(vocabulary), pad_token_id=4, bos_token_id=3, eos_token_id=5)
    lines = text()["de"][:30]
    trimmed = trim_model(folder, lines, tmp_path / "german")
    assert trimmed.subwords[1] < len(vocabulary)
    assert_same_states(folder, trimmed.folder, lines)


def test_an_output_layer_that_is_stored_beside_the_embedding_matrix_is_trimmed(tmp_path):
    KINDS["roberta"](tmp_path / "model")
    rows = number_of_ids(AutoTokenizer.from_pretrained(tmp_path / "model"))
    weights = roberta_of(tmp_path / "model", rows).state_dict()
    assert "lm_head.decoder.weight" in weights
    clones = {name: weight.clone() for name, weight in weights.items()}
    save_file(clones, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
    lines = text()["de"][:30]
    trimmed = trim_model(tmp_path / "model", lines, tmp_path / "german")
    stored = load_file(trimmed.folder / "model.safetensors")
    matrix = stored["roberta.embeddings.word_embeddings.weight"]
    assert torch.equal(stored["lm_head.decoder.weight"], matrix)
    assert len(stored["lm_head.bias"]) == len(matrix) == trimmed.subwords[1]
    assert_same_states(tmp_path / "model", trimmed.folder, lines)


def test_special_ids_of_generation_are_renumbered(model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model)
    folder = shutil.copytree(model, tmp_path / "model")
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": [role_id(tokenizer, "eos")]}
    (folder / "generation_config.json").write_text(json.dumps(ids))
    trimmed = trim_model(folder, text()["de"], tmp_path / "german")
    fewer = AutoTokenizer.from_pretrained(trimmed.folder)
    written = json.loads((trimmed.folder / "generation_config.json").read_text())
    assert written == {
        "pad_token_id": fewer.pad_token_id,
        "eos_token_id": [role_id(fewer, "eos")],
    }


def test_merges_that_mark_the_end_of_a_word(tmp_path):
    "HerBERT's kind: the last character of a word has `</w>` before any merge."
    learner = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    head = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=head, end_of_word_suffix="</w>", show_progress=False
    )
    learner.train_from_iterator(all_lines(), trainer)
    roles = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), head))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=learner, **roles)
    lines = text()["de"]
    ids = kept_subwords(tokenizer, count_subwords(tokenizer, lines))
    fewer = trim_tokenizer(tokenizer, ids)
    assert len(fewer) < len(tokenizer)
    for line in lines:
        assert fewer.tokenize(line) == tokenizer.tokenize(line)
    assert fewer.unk_token_id not in fewer("Seesterne")["input_ids"]


def test_tokens_beyond_the_rows_of_the_model_are_said(model, tmp_path):
    "Tokens were added to the tokenizer, and no rows to the model, which has 40 spare ones."
    folder = shutil.copytree(model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"<added{n}>" for n in range(41)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(CheckpointError, match="call model.resize_token_embeddings"):
        trim_model(folder, ["Haus"], tmp_path / "german")
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([f"<added{n}>" for n in range(9)])
    tokenizer.save_pretrained(folder)
    trimmed = trim_model(folder, ["Haus <added8>"], tmp_path / "german")
    fewer = AutoTokenizer.from_pretrained(trimmed.folder)
    full, small = (
        BertForMaskedLM.from_pretrained(path).get_input_embeddings().weight
        for path in (folder, trimmed.folder)
    )
    for token in ("<added0>", "<added8>"):
        old, new = tokenizer.convert_tokens_to_ids(token), fewer.convert_tokens_to_ids(token)
        assert torch.equal(full[old], small[new])


def test_a_model_with_two_vocabularies_is_said(model, tmp_path):
    folder = shutil.copytree(model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] = {"vocab_size": config.pop("vocab_size")}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="only models with one vocabulary are trimmed"):
        trim_model(folder, ["Haus"], tmp_path / "german")


def test_as_many_positions_as_ids_are_refused(tmp_path):
    KINDS["roberta"](tmp_path / "model")
    rows = number_of_ids(AutoTokenizer.from_pretrained(tmp_path / "model"))
    roberta_of(tmp_path / "model", rows, max_position_embeddings=rows)
    with pytest.raises(
        CheckpointError, match="position_embeddings.weight .* in a table of positions"
    ):
        trim_model(tmp_path / "model", ["Haus"], tmp_path / "german")
    assert not (tmp_path / "german").exists()


def test_rare_subwords_go_with_a_threshold(model, tmp_path):
    lines = text()["de"]
    once = trim_model(model, lines, tmp_path / "one")
    often = trim_model(model, lines, tmp_path / "ten", min_count=10)
    assert often.subwords[1] < once.subwords[1]
    cards = [(folder / "README.md").read_text() for folder in (once.folder, often.folder)]
    assert ["the states of every layer are the full model's" in card for card in cards] == [
        True,
        False,
    ]
    assert "has 10 times or more" in cards[1]


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


def test_the_text_may_be_several_files(model, tmp_path, monkeypatch, capsys):
    lines = text()["de"]
    (tmp_path / "a.txt").write_text("\n".join(lines[::2]))
    (tmp_path / "b.txt").write_text("\n".join(lines[1::2]))
    (tmp_path / "both.txt").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    main([str(model), "--text", "a.txt", "b.txt", "--output", "parts"])
    main([str(model), "--text", "both.txt", "--output", "one"])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].removeprefix("parts") == shown[1].removeprefix("one")
    with pytest.raises(SystemExit, match="c.txt is not there"):
        main([str(model), "--text", "a.txt", "c.txt", "--output", "new"])
    with pytest.raises(SystemExit, match="--text cldr gettext with --langs: name one corpus"):
        main([str(model), "--text", "cldr", "gettext", "--langs", "de", "--output", "new"])
    assert not (tmp_path / "new").exists()


def test_held_out_text_counts_too(tmp_path):
    corpus = open_corpus("cldr", ("de", "ru"), test_lines=20)
    lines = {*corpus_lines(corpus)}
    for pairs in (*corpus.valid.values(), *corpus.pairs.values()):
        assert all({*pair} <= lines for pair in pairs)
    for sides in corpus.tests.values():
        assert all({*side} <= lines for pair in sides.values() for side in pair)


def test_models_of_one_name_with_other_weights_have_copies_of_their_own(
    model, tmp_path, monkeypatch
):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path / "root"))
    copies = []
    for place, added in (("first", 0), ("second", 1), ("third", 0)):
        folder = shutil.copytree(model, tmp_path / place / "model")
        weights = {
            name: tensor + added for name, tensor in load_file(folder / "model.safetensors").items()
        }
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        copies.append(trimmed_copy(folder, lambda: text(("de",))["de"]))
    assert copies[0] == copies[2] != copies[1]


def test_a_path_in_place_of_lines_is_refused(model, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("some text")
    for given in (str(path), path, "some text"):
        with pytest.raises(DataError, match="the text: a stream is a list of lines"):
            trim_model(model, given, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_text_without_frequent_subwords_is_refused(model, tmp_path):
    with pytest.raises(DataError, match="no subword occurs 2,000 times: lower min_count"):
        trim_model(model, ["some text"], tmp_path / "out", min_count=2000)
    assert not (tmp_path / "out").exists()
