"Text of one's own: what a folder is read as, what is held out of it, and what is said of a folder that cannot be read."

import json, os, subprocess, sys
from contextlib import nullcontext
from zipfile import ZipFile

import pytest
import text_forms
from conftest import ROOT, write

from xlnb import meta_xlm
from xlnb.base.core import ConfigError, DataError, numpy_generator
from xlnb.pretraining import pretraining
from xlnb.text import own
from xlnb.text.batches import _deciding_facts
from xlnb.text.folders import open_folder
from xlnb.text.formats import check_language
from xlnb.text.hub import _split_source
from xlnb.text.own import (
    HELD_OUT_SHARE,
    NotRead,
    corpus_for_record,
    describe_corpus,
    most_subwords,
    open_corpus,
    require_pairs,
)
from xlnb.text.vocab import train_vocab
from xlnb.xlm_e import RECIPE, Settings, describe

SYLLABLES = {
    "de": "für groß ten lich heit mann see ung ver bau",
    "en": "the tion ness ly for ing pre ment con her",
}


def sentences(lang, count=500) -> list[str]:
    "Different lines of words that look a little like the language."
    generator = numpy_generator("sentences", lang)
    syllables = SYLLABLES[lang].split()
    lines = {}
    while len(lines) < count:
        words = ["".join(generator.choice(syllables, 3)) for _ in range(5)]
        lines[" ".join(words)] = None
    return list(lines)


GERMAN = sentences("de")
ENGLISH = sentences("en")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    "Surveys and runs in a folder of the test's own."
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "root").mkdir()


@pytest.fixture
def texts(tmp_path):
    return tmp_path / "my texts"


lines = text_forms.joined


def moses(folder, size=500):
    text_forms.as_moses(folder, {"de": GERMAN[:size], "en": ENGLISH[:size]})


def as_txt(folder):
    write(folder / "de.txt.gz", lines(GERMAN))


def as_jsonl(folder):
    text_forms.as_jsonl(folder, {"de": GERMAN})


def as_parquet(folder):
    text_forms.as_parquet(folder, {"de": GERMAN})


def as_moses(folder):
    moses(folder)


def as_tsv(folder):
    write(folder / "en-de.tsv", lines(f"{b}\t{a}" for a, b in zip(GERMAN, ENGLISH)))


def as_tmx(folder):
    text_forms.as_tmx(folder, {"EN-us": ENGLISH, "de": GERMAN}, "memory.tmx.gz")


def as_po(folder):
    text_forms.as_po(folder / "po", {"en": ENGLISH, "de": GERMAN})


def as_xliff(folder):
    units = lines(
        f"<unit><segment><source>{b}</source><target>{a}</target></segment></unit>"
        for a, b in zip(GERMAN, ENGLISH)
    )
    head = '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de-DE">'
    write(folder / "job.xlf", f"{head}<file>{units}</file></xliff>")


def as_opus(folder):
    folder.mkdir()
    with ZipFile(folder / "de-en.txt.zip", "w") as archive:
        archive.writestr("Toy.de-en.de", lines(GERMAN))
        archive.writestr("Toy.de-en.en", lines(ENGLISH))


def as_sides_in_folders(folder):
    for part, rows in (
        ("train", slice(0, 400)),
        ("valid", slice(400, 450)),
        ("test", slice(450, 500)),
    ):
        for lang, text in (("de", GERMAN), ("en", ENGLISH)):
            ending = "" if part == "train" else ".txt"
            write(folder / part / f"all.{lang}{ending}", lines(text[rows]))


NEEDS = {as_jsonl: "zstandard", as_parquet: "pyarrow", as_po: "translate"}


def everything(corpus, lang="de") -> set:
    "All lines of a language that a corpus has, held out or not."
    read = {*corpus.text[lang], *corpus.valid_text.get(lang, ())}
    for pair, rows in corpus.valid.items():
        if lang not in pair.split("-"):
            continue
        index = pair.split("-").index(lang)
        read |= {row[index] for row in rows}
        for by_pair in corpus.tests.values():
            read |= set(by_pair[pair][index])
    return read


