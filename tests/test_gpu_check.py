"tools/gpu_check.py without a GPU: every phase at the tiny size on the CPU, and how it ends where it cannot run."

import importlib.util, os, subprocess, sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import ROOT, write

from xlnb.base.core import read_records

PROGRAM = ROOT / "tools" / "gpu_check.py"
spec = importlib.util.spec_from_file_location("gpu_check", PROGRAM)
G = importlib.util.module_from_spec(spec)
spec.loader.exec_module(G)

# what xlnb declares or its contributors use, and a GPU machine need not have
ABSENT = (
    "nbdev",
    "fastcore",
    "execnb",
    "papermill",
    "IPython",
    "ipykernel",
    "jupyterlab",
    "nbformat",
    "nbclient",
    "babel",
    "ot",
    "pooch",
    "pytest",
    "seaborn",
    "matplotlib",
    "hypothesis",
)
HOOK = f"""
import sys
class Without:
    def __init__(self, finder): self.finder = finder
    def __getattr__(self, name): return getattr(self.finder, name)
    def find_spec(self, name, *where):
        return None if name.partition(".")[0] in {ABSENT} else self.finder.find_spec(name, *where)
sys.meta_path[:] = map(Without, sys.meta_path)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    "Records, stores and runs of a test stay in its folder."
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path / "results"))
    options = G.options(["--size", "tiny", "--device", "cpu", "--runs", str(tmp_path / "runs")])
    options.runs.mkdir()
    options.code = G.code_hash()
    return options


def records(folder, name="gpu"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLNB_RESULTS", str(folder))
        return read_records(name)


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, PROGRAM, *map(str, arguments)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
    )


@pytest.mark.slow
def test_speed_and_a_second_call_that_measures_nothing(place, capsys):
    G.speed(place)
    found = {r["case"]: r for r in records(place.runs.parent / "results")}
    shapes = ("128 tokens", "256 tokens")
    fastest = max(shapes, key=lambda shape: found[shape]["tokens_per_second"])
    variants = (
        "by part",
        "by kernel",
        "head chunked",
        "padded True",
        "compiled True",
        "compiled True, by kernel",
        "matrix True",
        "matrix True, compiled True",
    )
    cases = {f"{fastest}, {variant}" for variant in variants}
    # a small step is always profiled, since starting kernels takes most of its time
    assert found.keys() == {*shapes, *cases, "128 tokens, by kernel"}
    step = found["256 tokens"]
    assert 0 < step["mfu"] and step["masked"] < step["tokens"] <= step["places"]
    assert step["tokens_per_second"] == pytest.approx(step["tokens"] / step["seconds"])
    capsys.readouterr()
    G.speed(place)
    assert not capsys.readouterr().out


def test_a_padded_step_reads_the_same_tokens_in_more_places(place):
    from xlnb.results.benchmarks import batch_facts

    packed = {}
    padded = {}
    for facts, how in ((packed, False), (padded, True)):
        with G.training_step(place, 512, padded=how) as step:
            facts |= batch_facts(step.work)
            step()
    assert packed["tokens"] == padded["tokens"] and packed["masked"] == padded["masked"]
    assert packed["places"] < padded["places"]


def test_flops_are_those_of_the_plan_where_rows_are_full(place):
    "The convention of `training_flops`, which knows one length."
    from xlnb.results.benchmarks import step_settings
    from xlnb.pretraining.pretraining import BY_SIZE
    from xlnb.xlm_e import network_configs, training_flops
    import torch

    settings = step_settings("tiny", 2000, 256, tasks="mrtd")
    n = BY_SIZE["tiny"].length
    rows = settings.batch_tokens // n
    labels = torch.full((rows, n), -100)
    labels[:, : round(0.15 * n)] = 7
    batch = {"attention_mask": torch.ones(rows, n), "labels": labels}
    networks = {
        part: SimpleNamespace(config=config) for part, config in network_configs(settings).items()
    }
    model = SimpleNamespace(parts=lambda: list(networks), **networks)
    counted = G.step_flops(SimpleNamespace(model=model, work=[(batch, None)]))
    # 10 of 64 tokens are not 15 %
    assert counted == pytest.approx(training_flops(settings)["standard"], rel=0.02)


@pytest.mark.slow
def test_memory_and_bias(place):
    G.memory(place)
    G.bias(place)
    found = records(place.runs.parent / "results")
    heads = [r for r in found if r["phase"] == "memory"]
    assert {r["case"].split(",")[0] for r in heads} == {"chunked", "logits"} and all(
        r["seconds"] > 0 for r in heads
    )
    as_it_is, compiled = (r["ratios"] for r in found if r["phase"] == "bias")
    assert as_it_is["none"]["ratio"] == compiled["none"]["ratio"] == 1
    assert as_it_is["gated"]["low"] <= as_it_is["gated"]["ratio"] <= as_it_is["gated"]["high"]
    lines = list(G.goals(place))
    assert len(lines) == 4 + 6 and all("less" in line for line in lines)


@pytest.mark.slow
def test_attention_by_form_and_length(place):
    "On a CPU the forms that it has."
    G.attention(place)
    found = {(r["form"], r["length"]): r for r in records(place.runs.parent / "results")}
    assert found.keys() == {(f, n) for f in ("without bias", "matrix") for n in (64, 128)}
    assert all(0 < r["low"] <= r["both_ms"] <= r["high"] for r in found.values())
    lines = list(G.goals(place))
    assert len(lines) == 4 and "without bias: 1.00 × without bias" in lines[0]


@pytest.mark.slow
def test_the_step_of_veco_in_three_forms(place):
    G.veco(place)
    found = records(place.runs.parent / "results")
    assert [r["case"] for r in found] == ["in parts", "at once", "with gradient"]
    assert all(r["seconds"] > 0 and r["peak_bytes"] > 0 for r in found)


def test_csls_of_all_words_with_all_words(place):
    G.csls(place)
    found = records(place.runs.parent / "results")
    assert [r["case"] for r in found] == [
        "first time",
        *(f"blocks of {n}" for n in ("2,048", "4,096", "8,192", "16,384")),
    ]
    assert all(r["agree"] == 200 for r in found)
    assert "200 of 200 as by brute force" in [*G.goals(place)][0]


def test_alignment_in_batches_and_one_at_a_time(place):
    G.align(place)
    single, half = records(place.runs.parent / "results")
    assert (single["case"], half["case"]) == ("float32", "bfloat16")
    # sums in bf16 depend on the batch
    assert single["different"] == 0 and half["different"] < half["pairs"] / 2
    for found in (single, half):
        assert (
            found["pairs"] == 24 < found["links"]
            and 0 < found["low"] <= found["ratio"] <= found["high"]
        )
        assert found["pairs_per_second"].keys() == {"batches", "one at a time"}
    lines = list(G.goals(place))
    assert len(lines) == 2 and "10 or more; the links of 0 of 24 pairs differ" in lines[0]


def test_sentences_a_second(place, monkeypatch):
    "With a reader of our own where sentence-transformers is not installed."
    if not G.findable("sentence_transformers"):
        monkeypatch.setattr(G, "findable", lambda name: True)
        monkeypatch.setattr(G, "sentence_transformer", plain_reader)
    G.encode(place)
    half, single = records(place.runs.parent / "results")
    assert (half["case"], single["case"]) == ("bfloat16", "float32")
    assert single["cosine"] > 0.9999 and half["cosine"] > 0.99
    assert "as fast as sentence-transformers" in [*G.goals(place)][0]


def plain_reader(folder, width, device, dtype, batch_size):
    "Means of the last states, a sentence at a time."
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()

    def read(texts):
        with torch.inference_mode():
            rows = [tokenizer(text, return_tensors="pt") for text in texts]
            return torch.stack([model(**row).last_hidden_state[0].mean(0) for row in rows])

    return read


@pytest.mark.parametrize(
    "phase, package", [("encode", "sentence-transformers"), ("finetune", "accelerate")]
)
def test_without_the_other_library_its_phase_is_left_out(
    place, monkeypatch, capsys, phase, package
):
    monkeypatch.setattr(G, "findable", lambda name: name != package.replace("-", "_"))
    G.PHASES[phase](place)
    assert f"{phase}: left out: it needs {package}" in capsys.readouterr().out


def test_fine_tuning_beside_another_library(place, monkeypatch):
    "With a loop of our own where the Trainer lacks accelerate."
    if not G.findable("accelerate"):
        monkeypatch.setattr(G, "findable", lambda name: True)
        monkeypatch.setattr(G, "trainer", plain_training)
    G.finetune(place)
    half, single = records(place.runs.parent / "results")
    assert (half["case"], single["case"]) == ("bf16", "fp32")
    assert half["tokens"] > 64 and half["per_second"].keys() == {"xlnb", "other"}
    assert "as fast as the Trainer" in [*G.goals(place)][0]


def plain_training(network, tokenizer, items, steps, precision, examples):
    "One example at a time."
    import torch

    optimizer = torch.optim.SGD(network.parameters(), 0.1)

    def run():
        for ids, label in zip(items.ids, items.targets):
            network(torch.tensor([ids]), labels=torch.tensor([label])).loss.backward()
            optimizer.step()

    return run


@pytest.mark.slow
def test_tests_pass_fail_or_are_left_out(place, tmp_path, capsys):
    head = "import pytest\n"
    cases = {
        "good": "@pytest.mark.gpu\ndef test_it(): pass\ndef test_other(): assert 0\n",
        "bad": "@pytest.mark.gpu\ndef test_it(): assert 0\n",
        "needs": "import no_such_thing\n",
    }
    files = {name: write(tmp_path / f"test_{name}.py", head + text) for name, text in cases.items()}
    with pytest.raises(SystemExit, match="tests: failed: test_bad.py$"):
        G.tests(place, files.values())
    said = capsys.readouterr().out
    assert "test_needs.py: left_out it needs no_such_thing" in said and "assert 0" in said
    good, bad, _ = records(tmp_path / "results")
    assert (good["case"], good["tests"], good["failures"]) == ("test_good.py", 1, 0)
    assert bad["error"] == "RuntimeError: 1 of 1 failed, 0 errors"
    write(files["bad"], head + cases["good"])
    G.tests(place, files.values())  # what failed is tried again


def test_what_fails_does_not_keep_the_others_from_their_turn(place, capsys):
    import torch

    def fails(o, error):
        raise error

    G.measured(place, "speed", "too large", fails, torch.OutOfMemoryError("CUDA out of memory"))
    G.end(place, "speed")  # that is a finding
    G.measured(place, "speed", "broken", fails, RuntimeError("a kernel"))
    with pytest.raises(SystemExit, match="speed: failed: broken"):
        G.end(place, "speed")
    assert [r.get("out_of_memory") for r in records(place.runs.parent / "results")] == [True, None]


@pytest.fixture
def bibles(tmp_path):
    "600 verses in four languages of invented words."
    draw = np.random.default_rng(0)
    letters = np.array(list("aeiobdgklmnrst"))
    files = {"en": "eng-eng-asv", "de": "deu-deu1912", "es": "spa-spaRV1909", "cs": "ces-ces1613"}
    meanings = [draw.integers(150, size=draw.integers(4, 12)) for _ in range(600)]
    for file in files.values():
        words = ["".join(draw.choice(letters, draw.integers(3, 8))) for _ in range(150)]
        verses = (
            f"GEN 1:{i}\t{' '.join(words[m] for m in meaning)}\n"
            for i, meaning in enumerate(meanings)
        )
        write(tmp_path / "data" / "bible" / f"{file}.tsv.gz", "".join(verses))
    return tmp_path / "data"


@pytest.mark.slow
def test_runs_on_bibles_from_the_command_line(bibles, tmp_path):
    "The whole way with processes of their own, where nothing is installed but what the program asks for."
    write(tmp_path / "hook" / "sitecustomize.py", HOOK)
    arguments = (
        "align",
        "bible",
        "--size",
        "tiny",
        "--device",
        "cpu",
        "--out",
        tmp_path / "results",
        "--runs",
        tmp_path / "runs",
    )
    here = dict(
        XLNB_DATA=str(bibles), XLNB_CACHE=str(tmp_path / "cache"), PYTHONPATH=str(tmp_path / "hook")
    )
    done = run(*arguments, **here)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 phases went through" in done.stdout
    found = records(tmp_path / "results", "03_xlm_e.bible")
    assert sorted((r["parameters"]["tasks"], r["parameters"]["mismatched"]) for r in found) == [
        (tasks, mismatched) for tasks in ("mlm+tlm", "mrtd+trtd") for mismatched in (False, True)
    ]
    for record in found:
        assert record["run"]["finished"] and record["parameters"]["precision"] == "bf16"
        assert "bible/de-en/layer3/acc@1c" in record["metrics"]
        assert ("bible/de-en/lsa/acc@1c" in record["metrics"]) != record["parameters"]["mismatched"]
    done = run(*arguments, **here)
    # none is run again
    assert done.returncode == 0 and len(records(tmp_path / "results", "03_xlm_e.bible")) == 4


@pytest.mark.slow
def test_metaxlm_on_bibles_from_the_command_line(bibles, tmp_path):
    "The monolingual phase and the cross-lingual one, and two runs from scratch."
    done = run(
        "meta",
        "--size",
        "tiny",
        "--device",
        "cpu",
        "--out",
        tmp_path / "results",
        "--runs",
        tmp_path / "runs",
        XLNB_DATA=str(bibles),
        XLNB_CACHE=str(tmp_path / "cache"),
    )
    assert done.returncode == 0 and "2 of 2 phases went through" in done.stdout, (
        done.stdout + done.stderr
    )
    found = {
        (r["parameters"]["parts"], r["parameters"]["steps"]): r
        for r in records(tmp_path / "results", "05_meta_xlm.bible")
    }
    assert found.keys() == {("both", 5), ("none", 5), ("none", 10)}
    assert found["both", 5]["meta"]["steps"] == 5 and all(
        r["run"]["finished"] for r in found.values()
    )


def test_without_cuda_it_says_so_and_ends_well():
    done = run(CUDA_VISIBLE_DEVICES="")
    assert (
        done.returncode == 0
        and done.stdout.startswith("gpu-check: skipped: torch ")
        and not done.stderr
    )


def test_without_cuda_nothing_else_is_asked_for(monkeypatch, capsys):
    real = G.find_spec
    monkeypatch.setattr(
        G, "find_spec", lambda name: None if name in ("pytest", "babel") else real(name)
    )
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert G.main([]) == 0 and "skipped" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_missing_is_named(monkeypatch, tmp_path):
    real = G.find_spec
    monkeypatch.setattr(
        G, "find_spec", lambda name: None if name in ("scipy", "pytest") else real(name)
    )
    assert "lacks scipy, pytest: install them" in G.missing(["tests"])
    monkeypatch.undo()
    assert G.missing(G.PHASES) is None and not G.findable("no.such.package")
    monkeypatch.setattr(G, "version", lambda name: "2.9.1+cu128")
    assert "torch is 2.9.1+cu128" in G.missing([])
    done = run("bible", "--device", "cpu", XLNB_DATA=str(tmp_path / "nowhere"))
    assert (
        done.returncode == 1
        and "nowhere' is not a folder" in done.stderr
        and "Traceback" not in done.stderr
    )


def test_all_phases_end_within_25_minutes(monkeypatch, tmp_path):
    assert G.LIMITS.keys() == G.PHASES.keys() and G.WHOLE == 25 * 60
    assert sum(seconds for name, seconds in G.LIMITS.items() if name != "data") <= G.WHOLE
    assert max(G.LIMITS[name] for name in G.SHAPES["base"]["learning"]) <= 10 * 60
    now = [0.0]
    # every phase takes all it is given, and its grace; no GPU and no process is needed
    given = {}

    def finish(name, seconds):
        given[name] = max(0.0, seconds)
        now[0] += given[name] + G.GRACE * (seconds > 0)
        return True

    for name, instead in {
        "begin": lambda name, o: name,
        "finish": finish,
        "without_gpu": lambda: None,
    }.items():
        monkeypatch.setattr(G, name, instead)
    # main sets them
    for name in ("XLNB_ROOT", "XLNB_RESULTS"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(G.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(G.signal, "signal", lambda *_: None)
    monkeypatch.setattr(G, "learned", lambda o: [])
    assert G.main(["--out", str(tmp_path), "--runs", str(tmp_path)]) == 0
    assert given.keys() == G.LIMITS.keys() - {"data"} and now[0] <= G.WHOLE


def test_runs_end_with_their_phase(place, monkeypatch):
    "Four processes that would go on for long, and a phase that is stopped at its limit."
    given = {"corpus": "multi30k", "size": "tiny", "seed": 0}
    begun = []
    start = subprocess.Popen

    def sleeping(command, **options):
        begun.append(start([sys.executable, "-c", "import time; time.sleep(600)"], **options))
        if len(begun) == 2:
            G.signal.alarm(1)
        return begun[-1]

    monkeypatch.setattr(
        G, "unrecorded", lambda o, phase: [(f"arm {n}", {**given, "n": n}) for n in range(4)]
    )
    monkeypatch.setattr(G.subprocess, "Popen", sleeping)

    def stop(*_):
        raise SystemExit(1)

    previous = G.signal.signal(G.signal.SIGALRM, stop)
    try:
        with pytest.raises(SystemExit):
            G.learning(place, "captions")
    finally:
        G.signal.signal(G.signal.SIGALRM, previous)
    assert len(begun) == 2 and all(process.poll() is not None for process in begun)
