"Probes: malformed tasks, oracles (seqeval, scikit-learn, brute force), leaks, foreign models, determinism, fine-tuning"

import copy, itertools, random, warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.optimize
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from xlnb.base.core import CheckpointError, ConfigError, DataError
from xlnb.text.cldr import TAGS, names, split_of
from xlnb.encoder.encoder import Encoder, config_for
from xlnb.encoder.heads import EncoderForReplacedTokens
from xlnb.training.training import NonFiniteLoss
from xlnb.measures.probes import (
    BASELINES,
    L2,
    TASKS,
    Task,
    _answers,
    bilingual,
    cldr_tasks,
    entities,
    fine_tune,
    first_subwords,
    fit,
    leakage,
    linear_probe,
    measures,
    plot_transfer,
    probe_baselines,
    read_examples,
    read_states,
    scores_of,
    transfer_gap,
)
from xlnb.measures.retrieval import untrained, words

# said on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*examples in .* have more than")

LANGS = ("de", "ru", "zh")


@pytest.fixture(scope="module")
def tasks():
    return cldr_tasks(LANGS, train=60, test=40, seed=3)


# ---------------------------------------------------------------- tasks


TAG_ROW = ("Er lacht", ("Er", "lacht"), ("O", "B-X"))
PAIR_ROW = ("Er lacht", "Sie weint", "no")
SPAN_ROW = ("Wer?", "Er lacht", ("Er", "lacht"), (0, 0))
LABELS = {"tokens": ("O", "B-X"), "pairs": ("no", "yes"), "span": ()}


def one(kind, train, test=None, **more):
    return Task(
        "toy",
        kind,
        LABELS.get(kind, ()),
        {"de": {"train": [train], "test": [test or train]}},
        **more,
    )


WRONG = [
    (lambda: one("words", TAG_ROW), "kind='words' is not one of tokens, pairs, span"),
    (lambda: one("tokens", ("Er lacht", ("Er", "lacht"), ("O",))), "2 words with 1 tags"),
    (
        lambda: one("tokens", ("Er lacht", ("Er", "lacht"), ("O", "B-Y"))),
        "'B-Y' is not one of O, B-X",
    ),
    (lambda: one("tokens", ("Er lacht", ("Er", "lacht"))), "2 fields, tokens examples have 3"),
    (lambda: one("tokens", TAG_ROW, crossed=True), "only two can be crossed"),
    (lambda: one("pairs", ("a", "b", "maybe")), "'maybe' is not one of no, yes"),
    (lambda: one("pairs", PAIR_ROW, ("a", "b", 1)), "test 0: label=1 is not one of"),
    (
        lambda: one("span", ("Wer?", "Er lacht", ("Er", "lacht"), (1, 0))),
        "0 ≤ first ≤ last < words",
    ),
    (
        lambda: one("span", ("Wer?", "Er lacht", ("Er", "lacht"), (0, 2))),
        r"words \(0, 2\) of a text of 2",
    ),
    (lambda: one("span", ("Wer?", "Er lacht", (), (0, 0))), "of a text of 0"),
    (
        lambda: Task("toy", "pairs", ("no",), {"de": {"train": [PAIR_ROW], "test": [PAIR_ROW]}}),
        "two or more",
    ),
    (lambda: Task("toy", "pairs", LABELS["pairs"], {}), "no languages"),
    (
        lambda: Task("toy", "pairs", LABELS["pairs"], {"de": {"train": [PAIR_ROW], "test": []}}),
        "no test examples",
    ),
    (
        lambda: Task("toy", "pairs", LABELS["pairs"], {"de": {"test": [PAIR_ROW]}}),
        "no train examples in de",
    ),
    (
        lambda: Task(
            "toy",
            "pairs",
            LABELS["pairs"],
            {
                "de": {"train": [PAIR_ROW], "test": [PAIR_ROW]},
                "ru": {"train": [("a", "b", "yes")], "test": [PAIR_ROW]},
            },
            True,
        ),
        "not the same in de",
    ),
    (
        lambda: Task(
            "toy",
            "span",
            (),
            {
                "de": {"train": [SPAN_ROW], "test": [SPAN_ROW]},
                "ru": {"train": [SPAN_ROW] * 2, "test": [SPAN_ROW]},
            },
            True,
        ),
        r"\(1\) and ru \(2\)",
    ),
    (
        lambda: cldr_tasks("de,ru", tasks="tags,nli"),
        "task='nli' is not one of tags, entailment, paraphrase, span",
    ),
    (lambda: cldr_tasks("de,xx"), "language 'xx' is not one of the 113"),
    (lambda: cldr_tasks("de,de"), "twice"),
    (lambda: cldr_tasks("de", train=1), "train=1"),
    (lambda: cldr_tasks("de", test=0), "test=0"),
]


