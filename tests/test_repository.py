"The repository as a whole: reading order, generated files, settings, and what readers see in the notebooks."
import ast, configparser, importlib.metadata, json, re, runpy, subprocess, sys, tomllib
from collections import Counter
from pathlib import Path

import pytest, yaml
from conftest import ROOT

from xlnb.terminal import notebook_parameters

NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
MODULES = [p for p in sorted((ROOT / "xlnb").rglob("*.py")) if p.name not in ("__init__.py", "_modidx.py")]
READ = {path: json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]


def tool(*arguments, cwd):
    "Run a command of this environment."
    command = [Path(sys.executable).parent / arguments[0], *arguments[1:]]
    done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def sources(nb, kind="code"):
    return ["".join(cell["source"]) for cell in nb["cells"] if cell["cell_type"] == kind]


def exported_module(nb):
    "Module name in the notebook's `#| default_exp`, or None."
    found = [m[1] for source in sources(nb) for m in re.finditer(r"^#\|\s*default_exp\s+(\S+)", source, re.M)]
    assert len(found) <= 1, f"more than one default_exp: {found}"
    return found[0] if found else None


def outputs(nb):
    return [output for cell in nb["cells"] for output in cell.get("outputs", [])]


def by_name(path):
    return path.name


ORDER = [name for name in (exported_module(READ[path]) for path in NOTEBOOKS) if name]
NUMBER = {exported_module(nb): path.name[:2] for path, nb in READ.items()}

# ---------------------------------------------------------------- reading order = import order


def imported(path):
    "(own modules, other top-level packages) that a module imports anywhere, functions included."
    own, other = set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import): names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0: names = [node.module]
        elif isinstance(node, ast.ImportFrom):
            names = [f"xlnb.{node.module}"] if node.module else [f"xlnb.{alias.name}" for alias in node.names]
        else: continue
        for name in names:
            top, _, rest = name.partition(".")
            (own.add(rest) if top == "xlnb" else other.add(top))
    return own - {""}, other


def test_each_module_has_one_notebook():
    assert [name for name, n in Counter(ORDER).items() if n > 1] == []
    assert sorted(ORDER) == sorted(".".join(p.relative_to(ROOT / "xlnb").with_suffix("").parts) for p in MODULES)


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_imports_follow_the_reading_order(path):
    "A module imports only what stands above it, which also rules out cycles."
    earlier = ORDER[:ORDER.index(path.stem)]
    assert imported(path)[0] <= set(earlier), f"{path.stem} imports what comes after it"


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_papers_do_not_import_each_other(path):
    papers = {"03", "04", "05", "06", "07"}
    if NUMBER[path.stem] not in papers: return
    foreign = {name for name in imported(path)[0] if NUMBER[name] in papers and NUMBER[name] != NUMBER[path.stem]}
    assert foreign <= ({"xlm_e"} if NUMBER[path.stem] in ("04", "05") else set()) # other data; another start


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_imports_are_declared(path):
    "Users install the dependencies, and neither nbdev nor fastcore is among them."
    declared = {re.match(r"[\w-]+", line)[0].lower() for line in PROJECT["dependencies"]}
    owners = importlib.metadata.packages_distributions()
    installed_by = {"IPython": {"ipykernel"}, "tokenizers": {"transformers"}, "click": {"papermill"},
                    "cycler": {"matplotlib"}, "triton": {"torch"}} # triton comes with torch for CUDA
    for name in imported(path)[1] - set(sys.stdlib_module_names):
        owner = {o.lower() for o in owners.get(name, [name])} | installed_by.get(name, set())
        assert owner & declared, f"{path.name} imports {name}, which pyproject.toml does not declare"


def without(blocked, code):
    "Run code in a fresh interpreter in which some packages cannot be imported."
    hook = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {blocked!r}: raise ModuleNotFoundError(f'No module named {{name!r}}')
