"The choices that the papers print: settings that make them, and recipe=paper, which uses them."

import json, math, re, resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib import import_module
from multiprocessing import get_context

import pytest
import torch
from conftest import write
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from transformers import AutoTokenizer, RobertaConfig, RobertaForMaskedLM, XLMRobertaTokenizerFast

from xlnb import meta_xlm, veco, xlm_e, xy_lent
from xlnb.base.core import ConfigError, DataError, torch_generator
from xlnb.pretraining.held_out import texts_by_language
from xlnb.pretraining.pretraining import (
    announce_plan,
    held_out_spec,
    run_folder,
    run_identity,
    train_phase,
    training_config,
)
from xlnb.text.cldr import cldr_corpus
from xlnb.text.corpora import Corpus
from xlnb.text.own import corpus_for_record, more_pairs, open_corpus, with_lacking_pairs
from xlnb.text.tokens import SpecialIds
from xlnb.text.vocab import train_sentencepiece, train_vocab
from xlnb.training.objectives import MaskIds, Masking, mask_tokens
from xlnb.training.training import read_log

PAPERS = {
    "XLM-E": (xlm_e, dict(size="base")),
    "XY-LENT": (xy_lent, dict(size="large")),
    "MetaXLM": (meta_xlm, dict(size="base", source="roberta")),
    "VECO": (veco, dict(size="large")),
}


