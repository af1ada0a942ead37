"""peers.py: time of one run beside ONNX Runtime and OpenVINO, on the same files.

    make -C tests peers [PEERS="[float] [raw] [int8] [-m WORD ...] [-o RESULTS.md]"]

float: the graphs that `simplify --fix-defaults` writes, for all three. raw: the files as they came. int8: the Q/DQ files that `quantize --target
generic` writes, for all three, and our own float. -m: only models with that in their name.
Each engine is measured for SBIT_SECONDS (default 0.3) and closed, one after the other, in
SBIT_ROUNDS (5) rounds; a cell is the median of the rounds' medians. SBIT_THREADS: "1 2".
The sections that ran are replaced in tests/bench/RESULTS.md, and drawn in RESULTS-SECTION.png. Needs an idle machine. Where it has
AMX, OpenVINO uses it for int8; ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI leaves it what the others have.
"""
import argparse
import datetime
import math
import os
import platform
import statistics
import subprocess
import sys
import time

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "interop"))
import _common as c  # noqa: E402

ROUNDS = int(os.environ.get("SBIT_ROUNDS") or 5)
SECONDS = float(os.environ.get("SBIT_SECONDS") or 0.3)
THREADS = [int(t) for t in (os.environ.get("SBIT_THREADS") or "1 2").split()]
CIFAR = ["--data", "cifar10:" + os.path.join(c.SHARED, "data/cifar10/train-20k.bin"),
         *c.CIFAR_FLAGS]
IMAGES = ["--data", "images:" + os.path.join(c.SHARED, "data/imagenet-sample"),
          "--size", "224x224"]
MODELS = [(os.path.join("cifar10", n), CIFAR, (1, 32)) for n in (
    "resnet20", "resnet18w32", "vggsmall", "mobilenetv2", "mobilenetv3s", "shufflenetv2",
    "vit_tiny")] + [(os.path.join("bench", n), IMAGES, (1,)) for n in (
        "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1")] + [
            ("zoo/efficientnet_lite0", IMAGES, (1,)), ("resnet50", IMAGES, (1,))]


FLOATS = [(os.path.join("zoo", n), dims) for n, dims in (  # nothing to calibrate them with
    ("super_resolution_10", (1, 224, 224)), ("ultraface_rfb320", (3, 240, 320)),
    ("yunet_n_dynamic", (3, 320, 320)), ("ppocrv4_det", (3, 320, 320)),
    ("ppocrv4_rec", (3, 48, 320)), ("ppocr_cls", (3, 48, 192)), ("mnist_8", (1, 28, 28)))] + [
        ("cifar10/rowlstm", (3, 32, 32))]
DIMS = dict(FLOATS)


# ---- files

def source(name):
    path = os.path.join(c.SHARED, "models", name + ".onnx")
    if name == "resnet50":  # is made, not kept
        path = os.path.join(c.TMP, "made.onnx")
        subprocess.run([sys.executable, os.path.join(c.SHARED, "tools/make_resnet50.py"), path],
                       check=True)
    return path


def prepare(name, data, quantized):
    """The simplified file, and the Q/DQ file that was made of it."""
    plain = os.path.join(c.TMP, os.path.basename(name) + ".onnx")
    integer = plain[:-5] + "-q.onnx"
    code, _, err = c.tool("simplify", source(name), "--fix-defaults", "-o", plain)
    if code == 0 and quantized:
        code, _, err = c.tool("quantize", plain, "--target", "generic", *data, "--calib", 32,
                              "-o", integer)
    if code != 0:
        raise RuntimeError(err.strip()[-200:])
    return plain, integer


# ---- engines: median milliseconds of one run

def repeat(run):
    run()
    times = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def input_name(path):
    import onnx
    graph = onnx.load(path).graph
    stored = {tensor.name for tensor in graph.initializer}
    return next(i.name for i in graph.input if i.name not in stored)


def ours(path, x, threads):
    shape = input_name(path) + "=" + "x".join(map(str, x.shape))
    flags = ["--shape", shape, "--threads", threads, "--as-is"]
    once = c.tool_json("bench", path, *flags, "--iters", 3)["min_ms"]
    return c.tool_json("bench", path, *flags,
                       "--iters", max(3, int(1000 * SECONDS / once)))["median_ms"]


def onnxruntime(path, x, threads):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return repeat(lambda: session.run(None, {name: x}))


def openvino(path, x, threads):
    import openvino as ov
    core = ov.Core()
    model = core.read_model(path)
    model.reshape(list(x.shape))
    request = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    return repeat(lambda: request.infer([x]))


PEERS = [("ONNX Runtime", onnxruntime), ("OpenVINO", openvino)]


def measure(engines, x, threads):
    """engines: (function, file). A peer that cannot run the file is None."""
    rounds = []
    for _ in range(ROUNDS):
        row = []
        for run, path in engines:
            try:
                row.append(run(path, x, threads))
            except Exception as problem:
                if run is ours:
                    raise
                print("     %s: %s" % (run.__name__, str(problem).strip()[-100:]))
                row.append(None)
        rounds.append(row)
    return [None if None in column else statistics.median(column) for column in zip(*rounds)]


# ---- tables

def cells(values):
    return " | ".join("-" if v is None else "%.3f" % v if v < 10 else "%.1f" % v for v in values)


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else float("nan")


