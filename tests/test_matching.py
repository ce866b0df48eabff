"Matching of vocabularies: the marks of three families, the rules and their order, what comes out, and refinements."

import itertools, os, subprocess, sys, unicodedata, warnings

import numpy as np
import pytest
from conftest import write
from hypothesis import given, settings, strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from xlnb.base.core import ConfigError, DataError
from xlnb.text.cldr import cldr_corpus
from xlnb.text.matching import (
    _BYTES,
    RULES,
    _folded,
    _form,
    _forms,
    _marks,
    _plain,
    by_similarity,
    by_subwords,
    cldr_dictionaries,
    cooccurrence_vectors,
    match_vocabulary,
    muse_dictionaries,
    shared_ids,
    read_table,
)
from xlnb.text.vocab import train_vocab

LETTER = {byte: chr(letter) for letter, byte in _BYTES.items()}
ROBERTA = dict(
    bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>", mask_token="<mask>"
)
BERT = dict(
    pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
)
# the vocabularies here are tiny
pytestmark = pytest.mark.filterwarnings("ignore:only .* subwords were matched")


def spelled(data):
    "Bytes, or text, in GPT-2's letters."
    return "".join(LETTER[b] for b in (data if isinstance(data, bytes) else data.encode()))


def byte_level(*forms, merges=(), **options):
    "Byte-level BPE with the 256 bytes and these forms, ' house' or bytes."
    merges = [tuple(map(spelled, pair)) for pair in merges]
    pieces = dict.fromkeys(
        [*ROBERTA.values(), *LETTER.values(), *map("".join, merges), *map(spelled, forms)]
    )
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(**{"add_prefix_space": False} | options)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="<s>", sep_token="</s>", **ROBERTA
    )


def wordpiece(*pieces, lowercase=False):
    "WordPiece with these pieces, 'house' or '##ing'."
    vocab = {p: i for i, p in enumerate(dict.fromkeys([*BERT.values(), *pieces]))}
    backend = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **BERT)


def unigram(*pieces):
    "Unigram with Metaspace and these pieces, '▁house' or 'ing'; the longer, the more probable."
    scores = [(p, 0.0) for p in ROBERTA.values()] + [
        (p, -10.0 / len(p)) for p in dict.fromkeys(pieces)
    ]
    backend = Tokenizer(models.Unigram(scores, unk_id=3))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, **ROBERTA)


FAMILIES = {
    "byte-level": lambda *forms: byte_level(*forms),
    "wordpiece": lambda *forms: wordpiece(*(f[1:] if f[0] == " " else f"##{f}" for f in forms)),
    "unigram": lambda *forms: unigram(*(f.replace(" ", "▁") for f in forms)),
}


def row(matching, piece):
    "The row of a new piece: old piece → weight."
    table = matching.table().set_index("piece")
    return dict(zip(table.loc[piece, "source pieces"], table.loc[piece, "weights"]))


def rule(matching, piece):
    return matching.rule[matching.target.get_vocab()[piece]]


# ---------------------------------------------------------------- one spelling


@pytest.mark.parametrize("old", FAMILIES)
@pytest.mark.parametrize("new", FAMILIES)
def test_same_pieces_match_across_families(old, new):
    "Every piece finds the one with its text and its status, and a word does not find its continuation."
    forms = [" house", "house", " дом", "дом", " चाय", "चाय", " Äpfel", "ю"]
    for given_, taken in ((forms, forms[::-1]), (forms[::2], forms[1::2])):
        source = FAMILIES[old](*given_)
        target = FAMILIES[new](*taken)
        matching = match_vocabulary(source, target)
        new_forms = _forms(target)
        old_forms = _forms(source)
        for i, form in enumerate(new_forms):
            if form not in forms:
                continue
            found = [old_forms[j] for j in matching.weights[[i]].indices]
            assert found == ([form] if form in given_ else []), form


def test_blank_comes_first_in_the_common_form():
    assert [_form(p, "bytes") for p in ("Ġa", "a", "ĠĠ", "Ċ")] == [" a", "a", "  ", "\n"]
    assert [_form(p, "▁") for p in ("▁a", "a", "▁", "▁a▁b")] == [" a", "a", " ", " a b"]
    assert [_form(p, "##") for p in ("a", "##a", "##")] == [" a", "a", ""]


