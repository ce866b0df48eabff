"Objectives: the vocabulary head against the plain form, samples against the softmax, masking against slow oracles."

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from xlnb.base.core import ConfigError, DataError, torch_generator
from xlnb.encoder.encoder import config_for, load, new_model
from xlnb.encoder.heads import EncoderForMaskedLM
from xlnb.training import objectives as O

IDS = O.MaskIds(mask=99, special=(0, 1, 2, 3, 99), vocab_size=100)


def plain(hidden, weight, bias, labels):
    return F.cross_entropy(F.linear(hidden, weight, bias), labels, reduction="sum")


def head_inputs(n, size, dim, dtype=torch.float32, key="inputs"):
    g = torch_generator(key, n, size, dim)

    def make(*shape):
        return torch.randn(*shape, generator=g, dtype=dtype).requires_grad_()

    return make(n, dim), make(size, dim), make(size), torch.randint(size, (n,), generator=g)


def relative(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


# ---- the vocabulary head


@pytest.mark.parametrize(
    "n, size, dim", [(1, 5, 3), (7, 256, 8), (64, 257, 16), (33, 3000, 32), (5, 1, 4)]
)
@pytest.mark.parametrize("chunk", [None, 1, 512, 10_000])
def test_head_equals_plain(n, size, dim, chunk):
    *inputs, labels = head_inputs(n, size, dim)
    out = O.vocabulary_head(*inputs, labels, chunk=chunk)
    reference = plain(*inputs, labels)
    assert out.loss_sum.dtype == torch.float32 and out.samples is None and out.count == n
    assert torch.allclose(out.loss_sum, reference, rtol=1e-5, atol=1e-5)
    logits = F.linear(*inputs).detach()
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    # of logits near 10: rounding in float32 cannot exchange the two
    clear = (own - others).abs() > 1e-4
    assert clear.sum() >= 0.9 * n and torch.equal(out.correct[clear], (own > others)[clear])
    # an upstream factor other than 1 must come through; 1e-5 is float32 rounding of sums of this
    # length
    for got, wanted in zip(
        torch.autograd.grad(3 * out.loss_sum, inputs), torch.autograd.grad(3 * reference, inputs)
    ):
        assert float((got - wanted).abs().max()) <= 1e-5 * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("chunk", [256, 1024])
def test_head_gradcheck_float64(chunk):
    *inputs, labels = head_inputs(2, 300, 3, torch.float64)
    assert torch.autograd.gradcheck(
        lambda *x: O.vocabulary_head(*x, labels, chunk=chunk).loss_sum, inputs
    )


def test_chunk_changes_nothing():
    "In double precision: in float32 rounding may decide between two ids."
    *inputs, labels = head_inputs(50, 2500, 16, torch.float64)
    outs = [
        O.vocabulary_head(
            *inputs, labels, chunk=c, sample=True, temperature=t, generator=torch_generator("same")
        )
        for t in (1.0, 0.7)
        for c in (256, 768, 4096)
    ]
    for three in (outs[:3], outs[3:]):
        assert all(
            torch.equal(o.samples, three[0].samples) and torch.equal(o.correct, three[0].correct)
            for o in three
        )
        gradients = [torch.autograd.grad(o.loss_sum, inputs) for o in three]
        for g in gradients[1:]:
            assert max(relative(a, b) for a, b in zip(g, gradients[0])) < 1e-12
    assert not torch.equal(outs[0].samples, outs[3].samples)


def test_backward_twice_gives_the_same():
    *inputs, labels = head_inputs(9, 300, 4)
    loss = O.vocabulary_head(*inputs, labels).loss_sum
    first, second = (torch.autograd.grad(loss, inputs, retain_graph=True) for _ in range(2))
    assert max(relative(a, b) for a, b in zip(first, second)) < 1e-6  # float32


@pytest.mark.parametrize("chunk", [256, 4096])
def test_only_wanted_gradients(chunk):
    hidden, weight, bias, labels = head_inputs(9, 600, 4)
    out = O.vocabulary_head(hidden, weight.detach(), bias.detach(), labels, chunk=chunk)
    (got,) = torch.autograd.grad(out.loss_sum, hidden)
    assert relative(got, torch.autograd.grad(plain(hidden, weight, bias, labels), hidden)[0]) < 1e-5


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("chunk", [256, 1024])
def test_samples_follow_the_softmax(temperature, chunk):
    size = 700
    n = 60_000  # three blocks, the last one partly filled
    g = torch_generator("chi-square")
    weight = torch.randn(size, 4, generator=g)
    state = torch.randn(1, 4, generator=g)
    label = torch.zeros(n, dtype=torch.long)
    out = O.vocabulary_head(
        state.expand(n, 4),
        weight,
        torch.zeros(size),
        label,
        chunk=chunk,
        sample=True,
        temperature=temperature,
        generator=g,
    )
    expected = n * (state.double() @ weight.double().T / temperature).softmax(1)[0]
    seen = torch.bincount(out.samples, minlength=size).double()
    # the chi-square law needs expected counts of this order; the rest are pooled
    often = expected >= 10

    def pool(x):
        return torch.cat([x[often], x[~often].sum()[None]]).numpy()

    assert often.sum() > 20
    assert chisquare(pool(seen), pool(expected)).pvalue > 1e-3


def test_rows_are_sampled_from_their_own_softmax_and_independently():
    g = torch_generator("rows")
    n = 20_000
    weight = torch.zeros(512, 2)
    weight[300, 0] = weight[10, 1] = 1.0
    hidden = torch.tensor([[7.0, 0.0], [0.0, 7.0]]).repeat(n, 1)
    label = torch.zeros(2 * n, dtype=torch.long)
    out = O.vocabulary_head(hidden, weight, torch.zeros(512), label, sample=True, generator=g)
    a = (out.samples[0::2] == 300).double()
    b = (out.samples[1::2] == 10).double()
    p = math.exp(7) / (math.exp(7) + 511)
    error = math.sqrt(p * (1 - p) / n)
    assert abs(float(a.mean()) - p) < 4 * error and abs(float(b.mean()) - p) < 4 * error
    assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 4 / math.sqrt(n)


def test_extreme_and_forbidden_logits():
    bias = torch.zeros(1024)
    bias[:512] = -torch.inf  # two whole blocks
    weight = torch.zeros(1024, 1)
    weight[600], weight[601] = 300.0, -300.0
    hidden = torch.tensor([[1.0], [-1.0]]).requires_grad_()
    for chunk in (256, 1024):
        out = O.vocabulary_head(
            hidden,
            weight,
            bias,
            torch.tensor([600, 600]),
            chunk=chunk,
            sample=True,
            generator=torch_generator(0),
        )
        assert out.loss_sum.item() == pytest.approx(600.0)
        assert out.samples.tolist() == [600, 601] and out.correct.tolist() == [True, False]
        assert torch.isfinite(torch.autograd.grad(out.loss_sum, hidden)[0]).all()


@pytest.mark.parametrize("chunk", [256, 4096])
def test_autocast_bfloat16_keeps_the_softmax_in_float32(chunk):
    hidden, weight, _, labels = head_inputs(64, 2000, 64)
    bias = torch.zeros(2000, requires_grad=True)
    inputs = (hidden, weight, bias)
    with torch.autocast("cpu", torch.bfloat16):
        out = O.vocabulary_head(
            *inputs, labels, chunk=chunk, sample=True, generator=torch_generator(0)
        )
        logits = F.linear(hidden, weight)
    assert logits.dtype == torch.bfloat16 and out.loss_sum.dtype == torch.float32
    reference = F.cross_entropy(logits.float(), labels, reduction="sum")
    # a few of the bfloat16 logits are rounded to a neighbour where a chunk is added up in another
    # order; from there on
    # it is float32. A softmax in bfloat16 would be off by 2^-9 a row.
    assert out.loss_sum.item() == pytest.approx(reference.item(), rel=1e-4)
    exact = torch.autograd.grad(plain(*inputs, labels), inputs)
    got = torch.autograd.grad(out.loss_sum, inputs)
    # bfloat16 keeps 8 bits: relative rounding 2^-9 a factor, logits of size ~30 move by ~0.06
    assert [g.dtype for g in got] == [torch.float32] * 3
    assert max(float((a - b).norm() / b.norm()) for a, b in zip(got, exact)) < 0.1


def test_backward_inside_autocast():
    *inputs, labels = head_inputs(8, 600, 8)
    with torch.autocast("cpu", torch.bfloat16):
        loss = O.vocabulary_head(*inputs, labels, chunk=256).loss_sum
        inside = torch.autograd.grad(loss, inputs, retain_graph=True)
    outside = torch.autograd.grad(loss, inputs)
    # float32; bfloat16 would be off by 2^-9
    assert max(relative(a, b) for a, b in zip(inside, outside)) < 1e-6


def test_no_masked_position():
    *inputs, labels = head_inputs(0, 600, 4)
    for chunk in (None, 256):
        out = O.vocabulary_head(
            *inputs, labels, chunk=chunk, sample=True, generator=torch_generator(0)
        )
        assert out.loss_sum.item() == 0 and out.samples.shape == (0,) and out.correct.shape == (0,)
        for g, x in zip(torch.autograd.grad(out.loss_sum, inputs), inputs):
            assert g.shape == x.shape and not g.any()


@pytest.mark.parametrize(
    "labels, words",
    [
        ([0, 600], "labels[1]=600 is not an id of this vocabulary, 0..599"),
        ([-100, 0], "labels[0]=-100"),
    ],
)
def test_labels_out_of_range(labels, words):
    *inputs, _ = head_inputs(2, 600, 4)
    with pytest.raises(ValueError) as e:
        O.vocabulary_head(*inputs, torch.tensor(labels))
    assert words in str(e.value)


HIDDEN, WEIGHT, BIAS, LABELS = (x.detach() for x in head_inputs(4, 20, 8))


@pytest.mark.parametrize(
    "given, words",
    [
        ((HIDDEN, WEIGHT, None, LABELS), r"bias is a NoneType: give a tensor of shape \(20\)"),
        ((HIDDEN, WEIGHT, BIAS[1:], LABELS), r"bias is \(19,\) of torch.float32"),
        ((HIDDEN[None], WEIGHT, BIAS, LABELS), r"hidden is \(1, 4, 8\).*shape \(any, any\)"),
        ((HIDDEN[:, 1:], WEIGHT, BIAS, LABELS), r"weight is \(20, 8\).*shape \(any, 7\)"),
        ((HIDDEN, WEIGHT, BIAS, LABELS[1:]), r"labels is \(3,\).*whole numbers of shape \(4\)"),
        (
            (HIDDEN, WEIGHT, BIAS, LABELS.float()),
            "labels is .*torch.float32: give a tensor of whole numbers",
        ),
        ((HIDDEN, WEIGHT, BIAS, LABELS.tolist()), "labels is a list"),
    ],
)
def test_tensors_of_the_head_that_do_not_fit(given, words):
    with pytest.raises(DataError, match=words):
        O.vocabulary_head(*given)


def test_checks_read_no_number():
    "A look at a number would wait for the device; tensors without numbers cannot be looked at."
    O._check_head(*(x.to("meta") for x in (HIDDEN, WEIGHT, BIAS, LABELS)), None)


def test_settings_of_the_head():
    for chunk in (0, -1):
        with pytest.raises(ConfigError, match=f"chunk={chunk} ids"):
            O.vocabulary_head(HIDDEN, WEIGHT, BIAS, LABELS, chunk=chunk)
    with pytest.raises(ConfigError, match="generator=0: .*a torch.Generator such as"):
        O.vocabulary_head(HIDDEN, WEIGHT, BIAS, LABELS, sample=True, generator=0)


@pytest.mark.parametrize(
    "settings, words",
    [
        (dict(temperature=1.0), "needs generator"),
        (dict(temperature=0.0), "above 0"),
        (dict(temperature=float("nan")), "above 0"),
    ],
)
def test_sampling_settings(settings, words):
    with pytest.raises(ValueError, match=words):
        O.vocabulary_head(*head_inputs(2, 600, 4), sample=True, **settings)


class LargestTensor(TorchDispatchMode):
    "Elements of the largest tensor any operation makes, forward and backward."

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor):
                self.elements = max(self.elements, t.numel())
        return out


