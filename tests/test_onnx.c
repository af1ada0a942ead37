/* split */
/* test_onnx.c: the ONNX codec: round trips, hostile input, external data, checks, real models. */
#include "../src/onnx/onnx_private.h"
#include "test.h"

static sbit_onnx_read_desc desc_of(sbit_onnx_kind kind)
{
    sbit_onnx_read_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.kind = kind;
    return desc;
}

/* ---- helpers that build messages */

static sbit_str view(const void *data, size_t size)
{
    sbit_str str;
    str.data = (const char *)data;
    str.size = size;
    return str;
}

/* Makes a repeated field of `n` zeroed elements. */
#define LIST(doc, message, member, n)                                                              \
    do {                                                                                           \
        void *list_ = sbit_onnx_alloc(doc, (size_t)(n), sizeof *(message)->member);                \
        memcpy(&(message)->member, &list_, sizeof list_);                                          \
        (message)->member##_count = (size_t)(n);                                                   \
    } while (0)
/* Makes a singular sub-message. */
#define SUB(doc, message, member)                                                                  \
    do {                                                                                           \
        void *sub_ = sbit_onnx_alloc(doc, 1, sizeof *(message)->member);                           \
        memcpy(&(message)->member, &sub_, sizeof sub_);                                            \
    } while (0)
#define SET_TEXT(message, field, member, text)                                                     \
    SBIT_ONNX_SET(message, field, member, sbit__str(text))

static void set_value_info(sbit_onnx_doc *doc, sbit_onnx_value_info *info, const char *name)
{
    SET_TEXT(info, SBIT_ONNX_VALUE_INFO_NAME, name, name);
    SUB(doc, info, type);
    SUB(doc, info->type, tensor_type);
    SBIT_ONNX_SET(info->type->tensor_type, SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE, elem_type, SBIT_F32);
    SUB(doc, info->type->tensor_type, shape);
    LIST(doc, info->type->tensor_type->shape, dim, 3);
    sbit_onnx_dimension *dim = info->type->tensor_type->shape->dim;
    SET_TEXT(&dim[0], SBIT_ONNX_DIMENSION_DIM_PARAM, dim_param, "batch");
    SBIT_ONNX_SET(&dim[1], SBIT_ONNX_DIMENSION_DIM_VALUE, dim_value, 2);
}

static void set_node(sbit_onnx_doc *doc, sbit_onnx_node *node, const char *op, const char *input0,
                     const char *input1, const char *output)
{
    LIST(doc, node, input, input1 != NULL ? 2 : 1);
    node->input[0] = sbit__str(input0);
    if (input1 != NULL) {
        node->input[1] = sbit__str(input1);
    }
    LIST(doc, node, output, 1);
    node->output[0] = sbit__str(output);
    SET_TEXT(node, SBIT_ONNX_NODE_OP_TYPE, op_type, op);
}

static void set_attribute(sbit_onnx_attribute *attribute, const char *name, int32_t type)
{
    SET_TEXT(attribute, SBIT_ONNX_ATTRIBUTE_NAME, name, name);
    SBIT_ONNX_SET(attribute, SBIT_ONNX_ATTRIBUTE_TYPE, type, type);
}

static void set_tensor(sbit_onnx_doc *doc, sbit_onnx_tensor *tensor, const char *name,
                       int32_t dtype, int64_t count)
{
    SET_TEXT(tensor, SBIT_ONNX_TENSOR_NAME, name, name);
    SBIT_ONNX_SET(tensor, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, dtype);
    LIST(doc, tensor, dims, 1);
    tensor->dims[0] = count;
}

static void set_attributes(sbit_onnx_doc *doc, sbit_onnx_node *node)
{
    LIST(doc, node, attribute, 9);
    sbit_onnx_attribute *a = node->attribute;
    set_attribute(&a[0], "f", SBIT_ONNX_ATTR_FLOAT);
    SBIT_ONNX_SET(&a[0], SBIT_ONNX_ATTRIBUTE_F, f, -0.5f);
    set_attribute(&a[1], "i", SBIT_ONNX_ATTR_INT);
    SBIT_ONNX_SET(&a[1], SBIT_ONNX_ATTRIBUTE_I, i, INT64_MIN);
    set_attribute(&a[2], "s", SBIT_ONNX_ATTR_STRING);
    SBIT_ONNX_SET(&a[2], SBIT_ONNX_ATTRIBUTE_S, s, view("\xff\0\xfe", 3));
    set_attribute(&a[3], "t", SBIT_ONNX_ATTR_TENSOR);
    SUB(doc, &a[3], t);
    set_tensor(doc, a[3].t, "", SBIT_I64, 3);
    LIST(doc, a[3].t, int64_data, 3);
    a[3].t->int64_data[1] = -1;
    set_attribute(&a[4], "floats", SBIT_ONNX_ATTR_FLOATS);
    LIST(doc, &a[4], floats, 3);
    a[4].floats[2] = 1e-30f;
    set_attribute(&a[5], "ints", SBIT_ONNX_ATTR_INTS);
    LIST(doc, &a[5], ints, 4);
    a[5].ints[0] = 300;
    a[5].ints[3] = -300;
    set_attribute(&a[6], "strings", SBIT_ONNX_ATTR_STRINGS);
    LIST(doc, &a[6], strings, 2);
    a[6].strings[0] = view("one", 3);
    a[6].strings[1] = view("", 0);
    set_attribute(&a[7], "tp", SBIT_ONNX_ATTR_TYPE_PROTO);
    SUB(doc, &a[7], tp);
    SUB(doc, a[7].tp, map_type);
    SBIT_ONNX_SET(a[7].tp->map_type, SBIT_ONNX_TYPE_MAP_KEY_TYPE, key_type, SBIT_STRING);
    SUB(doc, a[7].tp->map_type, value_type);
    SUB(doc, a[7].tp->map_type->value_type, sequence_type);
    SUB(doc, a[7].tp->map_type->value_type->sequence_type, elem_type);
    set_attribute(&a[8], "branch", SBIT_ONNX_ATTR_GRAPH);
    SUB(doc, &a[8], g);
    LIST(doc, a[8].g, node, 1);
    set_node(doc, &a[8].g->node[0], "Neg", "x", NULL, "inner");
    LIST(doc, a[8].g, output, 1);
    set_value_info(doc, a[8].g->output, "inner");
}

static void set_initializers(sbit_onnx_doc *doc, sbit_onnx_graph *graph)
{
    static const unsigned char raw[32] = {1, 2, 3, 4, 5, 6, 7, 8};
    LIST(doc, graph, initializer, 5);
    sbit_onnx_tensor *t = graph->initializer;
    set_tensor(doc, &t[0], "raw", SBIT_F32, 8);
    SBIT_ONNX_SET(&t[0], SBIT_ONNX_TENSOR_RAW_DATA, raw_data, view(raw, sizeof raw));
    set_tensor(doc, &t[1], "typed", SBIT_I8, 5);
    LIST(doc, &t[1], int32_data, 5);
    t[1].int32_data[0] = -128;
    t[1].int32_data[4] = 127;
    set_tensor(doc, &t[2], "doubles", SBIT_F64, 2);
    LIST(doc, &t[2], double_data, 2);
    t[2].double_data[1] = 0.1;
    set_tensor(doc, &t[3], "unsigned", SBIT_U32, 2);
    LIST(doc, &t[3], uint64_data, 2);
    t[3].uint64_data[0] = 0xfffffffe;
    set_tensor(doc, &t[4], "strings", SBIT_STRING, 2);
    LIST(doc, &t[4], string_data, 2);
    t[4].string_data[0] = view("a\0b", 3);
    LIST(doc, graph, sparse_initializer, 1);
    sbit_onnx_sparse_tensor *sparse = graph->sparse_initializer;
    LIST(doc, sparse, dims, 2);
    sparse->dims[0] = 10;
    sparse->dims[1] = 10;
    SUB(doc, sparse, values);
    set_tensor(doc, sparse->values, "sparse", SBIT_F32, 2);
    LIST(doc, sparse->values, float_data, 2);
    SUB(doc, sparse, indices);
    set_tensor(doc, sparse->indices, "", SBIT_I64, 2);
    LIST(doc, sparse->indices, int64_data, 2);
}

