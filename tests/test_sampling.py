"""Exponents, mixtures and pair samplings against their definitions and against other solvers, on random inputs."""

import csv, itertools, json, math, os, re, subprocess, sys, tracemalloc, warnings

import matplotlib.pyplot as plt
import numpy as np
import ot
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.stats import chisquare

from conftest import ROOT, write
from xlnb.base.core import ConfigError, DataError, pair_name, split_pair
from xlnb.text.counts import pair_graph, read_pair_counts
from xlnb.text.mixture import Mixture
from xlnb.text.sampling import (
    _newton,
    capped_sampling,
    compare_samplings,
    draw_sampling,
    entropic_sampling,
    expected_epochs,
    exponent_probabilities,
    exponent_sampling,
    feasible_mass,
    language_marginals,
    largest_temperature,
    m2m_sampling,
    main,
    repaired_marginals,
    smoothed_sampling,
    target_marginals,
)


def random_probabilities(seed, sources):
    rng = np.random.default_rng(seed)
    return {
        f"s{k}": float(p)
        for k, p in enumerate(rng.dirichlet(np.full(sources, rng.choice([0.05, 0.5, 5]))))
    }


@pytest.mark.parametrize("alpha", [0, 0.3, 0.7, 1, 2])
def test_exponent_is_the_formula(alpha):
    counts = {"en": 123_456_789, "ru": 23_456, "am": 17.5}
    total = sum(n**alpha for n in counts.values())
    for name, p in exponent_probabilities(counts, alpha).items():
        assert p == pytest.approx(counts[name] ** alpha / total)


def test_exponent_takes_counts_of_any_size():
    p = exponent_probabilities({"en": 1e300, "ru": 1e-300}, 2)
    assert p == {"en": 1.0, "ru": 0.0}


@pytest.mark.parametrize(
    "counts, alpha",
    [
        ({}, 0.7),
        ({"en": 0}, 0.7),
        ({"en": -1, "ru": 2}, 0.7),
        ({"en": float("inf")}, 0.7),
        ({"en": float("nan")}, 0.7),
        ({"en": 1}, -0.1),
        ({"en": 1}, float("nan")),
    ],
)
def test_exponent_refuses(counts, alpha):
    with pytest.raises(ConfigError):
        exponent_probabilities(counts, alpha)


@pytest.mark.parametrize("sources", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("seed", range(4))
def test_every_prefix_is_within_four_draws_of_its_due(sources, seed):
    probabilities = random_probabilities(seed, sources)
    mixture = Mixture(probabilities, seed)
    names, numbers = mixture.draw(0, 3_000)
    for name, p in probabilities.items():
        drawn = np.array([n == name for n in names])
        tally = np.concatenate([[0], drawn.cumsum()])
        # the bound that the notebook derives
        assert np.abs(tally - p * np.arange(3_001)).max() < 4
        # no draw is missing, none comes twice
        assert numbers[drawn].tolist() == list(range(tally[-1]))
        for slot in (0, 1, 1_777, 3_000):
            assert mixture.counts(slot)[name] == tally[slot]


def test_a_later_window_is_as_exact_as_the_first():
    probabilities = random_probabilities(11, 30)
    mixture = Mixture(probabilities, 5)
    n = 2**31 - 5_000
    assert all(abs(c - n * probabilities[k]) < 4 for k, c in mixture.counts(n).items())
    names, numbers = mixture.draw(n, 5_000)
    before = mixture.counts(n)
    after = mixture.counts(2**31)
    for name in probabilities:
        mine = [int(k) for drawn, k in zip(names, numbers) if drawn == name]
        assert mine == list(range(before[name], after[name]))


def test_draws_do_not_depend_on_how_they_are_asked_for():
    mixture = Mixture(random_probabilities(3, 12), 9).change(500, random_probabilities(4, 15))
    mixture = mixture.change(777, {"s1": 0.5, "x": 0.5})
    names, numbers = mixture.draw(0, 1_500)
    rng = np.random.default_rng(0)
    for first in rng.permutation(1_400)[:60].tolist():
        count = int(rng.integers(0, 100))
        some, some_numbers = mixture.draw(first, count)
        assert some == names[first : first + count]
        assert some_numbers.tolist() == numbers[first : first + count].tolist()


def test_versions_carry_every_source_on():
    rng = np.random.default_rng(1)
    mixture = Mixture(random_probabilities(0, 6), 0)
    slot = 0
    for k in range(1, 8):
        slot += int(rng.integers(0, 300))
        mixture = mixture.change(slot, random_probabilities(k, 3 + k))
    names, numbers = mixture.draw(0, slot + 500)
    seen = {}
    for name, number in zip(names, numbers.tolist()):
        assert number == seen.get(name, 0)
        seen[name] = number + 1
    assert {k: c for k, c in mixture.counts(slot + 500).items() if c} == seen


def test_state_survives_json_exactly():
    mixture = Mixture(random_probabilities(5, 300), 7)  # the sums are not exactly 1
    mixture = mixture.change(1_000, random_probabilities(6, 200))
    again = Mixture.from_state(json.loads(json.dumps(mixture.state())))
    assert again.state() == mixture.state()
    for (a, b), (c, d) in [(mixture.draw(0, 5_000), again.draw(0, 5_000))]:
        assert a == c and b.tolist() == d.tolist()


@pytest.mark.parametrize("slot", [0, 1, 137, 2**30 + 1])
def test_each_slot_is_unbiased_over_seeds(slot):
    probabilities = {"en": 0.55, "ru": 0.3, "am": 0.1, "ka": 0.05}
    drawn = [Mixture(probabilities, seed).draw(slot, 1)[0][0] for seed in range(3_000)]
    assert (
        chisquare(
            [drawn.count(k) for k in probabilities], [3_000 * p for p in probabilities.values()]
        ).pvalue
        > 1e-3
    )


def test_a_source_without_probability_is_never_drawn():
    mixture = Mixture({"en": 0.5, "ka": 0.0, "ru": 0.5, "tiny": 1e-15}, 0)
    counts = mixture.counts(2**31) | {"tiny": 0}
    # en, ru: within the tiny share
    assert counts == {"en": 2**30, "ka": 0, "ru": 2**30, "tiny": 0}
    assert "ka" not in mixture.draw(0, 10_000)[0]


@pytest.mark.parametrize(
    "probabilities",
    [
        {},
        {"en": 0.5},
        {"en": 0.5, "ru": 0.51},
        {"en": 1.5, "ru": -0.5},
        {"en": float("nan")},
        {"en": float("inf")},
    ],
)
def test_what_is_no_distribution_is_refused(probabilities):
    with pytest.raises(ConfigError):
        Mixture(probabilities, 0)
    with pytest.raises(ConfigError):
        Mixture({"en": 1.0}, 0).change(10, probabilities)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.draw(-1, 5),
        lambda m: m.draw(2**31 - 1, 2),
        lambda m: m.counts(-1),
        lambda m: m.change(5, {"en": 1.0}),
    ],
)
def test_slots_out_of_range_are_refused(call):
    with pytest.raises(ConfigError):
        call(Mixture({"en": 1.0}, 0).change(10, {"ru": 1.0}))


