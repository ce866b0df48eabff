"What grows with the number of sources and the size of a corpus, and what must not: 100 languages and 1,000 pairs."

import json, os, subprocess, sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from test_tokens import WORDS, build, word_tokenizer

from xlnb.base.core import sha256_file

LANGUAGES = [f"{a}{b}" for a in "abcdefghij" for b in "klmnopqrst"]
PAIRS = [f"{a}-{b}" for a, b in combinations(LANGUAGES[:46], 2)][:1_000]
LINES = 5_000
LENGTH = 400
TIMES = 10  # a pair's shard has 4 MB, a language's ten times as much: 8 GB in all


def text(seed):
    rows = np.random.default_rng(seed).choice(np.array(WORDS), (LINES, LENGTH))
    return [" ".join(row) for row in rows]


def repeat(path, facts):
    "Make a shard `TIMES` as long, without encoding the same lines again; returns the facts of its source."
    tokens = np.fromfile(f"{path}.tokens", "<u2")
    offsets = np.fromfile(f"{path}.offsets", "<i8")
    np.tile(tokens, TIMES).tofile(f"{path}.tokens")
    shifts = len(tokens) * np.arange(TIMES)[:, None]
    np.append((offsets[:-1] + shifts).ravel(), TIMES * len(tokens)).tofile(f"{path}.offsets")
    (shard,) = facts["shards"]
    files = {
        k: {"bytes": os.path.getsize(f"{path}.{k}"), "sha256": sha256_file(f"{path}.{k}")}
        for k in shard["files"]
    }

    def longer(record):
        counts = ("lines", "items", "tokens")
        return {k: v * TIMES if k in counts else v for k, v in record.items()}

    return {**longer(facts), "shards": [{**longer(shard), "files": files}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    "A store of 1,100 sources: the files of one language and of one pair, under a thousand names."
    folder = tmp_path_factory.mktemp("large") / "store"
    half = [line[: len(line) // 2] for line in text(1)]
    build(
        word_tokenizer(WORDS),
        folder,
        {"zz": text(0)},
        {"yy-zz": list(zip(half, half[1:] + half[:1]))},
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    for kind, names in (("text", LANGUAGES), ("pairs", PAIRS)):
        ((one, facts),) = manifest[kind].items()
        if kind == "text":
            facts = repeat(folder / kind / f"{one}.00000", facts)
        for name in names:
            for ending in ("tokens", "offsets"):
                os.link(
                    folder / kind / f"{one}.00000.{ending}",
                    folder / kind / f"{name}.00000.{ending}",
                )
        manifest[kind] = dict.fromkeys(names, facts)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


PROGRAM = """
import json, sys, time
from itertools import chain
from pathlib import Path
from xlnb.text.batches import BatchShape, MixedBatches
from xlnb.text.tokens import SpecialIds, open_store

def resident(): # peak, in bytes
    line, = (l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
    return 1024 * int(line.split()[1])

found = {"imports": resident()}
start = time.perf_counter()
store = open_store(sys.argv[1])
shape = BatchShape(length=512, max_side=254, text_tokens=32_768, pair_tokens=32_768, restart_positions=False)
batches = MixedBatches(store, SpecialIds(), shape, seed=0)
found |= {"opened": resident(), "seconds to open": time.perf_counter() - start}
start, tokens = time.perf_counter(), 0
for step in range(STEPS := 60):
    for index in range(batches.micro_batches): tokens += int(batches(step, index)["attention_mask"].sum())
found |= {"drawn": resident(), "tokens": tokens, "tokens per second": tokens / (time.perf_counter() - start)}
slots = {"text": batches.text_micro * batches.rows, "pairs": batches.pair_micro * batches.bundles}
drawn = {kind: sum(n > 0 for n in part.mixture.counts(STEPS * slots[kind]).values())
         for kind, part in batches.parts.items()}
total = sum(int(s.arrays(0)[0].sum()) for s in chain(store.text.values(), store.pairs.values()))
size = sum(s.counts["tokens"] for s in chain(store.text.values(), store.pairs.values()))
print(json.dumps(found | {"read through": resident(), "size": 2 * size, "drawn from": drawn}))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="resident memory is read from /proc"
)
@pytest.mark.slow
def test_a_hundred_languages_and_a_thousand_pairs_in_two_gigabytes(folder):
    "Also when every token of every source has been read: 8 GB, of which what is mapped counts as resident."
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout)
    assert (
        found["drawn from"]["text"] == 100
        and found["drawn from"]["pairs"] > 900
        and found["size"] > 7.9e9
    )
    assert found["read through"] < 2e9, found


STEP = """
import json, sys
from pathlib import Path
import torch
from xlnb.base.core import torch_generator
from xlnb.encoder.encoder import config_for, new_model
from xlnb.encoder.heads import EncoderForMaskedLM, EncoderForReplacedTokens, share_embeddings
from xlnb.training.objectives import masked_lm_loss, replaced_tokens, rtd_loss
from xlnb.training.training import TrainingConfig, make_optimizer
from xlnb.pretraining.plans import Step, meta_networks, step_memory

def resident(line):
    found, = (l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(line))
    return 1024 * int(found.split()[1])

def steps(networks, tokens, length, count):
    models = torch.nn.ModuleDict({k: new_model(kind, config, 0) for k, (kind, config) in networks.items()})
    generator, discriminator = models.values()
    share_embeddings(generator, discriminator)
    optimizer = make_optimizer(models, TrainingConfig(steps=1, learning_rate=1e-3))
    head, mask = generator.head, generator.config.mask_token_id
    for step in range(count):
        ids = torch.randint(5, mask, (tokens // length, length), generator=torch_generator(step))
        hole = torch.rand(ids.shape, generator=torch_generator("hole", step)) < 0.15
        seen, labels = ids.masked_fill(hole, mask), ids.masked_fill(~hole, -100)
        hidden = generator.encoder(seen).last_hidden_state
        out = masked_lm_loss(hidden, labels, head.transform, head.weight, head.bias, sample=True,
                             generator=torch_generator(step))
        found, replaced = replaced_tokens(seen, labels, out.samples)
        (out.loss_sum / out.count + rtd_loss(discriminator(found).logits, replaced)[0] / ids.numel()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

def networks(size, vocabulary, length):
    shape = dict(max_position_embeddings=length, relative_positions="gated", norm="pre")
    discriminator = config_for(size, vocabulary, **shape)
    generator = config_for(size, vocabulary, num_hidden_layers=discriminator.num_hidden_layers // 3, **shape)
    return {"generator": (EncoderForMaskedLM, generator), "discriminator": (EncoderForReplacedTokens, discriminator)}

size, vocabulary, tokens, length = sys.argv[1], *map(int, sys.argv[2:])
steps(networks("tiny", 300, 16), 64, 16, 1) # what the libraries need for themselves
before = resident("VmRSS")
steps(networks(size, vocabulary, length), tokens, length, 2) # the first has no moments yet
planned = step_memory(meta_networks(networks(size, vocabulary, length)), Step(tokens, length))
print(json.dumps({"measured": resident("VmHWM") - before, "planned": sum(planned.values())}))
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="resident memory is read from /proc"
)
@pytest.mark.parametrize("arguments", [("tiny", 4_000, 4_096, 64), ("small", 16_000, 2_048, 128)])
@pytest.mark.slow
def test_a_plan_is_an_upper_bound_of_what_a_step_takes(arguments):
    "Every freed tensor is given back at once: what glibc's heap keeps for itself otherwise is no part of the plan."
    command = [sys.executable, "-c", STEP, *map(str, arguments)]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout)
    assert 1 <= found["planned"] / found["measured"] < 1.3, found
