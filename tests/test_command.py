"The command `xlnb`: every name in it leads somewhere, and what has no module of its own does what it says."

import re, sys, tomllib
from importlib import import_module

import numpy as np
import pytest
from conftest import LINES, ROOT

from xlnb.command import COMMANDS, RECIPES, main
from xlnb.measures.retrieval import encode


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
        (["pretrain"], "say what to train first"),
        (["pretrain", "xlm"], "did you mean 'xlm-e'"),
        (["encode", "a.txt", "--model", "m", "--output", "a.npy", "--leyer", "3"], "--leyer"),
        (["encode", "a.txt", "--model", "m", "--output", "a.txt"], "name it with .npy"),
        (["map", "a.vec", "b.vec", "--languages", "de", "--output", "c"], "give two codes"),
    ],
)
def test_what_is_wrong_is_said(arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(arguments)


def test_encoded_lines_are_the_rows_of_an_array(saved_network, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("\n".join(LINES) + "\n")
    output = tmp_path / "a.npy"
    main(
        ["encode", str(tmp_path / "a.txt"), "--model", str(saved_network), "--output", str(output)]
    )
    assert capsys.readouterr().out == f"{output}: 20 vectors of width 128\n"
    np.testing.assert_array_equal(np.load(output), encode(LINES, saved_network, quiet=True).numpy())
