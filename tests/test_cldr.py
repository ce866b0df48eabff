"""The embedded corpus against babel, over all 113 languages; leaks; gold; speed."""

import datetime, itertools, random, re, subprocess, sys, time

import pytest

from xlnb.base.core import ConfigError, normalize_text
from xlnb.text import cldr

SECONDS = dict(minute=60, hour=3600, day=86_400, week=604_800, month=2_592_000, year=31_536_000)


def meanings_of(lang, n, rng):
    "n meanings of each kind that a language can say."
    for _ in range(n):
        yield cldr._draw_other("date", rng)
        yield cldr._draw_other("relative", rng)
        yield cldr._draw_list(rng.choice([*cldr.TAGS]), rng.randint(1, 5), rng)
        if lang not in cldr.WITHOUT_UNITS:
            yield cldr._draw_other("quantity", rng)
        if lang not in cldr.WITHOUT_MONEY:
            yield "money", rng.choice(["USD", "EUR", "JPY", "GBP"]), rng.randint(1, 30)
        yield "month", rng.randint(1, 12)
        yield "weekday", rng.randint(0, 6)


def babel_list(lang, meaning):
    "Babel's list, with the right conjunction where it leaves the choice open or makes the wrong one."
    from babel.lists import format_list

    words = [cldr.names(lang, meaning[0])[c] for c in meaning[1:]]
    theirs = cldr.clean(format_list(words, locale=lang.replace("-", "_")))
    last = words[-1].lower()
    if len(words) == 1:
        return theirs
    if lang == "es" and last.removeprefix("h")[0] in "ií":
        return theirs.replace(f" y {words[-1]}", f" e {words[-1]}")
    if lang == "cy":
        return theirs.replace(" a(c) ", " ac " if last[0] in "aeiouwyâêîôûŵŷ" else " a ")
    if lang == "lb":
        return theirs.replace(" a(n) ", " an " if last[0] in "aeiouyäëéöühdntz" else " a ")
    return theirs


@pytest.mark.parametrize("lang", cldr.LOCALES)
def test_same_text_as_babel(lang):
    "40 dates, 30 lists, 40 relative times; `clean` is applied to babel's whole line, by us to the parts."
    from babel.dates import format_date, format_timedelta

    rng = random.Random(f"oracle {lang}")
    locale = lang.replace("-", "_")
    for _ in range(40):
        meaning = cldr._draw_other("date", rng)
        theirs = format_date(datetime.date(*meaning[1:]), "full", locale=locale)
        assert cldr.render(meaning, lang).text == cldr.clean(theirs)
    for _ in range(30):
        meaning = cldr._draw_list(rng.choice([*cldr.TAGS]), rng.randint(1, 5), rng)
        assert cldr.render(meaning, lang).text == babel_list(lang, meaning)
    for _ in range(40):
        meaning = cldr._draw_other("relative", rng)
        unit, direction = meaning[1].split("-")
        delta = meaning[2] * SECONDS[unit] * (1 if direction == "future" else -1)
        theirs = format_timedelta(
            delta, granularity=unit, threshold=1e9, add_direction=True, locale=locale
        )
        assert cldr.render(meaning, lang).text == cldr.clean(theirs)


@pytest.mark.parametrize("lang", cldr.LOCALES)
@pytest.mark.parametrize("digits", ["latin", "native"])
def test_phrases_are_well_formed(lang, digits):
    "Clean text; spans in order, without overlap, without spaces at their ends; tags and gold links that fit."
    for meaning in meanings_of(lang, 15, random.Random(f"form {lang}")):
        phrase = cldr.render(meaning, lang, digits)
        assert (
            phrase.text == cldr.clean(phrase.text).strip()
            and "  " not in phrase.text
            and "{" not in phrase.text
        )
        ends = [0, *(end for _, end, *_ in phrase.spans)]
        for before, (start, end, tag, part) in zip(ends, phrase.spans):
            assert before <= start < end <= len(phrase.text)
            assert phrase.text[start:end] == phrase.text[start:end].strip()
        tokens, tags = cldr.tag_tokens(phrase, lang)
        assert "".join(tokens) == phrase.text.replace(" ", "") and len(tags) == len(tokens)
        assert all(t[0] != "I" or tags[i - 1] != "O" for i, t in enumerate(tags))
        _, _, sure, possible = cldr.gold_alignment(phrase, lang, phrase, lang)
        assert sure <= possible and {(i, i) for i, t in enumerate(tags) if t != "O"} <= possible


def test_list_parts_are_shared_by_all_languages():
    "The parts that were asked for, each exactly once."
    rng = random.Random(0)
    for _ in range(20):
        meaning = cldr._draw_list("territories", 3, rng)
        for lang in cldr.LOCALES:
            assert tuple(span[3] for span in cldr.render(meaning, lang).spans) == meaning[1:]


def test_rule_yields_the_core():
    files = {p.stem.replace("_", "-") for p in cldr._data_file("locale-data").glob("*.dat")}
    without_territory = {
        code for code in files if re.fullmatch("[a-z]{2,3}(-[A-Z][a-z]{3})?", code)
    }
    assert without_territory - {code for code, _ in cldr.excluded_locales()} == {*cldr.LOCALES}
    assert [lang for lang in cldr.LOCALES if cldr.units_missing(lang)] == [*cldr.WITHOUT_UNITS]


