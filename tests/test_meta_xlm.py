"A cross-lingual model that starts from another: settings, weights, words shared with a teacher, resuming, records."

import itertools, json, math, os, re, shutil
from dataclasses import fields, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import test_initialisation as foreign
import torch
from hypothesis import given, settings as profile, strategies as st
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from xlnb.base.core import CheckpointError, ConfigError, parse_languages, read_records
from xlnb.text.corpora import AlignedPair, Corpus
from xlnb.text.matching import match_vocabulary
from xlnb.text.tokens import SpecialIds, collate_text
from xlnb.encoder.encoder import Encoder, config_for, load, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.training.objectives import MaskIds
from xlnb.training.training import read_log
from xlnb.encoder.loading import load_model_tokenizer
from xlnb.pretraining.experiments import Experiment, missing, run_missing
from xlnb.pretraining.pretraining import (
    main,
    make_batches as text_batches,
    network_config,
    new_masked_lm,
    run,
    run_folder,
    train_phase,
)
from xlnb.pretraining.reports import best_layer, draw_seeds, has_learned, nats_learned
from xlnb import meta_xlm as M
from xlnb.meta_xlm import (
    MONOLINGUAL,
    ORDERS,
    PAPER,
    PHASE,
    RECIPE,
    DISTILLATIONS,
    DistillationBatches,
    GuessingStudent,
    SameTokenBatches,
    Settings,
    SharedVocabulary,
    ShuffledBatches,
    Student,
    by_language,
    check_source,
    curve,
    describe,
    dictionary_baselines,
    draw_curves,
    draw_phases,
    find_dictionaries,
    guessed_words,
    guessing_student,
    hide_from_teacher,
    induced_dictionaries,
    load_teacher,
    make_batches,
    make_model,
    monolingual,
    monolingual_settings,
    named_lists,
    named_source,
    prepare_data,
    resolve,
    source_folder,
    source_shares,
    spelled,
    start_network,
    starts_and_ends,
    usual_dropout,
    translations,
    with_start,
    word_numbers,
)

SMALL = dict(
    langs="en,de",
    width=32,
    layers=2,
    steps=4,
    meta_steps=3,
    batch_tokens=256,
    micro_tokens=128,
    test_lines=20,
    vocab_size=300,
    meta_vocab_size=200,
)
WORDS = "encoder.embeddings.word_embeddings.weight"
pytestmark = pytest.mark.usefixtures("root")


def small(**changes):
    return resolve(Settings(**SMALL | changes))


@pytest.fixture(scope="module")
def parts(root):
    return prepare_data(small())


@pytest.fixture(scope="module")
def source(parts):
    return monolingual(small(), parts) / "generator"


@pytest.fixture
def unprobed(monkeypatch):
    "Runs without probes and plans, which take most of the time of a short run."
    whole = M.evaluate
    monkeypatch.setattr(
        M, "evaluate", lambda network, data, **more: whole(network, data, probe_langs=(), **more)
    )
    monkeypatch.setattr(M, "directions", lambda *_: {})
    monkeypatch.setattr(M, "linear_probe", lambda *_, **__: [])
    monkeypatch.setattr("xlnb.pretraining.pretraining.announce", lambda *_: None)


def begun(s, data, source):
    "The data with a monolingual network, as `with_start` leaves it."
    data = replace(data, source=source, dictionaries=find_dictionaries(s, data.corpus))
    if source is None or s.parts in ("none", "body"):
        return data
    return replace(
        data,
        matching=match_vocabulary(
            load_model_tokenizer(source), data.tokenizer, data.dictionaries, s.match_order
        ),
    )


def started(s, data, source):
    data = begun(s, data, source)
    return make_model(s, data), start_network(s, data)[1], data.matching


def train_on(s, data, source, **limits):
    "The cross-lingual phase, without what is measured after it."
    trained = train_phase(PHASE, replace(s, **limits), begun(s, data, source))
    return trained.summary, trained.model, run_folder(PHASE, s, data)


def same(a, b):  # state dicts
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def weights(folder):
    return load_file(folder / "generator" / "model.safetensors")


# ---- controls: words out of order, dictionaries in part
# --------------------------------------------------------------


def mono_batches(order, parts, seed=0):
    "A batch of English text, and the same out of order."
    s = small(meta_order=order, seed=seed)
    batches = text_batches(monolingual_settings(s), parts.mono, s.batch_tokens)
    moved = ShuffledBatches(batches, order, parts.mono, "en", seed)
    return batches(2, 0), moved(2, 0), moved


def sentences(ids, tokenizer):
    flat = ids.flatten().numpy()
    return np.split(flat, np.flatnonzero(np.isin(flat, tokenizer.all_special_ids)))


@pytest.mark.parametrize("order", ORDERS[1:])
def test_what_is_read_out_of_order_has_the_same_shape(order, parts):
    before, after, moved = mono_batches(order, parts)
    tokenizer = parts.mono.tokenizer
    special = np.isin(before["input_ids"].numpy(), tokenizer.all_special_ids)
    ids = after["input_ids"].numpy()
    assert (ids[special] == before["input_ids"].numpy()[special]).all() and ids.dtype == np.int64
    assert (
        not np.isin(ids[~special], tokenizer.all_special_ids).any()
        and (ids != before["input_ids"].numpy()).any()
    )
    assert all(torch.equal(before[k], after[k]) for k in before if k != "input_ids")
    again = moved(2, 0)["input_ids"]
    assert torch.equal(again, after["input_ids"]) and not torch.equal(
        again, moved(3, 0)["input_ids"]
    )
    assert not torch.equal(again, mono_batches(order, parts, seed=1)[1]["input_ids"])


def words_in(ids, tokenizer):  # pieces of each word of one sentence
    pieces = tokenizer.convert_ids_to_tokens(ids)
    found = []
    for piece in pieces:
        if piece.startswith("\u2581") or not found:
            found.append([])
        found[-1].append(piece)
    return sorted(map(tuple, found))


def test_shuffled_sentences_keep_their_words_and_scattered_batches_theirs(parts):
    tokenizer = parts.mono.tokenizer
    before, after, _ = mono_batches("shuffled", parts)
    for one, other in zip(
        sentences(before["input_ids"], tokenizer), sentences(after["input_ids"], tokenizer)
    ):
        assert words_in(one[1:], tokenizer) == words_in(other[1:], tokenizer)
    before, after, _ = mono_batches("scattered", parts)
    assert sorted(before["input_ids"].flatten().tolist()) == sorted(
        after["input_ids"].flatten().tolist()
    )
    sides = [
        [sorted(s.tolist()) for s in sentences(b["input_ids"], tokenizer)] for b in (before, after)
    ]
    assert sides[0] != sides[1]


def test_drawn_pieces_are_as_frequent_as_in_the_text(parts):
    *_, moved = mono_batches("drawn", parts)
    drawn = (
        np.bincount(
            torch.cat([moved(n, 0)["input_ids"].flatten() for n in range(60)]),
            minlength=len(moved.frequencies),
        )
        * ~moved.special
    )
    wanted = moved.frequencies / moved.frequencies.sum()
    assert np.abs(drawn / drawn.sum() - wanted).sum() < 0.15


def test_a_language_without_blanks_has_no_words_to_move():
    s = small(
        langs="en,zh", source_lang="zh", meta_order="drawn", vocab_size=700, meta_vocab_size=700
    )
    mono = prepare_data(s).mono
    batches = text_batches(monolingual_settings(s), mono, s.batch_tokens)
    ShuffledBatches(batches, "drawn", mono, "zh", 0)(0, 0)
    for order in ("shuffled", "scattered"):
        with pytest.raises(
            ConfigError, match=f"meta_order='{order}' moves words, and 'zh' hardly.*use 'drawn'"
        ):
            ShuffledBatches(batches, order, mono, "zh", 0)


def test_every_order_has_a_folder_of_its_own_and_one_vocabulary(parts):
    kinds = [small(meta_order=order) for order in ORDERS]
    folders = {
        run_folder(MONOLINGUAL, monolingual_settings(s), prepare_data(s).mono) for s in kinds
    }
    assert len(folders) == len(ORDERS)
    assert {prepare_data(s).mono.folder for s in kinds} == {parts.mono.folder}