@pytest.mark.parametrize(
    "write_form",
    [
        as_txt,
        as_jsonl,
        as_parquet,
        as_moses,
        as_tsv,
        as_opus,
        as_tmx,
        as_xliff,
        as_po,
        as_sides_in_folders,
    ],
)
def test_the_same_text_in_every_form(write_form, texts):
    if write_form in NEEDS:
        pytest.importorskip(NEEDS[write_form])
    write_form(texts)
    corpus = open_corpus(str(texts))
    assert everything(corpus) == set(GERMAN) or list(corpus.text["de"]) == GERMAN[:400]
    assert corpus.name == "my texts"


@pytest.mark.parametrize("write_form", [as_moses, as_tsv, as_opus, as_tmx, as_xliff, as_po])
def test_pairs_are_in_alphabetical_order_whatever_the_file_has(write_form, texts):
    write_form(texts)
    corpus = open_corpus(str(texts), "en,de")
    assert set(corpus.pairs["de-en"]) < set(zip(GERMAN, ENGLISH))
    assert corpus.facts["pairs"] == {"de-en": len(list(corpus.pairs["de-en"]))}


def records(*langs) -> str:
    return lines(json.dumps({"text": f"Satz {n}.", "lang": lang}) for n, lang in enumerate(langs))


def test_a_record_of_another_language_is_no_text_of_this_one(texts):
    write(texts / "crawl.de.jsonl", records("de", "deu_Latn", "German", "en"))
    with pytest.raises(
        DataError, match="crawl.de.jsonl:4: .*is en, and .* read as de: .*a file of its own"
    ):
        open_corpus(str(texts))
    write(texts / "crawl.de.jsonl", records("de", "deu_Latn", "German"))
    assert len(everything(open_corpus(str(texts)))) == 3


def test_a_name_is_proposed_by_the_first_record(texts):
    write(texts / "web.jsonl.gz", records("eng_Latn", "en"))
    write(texts / "odd.jsonl", "no JSON")
    write(texts / "more.de.jsonl", records("de"))
    reasons = open_folder(texts).not_read
    assert "first record says en: call it web.en.jsonl.gz, if" in reasons["web.jsonl.gz"]
    assert "call it odd.LANGUAGE.jsonl" in reasons["odd.jsonl"]


@pytest.mark.parametrize(
    "language, said, fits",
    [
        ("zh-Hant", "zh", True),
        ("zh", "zh_TW", False),
        ("sr", "srp_Latn", False),
        ("no", "nb", True),
    ],
)
def test_a_record_may_leave_the_script_open(language, said, fits):
    with nullcontext() if fits else pytest.raises(DataError, match="into a file"):
        check_language({"lang": [said, "en"]}, language, "x.jsonl", 1)


def test_a_table_with_another_language_is_refused(texts):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    texts.mkdir()
    columns = {"text": ["Ein Satz.", "A line."], "language": ["deu", "eng"]}
    parquet.write_table(pyarrow.table(columns), texts / "de.parquet")
    with pytest.raises(DataError, match="de.parquet:2: .*is en"):
        open_corpus(str(texts))


TSV = [f"{b}\t{a}" for a, b in zip(GERMAN, ENGLISH)]


@pytest.mark.parametrize(
    "header", ["source\ttarget", "en\tde", "English\tGerman", "sentence1\tsentence2\tscore"]
)
def test_a_header_is_no_pair(header, texts):
    write(texts / "en-de.tsv", lines([header, *(f"{line}\t1" for line in TSV)]))
    corpus = open_corpus(str(texts))
    assert everything(corpus) == set(GERMAN) and everything(corpus, "en") == set(ENGLISH)
    assert corpus.facts["left_out"]["de-en"]["header"] == 1


@pytest.mark.parametrize("first", ["it\tes", "Text\tWort", "no\tnein", "source\tQuelle"])
def test_a_first_pair_is_no_header(first, texts):
    write(texts / "en-de.tsv", lines([first, *TSV]))
    assert len(everything(open_corpus(str(texts)))) == 501


def test_a_header_that_turns_the_languages_round_is_refused(texts):
    write(texts / "en-de.tsv", lines(["de\ten", *TSV]))
    said = "en-de.tsv:1: the header says de, en, .* name of the file en, de: name it de-en.tsv"
    with pytest.raises(DataError, match=said):
        open_corpus(str(texts))


