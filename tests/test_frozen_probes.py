"Frozen probes: states of every layer by one pass, the layer chosen on dev, rows that an evaluation shows."

from dataclasses import replace

import pytest
import torch
from test_evaluation import data, model, settings, small_data  # noqa: F401  fixtures

from xlnb.base.core import ConfigError, DataError
from xlnb.encoder.loading import load_model_and_tokenizer
from xlnb.evaluation import evaluate, recorded, scores_record
from xlnb.measures import frozen_probes as P
from xlnb.measures.evaluation_settings import Settings, resolve
from xlnb.measures.finetuning import LearnedTask
from xlnb.measures.task_runs import TaskRun, baseline_rows, drawn, learned_task
from xlnb.measures.task_sets import Labelled, Tagged

WORDS = Tagged("1", ("dog", "barks", "house"), ("A", "B", "A"))
PAIR = Labelled("2", ("dog barks", "tree"), "x")
TEXT = Labelled("3", ("dog barks",), "x")


@pytest.fixture
def probing(settings):  # noqa: F811
    return replace(settings, epochs=0, probe="frozen", controls=False)


@pytest.mark.parametrize("example, vectors", [(WORDS, 3), (PAIR, 2), (TEXT, 1)])
def test_states_of_all_layers_are_those_of_the_network(model, example, vectors):  # noqa: F811
    network, tokenizer = load_model_and_tokenizer(model)
    (states,) = P.frozen_states(network, tokenizer, [example], [0, 1, 2])
    assert states.shape == (3, vectors, network.config.hidden_size)
    texts = [" ".join(example.words)] if example is WORDS else example.texts
    inputs = tokenizer(*texts, return_tensors="pt")
    with torch.inference_mode():
        last = network.eval()(input_ids=inputs["input_ids"]).last_hidden_state[0]
    sides = inputs.encodings[0].sequence_ids
    first = [n for n, side in enumerate(sides) if side == 0]
    expected = last[first[0]] if example is WORDS else last[first].mean(0)
    assert torch.allclose(states[2, 0], expected, atol=1e-5)


def test_a_word_that_is_cut_off_is_read_as_zeros(model, monkeypatch):  # noqa: F811
    monkeypatch.setattr("xlnb.measures.probes.longest_input", lambda *_: 4)
    network, tokenizer = load_model_and_tokenizer(model)
    with pytest.warns(UserWarning, match="cut"):
        (states,) = P.frozen_states(network, tokenizer, [WORDS], [2])
    assert states.shape[1] == 3 and not states[0, 2].any() and states[0, 0].any()


def test_a_text_without_tokens_is_said(model):  # noqa: F811
    network, tokenizer = load_model_and_tokenizer(model)
    with pytest.raises(DataError, match="a text without tokens"):
        P.frozen_states(network, tokenizer, [Labelled("1", ("",), "x")], [0])


def test_a_probe_answers_for_every_word_or_pair():
    assert P.probe_features([torch.zeros(3, 2, 8)], [PAIR]).shape == (3, 1, 32)
    features = torch.tensor([[-1.0], [-2.0], [1.0], [2.0]])
    probe = P.learn_layer(features, torch.tensor([0, 0, 1, 1]), 2)
    assert isinstance(probe, P.LayerProbe) and probe.means.item() == 0
    scores = probe.scores(features)
    texts = [TEXT._replace(id=str(n)) for n in range(4)]
    assert P.answers_of_scores(scores, ("x", "y"), texts) == ["x", "x", "y", "y"]
    assert P.answers_of_scores(scores[:3], ("x", "y"), [WORDS]) == [("x", "x", "y")]


def test_dev_chooses_the_layer_and_the_lowest_of_equals():
    examples = [Labelled(str(n), ("a",), "xy"[n % 2]) for n in range(40)]
    noise = torch.randn(40, 3, 1, 4, generator=torch.Generator().manual_seed(0))
    for n, states in enumerate(noise):
        states[1:, 0, 0] = 5.0 * (n % 2)  # layers 1 and 2 know the label
    states = dict(zip(examples, noise))

    def score(gold, answers):
        return sum(e.label == answer for e, answer in zip(gold, answers)) / len(gold)

    task = LearnedTask("classification", ("x", "y"), examples[:20], examples[20:], score)
    learned = P.learn_layers(task, states, [0, 6, 12])
    assert isinstance(learned, P.LayerProbes) and learned.best == 6
    assert learned.dev[1] == 1.0 > learned.dev[0]


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_an_evaluation_by_frozen_probes_beside_its_controls(probing):
    scores = evaluate(replace(probing, controls=True, train_examples=40, seeds=2))
    assert [*scores.system.unique()] == ["model", "untrained", "majority", "character n-grams"]
    assert {*scores.seed} == {0, 1} and {*scores[scores.system == "model"].layer} <= {0, 1, 2}
    assert (scores.groupby(["system", "target", "seed", "measure"]).size() == 1).all()
    record = scores_record(resolve(replace(probing, train_examples=40)), scores)
    assert "(train_split=dev, probe=frozen, train_examples=40)" in recorded([record]).system[0]


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_rows_of_all_layers_choose_by_dev_alone(probing):
    run = TaskRun("xnli", resolve(probing))
    rows = P.probe_rows(run, ["en", "sw"], [])
    assert len(rows) == 3 * 2
    (best,) = {r["layer"] for r in rows if r["chosen"]}
    dev = {r["layer"]: r["dev"] for r in rows}
    assert best == min(layer for layer in dev if dev[layer] == max(dev.values()))
    run = TaskRun("xnli", resolve(replace(probing, layer=1)))
    assert {r["layer"] for r in P.probe_rows(run, ["sw"], [])} == {1}


def test_seeds_draw_examples_the_same_in_all_languages(probing):
    run = TaskRun("xnli", resolve(replace(probing, train_examples=10, test_examples=5, seeds=2)))
    tasks = [learned_task(run, "en", seed) for seed in (0, 0, 1)]
    assert tasks[0].train == tasks[1].train != tasks[2].train and len(tasks[0].train) == 10
    assert tasks[0].dev == tasks[2].dev and not {*tasks[0].train} & {*tasks[0].dev}
    assert [e.id for e in run.read_test("en")] == [e.id for e in run.read_test("sw")]
    assert {r["seed"] for r in baseline_rows(run)} == {0, 1}
    assert drawn([1, 2], 0, 0) == drawn([1, 2], 2, 0) == [1, 2]


def test_settings_that_a_probe_does_not_have_are_said(probing, settings):  # noqa: F811
    for wrong, said in (
        (dict(epochs=2), "probe='frozen' trains no network: leave out epochs=2"),
        (dict(against="x"), "leave out against"),
        (dict(seeds=3), "seeds draw the examples to learn from; give train_examples"),
        (dict(train_examples=-1), "train_examples=-1: give a number of examples, or 0"),
        (dict(probe="linear"), "frozen"),
    ):
        with pytest.raises(ConfigError, match=said):
            resolve(replace(probing, **wrong))
    with pytest.raises(ConfigError, match="stsb is regression: a frozen probe tells labels"):
        P.probe_rows(TaskRun("stsb", replace(probing, tasks="stsb")), ["en"], [])
    with pytest.raises(ConfigError, match="layer=1"):
        resolve(replace(settings, layer=1))


def test_records_without_a_probe_stay_as_they_were(settings):  # noqa: F811
    from xlnb.evaluation import pd

    plain = scores_record(resolve(settings), pd.DataFrame({"score": [1.0]}))["parameters"]
    assert not {"probe", "train_examples", "test_examples"} & {*plain}
    assert Settings().probe == ""
