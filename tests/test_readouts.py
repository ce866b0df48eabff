"Tasks that train nothing: mining beside a brute force, lexicons and similarity of word vectors, FLORES in both forms."

import warnings
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import write
from hypothesis import given
from hypothesis import strategies as st

from xlnb.base.core import ConfigError, DataError, pair_name, paper_table
from xlnb.text.corpora import LANGUAGES, language_code
from xlnb.text.vectors import WordVectors
from xlnb.measures import readouts
from xlnb.measures.readouts import (
    READ,
    TATOEBA,
    _cldr_tasks,
    _gold,
    _available_tatoeba,
    best_threshold,
    flores_tests,
    halves_f1,
    mined_pairs,
    mining_f1,
    rated_pairs,
    vector_files,
    word_space,
)
from xlnb.measures.task_sets import TASK_SETS
from xlnb.evaluation import Settings, evaluate, model_hash, score_table

pytestmark = pytest.mark.filterwarnings("ignore:word_similarity")  # said on purpose

NUMBERS = "one two three four five six".split()
ZAHLEN = "eins zwei drei vier fünf sechs".split()


def by_hand(taken, gold):
    right = len(taken & gold)
    if not right:
        return 0.0
    precision = right / len(taken)
    recall = right / len(gold)
    return 200 * precision * recall / (precision + recall)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8), st.integers(0, 3)
)
def test_no_other_threshold_has_a_better_f1(drawn, missed):
    # no two scores are equal
    found = [(score + n / 100, n, n) for n, (score, _) in enumerate(drawn)]
    found.sort(reverse=True)
    gold = {(n, n) for n, (_, right) in enumerate(drawn) if right} | {
        (100 + n, 0) for n in range(missed)
    }
    if not any(right for _, right in drawn):
        assert mining_f1(found, gold, best_threshold(found, gold)) == 0  # nothing is taken
        return
    every = [by_hand({(i, j) for s, i, j in found if s >= score}, gold) for score, *_ in found]
    assert mining_f1(found, gold, best_threshold(found, gold)) == pytest.approx(max(every))


def test_languages_of_one_set_do_not_end_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    for lang in ("deu", "fra"):
        for end, text in ((lang, "eins"), ("eng", "one")):
            write(tmp_path / "tatoeba-laser" / "v1" / f"tatoeba.{lang}-eng.{end}", f"{text}\n")
    with pytest.warns(UserWarning, match="no file of ace$"):  # Tatoeba lists no Acehnese
        assert {*_available_tatoeba("de,en,fr,ace")} == {"de-en", "en-fr"}
    with pytest.warns(UserWarning, match="no file of ja, ace$"):
        assert {*_available_tatoeba("de,ace,ja")} == {"de-en"}
    with pytest.raises(FileNotFoundError, match=r"tatoeba\.jpn-eng\.jpn.*Licence"):
        _available_tatoeba("ja")
    with pytest.raises(ConfigError, match="langs='en,ace': Tatoeba pairs English with af, am"):
        _available_tatoeba("en,ace")
    with pytest.raises(ConfigError, match="links are of two languages"):
        _gold("de")
    assert {"en", "de"} == {*next(iter(_cldr_tasks("de", "en").values())).examples}


GOOD = "".join(f"{word}\n" for word in NUMBERS)
BAD = "".join(f"{word}\n" for word in NUMBERS[:4])
RATED = "one\tone\t4\none\ttwo\t1\ntwo\tthree\t2\n"
TATOEBA_FILE = "tatoeba-laser/v1/tatoeba.{}-eng.{}"
FLORES = "floresp-v2/devtest/devtest.{}"
WORDS = "muse-dictionaries/{}.{}"
SIMILAR = "semeval2017-task2/{}.test.txt"
LINKS = "word-alignment/alignment-test-sets/{}/{}"
DAMAGED = {  # task → the file of French that is damaged, its text, file and line of the message, what it says
    "tatoeba": (TATOEBA_FILE.format("fra", "fra"), BAD, 4, "ends after 4 lines"),
    "flores": (FLORES.format("fra_Latn"), BAD, 4, "ends after 4 lines"),
    "bli": (WORDS.format("en-fr", "5000-6500.txt"), "one un\ntwo\n", 2, "expected a word"),
    "word_alignment": (LINKS.format("en-fr", "alignv2.txt"), "1 1 1\n1 1\n", 2, ""),
    "word_similarity": (SIMILAR.format("fr"), "un\tun\n", 1, "expected word, tab"),
}


