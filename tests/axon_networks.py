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


def linear_norm(inner, outer):
    return nn.Sequential(nn.Linear(inner, outer), nn.BatchNorm1d(outer), nn.ReLU())


def conv_norm(inner, outer, size=3, stride=1, groups=1, act=nn.ReLU):
    conv = nn.Conv2d(inner, outer, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outer), act())


class Bottleneck(nn.Module):
    """A block of ResNet-50: 1x1, 3x3, 1x1."""

    def __init__(self, inner, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(inner, width, 1),
            conv_norm(width, width, 3, stride),
            conv_norm(width, 4 * width, 1, act=nn.Identity),
        )
        self.skip = nn.Identity()
        if stride != 1 or inner != 4 * width:
            self.skip = conv_norm(inner, 4 * width, 1, stride, act=nn.Identity)

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


class Classifier(nn.Module):
    """Features, their mean over an image, classes."""

    def __init__(self, features, width):
        super().__init__()
        self.features, self.pool = features, nn.AdaptiveAvgPool2d(1)
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        return self.last(torch.flatten(self.pool(self.features(x)), 1))


def resnet50():
    blocks, inner = [conv_norm(3, 4, 7, 2), nn.MaxPool2d(3, 2, 1)], 4
    for level, count in enumerate((3, 4, 6, 3)):
        for index in range(count):
            blocks.append(Bottleneck(inner, 2 * 2**level, 2 if level and not index else 1))
            inner = 8 * 2**level
    return Classifier(nn.Sequential(*blocks), inner)


def vgg():
    layers, inner = [], 3
    for outer in (4, 0, 4, 0, 8, 8, 0, 8, 8, 0, 8, 8, 0):
        layers.append(conv_norm(inner, outer) if outer else nn.MaxPool2d(2, 2))
        inner = outer or inner
    return Classifier(nn.Sequential(*layers), inner)


class Dense(nn.Module):
    """A block of DenseNet: each layer takes what all before it gave."""

    def __init__(self, inner, growth, count):
        super().__init__()
        widths = range(inner, inner + growth * count, growth)
        self.layers = nn.ModuleList(conv_norm(width, growth) for width in widths)

    def forward(self, x):
        kept = [x]
        for layer in self.layers:
            kept.append(layer(torch.cat(kept, 1)))
        return torch.cat(kept, 1)


def densenet():
    shrink = nn.Sequential(conv_norm(12, 6, 1), nn.AvgPool2d(2, 2))
    features = nn.Sequential(conv_norm(3, 4, 7, 2), Dense(4, 2, 4), shrink, Dense(6, 2, 4))
    return Classifier(features, 14)


class Inception(nn.Module):
    """A block of GoogLeNet: four ways side by side."""

    def __init__(self, inner):
        super().__init__()
        self.one = conv_norm(inner, 4, 1)
        self.three = nn.Sequential(conv_norm(inner, 2, 1), conv_norm(2, 4))
        self.five = nn.Sequential(conv_norm(inner, 2, 1), conv_norm(2, 2, 5))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv_norm(inner, 2, 1))

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


def googlenet():
    stem = nn.Sequential(conv_norm(3, 4, 7, 2), nn.MaxPool2d(3, 2, 1))
    return Classifier(nn.Sequential(stem, Inception(4), Inception(12)), 12)


