"""check_prune.py: pruned files against their masked files in ONNX Runtime.

Every shared model, at several ratios and with both policies for biases, is pruned by the command
line tool, and masked with --mask-only. Both must pass onnx.checker with shape inference; ONNX Runtime
must give the same outputs for both (contracts section 4), sigmoids and softmaxes compared as they
are; every group that keeps more channels than its ratio says must say why. The table shows what is
left of parameters, multiply-accumulates and bytes. SPARSEBIT_CHECK_ALL=1 takes ratios 0.1, 0.3, 0.5,
0.7 and 0.9, otherwise 0.5. Then random graphs (SBIT_GRAPHS=500 SBIT_SEED=0; 60): all of 0.3, 0.5 and 0.7,
otherwise one of them. With SPARSEBIT_CHECK_ALL=1 also what repair without training gives back, by criterion.
"""
import glob
import math
import os

import numpy
import onnx

import _graphs
from _common import (CIFAR_FLAGS, SHARED, TMP, accept, check, finish, ort_session, skip, tool,
                     tool_json)

ALL = os.environ.get("SPARSEBIT_CHECK_ALL") == "1"
RATIOS = ["0.1", "0.3", "0.5", "0.7", "0.9"] if ALL else ["0.5"]
SIZES = {"ppocrv4_rec": (48, 320), "ppocr_cls": (48, 192), "super_resolution_10": (224, 224)}
# of the file at ratio 0.5
LIMITS = {"shufflenetv2": 0.7, "vit_tiny": 0.7, "mobilenetv3s": 0.7, "resnet18w32": 0.7,
          "efficientnet_lite0": 0.7, "ppocrv4_rec": 0.9}


def feeds(session, name):
    rng = numpy.random.RandomState(0)
    height, width = SIZES.get(name, (64, 64))
    out = {}
    for put in session.get_inputs():
        shape = [d if isinstance(d, int) else 2 if k == 0 else (height if k == 2 else width)
                 for k, d in enumerate(put.shape)]
        if "int" in put.type:
            out[put.name] = numpy.full(shape, 16000, numpy.int64)
        elif "silero" in name:
            shape = [2 if k == 1 and len(put.shape) == 3 else d for k, d in enumerate(shape)]
            shape = [2, 512] if len(shape) == 2 else shape
            out[put.name] = rng.randn(*shape).astype(numpy.float32) * 0.1
        else:
            out[put.name] = rng.randn(*shape).astype(numpy.float32)
    return out


def relative(a, b):
    """The largest difference, of what float32 can tell apart behind a sigmoid too."""
    return max(float(max(numpy.abs(x - y).max() - 3e-7, 0) / max(numpy.abs(x).max(), 1e-6))
               if x.size else 0.0 for x, y in zip(a, b))


def one(path, ratio, bias):
    name = os.path.basename(path)[:-5]
    small, masked = os.path.join(TMP, "small.onnx"), os.path.join(TMP, "masked.onnx")
    flags = ["--ratio", ratio, "--set", "SPARSER.PRUNE_BIAS=" + bias, "--force"]
    report = tool_json("prune", path, *flags, "-o", small)
    tool_json("prune", path, *flags, "--mask-only", "-o", masked)
    label = "%s ratio %s %s" % (name, ratio, "zero" if bias == "true" else "folded")
    onnx.checker.check_model(small, full_check=True)
    a, b = ort_session(masked, True), ort_session(small, True)
    fed = feeds(a, name)
    off = relative(a.run(None, fed), b.run(None, fed))
    unexplained = [g["layers"] for g in report["groups"] if not g["reason"] and
                   g["kept"] > math.ceil((1 - float(ratio)) * g["channels"] - 1e-9)]
    kept = ["%s: %s" % (g["layers"][:40], g["reason"]) for g in report["groups"]
            if g["reason"] and g["kept"] == g["channels"]]
    before, after = report["before"], report["after"]
    bytes_left = after["bytes"] / before["bytes"]
    check(off <= 1e-4 and not unexplained,
          "%s: off by %.2g; %.3f of parameters, %.3f of MACs, %.3f of bytes; %d groups kept%s"
          % (label, off, after["params"] / max(before["params"], 1),
             after["macs"] / max(before["macs"], 1), bytes_left, len(kept),
             "; without a reason: " + ", ".join(unexplained) if unexplained else ""))
    if ratio == "0.5" and bias == "true":
        for line in kept:
            print("     kept whole: " + line)
        if name in LIMITS:
            accept("pruning.bytes." + name, bytes_left, LIMITS[name], bytes_left <= LIMITS[name],
                   "of the file")


