"""Code that another process could not import travels by value, and only while it is asked for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

from trek.engines.pickling import is_importable, pickled_by_value


@pytest.fixture
def loose(tmp_path: Path) -> Iterator[ModuleType]:
    """A module that was loaded from a file beside `sys.path`."""
    path = tmp_path / "loose_module.py"
    path.write_text("def answer():\n    return 42\n")
    spec = importlib.util.spec_from_file_location("loose_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loose_module"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["loose_module"]


def answer_elsewhere(pickled: bytes) -> str:
    program = "import sys, cloudpickle; print(cloudpickle.loads(sys.stdin.buffer.read())())"
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=False)
    return (done.stdout or done.stderr.splitlines()[-1]).decode().strip()


def test_a_function_of_a_loose_module_runs_in_another_process(loose: ModuleType) -> None:
    with pickled_by_value(loose.answer):
        pickled = cloudpickle.dumps(loose.answer)
    assert answer_elsewhere(pickled) == "42"


def test_after_the_block_modules_are_pickled_by_name_again(loose: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="failed on purpose"), pickled_by_value(loose.answer):
        raise RuntimeError("failed on purpose")
    assert cloudpickle.list_registry_pickle_by_value() == set()
    assert "No module named 'loose_module'" in answer_elsewhere(cloudpickle.dumps(loose.answer))


def test_what_the_user_registered_stays_registered(loose: ModuleType) -> None:
    cloudpickle.register_pickle_by_value(loose)
    try:
        with pickled_by_value(loose.answer):
            pass
        assert "loose_module" in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(loose)


def test_modules_on_the_path_are_importable_and_others_of_their_name_are_not(loose: ModuleType) -> None:
    import json.decoder

    assert is_importable(json.decoder)
    assert is_importable(sys.modules["builtins"])
    assert not is_importable(loose)
    loose.__name__ = "json"
    assert not is_importable(loose), "another module has the name"
    loose.__name__ = "loose_module"


def test_cached_properties_and_single_dispatch_travel_by_value(tmp_path: Path) -> None:
    """Python cannot copy the lock of the one and the weak references of the other, so such steps could not start."""
    space: dict[str, object] = {"__name__": "__main__"}
    source = (
        "import functools\n"
        "class A:\n    @functools.cached_property\n    def value(self):\n        return 40\n"
        "@functools.singledispatch\ndef add(x):\n    return 0\n"
        "@add.register\ndef _(x: int):\n    return x + 2\n"
        "def answer():\n    a = A()\n    return add(a.value) if a.value == a.value else None\n"
    )
    exec(source, space)
    with pickled_by_value(space["answer"]):
        pickled = cloudpickle.dumps(space["answer"])
    assert answer_elsewhere(pickled) == "42"
