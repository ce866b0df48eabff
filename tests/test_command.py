"The command `xlnb`: every name in it leads somewhere, and what has no module of its own does what it says."

import builtins, errno, io, os, re, shutil, subprocess, sys, tomllib
from importlib import import_module

import numpy as np
import pytest
import torch
from conftest import LINES, ROOT, write

from xlnb.base.terminal import _failure
from xlnb.command import COMMANDS, RECIPES, Retrieve, main, run_retrieve
from xlnb.measures.retrieval import encode
from xlnb.text.vectors import WordVectors


@pytest.fixture(autouse=True)
def program(monkeypatch):
    "Commands say how they were started."
    monkeypatch.setattr(sys, "argv", ["xlnb"])


def test_the_package_installs_the_command():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["xlnb"].partition(":")
    assert getattr(import_module(module), function) is main


def test_without_arguments_all_commands_are_listed(capsys):
    main([])
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert all(name in listed for name in RECIPES)
    assert max(map(len, listed.splitlines())) <= 100


def test_output_that_nobody_reads_any_more_is_no_error():
    code = "from xlnb.command import main; [main([]) for _ in range(500)]"
    reader = subprocess.Popen(["head", "-n1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    program = subprocess.run(
        [sys.executable, "-c", code], stdout=reader.stdin, stderr=subprocess.PIPE, text=True
    )
    reader.communicate()
    assert (program.returncode, program.stderr) == (1, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_function(name):
    command = COMMANDS[name]
    assert callable(getattr(import_module(f"xlnb.{command.module}"), command.function))


PROGRAMS = [[name] for name in COMMANDS if name != "pretrain"]
PROGRAMS += [["pretrain", recipe] for recipe in RECIPES]


@pytest.mark.parametrize("words", PROGRAMS, ids=" ".join)
def test_every_option_has_an_explanation_of_its_own(words, capsys):
    with pytest.raises(SystemExit) as e:
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert "default: None" not in re.sub(r"[\s│|]+", " ", shown)
    assert not e.value.code and shown.startswith(f"usage: xlnb {' '.join(words)} ")
    text = " ".join(line.strip("│| ") for line in shown.splitlines())  # without the frames
    _, *options = re.split(r" --(?=\w+ [A-Z{])", text.partition(" options ")[2])
    assert options
    names = {}  # explanation → option
    for option in options:
        name, _, text = re.sub(r"\((default|required)\b.*", "", option).partition(" ")
        text = text.partition(" ")[2].strip()  # after the type
        assert text, f"--{name} has no explanation"
        assert names.setdefault(text, name) == name, f"--{name} has that of --{names[text]}"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["alling"], "did you mean 'align'"),
        (["sample"], "COUNTS"),
        (["prepare"], "CORPUS"),
        (["records"], "NOTEBOOK"),
        (["align"], "FIRST .* SECOND"),
        (["map"], "SOURCE .* HUB"),
        (["trim", "a", "--output", "b"], "--text"),
        (["pretrain"], "say what to train first"),
        (["pretrain", "xlm"], "did you mean 'xlm-e'"),
        (["encode", "a.txt", "--model", "m", "--output", "a.npy", "--leyer", "3"], "--leyer"),
        (["encode", "a.txt", "--model", "m", "--output", "b.txt"], "name it with .npy"),
        (["map", "a.vec", "b.vec", "--languages", "de", "--output", "c"], "give two codes"),
        (["map", "a.vec", "b.vec", "--languages", "../a,en", "--output", "c"], "give two codes"),
        (["map", "d/de.vec", "b.vec", "--languages", "de, en", "--output", "d"], "would be lost"),
        (["align", "a.txt", "b.txt", "--model", "m", "--output", "./b.txt"], "would be lost"),
        (["align", "a.txt", "b.txt", "--model", "m", "--output", "."], "is a folder: name a file"),
        (["encode", "a.npy", "--model", "m", "--output", "a.npy"], "would be lost"),
        (["distil", "--model", "m", "--text", "a.txt", "--output", "a.txt"], "would be lost"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(arguments)


def test_help_of_pretraining_names_what_there_is(capsys):
    main(["pretrain", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in RECIPES)


def test_vectors_without_a_map_are_not_written(tmp_path):
    draws = np.random.default_rng(0)
    for lang in ("de", "en"):
        words = [f"{lang}{n}" for n in range(40)]
        WordVectors(words, draws.normal(size=(40, 8))).save(tmp_path / f"{lang}.vec")
    dictionary = tmp_path / "dictionary.txt"
    dictionary.write_text("".join(f"de{n} en{n}\n" for n in range(30)))
    files = [str(tmp_path / f"{lang}.vec") for lang in ("de", "en")]
    options = ["--output", str(tmp_path / "mapped"), "--dictionary", str(dictionary)]
    with pytest.raises(
        SystemExit, match="de is not mapped, nothing is written: .*without --dictionary"
    ):
        main(["map", *files, "--languages", "de,en", *options])
    assert not (tmp_path / "mapped").exists()


@pytest.mark.parametrize(
    "languages, said",
    [
        ("en,de", "wiki.de.vec is named as de, .*: give .* order of the files, de,en"),
        ("German,English", "give two codes, such as de,en"),
    ],
)
def test_languages_of_a_map_are_codes_in_the_order_of_its_files(languages, said, tmp_path):
    files = [str(tmp_path / name) for name in ("wiki.de.vec", "cc.en.300.vec")]
    with pytest.raises(SystemExit, match=said):
        main(["map", *files, "--languages", languages, "--output", str(tmp_path / "mapped")])


def test_help_lists_the_methods_of_a_map(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["map", "--help"])
    assert "orthogonal | whitened | rcsls" in capsys.readouterr().out


def test_a_map_is_scored_by_entries_that_it_has_not_seen(tmp_path, capsys):
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(300, 20, generator=generator)
    turn = torch.linalg.qr(torch.randn(20, 20, generator=generator)).Q
    noise = 0.1 * torch.randn(300, 20, generator=generator)
    for lang, matrix in {"de": source, "en": source @ turn + noise}.items():
        words = [f"{lang}{n}" for n in range(300)]
        WordVectors(words, matrix).save(tmp_path / f"{lang}.vec")
    entries = [f"de{n} en{n}\n" for n in range(250)]
    write(tmp_path / "learned.txt", "".join(entries[:150]))
    # ten that are learned, ninety that are right, ten that are wrong, one without vectors
    wrong = [f"de{n} en{n + 1}\n" for n in range(240, 250)]
    write(tmp_path / "test.txt", "".join([*entries[140:240], *wrong, "dog Hund\n"]))
    call = ["map", *(str(tmp_path / name) for name in ("de.vec", "en.vec"))]
    call += ["--languages", "de,en", "--output", str(tmp_path / "mapped")]
    call += ["--dictionary", str(tmp_path / "learned.txt")]
    main([*call, "--test", str(tmp_path / "test.txt")])
    shown = capsys.readouterr().out
    assert "accuracy@1 90.0 %" in shown and "of 101 words" in shown
    assert "10 left out, which --dictionary has" in shown
    shutil.rmtree(tmp_path / "mapped")
    write(tmp_path / "test.txt", "dog Hund\n")
    with pytest.raises(SystemExit, match="no entry of the dictionary has vectors on both sides"):
        main([*call, "--test", str(tmp_path / "test.txt")])
    assert not (tmp_path / "mapped").exists()


def test_a_file_without_lines_is_not_encoded(saved_network, tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(SystemExit, match="a.txt has no line: give a sentence per line"):
        main(
            ["encode", str(tmp_path / "a.txt"), "--model", str(saved_network), "--output", "a.npy"]
        )


def test_the_cost_of_a_corpus_is_printed(capsys):
    main("plan --text_bytes 4e9 --vocab_size 60000 --rate 1e6 --cores 2".split())
    amounts, preparation, disk = capsys.readouterr().out.splitlines()
    assert amounts == "1,000,000,000 tokens in 26,666,667 sentences"
    assert "on 2 cores, from your rate" in preparation and "token store" in disk
    with pytest.raises(SystemExit, match="text_bytes=0.0 is not above 0"):
        main("plan --text_bytes 0 --vocab_size 60000".split())
    with pytest.raises(SystemExit, match="tokens=0.0 is not above 0"):
        main("plan --text_bytes 4e9 --vocab_size 60000 --tokens 0".split())


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_encoded_lines_are_the_rows_of_an_array(saved_network, tmp_path, capsys, name):
    text = write(tmp_path / name, "\n".join(LINES) + "\n")
    output = tmp_path / "a.npy"
    main(["encode", str(text), "--model", str(saved_network), "--output", str(output)])
    said = f"{output}: 20 vectors of width 128 (layer 1, pool mean)\n"
    assert capsys.readouterr().out == said
    np.testing.assert_array_equal(np.load(output), encode(LINES, saved_network, quiet=True).numpy())


def test_two_files_are_searched_in_both_directions(saved_network, tmp_path, capsys):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("\n".join(LINES) + "\n")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]
    main(["retrieve", *files, "--model", str(saved_network)])
    shown = capsys.readouterr().out
    assert shown == run_retrieve(Retrieve(*files, str(saved_network))) + "\n"
    head, _, _, *rows = shown.splitlines()
    assert head.startswith(f"{len(LINES)} pairs of lines, retrieval accuracy@1 in % (chance stays")
    cells = [row.split() for row in rows]
    systems = ["model", "model", "untrained", "untrained", "trigrams", "chance"]
    assert [row[0] for row in cells] == systems
    assert [row[1:3] for row in cells[:4]] == [["1", "raw"], ["1", "centred"]] * 2
    same = 100 * len(set(LINES)) / len(LINES)
    assert {float(score) for row in cells[:5] for score in row[-2:]} == {round(same, 1)}
    assert cells[5][1:] == [f"{100 / len(LINES):.1f}"] * 2
    assert "model and untrained network pooled by mean, at the same layer" in head
    (tmp_path / "b.txt").write_text("\n".join(LINES[1:]) + "\n")
    with pytest.raises(SystemExit, match="b.txt.* aligned files match line by line"):
        main(["retrieve", *files, "--model", str(saved_network)])
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"{LINES[0]}\n")
    with pytest.raises(SystemExit, match="have 1 lines: give two or more"):
        main(["retrieve", *files, "--model", str(saved_network)])


def test_copies_of_a_line_are_told(saved_network, tmp_path):
    "Of two copies that tie one is right half of the time."
    files = [tmp_path / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_text("\n".join(LINES * 2) + "\n")
    shown = run_retrieve(Retrieve(*map(str, files), str(saved_network)))
    assert "lines that repeat an earlier one: 20 of FIRST and 20 of SECOND" in shown
    assert shown.splitlines()[-2].split() == ["trigrams", "50.0", "50.0"]


def test_an_interrupt_is_no_traceback(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("xlnb.command.run_encode", interrupted)
    with pytest.raises(SystemExit) as e:
        main(["encode", "a.txt", "--model", "m", "--output", "a.npy"])
    assert e.value.code == 130 and capsys.readouterr().err == "xlnb: interrupted\n"


OUTPUT = ["--output", "out.npy"]
# command → arguments; PATH stands for the unreadable file
READING = {
    "align": ["PATH", "b.txt"],
    "prepare": ["PATH", "--vocabulary", "v"],
    "sample": ["PATH"],
    "encode": ["PATH", "--model", "m", *OUTPUT],
    "encode with a model": ["b.txt", "--model", "PATH", *OUTPUT],
    "retrieve": ["PATH", "b.txt", "--model", "m"],
    "retrieve with a model": ["b.txt", "b.txt", "--model", "PATH"],
    "distil": ["--model", "PATH", "--text", "b.txt", "--output", "out.vec"],
    "average": ["folder", "PATH", "--output", "out"],
    "trim": ["PATH", "--text", "b.txt", "--output", "out"],
    "map": ["PATH", "b.vec", "--languages", "de,en", "--output", "out"],
    "evaluate": ["--model", "PATH", "--tasks", "cldr"],
    "translate": ["--model", "PATH"],
    "pretrain xlm-e": ["--corpus", "PATH"],
    "pretrain veco": ["--init", "PATH"],
    "pretrain xy-lent": ["--vocabulary", "PATH"],
    "pretrain meta-xlm": ["--source", "PATH", "--parts", "body"],
    "pretrain translator": ["--init", "PATH"],
    "records": ["PATH"],
}


@pytest.fixture
def said(tmp_path, monkeypatch):
    "The sentence with which a command ends, in a folder with a file and a folder."
    (tmp_path / "b.txt").write_text("a dog\na cat\n")
    (tmp_path / "b.vec").write_text("1 2\ndog 0.1 0.2\n")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XLNB_ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a dog\n")))

    def ends(command, path) -> str:
        words = [path if word == "PATH" else word for word in READING[command]]
        with pytest.raises(SystemExit) as e:
            main([*command.partition(" with ")[0].split(), *words])
        sentence = str(e.value)
        assert sentence.startswith("xlnb: ") and "Errno" not in sentence
        assert "\n" not in sentence and path in sentence
        return sentence

    return ends


def test_every_command_is_tried_on_an_unreadable_file():
    assert {command.split()[0] for command in READING} == {*COMMANDS} - {"plan"}  # reads none


@pytest.mark.parametrize("command", READING)
def test_what_is_not_there_is_a_sentence(command, said):
    said(command, "absent")


@pytest.mark.parametrize("command", [name for name in READING if name != "prepare"])
def test_a_folder_for_a_file_or_a_file_for_a_folder_is_a_sentence(command, said):
    of_files = ("align", "sample", "encode", "retrieve", "map", "pretrain xlm-e")
    said(command, "folder" if command in of_files else "b.txt")


@pytest.mark.parametrize("command", ["align", "sample", "encode", "retrieve", "map"])
def test_a_file_without_permission_is_a_sentence(command, said, tmp_path, monkeypatch):
    (tmp_path / "secret.vec").write_text("1 2\ndog 0.1 0.2\n")
    opened = builtins.open

    def guarded(file, *rest, **options):
        if "secret" in str(file):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
        return opened(file, *rest, **options)

    monkeypatch.setattr(builtins, "open", guarded)
    monkeypatch.setattr(io, "open", guarded)
    assert "may not be read or written by this user" in said(command, "secret.vec")


@pytest.mark.parametrize(
    "target, sentence",
    [
        ("b.txt/out", "b.txt is a file where a folder is needed"),
        ("folder", "folder is a folder: name a file in it"),
    ],
)
def test_a_place_that_cannot_be_written_is_a_sentence(target, sentence, said, tmp_path):
    with pytest.raises(SystemExit, match=f"^xlnb: .*{sentence}"):
        main(["align", "b.txt", "b.txt", "--output", target])
    assert sorted(os.listdir(tmp_path)) == ["b.txt", "b.vec", "folder"]


def test_a_full_disk_is_a_sentence_and_leaves_nothing(said, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(SystemExit, match="^xlnb: the disk is full at links.txt: make room"):
        main(["align", "b.txt", "b.txt", "--output", "links.txt"])
    assert sorted(os.listdir(tmp_path)) == ["b.txt", "b.vec", "folder"]


@pytest.mark.parametrize(
    "source, ename, evalue, expected",
    [
        ("corpus", "ConfigError", "size='bse' is not one of", ("size='bse' is not one of", True)),
        ("corpus", "CheckpointError", "a/b is not a folder", ("a/b is not a folder", False)),
        ("run(s)", "CheckpointError", "step-3 is damaged", ("", False)),
        ("run(s)", "ValueError", "shapes differ", ("", False)),
        ("run(s)", "IsADirectoryError", f"[Errno 21] {os.strerror(21)}: 'x'", ("x is a fo", False)),
        ("run(s)", "OSError", f'[Errno 21] {os.strerror(21)}: "l\'x"', ("l'x is a folder", False)),
        ("run(s)", "OSError", f"[Errno 28] {os.strerror(28)}", ("the disk is full: m", False)),
    ],
)
def test_papermill_says_the_sentence_of_an_error(source, ename, evalue, expected):
    error = {"output_type": "error", "ename": ename, "evalue": evalue}
    cells = [{"source": "import xlnb"}, {"source": source, "outputs": [error]}]
    sentence, is_refusal = _failure({"cells": cells})
    assert sentence.startswith(expected[0]) and bool(sentence) == bool(expected[0])
    assert is_refusal == expected[1]


def test_words_that_cannot_be_written_are_refused_before_the_map(tmp_path):
    for lang, word in (("de", "x"), ("en", "New York")):
        vectors = WordVectors([word, *(f"{lang}{n}" for n in range(40))], torch.randn(41, 8))
        vectors.save(tmp_path / f"{lang}.safetensors")
    files = [str(tmp_path / f"{lang}.safetensors") for lang in ("de", "en")]
    with pytest.raises(SystemExit, match="'New York' holds a blank .*: leave the word out"):
        main(["map", *files, "--languages", "de,en", "--output", str(tmp_path / "mapped")])
    assert not (tmp_path / "mapped").exists()
