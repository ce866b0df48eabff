"""Readers of corpora: malformed files one by one, streams, codes of languages, mismatched pairs."""

import gzip, lzma, os, pickle, tracemalloc
from pathlib import Path

import pytest

from conftest import write
from xlnb.base.core import ConfigError, DataError, pair_name, split_pair
from xlnb.text.corpora import (
    LANGUAGES,
    SCHEMES,
    XTREME_40,
    AlignedPair,
    from_code,
    language_code,
    mismatched,
    read_moses,
    read_parallel,
    read_tatoeba,
    read_text,
    read_tsv_pairs,
    read_verses,
)


@pytest.mark.parametrize("ending", [".txt", ".gz", ".xz", ".de"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "end"])
def test_text_is_read_the_same_in_every_packing(tmp_path, ending, end, bom, last):
    lines = ["Grüße", "Привет", "你好", "שלום"]
    text = bom + end.join(lines) + (end if last else "")
    assert list(read_text(write(tmp_path / f"a{ending}", text))) == lines


@pytest.mark.parametrize(
    "inside", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"]
)
def test_only_a_newline_ends_a_line(tmp_path, inside):
    path = write(tmp_path / "a.txt", f"a{inside}b\nc\n")
    assert list(read_text(path)) == [f"a{inside}b", "c"]


@pytest.mark.parametrize("last", ["", "\r"])
def test_a_file_whose_lines_end_in_carriage_returns_alone_is_refused(tmp_path, last):
    path = write(tmp_path / "a.txt", f"a\rb{last}")
    with pytest.raises(DataError, match=r"carriage returns alone: .*tr '\\r' '\\n'"):
        list(read_text(path))
    assert list(read_text(write(tmp_path / "b.txt", "a\r"))) == ["a"]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\u3000", "\u202f", "\r"])
def test_blank_lines_are_counted_once_however_often_they_are_read(tmp_path, blank):
    stream = read_text(write(tmp_path / "a.txt", f"a\n{blank}\n{blank}b\u3000\n"))
    for _ in range(2):
        assert list(stream) == ["a", "b"]
    assert stream.report.counts == {"blank line": 1}
    assert stream.report.rows() == [
        {"what": "blank line", "file": "a.txt", "count": 1, "first line": 2}
    ]


def test_invisible_joiners_inside_a_line_stay(tmp_path):
    line = "می\u200cخواهم ශ්\u200dරී q\u0301\u00a0!"  # with an accent that no letter includes
    assert list(read_text(write(tmp_path / "a.txt", line + "\n"))) == [line]


# of one word
SPELLINGS = ("caf\u00e9", "cafe\u0301", "ca\u00adfe\u0301", "caf\u00ade\u00ad\u0301")


def test_spellings_of_a_word_are_one_in_every_reader_of_text(tmp_path):
    lines = "".join(f"Le {word} noir\n" for word in SPELLINGS)
    a = write(tmp_path / "a.gz", lines)
    b = write(tmp_path / "b.txt", "x\n" * 3 + "\u00e9 e\u0301\n")
    tsv = write(
        tmp_path / "c.tsv",
        "".join(f"GEN 1:{n}\t{line}\n" for n, line in enumerate(lines.splitlines())),
    )
    for stream, texts in (
        (read_text(a), lambda line: line),
        (read_moses(a, b), lambda row: row[0]),
        (read_moses(b, a), lambda row: row[1]),
        (read_tsv_pairs(tsv), lambda row: row[1]),
        (read_verses(tsv), lambda row: row[1]),
    ):
        for _ in range(2):
            assert [*map(texts, stream)] == ["Le caf\u00e9 noir"] * 4
        files = {
            row["file"]: (row["what"], row["count"], row["first line"])
            for row in stream.report.rows()
        }
        assert files.pop("b.txt", None) in (None, ("normalised", 1, 4))
        assert [*files.values()] == [("normalised", 3, 2)] and stream.report.left_out == {}


def test_spellings_of_a_row_are_duplicates(tmp_path):
    a = write(tmp_path / "a", "\n".join(SPELLINGS))
    b = write(tmp_path / "b", "x\n" * 4)
    assert list(read_moses(a, b, duplicate="skip")) == [("caf\u00e9", "x")]


def test_a_soft_hyphen_alone_is_a_word_and_a_line(tmp_path):
    lines = ["a \u00ad b", "\u00ad", "a \u00ad\u00ad", "\u00ad b"]
    stream = read_text(write(tmp_path / "a.txt", "\n".join(lines)))
    assert list(stream) == lines and stream.report.counts == {}


