"""check_codec.py: the codec of sparsebit_onnx.h against the onnx package.

Tensors of every element type, stored raw and in typed fields, must have the bytes that numpy_helper
reads; models with external data must pass between both; printed text must parse back with protobuf.
The C side is the small program below, compiled with $CC or cc.
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy
import onnx
from google.protobuf import text_format
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SHARED = os.environ.get("SPARSEBIT_SHARED") or os.path.join(ROOT, "..", "shared")

PROGRAM = r"""
#define SPARSEBIT_ONNX_IMPLEMENTATION
#include "sparsebit_onnx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(const char *text, size_t size, void *user)
{
    fwrite(text, 1, size, (FILE *)user);
}

static int fail(const sbit_error *error)
{
    fprintf(stderr, "%s [%s]\n", error->message, error->where);
    return 1;
}

/* tensors IN OUT | save IN OUT ABOVE | print IN OUT: a *.pb is a tensor, else it is a model */
int main(int argc, char **argv)
{
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    sbit_onnx_read_desc desc;
    const char *in = argc > 3 ? argv[2] : "";
    memset(&desc, 0, sizeof desc);
    if (strstr(in, ".pb") != NULL) {
        desc.kind = SBIT_ONNX_TENSOR;
    }
    if (sbit_onnx_load(in, &desc, &doc, &error) != SBIT_OK ||
        sbit_onnx_check(doc, &error) != SBIT_OK) {
        return fail(&error);
    }
    if (strcmp(argv[1], "save") == 0) {
        sbit_onnx_write_desc write;
        memset(&write, 0, sizeof write);
        write.external_above_bytes = (size_t)strtoull(argv[4], NULL, 10);
        if (sbit_onnx_save(doc, argv[3], &write, &error) != SBIT_OK) {
            return fail(&error);
        }
    } else if (strcmp(argv[1], "print") == 0) {
        FILE *out = fopen(argv[3], "wb");
        sbit_onnx_print(sbit_onnx_doc_kind(doc), sbit_onnx_doc_root(doc), 0, put, out);
        fclose(out);
    } else {
        FILE *out = fopen(argv[3], "wb");
        sbit_onnx_model *model = sbit_onnx_doc_model(doc);
        const sbit_onnx_tensor *t = model != NULL ? model->graph->initializer
                                                  : (sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
        const size_t count = model != NULL ? model->graph->initializer_count : 1;
        for (size_t i = 0; i < count; i++) {
            sbit_str data;
            if (sbit_onnx_tensor_data(doc, &t[i], &data, &error) != SBIT_OK) {
                return fail(&error);
            }
            fwrite(data.data, 1, data.size, out);
        }
        fclose(out);
    }
    sbit_onnx_destroy(doc);
    return 0;
}
"""

passed = failed = skipped = 0


def check(ok, what):
    global passed, failed
    if ok:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {what}")


def build(folder):
    source, program = os.path.join(folder, "codec.c"), os.path.join(folder, "codec")
    with open(source, "w") as file:
        file.write(PROGRAM)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-I", ROOT,
                    "-o", program, source], check=True)
    return program


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        print(result.stderr.strip())
    return result.returncode == 0


def read(path):
    with open(path, "rb") as file:
        return file.read()


def raw_bytes(tensor):
    """The elements as raw_data stores them, by way of numpy_helper's array."""
    array = numpy_helper.to_array(tensor)
    return numpy_helper.from_array(array).raw_data if array.size else b""


def tensors():
    """(label, tensor): each element type, raw and typed, several shapes."""
    rng = numpy.random.default_rng(1)
    names = ["FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "BOOL", "FLOAT16",
             "DOUBLE", "UINT32", "UINT64", "COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E4M3FN",
             "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4", "INT4", "FLOAT4E2M1",
             "FLOAT8E8M0", "UINT2", "INT2"]
    for name in names:
        if not hasattr(TensorProto, name):
            continue
        number = getattr(TensorProto, name)
        dtype = helper.tensor_dtype_to_np_dtype(number)
        for shape in [(), (0,), (1,), (7,), (3, 5), (2, 0, 3)]:
            count = int(numpy.prod(shape))
            values = rng.integers(0, 2 if name in ("BOOL", "UINT2", "INT2") else 7, count)
            if name not in ("BOOL",) and not name.startswith("U") and "E8M0" not in name:
                values = values * rng.choice([1, -1] if name not in ("INT2",) else [1], count)
            array = values.astype(numpy.float64).astype(dtype).reshape(shape)
            yield f"{name} {shape} raw", numpy_helper.from_array(array, "t")
            try:
                typed = helper.make_tensor("t", number, shape, array.flatten().tolist())
            except (TypeError, ValueError) as error:
                print(f"note: the onnx package makes no typed {name}: {error}")
                continue
            yield f"{name} {shape} typed", typed


def check_tensors(program, folder):
    pb, out = os.path.join(folder, "t.pb"), os.path.join(folder, "t.bin")
    for label, tensor in tensors():
        with open(pb, "wb") as file:
            file.write(tensor.SerializeToString())
        ok = run(program, "tensors", pb, out)
        check(ok and read(out) == raw_bytes(tensor), label)


def all_weights(model):
    return b"".join(raw_bytes(tensor) for tensor in model.graph.initializer)


def initializers(graph):
    """Those of a graph and of the graphs inside it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from initializers(inner)


def normalized(path):
    """The model with each initializer inside and raw, as if it had never been outside."""
    model = onnx.load(path)
    for tensor in initializers(model.graph):
        raw = raw_bytes(tensor)
        for field in ("data_location", "float_data", "int32_data", "int64_data", "double_data",
                      "uint64_data"):
            tensor.ClearField(field)
        tensor.raw_data = raw
    return model.SerializeToString()


def check_external(program, folder, path):
    """Our external files read by onnx, and onnx's read by us."""
    name = os.path.basename(path)
    model = onnx.load(path)
    ours = os.path.join(folder, "ours_" + name)
    ok = run(program, "save", path, ours, "500")
    moved = any(len(raw_bytes(tensor)) >= 500 for tensor in initializers(model.graph))
    check(ok and os.path.exists(ours + ".data") == moved and normalized(ours) == normalized(path),
          f"{name}: external file of ours")
    theirs, back, out = (os.path.join(folder, part + name) for part in ("theirs_", "back_", "out_"))
    onnx.save_model(onnx.load(path), theirs, save_as_external_data=True,
                    location=name + ".bin", size_threshold=500)
    check(run(program, "tensors", theirs, out) and read(out) == all_weights(model),
          f"{name}: elements of an external file of onnx")
    check(run(program, "save", theirs, back, "0") and read(back) == model.SerializeToString(),
          f"{name}: external file of onnx brought inside")
    for file in glob.glob(os.path.join(folder, "*" + name + "*")):
        os.remove(file)


def check_printed(program, folder, path):
    out = os.path.join(folder, "print.txt")
    ok = run(program, "print", path, out)
    parsed = onnx.ModelProto()
    if ok:
        text_format.Parse(read(out), parsed)
    check(ok and parsed == onnx.load(path), f"{os.path.basename(path)}: printed text")


def main():
    global skipped
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        check_tensors(program, folder)
        models = sorted(glob.glob(os.path.join(SHARED, "models", "*", "*.onnx")))
        models = [path for path in models if os.path.getsize(path) < 6 << 20]
        for path in models:
            check_external(program, folder, path)
        for path in models:
            if os.path.getsize(path) < 1 << 20:
                check_printed(program, folder, path)
        if not models:
            skipped += 1
            print("SKIP no shared models")
    print(f"check_codec: {passed} passed, {failed} failed, {skipped} skipped")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
