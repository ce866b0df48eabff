"""Every form of the downstream sets over damaged files: no example that does not stand there, none lost uncounted."""

import csv, json
from xml.etree import ElementTree

import pytest
from damage import Reader, fields, lines, of_files, times
from test_campaign_mutations import blocks

from xlnb.measures.downstream import read_translations
from xlnb.measures.task_sets import MALFORMED, read_task

pytestmark = pytest.mark.campaign
TIMES = times(4)
NUMBERS = range(20)
LABELS = "entailment", "neutral", "contradiction"
NLI = "language\tgold_label\tsentence1\tsentence2\tpairID\n" + "".join(
    f"de\t{LABELS[n % 3]}\tSatz {n}\tnoch {n}\t{n}\n" for n in NUMBERS
)
MNLI = "index\tsentence1\tsentence2\tgold_label\n" + "".join(
    f"{n}\tone {n}\ttwo {n}\t{'-' if n % 5 == 4 else LABELS[n % 3]}\n" for n in NUMBERS
)
PAIRS = "".join(f"Satz {n}\tnoch {n}\t{n % 2}\n" for n in NUMBERS)
UNLABELLED = "".join(f"Satz {n}\tnoch {n}\n" for n in NUMBERS)
SIB = "index_id\tcategory\ttext\n" + "".join(f'{n}\tsports\t"Satz ""{n}"" da"\n' for n in NUMBERS)
QQP = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n" + "".join(
    f"{n}\t1{n}\t2{n}\tone {n}\ttwo {n}\t{n % 2}\n" for n in NUMBERS
)
COLA = "".join(f"gj04\t{n % 2}\t\tA sentence {n}.\n" for n in NUMBERS)
STSB = "".join(f"a\tb\tc\t{n}\t{n % 5}.2\tone {n}\ttwo {n}\n" for n in NUMBERS)
RECORDS = "".join(json.dumps({"text": f"text {n}", "label": "INHIBITOR"}) + "\n" for n in NUMBERS)
BELEBELE = "".join(
    json.dumps(
        {
            "flores_passage": f"Text {n}",
            "question_number": n,
            "question": f"Frage {n}",
            "correct_answer_num": str(n % 4 + 1),
            **{f"mc_answer{k}": f"A{k}" for k in range(1, 5)},
        }
    )
    + "\n"
    for n in NUMBERS
)
REVIEWS = (
    "<items>\n"
    + "".join(
        f"<item>\n<rating>{5 * (n % 2) or 1}.0</rating>\n<text>gut {n}</text>\n</item>\n"
        for n in NUMBERS
    )
    + "</items>\n"
)
TAGS = "".join(f"Ort{n}\tB-LOC\nIn{n}\tI-LOC\nWort\tO\n\n" for n in NUMBERS)
TREES = "".join(
    f"# sent_id = {n}\n"
    + "".join(
        "\t".join([k, word, "_", tag, *"______"]) + "\n"
        for k, word, tag in (("1", f"Hund{n}", "NOUN"), ("2", "bellt", "VERB"))
    )
    + "\n"
    for n in NUMBERS
)
SUMMED = ("no gold label", "untranslated", f"{MALFORMED}: row without", f"{MALFORMED}: translated")


def squad(prefix="", without=False):
    "Questions with an answer in its place; `without`: every other one has none, as in SQuAD 2."

    def question(n):
        none = without and n % 2
        answers = [] if none else [{"text": "Hund", "answer_start": 4}]
        return {"id": f"{prefix}{n}", "question": f"Wer {n}?", "answers": answers} | (
            {"is_impossible": bool(none)} if without else {}
        )

    return json.dumps(
        {
            "data": [
                {"paragraphs": [{"context": f"Der Hund {n} bellt", "qas": [question(n)]}]}
                for n in NUMBERS
            ]
        },
        indent=1,
        ensure_ascii=False,
    )


# plain readings: the parts of an example that the file states


def named(texts, label, key=None):
    def read(data):
        header, *rows = fields(data)
        rows = [dict(zip(header, row)) for row in rows]
        return [
            (row.get(key, str(n)), tuple(row.get(t, "") for t in texts), row.get(label, ""))
            for n, row in enumerate(rows, 1)
        ]

    return read


def quoted(data):
    header, *rows = [next(csv.reader([line], delimiter="\t")) for line in lines(data)]
    rows = [dict(zip(header, row)) for row in rows]
    return [(row["index_id"], (row["text"],), row["category"]) for row in rows]


def numbered(texts, label):
    return lambda data: [
        (str(n), tuple(row[t] for t in texts), row[label]) for n, row in enumerate(fields(data), 1)
    ]


def objects(data):
    return enumerate(map(json.loads, lines(data)), 1)


def records(data):
    return [(str(n), (str(row["text"]),), row["label"]) for n, row in objects(data)]


def choices(data):
    options = [f"mc_answer{k}" for k in range(1, 5)]
    return [
        (
            str(n),
            str(row["flores_passage"]),
            str(row["question"]),
            tuple(str(row[name]) for name in options),
            int(row["correct_answer_num"]) - 1,
        )
        for n, row in objects(data)
    ]


