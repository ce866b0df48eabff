"""What the training notebook does badly: two processes, each with everything or with a share, one of them killed; a
disk that is really full."""

import os, resource, shutil, signal, subprocess, sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import xlnb.training.training as training
from xlnb.base.core import ConfigError, DataError, torch_generator
from xlnb.encoder.encoder import config_for, load, new_model
from xlnb.encoder.heads import EncoderForMaskedLM, EncoderForReplacedTokens, share_embeddings
from xlnb.training.objectives import masked_lm_loss, replaced_tokens, rtd_loss
import xlnb.training.processes as processes
from xlnb.training.processes import LostProcess, rank_and_world, start_processes
from xlnb.training.training import (
    CheckpointError,
    TrainingConfig,
    accumulate_gradients,
    check_processes,
    distribute,
    unsharded,
    is_sharded,
    latest_checkpoint,
    load_weights,
    read_log,
    resume,
    step_work,
    train,
)

PIECES = 300
WIDTH = 32
# Of weights after 6 to 9 steps in float64. Attention does not depend on the bias of keys: its
# gradients are rounding
# errors of about 1e-17. Adam divides them by eps = 1e-8 at least, which moves such a bias by 1e-14,
# all else by less.
# Five digits are to spare for other processors. Drawn tokens are the same, since float64 leaves no
# near ties.
ROUNDING = dict(rtol=0, atol=1e-9)


class Pair(nn.Module):
    "Generator and discriminator over one embedding matrix, two blocks each, as XLM-E builds them."

    weights = {"mlm": 1.0, "rtd": 5.0}
    names = ("mlm", "rtd", "rtd/replaced")

    def __init__(self, dtype=torch.float64):
        super().__init__()
        shape = dict(
            hidden_size=WIDTH,
            intermediate_size=64,
            num_hidden_layers=2,
            relative_positions="gated",
            norm="pre",
            initializer_range=WIDTH**-0.5,
        )

        def build(kind, seed):
            return new_model(kind, config_for("tiny", PIECES, **shape), seed).to(dtype)

        self.generator = build(EncoderForMaskedLM, 0)
        self.discriminator = build(EncoderForReplacedTokens, 1)
        share_embeddings(self.generator, self.discriminator)

    def prepare(self, batch, generator):
        hole = torch.rand(batch["input_ids"].shape, generator=generator) < 0.2
        ids = batch["input_ids"]
        return {
            **batch,
            "input_ids": ids.masked_fill(hole, PIECES - 1),
            "labels": ids.masked_fill(~hole, -100),
        }

    def counts(self, batch):
        return {
            "mlm": int((batch["labels"] != -100).sum()),
            "rtd": int(batch["attention_mask"].sum()),
        }

    def forward(self, batch, generator):
        head = self.generator.head
        mask = batch["attention_mask"]
        hidden = self.generator.encoder(batch["input_ids"], mask).last_hidden_state
        out = masked_lm_loss(
            hidden,
            batch["labels"],
            head.transform,
            head.weight,
            head.bias,
            sample=True,
            generator=generator,
        )
        ids, labels = replaced_tokens(batch["input_ids"], batch["labels"], out.samples)
        loss, _ = rtd_loss(self.discriminator(ids, mask).logits, labels, mask)
        return {"mlm": out.loss_sum, "rtd": loss, "rtd/replaced": labels.sum()}

    def save_pretrained(self, folder):
        for part in ("generator", "discriminator"):
            getattr(self, part).save_pretrained(Path(folder) / part)

    def load_pretrained(self, folder):
        for part in ("generator", "discriminator"):
            network = getattr(self, part)
            network.load_state_dict(load(Path(folder) / part, type(network)).state_dict())


class Batches:
    "Micro-batches of unequal size and length, the shorter rows padded."

    def __init__(self, micro_batches=4):
        self.micro_batches = micro_batches

    def __call__(self, step, index):
        ids = torch.randint(
            5, PIECES - 1, (3, 8 + 4 * index), generator=torch_generator(step, index)
        )
        mask = torch.ones_like(ids)
        mask[1, 6:] = 0
        return {"input_ids": ids, "attention_mask": mask}

    def state(self):
        return {}

    def load_state(self, state):
        pass


CONFIG = TrainingConfig(steps=6, learning_rate=3e-3, warmup_steps=2)
LONGER = replace(CONFIG, steps=9)


