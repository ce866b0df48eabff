"Chi-square best response against brute force, group losses, re-weighting rounds, planted defects and their detection."

import json, math, time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from xlnb.base.core import ConfigError, DataError, data_root
from xlnb.text.cldr import cldr_corpus
from xlnb.dro import (
    DEFECTS,
    FLOORS,
    LIMITS,
    GroupLosses,
    best_response,
    chi_square,
    draw_reweighting,
    excess_losses,
    find_bad_bitext,
    first_round,
    lsa_margin_scores,
    next_round,
    plant_defects,
    project_chi_square,
    residual_losses,
    score_ranking,
    text_evidence,
    weight_ratios,
)

few = settings(max_examples=60, deadline=None)
Q = {"de-en": 0.4, "en-fr": 0.3, "en-ka": 0.2, "am-en": 0.1}
LOSSES = {"de-en": 1.0, "en-fr": 1.5, "en-ka": 2.0, "am-en": 4.0}
NAMES = [f"{a}{b}-zz" for a in "abc" for b in "abcdefghij"]


def named(values):
    return dict(zip(NAMES, map(float, values)))


def of(by_pair):
    return np.array(list(by_pair.values()))


@st.composite
def cases(draw, least=2, most=12):
    "(losses, q, rho); some losses tie."
    n = draw(st.integers(least, most))
    losses = draw(st.lists(st.integers(0, 40).map(lambda k: k / 8), min_size=n, max_size=n))
    weights = np.array(draw(st.lists(st.floats(0.02, 1), min_size=n, max_size=n)))
    return named(losses), named(weights / weights.sum()), draw(st.floats(0.001, 5))


def vertex_radius(losses, q):
    return (1 / sum(q[k] for k in q if losses[k] == max(losses.values())) - 1) / 2


