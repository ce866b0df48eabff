"Heads: what is read, exact resumption, other architectures, and what is refused."

import copy, json, random, re, time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from xlnb.base.core import CheckpointError, ConfigError, DataError, data_root
from xlnb.text.vocab import train_vocab
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.encoder.foreign import quietly
import xlnb.training.training as training
from xlnb.measures.finetuning import (
    IGNORED,
    KINDS,
    LONGEST_ANSWER,
    FineTuning,
    LearnedTask,
    Reading,
    answers_of,
    best_span,
    item_logits,
    load_head,
    new_head,
    read_choices,
    read_items,
    read_labelled,
    read_questions,
    read_tagged,
    texts_of,
    train_head,
    usual_rate,
)
from xlnb.measures.task_sets import Choice, Labelled, Question, Tagged, read_task, task_languages

pytestmark = pytest.mark.filterwarnings(  # said on purpose
    "ignore:.*examples have more than", "ignore:.*subwords are unknown"
)

WORDS = "der Hund bellt laut Чад граничит с Ливией กรุงเทพ เป็น เมืองหลวง the cat sat on a mat".split()
YES_NO = ("no", "yes")


def line(number, words=6):
    return " ".join(random.Random(number).choices(WORDS, k=words))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    lines = [line(n) for n in range(400)]
    return train_vocab({"de": lines, "th": lines[::-1]}, 64, tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def encoder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    new_model(Encoder, config_for("tiny", len(tokenizer), **shape), 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


EXAMPLES = {  # of every kind, what can be learned at once
    "classification": [Labelled(str(n), (line(n), WORDS[n % 2]), YES_NO[n % 2]) for n in range(40)],
    "regression": [Labelled(str(n), (line(n),), str(n % 3)) for n in range(40)],
    "choice": [
        Choice(str(n), line(n), "Wo?", (WORDS[0], WORDS[5], WORDS[9]), n % 3) for n in range(40)
    ],
    "tagging": [
        Tagged(
            str(n), tuple(line(n).split()), tuple(YES_NO[w[0].isupper()] for w in line(n).split())
        )
        for n in range(40)
    ],
    "question answering": [
        Question(str(n), "Wo?", line(n), ((line(n).split()[1], line(n).index(" ") + 1),))
        for n in range(40)
    ],
}
LABELS = {
    "classification": YES_NO,
    "regression": (),
    "choice": (0, 1, 2),
    "tagging": YES_NO,
    "question answering": (),
}


def gold(kind):
    rows = EXAMPLES[kind]
    if kind == "tagging":
        return [e.tags for e in rows]
    if kind == "choice":
        return [e.answer for e in rows]
    if kind == "question answering":
        return [e.answers[0][0] for e in rows]
    return [float(e.label) if kind == "regression" else e.label for e in rows]


def never_worse(examples, answers):
    "A score for tests in which the epoch does not matter."
    return 0.0


def task_of(kind):
    return LearnedTask(kind, LABELS[kind], EXAMPLES[kind], EXAMPLES[kind][:4], never_worse)


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (dict(kind="classifcation"), ConfigError, "did you mean 'classification'"),
        (dict(train=[]), DataError, "train has no example"),
        (dict(dev=[("1", "a b", "x")]), DataError, "dev holds .* an example of tagging has words"),
    ],
    ids=["kind", "none", "tuples"],
)
def test_a_task_that_cannot_be_learned_is_refused(changes, error, message):
    with pytest.raises(error, match=message):
        replace(task_of("tagging"), **changes)