def resolved(paper, **changes):
    module, settings = PAPERS[paper]
    return module.resolve(module.Settings(**settings | changes))


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_recipe_trains_without_a_limit_in_bf16_on_a_gpu(paper, on_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    full = resolved(paper, recipe="paper")
    expected = ("bf16" if on_gpu else "fp32", on_gpu, math.inf)
    assert (full.precision, full.compiled, full.max_minutes) == expected
    default = resolved(paper)
    assert (default.precision, default.compiled, default.max_minutes) == ("fp32", False, 30.0)
    mine = resolved(paper, recipe="paper", max_minutes=30.0, precision="fp32", compiled=False)
    assert (mine.precision, mine.compiled, mine.max_minutes) == ("fp32", False, 30.0)


def test_a_run_without_a_limit_says_so_and_has_a_record(capsys):
    full = resolved("XLM-E", recipe="paper")
    announce_plan("", full)
    assert capsys.readouterr().err.startswith("limit    none: ")
    assert training_config(full).max_minutes == math.inf
    record = full.for_record()
    json.dumps(record, allow_nan=False)
    assert record["max_minutes"] is None
    again = xlm_e.resolve(xlm_e.Settings(**record))
    assert replace(again, max_minutes=math.inf) == full


# ---------------------------------------------------------------- XLM-E and XY-LENT

TINY = dict(
    langs="de,en,ru",
    steps=2,
    width=32,
    layers=2,
    vocab_size=260,
    batch_tokens=256,
    test_lines=8,
)


def tiny(**changes) -> xlm_e.Settings:
    return xlm_e.resolve(xlm_e.Settings(**TINY | changes))


@pytest.fixture(scope="module")
def corpus():
    return cldr_corpus("de,en,ru", 1, 400, 100, 8)


@pytest.fixture(scope="module")
def data(corpus, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLNB_ROOT", str(tmp_path_factory.mktemp("runs")))
        yield xlm_e.prepare_data(tiny(), corpus)


def batches_of(data, **changes):
    "A batch of text and a batch of pairs, before masking."
    batches = xlm_e.make_batches(tiny(**changes), data)
    return batches(0, 0), batches(0, batches.text_micro)


def starts(batch):  # (tokens,) bool: the first token of each sequence
    if "cu_seqlens" not in batch:
        first = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        first[:, 0] = True
        return first
    first = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
    first[0, batch["cu_seqlens"][:-1].long()] = True
    return first


def test_a_masked_cls_is_really_masked(data):
    ids = MaskIds.of(data.tokenizer)
    special = SpecialIds.of(data.tokenizer)
    masking = tiny(mask_cls=True, pair_sides="both").masking
    everything = replace(masking, text_rate=1.0, pair_rate=1.0)
    for batch in batches_of(data):
        first = starts(batch)
        assert (batch["input_ids"][first] == special.bos).all()
        masked = everything(batch, ids, torch_generator("cls"))
        assert (masked["input_ids"][first] == special.mask).all()
        assert (masked["labels"][first] == special.bos).all()
        # the ends of sentences stay
        assert not (masked["labels"] == special.eos).any()
        never = replace(everything, mask_special=False)(batch, ids, torch_generator("cls"))
        assert (never["labels"][first] == -100).all()
        ordinary = (never["labels"] != -100) | first
        assert torch.equal(masked["labels"] != -100, ordinary)


def test_a_cls_is_as_often_masked_as_another_token():
    rows = torch.tensor([[0, *range(10, 29), 2]] * 4000)
    batch = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    ids = MaskIds(mask=4, special=(0, 1, 2, 3, 4), vocab_size=40)
    masked = Masking(0.15, mask_special="first")(batch, ids, torch_generator("rate"))
    rates = (masked["labels"] != -100).double().mean(0)
    # four standard deviations of a share of 4,000
    margin = 4 * math.sqrt(0.15 * 0.85 / 4000)
    assert (rates[:-1] - 0.15).abs().max() < margin and rates[-1] == 0


def test_a_run_trains_on_its_masked_cls(data):
    settings = tiny(mask_cls=True, pair_sides="both", pair_mask_rate=0.9)
    model = xlm_e.new_xlm_e(settings, data)
    _, pairs = batches_of(data)
    batch = model.prepare(pairs, torch_generator("run"))
    is_masked = batch["labels"][starts(batch)] != -100
    assert is_masked.double().mean() > 0.5
    sums = model(batch, torch_generator("run"))
    assert model.counts(batch)["tlm"] == (batch["labels"] != -100).sum() and sums["tlm"] > 0


def test_held_out_losses_are_of_subwords_alone(data):
    "A masked <s> is guessed from its position, and has no frequency to compare the loss with."
    settings = [tiny(mask_cls=mask, pair_sides="both") for mask in (False, True)]
    first, second = (
        texts_by_language(data, held_out_spec(s, s.masking), ["de", "en"]) for s in settings
    )
    for lang, text in second.items():
        assert not (text.batch["labels"] == SpecialIds.of(data.tokenizer).bos).any()
        assert torch.equal(text.batch["labels"], first[lang].batch["labels"])
        assert text.unigram == first[lang].unigram


def test_masking_of_specials_has_three_forms():
    batch = {"input_ids": torch.tensor([[0, 7, 2]])}
    with pytest.raises(ConfigError, match="mask_special='frist' is not one of False, True, first"):
        mask_tokens(batch, MaskIds(4, (0, 2, 4), 9), torch_generator(0), mask_special="frist")


def sides(pairs):
    "(first, second, group) of each sequence of a packed batch, as tuples of ids."
    rows = []
    for start, end in zip(pairs["cu_seqlens"][:-1].tolist(), pairs["cu_seqlens"][1:].tolist()):
        ids, side, group = (pairs[k][0, start:end] for k in ("input_ids", "side", "group"))
        first, second = (tuple(ids[side == k].tolist()) for k in (1, 2))
        assert len(set(group.tolist())) == 1
        rows.append((first, second, int(group[0])))
    return rows


def test_pairs_keep_their_order_or_are_flipped_with_what_belongs_to_them(data):
    _, kept = batches_of(data, flip_pairs=False)
    _, flipped = batches_of(data)
    rows = list(zip(sides(kept), sides(flipped)))
    as_named = [one == other for one, other in rows]
    assert 0 < sum(as_named) < len(rows)
    for (a, b, group), other in rows:
        assert other in [(a, b, group), (b, a, group)]
    # the order that is kept is that of the name: the language of each side
    known = {}
    for number, pair in enumerate(data.store.pairs):
        lines = list(data.corpus.pairs[pair])
        known[number] = [
            {
                tuple(ids)
                for ids in data.tokenizer(list(side), add_special_tokens=False)["input_ids"]
            }
            for side in zip(*lines)
        ]
    assert all(a in known[group][0] and b in known[group][1] for a, b, group in sides(kept))
    # labels are the tokens of the flipped batch, in its order
    masked = Masking(pair_rate=0.5)(flipped, MaskIds.of(data.tokenizer), torch_generator(1))
    is_masked = masked["labels"] != -100
    assert torch.equal(masked["labels"][is_masked], flipped["input_ids"][is_masked])
    assert torch.equal(masked["side"], flipped["side"]) and is_masked.any()


@pytest.mark.parametrize("part", ["generator", "discriminator"])
def test_dropout_is_that_of_one_network(data, part):
    settings = tiny(**{f"{part}_dropout": 0.5})
    model = xlm_e.new_xlm_e(settings, data)
    text, _ = batches_of(data)

    def differs(network):
        outs = [network.encoder(text["input_ids"]).last_hidden_state for _ in range(2)]
        return not torch.equal(*outs)

    model.train()
    for name in ("generator", "discriminator"):
        assert differs(getattr(model, name)) == (name == part)
        dropout = getattr(model, name).config.hidden_dropout_prob
        assert dropout == (0.5 if name == part else 0.0)
    model.eval()
    assert not differs(getattr(model, part))


def test_english_pairs_alone_or_all(corpus, data, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    settings = tiny(bitext="en-x")
    english = xlm_e.prepare_data(settings, corpus)
    assert list(english.corpus.pairs) == list(english.store.pairs) == ["de-en", "en-ru"]
    assert list(data.store.pairs) == ["de-en", "de-ru", "en-ru"]
    assert english.corpus.text == data.corpus.text and english.corpus.tests == data.corpus.tests
    assert english.folder != data.folder
    batches = xlm_e.make_batches(settings, english)
    assert batches.parts["pairs"].planned.keys() == {"de-en", "en-ru"}
    # without pairs there is nothing that English is needed for
    assert tiny(bitext="en-x", langs="de,ru", tasks="mlm").bitext == "en-x"
    with pytest.raises(DataError, match="reads pairs with en, and toy has de-ru: use bitext='x-y'"):
        others = {pair: rows for pair, rows in corpus.pairs.items() if pair == "de-ru"}
        xlm_e.with_bitext(settings, replace(corpus, name="toy", pairs=others))


def test_choices_name_a_run_unless_they_are_the_default(data):
    names = {"bitext", *xlm_e.LATER}
    default = tiny()
    assert not names & run_identity(xlm_e.PHASE, default, data).keys()
    others = dict(
        bitext="en-x",
        mask_cls=True,
        flip_pairs=False,
        generator_dropout=0.1,
        discriminator_dropout=0.1,
    )
    assert others.keys() == names
    folders = {run_folder(xlm_e.PHASE, default, data)}
    for name, value in others.items():
        changed = tiny(pair_sides="both", **{name: value})
        assert run_identity(xlm_e.PHASE, changed, data)[name] == value
        folders.add(run_folder(xlm_e.PHASE, changed, data))
    assert len(folders) == 6


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(mask_cls=True), "mask_cls=True with pair_sides='one'.*give pair_sides='both'"),
        (dict(bitext="none"), "bitext='none' is not one of"),
        (dict(bitext="en-x", langs="de,ru"), "bitext='en-x' with langs='de,ru'.*use bitext='x-y'"),
        (dict(steps=None, budget_flops=-1.0), "budget_flops=-1.0 is not above 0"),
        (dict(steps=None, budget_flops=math.inf), "budget_flops=inf is not above 0"),
        (dict(generator_dropout=1.0), "generator_dropout=1.0 is not from 0 to below 1"),
        (
            dict(tasks="mlm+tlm", discriminator_dropout=0.1),
            "with tasks='mlm.tlm': there is no discriminator; give generator_dropout",
        ),
    ],
)
def test_choices_that_exclude_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        tiny(**settings)


