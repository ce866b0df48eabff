"What a run is named by."

import importlib, json
from collections import Counter
from functools import cache

import pytest
import sentencepiece
import xlnb
from xlnb.base.core import ConfigError, DataError
from xlnb.pretraining.pretraining import EVERY_PHASE
from xlnb.text import batches as data, vocab
from xlnb.text.corpora import Corpus
from xlnb.text.own import open_corpus
from xlnb.text.tokens import SpecialIds, build_store
from xlnb.text.vocab import train_vocab
from xlnb import xy_lent


@pytest.fixture
def modules(tmp_path, monkeypatch):
    "A library of two modules, and what begins another process."
    for name in ("core", "vocab"):
        (tmp_path / f"{name}.py").write_text(f"x = '{name}'")
    monkeypatch.setattr(xlnb, "__file__", str(tmp_path / "__init__.py"))

    def process():
        return monkeypatch.setattr(data, "_sources", cache(data._sources.__wrapped__))

    process()
    return tmp_path, process


def test_an_edit_while_a_run_goes_on_is_no_part_of_its_name(modules):
    place, process = modules
    before = data.source_hash("core", "vocab")
    (place / "vocab.py").write_text("x = 'edited'")
    assert data.source_hash("core", "vocab") == before != data.source_hash("core")
    process()  # the next one
    assert data.source_hash("core", "vocab") != before


@pytest.mark.parametrize(
    "source, same",
    [
        ("x = 'vocab' # a comment\n", True),
        ("# one\n\n\nx = 'vocab'\n# two: ö\n", True),
        ("x = 'vocab'   \r\n", True),
        ("x = 'vocab # no comment'", False),
        ("x = 'vocab'; y = 1", False),
        ("if True: x = 'vocab'", False),
    ],
)
def test_comments_and_blank_lines_are_no_part_of_a_name(modules, source, same):
    place, process = modules
    before = data.source_hash("core", "vocab")
    (place / "vocab.py").write_bytes(source.encode())
    process()
    assert (data.source_hash("core", "vocab") == before) == same


@pytest.mark.parametrize("quotes", [3 * '"', "f" + 3 * "'"], ids=["string", "f-string"])
def test_blank_lines_and_blanks_of_a_string_are_code(modules, quotes):
    place, process = modules
    hashes = set()
    for text in ("one\ntwo", "one\n\ntwo", "one  \ntwo", "one\n# two", "one\n#two"):
        (place / "vocab.py").write_text(f"x = {quotes}{text}{quotes[-3:]}\n")
        process()
        hashes.add(data.source_hash("vocab"))
    assert len(hashes) == 5


def test_indentation_is_code(modules):
    place, process = modules
    hashes = set()
    for depth in (4, 8):
        (place / "vocab.py").write_text(
            "for a in b:\n    for c in d:\n        e()\n" + depth * " " + "f()\n"
        )
        process()
        hashes.add(data.source_hash("vocab"))
    assert len(hashes) == 2


@pytest.mark.parametrize(
    "row",
    [
        "",
        'a "b" \\ \n\t\u2028 ü 文 \U0001f600 \x00 \x7f',
        "\ud800",
        ("ü", 'a "b"'),
        ["x", "\\"],
        ("", ""),
        (),
        None,
        3,
        ("a", 1),
        {"de": "ü", "en": "u"},
    ],
)
def test_text_is_hashed_as_json_whatever_is_in_a_line(row):
    "Folders of stores are named by this hash: another one would make them anew."
    assert data._as_json(row) == json.dumps(row)


def test_rare_pairs_get_their_share_of_tokens(tmp_path):
    "A pair with few lines does not fill its bundles: it is drawn more often. What full bundles draw stays as it was."
    tokenizer = train_vocab({"en": [f"{n} " * 9 for n in range(500)]}, 64, tmp_path / "vocabulary")
    lines = {"de-en": 4000, "en-sw": 3000, "de-sw": 12}
    pairs = {
        pair: [(f"{n} " * (1 + n % 9), f"{n} " * (1 + n % 7)) for n in range(count)]
        for pair, count in lines.items()
    }
    store = build_store({}, pairs, tokenizer, tmp_path / "store", progress=False)
    shape = data.BatchShape(length=64, max_side=62, text_tokens=0, pair_tokens=2048)
    planned = {"de-en": 0.6, "en-sw": 0.3, "de-sw": 0.1}
    batches = data.MixedBatches(
        store, SpecialIds.of(tokenizer), shape, seed=0, pair_probabilities=planned
    )
    read = Counter()
    for step in range(300):
        batch = batches(step, 0)
        for name, number in batches.groups.items():
            read[name] += int((batch["group"] == number).sum())
    for name, share in planned.items():
        assert read[name] / read.total() == pytest.approx(share, rel=0.1), name
        assert batches.parts["pairs"].token_shares()[name] == pytest.approx(share)