def slsqp(q, rho, objective, gradient):
    "A minimum over simplex and ball, from two starts."
    ball = {
        "type": "ineq",
        "fun": lambda p: rho - ((p / q - 1) ** 2 @ q) / 2,
        "jac": lambda p: -(p / q - 1),
    }
    whole = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones(len(p))}
    starts = (q, q * np.linspace(0.9, 1.1, len(q)))
    found = [
        minimize(
            objective,
            s,
            jac=gradient,
            bounds=[(0, 1)] * len(q),
            constraints=[ball, whole],
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        for s in starts
    ]
    return min((f for f in found if f.success), key=lambda f: f.fun, default=None)


# ---------------------------------------------------------------- the best response


@few
@given(cases())
def test_response_lies_in_ball_and_simplex_and_meets_the_conditions(case):
    losses, q, rho = case
    p = best_response(losses, q, rho)
    l = of(losses)
    a = of(p)
    b = of(q)
    assert a.sum() == pytest.approx(1, abs=1e-9) and a.min() >= 0
    if l.min() == l.max():
        return
    assert chi_square(p, q) == pytest.approx(min(rho, vertex_radius(losses, q)), rel=1e-6, abs=1e-9)
    ratios = a / b
    kept = a > 0
    assert all(
        ratios[i] <= ratios[j] + 1e-7 for i in range(len(l)) for j in range(len(l)) if l[i] <= l[j]
    )
    # ratios of the kept pairs are linear in the loss, and the line is ≤ 0 at the others
    if len(set(l[kept])) > 2:
        slope, constant = np.polyfit(l[kept], ratios[kept], 1)
        assert ratios[kept] == pytest.approx(slope * l[kept] + constant, abs=1e-6)
        assert (slope * l[~kept] + constant <= 1e-6).all()


@few
@given(cases(), st.floats(-100, 100), st.floats(0.01, 1000))
def test_response_ignores_shift_and_scale_of_losses(case, shift, scale):
    losses, q, rho = case
    moved = {pair: (loss + shift) * scale for pair, loss in losses.items()}
    if len(set(losses.values())) == len(set(moved.values())):
        assert of(best_response(moved, q, rho)) == pytest.approx(
            of(best_response(losses, q, rho)), abs=1e-6
        )


@few
@given(cases(most=6))
def test_no_other_distribution_gains_more(case):
    losses, q, rho = case
    l = of(losses)
    b = of(q)
    found = slsqp(b, rho, lambda p: -p @ l, lambda p: -l)
    ours = l @ of(best_response(losses, q, rho))
    if found is not None:
        assert ours >= -found.fun - 1e-5 * max(1, np.ptp(l))


def test_three_pairs_against_a_fine_grid():
    q = np.array([0.5, 0.3, 0.2])
    l = np.array([1.0, 2.0, 4.0])
    a, b = (g.ravel() for g in np.meshgrid(np.linspace(0, 1, 1001), np.linspace(0, 1, 1001)))
    points = np.stack([a, b, 1 - a - b], 1)[a + b <= 1]
    spread = ((points / q - 1) ** 2 @ q) / 2
    for rho in (0.02, 0.3, 1.0, 1.9, 2.5):
        best = (points @ l)[spread <= rho].max()
        ours = of(best_response(named(l), named(q), rho)) @ l
        # the step of the grid times the losses
        assert best - 1e-9 <= ours + 1e-6 and ours <= best + 0.02


@few
@given(cases())
def test_gain_is_the_closed_form_until_a_pair_is_cut_off(case):
    losses, q, _ = case
    l = of(losses)
    b = of(q)
    mean = l @ b
    variance = ((l - mean) ** 2) @ b
    if variance == 0:
        return
    limit = variance / (mean - l.min()) ** 2 / 2  # where η reaches the smallest loss
    for rho in (1e-6, limit / 2, limit * 0.999):
        gain = of(best_response(losses, q, rho)) @ l - mean
        assert gain == pytest.approx(math.sqrt(2 * rho * variance), rel=1e-6)
    beyond = of(best_response(losses, q, 2 * limit)) @ l - mean
    if len(set(l)) > 2:
        assert beyond < math.sqrt(4 * limit * variance) * (1 - 1e-9)


def test_vertex_with_and_without_ties():
    q = named([0.4, 0.3, 0.2, 0.1])
    tied = named([1, 2, 3, 3])
    edge = (1 / 0.3 - 1) / 2
    for rho in (edge, edge + 1e-6, 50):
        assert of(best_response(tied, q, rho)) == pytest.approx([0, 0, 2 / 3, 1 / 3])
    assert of(best_response(tied, q, edge * 0.99))[1] > 0
    assert best_response(named([2, 2, 2, 2]), q, 0.3) == q
    # as far as the ball lets it, however small the difference
    near = best_response(named([1, 1, 1, 1 + 1e-9]), q, 0.05)
    assert chi_square(near, q) == pytest.approx(0.05, rel=1e-4)


@few
@given(cases())
def test_floors(case):
    losses, q, rho = case
    published = best_response(losses, q, rho, "as_published")
    ratio = best_response(losses, q, rho, "ratio")
    for p in (published, ratio):
        assert of(p).sum() == pytest.approx(1)
    if min(losses.values()) == max(losses.values()):
        return
    assert chi_square(ratio, q) <= rho * (1 + 1e-6)
    r = of(ratio) / of(q)
    # lifted to 0.2, then divided by a sum that grew by 0.2 at most
    assert r.min() >= 0.2 / 1.2 - 1e-9
    lifted = np.maximum(of(ratio), min(q.values()))
    assert of(published) == pytest.approx(lifted / lifted.sum())


def test_pairs_that_are_never_drawn_stay_so():
    q = {"de-en": 0.5, "en-fr": 0.5, "en-ka": 0.0}
    for floor in FLOORS:
        assert (
            best_response({"de-en": 1.0, "en-fr": 2.0, "en-ka": 9.0}, q, 0.1, floor)["en-ka"] == 0
        )
    assert chi_square({"de-en": 0.5, "en-fr": 0.4, "en-ka": 0.1}, q) == math.inf


@pytest.mark.parametrize(
    "bad, error, words",
    [
        ({"rho": 0}, ConfigError, "rho=0"),
        ({"rho": -1}, ConfigError, "rho=-1"),
        ({"rho": math.nan}, ConfigError, "nan"),
        ({"floor": "published"}, ConfigError, "as_published"),
        ({"q": {"de-en": 0.6, "en-fr": 0.6}}, ConfigError, "sum to"),
        ({"q": Q | {"am-en": -0.1}}, ConfigError, "am-en=-0.1"),
        ({"losses": LOSSES | {"en-ka": math.nan}}, DataError, "en-ka .nan"),
        ({"losses": LOSSES | {"en-ka": math.inf}}, DataError, "en-ka .inf"),
        ({"losses": {"de-en": 1.0}}, DataError, "no loss for en-fr, en-ka, am-en"),
        ({"losses": LOSSES | {"en-zu": 1.0}}, DataError, "en-zu, which q does not have"),
    ],
)
def test_what_cannot_be_used_is_named(bad, error, words):
    with pytest.raises(error, match=words):
        best_response(**({"losses": LOSSES, "q": Q, "rho": 0.05} | bad))


def test_a_thousand_pairs_do_not_hold_up_training():
    "Generous: a hundred times what it takes; a solver that loops over pairs or never converges fails."
    rng = np.random.default_rng(0)
    names = [f"a{k:04}" for k in range(1000)]
    q = dict(zip(names, (w := rng.pareto(1, 1000) + 0.01) / w.sum()))
    start = time.process_time()
    p = best_response(dict(zip(names, rng.gamma(4, 1, 1000).tolist())), q, 0.05)
    assert time.process_time() - start < 0.2 and chi_square(p, q) == pytest.approx(0.05)


# ---------------------------------------------------------------- the projection


@few
@given(cases(most=6), st.data())
def test_projection_is_the_nearest_point(case, data):
    _, q, rho = case
    b = of(q)
    v = np.array(data.draw(st.lists(st.floats(-2, 2), min_size=len(b), max_size=len(b))))
    p = of(project_chi_square(named(v), q, rho))
    assert p.sum() == pytest.approx(1, abs=1e-9) and p.min() >= 0
    assert (p / b - 1) ** 2 @ b / 2 <= rho * (1 + 1e-6) + 1e-9
    found = slsqp(b, rho, lambda x: ((x - v) ** 2).sum() / 2, lambda x: x - v)
    if found is not None:
        assert ((p - v) ** 2).sum() / 2 <= found.fun + 1e-6


@few
@given(cases())
def test_projection_leaves_points_of_the_ball(case):
    losses, q, rho = case
    p = best_response(losses, q, rho)
    assert of(project_chi_square(p, q, rho * (1 + 1e-9))) == pytest.approx(of(p), abs=1e-6)


def test_projection_refuses_what_is_no_number():
    with pytest.raises(DataError, match="en-ka .nan"):
        project_chi_square(Q | {"en-ka": math.nan}, Q, 0.1)
    with pytest.raises(ConfigError, match="rho=0"):
        project_chi_square(Q, Q, 0)


# ---------------------------------------------------------------- the loss of a pair


def test_estimators():
    group = GroupLosses(["de-en", "en-xh", "en-ka"], shrinkage=100)
    for _ in range(50):
        group.add("de-en", 200.0, 100)
    for k in range(1, 4):
        group.add("en-xh", 40.0, 10)
        assert group.losses("published")["en-xh"] == pytest.approx(4 * (1 - 0.9**k))
        assert group.losses("corrected")["en-xh"] == pytest.approx(4)
    pooled = (50 * 200 + 3 * 40) / (5000 + 30)
    assert group.losses() == pytest.approx(
        {
            "de-en": (10_000 + 100 * pooled) / 5_100,
            "en-ka": pooled,
            "en-xh": (120 + 100 * pooled) / 130,
        }
    )
    assert (
        group.losses("corrected")["en-ka"] == pytest.approx(pooled)
        and group.losses("published")["en-ka"] == 0
    )
    assert group.counts() == {"de-en": 5000, "en-xh": 30, "en-ka": 0}
    again = GroupLosses.from_state(json.loads(json.dumps(group.state())))
    assert again.state() == group.state() and again.losses() == group.losses()
    again.add("en-ka", 1.0, 1)
    assert group.counts()["en-ka"] == 0
    group.reset()
    assert group.losses("published") == dict.fromkeys(group.pairs, 0.0)
    with pytest.raises(DataError, match="no pair has a loss yet"):
        group.losses()


def test_counts_do_not_depend_on_how_batches_are_cut():
    whole = GroupLosses(["de-en"])
    parts = GroupLosses(["de-en"])
    whole.add("de-en", 30.0, 10)
    for total in (10.0, 20.0):
        parts.add("de-en", total, 5)
    assert whole.losses() == pytest.approx(parts.losses())


@pytest.mark.parametrize(
    "batch, words",
    [
        (("de-en", math.nan, 5), "de-en is nan"),
        (("de-en", 1.0, 0), "0 tokens"),
        (("en-zu", 1.0, 5), "en-zu, which is none of the 1"),
    ],
)
def test_bad_batches_are_refused(batch, words):
    with pytest.raises(DataError, match=words):
        GroupLosses(["de-en"]).add(*batch)


def test_settings_of_group_losses_are_checked():
    for wrong in ({"shrinkage": -1}, {"weight": 0}, {"weight": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            GroupLosses(["de-en"], **wrong)
    with pytest.raises(ConfigError, match="counts, corrected, published"):
        GroupLosses(["de-en"]).losses("ema")


def test_published_average_takes_weight_from_rare_pairs_and_counts_do_not():
    q = named((w := np.arange(1, 31) ** -1.5) / w.sum())
    group = GroupLosses(q)
    rng = np.random.default_rng(0)
    for k in rng.choice(30, 600, p=of(q)):
        group.add(NAMES[k], 3.0 * 50, 50)
    rare = sorted(q, key=q.get)[:15]
    moved = {
        e: sum(best_response(group.losses(e), q, 0.05)[p] for p in rare) / sum(q[p] for p in rare)
        for e in ("published", "counts")
    }
    assert moved["published"] < 0.8
    assert group.losses("counts") == pytest.approx(dict.fromkeys(q, 3.0))


def test_excess():
    finished = {pair: loss + 1 for pair, loss in LOSSES.items()}
    assert excess_losses(LOSSES, finished) == dict.fromkeys(LOSSES, -1.0)
    assert excess_losses(LOSSES, finished, fallback=True) == LOSSES
    mixed = finished | {"de-en": 0.5}
    assert excess_losses(LOSSES, mixed, fallback=True)["de-en"] == 0.5
    with pytest.raises(DataError, match="no baseline loss for am-en"):
        excess_losses(LOSSES, {k: v for k, v in finished.items() if k != "am-en"})


def pairs_of(hardness):
    return {f"{a}-{b}": hardness[a] + hardness[b] for a, b in combinations(sorted(hardness), 2)}


@few
@given(
    st.dictionaries(
        st.sampled_from(["am", "de", "en", "fr", "ka", "sw"]), st.floats(0.1, 9), min_size=4
    )
)
def test_what_languages_explain_leaves_nothing_and_no_pair_is_moved(hardness):
    losses = pairs_of(hardness)
    assert residual_losses(losses) == dict.fromkeys(losses, 0.0)
    q = dict.fromkeys(losses, 1 / len(losses))
    assert best_response(residual_losses(losses), q, 0.05) == q


@pytest.mark.parametrize("langs", [4, 5, 8])
def test_a_defect_keeps_its_share_and_sums_to_nothing_over_the_pairs_of_a_language(langs):
    hardness = dict(zip(["am", "de", "en", "fr", "hi", "ka", "sw", "zh"][:langs], range(1, 9)))
    rest = residual_losses(pairs_of(hardness) | {"am-de": 3 + 1.0})
    assert rest["am-de"] == pytest.approx(1 - 2 / (langs - 1)) == pytest.approx(max(rest.values()))
    for lang in hardness:
        assert sum(v for pair, v in rest.items() if lang in pair) == pytest.approx(0, abs=1e-9)


def test_equal_losses_and_fewer_pairs_than_languages_leave_no_residual():
    pairs = pairs_of({"am": 1, "de": 1, "en": 1, "fr": 1})
    assert residual_losses(dict.fromkeys(pairs, 3.1)) == dict.fromkeys(pairs, 0.0)
    assert residual_losses(LOSSES) == dict.fromkeys(LOSSES, 0.0)  # all with English
    assert residual_losses(dict.fromkeys(LOSSES, 0.0)) == dict.fromkeys(LOSSES, 0.0)
    with pytest.raises(DataError, match="loss of en-ka .nan. is no"):
        residual_losses(LOSSES | {"en-ka": math.nan})


# ---------------------------------------------------------------- rounds


def two_rounds(**measured):
    rounds = [first_round(Q)]
    for step in (10, 20):
        rounds.append(next_round(rounds, step, LOSSES, dict.fromkeys(Q, 100), 0.05, **measured))
    return rounds


def test_rounds_are_json_and_start_from_the_same_distribution():
    rounds = two_rounds(rtd_accuracy=dict.fromkeys(Q, 0.9))
    assert json.loads(json.dumps(rounds)) == rounds
    assert [r["step"] for r in rounds] == [0, 10, 20]
    assert (
        rounds[1]["probabilities"] == rounds[2]["probabilities"] == best_response(LOSSES, Q, 0.05)
    )
    assert weight_ratios(rounds)["am-en"] == pytest.approx(
        rounds[2]["probabilities"]["am-en"] / 0.1
    )
    assert two_rounds(drive=dict.fromkeys(Q, 1.0))[1]["probabilities"] == Q


def test_figure_of_rises_and_falls():
    fig = draw_reweighting(two_rounds(), 1, {"am-en": "noise"})
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["de-en", "am-en (noise)"]
    dropped = [first_round(Q), next_round([first_round(Q)], 5, LOSSES, {}, 20)]
    texts = [t.get_text() for t in draw_reweighting(dropped).axes[0].texts]
    assert texts == ["dropped"] * 3
    with pytest.raises(DataError, match="no pair has moved"):
        draw_reweighting([first_round(Q)])


# ---------------------------------------------------------------- planted defects


@pytest.fixture(scope="module")
def corpus():
    return cldr_corpus("de,el,en,es,ru", 400, 400, 1, 10)


@pytest.mark.parametrize("kind", DEFECTS)
def test_defects_are_the_same_at_every_pass_and_leave_sources(corpus, kind):
    lines = corpus.pairs["en-ru"]
    bad = plant_defects(
        lines, kind, 0.3, 1, corpus.text["el"] if kind == "wrong language" else None
    )
    before = list(lines)
    after = list(bad)
    assert after == list(bad) and [a for a, _ in after] == [a for a, _ in before]
    assert 0.2 < np.mean([x != y for x, y in zip(before, after)]) < 0.4
    other = plant_defects(
        lines, kind, 0.3, 2, corpus.text["el"] if kind == "wrong language" else None
    )
    assert list(other) != after
    everything = list(
        plant_defects(lines, kind, 1, 1, corpus.text["el"] if kind == "wrong language" else None)
    )
    if kind == "template":
        assert len({b for _, b in everything}) <= 5
    if kind == "shuffled":
        assert sorted(b for _, b in everything) == sorted(b for _, b in before)
    if kind == "copies":
        assert all(len(a) - len(b) in (0, 1) for a, b in everything)


def test_wrong_language_starts_over_where_its_lines_end(corpus):
    found = [
        b
        for _, b in plant_defects(
            corpus.pairs["en-ru"], "wrong language", 1, 0, ["ένα", "δύο", "τρία"]
        )
    ]
    assert found[:4] == ["ένα", "δύο", "τρία", "ένα"] and len(found) == 400


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"share": 0}, "share=0"),
        ({"share": 1.2}, "share=1.2"),
        ({"kind": "copy"}, "did you mean 'copies'"),
        ({"kind": "wrong language"}, "other="),
        ({"other": ["a"]}, "wrong language. only"),
    ],
)
def test_defects_that_cannot_be_planted(settings, words):
    with pytest.raises(ConfigError, match=words):
        plant_defects(
            **({"lines": [("a", "b")] * 3, "kind": "copies", "share": 0.5, "seed": 0} | settings)
        )
    with pytest.raises(DataError, match="no lines"):
        plant_defects([("a", "b")], "wrong language", 0.5, 0, [])


