"Losses between contextual and static vectors against numpy, scipy and plain autograd; bad batches; large batches."

import itertools, re

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from torch import nn

from xlnb.base.core import ConfigError, DataError
from xlnb.text.cldr import cldr_corpus
from xlnb.text.vocab import train_vocab
from xlnb.encoder.encoder import Encoder, config_for
from xlnb.measures.retrieval import encode
from xlnb.static_transfer import (
    LOSSES,
    TransferLoss,
    cached_gradients,
    cosine,
    dcca,
    dcca_as_published,
    dcca_ey,
    mse,
    noise_correlation,
    word_batches,
    word_vectors,
)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def published(x, z, slip, k=10):
    "The formula of the published code for one part, in numpy."
    sides = []
    for h in (x, z):
        n, m = h.shape
        tiled = np.tile(h.mean(1), m).reshape(n, m)
        u, s, _ = np.linalg.svd(h - (tiled if slip else h.mean(0)), full_matrices=False)
        sides.append(u[:, :k] * np.sqrt(np.maximum(s[:k] ** 2 / (s[:k] ** 2 + 1e-8), 1e-8)))
    return -np.linalg.svd(np.hstack(sides), compute_uv=False)[:k].sum()


@pytest.mark.parametrize("slip", [False, True])
@pytest.mark.parametrize(
    "words, a, b", [(64, 768, 768), (64, 768, 300), (64, 12, 10), (168, 100, 40)]
)
def test_the_published_loss_is_its_formula(words, a, b, slip):
    "In parts of 64; the last may be shorter. To 1e-8 for the constant that the code adds to squared singular values."
    x = draw(words, a)
    z = draw(words, b, seed=1)
    z[:, :8] += x[:, :8]
    oracle = np.mean(
        [published(p.numpy(), q.numpy(), slip) for p, q in zip(x.split(64), z.split(64))]
    )
    assert float(dcca_as_published(x, z, centring_slip=slip)) == pytest.approx(oracle, abs=1e-8)
    single = float(dcca_as_published(x.float(), z.float(), centring_slip=slip))
    assert single == pytest.approx(oracle, abs=1e-4)  # the input is rounded, nothing else


def plain_autograd(x, z, k):
    "The same loss through torch.linalg.svd, whose gradient divides by all differences of singular values."
    u, v = (torch.linalg.svd(y - y.mean(0), full_matrices=False).U[:, :k] for y in (x, z))
    return -torch.linalg.svdvals(torch.cat([u, v], 1))[:k].sum()