@given(st.binary(min_size=1, max_size=8))
def test_bytes_are_read_back(data):
    form = _form(spelled(data), "bytes")
    try:
        assert form == data.decode()
    except UnicodeDecodeError:
        assert form == data


def test_incomplete_characters_match_only_the_same_bytes():
    half = "д".encode()[:1]
    source = byte_level(b" " + half, "д")
    target = byte_level(b" " + half, half + b"\xd0", " д")
    matching = match_vocabulary(source, target)
    assert row(matching, spelled(b" " + half)) == {spelled(b" " + half): 1}
    assert row(matching, spelled(half)) == {spelled(half): 1}
    assert rule(matching, spelled(half + b"\xd0")) == "unmatched"
    # GPT-2's letter for this byte
    assert rule(match_vocabulary(source, unigram("Ð", "д")), "Ð") == "unmatched"
    assert rule(match_vocabulary(source, unigram("Ð", "д")), "д") == "exact"
    fallback = unigram("<0xD0>", "<0x41>")
    matching = match_vocabulary(source, fallback)
    assert row(matching, "<0xD0>") == {spelled(half): 1} and rule(matching, "<0x41>") == "unmatched"


def test_wordpiece_punctuation_stands_for_either_form():
    source = wordpiece(",", "##,", "北", "##北", "か", "€")
    matching = match_vocabulary(source, unigram(",", "▁,", "北", "▁北", "か", "▁か", "€"))
    assert [row(matching, p) for p in (",", "▁,", "北", "▁北")] == [{",": 1}] * 2 + [{"北": 1}] * 2
    assert [rule(matching, p) for p in ("か", "▁か", "€")] == ["unmatched", "exact", "unmatched"]
    back = match_vocabulary(unigram("▁(", ",", "▁,", "("), wordpiece("(", ","))
    assert [row(back, p) for p in "(,"] == [{"▁(": 1}, {",": 1}]  # the lower id


def test_added_tokens_stand_for_their_text():
    source = byte_level(" a")
    target = unigram("▁a")
    source.add_tokens(["naïve", "  "])
    target.add_tokens(["naïve"])
    matching = match_vocabulary(source, target)
    assert (
        matching.weights.shape == (len(target), len(source)) and rule(matching, "naïve") == "exact"
    )


@settings(max_examples=300)
@given(st.text(max_size=12))
def test_normal_form_is_stable(text):
    once = _folded(_plain(text))
    if once is None:
        return
    assert once.startswith(" ") == text.startswith(" ")
    assert _folded(_plain(unicodedata.normalize("NFD", text))) == once
    assert _folded(_plain(once)) == once


