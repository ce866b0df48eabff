"""The catalogue: files found, fetched, checked; sets opened by name; the real sets where XLNB_DATA names them."""

import functools, gzip, hashlib, http.server, json, threading, zipfile
from pathlib import Path

import pytest
from conftest import ROOT

from xlnb.text.catalogue import (
    GOLD,
    SETS,
    PublishedSet,
    catalogue,
    checksums,
    dictionary,
    gold_alignments,
    known_sha256,
    load_corpus,
    ntrex_tests,
    open_set,
    set_files,
    set_folder,
    tatoeba_tests,
    verse_split,
)
from conftest import write
from xlnb.base.core import ConfigError, DataError, data_root, pair_name
from xlnb.text.corpora import (
    LANGUAGES,
    Report,
    from_code,
    mismatched,
    read_multi30k,
    read_ntrex,
    read_parallel,
    read_tatoeba,
)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    "No test finds what was fetched on this machine."
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XLNB_CACHE", str(folder))
    return folder


# ---------------------------------------------------------------- entries


@pytest.mark.parametrize("name", SETS)
def test_entry(name):
    entry = SETS[name]
    assert set(entry.langs) <= set(LANGUAGES) and len(entry.langs) > 1
    assert all((entry.what, entry.licence, entry.origin, entry.folder))
    assert bool(entry.location) != bool(entry.how), "an address, or how to come by the set"
    if "://" not in entry.location and entry.location:
        repository, commit, *folder = entry.location.split(" ")
        assert (
            repository.count("/") == 1 and len(commit) == 40 and int(commit, 16) and len(folder) < 2
        )
        assert entry.address.startswith(f"https://raw.githubusercontent.com/{repository}/{commit}")


