"Sampling in phases: what is read when, the same bits after a stop inside and at the border of a phase, errors."

from collections import Counter
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from xlnb import meta_xlm, veco, xlm_e, xy_lent
from xlnb.base.core import ConfigError, DataError
from xlnb.encoder.heads import head_flops
from xlnb.pretraining.pretraining import (
    SCHEDULES,
    mean_masking,
    phase_choices,
    phase_report,
    record_of,
    refuse_schedules,
    run_identity,
    train_phase,
)
from xlnb.pretraining.reports import model_card
from xlnb.text.phases import (
    SamplingPhase,
    draw_phases,
    first_steps,
    languages_at,
    pairs_of,
    parse_phases,
    phase_lines,
    phase_rows,
)
from xlnb.training.training import read_log

PHASES = "50% en,de mask=0.3 pair_mask=0.2 | 50% all alpha=0.3 mask=0.05"
SMALL = dict(test_lines=20, langs="de,en,ru", steps=6, batch_tokens=256, width=32, layers=1)


def small(paper=xlm_e, **changes):
    return paper.resolve(paper.Settings(**SMALL | dict(phases=PHASES) | changes))


@pytest.fixture(scope="module")
def data():
    return xlm_e.prepare_data(small())


def mask_rates(paper, s, data, step) -> dict:
    "Share of the tokens that the model masks, for text and for pairs."
    batches = paper.make_batches(s, data)
    model = paper.PHASE.model(s, data)
    rates = {}
    for index in range(batches.micro_batches):
        batch = batches(step, index)
        rates["text" if index < batches.text_micro else "pairs"] = batch.get("mask_rate")
        prepared = model.prepare(batch, torch.Generator().manual_seed(0))
        prepared = prepared[0] if isinstance(prepared, list) else prepared
        assert (prepared["labels"] != -100).any()
    return rates


@pytest.mark.parametrize("paper", [xlm_e, xy_lent, veco, meta_xlm])
def test_a_language_of_a_later_phase_has_no_text_before(paper):
    s = small(paper, **({"parts": "none"} if paper is meta_xlm else {}))
    data = paper.prepare_data(s)
    batches = paper.make_batches(s, data)
    text = batches.parts["text"]
    first, second = (
        text.mixture.draw(start * batches.text_micro * batches.rows, count)[0]
        for start, count in ((0, 3 * batches.text_micro * batches.rows), (3, 4000))
    )
    assert "ru" not in first and "ru" in second
    tokens = {lang: source.counts["tokens"] for lang, source in data.store.text.items()}
    planned = languages_at(tokens, SamplingPhase(0.5, ("de", "en", "ru"), 0.3), s.alpha)
    by_tokens = Counter()
    for lang, n in Counter(second).items():
        by_tokens[lang] += n * text.tokens_each[lang]
    for lang, share in planned.items():
        assert by_tokens[lang] / sum(by_tokens.values()) == pytest.approx(share, rel=0.1), lang
    if "pairs" in batches.parts:
        slots = batches.pair_micro * batches.bundles
        pairs = batches.parts["pairs"].mixture
        assert set(pairs.draw(0, 3 * slots)[0]) == {"de-en"}
        assert {"de-ru", "en-ru"} <= set(pairs.draw(3 * slots, 400)[0])
    rates = [mask_rates(paper, s, data, step)["text"] for step in range(6)]
    assert rates == [0.3] * 3 + [0.05] * 3
    if "pairs" in batches.parts:
        rates = [mask_rates(paper, s, data, step)["pairs"] for step in range(6)]
        assert rates == [0.2] * 3 + [None] * 3


def test_masks_follow_the_phase(data):
    s = small(steps=20, batch_tokens=4096)
    batches = xlm_e.make_batches(s, data)
    model = xlm_e.new_xlm_e(s, data)
    masked = []
    for step in (0, 19):
        batch = model.prepare(batches(step, 0), torch.Generator().manual_seed(1))
        masked.append(int((batch["labels"] != -100).sum()) / int(batch["attention_mask"].sum()))
    assert masked[0] == pytest.approx(0.3, rel=0.25) and masked[1] == pytest.approx(0.05, rel=0.4)