# ---------------------------------------------------------------- finding them


def damaged(corpus, share=0.5):
    planted = dict(zip(("de-en", "el-es", "en-ru", "es-ru"), DEFECTS))
    pairs = dict(corpus.pairs)
    for pair, kind in planted.items():
        other = corpus.text["de"] if kind == "wrong language" else None
        pairs[pair] = plant_defects(pairs[pair], kind, share, 0, other)
    return pairs, planted


def test_text_alone_finds_planted_pairs_and_says_why(corpus):
    pairs, planted = damaged(corpus)
    rows = find_bad_bitext(pairs=pairs, sample=300)
    assert (
        {row["pair"] for row in rows[:4]} == set(planted)
        and rows[4]["score"] < 1
        and rows[4]["why"] == ""
    )
    why = {planted[row["pair"]]: row["why"] for row in rows[:4]}
    assert "near-copies" in why["copies"] and "random" in why["shuffled"]
    assert "many others" in why["template"] and "another script" in why["wrong language"]
    assert all(len(row["examples"]) == 3 for row in rows[:4]) and not rows[4]["examples"]
    assert rows == find_bad_bitext(pairs=pairs, sample=300)
    template = next(row for row in rows if planted.get(row["pair"]) == "template")
    assert template["most partners"] > 10
    assert score_ranking({row["pair"]: row["score"] for row in rows}, planted) == {
        "precision": 1.0,
        "recall": 1.0,
        "auc": 1.0,
    }


