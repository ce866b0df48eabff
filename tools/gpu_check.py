"""What only a GPU can show of xlnb, from a checkout: it need not be installed, nor nbdev, papermill or Jupyter.

    python tools/gpu_check.py                          all of it; it stops after 25 minutes at most
    python tools/gpu_check.py speed memory             some phases; those that there are:

data    what those that train read, and its baselines, on the CPU; runs beside the other phases
tests   the tests marked `gpu`
speed   tokens/s and share of the peak of a training step: micro-batch, attention, head, packed or padded, compiled
memory  of loss and sample beyond the embedding matrix and its gradient, by form of the head
attention  milliseconds and memory of attention by length: without bias, in one pass, FlexAttention, with the matrix
bias    the step with gated relative bias against the step without
veco    the step of CA-MLM + TLM: losses one after the other, at once, and with the gradient into the partner
align   pairs/s of word alignment in batches against one pair at a time, and whether both find the same links
encode  sentences/s of one encoder by this library and by sentence-transformers, in turns
finetune    examples/s of fine-tuning one network by this library and by the Trainer of transformers, in turns
csls    seconds of CSLS of all words with all words, and whether it finds what brute force finds
captions  the experiment `wide` of XLM-E, its runs side by side; retrieval and word alignment by layer
bible   its experiment `bible`, two runs side by side, those on translations first
meta    the experiment `base` of MetaXLM, its runs side by side

Every measurement is a record as soon as it ends (`data/results/gpu.jsonl`, runs `<notebook>.<corpus>.jsonl`; --out
names another folder), and what the same code has on record from the same GPU is not measured again, nor is a run that
is on record: what was stopped is taken up by the same command. Captions and Bibles come from the folder that XLNB_DATA
names. Without CUDA nothing is done.

Needs Python 3.11 to 3.13, torch from 2.11 on, and transformers, tokenizers, safetensors, sentencepiece, protobuf,
numpy, pandas, scipy, tqdm; `meta` also babel; `tests` also pytest, and leaves out files of tests that need more than
is here, as `encode` is left out without sentence-transformers, and `finetune` without accelerate.
"""

import argparse, functools, gc, json, multiprocessing, os, signal, subprocess, sys, time, traceback
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from unittest import mock
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
ALSO = {"tests": "pytest", "meta": "babel"}  # phase → what it needs beside
NEEDED = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "sentencepiece",
    "google.protobuf",
    "numpy",
    "pandas",
    "scipy",
    "tqdm",
)
# What is measured at each size. `head`: tokens of a micro-batch, ids, width of the table. `pairs`:
# to be aligned.
# `finetuned`: steps, width, layers.
# `csls`: words of each of two languages, width.
# `learning`: phase → paper, its experiment, how many runs side by side, what differs from its
# settings, from its arms.
FEW = dict(size="tiny", langs="de,en", steps=5, batch_tokens=256, micro_tokens=512, vocab_size=300)
FEW_FLOPS = dict(FEW, budget_flops=None)
FEW_META = dict(FEW, meta_steps=5, meta_vocab_size=150)
FEWER = {"from scratch, all steps": {"steps": 10}}
SHAPES = {
    "base": dict(
        vocab_size=250_002,
        lines=6000,
        micro=(8192, 16_384, 32_768, 65_536),
        middle=16_384,
        repeats=8,
        head=(65_536, 500_000, 768),
        attention=(65_536, (128, 256, 512, 1024, 2048, 4096)),
        sentences=(8192, 768, 12),
        finetuned=(300, 768, 12),
        pairs=192,
        csls=(200_000, 300),
        learning={
            "captions": ("xlm_e", "wide", 4, {}, {}),
            "bible": ("xlm_e", "bible", 2, {}, {}),
            "meta": ("meta_xlm", "base", 3, {}, {}),
        },
    ),
    "tiny": dict(
        vocab_size=2000,
        lines=200,
        micro=(128, 256),
        middle=128,
        repeats=2,
        head=(512, 3000, 32),
        attention=(512, (64, 128)),
        sentences=(64, 64, 2),
        finetuned=(2, 64, 2),
        pairs=24,
        csls=(500, 16),
        learning={
            "captions": ("xlm_e", "wide", 2, FEW_FLOPS, {}),
            "bible": ("xlm_e", "bible", 2, FEW_FLOPS, {}),
            "meta": ("meta_xlm", "base", 3, FEW_META, FEWER),
        },
    ),
}


# ---- what every phase uses


