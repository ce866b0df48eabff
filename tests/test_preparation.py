"""A token store made by many tasks: the same bytes as by one, after kills too; sentences for what is not installed."""

import json, os, signal, subprocess, sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_tokens import contents, pairs, sentences, word_tokenizer, WORDS

import xlnb.text.batches as batches
import xlnb.text.contamination as contamination
import xlnb.text.own as own
import xlnb.text.preparation as preparation
import xlnb.text.tokens as tokens
from xlnb.base.core import ConfigError, DataError
from xlnb.text.cldr import cldr_corpus
from xlnb.text.contamination import survey
from xlnb.text.corpora import Corpus
from xlnb.text.own import open_corpus
from xlnb.text.preparation import (
    Prepare,
    Step,
    cut,
    encode,
    join,
    main,
    plan_preparation,
    prepare_store,
    run_tasks,
)
from xlnb.text.tokens import StoreError, build_store, open_store
from xlnb.pretraining import pretraining
from xlnb import xlm_e

SHARD = 1024


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


def toy_corpus(text=None, facts=None):
    "Text of two languages and their pairs, in shards that are not full, with test lines in it."
    text = text or {"en": sentences(0, 2_500), "ru": sentences(1, 1_024)}
    valid = {"en-ru": [(text["en"][7], text["ru"][9]), ("w1 w2", "w3 w4")]}
    tests = {"toy": {"en-ru": (text["en"][2_000:2_002], ["w3 w3 w3 w3 w4", text["ru"][0]])}}
    bitext = {"en-ru": pairs(3, 1_100)}
    return Corpus("toy", ("en", "ru"), text, bitext, valid, tests, facts or {})


def make(tokenizer, folder, tasks, corpus=None):
    "The store that so many tasks make one after the other."
    plan = plan_preparation(corpus or toy_corpus(), tokenizer, folder, shard_lines=SHARD)
    for step in (cut, encode, join):
        for task in range(tasks):
            step(plan, task, tasks)
    return open_store(folder, tokenizer)


