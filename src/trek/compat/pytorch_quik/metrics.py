"""`pq.metrics`: the table of epochs with its losses, and reports on classifiers, over trek.ClassificationReport.

Classes are numbers from 0; where a function takes predictions, scores by class are as good as the classes themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import trek

Array = np.ndarray[Any, Any]


class SmoothenLoss:
    """An exponential mean of numbers that is not drawn towards zero at the beginning."""

    def __init__(self, beta: float) -> None:
        self.beta = beta
        self.n = 0
        self.mov_avg = 0.0
        self.smooth = 0.0

    def add_value(self, val: float) -> None:
        """Take in one number; `smooth` is then the mean."""
        self.n += 1
        self.mov_avg = self.beta * self.mov_avg + (1 - self.beta) * val
        self.smooth = self.mov_avg / (1 - self.beta**self.n)


class LossMetrics:
    """Losses of training and validation, a row for every epoch in `results`.

    Every object has its own, and none counts the losses of another. `log` is given every training loss, and `on_epoch`
    every row, which has no `valid_loss` if there was no validation.
    """

    def __init__(
        self,
        beta: float = 0.99,
        *,
        log: Callable[[torch.Tensor], None] = lambda loss: None,
        on_epoch: Callable[[Mapping[str, Any]], None] = lambda row: None,
    ) -> None:
        self.beta = beta
        self._log = log
        self._on_epoch = on_epoch
        self._rows: list[dict[str, Any]] = []
        self._begin_epoch()

    @property
    def results(self) -> pd.DataFrame:
        """One row an epoch: `epoch`, `train_loss`, `valid_loss`, `time`."""
        return pd.DataFrame(self._rows, columns=["epoch", "train_loss", "valid_loss", "time"])

    def add_loss(self, loss: torch.Tensor) -> None:
        """Count the loss of a training batch."""
        self._log(loss.detach())
        self.train_loss.add_value(float(loss.detach()))

    def add_vloss(self, vlosses: Sequence[torch.Tensor | float], nums: Sequence[int]) -> None:
        """The losses of the validation batches, and how many samples each had."""
        total = sum(float(loss) * num for loss, num in zip(vlosses, nums, strict=True))
        self.valid_loss = total / max(sum(nums), 1)
        self._has_validated = True

    def begin_epoch(self) -> None:
        """Another pass begins. If `write` was not called after the last one, its row is added now."""
        if self.train_loss.n:
            self.write()
        self._begin_epoch()

    def calc_time(self) -> str:
        """The time since the epoch began, `05:03`, or `1:02:03` from one hour on."""
        minutes, seconds = divmod(round(time.monotonic() - self._begun_s), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"

    def write(self) -> None:
        """End an epoch: its row is added to `results`."""
        row = {"epoch": len(self._rows), "train_loss": self.train_loss.smooth, "valid_loss": self.valid_loss}
        self._rows.append({**row, "time": self.calc_time()})
        self._on_epoch({name: value for name, value in row.items() if name != "valid_loss" or self._has_validated})
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.train_loss = SmoothenLoss(self.beta)
        self.valid_loss = 0.0
        self._has_validated = False
        self._begun_s = time.monotonic()


def numpize_array(arr: Any) -> Array:
    """A tensor on any device, a Series, a DataFrame or a list as a NumPy array."""
    return np.asarray(arr.detach().cpu() if isinstance(arr, torch.Tensor) else arr)


def choose_a_class(preds_array: Any) -> Any:
    """The class with the highest score of each record; classes that are chosen already stay as they are."""
    if isinstance(preds_array, torch.Tensor):
        return preds_array.argmax(1) if preds_array.ndim > 1 else preds_array
    scores = numpize_array(preds_array)
    return scores.argmax(1) if scores.ndim > 1 else scores


def accuracy_per_class(preds_array: Any, true_array: Any, label_dict: Mapping[Any, Any]) -> dict[str, float]:
    """Print and return the share of the records of each class that were predicted right."""
    names = label_dict if all(isinstance(one, int) for one in label_dict) else {v: k for k, v in label_dict.items()}
    matrix = _report(preds_array, true_array, names).matrix
    shares: dict[str, float] = {}
    for row, name in enumerate(_names(names)):
        total = int(matrix[row].sum())
        shares[name] = float(matrix[row, row] / total) if total else float("nan")
        print(f"{name}: {matrix[row, row]} of {total} right")
    return shares


def f1_score_func(preds_array: Any, true_array: Any) -> float:
    """The F1 scores of the classes, averaged by their number of records."""
    num = int(max(choose_a_class(numpize_array(preds_array)).max(), numpize_array(true_array).max())) + 1
    rows = _report(preds_array, true_array, dict(enumerate(map(str, range(max(num, 2)))))).table.iloc[:-1]
    return float(np.average(rows["f1"], weights=rows["records"]))


def matplotlib_gist_heat() -> Any:
    """The colors of a confusion matrix, from light to dark."""
    import matplotlib

    return matplotlib.colormaps["gist_heat_r"]


def matplotlib_confusion_matrix(
    conf_matrix: Array, dir_classes: Mapping[int, str], save_loc: Path | None = None, show_plot: bool = False
) -> Path:
    """Draw a confusion matrix to `save_loc`, a PNG or a folder for `confusion.png`; the file.

    By default it goes to the current directory. With `show_plot`, it is shown in a window as well.
    """
    place = Path(save_loc or Path.cwd())
    path = place if place.suffix else place / "confusion.png"
    figure = trek.ClassificationReport.draw_matrix(conf_matrix, _names(dir_classes), colors=matplotlib_gist_heat())
    figure.savefig(path)
    if show_plot:
        import matplotlib.pyplot as plt

        plt.imshow(plt.imread(path))
        plt.axis("off")
        plt.show()
    return path


def pandas_confusion_matrix(conf_matrix: Array, dir_classes: Mapping[int, str]) -> pd.DataFrame:
    """A confusion matrix with the names of its classes: true ones by row, predicted ones by column."""
    names = _names(dir_classes)
    return pd.DataFrame(conf_matrix, index=pd.Index(names, name="true"), columns=pd.Index(names, name="predicted"))


def build_confusion_matrix(
    preds_array: Any,
    true_array: Any,
    dir_classes: Mapping[int, str],
    save_loc: Path | None = None,
    show_plot: bool = False,
    in_pandas: bool = False,
) -> Any:
    """The confusion matrix, true classes by row: an array that is also drawn to `save_loc`, or a DataFrame."""
    matrix = _report(preds_array, true_array, dir_classes).matrix
    if in_pandas:
        return pandas_confusion_matrix(matrix, dir_classes)
    matplotlib_confusion_matrix(matrix, dir_classes, save_loc, show_plot)
    return matrix


def build_class_dict(
    preds_array: Any, true_array: Any, dir_classes: Mapping[int, str], print_report: bool = False
) -> dict[str, Any]:
    """Precision, recall, F1 score and number of records (`support`) by class and on average, and the `accuracy`."""
    report = _report(preds_array, true_array, dir_classes)
    table = report.table[["class", "precision", "recall", "f1", "records"]]
    table = table.rename(columns={"f1": "f1-score", "records": "support"}).set_index("class")
    if print_report:
        print(table.to_string())
    return {str(name): row for name, row in table.to_dict(orient="index").items()} | {"accuracy": report.accuracy}


def result_figures(
    preds_array: Any, true_array: Any, dir_classes: Mapping[int, str], *, accuracy: bool, f1: bool
) -> dict[str, float]:
    """The figures of a test by plain names: `accuracy`, `good_recall`, `f1`, …"""
    known = build_class_dict(preds_array, true_array, dir_classes)
    rows = {name: known[name] for name in _names(dir_classes)}
    figures: dict[str, float] = {}
    if accuracy:
        figures["accuracy"] = known["accuracy"]
        figures |= {f"{name}_{kind}": row[kind] for name, row in rows.items() for kind in ("precision", "recall")}
    if f1:
        figures["f1"] = f1_score_func(preds_array, true_array)
        figures |= {f"{name}_f1": row["f1-score"] for name, row in rows.items()}
    return figures


def _report(preds_array: Any, true_array: Any, classes: Mapping[int, str]) -> trek.ClassificationReport:
    chosen = choose_a_class(numpize_array(preds_array))
    return trek.ClassificationReport.from_classes(numpize_array(true_array), chosen, classes=_names(classes))


def _names(classes: Mapping[int, str]) -> list[str]:
    return [str(classes[index]) for index in sorted(classes)]
