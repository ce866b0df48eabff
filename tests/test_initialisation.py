"""Models that start from others: transformers' own models as oracles, a counting reader, statistics of drawn rows."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array
from tokenizers import ByteLevelBPETokenizer, BertWordPieceTokenizer, SentencePieceUnigramTokenizer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

from xlnb.base.core import CheckpointError, ConfigError, torch_generator
from xlnb.text.matching import Matching
from xlnb.encoder import initialisation as I
from xlnb.encoder.encoder import Encoder, EncoderConfig, config_for, load, new_model
from xlnb.encoder.heads import (
    EncoderForMaskedLM,
    EncoderForQuestionAnswering,
    EncoderForReplacedTokens,
    EncoderForSequenceClassification,
)
from xlnb.encoder.initialisation import (
    Initialised,
    fit_normal,
    freeze_body,
    initialise,
    source_config,
    target_config_for,
    stored_weights,
)
from xlnb.training.objectives import forbid_spare_rows
from xlnb.training.training import TrainingConfig, make_optimizer

TEXT = [
    "the cat sat on the mat",
    "a dog and two cats",
    "die Katze saß auf der Matte",
    "ein Hund und zwei Katzen",
    "cities of the north",
    "the northern city",
] * 5
WORDS = "encoder.embeddings.word_embeddings.weight"
SHAPE = dict(
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    initializer_range=0.3,
    max_position_embeddings=30,
)
ROBERTA = dict(pad_token_id=1, layer_norm_eps=1e-5, type_vocab_size=1)


def bpe():
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        TEXT,
        vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        show_progress=False,
    )
    return tokenizer


def wordpiece():
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(TEXT, vocab_size=90, show_progress=False)
    return tokenizer


def unigram():
    tokenizer = SentencePieceUnigramTokenizer()
    tokenizer.train_from_iterator(
        TEXT,
        vocab_size=60,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>",
        show_progress=False,
    )
    return tokenizer


FAMILIES = {
    "roberta-mlm": (RobertaForMaskedLM, RobertaConfig, bpe, ROBERTA),
    "roberta-untied": (
        RobertaForMaskedLM,
        RobertaConfig,
        bpe,
        dict(ROBERTA, tie_word_embeddings=False),
    ),
    "xlmr-mlm": (XLMRobertaForMaskedLM, XLMRobertaConfig, unigram, ROBERTA),
    "bert-mlm": (
        BertForMaskedLM,
        BertConfig,
        wordpiece,
        dict(hidden_act="relu", layer_norm_eps=1e-3),
    ),
    "bert-pretraining": (BertForPreTraining, BertConfig, wordpiece, {}),
    "electra-generator": (ElectraForMaskedLM, ElectraConfig, wordpiece, dict(embedding_size=12)),
    "roberta": (RobertaModel, RobertaConfig, bpe, ROBERTA),
    "bert": (BertModel, BertConfig, wordpiece, {}),
    "electra-discriminator": (
        ElectraForPreTraining,
        ElectraConfig,
        wordpiece,
        dict(embedding_size=12),
    ),
}
WITH_HEAD = [name for name in FAMILIES if list(FAMILIES).index(name) < 6]


def random_weights(model, seed=0):
    "Every weight away from its initial value."
    for name, p in model.named_parameters():
        p.data += 0.1 * torch.randn(p.shape, generator=torch_generator(seed, name))
    return model.eval()


def save_family(name, folder, **options):
    "A model of another family and its tokenizer."
    model_class, config_class, train, changes = FAMILIES[name]
    tokenizer = train()
    tokenizer.save(str(folder / "tokenizer.json"))
    model = random_weights(
        model_class(config_class(**SHAPE | {"vocab_size": tokenizer.get_vocab_size()} | changes))
    )
    model.save_pretrained(folder, **options)
    return model, tokenizer


def save_ours(folder, model_class=EncoderForMaskedLM, vocab_size=60, **changes):
    shape = dict(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        norm="pre",
        relative_positions="gated",
    )
    model = random_weights(
        new_model(model_class, config_for("tiny", vocab_size, **shape | changes), 0)
    )
    model.save_pretrained(folder)
    return model


def padded(tokenizer, pad):
    rows = [tokenizer.encode(line).ids for line in TEXT[:6]]
    ids = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in rows], batch_first=True, padding_value=pad
    )
    return dict(input_ids=ids, attention_mask=(ids != pad).long())


def permutation(new, old, seed=0):
    "Each old piece has one new piece; new pieces beyond have no match. Returns the mapping and old id → new id."
    place = np.random.default_rng(seed).permutation(new)[:old]
    return csr_array((np.ones(old), (place, np.arange(old))), shape=(new, old)), torch.from_numpy(
        place
    )


def eye(n):
    return csr_array(np.eye(n, dtype=np.float32))


def close(a, b, tolerance=1e-5):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# ---- what the source computes
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_the_identity_reproduces_hidden_states_and_logits(name, tmp_path):
    theirs, tokenizer = save_family(name, tmp_path)
    vocab = tokenizer.get_vocab_size()
    pad = theirs.config.pad_token_id
    config = target_config_for(tmp_path, vocab, pad_token_id=pad)
    ours, account = initialise(config, tmp_path, mapping=eye(vocab))
    theirs = theirs.double()
    ours = ours.double().eval()
    batch = padded(tokenizer, pad)  # rounding hides no difference
    token = batch["attention_mask"].bool()
    with torch.no_grad():
        a, b = (m(**batch, output_hidden_states=True) for m in (theirs, ours))
    assert len(a.hidden_states) == len(b.hidden_states) == 4
    for x, y in zip(a.hidden_states, b.hidden_states):
        close(x[token], y[token])
    if name in WITH_HEAD:
        logits = a.prediction_logits if name == "bert-pretraining" else a.logits
        close(logits[token], b.logits[token])
    head = [n for n, _ in ours.named_parameters() if n.startswith("head.")]
    assert sorted(account.lacking) == ([] if name in WITH_HEAD else sorted(head))
    assert account.rows_matched == vocab and account.rows_drawn == 0
    assert account.family == theirs.config.model_type


@pytest.mark.parametrize("name", ["roberta-mlm", "roberta-untied", "electra-generator"])
def test_a_permuted_mapping_permutes_the_logits(name, tmp_path):
    "Also with another padding id than RoBERTa's, on which its positions depend."
    theirs, tokenizer = save_family(name, tmp_path)
    old = tokenizer.get_vocab_size()
    mapping, place = permutation(old + 20, old)
    pad = theirs.config.pad_token_id
    config = target_config_for(tmp_path, old + 20, pad_token_id=int(place[pad]))
    ours, _ = initialise(config, tmp_path, mapping=mapping)
    batch = padded(tokenizer, pad)
    token = batch["attention_mask"].bool()
    with torch.no_grad():
        a = theirs.double()(**batch).logits
        b = (
            ours.double()
            .eval()(place[batch["input_ids"]], batch["attention_mask"])
            .logits[..., place]
        )
    close(a[token], b[token])
    assert config.position_offset == (2 if "roberta" in name else 0)


def test_parts_in_several_files_and_old_names_are_read(tmp_path):
    "Files of a few KB each; and BERT's gamma and beta, with buffers that nobody needs."
    (tmp_path / "parts").mkdir(), (tmp_path / "old").mkdir()
    theirs, tokenizer = save_family("bert-mlm", tmp_path / "parts", max_shard_size="10KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 3
    theirs.save_pretrained(tmp_path / "old")
    weights = load_file(tmp_path / "old/model.safetensors")
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): w
        for n, w in weights.items()
    } | {"bert.embeddings.position_ids": torch.arange(30)[None]}
    save_file(old, tmp_path / "old/model.safetensors")
    vocab = tokenizer.get_vocab_size()
    (a, first), (b, second) = (
        initialise(target_config_for(tmp_path / f, vocab), tmp_path / f, mapping=eye(vocab))
        for f in ("parts", "old")
    )
    for x, y in zip(a.parameters(), b.parameters()):
        assert torch.equal(x, y)
    assert first.unused == () and second.unused == ("bert.embeddings.position_ids",)
    next((tmp_path / "parts").glob("model-00002*")).unlink()
    with pytest.raises(CheckpointError, match="lacks model-00002.*which its index names"):
        source_config(tmp_path / "parts")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(norm="post", relative_positions="none", type_vocab_size=2),
        dict(embedding_size=16),
        dict(head_transform=False),
        dict(pooler=True),
    ],
)
def test_our_own_folders_are_carried_over_to_the_bit(changes, tmp_path):
    theirs = save_ours(tmp_path, **changes)
    ours, account = initialise(target_config_for(tmp_path, 60), tmp_path, mapping=eye(60))
    theirs = dict(theirs.named_parameters())
    for name, weight in ours.named_parameters():
        assert torch.equal(weight, theirs[name]), name
    assert account.lacking == () and account.random == {}
    assert account.unused == (
        ("encoder.pooler.bias", "encoder.pooler.weight") if "pooler" in changes else ()
    )


@pytest.mark.parametrize("model_class", [Encoder, EncoderForReplacedTokens])
def test_what_the_source_lacks_stays_random_and_is_named(model_class, tmp_path):
    theirs = save_ours(tmp_path, model_class)
    config = target_config_for(tmp_path, 60)
    config.cross_attention = True
    ours, account = initialise(config, tmp_path, mapping=eye(60), seed=3)
    fresh = dict(new_model(EncoderForMaskedLM, config, 3).named_parameters())
    own = dict(ours.named_parameters())
    assert (
        all("cross_" in n or n.startswith("head.") for n in account.lacking)
        and len(account.lacking) > 5
    )
    for name in account.lacking:
        assert torch.equal(own[name], fresh[name]), name
    body = {n.removeprefix("encoder."): w for n, w in theirs.named_parameters()}
    for name in account.copied:
        assert torch.equal(own[name], body[name.removeprefix("encoder.")]), name
    assert set(account.copied) | set(account.mapped) | set(account.random) == set(own)
    assert all(f"not in the source: {name}" in str(account) for name in account.lacking)
    assert account.unused == (() if model_class is Encoder else ("head.bias", "head.weight"))


def test_an_output_layer_with_another_activation_is_not_taken(tmp_path):
    "RoBERTa's applies gelu, ours what the blocks apply; the output bias means the same in both."
    config = RobertaConfig(**SHAPE, **ROBERTA, vocab_size=40, hidden_act="relu")
    RobertaForMaskedLM(config).save_pretrained(tmp_path)
    _, account = initialise(target_config_for(tmp_path, 40), tmp_path, mapping=eye(40))
    assert sorted(account.lacking) == [
        "head.dense.bias",
        "head.dense.weight",
        "head.norm.bias",
        "head.norm.weight",
    ]
    assert "head.decoder.bias" in account.mapped


# ---- parts
# -----------------------------------------------------------------------------------------------------------


def test_parts_come_one_at_a_time(tmp_path):
    "Each weight from the source, or as a new model of the seed has it; sizes add up to the whole."
    theirs = dict(save_ours(tmp_path).named_parameters())
    config = target_config_for(tmp_path, 80)
    mapping, place = permutation(80, 60)
    fresh = dict(new_model(EncoderForMaskedLM, config, 5).named_parameters())
    per_piece = {WORDS, "head.decoder.bias"}
    for parts, taken in dict(
        both={True, False}, body={False}, embeddings={True}, none=set()
    ).items():
        model, account = initialise(
            config, None if parts == "none" else tmp_path, parts, mapping, "small", seed=5
        )
        for name, weight in model.named_parameters():
            rows = place if name in per_piece else slice(None)
            expected = theirs if (name in per_piece) in taken else fresh
            source = expected[name] if expected is theirs else fresh[name][rows]
            assert torch.equal(weight[rows], source), (parts, name)
            if name in per_piece:
                rest = torch.ones(80, dtype=torch.bool).index_fill(0, place, False)
                assert torch.equal(weight[rest], fresh[name][rest])
        assert account.rows_matched == (60 if True in taken else 0)
        sizes = account.copied | account.mapped | account.random
        assert sizes == {n: w.numel() for n, w in model.named_parameters()}
        assert sum(int(row["parameters"].replace(",", "")) for row in account.rows()) == sum(
            sizes.values()
        )


def test_rows_are_weighted_means_of_old_rows(tmp_path, monkeypatch):
    "With several entries a row, blocks that end inside a column's entries, and columns that nobody uses."
    theirs = save_ours(tmp_path, tie_word_embeddings=False)
    rng = np.random.default_rng(0)
    dense = rng.random((90, 60)) * (rng.random((90, 60)) < 0.2)
    dense[:, 20:40] = 0
    dense[5:9] = 0
    sums = dense.sum(1, keepdims=True)
    mapping = csr_array(np.divide(dense, sums, where=sums > 0, out=np.zeros_like(dense)))
    monkeypatch.setattr(I, "BLOCK_ROWS", 7)
    ours, account = initialise(target_config_for(tmp_path, 90), tmp_path, mapping=mapping)
    matched = torch.from_numpy(sums[:, 0] > 0)
    own = dict(ours.named_parameters())
    old = dict(theirs.named_parameters())
    for name in (WORDS, "head.decoder.weight", "head.decoder.bias"):
        close(
            own[name][matched], (torch.from_numpy(mapping.toarray()).float() @ old[name])[matched]
        )
    assert account.rows_matched == int(matched.sum()) and set(account.mapped) == set(I.PER_SUBWORD)
    bias = own["head.decoder.bias"]
    close(bias[~matched], bias[matched].mean().expand(int((~matched).sum())))


def test_half_precision_sources_are_read(tmp_path):
    theirs = save_ours(tmp_path)
    theirs.bfloat16().save_pretrained(tmp_path)
    ours, _ = initialise(target_config_for(tmp_path, 60), tmp_path, mapping=eye(60))
    assert {w.dtype for w in ours.parameters()} == {torch.float32}
    assert torch.equal(ours.head.weight, theirs.float().head.weight)


# ---- rows without a match
# --------------------------------------------------------------------------------------------


def test_drawn_rows_have_mean_and_covariance_of_the_matched(tmp_path):
    "A table whose rows share a direction and whose columns depend on each other and differ in spread."
    theirs = save_ours(tmp_path, vocab_size=4000, hidden_size=8)
    mix = torch.randn(8, 8, generator=torch_generator("mix")) * torch.linspace(0.2, 2, 8)
    theirs.head.weight.data = theirs.head.weight.data @ mix + 1
    theirs.encoder.embeddings.word_embeddings.weight = theirs.head.weight
    theirs.save_pretrained(tmp_path)
    mapping, place = permutation(44_000, 4000)
    ours, _ = initialise(target_config_for(tmp_path, 44_000), tmp_path, mapping=mapping, seed=1)
    table = ours.head.weight.detach()
    rest = torch.ones(44_000, dtype=torch.bool).index_fill(0, place, False)
    matched = table[place]
    drawn = table[rest]
    error = matched.std(0) / 40_000**0.5  # of the mean of 40,000 draws
    assert ((drawn.mean(0) - matched.mean(0)).abs() < 4 * error).all()
    assert ((drawn.T.cov() - matched.T.cov()).norm() / matched.T.cov().norm()) < 0.02


def test_the_covariance_is_that_of_ledoit_and_wolf():
    x = torch.randn(12, 16, generator=torch_generator("rows")) * torch.linspace(0.1, 2, 16) + 3
    mean, factor, shrink = fit_normal(x, torch.arange(12))
    centred = (x - x.mean(0)).double()
    S = centred.T @ centred / 12
    t = centred.square().sum() / 12 / 16
    spread = sum((row[:, None] * row - S).square().sum() for row in centred) / 12**2
    expected = (spread / (S - t * torch.eye(16)).square().sum()).item()
    assert shrink == pytest.approx(expected, rel=1e-5) and 0 < expected < 1
    close(mean, x.mean(0))
    close((factor @ factor.T).double(), (1 - expected) * S + expected * t * torch.eye(16))


def test_two_matched_rows_are_enough_and_one_is_not(tmp_path):
    save_ours(tmp_path)
    config = target_config_for(tmp_path, 70)
    two = csr_array(([1, 1], ([3, 4], [8, 9])), shape=(70, 60))
    ours, account = initialise(config, tmp_path, mapping=two)
    assert account.rows_drawn == 68 and ours.head.weight.isfinite().all()
    for few in (csr_array(([1], ([3], [8])), shape=(70, 60)), csr_array((70, 60))):
        with pytest.raises(
            ConfigError, match=f"two matched rows that differ, and the mapping matches {few.nnz}"
        ):
            initialise(config, tmp_path, mapping=few)
        assert (
            initialise(config, tmp_path, mapping=few, unmatched="small")[1].rows_matched == few.nnz
        )


def test_the_same_seed_gives_the_same_model(tmp_path):
    save_ours(tmp_path)
    config, (mapping, _) = target_config_for(tmp_path, 80), permutation(80, 60)
    a, b, c = (
        initialise(config, tmp_path, mapping=mapping, seed=seed)[0].head.weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(a, b) and not torch.equal(a, c)


# ---- what is refused
# -------------------------------------------------------------------------------------------------


def test_another_architecture_is_refused_with_both_values(tmp_path):
    save_family("roberta-mlm", tmp_path)
    config = target_config_for(tmp_path, 80)
    for name, value in dict(
        hidden_size=64,
        num_hidden_layers=2,
        position_offset=0,
        norm="pre",
        hidden_act="relu",
        layer_norm_eps=1e-12,
        relative_positions="gated",
        type_vocab_size=2,
        max_position_embeddings=40,
        intermediate_size=80,
        num_attention_heads=2,
    ).items():
        other = EncoderConfig(
            **{n: getattr(config, n) for n in EncoderConfig.__annotations__} | {name: value}
        )
        with pytest.raises(
            CheckpointError, match=f"{name}: new model {value!r}, source {getattr(config, name)!r}"
        ):
            initialise(other, tmp_path, "body")


def test_what_match_vocabulary_returns_is_a_mapping(tmp_path):
    save_ours(tmp_path)
    config, (mapping, _) = target_config_for(tmp_path, 80), permutation(80, 60)
    matching = Matching(mapping, np.array(["exact"] * 80), None, None)
    tables = [
        initialise(config, tmp_path, mapping=one)[0].state_dict()[WORDS]
        for one in (mapping, matching)
    ]
    assert torch.equal(*tables)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda folder: initialise(target_config_for(folder, 80), None),
            "None is no path of a folder",
        ),
        (
            lambda folder: initialise(target_config_for(folder, 80), folder, "body", seed="a"),
            "seed='a' is not a whole number",
        ),
        (
            lambda folder: target_config_for(folder, "80"),
            "vocab_size='80': give a whole number, 1 or more",
        ),
        (
            lambda folder: target_config_for(folder, 80, bos_token_id="a"),
            "bos_token_id='a': give a whole number",
        ),
        (lambda folder: freeze_body("model"), "'model' is no model of this library"),
    ],
)
def test_wrong_types_are_named(call, message, tmp_path):
    save_ours(tmp_path)
    with pytest.raises(ConfigError, match=message):
        call(tmp_path)


def test_mappings_that_do_not_fit_are_refused(tmp_path):
    save_ours(tmp_path)
    config, (mapping, _) = target_config_for(tmp_path, 80), permutation(80, 60)
    for bad, message in (
        (None, "mapping=None"),
        (mapping.T, "60 × 80, the vocabularies 80 .new model. and 60"),
        (mapping * 0.5, "60 rows .* do not sum to 1, .* with 0.5:"),
        (mapping * np.nan, "with nan"),
    ):
        with pytest.raises(ConfigError, match=message):
            initialise(config, tmp_path, mapping=bad)
    for bad in ("words", 3, object(), [1, 2], [["a"] * 60] * 80, np.ones(60), {}):
        with pytest.raises(
            ConfigError, match="is no matrix of numbers: give what match_vocabulary"
        ):
            initialise(config, tmp_path, mapping=bad)
    with pytest.raises(ConfigError, match="parts='all' is not one of both, body, embeddings, none"):
        initialise(config, tmp_path, "all", mapping)
    with pytest.raises(ConfigError, match="unmatched='zero'"):
        initialise(config, tmp_path, "both", mapping, "zero")


def test_folders_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="no folder with a config.json"):
        source_config(tmp_path / "nowhere")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"version https://git-lfs")
    with pytest.raises(CheckpointError, match="cut holds a damaged file"):
        source_config(tmp_path / "cut")
    with pytest.raises(ConfigError, match="target_config='bert' is no EncoderConfig"):
        initialise("bert", tmp_path)
    with pytest.raises(CheckpointError, match="bert is no folder"):
        initialise(
            EncoderConfig(vocab_size=60, hidden_size=32, num_attention_heads=4), "bert", "body"
        )
    GPT2Model(GPT2Config(vocab_size=9, n_embd=4, n_layer=1, n_head=1)).save_pretrained(
        tmp_path / "gpt2"
    )
    with pytest.raises(CheckpointError, match="is a gpt2 checkpoint: only xlnb, roberta"):
        source_config(tmp_path / "gpt2")
    theirs = save_ours(tmp_path / "ours")
    (tmp_path / "ours/model.safetensors").rename(tmp_path / "ours/pytorch_model.bin")
    with pytest.raises(
        CheckpointError, match="no model.safetensors: load it with transformers.*save_pretrained"
    ):
        initialise(target_config_for(tmp_path / "ours", 60), tmp_path / "ours", "body")
    weights = {n: w.detach() for n, w in theirs.named_parameters()}
    name = "encoder.layers.1.up.weight"
    for changed in (
        {n: w for n, w in weights.items() if n != name},
        weights | {name: weights[name][:5].clone()},
    ):
        save_file(changed, tmp_path / "ours/model.safetensors")
        with pytest.raises(
            CheckpointError,
            match=rf"{name}: checkpoint (absent|\(5, 32\)), configuration \(40, 32\)",
        ):
            initialise(target_config_for(tmp_path / "ours", 60), tmp_path / "ours", "body")


def test_a_foreign_folder_without_a_projection_is_refused(tmp_path):
    save_family("roberta", tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["encoder.layer.1.attention.self.value.bias"]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="key projection without its partner"):
        stored_weights(tmp_path)


# ---- streaming
# -------------------------------------------------------------------------------------------------------


def test_tables_are_read_in_blocks_and_only_where_needed(tmp_path, monkeypatch):
    "A reader that counts: no weight is read whole through another door, no slice of a table is longer than a block."
    save_ours(tmp_path, vocab_size=1000)
    seen = []

    class Slice:
        def __init__(self, slice, name):
            self.slice = slice
            self.name = name
            self.get_shape = slice.get_shape

        def __getitem__(self, rows):
            part = self.slice[rows]
            seen.append((self.name, rows.start, len(part)))
            return part

    class Reader:
        def __init__(self, *args, **options):
            self.file = safe_open(*args, **options)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def keys(self):
            return self.file.keys()

        def get_slice(self, name):
            return Slice(self.file.get_slice(name), name)

    safe_open = I.safe_open
    monkeypatch.setattr(I, "safe_open", Reader)
    monkeypatch.setattr(I, "BLOCK_ROWS", 64)
    config = target_config_for(tmp_path, 50)
    assert not seen  # an architecture is found without reading a weight
    pieces = np.array([70, 71, 500, 990])
    mapping = csr_array((np.ones(4), (np.arange(4), pieces)), shape=(50, 1000))
    ours, _ = initialise(config, tmp_path, mapping=mapping)
    table = [(first, count) for name, first, count in seen if name == WORDS]
    assert table == [(64, 64), (448, 64), (960, 40)]
    whole = [name for name, first, count in seen if name not in I.PER_SUBWORD]
    assert len(whole) == len(set(whole))  # each other weight once


# ---- what becomes of the model
# ---------------------------------------------------------------------------------------


def test_only_tables_and_output_layer_are_trained_when_the_body_is_frozen(tmp_path):
    save_family("bert-mlm", tmp_path)
    vocab = source_config(tmp_path).vocab_size
    model, _ = initialise(target_config_for(tmp_path, vocab), tmp_path, mapping=eye(vocab))
    frozen = freeze_body(model)
    free = {n for n, _ in model.named_parameters()} - set(frozen)
    tables = {
        f"encoder.embeddings.{kind}_embeddings.weight"
        for kind in ("word", "position", "token_type")
    }
    assert free == tables | {
        "head.dense.weight",
        "head.dense.bias",
        "head.norm.weight",
        "head.norm.bias",
        "head.decoder.bias",
    }
    before = {n: w.detach().clone() for n, w in model.named_parameters()}
    optimizer = make_optimizer(model, TrainingConfig(steps=2, learning_rate=1e-2, weight_decay=0.5))
    ids = torch.randint(vocab, (2, 7), generator=torch_generator("ids"))
    for _ in range(2):
        model(ids, labels=ids).loss.backward()
        optimizer.step(), optimizer.zero_grad()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name]) == (name in frozen), name


@pytest.mark.parametrize(
    "model_class", [EncoderForSequenceClassification, EncoderForQuestionAnswering]
)
def test_the_head_of_a_task_is_trained_when_the_body_is_frozen(model_class):
    frozen = freeze_body(new_model(model_class, config_for("tiny", 50), 0))
    assert frozen and all(name.startswith("encoder.") for name in frozen)
    assert len(freeze_body(new_model(Encoder, config_for("tiny", 50), 0))) == len(frozen)


def test_rows_that_are_never_predicted_do_not_set_the_bias_of_new_ones(tmp_path):
    network = new_model(EncoderForMaskedLM, config_for("tiny", 50), 0)
    network.head.bias.data.fill_(0.5)
    forbid_spare_rows(network, 45)
    network.save_pretrained(tmp_path)
    model, _ = initialise(
        target_config_for(tmp_path, 60), tmp_path, mapping=csr_array(np.eye(60, 50))
    )
    assert model.head.bias[50:].tolist() == [0.5] * 10


def test_the_model_is_saved_and_loaded_like_any_other(tmp_path):
    save_family("xlmr-mlm", tmp_path)
    mapping, _ = permutation(90, source_config(tmp_path).vocab_size)
    model, account = initialise(target_config_for(tmp_path, 90), tmp_path, mapping=mapping)
    model.save_pretrained(tmp_path / "new")
    again = load(tmp_path / "new", EncoderForMaskedLM)
    ids = torch.arange(9)[None]
    with torch.no_grad():
        close(again.eval()(ids).logits, model.eval()(ids).logits)
    text = (
        json.dumps([account.__dict__, account.rows(), str(account)])
        + (tmp_path / "new/config.json").read_text()
    )
    assert str(tmp_path) not in text
    assert isinstance(account, Initialised) and "a source of type xlm-roberta" in str(account)
