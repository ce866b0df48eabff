"What every paper stands on: one that is new lands in 80 lines; the losses of the three that were there have not moved."

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import toy_paper
import torch
from conftest import ROOT
from safetensors.torch import load_file

from xlnb.base.core import read_records, run_facts
from xlnb.text.batches import folder_lock
from xlnb.encoder.encoder import compile_blocks
from xlnb.training.training import NonFiniteLoss, make_optimizer, read_log, update
from xlnb.pretraining import pretraining
from xlnb.pretraining.pretraining import (
    NOT_IDENTITY,
    RunSettings,
    finished_phase,
    main,
    run,
    run_folder,
    run_identity,
    limited_threads,
    train_phase,
    training_config,
)
from xlnb import meta_xlm, xlm_e, xy_lent

SMALL = dict(test_lines=20, langs="en,ru", layers=1)


def small(**changes):
    return toy_paper.resolve(toy_paper.Settings(**SMALL | changes))


def weights(folder):
    return load_file(Path(folder) / "generator" / "model.safetensors")


# ---------------------------------------------------------------- a new paper


def test_a_new_paper_is_eighty_lines_and_touches_no_module():
    assert len((ROOT / "tests" / "toy_paper.py").read_text().splitlines()) <= 80
    assert "import" not in toy_paper.RECIPE.phase.code


@pytest.fixture(scope="module")
def record(root):
    return run(toy_paper.RECIPE, small(out=str(root / "whole")))


@pytest.mark.slow
def test_it_trains_records_and_is_evaluated(record, root):
    assert (
        record["run"]["finished"]
        and record["parameters"]["weight"] == 1.0
        and record["parameters"]["out"] == ""
    )
    first = record["curve"][0]
    last = record["curve"][-1]
    assert (first["step"], last["step"]) == (-1, 23) and last["held_out/text_mlm"] < first[
        "held_out/text_mlm"
    ]
    assert {"T3/en-ru/layer1/acc@1c", "T3/en-ru/untrained/layer1/acc@1c"} <= record[
        "metrics"
    ].keys()
    assert "a contrast" in (root / "whole" / "generator" / "README.md").read_text()
    assert {"mlm", "contrast"} <= read_log(root / "whole")[0].keys()


@pytest.mark.parametrize("given, threads", [(None, 1), ("2", 2)])
def test_tiny_takes_one_thread_unless_told_otherwise(given, threads, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    try:
        torch.set_num_threads(2)
        with limited_threads(small()):
            assert torch.get_num_threads() == threads
        with limited_threads(replace(small(), size="base")):
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_compiled_blocks_learn_the_same(tmp_path, monkeypatch):
    """By what torch.compile does before it writes code: a C++ compiler need not be here.

    XLM-E's networks and evaluations are more programs than PyTorch's own limit."""
    monkeypatch.setattr(
        pretraining, "compile_blocks", lambda model: compile_blocks(model, "aot_eager")
    )
    # else it goes on uncompiled
    monkeypatch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)

    def learned(compiled):
        s = xlm_e.resolve(
            xlm_e.Settings(
                **SMALL | dict(layers=2),
                steps=3,
                compiled=compiled,
                out=str(tmp_path / str(compiled)),
            )
        )
        block = train_phase(
            xlm_e.PHASE, s, xlm_e.prepare_data(s)
        ).model.primary_network.encoder.layers[0]
        assert (block._compiled_call_impl is not None) == compiled
        return [line["loss"] for line in read_log(s.out)], list(weights(s.out))

    (plain, names), (compiled, same_names) = learned(False), learned(True)
    # other kernels, other roundings
    assert plain == pytest.approx(compiled, rel=1e-4) and names == same_names


@pytest.mark.slow
def test_killed_in_an_evaluation_it_goes_on_to_the_same_bits(record, root, tmp_path):
    class Killed(Exception):
        pass

    calls = []

    def dying(s, data):
        measure = toy_paper.measures(s, data)

        def look(model):
            calls.append(1)
            # the first is of the start
            if len(calls) == 2:
                raise Killed
            return measure(model)

        return look

    s = small(out=str(tmp_path), checkpoint_minutes=1e-6)
    with pytest.raises(Killed):
        run(replace(toy_paper.RECIPE, phase=replace(toy_paper.PHASE, measures=dying)), s)
    assert 0 < len(read_log(tmp_path)) < 24
    again = run(toy_paper.RECIPE, s)
    assert again["run"]["finished"] and [l["step"] for l in read_log(tmp_path)] == list(range(24))
    whole = weights(root / "whole")
    resumed = weights(tmp_path)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.slow
