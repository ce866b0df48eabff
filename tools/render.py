"""Execute notebooks, keep what a reader should see, write them back: python tools/render.py nbs/00_core.ipynb …

Figures and records of a render go where git tracks them: `figures/` and `data/results/`."""

import base64, io, os, subprocess, sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

WIDGET = "application/vnd.jupyter.widget-view+json"
SKIP = ("#| eval: false", "#| slow", "#| notest", "nbdev_export(")


class Renderer(NotebookClient):
    "A notebook client that leaves cells marked as not to be run alone."

    async def async_execute_cell(self, cell, cell_index, **kwargs):
        if any(mark in cell.source for mark in SKIP):
            return cell
        return await super().async_execute_cell(cell, cell_index, **kwargs)


def smaller(png):
    "The same picture in 256 colours, which line drawings do not exceed to the eye, if that takes less room."
    picture = Image.open(io.BytesIO(base64.b64decode(png)))
    out = io.BytesIO()
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    found = base64.b64encode(out.getvalue()).decode()
    return min(png, found, key=len)


def clean_outputs(cell):
    "Drop what changes from run to run, stderr, and widgets (but their pictures); make pictures smaller."

    def keep(output):
        data = output.get("data", {})
        is_widget = WIDGET in data and "image/svg+xml" not in data
        return output.get("name") != "stderr" and not is_widget

    if cell.cell_type != "code":
        return
    cell.outputs = [o for o in cell.outputs if keep(o)]
    for output in cell.outputs:
        data = output.get("data", {})
        data.pop(WIDGET, None)
        if "image/png" in data:
            data["image/png"] = smaller(data["image/png"])


def render(path):
    "Run one notebook in its own folder and save it with its outputs."
    nb = nbformat.read(path, as_version=4)
    Renderer(
        nb,
        timeout=900,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        coalesce_streams=True,
    ).execute()
    for cell in nb.cells:
        clean_outputs(cell)
    nb.metadata.pop("widgets", None)
    nbformat.write(nb, path)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    os.environ |= {
        "XLNB_FIGURES": str(root / "figures"),
        "XLNB_RESULTS": str(root / "data" / "results"),
    }
    paths = [Path(p) for p in sys.argv[1:]] or sorted(Path("nbs").rglob("*.ipynb"))
    for path in paths:
        render(path)
        subprocess.run(
            [Path(sys.executable).parent / "nbdev_clean", "--fname", str(path)], check=True
        )
