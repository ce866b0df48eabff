"VoCap: the division is the best there is, ladders go on where they were, and the model is like that of train_vocab."

import itertools, json, os, subprocess, sys, time

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2
from xlnb.base.core import ConfigError, DataError
from xlnb.text.cldr import cldr_corpus
from xlnb.text.corpora import Lines
from xlnb.text.vocab import load_tokenizer, tokenizer_hash, train_sentencepiece, train_vocab
from xlnb.text.vocap import (
    Capacity,
    allocate_vocabulary,
    average_log_probability,
    capacity_curve,
    capacity_gains,
    capacity_weights,
    compare_vocabularies,
    ladder_trainings,
    reestimated_model,
    size_ladder,
    train_capacities,
    train_vocap,
    vocap_figure,
)

AMOUNTS = {"de": 800, "ru": 400, "hi": 60}
OUTPUT = ("sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json")


def pieces_of(proto):
    return [p.piece for p in sentencepiece_model_pb2.ModelProto.FromString(proto).pieces[3:]]


def text():
    streams = cldr_corpus(tuple(AMOUNTS), 1, 800, 1, 1).text
    return {lang: list(itertools.islice(streams[lang], n)) for lang, n in AMOUNTS.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    "Text in three scripts, its ladders, and both vocabularies of 500 ids."
    folder = tmp_path_factory.mktemp("vocap")
    streams = text()
    vocap = train_vocap(streams, 500, folder / "vocap", folder / "work").tokenizer
    return folder, streams, vocap, train_vocab(streams, 500, folder / "joint")


def state(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---------------------------------------------------------------- ALP


def test_alp_of_a_hand_computed_text():
    assert average_log_probability([["a", "b"], ["a"]]) == pytest.approx(
        (2 * np.log(2 / 3) + np.log(1 / 3)) / 2
    )
    assert average_log_probability([["a"], [], ["a"]]) == 0
    with pytest.raises(DataError, match="no sentence has a subword"):
        average_log_probability([[]])
    with pytest.raises(DataError, match="no sentence has a subword"):
        average_log_probability([])
    with pytest.raises(DataError, match="sentence 2 is None"):
        average_log_probability([["a"], None])
    with pytest.raises(DataError, match="sentence 1 is 'ab'"):
        average_log_probability(["ab"])


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=8).filter(any))
def test_alp_is_the_mean_of_sums_over_sentences(sentences):
    flat = sum(sentences, [])
    p = {x: flat.count(x) / len(flat) for x in flat}
    expected = np.mean([sum(np.log(p[x]) for x in s) for s in sentences])
    assert average_log_probability(sentences) == pytest.approx(expected, abs=1e-9)


def test_alp_of_a_rung_is_that_of_the_models_own_cut(made):
    folder, streams, _, _ = made
    curve = capacity_curve("hi", streams["hi"], 60, 80, 90, folder / "rungs")
    for pieces, alp in ((80, curve.alp[0]), (90, curve.alp[-1])):
        encode = sentencepiece.SentencePieceProcessor(
            model_proto=train_sentencepiece(streams["hi"], pieces + 5)
        ).encode
        assert alp == pytest.approx(average_log_probability(map(encode, streams["hi"])))


# ---------------------------------------------------------------- ladder and curve


@given(st.integers(1, 3000), st.integers(0, 10**6), st.integers(1, 500), st.floats(1.1, 4))
def test_a_ladder_keeps_its_ends_and_rises(smallest, more, step, ratio):
    sizes = size_ladder(smallest, smallest + more, step, ratio)
    assert (sizes[0], sizes[-1]) == (smallest, smallest + more)
    assert all(a < b for a, b in itertools.pairwise(sizes))


@pytest.mark.parametrize("arguments", [(0, 5), (6, 5), (1, 5, 0), (1, 5, 1, 1.0)])
def test_what_is_no_ladder_is_refused(arguments):
    with pytest.raises(ConfigError, match="a ladder needs"):
        size_ladder(*arguments)