def sets_of(root, *langs):
    "Every set in small, of English with some languages: (our code, the other two)."
    write(root / FLORES.format("eng_Latn"), GOOD), write(root / SIMILAR.format("en"), RATED)
    for lang, long, pair in langs:
        for side in (long, "eng"):
            write(root / TATOEBA_FILE.format(long, side), GOOD)
        write(root / FLORES.format(f"{long}_Latn"), GOOD), write(root / SIMILAR.format(lang), RATED)
        for way in (f"en-{lang}", f"{lang}-en"):
            for part in ("0-5000", "5000-6500"):
                write(root / WORDS.format(way, f"{part}.txt"), "one one\ntwo deux\n")
        for side in (lang, "en"):
            write(root / LINKS.format(pair, f"test.{side}"), "one two\n" * 2)
        first = lang == "de"  # German is counted from 0
        write(
            root / LINKS.format(pair, "alignv2.txt"), "".join(f"{n - first} 1 1\n" for n in (1, 2))
        )


@pytest.fixture
def sets(tmp_path, monkeypatch):
    (
        monkeypatch.setenv("XLNB_DATA", str(tmp_path)),
        monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache")),
    )
    sets_of(tmp_path, ("de", "deu", "de-en"), ("fr", "fra", "en-fr"))
    return tmp_path


@pytest.mark.parametrize("task", DAMAGED)
def test_a_damaged_file_is_named_and_the_other_languages_are_scored(task, sets):
    (file, text, line, says), (_, baseline) = DAMAGED[task], READ[task]
    whole = baseline("en,de,fr", "en")
    langs = lambda rows: {lang for r in rows for lang in r["target"].split("-")}
    assert langs(whole) == {"de", "en", "fr"}
    write(sets / file, text)
    with pytest.warns(UserWarning, match=f"{task} leaves out .*fr.* \\(.*{file}:{line}: .*{says}"):
        rest = baseline("en,de,fr", "en")
    assert rest == [r for r in whole if "fr" not in r["target"]] and langs(rest) == {"de", "en"}
    alone = "fr" if task == "word_similarity" else "en,fr"
    with pytest.raises(DataError, match=f"{file}:{line}: .*{says}"):
        baseline(alone, "en")
    write(sets / file, "")
    with pytest.warns(UserWarning, match=f"{task} leaves out .*fr"):
        assert baseline("en,de,fr", "en") == rest


