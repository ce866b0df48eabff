"Mapping: induction against the whole matrix, starts, failures that are said, hubs, real vectors."

import ast, re, subprocess, sys, warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from xlnb.base.core import ConfigError, DataError, data_root, repo_root, torch_generator
from xlnb.text.catalogue import dictionary
from xlnb.text.corpora import read_multi30k
from xlnb.text.vectors import WordVectors, read_vectors
from xlnb.measures.ibm import tokenize_words
from xlnb.measures.lexicon import translation_accuracy
from xlnb.measures.linear_maps import normalise, procrustes
from xlnb.measures.retrieval import neighbourhood
from xlnb.mapping import (
    NearIdentity,
    _above_chance,
    _best_of_columns,
    _best_of_rows,
    _dropped_cells,
    held_out_agreement,
    identical_pairs,
    induce_dictionary,
    induce_pairs,
    map_to,
    right_agreement,
    self_learning,
    split_agreement,
    unsupervised_pairs,
)


def spaces(n=300, width=12, noise=0.0, seed=0, m=None):
    "A space of uneven directions, and a rotation of it with noise, as matrices."
    rng = np.random.default_rng(seed)
    x = (
        rng.normal(size=(n, width))
        * np.linspace(2, 0.4, width)
        * rng.exponential(size=(n, 1)) ** 0.5
    )
    x[:, 0] += rng.integers(0, 3, n)  # clusters, as words have
    turn = np.linalg.qr(rng.normal(size=(width, width)))[0]
    z = x @ turn + noise * rng.normal(size=x.shape)
    return torch.from_numpy(x).float(), torch.from_numpy(z[:m]).float()


def languages(n=300, noise=0.1, langs=("en", "de"), seed=0, **options):
    x, z = spaces(n, noise=noise, seed=seed, **options)
    return [
        WordVectors([f"{lang}{i}" for i in range(len(matrix))], matrix, lang)
        for lang, matrix in zip(langs, (z, x))
    ]


@pytest.fixture(scope="module")
def unsupervised():
    return map_to(languages(noise=0.1), "en")


def pairs_of(lang, numbers, hub="en"):
    return {lang: [(f"{lang}{i}", f"{hub}{i}") for i in numbers]}


@pytest.mark.parametrize("shape", [(64, 96), (33, 50), (1, 1), (32, 7), (7, 32), (256, 256)])
def test_best_of_rows_and_columns(shape):
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for own, expected in (
        (_best_of_rows(scores), scores.max(1)),
        (_best_of_columns(scores), scores.max(0)),
    ):
        assert torch.equal(own[0], expected.values) and torch.equal(own[1], expected.indices)


@pytest.mark.parametrize(
    "n, m, block", [(300, 270, 64), (300, 270, 4096), (5, 300, 32), (40, 3, 7)]
)
@pytest.mark.parametrize("keep", [1.0, 0.3])
def test_induction_is_that_of_the_matrix(n, m, block, keep):
    rng = torch.Generator().manual_seed(n)
    x, z = (normalise(torch.randn(k, 10, generator=rng), "unit") for k in (n, m))
    cosine = x @ z.T
    k = min(10, n, m)
    csls = (
        2 * cosine
        - cosine.topk(k, dim=1).values.mean(1)[:, None]
        - cosine.topk(k, dim=0).values.mean(0)
    )
    cells = _dropped_cells(n, m, keep, torch_generator("cells"), x)
    if cells is not None:
        csls = csls + cells.as_strided((n, m), (257, 1))
    forward, backward, objective = induce_pairs(x, z, keep, torch_generator("cells"), block=block)
    # words whose cells are all dropped have no partner
    rows = (csls > -torch.inf).any(1).nonzero()[:, 0]
    columns = (csls > -torch.inf).any(0).nonzero()[:, 0]
    assert torch.equal(forward, torch.stack([rows, csls.argmax(1)[rows]]))
    assert torch.equal(backward, torch.stack([csls.argmax(0)[columns], columns]))
    assert objective == pytest.approx(
        float(cosine.amax(1).mean() + cosine.amax(0).mean()) / 2, abs=1e-6
    )