def chart(path, title, names, columns):
    """Bars: time of a network over ours, by engine. columns: (engine, values; None: no value)."""
    try:
        import matplotlib
    except ImportError:
        print("     no chart: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plot
    high = 0.8 / len(columns)
    figure, axes = plot.subplots(figsize=(8, 1 + 0.16 * len(columns) * len(names)))
    for i, (engine, values) in enumerate(columns):
        axes.barh([k + i * high for k in range(len(names))],
                  [0 if v is None else v for v in values], high, label=engine)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks([k + 0.4 - high / 2 for k in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xlabel("their time / our time (right of the line: we are faster)")
    axes.set_title(title)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plot.close(figure)
    print("wrote " + path)


def table(section, chosen, threads, bars):
    integers = section == "int8"
    titles = ["ours"] + [name for name, _ in PEERS] + (["our float"] if integers else [])
    lines = ["| network | batch | " + " | ".join(t + " ms" for t in titles) + " | best peer |" +
             (" float |" if integers else ""),
             "|---|---|" + "---|" * (len(titles) + (2 if integers else 1))]
    against_peers, against_float = [], []
    for name, data, batches in chosen:
        try:
            if section == "raw":
                plain = integer = source(name)
            else:
                plain, integer = prepare(name, data, integers)
            path = integer if integers else plain
            for batch in batches:
                size = 32 if name.startswith("cifar10") else 224
                x = numpy.random.default_rng(1).standard_normal(
                    (batch, *DIMS.get(name, (3, size, size))))
                engines = [(ours, path)] + [(run, path) for _, run in PEERS]
                values = measure(engines + [(ours, plain)] * integers, x.astype(numpy.float32),
                                 threads)
                best = min([v for v in values[1:1 + len(PEERS)] if v is not None], default=None)
                ratios = [None if best is None else values[0] / best]
                against_peers += [r for r in ratios if r is not None]
                bars.setdefault("%s b%d" % (os.path.basename(name), batch), []).extend(
                    None if v is None else v / values[0] for v in values[1:1 + len(PEERS)])
                if integers:
                    ratios.append(values[0] / values[-1])
                    against_float.append(ratios[-1])
                lines.append("| %s | %d | %s | %s |" % (os.path.basename(name), batch,
                                                        cells(values), cells(ratios)))
                print(lines[-1], flush=True)
        except Exception as problem:  # one model must not hide the others
            c.check(False, "%s: %s" % (name, problem))
    ratios = [mean(against_peers)] + ([mean(against_float)] if integers else [])
    lines.append("| geometric mean | |" + " |" * len(titles) + " " + cells(ratios) + " |")
    print(lines[-1], flush=True)
    return lines


def about():
    import onnxruntime as ort
    from openvino import get_version
    with open("/proc/cpuinfo") as file:
        cpu = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    most = os.environ.get("ONEDNN_MAX_CPU_ISA")
    return "%s, %s (%d cores), ONNX Runtime %s, OpenVINO %s%s, Python %s. Ratios: ours / theirs." % (
        datetime.date.today(), cpu[0] if cpu else platform.machine(), len(cpu), ort.__version__,
        get_version().split("-")[0], " (at most %s)" % most if most else "",
        platform.python_version())


def replace(path, section, lines):
    """Puts a section into the file, at its place if it is there."""
    text = ""
    if os.path.exists(path):
        with open(path) as file:
            text = file.read()
    parts = [p for p in text.split("\n## ") if p and not p.startswith(section + "\n")]
    head = parts.pop(0) if parts and parts[0].startswith("# ") else (
        "# Time of one run beside ONNX Runtime and OpenVINO\n\nMade by tests/bench/peers.py.\n")
    parts = sorted(parts + [section + "\n\n" + "\n".join(lines) + "\n"])
    with open(path, "w") as file:
        file.write("\n## ".join([head] + parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sections", nargs="*", help="float raw int8 (default: all)")
    parser.add_argument("-m", action="append", default=[], metavar="WORD")
    parser.add_argument("-o", default=os.path.join(HERE, "RESULTS.md"))
    args = parser.parse_args()
    if not os.path.exists(os.path.join(c.SHARED, "models")):
        c.skip("no shared models")
        c.finish("peers")
    for section in args.sections or ["float", "raw", "int8"]:
        models = MODELS + [(name, [], (1,)) for name, _ in FLOATS] * (section != "int8")
        chosen = [m for m in models if not args.m or any(word in m[0] for word in args.m)]
        lines, bars = [about()], {}
        for threads in THREADS:
            title = "%d thread%s" % (threads, "" if threads == 1 else "s")
            print("-- %s, %s" % (section, title), flush=True)
            lines += ["", title + ":", ""] + table(section, chosen, threads, bars)
        columns = ["%s, %d thread%s" % (name, t, "" if t == 1 else "s")
                   for t in THREADS for name, _ in PEERS]
        whole = [k for k, row in bars.items() if len(row) == len(columns)]
        if whole:
            chart(os.path.splitext(args.o)[0] + "-" + section + ".png", section, whole,
                  [(name, [bars[k][i] for k in whole]) for i, name in enumerate(columns)])
        replace(args.o, section, lines)
    c.finish("peers")


if __name__ == "__main__":
    main()
