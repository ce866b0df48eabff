"What the papers print for every task and how they fine-tuned for it, against their tables; measures of answers."

import csv
from types import SimpleNamespace

import pytest
from conftest import ROOT

from xlnb.base.core import ConfigError
from xlnb.measures import finetuning
from xlnb.measures.downstream import (
    BENCHMARKS,
    READ,
    RECIPES,
    TABLES,
    has_recipes,
    printed,
    printed_recipes,
)
from xlnb.measures.finetuning import Span
from xlnb.measures.scores import f1_scores
from xlnb.measures.task_sets import TASK_SETS, Question, Tagged

COLUMNS = [
    "paper",
    "model",
    "size",
    "setting",
    "lang",
    "metric",
    "value",
    "doubtful",
    "note",
    "variant",
]
NOWHERE = {"squad1", "sib200", "cldr", "flores"}  # no paper has a table of it


def of_file(place, *tasks):
    with open(ROOT / "data" / "papers" / f"{place}.csv", encoding="utf-8") as f:
        return [
            row
            for row in csv.DictReader(f)
            if row["task"] in tasks and row["block"] != "difference"
        ]


def test_every_benchmark_names_sets_that_are_there():
    for benchmark in BENCHMARKS.values():
        assert {benchmark.learned, benchmark.tested} <= TASK_SETS.keys()


def test_every_table_is_of_a_task_and_no_two_of_its_rows_are_alike():
    assert TABLES.keys() == {*BENCHMARKS, *READ} - NOWHERE
    for name in (*BENCHMARKS, *READ):
        rows = printed(name)
        assert (
            [*rows.columns] == COLUMNS and rows.value.dtype == float and rows.doubtful.dtype == bool
        )
        assert {*rows.paper} == {place.split("/")[0] for place in TABLES.get(name, "").split()}
        assert not rows.duplicated(
            [c for c in COLUMNS if c not in ("value", "doubtful", "note")]
        ).any()


@pytest.mark.parametrize(
    "name, tables",
    [
        (
            "xnli",
            {
                "xylent/table11_xnli": "xnli",
                "metaxlm/table12_xnli": "xnli",
                "veco/table09_xnli": "xnli",
            },
        ),
        (
            "paws-x",
            {
                "xylent/table10_pawsx": "pawsx",
                "metaxlm/table13_pawsx": "pawsx",
                "veco/table10_pawsx": "pawsx",
            },
        ),
        ("rte", {"xylent/table03_glue_squad": "rte"}),
        ("squad2", {"xylent/table03_glue_squad": "squad2"}),
        ("cls", {"metaxlm/table02_amazon_reviews": "amazon_reviews"}),
        ("chemprot", {"xylent/table07_chemprot": "chemprot"}),
        (
            "ner",
            {
                "metaxlm/table15_ner": "ner",
                "veco/table13_ner": "ner",
                "static/table10_panx": "panx",
            },
        ),
        (
            "pos",
            {
                "metaxlm/table14_pos": "pos",
                "veco/table12_pos": "pos",
                "static/table11_udpos": "udpos",
            },
        ),
        (
            "tatoeba",
            {
                "xlme/table05_tatoeba": "tatoeba14 tatoeba36",
                "veco/table17_tatoeba": "tatoeba",
                "static/table12_tatoeba": "tatoeba",
            },
        ),
        ("word_alignment", {"xlme/table06_aer": "word_alignment"}),
        ("mining", {"veco/table11_bucc": "bucc"}),
        ("bli", {"static/table01_muse_summary": "muse_bli", "static/table05_muse_bli": "muse_bli"}),
        (
            "word_similarity",
            {
                "static/table06_semeval_crosslingual": "semeval2017_task2_cross_lingual",
                "static/table07_semeval_monolingual": "semeval2017_task2_monolingual",
            },
        ),
    ],
)
def test_scores_are_those_of_the_tables_and_of_no_other_task(name, tables):
    "Every row of the files in their order, and its marks."
    rows = [row for place, tasks in tables.items() for row in of_file(place, *tasks.split())]
    found = printed(name)
    assert rows and len(rows) == len(found)
    for row, own in zip(rows, found.itertuples()):
        assert (own.model, own.lang, own.metric, own.note) == (
            row["model"],
            row["lang"],
            row["metric"],
            row["note"],
        )
        assert own.doubtful == (row["doubtful"] == "1")
        assert own.value == float(row["value"]) if row["value"] else own.value != own.value


def test_variants_say_what_they_are():
    "No row is told apart by a bare yes or none."
    assert [*printed("chemprot").variant] == ["", "continued training"] * 2
    assert not {"yes", "none"} & {variant for name in TABLES for variant in printed(name).variant}


@pytest.mark.parametrize(
    "name, mark, langs",
    [
        ("xnli", "xylent-E10", {"vi", "ur"}),
        ("americasnli", "xylent-E5", {"avg"}),
        ("ner", "static-E1", {*"fa fi fr he hi hu id it ja jv".split()}),
    ],
)
def test_errata_stand_in_the_note(name, mark, langs):
    rows = printed(name)
    assert {*rows[rows.note.str.contains(f"{mark}\\b")].lang} == langs


def test_a_number_whose_digits_are_lost_is_nan_and_doubtful():
    rows = printed("tydiqa")
    lost = rows[rows.value.isna()]
    assert {*zip(lost.model, lost.lang)} == {
        ("VECO_in", "ru"),
        ("VECO_out", "ko"),
    } and lost.doubtful.all()