def test_the_recipes_choose_as_the_papers_do():
    choices = ("bitext", "mask_cls", "flip_pairs", "generator_dropout")
    full = resolved("XLM-E", recipe="paper")
    assert [getattr(full, name) for name in choices] == ["en-x", True, False, 0.0]
    full = resolved("XY-LENT", recipe="paper")
    assert [getattr(full, name) for name in choices] == ["x-y", False, True, 0.0]
    rows = {row[""]: row for row in xy_lent.compare_with_paper(full)}
    for name in ("first token", "order of a pair"):
        assert rows[name]["paper"] == rows[name]["this run"]
    rows = {row[""]: row["this run"] for row in xlm_e.compare_with_paper(tiny())}
    assert rows["first token"] == "never masked" and rows["bitext"] == "x-y"


def numbered(word, first=0, count=40):
    return [f"{word} {n} {word[::-1]}" for n in range(first, first + count)]


@pytest.fixture
def sets(tmp_path):
    "Two folders of bitext: both have de-en, the second alone de-fr and en-fr, and a language that is not asked for."
    first, second = tmp_path / "matrix", tmp_path / "aligned"
    for lang in ("de", "en", "fr"):
        write(first / f"{lang}.txt", "\n".join(numbered(lang, 100)) + "\n")
    for lang in ("de", "en"):
        write(first / f"train.de-en.{lang}", "\n".join(numbered(lang)) + "\n")
        write(first / f"valid.de-en.{lang}", "\n".join(numbered(lang, 200, 8)) + "\n")
        write(first / f"test.de-en.{lang}", "\n".join(numbered(lang, 210, 8)) + "\n")
    for a, b in (("de", "en"), ("de", "fr"), ("en", "fr"), ("fr", "sw")):
        for lang in (a, b):
            lines = numbered(lang, 180, 60)
            write(second / f"train.{a}-{b}.{lang}", "\n".join(lines) + "\n")
            write(second / f"valid.{a}-{b}.{lang}", "\n".join(numbered(lang, 900, 4)) + "\n")
            write(second / f"test.{a}-{b}.{lang}", "\n".join(numbered(lang, 950, 4)) + "\n")
    return str(first), str(second)


