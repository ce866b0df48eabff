"An engine of papermill that runs the cells in the process that it is in."

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbformat.v4 import new_output
from papermill.engines import Engine
from papermill.exceptions import PapermillExecutionError


def _outputs(captured) -> list:
    "What a cell has shown, as a notebook keeps it."
    outputs = []
    for name in ("stdout", "stderr"):
        if text := getattr(captured, name):
            outputs.append(new_output("stream", name=name, text=text))
    for shown in captured.outputs:
        outputs.append(new_output("display_data", data=shown.data, metadata=shown.metadata))
    return outputs


class _Shell(InteractiveShell):
    "A shell that draws into its outputs."

    def enable_gui(self, gui=None):
        "There are no windows."


class InProcess(Engine):
    "Cell by cell; the first error ends the run."

    @classmethod
    def execute_managed_notebook(cls, nb_man, kernel_name, **options):
        shell = _Shell.instance()
        shell.run_line_magic("matplotlib", "inline")
        for number, cell in enumerate(nb_man.nb.cells):
            if cell.cell_type != "code":
                continue
            with capture_output() as captured:
                result = shell.run_cell(cell.source)
            cell.outputs = _outputs(captured)
            if error := result.error_before_exec or result.error_in_exec:
                name = type(error).__name__
                raise PapermillExecutionError(number, number, cell.source, name, str(error), [])