@pytest.mark.parametrize("make, message", WRONG, ids=[message for _, message in WRONG])
def test_a_task_that_cannot_be_learned_or_scored_is_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_examples_are_a_function_of_seed_and_index(tasks):
    assert cldr_tasks(LANGS, 60, 40, seed=3) == tasks
    longer = cldr_tasks(LANGS, 80, 50, seed=3)
    other = cldr_tasks(LANGS, 60, 40, seed=4)
    for name, lang in itertools.product(TASKS, LANGS):
        for split, n in (("train", 60), ("test", 40)):
            ours = tasks[name].examples[lang][split]
            assert (
                longer[name].examples[lang][split][:n] == ours != other[name].examples[lang][split]
            )
            assert len(ours) == n


def test_labels_are_balanced_and_no_digit_gives_them_away(tasks):
    for name, lang in itertools.product(("entailment", "paraphrase"), LANGS):
        for rows in tasks[name].examples[lang].values():
            assert sum(label == tasks[name].labels[0] for *_, label in rows) == len(rows) // 2
    texts = [
        text
        for task in tasks.values()
        for lang in LANGS
        for rows in task.examples[lang].values()
        for e in rows
        for text in (e[:1] if task.kind == "tokens" else e[:2])
    ]
    assert len(texts) == 7 * 3 * 100 and not any(c.isdigit() for text in texts for c in text)


def meaning_of(text, lang):
    "Kind and set of codes of a list, found again from its text: the names that are not part of a longer one in it."
    found = {}
    for kind, (code, name) in ((kind, item) for kind in TAGS for item in names(lang, kind).items()):
        start = -1
        while (start := text.find(name, start + 1)) >= 0:
            found[start, start + len(name)] = (kind, code)

    def inside(a):
        return any(b != a and b[0] <= a[0] and a[1] <= b[1] for b in found)

    kept = [meaning for place, meaning in found.items() if not inside(place)]
    return kept[0][0], frozenset(code for _, code in kept)


def test_no_meaning_of_the_test_occurs_in_training(tasks):
    "Independent of how examples are drawn: lists are parsed again from the text."
    for name, task in tasks.items():
        texts = {
            split: [
                text
                for e in task.examples["ru"][split]
                for text in (
                    e[:2] if task.kind == "pairs" else e[1:2] if task.kind == "span" else e[:1]
                )
            ]
            for split in ("train", "test")
        }
        meanings = {
            split: {meaning_of(text, "ru") for text in found} for split, found in texts.items()
        }
        assert not meanings["train"] & meanings["test"], name
        for split in meanings:
            for kind, parts in meanings[split]:
                assert split_of((kind, *parts)) == split, (name, kind, parts)


def test_leakage_counts_texts_in_any_order_and_words():
    rows = {
        "train": [("Rot und Blau", "Rot", "yes")],
        "test": [("Blau und Rot", "Blau, Gelb", "yes")],
    }
    task = Task("toy", "pairs", LABELS["pairs"], {"de": rows})
    assert leakage(task, "de", "de") == {"texts": 0.5, "words": 0.75}


def test_no_leak_between_scripts_and_none_of_texts(tasks):
    for task, a, b in itertools.product(tasks.values(), LANGS, LANGS):
        leak = leakage(task, a, b)
        assert leak["texts"] == 0 and (leak["words"] == 0 if a != b else leak["words"] > 0.3)


def test_crossed_examples_say_the_same(tasks):
    german = {name: (kind, code) for kind in TAGS for code, name in names("de", kind).items()}
    for (question, text, tokens, (i, j)), (own, *_) in zip(
        bilingual(tasks["span"], "de", "ru", "test"), tasks["span"].examples["ru"]["test"]
    ):
        kind, code = german[question]
        assert names("ru", kind)[code] == own and own in text
        assert own.startswith(tokens[i]) and own.endswith(tokens[j])
    for name in ("entailment", "paraphrase"):
        for (first, second, label), (de, ru) in zip(
            bilingual(tasks[name], "de", "ru", "test"),
            zip(*(tasks[name].examples[lang]["test"] for lang in ("de", "ru"))),
        ):
            assert (first, second, label) == (de[0], ru[1], ru[2]) and de[2] == ru[2]
            assert meaning_of(de[1], "de") == meaning_of(second, "ru")