def test_the_same_in_another_process():
    program = (
        "from xlnb.text.mixture import Mixture; m = Mixture({'en': 0.5, 'ru': 0.3, 'am': 0.2}, "
        "4); "
        "print(m.draw(1000, 50)[0], m.counts(10**6))"
    )

    def run(k):
        return subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": str(k)},
            capture_output=True,
            text=True,
            check=True,
        )

    runs = {run(k).stdout for k in (1, 2)}
    # nor does the order of the sources matter
    mixture = Mixture({"am": 0.2, "ru": 0.3, "en": 0.5}, 4)
    assert len(runs) == 1 and runs.pop().startswith(str(mixture.draw(1000, 50)[0]))


# ---------------------------------------------------------------- which pair

few = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
CODES = ["am", "de", "en", "fr", "hy", "ka", "ru", "zh-Hant"]


@st.composite
def tables(draw, most=6):
    "Counts over a random graph in which every language has a partner."
    codes = CODES[: draw(st.integers(3, most))]
    edges = [pair_name(a, b) for a, b in itertools.combinations(codes, 2)]
    kept = {
        pair_name(code, codes[draw(st.integers(0, k - 1))]) for k, code in enumerate(codes) if k
    }
    kept |= set(draw(st.lists(st.sampled_from(edges), max_size=8)))
    return {pair: 10 ** draw(st.floats(0, 6)) for pair in sorted(kept)}


@st.composite
def reachable(draw):
    "Counts and marginals that some matrix with all pairs in use has."
    counts = draw(tables())
    return counts, language_marginals({pair: draw(st.floats(0.05, 1)) for pair in counts})


def of(plan, counts):
    return np.array([plan[pair] for pair in counts])


def divergence(p, q):
    return float(sum(a * math.log(a / b) for a, b in zip(p, q) if a > 0))


def incidence(counts, codes):
    return np.array([[(code in split_pair(pair)) / 2 for pair in counts] for code in codes])


@few
@given(reachable())
def test_samplings_have_the_marginals(case):
    counts, marginals = case
    for sample in (entropic_sampling, m2m_sampling):
        plan = sample(counts, marginals=marginals)
        assert list(plan) == list(counts) and min(plan.values()) >= 0
        found = language_marginals(plan)
        for code, share in marginals.items():
            assert found[code] == pytest.approx(share, rel=1e-6)
        if sample is entropic_sampling:
            assert min(plan.values()) > 0
        else:
            assert sum(p > 0 for p in plan.values()) <= len(marginals)


@few
@given(reachable())
def test_entropic_is_the_projection(case):
    "For every matrix R with the marginals, KL(R|Q) = KL(R|P) + KL(P|Q): only the projection P has this."
    counts, marginals = case
    q = of(counts, counts) / sum(counts.values())
    p = of(entropic_sampling(counts, marginals=marginals), counts)
    r = of(m2m_sampling(counts, marginals=marginals), counts)
    for other in (r, (r + p) / 2):
        assert divergence(other, q) == pytest.approx(
            divergence(other, p) + divergence(p, q), abs=1e-7
        )


