"""The named data sets: what they declare, and what their real files hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import trek
from trek.data.datasets import dataset_names, find_dataset
from trek.errors import DataUnavailable, InputError


@pytest.fixture
def mirror(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TREK_DATA_MIRROR", str(shared_data))
    return shared_data


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'mnist'"):
        find_dataset("mnits")


def test_underscores_read_as_dashes() -> None:
    assert find_dataset("fashion_mnist").name == "fashion-mnist"


@pytest.mark.parametrize("name", dataset_names())
def test_every_file_has_a_checksum_and_a_size(name: str) -> None:
    for file in find_dataset(name).files:
        assert len(file.sha256 or "") == 64 or len(file.md5 or "") == 32
        assert file.size_bytes > 0


@pytest.mark.parametrize("name", ["adult", "criteo", "mnist", "sst2"])
def test_every_split_has_the_rows_it_declares(name: str, mirror: Path) -> None:
    dataset = find_dataset(name)
    for split, num_rows in dataset.num_rows.items():
        assert trek.data.open(name, split=split).to_arrow().num_rows == num_rows


def test_mnist_images_and_labels_belong_together(mirror: Path) -> None:
    columns = trek.data.open("mnist", split="train").to_numpy()
    assert columns["image"].shape == (60000, 28, 28)
    assert columns["label"][:5].tolist() == [5, 0, 4, 1, 9]
    assert int(columns["image"][0].sum()) == 27525


def test_adult_test_labels_lose_their_dot_and_unknown_values_are_missing(mirror: Path) -> None:
    table = trek.data.open("adult", split="test").to_arrow()
    assert table["label"].to_numpy().mean() == pytest.approx(0.2362, abs=1e-4)
    assert table["workclass"].null_count == 963


def test_criteo_empty_fields_are_missing(mirror: Path) -> None:
    table = trek.data.open("criteo", split="train").to_arrow()
    assert table["I12"].null_count > 0
    assert table["C1"].null_count == 0


def test_digits_split_is_fixed_and_without_overlap() -> None:
    train, test = (trek.data.open("digits", split=split).to_numpy() for split in ("train", "test"))
    assert (len(train["label"]), len(test["label"])) == (1437, 360)
    seen = {image.tobytes() for image in train["image"]}
    assert not [image for image in test["image"] if image.tobytes() in seen]


def test_digits_without_scikit_learn_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match="pip install scikit-learn"):
        trek.data.open("digits").to_numpy()


def test_a_data_set_without_public_address_asks_for_a_mirror() -> None:
    with pytest.raises(DataUnavailable, match="TREK_DATA_MIRROR"):
        trek.data.open("criteo")


def test_an_unknown_split_lists_the_known() -> None:
    with pytest.raises(InputError, match="train, test"):
        trek.data.open("digits", split="validation")


def test_a_split_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="named data sets"):
        trek.data.open(tmp_path, split="train")
