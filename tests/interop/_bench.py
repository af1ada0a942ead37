"""_bench.py: speed against ONNX Runtime, on the same threads, one after the other in turns.

    python tests/interop/_bench.py [MODEL...] (default: the shared CIFAR networks)

Each line: median milliseconds of one run of both (batch 1 and SBIT_BATCH images) and their ratio;
above 1 ONNX Runtime is faster. SBIT_THREADS (default 2), SBIT_ROUNDS (default 3).
"""
import os
import statistics
import sys
import time

import numpy
import onnxruntime

import _common as c

THREADS = int(os.environ.get("SBIT_THREADS") or 2)
ROUNDS = int(os.environ.get("SBIT_ROUNDS") or 3)
BATCH = int(os.environ.get("SBIT_BATCH") or 32)
SECONDS = 0.5  # of each measurement


def theirs(session, feeds):
    times = []
    session.run(None, feeds)
    begin = time.perf_counter()
    while time.perf_counter() - begin < SECONDS or len(times) < 3:
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return 1000 * statistics.median(times)


def ours(path, shapes, iters):
    flags = []
    for name, shape in shapes.items():
        flags += ["--shape", "%s=%s" % (name, "x".join(map(str, shape)))]
    return c.tool_json("bench", path, *flags, "--threads", THREADS, "--iters", iters)["median_ms"]


def compare(path, batch):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    shapes = {i.name: [d if isinstance(d, int) else batch for d in i.shape]
              for i in session.get_inputs()}
    rng = numpy.random.default_rng(1)
    feeds = {name: rng.standard_normal(shape).astype(numpy.float32)
             for name, shape in shapes.items()}
    a, b = [], []
    for _ in range(ROUNDS):
        b.append(theirs(session, feeds))
        a.append(ours(path, shapes, max(3, int(1000 * SECONDS / b[-1]))))
    return statistics.median(a), statistics.median(b)


def main():
    folder = os.path.join(c.SHARED, "models", "cifar10")
    paths = sys.argv[1:] or sorted(os.path.join(folder, n) for n in os.listdir(folder))
    print("%-24s %6s %12s %12s %7s" % ("model", "batch", "ours ms", "theirs ms", "ratio"))
    for path in paths:
        for batch in (1, BATCH):
            try:
                a, b = compare(path, batch)
                print("%-24s %6d %12.3f %12.3f %7.2f"
                      % (os.path.basename(path), batch, a, b, a / b), flush=True)
            except Exception as problem:
                print("%-24s %6d %s" % (os.path.basename(path), batch, str(problem)[-150:]))


main()