static void set_rest(sbit_onnx_doc *doc, sbit_onnx_model *model)
{
    static const char *const names[] = {"a", "b", "a value with a long name", "y"};
    LIST(doc, model->graph, value_info, 24);
    for (size_t i = 0; i < 24; i++) {
        set_value_info(doc, &model->graph->value_info[i], names[i % 4]);
    }
    LIST(doc, model->graph, quantization_annotation, 1);
    LIST(doc, model->graph->quantization_annotation, quant_parameter_tensor_names, 2);
    LIST(doc, model, functions, 1);
    sbit_onnx_function *f = model->functions;
    SET_TEXT(f, SBIT_ONNX_FUNCTION_NAME, name, "Twice");
    SET_TEXT(f, SBIT_ONNX_FUNCTION_DOMAIN, domain, "local");
    LIST(doc, f, input, 1);
    f->input[0] = sbit__str("in");
    LIST(doc, f, output, 1);
    f->output[0] = sbit__str("out");
    LIST(doc, f, opset_import, 1);
    SBIT_ONNX_SET(f->opset_import, SBIT_ONNX_OPSET_ID_VERSION, version, 17);
    LIST(doc, f, node, 1);
    set_node(doc, f->node, "Add", "in", "in", "out");
    LIST(doc, model, metadata_props, 1);
    SET_TEXT(model->metadata_props, SBIT_ONNX_STRING_ENTRY_KEY, key, "author");
    SET_TEXT(model->metadata_props, SBIT_ONNX_STRING_ENTRY_VALUE, value, "");
    LIST(doc, model, configuration, 1);
    SET_TEXT(model->configuration, SBIT_ONNX_DEVICE_CONFIGURATION_NAME, name, "two");
    SBIT_ONNX_SET(model->configuration, SBIT_ONNX_DEVICE_CONFIGURATION_NUM_DEVICES, num_devices,
                  -2);
    LIST(doc, model, training_info, 1);
    SUB(doc, model->training_info, algorithm);
    LIST(doc, model->training_info, update_binding, 2);
    LIST(doc, model->graph->node, device_configurations, 1);
    LIST(doc, model->graph->node->device_configurations, sharding_spec, 1);
    LIST(doc, model->graph->node->device_configurations->sharding_spec, device, 3);
    LIST(doc, model->graph->node->device_configurations->sharding_spec, sharded_dim, 1);
}

/* A model of about 2 KB that uses most kinds of messages and passes the check. */
static sbit_onnx_doc *build_model(const sbit_allocator *allocator)
{
    static const char note[] = "\xaa\x06\x1e"
                               "an unknown field, number 101. "
                               "\xb0\x06\x05";
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    sbit_onnx_read_desc desc = desc_of(SBIT_ONNX_MODEL);
    if (allocator != NULL) {
        desc.allocator = *allocator;
    }
    if (!CHECK_OK(sbit_onnx_create(&desc, &doc, &error), error)) {
        return NULL;
    }
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_IR_VERSION, ir_version, 10);
    SET_TEXT(model, SBIT_ONNX_MODEL_PRODUCER_NAME, producer_name, "test_onnx");
    LIST(doc, model, opset_import, 2);
    SET_TEXT(&model->opset_import[0], SBIT_ONNX_OPSET_ID_DOMAIN, domain, "");
    SBIT_ONNX_SET(&model->opset_import[0], SBIT_ONNX_OPSET_ID_VERSION, version, 17);
    SET_TEXT(&model->opset_import[1], SBIT_ONNX_OPSET_ID_DOMAIN, domain, "local");
    model->msg.unknown = view(note, sizeof note - 1);
    SUB(doc, model, graph);
    SET_TEXT(model->graph, SBIT_ONNX_GRAPH_NAME, name, "main");
    LIST(doc, model->graph, input, 1);
    set_value_info(doc, model->graph->input, "x");
    LIST(doc, model->graph, output, 1);
    set_value_info(doc, model->graph->output, "y");
    LIST(doc, model->graph, node, 3);
    set_node(doc, &model->graph->node[0], "Mul", "x", "raw", "a");
    set_attributes(doc, &model->graph->node[0]);
    set_node(doc, &model->graph->node[1], "Clip", "a", "", "b");
    set_node(doc, &model->graph->node[2], "Twice", "b", NULL, "y");
    SET_TEXT(&model->graph->node[2], SBIT_ONNX_NODE_DOMAIN, domain, "local");
    set_initializers(doc, model->graph);
    set_rest(doc, model);
    return doc;
}

/* Writes a message to a block that the caller frees. */
static unsigned char *write_message(sbit_onnx_kind kind, const void *message, size_t *size)
{
    const uint64_t measured = sbit_onnx_measure(kind, message);
    unsigned char *bytes = (unsigned char *)malloc((size_t)measured + 1);
    sbit_error error;
    *size = 0;
    CHECK_OK(sbit_onnx_write(kind, message, bytes, (size_t)measured, size, &error), error);
    CHECK_EQ_I64(*size, measured);
    return bytes;
}

static unsigned char *write_model(size_t *size)
{
    sbit_onnx_doc *doc = build_model(NULL);
    unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), size);
    sbit_onnx_destroy(doc);
    return bytes;
}

/* ---- what protobuf writes */

/* Bytes from onnx 1.23's protobuf: each must be understood and come back the same. */
static const unsigned char golden_tensor[] = {0x08, 0x02, 0x08, 0x01, 0x10, 0x01, 0x22,
                                              0x08, 0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00,
                                              0x00, 0xc0, 0x42, 0x01, 0x77};
static const unsigned char golden_ints[] = {0x0a, 0x01, 0x61, 0x40, 0x01, 0x40, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,
                                            0x40, 0xac, 0x02, 0xa0, 0x01, 0x07};
static const unsigned char golden_i32[] = {0x08, 0x03, 0x10, 0x06, 0x2a, 0x0d, 0xff,
                                           0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                           0xff, 0x01, 0x07, 0x80, 0x01};
static const unsigned char golden_wide[] = {0x52, 0x08, 0x9a, 0x99, 0x99, 0x99, 0x99, 0x99,
                                            0xb9, 0x3f, 0x5a, 0x0a, 0xff, 0xff, 0xff, 0xff,
                                            0xff, 0xff, 0xff, 0xff, 0xff, 0x01};

static sbit_onnx_doc *read_bytes(sbit_onnx_kind kind, const void *bytes, size_t size)
{
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    const sbit_onnx_read_desc desc = desc_of(kind);
    CHECK_OK(sbit_onnx_read(bytes, size, &desc, &doc, &error), error);
    return doc;
}

static void check_same_bytes(sbit_onnx_doc *doc, const void *bytes, size_t size)
{
    size_t written = 0;
    unsigned char *again =
        write_message(sbit_onnx_doc_kind(doc), sbit_onnx_doc_root(doc), &written);
    CHECK_EQ_I64(written, size);
    CHECK_MEM(again, bytes, size < written ? size : written);
    free(again);
}

