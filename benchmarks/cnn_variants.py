"""Which way to run many clients' CNN steps at once? python benchmarks/cnn_variants.py [clients]

One step = 20 clients x a batch of 50 CIFAR images, each client with its own weights (the authors' network).
A round is 50 such steps. Variants: grouped convolutions by vmap, convolutions as products, a stream per
client, TF32, bfloat16, channels last, CUDA graphs, compile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ifca.models import cifar_cnn
from products import with_products

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CLIENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
Params = dict[str, Tensor]


def sync() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def milliseconds(work: Callable[[], object], repeats: int = 10) -> float:
    for _ in range(3):
        work()
    sync()
    times = []
    for _ in range(repeats):
        before = time.perf_counter()
        work()
        sync()
        times.append(time.perf_counter() - before)
    return 1e3 * sorted(times)[len(times) // 2]


def make_step(module: nn.Module, low: torch.dtype | None) -> Callable[[Params, Tensor, Tensor], Params]:
    module = module.to(DEVICE)

    def loss(theta: Params, x: Tensor, y: Tensor) -> Tensor:
        if low is None:
            return nn.functional.cross_entropy(functional_call(module, theta, (x,)), y)
        with torch.autocast(DEVICE.type, low):
            out = functional_call(module, theta, (x,))
        return nn.functional.cross_entropy(out.float(), y)

    slopes = vmap(grad(loss))

    def step(theta: Params, x: Tensor, y: Tensor) -> Params:
        g = slopes(theta, x, y)
        return {name: value - 0.01 * g[name] for name, value in theta.items()}

    return step


def graphed(
    step: Callable[[Params, Tensor, Tensor], Params], theta: Params, x: Tensor, y: Tensor
) -> Callable[[], None]:
    held = {name: value.clone() for name, value in theta.items()}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(held, x, y)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for name, value in step(held, x, y).items():
            held[name].copy_(value)
    return graph.replay


def streamed(
    module: nn.Module, theta: Params, x: Tensor, y: Tensor, low: torch.dtype | None, width: int
) -> Callable[[], None]:
    """Every client's plain step, on one of a few streams, captured as one graph."""
    module = module.to(DEVICE)
    held = {name: value.clone() for name, value in theta.items()}

    def loss(one: Params, x: Tensor, y: Tensor) -> Tensor:
        if low is None:
            return nn.functional.cross_entropy(functional_call(module, one, (x,)), y)
        with torch.autocast(DEVICE.type, low):
            out = functional_call(module, one, (x,))
        return nn.functional.cross_entropy(out.float(), y)

    slopes = grad(loss)
    streams = [torch.cuda.Stream() for _ in range(width)]

    def all_clients() -> None:
        main = torch.cuda.current_stream()
        for stream in streams:
            stream.wait_stream(main)
        for i in range(CLIENTS):
            with torch.cuda.stream(streams[i % width]):
                one = {name: value[i] for name, value in held.items()}
                g = slopes(one, x[i], y[i])
                for name, value in one.items():
                    value.sub_(g[name], alpha=0.01)
        for stream in streams:
            main.wait_stream(stream)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        all_clients()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_clients()
    return graph.replay


def main() -> None:
    torch.manual_seed(0)
    module = cifar_cnn()
    theta = {n: p.detach().expand(CLIENTS, *p.shape).clone().to(DEVICE) for n, p in module.named_parameters()}
    x = torch.rand(CLIENTS, 50, 3, 32, 32, device=DEVICE)
    y = torch.randint(0, 10, (CLIENTS, 50), device=DEVICE)
    want = make_step(module, None)({n: v.clone() for n, v in theta.items()}, x, y)
    rows: list[tuple[str, nn.Module, torch.dtype | None, bool]] = []
    for kind, made in (("grouped", module), ("products", with_products(module))):
        rows += [(f"{kind} fp32", made, None, False), (f"{kind} tf32", made, None, True)]
        rows += [(f"{kind} bf16", made, torch.bfloat16, True)]
    for name, made, low, tf32 in rows:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        try:
            step = make_step(made, low)
            got = step(theta, x, y)
            error = max(float((got[n] - want[n]).norm() / (want[n] - theta[n]).norm()) for n in theta)
            line = f"{name:15s} step {milliseconds(lambda step=step: step(theta, x, y)):8.3f} ms"
            if DEVICE.type == "cuda":
                line += f"  graph {milliseconds(graphed(step, theta, x, y)):8.3f} ms"
            print(line, f" error of the update {error:.1e}", flush=True)
        except Exception as failure:
            print(name, "failed:", repr(failure)[:200], flush=True)
    if DEVICE.type == "cuda" and "--streams" in sys.argv:
        for low, tf32 in ((None, False), (None, True), (torch.bfloat16, True)):
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            for last in (False, True):
                made = cifar_cnn().to(memory_format=torch.channels_last if last else torch.contiguous_format)
                for width in (4, 10):
                    try:
                        replay = streamed(made, theta, x, y, low, width)
                        print(
                            "streams",
                            width,
                            low,
                            "tf32",
                            tf32,
                            "channels last",
                            last,
                            f"{milliseconds(replay):8.3f} ms",
                            flush=True,
                        )
                    except Exception as failure:
                        print("streams", width, "failed:", repr(failure)[:200], flush=True)
    if DEVICE.type == "cuda" and "--compile" in sys.argv:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        for low, made in ((None, module), (torch.bfloat16, module), (None, with_products(module))):
            try:
                compiled = torch.compile(make_step(made, low))
                print(
                    "compiled",
                    low,
                    f"{milliseconds(lambda compiled=compiled: compiled(theta, x, y)):8.3f} ms",
                    f"graph {milliseconds(graphed(compiled, theta, x, y)):8.3f} ms",
                    flush=True,
                )
            except Exception as failure:
                print("compile", low, "failed:", repr(failure)[:200], flush=True)


if __name__ == "__main__":
    main()
