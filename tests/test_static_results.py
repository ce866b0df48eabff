"The figures and rules of static vectors on records made up for it: what is drawn, which side a rule takes."

from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch

from xlnb.base.core import append_record, data_root
from xlnb.text.vectors import WordVectors
from xlnb.pretraining.claims import judge, judge_rule
from xlnb.results.static_results import (
    CLAIMS,
    RULES,
    SHARES,
    Published,
    fasttext_record,
    fasttext_scores,
    list_scores,
    more_runs,
    plot_gains,
    plot_vectors,
    published_lists,
    spoiled,
    vector_record,
    vector_scores,
)
from xlnb.results.static_runs import EXPERIMENTS, Settings, prepare_data, resolve, with_base

LAYERS = (0, 1, 2, 3)
ARMS = ("MLM alone", "mse", "cosine", "dcca_as_published", "dcca_ey", "cosine, own vectors")
RETRIEVED = ("T3", "words", "multi30k-2016", "tatoeba")


def toy(level, seed=0, before=1.0):
    "A record whose every score grows with `level`; that of its base run with `before`."
    found = {f"held_out/found_layer{k}": k / 10 for k in LAYERS}
    scores = {}
    for system, height in (("", level), ("before/", before), ("untrained/", 0.1)):
        for k in LAYERS:
            scores |= {
                f"{test}/{pair}/{system}layer{k}/acc@1c": height * k / 10
                for pair in ("de-en", "en-ru")
                for test in RETRIEVED
            }
            scores |= {f"tags/{lang}/{system}layer{k}/f1": height * k / 10 for lang in ("de", "en")}
            scores |= {
                f"{test}/de-en/{system}layer{k}/aer": 1 - height * k / 10
                for test in ("lists", "gold")
            }
    scores |= {f"{test}/de-en/lsa/acc@1c": 0.9 for test in RETRIEVED}
    scores |= {f"{test}/de-en/trigrams/acc@1": 0.2 for test in RETRIEVED}
    for test in ("lists", "gold"):
        scores |= {f"{test}/de-en/diagonal/aer": 0.9, f"{test}/de-en/ibm1-unseen/aer": 0.1}
    return {
        "parameters": {"seed": seed, "layers": 3},
        "run": {"finished": True},
        "losses": ["mlm"],
        "base_learned": {"MLM": 2.0, "TLM": 1.0},
        "curve": [found, found],
        "metrics": scores,
    }


def of(**levels):
    return {name: {seed: toy(level, seed) for seed in range(5)} for name, level in levels.items()}


def vectors(
    apart=0.2,
    mapped=0.3,
    wrong=0.05,
    agreement=0.02,
    best=2,
    fasttext=0.25,
    agreed=0.5,
    pairs=200,
    entries=0.3,
    rcsls=0.3,
):
    "Records of vectors out of captions: layer `best` is the best, and entries that are wrong lead where `wrong` says."
    scores = {}
    for k in LAYERS:
        for method in ("x2static", "aggregated"):
            scores[f"bli/de-en/{method}/unmapped/layer{k}/acc@1"] = apart - 0.05 * abs(k - best)
            scores[f"bli/de-en/{method}/mapped/layer{k}/acc@1"] = mapped - 0.05 * abs(k - best)
    for method in ("x2static", "x2static/regularised", "fasttext"):
        for n in SHARES:
            scores[f"bli/de-en/{method}/right{n}/mapped/acc@1"] = wrong + (mapped - wrong) * n / 100
            scores[f"map/de-en/{method}/right{n}/mapped/agreement"] = agreement + n / 200
    scores |= {
        f"bli/de-en/{system}/mapped/acc@1": value
        for system, value in (
            ("x2static/regularised", mapped),
            ("fasttext", entries),
            ("fasttext/rcsls", rcsls),
        )
    }
    scores["bli/de-en/fasttext/unsupervised/mapped/acc@1"] = fasttext
    scores["map/de-en/fasttext/unsupervised/mapped/agreement"] = agreed
    for system, score in (("x2static/mapped/layer2", 0.5), ("fasttext/mapped", 0.52)):
        scores |= {
            f"similarity/{pair}/{system}/{name}": value
            for pair in ("de", "de-en")
            for name, value in (("harmonic", score), ("pairs", pairs))
        }
    scores |= {f"bli/de-en/{system}/unmapped/acc@1": 0.6 for system in ("lsa", "untrained")}
    return {
        "vectors": {"captions": {seed: toy(1, seed) | {"metrics": scores} for seed in range(5)}}
    }


