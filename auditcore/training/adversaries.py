"""Discriminators in the training loop. In: labelled vectors of training prompts. Out: losses that a model turns.

Each adversary reads one artifact for one attribute and is fitted on a bank of recent vectors. What it reaches in the
loop is no evidence about leakage: only a fresh probe on frozen vectors is. Classes weigh the same, as in the audit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from auditcore.spec import ADVERSARIES as NAMES
from auditcore.spec import DiscriminatorSpec
from auditcore.training.prompts import UNKNOWN

RIDGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
FACTORS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.08, 0.04, 0.0)


@dataclass(frozen=True)
class Block:
    """Vectors of some prompts under one state of the model."""

    vectors: dict[str, torch.Tensor]  # artifact -> float32 [n, width], without gradient
    codes: torch.Tensor  # int64 [n, attributes], UNKNOWN where there is no label


@dataclass
class Bank:
    """Vectors the adversaries are fitted on: the last few refreshes, and the batches since the last of them.

    A model moves on with every step, so vectors are worth little after a few dozen; a bank of one batch is overfitted.
    """

    kept: int
    fresh: list[Block] = field(default_factory=list)
    recent: list[Block] = field(default_factory=list)

    def refresh(self, block: Block) -> None:
        """Take vectors that were made anew; the oldest of `kept` refreshes and all batches leave."""
        self.fresh = [*self.fresh, block][-self.kept :]
        self.recent = []

    def add(self, block: Block) -> None:
        """Take the vectors of a training step."""
        self.recent.append(block)

    def cell(self, artifact: str, attribute: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors float32 [n, width] and codes int64 [n] of the rows whose attribute is known."""
        blocks = [*self.fresh, *self.recent]
        codes = torch.cat([b.codes[:, attribute] for b in blocks])
        known = codes != UNKNOWN
        return torch.cat([b.vectors[artifact] for b in blocks])[known], codes[known]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything it holds, by name; `load` takes it back."""
        found = {}
        for kind, blocks in (("fresh", self.fresh), ("recent", self.recent)):
            for i, block in enumerate(blocks):
                found[f"{kind}/{i:04d}/codes"] = block.codes
                found |= {f"{kind}/{i:04d}/vectors/{name}": v for name, v in block.vectors.items()}
        return found

    def load(self, tensors: dict[str, torch.Tensor], device: torch.device) -> None:
        """Take back what `tensors` gave."""
        for kind in ("fresh", "recent"):
            blocks = []
            for prefix in sorted({name.split("/")[1] for name in tensors if name.startswith(f"{kind}/")}):
                start = f"{kind}/{prefix}/vectors/"
                vectors = {n.removeprefix(start): t.to(device) for n, t in tensors.items() if n.startswith(start)}
                blocks.append(Block(vectors, tensors[f"{kind}/{prefix}/codes"].to(device)))
            setattr(self, kind, blocks)


class Adversary(Protocol):
    """One attacker in the loop, on one artifact and one attribute of K classes."""

    name: str

    def refit(self, vectors: torch.Tensor, codes: torch.Tensor, renewed: bool) -> None:
        """Follow the bank (float32 [n, width], int64 [n]); `renewed` when it was refreshed since the last call."""

    def losses(self, vectors: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Losses float32 [n] that the adversary lowers, differentiable in `vectors`, and which rows it names right."""

    def learn(self, vectors: torch.Tensor, codes: torch.Tensor, rng: np.random.Generator) -> None:
        """Take steps of its own on the bank."""

    def parameters(self) -> list[torch.nn.Parameter]:
        """What it learns by gradient; empty when it is fitted in closed form."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a resumed training must bring back."""

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave."""


class _ClosedForm:
    """An adversary that the bank alone decides."""

    def learn(self, vectors: torch.Tensor, codes: torch.Tensor, rng: np.random.Generator) -> None:
        pass

    def parameters(self) -> list[torch.nn.Parameter]:
        return []

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        pass


class Ridge(_ClosedForm):
    """Regularised discriminant analysis, which is ridge regression on the labels read as a classifier.

    Vectors are standardised and classes compared in the metric of their common covariance, to which `ridge` times the
    identity is added (ridge x n on the scale of sums of squares), so that it sees directions of low variance as a
    standardised logistic regression does. At every refresh the ridge (where the spec says auto) and one factor on the
    logits are chosen by the log-loss on rows left out: an adversary that is sure of what it has merely memorised sends
    a useless gradient. Where nothing carries over to other rows, the factor is 0.
    """

    name = "ridge"

    def __init__(self, width: int, n_classes: int, spec: DiscriminatorSpec, seed: int, device: torch.device) -> None:
        self.n_classes, self.seed = n_classes, seed
        self.grid = RIDGES if spec.ridge == "auto" else (spec.ridge,)
        self.ridge, self.factor = self.grid[0], 1.0
        self.weight = torch.zeros(width, n_classes, device=device)
        self.bias = torch.zeros(n_classes, device=device)
        self.balance = torch.ones(n_classes, device=device)

    @torch.no_grad()
    def refit(self, vectors: torch.Tensor, codes: torch.Tensor, renewed: bool) -> None:
        self.balance = _class_weights(codes, self.n_classes)
        if renewed:
            self._choose(vectors, codes)
        weight, bias = self._fit(vectors, codes, (self.ridge,))[0]
        self.weight, self.bias = self.factor * weight, self.factor * bias

    def _choose(self, vectors: torch.Tensor, codes: torch.Tensor) -> None:
        """Ridge and factor with the lowest balanced log-loss on three folds of rows left out."""
        rng = np.random.default_rng([self.seed, 0x41D6])
        fold = torch.from_numpy(rng.permutation(len(codes)) % 3).to(codes.device)
        loss = torch.zeros(len(self.grid), len(FACTORS), dtype=torch.float64)
        for k in range(3):
            held = fold == k
            for i, (weight, bias) in enumerate(self._fit(vectors[~held], codes[~held], self.grid)):
                logits = vectors[held] @ weight + bias
                for j, factor in enumerate(FACTORS):
                    loss[i, j] += _cross_entropy(factor * logits, codes[held], self.balance)[0].sum().cpu()
        best = int(loss.argmin())
        self.ridge, self.factor = self.grid[best // len(FACTORS)], FACTORS[best % len(FACTORS)]

    def _fit(
        self, vectors: torch.Tensor, codes: torch.Tensor, ridges: tuple[float, ...]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Weights [width, K] and biases [K] of the logits, one pair for each ridge."""
        mean, deviation = _moments(vectors)
        z = (vectors - mean) / deviation
        means = _class_means(z, codes, self.n_classes)
        inner = z - means[codes]
        share = _class_weights(codes, self.n_classes)[codes] / len(codes)  # adds up to 1, each class to 1 / K
        covariance = inner.T @ (share[:, None] * inner)
        centre = means.mean(dim=0)
        means = means - centre
        if covariance.device.type != "mps":  # which has no float64
            covariance, means = covariance.double(), means.double()
        found = []
        for ridge in ridges:
            shrunk = covariance.clone()
            shrunk.diagonal().add_(ridge)
            solved = torch.cholesky_solve(means.T, torch.linalg.cholesky(shrunk))
            bias = -0.5 * (means.T * solved).sum(dim=0) - centre.to(solved.dtype) @ solved
            weight = (solved / deviation[:, None]).float()
            found.append((weight, bias.float() - mean @ weight))
        return found

    def losses(self, vectors: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return _cross_entropy(vectors @ self.weight + self.bias, codes, self.balance)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"chosen": torch.tensor([self.ridge, self.factor], dtype=torch.float64)}

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.ridge, self.factor = tensors["chosen"].tolist()


