"What the papers print for every task and how they fine-tuned for it, against their tables; measures of answers."
import csv

import pytest
from conftest import ROOT

from xlnb.core import ConfigError
from xlnb.downstream import BENCHMARKS, READ, TABLES, printed
from xlnb.task_sets import TASK_SETS

COLUMNS = ["paper", "model", "size", "setting", "lang", "metric", "value", "doubtful", "note", "variant"]
NOWHERE = {"squad1", "sib200", "cldr", "flores"} # no paper has a table of it


def of_file(place, *tasks):
    with open(ROOT / "data" / "papers" / f"{place}.csv", encoding="utf-8") as f:
        return [row for row in csv.DictReader(f) if row["task"] in tasks and row["block"] != "difference"]


def test_every_benchmark_names_sets_that_are_there():
    for benchmark in BENCHMARKS.values(): assert {benchmark.learned, benchmark.tested} <= TASK_SETS.keys()


def test_every_table_is_of_a_task_and_no_two_of_its_rows_are_alike():
    assert TABLES.keys() == {*BENCHMARKS, *READ} - NOWHERE
    for name in (*BENCHMARKS, *READ):
        rows = printed(name)
        assert [*rows.columns] == COLUMNS and rows.value.dtype == float and rows.doubtful.dtype == bool
        assert {*rows.paper} == {place.split("/")[0] for place in TABLES.get(name, "").split()}
        assert not rows.duplicated([c for c in COLUMNS if c not in ("value", "doubtful", "note")]).any()


@pytest.mark.parametrize("name, tables", [
    ("xnli", {"xylent/table11_xnli": "xnli", "metaxlm/table12_xnli": "xnli", "veco/table09_xnli": "xnli"}),
    ("paws-x", {"xylent/table10_pawsx": "pawsx", "metaxlm/table13_pawsx": "pawsx", "veco/table10_pawsx": "pawsx"}),
    ("rte", {"xylent/table03_glue_squad": "rte"}), ("squad2", {"xylent/table03_glue_squad": "squad2"}),
    ("cls", {"metaxlm/table02_amazon_reviews": "amazon_reviews"}),
    ("chemprot", {"xylent/table07_chemprot": "chemprot"}),
    ("ner", {"metaxlm/table15_ner": "ner", "veco/table13_ner": "ner", "static/table10_panx": "panx"}),
    ("pos", {"metaxlm/table14_pos": "pos", "veco/table12_pos": "pos", "static/table11_udpos": "udpos"}),
    ("tatoeba", {"xlme/table05_tatoeba": "tatoeba14 tatoeba36", "veco/table17_tatoeba": "tatoeba",
                 "static/table12_tatoeba": "tatoeba"}),
    ("word_alignment", {"xlme/table06_aer": "word_alignment"}), ("mining", {"veco/table11_bucc": "bucc"}),
    ("bli", {"static/table01_muse_summary": "muse_bli", "static/table05_muse_bli": "muse_bli"}),
    ("word_similarity", {"static/table06_semeval_crosslingual": "semeval2017_task2_cross_lingual",
                         "static/table07_semeval_monolingual": "semeval2017_task2_monolingual"})])
def test_scores_are_those_of_the_tables_and_of_no_other_task(name, tables):
    "Every row of the files in their order, and its marks."
    rows = [row for place, tasks in tables.items() for row in of_file(place, *tasks.split())]
    found = printed(name)
    assert rows and len(rows) == len(found)
    for row, own in zip(rows, found.itertuples()):
        assert (own.model, own.lang, own.metric, own.note) == (row["model"], row["lang"], row["metric"], row["note"])
        assert own.doubtful == (row["doubtful"] == "1")
        assert own.value == float(row["value"]) if row["value"] else own.value != own.value


@pytest.mark.parametrize("name, mark, langs", [
    ("xnli", "xylent-E10", {"vi", "ur"}), ("americasnli", "xylent-E5", {"avg"}),
    ("ner", "static-E1", {*"fa fi fr he hi hu id it ja jv".split()})])
def test_errata_stand_in_the_note(name, mark, langs):
    rows = printed(name)
    assert {*rows[rows.note.str.contains(f"{mark}\\b")].lang} == langs


def test_a_number_whose_digits_are_lost_is_nan_and_doubtful():
    rows = printed("tydiqa")
    lost = rows[rows.value.isna()]
    assert {*zip(lost.model, lost.lang)} == {("VECO_in", "ru"), ("VECO_out", "ko")} and lost.doubtful.all()


def test_what_is_no_task_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'paws-x'"): printed("pawsx")
