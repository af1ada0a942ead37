"""train_recipes.py: many recipes of finetuning at once, in PyTorch on a GPU, before accept_train runs the best of them.

    python3 train_recipes.py JOBS.json OUT [--wide 8] [--until SECONDS]

JOBS.json: a list of objects. student: the ONNX file that is trained, of `simplify --keep-bn` (Conv, BatchNormalization, Relu, Add, MaxPool, means,
Gemm); teacher: files joined by "+", the mean of what they say teaches; own: the file whose values named `feat` (globs, ",") are learned with `weight`, as
`train --features`; part of the teacher, T its temperature; epochs, lr, batch, wd, seed, warm (steps), shift (pixels); mixup, cutmix: A of Beta(A, A), for
the share `mixp` of pictures; agp: share of weights that ends at zero, ranked together, at most maxr of one, after agp_end of the steps; inner: share of the
channels inside of residual blocks (weights named *c1*) that stays, masked step by step; ema: decay of the mean of the weights that is measured.
A line of JSON is added to OUT every `every` epochs: top-1 of the 10,000 test images, its best, the loss, the share of zeros.

Each job has a stream of its own and its step is one CUDA graph: 8 networks of this size train in the time of two. Data: SPARSEBIT_SHARED.
"""
import argparse
import contextlib
import fnmatch
import json
import math
import os
import time

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
MEAN = torch.tensor([0.4914, 0.4822, 0.4465], device=DEVICE).view(1, 3, 1, 1)
STD = torch.tensor([0.247, 0.2435, 0.2616], device=DEVICE).view(1, 3, 1, 1)
DEFAULTS = dict(teacher="", own="", feat="*", weight=0., part=1., T=4., epochs=10, lr=.05, batch=64, wd=1e-4, seed=1, warm=0, shift=4, mixup=0.,
                cutmix=0., mixp=1., agp=0., maxr=.98, agp_end=.5, inner=0., ema=0., every=10)


def load(name):
    rows = np.fromfile(os.path.join(os.environ["SPARSEBIT_SHARED"], "data/cifar10", name), np.uint8).reshape(-1, 3073)
    pictures = torch.from_numpy(np.ascontiguousarray(rows[:, 1:]).reshape(-1, 3, 32, 32)).to(DEVICE)
    return pictures, torch.from_numpy(rows[:, 0].astype(np.int64)).to(DEVICE)


class Net:
    """A graph whose weights train; masks, by the name of a weight, multiply it (of a scale: what the norm gives)."""

    def __init__(self, path):
        graph = onnx.load(path).graph
        self.masks = {}
        self.nodes = [(n.op_type, list(n.input), list(n.output), {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute})
                      for n in graph.node]
        self.values = {i.name: torch.tensor(numpy_helper.to_array(i), device=DEVICE) for i in graph.initializer}
        self.names = []
        for op, inputs, _, _ in self.nodes:
            for name in inputs[1:3] if op in ("Conv", "Gemm", "BatchNormalization") else []:
                if name and name not in self.names:
                    self.names.append(name)
                    self.values[name].requires_grad_(True)
        self.input, self.output = graph.input[0].name, graph.output[0].name

    def masked(self, name):
        return self.values[name] * self.masks[name] if name in self.masks else self.values[name]

    def run(self, x, train=False, keep=()):
        v = dict(self.values)
        v[self.input] = x
        kept = {}
        for op, i, o, a in self.nodes:
            x = v[i[0]]
            if op == "Conv":
                pads = a.get("pads", [0] * 4)
                y = F.conv2d(x, self.masked(i[1]), v[i[2]] if len(i) > 2 and i[2] else None, a.get("strides", [1, 1]), (pads[0], pads[1]), 1,
                             a.get("group", 1))
            elif op == "BatchNormalization":
                y = F.batch_norm(x, v[i[3]], v[i[4]], v[i[1]], v[i[2]], train, 0.1, a.get("epsilon", 1e-5))
                y = y * self.masks[i[1]].view(1, -1, 1, 1) if i[1] in self.masks else y
            elif op == "Relu":
                y = F.relu(x)
            elif op == "Add":
                y = x + v[i[1]]
            elif op == "MaxPool":
                y = F.max_pool2d(x, a["kernel_shape"], a.get("strides"))
            elif op in ("ReduceMean", "GlobalAveragePool"):
                y = x.mean((2, 3), keepdim=op == "GlobalAveragePool" or a.get("keepdims", 1) == 1)
            elif op in ("Reshape", "Flatten"):
                y = x.flatten(1)
            elif op in ("Identity", "Dropout"):
                y = x
            elif op == "Gemm":
                w = self.masked(i[1])
                y = x @ (w.t() if a.get("transB", 0) else w) + v[i[2]]
            else:
                raise SystemExit("no operator " + op)
            v[o[0]] = y
            if y.dim() == 4 and any(fnmatch.fnmatch(o[0], k) for k in keep):
                kept[o[0]] = y
        return v[self.output], kept


