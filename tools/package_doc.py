"""Write what `help(xlnb)` says into xlnb/__init__.py, from the first lines of the modules: python tools/package_doc.py

`nbdev_export` keeps an __init__.py that has a version, and makes one with nothing else where there is none."""
import ast, re
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TEXT = '''"""{description}.

Nothing is imported with the package: import the module that has what you need.

    from xlnb.retrieval import encode            # sentence vectors out of any layer of a saved encoder
    vectors = encode(["Guten Morgen", "Good morning"], "path/of/a/model", layer=8)

    from xlnb.alignment import align              # word links with scores
    links = align([("Guten Morgen", "Good morning")], "path/of/a/model")

    from xlnb.sampling import entropic_sampling  # XY-LENT's sampling: pair -> probability
    shares = entropic_sampling({{"de-en": 1000, "en-sw": 10, "de-sw": 1}})

Each module is generated from a notebook in nbs/ that explains it. In reading order:

{modules}
"""

__version__ = "{version}"
'''


def exported(notebook: Path) -> str | None:
    "Name of the module that a notebook writes."
    found = re.search(r"#\| default_exp (\w+)", notebook.read_text(encoding="utf-8"))
    return found and found[1]


def package_doc() -> str:
    "The text of xlnb/__init__.py."
    settings = ConfigParser()
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    names = [name for path in sorted((ROOT / "nbs").glob("*.ipynb")) if (name := exported(path))]
    source = lambda name: (ROOT / "xlnb" / f"{name}.py").read_text(encoding="utf-8")
    wide = max(map(len, names))
    rows = [f"    {name:{wide}}  {ast.get_docstring(ast.parse(source(name)))}" for name in names]
    known = settings["DEFAULT"]
    return TEXT.format(description=known["description"], version=known["version"], modules="\n".join(rows))


if __name__ == "__main__": (ROOT / "xlnb" / "__init__.py").write_text(package_doc(), encoding="utf-8")