def pointing(items, kind, labels):
    "Logits of a head that knows its targets."
    for n, (ids, target) in enumerate(zip(items.ids, items.targets)):
        if kind == "question answering":
            yield 10.0 * (np.arange(len(ids))[:, None] == target)
        elif kind == "tagging":
            yield 10.0 * (target[:, None] == np.arange(len(labels)))
        elif kind == "choice":
            yield np.array([float(n % len(labels) == target)])
        elif kind == "regression":
            yield np.array([target])
        else:
            yield 10.0 * (np.arange(len(labels)) == target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("limit", [24, 64])  # in windows, and whole
def test_who_knows_the_targets_answers_right(kind, limit, tokenizer):
    items = KINDS[kind].read(EXAMPLES[kind], tokenizer, LABELS[kind], limit)
    assert max(map(len, items.ids)) <= limit
    answers = KINDS[kind].answer(
        items, [*pointing(items, kind, LABELS[kind])], EXAMPLES[kind], LABELS[kind]
    )
    assert [getattr(answer, "text", answer) for answer in answers] == gold(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_learns_what_it_is_shown(kind, encoder, tokenizer, tmp_path):
    recipe = FineTuning(epochs=2, learning_rate=3e-3, batch_size=8)
    assert train_head(encoder, task_of(kind), recipe, 0, tmp_path)["finished"]
    losses = [
        json.loads(text)["loss"] for text in (tmp_path / "log.jsonl").read_text().splitlines()
    ]
    assert sum(losses[-3:]) < sum(losses[:3])
    network = load_head(tmp_path / "best", kind)
    answers = answers_of(network, tokenizer, kind, LABELS[kind], EXAMPLES[kind], 64)
    assert (
        len(answers) == 40
        and load_head(tmp_path / "best", kind).config.num_labels == network.config.num_labels
    )


def test_a_decoder_is_told_what_fills_batches_up(tokenizer, tmp_path):
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=128
    )
    assert config.pad_token_id is None
    config.bos_token_id = config.eos_token_id = tokenizer.eos_token_id
    transformers.GPT2Model(config).save_pretrained(tmp_path / "decoder")
    own = copy.deepcopy(tokenizer)
    own.save_pretrained(tmp_path / "decoder")
    recipe = FineTuning(epochs=1, batch_size=8)
    assert train_head(tmp_path / "decoder", task_of("classification"), recipe, 0, tmp_path / "run")[
        "finished"
    ]
    assert (
        load_head(tmp_path / "run/best", "classification").config.pad_token_id
        == tokenizer.pad_token_id
    )
    own.pad_token = None
    own.save_pretrained(tmp_path / "decoder")
    with pytest.raises(
        ConfigError, match="decoder: neither its .* names a padding token.*tokenizer.eos_token"
    ):
        train_head(tmp_path / "decoder", task_of("classification"), recipe, 0, tmp_path / "other")


@pytest.mark.parametrize(
    "file, text", [("config.json", "{"), ("model.safetensors", "version https://git-lfs")]
)
def test_a_damaged_network_is_refused_with_or_without_a_head(tmp_path, file, text):
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    with quietly():
        transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    (tmp_path / file).write_text(text)
    for read in (
        lambda: load_head(tmp_path, "classification"),
        lambda: new_head(tmp_path, "classification", YES_NO),
    ):
        with pytest.raises(CheckpointError, match="holds no network that loads"):
            read()


def test_a_head_without_a_weight_is_refused(encoder, tmp_path):
    assert train_head(encoder, task_of("tagging"), FineTuning(epochs=1), 0, tmp_path)["finished"]
    weights = load_file(tmp_path / "best/model.safetensors")
    lost = next(name for name in weights if "layers.1" in name)
    save_file(
        {name: w for name, w in weights.items() if name != lost},
        tmp_path / "best/model.safetensors",
        {"format": "pt"},
    )
    (tmp_path / "best/checksums.json").unlink()  # they are of all weights
    with pytest.raises(
        CheckpointError, match=f"lacks 1 weights of .*: {re.escape(lost)}; remove the folder"
    ):
        load_head(tmp_path / "best", "tagging")


def test_a_word_is_read_at_the_same_kind_of_piece_wherever_it_stands(tokenizer):
    "A line's first word may begin with a piece that is a mark alone; of no word that piece is taken."
    words = ("ชาด", "Чад", "日本", "Hund")
    lines = [Tagged(str(n), words[n:] + words[:n], ("no",) * 4) for n in range(4)]
    items = read_tagged(lines, tokenizer, YES_NO, 64)
    read = [
        {
            word: tokenizer.convert_ids_to_tokens(ids[piece])
            for word, piece in zip(one.words, pieces)
        }
        for one, ids, (_, pieces) in zip(lines, items.ids, items.positions)
    ]
    assert read[0] == read[1] == read[2] == read[3] and all(
        piece.strip("▁") for piece in read[0].values()
    )


def test_the_loss_of_tags_is_the_mean_over_first_pieces(encoder, tokenizer, tmp_path):
    from xlnb.measures.finetuning import FineTuned, new_head, padded

    network = new_head(encoder, "tagging", YES_NO).eval()
    items = read_tagged(EXAMPLES["tagging"], tokenizer, YES_NO, 64)
    batch = padded(items, [*range(8)], tokenizer, network)
    model = FineTuned(network, "tagging", YES_NO)
    ours = model(batch)["task"] / model.counts(batch)["task"]
    named = {name: values for name, values in batch.items() if name != "targets"}
    theirs = network(**named, labels=batch["targets"]).loss
    # one mean, summed in another order
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    assert model.counts(batch)["task"] == sum(len(e.words) for e in EXAMPLES["tagging"][:8])


def test_batches_of_like_length_add_up_to_the_step(encoder, tokenizer, monkeypatch):
    from xlnb.measures import finetuning
    from xlnb.measures.finetuning import FineTuned, ItemBatches, new_head
    from xlnb.training.training import accumulate_gradients

    for kind in KINDS:
        rows = EXAMPLES[kind]
        labels = LABELS[kind]
        gradients = []
        network = new_head(encoder, kind, labels).eval()  # no dropout
        items = read_items(kind, rows, tokenizer, labels, 64)
        together = len(labels) if kind == "choice" else 1
        for positions in (10**9, 48):  # one batch, and several
            monkeypatch.setitem(finetuning.POSITIONS, "cpu", positions)
            batches = ItemBatches(items, together, 16, 0, tokenizer, network)(0, 0)
            model = FineTuned(network, kind, labels)
            sums, counts = accumulate_gradients(model, [(batch, None) for batch in batches])
            gradients.append(
                (
                    len(batches),
                    sums["task"],
                    counts["task"],
                    torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]),
                )
            )
            model.zero_grad()
        (one, *whole, all_at_once), (several, *parts, added) = gradients
        # float32, other orders
        assert one == 1 and several > 2 and parts == pytest.approx(whole, rel=1e-5), kind
        assert torch.allclose(added, all_at_once, rtol=1e-4, atol=1e-6), kind


