"The main job from outside: killed and resumed, on two processes, and given what it cannot use."

import ast, json, math, os, random, re, shutil, signal, subprocess, sys, time
from dataclasses import fields, replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer
from warm import run_module

from xlnb.base.core import torch_generator
from xlnb.encoder.encoder import EncoderConfig
from xlnb.training.objectives import MaskIds, info_nce
from xlnb.training.training import (
    CheckpointError,
    NonFiniteLoss,
    accumulate_gradients,
    read_log,
    step_work,
)
from xlnb.measures.alignment import trained_on_pairs
from xlnb import xlm_e
from xlnb.pretraining import pretraining
from xlnb.pretraining.experiments import run_identity, renamed_parameters
from xlnb.pretraining.held_out import MeasuredNetworks, hold_out, pair_metrics
from xlnb.pretraining.pretraining import held_out_spec, main, train_phase, training_config
from xlnb.xlm_e import (
    PHASE,
    RECIPE,
    Corruption,
    Settings,
    XlmE,
    compare_with_paper,
    corruption_rows,
    describe,
    make_batches,
    plot_corruption,
    prepare_data,
    resolve,
    sides_apart,
    untrained_gain,
)

SHORT = dict(
    steps=6, batch_tokens=256, test_lines=20, langs="en,ru", max_minutes=20.0, width=32, layers=2
)


def arguments(**changes):
    return [
        w for k, v in {**SHORT, **changes}.items() for w in (f"--{k.replace('_', '-')}", str(v))
    ]


def run(*launcher, **changes):
    "The main job as a process of its own; returns what it wrote, or fails with it."
    if not launcher:
        return run_module("xlnb.xlm_e", *arguments(**changes), timeout=600)
    command = [sys.executable, *launcher, *arguments(**changes)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600
    )


@pytest.fixture(scope="module", autouse=True)
def results(tmp_path_factory):
    "Records of test runs go to a folder of their own."
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # of the processes
        patch.setenv("XLNB_RESULTS", str(tmp_path_factory.mktemp("results")))
        yield


@pytest.fixture(scope="module")
def data():
    return prepare_data(resolve(Settings(**SHORT)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    "The folder of an uninterrupted run."
    folder = tmp_path_factory.mktemp("whole")
    done = run(out=folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "finished: 6 of 6 steps" in done.stdout
    return folder


def weights(folder):
    return load_file(folder / "discriminator" / "model.safetensors")


def same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], **(tolerance or dict(rtol=0, atol=0)))


def train(settings):
    train_phase(PHASE, settings, prepare_data(settings))


def test_killed_five_times_and_resumed_to_the_same_bits(tmp_path):
    "Killed are processes forked from one that has imported; the command itself ends the run."
    long = dict(steps=100, checkpoint_minutes=0.001)
    killed = tmp_path / "killed"
    forking = get_context("forkserver")
    forking.set_forkserver_preload(["xlnb.xlm_e"])

    def begun(out):
        process = forking.Process(
            target=train, args=[resolve(Settings(**{**SHORT, **long, "out": str(out)}))]
        )
        process.start()
        return process

    whole = begun(tmp_path / "whole")
    whole.join()
    assert whole.exitcode == 0
    draw = random.Random(0)
    for _ in range(5):
        before = len(read_log(killed))
        process = begun(killed)
        limit = time.monotonic() + 120
        while len(read_log(killed)) <= before + 1 and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(draw.random() * 0.2)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "the run was over before it could be killed"
    done = run(out=killed, **long)
    assert done.returncode == 0, done.stderr[-2000:]
    same(weights(tmp_path / "whole"), weights(killed))
    logs = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in read_log(tmp_path / name)]
        for name in ("whole", "killed")
    ]
    assert logs[0] == logs[1]
    assert not list(killed.glob(".checkpoint*")), "a half-written checkpoint was left behind"


# sums in another order differ in the last bits; after more steps one may decide a drawn token
FIRST = dict(steps=4)


