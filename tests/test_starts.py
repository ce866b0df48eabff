"Encoders from anywhere as the start of every paper: kinds, folders, runs, names on the hub."

import re, shutil
from dataclasses import replace

import pytest
import torch
import transformers as t

from xlnb import meta_xlm, translation, veco, xlm_e, xy_lent
from xlnb.base.core import CheckpointError, ConfigError
from xlnb.encoder.encoder import load
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.encoder.initialisation import masked_lm_from
from xlnb.encoder.loading import load_model_and_tokenizer, model_folder, model_title
from xlnb.measures.alignment import align, trained_on_pairs
from xlnb.measures.retrieval import encode
from xlnb.pretraining.pretraining import (
    STARTED_RATE,
    init_for_record,
    is_recorded,
    run_folder,
    start_report,
    train_phase,
)
from xlnb.results import static_runs
from xlnb.text.tokenizers import open_vocabulary

SHAPE = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=130,
)
ROBERTA = dict(pad_token_id=1, type_vocab_size=1)
KINDS = {  # class, configuration, whether there is an output layer
    "xlm-r": (t.XLMRobertaModel, t.XLMRobertaConfig, ROBERTA, False),
    "xlm-r-mlm": (t.XLMRobertaForMaskedLM, t.XLMRobertaConfig, ROBERTA, True),
    "roberta": (t.RobertaModel, t.RobertaConfig, ROBERTA, False),
    "bert": (t.BertModel, t.BertConfig, {}, False),
    "bert-mlm": (t.BertForMaskedLM, t.BertConfig, {}, True),
    "electra": (t.ElectraForPreTraining, t.ElectraConfig, dict(embedding_size=16), False),
}
SHORT = dict(langs="en,de", steps=2, test_lines=20, max_minutes=20.0)
PAPERS = {
    "xlm_e": (xlm_e, dict(batch_tokens=128)),
    "veco": (veco, dict(batch_tokens=128)),
    "translation": (translation, dict(batch_tokens=128, beams=1)),
}
SPARE_ROWS = 7  # of the embedding matrix, beyond the tokenizer


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    "Runs and records go to a folder of their own."
    root = tmp_path_factory.mktemp("starts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLNB_RUNS", str(root / "runs"))
        patch.setenv("XLNB_RESULTS", str(root / "results"))
        yield root


@pytest.fixture(scope="module")
def tokenizer():
    settings = xlm_e.resolve(xlm_e.Settings(**SHORT, width=32, vocab_size=300))
    return xlm_e.prepare_data(settings).tokenizer


@pytest.fixture(scope="module")
def folders(root, tokenizer):
    "A folder of each kind, with the tokenizer."
    paths = {}
    for kind, (model_class, config_class, changes, _) in KINDS.items():
        torch.manual_seed(0)
        config = config_class(vocab_size=len(tokenizer) + SPARE_ROWS, **SHAPE, **changes)
        paths[kind] = root / f"my-{kind}"
        model_class(config).save_pretrained(paths[kind])
        tokenizer.save_pretrained(paths[kind])
    return paths


@pytest.fixture
def hub(tmp_path, folders, monkeypatch):
    "A cache of the hub with one model, and no network."
    copy = tmp_path / "hub" / "models--some-lab--small-encoder"
    shutil.copytree(folders["xlm-r"], copy / "snapshots" / "0123456789abcdef")
    (copy / "refs").mkdir()
    (copy / "refs" / "main").write_text("0123456789abcdef")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))

    def no_network(self, name, **_):
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", no_network)
    return "some-lab/small-encoder"


def settings_of(paper, init, **changes):
    module, short = PAPERS[paper]
    return module.resolve(module.Settings(**SHORT | short | changes, init=str(init)))


def states(network, ids):
    with torch.inference_mode():
        return network.eval()(ids, output_hidden_states=True).hidden_states


