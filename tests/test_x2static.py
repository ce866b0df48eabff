"Static vectors: contexts without the word, one pass, resumed to the same bits, refused where they must be."

import json, shutil, signal, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import write
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ElectraConfig,
    ElectraModel,
    XLMRobertaConfig,
    XLMRobertaModel,
)
from warm import run_module

from xlnb.base.core import CheckpointError, ConfigError, DataError
from xlnb.text.corpora import Lines
from xlnb.text.vectors import read_vectors
from xlnb.text.vocab import train_vocab
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.encoder.loading import layer_states
from xlnb import x2static
from xlnb.x2static import (
    Distillation,
    Segmenter,
    _Negatives,
    _Student,
    _usable,
    context_vectors,
    count_words,
    distil,
    find_segmenter,
    keep_probability,
    learn_vectors,
    loss_and_gradient,
    main,
    overlapping,
    read_contexts,
    read_contexts_by_layer,
    regex_segmenter,
    span_means,
)

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # said on purpose

ANIMALS = ("Hund", "Katze", "Pferd", "Vogel", "Fisch", "Schwein", "Fuchs", "Baer")
DOES = ("bellt", "schläft", "rennt", "singt", "schwimmt", "frisst")
PLACES = ("Haus", "Wald", "Garten", "Wasser", "Stall")


def sentences(n, seed=0):
    rng = np.random.default_rng(seed)

    def pick(words):
        return words[rng.integers(len(words))]

    return [
        f"Der {pick(ANIMALS)} {pick(DOES)} im {pick(PLACES)}, und der {pick(ANIMALS)} auch."
        for _ in range(n)
    ]


TEXT = sentences(300)
learned = partial(Distillation, method="x2static")
SETTINGS = learned(min_count=2, epochs=3, learning_rate=0.01, max_pieces=40)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_vocab({"de": TEXT}, 50, tmp_path_factory.mktemp("vocab") / "words")


@pytest.fixture(scope="module")
def model(tokenizer):
    return new_model(
        Encoder, config_for("tiny", len(tokenizer), max_position_embeddings=64), 0
    ).eval()