def test_from_the_command_line(root, capsys):
    arguments = [
        "--test_lines",
        "20",
        "--langs",
        "en,ru",
        "--layers",
        "1",
        "--out",
        str(root / "whole"),
    ]
    main(toy_paper.RECIPE, arguments)
    assert "finished: 24 of 24 steps" in capsys.readouterr().out
    assert read_records("98_contrast")[-1]["parameters"]["langs"] == "en,ru"
    for wrong, says in (
        (["--weight", "-1"], "weight=-1.0 is not above 0"),
        (["--wieght", "1"], "(?s)Perhaps you meant.*--weight"),
    ):
        with pytest.raises(SystemExit, match=says):
            main(toy_paper.RECIPE, wrong)


@pytest.mark.parametrize(
    "error, status",
    [
        (NonFiniteLoss("contrast not finite at step 3"), "not finite at step 3"),
        (KeyboardInterrupt(), 130),
    ],
)
def test_a_diverged_loss_and_an_interrupt_end_with_a_sentence(monkeypatch, error, status, capsys):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("xlnb.pretraining.pretraining.train_phase", broken)
    with pytest.raises(SystemExit) as ended:
        main(toy_paper.RECIPE, ["--test_lines", "20", "--langs", "en,ru"])
    if status == 130:
        assert ended.value.code == 130 and "the same command goes on" in capsys.readouterr().err
    else:
        assert status in str(ended.value.code)


def test_what_names_a_run_and_what_does_not(root):
    s = small()
    data = toy_paper.prepare_data(s)
    same = replace(s, max_minutes=9.0, checkpoint_minutes=1.0)
    other = replace(s, weight=2.0)
    assert run_folder(toy_paper.PHASE, same, data) == run_folder(toy_paper.PHASE, s, data)
    assert run_folder(toy_paper.PHASE, other, data) != run_folder(toy_paper.PHASE, s, data)
    assert not NOT_IDENTITY & run_identity(toy_paper.PHASE, s, data).keys()


def test_a_phase_that_comes_first_is_trained_once(root):
    s = small(seed=5, steps=4)
    data = toy_paper.prepare_data(s)
    calls = []

    def counted(s, data):
        calls.append(1)
        return toy_paper.Contrast(s, data)

    phase = replace(toy_paper.PHASE, model=counted)
    first, second = (finished_phase(phase, s, data) for _ in range(2))
    assert first == second and first.name == "checkpoint-00000004" and len(calls) == 1


def test_two_processes_do_not_train_in_one_folder_at_once(root):
    s = small(seed=6, steps=4)
    data = toy_paper.prepare_data(s)
    folder = run_folder(toy_paper.PHASE, s, data)
    with ThreadPoolExecutor() as pool:
        with folder_lock(folder):
            second = pool.submit(train_phase, toy_paper.PHASE, s, data)
            with pytest.raises(TimeoutError):
                second.result(timeout=2)
            assert not read_log(folder)
        assert second.result().summary["finished"] and len(read_log(folder)) == 4


def test_settings_are_never_changed():
    with pytest.raises(AttributeError):
        RunSettings().size = "base"
    with pytest.raises(AttributeError):
        toy_paper.RECIPE.notebook = "99"


# ---------------------------------------------------------------- losses of seeded runs

SEEDED = json.loads((ROOT / "tests" / "losses.json").read_text())
RECIPES = {"xlm_e": xlm_e.RECIPE, "xy_lent": xy_lent.RECIPE, "meta_xlm": meta_xlm.RECIPE}


def steps_of(phase, s, data, folder):
    "Losses of the first steps of a run."
    config = training_config(s)
    model = phase.model(s, data)
    batches = phase.batches(s, data)
    optimizer = make_optimizer(model, config)
    return [update(model, optimizer, batches, config, step, folder)["loss"] for step in range(50)]


@pytest.mark.parametrize("name", RECIPES)
def test_the_first_fifty_losses_of_a_seeded_run_stay(name, tmp_path, monkeypatch):
    """To 1e-6 where processor and PyTorch are those on record. Elsewhere sums have another order, and a token that
    is drawn differently for it moves a loss by some thousandths: 2 % then."""
    recipe = RECIPES[name]
    seeded = SEEDED["losses"][name]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    s = recipe.resolve(recipe.Settings(**seeded["parameters"], relative_bias_init="random"))
    data = recipe.earlier_phases(s, recipe.prepare(s))
    facts = run_facts()
    here = all(facts[k] == SEEDED[k] for k in ("processor", "torch"))
    assert steps_of(recipe.phase, s, data, tmp_path) == pytest.approx(
        seeded["losses"], rel=1e-6 if here else 0.02
    )
