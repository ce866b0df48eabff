"Tasks of the papers on real files: gold scores 100, what is shifted by one scores what other implementations say."

import math, re, string, unicodedata, warnings

import pytest
import torch
from scipy import stats
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.scheme import IOB2
from sklearn import metrics

from xlnb.base.core import data_root
from xlnb.text.catalogue import dictionary
from xlnb.text.vectors import WordVectors
from xlnb.measures.downstream import BENCHMARKS
from xlnb.measures.finetuning import Span
from xlnb.measures.lexicon import translation_accuracy, word_similarity
from xlnb.measures.readouts import _mining_part, mining_f1, rated_pairs
from xlnb.measures.task_sets import TASK_SETS, read_task, task_languages

EXACT = 1e-9  # percent: the same sums in another order
SAMPLE = "ar ay de el en es fi hi ja ko quy ru sw th tr vi zh".split()  # languages
MOST = 1500  # examples of a language


@pytest.fixture(autouse=True)
def without_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def examples_of(
    name,
) -> dict:  # language → examples of the split that is reported, or of another that is there
    if data_root() is None:
        pytest.skip("XLNB_DATA is not set: no downstream sets")
    benchmark = BENCHMARKS[name]
    task = TASK_SETS[BENCHMARKS[name].tested]
    split = next(
        (split for split in (benchmark.test, *task.splits) if task_languages(task.name, split)),
        None,
    )
    if split is None:
        pytest.skip(f"XLNB_DATA has no files of {task.name}")
    there = [lang for lang in task_languages(task.name, split) if lang in SAMPLE]
    return {lang: read_task(task.name, lang, split)[:MOST] for lang in there} or pytest.skip(
        f"none of {SAMPLE} there"
    )


def gold(name, examples) -> list:  # what a network would have to answer
    kind = TASK_SETS[BENCHMARKS[name].tested].kind
    if kind == "question answering":
        return [Span(e.answers[0][0], 1.0) if e.answers else Span("", -1.0) for e in examples]
    if kind == "tagging":
        return [e.tags for e in examples]
    return [float(e.label) if kind == "regression" else e.label for e in examples]


def shifted(
    answers,
) -> list:  # by one example; tags by one word, since sentences have different lengths
    if not isinstance(answers[0], tuple) or isinstance(answers[0], Span):
        return answers[1:] + answers[:1]
    words = [tag for tags in answers for tag in tags]
    rest = iter(words[1:] + words[:1])
    return [tuple(next(rest) for _ in tags) for tags in answers]


# ---------------------------------------------------------------- labels, numbers, tags


def theirs(name, examples, answers) -> dict:
    "Measures of a task that has no texts for answers, by scikit-learn, scipy and seqeval."
    if name in ("pos", "ner"):
        rows = [list(e.tags) for e in examples], [*map(list, answers)]
        if name == "ner":
            return {
                "F1": seqeval_f1(*rows),
                "F1, strict": seqeval_f1(*rows, mode="strict", scheme=IOB2),
            }
        flat = ([tag for tags in side for tag in tags] for side in rows)
        return {"accuracy": metrics.accuracy_score(*flat), "F1 as published": seqeval_f1(*rows)}
    true = [e.label for e in examples]
    if name == "stsb":
        numbers = [*map(float, true)]
        return {
            "Pearson": stats.pearsonr(numbers, answers)[0],
            "Spearman": stats.spearmanr(numbers, answers)[0],
        }
    if name == "cola":
        return {"Matthews": metrics.matthews_corrcoef(true, answers)}
    if name == "chemprot":
        return {"micro-F1": metrics.f1_score(true, answers, average="micro")}
    both = {"F1": metrics.f1_score(true, answers, pos_label="1")} if name in ("mrpc", "qqp") else {}
    return {"accuracy": metrics.accuracy_score(true, answers)} | both


QA = [
    name for name in BENCHMARKS if TASK_SETS[BENCHMARKS[name].tested].kind == "question answering"
]


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if name not in QA])
def test_shifted_labels_and_tags_score_what_others_say(name):
    for lang, examples in examples_of(name).items():
        answers = shifted(gold(name, examples))
        ours = BENCHMARKS[name].score(examples, answers, lang)
        others = theirs(name, examples, answers)
        assert ours == {
            measure: pytest.approx(100 * score, abs=1e-6) for measure, score in others.items()
        }, lang
        assert max(ours.values()) < 100