@pytest.fixture(scope="module")
def folder(model, tokenizer, tmp_path_factory):  # of a model with its tokenizer, as users have it
    path = tmp_path_factory.mktemp("model")
    EncoderForMaskedLM(model.config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def family(name, vocabulary, **more):
    "A small model of transformers' classes."
    shape = dict(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=80,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    kinds = {
        "bert": (BertModel, BertConfig),
        "xlm-roberta": (XLMRobertaModel, XLMRobertaConfig),
        "electra": (ElectraModel, ElectraConfig),
    }
    kind, config = kinds[name]
    torch.manual_seed(0)
    return kind(config(**shape, **more)).eval()


# ---------------------------------------------------------------- loss, gradient, draws


@pytest.mark.parametrize("scale", [0.1, 3.0, 20.0])  # the last beyond the clamp
@pytest.mark.parametrize("repeated", [False, True])
def test_loss_and_gradient_are_those_of_autograd(scale, repeated):
    draw = torch.Generator().manual_seed(1)
    table = torch.randn(30, 6, generator=draw, dtype=torch.float64)
    contexts = scale * torch.randn(16, 6, generator=draw, dtype=torch.float64)
    words = torch.randint(2 if repeated else 30, (16,), generator=draw)
    negatives = torch.randint(2 if repeated else 30, (16, 10), generator=draw)
    dense = table.clone().requires_grad_()
    scores = (
        (dense[torch.cat([words[:, None], negatives], 1)] * contexts[:, None]).sum(2).clamp(-20, 20)
    )
    oracle = (
        torch.log1p(torch.exp(-scores[:, 0])).mean()
        + torch.log1p(torch.exp(scores[:, 1:])).sum(1).mean()
    )
    oracle.backward()
    loss, rows, gradient = loss_and_gradient(table, contexts, words, negatives)
    whole = torch.zeros_like(table).index_add(0, rows, gradient)
    torch.testing.assert_close(loss, oracle.detach(), rtol=1e-12, atol=0)
    # float64, two orders of summation
    torch.testing.assert_close(whole, dense.grad, rtol=1e-10, atol=1e-12)
    assert sorted(rows.tolist()) == sorted({*words.tolist(), *negatives.ravel().tolist()})


def test_steps_are_those_of_sparse_adam():
    draw = torch.Generator().manual_seed(2)
    start = torch.randn(20, 5, generator=draw)
    theirs = torch.nn.Parameter(start.clone())
    ours = _Student(start.clone(), *torch.zeros(2, 20, 5))
    optimizer = torch.optim.SparseAdam([theirs], lr=0.02)
    for _ in range(20):
        rows = torch.randperm(20, generator=draw)[:7].sort().values
        gradient = torch.randn(7, 5, generator=draw)
        theirs.grad = torch.sparse_coo_tensor(rows[None], gradient, start.shape)
        optimizer.step()
        ours.step(rows, gradient, 0.02)
    # float32, 20 steps of at most 0.02
    torch.testing.assert_close(ours.table, theirs.detach(), rtol=1e-4, atol=1e-5)


def test_negatives_come_by_the_root_of_counts():
    counts = np.array([10_000, 2500, 100, 9, 1])
    n = 100_000
    seen = (
        _Negatives(counts, "cpu")((n // 10, 10), torch.Generator().manual_seed(0))
        .ravel()
        .bincount(minlength=5)
        .numpy()
    )
    expected = n * np.sqrt(counts) / np.sqrt(counts).sum()
    # chi-square, 4 degrees of freedom: exceeded once in 1,000
    assert ((seen - expected) ** 2 / expected).sum() < 18.5


def test_keep_probability():
    f = np.array([1e-6, 5e-6, 1e-5, 1e-4, 0.05])
    expected = [min(1.0, (5e-6 / x) ** 0.5 + 5e-6 / x) for x in f]
    np.testing.assert_allclose(keep_probability(f, 5e-6), expected)
    # x + x² = 1 at the golden ratio: f = 2.618 t
    assert keep_probability(1.30e-5, 5e-6) == 1 > keep_probability(1.32e-5, 5e-6)


def test_occurrences_are_kept_as_often_as_that(model, tokenizer, tmp_path):
    text = TEXT * 6
    settings = learned(min_count=2, subsample=0.002, layer=0)
    contexts = read_contexts(
        model, text, tmp_path, "de", tokenizer, segmenter="regex", settings=settings
    )
    kept = sum(
        np.bincount(contexts.shard(n)["words"], minlength=len(contexts.words))
        for n in contexts.shards
    )
    p = keep_probability(contexts.counts / contexts.total, 0.002)
    deviations = (kept - contexts.counts * p) / np.sqrt(contexts.counts * p * (1 - p) + 1e-9)
    # of about 20 words; four sigma once in 800 runs
    assert abs(deviations).max() < 4 and 0.05 < p.min() < p.max() < 0.7


# ---------------------------------------------------------------- contexts


def contexts_of(model, tokenizer, text, path, **more):
    settings = learned(**{"min_count": 1, "subsample": 1.0, **more})
    return read_contexts(
        model, text, path, "de", tokenizer, segmenter="regex", settings=settings
    ), settings


@pytest.mark.parametrize("layer", [0, 2, 3])
@pytest.mark.parametrize("pool", ["mean", "mean_special"])
@pytest.mark.parametrize("target", ["excluded", "included"])
def test_a_context_is_the_mean_of_the_other_pieces(model, tokenizer, tmp_path, layer, pool, target):
    contexts, settings = contexts_of(model, tokenizer, TEXT[:12], tmp_path, layer=layer, pool=pool)
    shard = contexts.shard(contexts.shards[0])
    regex = regex_segmenter()
    n = 0
    own = shard["in_sentence"]
    found = context_vectors(
        shard["sentences"][own], shard["pieces"][own], shard["spans"], shard["sizes"], target
    )
    for line in TEXT[:12]:
        encoding = tokenizer([line]).encodings[0]
        with torch.inference_mode():
            states = layer_states(model, {"input_ids": torch.tensor([encoding.ids])}, [layer])[0][0]
        counted = {*range(len(states))} if pool == "mean_special" else {*range(1, len(states) - 1)}
        for a, b in regex.words(line):
            word = {
                p
                for p in range(1, len(states) - 1)
                if encoding.offsets[p][0] < b and a < encoding.offsets[p][1]
            }
            assert word and contexts.words[shard["words"][n]] == line[a:b].lower()
            rest = sorted(counted - word if target == "excluded" else counted)
            everything = states[sorted(counted)].sum(0).abs() + states[sorted(word)].sum(0).abs()
            # each stored mean is rounded to 11 bits
            bound = everything / len(rest) * 2**-11 + 1e-5
            assert (np.abs(found[n] - states[rest].mean(0).numpy()) <= bound.numpy()).all()
            n += 1
    assert n == len(found)


def test_a_word_that_is_its_sentence_has_no_context_without_itself(model, tokenizer, tmp_path):
    contexts, settings = contexts_of(
        model, tokenizer, ["Hund", "Der Hund bellt", "Katze"], tmp_path
    )
    shard = contexts.shard(contexts.shards[0])
    assert _usable(shard, "excluded").tolist() == [False, True, True, True, False]
    assert {*learn_vectors(contexts, settings).words} == {"der", "hund", "bellt"}
    assert (
        learn_vectors(contexts, learned(min_count=1, subsample=1.0, target="included")).words[0]
        == "hund"
    )
    only = contexts_of(model, tokenizer, ["Hund", "Katze"], tmp_path / "only")[0]
    with pytest.raises(DataError, match="every sentence is one word"):
        learn_vectors(only, settings)


def test_aggregation_is_the_mean_of_own_states(model, tokenizer, tmp_path):
    contexts, settings = contexts_of(
        model, tokenizer, TEXT[:40], tmp_path, method="aggregate", layer=1
    )
    vectors = learn_vectors(contexts, settings)
    sums = {}
    for line in TEXT[:40]:
        encoding = tokenizer([line]).encodings[0]
        with torch.inference_mode():
            states = layer_states(model, {"input_ids": torch.tensor([encoding.ids])}, [1])[0][0]
        places = np.array(encoding.offsets)[1:-1]
        for (a, b), (first, last) in zip(
            spans := regex_segmenter().words(line), overlapping(*places.T, spans).tolist()
        ):
            sums.setdefault(line[a:b].lower(), []).append(states[1 + first : 1 + last].mean(0))
    assert {*vectors.words} == {*sums}
    for word, means in sums.items():
        torch.testing.assert_close(
            vectors[word], torch.stack(means).mean(0), rtol=0, atol=3 * 2**-11
        )  # states below 3, rounded


def test_contexts_do_not_depend_on_batches(model, tokenizer, tmp_path):
    settings = learned(min_count=1, subsample=1.0)
    ways = [
        read_contexts(
            model,
            TEXT[:50],
            tmp_path / str(n),
            None,
            tokenizer,
            segmenter="regex",
            settings=settings,
            batch_size=n,
        )
        for n in (1, 7, 64)
    ]
    for other in ways[1:]:
        a = ways[0].shard(ways[0].shards[0])
        b = other.shard(other.shards[0])
        for name in ("words", "sizes", "pieces", "in_sentence"):
            np.testing.assert_array_equal(a[name], b[name])
        # one step of 16 bits
        for name in ("sentences", "spans"):
            np.testing.assert_allclose(a[name], b[name], rtol=2e-3, atol=1e-4)


def test_words_beyond_the_cut_are_left_out(model, tokenizer, tmp_path):
    lines = ["Hund " * 30 + "Katze"] * 3
    with pytest.warns(UserWarning, match="of 93 occurrences of words were not read: their lines"):
        contexts, _ = contexts_of(model, tokenizer, lines, tmp_path, max_pieces=10)
    assert contexts.facts["cut"] > 0 and contexts.facts["occurrences"] + contexts.facts["cut"] == 93
    assert learn_vectors(
        contexts, learned(min_count=1, subsample=1.0, max_pieces=10, epochs=1)
    ).words == ("hund",)


def test_lists_of_files_and_texts_in_one_string_are_refused(model, tokenizer, tmp_path):
    files = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    for path in files:
        Path(path).write_text("Hund Katze")
    for text, message in (
        (files, "text is a list of files"),
        ("Hund\nKatze", "no path, but lines"),
    ):
        with pytest.raises(ConfigError, match=message):
            contexts_of(model, tokenizer, text, tmp_path)


def test_paragraphs_are_read_whole_and_averaged_by_sentence(model, tokenizer, tmp_path):
    line = "Der Hund bellt. Die Katze schläft im Haus."
    contexts, _ = contexts_of(model, tokenizer, [line], tmp_path, context="paragraph", layer=2)
    shard = contexts.shard(contexts.shards[0])
    encoding = tokenizer([line]).encodings[0]
    with torch.inference_mode():
        states = layer_states(model, {"input_ids": torch.tensor([encoding.ids])}, [2])[0][0]
    first = [p for p, (a, b) in enumerate(encoding.offsets) if a < b <= 15]
    # not a blank between the two
    second = [p for p, (a, b) in enumerate(encoding.offsets) if b > 16]
    expected = torch.stack([states[first].mean(0), states[second].mean(0)])
    # 16 bits
    np.testing.assert_allclose(shard["sentences"], expected.numpy(), rtol=1e-3, atol=1e-4)
    assert shard["in_sentence"].tolist() == [0, 0, 0, 1, 1, 1, 1, 1]


def test_means_and_places():
    states = torch.arange(12.0).reshape(6, 2)
    assert span_means(states, [[0, 1], [2, 5]]).tolist() == [[0, 1], [6, 7]]
    starts = np.array([0, 3, 5, 5, 9])
    ends = np.array([3, 5, 8, 8, 10])  # two pieces of one character
    assert overlapping(starts, ends, [(0, 4), (4, 6), (8, 9), (9, 10), (20, 30)]).tolist() == [
        [0, 2],
        [1, 4],
        [4, 4],
        [4, 5],
        [5, 5],
    ]


# ---------------------------------------------------------------- one pass, resumed, refused


@pytest.fixture
def calls(monkeypatch):
    "Of every call of the encoder its number of sentences."
    sizes = []
    real = x2static.layer_states

    def counted(model, batch, layers):
        sizes.append(len(batch["input_ids"]))
        return real(model, batch, layers)

    monkeypatch.setattr(x2static, "layer_states", counted)
    return sizes


def test_the_encoder_runs_once(model, tokenizer, tmp_path, calls):
    for change in (
        dict(epochs=5),
        dict(target="included"),
        dict(method="aggregate"),
        dict(negatives=3),
        dict(pca=8),
        dict(epochs=5),
    ):
        settings = learned(min_count=2, **change)
        assert distil(
            model, TEXT, "de", tokenizer, tmp_path, segmenter="regex", settings=settings
        ).made_by["settings"] == {**vars(settings)}
    assert sum(calls) == len(TEXT)


def test_several_layers_are_read_in_one_pass(model, tokenizer, tmp_path, calls):
    given = dict(tokenizer=tokenizer, segmenter="regex", settings=SETTINGS)
    by_layer = read_contexts_by_layer(model, TEXT, tmp_path / "all", [0, 2], "de", **given)
    assert sum(calls) == len(TEXT)
    more = read_contexts_by_layer(model, TEXT, tmp_path / "all", [0, 1, 2], "de", **given)
    assert sum(calls) == 2 * len(TEXT)  # what is there is not read again
    for layer, contexts in more.items():
        settings = learned(**{**vars(SETTINGS), "layer": layer})
        alone = read_contexts(
            model, TEXT, tmp_path / f"{layer}", "de", **{**given, "settings": settings}
        )
        assert (contexts.identity, contexts.facts) == (alone.identity, alone.facts)
        for name, array in alone.shard(alone.shards[0]).items():
            assert np.array_equal(array, contexts.shard(contexts.shards[0])[name]), name
    assert by_layer[2].identity == more[2].identity


def test_shards_change_no_state(model, tokenizer, tmp_path, monkeypatch):
    whole = read_contexts(
        model, TEXT, tmp_path / "one", None, tokenizer, segmenter="regex", settings=SETTINGS
    )
    monkeypatch.setattr(x2static, "_SHARD", 64)
    parts = read_contexts(
        model, TEXT, tmp_path / "five", None, tokenizer, segmenter="regex", settings=SETTINGS
    )
    assert (len(whole.shards), len(parts.shards)) == (1, 5) and parts.facts["lines"] == whole.facts[
        "lines"
    ] == 300
    vectors = learn_vectors(parts, SETTINGS)
    assert vectors.made_by["losses"][-1] < vectors.made_by["losses"][0]


KILLED = """
import os, signal, sys
from xlnb import x2static
from tests_settings import SETTINGS, TEXT
x2static._SHARD, x2static._SAVE_SECONDS, count = 64, 0.0, 0
real = getattr(x2static, sys.argv[3])
def counted(*arguments):
    global count
    count += 1
    if count == int(sys.argv[4]): os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(x2static, sys.argv[3], counted)
vectors = x2static.distil(sys.argv[1], TEXT, "de", cache=sys.argv[2], segmenter="regex", settings=SETTINGS)
"""


@pytest.mark.parametrize("function, call", [("_mean_states", 3), ("_learn_shard", 8)])
def test_killed_and_taken_up_to_the_same_bits(folder, tmp_path, monkeypatch, function, call):
    monkeypatch.setattr(x2static, "_SHARD", 64)
    arguments = dict(segmenter="regex", settings=SETTINGS)
    expected = distil(folder, TEXT, "de", **arguments)
    shared = f"from xlnb.x2static import Distillation\nSETTINGS, TEXT = {SETTINGS!r}, {TEXT!r}\n"
    (tmp_path / "tests_settings.py").write_text(shared)
    (tmp_path / "killed.py").write_text(KILLED)
    done = subprocess.run(
        [sys.executable, tmp_path / "killed.py", folder, tmp_path / "cache", function, str(call)]
    )
    assert done.returncode == -signal.SIGKILL
    found = distil(folder, TEXT, "de", cache=tmp_path / "cache", **arguments)
    assert found.words == expected.words and torch.equal(found.matrix, expected.matrix)
    assert found.made_by == expected.made_by
    left = {p.name for p in (tmp_path / "cache").glob("vectors-*/**/*") if p.suffix}
    assert left == {"checksums.json", "vectors.safetensors"}


@pytest.mark.parametrize(
    "what",
    ["text", "layer", "model", "tokenizer", "vocabulary", "lowercase", "segmenter", "language"],
)
def test_another_pass_is_refused_by_name(model, tokenizer, tmp_path, what):
    given = dict(
        text=TEXT[:40],
        cache=tmp_path,
        language="de",
        tokenizer=tokenizer,
        segmenter="regex",
        settings=SETTINGS,
    )
    read_contexts(model, **given)
    other = {
        "text": dict(text=TEXT[:39]),
        "layer": dict(settings=learned(min_count=2, max_pieces=40, layer=0)),
        "lowercase": dict(settings=learned(min_count=2, max_pieces=40, lowercase=False)),
        "language": dict(language="nl"),
        "segmenter": dict(
            segmenter=Segmenter("mine", lambda line: [(0, 3)], lambda line: [(0, len(line))])
        ),
        "vocabulary": dict(vocabulary=["hund"]),
        "model": {},
        "tokenizer": dict(
            tokenizer=train_vocab({"de": TEXT}, 49, tmp_path.parent / f"{tmp_path.name}-other")
        ),
    }[what]
    another = new_model(Encoder, model.config, 1) if what == "model" else model
    with pytest.raises(CheckpointError, match=rf"\b{what} is .* there, .* here"):
        read_contexts(another, **{**given, **other})


def test_what_comes_from_elsewhere_does_not_matter(folder, model, tokenizer, tmp_path):
    "The same weights and lines are the same pass, from a file or a list, from a folder or in memory."
    (tmp_path / "text.txt").write_text("\n".join(TEXT[:40]) + "\n")
    loaded = x2static.load_model_and_tokenizer(folder)
    first = read_contexts(
        folder, tmp_path / "text.txt", tmp_path / "cache", segmenter="regex", settings=SETTINGS
    )
    again = read_contexts(
        loaded[0],
        Lines(iter, TEXT[:40]),
        tmp_path / "cache",
        None,
        loaded[1],
        segmenter="regex",
        settings=SETTINGS,
    )
    assert first.facts == again.facts and first.identity == again.identity


def test_settings_of_another_pass_are_refused(model, tokenizer, tmp_path):
    contexts, settings = contexts_of(model, tokenizer, TEXT[:30], tmp_path)
    with pytest.raises(ConfigError, match="read with other layer, min_count"):
        learn_vectors(contexts, learned(min_count=3, subsample=1.0, layer=0))


def test_a_text_that_changes_is_noticed(model, tokenizer, tmp_path):
    passes = []

    def changing():
        passes.append(1)
        return TEXT[: 20 + len(passes)]

    with pytest.raises(DataError, match="the text changed while it was read"):
        read_contexts(
            model, Lines(changing), tmp_path, None, tokenizer, segmenter="regex", settings=SETTINGS
        )


def test_a_full_disk_is_noticed_before_the_pass(model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(
        x2static.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000})
    )
    with pytest.raises(ConfigError, match="GB are needed for 300 lines"):
        read_contexts(model, TEXT, tmp_path, None, tokenizer, segmenter="regex", settings=SETTINGS)


def test_a_folder_of_something_else_is_left_alone(model, tokenizer, tmp_path):
    for name in ("thesis.tex", ".git/config", ".keep.tmp/data"):
        file = write(tmp_path / name.replace("/", "-") / name, "what is dear")
        folder = tmp_path / name.replace("/", "-")
        with pytest.raises(ConfigError, match=f"holds {name.split('/')[0]}, and no pass"):
            distil(model, TEXT, None, tokenizer, folder, segmenter="regex")
        assert file.read_text() == "what is dear"


def test_a_damaged_cache_is_named(model, tokenizer, tmp_path):
    write(tmp_path / "manifest.json", "{")
    with pytest.raises(CheckpointError, match="manifest.json is damaged.*: delete"):
        distil(model, TEXT, None, tokenizer, tmp_path, segmenter="regex")


def flip(path):
    "Change one bit of a file, near its end."
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["spans.npy", "words.npy", "facts.json", "vectors.safetensors"])
def test_a_flipped_bit_in_a_cache_is_named_and_made_again(model, tokenizer, tmp_path, kind):
    def make():
        return distil(model, TEXT, None, tokenizer, tmp_path, segmenter="regex", settings=SETTINGS)

    expected = make()
    file = next(tmp_path.rglob(kind))
    flip(file)
    with pytest.raises(
        CheckpointError, match=rf"{kind} is damaged.*: delete the folder that it is in"
    ):
        make()
    shutil.rmtree(file.parent)
    assert torch.equal(make().matrix, expected.matrix)


def test_a_flipped_bit_in_the_counts_or_in_a_stopped_training_is_named(
    model, tokenizer, tmp_path, monkeypatch
):
    def make():
        return distil(model, TEXT, None, tokenizer, tmp_path, segmenter="regex", settings=SETTINGS)

    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(x2static, "progress", stop_after_an_epoch)
        make()
    file = next(tmp_path.rglob("state.safetensors"))
    flip(file)
    with pytest.raises(
        CheckpointError, match=r"state\.safetensors is damaged.*: delete the folder"
    ):
        make()
    shutil.rmtree(file.parent)
    make()
    manifest = tmp_path / "manifest.json"
    counted = json.loads(manifest.read_text())
    counted["counts"][0] += 1
    write(manifest, json.dumps(counted))
    with pytest.raises(
        CheckpointError, match=r"manifest\.json is damaged .its hash is another.: delete"
    ):
        make()


def stop_after_an_epoch(line):
    if line.startswith("vectors: epoch 2"):
        raise KeyboardInterrupt


def test_a_large_cache_is_not_read_through(model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(x2static, "VERIFIED_BYTES", 100)

    def make():
        return distil(model, TEXT, None, tokenizer, tmp_path, segmenter="regex", settings=SETTINGS)

    make()
    flip(next(tmp_path.rglob("words.npy")))
    make()


# ---------------------------------------------------------------- models, input, errors


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "electra"])
@pytest.mark.parametrize("layer", [None, 0, 4])
def test_models_of_transformers(name, layer, tokenizer, tmp_path):
    more = {"embedding_size": 16} if name == "electra" else {}
    theirs = family(name, len(tokenizer), **more)
    contexts, settings = contexts_of(theirs, tokenizer, TEXT[:20], tmp_path, layer=layer)
    shard = contexts.shard(contexts.shards[0])
    encoding = tokenizer([TEXT[0]])
    with torch.inference_mode():
        states = theirs(
            torch.tensor(encoding["input_ids"]), output_hidden_states=True
        ).hidden_states[2 if layer is None else layer][0]
    np.testing.assert_allclose(
        shard["sentences"][0], states[1:-1].mean(0), rtol=1e-3, atol=1e-3
    )  # 16 bits of numbers near 1
    assert learn_vectors(contexts, settings).width == 32


def test_a_folder_of_transformers(tokenizer, tmp_path):
    family("xlm-roberta", len(tokenizer)).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="holds no tokenizer"):
        distil(tmp_path, TEXT)
    tokenizer.save_pretrained(tmp_path)
    assert "hund" in distil(tmp_path, TEXT, "de", segmenter="regex", settings=SETTINGS)


