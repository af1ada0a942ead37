"""costs.py: what the library asks for beside the time of one run, next to others in the same minute.

    make -C tests costs [COSTS="[gemm] [load] [quantize] [prune] [latency] [-o RESULTS.md]"]

gemm: products of floats beside the BLAS that numpy brings, of bytes beside the peak of registers.
load: from the file to the first run, and the process's memory, beside ONNX Runtime. quantize: beside
its quantize_static, and the slow steps. prune: the command's time, and what the cut networks take; latency:
the budgets of time alone, of one table that is measured once (both say whether issue 10's points 5, 7, 8 hold).
Medians of SBIT_ROUNDS (7) interleaved rounds; SBIT_THREADS: "1 2"; SBIT_NETWORKS: latency's. The sections that ran are replaced
in tests/bench/RESULTS.md. Needs an idle machine.
"""
import argparse
import ctypes
import glob
import os
import statistics
import subprocess
import sys
import time

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))
import _common as c  # noqa: E402
from peers import CIFAR, about, replace, source  # noqa: E402

ROUNDS = int(os.environ.get("SBIT_ROUNDS") or 7)
THREADS = [int(t) for t in (os.environ.get("SBIT_THREADS") or "1 2").split()]
LATENCY_NETWORKS = (os.environ.get("SBIT_NETWORKS") or "resnet18w32 mobilenetv2 shufflenetv2 vggsmall").split()


def cifar10(name):
    return os.path.join(c.SHARED, "models", "cifar10", name + ".onnx")


def out(name):
    return os.path.join(c.TMP, name)


# A peak counts from the fork on: what starts the process must be small itself.
SMALL = """
import os, sys, time
begin = time.perf_counter()
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ,
                      file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
_, status, usage = os.wait4(pid, 0)
print(time.perf_counter() - begin, usage.ru_maxrss / 1024, status)
"""


def process(*command, env=None):
    """Seconds and peak megabytes of a process."""
    done = subprocess.run([sys.executable, "-S", "-c", SMALL] + [str(a) for a in command],
                          capture_output=True, env=dict(os.environ, **(env or {})))
    words = done.stdout.split()
    if len(words) != 3 or int(words[2]) != 0:
        raise RuntimeError("%s: %s" % (" ".join(map(str, command)), done.stderr[-300:]))
    return float(words[0]), float(words[1])


def python(text, *args):
    """As process, of a Python program; without what importing its modules takes."""
    lines = text.strip().split("\n")
    imports = "\n".join(line for line in lines if line.startswith(("import", "from")))
    seconds, size = process(sys.executable, "-c", text, *args)
    empty_seconds, empty = process(sys.executable, "-c", imports)
    return seconds - empty_seconds, size - empty


def medians(*rows, rounds=ROUNDS):
    """Each is a function; their results, element by element the median of interleaved rounds."""
    taken = [[numpy.atleast_1d(row()) for row in rows] for _ in range(rounds)]
    return [numpy.median([one[i] for one in taken], axis=0) for i in range(len(rows))]


# ---- gemm

def product_model(n, weights, integers):
    import onnx
    from onnx import TensorProto as T, helper as h
    path = out("gemm.onnx")
    kind = (T.UINT8, T.INT8, T.INT32) if integers else (T.FLOAT, T.FLOAT, T.FLOAT)
    b = numpy.random.default_rng(1).integers(-127, 128, (n, n)).astype(
        numpy.int8 if integers else numpy.float32)
    inputs = [h.make_tensor_value_info("a", kind[0], [n, n])]
    if not weights:
        inputs.append(h.make_tensor_value_info("b", kind[1], [n, n]))
    graph = h.make_graph(
        [h.make_node("MatMulInteger" if integers else "MatMul", ["a", "b"], ["c"])], "product",
        inputs, [h.make_tensor_value_info("c", kind[2], [n, n])],
        [onnx.numpy_helper.from_array(b, "b")] if weights else [])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)
    return path


