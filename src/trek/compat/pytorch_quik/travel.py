"""`pq.travel`: QuikTrek, QuikTraveler and what belongs to them, over Trek's Traveler.

One QuikTrek is one Traveler of Trek; its QuikTravelers train, validate and test with it. Compared with pytorch-quik,
the optimizer steps with and without mixed precision, gradients are cleared after a step, several processes train one
model, training data is shuffled anew for every epoch, and one process writes each file.
"""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import trek
from trek.compat.pytorch_quik import io
from trek.compat.pytorch_quik.arg import complete
from trek.compat.pytorch_quik.ddp import current_traveler, report_epoch
from trek.compat.pytorch_quik.metrics import LossMetrics, build_confusion_matrix, result_figures
from trek.compat.pytorch_quik.mlflow import QuikMlflow
from trek.errors import InputError

CLIP_NORM = 1.0


@dataclass(frozen=True)
class World:
    """Where this process stands among the others."""

    device: torch.device
    node_id: int
    total_nodes: int
    gpu_id: int | None
    total_gpus: int
    rank_id: int
    world_size: int
    use_ray_tune: bool = False
    use_init_group: bool = False

    @property
    def is_ddp(self) -> bool:
        """Whether there are other processes."""
        return self.world_size > 1

    @property
    def is_logger(self) -> bool:
        """Whether this process draws the bars and writes the files."""
        return self.rank_id == 0


@dataclass(frozen=True)
class DlKwargs:
    """Arguments of a data loader."""

    batch_size: int = 24
    shuffle: bool = False
    pin_memory: bool = True
    num_workers: int = 0


@dataclass(frozen=True)
class OptKwargs:
    """Arguments that most optimizers take."""

    lr: float
    weight_decay: float
    eps: float
    betas: tuple[float, float]


class QuikTrek:
    """What all travelers of one training share: the arguments, the World, and how to load and to optimize.

    `QuikTrek()`, `QuikTrek(args, gpu)` and `QuikTrek(gpu, args)` are the same; the GPU of a process is found by itself.
    """

    def __init__(self, *given: Namespace | int | None, gpu: int | None = None, args: Namespace | None = None) -> None:
        args = next((one for one in given if isinstance(one, Namespace)), args)
        self.args = complete(args)
        self.epochs: int = self.args.epochs
        self.traveler = current_traveler(self.args)
        self.metrics = LossMetrics(log=self._log_loss, on_epoch=self._end_epoch)
        self.create_dataclasses(gpu, self.args)
        self.mlflow = self._open_mlflow() if self.args.use_mlflow else None
        """With `--use_mlflow`, what the run is recorded to."""

    def create_dataclasses(self, gpu: int | None, args: Namespace) -> None:
        """`world`, `dlkwargs` and `optkwargs`, from the arguments."""
        own = self.traveler.world
        self.world = World(
            device=own.device,
            node_id=args.nr,
            total_nodes=args.nodes,
            gpu_id=own.local_rank if own.device.type == "cuda" else None,
            total_gpus=own.local_size if own.device.type == "cuda" else 0,
            rank_id=own.rank,
            world_size=own.size,
            use_ray_tune=args.use_ray_tune,
        )
        self.dlkwargs = asdict(DlKwargs(batch_size=args.bs, num_workers=args.num_workers))
        self.optkwargs = asdict(
            OptKwargs(lr=args.lr, weight_decay=args.weight_decay, eps=args.eps, betas=tuple(args.betas))
        )

    def trek_prep(self, args: Namespace) -> None:
        """Nothing to do: the group of processes is set up with the QuikTrek."""

    def _open_mlflow(self) -> QuikMlflow:
        """One run for all processes, of the first; it ends with the training, as that ends."""
        made = QuikMlflow(self.args)
        made.create_run([self.dlkwargs, self.optkwargs, self.world, {"epochs": self.epochs}])
        if made.run is not None:
            self.traveler.journal.add_logger(made.run)
            self.traveler.journal.begin(name="run", hparams={})
        return made

    def _log_loss(self, loss: torch.Tensor) -> None:
        self.traveler.log(loss=loss)
        if self.mlflow is not None:
            self.mlflow.log_metric("train_loss", float(loss), self.traveler.position.batches)

    def _end_epoch(self, row: Mapping[str, Any]) -> None:
        if self.mlflow is not None and "valid_loss" in row:
            self.mlflow.log_metric("valid_loss", row["valid_loss"], self.traveler.position.batches)
        report_epoch(row)


