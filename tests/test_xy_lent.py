"X-Y and EN-X as two worlds of the same size: pairs, lines, vocabulary, samplers, and the job from outside."

import math, os
from collections import Counter

import pytest
import torch
from hypothesis import given, settings as profile, strategies as st
from warm import run_module

from xlnb import xlm_e, xy_lent
from xlnb.base.core import ConfigError, read_records, split_pair, torch_generator
from xlnb.text.batches import token_frequencies
from xlnb.text.catalogue import data_root
from xlnb.encoder.encoder import new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.training.objectives import MaskIds
from xlnb.pretraining.experiments import Experiment, missing
from xlnb.pretraining.held_out import (
    MeasuredNetworks,
    held_out_metrics,
    hold_out,
    language_metrics,
    texts_by_language,
)
from xlnb.pretraining.pretraining import held_out_spec, main, network_config
from xlnb.xlm_e import new_xlm_e
from xlnb.xy_lent import (
    EXPERIMENTS,
    PAPER,
    RECIPE,
    Settings,
    best_score,
    bitext_pairs,
    describe,
    grid_measures,
    grouped,
    line_counts_by_pair,
    make_batches,
    measured_pairs,
    of_words,
    open_bitext,
    pair_probabilities,
    prepare_data,
    resolve,
    scores,
    some_lines,
    with_noise,
    words_by_language,
    words_known,
)

SMALL = dict(langs="de,en,hi,ru", steps=20, pair_lines=1200, test_lines=20)


def small(**changes):
    return resolve(Settings(**{**SMALL, **changes}))


@pytest.fixture(scope="module")
def worlds():
    return {bitext: prepare_data(small(bitext=bitext)) for bitext in ("x-y", "en-x")}


def test_both_worlds_have_as_many_sentence_pairs_and_one_vocabulary(worlds):
    xy = worlds["x-y"]
    en = worlds["en-x"]
    assert set(en.corpus.pairs) < set(xy.corpus.pairs) and len(xy.corpus.pairs) == 6
    assert all("en" in split_pair(pair) for pair in en.corpus.pairs)
    lines = {
        name: sum(len(list(p)) for p in world.corpus.pairs.values())
        for name, world in worlds.items()
    }
    assert lines == {"x-y": 1200, "en-x": 1200}
    assert xy.tokenizer.get_vocab() == en.tokenizer.get_vocab()
    assert xy.corpus.tests == en.corpus.tests and xy.folder != en.folder


def test_every_pair_of_the_store_has_the_lines_that_were_asked_for(worlds):
    for world in worlds.values():
        assert {p: s.counts["items"] for p, s in world.store.pairs.items()} == world.corpus.facts[
            "pairs"
        ]


def test_a_model_of_the_pivot_alone_reads_no_other_text_of_the_same_store(worlds):
    alone = small(bitext="none", tasks="mlm", batch_tokens=512)
    whole = worlds["x-y"]
    data = prepare_data(alone)
    assert data.folder == whole.folder and data.corpus.tests == whole.corpus.tests
    english = {
        tuple(ids.tolist())
        for ids in map(data.store.text["en"].__getitem__, range(len(data.store.text["en"])))
    }
    batches = make_batches(alone, data)
    eos = data.tokenizer.convert_tokens_to_ids("</s>")
    for step in range(3):
        ids = batches(step, 0)["input_ids"]
        for row in ids.tolist():
            inside = row[1 : len(row) - row[::-1].index(eos)]
            while eos in inside:
                end = inside.index(eos)
                assert tuple(inside[:end]) in english
                inside = inside[end + 1 :]
    assert describe({"parameters": alone.__dict__}, alone.steps).startswith("en alone, mlm")


@given(st.integers(3, 9), st.integers(100, 5000))
@profile(max_examples=30, deadline=None)
def test_lines_sum_to_the_budget(n, budget):
    langs = ",".join("ar bg de en es fi fr hi ru".split()[:n]) if n > 3 else "de,en,fr"
    for bitext in ("x-y", "en-x"):
        given = Settings(langs=langs, bitext=bitext, pair_lines=budget)
        counts = line_counts_by_pair(given)
        assert sum(counts.values()) == budget and list(counts) == bitext_pairs(given)
        assert max(counts.values()) - min(counts.values()) <= 1