def blas_threads(count):
    folder = os.path.join(os.path.dirname(numpy.__file__), "..", "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
                     "scipy_openblas_set_num_threads", "openblas_set_num_threads"):
            if hasattr(library, name):
                getattr(library, name)(count)
                return True
    return False


def blas(n):
    a, b, y = [numpy.random.default_rng(i).standard_normal((n, n)).astype(numpy.float32)
               for i in range(3)]
    numpy.dot(a, b, out=y)
    times = []
    end = time.perf_counter() + 0.15
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        numpy.dot(a, b, out=y)
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times)


def bench(path, threads, *more):
    once = c.tool_json("bench", path, "--as-is", "--threads", threads, "--iters", 3, *more)
    return c.tool_json("bench", path, "--as-is", "--threads", threads, "--iters",
                       max(3, int(150 / max(once["min_ms"], 1e-3))), *more)


def gemm():
    lines = []
    for threads in THREADS:
        known = blas_threads(threads)
        lines += ["", "%d thread(s), float, n x n x n:" % threads, "",
                  "| n | two inputs ms | weights ms | OpenBLAS ms | two inputs / OpenBLAS | "
                  "weights / OpenBLAS |", "|---|---|---|---|---|---|"]
        for n in (64, 128, 256, 512, 1024, 2048):
            two, packed = product_model(n, False, False), None
            os.rename(two, out("two.onnx"))
            packed = product_model(n, True, False)
            mine, mine_packed, theirs = [v[0] for v in medians(
                lambda: bench(out("two.onnx"), threads)["median_ms"],
                lambda: bench(packed, threads)["median_ms"], lambda: blas(n), rounds=3)]
            lines.append("| %d | %.4f | %.4f | %s | %.2f | %.2f |" % (
                n, mine, mine_packed, "%.4f" % theirs if known else "-", mine / theirs,
                mine_packed / theirs))
            print(lines[-1], flush=True)
        path = product_model(1024, True, True)
        node = bench(path, threads, "--profile")["nodes"][0]
        lines += ["", "uint8 x int8, 1024 x 1024 x 1024: %.3f ms, %.0f %% of the peak of registers"
                  % (node["ms"], 100 * node["of_peak"])]
        print(lines[-1], flush=True)
    return lines


# ---- load

ORT_LOAD = """
import sys
import numpy
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
if sys.argv[3] == "run":
    x = numpy.zeros([1, 3, 224, 224], numpy.float32)
    for i in range(3): session.run(None, {session.get_inputs()[0].name: x})
"""


def load():
    path = out("resnet50.onnx")
    code, _, err = c.tool("simplify", source("resnet50"), "-o", path)
    c.check(code == 0, "simplify resnet50 " + err[-200:])
    lines = ["", "| resnet50, simplified | ours | ONNX Runtime | ratio |", "|---|---|---|---|"]
    for threads in THREADS:
        def ours():
            times = c.tool_json("bench", path, "--as-is", "--threads", threads, "--iters", 3)
            return times["load_ms"] + times["plan_ms"], times["first_ms"] / times["median_ms"]

        def theirs():
            return 1000 * python(ORT_LOAD, path, threads, "load")[0]
        (mine, first), (other,) = medians(ours, theirs)
        lines.append("| load and plan, %d thread(s), ms | %.0f | %.0f | %.2f |"
                     % (threads, mine, other, mine / other))
        lines.append("| first run / the others, %d thread(s) | %.2f | | |" % (threads, first))
        print(lines[-1], flush=True)
    size = process(c.TOOL, "bench", path, "--as-is", "--threads", 1, "--iters", 3)[1]
    other = python(ORT_LOAD, path, 1, "run")[1]
    lines.append("| peak memory of the process, MB | %.0f | %.0f | %.2f |"
                 % (size, other, size / other))
    print(lines[-1], flush=True)
    return lines


# ---- quantize

