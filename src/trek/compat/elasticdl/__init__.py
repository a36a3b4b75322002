"""ElasticDL's names, for PyTorch: what its design for PyTorch planned, over Trek's training and parameter servers.

elasticdl.python.worker.ps_client              ps_client
elasticdl.python.common.constants              constants
elasticdl.layers                               layers
elasticdl_preprocessing.layers                 preprocessing
elasticai_api.pytorch.controller, .optimizer   controller
elasticai_api.common.data_shard_service        data_shard_service
the model zoo's form of a model                model_zoo
"""