def test_real_proportions_are_those_of_the_published_counts():
    counts = line_counts_by_pair(Settings(amounts="real", pair_lines=100_000))
    assert (
        sum(counts.values()) == 100_000 and counts["de-en"] > counts["de-ru"] > counts["de-hi"] >= 1
    )
    with pytest.raises(ConfigError, match="no bitext is known for .*ka"):
        line_counts_by_pair(Settings(langs="en,fi,ka", amounts="real", pair_lines=100))
    with pytest.raises(
        ConfigError,
        match=r"pair_lines=9000: de-en would need 1500 lines and has 1000; give 6000 or fewer",
    ):
        line_counts_by_pair(
            Settings(pair_lines=9000), dict.fromkeys(bitext_pairs(Settings()), 1000)
        )


def test_chosen_lines_are_distinct_in_order_and_repeatable():
    lines = list(range(500))
    taken = some_lines(lines, 500, 120, seed=3)
    assert (
        list(taken) == sorted(set(taken)) and len(list(taken)) == 120 and list(taken) == list(taken)
    )
    assert list(taken) != list(some_lines(lines, 500, 120, seed=4))


def test_noise_changes_the_second_side_alone():
    pairs = [(f"a{n}", f"b{n}") for n in range(4000)]
    noisy = list(with_noise(pairs, 0.1, seed=0))
    false = sum(pair != true for pair, true in zip(noisy, pairs))
    assert [a for a, _ in noisy] == [a for a, _ in pairs]
    # five standard deviations of a binomial
    assert abs(false - 400) < 5 * (4000 * 0.1 * 0.9) ** 0.5


def test_measured_pairs_have_each_other_language_twice_without_the_pivot():
    groups = measured_pairs(small(langs="ar,de,en,es,fi,fr", unseen="fi"))
    assert Counter(groups.values())["pivot"] == 4 and groups["en-fi"] == groups["es-fi"] == "unseen"
    ring = Counter(
        lang for pair in groups if "en" not in split_pair(pair) for lang in split_pair(pair)
    )
    assert set(ring.values()) == {2} and set(ring) == {"ar", "de", "es", "fi", "fr"}


def test_pairs_that_a_world_does_not_read_are_not_asked_whether_it_has_learned(worlds):
    settings = small()
    spec = held_out_spec(settings, settings.masking)
    asked = {bitext: hold_out(data, spec) for bitext, data in worlds.items()}
    assert all(asked["x-y"].read)
    kept = [pair for pair, own in zip(worlds["en-x"].corpus.valid, asked["en-x"].read) if own]
    assert (
        kept
        and len(kept) < len(asked["en-x"].read)
        and all("en" in pair.split("-") for pair in kept)
    )
    network = new_model(EncoderForMaskedLM, network_config(settings), 0)
    found = {
        bitext: held_out_metrics(MeasuredNetworks(network.encoder, network), one)
        for bitext, one in asked.items()
    }
    alone = [text.unigram for text, own in zip(asked["en-x"].partners, asked["en-x"].read) if own]
    assert found["en-x"]["held_out/tlm_read_unigram"] == pytest.approx(sum(alone) / len(alone))
    assert "held_out/tlm_read" in found["en-x"] and "held_out/tlm_read" not in found["x-y"]


def test_an_unseen_language_is_tested_and_never_trained_on():
    given = small(unseen="hi", vocab_size=1500)
    corpus = open_bitext(given)
    assert set(corpus.text) == {"de", "en", "ru"}
    assert all("hi" not in split_pair(p) for p in [*corpus.pairs, *corpus.valid])
    assert "en-hi" in corpus.tests["T3"]
    held_out = hold_out(prepare_data(given), held_out_spec(given, given.masking))
    assert set(held_out.texts) == {"de", "en", "ru"} and all(
        3 < t.unigram < 9 for t in held_out.texts.values()
    )


def test_batches_follow_the_sampler(worlds):
    for bitext, world in worlds.items():
        given = small(bitext=bitext)
        batches = make_batches(given, world)
        wanted = pair_probabilities(given, world.corpus.facts["pairs"])
        names, _ = batches.parts["pairs"].mixture.draw(0, 2000)
        # low-discrepancy draws
        assert {p: names.count(p) / 2000 for p in wanted} == pytest.approx(wanted, abs=2e-3)
        batch = batches(3, batches.micro_batches - 1)
        assert batch["group"].shape == batch["input_ids"].shape
        assert set(batch["group"].unique().tolist()) <= set(batches.groups.values())


