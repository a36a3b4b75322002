"""Pages: runs what a page of documentation shows, block by block, in the present folder.

    python -m trek.testing.pages docs/training.md

- `python` blocks run in order in one namespace. Of a line `expression  # → text`, the value must print as the text.
- `bash` blocks run in a shell that finds this interpreter's `trek` and `python`. A `text` block right after one is what
  it prints; `…` in it stands for any characters.
- `yaml` blocks must be valid, as a config or a part of one.
- A block whose first line is a comment with the name of a file is that file; blocks of the same name add to it.
- `<!-- not run: reason -->` on the line before a block leaves it out; `<!-- needs: gpu -->` does where there is no GPU.

Errors point at the line of the page.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

RUNNABLE = ("python", "bash", "yaml")
SHOWN = ("text", "toml", "json", "pyi")
"""Languages of blocks that are there to be read."""
_BLOCK = re.compile(r"(?:^<!-- (not run|needs): (.+?) -->\n)?^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^[ >]*```", re.MULTILINE)
_FILE = re.compile(r"# ([\w./-]+\.\w+)\n")
_CLAIM = re.compile(r"^( *)(\S.*?)  # → (.*)$", re.MULTILINE)
_CONFIG = {
    "entrypoint": "model_def:Model",
    "searcher": {"name": "single", "metric": "loss", "max_length": {"epochs": 1}},
}
"""What parts of a config are laid over to be valid."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    """Where its text begins, from 1."""
    file: str | None = None
    """The file that it is a part of."""
    not_run: str = ""
    """Why it never runs."""
    needs: str = ""
    """What it runs with only."""
    prints: str | None = None
    """What a shell's block prints."""


def read_page(page: str) -> list[Block]:
    """The blocks of a page in order; ValueError for one that nothing is known to do with."""
    blocks: list[Block] = []
    end = -1
    for match in _BLOCK.finditer(page):
        mark, reason, language, text = match.groups()
        line = page.count("\n", 0, match.start(4)) + 1
        if language not in (*RUNNABLE, *SHOWN):
            raise ValueError(f"line {line - 1}: a block needs one of the languages {', '.join((*RUNNABLE, *SHOWN))}.")
        named = _FILE.match(text)
        block = Block(
            language,
            text,
            line,
            file=named[1] if named else None,
            not_run=reason if mark == "not run" else "",
            needs=reason if mark == "needs" else "",
        )
        if language == "text" and blocks and blocks[-1].language == "bash" and not page[end : match.start()].strip():
            blocks[-1] = Block(**{**vars(blocks[-1]), "prints": text})
        blocks.append(block)
        end = match.end()
    if len(_FENCE.findall(page)) != 2 * len(blocks):
        raise ValueError("a block is indented or does not end.")
    return blocks


class PageRunner:
    """Runs the blocks of one page, the file `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._module = ModuleType("__main__")
        self._module.__dict__["_check"] = _check
        self._written: set[str] = set()

    def run(self) -> Counter[str]:
        """How many blocks of each language ran."""
        sys.modules["__main__"] = self._module  # so that classes and functions of the page travel as a script's do
        sys.path.insert(0, str(Path.cwd()))
        ran: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            path = _programs(Path(folder))
            for block in read_page(self._path.read_text()):
                if block.not_run or not _has(block.needs):
                    continue
                self._run(block, path=path)
                ran[block.language] += 1
        return ran

    def _run(self, block: Block, *, path: str) -> None:
        if block.language == "yaml":
            _check_yaml(block.text)
        if block.file is not None:
            self._write(block.file, block.text)
        elif block.language == "python":
            self._exec(block)
        elif block.language == "bash":
            _shell(block, where=f"{self._path.name}, line {block.line}", path=path)

    def _write(self, name: str, text: str) -> None:
        with Path(name).open("a" if name in self._written else "w") as file:
            file.write(text)
        self._written.add(name)

    def _exec(self, block: Block) -> None:
        checked = _CLAIM.sub(lambda claim: f"{claim[1]}_check(({claim[2]}), {claim[3]!r})", block.text)
        code = compile("\n" * (block.line - 1) + checked, str(self._path), "exec")
        exec(code, self._module.__dict__)  # noqa: S102 - the page is the program


def _check(value: Any, expected: str) -> None:
    found = value if isinstance(value, str) else repr(value)
    assert found == expected, f"the page says {expected}, and it is {found}"


def _has(need: str) -> bool:
    if not need:
        return True
    import torch

    known: dict[str, Callable[[], bool]] = {"gpu": torch.cuda.is_available}
    return known[need]()


def _check_yaml(text: str) -> None:
    import yaml

    from trek.experiments.config import ExperimentConfig

    content = yaml.safe_load(text)
    if "steps" not in content:  # a flow's is checked by running it
        ExperimentConfig.parse({**_CONFIG, **content})


def _programs(folder: Path) -> str:
    """A PATH on which `trek` and `python` are this interpreter's."""
    for name, words in {"trek": [sys.executable, "-m", "trek"], "python": [sys.executable]}.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {" ".join(words)} "$@"\n')
        program.chmod(0o755)
    return os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])


def _shell(block: Block, *, where: str, path: str) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{where}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    if block.prints is not None:
        pattern = ".*".join(re.escape(part) for part in block.prints.rstrip().split("…"))
        assert re.fullmatch(pattern, "\n".join(_rstripped(done.stdout)), re.DOTALL), f"{where} prints:\n{done.stdout}"


def _rstripped(text: str) -> Iterator[str]:
    return (line.rstrip() for line in text.rstrip().splitlines())


def main() -> None:
    """Run the page that is named on the command line."""
    parser = argparse.ArgumentParser(description="Run the blocks of a page of documentation in the present folder.")
    parser.add_argument("page", type=Path)
    ran = PageRunner(parser.parse_args().page).run()
    print(", ".join(f"{count} {language}" for language, count in ran.items()) or "no blocks")


if __name__ == "__main__":
    main()
