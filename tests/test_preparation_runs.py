"The measurement of preparation: text out of a seed, a command that is watched and killed, its record."

import itertools, json, sys
from pathlib import Path

import numpy as np
import pytest

import xlnb.results.preparation_runs as runs
from xlnb.base.core import numpy_generator
from xlnb.text.corpora import read_tsv_pairs
from xlnb.results.preparation_runs import (
    Scale,
    Watch,
    datatrove_alone,
    invented_lines,
    invented_words,
    main,
    measure_preparation,
    preparation_figure,
    prepare_pass,
    rates,
    run_watched,
    same_files,
    sample_lines,
    tokenizer_alone,
    write_text,
)

on_linux = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="read from /proc")


def test_text_depends_on_the_seed_alone(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        write_text(tmp_path / name, 100_000, languages=3, pairs=2, seed=seed)
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["af-ak.tsv", "af-am.tsv", "af.txt", "ak.txt", "am.txt"]
    assert same_files(tmp_path / "a", tmp_path / "b") == 5
    with pytest.raises(RuntimeError, match="files that differ: .*af"):
        same_files(tmp_path / "a", tmp_path / "c")
    (tmp_path / "b" / "af.txt").unlink()
    with pytest.raises(RuntimeError, match="one side only: .*af.txt"):
        same_files(tmp_path / "a", tmp_path / "b")
    rows = list(read_tsv_pairs(tmp_path / "a" / "af-ak.tsv"))
    assert len(rows) > 20 and rows[0][0] != rows[0][1]
    lines = list(sample_lines(tmp_path / "a", 0.1))
    assert 5_000 < sum(len(line.encode()) for line in lines) < 20_000


def test_words_follow_zipfs_law():
    words = invented_words("de", "Greek")
    assert len(words) == 20_000 and words[0][0] > "z" and 2 <= len(words[1]) <= 10
    lines = invented_lines(words, 2_000, numpy_generator("zipf"))
    drawn = list(itertools.chain.from_iterable(map(str.split, lines)))
    # a share of log 10 / log 20,000 is among the first nine
    share = np.isin(drawn, words[:9]).mean()
    assert share == pytest.approx(np.log(10) / np.log(20_000), abs=0.02)


@on_linux
def test_a_command_is_watched_and_killed(tmp_path):
    program = "import sys\nwhile True: open(sys.executable, 'rb').read(10**6)"
    watch = Watch(every=0.05)
    logs = tmp_path / "logs"
    assert not run_watched([sys.executable, "-c", program], watch, logs, kill_at=2e7)
    assert watch.rows[-1]["read"] > 2e7 and watch.rows[-1]["resident"] > 1e6
    assert {row["step"] for row in watch.rows} == {"open"}
    assert run_watched([sys.executable, "-c", "pass"], watch, logs)
    with pytest.raises(RuntimeError, match="failed: see"):
        run_watched([sys.executable, "-c", "raise ValueError"], watch, logs)
    assert "ValueError" in Path(f"{logs}.txt").read_text()


@on_linux
@pytest.mark.slow
def test_a_small_measurement(tmp_path, monkeypatch):
    pytest.importorskip("datatrove")
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    folder = tmp_path / "scale"
    scale = Scale(str(folder), 3, languages=4, pairs=3, vocabulary=1500, kills=1, every=0.1)
    measured = measure_preparation(scale)
    assert measured["files"] == 23 and len(measured["several"]["killed_at"]) == 1
    assert measured["one"]["tokens"] == measured["several"]["tokens"] > 500_000
    alone = tokenizer_alone(str(folder), scale.share)
    assert alone["tokens"] == datatrove_alone(str(folder), scale.share)["tokens"]
    with monkeypatch.context() as m:
        m.setattr(runs, "run_watched", None)  # would fail when called
        assert measure_preparation(scale) == measured
    assert prepare_pass(folder, "one", 1)["tokens"] == measured["one"]["tokens"]
    words = ["--folder", str(folder), "--megabytes", "3", "--languages", "4", "--pairs", "3"]
    main([*words, "--vocabulary", "1500", "--kills", "1", "--every", "0.1"])
    [line] = (tmp_path / "results" / "benchmarks.jsonl").read_text().splitlines()
    assert json.loads(line)["measurement"] == "preparation" and not folder.exists()


def test_the_record_has_rates_and_a_figure():
    row = {"resident": 4e8, "read": 1e9, "seconds": 1.0}
    steps = {"open": 1.0, "cut": 3.0, "encode": 13.0, "join": 15.0}
    rows = [row | {"step": step, "cpu": cpu} for step, cpu in steps.items()]
    several = {"tasks": 2, "tokens": 30, "rows": rows, "killed_at": [5e8]}
    others = {"tokenizers": [{"tokens": 8, "cpu": 2}], "datatrove": {"tokens": 8, "cpu": 4}}
    record = {"one": {"tokens": 30, "rows": rows, "killed_at": []}, "several": several} | others
    assert list(rates(record).values()) == [4, 3, 2, 2, 2]
    memory, _ = preparation_figure(record).axes
    assert memory.get_xlabel().startswith("GB read")