def test_cells_are_kept_as_often_as_asked_and_not_in_step():
    n = 3000
    m = 2000
    keep = 0.1
    mask = (
        _dropped_cells(n, m, keep, torch_generator("cells"), torch.zeros(1)).as_strided(
            (n, m), (257, 1)
        )
        == 0
    )
    assert float(mask.float().mean()) == pytest.approx(keep, abs=0.003)
    # binomial: five standard deviations
    for share in (mask.float().mean(0), mask.float().mean(1)):
        assert (share - keep).abs().max() < 6 * (keep * (1 - keep) / 2000) ** 0.5
    both = (mask[1:] & mask[:-1]).float().mean()  # neighbours in a column, in a row
    assert float(both) == pytest.approx(keep**2, abs=0.001)
    assert float((mask[:, 1:] & mask[:, :-1]).float().mean()) == pytest.approx(keep**2, abs=0.001)


def test_unsupervised_start_finds_a_rotation_and_self_learning_ends_there():
    x, z = map(normalise, spaces())
    pairs = unsupervised_pairs(x, z)
    assert float((pairs[0] == pairs[1]).float().mean()) > 0.9
    x, z = map(normalise, spaces(noise=0.15))
    pairs = unsupervised_pairs(x, z)
    started = float((pairs[0] == pairs[1]).float().mean())
    learned = self_learning(x, z, pairs)
    ended = float((learned.pairs[0] == learned.pairs[1]).float().mean())
    assert started < 0.9 < ended
    expected = procrustes(x, z)
    assert torch.linalg.matrix_norm(learned.map - expected) < 0.1 * torch.linalg.matrix_norm(
        expected
    )
    keeps = [keep for keep, _ in learned.history]
    assert (
        sorted({*keeps}) == [0.1, 0.2, 0.4, 0.8, 1.0]
        and keeps == sorted(keeps)
        and len(keeps) > 5 * 50
    )
    # no patience is spent on what repeats itself
    map_ = procrustes(x[learned.pairs[0]], z[learned.pairs[1]])
    assert keeps.count(1.0) < 50 and torch.equal(
        torch.cat(induce_pairs(x @ map_, z)[:2], 1), learned.pairs
    )


def test_self_learning_is_a_function_of_its_seed():
    x, z = map(normalise, spaces(300, noise=0.6))
    pairs = unsupervised_pairs(x, z)
    first, again, other = (
        self_learning(x, z, pairs, keep=0.5, patience=3, seed=seed) for seed in (0, 0, 1)
    )
    assert first.history == again.history and torch.equal(first.map, again.map)
    assert first.history != other.history
    for keep in (0, -1, 1.1):
        with pytest.raises(ConfigError, match="keep="):
            self_learning(x, z, pairs, keep=keep)


@pytest.mark.slow
def test_less_patience_means_fewer_iterations():
    def run(**given):
        return map_to(languages(noise=0.15), "en", seed=1, **given).reports["de"]

    long = run()
    short = run(self_learning=5)
    assert short.iterations < long.iterations and short.mapped and long.mapped


@pytest.mark.slow
def test_few_pairs_are_enough_with_self_learning():
    vectors = languages(noise=0.15)
    few = pairs_of("de", range(10))
    alone = map_to(vectors, "en", few, min_agreement=0)
    learned = map_to(vectors, "en", few, self_learning=True)
    test = pairs_of("de", range(100, 300))["de"]

    def score(s):
        return translation_accuracy(test, s.vectors["de"], s.vectors["en"]).covered[1]

    assert score(alone) < 0.7 < 0.9 < score(learned) and learned.reports["de"].mapped
    assert learned.reports["de"].iterations > 0 and learned.reports["de"].start == "dictionary"


def test_a_map_between_spaces_that_are_nearly_one_may_be_regularised():
    english = languages()[0]
    few = pairs_of("de", range(8))
    noise = torch.randn(english.matrix.shape, generator=torch.Generator().manual_seed(5))
    german = WordVectors([f"de{i}" for i in range(300)], english.matrix + 0.35 * noise, "de")
    test = pairs_of("de", range(100, 300))["de"]

    def score(weight):
        spaces = map_to([english, german], "en", few, method=NearIdentity(weight), min_agreement=0)
        assert spaces.reports["de"].method == f"NearIdentity(weight={weight})"
        return translation_accuracy(test, spaces.vectors["de"], spaces.vectors["en"]).covered[1]

    free = map_to([english, german], "en", few, min_agreement=0).vectors
    assert score(0) == translation_accuracy(test, free["de"], free["en"]).covered[1] < score(100)
    with pytest.raises(ConfigError, match="weight=-1: give a number of 0 or more"):
        score(-1)


