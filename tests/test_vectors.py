"Word vectors: every form there and back, gensim on the other side, malformed files, memory."

import gzip, lzma, subprocess, sys

import numpy as np
import pytest
import torch

from xlnb.base.core import ConfigError, DataError
from xlnb.text.corpora import Report
from xlnb.text.vectors import WordVectors, read_vectors

FORMS = ("vec", "txt", "vec.gz", "txt.gz", "bin", "bin.gz", "safetensors")
OTHERS = [form for form in FORMS if form != "safetensors"]  # what other programs read


def some(n=2500, width=7, seed=0):
    "More words than are parsed at once, with numbers of all sizes."
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n, width)) * 10.0 ** rng.integers(-12, 12, size=(n, width))
    scripts = ("дом", "家", "σπίτι", "घर", "maison", "1.5", "#", '"', "\u00a0", "\u2028", "e\u0301")
    words = [f"{scripts[i % len(scripts)]}{i}" for i in range(n)]
    return WordVectors(words, matrix.astype(np.float32), "de", {"seed": seed})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("limit", [None, 1, 1000, 1001, 10**9])
def test_there_and_back(tmp_path, form, limit):
    vectors = some()
    vectors.save(tmp_path / f"a.{form}")
    back = read_vectors(tmp_path / f"a.{form}", limit)
    assert back.words == vectors.words[:limit] and torch.equal(back.matrix, vectors.matrix[:limit])
    kept = form == "safetensors"
    assert (back.language, back.made_by) == (("de", {"seed": 0}) if kept else (None, {}))
    assert read_vectors(tmp_path / f"a.{form}", limit, "fr").language == "fr"
    assert [p.name for p in tmp_path.iterdir()] == [f"a.{form}"]


def test_words_with_blanks_in_safetensors_only(tmp_path):
    vectors = WordVectors(["New York", "東京 都", "a\tb"], np.eye(3))
    vectors.save(tmp_path / "a.safetensors")
    assert read_vectors(tmp_path / "a.safetensors").words == vectors.words
    for form in OTHERS:
        with pytest.raises(DataError, match="'New York' holds a blank"):
            vectors.save(tmp_path / f"b.{form}")
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_what_is_saved_can_be_read(tmp_path):
    # separators of ASCII, which text files hold
    odd = WordVectors(["a\x1fb", "c\x1dd"], np.eye(2))
    for form in ("vec", "safetensors"):
        odd.save(tmp_path / f"a.{form}")
        assert read_vectors(tmp_path / f"a.{form}").words == odd.words
    with pytest.raises(DataError, match="or a control character"):
        odd.save(tmp_path / "a.bin")
    for form in FORMS:
        WordVectors(["a"], torch.nn.Parameter(torch.ones(1, 2))).save(tmp_path / f"b.{form}")
        assert read_vectors(tmp_path / f"b.{form}")["a"].tolist() == [1, 1]