@pytest.mark.parametrize("bf16", [False, True])
def test_never_a_matrix_of_rows_by_vocabulary(bf16):
    *inputs, labels = head_inputs(1000, 20_000, 4)
    with LargestTensor() as seen:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            out = O.vocabulary_head(
                *inputs, labels, sample=True, temperature=0.9, generator=torch_generator(0)
            )
        out.loss_sum.backward()
    assert seen.elements <= O.SCRATCH["cpu"] // 4 < 1000 * 20_000
    with LargestTensor() as seen:
        plain(*inputs, labels).backward()
    assert seen.elements == 1000 * 20_000  # the measure sees what it should


@pytest.mark.parametrize(
    "rows, size, device",
    [
        (0, 10, "cpu"),
        (1, 500_000, "cpu"),
        (256, 250_002, "cpu"),
        (10**6, 500_000, "cpu"),
        (9830, 250_002, "cuda"),
    ],
)
def test_chunk_rule(rows, size, device):
    chunk = O.head_chunk(rows, size, device)
    assert chunk % O.BLOCK == 0 and O.BLOCK <= chunk < size + O.BLOCK
    if chunk < size:
        assert chunk == O.BLOCK or rows * chunk * 4 <= O.SCRATCH.get(device, O.SCRATCH_OTHER)
    else:
        assert rows * size * 4 <= O.STORED.get(device, O.SCRATCH_OTHER)


