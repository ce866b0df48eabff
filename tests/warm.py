"""Commands from a warm process: what they import is there already, which saves seconds for each of them.

For tests of what a command does; tests of its start, its memory or its locale start an interpreter of their own."""

import multiprocessing, os, runpy, subprocess, sys, tempfile
from pathlib import Path

IMPORTED = ["torch", "transformers", "xlnb.evaluation", "xlnb.translation", "xlnb.dro"]


def _replace_streams(paths: list[Path]):
    "Let the three standard streams be these files."
    for descriptor, path in enumerate(paths):
        mode = os.O_WRONLY if descriptor else os.O_RDONLY
        os.dup2(os.open(path, mode), descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)


def _run_module(module: str, arguments: list[str], environment: dict, folder: str, streams: list):
    "What `python -m module arguments` does, in this process."
    _replace_streams(streams)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # it runs as `__main__`
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_module(module, *arguments, input="", env=None, cwd=".", timeout=300):
    "`python -m module arguments` from the warm process: a finished process with its output as text."
    arguments = [str(argument) for argument in arguments]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("input", "output", "errors")]
        for stream in streams:
            stream.write_text(input if stream.name == "input" else "", encoding="utf-8")
        environment = dict(os.environ if env is None else env)
        process = context.Process(
            target=_run_module, args=(module, arguments, environment, os.path.abspath(cwd), streams)
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([module, *arguments], timeout)
        output, errors = (path.read_text(encoding="utf-8") for path in streams[1:])
    return subprocess.CompletedProcess([module, *arguments], process.exitcode, output, errors)
