"""Token stores under accident, malformed input and many sources; indices and batches against naive forms."""

import errno, json, os, signal, subprocess, sys, time
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import xlnb.base.core as core
import xlnb.text.tokens as tokens
from xlnb.base.core import ConfigError, DataError, torch_generator
from xlnb.text.tokens import (
    PairBundles,
    SpecialIds,
    StoreError,
    TextBlocks,
    build_store,
    collate_pairs,
    collate_text,
    open_store,
    pack,
    permuted,
    unpack,
)

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def word_tokenizer(words, **names):
    "A tokenizer of whole words: ids in the order of `words`, after the special ones."
    vocabulary = {w: i for i, w in enumerate([*SPECIAL, *words, "<mask>"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = names or {"bos_token": "<s>", "eos_token": "</s>"}
    names |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=core, **names)


WORDS = [f"w{k}" for k in range(50)]


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


def sentences(seed, count, longest=12):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, longest + 1))) for _ in range(count)]


def pairs(seed, count, longest=12):
    return list(zip(sentences(seed, count, longest), sentences(seed + 1, count, longest)))


def build(tokenizer, folder, text=None, bitext=None, **options):
    return build_store(text or {}, bitext or {}, tokenizer, folder, progress=False, **options)


def contents(folder):
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(Path(folder).rglob("*"))
        if p.is_file()
    }


# building


@pytest.mark.parametrize("workers", [2, 3])
def test_any_number_of_workers_writes_the_same_bytes(tokenizer, tmp_path, workers):
    text = {"en": sentences(0, 5_000), "ru": sentences(1, 10)}
    bitext = {"en-ru": pairs(2, 3_000)}
    for n in (1, workers):
        build(tokenizer, tmp_path / str(n), text, bitext, workers=n, shard_lines=2048)
    assert contents(tmp_path / "1") == contents(tmp_path / str(workers))


def test_shards_have_one_numbering(tokenizer, tmp_path):
    lines = sentences(0, 700)
    both = pairs(5, 700)
    one = build(tokenizer, tmp_path / "one", {"en": lines}, {"en-ru": both})
    many = build(tokenizer, tmp_path / "many", {"en": lines}, {"en-ru": both}, shard_lines=64)
    assert len(many.text["en"].stems) == 11 and len(many.text["en"]) == 700
    for k in (0, 63, 64, 699):
        expected = tokenizer.convert_tokens_to_ids(lines[k].split())
        assert many.text["en"][k].tolist() == one.text["en"][k].tolist() == expected
        assert [s.tolist() for s in many.pairs["en-ru"][k]] == [
            s.tolist() for s in one.pairs["en-ru"][k]
        ]
    for wrong in (-1, 700):
        with pytest.raises(IndexError):
            many.text["en"][wrong]


def test_a_large_vocabulary_takes_four_bytes(tmp_path):
    words = [f"v{k}" for k in range(70_000)]
    store = build(word_tokenizer(words), tmp_path, {"en": ["v69999 v0"]})
    assert (
        store.text["en"][0].tolist() == [4 + 69_999, 4]
        and store.map("text/en.00000.tokens").dtype == np.uint32
    )


def test_what_is_cut_or_empty_is_counted(tokenizer, tmp_path):
    both = [
        ("w1 w2 w3", "w4"),
        ("", "w5"),
        (" ", ""),
        ("w6 w7 w8 w9", "w1 w1 w1"),
        ("w1 </s> <mask>", "w2"),
    ]
    store = build(tokenizer, tmp_path, {"en": ["w1", "", "w2"]}, {"en-ru": both}, max_length=2)
    assert store.pairs["en-ru"].counts == {
        "lines": 5,
        "items": 3,
        "tokens": 10,
        "empty": 2,
        "cut": 4,
        "reserved": 1,
    }
    assert store.text["en"].counts["empty"] == 1 and len(store.text["en"]) == 2
    assert [s.tolist() for s in store.pairs["en-ru"][2]] == [[5, SpecialIds().unk], [6]]


