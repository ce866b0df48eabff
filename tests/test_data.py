"What a run is named by."
from functools import cache

import pytest
import xlnb
from xlnb import data


@pytest.fixture
def modules(tmp_path, monkeypatch):
    "A library of two modules, and what begins another process."
    for name in ("core", "vocab"): (tmp_path / f"{name}.py").write_text(f"x = '{name}'")
    monkeypatch.setattr(xlnb, "__file__", str(tmp_path / "__init__.py"))
    process = lambda: monkeypatch.setattr(data, "_sources", cache(data._sources.__wrapped__))
    process()
    return tmp_path, process


def test_an_edit_while_a_run_goes_on_is_no_part_of_its_name(modules):
    place, process = modules
    before = data.source_hash("core", "vocab")
    (place / "vocab.py").write_text("x = 'edited'")
    assert data.source_hash("core", "vocab") == before != data.source_hash("core")
    process() # the next one
    assert data.source_hash("core", "vocab") != before


@pytest.mark.parametrize("source, same", [
    ("x = 'vocab' # a comment\n", True), ("# one\n\n\nx = 'vocab'\n# two: ö\n", True), ("x = 'vocab'   \r\n", True),
    ("x = 'vocab # no comment'", False), ("x = 'vocab'; y = 1", False), ("if True: x = 'vocab'", False)])
def test_comments_and_blank_lines_are_no_part_of_a_name(modules, source, same):
    place, process = modules
    before = data.source_hash("core", "vocab")
    (place / "vocab.py").write_bytes(source.encode())
    process()
    assert (data.source_hash("core", "vocab") == before) == same


@pytest.mark.parametrize("quotes", [3 * '"', "f" + 3 * "'"], ids=["string", "f-string"])
def test_blank_lines_and_blanks_of_a_string_are_code(modules, quotes):
    place, process = modules
    hashes = set()
    for text in ("one\ntwo", "one\n\ntwo", "one  \ntwo", "one\n# two", "one\n#two"):
        (place / "vocab.py").write_text(f"x = {quotes}{text}{quotes[-3:]}\n")
        process()
        hashes.add(data.source_hash("vocab"))
    assert len(hashes) == 5


def test_indentation_is_code(modules):
    place, process = modules
    hashes = set()
    for depth in (4, 8):
        (place / "vocab.py").write_text("for a in b:\n    for c in d:\n        e()\n" + depth * " " + "f()\n")
        process()
        hashes.add(data.source_hash("vocab"))
    assert len(hashes) == 2