# ---- settings
# --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(source_lang="fr"), "source_lang='fr' is not one of en, de, ru"),
        (dict(size="huge"), "size='huge' is not one of tiny, small, base"),
        (dict(corpus="wiki"), "corpus='wiki' is not one of cldr"),
        (dict(parts="head"), "parts='head' is not one of both, body, embeddings, none"),
        (
            dict(dictionaries="wiktionary"),
            "dictionaries='wiktionary' is not one of none, cldr, muse, muse-full, induced",
        ),
        (dict(recipe="papers"), "recipe='papers'.*did you mean 'paper'"),
        (dict(distil=-0.5), "distil=-0.5 is not 0 or more"),
        (dict(distil=math.nan), "distil=nan"),
        (dict(distil=math.inf), "distil=inf"),
        (dict(distil="1"), "distil='1' is not of type float"),
        (dict(meta_order="reversed"), "meta_order='reversed'"),
        (
            dict(meta_order="drawn", parts="none"),
            "meta_order='drawn' with parts='none'.*there is no monolingual phase",
        ),
        (
            dict(meta_order="shuffled", source="somewhere"),
            "meta_order='shuffled' is for a monolingual phase of this",
        ),
        (dict(source_share=0.0), "source_share=0.0 is not between 0 and 1"),
        (dict(source_share=1.0), "source_share=1.0"),
        (
            dict(parts="none", dictionaries="cldr"),
            "dictionaries='cldr' match word vectors.*parts='none' takes none",
        ),
        (
            dict(parts="body", dictionaries="induced"),
            "dictionaries='induced'.*parts='body' takes none: use parts='both'",
        ),
        (
            dict(parts="none", frozen=True),
            "frozen=True with parts='none'.*use parts='both' or 'body'",
        ),
        (dict(parts="embeddings", frozen=True), "frozen=True with parts='embeddings'"),
        (
            dict(recipe="paper"),
            "recipe='paper' with size='tiny' and source=''.*give size='base' and source=",
        ),
        (dict(recipe="paper", size="base"), "with size='base' and source=''"),
        (dict(recipe="paper", source="roberta"), "with size='tiny' and source='roberta'"),
        (dict(meta_steps=0), "meta_steps=0 is not above 0"),
        (dict(meta_vocab_size=-1), "meta_vocab_size=-1 is not above"),
        (dict(steps=0), "steps=0 is not above 0"),
        (dict(width=33), "width=33 is not a multiple of 32"),
        (dict(langs="en"), "langs='en': give two languages"),
        (dict(norm="mid"), "norm='mid'"),
        (
            dict(relative_positions="some"),
            "relative_positions='some' is not one of None, gated, plain, none",
        ),
        (dict(precision="fp16"), "precision='fp16' is not one of None, fp32, bf16"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_can(wrong, says):
    with pytest.raises(ConfigError, match=says):
        resolve(Settings(**wrong))


@pytest.mark.parametrize(
    "given",
    [
        {},
        dict(size="small", corpus="multi30k", langs="cs,de,en,fr"),
        dict(size="base"),
        dict(size="xl", corpus="bible"),
        dict(corpus="ntrex", parts="none", distil=2.0),
    ],
)
def test_what_is_not_given_is_filled_in(given):
    full = resolve(Settings(**given))
    empty = {f.name for f in fields(Settings) if getattr(full, f.name) is None}
    # those of a network, and what is not written unless it is asked for
    assert empty == {"source_share", "snapshot_every", "average_last"}
    assert resolve(full) == full
    assert all(getattr(full, name) == value for name, value in given.items())
    mono = monolingual_settings(full)
    assert (mono.langs, mono.steps, mono.vocab_size) == (
        "en",
        full.meta_steps,
        full.meta_vocab_size,
    )
    assert full.inherits


def test_what_is_given_stays():
    full = small(
        seed=3, learning_rate=1e-5, warmup_steps=0, clip_norm=7.0, norm="post", source_share=0.5
    )
    for name, value in SMALL.items():
        assert getattr(full, name) == value
    assert (full.seed, full.learning_rate, full.warmup_steps, full.clip_norm) == (3, 1e-5, 0, 7.0)
    assert not small(parts="none").inherits and small(parts="none", distil=0.1).inherits


def test_the_recipe_of_the_paper_has_its_numbers():
    full = resolve(Settings(size="base", source="roberta-base", recipe="paper"))
    assert (full.steps, full.batch_tokens, full.learning_rate) == (200_000, 32_768, 1e-4)
    assert (full.warmup_steps, full.clip_norm, full.vocab_size) == (10_000, 1.0, 250_002)
    assert {name: getattr(full, name) for name in PAPER} == PAPER
    assert resolve(Settings(size="base", source="x", recipe="paper", steps=5)).steps == 5
    rows = {row[""]: row for row in M.compare_with_paper(full)}
    for name in ("steps", "tokens per task and step", "network"):
        assert rows[name]["paper"] == rows[name]["this run"]
    assert (
        rows["learning rate"]["this run"] == "0.0001"
        and rows["monolingual model"]["this run"] == "roberta-base"
    )


def test_every_run_of_the_experiments_can_be_resolved():
    for experiment in M.EXPERIMENTS.values():
        for arm in experiment.arms.values():
            s = resolve(Settings(**experiment.shared | arm))
            assert s.source_lang in parse_languages(s.langs)


# ---- what a start consists of
# ----------------------------------------------------------------------------------------


def test_from_scratch_is_the_network_that_every_masked_model_starts_with(parts, source):
    data = parts
    for distil in (0.0, 1.0):
        s = small(parts="none", distil=distil, seed=5)
        model, what, matching = started(s, data, source if s.inherits else None)
        assert same(model.generator.state_dict(), new_masked_lm(s).state_dict())
        assert matching is None and (what is None) == (distil == 0)


def test_each_part_is_the_sources_or_that_of_scratch(parts, source):
    data = parts
    theirs = dict(load(source, EncoderForMaskedLM).named_parameters())
    fresh = dict(started(small(parts="none"), data, None)[0].generator.named_parameters())
    for name, (body, words) in dict(
        both=(True, True), body=(True, False), embeddings=(False, True)
    ).items():
        model, what, matching = started(small(parts=name), data, source)
        assert (matching is not None) == words and what.parts == name
        for key, weight in model.generator.named_parameters():
            if len(weight) != 300:
                assert torch.equal(weight, (theirs if body else fresh)[key]), (name, key)
            elif not words:
                assert torch.equal(weight, fresh[key]), (name, key)
            else:
                rows = np.flatnonzero(np.isin(matching.rule, ("special", "exact", "normalised")))
                old = matching.weights[rows].indices
                assert len(rows) == len(old) > 60 and torch.equal(weight[rows], theirs[key][old]), (
                    name,
                    key,
                )


def test_dictionaries_leave_fewer_rows_without_a_match(parts, source):
    data = parts
    mono = parts.mono

    def of(rule, **more):
        dictionaries = find_dictionaries(small(**more), data.corpus)
        matching = match_vocabulary(mono.tokenizer, data.tokenizer, dictionaries)
        return int((matching.rule == rule).sum())

    left = of("unmatched")
    for name in ("cldr", "induced"):
        assert (
            of("unmatched", dictionaries=name) == left - of("dictionary", dictionaries=name) < left
        )


def test_a_frozen_body_stays_to_the_bit(tmp_path, parts, source, unprobed):
    s = small(frozen=True, steps=3, out=str(tmp_path))
    before = {k: v.clone() for k, v in started(s, parts, source)[0].generator.state_dict().items()}
    summary, model, _ = train_on(s, parts, source)
    after = model.generator.state_dict()
    changed = {k for k in after if not torch.equal(before[k], after[k])}
    assert (
        summary["finished"]
        and {WORDS, "head.decoder.bias", "head.dense.weight", "head.norm.weight"} <= changed
    )
    assert not [
        k for k in changed if k.startswith("encoder.") and not k.endswith("_embeddings.weight")
    ]
    assert same(weights(tmp_path), {k: v for k, v in after.items() if k in weights(tmp_path)})


def test_the_text_has_the_share_of_the_source_that_is_asked_for(parts):
    data = parts
    for share in (0.2, 0.75):
        s = small(parts="none", source_share=share, source_lang="de")
        mixture = make_batches(s, replace(data, source=None)).parts["text"].mixture
        assert mixture.draw(0, 2000)[0].count("de") / 2000 == pytest.approx(share, abs=0.02)


@given(
    st.dictionaries(st.sampled_from("de fr ru zh hi".split()), st.integers(1, 10**9), min_size=1),
    st.integers(1, 10**9),
    st.floats(0.01, 0.99),
    st.floats(0, 1),
)
@profile(max_examples=40, deadline=None)
def test_shares_sum_to_one_and_the_others_keep_their_proportions(others, own, share, alpha):
    found = source_shares(
        replace(Settings(), source_share=share, alpha=alpha), {"en": own} | others
    )
    assert sum(found.values()) == pytest.approx(1) and found["en"] == share
    first = next(iter(others))
    for lang, n in others.items():
        assert found[lang] / found[first] == pytest.approx((n / others[first]) ** alpha, rel=1e-6)


# ---- distillation
# ----------------------------------------------------------------------------------------------------


@given(st.text("ab\u4e2d\u0301 \t\u3000\n", max_size=30), st.sets(st.integers(0, 30)))
def test_however_a_text_is_cut_its_pieces_belong_to_words_between_blanks(text, cuts):
    ends = sorted({0, len(text)} | {c for c in cuts if c < len(text)})
    spans = list(zip(ends[:-1], ends[1:]))
    numbers = word_numbers(text, spans)
    assert numbers.dtype == np.int64 and len(numbers) == len(spans)
    for (a, b), number in zip(spans, numbers):
        first = next((c for c in range(a, b) if not text[c].isspace()), None)
        assert number == (-1 if first is None else len(text[: first + 1].split()) - 1)
    # every character a piece: they spell the words
    single = [(i, i + 1) for i in range(len(text))]
    spelt = [
        "".join(text[a] for (a, _), n in zip(single, word_numbers(text, single)) if n == k)
        for k in range(len(text.split()))
    ]
    assert spelt == text.split()


def test_pieces_without_a_character_belong_to_no_word():
    assert word_numbers("ab c", [(0, 0), (0, 1), (2, 2), (2, 3), (2, 4), (4, 4)]).tolist() == [
        -1,
        0,
        -1,
        -1,
        1,
        -1,
    ]
    assert word_numbers("", []).tolist() == [] and word_numbers("", [(0, 0)]).tolist() == [-1]


def test_pieces_spell_the_text(parts):
    tokenizer = parts.tokenizer
    for line in itertools.islice(parts.corpus.text["de"], 50):
        ids = tokenizer(line, add_special_tokens=False)["input_ids"]
        text, spans = spelled(ids, tokenizer)
        assert text.split() == tokenizer.decode(ids).split()
        assert [text[a:b].replace(" ", "▁") for a, b in spans] == tokenizer.convert_ids_to_tokens(
            ids
        )
        assert [a for a, _ in spans[1:]] == [b for _, b in spans[:-1]] and spans[-1][1] == len(text)
    assert spelled([], tokenizer) == ("", [])


@pytest.fixture(scope="module")
def folders(tmp_path_factory, parts):
    "A folder of each family that is taken from elsewhere, as long and wide as the runs here need."
    with pytest.MonkeyPatch.context() as patch:
        for name, value in dict(
            max_position_embeddings=130, initializer_range=0.02, num_hidden_layers=2
        ).items():
            patch.setitem(foreign.SHAPE, name, value)
        # 60 pieces have few letters
        text = [line.lower() for line in itertools.islice(parts.corpus.text["en"], 500)]
        patch.setattr(
            foreign,
            "TEXT",
            [line for line in text if line.isascii() and line.replace(" ", "").isalpha()],
        )
        found = {}
        for name in (
            "roberta-mlm",
            "roberta",
            "bert-mlm",
            "bert",
            "electra-generator",
            "electra-discriminator",
            "xlmr-mlm",
        ):
            found[name] = tmp_path_factory.mktemp("elsewhere") / f"my-{name}"
            found[name].mkdir()
            foreign.save_family(name, found[name])
        yield found


def words_by_number(ids, numbers, tokenizer):  # number → the text of its pieces
    return {int(n): tokenizer.decode(ids[numbers == n]).strip() for n in numbers.unique() if n >= 0}


@pytest.mark.parametrize("teacher", ["ours", "roberta-mlm", "bert-mlm", "xlmr-mlm"])
def test_student_and_teacher_share_the_words_of_source_lines(teacher, parts, source, folders):
    data = parts
    folder = source if teacher == "ours" else folders[teacher]
    batches = make_batches(small(parts="none", distil=1.0), replace(data, source=folder))
    cut = data.tokenizer(list(data.corpus.text["en"]), add_special_tokens=False)["input_ids"]
    english = {data.tokenizer.decode(ids).strip() for ids in cut}
    seen = 0
    for step, index in itertools.product(range(6), range(batches.micro_batches)):
        batch = batches(step, index)
        plain = batches.batches(step, index)
        assert all(torch.equal(batch[k], v) for k, v in plain.items())
        own, theirs = ({*batch[k].unique().tolist()} - {-1} for k in ("words", "teacher_words"))
        assert own == theirs
        assert (
            batch["teacher_ids"].shape
            == batch["teacher_words"].shape
            == batch["teacher_mask"].shape
        )
        assert (batch["teacher_words"][batch["teacher_mask"] == 0] == -1).all()
        for row, numbers in zip(batch["input_ids"], batch["words"]):
            sentences = (
                data.tokenizer.decode(row).replace("<pad>", "").removeprefix("<s>").split("</s>")
            )
            assert all(line.strip() in english for line in sentences if line.strip()) == bool(
                (numbers >= 0).any()
            )
        # the others write in another case, or know too few letters
        if teacher in ("ours", "roberta-mlm"):
            known = batches.teacher_tokenizer
            a = words_by_number(batch["input_ids"], batch["words"], data.tokenizer)
            b = words_by_number(batch["teacher_ids"], batch["teacher_words"], known)
            agree = [k for k in a if "<unk>" not in a[k] + b[k]]
            assert [a[k] for k in agree] == [b[k] for k in agree] and len(agree) >= 0.9 * len(a)
        seen += len(own)
    assert seen > 100


def test_a_teacher_reads_no_more_than_it_has_places_for(parts, source, folders):
    data = parts
    batches = make_batches(small(parts="none", distil=1.0), replace(data, source=folders["bert"]))
    batches.longest = 5
    for step in range(4):
        batch = batches(step, 0)
        own, theirs = ({*batch[k].unique().tolist()} - {-1} for k in ("words", "teacher_words"))
        assert own == theirs and batch["teacher_ids"].shape[1] <= 7


def sentences_alone(data, n=6):  # English lines that are cut alike again, one a row
    special = SpecialIds.of(data.tokenizer)
    found = []
    for line in data.corpus.text["en"]:
        ids = data.tokenizer(line, add_special_tokens=False)["input_ids"]
        text, _ = spelled(ids, data.tokenizer)
        if data.tokenizer.convert_ids_to_tokens(ids[0]) == "▁" or special.unk in ids:
            continue
        if data.tokenizer(text, add_special_tokens=False)["input_ids"] == ids:
            found.append([ids])
        if len(found) == n:
            return collate_text(found, special)


def test_a_student_that_is_its_teacher_has_nothing_to_learn(tmp_path, parts):
    data = parts
    s = small(parts="none", distil=1.0)
    plain = sentences_alone(data)
    twin = new_model(EncoderForMaskedLM, network_config(s), 3)
    twin.save_pretrained(tmp_path), data.tokenizer.save_pretrained(tmp_path)
    batches = make_batches(s, replace(data, source=tmp_path))
    batch = plain | batches.shared_words(plain["input_ids"], [True] * len(plain["input_ids"]))
    batch |= {"labels": torch.full_like(plain["input_ids"], -100)}
    model = Student(new_masked_lm(s), MaskIds.of(data.tokenizer), load_teacher(tmp_path), 1.0)
    assert model(batch, None)["distil"] > 1
    model.generator = twin
    assert model.counts(batch)["distil"] == len(batch["words"].unique()) - 1 > 6
    assert model.train()(batch, None)["distil"].item() < 1e-8
    # other words: no longer the same
    other = batch | {"input_ids": batch["input_ids"].roll(1, 0)}
    assert model(other, None)["distil"] > 1


def test_a_batch_without_the_source_language_teaches_nothing_and_breaks_nothing(
    tmp_path, parts, source, unprobed
):
    s = small(parts="none", distil=1.0, source_share=1e-6, out=str(tmp_path))
    model = started(s, parts, source)[0]
    batch = make_batches(s, begun(s, parts, source))(0, 0)
    masked = model.prepare(batch, torch.Generator())
    assert len(batch["teacher_ids"]) == 0 and model.counts(masked)["distil"] == 0
    assert set(model(masked, None)) == {"mlm", "mlm/correct"}
    assert train_on(s, parts, source)[0]["finished"]
    log = read_log(tmp_path)
    assert len(log) == 4 and all(
        "distil" not in line and math.isfinite(line["loss"]) for line in log
    )


def test_distillation_is_in_the_loss_and_the_teacher_stays_outside(
    tmp_path, parts, source, unprobed
):
    s = small(parts="none", distil=2.0, out=str(tmp_path))
    summary, model, _ = train_on(s, parts, source)
    for line in read_log(tmp_path):
        assert line["loss"] == pytest.approx(line["mlm"] + 2 * line.get("distil", 0))
    assert any(line.get("distil", 0) > 0 for line in read_log(tmp_path))
    assert same(model.teacher.state_dict(), load(source, Encoder).state_dict())
    own = [*model.state_dict(), *dict(model.named_parameters()), *dict(model.named_modules())]
    assert not [name for name in own if "teacher" in name] and not model.teacher.training
    # checkpoint and result
    assert [p.name for p in tmp_path.glob("**/*.safetensors")] == ["model.safetensors"] * 2
    assert weights(tmp_path).keys() == load_file(source / "model.safetensors").keys()


def test_weight_zero_is_the_plain_run(tmp_path, parts, source, monkeypatch, unprobed):
    plain, taught = (small(parts="none", distil=d, out=str(tmp_path / str(d))) for d in (0.0, 1.0))
    train_on(plain, parts, None)
    train_on(replace(taught, out=str(tmp_path / "2")), parts, source)
    monkeypatch.setattr(
        M, "Student", lambda network, ids, teacher, weight: Student(network, ids, teacher, 0.0)
    )
    train_on(taught, parts, source)
    plain, weightless, taught = (weights(tmp_path / name) for name in ("0.0", "1.0", "2"))

    def away(other):
        return max((plain[name] - other[name]).abs().max().item() for name in plain)

    # the plain run's last feed-forward sums over the holes alone; a step moves weights by up to
    # 2e-3
    rounding = 1e-5
    assert away(weightless) < rounding < 1e-3 < away(taught)


# ---- interrupted, and taken up again
# ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arm",
    [{}, dict(frozen=True), dict(parts="none", distil=1.0, source_share=0.6)],
    ids=["both", "frozen", "distilled"],
)
def test_stopped_at_every_step_and_taken_up_again_it_ends_in_the_same_bits(
    tmp_path, parts, source, arm
):
    whole, pieces = (small(**arm, out=str(tmp_path / name)) for name in ("whole", "pieces"))
    assert train_on(whole, parts, source)[0]["finished"]
    calls = [train_on(pieces, parts, source, max_minutes=1e-9)[0]["finished"] for _ in range(4)]
    assert calls == [False] * 3 + [True]
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "pieces"))
    last = [
        {k: v for k, v in read_log(tmp_path / name)[-1].items() if k != "seconds"}
        for name in ("whole", "pieces")
    ]
    names = {
        "held_out/mlm/en",
        "held_out/mlm/de",
        "held_out/tags/de",
        "held_out/found_layer0",
        "held_out/found_layer2",
    }
    assert last[0] == last[1] and names <= {*last[0]}


