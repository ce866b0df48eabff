"What is measured of a network on text that it never read, how much of it there is time for, and what is kept."

import json, math
from dataclasses import replace

import pytest
import torch

from xlnb.base.core import CheckpointError, torch_generator
from xlnb.text.batches import encode_pairs, prepare, token_frequencies, without_digits
from xlnb.text.own import open_corpus
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.training.objectives import Masking, MaskIds, guess
from xlnb.measures import retrieval
from xlnb.pretraining import held_out
from xlnb.pretraining.held_out import (
    MIN_TEST_LINES,
    HeldOutSpec,
    MeasuredNetworks,
    ProbeSettings,
    baseline_rows,
    cached_rows,
    detection,
    evaluate,
    fit_to_time,
    hold_out,
    held_out_metrics,
    language_metrics,
    pair_metrics,
    pair_text,
    partner_batches,
    count_sentences,
    texts_by_language,
    untrained_rows,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*pairs have more subwords")  # said on purpose


@pytest.fixture(scope="module")
def data(root):
    return prepare(open_corpus("cldr", ["en", "de"], test_lines=20), 300)


@pytest.fixture(scope="module")
def guesser(data):
    return new_model(EncoderForMaskedLM, shaped(len(data.tokenizer)), 1)


def network(data, **more):
    return new_model(Encoder, shaped(len(data.tokenizer), **more), 1)


def shaped(ids, **more):
    config = config_for("tiny", ids)
    for name, value in {"num_hidden_layers": 1, **more}.items():
        setattr(config, name, value)
    return config


def spec(**masking):
    return HeldOutSpec(64, 62, Masking(**masking))


# ---- text
# ------------------------------------------------------------------------------------------------------------


def test_all_discriminators_are_shown_the_same_drawn_pieces(data, guesser):
    "The AUC at a fixed corruption: another generator, another discriminator, the same replaced tokens."
    ids = MaskIds.of(data.tokenizer)
    texts = texts_by_language(data, spec(), ["en", "de"])
    seen = {}

    def recorder(name):
        def detect(shown, batch):
            seen.setdefault(name, []).append(shown)
            return torch.zeros(shown.shape)

        return detect

    other = new_model(EncoderForMaskedLM, shaped(len(data.tokenizer)), 2)
    for name, masked_lm in (("one", guesser), ("other", other)):
        found = language_metrics(
            MeasuredNetworks(masked_lm.encoder, masked_lm, recorder(name)), texts, ids
        )
        assert {lang: m["auc"] for lang, m in found.items()} == {"en": 0.5, "de": 0.5}
    samples = slice(0, None, 2)
    drawn = slice(1, None, 2)  # of each language the generator's own first
    assert all(torch.equal(a, b) for a, b in zip(seen["one"][drawn], seen["other"][drawn]))
    assert not any(torch.equal(a, b) for a, b in zip(seen["one"][samples], seen["other"][samples]))


def test_held_out_text_is_the_same_at_every_call(data):
    one, other = (texts_by_language(data, spec(), ["en"])["en"] for _ in range(2))
    assert torch.equal(one.batch["labels"], other.batch["labels"]) and torch.equal(
        one.drawn, other.drawn
    )


# ---- pairs
# -----------------------------------------------------------------------------------------------------------


def pairs_of(data):
    return encode_pairs(without_digits(data.corpus.valid["de-en"])[:40], data.tokenizer)


def holes(batch, side):  # rate at which the words of a side are hidden, row by row
    own = batch["side"] == side
    return ((batch["labels"] >= 0) & own).sum(1) / own.sum(1)


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_the_side_that_is_masked_is_drawn_and_has_the_rate_of_the_run(data, rate):
    true, random, alone = partner_batches(
        pairs_of(data), spec(pair_rate=rate, pair_sides="one"), data.tokenizer, torch_generator(0)
    )
    for batch in (true, random):
        first = holes(batch, 1) > 0
        second = holes(batch, 2) > 0
        assert not (first & second).any() and 10 < first.sum() < 30  # of 40
        hidden = batch["labels"] >= 0
        original = torch.where(hidden, batch["labels"], batch["input_ids"])
        words = batch["scored"] & ~torch.isin(
            original, torch.tensor(MaskIds.of(data.tokenizer).special)
        )
        # floor(rate · n + u) of n words, as in training
        assert ((hidden & words).sum(1) - rate * words.sum(1)).abs().max() < 1
        assert (hidden & ~words).sum() == 0
    assert (true["language"] == 0).any() and (true["language"] == 1).any()


def test_both_sides_are_masked_where_the_run_masks_both(data):
    true, random, alone = partner_batches(
        pairs_of(data), spec(pair_rate=0.5, pair_sides="both"), data.tokenizer, torch_generator(0)
    )
    for side in (1, 2):
        assert holes(true, side).mean() > 0.3 and holes(random, side).mean() > 0.3

    def shared(batch):
        return batch["labels"][batch["scored"] & (batch["labels"] >= 0)].tolist()

    assert shared(true) == shared(random)  # the partner's holes are its own
    assert alone["labels"][alone["labels"] >= 0].tolist() == shared(true)
    for row, label, beside, own in zip(
        alone["input_ids"], alone["labels"], true["input_ids"], true["scored"]
    ):
        inside = slice(1, int(own.sum()) + 1)  # between <s> and </s>
        assert (
            row[inside].tolist() == beside[own].tolist() and (label[[0, inside.stop]] == -100).all()
        )


@pytest.mark.parametrize(
    "masking", [dict(pair_rate=0.4, pair_sides="one"), dict(pair_rate=0.15, pair_sides="both")]
)
def test_a_constant_answer_reaches_the_baseline_of_replaced_tokens_in_pairs(data, guesser, masking):
    ids = MaskIds.of(data.tokenizer)
    frequencies = {k: token_frequencies(data.store, k) for k in ("de", "en")}
    text = pair_text(
        data.corpus.valid["de-en"], "de-en", frequencies, spec(**masking), data.tokenizer
    )
    samples = guess(guesser, text.true, True, torch_generator("held out")).samples

    def answer(logit):
        return MeasuredNetworks(
            guesser.encoder, guesser, lambda shown, batch: torch.full(shown.shape, logit)
        )

    share = detection(answer(0.0), text.true, samples, ids)["replaced"]

    def at(p):
        return pair_metrics(answer(math.log(p / (1 - p))), text, ids)

    best = at(share)
    assert best["trtd"] == pytest.approx(best["trtd_base"], rel=1e-5)  # float32
    assert best["trtd_auc"] == 0.5 and best["trtd_gap"] == pytest.approx(0, abs=1e-6)
    assert best["trtd"] < min(at(share / 2)["trtd"], at(1.5 * share)["trtd"])


def test_a_model_without_a_discriminator_has_no_measures_of_one(data, guesser):
    found = held_out_metrics(MeasuredNetworks(guesser.encoder, guesser), hold_out(data, spec()))
    assert {"held_out/text_mlm", "held_out/tlm_gap", "held_out/found_layer1"} < found.keys()
    assert not [name for name in found if "rtd" in name]


# ---- what is kept
# ----------------------------------------------------------------------------------------------------


def test_rows_are_computed_once_for_a_key(tmp_path):
    calls = []

    def compute():
        return calls.append(1) or [{"score": 0.5, "layer": None}, [float("nan")]]

    first, second = (cached_rows(tmp_path, "rows", ["a", 1], compute) for _ in range(2))
    assert len(calls) == 1 and json.dumps(first) == json.dumps(second)
    cached_rows(tmp_path, "rows", ["a", 2], compute)
    cached_rows(tmp_path, "others", ["a", 1], compute)
    for text in ("[", "{}"):
        next(tmp_path.glob("others-*")).write_text(text)
        with pytest.raises(
            CheckpointError, match="others-.*is damaged.*: delete it, and it is computed again"
        ):
            cached_rows(tmp_path, "others", ["a", 1], compute)
    assert len(calls) == 3 and len(list(tmp_path.iterdir())) == 3


def test_rows_that_could_not_be_computed_leave_no_file(tmp_path):
    with pytest.raises(ZeroDivisionError):
        cached_rows(tmp_path, "rows", [], lambda: 1 / 0)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def few_probes(monkeypatch):
    whole = held_out.probes.cldr_tasks

    def tags(langs, **_):
        return whole(langs, train=40, test=40, tasks=("tags",))

    monkeypatch.setattr(held_out.probes, "cldr_tasks", tags)


def test_what_is_kept_is_what_would_be_computed(data, few_probes, monkeypatch):
    trained = network(data)
    first, again = (evaluate(trained, data).metrics() for _ in range(2))
    assert first == again
    for path in data.folder.glob("*.json"):
        path.unlink()
    assert evaluate(trained, data).metrics() == first
    twin = retrieval.untrained(trained)
    own = [
        r
        for r in untrained_rows(trained, data, ProbeSettings.of(("en", "de"), "en"))[0]
        if r["pair"] == "de-en"
    ]
    seen = [
        r
        for r in retrieval.retrieval_by_layer(
            twin, data.corpus.tests, data.tokenizer, system="untrained"
        )
        if r["pair"] == "de-en"
    ]
    assert [r["accuracy"] for r in own] == pytest.approx([r["accuracy"] for r in seen])
    for name in ("baselines", "retrieval_by_layer", "untrained"):
        monkeypatch.delattr(held_out.retrieval, name)
    baseline_rows(data, True)
    untrained_rows(trained, data, ProbeSettings.of(("en", "de"), "en"))


@pytest.mark.parametrize("change", [dict(num_hidden_layers=2), dict(initializer_range=0.5)])
def test_a_network_of_another_shape_has_untrained_rows_of_its_own(data, change):
    asked = ProbeSettings.of((), None)
    one, other = (untrained_rows(network(data, **more), data, asked) for more in ({}, change))
    assert one[0] != other[0] and one[2] == other[2] == []


@pytest.mark.slow
def test_other_tests_have_rows_of_their_own(data):
    fewer = replace(
        data,
        corpus=replace(
            data.corpus,
            tests={
                test: {pair: (a[:10], b[:10]) for pair, (a, b) in by.items()}
                for test, by in data.corpus.tests.items()
            },
        ),
    )
    one, other = (baseline_rows(d, True)[0] for d in (data, fewer))
    assert {r["n"] for r in one} != {r["n"] for r in other}


@pytest.mark.parametrize(
    "langs, source, found",
    [
        (("en", "de", "xx"), "en", (["en", "de"], "en")),
        (("xx", "de", "ru"), "xx", (["de", "ru"], "de")),
        ((), None, ([], None)),
    ],
)
def test_probes_are_of_the_languages_that_cldr_has(langs, source, found):
    probed = ProbeSettings.of(langs, source)
    assert (probed.langs, probed.source) == found
    if len(found[0]) < 2:
        assert held_out._probe_rows(probed, lambda _: pytest.fail("no task")) == []


def test_what_the_probes_depend_on_is_in_their_key(monkeypatch):
    before = ProbeSettings.of(("en", "de"), "en").key()
    assert (
        before
        != ProbeSettings.of(("en", "de", "ru"), "en").key()
        != ProbeSettings.of(("en", "de", "ru"), "ru").key()
    )
    monkeypatch.setattr(held_out, "version", lambda name: "0")
    assert before != ProbeSettings.of(("en", "de"), "en").key()
    monkeypatch.undo()
    monkeypatch.setattr(held_out, "source_hash", lambda *modules: "0")
    assert before != ProbeSettings.of(("en", "de"), "en").key()


# ---- as much as there is time for
# ------------------------------------------------------------------------------------


@pytest.fixture
def a_second_each(monkeypatch):
    monkeypatch.setattr(held_out, "seconds_per_sentence", lambda *_: 1.0)


@pytest.fixture(scope="module")
def long(root):
    return prepare(open_corpus("cldr", ["en", "de"], test_lines=100), 300)


def test_what_fits_into_the_minutes_is_taken_and_said(long, a_second_each):
    asked = ProbeSettings.of(("en", "de"), "en")
    tests, phrases = count_sentences(long, asked)

    def fits(share):
        # a network and its twin
        return fit_to_time(None, long, asked, 2 * share * (tests + phrases) / 60)

    def lines(data):
        return {len(a) for by in data.corpus.tests.values() for a, _ in by.values()}

    assert fits(1.01)[1:] == (asked, "all test lines")
    half, probed, said = fits(0.5)
    assert lines(half) == {50} and (probed.train, probed.test) == (125, 100)
    assert said.startswith(
        f"the first 50% of every test ({MIN_TEST_LINES} lines at least), probes on 125 phrases: "
    )
    # lines are whole
    assert sum(count_sentences(half, probed)) == pytest.approx(0.5 * (tests + phrases), rel=0.01)
    least, probed, said = fits(0.001)
    assert (
        lines(least) == {MIN_TEST_LINES}
        and (probed.train, probed.test) == (0, 0)
        and "no probes" in said
    )


def test_a_short_evaluation_reads_few_lines(long, monkeypatch):
    "Counted, not timed: the least of every test, once for the network and once for its twin, and no phrase."
    read = []
    encode = retrieval.encode
    monkeypatch.setattr(
        retrieval, "encode", lambda lines, *a, **k: read.extend(lines) or encode(lines, *a, **k)
    )
    monkeypatch.setattr(
        held_out.probes, "linear_probe", lambda *_, **__: pytest.fail("probes take too long")
    )
    found = evaluate(network(long), long, minutes=1e-6)
    lists = sum(len(by) for by in long.corpus.tests.values())
    assert found.measured.startswith("the first 0% of every test (16 lines at least), no probes")
    # two sides, two networks; nine sentences are timed
    assert 0 < len(read) <= 2 * lists * 2 * MIN_TEST_LINES + 9
    assert {r["n"] for r in found.retrieval if r["system"] == "model"} == {MIN_TEST_LINES}


def test_an_interrupted_evaluation_goes_on_from_the_parts_that_are_kept(
    data, few_probes, monkeypatch, tmp_path
):
    trained = network(data)
    whole = evaluate(network(data), data).metrics()
    with monkeypatch.context() as patch:
        patch.setattr(held_out.alignment, "aer_by_layer", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            evaluate(trained, data, run_cache=(tmp_path, [9]))
    with monkeypatch.context() as patch:
        patch.setattr(
            held_out.retrieval, "retrieval_by_layer", lambda *_, **__: pytest.fail("it is kept")
        )
        assert evaluate(trained, data, run_cache=(tmp_path, [9])).metrics() == whole
    monkeypatch.setattr(held_out.probes, "linear_probe", lambda *_, **__: pytest.fail("it is kept"))
    assert evaluate(trained, data, run_cache=(tmp_path, [9])).metrics() == whole
    # other weights
    with pytest.raises(pytest.fail.Exception):
        evaluate(trained, data, run_cache=(tmp_path, [10]))


def test_what_fitted_once_fits_again(long, monkeypatch, tmp_path):
    "A machine that is slower when an evaluation is taken up again changes no test, so what is kept is found."
    asked = ProbeSettings.of(("en", "de"), "en")
    speeds = iter([0.01, 0.02, 0.02])
    monkeypatch.setattr(held_out, "seconds_per_sentence", lambda *_: next(speeds))
    first, again = (
        fit_to_time(None, long, asked, 0.5, run_cache=(tmp_path, [9]))[1:] for _ in range(2)
    )
    assert first == again != fit_to_time(None, long, asked, 0.5)[1:]


def test_measures_are_taken_without_dropout_and_leave_the_network_as_it_was(data):
    "Networks in training mode are measured while they train; a frozen part of one stays frozen."
    config = shaped(len(data.tokenizer), num_hidden_layers=2, hidden_dropout_prob=0.5)
    network = new_model(EncoderForMaskedLM, config, 0)
    network.train().encoder.layers[0].eval()
    held_out = hold_out(data, spec())
    first, second = (
        held_out_metrics(MeasuredNetworks(network, network), held_out) for _ in range(2)
    )
    assert first == second
    assert (
        network.training
        and network.encoder.layers[1].training
        and not network.encoder.layers[0].training
    )