ORT_QUANTIZE = """
import sys
import numpy
import onnxruntime.quantization as q
class Reader(q.CalibrationDataReader):
    def __init__(self):
        self.x = iter(numpy.load(sys.argv[2])[:, None])
    def get_next(self):
        x = next(self.x, None)
        return None if x is None else {"input": x}
q.quantize_static(sys.argv[1], sys.argv[3], Reader(), per_channel=True,
                  calibrate_method=getattr(q.CalibrationMethod, sys.argv[4]))
"""


def quantize():
    plain = out("resnet18w32.onnx")
    c.tool("simplify", cifar10("resnet18w32"), "-o", plain)
    x, _ = c.cifar("train-20k.bin", 256)
    numpy.save(out("x.npy"), x)
    threads = THREADS[-1]
    (seconds, size), (other, other_size), (forward,) = medians(
        lambda: process(c.TOOL, "quantize", plain, *CIFAR, "--calib", 256, "--threads", threads,
                        "-o", out("q.onnx"), "--force"),
        lambda: python(ORT_QUANTIZE, plain, out("x.npy"), out("o.onnx"), "MinMax"),
        lambda: process(c.TOOL, "eval", plain, *CIFAR, "--limit", 256, "--threads", threads)[0],
        rounds=3)
    lines = ["", "| resnet18w32, 256 images, %d thread(s) | s | peak MB |" % threads, "|---|---|---|",
             "| quantize | %.2f | %.0f |" % (seconds, size),
             "| ONNX Runtime's quantize_static, above its imports | %.2f | %.0f |" % (other, other_size),
             "| our float on those images (limit: 1.25 of it and 0.1 s) | %.2f | |" % forward]
    limit = 1.25 * forward + 0.1
    c.accept("quant.cost.time", seconds, limit, seconds <= limit, "s")
    for name in ("Entropy", "Percentile"):  # they keep all tensors of all images; MinMax of one
        seconds, size = process(c.TOOL, "quantize", plain, *CIFAR, "--calib", 256, "--set",
                                "A.OBSERVER.TYPE=ort_" + name.lower(), "--threads", threads, "-o", out("q.onnx"), "--force")
        other, other_size = python(ORT_QUANTIZE, plain, out("x.npy"), out("o.onnx"), name)
        lines += ["| quantize, ort_%s | %.2f | %.0f |" % (name.lower(), seconds, size),
                  "| quantize_static, %s | %.2f | %.0f |" % (name, other, other_size)]
        c.accept("quant.cost.memory." + name, size / other_size, 0.1, size <= 0.1 * other_size, "of quantize_static's")
    for name, net, most in (("AdaRound", "resnet18w32", 180), ("GPTQ", "vit_tiny", 10)):
        seconds, size = process(c.TOOL, "quantize", cifar10(net), *CIFAR, "--calib", 256, "--set",
                                "W.QUANTIZER.BIT=4", "--set", "STEPS=[%s]" % name.lower(), "--threads", threads,
                                "-o", out("s.onnx"), "--force")
        c.accept("quant.cost." + name, seconds, most, seconds <= most, "s")
        lines.append("| %s of %s, 4 bit | %.1f | %.0f |" % (name, net, seconds, size))
    for line in lines:
        print(line, flush=True)
    return lines


# ---- prune

# issue 10, points 7 and 5: seconds of the command, and the share of the time that is left
PRUNE_SECONDS = {"lite0": 1.0, "resnet50": 2.0}
PRUNE_TIMES = {"resnet18w32": 0.45, "mobilenetv2": 0.6}