def test_files_that_are_not_read_are_named(texts):
    moses(texts)
    write(texts / "train.fr", lines(GERMAN))
    corpus = open_corpus(str(texts))
    assert "not_read" not in corpus.facts
    write(texts / "a.csv", "x")
    for n in range(12):
        write(texts / f"news{n:02}.txt", "x")
    said = r"my texts: not read: a.csv \(no form .*\), news00.txt, .*news08.txt and 3 more"
    with pytest.warns(NotRead, match=said):
        other = open_corpus(str(texts))
    assert other.facts["not_read"]["files"] == 13
    assert "news.de.txt" not in other.facts["not_read"]["first"]
    assert _deciding_facts(other) == _deciding_facts(corpus)
    with pytest.raises(ConfigError, match="no text of ru; it has de, en, fr; not read: a.csv"):
        open_corpus(str(texts), "de,ru")
    for n in range(30):
        write(texts / f"{n}.de.txt", "x")
    listing = describe_corpus(str(texts))
    assert "  and 11 more" in listing and "  news00.txt: not read (its name" in listing


@pytest.mark.parametrize(
    "name, better",
    [
        ("german.txt", "german.de.txt"),
        ("wiki-de.txt", "wiki.de.txt"),
        ("wiki_de.jsonl.gz", "wiki.de.jsonl.gz"),
        ("dewiki.txt", "dewiki.de.txt"),
        ("news-german.txt", "news-german.de.txt"),
        ("German-English.tsv", "German-English.de-en.tsv"),
        ("bitext-de-en.tsv", "bitext.de-en.tsv"),
        ("corpus_2020_de_en.tsv", "corpus-2020.de-en.tsv"),
        ("train.german", "train.de"),
        ("my-texts.txt", "my-texts.LANGUAGE.txt"),
    ],
)
def test_a_better_name_is_proposed(name, better, texts):
    write(texts / "x.fr.txt", "Une phrase.")
    write(texts / name, "x\ty")
    reasons = open_folder(texts).not_read
    assert f"{better}," in reasons[name] + ","
    write(texts / better.replace("LANGUAGE", "de"), "x\ty")
    assert list(open_folder(texts).not_read) == [name]


def test_sides_that_are_called_source_and_target_are_no_languages(texts):
    for name, text in (("train.src", GERMAN), ("train.tgt", ENGLISH)):
        write(texts / name, lines(text))
    with pytest.raises(DataError, match=r"train.src \('src' is no .* it train.de, .*, train.tgt"):
        open_corpus(str(texts))
    write(texts / "src.txt", lines(GERMAN))
    write(texts / "x.de.txt", lines(GERMAN))
    assert set(open_folder(texts).not_read) == {"train.src", "train.tgt", "src.txt"}


def test_text_under_another_name_can_be_renamed(texts):
    write(texts / "de.jsonl", '{"content": "Ein Satz."}\n')
    with pytest.raises(DataError, match="record has content.: rename that of the text, or in Pyth"):
        open_corpus(str(texts))


def test_held_out_files_are_taken_as_they_are(texts):
    as_sides_in_folders(texts)
    corpus = open_corpus(str(texts))
    assert list(corpus.pairs["de-en"]) == list(zip(GERMAN, ENGLISH))[:400]
    assert corpus.valid == {"de-en": list(zip(GERMAN, ENGLISH))[400:450]}
    assert corpus.tests == {"test-all": {"de-en": (GERMAN[450:], ENGLISH[450:])}}


def test_a_test_in_the_training_text_is_surveyed(texts):
    moses(texts)
    write(texts / "test.de", lines(GERMAN[:20]))
    write(texts / "test.en", lines(ENGLISH[:20]))
    corpus = open_corpus(str(texts), "de,en")
    overlap = corpus.facts["pair_overlap"]["test"]["de-en"]
    assert overlap["both"] + overlap["apart"] + overlap["one"] == 20
    assert overlap["both"] == 20 - len(set(GERMAN[:20]) & {a for a, _ in corpus.valid["de-en"]})