TEST(protobufs_bytes_are_understood)
{
    sbit_onnx_doc *doc = read_bytes(SBIT_ONNX_TENSOR, golden_tensor, sizeof golden_tensor);
    if (doc != NULL) {
        const sbit_onnx_tensor *t = (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
        CHECK(t->dims_count == 2 && t->dims[0] == 2 && t->dims[1] == 1);
        CHECK_EQ_I64(t->data_type, SBIT_F32);
        CHECK(t->float_data_count == 2 && t->float_data[0] == 1.5f && t->float_data[1] == -2.0f);
        CHECK_STR(t->name.data, "w");
        CHECK(SBIT_ONNX_HAS(t, SBIT_ONNX_TENSOR_NAME));
        CHECK(!SBIT_ONNX_HAS(t, SBIT_ONNX_TENSOR_RAW_DATA));
        check_same_bytes(doc, golden_tensor, sizeof golden_tensor);
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_ATTRIBUTE, golden_ints, sizeof golden_ints);
    if (doc != NULL) {
        const sbit_onnx_attribute *a = (const sbit_onnx_attribute *)sbit_onnx_doc_root(doc);
        CHECK_EQ_I64(a->ints_count, 3);
        CHECK(a->ints[0] == 1 && a->ints[1] == -1 && a->ints[2] == 300);
        CHECK_EQ_I64(a->type, SBIT_ONNX_ATTR_INTS);
        check_same_bytes(doc, golden_ints, sizeof golden_ints);
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_TENSOR, golden_i32, sizeof golden_i32);
    if (doc != NULL) {
        const sbit_onnx_tensor *t = (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
        CHECK_EQ_I64(t->int32_data_count, 3);
        CHECK(t->int32_data[0] == -1 && t->int32_data[1] == 7 && t->int32_data[2] == 128);
        check_same_bytes(doc, golden_i32, sizeof golden_i32);
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_TENSOR, golden_wide, sizeof golden_wide);
    if (doc != NULL) {
        const sbit_onnx_tensor *t = (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
        CHECK(t->double_data_count == 1 && t->double_data[0] == 0.1);
        CHECK(t->uint64_data_count == 1 && t->uint64_data[0] == UINT64_MAX);
        check_same_bytes(doc, golden_wide, sizeof golden_wide);
        sbit_onnx_destroy(doc);
    }
}

TEST(lists_packed_or_not)
{
    /* ints = [1, 300] packed although onnx.proto does not; float_data = [1.5, -2] one by one */
    static const unsigned char packed_ints[] = {0x0a, 0x01, 0x61, 0x42, 0x03, 0x01, 0xac, 0x02};
    static const unsigned char loose_floats[] = {0x25, 0x00, 0x00, 0xc0, 0x3f,
                                                 0x25, 0x00, 0x00, 0x00, 0xc0};
    /* one of each: 7, then [8, 9] packed */
    static const unsigned char mixed[] = {0x40, 0x07, 0x42, 0x02, 0x08, 0x09};
    sbit_onnx_doc *doc = read_bytes(SBIT_ONNX_ATTRIBUTE, packed_ints, sizeof packed_ints);
    if (doc != NULL) {
        const sbit_onnx_attribute *a = (const sbit_onnx_attribute *)sbit_onnx_doc_root(doc);
        CHECK(a->ints_count == 2 && a->ints[0] == 1 && a->ints[1] == 300);
        CHECK_EQ_I64(a->msg.repacked, 1 << SBIT_ONNX_ATTRIBUTE_INTS);
        check_same_bytes(doc, packed_ints, sizeof packed_ints);
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_TENSOR, loose_floats, sizeof loose_floats);
    if (doc != NULL) {
        const sbit_onnx_tensor *t = (const sbit_onnx_tensor *)sbit_onnx_doc_root(doc);
        CHECK(t->float_data_count == 2 && t->float_data[0] == 1.5f && t->float_data[1] == -2.0f);
        check_same_bytes(doc, loose_floats, sizeof loose_floats);
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_ATTRIBUTE, mixed, sizeof mixed);
    if (doc != NULL) {
        const sbit_onnx_attribute *a = (const sbit_onnx_attribute *)sbit_onnx_doc_root(doc);
        CHECK(a->ints_count == 3 && a->ints[0] == 7 && a->ints[1] == 8 && a->ints[2] == 9);
        sbit_onnx_destroy(doc);
    }
}

TEST(unknown_fields_come_back)
{
    /* in StringStringEntryProto: number 3 as varint, fixed64, bytes, group {1: 5, group {}},
     * fixed32; number 1 as a varint, which the schema says is text; all behind key "k" */
    static const unsigned char bytes[] = {
        0x0a, 0x01, 'k',                             /* key */
        0x18, 0x96, 0x01,                            /* 3: 150 */
        0x19, 1,    2,    3,    4,    5,    6, 7, 8, /* 3: fixed64 */
        0x1a, 0x02, 0x00, 0xff,                      /* 3: bytes */
        0x1b, 0x08, 0x05, 0x13, 0x14, 0x1c,          /* 3: group with a varint and a group */
        0x1d, 9,    8,    7,    6,                   /* 3: fixed32 */
        0x08, 0x2a};                                 /* 1: varint */
    static const unsigned char split[] = {0x18, 0x01, 0x0a, 0x01, 'k', 0x18, 0x02};
    static const unsigned char split_sorted[] = {0x0a, 0x01, 'k', 0x18, 0x01, 0x18, 0x02};
    sbit_onnx_doc *doc = read_bytes(SBIT_ONNX_OPSET_ID, bytes, sizeof bytes);
    if (doc != NULL) {
        const sbit_onnx_opset_id *o = (const sbit_onnx_opset_id *)sbit_onnx_doc_root(doc);
        CHECK_STR(o->domain.data, "k");
        CHECK_EQ_I64(o->msg.unknown.size, sizeof bytes - 3);
        check_same_bytes(doc, bytes, sizeof bytes);
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_OPSET_ID, split, sizeof split);
    if (doc != NULL) {
        check_same_bytes(doc, split_sorted, sizeof split_sorted);
        sbit_onnx_destroy(doc);
    }
}

TEST(repeated_singular_fields_merge)
{
    /* ModelProto: graph {name "a", node {}}, graph {node {op_type "B"}, name "b"}: one graph */
    static const unsigned char bytes[] = {0x3a, 0x05, 0x12, 0x01, 'a', 0x0a, 0x00, 0x3a, 0x08,
                                          0x0a, 0x03, 0x22, 0x01, 'B', 0x12, 0x01, 'b'};
    /* TypeProto: tensor_type {elem_type 1}, then sequence_type {}: a oneof keeps the last */
    static const unsigned char oneof[] = {0x0a, 0x02, 0x08, 0x01, 0x22, 0x00};
    sbit_onnx_doc *doc = read_bytes(SBIT_ONNX_MODEL, bytes, sizeof bytes);
    if (doc != NULL) {
        const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
        CHECK_STR(graph->name.data, "b");
        CHECK_EQ_I64(graph->node_count, 2);
        CHECK_EQ_I64(graph->node[0].op_type.size, 0);
        CHECK_STR(graph->node[1].op_type.data, "B");
        sbit_onnx_destroy(doc);
    }
    doc = read_bytes(SBIT_ONNX_TYPE, oneof, sizeof oneof);
    if (doc != NULL) {
        const sbit_onnx_type *type = (const sbit_onnx_type *)sbit_onnx_doc_root(doc);
        CHECK(type->tensor_type == NULL && type->sequence_type != NULL);
        check_same_bytes(doc, oneof + 4, 2);
        sbit_onnx_destroy(doc);
    }
}

TEST(built_model_round_trip)
{
    sbit_onnx_doc *doc = build_model(NULL), *again = NULL, *copy = NULL;
    sbit_error error;
    size_t size = 0;
    unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &size);
    CHECK(size > 1500 && size < 3000);
    CHECK_OK(sbit_onnx_check(doc, &error), error);
    again = read_bytes(SBIT_ONNX_MODEL, bytes, size);
    if (again != NULL) {
        CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(again)));
        CHECK_OK(sbit_onnx_check(again, &error), error);
        check_same_bytes(again, bytes, size);
        /* a copy with bytes outlives what it was copied from */
        CHECK_OK(sbit_onnx_create(NULL, &copy, &error), error);
        CHECK_OK(sbit_onnx_copy(copy, SBIT_ONNX_MODEL, sbit_onnx_doc_root(again),
                                sbit_onnx_doc_root(copy), true, &error),
                 error);
        CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(copy)));
        sbit_onnx_destroy(again);
        unsigned char *kept = (unsigned char *)malloc(size);
        memcpy(kept, bytes, size);
        memset(bytes, 0xee, size);
        check_same_bytes(copy, kept, size);
        free(kept);
        sbit_onnx_doc_model(copy)->graph->node[0].attribute[5].ints[3] = 0;
        CHECK(!sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(copy)));
        sbit_onnx_destroy(copy);
    }
    free(bytes);
    sbit_onnx_destroy(doc);
    sbit_onnx_destroy(NULL);
}

/* ---- hostile input */

static sbit_status visit_data(const sbit_onnx_tensor *tensor, const sbit__onnx_field *parent,
                              void *user, sbit_error *error)
{
    sbit_str data;
    volatile unsigned sum = 0;
    (void)parent;
    if (sbit_onnx_tensor_data((sbit_onnx_doc *)user, tensor, &data, error) == SBIT_OK) {
        for (size_t i = 0; i < data.size; i++) {
            sum = sum + (unsigned char)data.data[i];
        }
    }
    return SBIT_OK;
}

static void print_nowhere(const char *text, size_t size, void *user)
{
    *(size_t *)user += size + (size_t)text[0] % 2;
}

/* Everything a reader of untrusted files does; under a sanitizer this finds wild reads. */
static bool exercise(const void *bytes, size_t size)
{
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    size_t printed = 0, written = 0;
    memset(&error, 0, sizeof error);
    const sbit_status status = sbit_onnx_read(bytes, size, NULL, &doc, &error);
    if (status != SBIT_OK) {
        CHECK(status == SBIT_ERR_PARSE || status == SBIT_ERR_LIMIT);
        CHECK(error.message[0] != '\0' && error.status == status);
        return false;
    }
    sbit_onnx_check(doc, &error);
    sbit__onnx_visit_tensors(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), visit_data, doc, &error);
    sbit_onnx_print(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), 4, print_nowhere, &printed);
    unsigned char *again = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &written);
    sbit_onnx_doc *second = read_bytes(SBIT_ONNX_MODEL, again, written);
    if (second != NULL) {
        CHECK(
            sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(second)));
        sbit_onnx_destroy(second);
    }
    free(again);
    sbit_onnx_destroy(doc);
    return true;
}

TEST(cut_at_every_byte)
{
    size_t size = 0;
    int read = 0;
    unsigned char *bytes = write_model(&size);
    for (size_t cut = 0; cut <= size; cut++) {
        unsigned char *part = (unsigned char *)malloc(cut + 1); /* its own block: ASan's fence */
        part = (unsigned char *)realloc(part, cut != 0 ? cut : 1);
        memcpy(part, bytes, cut);
        read += exercise(part, cut) ? 1 : 0;
        free(part);
    }
    /* readable: nothing, and what ends with one of the 11 top-level fields (2 of them unknown) */
    CHECK_EQ_I64(read, 12);
    free(bytes);
}

