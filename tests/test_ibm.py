"""IBM-1: the error rate on worked and published cases, EM against loops, Koehn's heuristics, words out of lines"""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import digamma

import xlnb.measures.ibm as ibm
from xlnb.base.core import ConfigError, DataError, data_root, numpy_generator
from xlnb.text.corpora import AlignedPair
from xlnb.measures.ibm import (
    HEURISTICS,
    IBM1_VARIANTS,
    UNSEEN,
    align_both,
    alignment_error_rate,
    diagonal_links,
    scored,
    tokenize_words,
    symmetrise,
    train_both,
    train_ibm1,
)


# ---- error rate


def pair_of(n, m, sure, possible=()):
    return AlignedPair(tuple("a" * n), tuple("b" * m), frozenset(sure), frozenset(possible))


def test_error_rate_counts_over_all_pairs_and_takes_the_union():
    gold = [pair_of(2, 2, {(0, 0)}, {(1, 1)}), pair_of(9, 9, {(i, i) for i in range(9)})]
    # one pair perfect, one nearly empty
    found = alignment_error_rate(gold, [[(0, 0), (1, 1)], {(0, 0)}])
    assert (found.links, found.sure, found.matched_sure, found.matched_possible) == (3, 10, 2, 3)
    assert found.aer == 1 - 5 / 13 and (found.precision, found.recall) == (1, 0.2)
    each = [alignment_error_rate([g], [a]).aer for g, a in zip(gold, [[(0, 0), (1, 1)], {(0, 0)}])]
    assert found.aer != pytest.approx(np.mean(each))  # micro, not the mean over pairs


def test_links_may_carry_scores_and_repeat():
    gold = [pair_of(2, 2, {(0, 0)})]
    assert alignment_error_rate(gold, [[(0, 0, 0.7), (0, 0, 0.2), (0, 0)]]).links == 1


@pytest.mark.parametrize(
    "gold, links, error, says",
    [
        ([pair_of(2, 2, {(0, 0)})], [], ConfigError, "1 gold pairs against links of 0"),
        (
            [pair_of(2, 3, {(0, 0)})],
            [[(2, 0)]],
            DataError,
            r"link \(2, 0\) of pair 0, which has 2 and 3.*counted from 1",
        ),
        ([pair_of(2, 3, {(0, 0)})] * 2, [[], [(0, -1)]], DataError, r"link \(0, -1\) of pair 1"),
        ([pair_of(2, 3, (), {(0, 0)})], [[]], DataError, "without a single Sure link"),
        ([], [], DataError, "without a single Sure link"),
    ],
)
def test_error_rate_refuses(gold, links, error, says):
    with pytest.raises(error, match=says):
        alignment_error_rate(gold, links)


def test_lines_of_an_aligner_are_links():
    gold = [pair_of(3, 3, {(0, 0), (2, 1)}), pair_of(2, 2, {(1, 1)})]
    lines = ["0-0 2-1:0.5", ""]
    tuples = [[(0, 0), (2, 1, 0.5)], []]
    assert alignment_error_rate(gold, lines) == alignment_error_rate(gold, tuples)
    assert symmetrise("0-0 1-1", "1-1 2-2") == {(1, 1)}
    assert alignment_error_rate(gold, [[(np.int64(0), np.int64(0))], [[1, 1]]]).links == 2