@pytest.fixture(scope="module")
def measured_every_step():
    "Held-out measures after each of the few steps that runs have here."
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xlnb.pretraining.pretraining.MIN_STEPS_BETWEEN_EVALUATIONS", 1)
        yield


@pytest.mark.parametrize("every", [0.0, 5.0], ids=["with a checkpoint", "without"])
def test_killed_in_an_evaluation_it_goes_on_to_the_same_bits(
    tmp_path, parts, source, monkeypatch, every, unprobed, measured_every_step
):
    whole, killed = (
        small(out=str(tmp_path / name), checkpoint_minutes=every) for name in ("whole", "killed")
    )
    train_on(whole, parts, source)
    looks = []
    look = M.network_metrics

    def dies(*given):
        looks.append(given)
        # one is before the first step
        if len(looks) == 4:
            raise KeyboardInterrupt
        return look(*given)

    monkeypatch.setattr(M, "network_metrics", dies)
    with pytest.raises(KeyboardInterrupt):
        train_on(killed, parts, source)
    assert train_on(killed, parts, source)[0]["finished"]
    assert len(looks) == (4 + 1 + 2 if every == 0 else 4 + 1 + 4)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert [line["step"] for line in read_log(tmp_path / "killed")] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_run_that_is_cut_short_is_finished_by_the_same_command(
    tmp_path, source, unprobed, capsys, measured_every_step
):
    cut = small(steps=3, out=str(tmp_path / "cut"), max_minutes=1e-9)
    records = [run(RECIPE, cut)]
    assert (
        "stopped at the time limit after" in capsys.readouterr().out
        and not records[0]["run"]["finished"]
    )
    assert "first" in records[0]["measured"]  # of the tests as much as fits
    records.append(run(RECIPE, replace(cut, max_minutes=30.0)))
    whole = run(RECIPE, small(steps=3, out=str(tmp_path / "whole")))
    assert len(records) > 1 and records[-1]["run"]["finished"]
    for key in ("curve", "metrics", "parameters", "start", "matched", "unigram", "meta"):
        left_out = {"max_minutes"} if key == "parameters" else set()
        a, b = (
            {k: v for k, v in r[key].items() if k not in left_out}
            if isinstance(r[key], dict)
            else r[key]
            for r in (records[-1], whole)
        )
        assert a == b, key