TEST(every_bit_flipped)
{
    size_t size = 0;
    unsigned char *bytes = write_model(&size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        exercise(bytes, size);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    free(bytes);
}

TEST(malformed_input_is_located)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *message, *where;
    } rows[] = {
        {"\x08", 1, "ir_version: the varint is cut off", "byte 1"},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, "longer than 10 bytes", "byte 1"},
        {"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11, "longer than 10 bytes", "byte 1"},
        {"\x00", 1, "field number", "byte 0"},
        {"\x06", 1, "field number", "byte 0"},
        {"\x0e", 1, "wire types 6 and 7", "byte 1"},
        {"\x0f", 1, "wire types 6 and 7", "byte 1"},
        {"\x3a\x7f", 2, "graph: the length exceeds", "byte 1"},
        {"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "graph: the length exceeds", "byte 1"},
        {"\x0c", 1, "a group ends here", "byte 1"},
        {"\xdb\x06\xd4\x06", 4, "the end of another group", "byte 4"},
        {"\xdb\x06\x08\x01", 4, "the group has no end", "byte 4"},
        {"\x3a\x06\x0a\x04\x2a\x02\x0a\x05", 8,
         "graph.node[0].attribute[0].name: the length exceeds", "byte 7"},
        {"\x3a\x0a\x0a\x00\x0a\x06\x2a\x04\x0a\x00\x2a\x05", 12,
         "graph.node[1].attribute[0].t: the length exceeds", "byte 11"},
        {"\x3a\x05\x2a\x03\x22\x01\x00", 7, "graph.initializer[0].float_data[0]: the last element",
         "byte 7"},
        {"\x3a\x06\x2a\x04\x2a\x02\x01\x80", 8,
         "graph.initializer[0].int32_data[1]: the last element", "byte 8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sbit_onnx_doc *doc = NULL;
        sbit_error error;
        const sbit_status status = sbit_onnx_read(rows[i].bytes, rows[i].size, NULL, &doc, &error);
        if (CHECK_STATUS(status, SBIT_ERR_PARSE, error)) {
            CHECK_CONTAINS(error.message, rows[i].message);
            CHECK_MSG(strcmp(error.where, rows[i].where) == 0, "row %d: where is %s, not %s: %s",
                      (int)i, error.where, rows[i].where, error.message);
        }
        CHECK(doc == NULL);
    }
}

/* `depth` nested messages: graph { node { attribute { g { node ... } } } }, innermost empty. */
static size_t nested_graphs(unsigned char *buffer, size_t capacity, int depth)
{
    static const unsigned char tags[] = {0x0a, 0x2a, 0x32}; /* node, attribute, g */
    size_t first = capacity;
    for (int level = depth - 1; level >= 0; level--) {
        size_t size = capacity - first;
        unsigned char length[10];
        size_t used = 0;
        for (; size >= 0x80; size >>= 7) {
            length[used++] = (unsigned char)(size | 0x80);
        }
        length[used++] = (unsigned char)size;
        first -= used;
        memcpy(buffer + first, length, used);
        buffer[--first] = level == 0 ? 0x3a : tags[(level - 1) % 3];
    }
    memmove(buffer, buffer + first, capacity - first);
    return capacity - first;
}

TEST(depth_is_limited)
{
    static unsigned char buffer[200000];
    sbit_onnx_read_desc desc = desc_of(SBIT_ONNX_MODEL);
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    size_t size = nested_graphs(buffer, sizeof buffer, 99); /* the model is the 100th */
    CHECK_OK(sbit_onnx_read(buffer, size, NULL, &doc, &error), error);
    sbit_onnx_destroy(doc);
    doc = NULL;
    size = nested_graphs(buffer, sizeof buffer, 100);
    CHECK_STATUS(sbit_onnx_read(buffer, size, NULL, &doc, &error), SBIT_ERR_LIMIT, error);
    desc.max_depth = 101;
    CHECK_OK(sbit_onnx_read(buffer, size, &desc, &doc, &error), error);
    sbit_onnx_destroy(doc);
    doc = NULL;
    desc.max_depth = UINT32_MAX; /* clamped, so that the stack is safe */
    size = nested_graphs(buffer, sizeof buffer, 20000);
    CHECK_STATUS(sbit_onnx_read(buffer, size, &desc, &doc, &error), SBIT_ERR_LIMIT, error);
    /* groups count as well */
    memset(buffer, 0xdb, sizeof buffer);
    for (size_t i = 1; i < sizeof buffer; i += 2) {
        buffer[i] = 0x06;
    }
    CHECK_STATUS(sbit_onnx_read(buffer, sizeof buffer, NULL, &doc, &error), SBIT_ERR_PARSE, error);
    CHECK_CONTAINS(error.message, "nested too deeply");
    CHECK(doc == NULL);
}

TEST(memory_is_limited)
{
    enum {
        COUNT = 100000
    };
    static unsigned char buffer[COUNT * 2 + 16];
    test_heap heap = {0};
    sbit_onnx_read_desc desc = desc_of(SBIT_ONNX_GRAPH);
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    for (size_t i = 0; i < COUNT; i++) { /* empty nodes: 2 bytes each, the struct has hundreds */
        buffer[2 * i] = 0x0a;
        buffer[2 * i + 1] = 0x00;
    }
    desc.allocator = test_heap_allocator(&heap);
    desc.max_arena_bytes = 1 << 20;
    CHECK_STATUS(sbit_onnx_read(buffer, COUNT * 2, &desc, &doc, &error), SBIT_ERR_LIMIT, error);
    CHECK(heap.peak_bytes <= 1 << 20);
    CHECK_EQ_I64(heap.live_bytes, 0);
    desc.max_arena_bytes = 0;
    CHECK_OK(sbit_onnx_read(buffer, COUNT * 2, &desc, &doc, &error), error);
    CHECK(heap.peak_bytes < (int64_t)(COUNT * (sizeof(sbit_onnx_node) + 64)));
    sbit_onnx_destroy(doc);
    doc = NULL;
    desc.max_file_bytes = COUNT;
    CHECK_STATUS(sbit_onnx_read(buffer, COUNT * 2, &desc, &doc, &error), SBIT_ERR_LIMIT, error);
    CHECK_EQ_I64(heap.live_bytes, 0);
    CHECK(doc == NULL);
}

TEST(bad_arguments_are_refused)
{
    sbit_onnx_read_desc desc = desc_of((sbit_onnx_kind)SBIT_ONNX_KIND_COUNT);
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    unsigned char small[4];
    size_t written = 99;
    CHECK_STATUS(sbit_onnx_create(&desc, &doc, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    desc = desc_of(SBIT_ONNX_TENSOR);
    desc.allocator.alloc_fn = test_heap_alloc;
    CHECK_STATUS(sbit_onnx_read("", 0, &desc, &doc, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    CHECK_STATUS(sbit_onnx_load("/no/such/model.onnx", NULL, &doc, &error), SBIT_ERR_IO, error);
    CHECK(doc == NULL);
    CHECK_OK(sbit_onnx_read(NULL, 0, NULL, &doc, &error), error);
    CHECK(sbit_onnx_doc_model(doc) != NULL && sbit_onnx_doc_model(doc)->graph == NULL);
    CHECK_STR(sbit_onnx_doc_folder(doc), ".");
    SBIT_ONNX_SET(sbit_onnx_doc_model(doc), SBIT_ONNX_MODEL_DOMAIN, domain, sbit__str("abcdef"));
    CHECK_STATUS(sbit_onnx_write(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), small, sizeof small,
                                 &written, &error),
                 SBIT_ERR_INVALID_ARGUMENT, error);
    CHECK_EQ_I64(written, 99);
    sbit_onnx_destroy(doc);
}

/* ---- tensors */

TEST(element_types)
{
    size_t bytes = 0;
    CHECK_STR(sbit_dtype_name(SBIT_BF16), "bfloat16");
    CHECK_STR(sbit_dtype_name(99), "unknown");
    CHECK_STR(sbit_dtype_name(-1), "unknown");
    CHECK_EQ_I64(sbit_dtype_bits(SBIT_C128), 128);
    CHECK_EQ_I64(sbit_dtype_bits(SBIT_STRING), 0);
    CHECK_EQ_I64(sbit_dtype_bits(1000), 0);
    CHECK(sbit_dtype_bytes(SBIT_I4, 5, &bytes) && bytes == 3);
    CHECK(sbit_dtype_bytes(SBIT_U2, 9, &bytes) && bytes == 3);
    CHECK(sbit_dtype_bytes(SBIT_F64, 3, &bytes) && bytes == 24);
    CHECK(sbit_dtype_bytes(SBIT_F32, 0, &bytes) && bytes == 0);
    CHECK(!sbit_dtype_bytes(SBIT_STRING, 1, &bytes));
    CHECK(!sbit_dtype_bytes(SBIT_F32, -1, &bytes));
    CHECK(!sbit_dtype_bytes(SBIT_F64, INT64_MAX, &bytes));
}

/* Gives a tensor `n` zeroed elements in the typed field that onnx.proto assigns to its type. */
static void set_typed(sbit_onnx_doc *doc, sbit_onnx_tensor *tensor, int n)
{
    if (tensor->data_type == SBIT_F32) {
        LIST(doc, tensor, float_data, n);
    } else if (tensor->data_type == SBIT_F64) {
        LIST(doc, tensor, double_data, n);
    } else if (tensor->data_type == SBIT_I64) {
        LIST(doc, tensor, int64_data, n);
    } else {
        LIST(doc, tensor, int32_data, n);
    }
}

/* onnx-tensorrt#1058: dims that say more than the data holds. */
TEST(data_must_match_dims)
{
    static const int32_t types[] = {SBIT_F32, SBIT_F16, SBIT_I8,   SBIT_U8,
                                    SBIT_I32, SBIT_I64, SBIT_BOOL, SBIT_F64};
    static const char raw[16] = {0};
    sbit_error error;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        sbit_onnx_doc *doc = build_model(NULL);
        sbit_onnx_tensor *t = &sbit_onnx_doc_model(doc)->graph->initializer[0];
        const size_t each = (size_t)sbit_dtype_bits(types[i]) / 8;
        sbit_str data;
        SBIT_ONNX_CLEAR(t, SBIT_ONNX_TENSOR_RAW_DATA);
        t->data_type = types[i];
        t->dims[0] = 128; /* (a) */
        CHECK_STATUS(sbit_onnx_tensor_data(doc, t, &data, &error), SBIT_ERR_INVALID_MODEL, error);
        CHECK_CONTAINS(error.message, "'raw'");
        CHECK_STR(error.where, "raw");
        CHECK_STATUS(sbit_onnx_check(doc, &error), SBIT_ERR_INVALID_MODEL, error);
        t->dims[0] = 4; /* (b) */
        set_typed(doc, t, 3);
        CHECK_STATUS(sbit_onnx_tensor_data(doc, t, &data, &error), SBIT_ERR_INVALID_MODEL, error);
        set_typed(doc, t, 4);
        if (CHECK_OK(sbit_onnx_tensor_data(doc, t, &data, &error), error)) {
            CHECK_EQ_I64(data.size, 4 * each);
        }
        set_typed(doc, t, 0); /* (c) */
        SBIT_ONNX_SET(t, SBIT_ONNX_TENSOR_RAW_DATA, raw_data, view(raw, 4 * each - 1));
        CHECK_STATUS(sbit_onnx_tensor_data(doc, t, &data, &error), SBIT_ERR_INVALID_MODEL, error);
        t->dims_count = 0; /* (d) a scalar */
        t->raw_data.size = each;
        if (CHECK_OK(sbit_onnx_tensor_data(doc, t, &data, &error), error)) {
            CHECK_EQ_I64(data.size, each);
        }
        t->dims_count = 1; /* (e) empty */
        t->dims[0] = 0;
        t->raw_data.size = 0;
        CHECK_OK(sbit_onnx_tensor_data(doc, t, &data, &error), error);
        SBIT_ONNX_CLEAR(t, SBIT_ONNX_TENSOR_RAW_DATA);
        if (CHECK_OK(sbit_onnx_tensor_data(doc, t, &data, &error), error)) {
            CHECK_EQ_I64(data.size, 0);
        }
        CHECK_OK(sbit_onnx_check(doc, &error), error);
        t->dims[0] = -1;
        CHECK_STATUS(sbit_onnx_tensor_data(doc, t, &data, &error), SBIT_ERR_INVALID_MODEL, error);
        sbit_onnx_destroy(doc);
    }
}

TEST(typed_fields_become_elements)
{
    sbit_onnx_doc *doc = build_model(NULL);
    const sbit_onnx_tensor *t = sbit_onnx_doc_model(doc)->graph->initializer;
    const uint32_t words[] = {0xfffffffeu, 0};
    const signed char bytes[] = {-128, 0, 0, 0, 127};
    sbit_onnx_tensor nibbles;
    sbit_error error;
    sbit_str data;
    if (CHECK_OK(sbit_onnx_tensor_data(doc, &t[1], &data, &error), error)) {
        CHECK_EQ_I64(data.size, 5);
        CHECK_MEM(data.data, bytes, 5);
    }
    if (CHECK_OK(sbit_onnx_tensor_data(doc, &t[3], &data, &error), error)) {
        CHECK_EQ_I64(data.size, 8);
        CHECK_MEM(data.data, words, 8);
    }
    CHECK_STATUS(sbit_onnx_tensor_data(doc, &t[4], &data, &error), SBIT_ERR_INVALID_ARGUMENT,
                 error);
    /* five uint4 in three bytes, each in an int32; an empty raw_data beside them is ignored */
    memset(&nibbles, 0, sizeof nibbles);
    set_tensor(doc, &nibbles, "nibbles", SBIT_U4, 5);
    LIST(doc, &nibbles, int32_data, 3);
    nibbles.int32_data[0] = 0x21;
    nibbles.int32_data[1] = 0x43;
    nibbles.int32_data[2] = 0x05;
    SBIT_ONNX_SET(&nibbles, SBIT_ONNX_TENSOR_RAW_DATA, raw_data, view("", 0));
    if (CHECK_OK(sbit_onnx_tensor_data(doc, &nibbles, &data, &error), error)) {
        CHECK_EQ_I64(data.size, 3);
        CHECK_MEM(data.data, "\x21\x43\x05", 3);
    }
    /* what a big-endian host does to raw_data */
    sbit_str pair = view("\1\2\3\4\5\6\7\10", 8);
    CHECK_OK(sbit__onnx_swapped(&doc->arena, SBIT_C64, &pair, &error), error);
    CHECK_MEM(pair.data, "\4\3\2\1\10\7\6\5", 8);
    nibbles.data_type = 99;
    CHECK_STATUS(sbit_onnx_tensor_data(doc, &nibbles, &data, &error), SBIT_ERR_INVALID_MODEL,
                 error);
    sbit_onnx_destroy(doc);
}

/* ---- files and external data */

static bool same_file(const char *path, const void *bytes, size_t size)
{
    size_t got = 0;
    unsigned char *data = test_read_file(path, &got);
    const bool same = data != NULL && got == size && memcmp(data, bytes, size) == 0;
    free(data);
    return same;
}

TEST(saved_files)
{
    sbit_onnx_doc *doc = build_model(NULL), *again = NULL;
    sbit_error error;
    char path[512], folder[512];
    size_t size = 0;
    unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &size);
    test_tmp_path("onnx_saved.onnx", path, sizeof path);
    test_tmp_path("", folder, sizeof folder);
    folder[strlen(folder) - 1] = '\0';
    CHECK_OK(sbit_onnx_save(doc, path, NULL, &error), error);
    CHECK(same_file(path, bytes, size));
    if (CHECK_OK(sbit_onnx_load(path, NULL, &again, &error), error)) {
        CHECK_STR(sbit_onnx_doc_folder(again), folder);
        CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(again)));
        /* over the file that is mapped */
        CHECK_OK(sbit_onnx_save(again, path, NULL, &error), error);
        CHECK(same_file(path, bytes, size));
        sbit_onnx_destroy(again);
    }
    CHECK_STATUS(sbit_onnx_save(doc, "/no/such/folder/m.onnx", NULL, &error), SBIT_ERR_IO, error);
    free(bytes);
    sbit_onnx_destroy(doc);
    remove(path);
}

