#!/usr/bin/python3
"""Trains the network of the quickstart and writes it as ONNX.

This is run by hand, never by the build or by CI: the repository holds its result, shapes.onnx. That
file was made so, with PyTorch 1.13 (Debian 12, python3-torch) on a CPU:

    cc -O2 -ffp-contract=off shapes.c -lm -o shapes
    ./shapes --count 50000 --seed 1 -o train.bin
    ./shapes --count 10000 --seed 2 -o test.bin
    python3 train_shapes.py train.bin test.bin shapes.onnx

which took 20 minutes on two cores and ended with 95.56 % of the test pictures named correctly.

The network is exported as it was trained, on purpose: each BatchNormalization and each ReLU is
still a node of its own, because folding and fusing them is what the quickstart shows.

Input "input" [N,3,32,32] = (byte / 255 - 0.5) / 0.25, output "logits" [N,10].
"""
import argparse
import time

import numpy as np
import torch
from torch import nn

MEAN, STD = 0.5, 0.25
SAMPLE_BYTES = 1 + 3 * 32 * 32


def read_samples(path):
    """Returns pictures (uint8 [N,3,32,32]) and labels (int64 [N]) of a CIFAR-10 binary file."""
    rows = np.fromfile(path, dtype=np.uint8).reshape(-1, SAMPLE_BYTES)
    pictures = torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32).copy())
    labels = torch.from_numpy(rows[:, 0].astype(np.int64))
    return pictures, labels


def preprocess(pictures):
    """Also puts the channels last in memory, which nearly halves the time of a step on a CPU."""
    scaled = (pictures.float() / 255 - MEAN) / STD
    return scaled.contiguous(memory_format=torch.channels_last)


class Layer(nn.Sequential):
    """A convolution, its BatchNorm (which makes a bias superfluous) and perhaps an activation."""

    def __init__(self, inputs, outputs, size, act=None, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        if act is not None:
            self.act = act


class Separable(nn.Sequential):
    """Halves the picture: depthwise 3x3 with stride 2, then 1x1 to the new channel count."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.depthwise = Layer(inputs, inputs, 3, nn.ReLU6(), stride=2, groups=inputs)
        self.pointwise = Layer(inputs, outputs, 1, nn.ReLU())


class Basic(nn.Module):
    """The residual block of ResNet: two full 3x3 convolutions, an activation after the sum."""

    def __init__(self, channels):
        super().__init__()
        self.first = Layer(channels, channels, 3, nn.ReLU())
        self.second = Layer(channels, channels, 3)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(x + self.second(self.first(x)))


class Inverted(nn.Module):
    """The residual block of MobileNetV2: widen, depthwise 3x3, narrow; none after the sum."""

    def __init__(self, channels, wide):
        super().__init__()
        self.widen = Layer(channels, wide, 1, nn.ReLU6())
        self.depthwise = Layer(wide, wide, 3, nn.ReLU6(), groups=wide)
        self.narrow = Layer(wide, channels, 1)

    def forward(self, x):
        return x + self.narrow(self.depthwise(self.widen(x)))


class Network(nn.Sequential):
    """The attribute names become the node names of the ONNX file, such as /down1/pointwise/Conv."""

    def __init__(self):
        super().__init__()
        self.stem = Layer(3, 16, 3, nn.ReLU())  # 32x32
        self.down1 = Separable(16, 32)  # 16x16
        self.basic = Basic(32)
        self.down2 = Separable(32, 64)  # 8x8
        self.inverted = Inverted(64, 128)
        self.down3 = Separable(64, 128)  # 4x4
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(128, 10)


def accuracy(network, pictures, labels):
    network.eval()
    right = 0
    with torch.no_grad():
        for some, truth in zip(pictures.split(500), labels.split(500)):
            right += (network(preprocess(some)).argmax(1) == truth).sum().item()
    return right / len(labels)


def train(network, pictures, labels, epochs, batch):
    network.to(memory_format=torch.channels_last)
    steps = len(labels) // batch
    # Decay pulls weights towards 0, not the scale and shift of BatchNorm, nor a bias.
    decayed = [p for p in network.parameters() if p.dim() > 1]
    others = [p for p in network.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.02}, {"params": others, "weight_decay": 0.0}]
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.004, epochs * steps)
    loss_of = nn.CrossEntropyLoss()
    start = time.time()
    for epoch in range(epochs):
        network.train()
        total = 0.0
        for chosen in torch.randperm(len(labels))[: steps * batch].split(batch):
            loss = loss_of(network(preprocess(pictures[chosen])), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        seconds = time.time() - start
        print(f"epoch {epoch + 1}: loss {total / steps:.4f}, {seconds:.0f} s", flush=True)


def export(network, path):
    """Writes the network in inference mode with nothing folded (PRESERVE keeps BatchNorm nodes)."""
    network.eval().to(memory_format=torch.contiguous_format)
    torch.onnx.export(
        network,
        torch.zeros(1, 3, 32, 32),
        path,
        opset_version=13,
        training=torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=False,
        input_names=["input"],
        output_names=["logits"],
        dynamic_axes={"input": {0: "N"}, "logits": {0: "N"}},
    )


def main():
    parser = argparse.ArgumentParser(description="Trains the quickstart's network.")
    parser.add_argument("train", help="training pictures, written by shapes")
    parser.add_argument("test", help="test pictures, of another seed")
    parser.add_argument("output", help="the ONNX file to write")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    network = Network()
    print(f"{sum(p.numel() for p in network.parameters())} parameters")
    train(network, *read_samples(args.train), args.epochs, args.batch)
    print(f"top-1 on {args.test}: {100 * accuracy(network, *read_samples(args.test)):.2f} %")
    export(network, args.output)


if __name__ == "__main__":
    main()
