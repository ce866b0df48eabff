"Downstream sets: counts, labels and answers of real files, forms that agree, malformed files of every reader."

import gzip, json, re, shutil
from collections import Counter

import pytest
from conftest import write

from xlnb.base.core import ConfigError, DataError, data_root
from xlnb.text.corpora import NORMALISED, Report
from xlnb.measures.task_sets import (
    KINDS,
    TASK_SETS,
    Choice,
    Labelled,
    Question,
    Tagged,
    read_conllu,
    read_task,
    task_files,
    task_languages,
)

needs_data = pytest.mark.skipif(
    data_root() is None, reason="XLNB_DATA is not set: no downstream sets"
)
XNLI = "ar bg de el en es fr hi ru sw th tr ur vi zh".split()


def here(name, split) -> list[str]:
    "Languages whose files are there; a test of a set without any is skipped."
    return task_languages(name, split) or pytest.skip(f"XLNB_DATA has no {split} files of {name}")


# ---------------------------------------------------------------- counts of the publishers

MLQA = {"en": 1148, "ar": 517, "de": 512, "vi": 511, "hi": 507, "zh": 504, "es": 500}
TYDI = dict(ar=921, bn=113, en=440, fi=782, id=565, ko=276, ru=812, sw=499, te=669)
PANX = {
    lang: size
    for size, langs in {
        10000: "ar bg de el en es et eu fa fi fr he hu id it ja ka ko lt nl pl pt ro ru th tr "
        "uk vi zh",
        1000: "af az bn hi kk ml mr ms sw ta te tl ur",
        100: "gu jv my pa qu yo",
    }.items()
    for lang in langs.split()
}
AMERICAS = "ay bzd gn hch quy shp tar".split()
COUNTS = {
    ("xnli", "dev"): dict.fromkeys(XNLI, 2490),
    ("xnli", "test"): dict.fromkeys(XNLI, 5010),
    ("americasnli", "dev"): dict.fromkeys(AMERICAS, 743) | dict(cni=658, nah=585, oto=222),
    ("americasnli", "test"): dict.fromkeys([*AMERICAS, "cni"], 750) | dict(nah=738, oto=748),
    ("chemprot", "train"): {"en": 4169},
    ("chemprot", "dev"): {"en": 2427},
    ("chemprot", "test"): {"en": 3469},
    ("cls", "sample-train"): {"en": 500},
    ("cls", "sample-test"): {"en": 500},
    ("pan-x", "train"): dict.fromkeys("ar de en es ru zh".split(), 20000) | dict(hi=5000, sw=1000),
    ("ud-pos", "train"): {"en": 21253},
    ("ud-pos", "dev"): dict(de=19233, en=3974, ru=8108),
    ("xquad", "test"): dict.fromkeys("ar de el en es hi ro ru th tr vi zh".split(), 1190),
    ("mlqa", "dev"): MLQA
    | {
        f"{a}-{b}": MLQA[{a, b}.difference(["en"]).pop()]
        for a in MLQA
        for b in MLQA
        if a != b and "en" in (a, b)
    },
    ("tydiqa", "dev"): TYDI,
    ("tydiqa", "train"): dict(en=3696, ko=1625, sw=2755),
    ("squad2", "cs224n-dev"): {"en": 6078},
    ("cola", "train"): {"en": 8551},
    ("cola", "dev"): {"en": 527 + 516},
    ("sst2", "train"): {"en": 67349},
    ("sst2", "dev"): {"en": 872},
    ("mrpc", "train"): {"en": 4076},
    ("mrpc", "test"): {"en": 1725},
    ("stsb", "train"): {"en": 5749},
    ("stsb", "dev"): {"en": 1500},
    ("stsb", "test"): {"en": 1379},
    ("rte", "train"): {"en": 2490},
    ("rte", "dev"): {"en": 277},
    ("qnli", "dev"): {"en": 5463},
    ("mnli", "diagnostic"): {"en": 1104},
}
WORDS = {("ud-pos", "train", "en"): 375_194}


@needs_data
@pytest.mark.filterwarnings("ignore:.*empty text, kept")
@pytest.mark.parametrize("name, split", COUNTS, ids=lambda value: value)
def test_counts_are_the_publishers(name, split):
    languages = [lang for lang in here(name, split) if lang in COUNTS[name, split]]
    assert languages
    for lang in languages:
        examples = read_task(name, lang, split, report=(report := Report()))
        assert len(examples) == COUNTS[name, split][lang], lang
        assert not [what for what in report.left_out if "kept" not in what]
        assert len({example.id for example in examples}) == len(examples)
        if TASK_SETS[name].kind != "tagging":
            continue
        assert {tag for example in examples for tag in example.tags} == set(TASK_SETS[name].labels)
        words = sum(len(example.words) for example in examples)
        assert (
            words
            == sum(len(example.tags) for example in examples)
            == WORDS.get((name, split, lang), words)
        )


@needs_data
@pytest.mark.parametrize("lang", PANX)
def test_pan_x_has_its_sentences(lang):
    if lang not in here("pan-x", "dev"):
        pytest.skip(f"no file of {lang}")
    examples = read_task("pan-x", lang, "dev")
    assert len(examples) == PANX[lang]
    assert {tag for example in examples for tag in example.tags} == set(TASK_SETS["pan-x"].labels)
    assert all(len(example.words) == len(example.tags) for example in examples)


NS = {
    ("de", "dev"): 68,
    ("es", "dev"): 38,
    ("fr", "dev"): 8,
    ("ja", "dev"): 20,
    ("ko", "dev"): 35,
    ("zh", "dev"): 16,
    ("de", "test"): 32,
    ("es", "test"): 1,
    ("fr", "test"): 14,
    ("ja", "test"): 54,
    ("ko", "test"): 28,
    ("zh", "test"): 25,
    ("en", "dev"): 0,
    ("en", "test"): 0,
}


