"The choices that the papers print: settings that make them, and recipe=paper, which uses them."

import json, math
from dataclasses import replace

import pytest
import torch

from xlnb import meta_xlm, veco, xlm_e, xy_lent
from xlnb.pretraining.pretraining import announce_plan, training_config

PAPERS = {
    "XLM-E": (xlm_e, dict(size="base")),
    "XY-LENT": (xy_lent, dict(size="large")),
    "MetaXLM": (meta_xlm, dict(size="base", source="roberta")),
    "VECO": (veco, dict(size="large")),
}


def resolved(paper, **changes):
    module, settings = PAPERS[paper]
    return module.resolve(module.Settings(**settings | changes))


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_recipe_trains_without_a_limit_in_bf16_on_a_gpu(paper, on_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: on_gpu)
    full = resolved(paper, recipe="paper")
    expected = ("bf16" if on_gpu else "fp32", on_gpu, math.inf)
    assert (full.precision, full.compiled, full.max_minutes) == expected
    default = resolved(paper)
    assert (default.precision, default.compiled, default.max_minutes) == ("fp32", False, 30.0)
    mine = resolved(paper, recipe="paper", max_minutes=30.0, precision="fp32", compiled=False)
    assert (mine.precision, mine.compiled, mine.max_minutes) == ("fp32", False, 30.0)


def test_a_run_without_a_limit_says_so_and_has_a_record(capsys):
    full = resolved("XLM-E", recipe="paper")
    announce_plan("", full)
    assert capsys.readouterr().err.startswith("limit    none: ")
    assert training_config(full).max_minutes == math.inf
    record = full.for_record()
    json.dumps(record, allow_nan=False)
    assert record["max_minutes"] is None
    again = xlm_e.resolve(xlm_e.Settings(**record))
    assert replace(again, max_minutes=math.inf) == full
