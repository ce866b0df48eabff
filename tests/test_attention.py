"""Attention in one pass against the matrix form, in float64.

Without a GPU the kernels run under Triton's interpreter, in a process of its own (`python tests/test_attention.py` with
TRITON_INTERPRET=1 is that process), and are compiled for GPUs that are not there. With one, the tests marked `gpu` run
them on it, in 16 bits.
"""

import itertools
import json
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from interpreted import GPUS, MATRIX_UNIT, check_compiled, found_by, needs_triton

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from xlnb.base.core import ConfigError, torch_generator
from xlnb.encoder import attention as A
from xlnb.encoder import encoder as E
from xlnb.text.tokens import collate_pairs, pack


# Lengths of sequences, and what differs from one gated head of 32 numbers, limit 16, without mask. Heads differ only by
# where they read, so that a case of each kind has two.
CASES = {
    "shorter than a block": dict(heads=2, lengths=[5, 1, 17]),
    "blocks and a rest": dict(heads=2, lengths=[130, 64, 70]),
    "past the limit": dict(lengths=[230, 70]),
    "a width between": dict(lengths=[70, 3], dim=48),
    "8 wide": dict(lengths=[70], dim=8),
    "64 wide": dict(lengths=[129], dim=64),
    "128 wide": dict(lengths=[129], dim=128),
    "no gate": dict(heads=2, lengths=[150, 20], gated=False),
    "no bias": dict(heads=2, lengths=[150, 20], biased=False),
    "causal": dict(heads=2, lengths=[200, 5], causal=True),
    "causal, no bias": dict(lengths=[200], causal=True, biased=False),
    "hidden keys": dict(heads=2, lengths=[40, 140, 20], masked=True),
    "hidden keys, causal": dict(lengths=[40, 200], masked=True, causal=True),
    "padding": dict(lengths=[5, 140, 90], masked=[0, 70, 80]),
    "padding, causal": dict(lengths=[5, 200], masked=[0, 130], causal=True, restart=True),
    "positions start again": dict(heads=2, lengths=[150, 31], restart=True),
    "and are long": dict(lengths=[220, 2, 1], restart=True),
    "and keys are hidden": dict(lengths=[31, 150], restart=True, masked=True),
    "and it is causal": dict(lengths=[150, 31], restart=True, causal=True),
    "and there is no bias": dict(lengths=[150, 31], restart=True, biased=False),
    "separate tables": dict(heads=2, lengths=[140, 31], restart=True, tables=2),
    "limit of T5": dict(lengths=[270], limit=128),
}
# Sums of products in float32 differ from those in float64 by about 1e-6; in 16 bits the weights and the gradients of
# scores are rounded to 8 (bfloat16) or 11 bits before the second product, and what is returned once more.
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.2e-2}