@needs_data
def test_paws_x_without_what_was_not_translated():
    for split in ("dev", "test"):
        for lang in here("paws-x", split):
            examples = read_task("paws-x", lang, split, report=(report := Report()))
            counts = Counter(report.left_out)
            assert len(examples) + counts.total() == 2000
            # in both languages that have test labels
            assert counts["label unknown"] == (6 if split == "test" else 0)
            texts = [text for example in examples for text in example.texts]
            assert (
                "NS" not in texts
                and NS[lang, split] - 6 <= counts["untranslated (NS)"] <= NS[lang, split]
            )
            assert split == "test" or counts["untranslated (NS)"] == NS[lang, split]


@needs_data
def test_labels_of_inference_sets():
    for split, each in (("dev", 830), ("test", 1670)):
        for lang in here("xnli", split):
            labels = Counter(example.label for example in read_task("xnli", lang, split))
            assert labels == dict.fromkeys(("entailment", "neutral", "contradiction"), each)
    assert {example.label for example in read_task("chemprot", "en", "train")} == set(
        TASK_SETS["chemprot"].labels
    )
    sentiment = Counter(example.label for example in read_task("cls", "en", "sample-test"))
    assert sentiment == dict(positive=250, negative=250)
    scores = [float(example.label) for example in read_task("stsb", "en", "dev")]
    assert (min(scores), max(scores)) == (0, 5)


@needs_data
def test_xnli_test_labels_are_those_of_labelled_copies():
    here("xnli", "test")
    found = read_task("xnli", "de", "test")
    folder = data_root() / "xnli" / "labelled"
    lines = gzip.open(folder / "de.test.txt.gz", "rt", encoding="utf-8").read().splitlines()
    assert [example.label for example in found] == [line.split("\t")[2] for line in lines]
    numbers = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    lines = (
        gzip.open(folder / "xnli-es-original.tsv.gz", "rt", encoding="utf-8")
        .read()
        .splitlines()[1:]
    )
    spanish = read_task("xnli", "es", "test")
    assert [example.label for example in spanish] == [
        numbers[line.rpartition("\t")[2]] for line in lines
    ]


@needs_data
def test_paws_x_in_the_publishers_form(tmp_path):
    here("paws-x", "dev")
    for split in ("dev", "test"):
        source = data_root() / "pawsx" / "labelled" / "de" / f"{split}_2k.tsv.gz"
        (folder := tmp_path / "pawsx" / "x-final" / "de").mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder)
        publisher, xtreme = (read_task("paws-x", "de", split, root) for root in (tmp_path, None))
        theirs = {example.texts: example.label for example in publisher}
        assert len(publisher) == 2000 - NS["de", split]
        same = [
            theirs[example.texts] == example.label for example in xtreme if example.texts in theirs
        ]
        assert all(same) and len(same) > 1800  # blanks before punctuation differ in some rows


# ---------------------------------------------------------------- tags


def table_of_treebanks():
    "(treebank, split) → sentences and words, as the folder's SOURCE.md says."
    path = data_root() / "ud-2.5" / "SOURCE.md"
    text = path.read_text() if path.exists() else pytest.skip("XLNB_DATA has no treebanks")
    rows = re.findall(r"^\| (UD_[\w-]+) \|.*\| (.*) \|$", text, re.M)
    return {
        (name, split): (int(s), int(w))
        for name, kept in rows
        for split, s, w in re.findall(r"(\w+) (\d+) sents/(\d+) words", kept)
    }


@needs_data
def test_treebanks_have_their_words():
    counted = 0
    for (treebank, split), wanted in table_of_treebanks().items():
        for path in (data_root() / "ud-2.5" / treebank).glob(f"*-ud-{split}.conllu*"):
            sentences = read_conllu(path)
            assert (len(sentences), sum(map(len, sentences))) == wanted, path.name
            assert {tag for rows in sentences for *_, tag in rows} <= set(
                TASK_SETS["ud-pos"].labels
            )
            counted += 1
    assert counted > 12


@needs_data
@pytest.mark.parametrize("lang", "bg el fi fr ja tr ur vi zh".split())
def test_treebanks_read_by_surface_are_xtremes(lang):
    "XTREME's dev sets join all treebanks of a language: each sentence of one treebank stands there, word for word."
    if lang not in here("ud-pos", "dev"):
        pytest.skip(f"no file of {lang}")
    theirs = Counter(example.words for example in read_task("ud-pos", lang, "dev"))
    tags = Counter((example.words, example.tags) for example in read_task("ud-pos", lang, "dev"))
    [path] = [*(data_root() / "ud-2.5").glob(f"UD_*/{lang}_*-ud-dev.conllu*")] or [
        pytest.skip("no treebank of it")
    ]
    ours = [
        tuple(zip(*((word, tag) for _, word, tag in rows)))
        for rows in read_conllu(path, surface=True)
    ]
    assert Counter(words for words, _ in ours) <= theirs
    # The tag of a multiword token is mostly that of its first word: 17 sentences of Finnish have
    # another.
    assert (Counter(ours) & tags).total() >= 0.98 * len(ours)


@needs_data
def test_multiword_tokens_of_xtreme_are_one_word():
    here("ud-pos", "dev")
    # of the dev set: there, and in CoNLL-U
    for lang, xtreme, words in (("tr", 9777, 10046), ("ta", 1129, 1263)):
        if not (paths := [*(data_root() / "ud-2.5").glob(f"UD_*/{lang}_*-ud-dev.conllu*")]):
            continue
        for surface, wanted in ((True, xtreme), (False, words)):
            assert sum(map(len, read_conllu(paths[0], surface))) == wanted
        assert sum(len(example.words) for example in read_task("ud-pos", lang, "dev")) == xtreme


@needs_data
def test_parts_of_speech_of_all_languages():
    assert len(here("ud-pos", "test")) > 10
    english = read_task("ud-pos", "en", "test")
    treebanks = [path for path in (data_root() / "ud-2.5").glob("UD_*/en_*-ud-test.conllu*")]
    assert len(english) == sum(len(read_conllu(path)) for path in treebanks) and len(treebanks) == 2
    assert [example.id for example in english] == [str(n) for n in range(1, len(english) + 1)]


# ---------------------------------------------------------------- questions