def test_a_pooler_that_is_drawn_at_random_is_no_part_of_a_pass(tokenizer, tmp_path):
    config = family("bert", len(tokenizer)).config
    # which has no pooler: each process draws its own
    BertForMaskedLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    shared = dict(segmenter="regex", settings=SETTINGS)
    first, again = (
        distil(tmp_path / "model", TEXT[:40], cache=tmp_path / "cache", **shared) for _ in range(2)
    )
    assert torch.equal(first.matrix, again.matrix)
    config.num_hidden_layers = 3
    BertForMaskedLM(config).save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match="model is"):
        distil(tmp_path / "model", TEXT[:40], cache=tmp_path / "cache", **shared)


def test_another_process_opens_the_cache_of_a_model_without_pooler(tokenizer, tmp_path):
    model, text = tmp_path / "model", tmp_path / "text.txt"
    BertForMaskedLM(family("bert", len(tokenizer)).config).save_pretrained(model)
    tokenizer.save_pretrained(model)
    text.write_text("\n".join(TEXT[:40]) + "\n", encoding="utf-8")
    cache = tmp_path / "cache"
    options = dict(min_count=2)
    here = distil(
        model, text, segmenter="regex", settings=Distillation(**options), cache=cache, quiet=True
    )
    shards = {path: path.stat().st_mtime_ns for path in cache.glob("[0-9]*/*")}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    paths = {"model": model, "text": text, "cache": cache, "output": tmp_path / "there.safetensors"}
    arguments += [f"--{name}={path}" for name, path in paths.items()]
    there = run_module("xlnb.x2static", *arguments, "--segmenter=regex")
    assert there.returncode == 0, there.stderr
    assert torch.equal(read_vectors(paths["output"]).matrix, here.matrix)
    assert shards and shards == {path: path.stat().st_mtime_ns for path in shards}