/* Large raw data goes past the writer's buffer. */
TEST(large_bytes_are_saved_from_where_they_lie)
{
    enum {
        BYTES = 400000
    };
    static char big[BYTES];
    sbit_onnx_doc *doc = build_model(NULL);
    sbit_onnx_tensor *t = sbit_onnx_doc_model(doc)->graph->initializer;
    sbit_error error;
    char path[512];
    size_t size = 0;
    for (size_t i = 0; i < BYTES; i++) {
        big[i] = (char)(i * 31 + i / 997);
    }
    t[0].dims[0] = BYTES / 4;
    t[0].raw_data = view(big, BYTES);
    t[1].data_type = SBIT_U8;
    t[1].dims[0] = 5000;
    t[1].int32_data_count = 0;
    SBIT_ONNX_SET(&t[1], SBIT_ONNX_TENSOR_RAW_DATA, raw_data, view(big + 3, 5000));
    unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &size);
    test_tmp_path("onnx_large.onnx", path, sizeof path);
    CHECK_OK(sbit_onnx_save(doc, path, NULL, &error), error);
    CHECK(same_file(path, bytes, size));
    free(bytes);
    sbit_onnx_destroy(doc);
    remove(path);
}

TEST(external_data_goes_out_and_comes_back)
{
    sbit_onnx_doc *doc = build_model(NULL), *outside = NULL, *inside = NULL;
    sbit_onnx_write_desc desc;
    sbit_error error;
    char path[512], data_path[512], other[512];
    size_t size = 0, data_size = 0;
    sbit_str data;
    memset(&desc, 0, sizeof desc);
    test_tmp_path("onnx_ext.onnx", path, sizeof path);
    test_tmp_path("onnx_ext.onnx.data", data_path, sizeof data_path);
    test_tmp_path("onnx_ext_in.onnx", other, sizeof other);
    /* typed data becomes raw when it moves: let the original be raw too, to compare bytes */
    sbit_onnx_tensor *t = sbit_onnx_doc_model(doc)->graph->initializer;
    t[1].int32_data_count = 0;
    SBIT_ONNX_SET(&t[1], SBIT_ONNX_TENSOR_RAW_DATA, raw_data, view("\x80\0\0\0\x7f", 5));
    unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &size);

    desc.external_above_bytes = 6;
    desc.external_align = 64;
    CHECK_OK(sbit_onnx_save(doc, path, &desc, &error), error);
    unsigned char *stored = test_read_file(data_path, &data_size);
    /* raw: 32 bytes at 0; typed: 5 bytes, stays; doubles: 16 at 64; unsigned: 8 at 128 */
    CHECK_EQ_I64(data_size, 136);
    if (stored != NULL) {
        CHECK_MEM(stored, t[0].raw_data.data, 32);
        CHECK_MEM(stored + 128, "\xfe\xff\xff\xff\0\0\0\0", 8);
        for (int i = 32; i < 64; i++) {
            CHECK_EQ_I64(stored[i], 0);
        }
        free(stored);
    }
    if (CHECK_OK(sbit_onnx_load(path, NULL, &outside, &error), error)) {
        const sbit_onnx_tensor *moved = sbit_onnx_doc_model(outside)->graph->initializer;
        CHECK_EQ_I64(moved[2].data_location, 1);
        CHECK_EQ_I64(moved[2].external_data_count, 3);
        CHECK_STR(moved[2].external_data[0].value.data, "onnx_ext.onnx.data");
        CHECK_STR(moved[2].external_data[1].value.data, "64");
        CHECK_STR(moved[2].external_data[2].value.data, "16");
        CHECK_EQ_I64(moved[1].external_data_count, 0);
        CHECK_OK(sbit_onnx_check(outside, &error), error);
        for (int repeat = 0; repeat < 2; repeat++) {
            if (CHECK_OK(sbit_onnx_tensor_data(outside, &moved[2], &data, &error), error)) {
                CHECK_MEM(data.data, t[2].double_data, 16);
            }
        }
        CHECK_EQ_I64(outside->range_count, 1);
        /* back inside, and outside again over the files it refers to */
        CHECK_OK(sbit_onnx_save(outside, other, NULL, &error), error);
        desc.external_align = 16;
        CHECK_OK(sbit_onnx_save(outside, path, &desc, &error), error);
        if (CHECK_OK(sbit_onnx_tensor_data(outside, &moved[3], &data, &error), error)) {
            CHECK_MEM(data.data, "\xfe\xff\xff\xff\0\0\0\0", 8);
        }
        sbit_onnx_destroy(outside);
    }
    if (CHECK_OK(sbit_onnx_load(path, NULL, &outside, &error), error)) {
        const sbit_onnx_tensor *moved = sbit_onnx_doc_model(outside)->graph->initializer;
        CHECK_STR(moved[2].external_data[1].value.data, "32");
        if (CHECK_OK(sbit_onnx_tensor_data(outside, &moved[2], &data, &error), error)) {
            CHECK_MEM(data.data, t[2].double_data, 16);
        }
        sbit_onnx_destroy(outside);
    }
    if (CHECK_OK(sbit_onnx_load(other, NULL, &inside, &error), error)) {
        const sbit_onnx_tensor *back = sbit_onnx_doc_model(inside)->graph->initializer;
        CHECK_EQ_I64(back[2].external_data_count, 0);
        CHECK(!SBIT_ONNX_HAS(&back[2], SBIT_ONNX_TENSOR_DATA_LOCATION));
        CHECK_EQ_I64(back[2].raw_data.size, 16);
        sbit_onnx_tensor *mutable_back = sbit_onnx_doc_model(inside)->graph->initializer;
        for (int i = 2; i < 4; i++) { /* typed in the original */
            SBIT_ONNX_CLEAR(&mutable_back[i], SBIT_ONNX_TENSOR_RAW_DATA);
            mutable_back[i].double_data = t[i].double_data;
            mutable_back[i].double_data_count = t[i].double_data_count;
            mutable_back[i].uint64_data = t[i].uint64_data;
            mutable_back[i].uint64_data_count = t[i].uint64_data_count;
        }
        check_same_bytes(inside, bytes, size);
        sbit_onnx_destroy(inside);
    }
    free(bytes);
    sbit_onnx_destroy(doc);
    remove(path);
    remove(data_path);
    remove(other);
}

