"""_common.py: what the interop scripts share: the tool, the data, counting, ONNX Runtime."""
import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import onnxruntime

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHARED = os.environ.get("SPARSEBIT_SHARED") or os.path.join(ROOT, "..", "shared")
TOOL = os.environ.get("SPARSEBIT_CLI") or os.path.join(ROOT, "tools", "sparsebit")
TMP = tempfile.mkdtemp(prefix="sbit-interop-")
atexit.register(shutil.rmtree, TMP, True)
MEAN = numpy.array([0.4914, 0.4822, 0.4465], numpy.float32).reshape(1, 3, 1, 1)
STD = numpy.array([0.2470, 0.2435, 0.2616], numpy.float32).reshape(1, 3, 1, 1)
SIMULATE = ["--simulate"]  # Q/DQ in float, with the sums' pieces of ONNX Runtime
DEFINITION = ["--simulate", "--isa", "scalar"]  # sums of doubles, rounded once
CIFAR_FLAGS = ["--mean", "0.4914,0.4822,0.4465", "--std", "0.2470,0.2435,0.2616"]

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(ok, text):
    counts["passed" if ok else "failed"] += 1
    print(("ok   " if ok else "FAIL ") + text, flush=True)
    return ok


def skip(text):
    required = os.environ.get("SPARSEBIT_REQUIRE") == "all"
    counts["failed" if required else "skipped"] += 1
    print("SKIP " + text, flush=True)


def finish(name):
    print("%s: %d passed, %d failed, %d skipped"
          % (name, counts["passed"], counts["failed"], counts["skipped"]))
    sys.exit(1 if counts["failed"] else 0)


def accept(point, value, limit, ok, unit):
    """Notes a value for tests/build/acceptance.json."""
    path = os.environ.get("SPARSEBIT_ACCEPTANCE")
    if path:
        with open(path, "a") as file:
            file.write('"%s": {"value": %.9g, "limit": %.9g, "ok": %s, "unit": "%s"}\n'
                       % (point, value, limit, "true" if ok else "false", unit))
    return check(ok, "%s: %.6g %s, limit %g" % (point, value, unit, limit))


def compile_program(name, text):
    """A C program with the library's code: the one that `make` has built of these headers, if any."""
    source, program = os.path.join(TMP, name + ".c"), os.path.join(TMP, name)
    with open(source, "w") as file:
        file.write(text)
    built, header = os.path.join(ROOT, "tests/build/impl.o"), os.path.join(ROOT, "sparsebit.h")
    fresh = os.path.exists(built) and os.path.getmtime(built) >= os.path.getmtime(header)
    subprocess.run([os.environ.get("CC", "cc"), "-std=c99", "-O1", "-w", "-I", ROOT, "-o", program, source] +
                   ([built] if fresh else ["-DSPARSEBIT_IMPLEMENTATION"]) + ["-lm", "-lpthread"], check=True)
    return program


def tool(*args):
    """Runs the command line tool; its exit code, stdout and stderr."""
    done = subprocess.run([TOOL] + [str(a) for a in args], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def tool_json(*args):
    code, out, err = tool(*args, "--json")
    if code != 0:
        raise RuntimeError("%s: exit %d: %s" % (" ".join(map(str, args)), code, err.strip()[-500:]))
    return json.loads(out)


def cifar(name, count):
    """The first images of a CIFAR-10 file, normalized, and their labels."""
    raw = numpy.fromfile(os.path.join(SHARED, "data", "cifar10", name), numpy.uint8,
                         count * 3073).reshape(-1, 3073)
    x = raw[:, 1:].reshape(-1, 3, 32, 32).astype(numpy.float32)
    return (x / numpy.float32(255) - MEAN) / STD, raw[:, 0].astype(int)


def ort_session(path, optimize, integers=True):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    # without VNNI its uint8 x int8 kernels saturate sums to 16 bits (field-reports A3.4) unless told
    # not to
    options.add_session_config_entry("session.x64quantprecision", "1")
    if not integers:  # optimized, but Q/DQ stay as they are
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def ort_run(path, x, optimize=True, batch=100, integers=True):
    session = ort_session(path, optimize, integers)
    name = session.get_inputs()[0].name
    return numpy.concatenate([session.run(None, {name: x[i:i + batch]})[0]
                              for i in range(0, len(x), batch)])


def our_run(path, x, batch=500, flags=()):
    """The tool's output on x, through .npy files. flags: SIMULATE or DEFINITION of Q/DQ files."""
    parts = []
    for i in range(0, len(x), batch):
        numpy.save(os.path.join(TMP, "in.npy"), x[i:i + batch])
        code, _, err = tool("run", path, "--input", "input=" + os.path.join(TMP, "in.npy"),
                            "-o", TMP, "--threads", 2, *flags)
        if code != 0:
            raise RuntimeError(err.strip()[-500:])
        parts.append(numpy.load(os.path.join(TMP, "logits.npy")))
    return numpy.concatenate(parts)