def measured(o, phase: str, case: str, measure, *arguments, **options) -> dict:
    "A record: the one there is, or of what `measure` finds now; one that fails is told, and the next has its turn."
    if found := next(
        (r for r in reversed(on_record(o, phase)) if r["case"] == case and "error" not in r), None
    ):
        return found
    from xlnb.base.core import append_record
    import torch

    try:
        found = measure(o, *arguments, **options)
    except torch.OutOfMemoryError:
        found = {"out_of_memory": True}
    except (
        Exception
    ) as e:  # of whatever kind: what follows may still be worth its time on this machine
        traceback.print_exc()
        found = {"error": f"{type(e).__name__}: {e}"[:500]}
    record = {"phase": phase, "case": case, **identity(o), **found}
    append_record("gpu", record)
    say(f"{phase}: {case}: {', '.join(f'{k} {shown(v)}' for k, v in found.items())}")
    return record


def identity(o) -> dict:
    from xlnb.base.core import run_facts

    return {"size": o.size, "device": o.device, "code": o.code, **run_facts()}


def on_record(o, phase: str) -> list[dict]:
    "Measurements by this code on this device."
    from xlnb.base.core import read_records

    here = {k: v for k, v in identity(o).items() if k in ("size", "device", "code", "gpu")} | {
        "phase": phase
    }
    return [r for r in read_records("gpu") if all(r.get(k) == v for k, v in here.items())]


def end(o, phase: str):
    "Raise `SystemExit` if the last word on a measurement is that it failed."
    last = {r["case"]: r for r in on_record(o, phase)}
    if bad := [case for case, r in last.items() if "error" in r]:
        raise SystemExit(f"{phase}: failed: {'; '.join(bad)}")


def code_hash() -> str:
    "Of the library and of this program."
    from xlnb.base.core import sha256_file
    from xlnb.text.batches import short_hash

    return short_hash(
        [sha256_file(p) for p in [*sorted((ROOT / "xlnb").rglob("*.py")), Path(__file__)]]
    )


def shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "; ".join(f"{k} {shown(v)}" for k, v in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def say(text: str):
    print(text, flush=True)


# ---- a step of training


@contextmanager
def training_step(
    o,
    micro: int,  # tokens of text, and as many of pairs
    matrix: bool = False,  # the relative bias as one
    head: str = "",  # form of the vocabulary head; '': by the device
    compiled: bool = False,
    positions: str = "gated",
    padded: bool = False,
):  # pairs, which are read packed
    "A step of XLM-E as asked for."
    import torch
    from xlnb.results import benchmarks
    from xlnb.training import objectives
    from xlnb.results.benchmarks import step_settings
    from xlnb.encoder.encoder import compile_blocks
    from xlnb.xlm_e import make_batches

    free(o)
    settings = step_settings(o.size, o.shape["vocab_size"], **step_shape(micro))
    data = words(o)
    model = deepcopy(networks(o, positions))
    step = benchmarks.training_step(model, make_batches(settings, data), settings)
    if padded:
        step.work[:] = [part._replace(batch=padded_form(part.batch)) for part in step.work]
    if compiled:
        compile_blocks(step.model, "inductor" if o.device == "cuda" else "aot_eager")
    form = head or objectives.head_form(torch.device(o.device), torch.bfloat16)
    with mock.patch.object(objectives, "head_form", lambda *_: form):
        with without_one_pass() if matrix else nullcontext():
            yield step


def without_one_pass():
    "Inside, the relative bias is a matrix."
    from xlnb.encoder import encoder

    return mock.patch.object(encoder, "_fused_obstacle", lambda *_: "the matrix is measured")


def padded_form(batch: dict) -> dict:  # as ours read it; they know sides of packed pairs alone
    from xlnb.text.tokens import unpack
    from xlnb.training.objectives import without_host_facts

    batch = without_host_facts(batch)
    if "cu_seqlens" not in batch:
        return batch
    return {k: v for k, v in unpack(batch).items() if k != "side"}


def networks(o, positions: str):
    "Generator and discriminator, made once."
    from xlnb.results.benchmarks import KINDS, step_settings
    from xlnb.training.objectives import MaskIds

    if positions not in o.networks:
        settings = step_settings(o.size, o.shape["vocab_size"], relative_positions=positions)
        with undrawn():
            made = KINDS["xlnb"](settings, MaskIds.of(words(o).tokenizer)).to(o.device)
        o.networks[positions] = draw(made)
    return o.networks[positions]


@contextmanager
def undrawn():
    "Networks that are made here have zeros, and `draw` the rest: on the CPU that takes longer than to measure a step."
    import torch

    def left(tensor, *_, **__):
        return tensor.zero_()

    with mock.patch.multiple(torch.Tensor, normal_=left, uniform_=left):
        yield


def draw(network):
    "The network, its matrices drawn where they lie."
    import torch

    with torch.no_grad():
        for matrix in (p for p in network.parameters() if p.ndim > 1):
            matrix.normal_(0, 0.02)
    return network


def free(o):
    "Memory of steps that are over."
    import torch

    gc.collect()
    if o.device == "cuda":
        torch.cuda.empty_cache()


def step_shape(micro: int) -> dict:
    return dict(batch_tokens=micro, micro_tokens=micro, precision="bf16")


def words(o):
    "A store of words without meaning, made once."
    from xlnb.results.benchmarks import synthetic_data

    return synthetic_data(o.shape["vocab_size"], o.shape["lines"], folder=o.runs)


def step_flops(step) -> int:
    "Model FLOPs of a step: three times the forward pass, at the lengths that its rows have; the head at masked places."
    from xlnb.encoder.encoder import forward_flops
    from xlnb.encoder.heads import head_flops

    configs = [getattr(step.model, part).config for part in step.model.parts()]
    total = 0
    for batch, *_ in step.work:
        lengths = (
            batch["cu_seqlens"].diff() if "cu_seqlens" in batch else batch["attention_mask"].sum(1)
        )
        total += sum(n * forward_flops(c, n) for c in configs for n in lengths.tolist())
        total += int((batch["labels"] != -100).sum()) * head_flops(configs[0])
    return 3 * total


def throughput(o, micro: int, **how) -> dict:
    "Seconds of a step, and of loading its batches, which is not in them; tokens/s, share of the peak, peak memory."
    from xlnb.results.benchmarks import batch_facts, compare, peak_memory, seconds_of
    from xlnb.pretraining.plans import device_peak

    repeats = o.shape["repeats"]
    with training_step(o, micro, **how) as step:
        facts = batch_facts(step.work)
        seconds = median(compare({"": step}, repeats, o.device, warm=3)[""])
        loading = median(seconds_of(step.load, o.device) for _ in range(repeats))
        return {
            **facts,
            "seconds": seconds,
            "loading_seconds": loading,
            "tokens_per_second": facts["tokens"] / seconds,
            "mfu": step_flops(step) / seconds / device_peak()[1],
            "peak_bytes": peak_memory(step, o.device),
        }


# ---- the phases


def tests(o, files=None):
    "The tests marked `gpu`: those of attention, which compile most, alone, then all other files at the same time."
    files = files or [
        p
        for p in sorted((ROOT / "tests").glob("test_*.py"))
        if "\n@pytest.mark.gpu" in p.read_text()
    ]
    known = {r["case"] for r in on_record(o, "tests") if not {"error", "left_out"} & r.keys()}
    left = [path for path in files if path.name not in known]
    many = [path for path in left if path.name == MOST_TESTS]
    for group, workers in ((many, os.cpu_count()), ([p for p in left if p not in many], 2)):
        with together() as begun:
            for path in group:
                test_process(o, path, workers, begun)
            for path, process in zip(group, begun):
                measured(o, "tests", path.name, outcome, path, process)
    end(o, "tests")


MOST_TESTS = "test_attention.py"


def test_process(o, path: Path, workers: int, begun: list):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-qm",
        "gpu",
        "-p",
        "no:cacheprovider",
        *(["-n", str(workers)] if findable("xdist") else []),  # most of it is compilation
        f"--junitxml={report(o, path)}",
    ]
    start([*command, path], report(o, path, "log"), begun)


def start(command: list, log: Path, begun: list, **variables):
    "Begin a process in a group of its own, which those that it starts end with."
    with open(log, "w") as said:
        begun.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment() | variables,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        )


@contextmanager
def together():
    "A list of processes, which end with the block; a training has the time to save its last step."
    begun = []
    try:
        yield begun
    finally:
        send(begun, signal.SIGINT)
        late = time.monotonic() + GRACE / 2  # of the phase
        while any(process.poll() is None for process in begun) and time.monotonic() < late:
            time.sleep(0.1)
        send(begun, signal.SIGKILL)  # a checkpoint gets its name when it is whole
        for process in begun:
            process.wait()


def send(processes: list, number: int):
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def report(o, path: Path, kind="xml") -> Path:
    return o.runs / f"{path.stem}.{kind}"