def test_evidence_of_a_clean_pair_and_of_a_pair_alone(corpus):
    row = text_evidence({"de-ru": corpus.pairs["de-ru"]})["de-ru"]["row"]
    assert row["lines"] == 400 and all(
        row[name] < LIMITS[name] for name in ("copies", "one-to-many", "lengths")
    )
    assert row["other script"] == 0 and 0.5 < row["length ratio"] < 2


def test_japanese_is_written_in_three_scripts():
    lines = [
        ("月曜日", "Monday"),
        ("コーヒー", "coffee"),
        ("ありがとう", "thanks"),
        ("100", "100"),
    ] * 5
    found = text_evidence({"en-ja": [(b, a) for a, b in lines]})["en-ja"]
    assert found["row"]["other script"] == 0


def test_a_trajectory_alone():
    rounds = [first_round(named([1 / 8] * 8))]
    losses = named([2.0, 2.1, 1.9, 2.05, 2.0, 1.95, 5.0, 0.1])
    accuracy = named([0.9, 0.91, 0.9, 0.89, 0.9, 0.9, 0.6, 1.0])
    rounds.append(
        next_round(rounds, 5, losses, dict.fromkeys(losses, 10), 0.05, rtd_accuracy=accuracy)
    )
    rows = find_bad_bitext(rounds, baseline={pair: 2.0 for pair in losses})
    assert [row["pair"] for row in rows[:2]] == NAMES[6:8] and rows[2]["score"] < 1
    assert "times as often" in rows[0]["why"] and "+3.00 against the baseline" in rows[0]["why"]
    assert rows[1]["RTD accuracy"] == 1.0 and "100%" in rows[1]["why"]
    assert "examples" not in rows[0] and "above baseline" not in find_bad_bitext(rounds)[0]