GOLD = [pair_of(2, 2, {(0, 0)})]
PAIRS = [(["haus"], ["house"])]


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: alignment_error_rate(GOLD, ["0:0"]), DataError, "pair 0 has the link '0:0': give"),
        (lambda: alignment_error_rate(GOLD, [[("0", "0")]]), DataError, "pair 0 has the link"),
        (lambda: alignment_error_rate(GOLD, [[(0.0, 0)]]), DataError, "pair 0 has the link"),
        (lambda: alignment_error_rate(GOLD, [[(0,)]]), DataError, "pair 0 has the link"),
        (lambda: alignment_error_rate(GOLD, [[3]]), DataError, "pair 0 has the link 3"),
        (lambda: alignment_error_rate(GOLD, [None]), DataError, "links of pair 0 are None"),
        (lambda: alignment_error_rate(GOLD, "0"), ConfigError, "links='0': give a list"),
        (lambda: alignment_error_rate(GOLD, None), ConfigError, "links=None: give a list"),
        (lambda: alignment_error_rate(3, [[]]), ConfigError, "gold=3: give a list"),
        (
            lambda: alignment_error_rate(["0-0"], [[]]),
            DataError,
            r"gold\[0\] is '0-0': give AlignedPair",
        ),
        (lambda: train_both(None), ConfigError, "pairs=None: give pairs"),
        (lambda: train_both([3]), DataError, "pair 0, from 0, is 3, not two sides"),
        (lambda: train_both([(["a"],)]), DataError, "not two sides"),
        (lambda: train_both([(["a"], ["b", None])]), DataError, "has None among its words"),
        (lambda: train_both([(["a"], 5)]), DataError, "has 5 among its words"),
        (
            lambda: train_both(PAIRS, tension="4"),
            ConfigError,
            "tension='4': give a number from 0 up",
        ),
        (
            lambda: train_both(PAIRS, alpha=float("nan")),
            ConfigError,
            "alpha=nan: give a number from 0 up",
        ),
        (lambda: train_both(PAIRS, p0=2), ConfigError, "p0=2: give a number from 0 to 1"),
        (
            lambda: train_both(PAIRS, iterations="5"),
            ConfigError,
            "iterations='5': give a whole number",
        ),
        (
            lambda: align_both(None, PAIRS),
            ConfigError,
            "models=None: give the two that train_both returns",
        ),
        (lambda: train_ibm1(PAIRS).align(None), ConfigError, "pairs=None"),
        (lambda: diagonal_links("3", 2), ConfigError, "n='3': give a number of words"),
        (lambda: symmetrise(None, set()), DataError, "links of pair 0 are None"),
        (lambda: scored([{}]), ConfigError, "give two dicts"),
        (lambda: tokenize_words(None), DataError, "line=None is not a string"),
    ],
)
def test_wrong_types_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()


@given(st.integers(0, 30), st.integers(0, 30))
def test_diagonal_is_one_to_one_and_as_long_as_the_shorter_side(n, m):
    links = diagonal_links(n, m)
    assert len(links) == min(n, m) == len({i for i, _ in links}) == len({j for _, j in links})
    assert all(0 <= i < n and 0 <= j < m for i, j in links)
    assert links == {(i, j) for j, i in diagonal_links(m, n)}


# ---- IBM-1


def naive_em(pairs, iterations, tension=None, alpha=0.0, p0=0.08):
    "t(second | first) by dictionaries and loops."
    t = defaultdict(lambda: 1.0)

    def prior(i, j, n, m):
        if tension is None:
            return 1 / (n + 1)
        if i == 0:
            return p0
        weight = [np.exp(-tension * abs(k / n - (j + 1) / m)) for k in range(1, n + 1)]
        return (1 - p0) * weight[i - 1] / sum(weight)

    for _ in range(iterations):
        counts = defaultdict(float)
        totals = defaultdict(float)
        kinds = defaultdict(set)
        for a, b in pairs:
            a = [None, *a]
            for j, word in enumerate(b):
                p = [t[first, word] * prior(i, j, len(a) - 1, len(b)) for i, first in enumerate(a)]
                for first, share in zip(a, p):
                    counts[first, word] += share / sum(p)
                    totals[first] += share / sum(p)
                    kinds[first].add(word)
        t = {
            (a, b): c / totals[a]
            if not alpha
            else np.exp(digamma(c + alpha) - digamma(totals[a] + alpha * len(kinds[a])))
            for (a, b), c in counts.items()
        }
    best = []
    for a, b in pairs:
        a = [None, *a]
        links = []
        for j, word in enumerate(b):
            p = [t[first, word] * prior(i, j, len(a) - 1, len(b)) for i, first in enumerate(a)]
            if i := int(np.argmax(p)):
                links.append((i - 1, j, p[i] / sum(p)))
        best.append(links)
    return t, best