def batch_of(lengths, restart, generator, heads, dim, limit, tables, gated, biased, masked):
    "Leaves (qkv, gates, bias by distance), where positions start again, which keys are seen, and a gradient."
    total = sum(lengths)
    qkv = torch.randn(total, 3, heads, dim, generator=generator)
    gates = torch.rand(total, heads, generator=generator) * 2 if gated and biased else None
    bias = torch.randn(heads, tables, 2 * limit + 1, generator=generator) if biased else None
    seconds = [max(n // 3, 1) if restart and n > 1 else n for n in lengths]
    visible = (torch.rand(total, generator=generator) < 0.8) if masked else None
    if masked is True:
        visible[: lengths[0]] = False  # a sequence whose rows see nothing
    elif masked:  # tokens of each, before padding
        visible = torch.cat([torch.arange(n) < seen for n, seen in zip(lengths, masked)])
    return (qkv, gates, bias), seconds, visible, torch.randn(total, heads, dim, generator=generator)


def with_matrix(qkv, gates, bias, lengths, seconds, visible, limit, causal):
    "A sequence at a time, with the bias as a matrix."
    outs = []
    start = 0
    for length, second in zip(lengths, seconds):
        rows = slice(start, start + length)
        q, k, v = qkv[rows].permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2) * qkv.shape[3] ** -0.5
        at = torch.arange(length, device=qkv.device)
        position = torch.where(at < second, at, at - second)
        if bias is not None:
            distance = (position[None, :] - position[:, None]).clamp(-limit, limit) + limit
            other = ((at < second)[None, :] != (at < second)[:, None]).long() * (bias.shape[1] - 1)
            r = bias[:, other, distance]
            scores = scores + (r if gates is None else r * gates[rows].T[:, :, None])
        seen = torch.ones(length, length, dtype=torch.bool, device=qkv.device)
        if visible is not None:
            seen &= visible[rows][None, :]
        seen = seen.tril() if causal else seen
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        outs.append((torch.where(seen.any(-1)[:, None], weights, 0) @ v).transpose(0, 1))
        start += length
    return torch.cat(outs)


def differences(case: str, device: str, dtype=torch.float32) -> dict:
    "Relative error of the outputs and of each gradient."
    given = dict(
        heads=1, dim=32, limit=16, tables=1, gated=True, biased=True, masked=False, restart=False
    )
    given |= CASES[case]
    causal = given.pop("causal", False)
    limit = given["limit"]
    leaves, seconds, visible, grad = batch_of(generator=torch_generator("attention", case), **given)
    leaves = [x if x is None else x.to(device, dtype).requires_grad_() for x in leaves]
    exact = [x if x is None else x.detach().double().requires_grad_() for x in leaves]
    visible = visible if visible is None else visible.to(device)
    grad = grad.to(device, dtype)
    qkv, gates, bias = leaves
    borders = torch.tensor([0, *itertools.accumulate(given["lengths"])], device=device)
    blocks = A.row_blocks(borders, torch.tensor(seconds, device=device), len(qkv), visible)
    form = A.Bias(limit, given["tables"], causal)
    at = torch.arange(-form.reach, form.reach + 1, device=device).clamp(-limit, limit) + limit
    table = None if bias is None else bias[:, :, at]
    out = A.gated_attention(qkv, blocks, None if gates is None else gates.T, table, visible, form)
    wanted = with_matrix(*exact, given["lengths"], seconds, visible, limit, causal)
    out.backward(grad)
    wanted.backward(grad.double())
    found = {"out": relative(out, wanted)}
    for name, ours, theirs in zip(("qkv", "gates", "bias"), leaves, exact):
        if ours is not None:
            found[name] = relative(ours.grad, theirs.grad)
    return found


def relative(ours, theirs) -> float:
    return float((ours.detach().double() - theirs.detach()).norm() / theirs.detach().norm())


# ---- an encoder, in one pass and with the matrix

# kind of bias, whether positions start again, buckets across sentences, whether the batch is packed, layers
ENCODERS = [
    ("none", True, "shared", True, 1),
    ("none", True, "shared", False, 1),
    ("plain", False, "shared", True, 1),
    ("gated", True, "shared", False, 1),
    ("gated", False, "shared", True, 1),
    ("gated", True, "separate", True, 2),
]


def states_and_gradients(model, batch, in_one_pass: bool):
    "Of tokens; and how many times a layer attended in one pass."
    names = ("input_ids", "position_ids", "cu_seqlens", "attention_mask")
    packed = "cu_seqlens" in batch
    inputs = {k: batch[k] for k in names if k in batch and not (packed and k == "attention_mask")}
    calls = []

    def counted(*given):
        calls.append(given)
        return A.gated_attention(*given)

    refuses = E._fused_obstacle if in_one_pass else lambda *_: "the matrix is asked for"
    with (
        mock.patch.object(E, "_fused_obstacle", refuses),
        mock.patch.object(E, "gated_attention", counted),
    ):
        states = model(**inputs).last_hidden_state[batch["attention_mask"].bool()]
    model.zero_grad()
    weights = torch.linspace(-1, 1, states.numel(), device=states.device).view_as(states)
    (states.float() * weights).sum().backward()
    return (
        states,
        {n: p.grad for n, p in model.named_parameters() if p.grad is not None},
        len(calls),
    )


def encoder_differences(kind, restart, buckets, packed, layers, device="cpu") -> dict:
    "Largest relative error of states and of gradients, and in how many layers attention was done in one pass."
    config = E.config_for(
        "tiny",
        100,
        num_hidden_layers=layers,
        num_attention_heads=2,
        relative_positions=kind,
        cross_sentence_buckets=buckets,
    )
    config.max_position_embeddings = 256
    model = E.new_model(E.Encoder, config, 1).to(device)
    g = torch_generator("attention", "encoder")
    pairs = [
        tuple(torch.randint(5, 90, (n,), generator=g).numpy().astype("int32") for n in lengths)
        for lengths in ((5, 9), (70, 20))
    ]
    batch = collate_pairs(pairs, None, restart)
    batch = pack(batch) if packed else batch
    batch = {k: v.to(device) for k, v in batch.items()}
    ours, our_gradients, calls = states_and_gradients(model, batch, True)
    theirs, their_gradients, none = states_and_gradients(model, batch, False)
    assert not none
    errors = [relative(our_gradients[n], g.double()) for n, g in their_gradients.items()]
    return {"states": relative(ours, theirs.double()), "gradients": max(errors), "calls": calls}


# ---- under the interpreter


@pytest.fixture(scope="module")
def interpreted():
    return found_by(__file__)


@pytest.mark.parametrize("case", CASES)
def test_outputs_and_gradients_are_those_of_the_matrix(interpreted, case):
    errors = interpreted["cases"][case]
    assert len(errors) == 2 + CASES[case].get("biased", True) + (
        CASES[case].get("biased", True) and CASES[case].get("gated", True)
    )
    assert max(errors.values()) < TOLERANCE[torch.float32], errors


@pytest.mark.parametrize("case", ENCODERS, ids=str)
def test_an_encoder_is_the_same_in_one_pass(interpreted, case):
    found = interpreted["encoders"][str(case)]
    # without a bias PyTorch's own kernel is the faster one, unless the batch is packed
    assert found["calls"] == (0 if case[0] == "none" and not case[3] else case[4])
    # the gate's scale has gradients near 0, whose rounding is relatively large
    assert found["states"] < 1e-6 and found["gradients"] < 5e-4


def test_tiles_of_leading_keys_do_not_read_the_mask(interpreted):
    assert interpreted["unread mask"] == 0


def test_blocks_made_without_the_mask_lose_none_of_it(interpreted):
    assert interpreted["blocks without the mask"] < TOLERANCE[torch.float32]


def test_other_positions_are_read_with_the_matrix(interpreted):
    assert interpreted["odd positions"] == 0


def test_a_mask_of_another_shape_is_refused(interpreted):
    assert "attention_mask is (1, 5), the keys (1, 6)" in interpreted["short mask"]


def test_the_benchmark_compares_forms_of_one_function(interpreted):
    "In bfloat16: scores, weights and outputs are rounded to 8 bits, in another order."
    assert interpreted["benchmark"] < 1e-2


@pytest.mark.parametrize(
    "changes, what",
    [
        (dict(qkv=torch.zeros(6, 2, 16)), "qkv is (6, 2, 16): give (tokens, 3, heads, head width)"),
        (dict(gates=torch.zeros(6, 2)), "gates of shape (6, 2): give (2, 6)"),
        (dict(table=torch.zeros(2, 1, 9)), "table of shape (2, 1, 9): give (2, 1, 259)"),
        (dict(visible=torch.ones(5)), "visible of shape (5,): give (6,)"),
        (dict(blocks=torch.zeros(1, 3)), "blocks, as row_blocks makes them, of shape (1, 3)"),
        ({}, "need 'cuda' (or TRITON_INTERPRET=1, for tests): add the bias as a matrix"),
    ],
    ids=["qkv", "gates", "table", "visible", "blocks", "no GPU"],
)
def test_what_does_not_fit_is_named(changes, what):
    borders = torch.tensor([0, 6])
    right = dict(qkv=torch.zeros(6, 3, 2, 16), blocks=A.row_blocks(borders, borders.diff(), 6))
    right["table"] = torch.zeros(2, 1, 259)
    with pytest.raises(ConfigError) as e:
        A.gated_attention(**right | changes)
    assert what in str(e.value)


def test_a_block_is_compiled_without_a_break_and_in_bfloat16(interpreted):
    assert interpreted["compiled"] == 0 and interpreted["bfloat16"] < 2e-2


# ---- compiled for a GPU that is not there

POINTERS = {
    "qkv": "*bf16", "grad": "*bf16", "gates": "*fp32", "tables": "*fp32", "visible": "*i8", "blocks": "*i32",
    "out": "*bf16", "lse": "*fp32", "deltas": "*fp32", "dqkv": "*bf16", "dgates": "*fp32", "ends": "*fp32",
    "tiles": "*i32", "counts": "*i32", "partial": "*fp32",
}  # fmt: skip


KERNELS = {
    "_forward": "forward",
    "_backward_queries": "queries",
    "_backward_keys": "keys",
    "_backward_bias": "bias",
}


@needs_triton
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("capability, most", GPUS)
def test_kernels_compile_for_gpus(monkeypatch, tmp_path, kernel, capability, most):
    if A.INTERPRETED:
        pytest.skip("interpreted kernels are not compiled")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    shape = A._Shape(
        64, 64, 12, 64, 64, 0.125, True, True, 128, 256, 1, causal=False, masked=False, widen=False
    )
    function = getattr(A, kernel)
    arguments = {n: POINTERS.get(n, "i32") for n in function.arg_names if n != "S"}
    options = A._OPTIONS[KERNELS[kernel]]
    ptx = check_compiled(function, arguments, {"S": shape}, capability, most, **options)
    assert MATRIX_UNIT[capability] in ptx


# ---- without either


def test_obstacles():
    cpu = torch.device("cpu")
    assert "float64" in A.attention_obstacle(cpu, torch.float64, 64)
    if not A.INTERPRETED:
        assert "are on 'cpu'" in A.attention_obstacle(cpu, torch.bfloat16, 64)


def test_blocks_hold_every_token_once():
    borders = torch.tensor([0, 1, 200, 264, 400])
    seconds = torch.tensor([1, 50, 64, 10])
    blocks = A.row_blocks(borders, seconds, 400)
    rows = []
    for start, length, second, first, _ in blocks.tolist():
        end = min(first + 64, second if first < second else length)
        rows += range(start + first, start + end)
    assert rows == [*range(400)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tables", [1, 2])
def test_near_tiles_are_those_that_hold_a_distance_within_the_limit(causal, tables):
    "Each once, at its shift and in its table."
    borders = torch.tensor([0, 130, 330])
    seconds = torch.tensor([130, 90])
    limit = 40
    blocks = A.row_blocks(borders, seconds, 330)
    tiles, counts = A.near_tiles(blocks, limit, tables, causal)
    shifts = [*A._near_shifts(limit)] * tables
    found = {
        (n // 2, n % 2, shift, k // (len(shifts) // tables))
        for k, (row, many, shift) in enumerate(zip(tiles.tolist(), counts.tolist(), shifts))
        for n in row[:many]
    }
    wanted = set()
    for b, (_, length, second, first, _) in enumerate(blocks.tolist()):
        if first >= length:
            continue
        position = first if first < second else first - second
        for side, (begin, end) in enumerate([(0, second), (second, length)]):
            for column in range(begin, end, 64):
                shift = (column - begin - position) // 64
                is_near = abs(64 * shift) - 63 < limit
                is_seen = not causal or column < first + 64
                other = tables == 2 and (first >= second) != (side == 1)
                if is_near and is_seen:
                    wanted.add((b, side, shift, int(other)))
    assert found == wanted and len(found) == counts.sum()


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case, dtype",
    [(case, torch.bfloat16) for case in CASES]
    + [(case, torch.float16) for case in ("blocks and a rest", "separate tables", "128 wide")],
    ids=str,
)
def test_on_a_gpu_in_16_bits(case, dtype):
    if why := A.attention_obstacle(torch.device("cuda"), dtype, 64):
        pytest.skip(why)
    errors = differences(case, "cuda", dtype)
    assert max(errors.values()) < TOLERANCE[dtype], errors


@pytest.mark.gpu
def test_gradients_are_the_same_in_every_run():
    if why := A.attention_obstacle(torch.device("cuda"), torch.bfloat16, 64):
        pytest.skip(why)
    first, second = (differences("separate tables", "cuda", torch.bfloat16) for _ in range(2))
    assert first == second


@pytest.mark.gpu
@pytest.mark.parametrize("case", ENCODERS, ids=str)
def test_an_encoder_on_a_gpu(case):
    with torch.autocast("cuda", torch.bfloat16):
        found = encoder_differences(*case, device="cuda")
    assert found["calls"] == (0 if case[0] == "none" and not case[3] else case[4])
    # two layers in bfloat16, each rounded several times to 8 bits, in another order
    assert found["states"] < 2e-2


@pytest.mark.gpu
def test_a_compiled_block_has_no_break_in_its_graph():
    config = E.config_for("tiny", 100, num_hidden_layers=2, relative_positions="gated")
    model = E.new_model(E.Encoder, config, 1).cuda()
    ids = torch.randint(5, 90, (4, 40), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        plain = model(ids).last_hidden_state
        for block in model.layers:
            block.compile(fullgraph=True)
        compiled = model(ids).last_hidden_state
    assert relative(compiled, plain.double()) < 2e-2
    compiled.float().sum().backward()


def unread_mask() -> float:
    "By how much outputs and gradients change if the first key, in a tile before padding, is hidden after all."
    borders = torch.tensor([0, 128])
    visible = torch.arange(128) < 80
    blocks = A.row_blocks(borders, borders.diff(), 128, visible)
    qkv = torch.randn(128, 3, 1, 32, generator=torch_generator("unread mask")).requires_grad_()
    found = []
    for mask in (visible, visible & (torch.arange(128) > 0)):
        out = A.gated_attention(qkv, blocks, visible=mask)
        found.append(torch.cat([out.flatten(), torch.autograd.grad(out.sum(), qkv)[0].flatten()]))
    return float((found[0] - found[1]).detach().abs().max())


def blocks_without_the_mask() -> float:
    "How far outputs are from those by blocks that were made with it."
    borders = torch.tensor([0, 128])
    visible = torch.arange(128) % 100 < 80
    qkv = torch.randn(128, 3, 1, 32, generator=torch_generator("blocks without the mask"))
    ours, theirs = (
        A.gated_attention(qkv, A.row_blocks(borders, borders.diff(), 128, mask), visible=visible)
        for mask in (None, visible)
    )
    return relative(ours, theirs.double())


def odd_positions() -> int:
    "How many layers read positions with a gap in one pass."
    config = E.config_for("tiny", 100, num_hidden_layers=1, relative_positions="gated")
    model = E.new_model(E.Encoder, config, 1)
    batch = {
        "input_ids": torch.arange(5, 11)[None],
        "position_ids": torch.tensor([[0, 1, 2, 7, 8, 9]]),
        "attention_mask": torch.ones(1, 6),
    }
    return states_and_gradients(model, batch, True)[2]


def short_mask() -> str:
    "What is said of a mask that is too short."
    config = E.config_for("tiny", 100, num_hidden_layers=1, relative_positions="gated")
    try:
        E.new_model(E.Encoder, config, 1)(torch.arange(5, 11)[None], torch.ones(1, 5))
    except ConfigError as e:
        return str(e)


def benchmark() -> float:
    "How far apart two forms of attention are in the benchmark of their times."
    from xlnb.results import benchmarks as B

    x = B._AttentionInputs(64, 128, "cpu")
    forms = {name: B.ATTENTION_FORMS[name] for name in ("in one pass", "matrix")}
    ours, theirs = (call(x) for call, _ in forms.values())
    for (_, leaves), out in zip(forms.values(), (ours, theirs)):
        torch.autograd.grad(out, leaves(x), torch.ones_like(out))
    return relative(ours.unflatten(0, (2, 64)).transpose(1, 2), theirs.double())


def compiled_and_in_bfloat16() -> dict:
    "How far the states of compiled blocks, and of those in bfloat16, are from the plain ones."
    config = E.config_for("tiny", 100, num_hidden_layers=1, relative_positions="gated")
    model = E.new_model(E.Encoder, config, 1)
    ids = torch.arange(5, 45).view(2, 20)
    plain = model(ids).last_hidden_state.double()
    with torch.autocast("cpu", torch.bfloat16):
        short = relative(model(ids).last_hidden_state, plain)
    model.layers[0].compile(fullgraph=True, backend="aot_eager")
    states = model(ids).last_hidden_state
    states.square().sum().backward()
    return {"compiled": relative(states, plain), "bfloat16": short}


if __name__ == "__main__":
    print(
        json.dumps(
            {
                "cases": {case: differences(case, "cpu") for case in CASES},
                "encoders": {str(case): encoder_differences(*case) for case in ENCODERS},
                "unread mask": unread_mask(),
                "blocks without the mask": blocks_without_the_mask(),
                "odd positions": odd_positions(),
                "short mask": short_mask(),
                "benchmark": benchmark(),
                **compiled_and_in_bfloat16(),
            }
        )
    )