class Stopped(Exception):
    pass


def gradients(parallel, dtype):
    "Every gradient of the first step, whole, and its losses."
    model = Pair(dtype)
    runner = distribute(model, replace(CONFIG, parallel=parallel))
    sums, counts = accumulate_gradients(runner, step_work(model, Batches(), CONFIG, 0))
    whole = {
        n: p.grad.full_tensor() if is_sharded(model) else p.grad
        for n, p in model.named_parameters()
    }
    return {"gradients": whole, "losses": {k: sums[k] / counts[k] for k in counts}}


def look(model):
    "An evaluation: calls parts of the model outside its own forward pass."

    def evaluate(step):
        with torch.inference_mode():
            states = model.generator.encoder(torch.arange(5, 25)[None]).last_hidden_state
        return {"held_out/sum": states.double().pow(3).sum().item()}

    return evaluate


def run(folder, config, parallel="ddp"):
    model = Pair()
    return train(
        model,
        Batches(),
        replace(config, parallel=parallel, evaluate_every=2),
        folder,
        None,
        look(model),
    )


def interrupted(folder, parallel="ddp", device="cpu"):
    "Ends in step 6 of 9, with a checkpoint after step 5."

    def stop(step):
        if step == 6:
            raise Stopped
        return {}

    config = replace(LONGER, parallel=parallel, evaluate_every=1, checkpoint_minutes=1e-9)
    with pytest.raises(Stopped):
        train(Pair().to(device), Batches(), config, folder, None, stop)


def kill_while_writing(rank):
    "The process of that rank dies in the second checkpoint: its share is on the disk, the list of shares is not."
    from torch.distributed.checkpoint import FileSystemWriter

    write = FileSystemWriter.write_data
    calls = []

    def write_and_die(self, *arguments):
        done = write(self, *arguments)
        calls.append(1)
        if len(calls) == 2 and dist.get_rank() == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    FileSystemWriter.write_data = write_and_die


def main(job, folder):
    "What each of two processes does."
    start_processes()
    rank, world = rank_and_world()
    assert world == 2
    if job == "killed":
        kill_while_writing(rank=0)
        run(folder / "fsdp", replace(LONGER, checkpoint_minutes=1e-9), "fsdp")
    if job == "resumed":  # in shares, what was killed in shares and what one process wrote whole
        for name in ("fsdp", "from-one"):
            run(folder / name, LONGER, "fsdp")
    if job == "trained":
        for parallel in ("ddp", "fsdp"):
            for dtype in (torch.float32, torch.float64):
                found = gradients(parallel, dtype)
                if rank == 0:
                    torch.save(found, folder / f"{parallel}-{dtype}.pt")
            run(folder / parallel, CONFIG, parallel)
            interrupted(folder / f"{parallel}-on-one", parallel)
        interrupted(folder / f"apart-{rank}")  # machines without a disk in common
        run(folder / f"apart-{rank}", LONGER)
        differing = {"seed": rank, "size": "tiny"}
        try:
            train(Pair(), Batches(), CONFIG, folder / "differing", differing)
        except ConfigError as e:
            (folder / f"refused-{rank}.txt").write_text(str(e))
    dist.barrier()  # a process that ends early makes the others abort
    dist.destroy_process_group()


def launch(job, folder):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        __file__,
        job,
        str(folder),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )


def weights(folder):
    "The weights of a run's newest checkpoint, in one model."
    model = Pair()
    load_weights(latest_checkpoint(folder), model)
    return model.state_dict()


def same(ours, theirs, **tolerance):
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], **tolerance)


