"The repository as a whole: reading order, generated files, settings, and what readers see in the notebooks."

import ast, configparser, importlib, importlib.metadata, io, json, os, re
import runpy, shutil, subprocess, sys, tokenize, tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest, yaml
from conftest import ROOT

import xlnb
from xlnb.base.terminal import notebook_parameters
from xlnb.pretraining.pretraining import EVERY_PHASE

NOTEBOOKS = sorted(
    p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts
)
MODULES = [
    p for p in sorted((ROOT / "xlnb").rglob("*.py")) if p.name not in ("__init__.py", "_modidx.py")
]
READ = {path: json.loads(path.read_text(encoding="utf-8")) for path in NOTEBOOKS}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = [
    line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]


def tool(*arguments, cwd):
    "Run a command of this environment."
    command = [Path(sys.executable).parent / arguments[0], *arguments[1:]]
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def sources(nb, kind="code"):
    return ["".join(cell["source"]) for cell in nb["cells"] if cell["cell_type"] == kind]


def exported_module(nb):
    "Module name in the notebook's `#| default_exp`, or None."
    found = [
        m[1]
        for source in sources(nb)
        for m in re.finditer(r"^#\|\s*default_exp\s+(\S+)", source, re.M)
    ]
    assert len(found) <= 1, f"more than one default_exp: {found}"
    return found[0] if found else None


def outputs(nb):
    return [output for cell in nb["cells"] for output in cell.get("outputs", [])]


def by_name(path):
    return f"{path.parent.name}/{path.name}"


ORDER = [
    name
    for name in (exported_module(READ[path]) for path in NOTEBOOKS)
    if name not in (None, "__init__")
]

# ---------------------------------------------------------------- reading order = import order


def imported(path):
    "(own modules, other top-level packages) that a module imports anywhere, functions included."
    own = set()
    other = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        elif isinstance(node, ast.ImportFrom):
            names = (
                [f"xlnb.{node.module}"]
                if node.module
                else [f"xlnb.{alias.name}" for alias in node.names]
            )
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            (own.add(rest) if top == "xlnb" else other.add(top))
    return own - {""}, other


def test_each_module_has_one_notebook():
    assert [name for name, n in Counter(ORDER).items() if n > 1] == []
    assert sorted(ORDER) == sorted(
        ".".join(p.relative_to(ROOT / "xlnb").with_suffix("").parts) for p in MODULES
    )


def dotted(path):
    "Name of a module below the package, e.g. `text.corpora`."
    return ".".join(path.relative_to(ROOT / "xlnb").with_suffix("").parts)


def test_imports_keep_to_the_contract():
    "Sub-packages import only those below them, and papers not each other: the contracts are in pyproject.toml."
    tool("lint-imports", "--no-cache", cwd=ROOT)


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_within_a_folder_the_reading_order_is_the_import_order(path):
    "A module imports only what stands above it, which also rules out cycles."
    room = dotted(path).rpartition(".")[0]
    order = [name for name in ORDER if name.rpartition(".")[0] == room]
    same_room = {name for name in imported(path)[0] if name in order}
    assert same_room <= set(order[: order.index(dotted(path))]), (
        f"{dotted(path)} imports what comes after it"
    )


packages_distributions = cache(importlib.metadata.packages_distributions)


@pytest.mark.parametrize("path", MODULES, ids=by_name)
def test_imports_are_declared(path):
    "Users install the dependencies, and neither nbdev nor fastcore is among them."
    declared = {re.match(r"[\w-]+", line)[0].lower() for line in PROJECT["dependencies"]}
    owners = packages_distributions()
    installed_by = {
        "IPython": {"ipykernel"},
        "tokenizers": {"transformers"},
        "click": {"papermill"},
        "cycler": {"matplotlib"},
        "PIL": {"matplotlib"},
        "triton": {"torch"},
    }  # triton comes with torch for CUDA
    for name in imported(path)[1] - set(sys.stdlib_module_names):
        owner = {o.lower() for o in owners.get(name, [name])} | installed_by.get(name, set())
        assert owner & declared, (
            f"{path.name} imports {name}, which pyproject.toml does not declare"
        )


def without(blocked, code):
    "Run code in a fresh interpreter in which some packages cannot be imported."
    hook = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {blocked!r}: raise ModuleNotFoundError(f'No module named {{name!r}}')