/* Makes initializer 0 external; `length` may be NULL. */
static void set_external(sbit_onnx_doc *doc, const char *location, const char *offset,
                         const char *length)
{
    sbit_onnx_tensor *t = sbit_onnx_doc_model(doc)->graph->initializer;
    SBIT_ONNX_CLEAR(t, SBIT_ONNX_TENSOR_RAW_DATA);
    SBIT_ONNX_SET(t, SBIT_ONNX_TENSOR_DATA_LOCATION, data_location, 1);
    LIST(doc, t, external_data, 3);
    SET_TEXT(&t->external_data[0], SBIT_ONNX_STRING_ENTRY_KEY, key, "location");
    SET_TEXT(&t->external_data[0], SBIT_ONNX_STRING_ENTRY_VALUE, value, location);
    SET_TEXT(&t->external_data[1], SBIT_ONNX_STRING_ENTRY_KEY, key, "offset");
    SET_TEXT(&t->external_data[1], SBIT_ONNX_STRING_ENTRY_VALUE, value, offset);
    SET_TEXT(&t->external_data[2], SBIT_ONNX_STRING_ENTRY_KEY, key, "length");
    SET_TEXT(&t->external_data[2], SBIT_ONNX_STRING_ENTRY_VALUE, value, length);
    t->external_data_count = length != NULL ? 3 : 2;
}

TEST(external_locations_stay_in_the_folder)
{
    static const char *const bad[] = {"../w.bin",  "/etc/passwd", "a/../../w.bin", "a\\..\\w.bin",
                                      "C:\\w.bin", "C:w.bin",     "\\\\host\\w",   "",
                                      "..",        "a/..",        "\\w.bin"};
    static const char *const good[] = {"w.bin", "a/w.bin", "a/..b/w", "...", ".w", "a..b"};
    sbit_error error;
    sbit_str data;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sbit_onnx_doc *doc = build_model(NULL);
        set_external(doc, bad[i], "0", "32");
        CHECK_STATUS(
            sbit_onnx_tensor_data(doc, sbit_onnx_doc_model(doc)->graph->initializer, &data, &error),
            SBIT_ERR_INVALID_MODEL, error);
        CHECK_CONTAINS(error.message, "location");
        CHECK_STATUS(sbit_onnx_check(doc, &error), SBIT_ERR_INVALID_MODEL, error);
        CHECK_STATUS(sbit_onnx_save(doc, "unused.onnx", NULL, &error), SBIT_ERR_INVALID_MODEL,
                     error);
        sbit_onnx_destroy(doc);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK(sbit__onnx_location_is_safe(good[i], strlen(good[i])));
    }
    CHECK(!sbit__onnx_location_is_safe("a\0b", 3));
}

TEST(external_ranges_are_checked)
{
    static const struct {
        const char *offset, *length;
        sbit_status status;
    } rows[] = {{"0", "32", SBIT_OK},
                {"8", NULL, SBIT_OK},
                {"9", "32", SBIT_ERR_IO},
                {"0", "31", SBIT_ERR_INVALID_MODEL},
                {"-1", "32", SBIT_ERR_INVALID_MODEL},
                {"x", "32", SBIT_ERR_INVALID_MODEL},
                {"0", "", SBIT_ERR_INVALID_MODEL},
                {"9223372036854775807", "32", SBIT_ERR_IO},
                {"99999999999999999999", "32", SBIT_ERR_INVALID_MODEL}};
    char path[512], data_path[512], numbers[40];
    sbit_error error;
    sbit_str data;
    test_tmp_path("onnx_range.onnx", path, sizeof path);
    test_tmp_path("onnx_range.bin", data_path, sizeof data_path);
    FILE *file = fopen(data_path, "wb");
    for (size_t i = 0; i < sizeof numbers; i++) {
        numbers[i] = (char)i;
    }
    CHECK(file != NULL && fwrite(numbers, 1, 40, file) == 40 && fclose(file) == 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t size = 0;
        sbit_onnx_doc *doc = build_model(NULL), *loaded = NULL;
        set_external(doc, "onnx_range.bin", rows[i].offset, rows[i].length);
        unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &size);
        FILE *model = fopen(path, "wb");
        CHECK(model != NULL && fwrite(bytes, 1, size, model) == size && fclose(model) == 0);
        if (CHECK_OK(sbit_onnx_load(path, NULL, &loaded, &error), error)) {
            const sbit_onnx_tensor *t = sbit_onnx_doc_model(loaded)->graph->initializer;
            memset(&error, 0, sizeof error);
            if (CHECK_STATUS(sbit_onnx_tensor_data(loaded, t, &data, &error), rows[i].status,
                             error)) {
                if (rows[i].status == SBIT_OK) {
                    CHECK_EQ_I64(data.size, 32);
                    CHECK_MEM(data.data, numbers + atoi(rows[i].offset), 32);
                } else {
                    CHECK_CONTAINS(error.message, "'raw'");
                }
            }
            sbit_onnx_destroy(loaded);
        }
        free(bytes);
        sbit_onnx_destroy(doc);
    }
    remove(path);
    remove(data_path);
}

