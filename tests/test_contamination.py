"""Overlap of training and test text: oracles, Unicode, streams, and the real sets.

`python tests/test_contamination.py` surveys the real sets under XLNB_DATA and appends what it finds to the records that
the notebook shows.
"""

import json, subprocess, sys, time, unicodedata
from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import xlnb.text.contamination as contamination
from xlnb.base.core import (
    ConfigError,
    DataError,
    append_record,
    normalize_text,
    run_facts,
    split_pair,
)
from xlnb.text.contamination import (
    LEAST,
    SHARE,
    Distinct,
    LineIndex,
    containment,
    describe,
    describe_languages,
    grams,
    language_check,
    look_through,
    names_identifier,
    near,
    normalised,
    overlapping,
    sample_items,
    seen_lines,
    survey,
)
from xlnb.text.corpora import Lines, check_streams, line_pairs, text_lines

# ---------------------------------------------------------------- oracles: the definitions, word
# for word and slowly


def plain(line: str) -> str:
    "Definition of a normalised line."
    line = normalize_text(line.replace("\n", " "))  # as every text is read
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", line).casefold())
    kept = [
        c if (kind := unicodedata.category(c))[0] in "LMN" else "" if kind == "Cf" else " "
        for c in text
    ]
    return " ".join(w for w in "".join(kept).split(" ") if w) or line


@cache
def gram_set(line: str) -> set[str]:
    "Definition of the grams of a normalised line: eight letters, wide characters written twice."
    units = "".join(c * (1 + (ord(c) >= 0x2E80)) for c in f" {line} ")
    return {units[i : i + 8] for i in range(len(units) - 7)}


@cache
def is_near(a: str, b: str, share: float) -> bool:
    ours = gram_set(a)
    return a != b and len(ours) >= LEAST and len(ours & gram_set(b)) >= share * len(ours) - 1e-9


def slow_survey(text, tests, pairs, share):
    "Every comparison of every line with every other."
    read = {lang: [plain(line) for line in lines] for lang, lines in text.items()}
    everything = {lang: list(lines) for lang, lines in read.items()}
    for pair, rows in pairs.items():
        for lang, side in zip(pair.split("-"), zip(*rows) if rows else ([], [])):
            everything.setdefault(lang, []).extend(map(plain, side))
    facts = {
        "lines": {lang: len(lines) for lang, lines in read.items()},
        "repeated": {lang: len(lines) - len(set(lines)) for lang, lines in read.items()},
        "near_repeated": {
            lang: sum(any(is_near(a, b, share) for b in set(lines)) for a in set(lines))
            for lang, lines in read.items()
        },
    }
    facts |= {"overlap": {}, "near_overlap": {}, "pair_overlap": {}}
    for test, parts in tests.items():
        by_lang = {}
        for pair, sides in parts.items():
            for lang, side in zip(pair.split("-"), sides):
                by_lang.setdefault(lang, set()).update(map(plain, side))
        by_lang = {lang: lines - {""} for lang, lines in by_lang.items() if lang in everything}
        same = {
            lang: {a for a in lines if a in everything[lang]} for lang, lines in by_lang.items()
        }
        close = {
            lang: {a for a in lines if any(is_near(a, b, share) for b in set(everything[lang]))}
            for lang, lines in by_lang.items()
        }
        facts["overlap"][test] = {lang: len(lines) for lang, lines in same.items()}
        facts["near_overlap"][test] = {lang: len(close[lang] - same[lang]) for lang in same}
        facts["pair_overlap"][test] = {}
        for pair in (p for p in parts if p in pairs):
            rows = [(plain(x), plain(y)) for x, y in pairs[pair]]

            def repeats(a, b):
                return a == b or is_near(a, b, share)

            asked = {
                (a, b) for a, b in zip(*map(lambda side: map(plain, side), parts[pair])) if a and b
            }
            both = {
                (a, b) for a, b in asked if any(repeats(a, x) and repeats(b, y) for x, y in rows)
            }
            first, second = pair.split("-")
            sides = [
                (a in same[first] | close[first]) + (b in same[second] | close[second])
                for a, b in asked
            ]
            facts["pair_overlap"][test][pair] = {
                "pairs": len(asked),
                "both": len(both),
                "apart": sides.count(2) - len(both),
                "one": sides.count(1),
            }
    return facts


