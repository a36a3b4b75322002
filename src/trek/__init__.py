"""Trek takes one PyTorch model from a laptop to a cluster.

Public names live here and are resolved on first use, so that `import trek` loads neither torch nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trek._version import __version__
from trek.errors import InvalidHP, TrekError
from trek.lazy import lazy_names

if TYPE_CHECKING:
    from trek import data, nn, ps, search, serve
    from trek.client.client import Client
    from trek.data.loaders import DataLoader
    from trek.data.plans.expressions import col
    from trek.experiments.checkpoint import Checkpoint
    from trek.experiments.experiment import Experiment
    from trek.experiments.hparams import hparams
    from trek.experiments.trial_info import trial_info
    from trek.flow import Flow
    from trek.train import arguments
    from trek.train.callbacks.callback import Callback
    from trek.train.callbacks.early_stopping import EarlyStopping
    from trek.train.callbacks.evaluation_report import EvaluationReport
    from trek.train.finders import find_batch_size, find_learning_rate
    from trek.train.fit import fit
    from trek.train.length import batches, epochs, records
    from trek.train.loggers.base import Logger
    from trek.train.loop.feed import to_device
    from trek.train.lr_scheduler import LRScheduler
    from trek.train.metrics.classification_report import ClassificationReport
    from trek.train.metrics.reducers import Reducer
    from trek.train.reporter import Reporter
    from trek.train.run import run
    from trek.train.settings import ProfileSettings, TrainSettings
    from trek.train.trainer import Trainer
    from trek.train.traveler import Traveler
    from trek.train.trial import Trial, TrialContext, reset_parameters
    from trek.world import World

# name -> the module that holds it, or that it is
_HOMES = {
    "Callback": "trek.train.callbacks.callback",
    "Checkpoint": "trek.experiments.checkpoint",
    "ClassificationReport": "trek.train.metrics.classification_report",
    "Client": "trek.client.client",
    "DataLoader": "trek.data.loaders",
    "EarlyStopping": "trek.train.callbacks.early_stopping",
    "EvaluationReport": "trek.train.callbacks.evaluation_report",
    "Experiment": "trek.experiments.experiment",
    "Flow": "trek.flow",
    "LRScheduler": "trek.train.lr_scheduler",
    "Logger": "trek.train.loggers.base",
    "ProfileSettings": "trek.train.settings",
    "Reducer": "trek.train.metrics.reducers",
    "Reporter": "trek.train.reporter",
    "TrainSettings": "trek.train.settings",
    "Trainer": "trek.train.trainer",
    "Traveler": "trek.train.traveler",
    "Trial": "trek.train.trial",
    "TrialContext": "trek.train.trial",
    "World": "trek.world",
    "arguments": "trek.train.arguments",
    "batches": "trek.train.length",
    "col": "trek.data.plans.expressions",
    "data": "trek.data",
    "epochs": "trek.train.length",
    "find_batch_size": "trek.train.finders",
    "find_learning_rate": "trek.train.finders",
    "fit": "trek.train.fit",
    "hparams": "trek.experiments.hparams",
    "nn": "trek.nn",
    "ps": "trek.ps",
    "records": "trek.train.length",
    "reset_parameters": "trek.train.trial",
    "run": "trek.train.run",
    "search": "trek.search",
    "serve": "trek.serve",
    "to_device": "trek.train.loop.feed",
    "trial_info": "trek.experiments.trial_info",
}

__all__ = [
    "Callback",
    "Checkpoint",
    "ClassificationReport",
    "Client",
    "DataLoader",
    "EarlyStopping",
    "EvaluationReport",
    "Experiment",
    "Flow",
    "InvalidHP",
    "LRScheduler",
    "Logger",
    "ProfileSettings",
    "Reducer",
    "Reporter",
    "TrainSettings",
    "Trainer",
    "Traveler",
    "TrekError",
    "Trial",
    "TrialContext",
    "World",
    "__version__",
    "arguments",
    "batches",
    "col",
    "data",
    "epochs",
    "find_batch_size",
    "find_learning_rate",
    "fit",
    "hparams",
    "nn",
    "ps",
    "records",
    "reset_parameters",
    "run",
    "search",
    "serve",
    "to_device",
    "trial_info",
]


__getattr__ = lazy_names("trek", _HOMES)


def __dir__() -> list[str]:
    return __all__
