"""check_schemas.py: the table of attribute types in src/ops/attributes.c against the schemas of the onnx
package, every version of every operator that has a row: what a schema allows is allowed."""
import collections
import json
import os
import re

import onnx

from _common import check, finish, tool

DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
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
    check(compared > 500, "%d attributes are compared" % compared)
    finish("check_schemas")


main()
