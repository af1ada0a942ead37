"""check_types.py: every element type that the schemas of the onnx package allow for an input, in the nodes of ONNX's own
backend tests: all inputs of one type parameter get another type, and `sparsebit check` must take the model. What is
refused has a reason in LEFT_OUT (or, for input 0, in `sparsebit operators --missing`)."""
import collections
import json
import os
import zlib

import onnx
from onnx import TensorProto, helper

import _common as c

ALL = os.environ.get("SPARSEBIT_CHECK_ALL") == "1"  # otherwise every fourth type
CODES = {"tensor(%s)" % name: code for name, code in (
    ("float", TensorProto.FLOAT), ("double", TensorProto.DOUBLE), ("float16", TensorProto.FLOAT16),
    ("bfloat16", TensorProto.BFLOAT16), ("string", TensorProto.STRING), ("bool", TensorProto.BOOL),
    ("complex64", TensorProto.COMPLEX64), ("complex128", TensorProto.COMPLEX128))}
CODES.update({"tensor(%s)" % name.lower(): code for name, code in TensorProto.DataType.items()
              if name not in ("FLOAT", "DOUBLE", "UNDEFINED")})
# (operator, type parameter): (element types, why)
LEFT_OUT = {
    ("BitCast", "T1"): (("complex128", "float4e2m1", "int2", "int4", "uint2", "uint4"), "the test's result is wider or not"),
    ("Loop", "B"): (None, "the test's body has operators of later opsets"),
    ("Loop", "I"): (None, "the test's body has operators of later opsets"),
    ("Loop", "V"): (None, "the test's body adds floats"),
    ("Scan", "I"): (None, "the test's body is that of opset 9"),
    ("Scan", "V"): (None, "the test's body adds floats"),
    ("TfIdfVectorizer", "T"): (("string",), "the test's pool holds integers"),
}


def nodes():
    """(folder's name, model) of tests of one ai.onnx node."""
    root = os.path.join(c.ROOT, "tests", "build", "onnx-backend", "node")
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        path = os.path.join(root, name, "model.onnx")
        if os.path.exists(path):
            model = onnx.load(path)
            if len(model.graph.node) == 1 and model.graph.node[0].domain == "" and not model.functions:
                yield name, model


def schemas_of(node, every):
    """Every version that has the node's inputs and attributes."""
    return [s for s in every[node.op_type]
            if s.min_input <= len(node.input) <= s.max_input and len(node.output) <= s.max_output
            and all(a.name in s.attributes and s.attributes[a.name].type.value == a.type for a in node.attribute)]


def retyped(model, schema, param, code):
    """The model with another type for the inputs of `param`; None: one of them is no tensor input of the graph."""
    new = onnx.ModelProto()
    new.CopyFrom(model)
    values = {v.name: v for v in new.graph.input}
    found = False
    for i, name in enumerate(new.graph.node[0].input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if formal.type_str != param or not name:
            continue
        if name not in values or not values[name].type.HasField("tensor_type"):
            return None
        values[name].type.tensor_type.elem_type = code
        found = True
    for value in new.graph.output:
        value.ClearField("type")
    next(o for o in new.opset_import if not o.domain).version = schema.since_version
    return new if found else None


def main():
    told = json.loads(c.tool("operators", "--missing", "--json")[1])["missing"]
    left = collections.defaultdict(set)
    for gap in told:
        if gap["domain"] == "":
            left[gap["op_type"]] |= set(gap["types"]) or {"all"}
    every = collections.defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            every[schema.name].append(schema)
    path, refused, tried, done = os.path.join(c.TMP, "types.onnx"), collections.defaultdict(dict), 0, set()
    for _, model in nodes():
        node = model.graph.node[0]
        for schema in schemas_of(node, every) if "all" not in left[node.op_type] else ():
            for constraint in schema.type_constraints:
                for text in constraint.allowed_type_strs:
                    key = node.op_type, constraint.type_param_str, text, schema.since_version
                    if not ALL and zlib.crc32(repr(key).encode()) % 4:
                        continue
                    new = retyped(model, schema, key[1], CODES[text]) if text in CODES and key not in done else None
                    if new is None:
                        continue
                    onnx.save(new, path)
                    tried += 1
                    code, out, err = c.tool("check", path)
                    if code == 0:
                        done.add(key)
                        refused[key[:2]].pop((text, key[3]), None)
                    else:
                        refused[key[:2]][text, key[3]] = (out + err).strip().replace("\n", " ")[-200:]
    if not tried:
        return c.skip("no backend tests in tests/build/onnx-backend (make -C tests conformance)")
    for (op, param), types in sorted(refused.items()):
        reasoned = LEFT_OUT.get((op, param), ((), ""))[0]
        names = {(t[len("tensor("):-1], v): why for (t, v), why in types.items()}
        names = {k: why for k, why in names.items()
                 if k[0] not in left[op] and reasoned is not None and k[0] not in reasoned}
        if names:
            c.check(False, "%s.%s refuses %s: %s" % (op, param, sorted(names), list(names.values())[0]))
    return c.check(len(done) > (3000 if ALL else 700), "%d types of inputs are taken, %d models tried" % (len(done), tried))


main()
c.finish("check_types")
