"""pytorch-quik's public names."""

from __future__ import annotations

from trek.compat.names.module_names import ModuleNames

_HERE = "trek.compat.pytorch_quik"
_ARGUMENTS = {
    "add_ddp_args": "trek.arguments",
    "add_learn_args": "trek.arguments",
    "add_mlflow_args": "the logger `mlflow`",
    "add_ray_tune_args": "experiments",
    "beta_type": "trek.arguments",
    "update_args": "trek.arguments",
}
_LATER = "not yet; use trek.integrations.huggingface"
_SERVED = "not yet; use `trek archive`"


def _module(name: str, covered: dict[str, str], missing: dict[str, str] | None = None) -> ModuleNames:
    return ModuleNames(f"pytorch_quik.{name}", f"{_HERE}.{name}" if covered else None, covered, missing or {})


def _missing(name: str, names: tuple[str, ...], why: str) -> ModuleNames:
    return _module(name, {}, dict.fromkeys(names, why))


PYTORCH_QUIK = (
    ModuleNames(
        "pytorch_quik",
        _HERE,
        dict.fromkeys(("arg", "args", "ddp", "io", "metrics", "tensor", "transform", "travel", "utils"), "modules"),
        {
            **dict.fromkeys(("api", "bert", "hugging", "mlflow", "serve", "tune"), "not yet: see their names"),
            "dummy": "stands in for a library that Trek does not use",
        },
    ),
    _module("arg", _ARGUMENTS),
    _module("args", _ARGUMENTS),
    _module(
        "ddp",
        {
            "cleanup": "trek.Traveler",
            "consume_prefix_in_state_dict_if_present": "torch",
            "ddp_traverse": "trek.run",
            "find_free_port": "a port of this machine",
            "setup": "trek.Traveler",
            "tq_bar": "tqdm",
            "traverse": "trek.run",
        },
    ),
    _module(
        "io",
        {
            "id_str": "names of files",
            "json_write": "files",
            "load_tensor": "torch.load, without code",
            "load_test_array": "files",
            "load_torch_object": "torch.load, without code",
            "save_state_dict": "torch.save, on the leader",
            "save_test_array": "files",
            "serve_str": "names of files",
        },
    ),
    _module(
        "metrics",
        {"LossMetrics": "trek.Traveler.log", "SmoothenLoss": "trek.Traveler.log"},
        dict.fromkeys(
            (
                "accuracy_per_class",
                "build_class_dict",
                "build_confusion_matrix",
                "choose_a_class",
                "f1_score_func",
                "matplotlib_confusion_matrix",
                "matplotlib_gist_heat",
                "numpize_array",
                "pandas_confusion_matrix",
            ),
            "not yet; use trek.EvaluationReport",
        ),
    ),
    _module("tensor", {"make_TensorDataset": "torch's data sets", "transform_TensorDataset": "torch's data sets"}),
    _module(
        "transform",
        {
            "DataSplit": "arrays",
            "create_dicts": "dicts",
            "create_labels": "pandas",
            "imbalanced_split": "pandas",
        },
    ),
    _module(
        "travel",
        {
            "DlKwargs": "trek.DataLoader",
            "OptKwargs": "torch.optim",
            "QuikAmp": "trek.Traveler.autocast",
            "QuikData": "trek.Traveler.add_loader",
            "QuikTraveler": "trek.Traveler",
            "QuikTrek": "trek.Traveler",
            "World": "trek.World",
        },
    ),
    _module(
        "utils",
        {
            "gpus": "torch.cuda",
            "indexed_dict": "dicts",
            "inverse_dict": "dicts",
            "row_str": "text",
            "sec_str": "text",
            "txt_format": "text",
        },
    ),
    _missing("api", ("ServeRequest", "batch_inference", "request_post", "split_and_format"), "not yet; use trek.serve"),
    _missing("bert", ("get_bert_info", "get_encodings", "get_pretrained_model", "save_bert_model"), _LATER),
    _missing(
        "hugging",
        (
            "get_encodings",
            "get_pretrained_model",
            "get_tokenizer",
            "model_info",
            "save_pretrained_model",
            "save_tokenizer",
            "update_tokenizer_path",
        ),
        _LATER,
    ),
    _missing("mlflow", ("MlfKwargs", "QuikMlflow"), "not yet; use --use_mlflow"),
    _missing("serve", ("build_extra_files", "create_mar"), _SERVED),
    _missing("tune", ("get_tune_config", "run_ddp_tune"), "not yet; use experiments, or trek.integrations.ray_tune"),
)
