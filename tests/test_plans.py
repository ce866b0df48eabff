"What a corpus costs before training: by records, or by the rates that are given."

from dataclasses import replace

import pytest

import xlnb.pretraining.plans as plans
from xlnb.base.core import ConfigError
from xlnb.encoder.encoder import config_for
from xlnb.encoder.heads import EncoderForMaskedLM, EncoderForReplacedTokens
from xlnb.pretraining.plans import Step, TextPlan, plan, text_plan


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


@pytest.mark.parametrize("change", [{"tokens": -1}, {"cores": 0}, {"rate": 0}])
def test_the_plan_of_text_needs_numbers_above_zero(change):
    options = {"text_bytes": 4e9, "tokens": 1e9, "sentences": 1e7, "vocab_size": 60_000} | change
    [(name, value)] = change.items()
    with pytest.raises(ConfigError, match=f"{name}={value} is not above 0"):
        text_plan(**options)


def test_without_a_record_a_rate_is_asked_for(monkeypatch):
    monkeypatch.setattr(plans, "read_records", lambda name: [])
    with pytest.raises(ConfigError, match="give rate"):
        text_plan(4e9, 1e9, 1e7, 60_000)
    with pytest.raises(ConfigError, match="give training_seconds"):
        text_plan(4e9, 1e9, 1e7, 60_000, vocap_languages=3, rate=1e6)
