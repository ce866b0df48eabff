"""A tiny training that is killed before every file operation, or finds the disk full at one: the same call goes on to
the same bits. All of them with XLNB_CAMPAIGNS=full, else some."""

import errno, os, sys
from dataclasses import replace

import pytest
import torch
from test_training import CONFIG, Batches, Pair, weights

from xlnb.base.core import CheckpointError
from xlnb.training.training import read_log, train

OPERATIONS = {
    "open",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "shutil.rmtree",
}
SHORT = replace(CONFIG, steps=3, warmup_steps=1, checkpoint_minutes=0)
FULL = os.environ.get("XLNB_CAMPAIGNS") == "full"
armed = {"folder": None, "left": -1, "action": None}  # an audit hook cannot be taken away again


def watch(event, arguments):
    if (
        armed["folder"] is None
        or event not in OPERATIONS
        or armed["folder"] not in str(arguments[0])
    ):
        return
    # only what changes something
    if event == "open" and not str(arguments[1]).strip("rb"):
        return
    armed["left"] -= 1
    if armed["left"] == 0:
        armed["action"]()


sys.addaudithook(watch)


def run(folder):
    return train(Pair(), Batches(), SHORT, folder)


def operations(folder):
    "How many there are in a run that nothing disturbs."
    armed.update(folder=str(folder), left=10**6, action=None)
    run(folder)
    armed["folder"] = None
    return 10**6 - armed["left"]


def die():
    os._exit(9)


def no_space():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    return operations(folder), weights(folder)


def in_a_child(folder, number, action):
    "The run in a process of its own, disturbed at its operation of this number; the child's exit status."
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        armed.update(folder=str(folder), left=number, action=action)
        try:
            run(folder)
        except (CheckpointError, OSError):
            os._exit(8)
        except BaseException:
            os._exit(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.campaign
@pytest.mark.parametrize(
    "action, statuses", [(die, {9}), (no_space, {0, 8})], ids=["killed", "full"]
)
def test_a_run_that_was_disturbed_goes_on_to_the_same_bits(undisturbed, tmp_path, action, statuses):
    count, expected = undisturbed
    assert count > 20
    for number in range(1, count + 1, 1 if FULL else 7):
        folder = tmp_path / f"{number}"
        status = in_a_child(folder, number, action)
        assert status in statuses, f"operation {number} ended with {status}"
        assert run(folder)["finished"]
        assert [line["step"] for line in read_log(folder)] == [0, 1, 2], number
        found = weights(folder)
        assert all(torch.equal(found[name], expected[name]) for name in expected), number
        assert sorted(p.name for p in folder.iterdir()) == ["checkpoint-00000003", "log.jsonl"], (
            number
        )