def test_the_loss_of_a_question_is_that_of_transformers_where_nothing_is_filled_up(
    encoder, tokenizer
):
    from xlnb.measures.finetuning import FineTuned, new_head, padded

    network = new_head(encoder, "question answering", ()).eval()
    items = read_items("question answering", EXAMPLES["question answering"], tokenizer, (), 64)
    model = FineTuned(network, "question answering", ())
    names = ("start_positions", "end_positions")
    for row in range(4):
        batch = padded(items, [row], tokenizer, network)
        targets = batch["targets"]
        named = {k: v for k, v in batch.items() if k != "targets"} | dict(zip(names, targets.T))
        assert model(batch)["task"].item() == pytest.approx(network(**named).loss.item(), rel=1e-6)
        longer = padded(
            items,
            [row, max(range(len(items.ids)), key=lambda n: len(items.ids[n]))],
            tokenizer,
            network,
        )
        first = {k: v[:1] for k, v in longer.items()}  # the same, filled up
        assert model(first)["task"].item() == pytest.approx(model(batch)["task"].item(), rel=1e-5)


def test_stopped_after_every_step_it_ends_in_the_same_bits(encoder, tmp_path):
    task = task_of("classification")
    recipe = FineTuning(epochs=2, batch_size=16)
    train_head(encoder, task, recipe, 1, tmp_path / "whole")
    for _ in range(8):
        done = train_head(encoder, task, replace(recipe, max_minutes=1e-6), 1, tmp_path / "parts")
        if done["finished"]:
            break
    assert done["finished"]
    whole, parts = (
        load_file(tmp_path / name / "best" / "model.safetensors") for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys() and all(
        torch.equal(whole[name], parts[name]) for name in whole
    )


@pytest.mark.parametrize("kind", ["classification", "tagging", "question answering"])
@pytest.mark.parametrize("partner", ["translation", "self"])
def test_beside_a_translation(kind, partner, encoder, tokenizer, tmp_path):
    "A network plugged in learns, is loaded as such, and answers by what stands beside."
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    crossing = config_for(
        "tiny", len(tokenizer), **shape, cross_attention=True, restart_positions=True
    )
    new_model(Encoder, crossing, 0).save_pretrained(tmp_path / "crossing")
    tokenizer.save_pretrained(tmp_path / "crossing")
    rows = EXAMPLES[kind]
    labels = LABELS[kind]
    same = {e: texts_of(e) for e in rows}
    task = replace(
        task_of(kind), partner=partner, translations=same if partner == "translation" else None
    )
    train_head(
        tmp_path / "crossing", task, FineTuning(epochs=1, learning_rate=1e-3), 0, tmp_path / "run"
    )
    network = load_head(tmp_path / "run" / "best", kind)
    assert type(network).__name__.startswith("Partnered") and network.config.partner == partner
    if partner == "self":
        return

    def logits(beside):
        return item_logits(
            network, read_items(kind, rows, tokenizer, labels, 64, beside), kind, tokenizer
        )

    other = {e: tuple(text[::-1] for text in texts) for e, texts in same.items()}
    thrice = {e: tuple(3 * text for text in texts) for e, texts in same.items()}
    longer = read_items(kind, rows, tokenizer, labels, 64, thrice)
    assert longer.lengths() == [
        max(map(len, both)) for both in zip(longer.ids, longer.partners.ids)
    ]
    first = logits(same)
    second = logits(other)
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(first, second))
    with pytest.raises(DataError, match="39 of 40 examples have no translation, first '1'"):
        logits({rows[0]: same[rows[0]]})