@pytest.mark.parametrize("place", ["nowhere", "an empty folder"])
@pytest.mark.parametrize(
    "task, langs, file, licence",
    [
        ("tatoeba", "de,fr", "tatoeba.deu-eng.deu", "CC BY 2.0 FR"),
        ("flores", "de,fr", "devtest.*", "CC BY-SA 4.0"),
        ("mining", "oc,es", "oci-es.train.oci", "CC BY-SA"),
        ("mining", "de,en", "de-en.training.de", "none stated"),
        ("word_alignment", "de,en", "alignv2.txt", "research use"),
        ("bli", "de", "en-de.5000-6500.txt", "CC BY-NC 4.0"),
        ("word_similarity", "de", "semeval2017-task2/{lang}.test.txt", "none stated"),
    ],
)
def test_an_absent_set_says_file_place_and_licence(
    task, langs, file, licence, place, tmp_path, monkeypatch
):
    monkeypatch.delenv("XLNB_CACHE", raising=False), monkeypatch.delenv("XLNB_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)  # outside a checkout there is no cache that could name the file
    if place == "nowhere":
        monkeypatch.delenv("XLNB_DATA", raising=False)
    else:
        monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as e:
        READ[task][1](langs, "en")
    assert file in str(e.value) and "XLNB_DATA" in str(e.value) and licence in str(e.value)


def test_bytes_that_are_not_the_published_ones_are_left_out(sets):
    assert {*_available_tatoeba("de,fr")} == {"de-en", "en-fr"}
    write(sets / "tatoeba-laser" / "SHA256SUMS", f"{'0' * 64}  v1/tatoeba.fra-eng.eng\n")
    with pytest.warns(UserWarning, match=r"leaves out fr \(.*tatoeba\.fra-eng\.eng: sha256 is"):
        assert {*_available_tatoeba("de,fr")} == {"de-en"}


def test_the_languages_of_tatoeba_means_are_those_of_the_tables():
    for table in (("static", "table12_tatoeba"), ("veco", "table17_tatoeba")):
        assert {r["lang"] for r in paper_table(*table)} == {*TATOEBA["tatoeba-36"]}
    assert {*TATOEBA["tatoeba-14"]} == {*TASK_SETS["xnli"].languages} - {"en"}
    assert [*map(len, TATOEBA.values())] == [14, 36]


def test_means_over_the_papers_languages_where_all_are_there(tmp_path, monkeypatch, recwarn):
    (
        monkeypatch.setenv("XLNB_DATA", str(tmp_path)),
        monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache")),
    )
    for n, lang in enumerate([*TATOEBA["tatoeba-36"], "cs"]):
        code = language_code(lang, "tatoeba")
        same = GOOD.splitlines(keepends=True)
        # 0 or 100 %
        write(tmp_path / TATOEBA_FILE.format(code, code), "".join(same[n % 4 :] + same[: n % 4]))
        write(tmp_path / TATOEBA_FILE.format(code, "eng"), GOOD)
    rows = READ["tatoeba"][1](",".join(LANGUAGES), "en")
    scores = {(r["task"], r["measure"], r["target"]): r for r in rows}
    for name, langs in TATOEBA.items():
        for measure in ("accuracy@1", "accuracy@1, to en", "accuracy@1, from en"):
            mean = scores[name, measure, f"{len(langs)} languages"]
            own = [scores["tatoeba", measure, pair_name(lang, "en")]["score"] for lang in langs]
            assert mean["score"] == pytest.approx(sum(own) / len(langs)) and 0 < mean["score"] < 100
            assert (mean["examples"], mean["system"]) == (6 * len(langs), "shared trigrams")
    assert len(rows) == 3 * (37 + 2)
    # in which the means are not averaged again
    table = score_table(pd.DataFrame(rows), "tatoeba")
    every = [r["score"] for r in rows if r["task"] == "tatoeba" and r["measure"] == "accuracy@1"]
    assert len(every) == 37 and table["mean"].item() == pytest.approx(sum(every) / 37)
    assert score_table(pd.DataFrame(rows), "tatoeba-36")["mean"].item() == pytest.approx(
        scores["tatoeba-36", "accuracy@1", "36 languages"]["score"]
    )
    assert {r["task"] for r in READ["tatoeba"][1]("de,fr", "en")} == {"tatoeba"}
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]
    (tmp_path / TATOEBA_FILE.format("jpn", "jpn")).unlink()
    with pytest.warns(UserWarning, match="tatoeba-36 has no mean: ja lack"):
        rows = READ["tatoeba"][1](",".join(LANGUAGES), "en")
    assert {r["task"] for r in rows} == {"tatoeba", "tatoeba-14"}