def test_list_of_checksums():
    head, *rows = [
        line.split("\t") for line in (ROOT / "data" / "checksums.tsv").read_text().splitlines()
    ]
    assert head == ["set", "file", "sha256"]
    assert len({(name, file) for name, file, _ in rows}) == len(rows) > 700
    assert all(name in SETS and len(sha) == 64 and int(sha, 16) for name, _, sha in rows)
    assert all(known_sha256(*row[:2]) == row[2] for row in rows[::100])
    assert known_sha256("tatoeba", "tatoeba.xyz-eng.eng") is None


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: set_files("multi3k", "en"), "did you mean 'multi30k'"),
        (lambda: set_files("ntrex", "en,jv"), "nearest"),
        (lambda: set_files("ntrex", "en,en"), "twice"),
        (lambda: set_files("indian", "en,bn"), "then en"),
        (lambda: set_files("multi30k", "en", part="dev"), "part='dev' is not one"),
        (lambda: set_files("xlm-align", "en,de"), "the set has this pair as 'de-en'"),
        (lambda: set_files("opus", "en,de"), "the set has this pair as 'de-en'"),
        (lambda: set_files("awesome-align", "fr,ro"), "pair='fr-ro' is not one of en-fr, ro-en"),
        (lambda: set_files("wmt14", "de,en", source="fr"), "source='fr' is not one of de, en"),
        (lambda: set_folder("bibel"), "did you mean 'bible'"),
        (lambda: gold_alignments("de-fr"), "pair='de-fr' is not one"),
        (lambda: gold_alignments("de,xx"), "'xx' is not one"),
        (lambda: tatoeba_tests("en,xx"), "'xx' is not one"),
        (lambda: dictionary("en", "de", "wiktionary"), "is not one of muse, xling, panlex"),
        (lambda: dictionary("en", "yo"), "'yo' is not one"),
        (lambda: dictionary("en", "de", split="dev"), "split='dev'"),
        (lambda: dictionary("de", "en", "xling", size="2k"), "size='2k' is not one of 500"),
        (
            lambda: dictionary("bg", "et", "panlex", "full"),
            "split='full' is not one of train, test",
        ),
    ],
)
def test_what_is_unknown_is_refused_by_name(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


# ---------------------------------------------------------------- files found


def test_data_comes_before_cache_and_packed_files_are_found(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    for folder in (tmp_path, cache):
        write(folder / "udhr/udhr_deu_1996.xml", "")
    write(cache / "udhr/udhr_cmn_hant.xml.gz", "")
    assert set_files("udhr", "zh-Hant,de") == [
        cache / "udhr/udhr_cmn_hant.xml.gz",
        tmp_path / "udhr/udhr_deu_1996.xml",
    ]
    assert {row["set"]: row["here"] for row in catalogue() if row["here"] != "–"} == {
        "udhr": "XLNB_DATA"
    }
    with pytest.raises(
        FileNotFoundError, match=r"udhr_deu_1901|nearest in its folder: udhr_deu_1996.xml"
    ):
        set_files("udhr", "en")


def test_a_path_goes_on_inside_a_zip(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    (tmp_path / "panlex-bli/lexicons").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "panlex-bli/lexicons/bg-l2.zip", "w") as z:
        z.writestr("bg-et/bg-et.test.2000.cc.trans", "част\tosa\n")
    assert dictionary("bg", "et", "panlex", "test") == [("част", "osa")]
    assert dictionary("et", "bg", "panlex", "test") == [("osa", "част")]  # turned
    with pytest.raises(FileNotFoundError, match="has no member bg-et/bg-et.train.5000"):
        open_set("panlex", "bg,et")


def test_nothing_is_fetched_unasked(monkeypatch):
    monkeypatch.delenv("XLNB_DATA", raising=False)
    monkeypatch.setattr("pooch.retrieve", lambda *a, **k: pytest.fail("fetched"))
    message = (
        r"XLNB_DATA is not set, and .*eng.txt is not in the cache\. Set XLNB_DATA .* or call "
        r"set_files\('ntrex', …, fetch=True\)"
    )
    with pytest.raises(FileNotFoundError, match=message):
        open_set("ntrex", "en,de")
    with pytest.raises(FileNotFoundError, match="or unpack .*tar.gz"):
        gold_alignments("de-en")
    with pytest.raises(FileNotFoundError, match="no plain file to fetch"):
        set_files("bible", "de", fetch=True)


def test_outside_a_checkout(tmp_path, monkeypatch):
    "There is neither a cache nor the list of checksums, but XLNB_DATA works."
    for name in ("XLNB_CACHE", "XLNB_ROOT", "XLNB_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="XLNB_DATA is not set"):
        set_files("ntrex", "en")
    with pytest.raises(FileNotFoundError, match="not inside a checkout"):
        set_files("ntrex", "en", fetch=True)
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    path = write(tmp_path / "ntrex-128/NTREX-128/newstest2019-src.eng.txt", "News\r\n")
    assert set_files("ntrex", "en") == [path]


# ---------------------------------------------------------------- files fetched


class Publisher(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        if not self.path.endswith("cut"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"only this")  # and the connection is closed


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    "A set `toy` on a server of this machine: the function takes file names and texts, and checksums it is to expect."
    folder = tmp_path / "publisher"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Publisher, directory=folder)
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("XLNB_DATA", raising=False)

    def publish(texts, sha256):
        for name, text in texts.items():
            write(folder / name, text)

        def files(codes, end="txt"):
            return [f"{code}.{end}" for code in codes]

        entry = PublishedSet(
            "toy",
            "free",
            "a test",
            "toy/deep",
            files,
            read_parallel,
            f"http://127.0.0.1:{server.server_port}",
            only="de en",
            sha256=sha256,
        )
        monkeypatch.setitem(SETS, "toy", entry)
        return server

    yield publish
    server.shutdown()
    server.server_close()


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_a_published_file_is_fetched_once(publisher, cache):
    # en: checksum not known
    server = publisher({"de.txt": "Hallo\n", "en.txt": "Hello\n"}, {"de.txt": sha("Hallo\n")})
    assert list(open_set("toy", "de,en", fetch=True)) == [("Hallo", "Hello")]
    server.shutdown()
    paths = set_files("toy", "de,en", fetch=True)  # no server any more
    assert [path.parent for path in paths] == [cache / "toy/deep"] * 2
    assert checksums(paths) == {"de.txt": sha("Hallo\n"), "en.txt": sha("Hello\n")}
    for path in paths:  # the bytes that were fetched first are the reference
        path.write_text("Salut\n")
        with pytest.raises(DataError, match="SHA256SUMS has"):
            checksums([path])
        with pytest.raises(
            DataError,
            match="changed since it was published or fetched.*delete it and fetch it again",
        ):
            set_files("toy", path.stem)


def test_a_file_whose_checksum_is_not_known_is_fetched_with_a_word(publisher, cache):
    publisher({"de.txt": "Hallo\n", "en.txt": "Hello\n"}, {"de.txt": sha("Hallo\n")})
    with pytest.warns(UserWarning, match="toy: no checksum of en.txt is known"):
        set_files("toy", "de,en", fetch=True)


@pytest.mark.parametrize(
    "end, known, message",
    [
        ("txt", "0" * 64, "does not match the known hash"),
        ("none", None, "404"),
        ("cut", None, "cannot be fetched"),
        ("cut", "0" * 64, "cannot be fetched"),
    ],
)
def test_a_file_that_is_not_the_published_one_leaves_nothing_behind(
    publisher, cache, end, known, message
):
    publisher({"de.txt": "Hallo\n"}, {f"de.{end}": known} if known else {})
    with pytest.raises(DataError, match=message) as e:
        set_files("toy", "de", fetch=True, end=end)
    assert str(e.value.file).endswith(f"/de.{end}") and "Nothing was kept" in str(e.value)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_no_server(publisher, cache):
    server = publisher({}, {})
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match="cannot be fetched"):
        set_files("toy", "de", fetch=True)
    assert [path for path in cache.rglob("*") if path.is_file()] == []


def test_a_zip_is_fetched_whole(publisher, cache):
    publisher({}, {})
    with zipfile.ZipFile(cache.parent / "x.zip", "w") as z:
        z.writestr("in/de.txt", "Hallo\n")
    publisher({"de.zip": (cache.parent / "x.zip").read_bytes()}, {})
    assert set_files("toy", "de", fetch=True, end="zip/in/de.txt") == [
        cache / "toy/deep/de.zip/in/de.txt"
    ]
    assert (cache / "toy/deep/de.zip").is_file()


# ---------------------------------------------------------------- tests, gold, dictionaries,
# corpora


@pytest.fixture
def miniature(tmp_path, monkeypatch):
    "A data folder with three captions in three languages and two Bibles."
    for part in ("train", "val", "test_2016_flickr"):
        for lang in ("en", "de", "fr"):
            write(
                tmp_path / f"multi30k/task1/raw/{part}.{lang}.gz",
                "".join(f"{part} {lang} {i}\n" for i in range(3)),
            )
    for file in ("eng-eng-asv", "deu-deu1912"):
        write(
            tmp_path / f"bible/{file}.tsv.gz",
            "".join(f"GEN 1:{i}\t{file} {i}\n" for i in range(1, 200)),
        )
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def aligned(miniature):
    "Gold alignments of two pairs, a test of each kind."
    gold = {
        "ro-en/test.ro": "a b\nc\n",
        "ro-en/test.en": "x y\nz\n",
        "ro-en/alignv2.txt": "3 1 2\n9 1 1\n",
        "en-cs/test.en": "x y\nx y\nz\n",
        "en-cs/test.cs": "a b\na b\nc\n",
        "en-cs/align.txt": "0 1 1\n0 1 2\n1 1 1\n1 2 2\n2 1 1\n",
    }
    for name, text in gold.items():
        write(miniature / "word-alignment/alignment-test-sets" / name, text)

    def row(*links):
        return (
            json.dumps({"src_words": ["x", "y"], "tgt_words": ["a", "b"], "alignment": links})
            + "\n"
        )

    for part, text in (("train", row([0, 0], [1, 1])), ("valid", row([0, 1]))):
        write(
            miniature / f"word-alignment/binaryalign/processed/{part}/en-cz/czenali.jsonl.gz", text
        )
    for code in ("src.eng", "ref.deu", "ref.ces"):
        write(
            miniature / f"ntrex-128/NTREX-128/newstest2019-{code}.txt.gz",
            f"{code} 1\r\n{code} 2\r\n",
        )
    for side in ("deu", "eng"):
        write(miniature / f"tatoeba-laser/v1/tatoeba.deu-eng.{side}", f"{side} 1\n{side} 2\n")
    return miniature


def test_gold_is_in_sorted_order_and_counted_from_0(aligned):
    gold = gold_alignments("ro-en")["en-ro"]
    assert [(pair.first, pair.second, set(pair.sure)) for pair in gold] == [
        (("x", "y"), ("a", "b"), {(1, 0)}),
        (("z",), ("c",), {(0, 0)}),
    ]


def test_sure_links_go_to_the_repeated_sentence_that_has_them(aligned):
    report = Report()
    gold = gold_alignments("en,cs", report=report)["cs-en"]
    assert [(set(pair.sure), set(pair.possible)) for pair in gold] == [
        ({(1, 0)}, {(0, 0), (1, 0)}),
        ({(0, 0), (1, 1)}, {(0, 0), (1, 1)}),
    ]  # Czech first
    assert report.counts == {"sentence without known sure links": 1}


@pytest.mark.parametrize(
    "name, text, line",
    [
        ("ro-en/alignv2.txt", "3 1 2\n9 1\n", 2),
        ("ro-en/alignv2.txt", "3 1 1\n", 1),
        ("ro-en/test.ro", "a b\n", 1),
    ],
)
def test_malformed_gold(aligned, name, text, line):
    write(aligned / "word-alignment/alignment-test-sets" / name, text)
    with pytest.raises(DataError) as e:
        gold_alignments("ro,en")
    assert e.value.line == line and Path(e.value.file).name == name.split("/")[1]


def test_tests_from_outside_the_corpus(aligned):
    corpus = load_corpus("multi30k", "en,de,fr")
    assert set(corpus.tests) == {"multi30k-2016", "tatoeba", "ntrex"} and list(
        corpus.tests["ntrex"]
    ) == ["de-en"]
    assert corpus.tests["ntrex"]["de-en"] == (
        ["ref.deu 1", "ref.deu 2"],
        ["src.eng 1", "src.eng 2"],
    )
    assert corpus.tests["tatoeba"]["de-en"] == (["deu 1", "deu 2"], ["eng 1", "eng 2"])
    assert corpus.facts["absent"] == {
        "tatoeba/fr": "no file",
        "ntrex/fr": "no file",
        "xlm-align/de-en": "no file",
        "xlm-align/en-fr": "no file",
    }
    assert (
        corpus.facts["tests"]["ntrex"] == {"de-en": 2} and len(corpus.facts["sha256"]) == 9 + 2 + 2
    )
    assert json.loads(json.dumps(corpus.facts)) == corpus.facts
    with pytest.raises(FileNotFoundError, match="tatoeba.fra-eng"):
        tatoeba_tests("en,fr")
    with pytest.raises(FileNotFoundError, match="ref.fra"):
        ntrex_tests("en,fr")


def test_ntrex_of_unequal_length(aligned):
    write(aligned / "ntrex-128/NTREX-128/newstest2019-ref.deu.txt.gz", "1\r\n")
    with pytest.raises(DataError, match="ends after 1 lines"):
        load_corpus("multi30k", "en,de")


def test_a_survey_is_kept_for_the_same_files_and_code(aligned, cache, monkeypatch):
    first = load_corpus("multi30k", "en,de")
    assert len(list(cache.glob("surveys/multi30k-*.json"))) == 1
    monkeypatch.setattr("xlnb.text.contamination.survey", lambda *a: pytest.fail("computed again"))
    assert load_corpus("multi30k", "en,de").facts == first.facts
    monkeypatch.setattr("xlnb.text.contamination.survey", lambda *a: {"lines": {"en": 3}, "new": 1})
    write(aligned / "multi30k/task1/raw/train.de.gz", "eins\nzwei\ndrei\n")
    assert load_corpus("multi30k", "en,de").facts["new"] == 1


def test_verse_split_depends_on_the_identifier_alone():
    ids = [f"PSA {c}:{v}" for c in range(1, 151) for v in range(1, 20)]
    split = [verse_split(v) for v in ids]
    assert split == [verse_split(v) for v in ids] and set(split) == {"train", "valid", "test"}
    assert [verse_split(v, 0.02, 0.03) == "test" for v in ids] == [
        verse_split(v, 0.5, 0.03) == "test" for v in ids
    ]
    assert {verse_split(v, 0, 0) for v in ids} == {"train"}


def test_multi30k_corpus(miniature):
    corpus = load_corpus("multi30k", "fr,de,en")
    assert corpus.langs == ("fr", "de", "en") and set(corpus.pairs) == {"de-fr", "en-fr", "de-en"}
    assert (
        list(corpus.pairs["de-fr"])[1]
        == ("train de 1", "train fr 1")
        == list(corpus.pairs["de-fr"])[1]
    )
    assert corpus.valid["en-fr"][2] == ("val en 2", "val fr 2")
    assert corpus.tests["multi30k-2016"]["de-en"][1][0] == "test_2016_flickr en 0"
    assert list(corpus.tests) == ["multi30k-2016"] and corpus.gold == {}
    assert corpus.facts["absent"] == {
        "tatoeba": "no folder tatoeba-laser/v1",
        "ntrex": "no folder ntrex-128/NTREX-128",
        "xlm-align": "no folder word-alignment/alignment-test-sets",
    }
    assert (
        corpus.facts["pairs"] == {"de-fr": 3, "en-fr": 3, "de-en": 3}
        and len(corpus.facts["sha256"]) == 9
    )
    with pytest.raises(ConfigError, match="nearest"):
        load_corpus("multi30k", "en,ru")
    with pytest.raises(ConfigError, match="did you mean 'multi30k'"):
        load_corpus("multi3k", "en,de")


def test_multi30k_of_unequal_length_is_refused_when_loaded(miniature):
    write(miniature / "multi30k/task1/raw/train.de.gz", "eins\nzwei\n")
    with pytest.raises(DataError, match="aligned files match line by line"):
        load_corpus("multi30k", "en,de")


def test_bible_corpus_keeps_splits_apart(miniature):
    corpus = load_corpus("bible", "en,de", valid_share=0.1, test_share=0.2)

    def number(text):
        return int(text.split()[1])

    parts = [
        {number(a) for a, _ in corpus.pairs["de-en"]},
        {number(a) for a, _ in corpus.valid["de-en"]},
        {number(a) for a in corpus.tests["bible"]["de-en"][0]},
    ]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 199 and all(parts)
    assert all(number(a) == number(b) for a, b in corpus.pairs["de-en"])
    assert {number(line) for line in corpus.text["en"]} == parts[0]
    with pytest.raises(FileNotFoundError, match="engBBE"):
        load_corpus("bible", "en,de", versions={"en": "engBBE"})
    with pytest.raises(ConfigError, match="the bible set has no 'fr'"):
        load_corpus("bible", "en,fr")


def test_help_pages_are_split_by_page_and_without_their_phrases(miniature):
    for code, phrase in (("de", "Klicken Sie."), ("zh-Hans", "点击。")):
        pages = [f"guide/{n}#id{k}\t{code} {n} {k}\n" for n in range(100) for k in range(3)]
        phrases = [f"guide/{n}#phrase\t{phrase}\n" for n in range(100)]
        write(miniature / f"libreoffice-help/{code}.tsv.gz", "".join(pages + phrases))
    corpus = load_corpus("libreoffice-help", "de,zh")
    rows = {
        "train": list(corpus.pairs["de-zh"]),
        "valid": corpus.valid["de-zh"],
        "test": list(zip(*corpus.tests["libreoffice-help"]["de-zh"])),
    }
    pages = [{a.split()[1] for a, _ in part if a != "Klicken Sie."} for part in rows.values()]
    assert all(pages) and sum(map(len, pages)) == len(set.union(*pages)) == 100
    held_out = rows["valid"] + rows["test"]
    assert ("Klicken Sie.", "点击。") in rows["train"] and (
        "Klicken Sie.",
        "点击。",
    ) not in held_out
    left_out = corpus.facts["left_out"]["held-out line that is a training line too"]
    assert len(held_out) + left_out + len(rows["train"]) == 400
    assert all(a.split()[1:] == b.split()[1:] for a, b in held_out)
    with pytest.raises(ConfigError, match="nearest: "):
        load_corpus("libreoffice-help", "de,sw")


def test_checksums_are_checked(miniature):
    files = sorted((miniature / "bible").glob("*.gz"))
    sums = checksums(files)
    write(miniature / "bible/SHA256SUMS", "".join(f"{s}  {name}\n" for name, s in sums.items()))
    assert load_corpus("bible", "en,de").facts["sha256"] == sums
    write(files[0], "GEN 1:1\tother\n")
    with pytest.raises(DataError, match="SHA256SUMS has"):
        load_corpus("bible", "en,de")


def test_a_line_that_states_no_checksum_is_no_leave_to_check_nothing(tmp_path):
    path = write(tmp_path / "text.txt", "Hallo")
    write(tmp_path / "SHA256SUMS", f"{sha('Hallo')} *text.txt\n\n")
    assert checksums([path]) == {"text.txt": sha("Hallo")}
    write(tmp_path / "SHA256SUMS", f"{sha('Hallo')[:60]}  text.txt\n")
    with pytest.raises(DataError, match="SHA256SUMS:1: expected a sha256, two blanks and the name"):
        checksums([path])


def test_absent_sets_say_where_they_were_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("XLNB_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError, match="XLNB_DATA is not set.* Set XLNB_DATA to a folder that holds bible"
    ):
        load_corpus("bible", "en,de")
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="multi30k/task1/raw is not a folder"):
        load_corpus("multi30k", "en,de")


# ---------------------------------------------------------------- real sets


def real(name) -> Path:
    "Folder of a real set; skips the test where it is absent."
    try:
        return set_folder(name)
    except FileNotFoundError as e:
        pytest.skip(str(e))


@pytest.mark.slow
def test_real_multi30k():
    folder = real("multi30k")
    corpus = load_corpus("multi30k", "en,de,fr,cs")
    assert set(corpus.facts["lines"].values()) == set(corpus.facts["pairs"].values()) == {29_000}
    assert {len(rows) for rows in corpus.valid.values()} == {1_014}
    assert {len(sides[0]) for sides in corpus.tests["multi30k-2016"].values()} == {1_000}
    assert {len(sides[0]) for sides in corpus.tests["ntrex"].values()} == {1_997} and len(
        corpus.tests["ntrex"]
    ) == 6
    gold = {pair: len(rows) for pair, rows in corpus.gold["gold"].items()}
    assert gold == {"de-en": 508, "en-fr": 447, "cs-en": 2_500} == corpus.facts["gold"]
    assert corpus.facts["overlap"]["multi30k-2016"] == dict.fromkeys(corpus.langs, 0)
    assert json.loads(json.dumps(corpus.facts)) == corpus.facts and "absent" not in corpus.facts
    stream = corpus.pairs["de-en"]
    wrong = mismatched(stream, seed=0)
    assert not set(wrong) & set(stream) and wrong.report.counts == {}
    assert sum(1 for _ in read_multi30k(folder, "train", "en,de,fr,cs")) == 29_000


@pytest.mark.slow
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
    if not folder.is_dir():
        pytest.skip("XLNB_DATA names no folder with ntrex-128/NTREX-128")
    langs = [
        lang
        for lang, codes in LANGUAGES.items()
        if (folder / f"newstest2019-ref.{codes.get('ntrex')}.txt.gz").is_file()
    ] + ["en"]
    rows = list(read_ntrex(folder, langs))
    assert len(rows) == 1_997 and len(rows[0]) == len(langs) > 110
    assert not any(text.endswith("\r") for row in rows for text in row)


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            line.split("\t")[0]
            for line in (ROOT / "data" / "checksums.tsv").read_text().splitlines()[1:]
        }
    ),
)
def test_real_files_are_the_published_ones(name):
    "Whatever of a set is here, unpacked, has the checksum of the publisher's file."
    folder = real(name)
    compared = 0
    for line in (ROOT / "data" / "checksums.tsv").read_text().splitlines():
        if not line.startswith(f"{name}\t"):
            continue
        _, file, known = line.split("\t")
        path = folder / file
        packed = folder / f"{file}.gz"
        if not path.is_file() and not packed.is_file():
            continue
        data = path.read_bytes() if path.is_file() else gzip.decompress(packed.read_bytes())
        assert hashlib.sha256(data).hexdigest() == known, file
        compared += 1
    assert compared


