"Settings from the command line."
import re
from dataclasses import dataclass

import pytest

from xlnb.core import ConfigError, settings_from_arguments


def test_arguments_are_listed_on_request_and_given_once(capsys):
    @dataclass
    class Toy:
        steps: int = 100
        langs: str = "de,en"
    for ask in ("--help", "-h"):
        with pytest.raises(SystemExit) as e: settings_from_arguments(Toy, ["--steps", "3", ask])
        assert e.value.code is None
        assert re.search(r"--langs +str +'de,en'", capsys.readouterr().out)
    with pytest.raises(ConfigError, match="--help lists them; got 'steps 5'"):
        settings_from_arguments(Toy, ["steps", "5"])
    with pytest.raises(ConfigError, match="--steps comes twice, as 5 and 6"):
        settings_from_arguments(Toy, ["--steps", "5", "--steps=6"])