def test_trajectory_and_text_together(corpus):
    pairs, planted = damaged(corpus)
    rounds = [first_round(dict.fromkeys(pairs, 1 / len(pairs)))]
    losses = dict(zip(pairs, np.linspace(1.9, 2.1, len(pairs)).tolist())) | {"de-ru": 6.0}
    rounds.append(next_round(rounds, 5, losses, dict.fromkeys(pairs, 10), 0.05))
    rows = find_bad_bitext(rounds, pairs)
    assert {row["pair"] for row in rows if row["why"]} == {*planted, "de-ru"}
    assert next(row for row in rows if row["pair"] == "de-ru")["examples"]


def test_what_cannot_be_looked_at():
    with pytest.raises(ConfigError, match="nothing to look at"):
        find_bad_bitext()
    with pytest.raises(DataError, match="no round after the first"):
        find_bad_bitext([first_round(Q)])
    with pytest.raises(DataError, match="no lines in de-en"):
        find_bad_bitext(pairs={"de-en": []})
    for limits, words in (({"copy": 1}, "did you mean 'copies'"), ({"copies": 0}, "copies")):
        with pytest.raises(ConfigError, match=words):
            find_bad_bitext(pairs={"de-en": [("a", "b")]}, limits=limits)


def test_margin_of_vectors_from_the_pair_itself(corpus):
    pairs, planted = damaged(corpus)
    scores = lsa_margin_scores(pairs, sample=400)
    assert score_ranking({pair: -s for pair, s in scores.items()}, planted)["auc"] > 0.9
    assert scores == lsa_margin_scores(pairs, sample=400)


