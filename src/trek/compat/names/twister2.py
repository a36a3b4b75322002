"""Twister2's public Python names, and DeepNet's."""

from __future__ import annotations

from trek.compat.names.module_names import ModuleNames

_HERE, _DEEPNET = "trek.compat.twister2", "trek.compat.twister2deepnet.deepnet"
DISTRIBUTED = {
    "ReduceOp": "torch.distributed",
    "all_reduce": "torch.distributed",
    "barrier": "trek.Traveler",
    "destroy_process_group": "trek.Traveler",
    "get_rank": "trek.World",
    "get_world_size": "trek.World",
    "init_process_group": "trek.Traveler",
}
"""Names of `deepnet.torch.distributed`, and what each is over."""

TWISTER2 = (
    ModuleNames(
        "twister2",
        _HERE,
        {"TSetContext": "the context of trek.data.Table.compute"},
        {"deeplearning": "Trek trains PyTorch models", "streaming": "trek.data.Table.stream"},
    ),
    ModuleNames("twister2.TSetContext", f"{_HERE}.TSetContext", {"TSetContext": "trek.data.Table.compute"}),
    ModuleNames("twister2.Twister2Environment", f"{_HERE}.Twister2Environment", {"Twister2Environment": "trek.World"}),
    ModuleNames(
        "twister2.tset.fn.SourceFunc", f"{_HERE}.tset.fn.SourceFunc", {"SourceFunc": "trek.data.Table.generate"}
    ),
    ModuleNames("twister2.tset.TSet", f"{_HERE}.tset.TSet", {"TSet": "trek.data.Table"}),
    ModuleNames(
        "twister2deepnet.deepnet.datasets.MNIST", f"{_DEEPNET}.datasets.MNIST", {"MNIST": "trek.data.fetch_files"}
    ),
    ModuleNames("twister2deepnet.deepnet.data.DataUtil", f"{_DEEPNET}.data.DataUtil", {"DataUtil": "torch"}),
    ModuleNames("twister2deepnet.deepnet.data.UtilPanda", f"{_DEEPNET}.data.UtilPanda", {"UtilPanda": "pandas"}),
    ModuleNames(
        "twister2deepnet.deepnet.examples.MnistDistributed",
        f"{_DEEPNET}.examples.MnistDistributed",
        {"MnistDistributed": "trek.data.fetch_files"},
    ),
    ModuleNames("twister2deepnet.deepnet.io.ArrowUtils", f"{_DEEPNET}.io.ArrowUtils", {"ArrowUtils": "pyarrow"}),
    ModuleNames("twister2deepnet.deepnet.io.FileUtils", f"{_DEEPNET}.io.FileUtils", {"FileUtils": "pathlib"}),
    ModuleNames(
        "twister2deepnet.deepnet.util.utils",
        f"{_DEEPNET}.util.utils",
        {
            "fix_array_shape": "numpy",
            "format_data": "torch",
            "format_target": "torch",
            "generate_minibatches": "torch",
            "tset_to_numpy": "trek.data.Table",
        },
    ),
    ModuleNames("twister2deepnet.deepnet.util", f"{_DEEPNET}.util", {"utils": "torch"}),
    ModuleNames(
        "twister2deepnet.deepnet.torch.distributed",
        f"{_DEEPNET}.torch.distributed",
        DISTRIBUTED,
    ),
)
