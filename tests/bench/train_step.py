#!/usr/bin/python3
"""train_step.py: time of a training step beside PyTorch, interleaved, on random images.

    python3 train_step.py [NET ...] [--program ../build/bench_train] [--threads 2] [--batch 64]
                          [--rounds 5] [--seconds 3] [-o TABLE.md]

NET: resnet20, mobilenetv2, vit_tiny, rowlstm (all four). In each round bench_train and PyTorch run
one after the other, each for so many seconds after a step to warm up; a cell is the median of the
rounds' medians. PyTorch has networks of the same layers, memory channels last and not, the faster
counts; forward, cross entropy, backward, SGD with momentum 0.9 and decay. Needs PyTorch and no
network connection; SPARSEBIT_SHARED says where bench_train finds its models.
"""
import argparse
import math
import os
import statistics
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def networks():
    """Constructors by name; PyTorch is imported here, after the threads were set."""
    from torch import nn
    import torch

    def conv(i, o, k, s=1, g=1, act=None):
        return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False),
                             nn.BatchNorm2d(o), *([act] if act else []))

    class Basic(nn.Module):
        def __init__(self, i, o, s):
            super().__init__()
            self.a = conv(i, o, 3, s, act=nn.ReLU(inplace=True))
            self.b = conv(o, o, 3)
            self.side = conv(i, o, 1, s) if s > 1 or i != o else nn.Identity()

        def forward(self, x):
            return torch.relu(self.b(self.a(x)) + self.side(x))

    class Inverted(nn.Module):
        def __init__(self, i, o, s, t):
            super().__init__()
            m = i * t
            self.same = s == 1 and i == o
            self.body = nn.Sequential(
                *([conv(i, m, 1, act=nn.ReLU6(inplace=True))] if t > 1 else []),
                conv(m, m, 3, s, m, nn.ReLU6(inplace=True)), conv(m, o, 1))

        def forward(self, x):
            return x + self.body(x) if self.same else self.body(x)

    def resnet20():
        body, i = [conv(3, 16, 3, act=nn.ReLU(inplace=True))], 16
        for o, s in ((16, 1), (32, 2), (64, 2)):
            for k in range(3):
                body.append(Basic(i, o, s if k == 0 else 1))
                i = o
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    def mobilenetv2():
        body, i = [conv(3, 32, 3, act=nn.ReLU6(inplace=True))], 32
        for t, o, n, s in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2),
                           (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
            for k in range(n):
                body.append(Inverted(i, o, s if k == 0 else 1, t))
                i = o
        return nn.Sequential(*body, conv(320, 1280, 1, act=nn.ReLU6(inplace=True)),
                             nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10))

    class Block(nn.Module):
        def __init__(self, d, heads):
            super().__init__()
            self.heads = heads
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x):
            n, t, d = x.shape
            q, k, v = self.qkv(self.n1(x)).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            a = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d // self.heads), -1)
            x = x + self.o((a @ v).transpose(1, 2).reshape(n, t, d))
            return x + self.mlp(self.n2(x))

    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Conv2d(3, 192, 4, 4)
            self.cls = nn.Parameter(torch.zeros(1, 1, 192))
            self.pos = nn.Parameter(torch.zeros(1, 65, 192))
            self.b = nn.Sequential(*[Block(192, 3) for _ in range(6)])
            self.n, self.fc = nn.LayerNorm(192), nn.Linear(192, 10)

        def forward(self, x):
            x = self.e(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pos
            return self.fc(self.n(self.b(x))[:, 0])

    class RowLstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(96, 192, 2, batch_first=True)
            self.fc = nn.Linear(192, 10)

        def forward(self, x):
            rows = x.permute(0, 2, 1, 3).reshape(x.shape[0], 32, 96)
            return self.fc(self.rnn(rows)[0][:, -1])

    return {"resnet20": resnet20, "mobilenetv2": mobilenetv2, "vit_tiny": Vit, "rowlstm": RowLstm}


def torch_step(net, batch, channels_last):
    """A function that does one training step."""
    import torch
    model = networks()[net]().train()
    x, y = torch.randn(batch, 3, 32, 32), torch.arange(batch) % 10
    if channels_last:
        model, x = (v.to(memory_format=torch.channels_last) for v in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, 0.9, weight_decay=1e-4)
    loss = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(model(x), y).backward()
        optimizer.step()
    return step


def median_ms(step, seconds):
    step()
    times, begin = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < seconds:
        at = time.perf_counter()
        step()
        times.append((time.perf_counter() - at) * 1e3)
    return statistics.median(times)


def ours_ms(args, net):
    environment = dict(os.environ, SPARSEBIT_TEST_THREADS=str(args.threads))
    out = subprocess.run([args.program, net, str(args.batch), str(args.seconds)], env=environment,
                         check=True, capture_output=True, text=True).stdout
    return float(out.split()[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("nets", nargs="*")
    parser.add_argument("--program", default=os.path.join(HERE, "..", "build", "bench_train"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("-o")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    lines = [f"PyTorch {torch.__version__}, {args.threads} threads, batch {args.batch}, ms a step",
             "", "| network | ours | PyTorch | PyTorch, channels last | ratio |",
             "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    ratios = []
    for net in args.nets or list(networks()):
        forms = [False] if net in ("rowlstm",) else [False, True]
        steps = [torch_step(net, args.batch, form) for form in forms]
        times = [[] for _ in range(1 + len(steps))]
        for _ in range(args.rounds):
            times[0].append(ours_ms(args, net))
            for i, step in enumerate(steps):
                times[1 + i].append(median_ms(step, args.seconds))
        cells = [statistics.median(t) for t in times]
        ratios.append(cells[0] / min(cells[1:]))
        last = f"{cells[2]:.1f}" if len(cells) > 2 else "-"
        lines.append(f"| {net} | {cells[0]:.1f} | {cells[1]:.1f} | {last} | {ratios[-1]:.2f} |")
        print(lines[-1], flush=True)
    lines.append(f"\ngeometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}")
    print(lines[-1])
    if args.o:
        with open(args.o, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