def test_a_choice_has_no_translation_beside():  # an option for each item, a translation for each example
    with pytest.raises(ConfigError, match="not read beside a translation"):
        texts_of(EXAMPLES["choice"][0])


def test_two_threads_answer_as_one_and_an_error_ends_both(encoder, tokenizer):
    from xlnb.measures.finetuning import each_batch, new_head

    network = new_head(encoder, "tagging", YES_NO)
    given = torch.get_num_threads()
    items = read_items("tagging", EXAMPLES["tagging"] * 20, tokenizer, YES_NO, 64)
    found = []
    seen = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(item_logits(network, items, "tagging", tokenizer))
            assert torch.get_num_threads() == threads and not network.training

        def read(own, batch):
            seen.append(
                (own is network, own.training, own.get_input_embeddings().weight.data_ptr())
            )
            if batch == 3:
                raise ValueError("the fourth")
            time.sleep(0.001)

        with pytest.raises(ValueError, match="the fourth"):
            each_batch(network, [*range(10_000)], read)
    finally:
        torch.set_num_threads(given)
    # every batch is on one thread both times
    assert all(np.array_equal(a, b) for a, b in zip(*found))
    assert len(seen) < 10_000 and {*seen} == {
        (False, False, network.get_input_embeddings().weight.data_ptr())
    }


def test_the_best_epoch_is_kept(encoder, tmp_path):
    found = iter([3.0, 5.0, 4.0])
    task = replace(task_of("classification"), score=lambda examples, answers: next(found))
    train_head(encoder, task, FineTuning(epochs=3, batch_size=20), 0, tmp_path)
    assert json.loads((tmp_path / "best" / "selection.json").read_text()) == {
        "step": 4,
        "dev": 5.0,
        "epoch_ends": True,
    }


SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
OTHERS = ["Bert", "Roberta", "XLMRoberta", "Electra", "DebertaV2", "ModernBert"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", ["classification", "tagging", "question answering"])
def test_architectures_of_transformers(name, kind, tokenizer, tmp_path):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        **SMALL,
    )
    with quietly():
        getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    done = train_head(
        tmp_path / "model", task_of(kind), FineTuning(epochs=1, batch_size=20), 0, tmp_path / "run"
    )
    assert done["finished"] and (tmp_path / "run" / "best" / "selection.json").exists()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=25),
    st.integers(1, 30),
)
def test_best_span_is_the_best_of_all_pairs(logits, longest):
    start, end = np.array(logits).T
    pairs = [(a, b) for a in range(len(start)) for b in range(a, min(a + longest, len(start)))]
    score, a, b = best_span(start, end, longest)
    assert (a, b) in pairs and score == max(start[x] + end[y] for x, y in pairs)