def test_languages_that_a_set_lacks_are_named(sets):
    with pytest.warns(UserWarning, match="^bli has no file of ace$"):  # MUSE lists none
        assert {r["target"] for r in READ["bli"][1]("de,en,ace", "en")} == {"de-en"}
    with pytest.warns(UserWarning, match="^word_similarity has no file of sw, de-en$"):
        assert {*rated_pairs("de,sw,en")} == {("de", "de"), ("en", "en")}
    write(sets / SIMILAR.format("de-en"), RATED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert {*rated_pairs("en,de")} == {("de", "de"), ("de", "en"), ("en", "en")}


def test_word_vectors_and_spelling_need_no_training_files(space, sets):
    lexicon_files(sets)
    for way in ("en-de", "de-en"):
        (sets / WORDS.format(way, "0-5000.txt")).unlink()
    for rows in (READ["bli"][0](space, "de", "en"), READ["bli"][1]("de", "en")):
        assert {r["target"] for r in rows} == {"de-en"}


def test_an_encoder_chooses_among_the_words_of_test_and_training(sets, monkeypatch):
    for way, text in (("en-de", "six sechs\n"), ("de-en", "sieben seven\n")):
        write(sets / WORDS.format(way, "0-5000.txt"), text)
    asked = {}

    def word_space(model, lang, words, **_):
        asked[lang] = words
        return WordVectors(words, torch.eye(len(words)), lang)

    monkeypatch.setattr(readouts, "word_space", word_space)
    READ["bli"][0]("an encoder", "de", "en")
    assert {lang: {*words} for lang, words in asked.items()} == {
        "en": {"one", "two", "deux", "six", "seven"},
        "de": {"one", "deux", "two", "sechs", "sieben"},
    }
    (sets / WORDS.format("de-en", "0-5000.txt")).unlink()
    with pytest.raises(FileNotFoundError, match="0-5000"):
        READ["bli"][0]("an encoder", "de", "en")


def test_global_scores_of_similarity_are_means_of_the_best(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    words = [(a, b) for a in NUMBERS for b in NUMBERS]
    for pair in (
        *"en de es it fa".split(),
        *map("-".join, combinations("en de es it fa".split(), 2)),
    ):
        # people who agree with the strings more or less
        rng = np.random.default_rng([*pair.encode()])
        rated = "".join(f"{a}\t{b}\t{(a == b) + rng.uniform():.3f}\n" for a, b in words)
        write(tmp_path / SIMILAR.format(pair), rated)
    rows = READ["word_similarity"][1]("en,de,es,it,fa", "en")
    for most, kind, hyphens in ((4, "best 4 languages", 0), (6, "best 6 pairs", 1)):
        own = [
            r["score"]
            for r in rows
            if r["task"] == "word_similarity" and r["target"].count("-") == hyphens
        ]
        (found,) = (r for r in rows if r["task"] == f"word_similarity-{most}")
        assert (
            found["score"] == pytest.approx(sum(sorted(own)[-most:]) / most)
            and len({*own}) == len(own) > most
        )
        assert (found["target"], found["examples"]) == (kind, most * len(words))
        assert (found["measure"], found["system"]) == ("harmonic mean", "shared trigrams")
    (tmp_path / SIMILAR.format("fa")).unlink()
    # of four languages there are six pairs
    assert {r["task"] for r in READ["word_similarity"][1]("en,de,es,it", "en")} == {
        f"word_similarity{more}" for more in ("", "-4", "-6")
    }
    assert {r["task"] for r in READ["word_similarity"][1]("en,de,es", "en")} == {"word_similarity"}


def test_a_language_without_vectors_does_not_end_the_others(space, sets):
    lexicon_files(sets)
    with pytest.warns(
        UserWarning, match="bli leaves out fr .*no vectors of 'fr', there are en, de"
    ):
        assert {r["target"] for r in READ["bli"][0](space, "de,fr", "en")} == {"de-en"}
    with pytest.warns(UserWarning, match="word_similarity leaves out fr .*no vectors of 'fr'"):
        assert {r["target"] for r in READ["word_similarity"][0](space, "en,fr", "en")} == {"en"}


def test_kept_rows_say_again_what_was_left_out(space, sets):
    lexicon_files(sets)
    write(sets / WORDS.format("fr-en", "5000-6500.txt"), "un\n")
    settings = Settings(space, "bli", "de,fr", controls=False, out=str(sets / "out"))
    for _ in range(2):  # computed, and read
        with pytest.warns(
            UserWarning, match=r"bli leaves out fr \(.*fr-en\.5000-6500\.txt:1: expected a word"
        ):
            assert {*evaluate(settings).target} == {"de-en"}


def test_of_all_languages_that_are_known_absent_files_are_no_news(sets, recwarn):
    for task in DAMAGED:
        assert READ[task][1](",".join(LANGUAGES), "en")
    said = [str(w.message) for w in recwarn if issubclass(w.category, UserWarning)]
    assert [text.partition(":")[0] for text in said] == [f"{name} has no mean" for name in TATOEBA]


def test_mined_pairs_are_those_of_a_greedy_choice_over_all_scores():
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((n, 5)) for n in (12, 9))
    cosine = (first @ second.T) / np.outer(
        *(np.linalg.norm(side, axis=1) for side in (first, second))
    )
    candidates = {(i, int(row.argmax())) for i, row in enumerate(cosine)}
    candidates |= {(int(column.argmax()), j) for j, column in enumerate(cosine.T)}
    expected = []
    rows = set()
    columns = set()
    for i, j in sorted(candidates, key=lambda pair: -cosine[pair]):
        if i in rows or j in columns:
            continue
        expected.append((i, j))
        rows.add(i), columns.add(j)
    found = mined_pairs(first, second, "cosine")
    assert [(i, j) for _, i, j in found] == expected
    assert [s for s, *_ in found] == pytest.approx([cosine[pair] for pair in expected])


def mining_files(folder, pair, ids, parts):  # ids: what they begin with on each side
    for part in parts:
        lines = [f"{word} {part} {n}" for n, word in enumerate(NUMBERS * 4)]
        for code, side in zip(pair.split("-"), ids):
            # one is repeated
            text = "".join(f"{side}-{n:09}\t{line}\n" for n, line in enumerate([lines[-1], *lines]))
            write(folder / f"{pair}/{pair}.{part}.{code}", text)
        gold = "".join("\t".join(f"{side}-{n:09}" for side in ids) + "\n" for n in range(25))
        write(folder / f"{pair}/{pair}.{part}.gold", gold)


@pytest.mark.parametrize(
    "folder, pair, ids, langs, train",
    [
        ("bucc-style-belopsem", "oci-es", ("src", "trg"), "oc,es", "train"),
        ("bucc2018", "de-en", ("de", "en"), "de,en", "training"),
        ("bucc2018", "zh-en", ("zh", "en"), "en,zh", "training"),
    ],
)
@pytest.mark.parametrize("test", [["test"], []])
def test_the_threshold_comes_from_other_sentences_than_are_scored(
    folder, pair, ids, langs, train, test, tmp_path, monkeypatch
):
    (
        monkeypatch.setenv("XLNB_DATA", str(tmp_path)),
        monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache")),
    )
    mining_files(tmp_path / folder, pair, ids, [train, *test])
    (found,) = READ["mining"][1](langs, "en")
    assert found["target"] == pair_name(*langs.split(","))
    # the repeated sentence counts once
    assert (found["examples"], found["part"]) == (24, [train, *test][-1])
    # a threshold can lie above the weakest pair of what it was not learned from
    assert 95 < found["score"] <= 100


def test_the_test_is_cut_off_where_the_training_part_says(tmp_path, monkeypatch):
    (
        monkeypatch.setenv("XLNB_DATA", str(tmp_path)),
        monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache")),
    )
    mining_files(tmp_path / "bucc2018", "de-en", ("de", "en"), ["training", "test"])
    # 0.55 is best
    mined = iter([[(0.9, 0, 0), (0.8, 1, 1), (0.3, 2, 3)], [(0.7, 0, 0), (0.6, 1, 2), (0.4, 2, 2)]])
    monkeypatch.setattr(readouts, "mined_pairs", lambda *_: next(mined))
    assert READ["mining"][1]("de,en", "en")[0]["score"] == pytest.approx(
        by_hand({(0, 0), (1, 2)}, {(n, n) for n in range(24)})
    )


def test_each_mined_pair_is_asked_where_both_languages_are(tmp_path, monkeypatch, recwarn):
    (
        monkeypatch.setenv("XLNB_DATA", str(tmp_path)),
        monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache")),
    )

    def targets(langs):
        return [r["target"] for r in READ["mining"][1](langs, "en")]

    mining_files(tmp_path / "bucc-style-belopsem", "oci-es", ("src", "trg"), ["train"])
    assert targets(",".join(LANGUAGES)) == ["es-oc"] and not recwarn
    with pytest.raises(
        FileNotFoundError,
        match=r"'bucc2018'.*de-en\.training\.de.*comparable.limsi.fr.*Licence: none",
    ):
        targets("de,en")
    with pytest.warns(UserWarning, match="mining has no file of de-en"):
        assert targets("de,en,es,oc") == ["es-oc"]
    for lang in ("de", "fr"):
        mining_files(tmp_path / "bucc2018", f"{lang}-en", (lang, "en"), ["training", "test"])
    assert targets("de,en,es,oc") == ["es-oc", "de-en"]
    write(tmp_path / "bucc2018/fr-en/fr-en.test.gold", "fr-000000001\ten-1\n")
    with pytest.warns(
        UserWarning, match=r"mining leaves out en-fr \(.*fr-en\.test\.gold:1: id 'en-1' is not in"
    ):
        assert targets("de,en,es,fr") == ["de-en"]
    with pytest.raises(
        ConfigError, match="langs='de,es': mining is of two languages, of es-oc, de-en"
    ):
        targets("de,es")


def test_a_half_whose_threshold_is_wrong_for_the_other_loses_its_pairs():
    found = [(0.9, 0, 0), (0.8, 2, 2), (0.5, 1, 1), (0.4, 3, 3)]
    gold = {(n, n) for n in range(4)}
    assert halves_f1(found, gold) == pytest.approx(by_hand({(0, 0), (2, 2)}, gold))
    assert halves_f1(found, gold - {(2, 2)}) == pytest.approx(
        by_hand({(0, 0), (2, 2)}, gold - {(2, 2)})
    )


@pytest.fixture
def space(tmp_path):
    "German numbers beside English ones, two of them exchanged."
    matrix = torch.eye(6) + 0.1
    order = [0, 1, 2, 3, 5, 4]
    folder = tmp_path / "vectors"
    folder.mkdir()
    WordVectors(NUMBERS, matrix, "en").save(folder / "en.safetensors")
    WordVectors(ZAHLEN, matrix[order]).save(folder / "wiki.de.align.vec")
    return str(folder)


def lexicon_files(root):
    for pair, first, second in (("en-de", NUMBERS, ZAHLEN), ("de-en", ZAHLEN, NUMBERS)):
        for part in ("0-5000", "5000-6500"):
            rows = [*zip(first, second), ("absent", "abwesend")]
            write(
                root / f"muse-dictionaries/{pair}.{part}.txt",
                "".join(f"{a} {b}\n" for a, b in rows),
            )


def test_word_vectors_go_through_the_one_call(space, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    lexicon_files(tmp_path)
    rated = [
        ("one", "one", 4),
        ("one", "two", 1),
        ("two", "two", 4),
        ("six", "one", 1),
        ("none", "one", 2),
    ]
    write(
        tmp_path / "semeval2017-task2/en.test.txt", "".join(f"{a}\t{b}\t{n}\n" for a, b, n in rated)
    )
    scores = evaluate(Settings(space, "bli,word_similarity", "de,en", out=str(tmp_path / "out")))
    # vectors have no untrained network
    assert {*scores.system} == {"model", "spelling", "shared trigrams"}
    own = scores[scores.system == "model"].set_index("measure")
    assert own.score["accuracy@1"] == pytest.approx(100 * 4 / 6) and own.score["accuracy@5"] == 100
    assert (
        own.coverage["accuracy@1"] == pytest.approx(100 * 6 / 7) and own.choices["accuracy@1"] == 12
    )
    # equal cosines can differ in the last bit, and so in rank
    assert own.score["harmonic mean"] > 90
    assert own.examples["harmonic mean"] == 4
    with pytest.raises(
        ConfigError, match="holds word vectors, of which cldr, xnli can not be asked"
    ):
        evaluate(Settings(space, "bli,cldr,xnli", "de,en", out=str(tmp_path / "out")))


def test_files_of_vectors_are_known_by_the_language_in_their_names(space, tmp_path):
    assert {lang: path.name for lang, path in vector_files(space).items()} == {
        "en": "en.safetensors",
        "de": "wiki.de.align.vec",
    }
    assert [*vector_files(f"{space}/wiki.de.align.vec")] == ["de"] and vector_files(
        tmp_path / "nothing"
    ) == {}
    with pytest.raises(DataError, match="no vectors of 'fr', there are en, de"):
        word_space(space, "fr", [])
    before = model_hash(space)
    WordVectors(ZAHLEN, torch.eye(6)).save(f"{space}/wiki.de.align.vec")
    assert model_hash(space) != before


def test_what_is_absent_is_named_with_its_licence_and_the_rest_is_tested(
    space, tmp_path, monkeypatch
):
    (
        monkeypatch.setenv("XLNB_DATA", str(tmp_path)),
        monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "cache")),
    )
    settings = Settings(
        space, "bli,word_similarity", "de,en", controls=False, out=str(tmp_path / "out")
    )
    with pytest.raises(
        DataError,
        match="bli: the set 'muse'.*CC BY-NC.*word_similarity: .*semeval2017-task2.*Licence",
    ):
        evaluate(settings)
    lexicon_files(tmp_path)
    with pytest.warns(UserWarning, match="1 tests were left out: word_similarity: "):
        scores = evaluate(settings)
    assert {*scores.task} == {"bli"}


