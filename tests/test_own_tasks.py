"A task out of a folder of one's own files: forms, labels, scores, an evaluation, and what is refused."

import gzip

import pandas as pd
import pytest
from conftest import write
from test_finetuning import fast  # noqa: F401

from xlnb.base.core import CheckpointError, ConfigError, DataError
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.evaluation import Settings, compare, evaluate, scores_record
from xlnb.measures.downstream import BENCHMARKS, open_task
from xlnb.measures.evaluation_settings import resolve
from xlnb.measures.task_runs import TaskRun, files_hash, train_and_dev
from xlnb.measures.task_sets import TASK_SETS, read_task
from xlnb.text.vocab import train_vocab

COLOURS = {"en": ("red", "blue"), "de": ("rot", "blau")}


def rows(lang: str, split: str, count: int) -> str:
    lines = []
    for n in range(count):
        label = ("warm", "cold")[n % 2]
        lines.append(f"{COLOURS[lang][n % 2]} {split} {n}\t{label}\n")
    return "".join(lines)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    "No task of a test outlives it, and no folder of corpora is named."
    monkeypatch.delenv("XLNB_DATA", raising=False)
    names = {*TASK_SETS}
    yield
    for name in {*TASK_SETS} - names:
        del TASK_SETS[name]
        BENCHMARKS.pop(name, None)


@pytest.fixture
def colours(tmp_path):
    for lang in COLOURS:
        write(tmp_path / "colours" / f"test.{lang}.tsv", rows(lang, "test", 10))
    write(tmp_path / "colours" / "train.en.tsv", rows("en", "train", 30))
    return tmp_path / "colours"


def test_names_of_files_say_split_and_language(colours):
    name = open_task(colours)
    assert (name, TASK_SETS[name].labels, TASK_SETS[name].languages) == (
        "colours",
        ("cold", "warm"),
        ("de", "en"),
    )
    examples = read_task(name, "de", "test")
    assert len(examples) == 10 and examples[0].texts == ("rot test 0",)
    assert examples[0].label == "warm"
    scores = BENCHMARKS[name].score(examples, ["warm"] * 10, "de")
    # of one label all are found and half are right, of the other none
    assert scores == pytest.approx({"accuracy": 50, "macro-F1": 100 / 3})


def test_pairs_packed_files_and_other_codes_are_read(tmp_path):
    folder = tmp_path / "same-sense"
    write(folder / "train.eng.tsv", "a dog\ta cat\tno\na dog\ta hound\tyes\n")
    write(folder / "test.zh_TW.tsv", "狗\t貓\tno\n狗\t犬\tyes\n")
    name = open_task(folder)
    (train, other) = TASK_SETS[name].languages[::-1], "en"
    assert other in train
    [taiwan] = {*train} - {"en"}
    assert read_task(name, taiwan, "test")[1].texts == ("狗", "犬")
    assert read_task(name, "en", "train")[0].texts == ("a dog", "a cat")


def test_a_packed_copy_is_not_read_beside_the_file(colours):
    packed = colours / "train.en.tsv.gz"
    packed.write_bytes(gzip.compress(b"red\tother\nblue\tlabels\n"))
    assert TASK_SETS[open_task(colours)].labels == ("cold", "warm")
    (colours / "train.en.tsv").unlink()
    assert TASK_SETS[open_task(colours)].labels == ("cold", "labels", "other", "warm")


def test_tags_of_words_are_entities_where_they_look_like_it(tmp_path):
    folder = tmp_path / "places"
    write(folder / "train.en.conll", "Rome\tB-LOC\nsleeps\tO\n\nit\tO\n")
    write(folder / "test.de.conll", "in\tO\nNew\tB-LOC\nYork\tI-LOC\n")
    name = open_task(folder)
    [example] = read_task(name, "de", "test")
    assert example.words == ("in", "New", "York")
    assert BENCHMARKS[name].score([example], [("O", "B-LOC", "O")], "de")["F1"] == 0
    words = tmp_path / "words"
    line = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    write(
        words / "train.en.conllu",
        line.format(1, "go", "VERB") + line.format(2, "now", "ADV") + "\n",
    )
    write(words / "test.de.conllu", line.format(1, "geh", "VERB") + "\n")
    name = open_task(words)
    [example] = read_task(name, "de", "test")
    assert BENCHMARKS[name].score([example], [("VERB",)], "de") == {"accuracy": 100}


HEADER = "text\tlabel\na\tx\nb\ty\n"
TRAIN = "a\tx\nb\ty\n"


