"""Readers of text over damaged files: the library's errors, in time, and no item that does not stand in the file.

`read_parquet` is left out, since tests run without pyarrow, and the tables of the papers and CLDR's data, which are
files of packages."""

import csv, io, json, re, zipfile
from xml.etree import ElementTree

import numpy as np
import pytest
from damage import Reader, fields, lines, of_files, same, times

from xlnb.base.core import read_lines, sha256_file
from xlnb.text.catalogue import checksums
from xlnb.text.corpora import (
    Report,
    read_moses,
    read_multi30k,
    read_ntrex,
    read_parallel,
    read_tatoeba,
    read_text,
    read_tsv_pairs,
    read_verses,
)
from xlnb.text.formats import (
    read_bucc,
    read_cc100,
    read_dictionary,
    read_json_gold,
    read_jsonl,
    read_mined,
    read_opus,
    read_pharaoh,
    read_pharaoh_gold,
    read_references,
    read_triples,
    read_udhr,
    read_wmt,
)
from xlnb.text.matching import read_table
from xlnb.text.counts import read_pair_counts
from xlnb.text.vectors import read_vectors
from xlnb.measures.alignment import read_sides
from xlnb.measures.lexicon import read_similarity

pytestmark = pytest.mark.campaign
TIMES = times(6)
NUMBERS = range(20)
TEXT = "".join(f"Grüße {number} привет 你好\n" for number in NUMBERS)
ROWS = "".join(f"1.{number}\tWort{number} ein\tword{number} one\n" for number in NUMBERS)
GOLD = "".join(
    json.dumps(
        {"src_words": ["a", "b"], "tgt_words": ["c", str(number)], "alignment": [[0, 0], [1, 1]]}
    )
    + "\n"
    for number in NUMBERS
)
VECTORS = "20 3\n" + "".join(f"word{number} 0.{number + 1} -1.5 2.0\n" for number in NUMBERS)
BINARY = b"20 3\n" + b"".join(
    b"word%d " % number + np.array([number + 1, -1.5, 2], "<f4").tobytes() + b"\n"
    for number in NUMBERS
)
SIDES = {"first": "das Haus\nein Buch\n" * 10, "second": "das Haus\nein Buch\n" * 10}
SGM = (
    '<srcset setid="a" srclang="any">\n<doc docid="b">\n'
    + "".join(f'<seg id="{number}">Satz {number}</seg>\n' for number in NUMBERS)
    + "</doc>\n</srcset>\n"
)
UDHR = (
    "<udhr>\n<title>Rechte</title>\n<preamble>\n<para>Da nun</para>\n</preamble>\n"
    + "".join(
        f'<article number="{number}">\n<title>{number}.</title>\n<para>Alle '
        f"{number}</para>\n</article>\n"
        for number in range(1, 31)
    )
    + "</udhr>\n"
)
COUNTS = "pair,count\nde-en,100\nen-fr,2000.5\nde-fr,30\nen-ru,7\n"
TABLE = "id\tpiece\trule\tlanguage\tsource ids\tsource pieces\tweights\n" + "".join(
    f'{number}\t"▁a{number}"\tequal\t\t[{number}]\t["a"]\t[1.0]\n' for number in NUMBERS
)
BUCC = {
    "de": "".join(f"de-{number}\tSatz {number}\n" for number in NUMBERS),
    "en": "".join(f"en-{number}\tline {number}\n" for number in NUMBERS),
    "gold": "".join(f"de-{number}\ten-{number}\n" for number in NUMBERS),
}
EMPTY = "empty side"
REPEATED = "repeated link"
RANGE = "link out of range"