@pytest.mark.parametrize("a, b", [(20, 12), (70, 12), (70, 90)])
def test_the_gradient_needs_the_subspace_alone(a, b):
    views = [draw(40, a).requires_grad_(), draw(40, b, seed=1).requires_grad_()]
    own = torch.autograd.grad(dcca_as_published(*views, components=6, part=40), views)
    if max(a, b) < 40:
        for mine, other in zip(own, torch.autograd.grad(plain_autograd(*views, 6), views)):
            assert torch.allclose(mine, other, atol=1e-9)
        return
    # centred, 40 words have rank 39: plain autograd divides by zero there, differences do not
    for seed in range(6):
        ways = [draw(*view.shape, seed=seed + 5) for view in views]
        ways[seed % 2] *= 0  # one view moves
        moved = [[v.detach() + step * way for v, way in zip(views, ways)] for step in (1e-6, -1e-6)]
        ahead, back = (plain_autograd(*pair, 6) for pair in moved)
        slope = sum((gradient * way).sum() for gradient, way in zip(own, ways))
        assert float(slope) == pytest.approx(float(ahead - back) / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_gradients_are_finite_differences():
    def views(n, a, b):
        return (draw(n, a).requires_grad_(), draw(n, b, seed=1).requires_grad_())

    maps = [draw(4, 2, seed=2).requires_grad_(), draw(3, 2, seed=3).requires_grad_()]
    assert torch.autograd.gradcheck(mse, views(5, 3, 3)) and torch.autograd.gradcheck(
        cosine, views(5, 3, 3)
    )
    assert torch.autograd.gradcheck(lambda x, z: dcca(x, z, ridge=0.1), views(25, 4, 3))
    assert torch.autograd.gradcheck(lambda x, z, *m: dcca_ey(x, z, m), (*views(9, 4, 3), *maps))
    for slip in (False, True):
        assert torch.autograd.gradcheck(
            lambda x, z, slip=slip: dcca_as_published(x, z, 2, 10, slip), views(20, 4, 3)
        )


def roots(gram):
    values, vectors = np.linalg.eigh(gram)
    return vectors / np.sqrt(values) @ vectors.T


@pytest.mark.parametrize("ridge", [1e-8, 1e-3, 0.5])
def test_canonical_correlations_are_scipys(ridge):
    x = draw(400, 9) @ draw(9, 9, seed=2)
    z = draw(400, 6, seed=1)
    z[:, :3] += 0.5 * x[:, :3]
    centred = [(v - v.mean(0)).numpy() for v in (x, z)]
    if ridge == 1e-8:
        oracle = np.cos(subspace_angles(*centred)).sum()
        off = 1e-5
    else:
        grams = [v.T @ v / 399 for v in centred]
        white = [roots(gram + ridge * gram.diagonal().mean() * np.eye(len(gram))) for gram in grams]
        product = white[0] @ (centred[0].T @ centred[1] / 399) @ white[1]
        oracle = np.linalg.svd(product, compute_uv=False).sum()
        off = 1e-10
    assert float(dcca(x, z, ridge=ridge)) == pytest.approx(-oracle, abs=off)


def test_too_few_words_are_refused_with_the_number_that_is_enough():
    x = draw(3073, 768, dtype=torch.float32)
    z = draw(3073, 768, seed=1, dtype=torch.float32)
    for words in (64, 1024):
        with pytest.raises(ConfigError, match="3,073 words are enough"):
            dcca(x[:words], z[:words])
    assert dcca(x, z).isfinite()
    few = torch.arange(2000) % 30  # thirty words, many times
    with pytest.raises(ConfigError, match="30 different words"):
        dcca(x[few, :16], z[few, :16])
    assert dcca(x[:2000, :16], z[:2000, :16]) < 0
    # wide, of rank four: the effective width counts
    low = x[:600, :4] @ draw(4, 200, seed=2, dtype=torch.float32)
    assert dcca(low, z[:600, :50]).isfinite()
    assert noise_correlation(8193, 768, 300) == pytest.approx((768 / 8192) ** 0.5)


def test_eckart_young_is_lowest_at_the_canonical_directions():
    "Each pair twice, so that both halves are the same; maps from an SVD, scaled by √(ρ / 2), have no gradient."
    n = 300
    x = draw(300, 6) @ draw(6, 6, seed=2)
    z = draw(300, 5, seed=1)
    z[:, :3] += x[:, :3]
    x, z = (v - v.mean(0) for v in (x, z))
    x, z = (v / v.square().mean().sqrt() for v in (x, z))
    ratio = 2 * (n - 1) / (2 * n - 1)  # of the denominators of a half and of the whole
    white = [torch.linalg.inv(torch.linalg.cholesky(v.T @ v / (n - 1))).T for v in (x, z)]
    u, rho, v = torch.linalg.svd(white[0].T @ x.T @ z @ white[1] / (n - 1))
    size = (ratio * rho[:3] / 2).sqrt()
    maps = [
        (white[0] @ u[:, :3] * size).requires_grad_(),
        (white[1] @ v[:3].T * size).requires_grad_(),
    ]
    value = dcca_ey(x.repeat_interleave(2, 0), z.repeat_interleave(2, 0), maps)
    assert float(value.detach()) == pytest.approx(
        -float((ratio * rho[:3]).square().sum()), abs=1e-10
    )
    for gradient in torch.autograd.grad(value, maps):
        assert gradient.abs().max() < 1e-10


def bad_batch(seed, n=64, width=10):
    "Two views with one defect or two, float32."
    generator = torch.Generator().manual_seed(seed)
    views = torch.randn(2, n, width, generator=generator)
    kind = seed % 7
    if kind in (0, 5):
        views = views[:, torch.randint(1 + seed % 50, (n,), generator=generator)]
    if kind in (1, 5):
        views[seed % 2, torch.randint(n, (1 + seed % 40,), generator=generator)] = 0
    if kind == 2:
        views[..., 2:] = views[..., :2] @ torch.randn(2, width - 2, generator=generator)
    if kind == 3:
        views *= 10.0 ** torch.randint(-12, 13, (2, n, 1), generator=generator)
    if kind == 4:
        views[1] = views[0] * 10.0 ** (seed % 21 - 10)
    # nothing but a common vector, to the precision of the type
    if kind == 6:
        views += 10.0 ** (seed % 9)
    return views[0].clone().requires_grad_(), views[1].clone().requires_grad_()


@pytest.mark.slow
def test_a_thousand_bad_batches_give_no_nan():
    losses = {name: TransferLoss(name, 10, 10) for name in LOSSES}
    losses["dcca_as_published"] = TransferLoss("dcca_as_published", 10, 10, components=4)
    losses["dcca, no limit"] = TransferLoss("dcca", 10, 10, most_noise=1.0)
    finite = dict.fromkeys(losses, 0)
    for seed, (name, loss) in itertools.product(range(1000), losses.items()):
        views = bad_batch(seed)
        try:
            value = loss(*views)
        except (ConfigError, DataError):
            continue
        gradients = torch.autograd.grad(value, [*views, *loss.parameters()])
        assert all(t.isfinite().all() for t in (value, *gradients)), (name, seed)
        finite[name] += 1
    assert finite["mse"] == 1000 and min(finite.values()) > 400, finite


def test_what_each_loss_leaves_alone():
    x = draw(640, 8)
    z = draw(640, 8, seed=1) + draw(640, 8)
    turn = torch.linalg.qr(draw(8, 8, seed=2)).Q
    moved = 1e4 * x @ turn + 30

    def few(x, z):
        return dcca_as_published(x, z, components=3)

    for loss in (dcca, few):
        assert float(loss(moved, z)) == pytest.approx(float(loss(x, z)), rel=1e-8)
    assert float(
        dcca(x @ (torch.eye(8) + 0.2 * draw(8, 8, seed=3)), z, ridge=1e-8)
    ) == pytest.approx(float(dcca(x, z, ridge=1e-8)), abs=1e-5)  # any invertible map
    assert float(cosine(1e4 * x, z)) == pytest.approx(float(cosine(x, z))) and mse(1e4 * x, z) > 1e6
    for scale in (1e-18, 1e18):
        assert float(dcca(scale * x.float(), z)) == pytest.approx(float(dcca(x, z)), rel=1e-5)


def test_losses_in_half_precision_are_computed_in_double():
    x = draw(640, 8)
    z = draw(640, 8, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for name in LOSSES:
            loss = TransferLoss(
                name, 8, 8, **({"components": 4} if name.startswith("dcca_") else {})
            )
            side = x.bfloat16().requires_grad_()
            value = loss(side, z)
            value.backward()
            assert value.dtype == torch.float64 and side.grad.isfinite().all()
            assert torch.equal(value, loss(side.double(), z))


NAN = draw(64, 6)
INF = draw(64, 6)
NAN[3, 2], INF[5, 0] = torch.nan, torch.inf
GOOD = draw(64, 6, seed=1)


@pytest.mark.parametrize("name", LOSSES)
def test_errors_are_typed(name):
    loss = TransferLoss(name, 6, 6, **({"components": 4} if name.startswith("dcca_") else {}))
    assert loss(GOOD, draw(64, 6)).isfinite()
    for views, error, words in (
        ((NAN, GOOD), DataError, "row 3"),
        ((GOOD, INF), DataError, "row 5"),
        ((GOOD[:9], GOOD), DataError, "9 contextual and 64 static"),
        ((GOOD[0], GOOD), DataError, "words, width"),
        ((GOOD, GOOD.long()), DataError, "floats"),
        ((GOOD, GOOD.numpy()), DataError, "tensor"),
        ((GOOD[:0], GOOD[:0]), ConfigError, "0 words"),
    ):
        with pytest.raises(error, match=words):
            loss(*views)
    if name in ("mse", "cosine"):
        with pytest.raises(ConfigError, match="width 768 and 300"):
            TransferLoss(name, 768, 300)
        with pytest.raises(ConfigError, match="width 6 and 5"):
            LOSSES[name](GOOD, GOOD[:, :5])
    else:
        assert TransferLoss(name, 768, 300)
    with pytest.raises(ConfigError):
        TransferLoss(name, 6, 6, colour=1)


def test_more_directions_than_a_view_has_are_refused_before_the_first_batch():
    with pytest.raises(ConfigError, match="components=10 for widths 768 and 8: .* 1 to 8"):
        TransferLoss("dcca_as_published", 768, 8)


@pytest.mark.parametrize("name", LOSSES)
def test_vectors_of_other_widths_than_the_loss_was_made_for(name):
    loss = TransferLoss(name, 6, 6, **{"components": 2} if name == "dcca_as_published" else {})
    for side, views in (("contextual", (draw(64, 5), GOOD)), ("static", (GOOD, draw(64, 7)))):
        with pytest.raises(
            ConfigError, match=rf"{side} vectors of width .*of width 6: .*TransferLoss\('{name}'"
        ):
            loss(*views)


@pytest.mark.parametrize("words", [70, 85, 130, 200, 400])
def test_advice_on_parts_can_be_taken(words):
    "In parts of 64 the last has 6, 21, 2, 8 and 16 words; ten directions of two views need 22."
    views = draw(2, words + 22, 12)

    def run(n, **options):
        return dcca_as_published(*views[:, :n], **options)

    with pytest.raises(
        ConfigError, match=f"{words} words in parts of 64: {words % 64} are left.*22 words"
    ) as e:
        run(words)
    fewer, more, part = map(
        int, re.search(r"give (\d+) or (\d+) words, or part=(\d+)", str(e.value)).groups()
    )
    assert fewer < words < more and words % part == 0
    assert all(value.isfinite() for value in (run(fewer), run(more), run(words, part=part)))
    with pytest.raises(ConfigError, match="part=21: .*give 64"):
        run(words, part=21)


def test_settings_that_cannot_be_used():
    for make in (
        lambda: TransferLoss("dcca_ey", 768, 300, components=301),
        lambda: TransferLoss("dca", 6, 6),
        lambda: TransferLoss("dcca", 6, 6, components=3),
        lambda: TransferLoss("dcca_ey", 6, 6, maps=[]),
        lambda: dcca(GOOD, GOOD, ridge=0),
        lambda: dcca(GOOD, GOOD, ridge=float("nan")),
        lambda: dcca(GOOD, GOOD, most_noise=0),
        lambda: dcca(GOOD[:2], GOOD[:2]),
        lambda: dcca_as_published(GOOD, GOOD, components=0),
        lambda: dcca_as_published(GOOD, GOOD, components=2.5),
        lambda: TransferLoss("dcca_ey", 6, 6, components="4"),
        lambda: dcca_as_published(GOOD, GOOD, 4, 0),
        lambda: dcca_as_published(GOOD, GOOD, 4, 9),
        lambda: dcca_as_published(GOOD, GOOD, 7),
        lambda: TransferLoss("dcca_ey", 5, 6)(GOOD, GOOD),
    ):
        with pytest.raises(ConfigError):
            make()
    for options in ({"ridge": -1}, {"ridge": 0.0}, {"most_noise": 0}, {"most_noise": 1.1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            TransferLoss("dcca", 6, 6, **options)
    with pytest.raises(DataError, match="the same"):
        dcca(GOOD, torch.ones_like(GOOD))
    with pytest.raises(DataError, match="row 0"):
        cosine(0 * GOOD, GOOD)
    with pytest.raises(DataError, match="rank 1,"):
        dcca_as_published(GOOD[:, :1].repeat(1, 6), GOOD, 4)


# ---------------------------------------------------------------- words, and large batches of them


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    text = cldr_corpus("de,ja,ru", parallel_lines=300, monolingual_lines=600, test_lines=10).text
    return train_vocab(text, 700, tmp_path_factory.mktemp("vocab"))


WORDS = ["Norwegen", "Россия", "日本", "Bosnien", "Австралия", "月曜日", "Dänemark", "ja"] * 4


def models(tokenizer):
    from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaForMaskedLM

    size = dict(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [
            Encoder(config_for("tiny", len(tokenizer))),
            BertModel(BertConfig(**size, pad_token_id=1)),
            XLMRobertaForMaskedLM(
                XLMRobertaConfig(**size, pad_token_id=1, bos_token_id=0, eos_token_id=2)
            ),
        ]


def test_words_are_encoded_as_retrieval_does(tokenizer):
    for model in (m.eval() for m in models(tokenizer)):
        for layer, pool in (
            (0, "mean"),
            (2, "mean"),
            (3, "mean"),
            (3, "mean_special"),
            (1, "first"),
        ):
            own = torch.cat(
                [
                    word_vectors(model, b, layer, pool)
                    for b in word_batches(WORDS, tokenizer, batch_size=5)
                ]
            )
            theirs = encode(WORDS, model, layer, tokenizer, pool, batch_size=64)
            assert torch.allclose(own, theirs, atol=1e-5)  # whatever stands beside a word
        own.square().sum().backward()
        assert model.base_model.get_input_embeddings().weight.grad.abs().sum() > 0


def test_words_that_are_long_or_empty(tokenizer):
    (batch,) = word_batches(["ja", "ja" * 100], tokenizer, most_pieces=7)
    assert (
        batch["attention_mask"].sum(1).tolist()[1] == 9
        and batch["special_tokens"].shape == batch["input_ids"].shape
    )
    assert word_batches([], tokenizer) == []
    with pytest.raises(DataError, match="word 1"):
        word_batches(["ja", ""], tokenizer)
    with pytest.raises(DataError):
        word_batches(["ja", None], tokenizer)
    with pytest.raises(ConfigError):
        word_batches("ja", tokenizer)
    with pytest.raises(ConfigError):
        word_batches(["ja"], tokenizer, batch_size=0)
    with pytest.raises(ConfigError, match="layer=9"):
        word_vectors(models(tokenizer)[0], batch, 9)


class Net(nn.Module):
    "A network with dropout."

    def __init__(self, dtype):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Linear(12, 24), nn.Tanh(), nn.Dropout(0.3), nn.Linear(24, 8)
            ).to(dtype)

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("dtype, off", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", LOSSES)
def test_cached_gradients_are_those_of_the_large_batch(name, dtype, off):
    inputs = draw(300, 12, dtype=dtype)
    static = draw(300, 8, seed=1, dtype=dtype)
    options = {
        "dcca_as_published": dict(components=4, part=300),
        "dcca_ey": dict(components=4),
    }.get(name, {})
    for cut in (300, 64, 7):  # the last micro-batch is shorter
        found = []
        states = []
        for cached in (False, True):
            net = Net(dtype)
            loss = TransferLoss(name, 8, 8, **options)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(5)
                if cached:
                    value = cached_gradients(net, inputs.split(cut), static, loss, weight=3.0)
                else:
                    value = loss(torch.cat([net(part) for part in inputs.split(cut)]), static)
                    (3.0 * value).backward()
                states.append(torch.get_rng_state())
            found.append(
                torch.cat(
                    [p.grad.flatten().double() for p in (*net.parameters(), *loss.parameters())]
                )
            )
        assert (found[0] - found[1]).norm() <= off * found[0].norm()
        assert torch.equal(*states)  # what is drawn next is drawn as after one pass
    assert not value.requires_grad


def test_cached_gradients_leave_nothing_behind_on_an_error():
    net = Net(torch.float64)
    loss = TransferLoss("dcca", 8, 8)
    parts = draw(20, 12).split(5)
    with pytest.raises(ConfigError, match="33 words are enough"):
        cached_gradients(net, parts, draw(20, 8), loss)
    with pytest.raises(DataError, match="20 contextual and 21"):
        cached_gradients(net, parts, draw(21, 8), loss)
    with pytest.raises(ConfigError, match="no micro-batches"):
        cached_gradients(net, [], draw(0, 8), loss)
    assert all(p.grad is None for p in net.parameters())