WORDS = (
    "house haus dom gross big great klein small is ist die the wonderful unbelievable "
    "donaudampfschiff "
    "собака дом большой маленький и есть"
).split()


def word_pairs(n=60):
    sides = [numpy_generator("sentences", seed) for seed in (0, 1)]

    def draw(rng):
        return list(rng.choice(WORDS, rng.integers(1, 9)))

    return [tuple(map(draw, sides)) for _ in range(n)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"alpha": 0.01},
        {"tension": 0.0, "p0": 0.5},
        {"tension": 4.0},
        {"tension": 2.5, "alpha": 0.1, "p0": 0.2},
    ],
)
@pytest.mark.parametrize("block", [2**20, 40])  # everything at once, or a few pairs at a time
def test_em_is_naive_em(options, block, monkeypatch):
    monkeypatch.setattr(ibm, "_BLOCK", block)
    pairs = word_pairs()
    model, (t, links) = train_ibm1(pairs, iterations=4, **options), naive_em(pairs, 4, **options)
    first = {i: w for w, i in model.first.items()}
    second = {i: w for w, i in model.second.items()}
    table = {
        (first[k // len(second)], second[k % len(second)]): v
        for k, v in zip(model.keys.tolist(), model.table)
    }
    assert table.keys() == t.keys()
    for key, value in table.items():
        assert value == pytest.approx(t[key], rel=1e-9)
    for own, expected in zip(model.align(pairs), links):
        assert [x[:2] for x in own] == [x[:2] for x in expected]
        np.testing.assert_allclose([x[2] for x in own], [x[2] for x in expected], rtol=1e-9)


def test_likelihood_rises():
    pairs = word_pairs(200)

    def likelihood(model):
        t = {
            (k // len(model.second), k % len(model.second)): v
            for k, v in zip(model.keys.tolist(), model.table)
        }
        return sum(
            np.log(
                sum(t[i, model.second[w]] for i in [0, *(model.first[x] for x in a)]) / (len(a) + 1)
            )
            for a, b in pairs
            for w in b
        )

    values = [likelihood(train_ibm1(pairs, iterations=n)) for n in range(1, 8)]
    assert all(b > a for a, b in zip(values, values[1:]))


def test_a_renamed_language_is_solved():
    rng = numpy_generator("renamed")
    lines = [
        [f"w{k}" for k in rng.choice(80, rng.integers(3, 9), replace=False)] for _ in range(600)
    ]
    orders = [rng.permutation(len(line)) for line in lines]
    pairs = [(line, ["x" + line[k] for k in order]) for line, order in zip(lines, orders)]
    gold = [
        AlignedPair(
            tuple(a), tuple(b), frozenset((int(k), j) for j, k in enumerate(order)), frozenset()
        )
        for (a, b), order in zip(pairs, orders)
    ]
    for name, options in IBM1_VARIANTS.items():
        links = [scored(own) for own in align_both(train_both(pairs, **options), pairs)]
        assert alignment_error_rate(gold, links).aer < 0.02, name


def test_case_unknown_words_and_empty_sides():
    pairs = [(["Haus"], ["Дом"]), ([], ["дом"]), (["haus"], []), (["Hund"], ["пёс"])]
    model = train_ibm1(pairs)
    assert list(model.first) == [None, "haus", "hund"] and list(model.second) == ["дом", "пёс"]
    assert model.align([(["HAUS"], ["дом"])])[0][0][:2] == (0, 0)
    assert (
        model.align([([], []), (["haus"], []), (["maus"], ["кот"])]) == [[], [], []]
        and model.align([]) == []
    )
    assert "Haus" in train_ibm1(pairs, lowercase=False).first
    # the prior decides
    assert train_ibm1(pairs, tension=4.0).align([(["maus"], ["кот"])])[0][0][:2] == (0, 0)
    assert UNSEEN > 0
    for nothing in ([], [([], [])], [(["a"], [])]):
        with pytest.raises(DataError, match="nothing to learn from"):
            train_ibm1(nothing)
    for count in (0, 1e3, True):
        with pytest.raises(
            ConfigError, match=f"iterations={count}: give a whole number, 1 or more"
        ):
            train_ibm1(pairs, iterations=count)


@pytest.mark.parametrize(
    "pairs, says",
    [
        ([("das haus", "the house")], "pair 0, from 0, has the string 'das haus'"),
        ([(["haus"], ["house"]), (["hund"], "dog")], "pair 1, from 0, has the string 'dog'"),
        (["ab"], "pair 0"),
        ([("", [])], "the string ''"),
    ],
)
def test_characters_are_not_aligned(pairs, says):
    models = train_both([(["haus"], ["house"])])
    for lowercase in (True, False):
        for run in (train_both, train_ibm1):
            with pytest.raises(DataError, match=says + r".*tokenize_words\(line\)"):
                run(pairs, lowercase=lowercase)
    for run in (models[0].align, lambda pairs: align_both(models, pairs)):
        with pytest.raises(DataError, match="has the string|is 'ab', not two sides"):
            run(pairs)


# ---- heuristics


def koehn(forward, backward, how):
    "fast_align's atools on grids: candidates in order, until nothing is added; then both directions."
    n = 1 + max([max(l) for l in forward | backward], default=0)
    grid = np.zeros((n, n), bool)
    a = grid.copy()
    b = grid.copy()
    for g, links in ((a, forward), (b, backward)):
        for l in links:
            g[l] = True
    grid = a & b
    if how == "intersection":
        return {tuple(map(int, l)) for l in zip(*np.nonzero(grid))}
    if how == "union":
        return forward | backward

    def aligned(i, j):
        return (grid[i].any(), grid[:, j].any())

    waiting = [(i, j) for i in range(n) for j in range(n) if (a | b)[i, j] and not grid[i, j]]
    while True:
        added = []
        for i, j in waiting:
            near = grid[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].any()
            if near and not all(aligned(i, j)):
                grid[i, j] = True
                added.append((i, j))
        waiting = [l for l in waiting if l not in added]
        if not added:
            break
    for g in (a, b) if "final" in how else ():
        for i in range(n):
            for j in range(n):
                taken = aligned(i, j)
                barred = any(taken) if how.endswith("and") else all(taken)
                if g[i, j] and not grid[i, j] and not barred:
                    grid[i, j] = True
    return {tuple(map(int, l)) for l in zip(*np.nonzero(grid))}


LINKS = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14)


@settings(max_examples=300, deadline=None)
@given(LINKS, LINKS, st.sampled_from(HEURISTICS))
def test_symmetrise_is_koehns(forward, backward, how):
    found = symmetrise(forward, backward, how)
    assert found == koehn(forward, backward, how)
    assert forward & backward <= found <= forward | backward


def test_symmetrise_refuses_and_scores():
    with pytest.raises(ConfigError, match="did you mean 'union'"):
        symmetrise(set(), set(), "unions")
    assert scored(({(0, 0): 0.5, (1, 1): 0.8}, {(0, 0): 1.0}), "union") == [
        (0, 0, 0.75),
        (1, 1, 0.4),
    ]


# ---- words, published numbers


@pytest.mark.parametrize(
    "line, expected",
    [
        ("Das geht's: „Öl-Preis“ (2,5)!", "Das geht's : „ Öl-Preis “ ( 2 , 5 ) !"),
        ("हिन्दी में।", "हिन्दी में ।"),
        ("l’homme\u00a0dit\tnon", "l’homme dit non"),
        ("", ""),
        (" ", ""),
    ],
)
def test_split_words(line, expected):
    assert tokenize_words(line) == expected.split()


PUBLISHED = {  # system output → its gold, as file names under word-alignment, and the published AER in per cent
    "enfr.awesome-align.out": ("awesome-align", "enfr", 4.1),
    "roen.awesome-align.out": ("awesome-align", "roen", 20.7),
    "fastalign/test.deen.grow-diagonal-final.talp": ("alignment-test-sets", "de-en", 27.7),
    "fastalign/test.enfr.grow-diagonal-final.talp": ("awesome-align", "enfr", 12.1),
    "fastalign/test.roen.grow-diagonal-final.talp": ("awesome-align", "roen", 32.2),
    "jaen.awesome-align.out": ("awesome-align", "jaen", 37.4),
    "zhen.awesome-align.out": ("awesome-align", "zhen", 13.4),
    "giza/test.deen.grow-diagonal-final.talp": ("alignment-test-sets", "de-en", 20.5),
    "giza/test.enfr.grow-diagonal-final.talp": ("awesome-align", "enfr", 6.2),
    "giza/test.roen.grow-diagonal-final.talp": ("awesome-align", "roen", 26.4),
}


@pytest.mark.skipif(
    "not os.environ.get('XLNB_DATA')", reason="XLNB_DATA is not set: no published alignments"
)
@pytest.mark.parametrize("output", PUBLISHED)
def test_published_error_rates(output):
    from xlnb.text.formats import read_pharaoh, read_pharaoh_gold, read_triples

    folder, (kind, pair, published) = data_root() / "word-alignment", PUBLISHED[output]
    path = folder / "reference-outputs" / output
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    files = [folder / kind / f"{pair}.{end}" for end in ("gold", "src-tgt")]
    if kind == "awesome-align":
        gold = read_pharaoh_gold(*files)
    else:
        own = folder / kind / pair
        gold = read_triples(
            own / "alignv2.txt", *(own / f"test.{lang}" for lang in pair.split("-")), first_id=0
        )
    found = alignment_error_rate(gold, read_pharaoh(path))
    assert 100 * found.aer == pytest.approx(published, abs=0.1)


def test_a_tension_of_zero_is_a_flat_prior_beside_that_of_no_word():
    pairs = [(["ja", "nein"], ["yes", "no"]), (["ja"], ["yes"]), (["nein"], ["no"])]
    flat, none, nearly = (
        train_ibm1(pairs, tension=tension, p0=0.5).align(pairs) for tension in (0.0, None, 1e-9)
    )

    def shares(found):
        return [share for links in found for *_, share in links]

    assert shares(flat) == pytest.approx(shares(nearly), abs=1e-6) and shares(
        flat
    ) != pytest.approx(shares(none))


def test_spellings_of_a_word_are_one():
    for line in ("caf\u00e9 noir", "cafe\u0301 noir", "ca\u00adf\u00e9 noir"):
        assert tokenize_words(line) == ["caf\u00e9", "noir"]
    lines = "caf\u00e9 noir", "cafe\u0301 noir", "ca\u00adf\u00e9 \u00ad"
    pairs = [(line.split(), ["coffee", "black"]) for line in lines]
    model = train_ibm1(pairs)
    assert set(model.first) == {None, "caf\u00e9", "noir", "\u00ad"}
    assert model.align([(["Cafe\u0301"], ["coffee"])]) == model.align([(["caf\u00e9"], ["coffee"])])


def test_a_high_tension_leaves_no_nan():
    lines = [(["a", "b", "c"], ["x", "y"]), (["a"], ["x"]), ([], ["x"])]
    learned = train_ibm1(lines, tension=1e4)
    assert np.isfinite(learned.table).all()
    [links] = learned.align(lines[:1])
    assert all(i < 3 and j < 2 and np.isfinite(p) for i, j, p in links)
