"""pytorch-quik's public names."""

from __future__ import annotations

from trek.compat import pytorch_quik
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
_HUGGING = "trek.integrations.huggingface"


def _module(name: str, covered: dict[str, str]) -> ModuleNames:
    return ModuleNames(f"pytorch_quik.{name}", f"{_HERE}.{name}", covered)


PYTORCH_QUIK = (
    ModuleNames(
        "pytorch_quik",
        _HERE,
        dict.fromkeys(pytorch_quik.__all__, "modules"),
        {"dummy": "stands in for a library that Trek does not use"},
    ),
    _module(
        "api",
        {
            "ServeRequest": "trek.serve.batch_inference",
            "batch_inference": "trek.serve.batch_inference",
            "request_post": "trek.serve.batch_inference",
            "requests_session": "httpx",
            "split_and_format": "text",
        },
    ),
    _module("arg", _ARGUMENTS),
    _module("args", _ARGUMENTS),
    _module(
        "bert",
        {
            "get_bert_info": "pq.hugging",
            "get_encodings": "pq.hugging",
            "get_pretrained_model": "pq.hugging",
            "get_tokenizer": "pq.hugging",
            "save_bert_model": "pq.hugging",
            "save_tokenizer": "pq.hugging",
        },
    ),
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
        "hugging",
        {
            "get_encodings": _HUGGING,
            "get_pretrained_model": _HUGGING,
            "get_tokenizer": _HUGGING,
            "model_info": "dicts",
            "save_pretrained_model": "transformers",
            "save_tokenizer": "transformers",
            "update_tokenizer_path": "files",
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
        {
            "LossMetrics": "trek.Traveler.log",
            "SmoothenLoss": "trek.Traveler.log",
            "accuracy_per_class": "trek.ClassificationReport",
            "build_class_dict": "trek.ClassificationReport",
            "build_confusion_matrix": "trek.ClassificationReport",
            "choose_a_class": "arrays",
            "f1_score_func": "trek.ClassificationReport",
            "matplotlib_confusion_matrix": "trek.ClassificationReport",
            "matplotlib_gist_heat": "matplotlib",
            "numpize_array": "arrays",
            "pandas_confusion_matrix": "pandas",
        },
    ),
    _module(
        "mlflow",
        {"MlfKwargs": "trek.integrations.mlflow_run", "QuikMlflow": "trek.integrations.mlflow_run"},
    ),
    _module(
        "serve",
        {
            "build_extra_files": "files",
            "create_mar": "trek.serve.archive",
            "inference_data": "text",
            "mar_files": "files",
            "save_handler": "files",
            "save_index_to_name": "files",
            "save_sample": "files",
            "save_setup_config": "files",
        },
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
    _module("tune", {"get_tune_config": "trek.integrations.ray_tune", "run_ddp_tune": "trek.integrations.ray_tune"}),
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
)