@given(
    st.lists(st.floats(0, 9), min_size=1, max_size=8),
    st.lists(st.integers(1, 9), min_size=8, max_size=8),
    st.integers(1, 64),
)
def test_gains_never_rise_and_lie_above_the_curve(rises, steps, step):
    sizes = (3 + np.cumsum([0, *steps[: len(rises)]])).tolist()
    alp = np.cumsum([-50.0, *rises])
    gains = capacity_gains(sizes, alp, step)
    assert (
        len(gains) == sizes[-1]
        and np.isinf(gains[: sizes[0]]).all()
        and (np.diff(gains[sizes[0] :]) <= 1e-12).all()
    )
    concave = alp[0] + np.cumsum([0.0, *gains[sizes[0] :]])
    assert concave[-1] == pytest.approx(alp[-1])
    assert all(concave[n - sizes[0]] >= a - 1e-9 for n, a in zip(sizes, alp))


def test_a_concave_ladder_of_every_size_keeps_its_gains():
    assert capacity_gains([2, 3, 4, 5], [-9, -5, -3, -2], 1)[2:] == pytest.approx([4, 2, 1])
    assert capacity_gains([4], [-9]).tolist() == [np.inf] * 4
    with pytest.raises(ConfigError, match="2 sizes and 1 values"):
        capacity_gains([4, 5], [-9])
    with pytest.raises(ConfigError, match="0 sizes"):
        capacity_gains([], [])


def test_the_order_of_pieces_begins_with_the_smallest_model_and_contains_all(made):
    folder, streams, _, _ = made
    curve = capacity_curve("de", streams["de"], 800, 80, 10**5, folder / "rungs")
    assert (
        curve.sizes[0] == 80 and len(set(curve.subwords)) == len(curve.subwords) == curve.sizes[-1]
    )
    assert set(curve.subwords[:80]) == set(pieces_of(train_sentencepiece(streams["de"], 85)))
    with pytest.raises(ConfigError) as e:
        train_sentencepiece(streams["de"], 10**5)
    # the honest top
    assert set(pieces_of(train_sentencepiece(streams["de"], e.value.limit))) <= set(curve.subwords)
    assert list(curve.alp) == sorted(curve.alp)


def test_the_first_pieces_are_about_as_good_as_a_model_trained_to_the_size(made):
    folder, streams, _, _ = made
    curve = capacity_curve("de", streams["de"], 800, 80, 10**5, folder / "rungs")
    for n in (120, 250, 400):
        first = reestimated_model(dict(zip(curve.subwords[:n], curve.scores)), streams["de"])
        models = (first, train_sentencepiece(streams["de"], n + 5))
        cuts = [
            sentencepiece.SentencePieceProcessor(model_proto=proto).encode(streams["de"])
            for proto in models
        ]
        alp = [average_log_probability(cut) for cut in cuts]
        assert alp[0] > 1.02 * alp[1]  # within two percent, or better


# ---------------------------------------------------------------- the division


def capacity(name, lines, start, rises, shared=0):
    "A ladder of every size; the first `shared` pieces have the same names in all languages."
    names = tuple(f"{'' if i < shared else name}{i}" for i in range(start + len(rises)))
    alp = tuple(np.cumsum([-100.0, *sorted(rises, reverse=True)]).tolist())
    return Capacity(
        lines, tuple(range(start, start + len(rises) + 1)), alp, 1, names, (-1.0,) * len(names)
    )


def union(capacities, sizes):
    return {p for lang, c in capacities.items() for p in c.subwords[: sizes[lang]]}


RISES = st.lists(st.floats(0.01, 9), min_size=1, max_size=5, unique=True)
MANY = st.lists(st.tuples(RISES, st.integers(1, 3), st.integers(1, 10**6)), min_size=1, max_size=3)


@settings(deadline=None)
@given(MANY, st.data())
def test_no_other_division_of_the_same_places_is_better(languages, data):
    many = {
        f"l{i}": capacity(f"l{i}-", lines, start, rises)
        for i, (rises, start, lines) in enumerate(languages)
    }
    weights = capacity_weights({lang: c.lines for lang, c in many.items()})
    steps = [w * g for lang, w in weights.items() for g in np.diff(many[lang].alp)]
    room = data.draw(
        st.integers(sum(c.sizes[0] for c in many.values()), sum(c.sizes[-1] for c in many.values()))
    )
    sizes = allocate_vocabulary(many, room + 5)
    assert len(union(many, sizes)) == room == sum(sizes.values())

    def value(d):
        return sum(weights[lang] * c.alp[n - c.sizes[0]] for (lang, c), n in zip(many.items(), d))

    best = max(
        value(d) for d in itertools.product(*(c.sizes for c in many.values())) if sum(d) <= room
    )
    gap = min(np.diff(sorted(steps)), default=1.0)
    # ties go to the language with most text
    if gap > 1e-6:
        assert value(sizes.values()) == pytest.approx(best)


