"""Finding the flow in a file: a Python file that defines one, or a YAML file that describes one."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from trek.engines.pickling import never_import_elsewhere
from trek.errors import InputError, TrainingError, TrekError
from trek.flow.flow import Flow, FlowDefined


def load_flow(target: str) -> Flow:
    """The flow of `flow.py`, of `flow.py:variable` where it defines several, or of `flow.yaml`."""
    name, _, variable = target.partition(":")
    path = Path(name)
    if not path.is_file():
        raise InputError(f"flow file {name!r} does not exist. Name a Python or YAML file that defines a flow.")
    if path.suffix in (".yaml", ".yml"):
        from trek.flow.yaml_flow import read_yaml_flow

        return read_yaml_flow(path)
    return _choose(vars(_run_module(path)), path=path, variable=variable)


def _run_module(path: Path) -> ModuleType:
    """Run the file up to its end or to where it would run its flow."""
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    Flow.is_being_read = True
    try:
        spec.loader.exec_module(module)
    except FlowDefined:
        pass
    except TrekError:
        raise
    except Exception as error:
        raise _to_error(path, error) from error
    finally:
        Flow.is_being_read = False
    # Workers get its functions by value: importing it there would run what it does besides defining them.
    never_import_elsewhere(module)
    return module


def _to_error(path: Path, error: Exception) -> TrainingError:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(path.resolve()):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    return TrainingError(f"{path} failed while its flow was read: {error!r}", traceback_text=text)


def _choose(names: dict[str, Any], *, path: Path, variable: str) -> Flow:
    flows = {name: value for name, value in names.items() if isinstance(value, Flow)}
    if variable:
        if variable not in flows:
            raise InputError(f"{path} has no flow called {variable!r}. It has: {', '.join(flows) or 'none'}.")
        return flows[variable]
    if len({id(flow) for flow in flows.values()}) != 1:
        raise InputError(
            f"{path} defines {len(flows)} flows ({', '.join(flows) or 'none'}). "
            f"Define one, or choose with {path}:variable."
        )
    return next(iter(flows.values()))
