"""What pip installs: modules with the comments beside parameters in their docstrings, and the tables of the papers."""

import runpy, shutil
from pathlib import Path

from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parents[1]
documented = runpy.run_path(str(ROOT / "xlnb" / "base" / "docstrings.py"))["documented"]


class Build(build_py):
    "Copies modules, writes sections into the copies, and adds tables; an editable install copies nothing."

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for path in (ROOT / "data" / "papers").glob("*/*.csv"):
            target = Path(self.build_lib, "xlnb", "papers", path.parent.name)
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)

    def build_module(self, module, module_file, package):
        target, copied = super().build_module(module, module_file, package)
        path = Path(target)
        if copied:
            path.write_text(documented(path.read_text("utf-8")), encoding="utf-8")
        return target, copied
