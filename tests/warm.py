"""Commands from a warm process: what they import is there already, which saves seconds for each of them.

For tests of what a command does; tests of its start, its memory or its locale start an interpreter of their own."""

import multiprocessing, os, runpy, subprocess, sys, tempfile
from pathlib import Path

IMPORTED = [
    "torch",
    "transformers",
    "papermill",
    "xlnb.evaluation",
    "xlnb.translation",
    "xlnb.dro",
]


def _replace_streams(paths: list[Path]):
    "Let the three standard streams be these files."
    for descriptor, path in enumerate(paths):
        mode = os.O_WRONLY if descriptor else os.O_RDONLY
        os.dup2(os.open(path, mode), descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)


def _run_module(module: str, arguments: list[str]):
    "What `python -m module arguments` does, in this process."
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # it runs as `__main__`
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _run_notebook(path: Path, output: Path, parameters: dict):
    "What papermill does, with the cells in this process."
    import papermill
    from in_process import InProcess

    papermill.engines.papermill_engines.register("in-process", InProcess)
    options = {"engine_name": "in-process", "progress_bar": False, "cwd": str(Path(path).parent)}
    papermill.execute_notebook(str(path), str(output), parameters, **options)


def _start(target, arguments, environment: dict, folder: str, streams: list):
    "Call a function in this process as if it had been started with this environment."
    _replace_streams(streams)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    target(*arguments)


def _finished(target, arguments, input="", env=None, cwd=".", timeout=300):
    "The finished process that calls a function, started from the warm one."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("input", "output", "errors")]
        for stream in streams:
            stream.write_text(input if stream.name == "input" else "", encoding="utf-8")
        environment = dict(os.environ if env is None else env)
        process = context.Process(
            target=_start, args=(target, arguments, environment, os.path.abspath(cwd), streams)
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(list(map(str, arguments)), timeout)
        output, errors = (path.read_text(encoding="utf-8") for path in streams[1:])
    return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


def run_module(module, *arguments, **options):  # input, env, cwd, timeout
    "`python -m module arguments` from the warm process: a finished process with its output as text."
    return _finished(_run_module, (module, [str(argument) for argument in arguments]), **options)


def run_notebook(path, output, parameters: dict, **options):  # env, timeout
    "A notebook by papermill from the warm process, without the start of a kernel and its imports."
    return _finished(_run_notebook, (path, output, parameters), **options)