def test_pairs_that_a_set_lacks_come_from_another(sets, capsys):
    first, second = sets
    corpus = open_corpus(first, "de,en,fr")
    more = more_pairs(corpus, second)
    assert capsys.readouterr().out == "aligned adds de-fr, en-fr\n"
    assert list(corpus.pairs) == ["de-en"] and list(more.pairs) == ["de-en", "de-fr", "en-fr"]
    # a shared pair is not merged
    assert list(more.pairs["de-en"]) == list(corpus.pairs["de-en"])
    # what the first one measures is not trained on: sides 200 to 207 and 210 to 217
    held_out = {*range(200, 208), *range(210, 218)}
    expected = [n for n in range(180, 240) if n not in held_out]
    for _ in range(2):
        for pair in ("de-fr", "en-fr"):
            assert [int(row[0].split()[1]) for row in more.pairs[pair]] == expected
            assert more.pairs[pair].report.left_out == {"side of a held-out pair": 16}
    assert more.text == corpus.text and more.gold == corpus.gold
    assert more.valid == corpus.valid and more.tests == corpus.tests
    assert more.facts["more_pairs"]["pairs"] == ["de-fr", "en-fr"] and more.identified
    # without anything to add
    assert list(more_pairs(more, first).pairs) == list(more.pairs)


def test_a_corpus_of_ones_own_is_hashed_whole_with_what_is_added(sets):
    corpus = open_corpus(sets[0], "de,en,fr")
    other = Corpus("mine", ("de", "fr"), {}, {"de-fr": [("a", "b")]}, {}, {})
    more = with_lacking_pairs(corpus, other)
    assert not more.identified and list(more.pairs["de-fr"]) == [("a", "b")]
    few = replace(corpus, langs=("de", "en"), text={})
    assert list(with_lacking_pairs(few, other).pairs) == ["de-en"]


