"""Write README.md and its figures from the saved outputs of nbs/index.ipynb: python tools/readme.py [checkout]"""

import re, sys
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter
from traitlets.config import Config

FIGURES = "figures/readme"
LINK = re.compile(r"\]\(([\w/]+\.(?:ipynb|md)(?:#[\w-]+)?)\)")  # from a notebook to its neighbour
BLANK = re.compile(r"(?:[ \t]*\n){3,}")  # lines that the exporter leaves between cells


def visible(cell):
    "The cell as a reader should see it, or None: hidden cells out, directives out of the others."
    if cell.cell_type == "code":
        lines = cell.source.splitlines()
        directives = [line.replace(" ", "") for line in lines if line.startswith("#|")]
        if any(d.startswith(("#|hide", "#|default_exp")) for d in directives):
            return None
        if "#|echo:false" in directives:
            cell.metadata.tags = ["output_only"]
        cell.source = "\n".join(line for line in lines if not line.startswith("#|")).strip()
        if not cell.source and not cell.outputs:
            return None
    return cell


def readme(notebook):
    "Markdown and a dict of image bytes by path, from a notebook's saved outputs."
    nb = nbformat.read(notebook, as_version=4)
    nb.cells = [cell for cell in map(visible, nb.cells) if cell]
    # the fences are named after it; cleaning drops it
    nb.metadata.language_info = {"name": "python"}
    resources = {"output_files_dir": FIGURES, "unique_key": "index"}
    removal = {"enabled": True, "remove_input_tags": ["output_only"]}
    exporter = MarkdownExporter(config=Config({"TagRemovePreprocessor": removal}))
    text, found = exporter.from_notebook_node(nb, resources=resources)
    return LINK.sub(r"](nbs/\1)", BLANK.sub("\n\n", text)).strip() + "\n", found["outputs"]


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    text, images = readme(root / "nbs" / "index.ipynb")
    for old in (root / FIGURES).glob("*"):
        old.unlink()
    for name, data in images.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "README.md").write_text(text, encoding="utf-8")