def test_every_language_makes_every_task():
    "Fused words, no spaces, right to left, homonyms: nothing is refused, and words are found in their texts."
    langs = "am,ar,fa,he,hi,ja,km,ko,my,ta,th,vi,yue-Hans,zu"
    for task in cldr_tasks(langs, train=20, test=10).values():
        for lang, splits in task.examples.items():
            for e in splits["train"] if task.kind != "pairs" else []:
                text, own = (e[0], e[1]) if task.kind == "tokens" else (e[1], e[2])
                letters = [(i, i + 1) for i in range(len(text))]
                assert len(first_subwords(text, own, letters, range(len(text)))) == len(own)
            assert all(words(text) for e in splits["train"] for text in e[:1])


# ---------------------------------------------------------------- scores


def random_tags(rng, n, kinds="XY"):  # malformed sequences included
    return [rng.choice(["O", *(f"{b}-{k}" for b in "BI" for k in kinds)]) for _ in range(n)]


def test_entities_are_seqevals():
    seqeval = pytest.importorskip("seqeval.metrics", reason="needs seqeval")
    from seqeval.metrics.sequence_labeling import get_entities

    rng = random.Random(0)
    for _ in range(500):
        tags = random_tags(rng, rng.randrange(0, 9))
        assert entities(tags) == {(a, b, kind) for kind, a, b in get_entities(tags)}
    task = Task(
        "toy",
        "tokens",
        ("O", "B-X", "I-X", "B-Y", "I-Y"),
        {"de": {s: [("a", ("a",), ("O",))] for s in ("train", "test")}},
    )
    for _ in range(50):
        lengths = [rng.randrange(1, 9) for _ in range(20)]
        predicted, gold = ([random_tags(rng, n) for n in lengths] for _ in range(2))
        ours = scores_of(task, predicted, gold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ours["f1"] == pytest.approx(seqeval.f1_score(gold, predicted), abs=1e-12)
        assert ours["accuracy"] == pytest.approx(seqeval.accuracy_score(gold, predicted), abs=1e-12)
    assert measures(task) == ("f1", "accuracy")


def test_scores_of_pairs_and_parts_of_speech_are_scikit_learns():
    sklearn = pytest.importorskip("sklearn.metrics", reason="needs scikit-learn")
    rng = random.Random(1)
    pair = one("pairs", PAIR_ROW)
    noun = [("a", ("a",), ("NOUN",))]
    pos = Task("toy", "tokens", ("NOUN", "VERB", "ADJ"), {"de": {"train": noun, "test": noun}})
    draws = (
        (pair, lambda: rng.choice(pair.labels)),
        (pos, lambda: [rng.choice(pos.labels) for _ in range(3)]),
    )
    for task, draw in draws:
        for n in (1, 2, 30):
            predicted, gold = ([draw() for _ in range(n)] for _ in range(2))
            ours = scores_of(task, predicted, gold)
            flat = (gold, predicted) if task is pair else (sum(gold, []), sum(predicted, []))
            assert ours["accuracy"] == pytest.approx(sklearn.accuracy_score(*flat))
            assert ours["f1"] == pytest.approx(
                sklearn.f1_score(*flat, average="macro", zero_division=0)
            )
        assert measures(task) == ("accuracy", "f1")


def test_scores_of_spans_by_counting():
    task = one("span", SPAN_ROW)
    rng = random.Random(2)

    def draw():
        return tuple(sorted(rng.choices(range(6), k=2)))

    predicted, gold = ([draw() for _ in range(200)] for _ in range(2))
    f1 = []
    for (a, b), (c, d) in zip(predicted, gold):
        both = max(0, min(b, d) - max(a, c) + 1)
        precision = both / (b - a + 1)
        recall = both / (d - c + 1)
        f1.append(2 * precision * recall / (precision + recall) if both else 0)
    found = scores_of(task, predicted, gold)
    assert found["f1"] == pytest.approx(np.mean(f1))
    assert found["exact"] == np.mean([p == g for p, g in zip(predicted, gold)])
    with pytest.raises(DataError, match="199 answers to 200"):
        scores_of(task, predicted[1:], gold)


# ---------------------------------------------------------------- readout


@pytest.mark.parametrize("classes", [2, 4])
def test_readout_is_scikit_learns_logistic_regression(classes):
    linear = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 12))
    y = (x @ rng.standard_normal((12, classes)) + rng.standard_normal((300, classes))).argmax(1)
    weights = fit("tokens", torch.from_numpy(x), torch.from_numpy(y), [], classes, iterations=2000)
    # scikit-learn has one vector for two classes
    strength = 300 * L2 / (2 if classes == 2 else 1)
    oracle = linear.LogisticRegression(C=1 / strength, tol=1e-10, max_iter=5000).fit(x, y)
    ours = torch.softmax(torch.from_numpy(x) @ weights[:-1] + weights[-1], 1)
    # both stop by a tolerance of their own
    np.testing.assert_allclose(ours, oracle.predict_proba(x), atol=2e-3)