@pytest.mark.parametrize(
    "name, langs, options, count",
    [
        ("multi30k", "cs,de,en,fr", {"part": "val"}, 1_014),
        ("ntrex", "en,zh-Hant,prs", {}, 1_997),
        ("nllb-seed", "en,prs,ps", {}, 6_193),
        ("tatoeba", "jv", {}, 205),
        ("indian", "ur,en", {}, None),
        ("wmt14", "de,en", {}, 3_003),
        ("wmt14", "de,en", {"source": "en"}, 3_003),
        ("wmt14", "ru,en", {}, 3_003),
        ("iwslt14", "de,en", {}, 6_969),
        ("iwslt14", "en,de", {"part": "test"}, 6_750),
        ("binaryalign", "en,es", {}, 100),
        ("binaryalign", "en,cs", {}, 2_500),
        ("awesome-align", "en,fr", {}, 447),
        ("awesome-align", "ro,en", {}, 248),
        ("xlm-align", "ro,en", {}, 199),
        ("xling", "ru,fr", {}, 5_000),
        ("xling", "de,fi", {"split": "test"}, 2_000),
        ("panlex", "bg,ca", {}, None),
        ("muse", "en,zh", {"split": "full"}, None),
    ],
)
def test_real_sets_open_by_name(name, langs, options, count):
    real(name)
    try:
        found = sum(1 for _ in open_set(name, langs, **options))
    except FileNotFoundError as e:
        pytest.skip(str(e))
    assert found == count if count else found > 100