@pytest.fixture(scope="module")
def first_steps(tmp_path_factory):
    "The folder of a run of a few steps by one process."
    folder = tmp_path_factory.mktemp("first")
    assert run(out=folder, **FIRST).returncode == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_train_the_same_model(tmp_path, first_steps, parallel):
    launcher = (
        "-m",
        "torch.distributed.run",
        "--nproc-per-node=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0",
        "-m",
        "xlnb.xlm_e",
    )
    done = run(*launcher, out=tmp_path, parallel=parallel, **FIRST)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("FLOPs (forward") == 1, "one process says once what the run will cost"
    # of a learning rate of 2e-3 and float32 sums
    same(weights(first_steps), weights(tmp_path), rtol=1e-3, atol=1e-4)
    for one, two in zip(read_log(first_steps), read_log(tmp_path), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)


@pytest.mark.slow
def test_each_network_loads_by_itself(whole):
    for part in ("generator", "discriminator"):
        model = AutoModel.from_pretrained(whole / part)
        tokenizer = AutoTokenizer.from_pretrained(whole / part)
        states = model(
            **tokenizer(["cold water", "вода"], padding=True, return_tensors="pt")
        ).last_hidden_state
        assert states.shape[-1] == 32 and states.isfinite().all()
        code = (whole / part / "README.md").read_text().split("```python")[1].split("```")[0]
        opened = {}
        exec(code.replace("path/of/this/folder", str(whole / part)), opened)
        assert type(opened["model"]) is type(model)


def test_a_checkpoint_of_another_run_is_refused(whole, data):
    other = resolve(Settings(**{**SHORT, "rtd_weight": 7.0, "out": str(whole)}))
    with pytest.raises(CheckpointError, match="rtd_weight is 5.0 there, 7.0 here"):
        train_phase(PHASE, other, data)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, data):
    def broken(settings, data):
        model = PHASE.model(settings, data)
        torch.nn.init.constant_(model.generator.head.bias, float("nan"))
        return model

    settings = resolve(Settings(**SHORT, out=str(tmp_path)))
    phase = replace(PHASE, model=broken)
    says = "not finite at step 0: lower the learning rate"
    with pytest.raises(NonFiniteLoss, match=says):
        train_phase(phase, settings, data)
    assert {p.name for p in tmp_path.iterdir()} == {".lock", "log.jsonl"}


def test_a_command_whose_loss_is_no_number_ends_with_a_sentence(monkeypatch):
    def fails(*_):
        raise NonFiniteLoss("loss not finite at step 3: lower the learning rate")

    monkeypatch.setattr(pretraining, "_run", fails)
    with pytest.raises(
        SystemExit, match="xlnb: loss not finite at step 3: lower the learning rate"
    ):
        main(RECIPE, [])


