"""Which sub-packages a run's settings, a model's folder and a file of vectors pass through: at most five.

A room is a sub-package; the modules on top, which people type, are one room."""

import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import LINES, ROOT, write

from xlnb import xlm_e
from xlnb.command import main as command
from xlnb.pretraining.pretraining import run
from xlnb.text.vectors import WordVectors


def rooms_met(call, meets) -> set[str]:
    "Rooms with a function that `call` hands an argument for which `meets` is true."
    rooms = set()

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event != "call" or ROOT / "xlnb" not in path.parents:
            return
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if any(meets(frame.f_locals.get(name)) for name in names):
            room = path.relative_to(ROOT / "xlnb").parts[:-1]
            rooms.add(room[0] if room else "top")

    sys.settrace(note)
    try:
        call()
    finally:
        sys.settrace(None)
    return rooms


@pytest.mark.slow  # every call of a function is looked at
def test_the_settings_of_a_run(root):
    settings = xlm_e.Settings(
        steps=2, langs="de,en", batch_tokens=256, test_lines=20, width=32, layers=2
    )
    recipe = xlm_e.RECIPE
    rooms = rooms_met(
        lambda: run(recipe, recipe.resolve(settings)),
        lambda value: isinstance(value, xlm_e.Settings),
    )
    assert rooms == {"top", "pretraining", "base"}


def test_the_folder_of_a_model(saved_network, tmp_path):
    text = write(tmp_path / "de.txt", "\n".join(LINES))
    arguments = [
        "encode",
        str(text),
        "--model",
        str(saved_network),
        "--output",
        str(tmp_path / "de.npy"),
    ]
    rooms = rooms_met(
        lambda: command(arguments),
        lambda value: isinstance(value, (str, Path)) and str(value) == str(saved_network),
    )
    assert "encoder" in rooms and len(rooms) <= 5, rooms


def test_a_file_of_vectors(tmp_path):
    words = [f"word{n}" for n in range(30)]
    matrix = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
    for language in ("de", "en"):
        WordVectors(words, matrix, language).save(tmp_path / f"{language}.vec")
    write(tmp_path / "de-en.txt", "".join(f"{word} {word}\n" for word in words))
    paths = [str(tmp_path / name) for name in ("de.vec", "en.vec")]
    arguments = [*paths, "--languages", "de,en", "--output", str(tmp_path / "mapped")]
    arguments += ["--dictionary", str(tmp_path / "de-en.txt")]
    rooms = rooms_met(
        lambda: command(["map", *arguments]),
        lambda value: isinstance(value, (str, Path)) and str(value) in paths,
    )
    assert "text" in rooms and len(rooms) <= 5, rooms