@needs_data
@pytest.mark.parametrize(
    "name, split",
    [
        ("xquad", "test"),
        ("mlqa", "dev"),
        ("tydiqa", "dev"),
        ("tydiqa", "train"),
        ("squad2", "cs224n-dev"),
    ],
)
def test_answers_stand_where_they_are_said_to_stand(name, split):
    for lang in here(name, split):
        examples = read_task(name, lang, split)
        for example in examples:
            for text, start in example.answers:
                assert example.context[start : start + len(text)] == text
        without = sum(not example.answers for example in examples)
        assert without == (3168 if name == "squad2" else 0)


@needs_data
def test_sizes_of_question_sets():
    for lang in here("xquad", "test"):
        assert len({example.context for example in read_task("xquad", lang, "test")}) == 240
    pairs = [lang for lang in here("mlqa", "dev") if "-" in lang and "en" not in lang]
    assert {len(read_task("mlqa", pair, "dev")) for pair in pairs} <= {*range(161, 518)}
    for lang in here("tydiqa", "dev"):
        assert {len(example.answers) for example in read_task("tydiqa", lang, "dev")} <= {1, 2}
    for lang in here("tydiqa", "train"):
        assert {len(example.answers) for example in read_task("tydiqa", lang, "train")} == {1}


@needs_data
def test_the_language_of_mlqa_is_context_then_question():
    here("mlqa", "dev")
    german, english = ({e.id: e for e in read_task("mlqa", lang, "dev")} for lang in ("de", "en"))
    for example in read_task("mlqa", "de-en", "dev"):
        assert example.question == english[example.id].question
        assert (example.context, example.answers) == (
            german[example.id].context,
            german[example.id].answers,
        )


@needs_data
def test_xquad_asks_the_same_in_every_language():
    ids = {
        lang: [example.id for example in read_task("xquad", lang, "test")]
        for lang in here("xquad", "test")
    }
    assert len({tuple(own) for own in ids.values()}) == 1 and len(ids) > 5


# ---------------------------------------------------------------- published forms that are not in
# the mirror


def test_xnli_as_published(tmp_path):
    header = "language\tgold_label\tsentence1\tsentence2\tpairID\n"
    rows = 'ar\tneutral\tأ\tب\t7\nbg\tentailment\tа\tб\t7\nar\t-\tأ\tب\t8\nar\tcontradiction\t"أ\tب\t9\n'
    write(tmp_path / "xnli/XNLI-1.0/xnli.dev.tsv", header + rows)
    found = read_task("xnli", "ar", "dev", tmp_path, report := Report())
    assert found == [("7", ("أ", "ب"), "neutral"), ("9", ('"أ', "ب"), "contradiction")]
    assert report.counts == {"no gold label": 1}
    train = "premise\thypo\tlabel\nа\tб\tcontradictory\nв\tг\tneutral\n"
    write(tmp_path / "xnli/XNLI-MT-1.0/multinli/multinli.train.ru.tsv.gz", train)
    assert [e.label for e in read_task("xnli", "ru", "train", tmp_path)] == [
        "contradiction",
        "neutral",
    ]


def test_labels_from_a_file_of_their_own(tmp_path):
    write(tmp_path / "xnli/test-sw.tsv", "a\tb\nc\td\n")
    with pytest.raises(DataError, match="test-labels.derived.txt, are not beside"):
        read_task("xnli", "sw", "test", tmp_path)
    for labels, said in (
        ("neutral\n", "ends before this row"),
        ("neutral\n" * 3, "has more rows"),
        ("neutral\nno\n", "'no'"),
    ):
        write(tmp_path / "xnli/test-labels.derived.txt", labels)
        with pytest.raises(DataError, match=said):
            read_task("xnli", "sw", "test", tmp_path)
    write(tmp_path / "xnli/test-labels.derived.txt", "neutral\nentailment\n")
    assert [e.label for e in read_task("xnli", "sw", "test", tmp_path)] == ["neutral", "entailment"]


def test_entities_with_the_language_before_each_word(tmp_path):
    write(tmp_path / "panx/ru/dev.xz", "ru:Нижний\tB-LOC\nru:Новгород\tI-LOC\n\n\nru:en:x\tO\n")
    found = read_task("pan-x", "ru", "dev", tmp_path)
    assert found == [("1", ("Нижний", "Новгород"), ("B-LOC", "I-LOC")), ("2", ("en:x",), ("O",))]
    assert task_languages("pan-x", "dev", tmp_path) == ["ru"]
    write(tmp_path / "panx/dev-ja.tsv", "東\tI-LOC\n京\tI-LOC\n\n京\tB-LOC\n都\tI-ORG\n")
    for _ in range(2):
        read_task("pan-x", "ja", "dev", tmp_path, report := Report())
    assert report.counts == {"I- that continues nothing, kept": 2}
    write(tmp_path / "panx/dev-de.tsv", "de:in\tO\nBonn\tB-LOC\n")
    with pytest.raises(DataError, match="dev-de.tsv:2: 'Bonn' without the 'de:'"):
        read_task("pan-x", "de", "dev", tmp_path)


def test_sib_is_quoted(tmp_path):
    header = "index_id\tcategory\ttext\r\n"
    write(
        tmp_path / "sib200/arb_Arab/dev.tsv",
        header + '5\tsports\t"قال ""نعم"""\r\n6\ttravel\tب\r\n',
    )
    found = read_task("sib200", "ar", "dev", tmp_path)
    assert found == [("5", ('قال "نعم"',), "sports"), ("6", ("ب",), "travel")]
    write(tmp_path / "sib200/zho_Hant/dev.tsv", "index_id\tcategory\ttext\n5\tsports\t甲\n")
    assert task_languages("sib200", "dev", tmp_path) == ["ar", "zh-Hant"]
    write(tmp_path / "sib200/zho_Hant/dev.tsv", 'index_id\tcategory\ttext\n5\tsports\t"甲\n')
    with pytest.raises(DataError, match="dev.tsv:2: quotation"):
        read_task("sib200", "zh-Hant", "dev", tmp_path)