def test_the_monolingual_phase_is_trained_once_for_all_arms(parts, source):
    data = parts
    written = (source / "model.safetensors").stat().st_mtime_ns
    for arm in (
        dict(parts="body"),
        dict(steps=9),
        dict(parts="none", distil=1.0),
        dict(frozen=True, out="elsewhere"),
        dict(source_share=0.3),
        dict(test_lines=21),
        dict(warmup_steps=2),
    ):
        s = small(**arm)
        assert source_folder(s, data) == source and run_folder(PHASE, s, data) != source.parent
    assert (source / "model.safetensors").stat().st_mtime_ns == written
    others = [monolingual_settings(small(**arm)) for arm in (dict(seed=1), dict(meta_steps=4))]
    other = [run_folder(MONOLINGUAL, s, data.mono) for s in others]
    assert len({source.parent, *other}) == 3
    assert with_start(small(parts="none"), prepare_data(small(parts="none"))).source is None


def test_a_monolingual_phase_that_is_cut_short_says_so_and_goes_on(parts):
    s = small(seed=7, max_minutes=1e-9)
    for done in (1, 2):
        with pytest.raises(
            CheckpointError,
            match=f"monolingual: stopped at the time limit after {done} of 3 "
            "steps.*the same command goes on",
        ):
            monolingual(s, parts)
    assert (monolingual(s, parts) / "generator" / "config.json").exists()
    assert same(
        weights(monolingual(s, parts)), weights(monolingual(small(seed=7, meta_steps=3), parts))
    )


# ---- any monolingual model
# -------------------------------------------------------------------------------------------

FAMILIES = {
    "roberta-mlm": True,
    "roberta": False,
    "bert-mlm": True,
    "bert": False,
    "electra-generator": True,
    "electra-discriminator": False,
    "xlmr-mlm": True,
}  # whether it has an output layer


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.slow
def test_a_folder_from_elsewhere_leads_to_a_record_and_a_model(name, parts, folders, unprobed):
    s = small(source=str(folders[name]), steps=2)
    record = run(RECIPE, s)
    folder = run_folder(PHASE, s, parts)
    network = load(folder / "generator", EncoderForMaskedLM)
    text = json.dumps(record, allow_nan=False)
    text += "".join(
        path.read_text()
        for path in (folder / "generator").iterdir()
        if path.suffix in (".json", ".md")
    )
    assert str(folders[name].parent) not in text and str(folder.parent.parent) not in text
    assert (
        record["parameters"]["source"] == record["meta"]["source"] != f"my-{name}"
        and "tokens" not in record["meta"]
    )
    # the rest depends on what the folder holds
    assert record["meta"]["source"].startswith(f"my-{name}-")
    came = {(row["weights"], row["from"]) for row in record["start"]}
    assert {
        ("word table", "source, mapped"),  # as records have it
        ("word table", "normal, like the matched"),
        ("blocks", "source"),
        ("other embeddings", "source"),
    } <= came
    assert ("output layer", "source" if FAMILIES[name] else "random, the source has none") in came
    assert (("output bias", "source, mapped") in came) == FAMILIES[name]
    sizes = [int(row["parameters"].replace(",", "")) for row in record["start"]]
    assert sum(sizes) == sum(p.numel() for p in network.parameters())
    assert sum(record["matched"].values()) == 300 and record["matched"]["special"] == 5
    assert record["matched"]["exact"] > 20 and record["run"]["finished"]
    model = AutoModel.from_pretrained(folder / "generator")
    assert same(model.state_dict(), network.encoder.state_dict())
    assert (
        AutoTokenizer.from_pretrained(folder / "generator").get_vocab()
        == parts.tokenizer.get_vocab()
    )
    assert "MetaXLM: body and words" in (folder / "generator" / "README.md").read_text()