def outcome(o, path: Path, process) -> dict:
    "How many tests there were, failed, or were skipped; raises `RuntimeError` if any failed."
    process.wait()
    said = report(o, path, "log").read_text()
    suite = ElementTree.parse(report(o, path)).getroot()[0]
    count = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
    lacking = sorted(
        {line.split("'")[1] for line in said.splitlines() if "No module named '" in line}
    )
    if count["errors"] and lacking:
        return {"left_out": f"it needs {', '.join(lacking)}"}
    if count["failures"] or count["errors"]:
        say(said[-6000:])
        raise RuntimeError(
            f"{count['failures']} of {count['tests']} failed, {count['errors']} errors"
        )
    return {**count, "seconds": float(suite.get("time"))}


def environment() -> dict:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }


def speed(o):
    "Micro-batches first; then, at the fastest, one thing is changed at a time."

    def at(micro, **how):
        case = ", ".join([f"{micro} tokens", *(f"{k} {v}" for k, v in how.items())])
        return measured(o, "speed", case, throughput, micro, **how)

    found = {micro: at(micro).get("tokens_per_second", 0.0) for micro in o.shape["micro"]}
    best = max(found, key=found.get)
    measured(o, "speed", f"{best} tokens, by part", parts, best)
    at(best, head="chunked")
    at(best, padded=True)
    at(best, compiled=True)
    profiled = {
        f"{o.shape['micro'][0]} tokens": (o.shape["micro"][0], {}),
        f"{best} tokens": (best, {}),
        f"{best} tokens, compiled True": (best, {"compiled": True}),
    }
    for case, (micro, how) in profiled.items():
        measured(o, "speed", f"{case}, by kernel", kernels, micro, **how)
    at(best, matrix=True)
    at(best, matrix=True, compiled=True)
    end(o, "speed")


def parts(o, micro: int) -> dict:
    "Seconds by part, waiting for the GPU after each."
    from xlnb.results.benchmarks import step_settings, time_by_part

    free(o)
    settings = step_settings(o.size, o.shape["vocab_size"], **step_shape(micro))
    return {"seconds": time_by_part(settings, words(o), 5, o.device)}


def kernels(o, micro: int, **how) -> dict:
    "Seconds of a step on the device, and the shares of what takes most of them: of operations, of kernels by name."
    from torch.profiler import ProfilerActivity, profile
    from xlnb.results.benchmarks import seconds_of

    with training_step(o, micro, **how) as step:
        for _ in range(3):
            step()
        with profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * (o.device == "cuda")]
        ) as seen:
            seconds_of(step, o.device)  # waits for what the step began
    return shares_of(seen, o.device)


def shares_of(seen, device: str) -> dict:  # of a profile
    "Seconds on the device; the share of each of the 12 operations that take most of them, and of as many kernels."
    import torch

    # entries of the device are the same once more, by name of kernel
    kind = "device" if device == "cuda" else "cpu"
    entries = {
        by: {
            e.key: getattr(e, f"self_{kind}_time_total")
            for e in seen.key_averages()
            if (e.device_type == torch.autograd.DeviceType.CPU) == (by == "shares")
        }
        for by in ("shares", "kernels")
    }
    total = sum(entries["shares"].values())

    def most(times):
        return sorted((k for k in times if times[k]), key=times.get, reverse=True)[:12]

    return {
        "seconds": total / 1e6,
        **{by: {k[:80]: times[k] / total for k in most(times)} for by, times in entries.items()},
    }


def memory(o):
    "Forward and backward pass of the head: what it takes at its height, less the gradients that stay."
    tokens, size, width = o.shape["head"]
    for form in ("triton", "chunked", "logits") if o.device == "cuda" else ("chunked", "logits"):
        # whether the table has a gradient already, as in the second micro-batch of a step
        for held in (False, True):
            case = f"{form}, {tokens} tokens, {size} ids{', gradients held' if held else ''}"
            measured(o, "memory", case, head_memory, form, round(0.15 * tokens), size, width, held)
    end(o, "memory")