class QuikTraveler:
    """One pass after the other over a model: training (the default), `type="valid"` or `type="test"`."""

    io = io
    model: nn.Module
    criterion: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: Any
    data: QuikData

    def __init__(self, *given: QuikTrek | Namespace | int | str | None, type: str | None = None) -> None:  # noqa: A002
        """A QuikTrek, and what this traveler does; without a QuikTrek, arguments for one."""
        found = next((one for one in given if isinstance(one, QuikTrek)), None)
        self.trek = found or QuikTrek(*(one for one in given if isinstance(one, Namespace | int)))
        self.type = type or next((one for one in given if isinstance(one, str)), "train")
        self.args = self.trek.args
        self.world = self.trek.world
        self.epochs = self.trek.epochs
        self.metrics = self.trek.metrics
        self.amp = QuikAmp(self.trek.traveler)

    def run_prep(self) -> None:
        """Nothing to do: the group of processes is set up with the QuikTrek."""

    def set_criterion(
        self, criterion_fcn: Callable[..., nn.Module], kwargs: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        """The loss, made by calling `criterion_fcn`."""
        self.criterion = criterion_fcn(**(kwargs or {}), **named)
        if not hasattr(self.criterion, "step"):
            # The first loop in pytorch-quik's README ends with this call, after `backward` has stepped.
            vars(self.criterion)["step"] = lambda: None

    def set_optimizer(
        self, optimizer_fcn: Callable[..., Any], kwargs: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        """The optimizer, made with those of `OptKwargs` that it takes, and what is given here."""
        known = inspect.signature(optimizer_fcn).parameters
        usual = {name: value for name, value in self.trek.optkwargs.items() if name in known}
        made = optimizer_fcn(self.model.parameters(), **{**usual, **(kwargs or {}), **named})
        self.optimizer = self.trek.traveler.add_optimizer(made)

    def set_scheduler(
        self, scheduler_fcn: Callable[..., Any], kwargs: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        """The scheduler of the learning rate, which the loop steps; what it needs to know of the run is filled in."""
        given = {**(kwargs or {}), **named}
        usual = {} if "total_steps" in given else self._scheduler_values()
        known = inspect.signature(scheduler_fcn).parameters
        filled = {name: value for name, value in usual.items() if name in known}
        self.scheduler = scheduler_fcn(self.optimizer, **{**filled, **given})
        self.trek.traveler.add_state("scheduler", self.scheduler)

    def _scheduler_values(self) -> dict[str, Any]:
        steps = {"epochs": self.epochs, "steps_per_epoch": self.data.steps}
        whole = {"num_training_steps": self.data.total_steps, "T_max": self.data.total_steps}
        return {"max_lr": self.trek.optkwargs["lr"], **steps, **whole, "num_warmup_steps": 0}

    def add_model(self, model: nn.Module, state_dict: Mapping[str, torch.Tensor] | None = None) -> None:
        """The model, with these weights if there are any. Only the one that is trained is kept equal on all ranks."""
        if state_dict is not None:
            model.load_state_dict(state_dict)
        _take_several_inputs(model)
        is_trained = self.type == "train"
        self.model = self.trek.traveler.add_model(model) if is_trained else model.to(self.world.device)

    def add_data(self, tensorDataset: Any) -> None:  # noqa: N803 - their name
        """The data set that this traveler goes over."""
        self.data = QuikData(tensorDataset, self.trek, is_trained=self.type == "train")

    def backward(self, loss: torch.Tensor, clip: bool = True) -> None:
        """The backward pass, and the step of the optimizer; gradients are clipped to a norm of 1 unless told not to."""
        self.amp.backward(self, loss, clip)

    def add_loss(self, loss: torch.Tensor, pbar: Any = None, epoch: int | None = None) -> None:
        """Count the loss of a batch, and move the bar on."""
        self.metrics.add_loss(loss)
        if pbar is not None:
            pbar.set_postfix(loss=f"{self.metrics.train_loss.smooth:.4f}", refresh=False)
            pbar.update()

    def add_vloss(self, vlosses: list[torch.Tensor], nums: list[int], epoch: int | None = None) -> None:
        """Count the losses of a validation, which ends the epoch."""
        self.metrics.add_vloss(vlosses, nums)
        self.metrics.write()

    def save_state_dict(self, epoch: int | str) -> str:
        """Write the weights after an epoch; the file, which is an artifact of MLflow's run as well."""
        path = io.save_state_dict(self.model, self.args, epoch)
        self._keep(path)
        return str(path)

    def record_results(
        self, label_names: Mapping[int, str], accuracy: bool = True, f1: bool = True, confusion: bool = True
    ) -> dict[str, float]:
        """Figures of the predictions that `data.add_results` was given, as metrics, and the confusion matrix as PNG.

        `accuracy`, and precision and recall of each class; `f1`, of each class and of all. They are returned, and
        recorded if the run is recorded with MLflow.
        """
        found, true = self.data.predictions, self.data.labels
        if found is None or true is None:
            raise InputError("no predictions were added. Call data.add_results(predictions, labels) first.")
        figures = result_figures(found, true, label_names, accuracy=accuracy, f1=f1)
        for name, value in figures.items():
            if self.trek.mlflow is not None:
                self.trek.mlflow.log_metric(name, value)
        if confusion and self.world.is_logger:
            path = io.id_str("confusion", self.args)
            build_confusion_matrix(found, true, label_names, save_loc=path)
            self._keep(path)
        return figures

    def _keep(self, path: Path) -> None:
        if self.trek.mlflow is not None:
            self.trek.traveler.log_artifact(path)


class QuikData:
    """A data set as batches of this process."""

    def __init__(self, dataset: Any, trek: QuikTrek, *, is_trained: bool) -> None:
        self.dataset = dataset
        self.labels = dataset.tensors[-1] if hasattr(dataset, "tensors") else None
        self.dlkwargs = {**trek.dlkwargs, "shuffle": trek.dlkwargs["shuffle"] or is_trained}
        self._trek = trek
        self._is_trained = is_trained
        self._sampler: Any = None
        self.predictions: torch.Tensor | None = None
        self.add_data_loader(trek.world)

    def add_sampler(
        self, world: World, sampler_fcn: Callable[..., Any] | None = None, kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Choose the order of the samples by a sampler of torch; `add_data_loader` then uses it.

        Without one, training data is shuffled in every epoch. What a sampler chooses is divided among the processes.
        """
        self._sampler = None if sampler_fcn is None else sampler_fcn(self.dataset, **(kwargs or {}))

    def add_data_loader(self, world: World) -> None:
        """Make `data_loader`, and count its `steps`."""
        how = {**self.dlkwargs, "pin_memory": self.dlkwargs["pin_memory"] and world.device.type == "cuda"}
        if self._sampler is not None:
            how |= {"sampler": self._sampler, "shuffle": False}
        loader = self._trek.traveler.add_loader(self.dataset, **how)
        self.steps = loader.num_batches or 0
        self.total_steps = self.steps * self._trek.epochs
        self.data_loader = _Passes(self._trek, loader, is_trained=self._is_trained)

    def add_results(self, predictions: torch.Tensor, labels: torch.Tensor) -> None:
        """Keep what a test predicted, and what was right."""
        self.predictions, self.labels = predictions, labels


class _Passes:
    """Batches on the device; every pass over the training data is the next epoch."""

    def __init__(self, trek: QuikTrek, loader: Any, *, is_trained: bool) -> None:
        self._trek = trek
        self._loader = loader
        self._is_trained = is_trained

    def __len__(self) -> int:
        return int(self._loader.num_batches)

    def __iter__(self) -> Iterator[Any]:
        if not self._is_trained:
            return iter(self._trek.traveler.validate(self._loader))
        self._trek.metrics.begin_epoch()
        return iter(self._trek.traveler.train(self._loader))


class QuikAmp:
    """Mixed precision: `caster` is a context for the forward pass, which does nothing if it is off."""

    def __init__(self, traveler: trek.Traveler) -> None:
        self._traveler = traveler
        self.caster = _Caster(traveler)

    def backward(self, trvlr: QuikTraveler, loss: torch.Tensor, clip: bool = True) -> None:
        """See `QuikTraveler.backward`."""
        self._traveler.backward(loss)
        self._traveler.step(trvlr.optimizer, clip_norm=CLIP_NORM if clip else None)


class _Caster(AbstractContextManager[None]):
    """One object that is entered for every batch, and inside itself: a loop hands it to its model."""

    def __init__(self, traveler: trek.Traveler) -> None:
        self._traveler = traveler
        self._entered: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        context = self._traveler.autocast()
        context.__enter__()
        self._entered.append(context)

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)


def _take_several_inputs(model: nn.Module) -> None:
    """Let a Sequential take what pytorch-quik's README gives it: columns of features side by side, and a caster."""
    if not isinstance(model, nn.Sequential):
        return
    forward: Callable[..., Any] = model.forward

    def joined(*inputs: Any) -> Any:
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        if not tensors:
            raise InputError(f"a model needs tensors, got {', '.join(type(one).__name__ for one in inputs) or 'none'}.")
        if len(tensors) == 1:
            return forward(tensors[0])
        columns = [one if one.ndim > 1 else one[:, None] for one in tensors]
        return forward(torch.cat(columns, 1).to(next(model.parameters()).dtype))

    vars(model)["forward"] = joined  # the weights keep their names, as they would not in a wrapper