def learned(s, data):
    summary = {"finished": False}
    while not summary["finished"]:
        summary = train_phase(xlm_e.PHASE, s, data).summary
    lines = [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(s.out)]
    losses = [{k: v for k, v in line.items() if "held_out" not in k} for line in lines]
    return losses, load_file(f"{s.out}/discriminator/model.safetensors"), lines


@pytest.mark.slow
def test_stopped_after_every_step_it_ends_in_the_same_bits(data, tmp_path, monkeypatch):
    losses, weights, lines = learned(small(out=str(tmp_path / "one")), data)
    stopped = small(out=str(tmp_path / "stopped"), max_minutes=1e-9)
    with monkeypatch.context() as m:
        # batches are made ahead, over the border of the phases too
        m.setattr("xlnb.training.training._has_spare_processor", lambda device: True)
        ahead = learned(small(out=str(tmp_path / "ahead")), data)
    for other in (learned(stopped, data), ahead):
        assert other[0] == losses
        assert all(torch.equal(weights[name], other[1][name]) for name in weights)
    assert "held_out/text_mlm" in lines[-1]


@pytest.mark.slow
def test_held_out_losses_of_every_language_stay(tmp_path):
    s = small(meta_xlm, parts="none", out=str(tmp_path / "run"), steps=2)
    data = meta_xlm.prepare_data(s)
    trained = train_phase(meta_xlm.PHASE, s, data)
    for line in (trained.log[0], trained.log[-1]):
        assert {f"held_out/mlm/{lang}" for lang in ("de", "en", "ru")} <= line.keys()
    record = record_of(meta_xlm.RECIPE, s, meta_xlm.with_start(s, data), trained, {})
    assert record["parameters"]["phases"] == PHASES
    assert [row["steps"] for row in record["phases"]] == ["0 to 0", "1 to 1"]
    assert set(record["phases"][0]["text"]) == {"de", "en"}
    assert f"Sampled in phases: `{PHASES}`" in model_card(record, "a model")


def test_phases_are_part_of_a_run_only_where_there_are_any(data):
    plain = small(phases="")
    assert "phases" not in plain.for_record() and "phases" in small().for_record()
    assert "phases" not in run_identity(xlm_e.PHASE, plain, data)
    batches = xlm_e.make_batches(plain, data)
    assert "mask_rate" not in batches(0, 0) and len(batches.parts["text"].mixture.versions) == 1


def test_flops_and_plans_count_the_masks_of_all_phases(data):
    "Half of the steps at rates of 30 % and 20 % cost as much as all of them at the means."
    s = small(phases="50% all mask=0.3 pair_mask=0.2 | 50% all", pair_mask_rate=0.4)
    masking = mean_masking(s, s.masking)
    assert (masking.text_rate, masking.pair_rate) == pytest.approx((0.225, 0.3))
    plain = replace(s, phases="", pair_mask_rate=masking.pair_rate)
    more, less = (xlm_e.training_flops(x)["standard"] for x in (s, plain))
    head = head_flops(xlm_e.network_configs(s)["generator"])
    text_tokens = 256
    assert more - less == pytest.approx(3 * text_tokens * (0.225 - 0.15) * head)
    budget = 100.5 * more
    assert small(phases=s.phases, pair_mask_rate=0.4, steps=None, budget_flops=budget).steps == 100
    for paper in (xlm_e, xy_lent):
        planned = [paper.RECIPE.plan(x, data) for x in (s, plain)]
        assert planned[0] != planned[1]


@pytest.mark.parametrize("paper", [veco, meta_xlm])
def test_plans_of_the_others_count_them_too(paper, data):
    parts = {"parts": "none"} if paper is meta_xlm else {}
    s = small(paper, phases="50% all mask=0.9 | 50% all", **parts)
    prepared = paper.prepare_data(s)
    assert paper.plan_of(s, prepared) != paper.plan_of(replace(s, phases=""), prepared)


