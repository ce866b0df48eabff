"Translators: a run that is killed and goes on, averaged weights, lines in and out, what is refused."

import copy, io, math, sys
from types import SimpleNamespace

import pytest
import torch
from warm import run_module

from xlnb.encoder.encoder import load
from xlnb.encoder.loading import load_model_and_tokenizer
from xlnb.base.core import CheckpointError, ConfigError, DataError, read_lines
from xlnb.text.batches import token_frequencies
from xlnb.training.training import read_log
from xlnb.pretraining.pretraining import run, run_folder, train_phase
from xlnb import translation as T

SMALL = dict(
    langs="en,ru",
    source="ru",
    target="en",
    layers=2,
    width=32,
    steps=12,
    batch_tokens=256,
    test_lines=20,
    vocab_size=300,
    snapshots=2,
)
pytestmark = pytest.mark.usefixtures("root")


def small(**changes):
    return T.resolve(T.Settings(**SMALL | changes))


@pytest.fixture(scope="module")
def data(root):
    return T.prepare_data(small())


def weights(trained):
    return {k: v.clone() for k, v in trained.model.primary_network.state_dict().items()}


@pytest.mark.slow
def test_killed_at_any_step_it_ends_in_the_same_bits(data, tmp_path, monkeypatch):
    whole = train_phase(T.PHASE, small(out=str(tmp_path / "whole")), data)
    stopped = small(out=str(tmp_path / "stopped"), max_minutes=1e-9)
    # a step a call
    for _ in range(12):
        trained = train_phase(T.PHASE, stopped, data)
    assert (
        trained.summary["finished"]
        and trained.model.average.count == whole.model.average.count == 2
    )
    ours = weights(trained)
    theirs = weights(whole)
    assert all(torch.equal(w, theirs[name]) for name, w in ours.items())

    def lines(folder):
        return [line["loss"] for line in read_log(tmp_path / folder)]

    assert lines("stopped") == lines("whole") and len(lines("whole")) == 12


def test_the_average_is_that_of_the_last_weights(data, tmp_path):
    s = small(out=str(tmp_path))
    model = T.make_model(s, data)
    seen = []
    for step in range(12):
        with torch.no_grad():
            model.translator.bias += 1
        model.after_step(step, {})
        seen.append(model.translator.bias[0].item())
    assert model.average.count == 2
    assert model.primary_network.bias[0].item() == pytest.approx(sum(seen[-2:]) / 2)
    assert model.translator.bias[0].item() == seen[-1]


def test_the_loss_is_transformers_own(data):
    s = small(label_smoothing=0.0, dropout=0.0)
    model = T.make_model(s, data).eval()
    batch = model.prepare(T.make_batches(s, data)(0, 0), None)
    with torch.no_grad():
        ours = model(batch, None)["translation"] / model.counts(batch)["translation"]
        theirs = model.translator(
            batch["input_ids"], batch["attention_mask"], labels=batch["labels"]
        ).loss
    torch.testing.assert_close(ours, theirs)


def test_the_source_is_read_whichever_side_it_is(data):
    batch = T.make_batches(small(), data)(0, 0)

    def prepared(a, b):
        return T.make_model(small(source=a, target=b), data).prepare(batch, None)

    forth = prepared("ru", "en")
    back = prepared("en", "ru")
    # en-ru: Russian is the second
    assert torch.equal(forth["input_ids"], batch["partner_input_ids"])
    assert torch.equal(back["input_ids"], batch["input_ids"])
    words = back["input_ids"][:, 1:][back["attention_mask"][:, 1:] == 1]
    assert torch.equal(forth["labels"][forth["labels"] != -100], words)


@pytest.mark.parametrize("start", ["mlm", "ca-mlm+tlm"])
def test_a_pretrained_start_is_trained_once_and_taken_over(start):
    s = small(start=start, pretraining_steps=3)
    data = T.pretrained(s, T.prepare_data(s))
    first = T.pretraining_settings(s)
    assert data.start == run_folder(T.veco.PHASE, first, data) / "generator"
    network = load(data.start, T.EncoderForMaskedLM)
    model = T.new_translator(s, data.start)
    assert model.config.relative_memory == model.decoder.config.relative_memory == s.relative_memory
    assert torch.equal(model.encoder.layers[1].up.weight, network.encoder.layers[1].up.weight)

    def kv(one):
        return one.layers[1].cross_attention.kv.weight

    if start == "ca-mlm+tlm":
        assert torch.equal(kv(model.decoder), kv(network.encoder))
    before = (data.start / "model.safetensors").stat().st_mtime_ns
    T.pretrained(s, T.prepare_data(s))
    assert (data.start / "model.safetensors").stat().st_mtime_ns == before


