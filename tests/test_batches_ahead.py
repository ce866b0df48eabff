"Batches of the next step, made in a thread while a step is computed; sums of many groups, read once a step."

import signal, threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from xlnb.base.core import torch_generator
from xlnb.text.batches import MappedBatches
from xlnb.training.training import (
    batches_ahead,
    StepBatches,
    TrainingConfig,
    accumulate_gradients,
    read_log,
    step_work,
    train,
)

CONFIG = TrainingConfig(steps=6, learning_rate=0.05, warmup_steps=2)
MAKER = "batches"  # the thread's name


class Table(nn.Module):
    "Guesses the next of twelve ids; what it guesses from is drawn when a batch is prepared."

    weights = {"next": 1.0}
    names = ("next",)

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(12, 12, generator=torch_generator("table")))

    def prepare(self, batch, generator):
        masked = torch.rand(batch["input_ids"].shape, generator=generator) < 0.2
        return batch | {"masked": masked}

    def counts(self, batch):
        return {"next": int((~batch["masked"][:, 1:]).sum())}

    def forward(self, batch, generator):
        ids = batch["input_ids"]
        losses = nn.functional.cross_entropy(
            self.table[ids[:, :-1]].flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        return {"next": (losses * ~batch["masked"][:, 1:].flatten()).sum()}

    def save_pretrained(self, folder):
        Path(folder).mkdir(parents=True)
        torch.save(self.state_dict(), Path(folder) / "table.pt")

    def load_pretrained(self, folder):
        self.load_state_dict(torch.load(Path(folder) / "table.pt", weights_only=True))


class Batches:
    "Ids below a limit, which is what their version says; notes which thread made which batch."

    micro_batches = 2

    def __init__(self):
        self.version = 12
        self.made = []
        self.is_making = False

    def __call__(self, step, index):
        self.is_making = True
        self.made.append((step, index, self.version, threading.current_thread().name))
        generator = torch_generator(step, index)
        ids = torch.randint(self.version, (2, 9), generator=generator)
        self.is_making = False
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def by_thread(self) -> set:
        return {name.startswith(MAKER) for *_, name in self.made}

    def state(self):
        return {"version": self.version}

    def load_state(self, state):
        self.version = state["version"]


@pytest.fixture
def spare(monkeypatch):
    "There is a processor for the thread."
    monkeypatch.setattr("xlnb.training.training._has_spare_processor", lambda device: True)


@pytest.fixture(autouse=True)
def no_thread_stays():
    yield
    assert not [t for t in threading.enumerate() if t.name.startswith(MAKER)]


def lines(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(folder)]


def trained(folder, batches, config=CONFIG, **options):
    model = Table()
    summary = train(model, batches, config, folder, **options)
    return summary, model.table.detach()


@pytest.fixture
def alone(tmp_path, monkeypatch):
    "Log and weights of a run whose batches are made in the step; its changes to batches come by `on_step`."

    def run(on_step=lambda batches: None):
        with monkeypatch.context() as m:
            m.setattr("xlnb.training.training._has_spare_processor", lambda device: False)
            batches = Batches()
            _, weights = trained(tmp_path / "alone", batches, on_step=on_step(batches))
        assert batches.by_thread() == {False}
        return lines(tmp_path / "alone"), weights

    return run


def test_made_ahead_a_run_has_the_same_bits(tmp_path, spare, alone):
    batches = Batches()
    _, weights = trained(tmp_path / "ahead", batches)
    assert batches.by_thread() == {True}
    # every batch once, in order, none of a step that the run does not have
    assert [row[:2] for row in batches.made] == [(s, i) for s in range(6) for i in range(2)]
    expected_lines, expected = alone()
    assert lines(tmp_path / "ahead") == expected_lines and torch.equal(weights, expected)


def test_the_next_step_is_made_while_a_step_is_computed():
    batches = Batches()
    with batches_ahead(Table(), batches, CONFIG) as ahead:
        ahead(0)
    # the thread has ended: what it had begun is done, what it had not is not
    assert {row[0] for row in batches.made} <= {0, 1}
    batches = Batches()
    with batches_ahead(Table(), batches, CONFIG) as ahead:
        ahead(0)
        for future in ahead.futures:
            future.result(timeout=60)
        assert [row[:2] for row in batches.made] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_stopped_by_the_clock_at_every_step_it_ends_in_the_same_bits(tmp_path, spare, alone):
    short = replace(CONFIG, max_minutes=1e-9)  # one step a call
    for step in range(1, 7):
        summary, weights = trained(tmp_path / "ahead", Batches(), short)
        assert summary["step"] == step
    expected_lines, expected = alone()
    assert lines(tmp_path / "ahead") == expected_lines and torch.equal(weights, expected)


def changing(batches):
    "Other batches from step 2 and from step 4 on, as a robust run has them."

    def on_step(step, sums):
        if step in (1, 3):
            batches.version -= 4

    return on_step


def test_batches_of_an_older_version_are_made_again(tmp_path, spare, alone):
    batches = Batches()
    _, weights = trained(tmp_path / "ahead", batches, on_step=changing(batches))
    expected_lines, expected = alone(changing)
    assert lines(tmp_path / "ahead") == expected_lines and torch.equal(weights, expected)
    versions = {(s, i): version for s, i, version, _ in batches.made}  # the last that was made
    assert all(versions[s, i] == 12 - 4 * (s // 2) for s, i in versions)


def test_an_error_of_a_stale_batch_is_no_error():
    class Fussy(Batches):
        def __call__(self, step, index):
            if step == 1 and self.version == 12:
                raise ValueError("stale")
            return super().__call__(step, index)

    batches = Fussy()
    with batches_ahead(Table(), batches, CONFIG) as ahead:
        ahead(0)
        for future in ahead.futures:
            assert isinstance(future.exception(timeout=60), ValueError)
        batches.version = 8
        assert len(ahead(1)) == 2


def test_an_error_comes_at_the_step_that_needs_the_batch(tmp_path, spare):
    class Broken(Batches):
        def __call__(self, step, index):
            if step == 3:
                raise SystemExit("no text")  # ends a thread without a word
            return super().__call__(step, index)

    with pytest.raises(SystemExit, match="no text"):
        trained(tmp_path, Broken())
    assert [line["step"] for line in read_log(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("where", ["forward", "on_step", "evaluate"])
def test_training_that_raises_ends_the_thread(tmp_path, spare, monkeypatch, where):
    def broken(*inputs):
        raise RuntimeError("broken")

    options = {}
    if where == "forward":
        monkeypatch.setattr(Table, "forward", broken)
    else:
        options = {where: broken}
    with pytest.raises(RuntimeError, match="broken"):
        trained(tmp_path, Batches(), replace(CONFIG, evaluate_every=1), **options)


def test_an_interrupt_saves_the_step_and_ends_the_thread(tmp_path, spare, alone):
    def interrupt(step, sums):
        if step == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "ahead", Batches(), on_step=interrupt)
    assert len(read_log(tmp_path / "ahead")) == 3
    _, weights = trained(tmp_path / "ahead", Batches())
    expected_lines, expected = alone()
    assert lines(tmp_path / "ahead") == expected_lines and torch.equal(weights, expected)


def test_no_batch_is_made_while_the_model_is_evaluated_or_the_batches_are_changed(tmp_path, spare):
    batches = Batches()
    rested = []

    def look(*inputs):
        before = len(batches.made)
        threading.Event().wait(0.02)
        rested.append(before == len(batches.made) and not batches.is_making)
        return {}

    config = replace(CONFIG, evaluate_every=1)
    trained(tmp_path, batches, config, on_step=look, evaluate=look)
    assert len(rested) == 12 and all(rested)


def test_without_a_version_or_a_spare_processor_batches_are_made_in_the_step(
    tmp_path, spare, alone
):
    class Unversioned(Batches):
        def __init__(self):
            super().__init__()
            del self.version

        def __call__(self, step, index):
            self.version = 12
            batch = super().__call__(step, index)
            del self.version
            return batch

        def state(self):
            return {}

    batches = Unversioned()
    trained(tmp_path / "unversioned", batches)
    assert batches.by_thread() == {False}
    assert not hasattr(MappedBatches(batches, None), "version")
    assert lines(tmp_path / "unversioned") == alone()[0]


@pytest.mark.parametrize("threads, processes, ahead", [(1, 1, True), (2, 1, False), (1, 2, False)])
def test_a_processor_is_spare_where_threads_leave_one(monkeypatch, threads, processes, ahead):
    from xlnb.training.training import _has_spare_processor

    monkeypatch.setattr("xlnb.training.training.processors", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert _has_spare_processor(torch.device("cpu")) == ahead
    assert _has_spare_processor(torch.device("cuda"))


class Grouped(Table):
    "The same, and the losses of a thousand pairs of languages beside."

    groups = [f"pair{n}" for n in range(1015)]
    names = ("next", *(f"next/loss/{group}" for group in groups))

    def forward(self, batch, generator):
        sums = super().forward(batch, generator)
        generator = torch_generator(int(batch["input_ids"].sum()))
        by_group = torch.rand(1015, dtype=torch.float64, generator=generator)
        return sums | {"next/loss": by_group, "not named": by_group.sum()}


def test_the_losses_of_a_thousand_pairs_are_read_at_once(monkeypatch):
    model = Grouped()
    work = step_work(model, Batches(), CONFIG, 0)
    work += step_work(model, Batches(), CONFIG, 1)
    expected = dict.fromkeys(model.names, 0.0)
    for batch in (micro_batch.batch for micro_batch in work):
        out = model(batch, None)
        expected["next"] += out["next"].item()
        for group, loss in zip(model.groups, out["next/loss"]):
            expected[f"next/loss/{group}"] += loss.item()
    reads = []
    for name in ("item", "tolist"):
        plain = getattr(torch.Tensor, name)
        counted = lambda tensor, plain=plain, name=name: reads.append(name) or plain(tensor)
        monkeypatch.setattr(torch.Tensor, name, counted)
    sums, _ = accumulate_gradients(model, work)
    assert reads == ["tolist"]
    assert sums == expected  # to the last bit


def test_step_batches_are_the_prepared_batches_of_a_step():
    batches = Batches()
    first, second = StepBatches(Table(), batches, CONFIG)(2)
    assert [row[:2] for row in batches.made] == [(2, 0), (2, 1)]
    expected = Table().prepare(Batches()(2, 1), torch_generator(CONFIG.seed, "prepare", 2, 1))
    assert torch.equal(second[0]["masked"], expected["masked"]) and len(first) == 1