def test_multinli_and_similarity_as_published(tmp_path):
    write(
        tmp_path / "multinli_1.0/multinli_1.0_dev_matched.txt",
        "gold_label\tsentence1\tsentence2\tpairID\n-\ta\tb\t1n\nneutral\tc\td\t2n\n",
    )
    assert read_task("mnli", "en", "dev_matched", tmp_path) == [("2n", ("c", "d"), "neutral")]
    write(
        tmp_path / "glue/STS-B/original/sts-test.tsv",
        "g\tf\ty\t1\t3.5\ta\tb\ng\tf\ty\t2\t0\tc\td\tsource\tsource\n",
    )
    assert [e.label for e in read_task("stsb", "en", "test", tmp_path)] == ["3.5", "0"]


def test_uneven_rows_of_qqp_are_counted_and_said(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write(
        tmp_path / "glue/QQP/train.tsv",
        header + "1\t1\t2\ta\tb\t0\n2\t3\t4\tc\td 1\n3\t5\t6\te\t\t1\n",
    )
    with pytest.warns() as said:
        found = read_task("qqp", "en", "train", tmp_path, report := Report())
    assert [e.id for e in found] == ["1", "3"]
    assert sorted(str(w.message) for w in said) == [
        "train.tsv: 1 × malformed: empty text, kept; the first in line 4",
        "train.tsv: 1 × malformed: row without 6 columns, left out; the first in line 3",
    ]
    assert sum(report.left_out.values()) == 2


def test_qqp_drawn_anew_has_no_header(tmp_path):
    rows = '7\t1\t2\tWhat level do I need? 0\n9\t1\t2\tHow "is" it?\t"How ""so""?"\t0\n3\t5\t6\tc\td\t1\n'
    write(tmp_path / "glue/QQP/new_dev.tsv.gz", rows)
    with pytest.warns(
        UserWarning,
        match="new_dev.tsv.gz: 1 × malformed: row without 6 columns, left out; .* line 1",
    ):
        found = read_task("qqp", "en", "resampled-dev", tmp_path)
    assert found == [("9", ('How "is" it?', '"How ""so""?"'), "0"), ("3", ("c", "d"), "1")]
    write(tmp_path / "glue/QQP/new_dev.tsv.gz", rows + "9\t1\t2\ta\tb\t0\n")
    with pytest.raises(DataError, match="new_dev.tsv.gz:4: id '9' stands in line 2 too"):
        read_task("qqp", "en", "resampled-dev", tmp_path)


@needs_data
@pytest.mark.filterwarnings("ignore:.*malformed")
def test_all_rows_of_qqp_are_read_or_counted():
    here("qqp", "resampled-dev")
    found = read_task("qqp", "en", "resampled-dev", report=(report := Report()))
    left_out = {what: n for what, n in report.left_out.items() if "kept" not in what}
    assert len(found) == 23_496 and [*left_out.values()] == [1]  # one has no tab before its label
    assert {example.label for example in found} == {"0", "1"}


def test_tydi_under_the_publishers_names(tmp_path):
    write(
        tmp_path / "tydiqa-goldp/tydiqa-goldp-v1.1-dev/tydiqa-goldp-dev-telugu.json",
        squad("ab", "b", 1),
    )
    assert read_task("tydiqa", "te", "dev", tmp_path) == [("q1", "?", "ab", (("b", 1),))]


def questions(*answers):  # (id, text, start), all on one text
    rows = [
        {
            "id": key,
            "question": "?",
            "answers": [] if text is None else [{"text": text, "answer_start": start}],
        }
        for key, text, start in answers
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": "abcd", "qas": rows}]}]}, indent=1)


def test_tydi_as_one_file_of_all_languages(tmp_path):
    rows = questions(("english-7-0", "a", 0), ("telugu-9-1", "b", 1), ("telugu-9-2", "c", 2))
    write(tmp_path / "tydiqa-goldp/tydiqa-goldp-v1.1-train.json", rows)
    assert [e.id for e in read_task("tydiqa", "te", "train", tmp_path)] == [
        "telugu-9-1",
        "telugu-9-2",
    ]
    assert len(read_task("tydiqa", "en", "train", tmp_path)) == 1
    with pytest.raises(DataError, match="no examples in it"):
        read_task("tydiqa", "ko", "train", tmp_path)


def test_tydi_under_the_names_of_xtreme(tmp_path):
    folder = tmp_path / "tydiqa-goldp"
    write(folder / "tydiqa-goldp-v1.1-dev/tydiqa.goldp.te.dev.json", squad("ab", "b", 1))
    write(folder / "tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json", squad("ab", "a", 0))
    write(
        folder / "translate-train/tydiqa.translate.train.en-te.json",
        questions(("q1", "b", 1), ("q2", "b", 3)),
    )
    assert task_languages("tydiqa", "dev", tmp_path) == ["te"]
    assert task_languages("tydiqa", "translate-train", tmp_path) == ["en", "te"]
    with pytest.warns(UserWarning, match="1 × malformed: translated answer"):
        assert [e.id for e in read_task("tydiqa", "te", "translate-train", tmp_path)] == ["q1"]
    assert read_task("tydiqa", "en", "translate-train", tmp_path) == read_task(
        "tydiqa", "en", "train", tmp_path
    )


@pytest.mark.parametrize(
    "place",
    [
        "squad/translate-train/squad.translate.train.en-de.json",
        "mlqa/mlqa-translate-train/de_squad-translate-train-train-v1.1.json",
    ],
)
def test_translated_questions_whose_answer_is_lost_are_counted(tmp_path, place):
    rows = questions(
        ("q1", "b", 1),
        ("q2", "b", 3),
        ("q3", None, 0),
        ("q4", " ", 1),
        ("q5", "d", -1),
        ("q6", "cd", 2),
    )
    write(tmp_path / place, rows)
    with pytest.warns(
        UserWarning, match="4 × malformed: translated answer that is empty or not at its place"
    ):
        found = read_task("squad1", "de", "train", tmp_path, report=(report := Report()))
    assert [e.id for e in found] == ["q1", "q6"]
    [counted] = report.rows()
    assert counted["count"] == 4 and counted["first line"] == 1 + rows[: rows.index('"q2"')].count(
        "\n"
    )
    write(tmp_path / place, rows.replace('"answer_start": 3', '"answer_start": "3"'))
    with pytest.raises(DataError, match="answer_start.*absent or of another type"):
        read_task("squad1", "de", "train", tmp_path)


def test_squad_is_english_and_its_translations_are_not(tmp_path):
    write(tmp_path / "squad/train-v1.1.json", squad("ab", "b", 1))
    assert task_languages("squad1", "train", tmp_path) == ["en"]
    with pytest.raises(
        DataError,
        match="looked for squad/translate-train/squad.translate.train.en-de.json; or mlqa",
    ):
        read_task("squad1", "de", "train", tmp_path)


# ---------------------------------------------------------------- malformed files, one test per
# reader


def squad(context, text, start, count=1, **more):
    question = {
        "id": "q1",
        "question": "?",
        "answers": [{"text": text, "answer_start": start}],
        **more,
    }
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": [question] * count}]}]})


PUBLISHED = "Das Cafe\u0301 der Donau\u00addampf\u00adschiff\u00adfahrt \u00ad liegt am U\u0308bergang\u00ad."
CONTEXT = "Das Caf\u00e9 der Donaudampfschifffahrt \u00ad liegt am \u00dcbergang."


@pytest.mark.parametrize(
    "published, answer",
    [
        ("Das", "Das"),
        ("Cafe\u0301", "Caf\u00e9"),
        ("Donau\u00addampf\u00adschiff\u00adfahrt", "Donaudampfschifffahrt"),
        ("\u00adfahrt", "fahrt"),
        ("schiff\u00ad", "schiff"),
        ("\u00ad", "\u00ad"),
        ("liegt", "liegt"),
        ("U\u0308bergang", "\u00dcbergang"),
        ("am U\u0308bergang\u00ad.", "am \u00dcbergang."),
    ],
)
def test_answers_move_with_their_text(tmp_path, published, answer):
    start = PUBLISHED.index(" \u00ad ") + 1 if published == "\u00ad" else PUBLISHED.index(published)
    write(tmp_path / "xquad/xquad.de.json", squad(PUBLISHED, published, start))
    [question] = read_task("xquad", "de", "test", tmp_path, report := Report())
    [(text, place)] = question.answers
    assert (
        question.context == CONTEXT
        and text == answer
        and CONTEXT[place : place + len(text)] == answer
    )
    assert report.rows() == [
        {"what": NORMALISED, "file": "xquad.de.json", "count": 1, "first line": 1}
    ]


def test_an_answer_may_be_written_otherwise_than_its_text(tmp_path):
    for context, text in (
        ("am U\u0308bergang", "\u00dcbergang"),
        ("am \u00dcbergang", "U\u0308ber\u00adgang"),
    ):
        write(tmp_path / "xquad/xquad.de.json", squad(context, text, 3))
        [question] = read_task("xquad", "de", "test", tmp_path)
        assert (question.context, *question.answers) == ("am \u00dcbergang", ("\u00dcbergang", 3))


@pytest.mark.parametrize("published", ["Cafe", "\u0301 der", "\u0308bergang"])
def test_answers_inside_a_letter_are_refused(tmp_path, published):
    row = squad(PUBLISHED, published, PUBLISHED.index(published))
    write(tmp_path / "xquad/xquad.de.json", row)
    with pytest.raises(DataError, match="begins or ends inside a letter: move its place"):
        read_task("xquad", "de", "test", tmp_path)
    good = questions(("q2", "a", 0))
    both = {"data": json.loads(row)["data"] + json.loads(good)["data"]}
    write(tmp_path / "squad/translate-train/squad.translate.train.en-de.json", json.dumps(both))
    with pytest.warns(UserWarning, match="1 × malformed: translated answer"):
        assert [e.id for e in read_task("squad1", "de", "train", tmp_path)] == ["q2"]


def test_spellings_of_a_word_are_one_in_every_form_of_task_sets(tmp_path):
    word = "Ka\u00adffee\u0301"
    composed = "Kaffe\u00e9"
    review = f"<items><item><rating>4.0</rating><text>{word}</text></item></items>"
    passage = dict(
        flores_passage=word,
        question_number=1,
        question=word,
        correct_answer_num="1",
        **{f"mc_answer{k}": f"{k} {word}" for k in range(1, 5)},
    )
    forms = [
        ("pawsx/dev-de.tsv", f"{word}\tb\t1\n", "paws-x", "de", "dev"),
        (
            "sib200/deu_Latn/dev.tsv",
            f'index_id\tcategory\ttext\n1\tsports\t"{word}"\n',
            "sib200",
            "de",
            "dev",
        ),
        ("panx/dev-de.tsv", f"de:{word}\tO\nde:\u00ad\tO\n", "pan-x", "de", "dev"),
        (
            "ud-2.5/UD_A-B/de_b-ud-test.conllu",
            conllu(("1", word, "NOUN"), ("2", "\u00ad", "SYM")),
            "ud-pos",
            "de",
            "test",
        ),
        ("belebele/deu_Latn.jsonl", json.dumps(passage), "belebele", "de", "test"),
        ("cls-acl10-unprocessed/de/dvd/test.review", review, "cls", "de", "dvd-test"),
        ("xquad/xquad.de.json", squad(f"a {word}", word, 2), "xquad", "de", "test"),
    ]
    for path, content, *asked in forms:
        write(tmp_path / path, content)
        report = Report()
        [example] = read_task(*asked, tmp_path, report)
        assert composed in str(example) and report.counts == {NORMALISED: 1}, path
        if isinstance(example, Tagged):
            assert example.words == (composed, "\u00ad")


@pytest.mark.parametrize(
    "text, line, said",
    [
        ("a\tb\n", 1, "2 columns where there are 3"),
        ("a\tb\tneutral\nc\td\tmaybe\n", 2, "'maybe' is not one of entailment"),
        ("a\tb\tneutral\n\n", 2, "1 columns"),
        ("a\tb\tneutral\tx\n", 1, "4 columns"),
        ("a\tb\tNeutral\n", 1, "'Neutral'"),
    ],
)
def test_malformed_tables(tmp_path, text, line, said):
    write(tmp_path / "xnli/dev-sw.tsv", text)
    with pytest.raises(DataError, match=f"dev-sw.tsv:{line}: .*{said}") as e:
        read_task("xnli", "sw", "dev", tmp_path)
    assert e.value.line == line


RTE = "index\tsentence1\tsentence2\tlabel\n"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "no column 'sentence1'"),
        ("index\tsentence1\tlabel\n", "no column 'sentence2', there are index, sentence1, label"),
        (RTE + "1\ta\tb\tentailment\n1\tc\td\tentailment\n", "tsv:3: id '1' stands in line 2"),
        ("index\tsentence1\tsentence2\tlabel\tlabel\n", "tsv:1: 'label' is the name of 2 columns"),
        (RTE, "no examples"),
    ],
)
def test_malformed_tables_with_a_header(tmp_path, text, said):
    write(tmp_path / "glue/RTE/dev.tsv", text)
    with pytest.raises(DataError, match=said):
        read_task("rte", "en", "dev", tmp_path)