def zipped(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in members.items():
            z.writestr(zipfile.ZipInfo(f"X.de-en.{name}"), text)
    return file.getvalue()


def columns(*numbers):
    return lambda data: [tuple(row[n] for n in numbers) for row in fields(data)]


def twice(data):
    return [(line, line) for line in lines(data)]


def blocks(rows) -> list:  # what stands between blank lines
    found = [[]]
    for row in rows:
        found[-1].append(row) if row else found.append([])
    return [tuple(block) for block in found if block]


# alignments: (sentence, words) and (sentence, i, j, sure), so that links can be counted


def flat(pairs):
    words = [(n, pair.first, pair.second) for n, pair in enumerate(pairs)]
    return sorted(
        [
            *words,
            *(
                (n, i, j, (i, j) in pair.sure)
                for n, pair in enumerate(pairs)
                for i, j in pair.possible
            ),
        ],
        key=same,
    )


def flat_sets(sets):
    return sorted((n, i, j) for n, links in enumerate(sets) for i, j in links)


def words_of(n):
    return (n, *[SIDES["first"].split("\n")[n].split()] * 2)


def plain_links(data):
    return sorted(
        (n, *map(int, link.split("-")))
        for n, line in enumerate(lines(data))
        for link in line.split()
    )


def plain_gold(data):
    links = [
        (n, *(int(k) - 1 for k in re.split("[-p]", link)), "-" in link)
        for n, line in enumerate(lines(data))
        for link in line.split()
    ]
    return sorted([*map(words_of, NUMBERS), *links], key=same)


def plain_triples(data):
    rows = [line.split() for line in lines(data)]
    links = [(int(row[0]) - 1, int(row[1]) - 1, int(row[2]) - 1, row[3:] != ["P"]) for row in rows]
    return sorted([*map(words_of, NUMBERS), *links], key=same)


def plain_json_gold(data):
    rows = [(n, json.loads(line.strip())) for n, line in enumerate(lines(data))]
    return sorted(
        [
            *((n, row["src_words"], row["tgt_words"]) for n, row in rows),
            *((n, i, j, True) for n, row in rows for i, j in row["alignment"]),
        ],
        key=same,
    )


# word vectors: five digits, since parsers round differently


def rounded(words, matrix):
    return [(word, *(f"{x:.5g}" for x in row)) for word, row in zip(words, matrix)]


def vectors(path, report):
    return rounded((found := read_vectors(path, report=report)).words, found.matrix.tolist())


def plain_vectors(data):
    rows = [re.split("[ \t]+", line.strip(" \t\r")) for line in lines(data)]
    while not any(rows[-1]):
        rows.pop()
    if len(rows[0]) == 2:
        width = int(rows[0][1])
        rows = rows[1:]
    else:
        width = len(rows[0]) - 1
    numbers = np.array([row[-width:] for row in rows], np.float64).astype(np.float32)
    return rounded([" ".join(row[:-width]) for row in rows], numbers.tolist())


def plain_binary(data):
    header, _, data = data.partition(b"\n")
    (count, width), words, numbers = map(int, header.split()), [], []
    for _ in range(count):
        word, _, data = data.partition(b" ")
        words.append(word.removeprefix(b"\n").decode())
        numbers.append(np.frombuffer(data[: 4 * width], "<f4").tolist())
        data = data[4 * width :]
    assert not data.strip(b"\n") and all(len(row) == width for row in numbers)
    return rounded(words, numbers)


def plain_tensors(data):
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    rest = data[8 + size :]

    def part(name):
        return rest[slice(*header[name]["data_offsets"])]

    kind = {"F32": np.float32, "U32": np.uint32, "I32": np.int32, "F16": np.float16, "BF16": None}
    matrix = np.frombuffer(part("vectors"), kind[header["vectors"]["dtype"]]).reshape(
        header["vectors"]["shape"]
    )
    return rounded(part("words").decode().split("\n"), matrix.astype(np.float32).tolist())


def tensors(tmp):
    from xlnb.text.vectors import WordVectors

    WordVectors(
        [f"word{n}" for n in NUMBERS], np.arange(1, 61, dtype=np.float32).reshape(20, 3)
    ).save(tmp)
    return tmp.read_bytes()


# other forms


def plain_documents(data):
    texts = [json.loads(line)["text"] if line.strip() else "" for line in lines(data)]
    return [tuple(part.strip() for part in text.split("\n") if part.strip()) for text in texts]


def plain_counts(data):
    header, *rows = [row for row in csv.reader(lines(data)) if row]
    place = header.index("pair"), header.index("count")
    return sorted(
        ("-".join(sorted(row[place[0]].lower().split("-"))), float(row[place[1]])) for row in rows
    )


def counts(path):
    return sorted((name.lower(), number) for name, number in read_pair_counts(path).items())


def table(path):
    return [tuple(row) for row in read_table(path).itertuples(index=False)]


def plain_table(data):
    read = json.loads, json.loads, str, str, json.loads, json.loads, json.loads
    return [tuple(f(value) for f, value in zip(read, row, strict=True)) for row in fields(data)[1:]]


def plain_segments(data):
    found = re.findall(r'<seg\s+id="?([^">]+)"?\s*>(.*)</seg>', data.decode(), re.I)
    return [*((text, text) for _, text in found), *["markup"] * (len(lines(data)) - len(found))]


def plain_articles(data):
    "All texts of the elements, by article: the parser of the library is another."
    found = []

    def walk(element, number):
        if element.tag == "preamble":
            number = 0
        if element.tag == "article":
            number = int(element.get("number"))
        for text in (
            element.text,
            *(part for child in element for part in (walk(child, number), child.tail)),
        ):
            if text and text.strip():
                found.append((-1 if number is None else number, re.sub(r"[ \t\r\n]+", " ", text)))

    walk(ElementTree.fromstring(data.removeprefix(b"\xef\xbb\xbf")), None)
    return sorted(found, key=lambda item: item[0])


def articles(path, report):
    return [(number, text) for number, texts in read_udhr(path, report).items() for text in texts]


def plain_verses(data):
    rows = [tuple(row) for row in fields(data)]
    assert all(len(row) == 2 for row in rows)
    return rows


def sums(folder):
    names = [f"file{n}" for n in range(4)]
    for name in names:
        (folder / name).write_text(name)
    return "".join(f"{sha256_file(folder / name)}  {name}\n" for name in names)


READERS = {
    "text": Reader(
        {"a.txt": TEXT}, lambda f, report: [*read_text(f / "a.txt", report)], lines, ("blank line",)
    ),
    "packed text": Reader(
        {"a.gz": TEXT}, lambda f, report: [*read_text(f / "a.gz", report)], lines, ("blank line",)
    ),
    "text in xz": Reader(
        {"a.xz": TEXT}, lambda f, report: [*read_text(f / "a.xz", report)], lines, ("blank line",)
    ),
    "lines": Reader({"a.txt": TEXT}, lambda f, report: [*read_lines(f / "a.txt")], lines),
    "parallel": Reader(
        {"a.de": TEXT},
        lambda f, report: [*read_parallel([f / "a.de"] * 2, "skip", report=report)],
        twice,
        (EMPTY,),
    ),
    "moses": Reader(
        {"a": TEXT, "b": TEXT},
        lambda f, report: [a for a, _ in read_moses(f / "a", f / "b", empty="skip", report=report)],
        lines,
        (EMPTY,),
    ),
    "tatoeba": Reader(
        {"tatoeba.deu-eng.deu": TEXT, "tatoeba.deu-eng.eng": TEXT},
        lambda f, report: read_tatoeba(f, "de")[0],
        lines,
    ),
    "multi30k": Reader(
        {"val.de.gz": TEXT, "val.en.gz": TEXT},
        lambda f, report: [a for a, _ in read_multi30k(f, "val", "de,en", report)],
        lines,
    ),
    "ntrex": Reader(
        {"newstest2019-ref.deu.txt.gz": TEXT, "newstest2019-src.eng.txt.gz": TEXT},
        lambda f, report: [a for a, _ in read_ntrex(f, "de,en", report)],
        lines,
    ),
    "verses": Reader(
        {
            "a.tsv": "".join(
                f"MAT 5:{n}\tVers {n}\n" if n % 5 else f"MAT 5:{n}\t<range>\n" for n in range(1, 41)
            )
        },
        lambda f, report: [*read_verses(f / "a.tsv", report)],
        plain_verses,
        ("verse ",),
    ),
    "tsv": Reader(
        {"a.tsv": ROWS},
        lambda f, report: [*read_tsv_pairs(f / "a.tsv", (1, 2), "skip", report=report)],
        columns(1, 2),
        (EMPTY,),
    ),
    "mined": Reader(
        {"a.tsv": ROWS},
        lambda f, report: [*read_mined(f / "a.tsv", "ccmatrix", empty="skip", report=report)],
        columns(1, 2),
        (EMPTY,),
    ),
    "cc100": Reader(
        {"a.xz": TEXT + "\n" + TEXT},
        lambda f, report: [*read_cc100(f / "a.xz", report=report)],
        lines,
        ("blank line",),
    ),
    "documents": Reader(
        {"a.txt": (TEXT + "\n") * 3},
        lambda f, report: [*read_cc100(f / "a.txt", True, report)],
        lambda data: blocks(line.strip() for line in lines(data)),
    ),
    "jsonl": Reader(
        {"a.jsonl": '{"text": "Grüße\\u00e9\\nb"}\n' * 20},
        lambda f, report: [*read_jsonl(f / "a.jsonl", documents=True, report=report)],
        plain_documents,
        ("empty document",),
    ),
    # a zip has checksums: whatever is damaged, what comes out is what went in
    "opus": Reader(
        {"a.zip": zipped(de=TEXT, en=TEXT)},
        lambda f, report: [*read_opus(f / "a.zip", "de,en")],
        lambda data: twice(TEXT.encode()),
    ),
    "references": Reader(
        {"a": TEXT, "b": TEXT},
        lambda f, report: [
            text for _, text, _ in read_references(f / "a", [f / "b"], report=report)
        ],
        lines,
    ),
    "wmt": Reader(
        {"a.sgm": SGM},
        lambda f, report: [*read_wmt(f / "a.sgm", f / "a.sgm", empty="skip", report=report)],
        plain_segments,
        (EMPTY, "line of markup"),
    ),
    "udhr": Reader(
        {"a.xml": UDHR},
        lambda f, report: articles(f / "a.xml", report),
        plain_articles,
        ("text in", "empty"),
    ),
    "bucc": Reader(
        BUCC,
        lambda f, report: [*read_bucc(f / "de", f / "en", f / "gold")[0].items()],
        columns(0, 1),
    ),
    "bucc gold": Reader(
        BUCC,
        lambda f, report: read_bucc(f / "de", f / "en", f / "gold", report)[2],
        columns(0, 1),
        ("repeated",),
        "gold",
    ),
    "json gold": Reader(
        {"a.jsonl": GOLD},
        lambda f, report: flat(read_json_gold(f / "a.jsonl", report=report)),
        plain_json_gold,
        (REPEATED, RANGE),
    ),
    "links": Reader(
        {"a": "0-0 1-1\n" * 20},
        lambda f, report: flat_sets(read_pharaoh(f / "a", report=report)),
        plain_links,
        (REPEATED,),
    ),
    "gold": Reader(
        {"a": "1-1 2p2\n" * 20, **SIDES},
        lambda f, report: flat(
            read_pharaoh_gold(f / "a", [f / "first", f / "second"], report=report)
        ),
        plain_gold,
        (REPEATED, RANGE, "link both"),
    ),
    "triples": Reader(
        {"a": "".join(f"{number} 1 1 S\n{number} 2 2 P\n" for number in range(1, 21)), **SIDES},
        lambda f, report: flat(
            read_triples(f / "a", f / "first", f / "second", first_id=1, report=report)
        ),
        plain_triples,
        (REPEATED, RANGE, "link both"),
    ),
    "dictionary": Reader(
        {"a": "".join(f"wort{number} word{number}\n" for number in NUMBERS)},
        lambda f, report: read_dictionary(f / "a", report),
        lambda data: [
            re.split("\t" if "\t" in line else " +", line.strip()) for line in lines(data)
        ],
    ),
    "vectors": Reader(
        {"a.vec": VECTORS}, lambda f, report: vectors(f / "a.vec", report), plain_vectors
    ),
    "packed vectors": Reader(
        {"a.txt.gz": VECTORS}, lambda f, report: vectors(f / "a.txt.gz", report), plain_vectors
    ),
    "binary vectors": Reader(
        {"a.bin": BINARY}, lambda f, report: vectors(f / "a.bin", report), plain_binary
    ),
    "counts": Reader({"a.csv": COUNTS}, lambda f, report: counts(f / "a.csv"), plain_counts),
    "similarity": Reader(
        {"a": "".join(f"Wort{n}\tword{n}\t{n}.5\n" for n in NUMBERS)},
        lambda f, report: read_similarity(f / "a"),
        lambda data: [(a, b, float(c)) for a, b, c in fields(data)],
    ),
    "sides": Reader(
        {"a": TEXT, "b": TEXT},
        lambda f, report: [a for a, _ in read_sides(f / "a", f / "b")],
        lambda data: [re.findall("[^ \t]+", line) for line in lines(data)],
    ),
    "matching": Reader({"a.tsv": TABLE}, lambda f, report: table(f / "a.tsv"), plain_table),
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_text_is_read_as_it_stands_or_refused(tmp_path, name):
    of_files(name, READERS[name], tmp_path, TIMES)


def test_damaged_tensors_of_words_are_read_as_they_stand_or_refused(tmp_path):
    content = tensors(tmp_path / "made.safetensors")
    reader = Reader(
        {"a.safetensors": content},
        lambda f, report: vectors(f / "a.safetensors", report),
        plain_tensors,
    )
    of_files("tensors", reader, tmp_path, TIMES)


def test_a_damaged_list_of_checksums_is_refused_or_changes_nothing(tmp_path):
    text = sums(tmp_path)
    files = [tmp_path / f"file{n}" for n in range(4)]

    def stated(data):
        return [
            re.fullmatch("([0-9a-f]{64})  (.+)", line).group(2, 1)
            for line in lines(data)
            if line.strip()
        ]

    reader = Reader(
        {"SHA256SUMS": text},
        lambda f, report: sorted(checksums(files).items()),
        lambda data: stated(text.encode()) if stated(data) else 0,
    )
    of_files("checksums", reader, tmp_path, TIMES)


@pytest.mark.parametrize("name", ["text", "tsv", "links", "dictionary"])
def test_what_leaves_the_content_equal_is_read_alike(tmp_path, name):
    [[file, text]], read = READERS[name].files.items(), READERS[name].read
    path = tmp_path / file
    path.write_text(text, newline="")
    valid = read(tmp_path, Report())
    for alike in ("\ufeff" + text, text.replace("\n", "\r\n"), text.removesuffix("\n")):
        path.write_text(alike, newline="")
        assert read(tmp_path, Report()) == valid