def test_no_meaning_in_two_splits():
    "Across seeds, languages and readers: the streams of different splits share no meaning, in any order."

    def key(m):
        return (m[0], frozenset(m[1:]))

    def drawn(*args):
        return {
            key(m) for seed in (0, 1) for m in cldr._meanings(seed, *args, cldr.DRAWN_KINDS, 4000)
        }

    tests = {key(m) for name in cldr.TESTS for m in cldr._test_meanings(*cldr.TESTS[name], 1000, 5)}
    alone = drawn("monolingual", "de") | drawn("monolingual", "zh")
    sets = [drawn("train", ""), drawn("valid", ""), drawn("test", "") | tests, alone]
    for a, b in itertools.combinations(sets, 2):
        assert not a & b


def test_every_round_says_every_name_once():
    for number in (0, 3):
        lists = [
            m for m in cldr._round(7, "train", "", cldr.DRAWN_KINDS, number) if m[0] in cldr.TAGS
        ]
        for kind in cldr.TAGS:
            assert sorted(c for m in lists if m[0] == kind for c in m[1:]) == [*cldr.codes(kind)]


def test_the_same_line_in_every_process():
    "Independent of string hashing and of what was drawn before."
    program = (
        "from xlnb.text import cldr; "
        "print([cldr.parallel_meaning(3, i) for i in (5, 700)], cldr.monolingual_meaning(3, "
        "'sr-Latn', 12))"
    )

    def run(seed):
        return subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout

    texts = {run("1"), run("2")}
    here = f"{[cldr.parallel_meaning(3, i) for i in (5, 700)]} {cldr.monolingual_meaning(3, 'sr-Latn', 12)}\n"
    assert texts == {here}


@pytest.mark.slow
def test_corpus_of_all_languages_opens_at_once():
    corpus = cldr.cldr_corpus(cldr.LOCALES, valid_lines=20, test_lines=20)
    assert len(corpus.pairs) == 113 * 112 // 2 and len(corpus.text) == 113
    for pair in ("bs-bs-Cyrl", "sr-Latn-zh-Hant", "en-zu", "ff-Adlm-yue-Hans"):
        assert len(list(itertools.islice(corpus.pairs[pair], 400))) == 400
    assert {*corpus.facts["without_quantities"]} == {*cldr.WITHOUT_UNITS}


@pytest.mark.parametrize(
    "meaning, lang, message",
    [
        (("quantity", "length-kilometer", 3), "mt", "no words for units"),
        (("quantity", "length-parsec", 3), "en", "is not one of"),
        (("territories", "MK"), "en", "is not one of"),
        (("territories",), "en", "lists nothing"),
        (("month", 13), "en", "is not one of"),
        (("money", "XYZ", 3), "en", "no name for 'XYZ'"),
        (("money", "USD", 3), "he", "no reliable plurals"),
        (("month", 3), "tl", "nearest"),
        (("year", 3), "en", "is not one of"),
    ],
)
def test_render_says_what_it_lacks(meaning, lang, message):
    with pytest.raises(ConfigError, match=message):
        cldr.render(meaning, lang)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: cldr.render(("month", 3), "en", "roman"), "latin, native"),
        (lambda: cldr.parallel_meaning(0, 0, "monolingual"), "train, valid, test"),
        (lambda: cldr.parallel_meaning(0, 0, kinds=("money",)), "territories, languages"),
        (lambda: cldr.cldr_corpus("en,de", pairs=["en-fr"]), "no pairs of en, de"),
        (lambda: cldr.cldr_corpus("en,en"), "twice"),
        (lambda: cldr.cldr_corpus("en,de", digits="arab"), "latin, native"),
        (lambda: cldr.test_lists("en", "languages", 2, 5000), "at most"),
    ],
)
def test_refusals_say_what_is_allowed(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def lines_per_second(kinds=("territories", "date", "quantity", "relative"), repeats=5):
    "Best of some passes over 250 meanings of each kind, names alone, in every language with units, on one core."
    rng = random.Random(0)
    langs = [lang for lang in cldr.LOCALES if lang not in cldr.WITHOUT_UNITS]

    def draw(kind):
        return cldr._draw_list(kind, 1, rng) if kind in cldr.TAGS else cldr._draw_other(kind, rng)

    meanings = [draw(kind) for kind in kinds for _ in range(250)]

    def one_pass():
        start = time.process_time()
        for lang in langs:
            for meaning in meanings:
                cldr.render(meaning, lang)
        return time.process_time() - start

    return len(langs) * len(meanings) / min(one_pass() for _ in range(repeats + 1))


def test_speed():
    "300,000 lines a second is what a free core gives and more; a third of that is left to slow or busy machines."
    assert lines_per_second() > 100_000


def test_import_is_light():
    "No torch, no locale read at import."
    program = "import sys; from xlnb.text import cldr; print('torch' in sys.modules, cldr._read.cache_info().currsize)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False 0\n"


@pytest.mark.parametrize("lang", cldr.LOCALES)
def test_text_is_normalised_as_it_is_generated(lang):
    "What readers and stores do to text leaves this corpus, and training on it, as it is."
    corpus = cldr.cldr_corpus(lang, monolingual_lines=300, test_lines=20, valid_lines=20)
    texts = [
        *corpus.text[lang],
        *cldr.names(lang, "territories").values(),
        *cldr.names(lang, "languages").values(),
    ]
    assert [*map(normalize_text, texts)] == texts
