"Evaluation: from files of a set to one table, computed once; leakage, controls, and what is refused."

import json, os, random, re, shutil, signal, subprocess, sys, warnings
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import transformers
from conftest import write
from test_finetuning import fast
from warm import run_module

from xlnb.base.core import CheckpointError, ConfigError, DataError, paper_table, read_records
from xlnb.text.vocab import train_vocab
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.encoder.foreign import quietly
from xlnb.measures.downstream import printed_recipes, write_texts
from xlnb.measures.finetuning import FineTuned, FineTuning, Span, train_head
from xlnb.measures.task_sets import Labelled, Question, read_task
from xlnb import evaluation as E
from xlnb.measures import baselines, readouts, task_runs as T
from xlnb.measures.evaluation_settings import resolve, task_names
from xlnb.measures.score_tables import FAMILIES, beside_papers, family_table, latex, score_table
from xlnb.measures.retrieval import READING_FILES
from xlnb.measures.task_runs import (
    TaskRun,
    baseline_rows,
    leaked,
    learned_task,
    model_hash,
    requested_languages,
    scorable,
    sharing,
    split_fifth,
    untrained_folder,
)
from xlnb.evaluation import (
    Settings,
    compare,
    draw_heat_map,
    evaluate,
    recorded,
    scores_record,
)

pytestmark = pytest.mark.filterwarnings(  # said on purpose
    "ignore:xnli in .* of 30 tested",
    "ignore:cldr, model. one file",
    "ignore:.*malformed",
    "ignore:warmup=",
    "ignore:xnli. what was learned",
    "ignore:xnli, baselines",
)

WORDS = {
    "en": "dog cat house tree barks sleeps stands grows".split(),
    "de": "Hund Katze Haus Baum bellt schläft steht wächst".split(),
    "sw": "mbwa paka nyumba mti anabweka analala inasimama unakua".split(),
}
LABELS = ("entailment", "neutral", "contradiction")


def pairs(lang, split, count):
    "The same examples in every language: the label follows from the two words."
    rows = []
    for n in range(count):
        draw = random.Random(f"{split} {n}")
        subject = draw.randrange(4)
        verb = draw.randrange(4)
        label = LABELS[0 if verb == subject else 1 + (verb > subject)]
        words = WORDS[lang]
        premise = f"{words[subject]} {words[4 + subject]} {split} {n}"
        rows.append((premise, f"{words[subject]} {words[4 + verb]}", label))
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    "A folder of corpora with a small XNLI in three languages."
    root = tmp_path_factory.mktemp("data")
    for lang in WORDS:
        write(
            root / "xnli" / f"dev-{lang}.tsv",
            "".join("\t".join(row) + "\n" for row in pairs(lang, "dev", 60)),
        )
        write(
            root / "xnli" / f"test-{lang}.tsv",
            "".join("\t".join(row[:2]) + "\n" for row in pairs(lang, "test", 30)),
        )
    write(
        root / "xnli" / "test-labels.derived.txt",
        "".join(row[2] + "\n" for row in pairs("en", "test", 30)),
    )
    return root


