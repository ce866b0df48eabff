"Comments beside parameters in docstrings: in the syntax tree that is imported, in the text that is installed, in help."

import ast, importlib, inspect, pkgutil, pydoc, re, shutil, subprocess, sys, typing

import pytest
from conftest import ROOT

import xlnb

from xlnb.base.docstrings import documented, documented_tree

COMMENTED = '''
def scale(x, # (batch, seq)
          factor: float = 0.5, # of a row;
                               # more than 0
          *, low, high: int = 3, # ends
         ) -> float: # in nats
    r"With a \\d; three lines."
    return x # stays

def codes(kind: str) -> tuple: return () # not touched

def names(kind: str) -> tuple: # 'a' or 'b'
    return kind

def fit(iterations: int, # of EM
        # λ of a prior;
        # None: none
        tension: float = None,
        p0: float = 0.1):
    return p0

def bare(x, y): return x

class Pair(NamedTuple):
    first: str # a name with \\ and """
    second: int = 1
    def swap(self, times: int): # 1 or more
        return self

class Made:
    "A thing."
    def __init__(self, n: int, # from 0
                ): self.n = n
    def _hidden(self, n: int): # from 0
        return n
'''


def sections(name, code):
    "Docstring of a part of COMMENTED."
    space = {"NamedTuple": typing.NamedTuple}
    exec(code, space)
    found = space[name.partition(".")[0]]
    return inspect.getdoc(getattr(found, name.partition(".")[2]) if "." in name else found)


TEXT = documented(COMMENTED)
TREE = compile(documented_tree(COMMENTED), "commented.py", "exec")


@pytest.mark.parametrize("code", [TEXT, TREE], ids=["text", "tree"])
def test_comments_beside_parameters_are_in_docstrings(code):
    assert (
        sections("scale", code)
        == """With a \\d; three lines.

Args:
    x: (batch, seq)
    factor (float, default 0.5): of a row; more than 0
    low, high (int, default 3): ends

Returns:
    float: in nats"""
    )
    assert sections("fit", code) == (
        "Args:\n    iterations (int): of EM\n"
        "    tension (float, default None): λ of a prior; None: none\n    p0 (float, default 0.1)"
    )
    assert sections("names", code) == "Note:\n    'a' or 'b'"
    assert (
        sections("Pair", code)
        == 'Fields:\n    first (str): a name with \\ and """\n    second (int, default 1)'
    )
    assert sections("Pair.swap", code) == "Args:\n    times (int): 1 or more"
    assert sections("Made", code) == "A thing.\n\nArgs:\n    n (int): from 0"
    assert (
        sections("codes", code) is sections("bare", code) is sections("Made._hidden", code) is None
    )


def test_docstrings_alone_change():
    assert documented(TEXT) == TEXT
    left = iter(TEXT.splitlines())
    assert all(line in left for line in COMMENTED.splitlines() if not re.match(r' *r?"', line)), (
        "a line is lost"
    )


def test_help_shows_shapes_and_units():
    from xlnb.training.objectives import HeadOutput, masked_lm_loss
    from xlnb.text.sampling import entropic_sampling

    assert "language → share, in place of the tempered ones" in pydoc.render_doc(entropic_sampling)
    assert "labels (Tensor): (batch, seq) original id where masked" in pydoc.render_doc(
        masked_lm_loss
    )
    assert "losses (Tensor): (n,) float32 cross-entropy" in pydoc.render_doc(HeadOutput)


def test_no_line_moves():
    "Tracebacks and debuggers show the file, which has fewer lines than the docstrings."

    def lines(tree):
        return [(n.name, n.lineno, n.body[-1].lineno) for n in ast.walk(tree) if hasattr(n, "name")]

    assert lines(documented_tree(COMMENTED)) == lines(ast.parse(COMMENTED))


@pytest.mark.slow
def test_an_installed_package_has_the_sections_in_its_text(tmp_path):
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("xlnb", "tools", "data/papers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [
        sys.executable,
        "-c",
        "import setuptools; setuptools.setup()",
        "-q",
        "build_py",
        "-d",
        "built",
    ]
    done = subprocess.run(
        build, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "built/xlnb/training/objectives.py").read_text(encoding="utf-8")
    assert "labels (Tensor): (batch, seq) original id where masked" in text
    modules = [path for path in (ROOT / "xlnb").rglob("*.py") if path.parent.name != "results"]
    for path in modules:
        built = (tmp_path / "built" / path.relative_to(ROOT)).read_text(encoding="utf-8")
        assert built == documented(path.read_text(encoding="utf-8")), path.name

    def tables(folder):
        return {path.relative_to(folder) for path in folder.glob("*/*.csv")}

    assert tables(tmp_path / "built/xlnb/papers") == tables(ROOT / "data/papers") != set()


def test_help_shows_no_mark_of_a_notebook():
    "Without a docstring help shows the comment above a function, which says where its cell is."
    for module in pkgutil.walk_packages(xlnb.__path__, "xlnb."):
        if module.name == "xlnb._modidx":
            continue
        module = importlib.import_module(module.name)
        own = [getattr(module, name) for name in getattr(module, "__all__", [])]
        lacking = [f.__qualname__ for f in own if inspect.isfunction(f) and not f.__doc__]
        assert not lacking, f"{module.__name__}: no docstring of {', '.join(lacking)}"