def test_the_first_token_is_never_masked_and_orders_are_flipped(worlds):
    given = small()
    world = worlds["x-y"]
    batches = make_batches(given, world)
    ids = MaskIds.of(world.tokenizer)
    first = []
    for step in range(40):
        batch = batches(step, batches.micro_batches - 1)
        masked = given.masking(batch, ids, torch_generator(step))
        starts = batch["cu_seqlens"][:-1].long()
        assert (masked["labels"][0, starts] == -100).all()
        first += [step_orders(batch, world, batches)] if step < 8 else []
    flipped = sum(a for a, _ in first) / sum(n for _, n in first)
    assert 0.3 < flipped < 0.7


def step_orders(batch, world, batches):
    "How many pairs of a batch begin with the second language of their name, of how many that tell (Latin, other)."
    begins = batch["cu_seqlens"][:-1].tolist()
    ends = batch["cu_seqlens"][1:].tolist()
    flipped = counted = 0
    for a, b in zip(begins, ends):
        name = next(n for n, k in batches.groups.items() if k == int(batch["group"][0, a]))
        if name != "en-ru":
            continue
        side = batch["input_ids"][0, a:b][batch["side"][0, a:b] == 1]
        text = world.tokenizer.decode(side, skip_special_tokens=True)
        flipped = flipped + any("а" <= c <= "я" for c in text.lower())
        counted = counted + 1
    return flipped, counted


def test_means_over_groups():
    metrics = {
        "T3/de-en/layer1/acc@1c": 0.25,
        "T3/en-ru/layer1/acc@1c": 0.75,
        "T3/de-ru/layer1/acc@1c": 0.125,
        "tags/en/layer1/score": 0.5,
    }
    found = grouped(metrics, {"de-en": "pivot", "en-ru": "pivot", "de-ru": "others"})
    assert found == {
        "T3/pivot/layer1/acc@1c": 0.5,
        "T3/others/layer1/acc@1c": 0.125,
        "tags/en/layer1/score": 0.5,
    }
    assert (
        scores({"metrics": found}, "T3", "pivot") == [50.0]
        and scores({"metrics": found}, "T3", "unseen") == []
    )


def test_words_of_a_language_know_whose_they_are(worlds):
    s = small()
    data = worlds["x-y"]
    model = new_xlm_e(s, data)
    head = model.generator.head
    # a generator that knows English frequencies and nothing else
    head.transform = torch.zeros_like
    head.bias.data = torch.from_numpy(token_frequencies(data.store, "en")).float().log()
    found = words_by_language(s, data, model)
    assert found["en"]["mlm"] == pytest.approx(found["en"]["unigram"], abs=1e-3)
    assert all(found[lang]["mlm"] > found[lang]["unigram"] + 0.3 for lang in ("de", "hi", "ru"))
    assert all(abs(seen["auc"] - 0.5) < 0.1 for seen in found.values())
    assert found == words_by_language(s, data, model)  # the same holes and pieces at every call


def test_words_need_no_discriminator(worlds):
    s = small(tasks="mlm+tlm")
    data = worlds["x-y"]
    found = words_by_language(s, data, new_xlm_e(s, data))
    assert all(set(seen) == {"mlm", "unigram"} for seen in found.values())


def test_a_discriminator_that_knows_the_original_is_right_about_drawn_pieces(worlds):
    s = small()
    data = worlds["x-y"]
    model = new_xlm_e(s, data)
    text = texts_by_language(data, held_out_spec(s, s.masking), ["hi"])["hi"]
    whole = torch.where(text.batch["labels"] == -100, text.batch["input_ids"], text.batch["labels"])
    model.detect = lambda ids, batch: (ids != whole).float()
    assert (
        language_metrics(model.measured, {"hi": text}, MaskIds.of(data.tokenizer))["hi"]["auc"] == 1
    )


def measured(**metrics):  # name with dots for slashes → value
    return {
        "parameters": {"pivot": "en"},
        "metrics": {k.replace(".", "/"): v for k, v in metrics.items()},
        "curve": [
            {
                "held_out/tlm": 1.0,
                "held_out/tlm_unigram": 2.0,
                "held_out/tlm_gap": 0.5,
                "held_out/text_mlm": 1.0,
                "held_out/unigram": 2.0,
            }
        ],
    }