@pytest.mark.parametrize(
    "name", ["flores200_dataset/devtest/{}.devtest", "floresp-v2.0-rc.3/devtest/devtest.{}"]
)
def test_both_forms_of_flores(name, tmp_path):
    for code, lines in {
        "eng_Latn": "One.\nTwo.\n",
        "zho_Hant": "一。\n二。\n",
        "swh_Latn": "Moja.\n",
    }.items():
        write(tmp_path / name.format(code), lines)
    with pytest.warns(UserWarning, match="flores has no file of de, fr"):
        found = flores_tests("en,zh-Hant,de,fr", root=tmp_path)
    assert found == {"en-zh-Hant": (["One.", "Two."], ["一。", "二。"])}
    with pytest.raises(
        FileNotFoundError, match=r"FLORES has no file of de: looked for .*\*.*CC BY-SA 4.0"
    ):
        flores_tests("de,fr", root=tmp_path)
    with pytest.raises(ConfigError, match="langs='en': FLORES pairs en with en, sw, zh-Hant"):
        flores_tests("en", root=tmp_path)
    with pytest.warns(
        UserWarning, match="flores leaves out sw .*swh_Latn.*:1: this file ends after 1 lines"
    ):
        assert [*flores_tests("sw,zh-Hant", root=tmp_path)] == ["en-zh-Hant"]
    with pytest.raises(DataError, match="swh_Latn.*:1: this file ends after 1 lines"):
        flores_tests("sw", root=tmp_path)
    with pytest.raises(ConfigError, match="'fr'"):
        flores_tests("sw", source="fr", root=tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"looked for flores200_dataset/dev/\*.dev or .*CC BY-SA 4.0"
    ):
        flores_tests("sw", split="dev", root=tmp_path)