def test_windows_cover_every_piece_of_a_long_text(tokenizer):
    text = " ".join(WORDS * 8)
    items = read_questions(
        [Question("1", "Wo?", text, (("laut", text.index("laut")),))], tokenizer, (), 40
    )
    seen = {c for _, offsets in items.positions for a, b in offsets for c in range(a, b)}
    assert {n for n, c in enumerate(text) if c != " "} <= seen
    # some windows hold the answer, others do not
    assert {target for target in items.targets} > {(0, 0)}


def test_long_lines_lose_no_word_and_a_word_no_tag(tokenizer):
    words = ("Hund", "กรุงเทพ" * 30, "laut") * 9
    items = read_tagged([Tagged("1", words, ("yes", "no", "yes") * 9)], tokenizer, YES_NO, 32)
    assert sorted(first + k for first, pieces in items.positions for k in range(len(pieces))) == [
        *range(27)
    ]
    assert sum((target != IGNORED).sum() for target in items.targets) == 27


@pytest.mark.parametrize(
    "call, error, says",
    [
        (
            lambda t: read_labelled([Labelled("7", ("a",), "jes")], t, YES_NO, 64),
            ConfigError,
            "7: label='jes'.*yes",
        ),
        (
            lambda t: read_choices([Choice("7", "a", "b", ("c", "d"), 0)], t, (0, 1, 2), 64),
            DataError,
            "7: 2 options",
        ),
        (
            lambda t: read_tagged([Tagged("7", ("a",), ("X",))], t, YES_NO, 64),
            ConfigError,
            "7: label='X'",
        ),
        (lambda t: FineTuning(epochs=0), ConfigError, "epochs=0: give 1 or more"),
        (lambda t: FineTuning(warmup=-1.0), ConfigError, "warmup=-1.0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(call, error, says, tokenizer):
    with pytest.raises(error, match=says):
        call(tokenizer)


def test_a_tokenizer_without_offsets_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(ConfigError, match="Slow keeps no offsets"):
        read_tagged(EXAMPLES["tagging"], Slow(), YES_NO, 64)


def test_the_usual_rate_is_that_of_the_papers_at_base():
    assert usual_rate(768) == 2e-5 and 2.5e-4 < usual_rate(128) < 3.5e-4


@pytest.mark.parametrize("name", ["xquad", "mlqa", "tydiqa"])
def test_answers_of_real_sets_are_recovered_from_offsets(name):
    "In all languages; every question of theirs is read in subwords below."
    split = dict(FEW)[name]
    # as below
    langs = [lang for lang in task_languages(name, split) if "-" not in lang] if data_root() else []
    if not langs:
        pytest.skip(f"no file of {name}")
    characters = Tokenizer(
        models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3}, unk_token="[UNK]")
    )
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    characters.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=characters,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=8000,
    )
    for lang in langs:
        examples = [
            e
            for e in read_task(name, lang, split)[:100]
            if len(e.question + e.context) < 7900 and e.answers
        ]
        assert len(examples) > 90, (lang, len(examples))
        with pytest.warns(UserWarning):
            items = read_questions(examples, tokenizer, (), 8000)
        found = {}
        for n, (a, b), (first, offsets) in zip(items.example, items.targets, items.positions):
            if a:
                found[n] = examples[n].context[offsets[a - first][0] : offsets[b - first][1]]
        assert found == {n: e.answers[0][0] for n, e in enumerate(examples)}, lang


# ---------------------------------------------------------------- answers of real sets, in subwords

SPECIAL = dict(cls_token="<s>", pad_token="<pad>", sep_token="</s>", unk_token="<unk>")
FEW = [("xquad", "test"), ("mlqa", "dev"), ("tydiqa", "dev")]
SETS = [*FEW, ("tydiqa", "train"), ("squad2", "cs224n-dev")]
LIMIT = 384  # tokens; windows share a third of them


