"""Ray Tune as a front: a Trial as a trainable of Tune, with as many processes inside a Tune trial as you say.

    tuner = trek.integrations.ray_tune.tuner("search.yaml", MyTrial)
    results = tuner.fit()

The search is Tune's; training, and `ddp` inside a trial, are Trek's own. Needs the `tune` extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trek.distribution import package_missing
from trek.errors import ConfigError, InputError
from trek.metric_direction import is_smaller_better
from trek.system.home import claim_home, trek_home
from trek.train.fit import fit
from trek.train.length import Length
from trek.train.loggers import Logger, MetricRow
from trek.train.trial import Trial

_KINDS = (
    *("uniform", "quniform", "loguniform", "qloguniform", "randn", "qrandn"),
    *("randint", "qrandint", "lograndint", "qlograndint", "choice", "grid_search"),
)
_NOT_KINDS = {
    "categorical": "choice",
    "double": "uniform",
    "int": "randint",
    "log": "loguniform",
    "lognormal": "loguniform",
    "normal": "randn",
    "sample_from": "choice",
}
"""Kinds of other search spaces, and of Tune that takes code, with the one to use instead."""
_NEEDED = {"hyperparameters", "metric", "max_length"}
_KEYS = _NEEDED | {"num_samples", "mode", "workers", "resources", "concurrent", "settings"}


class TuneLogger(Logger):
    """Reports every validation to Tune, with the number of batches as `training_iteration`'s neighbour `batches`."""

    def __init__(self, report: Callable[[dict[str, Any]], Any]) -> None:
        self._report = report

    def log_metrics(self, row: MetricRow) -> None:
        """Validations alone: Tune decides by them."""
        if row.group == "validation":
            self._report({**row.metrics, "batches": row.batches, "epoch": row.epoch})


def trainable(
    trial_class: type[Trial], *, max_length: Length, workers: int = 1, **settings: Any
) -> Callable[[dict[str, Any]], None]:
    """A function of a Tune config, whose values are the Trial's hyperparameters; `settings` are those of `trek.fit`."""
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, got {workers!r}.")

    def train(config: dict[str, Any]) -> None:
        tune = _tune()
        fit(
            trial_class,
            hparams=config,
            max_length=max_length,
            workers=workers,
            loggers=[TuneLogger(tune.report)],
            show_progress=False,
            **settings,
        )

    train.__name__ = trial_class.__name__
    return train


def tuner(config: Path | str | Mapping[str, Any], trial_class: type[Trial], **tune_config: Any) -> Any:
    """A `ray.tune.Tuner` from a YAML file or a mapping; `tune_config` are more fields of `tune.TuneConfig`.

    Tune's own files go to `$TREK_HOME/tune`.

    hyperparameters:
      lr: {loguniform: [1e-4, 1e-1]}     # uniform, randint, choice, … as Tune calls them
      global_batch_size: 64              # a value stays as it is
    num_samples: 8
    metric: validation_loss
    mode: min                            # or max; by default derived from the metric's name
    max_length: {epochs: 3}
    workers: 2                           # processes inside a trial, kept together by ddp
    """
    chosen = _read(config)
    tune = _tune()
    length = _length(chosen["max_length"])
    workers = chosen.get("workers", 1)
    train = trainable(trial_class, max_length=length, workers=workers, **chosen.get("settings", {}))
    resources = {"CPU": workers, **chosen.get("resources", {})}
    return tune.Tuner(
        tune.with_resources(train, resources),
        param_space=space(chosen["hyperparameters"]),
        tune_config=tune.TuneConfig(
            metric=chosen["metric"],
            mode=chosen.get("mode", "min" if is_smaller_better(chosen["metric"]) else "max"),
            num_samples=chosen.get("num_samples", 1),
            max_concurrent_trials=chosen.get("concurrent"),
            **tune_config,
        ),
        run_config=tune.RunConfig(storage_path=_storage()),
    )