def normalized(pictures):
    return ((pictures.float() / 255.0 - MEAN) / STD).contiguous(memory_format=torch.channels_last)


def moved(x, shift):
    """Mirrored and moved by up to shift pixels, with zeros behind."""
    n = x.shape[0]
    x = F.pad(torch.where((torch.rand(n, device=DEVICE) < .5).view(-1, 1, 1, 1), x.flip(3), x), (shift,) * 4)
    y0, x0 = torch.randint(0, 2 * shift + 1, (2, n), device=DEVICE)
    at = torch.arange(32, device=DEVICE)
    return x.permute(0, 2, 3, 1)[torch.arange(n, device=DEVICE).view(-1, 1, 1), (y0.view(-1, 1) + at).view(n, 32, 1),
                                 (x0.view(-1, 1) + at).view(n, 1, 32)].permute(0, 3, 1, 2)


def mixed(x, s):
    """Pictures blended with others (mixup) or with a square of another (cutmix), each by turns."""
    n = x.shape[0]
    other = x[torch.randperm(n, device=DEVICE)]

    def share(a):
        return torch.distributions.Beta(a, a).sample((n,)).to(DEVICE).view(-1, 1, 1, 1)

    def coin(p):
        return (torch.rand(n, device=DEVICE) < p).view(-1, 1, 1, 1)
    y = x
    if s["mixup"]:
        own = share(s["mixup"])
        y = own * x + (1 - own) * other
    if s["cutmix"]:
        side = 32 * (1 - share(s["cutmix"])).sqrt()
        cy, cx = torch.randint(0, 32, (2, n, 1, 1, 1), device=DEVICE)
        at = torch.arange(32, device=DEVICE)
        box = ((at.view(1, 1, 32, 1) - cy).abs() * 2 < side) & ((at.view(1, 1, 1, 32) - cx).abs() * 2 < side)
        cut = torch.where(box, other, x)
        y = torch.where(coin(.5), cut, y) if s["mixup"] else cut
    return torch.where(coin(s["mixp"]), y, x)


