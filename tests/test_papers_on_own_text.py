"Every paper on a folder of text, resumed once, and on a `Corpus` made in Python; what is absent is said."

import json
from itertools import product

import pytest
from conftest import write

from xlnb import meta_xlm, translation, veco, xlm_e, xy_lent
from xlnb.base.core import ConfigError, DataError
from xlnb.pretraining.pretraining import absent_measures, run
from xlnb.results import static_runs
from xlnb.text.batches import data_folder
from xlnb.text.corpora import Corpus
from xlnb.text.own import open_corpus

pytestmark = pytest.mark.usefixtures("root")

NOUNS = {
    "de": "Hund Katze Vogel Fisch Pferd Kuh Maus Wolf".split(),
    "en": "dog cat bird fish horse cow mouse wolf".split(),
    "ru": "собака кошка птица рыба лошадь корова мышь волк".split(),
}
VERBS = {
    "de": "sieht hört ruft sucht findet mag".split(),
    "en": "sees hears calls seeks finds likes".split(),
    "ru": "видит слышит зовёт ищет находит любит".split(),
}
SENTENCES = {
    lang: [" ".join(words) for words in product(NOUNS[lang], VERBS[lang], NOUNS[lang])]
    for lang in NOUNS
}
SHARED = dict(langs="de,en,ru", width=32, layers=2, batch_tokens=64, micro_tokens=128)
PAPERS = {
    "XLM-E": (xlm_e, {}),
    "XY-LENT": (xy_lent, {}),
    "MetaXLM": (meta_xlm, {"meta_steps": 1, "dictionaries": "induced"}),
    "VECO": (veco, {}),
    "translation": (
        translation,
        {
            "source": "ru",
            "target": "en",
            "start": "mlm+tlm",
            "pretraining_steps": 1,
            "snapshots": 1,
            "batch_tokens": 256,
        },
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "Three languages line by line: 320 sentences to train on, 32 held out, 32 for a test."
    folder = tmp_path_factory.mktemp("texts") / "letters"
    for lang, lines in SENTENCES.items():
        mixed = [lines[(k * 101) % len(lines)] for k in range(len(lines))]
        write(folder / f"train.{lang}", "\n".join(mixed[:320]) + "\n")
        write(folder / f"valid.{lang}", "\n".join(mixed[320:352]) + "\n")
        write(folder / f"test.{lang}", "\n".join(mixed[352:]) + "\n")
    return folder


def corpus(**parts):
    "The same text as a `Corpus`."
    text = {lang: lines[::2] for lang, lines in SENTENCES.items()}
    pairs = {}
    valid = {}
    for a, b in (("de", "en"), ("de", "ru"), ("en", "ru")):
        pairs[f"{a}-{b}"] = list(zip(SENTENCES[a][::2], SENTENCES[b][::2]))
        valid[f"{a}-{b}"] = list(zip(SENTENCES[a][1::8], SENTENCES[b][1::8]))
    usual = {"langs": ("de", "en", "ru"), "text": text, "pairs": pairs, "valid": valid, "tests": {}}
    return Corpus(**{"name": "own", **usual, **parts})


def without(pairs: dict, *names):
    return {pair: rows for pair, rows in pairs.items() if pair not in names}


def one_step(paper, corpus, **settings):  # a folder, or a `Corpus`
    "The record after one more step of two: in no time one step is trained and the least is measured."
    if isinstance(corpus, str):
        settings["corpus"] = corpus
        corpus = None
    elif "vocab_size" not in settings:
        settings["vocab_size"] = 80
    resolved = paper.resolve(paper.Settings(**SHARED | settings, steps=2, max_minutes=1e-9))
    return run(paper.RECIPE, resolved, corpus)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_reads_a_folder_and_resumes(name, folder, capsys):
    paper, settings = PAPERS[name]
    records = [one_step(paper, str(folder), **settings) for _ in range(2)]
    assert [record["run"]["finished"] for record in records] == [False, True]
    assert records[0]["run"]["model"] == records[1]["run"]["model"]
    assert records[1]["parameters"]["corpus"].startswith("letters@")
    assert str(folder) not in json.dumps(records)
    assert records[1]["metrics"] and records[1]["curve"]
    assert paper.RECIPE.describe(records[1])
    assert "no gold links in this corpus: no alignment error rate" in capsys.readouterr().out


def test_static_runs_go_on_without_a_lexicon(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    settings = settings_of(static_runs, teacher="lsa", vocab_size=80, batch_tokens=128, words=192)
    data = static_runs.prepare_data(settings, corpus())
    assert data.lexicon == ({}, {})
    assert static_runs.lsa_space(settings, data).keys() == {"de", "en", "ru"}
    assert static_runs.word_tests(data.lexicon[1], "en") == {}
    assert "no lexicon of de and en: no translation of words" in capsys.readouterr().out


@pytest.mark.slow
def test_a_corpus_made_in_python_is_named_in_the_record():
    record = one_step(xlm_e, corpus())
    assert record["parameters"]["corpus"].startswith("own@")
    assert record["corpus"]["name"] == "own"
    assert xlm_e.describe(record)


@pytest.mark.slow
def test_text_alone_is_enough_for_tasks_without_pairs(capsys):
    alone = corpus(pairs={}, valid={}, valid_text={k: v[1::8] for k, v in SENTENCES.items()})
    record = one_step(meta_xlm, alone, meta_steps=1, meta_vocab_size=35)
    assert record["metrics"] == {} and record["meta"]["loss"] > 0
    assert any(name.startswith("held_out/mlm/") for name in record["curve"][-1])
    assert "no held-out pairs in this corpus" in capsys.readouterr().out
    assert one_step(veco, alone, tasks="ca-mlm")["attention"] == []
    assert "held_out/text_mlm" in one_step(xlm_e, alone, tasks="mrtd")["curve"][-1]


def test_a_folder_of_text_alone_has_a_share_held_out(tmp_path):
    for lang, lines in SENTENCES.items():
        write(tmp_path / "letters" / f"{lang}.txt", "\n".join(lines) + "\n")
    own = open_corpus(str(tmp_path / "letters"))
    assert own.valid == {} and own.pairs == {}
    for lang, lines in SENTENCES.items():
        held_out = set(own.valid_text[lang])
        assert 0 < len(held_out) < len(lines) / 10
        assert list(own.text[lang]) == [line for line in lines if line not in held_out]
    data = meta_xlm.prepare_data(settings_of(meta_xlm, vocab_size=80, meta_vocab_size=35), own)
    assert meta_xlm.hold_out(settings_of(meta_xlm), data, "en").texts.keys() == {"de", "en", "ru"}


def test_what_is_not_measured_is_said():
    gold = "no gold links in this corpus: no alignment error rate"
    assert gold in absent_measures(corpus())
    assert len(absent_measures(corpus(valid={}))) == 3
    assert absent_measures(corpus(langs=("de", "en", "ru", "xx")))[-1] == gold


def settings_of(paper, **changes):
    return paper.resolve(paper.Settings(**{**SHARED, **changes}))


@pytest.mark.parametrize(
    "bitext, lacking, said",
    [
        ("x-y", ("de-en", "de-ru"), "chooses among the pairs of three .*: en-ru.*train XLM-E"),
        ("x-y", ("de-en", "de-ru", "en-ru"), "has in de,en,ru: none"),
        ("x-y", ("de-ru",), r"all have en \(de-en, en-ru\): that is bitext='en-x'"),
        ("en-x", ("de-en", "en-ru"), "reads pairs with en, and own has none: choose another pivot"),
    ],
)
def test_bitext_that_xy_lent_cannot_read(bitext, lacking, said):
    own = corpus(pairs=without(corpus().pairs, *lacking))
    with pytest.raises(DataError, match=said):
        xy_lent.open_bitext(settings_of(xy_lent, bitext=bitext), own)


def test_small_pairs_are_left_out_and_that_is_said(capsys):
    pairs = corpus().pairs
    pairs["de-ru"] = pairs["de-ru"][:20]
    with pytest.raises(DataError, match="that is bitext='en-x'"):
        xy_lent.open_bitext(settings_of(xy_lent, min_pair_lines=100), corpus(pairs=pairs))
    assert capsys.readouterr().out == "min_pair_lines=100 leaves out de-ru (20)\n"
    row = xy_lent.compare_with_paper(settings_of(xy_lent, min_pair_lines=100))[1]
    assert (row["paper"], row["this run"]) == ("50,000 sentences", "100")


def test_xy_lent_takes_all_that_a_corpus_has():
    pairs = corpus().pairs
    pairs["de-ru"] = pairs["de-ru"][:20]
    lines = {pair: len(rows) for pair, rows in pairs.items()}
    read = xy_lent.open_bitext(settings_of(xy_lent, amounts="corpus"), corpus(pairs=pairs))
    assert read.facts["pairs"] == lines
    assert {pair: list(rows) for pair, rows in read.pairs.items()} == pairs
    with pytest.raises(ConfigError, match="'cldr', which has as many sentences as it is asked for"):
        xy_lent.open_bitext(settings_of(xy_lent, amounts="corpus"))


def test_another_choice_of_a_folders_pairs_has_another_store(folder):
    opened = open_corpus(str(folder), "de,en,ru")
    chosen = [xy_lent.open_bitext(settings_of(xy_lent, pair_lines=n), opened) for n in (90, 120)]
    assert len({data_folder(bitext, 80) for bitext in chosen}) == 2


def test_languages_of_pairs_alone_are_in_the_shared_vocabulary():
    text = {lang: lines for lang, lines in corpus().text.items() if lang != "ru"}
    settings = settings_of(xy_lent, vocab_size=80)
    data = xy_lent.prepare_data(settings, corpus(text=text))
    assert data.tokenizer.unk_token_id not in data.tokenizer("собака видит волк")["input_ids"]


@pytest.mark.parametrize("kind", ["pairs", "valid"])
def test_translation_names_the_pairs_that_there_are(kind):
    own = corpus(**{kind: without(getattr(corpus(), kind), "en-ru")})
    settings = settings_of(translation, source="en", target="ru", vocab_size=80)
    with pytest.raises(DataError, match="no .*pairs of en-ru, .*among de-en, de-ru"):
        translation.prepare_data(settings, own)


def test_metaxlm_asks_for_text_of_its_source():
    text = {"de": SENTENCES["de"], "ru": SENTENCES["ru"]}
    with pytest.raises(DataError, match="no text of en, .*among de, ru, or give the folder"):
        meta_xlm.prepare_data(settings_of(meta_xlm, vocab_size=80), corpus(text=text))


def test_languages_without_a_dictionary_are_named(capsys):
    own = corpus(pairs=without(corpus().pairs, "en-ru"))
    found = meta_xlm.find_dictionaries(settings_of(meta_xlm, dictionaries="induced"), own)
    assert [*found] == ["de"]
    assert "no dictionary of ru: own has no pairs with en; " in capsys.readouterr().out


def test_tests_of_ones_own_are_those_of_the_record():
    metrics = {"news/de-en/layer1/acc@1c": 0.5, "news/de-en/layer1/acc@1": 0.5}
    record = {"parameters": {"corpus": "letters@01234567"}, "metrics": metrics}
    assert meta_xlm.tests_of(record) == [("news", "acc@1c", "news, accuracy@1, %")]


def test_held_out_pairs_of_one_sentence_are_refused():
    same = [("ein Hund", "a dog")] * 9
    data = xlm_e.prepare_data(settings_of(xlm_e, vocab_size=80), corpus(valid={"de-en": same}))
    with pytest.raises(DataError, match="pairs of de-en have one de sentence, 'ein Hund'"):
        xlm_e.measures(settings_of(xlm_e, vocab_size=80), data)