@pytest.mark.parametrize("seed", range(4))
def test_entropic_agrees_with_a_general_solver(seed):
    rng = np.random.default_rng(seed)
    counts = {
        pair_name(a, b): float(rng.lognormal(0, 1)) for a, b in itertools.combinations(CODES[:4], 2)
    }
    marginals = language_marginals({pair: rng.uniform(0.2, 1) for pair in counts})
    q = of(counts, counts) / sum(counts.values())
    rows = incidence(counts, marginals)
    found = minimize(
        lambda x: x @ np.log(x / q),
        np.full(len(q), 1 / len(q)),
        jac=lambda x: np.log(x / q) + 1,
        bounds=[(1e-9, 1)] * len(q),
        constraints={
            "type": "eq",
            "jac": lambda x: rows,
            "fun": lambda x: rows @ x - list(marginals.values()),
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert of(entropic_sampling(counts, marginals=marginals), counts) == pytest.approx(
        found.x, abs=1e-5
    )


@few
@given(reachable())
def test_m2m_is_the_best_vertex(case):
    "All choices of as many pairs as there are independent equations, solved."
    counts, marginals = case
    q = of(counts, counts) / sum(counts.values())
    target = np.array(list(marginals.values()))
    rows = incidence(counts, marginals)
    best = -math.inf
    # as many as a vertex has
    for chosen in itertools.combinations(range(len(q)), np.linalg.matrix_rank(rows)):
        x = np.linalg.lstsq(rows[:, chosen], target, rcond=None)[0]
        if x.min() > -1e-9 and np.abs(rows[:, chosen] @ x - target).max() < 1e-9:
            best = max(best, q[list(chosen)] @ x)
    found = q @ of(m2m_sampling(counts, marginals=marginals), counts)
    assert found == pytest.approx(best, rel=1e-5, abs=1e-6 * q.max())


@few
@given(reachable(), st.randoms(use_true_random=False))
def test_names_and_order_do_not_matter(case, random):
    counts, marginals = case
    to = dict(zip(marginals, random.sample(sorted(marginals), len(marginals))))
    renamed = {pair: pair_name(*(to[code] for code in split_pair(pair))) for pair in counts}
    pairs = random.sample(list(counts), len(counts))
    others = {renamed[pair]: counts[pair] for pair in pairs}
    targets = {to[code]: marginals[code] for code in marginals}
    plan = entropic_sampling(counts, marginals=marginals)
    again = entropic_sampling(others, marginals=targets)
    for pair in counts:
        assert again[renamed[pair]] == pytest.approx(plan[pair], rel=1e-7)
    # other unit, other direction
    swapped = {"-".join(reversed(split_pair(pair))): 3 * n for pair, n in counts.items()}
    assert entropic_sampling(swapped, marginals=marginals) == pytest.approx(plan, rel=1e-9)

    def trace(some, found):
        return sum(found[pair] * n for pair, n in some.items())

    assert trace(others, m2m_sampling(others, marginals=targets)) == pytest.approx(
        trace(counts, m2m_sampling(counts, marginals=marginals)), rel=1e-6
    )


@few
@given(reachable())
def test_projecting_twice_changes_nothing(case):
    counts, marginals = case
    plan = entropic_sampling(counts, marginals=marginals)
    assert of(entropic_sampling(plan, marginals=marginals), counts) == pytest.approx(
        of(plan, counts), rel=1e-8
    )
    for repair in ("nearest", "relaxed"):
        assert repaired_marginals(counts, marginals, repair) == marginals
    data = entropic_sampling(counts, temperature=1)
    assert of(data, counts) == pytest.approx(of(counts, counts) / sum(counts.values()), rel=1e-9)


def flow(counts, marginals):
    "The mass that a maximal flow carries from each language to its partners, in integers."
    codes = list(marginals)
    n = len(codes)
    edges = [tuple(codes.index(code) for code in split_pair(pair)) for pair in counts]
    capacity = np.zeros((2 * n + 2, 2 * n + 2), np.int32)
    capacity[-2, :n] = capacity[n:-2, -1] = [round(share * 2**29) for share in marginals.values()]
    for a, b in edges:
        capacity[a, n + b] = capacity[b, n + a] = 2**29
    return maximum_flow(csr_array(capacity), 2 * n, 2 * n + 1).flow_value / 2**29


@few
@given(tables(), st.data())
def test_what_binds_is_the_smallest_set_with_the_largest_gap(counts, data):
    codes = sorted({code for pair in counts for code in split_pair(pair)})
    weights = [data.draw(st.floats(0.05, 1)) for _ in codes]
    marginals = {code: w / sum(weights) for code, w in zip(codes, weights)}
    pairs = [set(split_pair(pair)) for pair in counts]
    partners = {
        code: set().union(*(pair for pair in pairs if code in pair)) - {code} for code in codes
    }

    def total(some):
        return sum(marginals[code] for code in some)

    gaps = {
        some: total(some) - total(set().union(*(partners[code] for code in some)))
        for k in range(len(codes) + 1)
        for some in itertools.combinations(codes, k)
    }
    mass, blocks = feasible_mass(counts, marginals)
    assert (
        mass
        == pytest.approx(1 - max(gaps.values()), abs=1e-6)
        == pytest.approx(flow(counts, marginals), abs=1e-6)
    )
    binding = sorted(code for many, _ in blocks for code in many)
    smallest = min((some for some, gap in gaps.items() if gap > max(gaps.values()) - 1e-9), key=len)
    if max(gaps.values()) > 1e-5 or not max(gaps.values()):
        assert binding == list(smallest)
    for many, few in blocks:
        assert set(few) == set().union(*(partners[code] for code in many))


def carried(counts, t):
    return feasible_mass(counts, target_marginals(counts, t))[0]


@few
@given(tables())
@pytest.mark.slow
def test_all_from_one_to_the_largest_temperature_work_and_the_next_does_not(counts):
    top = largest_temperature(counts)
    assert top >= 1
    # none is refused
    for t in np.geomspace(1, min(top, 1e4), 12):
        entropic_sampling(counts, t)
    # far enough above it that the gap is more than the 1e-6 that counts as reached
    if top < math.inf:
        assert any(
            carried(counts, t) < 1 for t in (1.0001 * top, 1.01 * top, 1.1 * top, 2 * top, 10 * top)
        )


PATH = {"de-en": 1e6, "en-ka": 1e3, "hy-ka": 2e2}


def test_what_works_higher_up_does_not_count_as_the_largest():
    "A path of four: equal shares can be had at T = 1, at equal languages, and nowhere between."
    assert (
        largest_temperature(PATH) == 1
        and carried(PATH, 1e9) == pytest.approx(1)
        and carried(PATH, 2) < 0.999
    )
    assert (
        largest_temperature({"de-en": 5})
        == math.inf
        == largest_temperature({"de-en": 1, "hy-ka": 7})
    )
    for t in (1.5, 2, 0.9, 0.5):
        with pytest.raises(
            ConfigError, match="take temperature=1, which keeps the shares of the data"
        ):
            entropic_sampling(PATH, t)


def test_shares_of_eighty_orders_end_in_a_refusal_too():
    "At T = 0.05 the gap of the small languages is lost in the sums of the large ones; the search must end."
    counts = {"de-en": 14061, "en-fr": 12, "de-ka": 239, "fr-ka": 1, "de-fr": 38}
    with pytest.raises(ConfigError, match="cannot be reached") as e:
        entropic_sampling(counts, 0.05)
    entropic_sampling(counts, float(re.search(r"take temperature=([0-9.]+),", str(e.value))[1]))


STAR = {"de-en": 100, "en-fr": 60, "de-fr": 5, "en-ka": 2, "am-en": 1}


@pytest.mark.parametrize(
    "counts", [STAR, {"aa-bb": 9e5, "bb-cc": 8e5, "aa-cc": 6e5, "aa-dd": 5e5, "cc-dd": 10}]
)
@pytest.mark.parametrize("temperature", [0.1, 0.3, 0.6, 3, 20])
def test_what_a_refusal_advises_works_and_so_does_all_between_it_and_one(counts, temperature):
    if carried(counts, temperature) > 1 - 1e-6:
        return
    with pytest.raises(ConfigError, match="cannot be reached") as e:
        entropic_sampling(counts, temperature)
    advised = float(re.search(r"take temperature=([0-9.]+),", str(e.value))[1])
    assert temperature < advised <= 1 or 1 <= advised < temperature
    for t in np.linspace(1, advised, 9):
        entropic_sampling(counts, t)
    further = advised * (1.01 if temperature > 1 else 0.99)  # the advice is no needless way back
    with pytest.raises(ConfigError, match="cannot be reached"):
        entropic_sampling(counts, further)


# ---------------------------------------------------------------- repair, smoothing


@few
@given(tables(), st.floats(2, 50))
def test_repairs_can_be_reached_with_all_pairs(counts, temperature):
    wanted = target_marginals(counts, temperature)
    gap = 1 - feasible_mass(counts, wanted)[0]

    def moved(found):
        return sum(abs(found[code] - wanted[code]) for code in wanted)

    for repair in ("nearest", "relaxed"):
        found = repaired_marginals(counts, wanted, repair)
        assert sum(found.values()) == pytest.approx(1) and moved(found) > gap - 1e-6
        if gap > 1e-4:
            assert min(entropic_sampling(counts, marginals=found).values()) > 0
        assert repaired_marginals(counts, found, repair) == found
    assert moved(repaired_marginals(counts, wanted, "nearest", floor=1e-9)) == pytest.approx(
        gap, abs=1e-6
    )
    # a floor of one half leaves every pair half of its share, and reachable marginals beside
    if gap > 1e-4:
        found = repaired_marginals(counts, wanted, "nearest", floor=0.5)
        own = target_marginals(counts, 1)
        rest = {code: 2 * found[code] - own[code] for code in own}
        assert min(rest.values()) > -1e-9
        if min(rest.values()) > 1e-6:
            assert feasible_mass(counts, rest)[0] == pytest.approx(1, abs=1e-6)


CENTRED = {"de-en": 9e6, "en-fr": 8e6, "en-ka": 2e4, "am-en": 1e4, "en-ru": 5e6}


def test_nearest_takes_from_those_that_bind_in_proportion():
    counts = CENTRED | {"de-fr": 3e6, "de-es": 3e6, "es-fr": 3e6, "en-es": 3e6}
    wanted = target_marginals(counts, 20)
    found = repaired_marginals(counts, wanted, "nearest", floor=1e-9)
    change = {code: found[code] / wanted[code] for code in wanted}
    assert feasible_mass(counts, wanted)[1] == [(["am", "ka", "ru"], ["en"])]
    assert (
        change["am"] == pytest.approx(change["ka"]) == pytest.approx(change["ru"])
        and change["am"] < 0.9
    )
    assert change["de"] == pytest.approx(1) == pytest.approx(change["fr"]) and change["en"] > 1.1


def matrix(counts, codes):
    data = np.zeros((len(codes), len(codes)))
    for pair, n in counts.items():
        a, b = (codes.index(code) for code in split_pair(pair))
        data[a, b] = data[b, a] = n / sum(counts.values()) / 2
    return data


@pytest.mark.filterwarnings("ignore:If reg_type = entropy")
@pytest.mark.parametrize("strength", [0.5, 10, 200])
def test_relaxed_agrees_with_pot(strength):
    wanted = target_marginals(CENTRED, 2)
    codes = list(wanted)
    p = np.array(list(wanted.values()))
    with np.errstate(divide="ignore"):
        cost = -np.log(matrix(CENTRED, codes) + 1e-300)
    plan = ot.unbalanced.sinkhorn_unbalanced(
        p, p, cost, 1.0, strength, reg_type="entropy", numItermax=100_000, stopThr=1e-14
    )
    found = repaired_marginals(CENTRED, wanted, "relaxed", strength=strength)
    assert list(found.values()) == pytest.approx(plan.sum(1) / plan.sum(), rel=1e-5)


@few
@given(reachable())
def test_entropic_agrees_with_pot(case):
    counts, marginals = case
    codes = list(marginals)
    p = np.array(list(marginals.values()))
    with np.errstate(divide="ignore"):
        cost = -np.log(matrix(counts, codes) + 1e-300)
    plan = ot.sinkhorn(p, p, cost, 1.0, stopThr=1e-14, numItermax=100_000, warn=False)
    for pair, drawn in entropic_sampling(counts, marginals=marginals).items():
        a, b = (codes.index(code) for code in split_pair(pair))
        assert drawn == pytest.approx(plan[a, b] + plan[b, a], abs=1e-8)


def test_smoothing_leaks_what_cannot_be_carried():
    plan = smoothed_sampling(CENTRED, temperature=3)
    assert sum(plan.values()) == pytest.approx(1) and len(plan) == 6 * 7 / 2
    leaked = sum(p for pair, p in plan.items() if pair not in CENTRED)
    assert leaked == pytest.approx(
        1 - feasible_mass(CENTRED, target_marginals(CENTRED, 3))[0], abs=1e-4
    )


def test_english_alone_is_refused_with_the_reason():
    for sample in (entropic_sampling, m2m_sampling):
        with pytest.raises(ConfigError) as e:
            sample(CENTRED, temperature=2)
        for words in (
            "temperature=2:",
            "am, de, fr, ka, ru",
            "only with en",
            "temperature=1, which keeps the shares of the data",
        ):
            assert words in str(e.value)
        for repair in ("nearest", "relaxed"):
            with pytest.warns(UserWarning, match=f"repair='{repair}' moved .* en .* 50%"):
                plan = sample(CENTRED, temperature=2, repair=repair)
            assert language_marginals(plan)["en"] == pytest.approx(0.5)
    with pytest.raises(ConfigError, match="temperature=1, which keeps"):
        entropic_sampling(CENTRED, temperature=0.5)
    with pytest.raises(ConfigError, match="^marginals cannot be reached"):
        entropic_sampling(CENTRED, marginals=target_marginals(CENTRED, 2))


# am and ka need their partners whole
LIMIT = {"am-en": 1, "am-fr": 2, "en-ka": 3, "fr-ka": 1, "en-fr": 100}
AT_LIMIT = {"am": 0.25, "ka": 0.25, "en": 0.3, "fr": 0.2}


def test_marginals_at_the_limit_are_met():
    "The pair of the two partners must vanish; scaling alone would take for ever."
    plan = entropic_sampling(LIMIT, marginals=AT_LIMIT)
    assert 0 <= plan["en-fr"] < 1e-9 and language_marginals(plan) == pytest.approx(
        AT_LIMIT, rel=1e-9
    )
    assert m2m_sampling(LIMIT, marginals=AT_LIMIT)["en-fr"] == pytest.approx(0)
    top = largest_temperature(CENTRED | {"de-fr": 3e6, "fr-ru": 1e6, "de-ru": 1e6})
    assert (
        min(
            entropic_sampling(
                CENTRED | {"de-fr": 3e6, "fr-ru": 1e6, "de-ru": 1e6}, top * (1 - 1e-6)
            ).values()
        )
        > 0
    )


def test_newton_arrives_from_afar():
    "From factors of 1, where whole steps would overshoot; scaling gives the same."
    counts = {
        pair_name(a, b): 10.0 ** (k % 7)
        for k, (a, b) in enumerate(itertools.combinations(CODES, 2))
    }
    graph = pair_graph(counts)
    marginals = target_marginals(counts, 1.5)
    p = np.array(list(marginals.values()))
    for start in (1.0, 1e6, 1e-6):
        u = _newton(graph, p, np.full(len(p), start))
        assert graph.shares * u[graph.ends].prod(0) == pytest.approx(
            of(entropic_sampling(counts, marginals=marginals), counts), rel=1e-6
        )


def test_not_converging_is_an_error(monkeypatch):
    monkeypatch.setattr("xlnb.text.sampling._newton", lambda *_: None)
    with pytest.raises(ConfigError, match="did not converge"):
        entropic_sampling(LIMIT, marginals=AT_LIMIT)


# ---------------------------------------------------------------- what comes in, what goes out


GOOD = {"de-en": 10, "en-fr": 20, "de-fr": 5}


@pytest.mark.parametrize(
    "counts, words",
    [
        ({}, "no pairs"),
        ({"de-en": 3, "en-de": 4}, "'de-en' and 'en-de'"),
        ({"de-en": -3, "en-fr": 2}, "de-en=-3"),
        ({"de-en": 0, "en-fr": 2}, "de-en=0"),
        ({"de-en": math.nan}, "de-en=nan"),
        ({"de-en": math.inf}, "de-en=inf"),
        ({"de-en": "7"}, "de-en='7'"),
        ({"en-en": 4}, "itself"),
        ({"germanen": 4}, "pair 'germanen' is not of"),
    ],
)
def test_counts_that_cannot_be_used_are_named(counts, words):
    for use in (
        entropic_sampling,
        m2m_sampling,
        target_marginals,
        smoothed_sampling,
        largest_temperature,
    ):
        with pytest.raises(ConfigError, match=words):
            use(counts)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"temperature": 0}, "temperature=0"),
        ({"temperature": -1.5}, "-1.5"),
        ({"temperature": float("nan")}, "nan"),
        ({"temperature": float("inf")}, "inf"),
        ({"repair": "close"}, "nearest, relaxed"),
        ({"marginals": {"de": 0.5, "en": 0.5}}, "no value for fr"),
        (
            {"marginals": {"de": 0.3, "en": 0.4, "fr": 0.3, "ka": 0.1}},
            "ka of marginals: without a partner",
        ),
        ({"marginals": {"de": 0.3, "en": 0.7, "fr": 0}}, "fr=0"),
        ({"marginals": {"de": 0.3, "en": 0.4, "fr": 0.4}}, "sum to"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings, words):
    for sample in (entropic_sampling, m2m_sampling):
        with pytest.raises(ConfigError, match=words):
            sample(GOOD, **settings)