def test_form_of_the_head():
    cpu = torch.device("cpu")
    assert (
        O.head_form(cpu, torch.float32) == O.head_form(cpu, torch.float64, "chunked") == "chunked"
    )
    with pytest.raises(ConfigError, match="tensors are on 'cpu'.*leave form out"):
        O.vocabulary_head(*head_inputs(2, 600, 4), form="triton")
    with pytest.raises(ConfigError, match="is in torch.float64"):
        O.head_form(cpu, torch.float64, "triton")
    with pytest.raises(ConfigError, match="form='fast' is not one of"):
        O.head_form(cpu, torch.float32, "fast")
    *inputs, labels = head_inputs(9, 600, 4)
    a, b = (O.vocabulary_head(*inputs, labels, form=form).loss_sum for form in (None, "chunked"))
    assert torch.equal(a, b)


# ---- masking


def random_batch(packed, rows=40, key="batch"):
    g = torch_generator(key)
    lengths = torch.randint(3, 30, (rows,), generator=g).tolist()
    lines = [F.pad(torch.randint(4, 99, (n,), generator=g), (1, 1), value=2) for n in lengths]
    for line in lines:
        line[0] = 0
    for line in lines:
        # a second sentence
        if len(line) > 6:
            line[1 + len(line) // 2] = 2
    if packed:
        return {
            "input_ids": torch.cat(lines)[None],
            "cu_seqlens": F.pad(
                torch.tensor([len(line) for line in lines]).cumsum(0), (1, 0)
            ).int(),
        }
    ids = torch.nn.utils.rnn.pad_sequence(lines, batch_first=True, padding_value=1)
    return {"input_ids": ids, "attention_mask": (ids != 1).long()}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("spans", [None, "geometric", "uniform"])
@pytest.mark.parametrize("mask_special", [False, True])
def test_counts_are_those_of_fairseq(packed, spans, mask_special):
    batch = random_batch(packed)
    out = O.mask_tokens(
        batch, IDS, torch_generator("count"), rate=0.3, spans=spans, mask_special=mask_special
    )
    sequence = O.sequence_numbers(batch)
    tokens = batch["input_ids"].flatten()
    labels = out["labels"].flatten()
    for row in range(40):
        mine = sequence == row
        free = tokens[mine] != 1
        if not mask_special:
            free &= tokens[mine] != 0
            free &= tokens[mine] != 2
        exact = 0.3 * int(free.sum())
        assert math.floor(exact) <= int((labels[mine] >= 0).sum()) <= math.floor(exact) + 1
        assert not (labels[mine][~free] >= 0).any()
    assert torch.equal(labels[labels >= 0], tokens[labels >= 0])
    assert (out["input_ids"].flatten()[labels >= 0] == IDS.mask).all()
    assert torch.equal(out["input_ids"].flatten()[labels < 0], tokens[labels < 0])
    if mask_special:
        assert (labels == 0).any() and (labels == 2).any()
    assert batch["input_ids"].max() < 99, "the batch given must not change"


@pytest.mark.parametrize("spans", [None, "geometric", "uniform"])
def test_expected_rate_is_the_rate(spans):
    batch = random_batch(False, rows=200)
    g = torch_generator("rate")
    free = int((batch["input_ids"] > 3).sum())
    masks = torch.stack(
        [O.mask_tokens(batch, IDS, g, spans=spans)["labels"] >= 0 for _ in range(30)]
    )
    # one draw differs from 15 % by the fraction of a token a row: variance <= 1/4 each, 200 rows
    assert abs(float(masks.sum()) / 30 / free - 0.15) < 4 * math.sqrt(200 / 4) / free / math.sqrt(
        30
    )


@pytest.mark.parametrize("lengths", ["geometric", "uniform"])
def test_span_keys_against_a_loop(lengths):
    g = torch_generator("spans")
    batch = random_batch(True, rows=6)
    sequence = O.sequence_numbers(batch)
    tokens = batch["input_ids"].flatten()
    free = tokens > 3
    keys = O.span_keys(free, sequence, lengths, torch_generator("draws"))
    g = torch_generator("draws")
    k = torch.arange(10)  # the same draws, in the same order
    law = 0.8**k if lengths == "geometric" else torch.ones(10)
    length = torch.multinomial(law, len(tokens), replacement=True, generator=g) + 1
    arrival = torch.rand(len(tokens), generator=g, dtype=torch.float64)
    wanted = torch.ones(len(tokens), dtype=torch.float64)
    for start in range(len(tokens)):
        for at in range(start, min(start + int(length[start]), len(tokens))):
            if not free[at] or sequence[at] != sequence[start]:
                break
            wanted[at] = min(wanted[at], arrival[start])
    assert torch.equal(keys, wanted)


def test_one_side_is_one_side_and_either():
    g = torch_generator("sides")
    side = torch.tensor([0] + [1] * 8 + [0] + [2] * 8 + [0]).repeat(400, 1)
    batch = {"input_ids": torch.where(side > 0, 50, 2), "side": side.to(torch.int8)}
    labels = O.mask_tokens(batch, IDS, g, rate=0.5, sides="one")["labels"] >= 0
    first, second = ((labels & (side == s)).any(1) for s in (1, 2))
    assert (first ^ second).all() and (labels.sum(1) == 4).all()
    assert abs(float(first.double().mean()) - 0.5) < 4 * 0.5 / math.sqrt(400)


def test_80_10_10_in_a_batch():
    batch = {"input_ids": torch.full((300, 100), 50)}
    out = O.mask_tokens(batch, IDS, torch_generator("policy"), rate=0.5, policy="80-10-10")
    seen = out["input_ids"][out["labels"] >= 0]
    n = 15_000
    assert len(seen) == n and (out["labels"][out["labels"] >= 0] == 50).all()
    for share, p in (
        ((seen == 99).double().mean(), 0.8),
        ((seen == 50).double().mean(), 0.1 + 0.1 / 95),
    ):
        assert abs(float(share) - p) < 4 * math.sqrt(p * (1 - p) / n)
    other = seen[(seen != 99) & (seen != 50)]
    assert set(other.tolist()) == set(range(4, 99)) - {50}


@pytest.mark.parametrize(
    "ids",
    [
        torch.tensor([[0, 2, 1]]),
        torch.zeros(0, 5, dtype=torch.long),
        torch.tensor([[0, 2], [50, 51]]),
    ],
)
@pytest.mark.parametrize("spans", [None, "uniform"])
def test_batches_with_little_to_mask(ids, spans):
    out = O.mask_tokens(
        {"input_ids": ids, "attention_mask": None}, IDS, torch_generator(0), rate=1.0, spans=spans
    )
    assert torch.equal(out["labels"], torch.where(ids > 3, ids, -100))


def test_same_generator_same_masks():
    batch = random_batch(False)

    def draw(k):
        return O.mask_tokens(
            batch, IDS, torch_generator("m", k), policy="80-10-10", spans="geometric"
        )

    a = draw(0)
    b = draw(0)
    c = draw(1)
    assert torch.equal(a["input_ids"], b["input_ids"]) and torch.equal(a["labels"], b["labels"])
    assert not torch.equal(a["labels"], c["labels"])


def test_mask_ids_of_a_tokenizer():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocab = {w: i for i, w in enumerate(["<s>", "<pad>", "</s>", "<unk>", "ein", "кот", "<mask>"])}
    names = dict(bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    words = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))

    def make(**more):
        return PreTrainedTokenizerFast(tokenizer_object=words, **names, **more)

    assert O.MaskIds.of(make(mask_token="<mask>")) == O.MaskIds(6, (0, 1, 2, 3, 6), 7)
    with pytest.raises(ConfigError, match="no mask token"):
        O.MaskIds.of(make())
    with pytest.raises(
        ConfigError, match="tokenizer='xlm-roberta-base' is no tokenizer: load it first"
    ):
        O.MaskIds.of("xlm-roberta-base")


