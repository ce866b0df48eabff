"""Readers of networks, vocabularies and checkpoints over damaged files, each file of a folder in turn.

What has a checksum is refused or holds what it held. Networks of other libraries have none, nor has the tokenizer
beside a network, which may have been changed on purpose: one bit of a weight is another weight, which nobody can tell,
so of these only the error and the time are tested."""

import json, shutil
from pathlib import Path

import pytest
import torch
from damage import campaign, times
from transformers import BertConfig, BertForMaskedLM

from xlnb.base.core import verify_checksums
from xlnb.text.vocab import load_tokenizer, tokenizer_hash, train_vocab
from xlnb.encoder.encoder import checkpoint_shapes, checkpoint_type, config_for, load, new_model
from xlnb.encoder.foreign import load_foreign, quietly
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.encoder.initialisation import source_config, stored_weights
from xlnb.training.training import TrainingConfig, latest_checkpoint, load_weights, resume, train
from xlnb.measures.finetuning import load_config, load_head, new_head
from xlnb.encoder.loading import load_model_and_tokenizer, load_model_tokenizer
from xlnb.measures.retrieval import own_pooling

pytestmark = [pytest.mark.campaign, pytest.mark.filterwarnings("ignore")]
TIMES = times(3)
LINES = [f"der Hund {n} bellt im Haus {n % 7}" for n in range(60)]
PASSING = "_name_or_path", "transformers_version"
SHAPE = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)


def everything(model) -> tuple:
    "Configuration and weights, to compare."
    settings = {k: v for k, v in model.config.to_dict().items() if k not in PASSING}
    return json.dumps(settings, sort_keys=True, default=str), {
        k: v.tolist() for k, v in model.state_dict().items()
    }


def speaks(tokenizer) -> tuple:
    "All that a user of a tokenizer meets."
    names = (
        "bos_token",
        "pad_token",
        "eos_token",
        "unk_token",
        "mask_token",
        "cls_token",
        "sep_token",
    )
    return (
        tokenizer_hash(tokenizer),
        {name: getattr(tokenizer, name) for name in names},
        tokenizer(LINES[0]).data,
    )


class Toy(torch.nn.Module):
    "What training asks of a model, over a masked language model."

    weights = {"mlm": 1.0}
    names = ("mlm",)

    def __init__(self):
        super().__init__()
        self.network = new_model(EncoderForMaskedLM, config_for("tiny", 40, **SHAPE), 0)

    def prepare(self, batch, generator):
        return batch

    def counts(self, batch):
        return {"mlm": 4}

    def forward(self, batch, generator):
        return {"mlm": self.network.encoder(**batch).last_hidden_state.square().sum()}

    def save_pretrained(self, folder):
        self.network.save_pretrained(Path(folder) / "network")

    def load_pretrained(self, folder):
        self.network.load_state_dict(
            load(Path(folder) / "network", EncoderForMaskedLM).state_dict()
        )


class Batches:
    micro_batches = 1

    def __call__(self, step, index):
        return {
            "input_ids": torch.full((2, 4), 7),
            "attention_mask": torch.ones(2, 4, dtype=torch.long),
        }

    def state(self):
        return {"drawn": 3}

    def load_state(self, state):
        pass


CONFIG = TrainingConfig(2, 1e-3, 1)
IDENTITY = {"seed": 0}


def resumed(run):
    model, optimizer, state = resume(Toy(), CONFIG, run, IDENTITY)
    return everything(model.network), repr(optimizer.state_dict()), state


def weights_of(run):
    load_weights(latest_checkpoint(run), model := Toy())
    return everything(model.network)


def places(folder):
    return {name: [(p.name, p.shape) for p in own] for name, own in stored_weights(folder).items()}


def loaded(folder):
    network, tokenizer = load_model_and_tokenizer(folder)
    return everything(network), speaks(tokenizer)


def described(folder):
    return source_config(folder).to_dict()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "A folder of each kind."
    root = tmp_path_factory.mktemp("made")
    tokenizer = train_vocab({"de": LINES}, 36, root / "vocabulary")
    network = new_model(EncoderForMaskedLM, config_for("tiny", 36, **SHAPE), 0)
    network.save_pretrained(root / "encoder"), tokenizer.save_pretrained(root / "encoder")
    BertForMaskedLM(BertConfig(vocab_size=36, **SHAPE)).save_pretrained(root / "bert")
    tokenizer.save_pretrained(root / "bert")
    (root / "bert" / "1_Pooling").mkdir()
    (root / "bert" / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_mean_tokens": True})
    )
    with quietly():
        new_head(root / "encoder", "classification", ("no", "yes")).save_pretrained(root / "head")
    train(Toy(), Batches(), CONFIG, root / "run", IDENTITY)
    return root


