"Claims: when a comparison or a rule is a verdict, and what refuses to be one; the papers' tables."
import math
from dataclasses import replace
from importlib import import_module

import pytest

from xlnb.claims import Claim, Comparison, Rule, judge, judge_rule, judged_rows, ledger, paper_table, rule_rows, verdict
from xlnb.core import ConfigError, repo_root
from xlnb.experiments import recipe_of


def runs_of(**arms): return {"toy": {arm: {seed: {"score": v} for seed, v in enumerate(values)}
                                     for arm, values in arms.items()}}


def score(record): return record["score"]


RISE = Rule("a above b", dict.fromkeys("ab", "toy"), lambda arms: arms["a"]["score"] - arms["b"]["score"])
VERSUS = Comparison("score, %", ("toy", "a"), ("toy", "b"), score)


@pytest.mark.parametrize("a, b, lower, baseline, verdict, because", [
    ((10, 12, 11), (7, 8, 8), False, None, "reproduced", ""), ((10, 12, 11), (7, 8, 8), True, None, "contradicted", ""),
    ((10, 12, 11), (7, 8, 8), False, 12.0, "not at this scale", "no better than it"),
    ((10, 12, 11), (7, 8, 8), True, 7.0, "not at this scale", "no better than it"),
    ((10, 12, 11), (9, 13, 11), False, None, "not at this scale", "inside two standard errors"),
    ((10, 12), (7, 8), False, None, "not at this scale", "fewer than 3 seeds"),
    ((10, math.nan, 12), (7, 8, 8), False, None, "not at this scale", "fewer than 3 seeds")])
def test_a_difference_beyond_two_standard_errors_and_the_baseline_is_a_verdict(a, b, lower, baseline, verdict, because):
    known = {} if baseline is None else {"it": lambda record: baseline}
    row = judge(replace(VERSUS, lower=lower, baselines=known), runs_of(a=a, b=b))
    assert (row["verdict"], row["because"]) == (verdict, because)


def test_a_claim_without_runs_has_a_row_that_says_so():
    claims = {"one": Claim("a before b", "", (VERSUS,)), "two": Claim("nobody ran it", "", ())}
    table = ledger(claims, runs_of(a=(3, 4, 5), b=(1, 2, 3)))
    assert [(row["claim"], row["marked"]) for row in table] == [("one", "reproduced"), ("two", "no runs")]
    assert judged_rows(claims["one"], [RISE], {}) == [] and judge(VERSUS, runs_of(a=(3, 4), c=(1, 2))) is None


def test_a_claim_is_marked_by_what_all_its_rows_say():
    rows = judged_rows(Claim("a before b", "", (VERSUS,)), [RISE], runs_of(a=(3, 4, 5), b=(1, 2, 3)))
    assert len(rows) == 2 and verdict(rows) == "reproduced"
    assert verdict([*rows, {"verdict": "contradicted"}]) == "not at this scale" and verdict([]) == "no runs"


@pytest.mark.parametrize("paper, name, near", [
    ("xlm", "table06_aer", "'xlme'"), ("xlme", "table6_aer", "'table06_aer'"), ("xylent", "x", "is not one of")])
def test_a_table_that_is_not_there_is_refused_with_the_nearest(paper, name, near):
    with pytest.raises(ConfigError, match=near): paper_table(paper, name)


def test_every_table_of_the_papers_can_be_read():
    paths = sorted((repo_root() / "data" / "papers").glob("*/*.csv"))
    assert paths and all(paper_table(path.parent.name, path.stem) for path in paths)


# ---- rules -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("a, b, verdict, because", [
    ((3, 4, 5), (1, 2, 3), "reproduced", ""), ((1, 2, 3), (3, 4, 5), "contradicted", ""),
    ((1, 5, 3), (3, 1, 4), "not at this scale", "undecided"),
    ((3, 4), (1, 2), "not at this scale", "fewer than 3 seeds"),
    ((3, math.nan, 5), (1, 2, 3), "not at this scale", "no value")])
