"What a corpus costs before training: by records, or by the rates that are given."

import pytest

import xlnb.pretraining.plans as plans
from xlnb.base.core import ConfigError
from xlnb.pretraining.plans import TextPlan, text_plan


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
