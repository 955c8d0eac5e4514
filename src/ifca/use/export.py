"""One cluster's model as a file for other programs, read back and compared before anybody relies on it."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ifca.core.errors import IFCAError, InvalidInput
from ifca.core.random import generator
from ifca.data.files import refuse_to_overwrite, write_atomically
from ifca.use.opened_run import open_trained
from ifca.use.trained import Trained

KINDS = (".pt", ".safetensors", ".onnx")
FORMAT = "ifca-model-1"
SCALINGS = {  # names of the scalings' tensors in a .pt file, and in a .safetensors file
    "mean": "input.mean",
    "scale": "input.scale",
    "target_mean": "target.mean",
    "target_scale": "target.scale",
}
CLOSE = 1e-4  # how far the read-back outputs may be off, relative to the largest


class Served(nn.Module):
    """A trained model with its preprocessing: features as they are given -> outputs (and probabilities).

    The outputs of a regression are in the units of its targets.
    """

    mean: Tensor | None
    scale: Tensor | None
    target_mean: Tensor | None
    target_scale: Tensor | None

    def __init__(self, trained: Trained, cluster: int) -> None:
        super().__init__()
        self.model = copy.deepcopy(trained.module).float().eval()
        self.model.load_state_dict(trained.model(cluster), strict=False)
        self.pixels, self.classifies = bool(trained.header.get("pixels")), trained.classes is not None
        for prefix, scaling in (("", trained.scaling), ("target_", trained.target_scaling)):
            self.register_buffer(prefix + "mean", None if scaling is None else scaling.mean)
            self.register_buffer(prefix + "scale", None if scaling is None else scaling.scale)
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Outputs, and for a classification the probabilities."""
        x = x.float() / 255 if self.pixels else x
        if self.mean is not None and self.scale is not None:
            x = ((x.double() - self.mean) / self.scale).float()  # a mean may be far larger than its scale
        output = self.model(x)
        if self.target_mean is not None and self.target_scale is not None:
            output = (output.double() * self.target_scale + self.target_mean).float()
        return (output, output.softmax(-1)) if self.classifies else (output,)


def export_model(directory: Path, cluster: int, to: Path, trust: bool = False) -> dict[str, Any]:
    """Write a .pt, .safetensors or .onnx file; returns what its reading back showed.

    trust: as of open_trained.
    """
    return export_trained(open_trained(directory, trust), cluster, to)


def export_trained(trained: Trained, cluster: int, to: Path) -> dict[str, Any]:
    """The same of models that are open."""
    if to.suffix not in KINDS:
        raise InvalidInput(f"{to}: a model is written as {', '.join(KINDS)}")
    if not to.parent.is_dir():
        raise InvalidInput(f"{to.parent}: no such folder")
    refuse_to_overwrite(to, "--to", run=trained.directory)
    served = Served(trained, cluster)
    x = _examples(trained)
    with torch.no_grad():
        expected = trained.in_units(trained.task.output(trained.model(cluster), trained.inputs(x))).float()
    write = {".pt": _write_pt, ".safetensors": _write_safetensors, ".onnx": _write_onnx}[to.suffix]
    with TemporaryDirectory(prefix=".ifca-", dir=to.parent) as room:
        beside = Path(room) / to.name  # what was there stays until this one is known to be good
        write(trained, served, beside)
        found, reader = _read_back(trained, beside, x)
        error = float(np.abs(found - expected.numpy()).max()) / max(1.0, float(expected.abs().max()))
        if not error <= CLOSE:
            told = f"read back by {reader}, its outputs are {error:.2g} off; it was not written"
            raise IFCAError(f"{to}: {told}")
        beside.replace(to)
    if trained.preparation is not None and not (trained.preparation.plain and trained.class_names is None):
        content = json.dumps(trained.preparation.to_json(), indent=1, ensure_ascii=False)
        write_atomically(columns_file(to), content.encode())
    return {"file": str(to), "reader": reader, "samples": len(x), "error": error}