def test_import_loads_no_torch():
    code = (
        "import sys, xlnb.text.matching; assert not {'torch', 'transformers'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---------------------------------------------------------------- rules


def test_specials_match_by_role():
    source = wordpiece("a")
    target = unigram("▁a")
    matching = match_vocabulary(source, target)
    roles = {
        "<s>": "[CLS]",
        "</s>": "[SEP]",
        "<pad>": "[PAD]",
        "<unk>": "[UNK]",
        "<mask>": "[MASK]",
    }
    assert {new: row(matching, new) for new in roles} == {
        new: {old: 1} for new, old in roles.items()
    }
    assert all(rule(matching, new) == "special" for new in roles)


def test_other_specials_match_by_name():
    source = wordpiece("a")
    target = unigram("▁a", "[X]")
    for tokenizer in (source, target):
        tokenizer.add_special_tokens({"additional_special_tokens": ["[SAME]"]})
    source.add_special_tokens(
        {"additional_special_tokens": ["[X]"]}, replace_extra_special_tokens=False
    )
    matching = match_vocabulary(source, target)
    # a piece is no special token
    assert rule(matching, "[SAME]") == "special" and rule(matching, "[X]") == "unmatched"


def test_uncased_source_is_found_by_the_normal_form():
    source = wordpiece("paris", "##stadt", "elan", lowercase=True)
    matching = match_vocabulary(
        source, unigram("▁Paris", "▁paris", "stadt", "Stadt", "▁Élan", "▁stadt")
    )
    assert [
        rule(matching, p) for p in ("▁paris", "▁Paris", "stadt", "Stadt", "▁Élan", "▁stadt")
    ] == ["exact", "normalised", "exact", "normalised", "normalised", "unmatched"]


def test_normal_form_prefers_the_case_then_the_small_letters_then_the_lowest_id():
    source = byte_level(" ELAN", " elan", " Elan", " ﬁn", " FIN")
    matching = match_vocabulary(source, unigram("▁Élan", "▁élan", "▁ÉLAN", "▁eLAN", "▁fin", "▁Fin"))
    assert [row(matching, p) for p in ("▁Élan", "▁élan", "▁ÉLAN", "▁eLAN", "▁fin", "▁Fin")] == [
        {spelled(form): 1} for form in (" Elan", " elan", " ELAN", " elan", " ﬁn", " ﬁn")
    ]


def test_a_capital_is_its_small_letter_and_no_letter_of_another_form():
    source = wordpiece("a", "ᴬ", "ℝ", "r", "№", lowercase=True)
    matching = match_vocabulary(source, unigram("▁A", "▁R", "▁No"))
    rows = [row(matching, p) for p in ("▁A", "▁R", "▁No")]
    assert rows == [{"a": 1}, {"r": 1}, {"№": 1}]
    # an accent is another spelling, and the case counts more
    matching = match_vocabulary(byte_level(" São", " sao"), unigram("▁Sao"))
    assert row(matching, "▁Sao") == {spelled(" São"): 1}


def test_marks_alone_match_nothing():
    matching = match_vocabulary(byte_level(), unigram("▁", "\u0301", "¨", "▁¨"))
    assert [rule(matching, p) for p in ("▁", "\u0301", "¨", "▁¨")] == [
        "exact",
        "unmatched",
        "unmatched",
        "unmatched",
    ]


@pytest.fixture(scope="module")
def house():
    return unigram("▁house", "▁home", "▁st", "udy", "▁")


def test_dictionary_takes_the_mean_or_the_first(house):
    entries = {
        "de": [
            ("haus", "house"),
            ("haus", "study"),
            ("haus", "house"),
            ("heim", "ю"),
            ("heim", "home"),
        ]
    }
    target = unigram("▁haus", "▁HAUS", "haus", "▁heim")
    matching = match_vocabulary(house, target, entries)
    mean = {"▁house": 0.5, "▁st": 0.25, "udy": 0.25}  # each translation once
    assert [row(matching, p) for p in target.get_vocab() if p.lower() == "▁haus"] == [mean] * 2
    assert rule(matching, "haus") == "unmatched"  # it begins no word
    assert row(matching, "▁heim") == {"▁home": 1}  # of the other only the blank is known
    first = match_vocabulary(house, target, entries, translations="first")
    assert row(first, "▁haus") == row(first, "▁HAUS") == {"▁house": 1} and row(first, "▁heim") == {
        "▁home": 1
    }
    assert (first.rule == matching.rule).all()


def test_languages_are_taken_together_and_named(house):
    entries = {
        "de": [("im", "house")],
        "nl": [("im", "home"), ("im", "house")],
        "fr": [("IM", "study")],
    }
    matching = match_vocabulary(house, unigram("▁im"), entries)
    assert matching.language == {5: "de,nl"}  # the entry in another case comes last
    assert row(matching, "▁im") == pytest.approx({"▁house": 2 / 3, "▁home": 1 / 3})
    assert row(match_vocabulary(house, unigram("▁im"), entries, translations="first"), "▁im") == {
        "▁house": 1
    }


def test_words_without_blanks_need_none(house):
    matching = match_vocabulary(
        house, unigram("家", "▁家", "дом"), {"zh": [("家", "home")], "ru": [("дом", "home")]}
    )
    assert [rule(matching, p) for p in ("家", "▁家", "дом")] == [
        "dictionary",
        "dictionary",
        "unmatched",
    ]


def test_order_decides_about_shared_words():
    source = unigram("▁Island", "▁Iceland")
    target = unigram("▁Island", "▁house")
    entries = {"de": [("Island", "Iceland"), ("house", "Iceland")]}
    rows = {
        order: row(match_vocabulary(source, target, entries, order=order), "▁Island")
        for order in ("exact", "dictionary")
    }
    assert rows == {"exact": {"▁Island": 1}, "dictionary": {"▁Iceland": 1}}
    assert rule(match_vocabulary(source, target, entries), "▁house") == "dictionary"


def test_translations_are_cut_as_words():
    "With the blank before them, whichever way the tokenizer adds it, and whatever padding it was called with."
    merges = [("h", "i"), (" ", "hi")]
    for options in ({}, {"add_prefix_space": True}):
        source = byte_level("hi", " hi", merges=merges, **options)
        source(["hi", "hi hi hi"], padding=True, truncation=True, max_length=2)
        entries = {"de": [("hallo", "hi"), ("servus", "hi hi")]}
        matching = match_vocabulary(source, unigram("▁hallo", "▁servus"), entries)
        assert row(matching, "▁hallo") == row(matching, "▁servus") == {"Ġhi": 1}
    source = wordpiece("hi", "##gh", lowercase=True)
    matching = match_vocabulary(source, unigram("▁hoch"), {"de": [("hoch", "High")]})
    assert row(matching, "▁hoch") == {"hi": 0.5, "##gh": 0.5}


# ---------------------------------------------------------------- what comes out


@pytest.fixture(scope="module")
def phrases(tmp_path_factory):
    "Text, an English and a shared tokenizer."
    text = cldr_corpus("en,de,ru", 1, 600, 1, 1).text
    folder = tmp_path_factory.mktemp("matching")
    return (
        text,
        train_vocab({"en": text["en"]}, 400, folder / "en"),
        train_vocab(text, 900, folder / "shared"),
    )


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("options", [{}, {"order": "dictionary"}, {"translations": "first"}])
def test_rows_sum_to_one_or_are_empty(phrases, options, filled):
    text, source, target = phrases

    def made():
        matching = match_vocabulary(source, target, cldr_dictionaries(("de", "ru")), **options)
        return by_subwords(matching) if filled else matching

    matching = made()
    again = made()
    assert (
        matching.weights.shape == (len(target), len(source))
        and matching.weights.dtype == np.float32
    )
    np.testing.assert_allclose(
        matching.weights.sum(axis=1), matching.rule != "unmatched", atol=1e-6
    )
    assert (matching.weights.data > 0).all() and set(matching.rule) <= set(RULES)
    assert set(matching.language) == set(np.flatnonzero(matching.rule == "dictionary"))
    assert (again.rule == matching.rule).all() and (again.weights != matching.weights).nnz == 0
    assert again.table().equals(matching.table())


def test_table_is_read_back(phrases, tmp_path):
    text, source, target = phrases
    odd = 'a"b', "NA", "null", "a\tb", "c\nd", "e\rf", "\x85", "1.0"
    target = unigram(*itertools.islice(target.get_vocab(), 300), *odd)
    matching = by_subwords(match_vocabulary(source, target, cldr_dictionaries(("de", "ru"))))
    matching.save_table(tmp_path / "deep" / "table.tsv")
    assert read_table(tmp_path / "deep" / "table.tsv").equals(matching.table())
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["table.tsv"]
    with pytest.raises(DataError, match="x.tsv:1: not a table"):
        read_table(write(tmp_path / "x.tsv", "a\tb\n"))
    head = (tmp_path / "deep" / "table.tsv").read_text().split("\n")[0]
    with pytest.raises(DataError, match="x.tsv:2: not a row"):
        read_table(write(tmp_path / "x.tsv", f"{head}\n1\t2\n"))
    for line, message in (
        (b"\xff\n", "x.tsv:2: .*not UTF-8"),
        (b"[" * 10**5 + b"\t" * 6, "x.tsv:2: not a row"),
    ):
        with pytest.raises(DataError, match=message):
            read_table(write(tmp_path / "x.tsv", head.encode() + b"\n" + line))


def test_report_counts_pieces_tokens_and_types():
    source = unigram("▁house", "▁home")
    matching = match_vocabulary(
        source, unigram("▁house", "▁haus", "▁Home", "▁und"), {"de": [("haus", "house")]}
    )
    report = matching.report(
        {"de": ["house house haus", "house und"], "en": ["Home house\u3000und"]}
    )
    assert list(report.index) == list(RULES) and report["subwords"].sum() == 9
    np.testing.assert_allclose(report.filter(regex="share|tokens|types").sum(), 1)
    assert dict(report["subwords"][report["subwords"] > 0]) == {
        "special": 5,
        "exact": 1,
        "normalised": 1,
        "dictionary": 1,
        "unmatched": 1,
    }
    assert report["de tokens"].round(3).tolist() == [0, 0.6, 0, 0.2, 0, 0, 0.2]
    assert report["de types"].round(3).tolist() == [0, 0.333, 0, 0.333, 0, 0, 0.333]
    assert report["en types"].round(3).tolist() == [0, 0.333, 0.333, 0, 0, 0, 0.333]
    with pytest.raises(DataError, match="no text in fr"):
        matching.report({"fr": ["", " "]})
    assert repr(matching).endswith("special 5, exact 1, normalised 1, dictionary 1, unmatched 1")


def test_dictionary_report_counts_what_cannot_match(house):
    entries = {
        "de": [
            ("haus", "house"),
            ("haus", "home"),
            ("neues haus", "house"),
            ("heim", "home"),
            ("HOF", "ю"),
        ],
        "ru": [],
    }
    report = match_vocabulary(house, unigram("▁haus", "▁hof", "▁home"), entries).dictionary_report()
    assert report.loc["de"].to_dict() == {
        "entries": 5,
        "of several words": 1,
        "words": 4,
        "subwords": 2,
        "rows taken": 1,
    }
    assert report.loc["ru"].tolist() == [0] * 5


def test_entries_may_be_read_once(house):
    entries = [("Haus", "house"), ("Haus", "home")]
    listed = match_vocabulary(house, house, {"de": entries}).dictionary_report()
    read_once = match_vocabulary(house, house, {"de": iter(entries)}).dictionary_report()
    assert listed.equals(read_once)


def test_little_found_is_said_with_numbers():
    with pytest.warns(UserWarning, match=r"only 0 of 200 subwords were matched \(0.00%\)"):
        match_vocabulary(unigram("▁house"), unigram(*(f"▁{chr(0x4E00 + n)}" for n in range(200))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        match_vocabulary(
            unigram("▁house"), unigram("▁house", *(f"▁{chr(0x4E00 + n)}" for n in range(99)))
        )


def test_wrong_settings_are_refused(house):
    for options, text in (
        ({"order": "exakt"}, "did you mean 'exact'"),
        ({"translations": "all"}, "mean, first"),
        ({"dictionaries": {"de": ["ab"]}}, "dictionaries\\['de'\\] holds 'ab'"),
        ({"dictionaries": {"de": [("Haus", None)]}}, "holds .'Haus', None.: give pairs"),
        ({"dictionaries": {"de": [None]}}, "holds None: give pairs"),
        ({"dictionaries": {"de": "de.txt"}}, "dictionaries\\['de'\\]='de.txt': give pairs"),
        ({"dictionaries": [("Haus", "house")]}, "give a dict, language → pairs"),
    ):
        with pytest.raises(ConfigError, match=text):
            match_vocabulary(house, house, **options)
    for tokenizer in (ByT5Tokenizer(), house.backend_tokenizer):
        with pytest.raises(ConfigError, match="source is a .*, not a fast .*AutoTokenizer"):
            match_vocabulary(tokenizer, house)
    with pytest.raises(ConfigError, match="target='bert' is not a tokenizer: .*load_tokenizer"):
        match_vocabulary(house, "bert")
    words = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    )
    with pytest.raises(ConfigError, match="WordLevel tokenizer begin a word"):
        match_vocabulary(house, words)


def test_text_and_sentences_of_another_shape_are_named(house):
    with pytest.raises(DataError, match="line 2 of the text of de is None"):
        match_vocabulary(house, house).report({"de": ["house", None]})
    for wrong in ("ab", None, ["a"], [7], [-1]):
        with pytest.raises(DataError, match="sentence 2 is .*, not ids from 0 to 6"):
            cooccurrence_vectors([[1, 2], wrong], 7, dim=1)


# ---------------------------------------------------------------- refinements


def test_subwords_know_where_a_word_begins():
    target = unigram("▁singing", "inging", "▁ю", "ю")
    for source, begins, inside in (
        (unigram("▁sing", "ing", "▁", "s"), {"▁sing": 0.5, "ing": 0.5}, {"ing": 1}),
        (wordpiece("sing", "ing", "##ing"), {"sing": 0.5, "##ing": 0.5}, {"##ing": 1}),
        (
            byte_level(
                "ing",
                "sing",
                " sing",
                add_prefix_space=True,
                merges=[("i", "n"), ("in", "g"), ("s", "ing"), (" ", "sing")],
            ),
            {"Ġsing": 0.5, "ing": 0.5},
            {"ing": 1},
        ),
    ):
        filled = by_subwords(match_vocabulary(source, target))
        assert row(filled, "▁singing") == begins and row(filled, "inging") == inside
        assert rule(filled, "▁singing") == rule(filled, "inging") == "subwords"
        unknown = "subwords" if _marks(source) == "bytes" else "unmatched"
        assert rule(filled, "▁ю") == rule(filled, "ю") == unknown


def test_wordpiece_sets_marks_apart_inside_words():
    filled = by_subwords(match_vocabulary(wordpiece("a", "##a", ",", "##,"), unigram("a,a")))
    assert row(filled, "a,a") == {"##a": pytest.approx(2 / 3), ",": pytest.approx(1 / 3)}


def test_refinements_leave_matched_rows_alone(phrases):
    text, source, target = phrases
    matching = match_vocabulary(source, target)
    vectors = cooccurrence_vectors(
        (target(line)["input_ids"] for line in text["de"]), len(target), dim=8
    )
    matched = matching.rule != "unmatched"
    for filled, name in (
        (by_subwords(matching), "subwords"),
        (by_similarity(matching, vectors), "similarity"),
    ):
        assert (filled.weights[matched] != matching.weights[matched]).nnz == 0
        assert (filled.rule[matched] == matching.rule[matched]).all()
        assert set(filled.rule[~matched]) <= {name, "unmatched"}
        np.testing.assert_allclose(
            filled.weights.sum(axis=1), filled.rule != "unmatched", atol=1e-5
        )
        assert (matching.rule == "unmatched").sum() > (filled.rule == "unmatched").sum()


@pytest.fixture
def corner():
    "Two matched pieces at right angles, and two unmatched ones; ids 5 to 8."
    return match_vocabulary(unigram("▁a", "▁b"), unigram("▁a", "▁b", "▁c", "▁d"))


def test_similarity_is_the_softmax_over_cosines(corner):
    vectors = np.zeros((9, 2))
    vectors[5:8] = (2, 0), (0, 3), (3, 4)  # cosines 0.6 and 0.8
    both = by_similarity(corner, vectors, temperature=0.5)
    share = 1 / (1 + np.exp((0.6 - 0.8) / 0.5))
    assert row(both, "▁c") == pytest.approx({"▁a": 1 - share, "▁b": share}, abs=1e-6)
    assert row(by_similarity(corner, vectors, neighbours=1), "▁c") == {"▁b": 1}
    assert rule(both, "▁d") == "unmatched"  # no vector


def test_similarity_refuses_what_it_cannot_use(corner):
    for vectors in (np.ones((8, 2)), np.ones(9)):
        with pytest.raises(ConfigError, match="give one row for each of the 9 new"):
            by_similarity(corner, vectors)
    for options in ({"neighbours": 0}, {"temperature": 0}):
        with pytest.raises(ConfigError, match="give 1 or more, and more than 0"):
            by_similarity(corner, np.ones((9, 2)), **options)
    with pytest.raises(ConfigError, match="no matched subword has a vector"):
        by_similarity(corner, np.zeros((9, 2)))


def test_cooccurrence_counts_stay_inside_sentences():
    sentences = [[0, 1, 2], [3], [], [0, 1, 4]]
    vectors = cooccurrence_vectors(sentences, 6, dim=2, window=1)
    assert vectors.shape == (6, 2) and vectors.dtype == np.float32
    assert not vectors[[3, 5]].any() and vectors[[0, 1, 2, 4]].any(axis=1).all()
    np.testing.assert_allclose(vectors[2], vectors[4], atol=1e-6)  # both stand beside 1 only
    assert (vectors == cooccurrence_vectors(sentences, 6, dim=2, window=1)).all()
    with pytest.raises(ConfigError, match="dim=9.*gives 1 to 3"):
        cooccurrence_vectors(sentences, 6, dim=9, window=1)


def test_cooccurrence_vectors_are_the_truncated_ppmi():
    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, 12, size=rng.integers(1, 9)) for _ in range(60)]
    counts = np.zeros((12, 12))
    for s in sentences:
        for i, j in itertools.permutations(range(len(s)), 2):
            counts[s[i], s[j]] += abs(i - j) <= 3
    with np.errstate(divide="ignore"):
        ppmi = np.maximum(np.log(counts * counts.sum() / np.outer(counts.sum(0), counts.sum(1))), 0)
    u, s, _ = np.linalg.svd(ppmi)
    expected = (u * np.sqrt(s))[:, :5]
    got = cooccurrence_vectors(sentences, 12, dim=5, window=3)
    np.testing.assert_allclose(np.abs(got), np.abs(expected), atol=1e-4)
    assert (got[np.abs(got).argmax(axis=0), np.arange(5)] > 0).all()


