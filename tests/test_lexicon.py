"Lexicons: accuracy and similarity against brute force and scipy, real test sets, malformed files."

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from xlnb.base.core import ConfigError, DataError, data_root
from xlnb.text.catalogue import dictionary
from xlnb.text.vectors import WordVectors
from xlnb.measures.lexicon import (
    covered_entries,
    disjoint_entries,
    given_entries,
    known_row,
    leaked_entries,
    linked_entries,
    nearest_products,
    read_similarity,
    translation_accuracy,
    word_similarity,
)

needs_data = pytest.mark.skipif(data_root() is None, reason="XLNB_DATA is not set: no dictionaries")


def languages(n=400, m=350, width=12, seed=0):
    rng = np.random.default_rng(seed)
    return (
        WordVectors([f"{letter}{i}" for i in range(k)], rng.normal(size=(k, width)) + 0.4)
        for letter, k in (("a", n), ("b", m))
    )


@pytest.mark.parametrize("k", [1, 7])
def test_products_are_those_of_the_matrix(k):
    rng = torch.Generator().manual_seed(k)
    queries = torch.randn(90, 16, generator=rng)
    keys = torch.randn(3000, 16, generator=rng) * 10 ** torch.empty(3000, 1).uniform_(
        -3, 1, generator=rng
    )
    values, found = nearest_products(queries, keys, k)
    assert torch.equal(found, (queries @ keys.T).topk(k).indices)
    assert torch.allclose(values, (queries @ keys.T).topk(k).values, rtol=1e-4)


@pytest.mark.parametrize("score", ["cosine", "csls"])
def test_accuracy_is_that_of_brute_force(score):
    first, second = languages()
    rng = np.random.default_rng(1)
    # some unknown
    entries = [
        (f"a{i}", f"b{j}") for i, j in zip(rng.integers(0, 500, 900), rng.integers(0, 450, 900))
    ]
    x, z = (
        v.matrix.double() / v.matrix.double().norm(dim=1, keepdim=True) for v in (first, second)
    )
    scores = x @ z.T
    if score == "csls":
        scores = 2 * scores - scores.topk(10, dim=0).values.mean(0)
    gold = {}
    for a, b in entries:
        if a in first and b in second:
            gold.setdefault(a, set()).add(b)
    right = {k: 0 for k in (1, 5, 10)}
    for a, translations in gold.items():
        order = scores[first.index[a]].argsort(descending=True).tolist()
        for k in right:
            right[k] += bool(translations & {second.words[j] for j in order[:k]})
    found = translation_accuracy(entries, first, second, score)
    asked = len({a for a, _ in entries})
    assert found.words == asked and found.coverage == pytest.approx(len(gold) / asked)
    assert found.covered == pytest.approx({k: n / len(gold) for k, n in right.items()})
    assert found.overall == pytest.approx({k: n / asked for k, n in right.items()})


def test_csls_means_are_of_the_vocabulary_not_of_the_test():
    first, second = languages()
    some = [("a3", "b3"), ("a4", "b4")]
    all_words = [(f"a{i}", f"b{i}") for i in range(350)]
    alone, among = (translation_accuracy(entries, first, second) for entries in (some, all_words))
    assert alone.words == 2 and among.words == 350
    cosine = (
        torch.nn.functional.normalize(first.matrix) @ torch.nn.functional.normalize(second.matrix).T
    )
    best = (2 * cosine - cosine.topk(10, dim=0).values.mean(0)).argmax(1)
    assert among.covered[1] == pytest.approx(
        float((best[:350] == torch.arange(350)).float().mean())
    )
    assert alone.covered[1] == float((best[3:5] == torch.tensor([3, 4])).float().mean())


def test_tiny_vocabularies():
    first = WordVectors(["Hund"], [[1.0, 0]])
    second = WordVectors(["dog", "cat"], [[1.0, 0.1], [0, 1]])
    score = translation_accuracy([("Hund", "dog")], first, second)
    assert score.covered == {1: 1, 5: 1, 10: 1} and score.coverage == 1
    assert (
        translation_accuracy([("Hund", "dog")], first, second, vocabulary_cutoff=1).covered[1] == 1
    )
    with pytest.raises(DataError, match="no entry"):
        translation_accuracy([("Hund", "cat")], first, second, vocabulary_cutoff=1)


