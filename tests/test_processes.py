"Two machines, here folders: a run stopped and resumed, refused by both, killed on one; fine-tuning by both as by one."

import json, os, shutil, signal, socket, subprocess, sys, time
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_tokens import WORDS, sentences, word_tokenizer
from test_evaluation import WORDS as WORDS_OF_XNLI, data, pairs  # noqa: F401 (a fixture)
from test_finetuning import task_of
from warm import IMPORTED, run_module

from xlnb.base.core import CheckpointError
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.measures.finetuning import FineTuning, train_head
from xlnb.text.vocab import train_vocab
from xlnb.training.averaging import run_snapshots
from xlnb.training.processes import start_processes
from xlnb.training.training import read_log

pytestmark = pytest.mark.slow

STEPS = 8
SETTINGS = {
    "steps": STEPS,
    "batch-tokens": 256,
    "micro-tokens": 128,
    "width": 32,
    "layers": 2,
    "langs": "de,en",
    "max-minutes": 20,
    "checkpoint-minutes": 1e-9,
    "tasks": "mlm",
}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def _join(rank: int, port: int, machine: Path):
    "What `torchrun` gives a process, with folders and output of its own."
    machine.mkdir(parents=True, exist_ok=True)
    for number, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(machine / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"XLNB_ROOT": str(machine), "XLNB_RESULTS": str(machine / "results")}
    torch.set_num_threads(1)


def _train(rank: int, port: int, machine: Path, settings: dict):
    "The command that trains."
    _join(rank, port, machine)
    from xlnb import xlm_e
    from xlnb.pretraining.pretraining import main

    paths = {
        "corpus": machine / "text",
        "vocabulary": machine / "vocabulary",
        "out": machine / "run",
    }
    arguments = [f"--{name}={value}" for name, value in (SETTINGS | paths | settings).items()]
    main(xlm_e.RECIPE, arguments)


class Machines:
    "Two processes that have been started, each in a folder of its own."

    def __init__(self, folder: Path, *settings, command=_train):
        self.folders = [folder / str(rank) for rank in range(2)]
        port = free_port()
        context = get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        self.processes = []
        for rank, machine in enumerate(self.folders):
            own = settings[rank] if settings else {}
            process = context.Process(target=command, args=(rank, port, machine, own))
            process.start()
            self.processes.append(process)

    def ended(self, seconds: float = 240) -> list[int]:
        "The exit statuses, when both have ended; a process that has not by then is killed."
        limit = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0, limit - time.monotonic()))
        late = [process for process in self.processes if process.exitcode is None]
        for process in late:
            process.kill()
            process.join()
        assert not late, self.said()
        return [process.exitcode for process in self.processes]

    def said(self) -> list[str]:
        return [(folder / "errors").read_text() for folder in self.folders]

    def sentences(self) -> list[str]:
        "The last line that each process wrote."
        return [["", *text.strip().splitlines()][-1] for text in self.said()]

    def wait_for_steps(self, count: int):
        limit = time.monotonic() + 240
        while len(read_log(self.folders[0] / "run")) < count:
            assert time.monotonic() < limit and self.processes[0].is_alive(), self.said()
            time.sleep(0.02)


def write_text(folder: Path, seed: int = 0):
    folder.mkdir(parents=True)
    for lang, number in (("de", 2 * seed), ("en", 2 * seed + 1)):
        lines = sentences(number, 1_500)
        (folder / f"{lang}.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    "Folders of two machines, with the same text and vocabulary."
    folder = tmp_path_factory.mktemp("machines")
    for machine in ("0", "1"):
        write_text(folder / machine / "text")
        word_tokenizer(WORDS).save_pretrained(folder / machine / "vocabulary")
    return folder


def copy_of(machines: Path, folder: Path) -> Path:
    shutil.copytree(machines, folder)
    return folder


@pytest.fixture(scope="module")
def whole(machines, tmp_path_factory):
    "The run that nothing interrupts."
    folder = copy_of(machines, tmp_path_factory.mktemp("whole") / "machines")
    run = Machines(folder)
    assert run.ended() == [0, 0], run.said()
    return folder


def _train_until(rank: int, port: int, machine: Path, settings: dict):
    "Killed when the checkpoint of a step is written, before the next one."
    import xlnb.training.training as training

    last = settings.pop("last")
    save = training._save

    def save_and_die(folder, model, optimizer, batches, state, log):
        save(folder, model, optimizer, batches, state, log)
        if state["step"] == last:
            os.kill(os.getpid(), signal.SIGKILL)

    training._save = save_and_die
    _train(rank, port, machine, settings)


@pytest.fixture(scope="module")
def stopped(machines, tmp_path_factory):
    "Folders after two steps, and after four, both times killed."
    folders = []
    folder = machines
    for name, steps in (("older", 2), ("newer", 4)):
        folder = copy_of(folder, tmp_path_factory.mktemp(name) / "machines")
        run = Machines(folder, *[{"last": steps}] * 2, command=_train_until)
        assert -signal.SIGKILL in run.ended(), run.said()
        assert checkpoints(folder / "0") == [f"checkpoint-0000000{steps}"]
        folders.append(folder)
    return folders


def weights(folder: Path) -> dict:
    return load_file(folder / "0" / "run" / "generator" / "model.safetensors")


def assert_same(folder: Path, whole: Path):
    ours = weights(folder)
    theirs = weights(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    logs = [read_log(path / "0" / "run") for path in (folder, whole)]
    losses = [[(line["step"], line["loss"]) for line in log] for log in logs]
    assert losses[0] == losses[1]


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "run").glob("checkpoint-*"))


