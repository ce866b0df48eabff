"Linear maps against scipy, autograd, least squares and perturbation theory."

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes, sqrtm

from xlnb.base.core import ConfigError, DataError
from xlnb.measures.linear_maps import (
    cca_maps,
    decomposed,
    generalized_procrustes,
    normalise,
    procrustes,
    rcsls,
    rcsls_loss,
    whitened_maps,
)
from xlnb.measures.retrieval import nearest
from xlnb.mapping import unsupervised_pairs


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(width, seed=0):
    return torch.linalg.qr(draw(width, width, seed=seed))[0]


def test_a_rotation_is_found_at_full_size():
    "20,000 × 300: to the precision of the type without noise, within the bound of Li (1995) with it."
    x = draw(20_000, 300) * torch.linspace(2, 0.5, 300, dtype=torch.float64)
    turn = rotation(300, 1)
    assert (procrustes(x, x @ turn) - turn).abs().max() < 1e-12
    assert (procrustes(x.float(), (x @ turn).float()) - turn).abs().max() < 1e-6
    clean = x.T @ (x @ turn)
    z = x @ turn + draw(20_000, 300, seed=2)
    smallest = torch.linalg.svdvals(clean)[-1] + torch.linalg.svdvals(x.T @ z)[-1]
    bound = 2 * torch.linalg.matrix_norm(x.T @ z - clean) / smallest
    off = torch.linalg.matrix_norm(procrustes(x, z) - turn)
    assert bound / 20 < off <= bound  # and the bound says something


def test_whole_numbers_and_halves():
    x = [[1, 1], [1, -1], [2, 0]]
    z = [[0, 2], [2, 0], [2, 2]]
    expected = procrustes(torch.tensor(x).double(), torch.tensor(z).double())
    for kind in (lambda m: m, np.array, torch.tensor):
        assert torch.allclose(procrustes(kind(x), kind(z)).double(), expected, atol=1e-6)
        assert torch.allclose(normalise(kind(x), "unit").norm(dim=1), torch.ones(3))
    large = torch.full((2, 768), 3000.0).half()  # squares of which a half cannot hold
    assert torch.allclose(normalise(large, "unit").float().norm(dim=1), torch.ones(2), atol=1e-2)


def test_procrustes_is_scipys():
    for n, width in ((50, 8), (5, 8), (1, 3)):  # fewer rows than columns as well
        x = draw(n, width)
        z = draw(n, width, seed=1)
        own = procrustes(x, z)
        theirs = torch.from_numpy(orthogonal_procrustes(x.numpy(), z.numpy())[0])
        assert torch.allclose(own @ own.T, torch.eye(width, dtype=torch.float64), atol=1e-12)
        assert float(((x @ own - z) ** 2).sum()) == pytest.approx(
            float(((x @ theirs - z) ** 2).sum())
        )
        if n > width:
            assert torch.allclose(own, theirs, atol=1e-10)


def test_directions_that_no_pair_has_a_part_in_stay():
    x = draw(40, 30)
    assert torch.allclose(
        procrustes(x[:12], x[:12]), torch.eye(30, dtype=torch.float64), atol=1e-12
    )
    turn = torch.eye(30, dtype=torch.float64)
    turn[:5, :5] = rotation(5, 2)
    if torch.linalg.det(turn) < 0:
        turn[0] *= -1
    # says what becomes of five axes
    found = procrustes(torch.eye(30, dtype=torch.float64)[:5], turn[:5])
    assert torch.allclose(found, turn, atol=1e-12)


def test_pairs_that_stay_hold_a_map_back():
    x = draw(50, 20)
    z = draw(50, 20, seed=1)
    off = [
        float(torch.linalg.matrix_norm(procrustes(x, z, weight) - torch.eye(20)))
        for weight in (0, 10, 100, 1e6)
    ]
    assert off == sorted(off, reverse=True) and off[-1] < 1e-3
    axes = 3 * torch.eye(20, dtype=torch.float64)  # a pair of length 3 along each axis
    assert torch.allclose(
        procrustes(x, z, 9), procrustes(torch.cat([x, axes]), torch.cat([z, axes])), atol=1e-12
    )
    for wrong in (-1, float("nan")):
        with pytest.raises(ConfigError, match="identity_weight=.*give a number of 0 or more"):
            procrustes(x, z, wrong)


