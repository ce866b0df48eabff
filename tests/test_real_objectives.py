"Objectives on a trained encoder: settings, frozen blocks, a generator that sees one sentence, measures, a whole run."

import json
from dataclasses import replace

import pytest
import torch
import transformers as t

from xlnb.base.core import ConfigError, DataError, append_record
from xlnb.encoder.encoder import new_model
from xlnb.encoder.heads import EncoderForReplacedTokens
from xlnb.measures.probes import cldr_tasks
from xlnb.pretraining.experiments import records_of
from xlnb.results import real_objectives as subject
from xlnb.results.real_objectives import Settings
from xlnb.text.own import open_corpus
from xlnb.training.objectives import without_host_facts
from xlnb import xlm_e

LANGS = ["de", "en", "hi"]


@pytest.fixture(scope="module")
def corpus():
    "The embedded corpus, with the names that the tests of the real text have."
    corpus = open_corpus("cldr", LANGS, test_lines=20)
    tests = dict(zip((subject.TEXT, "tatoeba"), corpus.tests.values()))
    gold = {"gold": {pair: rows for pair, rows in corpus.gold["lists"].items() if "en" in pair}}
    facts = corpus.facts | dict.fromkeys(subject._FACTS, {})
    return replace(corpus, tests=tests, gold=gold, facts=facts)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    "A BERT without training, with a tokenizer of the embedded corpus."
    folder = tmp_path_factory.mktemp("encoder") / "small-bert"
    settings = xlm_e.resolve(xlm_e.Settings(langs=",".join(LANGS), width=32, vocab_size=400))
    tokenizer = xlm_e.prepare_data(settings).tokenizer
    shape = dict(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=64)
    torch.manual_seed(0)
    t.BertModel(
        t.BertConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **shape)
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory, corpus):
    "Runs in a folder of their own, on the embedded corpus, measured by few sentences."
    root = tmp_path_factory.mktemp("real_objectives")
    tags = cldr_tasks(LANGS, train=20, test=10, tasks=("tags",))["tags"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "runs_folder", lambda: root)
        patch.setattr("xlnb.pretraining.pretraining.runs_folder", lambda: root)
        patch.setattr(subject, "open_corpus", lambda *_: corpus)
        patch.setattr(subject, "_tasks", lambda *_: {"tags": tags})
        for name, value in dict(LINKED=5, PROBED_LAYERS=(1, 2)).items():
            patch.setattr(subject, name, value)
        yield root


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(tasks="rtd"), "tasks='rtd' is not one of"),
        (dict(blind_generator=True), "blind_generator=True with tasks='mlm.tlm'"),
        (dict(tasks="mrtd", mismatched=True), "mismatched=True with tasks='mrtd': these read no"),
        (dict(predicts_too=True), "predicts_too=True with tasks='mlm.tlm'"),
        (dict(tasks="mlm", dense_head=True), "dense_head=True with tasks='mlm'"),
        (dict(head_activation=False), "head_activation=False without dense_head=True"),
        (dict(warm_steps=-1), "warm_steps=-1 is below 0"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        subject.resolve(Settings(**wrong))


def test_a_path_of_this_machine_is_not_recorded():
    assert Settings(encoder="/somewhere/my-encoder").for_record()["encoder"] == "my-encoder"


def test_every_arm_is_valid_and_runs_of_different_arms_are_told_apart():
    identities = []
    for experiment in subject.EXPERIMENTS.values():
        for _, parameters in experiment.runs():
            identities.append(json.dumps(subject.resolve(Settings(**parameters)).for_record()))
    assert len(set(identities)) == len(identities)


def test_arms_with_the_same_networks_share_the_heads():
    warm = subject._warm_settings
    assert warm(Settings(tasks="trtd", learning_rate=1e-4, seed=3)) == warm(Settings("mrtd+trtd"))
    assert warm(Settings(tasks="mlm")) == warm(Settings(mismatched=True, steps=5))
    assert warm(Settings(heads_seed=1)) != warm(Settings())
    assert warm(Settings(warm_steps=9)).steps == 9


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_frozen_blocks_get_no_gradient(layers):
    config = xlm_e.network_configs(xlm_e.resolve(xlm_e.Settings(vocab_size=50)))["discriminator"]
    network = new_model(EncoderForReplacedTokens, config, 0)
    subject.freeze(network.encoder, layers)
    trained = {
        subject.layer_of(n) for n, p in network.encoder.named_parameters() if p.requires_grad
    }
    assert trained == set(range(layers + 1 if layers else 0, config.num_hidden_layers + 1))


def record(after, before=0.5, **parameters):
    metrics = {}
    for system, shift in (("before/", before), ("", after)):
        for layer in range(13):
            for name in ("own/de-en", "own/en-hi", "tatoeba/de-en"):
                for measure in ("acc@1c", "acc@1c-1pc", "acc@1c-3pc"):
                    metrics[f"{name}/{system}layer{layer}/{measure}"] = shift + layer / 100
            metrics[f"gold/de-en/{system}layer{layer}/aer"] = shift - layer / 100
    return {"metrics": metrics, "parameters": {"langs": "de,en,hi"} | parameters}


def test_changes_are_points_by_layer_and_bands_their_means():
    run = record(0.4)
    assert subject.changes(run, "own", "acc@1c") == pytest.approx([-10] * 13)
    assert subject.band_change(run, "AER, middle layers") == pytest.approx(-10)
    run["metrics"]["own/de-en/layer12/acc@1c"] -= 0.4
    assert subject.band_change(run, "own domain, upper layers") == pytest.approx(-15)
    assert subject.band_change(run, "own domain, middle layers") == pytest.approx(-10)


def test_arms_are_compared_under_the_same_seeds():
    first = {0: record(0.5), 1: record(0.6), 2: record(0.9)}
    second = {0: record(0.4), 1: record(0.4)}
    rows = subject.compare({"x": {"A": first, "B": second}}, ("x", "A"), ("x", "B"))
    row = rows[0]
    assert [row["A"], row["B"], row["difference"], row["seeds"]] == pytest.approx([5, -10, -15, 2])
    assert row["±"] == pytest.approx(12.706 * 5, abs=0.1)
    assert subject.compare({}, ("x", "A"), ("x", "B")) == []


def test_variants_are_beside_masked_runs_under_the_same_conditions():
    for arms in subject._levers().values():
        for experiment, arm in arms:
            assert arm in subject.EXPERIMENTS[experiment].arms

    def five(after):
        return dict.fromkeys(range(5), record(after))

    finished = {
        "objectives": {"MLM + TLM": five(0.5), "MRTD + TRTD": five(0.4)},
        "levers": {
            "MRTD + TRTD, λ 1": five(0.47),
            "MRTD + TRTD, λ 50": {0: record(0.1), 1: record(0.12)},
        },
        "rates": {"MLM + TLM, 5e-5": five(0.3), "MRTD + TRTD, 5e-5": five(0.29)},
    }
    rows = {row["changed"]: row for row in subject.lever_rows(finished)}
    differences = {name: row["own domain, upper layers"] for name, row in rows.items()}
    assert differences == {
        "nothing changed": "-10.0 ± 0.0",
        "λ 1": "-3.0 ± 0.0",
        "λ 50": "-40.0, -38.0",  # too few for an interval
        "rate 5e-5": "-1.0 ± 0.0",
    }
    assert [row["seeds"] for row in rows.values()] == [5, 5, 2, 5]
    saved = [row["saved, own domain, upper layers"] for row in rows.values()]
    assert saved == ["", "7.0 ± 0.0", "-30.0, -28.0", "9.0 ± 0.0"]
    [ax] = subject.draw_levers(finished).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [*rows]
    dots = {len(line.get_xdata()) for line in ax.lines if line.get_marker() == "o"}
    bars = [line for line in ax.lines if line.get_marker() == "None" and len(line.get_xdata()) == 2]
    assert dots == {5, 2, 0} and len(bars) == 2 * 3 + 1  # and the line at zero


@pytest.mark.parametrize("seeds, bands", [(2, 0), (5, 1)])
def test_a_figure_has_a_line_per_arm_and_a_band_from_five_seeds_on(seeds, bands):
    runs = {seed: record(0.4 + seed / 100) for seed in range(seeds)}
    fig = subject.draw_changes({"A": runs})
    for ax in fig.axes:
        assert [line.get_label() for line in ax.lines if line.get_label()[0] == "A"] == ["A"]
        assert len(ax.collections) == bands
    mean = [line for line in fig.axes[0].lines if line.get_label() == "A"][0]
    assert mean.get_ydata() == pytest.approx([-10 + (seeds - 1) / 2] * 13)


def test_runs_are_read_from_the_records(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    assert subject.real_runs()["objectives"] == {}
    run = record(0.4) | {"run": {"finished": True}, "encoder": {"init": "copy-1"}}
    run["parameters"] = Settings(tasks="mrtd+trtd", seed=3).for_record()
    append_record(subject.NOTEBOOK, run)
    assert [*subject.real_runs()["objectives"]["MRTD + TRTD"]] == [3]
    run["parameters"] |= {"tasks": "mlm+tlm"}
    append_record(subject.NOTEBOOK, run | {"encoder": {"init": "copy-2"}})
    with pytest.raises(
        DataError, match="the runs of objectives start from different networks, 1, 2"
    ):
        subject.real_runs()


def test_claims_read_the_best_layer_and_the_drop_to_the_top():
    claims = subject.CLAIMS
    run = record(0.4)
    assert claims["xlme-11"].comparisons[0].value(run) == pytest.approx(28)
    assert claims["xlme-12"].comparisons[0].value(run) == 12
    assert claims["xlme-12"].comparisons[1].value(run) == pytest.approx(0)
    run["metrics"]["tatoeba/de-en/layer7/acc@1c"] = 0.9
    assert claims["xlme-12"].comparisons[0].value(run) == 7
    assert claims["xlme-12"].comparisons[1].value(run) == pytest.approx(90 - 52)


def test_tags_are_read_at_the_layer_that_was_best_before():
    run = record(0.4)
    for layer, before, after in ((4, 0.6, 0.5), (8, 0.7, 0.3), (12, 0.1, 0.9)):
        for lang, shift in (("de", 0.05), ("en", 0.4), ("hi", -0.05)):
            run["metrics"][f"tags/{lang}/before/layer{layer}/acc"] = before + shift
            run["metrics"][f"tags/{lang}/layer{layer}/acc"] = after + shift
    assert subject.CLAIMS["xylent-06"].comparisons[0].value(run) == pytest.approx(30)
    run["curve"] = [{"held_out/unigram": 6.5, "held_out/text_mlm": 7.0}]
    (row,) = subject.english_rows({"MLM": {0: run}})
    assert (row["nats below word frequency"], row["share of the loss detected"]) == ("-0.5", "–")
    assert (row["tags elsewhere, before"], row["after"]) == ("70", "30")


@pytest.mark.slow
def test_a_generator_that_reads_the_sentences_apart_does_not_see_the_translation(
    small, corpus, encoder
):
    tests = subject.tests_of(corpus)
    init = subject.trimmed_encoder(str(encoder), corpus, tests)
    losses = {}
    for blind in (False, True):
        s = Settings("trtd", str(encoder), blind_generator=blind)
        settings = subject._continued(s, init)
        data = subject._prepared(settings, corpus, subject.Amounts(), None)
        model = subject._new_networks(settings, data)
        batches = subject._batches(settings, data)
        assert [*batches.parts] == ["pairs"]
        batch = model.prepare(batches(0, 0), torch.Generator().manual_seed(0))
        other = batch["input_ids"].clone()
        unmasked = batch["labels"] == -100
        first = batch["side"] == 1
        masked_sides = {side for side in (1, 2) if ((batch["side"] == side) & ~unmasked).any()}
        assert masked_sides == {1, 2}
        # words of the first sentences are replaced; the loss of the second sentences is compared
        words = first & unmasked & (other > 10)
        other[words] = 11
        labels = batch["labels"].masked_fill(first, -100)
        seen = []
        for ids in (batch["input_ids"], other):
            changed = without_host_facts(batch) | {"input_ids": ids, "labels": labels}
            with torch.inference_mode():
                sums = model(changed, torch.Generator().manual_seed(1))
            seen.append(sums["tlm"].item())
        losses[blind] = abs(seen[0] - seen[1])
    assert losses[True] < 1e-3 < losses[False]


def test_a_dense_head_is_a_layer_more_and_follows_from_its_seed():
    config = xlm_e.network_configs(xlm_e.resolve(xlm_e.Settings(vocab_size=50)))["discriminator"]
    heads = [subject._dense_head(config, subject._Continued(seed=seed)) for seed in (0, 0, 1)]
    states = torch.randn(3, config.hidden_size, generator=torch.Generator().manual_seed(0))
    same, again, other = [head(states) for head in heads]
    assert same.shape == (3, 1) and torch.equal(same, again) and not torch.equal(same, other)
    assert [*map(type, heads[0])] == [torch.nn.Linear, torch.nn.GELU, torch.nn.Linear]


def test_two_linear_layers_compute_what_one_can():
    config = xlm_e.network_configs(xlm_e.resolve(xlm_e.Settings(vocab_size=50)))["discriminator"]
    a, b = torch.randn(2, 3, config.hidden_size, generator=torch.Generator().manual_seed(0))
    for activation in (False, True):
        head = subject._dense_head(config, subject._Continued(head_activation=activation))
        linear = torch.allclose(head(a) + head(b), head(a + b) + head(0 * a), atol=1e-6)
        assert linear is not activation


@pytest.mark.slow
def test_a_discriminator_that_predicts_too_has_one_body_and_two_losses(small, corpus, encoder):
    init = subject.trimmed_encoder(str(encoder), corpus, subject.tests_of(corpus))
    models = {}
    for too in (False, True):
        s = Settings("mrtd+trtd", str(encoder), predicts_too=too)
        settings = subject._continued(s, init)
        data = subject._prepared(settings, corpus, subject.Amounts(), None)
        models[too] = subject._new_networks(settings, data)
    model = models[True]
    assert model.predictor.encoder is model.discriminator.encoder
    words = model.generator.encoder.embeddings.word_embeddings.weight
    assert model.predictor.head.decoder.weight is words
    batch = subject._batches(settings, data)(0, 0)
    batch = model.prepare(batch, torch.Generator().manual_seed(0))
    counts = model.counts(batch)
    name, detected = subject.loss_names(batch)
    assert counts[f"{name}_too"] == counts[name]
    sums = {too: m(batch, torch.Generator().manual_seed(1)) for too, m in models.items()}
    for common in (name, detected):
        assert sums[True][common].item() == pytest.approx(sums[False][common].item(), rel=1e-4)
    alone = subject.guess(model.predictor, batch, False, None).loss_sum
    assert sums[True][f"{name}_too"].item() == pytest.approx(alone.item())
    weight = model.discriminator.encoder.layers[0].attention
    reached = {}
    for loss in (detected, f"{name}_too"):
        model.zero_grad()
        sums[True][loss].backward(retain_graph=True)
        reached[loss] = max(float(p.grad.abs().max()) for p in weight.parameters())
    assert min(reached.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "tasks, more",
    [("mlm+tlm", {}), ("mrtd+trtd", {}), ("mrtd+trtd", {"predicts_too": True, "dense_head": True})],
)
def test_a_run_ends_with_a_record_that_its_experiment_knows(
    small, encoder, tasks, more, monkeypatch
):
    monkeypatch.setattr(subject, "HALF_WAY", (0,))
    settings = Settings(tasks, str(encoder), steps=4, warm_steps=2, **more)
    record = subject.run(settings)
    names = {name.rpartition("/")[0].rpartition("/")[0] for name in record["metrics"]}
    for system in ("", "/before", "/step2"):
        assert {f"own/de-en{system}", f"tatoeba/en-hi{system}", f"gold/de-en{system}"} <= names
    assert {"tags/hi", "tags/hi/before"} <= names
    moved = [record["metrics"][f"distance/layer{layer}"] for layer in range(5)]
    assert all(0 < distance < 0.1 for distance in moved)
    before = record["metrics"]["own/de-en/before/layer0/acc@1c"]
    assert 0 <= before <= 1
    [line] = record["warm"]
    assert line["step"] == 2 and line["tlm_unigram"] > 0
    small_recipe = replace(
        subject.RECIPE,
        experiments={},
    )
    arms = {"it": dict(tasks=tasks, encoder="small-bert", steps=4, warm_steps=2) | more}
    experiment = subject.Experiment("A run.", arms, {}, (0,))
    assert records_of(experiment, small_recipe, [record])["it"] == {0: record}


def test_a_start_is_its_weights_whatever_its_folder_is_called():
    names = ("e5-small-d9db8241-3013925962bc", "e5-small-e47da433-3013925962bc", "e5-small-1-2")
    starts = [subject.start_of({"encoder": {"init": name}}) for name in names]
    assert starts[0] == starts[1] != starts[2]