def test_what_is_held_out_stays_so_when_text_is_added(texts):
    moses(texts, 400)
    first = open_corpus(str(texts), "de,en")
    moses(texts, 500)
    write(texts / "news.de.txt", lines(GERMAN))
    longer = open_corpus(str(texts), "de,en")
    assert 0 < len(first.valid["de-en"]) < 400 * 3 * HELD_OUT_SHARE
    assert set(first.valid["de-en"]) <= set(longer.valid["de-en"])
    assert set(first.tests["test"]["de-en"][0]) <= set(longer.tests["test"]["de-en"][0])
    held_out = {a for a, _ in longer.valid["de-en"]} | set(longer.tests["test"]["de-en"][0])
    assert not held_out & (set(longer.text["de"]) | {a for a, _ in longer.pairs["de-en"]})
    assert longer.facts["left_out"]["de"] == {"held out": len(held_out)}


def test_a_line_that_is_held_out_of_one_pair_is_in_no_other(texts):
    moses(texts)
    write(texts / "de-fr.tsv", lines(f"{line}\tPhrase {n}." for n, line in enumerate(GERMAN)))
    corpus = open_corpus(str(texts), "de,en,fr")
    held_out = {a for rows in corpus.valid.values() for a, _ in rows}
    for pair in ("de-en", "de-fr"):
        assert not held_out & {a for a, _ in corpus.pairs[pair]}
    assert corpus.facts["left_out"]["de-fr"]["side of a held-out pair"] > 0


def test_a_digest_changes_with_a_file_that_is_read_and_with_no_other(texts):
    moses(texts)
    name = corpus_for_record(str(texts), "de,en")
    write(texts / "fr.txt", "Une phrase.\n")
    write(texts / "README.md", "what this is")
    assert corpus_for_record(str(texts), "de,en") == name
    assert corpus_for_record(f"{texts}/../my texts", "de,en") == name
    write(texts / "train.de", lines(GERMAN[::-1]))
    assert corpus_for_record(str(texts), "de,en") != name
    assert name.startswith("my texts@")


def test_a_second_start_reads_no_line(texts, monkeypatch):
    moses(texts)
    first = open_corpus(str(texts), "de,en")
    monkeypatch.setattr("xlnb.text.own.read_pair_source", None)
    monkeypatch.setattr("xlnb.text.folders.sha256_once", None)
    assert open_corpus(str(texts), "de,en").facts == first.facts