WORDS = {
    "de": "ein kleiner Hund läuft durch den tiefen Schnee und große Katzen schlafen auf dem "
    "Sofa".split(),
    "ru": "маленькая собака бежит по глубокому снегу и большие кошки спят на диване".split(),
    "zh": list("一只小狗在深雪中奔跑大猫睡沙发上"),
}


def corpus_of(seed, lines=120):
    "Random text in which lines are copied, changed, cut and put into longer ones."
    draw = np.random.default_rng(seed)
    texts = {}
    for lang, words in WORDS.items():
        blank = "" if lang == "zh" else " "
        pool = [list(draw.choice(words, draw.integers(1, 16))) for _ in range(lines // 4)]
        out = []
        for _ in range(lines):
            line = list(pool[draw.integers(len(pool))])
            for _ in range(draw.integers(3)):
                line[draw.integers(len(line))] = draw.choice(words)
            if draw.random() < 0.2:
                line += list(draw.choice(words, 6))
            text = blank.join(line)
            out.append(text.upper() + "!" if draw.random() < 0.2 else text)
        texts[lang] = out
    return texts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.6, 0.7, 0.9, 1.0])
def test_survey_equals_comparing_everything_with_everything(seed, share):
    text = corpus_of(seed)
    other = corpus_of(seed + 100, 40)
    asked = corpus_of(seed + 200, 60)
    # beside their partners
    for lang in text:
        asked[lang] += text[lang][:10] + [line[:-3] for line in text[lang][10:40]]
    pairs = {
        f"{a}-{b}": list(zip(text[a][:40] + other[a], text[b][:40] + other[b]))
        for a, b in combinations(text, 2)
    }
    tests = {
        "one": {f"{a}-{b}": (asked[a], asked[b]) for a, b in combinations(text, 2)},
        "two": {"de-ru": (other["de"][:5], asked["ru"][-5:])},
    }
    expected = slow_survey(text, tests, pairs, share)
    found = survey(text, tests, pairs, share=share)
    assert {key: found[key] for key in expected} == expected
    if share == 1:
        return
    assert all(found["near_overlap"]["one"].values())
    assert all(n["both"] for n in found["pair_overlap"]["one"].values())


@pytest.mark.parametrize("share", [0.6, 0.7, 1.0])
def test_index_finds_every_near_line_with_its_share(share):
    for lang, lines in corpus_of(3).items():
        lines = list(dict.fromkeys(normalised(lines)))
        index = LineIndex(lines[:50], share)
        row, line, shares = near(index, lines)
        expected = {
            (r, i)
            for r, b in enumerate(lines)
            for i, a in enumerate(lines[:50])
            if is_near(a, b, share)
        }
        assert set(zip(row.tolist(), line.tolist())) == expected and len(row) == len(expected)
        for r, i, part in zip(row, line, shares):
            ours = gram_set(lines[i])
            assert part == pytest.approx(len(ours & gram_set(lines[r])) / len(ours))
            assert containment(lines[i], lines[r]) == pytest.approx(part)


def test_a_block_too_large_to_expand_is_halved(monkeypatch):
    lines = list(dict.fromkeys(normalised(corpus_of(1)["de"])))
    whole = sorted(zip(*(a.tolist() for a in near(LineIndex(lines), lines))))
    monkeypatch.setattr("xlnb.text.contamination._AT_ONCE", 50)
    assert sorted(zip(*(a.tolist() for a in near(LineIndex(lines), lines)))) == whole


# ---------------------------------------------------------------- Unicode

ODD = "aA ßé\u0301\u00ad\u200d\u200c\u3000\u2028\u0085早한นา҉İς\ud800😀.!\t"
TEXT = st.text(st.one_of(st.characters(), st.sampled_from(ODD)), max_size=30)
ROWS = st.lists(st.tuples(TEXT, TEXT), max_size=8)


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXT, max_size=6))
@example([":\u00ad"])
@example(["e\u00ad\u0301", "\u00ad", "\u0301"])
def test_blocks_are_normalised_like_single_lines(lines):
    assert normalised(lines) == [plain(line) for line in lines]