@pytest.mark.parametrize(
    "text, message",
    [
        ([], "the text has no words"),
        (["", "  ", "…"], "the text has no words"),
        (TEXT[:1], "no word occurs 10 times .*: lower min_count"),
        ([1, 2], "line 1 of the text is 1, not a string"),
        ((line for line in TEXT), "can be read only once.*give a list"),
        (
            ["ასი წელი ლამაზი დღე"] * 20,
            "subwords are unknown to the tokenizer.*use a model whose vocabulary",
        ),
    ],
)
def test_text_that_cannot_be_used(model, tokenizer, text, message):
    with pytest.raises(DataError, match=message):
        distil(model, text, None, tokenizer, segmenter="regex")


def test_what_cannot_be_used(model, tokenizer, folder, tmp_path):
    for options, error, message in (
        (
            dict(settings=learned(layer=4)),
            ConfigError,
            r"layer=4 is not one of 0 \(embeddings\) to 3",
        ),
        (dict(tokenizer=None), ConfigError, "a loaded model needs tokenizer="),
        (dict(segmenter="jieba"), ConfigError, "auto, icu, regex"),
        (dict(vocabulary="Hund"), ConfigError, "pass a list"),
        (dict(vocabulary=["Hund", 3]), DataError, r"vocabulary\[1\] is 3"),
        (
            dict(vocabulary=["Hund", "Katze", "Hund"]),
            DataError,
            r"vocabulary\[2\], 'Hund', is vocabulary\[0\].*: leave it out$",
        ),
        (dict(vocabulary=["Hund", "hund"]), DataError, "set lowercase=False"),
        (dict(vocabulary=["dog"]), DataError, "none of the 1 words"),
        (
            dict(settings=learned(min_count=2, pca=500)),
            ConfigError,
            "pca=500 components of .* take",
        ),
        (dict(batch_size=0, settings=SETTINGS), ConfigError, "batch_size=0"),
    ):
        with pytest.raises(error, match=message):
            distil(model, TEXT[:50], **{"tokenizer": tokenizer, "segmenter": "regex", **options})
    with pytest.raises(FileNotFoundError, match="is not there"):
        distil(model, str(tmp_path / "no.txt"), tokenizer=tokenizer)
    for bad in (
        dict(epochs=0),
        dict(layer="6"),
        dict(target="none"),
        dict(sif=-1.0),
        dict(max_pieces=2),
        dict(learning_rate=float("nan")),
    ):
        with pytest.raises(ConfigError):
            learned(**bad)
    with pytest.raises(
        ConfigError, match="epochs=9 with method='aggregate'.*take method='x2static'"
    ):
        Distillation(epochs=9)


