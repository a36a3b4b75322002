"""Names of other libraries for what is said in another way here, each with what to write instead.

Used in errors alone: none of them is accepted. Loads no torch.
"""

from __future__ import annotations

from typing import Any

_LENGTH = "Pass max_length=trek.epochs({value}), or trek.batches(n)."
_STEPS = "Pass max_length=trek.batches({value})."
_WORKERS = "Pass workers={value}, the number of processes that train; each takes a GPU if there is one."
_HPARAM = "Put it into the hyperparameters, hparams={{'{name}': {value}}}, for context.get_hparam('{name}')."
_PRECISION = "Pass precision='bf16' or precision='fp16'."
_ACCUMULATE = "Pass accumulate={value}."
_CLIP = "Pass clip_norm={value}."
_METHOD = "It is a method of the Trial, or a part that your own loop adds to its Traveler."
_RESUME = "Pass resume={value}: a checkpoint, its path, or 'latest'."
_FOLDER = "Pass checkpoint_dir={value} for checkpoints; other files of a run are below $TREK_HOME/runs."

_MEANT = {
    **dict.fromkeys(("epochs", "max_epochs", "num_epochs", "n_epochs", "num_train_epochs"), _LENGTH),
    **dict.fromkeys(("steps", "max_steps", "num_steps", "iterations", "max_iters"), _STEPS),
    **dict.fromkeys(("gpus", "num_gpus", "devices", "num_processes", "nprocs", "world_size", "slots"), _WORKERS),
    **dict.fromkeys(("lr", "learning_rate", "weight_decay", "momentum", "dropout", "betas"), _HPARAM),
    **dict.fromkeys(("amp", "fp16", "bf16", "mixed_precision", "use_amp"), _PRECISION),
    **dict.fromkeys(("accumulate_grad_batches", "gradient_accumulation_steps", "grad_accum"), _ACCUMULATE),
    **dict.fromkeys(("gradient_clip_val", "max_grad_norm", "grad_clip", "clip_grad_norm"), _CLIP),
    **dict.fromkeys(("model", "optimizer", "scheduler", "lr_scheduler", "loss", "loss_fn", "criterion"), _METHOD),
    **dict.fromkeys(("train_loader", "train_dataloader", "train_data", "val_loader", "val_data"), _METHOD),
    **dict.fromkeys(("ckpt_path", "resume_from", "resume_from_checkpoint", "checkpoint", "load_from"), _RESUME),
    **dict.fromkeys(("output_dir", "save_dir", "default_root_dir", "checkpoint_path", "log_dir"), _FOLDER),
    **dict.fromkeys(("log_every", "log_every_n_steps", "logging_steps"), "Pass report_period={value}."),
    **dict.fromkeys(
        ("val_check_interval", "eval_steps", "check_val_every_n_epoch", "eval_every"),
        "Pass validation_period=trek.batches(n) or trek.epochs(n).",
    ),
    **dict.fromkeys(("monitor", "metric_for_best_model"), "Pass metric={value}."),
    **dict.fromkeys(("mode", "greater_is_better", "maximize"), "Pass smaller_is_better=True or False."),
    **dict.fromkeys(("verbose", "progress", "enable_progress_bar"), "Pass show_progress=True or False."),
    **dict.fromkeys(("random_state", "random_seed"), "Pass seed={value}."),
    "logger": "Pass loggers=[{value}].",
    "backend": "Pass strategy_options={{'backend': {value}}}.",
    "callbacks": "Return them from build_callbacks of the Trial.",
    "patience": "Return trek.EarlyStopping(context, patience={value}) from build_callbacks of the Trial.",
    "fast_dev_run": "For a run of one batch, pass max_length=trek.batches(1); every run begins with a sanity_check.",
    "num_sanity_val_steps": "Pass sanity_check={value}.",
    "batch_size": "Pass hparams={{'global_batch_size': {value}}}, or give batch_size to trek.DataLoader.",
    "num_workers": (
        "workers=n is the number of processes that train; num_workers={value} of a trek.DataLoader is that of the "
        "processes that read its data."
    ),
    **dict.fromkeys(
        ("device", "accelerator", "use_cuda", "cuda"),
        "The device is a GPU if there is one; to choose it, set the environment variable TREK_DEVICE to cpu, cuda or "
        "cuda:1.",
    ),
}


def meant_by(name: str, value: Any) -> str | None:
    """What to write in place of the argument `name`, in a sentence; None if it is no known name."""
    text = _MEANT.get(name)
    return None if text is None else text.format(name=name, value=_shown(value))


def _shown(value: Any) -> str:
    """A plain value as it is written; other values only stand there."""
    return repr(value) if isinstance(value, bool | int | float | str) and len(repr(value)) <= 60 else "…"