sys.meta_path.insert(0, Absent())
"""
    return subprocess.run(
        [sys.executable, "-c", hook + code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_library_imports_without_contributors_tools():
    tools = {
        "nbdev",
        "fastcore",
        "execnb",
        "ghapi",
        "fastgit",
        "jupytext",
        "jupyterlab",
        "pytest",
        "playwright",
    }
    code = "import importlib\n" + "\n".join(
        f"importlib.import_module('xlnb.{name}')" for name in ORDER
    )
    done = without(tools, code)
    assert done.returncode == 0, done.stderr
    assert "No module named 'nbdev'" in without(tools, "import nbdev").stderr


@pytest.mark.parametrize("name", ["base.core", "base.terminal", "text.cldr"])
def test_light_modules_do_not_load_torch(name):
    done = without({"torch", "transformers", "matplotlib", "pandas"}, f"import xlnb.{name}")
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- names, sizes, words


def test_notebooks_have_one_number_and_at_most_one_letter():
    form = re.compile(r"\d\d[a-z]?_[a-z][a-z0-9_]*|index")
    assert [p.name for p in NOTEBOOKS if not form.fullmatch(p.stem)] == []
    places = Counter((p.parent.name, p.name.partition("_")[0]) for p in NOTEBOOKS)
    assert [place for place, n in places.items() if n > 1] == [], "two notebooks in one place"


def public_functions(tree, prefix=""):
    "(qualified name, node) of the functions and methods that users can call."
    for node in tree.body:
        name = getattr(node, "name", "_")
        if name.startswith("_") and name not in ("__init__", "__call__"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from public_functions(node, f"{prefix}{name}.")
        if isinstance(node, ast.FunctionDef):
            yield prefix + name, node


# callers of transformers pass these names: inputs, masks, cache, kinds of output
TRANSFORMERS = {"Encoder.forward"}


def parameter_count(node) -> int:  # without self and cls
    plain = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(arg.arg not in ("self", "cls") for arg in plain)


def test_functions_have_at_most_ten_parameters():
    found = [
        item
        for path in MODULES
        for item in public_functions(ast.parse(path.read_text(encoding="utf-8")))
    ]
    many = {name for name, node in found if parameter_count(node) > 10}
    assert sorted(many - TRANSFORMERS) == []


MOST_LINES = 580
LONG = {
    "evaluation": "settings, tasks by fine-tuning and by frozen probes, tables and figures of a model, "
    "the command",
    "xy_lent": "bitexts of one size, samplers and vocabularies, and the table beside the paper",
    "real_objectives": "tests, warm-up and measures of a run, ten experiments, and the claims that they "
    "decide",
    "translation": "a model of pairs, its phases, scores, and the command that translates",
    "static_results": "tables of the paper, and the drawings of ours beside them",
    "core": "errors, lines and words, seeds, progress, settings, records and figures, which "
    "every module uses",
    "corpora": "a corpus and its streams, codes of languages, readers, reports, and random pairs",
    "x2static": "words in a text, one resumable pass of an encoder, and what is learned from "
    "it, as one call",
    "pretraining": "one road for all papers: settings, phases, runs, records, the command line",
    "attention": "the kernels of one function: forward, two backward, the gradient of the bias, "
    "and the operator around them",
    "encoder": "one forward pass three ways: fused, packed, with gates as functions; cache and "
    "cross-attention",
    "meta_xlm": "two phases, the match between their vocabularies, distillation, and controls "
    "out of order",
    "alignment": "six published methods of linking words, error rates, and files of gold links",
    "alignment_panel": "words, neighbours, a drawing in SVG by small parts, and the panel around it",
    "benchmarks": "fourteen measurements and their figures; no module imports it",
    "catalogue": "a table of sets: addresses, licences and readers are data",
    "cldr": "a language-independent meaning, how 113 locales render it, and the labels that "
    "follow from it",
    "contamination": "near repeats in one pass: an index of grams, a survey, languages told apart",
    "dro": "the moves of the mixture, planted defects, and the search for them without a model",
    "xlm_e": "two networks and their losses, settings by size, and the table beside the paper",
    "real_static": "text, vectors, maps and verdicts of one experiment; no module imports it",
    "held_out": "what is asked of held-out text, pairs and layers, the same for every paper",
    "finetuning": "what five kinds of tasks read, learn and answer, one training, and networks "
    "beside a translation",
    "formats": "one reader for each published format",
    "mapping": "starts, self-learning, checks that refuse a map, one hub, and dictionaries out "
    "of it",
    "matching": "seven rules by which two vocabularies are matched, and their composition",
    "objectives": "masks, a head without the matrix of logits, and each loss that the papers train by",
    "probes": "readouts of tags, entailment, paraphrase and classes, on one solver",
    "retrieval": "encoding, scores, margins, mining, and baselines without an encoder",
    "sampling": "an exact projection, three samplers and their repairs",
    "task_sets": "a table of sets: labels, licences and forms are data, with a reader for each "
    "kind of form",
    "veco": "five tasks as parts of a batch, two phases, and measures beside partners",
    "static_runs": "a base run, three teachers and files, words beside text, and measures "
    "before and after",
    "training": "one loop, and what it survives: processes apart, full disks, damaged files, kills",
    "tokens": "a store written in parallel, and rows, packed and padded, out of it",
}


def code_lines(path) -> int:
    "Lines with code: no docstrings, no comments, no blank lines."
    text = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    silent = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    lines = {n for t in tokens if t.type not in silent for n in range(t.start[0], t.end[0] + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(
            node
        ):
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def test_long_modules_have_a_reason():
    long = {path.stem for path in MODULES if code_lines(path) > MOST_LINES}
    assert sorted(long - LONG.keys()) == [], f"split it, or say why it has over {MOST_LINES} lines"
    assert sorted(LONG.keys() - long) == [], "no longer long"


# Words that readers of the papers would have to learn, and the field's own: in prose, and in texts
# that code shows.
WORDS = {
    r"thousand million": "billion",
    r"what (is|costs) (free|nothing)|free baselines?": "baseline",
    r"partner.?s.? worth|partner is worth": "translation gain",
    r"partner, (TLM|nats)": "translation gain",
    r"worth of (the|a)( true)? partner": "translation gain",
    r"(captions|translations) found": "retrieval accuracy@1",
}
NAMES = {  # of functions, classes, parameters and constants in papers' modules
    "FREE": "NOT_IDENTITY",
    "OutOfOrder": "ShuffledBatches",
    "Probe": "held_out_metrics",
    "Shared": "AttentionContext",
    "Taught": "DistillationBatches",
    "alone": "folder_lock",
    "health": "held_out_metrics",
    "look": "held_out_metrics",
    "pooled": "all_reduce_sum or pool_sentences",
    "remembered": "cached_rows",
    "watch": "on_pair_losses",
}


def test_words_are_those_of_the_field():
    found = []
    for path in NOTEBOOKS:
        text = "\n".join([*sources(READ[path], "markdown"), *sources(READ[path])])
        used = {
            better
            for word, better in WORDS.items()
            if re.search(rf"\b({word})\b", re.sub(r"\s+", " ", text))
        }
        found += [f"{path.stem}: {better}" for better in sorted(used)]
    assert found == [], "say instead"


def defined_names(path):
    "Names that a module gives to functions, classes, their parameters and its constants."
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from (
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.arg):
            yield node.arg


def test_names_are_those_of_the_field():
    papers = [path for path in MODULES if path.parent.name == "xlnb"]
    found = [
        f"{path.stem}.{name}"
        for path in papers
        for name in sorted(NAMES.keys() & set(defined_names(path)))
    ]
    assert found == [], NAMES


# ---------------------------------------------------------------- what is generated follows from
# the notebooks


def test_library_follows_from_the_notebooks(checkout):
    "Exported from an empty tree: a module whose notebook was renamed or removed would stay behind for ever."
    tool("nbdev_export", cwd=checkout)
    exported = {p.relative_to(checkout): p.read_text() for p in (checkout / "xlnb").rglob("*.py")}
    committed = {p.relative_to(ROOT): p.read_text() for p in (ROOT / "xlnb").rglob("*.py")}
    assert exported.keys() == committed.keys()
    assert [str(name) for name in exported if exported[name] != committed[name]] == [], (
        "run nbdev_export"
    )


def subtitle(nb) -> str:
    return re.search(r"^> (.+)", "".join(nb["cells"][0]["source"]), re.M)[1]


def test_help_lists_every_module():
    described = dict(re.findall(r"^    ([\w.]+)  +(\S.*(?:\n {10,}\S.*)*)", xlnb.__doc__, re.M))
    subtitles = {exported_module(nb): subtitle(nb) for nb in READ.values() if exported_module(nb)}
    listed = [name for name in subtitles if name != "__init__" and not name.startswith("results.")]
    assert sorted(described) == sorted(listed), "nbs/index.ipynb lists them"
    wrong = [name for name, text in described.items() if " ".join(text.split()) != subtitles[name]]
    assert wrong == [], "nbs/index.ipynb describes them as their subtitles do"


def test_notebooks_are_clean(checkout):
    before = {p: p.read_text() for p in (checkout / "nbs").rglob("*.ipynb")}
    tool("nbdev_clean", cwd=checkout)
    assert [p.name for p in before if p.read_text() != before[p]] == [], "run nbdev_clean"


def test_cleaning_keeps_the_parameters_tag(checkout):
    "The tag is papermill's, and nbdev_clean strips every key that settings.ini does not allow."
    path = checkout / "nbs" / "99_toy.ipynb"
    cell = {
        "cell_type": "code",
        "execution_count": 3,
        "id": "a1",
        "outputs": [],
        "source": "size = 'tiny'",
        "metadata": {"tags": ["parameters"], "scrolled": True},
    }
    path.write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    tool("nbdev_clean", "--fname", str(path), cwd=checkout)
    cleaned = json.loads(path.read_text())["cells"][0]
    assert cleaned["metadata"] == {"tags": ["parameters"]} and cleaned["execution_count"] is None


def test_readme_follows_from_the_index():
    text, images = runpy.run_path(str(ROOT / "tools" / "readme.py"))["readme"](
        ROOT / "nbs" / "index.ipynb"
    )
    assert (ROOT / "README.md").read_text(encoding="utf-8") == text, "run python tools/readme.py"
    assert {p.relative_to(ROOT).as_posix() for p in (ROOT / "figures" / "readme").glob("*")} == set(
        images
    )
    for name, data in images.items():
        assert (ROOT / name).read_bytes() == data, f"{name}: run python tools/readme.py"


# ---------------------------------------------------------------- figures are drawn from what is
# there


def figures_shown(nb):
    "Patterns of the names of figures that are saved by a cell whose picture stands below it."
    for cell in nb["cells"]:
        source = "".join(cell["source"])
        pictures = [
            output for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
        ]
        if "save_figure(" not in source or not pictures:
            continue
        for name in re.findall(r'"([a-z0-9_{}]+)"', source):
            # of f-strings: one word, or one number
            yield re.sub(r"\{[a-z_]+\}", "([a-z]+|[0-9]+)", name)


def figure_table():
    "Rows of 09_figures: paper, its figure, what it draws, ours, drawn from, notebook."
    (source,) = (
        s for s in sources(READ[ROOT / "nbs" / "results/09_figures.ipynb"]) if "FIGURES = [" in s
    )
    table = next(node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    return [tuple(line.split(" | ")) for line in ast.literal_eval(table.value).split("\n")[1:-1]]


def test_every_figure_is_shown_by_a_notebook_that_draws_it():
    "Where its records are gone, a notebook shows no picture, and the files of the picture have to go too."
    shown = {pattern for nb in READ.values() for pattern in figures_shown(nb)}
    files = {path.stem for path in (ROOT / "figures").glob("*.*")}
    assert [
        name for name in sorted(files) if not any(re.fullmatch(pattern, name) for pattern in shown)
    ] == []


def test_the_table_of_figures_has_each_of_the_papers_figures_that_is_drawn():
    drawn = {row[3] for row in figure_table() if row[3]}
    assert {path.stem for path in (ROOT / "figures").glob("*_fig[0-9].png")} <= drawn
    assert drawn <= {path.stem for path in (ROOT / "figures").glob("*.png")}


def test_two_notebooks_name_the_same_figures_of_a_paper():
    [name] = [row[3] for row in figure_table() if row[:2] == ("XLM-E", "3 and 4")]
    texts = sources(READ[ROOT / "nbs" / "results/03a_xlm_e_results.ipynb"], "markdown")
    (said,) = re.findall(r"\*\*Figures 3 and 4\*\*[^;]*", " ".join("\n".join(texts).split()))
    assert f"`{name}`" in said


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.stem.endswith("_results")], ids=by_name
)
def test_numbers_of_seeds_in_captions_are_counted(path):
    "A typed number stays when runs are added or go."
    typed = r"\b([0-9]+|two|three|four|five)( to ([0-9]+|three|four|five))? seeds\b"
    below = [
        paragraph
        for text in sources(READ[path], "markdown")
        for paragraph in re.findall(r"^!\[.*\)\n\n(\*.*)", text, re.M)
    ]
    nodes = [
        node
        for source in sources(READ[path])
        if "show_table(" in source
        for node in ast.walk(ast.parse(source))
    ]
    strings = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    allowed = "fewer than (two|three) seeds"
    assert [text for text in below + strings if re.search(typed, re.sub(allowed, "", text))] == []


@pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path.parent.name == "results"], ids=by_name
)
def test_code_cells_of_results_are_collapsed(path):
    cells = [cell for cell in READ[path]["cells"] if cell["cell_type"] == "code"]
    is_open = [
        cell for cell in cells if not cell["metadata"].get("jupyter", {}).get("source_hidden")
    ]
    assert [cell["id"] for cell in is_open] == []


def test_modules_that_a_key_is_made_of_are_there():
    calls = [
        node
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "source_hash"
    ]
    named = {arg.value for call in calls for arg in call.args if isinstance(arg, ast.Constant)}
    assert named | {*EVERY_PHASE} <= {path.stem for path in MODULES}


README = (ROOT / "README.md").read_text(encoding="utf-8")


LISTING = (ROOT / "nbs" / "README.md").read_text(encoding="utf-8")


def test_the_list_of_notebooks_has_every_one_and_the_readme_leads_to_it():
    names = {p.relative_to(ROOT / "nbs").with_suffix("").as_posix() for p in NOTEBOOKS}
    linked = set(re.findall(r"\]\(([\w/]+)\.ipynb\)", LISTING))
    assert names - linked == {"index"}
    linked |= set(re.findall(r"\]\(nbs/([\w/]+)\.ipynb\)", README))
    assert sorted(linked - names) == [], "no such notebook"
    assert "](nbs/README.md)" in README and len(README) < 7800, "a first screen, not a wall"


LINK = re.compile(r"\]\((?!https?:|#|\w+:)([^)#\s]+)")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_links_between_notebooks_resolve(path):
    targets = {m[1] for source in sources(READ[path], "markdown") for m in LINK.finditer(source)}
    assert sorted(target for target in targets if not (path.parent / target).exists()) == []


def test_examples_in_the_readmes_import_what_is_there():
    for code in re.findall(r"```python\n(.*?)```", README + LISTING, re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if not isinstance(node, ast.ImportFrom):
                continue
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if alias.name not in module.__all__] == [], (
                node.module
            )


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
    assert (
        PROJECT["license"] == citation["license"] == "Apache-2.0"
        and settings["license"] == "apache2"
    )
    assert version in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_citation_names_the_five_papers():
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert len(references) == 5
    assert all(r["authors"] and r["year"] and r["identifiers"] for r in references)


def test_constraints_are_portable_and_cover_what_is_declared():
    assert [line for line in CONSTRAINTS if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == [], (
        "exact versions only"
    )

    def normal(name):
        return re.sub(r"[-_.]+", "-", name).lower()

    pinned = {normal(line.partition("==")[0]): line.partition("==")[2] for line in CONSTRAINTS}
    assert "xlnb" not in pinned
    lines = PROJECT["dependencies"] + [
        line for extra in PROJECT["optional-dependencies"].values() for line in extra
    ]
    for line in lines:
        if line.startswith("xlnb["):
            continue
        name, _, version = line.partition(";")[0].partition("==")
        name = normal(re.match(r"[\w-]+", name)[0])
        assert name in pinned, f"{name} has no version in constraints.txt"
        if version:
            assert pinned[name] == version


def test_commands_in_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for name in ("README.md", "CONTRIBUTING.md", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"^\s*(?:`|\$ )?make ([a-z]+)", text, re.M)) <= targets, name
    assert (
        "make test" in (ROOT / ".ci" / "run").read_text()
        and "make test" in (ROOT / "README.md").read_text()
    )


def test_make_help_names_every_command():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.+)", text, re.M)[1].split()) - {
        "help",
        "env",
        "lint",
        "notebooks",
        "pytest",
    }
    assert set(re.findall(r"^#   make ([a-z-]+)", text, re.M)) == phony


@pytest.mark.parametrize("given, seen", [(None, "shared/data"), ("elsewhere", "elsewhere")])
def test_ci_takes_the_corpora_beside_the_checkout(given, seen, tmp_path):
    for name in ("shared/data", "bin", "checkout/.ci"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tmp_path / "checkout" / ".ci")
    for name, body in (("make", 'echo "sees=$XLNB_DATA"'), ("chromium", "true")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k != "XLNB_DATA"}
    environment |= {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        **({"XLNB_DATA": given} if given else {}),
    }
    done = subprocess.run(
        [tmp_path / "checkout/.ci/run"], env=environment, capture_output=True, text=True, timeout=30
    )
    wanted = given or tmp_path.resolve() / seen
    assert done.returncode == 0 and f"sees={wanted}\n" in done.stdout, done.stderr


# ---------------------------------------------------------------- what readers see


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_notebook_can_be_read(path):
    nb = READ[path]
    assert re.match(r"# .+\n\n> \S.+", "".join(nb["cells"][0]["source"])), (
        "first cell: a title and a one-line subtitle"
    )
    assert nb["metadata"]["kernelspec"]["name"] == "python3", "papermill looks for this kernel"
    assert outputs(nb), "no output is saved: python tools/render.py"
    kinds = Counter(output["output_type"] for output in outputs(nb))
    assert kinds["error"] == 0, "an error is saved in the notebook"
    assert not [o for o in outputs(nb) if o.get("name") == "stderr"], (
        "stderr is saved in the notebook"
    )
    text = "\n".join(
        json.dumps(output.get("data") or output.get("text"), ensure_ascii=False)
        for output in outputs(nb)
    )
    assert "jupyter.widget" not in text, "a widget is saved, which viewers do not draw"
    assert not re.search(r"\w+Warning\b", text), "a warning is saved in the notebook"
    machine = re.compile(
        r"(?<![\w.:/])(/(home|root|tmp|Users|work|mnt|var/folders)/[\w.-]+|[A-Z]:\\\\Users)"
    )
    found = machine.search("\n".join([text, *sources(nb), *sources(nb, "markdown")]))
    assert not found, f"path of a machine: {found[0]}"


PAPER_NOTEBOOKS = [
    path
    for path in NOTEBOOKS
    if path.parent.name in ("nbs", "results") and re.match(r"0[3-8][a-z]*_", path.name)
]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_every_cell_has_an_id_of_its_own(path):
    count = Counter(cell["id"] for cell in READ[path]["cells"])
    assert [cell_id for cell_id, n in count.items() if n > 1] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=by_name)
def test_no_cell_is_switched_off(path):
    assert not [s for s in sources(READ[path]) if re.search(r"^#\|\s*eval:\s*false", s, re.M)]


@pytest.mark.parametrize("path", PAPER_NOTEBOOKS, ids=by_name)
def test_paper_notebook_has_parameters(path):
    "Scalars with a type and a comment each, so that `papermill --help-notebook` is a manual."
    tagged = [
        cell for cell in READ[path]["cells"] if "parameters" in cell["metadata"].get("tags", [])
    ]
    assert len(tagged) == 1
    parameters = notebook_parameters(READ[path])
    # an encoder that is read has its size
    assert "size" in parameters or "_real_" in path.name
    assert all(isinstance(v, str | int | float | None) for v in parameters.values())
    lines = [line for line in "".join(tagged[0]["source"]).splitlines() if re.match(r"\w", line)]
    assert [line for line in lines if not re.match(r"\w+: .+ = .+ # \S", line)] == []


def test_tracked_files_are_small():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    sizes = {
        name: (ROOT / name).stat().st_size
        for name in listed.stdout.split("\0")
        if (ROOT / name).is_file()
    }
    assert sizes and [f"{name}: {size}" for name, size in sizes.items() if size > 1_000_000] == []
    assert [
        f"{name}: {size}"
        for name, size in sizes.items()
        if name.startswith("figures/") and size > 300_000
    ] == []
    assert [name for name in sizes if name.startswith((".venv/", "runs/"))] == []