def test_sizes_and_options_are_checked():
    with pytest.raises(ConfigError, match="hy, ka of sizes: without a partner"):
        target_marginals(GOOD, 2, {"de": 1, "en": 2, "fr": 3, "ka": 1, "hy": 2})
    found = target_marginals(GOOD, 2, {"fr": 9, "de": 1, "en": 4})
    assert found == pytest.approx({"de": 1 / 6, "en": 2 / 6, "fr": 3 / 6})
    wanted = target_marginals(CENTRED, 2)
    for repair, option in (
        ("nearest", {"floor": 0}),
        ("nearest", {"floor": 1.5}),
        ("relaxed", {"strength": 0}),
    ):
        with pytest.raises(ConfigError, match=next(iter(option))):
            repaired_marginals(CENTRED, wanted, repair, **option)
    with pytest.raises(ConfigError, match="epsilon"):
        smoothed_sampling(GOOD, epsilon=0)
    with pytest.raises(ConfigError, match="budget"):
        expected_epochs(GOOD, {"de-en": 1}, 0)
    with pytest.raises(ConfigError, match="no bitext for de-ka"):
        expected_epochs(GOOD, {"de-ka": 1}, 10)


@pytest.mark.parametrize(
    "text, name",
    [
        ("pair,count\nen-de,10\nen-fr,20\nde-fr,5\n", "a.csv"),
        ("\ufeffsrc\tnote\ttgt\tcount\nen\tx\tde\t10\nen\t\tfr\t2e1\nfr\t\tde\t5.0\n", "a.tsv"),
    ],
)
def test_counts_come_from_a_file(tmp_path, text, name):
    path = write(tmp_path / name, text)
    assert read_pair_counts(path) == {"de-en": 10, "en-fr": 20, "de-fr": 5}
    assert (
        entropic_sampling(path, temperature=1.2)
        == entropic_sampling(str(path), 1.2)
        == entropic_sampling(GOOD, 1.2)
    )


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("pair,n\nde-en,3\n", 1, "count"),
        ("", 1, "pair"),
        ("lang,count\nde,3\n", 1, "no column pair"),
        ("pair,count\nde-en,3\nen-de,4\n", 3, "line 2"),
        ("pair,count\nde-en,3\nen-fr,0\n", 3, "'0' of en-fr"),
        ("pair,count\nde-en,\n", 2, "'' of de-en"),
        ("pair,count\nde-en,100\nfr-en,nan\n", 3, "nan"),
        ("pair,count\nde-en,100,000\n", 2, "3 cells where .* has 2"),
        ("pair,count\n", None, "no line holds a pair"),
        ("pair,count\nen-en,3\n", 2, "en with itself"),
        ("pair,count\nde-en\n", 2, "de-en"),
        ("pair,count\nde-en,3\ntotal,3\n", 3, "total"),
        ("src,tgt,count\nde,,3\n", 2, "'de', ''"),
    ],
)
def test_a_file_that_is_damaged_is_reported_by_line(tmp_path, text, line, words):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(DataError, match=words) as e:
        read_pair_counts(path)
    assert (e.value.file, e.value.line) == (path, line)


