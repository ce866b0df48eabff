"""What runs leave over damaged files: records, logs, token stores, rungs, contexts, rows that are computed once.

Caches have no checksums, so that another digit is another number, which nobody can tell; of them the error and the time
are tested, and that what is read has its form. Token stores have checksums: they give what was written or refuse."""

import json, shutil, warnings

import numpy as np
import pytest
from damage import Reader, campaign, of_files, times

from xlnb.base.core import read_records
from xlnb.text.tokens import PairBundles, TextBlocks, build_store, open_store
from xlnb.text.vocab import train_vocab
from xlnb.text.vocap import capacity_curve
from xlnb.encoder.encoder import Encoder, config_for, new_model
from xlnb.training.training import read_log
from xlnb.pretraining.experiments import runs_of_size
from xlnb.pretraining.held_out import cached_rows
from xlnb.results.dro_runs import trajectory_of
from xlnb.x2static import Distillation, learn_vectors, read_contexts

pytestmark = [pytest.mark.campaign, pytest.mark.filterwarnings("ignore")]
TIMES = times(5)
FEW = times(3)
LINES = [f"der Hund {n} bellt im Haus {n % 7}" for n in range(60)]
RECORDS = "".join(
    json.dumps(
        {
            "notebook": "toy",
            "seed": n,
            "parameters": {"size": "tiny", "name": f"Bär {n}"},
            "metrics": {"a": n / 7, "T/layer/acc": [0.1, None, n]},
            "tables": {"curve": {"step": [1, 2], "loss": [n + 0.5, None]}},
        }
    )
    + "\n"
    for n in range(12)
)
LOG = "".join(json.dumps({"step": n, "loss": 1 / (n + 1)}) + "\n" for n in range(20))


def records(folder, report):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = [json.dumps(record, sort_keys=True) for record in read_records("toy")]
    for warning in said:
        report.add("left out", folder, 0)
    return found


def plain_record(line):
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return "left out"
    tables = {
        name: [
            {k: v for k, v in zip(columns, row) if v is not None}
            for row in zip(*columns.values(), strict=True)
        ]
        for name, columns in record.pop("tables", {}).items()
    }
    if "metrics" in record:
        scores = [
            (name.replace("/layer/", f"/layer{k}/", 1), v)
            for name, value in record["metrics"].items()
            if isinstance(value, list)
            for k, v in enumerate(value)
            if v is not None
        ]
        plain = {name: v for name, v in record["metrics"].items() if not isinstance(v, list)}
        record["metrics"] = plain | dict(scores)
    return json.dumps(record | tables, sort_keys=True)


def rows(data):
    return data.removesuffix(b"\n").split(b"\n")


def whole(data):
    return data.decode().split("\n")[:-1]  # a line that is still being written does not count


def test_damaged_records_are_read_as_they_stand_or_left_out_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    reader = Reader(
        {"toy.jsonl": RECORDS}, records, lambda data: map(plain_record, rows(data)), ("left out",)
    )
    of_files("records", reader, tmp_path, TIMES)


def test_damaged_records_of_experiments_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    line = {
        "notebook": "03_xlm_e",
        "parameters": {"size": "tiny", "seed": 0, "steps": 5},
        "run": {"finished": True},
    }
    (path := tmp_path / "03_xlm_e.jsonl").write_text((json.dumps(line) + "\n") * 3)
    campaign(
        "experiments", path, TIMES, lambda report: runs_of_size("tiny", "03_xlm_e"), lambda *_: None
    )


def test_a_damaged_log_is_read_as_it_stands_or_refused(tmp_path):
    reader = Reader(
        {"log.jsonl": LOG},
        lambda folder, report: read_log(folder),
        lambda data: map(json.loads, whole(data)),
    )
    of_files("log", reader, tmp_path, TIMES)


def test_damaged_rows_are_refused(tmp_path):
    (tmp_path / "rows").mkdir()

    def read(report):
        return cached_rows(tmp_path / "rows", "rows", [1], lambda: [{"layer": 1, "value": 2.5}] * 5)

    assert len(read(None)) == 5
    [path] = (tmp_path / "rows").iterdir()

    def check(found, path, report):
        assert isinstance(found, list) and found == json.loads(path.read_text())

    campaign("rows", path, TIMES, read, check)