def test_words_are_looked_up_in_their_usual_forms():
    vectors = WordVectors(["hund", "New_York", "Berlin", "new_delhi"], np.eye(4))
    assert [
        known_row(vectors, w) for w in ("Hund", "New York", "Berlin", "New Delhi", "berlin")
    ] == [0, 1, 2, 3, None]
    assert covered_entries(
        [("Hund", "Berlin"), ("x", "y"), ("hund", "hund")], vectors, vectors
    ) == {0: {2, 0}}


def test_entries_are_linked_by_words_of_either_side():
    one, other, *rest = linked_entries([("a", "x"), ("b", "y"), ("c", "y"), ("c", "z"), ("x", "a")])
    # a word is one of its side
    assert rest[:2] == [other] * 2 and len({one, other, rest[2]}) == 3
    assert linked_entries([]) == [] and len({*linked_entries([(0, 1), (1, 0), (2, 1)])}) == 2


def test_similarity_is_scipys():
    first, second = languages()
    rng = np.random.default_rng(2)
    rows = [
        (f"a{i}", f"b{j}", float(r))
        for i, j, r in zip(
            rng.integers(0, 400, 80), rng.integers(0, 350, 80), rng.integers(0, 17, 80) / 4
        )
    ]
    cosine = [float(torch.cosine_similarity(first[a], second[b], dim=0)) for a, b, _ in rows]
    ratings = [r for *_, r in rows]
    score = word_similarity([*rows, ("unknown", "b1", 3.0)], first, second)
    p = pearsonr(cosine, ratings)[0]
    s = spearmanr(cosine, ratings)[0]
    assert (score.pearson, score.spearman) == pytest.approx(
        (p, s), abs=1e-5
    ) and score.coverage == 80 / 81
    assert score.harmonic == (pytest.approx(2 * p * s / (p + s), abs=1e-5) if min(p, s) > 0 else 0)
    backwards = [(a, b, -c) for (a, b, _), c in zip(rows, cosine)]
    assert word_similarity(backwards, first, second).harmonic == 0


@pytest.mark.parametrize(
    "text, line",
    [
        ("a\tb\n", 1),
        ("a\tb\t1\na b 2\n", 2),
        ("a\tb\tx\n", 1),
        ("a\tb\tnan\n", 1),
        ("a\tb\t1\n\na\tb\t1\n", 2),
        ("a\t\t1\n", 1),
        ("a\tb\t1\t2\n", 1),
    ],
)
def test_malformed_similarity_files(tmp_path, text, line):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(DataError, match=f"x.txt:{line}: expected word") as e:
        read_similarity(tmp_path / "x.txt")
    assert e.value.line == line


def test_errors(tmp_path):
    first, second = languages()
    narrow = WordVectors(["b0"], [[1.0]])
    (tmp_path / "x.txt").write_text("")
    for call in (
        lambda: translation_accuracy([("a0", "b0")], first, narrow),
        lambda: translation_accuracy([], first, second),
        lambda: word_similarity([("a0", "b0", 1.0)] * 5, first, narrow),
        lambda: read_similarity(tmp_path / "x.txt"),
        lambda: word_similarity([("a0", "a1", 1.0)] * 2, first),
    ):
        with pytest.raises(DataError):
            call()
    for score in ("margin", "CSLS"):
        with pytest.raises(ConfigError):
            translation_accuracy([("a0", "b0")], first, second, score)
    for at in ((), 0, (1, 2.5), "1"):
        with pytest.raises(ConfigError, match="at="):
            translation_accuracy([("a0", "b0")], first, second, at=at)
    assert translation_accuracy([("a0", "b0")], first, second, at=5).covered.keys() == {5}
    with pytest.raises(FileNotFoundError):
        read_similarity(tmp_path / "y.txt")


@needs_data
def test_real_sets_are_read_and_scored():
    "Vectors that know the dictionary: every word a direction of its own, translations share it."
    entries = dictionary("de", "en", split="test")
    rows = {}
    for a, b in entries:
        rows.setdefault(a, b)
    space = np.random.default_rng(0).normal(size=(len(rows), 64))
    second = {}
    for b, row in zip(rows.values(), space):
        second.setdefault(b, row)
    german = WordVectors(list(rows), space)
    english = WordVectors(list(second), np.stack(list(second.values())))
    score = translation_accuracy(entries, german, english)
    assert score.words == 1500 and score.coverage == 1 and score.covered[1] > 0.7
    for name, n in (("de", 500), ("en-de", 914)):
        assert len(read_similarity(data_root() / "semeval2017-task2" / f"{name}.test.txt")) == n


# ---------------------------------------------------------------- what a map knows, and what is no
# entry