@pytest.fixture(scope="module")
def by_one_task(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    make(tokenizer, folder, 1)
    return contents(folder)


@pytest.mark.parametrize("tasks", [2, 64])
def test_any_number_of_tasks_makes_the_same_bytes(tokenizer, tmp_path, by_one_task, tasks):
    make(tokenizer, tmp_path, tasks)
    assert contents(tmp_path) == by_one_task


def test_it_is_the_store_that_one_process_builds(tokenizer, tmp_path, by_one_task):
    corpus = toy_corpus()
    options = {"shard_lines": SHARD, "progress": False}
    build_store(corpus.text, corpus.pairs, tokenizer, tmp_path, **options)
    assert contents(tmp_path) == {k: v for k, v in by_one_task.items() if k != "overlap.json"}
    assert sum(name.endswith(".tokens") for name in by_one_task) == 6


def test_the_overlap_is_that_of_a_survey(by_one_task):
    corpus = toy_corpus()
    tests = corpus.tests | {"valid": {"en-ru": tuple(map(list, zip(*corpus.valid["en-ru"])))}}
    surveyed = survey(corpus.text, tests, corpus.pairs)
    overlap = json.loads(by_one_task["overlap.json"])
    assert overlap.pop("code") == batches.overlap_code()
    assert overlap == {name: surveyed[name] for name in overlap}
    assert overlap["overlap"]["toy"]["en"] == 2


PROGRAM = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_preparation import *

if __name__ == "__main__":
    plan = plan_preparation(toy_corpus(), word_tokenizer(WORDS), {folder!r}, shard_lines=SHARD)
    writes = 0
    replace = os.replace

    def killed(source, target):  # in the middle: the temporary file is there, the file is not
        global writes
        writes += 1
        if writes == {after}:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    os.replace = killed
    for step in (cut, encode, join):
        for task in range(2):
            step(plan, task, 2)
"""


# 9 writes cut the text; a shard is 4 with its test lines
@pytest.mark.parametrize("after, tasks", [(3, 1), (12, 3), (28, 2)])
def test_killed_and_started_again_makes_the_same_store(
    tokenizer, tmp_path, by_one_task, after, tasks
):
    folder = tmp_path / "store"
    script = tmp_path / "program.py"
    tests = str(Path(__file__).parent)
    script.write_text(PROGRAM.format(tests=tests, folder=str(folder), after=after))
    assert subprocess.run([sys.executable, script]).returncode == -signal.SIGKILL
    with pytest.raises(StoreError, match="no finished store here"):
        open_store(folder)
    make(tokenizer, folder, tasks)
    assert contents(folder) == by_one_task  # and no temporary file is left


def test_what_is_done_is_not_done_again(tokenizer, tmp_path, monkeypatch):
    corpus = toy_corpus(facts={"sha256": {"en.txt": "0"}})
    make(tokenizer, tmp_path, 2, corpus)
    plan = plan_preparation(corpus, tokenizer, tmp_path, shard_lines=SHARD)
    for name in ("cut_into_chunks", "encode_shard", "finish_store"):
        monkeypatch.setattr(preparation, name, None)  # would fail when called
    for step in (cut, encode, join):
        step(plan, 0, 1)


def test_only_missing_shards_are_encoded(tokenizer, tmp_path, monkeypatch, by_one_task):
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path, shard_lines=SHARD)
    cut(plan, 0, 1)
    encode(plan, 0, 2)
    encoded = []
    encode_shard = tokens.encode_shard

    def counted(plan, kind, name, shard, chunks):
        encoded.append((kind, name, shard))
        encode_shard(plan, kind, name, shard, chunks)

    monkeypatch.setattr(preparation, "encode_shard", counted)
    encode(plan, 0, 1)
    join(plan)
    assert encoded == [("text", "en", 1), ("text", "ru", 0), ("pairs", "en-ru", 1)]
    assert contents(tmp_path) == by_one_task


def test_cut_text_is_removed_although_the_removal_was_interrupted(
    tokenizer, tmp_path, monkeypatch, by_one_task
):
    def interrupted(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(preparation.shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(tokenizer, tmp_path, 1)
    make(tokenizer, tmp_path, 1)
    assert contents(tmp_path) == by_one_task


def test_a_missing_shard_is_named(tokenizer, tmp_path):
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path, shard_lines=SHARD)
    with pytest.raises(StoreError, match="not cut to its end"):
        encode(plan, 0, 1)
    cut(plan, 0, 1)
    encode(plan, 0, 1)
    (tmp_path / "text" / "en.00002.tokens").unlink()
    with pytest.raises(StoreError, match="en.00002.*start its preparation again"):
        join(plan)


def test_text_that_changed_before_the_end_is_cut_and_encoded_anew(tokenizer, tmp_path):
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path / "a", shard_lines=SHARD)
    cut(plan, 0, 1)
    encode(plan, 0, 1)
    other = toy_corpus({"en": sentences(5, 2_600), "ru": sentences(1, 1_024)})
    make(tokenizer, tmp_path / "a", 1, other)
    make(tokenizer, tmp_path / "b", 2, other)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_test_lines_are_normalised_once_for_all_shards(
    tokenizer, tmp_path, monkeypatch, by_one_task
):
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path, shard_lines=SHARD)
    cut(plan, 0, 1)
    numbers = []
    normalised_tests = contamination._normalised_tests
    indices = []
    line_index = contamination.LineIndex

    def counted(tests):
        numbers.append(len(tests))
        return normalised_tests(tests)

    def indexed(lines, *options):
        indices.append(len(lines))
        return line_index(lines, *options)

    monkeypatch.setattr(contamination, "_normalised_tests", counted)
    monkeypatch.setattr(contamination, "LineIndex", indexed)
    monkeypatch.setattr(preparation, "derive_seed", None)  # would fail when called
    encode(plan, 0, 1)
    assert numbers == [2] and len(indices) == 2  # two tests in two languages, six shards
    join(plan)
    assert contents(tmp_path) == by_one_task


def test_text_of_ones_own_is_not_looked_through_when_it_is_opened(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    for lang, seed in (("de", 0), ("en", 1)):
        (tmp_path / "own" / f"train.{lang}").write_text("\n".join(sentences(seed, 1_500)))
    with monkeypatch.context() as m:
        m.setattr(own, "survey", None)  # would fail when called
        corpus = open_corpus(tmp_path / "own", surveyed=False)
    surveyed = open_corpus(tmp_path / "own")
    assert "overlap" not in corpus.facts and "overlap" in surveyed.facts
    assert batches.data_folder(corpus, 500) == batches.data_folder(surveyed, 500)
    make(tokenizer, tmp_path / "store", 2, corpus)
    overlap = json.loads((tmp_path / "store" / "overlap.json").read_text())
    assert overlap.pop("code") == batches.overlap_code()
    assert overlap == {name: surveyed.facts[name] for name in overlap}


def test_other_pairs_or_amounts_have_another_store(tmp_path):
    "Counts of a folder's lines are left out of a store's name; what is chosen of a text is not."
    for pair, seed in (("de-en", 0), ("de-fr", 1)):
        for lang in pair.split("-"):
            (tmp_path / f"train.{pair}.{lang}").write_text("\n".join(sentences(seed, 600)))
    whole = open_corpus(tmp_path)
    english = replace(whole, pairs={"de-en": whole.pairs["de-en"]})
    fewer = replace(whole, facts=whole.facts | {"chosen_lines": {"de-en": 100, "de-fr": 100}})
    embedded = [cldr_corpus(("de", "en"), 1, n, n, 5) for n in (50, 100)]
    folders = {batches.data_folder(c, 500) for c in (whole, english, fewer, *embedded)}
    assert len(folders) == 5


def test_a_language_without_lines_is_an_error(tokenizer, tmp_path):
    corpus = Corpus("toy", ("en",), {"en": []}, {}, {}, {})
    with pytest.raises(DataError, match="text 'en' has no lines"):
        make(tokenizer, tmp_path, 1, corpus)


def test_it_is_an_error_before_any_task_is_run(tokenizer, tmp_path):
    corpus = Corpus("toy", ("de", "en"), {"de": ["Satz"], "en": iter(())}, {}, {}, {})
    with pytest.raises(DataError, match="text 'en' has no lines"):
        plan_preparation(corpus, tokenizer, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_another_store_is_not_overwritten(tokenizer, tmp_path):
    make(tokenizer, tmp_path, 1)
    with pytest.raises(StoreError, match="other max_length"):
        plan_preparation(toy_corpus(), tokenizer, tmp_path, max_side=9, shard_lines=SHARD)


def test_a_step_says_its_name_alone(tokenizer, tmp_path):
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path)
    assert repr(Step(cut, plan)) == f"cut of Preparation({tmp_path})"


# engines

SETTINGS = Prepare("cldr", vocabulary="vocab", output="store", langs="de,en")


def test_without_datatrove_one_sentence_says_what_to_install(without_package):
    without_package("datatrove")
    with pytest.raises(SystemExit) as error:
        main(["cldr", "--vocabulary", "vocab", "--output", "store"])
    assert str(error.value).endswith("not there: pip install datatrove")


@pytest.mark.parametrize(
    "change, message",
    [({"executor": "slurm"}, "--partition"), ({"executor": "dask"}, "local, slurm, ray")],
)
def test_an_engine_that_cannot_be_used_is_an_error(change, message):
    from dataclasses import replace

    with pytest.raises(ConfigError, match=message):
        prepare_store(replace(SETTINGS, **change))


def at_once(plan, executor, tasks, **options):
    for step in (cut, encode, join):
        for task in range(tasks):
            step(plan, task, tasks)


def test_a_run_takes_the_store_that_was_prepared(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "run_tasks", at_once)
    monkeypatch.setattr(preparation, "_executor_class", lambda name: None)
    monkeypatch.setattr(batches, "runs_folder", lambda: tmp_path / "runs")
    tokenizer.save_pretrained(tmp_path / "vocab")
    (tmp_path / "own").mkdir()
    for lang, seed in (("de", 0), ("en", 1)):
        text = "\n".join(sentences(seed, 1_500))
        (tmp_path / "own" / f"train.{lang}").write_text(f"{text}\n")
    vocabulary = str(tmp_path / "vocab")
    settings = Prepare(str(tmp_path / "own"), vocabulary=vocabulary, langs="de,en", tasks=3)
    said = prepare_store(settings)
    assert "3 sources" in said and "valid" in said
    monkeypatch.setattr(batches, "build_store", None)  # would fail when called
    corpus = open_corpus(str(tmp_path / "own"), ["de", "en"])
    data = batches.prepare(corpus, len(tokenizer), vocabulary=vocabulary)
    assert str(data.store.folder) in said
    in_other_order = open_corpus(str(tmp_path / "own"), ["en", "de"])
    again = batches.prepare(in_other_order, len(tokenizer), vocabulary=vocabulary)
    assert again.store.folder == data.store.folder


def test_a_run_takes_the_test_lines_that_its_store_has_counted(tokenizer, tmp_path, monkeypatch):
    "The survey of the text is not made again."
    monkeypatch.setattr(preparation, "run_tasks", at_once)
    monkeypatch.setattr(preparation, "_executor_class", lambda name: None)
    monkeypatch.setattr(batches, "runs_folder", lambda: tmp_path / "runs")
    tokenizer.save_pretrained(tmp_path / "vocab")
    for lang, seed in (("de", 0), ("en", 1)):
        (tmp_path / "own").mkdir(exist_ok=True)
        (tmp_path / "own" / f"train.{lang}").write_text("\n".join(sentences(seed, 1_500)))
    s = xlm_e.Settings(
        corpus=str(tmp_path / "own"), langs="de,en", vocabulary=str(tmp_path / "vocab")
    )
    s = xlm_e.resolve(s)
    surveyed = pretraining.named_corpus(s).facts
    assert "repeated" in surveyed
    prepare_store(Prepare(s.corpus, s.vocabulary, langs="de,en", max_side=pretraining.max_side(s)))
    monkeypatch.setattr(own, "survey", None)  # would fail when called
    monkeypatch.setenv("XLNB_CACHE", str(tmp_path / "empty"))
    data = xlm_e.prepare_data(s)
    facts = data.corpus.facts
    assert facts == {name: surveyed[name] for name in facts} and "pairs" in facts
    assert "word for word" in pretraining.overlap_report(data)


def test_a_store_that_is_there_is_described(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "run_tasks", None)  # would fail when called
    monkeypatch.setattr(preparation, "_executor_class", lambda name: None)
    corpus = toy_corpus()
    monkeypatch.setattr(preparation, "open_corpus", lambda *_, **options: corpus)
    tokenizer.save_pretrained(tmp_path / "vocab")
    store = tmp_path / "store"
    build_store(corpus.text, corpus.pairs, tokenizer, store, progress=False)
    said = prepare_store(Prepare("ntrex", vocabulary=str(tmp_path / "vocab"), output=str(store)))
    assert "3 sources" in said and "was there already: delete" in said


def test_slurm_is_needed_for_slurm(monkeypatch):
    pytest.importorskip("datatrove")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match="sbatch"):
        run_tasks(None, "slurm")


@pytest.mark.slow
def test_datatrove_makes_the_same_store(tokenizer, tmp_path, by_one_task):
    pytest.importorskip("datatrove")
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path / "store", shard_lines=SHARD)
    run_tasks(plan, "local", 2)
    assert contents(tmp_path / "store") == by_one_task
    assert (tmp_path / "store.logs" / "encode" / "logs").is_dir()


SBATCH = """#!{python}
import os, re, subprocess, sys
script = open(sys.argv[-1]).read()
last = int((re.search(r"--array=0-(\\d+)", script) or [0, -1])[1])
for task in range(last + 1):
    environment = os.environ | {{"SLURM_ARRAY_TASK_ID": str(task), "SLURM_NODELIST": "here"}}
    subprocess.run(["bash", "-c", script], env=environment, check=True, stdout=subprocess.DEVNULL)
print("Submitted batch job 1")
"""


@pytest.mark.slow
def test_job_arrays_of_slurm_make_the_same_store(tokenizer, tmp_path, by_one_task, monkeypatch):
    "With an sbatch that runs the jobs at once."
    pytest.importorskip("datatrove")
    programs = {
        "sbatch": SBATCH.format(python=sys.executable),
        "srun": '#!/bin/bash\nshift 3\nexec "$@"\n',
        "scontrol": "#!/bin/bash\necho here\n",
        "merge_stats": "#!/bin/bash\n",
    }
    for name, program in programs.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(program)
        path.chmod(0o755)
    folders = [str(tmp_path / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    plan = plan_preparation(toy_corpus(), tokenizer, tmp_path / "store", shard_lines=SHARD)
    run_tasks(plan, "slurm", 2, partition="cpu", time="1:00:00")
    assert contents(tmp_path / "store") == by_one_task