def test_two_standard_errors_decide_a_rule_without_a_sign(a, b, verdict, because):
    row = judge_rule(RISE, runs_of(a=a, b=b))
    assert (row["verdict"], row["because"], row["seeds"]) == (verdict, because, min(len(a), len(b)))


@pytest.mark.parametrize("sign, verdict, counted", [
    (lambda n: 1 if n > 1 else -1, "reproduced", (2, 1)), (lambda n: -1, "contradicted", (0, 3)),
    (lambda n: 0, "not at this scale", (0, 0)), (lambda n: 1 if n > 3 else 0, "not at this scale", (1, 0))])
def test_most_seeds_decide_a_rule_with_a_sign(sign, verdict, counted):
    row = judge_rule(Rule(RISE.measure, RISE.arms, RISE.number, sign), runs_of(a=(3, 4, 5), b=(1, 0, 4)))
    assert (row["verdict"], (row["for"], row["against"])) == (verdict, counted)


@pytest.mark.parametrize("baselines, verdict, because", [
    ({"low": lambda r: 1.0}, "reproduced", ""),
    ({"low": lambda r: 1.0, "high": lambda r: 4.0}, "not at this scale", "a no better than high"),
    ({"some lack it": lambda r: math.nan if r["score"] == 3 else 1.0}, "reproduced", "")])
def test_a_rule_says_nothing_of_an_arm_that_is_no_better_than_its_baselines(baselines, verdict, because):
    rule = Rule(RISE.measure, RISE.arms, RISE.number, None, "a", score, baselines)
    row = judge_rule(rule, runs_of(a=(3, 4, 5), b=(1, 2, 3)))
    assert (row["verdict"], row["because"]) == (verdict, because)


def test_a_rule_beside_a_baseline_that_nobody_ran_is_refused():
    rule = Rule("a rise", RISE.arms, RISE.number, None, "a", score, {"lsa": lambda r: math.nan})
    with pytest.raises(ConfigError, match="a rise: no record has 'lsa'"): judge_rule(rule, runs_of(a=(3, 4), b=(1, 2)))


def test_rules_without_runs_have_no_rows():
    rules = {"toy-01": [RISE], "toy-02": []}
    assert rule_rows(rules, {}) == rule_rows(rules, runs_of(a=(3, 4))) == []
    assert [row["claim"] for row in rule_rows(rules, runs_of(a=(3, 4), b=(1, 2)))] == ["toy-01"]


# ---- the claims of the papers ----------------------------------------------------------------------------------------

RESULTS = {"xlm_e_results": ("03_xlm_e",), "meta_xlm_results": ("05_meta_xlm",),
           "xy_lent_results": ("04_xy_lent", "04b_dro_runs", "04c_continued")} # module → notebooks of its runs


@pytest.mark.parametrize("name", RESULTS)
def test_every_arm_that_a_claim_names_is_an_arm_of_its_experiment(name):
    module = import_module(f"xlnb.{name}")
    known = {(e, arm) for notebook in RESULTS[name] for e, grid in recipe_of(notebook).experiments.items()
             for arm in grid.arms}
    tables = {t: getattr(module, t, {}) for t in ("RULES", "RULE_CONTROLS", "CONTROLS", "ALTERNATIVES")}
    entries = [entry for table in tables.values() for some in table.values() for entry in some]
    rules = [entry for entry in entries if isinstance(entry, Rule)]
    comparisons = [c for claim in module.CLAIMS.values() for c in claim.comparisons]
    comparisons += [entry for entry in entries if isinstance(entry, Comparison)]
    assert comparisons and {arm for c in comparisons for arm in (c.ahead, c.behind)} <= known
    assert {(e, arm) for rule in rules for arm, e in rule.arms.items()} <= known
    assert all(table.keys() <= module.CLAIMS.keys() for table in tables.values())
