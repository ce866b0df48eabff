"""Write what `help(xlnb)` says into xlnb/__init__.py, from the modules: python tools/package_doc.py [checkout]

`nbdev_export` keeps an __init__.py that has a version, and makes one with nothing else where there is none."""
import ast, re, sys
from configparser import ConfigParser
from pathlib import Path

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


def package_doc(root: Path) -> str:
    "The text of a checkout's xlnb/__init__.py."
    settings = ConfigParser()
    settings.read(root / "settings.ini", encoding="utf-8")
    names = [name for path in sorted((root / "nbs").glob("*.ipynb")) if (name := exported(path))]
    source = lambda name: (root / "xlnb" / f"{name}.py").read_text(encoding="utf-8")
    wide = max(map(len, names))
    rows = [f"    {name:{wide}}  {ast.get_docstring(ast.parse(source(name)))}" for name in names]
    known = settings["DEFAULT"]
    return TEXT.format(description=known["description"], version=known["version"], modules="\n".join(rows))


if __name__ == "__main__":
    root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).resolve().parents[1]
    (root / "xlnb" / "__init__.py").write_text(package_doc(root), encoding="utf-8")
