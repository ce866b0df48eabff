"""Exponents and mixtures against their definitions, on random inputs."""
import json, subprocess, sys

import numpy as np
import pytest
from scipy.stats import chisquare

from xlnb.core import ConfigError
from xlnb.sampling import Mixture, exponent_probabilities


def random_probabilities(seed, sources):
    rng = np.random.default_rng(seed)
    return {f"s{k}": float(p) for k, p in enumerate(rng.dirichlet(np.full(sources, rng.choice([0.05, 0.5, 5]))))}


@pytest.mark.parametrize("alpha", [0, 0.3, 0.7, 1, 2])
def test_exponent_is_the_formula(alpha):
    counts = {"en": 123_456_789, "ru": 23_456, "am": 17.5}
    total = sum(n**alpha for n in counts.values())
    for name, p in exponent_probabilities(counts, alpha).items(): assert p == pytest.approx(counts[name]**alpha / total)


def test_exponent_takes_counts_of_any_size():
    p = exponent_probabilities({"en": 1e300, "ru": 1e-300}, 2)
    assert p == {"en": 1.0, "ru": 0.0}


@pytest.mark.parametrize("counts, alpha", [({}, 0.7), ({"en": 0}, 0.7), ({"en": -1, "ru": 2}, 0.7),
                                           ({"en": float("inf")}, 0.7), ({"en": float("nan")}, 0.7),
                                           ({"en": 1}, -0.1), ({"en": 1}, float("nan"))])
def test_exponent_refuses(counts, alpha):
    with pytest.raises(ConfigError): exponent_probabilities(counts, alpha)


@pytest.mark.parametrize("sources", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("seed", range(4))
def test_every_prefix_is_within_four_draws_of_its_due(sources, seed):
    probabilities = random_probabilities(seed, sources)
    mixture = Mixture(probabilities, seed)
    names, numbers = mixture.draw(0, 3_000)
    for name, p in probabilities.items():
        drawn = np.array([n == name for n in names])
        tally = np.concatenate([[0], drawn.cumsum()])
        assert np.abs(tally - p * np.arange(3_001)).max() < 4 # the bound that the notebook derives
        assert numbers[drawn].tolist() == list(range(tally[-1])) # no draw is missing, none comes twice
        for slot in (0, 1, 1_777, 3_000): assert mixture.counts(slot)[name] == tally[slot]


def test_a_later_window_is_as_exact_as_the_first():
    probabilities = random_probabilities(11, 30)
    mixture, n = Mixture(probabilities, 5), 2**31 - 5_000
    assert all(abs(c - n * probabilities[k]) < 4 for k, c in mixture.counts(n).items())
    names, numbers = mixture.draw(n, 5_000)
    before, after = mixture.counts(n), mixture.counts(2**31)
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
        assert some == names[first:first + count]
        assert some_numbers.tolist() == numbers[first:first + count].tolist()


def test_versions_carry_every_source_on():
    rng = np.random.default_rng(1)
    mixture, slot = Mixture(random_probabilities(0, 6), 0), 0
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
    mixture = Mixture(random_probabilities(5, 300), 7) # the sums are not exactly 1
    mixture = mixture.change(1_000, random_probabilities(6, 200))
    again = Mixture.from_state(json.loads(json.dumps(mixture.state())))
    assert again.state() == mixture.state()
    for (a, b), (c, d) in [(mixture.draw(0, 5_000), again.draw(0, 5_000))]: assert a == c and b.tolist() == d.tolist()


@pytest.mark.parametrize("slot", [0, 1, 137, 2**30 + 1])
def test_each_slot_is_unbiased_over_seeds(slot):
    probabilities = {"en": 0.55, "ru": 0.3, "am": 0.1, "ka": 0.05}
    drawn = [Mixture(probabilities, seed).draw(slot, 1)[0][0] for seed in range(3_000)]
    assert chisquare([drawn.count(k) for k in probabilities], [3_000 * p for p in probabilities.values()]).pvalue > 1e-3


def test_a_source_without_probability_is_never_drawn():
    mixture = Mixture({"en": 0.5, "ka": 0.0, "ru": 0.5, "tiny": 1e-15}, 0)
    counts = mixture.counts(2**31) | {"tiny": 0}
    assert counts == {"en": 2**30, "ka": 0, "ru": 2**30, "tiny": 0} # en, ru: within the tiny share
    assert "ka" not in mixture.draw(0, 10_000)[0]


@pytest.mark.parametrize("probabilities", [{}, {"en": 0.5}, {"en": 0.5, "ru": 0.51}, {"en": 1.5, "ru": -0.5},
                                           {"en": float("nan")}, {"en": float("inf")}])
def test_what_is_no_distribution_is_refused(probabilities):
    with pytest.raises(ConfigError): Mixture(probabilities, 0)
    with pytest.raises(ConfigError): Mixture({"en": 1.0}, 0).change(10, probabilities)


@pytest.mark.parametrize("call", [lambda m: m.draw(-1, 5), lambda m: m.draw(2**31 - 1, 2), lambda m: m.counts(-1),
                                  lambda m: m.change(5, {"en": 1.0})])
def test_slots_out_of_range_are_refused(call):
    with pytest.raises(ConfigError): call(Mixture({"en": 1.0}, 0).change(10, {"ru": 1.0}))


def test_the_same_in_another_process():
    program = ("from xlnb.sampling import Mixture; m = Mixture({'en': 0.5, 'ru': 0.3, 'am': 0.2}, 4); "
               "print(m.draw(1000, 50)[0], m.counts(10**6))")
    run = lambda k: subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": str(k)},
                                   capture_output=True, text=True, check=True)
    runs = {run(k).stdout for k in (1, 2)}
    mixture = Mixture({"am": 0.2, "ru": 0.3, "en": 0.5}, 4) # nor does the order of the sources matter
    assert len(runs) == 1 and runs.pop().startswith(str(mixture.draw(1000, 50)[0]))