def test_readout_of_spans_finds_the_marked_words():
    "Start and end marked by a feature each: exact; and scores of one example do not depend on another's length."
    rng = np.random.default_rng(1)
    counts = rng.integers(2, 9, 100).tolist()
    targets = torch.tensor([sorted(rng.integers(0, n, 2)) for n in counts])
    starts = np.cumsum([0, *counts[:-1]])
    x = 0.1 * torch.from_numpy(rng.standard_normal((sum(counts), 5)))
    x[torch.from_numpy(starts) + targets[:, 0], 0] += 3
    x[torch.from_numpy(starts) + targets[:, 1], 1] += 3
    weights = fit("span", x, targets, counts, 2, l2=1e-3)
    scores = x @ weights[:-1]
    for n, start, gold in zip(counts, starts, targets):
        assert (scores[start : start + n].argmax(0) == gold).all()


def test_sparse_and_dense_features_learn_the_same():
    from scipy.sparse import csr_matrix

    x = np.random.default_rng(2).poisson(0.3, (80, 15)).astype(np.float32)
    y = torch.from_numpy((x[:, 0] > 0).astype(np.int64))
    dense, sparse = (fit("pairs", f, y, [], 2) for f in (torch.from_numpy(x), csr_matrix(x)))
    # the sums are taken in another order
    torch.testing.assert_close(dense, sparse, rtol=0, atol=1e-6)


# ---------------------------------------------------------------- models


SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")


def letter_tokenizer(texts, pair="<s> $A </s> $B </s>"):
    "One piece per letter."
    letters = sorted({c for text in texts for c in text if c != " "})
    inner = Tokenizer(models.WordLevel({s: i for i, s in enumerate([*SPECIAL, *letters])}, "<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("", "isolated")]
    )
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<unk>",
    )


@pytest.fixture(scope="module")
def tokenizer(tasks):
    texts = [
        text
        for task in tasks.values()
        for lang in LANGS
        for rows in task.examples[lang].values()
        for e in rows
        for text in (e[:1] if task.kind == "tokens" else e[:2])
    ]
    return letter_tokenizer(texts)


SMALL = dict(
    vocab_size=512, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
)
MODELS = {
    "encoder": lambda: Encoder(config_for("tiny", 512, max_position_embeddings=256)),
    "restarting": lambda: Encoder(
        config_for("tiny", 512, max_position_embeddings=256, restart_positions=True)
    ),
    "discriminator": lambda: EncoderForReplacedTokens(
        config_for("tiny", 512, max_position_embeddings=256)
    ),
    "xlm-r": lambda: XLMRobertaModel(
        XLMRobertaConfig(**SMALL, max_position_embeddings=258, pad_token_id=1)
    ),
    "bert": lambda: BertModel(BertConfig(**SMALL, max_position_embeddings=256, pad_token_id=1)),
}


def made(name):
    return untrained(MODELS[name](), seed=1)  # the same weights each time


