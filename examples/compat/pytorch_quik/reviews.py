"""A classifier of film reviews in pytorch-quik's way: its arguments, its loop, and its calls for all that follows.

    python reviews.py --bert_type FOLDER_OR_NAME                       train on every GPU, or on the CPU
    python reviews.py --use_ray_tune --num_samples 4                   search over space.yaml first
    python reviews.py --use_mlflow --tracking_uri http://…             record, and archive the weights that were recorded
    trek serve data/…/serve/reviews.mar --port 8080                    serve the archive, as TorchServe does
    python reviews.py --ask http://127.0.0.1:8080/predict              ask it about reviews that it has not seen

Written as for pytorch-quik, but for the import line and the data set.
"""

from __future__ import annotations

from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim
from torch.optim.lr_scheduler import OneCycleLR

import trek
import trek.compat.pytorch_quik as pq

INDEX_LABELS = pq.utils.indexed_dict(("bad", "good"))
PARTS = {"train": "train", "valid": "dev"}


def parse_my_args() -> Namespace:
    """All groups of pytorch-quik's arguments, with defaults for a small model, and what the data needs."""
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser = pq.arg.add_ddp_args(parser)
    parser = pq.arg.add_learn_args(parser, {"epochs": 1, "bs": 16, "learning_rate": 2e-4})
    parser = pq.arg.add_mlflow_args(parser, {"experiment": "reviews"})
    parser = pq.arg.add_ray_tune_args(parser)
    parser.add_argument("--bert_type", default="bert", help="bert, roberta, or the folder or name of another model")
    parser.add_argument("--rows", type=int, default=10_000, help="number of reviews to train on")
    parser.add_argument("--tokens", type=int, default=32, help="length that reviews are cut to")
    space = Path(__file__).with_name("space.yaml")
    parser.add_argument("--space", type=Path, default=space, help="what to search over")
    parser.add_argument("--ask", metavar="URL", help="ask a server, and do nothing else")
    return parser.parse_args()


def read_reviews(part: str, rows: int) -> Any:
    """Sentences and whether they praise, a row each."""
    columns = trek.data.open("sst2", split=PARTS[part]).head(rows).to_numpy()
    return columns["sentence"], columns["label"].astype(int)


def prepare(args: Namespace) -> None:
    """Encode the reviews, and leave them where the travelers look for them."""
    for part in PARTS:
        texts, labels = read_reviews(part, args.rows)
        (encoded,) = pq.hugging.get_encodings([texts], 0, args.bert_type, kwargs={"max_length": args.tokens})
        pq.tensor.make_TensorDataset(encoded, labels, part, args=args)


def train(args: Namespace, gpu: int | None) -> float:
    """Train a model; the share of the reviews set aside that it finds out."""
    trek = pq.travel.QuikTrek(args, gpu)
    tr, vl = pq.travel.QuikTraveler(trek, "train"), pq.travel.QuikTraveler(trek, "valid")
    tr.add_data(pq.io.load_torch_object("train", args))
    vl.add_data(pq.io.load_torch_object("valid", args))
    tr.add_model(pq.hugging.get_pretrained_model(args.bert_type, list(INDEX_LABELS)))
    tr.set_criterion(nn.CrossEntropyLoss)
    tr.set_optimizer(optim.AdamW)
    tr.set_scheduler(OneCycleLR)

    for epoch in range(tr.epochs):
        if tr.world.is_logger:
            trbar = pq.ddp.tq_bar(tr.data.steps, epoch, tr.epochs)
        tr.model.train()
        for batch in tr.data.data_loader:
            ids, mask, labels = [tens.to(tr.world.device) for tens in batch]
            with tr.amp.caster:
                loss = tr.criterion(tr.model(input_ids=ids, attention_mask=mask).logits, labels)
            tr.backward(loss)
            tr.scheduler.step()
            tr.add_loss(loss, trbar if tr.world.is_logger else None, epoch)
        if tr.world.is_logger:
            trbar.close()
            del trbar
        validate(tr, vl, epoch)
        tr.save_state_dict(epoch)
    if tr.world.is_logger:
        print(tr.metrics.results.to_string(index=False))
    return vl.record_results(INDEX_LABELS)["accuracy"]


def validate(tr: pq.travel.QuikTraveler, vl: pq.travel.QuikTraveler, epoch: int) -> None:
    """Count the losses of a validation, and keep its predictions."""
    scores, true, losses = [], [], []
    for ids, mask, labels in vl.data.data_loader:
        scores.append(tr.model(input_ids=ids, attention_mask=mask).logits)
        true.append(labels)
        losses.append(tr.criterion(scores[-1], labels))
    tr.add_vloss(losses, [len(labels) for labels in true], epoch)
    vl.data.add_results(torch.cat(scores), torch.cat(true))


def build_archive(args: Namespace, epoch: int) -> Path:
    """Pack the weights after an epoch: those that MLflow has, if the training was recorded."""
    serve_path = pq.io.id_str("", args).parent.joinpath("serve")
    if args.use_mlflow:
        mlf = pq.mlflow.QuikMlflow(args)
        args.data_date = mlf.get_state_dict(epoch, filter_string=f"params.lr = '{args.lr}'", serve_path=serve_path)
    model = pq.bert.get_pretrained_model(labels=list(INDEX_LABELS.keys()), bert_type=args.bert_type)
    pq.bert.save_bert_model(model, args, epoch, serve_path)
    pq.serve.build_extra_files(args, INDEX_LABELS, serve_path)
    return pq.serve.create_mar(args, serve_path, model_name="reviews")


def ask(args: Namespace) -> float:
    """The share of the reviews set aside that a server finds out."""
    texts, labels = read_reviews("valid", args.rows)
    df = pq.api.batch_inference(texts, INDEX_LABELS, batch_size=20, url=args.ask)
    pq.metrics.accuracy_per_class(df["label"].map(pq.utils.inverse_dict(INDEX_LABELS)), labels, INDEX_LABELS)
    return float((df["label"] == [INDEX_LABELS[label] for label in labels]).mean())


def main() -> None:
    """Ask, or prepare, search, train and archive."""
    args = parse_my_args()
    if args.ask:
        print(f"accuracy {ask(args):.3f}")
        return
    args.base_dir = Path.cwd()
    prepare(args)
    if args.use_ray_tune:
        found = pq.tune.run_ddp_tune(train, args, pq.tune.get_tune_config(args.space), None)
        print(f"best {found.best_config}")
        pq.arg.update_args(args, found.best_config)
    print(f"accuracy {pq.ddp.traverse(train, args):.3f}")
    print(f"archive {build_archive(args, args.epochs - 1)}")


if __name__ == "__main__":
    main()