def test_maps_that_send_all_words_to_one_hub_do_not_agree():
    hub = torch.zeros(50, dtype=torch.long)
    free = torch.arange(50)
    assert _above_chance(hub, hub) == 0 and _above_chance(free, free) == 1
    assert _above_chance(free, free.flip(0)) == 0
    half = torch.where(free < 25, free, 0)  # 25 words alike; chance gives those of the hub
    assert 0.4 < _above_chance(half, free) < 0.52


@pytest.mark.parametrize("method", ["orthogonal", "whitened", "rcsls"])
def test_the_hub_never_moves_and_methods_map(method):
    english, german = languages(noise=0.2)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(3)))[0]
    french = WordVectors([f"fr{i}" for i in range(300)], spaces(noise=0.2)[0] @ turn, "fr")
    given = pairs_of("de", range(200)) | pairs_of("fr", range(200))
    both = map_to([english, german, french], "en", given, method=method)
    one = map_to([german, english], "en", pairs_of("de", range(200)), method=method)
    hub = normalise(english.matrix)
    for mapped in (both, one):
        assert torch.equal(mapped.vectors["en"].matrix, hub)
    # other languages change nothing
    assert torch.equal(both.vectors["de"].matrix, one.vectors["de"].matrix)
    for a, b in (("de", "en"), ("fr", "en"), ("de", "fr")):
        test = [(f"{a}{i}", f"{b}{i}") for i in range(200, 300)]
        assert translation_accuracy(test, both.vectors[a], both.vectors[b]).covered[1] > 0.9, (a, b)


@pytest.mark.slow
def test_unsupervised_success_is_confirmed_and_failure_said(unsupervised):
    good = unsupervised
    assert good.reports["de"].mapped and good.reports["de"].agreement > 0.9
    assert (
        good.translate("de7", "de", "en", 1)[0][0] == "en7"
        and good.translate("en9", "en", "de", 1)[0][0] == "de9"
    )
    english = languages()[0]
    strange = WordVectors([f"de{i}" for i in range(300)], spaces(seed=5)[0], "de")
    with pytest.warns(
        UserWarning, match="de: maps from two halves of it agree on [0-9]% .*left unaligned"
    ):
        bad = map_to([english, strange], "en")
    report = bad.reports["de"]
    assert not report.mapped and report.agreement < 0.1 and report.iterations > 200
    assert torch.equal(bad.vectors["de"].matrix, normalise(strange.matrix))
    assert report.objective > 0.3  # which would have looked like something


def mapped_on(device, *dictionaries):
    vectors = [replace(v, matrix=v.matrix.to(device)) for v in languages(noise=0.1)]
    found = map_to(vectors, "en", *dictionaries)
    assert found.reports["de"].mapped and found.vectors["de"].matrix.device.type == device
    return found