# by weights alone, and by what the first input makes of them
RANDOM_CRITERIA = ("l1norm", "l2norm", "fpgm", "slim", "random", "l0norm", "apoz", "mean_activation", "hrank")


def random_graph(seed, kind, ratio, bias, criterion):
    """'' if the pruned file computes what the masked file does; None: cannot be judged."""
    model, fed = _graphs.graph(seed, kind)
    path, small, masked = (os.path.join(TMP, n + ".onnx") for n in ("random", "small", "masked"))
    onnx.save(model, path)
    try:
        ort_session(path, False).run(None, fed)
    except Exception:  # not valid after all, or not built into ONNX Runtime
        return None
    flags = ["--ratio", ratio, "--set", "SPARSER.PRUNE_BIAS=" + bias, "--threads", 1]
    if criterion in RANDOM_CRITERIA[6:]:
        x = list(fed.values())[0]
        if len(fed) == 1 and x.ndim == 4 and x.dtype == numpy.float32:
            numpy.save(os.path.join(TMP, "x.npy"), x)
            flags += ["--data", "npy:" + os.path.join(TMP, "x.npy")]
        else:
            criterion = "random"
    flags += ["--set", "SPARSER.STRATEGY=" + criterion]
    for out, more in ((small, []), (masked, ["--mask-only"])):
        code, _, err = tool("prune", path, *flags, *more, "-o", out)
        if code != 0:
            return "prune: " + err.strip()[-300:]
    try:
        a = ort_session(masked, False).run(None, fed)
    except Exception:  # not built into ONNX Runtime
        return None
    try:
        b = ort_session(small, False).run(None, fed)
    except Exception as problem:
        return "ONNX Runtime refuses the pruned file: " + str(problem)[:300]
    if not all(numpy.isfinite(x).all() for x in a) or max(numpy.abs(x).max() for x in a if x.size) > 1e6:
        return None
    if any(x.shape != y.shape for x, y in zip(a, b)):
        return "another shape"
    try:
        onnx.checker.check_model(small, full_check=True)
    except Exception as problem:  # its own rule for ceil_mode counts windows that ONNX Runtime leaves out
        if not ("Pool" in str(problem) and "Inferred shape and existing shape differ" in str(problem)):
            return "onnx.checker: " + str(problem)[:300]
    off = relative(a, b)
    return "" if off <= 1e-4 else "off by %.3g" % off if off > 1e-3 else None


