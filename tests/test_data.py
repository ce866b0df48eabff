"What a run is named by."
from functools import cache

import xlnb
from xlnb import data


def test_an_edit_while_a_run_goes_on_is_no_part_of_its_name(tmp_path, monkeypatch):
    for name in ("core", "vocab"): (tmp_path / f"{name}.py").write_text(f"# {name}")
    monkeypatch.setattr(xlnb, "__file__", str(tmp_path / "__init__.py"))
    process = lambda: monkeypatch.setattr(data, "_sources", cache(data._sources.__wrapped__))
    process()
    before = data.source_hash("core", "vocab")
    (tmp_path / "vocab.py").write_text("# edited")
    assert data.source_hash("core", "vocab") == before != data.source_hash("core")
    process() # the next one
    assert data.source_hash("core", "vocab") != before