def test_a_vocabulary_that_another_version_learned_is_not_reused(tmp_path, monkeypatch):
    "Versions of SentencePiece learn different pieces from the same text; a vocabulary that is given is what it is."
    corpus = open_corpus(
        "cldr", ["de", "en"], test_lines=8, parallel_lines=300, monolingual_lines=300
    )

    def prepare(**given):
        return data.prepare(corpus, 400, folder=tmp_path, **given)

    here = prepare()
    assert (
        here.tokenizer.init_kwargs["xlnb_learned_by"]
        == f"sentencepiece {sentencepiece.__version__}"
    )
    fixed = prepare(vocabulary=here.folder / "vocab")
    for module in data, vocab:
        monkeypatch.setattr(module, "LEARNED_BY", "sentencepiece 0.2.1")
    other = prepare()
    assert (
        other.folder != here.folder
        and other.tokenizer.init_kwargs["xlnb_learned_by"] == "sentencepiece 0.2.1"
    )
    assert prepare(vocabulary=here.folder / "vocab").folder == fixed.folder


def test_the_vocabulary_of_all_bitexts_is_not_reused_with_another_version(tmp_path, monkeypatch):
    monkeypatch.setattr(xy_lent, "runs_folder", lambda: tmp_path)
    s = xy_lent.resolve(xy_lent.Settings(vocab_size=400, test_lines=8))
    corpus = xy_lent.open_bitext(s)
    first = xy_lent.shared_vocabulary(s, corpus)
    assert xy_lent.shared_vocabulary(s, corpus) == first
    monkeypatch.setattr(xy_lent, "LEARNED_BY", "sentencepiece 0.2.1")
    assert xy_lent.shared_vocabulary(s, corpus) != first


def test_the_vocabulary_of_all_bitexts_is_not_shared_where_more_is_held_out(tmp_path, monkeypatch):
    "Another language of the same files has held-out sentences of its own."
    monkeypatch.setattr(xy_lent, "runs_folder", lambda: tmp_path)
    monkeypatch.setitem(xy_lent.VOCABULARIES, "joint", lambda text, size, folder: folder.mkdir())
    s = xy_lent.resolve(xy_lent.Settings(langs="de,en,ru", vocabulary="joint", vocab_size=400))
    corpora = []
    for langs in (("de", "en", "ru"), ("de", "en", "fr", "ru")):
        text = dict.fromkeys(langs, ["a"])
        corpora.append(Corpus("toy", langs, text, {}, {}, {}, {"sha256": {"toy.tmx": "0"}}))
    folders = {xy_lent.shared_vocabulary(s, corpus) for corpus in corpora}
    assert len(folders) == 2


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda: data.encode_pairs("abc", None),
            ConfigError,
            "tokenizer='None' is not a tokenizer",
        ),
        (lambda: data.without_digits("abc"), DataError, "the pairs: a stream is a list"),
        (lambda: data.without_digits([("a", 3)]), DataError, "line 1 of the pairs is"),
        (lambda: data.script("abc"), DataError, "the lines: a stream is a list"),
        (lambda: data.script([3]), DataError, "line 1 of the lines is 3, not a string"),
    ],
)
def test_wrong_types_are_answered_in_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("recipe", ["xlm_e", "xy_lent", "meta_xlm", "veco", "translation"])
def test_the_modules_that_shape_a_run_are_there(recipe):
    "A phase names them; a module that was moved or split has to be named anew."
    phase = importlib.import_module(f"xlnb.{recipe}").RECIPE.phase
    assert data.source_hash(*EVERY_PHASE, *phase.code)
    with pytest.raises(ConfigError, match="module='tokns' is not one of.*did you mean 'tokens'"):
        data.source_hash("tokns")
