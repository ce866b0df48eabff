"A continued run: one base for all arms, text of the domain alone, its rate, a kill, drops, collapse, what is refused."

import json, math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import write
from hypothesis import given, strategies as st
from safetensors.torch import load_file

from xlnb.base.core import CheckpointError, ConfigError, read_records
from xlnb.training.objectives import MaskIds
from xlnb.training.training import learning_rate_at, read_log
from xlnb.pretraining.experiments import Experiment, missing, records_of
from xlnb.pretraining.pretraining import (
    main,
    run,
    run_folder,
    step_tokens,
    train_phase,
    training_config,
)
from xlnb.pretraining.reports import has_learned
from xlnb.results import continued
from xlnb.results.continued import (
    PHASE,
    RECIPE,
    Settings,
    base_of,
    before_and_after,
    collapse,
    continuation_of,
    drops,
    has_digit,
    hold_out,
    load,
    mean_drop,
    open_domain,
    prepare_data,
    pretrained,
    relative_drop,
    resolve,
    scores,
)
from xlnb import xlm_e, xy_lent

IDS = MaskIds(4, (0, 1, 2, 3, 4), 100)  # of no tokenizer

SMALL = dict(langs="de,en,hi", steps=6, domain_steps=7, pair_lines=300, test_lines=20)

pytestmark = pytest.mark.usefixtures("root")


def small(**changes):
    return resolve(Settings(**{**SMALL, **changes}))


@pytest.fixture(scope="module")
def parts(root):
    return prepare_data(small())


@pytest.fixture(scope="module")
def based(parts):
    return pretrained(small(), parts)


@pytest.fixture(scope="module")
def checkpoint(based):
    return based.base


@pytest.fixture(scope="module")
def whole(root, based):
    assert train_phase(PHASE, small(out=str(root / "whole")), based).summary["finished"]
    return root / "whole"


@pytest.mark.slow
def test_all_arms_continue_one_base_run(parts, checkpoint):
    data = parts
    written = checkpoint.stat().st_mtime_ns
    for arm in (dict(rate=0.1), dict(domain_steps=5), dict(out="elsewhere")):
        assert (
            pretrained(small(**arm), data).base == checkpoint
            and checkpoint.stat().st_mtime_ns == written
        )
    own = xy_lent.resolve(
        xy_lent.Settings(**{k: v for k, v in SMALL.items() if k != "domain_steps"})
    )
    assert checkpoint.parent == run_folder(xy_lent.PHASE, own, data)
    arms = {}, dict(rate=0.1), dict(domain_steps=5), dict(steps=9)
    folders = {run_folder(PHASE, small(**arm), data) for arm in arms}
    assert len(folders) == 4 and checkpoint.parent not in folders
    assert pretrained(small(seed=1, steps=1), data).base != checkpoint


def test_it_starts_from_the_weights_of_the_base_run(based, checkpoint):
    model = load(small(), based)
    fresh = xlm_e.XlmE(continuation_of(small()), IDS)
    for part in model.parts():
        saved = load_file(checkpoint / part / "model.safetensors")
        here = getattr(model, part).state_dict()
        other = getattr(fresh, part).state_dict()
        assert all(torch.equal(here[k], v) for k, v in saved.items())
        assert any(not torch.equal(other[k], v) for k, v in saved.items())


@pytest.mark.parametrize(
    "tasks, alone, parts_", [("mrtd+trtd", "mrtd", 2), ("mlm+tlm", "mlm", 1), ("mrtd", "mrtd", 2)]
)
def test_the_objective_on_the_domain_is_that_of_the_base_run_on_text_alone(tasks, alone, parts_):
    given = small(tasks=tasks, contrast=0.5 if "+" in tasks else 0.0)
    phase = continuation_of(given)
    assert (phase.tasks, phase.contrast, phase.steps) == (alone, 0.0, 7)
    assert sum(step_tokens(phase)) == sum(step_tokens(base_of(given)))
    assert phase.mask_policy == given.mask_policy and len(xlm_e.XlmE(phase, IDS).parts()) == parts_


@pytest.mark.parametrize("rate", [1.0, 0.1, 4.0])
def test_the_rate_climbs_to_its_share_of_the_base_runs(rate):
    given = small(rate=rate, domain_steps=100)
    config, base = (training_config(part) for part in (continuation_of(given), base_of(given)))
    top = max(learning_rate_at(step, config) for step in range(100))
    assert top == learning_rate_at(7, config) == pytest.approx(rate * base.learning_rate)
    assert (config.warmup_steps, config.steps) == (8, 100)


def test_the_log_has_that_rate_from_warm_up_on(whole):
    rates = [line["learning_rate"] for line in read_log(whole)]
    assert len(rates) == 7 and max(rates) == rates[0] == pytest.approx(small().learning_rate)
    assert rates == sorted(rates, reverse=True) and rates[-1] < rates[0] / 5


