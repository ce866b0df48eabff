"VECO's figures and rules on records made up for it: what is drawn, which side a rule takes."

import matplotlib.pyplot as plt
import pytest

from xlnb.pretraining.claims import judge_rule
from xlnb.results.veco_results import (
    _COLOURS,
    CLAIMS,
    RULES,
    plot_gains,
    plot_layers,
    plot_translation,
)
from xlnb import translation, veco

BLOCKS = (1, 2, 3)


def toy(level, seed=0, steps=5):
    "A record whose every score grows with `level` and over the run."
    lines = [
        {
            "tokens": 1e6 * n,
            "held_out/ca_gap": level * n / 10,
            "held_out/tlm_gap": level * n / 5,
            "held_out/unigram": 6.0,
            "held_out/text_mlm": 5.0 - n,
            "held_out/loss": 5.0 - n,
            "held_out/bleu": 10 * level * n,
            "held_out/found_layer0": 0.1,
            **{f"held_out/found_layer{k}": level * k / 10 for k in BLOCKS},
        }
        for n in range(steps)
    ]
    layers = (0, *BLOCKS)
    scores = {f"multi30k-2016/de-en/layer{k}/acc@1c": level * k / 10 for k in layers}
    scores |= {f"gold/de-en/layer{k}/aer": 1 - level * k / 10 for k in layers}
    scores |= {f"T3/de-en/layer{k}/acc@1c": level * k / 10 for k in layers}
    scores |= {
        f"{test}/en/layer{k}/others": level / 5
        for k in layers
        for test in ("tags", "span", "entailment")
    }
    return {
        "parameters": {"seed": seed},
        "run": {"finished": True},
        "losses": ["mlm"],
        "curve": lines,
        "metrics": scores,
        "attention": [{"layer": k, "share": 0.1 * k, "even": 0.5} for k in BLOCKS],
    }


def of(**levels):
    return {name: {seed: toy(level, seed) for seed in range(5)} for name, level in levels.items()}


@pytest.fixture
def tasks():
    return of(
        **{
            "CA-MLM + TLM": 2,
            "MLM + TLM": 1.5,
            "MLM": 1,
            "CA-MLM": 1.1,
            "CA-MLM + TLM, random pairs": 1,
        }
    )


def seen(ax):
    return {t.get_text() for t in ax.texts}


def test_layers_have_a_curve_for_the_arms_of_the_message(tasks):
    phrases = {arm: tasks[arm] for arm in ("MLM + TLM", "CA-MLM + TLM")}
    fig = plot_layers(tasks, phrases)
    for above, arms in (
        (fig.axes[0], {"CA-MLM + TLM", "MLM + TLM"}),
        (fig.axes[1], {*phrases}),
    ):
        assert arms <= seen(above) and not {"CA-MLM", "CA-MLM + TLM, random pairs"} & seen(above)
    assert [ax.get_title("left") for ax in fig.axes] == [
        "captions, among 1,000",
        "lists of three territories",
    ]
    plt.close(fig)


def test_gains_and_attention(tasks):
    fig = plot_gains(tasks)
    assert {"beside the translation", "joined with the translation"} <= seen(fig.axes[0])
    # percent of even attention
    assert fig.axes[1].get_lines()[-2].get_ydata() == pytest.approx([20, 40, 60])
    plt.close(fig)


def test_translation_by_start():
    fig = plot_translation(of(**{"random": 1, "CA-MLM + TLM": 2}))
    assert {"random", "CA-MLM + TLM"} <= seen(fig.axes[0])
    plt.close(fig)


def judged(name, experiment, arms):
    (row,) = [judge_rule(rule, {experiment: arms}) for rule in RULES[name]]
    return float(row["number"].split(" ± ")[0]), row["for"], row["against"]


def test_rules_take_sides(tasks):
    # retrieval gains 30 points, the probes 20
    assert judged("veco-05", "tasks", tasks) == (10, 5, 0)
    number, ahead, behind = judged("veco-02", "tasks", tasks)
    assert (ahead, behind) == (5, 0) and number == 12  # (60 - 45) - (33 - 30) points
    faster = of(**{"random": 1, "CA-MLM + TLM": 4})
    # 40 BLEU at the end; 80 at the second of four steps
    assert judged("veco-07", "starts", faster) == (0.5, 5, 0)
    never = of(**{"random": 2, "CA-MLM + TLM": 1})
    assert judged("veco-07", "starts", never)[1:] == (0, 5)
    late = of(**{"random": 1, "CA-MLM + TLM": 1.1})
    # passed at the end: neither early nor never
    assert judged("veco-07", "starts", late) == (1, 0, 0)


def test_a_third_block_may_add_less_than_a_second():
    arms = of(**{f"last {n}": 1 for n in (1, 2, 3)})
    for name, bleu in (("last 1", 30), ("last 2", 32), ("last 3", 32.5)):
        for record in arms[name].values():
            record["metrics"]["bleu/multi30k-2016"] = bleu
    assert judged("veco-10", "depth", arms) == (1.5, 5, 0)


@pytest.mark.parametrize("worse, sides", [(-0.2, (0, 5)), (0.3, (5, 0))])
def test_a_constant_partner_is_judged_by_how_well_it_guesses(
    worse, sides
):  # by which `with gradient` is, nats
    for rule, rate in zip(RULES["veco-12"], ("0.001", "0.002", "0.004"), strict=True):
        arms = of(**{f"constant, rate {rate}": 1, f"with gradient, rate {rate}": 1})
        for arm, nats in zip(arms, (3.0, 3.0 + worse)):
            for record in arms[arm].values():
                record["curve"][-1]["held_out/ca_mlm"] = nats
        row = judge_rule(rule, {"gradient": arms})
        assert (float(row["number"].split(" ± ")[0]), row["for"], row["against"]) == (
            pytest.approx(worse),
            *sides,
        )


def test_lines_of_a_figure_have_colours_of_their_own():
    for experiment in (veco.EXPERIMENTS["tasks"], translation.EXPERIMENTS["starts"]):
        colours = [_COLOURS[arm] for arm in experiment.arms if arm in _COLOURS]
        assert len(colours) == len({*colours})
    assert {*translation.EXPERIMENTS["starts"].arms} <= _COLOURS.keys()


def test_a_claim_a_row_of_the_ledger():
    assert len(CLAIMS) == 12