@settings(max_examples=200, deadline=None)
@given(st.lists(TEXT, max_size=5))
def test_grams_are_those_of_the_definition(lines):
    lines = normalised(lines)
    hashes, owners = grams(lines)
    for number, line in enumerate(lines):
        assert len(set(hashes[owners == number].tolist())) == len(gram_set(line))


@settings(max_examples=100, deadline=None)
@given(st.lists(TEXT, max_size=12), ROWS, ROWS)
def test_any_text_can_be_surveyed(text, pairs, asked):
    tests = {"T": {"de-ru": ([a for a, _ in asked], [b for _, b in asked])}}
    found = survey({"de": text}, tests, {"de-ru": pairs})
    expected = slow_survey({"de": text}, tests, {"de-ru": pairs}, SHARE)
    assert found["overlap"]["T"].get("de") == expected["overlap"]["T"].get("de")
    assert found["repeated"] == expected["repeated"]
    counts = found["pair_overlap"]["T"]["de-ru"]
    assert counts["both"] + counts["apart"] + counts["one"] <= counts["pairs"] <= len(asked)
    assert json.loads(json.dumps(found)) == found and describe(found)


@pytest.mark.parametrize(
    "a, b",
    [
        ("Straße", "STRASSE"),
        ("e\u0301te\u0301", "ÉTÉ"),
        ("ﬁne", "fine"),
        ("１２３", "123"),
        ("co\u00adoperate", "cooperate"),
        ("سلام\u200c", "سلام"),
        ("a\u2028b", "a b"),
        ("ΟΔΟΣ", "οδος"),
        ("한국", unicodedata.normalize("NFD", "한국")),
        ("x\x00y", "x y"),
        ("„Ja!“", "ja"),
        ("a\nb", "a b"),
    ],
)
def test_equal_lines_in_other_dress(a, b):
    assert len(set(normalised([a, b]))) == 1


@pytest.mark.parametrize(
    "a, b",
    [
        ("नमस्ते", "नमसत"),
        ("מַיִם", "מים"),
        ("schön", "schon"),
        ("5", "6"),
        ("!!!", "???"),
        ("ja", "j a"),
    ],
)
def test_different_lines_stay_different(a, b):
    assert len(set(normalised([a, b]))) == 2


# ---------------------------------------------------------------- streams and edges


def test_nothing_at_all():
    assert survey({}) == {
        "near_share": SHARE,
        "lines": {},
        "repeated": {},
        "near_sampled": {},
        "near_repeated": {},
        "test_lines": {},
        "test_compared": {},
        "overlap": {},
        "near_overlap": {},
    }
    empty = survey({"de": []}, {"T": {"de-ru": ([], [])}}, {"de-ru": []})
    assert empty["lines"] == {"de": 0} and empty["overlap"] == {"T": {"de": 0, "ru": 0}}
    assert empty["pair_overlap"] == {"T": {"de-ru": {"pairs": 0, "both": 0, "apart": 0, "one": 0}}}
    assert list(overlapping({"de": []}, {"T": {"de": ["a"]}})) == []
    assert "–" in describe(empty)


def test_the_keys_that_records_have_had():
    found = survey(
        {"de": Lines(iter, ["a", "b", "a"])}, {"T": {"de-en": (["a", "a", "c"], ["x", "y", "z"])}}
    )
    assert found["lines"] == {"de": 3} and found["repeated"] == {"de": 1}
    # different lines; and English is not in the training text
    assert found["overlap"] == {"T": {"de": 1}}


def test_languages_with_scripts_and_lists_of_one_language():
    text = {"zh-Hant": ["早安"], "de": ["Guten Morgen"]}
    found = survey(
        text, {"T": {"de-zh-Hant": (["guten Morgen!"], ["晚安"]), "zh-Hant": ["早安。"]}}
    )
    assert found["overlap"] == {"T": {"zh-Hant": 1, "de": 1}}
    with pytest.raises(ConfigError, match="'de-en'"):
        survey(text, {"T": {"de": (["a"], ["b"])}})


