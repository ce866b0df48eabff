"Other negatives for XLM-E's discriminator: what it is shown in pairs, settings, and a whole run."

import pytest
import torch

from xlnb import xlm_e
from xlnb.base.core import ConfigError, torch_generator
from xlnb.pretraining.experiments import Experiment, records_of
from xlnb.results import negatives as subject
from xlnb.results.negatives import OtherNegatives, PairSettings, Settings, shuffled_words
from xlnb.training.objectives import MaskIds, guess, without_host_facts
from xlnb.xlm_e import sides_apart

SHORT = dict(steps=6, batch_tokens=256, test_lines=20, langs="en,ru", width=32, layers=2)


@pytest.fixture(scope="module")
def data():
    return xlm_e.prepare_data(xlm_e.resolve(xlm_e.Settings(**SHORT)))


def masked_pairs(data, negatives):
    "A network, and a batch of pairs that are masked on both sides."
    settings = xlm_e.resolve(
        PairSettings(pair_negatives=negatives, **SHORT, pair_sides="both", pair_mask_rate=0.3)
    )
    model = OtherNegatives(settings, MaskIds.of(data.tokenizer))
    batches = xlm_e.make_batches(settings, data)
    return model, model.prepare(batches(0, batches.micro_batches - 1), torch_generator(0))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(negatives="blind"), "negatives='blind' is not one of generator, apart, shuffled"),
        (dict(masks="both"), "masks='both' is not one of one side, paper"),
        (dict(steps=0), "steps=0"),
        (dict(size="huge"), "size='huge' is not one of tiny"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        subject.resolve(Settings(**wrong))


def test_shuffled_words_stay_in_their_sentence(data):
    _, batch = masked_pairs(data, "shuffled")
    words = shuffled_words(batch, torch_generator(0))
    assert words.tolist() == shuffled_words(batch, torch_generator(0)).tolist()
    assert words.tolist() != shuffled_words(batch, torch_generator(1)).tolist()
    shuffled = torch.full_like(batch["labels"], -100)
    shuffled[batch["labels"] != -100] = words
    starts = sides_apart(batch).tolist()
    moved = 0
    for start, end in zip(starts, starts[1:]):
        before, after = (x[0, start:end].tolist() for x in (batch["labels"], shuffled))
        assert sorted(before) == sorted(after)
        moved += before != after
    assert moved > len(starts) / 8  # a sentence with one masked word cannot change


@pytest.mark.parametrize("negatives", subject.NEGATIVES)
def test_what_the_discriminator_is_shown(data, negatives):
    model, batch = masked_pairs(data, negatives)
    shown = []
    model.replaced_sums = lambda batch, samples: shown.append(samples) or {}
    model(batch, torch_generator(3))
    random = torch_generator(3)
    read = without_host_facts(batch)
    read |= {"cu_seqlens": sides_apart(batch)} if negatives == "apart" else {}
    samples = guess(model.generator, read, True, random).samples
    if negatives == "shuffled":
        samples = shuffled_words(batch, random)
    assert shown[0].tolist() == samples.tolist()


def test_a_generator_that_reads_apart_does_not_see_the_translation(data):
    "Words of the first sentences are replaced; the loss of the second sentences changes or not."
    changes = {}
    for negatives in ("generator", "apart"):
        model, batch = masked_pairs(data, negatives)
        first = batch["side"] == 1
        other = batch["input_ids"].clone()
        other[first & (batch["labels"] == -100) & (other > 10)] = 11
        labels = batch["labels"].masked_fill(first, -100)
        losses = []
        for ids in (batch["input_ids"], other):
            with torch.inference_mode():
                changed = without_host_facts(batch) | {"input_ids": ids, "labels": labels}
                sums = model(changed, torch_generator(1))
            losses.append(sums["tlm"].item())
        changes[negatives] = abs(losses[0] - losses[1])
    assert changes["apart"] < 1e-3 < changes["generator"]


def test_negatives_that_there_are_not_are_refused(data):
    with pytest.raises(ConfigError, match="pair_negatives='blind' is not one of generator"):
        masked_pairs(data, "blind")


def test_text_is_read_as_ever(data):
    sums = []
    for negatives in subject.NEGATIVES:
        model, _ = masked_pairs(data, negatives)
        batches = xlm_e.make_batches(model.settings, data)
        batch = model.prepare(batches(0, 0), torch_generator(0))
        assert "side" not in batch
        with torch.inference_mode():
            sums.append({k: float(v) for k, v in model(batch, torch_generator(1)).items()})
    assert sums[0] == sums[1] == sums[2]


def test_a_run_is_that_of_03_but_for_what_is_changed(monkeypatch):
    tasks = xlm_e.EXPERIMENTS["tasks"]
    theirs = xlm_e.resolve(xlm_e.Settings(**tasks.shared, **tasks.arms["XLM-E"], seed=2))
    ours = subject._settings(Settings(seed=2))
    changed = {k for k, v in vars(theirs).items() if getattr(ours, k) != v}
    assert changed == {"out"}
    paper = subject._settings(Settings(masks="paper", rtd_weight=50.0, mismatched=True, seed=2))
    changed = {k for k, v in vars(theirs).items() if getattr(paper, k) != v}
    masks = {"restart_positions", "pair_sides", "pair_mask_rate"}
    assert changed == {"out", "rtd_weight", "mismatched"} | masks
    assert ours.out != paper.out


def test_rows_are_of_the_upper_layers_and_of_the_difference_from_xlm_e():
    def record(*scores):
        metrics = {
            f"multi30k-2016/de-en/layer{k}/acc@1c": v / 100 for k, v in enumerate((9, 1, *scores))
        }
        return {"metrics": metrics}

    theirs = {0: record(2, 4), 1: record(3, 5)}
    ours = {0: record(4, 6), 1: record(5, 7), 2: record(6, 8)}
    usual, shuffled = subject.negative_rows({"XLM-E": theirs, "shuffled words": ours})
    assert usual["accuracy@1, layers 2 and 3"] == "3.5 ± 0.71"
    assert "minus XLM-E, points" not in usual
    assert shuffled["minus XLM-E, points"] == "+2.00 ± 0.00 (2 seeds)"


@pytest.mark.slow
def test_a_run_ends_with_a_record(monkeypatch, tmp_path):
    "On the embedded corpus, so that it needs no other."
    shared = xlm_e.EXPERIMENTS["tasks"].shared
    for name, value in {**SHORT, "corpus": "cldr", "vocab_size": None}.items():
        monkeypatch.setitem(shared, name, value)
    monkeypatch.setattr(subject, "runs_folder", lambda: tmp_path)
    record = subject.run(Settings("shuffled", steps=6))
    assert record["run"]["finished"] and record["parameters"]["negatives"] == "shuffled"
    recipe = subject.RECIPE
    arms = {"shuffled words": {"negatives": "shuffled", "steps": 6}}
    known = records_of(Experiment("A run.", arms, {}, (0,)), recipe, [record])
    assert known["shuffled words"] == {0: record}