class Moment(_ClosedForm):
    """Squared cross-covariance of the standardised vector with the one-hot label, as something an adversary raises.

    The cross-covariance C comes from the bank; a row's loss is -2 z' C (y - 1/K), whose mean over rows has the gradient
    of -|C|^2. A batch's own square would be mostly noise.
    """

    name = "moment"

    def __init__(self, width: int, n_classes: int, spec: DiscriminatorSpec, seed: int, device: torch.device) -> None:
        self.n_classes = n_classes
        self.weight = torch.zeros(width, n_classes, device=device)
        self.bias = torch.zeros(n_classes, device=device)
        self.balance = torch.ones(n_classes, device=device)

    @torch.no_grad()
    def refit(self, vectors: torch.Tensor, codes: torch.Tensor, renewed: bool) -> None:
        self.balance = _class_weights(codes, self.n_classes)
        mean, deviation = _moments(vectors)
        means = _class_means((vectors - mean) / deviation, codes, self.n_classes)
        cross = (means - means.mean(dim=0)).T / self.n_classes
        # The columns of `cross` add up to 0, so that taking 1/K off the one-hot label changes nothing.
        self.weight = 2.0 * cross / deviation[:, None]
        self.bias = -(mean @ self.weight)

    def losses(self, vectors: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        scores = vectors @ self.weight + self.bias
        return -scores.gather(1, codes[:, None])[:, 0] * self.balance[codes], None


class Mlp:
    """Two-layer perceptron on standardised vectors, trained by AdamW on the bank and on what the model shows it.

    With `restart` it begins anew at every refresh: one that goes on comes to know the training prompts by heart, and a
    model learns to fool that one only.
    """

    name = "mlp"

    def __init__(self, width: int, n_classes: int, spec: DiscriminatorSpec, seed: int, device: torch.device) -> None:
        self.n_classes, self.spec, self.seed, self.starts = n_classes, spec, seed, 0
        first = torch.nn.utils.skip_init(torch.nn.Linear, width, spec.hidden)
        second = torch.nn.utils.skip_init(torch.nn.Linear, spec.hidden, n_classes)
        self.net = torch.nn.Sequential(first, torch.nn.ReLU(), second).to(device)
        self._start()
        self.mean = torch.zeros(width, device=device)
        self.deviation = torch.ones(width, device=device)
        self.balance = torch.ones(n_classes, device=device)

    def _start(self) -> None:
        """New weights, from a random stream of its own: the model's is left as it is."""
        generator = torch.Generator().manual_seed(
            int(np.random.SeedSequence([self.seed, self.starts]).generate_state(1)[0])
        )
        for layer in (self.net[0], self.net[2]):
            bound = (6.0 / (layer.in_features + layer.out_features)) ** 0.5
            for parameter in (layer.weight, layer.bias):
                values = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
                with torch.no_grad():
                    parameter.copy_(values)
        self.optimizer = torch.optim.AdamW(
            self.net.parameters(), lr=self.spec.learning_rate, weight_decay=self.spec.weight_decay, foreach=True
        )

    def refit(self, vectors: torch.Tensor, codes: torch.Tensor, renewed: bool) -> None:
        if not renewed:  # between refreshes its inputs keep their scale
            return
        self.mean, self.deviation = _moments(vectors)
        self.balance = _class_weights(codes, self.n_classes)
        if self.spec.restart or self.starts == 0:
            if self.starts:
                self._start()
            self.starts += 1
            self._practise(
                vectors, codes, np.random.default_rng([self.seed, self.starts, 0x313]), self.spec.start_updates
            )

    def losses(self, vectors: torch.Tensor, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        return _cross_entropy(self.net((vectors - self.mean) / self.deviation), codes, self.balance)

    def learn(self, vectors: torch.Tensor, codes: torch.Tensor, rng: np.random.Generator) -> None:
        """First the gradient that came with the turned one, if any, then steps on batches drawn from the bank."""
        if any(p.grad is not None for p in self.net.parameters()):
            self._step()
        self._practise(vectors, codes, rng, self.spec.updates)

    def _practise(self, vectors: torch.Tensor, codes: torch.Tensor, rng: np.random.Generator, updates: int) -> None:
        size = min(len(codes), self.spec.batch_size)
        for _ in range(updates):
            rows = torch.from_numpy(rng.choice(len(codes), size=size, replace=False)).to(codes.device)
            self.losses(vectors[rows], codes[rows])[0].mean().backward()
            self._step()

    def _step(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.spec.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.net.parameters())

    def tensors(self) -> dict[str, torch.Tensor]:
        found = {"mean": self.mean, "deviation": self.deviation, "balance": self.balance}
        found["starts"] = torch.tensor(self.starts)
        for i, parameter in enumerate(self.net.parameters()):
            found[f"{i}/weight"] = parameter.detach()
            found |= {f"{i}/{name}": value for name, value in self.optimizer.state.get(parameter, {}).items()}
        return found

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        device = self.mean.device
        self.starts = int(tensors["starts"])
        self.mean, self.deviation, self.balance = (tensors[k].to(device) for k in ("mean", "deviation", "balance"))
        for i, parameter in enumerate(self.net.parameters()):
            mine = {name.split("/")[1]: t for name, t in tensors.items() if name.startswith(f"{i}/")}
            with torch.no_grad():
                parameter.copy_(mine.pop("weight"))
            if mine:
                # `step` stays where AdamW keeps it: on the CPU.
                self.optimizer.state[parameter] = {k: t if k == "step" else t.to(device) for k, t in mine.items()}


# The names a spec can choose (`spec.ADVERSARIES`): (width, classes, settings, seed, device) -> an adversary.
ADVERSARIES: dict[str, Callable[[int, int, DiscriminatorSpec, int, torch.device], Adversary]] = {
    "mlp": Mlp,
    "ridge": Ridge,
    "moment": Moment,
}
assert ADVERSARIES.keys() == NAMES.keys()


def _cross_entropy(
    logits: torch.Tensor, codes: torch.Tensor, balance: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    losses = F.cross_entropy(logits, codes, reduction="none") * balance[codes]
    return losses, logits.detach().argmax(dim=1) == codes


def _class_weights(codes: torch.Tensor, n_classes: int) -> torch.Tensor:
    """n / (K n_k), float32 [K]: every class weighs the same; a class that is absent gets 1."""
    counts = torch.bincount(codes, minlength=n_classes).float()
    return torch.where(counts > 0, len(codes) / (n_classes * counts.clamp(min=1)), torch.ones_like(counts))


def _class_means(z: torch.Tensor, codes: torch.Tensor, n_classes: int) -> torch.Tensor:
    """Mean of each class [K, width]; a class that is absent gets the mean of all rows."""
    wanted = F.one_hot(codes, n_classes).to(z.dtype)
    counts = wanted.sum(dim=0)
    means = wanted.T @ z / counts.clamp(min=1)[:, None]
    return torch.where(counts[:, None] > 0, means, z.mean(dim=0))


def _moments(vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation of each column; a constant column is divided by 1."""
    mean, deviation = vectors.mean(dim=0), vectors.std(dim=0, unbiased=False)
    constant = deviation <= 1e-7 * mean.abs().clamp(min=torch.finfo(torch.float32).tiny)
    return mean, torch.where(constant, torch.ones_like(deviation), deviation)
