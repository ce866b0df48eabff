"""How the library's code is written may get better, not worse: tests/style.json has where each module stands.

`python tools/style.py --write` takes the numbers that have fallen and no others; a new module starts from `LIMITS`."""

import json, sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import style

LIMITS = style.LIMITS
NOW = style.measured()
RATCHET = json.loads(style.RATCHET.read_text(encoding="utf-8"))
# A line or two more or less move the rates of a small module by so much.
SLACK = {"tokens a line": 0.3, "comprehensions": 5, "wide lines, %": 0.5, "filler names": 10}


@pytest.mark.parametrize("module", NOW["modules"])
def test_a_module_is_written_no_worse_than_it_was(module):
    limits = RATCHET["modules"].get(module, LIMITS)
    for name, value in NOW["modules"][module].items():
        allowed = max(LIMITS[name], limits[name] + SLACK.get(name, 0))
        assert value <= allowed, f"{name}: {value}; at most {allowed}"


def test_the_library_as_a_whole_is_written_no_worse_than_it_was():
    for name, value in NOW["all"].items():
        assert value <= RATCHET["all"][name] + SLACK.get(name, 0), name


@pytest.mark.parametrize("notebook", NOW["cells"])
def test_no_more_cells_are_too_long(notebook):
    "Exported cells have 25 lines at most, lesson cells 60."
    allowed = RATCHET["cells"].get(notebook, {"exported": 0, "lesson": 0})
    for kind, n in NOW["cells"][notebook].items():
        assert n <= allowed[kind], f"{kind} cells that are too long: {n}; at most {allowed[kind]}"


@pytest.mark.parametrize("notebook", NOW["cells"])
def test_no_cell_is_longer_than_a_screen(notebook):
    "Of any kind: imports, parameters, tables and classes too."
    cells = json.loads((ROOT / "nbs" / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [source[:60] for source in code if len(source.splitlines()) > style.SCREEN] == []


def test_packed_and_nested_statements_are_told_apart():
    counted = style.counts("a, b = 1, 2\nx = [[i for i in r] for r in y]\nfound = (i for i in x)\n")
    assert (counted["packed"], counted["nested"], counted["comprehensions"]) == (1, 1, 3)
    assert (counted["filler"], counted["code_lines"]) == (1, 3)


@pytest.mark.parametrize("line", ["a, b = [1, 2]", "[a, b] = 1, 2", "(a, b) = c = (1, 2)"])
def test_brackets_do_not_hide_a_packed_statement(line):
    assert style.counts(f"{line}\n")["packed"] == 1


def test_the_numbers_on_file_never_rise():
    row = dict.fromkeys(style.LIMITS, 1)
    before = {
        "all": row,
        "modules": {"a": row, "gone": row},
        "cells": {"a": {"exported": 1, "lesson": 0}},
    }
    worse = dict.fromkeys(style.LIMITS, 60)
    cells = {"exported": 2, "lesson": 0}
    now = {
        "all": worse,
        "modules": {"a": worse, "new": worse},
        "cells": {"a": cells, "new": cells},
    }
    assert style.lowest(before, now) == {
        "all": row,
        "modules": {"a": row, "new": style.LIMITS},
        "cells": {"a": {"exported": 1, "lesson": 0}, "new": {"exported": 0, "lesson": 0}},
    }