def test_long_streams_are_read_twice_and_short_ones_once(monkeypatch):
    monkeypatch.setattr("xlnb.text.contamination._BLOCK", 8)
    lines = [f"Zeile {n} von vielen Zeilen, die alle anders sind" for n in range(500)]
    opened = []

    def stream(n):
        opened.append(n)
        return iter(lines[:n])

    asked = {"T": {"de": [lines[70], lines[450]]}}
    long = survey({"de": Lines(stream, 500)}, asked)
    short = survey({"de": Lines(stream, 100)}, asked)
    assert opened == [500, 500, 100]
    assert (long["overlap"]["T"]["de"], short["overlap"]["T"]["de"]) == (2, 1)
    assert long["lines"] == {"de": 500} and long["near_sampled"] == {"de": 500}
    # each differs from the others in its number only
    assert long["near_repeated"] == {"de": 500}


def test_the_result_depends_on_the_lines_alone():
    text = corpus_of(5)
    tests = {"T": {lang: lines[::7] for lang, lines in corpus_of(6).items()}}
    again = {lang: lines[::-1] for lang, lines in text.items()}
    assert survey(text, tests, sample=20) == survey(again, tests, sample=20)


def test_many_lines_of_one_mould_take_little_time_and_memory():
    lines = [
        f"Rechnung Nummer {n} vom ersten März des Jahres wurde am Montag bezahlt"
        for n in range(20_000)
    ]
    start = time.process_time()
    found = survey({"de": lines}, {"T": {"de": lines[:500]}})
    assert found["near_repeated"]["de"] == 2000 and found["overlap"]["T"]["de"] == 500
    assert time.process_time() - start < 20  # two seconds on the machine it was written on


@pytest.mark.parametrize("share", [0, 0.5, 1.01, -1, float("nan")])
def test_shares_that_mean_nothing_are_refused(share):
    with pytest.raises(ConfigError, match="allowed is 0.6 to 1"):
        survey({"de": ["a"]}, share=share)


def test_uneven_pairs_are_refused():
    with pytest.raises(ValueError):
        survey({}, None, {"de-ru": [("a", "b"), ("c",)]})


def test_distinct_is_exact_and_then_an_estimate():
    few = Distinct(most=256)
    many = Distinct(most=256)
    few.add([1, 2, 2, 3])
    many.add(int(h) for h in np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64))
    assert len(few) == 3 and len(many.hashes) <= 256
    assert abs(len(many) / 100_000 - 1) < 4 / len(many.hashes) ** 0.5


def test_overlapping_shows_originals_with_their_numbers():
    text = {"de": ["Ach.", "GUTEN MORGEN!!", "x"] * 5000}
    rows = list(
        overlapping(text, {"T": {"de": ["a", "Guten morgen?"]}, "S": {"de": ["Guten Morgen", "y"]}})
    )
    assert len(rows) == 10_000 and [r["in the text"] for r in rows[:4]] == [2, 2, 5, 5]
    assert rows[0] == {
        "test": "T",
        "language": "de",
        "test line": "Guten morgen?",
        "in the test": 2,
        "training line": "GUTEN MORGEN!!",
        "in the text": 2,
        "share": 1.0,
        "exact": True,
    }


def test_streams_that_cannot_be_read_twice_are_refused():
    lines = ["a dog", "a cat"]
    pairs = [("a dog", "ein Hund")]
    check_streams({"de": lines, "en": Lines(list, lines), "de-en": tuple(pairs)})
    generator = (line for line in lines)
    for once, kind in (
        (generator, "generator"),
        (iter(lines), "list_iterator"),
        (map(str, lines), "map"),
    ):
        with pytest.raises(DataError, match=f"en: a {kind} can be read only once.*give a list"):
            survey({"en": once})
        assert list(once)  # not touched
    with pytest.raises(DataError, match="de-en: a list_iterator"):
        survey({"en": lines}, pairs={"de-en": iter(pairs)})
    with pytest.raises(DataError, match="en: .*one string or path"):
        survey({"en": "en.txt"})
    with pytest.raises(DataError, match="en is None"):
        survey({"en": None})
    with pytest.raises(DataError, match="got list, expected a dict"):
        survey(lines)
    for tests in ([lines], {"dev": lines}):
        with pytest.raises(DataError, match="tests is no dict of test"):
            survey({"en": lines}, tests)
    with pytest.raises(ConfigError, match="sample=-1"):
        survey({"en": lines}, sample=-1)