# ---------------------------------------------------------------- dictionaries


def test_cldr_dictionaries_leave_the_source_out():
    found = cldr_dictionaries(("en", "de", "ru"))
    assert (
        list(found) == ["de", "ru"]
        and ("Januar", "January") in found["de"]
        and ("Судан", "Sudan") in found["ru"]
    )
    assert ("January", "Januar") in cldr_dictionaries(("en", "de"), "de")["en"]
    # entries of several words are counted, not dropped
    assert any(" " in word for word, _ in found["de"])


@pytest.fixture
def muse(tmp_path, monkeypatch):
    "A folder of MUSE with German alone; returns its file."
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache"))
    return write(tmp_path / "muse-dictionaries" / "de-en.0-5000.txt", "haus house\nhaus home\n")


def test_muse_names_what_is_absent(muse):
    with pytest.warns(UserWarning, match="no MUSE dictionary into en for ru, sw"):
        found = muse_dictionaries(("en", "de", "ru", "sw"))
    assert found == {"de": [("haus", "house"), ("haus", "home")]}
    with pytest.raises(FileNotFoundError, match="ru-en"):
        muse_dictionaries(("ru", "sw"))
    with pytest.raises(ConfigError, match="MUSE has no dictionary of sw"):
        muse_dictionaries(("sw",))
    with pytest.raises(ConfigError, match="split='dev'"):
        muse_dictionaries(("de",), split="dev")


