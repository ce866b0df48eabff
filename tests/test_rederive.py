"""`tools/rederive.py`: numbers of texts, derived by other code from the records."""

import subprocess, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import rederive  # noqa: E402


def test_every_number_of_readme_and_openings_follows_from_the_records():
    command = [sys.executable, "tools/rederive.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("49.5 ± 1.2 %, and 0.1", []),
        ("49.6 ± 1.2 %, and 0.1", ["49.6 where 49.48333"]),
        ("49.5 ± 1.2 %, and 0.2", ["0.2 where 0.1"]),
        ("49.5 ± 1.2 %, and 0.1, 7", ["4 numbers, 3 expected: ['7']"]),
        ("49.5 ± 1.2 %", ["2 numbers, 3 expected"]),
    ],
)
def test_a_number_that_differs_is_named(text, said):
    messages = rederive.differences(text, [49.48333, 1.2004, "0.1"])
    assert [message[: len(start)] for message, start in zip(messages, said, strict=True)] == said


@pytest.mark.parametrize(
    ("shown", "value", "agrees"),
    [
        ("0.839", 0.83889, True),
        ("0.20", 0.19479, False),
        ("+0.55", 0.548, True),
        ("+0.55", -0.548, False),
        ("0.37", -0.3733, True),
        ("\N{MINUS SIGN}1.1", -1.1036, True),
        ("202,000", 201973.1, True),
        ("203,000", 201973.1, False),
        ("82", 81.96667, True),
    ],
)
def test_a_shown_number_is_a_rounded_value(shown, value, agrees):
    assert rederive.shows(shown, value) is agrees


def test_runs_that_differ_in_more_than_the_seed_are_refused():
    with pytest.raises(AssertionError, match="mismatched"):
        rederive.runs("03_xlm_e", steps=24_000, tasks="mlm+tlm")


def test_a_parameter_that_no_record_has_is_refused():
    with pytest.raises(AssertionError, match="stepz"):
        rederive.runs("03_xlm_e", stepz=24_000)