def losses(folder):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(folder)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    "A folder with what two processes did, by DDP and by FSDP2."
    folder = tmp_path_factory.mktemp("two")
    done = launch("trained", folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    "Folders of runs of one process: of 6 steps, and of 9."
    folder = tmp_path_factory.mktemp("one")
    for config in (CONFIG, LONGER):
        run(folder / str(config.steps), config)
    return folder


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-14)], ids=["fp32", "fp64"]
)
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_have_the_losses_and_gradients_of_one(two, parallel, dtype, tolerance):
    "Sums that are taken in another order differ in their last digits: by one or two units of them, here times 5 to 45."
    ours = torch.load(two / f"{parallel}-{dtype}.pt", weights_only=False)
    alone = gradients("ddp", dtype)
    for name, loss in alone["losses"].items():
        assert ours["losses"][name] == pytest.approx(loss, rel=tolerance)
    assert ours["gradients"].keys() == alone["gradients"].keys()
    # the largest gradient is 1.7
    same(ours["gradients"], alone["gradients"], rtol=0, atol=tolerance)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_train_the_model_of_one(two, one, parallel):
    "In float64: in float32 rounding errors decide which tokens are drawn, and the runs part (see ROUNDING)."
    same(weights(two / parallel), weights(one / "6"), **ROUNDING)
    for ours, alone in zip(losses(two / parallel), losses(one / "6"), strict=True):
        assert ours == pytest.approx(alone, rel=1e-6)  # 1e-15 here; logs keep all digits
        assert ("held_out/sum" in ours) == (ours["step"] % 2 == 1)