def test_report_counts_what_is_read():
    counts = {"de-en": 100, "en-fr": 50, "de-fr": 10}
    plan = {"de-en": 0.5, "en-fr": 0.5, "de-fr": 0.0}
    assert expected_epochs(counts, plan, 240) == pytest.approx(
        {"de-en": 1.2, "en-fr": 2.4, "de-fr": 0}
    )
    (row,) = compare_samplings(counts, {"half": plan}, 240)
    assert (row["sampling"], row["pairs drawn"], row["epochs, fewest"], row["median"]) == (
        "half",
        2,
        0,
        1.2,
    )
    assert (row["effective pairs"], row["share of sentences they hold"]) == pytest.approx(
        (2, 150 / 160)
    )
    assert row["share of sentences never read"] == pytest.approx(10 / 160)  # those of de-fr
    # 20 of de-en, 70 of en-fr
    assert row["share of draws that repeat"] == pytest.approx(90 / 240)


def test_published_counts():
    "The largest published table that is here: who draws how many pairs."
    counts = read_pair_counts(
        ROOT / "data/papers/veco/table07_parallel_corpus.csv",
        "sentences_k",
        leave_out=("total", "fi-ka", "ne-nl"),
    )
    assert len(counts) == 877 and sum(counts.values()) == pytest.approx(6_421_002.97)
    sparse = m2m_sampling(counts, 2)
    full = entropic_sampling(counts, 2)
    assert sum(p > 0 for p in sparse.values()) <= 47 and min(full.values()) > 0
    assert language_marginals(sparse) == pytest.approx(target_marginals(counts, 2), rel=1e-6)


