"What the training notebook does badly: several processes, and a disk that is really full."
import os, resource, signal, subprocess, sys
from pathlib import Path

import pytest
import torch
from torch import nn

from xlnb.core import torch_generator
from xlnb.training import CheckpointError, TrainingConfig, latest_checkpoint, rank_and_world, start_processes, train


class Model(nn.Module):
    "Next-symbol guesser with noise in prepare and forward, so that a wrong generator shows."
    weights, names = {"lm": 1.0, "aux": 0.5}, ("lm", "aux")

    def __init__(self, width=6):
        super().__init__()
        self.table, self.out = nn.Embedding(11, width), nn.Linear(width, 11)
        for p in self.parameters(): nn.init.normal_(p, generator=torch_generator(0, "init"))

    def prepare(self, batch, generator):
        drop = torch.rand(batch["labels"].shape, generator=generator) < 0.5
        return {**batch, "labels": batch["labels"].masked_fill(drop, -100)}

    def counts(self, batch):
        return {"lm": int((batch["labels"] >= 0).sum()), "aux": batch["labels"].numel()}

    def forward(self, batch, generator):
        hidden = self.table(batch["input_ids"])
        logits = self.out(hidden + 0.1 * torch.randn(hidden.shape, generator=generator))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="sum")
        return {"lm": loss, "aux": hidden.square().sum()}

    def save_pretrained(self, folder):
        Path(folder).mkdir(parents=True)
        torch.save(self.state_dict(), Path(folder) / "model.pt")

    def load_pretrained(self, folder): self.load_state_dict(torch.load(Path(folder) / "model.pt", weights_only=True))


class Batches:
    micro_batches = 2

    def __call__(self, step, index):
        ids = torch.randint(11, (3, 5 + 4 * index), generator=torch_generator(step, index))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": (ids * 3 + 1) % 11}

    def state(self): return {}
    def load_state(self, state): pass


CONFIG = TrainingConfig(steps=12, learning_rate=0.03, warmup_steps=2)


def test_two_processes_take_the_steps_of_one(tmp_path):
    one = Model()
    train(one, Batches(), CONFIG, tmp_path / "one")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1",
               "--master-port=0", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", __file__, str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=240, env=environment)
    two = torch.load(latest_checkpoint(tmp_path / "two") / "model.pt", weights_only=True)
    for name, value in one.state_dict().items(): torch.testing.assert_close(two[name], value, atol=1e-6, rtol=1e-6)


def test_full_disk_leaves_the_last_checkpoint_whole(tmp_path):
    "The kernel refuses the write in the middle of a file, as it does on a full disk."
    train(Model(600), Batches(), CONFIG, tmp_path)
    before = {p: p.read_bytes() for p in latest_checkpoint(tmp_path).rglob("*") if p.is_file()}
    longer = TrainingConfig(steps=20, learning_rate=0.03, warmup_steps=2)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="free some space"): train(Model(600), Batches(), longer, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert {p: p.read_bytes() for p in latest_checkpoint(tmp_path).rglob("*") if p.is_file()} == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    train(Model(600), Batches(), longer, tmp_path)
    assert latest_checkpoint(tmp_path).name == "checkpoint-00000020"


def test_a_step_cannot_be_shared_unevenly(monkeypatch, tmp_path):
    monkeypatch.setattr("xlnb.training.rank_and_world", lambda: (0, 3))
    with pytest.raises(ValueError, match="a step has 2 micro-batches, which 3 processes cannot share"):
        train(Model(), Batches(), CONFIG, tmp_path)


if __name__ == "__main__":
    start_processes()
    assert rank_and_world()[1] == 2
    train(Model(), Batches(), CONFIG, sys.argv[1])