def test_a_run_has_a_record_and_a_folder_that_translates(root, capsys, monkeypatch):
    record = run(T.RECIPE, small())
    assert {"bleu/T3", "chrf/T3", "bleu_lowercase/T3"} <= record[
        "metrics"
    ].keys() and "tok:13a" in record["signature"]
    assert len(record["samples"]) == 6 and record["samples"][0].keys() == {
        "source",
        "translation",
        "reference",
        "chrf",
    }
    assert T.describe(record).startswith("ru→en from random, width=32") or "layers=2" in T.describe(
        record
    )
    folder = run_folder(T.PHASE, small(), T.prepare_data(small())) / "translator"
    card = (folder / "README.md").read_text(encoding="utf-8")
    opened = {}
    assert "- BLEU, T3: " in card
    exec(
        card.split("```python")[1].split("```")[0].replace("path/of/this/folder", str(folder)),
        opened,
    )
    assert isinstance(opened["model"], T.EncoderDecoder)
    out = io.StringIO()
    T.translate_stream(["--model", str(folder), "--beams", "2"], ["Норвегия", "", "Малайзия"], out)
    assert len(out.getvalue().split("\n")) == 4 and out.getvalue().split("\n")[1] == ""
    # three lines
    odd = "A dog runs.\nTwo men\u2028in a park.\r\nA girl\x85sings\x0cand\x1cgoes\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(odd.encode())))
    T.translate_stream(
        ["--model", str(folder), "--beams", "1"], read_lines("-"), again := io.StringIO()
    )
    assert again.getvalue().count("\n") == 3


@pytest.mark.parametrize(
    "lines, wanted",
    [(1, [90]), (3, [90, 80, 70]), (5, [90, 80, 70, 60, 50]), (8, [90, 80, 60, 50, 30, 20])],
)
def test_samples_are_of_the_best_the_middle_and_the_worst(data, monkeypatch, lines, wanted):
    pairs = [(f"line {n}", f"{90 - 10 * n}") for n in range(lines)]
    monkeypatch.setattr(T, "held_out_pairs", lambda *_: tuple(map(list, zip(*reversed(pairs)))))
    monkeypatch.setattr(T, "translate", lambda sources, *_, **__: sources)

    def score(text, references):
        return SimpleNamespace(score=float(references[0]))

    monkeypatch.setattr(
        T, "_sacrebleu", lambda: SimpleNamespace(CHRF=lambda: SimpleNamespace(sentence_score=score))
    )
    rows = T.samples(small(), data, None)
    assert [row["chrf"] for row in rows] == wanted and rows[0] == {
        "source": "line 0",
        "translation": "line 0",
        "reference": "90",
        "chrf": 90.0,
    }


def test_the_level_of_word_frequency_knows_how_often_a_line_ends(data):
    frequencies = token_frequencies(data.store, "en")
    rows = [
        torch.tensor(
            [
                *data.tokenizer(line, add_special_tokens=False)["input_ids"],
                data.tokenizer.eos_token_id,
            ]
        )
        for line in ("Norway", "Malaysia, Norway and Georgia")
    ]
    labels = torch.cat(rows)
    end = data.tokenizer.eos_token_id
    share = 2 / len(labels)
    each = [share if k == end else (1 - share) * frequencies[k] for k in labels.tolist()]
    assert T.unigram_level(labels, end, frequencies) == pytest.approx(
        -sum(map(math.log, each)) / len(each)
    )


def test_more_words_than_positions_are_refused(data):
    model = T.new_translator(small(), None).eval()
    room = T.max_positions(model)
    with pytest.raises(ValueError, match=f"is past the table of {room} positions"):
        model.generate(
            torch.tensor([[0, 9, 2]]),
            min_new_tokens=room + 2,
            max_new_tokens=room + 2,
            do_sample=False,
        )