@pytest.mark.parametrize(
    "settings",
    [
        dict(rate=-0.1),
        dict(rate=1.1),
        dict(policy="bert"),
        dict(sides="first"),
        dict(spans="poisson"),
        dict(sides="one"),
        dict(sides="one", mask_special=True),
    ],
)
def test_masking_settings(settings):
    with pytest.raises(ConfigError):
        O.mask_tokens(random_batch(False), IDS, torch_generator(0), **settings)


@pytest.mark.parametrize(
    "batch, words",
    [
        ({"input_ids": [[0, 50, 2]]}, "input_ids is a list"),
        ({"input_ids": torch.tensor([0, 50, 2])}, r"input_ids is \(3,\).*shape \(any, any\)"),
        ({"input_ids": torch.tensor([[0.0, 50.0]])}, "input_ids is .*whole numbers"),
        (
            {"input_ids": torch.tensor([[0, 50]]), "attention_mask": [[1, 1]]},
            "attention_mask is a list",
        ),
        (
            {"input_ids": torch.tensor([[0, 50]]), "attention_mask": torch.ones(2)},
            r"attention_mask is .*shape \(1, 2\)",
        ),
    ],
)
def test_batches_that_cannot_be_masked(batch, words):
    with pytest.raises(DataError, match=words):
        O.mask_tokens(batch, IDS, torch_generator(0))
    with pytest.raises(ConfigError, match="generator=0: .*a torch.G"):
        O.mask_tokens(random_batch(False), IDS, 0)


