"Translators from a real encoder: its trimmed copy, what each arm starts from, short captions, runs on record."

from functools import partial
from itertools import chain
from pathlib import Path

import pytest
import torch

from xlnb.base.core import ConfigError
from xlnb.encoder.encoder import EncoderConfig, load, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.pretraining.claims import judge
from xlnb.pretraining.pretraining import run
from xlnb.results import real_translation as R
from xlnb import translation as T

TINY = dict(
    size="tiny",
    corpus="cldr",
    langs="en,ru",
    source="ru",
    target="en",
    decoder_layers=1,
    steps=4,
    batch_tokens=256,
    test_lines=20,
    longest=8,
    veco_steps=2,
    frozen_steps=1,
)
pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture(scope="module")
def encoder(root, tmp_path_factory):
    "A small network of two blocks, with a tokenizer of the embedded corpus."
    names = ("langs", "source", "target", "test_lines")
    settings = T.Settings(
        **{name: TINY[name] for name in names}, width=32, layers=2, vocab_size=400
    )
    tokenizer = T.prepare_data(T.resolve(settings)).tokenizer
    config = EncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        relative_positions="none",
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        mask_token_id=tokenizer.mask_token_id,
    )
    folder = tmp_path_factory.mktemp("models") / "small-encoder"
    new_model(EncoderForMaskedLM, config, 1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def resolved(encoder, **changes):
    return R.resolve(R.Settings(**TINY | {"model": str(encoder)} | changes))


def started(settings):
    data = R.continued(settings, R.prepare_data(settings))
    return data, R.make_model(settings, data).translator


def test_the_encoder_is_trimmed_once_and_named_without_a_path(encoder):
    s = resolved(encoder, min_count=50)
    weights = R.Path(s.init) / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert resolved(encoder, min_count=50).vocab_size == s.vocab_size < 400
    assert weights.stat().st_mtime_ns == before
    record = s.for_record()
    assert "model" not in record and record["init"].startswith("small-encoder-")
    assert "/" not in record["init"]
    assert resolved(encoder, min_count=1).init != s.init
    assert R.RECIPE.resolve(R.Settings(**record)).for_record() == record


def test_a_decoder_is_trained_alone_first_and_the_encoder_stays_as_it_is(encoder):
    s = resolved(encoder, warm_decoder_steps=2)
    data = R.continued(s, R.prepare_data(s))
    cold = R.make_model(s, data).state_dict()
    after = T.with_warm_decoder(R.PHASE, s, data)
    model = R.make_model(s, after)
    warm = model.state_dict()
    moved = {name for name in cold if not torch.equal(cold[name], warm[name])}
    assert "translator.decoder.layers.0.cross_attention.out.weight" in moved
    assert not [name for name in moved if ".encoder." in name or "word_embeddings" in name]
    assert model.average.count == 0 and all(p.requires_grad for p in model.parameters())
    assert data.warmed is None
    assert T.with_warm_decoder(R.PHASE, R.replace(s, warm_decoder_steps=0), data) is data


@pytest.mark.parametrize(
    "wrong, words",
    [
        (dict(warm_decoder_steps=2), "warm_decoder_steps=2 without init: the encoder is frozen"),
        (dict(warm_decoder_steps=-1), "warm_decoder_steps=-1 is below 0"),
        (dict(warm_decoder_rate=0.0), "warm_decoder_rate=0.0 is not above 0"),
    ],
)
def test_a_decoder_is_trained_first_beside_a_trained_encoder_alone(wrong, words):
    with pytest.raises(ConfigError, match=words):
        T.resolve(T.Settings(**wrong))


def test_a_decoder_is_trained_first_where_there_is_an_encoder_unless_told(encoder):
    of_encoder = partial(T.Settings, langs="en,ru", source="ru", target="en", init=str(encoder))
    assert T.resolve(of_encoder(steps=1000)).warm_decoder_steps == 120
    assert T.resolve(of_encoder(steps=50)).warm_decoder_steps == 25
    assert T.resolve(of_encoder(warm_decoder_steps=0)).warm_decoder_steps == 0
    assert T.resolve(T.Settings()).warm_decoder_steps == 0
    assert "warm_decoder_steps" not in T.resolve(T.Settings()).for_record()
    assert resolved(encoder).warm_decoder_steps == 0  # as the first grid had none


@pytest.mark.parametrize("end, block", [("last", 1), ("first", 0)])
def test_encoder_and_decoder_have_the_blocks_of_the_encoder(encoder, end, block):
    s = resolved(encoder, decoder_from=end)
    data, translator = started(s)
    stored = load(data.start, EncoderForMaskedLM).encoder.layers
    for n, layer in enumerate(translator.encoder.layers):
        assert torch.equal(layer.up.weight, stored[n].up.weight)
    assert torch.equal(translator.decoder.layers[0].up.weight, stored[block].up.weight)


def test_random_weights_have_the_shape_of_the_encoder_and_depend_on_the_seed(encoder):
    first, other = (started(resolved(encoder, weights="random", seed=n))[1] for n in (0, 1))
    _, pretrained = started(resolved(encoder))
    shapes = [{name: w.shape for name, w in m.state_dict().items()} for m in (first, pretrained)]
    assert shapes[0] == shapes[1]
    ups = [m.encoder.layers[0].up.weight for m in (first, other, pretrained)]
    assert not any(torch.equal(a, b) for a, b in zip(ups, ups[1:] + ups[:1]))


@pytest.mark.slow
def test_veco_is_trained_once_and_gives_its_cross_attention(encoder):
    s = resolved(encoder, weights="veco")
    data, translator = started(s)
    network = load(data.start, EncoderForMaskedLM).encoder.layers[1]
    assert torch.equal(
        translator.decoder.layers[0].cross_attention.kv.weight, network.cross_attention.kv.weight
    )
    before = (data.start / "model.safetensors").stat().st_mtime_ns
    again, _ = started(resolved(encoder, weights="veco", seed=1))
    assert again.start == data.start
    assert (data.start / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_run_has_a_record_that_its_arm_finds(encoder):
    record = run(R.RECIPE, resolved(encoder, weights="random"))
    assert record["cpu_seconds"] > 0 and "random weights" in R.describe(record)
    arms = {"random": {"weights": "random"}, "encoder": {"weights": "encoder"}}
    experiment = R.Experiment("", arms, {"steps": 4, "corpus": "cldr"}, (0,))
    other = record | {"run": record["run"] | {"finished": False}}
    assert R.recorded_runs(experiment, [record, other]) == {"random": {0: record}}


def test_the_source_gain_is_what_another_source_costs(encoder):
    s = resolved(encoder, weights="random")
    data = R.prepare_data(s)
    model = R.make_model(s, data).eval()
    with torch.no_grad():
        for layer in model.translator.decoder.layers:
            layer.cross_attention.out.weight *= 50  # so that the source matters
    measured = R.measures(s, data)(model)
    sources, targets = T.held_out_pairs(s, data)
    losses = []
    for texts in (sources, [*sources[1:], sources[0]]):
        batch = T.held_out_batch(s, data.tokenizer, texts, targets)
        with torch.no_grad():
            out = model.translator(
                batch["input_ids"], batch["attention_mask"], labels=batch["labels"]
            )
        losses.append(out.loss.item())
    assert abs(losses[1] - losses[0]) > 1e-4
    assert measured["held_out/source_gain"] == pytest.approx(losses[1] - losses[0], abs=1e-4)


def test_the_mean_cosine_is_that_of_two_different_tokens_and_padding_does_not_count(encoder):
    s = resolved(encoder, weights="random")
    data = R.prepare_data(s)
    model = R.make_model(s, data).eval()
    sources, _ = T.held_out_pairs(s, data)
    states = []
    for source in sources:
        batch = data.tokenizer(
            [source], return_tensors="pt", truncation=True, max_length=T.max_side(s) + 2
        )
        with torch.no_grad():
            out = model.translator.get_encoder()(batch["input_ids"], batch["attention_mask"])
        states.append(out[0][0])
    states = torch.cat(states)
    cosines = torch.nn.functional.cosine_similarity(states[:, None], states[None], dim=-1)
    expected = cosines[~torch.eye(len(states), dtype=bool)].mean().item()
    assert R.measures(s, data)(model)["held_out/mean_cosine"] == pytest.approx(expected, abs=1e-4)


def test_weights_that_are_none_are_refused(encoder):
    with pytest.raises(ConfigError, match="weights='xlm' is not one of encoder, veco, random"):
        resolved(encoder, weights="xlm")


ROWS = {
    "train": [
        ("Ein Hund.", "A dog."),
        ("Ein Kind.", "A child."),
        ("Zwei Kinder.", "Two kids in snow."),
    ],
    "val": [("Ein Kind.", "One child."), ("Der Mann.", "The man is in a car.")],
    "test_2016_flickr": [("Eine Frau.", "A woman.")],
    "test_2017_flickr": [("Zwei Katzen.", "Two cats.")],
}


def test_captions_are_short_and_those_of_tests_are_left_out(monkeypatch):
    monkeypatch.setattr(R, "set_folder", Path)
    monkeypatch.setattr(
        R, "set_facts", lambda name, paths: {"sha256": {path.name: "0" for path in paths}}
    )
    monkeypatch.setattr(R, "read_multi30k", lambda folder, part, langs: ROWS[part])
    corpus = R.short_captions(R.Settings(most_words=3))
    assert corpus.pairs == {"de-en": [("Ein Hund.", "A dog.")]}
    assert corpus.valid["de-en"] == [("Ein Kind.", "One child.")]
    assert corpus.tests["multi30k-2017"]["de-en"] == (["Zwei Katzen."], ["Two cats."])
    assert corpus.facts["pairs_left_out"] == 1
    # by the checksums an experiment finds its own records again
    assert corpus.identified and "train.de.gz" in corpus.facts["sha256"]


def curve(loss, gain):
    lines = []
    for n, value in {-1: 9.0, 49: loss + 0.5, 99: loss}.items():
        measured = {"held_out/loss": value, "held_out/unigram": 6.0, "held_out/source_gain": gain}
        lines.append({"step": n, "tokens": 100 * (n + 1), **measured})
    return lines


def invented(arm, seed, loss, gain):
    parameters = R.EXPERIMENTS[R._JUDGED].shared | R.ARMS[arm] | {"seed": seed, "steps": 100}
    return {"parameters": parameters, "losses": ["translation"], "curve": curve(loss, gain)}


def directions_of(gain):
    losses = {"random": 5.0, "encoder": 4.0, "encoder, first blocks": 3.5, "VECO": 4.2}
    arms = {}
    for arm, loss in losses.items():
        arms[arm] = {seed: invented(arm, seed, loss + seed / 100, gain) for seed in range(5)}
    directions = {}
    for name, claim in R.CLAIMS.items():
        rows = [judge(comparison, {R._JUDGED: arms}) for comparison in claim.comparisons]
        directions[name] = [row["direction"] for row in rows]
    return directions


def test_translators_that_do_not_use_their_source_decide_no_claim():
    assert {*chain.from_iterable(directions_of(0.0).values())} == {"open"}


def test_claims_are_judged_on_the_loss_and_halfway_against_the_end():
    assert directions_of(0.1) == {
        "veco-06": ["opposite", "as in the paper"],
        "veco-07": ["as in the paper"],
        "veco-09": ["opposite"],
    }