def test_whitened_maps_are_the_formulas():
    x = draw(200, 7) @ draw(7, 7, seed=3)
    z = draw(200, 7, seed=1) @ draw(7, 7, seed=4)
    z[:, :4] += x[:, :4]
    white = [torch.from_numpy(np.linalg.inv(sqrtm((y.T @ y).numpy()).real)) for y in (x, z)]
    u, s, v = torch.linalg.svd(white[0] @ x.T @ z @ white[1])
    v = v.T
    for powers in ((1.0, 0.0), (0.5, 0.5), (0.0, 0.0), (0.0, 1.0)):
        map_x, map_z = whitened_maps(x, z, powers)
        # as printed, step by step
        there = x @ white[0] @ u @ torch.diag(s ** powers[0]) @ u.T @ white[0].inverse() @ u
        other = z @ white[1] @ v @ torch.diag(s ** powers[1]) @ v.T @ white[1].inverse() @ v
        assert torch.allclose(x @ map_x @ v, there, atol=1e-8) and torch.allclose(
            z @ map_z @ v, other, atol=1e-8
        )
    # the hub stays
    assert torch.allclose(whitened_maps(x, z)[1], torch.eye(7, dtype=torch.float64), atol=1e-9)
    turn = rotation(7, 5)
    assert torch.allclose(whitened_maps(x, x @ turn)[0], turn, atol=1e-8)


@pytest.mark.parametrize("widths", [(6, 6), (8, 5)])
def test_cca_maps_correlate_as_the_best_linear_maps_do(widths):
    "Against scikit-learn's iterative CCA; a side that lacks a direction is no obstacle."
    from sklearn.cross_decomposition import CCA

    shared = draw(2000, 3, seed=1)

    def noisy(k, w):
        return torch.cat([shared + 0.5 * draw(2000, 3, seed=k), draw(2000, w - 3, seed=10 + k)], 1)

    x, z = (noisy(k, w) @ draw(w, w, seed=20 + k) for k, w in enumerate(widths))
    x = x - x.mean(0)
    z = z - z.mean(0)
    a, b = (side @ m for side, m in zip((x, z), cca_maps(x, z, ridge=1e-9)))
    ours = [float(torch.corrcoef(torch.stack([a[:, k], b[:, k]]))[0, 1]) for k in range(3)]
    theirs = CCA(3, max_iter=5000, tol=1e-12).fit_transform(x.numpy(), z.numpy())
    assert ours == pytest.approx(
        [np.corrcoef(theirs[0][:, k], theirs[1][:, k])[0, 1] for k in range(3)], abs=1e-3
    )
    # weighted by them
    assert float(a[:, 0].std() / a[:, 2].std()) == pytest.approx(ours[0] / ours[2], rel=1e-3)
    flat = x - x.mean(1, keepdim=True)  # as after a layer norm
    assert torch.isfinite(cca_maps(flat, z)[0]).all()
    for wrong in ((x, z[1:]), (x[0], z[0]), (x[:0], z[:0])):
        with pytest.raises(DataError, match="row i of one belongs|a matrix has rows and"):
            cca_maps(*wrong)
    with pytest.raises(DataError, match="zero everywhere"):
        cca_maps(x, 0 * z)
    with pytest.raises(ConfigError, match="ridge=-1"):
        cca_maps(x, z, -1)


def dense_loss(map_, x, z, all_x, all_z, k):
    mapped = x @ map_
    all_mapped = all_x @ map_
    to_z = (mapped @ all_z.T).topk(k).values.mean(1)
    to_x = (z @ all_mapped.T).topk(k).values.mean(1)
    return -(2 * (mapped * z).sum(1) - to_z - to_x).mean()


def test_rcsls_is_the_formula_and_its_gradient_that_of_autograd_and_of_differences():
    all_x = normalise(draw(300, 10), "unit")
    all_z = normalise(draw(260, 10, seed=1), "unit")
    x = all_x[:80]
    z = all_z[:80]
    at = draw(10, 10, seed=2).requires_grad_()
    for k in (1, 10):
        at.grad = None
        dense = dense_loss(at, x, z, all_x, all_z, k)
        dense.backward()
        dense = dense.detach()
        loss, gradient = rcsls_loss(at.detach(), x, z, all_x, all_z, k)
        assert loss == pytest.approx(float(dense)) and torch.allclose(gradient, at.grad, atol=1e-10)
        rng = np.random.default_rng(k)
        for _ in range(5):
            direction = torch.from_numpy(rng.normal(size=(10, 10)))
            up, down = (
                rcsls_loss(at.detach() + h * direction, x, z, all_x, all_z, k)[0]
                for h in (1e-6, -1e-6)
            )
            assert (up - down) / 2e-6 == pytest.approx(
                float((gradient * direction).sum()), rel=1e-4, abs=1e-6
            )