def seen(ax):
    return {t.get_text() for t in ax.texts}


def test_gains_have_a_row_for_every_arm_with_two_seeds_and_one_for_the_base_run():
    groups = of(**{"MLM alone": 1, "cosine": 2}) | {"mse": {0: toy(1, 0)}}
    panels = {"all": ("T3", lambda pair: True), "Russian": ("words", lambda pair: "ru" in pair)}
    fig = plot_gains(groups, panels)
    assert [ax.get_title("left") for ax in fig.axes] == [*panels]
    arms = [label.get_text() for label in fig.axes[0].get_yticklabels()]
    assert {*arms} == {"base run", "cosine"}
    for ax in fig.axes:
        assert ax.containers[arms.index("cosine")].lines[0].get_xdata() == pytest.approx([30])
    plt.close(fig)


def test_vectors_by_layer_and_by_right_entries():
    fig = plot_vectors(vectors()["vectors"]["captions"])
    assert {"X2Static, unmapped", "X2Static, mapped", "aggregated, mapped"} <= seen(fig.axes[0])
    means = [line for line in fig.axes[1].get_lines() if line.get_label() == "X2Static, mapped"]
    assert means[-1].get_ydata() == pytest.approx([5, 7.5, 17.5, 27.5, 30])
    plt.close(fig)


def test_what_has_no_record_of_fasttext_yet_is_drawn_without_it():
    runs = vectors()["vectors"]["captions"]
    for seed, r in runs.items():
        r["metrics"] = {k: v for k, v in r["metrics"].items() if seed or "fasttext" not in k}
    assert "fastText, mapped" in seen((fig := plot_vectors(runs)).axes[1])
    plt.close(fig)
    assert "fastText, mapped" not in seen((fig := plot_vectors({0: runs[0]})).axes[1])
    fig.canvas.draw()
    plt.close(fig)


def sides(rules, finished):  # of those that have runs
    return [(row["for"], row["against"]) for row in (judge_rule(r, finished) for r in rules) if row]


def test_rules_of_the_losses_take_sides():
    losses, frequent = (
        lambda name=name, **levels: {name: of(**levels)} for name in ("losses", "frequent")
    )
    assert sides(RULES["static-07"], frequent(**{"MLM alone": 1.5})) == [(5, 0)]
    assert sides(RULES["static-07"], frequent(**{"MLM alone": 0.5})) == [(0, 5)]
    # tags have fallen too: 15 points
    assert sides(RULES["static-08"], losses(mse=0.5)) == [(5, 0), (0, 5)]
    assert sides(RULES["static-08"], losses(mse=0.95)) == [(5, 0), (5, 0)]
    assert sides(RULES["static-08"], losses(mse=1.5)) == [(0, 5), (0, 5)]


@pytest.mark.parametrize(
    "claim, reproduced, contradicted",
    [
        ("static-01", dict(fasttext=0.29), dict(fasttext=0.45)),
        (
            "static-02",
            dict(mapped=0.24, entries=0.25, rcsls=0.3),
            dict(mapped=0.15, entries=0.25, rcsls=0.1),
        ),
        ("static-04", dict(best=2), dict(best=3)),
        ("static-05", dict(wrong=0.01), dict(wrong=0.35)),
    ],
)
def test_rules_of_the_vectors_take_sides(claim, reproduced, contradicted):
    assert {*sides(RULES[claim], vectors(**reproduced))} == {(5, 0)}
    assert {*sides(RULES[claim], vectors(**contradicted))} == {(0, 5)}


def test_a_gain_that_is_neither_takes_no_side():
    assert sides(RULES["static-02"], vectors(mapped=0.22))[:2] == [(0, 0)] * 2
    assert sides(RULES["static-01"], vectors(fasttext=0.35)) == [(0, 0)]
    # its map was refused
    assert sides(RULES["static-01"], vectors(fasttext=0.2, agreed=0.05)) == [(0, 0)]
    # right entries lose too
    assert sides(RULES["static-05"], vectors(mapped=0.15, wrong=0.01)) == [(0, 0), (5, 0)]
    assert sides(RULES["static-06"], vectors()) == [(5, 0)] * 2
    assert sides(RULES["static-06"], vectors(pairs=59)) == [(0, 0)] * 2
    said = {judge_rule(rule, vectors(pairs=59))["why"] for rule in RULES["static-06"]}
    assert said == {"a value in 0 of 5 seeds"}