def test_words_of_a_record_are_split_by_the_pivot():
    record = measured(
        **{
            "words.en.mlm": 2.0,
            "words.en.unigram": 5.0,
            "words.de.mlm": 6.0,
            "words.de.unigram": 5.0,
            "words.ru.mlm": 4.0,
            "words.ru.unigram": 6.0,
            "words.ru.auc": 0.75,
        }
    )
    assert (words_known(record, "pivot"), words_known(record, "others")) == (3.0, 0.5)
    assert of_words(record, "auc", "others") == 0.75 and math.isnan(
        of_words(record, "auc", "pivot")
    )


def test_a_grid_shows_what_all_its_runs_have():
    words = {
        "words.en.mlm": 2.0,
        "words.en.unigram": 5.0,
        "words.de.mlm": 6.0,
        "words.de.unigram": 5.0,
    }
    names = [
        f"multi30k-2016.{group}.{system}layer1.acc@1c"
        for group in ("pivot", "others")
        for system in ("", "untrained.")
    ]
    found = dict.fromkeys(names, 0.5)
    with_words = measured(**found, **words)
    without = measured(**found)
    whole, free = grid_measures(EXPERIMENTS["bitext"], {"X-Y": {0: with_words}})
    shared = ["translation gain, nats", "accuracy@1, with en, %", "accuracy@1, without en, %"]
    assert list(whole) == ["words, en, nats", "words, others, nats", *shared] and set(whole) <= set(
        free
    )
    assert [f(with_words) for f in whole.values()] == [3.0, -1.0, 0.5, 50.0, 50.0]
    part, _ = grid_measures(EXPERIMENTS["bitext"], {"X-Y": {0: with_words}, "EN-X": {0: without}})
    assert list(part) == ["words, nats", *shared]
    assert part["words, nats"](without) == 1.0