def test_the_loss_of_rcsls_takes_arrays_and_matrices_of_several_types():
    x = normalise(draw(60, 6), "unit")
    z = normalise(draw(60, 6, seed=1), "unit")
    loss, gradient = rcsls_loss(torch.eye(6, dtype=torch.float64), x, z, x, z)
    for at in (torch.eye(6), torch.eye(6, dtype=torch.int64), np.eye(6, dtype=np.float32)):
        mixed, of_mixed = rcsls_loss(at, x.float(), z.numpy(), x, z.half())
        # z is rounded to 16 bits
        assert mixed == pytest.approx(loss, abs=2e-3) and of_mixed.dtype == torch.float64
        assert torch.allclose(of_mixed, gradient, atol=2e-3)


@pytest.mark.parametrize("spectral", [True, False])
def test_rcsls_falls_and_helps(spectral):
    x = normalise(draw(1500, 12), "unit")
    stretched = x @ (rotation(12, 1) * torch.linspace(2, 0.2, 12, dtype=torch.float64))
    z = normalise(stretched + 0.1 * draw(1500, 12, seed=2), "unit")
    map_, losses = rcsls(x[:500], z[:500], x, z, steps=20, spectral=spectral)
    assert all(b < a for a, b in zip(losses, losses[1:])) and len(losses) > 3

    def right(w):
        return float((nearest(x[500:] @ w, z[500:])[1][:, 0] == torch.arange(1000)).double().mean())

    assert right(map_) > right(procrustes(x[:500], z[:500]))
    if spectral:
        assert torch.linalg.svdvals(map_).max() <= 1 + 1e-9


def test_generalized_procrustes():
    truth = draw(300, 9)
    turns = [rotation(9, s) for s in range(4)]
    exact, losses = generalized_procrustes([truth @ turn for turn in turns], unmoved=2)
    assert losses[-1] < 1e-12
    for own, turn in zip(exact, turns):
        assert torch.allclose(own, turn.T @ turns[2], atol=1e-6)
    # as one to the other
    two, _ = generalized_procrustes([draw(300, 9, seed=7), truth], None, 5000, 1e-15, unmoved=1)
    assert torch.allclose(two[0], procrustes(draw(300, 9, seed=7), truth), atol=1e-4)
    present = torch.ones(4, 300, dtype=torch.bool)
    present[1, 100:] = False
    tables = [truth @ turn for turn in turns]
    tables[1] = torch.where(
        present[1][:, None], tables[1], torch.nan_to_num(torch.full_like(truth, 1e6))
    )
    holed, _ = generalized_procrustes(tables, present)
    for own, turn in zip(holed, turns):
        assert torch.allclose(own, turn.T @ turns[0], atol=1e-5)
    present[1] = False
    with pytest.raises(DataError, match="space 1, from 0, shares no row"):
        generalized_procrustes(tables, present)


def test_normalise():
    x = draw(50, 6) + 3
    assert torch.equal(normalise(x, ""), x) and normalise(x, "") is not x
    centred = normalise(x, "centre")
    assert torch.allclose(centred, x - x.mean(0))
    assert torch.allclose(normalise(x, "unit").norm(dim=1), torch.ones(50).double())
    assert not torch.allclose(normalise(x, "unit,centre"), normalise(x, "centre,unit"))
    assert torch.isfinite(
        normalise(torch.cat([x, x.mean(0, keepdim=True), torch.zeros(1, 6)]).float())
    ).all()
    with pytest.raises(ConfigError, match="did you mean 'centre'"):
        normalise(x, "unit,center")


def test_errors():
    x = draw(10, 4)
    for f in (procrustes, whitened_maps):
        for other in (draw(9, 4), draw(10, 5), draw(10)):
            with pytest.raises(DataError, match="row i of one belongs to row i|a matrix has rows"):
                f(x, other)
        with pytest.raises(DataError, match="NaN or infinity"):
            f(x, x * float("nan"))
    with pytest.raises(DataError, match="x has rank 3 of 4"):
        whitened_maps(draw(3, 4), draw(3, 4))
    for all_x, all_z in ((draw(9, 5), x), (x, draw(9)), (draw(0, 4), x)):
        with pytest.raises(DataError, match="all_[xz] (of|has) shape"):
            rcsls(x, x, all_x, all_z)
    with pytest.raises(ConfigError, match="neighbours=0"):
        rcsls(x, x, x, x, neighbours=0)
    for tables in ([], [x, draw(9, 4)], [draw(10), draw(10)]):
        with pytest.raises(DataError, match="give each space .n, width|has shape"):
            generalized_procrustes(tables)