def test_a_change_that_keeps_size_and_time_is_noticed(texts):
    moses(texts)
    name = corpus_for_record(str(texts), "de,en")
    before = (texts / "train.de").stat()
    write(texts / "train.de", lines(GERMAN[::-1]))
    os.utime(texts / "train.de", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (texts / "train.de").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert corpus_for_record(str(texts), "de,en") != name


def test_training_pairs_are_counted_without_those_that_share_a_held_out_side(texts):
    rows = [f"{GERMAN[n % 150]}\t{line}" for n, line in enumerate(ENGLISH)]
    write(texts / "de-en.tsv", lines(rows))
    corpus = open_corpus(str(texts))
    assert corpus.facts["left_out"]["de-en"]["side of a held-out pair"] > 0
    assert corpus.facts["pairs"] == {"de-en": len(list(corpus.pairs["de-en"]))}


def test_held_out_text_of_a_file(texts):
    as_txt(texts)
    write(texts / "valid.de.txt", lines([*GERMAN[:3], GERMAN[0], "Nur hier."]))
    corpus = open_corpus(str(texts))
    assert corpus.valid_text == {"de": [*GERMAN[:3], "Nur hier."]}
    assert list(corpus.text["de"]) == GERMAN[3:]


def test_one_language_of_bitext_has_held_out_text(texts):
    moses(texts)
    corpus = open_corpus(str(texts), "de")
    assert corpus.pairs == {} and len(corpus.valid_text["de"]) > 2
    assert not set(corpus.valid_text["de"]) & set(corpus.text["de"])


def test_a_test_of_one_language_is_named(texts):
    moses(texts)
    write(texts / "test.de", lines(GERMAN[:3]))
    reasons = open_folder(texts).not_read
    assert list(reasons) == ["test.de"] and "put the other language beside it" in reasons["test.de"]


def test_a_line_that_repeats_takes_no_place_of_others(monkeypatch):
    monkeypatch.setattr(own, "MOST_HELD_OUT", 20)
    rows = [("Ja.",)] * 100 + [(line,) for line in GERMAN[:30]]
    chosen = own._first_by_hash(rows)
    assert len(set(chosen)) == len(chosen) == 20


def test_a_table_says_what_there_is_before_anything_starts(texts):
    moses(texts)
    for name in ("de/news.txt", "letters.txt", "bitext.tsv", "a.csv", "a.json", "de-en.tmq"):
        write(texts / name, "x\ty\n")
    listing = describe_corpus(str(texts))
    assert "train.de + train.en: train de, en (Moses)" in listing
    assert "de/news.txt: train de (text)" in listing
    for name, reason in open_folder(texts).not_read.items():
        assert name in listing and ("call it" in reason or "read" in reason)
    assert (
        "call it letters.LANGUAGE.txt, such as letters.de.txt, or LANGUAGE/letters.txt" in listing
    )
    assert "call it bitext.de-en.tsv" in listing


def test_a_single_file_is_a_corpus(texts):
    as_tsv(texts)
    corpus = open_corpus(str(texts / "en-de.tsv"))
    assert corpus.name == "en-de.tsv" and corpus.langs == ("de", "en")
    assert list(corpus.facts["sha256"]) == ["en-de.tsv"]


def empty(folder):
    folder.mkdir()


def no_text(folder):
    write(folder / "notes.csv", "a,b")


def only_tests(folder):
    for lang, text in (("de", GERMAN), ("en", ENGLISH)):
        write(folder / f"test.{lang}", lines(text))


def latin1(folder):
    moses(folder)
    write(folder / "train.de", lines(GERMAN).encode("latin-1"))


def uneven(folder):
    moses(folder)
    write(folder / "train.de", lines(GERMAN[:-1]))


def tiny(folder):
    moses(folder, 1)


@pytest.mark.parametrize(
    "write_folder, error, said",
    [
        (empty, DataError, "holds no text to train on: text is read as de.txt"),
        (
            only_tests,
            DataError,
            "only tests or held-out text, test .test., and no text to train on",
        ),
        (no_text, DataError, "no text to train on; not read: notes.csv .*as de-en.tsv"),
        (latin1, DataError, "train.de:1: byte .* is not UTF-8 but rather Latin-1"),
        (uneven, DataError, "train.de:499: .*ends after 499 lines, .*train.en has 500"),
        (moses, ConfigError, "langs='de,ru': my texts has no text of ru; it has de, en"),
        (tiny, DataError, "no pair of de-en falls into the 3% .*valid.de and valid.en"),
    ],
)
def test_errors_in_a_sentence(write_folder, error, said, texts):
    write_folder(texts)
    with pytest.raises(error, match=said) as raised:
        open_corpus(str(texts), "de,ru" if write_folder is moses else "de,en")
    assert "\n" not in str(raised.value)


def test_who_needs_pairs_asks_for_them(texts):
    as_txt(texts)
    with pytest.raises(
        DataError, match="tasks='mlm.tlm' reads translation pairs, and my texts has none"
    ):
        require_pairs(open_corpus(str(texts)), "tasks='mlm+tlm'")


def test_what_is_no_corpus(tmp_path):
    (tmp_path / "my-texts").mkdir()
    with pytest.raises(ConfigError, match="my-text is not there; nearest in its folder: my-texts"):
        open_corpus(tmp_path / "my-text")
    with pytest.raises(ConfigError, match="corpus='none' .*, an existing folder or file$"):
        open_corpus(tmp_path.relative_to(tmp_path) / "none")
    with pytest.raises(DataError, match="nowhere: no such folder or file"):
        open_corpus(f"gettext:{tmp_path}/nowhere")
    with pytest.raises(ConfigError, match="corpus='multi3k' is not one of .*mean 'multi30k'"):
        RECIPE.resolve(Settings(corpus="multi3k"))
    with pytest.raises(
        ConfigError, match="is the name that records give to texts: give its folder"
    ):
        open_corpus("texts@01234567")


@pytest.mark.parametrize("size", [25, 120, 500])
def test_a_vocabulary_that_the_text_can_fill(size, texts, tmp_path):
    moses(texts, size)
    most = most_subwords(str(texts), "de,en")
    train_vocab({"de": GERMAN[:size], "en": ENGLISH[:size]}, most, tmp_path / "vocab")
    settings = RECIPE.resolve(Settings(corpus=str(texts), langs="de,en"))
    assert settings.vocab_size == min(2000, most)


def test_text_is_not_read_for_a_vocabulary_whose_size_is_set(texts, monkeypatch):
    moses(texts)
    monkeypatch.setattr("xlnb.text.own._sampled_lines", None)  # would fail when called
    common = {"corpus": str(texts), "langs": "de,en", "vocab_size": 90}
    assert RECIPE.resolve(Settings(**common)).vocab_size == 90
    settings = meta_xlm.Settings(**common, source_lang="en", meta_vocab_size=80)
    settings = meta_xlm.RECIPE.resolve(settings)
    assert (settings.vocab_size, settings.meta_vocab_size) == (90, 80)


def test_a_run_names_its_folder_and_no_path(texts):
    moses(texts)
    settings = RECIPE.resolve(
        Settings(corpus=str(texts), langs="de,en", steps=2, width=32, layers=2)
    )
    recorded = settings.for_record()["corpus"]
    assert recorded == corpus_for_record(str(texts), "de,en")
    data = RECIPE.prepare(settings)
    assert data.folder.name.startswith("my texts-")
    record = {"parameters": settings.for_record()}
    assert describe(record).startswith("XLM-E")
    assert str(texts) not in json.dumps([pretraining.run_identity(RECIPE.phase, settings, data)])


def catalogue(folder, domain, lang, messages):
    "A compiled catalogue as `msgfmt` writes it, by babel."
    from babel.messages.catalog import Catalog
    from babel.messages.mofile import write_mo

    made = Catalog(locale=lang)
    for source, target in messages:
        made.add(source, target)
    path = folder / lang / "LC_MESSAGES" / f"{domain}.mo"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        write_mo(file, made)


def test_gettext_joins_the_messages_of_all_programs(texts):
    french = [f"Phrase {n}." for n in range(500)]
    for lang, translated in (("de", GERMAN), ("fr", french), ("en_GB", ENGLISH)):
        catalogue(texts, "tar", lang, zip(ENGLISH[:250], translated[:250]))
        catalogue(texts, "nano", lang, zip(ENGLISH[250:], translated[250:]))
    corpus = open_corpus(f"gettext:{texts}", "de,en,fr")
    assert corpus.name == "gettext" and list(corpus.pairs) == ["de-en", "de-fr", "en-fr"]
    assert set(corpus.pairs["de-fr"]) <= set(zip(GERMAN, french))
    assert everything(corpus, "fr") == set(french)
    assert corpus_for_record(f"gettext:{texts}", "de,fr").startswith("gettext@")
    reasons = open_folder(texts).not_read
    assert all("the msgids are the English" in reason for reason in reasons.values())
    assert len(reasons) == 2


def test_a_second_translation_of_a_program_is_named(texts):
    for lang in ("pt", "pt_BR"):
        catalogue(texts, "tar", lang, [("dog", f"{lang} cachorro")])
    folder = open_folder(texts)
    assert folder.not_read == {
        "pt_BR/LC_MESSAGES/tar.mo": "a second text of pt beside tar.mo: give it another name"
    }


# what a folder is told by: names of one pair and of another, in files or folders
PAIRS_IN_NAMES = ["train.{pair}.{lang}", "{pair}/train.{lang}", "europarl/{pair}/v7.{pair}.{lang}"]


@pytest.mark.parametrize("form", PAIRS_IN_NAMES)
def test_bitexts_of_two_pairs_stay_apart(form, texts):
    french = [f"Phrase {n}." for n in range(500)]
    other = [f"Sentence {n}." for n in range(500)]
    sides = {"de-en": {"de": GERMAN, "en": ENGLISH}, "en-fr": {"en": other, "fr": french}}
    for pair, by_lang in sides.items():
        for lang, text in by_lang.items():
            write(texts / form.format(pair=pair, lang=lang), lines(text))
    corpus = open_corpus(str(texts), "de,en,fr")
    assert list(corpus.pairs) == ["de-en", "en-fr"]
    assert set(corpus.pairs["de-en"]) <= set(zip(GERMAN, ENGLISH))
    assert set(corpus.pairs["en-fr"]) <= set(zip(other, french))
    assert not open_folder(texts).not_read


@pytest.mark.parametrize(
    "name, part",
    [
        ("flores.devtest", "test"),
        ("Test", "test"),
        ("newstest2014", "test"),
        ("tst", "test"),
        ("newsdev2019", "valid"),
        ("DEV", "valid"),
        ("heldout", "valid"),
        ("latest", "train"),
        ("trainset", "train"),
    ],
)
def test_names_of_tests_are_no_training_text(name, part, texts):
    moses(texts)
    for lang in ("de", "en"):
        write(texts / f"{name}.{lang}", lines([f"{lang} {n}" for n in range(50)]))
    found = {source.files["de"].name: source.part for source in open_folder(texts).sources}
    assert found == {"train.de": "train", f"{name}.de": part}


def test_an_empty_file_is_named_and_the_others_are_read(texts):
    moses(texts)
    (texts / "train.fr.txt").touch()
    folder = open_folder(texts)
    assert folder.not_read == {"train.fr.txt": "is empty"} and len(folder.sources) == 1
    (texts / "train.de").write_text("")  # beside its other side, which has lines
    with pytest.raises(DataError, match="ends after 0 lines"):
        list(open_corpus(str(texts)).pairs["de", "en"])
    (texts / "train.en").write_text("")
    with pytest.raises(DataError, match="holds no text to train on.*is empty"):
        open_folder(texts)


def test_a_packed_copy_is_not_read_beside_its_file(texts):
    moses(texts)
    write(texts / "train.de.gz", lines(GERMAN))
    write(texts / "train.en.xz", lines(ENGLISH))
    folder = open_folder(texts)
    assert len(folder.sources) == 1 and set(folder.not_read) == {"train.de.gz", "train.en.xz"}
    assert "a packed copy of train.de, which is read" in folder.not_read["train.de.gz"]


def test_folders_are_read_through_links_and_once(texts, tmp_path):
    moses(texts)
    write(tmp_path / "elsewhere" / "fr.txt", lines(GERMAN))
    (texts / "more").symlink_to(tmp_path / "elsewhere")
    (texts / "loop").symlink_to(texts)
    files = [row["files"] for row in open_folder(texts).rows()]
    assert sorted(files) == ["more/fr.txt", "train.de + train.en"]


def test_counts_of_what_was_left_out_are_added_up(texts):
    for part, empty in (("train", 1), ("valid", 5)):
        write(texts / f"{part}.de", lines([*GERMAN[:100], *[""] * empty]))
        write(texts / f"{part}.en", lines([*ENGLISH[:100], *["x"] * empty]))
    assert open_corpus(str(texts), "de,en").facts["left_out"]["de-en"]["empty side"] == 6


def hub_rows(n=200) -> list[dict]:
    return [{"de": a, "en": b} for a, b in zip(GERMAN[:n], ENGLISH[:n])]


def test_a_data_set_that_was_saved_to_disk(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list
    saved = datasets.DatasetDict(
        train=table([{"translation": row} for row in hub_rows()]),
        validation=table([{"translation": row} for row in hub_rows(20)]),
    )
    saved.save_to_disk(tmp_path / "my-set")
    corpus = open_corpus(f"hf:{tmp_path}/my-set", "de,en")
    assert corpus.name == "my-set" and len(corpus.valid["de-en"]) == 20
    assert set(corpus.pairs["de-en"]) <= set(zip(GERMAN, ENGLISH))
    name = corpus_for_record(f"hf:{tmp_path}/my-set", "de,en")
    table([{"translation": row} for row in hub_rows(30)]).save_to_disk(tmp_path / "other")
    assert name.startswith("my-set@") and str(tmp_path) not in name
    assert corpus_for_record(f"hf:{tmp_path}/other", "de,en")[-8:] != name[-8:]


def test_a_data_set_of_the_hub(monkeypatch):
    datasets = pytest.importorskip("datasets")
    asked = []

    def load(*arguments):
        asked.append(arguments)
        return datasets.DatasetDict(train=datasets.Dataset.from_list(hub_rows(500)))

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, **_: None)
    corpus = open_corpus("hf:someone/bitext:2024:train", "de,en")
    assert set(asked) == {("someone/bitext", "2024")}
    assert corpus.name == "someone--bitext-2024-train"
    assert everything(corpus) == set(GERMAN)


def test_row_numbers_are_no_indonesian(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [row | {"id": n} for n, row in enumerate(hub_rows())]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "numbered")
    assert open_corpus(f"hf:{tmp_path}/numbered").langs == ("de", "en")
    named = datasets.Dataset.from_list([row | {"id": f"s{n}"} for n, row in enumerate(hub_rows())])
    assert _split_source("toy", "train", named).langs == ("de", "en")
    spoken = datasets.Dataset.from_list(
        [row | {"id": f"Rumah {n}"} for n, row in enumerate(hub_rows())]
    )
    assert _split_source("toy", "train", spoken).langs == ("de", "en", "id")
    with pytest.raises(DataError, match="hf:toy, test: no row in this split"):
        _split_source("toy", "test", datasets.Dataset.from_list(rows).select([]))


@pytest.mark.parametrize("names", [("en", "xxq"), ("source", "target")])
def test_a_column_of_translations_names_two_languages(names):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list([{"translation": dict.fromkeys(names, "a")}])
    message = f"column translation has {names[0]}, {names[1]}; two of its names"
    with pytest.raises(DataError, match=message):
        _split_source("toy", "train", data)


def test_a_data_set_that_cannot_be_loaded(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load(*arguments):
        raise ConnectionError("Couldn't reach the hub")

    def no_network(self, name, **_):
        raise ConnectionError

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", no_network)
    with pytest.raises(
        ConfigError, match="hf:a/b is not a folder here, .*, and the hub cannot be r"
    ):
        open_corpus("hf:a/b", "de,en")
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, **_: None)
    with pytest.raises(ConfigError, match="hf:a/b cannot be loaded: Couldn't reach the hub"):
        open_corpus("hf:a/b", "de,en")
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="hf:.*none is no saved data set: FileNotFoundError"):
        open_corpus(f"hf:{tmp_path}/none", "de,en")