@pytest.mark.parametrize("name", ["roberta-mlm", "electra-discriminator", "xlmr-mlm"])
def test_a_folder_from_elsewhere_can_be_the_teacher(name, tmp_path, parts, folders, unprobed):
    s = small(source=str(folders[name]), steps=2, parts="none", distil=1.0, out=str(tmp_path))
    assert train_on(s, parts, folders[name])[0]["finished"]
    assert all(line["distil"] > 0 for line in read_log(tmp_path))
    assert started(s, parts, folders[name])[1].rows()[0]["from"] == "random"


def test_a_source_of_another_shape_is_refused_with_both(folders):
    for changes, says in (
        (dict(width=64), "width=64 with source=.*my-bert': that network has 32"),
        (dict(layers=3), "layers=3 with source=.*my-bert': that network has 2"),
    ):
        with pytest.raises(ConfigError, match=says):
            small(**changes, source=str(folders["bert"]))


@pytest.mark.parametrize(
    "taken", [{}, dict(parts="body"), dict(parts="none"), dict(parts="none", distil=1.0)]
)
def test_a_folder_that_is_not_there_is_named_whatever_is_taken_from_it(taken, tmp_path):
    with pytest.raises(CheckpointError, match="nowhere is not a folder here .*: give the folder"):
        run(RECIPE, small(source=str(tmp_path / "nowhere"), **taken))


def test_a_command_without_a_source_or_its_language_ends_with_a_sentence(tmp_path):
    words = [f"--{k.replace('_', '-')}={v}" for k, v in SMALL.items()]
    with pytest.raises(SystemExit, match="xlnb: .*nowhere is not a folder"):
        main(RECIPE, [*words, "--source", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="xlnb: source_lang='fr' is not one of en, de"):
        main(RECIPE, [*words, "--source-lang=fr"])
    assert read_records("05_meta_xlm") == []


def test_a_tokenizer_that_shares_nothing_is_warned_of_with_numbers(tmp_path, parts, monkeypatch):
    monkeypatch.setitem(foreign.SHAPE, "max_position_embeddings", 130)
    monkeypatch.setitem(foreign.SHAPE, "num_hidden_layers", 2)
    monkeypatch.setattr(foreign, "TEXT", ["የሰው ልጅ ሁሉ ሲወለድ ነጻና በክብርና በመብትም እኩልነት ያለው ነው"] * 3)
    foreign.save_family("xlmr-mlm", tmp_path)
    with pytest.warns(
        UserWarning,
        match=r"only [01] of 295 subwords were matched \(0\.[0-9]+%\), special tokens aside",
    ):
        _, what, matching = started(small(source=str(tmp_path)), parts, tmp_path)
    assert what.rows_matched <= 6 and (matching.rule == "special").sum() == 5


# ---- dictionaries
# ----------------------------------------------------------------------------------------------------


def test_the_longest_entries_are_taken_from_left_to_right():
    known = {
        "a": ["A"],
        "a b": ["AB"],
        "b c": ["BC"],
        "c": [],
        "d e f g h": ["long"],
        "d e f g h i": ["longer"],
    }

    def say(text, **more):
        return translations(text.split(), known, **more)

    assert say("a b c") == [(0, 2, ["AB"]), (2, 3, [])] and say("x b c a") == [
        (1, 3, ["BC"]),
        (3, 4, ["A"]),
    ]
    assert say("") == say("x y") == [] and say("d e f g h i") == [(0, 5, ["long"])]
    assert say("d e f g h i", longest=6) == [(0, 6, ["longer"])] and say("a b", longest=1) == [
        (0, 1, ["A"])
    ]


NUMBERS = {
    "de": "eins zwei drei vier fünf sechs".split(),
    "en": "one two three four five six".split(),
    "ru": "один два три четыре пять шесть".split(),
}
TUPLES = list(itertools.permutations(range(6), 3))


def said(lang, numbers):
    return " ".join(NUMBERS[lang][n] for n in numbers)


@pytest.fixture(scope="module")
def counted():
    "A corpus of three languages that count: each word has one translation, the order is turned round in Russian."
    turned = {
        lang: [said(lang, t[::-1] if lang == "ru" else t) for t in TUPLES] for lang in NUMBERS
    }
    pairs = {
        f"{a}-{b}": list(zip(turned[a], turned[b]))
        for a, b in itertools.combinations(sorted(NUMBERS), 2)
    }
    gold = {}
    for a, b in itertools.combinations(sorted(NUMBERS), 2):
        place = [(i, 2 - i if (a == "ru") != (b == "ru") else i) for i in range(3)]
        gold[f"{a}-{b}"] = [
            AlignedPair(tuple(x.split()), tuple(y.split()), frozenset(place), frozenset())
            for x, y in pairs[f"{a}-{b}"]
        ]
    tests = {"toy": {pair: tuple(map(list, zip(*rows))) for pair, rows in pairs.items()}}
    return Corpus("toy", tuple(NUMBERS), turned, pairs, {}, tests, {}, {"gold": gold})


# which stands before, between and after the others
@pytest.mark.parametrize("source_lang", NUMBERS)
def test_induced_dictionaries_are_those_of_a_corpus_whose_dictionary_is_known(counted, source_lang):
    others = set(NUMBERS) - {source_lang}
    found = induced_dictionaries(counted, source_lang)
    assert {lang: set(rows) for lang, rows in found.items()} == {
        lang: set(zip(NUMBERS[lang], NUMBERS[source_lang])) for lang in others
    }
    few = replace(counted, pairs={k: v for k, v in counted.pairs.items() if "ru" not in k})
    left = set() if source_lang == "ru" else {"de", "en"} - {source_lang}
    assert set(induced_dictionaries(few, source_lang)) == left
    one = induced_dictionaries(counted, source_lang, most=1)
    assert all(len(rows) <= 3 for rows in one.values())


@pytest.mark.parametrize("source_lang", NUMBERS)
def test_a_whole_dictionary_finds_and_links_all_that_is_not_said_twice(counted, source_lang):
    full = {
        lang: list(zip(NUMBERS[lang], NUMBERS[source_lang]))
        for lang in NUMBERS
        if lang != source_lang
    }
    found = dictionary_baselines(full, source_lang, counted.tests, counted.gold)
    own = [pair for pair in counted.pairs if source_lang in pair.split("-")]
    assert set(found) == {f"toy/{p}/dictionary/acc@1" for p in own} | {
        f"gold/{p}/dictionary/aer" for p in own
    }
    assert {v for k, v in found.items() if k.endswith("aer")} == {0}
    # three words have six orders
    assert {v for k, v in found.items() if k.endswith("acc@1")} == {round(1 / 6, 5)}
    assert dictionary_baselines({}, source_lang, counted.tests, counted.gold) == {}


@pytest.mark.parametrize(
    "source_lang, pair", [("en", "de-en"), ("en", "en-ru"), ("de", "de-ru"), ("ru", "de-ru")]
)
def test_what_a_dictionary_lacks_is_not_linked(source_lang, pair):
    "Links by hand: of three words one is unknown and one stands for two, in either order of the pair."
    other = next(lang for lang in pair.split("-") if lang != source_lang)
    # other language first
    row = AlignedPair(
        ("neues", "Blau", "2021", "x"),
        ("blue", "house", "2021"),
        frozenset({(1, 0), (2, 2), (0, 1)}),
        frozenset({(1, 1)}),
    )
    row = row if pair.split("-")[0] == other else row.flipped()
    found = dictionary_baselines(
        {other: [("blau", "Blue house")]}, source_lang, {}, {"hand": {pair: [row]}}
    )
    links = 3
    sure = 2
    possible = 3  # blau–blue, blau–house, 2021–2021
    assert found == {f"hand/{pair}/dictionary/aer": round(1 - (sure + possible) / (links + 3), 5)}


# ---- records
# ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def records(parts, source, folders, measured_every_step):
    "Of a start of our own with a dictionary, of one from scratch, and of one from elsewhere; without their probes."
    arms = dict(
        both=small(dictionaries="cldr"),
        scratch=small(parts="none"),
        elsewhere=small(source=str(folders["bert"])),
    )
    whole = M.evaluate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            M,
            "evaluate",
            lambda network, data, **more: whole(network, data, probe_langs=(), **more),
        )
        return {name: run(RECIPE, s) for name, s in arms.items()}


