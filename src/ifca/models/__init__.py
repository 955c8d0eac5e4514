"""Models: linear, logistic, MLP, the paper's CNNs; any torch module of the user's."""

from ifca.models.built_in import BuiltIn, choose_model
from ifca.models.networks import cifar_cnn, cnn, femnist_cnn, linear, logistic, mlp
from ifca.models.task import as_factory, make_draw, make_task

__all__ = [
    "BuiltIn",
    "as_factory",
    "choose_model",
    "cifar_cnn",
    "cnn",
    "femnist_cnn",
    "linear",
    "logistic",
    "make_draw",
    "make_task",
    "mlp",
]
