"A robust run: what it sees of each pair, when it moves, what a kill leaves behind, several processes, bad settings."

import json, os, subprocess, sys, threading
from collections import Counter
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from xlnb.base.core import CheckpointError, ConfigError, read_records, torch_generator
from xlnb.text.batches import MixedBatches
from xlnb.training.training import accumulate_gradients, latest_checkpoint
from xlnb.pretraining.experiments import run_identity, missing
from xlnb.pretraining.pretraining import run_folder, train_phase
from xlnb.results.dro_runs import (
    EXPERIMENTS,
    PHASE,
    RECIPE,
    ROUNDS,
    Settings,
    baseline_of,
    damaged,
    make_batches,
    new_model,
    planted_pairs,
    prepare_data,
    rankings,
    resolve,
    trajectory_of,
    with_baseline,
    moved_as_expected,
)
from xlnb.dro import DEFECTS, chi_square, score_ranking
from xlnb.xy_lent import bitext_pairs, open_bitext

SMALL = dict(langs="ar,de,en,hi,ru", steps=12, pair_lines=2000, test_lines=20)


pytestmark = pytest.mark.usefixtures("root")


def small(**changes):
    return resolve(Settings(**{**SMALL, **changes}))


@pytest.fixture(scope="module")
def data(root):
    return prepare_data(small())


# what is held out: test_xlm_e
UNMEASURED = replace(PHASE, measures=lambda settings, data: lambda model: {})


def trained(settings, data):
    return train_phase(UNMEASURED, settings, data).summary


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("whole")
    assert trained(small(out=str(path)), data)["finished"]
    return path


def test_what_is_seen_of_pairs_adds_up_to_the_losses_of_the_step(data):
    given = small(steps=24)  # two steps between moves: what the first has shown is still there
    model = new_model(given, data)
    batches = make_batches(given, data)
    batch = model.prepare(batches(0, batches.micro_batches - 1), torch_generator(0))
    sums, counts = accumulate_gradients(model, [(batch, torch_generator(1))])
    batches.on_step(0, sums)
    for kind, name in (("tlm", "tlm"), ("trtd", "trtd"), ("wrong", "trtd")):
        seen = batches.seen[kind].seen.values()
        total = sums[name] if kind != "wrong" else counts["trtd"] - sums["trtd/correct"]
        # float32 sums
        assert sum(s[0] for s in seen) == pytest.approx(total, rel=1e-5)
        assert sum(s[1] for s in seen) == counts[name]


def test_ten_moves_each_on_the_edge_of_the_ball(folder):
    rounds = trajectory_of(folder)
    q = rounds[0]["probabilities"]
    assert [r["step"] for r in rounds] == [0, *range(2, 12)] and len(rounds) == ROUNDS + 1
    for r in rounds[1:]:
        assert chi_square(r["probabilities"], q) == pytest.approx(0.05, abs=1e-6)
        assert (
            set(r["losses"]) == set(r["rtd_accuracy"]) == set(q) and sum(r["counts"].values()) > 0
        )


def test_after_a_move_pairs_are_drawn_by_it(data, folder):
    given = small(out=str(folder))
    batches = make_batches(given, data)
    state = json.loads((latest_checkpoint(folder) / "state.json").read_text())["batches"]
    batches.load_state(state)
    mixture = batches.batches.parts["pairs"].mixture
    assert len(mixture.versions) == ROUNDS + 1
    last = mixture.versions[-1]
    assert last.first_slot == 11 * batches.batches.pair_micro * batches.batches.bundles
    names, _ = mixture.draw(last.first_slot, 4000)
    for pair, p in batches.trajectory[-1]["probabilities"].items():
        assert names.count(pair) / 4000 == pytest.approx(p, abs=2e-3)


def test_stopped_at_every_step_and_taken_up_again_it_ends_in_the_same_bits(tmp_path, data, folder):
    given = small(out=str(tmp_path), max_minutes=1e-6)  # one step a call
    for _ in range(13):
        if trained(given, data)["finished"]:
            break
    assert trajectory_of(tmp_path) == trajectory_of(folder)
    a, b = (load_file(f / "discriminator" / "model.safetensors") for f in (tmp_path, folder))
    assert all(torch.equal(a[k], b[k]) for k in a)


