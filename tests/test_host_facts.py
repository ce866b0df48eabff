"A step without waiting: what a batch says of itself, and networks that ask the device for nothing."

from contextlib import nullcontext

import pytest
import torch

from xlnb import xlm_e
from xlnb.base.core import ConfigError, DataError, torch_generator
from xlnb.encoder import encoder as E
from xlnb.pretraining.pretraining import training_config
from xlnb.training.objectives import (
    host_facts,
    masked_positions,
    network_inputs,
    without_host_facts,
)
from xlnb.training.training import accumulate_gradients, step_work

SHORT = dict(steps=6, batch_tokens=256, test_lines=20, langs="en,ru", width=32, layers=2)


@pytest.fixture(scope="module")
def data():
    return xlm_e.prepare_data(xlm_e.resolve(xlm_e.Settings(**SHORT)))


def run_of(data, **changes):
    settings = xlm_e.resolve(xlm_e.Settings(**SHORT, **changes))
    return xlm_e.new_xlm_e(settings, data), xlm_e.make_batches(settings, data), settings


def text_and_pairs(model, batches, settings) -> list[dict]:
    "A prepared batch of either kind, with what it says of itself."
    text, *_, pairs = step_work(model, batches, training_config(settings), 0)
    return [text.batch, pairs.batch]


def moved(batch: dict, device) -> dict:
    return {k: v.to(device) if torch.is_tensor(v) else v for k, v in batch.items()}