def test_lines_of_another_shape_are_numbered():
    for wrong in (
        lambda: survey({"en": ["a", None]}),
        lambda: list(overlapping({"en": ["a", None]}, {})),
        lambda: language_check({"en": ["a", None]}),
        lambda: list(text_lines(["a", None], "the text of en")),
    ):
        with pytest.raises(DataError, match="line 2 of the text of en is None, not a string"):
            wrong()
    with pytest.raises(DataError, match="line 3 of the list of lines is 7"):
        normalised(["a", "b", 7])
    with pytest.raises(DataError, match="the list of lines: .*one string or path"):
        normalised("abc")
    for row in (("a",), ("a", None), "ab", None):
        with pytest.raises(DataError, match="line 2 of de-en is .*not two strings"):
            survey({}, pairs={"de-en": [("a", "b"), row]})
        with pytest.raises(DataError, match="line 1 of de-en"):
            list(line_pairs([row], "de-en"))
    for part in ((["a"], ["b", "c"]), (["a"],), (["a"], None)):
        with pytest.raises(DataError, match="test 'dev', de-en: give .lines, lines., equally many"):
            survey({"de": ["a"]}, {"dev": {"de-en": part}})


def test_a_sample_takes_each_item_alike():
    items = [str(i) for i in range(20)]
    taken = [sample_items(items, 5, np.random.default_rng(seed)) for seed in range(2000)]
    assert all(len({*few}) == 5 for few in taken) and sample_items(
        "ab", 5, np.random.default_rng(0)
    ) == ["a", "b"]
    share = np.bincount(np.array(taken, int).ravel(), minlength=20) / 2000
    # five standard errors of a proportion
    assert np.abs(share - 0.25).max() < 5 * (0.25 * 0.75 / 2000) ** 0.5


# ---------------------------------------------------------------- languages


def test_any_callable_identifies():
    seen = []

    def identify(lines):
        seen.extend(lines)
        return ["xx" if "x" in line else "de" for line in lines]

    check = language_check({"de": ["ja", "x"] * 50, "ru": ["да"] * 30}, identify, sample=40)
    assert (
        check["ru"] == {"sampled": 30, "as": {"de": 30}}
        and check["de"]["sampled"] == 40
        and len(seen) == 70
    )
    assert describe_languages(check) == "ru: 0 of 30 lines look like it, 30 like de"
    assert language_check({"de": []}, identify) == {"de": {"sampled": 0, "as": {}}}
    odd = {
        "mg": {"sampled": 5, "as": {"mg": 2, "id": 1, "sw": 1, "en": 1}},
        "de": {"sampled": 0, "as": {}},
    }
    assert describe_languages(odd) == "mg: 2 of 5 lines look like it, 1 like id"
    assert describe_languages({}) == "each text reads as its language: none checked"


def test_samples_are_even():
    lines = [str(n) for n in range(10_000)]
    got = []

    def identify(sample):
        got.extend(map(int, sample))
        return ["de"] * len(sample)

    for seed in range(20):
        language_check({"de": lines}, identify, sample=100, seed=seed)
    assert len(set(got)) > 1700
    assert abs(np.mean(got) - 4999.5) < 4 * 10_000 / 12**0.5 / 2000**0.5  # four standard errors


def test_profiles_do_not_depend_on_what_was_read_before():
    code = "from xlnb.text.contamination import _cldr_grams; print([_cldr_grams(l).total() for l in LANGS][::STEP])"
    asked = ((["af", "ja", "yi", "de"], "1"), (["de", "yi", "ja", "af"], "-1"))
    programs = [code.replace("LANGS", repr(langs)).replace("STEP", step) for langs, step in asked]
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], text=True, capture_output=True, check=True
        ).stdout
        for program in programs
    ]
    assert runs[0] == runs[1]


def test_languages_without_names_are_left_out():
    assert names_identifier("de,ang").languages == ["de"]
    assert set(language_check({"de": ["Guten Morgen"], "ang": ["Godne morgen"]})) == {"de"}
    with pytest.raises(ConfigError, match="identifier of your own"):
        names_identifier(["ang"])
    assert names_identifier("de,ru")(["", "!!!", "да"])[2] == "ru"


