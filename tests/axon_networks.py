"""Small networks of torch, as they are written by hand, and inputs of random sizes."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU()
        self.skip = nn.Identity()
        if stride != 1 or inner != outer:
            conv = nn.Conv2d(inner, outer, 1, stride, bias=False)
            self.skip = nn.Sequential(conv, nn.BatchNorm2d(outer))

    def forward(self, x):
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + self.skip(x))


class ResNet(nn.Module):
    def __init__(self, width=4, layers=(3, 4, 6, 3)):
        super().__init__()
        conv = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.stem = nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        blocks, inner = [], width
        for level, count in enumerate(layers):
            for index in range(count):
                outer = width * 2**level
                blocks.append(Block(inner, outer, 2 if level and not index else 1))
                inner = outer
        self.body = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(inner, 10)

    def forward(self, x):
        return self.last(torch.flatten(self.pool(self.body(self.stem(x))), 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in ((3, 4), (4, 8), (8, 8)))
        sizes = ((8, 8), (16, 4), (8, 3))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in sizes)
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        kept = [x]
        for down in self.down:
            kept.append(torch.relu(down(kept[-1])))
        y = kept.pop()
        for up in self.up:
            y = torch.cat([up(y), kept.pop()], 1)
        return self.last(y)


def feed_forward(size, inner):
    return nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Linear(inner, size))


class Mixer(nn.Module):
    def __init__(self, tokens=6, width=8):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = feed_forward(tokens, 12), feed_forward(width, 16)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Attention(nn.Module):
    def __init__(self, width=12, heads=3):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.width = heads, width

    def forward(self, x):
        batch, length = x.size(0), x.shape[1]
        split = batch, length, self.heads, self.width // self.heads
        q, k, v = (p(x).view(*split).transpose(1, 2) for p in (self.q, self.k, self.v))
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / 2.0, dim=-1)
        mixed = torch.matmul(weights, v).transpose(1, 2)
        return self.out(mixed.reshape(batch, length, self.width))


class Bert(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.attention = Attention(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = feed_forward(width, 24)

    def forward(self, ids):
        x = self.words(ids)
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.inner(x))


class ViT(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.attention = Attention(width)
        self.norm = nn.LayerNorm(width)
        self.inner = feed_forward(width, 24)
        self.last = nn.Linear(width, 5)

    def forward(self, x):
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = y + self.attention(self.norm(y))
        y = y + self.inner(y)
        return self.last(y.mean(1))


def images(rng, unit=1, most=40):
    sizes = [unit * rng.randint(1, most // unit) for _ in range(2)]
    return torch.randn(rng.randint(1, 3), 3, *sizes)


NETWORKS = {
    "resnet34": (ResNet, {"x": "n 3 h w"}, images),
    "unet": (UNet, {"x": "n 3 h w"}, lambda rng: images(rng, 8)),
    "mixer": (Mixer, {"x": "n 6 8"}, lambda rng: torch.randn(rng.randint(1, 4), 6, 8)),
    "bert": (
        Bert,
        {"ids": "b t"},
        lambda rng: torch.randint(0, 11, (rng.randint(1, 4), rng.randint(1, 9))),
    ),
    "vit": (ViT, {"x": "n 3 h w"}, lambda rng: images(rng, 4)),
}