def prune():
    lines = ["", "| prune --ratio 0.5, %d thread(s) | s | time of the result / of the original |"
             % THREADS[-1], "|---|---|---|"]
    for path, name in ((os.path.join(c.SHARED, "models/zoo/efficientnet_lite0.onnx"), "lite0"),
                       (source("resnet50"), "resnet50"), (cifar10("resnet18w32"), "resnet18w32"),
                       (cifar10("mobilenetv2"), "mobilenetv2")):
        result = out(name + "-half.onnx")
        seconds = statistics.median(process(
            c.TOOL, "prune", path, "--ratio", 0.5, "--threads", THREADS[-1], "-o", result, "--force")[0]
            for _ in range(3))
        pair = [v[0] for v in medians(
            lambda: c.tool_json("bench", path, "--iters", 20)["median_ms"],
            lambda: c.tool_json("bench", result, "--iters", 20)["median_ms"])]
        lines.append("| %s | %.2f | %.2f |" % (name, seconds, pair[1] / pair[0]))
        print(lines[-1], flush=True)
        if name in PRUNE_SECONDS:
            c.accept("pruning.seconds." + name, seconds, PRUNE_SECONDS[name], seconds <= PRUNE_SECONDS[name], "s")
        if name in PRUNE_TIMES:
            c.accept("pruning.time." + name, pair[1] / pair[0], PRUNE_TIMES[name],
                     pair[1] / pair[0] <= PRUNE_TIMES[name], "of the original")
    return lines


LATENCY_ASKED = (0.8, 0.7, 0.6, 0.5)
PAIRS = 24


def share_of(result, whole):
    """Time through time: the median over pairs of processes side by side, the first one in turns, of about 0.1 s each -
    the machine's pace changes from second to second, and what others leave in the caches is gone after some runs."""
    def one(path, runs):
        return c.tool_json("bench", path, "--threads", 1, "--iters", runs)["median_ms"]
    runs = {path: min(max(int(100 / max(one(path, 3), 1e-3)), 5), 400) for path in (result, whole)}
    shares = []
    for i in range(PAIRS):
        times = {path: one(path, runs[path]) for path in ((whole, result) if i % 2 else (result, whole))}
        shares.append(times[result] / times[whole])
    return numpy.median(shares)


def prune_latency():
    """Point 8: one table for all budgets; the same table gives the same file, within 10 % of what was asked."""
    lines = ["", "| --latency, 1 thread | s with the table | s without | %s |" % " | ".join("%g" % a for a in LATENCY_ASKED),
             "|---|---|---|" + "---|" * len(LATENCY_ASKED)]
    for name in LATENCY_NETWORKS:
        table, results, seconds = out(name + ".json"), [], []
        for asked in LATENCY_ASKED:
            files = [out("%s-%g-%d.onnx" % (name, asked, again)) for again in (0, 1)]
            # the table is made by the first one
            for result in files if results else files[:1] + files:
                seconds.append(process(c.TOOL, "prune", cifar10(name), "--latency", "%gx" % asked, "--latency-table", table,
                                       "--threads", 1, "-o", result, "--force")[0])
            with open(files[0], "rb") as a, open(files[1], "rb") as b:
                c.check(a.read() == b.read(), "%s --latency %gx: the same table, the same file" % (name, asked))
            results.append(files[0])
        shares = [share_of(result, cifar10(name)) for result in results]
        for asked, share in zip(LATENCY_ASKED, shares):
            c.accept("pruning.latency.%s.%g" % (name, asked), share, 1.1 * asked, abs(share / asked - 1) <= 0.1,
                     "of the original")
        lines.append("| %s | %.1f | %.1f | %s |" % (name, seconds[0], statistics.median(seconds[1:]),
                                                    " | ".join("%.2f" % share for share in shares)))
        print(lines[-1], flush=True)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sections = {"gemm": gemm, "load": load, "quantize": quantize, "prune": prune, "latency": prune_latency}
    parser.add_argument("sections", nargs="*", help="gemm load quantize prune latency (default: all)")
    parser.add_argument("-o", default=os.path.join(HERE, "RESULTS.md"))
    args = parser.parse_args()
    for name in args.sections or sections:
        try:
            replace(args.o, name, [about()] + sections[name]())
        except Exception as problem:  # one section must not hide the others
            c.check(False, "%s: %s" % (name, problem))
    c.finish("costs")


if __name__ == "__main__":
    main()