def test_plan_and_table_name_them():
    s = small(phases="50% en,de mask=0.3 | 50% de,en")
    assert phase_report(s) == [
        "phase 1  steps 0 to 2: de, en; masks, text 30%",
        "phase 2  steps 3 to 5: de, en",
        "no phase reads ru",
    ]
    assert phase_choices(s)[0][:2] == ("phase 1", "one phase")
    rows = xlm_e.compare_with_paper(s)
    assert [row["this run"] for row in rows if row[""] == "phase 2"] == ["steps 3 to 5: de, en"]


@pytest.mark.parametrize(
    "phases, said",
    [
        ("60% en,xx | 40% all", r"phase 1 .*language='xx' is not one of"),
        ("60% en,de | 50% all", "sum to 110.0%, not to 100%"),
        ("60% en,de | 40%", "give a share of the steps and languages"),
        ("0% en,de | 100% all", "no share of the steps"),
        ("120% en,de", "no share of the steps"),
        ("en,de | all", "give a share of the steps and languages"),
        ("100% +ru", "this is the first"),
        ("100% ,", "no language"),
        ("60% en,de alpha=7 | 40% all", "alpha=7 is no number above 0 and up to 1$"),
        ("60% en,de alpha=1.00001 | 40% all", "alpha=1.00001 is no number"),
        ("60% en,de temperature=0.1 | 40% all", "temperature=0.1 is no number of 1 or more"),
        ("60% en,de temperature=inf | 40% all", "temperature=inf is no number"),
        ("60% en,de mask=30 | 40% all", "mask=30 is no number above 0 and below 1"),
        ("60% en,de mask=0.1 mask=0.2 | 40% all", "comes twice"),
        ("60% en,de alpha=1 temperature=1 | 40% all", "say the same"),
        ("60% en,de rate=0.3 | 40% all", "setting='rate' is not one of"),
        ("99% en,de | 1% all", "phase 2 of 2 has no step of steps=6"),
    ],
)
def test_what_is_no_phase_is_said_in_a_sentence(phases, said):
    with pytest.raises(ConfigError, match=said) as e:
        small(phases=phases)
    assert "\n" not in str(e.value)


def test_what_a_phase_cannot_read_is_said(data):
    s = small(phases="50% en | 50% all")
    with pytest.raises(DataError, match=r"phase 1 \(en\) has no pairs"):
        xlm_e.make_batches(s, data)
    xlm_e.make_batches(replace(s, tasks="mlm"), data)


@pytest.mark.parametrize("name", SCHEDULES)
def test_others_than_the_four_papers_refuse_them(name):
    given = {"phases": PHASES, "snapshot_every": 2, "average_last": 2}
    s = xlm_e.Settings(**{name: given[name]})
    with pytest.raises(ConfigError, match=f"{name}=.* leave it out"):
        refuse_schedules(s)


def test_combinations_without_a_meaning_are_refused():
    with pytest.raises(ConfigError, match="both set the shares"):
        small(meta_xlm, source_share=0.5)
    with pytest.raises(ConfigError, match="which reads en alone"):
        small(xy_lent, bitext="none", tasks="mlm")


def test_the_parts_of_a_line():
    langs = ["de", "en", "fr"]
    phases = parse_phases("0.5 en, de | 0.5 +fr temperature=2", langs)
    assert phases == [
        SamplingPhase(0.5, ("de", "en")),
        SamplingPhase(0.5, ("de", "en", "fr"), alpha=0.5),
    ]
    assert first_steps(phases, 5) == [0, 2]
    assert pairs_of({"de-en": 1, "en-fr": 2}, phases[0]) == {"de-en": 1}
    assert len(phase_rows(phases, 5)) == 2 and phase_lines(phases, 5)[1].endswith("exponent 0.5")
    assert draw_phases(phases, dict(de=3, en=2, fr=1), 0.7).axes[0].patches