@settings(deadline=None)
@given(MANY, st.integers(0, 3), st.data())
def test_sorting_finds_what_bisection_finds(languages, shared, data):
    many = {
        f"l{i}": capacity(f"l{i}-", lines, start, rises, shared)
        for i, (rises, start, lines) in enumerate(languages)
    }
    weights = capacity_weights({lang: c.lines for lang, c in many.items()})
    gains = {
        lang: weights[lang] * capacity_gains(c.sizes, c.alp, c.step) for lang, c in many.items()
    }

    def at(threshold):
        return {lang: int((g > threshold).sum()) for lang, g in gains.items()}

    room = data.draw(st.integers(len(union(many, at(1e9))), len(union(many, at(0)))))
    low = -1.0
    high = 100.0
    for _ in range(200):
        middle = (low + high) / 2
        if len(union(many, at(middle))) > room:
            low = middle
        else:
            high = middle
    sizes = allocate_vocabulary(many, room + 5)
    assert len(union(many, sizes)) == room
    assert all(sizes[lang] >= n for lang, n in at(high).items())  # the rest fills up


def test_places_left_by_ties_go_to_the_language_with_most_text():
    tied = {"a": capacity("a", 10, 2, [1.0] * 4), "b": capacity("b", 30, 2, [0.5] * 4)}
    # a's four pieces are one step, and do not fit
    assert allocate_vocabulary(tied, 5 + 6, alpha=0) == {"a": 2, "b": 4}
    assert allocate_vocabulary(tied, 5 + 9, alpha=0) == {"a": 6, "b": 3}


def test_impossible_sizes_and_exponents_are_refused():
    many = {"a": capacity("a", 10, 3, [2.0, 1.0]), "b": capacity("b", 10, 3, [2.0, 1.0])}
    with pytest.raises(ConfigError, match="smallest models of all languages need 11"):
        allocate_vocabulary(many, 10)
    with pytest.raises(ConfigError, match="the largest that works is 15"):
        allocate_vocabulary(many, 16)
    assert allocate_vocabulary(many, 15) == {"a": 5, "b": 5} and allocate_vocabulary(many, 11) == {
        "a": 3,
        "b": 3,
    }
    for name in ("alpha", "beta"):
        for value in (-0.1, 1.1, float("nan")):
            with pytest.raises(ConfigError, match=f"{name}={value}"):
                allocate_vocabulary(many, 12, **{name: value})


def test_weights_are_flattened_twice():
    weights = capacity_weights({"a": 10_000, "b": 100}, 0.7, 0.7)
    q = np.array([10_000.0, 100.0]) ** 0.7
    w = (q / q.sum()) ** 0.7
    assert list(weights.values()) == pytest.approx((w / w.sum()).tolist())


# ---------------------------------------------------------------- the model


def test_the_layout_is_that_of_train_vocab(made):
    folder, _, vocap, joint = made
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert (
        vocap.convert_tokens_to_ids(special)
        == joint.convert_tokens_to_ids(special)
        == [0, 1, 2, 3, 499]
    )
    assert len(vocap) == len(joint) == 500 and sorted(vocap.get_vocab().values()) == list(
        range(500)
    )
    assert state(folder / "vocap").keys() == state(folder / "joint").keys()
    assert tokenizer_hash(load_tokenizer(folder / "vocap")) == tokenizer_hash(vocap)
    for pair in (("Berlin", "Москва"), ("a <mask>", "")):
        shape = [
            [i if i < 3 or i == 499 else -1 for i in t(*pair)["input_ids"]] for t in (vocap, joint)
        ]
        assert [i for i in shape[0] if i >= 0] == [i for i in shape[1] if i >= 0]


def test_both_libraries_agree_and_text_comes_back(made):
    folder, streams, vocap, _ = made
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "vocap" / "sentencepiece.bpe.model")
    )
    for line in itertools.chain(*streams.values(), ["▁▁ a", "می\u200cخواهم", "👩\u200d👩", ""]):
        ids = vocap(line, add_special_tokens=False)["input_ids"]
        assert ids == [i + 1 if i else 3 for i in processor.encode(line)]
        assert 3 in ids or vocap.decode(ids) == " ".join(line.replace("▁", " ").split())