@pytest.mark.parametrize(
    "row, said",
    [
        ("dd\tneutral\ta\tb\t2", "'dd' is no language of xnli"),
        ("de\tneutral\ta\tb\t", "nothing in column 'pairID'"),
    ],
)
def test_a_row_is_not_left_out_or_numbered_because_it_is_damaged(tmp_path, row, said):
    header = "language\tgold_label\tsentence1\tsentence2\tpairID"
    write(
        tmp_path / "xnli/XNLI-1.0/xnli.dev.tsv",
        f"{header}\nde\tneutral\ta\tb\t1\nfr\tneutral\ta\tb\t1\n{row}\n",
    )
    with pytest.raises(DataError, match=f"xnli.dev.tsv:4: {said}"):
        read_task("xnli", "de", "dev", tmp_path)


def test_a_question_of_no_language_is_not_left_out(tmp_path):
    text = json.dumps(
        {
            "data": [
                {
                    "paragraphs": [
                        {
                            "context": "ab",
                            "qas": [
                                {
                                    "id": f"{name}-1",
                                    "question": "q",
                                    "answers": [{"text": "b", "answer_start": 1}],
                                }
                                for name in ("finnish", "telugu", "finmish")
                            ],
                        }
                    ]
                }
            ]
        }
    )
    write(tmp_path / "tydiqa-goldp/tydiqa-goldp-v1.1-train.json", text)
    with pytest.raises(DataError, match="'finmish' is no language of tydiqa"):
        read_task("tydiqa", "fi", "train", tmp_path)


