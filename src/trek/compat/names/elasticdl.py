"""ElasticDL's public names: of its workers, layers, elastic API and preprocessing."""

from __future__ import annotations

from trek.compat.names.module_names import ModuleNames

_HERE = "trek.compat.elasticdl"
_LAYERS = {
    "ConcatenateWithOffset": "torch.cat; trek.data.preparation.ConcatenateWithOffsets",
    "Discretization": "trek.data.preparation.Bucketise",
    "Hashing": "trek.data.preparation.Hash",
    "IndexLookup": "trek.data.preparation.Lookup",
    "LogRound": "torch",
    "Normalizer": "trek.data.preparation.Normalise learns its numbers",
    "RoundIdentity": "torch",
    "SparseEmbedding": "torch.nn.EmbeddingBag",
    "ToNumber": "torch",
    "ToSparse": "trek.data.preparation.ToSparse",
}
_MODULES = {
    "concatenate_with_offset": "ConcatenateWithOffset",
    "discretization": "Discretization",
    "hashing": "Hashing",
    "index_lookup": "IndexLookup",
    "log_round": "LogRound",
    "normalizer": "Normalizer",
    "round_identity": "RoundIdentity",
    "sparse_embedding": "SparseEmbedding",
    "to_number": "ToNumber",
    "to_sparse": "ToSparse",
}

ELASTICDL = (
    ModuleNames(
        "elasticdl.python.worker.ps_client",
        f"{_HERE}.ps_client",
        {"PSClient": "trek.ps.Client", "build_ps_client": "trek.ps.Client"},
    ),
    ModuleNames("elasticdl.python.worker", _HERE, {"ps_client": "trek.ps.Client"}, {"Worker": "trek.fit"}),
    ModuleNames("elasticdl.python.common.constants", f"{_HERE}.constants", {"Mode": "an enumeration"}),
    ModuleNames(
        "elasticdl.python.common.tensor_utils",
        f"{_HERE}.ps_client",
        {"Tensor": "a named tensor"},
        {"serialize_ndarray": "trek.ps.Client serialises"},
    ),
    ModuleNames("elasticdl.layers", f"{_HERE}.layers", {"Embedding": "trek.nn.Embedding, trek.nn.EmbeddingBag"}),
    ModuleNames("elasticdl.layers.embedding", f"{_HERE}.layers", {"Embedding": "trek.nn.Embedding"}),
    ModuleNames("elasticdl_preprocessing", f"{_HERE}.preprocessing", _LAYERS),
    ModuleNames(
        "elasticdl_preprocessing.layers",
        f"{_HERE}.preprocessing",
        _LAYERS,
        {"ToRagged": "tensors here are dense or sparse: use ToSparse", "PadAndMask": "pad with torch"},
    ),
    *(
        ModuleNames(f"elasticdl_preprocessing.layers.{module}", f"{_HERE}.preprocessing", {name: _LAYERS[name]})
        for module, name in _MODULES.items()
    ),
    ModuleNames(
        "elasticai_api.pytorch.controller",
        f"{_HERE}.controller",
        {"PyTorchAllReduceController": "trek.Traveler", "create_elastic_controller": "trek.Traveler"},
    ),
    ModuleNames(
        "elasticai_api.pytorch.optimizer", f"{_HERE}.controller", {"DistributedOptimizer": "trek.Traveler.step"}
    ),
    ModuleNames(
        "elasticai_api.common.data_shard_service",
        f"{_HERE}.data_shard_service",
        {
            "DataShardService": "trek.World, trek.Traveler",
            "RecordIndexService": "trek.World, trek.Traveler",
            "build_data_shard_service": "trek.World",
        },
    ),
    ModuleNames("elasticai_api.tensorflow", None, {}, {"*": "Trek trains PyTorch models"}),
)