def test_lines_come_back_in_their_order(data):
    model = T.new_translator(small(), None)
    lines = ["Норвегия", "", "Малайзия, Норвегия и Грузия", "  "]
    together = T.translate(lines, model, data.tokenizer, beams=2, longest=12, batch_size=3)
    apart = [T.translate([line], model, data.tokenizer, beams=2, longest=12)[0] for line in lines]
    assert together == apart and together[1] == together[3] == ""
    assert T.translate([], model, data.tokenizer) == []
    spellings = ["Кита\u0438\u0306", "Кита\u0439", "Ки\u00adта\u0439", "\u00ad"]
    spelled = T.translate(spellings, model, data.tokenizer, 2, longest=12)
    assert spelled[0] == spelled[1] == spelled[2] and len(spelled) == 4


@pytest.mark.parametrize("beams", [1, 3])
def test_rows_without_a_token_are_never_generated(data, beams, monkeypatch):
    tokenizer = copy.deepcopy(data.tokenizer)
    tokenizer.add_tokens("<unused7>")
    unused = len(tokenizer) - 1
    model = T.new_translator(small(vocab_size=len(tokenizer) + 64), None)
    model.bias.data[unused:] = 100.0  # which the network would take before all others
    generated = []
    generate = model.generate

    def noting(*inputs, **options):
        generated.append(generate(*inputs, **options))
        return generated[-1]

    monkeypatch.setattr(model, "generate", noting)
    lines = ["Норвегия", "Малайзия и Грузия"]
    translations = T.translate(lines, model, tokenizer, beams, longest=12)
    assert all(translations) and int(generated[0].max()) < unused
    plain = T.translate(lines, model, tokenizer, beams, longest=12, suppress_tokens=[5])
    assert not (generated[1] == 5).any() and int(generated[1].max()) < unused
    assert len(plain) == 2


def test_of_a_line_that_is_too_long_the_beginning_is_translated_if_asked_for(data, monkeypatch):
    s = small(steps=1)
    model = T.make_model(s, data)
    lines = ["Норвегия", "Норвегия " * 500]
    found = T.translate(
        lines, model.primary_network, data.tokenizer, beams=1, longest=5, too_long="cut"
    )
    assert len(found) == 2
    with pytest.raises(ConfigError, match="too_long='crop' is not one of raise, cut"):
        T.translate(lines, model.primary_network, data.tokenizer, too_long="crop")
    monkeypatch.setattr(T, "test_sets", lambda *_: {"toy": (lines, ["Norway", "Norway"])})
    metrics, measured = T.evaluate_run(s, data, SimpleNamespace(model=model))
    assert (
        "bleu/toy" in metrics
        and measured == "all test lines, the beginning alone of 1 too long ones"
    )
    monkeypatch.setattr(T, "_CHUNK", 1)
    part, measured = T.evaluate_run(s, data, SimpleNamespace(model=model), minutes=0.0)
    assert part.keys() == metrics.keys() and measured == "1 of 2 lines of toy"


def test_what_cannot_be_translated_is_named(data, tmp_path):
    model = T.new_translator(small(), None)
    with pytest.raises(ConfigError, match="one string"):
        T.translate("Норвегия", model, data.tokenizer)
    with pytest.raises(DataError, match="line 2 has 4... tokens, the model positions for 128"):
        T.translate(["Норвегия", "Норвегия " * 500], model, data.tokenizer)
    with pytest.raises(ConfigError, match="longest=999: the model has positions for 128"):
        T.translate(["Норвегия"], model, data.tokenizer, longest=999)
    for lines in (None, 3, {"a": "b"}):
        with pytest.raises(ConfigError, match="is no list of lines"):
            T.translate(lines, model, data.tokenizer)
    with pytest.raises(DataError, match=r"lines\[1\] is 3, not a string"):
        T.translate(["Норвегия", 3], model, data.tokenizer)
    with pytest.raises(ConfigError, match="is no translator: load_translator"):
        T.translate(["a"], "folder", None)
    with pytest.raises(ConfigError, match="beams=0"):
        T.translate(["a"], model, data.tokenizer, beams=0)
    with pytest.raises(ConfigError, match="translations is one string"):
        T.bleu_and_chrf("ab", "ab")
    with pytest.raises(DataError, match=r"references\[0\] is None"):
        T.bleu_and_chrf(["a"], [None])
    with pytest.raises(DataError, match="no translation was given"):
        T.bleu_and_chrf([], [])
    with pytest.raises(DataError, match="1 translations for 2 references"):
        T.bleu_and_chrf(["a"], ["a", "b"])
    with pytest.raises(CheckpointError, match="config.json"):
        T.load_translator(tmp_path)
    T.EncoderForMaskedLM(T.network_config(small())).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="is a xlnb checkpoint: name a translator"):
        T.load_translator(tmp_path)
    with pytest.raises(SystemExit, match="xlnb: .*is a xlnb checkpoint"):
        T.translate_stream(["--model", str(tmp_path)], ["a"], io.StringIO())