@pytest.mark.parametrize("seed", range(3))
def test_near_copies_of_close_relatives_are_told_from_untranslated_lines(seed):
    relatives = ("da-no", "id-ms", "cs-sk")
    others = ("de-en", "es-pt", "en-fr")
    langs = "da,no,id,ms,cs,sk,de,en,es,pt,fr"
    pairs = dict(cldr_corpus(langs, 300, 300, 1, 10, seed=seed, pairs=[*relatives, *others]).pairs)
    for pair in others:
        pairs[pair] = plant_defects(pairs[pair], "copies", 0.5, seed)
    rows = {row["pair"]: row for row in find_bad_bitext(pairs=pairs, sample=300)}
    assert all(row["copies"] >= 0.3 and "near-copies" in row["why"] for row in rows.values())
    assert {pair for pair in rows if "near copies of each other" in rows[pair]["why"]} == set(
        relatives
    )
    # no other lines are left to ask
    everything = plant_defects(pairs["de-en"], "copies", 1, seed)
    [row] = find_bad_bitext(pairs={"de-en": everything}, sample=300)
    assert row["likeness"] == {"languages": None, "lines": None} and "each other" not in row["why"]


def test_scoring_of_a_ranking():
    scores = {"de-en": 3.0, "en-fr": 2.0, "en-ka": 2.0, "am-en": 1.0}
    assert score_ranking(scores, ["de-en"], at=2) == {"precision": 0.5, "recall": 1.0, "auc": 1.0}
    assert score_ranking(scores, ["en-ka"]) == {"precision": 0.0, "recall": 0.0, "auc": 0.5}
    assert score_ranking(scores, ["en-ka"], at=2)["recall"] == 0.5  # one of two that are tied
    with pytest.raises(DataError, match="en-zu"):
        score_ranking(scores, ["en-zu"])
    with pytest.raises(DataError, match="planted"):
        score_ranking(scores, [])
    with pytest.raises(ConfigError, match="at=9"):
        score_ranking(scores, ["de-en"], at=9)