def test_a_data_set_that_was_loaded_before_needs_no_network(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def no_network(self, name, **_):
        raise ConnectionError

    def load(*arguments):
        assert datasets.config.HF_HUB_OFFLINE  # the hub is not tried again
        return datasets.DatasetDict(train=datasets.Dataset.from_list(hub_rows(500)))

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", no_network)
    before = datasets.config.HF_HUB_OFFLINE
    assert open_corpus("hf:someone/bitext", "de,en").langs == ("de", "en")
    assert datasets.config.HF_HUB_OFFLINE == before


@pytest.mark.slow
def test_the_notebook_runs_on_a_folder(texts, tmp_path):
    moses(texts)
    settings = {"langs": "de,en", "steps": "2", "width": "32", "layers": "2"}
    arguments = [word for name, value in settings.items() for word in ("-p", name, value)]
    subprocess.run(
        [sys.executable, "-m", "papermill", ROOT / "nbs" / "03_xlm_e.ipynb", tmp_path / "ran.ipynb"]
        + ["-p", "corpus", "my texts", *arguments],
        cwd=tmp_path,
        check=True,
    )
    [path] = (tmp_path / "root").rglob("03_xlm_e.*.jsonl")
    record = json.loads(path.read_text("utf-8"))
    assert record["parameters"]["corpus"] == corpus_for_record(str(texts), "de,en")
    assert str(tmp_path) not in path.read_text("utf-8")
    [card] = (tmp_path / "root" / "runs").glob("*/discriminator/README.md")
    assert "my texts@" in card.read_text("utf-8") and str(tmp_path) not in card.read_text("utf-8")