# ---------------------------------------------------------------- the real sets


def real(langs, *names):
    "Some of the real test sets in those languages: test → pair or language → lines."
    from xlnb.text import catalogue

    try:
        tests = {}
        have = lambda name: [
            lang for lang in langs if lang in catalogue.SETS[name].langs or lang == "en"
        ]
        if "tatoeba" in names:
            tests["tatoeba"] = catalogue.tatoeba_tests(have("tatoeba"), {})
        if "ntrex" in names:
            for pair, sides in catalogue.ntrex_tests(have("ntrex"), {}).items():
                tests.setdefault("ntrex", {}).update(zip(split_pair(pair), map(list, sides)))
        for part in ("dev", "test") if "xnli" in names else ():
            shared = have("xnli")
            for lang, stream in zip(shared, catalogue.open_set("xnli", shared, part=part)):
                for side, lines in zip(
                    ("premise", "hypothesis"), zip(*((row[0], row[1]) for row in stream))
                ):
                    tests.setdefault(f"xnli-{part}-{side}", {})[lang] = list(lines)
        if "gold alignments" in names:
            gold = catalogue.gold_alignments(langs, {})
            tests["gold alignments"] = {
                pair: tuple(
                    [" ".join(words) for words in side]
                    for side in zip(*((p.first, p.second) for p in rows))
                )
                for pair, rows in gold.items()
            }
        for year in ("2016", "2017"):
            if f"multi30k-{year}" not in names:
                continue
            tests[f"multi30k-{year}"] = {
                lang: [
                    row[0]
                    for row in catalogue.open_set("multi30k", [lang], part=f"test_{year}_flickr")
                ]
                for lang in ("en", "de", "fr", "cs")
                if lang in langs and (lang, year) != ("cs", "2017")
            }
    except FileNotFoundError as e:
        pytest.skip(str(e)[:200])
    if not all(tests.values()) or not tests:
        pytest.skip(f"one of {', '.join(names)} is not in the folder of XLNB_DATA")
    return tests


def real_corpus(name, langs):
    from xlnb.text.catalogue import load_corpus

    try:
        return load_corpus(name, langs)
    except FileNotFoundError as e:
        pytest.skip(str(e)[:200])


@pytest.mark.slow
def test_multi30k_has_near_captions_and_no_equal_ones():
    corpus = real_corpus("multi30k", "de,cs")
    found = survey(corpus.text, real(["de", "cs"], "multi30k-2016"), corpus.pairs)
    assert set(found["overlap"]["multi30k-2016"].values()) == {0}
    assert all(10 < n < 60 for n in found["near_overlap"]["multi30k-2016"].values())


@pytest.mark.slow
def test_held_out_verses_stand_elsewhere_in_the_bible():
    corpus = real_corpus("bible", "de,zh")
    found = survey(corpus.text, corpus.tests, corpus.pairs)
    assert all(n > 5 for n in found["overlap"]["bible"].values())
    assert found["pair_overlap"]["bible"]["de-zh"]["both"] > 10


def test_xnli_premises_come_by_threes():
    tests = real(["ru", "th"], "xnli")
    premises = {lang: tests["xnli-dev-premise"][lang] for lang in ("ru", "th")}
    found = survey(premises, {name: tests[name] for name in tests if "test" in name})
    # 830 premises, each three times
    assert all(1660 <= n < 1700 for n in found["repeated"].values())
    assert found["overlap"]["xnli-test-premise"]["ru"] < 10


def test_real_files_read_as_their_languages():
    langs = ["en", "de", "fr", "es", "ru", "ar", "hi", "tr", "zh", "ja", "he", "uk"]
    check = language_check(real(langs, "ntrex")["ntrex"], sample=200)
    assert len(check) == len(langs) and all(
        c["as"].get(lang, 0) > 0.6 * c["sampled"] for lang, c in check.items()
    )