class Squeeze(nn.Module):
    """Squeeze and excitation: channels are scaled by what an image has of them."""

    def __init__(self, width, act, gate):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.scale = nn.Sequential(
            nn.Conv2d(width, width // 2, 1), act(), nn.Conv2d(width // 2, width, 1), gate()
        )

    def forward(self, x):
        return x * self.scale(self.pool(x))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3 and EfficientNet."""

    def __init__(self, inner, outer, stride, size, act, gate):
        super().__init__()
        wide = 2 * inner
        self.body = nn.Sequential(
            conv_norm(inner, wide, 1, act=act),
            conv_norm(wide, wide, size, stride, groups=wide, act=act),
            Squeeze(wide, act, gate),
            conv_norm(wide, outer, 1, act=nn.Identity),
        )
        self.keeps = stride == 1 and inner == outer

    def forward(self, x):
        return x + self.body(x) if self.keeps else self.body(x)


def inverted(act, gate):
    sizes = ((4, 4, 1, 3), (4, 6, 2, 3), (6, 6, 1, 5), (6, 8, 2, 5))
    blocks = [Inverted(a, b, stride, size, act, gate) for a, b, stride, size in sizes]
    return Classifier(nn.Sequential(conv_norm(3, 4, 3, 2, act=act), *blocks), 8)


class FCN(nn.Module):
    """Classes of pixels from features of three scales (Long et al.)."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(conv_norm(a, b, 3, 2) for a, b in ((3, 4), (4, 6), (6, 8)))
        self.score = nn.ModuleList(nn.Conv2d(a, 2, 1) for a in (4, 6, 8))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2, 2, 4, 2, 1) for _ in range(3))

    def forward(self, x):
        kept = []
        for down, score in zip(self.down, self.score):
            x = down(x)
            kept.append(score(x))
        y = self.up[2](kept[2]) + kept[1]
        return self.up[0](self.up[1](y) + kept[0])


class DeepLab(nn.Module):
    """Dilated convolutions side by side over features, and the mean of the image."""

    def __init__(self):
        super().__init__()
        self.stem = conv_norm(3, 4, 3, 2)
        self.ways = nn.ModuleList(
            nn.Conv2d(4, 3, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)
        )
        self.pool, self.whole = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 9, 1)
        self.up, self.last = nn.Upsample(scale_factor=2), nn.Conv2d(9, 2, 1)

    def forward(self, x):
        y = self.stem(x)
        mixed = torch.cat([way(y) for way in self.ways], 1) + self.whole(self.pool(y))
        return self.last(self.up(mixed))