def test_packed_by_xz(tmp_path):
    for form in ("vec", "bin"):
        some(20).save(tmp_path / f"a.{form}")
        packed = lzma.compress((tmp_path / f"a.{form}").read_bytes())
        (tmp_path / f"a.{form}.xz").write_bytes(packed)
        assert torch.equal(read_vectors(tmp_path / f"a.{form}.xz").matrix, some(20).matrix)
        (tmp_path / f"a.{form}.xz").write_bytes(packed[: len(packed) // 2])
        with pytest.raises(DataError, match="damaged"):
            read_vectors(tmp_path / f"a.{form}.xz")


def test_home_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    some(3).save("~/a.vec")
    assert (tmp_path / "a.vec").is_file() and len(read_vectors("~/a.vec")) == 3
    for name in ("", ".", "~"):
        with pytest.raises(FileNotFoundError, match="is a folder"):
            read_vectors(name)


def test_matrices_as_numpy_has_them():
    matrix = np.arange(6.0).reshape(3, 2) + 1
    for given in (
        matrix[::-1][::-1],
        matrix.astype(">f4"),
        np.asfortranarray(matrix),
        matrix.tolist(),
        torch.from_numpy(matrix).half(),
        torch.from_numpy(matrix).T.contiguous().T,
    ):
        assert WordVectors(["a", "b", "c"], given)["b"].tolist() == [3, 4]
    assert WordVectors(["a", "b", "c"], matrix[::-1])["a"].tolist() == [5, 6]
    for bad in ([[1.0], [1.0, 2.0]], [["x"]], None):  # ragged, no numbers, nothing
        with pytest.raises(DataError):
            WordVectors(["a", "b"], bad)


@pytest.mark.parametrize("form", OTHERS)
def test_gensim_reads_what_we_write_and_we_what_it_writes(tmp_path, form):
    pytest.importorskip("gensim")
    from gensim.models import KeyedVectors

    ours = some(300)
    binary = form.startswith("bin")
    ours.save(tmp_path / f"ours.{form}")
    theirs = KeyedVectors.load_word2vec_format(tmp_path / f"ours.{form}", binary=binary)
    assert theirs.index_to_key == list(ours.words) and np.array_equal(
        theirs.vectors, ours.matrix.numpy()
    )
    theirs.save_word2vec_format(str(tmp_path / f"theirs.{form}"), binary=binary)
    back = read_vectors(tmp_path / f"theirs.{form}")
    assert back.words == ours.words and torch.equal(back.matrix, ours.matrix)


def test_neighbours_are_gensims():
    pytest.importorskip("gensim")
    from gensim.models import KeyedVectors

    rng = np.random.default_rng(1)
    ours = WordVectors([f"w{i}" for i in range(200)], rng.normal(size=(200, 20)))
    theirs = KeyedVectors(20)
    theirs.add_vectors(list(ours.words), ours.matrix.numpy())
    for query in ("w7", ours["w3"] + ours["w9"]):
        expected = (
            theirs.similar_by_word(query, 5)
            if query == "w7"
            else theirs.similar_by_vector(query.numpy(), 5)
        )
        assert [w for w, _ in ours.nearest(query, 5)] == [w for w, _ in expected]
        assert [c for _, c in ours.nearest(query, 5)] == pytest.approx(
            [c for _, c in expected], abs=1e-6
        )


TEXT = {  # name → (bytes, line, part of the message)
    "duplicate": ("2 2\nдом 1 2\nдом 3 4\n", 3, "'дом' comes again"),
    "zero": ("дом 1 2\nвода 0 -0.0\n", 2, "'вода' is zero"),
    "nan": ("дом 1 2\nвода nan 1\n", 2, "'nan' is no finite number"),
    "inf": ("дом 1 2\nвода -inf 1\n", 2, "holds NaN, infinity"),
    "too large": ("дом 1 2\nвода 1e39 1\n", 2, "holds NaN, infinity"),
    "comma": ("дом 1,5 2\n", 1, "'1,5' is no finite number"),
    "not a number": ("2 2\nдом 1 2\nвода 1 x2\n", 3, "'x2' is no finite number"),
    "underscore": ("дом 1_0 2\n", 1, "'1_0' is no finite number"),
    "two blanks": ("2 2\nдом 1 2\nвода  1\n", 3, "two blanks"),
    "fewer numbers": ("2 3\nдом 1 2 3\nвода 1 2\n", 3, "2 numbers after 'вода', and 3"),
    "more numbers": ("2 3\nдом 1 2 3\nвода 1 2 3 4\n", 3, "4 numbers after 'вода', and 3"),
    "no numbers": ("2 3\nдом 1 2 3\nвода\n", 3, "0 numbers after 'вода'"),
    "width in the header": ("2 3\nдом 1 2\nвода 1 2\n", 2, "2 numbers after 'дом', and 3"),
    "fewer words": ("3 2\nдом 1 2\nвода 1 2\n", 3, "promises 3 words, and there are 2"),
    "far fewer words": (
        "999999999999 2\nдом 1 2\nвода 1 2\n",
        3,
        "promises 999999999999 words, and there are 2",
    ),
    "more words": ("1 2\nдом 1 2\nвода 1 2\n", 3, "promises 1 words, and there are more"),
    "header alone": ("2 2\n", 1, "promises 2 words, and there are 0"),
    "empty": ("", 1, "an empty file"),
    "only blank": ("\n\n", 1, "an empty file"),
    "blank line": ("дом 1 2\n\n\nвода 1 2\n", 2, "a blank line"),
    "words alone": ("дом\nвода\n", 1, "a word without numbers"),
}


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("case", TEXT)
@pytest.mark.parametrize("form", ["vec", "txt.gz"])
def test_malformed_text(tmp_path, case, ends, form):
    text, line, message = TEXT[case]
    data = text.replace("\n", ends).encode()
    (tmp_path / f"a.{form}").write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    with pytest.raises(DataError) as e:
        read_vectors(tmp_path / f"a.{form}")
    assert message in str(e.value) and e.value.line == line and f"a.{form}:{line}: " in str(e.value)


def test_a_defect_far_down_has_its_line(tmp_path):
    some(2500, 2).save(tmp_path / "a.vec")
    lines = (tmp_path / "a.vec").read_bytes().split(b"\n")
    for n in (1001, 1002, 2400):  # lines from 1, header included
        own = list(lines)
        own[n - 1] = own[n - 1].rpartition(b" ")[0] + b" 1;5"
        (tmp_path / "b.vec").write_bytes(b"\n".join(own))
        with pytest.raises(DataError, match=f"b.vec:{n}: '1;5' is no"):
            read_vectors(tmp_path / "b.vec")
        # what lies behind the limit is not read
        assert len(read_vectors(tmp_path / "b.vec", limit=n - 2)) == n - 2


def test_text_as_it_is_found(tmp_path):
    texts = {
        "windows": "2 2\r\na 1 2\r\nb 3 4\r\n",
        "no last end": "a 1 2\nb 3 4",
        "trailing blanks": "a 1 2 \nb 3 4 \n",
        "mark": "\ufeff2 2\na 1 2\nb 3 4\n",
        "tabs": "a\t1\t2\nb\t3\t4\n",
        "signs": "a +1 2.\nb 3e0 .4e+1\n",
        "last lines blank": "a 1 2\nb 3 4\n\n\n",
        "two blanks": "a  1 2\nb 3  4\n",
    }
    for name, text in texts.items():
        (tmp_path / "a.txt").write_bytes(text.encode())
        vectors = read_vectors(tmp_path / "a.txt")
        assert (vectors.words, vectors.matrix.tolist()) == (("a", "b"), [[1, 2], [3, 4]]), name
    (tmp_path / "a.txt").write_text("\u00a0a\u2028 1 2\nb 3 4\n", encoding="utf-8")
    assert read_vectors(tmp_path / "a.txt").width == 2  # these are no blanks
    (tmp_path / "a.txt").write_text("a 1 2\n1970 1 2\nb 17 c 1 2\n\u00a0 3 4\n", encoding="utf-8")
    assert read_vectors(tmp_path / "a.txt").words == ("a", "1970", "b 17 c", "\u00a0")
    (tmp_path / "a.txt").write_text("5 1.5\n7 2.5\n")  # no header, width 1
    assert read_vectors(tmp_path / "a.txt").words == ("5", "7")


def test_not_utf8(tmp_path):
    (tmp_path / "a.vec").write_bytes("2 1\nHaus 1\nWäsche 2\n".encode("latin-1"))
    with pytest.raises(DataError, match="a.vec:3: byte 2 of the line"):
        read_vectors(tmp_path / "a.vec")


def test_malformed_binary(tmp_path):
    number = np.float32(1.5).tobytes()
    cases = {
        "empty": (b"", "no header"),
        "no header": (b"dog 0.5\n", "no header"),
        "fasttext": (b"\xba\x16O/x\n", "no header"),
        "cut in a number": (
            b"2 2\na " + number * 2 + b"\nb " + number,
            "promises 2 words, and there are 1",
        ),
        "cut in a word": (b"2 1\na " + number + b"\nb", "promises 2 words, and there are 1"),
        "rest": (b"1 1\na " + number + b"\nb " + number, "bytes after the last of the 1 words"),
        "no word": (b"2 1\na " + number + b" " + number, "word 2 is empty"),
        "latin-1": (b"1 1\nW\xe4sche " + number, "word 1 is not UTF-8"),
        "twice": (b"2 1\na " + number + b"\na " + number, "word 2: 'a' comes again"),
        "zero": (b"1 1\na " + bytes(4), "word 1: the vector of 'a' is zero"),
        "nan": (b"1 1\na " + np.float32("nan").tobytes(), "word 1: the vector of 'a' holds NaN"),
        "too wide": (
            b"3 100000000\na " + number * 2000,
            "no word ends within 2000 bytes|promises 3 words",
        ),
        "blank": (
            b"2 1\nNew York " + number + b"\ndog " + number,
            "bytes after the last|may hold a blank",
        ),
    }
    for name, (data, message) in cases.items():
        (tmp_path / "a.bin").write_bytes(data)
        with pytest.raises(DataError, match=message) as e:
            read_vectors(tmp_path / "a.bin")
        assert "a.bin" in str(e.value), name
    wide = np.random.default_rng(0).normal(size=(3, 50)).astype("<f4")
    rows = b"".join(
        word + b" " + row.tobytes() + b"\n" for word, row in zip((b"in", b"New York", b"dog"), wide)
    )
    (tmp_path / "a.bin").write_bytes(b"3 50\n" + rows)
    with pytest.raises(DataError, match="may hold a blank|bytes after"):
        read_vectors(tmp_path / "a.bin")


def test_damaged_files(tmp_path):
    vectors = some(500)
    for form in ("vec.gz", "bin.gz", "safetensors"):
        vectors.save(tmp_path / f"a.{form}")
        whole = (tmp_path / f"a.{form}").read_bytes()
        (tmp_path / f"a.{form}").write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match="damaged"):
            read_vectors(tmp_path / f"a.{form}")
    from safetensors.torch import save_file

    save_file({"weight": torch.eye(2)}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="no tensor named vectors and none named words"):
        read_vectors(tmp_path / "a.safetensors")
    good = {"vectors": torch.eye(2), "words": torch.tensor([*b"a\nb"], dtype=torch.uint8)}
    for change, facts in (
        (dict(words=torch.tensor([255, 10, 98], dtype=torch.uint8)), None),
        (dict(vectors=torch.tensor(1.0)), None),
        ({}, {"language": "de"}),
    ):
        save_file(good | change, tmp_path / "a.safetensors", facts)
        with pytest.raises(DataError, match="a.safetensors: not a file of word vectors as"):
            read_vectors(tmp_path / "a.safetensors")


def test_skipped_defects_are_counted(tmp_path):
    (tmp_path / "a.vec").write_text("5 2\na 1 2\nb 0 0\na 3 4\nc 5 6\na 7 8\n")
    report = Report()
    vectors = read_vectors(tmp_path / "a.vec", defects="skip", report=report)
    assert vectors.words == ("a", "c") and vectors["a"].tolist() == [1, 2]
    assert report.counts == {"repeated word": 2, "zero vector": 1}
    assert {row["what"]: row["first line"] for row in report.rows()} == {
        "zero vector": 3,
        "repeated word": 4,
    }
    (tmp_path / "b.vec").write_text("a 1 nan\n")
    # NaN is never passed over
    with pytest.raises(DataError):
        read_vectors(tmp_path / "b.vec", defects="skip")
    (tmp_path / "c.vec").write_text("a 0 0\n")
    with pytest.raises(DataError, match="no words"):
        read_vectors(tmp_path / "c.vec", defects="skip")


def test_settings_and_paths(tmp_path):
    some(3).save(tmp_path / "a.vec")
    for options in (dict(limit=0), dict(limit=-1), dict(limit=2.5), dict(defects="keep")):
        with pytest.raises(ConfigError):
            read_vectors(tmp_path / "a.vec", **options)
    with pytest.raises(FileNotFoundError, match="nearest in its folder: a.vec"):
        read_vectors(tmp_path / "b.vec")
    for name in ("a.npy", "a", "a.safetensors.gz"):
        with pytest.raises(ConfigError, match="the ending says"):
            some(3).save(tmp_path / name)
    with pytest.raises(ConfigError, match=".xz is read, not written"):
        some(3).save(tmp_path / "a.vec.xz")
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        WordVectors(["a"], [[1.0]], made_by={"model": object()}).save(tmp_path / "b.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["a.vec"]
    assert read_vectors(str(tmp_path / "a.vec")).words == some(3).words


def test_the_record_is_checked():
    for words, matrix in (
        (["a"], [1.0]),
        (["a"], [[]]),
        (["a", ""], np.eye(2)),
        (["a", 3], np.eye(2)),
        (["a", "b\nc"], np.eye(2)),
        (["a", "a"], np.eye(2)),
        ([], np.empty((0, 2))),
        (["a", "b"], np.zeros((2, 2))),
        (["a", "b"], np.full((2, 2), np.inf)),
    ):
        with pytest.raises(DataError):
            WordVectors(words, matrix)
    vectors = WordVectors(["Hund", "hund"], np.eye(2), "deu")
    assert vectors.language == "de" and vectors.matrix.dtype == torch.float32
    with pytest.raises(
        ConfigError, match="'HUND' is not one of the 2 words; nearest by spelling: hund, Hund"
    ):
        vectors["HUND"]
    for query, k in (("Hund", 0), ("Hund", 2.5), ("Hund", None), ("Katze", 1)):
        with pytest.raises(ConfigError):
            vectors.nearest(query, k)
    with pytest.raises(ConfigError, match="n='a': give a whole number"):
        vectors.first("a")
    for query in ([1.0], [0.0, 0.0], [float("nan"), 1], [[1.0, 2.0]]):
        with pytest.raises(DataError):
            vectors.nearest(query)
    assert vectors.nearest("Hund", 50) == [("hund", 0.0)]


PEAK = """
import resource, sys
from xlnb.text.vectors import read_vectors
import pandas # loaded before the first look at memory
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read_vectors(sys.argv[1], limit=10)
before = peak()
print(len(read_vectors(sys.argv[1])), (peak() - before) // 1024)
"""


def test_memory_of_reading_is_that_of_the_matrix(tmp_path):
    rng = np.random.default_rng(0)
    n = 20_000
    width = 256  # a matrix of 20 MiB, a text of 63
    WordVectors([f"w{i}" for i in range(n)], rng.normal(size=(n, width))).save(tmp_path / "a.vec")
    done = subprocess.run(
        [sys.executable, "-c", PEAK, tmp_path / "a.vec"], capture_output=True, text=True, check=True
    )
    words, grown = map(int, done.stdout.split())
    # MiB: the matrix, masks of its checks, a thousand lines
    assert words == n and grown < 20 * 2 + 30


def test_where_vectors_were_read_is_known_and_not_saved(tmp_path):
    made = WordVectors(["dog", "cat"], np.eye(2), "en")
    assert made.file is None
    for name in ("a.vec", "b.safetensors"):
        made.save(tmp_path / name)
        read = read_vectors(tmp_path / name)
        assert (
            read.file == tmp_path / name and read.first(1).file == read.file and read.made_by == {}
        )
    read.save(tmp_path / "c.safetensors")
    assert b"b.safetensors" not in (tmp_path / "c.safetensors").read_bytes()


# ---------------------------------------------------------------- matrices of other kinds, and what
# is none


def words_as_bytes(*words):
    return torch.frombuffer(bytearray("\n".join(words).encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int64, torch.uint8, torch.float16, torch.bfloat16, torch.float64]
)
def test_matrices_of_any_numbers_are_read(tmp_path, dtype):
    from safetensors.torch import save_file

    save_file(
        {"vectors": torch.tensor([[1, 2], [3, 4]]).to(dtype), "words": words_as_bytes("a", "b")},
        tmp_path / "a.safetensors",
    )
    read = read_vectors(tmp_path / "a.safetensors")
    assert torch.equal(read.matrix, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))


@pytest.mark.parametrize(
    "matrix",
    [torch.ones(2), torch.ones(3, 2), torch.ones(2, 2, 2), torch.tensor(1.0), torch.ones(2, 0)],
)
def test_a_file_with_a_matrix_of_another_shape_is_named(tmp_path, matrix):
    from safetensors.torch import save_file

    save_file({"vectors": matrix, "words": words_as_bytes("a", "b")}, tmp_path / "a.safetensors")
    with pytest.raises(DataError, match="a.safetensors|2 words and a matrix"):
        read_vectors(tmp_path / "a.safetensors")


def test_words_of_numbers_are_named(tmp_path):
    from safetensors.torch import save_file

    save_file(
        {"vectors": torch.ones(2, 2), "words": torch.ones(3, dtype=torch.bfloat16)},
        tmp_path / "a.safetensors",
    )
    with pytest.raises(DataError, match="a.safetensors: not a file of word vectors"):
        read_vectors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("wrong", [None, 3, "abc", b"ab", object()])
def test_wrong_types_are_refused_in_a_sentence(wrong):
    vectors = WordVectors(["a", "b"], [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(DataError, match="words="):
        WordVectors(wrong, [[1.0]])
    for call in (lambda: vectors.nearest(wrong), lambda: vectors[wrong]):
        with pytest.raises((ConfigError, DataError)):
            call()
    if not isinstance(wrong, str):
        for call in (lambda: read_vectors(wrong), lambda: vectors.save(wrong)):
            with pytest.raises(ConfigError, match="is no path"):
                call()