def head_memory(o, form: str, rows: int, size: int, width: int, held: bool) -> dict:
    "Bytes of loss, sample and gradients beyond table, bias and their gradients; seconds."
    import torch

    free(o)
    from xlnb.results.benchmarks import peak_memory, plain_head, seconds_of
    from xlnb.base.core import torch_generator
    from xlnb.training.objectives import vocabulary_head

    g = torch_generator("memory", device=o.device)
    hidden, weight, bias = (
        (0.02 * torch.randn(*shape, generator=g, device=o.device)).requires_grad_()
        for shape in ((rows, width), (size, width), (size,))
    )
    labels = torch.randint(size, (rows,), generator=g, device=o.device)

    def call():
        with torch.autocast(o.device, torch.bfloat16):
            if form == "logits":
                loss = plain_head(torch.nn.functional.linear(hidden, weight, bias), labels, g)[0]
            else:
                loss = vocabulary_head(
                    hidden, weight, bias, labels, sample=True, generator=g, form=form
                ).loss_sum
        loss.backward()

    if held:
        call()
    kept = 0 if held else sum(4 * x.numel() for x in (weight, bias))
    taken = peak_memory(call, o.device) - kept
    return {
        "bytes": taken,
        "seconds": median(seconds_of(call, o.device) for _ in range(3)),
        "logit_bytes": 4 * rows * size,
    }


def attention(o):
    "Forms of attention by length, as many tokens at each."
    from xlnb.results.benchmarks import ATTENTION_FORMS

    tokens, lengths = o.shape["attention"]
    for form in ATTENTION_FORMS if o.device == "cuda" else ("without bias", "matrix"):
        for length in lengths:
            case = f"{form}, length {length}"
            measured(o, "attention", case, attending, form, length, tokens)
    end(o, "attention")


def attending(o, form: str, length: int, tokens: int) -> dict:
    "Milliseconds forward, and forward and backward; bytes at the height of the latter."
    from xlnb.results.benchmarks import attention_times

    free(o)
    return {"form": form, "length": length, **attention_times(form, length, tokens, o.device)}


def bias(o):
    "Whole steps in turns; the ratio is that of a round's times."
    kinds = {
        "none": dict(positions="none"),
        "gated": {},
        "gated, matrix": dict(matrix=True),
    }
    measured(o, "bias", "as it is", in_turns, kinds)
    measured(
        o,
        "bias",
        "compiled",
        in_turns,
        {name: dict(how, compiled=True) for name, how in kinds.items()},
    )
    end(o, "bias")


def in_turns(o, kinds: dict) -> dict:  # name → how
    from xlnb.results.benchmarks import compare, ratios

    with ExitStack() as stack:
        steps = {
            name: stack.enter_context(training_step(o, o.shape["middle"], **how))
            for name, how in kinds.items()
        }
        seconds = compare(steps, o.shape["repeats"], o.device, warm=3)
    return {
        "seconds": {k: median(v) for k, v in seconds.items()},
        "ratios": ratios(seconds, "none"),
    }


def veco(o):
    "Losses one after the other, which halves what is held, at once, and with the gradient into the partner."
    from xlnb.results.benchmarks import CROSSINGS

    for kind in CROSSINGS:
        measured(o, "veco", kind, crossing, kind)
    end(o, "veco")


def crossing(o, kind: str) -> dict:
    "Seconds of a step, which reads as many tokens of text as of pairs, and peak memory."
    from xlnb.results.benchmarks import compare, crossing_step, peak_memory

    free(o)
    micro = o.shape["middle"]
    with undrawn():
        step = crossing_step(
            kind, o.size, micro, words(o), o.device, micro_tokens=micro, precision="bf16"
        )
    draw(step.model)
    seconds = median(compare({"": step}, o.shape["repeats"], o.device, warm=3)[""])
    return {"tokens": 2 * micro, "seconds": seconds, "peak_bytes": peak_memory(step, o.device)}


def align(o):
    "An untrained encoder as a folder would be loaded, and in bf16."
    for dtype in ("float32", "bfloat16"):
        measured(o, "align", dtype, linking, dtype)
    end(o, "align")


def encode(o):
    "An untrained encoder in bf16, and as it was loaded."
    beside(o, "encode", "sentence-transformers", ("bfloat16", "float32"), reading)


def beside(o, phase: str, package: str, cases: tuple, measure):
    "What is measured beside another library, where there is that package."
    if not findable(package.replace("-", "_")):
        return say(f"{phase}: left out: it needs {package}")
    for case in cases:
        measured(o, phase, case, measure, case)
    end(o, phase)


def reading(o, dtype: str) -> dict:
    from xlnb.results.benchmarks import encoding

    free(o)
    return encoding(sentence_transformer, *o.shape["sentences"], device=o.device, dtype=dtype)


def sentence_transformer(folder, width: int, device: str, dtype: str, batch_size: int):
    "A function from sentences to vectors by that library: mean of the last layer."
    import torch
    from sentence_transformers import SentenceTransformer, models

    body = models.Transformer(folder, model_kwargs={"dtype": getattr(torch, dtype)})
    reader = SentenceTransformer(modules=[body, models.Pooling(width)], device=device)
    plain = dict(batch_size=batch_size, convert_to_tensor=True, show_progress_bar=False)
    return lambda texts: reader.encode(texts, **plain)