@pytest.mark.gpu
def test_maps_on_a_gpu_are_those_on_a_cpu():
    here, there = (
        mapped_on(device, pairs_of("de", range(200))).vectors["de"].matrix
        for device in ("cpu", "cuda")
    )
    assert torch.allclose(here, there.cpu(), atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_self_learning_finds_the_words_on(device):  # the draws of a GPU are other ones
    found = mapped_on(device)
    assert found.reports["de"].agreement > 0.9
    assert sum(found.translate(f"de{i}", "de", "en", 1)[0][0] == f"en{i}" for i in range(50)) > 45


def test_wrong_dictionaries_are_said_too():
    vectors = languages(noise=0.1)
    order = np.random.default_rng(0).permutation(300)
    wrong = {"de": [(f"de{i}", f"en{j}") for i, j in enumerate(order)]}
    with pytest.warns(UserWarning, match="left unaligned"):
        spaces_ = map_to(vectors, "en", wrong)
    assert not spaces_.reports["de"].mapped
    with pytest.warns(UserWarning, match="de was left unaligned: .*wrong"):
        spaces_.translate("en7", "en", "de")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert map_to(vectors, "en", pairs_of("de", range(200))).reports["de"].agreement > 0.9
        assert map_to(vectors, "en", wrong, min_agreement=0).reports["de"].mapped


def even(width, n, noise=0.0, turned=1.0):
    "Languages of one space without preferred directions, turned much or little."
    draw = torch.Generator().manual_seed(width)
    x = torch.randn(n, width, generator=draw)
    turn = torch.randn(width, width, generator=draw)
    turn = torch.linalg.matrix_exp(turned * (turn - turn.T))
    z = x @ turn + noise * torch.randn(n, width, generator=draw)
    return [
        WordVectors([f"{lang}{i}" for i in range(n)], m, lang) for lang, m in (("en", z), ("de", x))
    ]


@pytest.mark.parametrize("width, n", [(300, 2), (300, 10), (300, 20), (50, 5), (50, 10)])
@pytest.mark.parametrize("off", [0, 1])
def test_maps_by_few_entries_are_not_passed_by_what_they_leave_unturned(width, n, off):
    vectors = even(width, 1000, noise=0.3)
    entries = [(f"de{i}", f"en{(i + off) % n}") for i in range(n)]
    with pytest.warns(
        UserWarning,
        match=f"de: entries for {n} of its words are too few to know .* of width {width} "
        ".*give more, or map without a dictionary .in Python also with self_learning=True.*; "
        "its .* unaligned",
    ):
        mapped = map_to(vectors, "en", {"de": entries})
    report = mapped.reports["de"]
    assert report.agreement < 0.02 and not report.mapped and "too few to know" in report.why
    assert torch.equal(mapped.vectors["de"].matrix, normalise(vectors[1].matrix))


@pytest.mark.parametrize("width, n", [(50, 50), (50, 300), (300, 100), (300, 300)])
def test_right_entries_pass_and_wrong_ones_are_called_wrong(width, n):
    vectors = even(width, 1000, noise=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = map_to(vectors, "en", pairs_of("de", range(n)))
    assert right.reports["de"].agreement > 0.5 and right.reports["de"].why == ""
    wrong = {"de": [(f"de{i}", f"en{(i + 1) % n}") for i in range(n)]}
    with pytest.warns(UserWarning, match="the entries are wrong, or the spaces too different"):
        report = map_to(vectors, "en", wrong).reports["de"]
    assert report.agreement < 0.02 and not report.mapped


def test_between_spaces_that_are_nearly_one_a_map_must_beat_none():
    vectors = even(100, 1000, noise=1.6, turned=0.06)
    right = pairs_of("de", range(150))
    wrong = {"de": [(f"de{i}", f"en{(i + 1) % 150}") for i in range(150)]}
    with pytest.warns(
        UserWarning, match="of the others, the vectors as they are [0-9]+%: .*NearIdentity"
    ):
        free = map_to(vectors, "en", right).reports["de"]
    held = map_to(vectors, "en", right, method=NearIdentity(1.0)).reports["de"]
    assert free.agreement < free.unmapped == held.unmapped < held.agreement and held.mapped
    with pytest.warns(UserWarning, match="left unaligned"):
        assert map_to(vectors, "en", wrong, method=NearIdentity(1.0)).reports["de"].agreement < 0.02
    assert map_to(vectors, "en", right, min_agreement=0).reports["de"].mapped


def test_held_out_entries_may_have_several_translations_and_none_has_a_part_in_its_map():
    x, z = map(normalise, spaces(200))
    # the second is wrong
    pairs = torch.tensor([(i, j) for i in range(100) for j in (i, 150 + i % 50)]).T
    assert held_out_agreement(x, z, pairs) > 0.9
    seen = []
    held_out_agreement(x, z, pairs, fit=lambda a, b: seen.append(len(a)) or torch.eye(12))
    assert seen == [160] * 5
    hub = torch.stack([torch.arange(100), torch.zeros(100, dtype=torch.long)])
    assert held_out_agreement(x, z, hub) == 0  # all words are one word's


@pytest.mark.parametrize("width, forms", [(100, 2), (300, 2), (300, 3)])
def test_wrong_entries_of_one_translation_do_not_confirm_each_other(width, forms):
    english, german = even(width, 600, noise=0.3)
    noise = torch.randn(forms, 200, width, generator=torch.Generator().manual_seed(forms))
    matrix = (german.matrix[:200] + 0.4 * noise).flatten(0, 1)
    german = WordVectors(
        [f"de{i}.{form}" for form in range(forms) for i in range(200)], matrix, "de"
    )

    def entries(off):
        return {"de": [(word, f"en{(i + off) % 200}") for i, word in enumerate(german.words)]}

    assert map_to([english, german], "en", entries(0)).reports["de"].agreement > 0.9
    with pytest.warns(UserWarning, match="the entries are wrong, or the spaces too different"):
        report = map_to([english, german], "en", entries(7)).reports["de"]
    assert report.agreement < 0.02 and not report.mapped


@pytest.mark.parametrize(
    "loose, of",
    [
        (0, "400 of its words, in 1 group by shared words,.*10 are the least"),
        (12, "412 of its words, in 13 groups by shared words,.*spaces [0-4]?[0-9]%"),
    ],
)
def test_entries_that_all_hang_together_are_too_few_to_know(loose, of):
    vectors = even(100, 500, noise=0.3)
    chain = [(f"de{i}", f"en{j}") for i in range(400) for j in (i, i + 1)]
    alone = [(f"de{i}", f"en{i}") for i in range(402, 402 + loose)]
    with pytest.warns(UserWarning, match=f"entries for {of}.*: give more of other words, or map"):
        report = map_to(vectors, "en", {"de": chain + alone}).reports["de"]
    assert not report.mapped and "too few to know" in report.why


@pytest.mark.slow
def test_what_is_advised_is_not_what_was_tried():
    vectors = languages(40, noise=1.0)
    for entries, options, advice in (
        (None, {}, "start from a dictionary, or more words"),
        (
            pairs_of("de", range(12)),
            {"self_learning": True},
            "give more entries, or map without a dictionary, or more words",
        ),
    ):
        with pytest.warns(UserWarning, match=f"maps from two halves .*: {advice}"):
            map_to(vectors, "en", entries, min_agreement=1.0, **options)


def test_right_entries_of_equal_spaces_say_how_many_are_enough():
    x = normalise(even(100, 500)[0].matrix)
    few, many = (right_agreement(x, torch.arange(n).repeat(2, 1)) for n in (20, 90))
    assert few < 0.2 < 0.9 < many


def test_split_agreement_of_too_few_pairs_is_none():
    x, z = map(normalise, spaces(50))
    assert held_out_agreement(x, z, torch.tensor([[3], [3]])) == 0
    assert split_agreement(x[:1], z, torch.tensor([[0], [0]])) == 0


def test_identical_words():
    first = WordVectors(["2017", "Berlin", "Haus"], np.eye(3), "de")
    second = WordVectors(["house", "Berlin", "2017"], np.eye(3), "en")
    assert identical_pairs(first, second).tolist() == [[0, 1], [2, 1]]
    with pytest.raises(DataError, match="no word of de is spelled as one of en"):
        identical_pairs(first, WordVectors(["house"], [[1.0, 0, 0]], "en"))
    vectors = languages(noise=0.2)

    def names(v):
        return [word if i % 20 else f"same{i}" for i, word in enumerate(v.words)]

    renamed = [WordVectors(names(v), v.matrix, v.language) for v in vectors]
    report = map_to(renamed, "en", start="identical").reports["de"]
    assert report.mapped and report.start == "identical" and report.agreement > 0.9


def test_translate_is_csls():
    mapped = map_to(languages(400, noise=1.0), "en", pairs_of("de", range(200)), min_agreement=0)
    x = mapped.vectors["de"].matrix
    z = mapped.vectors["en"].matrix
    cosine = normalise(x, "unit") @ normalise(z, "unit").T
    csls = 2 * cosine - neighbourhood(x, z, 10)[1]
    for i in (0, 17, 399):
        found = mapped.translate(f"de{i}", "de", "en", 6)
        best = csls[i].topk(6)
        assert [w for w, _ in found] == [f"en{j}" for j in best.indices]
        assert [s for _, s in found] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert len(mapped.translate("de0", "deu", "en", 10**6)) == 400
    for arguments, message in (
        (("xx", "de", "en"), "'xx' is not one of the 400 words"),
        (("de0", "de", "sw"), "language 'sw'"),
        (("de0", "de", "en", 0), "k=0"),
    ):
        with pytest.raises(ConfigError, match=message):
            mapped.translate(*arguments)


def test_dictionaries_out_of_a_space(unsupervised):
    mapped = unsupervised
    pairs = induce_dictionary(mapped.vectors["de"], mapped.vectors["en"])
    every = induce_dictionary(mapped.vectors["de"], mapped.vectors["en"], mutual=False)
    assert {*pairs} <= {*every} and len(pairs) > 250
    assert sum(a[2:] == b[2:] for a, b in pairs) / len(pairs) > 0.95
    assert (
        len(induce_dictionary(mapped.vectors["de"], mapped.vectors["en"], vocabulary_cutoff=50))
        <= 50
    )
    with pytest.raises(ConfigError, match="Spaces is no WordVectors: give those of a language"):
        induce_dictionary(mapped, "de")
    again = map_to(languages(noise=0.1), "en", {"de": pairs})
    assert again.reports["de"].mapped and again.reports["de"].iterations == 0
    narrow = WordVectors(["x"], [[1.0]])
    with pytest.raises(DataError, match="de of width 12, and vectors of width 1: map one"):
        induce_dictionary(mapped.vectors["de"], narrow)


def test_induced_dictionaries_are_what_meta_xlm_takes(unsupervised):
    from xlnb.meta_xlm import translations

    pairs = induce_dictionary(unsupervised.vectors["de"], unsupervised.vectors["en"])
    word, translation = pairs[0]
    assert translations([word], dict(pairs)) == [(0, 1, translation)]


def test_errors():
    english, german = languages(50)
    bare = WordVectors(german.words, german.matrix)
    narrow = WordVectors(german.words, german.matrix[:, :5], "de")
    pair = pairs_of("de", range(9))
    cases = [
        ([english], "en", {}, "give two languages or more"),
        ([english, english], "en", {}, "each once"),
        ([english, bare], "en", {}, "has no language"),
        ([english, [1.0]], "en", {}, "give WordVectors"),
        ([english, german], "fr", {}, "language 'fr' is not one of the 2"),
        ([english, german], "en", dict(start="seed"), "start='seed'"),
        ([english, german], "en", dict(method="rotation"), "method='rotation'"),
        ([english, german], "en", dict(vocabulary_cutoff=0), "vocabulary_cutoff=0"),
        ([english, german], "en", dict(self_learning=0), "self_learning=0: give True or False"),
        (
            [english, german],
            "en",
            dict(self_learning="yes"),
            "self_learning='yes': give True or False",
        ),
        (
            [english, german],
            "en",
            dict(vocabulary_cutoff=1e3),
            "vocabulary_cutoff=1000.0: give a whole number",
        ),
        ([english, german], "en", dict(dictionaries={"fr": []}), "dictionaries='fr'"),
        (
            [english, german],
            "en",
            dict(dictionaries={"de": {"de1": "en1"}}),
            "list of .word, translation. pairs",
        ),
        ([english, german], "en", dict(dictionaries={"de": ["ab", "cd"]}), "tuple.line.split"),
        ([english, german], "en", dict(start="dictionary"), "start='dictionary' without one of de"),
        (english, "en", {}, "vectors of en: give two languages or more"),
        ([english, german], "en", dict(normalisation=None), "steps=None: one string"),
        (
            [english, german],
            "en",
            dict(dictionaries=pair, start="identical"),
            "'identical' reads no dictionary",
        ),
        *(
            (
                [english, german],
                "en",
                dict(min_agreement=least),
                "give a share from 0 .all are mapped. to 1",
            )
            for least in (1.1, -0.1, float("nan"), None, "0.1")
        ),
        (
            [english, german],
            "en",
            dict(dictionaries=[(3, "en1")]),
            "list of .word, translation. pairs",
        ),
        (
            [english, german],
            "en",
            dict(dictionaries=[("de1", None)]),
            "list of .word, translation. pairs",
        ),
        ([english, german], "en", dict(dictionaries=[None]), "list of .word, translation. pairs"),
        ([english, german], "en", dict(normalisation="unit,center"), "did you mean 'centre'"),
    ]
    for vectors, hub, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            map_to(vectors, hub, **options)
    data = [
        ([english, narrow], dict(dictionaries=pair), "de of width 5, and en of width 12: a map"),
        (
            [english, german],
            dict(dictionaries={"de": [("Hund", "dog")]}),
            "no entry of the dictionary.*Hund – dog",
        ),
        ([english, german], dict(dictionaries={"de": []}), "the dictionary is empty"),
        (
            [english, german],
            dict(dictionaries={"de": [("de40", "en40")]}, self_learning=True, vocabulary_cutoff=10),
            "raise vocabulary_cutoff=",
        ),
        ([english, german], dict(start="identical"), "no word of de is spelled"),
        (
            [english, german.first(1)],
            dict(dictionaries=[("de0", "en0")]),
            "de: .* nothing of the vector of 'de0'",
        ),
        ([english, german], dict(dictionaries=pair, method="whitened"), "x has rank 9 of 12"),
    ]
    for vectors, options, message in data:
        with pytest.raises(DataError, match=message):
            map_to(vectors, "en", **options)


def test_errors_name_the_files(tmp_path):
    english, german = languages(50)
    for v in (english, german, WordVectors(german.words, german.matrix[:, :5], "ru")):
        v.save(tmp_path / f"{v.language}.vec")
    read = {
        lang: read_vectors(tmp_path / f"{lang}.vec", language=lang) for lang in ("en", "de", "ru")
    }
    with pytest.raises(
        DataError, match="ru.vec: ru of width 5, and en of width 12 in .*en.vec: a map"
    ) as raised:
        map_to([read["en"], read["ru"]], "en")
    assert raised.value.file == tmp_path / "ru.vec"
    words = tmp_path / "de-en.txt"
    words.write_text("Hund dog\nKatze cat\n")
    with pytest.raises(
        DataError, match="de-en.txt: no entry .*Hund – dog.* in .*de.vec and .* in .*en.vec"
    ) as raised:
        map_to([read["en"], read["de"]], "en", {"de": words})
    assert raised.value.file == words
    words.write_text("Hund dog\nKatze\n")
    with pytest.raises(DataError, match="de-en.txt:2: expected a word"):
        map_to([read["en"], read["de"]], "en", {"de": str(words)})
    words.write_text("".join(f"de{i} en{i}\n" for i in range(40)))
    mapped = map_to([read["en"], read["de"]], "en", {"de": words})
    given = map_to([english, german], "en", pairs_of("de", range(40)))
    assert torch.allclose(mapped.vectors["de"].matrix, given.vectors["de"].matrix, atol=1e-6)


def test_the_example_of_the_readme_translates_a_word_that_is_not_in_the_dictionary(
    tmp_path, monkeypatch
):
    blocks = re.findall(
        r"```python\n(.*?)```",
        (repo_root() / "nbs" / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    (code,) = (block for block in blocks if "xlnb.mapping" in block)
    *before, asked = ast.parse(code).body
    for v, word in zip(even(40, 500, noise=0.3), ("dog", "Hund")):
        replace(v, words=(*v.words[:-1], word)).save(tmp_path / f"wiki.{v.language}.vec")
    (tmp_path / "de-en.txt").write_text("".join(f"de{i} en{i}\n" for i in range(200)))
    monkeypatch.chdir(tmp_path)
    exec(compile(ast.Module(before, []), "README.md", "exec"), found := {})
    assert found["spaces"].reports["de"].mapped
    assert eval(compile(ast.Expression(asked.value), "README.md", "eval"), found)[0][0] == "Hund"


PEAK = """
import resource, torch
from xlnb.measures.linear_maps import normalise
from xlnb.mapping import induce_pairs
draw = torch.Generator().manual_seed(0)
x, z = (normalise(torch.randn(n, 64, generator=draw)) for n in (8000, 6000))
induce_pairs(x[:2100], z[:2100], 0.1, draw)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
induce_pairs(x, z, 0.1, draw)
print((peak() - before) // 1024)
"""


@pytest.mark.slow
def test_memory_of_induction_is_blocks_and_not_a_matrix():
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    # MiB; the matrix has 183, the kept cells 8, each of some blocks 16
    assert int(done.stdout) < 90


needs_data = pytest.mark.skipif(
    data_root() is None, reason="XLNB_DATA is not set: no captions, no dictionaries"
)


@needs_data
@pytest.mark.slow
def test_real_vectors_of_captions(tmp_path):
    "word2vec of Multi30k's captions, made by gensim, mapped with MUSE's training pairs, tested on its test pairs."
    word2vec = pytest.importorskip("gensim.models").Word2Vec
    vectors = []
    for lang in ("en", "de"):
        captions = read_multi30k(data_root() / "multi30k/task1/raw", "train", (lang,))
        lines = [tokenize_words(line.lower()) for (line,) in captions]
        model = word2vec(lines, vector_size=64, sg=1, epochs=4, min_count=5, workers=1, seed=0)
        model.wv.save_word2vec_format(str(tmp_path / f"{lang}.bin"), binary=True)
        vectors.append(read_vectors(tmp_path / f"{lang}.bin", language=lang))
    mapped = map_to(vectors, "en", {"de": dictionary("de", "en")})
    test = dictionary("de", "en", split="test")
    score = translation_accuracy(test, mapped.vectors["de"], mapped.vectors["en"])
    unmapped = translation_accuracy(
        test, *(WordVectors(v.words, normalise(v.matrix)) for v in vectors[::-1])
    )
    assert mapped.reports["de"].mapped and score.covered[5] > 0.25 > 0.05 > unmapped.covered[5]
    assert 0 < score.overall[1] < score.covered[1]


def test_entries_out_of_a_failed_space_do_not_confirm_it():
    "Both spaces are noise: whatever its map says, its own entries fit it."
    draw = torch_generator("noise")
    noise = [
        WordVectors([f"{lang}{i}" for i in range(400)], torch.randn(400, 20, generator=draw), lang)
        for lang in ("en", "de")
    ]
    forced = map_to(noise, "en", pairs_of("de", range(100)), min_agreement=0).vectors
    entries = induce_dictionary(forced["de"], forced["en"])
    assert entries.agreement < 0.1 and forced["de"].made_by["map"]["agreement"] == entries.agreement
    with pytest.warns(
        UserWarning,
        match="de: its entries were induced from a space whose maps agree on .* unaligned",
    ):
        refused = map_to(noise, "en", entries)
    assert refused.reports["de"].agreement == entries.agreement
    assert map_to(noise, "en", entries, min_agreement=0).reports["de"].mapped  # forced once more
    with pytest.warns(UserWarning, match="de was left unaligned: its entries"):
        induce_dictionary(refused.vectors["de"], refused.vectors["en"])


def test_a_dictionary_alone_is_of_the_only_other_language(tmp_path):
    vectors = languages()
    entries = pairs_of("de", range(60))["de"]
    file = tmp_path / "de-en.txt"
    file.write_text("".join(f"{a} {b}\n" for a, b in entries))
    expected = map_to(vectors, "en", {"de": entries}).vectors["de"].matrix
    for given in (entries, file, str(file)):
        assert torch.equal(map_to(vectors, "en", given).vectors["de"].matrix, expected)
    more = [*vectors, replace(vectors[1], language="fr")]
    with pytest.raises(ConfigError, match="one dictionary for de, fr: say of which language"):
        map_to(more, "en", file)
    assert translation_accuracy(file, *vectors[::-1]) == translation_accuracy(
        entries, *vectors[::-1]
    )
    file.write_text("dog Hund\n")
    with pytest.raises(DataError, match="de-en.txt: no entry"):
        translation_accuracy(file, *vectors)


def test_all_dictionaries_are_read_before_a_language_is_mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "xlnb.mapping._map_language", lambda *_: pytest.fail("a language was mapped")
    )
    vectors = [*languages(), replace(languages()[1], language="fr")]
    with pytest.raises((DataError, OSError), match="no-file"):
        map_to(vectors, "en", pairs_of("de", range(60)) | {"fr": tmp_path / "no-file.txt"})


def test_a_map_that_cannot_be_fitted_names_its_language():
    with pytest.raises(DataError, match="de, method='whitened': x has rank"):
        map_to(languages(), "en", pairs_of("de", range(9)), method="whitened", min_agreement=0)