@pytest.fixture(autouse=True)
def small_data(data, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(data))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    lines = {lang: [" ".join(row[:2]) for row in pairs(lang, "dev", 60)] for lang in WORDS}
    tokenizer = train_vocab(lines, 64, tmp_path_factory.mktemp("vocabulary"))
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    new_model(Encoder, config_for("tiny", len(tokenizer), **shape), 0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def settings(model, tmp_path_factory):
    return Settings(
        model, "xnli", train_split="dev", epochs=2, out=str(tmp_path_factory.mktemp("runs"))
    )


@pytest.fixture(scope="module")
def scores(settings, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLNB_DATA", str(data))
        return evaluate(settings)


def test_one_table_of_model_untrained_network_and_baselines(scores):
    table = score_table(scores, "xnli")
    assert [*table.index] == ["model", "untrained", "majority", "character n-grams"]
    assert [*table.columns] == [
        "mean",
        "others",
        "gap",
        "de",
        "en",
        "sw",
    ] and table.notna().all().all()
    row = table.loc["model"]
    assert row["mean"] == pytest.approx((row.de + row.en + row.sw) / 3)
    assert row.others == pytest.approx((row.de + row.sw) / 2) and row.gap == pytest.approx(
        row.en - row.others
    )
    # the tests are parallel, so is what is most frequent in them
    assert table.loc["majority"].nunique() <= 2
    assert (scores[scores.system == "model"].leaked == 0).all() and (scores.examples == 30).all()


def test_nothing_is_computed_twice_and_more_is_added(settings, scores):
    def seen():
        return {p: p.stat().st_mtime_ns for p in Path(settings.out).rglob("*") if p.is_file()}

    before = seen()
    again = evaluate(settings)
    assert seen() == before and again.equals(scores)
    more = evaluate(replace(settings, seeds=2))
    assert before.items() <= seen().items() and {*more.seed} == {0, 1}
    first = [
        rows[(rows.system == "model") & (rows.seed == 0)].score.tolist() for rows in (again, more)
    ]
    assert first[0] == first[1]


def test_what_trains_nothing_is_read_once_while_code_and_data_stay(
    settings, data, tmp_path, monkeypatch
):
    calls = []

    def rows(*where, **reading):
        calls.append(where)
        warnings.warn("one file is not there")
        return [readouts.row("cldr tags", "f1", "en", "de", np.float64(50), 3)]

    monkeypatch.setitem(
        E.READ,
        "cldr",
        (rows, lambda *where: [readouts.row("cldr tags", "f1", "en", "de", 10.0, 3)]),
    )
    given = Settings(settings.model, "cldr", out=str(tmp_path), controls=False)
    for _ in range(2):
        with pytest.warns(UserWarning, match="one file is not there"):
            found = evaluate(given)
        assert found.score.tolist() == [50] and len(calls) == 1
    evaluate(replace(given, langs="de"))
    (data / "new.txt").touch()
    evaluate(given)
    assert len(calls) == 3
    monkeypatch.setitem(E.READ, "cldr", (lambda *_, **__: 1 / 0, None))
    with pytest.raises(DataError, match="division by zero"):
        evaluate(replace(given, langs="en"))


@pytest.mark.filterwarnings("ignore:.*share a text")
@pytest.mark.parametrize(
    "error, said",
    [
        (DataError("no span in it"), "no span in it"),
        (ZeroDivisionError("division by zero"), "division by zero"),
    ],
)
def test_a_language_that_cannot_be_scored_loses_no_other(
    settings, scores, monkeypatch, error, said
):
    usual = E.BENCHMARKS["xnli"].score

    def score(examples, answers, lang):
        if lang == "de":
            raise error
        return usual(examples, answers, lang)

    monkeypatch.setitem(E.BENCHMARKS, "xnli", replace(E.BENCHMARKS["xnli"], score=score))
    with pytest.warns(UserWarning, match=f"xnli in de: {said}"):
        found = evaluate(replace(settings, controls=False))
    assert {*found.target} == {"en", "sw"}
    with pytest.warns(UserWarning, match=f"xnli, baselines in de: {said}"):
        rows = baseline_rows(TaskRun("xnli", settings))
    assert {r["target"] for r in rows} == {"en", "sw"}


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_a_task_that_fails_in_whatever_way_loses_no_other(settings, scores, monkeypatch):
    def fails(*_, **__):
        raise RuntimeError("out of memory")

    monkeypatch.setitem(E.READ, "cldr", (fails, fails))
    given = replace(settings, tasks="xnli,cldr", langs="sw")
    with pytest.warns(UserWarning, match="cldr: RuntimeError: out of memory"):
        found = evaluate(resolve(given))
    assert {*found.task} == {"xnli"} and {"model", "majority"} < {*found.system}


def test_baselines_of_another_split_have_another_name(settings, scores):
    ways = [settings, replace(settings, test_split="dev")]
    systems = {*recorded([scores_record(way, scores) for way in ways]).system}
    assert {"majority (train_split=dev)", "majority (train_split=dev, test_split=dev)"} < systems


def test_answers_that_others_decide_about_have_a_score_each():
    examples = [
        Question(str(n), "?", f"text {n // 2} Rom", (("Rom", 7),) * (n % 2)) for n in range(12)
    ]
    answers = [Span("Rom", margin) for margin in (1, 3, -2, 4, 2, 2, 0, 5, 1, 1, -1, 3)]
    ratios = E._ratios("squad2", examples, answers, "en")
    whole = E.BENCHMARKS["squad2"].score(examples, answers, "en")["F1"]
    assert ratios[:, 0].mean() == pytest.approx(whole)
    E._check_is_ratio(ratios, "squad2", examples, answers, "en")


def test_cut_examples_are_warned_of_once_for_a_task_and_a_system(settings, tmp_path, monkeypatch):
    # a network that takes 12 tokens
    for name in ("xlnb.measures.probes", "xlnb.measures.retrieval"):
        monkeypatch.setattr(f"{name}.longest_input", lambda *_: 12)
    given = Settings(settings.model, "cldr", "en,de", out=str(tmp_path), controls=False)
    with pytest.warns(UserWarning) as said:
        evaluate(given)
    cut = [str(w.message) for w in said if "cut" in str(w.message)]
    form = r"cldr, model: examples that have more than 12 tokens were cut, in en \(\d+ of \d+\), .*de \(\d+ of \d+\).*"
    assert len(cut) == 1 and re.fullmatch(form, cut[0]), cut


def test_tasks_that_learn_from_one_set_share_a_training(settings, tmp_path):
    given = replace(settings, out=str(tmp_path))
    tuned = [
        T.trained_head(TaskRun(name, given, settings.model), "en", 0)
        for name in ("xnli", "americasnli")
    ]
    assert tuned[0].folder == tuned[1].folder


def test_mlqa_is_tested_with_text_and_question_in_one_language(settings, monkeypatch):
    monkeypatch.setattr(T, "task_languages", lambda *_: ["de", "de-en", "en", "en-de"])
    assert T.tested_languages(TaskRun("mlqa", settings)) == ["de", "en"]
    assert T.tested_languages(TaskRun("mlqa", replace(settings, langs="en-de"))) == ["en-de"]


def test_a_test_that_was_learned_in_another_language_is_counted():
    english, german = (read_task("xnli", lang, "dev") for lang in ("en", "de"))
    assert leaked(english[:20], german, english) == 20 and leaked(english[:20], german, []) == 0
    assert leaked(english[:20], english, []) == 20


def test_a_fifth_is_kept_apart_by_the_first_text():
    examples = [
        Labelled(str(n), (f"premise {n // 3}", f"hypothesis {n}"), "neutral") for n in range(600)
    ]
    train, dev = split_fifth(examples)
    assert not {e.texts[0] for e in train} & {e.texts[0] for e in dev} and 80 < len(dev) < 160
    assert split_fifth(examples) == (train, dev)


def test_dev_of_all_languages_holds_no_translation_of_what_is_learned(settings):
    task = learned_task(TaskRun("xnli", replace(settings, select_on="all")), "en")
    own = learned_task(TaskRun("xnli", settings), "en")
    assert task.train == own.train and len(task.dev) == 3 * len(own.dev)
    assert own.dev == [e for e in task.dev if e in own.dev]
    assert not {e.id for e in task.train} & {e.id for e in task.dev}
    wrong = [e.label if e in own.dev else "none of them" for e in task.dev]
    # by the same answers, of one language and of three
    assert own.score(own.dev, [e.label for e in own.dev]) == 100
    assert task.score(task.dev, wrong) == pytest.approx(100 / 3)


def squad(
    lang, split, count, lost=()
):  # one article; of some questions the answer is not at its place
    words = WORDS[lang]
    paragraphs = []
    for n in range(count):
        text = f"{words[n % 4]} {words[4 + n % 4]} {split} {n}"
        answer = {"text": words[n % 4], "answer_start": 9 if n in lost else 0}
        paragraphs.append(
            {
                "context": text,
                "qas": [
                    {"id": f"{split}{n}", "question": f"{words[4 + n % 4]} ?", "answers": [answer]}
                ],
            }
        )
    return json.dumps({"data": [{"paragraphs": paragraphs}]}, ensure_ascii=False)


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_questions_are_learned_in_english_and_its_translations(model, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_DATA", str(tmp_path))
    write(tmp_path / "squad/train-v1.1.json", squad("en", "train", 40))
    write(
        tmp_path / "squad/translate-train/squad.translate.train.en-de.json",
        squad("de", "train", 40, lost=(1, 2)),
    )
    for lang in ("en", "de"):
        write(tmp_path / f"xquad/xquad.{lang}.json", squad(lang, "test", 6))
    given = resolve(
        Settings(
            model,
            "xquad",
            langs="en,de",
            source="en,de",
            epochs=1,
            controls=False,
            out=str(tmp_path / "out"),
        )
    )
    task = learned_task(TaskRun("xquad", given), "en,de")
    assert len(task.train) + len(task.dev) == 78  # two have lost their answer
    # no question chooses whose translation is learned
    assert not {e.id for e in task.train} & {e.id for e in task.dev}
    scores = evaluate(given)
    assert (
        {*scores.target} == {"en", "de"}
        and scores.source.unique() == ["en,de"]
        and (scores.examples == 6).all()
    )


@pytest.mark.filterwarnings("ignore:.*share a text")
def test_the_languages_of_a_paper(settings):
    veco = replace(settings, langs="veco")
    assert {"sw", "ur"} < {
        *requested_languages(TaskRun("xnli", veco))
    } and "ka" in requested_languages(TaskRun("ner", veco))
    # which is XNLI's
    assert "en" not in requested_languages(
        TaskRun("americasnli", replace(settings, langs="xylent"))
    )
    assert {*requested_languages(TaskRun("word_alignment", replace(settings, langs="xlme")))} == {
        "en",
        "de",
        "fr",
        "hi",
        "ro",
    }
    with pytest.raises(ConfigError, match="langs='veco': that paper prints no languages of cldr"):
        requested_languages(TaskRun("cldr", veco))
    with pytest.raises(ConfigError, match="langs='vecoo'.*or a paper: xlme, .*veco"):
        resolve(replace(settings, langs="vecoo"))
    # in the paper, and not among the files
    with pytest.warns(UserWarning, match="xnli has no test in ar, bg"):
        assert {*evaluate(resolve(veco)).target} == {"en", "de", "sw"}


def test_languages_of_learning_are_pooled(settings):
    task = learned_task(TaskRun("xnli", settings), "en,de")
    english = learned_task(TaskRun("xnli", settings), "en")
    assert task.train[: len(english.train)] == english.train and len(task.train) == 2 * len(
        english.train
    )
    assert task.dev[: len(english.dev)] == english.dev and len(task.dev) == 2 * len(english.dev)
    for given in ("en,de", "en,de,sw"):
        for chosen in ("", "all", "sw"):
            task = learned_task(TaskRun("xnli", replace(settings, select_on=chosen)), given)
            assert not {e.id for e in task.train} & {e.id for e in task.dev}  # of either language
    table = score_table(
        evaluate(replace(settings, source="en,de", controls=False, epochs=1)), "xnli"
    )
    row = table.loc["model"]
    assert row.others == row.sw and row.gap == pytest.approx((row.en + row.de) / 2 - row.sw)


def test_dev_chooses_among_the_recipes_of_a_paper(settings, monkeypatch):
    grid = printed_recipes("xlme", "xnli", 32)
    assert len(grid) == 4 and {recipe.epochs for recipe in grid} == {10}
    few = replace(settings, recipes="xlme", controls=False, seeds=2, out=settings.out + "-grid")
    trained = []
    original = T.train_recipe

    def noted(*given):
        trained.append((original(*given), given[4]))
        return trained[-1][0]

    monkeypatch.setattr(T, "train_recipe", noted)
    found = evaluate(few)
    best = max((t for t, seed in trained[:4]), key=lambda t: t.dev)
    chosen = [t.recipe for t, seed in trained if seed == 1]
    assert (
        chosen
        and {*chosen} == {best.recipe}
        and len({t.recipe.learning_rate for t, seed in trained}) == 4
    )
    by_seed = found[found.target == "sw"].score
    assert score_table(found, "xnli", aggregate="median").loc["model"].sw == pytest.approx(
        by_seed.median()
    )


def test_beside_translations_from_files(settings, model, data, tmp_path):
    "Two texts an example, a line for each; a network plugged in reads them, and another translation is another run."
    crossing = tmp_path / "crossing"
    shutil.copytree(model, crossing)
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    config = config_for("tiny", 64, **shape, cross_attention=True, restart_positions=True)
    new_model(Encoder, config, 0).save_pretrained(crossing)
    folder = tmp_path / "translated"
    for lang, split in (("en", "dev"), ("de", "test"), ("en", "test"), ("sw", "test")):
        written = write_texts("xnli", lang, split, folder)
        written.rename(str(written).replace(".source", ""))  # a translator that changes nothing
    plugged = replace(
        settings,
        model=str(crossing),
        controls=False,
        partner=str(folder),
        out=str(tmp_path / "out"),
    )
    first = evaluate(plugged)
    assert {*first.target} == {"de", "en", "sw"} and len([*(tmp_path / "out").iterdir()]) == 1
    (folder / "xnli-test-sw.txt").write_text("dog\n" * 60)
    second = evaluate(plugged)
    assert len([*(tmp_path / "out").glob("*/answers/test-sw-*")]) == 2 and first.target.equals(
        second.target
    )
    evaluate(replace(plugged, partner="self"))
    assert len([*(tmp_path / "out").iterdir()]) == 2
    (folder / "xnli-test-sw.txt").write_text("dog\n" * 59)
    with pytest.warns(UserWarning, match="59 lines for 60 texts"):
        evaluate(plugged)
    (folder / "xnli-dev-en.txt").unlink()
    with pytest.raises(DataError, match="no translations: write what is to be translated with"):
        evaluate(plugged)


def test_names_of_languages_are_ours_whatever_is_typed(settings, scores):
    loose = replace(settings, langs="en, DE,swa", source="EN", select_on="en , de")
    assert resolve(loose) == replace(
        settings, langs="en,de,sw", source="en", select_on="en,de", aggregate="mean"
    )


def test_where_dev_has_a_file_of_its_own_all_languages_have_to(
    data, settings, tmp_path, monkeypatch
):
    "A part of German train is a translation of what is learned in English."
    own = tmp_path / "data"
    shutil.copytree(data, own)
    for lang in ("en", "de"):
        shutil.copy(own / "xnli" / f"dev-{lang}.tsv", own / "xnli" / f"train-{lang}.tsv")
    for lang in ("de", "sw"):
        (own / "xnli" / f"dev-{lang}.tsv").unlink()
    monkeypatch.setenv("XLNB_DATA", str(own))
    here = replace(settings, train_split="")
    for wrong in (dict(source="en,de"), dict(select_on="de")):
        with pytest.raises(DataError, match="xnli, dev, 'de' is not there"):
            evaluate(replace(here, **wrong))
    assert (
        learned_task(TaskRun("xnli", replace(here, select_on="all")), "en").dev
        == learned_task(TaskRun("xnli", here), "en").dev
    )


def test_what_is_tested_does_not_choose(settings, data, tmp_path, monkeypatch):
    own = tmp_path / "data"
    shutil.copytree(data, own)
    shutil.copy(own / "xnli" / "dev-en.tsv", own / "xnli" / "train-en.tsv")
    dev = (own / "xnli" / "dev-en.tsv").read_text().splitlines(True)
    tests = (own / "xnli" / "test-en.tsv").read_text().splitlines()
    write(own / "xnli" / "dev-en.tsv", "".join(dev[:20]) + f"{tests[0]}\tneutral\n")
    monkeypatch.setenv("XLNB_DATA", str(own))
    assert len(learned_task(TaskRun("xnli", replace(settings, train_split="")), "en").dev) == 20
    write(own / "xnli" / "dev-en.tsv", f"{tests[0]}\tneutral\n")
    with pytest.raises(DataError, match="xnli, en: all dev examples are tested"):
        learned_task(TaskRun("xnli", replace(settings, train_split="")), "en")


def test_a_grid_chooses_when_all_of_it_is_finished(settings, tmp_path):
    with pytest.raises(DataError, match="0 of 4 recipes are finished: the same call resumes"):
        evaluate(
            replace(settings, recipes="xlme", controls=False, max_minutes=1e-5, out=str(tmp_path))
        )


def test_a_long_warm_up_becomes_a_tenth(model, tmp_path):
    examples = read_task("xnli", "en", "dev")
    task = learned_task(TaskRun("xnli", Settings(model, "xnli", train_split="dev")), "en")
    with pytest.warns(UserWarning, match="warmup=12500 steps in a training of .*: a tenth"):
        train_head(
            model,
            replace(task, train=examples[:8], dev=examples[:2]),
            FineTuning(1, warmup=12500),
            0,
            tmp_path,
        )


def test_what_was_learned_and_what_stopped_is_said(settings, data, tmp_path, monkeypatch):
    own = tmp_path / "data"
    shutil.copytree(data, own)
    shutil.copy(own / "xnli" / "test-en.tsv", own / "xnli" / "copy.tsv")
    rows = zip((own / "xnli" / "test-en.tsv").read_text().splitlines(), pairs("en", "test", 30))
    write(own / "xnli" / "train-en.tsv", "".join(f"{line}\t{row[2]}\n" for line, row in rows))
    monkeypatch.setenv("XLNB_DATA", str(own))
    here = replace(
        settings, train_split="", controls=False, langs="en,de", out=str(tmp_path / "out")
    )
    with pytest.warns(
        UserWarning, match="xnli in de: of 30 tested examples 30 are training examples"
    ):
        evaluate(here)
    with pytest.warns(UserWarning, match="xnli, model, seed 0: stopped at step"):
        evaluate(replace(here, max_minutes=1e-5, epochs=3))


def test_all_tasks_of_which_there_is_none_say_what_was_asked(settings):
    with pytest.raises(
        ConfigError,
        match="tasks='all' with recipes='metaxlm', source='en': no task has all of that",
    ):
        resolve(replace(settings, tasks="all", recipes="metaxlm", train_split=""))


def test_records_of_one_model_by_two_recipes_are_two_systems(settings, scores):
    ways = settings, replace(settings, epochs=3, recipes="metaxlm")
    rows = recorded([scores_record(way, scores) for way in ways])
    name = Path(settings.model).name
    assert {
        f"{name} (train_split=dev, epochs=2)",
        f"{name} (recipes=metaxlm, train_split=dev, epochs=3)",
    } <= {*rows.system}
    assert len(rows[rows.system.str.startswith("untrained")].system.unique()) == 2


def test_what_a_language_scores_by_its_own_labels_is_a_row(settings):
    table = score_table(
        evaluate(replace(settings, in_language=True, controls=False, langs="en,de")), "xnli"
    )
    assert [*table.index] == ["model", "model, learned in the language"]
    assert table.iloc[1].notna().sum() == 1 and table.iloc[1].notna().de


def test_a_language_that_cannot_be_read_does_not_lose_the_others(
    settings, data, tmp_path, monkeypatch
):
    broken = tmp_path / "data"
    shutil.copytree(data, broken)
    write(broken / "xnli" / "test-de.tsv", "only one column\n" * 30)
    monkeypatch.setenv("XLNB_DATA", str(broken))
    with pytest.warns(
        UserWarning, match=r"no test in fr: .*looked for .*xnli in de: .*test-de\.tsv"
    ):
        found = evaluate(replace(settings, controls=False, langs="de,en,fr,sw"))
    assert {*found.target} == {"en", "sw"}


@pytest.mark.parametrize("lang", ["de", "en"])
def test_one_bad_test_loses_neither_the_baselines_nor_the_other_languages(
    lang, settings, data, tmp_path, monkeypatch
):
    "The training language too, whose test tells what must not choose."
    broken = tmp_path / "data"
    shutil.copytree(data, broken)
    write(broken / "xnli" / f"test-{lang}.tsv", "only one column\n" * 30)
    monkeypatch.setenv("XLNB_DATA", str(broken))
    with pytest.warns(UserWarning, match=rf"xnli in {lang}: .*test-{lang}\.tsv"):
        found = evaluate(replace(settings, out=str(tmp_path / "out")))
    assert {*found.target} == {"de", "en", "sw"} - {lang}
    assert {*found.system} == {"model", "untrained", "majority", "character n-grams"}


def test_nothing_is_learned_for_a_test_that_is_not_there(settings, data, tmp_path, monkeypatch):
    bare = tmp_path / "data"
    shutil.copytree(data, bare)
    for path in (bare / "xnli").glob("test-*"):
        path.unlink()
    monkeypatch.setenv("XLNB_DATA", str(bare))
    monkeypatch.setattr(T, "train_head", lambda *_: pytest.fail("it trains"))
    with pytest.raises(DataError, match="xnli, test, .*looked for .*Licence of the set"):
        evaluate(replace(settings, out=str(tmp_path / "out")))


@pytest.mark.parametrize(
    "parts, kept",
    [
        ("generator", "generator"),
        ("generator discriminator", "discriminator"),
        ("generator selected", "selected"),
    ],
)
def test_of_a_run_the_network_is_evaluated_that_its_paper_keeps(
    parts, kept, settings, model, tmp_path
):
    for part in parts.split():
        shutil.copytree(model, tmp_path / "a-run" / part)
    found = resolve(replace(settings, model=str(tmp_path / "a-run")))
    assert Path(found.model).name == kept and found.title == "a-run"
    assert resolve(replace(settings, model=found.model)) == found


def test_a_model_of_the_hub_keeps_its_name(settings, model, monkeypatch):
    copies = {"some-lab/some-model": str(model)}  # what is in the hub's cache

    def cached(name, **_):
        if name not in copies:
            raise OSError("not here")
        return copies[name]

    monkeypatch.setattr("huggingface_hub.snapshot_download", cached)
    given = replace(settings, model="some-lab/some-model")
    found = resolve(given)
    assert (found.title, Path(found.model)) == ("some-lab/some-model", Path(model))
    assert resolve(found) == found


def test_a_hub_that_is_not_reached_is_asked_once(settings, monkeypatch):
    asked = []

    def ask(self, name, timeout):
        asked.append(name)
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", ask)
    given = replace(settings, model="some-lab/some-model")
    with pytest.raises(
        CheckpointError, match="no complete copy of it, and the hub cannot be reach"
    ):
        resolve(given)
    assert asked == ["some-lab/some-model"]
    with pytest.raises(ConfigError, match="task='xnlii' is not one of"):
        resolve(replace(given, tasks="xnlii"))
    assert len(asked) == 1  # invalid settings raise first


def test_a_model_in_the_home_folder_is_read(settings, model, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(model).parent))
    assert resolve(replace(settings, model=f"~/{Path(model).name}")).model == str(model)


def test_seeds_and_dev_are_taken_as_the_paper_of_the_recipe_does(settings):
    assert (
        resolve(replace(settings, recipes="xylent")).aggregate == "median"
        and resolve(settings).aggregate == "mean"
    )
    assert resolve(replace(settings, recipes="xylent", aggregate="mean")).aggregate == "mean"


def test_means_of_families_leave_out_what_was_learned():
    rows = [
        readouts.row("xnli", "accuracy", "en", lang, score, 9) | {"system": "model", "seed": 0}
        for lang, score in dict(en=90, de=60, nl=40, ru=30, xx=10).items()
    ]
    table = family_table(pd.DataFrame(rows), "xnli")
    assert table.loc["model"].to_dict() == {"Germanic": 50, "Slavic": 30, "other": 10}
    printed_families = {
        r["lang"]: r["family"].removeprefix("IE: ")
        for r in paper_table("static", "table04_languages")
    }
    renamed = {"vi": "Austroasiatic"}  # printed as its branch, Mon-Khmer
    assert {lang: FAMILIES[lang] for lang in printed_families} == printed_families | renamed


def test_baselines_of_questions_and_of_numbers_know_what_texts_share():
    text = "Berlin is large. The river Spree flows there! Nobody knows why."
    asked = SimpleNamespace(question="Which river flows in it?", context=text)
    assert baselines.nearest_sentence([], [asked])[0].text == "The river Spree flows there!"
    two = [
        SimpleNamespace(texts=texts) for texts in (("a b c", "A b c"), ("a b", "b c"), ("a", "b"))
    ]
    assert baselines.shared_words([], two) == [1, 1 / 3, 0]


def test_each_training_is_announced_and_ctrl_c_keeps_it(
    settings, data, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    arguments = [
        "--model",
        settings.model,
        "--name",
        "mine",
        "--tasks",
        "xnli",
        "--train_split",
        "dev",
        "--langs",
        "en",
        "--epochs",
        "3",
        "--controls",
        "false",
        "--out",
        str(tmp_path),
    ]
    original = FineTuned.forward

    def interrupted(self, batch, generator=None):
        signal.raise_signal(signal.SIGINT)
        return original(self, batch, generator)

    # a shell's background jobs ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with monkeypatch.context() as patch:
        patch.setattr(FineTuned, "forward", interrupted)
        with pytest.raises(SystemExit) as end:
            E.main(arguments)
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    said = capsys.readouterr().err
    assert end.value.code == 130 and said.endswith("xlnb: stopped; the same call resumes\n")
    assert re.search(
        r"^xnli, mine, learned in en, seed 0: \d+ steps, 30 minutes at most", said, re.MULTILINE
    )
    assert len([*tmp_path.glob("xnli-*/checkpoint-00000001")]) == 1
    E.main(arguments)
    [log] = tmp_path.glob("xnli-*/log.jsonl")
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [*range(3 * 2)]


def test_the_paired_difference_of_a_model_with_itself_is_nothing(settings, scores):
    difference = compare(settings, settings, "xnli", "sw")
    assert difference.difference == 0


@pytest.fixture(scope="module")
def another(settings, tmp_path_factory):
    "The same architecture with other weights, under the same folder's name."
    folder = tmp_path_factory.mktemp("another") / Path(settings.model).name
    shutil.copytree(untrained_folder(settings.model, settings, 7), folder)
    return str(folder)


def test_two_models_stand_in_one_table_with_intervals(
    settings, scores, another, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    given = dict(
        model=settings.model,
        against=another,
        tasks="xnli",
        langs="en,sw",
        train_split="dev",
        epochs=2,
        seeds=2,
        out=settings.out,
    )
    trained = E.trained_head
    calls = []

    def noted(*arguments):
        calls.append(arguments)
        return trained(*arguments)

    for module in (E, T):
        monkeypatch.setattr(module, "trained_head", noted)
    E.main([text for name, value in given.items() for text in (f"--{name}", str(value))])
    said = capsys.readouterr().out
    first = Path(settings.model).name
    second = f"{Path(another).name} [{model_hash(another)[:4]}]"
    for name in (first, second):
        assert len(re.findall(rf"^{re.escape(name)} +[0-9]", said, re.MULTILINE)) == 1
    assert f"{first} minus {second}, points" in said
    # two seeds of model, untrained and other, then of both: not once a language
    assert len(calls) == 5 * 2
    ahead = pd.read_csv(next(Path(settings.out).glob("*-behind-*.csv"))).set_index("target")
    assert [*ahead.index] == ["en", "sw"] and {*ahead.task} == {"xnli"}
    both = {
        r["parameters"]["model"]: pd.DataFrame(r["scores"]) for r in read_records("08_evaluation")
    }
    assert {*both} == {first, second}

    def of(name, lang):
        return both[name][(both[name].system == "model") & (both[name].target == lang)].score.mean()

    for lang in ahead.index:  # heads of all seeds, as the tables have them
        assert ahead.difference[lang] == pytest.approx(of(first, lang) - of(second, lang))
        assert ahead["from"][lang] <= ahead.difference[lang] <= ahead["to"][lang]


def test_retrieval_of_two_models_has_intervals_and_alignment_has_none(
    settings, another, data, tmp_path, monkeypatch
):
    for code, lang in {"eng_Latn": "en", "deu_Latn": "de", "swh_Latn": "sw"}.items():
        lines = "".join(f"{row[0]}\n" for row in pairs(lang, "dev", 40))
        write(tmp_path / "data" / f"flores200_dataset/devtest/{code}.devtest", lines)
    monkeypatch.setenv("XLNB_DATA", str(tmp_path / "data"))
    first = resolve(
        replace(
            settings,
            tasks="flores",
            langs="de,sw",
            controls=False,
            train_split="",
            epochs=0,
            against=another,
            out=str(tmp_path / "out"),
        )
    )
    second = E.other_model(first)
    both = map(evaluate, (first, second))
    ours, theirs = (own[own.measure == "accuracy@1"].set_index("target").score for own in both)

    def again(*_, **__):
        pytest.fail("read twice")  # all that is compared was kept

    monkeypatch.setitem(E.READ, "flores", (again, None))
    ahead = E.differences(first, second, {"flores": "accuracy@1"}).loc["flores", "accuracy@1"]
    assert [*ahead.index] == [*ours.index] == ["de-en", "en-sw"]
    for pair, own in ahead.iterrows():
        assert (
            own.difference == pytest.approx(ours[pair] - theirs[pair])
            and own["from"] <= own.difference <= own["to"]
        )
        assert compare(first, second, "flores", pair).difference == own.difference
    with pytest.raises(ConfigError, match="target='de'"):
        compare(first, second, "flores", "de")
    with pytest.raises(DataError, match="xnli, test, 'de' is not there: looked for"):
        compare(first, second, "xnli", "de")
    with pytest.raises(ConfigError, match="task='bli'"):
        compare(first, second, "bli", "de-en")
    with pytest.warns(
        UserWarning, match="no interval .* cldr: no scores of single examples are stored"
    ):
        assert not len(
            E.differences(replace(first, tasks="cldr"), replace(second, tasks="cldr"), {})
        )


def test_warnings_of_the_other_model_name_it(settings, scores, another, tmp_path, monkeypatch):
    monkeypatch.setattr(E, "evaluate", lambda settings: warnings.warn("xnli, model: cut") or scores)
    monkeypatch.setattr(E, "differences", lambda *_: pd.DataFrame())
    monkeypatch.setattr(E, "save_scores", lambda *_: tmp_path / "kept")
    first = resolve(replace(settings, against=another))
    with pytest.warns(
        UserWarning, match=rf"^{re.escape(E.other_model(first).title)}: xnli, model: cut$"
    ):
        E.beside_other_model(first, scores)


def test_another_model_that_is_not_there_is_said_before_anything_is_learned(settings):
    with pytest.raises(ConfigError, match="nowhere is not a folder here"):
        resolve(replace(settings, against="nowhere"))


@pytest.mark.parametrize(
    "error, said",
    [
        (ConfigError("no such code"), "no such code"),
        (FileNotFoundError("no file"), "no file"),
        (ArithmeticError("nan"), "ArithmeticError: nan"),
    ],
)
def test_what_ends_one_task_does_not_end_the_others(error, said, settings, scores, monkeypatch):
    def read(*_, **__):
        raise error

    monkeypatch.setitem(E.READ, "tatoeba", (read, read))
    with pytest.warns(UserWarning, match=f"tatoeba: {said}"):
        found = evaluate(replace(settings, tasks="tatoeba, xnli", controls=False, langs="en"))
    assert {*found.task} == {"xnli"}


def test_measures_of_a_whole_test_are_not_compared_by_example():
    examples = [SimpleNamespace(label=label) for label in ("0", "1", "1", "0")]
    with pytest.raises(DataError, match="cola: .* of the whole test"):
        E._check_is_ratio(np.array([[0.0, 1.0]] * 4), "cola", examples, ["0", "1", "1", "1"], "en")


@pytest.mark.parametrize(
    "task, gold, answers",
    [
        ("pos", [["NOUN", "VERB"], ["NOUN"]], [["NOUN", "NOUN"], ["NOUN"]]),
        (
            "ner",
            [["B-PER", "I-PER", "O"], ["O", "B-LOC"]],
            [["B-PER", "O", "O"], ["B-LOC", "B-LOC"]],
        ),
        ("xnli", ["neutral", "entailment"], ["neutral", "neutral"]),
    ],
)
def test_what_is_compared_is_the_measure_of_the_table(task, gold, answers):
    "Not the mean over sentences of the words that are right, which is another number."
    name = "label" if task == "xnli" else "tags"
    examples = [SimpleNamespace(**{name: own}) for own in gold]
    E._check_is_ratio(
        found := E._ratios(task, examples, answers, "en"), task, examples, answers, "en"
    )
    above, below = found.sum(0)
    assert above / below == pytest.approx(
        next(iter(E.BENCHMARKS[task].score(examples, answers, "en").values()))
    )


def test_a_sentence_in_another_place_is_no_example_that_was_learned():
    learned = [Labelled("1", ("a dog", "a cat"), "x")]
    tested = [
        Labelled(str(n), texts, "x")
        for n, texts in enumerate([("a cat", "a dog"), ("a dog", "a cat"), ("no", "yes")])
    ]
    assert (leaked(learned, tested, []), sharing(learned, tested, [])) == (1, 2)


def test_names_of_other_tools_are_known(settings):
    assert task_names(replace(settings, tasks="panx, udpos,pawsx,xnli")) == [
        "ner",
        "pos",
        "paws-x",
        "xnli",
    ]
    with pytest.raises(ConfigError, match="recipes='xlmee' is not one of .*did you mean 'xlme'"):
        resolve(replace(settings, tasks="cldr", recipes="xlmee"))


def test_dev_of_a_parallel_set_that_is_learned_holds_no_translation(settings):
    "AmericasNLI learns from XNLI, whose examples say the same in all languages."
    train, dev = T.train_and_dev(
        TaskRun("americasnli", replace(settings, tasks="americasnli")), ["en", "de"]
    )
    ids = [{e.id for own in part.values() for e in own} for part in (train, dev)]
    assert all(ids) and not ids[0] & ids[1]


def test_splits_of_two_sets_are_two_splits(settings):
    given = replace(settings, tasks="mlqa", train_split="dev", test_split="dev")
    assert resolve(given).tasks == "mlqa"  # SQuAD's dev and MLQA's
    with pytest.raises(ConfigError, match="xnli learns from 'dev', and is tested on it"):
        resolve(replace(given, tasks="xnli"))


def test_records_tell_networks_of_one_name_and_runs_that_stopped_apart(settings, scores):
    first = scores_record(settings, scores)
    other = {**first, "parameters": {**first["parameters"], "model_hash": "bbbbbbbbbbbb"}}
    names = {*recorded([first, other]).system}
    ends = {name[-6:] for name in names if name.startswith(settings.title)}
    assert ends == {f"[{h}]" for h in (first["parameters"]["model_hash"][:4], "bbbb")}
    assert first["run"]["finished"]
    assert not scores_record(settings, scores.assign(stopped="stopped at step 3 of 9"))["run"][
        "finished"
    ]
    assert Settings("runs/xlm_e-tiny-0123/generator").title == "xlm_e-tiny-0123"


def rows_of(task, system, scores, **facts):
    "Rows as of `evaluate`; facts: a value for all targets, or one for each."

    def of(value, target):
        return value[target] if isinstance(value, dict) else value

    return [
        readouts.row(
            task,
            "accuracy",
            "",
            target,
            score,
            **{"seed": 0, "system": system, "examples": 500}
            | {k: of(v, target) for k, v in facts.items()},
        )
        for target, score in scores.items()
    ]


def printed(paper, table, **wanted):  # language → number
    return {
        row["lang"]: float(row["value"])
        for row in paper_table(paper, table)
        if all(row[k] == v for k, v in wanted.items())
    }


@pytest.mark.parametrize(
    "task, table, measure, metric",
    [
        ("xquad", "table14_xquad", "EM", "em"),
        ("mlqa", "table12_mlqa", "EM", "em"),
        ("tydiqa", "table13_tydiqa", "EM", "em"),
        ("xnli", "table11_xnli", "accuracy", "acc"),
        ("pawsx", "table10_pawsx", "accuracy", "acc"),
    ],
)
def test_gaps_in_the_table_are_those_that_xy_lent_prints(task, table, measure, metric):
    "What `score_table` makes of the paper's own scores; rounding as in `test_scores`."
    own = dict(model="XY-LENT", size="base")
    [gap] = [
        float(row["value"])
        for row in paper_table("xylent", "table04_transfer_gap")
        if {**own, "task": task}.items() <= row.items()
    ]
    scores = printed("xylent", table, **own, setting="zero_shot", metric=metric, variant="CCMatrix")
    rows = [
        readouts.row(task, measure, "en", lang, score, seed=0, system="XY-LENT", examples=1)
        for lang, score in scores.items()
        if lang != "avg"
    ]
    assert abs(score_table(pd.DataFrame(rows), task).loc["XY-LENT", "gap"] - gap) <= 0.15 + 1e-9


@pytest.mark.parametrize(
    "table, metric", [("table09_xquad", "f1"), ("table12_xnli", "acc"), ("table15_ner", "f1")]
)
def test_means_in_the_table_are_those_that_metaxlm_prints(table, metric):
    names = "XLM", "MetaXLM", "MetaXLM+Dict"
    systems = {name: printed("metaxlm", table, model=name, metric=metric) for name in names}
    rows = [
        readouts.row("task", "score", "en", lang, score, seed=0, system=name, examples=1)
        for name, scores in systems.items()
        for lang, score in scores.items()
        if lang != "avg"
    ]
    found = score_table(pd.DataFrame(rows), "task")["mean"]
    for name, scores in systems.items():
        assert abs(found[name] - scores["avg"]) <= 0.1 + 1e-9


@pytest.fixture(scope="module")
def covered():
    "A model whose vectors have few words, of one pair none, beside what knows all words."
    found = rows_of(
        "bli",
        "model",
        {"de-en": 100, "en-es": 40},
        coverage={"de-en": 0.001, "en-es": 0.5},
        examples={"de-en": 2, "en-es": 1500},
    )
    return pd.DataFrame(
        found + rows_of("bli", "spelling", {"de-en": 20, "en-es": 30, "en-fr": 70}, examples=3000)
    )


def test_what_a_score_covers_stands_in_every_table_and_picture(covered, model):
    table, by_family = E.tables(
        Settings(model, "bli", name="mybert", aggregate="mean"), covered
    ).values()
    assert by_family.loc["mybert, coverage"].tolist() == [0.1, 50]
    assert [*table.index] == ["mybert", "spelling", "mybert, coverage", "mybert, examples covered"]
    assert table["de-en"].tolist() == [100, 20, 0.1, "2"] and table["en-es"].tolist()[2:] == [
        50,
        "1,500",
    ]
    assert "mybert, examples covered & – & 2 & 1,500 & –" in latex(table)
    labels = draw_heat_map(E.as_shown(covered, "mybert")).axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["mybert", "spelling", "mybert, coverage"]
    assert len(score_table(covered.assign(coverage=1.0), "bli")) == 2  # no news


def test_systems_are_averaged_over_the_same_languages(covered):
    found = score_table(covered, "bli")["mean"].round(2).to_dict()
    assert found == {"model": 70, "spelling": 25, "model, coverage": 25.05}
    systems = dict(model=dict(de=9, nl=7, sw=1), trigrams=dict(de=2, nl=4, af=90))
    rows = [row for name, scores in systems.items() for row in rows_of("tatoeba", name, scores)]
    families = family_table(pd.DataFrame(rows), "tatoeba")
    assert families.Germanic.tolist() == [8, 3] and [*families.columns] == ["Germanic"]


def test_a_score_of_few_examples_is_warned_of(covered):
    with pytest.warns(UserWarning) as said:
        E._warn_of_scores(covered)
    [text] = [str(w.message) for w in said]
    assert text.startswith(
        "bli, model: the score rests on fewer than 100 examples"
    ) and text.endswith("in de-en (2 examples, 0.1%)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        E._warn_of_scores(covered[covered.target != "de-en"])


@pytest.mark.parametrize(
    "columns, rows, turned", [(3, 1, False), (15, 1, False), (43, 3, False), (43, 3, True)]
)
def test_a_picture_of_many_columns_is_drawn_in_rows_that_can_be_read(columns, rows, turned):
    targets = [f"{n:02}-{'zh-Hant' if turned else 'en'}" for n in range(columns)]
    fig = draw_heat_map(pd.DataFrame(rows_of("bli", "model", dict.fromkeys(targets, 60.46))))
    fig.draw_without_rendering()
    assert len(fig.axes) == rows and {text.get_text() for ax in fig.axes for text in ax.texts} == {
        "60.5"
    }
    for ax in fig.axes:
        for written in (ax.texts, ax.get_xticklabels()):
            boxes = [text.get_window_extent() for text in written]
            assert all(left.x1 <= right.x0 for left, right in zip(boxes, boxes[1:]))
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {90.0 if turned else 0.0}


def test_tables_name_the_model_and_say_which_training_stopped(
    scores, settings, tmp_path, monkeypatch
):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    given = resolve(replace(settings, name="my_bert", out=str(tmp_path)))
    stop = "stopped at step 144 of 1365"
    place = E.save_scores(
        given, scores.assign(stopped=scores.stopped.where(scores.system != "model", stop))
    )
    [table] = E.tables(given, scores).values()
    # of what has finished
    assert [*table.index] == ["my_bert", "untrained", "majority", "character n-grams"]
    assert f"<th>my_bert, {stop}</th>" in Path(f"{place}.html").read_text()
    assert rf"my\_bert, {stop} & " in Path(f"{place}.tex").read_text()
    own = scores[scores.system == "model"]
    parts = (
        own,
        own.assign(seed=1, stopped=stop),
        own.assign(source="de", stopped="stopped at step 3 of 9"),
    )
    rows = E.as_shown(pd.concat(parts, ignore_index=True), "my_bert")
    assert [*score_table(rows, "xnli").index] == [
        "my_bert, 1 of 2 trainings stopped, the first at step 144 of 1365",
        "my_bert, stopped at step 3 of 9, learned in the language",
    ]


@pytest.fixture
def damaged(model, tmp_path):
    "Copies of the model: without the weights of a block, with another tokenizer."
    from safetensors.torch import load_file, save_file

    for name in ("partial", "foreign"):
        shutil.copytree(model, tmp_path / name)
    weights = load_file(tmp_path / "partial" / "model.safetensors")
    kept = {
        name: value
        for name, value in weights.items()
        if "layers.1." not in name and "layer.1." not in name
    }
    assert 0 < len(weights) - len(kept) < len(weights)
    save_file(kept, tmp_path / "partial" / "model.safetensors", {"format": "pt"})
    (tmp_path / "partial" / "checksums.json").unlink()  # they are of all weights
    lines = {lang: [" ".join(row[:2]) for row in pairs(lang, "dev", 60)] for lang in WORDS}
    train_vocab(lines, 70, tmp_path / "vocabulary").save_pretrained(tmp_path / "foreign")
    return {name: str(tmp_path / name) for name in ("partial", "foreign")}


@pytest.mark.parametrize(
    "name, message",
    [
        ("partial", r"lacks \d+ weights of .*, which would be random"),
        ("foreign", "a tokenizer of 70 subwords for a model with a vocab"),
    ],
)
def test_no_head_is_learned_on_what_is_no_checkpoint(
    name, message, damaged, settings, scores, tmp_path, monkeypatch
):
    given = replace(
        settings, model=damaged[name], langs="en", controls=False, out=str(tmp_path / "out")
    )
    with pytest.raises(DataError, match=message):
        evaluate(resolve(given))
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    against = resolve(replace(settings, langs="en", controls=False, against=damaged[name]))
    with pytest.raises(DataError, match=message):
        E.beside_other_model(against, scores)


def test_where_nothing_can_be_written_the_scores_are_shown(
    settings, scores, monkeypatch, tmp_path, capsys
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "file" / "results"))
    arguments = dict(
        model=settings.model, tasks="xnli", train_split="dev", epochs=2, out=settings.out
    )
    with pytest.raises(
        SystemExit, match="cannot be saved .*: name other folders by --out and XLNB_RESULTS"
    ):
        E.main([text for name, value in arguments.items() for text in (f"--{name}", str(value))])
    assert "character n-grams" in capsys.readouterr().out


@pytest.mark.parametrize(
    "given",
    [
        dict(learning_rate=float("nan")),
        dict(max_minutes=float("inf")),
        dict(epochs=-1),
        dict(langs="all"),
    ],
)
def test_amounts_and_languages_that_are_none(given, settings):
    with pytest.raises(ConfigError, match=f"{next(iter(given))}="):
        resolve(replace(settings, **given))


def test_no_minutes_are_no_training(settings):
    (recipe,) = T.recipe_grid(TaskRun("xnli", replace(settings, max_minutes=0.0), settings.model))
    assert recipe.max_minutes == 0


def test_of_absent_tests_those_that_do_not_exist_are_apart(settings):
    exists, strange = T._why_absent(TaskRun("xnli", settings), ["tlh", "ru"])
    assert re.match("xnli has no test in ru: .* is not there", exists)
    assert re.match("xnli has no test in tlh: language 'tlh'", strange)


def test_signs_of_latex():
    text = latex(pd.DataFrame({"a#b": [1.0]}, index=[r"c$d{e}~f^g\h_i%j&k"]))
    assert r"a\#b" in text
    assert r"c\$d\{e\}\textasciitilde{}f\textasciicircum{}g\textbackslash{}h\_i\%j\&k" in text


def test_the_same_as_latex_and_as_a_picture(scores):
    text = latex(score_table(scores, "xnli"))
    assert (
        text.count(r"\\") == 5
        and "character n-grams" in text
        and r"\begin{tabular}{lrrrrrr}" in text
    )
    fig = draw_heat_map(scores)
    assert [ax.get_title() for ax in fig.axes] == ["xnli: accuracy, %"]


@pytest.mark.parametrize(
    "changes, error, says",
    [
        (dict(tasks="xnly"), ConfigError, "task='xnly' is not one of.*did you mean 'xnli'"),
        (dict(model=""), ConfigError, "give the folder"),
        (dict(seeds=0), ConfigError, "seeds=0"),
        (dict(aggregate="median "), ConfigError, "did you mean 'median'"),
        (dict(recipes="xlm-e"), ConfigError, "'xlme'"),
        (
            dict(partner="nowhere"),
            ConfigError,
            "partner='nowhere': give 'self', or the folder of translations",
        ),
        (dict(select_on="everything"), ConfigError, "select_on='everything': .* or 'all'"),
        (dict(source=""), ConfigError, "source='': name the language"),
        (dict(langs="en,en"), ConfigError, "'en' twice"),
        (dict(learning_rate=-1.0), ConfigError, "learning_rate=-1.0"),
        (
            dict(tasks="xnli,squad1", recipes="metaxlm"),
            ConfigError,
            "none for squad1, only for xnli",
        ),
        (
            dict(tasks="cldr", train_split="", partner="self", source="en,de"),
            ConfigError,
            "cldr train no network .* partner='self', .*source='en,de'",
        ),
        *(
            (
                dict(tasks="cldr", train_split="", epochs=0) | {k: v},
                ConfigError,
                f"cldr train no network .* without {k}={v!r}",
            )
            for k, v in dict(
                train_split="nonsense",
                test_split="dev",
                in_language=True,
                epochs=3,
                learning_rate=0.1,
                seeds=2,
                max_minutes=5.0,
            ).items()
        ),
        (
            dict(model="/nowhere", partner="self"),
            ConfigError,
            "model=./nowhere.: .* is not a folder here .*: give the folder",
        ),
        (dict(model="nowhere"), ConfigError, "or a name on the hub"),
        (dict(tasks="americasnli", select_on="all"), DataError, "nothing could be tested"),
        (
            dict(partner="self"),
            ConfigError,
            "partner='self': .* has no cross-attention to look at it with",
        ),
        (dict(select_on="fr"), DataError, "xnli, dev, 'fr' is not there"),
        (dict(train_split="test"), ConfigError, "learns from 'test', and is tested on it"),
        (
            dict(train_split=""),
            DataError,
            "xnli, train, 'en' is not there: looked for .*Licence of the set: CC BY-NC 4.0",
        ),
        (
            dict(langs="fr", controls=False),
            DataError,
            "nothing could be tested of .*: xnli has no test in fr",
        ),
        (dict(source="fr"), DataError, "xnli, dev, 'fr' is not there"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(changes, error, says, settings):
    with pytest.raises(error, match=says):
        evaluate(replace(settings, **changes))


def test_another_model_has_another_name(model, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    assert model_hash(tmp_path / "copy") == model_hash(model)
    with open(tmp_path / "copy" / "config.json", "a") as file:
        file.write(" ")
    assert model_hash(tmp_path / "copy") != model_hash(model)


@pytest.mark.slow
def test_another_process_asks_for_one_more_language(settings, scores, data, tmp_path):
    "It reads the network that was trained here, whose class it has not met yet."
    out = tmp_path / "out"
    shutil.copytree(settings.out, out)
    arguments = [
        "--model",
        settings.model,
        "--tasks",
        "xnli",
        "--train_split",
        "dev",
        "--epochs",
        "2",
        "--out",
        str(out),
        "--controls",
        "False",
        "--langs",
        "en",
    ]
    environment = {**os.environ, "XLNB_DATA": str(data), "XLNB_RESULTS": str(tmp_path / "results")}
    for path in out.glob("*/answers/*-en-*"):
        path.unlink()
    done = run_module("xlnb.evaluation", *arguments, env=environment)
    assert done.returncode == 0 and "xnli: accuracy, %" in done.stdout, done.stderr[-2000:]


@pytest.mark.slow
def test_the_command_line_needs_no_checkout(model, tmp_path):
    environment = {
        k: v for k, v in os.environ.items() if k not in ("XLNB_DATA", "XLNB_ROOT", "XLNB_RESULTS")
    }
    environment["PYTHONPATH"] = str(Path(E.__file__).parents[1])
    arguments = ["--model", model, "--tasks", "cldr", "--langs", "en,de", "--controls", "false"]
    done = run_module("xlnb.evaluation", *arguments, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len([*(tmp_path / "runs" / "evaluation").glob("*.csv")]) == 1
    assert (
        len((tmp_path / "runs" / "results" / "08_evaluation.jsonl").read_text().splitlines()) == 1
    )
    code = (
        "from xlnb.measures.downstream import printed, printed_recipes; import "
        "xlnb.results.downstream_results; "
        "print(len(printed('xnli')), len(printed_recipes('metaxlm', 'xnli', 768)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0 and min(map(int, done.stdout.split())) > 0, done.stderr[-2000:]


def test_the_command_line_needs_no_download(model, tmp_path, monkeypatch):
    arguments = ["--model", model, "--name", "any encoder", "--tasks", "cldr", "--langs", "en,de"]
    arguments += ["--out", str(tmp_path)]
    environment = {k: v for k, v in os.environ.items() if k != "XLNB_DATA"}
    environment["XLNB_RESULTS"] = str(tmp_path / "results")
    done = run_module("xlnb.evaluation", *arguments, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "cldr entailment: accuracy, %" in done.stdout and "untrained" in done.stdout
    assert all(
        len([*tmp_path.glob(f"*.{ending}")]) == 1 for ending in ("csv", "png", "html", "tex")
    )
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    (record,) = read_records("08_evaluation")
    assert str(tmp_path) not in json.dumps(record) and model not in json.dumps(record)
    rows = recorded([record])
    assert {"any encoder", "untrained any encoder", "strings"} <= {*rows.system} and {
        *rows.target
    } == {"en", "de"}
    wrong = run_module("xlnb.evaluation", "--tasks", "cldr", env=environment)
    assert wrong.returncode == 1 and wrong.stderr.startswith("xlnb: model=''")


@pytest.fixture
def more_data(data, tmp_path, monkeypatch):
    "Names and translations beside the small XNLI."
    shutil.copytree(data, root := tmp_path / "data")

    def tagged(lang, k):
        return f"{lang}:{WORDS[lang][k % 8]}\t{'B-PER' if k % 8 < 2 else 'O'}\n"

    for lang, split in product(WORDS, ("dev", "test")):
        words = range(4 if split == "dev" else 5)
        sentences = ("".join(tagged(lang, n + k * (1 + n // 8)) for k in words) for n in range(24))
        write(root / "panx" / f"{split}-{lang}.tsv", "\n".join(sentences))
    for side in ("deu", "eng"):
        lines = (" ".join(WORDS[side[:2]][(n + k) % 8] for k in range(3)) + "\n" for n in range(8))
        write(root / "tatoeba-laser" / "v1" / f"tatoeba.deu-eng.{side}", "".join(lines))
    monkeypatch.setenv("XLNB_DATA", str(root))


# tokenizers; None: ours
FOREIGN = {
    "Bert": "cased WordPiece",
    "Roberta": "byte-level BPE",
    "XLMRoberta": "Unigram",
    "Electra": "uncased WordPiece",
    "DebertaV2": None,
    "ModernBert": "byte-level BPE",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_models_that_are_not_ours_by_the_same_command(
    name, model, more_data, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    texts = [" ".join(row[:2]) for lang in WORDS for row in pairs(lang, "dev", 60)]
    kind = FOREIGN[name]
    tokenizer = (
        fast(kind, texts, 300) if kind else transformers.AutoTokenizer.from_pretrained(model)
    )
    ids = {
        k: getattr(tokenizer, k)
        for k in ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
    }
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **ids, **shape)
    with quietly():
        getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path / "foreign")
    tokenizer.save_pretrained(tmp_path / "foreign")
    E.main(
        [
            "--model",
            str(tmp_path / "foreign"),
            "--tasks",
            "xnli,ner,tatoeba",
            "--train_split",
            "dev",
            "--langs",
            "en,de",
            "--epochs",
            "1",
            "--out",
            str(tmp_path / "out"),
        ]
    )
    said, warned = capsys.readouterr()
    assert all(
        f"{task}, %" in said for task in ("xnli: accuracy", "ner: F1", "tatoeba: accuracy@1")
    ), said + warned
    assert "character n-grams" in said
    [record] = read_records("08_evaluation")
    assert record["parameters"]["model"] == "foreign"
    assert {*zip(record["scores"]["task"], record["scores"]["system"])} >= {
        (task, system) for task in ("xnli", "ner", "tatoeba") for system in ("model", "untrained")
    }


def no_training(*_):
    pytest.fail("it trains")


@pytest.mark.parametrize(
    "tags, said", [("dog\tO\ncat\tO\n", "without a span"), ("dog\ncat\n", "1 columns, not a word")]
)
def test_no_test_with_labels_is_no_training(tags, said, settings, more_data, tmp_path, monkeypatch):
    for lang in WORDS:
        write(tmp_path / "data" / "panx" / f"test-{lang}.tsv", tags)
    monkeypatch.setattr(T, "train_head", no_training)
    with pytest.raises(DataError, match=f"nothing could be tested of .*: ner in de: .*{said}"):
        evaluate(replace(settings, tasks="ner", out=str(tmp_path / "out"), controls=False))


def test_what_cannot_be_scored_is_warned_of_before_the_others_are_learned(
    settings, more_data, tmp_path, monkeypatch
):
    write(tmp_path / "data" / "panx" / "test-de.tsv", "dog\tO\n")
    monkeypatch.setattr(T, "train_head", no_training)
    given = resolve(replace(settings, tasks="ner", out=str(tmp_path / "out"), controls=False))
    failed = []
    assert scorable(TaskRun("ner", given), failed) == ["en", "sw"] and failed[0].startswith(
        "ner in de: "
    )
    with pytest.warns(UserWarning, match="before anything is learned: ner in de: .*without a span"):
        assert T.scorable_tasks(given, []) == {"ner": ["en", "sw"]}


def test_a_missing_translation_of_a_test_is_known_before_anything_is_learned(settings, tmp_path):
    beside = replace(settings, partner=str(tmp_path))
    assert scorable(TaskRun("xnli", beside), failed := []) == []
    assert (
        all("no translations: write what is to be translated" in why for why in failed)
        and len(failed) == 3
    )


def test_emptied_answers_are_known_before_anything_is_learned(settings, tmp_path, monkeypatch):
    def paragraph(answers):
        return {"context": "der Rhein", "qas": [{"id": "q", "question": "?", "answers": answers}]}

    for lang, answers in (
        ("de", [{"text": "", "answer_start": 0}]),
        ("en", [{"text": "Rhein", "answer_start": 4}]),
    ):
        text = json.dumps({"data": [{"paragraphs": [paragraph(answers)]}]})
        write(tmp_path / "data" / "xquad" / f"xquad.{lang}.json", text)
    monkeypatch.setenv("XLNB_DATA", str(tmp_path / "data"))
    assert scorable(
        TaskRun("xquad", replace(settings, tasks="xquad", train_split="", langs="de,en")),
        failed := [],
    ) == ["en"]
    assert len(failed) == 1 and "an answer of question q is empty" in failed[0]


def test_a_model_of_which_nothing_is_measured_ends_the_command_with_an_error(
    model, tmp_path, monkeypatch, capsys
):
    def fails(*_, **__):
        raise AttributeError("no such layer")

    monkeypatch.setitem(E.READ, "cldr", (fails, E.READ["cldr"][1]))
    with pytest.raises(
        SystemExit, match="nothing could be tested of .*: cldr: AttributeError: no such layer"
    ):
        E.main(["--model", model, "--langs", "en,de", "--out", str(tmp_path)])


def test_without_arguments_the_command_says_its_usage(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["xlnb/evaluation.py"])
    with pytest.raises(SystemExit, match="name what to evaluate"):
        E.main([])
    assert "usage: python -m xlnb" in (said := capsys.readouterr()).err and not said.out


def test_layer_and_pool_are_those_that_are_asked_for(settings, more_data, tmp_path):
    given = replace(
        settings,
        tasks="tatoeba",
        langs="de,en",
        controls=False,
        out=str(tmp_path),
        train_split="",
        epochs=0,
    )

    def read(**asked):
        rows = evaluate(replace(given, **asked))
        rows = rows[rows.system.isin(["model", "untrained"])]
        return rows.layer.unique().tolist(), rows["pool"].unique().tolist()

    assert read() == ([1], ["mean_special"])  # two thirds up of two blocks
    assert read(layer=2) == ([2], ["mean_special"]) and read(layer=0, pool="first") == (
        [0],
        ["first"],
    )
    own = tmp_path / "own"
    shutil.copytree(settings.model, own)
    write(own / "1_Pooling" / "config.json", json.dumps({"pooling_mode_cls_token": True}))
    # as the folder says, of the untrained network too
    assert read(model=str(own), controls=True) == ([2], ["first"])
    titles = [*E.tables(resolve(given), evaluate(given))]
    assert titles == ["tatoeba: accuracy@1, %, layer 1, pooled by mean_special"]


@pytest.mark.parametrize(
    "asked, says",
    [
        (dict(layer=-2), "layer=-2"),
        (dict(pool="max"), "pool='max' is not one of mean, mean_special, first"),
        (dict(tasks="xnli", layer=1), "xnli cannot be asked by another layer"),
        (dict(tasks="cldr", pool="first"), "cldr cannot be asked by another pool"),
        (dict(reading="both"), "reading='both': only word_alignment reads pairs"),
        (dict(tasks="word_alignment", reading="twice"), "reading='twice' is not one of joint"),
    ],
)
def test_layers_and_pools_that_cannot_be(asked, says, settings):
    given = dict(tasks="tatoeba", train_split="", epochs=0) | asked
    with pytest.raises(ConfigError, match=re.escape(says)):
        resolve(replace(settings, **given))


def test_the_table_of_word_alignment_says_how_pairs_are_read_and_shows_both(
    settings, tmp_path, monkeypatch
):
    def aer(model, gold, layer, joint):
        joint = bool(joint)
        return [dict(pair="de-en", layer=1, method="argmax", pairs=9, joint=joint, aer=joint / 2)]

    monkeypatch.setattr(readouts, "aer_by_layer", aer)
    monkeypatch.setattr(readouts, "_gold", lambda langs: {"de-en": []})
    given = replace(
        settings, tasks="word_alignment", langs="de,en", controls=False, train_split="", epochs=0
    )
    given = resolve(replace(given, out=str(tmp_path), name="ours"))
    [(title, table)] = E.tables(given, evaluate(given)).items()
    assert title == "word_alignment: AER, %, layer 1, by argmax, sentences read apart"
    assert "reading" not in scores_record(given, evaluate(given))["parameters"]
    both = replace(given, reading="both")
    [(title, table)] = E.tables(both, evaluate(both)).items()
    assert title == "word_alignment: AER, %, layer 1, by argmax"
    shown = table["de-en"].to_dict()
    assert shown["ours, sentences read jointly"] == 50 and shown["ours, sentences read apart"] == 0
    assert scores_record(both, evaluate(both))["parameters"]["reading"] == "both"


def test_rows_that_are_labelled_stay_as_they_were():
    row = {"system": "", "variant": "sentences read apart", "each": [1]}
    labelled = E._labelled(row, "model", {"model": ""})
    assert labelled == {"seed": 0, "system": "model, sentences read apart"}
    assert row == {"system": "", "variant": "sentences read apart", "each": [1]}


def test_another_layer_is_another_name_in_tables_of_records(settings, scores):
    ways = [settings, replace(settings, layer=0), replace(settings, pool="first")]
    systems = {*recorded([scores_record(way, scores) for way in ways]).system}
    assert any("layer=0" in name for name in systems) and any(
        "pool=first" in name for name in systems
    )
    assert not any("layer=-1" in name for name in systems)


@pytest.mark.parametrize("kind", ["MBart", "T5"])
@pytest.mark.slow
def test_of_an_encoder_decoder_the_encoder_is_evaluated(kind, model, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    ids = {
        name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")
    }
    shape = (
        dict(d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2)
        if kind == "T5"
        else dict(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            max_position_embeddings=128,
        )
    )
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(tokenizer), decoder_start_token_id=0, **shape, **ids
    )
    with quietly():
        getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path / "seq2seq")
    tokenizer.save_pretrained(tmp_path / "seq2seq")
    E.main(
        ["--model", str(tmp_path / "seq2seq"), "--langs", "en,de", "--out", str(tmp_path / "out")]
    )
    [record] = read_records("08_evaluation")
    assert {"model", "untrained"} <= {*record["scores"]["system"]}
    assert "left out" not in capsys.readouterr().err


def test_a_call_that_is_killed_while_it_draws_records_once(settings, scores, tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))

    def killed(*_):
        raise KeyboardInterrupt

    given = resolve(replace(settings, out=str(tmp_path)))
    draw = E.draw_heat_map
    monkeypatch.setattr(E, "draw_heat_map", killed)
    with pytest.raises(KeyboardInterrupt):
        E.save_scores(given, scores)
    monkeypatch.setattr(E, "draw_heat_map", draw)
    place = E.save_scores(given, scores)
    assert len(read_records("08_evaluation")) == 1 and Path(f"{place}.png").exists()
    E.save_scores(given, scores.assign(score=0.0))  # of other scores there is another record
    assert len(read_records("08_evaluation")) == 2


@pytest.mark.slow
def test_the_notebook_evaluates_a_model_by_papermill(model, checkout, monkeypatch):
    given = dict(model=model, tasks="xnli", train_split="dev", langs="en,de", epochs=1, seeds=2)
    arguments = [part for name, value in given.items() for part in ("-p", name, str(value))]
    environment = os.environ | {
        "XLNB_RESULTS": str(checkout / "results"),
        "XLNB_ROOT": str(checkout),
    }
    done = subprocess.run(
        [sys.executable, "-m", "papermill", "nbs/08_evaluation.ipynb", "out.ipynb", *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    monkeypatch.setenv("XLNB_RESULTS", str(checkout / "results"))
    [record] = [r for r in read_records("08_evaluation") if r["parameters"]["tasks"] == "xnli"]
    assert {*record["scores"]["seed"]} == {0, 1} and [*(checkout / "runs").rglob("*.png")]


def beside_measures(task, *measures_and_targets, measure=None, **facts):
    rows = [
        readouts.row(
            task,
            name,
            "en" if task in E.BENCHMARKS else "",
            target,
            50,
            9,
            system="model",
            seed=0,
            **facts,
        )
        for name, target in measures_and_targets
    ]
    return beside_papers(pd.DataFrame(rows), task, measure)


def test_beside_ours_stands_what_was_measured_in_the_same_way():
    beside = beside_measures
    both = [("accuracy@1, raw", "de-en"), ("accuracy@1, raw, from en", "de-en")]
    own = beside("tatoeba", *both, layer=8, pool="mean_special")  # XTREME's protocol
    assert (
        own.loc["static: XLM-R, base, feature", "de-en"] == "88.4"
        and not own.index.str.startswith("veco").any()
    )
    assert (
        beside("tatoeba", *both, layer=19, pool="mean_special").index.str.startswith("veco").any()
    )
    for facts in (dict(layer=8, pool="mean"), dict(layer=7, pool="mean_special"), {}):
        assert [*beside("tatoeba", *both, **facts).index] == ["model"]
    other_way = [
        ("accuracy@1, raw", "de-en"),
        ("accuracy@1, raw, to en", "de-en"),
        ("accuracy@1", "de-en"),
    ]
    assert [*beside("tatoeba", *other_way, layer=8, pool="mean_special").index] == ["model"]
    mean = ("accuracy@1, raw, to en", "14 languages")
    means = beside("tatoeba-14", mean, measure=mean[0], layer=7, pool="mean")
    assert means.loc["xlme: XLM-R, base, feature, tatoeba14, xx-en"].tolist() == ["57.6"]
    assert not means.index.str.contains("en-xx|tatoeba36|XLM-E").any()
    assert (
        beside("tatoeba-14", mean, measure=mean[0], layer=9, pool="mean")
        .index.str.contains("XLM-E,")
        .any()
    )
    aer = "AER", "de-en"
    as_in_paper = dict(layer=9, method="optimal_transport", reading="jointly")
    jointly = beside("word_alignment", aer, **as_in_paper)
    assert jointly.loc["xlme: XLM-E, base, feature", "de-en"] == "16.5"
    for other in (dict(layer=8), dict(method="argmax"), dict(reading="apart")):
        assert [*beside("word_alignment", aer, **as_in_paper | other).index] == [
            "model",
            "xlme: fast_align, base, feature",
        ]
    translated = "accuracy@1", "de-en"
    assert [*beside("bli", translated, choices=25_580).index] == ["model"]
    assert len(beside("bli", translated, choices=400_000)) > 1
    assert [*beside("mining", ("F1", "de-en"), layer=8, pool="mean").index] == ["model"]


def test_ours_stands_above_what_papers_print_of_the_same_languages():
    beside = beside_measures
    xnli = beside("xnli", ("accuracy", "en"), ("accuracy", "ur"))
    assert xnli.loc["model"].tolist() == ["50.0", "50.0"]
    assert (
        xnli.loc["metaxlm: MetaXLM, base, zero_shot", "en"] == "82.8"
        and xnli.ur.str.endswith("†").any()
    )
    assert r"$\dagger$" in latex(xnli)
    # percent
    assert 60 < float(beside("word_similarity", ("harmonic mean", "de-en")).iloc[1, 0]) < 80
    assert len(beside("pos", ("accuracy", "de"), ("F1 as published", "de"))) > 1
    assert len(beside("mnli", ("accuracy", "en"))) > 1
    # asked in another language
    assert len(beside("mlqa", ("F1", "de"))) > 1 == len(beside("mlqa", ("F1", "de-en")))
    assert (
        [*beside("squad1", ("F1", "en")).index]
        == [*beside("cldr tags", ("f1", "de")).index]
        == ["model"]
    )


def test_pairs_belong_to_the_family_of_the_language_that_is_not_english():
    rows = [
        readouts.row("tatoeba", "accuracy@1", "", pair, score, 9, system="model", seed=0)
        for pair, score in {"de-en": 20, "en-sw": 10, "en-zh": 5}.items()
    ]
    assert family_table(pd.DataFrame(rows), "tatoeba").loc["model"].to_dict() == {
        "Germanic": 20,
        "Niger-Congo": 10,
        "Sino-Tibetan": 5,
    }


def test_what_holds_no_encoder_is_refused_before_anything_else(
    settings, model, tmp_path, monkeypatch
):
    def given(place):
        return resolve(replace(settings, model=str(place)))

    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no encoder: it needs config.json"):
        given(tmp_path / "empty")
    (tmp_path / "xlm_e-base-1").mkdir()
    (tmp_path / "xlm_e-base-1" / "log.jsonl").touch()
    with pytest.raises(ConfigError, match="the run has not ended"):
        given(tmp_path / "xlm_e-base-1")
    shutil.copytree(model, tmp_path / "xlm_e-base-1" / "generator")
    assert given(tmp_path / "xlm_e-base").title == "xlm_e-base-1"  # the one that begins so
    (tmp_path / "xlm_e-base-2").mkdir()
    with pytest.raises(ConfigError, match="there are .*xlm_e-base-1, .*xlm_e-base-2"):
        given(tmp_path / "xlm_e-base")


def test_all_tasks_without_a_folder_of_sets_are_those_that_need_none(settings, monkeypatch):
    monkeypatch.delenv("XLNB_DATA")
    assert "cldr" in task_names(replace(settings, tasks="all", train_split=""))


def test_character_ngrams_of_one_label_say_that_label():
    examples = [Labelled(str(n), (f"text {n}", "more"), "a") for n in range(5)]
    assert baselines.character_ngrams(examples, examples[:2]) == ["a", "a"]


def test_a_table_beside_the_papers_has_rows_of_theirs(settings, covered, scores):
    own = replace(settings, aggregate="mean")
    # which no paper prints, whatever its rows
    assert E._tables_beside_papers(own, covered.assign(task="sib200")) == {}
    (table,) = E._tables_beside_papers(own, scores).values()
    assert any("xylent: " in name for name in table.index)


def test_precision_is_of_a_record_where_it_is_not_the_default(settings, scores):
    plain = scores_record(resolve(settings), scores)["parameters"]
    low = scores_record(resolve(replace(settings, precision="bf16", quiet=True)), scores)
    assert "precision" not in plain and "quiet" not in plain
    assert low["parameters"] == plain | {"precision": "bf16"}
    assert "(train_split=dev, epochs=2, precision=bf16)" in recorded([low]).system.iloc[0]
    run = TaskRun("xnli", resolve(settings))
    assert "precision" not in T._recipe_for_identity(T.recipe_grid(run)[0])
    run = TaskRun("xnli", resolve(replace(settings, precision="bf16")))
    assert T._recipe_for_identity(T.recipe_grid(run)[0])["precision"] == "bf16"


def test_a_mean_is_that_of_languages_which_all_systems_have():
    rows = []
    for system, scores in (
        ("model", {"en": 90, "de": 60, "fr": 60}),
        ("other", {"de": 40, "fr": 40}),
    ):
        for target, score in scores.items():
            rows.append(dict(task="xnli", measure="accuracy", source="en", target=target))
            rows[-1] |= dict(system=system, seed=0, score=float(score), examples=100)
    table = score_table(pd.DataFrame(rows), "xnli")
    assert [*table["mean"]] == [*table["others"]] == [60, 40] and table.gap["model"] == 30


def test_baselines_of_other_amounts_are_told_apart():
    def record(score, majority, **amounts):
        scores = {"task": ["xnli"] * 2, "measure": ["accuracy"] * 2, "source": ["en"] * 2}
        scores |= {"target": ["de"] * 2, "system": ["model", "majority"], "seed": [0] * 2}
        parameters = {"model": "m", "model_hash": "abcd1234", **amounts}
        return {"parameters": parameters, "scores": scores | {"score": [score, majority]}}

    rows = recorded([record(80.0, 50.0), record(60.0, 70.0, test_examples=10)])
    by_system = dict(zip(rows.system, rows.score))
    assert by_system["majority"] == 50 and by_system["majority (test_examples=10)"] == 70


def test_an_untrained_network_is_read_as_its_model_is(model, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    settings = Settings(str(folder), "tatoeba", out=str(tmp_path / "out"))
    for name, content in zip(READING_FILES, ("{}", "[]", '{"max_seq_length": 9}', "{}")):
        write(folder / name, content)
    copy = untrained_folder(str(folder), settings)
    assert {name: (copy / name).read_text() for name in READING_FILES} == {
        name: (folder / name).read_text() for name in READING_FILES
    }