def test_whole_numbers_have_common_maps_too():
    tables = torch.tensor([[[1, 2], [3, -1], [0, 2]], [[2, -1], [-1, -3], [2, 0]]])
    for found, expected in zip(
        generalized_procrustes(tables)[0], generalized_procrustes(tables.double())[0]
    ):
        assert torch.allclose(found.double(), expected, atol=1e-4)


# ---------------------------------------------------------------- decompositions that fail


def test_no_map_rests_on_a_decomposition_in_float32(monkeypatch):
    "LAPACK's in float32 fails on some regular matrices by one thread, and not by two."
    real = torch.linalg.svd

    def failing(matrix, **options):
        if matrix.dtype == torch.float32:
            raise torch.linalg.LinAlgError("failed to converge")
        return real(matrix, **options)

    monkeypatch.setattr(torch.linalg, "svd", failing)
    x, z = (normalise(draw(60, 8, seed=seed).float()) for seed in (1, 2))
    found = [
        rcsls(x[:20], z[:20], x, z, steps=2)[0],
        procrustes(x, z),
        *whitened_maps(x, z),
        *cca_maps(x, z),
    ]
    assert {matrix.dtype for matrix in found} == {torch.float32}
    assert unsupervised_pairs(x, z).shape[0] == 2


def test_a_matrix_without_a_decomposition_is_named():
    for how, matrix, message in (
        (torch.linalg.cholesky, -torch.eye(3), r"shape \(3, 3\) has no cholesky .*: look for"),
        (torch.linalg.svd, torch.tensor([[float("nan")]]), "holds NaN or infinity"),
    ):
        with pytest.raises(DataError, match=message):
            decomposed(how, matrix)


@pytest.mark.parametrize(
    "wrong", [None, "text", 3, {"a": 1}, [["a"]], torch.ones(3), torch.ones(3, 3) > 0]
)
def test_what_is_no_matrix_is_refused_in_a_sentence(wrong):
    x = draw(10, 4)
    for call in (
        lambda: normalise(wrong),
        lambda: procrustes(wrong, x),
        lambda: procrustes(x, wrong),
        lambda: cca_maps(x, wrong),
        lambda: rcsls(x, x, wrong, x),
        lambda: generalized_procrustes([x, wrong]),
        lambda: decomposed(torch.linalg.svd, wrong),
        lambda: unsupervised_pairs(x, wrong),
    ):
        with pytest.raises(DataError):
            call()


@pytest.mark.parametrize("wrong", [None, "1.0", float("nan"), float("inf"), -1.0, True])
def test_what_is_no_amount_is_refused_by_name(wrong):
    x = draw(10, 4)
    for name, call in (
        ("identity_weight", lambda: procrustes(x, x, wrong)),
        ("ridge", lambda: cca_maps(x, x, wrong)),
        ("rate", lambda: rcsls(x, x, x, x, rate=wrong)),
        ("steps", lambda: rcsls(x, x, x, x, steps=wrong if wrong is not True else 0)),
    ):
        with pytest.raises(ConfigError, match=f"{name}="):
            call()


@pytest.mark.parametrize("width, threads", [(30, 1), (1100, 2)])
def test_a_small_matrix_is_decomposed_by_one_thread(width, threads):
    before = torch.get_num_threads()
    seen = []

    def how(matrix):
        seen.append(torch.get_num_threads())
        return matrix

    try:
        torch.set_num_threads(2)
        decomposed(how, torch.ones(width, width))
        assert seen == [threads] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_relaxed_csls_wants_rows_of_length_one_in_any_types():
    x, z = (normalise(draw(60, 8, seed=seed), "unit") for seed in (0, 1))
    with pytest.raises(DataError, match="row 0 of x has length 5: relaxed CSLS is for rows of"):
        rcsls(5 * x[:20], z[:20], x, z)
    mixed = rcsls(x[:20].numpy(), z[:20].float().numpy(), x, z.float(), steps=2)
    same = rcsls(x[:20], z[:20], x, z, steps=2)
    # rounding of z to float32
    torch.testing.assert_close(mixed[1], same[1], rtol=1e-5, atol=1e-5)
    x[3] = torch.nan
    with pytest.raises(DataError, match="row 3 of x has length nan"):
        rcsls(x[:20], z[:20], x, z)