TEST(two_gigabytes)
{
    sbit_onnx_doc *doc = build_model(NULL);
    sbit_onnx_tensor *t = sbit_onnx_doc_model(doc)->graph->initializer;
    sbit_onnx_write_desc desc;
    sbit_error error;
    char path[512];
    const uint64_t small = sbit_onnx_measure(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc));
    const uint64_t big = UINT64_C(3) << 30;
    if (sizeof(size_t) < 8) {
        sbit_onnx_destroy(doc);
        SBIT_TEST_SKIP("a 32-bit host");
    }
    /* never read: only its length counts here */
    t->dims[0] = (int64_t)(big / 4);
    t->raw_data.size = (size_t)big;
    /* its own length takes 5 bytes instead of 1, dims 5 for 1, the graph's length 5 for 2 */
    CHECK_EQ_I64(sbit_onnx_measure(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc)),
                 small - 32 + big + 4 + 4 + 3 + 4);
    memset(&desc, 0, sizeof desc);
    desc.external_above_bytes = SIZE_MAX;
    test_tmp_path("onnx_2gb.onnx", path, sizeof path);
    CHECK_STATUS(sbit_onnx_save(doc, path, &desc, &error), SBIT_ERR_LIMIT, error);
    CHECK(!test_file_exists(path));
    desc.external_name = "../elsewhere";
    CHECK_STATUS(sbit_onnx_save(doc, path, &desc, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    sbit_onnx_destroy(doc);
}

/* Weights of a 3 GB file are read by range: the file is sparse, nearly nothing is in it. */
TEST(large_external_files)
{
    enum {
        TAIL = 32
    };
    const long big = (long)(INT64_C(3) << (sizeof(long) < 8 ? 20 : 30));
    char data_path[512], path[512], offset[32];
    sbit_onnx_doc *doc = build_model(NULL), *loaded = NULL;
    sbit_error error;
    sbit_str data;
    size_t size = 0;
    test_tmp_path("onnx_sparse.onnx", path, sizeof path);
    test_tmp_path("onnx_sparse.bin", data_path, sizeof data_path);
    snprintf(offset, sizeof offset, "%ld", big);
    FILE *file = fopen(data_path, "wb");
    const bool written = file != NULL && fseek(file, big, SEEK_SET) == 0 &&
                         fwrite("0123456789abcdef0123456789ABCDEF", 1, TAIL, file) == TAIL;
    if (file == NULL || fclose(file) != 0 || !written) {
        sbit_onnx_destroy(doc);
        remove(data_path);
        SBIT_TEST_SKIP("no sparse files in the scratch folder");
    }
    set_external(doc, "onnx_sparse.bin", offset, "32");
    unsigned char *bytes = write_message(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), &size);
    file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    if (CHECK_OK(sbit_onnx_load(path, NULL, &loaded, &error), error)) {
        const sbit_onnx_tensor *t = sbit_onnx_doc_model(loaded)->graph->initializer;
        if (CHECK_OK(sbit_onnx_tensor_data(loaded, t, &data, &error), error)) {
            CHECK_MEM(data.data, "0123456789abcdef0123456789ABCDEF", TAIL);
        }
        sbit_onnx_destroy(loaded);
    }
    free(bytes);
    sbit_onnx_destroy(doc);
    remove(path);
    remove(data_path);
}

TEST(allocations_fail_one_by_one)
{
    char path[512], saved[512], data_path[520];
    sbit_error error;
    sbit_str data;
    sbit_onnx_write_desc out;
    memset(&out, 0, sizeof out);
    out.external_above_bytes = 8;
    test_tmp_path("onnx_oom.onnx", path, sizeof path);
    test_tmp_path("onnx_oom_saved.onnx", saved, sizeof saved);
    snprintf(data_path, sizeof data_path, "%s.data", path);
    sbit_onnx_doc *built = build_model(NULL);
    CHECK_OK(sbit_onnx_save(built, path, &out, &error), error);
    sbit_onnx_destroy(built);
    for (int64_t n = 1; n < 10000; n++) {
        test_heap heap = {0};
        sbit_onnx_doc *doc = NULL;
        sbit_onnx_read_desc desc = desc_of(SBIT_ONNX_MODEL);
        desc.allocator = test_heap_allocator(&heap);
        heap.fail_at = n;
        sbit_status status = sbit_onnx_load(path, &desc, &doc, &error);
        if (status == SBIT_OK) {
            status = sbit_onnx_check(doc, &error);
        }
        if (status == SBIT_OK) {
            status = sbit_onnx_tensor_data(doc, sbit_onnx_doc_model(doc)->graph->initializer, &data,
                                           &error);
        }
        if (status == SBIT_OK) {
            status = sbit_onnx_save(doc, saved, &out, &error);
        }
        if (status == SBIT_OK) {
            status = sbit_onnx_save(doc, saved, NULL, &error);
        }
        if (heap.count >= n) {
            CHECK_STATUS(status, SBIT_ERR_OUT_OF_MEMORY, error);
        }
        sbit_onnx_destroy(doc);
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (heap.count < n) {
            CHECK_OK(status, error);
            CHECK(n > 20);
            break;
        }
    }
    remove(path);
    remove(data_path);
    remove(saved);
    snprintf(data_path, sizeof data_path, "%s.data", saved);
    remove(data_path);
}

/* ---- check */

/* One change each to the built model, and what must be said about it. */
static void break_model(sbit_onnx_doc *doc, int what)
{
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    sbit_onnx_node *node = model->graph->node;
    switch (what) {
    case 0:
        SBIT_ONNX_CLEAR(model, SBIT_ONNX_MODEL_IR_VERSION);
        break;
    case 1:
        model->graph = NULL;
        break;
    case 2:
        model->opset_import_count = 0;
        break;
    case 3:
        model->opset_import[1].domain = sbit__str("ai.onnx");
        break;
    case 4:
        node[2].domain = sbit__str("elsewhere");
        break;
    case 5:
        node[1].input[0] = sbit__str("nothing");
        break;
    case 6:
        node[0].input[1] = sbit__str("b");
        break; /* produced later */
    case 7:
        node[1].output[0] = sbit__str("a");
        break;
    case 8:
        node[1].output[0] = sbit__str("raw");
        break;
    case 9:
        model->graph->initializer[1].name = sbit__str("raw");
        break;
    case 10:
        model->graph->output[0].name = sbit__str("missing");
        break;
    case 11:
        node[0].attribute[8].g->node[0].input[0] = sbit__str("b");
        break;
    case 12:
        model->graph->output[0].name = sbit__str("inner");
        break; /* the branch's own */
    case 13:
        node[0].attribute[1].name = sbit__str("f");
        break;
    case 14:
        node[0].attribute[1].type = SBIT_ONNX_ATTR_FLOAT;
        break;
    case 15:
        node[0].attribute[3].t->dims[0] = 4;
        break;
    case 16:
        node[0].op_type = sbit__str("");
        break;
    case 17:
        model->functions[0].node[0].input[0] = sbit__str("x");
        break; /* not visible */
    case 18:
        model->functions[0].output[0] = sbit__str("gone");
        break;
    case 19:
        model->graph->sparse_initializer[0].values->dims[0] = 1;
        model->graph->sparse_initializer[0].values->float_data_count = 1;
        break;
    case 20:
        model->graph->initializer[4].dims[0] = 3;
        break;
    case 21:
        node[0].output[0] = view("a\0b", 3);
        break;
    case 22:
        node[0].attribute[0].name = sbit__str("");
        break;
    case 23:
        SBIT_ONNX_SET(&node[0].attribute[0], SBIT_ONNX_ATTRIBUTE_I, i, 1);
        break;
    case 24:
        node[0].attribute[0].type = 99;
        break;
    case 25:
        SET_TEXT(&node[0].attribute[0], SBIT_ONNX_ATTRIBUTE_REF_ATTR_NAME, ref_attr_name, "r");
        break;
    default:
        break;
    }
}

TEST(rules_of_the_format)
{
    static const char *const messages[] = {
        "no valid ir_version",
        "no graph",
        "imports no operator set",
        "opset import of domain '' is given twice",
        "node 2 '' (Twice): its domain 'elsewhere' is not among the opset imports",
        "node 1 '' (Clip): its input 'nothing' is not defined before it is used",
        "node 0 '' (Mul): its input 'b' is not defined",
        "'a' is defined twice: as the output of a node and as the output of a node",
        "'raw' is defined twice: as an initializer and as the output of a node",
        "'raw' is defined twice: as an initializer and as an initializer",
        "output 'missing' of graph 'main' is not defined",
        "node 0 '' (Mul): node 0 '' (Neg): its input 'b' is not defined",
        "output 'inner' of graph 'main' is not defined",
        "attribute 'f' is given twice",
        "attribute 'i' has no value of the type it declares",
        "int64_data has 3 elements, dims and type (int64) need 4",
        "has no op_type",
        "function 'Twice': node 0 '' (Add): its input 'x' is not defined",
        "function 'Twice': its output 'gone' is not defined",
        "indices must be int64",
        "string_data has 2 elements, dims need 3",
        "contains a NUL byte",
        "has no name",
        "attribute 'f' has more than one value",
        "attribute 'f' is of a type that is not known",
        "attribute 'f' has both a value and a reference",
    };
    sbit_error error;
    for (int i = 0; i < (int)(sizeof messages / sizeof messages[0]); i++) {
        sbit_onnx_doc *doc = build_model(NULL);
        CHECK_OK(sbit_onnx_check(doc, &error), error);
        break_model(doc, i);
        memset(&error, 0, sizeof error);
        if (CHECK_STATUS(sbit_onnx_check(doc, &error), SBIT_ERR_INVALID_MODEL, error)) {
            CHECK_CONTAINS(error.message, messages[i]);
        }
        CHECK(sbit_onnx_check(doc, NULL) == SBIT_ERR_INVALID_MODEL);
        sbit_onnx_destroy(doc);
    }
    /* an initializer that gives an input its default is fine, with old and new IR versions */
    sbit_onnx_doc *doc = build_model(NULL);
    sbit_onnx_doc_model(doc)->graph->initializer[0].name = sbit__str("x");
    sbit_onnx_doc_model(doc)->graph->node[0].input[1] = sbit__str("x");
    CHECK_OK(sbit_onnx_check(doc, &error), error);
    sbit_onnx_destroy(doc);
}