def questions(data):
    return [
        (
            str(q["id"]),
            q["question"],
            paragraph["context"],
            tuple((a["text"], a["answer_start"]) for a in q["answers"]),
        )
        for article in json.loads(data.decode("utf-8-sig"))["data"]
        for paragraph in article["paragraphs"]
        for q in paragraph["qas"]
    ]


def reviews(data):
    return [
        (
            str(n),
            (item.findtext("text"),),
            "positive" if float(item.findtext("rating")) > 3 else "negative",
        )
        for n, item in enumerate(ElementTree.fromstring(data.decode("utf-8-sig")).iter("item"), 1)
    ]


def tagged(data):
    sentences = blocks(line and tuple(line.split("\t")) for line in lines(data))
    return [(str(n), *zip(*rows)) for n, rows in enumerate(sentences, 1)]


def trees(data):
    sentences = blocks(line and line.split("\t") for line in lines(data))
    rows = [[row for row in sentence if not row[0].startswith("#")] for sentence in sentences]
    return [
        (str(n), tuple(row[1].replace(" ", "") for row in own), tuple(row[3] for row in own))
        for n, own in enumerate(rows, 1)
    ]


def reader(files, plain, *call, damaged=None):
    return Reader(
        files, lambda root, report: read_task(*call, root, report), plain, SUMMED, damaged
    )


BESIDE = {
    "pawsx/test-de.tsv": UNLABELLED,
    "pawsx/test-labels.derived.tsv": "".join(f"{n % 2}\n" for n in NUMBERS),
}
SQUAD2 = {"squad/dev-v2.0.json": squad(without=True)}
TRANSLATED = {"squad/translate-train/squad.translate.train.en-de.json": squad()}
GOLDP = {"tydiqa-goldp/tydiqa-goldp-v1.1-train.json": squad("finnish-")}
READERS = {
    "header and language": reader(
        {"xnli/XNLI-1.0/xnli.dev.tsv": NLI},
        named(("sentence1", "sentence2"), "gold_label", "pairID"),
        "xnli",
        "de",
        "dev",
    ),
    "rows without a label": reader(
        {"glue/MNLI/dev_matched.tsv": MNLI},
        named(("sentence1", "sentence2"), "gold_label", "index"),
        "mnli",
        "en",
        "dev_matched",
    ),
    "columns": reader({"pawsx/dev-de.tsv": PAIRS}, numbered((0, 1), 2), "paws-x", "de", "dev"),
    "labels beside": reader(
        BESIDE,
        lambda data: [
            (str(n), tuple(row), str((n - 1) % 2)) for n, row in enumerate(fields(data), 1)
        ],
        "paws-x",
        "de",
        "test",
    ),
    "the labels": reader(
        BESIDE,
        lambda data: [
            (str(n), (f"Satz {n - 1}", f"noch {n - 1}"), row[-1])
            for n, row in enumerate(fields(data), 1)
        ],
        "paws-x",
        "de",
        "test",
        damaged="pawsx/test-labels.derived.tsv",
    ),
    "quotation marks": reader({"sib200/deu_Latn/dev.tsv": SIB}, quoted, "sib200", "de", "dev"),
    "uneven rows": reader(
        {"glue/QQP/dev.tsv": QQP},
        named(("question1", "question2"), "is_duplicate", "id"),
        "qqp",
        "en",
        "dev",
    ),
    "sentences": reader({"glue/CoLA/dev.tsv": COLA}, numbered((3,), 1), "cola", "en", "dev"),
    "scores": reader(
        {"glue/STS-B/original/sts-dev.tsv": STSB}, numbered((5, 6), 4), "stsb", "en", "dev"
    ),
    "records": reader({"chemprot/dev.txt": RECORDS}, records, "chemprot", "en", "dev"),
    "choices": reader({"belebele/deu_Latn.jsonl": BELEBELE}, choices, "belebele", "de", "test"),
    "reviews": reader(
        {"cls-acl10-unprocessed/de/books/test.review": REVIEWS}, reviews, "cls", "de", "books-test"
    ),
    "tags": reader({"panx/de/test": TAGS}, tagged, "pan-x", "de", "test"),
    "trees": reader(
        {"ud-2.5/UD_German-GSD/de_gsd-ud-test.conllu": TREES}, trees, "ud-pos", "de", "test"
    ),
    "questions": reader({"xquad/xquad.de.json": squad()}, questions, "xquad", "de", "test"),
    "questions without answer": reader(SQUAD2, questions, "squad2", "en", "dev"),
    "translated questions": reader(TRANSLATED, questions, "squad1", "de", "train"),
    "questions of a language": reader(GOLDP, questions, "tydiqa", "fi", "train"),
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_examples_are_read_as_they_stand_or_refused(tmp_path, name):
    of_files(name, READERS[name], tmp_path, TIMES)


def test_damaged_translations_are_read_as_they_stand_or_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))

    def read(folder, report):
        return [
            text
            for texts in read_translations("chemprot", "en", "dev", folder).values()
            for text in texts
        ]

    files = {
        "chemprot-dev-en.txt": "".join(f"Satz {n}\n" for n in NUMBERS),
        "chemprot/dev.txt": RECORDS,
    }
    of_files("translations", Reader(files, read, lines), tmp_path, TIMES)
