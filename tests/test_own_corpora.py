"Text of one's own: what identifies it, what is refused, and the way that the listing of notebooks shows."

import pytest

from xlnb.base.core import ConfigError, DataError
from xlnb.text.batches import Prepared, prepare
from xlnb.text.contamination import describe_tests, survey
from xlnb.text.corpora import Corpus
from xlnb.pretraining import pretraining
from xlnb.pretraining.held_out import hold_out
from xlnb.pretraining.pretraining import overlap_report
from xlnb.xlm_e import RECIPE

GREEK = ["alpha beta gamma delta"] * 50
LATIN = ["ein Hund bellt laut"] * 90
PAIRS = [("ein Hund", "a dog"), ("eine Katze", "a cat")] * 30


def corpus(**parts):
    usual = {"text": {"de": GREEK, "en": LATIN}, "pairs": {}, "valid": {}, "tests": {}}
    return Corpus(**{"name": "own", "langs": ("de", "en"), **usual, **parts})


def prepared(tmp_path, size=22, **parts) -> Prepared:
    return prepare(corpus(**parts), size, folder=tmp_path)


def test_another_text_is_another_store(tmp_path):
    first = prepared(tmp_path)
    again = prepared(tmp_path)
    assert first.folder == again.folder and len(first.store.text["de"]) == 50
    turned = {"de": LATIN, "en": GREEK}
    shorter = {"de": GREEK[1:], "en": LATIN}
    others = [
        prepared(tmp_path, **parts)
        for parts in (
            {"text": turned},
            {"text": shorter},
            {"valid": {"de-en": PAIRS[:2]}},
            {"facts": {"licence": "mine"}},
        )
    ]
    assert len({one.folder for one in [first, *others]}) == 5
    assert len(others[0].store.text["de"]) == 90
    assert others[0].tokenizer.decode(others[0].store.text["de"][0]).strip() == LATIN[0]


def test_checksums_of_files_stand_for_the_text(tmp_path):
    facts = {"sha256": {"de.txt": "0" * 64}}
    other = prepared(tmp_path, text={"de": LATIN, "en": GREEK}, facts=facts)
    assert prepared(tmp_path, facts=facts).folder == other.folder


@pytest.mark.parametrize(
    "parts, said",
    [
        (dict(text={"ka": ["კატა"]}), "text of ka, but langs="),
        (dict(pairs={"de-ru": PAIRS}), "text of ru, but langs="),
        *(
            (dict([(part, value)]), "pair 'en-de': .*as 'de-en'")
            for part, value in (
                ("pairs", {"en-de": PAIRS}),
                ("valid", {"en-de": PAIRS}),
                ("tests", {"own": {"en-de": (["a"], ["b"])}}),
            )
        ),
    ],
)
def test_names_that_do_not_fit(parts, said):
    with pytest.raises(DataError, match=said):
        corpus(**parts)


@pytest.mark.parametrize(
    "parts, said",
    [
        (dict(text={"de": "own/mono.de.txt"}), "de: .*one string or path"),
        (dict(text={"de": (line for line in GREEK)}), "de: a generator can be read only once"),
        (dict(pairs={"de-en": zip(*[GREEK] * 2)}), "de-en: a zip can be read only once"),
    ],
)
def test_streams_that_are_none_are_refused_before_anything_is_made(parts, said, tmp_path):
    with pytest.raises(DataError, match=said):
        prepared(tmp_path, **parts)
    assert not list(tmp_path.iterdir())


def test_a_survey_takes_tests_in_the_order_of_the_pairs_alone():
    test = {"own": {"en-de": (["a dog"], ["ein Hund"])}}
    with pytest.raises(DataError, match="pair 'en-de': .*turn its lines round"):
        survey({"de": LATIN, "en": LATIN}, test, {"de-en": PAIRS})


def test_what_was_not_looked_at_is_not_said_to_be_clean(tmp_path):
    assert "was not looked at: xlnb.text.contamination.survey" in overlap_report(prepared(tmp_path))


def test_what_was_read_is_a_line_for_each_language_and_one_for_the_pairs(tmp_path):
    rows = {f"aa-b{letter}": 100 * n for n, letter in enumerate("abcdefgh", 1)}
    facts = survey({"de": LATIN, "en": LATIN}, {}) | {"pairs": rows}
    pairs, title, *lines = overlap_report(prepared(tmp_path, facts=facts)).splitlines()
    assert pairs == (
        "translation pairs: 3,600 of 8 language pairs, from aa-ba (100) to aa-bh (800)"
    )
    assert title == "training text:" and [line[:14] for line in lines[:2]] == [
        "  de 90 lines ",
        "  en 90 lines ",
    ]
    facts["pairs"] = {"de-en": 60}
    assert overlap_report(prepared(tmp_path, facts=facts)).startswith(
        "translation pairs: de-en 60\ntraining text:\n"
    )
    facts["left_out"] = {"de-en": {"empty side": 12, "header": 1}, "de": {"blank line": 7}}
    assert overlap_report(prepared(tmp_path, facts=facts)).startswith(
        "translation pairs: de-en 60 (left out: 12 empty side, 1 header)\ntraining text:\n"
    )
    many = dict.fromkeys((f"l{n}" for n in range(40)), 5)
    facts = {"test_lines": {"toy": many}, "overlap": {"toy": many}, "near_overlap": {"toy": many}}
    shown = describe_tests(facts).splitlines()
    assert len(shown) > 5 and max(map(len, shown)) <= 100


def test_held_out_pairs_are_asked_for(tmp_path):
    settings = RECIPE.resolve(RECIPE.Settings())
    spec = pretraining.held_out_spec(settings, settings.masking)
    for valid, said in (
        ({}, "own has no held-out pairs"),
        ({"de-en": [("1 Hund", "1 dog")]}, "is without digits.*valid.de and valid.en"),
    ):
        with pytest.raises(DataError, match=said):
            hold_out(prepared(tmp_path, valid=valid), spec)


def test_amounts_are_finite_and_a_step_holds_a_block():
    for given, said in (
        (dict(clip_norm=float("inf")), "clip_norm=inf is not finite"),
        (dict(batch_tokens=10), "batch_tokens=10: a step reads a block of 64 tokens or more"),
    ):
        with pytest.raises(ConfigError, match=said):
            RECIPE.resolve(RECIPE.Settings(**given))


def test_spellings_of_a_word_are_one_store(tmp_path):
    stores = []
    for word in ("\u00e9t\u00e9", "e\u0301te\u0301", "\u00e9\u00adt\u00e9"):
        own = corpus(
            text={"de": [f"un {word}"] * 50, "en": LATIN},
            pairs={"de-en": [(f"un {word}", "a dog")] * 30},
            valid={"de-en": [(word, "a")]},
            tests={"own": {"de-en": ([word], ["a"])}},
        )
        assert own.valid == {"de-en": [("\u00e9t\u00e9", "a")]}
        assert own.tests == {"own": {"de-en": (["\u00e9t\u00e9"], ["a"])}}
        made = prepare(own, 20, folder=tmp_path / str(len(stores)))
        stores.append(
            (
                (made.folder / "vocab" / "tokenizer.json").read_bytes(),
                made.store.manifest["text"],
                made.store.manifest["pairs"],
            )
        )
    assert stores[1:] == stores[:1] * 2