def finetune(o):
    "An untrained network in bf16, and in float32."
    beside(o, "finetune", "accelerate", ("bf16", "fp32"), tuning)  # which the Trainer needs


def tuning(o, precision: str) -> dict:
    from xlnb.results.benchmarks import fine_tuning

    free(o)
    return fine_tuning(trainer, *o.shape["finetuned"], device=o.device, precision=precision)


def trainer(network, tokenizer, items, steps: int, precision: str, examples: int):
    "A function that trains so many steps by transformers' Trainer."
    from tempfile import gettempdir
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    rows = [{"input_ids": ids, "labels": label} for ids, label in zip(items.ids, items.targets)]
    asked = TrainingArguments(
        output_dir=gettempdir(),  # nothing is saved
        max_steps=steps,
        per_device_train_batch_size=examples,
        learning_rate=2e-5,
        weight_decay=0.01,
        bf16=precision == "bf16",
        use_cpu=network.device.type == "cpu",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    collator = DataCollatorWithPadding(tokenizer)
    teacher = Trainer(network, asked, data_collator=collator, train_dataset=rows)
    return teacher.train


def csls(o):
    "The first time it loads what it needs; then by the size of blocks: of large ones a GPU has fewer to start."
    measured(o, "csls", "first time", mining, None)
    for block in (2048, 4096, 8192, 16_384):
        measured(o, "csls", f"blocks of {block:,}", mining, block)
    end(o, "csls")


def mining(o, block: int | None) -> dict:  # None: as usual on the device
    "Best partners by CSLS, of vectors that are on the device."
    from xlnb.results.benchmarks import csls_check

    free(o)
    return {"block": block, **csls_check(*o.shape["csls"], device=o.device, block=block)}


def linking(o, dtype: str) -> dict:
    "The same pairs in batches and one at a time."
    from xlnb.results.benchmarks import aligning

    free(o)
    return aligning(o.size, o.shape["vocab_size"], o.shape["pairs"], device=o.device, dtype=dtype)


def recipe_of(o, phase: str):
    "The paper whose experiment a phase runs, and the experiment."
    paper, name, _, shared, arms = o.shape["learning"][phase]
    recipe = import_module(f"xlnb.{paper}").RECIPE
    experiment = recipe.experiments[name]
    arms = {arm: {**own, **arms.get(arm, {})} for arm, own in experiment.arms.items()}
    return recipe, replace(experiment, arms=arms, shared={**experiment.shared, **shared})


def corpus_of(o, phase: str) -> str:
    return recipe_of(o, phase)[1].shared["corpus"]


def learned(o) -> list[str]:
    "The phases that train, of those that were asked for; all of them where only their data were."
    asked = [name for name in o.shape["learning"] if name in o.phases]
    return asked or [*o.shape["learning"]] * ("data" in o.phases)


def data(o):
    "Vocabulary, stores and baselines of captions and Bibles; another process that asks for them meanwhile waits."
    for phase in learned(o):
        recipe, _ = recipe_of(o, phase)
        # first of a kind
        each = {mismatched(given): given for _, given in reversed(unrecorded(o, phase))}
        for random_pairs in sorted(each):
            settings = recipe.resolve(recipe.Settings(**each[random_pairs]))
            baselines(recipe.prepare(settings), not random_pairs)


def mismatched(given: dict) -> bool:
    return bool(given.get("mismatched"))  # whether it learns from random pairs


def baselines(prepared, corpus_pairs: bool):
    from xlnb.text.batches import folder_lock
    from xlnb.pretraining.held_out import baseline_rows

    with folder_lock(prepared.folder / "baselines"):
        return baseline_rows(prepared, corpus_pairs)


def learning(o, phase: str):
    "The runs that are not on record, some side by side, each in a process of its own; random pairs come last."
    todo = unrecorded(o, phase)
    side = o.shape["learning"][phase][2]
    failed = []
    todo.sort(key=lambda run: mismatched(run[1]))
    for group in (todo[k : k + side] for k in range(0, len(todo), side)):
        with together() as begun:
            for _, given in group:
                run_process(o, phase, given, len(group), begun)
            ends = [process.wait() for process in begun]
        runs = [f"{arm}, seed {given['seed']}" for arm, given in group]
        failed += [run for run, status in zip(runs, ends) if status]
        for _, given in group:
            say(run_folder(o, given).with_suffix(".log").read_text()[-1500:])
    if failed:
        raise SystemExit(f"{phase}: failed: {'; '.join(failed)}; their logs lie in {o.runs}")


def unrecorded(o, phase: str) -> list:  # arm, parameters
    from xlnb.base.core import read_records
    from xlnb.pretraining.experiments import missing as not_recorded

    recipe, experiment = recipe_of(o, phase)
    return not_recorded(experiment, recipe, read_records(recipe.notebook))


def run_process(o, phase: str, given: dict, side: int, begun: list):  # runs that share the cores
    folder = run_folder(o, given)
    run = json.dumps({**given, "out": str(folder)})
    command = [
        sys.executable,
        __file__,
        phase,
        "--one",
        run,
        "--size",
        o.size,
        "--device",
        o.device,
    ]
    threads = str(max(1, os.cpu_count() // side))
    start(command, folder.with_suffix(".log"), begun, OMP_NUM_THREADS=threads)


def run_folder(o, given: dict) -> Path:
    from xlnb.text.batches import short_hash

    return o.runs / f"{given['corpus']}-{given['size']}-{short_hash([given, o.code])}"


def one_run(o, phase: str):
    "Train and record as by the paper's command; of the trained network retrieval and word alignment by layer alone."
    from xlnb.base.core import append_record
    from xlnb.pretraining.pretraining import run

    recipe, _ = recipe_of(o, phase)
    settings = recipe.resolve(recipe.Settings(**o.one))
    record = run(replace(recipe, evaluate=without_probes), settings)
    append_record(recipe.notebook, record, settings.corpus)


def without_probes(settings, prepared, trained, minutes: float) -> tuple[dict, str]:
    from xlnb.pretraining.held_out import evaluate

    corpus_pairs = not mismatched(vars(settings))
    baselines(prepared, corpus_pairs)  # another process may be at it
    found = evaluate(trained.model.primary_network, prepared, corpus_pairs, probe_langs=())
    return found.metrics(), found.measured


PHASES = {
    "data": data,
    "tests": tests,
    "speed": speed,
    "memory": memory,
    "attention": attention,
    "bias": bias,
    "veco": veco,
    "align": align,
    "encode": encode,
    "finetune": finetune,
    "csls": csls,
    **{name: functools.partial(learning, phase=name) for name in SHAPES["base"]["learning"]},
}


# Seconds. What begins late gets what is left of WHOLE; a phase that is asked to stop has GRACE to
# do so.
WHOLE = 25 * 60
GRACE = 30
LIMITS = {
    "data": 900,
    "tests": 300,
    "speed": 250,
    "memory": 35,
    "attention": 150,
    "bias": 105,
    "veco": 45,
    "align": 60,
    "encode": 60,
    "finetune": 90,
    "csls": 55,
    "captions": 130,
    "bible": 120,
    "meta": 100,
}


# ---- from the command line


def without_gpu() -> str | None:
    "Why there is no GPU for PyTorch here, in words; None: there is one, or no PyTorch, which `missing` names."
    if not findable("torch"):
        return None
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU with CUDA here"


def missing(phases) -> str | None:
    "Why this Python cannot run the phases, in a sentence; None: it can."
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return f"Python is {sys.version.split()[0]}; it has to be 3.11, 3.12 or 3.13"
    names = [*NEEDED, *(ALSO[name] for name in phases if name in ALSO)]
    if lacking := [name for name in names if not findable(name)]:
        return f"{sys.executable} lacks {', '.join(lacking)}: install them, or name another Python (make: PYTHON=…)"
    if tuple(map(int, version("torch").split(".")[:2])) < (2, 11):
        return f"torch is {version('torch')}; it has to be 2.11 or later"


def findable(name) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def run_phase(name: str, o):
    "In a process of its own; asked to stop, it stops what it has started."
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if name == "data":
        os.nice(15)  # the other phases are timed
    if o.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        PHASES[name](o)
    except (ValueError, OSError) as e:
        raise SystemExit(f"{name}: {e}") from None  # settings, data; files


def begin(name: str, o):
    process = multiprocessing.get_context("spawn").Process(
        target=run_phase, args=(name, o), name=name, daemon=True
    )
    process.start()
    return process


def finish(process, seconds: float) -> bool:  # whether it went well
    process.join(max(0.0, seconds))
    if process.exitcode is None:
        process.terminate()
        process.join(GRACE)
        process.kill()
        process.join()
        say(
            f"{process.name}: stopped at its limit of {seconds:.0f} s; what was measured is on "
            f"record"
        )
        return False
    return process.exitcode == 0


def goals(o):
    "What was found, and what was hoped for."
    for r in on_record(o, "speed"):
        if "mfu" in r:
            yield f"speed, {r['case']}: {r['mfu']:.1%} of the peak, 40 % or more"
    for r in on_record(o, "memory"):
        if "bytes" in r:
            yield f"memory, {r['case']}: {r['bytes'] / 1e9:.2f} GB, less than 1"
    found = {(r["form"], r["length"]): r for r in on_record(o, "attention") if "both_ms" in r}
    for (form, length), r in found.items():
        if plain := found.get(("without bias", length)):
            ratio = r["both_ms"] / plain["both_ms"]
            yield f"attention, length {length}, {form}: {ratio:.2f} × without bias, 1.15 or less"
    for r in on_record(o, "bias"):
        for name, found in r.get("ratios", {}).items():
            yield f"bias, {r['case']}: {name}: {found['ratio']:.2f} × the step without, 1.15 or less"
    for r in on_record(o, "align"):
        if "links" in r:
            yield (
                f"align, {r['case']}: batches are {r['ratio']:.1f} × as fast, 10 or more; the "
                f"links of "
                f"{r['different']} of {r['pairs']} pairs differ, 0"
            )
    for r in on_record(o, "encode"):
        if "per_second" in r:
            yield (
                f"encode, {r['case']}: {r['ratio']:.2f} × as fast as sentence-transformers, 1 or more"
            )
    for r in on_record(o, "finetune"):
        if "per_second" in r:
            yield f"finetune, {r['case']}: {r['ratio']:.2f} × as fast as the Trainer, 1 or more"
    for r in on_record(o, "csls"):
        if "agree" in r:
            yield (
                f"csls, {r['words']:,} words, {r['case']}: {r['seconds']:.2f} s, less than 5; "
                f"{r['agree']} of {r['checked']} as by brute force"
            )


def options(argv: list[str]) -> SimpleNamespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "phases", nargs="*", choices=[*PHASES, []], metavar="phase", help=f"of {', '.join(PHASES)}"
    )
    parser.add_argument(
        "--out", help="folder of the records; data/results of the checkout if not given"
    )
    parser.add_argument(
        "--runs", default=str(ROOT / "runs" / "gpu_check"), help="folder of stores and checkpoints"
    )
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)  # a run of `learning`
    parser.add_argument("--size", default="base", choices=SHAPES)
    parser.add_argument(
        "--device", default="cuda", choices=("cuda", "cpu"), help="cpu: for tests of this program"
    )
    given = parser.parse_args(argv)
    return SimpleNamespace(
        **{
            **vars(given),
            "phases": given.phases or [*PHASES],
            "networks": {},
            "runs": Path(given.runs).resolve(),
            "shape": SHAPES[given.size],
        }
    )


def main(argv: list[str]) -> int:  # exit status
    o = options(argv)
    if o.device == "cuda" and (why := without_gpu()):
        say(f"gpu-check: skipped: {why}")
        return 0
    if why := missing(o.phases):
        sys.exit(f"gpu-check: {why}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the phases end with this process
    if o.one:
        one_run(o, *o.phases)
        return 0
    results = Path(o.out or ROOT / "data" / "results").resolve()
    os.environ |= {"XLNB_ROOT": str(ROOT), "XLNB_RESULTS": str(results)}
    o.runs.mkdir(parents=True, exist_ok=True)
    o.code = code_hash()
    from xlnb.text.catalogue import set_folder

    try:
        for name in learned(o):
            set_folder(corpus_of(o, name))
    except (ValueError, OSError) as e:
        sys.exit(f"gpu-check: {e}")
    start = time.monotonic()
    beside = begin("data", o) if learned(o) else None

    def left(seconds):
        return min(seconds, start + WHOLE - GRACE - time.monotonic())

    # which are those of a GPU
    limits = LIMITS if o.device == "cuda" else dict.fromkeys(PHASES, WHOLE)
    well = [
        finish(begin(name, o), left(limits[name]))
        for name in PHASES
        if name in o.phases and name != "data"
    ]
    if beside:
        well.append(finish(beside, left(start + limits["data"] - time.monotonic())))
    for line in goals(o):
        say(f"goal: {line}")
    say(
        f"gpu-check: {sum(well)} of {len(well)} phases went through, in "
        f"{(time.monotonic() - start) / 60:.1f} minutes"
    )
    return 0 if all(well) else 1


sys.path.insert(0, str(ROOT))
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