class Job:
    def __init__(self, spec, data):
        self.s = s = dict(DEFAULTS, **spec)
        self.pictures, self.classes, self.test, self.test_classes = data
        torch.manual_seed(s["seed"])
        self.stream = torch.cuda.Stream() if GPU else None
        self.net = Net(s["student"])
        self.teachers = [Net(path) for path in s["teacher"].split("+") if path]
        self.own = Net(s["own"]) if s["own"] else None
        self.steps = len(self.pictures) // s["batch"]
        self.total = self.steps * s["epochs"]
        self.n, self.best, self.graph, self.pairs = 0, 0., None, []
        self.weights = [self.net.values[k] for k in self.net.names]
        self.decay = [s["wd"] if w.dim() > 1 else 0. for w in self.weights]
        self.moments = [torch.zeros_like(w) for w in self.weights]
        self.mean = [w.detach().clone() for w in self.weights] if s["ema"] else None
        self.rate, self.loss = torch.zeros((), device=DEVICE), torch.zeros((), device=DEVICE)
        if s["agp"]:
            self.net.masks = {k: torch.ones_like(w) for k, w in zip(self.net.names, self.weights) if w.dim() > 1}
        if s["inner"]:
            norms = {i[0]: i[1] for op, i, _, _ in self.net.nodes if op == "BatchNormalization"}
            self.pairs = [(i[1], norms[o[0]]) for op, i, o, _ in self.net.nodes if op == "Conv" and "c1" in i[1]]
            self.net.masks = {scale: torch.ones_like(self.net.values[scale]) for _, scale in self.pairs}
        self.x = normalized(torch.zeros((s["batch"], 3, 32, 32), device=DEVICE))
        self.y = torch.zeros((s["batch"],), dtype=torch.long, device=DEVICE)

    def on_stream(self):
        return torch.cuda.stream(self.stream) if GPU else contextlib.nullcontext()

    def compute(self):
        """One step of SGD with Nesterov's momentum on self.x, self.y."""
        s, keep = self.s, self.s["feat"].split(",") if self.own else ()
        with torch.no_grad():
            says = sum(F.softmax(t.run(self.x)[0] / s["T"], 1) for t in self.teachers) / max(1, len(self.teachers))
            theirs = self.own.run(self.x, False, keep)[1] if self.own else {}
        out, mine = self.net.run(self.x, True, keep)
        part = s["part"] if self.teachers else 0.
        loss = torch.zeros((), device=DEVICE)
        if part > 0:
            loss = loss + part * s["T"] ** 2 * F.kl_div(F.log_softmax(out / s["T"], 1), says, reduction="batchmean")
        if part < 1:
            loss = loss + (1 - part) * F.cross_entropy(out, self.y)
        apart = [((mine[k] - f) ** 2).mean() / (f ** 2).mean().clamp_min(1e-6) for k, f in theirs.items()
                 if k in mine and mine[k].shape == f.shape]
        if apart:
            loss = loss + s["weight"] * sum(apart) / len(apart)
        slopes = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            plain = [w.detach() for w in self.weights]
            slopes = torch._foreach_add(list(slopes), torch._foreach_mul(plain, self.decay))
            torch._foreach_mul_(self.moments, .9)
            torch._foreach_add_(self.moments, slopes)
            change = torch._foreach_add(slopes, torch._foreach_mul(self.moments, .9))
            torch._foreach_mul_(change, self.rate)
            torch._foreach_sub_(plain, change)
            if self.mean:
                torch._foreach_mul_(self.mean, s["ema"])
                torch._foreach_add_(self.mean, torch._foreach_mul(plain, 1 - s["ema"]))
            self.loss.copy_(loss.detach())

    def fetch(self):
        s, at = self.s, self.n % self.steps * self.s["batch"]
        if at == 0:
            self.order = torch.randperm(len(self.pictures), device=DEVICE)
        chosen = self.order[at:at + s["batch"]]
        # moved in bytes: what comes in is 0 there, not black of the normalized picture
        x = normalized(moved(self.pictures[chosen], s["shift"]))
        self.x.copy_(mixed(x, s) if s["mixup"] or s["cutmix"] else x)
        self.y.copy_(self.classes[chosen])

    @torch.no_grad()
    def mask(self):
        s, net = self.s, self.net
        grown = 1 - (1 - min(1., self.n / (self.total * s["agp_end"]))) ** 3
        if s["agp"] and int(s["agp"] * grown * sum(m.numel() for m in net.masks.values())) > 0:
            size = {k: net.values[k].abs() * m for k, m in net.masks.items()}
            every = torch.cat([v.flatten() for v in size.values()])
            limit = every.kthvalue(int(s["agp"] * grown * every.numel())).values
            for k, v in size.items():
                most = v.flatten().kthvalue(max(1, int(s["maxr"] * v.numel()))).values
                net.masks[k].copy_((v > torch.minimum(limit, most)).float())
                net.values[k].mul_(net.masks[k])
        for weight, scale in self.pairs:
            size = net.values[weight].flatten(1).abs().sum(1) * net.values[scale].abs() * net.masks[scale]
            count = int(round((1 - s["inner"]) * grown * size.numel()))
            if count > 0:
                net.masks[scale].copy_((size > size.kthvalue(count).values).float())

    def step(self):
        s = self.s
        with self.on_stream():
            if self.net.masks and self.n % 32 == 0 and self.n <= self.total * s["agp_end"] + 32:
                self.mask()
            warm = min(1., (self.n + 1) / s["warm"]) if s["warm"] else 1.
            self.rate.fill_(warm * s["lr"] * .5 * (1 + math.cos(math.pi * self.n / self.total)))
            self.fetch()
            if self.graph is None and (self.n < 3 or not GPU):
                self.compute()
            elif self.graph is None:
                self.stream.synchronize()
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, stream=self.stream):
                    self.compute()
                self.graph.replay()
            else:
                self.graph.replay()
        self.n += 1

    @torch.no_grad()
    def top1(self):
        with self.on_stream():
            kept = [w.detach().clone() for w in self.weights] if self.mean else []
            for w, m in zip(self.weights, self.mean or []):
                w.copy_(m)
            right = sum((self.net.run(normalized(self.test[i:i + 1000]))[0].argmax(1) == self.test_classes[i:i + 1000]).sum()
                        for i in range(0, len(self.test), 1000))
            for w, m in zip(self.weights, kept):
                w.copy_(m)
            return 100. * right.item() / len(self.test)

    def report(self, out):
        top1, masks = self.top1(), list(self.net.masks.values())
        self.best = max(self.best, top1)
        zeros = sum(float((m == 0).sum()) for m in masks) / max(1, sum(m.numel() for m in masks))
        with open(out, "a") as file:
            file.write(json.dumps(dict(self.s, epoch=self.n // self.steps, top1=round(top1, 2), best=round(self.best, 2),
                                       loss=round(self.loss.item(), 4), zeros=round(zeros, 3))) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs")
    parser.add_argument("out")
    parser.add_argument("--wide", type=int, default=8, help="jobs at once")
    parser.add_argument("--until", type=float, default=math.inf, help="stop after so many seconds")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    data = load("train-20k.bin") + load("test-10k.bin")
    with open(args.jobs) as file:
        waiting = json.load(file)
    live, end = [], time.time() + args.until
    while (waiting or live) and time.time() < end:
        while waiting and len(live) < args.wide:
            live.append(Job(waiting.pop(0), data))
            live[-1].report(args.out)
        for _ in range(64):
            for job in live:
                if job.n < job.total:
                    job.step()
                    if job.n % (job.steps * job.s["every"]) == 0 or job.n == job.total:
                        job.report(args.out)
        if GPU:
            torch.cuda.synchronize()
        live = [job for job in live if job.n < job.total]


main()
