"""Readers of corpora: malformed files one by one, streams, splits, and the real sets where XLNB_DATA names them."""
import gzip, lzma, os, pickle, tracemalloc
from pathlib import Path

import pytest

from xlnb.core import ConfigError, DataError, data_root, pair_name
from xlnb.corpora import (LANGUAGES, XTREME_40, Lines, checksums, from_code, language_code, load_corpus, mismatched,
                          read_moses, read_multi30k, read_ntrex, read_parallel, read_tatoeba, read_text, read_tsv_pairs,
                          read_verses, set_folder, survey, verse_split)


def write(path: Path, content) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    packers = {".gz": gzip.compress, ".xz": lzma.compress}
    path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


@pytest.mark.parametrize("ending", [".txt", ".gz", ".xz", ".de"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "end"])
def test_text_is_read_the_same_in_every_packing(tmp_path, ending, end, bom, last):
    lines = ["Grüße", "Привет", "你好", "שלום"]
    text = bom + end.join(lines) + (end if last else "")
    assert list(read_text(write(tmp_path / f"a{ending}", text))) == lines


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_newline_ends_a_line(tmp_path, inside):
    path = write(tmp_path / "a.txt", f"a{inside}b\nc\n")
    assert list(read_text(path)) == [f"a{inside}b", "c"]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0", "\u3000", "\u202f", "\r"])
def test_blank_lines_are_counted_once_however_often_they_are_read(tmp_path, blank):
    stream = read_text(write(tmp_path / "a.txt", f"a\n{blank}\n{blank}b\u3000\n"))
    for _ in range(2): assert list(stream) == ["a", "b"]
    assert stream.report.counts == {"blank line": 1}
    assert stream.report.rows() == [{"what": "blank line", "file": "a.txt", "count": 1, "first line": 2}]


def test_invisible_joiners_inside_a_line_stay(tmp_path):
    line = "می\u200cخواهم ශ්\u200dරී e\u0301\u00a0!"
    assert list(read_text(write(tmp_path / "a.txt", line + "\n"))) == [line]


@pytest.mark.parametrize("ending", [".txt", ".gz", ".xz"])
def test_latin1_names_file_line_and_byte(tmp_path, ending):
    good = "x" * 50 + "\n"
    path = write(tmp_path / f"a{ending}", (good * 5000).encode() + "Gruß\n".encode("latin-1") + good.encode())
    message = r"byte 4 of the line, 0xdf, is not UTF-8 but rather Latin-1.*'Gruß'"
    with pytest.raises(DataError, match=message) as e: list(read_text(path))
    assert e.value.line == 5001 and Path(e.value.file) == path and "LATIN1" in str(e.value)


@pytest.mark.parametrize("cut", [b"\xe2\x82", b"\xf0\x9f\x98"])
def test_a_character_cut_in_two_at_the_end_of_the_file(tmp_path, cut):
    path = write(tmp_path / "a.txt", b"ok\nprice 5 " + cut)
    with pytest.raises(DataError, match="not UTF-8") as e: list(read_text(path))
    assert e.value.line == 2


def test_utf16_is_recognised(tmp_path):
    with pytest.raises(DataError, match="UTF-16"): list(read_text(write(tmp_path / "a.txt", "Привет".encode("utf-16"))))


