"""check_operators.py: `sparsebit operators` against the schemas of the onnx package: the tool's list of
the standard is the package's, every version of an operator has a row, rows list the element types
of input 0 (of output 0 where there are none) that the schema lists, and what is left out has a reason."""
import collections
import json

import onnx

from _common import check, finish, tool

NAMES = {"float": "float32", "double": "float64"}
OPSET = {"": 28, "ai.onnx.ml": 5, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}


def tensors(types):
    """{"tensor(float)", "seq(...)"} -> {"float32"}"""
    inner = [t[len("tensor("):-1] for t in types if t.startswith("tensor(")]
    return {NAMES.get(t, t) for t in inner}


def schemas():
    every = collections.defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.deprecated and schema.since_version <= OPSET.get(schema.domain, 0):
            every[schema.domain, schema.name][schema.since_version] = schema
    return every


def row_types(versions, version):
    """Of the row that executes this version; None: any type."""
    row = [v for v in versions if v["since"] <= version][-1]
    return None if row["any_type"] else set(row["types"])


def main():
    newest = onnx.defs.onnx_opset_version()
    code, out, _ = tool("operators", "--missing", "--json")
    told = json.loads(out)
    check(code == 0, "what is missing has a reason: exit code %d" % code)
    rows = {(r["domain"], r["op_type"]): r["versions"]
            for r in json.loads(tool("operators", "--json")[1])["operators"]}
    standard = {(s["domain"], s["op_type"]): {v for v in s["versions"] if s["domain"] or v <= newest}
                for s in told["standard"]}
    wanted = {key: set(versions) for key, versions in schemas().items()}
    for key in sorted(set(standard) | set(wanted)):
        if standard.get(key, set()) != wanted.get(key, set()):
            check(False, "%s.%s: the tool lists %s, onnx %s"
                  % (*key, sorted(standard.get(key, [])), sorted(wanted.get(key, []))))
    check(True, "%d operators, %d versions are compared" % (len(wanted), sum(map(len, wanted.values()))))
    left, left_types = set(), {}
    for gap in told["missing"]:
        key = gap["domain"], gap["op_type"]
        if gap["types"]:
            left_types[key] = set(gap["types"])
        else:
            left.add(key)
            check(key not in rows, "%s.%s is left out: %s" % (*key, gap["reason"]))
    compared = 0
    for key, versions in sorted(schemas().items()):
        for version, schema in sorted(versions.items()):
            formal = schema.inputs or schema.outputs
            if key in left or not formal:
                continue
            have = row_types(rows[key], version)
            lacks = set() if have is None else tensors(formal[0].types) - have
            compared += 1
            if lacks - left_types.get(key, set()):
                check(False, "%s.%s %d lacks %s" % (*key, version, sorted(lacks)))
    check(compared > 500 or newest < 28, "element types of %d versions are compared" % compared)
    finish("check_operators")


main()