@pytest.mark.parametrize("name", MODELS)
def test_states_are_those_of_one_example_at_a_time(name, tasks, tokenizer):
    "Batching, padding, cutting into ranges: against one plain call per example, positions and types written out."
    model = made(name).eval()
    tokenizer = copy.deepcopy(tokenizer)
    if name == "bert":
        tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    body = model.base_model
    rows = bilingual(tasks["span"], "de", "ru", "test")[:9]
    reading = read_examples("span", rows, tokenizer, model.config)
    states = read_states(reading, body, tokenizer, [0, 2], batch_size=4)
    at = 0
    for ids, second, ranges in zip(reading.ids, reading.second, reading.ranges):
        inputs = {"input_ids": torch.tensor([ids])}
        if name == "restarting":
            inputs["position_ids"] = torch.tensor(
                [[i if i < second - 1 else i - second + 1 for i in range(len(ids))]]
            )
        if name == "bert":
            inputs["token_type_ids"] = torch.tensor([[int(i >= second) for i in range(len(ids))]])
        with torch.no_grad():
            hidden = body(**inputs, output_hidden_states=True).hidden_states
        for start, end in ranges:
            for k, layer in enumerate((0, 2)):  # sums of float32 in another order
                torch.testing.assert_close(
                    states[k, at], hidden[layer][0, start:end].mean(0), rtol=0, atol=2e-5
                )
            at += 1
    assert at == states.shape[1]


@pytest.mark.parametrize("name", ["discriminator", "xlm-r", "bert"])
def test_probes_work_for_any_architecture(name, tasks, tokenizer):
    model = made(name).train()
    for task in tasks.values():
        rows = linear_probe(model, tokenizer, task, "de", layer=1)
        assert {(r["source"], r["target"]) for r in rows} == {("de", t) for t in LANGS} | {
            ("ru", "ru"),
            ("zh", "zh"),
        }
        assert all(0 <= r["score"] <= 1 and r["n"] == 40 and r["layer"] == 1 for r in rows)
    assert model.training  # as it was


def test_a_folder_is_as_good_as_a_model(tmp_path, tasks, tokenizer):
    model = made("discriminator")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    task = tasks["tags"]
    assert linear_probe(tmp_path, None, task, "de", 2) == linear_probe(
        model, tokenizer, task, "de", 2
    )
    with pytest.raises(CheckpointError, match="not a folder"):
        linear_probe(tmp_path / "none", None, task, "de")
    with pytest.raises(ConfigError, match="needs tokenizer="):
        linear_probe(model, None, task, "de")


def test_probes_repeat_to_the_last_digit(tasks, tokenizer):
    for name in ("tags", "span"):
        first, second = (
            linear_probe(made("xlm-r"), tokenizer, tasks[name], "ru") for _ in range(2)
        )
        assert first == second
        fewer = linear_probe(made("xlm-r"), tokenizer, tasks[name], "ru", 1, in_language=False)
        assert fewer == [r for r in first if r["source"] == "ru" and r["layer"] == 1]


def test_requests_that_cannot_be_met(tasks, tokenizer):
    model = made("encoder")
    with pytest.raises(ConfigError, match="source='fr' is not one of de, ru, zh"):
        probe_baselines(tasks["span"], "fr")
    with pytest.raises(ConfigError, match="layer=9"):
        linear_probe(model, tokenizer, tasks["span"], "de", 9)
    with pytest.raises(ConfigError, match="steps=0"):
        fine_tune(model, tokenizer, tasks["span"], "de", steps=0)
    with pytest.raises(NonFiniteLoss, match="lower learning_rate"):
        fine_tune(model, tokenizer, tasks["tags"], "de", steps=9, learning_rate=1e30)
    small = Encoder(config_for("tiny", 50))
    with pytest.raises(ConfigError, match="vocabulary of 50"):
        linear_probe(small, tokenizer, tasks["span"], "de")

    class Slow:
        is_fast = False
        all_special_ids = []
        pad_token_id = 1
        bos_token_id = 0
        eos_token_id = 2
        model_max_length = 64

        def __len__(self):
            return len(tokenizer)

        def __call__(self, *texts):
            raise AssertionError("must not be asked")

    with pytest.raises(ConfigError, match="keeps no offsets"):
        linear_probe(model, Slow(), tasks["span"], "de")
    with pytest.raises(ConfigError, match="tokenizer='bert' is not a tokenizer"):
        linear_probe(model, "bert", tasks["span"], "de")
    for use in (
        partial(linear_probe, model, tokenizer),
        partial(fine_tune, model, tokenizer),
        probe_baselines,
    ):
        with pytest.raises(
            ConfigError, match=r"task is a dict of tags, .*give one of them, like tasks\['tags'\]"
        ):
            use(tasks, "de")
    with pytest.raises(ConfigError, match="task='tags' is not a Task"):
        leakage("tags", "de", "ru")
    for probe in (linear_probe, fine_tune):
        with pytest.raises(ConfigError, match="batch_size=0"):
            probe(model, tokenizer, tasks["span"], "de", batch_size=0)
    broken = made("encoder")
    next(broken.layers[1].parameters()).data.fill_(torch.nan)
    with pytest.raises(DataError, match="NaN"):
        linear_probe(broken, tokenizer, tasks["tags"], "de")