@pytest.mark.parametrize("second", ["none", "older"])
def test_the_steps_continue_whatever_the_second_machine_has(tmp_path, stopped, whole, second):
    older, newer = stopped
    folder = copy_of(newer, tmp_path / "machines")
    assert checkpoints(folder / "1") == [], "only the first writes"
    if second == "older":
        shutil.copytree(older / "0" / "run", folder / "1" / "run", dirs_exist_ok=True)
        assert checkpoints(folder / "1") < checkpoints(folder / "0")
    run = Machines(folder)
    assert run.ended() == [0, 0], run.said()
    assert_same(folder, whole)


@pytest.mark.parametrize("first", ["none", "older"])
def test_a_newer_checkpoint_elsewhere_is_a_refusal(tmp_path, stopped, first):
    "The machines were given in another order: the one that wrote is the second now."
    older, newer = stopped
    folder = copy_of(newer, tmp_path / "machines")
    shutil.copytree(folder / "0" / "run", folder / "1" / "run", dirs_exist_ok=True)
    shutil.rmtree(folder / "0" / "run")
    if first == "older":
        shutil.copytree(older / "0" / "run", folder / "0" / "run")
    before = checkpoints(folder / "0")
    run = Machines(folder)
    assert run.ended() == [1, 1], run.said()
    first_sentence, second_sentence = run.sentences()
    assert first_sentence == second_sentence
    assert first_sentence.startswith(f"xlnb: process 1 has {folder / '1' / 'run' / 'checkpoint-'}")
    assert f"and process 0 {before[0] if before else 'no checkpoint'}" in first_sentence
    assert "the first (--node-rank 0), or delete" in first_sentence
    assert checkpoints(folder / "0") == before


def test_another_text_is_a_refusal(tmp_path, stopped):
    folder = copy_of(stopped[1], tmp_path / "machines")
    shutil.rmtree(folder / "1" / "text")
    write_text(folder / "1" / "text", seed=5)
    run = Machines(folder)
    assert run.ended() == [1, 1], run.said()
    first, second = run.sentences()
    assert first == second
    assert "process 1 would train something else: corpus is 'text@" in first
    assert "start all processes with the same command" in first


def test_another_vocabulary_is_a_refusal(tmp_path, stopped):
    folder = copy_of(stopped[1], tmp_path / "machines")
    shutil.rmtree(folder / "1" / "vocabulary")
    word_tokenizer(WORDS[::-1]).save_pretrained(folder / "1" / "vocabulary")
    run = Machines(folder)
    assert run.ended() == [1, 1], run.said()
    first, second = run.sentences()
    assert first == second
    assert "process 1 would train something else" in first and "vocabulary is '" in first


def test_text_that_one_machine_lacks_is_a_refusal(tmp_path, machines):
    folder = copy_of(machines, tmp_path / "machines")
    shutil.rmtree(folder / "1" / "text")
    run = Machines(folder)
    assert run.ended() == [1, 1], run.said()
    first, second = run.sentences()
    assert first == second and first.startswith("xlnb: process 1: ")
    assert str(folder / "1" / "text") in first


def test_shards_need_a_folder_in_common(tmp_path, machines):
    folder = copy_of(machines, tmp_path / "machines")
    run = Machines(folder, {"parallel": "fsdp"}, {"parallel": "fsdp"})
    assert run.ended() == [1, 1], run.said()
    first, second = run.sentences()
    assert first == second and "process 1 does not see" in first
    assert not [path for path in (folder / "0" / "run").iterdir() if path.name.startswith("tmp")]


def _train_by_parts(rank: int, port: int, machine: Path, settings: dict):
    "Process 0 makes its batches ahead, process 1 in the step."
    import xlnb.training.training as training

    training._has_spare_processor = lambda device: rank == 0
    _train(rank, port, machine, settings)