# ---- losses


def test_masked_lm_loss_does_not_depend_on_the_cut():
    g = torch_generator("cut")
    batch = O.mask_tokens(random_batch(False, rows=12), IDS, g, rate=0.4)
    dense = torch.nn.Linear(6, 5)
    hidden = torch.randn(*batch["labels"].shape, 6, generator=g)
    weight = torch.randn(100, 5, generator=g).requires_grad_()
    bias = torch.randn(100, generator=g)

    def pieces(*cuts):
        parts = zip(hidden.split(cuts), batch["labels"].split(cuts))
        outs = [O.masked_lm_loss(h, l, dense, weight, bias) for h, l in parts]
        loss = sum(o.loss_sum for o in outs) / sum(o.count for o in outs)
        return loss, *torch.autograd.grad(loss, (weight, dense.weight))

    for a, b in zip(pieces(12), pieces(1, 7, 4)):
        assert relative(a, b) < 1e-5
    logits = F.linear(dense(hidden), weight, bias).flatten(0, 1)
    assert (
        relative(
            pieces(12)[0], F.cross_entropy(logits, batch["labels"].flatten(), ignore_index=-100)
        )
        < 1e-5
    )


def test_replaced_tokens():
    masked = torch.tensor([[0, 99, 51, 99, 2, 1], [0, 60, 99, 62, 2, 1]])
    labels = torch.tensor([[-100, 50, -100, 52, -100, -100], [-100, -100, 61, -100, -100, -100]])
    corrupted, replaced = O.replaced_tokens(masked, labels, torch.tensor([50, 70, 71]))
    assert corrupted.tolist() == [[0, 50, 51, 70, 2, 1], [0, 60, 71, 62, 2, 1]]
    # 50 was sampled where 50 had been: original
    assert replaced.tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0]]
    assert masked[0, 1] == 99


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rtd_loss_is_the_mean_over_tokens_and_blind_to_padding(dtype):
    g = torch_generator("rtd")
    logits = torch.randn(4, 9, generator=g).to(dtype)
    labels = torch.randint(2, (4, 9), generator=g)
    mask = (torch.arange(9) < torch.tensor([9, 3, 7, 1])[:, None]).long()
    total, count = O.rtd_loss(logits, labels, mask)
    inside = mask.bool()
    assert total.dtype == torch.float32 and int(count) == 20
    wanted = F.binary_cross_entropy_with_logits(logits[inside].float(), labels[inside].float())
    assert relative(total / count, wanted) < 1e-6
    other = logits.masked_fill(~inside, torch.inf)
    # float32 sums
    assert O.rtd_loss(other, labels, mask)[0].item() == pytest.approx(total.item(), rel=1e-6)
    assert torch.equal(O.rtd_loss(logits[inside][None], labels[inside][None])[1], count)