@pytest.mark.parametrize(
    "files, message",
    [
        ({"train.en.tsv": TRAIN}, "no file of test: name files train.en.tsv"),
        ({"notes.txt": "a"}, "no file of train and test"),
        ({}, "is no folder"),
        ({"train.en.tsv": TRAIN, "test.de.conll": "a\tx\n"}, "files end in .conll and .tsv"),
        (
            {"train.en.tsv": TRAIN, "test.eng.tsv": "c\tx\n"},
            "files call one language eng and en: take one code",
        ),
        (
            {"train.en.tsv": "a\n", "test.de.tsv": "b\n"},
            "columns: 1, where a line is a text or two",
        ),
        ({"train.en.conll": "a x\n", "test.de.conll": "b y\n"}, "where a line is a word, a tab"),
        ({"train.en.tsv": TRAIN, "test.de.tsv": "c\tx\nb\tc\ty\n"}, "columns: 3, where others"),
        ({"train.en.tsv": TRAIN, "test.de.tsv": "c\tx\nd\t \n"}, "test.de.tsv:2: no label after"),
        ({"train.en.tsv": TRAIN, "test.de.tsv": "\n"}, "test.de.tsv: is empty"),
        ({"train.en.tsv": HEADER, "test.de.tsv": HEADER}, "with 'label', is a header: remove it"),
        ({"train.en.tsv": HEADER, "test.de.tsv": TRAIN}, "with 'label', is a header: remove it"),
        (
            {"train.en.tsv": "Satz\tArt\n" + TRAIN, "test.de.tsv": "Satz\tArt\n" + TRAIN},
            "with 'Art', is a header",
        ),
        ({"train.en.tsv": "a\tx\n", "test.de.tsv": "b\tx\n"}, "its only label is 'x'"),
        (
            {
                "train.en.tsv": "".join(f"x\t{n}\n" for n in range(30)),
                "test.de.tsv": "y\t0\n",
            },
            "30 labels in 31 lines: the label is the last column",
        ),
    ],
)
def test_files_that_are_no_task_are_refused(tmp_path, files, message):
    for name, text in files.items():
        write(tmp_path / "mine" / name, text)
    with pytest.raises(DataError, match=message.replace("|", r"\|")):
        open_task(tmp_path / "mine")


def test_blanks_and_blank_lines_change_nothing(tmp_path):
    write(tmp_path / "mine" / "train.en.tsv", "c\tx\n\nb\ty\n\n")
    write(tmp_path / "mine" / "test.de.tsv", "\ufeffa \tx \r\nb\t y\r\n")
    name = open_task(tmp_path / "mine")
    assert TASK_SETS[name].labels == ("x", "y")
    assert [e[1:] for e in read_task(name, "de", "test")] == [(("a",), "x"), (("b",), "y")]
    assert len(read_task(name, "en", "train")) == 2


def test_what_looks_like_a_mistake_is_told(tmp_path):
    write(tmp_path / "mine" / "train.en.tsv", TRAIN)
    write(tmp_path / "mine" / "test.de.tsv", "c\tx\nb\tY\nd\tY\n")
    for name in ("test_fr.tsv", "valid.en.tsv", "test.german.tsv"):
        write(tmp_path / "mine" / name, TRAIN)
    with pytest.warns(UserWarning) as told:
        open_task(tmp_path / "mine")
    not_read, new = (str(warning.message) for warning in told)
    assert "mine: not read: test.german.tsv, test_fr.tsv, valid.en.tsv; name files" in not_read
    assert "test.de.tsv has labels that no training file has" in new and "(2 of 3): Y" in new


@pytest.mark.parametrize("name", ["xnli", "pos", "ner", "cldr", "tatoeba", "all", "a,b", "bucc"])
def test_the_name_of_another_task_is_refused(tmp_path, monkeypatch, name):
    write(tmp_path / name / "train.en.tsv", rows("en", "train", 4))
    write(tmp_path / name / "test.de.tsv", rows("de", "test", 4))
    known = dict(BENCHMARKS)
    with pytest.raises(ConfigError, match="rename|no such folder"):
        resolve(Settings("model", str(tmp_path / name)))
    assert BENCHMARKS == known or name == "bucc"
    # the bare name is the published task, whatever lies here
    monkeypatch.chdir(tmp_path)
    if name == "pos":
        assert BENCHMARKS["pos"].tested == "ud-pos"
        with pytest.raises((ConfigError, CheckpointError), match="model"):
            resolve(Settings("model", "pos"))
        assert BENCHMARKS["pos"].tested == "ud-pos"


def test_two_folders_of_one_name_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        write(tmp_path / folder / "same" / "train.en.tsv", rows("en", "train", 4))
        write(tmp_path / folder / "same" / "test.de.tsv", rows("de", "test", 4))
    open_task(tmp_path / "a" / "same")
    assert open_task(tmp_path / "a" / "same") == "same"
    with pytest.raises(ConfigError, match="another task, .*a/same: rename .*b/same"):
        open_task(tmp_path / "b" / "same")