def test_batches_made_in_the_step_give_the_same_bits(tmp_path, monkeypatch, data, folder):
    "Moves change the pairs of batches that were made ahead: those are made again."
    made = Counter()
    plain = MixedBatches.__call__

    def counted(self, step, index):
        made[threading.current_thread().name] += 1
        return plain(self, step, index)

    monkeypatch.setattr(MixedBatches, "__call__", counted)
    for name, processors in (("ahead", 99), ("here", 1)):
        monkeypatch.setattr("xlnb.training.training.processors", lambda n=processors: n)
        trained(small(out=str(tmp_path / name)), data)
    (thread,) = {*made} - {threading.current_thread().name}
    assert made[thread] > made[threading.current_thread().name] > 0
    folders = [tmp_path / "ahead", tmp_path / "here", folder]
    assert trajectory_of(folders[0]) == trajectory_of(folders[1]) == trajectory_of(folder)
    first, *others = [load_file(f / "discriminator" / "model.safetensors") for f in folders]
    assert all(torch.equal(first[k], other[k]) for other in others for k in first)


def moved_by(drive, data, losses):
    "The first move of a run, given losses."
    batches = make_batches(small(drive=drive), data)
    batches._move(1, {"losses": losses, "counts": dict.fromkeys(losses, 100)})
    return batches.trajectory[1]


@pytest.mark.slow
def test_the_excess_is_over_the_run_without_re_sampling_and_all_of_a_seed_share_it(root, data):
    based = with_baseline(small(drive="excess"), data)
    rounds = trajectory_of(run_folder(PHASE, baseline_of(small()), data))
    assert len(rounds) == ROUNDS + 1 and all(
        r["probabilities"] == rounds[0]["probabilities"] for r in rounds
    )
    assert based.baseline == rounds[-1]["losses"]
    # it is there
    assert with_baseline(small(drive="excess", rho=0.1, max_minutes=1e-6), data) == based
    # nothing to gain
    assert moved_by("excess", based, based.baseline)["probabilities"] == rounds[0]["probabilities"]
    hard = min(based.baseline, key=based.baseline.get)
    moved = moved_by("excess", based, based.baseline | {hard: based.baseline[hard] + 1})
    assert moved["losses"][hard] == based.baseline[hard] + 1  # the losses are kept as they are
    assert (
        max(
            moved["probabilities"],
            key=lambda p: moved["probabilities"][p] / rounds[0]["probabilities"][p],
        )
        == hard
    )


def test_by_language_moves_the_pair_that_its_languages_do_not_explain(data):
    hard = {"ar": 3.0, "de": 1.0, "en": 1.0, "hi": 3.0, "ru": 2.0}
    losses = {pair: sum(hard[lang] for lang in pair.split("-")) for pair in bitext_pairs(small())}
    # as at the start: languages explain everything
    q = moved_by("by language", data, losses)["probabilities"]
    assert q == make_batches(small(), data).trajectory[0]["probabilities"]
    odd = losses | {"de-en": losses["de-en"] + 1}
    for drive, first in (("raw", "ar-hi"), ("by language", "de-en")):
        p = moved_by(drive, data, odd)["probabilities"]
        assert max(p, key=lambda pair: p[pair] / q[pair]) == first


def test_the_run_beneath_an_excess_is_the_same_run_without_an_adversary():
    shared = EXPERIMENTS["defects"].shared
    beneath = baseline_of(resolve(Settings(**shared, drive="excess")))
    same = run_identity(RECIPE, {**shared, "robust": False})
    assert {name: getattr(beneath, name) for name in same} == same


def test_pairs_that_move_as_their_defects_should_are_ahead_of_those_that_do_not():
    settings = Settings(langs="ar,de,en,hi,ru", seed=3)
    bad = planted_pairs(settings)
    up = {pair: kind in ("shuffled", "wrong language") for pair, kind in bad.items()}
    first = {"probabilities": dict.fromkeys(bitext_pairs(settings), 0.1)}

    def moved(right):
        probabilities = {p: 0.12 if up[p] == right else 0.08 for p in bad}
        last = {"probabilities": first["probabilities"] | probabilities}
        p = {"langs": settings.langs, "seed": settings.seed}
        return moved_as_expected({"parameters": p, "trajectory": [first, last]})

    assert moved(True) == pytest.approx(0.2) and moved(False) == pytest.approx(-0.2)


def test_masked_tokens_alone_move_too(tmp_path, data):
    given = small(tasks="mlm+tlm", out=str(tmp_path))
    trained(given, data)
    assert (
        len(trajectory_of(tmp_path)) == ROUNDS + 1
        and "rtd_accuracy" not in trajectory_of(tmp_path)[1]
    )