@pytest.mark.slow
def test_the_vocabulary_is_the_union_of_the_languages_own(made):
    folder, streams, vocap, _ = made
    capacities = train_capacities(streams, 500, folder / "work")
    sizes = allocate_vocabulary(capacities, 500)
    assert union(capacities, sizes) | {"<s>", "<pad>", "</s>", "<unk>", "<mask>"} == set(
        vocap.get_vocab()
    )
    for lang, c in capacities.items():
        # never less than the smallest model, characters included
        assert sizes[lang] >= c.sizes[0]
        characters = "".join(streams[lang]).replace(" ", "")
        # as ordered: 0.9995
        assert sum(x not in vocap.get_vocab() for x in characters) < 0.0006 * len(characters)


def test_the_division_is_returned_with_the_vocabulary(made):
    folder, streams, vocap, _ = made
    again = train_vocap(streams, 500, folder / "again", folder / "work")
    assert again.subwords == allocate_vocabulary(
        train_capacities(streams, 500, folder / "work"), 500
    )
    assert tokenizer_hash(again.tokenizer) == tokenizer_hash(vocap)


def test_viterbi_em_raises_the_probability_of_the_text(made):
    _, streams, _, _ = made
    pieces = dict.fromkeys(pieces_of(train_sentencepiece(streams["de"], 200)), -5.0)
    values = []
    for rounds in range(4):
        processor = sentencepiece.SentencePieceProcessor(
            model_proto=reestimated_model(pieces, streams["de"], rounds)
        )
        assert {processor.id_to_piece(i) for i in range(3, len(processor))} == set(pieces)
        values.append(
            sum(processor.get_score(i) for line in streams["de"] for i in processor.encode(line))
        )
    assert values[0] < values[1] <= values[2] <= values[3] + 1
    with pytest.raises(ConfigError, match="rounds=-1"):
        reestimated_model(pieces, streams["de"], -1)
    with pytest.raises(DataError, match="no subwords were given"):
        reestimated_model({}, streams["de"])


# ---------------------------------------------------------------- again, elsewhere, in parallel


def test_the_same_call_gives_the_same_bytes(made, tmp_path):
    folder, streams, _, _ = made
    train_vocap(streams, 500, tmp_path / "vocap", tmp_path / "work")
    assert state(tmp_path / "vocap") == state(folder / "vocap")
    for name, value in state(tmp_path / "work").items():
        assert value == (folder / "work" / name).read_bytes()


def test_two_processes_give_the_same_bytes(made, tmp_path):
    folder, streams, _, _ = made
    train_capacities(streams, 500, tmp_path, workers=2)
    assert state(tmp_path) == {
        name: (folder / "work" / name).read_bytes() for name in state(tmp_path)
    }
    lazy = {"de": Lines(lambda: ["a"])}
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        train_capacities(lazy, 100, tmp_path, workers=2)


def test_the_number_of_trainings_is_known_before(made, tmp_path):
    _, streams, _, _ = made
    train_capacities({"de": streams["de"], "ru": streams["ru"]}, 500, tmp_path)
    # the text of ru ends its ladder early
    assert 4 <= len(state(tmp_path)) <= ladder_trainings(500, 2)
    assert ladder_trainings(500_000, 100) == 1000


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_training_goes_on_where_it_was(made, tmp_path, workers):
    folder, streams, _, _ = made
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from test_vocap import text, train_vocap\n"
        "if __name__ == '__main__': train_vocap(text(), 500, sys.argv[2] + '/vocap', "
        "sys.argv[2] + '/work', workers=int(sys.argv[3]))"
    )
    words = [os.path.dirname(__file__), str(tmp_path), str(workers)]
    run = subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE)
    while run.poll() is None and len(list(tmp_path.glob("work/*.json"))) < 3:
        time.sleep(0.002)
    run.kill()
    run.communicate(timeout=60)  # ends once nothing writes to it: also the workers have ended
    there = {path: path.stat().st_mtime_ns for path in tmp_path.glob("work/[!.]*.json")}
    assert there and not (tmp_path / "vocap").exists()  # some rungs, and no half tokenizer
    train_vocap(streams, 500, tmp_path / "vocap", tmp_path / "work")
    assert state(tmp_path / "vocap") == state(folder / "vocap")
    assert {path: path.stat().st_mtime_ns for path in there} == there  # nothing was trained again


