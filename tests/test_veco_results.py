"VECO's figures and rules on records made up for it: what is drawn, which side a rule takes."
import matplotlib.pyplot as plt
import pytest

from xlnb.claims import judge_rule
from xlnb.veco_results import CLAIMS, RULES, plot_gains, plot_layers, plot_translation

BLOCKS = (1, 2, 3)


def toy(level, seed=0, steps=5):
    "A record whose every score grows with `level` and over the run."
    lines = [{"tokens": 1e6 * n, "held_out/ca_gap": level * n / 10, "held_out/tlm_gap": level * n / 5,
              "held_out/unigram": 6.0, "held_out/text_mlm": 5.0 - n, "held_out/loss": 5.0 - n,
              "held_out/bleu": 10 * level * n, "held_out/found_layer0": 0.1,
              **{f"held_out/found_layer{k}": level * k / 10 for k in BLOCKS}} for n in range(steps)]
    layers = (0, *BLOCKS)
    scores = {f"multi30k-2016/de-en/layer{k}/acc@1c": level * k / 10 for k in layers}
    scores |= {f"gold/de-en/layer{k}/aer": 1 - level * k / 10 for k in layers}
    scores |= {f"{test}/en/layer{k}/others": level / 5 for k in layers for test in ("tags", "span", "entailment")}
    return {"parameters": {"seed": seed}, "run": {"finished": True}, "losses": ["mlm"], "curve": lines,
            "metrics": scores, "attention": [{"layer": k, "share": 0.1 * k, "even": 0.5} for k in BLOCKS]}


def of(**levels): return {name: {seed: toy(level, seed) for seed in range(5)} for name, level in levels.items()}


@pytest.fixture
def tasks():
    return of(**{"CA-MLM + TLM": 2, "MLM + TLM": 1.5, "MLM": 1, "CA-MLM": 1.1, "CA-MLM + TLM, random pairs": 1})


def seen(ax): return {t.get_text() for t in ax.texts}


def test_layers_have_a_curve_for_every_arm_that_was_run(tasks):
    fig = plot_layers(tasks)
    assert {"CA-MLM + TLM", "MLM + TLM", "CA-MLM + TLM, random pairs"} <= seen(fig.axes[0])
    assert "CA-MLM" not in seen(fig.axes[0])
    plt.close(fig)


def test_gains_and_attention(tasks):
    fig = plot_gains(tasks)
    assert {"beside the translation", "joined with the translation"} <= seen(fig.axes[0])
    assert fig.axes[1].get_lines()[-2].get_ydata() == pytest.approx([20, 40, 60]) # percent of even attention
    plt.close(fig)


def test_translation_by_start():
    fig = plot_translation(of(**{"random": 1, "CA-MLM + TLM": 2}))
    assert {"random", "CA-MLM + TLM"} <= seen(fig.axes[0])
    plt.close(fig)


def judged(name, experiment, arms):
    row, = [judge_rule(rule, {experiment: arms}) for rule in RULES[name]]
    return row["number"], row["for"], row["against"]


def test_rules_take_sides(tasks):
    assert judged("veco-05", "tasks", tasks)[1:] == (0, 0) # retrieval gains as much as the probes do
    number, ahead, behind = judged("veco-02", "tasks", tasks)
    assert (ahead, behind) == (5, 0) and number == "12" # (60 - 45) - (33 - 30) points
    assert judged("veco-11", "tasks", tasks) == ("0.4", 5, 0) # the middle block, against a half
    faster = of(**{"random": 1, "CA-MLM + TLM": 4})
    assert judged("veco-07", "starts", faster) == ("0.5", 5, 0) # 40 BLEU at the end; 80 at the second of four steps
    never = of(**{"random": 2, "CA-MLM + TLM": 1})
    assert judged("veco-07", "starts", never) == ("1", 0, 5)


def test_a_claim_a_row_of_the_ledger(): assert len(CLAIMS) == 12