def columns_file(model: Path) -> Path:
    """Beside a model that was trained on tables: how their columns become its features."""
    return model.with_name(f"{model.name}.columns.json")


def facts(trained: Trained) -> dict[str, Any]:
    """What a program must know to use the tensors."""
    known = {name: trained.header.get(name) for name in ("input_shape", "outputs", "classes", "features")}
    names = None if trained.class_names is None else list(trained.class_names)
    return {"format": FORMAT, **known, "class_names": names, "pixels": bool(trained.header.get("pixels"))}


def _examples(trained: Trained) -> Tensor:
    """Random features of the kind that was trained on."""
    rng, shape = generator(0, "export-examples"), (16, *trained.input_shape)
    if trained.header.get("pixels"):
        return torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
    x = torch.randn(shape, generator=rng)
    return x if trained.scaling is None else (x * trained.scaling.scale + trained.scaling.mean).float()


def _state(served: Served) -> dict[str, Tensor]:
    return {name: value.clone().contiguous() for name, value in served.model.state_dict().items()}


def _write_pt(trained: Trained, served: Served, to: Path) -> None:
    scaling = {name: getattr(served, name) for name in SCALINGS}
    buffer = io.BytesIO()
    torch.save({**facts(trained), **scaling, "state_dict": _state(served)}, buffer)
    write_atomically(to, buffer.getvalue())


def _write_safetensors(trained: Trained, served: Served, to: Path) -> None:
    from safetensors.torch import save

    given = {stored: getattr(served, name) for name, stored in SCALINGS.items()}
    scaling = {name: value for name, value in given.items() if value is not None}
    write_atomically(to, save({**_state(served), **scaling}, {FORMAT: json.dumps(facts(trained))}))


def _write_onnx(trained: Trained, served: Served, to: Path) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401
    except ImportError:
        raise InvalidInput("--to: .onnx files need an extra: pip install 'ifca[export]'") from None
    names = ["output", "probabilities"] if served.classifies else ["output"]
    try:
        with _quiet_exporter():
            program = torch.onnx.export(
                served,
                (_examples(trained),),
                dynamo=True,
                verbose=False,
                input_names=["x"],
                output_names=names,
                dynamic_shapes=({0: torch.export.Dim("n")},),
            )
    except Exception as reason:
        what = f"{type(reason).__name__}: {(str(reason) or '-').splitlines()[0]}"
        raise InvalidInput(f"--to: this model cannot be written as ONNX ({what})") from reason
    assert program is not None
    proto = program.model_proto
    onnx.helper.set_model_props(proto, {FORMAT: json.dumps(facts(trained))})
    write_atomically(to, proto.SerializeToString())


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Torch's exporter remarks on its own code and on what is not installed; neither concerns the user."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            yield
    finally:
        log.setLevel(level)


def _read_back(trained: Trained, to: Path, x: Tensor) -> tuple[NDArray[Any], str]:
    """The outputs of the file's model, and what read it."""
    if to.suffix == ".onnx":
        return _run_onnx(to, x.numpy())
    if to.suffix == ".pt":
        content = torch.load(to, weights_only=True)
        state, scaling = content["state_dict"], {name: content[name] for name in SCALINGS}
        reader = "torch.load(weights_only=True)"
    else:
        from safetensors.torch import load_file

        state = load_file(to)
        scaling = {name: state.pop(stored, None) for name, stored in SCALINGS.items()}
        reader = "safetensors"
    again = Served(trained, trained.live[0])
    again.model.load_state_dict(state)
    for name, value in scaling.items():
        setattr(again, name, value)
    return again(x)[0].numpy(), reader


def _run_onnx(file: Path, x: NDArray[Any]) -> tuple[NDArray[Any], str]:
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        outputs: Any = ReferenceEvaluator(str(file)).run(["output"], {"x": x})
        return np.asarray(outputs[0]), "onnx's evaluator"
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["output"], {"x": x})[0]), "onnxruntime"