def test_rtd_leaves_out_what_is_not_counted():
    logits = torch.randn(3, 8, generator=torch_generator("ignored"))
    labels = torch.tensor([[1, 0] * 4] * 3)
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3, [1] * 8])
    out = torch.arange(24).view(3, 8) % 5 == 0
    ignored = labels.masked_fill(out, -100)
    wanted = O.rtd_loss(logits, labels, mask * ~out)
    for own, other in zip(O.rtd_loss(logits, ignored, mask), wanted):
        assert torch.equal(own, other)
    assert O.rtd_diagnostics(logits, ignored, mask) == O.rtd_diagnostics(
        logits, labels, mask * ~out
    )
    assert int(O.rtd_loss(logits, torch.full_like(labels, -100))[1]) == 0


def test_info_nce_against_a_loop():
    g = torch_generator("nce")
    a = torch.randn(5, 7, generator=g)
    b = torch.randn(5, 7, generator=g)

    def score(x, y):
        return float(F.cosine_similarity(x, y, dim=0)) / 0.1

    wanted = 0.0
    for i in range(5):
        for anchor, others in ((a[i], b), (b[i], a)):
            scores = torch.tensor([score(anchor, o) for o in others])
            wanted += float(scores.logsumexp(0) - scores[i]) / 2
    total, count = O.info_nce(a, b, temperature=0.1)
    assert count == 5 and total.item() == pytest.approx(wanted, rel=1e-5)
    assert O.info_nce(b, a, temperature=0.1)[0].item() == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(ValueError, match="n ≥ 2"):
        O.info_nce(a[:1], b[:1])
    with pytest.raises(ValueError):
        O.info_nce(a, b[:4])
    for temperature in (0, -1.0, math.nan):
        with pytest.raises(ConfigError, match="must be above 0"):
            O.info_nce(a, b, temperature)