def test_xy_lent_trains_on_added_pairs_and_names_them(sets, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path / "root"))
    first, second = sets
    small = TINY | dict(langs="de,en,fr", corpus=first, vocab_size=26)
    alone = xy_lent.Settings(**small)
    with pytest.raises(DataError, match="has in de,en,fr: de-en. Add bitext"):
        xy_lent.open_bitext(xy_lent.resolve(alone))
    settings = xy_lent.resolve(xy_lent.Settings(**small, more_bitext=second))
    bitext = xy_lent.open_bitext(settings)
    assert bitext.facts["pairs"] == {"de-en": 40, "de-fr": 44, "en-fr": 44}
    assert "aligned adds de-fr, en-fr\n" in capsys.readouterr().out
    data = xy_lent.prepare_data(settings)
    counts = {pair: source.counts["items"] for pair, source in data.store.pairs.items()}
    assert counts == bitext.facts["pairs"]
    batches = xy_lent.make_batches(settings, data)
    assert batches.parts["pairs"].planned.keys() == counts.keys()
    recorded = settings.for_record()["more_bitext"]
    assert re.fullmatch("aligned@[0-9a-f]{8}", recorded)
    assert recorded == corpus_for_record(second, "de,en,fr", partly=True)
    again = xy_lent.Settings(
        **small | settings.for_record() | {"corpus": first, "max_minutes": None}
    )
    assert xy_lent.resolve(again).for_record()["more_bitext"] == recorded
    assert "more_bitext" not in xy_lent.resolve(alone).for_record()
    rows = {row[""]: row["this run"] for row in xy_lent.compare_with_paper(settings)}
    assert rows["pairs that another set has"] == f"added, of {recorded}"


def test_the_floor_is_the_papers_by_recipe(sets, capsys):
    assert resolved("XY-LENT", recipe="paper").min_pair_lines == 50_000
    default = resolved("XY-LENT")
    assert default.min_pair_lines == 1
    assert resolved("XY-LENT", recipe="paper", min_pair_lines=7).min_pair_lines == 7
    first, second = sets
    small = TINY | dict(langs="de,en,fr", corpus=first, vocab_size=26, more_bitext=second)
    settings = xy_lent.resolve(xy_lent.Settings(**small, min_pair_lines=42))
    with pytest.raises(DataError, match="de-fr, en-fr with 42 sentences or more"):
        xy_lent.open_bitext(settings)
    assert "min_pair_lines=42 leaves out de-en (40)\n" in capsys.readouterr().out
    settings = xy_lent.resolve(xy_lent.Settings(**TINY, min_pair_lines=50_000))
    with pytest.raises(ConfigError, match="smallest pair has 2,6.. lines: give pair_lines"):
        xy_lent.open_bitext(settings)
    settings = xy_lent.resolve(xy_lent.Settings(**TINY, more_bitext=first))
    with pytest.raises(ConfigError, match="with corpus='cldr', which lacks no pair"):
        xy_lent.open_bitext(settings)


@pytest.mark.parametrize("paper", ["XY-LENT", "MetaXLM", "VECO"])
def test_fewer_steps_than_the_papers_warm_up_keep_its_share(paper):
    full = resolved(paper, recipe="paper")
    short = resolved(paper, recipe="paper", steps=100)
    assert short.warmup_steps == round(100 * full.warmup_steps / full.steps) > 0
    assert resolved(paper, recipe="paper", steps=1).warmup_steps == 0
    with pytest.raises(ConfigError, match="warmup_steps=11 is not between 0 and steps=10"):
        resolved(paper, steps=10, warmup_steps=11)


# ---------------------------------------------------------------- a step at the papers' size