def fast(kind, texts, size=6000):
    "A tokenizer as that of RoBERTa, of BERT, or of XLM-R, trained on some texts."
    told = dict(vocab_size=size, special_tokens=[*SPECIAL.values()], show_progress=False)
    ends = [("<s>", 0), ("</s>", 2)]
    processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=ends
    )
    if kind == "byte-level BPE":
        own = Tokenizer(models.BPE())
        before = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(initial_alphabet=before.alphabet(), **told)
        processor = processors.RobertaProcessing(
            ends[1], ends[0], trim_offsets=True, add_prefix_space=False
        )
    elif kind == "Unigram":
        own = Tokenizer(models.Unigram())
        before = pre_tokenizers.Metaspace()
        own.normalizer = normalizers.NFKC()
        trainer = trainers.UnigramTrainer(
            unk_token="<unk>", n_sub_iterations=1, max_piece_length=8, **told
        )
    else:
        own = Tokenizer(models.WordPiece(unk_token="<unk>"))
        before = pre_tokenizers.BertPreTokenizer()
        own.normalizer = normalizers.BertNormalizer(lowercase="uncased" in kind)
        trainer = trainers.WordPieceTrainer(**told)
    own.pre_tokenizer = before
    own.train_from_iterator(texts, trainer)
    own.post_processor = processor
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, model_max_length=LIMIT, **SPECIAL
    )


@cache
def real_questions():  # set, split → language → questions with an answer
    if data_root() is None:
        pytest.skip("XLNB_DATA names no folder")

    def read(name, split):
        # pairs ask of the same contexts
        langs = [lang for lang in task_languages(name, split) if "-" not in lang]
        return {lang: [e for e in read_task(name, lang, split) if e.answers] for lang in langs}

    return {which: read(*which) for which in SETS}


@cache
def real_tokenizer(kind):
    firsts = [own[:200] for sets in real_questions().values() for own in sets.values()]
    contexts = [dict.fromkeys(e.context for e in own) for own in firsts]
    return fast(kind, [context for own in contexts for context in [*own][:20]])


def cut(example, tokenizer):  # pieces that an answer shares with what stands beside it
    context, (text, at) = example.context, example.answers[0]
    stop = at + len(text)
    return [
        context[a:b]
        for a, b in tokenizer(context, add_special_tokens=False).encodings[0].offsets
        if a < at < b and context[a:at].strip() or a < stop < b and context[stop:b].strip()
    ]