@pytest.mark.slow
def test_a_record_tells_what_was_before_the_first_step(records, parts, source):
    both = records["both"]
    scratch = records["scratch"]
    assert (
        both["curve"][0]["step"] == -1
        and both["curve"][0]["tokens"] == 0
        and both["curve"][-1]["step"] == 3
    )
    last = read_log(source.parent)[-1]
    assert both["meta"] == {
        "source": source.parent.name,
        "steps": 3,
        "tokens": last["tokens"],
        "loss": last["held_out/mlm/en"],
    }
    assert scratch["meta"] is None and scratch["start"] is None and scratch["matched"] is None
    for record in records.values():
        names = record["metrics"]
        systems = {name.split("/")[2] for name in names if name.startswith("lists/de-en/")}
        assert (
            {"initial", "untrained", "layer1"} <= systems
            and "dictionary" in systems
            or record is not both
        )
        assert len(json.dumps(record, allow_nan=False)) < 60_000
    assert both["matched"]["dictionary"] > 0 and set(both["directions"]) == {"de", "en"}
    # the lists are made of CLDR's names, as the dictionary is
    assert both["metrics"]["lists/de-en/dictionary/aer"] == 0
    data = parts  # the same measured by hand, on the network before its first step
    by_hand = M.measure_start(
        data, started(small(dictionaries="cldr"), data, source)[0].primary_network
    )
    assert {k: both["metrics"][k] for k in by_hand} == by_hand


def test_measures_are_of_the_source_and_of_the_others(records):
    both = records["both"]
    line = {
        "held_out/mlm/en": 1.0,
        "held_out/mlm/de": 2.0,
        "held_out/tags/de": 0.5,
        "held_out/tags/en": 0.75,
        "step": 3,
    }
    toy = {"parameters": {"source_lang": "en"}, "unigram": {"en": 4.0, "de": 3.0}}
    assert by_language(toy, line, "mlm") == (3.0, 1.0) and by_language(toy, line, "tags") == (
        75.0,
        50.0,
    )
    toy["parameters"]["source_lang"] = "de"
    assert by_language(toy, line, "mlm") == (1.0, 3.0)
    assert all(map(math.isnan, by_language(toy, {"step": 0}, "mlm")))
    for line in both["curve"]:
        assert all(map(math.isfinite, by_language(both, line, "mlm")))


def test_a_record_has_what_the_gate_and_the_choice_of_a_layer_need(records):
    both = records["both"]
    learned = nats_learned(both, both["curve"][-1])
    layers = [f"held_out/found_layer{k}" for k in range(3)]
    assert {*learned} == {"MLM de", "MLM en"} and not has_learned(both)
    assert learned["MLM en"] == pytest.approx(by_language(both, both["curve"][-1], "mlm")[0])
    for line in both["curve"]:
        assert all(0 <= line[name] <= 1 for name in layers)


def test_the_second_axis_counts_the_phase_before(records):
    for measure in ("mlm", "tags"):
        (x, own, others), (total, *same_values) = (
            curve(records["both"], measure, t) for t in (False, True)
        )
        assert x[0] == 0 and x == sorted(x) and len(x) == len(own) == len(others) == 5
        assert total == pytest.approx([v + records["both"]["meta"]["tokens"] / 1e6 for v in x])
        assert same_values == [own, others]
        assert curve(records["scratch"], measure, True) == curve(records["scratch"], measure, False)
        assert curve(records["elsewhere"], measure, True) is None and curve(
            records["elsewhere"], measure, False
        )


@pytest.mark.parametrize("measure", ["mlm", "tags"])
def test_curves_are_drawn_on_both_axes(records, measure):
    groups = {"both": {0: records["both"], 1: records["both"]}, "scratch": [records["scratch"]]}
    fig = draw_curves(groups | {"elsewhere": [records["elsewhere"]]}, measure)
    lines = [sum(len(line.get_xdata()) == 5 for line in ax.get_lines()) for ax in fig.axes]
    # two seeds and their mean, scratch, elsewhere; the last without a total
    assert lines == [5] * 3 + [4] * 3
    assert {t.get_text() for t in fig.axes[2].texts} == {"both", "scratch", "elsewhere"}
    own, others, gap = (ax.get_lines()[0].get_ydata() for ax in fig.axes[:3])
    assert np.allclose(np.subtract(own, others), gap)
    plt.close(fig)
    alone = draw_curves({"elsewhere": [records["elsewhere"]]}, measure)
    zero = int(measure == "mlm")  # losses have a line at word frequency
    assert [len(ax.get_lines()) for ax in alone.axes] == [1 + zero] * 3 + [zero] * 3
    plt.close(alone)
    first = draw_curves({"elsewhere": [records["elsewhere"]]}, measure, (False,))
    assert [ax.get_xlabel() for ax in first.axes] == ["million tokens, cross-lingual"] * 3
    plt.close(first)
    plt.close(draw_phases("en", "en,de"))


def test_five_seeds_have_a_band_and_fewer_a_line_each():
    curves = [([0, 1], [0.0, value]) for value in (1.0, 2.0, 3.0, 4.0, 5.0)]
    fig, (few, many) = plt.subplots(ncols=2)
    draw_seeds(few, curves[:4], "black", "four seeds")
    draw_seeds(many, curves, "black", "five seeds")
    assert (len(few.get_lines()), len(few.collections)) == (5, 0)
    assert (len(many.get_lines()), len(many.collections)) == (1, 1)
    top = many.collections[0].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(3 + 2.776 * (2.5 / 5) ** 0.5, abs=1e-3)  # Student's t of 4
    plt.close(fig)


def test_the_mean_over_seeds_is_taken_at_the_same_tokens():
    fig, ax = plt.subplots()
    draw_seeds(
        ax, [([0, 1, 2, 3], [0.0, 2.0, 4.0, 6.0]), ([0, 2], [2.0, 6.0])], "black", "two seeds"
    )
    x, y = ax.get_lines()[-1].get_data()
    # the second seed stops at 2 and has 4 at 1, between its points
    assert [*x] == [0, 1, 2] and [*y] == [1, 3, 5]
    plt.close(fig)


def test_starts_and_ends_have_a_row_before_and_after(records):
    rows = starts_and_ends(
        {
            "both": {0: records["both"]},
            "scratch": [records["scratch"]] * 2,
            "elsewhere": [records["elsewhere"]],
        }
    )
    assert [(r["start"], r[""], r["seeds"]) for r in rows] == [
        (arm, when, n)
        for arm, n in (("both", 1), ("scratch", 2), ("elsewhere", 1))
        for when in ("before", "after")
    ]
    columns = [
        f"{name}, {of}"
        for name in ("nats below frequency", "tags F1, %")
        for of in ("source", "others")
    ]
    for row in rows:
        assert [*row] == ["start", "", "seeds", *columns, "lists, accuracy@1, %", "lists AER, %"]
    assert all(cell not in ("–", "nan") for row in rows for cell in row.values())
    own, others = by_language(records["both"], records["both"]["curve"][-1], "mlm")
    assert rows[1][columns[0]] == f"{own:.3g}" and rows[1][columns[1]] == f"{others:.3g}"
    assert (
        rows[0]["lists, accuracy@1, %"]
        == f"{best_layer(records['both'], 'T3', 'acc@1c', 'initial'):.3g}"
    )


@pytest.mark.parametrize(
    "given, says",
    [
        ({}, "body and words"),
        (dict(parts="none"), "from scratch"),
        (dict(parts="body", frozen=True), "body, frozen body"),
        (
            dict(parts="embeddings", dictionaries="cldr"),
            "words, dictionaries=cldr",
        ),
        (dict(parts="none", distil=0.5), "from scratch, distilled, weight 0.5"),
        (dict(source_share=0.25), "body and words, 25% en"),
        (dict(meta_order="scattered"), "body and words, scattered words"),
    ],
)
def test_a_start_is_described(given, says):
    assert describe({"parameters": small(**given).for_record()}) == f"MetaXLM: {says}"


def test_a_command_leaves_a_record(root, unprobed):
    main(RECIPE, [f"--{k.replace('_', '-')}={v}" for k, v in (SMALL | {"parts": "body"}).items()])
    [record] = read_records("05_meta_xlm")
    assert describe(record) == "MetaXLM: body" and record["run"]["finished"]


