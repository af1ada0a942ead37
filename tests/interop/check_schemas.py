"""check_schemas.py: the tables in src/ops/attributes.c (types of attributes, those that must be there,
numbers of outputs) against the schemas of the onnx package, every version of every operator that has a
row: what a schema allows is allowed."""
import collections
import json
import os
import re
import tempfile

import onnx
from onnx import helper

from _common import check, finish, tool

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
OLD = {"BatchNormalization.consumed_inputs", "Pad.paddings", "Pad.pads", "Slice.starts", "Slice.ends", "TopK.k", "Unsqueeze.axes",
       "Upsample.scales", "Upsample.height_scale", "Upsample.width_scale", "Constant.value"}  # attributes of old versions alone
LISTS = {"INTS": "INT", "FLOATS": "FLOAT"}  # one number may stand for a list


def table():
    """{"axis": {"INT"}, "Pad.value": {"FLOAT"}, ...}"""
    path = os.path.join(os.path.dirname(__file__), "..", "..", "src", "ops", "attributes.c")
    with open(path) as file:
        body = file.read().split("sbit__attributes[] = {")[1].split("\n};")[0]
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    types = {}
    for row in re.findall(r"\{(SBIT__IS.*?)\}", body, flags=re.S):
        names = "".join(re.findall(r'"(.*?)"', row)).split()
        for name in names:
            if name in types:
                check(False, "%s stands in two rows" % name)
            types[name] = set(re.findall(r"SBIT__IS\((\w+)\)", row))
    return types


def words(name):
    path = os.path.join(os.path.dirname(__file__), "..", "..", "src", "ops", "attributes.c")
    with open(path) as file:
        body = file.read().split(name + "[] =")[1].split(";")[0]
    return set("".join(re.findall(r'"(.*?)"', body)).split())


def check_forms(rows):
    required, optional, outputs = collections.Counter(), set(), {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain not in DOMAINS or schema.name not in rows:
            continue
        for name, attr in schema.attributes.items():
            required["%s.%s" % (schema.name, name)] += attr.required
            if not attr.required and (schema.domain or schema.since_version > 1):
                optional.add("%s.%s" % (schema.name, name))
        most = 0 if schema.max_output > 100 else schema.max_output
        outputs[schema.name] = max(most, outputs.get(schema.name, most))
    wanted = {name for name, count in required.items() if count and name not in optional}
    listed = words("sbit__attributes_required")
    check(listed <= wanted, "nothing is asked for that a schema has as optional: %s" % sorted(listed - wanted))
    lacks = {name for name in wanted - listed if name not in OLD}
    check(not lacks, "every required attribute is in the table: %s" % sorted(lacks))
    have = dict(word.split(":") for word in words("sbit__attributes_outputs"))
    differ = {name for name, most in outputs.items() if most != int(have.get(name, 1))}
    check(not differ, "numbers of outputs are those of the schemas: %s" % sorted(differ))


def check_surplus(rows):
    """One input more than the schema of each version has is an error; test_malformed's table."""
    kind = onnx.defs.OpSchema.AttrType
    values = {kind.INT: 1, kind.INTS: [1], kind.FLOAT: 1.0, kind.FLOATS: [1.0], kind.STRINGS: ["A"], kind.STRING: "RIGHT",
              kind.TENSOR: helper.make_tensor("t", 1, [1], [1.0]), kind.GRAPH: helper.make_graph([], "b", [], [])}
    most, tried, unknown = {}, 0, onnx.TypeProto()
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain not in DOMAINS or schema.name not in rows:
            continue
        most[schema.name] = max(most.get(schema.name, 0), schema.max_input)
        if schema.deprecated or schema.max_input > 100:
            continue
        attrs = {name: values[attr.type] for name, attr in schema.attributes.items() if attr.required}
        inputs = ["x%d" % i for i in range(schema.max_input + 1)]
        node = helper.make_node(schema.name, inputs, ["y"], "broken", domain=schema.domain, **attrs)
        graph = helper.make_graph([node], "g", [helper.make_value_info(x, unknown) for x in inputs],
                                  [helper.make_value_info("y", unknown)])
        imports = [helper.make_opsetid(schema.domain, schema.since_version)]
        imports += [helper.make_opsetid("", 18)] if schema.domain else []
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
            file.flush()
            said = "".join(tool("check", file.name)[1:])
        wanted = "no input" if schema.name == "Constant" else "it has %d inputs" % len(inputs)
        tried += 1
        if wanted not in said:
            check(False, "%s-%d takes %d inputs: %s" % (schema.name, schema.since_version, len(inputs), said[:200]))
    check(tried > 500, "one input more than %d schemas have is an error" % tried)
    with open(os.path.join(os.path.dirname(__file__), "..", "test_malformed.c")) as file:
        text = file.read().split("max_inputs[] =")[1].split(";")[0]
    have = {word.split(":")[0]: int(word.split(":")[1]) for word in "".join(re.findall(r'"(.*?)"', text)).split()}
    fixed = {name: count for name, count in most.items() if count <= 100}
    check(have == fixed, "test_malformed.c knows how many inputs there are: %s" % sorted(set(have.items()) ^ set(fixed.items())))


def main():
    types = table()
    rows = {r["op_type"] for r in json.loads(tool("operators", "--json")[1])["operators"]}
    schemas = collections.defaultdict(lambda: collections.defaultdict(set))
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attr in schema.attributes.items() if schema.domain in DOMAINS else ():
            schemas[schema.name][name].add(attr.type.name)
    compared = 0
    for op_type, attrs in sorted(schemas.items()):
        for name, wanted in sorted(attrs.items()):
            have = types.get("%s.%s" % (op_type, name), types.get(name))
            if op_type not in rows:
                continue
            compared += 1
            if have is None:
                check(False, "%s.%s is not in the table" % (op_type, name))
                continue
            lacks = {t for t in wanted if t not in have and LISTS.get(t) not in have}
            if lacks:
                check(False, "%s.%s may be %s, not only %s" % (op_type, name, sorted(lacks), sorted(have)))
    check_forms(rows)
    check_surplus(rows)
    check(compared > 500, "%d attributes are compared" % compared)
    finish("check_schemas")


main()