def test_marks_and_line_ends_of_other_systems(tmp_path):
    text = "\ufeffindex\tsentence1\tsentence2\tlabel\r\n0\ta \tb\tentailment\r\n"
    write(tmp_path / "glue/RTE/dev.tsv.gz", text)
    assert read_task("rte", "en", "dev", tmp_path) == [("0", ("a ", "b"), "entailment")]
    cut = gzip.compress(text.encode() * 400)[:60]
    (tmp_path / "glue/RTE/dev.tsv.gz").write_bytes(cut)
    with pytest.raises(DataError, match="cut off"):
        read_task("rte", "en", "dev", tmp_path)


def test_malformed_scores(tmp_path):
    for score in ("", "five", "nan"):
        write(
            tmp_path / "glue/STS-B/dev.tsv",
            f"index\tsentence1\tsentence2\tscore\n0\ta\tb\t{score}\n",
        )
        with pytest.raises(DataError, match="dev.tsv:2: .*is no score"):
            read_task("stsb", "en", "dev", tmp_path)


@pytest.mark.parametrize(
    "text, line, said",
    [
        ("a NOUN\n", 1, "1 columns, not a word and a tag"),
        ("a\tNOUN\tx\n", 1, "3 columns"),
        ("a\tNOUN\n\nb\tNOM\n", 3, "'NOM'"),
        ("\tNOUN\n", 1, "a tag without a word"),
    ],
)
def test_malformed_tags(tmp_path, text, line, said):
    write(tmp_path / "udpos-xtreme/dev-et.tsv", text)
    with pytest.raises(DataError, match=f"dev-et.tsv:{line}: .*{said}"):
        read_task("ud-pos", "et", "dev", tmp_path)


def conllu(*rows):
    return "".join("\t".join([a, b, "_", tag, *"______"]) + "\n" for a, b, tag in rows) + "\n"


@pytest.mark.parametrize(
    "text, said",
    [
        ("1\ta\tb\tNOUN\n\n", "4 columns, CoNLL-U has 10"),
        (conllu(("2", "a", "NOUN")), "word 2 after word 0"),
        (conllu(("1", "a", "NOUN"), ("1", "b", "NOUN")), "word 1 after word 1"),
        (conllu(("1", "a", "_")), "'_' is not one of"),
        (conllu(("1-2", "am", "_"), ("1", "an", "ADP")), "ends before its words do"),
        ("# only\n\n", "ends before"),
        (conllu(("2-3", "am", "_"), ("1", "an", "ADP")), "2-3 after word 0"),
        ("Ein Satz.\nNoch einer.\n", "1 column, CoNLL-U has 10"),
        (conllu(("1", "a", "NOUN"))[:-1], "cut off"),
    ],
)
def test_malformed_treebanks(tmp_path, text, said):
    write(tmp_path / "ud-2.5/UD_German-GSD/de_gsd-ud-test.conllu", text)
    with pytest.raises(DataError, match=f"de_gsd-ud-test.conllu.*{said}"):
        read_task("ud-pos", "de", "test", tmp_path)


def test_treebanks_by_surface_and_by_words(tmp_path):
    path = write(
        tmp_path / "ud-2.5/UD_A-B/de_b-ud-test.conllu",
        "# text = …\n"
        + conllu(
            ("1-2", "zum", "_"),
            ("1", "zu", "ADP"),
            ("2", "dem", "DET"),
            ("2.1", "_", "_"),
            ("3", "a b", "NOUN"),
            ("4-6", "c", "_"),
            ("4", "x", "VERB"),
            ("5", "y", "PRON"),
            ("6", "z", "PRON"),
        ),
    )
    assert read_task("ud-pos", "de", "test", tmp_path) == [
        ("1", ("zum", "ab", "c"), ("ADP", "NOUN", "VERB"))
    ]
    [rows] = read_conllu(path)
    assert [word for _, word, _ in rows] == ["zu", "dem", "a b", "x", "y", "z"]
    write(tmp_path / "ud-2.5/UD_A-A/de_a-ud-test.conllu.gz", conllu(("1", "first", "X")))
    assert [e.words[0] for e in read_task("ud-pos", "de", "test", tmp_path)] == ["first", "zum"]
    names = [file.name for file in task_files("ud-pos", "de", "test", tmp_path)]
    assert names == ["de_a-ud-test.conllu.gz", "de_b-ud-test.conllu"]