@pytest.mark.parametrize(
    "call, error, says",
    [
        (
            lambda t: scores_of(t["tags"], ["O"], [["O"]]),
            DataError,
            "tags, example 0: 'O' is no answer: give a list",
        ),
        (lambda t: scores_of(t["tags"], [["O", "O"]], [["O"]]), DataError, "2 tags for 1 words"),
        (lambda t: scores_of(t["tags"], [["N"]], [["O"]]), DataError, r"\['N'\] is no answer"),
        (
            lambda t: scores_of(t["entailment"], [1], ["neutral"]),
            DataError,
            "1 is no answer: give one of neutral",
        ),
        (
            lambda t: scores_of(t["span"], [(0, 1)], [{"text": "a"}]),
            DataError,
            r"give \(first, last\) word",
        ),
        (lambda t: scores_of(t["span"], [], []), DataError, "nothing to score"),
        (lambda t: entities("BIO"), DataError, "tags='BIO': give a list of strings"),
        (lambda t: entities(["O", None]), DataError, "give a list of strings"),
        (
            lambda t: leakage(t["tags"], "de", "fr"),
            ConfigError,
            "target='fr' is not one of de, ru, zh",
        ),
        (
            lambda t: bilingual(t["tags"], "de", "de", "dev"),
            ConfigError,
            "split='dev' is not one of train, test",
        ),
        (lambda t: cldr_tasks("de,en", train="5"), ConfigError, "train='5': give a whole number"),
        (
            lambda t: Task("toy", "pairs", "ab", {"de": {}}),
            ConfigError,
            "toy has labels 'ab': give a tuple",
        ),
        (
            lambda t: Task("toy", "pairs", ("a", "b"), [1]),
            ConfigError,
            r"toy has examples \[1\]: give a dict",
        ),
        (
            lambda t: transfer_gap([{"task": "tags"}]),
            DataError,
            r"rows\[0\] lacks probe, system, layer",
        ),
        (lambda t: plot_transfer(None, "de"), DataError, "rows=None: give a list of rows"),
    ],
)
def test_wrong_types_are_named(call, error, says, tasks):
    with pytest.raises(error, match=says):
        call(tasks)


def test_a_readout_is_learned_by_one_thread(monkeypatch):
    before = torch.get_num_threads()
    seen = []
    minimize = scipy.optimize.minimize

    def watched(*args, **options):
        seen.append(torch.get_num_threads())
        return minimize(*args, **options)

    monkeypatch.setattr(scipy.optimize, "minimize", watched)
    try:
        torch.set_num_threads(2)
        fit("pairs", torch.eye(4), torch.tensor([0, 1, 0, 1]), [1] * 4, 2)
        assert seen == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_long_texts_are_cut_and_counted(tasks, tokenizer):
    model = Encoder(config_for("tiny", 512, max_position_embeddings=24))
    for name in ("tags", "entailment", "span"):
        with pytest.warns(UserWarning, match="examples in de have more than 24 tokens"):
            rows = linear_probe(model, tokenizer, tasks[name], "de", 0, in_language=False)
        assert len(rows) == 12 and all(np.isfinite(r["score"]) for r in rows)


def test_words_that_share_a_piece_follow_the_first():
    "A tokenizer that takes whole texts as one piece: the second word has no piece of its own."
    text = "ab cd"
    tokens = ("ab", "cd")
    assert first_subwords(text, tokens, [(0, 5)], [0]) == {0: 0}
    assert first_subwords(text, tokens, [(0, 0), (0, 3), (3, 5), (0, 0)], [1, 2]) == {0: 1, 1: 2}
    with pytest.raises(DataError, match="word 1 .'ab'. is not in"):
        first_subwords(text, ("cd", "ab"), [(0, 5)], [0])