@pytest.mark.parametrize(
    "which, kind",
    [
        *product(SETS, ["Unigram"]),
        *product(FEW, ["byte-level BPE", "WordPiece", "WordPiece, uncased"]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*questions have more than")
@pytest.mark.slow
def test_answers_of_real_sets_are_recovered_from_subwords(which, kind):
    """The first answer of every question, in every language, but for one that ends within a piece.

    Of windows none holds an answer that is longer than what two of them share. Other tokenizers than XLM-R's kind
    read the first questions of a language."""
    tokenizer = real_tokenizer(kind)
    quirks = Counter()
    for lang, examples in real_questions()[which].items():
        if kind != "Unigram":
            examples = examples[:200]
        items = read_questions(examples, tokenizer, (), LIMIT)
        spans = {}
        for n, (a, b), (first, offsets) in zip(items.example, items.targets, items.positions):
            if not a:
                continue
            own = examples[n].context[offsets[a - first][0] : offsets[b - first][1]].strip()
            spans.setdefault(n, {})[own] = b - a
        answers = KINDS["question answering"].answer(
            items, [*pointing(items, "question answering", ())], examples, ()
        )
        for n, example in enumerate(examples):
            text = example.answers[0][0].strip()
            quirk = ""
            if n not in spans:
                quirk = "long"
            elif [*spans[n]] != [text]:
                quirk = "cut"
            if quirk == "long":
                assert len(tokenizer.tokenize(text)) > LIMIT // 3
            elif quirk == "cut":
                assert cut(example, tokenizer) and all(text in span for span in spans[n]), (
                    lang,
                    text,
                )
            elif spans[n][text] < LONGEST_ANSWER:
                assert answers[n].text == text
            quirks[quirk] += 1
    if not quirks:
        pytest.skip(f"XLNB_DATA has no files of {which}")
    most = 0.07 if which[0] == "squad2" else 0.05  # of 6,000 pieces for two dozen languages
    assert quirks["cut"] < most * quirks.total() and quirks["long"] < 5


def test_what_a_tokenizer_drops_belongs_to_the_piece_it_touches():
    "Accents of an uncased one, marks of width 0; at both ends of a text, and of its windows."
    tokenizer = fast("WordPiece, uncased", ["जॉन एलवे खेलता है", "Пуанкаре Анри"] * 9, 200)
    answers = ["\u200eजॉन", "एलवे\u200b", "Анри\u0301"]
    context = f"{answers[0]} {answers[1]}, {'खेलता है, ' * 20}\u200f {answers[2]}"
    for limit in (20, 64, 500):
        for answer in answers:
            example = Question("1", "खेलता", context, ((answer, context.index(answer)),))
            items = read_questions([example], tokenizer, (), limit)
            found = {
                context[offsets[a - first][0] : offsets[b - first][1]]
                for (a, b), (first, offsets) in zip(items.targets, items.positions)
                if a
            }
            assert found == {answer}


def test_progress_names_task_and_epoch_unless_quiet(encoder, tmp_path, monkeypatch):
    bars = []
    lines = []
    make = training.progress_bar

    def progress_bar(quiet, **options):
        bars.append((quiet, make(quiet=True, **options)))
        return bars[-1][1]

    monkeypatch.setattr(training, "progress_bar", progress_bar)
    monkeypatch.setattr(training, "progress", lines.append)
    recipe = FineTuning(epochs=2, batch_size=20)
    arguments = (encoder, task_of("classification"), recipe, 0)
    train_head(*arguments, tmp_path / "shown", title="xnli, toy, learned in en")
    train_head(*arguments, tmp_path / "silent", quiet=True)
    assert [quiet for quiet, _ in bars] == [None, True]  # None: not in a notebook
    parts = ["xnli, toy, learned in en", "epoch 2 of 2", "step 3 of 4", "loss", "minutes left"]
    assert all(part in lines[2] for part in parts), lines[2]
    assert lines[5].startswith("epoch 1 of 2, step 2 of 4")


def test_bf16_trains_and_reads_and_is_another_recipe(encoder, tokenizer, tmp_path):
    recipe = FineTuning(epochs=1, learning_rate=3e-3, batch_size=20)
    task = task_of("tagging")
    losses = {}
    for precision in ("fp32", "bf16"):
        out = tmp_path / precision
        train_head(encoder, task, replace(recipe, precision=precision), 0, out)
        losses[precision] = [line["loss"] for line in training.read_log(out)]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)  # 8 bits of mantissa
    assert losses["bf16"] != losses["fp32"]
    network = load_head(tmp_path / "bf16" / "best", "tagging")
    items = read_items("tagging", EXAMPLES["tagging"], tokenizer, YES_NO, 64)
    full, low = (
        np.concatenate(item_logits(network, items, "tagging", tokenizer, Reading(precision)))
        for precision in ("fp32", "bf16")
    )
    assert low.dtype == np.float32
    assert 0 < np.abs(full - low).max() < 0.05 * np.abs(full).max()
    with pytest.raises(ConfigError, match="precision='fp16' is not one of fp32, bf16"):
        FineTuning(precision="fp16")


def test_a_gpu_without_bf16_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda emulated: False)
    config = training.TrainingConfig(steps=1, learning_rate=1e-3, precision="bf16")
    with pytest.raises(ConfigError, match="this GPU has none; take precision='fp32'"):
        training._prepare_machine(torch.device("cuda"), config)


def test_the_question_of_a_long_choice_is_read(tokenizer):
    first = EXAMPLES["choice"][0]._replace(context=" ".join(["w1"] * 150))
    others = first._replace(question=f"{first.question} w2")
    labels = tuple(map(str, range(len(first.options))))
    with pytest.warns(UserWarning, match="more than 64 tokens"):
        read = [read_items("choice", [e], tokenizer, labels, 64).ids for e in (first, others)]
    assert read[0] != read[1]