@pytest.mark.parametrize(
    "text, said",
    [
        (squad("🌊 ab", "b", 2), "answer 'b' of question q1: at its place 2 stands 'a'"),
        (squad("ab", "", 0), "is empty"),
        (squad("ab", "b", -1), "at its place -1"),
        (squad("ab", "b", "1"), "'answer_start' is absent or of another type"),
        (squad("ab", "b", 1, count=2), "q1 stands in the file twice"),
        (squad("ab", "b", 1, answers=[]), "q1 has no answer"),
        (squad("ab", "b", 1, id=7), "'id' is absent or of another type"),
        ('{"data": [{}]}', "'paragraphs' is absent"),
        (squad("ab", "b", True), "'answer_start' is absent or of another type"),
        (squad("ab", "b", 1, question="?\ud800"), "question q1: 'question' holds half a character"),
        (squad("ab\udfff", "b", 1), "'context' holds half a character"),
        (squad("ab", "b", 1, question=None), "'question' is absent"),
        ('{"data": ' * 10_000, "no JSON .nested too deep"),
        ('{"data": [], "data": []}', "'data' stands twice in one object"),
        (squad("ab", "b", 1)[:-9], ":1: no JSON"),
        ("[]", "'data' is absent or of another type .list"),
        ("", "no JSON"),
    ],
)
def test_malformed_questions(tmp_path, text, said):
    write(tmp_path / "xquad/xquad.de.json", text)
    with pytest.raises(DataError, match=f"xquad.de.json.*{said}"):
        read_task("xquad", "de", "test", tmp_path)


def pretty(*questions, context="der Rhein"):
    "A file of SQuAD's form with a member in every line."
    return json.dumps(
        {"data": [{"paragraphs": [{"context": context, "qas": [*questions]}]}]}, indent=1
    )


def asked(key, text="Rhein", start=4, **more):
    return {"question": "?", "id": key, "answers": [{"text": text, "answer_start": start}], **more}


@pytest.mark.parametrize(
    "wrong, said",
    [
        (asked('é"2', ""), "is empty"),
        (asked('é"2', "der", 4), "at its place 4 stands 'Rhe'"),
        (asked("q1"), "twice"),
        (asked('é"2', answers=[]), "has no answer"),
        (asked('é"2', question=7), "'question' is absent"),
        (asked('é"2', answers=[{"text": "der"}]), "answer of é\"2: 'answer_start' is absent"),
    ],
)
@pytest.mark.parametrize("escaped", [True, False])
def test_a_malformed_question_is_named_by_the_line_of_its_id(tmp_path, wrong, said, escaped):
    text = pretty(asked("q1", context='{"id": "é\\"2"}'), wrong, asked("q3"))
    if not escaped:
        text = text.replace("\\u00e9", "é")
    path = write(tmp_path / "xquad/xquad.de.json.gz", text)
    with pytest.raises(DataError, match=said) as e:
        read_task("xquad", "de", "test", tmp_path)
    places = [
        n
        for n, line in enumerate(text.split("\n"), 1)
        if line.strip() == f'"id": {json.dumps(wrong["id"])},'
        or line.strip() == f'"id": {json.dumps(wrong["id"], ensure_ascii=False)},'
    ]
    assert (e.value.file, e.value.line) == (path, places[-1]) and str(e.value).startswith(
        f"{path}:{places[-1]}: "
    )


def test_a_question_without_an_id_is_named_by_the_line_of_the_one_before(tmp_path):
    for before, line, said in (
        ([], 1, "a question: 'id'"),
        ([asked("q1")], 10, "a question after question q1: 'id'"),
    ):
        path = write(tmp_path / "xquad/xquad.de.json", pretty(*before, asked(None)))
        with pytest.raises(DataError, match=said) as e:
            read_task("xquad", "de", "test", tmp_path)
        assert (e.value.file, e.value.line) == (path, line)


def test_questions_without_an_answer(tmp_path):
    for more, said in (
        ({}, "'is_impossible' is absent"),
        ({"is_impossible": False, "answers": []}, "has no answer"),
        ({"is_impossible": True}, "is said to have no answer, and has one"),
    ):
        write(tmp_path / "squad/dev-v2.0.json", squad("ab", "b", 1, **more))
        with pytest.raises(DataError, match=said):
            read_task("squad2", "en", "dev", tmp_path)
    write(tmp_path / "squad/dev-v2.0.json", squad("ab", "b", 1, is_impossible=True, answers=[]))
    assert read_task("squad2", "en", "dev", tmp_path) == [("q1", "?", "ab", ())]


def test_malformed_records(tmp_path):
    for text, said in (
        ('{"text": "a"}\n', "1: 'label' is absent"),
        ('{"text": "a", "label": "x"}', "1: label 'x'"),
        ('{"text": "a",', "1: no JSON"),
        ("[1]\n", "'text' is absent"),
        ('{"text": " ", "label": "AGONIST"}', "'text' is absent or empty"),
        ('{"text": null, "label": "AGONIST"}', "1: 'text' is null, which is no text"),
        ('{"text": NaN, "label": "AGONIST"}', "1: 'text' is NaN"),
        ('{"text": {"a": 1}, "label": "AGONIST"}', "1: 'text' is {\"a\": 1}"),
        ('{"text": true, "label": "AGONIST"}', "1: 'text' is true"),
        ('{"text": "a", "label": null}', "1: 'label' is null"),
        ('{"text": "a\\ud83d", "label": "AGONIST"}', "1: 'text' holds half a character"),
        ('{"text": "a", "text": "b", "label": "AGONIST"}', "1: no JSON .'text' stands twice"),
        ("[" * 10_000 + "]" * 10_000, "1: no JSON .nested too deep"),
        ("1" * 5000, "1: no JSON .Exceeds the limit"),
    ):
        write(tmp_path / "chemprot/dev.txt", text)
        with pytest.raises(DataError, match=f"dev.txt:{said}" if said[0] == "1" else said):
            read_task("chemprot", "en", "dev", tmp_path)