def test_each_direction_of_retrieval_has_a_measure(monkeypatch):
    tests = {"de-en": (["eins", "zwei"], ["one", "two"]), "en-fr": (["one", "two"], ["un", "deux"])}
    found = [
        {
            "pair": pair,
            "forward": 0.2,
            "backward": 0.6,
            "n": 2,
            "centred": centred,
            "each": [0, 0.8],
            "layer": 8,
        }
        for pair in tests
        for centred in (False, True)
    ]
    network = SimpleNamespace(config=SimpleNamespace(num_hidden_layers=12))
    monkeypatch.setattr(readouts, "load_model_and_tokenizer", lambda _: (network, None))
    monkeypatch.setattr(readouts, "retrieval_by_layer", lambda *_, **__: found)
    rows = readouts._retrieval_rows("tatoeba", None, tests, "en")
    assert [(r["measure"], r["each"]) for r in rows if "each" in r] == [("accuracy@1", [0, 80])] * 2
    assert {(r["layer"], r["pool"]) for r in rows} == {(8, "mean_special")}  # XTREME's protocol
    scores = {(r["target"], r["measure"]): r["score"] for r in rows}
    for raw in ("", ", raw"):
        assert (
            scores["de-en", f"accuracy@1{raw}, to en"]
            == scores["en-fr", f"accuracy@1{raw}, from en"]
            == 20
        )
        assert (
            scores["de-en", f"accuracy@1{raw}, from en"]
            == scores["en-fr", f"accuracy@1{raw}, to en"]
            == 60
        )
        assert scores["de-en", f"accuracy@1{raw}"] == pytest.approx(40)
    assert {r["measure"] for r in readouts._shared_trigrams("tatoeba", tests, "en")} == {
        "accuracy@1",
        "accuracy@1, to en",
        "accuracy@1, from en",
    }


