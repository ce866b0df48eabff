"What a corpus costs before training: by records, or by the rates that are given."

from dataclasses import replace

from statistics import median

import pytest
from conftest import ROOT

from xlnb.base.core import ConfigError, read_records
from xlnb.encoder.encoder import config_for
from xlnb.encoder.heads import EncoderForMaskedLM, EncoderForReplacedTokens
from xlnb.pretraining.plans import (
    PREPARED,
    VOCAP_TRAINING,
    Step,
    TextPlan,
    main,
    plan,
    text_plan,
)


def test_the_plan_of_text_follows_from_the_rates_that_are_given():
    made = text_plan(
        4e9, 1e9, 1e7, 500_000, cores=10, vocap_languages=100, rate=1e6, training_seconds=2.0
    )
    assert isinstance(made, TextPlan) and made.trainings == 1000
    assert made.core_hours == pytest.approx({"vocabulary": 2e5 / 3600, "preparation": 1e3 / 3600})
    assert made.disk["token store"] == 4e9 + 8e7 and made.disk["text"] == 4e9
    assert "your rate" in str(made) and "10 cores" in str(made) and "1,000" in str(made)


def test_the_plan_of_text_says_what_it_extrapolates_from():
    made = text_plan(4e9, 1e9, 1e7, 500_000, vocap_languages=100)
    assert "small vocabularies" in made.measured["vocabulary"]
    assert "GB on" in made.measured["preparation"]
    assert min(made.core_hours.values()) > 0


def test_the_plan_of_a_hundred_languages_on_eight_gpus():
    "XLM-E base in XY-LENT's vocabulary: parameters, memory of a process, hours by the peak of the device."
    networks = {
        "discriminator": (EncoderForReplacedTokens, config_for("base", 500_002)),
        "generator": (EncoderForMaskedLM, config_for("base", 500_002, num_hidden_layers=4)),
    }
    step = Step(2048 * 512, 512, micro_tokens=8192, precision="bf16", processes=8)
    made = plan(networks, step, 125_000, device="H100", corpus_tokens=10**11)
    one = plan(networks, replace(step, processes=1), 125_000, device="H100")
    assert sum(made.parameters.values()) > 500_002 * 768
    assert made.hours == pytest.approx(one.hours / 8) and made.machine.startswith("8 × H100,")
    assert made.epochs == pytest.approx(125_000 * step.tokens / 10**11)


@pytest.mark.parametrize("change", [{"tokens": -1}, {"cores": 0}, {"rate": 0}, {"vocab_size": 0}])
def test_the_plan_of_text_needs_numbers_above_zero(change):
    options = {"text_bytes": 4e9, "tokens": 1e9, "sentences": 1e7, "vocab_size": 60_000} | change
    [(name, value)] = change.items()
    with pytest.raises(ConfigError, match=f"{name}={value} is not above 0"):
        text_plan(**options)


def test_rates_are_those_on_record(monkeypatch):
    monkeypatch.setenv("XLNB_RESULTS", str(ROOT / "data" / "results"))
    *_, record = [r for r in read_records("benchmarks") if r["measurement"] == "preparation"]
    rate = record["one"]["tokens"] / record["one"]["rows"][-1]["cpu"]
    seconds = [
        1e6
        * r["cpu_s"]["ladders"]
        / r["trainings"]
        / (r["characters"] / len(r["langs"].split(",")))
        for r in read_records("vocap")
        if r["experiment"] == "cost"
    ]
    assert PREPARED[0] == pytest.approx(rate, rel=0.01)
    assert VOCAP_TRAINING[0] == pytest.approx(median(seconds), rel=0.01)


def test_the_command_needs_no_checkout(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XLNB_RESULTS", str(tmp_path))
    main(["--text_bytes", "1e9", "--vocab_size", "60000", "--vocap_languages", "3"])
    assert "disk" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="text_bytes=-1.0 is not above 0"):
        main(["--text_bytes", "-1", "--vocab_size", "60000"])
    assert not capsys.readouterr().out
