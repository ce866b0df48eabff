"""Kernels: the Triton form of the vocabulary head against the chunked one.

Without a GPU they run under Triton's interpreter, in a process of their own (`python tests/test_kernels.py` with
TRITON_INTERPRET=1 is that process), and are compiled for GPUs that are not there. With one, the tests marked `gpu` run
them on it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from interpreted import GPUS, MATRIX_UNIT, check_compiled, found_by, needs_triton
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from xlnb.base.core import torch_generator
from xlnb.encoder import attention as A
from xlnb.encoder import kernels as K
from xlnb.training import objectives as O


# rows, vocabulary, width, type of the states, type of the table, temperature, chunk of the backward
# pass
CASES = {
    "one row, five ids": (1, 5, 7, "float32", "float32", 1.0, None),
    "one whole block": (3, 256, 16, "float32", "float32", 1.0, None),
    "one id more": (64, 257, 16, "float32", "float32", 0.5, 256),
    "rows past a tile": (70, 1500, 40, "float32", "float32", 1.0, 512),
    "stripes of three blocks": (66, 2900, 8, "float32", "float32", 2.0, 1024),
    "bfloat16": (40, 1300, 72, "bfloat16", "bfloat16", 1.0, 512),
    "bfloat16, table in float32": (33, 1300, 64, "bfloat16", "float32", 0.7, 768),
    "float16": (17, 700, 32, "float16", "float16", 1.0, None),
    "autocast": (20, 900, 48, "autocast", "float32", 1.0, 512),
    "no row": (0, 600, 8, "float32", "float32", 1.0, None),
}
LONG_STRIPES = {"stripes of three blocks", "bfloat16, table in float32"}
# The reference is the chunked form in float32 on the same numbers (all of them fit the type of the
# product): the
# kernels add up exact products in float32 whatever that type is. 1e-5 of the largest value is
# float32 rounding of such
# sums. In 16 bits the logits' gradient is rounded to 8 (bfloat16) or 11 bits before the last
# product, and the result
# once more.
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "autocast": 1.6e-2}


def inputs(n, size, dim, states, table, device):
    g = torch_generator("kernels", n, size, dim)
    short = torch.bfloat16 if states == "autocast" else getattr(torch, states)

    # values that the type of the product can hold, so that both forms see the same numbers
    def draw(*shape):
        return (torch.randn(*shape, generator=g) / 2).to(short)

    def make(*shape, dtype):
        return draw(*shape).to(device, dtype).requires_grad_()

    hidden = make(n, dim, dtype=torch.float32 if states == "autocast" else short)
    weight = make(size, dim, dtype=getattr(torch, table))
    bias = make(size, dtype=torch.float32)
    return (hidden, weight, bias), torch.randint(size, (n,), generator=g).to(device)


def run(case, form, device):
    dim = CASES[case][2]
    # small shapes would get stripes of one block, and their table would be converted whole
    if case in LONG_STRIPES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(K, "stripe_width", lambda *shape: 768)
            patch.setattr(K, "CONVERT", 768 * dim)
            return forward_and_backward(case, form, device)
    return forward_and_backward(case, form, device)


def forward_and_backward(case, form, device):
    n, size, dim, states, table, temperature, chunk = CASES[case]
    leaves, labels = inputs(n, size, dim, states, table, device)
    given = leaves if form == "triton" else [x.float() for x in leaves]
    with torch.autocast(
        device, torch.bfloat16, enabled=form == "triton" and states in ("autocast", "bfloat16")
    ):
        out = O.vocabulary_head(
            *given,
            labels,
            chunk=chunk,
            sample=True,
            temperature=temperature,
            form=form,
            generator=torch_generator("same", device=device),
        )
    # an upstream factor other than 1 must come through
    gradients = torch.autograd.grad(3 * out.loss_sum, leaves)
    assert all(g.dtype == x.dtype and g.shape == x.shape for g, x in zip(gradients, leaves))
    return out, gradients


def relative(a, b):
    return (
        float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30))
        if b.numel()
        else 0.0
    )


def differences(case, device):
    "Relative differences of the two forms; shares of rows where ids differ."
    (ours, got), (theirs, wanted) = (run(case, form, device) for form in ("triton", "chunked"))

    def share(a, b):
        return float((a != b).double().mean()) if len(b) else 0.0

    return {
        "loss": relative(ours.loss_sum, theirs.loss_sum),
        "correct": share(ours.correct, theirs.correct),
        "samples": share(ours.samples, theirs.samples),
        **{name: relative(a, b) for name, a, b in zip(("hidden", "weight", "bias"), got, wanted)},
    }


def check_differences(case, found):
    tolerance = TOLERANCE[CASES[case][3]]
    assert found["loss"] <= 1e-5 and found["correct"] == 0
    # rounding decides between two ids in 1 of 10⁵ draws or fewer; no case has 100 rows
    assert found["samples"] <= 0.02
    for name in ("hidden", "weight", "bias"):
        assert found[name] <= tolerance, (name, found)


def counts(device, n=1500, size=700, temperature=0.8):
    "How often each id was drawn in `n` samples of one softmax, and how often it should be."
    g = torch_generator("chi-square")
    weight = torch.randn(size, 4, generator=g)
    state = torch.randn(1, 4, generator=g)
    given = (state.expand(n, 4), weight, torch.zeros(size), torch.zeros(n, dtype=torch.long))
    out = O.vocabulary_head(
        *(x.to(device) for x in given),
        sample=True,
        temperature=temperature,
        form="triton",
        generator=torch_generator("draws", device=device),
    )
    expected = n * (state.double() @ weight.double().T / temperature).softmax(1)[0]
    return torch.bincount(out.samples.cpu(), minlength=size).tolist(), expected.tolist()


def check_counts(seen, expected):
    from scipy.stats import chisquare

    seen = torch.tensor(seen, dtype=torch.double)
    expected = torch.tensor(expected, dtype=torch.double)
    often = expected >= 5  # the usual bound for the chi-square law; the rest are pooled

    def pool(x):
        return torch.cat([x[often], x[~often].sum()[None]]).numpy()

    assert often.sum() > 20
    assert chisquare(pool(seen), pool(expected)).pvalue > 1e-3


def extremes(device):
    "Two forbidden blocks, logits of ±300: losses, samples, hits, whether the gradient is finite."
    bias = torch.zeros(1024)
    weight = torch.zeros(1024, 16)
    bias[:512] = -torch.inf
    weight[600, 0], weight[601, 0] = 300.0, -300.0
    hidden = torch.zeros(2, 16)
    hidden[0, 0], hidden[1, 0] = 1.0, -1.0
    hidden = hidden.to(device).requires_grad_()
    given = (weight.to(device), bias.to(device), torch.tensor([600, 600]).to(device))
    generator = torch_generator(0, device=device)
    out = O.vocabulary_head(hidden, *given, sample=True, form="triton", generator=generator)
    finite = torch.isfinite(torch.autograd.grad(out.loss_sum, hidden)[0]).all()
    return [float(out.loss_sum.detach()), out.samples.tolist(), out.correct.tolist(), bool(finite)]


def equals(device):
    "Where all logits are equal the first id is the most probable one, as in PyTorch."

    def zero(*shape):
        return torch.zeros(*shape, device=device)

    labels = torch.tensor([0, 1, 599]).to(device)
    return O.vocabulary_head(
        zero(3, 16), zero(600, 16), zero(600), labels, form="triton"
    ).correct.tolist()


MEASURES = {
    **{case: lambda device, case=case: differences(case, device) for case in CASES},
    "counts": counts,
    "extremes": extremes,
    "equals": equals,
}


# ---- under the interpreter


@pytest.fixture(scope="module")
def interpreted():
    return found_by(__file__)


@pytest.mark.parametrize("case", CASES)
def test_interpreted_kernels_equal_the_chunked_form(interpreted, case):
    check_differences(case, interpreted[case])


def test_interpreted_samples_follow_the_softmax(interpreted):
    check_counts(*interpreted["counts"])


def test_interpreted_extremes(interpreted):
    assert interpreted["extremes"] == [pytest.approx(600.0), [600, 601], [True, False], True]
    assert interpreted["equals"] == [True, False, False]


# ---- compiled for a GPU that is not there

FIXED = dict(DIM=768, BLOCK=256, WIDEN=False, PRECISION="ieee", STEP=64)
LONG = "*i64"
INT = "i32"
SIGNATURES = {
    "_scan": (
        dict(
            hidden="*bf16",
            weight="*bf16",
            bias="*fp32",
            labels=LONG,
            noise="*fp64",
            floats="*fp32",
            ints="*i32",
            label_logit="*fp32",
            n=INT,
            size=INT,
            first=INT,
            stripe=INT,
            stripes=INT,
            blocks=INT,
            temperature="fp32",
        ),
        dict(FIXED, STRIPE=8192, SAMPLE=True, TEMPERED=True),
    ),
    "_gradient": (
        dict(
            hidden="*bf16",
            weight="*bf16",
            bias="*fp32",
            labels=LONG,
            lse="*fp32",
            out="*bf16",
            sums="*fp32",
            n=INT,
            size=INT,
            first=INT,
        ),
        FIXED,
    ),
    "_pick": (
        dict(
            hidden="*bf16",
            weight="*fp32",
            bias="*fp32",
            block=LONG,
            uniform="*fp64",
            samples=LONG,
            size=INT,
            temperature="fp32",
        ),
        dict(DIM=768, BLOCK=256, STEP=64),
    ),
}


@needs_triton
@pytest.mark.parametrize("name", SIGNATURES)
@pytest.mark.parametrize("capability, most", GPUS)
def test_kernels_compile_for_gpus(monkeypatch, tmp_path, name, capability, most):
    if K.INTERPRETED:
        pytest.skip("interpreted kernels are not compiled")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    arguments, fixed = SIGNATURES[name]
    fixed = fixed if name == "_pick" else dict(fixed, ROWS={80: 64, 90: 128}[capability])
    options = dict(num_warps=4 if name == "_pick" else 8, num_stages=3, enable_fp_fusion=True)
    ptx = check_compiled(getattr(K, name), arguments, fixed, capability, most, **options)
    assert name == "_pick" or MATRIX_UNIT[capability] in ptx


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_the_chunked_form(case):
    check_differences(case, differences(case, "cuda"))


@pytest.mark.gpu
def test_samples_follow_the_softmax():
    check_counts(*counts("cuda", n=100_000))


@pytest.mark.gpu
def test_extremes():
    assert extremes("cuda") == [pytest.approx(600.0), [600, 601], [True, False], True]
    assert equals("cuda") == [True, False, False]


@pytest.mark.gpu
def test_a_gpu_chooses_the_kernels():
    device = torch.device("cuda")
    if why := A.obstacle(device, torch.bfloat16):
        pytest.skip(why)
    assert (
        O.head_form(device, torch.bfloat16) == "triton"
        and O.head_form(device, torch.float64) == "chunked"
    )


@pytest.mark.gpu
def test_float32_follows_the_setting_of_pytorch():
    before = torch.get_float32_matmul_precision()
    try:
        # TF32 keeps 11 bits of each factor
        for setting, tolerance in (("highest", 1e-5), ("high", 1e-2)):
            torch.set_float32_matmul_precision(setting)
            (hidden, weight, bias), labels = inputs(100, 3000, 256, "float32", "float32", "cuda")
            loss = O.vocabulary_head(hidden, weight, bias, labels, form="triton").loss_sum
            wanted = F.cross_entropy(
                F.linear(hidden.double(), weight.double(), bias.double()), labels, reduction="sum"
            )
            assert relative(loss, wanted) < tolerance
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
def test_memory_beyond_the_gradients():
    "Loss and sample of a micro-batch of 64k tokens at 500k ids take less than 1 GB beyond weights and gradients."
    n = 9830
    size = 500_002
    dim = 768
    shapes = (n, dim), (size, dim), (size,)
    hidden, weight, bias = (torch.zeros(*s, device="cuda", requires_grad=True) for s in shapes)
    labels = torch.zeros(n, dtype=torch.long, device="cuda")
    g = torch_generator(0, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", torch.bfloat16):
        loss = O.vocabulary_head(hidden, weight, bias, labels, sample=True, generator=g).loss_sum
    loss.backward()
    gradients = sum(x.grad.numel() * x.grad.itemsize for x in (hidden, weight, bias))
    assert torch.cuda.max_memory_allocated() - before - gradients < 1e9


# ---- without either


def test_obstacles():
    cpu = torch.device("cpu")
    assert "float64" in A.obstacle(cpu, torch.float64)
    if not K.INTERPRETED:
        assert "are on 'cpu'" in A.obstacle(cpu, torch.float32)


@pytest.mark.parametrize(
    "rows, size, tile", [(1, 5, 64), (40, 8192, 64), (9830, 500_000, 128), (10**6, 250_002, 64)]
)
def test_stripes(rows, size, tile):
    width = K.stripe_width(rows, size, tile)
    programs = -(-rows // tile) * -(-size // width)
    assert width % K.BLOCK == 0 and K.BLOCK <= width <= 64 * K.BLOCK
    assert programs >= min(1024, -(-rows // tile) * -(-size // K.BLOCK))


def test_few_widths_are_compiled_however_many_positions_are_masked():
    widths = {K.stripe_width(rows, 250_002, 128) for rows in range(1, 20_000)}
    assert widths == {K.BLOCK * 2**k for k in range(7)}


def test_without_triton_everything_else_works():
    "With triton made impossible to import, the modules load, the chunked form runs, and the obstacle is named."
    code = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from xlnb.encoder import attention, kernels; from xlnb.training import objectives "
        "as O\n"
        "from xlnb.base.core import ConfigError\n"
        "x = [torch.ones(2, 4), torch.ones(9, 4), torch.zeros(9), torch.tensor([1, 2])]\n"
        "print(float(O.vocabulary_head(*x).loss_sum), kernels.triton)\n"
        "print(attention.obstacle(torch.device('cpu'), torch.float32))"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "None" in done.stdout and "triton is not installed" in done.stdout


if __name__ == "__main__":
    print(json.dumps({name: measure("cpu") for name, measure in MEASURES.items()}))