def test_memory_grows_with_the_pairs():
    "3,000 languages: one dense matrix would take 72 MB."
    codes = ["en"] + [
        f"{a}{b}{c}" for a, b, c in itertools.product("abcdefghijklmnopqrs", repeat=3)
    ][:2_999]
    rng = np.random.default_rng(0)
    counts = {pair_name("en", code): float(rng.lognormal(0, 1)) for code in codes[1:]}
    for a, b in rng.integers(1, 3_000, (6_000, 2)).tolist():
        if a != b:
            counts[pair_name(codes[a], codes[b])] = float(rng.lognormal(0, 2))
    tracemalloc.start()
    plan = entropic_sampling(counts, temperature=1.2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24e6 and len(plan) == len(counts) and min(plan.values()) > 0


TREES = [
    ({"de-en": 20_000_000, "en-ka": 1, "de-fr": 10}, 2),
    ({"de-en": 40_903_566, "en-fr": 4_821_914, "de-ka": 1}, 1.43),
    (
        {
            "hj-ji": 2,
            "hj-ib": 62289,
            "ib-jb": 2,
            "ja-jb": 50_000_000,
            "ce-fa": 3513633,
            "ha-ig": 200_000,
        },
        2,
    ),
    ({"fi-hu": 1, "et-hu": 12, "de-hu": 141, "de-fi": 6, "de-et": 65, "en-hu": 54_094_661}, 100),
    ({"de-en": 43617, "en-fr": 533, "es-fr": 1_799_818, "es-it": 25_149_978}, 0.5),
    ({"cc-ee": 37737659, "aa-ee": 1, "cc-ff": 269784, "dd-gg": 7, "bb-cc": 4294812}, 0.8),
]


@pytest.mark.parametrize("counts, temperature", TREES)
@pytest.mark.parametrize("sample", [entropic_sampling, m2m_sampling])
def test_where_two_sides_need_equal_shares_the_advice_works_and_repairs_arrive(
    counts, temperature, sample
):
    "Trees have few temperatures that work, and counts of eight orders leave little room for rounding."
    with pytest.raises(ConfigError, match="cannot be reached") as e:
        sample(counts, temperature)
    advised = float(re.search(r"take temperature=([0-9.]+),", str(e.value))[1])
    wanted = target_marginals(counts, advised)
    reached = language_marginals(sample(counts, advised))
    assert reached == pytest.approx(wanted, rel=2e-6)
    for repair in ("nearest", "relaxed"):
        with pytest.warns(UserWarning, match="moved"):
            plan = sample(counts, temperature, repair=repair)
        assert min(plan.values()) >= 0
        Mixture(plan, 0)


def test_a_temperature_so_low_that_a_language_gets_nothing_is_named():
    counts = {
        "en-fr": 40_000_000,
        "en-ru": 9_000_000,
        "fr-ru": 3_000_000,
        "en-ka": 60_000,
        "ka-ru": 40_000,
    }
    with pytest.raises(ConfigError, match="temperature=0.001 leaves nothing to .*ka"):
        entropic_sampling(counts, 0.001)


def test_names_of_pairs_may_be_written_either_way():
    counts = {"en-de": 100, "en-fr": 50, "fr-de": 20}
    plan = exponent_probabilities(counts)
    assert expected_epochs(counts, plan, 100) == pytest.approx(
        {
            "de-en": 100 * plan["en-de"] / 100,
            "en-fr": 100 * plan["en-fr"] / 50,
            "de-fr": 100 * plan["fr-de"] / 20,
        }
    )
    assert compare_samplings(counts, {"": plan}, 100)[0]["pairs drawn"] == 3
    for wrong, words in (
        (counts, "en-de=100"),
        ({"de-en": -1.0, "en-fr": 2.0}, "de-en=-1"),
        ({"de-xx": 1.0}, "de-xx"),
        ({"de-en": 0.5, "en-de": 0.5}, "same pair"),
    ):
        with pytest.raises(ConfigError, match=words):
            expected_epochs(counts, wrong, 100)
        with pytest.raises(ConfigError, match=words):
            compare_samplings(counts, {"": wrong}, 100)
        with pytest.raises(ConfigError, match=words):
            draw_sampling(plt.figure().gca(), counts, wrong)
    with pytest.raises(ConfigError, match="'deen'"):
        draw_sampling(plt.figure().gca(), counts, plan, "deen")
    image = draw_sampling(plt.figure().gca(), counts, plan, "de,en").get_array()
    assert image[0, 1] == pytest.approx(plan["en-de"])


# ---------------------------------------------------------------- tables that users have


LONG = pd.DataFrame({"src": ["en", "fr", "de"], "tgt": ["de", "en", "fr"], "count": [10, 20, 5]})
UPPER = pd.DataFrame(
    [[0, 10, 5], [np.nan, 0, 20], [0, 0, 0]], index=["de", "en", "fr"], columns=["de", "en", "fr"]
)


@pytest.mark.parametrize(
    "table",
    [
        LONG,
        LONG.set_index(["src", "tgt"])["count"],
        LONG.set_index(["src", "tgt"]),
        pd.Series(GOOD),
        pd.DataFrame({"pair": list(GOOD), "count": list(GOOD.values())}),
        pd.DataFrame({"count": GOOD}),
        UPPER,
        UPPER.T,
        UPPER.fillna(0) + UPPER.fillna(0).T,
        {"de": {"en": 10, "fr": 5}, "en": {"fr": 20, "de": 10}},
        {("en", "de"): 10, ("fr", "en"): 20, "fr-de": np.int32(5)},
    ],
)
def test_one_table_in_many_forms(table):
    found = exponent_sampling(table, 1)
    assert found == pytest.approx({pair: n / 35 for pair, n in GOOD.items()})
    assert entropic_sampling(table, 1.2) == pytest.approx(entropic_sampling(GOOD, 1.2))


@pytest.mark.parametrize(
    "codes",
    [
        ("eng_Latn", "zho_Hans", "deu_Latn"),
        ("zh_CN", "en", "de"),
        ("DE", "EN", "FR"),
        ("zh-CN", "en", "pt-BR"),
        ("a b", "c", "x-y-z"),
    ],
)
def test_opaque_names_stand_for_themselves_and_go_through_all_functions(codes):
    a, b, c = codes
    counts = {(a, b): 10, (b, c): 20, (c, a): 5}
    plan = entropic_sampling(counts, 1.2)
    wanted = entropic_sampling({"de-en": 10, "en-fr": 20, "de-fr": 5}, 1.2)
    assert list(plan.values()) == pytest.approx(list(wanted.values()))
    assert set(language_marginals(plan)) == set(codes) == set(target_marginals(counts))
    for other in (m2m_sampling(counts, 1.2), exponent_sampling(counts), {(b, a): 0.5, (c, a): 0.5}):
        assert len(expected_epochs(counts, other, 7)) == 3 and compare_samplings(
            counts, {"": other}, 7
        )
        assert sum(capped_sampling(counts, other, 7, 1).values()) == pytest.approx(1)
    assert expected_epochs(plan, plan, 7) == pytest.approx(dict.fromkeys(plan, 7))
    assert len(smoothed_sampling(counts, 1.2)) == 6
    draw_sampling(plt.figure().gca(), counts, plan, list(codes))
    plt.close("all")


@pytest.mark.parametrize(
    "table, words",
    [
        (["de-en"], "of type list: give a dict"),
        (np.zeros((2, 2)), "pandas.DataFrame"),
        (None, "NoneType"),
        (LONG.rename(columns={"count": "n"}), "rename.*'n': 'count'"),
        (pd.DataFrame({"pair": ["de-en"]}), "named count"),
        (UPPER + 2 * UPPER.T.fillna(0).T.add(UPPER.T, fill_value=0), "mirror image"),
        ({"de": {"de": 3}}, "itself"),
        ({"de": {"en": 3}, "fr": 3}, "row 'fr'"),
        (pd.Series([3, 4], ["de-en", "de-en"]), "twice"),
        (pd.Series([3, 4]), "pair 0 is neither"),
        ({"de-en": 3, "DE-fr": 2}, "'DE' and 'de' differ in spelling"),
        ({"zh_Hant-en": 3, "zh-Hant-fr": 2}, "differ in spelling"),
        ({"zh-Hant": 3}, "one language with its script"),
        ({"en-zh-CN": 3}, "as a tuple"),
        ({("de", "en", "fr"): 3}, "nor a tuple"),
        ({("de", math.nan): 3}, "keep_default_na"),
        ({"de- en": 3}, "without spaces"),
        ({"de-en": 10**400}, "above 0"),
        ({"de-en": None}, "de-en=None"),
    ],
)
def test_tables_that_cannot_be_used_say_what_to_do(table, words):
    with pytest.raises(ConfigError, match=words):
        entropic_sampling(table)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: entropic_sampling(GOOD, "2"), "temperature='2' .* without quotes"),
        (lambda: exponent_probabilities({"en": 1}, "0.7"), "alpha='0.7': .* without quotes"),
        (lambda: exponent_probabilities({"en": "7"}), "en='7'"),
        (lambda: exponent_probabilities([1, 2]), "type list"),
        (
            lambda: m2m_sampling(GOOD, 2, target_marginals(GOOD, 2)),
            "temperature=2 and marginals are both given",
        ),
        (lambda: entropic_sampling(GOOD, marginals=[0.5]), "marginals is of type list"),
        (lambda: repaired_marginals(GOOD, {"de": 1, "en": 1, "fr": 1}, "nearest"), "sum to 3"),
        (
            lambda: repaired_marginals(GOOD, target_marginals(GOOD), "nearest", strength=3),
            "not one of floor",
        ),
        (lambda: compare_samplings(GOOD, [GOOD], 3), "samplings is of type list"),
        (lambda: expected_epochs(GOOD, {"de-en": 1}, "7"), "budget='7'"),
        (lambda: Mixture({("zh-CN", "en"): 1.0}, 0), "names its sources by text"),
        (lambda: Mixture({"en": 1.0}, 0).draw(0.5, 2), "slot 0.5 is not a whole number"),
        (lambda: Mixture.from_state({"seed": 0}), "what Mixture.state"),
        (
            lambda: draw_sampling(plt.figure().gca(), GOOD, {"de-en": 1.0}, 3),
            "languages is of type int",
        ),
    ],
)
def test_settings_of_the_wrong_kind_say_what_to_do(call, words):
    with pytest.raises(ConfigError, match=words):
        call()