sys.meta_path.insert(0, Absent())
"""
    return subprocess.run([sys.executable, "-c", hook + code], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_library_imports_without_contributors_tools():
    tools = {"nbdev", "fastcore", "execnb", "ghapi", "fastgit", "jupytext", "jupyterlab", "pytest", "playwright"}
    code = "import importlib\n" + "\n".join(f"importlib.import_module('xlnb.{name}')" for name in ORDER)
    done = without(tools, code)
    assert done.returncode == 0, done.stderr
    assert "No module named 'nbdev'" in without(tools, "import nbdev").stderr


@pytest.mark.parametrize("name", ["core", "terminal", "cldr"])
def test_light_modules_do_not_load_torch(name):
    done = without({"torch", "transformers", "matplotlib", "pandas"}, f"import xlnb.{name}")
    assert done.returncode == 0, done.stderr

# ---------------------------------------------------------------- what is generated follows from the notebooks


def test_library_follows_from_the_notebooks(checkout):
    "Exported from an empty tree: a module whose notebook was renamed or removed would stay behind for ever."
    tool("nbdev_export", cwd=checkout)
    subprocess.run([sys.executable, ROOT / "tools" / "package_doc.py", checkout], check=True)
    exported = {p.relative_to(checkout): p.read_text() for p in (checkout / "xlnb").rglob("*.py")}
    committed = {p.relative_to(ROOT): p.read_text() for p in (ROOT / "xlnb").rglob("*.py")}
    assert exported.keys() == committed.keys()
    differ = [str(name) for name in exported if exported[name] != committed[name]]
    assert differ == [], "run nbdev_export, then tools/package_doc.py"


def test_notebooks_are_clean(checkout):
    before = {p: p.read_text() for p in (checkout / "nbs").rglob("*.ipynb")}
    tool("nbdev_clean", cwd=checkout)
    assert [p.name for p in before if p.read_text() != before[p]] == [], "run nbdev_clean"


def test_cleaning_keeps_the_parameters_tag(checkout):
    "The tag is papermill's, and nbdev_clean strips every key that settings.ini does not allow."
    path = checkout / "nbs" / "99_toy.ipynb"
    cell = {"cell_type": "code", "execution_count": 3, "id": "a1", "outputs": [], "source": "size = 'tiny'",
            "metadata": {"tags": ["parameters"], "scrolled": True}}
    path.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    tool("nbdev_clean", "--fname", str(path), cwd=checkout)
    cleaned = json.loads(path.read_text())["cells"][0]
    assert cleaned["metadata"] == {"tags": ["parameters"]} and cleaned["execution_count"] is None


def test_readme_follows_from_the_index():
    text, images = runpy.run_path(str(ROOT / "tools" / "readme.py"))["readme"](ROOT / "nbs" / "index.ipynb")
    assert (ROOT / "README.md").read_text(encoding="utf-8") == text, "run python tools/readme.py"
    assert {p.relative_to(ROOT).as_posix() for p in (ROOT / "figures" / "readme").glob("*")} == set(images)
    for name, data in images.items(): assert (ROOT / name).read_bytes() == data, f"{name}: run python tools/readme.py"

# ---------------------------------------------------------------- settings


def test_settings_agree():
    "nbdev reads settings.ini, pip reads pyproject.toml, a reader may read either."
    settings = configparser.ConfigParser()
    settings.read(ROOT / "settings.ini")
    settings = settings["DEFAULT"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    version = re.search(r'__version__ = "(.+)"', (ROOT / "xlnb" / "__init__.py").read_text())[1]
    assert settings["lib_name"] == PROJECT["name"] == settings["lib_path"]
    assert settings["version"] == version == citation["version"]
    assert settings["description"] == PROJECT["description"]
    assert PROJECT["requires-python"] == f">={settings['min_python']}"
    assert PROJECT["license"] == citation["license"] == "Apache-2.0" and settings["license"] == "apache2"
    assert version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_citation_names_the_five_papers():
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert len(references) == 5
    assert all(r["authors"] and r["year"] and r["identifiers"] for r in references)


def test_constraints_are_portable_and_cover_what_is_declared():
    assert [line for line in CONSTRAINTS if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == [], "exact versions only"
    normal = lambda name: re.sub(r"[-_.]+", "-", name).lower()
    pinned = {normal(line.partition("==")[0]): line.partition("==")[2] for line in CONSTRAINTS}
    assert "xlnb" not in pinned
    lines = PROJECT["dependencies"] + [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    for line in lines:
        if line.startswith("xlnb["): continue
        name, _, version = line.partition("==")
        name = normal(re.match(r"[\w-]+", name)[0])
        assert name in pinned, f"{name} has no version in constraints.txt"
        if version: assert pinned[name] == version


def test_commands_in_the_documents_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"^\s*(?:`|\$ )?make ([a-z]+)", text, re.M)) <= targets, name
    assert "make test" in (ROOT / ".ci" / "run").read_text() and "make test" in (ROOT / "README.md").read_text()

# ---------------------------------------------------------------- what readers see


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_notebook_can_be_read(path):
    nb = READ[path]
    assert re.match(r"# .+\n\n> \S.+", "".join(nb["cells"][0]["source"])), "first cell: a title and a one-line subtitle"
    assert nb["metadata"]["kernelspec"]["name"] == "python3", "papermill looks for this kernel"
    assert outputs(nb), "no output is saved: python tools/render.py"
    kinds = Counter(output["output_type"] for output in outputs(nb))
    assert kinds["error"] == 0, "an error is saved in the notebook"
    assert not [o for o in outputs(nb) if o.get("name") == "stderr"], "stderr is saved in the notebook"
    text = "\n".join(json.dumps(output.get("data") or output.get("text"), ensure_ascii=False) for output in outputs(nb))
    assert "jupyter.widget" not in text, "a widget is saved, which viewers do not draw"
    assert not re.search(r"\w+Warning\b", text), "a warning is saved in the notebook"
    machine = re.compile(r"(?<![\w.:/])(/(home|root|tmp|Users|work|mnt|var/folders)/[\w.-]+|[A-Z]:\\\\Users)")
    found = machine.search("\n".join([text, *sources(nb), *sources(nb, "markdown")]))
    assert not found, f"path of a machine: {found[0]}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_no_cell_is_switched_off(path):
    assert not [s for s in sources(READ[path]) if re.search(r"^#\|\s*eval:\s*false", s, re.M)]


PAPER_NOTEBOOKS = [path for path in NOTEBOOKS if re.match(r"0[3-8][a-z]*_", path.name)]


@pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=by_name)
def test_paper_notebook_has_parameters(path):
    "Scalars with a type and a comment each, so that `papermill --help-notebook` is a manual."
    tagged = [cell for cell in READ[path]["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    parameters = notebook_parameters(READ[path])
    assert "size" in parameters and all(isinstance(v, str | int | float | None) for v in parameters.values())
    lines = [line for line in "".join(tagged[0]["source"]).splitlines() if re.match(r"\w", line)]
    assert [line for line in lines if not re.match(r"\w+: .+ = .+ # \S", line)] == []


def test_tracked_files_are_small():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode: pytest.skip("not a git checkout")
    sizes = {name: (ROOT / name).stat().st_size for name in listed.stdout.split("\0") if (ROOT / name).is_file()}
    assert sizes and [f"{name}: {size}" for name, size in sizes.items() if size > 1_000_000] == []
    assert [f"{name}: {size}" for name, size in sizes.items() if name.startswith("figures/") and size > 300_000] == []
    assert [name for name in sizes if name.startswith((".venv/", "runs/"))] == []