def test_mean_pool_ignores_what_is_not_its_side():
    hidden = torch.randn(2, 4, 3, generator=torch_generator("pool"))
    side = torch.tensor([[0, 1, 1, 2], [0, 2, 2, 2]])
    pooled = O.mean_pool(hidden, side == 1)
    assert torch.allclose(pooled[0], hidden[0, 1:3].mean(0)) and torch.equal(
        pooled[1], torch.zeros(3)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_mean_pool_in_half_precision_sums_in_single(dtype):
    mask = torch.ones(1, 515)  # bfloat16 has no 515, and the sum is beyond float16
    pooled = O.mean_pool(torch.full((1, 515, 2), 150.0, dtype=dtype), mask)
    assert pooled.dtype == dtype and torch.equal(pooled, torch.full((1, 2), 150.0, dtype=dtype))
    if dtype.itemsize < 4:
        return
    hidden = torch.randn(3, 20, 4, generator=torch_generator("half"), dtype=dtype)
    some = torch.arange(60).view(3, 20) % 3
    weight = some.clamp(max=1).to(dtype)[..., None]
    # to the bit
    assert torch.equal(O.mean_pool(hidden, some > 0), (hidden * weight).sum(1) / weight.sum(1))


# ---- diagnostics


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_roc_auc_against_counting_pairs(levels):
    g = torch_generator("auc", levels)
    scores = torch.randint(levels, (300,), generator=g).float()
    labels = torch.randint(2, (300,), generator=g)
    ones = scores[labels == 1][:, None]
    zeros = scores[labels == 0][None]
    wanted = float(((ones > zeros).double() + 0.5 * (ones == zeros).double()).mean())
    assert O.roc_auc(scores, labels) == pytest.approx(wanted, abs=1e-12)
    assert math.isnan(O.roc_auc(scores, torch.ones(300)))


@pytest.mark.parametrize(
    "scores, labels, says",
    [
        (torch.tensor([1.0, math.nan, 2.0]), torch.tensor([1, 0, 1]), r"scores\[1\] is NaN"),
        (torch.tensor([1.0, 2.0]), torch.tensor([1, 2]), "labels hold 2: give 1 or 0"),
        (torch.tensor([1.0, 2.0]), torch.tensor([-100, 0]), "labels hold -100"),
        (torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), "labels hold 0.5"),
        ([0.3, 0.1], [1, 0], "scores is a list: give a tensor"),
        (torch.tensor([0.3, 0.1]), [1, 0], "labels is a list"),
        (
            torch.zeros(2, 2),
            torch.zeros(2, 2),
            r"scores is \(2, 2\) of torch.float32.*shape \(any\)",
        ),
        (torch.zeros(2), torch.zeros(3), r"labels is \(3,\).*shape \(2\)"),
    ],
)
def test_roc_auc_refuses(scores, labels, says):
    with pytest.raises(DataError, match=says):
        O.roc_auc(scores, labels)
    assert (
        O.roc_auc(torch.tensor([1.0, math.inf, -math.inf]), torch.tensor([True, True, False])) == 1
    )


def test_base_rate_entropy_is_the_loss_of_a_constant_answer():
    labels = (torch.arange(1000) < 137).long()[None]
    constant = torch.full((1, 1000), math.log(0.137 / 0.863))
    report = O.rtd_diagnostics(constant, labels)
    assert report["loss"] == pytest.approx(report["base_loss"], rel=1e-6) and report["auc"] == 0.5
    assert report["accuracy"] == report["base_accuracy"] == pytest.approx(0.863)
    assert report["replaced"] == pytest.approx(0.137)


def test_samples_are_one_for_each_hole():
    ids = torch.tensor([[0, 9, 4, 5, 4, 2]])
    labels = torch.tensor([[-100, -100, 7, -100, 8, -100]])
    everywhere = torch.arange(100, 106)[None]
    for samples in (everywhere, everywhere[0], torch.tensor([7])):
        with pytest.raises(
            DataError, match="2 labels are not -100: give one id for each .*samples.labels != -100."
        ):
            O.replaced_tokens(ids, labels, samples)
    assert O.replaced_tokens(ids, labels, everywhere[labels != -100])[0].tolist() == [
        [0, 9, 102, 5, 104, 2]
    ]


def test_labels_of_masked_words_are_no_labels_of_replacement():
    logits = torch.zeros(1, 4)
    labels = torch.tensor([[-100, 17, -100, 0]])
    with pytest.raises(
        DataError, match="labels hold 17: give 1 .replaced., 0 or -100, as `replaced_tokens`"
    ):
        O.rtd_loss(logits, labels)
    with pytest.raises(DataError, match="logits is .*1, 4, 2"):
        O.rtd_loss(torch.zeros(1, 4, 2), labels)
    with pytest.raises(DataError, match="attention_mask is .*1, 3"):
        O.rtd_loss(logits, labels, torch.ones(1, 3))