def test_batches_hold_lines_of_the_domain_alone(parts):
    data = parts
    domain = parts.domain
    batches = PHASE.batches(small(), data)
    cut = data.tokenizer(list(domain.lines), add_special_tokens=False)["input_ids"]
    known = {data.tokenizer.decode(ids).strip() for ids in cut}
    seen = set()
    for step in range(20):
        batch = batches(step, 0)
        for row, mask in zip(batch["input_ids"], batch["attention_mask"]):
            text = data.tokenizer.decode(row[mask == 1])
            seen |= {
                line.strip() for line in text.removeprefix("<s>").split("</s>") if line.strip()
            }
    assert len(seen) > 300 and seen <= known and all(map(has_digit, seen))


def test_held_out_text_is_divided_by_the_domain(parts):
    data = parts
    domain = parts.domain
    batches = hold_out(small(), data).batches
    assert set(batches) == {"de", "en", "hi", "domain"} and all(map(has_digit, domain.held_out))
    assert len(domain.held_out) == len(set(domain.held_out)) == domain.facts["held_out"]
    for name, batch in batches.items():
        whole = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])
        for row in whole:
            lines = (
                data.tokenizer.decode(row).replace("<pad>", "").removeprefix("<s>").split("</s>")
            )
            assert all(has_digit(line) == (name == "domain") for line in lines if line.strip()), (
                name,
                lines,
            )


@pytest.mark.slow
def test_stopped_at_every_step_and_taken_up_again_it_ends_in_the_same_bits(tmp_path, based, whole):
    given = small(out=str(tmp_path), max_minutes=1e-6)  # one step a call
    calls = [train_phase(PHASE, given, based).summary["finished"] for _ in range(7)]
    assert calls == [False] * 6 + [True]
    for part in ("generator", "discriminator"):
        a, b = (load_file(f / part / "model.safetensors") for f in (tmp_path, whole))
        assert all(torch.equal(a[k], b[k]) for k in a)
    last = [{k: v for k, v in read_log(f)[-1].items() if k != "seconds"} for f in (tmp_path, whole)]
    assert last[0] == last[1] and "held_out/rtd_auc/domain" in last[0]