def same_states(ours, theirs, layers=None):
    "Hidden states of two encoders are equal, of all layers or the first ones."
    ids = torch.randint(5, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    rows = [*zip(states(ours, ids), states(theirs, ids))]
    for a, b in rows[:layers]:
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def networks_of(paper, settings, data):
    "The networks that start from `init`, and how many layers of states they share with it."
    if paper == "xlm_e":
        model = xlm_e.new_xlm_e(settings, data)
        assert model.generator.get_input_embeddings().weight is (
            model.discriminator.get_input_embeddings().weight
        )
        return [(model.generator.encoder, 2), (model.discriminator.encoder, None)]
    if paper == "veco":
        return [(veco.new_network(settings, data.start).encoder, None)]
    return [(translation.new_translator(settings, data.start).encoder, None)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.slow
def test_every_kind_starts_every_paper_with_its_states(paper, kind, folders):
    module, _ = PAPERS[paper]
    settings = settings_of(paper, folders[kind])
    assert (settings.width, settings.layers, settings.norm) == (32, 2, "post")
    data = module.prepare_data(settings)
    assert settings.vocab_size == len(data.tokenizer) + SPARE_ROWS
    theirs, _ = load_model_and_tokenizer(folders[kind])
    for network, layers in networks_of(paper, settings, data):
        same_states(network, theirs, layers)
    trained = train_phase(module.PHASE, settings, data)
    assert trained.summary["finished"]
    # what is written holds no path of this machine, and loads
    folder = run_folder(module.PHASE, settings, data)
    for part in trained.model.parts():
        text = (folder / part / "config.json").read_text()
        assert str(folders[kind].parent) not in text
    assert f"my-{kind}-" in settings.for_record()["init"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_layer_that_lacks_is_made_and_said(kind, folders):
    has_one = KINDS[kind][3]
    network, account = masked_lm_from(folders[kind])
    assert bool(account.lacking) == (not has_one)
    assert network.head.decoder.weight is network.get_input_embeddings().weight
    said = start_report(settings_of("xlm_e", folders[kind]))
    assert said.startswith(f"starts from my-{kind}-") and "2 × 32" in said
    assert ("it has no masked-LM head" in said) == (not has_one)
    if kind.endswith("mlm"):
        theirs = KINDS[kind][0].from_pretrained(folders[kind]).eval()
        ids = torch.randint(5, 200, (2, 9))
        with torch.inference_mode():
            torch.testing.assert_close(
                network.eval()(ids).logits, theirs(ids).logits, atol=1e-5, rtol=0
            )


@pytest.mark.parametrize("paper", PAPERS)
def test_what_starts_from_an_encoder_has_a_rate_that_spares_it(paper, folders):
    "1e-3, the rate of random weights, turned all states of a real encoder into one direction."
    assert settings_of(paper, folders["bert"]).learning_rate == STARTED_RATE
    assert settings_of(paper, folders["bert"], learning_rate=1e-4).learning_rate == 1e-4
    assert settings_of(paper, "").learning_rate > 10 * STARTED_RATE


def test_the_generator_gets_the_first_blocks_or_all(folders):
    settings = settings_of("xlm_e", folders["bert"])
    assert settings.generator_layers == 1
    data = xlm_e.prepare_data(settings)
    deep = xlm_e.new_xlm_e(replace(settings, generator_layers=2), data)
    same_states(deep.generator.encoder, deep.discriminator.encoder)
    with pytest.raises(ConfigError, match="generator_layers=3 with init=.*encoder of 2"):
        settings_of("xlm_e", folders["bert"], generator_layers=3)
    with pytest.raises(ConfigError, match="relative_positions='gated' with init="):
        settings_of("xlm_e", folders["bert"], relative_positions="gated")


def test_xy_lent_and_a_static_continuation_start_from_an_encoder(folders):
    s = xy_lent.resolve(
        xy_lent.Settings(
            **SHORT | dict(langs="de,en,ru"), batch_tokens=128, init=str(folders["electra"])
        )
    )
    assert xy_lent.shared_vocabulary(s, None) == folders["electra"]
    assert (s.width, s.generator_layers) == (32, 1)
    given = dict(SHORT, steps=None, transfer_steps=2, loss="none", batch_tokens=128)
    s = static_runs.resolve(static_runs.Settings(**given, init=str(folders["electra"])))
    data = static_runs.with_base(s, static_runs.prepare_data(s))
    network = static_runs.base_network(s, data)
    assert network.training and network.config.hidden_dropout_prob == 0.1
    theirs, _ = load_model_and_tokenizer(folders["electra"])
    same_states(network.encoder, theirs)


def test_the_papers_numbers_beside_a_trained_encoder(tmp_path):
    "Shape and vocabulary are the encoder's, all else is the paper's."
    shape = dict(hidden_size=768, num_hidden_layers=1, num_attention_heads=12)
    config = t.XLMRobertaConfig(
        vocab_size=300, intermediate_size=64, max_position_embeddings=514, **shape, **ROBERTA
    )
    t.XLMRobertaModel(config).save_pretrained(tmp_path)
    paper = dict(size="base", recipe="paper", init=str(tmp_path))
    for module in (xlm_e, xy_lent, veco, static_runs):
        s = module.resolve(module.Settings(**paper))
        assert (s.width, s.layers, s.vocab_size, s.relative_positions) == (768, 1, 300, "none")
        assert s.batch_tokens == module.PAPER.get("base", module.PAPER)["batch_tokens"]
    s = xy_lent.resolve(xy_lent.Settings(**paper))
    assert "300, that of init" in {row["this run"] for row in xy_lent.compare_with_paper(s)}
    assert xy_lent.resolve(s) == s
    with pytest.raises(ConfigError, match="vocabulary='vocap' with init=.*leave vocabulary out"):
        xy_lent.resolve(xy_lent.Settings(**paper, vocabulary="vocap"))


def test_a_run_gives_its_primary_network(folders, tmp_path):
    for part in ("generator", "discriminator"):
        masked_lm_from(folders["bert"])[0].save_pretrained(tmp_path / "a-run" / part)
    run = tmp_path / "a-run"
    assert model_folder(run) == run / "discriminator"
    assert model_title(run) == model_title(run / "generator") == "a-run"
    shutil.copytree(folders["bert"], run / "tokenizer", dirs_exist_ok=True)
    assert start_report(settings_of("xlm_e", run)).startswith("starts from a-run-")
    assert ", discriminator (xlnb" in start_report(settings_of("xlm_e", run))


def test_a_name_on_the_hub_is_an_encoder_everywhere_without_a_network(hub, folders):
    network, tokenizer = load_model_and_tokenizer(hub)
    theirs, _ = load_model_and_tokenizer(folders["xlm-r"])
    same_states(network, theirs)
    lines = ["a dog", "two dogs"]
    torch.testing.assert_close(encode(lines, hub), encode(lines, folders["xlm-r"]))
    assert [*align([("a dog", "ein Hund")], hub)] == [
        *align([("a dog", "ein Hund")], folders["xlm-r"])
    ]
    recorded = settings_of("veco", hub).for_record()
    assert recorded["init"] == "some-lab/small-encoder@0123456789ab"
    assert is_recorded(recorded["init"]) and init_for_record(recorded["init"]) == recorded["init"]
    assert veco.resolve(veco.Settings(**recorded)).width == 32
    source = meta_xlm.resolve(meta_xlm.Settings(**SHORT, source=hub))
    assert source.for_record()["source"] == recorded["init"] and source.width == 32
    assert meta_xlm.resolve(meta_xlm.Settings(**source.for_record())).width == 32


@pytest.mark.parametrize("name", ["small-encoder", "some-lab/small-encoder"])
def test_a_model_of_the_folder_of_models_comes_before_the_hub(
    name, hub, folders, tmp_path, monkeypatch
):
    models = tmp_path / "models"
    shutil.copytree(folders["bert"], models / "small-encoder")
    monkeypatch.setenv("XLNB_MODELS", str(models))
    assert model_folder(name) == models / "small-encoder"
    assert model_title(name) == "small-encoder"
    recorded = settings_of("xlm_e", name).for_record()
    assert recorded["init"] == settings_of("xlm_e", models / "small-encoder").for_record()["init"]
    assert re.fullmatch("small-encoder-[0-9a-f]{12}", recorded["init"])
    assert re.fullmatch("small-encoder@[0-9a-f]{12}", open_vocabulary(name).recorded)
    source = meta_xlm.resolve(meta_xlm.Settings(**SHORT, source=name)).for_record()["source"]
    assert source.startswith("small-encoder-")
    vectors = encode(["a dog"], name)
    torch.testing.assert_close(vectors, encode(["a dog"], folders["bert"]))


def test_a_name_with_its_organisation_comes_before_one_without(folders, tmp_path, monkeypatch):
    for name in ("small-encoder", "some-lab/small-encoder"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("XLNB_MODELS", str(tmp_path))
    assert model_folder("some-lab/small-encoder") == tmp_path / "some-lab" / "small-encoder"
    assert model_folder("small-encoder") == tmp_path / "small-encoder"


def test_an_unknown_name_says_where_it_was_looked_for(hub, tmp_path, monkeypatch):
    for name in ("absent", "some-lab/absent"):
        monkeypatch.delenv("XLNB_MODELS", raising=False)
        with pytest.raises(CheckpointError, match="folder here [(]XLNB_MODELS is not set[)]"):
            model_folder(name)
        monkeypatch.setenv("XLNB_MODELS", str(tmp_path))
        with pytest.raises(CheckpointError, match=f"here or in XLNB_MODELS={tmp_path}"):
            model_folder(name)
        with pytest.raises(CheckpointError, match=f"here or in XLNB_MODELS={tmp_path}"):
            open_vocabulary(name)
    monkeypatch.setenv("XLNB_MODELS", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="XLNB_MODELS=.* is not a folder"):
        model_folder("absent")


def test_a_name_that_is_not_there_is_a_sentence(hub, monkeypatch):
    says = "some-lab/absent is not a folder here.*, .*[(]hf download some-lab/absent[)]"
    for call in (
        lambda: encode(["a"], "some-lab/absent"),
        lambda: align([("a", "b")], "some-lab/absent"),
        lambda: settings_of("xlm_e", "some-lab/absent"),
        lambda: meta_xlm.resolve(meta_xlm.Settings(**SHORT, source="some-lab/absent")),
    ):
        with pytest.raises(CheckpointError, match=says):
            call()
    # a copy without weights is not taken for the model
    for path in model_folder(hub).glob("*.safetensors"):
        path.unlink()
    with pytest.raises(CheckpointError, match="has no complete copy of it"):
        model_folder(hub)


def test_a_name_that_the_hub_does_not_allow_is_not_laid_to_the_network():
    with pytest.raises(CheckpointError, match="--name.* the hub does not give it: Repo id must"):
        model_folder("some-lab/--name")


def test_a_name_is_fetched_where_there_is_a_network(hub, monkeypatch, tmp_path, folders):
    asked = []
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda self, name, **_: None)

    def fetch(name, local_files_only=False, allow_patterns=None, **_):
        if local_files_only:
            raise OSError("not here")
        asked.append(allow_patterns[-1])
        return str(folders["bert"])

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert model_folder("some-lab/another") == folders["bert"]
    assert asked == ["model*.safetensors"]

    def refuse(name, local_files_only=False, **_):
        raise OSError("no such model\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(CheckpointError, match="the hub does not give it: no such model$"):
        model_folder("some-lab/another")


@pytest.mark.parametrize("kind", ["xlm-r", "roberta", "bert", "electra"])
def test_an_encoder_that_saw_no_pairs_reads_them_apart(kind, folders, tmp_path):
    "Also after it was saved as one of ours; joint reading would give other links or scores."
    network, tokenizer = load_model_and_tokenizer(folders[kind])
    assert not trained_on_pairs(network.config)
    masked_lm_from(folders[kind])[0].save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert not trained_on_pairs(load(tmp_path, EncoderForMaskedLM).config)
    pairs = [("two black dogs", "zwei schwarze Hunde")]
    for method in ("optimal_transport", "argmax"):
        apart = align(pairs, folders[kind], method=method, joint=False)
        assert [*align(pairs, folders[kind], method=method)] == [*apart]


def test_heads_are_warmed_on_a_frozen_body(folders):
    settings = settings_of("xlm_e", folders["bert"], warm_heads_steps=2)
    data = xlm_e.prepare_data(settings)
    cold = xlm_e.new_xlm_e(settings, data).state_dict()
    after = xlm_e.with_warm_heads(xlm_e.PHASE, settings, data)
    warm = xlm_e.new_xlm_e(settings, after).state_dict()
    moved = {name for name in cold if not torch.equal(cold[name], warm[name])}
    assert {"generator.head.dense.weight", "discriminator.head.weight"} <= moved
    assert all(".head." in name and "decoder.weight" not in name for name in moved)
    trained = train_phase(xlm_e.PHASE, settings, after)
    body = "discriminator.encoder.layers.0.up.weight"
    assert not torch.equal(trained.model.state_dict()[body], warm[body])
    with pytest.raises(ConfigError, match="warm_heads_steps=2 without init: the body is frozen"):
        settings_of("xlm_e", "", warm_heads_steps=2)


@pytest.mark.parametrize("paper", PAPERS)
def test_a_bert_with_its_wordpieces_starts_a_paper(paper, tmp_path):
    "Its special tokens have other names and other ids, and it has no beginning of a sentence."
    lines = ["two black dogs", "zwei schwarze Hunde", "a house", "ein Haus"]
    letters = sorted(
        {letter for line in lines for letter in line} | set("abcdefghijklmnopqrstuvwxyz")
    )
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{a}" for a in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    t.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    torch.manual_seed(0)
    t.BertModel(t.BertConfig(vocab_size=len(words), **SHAPE)).save_pretrained(tmp_path)
    module, _ = PAPERS[paper]
    settings = settings_of(paper, tmp_path)
    data = module.prepare_data(settings)
    assert data.tokenizer.cls_token == "[CLS]"
    theirs, _ = load_model_and_tokenizer(tmp_path)
    for network, layers in networks_of(paper, settings, data):
        same_states(network, theirs, layers)
    assert train_phase(module.PHASE, settings, data).summary["finished"]