def test_shares_are_cut_once(two):
    "An embedding matrix with three names is written once, half by each process."
    from torch.distributed.checkpoint import FileSystemReader

    whole = {name: p.shape for name, p in Pair().named_parameters()}
    content = (
        FileSystemReader(latest_checkpoint(two / "fsdp") / "shares")
        .read_metadata()
        .state_dict_metadata
    )
    assert {
        name.removeprefix("model.") for name in content if name.startswith("model.")
    } == whole.keys()
    for name, shape in whole.items():
        for kept in (
            f"model.{name}",
            f"optimizer.state.{name}.exp_avg",
            f"optimizer.state.{name}.exp_avg_sq",
        ):
            assert [chunk.sizes[0] for chunk in content[kept].chunks] == [
                -(-shape[0] // 2),
                shape[0] // 2,
            ], kept
    assert not (latest_checkpoint(two / "ddp") / "shares").exists()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_what_two_saved_one_takes_up(two, one, parallel):
    folder = two / f"{parallel}-on-one"
    assert latest_checkpoint(folder).name == "checkpoint-00000005"
    assert run(folder, LONGER)["finished"] and [line["step"] for line in read_log(folder)] == list(
        range(9)
    )
    same(weights(two / f"{parallel}-on-one"), weights(one / "9"), **ROUNDING)


def test_processes_without_a_common_disk_go_on_from_the_first_ones_checkpoint(two, one):
    same(weights(two / "apart-0"), weights(one / "9"), **ROUNDING)
    assert [line["step"] for line in read_log(two / "apart-0")] == list(range(9))
    assert not list((two / "apart-1").glob("checkpoint-*")), (
        "the second process has no checkpoint of its own"
    )


def test_processes_with_other_settings_are_refused_by_all(two):
    texts = [(two / f"refused-{rank}.txt").read_text() for rank in (0, 1)]
    assert texts[0] == texts[1]
    assert "process 1 would train something else: seed is 1 there, 0 in process 0" in texts[0]
    assert "size" not in texts[0]


def flip(path):
    "Change one bit in the middle of a file."
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("pattern", ["**/model.safetensors", "optimizer.pt", "state.json"])
def test_a_flipped_bit_is_not_loaded(tmp_path, one, pattern):
    shutil.copytree(one / "6", tmp_path / "run")
    flip(sorted(latest_checkpoint(tmp_path / "run").glob(pattern))[0])
    with pytest.raises(
        CheckpointError, match="checkpoint-00000006 is damaged.*the run goes on from the start"
    ):
        run(tmp_path / "run", LONGER)


DAMAGED = {
    "an empty optimiser": ("optimizer.pt", b""),
    "half an optimiser": ("optimizer.pt", None),
    "an empty state": ("state.json", b"{}"),
    "a list": ("state.json", b"[]"),
    "a pointer": ("generator/model.safetensors", b"version https://git-lfs.github.com/spec/v1\n"),
    "half a network": ("generator/model.safetensors", None),
}


@pytest.mark.parametrize("name, content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_checkpoint_without_checksums_is_named(tmp_path, one, name, content):
    "As older versions wrote them."
    shutil.copytree(one / "6", tmp_path / "run")
    path = latest_checkpoint(tmp_path / "run")
    (path / "checksums.json").unlink()
    data = (path / name).read_bytes()
    (path / name).write_bytes(data[: len(data) // 2] if content is None else content)
    with pytest.raises(CheckpointError, match="damaged.*delete .*checkpoint-00000006"):
        run(tmp_path / "run", LONGER)


def test_an_older_checkpoint_stays_until_the_new_one_has_been_read(tmp_path, monkeypatch):
    interrupted(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(CheckpointError):
        write = training._write_full
        patch.setattr(
            training,
            "_write_full",
            lambda path, *rest: (write(path, *rest), flip(path / "optimizer.pt")),
        )
        run(tmp_path, LONGER)
    assert sorted(p.name for p in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-00000005",
        "checkpoint-00000009",
    ]
    with pytest.raises(CheckpointError, match="the run goes on from step 5"):
        run(tmp_path, LONGER)
    shutil.rmtree(tmp_path / "checkpoint-00000009")
    assert run(tmp_path, LONGER)["finished"]


@pytest.mark.parametrize(
    "text, said",
    [
        ('{"step": 0}\n{"st', None),
        ('{"step": 0}\n{"st\n', "2: no line of a log"),
        ("[1]\n", "1: .* is no line of a log"),
        ("[" * 10**5 + "\n", "1: no line"),
    ],
)
def test_a_damaged_line_of_a_log_is_named(tmp_path, text, said):
    (tmp_path / "log.jsonl").write_text(text)
    if said is None:
        assert read_log(tmp_path) == [{"step": 0}]
    else:
        with pytest.raises(DataError, match=f"log.jsonl:{said}"):
            read_log(tmp_path)


def test_a_deleted_log_is_said_and_recorded(tmp_path):
    interrupted(tmp_path)
    (tmp_path / "log.jsonl").unlink()
    with pytest.warns(UserWarning, match="lines before that step are lost"):
        summary = run(tmp_path, LONGER)
    assert summary["log_lost_until"] == 5 and [line["step"] for line in read_log(tmp_path)] == [
        5,
        6,
        7,
        8,
    ]


@pytest.mark.parametrize(
    "name", ["learning_rate", "checkpoint_minutes", "max_minutes", "clip_norm", "weight_decay"]
)
def test_nan_is_no_setting(name):
    with pytest.raises(ConfigError, match=f"{name}=nan"):
        replace(CONFIG, **{name: float("nan")})


@pytest.mark.parametrize(
    "name, value",
    [
        ("clip_norm", 0.0),
        ("clip_norm", -1.0),
        ("evaluate_every", -5),
        ("snapshot_every", -1),
        ("steps", 2.5),
        ("steps", 0),
        ("learning_rate", -1e-3),
        ("weight_decay", -0.1),
        ("eps", -1.0),
    ],
)
def test_a_setting_out_of_range_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        replace(CONFIG, **{name: value})


def test_a_run_may_have_no_checkpoint_on_the_way():
    never = float("inf")
    assert replace(CONFIG, checkpoint_minutes=never).checkpoint_minutes == never


def test_copies_of_a_checkpoint_are_neither_resumed_from_nor_deleted(tmp_path):
    small = replace(CONFIG, steps=2)
    train(Table(), Batches(), small, tmp_path)
    newest = tmp_path / "checkpoint-00000002"
    for name in ("checkpoint-00000002-backup", "checkpoint-old"):
        shutil.copytree(newest, tmp_path / name)
    (tmp_path / "checkpoint-notes").mkdir()
    (tmp_path / "checkpoint-00000009").write_text("no folder")
    assert latest_checkpoint(tmp_path) == newest
    train(Table(), Batches(), replace(small, steps=4), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoint-00000002-backup",
        "checkpoint-00000004",
        "checkpoint-00000009",
        "checkpoint-notes",
        "checkpoint-old",
        "log.jsonl",
    }


def test_a_resumed_optimiser_has_the_settings_of_the_call(tmp_path):
    train(Table(), Batches(), replace(CONFIG, steps=2), tmp_path)
    config = replace(CONFIG, weight_decay=0.5, betas=(0.5, 0.6), eps=1e-3)
    _, optimizer, state = resume(Table(), config, tmp_path, {})
    group = optimizer.param_groups[0]
    assert state["step"] == 2 and optimizer.state
    assert (group["weight_decay"], group["betas"], group["eps"]) == (0.5, (0.5, 0.6), 1e-3)


@pytest.mark.parametrize("every, seen", [(0, []), (2, [1])])
def test_at_a_time_limit_it_evaluates_where_it_evaluates_at_all(tmp_path, every, seen):
    steps = []

    def evaluate(step):
        steps.append(step)
        return {"dev/loss": 1.0}

    config = replace(CONFIG, max_minutes=1e-9, evaluate_every=every)
    train(Table(), Batches(), config, tmp_path, evaluate=evaluate)
    assert steps == seen


def test_a_metric_does_not_replace_the_loss(tmp_path):
    config = replace(CONFIG, evaluate_every=1)
    with pytest.raises(ConfigError, match="evaluate returns loss, which the log has"):
        train(Table(), Batches(), config, tmp_path, evaluate=lambda step: {"loss": 9.0})


@pytest.mark.slow
def test_killed_while_writing_shares_and_taken_up_by_two(one, tmp_path):
    "Also: a checkpoint that one process wrote whole is taken up in shares."
    interrupted(tmp_path / "from-one")
    done = launch("killed", tmp_path)
    assert done.returncode != 0 and "SIGKILL" in done.stderr
    assert [p.name for p in (tmp_path / "fsdp").glob("checkpoint-*")] == ["checkpoint-00000001"]
    (left,) = (tmp_path / "fsdp").glob(".*")
    assert list(left.rglob("*.distcp")), "the kill came before anything was written"
    done = launch("resumed", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("fsdp", "from-one"):
        same(weights(tmp_path / name), weights(one / "9"), **ROUNDING)
        assert [line["step"] for line in read_log(tmp_path / name)] == list(range(9))
        assert sorted(p.name for p in (tmp_path / name).iterdir()) == [
            "checkpoint-00000009",
            "log.jsonl",
        ]


@pytest.fixture
def group():
    "A process group of this process alone."
    kind = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(kind, store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_shares_appear_only_when_all_is_written(group, tmp_path, monkeypatch):
    "The last moment: everything is on the disk but the name."
    run(tmp_path, CONFIG, "fsdp")

    def fail(*_):
        raise OSError(5, "Input/output error")

    with (
        monkeypatch.context() as patch,
        pytest.raises(CheckpointError, match="goes on from .*checkpoint-00000006"),
    ):
        patch.setattr(training.os, "replace", fail)
        run(tmp_path, LONGER, "fsdp")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-00000006", "log.jsonl"]
    assert run(tmp_path, LONGER, "fsdp")["finished"]


def test_damaged_shares_are_named(group, tmp_path):
    run(tmp_path, CONFIG, "fsdp")
    for file in latest_checkpoint(tmp_path).rglob("*.distcp"):
        file.unlink()
    for attempt in (lambda: run(tmp_path, LONGER, "fsdp"), lambda: weights(tmp_path)):
        with pytest.raises(CheckpointError, match="checkpoint-00000006 is damaged"):
            attempt()


@pytest.mark.gpu
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_bf16_on_a_gpu(parallel, group, tmp_path):
    "Blocks travel as bf16; weights, their gradients and the moments stay float32."
    device = start_processes()
    config = replace(CONFIG, precision="bf16", steps=30)
    model = Pair(torch.float32).to(device)
    summary = train(model, Batches(), replace(config, parallel=parallel), tmp_path)
    log = read_log(tmp_path)
    assert summary["finished"] and log[-1]["mlm"] < log[0]["mlm"]
    assert all(p.dtype == torch.float32 and p.device.type == "cuda" for p in model.parameters())
    with unsharded(model, "bf16"), torch.inference_mode():
        block = model.discriminator.encoder.layers[0]
        assert model.generator.get_input_embeddings().weight.dtype == torch.float32
        hidden = model.discriminator.encoder(
            torch.arange(5, 25, device=device)[None], output_hidden_states=True
        )
    assert hidden.hidden_states[0].dtype == torch.float32 and is_sharded(block) == (
        parallel == "fsdp"
    )


def stopped_and_not(folder, device):
    "Losses and weights of a run that was stopped and went on, beside those of one that was not."
    interrupted(folder / "stopped", device=device)
    for name in ("stopped", "whole"):
        train(Pair().to(device), Batches(), LONGER, folder / name)
    ours, theirs = (losses(folder / name) for name in ("stopped", "whole"))
    assert [line["step"] for line in ours] == [line["step"] for line in theirs] == list(range(9))
    for line, other in zip(ours, theirs):
        assert line == pytest.approx(other, abs=ROUNDING["atol"])
    kept = weights(folder / "stopped")
    assert {w.device.type for w in kept.values()} == {"cpu"}
    same(kept, weights(folder / "whole"), **ROUNDING)


def test_stopped_it_goes_on_to_the_same_losses(tmp_path):
    stopped_and_not(tmp_path, "cpu")


@pytest.mark.gpu
def test_stopped_on_a_gpu_it_goes_on_there_and_loads_on_a_cpu(tmp_path):
    stopped_and_not(tmp_path, "cuda")


class Table(nn.Module):
    "A model of one large tensor."

    weights = {"lm": 1.0}
    names = ("lm",)

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.ones(PIECES, 100))

    def prepare(self, batch, generator):
        return batch

    def counts(self, batch):
        return {"lm": batch["input_ids"].numel()}

    def forward(self, batch, generator):
        return {"lm": self.table[batch["input_ids"]].square().sum()}

    def save_pretrained(self, folder):
        Path(folder).mkdir(parents=True)
        torch.save(self.state_dict(), Path(folder) / "model.pt")

    def load_pretrained(self, folder):
        self.load_state_dict(torch.load(Path(folder) / "model.pt", weights_only=True))


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_full_disk_leaves_the_last_checkpoint_whole(group, tmp_path, parallel):
    "The kernel refuses the write in the middle of a file, as it does on a full disk."
    config = replace(CONFIG, parallel=parallel)
    train(Table(), Batches(), config, tmp_path)

    def contents():
        return {p: p.read_bytes() for p in latest_checkpoint(tmp_path).rglob("*") if p.is_file()}

    before = contents()
    longer = replace(config, steps=8)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="free some space"):
            train(Table(), Batches(), longer, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert contents() == before
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    train(Table(), Batches(), longer, tmp_path)
    assert latest_checkpoint(tmp_path).name == "checkpoint-00000008"


def test_a_process_that_would_train_something_else_is_named(monkeypatch):
    "The second process of two has other settings; each of them gets the same sentence."
    monkeypatch.setattr(training.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(training, "gathered", lambda facts: [facts, facts | {"seed": 1}])
    says = "process 1 would train something else: seed is 1 there, 0 in process 0; start all"
    with pytest.raises(ConfigError, match=says):
        check_processes(Table(), {"seed": 0, "size": "tiny"})


def test_an_error_of_the_communication_is_a_sentence(monkeypatch):
    monkeypatch.setattr(training.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(processes, "rank_and_world", lambda: (1, 2))
    with pytest.raises(LostProcess, match="process 1 of 2 has lost another one"):
        with processes.naming_lost_processes():
            raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    with pytest.raises(RuntimeError, match="shapes"), processes.naming_lost_processes():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_a_step_cannot_be_shared_unevenly(monkeypatch, tmp_path):
    monkeypatch.setattr("xlnb.training.training.rank_and_world", lambda: (0, 3))
    with pytest.raises(
        ValueError, match="a step has 4 micro-batches, which 3 processes cannot share"
    ):
        train(Table(), Batches(), CONFIG, tmp_path)


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("library, kept", [("glibc", True), ("", False)])
def test_freed_memory_is_kept_with_glibc_alone(library, kept, monkeypatch):
    monkeypatch.setattr(training.platform, "libc_ver", lambda: (library, ""))
    monkeypatch.setattr(
        training.ctypes, "CDLL", lambda name: type("Library", (), {"mallopt": lambda *_: 1})
    )
    assert training.keep_freed_memory() is kept


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))


class Parts(Table):
    "A model whose micro-batches have two parts, which draws a number in each."

    def __init__(self):
        super().__init__()
        self.drawn = []

    def prepare(self, batch, generator):
        return [batch, batch]

    def forward(self, batch, generator):
        self.drawn.append(torch.rand(1, generator=generator).item())
        return super().forward(batch, generator)


def test_parts_of_a_micro_batch_draw_other_numbers(tmp_path):
    model = Parts()
    train(model, Batches(), replace(CONFIG, steps=1, warmup_steps=1), tmp_path)
    assert len(model.drawn) == len(set(model.drawn)) == 8
