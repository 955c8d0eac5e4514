"""What holds for any input, tried on inputs that hypothesis thinks of: sums, participants, configs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ifca.core.averages import fold, zero_sum
from ifca.core.errors import InvalidInput
from ifca.core.random import key_of
from ifca.core.recipe import Recipe
from ifca.core.sampling import participants
from ifca.core.types import ClusterSum, Params
from ifca.data import Client, Federation, read_client
from ifca.data.formats.csv_file import read_csv
from ifca.data.formats.json_file import read_json
from ifca.data.formats.npz_file import read_npz
from ifca.data.formats.tensor_file import read_tensors
from ifca.data.formats.toml_file import read_toml
from ifca.data.jsonl import read_jsonl
from ifca.data.sources.folder import write_client
from ifca.runs.config import Config, ModelConfig, config_dict, parse_config, read_config, write_config
from ifca.runs.data_config import DigitsData, RotatedMnistData, SyntheticData
from ifca.runs.federation_config import FederationConfig
from ifca.training.checkpoint import load_tensors, save_tensors

few = settings(max_examples=60, deadline=None, derandomize=True, database=None)
"""The same examples every time, seconds in all; a slow machine is no failure."""


@st.composite
def replies(draw: st.DrawFn) -> tuple[Params, torch.Tensor, Params, torch.Tensor, list[int]]:
    """k models, and of m clients: identity, update, weight, and the part that each is folded in.

    Whole numbers, whose sums in double precision are exact in any order.
    """
    k, m = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    whole = st.integers(-(10**6), 10**6)

    def tensor(*shape: int) -> torch.Tensor:
        count = int(np.prod(shape))
        return torch.tensor(draw(st.lists(whole, min_size=count, max_size=count)), dtype=torch.float32)

    theta = {"weight": torch.zeros(k, 2, 2), "bias": torch.zeros(k)}
    update = {"weight": tensor(m, 2, 2).reshape(m, 2, 2), "bias": tensor(m)}
    identity = torch.tensor([draw(st.integers(0, k - 1)) for _ in range(m)], dtype=torch.long)
    weight = torch.tensor([draw(st.integers(0, 1000)) for _ in range(m)], dtype=torch.float32)
    return theta, identity, update, weight, [draw(st.integers(0, 3)) for _ in range(m)]


@few
@given(replies(), st.randoms(use_true_random=False))
def test_any_partition_of_the_clients_folds_to_the_same_sum(
    given_: tuple[Params, torch.Tensor, Params, torch.Tensor, list[int]], random: Any
) -> None:
    theta, identity, update, weight, part = given_
    order = list(range(len(part)))
    random.shuffle(order)

    def folded(who: list[int]) -> ClusterSum:
        some = {name: value[who] for name, value in update.items()}
        return fold(zero_sum(theta), identity[who], some, weight[who])

    whole = folded(list(range(len(part))))
    parts = reduce(add, [folded([i for i in order if part[i] == p]) for p in range(4)])
    one_by_one = reduce(add, [folded([i]) for i in order], zero_sum(theta))
    for found in (parts, one_by_one):
        assert torch.equal(found.weight, whole.weight)
        assert all(torch.equal(found.total[name], whole.total[name]) for name in theta)
    by_hand = [sum(float(weight[i]) for i in order if identity[i] == j) for j in range(len(theta["bias"]))]
    assert whole.weight.tolist() == by_hand


@few
@given(
    st.lists(st.text(max_size=8), min_size=1, max_size=40, unique=True),
    st.floats(0, 1, exclude_min=True),
    st.integers(0, 2**63 - 1),
    st.integers(0, 10**6),
    st.randoms(use_true_random=False),
)
def test_participants_are_a_share_of_the_clients_whatever_their_order(
    names: list[str], share: float, seed: int, t: int, random: Any
) -> None:
    recipe = Recipe(participation=share, seed=seed)

    def chosen(clients: list[str], recipe: Recipe = recipe) -> list[int]:
        keys = np.array([key_of(name) for name in clients], np.uint64)
        found: list[int] = participants(recipe, t, keys).tolist()
        return found

    places = chosen(names)
    assert places == sorted(set(places))
    assert len(places) == max(1, round(share * len(names)))
    assert 0 <= places[0] <= places[-1] < len(names)
    others = random.sample(names, len(names))
    assert {others[i] for i in chosen(others)} == {names[i] for i in places}
    assert chosen(names, Recipe(participation=share, seed=seed, rounds=7)) == places


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
positive, seeds = st.integers(1, 10**9), st.integers(0, 2**63 - 1)
size = st.floats(1e-300, 1e38)
DATA = st.one_of(
    st.builds(
        DigitsData, samples=positive, angles=st.lists(st.integers()).map(tuple), seed=st.none() | seeds
    ),
    st.builds(SyntheticData, clients=positive, separation=size, noise=st.just(0.0) | size),
    st.builds(
        RotatedMnistData,
        name=st.just("rotated-mnist"),
        folder=st.none() | names,
        shares=st.none() | st.lists(size).map(tuple),
        verify=st.booleans(),
    ),
)
CONFIGS = st.builds(
    Config,
    algorithm=st.sampled_from(["ifca", "ifca-plain", "global", "local", "oneshot"]),
    k=positive,
    option=st.sampled_from(["model", "gradient"]),
    step_size=size,
    participation=st.floats(0, 1, exclude_min=True),
    batch_size=st.none() | positive,
    shared=st.lists(names).map(tuple),
    l2=st.just(0.0) | size,
    stable_after=st.none() | positive,
    seed=seeds,
    precision=st.sampled_from(["float32", "float64", "tf32", "bfloat16"]),
    memory_budget=st.none() | positive,
    warm_start=st.none() | names,
    baselines=st.lists(st.sampled_from(["global", "local"])).map(tuple),
    code=names,  # none: the folder of the file, where a function of the user's own is named
    data=DATA,
    model=st.builds(ModelConfig, hidden=st.lists(positive).map(tuple), loss=st.none() | names),
    federation=st.builds(FederationConfig, clients=st.none() | positive, half_precision=st.booleans()),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs") / "config.toml"


@few
@given(config=CONFIGS)
def test_a_config_that_is_written_is_read_back(config: Config, file: Path) -> None:
    file.write_bytes(write_config(config).encode())
    assert read_config(file) == config


words = st.text(max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
VALUES = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)
)
ONE_SENTENCE = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@ONE_SENTENCE
@given(st.dictionaries(st.sampled_from([*config_dict(Config()), "x"]), VALUES, max_size=4))
def test_any_content_of_a_config_is_taken_as_it_stands_or_refused(content: dict[str, Any]) -> None:
    try:
        config = parse_config(content, "job.toml")
    except InvalidInput as reason:
        assert "job.toml" in str(reason)  # noqa: PT017
        return
    found = config_dict(config)
    assert all(found[name] == value for name, value in content.items() if not isinstance(value, dict))


@ONE_SENTENCE
@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused_or_read_by_every_reader(content: bytes, file: Path) -> None:
    readers: list[Callable[[Path], Any]] = [
        read_npz,
        read_csv,
        read_toml,
        read_tensors,
        read_jsonl,
        read_client,
    ]
    readers.append(lambda one: read_json(one, dict))
    for reader, name in zip(
        readers, ("npz", "csv", "toml", "safetensors", "jsonl", "csv", "json"), strict=True
    ):
        one = file.with_name(f"any.{name}")
        one.write_bytes(content)
        try:
            reader(one)
        except InvalidInput as reason:
            assert one.name in str(reason)  # noqa: PT017


@ONE_SENTENCE
@given(
    header=st.dictionaries(st.text(min_size=1, max_size=5), VALUES, max_size=4),
    place=st.integers(0, 10**6),
    bit=st.integers(0, 7),
)
def test_a_flipped_bit_of_a_tensor_file_is_seen(
    header: dict[str, Any], place: int, bit: int, file: Path
) -> None:
    one = file.with_name("any.safetensors")
    save_tensors(one, {"a": torch.arange(6.0), "b": torch.arange(3)}, header)
    tensors, found = load_tensors(one)
    assert found == header
    assert tensors["a"].tolist() == list(range(6))
    flipped = bytearray(one.read_bytes())
    flipped[place % len(flipped)] ^= 1 << bit
    one.write_bytes(flipped)
    try:
        again, found = load_tensors(one)
    except InvalidInput as reason:
        assert str(one) in str(reason)  # noqa: PT017
    else:  # such as in the padding of a header
        assert found == header
        assert all(torch.equal(again[name], tensors[name]) for name in tensors)


@few
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(0, 2**32),
    st.randoms(use_true_random=False),
)
def test_samples_set_aside_are_a_partition_that_no_order_changes(
    sizes: list[int], seed: int, random: Any
) -> None:
    """Every sample is trained on or set aside, once, whatever the order of the clients."""
    order = random.sample(range(len(sizes)), len(sizes))

    def parts(who: list[int]) -> list[tuple[list[float], list[float]]]:
        clients = [
            Client(np.arange(sizes[i])[:, None] + 100.0 * i, np.zeros(sizes[i], int), id=f"c{i}") for i in who
        ]
        kept, aside = Federation.from_clients(clients).train.parted(seed)
        return [tuple(part.arrays(i)[0][:, 0].tolist() for part in (kept, aside)) for i in range(len(who))]

    found = parts(list(range(len(sizes))))
    for i, (mine, other) in enumerate(found):
        assert sorted(mine + other) == [100.0 * i + n for n in range(sizes[i])]
    assert [parts(order)[place] for place in range(len(order))] == [found[i] for i in order]


@ONE_SENTENCE
@given(
    st.dictionaries(words, VALUES, max_size=3),
    st.binary(max_size=64),
    st.sampled_from(["float32", "float16", "int8", ""]),
)
def test_any_message_is_refused_or_holds_the_bytes_that_it_says(layout: Any, data: bytes, kind: str) -> None:
    flwr = pytest.importorskip("flwr.app")
    from ifca.engines.flower.records import from_record

    record = flwr.ArrayRecord({json.dumps(layout): flwr.Array(kind, (1,), "raw", data)})
    try:
        found = from_record(record)
    except InvalidInput:
        return
    assert sum(value.numel() * value.element_size() for value in found.values()) == len(data)
    assert {name: list(value.shape) for name, value in found.items()} == layout


@few
@given(
    name=st.text(max_size=6),
    values=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=12, max_size=12),
)
def test_clients_that_are_written_are_read_back(name: str, values: list[float], file: Path) -> None:
    x = np.array(values).reshape(6, 2)
    write_client(file.with_name("client.npz"), Client(x, np.arange(6) % 2, id=name))
    found = read_client(file.with_name("client.npz"))
    assert np.array_equal(np.asarray(found.x), x)
    assert np.asarray(found.y).tolist() == [0, 1, 0, 1, 0, 1]