@pytest.mark.slow
def test_a_base_run_that_is_not_finished_says_so_and_goes_on(parts):
    given = small(seed=7, steps=3, max_minutes=1e-6)
    for done in (1, 2):
        with pytest.raises(
            CheckpointError,
            match=f"xy_lent: stopped at the time limit after {done} of 3 steps.*"
            "the same command goes on",
        ):
            pretrained(given, parts)
    assert pretrained(given, parts).base.name == "checkpoint-00000003"


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(rate=0.0), "rate=0.0: the highest"),
        (dict(rate=-1.0), "above 0"),
        (dict(rate=math.inf), "rate=inf"),
        (dict(domain="digit"), "did you mean 'digits'"),
        (dict(domain_steps=0), "domain_steps=0 is not above 0"),
        (dict(rate="1"), "rate='1' is not of type float"),
        (
            dict(domain="captions", corpus="multi30k", langs="cs,de,en"),
            "the base run has read them",
        ),
        (dict(bitext="xy"), "bitext='xy'"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_reason(wrong, says):
    with pytest.raises(ConfigError, match=says):
        resolve(Settings(**wrong))


def test_a_domain_without_text_says_how_many_lines_there_are(parts):
    corpus = parts.corpus
    without = replace(corpus, text=corpus.text | {"en": ["no digit", "here"]})
    with pytest.raises(
        ConfigError, match="0 lines to train on and [1-9][0-9]* held-out lines .* in en of cldr"
    ):
        open_domain(small(), without)
    with pytest.raises(ConfigError, match="and 0 held-out lines"):
        open_domain(small(), replace(corpus, valid={}))


def test_captions_are_read_in_the_pivot_language(monkeypatch, tmp_path, parts):
    for part, lines in (("train", "a dog\ntwo dogs\n"), ("val", "a cat\n")):
        write(tmp_path / "multi30k" / "task1" / "raw" / f"{part}.en.gz", lines)
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    domain = open_domain(small(domain="captions"), parts.corpus)
    assert list(domain.lines) == ["a dog", "two dogs"] and domain.held_out == ["a cat"]
    with pytest.raises(ConfigError, match="'hi' is not one of the 4"):
        open_domain(small(domain="captions", pivot="hi"), parts.corpus)


@given(st.floats(0.01, 100), st.floats(-2, 1))
def test_the_drop_is_the_share_that_is_lost(before, share):
    assert relative_drop(before, before * (1 - share)) == pytest.approx(100 * share, abs=1e-9)


def test_what_was_not_there_cannot_drop():
    assert math.isnan(relative_drop(0.0, 0.5)) and math.isnan(relative_drop(-1.0, 0.5))


def toy(**more):
    metrics = {
        f"tags/{lang}{place}/layer{k + 1}/f1": v
        for lang, rows in {
            "en": [(0.9, 0.8), (0.9, 0.7)],
            "de": [(0.4, 0.6), (0.5, 0.3)],
            "hi": [(0.2, 0.4), (0.1, 0.1)],
        }.items()
        for place, row in zip(("/before", ""), rows)
        for k, v in enumerate(row)
    }
    metrics |= {
        f"tags/{lang}{place}/layer0/f1": 1.0
        for lang in ("en", "de", "hi")
        for place in ("/before", "")
    }
    metrics |= {f"lists/de/before/layer{k}/aer": v for k, v in enumerate((0.1, 0.5, 0.6))}
    metrics |= {f"lists/de/layer{k}/aer": v for k, v in enumerate((0.1, 0.75, 0.1))}
    return {
        "parameters": {"langs": "de,en,hi", "pivot": "en", "domain_steps": 100},
        "metrics": metrics,
        "unigram": {"de": 5.0, "en": 5.0, "hi": 5.0, "domain": 4.0},
        "base_layer": 2,
        "run": {"broken": False},
        **more,
    }


def test_scores_are_those_of_the_layer_that_was_best_at_held_out_retrieval():
    assert scores(toy(), "f1") == {"en": 0.7, "de": 0.3, "hi": 0.1}
    assert scores({**toy(), "base_layer": 1}, "f1") == {"en": 0.9, "de": 0.5, "hi": 0.1}
    assert drops(toy(), "f1") == pytest.approx({"de": 50.0, "en": 12.5, "hi": 75.0})
    # of the mean: 0.5 before, 0.2 after
    assert mean_drop(toy(), "f1") == pytest.approx((12.5, 60.0))
    assert drops(toy(), "aer") == pytest.approx({"de": -125.0})  # links: 0.4 before, 0.9 after
    assert scores(toy(), "acc@1c") == {} and all(map(math.isnan, mean_drop(toy(), "acc@1c")))


def test_the_table_holds_every_measure_of_every_language_and_its_mean_over_records():
    ends = [
        {f"held_out/mlm/{lang}": loss for lang in ("de", "en", "hi", "domain")}
        for loss in (3.0, 2.0)
    ]
    one = toy(curve=ends)
    other = toy(curve=[ends[0], ends[0]])
    rows = {row.pop(""): list(row.values()) for row in before_and_after([one, other])}
    loss, tags, links, retrieval = zip(*rows.values())
    assert list(rows) == ["domain", "en", "de", "hi"]
    assert loss == ("3.0 → 2.5 (4.0)", *["3.0 → 2.5 (5.0)"] * 3) and retrieval == ("–",) * 4
    assert tags == ("–", "80.0 → 70.0 (–)", "60.0 → 30.0 (–)", "40.0 → 10.0 (–)")
    # of the pivot, the mean of its pairs
    assert links == ("–", "60.0 → 10.0 (–)", "60.0 → 10.0 (–)", "–")
    broken = {k: v for k, v in toy(curve=ends)["metrics"].items() if "before" in k}
    assert before_and_after([toy(curve=ends, metrics=broken)])[1]["tags, F1 %"] == "80.0 → – (–)"


def line(step, mlm, **rtd):
    return {
        "step": step,
        "held_out/mlm/domain": mlm,
        **{f"held_out/{k}/domain": v for k, v in rtd.items()},
    }


def test_collapse_counts_evaluations_after_warm_up():
    def rtd(loss, auc=0.5):
        return dict(rtd_loss=loss, rtd_base_loss=0.3, rtd_auc=auc)

    curve = [
        line(-1, 9.0, **rtd(0.5)),
        line(7, 9.0, **rtd(0.5)),
        line(8, 3.0, **rtd(0.2)),
        line(54, 3.0, **rtd(0.2995)),
        line(99, 4.1, **rtd(0.25, 0.8)),
    ]
    found = collapse(toy(curve=curve))
    assert [found[k] for k in ("mlm", "rtd", "auc", "broken", "collapsed")] == [
        1 / 3,
        1 / 3,
        0.8,
        False,
        False,
    ]
    assert [found["below_before"], found["below_after"]] == pytest.approx([-0.2, 0.05])
    assert collapse(toy(curve=curve[:-1]))["collapsed"]
    assert collapse(toy(curve=curve, run={"broken": True}))["collapsed"]
    masked = [{k: v for k, v in l.items() if "rtd" not in k} for l in curve]
    assert collapse(toy(curve=masked)) == {"mlm": 1 / 3, "broken": False, "collapsed": True}


@pytest.mark.slow
def test_a_command_leaves_a_record_that_its_experiment_finds(root):
    arguments = {**SMALL, "tasks": "mlm+tlm", "rate": 0.1}
    main(RECIPE, words(**arguments))
    [record] = read_records("04c_continued")
    assert (
        len(json.dumps(record)) < 40_000
        and record["run"]["finished"]
        and "broken" not in record["run"]
    )
    assert (root / "runs" / record["base"]).is_dir() and record["domain"]["domain"] == "digits"
    for measure in ("f1", "acc@1c", "aer"):
        langs = {"de", "hi"} | {"f1": {"en"}, "acc@1c": {"others"}, "aer": set()}[measure]
        for system in ("", "before", "untrained"):
            assert set(scores(record, measure, system)) == langs
    assert record["base_layer"] in (1, 2, 3) and {*record["base_learned"]} == {"MLM", "TLM"}
    texts = [row[""] for row in before_and_after([record])]
    assert texts == ["domain", "en", "de", "hi", "others"] and not has_learned(record)
    assert record["curve"][0]["step"] == -1 and record["curve"][-1]["step"] == 6
    arms = {"low": {"tasks": "mlm+tlm", "rate": 0.1}, "high": {"tasks": "mlm+tlm"}}
    experiment = Experiment("", arms, SMALL, seeds=(0,))
    assert records_of(experiment, RECIPE, [record]) == {"low": {0: record}, "high": {}}


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run_with_a_record(capsys, root):
    record = run(RECIPE, small(rate=1e30, checkpoint_minutes=0.0))
    assert "diverged after" in capsys.readouterr().out and "not finite" in record["run"]["error"]
    assert record["run"]["finished"] and record["run"]["broken"] and 0 < record["run"]["step"] < 7
    assert (
        collapse(record)["collapsed"]
        and scores(record, "f1", "before")
        and scores(record, "f1") == {}
    )
    # the error names the last checkpoint
    assert str(root) not in json.dumps(record, allow_nan=False)


def test_a_wrong_argument_ends_with_a_sentence():
    with pytest.raises(SystemExit, match="xlnb: rate=0.0: the highest"):
        main(RECIPE, ["--rate", "0.0"])


def losses_become_nan(monkeypatch, steps):
    "Losses of masked tokens are no number in the phase of so many steps."
    whole = xlm_e.XlmE.forward

    def forward(model, *given):
        sums = whole(model, *given)
        if model.settings.steps != steps:
            return sums
        return {
            name: total * math.nan if name in ("mlm", "tlm") else total
            for name, total in sums.items()
        }

    monkeypatch.setattr(xlm_e.XlmE, "forward", forward)


def words(**given):
    return [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", str(v))]


def test_a_base_run_whose_loss_is_no_number_ends_the_command_with_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    losses_become_nan(monkeypatch, steps=5)
    with pytest.raises(
        SystemExit, match="^xlnb: .*mlm.* not finite at step 0: lower the learning rate"
    ):
        main(RECIPE, words(**SMALL | {"steps": 5}))
    assert read_records("04c_continued") == []


@pytest.mark.slow
def test_a_domain_whose_loss_is_no_number_ends_the_command_with_a_sentence_and_a_record(
    monkeypatch, tmp_path, checkpoint, capsys
):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    losses_become_nan(monkeypatch, steps=SMALL["domain_steps"])
    main(RECIPE, words(**SMALL))
    assert "diverged after 0 of 7 steps, 0 tokens: mlm" in capsys.readouterr().out
    [record] = read_records("04c_continued")
    assert record["run"]["broken"] and "not finite at step 0" in record["run"]["error"]
    assert str(checkpoint.parents[2]) not in json.dumps(record)  # no path of this machine
    assert record["base"] == checkpoint.parent.name and collapse(record)["collapsed"]


def test_arms_of_one_objective_and_seed_share_their_base_run():
    todo = missing(continued.EXPERIMENTS["continued"], RECIPE, [])
    bases = [base_of(resolve(Settings(**given))) for _, given in todo]
    assert len(bases) == 20 and len(set(bases)) == 10


@pytest.mark.parametrize("tasks, pairs", [("mrtd+trtd", True), ("mrtd", False)])
def test_text_of_a_domain_does_not_hide_the_pairs_of_the_base_run(monkeypatch, tasks, pairs):
    monkeypatch.setattr("xlnb.results.continued.load_weights", lambda *_: None)
    data = SimpleNamespace(base=None, tokenizer=SimpleNamespace())
    monkeypatch.setattr("xlnb.results.continued.MaskIds.of", lambda *_: IDS)
    model = load(small(tasks=tasks), data)
    assert {getattr(model, part).config.trained_on_pairs for part in model.parts()} == {pairs}