def test_a_list_of_words(model, tokenizer):
    with pytest.warns(
        UserWarning, match="1 of the 3 words of the list, such as einhorn, are no words of the text"
    ):
        vectors = distil(
            model,
            TEXT,
            "de",
            tokenizer,
            vocabulary=["Katze", "Fuchs", "Einhorn"],
            segmenter="regex",
            settings=SETTINGS,
        )
    counts = count_words(TEXT, regex_segmenter())[0]
    assert vectors.words == tuple(sorted(("katze", "fuchs"), key=lambda w: (-counts[w], w)))


def test_the_most_frequent_words_get_vectors(model, tokenizer):
    settings = learned(min_count=2, most_words=5, epochs=1)
    counts = count_words(TEXT, regex_segmenter())[0]
    vectors = distil(model, TEXT, "de", tokenizer, segmenter="regex", settings=settings)
    assert list(vectors.words) == sorted(counts, key=lambda w: (-counts[w], w))[:5]


def test_rare_words_are_forgotten_where_there_are_too_many(monkeypatch):
    lines = ["ja " + " ".join(f"w{n}" for n in range(k, k + 40)) for k in range(0, 400, 20)]
    monkeypatch.setattr(x2static, "_MOST_COUNTED", 100)
    counts, total = count_words(lines, regex_segmenter())
    assert counts["ja"] == 20 and len(counts) <= 100 and total == 20 * 41