# ---------------------------------------------------------------- what is learned


def test_untrained_transfers_nothing_between_scripts_but_learns_within_one(tasks, tokenizer):
    "The control of the whole method, by counting: de>zh near chance, de>de well above it."
    task = cldr_tasks("de,zh", train=300, test=300, tasks="paraphrase")["paraphrase"]
    rows = linear_probe(made("encoder"), tokenizer, task, "de", 0)
    score = {
        (r["source"], r["target"]): r["score"]
        for r in rows
        if r["metric"] == "accuracy" and not r["centred"]
    }
    assert abs(score["de", "zh"] - 0.5) < 0.09  # three standard errors of 300 coin tosses
    assert score["de", "de"] > 0.65 and score["zh", "zh"] > 0.6


def planted(n_train=120, n_test=80):
    "A sentence is 'ja' if it says good; each language has words of its own, and all of them in both splits."
    lexicon = {
        "de": ("gut", "schlecht", "Haus Baum See Weg"),
        "ru": ("добр", "плох", "дом лес мир путь"),
    }

    def rows(lang, n):
        good, bad, nouns = lexicon[lang]
        rng = random.Random(f"{lang} {n}")
        return [
            (
                " ".join(rng.choices(nouns.split(), k=3) + [good if i % 2 else bad]),
                rng.choice(nouns.split()),
                "ja" if i % 2 else "nein",
            )
            for i in range(n)
        ]

    return Task(
        "tone",
        "pairs",
        ("nein", "ja"),
        {lang: {"train": rows(lang, n_train), "test": rows(lang, n_test)} for lang in lexicon},
    )


@pytest.fixture(scope="module")
def planted_tokenizer():
    vocabulary = "gut schlecht Haus Baum See Weg добр плох дом лес мир путь".split()
    inner = Tokenizer(
        models.WordLevel({s: i for i, s in enumerate([*SPECIAL, *vocabulary])}, "<unk>")
    )
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
    )


@pytest.mark.slow
def test_fine_tuning_learns_an_easy_task_and_translations_with_equal_vectors_carry_it_over(
    planted_tokenizer,
):
    task = planted()
    model = untrained(Encoder(config_for("tiny", 20)), seed=1)

    def accuracy(rows):
        return {(r["source"], r["target"]): r["score"] for r in rows if r["metric"] == "accuracy"}

    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    tuned = fine_tune(model, planted_tokenizer, task, "de", steps=40)
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())
    # the most frequent label: 0.5
    assert accuracy(tuned)["de", "de"] > 0.95 and accuracy(tuned)["ru", "ru"] > 0.95
    assert fine_tune(model, planted_tokenizer, task, "de", steps=40) == tuned
    table = model.get_input_embeddings().weight.data
    table[[10, 11]] = table[[4, 5]]  # добр = gut, плох = schlecht
    carried = accuracy(linear_probe(model, planted_tokenizer, task, "de", 0, in_language=False))
    assert carried["de", "ru"] > 0.95


def test_baselines_on_a_planted_task():
    "The word decides: bags of words learn it, in the language of training alone."
    rows = probe_baselines(planted(), "de")
    score = {
        (r["system"], r["source"], r["target"]): r["score"]
        for r in rows
        if r["metric"] == "accuracy" and not r["centred"]
    }
    assert score["words", "de", "de"] == score["words", "ru", "ru"] == 1
    assert score["words", "de", "ru"] == score["majority", "de", "ru"] == 0.5
    assert {r["system"] for r in rows} == {*BASELINES}


def test_bag_of_words_learns_no_pair_task_and_strings_solve_it_within_a_language():
    tasks = cldr_tasks("de,ru", train=400, test=300, tasks=["entailment", "paraphrase", "span"])
    for name, chance in (("entailment", 0.5), ("paraphrase", 0.5), ("span", 0.25)):
        main = measures(tasks[name])[0]
        score = {
            (r["system"], r["source"], r["target"]): r["score"]
            for r in probe_baselines(tasks[name], "de")
            if r["metric"] == main and not r["centred"]
        }
        # three standard errors of 300
        for lang in ("de", "ru"):
            assert score["words", lang, lang] < chance + 0.09
        assert score["strings", "de", "de"] > 0.95 and score["strings", "ru", "ru"] > 0.95
        # crossed: no word is shared between the scripts
        assert score["strings", "de", "ru"] < chance + 0.09
        straight = probe_baselines(replace(tasks[name], crossed=False), "de")
        assert (
            min(r["score"] for r in straight if r["system"] == "strings" and r["metric"] == main)
            > 0.95
        )


