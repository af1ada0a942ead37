"""scratch_torch.py: the two networks that accept_train.c trains from nothing, by the same recipe in PyTorch.

    python3 tests/bench/scratch_torch.py TRAIN.bin TEST.bin [--epochs 15] [--seeds 3] [--net residual]

Prints the best top-1 over the epochs, as `sparsebit train` keeps it, for every seed. CIFAR-10 files:
records of a label byte and 3 x 32 x 32 bytes.
"""
import argparse
import math

import numpy
import torch
from torch import nn

MEAN = torch.tensor([0.4914, 0.4822, 0.4465]).view(1, 3, 1, 1)
STD = torch.tensor([0.247, 0.2435, 0.2616]).view(1, 3, 1, 1)


def conv(channels, out, kernel=3, stride=1, groups=1, act=True):
    layers = [nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False),
              nn.BatchNorm2d(out)] + [nn.ReLU()] * act
    nn.init.kaiming_normal_(layers[0].weight, mode="fan_in", nonlinearity="relu")
    return nn.Sequential(*layers)


class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.body = nn.Sequential(conv(channels, out, 3, stride), conv(out, out, act=False))
        self.side = (conv(channels, out, 1, stride, act=False) if channels != out
                     else nn.Identity())

    def forward(self, x):
        return torch.relu(self.body(x) + self.side(x))


def network(name):
    layers, width = [conv(3, 16)], 16
    for stage in range(3):
        if name == "residual":
            layers.append(Block(width, 16 << stage, 1 if stage == 0 else 2))
            width = 16 << stage
        else:
            layers += [conv(width, width, 3, 2, width), conv(width, 2 * width, 1)]
            width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def images(path, device):
    raw = numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)
    x = torch.from_numpy(raw[:, 1:].reshape(-1, 3, 32, 32).astype(numpy.float32) / 255)
    return ((x - MEAN) / STD).to(device), torch.from_numpy(raw[:, 0].astype(numpy.int64)).to(device)


def augmented(x):
    """Half of them mirrored, each moved by up to 4 pixels."""
    n, device = len(x), x.device
    flip = torch.rand(n, 1, 1, 1, device=device) < 0.5
    x = torch.where(flip, x.flip(3), x)
    x = nn.functional.pad(x, (4, 4, 4, 4))
    by = torch.randint(0, 9, (2, n, 1), device=device) + torch.arange(32, device=device)
    x = x.gather(2, by[0][:, None, :, None].expand(n, 3, 32, 40))
    return x.gather(3, by[1][:, None, None, :].expand(n, 3, 32, 32))


def train(name, seed, epochs, data, test, device):
    torch.manual_seed(seed)
    net = network(name).to(device)
    weights = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() <= 1]
    optimizer = torch.optim.SGD([{"params": weights, "weight_decay": 5e-4},
                                 {"params": others, "weight_decay": 0.0}],
                                lr=0.1, momentum=0.9, nesterov=True)
    steps, step, best = epochs * (len(data[0]) // 64), 0, 0.0
    for _ in range(epochs):
        net.train()
        order = torch.randperm(len(data[0]), device=device)
        for i in range(0, len(order) - 63, 64):
            rate = 0.05 * (1 + math.cos(math.pi * step / steps)) * min(1, (step + 1) / 100)
            for group in optimizer.param_groups:
                group["lr"] = rate
            pick = order[i:i + 64]
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(augmented(data[0][pick])), data[1][pick]).backward()
            optimizer.step()
            step += 1
        net.eval()
        with torch.no_grad():
            right = sum((net(test[0][i:i + 500]).argmax(1) == test[1][i:i + 500]).sum().item()
                        for i in range(0, len(test[0]), 500))
        best = max(best, 100 * right / len(test[0]))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--net", choices=["residual", "separable"])
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data, test = images(args.train, device), images(args.test, device)
    for name in [args.net] if args.net else ["residual", "separable"]:
        for seed in range(1, args.seeds + 1):
            print("%s seed %d: top1 %.2f (PyTorch %s, %s)" % (
                name, seed, train(name, seed, args.epochs, data, test, device),
                torch.__version__, device), flush=True)


main()
