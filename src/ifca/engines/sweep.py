"""Many runs of IFCA on linear regression at once, as columns over one shared X.

A trial of the paper draws X once; all R, sigma, initialisations and step sizes of it are separate runs of
gradient averaging on the same X. Stacked as columns, a round of all of them is two matrix products.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK_BYTES = 2**27  # residuals of a chunk of clients


def sweep(x: Tensor, y: Tensor, theta: Tensor, step: Tensor, rounds: int) -> tuple[Tensor, Tensor]:
    """Option I with all clients in every round, for every run.

    x: [m, n, d]; y: [runs, m, n] targets of each run; theta: [runs, k, d] initial models; step: [runs].
    Returns the models [runs, k, d] and the last identities [runs, m].
    """
    m, n, d = x.shape
    runs, k, _ = theta.shape
    if y.shape != (runs, m, n):
        raise ValueError(f"y must be [runs, m, n] = {(runs, m, n)}, got {tuple(y.shape)}")
    columns = theta.permute(2, 0, 1).reshape(d, runs * k).contiguous()  # [d, runs k]
    targets = y.permute(1, 2, 0).contiguous()  # [m, n, runs]
    scale = (2 * step / (n * m)).repeat_interleave(k)  # gradient of the mean square, averaged over m clients
    chunk = max(1, min(m, CHUNK_BYTES // (n * runs * k * x.element_size())))
    found = torch.zeros(m, runs, dtype=torch.long, device=x.device)
    for _ in range(rounds):
        slope = torch.zeros_like(columns)
        for start in range(0, m, chunk):
            part = x[start : start + chunk].flatten(0, 1)  # [c n, d]
            residual = (part @ columns).view(-1, n, runs, k).sub_(targets[start : start + chunk, :, :, None])
            losses = residual.square().sum(1)  # [c, runs, k]
            j = losses.nan_to_num(nan=torch.inf, posinf=torch.inf).argmin(-1)
            found[start : start + chunk] = j
            chosen = torch.zeros_like(losses).scatter_(2, j[..., None], 1)
            residual *= chosen[:, None]  # a client's residual counts for its own model only
            slope.addmm_(part.t(), residual.view(len(part), -1))
        columns -= scale * slope
    return columns.view(d, runs, k).permute(1, 2, 0), found.t()