SIXTEEN = "ar,de,el,en,es,fi,fr,hi,it,ja,ko,ru,sw,tr,vi,zh"
IDS = 250_002


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory):
    "Text of 16 languages, and a vocabulary in XLM-R's form and size whose first ids are its subwords."
    corpus = cldr_corpus(SIXTEEN, 1, 200, 60, 4)
    folder = tmp_path_factory.mktemp("xlmr") / "vocabulary"
    lines = [line for text in corpus.text.values() for line in text]
    model = ModelProto.FromString(train_sentencepiece(lines, 2000))
    pieces = [(piece.piece, piece.score) for piece in model.pieces[3:]]
    pieces = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")] + pieces
    unread = [(f"\u2581{n:06d}", -50.0) for n in range(IDS - len(pieces) - 1)]
    vocabulary = [*pieces, *unread, ("<mask>", 0.0)]
    XLMRobertaTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    return corpus, folder


def one_step(name, settings, corpus, folder) -> tuple[dict, float]:
    "What the first step logs, and the most memory that this process had, in GB; to be run in a process of its own."
    module = import_module(name)
    settings = module.resolve(replace(settings, out=str(folder)))
    data = module.prepare_data(settings, corpus)
    data = module.RECIPE.earlier_phases(settings, data)
    train_phase(replace(module.PHASE, measures=lambda *_: lambda model: {}), settings, data)
    return read_log(folder)[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def step_alone(module, corpus, vocabulary, folder, **changes):
    "`one_step` of the paper's recipe: all that is not the paper's is the tokens of a step, and how many there are."
    few = dict(steps=1, batch_tokens=512, micro_tokens=1024)
    settings = module.Settings(
        recipe="paper", size="base", langs=SIXTEEN, vocabulary=str(vocabulary), **few, **changes
    )
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(one_step, module.__name__, settings, corpus, folder).result()


# of an untrained, tied output layer: logits of variance 768 · 0.02² in the untrained log-sum-exp
UNTRAINED = math.log(IDS) + 768 * 0.02**2 / 2
# four standard errors of a mean over 20 different masked subwords, with that variance
MARGIN = 4 * math.sqrt(768 * 0.02**2 / 20)


@pytest.mark.slow
def test_a_step_of_xlm_e_as_the_paper_has_it(sixteen, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    corpus, vocabulary = sixteen
    folder = tmp_path / "run"
    log, memory = step_alone(xlm_e, corpus, vocabulary, folder)
    assert memory < 20
    for name in ("mlm", "tlm"):
        assert abs(log[name] - UNTRAINED) < MARGIN
    assert log["loss"] == pytest.approx(
        log["mlm"] + log["tlm"] + 50 * (log["mrtd"] + log["trtd"]), rel=1e-5
    )
    shapes = {"generator": 4, "discriminator": 12}
    for part, layers in shapes.items():
        config = json.loads((folder / part / "config.json").read_text())
        assert (config["num_hidden_layers"], config["hidden_size"]) == (layers, 768)
        assert config["vocab_size"] == IDS and config["norm"] == "post"


@pytest.mark.slow
def test_a_step_of_metaxlm_as_the_paper_has_it(sixteen, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    corpus, vocabulary = sixteen
    source = tmp_path / "roberta-base"
    shape = dict(max_position_embeddings=514, type_vocab_size=1, layer_norm_eps=1e-5)
    RobertaForMaskedLM(RobertaConfig(vocab_size=50_265, **shape)).save_pretrained(source)
    train_vocab({"en": list(corpus.text["en"])}, 300, tmp_path / "english")
    AutoTokenizer.from_pretrained(tmp_path / "english").save_pretrained(source)
    folder = tmp_path / "run"
    log, memory = step_alone(
        meta_xlm, corpus, vocabulary, folder, source=str(source), dictionaries="cldr"
    )
    assert memory < 20 and abs(log["mlm"] - UNTRAINED) < MARGIN
    config = json.loads((folder / "generator" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"]) == (12, 768)
    assert (config["vocab_size"], config["hidden_dropout_prob"]) == (IDS, 0.1)
    assert config["relative_positions"] == "none"