def test_components_and_weights(model, tokenizer, tmp_path):
    contexts, settings = contexts_of(model, tokenizer, TEXT, tmp_path, epochs=2)
    from dataclasses import replace

    plain, reduced, weighted = (
        learn_vectors(contexts, replace(settings, **more))
        for more in ({}, dict(pca=5), dict(sif=1e-3))
    )
    centred = (plain.matrix - plain.matrix.mean(0)).double()
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    # up to signs
    torch.testing.assert_close(
        reduced.matrix.double().abs(), (u * s)[:, :5].abs(), rtol=1e-3, atol=1e-5
    )
    share = torch.from_numpy(contexts.counts / contexts.total)[:, None]
    torch.testing.assert_close(weighted.matrix, (plain.matrix * 1e-3 / (1e-3 + share)).float())


def test_vectors_learn_which_words_share_contexts(model, tokenizer):
    "Words in one sentence slot, of a teacher that knows pieces and places: nearer than those of another."
    settings = learned(min_count=2, epochs=30, learning_rate=0.01, layer=0, subsample=1.0)
    vectors = distil(model, TEXT, "de", tokenizer, segmenter="regex", settings=settings)
    unit = F.normalize(vectors.matrix)

    def of(words):
        return unit[[vectors.index[w.lower()] for w in words]]

    same = (of(PLACES) @ of(PLACES).T)[~torch.eye(5, dtype=bool)].mean()
    assert same > (of(PLACES) @ of(DOES).T).mean() + 0.1


