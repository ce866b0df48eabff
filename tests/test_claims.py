"Claims: when a comparison or a rule is a verdict, and what refuses to be one; the papers' tables."

import math
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from scipy.special import stdtrit

from xlnb.base.core import ConfigError, paper_table, repo_root
from xlnb.pretraining.claims import (
    Claim,
    Comparison,
    Rule,
    direction,
    interval,
    judge,
    judge_rule,
    judged_rows,
    ledger,
    paired_difference,
    rule_rows,
    smallest_effect,
)
from xlnb.pretraining.experiments import recipe_of


def record_of(seed, value, loss=4.0):
    "Of a run whose network is `5 - loss` nats below word frequency."
    curve = [{"tokens": 1e6, "held_out/unigram": 5.0, "held_out/text_mlm": loss}]
    return {"score": value, "parameters": {"seed": seed}, "losses": ["mlm"], "curve": curve}


def runs_of(**arms):
    return {
        "toy": {
            arm: {seed: record_of(seed, v) for seed, v in enumerate(values)}
            for arm, values in arms.items()
        }
    }


def score(record):
    return record["score"]


RISE = Rule(
    "a above b", dict.fromkeys("ab", "toy"), lambda arms: arms["a"]["score"] - arms["b"]["score"]
)
VERSUS = Comparison("score, %", ("toy", "a"), ("toy", "b"), score)
HIGH = (10, 12, 11, 12, 10)
LOW = (7, 8, 8, 7, 8)
NOISE = (9, 13, 11, 13, 9)
RISING = dict(a=(3, 4, 5, 4, 3), b=(1, 2, 3, 2, 1.5))
FALLING = dict(a=(1, 2, 3, 2, 1.5), b=(3, 4, 5, 4, 3))


@pytest.mark.parametrize(
    "a, b, lower, direction, why",
    [
        (HIGH, LOW, False, "as in the paper", ""),
        (HIGH, LOW, True, "opposite", ""),
        (HIGH, NOISE, False, "open", "zero is inside the interval"),
        (HIGH[:4], LOW[:4], False, "open", "4 seeds of 5"),
        ((10, math.nan, 12, 11, 12), LOW, False, "open", "4 seeds of 5"),
    ],
)
def test_a_difference_over_five_seeds_has_a_direction(a, b, lower, direction, why):
    row = judge(replace(VERSUS, lower=lower), runs_of(a=a, b=b))
    assert (row["direction"], row["why"], row["beats the baseline"]) == (direction, why, "")


@pytest.mark.parametrize(
    "lower, baseline, beats",
    [
        (False, 12.0, "no: it 12"),
        (False, 9.0, "yes: it 9"),
        (True, 7.0, "no: it 7"),
        (True, 9.0, "yes: it 9"),
    ],
)
def test_a_baseline_has_a_column_of_its_own_and_leaves_the_direction(lower, baseline, beats):
    row = judge(
        replace(VERSUS, lower=lower, baselines={"it": lambda record: baseline}),
        runs_of(a=HIGH, b=LOW),
    )
    assert (row["direction"], row["beats the baseline"]) == (
        "opposite" if lower else "as in the paper",
        beats,
    )


def test_runs_that_go_on_are_compared_by_what_they_have_gained():
    "Two base runs of an arm were trained again and came out three points lower, which is no fault of the arm."
    runs = runs_of(a=(5, 6, 7, 5, 6), b=(4, 5, 6, 7, 8))
    for seed in (3, 4):
        runs["toy"]["a"][seed]["before"] = -3.0
    since = replace(VERSUS, start=lambda record: record.get("before", 0.0))
    plain = judge(VERSUS, runs)
    found = judge(since, runs)
    assert plain["direction"] == "open" and found["direction"] == "as in the paper"
    assert (
        paired_difference(since, runs) == (1.0, 0.0, 5) and paired_difference(VERSUS, runs)[0] < 0
    )
    assert found["ahead"] == plain["ahead"]  # the scores are shown as they are


def test_networks_that_have_not_learned_decide_nothing():
    runs = runs_of(a=HIGH, b=LOW)
    runs["toy"]["b"][3] = record_of(3, 7, loss=4.6)
    for row in (judge(VERSUS, runs), judge_rule(RISE, runs)):
        assert (row["direction"], row["why"]) == (
            "open",
            "not 0.5 nats below word frequency: b (seed 3)",
        )


def test_a_claim_without_runs_has_a_row_that_says_so():
    claims = {"one": Claim("a before b", "", (VERSUS,)), "two": Claim("nobody ran it", "", ())}
    table = ledger(claims, runs_of(**RISING))
    assert [(row["claim"], row["all measures"]) for row in table] == [
        ("one", "as in the paper"),
        ("two", "too few runs"),
    ]
    assert (
        judged_rows(claims["one"], [RISE], {}) == []
        and judge(VERSUS, runs_of(a=(3, 4), c=(1, 2))) is None
    )


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_the_smallest_effect_is_significant_in_four_of_five_repetitions(seeds):
    "Simulated differences with that true mean; 0.02 is four standard errors of the share."
    generator = np.random.default_rng(seeds)
    deviation = 2.0
    # half of the interval where the sample deviates as the population does
    half = stdtrit(seeds - 1, 0.975) * deviation / np.sqrt(seeds)
    effect = smallest_effect(half, seeds)
    significant = [
        np.subtract(*interval(values)) > 0
        for values in generator.normal(effect, deviation, (6400, seeds)).tolist()
    ]
    assert np.mean(significant) == pytest.approx(0.8, abs=0.02)


def test_a_claim_has_the_direction_of_all_its_rows():
    rows = judged_rows(Claim("a before b", "", (VERSUS,)), [RISE], runs_of(**RISING))
    assert len(rows) == 2 and direction(rows) == "as in the paper"
    assert (
        direction([*rows, {"direction": "opposite"}]) == "open" and direction([]) == "too few runs"
    )


