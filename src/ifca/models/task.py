"""A torch module as what core needs: a Task, and a draw of initial parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ifca.core.averages import parameters_of, running_statistics
from ifca.core.errors import InvalidInput
from ifca.core.initial import Draw
from ifca.core.recipe import Recipe
from ifca.core.types import Batch, Data, Params, Task
from ifca.models.augment import augment_of
from ifca.models.batch_norm import check_norm, entries_of, followed
from ifca.models.dropout import check_dropout, seeded
from ifca.models.first_layer import first_layer
from ifca.models.passes import Pass, replaced

Factory = Callable[[], nn.Module]
Loss = Callable[[Tensor, Tensor], Tensor]
Metric = Callable[[Tensor, Tensor], Tensor]
"""Outputs, y -> a number per sample [n], or one for all of them."""


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    """Per sample."""
    return F.cross_entropy(output, y, reduction="none")


def squared_error(output: Tensor, y: Tensor) -> Tensor:
    """(y - output)^2, summed over several outputs; per sample."""
    return (
        ((output.reshape(y.shape) - y) ** 2).flatten(1).sum(1) if y.dim() > 1 else (output.flatten() - y) ** 2
    )


def accurate(output: Tensor, y: Tensor) -> Tensor:
    """1 where the largest output is the class; per sample."""
    return (output.argmax(-1) == y).to(output.dtype)


def weighted(loss: Loss, weights: Tensor) -> Loss:
    """The loss times the weight of the sample's class; weights: [classes]."""
    return lambda output, y: loss(output, y) * weights.to(output.dtype)[y]


def in_units(loss: Loss, square: float) -> Loss:
    """A squared error of scaled targets in the units of the data; square: of what a target of 1 is."""
    return lambda output, y: loss(output, y) * square


def as_factory(model: nn.Module | Factory) -> Factory:
    """A function that makes a freshly initialised module, from such a function or from a module."""
    if not isinstance(model, nn.Module):
        if not callable(model):
            raise InvalidInput(f"model: a torch.nn.Module or a function that makes one, got {model!r}")
        return model
    for name, part in model.named_modules():
        own = any(True for _ in part.parameters(recurse=False))
        if own and not callable(getattr(part, "reset_parameters", None)):
            raise InvalidInput(
                f"model: {name or type(part).__name__} cannot draw new parameters (no reset_parameters); "
                "pass a function that makes the model instead of the model"
            )

    return partial(_fresh, model)


def _fresh(model: nn.Module) -> nn.Module:
    copied = copy.deepcopy(model)
    for part in copied.modules():
        if callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    return copied


def made(factory: Factory, seed: int = 0) -> nn.Module:
    """A module as the factory makes it from a seed; the user's random state is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            module = factory()
        except Exception as reason:
            name = type(reason).__name__
            raise InvalidInput(f"model: making it failed ({name}: {reason})") from reason
    if not isinstance(module, nn.Module):
        raise InvalidInput(f"model: a torch.nn.Module is needed, got {type(module).__name__}")
    return module


def make_draw(factory: Factory, dtype: torch.dtype = torch.float32) -> Draw:
    """Initial parameters (and statistics) as the module draws them, as a function of the generator only."""

    def draw(rng: torch.Generator) -> Params:
        module = made(factory, rng.initial_seed())
        return {name: value.to(dtype).clone() for name, value in entries_of(module).items()}

    return draw


def make_task(
    module: nn.Module,
    recipe: Recipe,
    *,
    regression: bool,
    device: torch.device,
    loss: Loss | None = None,
    low: torch.dtype | None = None,
    class_weights: tuple[float, ...] | None = None,
    target_scale: Tensor | None = None,
) -> Task:
    """The module as a function of its parameters, with its loss and regulariser; low: precision of layers.

    class_weights: of a sample's loss in gradients, by its class. target_scale: what a target of 1 is in the
    units of the data; one target's loss is reported in these, squared.
    """
    check_module(module, recipe)
    module = copy.deepcopy(module).to(device).requires_grad_(False).eval()
    names = list(entries_of(module))
    check_layers("shared", recipe.shared, names)
    check_layers("l2_layers", recipe.l2_layers, names)
    if recipe.shared and len(parameters_of(names, recipe.shared)) == len(names):
        raise InvalidInput("shared names every layer of the model: nothing is left to cluster")
    chosen = parameters_of(names, recipe.l2_layers) if recipe.l2_layers else frozenset(names)
    chosen -= running_statistics(names)

    output = _function_of(module, device, low)
    training = _training(module, device, low)

    def penalty(theta: Params) -> Tensor:
        squares = [(value**2).sum() for name, value in theta.items() if name in chosen]
        return recipe.l2 / 2 * torch.stack(squares).sum()

    plain = loss or (squared_error if regression else cross_entropy)
    reported, objective = plain, None
    if class_weights is not None:
        objective = weighted(plain, torch.tensor(class_weights, device=device))
    if target_scale is not None and target_scale.numel() == 1 and loss is None:
        reported, objective = in_units(plain, float(target_scale) ** 2), plain
    return Task(
        output,
        reported,
        None if regression else accurate,
        penalty if recipe.l2 else None,
        first_layer(module) if training is None else None,
        classifies=loss is None and not regression,
        module=module,
        low=low,
        augment=augment_of(module) if recipe.augment else None,
        objective=objective,
        training=training,
        drops=any(
            isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in module.modules()
        ),
    )


def _function_of(
    module: nn.Module, device: torch.device, low: torch.dtype | None
) -> Callable[[Params, Tensor], Tensor]:
    """theta, x -> outputs; low: as in make_task."""

    def output(theta: Params, x: Tensor) -> Tensor:
        with torch.autocast(device.type, low, enabled=low is not None):
            result = functional_call(module, theta, (x,))
        if not isinstance(result, Tensor):
            raise InvalidInput(f"model: must give one tensor, got {type(result).__name__}")
        return result.to(x.dtype)

    return output


def _training(
    module: nn.Module, device: torch.device, low: torch.dtype | None
) -> Callable[[Params, Data | Batch], tuple[Tensor, Params]] | None:
    """Task.training; None for models that behave alike in gradient steps."""
    now = Pass()
    copied = replaced(module, lambda name, part: seeded(now, name, part) or followed(now, name, part))
    if copied is None:
        return None
    output = _function_of(copied, device, low)

    def training(theta: Params, batch: Data | Batch) -> tuple[Tensor, Params]:
        with now.over(batch) as changed:
            return output(theta, batch.x), changed

    return training


def check_module(module: nn.Module, recipe: Recipe) -> None:
    """Refuse, by name, layers that cannot be federated sample by sample."""
    for name, part in module.named_modules():
        check_norm(name, part, recipe)
        check_dropout(name, part)
    for name, parameter in module.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise InvalidInput(f"model: parameter {name} has no size yet (a lazy layer); give its size")
        if running_statistics([name]):
            raise InvalidInput(f"model: parameter {name} has the name of a running statistic; rename it")
        if not parameter.requires_grad or not parameter.is_floating_point():
            raise InvalidInput(f"model: parameter {name} is not trained (frozen); make it a buffer instead")
    if not any(p.numel() for p in module.parameters()):
        raise InvalidInput("model: it has no parameters to train")


def check_layers(field: str, layers: tuple[str, ...], names: list[str]) -> None:
    """Every named layer must exist."""
    known = sorted({name.rpartition(".")[0] or name for name in names})
    for layer in layers:
        if not parameters_of(names, (layer,)):
            raise InvalidInput(f"{field}: the model has no layer {layer} (it has: {', '.join(known)})")