def test_batches_are_the_same_ahead_in_one_process_and_in_the_step_in_another(
    tmp_path, machines, whole
):
    folder = copy_of(machines, tmp_path / "machines")
    run = Machines(folder, command=_train_by_parts)
    assert run.ended() == [0, 0], run.said()
    assert_same(folder, whole)


def in_common(folder: Path, **settings) -> list[dict]:
    "Settings of two processes that share a model, for which they need a folder in common."
    return [{"parallel": "fsdp", "out": folder / "run"} | settings] * 2


def test_snapshots_of_a_sharded_run_are_networks(tmp_path, machines):
    folder = copy_of(machines, tmp_path / "machines")
    schedule = {"snapshot-every": STEPS // 2, "average-last": 2}
    run = Machines(folder, *in_common(folder, **schedule))
    assert run.ended() == [0, 0], run.said()
    snapshots = run_snapshots(folder / "run")
    assert [path.name for path in snapshots] == ["snapshot-00000004", "snapshot-00000008"]
    folders = [*snapshots, folder / "run", folder / "run" / "average-00000008-of-2"]
    first, last, final, mean = (load_file(f / "generator" / "model.safetensors") for f in folders)
    assert all(torch.equal(last[name], final[name]) for name in final)
    assert not all(torch.equal(first[name], last[name]) for name in last)
    for name, values in mean.items():
        expected = (first[name].double() + last[name].double()) / 2
        assert torch.equal(values, expected.to(values.dtype)), name


def _train_without_room(rank: int, port: int, machine: Path, settings: dict):
    "The disk is full when process 0 has the shares and writes what lies beside them."
    import xlnb.training.training as training

    def full(folder, state):
        raise OSError(28, "No space left on device", str(folder))

    training._complete = full
    _train(rank, port, machine, settings)


def test_a_full_disk_ends_both_processes_of_a_sharded_run(tmp_path, machines):
    folder = copy_of(machines, tmp_path / "machines")
    run = Machines(folder, *in_common(folder), command=_train_without_room)
    assert run.ended(120) == [1, 1], run.said()
    first, second = run.sentences()
    assert first == second and "could not be written" in first and "No space left" in first


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_other_within_a_minute(tmp_path, machines, killed):
    folder = copy_of(machines, tmp_path / "machines")
    run = Machines(folder, {"steps": 100_000}, {"steps": 100_000})
    run.wait_for_steps(2)
    run.processes[killed].kill()
    statuses = run.ended(60)
    assert statuses[killed] == -signal.SIGKILL and statuses[1 - killed] == 1
    sentence = run.sentences()[1 - killed]
    assert sentence.startswith(f"xlnb: process {1 - killed} of 2 has lost another one")
    assert "the run resumes at its last checkpoint" in sentence


def children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are read from /proc")
def test_torchrun_ends_all_within_a_minute_when_one_is_killed(tmp_path, machines):
    machine = copy_of(machines, tmp_path / "machines") / "0"
    paths = {
        "corpus": machine / "text",
        "vocabulary": machine / "vocabulary",
        "out": machine / "run",
    }
    settings = SETTINGS | paths | {"steps": 100_000}
    arguments = [f"--{name}={value}" for name, value in settings.items()]
    launcher = ["torch.distributed.run", "--nproc-per-node=2", "--master-port", str(free_port())]
    with open(tmp_path / "said", "w") as said:
        command = [sys.executable, "-m", *launcher, "-m", "xlnb.xlm_e", *arguments]
        environment = os.environ | {"XLNB_ROOT": str(machine), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
    limit = time.monotonic() + 240
    while len(read_log(machine / "run")) < 2 and time.monotonic() < limit:
        time.sleep(0.05)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    assert process.wait(60) == 1
    text = (tmp_path / "said").read_text()
    assert "of 2 has lost another one, which was killed" in text, text[-2000:]
    assert text.count("Traceback (most recent call last)") == 1, "torchrun's own"


# ---------------------------------------------------------------- fine-tuning


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    "A small encoder without dropout, whose masks differ between processes."
    folder = tmp_path_factory.mktemp("encoder")
    lines = {lang: [" ".join(row[:2]) for row in pairs(lang, "dev", 60)] for lang in WORDS_OF_XNLI}
    tokenizer = train_vocab(lines, 64, tmp_path_factory.mktemp("vocabulary"))
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    config = config_for("tiny", len(tokenizer), classifier_dropout=0.0, **shape)
    new_model(Encoder, config, 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def arguments_of(model: Path, out: Path, **changes) -> list[str]:
    settings = dict(
        model=model,
        tasks="xnli",
        train_split="dev",
        epochs=2,
        learning_rate=3e-3,
        out=out,
        name="toy",
    )
    words = []
    for name, value in (settings | changes).items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return [*words, "--controls", "False"]


def _evaluate(rank: int, port: int, machine: Path, settings: dict):
    "The command that evaluates."
    _join(rank, port, machine)
    os.environ["XLNB_DATA"] = settings.pop("data")
    from xlnb.evaluation import main

    out = settings.pop("out", machine / "out")
    main(arguments_of(settings.pop("model"), out, **settings))


@pytest.fixture(scope="module")
def by_one(encoder, data, tmp_path_factory):  # noqa: F811
    "The files of an evaluation by one process."
    folder = tmp_path_factory.mktemp("one")
    environment = {
        "XLNB_DATA": str(data),
        "XLNB_RESULTS": str(folder / "results"),
        "OMP_NUM_THREADS": "1",
    }
    arguments = arguments_of(encoder, folder / "out")
    done = run_module("xlnb.evaluation", *arguments, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def head_of(out: Path) -> Path:
    (best,) = out.glob("xnli-*/best")
    return best


def scores_of(out: Path) -> str:
    (path,) = out.glob("*.csv")
    return path.read_text()


# of a learning rate of 3e-3 and float32 sums in another order, over 10 steps
HEAD_ROUNDING = dict(rtol=1e-3, atol=1e-4)


def test_two_processes_fine_tune_as_one(tmp_path, encoder, data, by_one):  # noqa: F811
    run = Machines(tmp_path, *[{"data": str(data), "model": encoder}] * 2, command=_evaluate)
    assert run.ended() == [0, 0], run.said()
    ours = tmp_path / "0" / "out"
    assert scores_of(ours) == scores_of(by_one)
    notes = [json.loads((head_of(out) / "selection.json").read_text()) for out in (ours, by_one)]
    assert notes[0] == notes[1]
    weights = [load_file(head_of(out) / "model.safetensors") for out in (ours, by_one)]
    for name in weights[1]:
        torch.testing.assert_close(weights[0][name], weights[1][name], **HEAD_ROUNDING)
    assert not (tmp_path / "1" / "out").exists(), "only process 0 writes"


def _fine_tune(rank: int, port: int, machine: Path, settings: dict):
    _join(rank, port, machine)
    start_processes()
    fine_tune(machine / "out", **settings)


def fine_tune(out: Path, kind: str, encoder: Path):
    recipe = FineTuning(epochs=1, learning_rate=3e-3, batch_size=13)
    assert train_head(encoder, task_of(kind), recipe, 0, out)["finished"]


@pytest.mark.parametrize("kind", ["classification", "choice", "question answering"])
def test_an_example_alone_in_its_step_is_counted_once(tmp_path, encoder, kind):
    "40 examples in steps of 13: in the last step one process has none, and takes part."
    run = Machines(tmp_path, *[{"kind": kind, "encoder": encoder}] * 2, command=_fine_tune)
    assert run.ended() == [0, 0], run.said()
    fine_tune(tmp_path / "one", kind, encoder)
    logs = [read_log(path) for path in (tmp_path / "0" / "out", tmp_path / "one")]
    for ours, alone in zip(*logs, strict=True):
        assert ours["loss"] == pytest.approx(alone["loss"], rel=1e-4)


def test_an_error_of_one_task_ends_neither(tmp_path, encoder, data):  # noqa: F811
    run = Machines(tmp_path, *[{"data": str(data), "model": tmp_path}] * 2, command=_evaluate)
    assert run.ended() == [1, 1], run.said()
    assert "holds no encoder" in run.sentences()[0]


def test_a_model_that_one_machine_lacks_is_said(tmp_path, encoder, data):  # noqa: F811
    "Each machine has a model in a folder of its own name, as `scratch` disks have."
    settings = {"data": str(data), "model": encoder}
    run = Machines(tmp_path, *[settings] * 2, command=_evaluate_without)
    assert run.ended() == [1, 1], run.said()
    assert "process 1: " in run.said()[0] and "nothing could be tested" in run.said()[0]


def _evaluate_without(rank: int, port: int, machine: Path, settings: dict):
    if rank:
        import xlnb.measures.finetuning as finetuning

        finetuning.model_folder = lambda model: machine / "absent"
    _evaluate(rank, port, machine, settings)


def _evaluate_damaged(rank: int, port: int, machine: Path, settings: dict):
    if rank:
        import xlnb.measures.task_runs as task_runs

        def damaged(best, kind):
            raise CheckpointError(f"{best} is damaged")

        task_runs.load_head = damaged
    _evaluate(rank, port, machine, settings)


def test_a_head_that_one_process_cannot_read_ends_both(tmp_path, encoder, data):  # noqa: F811
    "In a folder in common, which both see."
    settings = {"data": str(data), "model": encoder, "out": tmp_path / "out"}
    run = Machines(tmp_path, *[settings] * 2, command=_evaluate_damaged)
    assert run.ended(120) == [1, 1], run.said()
    assert "process 1: " in run.said()[0] and "is damaged" in run.said()[0]