def test_what_is_no_task_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'paws-x'"):
        printed("pawsx")


# the last learns from XNLI
GIVEN = ("pos", "ner", "xquad", "mlqa", "tydiqa", "xnli", "paws-x", "americasnli")


@pytest.mark.parametrize(
    "paper, counts",
    [
        (
            "xlme",
            {
                "pos": 9,
                "ner": 5,
                "xquad": 3,
                "mlqa": 9,
                "tydiqa": 9,
                "xnli": 4,
                "paws-x": 4,
                "americasnli": 4,
            },
        ),
        ("xylent", {"xquad": 3, "mlqa": 9, "tydiqa": 9, "xnli": 4, "paws-x": 4, "americasnli": 4}),
        ("metaxlm", dict.fromkeys((*GIVEN, "cls"), 1)),
        ("veco", dict.fromkeys(GIVEN, 45)),
        ("static", dict.fromkeys(("xquad", "tydiqa", "ner", "pos"), 1)),
    ],
)
def test_recipes_are_those_of_the_tables(paper, counts):
    grids = {task: printed_recipes(paper, task, 768) for task in counts}
    assert {task: len(grid) for task, grid in grids.items()} == counts and paper in RECIPES
    assert all(4e-6 < recipe.learning_rate < 5e-5 for grid in grids.values() for recipe in grid)
    assert {name for name in (*BENCHMARKS, *READ) if has_recipes(paper, name)} == counts.keys()
    with pytest.raises(ConfigError, match=f"recipes='{paper}': none for sib200, only for"):
        printed_recipes(paper, "sib200", 768)


def test_the_grid_of_veco_is_that_of_its_text_at_every_width_from_768_on():
    "Three lists, each with each; a narrower network has higher rates, a wider one the printed ones."
    by_width = {width: printed_recipes("veco", "xnli", width) for width in (768, 1024, 128)}
    points = {(r.learning_rate, r.epochs, r.batch_size) for r in by_width[1024]}
    assert points == {
        (rate, epochs, size)
        for rate in (5e-6, 8e-6, 1e-5, 2e-5, 3e-5)
        for epochs in (3, 5, 10)
        for size in (16, 32, 64)
    }
    assert by_width[768] == by_width[1024]
    pooled = printed_recipes("veco", "xnli", 1024, translated=True)
    assert {r.learning_rate for r in pooled} == {5e-6, 6e-6, 7e-6, 8e-6, 9e-6} and len(pooled) == 45
    assert printed_recipes("xlme", "xnli", 1024, translated=True) == printed_recipes(
        "xlme", "xnli", 1024
    )
    assert min(r.learning_rate for r in by_width[128]) == pytest.approx(5e-6 * 6**1.5)
    # not printed: ours
    assert {(r.warmup, r.weight_decay) for r in by_width[768]} == {(0.1, 0.0)}


def test_the_static_paper_has_the_values_of_the_scripts_of_xtreme():
    [reading], [tagging] = (
        printed_recipes("static", "xquad", 768),
        printed_recipes("static", "ner", 768),
    )

    def told(r):
        return (r.learning_rate, r.batch_size, r.epochs, r.warmup, r.weight_decay, r.max_length)

    assert told(reading) == (3e-5, 32, 3, 500, 1e-4, 384)
    assert told(tagging) == (2e-5, 32, 10, 0, 0, 128)


@pytest.mark.parametrize("name", ["xquad", "mlqa", "tydiqa", "squad1", "squad2"])
def test_answers_are_scored_as_published_and_by_language(name):
    "An Arabic article in the gold answer counts where articles are English only; MLQA drops it wherever it stands."
    examples = [Question("1", "?", "في القاهرة", (("القاهرة", 3),))]
    scores = BENCHMARKS[name].score(examples, [Span("قاهرة", 1.0)], "ar")
    assert [scores[m] for m in ("F1 by language", "EM by language")] == [100, 100]
    assert [scores[m] for m in ("F1", "EM")] == ([100, 100] if name == "mlqa" else [0, 0])


def test_accuracy_of_tags_is_their_micro_f1():
    gold = [("DET", "NOUN", "VERB"), ("NOUN", "X")]
    answers = [("DET", "VERB", "VERB"), ("NOUN", "NOUN")]
    examples = [Tagged(str(n), ("w",) * len(tags), tags) for n, tags in enumerate(gold)]

    def flat(rows):
        return [tag for tags in rows for tag in tags]

    micro = f1_scores(flat(gold), flat(answers))["micro"]
    assert BENCHMARKS["pos"].score(examples, answers, "de")["accuracy"] == pytest.approx(micro)


def test_static_is_fine_tuned_by_the_optimiser_of_xtremes_scripts():
    for task in ("xquad", "tydiqa", "ner", "pos"):
        assert {(own.beta2, own.epsilon) for own in printed_recipes("static", task, 768)} == {
            (0.999, 1e-8)
        }
    for paper in ("xlme", "metaxlm"):
        assert {(own.beta2, own.epsilon) for own in printed_recipes(paper, "xnli", 768)} == {
            (0.98, 1e-6)
        }
    batches = SimpleNamespace(per_epoch=10)
    [recipe] = printed_recipes("static", "ner", 768)
    config = finetuning._training_config(recipe, batches, SimpleNamespace(hidden_size=768), 0)
    assert (config.betas, config.eps) == ((0.9, 0.999), 1e-8)