def test_from_scratch_has_the_architecture_of_a_source_from_elsewhere(folders):
    s = small(source=str(folders["roberta-mlm"]), parts="none")
    assert (s.norm, s.relative_positions, small().relative_positions) == ("post", "none", "gated")
    with pytest.raises(ConfigError, match="norm='pre' with source=.*: that network has 'post'"):
        small(source=str(folders["roberta-mlm"]), norm="pre")
    network = start_network(s, replace(prepare_data(s), source=source_folder(s, None)))[0]
    assert network.config.position_offset == 2 and network.config.norm == "post"


def test_a_source_from_elsewhere_is_named_before_training(folders, capsys):
    s = small(source=str(folders["roberta-mlm"]), parts="body")
    with_start(s, prepare_data(s))
    name = named_source(s.source)
    assert f"source {name} (roberta, {s.layers} × 32), parts='body'\n" in capsys.readouterr().out


def test_other_weights_at_the_same_place_are_another_run(folders, tmp_path):
    place = shutil.copytree(folders["roberta-mlm"], tmp_path / "model")
    first = named_source(str(place))
    assert Settings(source=str(place)).for_record()["source"] == first
    (place / "config.json").write_text((place / "config.json").read_text() + " ")
    assert named_source(str(place)) != first and str(tmp_path) not in first


def test_a_source_without_a_tokenizer_or_with_too_few_positions_is_refused(folders, tmp_path):
    bare = shutil.ignore_patterns("*token*", "*.txt", "vocab*")
    place = shutil.copytree(folders["roberta-mlm"], tmp_path / "bare", ignore=bare)
    with pytest.raises(CheckpointError, match="bare holds no tokenizer"):
        load_model_tokenizer(place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 42}))
    with pytest.raises(
        CheckpointError, match="bare reads 40 positions, and size='tiny' has rows of 64 tokens"
    ):
        check_source(small(), place)


def test_a_network_teaches_itself_nothing_whatever_its_marks_are(folders):
    "A mark that stands alone, as before a figure, belongs to no word of student or teacher."
    s = small()
    data = prepare_data(small())
    taught = DistillationBatches(
        make_batches(s, replace(data, source=None)), "en", data.tokenizer, data.tokenizer, 62
    )
    ids = data.tokenizer("25 months", add_special_tokens=False)["input_ids"]
    row = torch.tensor([[0, *ids, 2]])
    shared = taught.shared_words(row, [True])
    assert shared["words"].tolist() == shared["teacher_words"].tolist()


@pytest.mark.slow
def test_a_missing_run_goes_through_the_notebook_and_is_then_on_record(checkout, monkeypatch):
    "From scratch: nothing is taken from anywhere, and the twin is the run itself."
    monkeypatch.setenv("XLNB_ROOT", str(checkout))
    monkeypatch.setenv("XLNB_RESULTS", str(checkout / "results"))
    small = Experiment(
        "Three steps.", {"from scratch": {"parts": "none"}}, SMALL | {"steps": 3}, seeds=(0,)
    )
    todo = missing(small, RECIPE, read_records("05_meta_xlm"))
    assert len(todo) == 1 and run_missing("05_meta_xlm", "small", todo, workers=1) == []
    (record,) = read_records("05_meta_xlm")
    assert record["parameters"]["parts"] == "none" and missing(small, RECIPE, [record]) == []


def test_a_source_as_records_name_it_does_not_break_the_list_of_experiments():
    arm = Experiment("", {"both": {}}, dict(SMALL, source="english-1a2b3c4d"), seeds=(0,))
    given = resolve(Settings(**arm.shared)).for_record()
    assert given["source"] == "english-1a2b3c4d"  # no folder here
    record = {"parameters": given, "run": {"finished": True}}
    assert missing(arm, RECIPE, [record]) == []


def test_a_network_that_reads_text_alone_says_so():
    assert new_masked_lm(small()).config.trained_on_pairs is False


# ---- the paper's choices
# ----------------------------------------------------------------------------------------------------


def a_word_without_a_match(data, source):
    "Id of a German word in the shared vocabulary that the source lacks, the word, and a word that the source has."
    tokenizer = load_model_tokenizer(source)
    plain = match_vocabulary(tokenizer, data.tokenizer)
    subwords = data.tokenizer.convert_ids_to_tokens(range(len(data.tokenizer)))
    lacking = [
        (i, subword[1:])
        for i, subword in enumerate(subwords)
        if plain.rule[i] == "unmatched" and re.fullmatch("\u2581[a-z]{4,}", subword)
    ]
    known = [i for i, rule in enumerate(plain.rule) if rule == "exact"]
    words = [(i, subwords[i][1:]) for i in known if re.fullmatch("\u2581[a-z]{3,}", subwords[i])]
    return lacking, words


def test_whole_lists_reach_the_embedding(tmp_path, parts, source):
    (row, word), *_ = a_word_without_a_match(parts, source)[0]
    (_, translation), *_ = a_word_without_a_match(parts, source)[1]
    # below the 5,000 words of the published training part
    lines = "".join(f"w{n} x{n}\n" for n in range(6000))
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "en-de.txt").write_text(f"{lines}{translation} {word}\n")
    s = small(dictionaries=str(lists))
    network, start = start_network(s, begun(s, parts, source))
    theirs = load_file(source / "model.safetensors")[WORDS]
    tokenizer = load_model_tokenizer(source)
    expected = theirs[tokenizer.convert_tokens_to_ids(f"\u2581{translation}")]
    matrix = network.get_input_embeddings().weight
    torch.testing.assert_close(matrix[row], expected)
    plain, _ = start_network(small(), begun(small(), parts, source))
    assert not torch.equal(plain.get_input_embeddings().weight[row], matrix[row])
    # the record names the folder and its contents, not its path
    named = s.for_record()["dictionaries"]
    assert named == named_lists(str(lists)) and re.fullmatch("lists-[0-9a-f]{8}", named)
    assert small(dictionaries=named).for_record()["dictionaries"] == named
    (lists / "en-de.txt").write_text(lines)
    assert small(dictionaries=str(lists)).for_record()["dictionaries"] != named


def test_the_published_whole_lists_have_more_than_the_training_part():
    if not os.environ.get("XLNB_DATA"):
        pytest.skip("XLNB_DATA is not set: no MUSE files")
    corpus = Corpus("toy", ("de", "en"), {}, {}, {}, {}, {})
    try:
        part, whole = (
            find_dictionaries(small(dictionaries=name), corpus) for name in ("muse", "muse-full")
        )
    except FileNotFoundError as e:
        pytest.skip(str(e))
    assert len(whole["de"]) > 5 * len(part["de"]) > 5 * 5000


def test_translations_come_first_or_last(tmp_path, parts, source):
    _, ((row, word), (other, translation), *_) = a_word_without_a_match(parts, source)
    (tmp_path / "de-en.txt").write_text(f"{word} {translation}\n")
    tokenizer = load_model_tokenizer(source)
    theirs = load_file(source / "model.safetensors")[WORDS]
    for order, meaning in (("exact", word), ("dictionary", translation)):
        s = small(dictionaries=str(tmp_path), match_order=order)
        network, _ = start_network(s, begun(s, parts, source))
        expected = theirs[tokenizer.convert_tokens_to_ids(f"\u2581{meaning}")]
        torch.testing.assert_close(network.get_input_embeddings().weight[row], expected)
    data = with_start(small(dictionaries=str(tmp_path), match_order="dictionary"), parts)
    assert data.matching.rule[row] == "dictionary"


@pytest.mark.parametrize("changes", [{}, dict(parts="none"), dict(parts="body")])
def test_dropout_is_that_of_the_settings_or_of_the_source(parts, source, changes):
    def dropout(s):
        what = source if s.inherits else None
        config = start_network(s, begun(s, parts, what))[0].config
        assert config.hidden_dropout_prob == config.attention_probs_dropout_prob
        return config.hidden_dropout_prob

    assert dropout(small(dropout=0.3, **changes)) == 0.3
    assert dropout(small(**changes)) == 0.0
    assert "dropout" not in small(**changes).for_record()
    assert small(dropout=0.3, **changes).for_record()["dropout"] == 0.3


@pytest.mark.parametrize("of_weights", [0.1, 0.2])
def test_dropout_that_is_not_given_is_that_of_the_source(tmp_path, of_weights):
    config = config_for("tiny", 300, hidden_dropout_prob=0.1)
    config.attention_probs_dropout_prob = of_weights
    config.save_pretrained(tmp_path)
    s = Settings(source=str(tmp_path))
    assert usual_dropout(s) == (0.1 if of_weights == 0.1 else None)
    assert usual_dropout(replace(s, parts="none")) == 0.0