def test_a_damaged_trajectory_is_refused(tmp_path):
    (tmp_path / "checkpoint-00000002").mkdir()
    path = tmp_path / "checkpoint-00000002" / "state.json"
    path.write_text(
        json.dumps({"step": 2, "batches": {"trajectory": [{"step": 1, "losses": {"de-en": 2.5}}]}})
    )

    def check(found, path, report):
        assert found == json.loads(path.read_text())["batches"]["trajectory"]

    campaign("trajectory", path, TIMES, lambda report: trajectory_of(tmp_path), check)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_vocab({"de": LINES}, 36, tmp_path_factory.mktemp("vocabulary") / "words")


def contents(store):
    "All that can be read from a store."
    blocks = TextBlocks(store, "de", 16)
    bundles = PairBundles(store, "de-en", 64, 16)
    source = store.text["de"]
    return json.dumps(
        [
            [[s.tolist() for s in blocks[k]] for k in range(len(blocks))],
            [[[s.tolist() for s in pair] for pair in bundles[k]] for k in range(len(bundles))],
            [source[k].tolist() for k in range(len(source))],
            {name: [counts[k] for k in CHECKED] for name, counts in store.counts().items()},
        ]
    )


# sides that were cut and tokens made <unk> are stated in one place alone
CHECKED = "lines", "items", "empty"


def built(tokenizer, folder):
    return build_store(
        {"de": LINES},
        {"de-en": [(line, line) for line in LINES]},
        tokenizer,
        folder,
        progress=False,
        shard_lines=40,
    )


SHARDS = [
    f"{stem}.{ending}"
    for stem in ("text/de.00000", "pairs/de-en.00001")
    for ending in ("tokens", "offsets")
]


@pytest.mark.parametrize("file", ["manifest.json", *SHARDS])
def test_a_damaged_token_store_is_refused_or_holds_what_it_held(tokenizer, tmp_path, file):
    valid = contents(built(tokenizer, tmp_path))

    def check(found, path, report):
        assert found == valid

    campaign(
        f"store {file}",
        tmp_path / file,
        FEW,
        lambda report: contents(open_store(tmp_path, tokenizer)),
        check,
    )


@pytest.mark.parametrize("file", ["text/de.00000.json", "pairs/de-en.00001.json", *SHARDS[:2]])
def test_a_damaged_shard_of_an_unfinished_store_is_built_again(tokenizer, tmp_path, file):
    valid = contents(built(tokenizer, tmp_path / "store"))
    (tmp_path / "store" / "manifest.json").unlink()
    shutil.copytree(tmp_path / "store", tmp_path / "unfinished")

    def read(report):
        shutil.rmtree(tmp_path / "store")
        shutil.copytree(tmp_path / "unfinished", tmp_path / "store")
        return contents(built(tokenizer, tmp_path / "store"))

    def check(found, path, report):
        assert found == valid

    campaign(f"shard {file}", tmp_path / "unfinished" / file, FEW, read, check)


def test_a_damaged_rung_is_refused_or_has_its_form(tmp_path):
    text = [f"wort{n} haus{n % 9} hund{n % 5}" for n in range(200)]

    def read(report):
        return capacity_curve("de", text, len(text), 30, 40, tmp_path)

    assert len(read(None).sizes) >= 1
    for path in sorted(tmp_path.iterdir())[:1]:
        campaign("rung", path, TIMES, read, numbers_in_curve)


def numbers_in_curve(curve, path, report):
    assert all(np.isfinite(curve.alp)) and all(isinstance(piece, str) for piece in curve.subwords)
    assert len(curve.subwords) == len(curve.scores) == curve.sizes[-1]


SETTINGS = Distillation(min_count=1, subsample=1.0, layer=1)


@pytest.mark.parametrize(
    "file",
    [
        "manifest.json",
        "000000/facts.json",
        "000000/words.npy",
        "000000/sentences.npy",
        "000000/spans.npy",
        "000000/pieces.npy",
    ],
)
def test_damaged_contexts_are_refused_or_give_the_same_vectors(tokenizer, tmp_path, file):
    shape = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    model = new_model(
        Encoder, config_for("tiny", len(tokenizer), max_position_embeddings=64, **shape), 0
    ).eval()

    def read(report):
        contexts = read_contexts(
            model,
            LINES,
            tmp_path / "cache",
            None,
            tokenizer,
            segmenter="regex",
            settings=SETTINGS,
            quiet=True,
        )
        for made in (tmp_path / "cache").glob("vectors-*"):
            shutil.rmtree(made)
        return (found := learn_vectors(contexts, SETTINGS)).words, found.matrix.tolist()

    valid = read(None)

    def check(found, path, report):
        assert found == valid

    campaign(f"contexts {file}", tmp_path / "cache" / file, FEW, read, check)