def test_planted_pairs_follow_the_seed_and_every_kind_is_there():
    some = {seed: planted_pairs(small(seed=seed)) for seed in range(6)}
    for bad in some.values():
        assert sorted(bad.values()) == sorted(DEFECTS) and set(bad) <= set(bitext_pairs(small()))
    assert len({tuple(bad) for bad in some.values()}) > 3 and planted_pairs(small(planted=0)) == {}


def test_damage_touches_planted_pairs_alone():
    given = small()
    clean = open_bitext(given)
    bad = planted_pairs(given)
    spoilt = damaged(given, clean)
    for pair in clean.pairs:
        a = list(clean.pairs[pair])
        b = list(spoilt.pairs[pair])
        share = sum(x != y for x, y in zip(a, b, strict=True)) / len(a)
        assert (0.25 < share < 0.75) if pair in bad else share == 0


def test_text_finds_what_was_planted(data, folder):
    bad = planted_pairs(small())
    found = rankings(trajectory_of(folder), data.corpus.pairs)
    # half of the lines of these pairs are damaged
    assert score_ranking(found["text"], bad)["auc"] == 1.0
    assert set(found) == {
        "moved by the adversary",
        "loss",
        "loss, by language",
        "trajectory",
        "text",
        "trajectory and text",
        "LSA margin",
    }


@pytest.mark.parametrize(
    "wrong, says",
    [
        (dict(rho=0.0), "rho=0.0: the radius"),
        (dict(rho=-1.0), "above 0"),
        (dict(damage=0.0), "damage=0.0"),
        (dict(planted=2), "at most half of the pairs can be bad; take planted=1"),
        (dict(tasks="mrtd"), "reads no pairs"),
        (dict(estimator="mean"), "estimator='mean' is not one of"),
        (dict(floor="min"), "floor='min' is not one of"),
        (dict(steps=11), "10 moves need 12 steps"),
        (dict(drive="loss"), "drive='loss' is not one of"),
        (dict(drive="excess", robust=False), "nothing is driven"),
        (
            dict(drive="by language", langs="de,en,hi", planted=0),
            "3 languages explain the losses of 3 pairs exactly",
        ),
        (
            dict(drive="by language", bitext="en-x", planted=0),
            "5 languages explain the losses of 4 pairs",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_the_reason(wrong, says):
    with pytest.raises(ConfigError, match=says):
        resolve(Settings(**wrong))


def test_an_excess_over_nothing_is_refused(data):
    with pytest.raises(ConfigError, match="call with_baseline first"):
        make_batches(small(drive="excess"), data)


def test_a_folder_without_a_run_has_no_trajectory(tmp_path):
    with pytest.raises(ConfigError, match="holds no checkpoint"):
        trajectory_of(tmp_path)
    (tmp_path / "checkpoint-00000002").mkdir()
    (tmp_path / "checkpoint-00000002" / "state.json").write_text('{"batches": {"trajec')
    with pytest.raises(CheckpointError, match="state.json is damaged"):
        trajectory_of(tmp_path)


def test_every_experiment_can_be_resolved():
    for experiment in EXPERIMENTS.values():
        assert len(missing(experiment, RECIPE, [])) == len(experiment.runs())


@pytest.mark.slow
def test_two_processes_move_as_one(tmp_path, data, monkeypatch):
    shared = dict(SMALL, micro_tokens=256, batch_tokens=512, steps=14)
    one = small(**{**shared, "out": str(tmp_path / "one")})
    trained(one, data)
    given = {**shared, "out": tmp_path / "two"}
    arguments = [w for k, v in given.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "XLNB_RESULTS": str(tmp_path)}
    launcher = [
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--standalone",
        "-m",
        "xlnb.results.dro_runs",
    ]
    done = subprocess.run(
        [sys.executable, *launcher, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    a, b = (trajectory_of(tmp_path / name) for name in ("one", "two"))
    assert len(a) == len(b) and a[0] == b[0]
    # float32 sums in another order; after a move their last bits reorder draws
    for key in ("probabilities", "losses"):
        assert a[1][key] == pytest.approx(b[1][key], rel=1e-4)
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    (record,) = read_records("04b_dro_runs")
    assert set(record["planted"].values()) == set(DEFECTS) and len(record["trajectory"]) == len(a)
