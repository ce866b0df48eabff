"What the tests share: where the checkout is, a copy of it to run things in, and which tests need a GPU."

import gzip, lzma, shutil, sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINES = [f"Satz {n} von zwanzig, sentence {n} of twenty" for n in range(20)]


def write(path: Path, content) -> Path:
    "A file with this text or these bytes, packed as its ending says; its folders are made."
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    packers = {".gz": gzip.compress, ".xz": lzma.compress}
    path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


def pytest_collection_modifyitems(items):
    "Files with most `slow` tests first, then those with most tests, for two processes that end together."
    count = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[item.path], -count[item.path]))
    skip_without_gpu([item for item in items if "gpu" in item.keywords])


def skip_without_gpu(marked):
    "Skip tests marked `gpu` where there is none; torch is imported only if there are such tests."
    if not marked:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no GPU here"))


@pytest.fixture
def checkout(tmp_path) -> Path:
    "A copy of what notebooks read, so that runs, records and figures of a test stay out of the real checkout."
    for name in ("nbs", "data"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            ignore=shutil.ignore_patterns(".ipynb_checkpoints", "cache"),
        )
    shutil.copy(ROOT / "settings.ini", tmp_path)
    return tmp_path


@pytest.fixture
def without_package(monkeypatch):
    "Call it with names of packages: none can be imported then, nor what other tests have imported of them."

    def remove(*packages):
        for package in packages:
            loaded = [name for name in sys.modules if name.startswith(f"{package}.")]
            for name in (package, *loaded):
                monkeypatch.setitem(sys.modules, name, None)

    return remove


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    "Runs, vocabularies and records of a test file in a folder of their own."
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("root")
        patch.setenv("XLNB_ROOT", str(path))
        patch.setenv("XLNB_RESULTS", str(path / "results"))
        yield path


@pytest.fixture(scope="module")
def saved_network(tmp_path_factory) -> Path:
    "Folder of an untrained network of two layers, with a tokenizer learned from `LINES`."
    from xlnb.encoder.encoder import config_for
    from xlnb.encoder.heads import EncoderForMaskedLM
    from xlnb.text.vocab import train_vocab

    path = tmp_path_factory.mktemp("saved network")
    tokenizer = train_vocab({"de": LINES}, 36, tmp_path_factory.mktemp("vocabulary"))
    config = config_for("tiny", vocab_size=len(tokenizer), num_hidden_layers=2)
    EncoderForMaskedLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