def test_belebele(tmp_path):
    record = {"flores_passage": "p", "question_number": 1, "question": "q", "correct_answer_num": 4}
    record |= {f"mc_answer{n}": f"o{n}" for n in (1, 2, 3, 4)}
    write(tmp_path / "belebele/npi_Deva.jsonl", json.dumps(record))
    assert read_task("belebele", "ne", "test", tmp_path) == [
        Choice("1", "p", "q", ("o1", "o2", "o3", "o4"), 3)
    ]
    for more, said in (
        ({"correct_answer_num": "5"}, "'5', not 1 to 4"),
        ({"mc_answer2": ""}, "'mc_answer2' is"),
        ({"question_number": ""}, "'question_number'"),
        ({"question": None}, "'question' is null"),
        ({"mc_answer3": ["a"]}, "'mc_answer3' is .\"a\"., which is no text"),
    ):
        write(tmp_path / "belebele/npi_Deva.jsonl", json.dumps(record | more))
        with pytest.raises(DataError, match=f"npi_Deva.jsonl:1: .*{said}"):
            read_task("belebele", "ne", "test", tmp_path)
    rows = [record, record | {"question_number": 2}, record | {"flores_passage": "p2"}]
    write(tmp_path / "belebele/npi_Deva.jsonl", "\n".join(map(json.dumps, rows)))
    assert len(read_task("belebele", "ne", "test", tmp_path)) == 3
    write(
        tmp_path / "belebele/npi_Deva.jsonl",
        "\n".join(map(json.dumps, [*rows, record | {"question": "?"}])),
    )
    with pytest.raises(
        DataError, match="Deva.jsonl:4: question 1 on this passage stands in line 1 too"
    ):
        read_task("belebele", "ne", "test", tmp_path)


def test_reviews(tmp_path):
    item = "<item><category>Bücher</category><rating>{}</rating><text>{}</text><title>t</title></item>\n"
    path = tmp_path / "cls-acl10-unprocessed/jp/dvd/train.review"
    write(
        path,
        "<items>\n"
        + item.format("1.0", "悪い &amp; 長い")
        + item.format("4.0", "良い")
        + "</items>",
    )
    found = read_task("cls", "ja", "dvd-train", tmp_path)
    assert found == [("1", ("悪い & 長い",), "negative"), ("2", ("良い",), "positive")]
    assert task_languages("cls", "dvd-train", tmp_path) == ["ja"]
    good = "<items>\n<!-- <item> -->\n" + item.format("2.0", "<![CDATA[\n<item>]]>")
    for text, line, said in (
        (item.format("3.0", "x"), 5, "review 2 has the rating '3.0'"),
        (item.format("5.0", ""), 5, "review 2 has no text"),
        ("<item>", 5, "no well-formed XML"),
    ):
        write(path, f"{good}{text}</items>")
        with pytest.raises(DataError, match=f"train.review:{line}: {said}"):
            read_task("cls", "ja", "dvd-train", tmp_path)
    write(path, "<items></items>")
    with pytest.raises(DataError, match="train.review: no examples"):
        read_task("cls", "ja", "dvd-train", tmp_path)


# ---------------------------------------------------------------- names


def test_names_languages_and_splits(tmp_path, monkeypatch):
    cases = [
        ("xnly", "en", "dev", "did you mean 'xnli'"),
        ("xnli", "english", "dev", "nearest"),
        ("xnli", "en", "tset", "did you mean 'test'"),
        ("cola", "de", "dev", "'de'"),
        ("mlqa", "en-fr", "dev", "nearest: en-"),
        ("sib200", "german", "dev", "german"),
    ]
    for name, language, split, said in cases:
        with pytest.raises(ConfigError, match=said):
            read_task(name, language, split, tmp_path)
    with pytest.raises(DataError) as e:
        read_task("xquad", "de", "test", tmp_path)
    for part in ("xquad/xquad.de.json", "CC BY-SA 4.0", str(tmp_path)):
        assert part in str(e.value)
    for code in ("aym", "ay"):
        with pytest.raises(DataError, match="americasnli/dev/aym.tsv"):
            read_task("americasnli", code, "dev", tmp_path)


@pytest.mark.parametrize("name", TASK_SETS)
def test_without_a_folder_the_files_and_the_licence_are_named(name, monkeypatch):
    monkeypatch.delenv("XLNB_DATA", raising=False)
    task = TASK_SETS[name]
    lang = (task.languages or ("en",))[-1]
    calls = [
        (lang, lambda split: read_task(name, lang, split)),
        (lang, lambda split: task_files(name, lang, split)),
        ("{lang}", lambda split: task_languages(name, split)),
    ]
    for split in task.splits:
        for wanted, call in calls:
            with pytest.raises(DataError, match="XLNB_DATA is not set: .* root=") as e:
                call(split)
            files = [file for form in task.where(wanted, split) for file in form]
            for part in (f"{name}, {split}: ", task.licence, *files):
                assert part in str(e.value)


def test_every_set_is_described():
    names = "xnli americasnli paws-x ud-pos pan-x xquad mlqa tydiqa squad1 squad2 cola sst2 mrpc stsb qqp mnli qnli rte"
    assert sorted(TASK_SETS) == sorted([*names.split(), "cls", "chemprot", "sib200", "belebele"])
    for name, task in TASK_SETS.items():
        assert (
            task.name == name
            and task.kind in KINDS
            and task.licence
            and task.papers
            and task.splits
        )
        assert bool(task.labels) == (task.kind not in ("question answering", "regression"))
        for split in task.splits:
            for patterns in task.where((task.languages or ("en",))[0], split):
                assert all(
                    "{" not in pattern and not pattern.startswith("/") for pattern in patterns
                )
    kinds = {
        Labelled: ("id", "texts", "label"),
        Choice: ("id", "context", "question", "options", "answer"),
        Tagged: ("id", "words", "tags"),
        Question: ("id", "question", "context", "answers"),
    }
    for record, names in kinds.items():
        assert record._fields == names