def test_the_folder_of_a_run_is_a_translator_and_an_encoder(data, tmp_path):
    translator = T.new_translator(small(), None)
    translator.save_pretrained(tmp_path / "translator")
    data.tokenizer.save_pretrained(tmp_path / "translator")
    loaded, _ = T.load_translator(tmp_path)
    encoder, _ = load_model_and_tokenizer(tmp_path)
    for name, value in translator.encoder.state_dict().items():
        assert torch.equal(loaded.encoder.state_dict()[name], value)
        assert torch.equal(encoder.state_dict()[name], value)


@pytest.mark.parametrize(
    "wrong, said",
    [
        (dict(source="de"), "source='de' is not one of en, ru"),
        (dict(target="ru"), "both 'ru'"),
        (dict(start="veco"), "start='veco'"),
        (dict(init="x", start="mlm"), "not both"),
        (dict(decoder_layers=3), "give 1 to 2"),
        (dict(label_smoothing=1.0), "from 0 up to 1"),
        (dict(snapshots=0), "snapshots"),
        (dict(longest=0), "longest"),
        (dict(parallel="fsdp"), "parallel"),
        (dict(recipe="paper"), "recipe"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, said):
    with pytest.raises(ConfigError, match=said):
        small(**wrong)


def test_a_limit_of_translations_is_part_of_the_run_only_where_it_is_set(data):
    s = small(longest=3)
    assert s.for_record()["longest"] == 3 and "longest" not in small().for_record()
    rows = T.samples(s, data, T.new_translator(s, None))
    lengths = [len(data.tokenizer.tokenize(row["translation"])) for row in rows]
    assert max(lengths) <= 3 < small().longest_translation


def test_a_run_without_sacrebleu_says_what_to_install(without_package):
    without_package("sacrebleu")
    with pytest.raises(ConfigError, match=r"pip install 'xlnb\[translation\]'"):
        T.prepare_data(small())


def test_every_run_of_the_experiments_can_be_resolved():
    for experiment in T.EXPERIMENTS.values():
        for arm in experiment.arms.values():
            T.resolve(T.Settings(**experiment.shared | arm))


def test_without_arguments_the_command_says_what_it_needs():
    done = run_module("xlnb.translation")
    assert done.returncode == 1 and done.stderr.startswith(
        "usage: python -m xlnb.translation --model FOLDER"
    )


def test_a_translator_whose_encoder_reads_one_sentence_says_so():
    assert T.new_translator(small(), None).encoder.config.trained_on_pairs is False


def test_options_of_translating_are_those_that_help_lists(tmp_path, capsys):
    options = ["--model", str(tmp_path), "--beams", "1", "--length-penalty", "1.2"]
    with pytest.raises(SystemExit, match="xlnb: .*config.json"):
        T.translate_stream([*options, "--batch-size=8"], ["a"], io.StringIO())
    for wrong in (["--model", str(tmp_path), "--beam", "1"], ["--beams", "1"]):
        with pytest.raises(SystemExit, match="^xlnb: .*(--beams|--model)"):
            T.translate_stream(wrong, ["a"], io.StringIO())
    with pytest.raises(SystemExit):
        T.translate_stream(["--model", str(tmp_path), "--help"], [], io.StringIO())
    assert "above 1: longer translations" in capsys.readouterr().out


def test_languages_of_a_translator_may_have_three_letters():
    settings = T.resolve(T.Settings(langs="deu,eng", source="deu", target="eng"))
    assert (settings.source, settings.target) == ("de", "en")