def test_clean_news_is_not_suspicious():
    "Real translations, near languages and scripts without blanks among them, stay below every limit."
    if not (folder := data_root()):
        pytest.skip("XLNB_DATA is not set")
    from xlnb.text.corpora import read_ntrex

    paths = sorted(folder.glob("ntrex*/**/newstest2019-ref.deu.txt*"))
    if not paths:
        pytest.skip("no NTREX there")
    langs = ["ca", "cs", "de", "en", "es", "ja", "sk", "zh"]
    rows = list(read_ntrex(paths[0].parent, langs))[:600]
    pairs = {
        f"{a}-{b}": [(row[i], row[j]) for row in rows]
        for i, a in enumerate(langs)
        for j, b in enumerate(langs)
        if i < j
    }
    assert max(row["score"] for row in find_bad_bitext(pairs=pairs, sample=300)) < 1


def test_bitext_that_cannot_be_judged_is_refused_with_the_reason():
    good = {
        "de-en": [("ein Haus am See", "a house at the lake"), ("der alte Baum", "the old tree")]
        * 20
    }
    with pytest.raises(ConfigError, match="pass bitexts as pairs="):
        find_bad_bitext(good)
    for wrong in (dict(sample=0), dict(examples=-1)):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            find_bad_bitext(pairs=good, **wrong)
    for row in (("a", None), ("a", "b", "c"), "a\tb"):
        for call in (text_evidence, lsa_margin_scores):
            with pytest.raises(DataError, match="line 1 of de-en is .*not two strings"):
                call({"de-en": [row] * 9})
    with pytest.raises(ConfigError, match="pairs is a list: give a dict"):
        find_bad_bitext(pairs=good["de-en"])
    with pytest.raises(DataError, match="a list of rounds"):
        find_bad_bitext([{"step": 0}, {"step": 1}])
    with pytest.raises(ConfigError, match="pairs='de-en' is one string"):
        GroupLosses("de-en")
    for loss in (None, "low", math.nan):
        with pytest.raises(DataError, match="loss of de-en .* is no finite number"):
            best_response({"de-en": loss}, {"de-en": 1.0}, 0.1)

    def once(lines):
        return (line for line in lines)

    with pytest.raises(DataError, match="read only once"):
        plant_defects(once(good["de-en"]), "copies", 0.5, 0)
    with pytest.raises(DataError, match="other: a generator can be read only once"):
        plant_defects(good["de-en"], "wrong language", 0.5, 0, once(["ein", "zwei"]))


def test_empty_sides_and_lines_of_one_length_are_what_they_are():
    lines = [
        (f"zwei mal {n} Wörter {'und ' * (n % 7)}", f"two {n} words {'and ' * (n % 7)}")
        for n in range(50)
    ]
    half = [("", "")] * 50 + lines
    [found] = find_bad_bitext(pairs={"de-en": half})
    assert found["empty"] == 0.5 and found["why"] == "50% of the lines have an empty side"
    [found] = find_bad_bitext(pairs={"de-en": lines[:10] * 20})
    assert found["repeats"] == 0.95 and "95% of the lines stood before" in found["why"]
    # the same length in every line
    even = [(f"haus {n:04d} baum", f"tree {n:04d} home") for n in range(200)]
    [found] = find_bad_bitext(pairs={"de-en": even})
    assert found["lengths"] == 0 and "lengths" not in found["why"]