def check_random():
    first, count = int(os.environ.get("SBIT_SEED") or 0), int(os.environ.get("SBIT_GRAPHS") or 60)
    agree = unknown = 0
    ratios = ("0.3", "0.5", "0.7")
    tried = [(seed, k) for seed in range(first, first + count) for k in (range(3) if ALL else [seed % 3])]
    for seed, k in tried:
        kind, bias = "cnn" if seed % 2 else "any", "true" if (seed // 2 + k) % 2 else "false"
        criterion = RANDOM_CRITERIA[(seed // 2 + k) % len(RANDOM_CRITERIA)]
        problem = random_graph(seed, kind, ratios[k], bias, criterion)
        agree += problem == ""
        unknown += problem is None
        if problem:
            check(False, "seed %d (%s, %s, %s, %s): %s" % (seed, kind, ratios[k], bias, criterion, problem))
    check(unknown <= 1 + len(tried) // 50,
          "random graphs: %d agree, %d could not be judged, of %d" % (agree, unknown, len(tried)))


CRITERIA = ("l1norm", "l2norm", "fpgm", "slim", "apoz", "mean_activation", "taylor", "hrank", "random")


def repairs(net, criterion):
    """Top-1 of 2,000 images at half of the MACs by repair, of 512 images, without training."""
    train, test = (os.path.join(SHARED, "data", "cifar10", n) for n in ("train-20k.bin", "test-10k.bin"))
    model, small = os.path.join(SHARED, "models", "cifar10", net + ".onnx"), os.path.join(TMP, "repaired.onnx")
    if not os.path.exists(train):
        return skip("no shared data")
    top1 = {}
    # maps have a rank, what a linear layer gives has none
    strategy = ["--set", "SPARSER.STRATEGY=" + criterion]
    strategy += ["--set", 'SPARSER.SPECIFIC=[{"op:Gemm": [STRATEGY, l1norm]}]'] if criterion == "hrank" else []
    for what in ("float", "none", "batch_norm", "ridge", "both"):
        if what != "float":
            tool_json("prune", model, *strategy, "--macs", "0.5x", "--repair", what, "--data",
                      "cifar10:" + train, "--limit", 512, "--force", "-o", small, *CIFAR_FLAGS)
        top1[what] = tool_json("eval", model if what == "float" else small, "--data", "cifar10:" + test, "--limit", 2000,
                               *CIFAR_FLAGS)["top1"]
    label = "%s by %s: %s" % (net, criterion, ", ".join("%s %.4f" % pair for pair in top1.items()))
    check(top1["both"] >= top1["batch_norm"] - 0.01 and top1["both"] >= top1["ridge"] - 0.01, label)
    return (top1["both"] - top1["batch_norm"]) / max(top1["float"] - top1["batch_norm"], 1e-6)


def check_quantized():
    """Files that are quantized already: Q/DQ and operators on integers, residual and depthwise."""
    train = os.path.join(SHARED, "data", "cifar10", "train-20k.bin")
    for net, form in (("resnet20", "qdq"), ("resnet20", "qoperator"), ("mobilenetv2", "qdq")):
        model, path = os.path.join(SHARED, "models", "cifar10", net + ".onnx"), os.path.join(TMP, "%s-%s.onnx" % (net, form))
        if not os.path.exists(train) or not os.path.exists(model):
            skip("no shared data")
            continue
        tool_json("quantize", model, "--data", "cifar10:" + train, "--limit", 32, "--set", "EXPORT.FORMAT=" + form, "-o", path,
                  *CIFAR_FLAGS)
        one(path, "0.5", "true")
        left = tool_json("prune", path, "--bytes", "0.6x", "-o", os.path.join(TMP, "small.onnx"), "--force")
        share = left["after"]["bytes"] / left["before"]["bytes"]
        check(0.5 < share <= 0.605, "%s as %s, --bytes 0.6x: %.3f are left" % (net, form, share))


def check_repairs():
    for net in ("vggsmall", "shufflenetv2", "resnet18w32"):
        for criterion in CRITERIA:
            back = repairs(net, criterion)
            if (net, criterion) == ("resnet18w32", "l1norm") and back is not None:
                accept("pruning.repair.resnet18w32", back, 0.5, back >= 0.5, "of what re-estimation leaves lost")


def main():
    models = sorted(glob.glob(os.path.join(SHARED, "models", "*", "*.onnx")))
    if not models:
        skip("no shared models")
    for path in models:
        for ratio in RATIOS:
            for bias in ("true", "false"):
                try:
                    one(path, ratio, bias)
                except Exception as error:  # a failure is one line, the others are still looked at
                    check(False, "%s ratio %s: %s" % (path, ratio, str(error)[:300]))
    check_quantized()
    check_random()
    if ALL:
        check_repairs()
    finish("check_prune")


if __name__ == "__main__":
    main()