def test_the_worst_pair_has_to_gain_and_to_gain_most():
    def judged(worst, other):  # points that the map gives
        found = vectors()
        for record in found["vectors"]["captions"].values():
            scores = record["metrics"]
            scores["bli/cs-en/x2static/unmapped/layer2/acc@1"] = 0.1
            scores["bli/cs-en/x2static/mapped/layer2/acc@1"] = 0.1 + worst
            scores["bli/de-en/x2static/mapped/layer2/acc@1"] = 0.2 + other
        return sides(RULES["static-03"], found)

    assert judged(0.1, 0.05) == [(5, 0)] and judged(0.1, 0.15) == [(0, 5)]
    assert judged(-0.1, -0.15) == [(0, 5)]  # it loses least


def test_own_vectors_stand_against_mlm_alone_shuffled_ones_and_another_teacher():
    arms = dict.fromkeys(("MLM alone", "dcca_ey, own vectors shuffled", "dcca_ey, fastText"), 1)
    arms["dcca_ey, own vectors"] = 1.5
    rows = {
        name: [row for c in claim.comparisons if (row := judge(c, {"frequent": of(**arms)}))]
        for name, claim in CLAIMS.items()
    }
    assert {name: [row["direction"] for row in found] for name, found in rows.items() if found} == {
        "static-07": ["as in the paper"] * 4,
        "static-09": ["as in the paper"] * 2,
        "static-10": ["opposite"],
    }
    assert any("shuffled" in row["arms"] for row in rows["static-07"])


def test_a_pair_that_loses_counts_where_the_mean_rises():
    def least(worst, other):  # points that the two pairs have gained
        arms = of(**{"MLM alone": 1, "dcca_ey": 1})
        for record in arms["dcca_ey"].values():
            scores = record["metrics"] = {**record["metrics"]}
            pairs = sorted({name.split("/")[1] for name in scores if name.startswith("T3/")})
            for name, value in scores.items():
                # not of the base run
                if name.startswith("T3/") and name.split("/")[2].startswith("layer"):
                    scores[name] = (
                        value + (worst if name.split("/")[1] == pairs[0] else other) / 100
                    )
        return [
            row["number"] for r in RULES["static-11"] if (row := judge_rule(r, {"losses": arms}))
        ]

    assert least(-1, 3)[0].startswith("-1") and least(1, 3)[0].startswith("+1")
    assert least(-3, 1) == ["–"]


def test_a_claim_a_row_of_the_ledger_and_each_comparison_has_its_baselines():
    finished = {"losses": of(**dict.fromkeys(ARMS, 1) | {"MLM alone": 0.9, "mse": 0.9})}
    finished["frequent"] = of(**dict.fromkeys(EXPERIMENTS["frequent"].arms, 1))
    rows = [judge(c, finished) for claim in CLAIMS.values() for c in claim.comparisons]
    assert len(CLAIMS) == 11 and all(row["beats the baseline"] for row in rows)
    # LSA and trigrams are far ahead
    assert {row["beats the baseline"][:2] for row in rows[:4]} == {"no"}
    before_mse = [judge(c, finished)["direction"] for c in CLAIMS["static-08"].comparisons]
    # MLM alone is level with it, both correlation losses are ahead
    assert before_mse == ["open", "as in the paper", "as in the paper"]


@pytest.mark.parametrize("right, kept", [(0, 0), (10, 4), (50, 20), (90, 36), (100, 40)])
def test_a_spoiled_dictionary_keeps_its_words_and_as_many_translations_as_it_says(right, kept):
    entries = [(f"a{k}", f"b{k}") for k in range(40)]
    found = spoiled(entries, right, seed=1)
    assert [a for a, _ in found] == [a for a, _ in entries] and {b for _, b in found} == {
        b for _, b in entries
    }
    assert sum(x == y for x, y in zip(found, entries)) == kept
    assert found == spoiled(entries, right, seed=1) and (
        right == 100 or found != spoiled(entries, right, seed=2)
    )


def test_vectors_without_the_captions_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for record in (vector_record, fasttext_record):
        with pytest.raises(FileNotFoundError, match="multi30k"):
            record(0)