# ---------------------------------------------------------------- words and sentences


def test_regular_expression():
    def cut(text):
        return [text[a:b] for a, b in regex_segmenter().words(text)]

    assert cut("Don't! l’été co-op 3.14 snake_case") == [
        "Don't",
        "l’été",
        "co",
        "op",
        "3",
        "14",
        "snake",
        "case",
    ]
    assert (
        cut("हिन्दी में") == ["हिन्दी", "में"]
        and cut("می‌خواهم") == ["می‌خواهم"]
        and cut("e\u0301a") == ["e\u0301a"]
    )
    assert (
        cut("東京へ GPU") == ["東", "京", "へ", "GPU"]
        and cut("ที่นี่") == ["ที่", "นี่"]
        and cut("👋🏽 a") == ["a"]
    )
    assert cut("") == cut(" ¡!") == []

    def split(text):
        return [text[a:b].strip() for a, b in regex_segmenter().sentences(text)]

    assert split('Er sagt: "Ja." Sie geht! Und? Gut') == [
        'Er sagt: "Ja."',
        "Sie geht!",
        "Und?",
        "Gut",
    ]
    assert split("今日は雨。明日は？晴れ") == ["今日は雨。", "明日は？", "晴れ"]
    assert split("3.14 ist") == ["3.14 ist"] and split("  ") == []


def test_scripts_without_spaces_are_said(model, tokenizer):
    with (
        pytest.warns(UserWarning, match="single characters: install PyICU"),
        pytest.raises(DataError, match="unknown"),
    ):
        distil(model, ["東京都へ行く"] * 20, "ja", tokenizer, segmenter="regex")


def test_a_segmenter_of_ones_own(model, tokenizer):
    mine = Segmenter(
        "every third character",
        lambda line: [(n, n + 3) for n in range(0, len(line) - 3, 3)],
        lambda line: [(0, len(line))],
    )
    vectors = distil(model, TEXT[:50], "de", tokenizer, segmenter=mine, settings=SETTINGS)
    assert "der" in vectors and vectors.made_by["pass"]["segmenter"] == "every third character"


def test_without_icu(without_package):
    without_package("icu")
    assert not find_segmenter("auto", "th").divides
    with pytest.raises(ConfigError, match="needs PyICU"):
        find_segmenter("icu")


def test_icu():
    pytest.importorskip("icu", reason="PyICU needs ICU's headers and a C++ compiler")
    segmenter = find_segmenter("auto", "th")
    assert segmenter.name.startswith("ICU") and segmenter.divides

    def cut(text, lang=None):
        return [text[a:b] for a, b in find_segmenter("icu", lang).words(text)]

    assert cut("Don't stop, 3.14!", "en") == ["Don't", "stop", "3.14"]
    assert cut("สวัสดีชาวโลก", "th") == ["สวัสดี", "ชาว", "โลก"] and cut("東京都に行く", "ja")[0] in (
        "東京",
        "東京都",
    )
    assert cut("👋 Hallo 𝒳𝒴 Welt") == ["Hallo", "𝒳𝒴", "Welt"]  # two places each in UTF-16
    assert [
        text
        for text in (lambda s: [s[a:b] for a, b in find_segmenter("icu", "de").sentences(s)])(
            "👋 Ja. Nein! 𝒳?"
        )
    ] == ["👋 Ja. ", "Nein! ", "𝒳?"]


# ---------------------------------------------------------------- files, command line, memory


@pytest.mark.parametrize("ending", [".vec", ".bin", ".safetensors"])
def test_command_line(folder, tmp_path, ending, capsys):
    (tmp_path / "de.txt").write_text("\n".join(TEXT))
    output = tmp_path / f"de{ending}"
    main(
        [
            "--model",
            str(folder),
            "--text",
            str(tmp_path / "de.txt"),
            "--language",
            "de",
            "--output",
            str(output),
            "--min-count=2",
            "--method",
            "x2static",
            "--epochs",
            "1",
            "--segmenter",
            "regex",
            "--cache",
            str(tmp_path / "cache"),
        ]
    )
    words = f"{len(read_vectors(output))} words that occur 2 times or more"
    assert capsys.readouterr().out == f"{output}: {words}, width 128\n"
    if ending == ".vec":
        gensim = pytest.importorskip("gensim.models", reason="gensim is an extra")
        theirs = gensim.KeyedVectors.load_word2vec_format(str(output))
        np.testing.assert_array_equal(theirs["hund"], read_vectors(output)["hund"].numpy())