def test_real_sets_with_one_stream_for_each_language():
    for name in ("xnli", "udhr"):
        real(name)
    assert [sum(1 for _ in stream) for stream in open_set("xnli", "de,zh", part="test")] == [
        5_010,
        5_010,
    ]
    articles = open_set("udhr", "de,el,fa,ms,zh")
    assert {tuple(sorted(a)) for a in articles} == {tuple(range(31))}  # the preamble is 0


def test_real_mining():
    real("belopsem")
    first, second, gold = open_set("belopsem", "oc,es")
    assert (len(first), len(second), len(gold)) == (7_899, 7_780, 486)


def test_real_gold():
    real("xlm-align"), real("binaryalign")
    report = Report()
    gold = gold_alignments("de,en,fr,hi,ro,cs,es", report=report)
    assert set(gold) == set(GOLD)
    counts = {
        pair: (len(rows), sum(len(r.sure) for r in rows), sum(len(r.possible) for r in rows))
        for pair, rows in gold.items()
    }
    assert counts == {
        "de-en": (
            508,
            9_612,
            10_533,
        ),  # 9,613 sure and 921 possible ones, without the link to word -99
        "en-fr": (447, 4_038, 17_438),
        "en-hi": (90, 1_408, 1_408),
        "en-ro": (199, 5_033, 5_033),
        "cs-en": (2_500, 44_292, 67_391),
        "en-es": (100, 835, 835),
    }
    assert report.left_out == {
        "link out of range": 3,
        "repeated link": 1,
        "sentence without known sure links": 1,
    }
    assert gold["en-ro"][0].first[:3] == ("i", "don't", "believe")


@pytest.mark.parametrize(
    "arguments",
    [("en", "de"), ("de", "en", "muse", "test"), ("fr", "ru", "xling"), ("ca", "bg", "panlex")],
)
def test_real_dictionaries(arguments):
    real(arguments[2] if len(arguments) > 2 else "muse")
    entries = dictionary(*arguments)
    assert len({a for a, _ in entries}) == 1_500 if "test" in arguments else len(entries) >= 5_000