# ---------------------------------------------------------------- answers, by their published
# definitions

# as in MLQA's script
ARTICLES = {
    "en": "a an the",
    "de": "ein eine einen einem eines einer der die das den dem des",
    "es": "un una unos unas el la los las",
    "vi": "của là cái chiếc những",
}


def words(text, lang, style) -> list[str]:
    "What SQuAD's and MLQA's definitions leave of an answer: lower case, no punctuation, no articles."
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    if style == "mlqa":
        text = "".join(c for c in text if unicodedata.category(c)[0] != "P")
    articles = ARTICLES.get(lang if style == "mlqa" else "en", "").split()
    # whole runs of letters
    text = "".join(" " if part in articles else part for part in re.split(r"(\w+)", text))
    if (style, lang) == ("mlqa", "ar"):
        text = " ".join(text.split("ال"))
    if (style, lang) == ("mlqa", "zh"):
        text = "".join(f" {c} " if "一" <= c <= "龥" else c for c in text)
    return text.split()


def shared(a, b) -> float:  # F1 of two bags of words, by striking out
    rest = list(b)
    common = 0
    for word in a:
        if word in rest:
            rest.remove(word)
            common += 1
    return 200 * common / (len(a) + len(b)) if common else 0.0


def by_hand(examples, texts, lang, style) -> list[tuple[float, float]]:  # of each question: F1, EM
    found = []
    for example, text in zip(examples, texts):
        own = words(text, lang, style)
        true = [words(answer, lang, style) for answer, _ in example.answers]
        if style == "squad2":
            true = [answer for answer in true if answer] or [[]]
        both_empty = 100.0 * (style == "squad2")
        f1 = max(shared(own, answer) if own or answer else both_empty for answer in true)
        found.append((f1, 100.0 * (own in true)))
    return found


def mean(rows) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows)]


def style_of(name):
    return name if name in ("mlqa", "squad2") else "squad"


@pytest.mark.parametrize("name", [name for name in QA if name != "squad2"])
def test_shifted_answers_score_what_the_definition_says(name):
    for lang, examples in examples_of(name).items():
        answers = shifted(gold(name, examples))
        found = BENCHMARKS[name].score(examples, answers, lang)
        said = [a.text for a in answers]
        wanted = mean(by_hand(examples, said, lang, style_of(name)))
        assert [found["F1"], found["EM"]] == pytest.approx(wanted, abs=EXACT) and found[
            "F1"
        ] < 50, lang
        if lang not in ("ar", "el", "th", "vi"):  # whose own reading is not that of MLQA
            assert found["F1 by language"] == pytest.approx(
                mean(by_hand(examples, said, lang, "mlqa"))[0], abs=EXACT
            )


def test_shifted_answers_and_silences_score_what_the_definition_says():
    "SQuAD 2.0: all thresholds between margins are tried on one half of the texts, the best is used on the other."
    limits = (math.inf, 0, -math.inf)
    for lang, examples in examples_of("squad2").items():
        answers = shifted(gold("squad2", examples))
        texts = {limit: [a.text if a.margin > limit else "" for a in answers] for limit in limits}
        scores = {limit: by_hand(examples, texts[limit], lang, "squad2") for limit in limits}
        number = {
            context: n for n, context in enumerate(dict.fromkeys(e.context for e in examples))
        }
        halves = [
            [n for n, e in enumerate(examples) if number[e.context] % 2 == half] for half in (0, 1)
        ]
        means = [
            {limit: mean([scores[limit][n] for n in half])[0] for limit in limits}
            for half in halves
        ]
        best = [max(limits, key=own.get) for own in means]  # of two that are equal the higher
        wanted = mean([scores[best[1 - half]][n] for half in (0, 1) for n in halves[half]])
        found = BENCHMARKS["squad2"].score(examples, answers, lang)
        assert [found["F1"], found["EM"]] == pytest.approx(wanted, abs=EXACT)
        assert found["F1, margin 0"] == pytest.approx(mean(scores[0])[0], abs=EXACT)