def surveys():
    "(name of the training text, languages, text, pairs, tests) of the records."
    captions = ("multi30k-2016", "multi30k-2017")
    for name, langs in (("multi30k", "en,de,fr,cs"), ("bible", "en,de,es,cs,hr,he,zh")):
        corpus = real_corpus(name, langs)
        own = {test: parts for test, parts in corpus.tests.items() if name in test}  # as pairs
        if name == "multi30k":
            own |= real(corpus.langs, "multi30k-2017")
        own["validation"] = {
            pair: tuple(map(list, zip(*rows))) for pair, rows in corpus.valid.items()
        }
        yield (
            name,
            corpus.text,
            corpus.pairs,
            own | real(corpus.langs, "tatoeba", "ntrex", "xnli", "gold alignments"),
        )
    langs = [
        "en",
        "de",
        "fr",
        "es",
        "cs",
        "bg",
        "el",
        "ru",
        "ar",
        "ur",
        "hi",
        "sw",
        "tr",
        "vi",
        "zh",
    ]
    yield (
        "ntrex",
        real(langs, "ntrex")["ntrex"],
        None,
        real(langs, "tatoeba", "xnli", "gold alignments", *captions),
    )
    tests = real(["th", *langs], "xnli", "tatoeba", "ntrex", *captions)
    dev = {side: tests.pop(f"xnli-dev-{side}") for side in ("premise", "hypothesis")}
    for side, text in dev.items():
        yield f"xnli-dev-{side}", text, None, tests


def test_which_grams_are_rare_decides_nothing_but_the_time():
    lines = [
        f"the same beginning of every line and then word{n} word{n + 1} and word{n * 7}"
        for n in range(60)
    ]
    block = normalised([line.replace("beginning", "beginnings") for line in lines[:20]])
    indices = [LineIndex(lines), LineIndex(lines, common=np.zeros(2**20, np.int64))]
    first, second = [sorted(zip(*map(list, near(index, block)))) for index in indices]
    assert first == second and len(first) >= 20


def test_a_search_begins_anew_with_the_indices_that_it_has():
    tests = {
        "toy": {
            "en": [f"a line of the test that has number {n} and is long enough" for n in range(5)]
        }
    }
    lines = ["a line of the test that has number 3 and is long enough for it", "another"]
    search = contamination.TestSearch(tests)
    marks = []
    for _ in range(2):
        search.start()
        assert seen_lines(search) == {}
        look_through(search, "en", lines)
        look_through(search, "en", lines)  # the line that is found is not looked for again
        marks.append(seen_lines(search))
    assert marks[0] == marks[1] and marks[0]["en"]["near"]


def test_a_search_holds_so_many_lines_in_indices(monkeypatch):
    monkeypatch.setattr(contamination, "_HELD_LINES", 3)
    langs = ["de", "en", "fr", "ru"]
    search = contamination.TestSearch({"toy": {lang: [f"{lang} 1", f"{lang} 2"] for lang in langs}})
    for lang in langs:
        look_through(search, lang, [f"{lang} 2"])
    assert list(search.indices.held) == ["fr", "ru"]
    assert seen_lines(search) == {lang: {"exact": [1], "near": []} for lang in langs}


if __name__ == "__main__":
    from xlnb.text.catalogue import SETS
    from xlnb.text.contamination import _cldr_grams

    for name, text, pairs, tests in surveys():
        start = time.process_time()
        facts = survey(text, tests, pairs)
        seconds = round(time.process_time() - start, 2)
        append_record(
            "contamination",
            {
                "experiment": "overlap",
                "training": name,
                "facts": facts,
                "seconds": seconds,
                "languages": language_check(text),
                **run_facts(),
            },
        )
        print(f"\n{name}: {seconds} s of one core\n{describe(facts)}")
    known = [lang for lang in SETS["ntrex"].langs if _cldr_grams(lang)]
    news = real(known, "ntrex")["ntrex"]
    check = language_check(news, names_identifier(known))
    append_record(
        "contamination",
        {"experiment": "languages", "text": "ntrex", "languages": check, **run_facts()},
    )
    print(describe_languages(check))


def test_streams_are_normalised():
    assert [*text_lines(["cafe\u0301", "ca\u00adf\u00e9"], "fr")] == ["caf\u00e9"] * 2
    pairs = [["cafe\u0301", "a"], ("b", "ca\u00adf\u00e9")]
    assert [*line_pairs(pairs, "en-fr")] == [("caf\u00e9", "a"), ("b", "caf\u00e9")]
