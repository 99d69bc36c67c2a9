"""Programs of PyTorch to compile, as users write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        mixed = functional.scaled_dot_product_attention(*heads.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A model of language whose first and last layer share their weights."""

    def __init__(self, width: int = 32, heads: int = 2, layers: int = 2, words: int = 50) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(self.blocks(self.words(tokens)))


def images() -> nn.Module:
    """A small classifier of images."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 32, 3),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(288, 10),
    )


def step(model: Any, optimizer: Any, inputs: Any, labels: Any) -> Any:
    """A step of training."""
    optimizer.zero_grad()
    logits = model(inputs)
    loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def looks_at_its_loss(model: Any, optimizer: Any, inputs: Any, labels: Any) -> Any:
    return step(model, optimizer, inputs, labels).item()


def of_words(batch: int = 2) -> Any:
    """A transformer, AdamW and tokens."""
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.randint(0, 50, (batch, 16)), torch.randint(0, 50, (batch, 16))


def of_images(batch: int = 2) -> Any:
    """A classifier, SGD with momentum and images."""
    model = images()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))


def pictures(batch: int = 2) -> Any:
    """The classifier's input."""
    return torch.zeros(batch, 3, 32, 32)


def wide() -> nn.Module:
    """A layer that no TPU has room for."""
    return nn.Linear(1 << 17, 1 << 17)


def wide_input() -> Any:
    return torch.zeros(8, 1 << 17)