def test_pairs_of_words_are_read_as_the_encoder_was_trained_or_in_both_ways(sets, monkeypatch):
    asked = []

    def aer(model, gold, layer, joint):
        asked.append(joint)
        row = dict(layer=8, method="argmax", pairs=2, joint=bool(joint))
        return [row | {"pair": pair, "aer": 0.25} for pair in gold["word_alignment"]]

    monkeypatch.setattr(readouts, "aer_by_layer", aer)
    readout = READ["word_alignment"][0]
    [usual] = readout("model", "de,en", "en")
    assert usual["reading"] == "apart" and "variant" not in usual
    both = readout("model", "de,en", "en", reading="both")
    assert [r["variant"] for r in both] == ["sentences read jointly", "sentences read apart"]
    readout("model", "de,en", "en", reading="joint")
    assert asked == [None, True, False, True]


def test_pairs_of_one_score_are_on_one_side_of_the_threshold():
    mined = [(0.9, 0, 0), (0.5, 1, 1), *((0.5, n, 11 - n) for n in range(2, 6))]
    gold = {(0, 0), (1, 1)}
    threshold = best_threshold(mined, gold)
    assert threshold == pytest.approx(0.7)
    tried = [mining_f1(mined, gold, value) for value in (0.4, 0.5, threshold, 0.95)]
    assert max(tried) == tried[2] == pytest.approx(200 / 3)
