"""The shared vocabulary: the two tokenizer libraries agree on every script, training is exact and reproducible."""

import itertools, json, shutil, subprocess, sys, tracemalloc, warnings
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from transformers import AutoTokenizer, XLMRobertaTokenizer

from xlnb.base.core import ConfigError, DataError
from xlnb.text.catalogue import load_corpus, set_folder
from xlnb.text.cldr import LOCALES, cldr_corpus, names
from xlnb.text.corpora import LANGUAGES, Lines, read_tatoeba
from xlnb.text.vocab import (
    BLANKS,
    _parts,
    fertility,
    fertility_figure,
    line_counts,
    line_quotas,
    load_tokenizer,
    require_fast,
    sampled_lines,
    tokenizer_hash,
    train_sentencepiece,
    train_vocab,
)


def reference(folder):
    "Text → ids of the SentencePiece model alone, in XLM-R's numbering."
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(Path(folder) / "sentencepiece.bpe.model")
    )
    return lambda text: [i + 1 if i else 3 for i in processor.encode(text)]


def plain(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def differing(tokenizer, ids, lines):
    "The lines to which the two libraries give different ids."
    lines = list(lines)
    return [line for line, got in zip(lines, plain(tokenizer, lines)) if got != ids(line)]


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    "Text in all 113 locales, and a tokenizer trained on it."
    text = cldr_corpus(LOCALES, 1, 100, 1, 1, pairs=["de-en"]).text
    folder = tmp_path_factory.mktemp("vocab") / "all"
    return text, train_vocab(text, 6000, folder), folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    "Text in three scripts, and a small tokenizer."
    text = cldr_corpus("de,ru,hi", 1, 500, 1, 1).text
    folder = tmp_path_factory.mktemp("vocab") / "toy"
    return text, train_vocab(text, 700, folder), folder


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("tokenizer.json", "{", "["),
        ("tokenizer.json", '"added_tokens": [', '"added_tokens": [7, '),
        ("tokenizer_config.json", '"mask_token"', '"nask_token"'),
        ("tokenizer_config.json", '"attention_mask"', '"mask"'),
        ("tokenizer_config.json", '"eos_token": "</s>"', '"eos_token": 7'),
        ("tokenizer_config.json", '"model_max_length": ', '"model_max_length": "long", "other": '),
    ],
)
def test_a_damaged_vocabulary_is_refused_in_a_sentence(toy, tmp_path, file, old, new):
    folder = shutil.copytree(toy[2], tmp_path / "words")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match="train it again"):
        load_tokenizer(folder)


@pytest.mark.parametrize("lang", LOCALES)
def test_same_ids_on_every_script(everything, lang):
    text, tokenizer, folder = everything
    ids = reference(folder)
    native = cldr_corpus(
        f"{lang},en" if lang != "en" else "en,de", 1, 30, 1, 1, digits="native"
    ).text[lang]
    lines = [
        *text[lang],
        *native,
        *names(lang, "territories").values(),
        *names(lang, "languages").values(),
    ]
    assert differing(tokenizer, ids, lines) == []


NASTY = [
    "",
    " ",
    "\u3000\u00a0\t\n",
    "▁",
    "▁▁",
    "▁▁ a",
    "a▁b",
    " a",
    "a ",
    "می\u200cخواهم",
    "ශ්\u200dරී",
    "ന്\u200d",
    "e\u0301\u0301",
    "\u0301",
    "\ufb01\u0301",
    "\uff21\u0301",
    "ＡＢＣ １２",
    "½ ² ™ …",
    "\u1100\u1161\u11a8",
    "Vie\u0302\u0323t",
    "👩\u200d👩\u200d👧",
    "🇩🇪",
    "👍🏽",
    "𐍈𐍈 x",
    "\U0001e900",
    "a\x00b",
    "\x00",
    "\ufeffa",
    "a\u2028b\x85c",
    "ﷺ",
    "İstanbul ǆ",
    "< s>",
    "<\u200es>",
    "\u202bשלום\u202c",
    "\ue000\U0010ffff\ufffe",
    "a" * 5000,
    "и " * 5000,
    "字" * 3000,
    "\r\n\v\f",
    "\u2585 x",
    "a\tb",
]


@pytest.mark.parametrize("text", NASTY, ids=lambda t: ascii(t)[:30])
def test_same_ids_on_nasty_strings(everything, text):
    _, tokenizer, folder = everything
    assert plain(tokenizer, text) == reference(folder)(text)