_IDS = torch.tensor([[0, 5, 6, 2]])
_MASKED = {"input_ids": _IDS, "labels": torch.tensor([[-100, 5, -100, -100]])}
_STATES = torch.zeros(2, 3, 4)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (
            lambda net, g: O.guess(net, "text", False, g),
            ConfigError,
            "a batch is a dict of tensors, .*; got a str",
        ),
        (
            lambda net, g: O.guess(net, {"input_ids": _IDS}, False, g),
            ConfigError,
            "has input_ids: add its labels",
        ),
        (
            lambda net, g: O.guess("net", _MASKED, False, g),
            ConfigError,
            "network is a str: give an EncoderForMaskedLM",
        ),
        (
            lambda net, g: O.guess(net.base_model, _MASKED, False, g),
            ConfigError,
            "network is a Encoder: give an",
        ),
        (
            lambda net, g: O.guess(net, {**_MASKED, "labels": [[5]]}, False, g),
            DataError,
            "labels is a list: give a tensor",
        ),
        (
            lambda net, g: O.guess(net, {**_MASKED, "input_ids": _IDS[0]}, False, g),
            DataError,
            r"shape \(1, 4\)",
        ),
        (lambda net, g: O.mask_tokens("text", None, g), ConfigError, "got a str"),
        (lambda net, g: O.network_inputs([_IDS]), ConfigError, "got a list"),
        (lambda net, g: O.sequence_numbers("text"), ConfigError, "got a str"),
        (
            lambda net, g: O.masked_lm_loss("text", _IDS, None, None, None),
            DataError,
            "hidden is a str: give a tensor",
        ),
        (lambda net, g: O.replaced_tokens("text", _IDS, _IDS[0]), DataError, "input_ids is a str"),
        (lambda net, g: O.replaced_tokens(_IDS, [[1]], [1]), DataError, "labels is a list"),
        (lambda net, g: O.replaced_tokens(_IDS, _IDS, [1]), DataError, "samples is a list"),
        (lambda net, g: O.rtd_loss([0.5], [1]), DataError, "labels is a list"),
        (lambda net, g: O.rtd_diagnostics([0.5], _IDS), DataError, "logits is a list"),
        (
            lambda net, g: O.binary_entropy("half"),
            ConfigError,
            "rate='half': give a number from 0 to 1",
        ),
        (lambda net, g: O.binary_entropy(1.5), ConfigError, "rate=1.5: give a number from 0 to 1"),
        (lambda net, g: O.mean_pool([[0.5]], _IDS), DataError, "hidden is a list"),
        (
            lambda net, g: O.mean_pool(_STATES, torch.ones(2, 5)),
            DataError,
            r"mask is \(2, 5\) .* shape \(2, 3\)",
        ),
        (lambda net, g: O.info_nce("a", "b"), DataError, "a is a str"),
        (
            lambda net, g: O.info_nce(_STATES[0], _STATES[0], "hot"),
            ConfigError,
            "temperature='hot' must be above 0",
        ),
    ],
)
def test_wrong_types_are_answered_in_a_sentence(call, error, message):
    network = new_model(EncoderForMaskedLM, config_for("tiny", 40), 0)
    with pytest.raises(error, match=message):
        call(network, torch_generator(0))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_distillation_is_the_divergence_of_torch(temperature):
    generator = torch_generator("distillation")
    student, teacher = (3 * torch.randn(7, 11, generator=generator) for _ in range(2))
    student.requires_grad_()
    softened = [torch.distributions.Categorical(logits=x / temperature) for x in (teacher, student)]
    expected = temperature**2 * torch.distributions.kl_divergence(*softened).sum()
    loss = O.distillation_loss(student, teacher, temperature)
    torch.testing.assert_close(loss, expected)
    gradients = [torch.autograd.grad(x, student, retain_graph=True)[0] for x in (loss, expected)]
    torch.testing.assert_close(*gradients)
    # T² keeps the gradient's size: T · (student - teacher) in softened probabilities
    p, q = (x.probs for x in softened)
    torch.testing.assert_close(gradients[0], temperature * (q - p).detach())
    assert O.distillation_loss(teacher, teacher, temperature) == 0
    half = O.distillation_loss(student.bfloat16(), teacher.bfloat16(), temperature)
    assert half.dtype == torch.float32


def test_distillation_of_other_shapes_is_refused():
    with pytest.raises(DataError, match="teacher"):
        O.distillation_loss(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(ConfigError, match="temperature=0"):
        O.distillation_loss(torch.zeros(2, 3), torch.zeros(2, 3), 0)


def test_subwords_that_a_larger_tokenizer_adds_are_predicted_again(tmp_path):
    network = new_model(EncoderForMaskedLM, config_for("tiny", 50), 0)
    network.head.bias.data.fill_(0.5)
    O.forbid_spare_rows(network, 45)
    network.save_pretrained(tmp_path)
    again = load(tmp_path, EncoderForMaskedLM)
    O.forbid_spare_rows(again, 48)
    assert again.head.bias.tolist() == [0.5] * 48 + [O.NEVER_PREDICTED] * 2
    scores = again(torch.tensor([[7, 8]])).logits.softmax(-1)
    assert (scores[..., 45:48] > 1e-4).all() and (scores[..., 48:] == 0).all()


def test_token_types_reach_the_network():
    config = config_for("tiny", 50, type_vocab_size=2)
    network = new_model(EncoderForMaskedLM, config, 0).eval()
    torch.nn.init.normal_(network.encoder.embeddings.token_type_embeddings.weight)
    ids = torch.randint(5, 48, (2, 6), generator=torch_generator("ids"))
    labels = torch.full_like(ids, -100)
    labels[:, 2] = ids[:, 2]
    types = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    batch = {"input_ids": ids, "labels": labels, "token_type_ids": types}
    loss = network(ids, labels=labels, token_type_ids=types).loss
    assert_close(O.guess(network, batch, False, torch_generator(0)).loss_sum / 2, loss)