def test_malformed_lines_are_named(muse):
    write(muse, "haus house\nheim\n")
    with pytest.raises(DataError, match=r"de-en.0-5000.txt:2: expected a word") as e:
        muse_dictionaries(("de",))
    assert e.value.line == 2


def test_published_muse_fills_russian_rows(phrases):
    if not os.environ.get("XLNB_DATA"):
        pytest.skip("XLNB_DATA is not set: no MUSE files")
    try:
        found = muse_dictionaries(("de", "ru"))
    except FileNotFoundError as e:
        pytest.skip(str(e))
    words = list(dict.fromkeys(word for word, _ in found["ru"]))[:500]
    target = unigram(*(f"▁{word}" for word in words))
    matching = match_vocabulary(phrases[1], target, found)
    assert (matching.rule == "dictionary").sum() > 0.9 * 500
    assert matching.dictionary_report().loc["ru", "subwords"] == len(words)


def test_languages_may_be_one_string():
    assert (
        cldr_dictionaries("de,en,fr").keys()
        == cldr_dictionaries(["de", "fr"]).keys()
        == {"de", "fr"}
    )


def test_whole_lists_are_those_of_either_direction(tmp_path, monkeypatch):
    lines = "".join(f"w{n} x{n}\n" for n in range(6000))
    folder = tmp_path / "muse-dictionaries"
    write(folder / "en-de.txt", lines)
    write(folder / "de-en.0-5000.txt", "x1 w1\n")
    write(folder / "fr-en.txt", "maison house\n")
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache"))
    reversed_lines = [(f"x{n}", f"w{n}") for n in range(6000)]
    whole = {"de": reversed_lines, "fr": [("maison", "house")]}
    assert muse_dictionaries("de,fr", split="full") == whole
    assert muse_dictionaries("de") == {"de": [("x1", "w1")]}
    # a folder of one's own, whatever languages MUSE has
    write(folder / "sw-en.txt", "nyumba house\n")
    with pytest.warns(UserWarning, match="no MUSE dictionary into en for yo"):
        found = muse_dictionaries("de,sw,yo", folder=folder)
    assert found == {"de": reversed_lines, "sw": [("nyumba", "house")]}
    with pytest.raises(FileNotFoundError, match="yo-en"):
        muse_dictionaries("yo", folder=folder)


def test_shared_ids_are_one_to_one_and_no_special_tokens():
    source = unigram("▁a", "b", "▁c", "▁Ä")
    target = unigram("▁d", "▁c", "▁a", "b", "▁ä")
    old, new = shared_ids(source, target)
    pieces = source.convert_ids_to_tokens(old)
    assert pieces == target.convert_ids_to_tokens(new) and {*pieces} == {"▁a", "b", "▁c"}