def test_settings_of_the_tokenizer_do_not_leak_in(tokenizer, tmp_path):
    other = word_tokenizer(WORDS)
    # leaves both switched on inside
    other(["w1 w2 w3"], truncation=True, max_length=2, padding="max_length")
    assert build(other, tmp_path, {"en": ["w1 w2 w3", "w4"]}).text["en"][0].tolist() == [5, 6, 7]


def test_roles_under_other_names(tmp_path):
    bert = word_tokenizer(WORDS, cls_token="<s>", sep_token="</s>")
    assert SpecialIds.of(bert) == SpecialIds(0, 1, 2, 3, 54)
    with pytest.raises(ConfigError, match="no bos"):
        SpecialIds.of(word_tokenizer(WORDS, sep_token="</s>"))
    with pytest.raises(ConfigError, match="tokenizer='bert' is not a tokenizer"):
        SpecialIds.of("bert")
    with pytest.raises(ConfigError, match="tokenizer='bert' is not a tokenizer"):
        build_store({"en": ["w1"]}, {}, "bert", tmp_path)


@pytest.mark.parametrize(
    "text, bitext, options, error",
    [
        ({"en": ["w1", 7]}, {}, {}, "line 2 of text 'en' is 7"),
        ({}, {"en-ru": [("w1", "w2"), ("w1", "w2", "w3")]}, {}, "line 2 of pairs 'en-ru'"),
        ({}, {"en-ru": ["w1 w2"]}, {}, "not two strings"),
        ({}, {"en-ru": [("w1", None)]}, {}, "not two strings"),
        ({}, {"en-ru": [("w1", "w2"), None]}, {}, "line 2 of pairs 'en-ru' is None, not two"),
        ({"en": []}, {}, {}, "text 'en' has no lines"),
        ({"en": "w1 w2"}, {}, {}, "text 'en': a stream is a list of lines"),
        ({"en": None}, {}, {}, "text 'en' is None, not lines"),
        ({"../en": ["w1"]}, {}, {}, "a name has letters"),
        ({"en": ["w1"]}, {}, {"workers": 0}, "workers=0"),
        ({"en": ["w1"]}, {}, {"max_length": 2.5}, "max_length=2.5"),
    ],
)
def test_malformed_requests_are_refused_and_leave_nothing(
    tokenizer, tmp_path, text, bitext, options, error
):
    with pytest.raises((DataError, ConfigError), match=error):
        build(tokenizer, tmp_path / "s", text, bitext, **options)
    assert contents(tmp_path) == {}