WEIGHTS = "model.safetensors"
SETTINGS = "config.json"
SUMS = "checksums.json"
WORDS = "tokenizer.json", "tokenizer_config.json"
NETWORK = "run/checkpoint-00000002/network/"
RUN = "run/checkpoint-00000002/"
READERS = {  # name → folder, function of it, its files that are damaged
    "load": (
        "encoder",
        lambda folder: everything(load(folder, EncoderForMaskedLM)),
        (WEIGHTS, SETTINGS, SUMS),
    ),
    "load_tokenizer": ("vocabulary", lambda folder: speaks(load_tokenizer(folder)), WORDS),
    "load_model_and_tokenizer": ("encoder", loaded, (WEIGHTS, SETTINGS, SUMS)),
    "load_head": (
        "head",
        lambda folder: everything(load_head(folder, "classification")),
        (WEIGHTS, SETTINGS, SUMS),
    ),
    "resume": (
        "run",
        resumed,
        tuple(
            f"checkpoint-00000002/{name}"
            for name in (
                "state.json",
                "optimizer.pt",
                SUMS,
                f"network/{WEIGHTS}",
                f"network/{SETTINGS}",
                f"network/{SUMS}",
            )
        ),
    ),
    "load_weights": (
        "run",
        weights_of,
        (f"checkpoint-00000002/network/{WEIGHTS}", f"checkpoint-00000002/{SUMS}"),
    ),
    "verify_checksums": ("encoder", lambda folder: verify_checksums(folder), (SUMS,)),
}
WITHOUT_CHECKSUMS = {
    "load_foreign": ("bert", load_foreign, (WEIGHTS, SETTINGS)),
    "load_model_and_tokenizer": (
        "bert",
        lambda folder: own_pooling(load_model_and_tokenizer(folder)[0]),
        (WEIGHTS, SETTINGS, *WORDS, "1_Pooling/config.json"),
    ),
    "load_model_tokenizer": ("bert", load_model_tokenizer, WORDS),
    "new_head": (
        "bert",
        lambda folder: new_head(folder, "classification", ("no", "yes")),
        (WEIGHTS, SETTINGS),
    ),
    "load_config": ("bert", load_config, (SETTINGS,)),
    "stored_weights": ("bert", places, (WEIGHTS, SETTINGS)),
    "source_config": ("bert", described, (WEIGHTS, SETTINGS)),
    "checkpoint_shapes": ("bert", checkpoint_shapes, (WEIGHTS,)),
    "checkpoint_type": ("bert", checkpoint_type, (SETTINGS,)),
}


def cases(readers):
    return [(name, file) for name, (_, _, files) in readers.items() for file in files]


def run_campaign(name, case, file, made, tmp_path, check):
    folder, read, _ = case
    copy = tmp_path / folder
    shutil.copytree(made / folder, copy)
    valid = read(copy)
    campaign(f"{name} {file}", copy / file, TIMES, lambda report: read(copy), check(valid))


@pytest.mark.parametrize("name, file", cases(READERS))
def test_a_damaged_folder_is_refused_or_holds_what_it_held(name, file, made, tmp_path):
    def check(valid):
        def unchanged(found, path, report):
            assert found == valid, f"reads otherwise: {difference(found, valid)}"

        return unchanged

    run_campaign(name, READERS[name], file, made, tmp_path, check)


def difference(found, valid):
    pairs = zip(found, valid) if isinstance(found, tuple) else [(found, valid)]
    return [(str(a)[:300], str(b)[:300]) for a, b in pairs if a != b]


@pytest.mark.parametrize("name, file", cases(WITHOUT_CHECKSUMS))
def test_a_damaged_folder_of_another_library_loads_or_is_refused(name, file, made, tmp_path):
    run_campaign(
        name,
        WITHOUT_CHECKSUMS[name],
        file,
        made,
        tmp_path,
        lambda valid: lambda found, path, report: None,
    )
