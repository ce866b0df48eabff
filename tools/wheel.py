"""What pip installs: modules with the comments beside parameters in their docstrings, which editors read."""
import runpy
from pathlib import Path

from setuptools.command.build_py import build_py

documented = runpy.run_path(str(Path(__file__).resolve().parents[1] / "xlnb" / "docstrings.py"))["documented"]


class Build(build_py):
    "Copies modules, and writes sections into the copies; an editable install copies nothing."

    def build_module(self, module, module_file, package):
        target, copied = super().build_module(module, module_file, package)
        path = Path(target)
        if copied: path.write_text(documented(path.read_text("utf-8")), encoding="utf-8")
        return target, copied