def test_a_full_disk_leaves_nothing_half_written(tokenizer, tmp_path, monkeypatch):
    class Full:
        def __init__(self, path, mode):
            self.file = real_open(path, mode)
            self.left = 3

        def write(self, data):
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(data)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

    real_open = open
    lines = sentences(0, 9_000)
    monkeypatch.setattr(tokens, "open", Full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        build(tokenizer, tmp_path / "s", {"en": lines})
    assert contents(tmp_path) == {}
    monkeypatch.undo()
    # the same call goes through
    assert len(build(tokenizer, tmp_path / "s", {"en": lines}).text["en"]) == 9_000


PROGRAM = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_tokens import WORDS, build, sentences, word_tokenizer

class Stream:
    def __iter__(self):
        for n, line in enumerate(sentences(3, 6_000)):
            if n == {after}: os.kill(os.getpid(), signal.SIGKILL)
            yield line

if __name__ == "__main__":
    text = {{"en": sentences(2, 2_000), "ru": Stream()}}
    build(word_tokenizer(WORDS), {folder!r}, text, workers={workers}, shard_lines=1024)
"""


@pytest.mark.parametrize("after, workers", [(500, 1), (3_500, 1), (3_500, 2)])
def test_killed_and_run_again_gives_the_same_store(tokenizer, tmp_path, after, workers):
    folder = tmp_path / "killed"
    program = PROGRAM.format(
        tests=str(Path(__file__).parent), after=after, folder=str(folder), workers=workers
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    # ends once nothing writes to it: also the workers have ended
    killed = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(StoreError, match="no finished store here"):
        open_store(folder)
    text = {"en": sentences(2, 2_000), "ru": sentences(3, 6_000)}
    build(tokenizer, folder, text, shard_lines=1024)
    build(tokenizer, tmp_path / "whole", text, shard_lines=1024)
    assert contents(folder) == contents(tmp_path / "whole")  # and no temporary file is left


def test_finished_sources_are_not_read_again(tokenizer, tmp_path):
    class Once:
        reads = 0

        def __iter__(self):
            self.reads += 1
            return iter(sentences(0, 100))

    stream = Once()
    build(tokenizer, tmp_path, {"en": stream})
    build(tokenizer, tmp_path, {"en": stream, "ru": sentences(1, 5)})  # a source more
    assert stream.reads == 1 and set(open_store(tmp_path).text) == {"en", "ru"}


@pytest.mark.parametrize("change", [{"max_length": 9}, {"facts": {"seed": 1}}, {"shard_lines": 5}])
def test_another_recipe_does_not_overwrite_a_store(tokenizer, tmp_path, change):
    build(tokenizer, tmp_path, {"en": ["w1"]})
    before = contents(tmp_path)
    other = {"en": ["w2"]}
    with pytest.raises(StoreError, match=f"other {next(iter(change))}"):
        build(tokenizer, tmp_path, other, **change)
    with pytest.raises(StoreError, match="tokenizer"):
        build(word_tokenizer(WORDS[::-1]), tmp_path, other)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [lambda lines: ["w9 w9", *lines[1:]], lambda lines: lines[:2], lambda lines: lines[:1024]],
)
def test_a_text_that_changed_half_way_is_noticed(tokenizer, tmp_path, change):
    def broken():
        yield from sentences(0, 2_500)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(tokenizer, tmp_path, {"en": broken()}, shard_lines=1024)
    with pytest.raises(StoreError, match="has changed"):
        build(tokenizer, tmp_path, {"en": change(sentences(0, 2_500))}, shard_lines=1024)


# opening


def edit_manifest(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "damage, file, error",
    [
        (
            lambda f: os.truncate(f / "text/en.00001.tokens", 10),
            "en.00001.tokens",
            "has 10 bytes where",
        ),
        (lambda f: (f / "text/en.00000.offsets").unlink(), "en.00000.offsets", "is missing"),
        (
            lambda f: (f / "text/en.00000.offsets").open("ab").write(b"x"),
            "en.00000.offsets",
            "bytes where",
        ),
        (lambda f: (f / "manifest.json").write_text("{"), "manifest.json", "cannot be read"),
        (lambda f: (f / "manifest.json").write_text("[1]"), "manifest.json", "the format is None"),
        (lambda f: edit_manifest(f, format="xlnb tokens 99"), "manifest.json", "xlnb tokens 99"),
        (lambda f: (f / "manifest.json").unlink(), "manifest.json", "no finished store here"),
    ],
)
def test_a_damaged_store_is_refused_by_name(tokenizer, tmp_path, damage, file, error):
    build(tokenizer, tmp_path, {"en": sentences(0, 100)}, shard_lines=64)
    damage(tmp_path)
    with pytest.raises(StoreError, match=error) as refusal:
        open_store(tmp_path, tokenizer)
    assert str(refusal.value).startswith(str(tmp_path)) and Path(refusal.value.file).name == file


def test_a_damaged_shard_is_redone(tokenizer, tmp_path):
    text = {"en": sentences(0, 200)}
    build(tokenizer, tmp_path, text, shard_lines=64)
    before = contents(tmp_path)
    (tmp_path / "text/en.00001.tokens").unlink()
    build(tokenizer, tmp_path, text, shard_lines=64)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b[:100] + bytes([b[100] ^ 1]) + b[101:],
        lambda b: b[8:16] + b[:8] + b[16:],
        lambda b: b[::-1],
    ],
)
@pytest.mark.parametrize("ending", ["tokens", "offsets"])
def test_a_changed_file_of_the_same_size_is_refused(
    tokenizer, tmp_path, change, ending, monkeypatch
):
    text = {"en": sentences(0, 100)}
    build(tokenizer, tmp_path, text)
    before = contents(tmp_path)
    path = tmp_path / f"text/en.00000.{ending}"
    path.write_bytes(change(path.read_bytes()))
    open_store(tmp_path, verify=False)
    for _ in range(2):
        with pytest.raises(
            StoreError, match="another sha256 .*: delete it and the store's manifest"
        ) as e:
            open_store(tmp_path)
        assert e.value.file == path
    # a store of more is read through on request
    monkeypatch.setattr(tokens, "VERIFIED_BYTES", 100)
    open_store(tmp_path)
    with pytest.raises(StoreError, match="another sha256"):
        open_store(tmp_path, verify=True)
    path.unlink()
    build(tokenizer, tmp_path, text)
    assert contents(tmp_path) == before


def test_a_file_is_read_once_while_it_stays(tokenizer, tmp_path, monkeypatch):
    build(tokenizer, tmp_path, {"en": sentences(0, 100)})
    read = []
    monkeypatch.setattr(core, "sha256_file", lambda path: read.append(path) or "another")
    open_store(tmp_path)
    assert read == []
    os.utime(tmp_path / "text/en.00000.tokens")
    with pytest.raises(StoreError, match="another sha256"):
        open_store(tmp_path)
    assert [Path(path).name for path in read] == ["en.00000.tokens"]


@pytest.mark.parametrize(
    "field",
    [
        "tokenizer",
        "vocabulary",
        "special",
        "dtype",
        "max_length",
        "shard_lines",
        "facts",
        "text",
        "pairs",
    ],
)
def test_a_manifest_without_a_field_is_refused_in_a_sentence(tokenizer, tmp_path, field):
    build(tokenizer, tmp_path, {"en": sentences(0, 10)})
    edit_manifest(tmp_path, **{field: None})
    for call in (
        lambda: open_store(tmp_path, tokenizer),
        lambda: build(tokenizer, tmp_path, {"en": ["w1"]}),
    ):
        with pytest.raises(
            StoreError, match=f"has no {field} such as build_store writes: delete it"
        ):
            call()


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["text"]["en"].pop("shards"),
        lambda m: m["text"]["en"]["shards"][0].pop("files"),
        lambda m: m["text"]["en"]["shards"][0]["files"].pop("tokens"),
        lambda m: m["text"]["en"].pop("lines"),
        lambda m: m["text"]["en"]["shards"][0]["files"]["tokens"].pop("sha256"),
        lambda m: m["special"].pop("bos"),
        lambda m: m["text"]["en"]["shards"][0].update(items=9),
        lambda m: m["text"].update({"../en": m["text"]["en"]}),
        lambda m: m["text"]["en"].update(shards=[]),
        lambda m: m["text"]["en"].update(items=9, lines=9),
        lambda m: m["text"].update(en=[]),
        lambda m: m.update(dtype="O"),
    ],
)
def test_a_manifest_with_something_else_in_it_is_refused_in_a_sentence(tokenizer, tmp_path, change):
    build(tokenizer, tmp_path, {"en": sentences(0, 10)})
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    change(manifest)
    edit_manifest(tmp_path, **manifest)
    with pytest.raises(StoreError, match="delete it and run build_store again") as e:
        open_store(tmp_path)
    assert Path(e.value.file).name == "manifest.json"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", "[" * 100_000, '{"recipe": 1, "files": {}}']
)
def test_a_damaged_record_of_a_shard_is_built_again(tokenizer, tmp_path, text):
    lines = {"en": sentences(0, 100)}
    build(tokenizer, tmp_path, lines, shard_lines=64)
    before = contents(tmp_path)
    (tmp_path / "text/en.00001.json").write_text(text)
    build(tokenizer, tmp_path, lines, shard_lines=64)
    assert contents(tmp_path) == before


def test_a_foreign_tokenizer_is_refused(tokenizer, tmp_path):
    build(tokenizer, tmp_path, {"en": ["w1"]})
    with pytest.raises(StoreError, match="built with tokenizer"):
        open_store(tmp_path, word_tokenizer(WORDS[::-1]))


def test_an_index_follows_its_shard(tokenizer, tmp_path):
    store = build(tokenizer, tmp_path / "a", {"en": sentences(0, 300)})
    blocks = TextBlocks(store, "en", 32)
    expected = [[s.tolist() for s in block] for block in blocks]
    (index,) = tmp_path.glob("a/text/*.npy")
    os.truncate(index, 200)  # cut short: made again
    assert [
        [s.tolist() for s in block] for block in TextBlocks(open_store(tmp_path / "a"), "en", 32)
    ] == expected
    other = build(tokenizer, tmp_path / "b", {"en": sentences(9, 300)})
    # of other offsets: not taken
    (tmp_path / "b/text" / index.name).write_bytes(index.read_bytes())
    found = [t for block in TextBlocks(other, "en", 32) for s in block for t in s]
    assert found == other.map("text/en.00000.tokens").tolist()


def test_a_flipped_bit_in_an_index_is_named(tokenizer, tmp_path):
    def read():
        store = open_store(tmp_path)
        return TextBlocks(store, "en", 32)[0], PairBundles(store, "en-ru", 256, 20)[0]

    build(tokenizer, tmp_path, {"en": sentences(0, 300)}, {"en-ru": pairs(1, 300)})
    read()
    for index in sorted(tmp_path.rglob("*.npy")):
        data = bytearray(index.read_bytes())
        data[-5] ^= 1
        index.write_bytes(data)
        with pytest.raises(
            StoreError,
            match=rf"{index.name}: has another sha256 .*: delete it, and it is made again",
        ):
            read()
        index.unlink()
        read()
    assert len([*tmp_path.rglob("*.npy")]) == 2


def test_an_index_of_a_large_store_is_taken_by_its_size(tokenizer, tmp_path):
    TextBlocks(build(tokenizer, tmp_path, {"en": sentences(0, 300)}), "en", 32)
    (index,) = tmp_path.rglob("*.npy")
    index.write_bytes(index.read_bytes()[:-1] + b"\1")
    TextBlocks(open_store(tmp_path, verify=False), "en", 32)
    (index.parent / f"{index.stem}.json").unlink()  # an index without its record is made again
    TextBlocks(open_store(tmp_path), "en", 32)


MANY = """
import resource
from xlnb.text.tokens import PairBundles, TextBlocks, open_store
store = open_store({folder!r})
resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))
assert len(store.text) == 250 and len(store.pairs) == 50
items = [TextBlocks(store, lang, 32) for lang in store.text]
items += [PairBundles(store, pair, 64, 20) for pair in store.pairs]
for _ in range(2): print(sum(len(s) for item in items for s in item[0]))
"""


def test_many_sources_do_not_use_up_file_descriptors(tokenizer, tmp_path):
    text = {f"l{k}": sentences(k, 4) for k in range(250)}
    build(tokenizer, tmp_path, text, {f"a-l{k}": pairs(k, 4) for k in range(50)})
    run = subprocess.run(
        [sys.executable, "-c", MANY.format(folder=str(tmp_path))], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_a_thousand_sources_open_at_once(tokenizer, tmp_path):
    build(tokenizer, tmp_path, {f"l{k}": ["w1 w2"] for k in range(1_000)})
    start = time.perf_counter()
    assert len(open_store(tmp_path, tokenizer).text) == 1_000
    assert time.perf_counter() - start < 2  # 0.06 s on an idle core


# reading


def naive_blocks(lengths, length):
    "Greedy packing, sentence by sentence: the token counts of the sentences in each block."
    blocks = []
    used = length + 1
    for n in lengths:
        while n > 0:
            piece = min(n, length - 2)
            if used + piece + 1 > length:
                used = 1
                blocks.append([])
            blocks[-1].append(piece)
            used = used + piece + 1
            n = n - piece
    return blocks


@pytest.mark.parametrize("length", [3, 4, 8, 17, 64, 1000])
def test_blocks_are_those_of_the_naive_packing(tokenizer, tmp_path, length):
    store = build(tokenizer, tmp_path, {"en": sentences(length, 500, longest=25)})
    blocks = TextBlocks(store, "en", length)
    assert [[len(s) for s in block] for block in blocks] == naive_blocks(
        [len(s) for s in store.text["en"]], length
    )
    assert (
        np.concatenate([s for block in blocks for s in block]).tolist()
        == store.map("text/en.00000.tokens").tolist()
    )
    ends = np.cumsum([len(s) for s in store.text["en"]]).tolist()
    begins = np.cumsum([0] + [sum(map(len, block)) for block in blocks])[:-1].tolist()
    assert blocks.cut == sum(b not in {0, *ends} for b in begins)


@pytest.mark.parametrize("bundle_tokens, max_length", [(13, 5), (50, 12), (64, 7), (4_000, 20)])
def test_bundles_keep_their_budget_and_lose_nothing(tokenizer, tmp_path, bundle_tokens, max_length):
    store = build(tokenizer, tmp_path, {}, {"en-ru": pairs(3, 900)}, shard_lines=400)
    bundles = PairBundles(store, "en-ru", bundle_tokens, max_length)
    sizes = [[len(a) + len(b) + 3 for a, b in bundle] for bundle in bundles]
    assert all(size and len(size) * max(size) <= bundle_tokens for size in sizes)

    def cut(s):
        return tuple(s[:max_length].tolist())

    found = (pair for bundle in bundles for pair in bundle)
    expected = store.pairs["en-ru"]
    assert sorted((cut(a), cut(b)) for a, b in found) == sorted(
        (cut(a), cut(b)) for a, b in expected
    )
    assert bundles.cut == sum(len(s) > max_length for pair in store.pairs["en-ru"] for s in pair)
    for shard in range(3):  # greedy: the first pair of the next bundle would not have fitted
        mine = sizes[bundles.starts[shard] : bundles.starts[shard + 1]]
        assert sum(map(len, mine)) == len(store.pairs["en-ru"].arrays(shard)[1]) // 2
        for size, following in zip(mine, mine[1:]):
            assert (len(size) + 1) * following[0] > bundle_tokens and max(size) <= following[0]


def naive_rows(rows, special):
    rows = [[special.bos, *(t for part in row for t in (*part, special.eos))] for row in rows]
    width = max(map(len, rows))
    return [row + [special.pad] * (width - len(row)) for row in rows]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "special", [SpecialIds(), SpecialIds(bos=101, pad=0, eos=102, unk=100, mask=103)]
)
def test_batches_are_those_of_the_naive_form(seed, special):
    rng = np.random.default_rng(seed)

    def part():
        return rng.integers(200, 300, rng.integers(1, 9)).astype(np.uint16)

    blocks = [[part() for _ in range(rng.integers(1, 5))] for _ in range(7)]
    batch = collate_text(blocks, special)
    assert batch["input_ids"].tolist() == naive_rows(blocks, special)
    assert torch.equal(batch["attention_mask"].bool(), batch["input_ids"] != special.pad)
    both = [(part(), part()) for _ in range(9)]
    for restart in (False, True):
        batch = collate_pairs(both, None, restart, special)
        assert batch["input_ids"].tolist() == naive_rows(both, special)
        for row, (a, b) in zip(range(9), both):
            ends = (
                [*range(len(a) + 1), *range(len(b) + 2)]
                if restart
                else list(range(len(a) + len(b) + 3))
            )
            width = batch["input_ids"].shape[1]
            assert batch["position_ids"][row].tolist() == ends + [0] * (width - len(ends))
            side = [0, *[1] * len(a), 0, *[2] * len(b), 0]
            assert batch["side"][row].tolist() == side + [0] * (width - len(side))
        again = unpack(pack(batch), special)
        assert again.keys() == batch.keys()
        assert all(
            torch.equal(again[k], batch[k]) and again[k].dtype == batch[k].dtype for k in batch
        )


def test_flips_swap_both_sides(tokenizer):
    both = [([10 + k], [50 + k, 50 + k]) for k in range(40)]
    batch = collate_pairs(both, torch_generator("t"))
    plain = collate_pairs(both)
    flipped = batch["input_ids"][:, 1] >= 50
    assert 0 < flipped.sum() < 40
    for row, flip in enumerate(flipped):
        a, b = both[row][::-1] if flip else both[row]
        assert batch["input_ids"][row].tolist() == [0, *a, 2, *b, 2]
        assert batch["side"][row].tolist() == [0, *[1] * len(a), 0, *[2] * len(b), 0]
    assert torch.equal(batch["input_ids"][~flipped], plain["input_ids"][~flipped])


def test_packed_form_counts_every_row():
    batch = collate_text([[[5, 6]], [[7], [8, 9]], [[4]]]) | {"labels": torch.full((3, 6), -100)}
    packed = pack(batch)
    assert (
        packed["cu_seqlens"].tolist() == [0, 4, 10, 13]
        and packed["cu_seqlens"].dtype == torch.int32
    )
    assert packed["input_ids"].tolist() == [[0, 5, 6, 2, 0, 7, 2, 8, 9, 2, 0, 4, 2]]
    assert packed["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 0, 1, 2]]
    assert torch.equal(unpack(packed)["labels"], batch["labels"])


# the order


@pytest.mark.parametrize("n", [*range(1, 20), 63, 64, 65, 1000, 4097])
def test_every_item_comes_once_an_epoch(n):
    for epoch in (0, 1, 5):
        assert sorted(permuted(epoch * n + k, n, 1, "en") for k in range(n)) == list(range(n))


def test_orders_differ_by_epoch_seed_and_name():
    def order(epoch, seed, name):
        return tuple(permuted(epoch * 100 + k, 100, seed, name) for k in range(100))

    assert (
        len({order(e, s, name) for e in range(3) for s in range(3) for name in ("en", "ru")}) == 18
    )


@pytest.mark.parametrize("n", [6, 7, 33, 64])
def test_no_place_prefers_an_item(n):
    epochs = 1_500
    table = np.zeros((n, n))
    for epoch in range(epochs):
        for k in range(n):
            table[k, permuted(epoch * n + k, n, 2, "q")] += 1
    from scipy.stats import chi2

    # rows and columns both sum to `epochs`
    statistic = ((table - epochs / n) ** 2).sum() * n / epochs * (n - 1) / n
    assert 1e-3 < chi2.sf(statistic, (n - 1) ** 2)


@pytest.mark.parametrize("draw, n", [(0, 0), (-1, 5)])
def test_a_draw_from_nothing_is_refused(draw, n):
    with pytest.raises(ConfigError):
        permuted(draw, n, 0, "en")


# cost


def test_reading_is_cheap(tokenizer, tmp_path):
    "A step at `small` handles about 5,000 tokens/s on one thread; 5 % of its time allow 100,000 read tokens/s."
    store = build(tokenizer, tmp_path, {"en": sentences(0, 20_000)}, {"en-ru": pairs(1, 20_000)})
    blocks = TextBlocks(store, "en", 128)
    bundles = PairBundles(store, "en-ru", 1024, 127)

    def text(k):
        return collate_text([blocks[permuted(k + j, len(blocks), 0, "en")] for j in range(32)])

    def paired(k):
        return collate_pairs(bundles[permuted(k, len(bundles), 0, "en-ru")], torch_generator(k))

    rate = {}
    for name, batch in (("text", text), ("pairs", paired)):
        start = time.process_time()
        count = 0
        for k in range(0, 200):
            count += int(batch(k)["attention_mask"].sum())
        rate[name] = count / (time.process_time() - start)
    assert min(rate.values()) > 100_000, rate


@pytest.mark.slow
def test_real_text_goes_in_and_out(tmp_path):
    root = os.environ.get("XLNB_DATA")
    if not root or not (Path(root) / "multi30k").is_dir():
        pytest.skip("XLNB_DATA names no folder with multi30k")
    from xlnb.text.catalogue import load_corpus
    from xlnb.text.vocab import load_tokenizer, train_vocab

    corpus = load_corpus("multi30k", ["de", "en", "fr"])
    some = {
        lang: [line for _, line in zip(range(3_000), lines)] for lang, lines in corpus.text.items()
    }
    train_vocab(some, 2_000, tmp_path / "v")
    tokenizer = load_tokenizer(tmp_path / "v")
    store = build(tokenizer, tmp_path / "s", corpus.text, corpus.pairs)
    for lang, lines in corpus.text.items():
        lines = list(lines)
        assert len(store.text[lang]) == len(lines)
        for k in range(0, len(lines), 997):
            assert (
                store.text[lang][k].tolist()
                == tokenizer(lines[k], add_special_tokens=False)["input_ids"]
            )


@pytest.mark.parametrize(
    "rows",
    [
        None,
        3,
        "w1 w2",
        ["w1 w2"],
        [["w1"]],
        [[1, 2]],
        [[[1.5]]],
        [[[True]]],
        [None],
        [[]],
        [[np.zeros(2)]],
        [[np.zeros((2, 2), int)]],
        {"a": 1},
        np.zeros((2, 2), int),
    ],
)
def test_what_is_no_batch_is_refused_in_a_sentence(rows):
    with pytest.raises(ConfigError, match="a batch is a list of blocks|is no list of token ids"):
        collate_text(rows)
    with pytest.raises(ConfigError, match="a batch is a list of pairs|is no list of token ids"):
        collate_pairs(rows)
    with pytest.raises(ConfigError, match="special is of type int"):
        collate_text([[[5]]], 3)


def test_a_part_without_tokens_leaves_the_ids_whole():
    assert collate_text([[[], [2**24 + 1]]])["input_ids"].tolist() == [[0, 2, 2**24 + 1, 2]]


def test_batches_without_rows_or_mask_are_refused():
    for collate in (collate_text, collate_pairs):
        with pytest.raises(ConfigError, match="a batch of no rows"):
            collate([])
    with pytest.raises(ConfigError, match="the batch has input_ids: add its attention_mask"):
        pack({"input_ids": None})


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: pack([1]), ConfigError, "a batch is a dict of tensors, .*; got a list"),
        (
            lambda: pack({"attention_mask": [1]}),
            DataError,
            "attention_mask is a list: give a tensor",
        ),
        (
            lambda: pack({"attention_mask": torch.ones(2, 3), "input_ids": torch.ones(2, 4)}),
            DataError,
            r"input_ids is \(2, 4\), and attention_mask \(2, 3\)",
        ),
        (lambda: unpack("text"), ConfigError, "got a str"),
        (
            lambda: unpack({"input_ids": torch.ones(1, 4)}),
            ConfigError,
            "has input_ids: add its cu_seqlens",
        ),
        (lambda: collate_pairs([([1], [2])], 3), ConfigError, "generator=3: drawing needs"),
    ],
)
def test_other_types_than_a_batch_are_answered_in_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()
