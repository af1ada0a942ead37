#!/usr/bin/python3
"""train_scratch.py: the networks that accept_train.c trains from nothing, by the same recipe in
PyTorch.

    python3 train_scratch.py residual|separable [--seed 1] [--epochs 15] [--limit N] [--threads 2]
                             [--home FOLDER]

Data from SPARSEBIT_SHARED. Batch 64, SGD with Nesterov momentum 0.9, rate 0.1 with 100 steps of
warm-up and a cosine, decay 0.0005 but for biases, flips and moves by up to 4 pixels; He's initial
weights. Appends its line to FOLDER/table.txt as accept_train does, name NET-torch-SEED.
"""
import argparse
import math
import os
import time

import numpy as np
import torch
from torch import nn

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)


def conv(i, o, k, s=1, g=1, relu=True):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o),
                         *([nn.ReLU()] if relu else []))


class Block(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.body = nn.Sequential(conv(i, o, 3, s), conv(o, o, 3, relu=False))
        self.side = conv(i, o, 1, s, relu=False) if s > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def network(name):
    layers, width = [conv(3, 16, 3)], 16
    for stage in range(3):
        if name == "residual":
            layers.append(Block(width, 16 << stage, 1 if stage == 0 else 2))
            width = 16 << stage
        else:
            layers += [conv(width, width, 3, 2, width), conv(width, 2 * width, 1)]
            width *= 2
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    for m in net.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=math.sqrt(1 / m.in_features))
            nn.init.zeros_(m.bias)
    return net.to(memory_format=torch.channels_last)


def load(name, limit):
    path = os.path.join(os.environ["SPARSEBIT_SHARED"], "data/cifar10", name)
    rows = np.fromfile(path, np.uint8).reshape(-1, 3073)[:limit or None]
    x = (rows[:, 1:].reshape(-1, 3, 32, 32) / np.float32(255) - np.float32(MEAN).reshape(3, 1, 1))
    x = (x / np.float32(STD).reshape(3, 1, 1)).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(rows[:, 0].astype(np.int64))


def augment(x):
    """Each picture is mirrored or not, and moved with zeros behind."""
    n = len(x)
    x = torch.where((torch.rand(n) < 0.5).view(n, 1, 1, 1), x.flip(3), x)
    padded, out = nn.functional.pad(x, (4, 4, 4, 4)), torch.empty_like(x)
    for i, (a, b) in enumerate(torch.randint(0, 9, (n, 2)).tolist()):
        out[i] = padded[i, :, a:a + 32, b:b + 32]
    return out


def accuracy(net, x, y):
    net.eval()
    with torch.no_grad():
        right = sum(int((net(x[i:i + 500]).argmax(1) == y[i:i + 500]).sum())
                    for i in range(0, len(x), 500))
    net.train()
    return 100 * right / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("net", choices=("residual", "separable"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--home", default=".")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    x, y = load("train-20k.bin", args.limit)
    test = load("test-10k.bin", 0)
    net = network(args.net)
    decayed = [p for name, p in net.named_parameters() if not name.endswith("bias")]
    biases = [p for name, p in net.named_parameters() if name.endswith("bias")]
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": 5e-4}, {"params": biases}],
                                0.1, 0.9, nesterov=True)
    steps, warm, step = (len(x) + 63) // 64, 100, 0
    total, best, begin, loss = steps * args.epochs, (0.0, 0), time.time(), 0.0
    before = accuracy(net, *test)
    for epoch in range(args.epochs):
        order, loss = torch.randperm(len(x)), 0.0
        for i in range(0, len(x), 64):
            factor = ((step + 1) / warm if step < warm else
                      0.5 + 0.5 * math.cos(math.pi * (step - warm) / max(total - warm, 1)))
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * factor
            optimizer.zero_grad(set_to_none=True)
            at = order[i:i + 64]
            value = nn.functional.cross_entropy(net(augment(x[at])), y[at])
            value.backward()
            optimizer.step()
            loss, step = loss + value.item() / steps, step + 1
        best = max(best, (accuracy(net, *test), epoch + 1))
    line = (f"{args.net + '-torch-' + str(args.seed):32} top1 {best[0]:6.2f}  before {before:6.2f}"
            f"  best epoch {best[1]:2}  loss {loss:.4f}  last run {time.time() - begin:.0f} s\n")
    print(line, end="")
    with open(os.path.join(args.home, "table.txt"), "a", encoding="utf-8") as file:
        file.write(line)


if __name__ == "__main__":
    main()