def test_other_text_and_settings_have_other_files(made, tmp_path):
    _, streams, _, _ = made

    def curve(**options):
        return capacity_curve(
            work=tmp_path,
            **{"lang": "hi", "stream": streams["hi"], "lines": 60, "smallest": 80, "largest": 90}
            | options,
        )

    first = curve()
    n = len(list(tmp_path.iterdir()))
    other = curve(stream=[*streams["hi"][:-1], "क"])
    assert len(list(tmp_path.iterdir())) == 2 * n and other != first
    curve(character_coverage=0.99)
    assert len(list(tmp_path.iterdir())) == 3 * n
    curve(max_sentences=50)
    assert len(list(tmp_path.iterdir())) == 4 * n and curve() == first
    paths = list(tmp_path.glob("hi-80-*"))
    written = json.loads(paths[0].read_text())
    for text in (
        "{",
        "[" * 10**5,
        '{"alp": -1.5}',
        '{"alp": -1.5, "pieces": [["a"]]}',
        '{"alp": NaN, "pieces": []}',
        json.dumps(written | {"alp": -1.5}),  # of the right form, with the checksum of another
    ):
        for path in paths:
            path.write_text(text)
        with pytest.raises(DataError, match="delete the file"):
            curve()


# ---------------------------------------------------------------- refusals and report


def test_a_language_with_too_little_text_is_named(made, tmp_path):
    _, streams, _, _ = made
    with pytest.raises(
        DataError, match=r"hi has text for (\d+) subwords.*to have 5000.*set smallest=\1,"
    ) as e:
        capacity_curve("hi", streams["hi"], 60, 5000, 6000, tmp_path)
    smallest = int(str(e.value).split("smallest=")[1].split(",")[0])
    assert capacity_curve("hi", streams["hi"], 60, smallest, 6000, tmp_path).sizes == (smallest,)
    with pytest.raises(DataError, match="no text in hi"):
        train_vocap({"de": ["a"], "hi": []}, 100, tmp_path / "x")
    with pytest.raises(DataError, match="no stream"):
        train_vocap({}, 100, tmp_path / "x")
    with pytest.raises(DataError, match="were counted"):
        train_vocap(streams, 500, tmp_path / "x", counts=AMOUNTS | {"de": 9})


def test_settings_are_checked_before_anything_is_trained(tmp_path):
    streams = {"de": ["ab"], "ru": ["вг"]}
    for options, words in (
        ({"alpha": 2}, "alpha=2"),
        ({"beta": -1}, "beta=-1"),
        ({"workers": 0}, "workers=0"),
        ({"smallest": 50, "largest": 5}, "a ladder needs"),
    ):
        with pytest.raises(ConfigError, match=words):
            train_vocap(streams, 100, tmp_path / "x", **options)
    once = {"de": ["ab"], "ru": (line for line in ["вг"])}
    # known counts spare the pass that would notice
    for counts in (None, {"de": 1, "ru": 1}):
        with pytest.raises(DataError, match="ru: a generator can be read only once"):
            train_vocap(once, 100, tmp_path / "x", counts=counts)
    with pytest.raises(ConfigError, match="a name has letters"):
        train_capacities({"../x": ["a"]}, 100, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="smallest models of all languages need"):
        train_vocap(streams, 8, tmp_path / "x", tmp_path / "w")
    assert not (tmp_path / "x").exists()


def test_the_comparison_has_a_row_for_each_language(made):
    _, streams, vocap, joint = made
    frame = compare_vocabularies({"joint": joint, "VoCap": vocap}, streams)
    assert list(frame.index) == list(AMOUNTS) and set(frame["ALP"]) == set(frame["coverage"]) == {
        "joint",
        "VoCap",
    }
    ids = [vocap(line, add_special_tokens=False)["input_ids"] for line in streams["ru"]]
    assert frame.loc["ru", ("ALP", "VoCap")] == pytest.approx(average_log_probability(ids))
    words = sum(len(line.split()) for line in streams["ru"])
    assert frame.loc["ru", ("pieces/word", "VoCap")] == pytest.approx(sum(map(len, ids)) / words)
    assert len(vocap_figure({"text that was read": frame}).axes) == 2
    with pytest.raises(
        ConfigError, match=r"tokenizers\['joint'\]='xlm-roberta-base' is not a tokenizer"
    ):
        compare_vocabularies({"joint": "xlm-roberta-base"}, streams)
    with pytest.raises(DataError, match="line 2 of the text of ru is None"):
        compare_vocabularies({"VoCap": vocap}, {"ru": ["а", None]})