def test_the_layer_of_a_score_is_chosen_on_held_out_pairs():
    found = {f"T3.pivot.layer{k}.acc@1c": v for k, v in enumerate((0.9, 0.2, 0.3, 0.4))}
    record = measured(**found)
    record["curve"][-1] |= {
        f"held_out/found_layer{k}": v for k, v in enumerate((0.9, 0.1, 0.5, 0.2))
    }
    # neither the test's best layer nor layer 0
    assert best_score(record, "T3", "pivot") == pytest.approx(30)


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(temperature=0.0), "temperature=0.0 is not above 0"),
        (dict(temperature=-1.0), "is not above 0"),
        (dict(noise=1.0), "noise=1.0 is not from 0"),
        (dict(pair_lines=0), "pair_lines=0 is not above 0"),
        (dict(bitext="none"), "bitext='none' with tasks='mrtd.trtd'.*use tasks='mrtd' or 'mlm'"),
        (dict(bitext="none", tasks="mlm", sampler="m2m"), "sampler='m2m': no pairs are read"),
        (dict(bitext="none", tasks="mlm", noise=0.1), "noise=0.1.*leave out noise"),
        (dict(bitext="en-x", sampler="m2m"), "one half at any temperature"),
        (dict(pivot="fr"), "pivot='fr' is not one of"),
        (dict(unseen="en"), "is among unseen"),
        (dict(langs="de,en"), "langs='de,en': name at least three languages"),
        (dict(langs="de"), "langs='de': name at least three languages"),
        (dict(recipe="paper", size="small"), "the paper has base, large, xl"),
        (dict(amounts="reel"), "did you mean 'real'"),
        (dict(vocabulary="jiont"), "jiont is not a folder.*; or vocabulary=joint or vocap, of"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_reason(wrong, says):
    with pytest.raises(ConfigError, match=says):
        resolve(Settings(**wrong))


@pytest.mark.parametrize("size", PAPER)
def test_the_papers_recipe_gives_its_numbers_and_yields_to_what_is_given(size):
    full = resolve(Settings(size=size, recipe="paper", langs="de,en,fr"))
    assert (full.steps, full.learning_rate, full.clip_norm) == tuple(
        PAPER[size][k] for k in ("steps", "learning_rate", "clip_norm")
    )
    assert full.vocab_size == 500_000 and full.recipe == "paper" and full.rtd_weight == 50
    assert (
        resolve(Settings(size=size, recipe="paper", langs="de,en,fr", vocab_size=900)).vocab_size
        == 900
    )


@pytest.mark.parametrize("size", PAPER)
def test_a_budget_replaces_the_papers_steps_and_keeps_its_share_of_warm_up(size):
    before = {name: dict(values) for name, values in PAPER.items()}
    complete = resolve(Settings(size=size, recipe="paper"))
    assert complete.warmup_steps == before[size]["warmup_steps"]
    flops = 1000.5 * xlm_e.training_flops(complete)["standard"]
    full = resolve(Settings(size=size, recipe="paper", budget_flops=flops))
    assert full.steps == 1000
    share = before[size]["warmup_steps"] / before[size]["steps"]
    assert full.warmup_steps == round(share * 1000)
    mine = resolve(Settings(size=size, recipe="paper", budget_flops=flops, warmup_steps=3))
    assert mine.warmup_steps == 3
    # the values for later runs are the same
    assert PAPER == before and resolve(Settings(size=size, recipe="paper")) == complete


def test_every_experiment_can_be_resolved_and_compares_equal_tokens():
    for name, experiment in EXPERIMENTS.items():
        assert isinstance(experiment, Experiment) and len(missing(experiment, RECIPE, [])) == len(
            experiment.runs()
        )
        full = [resolve(Settings(**given)) for _, given in experiment.runs()]
        tokens = {s.steps * s.batch_tokens * (2 if s.uses_pairs else 1) for s in full}
        assert len(tokens) == 1 or name == "short"  # which is about an eighth of the steps


def test_noise_and_lines_make_other_data(worlds):
    again = prepare_data(small())
    assert again.folder == worlds["x-y"].folder
    assert prepare_data(small(noise=0.1)).folder != again.folder


@pytest.mark.skipif(
    not (data_root() and (data_root() / "ntrex-128").is_dir()), reason="NTREX-128 is not there"
)
def test_news_in_both_worlds():
    xy, en = (
        open_bitext(small(corpus="ntrex", langs="en,sw,zh", pair_lines=None, bitext=b))
        for b in ("x-y", "en-x")
    )
    assert sum(xy.facts["pairs"].values()) == sum(en.facts["pairs"].values()) == 2 * 1598
    train = {line for pair in xy.pairs.values() for row in pair for line in row}
    test = {line for sides in xy.tests["ntrex"].values() for side in sides for line in side}
    # what the survey of the corpus names
    assert len(train & test) <= sum(xy.facts["overlap"]["ntrex"].values())


@pytest.mark.slow
def test_the_job_from_outside_records_groups_and_goes_on(tmp_path, monkeypatch):
    given = {**SMALL, "langs": "de,en,hi", "steps": 3, "pair_lines": 300, "out": tmp_path / "run"}
    arguments = [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XLNB_RESULTS": str(tmp_path)}
    done = run_module("xlnb.xy_lent", *arguments, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    (record,) = read_records("04_xy_lent")
    assert (
        len(scores(record, "T3", "pivot"))
        == len(scores(record, "T3", "others", system="untrained"))
        == 4
    )
    words = {
        k.split("/")[1]: v
        for k, v in record["metrics"].items()
        if k.startswith("words/") and k.endswith("/mlm")
    }
    assert set(words) == {"de", "en", "hi"} and all(5 < loss < 9 for loss in words.values())
    # six digits are kept
    assert sum(record["probabilities"].values()) == pytest.approx(1, abs=1e-4)
    assert (
        describe(record).startswith("X-Y, replaced tokens")
        and (tmp_path / "run" / "discriminator").is_dir()
    )
    with pytest.raises(SystemExit, match="^xlnb: bitext='xx' is not one of x-y, en-x, none$"):
        main(RECIPE, ["--bitext", "xx"])


@pytest.mark.slow
def test_a_vocabulary_by_gain_is_another_one_of_the_same_size(worlds):
    vocap = prepare_data(small(vocabulary="vocap"))
    assert len(vocap.tokenizer) == len(worlds["x-y"].tokenizer) == small().vocab_size
    assert vocap.tokenizer.get_vocab() != worlds["x-y"].tokenizer.get_vocab()
    assert resolve(Settings(size="base", recipe="paper", langs="de,en,fr")).vocabulary == "vocap"


def test_workers_of_a_vocabulary_reach_vocap_and_no_record(tmp_path, monkeypatch):
    given = []

    def train(text, size, folder, **options):
        given.append(options)
        folder.mkdir(parents=True)

    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    for kind in ("vocap", "joint"):
        monkeypatch.setitem(xy_lent.VOCABULARIES, kind, train)
        s = small(vocabulary=kind, vocap_workers=3)
        assert "vocap_workers" not in s.for_record()
        xy_lent.shared_vocabulary(s, open_bitext(s))
    assert given == [{"workers": 3}, {}]