class Decoder(nn.Module):
    """A block of GPT-2; a learned mask of numbers stands for the causal one."""

    def __init__(self, width=12, gate=None):
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.attention = Attention(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = feed_forward(width, 24)
        self.last = nn.Linear(width, 11, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        x = x + self.attention(self.norm1(x))
        x = x + self.inner(self.norm2(x))
        return self.last(x)


class RootMeanSquare(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, True) + 1e-5) * self.scale


class Llama(nn.Module):
    """A block of Llama: RMS norms and a gated feed-forward network."""

    def __init__(self, width=12):
        super().__init__()
        self.words = nn.Embedding(11, width)
        self.attention = Attention(width)
        self.norm1, self.norm2 = RootMeanSquare(width), RootMeanSquare(width)
        self.gate, self.up = (nn.Linear(width, 24, bias=False) for _ in range(2))
        self.down, self.act = nn.Linear(24, width, bias=False), nn.SiLU()

    def forward(self, ids):
        x = self.words(ids)
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(self.act(self.gate(y)) * self.up(y))


class ConvNeXt(nn.Module):
    """A block of ConvNeXt, channels last inside, after patches of four."""

    def __init__(self, width=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.inner = nn.LayerNorm(width), feed_forward(width, 16)
        self.scale = nn.Parameter(torch.rand(width))

    def forward(self, x):
        x = self.patches(x)
        y = self.spread(x).permute(0, 2, 3, 1)
        y = self.inner(self.norm(y)) * self.scale
        return x + y.permute(0, 3, 1, 2)


class Swin(nn.Module):
    """Attention inside of windows of two by two patches."""

    def __init__(self, width=12, window=2):
        super().__init__()
        self.patches, self.window = nn.Conv2d(3, width, 4, 4), window
        self.norm, self.attention = nn.LayerNorm(width), Attention(width)

    def forward(self, x):
        y, k = self.patches(x).permute(0, 2, 3, 1), self.window
        n, h, w, c = y.size(0), y.size(1), y.size(2), y.size(3)
        y = y.view(n, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5)
        y = self.attention(self.norm(y.reshape(-1, k * k, c)))
        y = y.view(n, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5)
        return y.reshape(n, h, w, c)


class Whisper(nn.Module):
    """The encoder of Whisper: two convolutions over time, then a block."""

    def __init__(self, width=12):
        super().__init__()
        self.conv1 = nn.Conv1d(5, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.attention, self.norm = Attention(width), nn.LayerNorm(width)
        self.inner = feed_forward(width, 24)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.conv1(x))
        y = torch.nn.functional.gelu(self.conv2(y)).permute(0, 2, 1)
        y = y + self.attention(self.norm(y))
        return y + self.inner(y)


class WaveNet(nn.Module):
    """Dilated convolutions over time, gated, that shorten what they take nothing of."""

    def __init__(self, width=4):
        super().__init__()
        self.first = nn.Conv1d(2, width, 1)
        self.ways, self.gates = (
            nn.ModuleList(nn.Conv1d(width, width, 3, padding=d, dilation=d) for d in (1, 2, 4))
            for _ in range(2)
        )
        self.last = nn.Conv1d(width, 3, 1)

    def forward(self, x):
        x = self.first(x)
        for way, gate in zip(self.ways, self.gates):
            x = x + torch.tanh(way(x)) * torch.sigmoid(gate(x))
        return self.last(torch.relu(x))


class PointNet(nn.Module):
    """Features of each point, and their mean over all points."""

    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU())
        self.pool, self.last = nn.AdaptiveAvgPool1d(1), linear_norm(8, 5)

    def forward(self, x):
        return self.last(torch.flatten(self.pool(self.each(x)), 1))


class T5(nn.Module):
    """An encoder with a bias for each distance, in buckets that grow with it, by RMS norms."""

    def __init__(self, width=12, heads=3, buckets=8):
        super().__init__()
        self.words, self.bias = nn.Embedding(11, width), nn.Embedding(buckets, heads)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(RootMeanSquare(width) for _ in range(2))
        self.inner = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, width))
        self.heads, self.width, self.buckets = heads, width, buckets

    def distances(self, length):
        places = torch.arange(length)
        apart = places.unsqueeze(0) - places.unsqueeze(1)
        half = self.buckets // 2
        near = torch.abs(apart)
        far = torch.log((torch.maximum(near, near * 0 + 1)).float() / (half // 2)) * 1.4
        far = torch.minimum((far + half // 2).long(), near * 0 + half - 1)
        bucket = torch.where(near < half // 2, near, far)
        return self.bias(bucket + (apart > 0).long() * half).permute(2, 0, 1)

    def forward(self, ids):
        x = self.words(ids)
        y = self.norms[0](x)
        batch, length = ids.size(0), ids.size(1)
        split = batch, length, self.heads, self.width // self.heads
        q, k, v = (p(y).view(*split).transpose(1, 2) for p in (self.q, self.k, self.v))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) + self.distances(length)
        mixed = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, length, self.width))
        return x + self.inner(self.norms[1](x))


class Clip(nn.Module):
    """Images beside texts that are known: how near their directions are."""

    def __init__(self, width=5):
        super().__init__()
        self.images, self.words = ViT(), Bert()
        self.project = nn.Linear(12, width, bias=False)
        self.scale = nn.Parameter(torch.tensor(1.3))
        self.register_buffer("texts", torch.randint(0, 11, (4, 6)))

    def forward(self, x):
        images = nn.functional.normalize(self.images(x), dim=-1)
        texts = self.project(self.words(self.texts)[:, -1])
        texts = texts / texts.norm(dim=-1, keepdim=True)
        return torch.exp(self.scale) * images @ texts.t()


class LSTM(nn.Module):
    """A cell over the items of a sequence of a known length, of any number of sequences."""

    def __init__(self, inner=4, width=6, length=5):
        super().__init__()
        self.new, self.kept = nn.Linear(inner, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.length, self.width = length, width

    def forward(self, x):
        hidden = x[:, 0, :1].expand(-1, self.width) * 0.0
        cell, found = hidden, []
        for step in range(self.length):
            gates = self.new(x[:, step]) + self.kept(hidden)
            put, forget, value, out = gates.chunk(4, dim=-1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(put) * torch.tanh(value)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
            found.append(hidden)
        return torch.stack(found, 1)


def images(rng, unit=1, most=40):
    sizes = [unit * rng.randint(1, most // unit) for _ in range(2)]
    return torch.randn(rng.randint(1, 3), 3, *sizes)


def words(rng):
    return torch.randint(0, 11, (rng.randint(1, 4), rng.randint(1, 9)))


def signals(channels, most=40):
    return lambda rng: torch.randn(rng.randint(1, 3), channels, rng.randint(1, most))


IMAGES, WORDS = {"x": "n 3 h w"}, {"ids": "b t"}
# How one is made, the sizes of its input, an input, the guards (None: they are alternatives).
NETWORKS = {
    "resnet34": (ResNet, IMAGES, images, ["h >= 1", "w >= 1"]),
    "unet": (
        UNet,
        IMAGES,
        lambda rng: images(rng, 8),
        ["h % 8 == 0", "h >= 8", "w % 8 == 0", "w >= 8"],
    ),
    "mixer": (Mixer, {"x": "n 6 8"}, lambda rng: torch.randn(rng.randint(1, 4), 6, 8), []),
    "bert": (Bert, WORDS, words, []),
    "vit": (ViT, IMAGES, lambda rng: images(rng, 4), ["h >= 4", "w >= 4"]),
    "swin": (
        Swin,
        IMAGES,
        lambda rng: images(rng, 8),
        ["w >= 4", "h >= 4", "4*n*(h//8)*(w//8) == n*(h//4)*(w//4)"],
    ),
}
MORE = {  # in `make long`
    "resnet18": (lambda: ResNet(layers=(2, 2, 2, 2)), IMAGES, images, ["h >= 1", "w >= 1"]),
    "resnet50": (resnet50, IMAGES, images, ["h >= 1", "w >= 1"]),
    "vgg": (vgg, IMAGES, lambda rng: images(rng, 32, 96), ["h >= 32", "w >= 32"]),
    "densenet": (densenet, IMAGES, lambda rng: images(rng, 4), ["h >= 3", "w >= 3"]),
    "googlenet": (googlenet, IMAGES, images, ["h >= 1", "w >= 1"]),
    "mobilenet": (
        lambda: inverted(nn.Hardswish, nn.Hardsigmoid),
        IMAGES,
        images,
        ["h >= 1", "w >= 1"],
    ),
    "efficientnet": (lambda: inverted(nn.SiLU, nn.Sigmoid), IMAGES, images, ["h >= 1", "w >= 1"]),
    "convnext": (ConvNeXt, IMAGES, lambda rng: images(rng, 4), ["h >= 4", "w >= 4"]),
    "fcn": (FCN, IMAGES, lambda rng: images(rng, 8), None),
    "deeplab": (DeepLab, IMAGES, images, ["h >= 1", "w >= 1"]),
    "gpt2": (Decoder, WORDS, words, []),
    "llama": (Llama, WORDS, words, []),
    "whisper": (Whisper, {"x": "n 5 t"}, signals(5), ["t >= 1"]),
    "wavenet": (WaveNet, {"x": "n 2 t"}, signals(2), ["t >= 1"]),
    "t5": (T5, WORDS, words, []),
    "clip": (Clip, IMAGES, lambda rng: images(rng, 4), ["h >= 4", "w >= 4"]),
    "lstm": (LSTM, {"x": "n 5 4"}, lambda rng: torch.randn(rng.randint(1, 5), 5, 4), []),
    "pointnet": (PointNet, {"x": "n 3 p"}, signals(3), ["p >= 1"]),
}