@pytest.mark.parametrize("pack, ending", [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
@pytest.mark.parametrize("damage", ["cut", "not packed", "empty", "flipped"])
def test_damaged_compressed_files(tmp_path, pack, ending, damage):
    whole = pack(os.urandom(3000).hex().encode() * 3)
    flipped = bytearray(whole)
    flipped[-6] ^= 255 # in gzip the checksum, in xz the footer
    data = {"cut": whole[:-40], "not packed": b"plain text\n", "empty": b"", "flipped": bytes(flipped)}[damage]
    path = tmp_path / f"a{ending}"
    path.write_bytes(data)
    with pytest.raises(DataError, match="fetch it again") as e: list(read_text(path))
    assert e.value.file == path and e.value.line is not None


def test_a_missing_file_is_named_at_once(tmp_path):
    write(tmp_path / "train.de.gz", "x")
    with pytest.raises(FileNotFoundError, match=r"train\.dee\.gz is not there; nearest in its folder: train\.de\.gz"):
        read_text(tmp_path / "train.dee.gz")
    with pytest.raises(FileNotFoundError, match="nor is its folder"): read_text(tmp_path / "no" / "x.txt")


def test_streams_hold_no_file_in_memory(tmp_path):
    path = write(tmp_path / "a.txt.gz", ("ein ziemlich langer Satz, der nichts sagt" * 5 + "\n") * 50_000) # 10 MB
    tracemalloc.start()
    for _ in read_moses(path, path): pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def test_streams_are_pickled_as_recipes(tmp_path):
    a, b = write(tmp_path / "a", "x\ny\n"), write(tmp_path / "b", "1\n2\n")
    stream = pickle.loads(pickle.dumps(mismatched(read_moses(a, b), seed=3)))
    assert list(stream) == [("x", "2"), ("y", "1")] and stream.report.counts == {}


@pytest.mark.parametrize("lengths", [(3, 2), (2, 3), (0, 1), (1, 0), (2, 5, 2), (9, 9, 8)])
def test_sides_of_unequal_length(tmp_path, lengths):
    paths = [write(tmp_path / f"s{i}", "x\n" * n) for i, n in enumerate(lengths)]
    message = f"ends after {min(lengths)} lines.* has {max(lengths)}"
    with pytest.raises(DataError, match=message) as e: list(read_parallel(paths))
    assert Path(e.value.file) == paths[lengths.index(min(lengths))] and e.value.line == min(lengths)


def test_empty_sides(tmp_path):
    a, b = write(tmp_path / "a", "x\n\u3000\nz\n"), write(tmp_path / "b", "1\n2\n\n")
    with pytest.raises(DataError, match="one side is empty") as e: list(read_moses(a, b))
    assert e.value.line == 2
    stream = read_moses(a, b, empty="skip")
    assert list(stream) == [("x", "1")] and stream.report.counts == {"empty side": 2}


def test_duplicates(tmp_path):
    a, b = write(tmp_path / "a", "x\ny\nx\nx\n"), write(tmp_path / "b", "1\n2\n1\n3\n")
    assert len(list(read_moses(a, b))) == 4
    stream = read_moses(a, b, duplicate="skip")
    assert list(stream) == [("x", "1"), ("y", "2"), ("x", "3")] and stream.report.counts == {"duplicate": 1}
    with pytest.raises(DataError, match="stood in the file before") as e: list(read_moses(a, b, duplicate="raise"))
    assert e.value.line == 3


@pytest.mark.parametrize("option", [{"empty": "keep"}, {"duplicate": "drop"}])
def test_unknown_choices_are_refused(tmp_path, option):
    a = write(tmp_path / "a", "x\n")
    with pytest.raises(ConfigError, match="is not one of"): read_moses(a, a, **option)
    with pytest.raises(ConfigError, match="is not one of"): read_tsv_pairs(a, **option)


def test_tsv_fields(tmp_path):
    path = write(tmp_path / "a.tsv", "0.9\tx\t1\r\n0.8\t\t2\n\ty\t3\textra\n")
    assert list(read_tsv_pairs(path, (1, 2), empty="skip")) == [("x", "1"), ("y", "3")]
    assert list(read_tsv_pairs(path, (2, 0), empty="skip")) == [("1", "0.9"), ("2", "0.8")]
    with pytest.raises(DataError, match="column 3 .* 3 tab-separated fields"): list(read_tsv_pairs(path, (1, 3)))


def test_verses_in_ranges(tmp_path):
    texts = ["<range>", "a", "b", "<range>", "<range>", "c", "<range>"]
    rows = [f"GEN 1:{verse}\t{text}" for verse, text in enumerate(texts, 1)]
    stream = read_verses(write(tmp_path / "a.tsv.gz", "\n".join(rows)))
    for _ in range(2): assert list(stream) == [("GEN 1:2", "a")]
    assert stream.report.counts == {"verse inside a range": 4, "verse that holds a range": 2}


@pytest.mark.parametrize("row", ["GEN 1:2", "GEN 1:2\t", "GEN 1.2\tx", "\tx", "", "GEN 1:2\tx\ty", "GEN 1:1\tagain"])
def test_malformed_verses(tmp_path, row):
    path = write(tmp_path / "a.tsv", f"GEN 1:1\tx\n{row}\nGEN 1:3\tz\n")
    with pytest.raises(DataError) as e: list(read_verses(path))
    assert e.value.line == 2


def test_tatoeba(tmp_path):
    write(tmp_path / "tatoeba.fra-eng.fra", "Oui.\nNon.\n")
    write(tmp_path / "tatoeba.fra-eng.eng", "Yes.\nNo.\n")
    assert read_tatoeba(tmp_path, "fr") == (["Oui.", "Non."], ["Yes.", "No."])
    write(tmp_path / "tatoeba.fra-eng.eng", "Yes.\nYes.\n")
    with pytest.raises(DataError, match="repeats line 1"): read_tatoeba(tmp_path, "fr")
    with pytest.raises(ConfigError, match="other side"): read_tatoeba(tmp_path, "en")


def test_language_codes():
    assert set(XTREME_40) <= set(LANGUAGES) and len(XTREME_40) == len(set(XTREME_40)) == 40
    assert language_code("zh-Hant", "ntrex") == "zho-TW" and from_code("pes", "tatoeba") == "fa"
    with pytest.raises(ConfigError, match="nearest"): language_code("eng", "tatoeba")
    with pytest.raises(ConfigError, match="scheme='xnli' is not one of"): language_code("de", "xnli")
    with pytest.raises(ConfigError, match="did you mean 'deu'"): from_code("deu1", "tatoeba")


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
        assert max(moves) < 2 * block # partners stay within a block, the last of which may be twice as long


@pytest.mark.parametrize("seed", range(20))
def test_mismatched_avoids_true_pairs_among_duplicates(seed):
    pairs = [(f"a{i % 9}", f"b{i % 9}") for i in range(60)] + [("a0", "b1"), ("a1", "b0")]
    stream = mismatched(pairs, seed)
    assert not set(stream) & set(pairs) and stream.report.counts == {}


def test_mismatched_draws_every_partner():
    seen = {b for seed in range(300) for a, b in mismatched([(str(i), str(i)) for i in range(6)], seed) if a == "0"}
    assert seen == {"1", "2", "3", "4", "5"} # a miss has probability 5 · 0.8^300


def test_mismatched_says_what_it_could_not_avoid():
    stream = mismatched([("a", "b")] * 5, seed=0)
    assert list(stream) == [("a", "b")] * 5 and stream.report.counts == {"true pair kept": 5}
    with pytest.raises(DataError, match="two pairs or more"): list(mismatched([("a", "b")], seed=0))
    with pytest.raises(ConfigError, match="block=1"): mismatched([("a", "b")], seed=0, block=1)
    assert list(mismatched([], seed=0)) == []


def test_verse_split_depends_on_the_identifier_alone():
    ids = [f"PSA {c}:{v}" for c in range(1, 151) for v in range(1, 20)]
    split = [verse_split(v) for v in ids]
    assert split == [verse_split(v) for v in ids] and set(split) == {"train", "valid", "test"}
    assert [verse_split(v, 0.02, 0.03) == "test" for v in ids] == [verse_split(v, 0.5, 0.03) == "test" for v in ids]
    assert {verse_split(v, 0, 0) for v in ids} == {"train"}


def test_survey_counts_distinct_test_lines():
    found = survey({"de": Lines(iter, ["a", "b", "a"])}, {"T": {"de-en": (["a", "a", "c"], ["x", "y", "z"])}})
    assert found == {"lines": {"de": 3}, "repeated": {"de": 1}, "overlap": {"T": {"de": 1}}}


@pytest.fixture
def miniature(tmp_path, monkeypatch):
    "A data folder with three captions in three languages and two Bibles."
    for part in ("train", "val", "test_2016_flickr"):
        for lang in ("en", "de", "fr"):
            write(tmp_path / f"multi30k/task1/raw/{part}.{lang}.gz", "".join(f"{part} {lang} {i}\n" for i in range(3)))
    for file in ("eng-eng-asv", "deu-deu1912"):
        write(tmp_path / f"bible/{file}.tsv.gz", "".join(f"GEN 1:{i}\t{file} {i}\n" for i in range(1, 200)))
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    return tmp_path


def test_multi30k_corpus(miniature):
    corpus = load_corpus("multi30k", "fr,de,en")
    assert corpus.langs == ("fr", "de", "en") and set(corpus.pairs) == {"de-fr", "en-fr", "de-en"}
    assert list(corpus.pairs["de-fr"])[1] == ("train de 1", "train fr 1") == list(corpus.pairs["de-fr"])[1]
    assert corpus.valid["en-fr"][2] == ("val en 2", "val fr 2")
    assert corpus.tests["multi30k-2016"]["de-en"][1][0] == "test_2016_flickr en 0"
    assert "tatoeba" not in corpus.tests and "tatoeba-laser/v1" in corpus.facts["absent"]["tatoeba"]
    assert corpus.facts["pairs"] == {"de-fr": 3, "en-fr": 3, "de-en": 3} and len(corpus.facts["sha256"]) == 9
    with pytest.raises(ConfigError, match="nearest"): load_corpus("multi30k", "en,ru")
    with pytest.raises(ConfigError, match="did you mean 'multi30k'"): load_corpus("multi3k", "en,de")


def test_multi30k_of_unequal_length_is_refused_when_loaded(miniature):
    write(miniature / "multi30k/task1/raw/train.de.gz", "eins\nzwei\n")
    with pytest.raises(DataError, match="unequal length"): load_corpus("multi30k", "en,de")


def test_bible_corpus_keeps_splits_apart(miniature):
    corpus = load_corpus("bible", "en,de", valid_share=0.1, test_share=0.2)
    number = lambda text: int(text.split()[1])
    parts = [{number(a) for a, _ in corpus.pairs["de-en"]}, {number(a) for a, _ in corpus.valid["de-en"]},
             {number(a) for a in corpus.tests["bible"]["de-en"][0]}]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 199 and all(parts)
    assert all(number(a) == number(b) for a, b in corpus.pairs["de-en"])
    assert {number(line) for line in corpus.text["en"]} == parts[0]
    with pytest.raises(FileNotFoundError, match="engBBE"): load_corpus("bible", "en,de", versions={"en": "engBBE"})
    with pytest.raises(ConfigError, match="the bible set has no 'fr'"): load_corpus("bible", "en,fr")


def test_checksums_are_checked(miniature):
    files = sorted((miniature / "bible").glob("*.gz"))
    sums = checksums(files)
    write(miniature / "bible/SHA256SUMS", "".join(f"{s}  {name}\n" for name, s in sums.items()))
    assert load_corpus("bible", "en,de").facts["sha256"] == sums
    write(files[0], "GEN 1:1\tother\n")
    with pytest.raises(DataError, match="SHA256SUMS has"): load_corpus("bible", "en,de")


def test_absent_sets_say_where_they_were_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("XLNB_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="XLNB_DATA is not set. Set XLNB_DATA to a folder that holds bible"):
        load_corpus("bible", "en,de")
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="multi30k/task1/raw is not a folder"): load_corpus("multi30k", "en,de")


def real(name) -> Path:
    "Folder of a real set; skips the test where it is absent."
    try: return set_folder(name)
    except FileNotFoundError as e: pytest.skip(str(e))


def test_real_multi30k():
    folder = real("multi30k")
    corpus = load_corpus("multi30k", "en,de,fr,cs")
    assert set(corpus.facts["lines"].values()) == set(corpus.facts["pairs"].values()) == {29_000}
    assert {len(rows) for rows in corpus.valid.values()} == {1_014}
    assert {len(sides[0]) for sides in corpus.tests["multi30k-2016"].values()} == {1_000}
    assert corpus.facts["overlap"]["multi30k-2016"] == dict.fromkeys(corpus.langs, 0)
    stream = corpus.pairs["de-en"]
    wrong = mismatched(stream, seed=0)
    assert not set(wrong) & set(stream) and wrong.report.counts == {}
    assert sum(1 for _ in read_multi30k(folder, "train", "en,de,fr,cs")) == 29_000


def test_real_bible():
    real("bible")
    corpus = load_corpus("bible", "en,de,he,zh,ja")
    assert corpus.facts["left_out"]["verse inside a range"] == 71 + 19
    assert corpus.facts["lines"]["de"] == 29_487 and len(corpus.valid["de-he"]) == 638
    pairs = {pair: sum(1 for _ in stream) for pair, stream in corpus.pairs.items()}
    assert pairs == corpus.facts["pairs"] and pairs[pair_name("ja", "zh")] == 7_518


def test_real_tatoeba_is_read_whole():
    folder = real("tatoeba")
    codes = sorted({path.name.split(".")[1][:3] for path in folder.glob("tatoeba.*-eng.eng")})
    sizes = {code: len(read_tatoeba(folder, from_code(code, "tatoeba"))[0]) for code in codes}
    assert len(sizes) >= 108 and max(sizes.values()) == 1000 and sizes["jav"] == 205


def test_real_ntrex_ends_lines_with_crlf():
    folder = (data_root() or Path()) / "ntrex-128" / "NTREX-128"
    if not folder.is_dir(): pytest.skip("XLNB_DATA names no folder with ntrex-128/NTREX-128")
    langs = [lang for lang, codes in LANGUAGES.items()
             if (folder / f"newstest2019-ref.{codes.get('ntrex')}.txt.gz").is_file()] + ["en"]
    rows = list(read_ntrex(folder, langs))
    assert len(rows) == 1_997 and len(rows[0]) == len(langs) > 110
    assert not any(text.endswith("\r") for row in rows for text in row)