def test_a_command_finds_out_first_whether_it_can_write(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("xlnb.x2static.distil", lambda *_: pytest.fail("the text was read"))
    (tmp_path / "de.txt").write_text("\n".join(TEXT))
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit, match="--output .*: nothing can be written there"):
        main(
            [
                "--model",
                str(folder),
                "--text",
                str(tmp_path / "de.txt"),
                "--output",
                str(tmp_path / "file" / "x.vec"),
            ]
        )


def test_commands_with_one_output_take_turns(folder, tmp_path, monkeypatch):
    "Each finds its cache whole, though the one before it removes it."
    inside = []

    def distil_slowly(encoder, text, language, tokenizer, cache, *_):
        inside.append(1)
        Path(cache).mkdir()
        time.sleep(0.1)
        assert sum(inside) == 1 and Path(cache).is_dir()
        inside.append(-1)
        return x2static.WordVectors(["hund"], [[1.0]])

    monkeypatch.setattr(x2static, "distil", distil_slowly)
    text = write(tmp_path / "de.txt", "\n".join(TEXT))
    command = ["--model", str(folder), "--text", str(text), "--output", str(tmp_path / "de.vec")]
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(main, command) for _ in range(3)]:
            done.result()
    assert (
        sorted(path.name for path in tmp_path.iterdir()) == ["de.txt", "de.vec"]
        and len(inside) == 6
    )


def test_too_many_components_are_known_before_the_pass(model, tokenizer, monkeypatch):
    monkeypatch.setattr("xlnb.x2static.read_contexts", lambda *_: pytest.fail("the text was read"))
    with pytest.raises(
        ConfigError, match="pca=500 components of vectors of width 128: take 128 or fewer"
    ):
        distil(model, TEXT, None, tokenizer, settings=learned(pca=500))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--model, --text, --output are needed"),
        (["--epoch", "3"], "Unrecognized options: --epoch"),
        (["--model", "m", "--text", "t", "--output", "x.npy"], "the ending says"),
        (["--model", "no", "--text", "t", "--output", "x.vec"], "no is not a folder"),
        (["--epochs", "many"], "Error parsing --epochs"),
    ],
)
def test_command_line_says_what_is_wrong(arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(arguments)


def test_a_command_without_what_it_needs_says_how_it_is_used(capsys):
    with pytest.raises(SystemExit, match="--text, --output are needed"):
        main(["--model", "m"])
    shown = capsys.readouterr().out
    assert shown.startswith(
        "usage: "
    ) and "encoder with its tokenizer: folder, run, or hub name" in " ".join(shown.split())


@pytest.mark.slow
def test_command_line_as_a_program(folder, tmp_path):
    (tmp_path / "de.txt").write_text("\n".join(TEXT[:60]))
    command = [
        sys.executable,
        "-m",
        "xlnb.x2static",
        "--model",
        folder,
        "--text",
        "de.txt",
        "--output",
        "de.vec",
        "--min-count",
        "2",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("de.vec: "), done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["de.txt", "de.vec"]  # the cache is gone


PEAK = """
import resource, sys
from xlnb.text.corpora import Lines
from xlnb.x2static import Distillation, distil
def text(n): return (f"Der Hund {k % 97} bellt im Haus {k % 89}, und die Katze {k % 83} auch." for k in range(n))
vectors = distil(sys.argv[1], Lines(text, int(sys.argv[2])), "de", cache=sys.argv[3], segmenter="regex",
                 settings=Distillation(method="x2static", epochs=1, layer=0, subsample=1.0))
print(len(vectors), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(folder, tmp_path):
    code = PEAK.replace(
        "import resource, sys",
        "import resource, sys\nfrom xlnb import x2static; x2static._SHARD = 512",
    )
    peaks = []
    for n in (1000, 9000):  # the contexts of the longer one take 9,000 × 15 × 256 bytes, 35 MB
        done = subprocess.run(
            [sys.executable, "-c", code, folder, str(n), tmp_path / str(n)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.split()[1]))
    assert peaks[1] - peaks[0] < 20  # MiB


def test_composed_and_decomposed_words_are_one(model, tokenizer):
    lines = ["Caf\u00e9 im Haus", "Cafe\u0301 im Haus", "Ca\u00adf\u00e9 im Haus"]
    assert count_words(lines, regex_segmenter())[0] == {"caf\u00e9": 3, "im": 3, "haus": 3}
    few = learned(min_count=3, subsample=1.0, epochs=1)
    vectors = distil(model, TEXT[:40] + lines, None, tokenizer, segmenter="regex", settings=few)
    assert "caf\u00e9" in vectors.words
    wanted = distil(
        model, lines, None, tokenizer, vocabulary=["Cafe\u0301"], segmenter="regex", settings=few
    )
    assert wanted.words == ("caf\u00e9",)
    with pytest.raises(DataError, match="again: leave it out$"):
        distil(
            model,
            lines,
            None,
            tokenizer,
            vocabulary=["Caf\u00e9", "Cafe\u0301"],
            segmenter="regex",
            settings=few,
        )


def test_the_pass_is_quiet_on_request(model, tokenizer, monkeypatch):
    asked = []
    real = x2static.batches_by_length
    monkeypatch.setattr(
        x2static,
        "batches_by_length",
        lambda lengths, size, quiet: asked.append(quiet) or real(lengths, size, True),
    )
    for quiet in (True, False):
        distil(
            model,
            TEXT[:20],
            None,
            tokenizer,
            segmenter="regex",
            settings=Distillation(min_count=1),
            quiet=quiet,
        )
    assert asked == [True, False]