@pytest.mark.parametrize(
    "paper, name, near",
    [
        ("xlm", "table06_aer", "'xlme'"),
        ("xlme", "table6_aer", "'table06_aer'"),
        ("xylent", "x", "is not one of"),
    ],
)
def test_a_table_that_is_not_there_is_refused_with_the_nearest(paper, name, near):
    with pytest.raises(ConfigError, match=near):
        paper_table(paper, name)


def test_every_table_of_the_papers_can_be_read():
    paths = sorted((repo_root() / "data" / "papers").glob("*/*.csv"))
    assert paths and all(paper_table(path.parent.name, path.stem) for path in paths)


# ---- rules
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs, direction, why",
    [
        (RISING, "as in the paper", ""),
        (FALLING, "opposite", ""),
        (dict(a=HIGH, b=NOISE), "open", "zero is inside the interval"),
        (dict(a=HIGH[:2], b=LOW[:2]), "open", "2 seeds of 5"),
        (dict(a=(3, math.nan, 5, 4, 5), b=(1, 2, 3, 2, 2)), "open", "a value in 4 of 5 seeds"),
    ],
)
def test_the_interval_of_its_number_decides_a_rule(runs, direction, why):
    row = judge_rule(RISE, runs_of(**runs))
    seeds = sum(not math.isnan(v) for v in runs["a"])
    assert (row["direction"], row["why"], row["seeds"]) == (direction, why, seeds)


@pytest.mark.parametrize(
    "sign, direction, counted",
    [
        (lambda n: 1 if n > 1 else -1, "as in the paper", (5, 0)),
        (lambda n: -1, "opposite", (0, 5)),
        (lambda n: 0, "open", (0, 0)),
        (lambda n: 1 if n > 1.7 else -1, "open", (4, 1)),
    ],
)
def test_the_interval_of_its_signs_decides_a_rule_with_a_sign(sign, direction, counted):
    row = judge_rule(Rule(RISE.measure, RISE.arms, RISE.number, sign), runs_of(**RISING))
    assert (row["direction"], (row["for"], row["against"])) == (direction, counted)
    assert row["why"] == ("no consistent sign over seeds" if direction == "open" else "")


@pytest.mark.parametrize(
    "baselines, beats",
    [
        ({"low": lambda r: 1.0}, "yes: low 1"),
        ({"low": lambda r: 1.0, "high": lambda r: 4.0}, "no: high 4"),
        ({"some lack it": lambda r: math.nan if r["score"] == 3 else 1.0}, "yes: some lack it 1"),
    ],
)
def test_a_rule_sets_an_arm_against_its_baselines(baselines, beats):
    row = judge_rule(
        Rule(RISE.measure, RISE.arms, RISE.number, None, "a", score, baselines), runs_of(**RISING)
    )
    assert (row["direction"], row["beats the baseline"]) == ("as in the paper", beats)


def test_a_rule_beside_a_baseline_that_nobody_ran_is_refused():
    rule = Rule("a rise", RISE.arms, RISE.number, None, "a", score, {"lsa": lambda r: math.nan})
    with pytest.raises(ConfigError, match="a rise: no record has 'lsa'"):
        judge_rule(rule, runs_of(**RISING))


def test_rules_without_runs_have_no_rows():
    rules = {"toy-01": [RISE], "toy-02": []}
    assert rule_rows(rules, {}) == rule_rows(rules, runs_of(a=(3, 4))) == []
    assert [row["claim"] for row in rule_rows(rules, runs_of(a=(3, 4), b=(1, 2)))] == ["toy-01"]


# ---- the claims of the papers
# ----------------------------------------------------------------------------------------

# module → notebooks of its runs
RESULTS = {
    "xlm_e_results": ("03_xlm_e",),
    "meta_xlm_results": ("05_meta_xlm",),
    "static_results": ("07c_static_runs",),
    "veco_results": ("06_veco", "06a_translation"),
    "xy_lent_results": ("04_xy_lent", "04b_dro_runs", "04c_continued"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_every_arm_that_a_claim_names_is_an_arm_of_its_experiment(name):
    module = import_module(f"xlnb.results.{name}")
    known = {
        (e, arm)
        for notebook in RESULTS[name]
        for e, grid in recipe_of(notebook).experiments.items()
        for arm in grid.arms
    }
    if hasattr(module, "more_runs"):  # on record outside the grids
        known |= {(e, arm) for e, arms in module.more_runs("tiny").items() for arm in arms}
    tables = {t: getattr(module, t, {}) for t in ("RULES", "CONTROLS")}
    entries = [entry for table in tables.values() for some in table.values() for entry in some]
    rules = [entry for entry in entries if isinstance(entry, Rule)]
    comparisons = [c for claim in module.CLAIMS.values() for c in claim.comparisons + claim.either]
    comparisons += [entry for entry in entries if isinstance(entry, Comparison)]
    assert comparisons and {arm for c in comparisons for arm in (c.ahead, c.behind)} <= known
    assert {(e, arm) for rule in rules for arm, e in rule.arms.items()} <= known
    assert all(table.keys() <= module.CLAIMS.keys() for table in tables.values())


@pytest.mark.parametrize(
    "says, shown",
    [
        ("Larger is better", "Larger is better"),
        ("One thing, and another; a third", "One thing, and another"),
        ("One thing (here: a little of it)", "One thing"),
        ("A claim of many words and no sign", "A claim of many words and no sign"),
    ],
)
def test_a_picture_names_a_claim_by_its_main_clause(says, shown):
    claims = import_module("xlnb.results.claims")
    assert claims.main_clause(says, 24) == shown