# ---------------------------------------------------------------- gold


@pytest.mark.parametrize("name", BENCHMARKS)
def test_gold_scores_100(name):
    """On every measure, but for answers of which SQuAD's and MLQA's definitions leave no word.

    Two of them share none, so that their F1 is 0: in the data that is 'una', the Spanish article, as a number."""
    for lang, examples in examples_of(name).items():
        scores = BENCHMARKS[name].score(examples, gold(name, examples), lang)
        empty = 0
        if name in QA and name != "squad2":
            empty = sum(not words(e.answers[0][0], lang, style_of(name)) for e in examples)
        wanted = dict.fromkeys(scores, 100) | (
            {"F1": 100 - 100 * empty / len(examples)} if empty else {}
        )
        assert scores == {
            measure: pytest.approx(score, abs=EXACT) for measure, score in wanted.items()
        }, lang
        assert empty <= 1


# ---------------------------------------------------------------- what is not learned


def real(read, *given):
    "A set that is there, or a skip."
    try:
        return read(*given)
    except FileNotFoundError as e:
        pytest.skip(str(e))


def test_mined_pairs_of_a_real_set():
    "Gold pairs score 100; of pairs that are one line off only such as repeat a sentence are right."
    _, gold = real(_mining_part, "belopsem", "oc,es", "train")
    left, right = zip(*sorted(gold))
    moved = {*zip(left, right[1:] + right[:1])}
    assert mining_f1([(1.0, *pair) for pair in gold], gold, 0.5) == pytest.approx(100)
    share = 200 * len(moved & gold) / (len(moved) + len(gold))
    assert (
        mining_f1([(1.0, *pair) for pair in moved], gold, 0.5) == pytest.approx(share) and share < 5
    )


@pytest.mark.parametrize("lang", ["de", "ru", "zh"])
def test_word_translation_by_a_real_dictionary(lang):
    "Vectors that are alike for one translation of each word score 100, those of the next word nothing."
    entries = dict(real(dictionary, lang, "en", "muse", "test"))
    entries = [*{b: (a, b) for a, b in entries.items()}.values()]  # one word a side
    words, others = zip(*entries)
    matrix = torch.nn.functional.normalize(
        torch.randn(len(words), 100, generator=torch.Generator().manual_seed(0))
    )
    first = WordVectors(words, matrix, lang)
    second = WordVectors(others, matrix, "en")

    def score(v):
        return translation_accuracy(entries, first, v)

    assert (found := score(second)).covered == {
        1: 1,
        5: 1,
        10: 1,
    } == found.overall and found.coverage == 1
    assert score(WordVectors(others, matrix.roll(1, 0), "en")).covered[1] == 0


@pytest.mark.parametrize("pair", [("de", "de"), ("en", "de"), ("es", "it")])
def test_rated_pairs_of_a_real_set(pair):
    "Cosines that are the ratings correlate perfectly, those of the next pair as scipy says."
    rated = real(rated_pairs, ",".join(dict.fromkeys(pair)))[pair]
    once = {}
    for a, b, rating in rated:  # no word of two pairs
        if a != b and not {a, b} & {word for entry in once for word in entry}:
            once[a, b] = rating / 4
    side = torch.eye(2 * len(once))

    def score(ratings):
        cosine = torch.tensor(ratings)[:, None]
        other = cosine * side[::2] + (1 - cosine**2).clamp_min(0).sqrt() * side[1::2]
        first = ([word for word, _ in once], side[::2])
        second = ([word for _, word in once], other)
        vectors = (
            WordVectors(words, matrix, lang) for (words, matrix), lang in zip((first, second), pair)
        )
        return word_similarity([(*entry, rating) for entry, rating in once.items()], *vectors)

    given = [*once.values()]
    assert score(given).harmonic == pytest.approx(1, abs=1e-6)
    moved = given[1:] + given[:1]
    found = score(given[1:] + given[:1])
    assert found.pearson == pytest.approx(stats.pearsonr(given, moved)[0], abs=1e-5)
    # what is rated alike has cosines that differ in their last bits
    assert found.spearman == pytest.approx(stats.spearmanr(given, moved)[0], abs=1e-2)