def test_wrong_translations_fit_no_word_even_where_words_have_several():
    entries = [(f"a{k // 2}", f"b{k}") for k in range(80)]
    for seed in range(5):
        found = spoiled(entries, 0, seed)
        assert [a for a, _ in found] == [a for a, _ in entries] and not {*found} & {*entries}
    only = [("a", "1"), ("a", "2")]  # nothing else to give
    assert sorted(spoiled(only, 0, 0)) == only


def asked(seed):  # parameters of a record
    return resolve(Settings(**EXPERIMENTS["path"].shared, loss="none", seed=seed)).for_record()


def test_scores_of_fasttext_stand_beside_those_of_the_network_of_their_seed(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    assert more_runs("tiny") == {"vectors": {}}
    name = "bli/de-en/fasttext/mapped/acc@1"
    own = {"bli/de-en/x2static/unmapped/layer0/acc@1": 0.2}
    for seed in (1, 0):
        record = {"parameters": asked(seed), "base": "run", "metrics": own}
        append_record("07d_static_results", record, "a")
    append_record(
        "07d_static_results",
        {"parameters": asked(2) | {"steps": 9}, "base": "run", "metrics": own},
        "a",
    )
    append_record("07d_static_results", {"parameters": asked(1), "metrics": {name: 0.3}}, "b")
    found = more_runs("tiny")["vectors"]["captions"]
    assert {seed: r["metrics"] for seed, r in found.items()} == {0: own, 1: own | {name: 0.3}}
    assert more_runs("small") == {"vectors": {}}


@pytest.mark.skipif(data_root() is None, reason="XLNB_DATA is not set: no dictionaries")
def test_no_map_knows_a_word_that_a_published_list_asks():
    text = {
        "de": ["Der Hund und das Haus .", "Haus und Hund"],
        "en": ["A dog , a house .", "the Dog"],
    }
    given = published_lists(SimpleNamespace(langs=["de", "en"], text=text), "en", "muse")
    assert (
        {*given.test} == {("de", "en"), ("en", "de")}
        and {*given.train} == {"de"}
        and len(given.train["de"]) > 3000
    )
    asked = {word for entries in given.test.values() for row in entries for word in row}
    assert not asked & {word for row in given.train["de"] for word in row}
    words = {word for word, _ in given.train["de"] + given.test["de", "en"]}
    assert "Haus" in words and "haus" not in words  # as the text has it


@pytest.mark.skipif(
    data_root() is None, reason="XLNB_DATA is not set: no captions and no dictionaries"
)
@pytest.mark.slow
def test_vectors_of_captions_are_measured_from_end_to_end(root):
    s = resolve(
        Settings(
            corpus="multi30k",
            langs="de,en",
            loss="none",
            width=32,
            layers=1,
            steps=2,
            batch_tokens=256,
            vocab_size=600,
            teacher_lines=1500,
        )
    )
    data = with_base(s, prepare_data(s))
    found = vector_scores(s, data) | fasttext_scores(s, data)
    for place in ("x2static", "x2static/regularised", "fasttext"):
        for n in SHARES:
            assert 0 <= found[f"bli/de-en/{place}/right{n}/mapped/acc@1"] <= 1
        covered, of_all, share = (
            found[f"muse-test/de-en/{place}/mapped/{name}"]
            for name in ("acc@1", "overall@1", "coverage")
        )
        assert 0 < share < 1 and of_all == pytest.approx(covered * share, abs=1e-4)
    assert {f"xling-test/en-de/{place}/unmapped/overall@10" for place in ("x2static", "lsa")} < {
        *found
    }


def test_published_lists_are_scored_by_all_their_words():
    entries = [("Hund", "dog"), ("Haus", "house"), ("Baum", "tree"), ("Baum", "trees")]
    lists = {"muse-test": Published({}, {("de", "en"): entries, ("en", "de"): [("sky", "Himmel")]})}
    words = {"de": ["Hund", "Haus"], "en": ["dog", "house"]}
    vectors = {lang: WordVectors(own, torch.eye(2), lang) for lang, own in words.items()}
    found = list_scores(vectors, lists, "here/mapped")
    place = "muse-test/de-en/here/mapped"
    # no word of the other list has a vector
    assert {name.rpartition("/")[0] for name in found} == {place}
    assert found[f"{place}/words"] == 3 and found[f"{place}/coverage"] == pytest.approx(2 / 3)
    assert found[f"{place}/acc@1"] == 1 and found[f"{place}/overall@1"] == pytest.approx(2 / 3)