@pytest.fixture
def asks_nothing(monkeypatch):
    """A device without numbers, on which asking for one is an error.

    Autocast does not know it, so that it is left out."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *kind: False)
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: nullcontext())
    return torch.device("meta")


def in_one_pass(monkeypatch):
    "Attention in one pass, as on a GPU, of which only the shape is computed."
    called = []

    def attention(qkv, blocks, gates, table, visible, form, tiles=None):
        called.append(visible is not None)
        return qkv[:, 0] + gates.sum() + table.sum()

    monkeypatch.setattr(E, "_fused_obstacle", lambda *_: None)
    monkeypatch.setattr(E, "gated_attention", attention)
    return called


@pytest.mark.parametrize("fused", [False, True], ids=["with the matrix", "in one pass"])
@pytest.mark.parametrize("tasks", ["mrtd+trtd", "mlm+tlm"])
def test_a_step_asks_the_device_for_nothing(data, asks_nothing, monkeypatch, tasks, fused):
    model, *rest = run_of(data, tasks=tasks)
    parts = text_and_pairs(model, *rest)
    called = in_one_pass(monkeypatch) if fused else []
    model = model.to(asks_nothing)
    for part in parts:
        out = model(moved(part, asks_nothing), torch_generator(0))
        sum(out[name] for name in model.weights if name in out).backward()
    layers = sum(len(getattr(model, part).encoder.layers) for part in model.parts())
    assert len(called) == (2 * layers if fused else 0)  # of text and of pairs
    assert all(p.grad is not None for p in model.generator.parameters())


def test_without_the_facts_the_device_is_asked(data, asks_nothing):
    model, *rest = run_of(data)
    for part in text_and_pairs(model, *rest):
        asked = moved(without_host_facts(part), asks_nothing)
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            model.to(asks_nothing)(asked, torch_generator(0))


def test_what_a_batch_says_of_itself(data):
    model, *rest = run_of(data)
    text, pairs = text_and_pairs(model, *rest)
    for batch in (text, pairs):
        words = batch["labels"].flatten()[batch["masked"]]
        assert words.tolist() == batch["labels"][batch["labels"] != -100].tolist()
        plain = without_host_facts(batch)
        assert masked_positions(plain).tolist() == batch["masked"].tolist()
        assert {*batch} - {*plain} == {*host_facts(plain)}
    assert text["is_padded"] and "attention_mask" in network_inputs(text)
    assert pairs["max_seqlen"] == pairs["cu_seqlens"].diff().max()
    for start, begin, end in zip(
        pairs["second_starts"].tolist(), pairs["cu_seqlens"], pairs["cu_seqlens"][1:]
    ):
        positions = pairs["position_ids"][0, begin:end].tolist()
        assert positions == [*range(start), *range(len(positions) - start)]


@pytest.mark.parametrize(
    "mask, starts",
    [([[1, 1, 1], [1, 1, 1]], [3, 3]), ([[1, 1, 0], [1, 1, 1]], [3, 3]), ([[0, 1, 1]], None)],
    ids=["full", "padded at the end", "padded at the start"],
)
def test_rows_of_text(mask, starts):
    mask = torch.tensor(mask)
    batch = {"input_ids": torch.ones_like(mask), "attention_mask": mask}
    facts = host_facts(batch)
    assert facts["is_padded"] == (not mask.all())
    assert ("attention_mask" in network_inputs(batch | facts)) == facts["is_padded"]
    assert (starts is None) == ("second_starts" not in facts)
    assert starts is None or facts["second_starts"].tolist() == starts


def test_padded_pairs_whose_positions_start_again():
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    positions = torch.tensor([[0, 1, 0, 1], [0, 1, 0, 7]])
    batch = {"input_ids": mask, "attention_mask": mask, "position_ids": positions}
    assert host_facts(batch)["second_starts"].tolist() == [2, 2]


def test_positions_that_jump_are_left_to_the_network():
    batch = {
        "input_ids": torch.ones(1, 3).long(),
        "cu_seqlens": torch.tensor([0, 3]),
        "position_ids": torch.tensor([[0, 1, 5]]),
    }
    assert host_facts(batch) == {"max_seqlen": 3}


def test_tokens_are_counted_before_they_go_to_the_device(data):
    model, batches, settings = run_of(data)
    for micro_batch in step_work(model, batches, training_config(settings), 0):
        assert micro_batch.counts == model.counts(micro_batch.batch)
        assert micro_batch.tokens == micro_batch.batch["attention_mask"].sum()


def test_facts_change_no_number(data):
    model, batches, settings = run_of(data)
    sums = []
    gradients = []
    for with_facts in (True, False):
        model.zero_grad()
        work = step_work(model, batches, training_config(settings), 0)
        if not with_facts:
            work = [(without_host_facts(part.batch), part.generator) for part in work]
        sums.append(accumulate_gradients(model, work))
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert sums[0] == sums[1]
    assert all(map(torch.equal, *gradients))


def test_other_labels_than_those_that_were_found_are_noticed(data):
    model, *rest = run_of(data)
    text, _ = text_and_pairs(model, *rest)
    other = text | {"labels": text["labels"].roll(1, 1)}
    with pytest.raises(DataError, match="take without_host_facts"):
        model(other, torch_generator(0))
    assert model(without_host_facts(other), torch_generator(0))["mlm"] > 0


def test_padding_that_was_not_there_before_is_noticed():
    batch = {"input_ids": torch.full((2, 4), 7), "attention_mask": torch.ones(2, 4).long()}
    batch |= host_facts(batch)
    batch["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    with pytest.raises(DataError, match="attention_mask has changed.*without_host_facts"):
        network_inputs(batch)
    assert "attention_mask" in network_inputs(without_host_facts(batch))


def test_wanted_tokens_as_a_mask_or_as_positions(data):
    model, *rest = run_of(data)
    _, pairs = text_and_pairs(model, *rest)
    encoder = model.generator.encoder
    mask = pairs["labels"] != -100
    inputs = network_inputs(pairs)
    with torch.inference_mode():
        a, b = (
            encoder(pairs["input_ids"], wanted=wanted, **inputs).last_hidden_state
            for wanted in (mask, pairs["masked"])
        )
        every = encoder(pairs["input_ids"], **inputs).last_hidden_state
    assert torch.equal(a, b)
    torch.testing.assert_close(a, every[mask])


@pytest.mark.parametrize(
    "given, message",
    [
        (dict(max_seqlen=4), "give cu_seqlens too"),
        (
            dict(second_starts=torch.tensor([4, 4])),
            r"second_starts of shape \(2,\) for 1 sequences",
        ),
        (
            dict(cu_seqlens=torch.tensor([0, 2, 4]), second_starts=torch.tensor([4])),
            r"second_starts of shape \(1,\) for 2 sequences",
        ),
        (
            dict(cu_seqlens=torch.tensor([0, 1, 4]), max_seqlen=2),
            "max_seqlen=2 is less than the longest sequence has, 3",
        ),
    ],
)
def test_facts_that_cannot_be_are_refused(data, given, message):
    encoder = run_of(data)[0].generator.encoder
    with pytest.raises(ConfigError, match=message):
        encoder(torch.arange(5, 9)[None], **given)


def test_second_starts_that_are_not_so_are_refused_in_one_pass(data, monkeypatch):
    model, *rest = run_of(data)
    _, pairs = text_and_pairs(model, *rest)
    in_one_pass(monkeypatch)
    encoder = model.generator.encoder
    inputs = network_inputs(pairs)
    encoder(pairs["input_ids"], **inputs)
    with pytest.raises(ConfigError, match="leave them out"):
        encoder(pairs["input_ids"], **inputs | {"second_starts": pairs["second_starts"] + 1})


@pytest.mark.gpu
@pytest.mark.parametrize("tasks", ["mrtd+trtd", "mlm+tlm"])
def test_a_step_on_a_gpu_does_not_wait(data, tasks):
    model, *rest = run_of(data, tasks=tasks)
    parts = text_and_pairs(model, *rest)
    model = model.cuda()
    parts = [moved(part, "cuda") for part in parts]
    generator = torch_generator(0, device="cuda")

    def step():
        for part in parts:
            with torch.autocast("cuda", torch.bfloat16):
                out = model(part, generator)
            sum(out[k] for k in model.weights if k in out).backward()

    step()  # kernels are compiled, and tried
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