@pytest.mark.parametrize("seed", range(5))
def test_same_ids_on_random_strings(everything, seed):
    _, tokenizer, folder = everything
    ids = reference(folder)
    generator = np.random.default_rng(seed)
    points = np.concatenate(
        [np.arange(1, 0xD800), np.arange(0xE000, 0x11000), np.arange(0x1E900, 0x1FB00)]
    )
    common = np.array(
        [ord(c) for c in "".join(names("ru", "territories").values())] + list(BLANKS) + [0x20] * 200
    )
    texts = []
    for n in generator.integers(0, 40, size=1000):
        pool = points if generator.random() < 0.5 else common
        texts.append("".join(map(chr, pool[generator.integers(len(pool), size=n)])))
    assert differing(tokenizer, ids, texts) == []


def test_same_ids_on_long_texts(everything):
    text, tokenizer, folder = everything
    ids = reference(folder)
    for lang in ("de", "zh", "ml", "am"):
        long = " ".join(itertools.islice(text[lang], 100))
        assert len(ids(long)) > 500 and plain(tokenizer, long) == ids(long)


def test_special_tokens_and_sizes(everything):
    text, tokenizer, _ = everything
    assert len(tokenizer) == tokenizer.vocab_size == 6000
    assert tokenizer.convert_tokens_to_ids(["<s>", "<pad>", "</s>", "<unk>", "<mask>"]) == [
        0,
        1,
        2,
        3,
        5999,
    ]
    assert sorted(tokenizer.get_vocab().values()) == list(range(6000))
    one = plain(tokenizer, "Berlin")
    two = plain(tokenizer, "Москва")
    assert tokenizer("Berlin")["input_ids"] == [0, *one, 2]
    assert tokenizer("Berlin", "Москва")["input_ids"] == [0, *one, 2, *two, 2]
    assert set(tokenizer("Berlin")) == {"input_ids", "attention_mask"}
    batch = tokenizer(["Berlin", "a b c d e f g"], padding=True)
    assert batch["input_ids"][0][-1] == 1 and batch["attention_mask"][0][-1] == 0


def test_special_tokens_in_text_stand_for_themselves_unless_broken_up(toy):
    _, tokenizer, folder = toy
    for name in ("<s>", "<pad>", "</s>", "<unk>", "<mask>"):
        assert plain(tokenizer, f"12{name}12").count(tokenizer.convert_tokens_to_ids(name)) == 1
        broken = f"12< {name[1:]}12"
        assert plain(tokenizer, broken) == reference(folder)(broken)
    assert tokenizer.mask_token_id not in plain(tokenizer, "< mask>")


def test_normalisation_is_what_sentencepiece_does(toy):
    _, tokenizer, folder = toy
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "sentencepiece.bpe.model")
    )
    normalise = tokenizer.backend_tokenizer.normalizer.normalize_str
    for point in itertools.chain(
        range(1, 0xD800), range(0xE000, 0x10000), (0x1F600, 0xE0001, 0x10FFFF)
    ):
        text = f"a{chr(point)} b"
        assert processor.normalize(text) == "▁" + normalise(text).replace(" ", "▁"), hex(point)


@pytest.mark.parametrize(
    "a, b, same",
    [
        ("می\u200cخواهم", "می خواهم", False),
        ("ශ්\u200dරී", "ශ්රී", False),
        ("a\u00a0b", "a b", True),
        ("a\u3000 \tb ", "a b", True),
        ("a\u200bb", "a b", True),
        ("ab", "a b", False),
    ],
)
def test_joiners_are_spelling_and_blanks_are_one_space(everything, a, b, same):
    _, tokenizer, _ = everything
    normalise = tokenizer.backend_tokenizer.normalizer.normalize_str
    assert (normalise(a) == normalise(b)) is same
    assert not same or plain(tokenizer, a) == plain(tokenizer, b)


def test_auto_tokenizer_needs_no_xlnb(everything):
    text, tokenizer, folder = everything
    lines = [next(iter(stream)) for stream in text.values()]
    code = (
        "import json, sys; from transformers import AutoTokenizer; t = "
        "AutoTokenizer.from_pretrained(sys.argv[1]); "
        "print(json.dumps(t(json.load(sys.stdin))['input_ids'])); assert 'xlnb' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(folder)]
    out = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True)
    assert json.loads(out.stdout) == tokenizer(lines)["input_ids"], out.stderr


def test_the_model_file_has_the_layout_of_xlmr(toy, tmp_path):
    text, tokenizer, folder = toy
    (tmp_path / "sentencepiece.bpe.model").write_bytes(
        (folder / "sentencepiece.bpe.model").read_bytes()
    )
    theirs = XLMRobertaTokenizer.from_pretrained(tmp_path)
    lines = list(text["ru"])
    assert len(theirs) == len(tokenizer) and theirs.mask_token_id == tokenizer.mask_token_id
    assert theirs(lines)["input_ids"] == tokenizer(lines)["input_ids"]


