"""Readers over damaged files: each call ends with a result or with an error of the library, within its time.

`XLNB_CAMPAIGNS=full` damages every file 300 times, otherwise a handful of times."""
import gzip, json, os, random, signal

import pytest

from xlnb.core import CheckpointError, ConfigError, DataError
from xlnb.corpora import Report, read_parallel, read_text, read_tsv_pairs
from xlnb.formats import (read_dictionary, read_json_gold, read_jsonl, read_mined, read_pharaoh, read_pharaoh_gold,
                          read_triples)
from xlnb.vectors import read_vectors

pytestmark = pytest.mark.campaign
TIMES = 300 if os.environ.get("XLNB_CAMPAIGNS") == "full" else 12
SECONDS = 10 # that one call may take
TEXT = "".join(f"Grüße {number} привет 你好\n" for number in range(20))
ROWS = "".join(f"1.{number}\tWort{number} ein\tword{number} one\n" for number in range(20))
GOLD = "".join(json.dumps({"src_words": ["a", "b"], "tgt_words": ["c", str(number)], "alignment": [[0, 0], [1, 1]]})
               + "\n" for number in range(20))
VECTORS = "20 3\n" + "".join(f"word{number} 0.{number + 1} -1.5 2.0\n" for number in range(20))
SENTENCES = "das Haus\nein Buch\n" * 10

READERS = { # name → file name, its text, and a function of its path and a report
    "text": ("a.txt", TEXT, lambda path, report: list(read_text(path, report=report))),
    "packed text": ("a.gz", TEXT, lambda path, report: list(read_text(path, report=report))),
    "parallel": ("a.de", TEXT, lambda path, report: list(read_parallel([path, path], empty="skip", report=report))),
    "tsv": ("a.tsv", ROWS, lambda path, report: list(read_tsv_pairs(path, (1, 2), empty="skip", report=report))),
    "mined": ("a.tsv", ROWS, lambda path, report: list(read_mined(path, "ccmatrix", empty="skip", report=report))),
    "jsonl": ("a.jsonl", '{"text": "Grüße\\u00e9"}\n' * 20, lambda path, report: list(read_jsonl(path))),
    "json gold": ("a.jsonl", GOLD, lambda path, report: read_json_gold(path, report=report)),
    "links": ("a.links", "0-0 1-1\n" * 20, lambda path, report: read_pharaoh(path, report=report)),
    "gold": ("a.gold", "1-1 2p2\n" * 20, lambda path, report: read_pharaoh_gold(path, _sentences(path), report=report)),
    "triples": ("a.wa", "".join(f"{number} 1 1 S\n{number} 2 2 P\n" for number in range(1, 21)),
                lambda path, report: read_triples(path, *_sentences(path), first_id=1, report=report)),
    "dictionary": ("a.dict", "".join(f"wort{number} word{number}\n" for number in range(20)),
                   lambda path, report: read_dictionary(path, report=report)),
    "vectors": ("a.vec", VECTORS, lambda path, report: read_vectors(path, report=report).words),
}


def _sentences(path):
    sides = [path.with_name("first"), path.with_name("second")]
    for side in sides: side.write_text(SENTENCES)
    return sides


def _flipped(data, draw):
    place = draw.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1:]

def _inserted(data, draw):
    place = draw.randrange(len(data) + 1)
    odd = draw.choice([b"\0", b"\xef\xbb\xbf", b"\r", "\u2028".encode(), b"\x85", b"\xff", b"\t", b"\n", b'"'])
    return data[:place] + odd + data[place:]

def _swapped(data, draw):
    lines = data.splitlines(keepends=True)
    i, j = (draw.randrange(len(lines)) for _ in range(2))
    lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)

def _removed(data, draw):
    begin = draw.randrange(len(data))
    return data[:begin] + data[begin + draw.randrange(1, 40):]

DAMAGES = {
    "flipped": _flipped, "inserted": _inserted, "swapped": _swapped, "removed": _removed,
    "cut off": lambda data, draw: data[:draw.randrange(len(data))],
    "repeated": lambda data, draw: data + data[draw.randrange(len(data)):],
    "huge": lambda data, draw: data + b"9" * 200_000 + b"\n",
    "nested": lambda data, draw: data + b"[" * 100_000 + b"\n",
}


def _stopped(*_): raise TimeoutError(f"a reader took more than {SECONDS} s")


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused_in_the_librarys_words(tmp_path, name):
    file, text, read = READERS[name]
    path, data, draw = tmp_path / file, text.encode(), random.Random(name)
    if path.suffix == ".gz": data = gzip.compress(data, mtime=0)
    path.write_bytes(data)
    assert len(read(path, Report())) == 20
    before = signal.signal(signal.SIGALRM, _stopped)
    try:
        for number in range(TIMES):
            damage = [*DAMAGES][number % len(DAMAGES)]
            path.write_bytes(DAMAGES[damage](data, draw))
            signal.alarm(SECONDS)
            try: read(path, Report())
            except (CheckpointError, ConfigError, DataError): pass
            except Exception as error: raise AssertionError(f"{name}, {damage}, number {number}: {error!r}") from error
            finally: signal.alarm(0)
    finally: signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["text", "tsv", "links", "dictionary"])
def test_what_leaves_the_content_equal_is_read_alike(tmp_path, name):
    file, text, read = READERS[name]
    path = tmp_path / file
    path.write_text(text, newline="")
    valid = read(path, Report())
    for same in ("\ufeff" + text, text.replace("\n", "\r\n"), text.removesuffix("\n")):
        path.write_text(same, newline="")
        assert read(path, Report()) == valid