@needs_data
def test_a_training_part_read_backwards_knows_the_test():
    "MUSE's two directions are drawn apart: 1,205 of the 2,827 German-English pairs are in English-German's training."
    test = dictionary("de", "en", split="test")
    forth = dictionary("de", "en")
    back = dictionary("en", "de")
    assert not leaked_entries(test, forth)
    assert (len(test), len(leaked_entries(test, back))) == (2827, 1205)


@needs_data
def test_a_training_part_without_the_words_of_a_test_knows_none_of_it():
    test = dictionary("de", "en", split="test")
    other = dictionary("en", "de", split="test")
    back = [(german, english) for english, german in dictionary("en", "de")]
    asked = {word for word, _ in test}
    assert len({word for word, _ in back} & asked) == 940  # of 1,500
    left = disjoint_entries(back, test, other)
    assert not {word for word, _ in left} & asked and not leaked_entries(test, left)
    assert not leaked_entries(other, left) and 0 < len(left) < len(back)
    assert disjoint_entries(dictionary("de", "en"), test) and set(left) < set(back)


def test_entries_keep_no_word_that_a_test_asks_for_in_either_direction():
    entries = [("a1", "b1"), ("a2", "b2"), ("a3", "b3"), ("cafe\u0301", "b5")]
    assert disjoint_entries(entries) == entries
    assert disjoint_entries(entries, [("a1", "b9")], [("b2", "a9")]) == entries[2:]
    assert disjoint_entries(entries, [("a9", "b1")]) == entries
    assert disjoint_entries(entries, [("a9", "b1")], words="all") == entries[1:]
    assert disjoint_entries(entries, [("caf\u00e9", "b9")]) == entries[:3]
    with pytest.raises(ConfigError, match="words='both' is not one of asked, all"):
        disjoint_entries(entries, words="both")


def test_words_that_a_map_knows_are_left_out_and_counted():
    a, b = languages()
    entries = [(f"a{i}", f"b{i}") for i in range(300)] + [("a0", "b7")]
    every = translation_accuracy(entries, a, b)
    assert (every.words, every.known) == (300, 0)
    some = translation_accuracy(entries, a, b, known=[("b0", "a0"), ("a1", "b1"), ("b2", "a9")])
    assert (some.words, some.known) == (298, 2)
    assert some.covered == translation_accuracy(entries[2:-1], a, b).covered
    with pytest.raises(DataError, match="knows a translation of every word of this test"):
        translation_accuracy(entries, a, b, known=[(y, x) for x, y in entries])


@pytest.mark.parametrize(
    "wrong", [None, 3, {"a": "b"}, ["ab"], [("a", 1)], [("a", "b", "c")], b"ab"]
)
def test_what_is_no_list_of_entries_is_refused(wrong):
    a, b = languages()
    for call in (
        lambda: translation_accuracy(wrong, a, b),
        lambda: covered_entries(wrong, a, b),
        lambda: leaked_entries([("a", "b")], wrong),
        lambda: disjoint_entries([("a", "b")], wrong),
    ):
        with pytest.raises(ConfigError, match="entries are a list of"):
            call()
    if not isinstance(wrong, list):
        with pytest.raises(ConfigError, match="entries are a list of"):
            given_entries(wrong)
    with pytest.raises(ConfigError, match="no rated pair"):
        word_similarity(wrong, a)
    with pytest.raises(ConfigError):
        covered_entries([("a1", "b1")], wrong, b)


@pytest.mark.parametrize("written", ["caf\u00e9", "cafe\u0301", "ca\u00adf\u00e9"])
def test_entries_and_vectors_may_be_composed_or_not(written):
    a = WordVectors([written, "haus"], torch.eye(2), "fr")
    b = WordVectors(["coffee", "house"], torch.eye(2), "en")
    for asked in ("caf\u00e9", "Cafe\u0301", "ca\u00adfe\u0301"):
        score = translation_accuracy([(asked, "coffee"), ("haus", "house")], a, b, at=1)
        assert (score.coverage, score.covered[1]) == (1, 1)
        assert leaked_entries([(asked, "x")], [("x", asked)])


def test_an_entry_that_is_known_in_another_case_is_left_out():
    a, b = languages()
    entries = [(f"a{n}", f"b{n}") for n in range(4)]
    known = [("A0", "b0"), ("a1", "B1")]
    assert leaked_entries(entries, known) == entries[:2]
    assert translation_accuracy(entries, a, b, known=known).known == 2
    assert disjoint_entries(known, entries[:1]) == known[1:]