def test_training_is_reproducible_in_another_process(toy, tmp_path):
    text, tokenizer, folder = toy
    code = (
        "import sys; from xlnb.text.cldr import cldr_corpus; from xlnb.text.vocab import "
        "train_vocab; "
        "train_vocab(cldr_corpus('de,ru,hi', 1, 500, 1, 1).text, 700, sys.argv[1])"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "again")], check=True, capture_output=True
    )
    for name in ("sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name


def test_the_seed_chooses_the_sample(toy, tmp_path):
    text, _, _ = toy

    def train(seed):
        return train_vocab(text, 300, tmp_path / str(seed), max_sentences=400, seed=seed)

    hashes = [tokenizer_hash(train(seed)) for seed in (0, 1, 0)]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("limit", [20, 1000, 10**6])
def test_quotas_follow_the_exponent(alpha, limit):
    counts = {"a": 70_000, "b": 5_000, "c": 900, "d": 11}
    quotas = line_quotas(counts, alpha, limit)
    total = min(limit, sum(counts.values()))
    weights = np.array([n**alpha for n in counts.values()])
    exact = weights / weights.sum() * total
    assert all(abs(q - max(1, e)) <= 1 for q, e in zip(quotas.values(), exact))
    assert sum(quotas.values()) == total or min(exact) < 1  # a language is never left out


@pytest.mark.parametrize("quota", [1, 7, 10, 11, 25, 30])
def test_samples_are_exact_and_even(quota):
    lines = [str(i) for i in range(10)]
    drawn = [
        list(sampled_lines({"x": lines}, {"x": 10}, {"x": quota}, seed)) for seed in range(200)
    ]
    for sample in drawn:
        assert len(sample) == quota and {sample.count(line) for line in lines} <= {
            quota // 10,
            quota // 10 + 1,
        }
    share = np.array([[sample.count(line) for line in lines] for sample in drawn]).mean(axis=0)
    # four standard errors of a proportion
    assert np.allclose(share, quota / 10, atol=4 * 0.5 / 200**0.5)


def test_the_sample_is_streamed():
    stream = Lines(lambda: (f"line number {i} of a long stream" for i in range(200_000)))
    tracemalloc.start()
    counts = line_counts({"x": stream})
    taken = sum(1 for _ in sampled_lines({"x": stream}, counts, line_quotas(counts, 0.7, 1000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken == 1000 and peak < 2e6


def test_repeated_lines_shift_the_vocabulary_towards_small_languages(tmp_path):
    text = {
        "de": cldr_corpus("de,ru", 1, 2000, 1, 1).text["de"],
        "ru": cldr_corpus("de,ru", 1, 100, 1, 1).text["ru"],
    }
    fit = {
        alpha: fertility(train_vocab(text, 600, tmp_path / str(alpha), alpha=alpha), text)
        for alpha in (0.0, 1.0)
    }
    assert fit[0.0].loc["ru", "characters/piece"] > fit[1.0].loc["ru", "characters/piece"]
    assert fit[0.0].loc["de", "characters/piece"] < fit[1.0].loc["de", "characters/piece"]


@pytest.mark.parametrize("size", [100_000, 3000])
def test_the_largest_size_is_stated_and_exact(toy, tmp_path, size):
    text, _, _ = toy
    with pytest.raises(
        ConfigError, match="larger than the corpus allows: the largest that works is"
    ) as e:
        train_vocab(text, size, tmp_path / "x")
    largest = int(str(e.value).split()[-1])
    with pytest.raises(ConfigError):
        train_vocab(text, largest + 1, tmp_path / "x")
    assert not list(tmp_path.iterdir())  # nothing half-written remains
    assert len(train_vocab(text, largest, tmp_path / "x")) == largest


def test_the_smallest_size_is_stated_and_exact(toy, tmp_path):
    text, _, _ = toy
    with pytest.raises(
        ConfigError, match="the smallest that works with character_coverage=0.9995 is"
    ) as e:
        train_vocab(text, 50, tmp_path / "x")
    smallest = int(str(e.value).split()[-1])
    with pytest.raises(ConfigError):
        train_vocab(text, smallest - 1, tmp_path / "x")
    assert len(train_vocab(text, smallest, tmp_path / "x")) == smallest
    for size in (5, 0, -1):
        with pytest.raises(ConfigError, match="five ids are special"):
            train_vocab(text, size, tmp_path / "x")


def test_streams_without_text_are_named(tmp_path):
    with pytest.raises(DataError, match="no text in ru"):
        train_vocab({"de": ["a"], "ru": []}, 100, tmp_path / "x")
    with pytest.raises(DataError, match="no stream"):
        train_vocab({}, 100, tmp_path / "x")
    with pytest.raises(DataError, match="only blanks"):
        train_vocab({"de": ["\u3000", " "]}, 100, tmp_path / "x")
    with pytest.raises(ConfigError, match="alpha=-1"):
        train_vocab({"de": ["a"]}, 100, tmp_path / "x", alpha=-1)
    with pytest.raises(DataError, match="no lines of ru"):
        line_quotas({"de": 3, "ru": 0})
    with pytest.raises(DataError, match="no lines of any language"):
        line_quotas({})


def test_wrong_counts_are_refused(toy, tmp_path):
    text, _, _ = toy
    with pytest.raises(DataError, match="has 500 lines, but 400 were counted"):
        train_vocab(text, 300, tmp_path / "x", counts={"de": 400, "ru": 500, "hi": 500})


def test_lines_with_tabs_and_blocks_are_learned_from():  # SentencePiece by itself leaves such lines out
    proto = train_sentencepiece(["abc\tabc"] * 5 + ["xyz▅xyz"] * 5, 14)
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
    assert processor.unk_id() not in processor.encode("abc xyz")


def test_a_line_that_repeats_itself_is_learned_from_in_parts(
    toy, tmp_path
):  # whole it would take minutes
    text, _, _ = toy
    stream = {"de": [*text["de"], "kaufen " * 100_000, "a" * 100_000]}
    with pytest.warns(
        UserWarning, match="more than 4,000 characters .*: 2 here, with 24 cuts inside a word"
    ):
        tokenizer = train_vocab(stream, 300, tmp_path / "x", alpha=1)
    assert tokenizer.tokenize("kaufen") == ["▁kaufen"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a",
        " " * 9_000,
        "ab " * 5_000,
        "a" * 4_000,
        "a" * 4_001,
        "a" * 9_000 + " b",
        " " + "a" * 9_000,
        "x " + "a" * 3_998 + " b",
        "x " + "a" * 3_999 + " b",
    ],
)
def test_parts_are_short_and_lose_nothing(line):
    parts, cut_words = _parts(line)
    assert "".join(parts) == line and max(map(len, parts)) <= 4_000
    assert cut_words == sum(not part.startswith(" ") for part in parts[1:])
    if not cut_words:
        assert [word for part in parts for word in part.split()] == line.split()


def test_short_lines_are_learned_from_without_a_word(toy):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train_sentencepiece(["x " + "ab " * 1_332] * 3, 9)


def test_a_failed_training_leaves_the_old_folder(toy, tmp_path):
    text, _, _ = toy
    old = train_vocab(text, 300, tmp_path / "x")
    with pytest.raises(ConfigError):
        train_vocab(text, 10**6, tmp_path / "x")
    assert tokenizer_hash(load_tokenizer(tmp_path / "x")) == tokenizer_hash(old)
    new = train_vocab(text, 310, tmp_path / "x")  # and a good one replaces it
    assert len(load_tokenizer(tmp_path / "x")) == len(new) == 310


def test_only_our_own_tokenizers_are_loaded(toy, tmp_path):
    _, tokenizer, folder = toy
    with pytest.raises(DataError, match="no tokenizer.json"):
        load_tokenizer(tmp_path)
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    assert tokenizer_hash(load_tokenizer(tmp_path / "checkpoint")) == tokenizer_hash(tokenizer)
    foreign = AutoTokenizer.from_pretrained(folder)
    foreign.add_tokens(["xyz"])
    foreign.save_pretrained(tmp_path / "changed")
    with pytest.raises(DataError, match="changed: .*not the one that was written"):
        load_tokenizer(tmp_path / "changed")
    XLMRobertaTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "xlmr")
    with pytest.raises(DataError, match="xlmr: "):
        load_tokenizer(tmp_path / "xlmr")


def test_fertility_of_known_text(toy):
    text, tokenizer, _ = toy
    frame = fertility(tokenizer, {"x": ["12 12", "ⴰⴱ 12"]})
    pieces = [plain(tokenizer, word) for word in ("12", "ⴰⴱ")]
    # Tifinagh is unknown: one <unk> for two letters
    assert pieces[1][-1] == 3 and pieces[1].count(3) == 1
    total = 3 * len(pieces[0]) + len(pieces[1])
    assert frame.loc["x"].to_dict() == {
        "lines": 2,
        "pieces/word": total / 4,
        "characters/piece": 8 / total,
        "unknown rate": 1 / total,
        "coverage": 1 - 2 / 8,
    }
    with pytest.raises(DataError, match="no text in y"):
        fertility(tokenizer, {"y": [" "]})
    assert len(fertility_figure(fertility(tokenizer, text)).axes) == 2


@pytest.mark.slow
def test_same_ids_on_real_text(tmp_path):
    try:
        folder = set_folder("tatoeba")
    except FileNotFoundError as e:
        pytest.skip(str(e))
    langs = [
        lang
        for lang, codes in LANGUAGES.items()
        if lang != "en"
        and "tatoeba" in codes
        and (folder / f"tatoeba.{codes['tatoeba']}-eng.eng").is_file()
    ]
    text = {lang: read_tatoeba(folder, lang)[0] for lang in langs}
    tokenizer = train_vocab(text, 8000, tmp_path / "v", max_sentences=20_000)
    for lines in text.values():
        assert differing(tokenizer, reference(tmp_path / "v"), lines[:300]) == []


@pytest.mark.slow
def test_same_ids_on_long_verses(toy):
    _, tokenizer, folder = toy
    try:
        bible = load_corpus("bible", "en,de,he,zh,zu").text
    except FileNotFoundError as e:
        pytest.skip(str(e))
    for lines in bible.values():
        assert differing(tokenizer, reference(folder), itertools.islice(lines, 2000)) == []


def test_what_a_vocabulary_would_replace_is_left_alone(tmp_path):
    text = cldr_corpus("de,ru,hi", 1, 500, 1, 1).text
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "en.txt").write_text("precious")
    with pytest.raises(ConfigError, match="holds en.txt"):
        train_vocab(text, 300, tmp_path / "data")
    with pytest.raises(ConfigError, match="is a file"):
        train_vocab(text, 300, tmp_path / "data" / "en.txt")
    assert (tmp_path / "data" / "en.txt").read_text() == "precious"
    train_vocab(text, 300, tmp_path / "x")
    assert len(train_vocab(text, 320, tmp_path / "x")) == 320  # one of ours may be trained anew


@pytest.mark.parametrize("stream", ["/data/en.txt", Path("/data/en.txt")])
def test_a_path_is_no_text(stream, tmp_path):
    with pytest.raises(DataError, match="^en: a stream is a list of lines"):
        train_vocab({"de": ["a"], "en": stream}, 100, tmp_path / "x")


@pytest.mark.parametrize("stream", [(line for line in ["a", "b"]), map(str, [1]), None])
def test_what_cannot_be_read_twice_is_refused(stream, tmp_path):
    words = (
        "en is None"
        if stream is None
        else "en: a (generator|map) can be read only once.*give a list"
    )
    for call in (
        lambda: train_vocab({"en": stream}, 100, tmp_path / "x"),
        lambda: line_counts({"en": stream}),
        lambda: train_vocab({"en": stream}, 100, tmp_path / "x", counts={"en": 2}),
        lambda: sampled_lines({"en": stream}, {"en": 2}, {"en": 1}),
    ):
        with pytest.raises(DataError, match=words):
            call()


def test_lines_that_are_no_strings_are_numbered(toy, tmp_path):
    _, tokenizer, _ = toy
    for call in (
        lambda: line_counts({"en": ["a", None]}),
        lambda: fertility(tokenizer, {"en": ["a", None]}),
        lambda: train_vocab({"en": ["a", None]}, 100, tmp_path / "x", counts={"en": 2}),
    ):
        with pytest.raises(DataError, match="line 2 of the text of en is None, not a string"):
            call()
    with pytest.raises(DataError, match="line 2 of the training text is 3"):
        train_sentencepiece(["a", 3], 20)
    with pytest.raises(DataError, match="training text: .*one string or path"):
        train_sentencepiece("abc", 20)
    with pytest.raises(DataError, match="no count or no quota for en"):
        sampled_lines({"en": ["a"]}, {"en": 1}, {})


def test_what_is_no_tokenizer_is_told_how_to_load_one(toy):
    _, tokenizer, _ = toy
    assert require_fast(tokenizer) is tokenizer
    for given in ("bert", Path("bert"), None):
        words = f"tokenizer='{given}' is not a tokenizer: .*AutoTokenizer"
        with pytest.raises(ConfigError, match=words):
            tokenizer_hash(given)
        with pytest.raises(ConfigError, match=words):
            fertility(given, {"en": ["a"]})
    with pytest.raises(ConfigError, match="is a Tokenizer, not a fast .*PreTrainedTokenizerFast"):
        tokenizer_hash(tokenizer.backend_tokenizer)