@pytest.mark.parametrize(
    "tasks, message",
    [
        ("no/where", "task='no/where': there is no such folder"),
        ("a.txt", "task='a.txt' is a file: give the folder"),
        ("nowhere", "is not one of xnli.* a folder here"),
        ("", "task='' is not one of"),
    ],
)
def test_what_is_no_folder_is_said(tmp_path, monkeypatch, tasks, message):
    write(tmp_path / "a.txt", "a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        resolve(Settings("model", tasks))


@pytest.fixture
def small(tmp_path):
    "A saved network of two narrow blocks."
    tokenizer = train_vocab({"en": [rows("en", "train", 30)]}, 33, tmp_path / "vocabulary")
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    network = new_model(Encoder, config_for("tiny", len(tokenizer), **shape), 0)
    for saved in (network, tokenizer):
        saved.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_an_evaluation_takes_a_folder_in_place_of_a_name(colours, small, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = Settings(small.name, "colours", epochs=1, out=str(tmp_path / "runs"), quiet=True)
    assert resolve(settings).tasks == "colours"
    scores = evaluate(settings)
    tested = scores[(scores.task == "colours") & (scores.measure == "accuracy")]
    assert {*tested.system} >= {"model", "untrained", "majority"} and {*tested.target} == {
        "de",
        "en",
    }
    # files that change are read again
    before = tested[(tested.system == "majority") & (tested.target == "de")].score.item()
    write(colours / "test.de.tsv", "rot\twarm\n" * 3 + "blau\tcold\n")
    again = evaluate(settings)
    chosen = (again.task == "colours") & (again.measure == "accuracy") & (again.target == "de")
    assert before == 50 and again[chosen & (again.system == "majority")].score.item() in (25, 75)


def chosen(folder, **settings):
    "Training examples and those that choose the epoch, by language: the numbers of them, and first texts."
    small = str(folder.parent / "model")
    run = TaskRun(folder.name, resolve(Settings(small, str(folder), **settings)))
    parts = train_and_dev(run, run.settings.sources)
    return [{lang: (len(e), e[0].texts[0]) for lang, e in part.items()} for part in parts]


def test_what_chooses_the_epoch_is_not_tested_in_any_language(colours, small):
    write(colours / "dev.de.tsv", rows("de", "test", 10) + rows("de", "dev", 4))
    write(colours / "dev.en.tsv", rows("en", "dev", 4))
    _, dev = chosen(colours, select_on="de")
    assert dev == {"de": (4, "rot dev 0")}
    write(colours / "dev.de.tsv", rows("de", "test", 10))
    with pytest.raises(DataError, match="colours, de: all dev examples are tested"):
        chosen(colours, select_on="de")


def test_the_dev_file_of_the_language_that_chooses_is_read(colours, small):
    write(colours / "train.de.tsv", rows("de", "train", 30))
    write(colours / "dev.en.tsv", rows("en", "dev", 8))
    train, dev = chosen(colours, source="de", select_on="en")
    assert (train, dev) == ({"de": (30, "rot train 0")}, {"en": (8, "red dev 0")})
    for source in ("de,en", "en,de"):
        with pytest.raises(DataError, match="dev.de.tsv"):
            chosen(colours, source=source)


def test_a_fifth_without_an_example_is_said(colours, small):
    write(colours / "train.en.tsv", "hot\twarm\nicy\tcold\n")
    with pytest.raises(DataError, match="colours, en: no example in the fifth of train .*: add"):
        chosen(colours)


def test_a_test_that_repeats_the_training_examples_is_said(colours, small):
    write(colours / "test.en.tsv", rows("en", "train", 30))
    with pytest.raises(DataError, match="colours, en: the test repeats all train examples"):
        chosen(colours)


def test_the_record_of_an_own_task_changes_with_its_files(colours, small):
    def hashed():
        settings = resolve(Settings(str(small), str(colours)))
        scores = pd.DataFrame([{"task": "colours", "system": "model", "score": 50.0}])
        return scores_record(settings, scores)["parameters"]["data of colours"]

    before = hashed()
    assert hashed() == before
    write(colours / "test.de.tsv", rows("de", "test", 8))
    assert hashed() != before
    with pytest.raises(DataError, match="no file that ends in"):
        files_hash(colours)


def test_frozen_probes_are_not_compared(colours, small):
    probed = Settings(str(small), str(colours), probe="frozen")
    with pytest.raises(ConfigError, match="probe='frozen' keeps no answers of single examples"):
        compare(probed, probed, "colours", "de")