@pytest.mark.parametrize("ending", [".txt", ".gz", ".xz"])
def test_latin1_names_file_line_and_byte(tmp_path, ending):
    good = "x" * 50 + "\n"
    path = write(
        tmp_path / f"a{ending}", (good * 5000).encode() + "Gruß\n".encode("latin-1") + good.encode()
    )
    message = r"byte 4 of the line, 0xdf, is not UTF-8 but rather Latin-1.*'Gruß'"
    with pytest.raises(DataError, match=message) as e:
        list(read_text(path))
    assert e.value.line == 5001 and Path(e.value.file) == path and "LATIN1" in str(e.value)


@pytest.mark.parametrize("cut", [b"\xe2\x82", b"\xf0\x9f\x98"])
def test_a_character_cut_in_two_at_the_end_of_the_file(tmp_path, cut):
    path = write(tmp_path / "a.txt", b"ok\nprice 5 " + cut)
    with pytest.raises(DataError, match="not UTF-8") as e:
        list(read_text(path))
    assert e.value.line == 2


def test_utf16_is_recognised(tmp_path):
    with pytest.raises(DataError, match="UTF-16"):
        list(read_text(write(tmp_path / "a.txt", "Привет".encode("utf-16"))))


@pytest.mark.parametrize("pack, ending", [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
@pytest.mark.parametrize("damage", ["cut", "not packed", "empty", "flipped"])
def test_damaged_compressed_files(tmp_path, pack, ending, damage):
    whole = pack(os.urandom(3000).hex().encode() * 3)
    flipped = bytearray(whole)
    flipped[-6] ^= 255  # in gzip the checksum, in xz the footer
    data = {
        "cut": whole[:-40],
        "not packed": b"plain text\n",
        "empty": b"",
        "flipped": bytes(flipped),
    }[damage]
    path = tmp_path / f"a{ending}"
    path.write_bytes(data)
    with pytest.raises(DataError, match="fetch it again") as e:
        list(read_text(path))
    assert e.value.file == path and e.value.line is not None


def test_a_missing_file_is_named_at_once(tmp_path):
    write(tmp_path / "train.de.gz", "x")
    with pytest.raises(
        FileNotFoundError,
        match=r"train\.dee\.gz is not there; nearest in its folder: train\.de\.gz",
    ):
        read_text(tmp_path / "train.dee.gz")
    with pytest.raises(FileNotFoundError, match="nor is its folder"):
        read_text(tmp_path / "no" / "x.txt")
    with pytest.raises(FileNotFoundError, match="is a folder: name a file in it"):
        read_text(tmp_path)


def test_streams_hold_no_file_in_memory(tmp_path):
    # 10 MB
    path = write(
        tmp_path / "a.txt.gz", ("ein ziemlich langer Satz, der nichts sagt" * 5 + "\n") * 50_000
    )
    tracemalloc.start()
    for _ in read_moses(path, path):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def test_streams_are_pickled_as_recipes(tmp_path):
    a = write(tmp_path / "a", "x\ny\n")
    b = write(tmp_path / "b", "1\n2\n")
    stream = pickle.loads(pickle.dumps(mismatched(read_moses(a, b), seed=3)))
    assert list(stream) == [("x", "2"), ("y", "1")] and stream.report.counts == {}


@pytest.mark.parametrize("lengths", [(3, 2), (2, 3), (0, 1), (1, 0), (2, 5, 2), (9, 9, 8)])
def test_sides_of_unequal_length(tmp_path, lengths):
    paths = [write(tmp_path / f"s{i}", "x\n" * n) for i, n in enumerate(lengths)]
    message = f"ends after {min(lengths)} lines.* has {max(lengths)}"
    with pytest.raises(DataError, match=message) as e:
        list(read_parallel(paths))
    assert Path(e.value.file) == paths[lengths.index(min(lengths))] and e.value.line == min(lengths)


def test_empty_sides(tmp_path):
    a = write(tmp_path / "a", "x\n\u3000\nz\n")
    b = write(tmp_path / "b", "1\n2\n\n")
    with pytest.raises(DataError, match="one side is empty") as e:
        list(read_moses(a, b))
    assert e.value.line == 2
    stream = read_moses(a, b, empty="skip")
    for _ in range(2):
        assert list(stream) == [("x", "1")] and stream.report.counts == {"empty side": 2}


def test_duplicates(tmp_path):
    a = write(tmp_path / "a", "x\ny\nx\nx\n")
    b = write(tmp_path / "b", "1\n2\n1\n3\n")
    assert len(list(read_moses(a, b))) == 4
    stream = read_moses(a, b, duplicate="skip")
    assert list(stream) == [("x", "1"), ("y", "2"), ("x", "3")] and stream.report.counts == {
        "duplicate": 1
    }
    with pytest.raises(DataError, match="stood in the file before") as e:
        list(read_moses(a, b, duplicate="raise"))
    assert e.value.line == 3


@pytest.mark.parametrize("option", [{"empty": "keep"}, {"duplicate": "drop"}])
def test_unknown_choices_are_refused(tmp_path, option):
    a = write(tmp_path / "a", "x\n")
    with pytest.raises(ConfigError, match="is not one of"):
        read_moses(a, a, **option)
    with pytest.raises(ConfigError, match="is not one of"):
        read_tsv_pairs(a, **option)


def test_tsv_fields(tmp_path):
    path = write(tmp_path / "a.tsv", "0.9\tx\t1\r\n0.8\t\t2\n\ty\t3\textra\n")
    assert list(read_tsv_pairs(path, (1, 2), empty="skip")) == [("x", "1"), ("y", "3")]
    assert list(read_tsv_pairs(path, (2, 0), empty="skip")) == [("1", "0.9"), ("2", "0.8")]
    with pytest.raises(DataError, match="column 3 .* 3 tab-separated fields"):
        list(read_tsv_pairs(path, (1, 3)))


def test_verses_in_ranges(tmp_path):
    texts = ["<range>", "a", "b", "<range>", "<range>", "c", "<range>"]
    rows = [f"GEN 1:{verse}\t{text}" for verse, text in enumerate(texts, 1)]
    stream = read_verses(write(tmp_path / "a.tsv.gz", "\n".join(rows)))
    for _ in range(2):
        assert list(stream) == [("GEN 1:2", "a")]
    assert stream.report.counts == {"verse inside a range": 4, "verse that holds a range": 2}


@pytest.mark.parametrize(
    "row", ["GEN 1:2", "GEN 1:2\t", "GEN 1.2\tx", "\tx", "", "GEN 1:2\tx\ty", "GEN 1:1\tagain"]
)
def test_malformed_verses(tmp_path, row):
    path = write(tmp_path / "a.tsv", f"GEN 1:1\tx\n{row}\nGEN 1:3\tz\n")
    with pytest.raises(DataError) as e:
        list(read_verses(path))
    assert e.value.line == 2


def test_tatoeba(tmp_path):
    write(tmp_path / "tatoeba.fra-eng.fra", "Oui.\nNon.\n")
    write(tmp_path / "tatoeba.fra-eng.eng", "Yes.\nNo.\n")
    assert read_tatoeba(tmp_path, "fr") == (["Oui.", "Non."], ["Yes.", "No."])
    write(tmp_path / "tatoeba.fra-eng.eng", "Yes.\nYes.\n")
    with pytest.raises(DataError, match="repeats line 1"):
        read_tatoeba(tmp_path, "fr")
    with pytest.raises(ConfigError, match="other side"):
        read_tatoeba(tmp_path, "en")


def test_language_codes():
    assert set(XTREME_40) <= set(LANGUAGES) and len(XTREME_40) == len(set(XTREME_40)) == 40
    assert language_code("zh-Hant", "ntrex") == "zho-TW" and from_code("pes", "tatoeba") == "fa"
    assert (
        language_code("eng_Latn", "nllb") == "eng_Latn" and language_code("DE", "tatoeba") == "deu"
    )
    with pytest.raises(ConfigError, match="nearest"):
        language_code("english", "tatoeba")
    with pytest.raises(ConfigError, match="scheme='flores' is not one of"):
        language_code("de", "flores")
    with pytest.raises(ConfigError, match="did you mean 'deu'"):
        from_code("deu1", "tatoeba")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_code_leads_there_and_back(scheme):
    codes = {
        lang: language_code(lang, scheme) for lang, codes in LANGUAGES.items() if scheme in codes
    }
    assert codes and len(set(codes.values())) == len(codes), "two languages share a code"
    assert {lang: from_code(code, scheme) for lang, code in codes.items()} == {
        lang: lang for lang in codes
    }


@pytest.mark.parametrize(
    "ours, scheme, code",
    [
        ("de", "udhr", "deu_1996"),
        ("el", "udhr", "ell_monotonic"),
        ("fa", "udhr", "pes_1"),
        ("ms", "udhr", "mly_latn"),
        ("zh", "udhr", "cmn_hans"),
        ("ckb-Latn", "udhr", "ckb"),
        ("prs", "nllb", "prs_Arab"),
        ("zh-Hant", "nllb", "zho_Hant"),
        ("ar-Latn", "nllb", "arb_Latn"),
        ("zh", "cc100", "zh-Hans"),
        ("hi-Latn", "cc100", "hi_rom"),
        ("nso", "cc100", "ns"),
        ("sr-Latn", "ud", "Serbian"),
        ("zh-Hant", "opus", "zh_TW"),
        ("no", "muse", "no"),
        ("ay", "americasnli", "aym"),
    ],
)
def test_codes_of_published_sets(ours, scheme, code):
    assert language_code(ours, scheme) == code and from_code(code, scheme) == ours


def test_our_codes_can_stand_in_the_name_of_a_pair():
    for lang in LANGUAGES:
        assert set(split_pair(pair_name(lang, "en"))) == {lang, "en"}


@pytest.mark.parametrize(
    "there, asked",
    [("a.txt", "a.txt.gz"), ("a.txt.gz", "a.txt"), ("a.txt.xz", "a.txt"), ("a.txt.xz", "a.txt.gz")],
)
def test_a_file_is_found_packed_or_not(tmp_path, there, asked):
    write(tmp_path / there, "x\n")
    assert list(read_text(tmp_path / asked)) == ["x"]


@pytest.mark.parametrize("n", [2, 3, 7, 64, 65, 100, 1000])
@pytest.mark.parametrize("block", [2, 32, 64])
def test_mismatched_is_a_derangement_of_the_same_texts(n, block):
    pairs = [(f"a{i}", f"b{i}") for i in range(n)]
    for seed in range(3):
        wrong = list(mismatched(pairs, seed, block))
        assert [a for a, _ in wrong] == [a for a, _ in pairs]
        assert sorted(b for _, b in wrong) == sorted(b for _, b in pairs)
        assert not set(wrong) & set(pairs)
        moves = [abs(int(a[1:]) - int(b[1:])) for a, b in wrong]
        # partners stay within a block, the last of which may be twice as long
        assert max(moves) < 2 * block


@pytest.mark.parametrize("seed", range(20))
def test_mismatched_avoids_true_pairs_among_duplicates(seed):
    pairs = [(f"a{i % 9}", f"b{i % 9}") for i in range(60)] + [("a0", "b1"), ("a1", "b0")]
    stream = mismatched(pairs, seed)
    assert not set(stream) & set(pairs) and stream.report.counts == {}


def test_mismatched_draws_every_partner():
    seen = {
        b
        for seed in range(300)
        for a, b in mismatched([(str(i), str(i)) for i in range(6)], seed)
        if a == "0"
    }
    assert seen == {"1", "2", "3", "4", "5"}  # a miss has probability 5 · 0.8^300


def test_mismatched_says_what_it_could_not_avoid():
    stream = mismatched([("a", "b")] * 5, seed=0)
    assert list(stream) == [("a", "b")] * 5 and stream.report.counts == {"true pair kept": 5}
    with pytest.raises(DataError, match="two pairs or more"):
        list(mismatched([("a", "b")], seed=0))
    with pytest.raises(ConfigError, match="block=1"):
        mismatched([("a", "b")], seed=0, block=1)
    assert list(mismatched([], seed=0)) == []


def test_damage_inside_a_packed_file_is_not_taken_for_latin_1(tmp_path):
    path = tmp_path / "a.gz"
    odd = 0
    write(path, "".join(f"Grüße an {number} Städte, {number * 7919}\n" for number in range(300)))
    whole = path.read_bytes()
    for place in range(12, len(whole) - 8, 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(DataError, match="compressed file damaged or cut off.*fetch it again"):
            list(read_text(path))
        odd += 1
    assert odd > 50


@pytest.mark.parametrize("columns", [(-2, -1), (0, 1.0), ("0", 1), (), -1, (True, 0)])
def test_columns_are_numbers_of_fields_from_0(tmp_path, columns):
    path = write(tmp_path / "a.tsv", "ein\tone\nzwei\n")
    with pytest.raises(ConfigError, match="give numbers of fields, counted from 0"):
        read_tsv_pairs(path, columns)


def test_a_gold_pair_takes_lists_and_says_what_is_no_word_or_link():
    pair = AlignedPair(["das", "Haus"], ["the", "house"], [(0, 0)], [[1, 1]])
    assert pair == AlignedPair(
        ("das", "Haus"), ("the", "house"), frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)})
    )
    with pytest.raises(DataError, match="first='das Haus': give a list of words"):
        AlignedPair("das Haus", ["the"], [], [])
    with pytest.raises(DataError, match="give a list of words"):
        AlignedPair(["das", None], ["the"], [], [])
    for links in ("0-0", [(0, 0, 1.0)], [(0.0, 0)], None, [0]):
        with pytest.raises(DataError, match="sure=.*give pairs of word numbers"):
            AlignedPair(["a"], ["b"], links, [])
