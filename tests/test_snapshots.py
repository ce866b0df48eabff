"Snapshots of a run and their mean: what a killed run leaves, what a continued one writes, what is refused."

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import toy_paper
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

import xlnb.training.averaging as averaging
from xlnb.base.core import CheckpointError, ConfigError, verify_checksums
from xlnb.encoder.encoder import config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.encoder.loading import model_folder, model_title
from xlnb.pretraining.pretraining import NOT_IDENTITY, run_identity, train_phase
from xlnb.training.averaging import (
    Average,
    average_checkpoints,
    buffer_names,
    main,
    mean_tensor,
    run_average,
    run_snapshots,
)

SMALL = dict(test_lines=20, langs="en,ru", layers=1, steps=6, batch_tokens=128, width=32)
SNAPSHOTS = dict(snapshot_every=2, average_last=2)


def small(**changes):
    return toy_paper.resolve(toy_paper.Settings(**SMALL | SNAPSHOTS | changes))


@pytest.fixture(scope="module")
def data():
    return toy_paper.prepare_data(small())


def train(s, data):
    return train_phase(toy_paper.PHASE, s, data)


def contents(folder) -> dict:
    "Name and bytes of every file of the snapshots and of their mean."
    files = [path for path in Path(folder).glob("[sa]*-*/**/*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def run(data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "toy"
    assert train(small(out=str(folder)), data).summary["finished"]
    return folder


def test_a_run_leaves_a_folder_of_every_snapshot(run):
    names = [path.name for path in run_snapshots(run)]
    assert names == ["snapshot-00000002", "snapshot-00000004", "snapshot-00000006"]
    for name in names:
        network = run / name / "generator"
        verify_checksums(network)
        assert AutoModel.from_pretrained(network).config.hidden_size == 32
        assert AutoTokenizer.from_pretrained(network).mask_token_id is not None
        card = (network / "README.md").read_text()
        assert (
            f"After {int(name[-1])} of 6 steps" in card
            and "- MLM loss: " in card
            and "en,ru" in card
        )
        assert str(run) not in card
    last = load_file(run / names[-1] / "generator" / "model.safetensors")
    final = load_file(run / "generator" / "model.safetensors")
    assert all(torch.equal(last[name], final[name]) for name in final)


def test_a_copy_of_a_snapshot_is_none(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "snapshot-notes.txt").write_text("mine")
    shutil.copytree(copy / "snapshot-00000002", copy / "snapshot-00000008-old")
    assert [path.name for path in run_snapshots(copy)] == [path.name for path in run_snapshots(run)]


def test_networks_of_the_same_shapes_and_another_architecture_have_no_mean(tmp_path):
    for name, heads in (("a", 4), ("b", 2), ("c", 4)):
        config = config_for("tiny", 60, num_attention_heads=heads, hidden_dropout_prob=0.1 * heads)
        new_model(EncoderForMaskedLM, config, heads).save_pretrained(tmp_path / name)
    average_checkpoints([tmp_path / "a", tmp_path / "c"], tmp_path / "mean")
    with pytest.raises(CheckpointError, match="differ .num_attention_heads: 4 and 2"):
        average_checkpoints([tmp_path / "a", tmp_path / "b"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_mean_of_the_last_is_a_network_beside_the_final_one(run):
    mean = run / "average-00000006-of-2" / "generator"
    weights = [load_file(run / f"snapshot-0000000{n}/generator/model.safetensors") for n in (4, 6)]
    for name, values in load_file(mean / "model.safetensors").items():
        expected = (weights[0][name].double() + weights[1][name].double()) / 2
        assert torch.equal(values, expected.to(values.dtype)), name
    network = EncoderForMaskedLM.from_pretrained(mean)
    assert network.head.decoder.weight is network.encoder.embeddings.word_embeddings.weight
    assert "Mean of the weights after steps 4, 6" in (mean / "README.md").read_text()
    assert model_folder(run / "average-00000006-of-2") == mean
    assert model_title(mean) == "toy-average-00000006-of-2"
    assert model_title(run / "snapshot-00000004") == "toy-snapshot-00000004"
    assert model_folder(run) == run / "generator" and model_title(run) == "toy"


def test_stopped_after_every_step_it_writes_the_same_bytes(run, data, tmp_path):
    s = small(out=str(tmp_path / "toy"), max_minutes=1e-9)
    finished = False
    while not finished:
        finished = train(s, data).summary["finished"]
        assert bool(list((tmp_path / "toy").glob("average-*"))) == finished
    assert contents(tmp_path / "toy") == contents(run)


def test_killed_while_a_snapshot_is_written_it_leaves_no_half(run, data, tmp_path, monkeypatch):
    s = small(out=str(tmp_path / "toy"), checkpoint_minutes=0.0)

    class Killed(BaseException):
        pass

    def dying(self, folder, *, save=EncoderForMaskedLM.save_pretrained):
        save(self, folder)
        if "snapshot-00000004" in str(folder):
            # as a killed process leaves it: nothing is cleared away
            unfinished = folder.parent
            shutil.copytree(unfinished, unfinished.with_name(".snapshot-00000004.123.tmp"))
            raise Killed

    with monkeypatch.context() as m:
        m.setattr(EncoderForMaskedLM, "save_pretrained", dying)
        with pytest.raises(Killed):
            train(s, data)
    names = {path.name for path in (tmp_path / "toy").glob("snapshot-*")}
    assert names == {"snapshot-00000002"}
    train(s, data)
    assert contents(tmp_path / "toy") == contents(run)
    assert not [path for path in (tmp_path / "toy").iterdir() if path.name.endswith(".tmp")]


def test_neither_changes_which_run_it_is(data):
    assert {"snapshot_every", "average_last"} <= NOT_IDENTITY
    plain = small(snapshot_every=None, average_last=None)
    assert run_identity(toy_paper.PHASE, plain, data) == run_identity(
        toy_paper.PHASE, small(), data
    )
    assert not {"snapshot_every", "average_last"} & plain.for_record().keys()
    assert small().for_record()["snapshot_every"] == 2


@pytest.mark.parametrize(
    "given, said",
    [
        (dict(snapshot_every=None), "there will be 0 snapshots; give snapshot_every=3 or less"),
        (dict(average_last=4), "there will be 3 snapshots; give snapshot_every=1 or less"),
        (dict(average_last=1), "a mean is of two snapshots or more"),
        (dict(snapshot_every=7, average_last=None), "not from 1 to steps=6"),
        (dict(snapshot_every=0, average_last=None), "not from 1 to steps=6"),
    ],
)
def test_what_no_run_can_write_is_refused_before_it_starts(given, said):
    with pytest.raises(ConfigError, match=said):
        small(**given)


def test_a_run_that_was_finished_without_snapshots_has_no_mean(data, tmp_path):
    s = small(out=str(tmp_path / "toy"), snapshot_every=None, average_last=None, steps=2)
    train(s, data)
    with pytest.raises(CheckpointError, match="has 1 snapshots .* 2 are to be averaged"):
        train(replace(s, snapshot_every=1, average_last=2), data)


def test_a_disk_that_is_full_is_said(data, tmp_path, monkeypatch):
    def full(self, folder, *, save=EncoderForMaskedLM.save_pretrained):
        if "snapshot" in str(folder):
            raise OSError(28, "No space left on device")
        save(self, folder)

    monkeypatch.setattr(EncoderForMaskedLM, "save_pretrained", full)
    with pytest.raises(CheckpointError, match="snapshot-00000002 could not be written .*No space"):
        train(small(out=str(tmp_path / "toy")), data)
    assert not list((tmp_path / "toy").glob("snapshot-*"))


def test_the_command_averages_a_run_or_folders(run, tmp_path, capsys):
    main([str(run), "--last", "2", "--output", str(tmp_path / "mean")])
    assert "the mean of snapshot-00000004, snapshot-00000006" in capsys.readouterr().out
    mean = load_file(tmp_path / "mean" / "generator" / "model.safetensors")
    by_run = load_file(run / "average-00000006-of-2" / "generator" / "model.safetensors")
    assert all(torch.equal(mean[name], by_run[name]) for name in by_run)
    card = (tmp_path / "mean" / "generator" / "README.md").read_text()
    assert "snapshot-00000004/generator" in card and str(run) not in card
    networks = [str(run / f"snapshot-0000000{n}" / "generator") for n in (4, 6)]
    said = run_average(Average(tuple(networks), str(tmp_path / "alone")))
    assert said.endswith("the mean of generator, generator")
    alone = load_file(tmp_path / "alone" / "model.safetensors")
    assert all(torch.equal(alone[name], by_run[name]) for name in by_run)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["{run}", "--last", "9"], "has 3 snapshots"),
        (["{run}", "{run}", "--last", "2"], "name one run"),
        (["{run}", "--last", "0"], "last=0: give a whole number"),
        (["{run}/snapshot-00000002"], "two folders or more"),
        (["{run}/snapshot-00000002", "{run}/../{name}/snapshot-00000002"], "comes 2 times"),
        (["{run}", "{run}/nothing"], "give the folder of a saved model"),
    ],
)
def test_the_command_says_what_is_wrong(run, tmp_path, arguments, said):
    words = [word.format(run=run, name=run.name) for word in arguments]
    with pytest.raises(SystemExit, match=said):
        main([*words, "--output", str(tmp_path / "mean")])
    assert not list(tmp_path.iterdir())


def test_models_are_averaged_by_name(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_MODELS", str(tmp_path / "models"))
    names = []
    for number in (4, 6):
        source = run / f"snapshot-0000000{number}" / "generator"
        names.append(shutil.copytree(source, tmp_path / "models" / f"step-{number}").name)
    monkeypatch.chdir(tmp_path)
    assert average_checkpoints(names, "mean").is_dir()
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match="empty holds no network"):
        average_checkpoints([names[0], "empty"], "other")


def test_a_damaged_snapshot_is_not_averaged(run, tmp_path):
    copies = []
    for number in (4, 6):
        name = f"snapshot-0000000{number}"
        copies.append(shutil.copytree(run / name, tmp_path / name))
    weights = copies[0] / "generator" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    with pytest.raises(CheckpointError, match="damaged"):
        average_checkpoints(copies, tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_a_mean_has_the_modules_of_its_networks_and_no_other_weights(run, tmp_path):
    "As sentence-transformers writes folders, with an export beside."
    networks = []
    for number in (4, 6):
        source = run / f"snapshot-0000000{number}" / "generator"
        networks.append(shutil.copytree(source, tmp_path / str(number)))
        (networks[-1] / "1_Pooling").mkdir()
        (networks[-1] / "1_Pooling" / "config.json").write_text("{}")
        (networks[-1] / "model.onnx").write_bytes(b"other weights")
    mean = average_checkpoints(networks, tmp_path / "mean")
    assert (mean / "1_Pooling" / "config.json").exists()
    assert not (mean / "model.onnx").exists()


def test_buffers_are_those_of_the_last(run, tmp_path, monkeypatch):
    networks = [run / f"snapshot-0000000{number}" / "generator" for number in (2, 4, 6)]
    weights = [load_file(network / "model.safetensors") for network in networks]
    name = "head.bias"
    name = name if name in weights[0] else sorted(weights[0])[0]
    monkeypatch.setattr(averaging, "buffer_names", lambda folder: {name})
    mean = load_file(average_checkpoints(networks, tmp_path / "mean") / "model.safetensors")
    assert torch.equal(mean[name], weights[-1][name])
    other = next(
        key for key in mean if key != name and not torch.equal(weights[0][key], weights[2][key])
    )
    assert not torch.equal(mean[other], weights[-1][other])


def test_buffers_are_told_by_the_class(tmp_path, monkeypatch):
    class WithBuffer(EncoderForMaskedLM):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("mean_of_states", torch.zeros(3))

    import xlnb.encoder.heads as heads

    monkeypatch.setattr(heads, "WithBuffer", WithBuffer, raising=False)
    from xlnb.encoder.encoder import config_for

    shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1)
    WithBuffer(config_for("tiny", 36, **shape)).save_pretrained(tmp_path / "network")
    assert buffer_names(tmp_path / "network") == {"mean_of_states"}


def test_a_mean_is_summed_in_double_precision():
    values = [torch.tensor([x]) for x in (1e8, 1.0, -1e8)]
    assert (
        mean_tensor(values) == torch.tensor([1 / 3]) and mean_tensor(values).dtype == torch.float32
    )
    assert mean_tensor(torch.tensor([n]) for n in (1, 4)) == torch.tensor([4])
