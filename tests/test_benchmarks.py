"What is measured must be what is said: one loss in every form, a clock that misses nothing, memory that is seen."

import json, subprocess

import pytest
import torch
import torch.nn.functional as F

from xlnb.base.core import ConfigError, torch_generator
from xlnb.training.objectives import vocabulary_head
from xlnb.training.training import accumulate_gradients
from xlnb.measures.task_sets import Labelled, Tagged
from xlnb.results import benchmarks
from xlnb.results.benchmarks import (
    KINDS,
    PEAK_RESET,
    Clock,
    batch_facts,
    compare,
    evaluating,
    fresh,
    growth_cases,
    growth_step,
    head_of,
    main,
    newest,
    notebook_seconds,
    peak_memory,
    plain_head,
    ratios,
    step_of,
    step_settings,
    synthetic_data,
    time_by_part,
    watch,
)

SETTINGS = step_settings("tiny", 600, batch_tokens=256)
counts_memory = pytest.mark.skipif(
    not PEAK_RESET.exists(), reason="resident memory is read from /proc"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def data(folder):
    return synthetic_data(600, 400, folder=folder)


def sums_of(step):
    return accumulate_gradients(step.model, step.work)[0]


def test_a_store_is_written_once(data, folder):
    again = synthetic_data(600, 400, folder=folder)
    assert again.folder == data.folder and again.store.manifest == data.store.manifest
    assert synthetic_data(600, 400, seed=1, folder=folder).folder != data.folder


@pytest.mark.parametrize("pairs, langs", [(1, 2), (3, 3), (4, 4), (10, 5)])
def test_a_store_has_as_many_pairs_as_asked_for(pairs, langs, tmp_path):
    store = synthetic_data(600, 40, pairs, folder=tmp_path).store
    assert (len(store.pairs), len(store.text)) == (pairs, langs)


def test_all_forms_read_the_same_tokens_and_holes(data):
    ours, *others = [batch_facts(step_of(SETTINGS, data, kind).work) for kind in KINDS]
    for facts in others:
        assert {**facts, "places": 0} == {**ours, "places": 0} and facts["places"] > ours["places"]


def test_both_baselines_are_one_network(data):
    "Equal weights and draws: where the logits are computed changes neither a loss nor a gradient."
    steps = [step_of(SETTINGS, data, kind) for kind in ("masked", "electra")]
    masked, everywhere = map(sums_of, steps)
    assert masked == pytest.approx(everywhere, rel=1e-5)
    for (name, a), (_, b) in zip(*(step.model.named_parameters() for step in steps)):
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_a_baseline_has_one_word_table(data):
    model = step_of(SETTINGS, data, "electra").model
    tables = [
        model.generator.get_input_embeddings().weight,
        model.discriminator.get_input_embeddings().weight,
        model.generator.get_output_embeddings().weight,
    ]
    assert len({id(t) for t in tables}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_trains(data, kind):
    step = step_of(SETTINGS, data, kind)
    before = sums_of(step)["mlm"]
    step.model.zero_grad()
    for _ in range(5):
        step()
    assert sums_of(step)["mlm"] < before


def test_steps_that_load_see_new_batches(data):
    step = step_of(SETTINGS, data, loading=True)
    first, second = (step.load()[0][0]["input_ids"] for _ in range(2))
    assert first.shape != second.shape or not torch.equal(first, second)


def test_plain_head_knows_the_loss_of_ours():
    g = torch_generator("plain head")
    hidden = torch.randn(40, 16, generator=g)
    table = torch.randn(700, 16, generator=g)
    ids = torch.arange(40)
    labels = ids.where(ids % 2 == 0, -100)
    loss, drawn, correct = plain_head(F.linear(hidden, table), labels, torch_generator(0))
    ours = vocabulary_head(hidden[::2], table, torch.zeros(700), ids[::2])
    torch.testing.assert_close(loss, ours.loss_sum)
    assert torch.equal(correct, ours.correct) and drawn.shape == (20,) and drawn.max() < 700


def test_calls_take_turns():
    seen = []
    seconds = compare(
        {name: lambda name=name: seen.append(name) for name in "abc"}, repeats=3, warm=1
    )
    assert "".join(seen) == "abc" + "abc" + "bca" + "cab"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_ratios_are_taken_round_by_round():
    "A machine that is three times as slow in one round changes no ratio."
    found = ratios({"ours": [1.0, 3.0, 1.0], "other": [2.0, 6.0, 4.0]}, "ours")
    assert found["other"] == {"ratio": 2.0, "low": 2.0, "high": 4.0}


def test_the_clock_gives_every_moment_to_one_part(monkeypatch):
    times = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    monkeypatch.setattr(benchmarks.time, "thread_time", lambda: next(times))
    clock = Clock()
    for part in ("a", "b", "a", None, "b"):
        clock.mark(part)
    assert clock.seconds == {"a": 1.0 + 3.0, "b": 2.0}


def test_the_passes_set_the_marks_in_order(data):
    "Forwards through generator, head, discriminator; backwards through discriminator, head, generator."
    step = step_of(SETTINGS, data)
    seen = []
    clock = Clock()
    clock.mark = seen.append
    watch(step.model, clock)
    accumulate_gradients(step.model, step.work[:1])

    def body(layers):
        return ["attention", "bodies"] * layers

    forward = [
        "bodies",
        "word table",
        "bodies",
        *body(1),
        "head",
        "bodies",
        "word table",
        "bodies",
        *body(3),
    ]
    assert seen == [*forward, *body(3), "word table", "head", "bodies", *body(1), "word table"]


def test_watching_changes_no_loss(data):
    plain = step_of(SETTINGS, data)
    watched = step_of(SETTINGS, data)
    watch(watched.model, Clock())
    assert sums_of(plain) == pytest.approx(sums_of(watched), rel=1e-6)  # float32


def test_every_part_of_a_step_takes_time(data):
    found = time_by_part(SETTINGS, data, repeats=1)
    assert set(found) == {"loading", "bodies", "attention", "word table", "head", "optimiser"}
    assert min(found.values()) > 0


@counts_memory
def test_memory_is_seen_each_time_anew():
    for megabytes in (200, 50):  # the lower one after the higher one
        assert peak_memory(lambda n=megabytes: torch.ones(n * 250_000)) == pytest.approx(
            megabytes * 1e6, rel=0.2
        )


@counts_memory
def test_the_head_needs_less_memory_than_logits():
    ours, masked, everywhere = [peak_memory(head_of(kind, 1024, 20_000, 32)) for kind in KINDS]
    assert ours < masked < everywhere


@counts_memory
@pytest.mark.slow
def test_a_process_of_its_own(folder):
    case = growth_cases(lines=20)[0]
    found = fresh("build_memory", case=case, folder=str(folder))
    assert found["tokens"] > 1000 and found["peak"] >= found["libraries"] > 1e8


@pytest.mark.parametrize("length", [32, 512])
def test_rows_of_any_length(length, folder):
    case = {"vocab_size": 600, "lines": 400, "pairs": 3, "tasks": "mrtd", "length": length}
    step = growth_step(case, folder)
    assert length / 2 < step.work[0][0]["input_ids"].shape[1] <= length
    step()


def test_steps_are_timed_with_and_without_batches_made_ahead(data, monkeypatch):
    monkeypatch.setattr(benchmarks, "synthetic_data", lambda *_: data)
    table = benchmarks._measure_ahead((("tiny", 600),), batch_tokens=128, steps=2, repeats=2)
    (row,) = table["rows"]
    assert 0 < row["low"] <= row["ratio"] <= row["high"] and row["making"] > 0
    assert {name: len(times) for name, times in row["seconds"].items()} == {
        "in the step": 2,
        "ahead": 2,
    }


def test_a_record_of_each_measurement(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    monkeypatch.setitem(benchmarks.MEASUREMENTS, "steps", lambda: {"rows": [1]})
    assert newest("steps") is None
    main(["steps"])
    main(["steps"])
    line, _ = map(json.loads, (tmp_path / "benchmarks.jsonl").read_text().splitlines())
    assert (
        line["rows"] == [1]
        and line["measurement"] == "steps"
        and {"commit", "processor", "seed"} <= set(line)
    )
    assert newest("steps") == line and str(tmp_path) in capsys.readouterr().out


def test_one_pass_gives_vectors_of_the_same_words_as_a_pass_for_every_epoch():
    found = benchmarks.measure_distil((("tiny", 120),), vocab_size=500, epochs=2)["rows"][0]
    assert found["words"] > 10 and (found["lines"], found["epochs"]) == (120, 2)
    assert 0 < found["low"] <= found["ratio"] <= found["high"] and 0 < found["pass"]


def answered(kind, examples):
    tokenizer = benchmarks._word_tokenizer(400)
    return benchmarks.answering(examples, kind, ("no", "yes"), "tiny", tokenizer, repeats=1)


@pytest.mark.parametrize("kind", ["tagging", "classification"])
def test_a_pipeline_says_the_same_and_fills_up_more(kind):
    words = [tuple(line.split()) for line in benchmarks.sentences(400, 70, 1, "test")]
    make = {
        "tagging": lambda own: Tagged("1", own, ("no",) * len(own)),
        "classification": lambda own: Labelled("1", (" ".join(own), "5 6 7"), "no"),
    }[kind]
    # the last is longer than what is measured
    found = answered(kind, [*map(make, words), make(words[0] * 100)])
    # a tie may turn
    assert (found["examples"], found["kind"]) == (70, kind) and found["different"] <= 1
    assert (
        1 <= found["places"]["xlnb"] < found["places"]["pipeline"]
        and 0 < found["low"] <= found["high"]
    )


def test_unknown_names_are_refused(data):
    with pytest.raises(ConfigError, match="tagging"):
        answered("regression", [Labelled("1", ("5 6",), "1")])
    with pytest.raises(SystemExit, match="steps"):
        main(["stops"])
    with pytest.raises(ConfigError, match="masked"):
        step_of(SETTINGS, data, "maskd")


@pytest.mark.parametrize("ask", ["-h", "--help"])
def test_help_names_the_measurements_and_takes_none(capsys, ask):
    main([ask])
    said = capsys.readouterr().out
    assert said.startswith("usage: python -m xlnb.results.benchmarks")
    assert all(name in said for name in benchmarks.MEASUREMENTS)


@pytest.mark.slow
def test_commands_are_timed_from_end_to_end(monkeypatch):
    monkeypatch.setenv("XLNB_DATA", "/nowhere")  # what is timed reads none
    found = evaluating("en")
    assert (
        found["languages"] == 1
        and found["files"] == [".csv", ".html", ".png", ".tex"]
        and found["seconds"] > 0
    )
    assert notebook_seconds("text/05_vectors") > 0
    with pytest.raises(subprocess.CalledProcessError):
        notebook_seconds("no_such_notebook")