@pytest.mark.parametrize(
    "changes, says",
    [
        (dict(langs="en,rx"), "language 'rx' is not one of"),
        (
            dict(size="bse"),
            "size='bse' is not one of tiny, small, base, large, xl; did you mean 'base'?",
        ),
        (dict(sise="base"), "Unrecognized options: --sise"),
        (dict(vocab_size=200_000), "vocab_size|vocabulary|size="),
        (dict(corpus="multi30k", langs="en,de"), "XLNB_DATA"),
        (dict(recipe="paper", size="xl", width=64), "base only"),
        (dict(steps="many"), "Error parsing --steps"),
    ],
)
def test_what_cannot_be_used_ends_with_a_sentence(changes, says, tmp_path, monkeypatch):
    monkeypatch.delenv("XLNB_DATA", raising=False)
    with pytest.raises(SystemExit, match=f"^xlnb: .*({says})"):
        main(RECIPE, arguments(out=tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_sentence_is_all_that_a_command_says(tmp_path):
    done = run(out=tmp_path / "run", size="bse")
    assert (
        done.returncode == 1
        and done.stderr.startswith("xlnb: size='bse' is not")
        and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize(
    "changes, says",
    [
        (
            dict(mismatched="false"),
            "mismatched='false' is not of type bool",
        ),  # papermill's `-p mismatched false`
        (dict(rtd_weight="5,0"), "rtd_weight='5,0' is not of type float"),
        (dict(steps=0), "steps=0 is not above 0"),
        (dict(steps=3, budget_flops=1e12), "give one of them"),
        (dict(norm="pst"), "norm='pst' is not one of"),
        (dict(pair_mask_rate=40.0), "pair_mask_rate=40.0 is not between 0 and 1"),
        (dict(langs="en"), "give two languages or more"),
        (dict(width=100), "width=100 is not a multiple of 32"),
        (dict(layers=0), "layers=0 is not above 0"),
        (dict(contrast=-1.0), "contrast=-1.0 is not 0 or more"),
        (dict(contrast=1.0, tasks="mrtd"), "it needs pairs"),
        (dict(micro_tokens=8), "a row may need"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, says):
    with pytest.raises(ValueError, match=says):
        resolve(Settings(**changes))


def networks(data, **changes):
    settings = resolve(Settings(**{**SHORT, **changes}))
    return XlmE(settings, MaskIds.of(data.tokenizer)), make_batches(settings, data)


def test_both_losses_reach_the_embedding_matrix_that_the_networks_share(data):
    model, batches = networks(data)
    matrix = model.generator.get_input_embeddings().weight
    assert model.discriminator.get_input_embeddings().weight is matrix
    batch = model.prepare(batches(0, batches.micro_batches - 1), torch_generator(0))
    for name in ("tlm", "trtd"):
        matrix.grad = None
        model.forward(batch, torch_generator(0))[name].backward()
        assert matrix.grad.any()


def test_records_under_former_names_are_read():
    current = {**run_identity(xlm_e.RECIPE, {"steps": 6000, "rtd_weight": 20.0})}
    former = {k: v for k, v in current.items() if k != "rtd_weight"}
    former |= {"lam": 20.0, "embedding_sharing": "shared"}
    former |= {"table": "one", "spans": None, "tied": True}
    assert renamed_parameters(former, xlm_e.RECIPE) == (current, [])
    assert describe({"parameters": former}) == describe({"parameters": current})
    removed = {"embedding_sharing": "separate", "table": "two", "spans": "geometric", "tied": False}
    for name, value in removed.items():
        _, unknown = renamed_parameters({**former, name: value}, xlm_e.RECIPE)
        assert unknown == [name]


def test_the_contrast_reads_each_sentence_alone(data):
    model, batches = networks(data, contrast=1.0)
    batch = model.prepare(batches(0, batches.micro_batches - 1), torch_generator(0))
    side = batch["side"][0].tolist()
    begins = batch["cu_seqlens"].tolist()
    seconds = [next(k for k in range(a, b) if side[k] == 2) for a, b in zip(begins, begins[1:])]
    assert sides_apart(batch).tolist() == sorted(begins + seconds)
    with torch.inference_mode():
        loss = model.forward(batch, torch_generator(0))["contrast"]
        words = torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])[0]

        def read(a, b):
            return model.discriminator.encoder(
                words[None, a:b], position_ids=batch["position_ids"][:, a:b]
            )

        means = [[], []]
        for a, m, b in zip(begins, seconds, begins[1:]):
            for k, (start, stop) in enumerate(((a, m), (m, b))):
                keep = torch.tensor(side[start:stop]) == k + 1
                means[k].append(read(start, stop).last_hidden_state[0][keep].mean(0))
        torch.testing.assert_close(
            loss, info_nce(*map(torch.stack, means))[0], rtol=1e-4, atol=1e-4
        )


def test_shape_of_the_networks_can_be_given(data):
    model, _ = networks(data, width=64, layers=4, generator_layers=2)
    found = [
        (c.num_hidden_layers, c.hidden_size, c.num_attention_heads, c.intermediate_size)
        for c in (model.discriminator.config, model.generator.config)
    ]
    assert (
        found == [(4, 64, 2, 256), (2, 64, 2, 256)] and model.settings.initializer_range == 64**-0.5
    )


@pytest.mark.parametrize(
    "tasks, losses", [("mlm", {"mlm"}), ("mlm+tlm", {"mlm", "tlm"}), ("mrtd", {"mlm", "mrtd"})]
)
def test_every_set_of_tasks_trains_and_logs_its_own_losses(tmp_path, tasks, losses):
    main(RECIPE, arguments(tasks=tasks, steps=3, out=tmp_path))
    assert {"mlm", "tlm", "mrtd", "trtd"} & read_log(tmp_path)[-1].keys() == losses
    kept = tmp_path / ("discriminator" if "rtd" in tasks else "generator")
    assert AutoModel.from_pretrained(kept).config.num_hidden_layers == 2


# 32 pairs of a language pair and 8; logits of scale 1 and 0.55
@pytest.mark.parametrize("size", ["tiny", "base"])
def test_the_gain_of_an_untrained_network_is_within_its_bound(size):
    settings = resolve(
        Settings(**{**SHORT, "size": size, "tasks": "mlm+tlm", "width": None, "batch_tokens": 512})
    )
    data = prepare_data(settings)
    texts = hold_out(data, held_out_spec(settings, settings.masking)).partners
    ids = MaskIds.of(data.tokenizer)
    holes = sum(int((text.true["scored"] & (text.true["labels"] >= 0)).sum()) for text in texts)
    for seed in range(4):
        network = XlmE(replace(settings, seed=seed), ids).generator
        gains = [
            pair_metrics(MeasuredNetworks(network, network), text, ids)["tlm_gap"] for text in texts
        ]
        assert abs(sum(gains) / len(gains)) < untrained_gain(settings, holes)


# ---- figure 2 and the notebook's first page
# --------------------------------------------------------------------------


class ToyTokenizer:
    pieces = ("<s>", "\u2581", "\u2581cold", "\u2581вода", "<pad>")

    def convert_ids_to_tokens(self, ids):
        return [self.pieces[k] for k in ids]


def test_rows_of_a_corrupted_batch():
    batch = {
        "input_ids": torch.tensor([[0, 9, 9, 1], [0, 9, 4, 4]]),
        "labels": torch.tensor([[-100, 2, 3, -100], [-100, 3, -100, -100]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]),
    }
    corrupted = torch.tensor([[0, 2, 2, 1], [0, 2, 4, 4]])
    first, second = corruption_rows(batch, corrupted, torch.zeros(2, 4), ToyTokenizer())
    assert first == Corruption(
        ["<s>", "cold", "вода", "_"],
        [False, True, True, False],
        ["<s>", "cold", "cold", "_"],
        [False, False, True, False],
        [0.5] * 4,
    )
    assert second.text == ["<s>", "вода"] and second.replaced == [False, True], (
        "padding is left out"
    )


def test_figure_2_shows_every_probability_and_the_base_rate():
    row = Corruption(
        ["<s>", "cold", "вода"],
        [False, False, True],
        ["<s>", "cold", "heiß"],
        [False, False, True],
        [0.02, 0.11, 0.87],
    )
    _, bottom = plot_corruption(row, 0.15).axes
    assert [bar.get_height() for bar in bottom.patches] == row.probability
    assert [text.get_text() for text in bottom.texts] == [
        "2",
        "11",
        "87",
        "share of replaced\ntokens: 15%",
    ]
    assert list(bottom.lines[0].get_ydata()) == [0.15, 0.15]
    colours = [bar.get_facecolor() for bar in bottom.patches]
    assert colours[0] == colours[1] != colours[2], "what was replaced has a colour of its own"


NOTEBOOK = Path(__file__).parents[1] / "nbs" / "03_xlm_e.ipynb"


def code_cells(path):
    return [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]


def test_the_opening_needs_no_parameter():
    "papermill sets them in a cell after the one tagged, which stands below the first figure."
    cells = code_cells(NOTEBOOK)
    (tagged,) = (
        n for n, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])
    )
    assert any("image/png" in o.get("data", {}) for cell in cells[:tagged] for o in cell["outputs"])
    nodes = [
        node for cell in cells[:tagged] for node in ast.walk(ast.parse("".join(cell["source"])))
    ]
    names = [(node.id, type(node.ctx)) for node in nodes if isinstance(node, ast.Name)]
    read, made = ({name for name, use in names if use is kind} for kind in (ast.Load, ast.Store))
    assert (read - made) & {field.name for field in fields(Settings)} == set()


def test_imports_and_parameters_stay_collapsed(checkout):
    path = checkout / "nbs" / NOTEBOOK.name
    tool = shutil.which("nbdev_clean", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run([tool, "--fname", str(path)], check=True, cwd=checkout)

    def imports(cell):
        return re.match(r"(#\|.*\n)?(import|from) ", "".join(cell["source"]))

    plumbing = [
        c for c in code_cells(path) if imports(c) or "parameters" in c["metadata"].get("tags", [])
    ]
    assert len(plumbing) == 4 and all(
        c["metadata"].get("jupyter") == {"source_hidden": True} for c in plumbing
    )


@pytest.mark.parametrize(
    "changes, lacks",
    [
        (
            dict(tasks="mlm+tlm", pair_mask_rate=0.05),
            lambda batch: (batch["labels"] == -100).all(),
        ),  # no hole
        # one pair
        (dict(contrast=1.0), lambda batch: "side" in batch and len(batch["cu_seqlens"]) == 2),
    ],
)
def test_a_batch_that_has_nothing_for_a_loss_does_not_end_the_run(changes, lacks):
    settings = resolve(
        Settings(langs="en,de", width=32, layers=2, test_lines=20, parallel_share=0.2, **changes)
    )
    data = prepare_data(settings)
    model = PHASE.model(settings, data)
    batches = make_batches(settings, data)
    works = (step_work(model, batches, training_config(settings), step) for step in range(100))
    work = next(work for work in works if any(lacks(part.batch) for part in work))
    sums, _ = accumulate_gradients(model, work)
    assert all(map(math.isfinite, sums.values()))


@pytest.mark.parametrize(
    "size, network, generator",
    [
        ("tiny", "12 × 768 (12 heads, 3072)", "4 × 768"),
        ("base", "12 × 768 (12 heads, 3072)", "4 × 768"),
        ("large", "24 × 1024 (16 heads, 4096)", "6 × 1024"),
        ("xl", "48 × 1536 (24 heads, 6144)", "8 × 1536"),
    ],
)
def test_the_comparison_shows_the_papers_column_for_the_size(size, network, generator):
    "Tables 8 and 9 have three sizes, and Table 10 base alone."
    rows = {row[""]: row for row in compare_with_paper(resolve(Settings(size=size)))}
    assert (rows["network"]["paper"], rows["generator"]["paper"]) == (network, generator)
    of_base = [
        rows[name]["paper"] == "not given"
        for name in ("steps", "tokens per task and step", "learning rate", "schedule", "Adam")
    ]
    assert of_base == [size in ("large", "xl")] * 5
    if size != "tiny":
        assert rows["network"]["this run"] == network


@pytest.mark.parametrize(
    "tasks, pairs", [("mrtd+trtd", True), ("mrtd", False), ("mlm+tlm", True), ("mlm", False)]
)
def test_a_saved_network_says_whether_it_has_read_pairs(tmp_path, tasks, pairs):
    model = XlmE(
        resolve(Settings(tasks=tasks, width=32, layers=2, vocab_size=300)),
        MaskIds(4, (0, 1, 2, 3, 4), 300),
    )
    model.save_pretrained(tmp_path)
    stated = {
        part: trained_on_pairs(EncoderConfig.from_pretrained(tmp_path / part))
        for part in model.parts()
    }
    assert stated == dict.fromkeys(model.parts(), pairs)