def test_a_file_that_is_not_there_is_reported_with_its_neighbours(tmp_path):
    for name in ("pairs_all.csv", "notes.txt"):
        write(tmp_path / name, "pair,count\nde-en,3\n")
    for name, words in (
        ("pairs.csv", "nearest are pairs_all.csv"),
        ("x.csv", "pairs_all.csv"),
        ("no/x.csv", "its folder"),
    ):
        with pytest.raises(DataError, match=words):
            entropic_sampling(tmp_path / name)
    with pytest.raises(DataError, match="is a folder"):
        read_pair_counts(tmp_path)
    for content, words in (
        (b"pair,count\nd\xe9-en,3\n", "UTF-8"),
        ("pair,n\nde-en,3\n", "by --column n, in Python column='n'"),
    ):
        with pytest.raises(DataError, match=words):
            read_pair_counts(write(tmp_path / "a.csv", content))
    with pytest.raises(ConfigError, match="type int"):
        read_pair_counts(3)
    counts = read_pair_counts(
        write(tmp_path / "c.csv", "src,tgt,count\nzh-CN,en,3\nzh-CN,pt,4\n"), leave_out="en-pt"
    )
    assert counts == {("en", "zh-CN"): 3, ("pt", "zh-CN"): 4}


ODD = [
    None,
    3,
    "x",
    [],
    [1],
    object(),
    np.zeros((2, 2)),
    {1: 2},
    {"de-en": [1]},
    {(1, 2): 3},
    {"de": {7: 3}},
    True,
    pd.Series(["1"], ["de-en"]),
    pd.DataFrame({"pair": [None], "count": [1]}),
    pd.DataFrame({"count": [3]}),
    b"x",
    pd.DataFrame([[1, 2]], columns=["count", "count"]),
    {"de-en": 1 + 2j},
    {"de-en": pd.NA},
    lambda: 1,
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_no_input_ends_in_an_error_of_python(odd):
    plan = entropic_sampling(GOOD)
    alone = (
        entropic_sampling,
        exponent_sampling,
        smoothed_sampling,
        exponent_probabilities,
        language_marginals,
        largest_temperature,
        read_pair_counts,
        Mixture.from_state,
        Mixture({"en": 1.0}, 0).counts,
    )
    calls = [lambda f=f: f(odd) for f in alone]
    calls += [
        lambda: m2m_sampling(GOOD, odd),
        lambda: entropic_sampling(GOOD, repair=odd),
        lambda: Mixture(odd, 0),
        lambda: entropic_sampling(GOOD, marginals=odd),
        lambda: exponent_probabilities(GOOD, odd),
        lambda: target_marginals(GOOD, 2, odd),
        lambda: feasible_mass(GOOD, odd),
        lambda: Mixture(GOOD, odd),
        lambda: expected_epochs(GOOD, odd, 3),
        lambda: expected_epochs(GOOD, plan, odd),
        lambda: compare_samplings(GOOD, {"": odd}, 3),
        lambda: capped_sampling(GOOD, plan, 3, odd),
        lambda: draw_sampling(plt.figure().gca(), GOOD, odd),
        lambda: capped_sampling(GOOD, odd, 3, 3),
        lambda: draw_sampling(plt.figure().gca(), GOOD, plan, odd),
    ]
    for call in calls:
        try:
            call()
        except (ConfigError, DataError):
            pass
    plt.close("all")


# ---------------------------------------------------------------- the plain exponent, the cap, the
# command line


def test_plain_exponent_on_the_published_counts():
    "More effective pairs than the projection, and fewer epochs of the pair that is read most."
    counts = read_pair_counts(
        ROOT / "data/papers/veco/table07_parallel_corpus.csv",
        "sentences_k",
        leave_out=("total", "fi-ka", "ne-nl"),
    )
    plans = {"plain": exponent_sampling(counts), "entropic": entropic_sampling(counts)}
    assert plans["plain"] == pytest.approx(exponent_probabilities(counts, 0.7))
    plain, entropic = compare_samplings(counts, plans, sum(counts.values()))
    assert (
        plain["effective pairs"] > entropic["effective pairs"]
        and plain["most"] < entropic["most"] / 2
    )


@few
@given(
    tables(),
    st.floats(0.05, 5),
    st.floats(1.05, 30),
    st.sampled_from([exponent_sampling, m2m_sampling]),
)
def test_a_cap_is_kept_and_the_rest_stays_in_proportion(counts, budget, room, sample):
    "The conditions of optimality: at the cap, or λ times the plan, and λ times the plan is no less than any cap."
    plan = sample(counts, 1)
    budget *= sum(counts.values())
    held = sum(counts[pair] for pair, p in plan.items() if p > 0)
    most = room * budget / held
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        capped = capped_sampling(counts, plan, budget, most)
    epochs = expected_epochs(counts, capped, budget)
    assert sum(capped.values()) == pytest.approx(1) and max(epochs.values()) <= most * (1 + 1e-9)
    free = [
        capped[pair] / p for pair, p in plan.items() if p > 0 and epochs[pair] < most * (1 - 1e-9)
    ]
    full = [
        capped[pair] / p for pair, p in plan.items() if p > 0 and epochs[pair] >= most * (1 - 1e-9)
    ]
    assert free == pytest.approx([max(free, default=1)] * len(free))
    if free and full:
        assert max(full) <= free[0] * (1 + 1e-6)
    assert all(capped[pair] == 0 for pair, p in plan.items() if p == 0)


def test_a_cap_says_what_it_moves_and_refuses_with_a_number_that_works():
    plan = exponent_sampling(GOOD, 5)
    with pytest.warns(
        UserWarning, match=r"max_epochs=2 holds back 1 of 3 pairs \(de-fr\); .* go to the others"
    ):
        capped_sampling(GOOD, plan, 50, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert capped_sampling(GOOD, plan, 30, 50) == pytest.approx(plan)
        assert capped_sampling(GOOD, exponent_sampling(GOOD, 1), 35, 1) == pytest.approx(
            exponent_sampling(GOOD, 1)
        )
    for budget in (100, 35 * 7, 1e9 / 3):
        with pytest.raises(
            ConfigError, match="max_epochs=2: the 3 pairs that are drawn hold 35 sentences"
        ) as e:
            capped_sampling(GOOD, plan, budget, 2)
        works, allowed = re.search(
            r"needs max_epochs=([0-9.e+]+) or more.*budget of ([0-9.]+)$", str(e.value)
        ).groups()
        with pytest.warns(UserWarning):
            capped_sampling(GOOD, plan, budget, float(works))
        with pytest.warns(UserWarning):
            capped_sampling(GOOD, plan, float(allowed), 2)


def test_the_command_prints_a_table_and_writes_the_plan(tmp_path, capsys):
    table = write(tmp_path / "a.csv", "pair,count\nde-en,1000\nen-fr,2000\nde-fr,50\n")
    options = [
        "--temperature",
        "1.2",
        "--budget=6100",
        "--max_epochs",
        "2.5",
        "--output",
        str(tmp_path / "p.csv"),
    ]
    main([str(table), *options])
    out, err = capsys.readouterr()
    heads, *lines = out.splitlines()
    assert heads.split() == ["pair", "sentences", "data", "exponent", "m2m", "entropic", "epochs"]
    assert [line.split()[0] for line in lines] == ["en-fr", "de-en", "de-fr"] and lines[2].split()[
        -1
    ] == "2.5"
    assert "holds back 1 of 3 pairs" in err and "p.csv" in err
    plan = read_pair_counts(tmp_path / "p.csv", "probability")
    with pytest.warns(UserWarning):  # beside the calculation, with fifteen digits or more
        wanted = capped_sampling(table, entropic_sampling(table, 1.2), 6100, 2.5)
    assert plan == pytest.approx(wanted, rel=1e-12)
    with pytest.raises(SystemExit) as e:
        main(["--help"])
    shown = capsys.readouterr().out
    assert not e.value.code and "no pair is read more often" in shown and "p.csv" not in shown


def test_the_command_shows_what_the_others_refuse(tmp_path, capsys):
    table = write(tmp_path / "a.csv", "pair,count\nde-en,1000\nen-fr,2000\nen-ka,50\n")
    main([str(table), "--temperature", "2", "--sampler", "exponent"])
    out, err = capsys.readouterr()
    assert (
        out.count("refused") == 6 and "only with en" in err and (tmp_path / "a.plan.csv").exists()
    )
    with pytest.raises(SystemExit, match="cannot be reached"):
        main([str(table), "--temperature", "2"])


@pytest.mark.parametrize(
    "options, words",
    [
        (["--output"], "Missing value for argument '--output'"),
        (["--output", "--budget", "5"], "Missing value for argument '--output'"),
        (["--output", "."], "is a folder"),
        (["--output", "no/p.csv"], "no folder"),
        (["--budget", "0"], "budget=0"),
        (["--sampler", "sinkhorn"], "exponent, m2m"),
        (["--temperature", "0"], "temperature=0"),
        (["--max_epochs", "0.1"], "needs max_epochs=1 "),
        (["--column", "n"], "column='count'"),
        (["--sampler", "exponent", "--repair", "nearest"], "for the samplers m2m and entropic"),
    ],
)
def test_the_command_ends_with_a_sentence(tmp_path, options, words):
    table = write(tmp_path / "a.csv", "pair,count\nde-en,10\nen-fr,20\nde-fr,5\n")
    with pytest.raises(SystemExit, match=words) as e:
        main([str(table), *options])
    assert str(e.value).startswith("xlnb: ") and "\n" not in str(e.value)
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]  # nothing was written


def test_a_misspelt_option_is_answered_with_the_nearest(tmp_path):
    table = write(tmp_path / "a.csv", "pair,count\nde-en,10\n")
    with pytest.raises(SystemExit, match="(?s)^xlnb: .*Perhaps you meant.*--column"):
        main([str(table), "--colum", "n"])


def test_a_closed_pipe_ends_the_command_quietly(tmp_path):
    lines = [f"{a}-{b},7\n" for a, b in itertools.combinations(CODES, 2)]
    table = write(tmp_path / "a.csv", "pair,count\n" + "".join(lines))
    command = subprocess.Popen(
        [sys.executable, "-m", "xlnb.text.sampling", str(table)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    command.stdout.close()  # before anything is printed
    assert command.stderr.read() == f"xlnb: the plan of entropic is in {tmp_path / 'a.plan.csv'}\n"
    assert command.wait() == 0


ODD_TABLES = {
    "a stray quote": (
        'pair,count\nde-en,100\n"en-fr,50\nde-fr,20\n',
        "t.csv:3: cannot be taken apart",
    ),
    "a header with the first row": (
        "pair,count,de-en,100\nen-fr,50\n",
        "the header holds 100, a number",
    ),
    "two columns of one name": ("pair,count,count\nde-en,1,2\n", "the header names 'count' twice"),
    "a cell of 200,000 characters": (
        "pair,count\nde-en," + "1" * 200_000 + "\n",
        "t.csv:2: cannot be taken apart",
    ),
}


@pytest.mark.parametrize("text, message", ODD_TABLES.values(), ids=ODD_TABLES)
def test_a_table_that_would_lose_rows_is_refused(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_pair_counts(tmp_path / "t.csv")


def test_a_table_of_languages_is_drawn_by_exponent(tmp_path, capsys):
    table = tmp_path / "text.csv"
    table.write_text("lang,count\nsw,1e4\nde,1e6\n")
    main([str(table), "--temperature", "2", "--budget", "1010000"])
    shown = capsys.readouterr()
    assert "drawn by exponent" in shown.err
    heads, german, swahili = (line.split() for line in shown.out.splitlines())
    assert heads == ["lang", "amount", "data", "exponent", "epochs"]
    assert german == ["de", "1,000,000", "99.0099%", "90.9091%", "0.9182"]
    assert swahili[3:] == ["9.0909%", "9.182"]
    rows = list(csv.DictReader((tmp_path / "text.plan.csv").open()))
    assert [row["lang"] for row in rows] == ["de", "sw"]
    assert float(rows[1]["probability"]) == pytest.approx(1 / 11)


@pytest.mark.parametrize(
    "text, options, words",
    [
        ("lang,count\nde,5\n", ["--max_epochs", "2"], "max_epochs is for pairs"),
        ("lang,count\nde,5\n", ["--budget", "0"], "budget=0.0 is not a finite number above 0"),
        ("lang,count\nde,5\n", ["--temperature", "0"], "temperature=0.0 is not"),
        ("lang,n\nde,5\n", [], "has lang, n, and no column count: name that of the amounts"),
        ("lang,count\nde,5\nde,6\n", [], ":3: 'de' stands in line 2 too"),
        ("lang,count\nde,0\n", [], "count '0' of de is no number above 0"),
        ("lang,count\n", [], "no line holds a language"),
    ],
)
def test_a_table_of_languages_that_says_nothing_is_refused(tmp_path, text, options, words):
    table = tmp_path / "text.csv"
    table.write_text(text)
    with pytest.raises(SystemExit, match=words):
        main([str(table), *options])
    assert not (tmp_path / "text.plan.csv").exists()