@pytest.fixture(scope="module")
def twin(parts, tmp_path_factory):
    "A folder with a masked language model and the shared vocabulary."
    folder = tmp_path_factory.mktemp("twin")
    new_model(EncoderForMaskedLM, network_config(small()), 3).save_pretrained(folder)
    parts.tokenizer.save_pretrained(folder)
    return folder


def guessing(loss, **changes):
    "Settings with larger batches, since few words are one subword in both vocabularies."
    return small(
        parts="none",
        distil=1.0,
        distil_loss=loss,
        source_share=0.9,
        batch_tokens=1024,
        micro_tokens=1024,
        **changes,
    )


def guesses_of(loss, data, folder, **changes):
    "A student, and its first batch with masks."
    s = guessing(loss, **changes)
    data = replace(data, source=folder)
    model = make_model(s, data)
    model.masking = replace(model.masking, text_rate=0.8)
    batch = model.prepare(make_batches(s, data)(0, 0), torch.Generator().manual_seed(3))
    return model, batch


def test_the_teacher_sees_no_word_that_the_student_has_to_guess(parts, source, twin):
    for loss, folder in (("kl-matched", source), ("kl", twin)):
        source_name = dict(source=str(folder)) if loss == "kl" else {}
        model, batch = guesses_of(loss, parts, folder, **source_name)
        mask = load_model_tokenizer(folder).mask_token_id
        guessed = {*batch["words"][batch["labels"] != -100].tolist()} - {-1}
        numbers = batch["teacher_words"]
        is_hidden = torch.isin(numbers, torch.tensor(sorted(guessed)))
        assert guessed and torch.equal(batch["teacher_ids"] == mask, is_hidden)
        # what is compared: one subword for both, guessed, and in both vocabularies
        words = batch["guessed_words"].tolist()
        assert len(words) == model.counts(batch)["distil"] > 3 and {*words} <= guessed
        assert words == sorted(words)
        for number in words:
            assert (batch["words"] == number).sum() == (numbers == number).sum() == 1
        pairs = dict(zip(model.shared.student_ids.tolist(), model.shared.teacher_ids.tolist()))
        s = guessing(loss, **source_name)
        clear = make_batches(s, replace(parts, source=folder))(0, 0)
        for number in words:
            label = batch["labels"][batch["words"] == number].item()
            assert clear["teacher_ids"][numbers == number].item() == pairs[label]


@pytest.mark.parametrize("loss", ["kl-matched", "kl"])
def test_a_student_that_guesses_as_its_teacher_has_nothing_to_learn(parts, twin, loss):
    s = small(source=str(twin), parts="none", distil=1.0, distil_loss=loss, source_share=0.9)
    data = replace(parts, source=twin)
    model = guessing_student(s, data, new_masked_lm(s))
    assert isinstance(model, GuessingStudent) and DISTILLATIONS == ("states", "kl-matched", "kl")
    # no random or kept tokens: student and teacher read the same
    model.masking = replace(model.masking, policy="mask")
    batches = make_batches(s, data)
    assert isinstance(batches, SameTokenBatches) == (loss == "kl")
    if loss == "kl":
        batch = batches(0, 0)
    else:
        plain = sentences_alone(parts)
        batch = plain | batches.shared_words(plain["input_ids"], [True] * len(plain["input_ids"]))
    batch = model.prepare(batch, torch.Generator().manual_seed(3))
    if loss == "kl-matched":
        # words of several subwords: the teacher sees less of them
        is_odd = (batch["teacher_ids"] == 4) != (batch["input_ids"] == 4)
        batch["teacher_ids"] = batch["input_ids"]
        assert is_odd.shape == batch["input_ids"].shape
    assert model(batch, None)["distil"] / model.counts(batch)["distil"] > 1e-3
    model.generator = load(twin, EncoderForMaskedLM)
    assert model.train()(batch, None)["distil"].item() < 1e-5


def test_the_loss_is_the_divergence_over_the_shared_ids(parts, source):
    model, batch = guesses_of("kl-matched", parts, source, distil_temperature=2.0)
    words = batch["guessed_words"]
    teacher = load(source, EncoderForMaskedLM)
    with torch.no_grad():
        mask = batch["teacher_mask"]
        theirs = teacher(batch["teacher_ids"], attention_mask=mask).logits
        theirs = theirs[torch.isin(batch["teacher_words"], words)][:, model.shared.teacher_ids]
        ours = model.generator(batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        ours = ours[torch.isin(batch["words"], words)][:, model.shared.student_ids]
        p, q = (torch.distributions.Categorical(logits=x / 2) for x in (theirs, ours))
        expected = 4 * torch.distributions.kl_divergence(p, q).sum()
        torch.testing.assert_close(model(batch, None)["distil"], expected)


@pytest.mark.parametrize("loss", ["kl-matched", "kl"])
def test_guesses_are_in_the_loss_and_the_teacher_stays_outside(
    tmp_path, parts, source, twin, unprobed, loss
):
    folder = twin if loss == "kl" else source
    more = dict(source=str(twin)) if loss == "kl" else {}
    s = small(
        parts="none", distil=2.0, distil_loss=loss, source_share=0.9, out=str(tmp_path), **more
    )
    before = load(folder, EncoderForMaskedLM).state_dict()
    summary, model, _ = train_on(s, parts, folder)
    assert summary["finished"]
    log = read_log(tmp_path)
    for line in log:
        assert line["loss"] == pytest.approx(line["mlm"] + 2 * line.get("distil", 0))
    assert any(line.get("distil", 0) > 0 for line in log)
    assert same(load(folder, EncoderForMaskedLM).state_dict(), before)
    names = [*model.state_dict(), *dict(model.named_parameters())]
    assert not [name for name in names if "teacher" in name]
    assert weights(tmp_path).keys() == load_file(source / "model.safetensors").keys()


def test_guesses_that_cannot_be_compared_are_refused(tmp_path, parts, source, monkeypatch):
    s = small(parts="none", distil=1.0, distil_loss="kl", source=str(source))
    with pytest.raises(ConfigError, match="another tokenizer: give its folder as vocabulary too"):
        make_model(s, replace(parts, source=source))
    nothing = (np.array([], int), np.array([], int))
    with monkeypatch.context() as m:
        m.setattr(M, "shared_ids", lambda *tokenizers: nothing)
        with pytest.raises(ConfigError, match="there are none: use distil_loss='states'"):
            make_model(replace(s, distil_loss="kl-matched"), replace(parts, source=source))
    new_model(Encoder, network_config(s), 3).save_pretrained(tmp_path)
    parts.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="has no output layer.*use distil_loss='states'"):
        make_model(s, replace(parts, source=tmp_path))


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(distil_loss="mse"), "distil_loss='mse' is not one of states, kl-matched, kl"),
        (dict(distil_loss="kl"), "with distil=0.0: there is no distillation"),
        (dict(distil_loss="kl", distil=1.0), "without source.*use distil_loss='kl-matched'"),
        (dict(distil_temperature=2.0), "states have no temperature"),
        (
            dict(distil_temperature=0.0, distil=1.0, distil_loss="kl-matched"),
            "distil_temperature=0.0 is not above 0",
        ),
        (dict(dropout=1.0), "dropout=1.0 is not from 0 to below 1"),
        (dict(match_order="first"), "match_order='first' is not one of"),
    ],
)
def test_choices_that_are_none_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        small(**changes)


def test_the_recipe_chooses_as_the_paper_does():
    full = resolve(Settings(size="base", source="roberta-base", recipe="paper"))
    assert (full.match_order, full.dropout) == ("dictionary", 0.1)
    rows = {row[""]: row for row in M.compare_with_paper(full)}
    for name in ("order of the match", "dropout"):
        assert rows[name]["paper"] == rows[name]["this run"]
    words = describe({"parameters": full.for_record()})
    assert "match_order=dictionary, dropout=0.1" in words
    assert not {*Settings.later_settings} & small().for_record().keys()
    shared = SharedVocabulary(torch.arange(3), torch.arange(3), 4)
    toy = {
        "labels": torch.tensor([[1, -100]]),
        "words": torch.tensor([[0, 1]]),
        "teacher_words": torch.tensor([[0, 1]]),
        "teacher_ids": torch.tensor([[1, 2]]),
    }
    assert hide_from_teacher(toy, shared.teacher_mask)["teacher_ids"].tolist() == [[4, 2]]
    assert guessed_words(toy, shared).tolist() == [0]
    assert shared.of_teacher(torch.tensor([-100, 2, 3, 900])).tolist() == [-1, 2, -1, -1]