def run_function(
    train: Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], Any],
    hyperparameters: Mapping[str, Any],
    *,
    metric: str,
    mode: str = "min",
    num_samples: int = 1,
    scheduler: Any = None,
    resources: Mapping[str, float] | None = None,
) -> Any:
    """Search with `train(config, report)`, a loop of its own; the `ray.tune.ExperimentAnalysis`.

    `report` takes metrics and passes them to Tune. A scheduler that has a metric of its own keeps it.
    """
    tune = _tune()

    def trial(config: dict[str, Any]) -> None:
        train(config, tune.report)

    if scheduler is not None:
        scheduler.set_search_properties(metric, mode)  # without effect where it has a metric
    found = tune.run(
        trial,
        config=dict(hyperparameters),
        num_samples=num_samples,
        scheduler=scheduler,
        resources_per_trial=dict(resources or {"cpu": 1}),
        storage_path=_storage(),
        verbose=0,
    )
    found.default_metric, found.default_mode = metric, mode
    return found


def _storage() -> str:
    return str(claim_home(trek_home()) / "tune")


def space(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Tune's search space: `{kind: arguments}` becomes that kind, other values stay as they are.

    Arguments are a list, or a mapping by their names in Tune, such as `{choice: {categories: [8, 16]}}`.
    """
    tune = _tune()
    made: dict[str, Any] = {}
    for name, value in hyperparameters.items():
        kind = next(iter(value)) if isinstance(value, Mapping) and len(value) == 1 else None
        if kind in _KINDS:
            arguments = value[kind]
            made[name] = _domain(getattr(tune, kind), arguments, takes_list=kind in ("choice", "grid_search"))
        else:
            _refuse_unknown_kind(name, kind)
            made[name] = space(value) if isinstance(value, Mapping) else value
    return made


def _refuse_unknown_kind(name: str, kind: Any) -> None:
    """Other mappings are groups of hyperparameters, but one whose only key is nearly a kind is a mistake."""
    close = get_close_matches(str(kind), _KINDS, n=1, cutoff=0.85)
    meant = _NOT_KINDS.get(kind, close[0] if close else None)
    if meant is not None:
        raise ConfigError(f"hyperparameter {name!r} has the unknown kind {kind!r}. Did you mean {meant!r}?")


def _domain(kind: Callable[..., Any], arguments: Any, *, takes_list: bool) -> Any:
    if isinstance(arguments, Mapping):
        return kind(**{name: value if takes_list else _number(value) for name, value in arguments.items()})
    return kind(arguments) if takes_list else kind(*map(_number, arguments))


def _number(value: Any) -> Any:
    """YAML reads 1e-4 as text."""
    return float(value) if isinstance(value, str) else value


def _read(config: Path | str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(config, Mapping):
        import yaml

        path = Path(config)
        if not path.is_file():
            raise InputError(f"config {str(path)!r} not found.")
        config = yaml.safe_load(path.read_text())
    if not isinstance(config, Mapping):
        raise ConfigError(f"the config must be a mapping, got {type(config).__name__}.")
    unknown = sorted(set(config) - _KEYS)
    if unknown:
        raise ConfigError(f"unknown key {unknown[0]!r} in the config. Known are: {', '.join(sorted(_KEYS))}.")
    missing = sorted(_NEEDED - set(config))
    if missing:
        raise ConfigError(f"the config has no {missing[0]!r}. Add it.")
    return config


def _length(value: Any) -> Length:
    if not (isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in ("batches", "records", "epochs")):
        raise ConfigError(f"max_length must be one of {{batches|records|epochs: number}}, got {value!r}.")
    unit, count = next(iter(value.items()))
    return Length(count, unit)


def _tune() -> Any:
    if find_spec("ray") is None:
        raise package_missing("Ray Tune", "ray", extra="tune")
    from ray import tune

    return tune