# ---------------------------------------------------------------- rows


def row(source, target, score, **more):
    return {
        "task": "toy",
        "probe": "linear",
        "system": "model",
        "source": source,
        "target": target,
        "layer": 2,
        "centred": False,
        "metric": "accuracy",
        "score": score,
        "n": 10,
        **more,
    }


def test_gap_is_source_minus_mean_of_the_others():
    scores = (
        ("en", "en", 0.9),
        ("en", "de", 0.7),
        ("en", "ru", 0.5),
        ("de", "de", 0.8),
        ("ru", "ru", 0.7),
    )
    rows = [row(*score) for score in scores]
    (gap,) = transfer_gap(rows)
    assert (gap["score"], gap["others"], gap["gap"], gap["ceiling"]) == pytest.approx(
        (0.9, 0.6, 0.3, 0.75)
    )
    assert transfer_gap(rows[:4])[0]["ceiling"] is None and transfer_gap(rows[1:]) == []
    two_sources = rows + [row("ru", "de", 0.6), row("ru", "en", 0.2), row("en", "ru", 0.1, layer=1)]
    assert [(g["source"], round(g["gap"], 9)) for g in transfer_gap(two_sources)] == [
        ("en", 0.3),
        ("ru", 0.3),
    ]


def test_figure_needs_rows_of_its_source():
    rows = [row("en", "en", 0.9), row("en", "ru", 0.5), row("ru", "ru", 0.8)]
    fig, axes = plot_transfer(rows, "en")
    assert len(axes) == 1 and {round(p.get_height()) for p in axes[0].patches} == {90, 50, 80}
    with pytest.raises(ConfigError, match="layer=1 is not one of 2"):
        plot_transfer(rows, "en", 1)
    with pytest.raises(ConfigError, match="source='ru' is not one of en"):
        plot_transfer(rows, "ru")


def test_examples_are_normalised():
    tagged = ("Un cafe\u0301 \u00ad", ("Un", "cafe\u0301", "\u00ad"), ("O", "B-X", "O"))
    [example] = one("tokens", tagged).examples["de"]["test"]
    assert example == ("Un caf\u00e9 \u00ad", ["Un", "caf\u00e9", "\u00ad"], ("O", "B-X", "O"))
    [example] = one("pairs", ("cafe\u0301", "ca\u00adf\u00e9", "no")).examples["de"]["train"]
    assert example == ("caf\u00e9", "caf\u00e9", "no")
    [example] = one(
        "span", ("O\u00f9\u00ad?", "au cafe\u0301", ("au", "cafe\u0301"), (1, 1))
    ).examples["de"]["train"]
    assert example == ("O\u00f9?", "au caf\u00e9", ["au", "caf\u00e9"], (1, 1))


@pytest.mark.filterwarnings("ignore::xlnb.measures.probes.CutExamples")
@pytest.mark.parametrize("kind", ["tokens", "span"])
def test_nothing_is_found_in_words_that_were_cut_off(kind, tokenizer):
    words = ("a",) * 100
    text = " ".join(words)
    of_kind = {"tokens": (text, words, ("O",) * 100), "span": ("a", text, words, (0, 0))}
    example = of_kind[kind]
    labels = ("O", "B-X", "I-X") if kind == "tokens" else ()
    task = Task("t", kind, labels, {"en": {"train": [example], "test": [example]}})
    config = config_for("tiny", len(tokenizer), max_position_embeddings=64)
    reading = read_examples(kind, [example], tokenizer, config)
    last = reading.words[0][-1]
    assert reading.ends == [last + 1] and last < 99
    # the last word that was read is an entity, or where the answer starts and ends
    scores = torch.zeros(last + 1, 3 if kind == "tokens" else 2)
    scores[-1] = torch.tensor([0.0, 9.0, 0.0] if kind == "tokens" else [9.0, 9.0])
    [answer] = _answers(task, [example], reading.words, scores, reading.ends)
    found = entities(answer) if kind == "tokens" else answer
    assert found == ({(last, last, "X")} if kind == "tokens" else (last, last))