/* ---- print */

static void print_to(const char *text, size_t size, void *user)
{
    sbit__text_append((sbit__text *)user, text, size);
}

TEST(printed_text)
{
    sbit_onnx_doc *doc = build_model(NULL);
    sbit__text text;
    sbit__text_init(&text, NULL);
    sbit_onnx_print(SBIT_ONNX_TENSOR, &sbit_onnx_doc_model(doc)->graph->initializer[0], 4, print_to,
                    &text);
    sbit_onnx_print(SBIT_ONNX_ATTRIBUTE, &sbit_onnx_doc_model(doc)->graph->node[0].attribute[0], 0,
                    print_to, &text);
    sbit_onnx_print(SBIT_ONNX_SPARSE_TENSOR, sbit_onnx_doc_model(doc)->graph->sparse_initializer, 1,
                    print_to, &text);
    CHECK(!text.failed);
    CHECK_STR(text.data, "dims: 8\n"
                         "data_type: 1\n"
                         "name: \"raw\"\n"
                         "raw_data: \"\\001\\002\\003\\004\"\n"
                         "# 28 more\n"
                         "name: \"f\"\n"
                         "f: -0.5\n"
                         "type: 1\n"
                         "values {\n"
                         "  dims: 2\n"
                         "  data_type: 1\n"
                         "  float_data: 0\n"
                         "  # 1 more\n"
                         "  name: \"sparse\"\n"
                         "}\n"
                         "indices {\n"
                         "  dims: 2\n"
                         "  data_type: 7\n"
                         "  int64_data: 0\n"
                         "  # 1 more\n"
                         "  name: \"\"\n"
                         "}\n"
                         "dims: 10\n"
                         "# 1 more\n");
    sbit__text_deinit(&text);
    sbit_onnx_destroy(doc);
}

/* ---- real files */

typedef struct file_counts {
    int files, same;
} file_counts;

/* Loads, checks, writes: everything must come back, byte for byte. */
static void round_trip_file(const char *path, sbit_onnx_kind kind, file_counts *counts)
{
    sbit_onnx_doc *doc = NULL, *again = NULL;
    sbit_error error;
    sbit_onnx_read_desc desc = desc_of(kind);
    size_t size = 0, original_size = 0;
    if (!CHECK_MSG(sbit_onnx_load(path, &desc, &doc, &error) == SBIT_OK, "%s: %s [%s]", path,
                   error.message, error.where)) {
        return;
    }
    counts->files++;
    CHECK_MSG(sbit_onnx_check(doc, &error) == SBIT_OK, "%s: %s", path, error.message);
    unsigned char *original = test_read_file(path, &original_size);
    unsigned char *bytes = write_message(sbit_onnx_doc_kind(doc), sbit_onnx_doc_root(doc), &size);
    const bool same = size == original_size && memcmp(bytes, original, size) == 0;
    counts->same += same ? 1 : 0;
    CHECK_MSG(same, "%s does not come back byte for byte", path);
    if (CHECK_OK(sbit_onnx_read(bytes, size, &desc, &again, &error), error)) {
        CHECK_MSG(sbit_onnx_equal(sbit_onnx_doc_kind(doc), sbit_onnx_doc_root(doc),
                                  sbit_onnx_doc_root(again)),
                  "%s does not come back equal", path);
        sbit_onnx_destroy(again);
    }
    free(original);
    free(bytes);
    sbit_onnx_destroy(doc);
}

/* The same through a saved file. */
static void save_file(const char *path)
{
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    size_t size = 0;
    char saved[512];
    unsigned char *original = test_read_file(path, &size);
    test_tmp_path("onnx_round_trip.onnx", saved, sizeof saved);
    if (CHECK_OK(sbit_onnx_load(path, NULL, &doc, &error), error)) {
        CHECK_OK(sbit_onnx_save(doc, saved, NULL, &error), error);
        CHECK(same_file(saved, original, size));
        sbit_onnx_destroy(doc);
    }
    free(original);
    remove(saved);
}

/* The paths that `find` prints, one at a time. */
static FILE *find_files(const char *folder, const char *pattern)
{
    char command[800];
    snprintf(command, sizeof command, "find '%s' -name '%s' | sort", folder, pattern);
    return popen(command, "r");
}

static bool next_file(FILE *list, char *path, size_t size)
{
    if (list == NULL || fgets(path, (int)size, list) == NULL) {
        return false;
    }
    path[strcspn(path, "\n")] = '\0';
    return true;
}

TEST(shared_models_come_back)
{
    char folder[512], path[800];
    file_counts counts = {0, 0};
    if (!test_shared("models", folder, sizeof folder)) {
        SBIT_TEST_SKIP("no shared models");
    }
    FILE *list = find_files(folder, "*.onnx");
    while (next_file(list, path, sizeof path)) {
        round_trip_file(path, SBIT_ONNX_MODEL, &counts);
        save_file(path);
    }
    pclose(list);
    printf("shared models: %d files, %d byte for byte\n", counts.files, counts.same);
    CHECK(counts.files >= 1);
}

TEST(backend_models_come_back)
{
    char path[800];
    file_counts counts = {0, 0};
    if (!test_backend("node/test_add/model.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no ONNX backend data");
    }
    FILE *list = find_files(SBIT_TEST_BACKEND, "*.onnx");
    while (next_file(list, path, sizeof path)) {
        round_trip_file(path, SBIT_ONNX_MODEL, &counts);
    }
    pclose(list);
    printf("backend models: %d files, %d byte for byte\n", counts.files, counts.same);
    CHECK(counts.files >= 1500);
}

/* The message in .../test_x/test_data_set_n/input_k.pb: the model's input k says what it is. */
static sbit_onnx_kind kind_of_value(const char *path)
{
    char model_path[820];
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    sbit_onnx_kind kind = SBIT_ONNX_TENSOR;
    const char *set = strstr(path, "/test_data_set_"), *file = strrchr(path, '/') + 1;
    snprintf(model_path, sizeof model_path, "%.*s/model.onnx", (int)(set - path), path);
    if (sbit_onnx_load(model_path, NULL, &doc, &error) != SBIT_OK) {
        return kind;
    }
    const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
    const bool input = strncmp(file, "input_", 6) == 0;
    const size_t idx = (size_t)atoi(file + (input ? 6 : 7));
    if (idx < (input ? graph->input_count : graph->output_count)) {
        const sbit_onnx_type *type = input ? graph->input[idx].type : graph->output[idx].type;
        if (type != NULL && type->sequence_type != NULL) {
            kind = SBIT_ONNX_SEQUENCE;
        } else if (type != NULL && type->optional_type != NULL) {
            kind = SBIT_ONNX_OPTIONAL;
        }
    }
    sbit_onnx_destroy(doc);
    return kind;
}

TEST(backend_values_come_back)
{
    char path[800];
    file_counts counts = {0, 0};
    int others = 0;
    if (!test_backend("node/test_add/model.onnx", path, sizeof path)) {
        SBIT_TEST_SKIP("no ONNX backend data");
    }
    FILE *list = find_files(SBIT_TEST_BACKEND, "*.pb");
    while (next_file(list, path, sizeof path)) {
        const sbit_onnx_kind kind = kind_of_value(path);
        others += kind != SBIT_ONNX_TENSOR ? 1 : 0;
        round_trip_file(path, kind, &counts);
    }
    pclose(list);
    printf("backend values: %d files, %d byte for byte, %d sequences and optionals\n", counts.files,
           counts.same, others);
    CHECK(counts.files >= 5000 && others >= 20);
}

TEST(load_and_free_many_times)
{
    test_heap heap = {0};
    size_t size = 0;
    unsigned char *bytes = write_model(&size);
    for (int i = 0; i < 10000; i++) {
        sbit_onnx_doc *doc = NULL;
        sbit_error error;
        sbit_onnx_read_desc desc = desc_of(SBIT_ONNX_MODEL);
        desc.allocator = test_heap_allocator(&heap);
        if (!CHECK_OK(sbit_onnx_read(bytes, size, &desc, &doc, &error), error)) {
            break;
        }
        sbit_onnx_destroy(doc);
    }
    CHECK_EQ_I64(heap.live_bytes, 0);
    CHECK(heap.peak_bytes < 100000);
    free(bytes);
}
