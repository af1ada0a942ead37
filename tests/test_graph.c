/* split */
/* test_graph.c: import, names and scopes, functions, edits, sorting, clones, export. */
#include "../src/graph/graph_private.h"
#include "test.h"

/* ---- models by hand: a line a message. Name lists are split at spaces; "-" is an empty name. */

enum {
    MAX_ITEMS = 40
};
static sbit_error error;

static sbit_ctx *make_ctx(test_heap *heap)
{
    sbit_ctx *ctx = NULL;
    sbit_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    if (heap != NULL) {
        desc.allocator = test_heap_allocator(heap);
    }
    (void)sbit_ctx_create(&desc, &ctx, &error);
    return ctx;
}

static sbit_str text(const char *string)
{
    sbit_str view;
    view.data = string;
    view.size = strlen(string);
    return view;
}

static sbit_str *names(sbit_onnx_doc *doc, const char *list, size_t *count)
{
    sbit_str *out = (sbit_str *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *out);
    *count = 0;
    while (*list != '\0') {
        const size_t size = strcspn(list, " ");
        if (size == 1 && list[0] == '-') {
            out[(*count)++] = text("");
        } else {
            CHECK_OK(sbit_onnx_text(doc, list, size, &out[(*count)++], &error), error);
        }
        list += size + strspn(list + size, " ");
    }
    return out;
}

static sbit_onnx_graph *new_graph(sbit_onnx_doc *doc, const char *inputs, const char *outputs)
{
    sbit_onnx_graph *graph = (sbit_onnx_graph *)sbit_onnx_alloc(doc, 1, sizeof *graph);
    sbit_str *list = names(doc, inputs, &graph->input_count);
    SBIT_ONNX_SET(graph, SBIT_ONNX_GRAPH_NAME, name, text("g"));
    graph->node = (sbit_onnx_node *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *graph->node);
    graph->initializer =
        (sbit_onnx_tensor *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *graph->initializer);
    graph->input = (sbit_onnx_value_info *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *graph->input);
    graph->output = (sbit_onnx_value_info *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *graph->output);
    graph->value_info =
        (sbit_onnx_value_info *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *graph->value_info);
    for (size_t i = 0; i < graph->input_count; i++) {
        SBIT_ONNX_SET(&graph->input[i], SBIT_ONNX_VALUE_INFO_NAME, name, list[i]);
    }
    list = names(doc, outputs, &graph->output_count);
    for (size_t i = 0; i < graph->output_count; i++) {
        SBIT_ONNX_SET(&graph->output[i], SBIT_ONNX_VALUE_INFO_NAME, name, list[i]);
    }
    return graph;
}

/* A float32 type; dims are numbers, names or "?", split at spaces. */
static sbit_onnx_type *new_type(sbit_onnx_doc *doc, const char *dims)
{
    size_t count = 0;
    const sbit_str *list = names(doc, dims, &count);
    sbit_onnx_type *type = (sbit_onnx_type *)sbit_onnx_alloc(doc, 1, sizeof *type);
    type->tensor_type = (sbit_onnx_type_tensor *)sbit_onnx_alloc(doc, 1, sizeof *type->tensor_type);
    SBIT_ONNX_SET(type->tensor_type, SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE, elem_type, SBIT_F32);
    sbit_onnx_shape *shape = (sbit_onnx_shape *)sbit_onnx_alloc(doc, 1, sizeof *shape);
    type->tensor_type->shape = shape;
    shape->dim = (sbit_onnx_dimension *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *shape->dim);
    shape->dim_count = count;
    for (size_t i = 0; i < count; i++) {
        if (strchr("0123456789", list[i].data[0]) != NULL) {
            SBIT_ONNX_SET(&shape->dim[i], SBIT_ONNX_DIMENSION_DIM_VALUE, dim_value,
                          (int64_t)atoi(list[i].data));
        } else if (list[i].data[0] != '?') {
            SBIT_ONNX_SET(&shape->dim[i], SBIT_ONNX_DIMENSION_DIM_PARAM, dim_param, list[i]);
        }
    }
    return type;
}

static sbit_onnx_doc *new_model(sbit_ctx *ctx, const char *inputs, const char *outputs)
{
    sbit_onnx_doc *doc = NULL;
    sbit_onnx_read_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.allocator = *sbit_ctx_allocator(ctx);
    CHECK_OK(sbit_onnx_create(&desc, &doc, &error), error);
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_IR_VERSION, ir_version, 8);
    model->opset_import =
        (sbit_onnx_opset_id *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *model->opset_import);
    SBIT_ONNX_SET(model->opset_import, SBIT_ONNX_OPSET_ID_VERSION, version, 17);
    model->opset_import_count = 1;
    model->functions =
        (sbit_onnx_function *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *model->functions);
    model->graph = new_graph(doc, inputs, outputs);
    return doc;
}

static sbit_onnx_node *fill_node(sbit_onnx_doc *doc, sbit_onnx_node *node, const char *op,
                                 const char *name, const char *inputs, const char *outputs)
{
    SBIT_ONNX_SET(node, SBIT_ONNX_NODE_OP_TYPE, op_type, text(op));
    if (name[0] != '\0') {
        SBIT_ONNX_SET(node, SBIT_ONNX_NODE_NAME, name, text(name));
    }
    node->input = names(doc, inputs, &node->input_count);
    node->output = names(doc, outputs, &node->output_count);
    node->attribute =
        (sbit_onnx_attribute *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *node->attribute);
    return node;
}

static sbit_onnx_node *new_node(sbit_onnx_doc *doc, sbit_onnx_graph *graph, const char *op,
                                const char *name, const char *inputs, const char *outputs)
{
    return fill_node(doc, &graph->node[graph->node_count++], op, name, inputs, outputs);
}

static sbit_onnx_function *new_function(sbit_onnx_doc *doc, const char *name, const char *inputs,
                                        const char *outputs)
{
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    sbit_onnx_function *function = &model->functions[model->functions_count++];
    SBIT_ONNX_SET(function, SBIT_ONNX_FUNCTION_NAME, name, text(name));
    SBIT_ONNX_SET(function, SBIT_ONNX_FUNCTION_DOMAIN, domain, text("local"));
    function->input = names(doc, inputs, &function->input_count);
    function->output = names(doc, outputs, &function->output_count);
    function->node = (sbit_onnx_node *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *function->node);
    function->attribute_proto =
        (sbit_onnx_attribute *)sbit_onnx_alloc(doc, MAX_ITEMS, sizeof *function->attribute_proto);
    return function;
}

static sbit_onnx_node *function_node(sbit_onnx_doc *doc, sbit_onnx_function *function,
                                     const char *op, const char *name, const char *inputs,
                                     const char *outputs)
{
    return fill_node(doc, &function->node[function->node_count++], op, name, inputs, outputs);
}

static void call_local(sbit_onnx_node *node)
{
    SBIT_ONNX_SET(node, SBIT_ONNX_NODE_DOMAIN, domain, text("local"));
}

static sbit_onnx_attribute *new_attr(sbit_onnx_node *node, const char *name,
                                     sbit_onnx_attribute_type type)
{
    sbit_onnx_attribute *attr = &node->attribute[node->attribute_count++];
    SBIT_ONNX_SET(attr, SBIT_ONNX_ATTRIBUTE_NAME, name, text(name));
    SBIT_ONNX_SET(attr, SBIT_ONNX_ATTRIBUTE_TYPE, type, (int32_t)type);
    return attr;
}

static void float_attr(sbit_onnx_node *node, const char *name, float value)
{
    sbit_onnx_attribute *attr = new_attr(node, name, SBIT_ONNX_ATTR_FLOAT);
    SBIT_ONNX_SET(attr, SBIT_ONNX_ATTRIBUTE_F, f, value);
}

static void int_attr(sbit_onnx_node *node, const char *name, int64_t value)
{
    sbit_onnx_attribute *attr = new_attr(node, name, SBIT_ONNX_ATTR_INT);
    SBIT_ONNX_SET(attr, SBIT_ONNX_ATTRIBUTE_I, i, value);
}

static void ref_attr(sbit_onnx_node *node, const char *name, sbit_onnx_attribute_type type,
                     const char *ref)
{
    sbit_onnx_attribute *attr = new_attr(node, name, type);
    SBIT_ONNX_SET(attr, SBIT_ONNX_ATTRIBUTE_REF_ATTR_NAME, ref_attr_name, text(ref));
}

static void body_attr(sbit_onnx_node *node, const char *name, sbit_onnx_graph *graph)
{
    new_attr(node, name, SBIT_ONNX_ATTR_GRAPH)->g = graph;
}

static const float ramp[] = {1, 2, 3, 4, 5, 6, 7, 8};

static sbit_onnx_tensor fill_tensor(sbit_onnx_doc *doc, const char *name, int64_t count)
{
    sbit_onnx_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.dims = (int64_t *)sbit_onnx_alloc(doc, 1, sizeof *tensor.dims);
    tensor.dims[0] = count;
    tensor.dims_count = 1;
    SBIT_ONNX_SET(&tensor, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, SBIT_F32);
    SBIT_ONNX_SET(&tensor, SBIT_ONNX_TENSOR_NAME, name, text(name));
    sbit_str raw;
    raw.data = (const char *)ramp;
    raw.size = (size_t)count * sizeof(float);
    SBIT_ONNX_SET(&tensor, SBIT_ONNX_TENSOR_RAW_DATA, raw_data, raw);
    return tensor;
}

static sbit_onnx_tensor *new_init(sbit_onnx_doc *doc, sbit_onnx_graph *graph, const char *name,
                                  int64_t count)
{
    graph->initializer[graph->initializer_count] = fill_tensor(doc, name, count);
    return &graph->initializer[graph->initializer_count++];
}

static sbit_graph *import(sbit_ctx *ctx, sbit_onnx_doc *doc)
{
    sbit_graph *graph = NULL;
    if (CHECK_OK(sbit_graph_import(ctx, doc, &graph, &error), error)) {
        CHECK_OK(sbit_graph_validate(graph, &error), error);
    }
    return graph;
}

static void refuse(sbit_ctx *ctx, sbit_onnx_doc *doc, sbit_status status, const char *message)
{
    sbit_graph *graph = NULL;
    CHECK_STATUS(sbit_graph_import(ctx, doc, &graph, &error), status, error);
    CHECK_CONTAINS(error.message, message);
    CHECK(graph == NULL);
    sbit_graph_destroy(graph);
}

/* ---- graphs by hand, by the graph's own functions */

/* dims: -1 is the symbol "N". */
static sbit_type build_type(sbit_graph *g, sbit_dtype dtype, int32_t rank, const int64_t *dims)
{
    sbit_type type;
    memset(&type, 0, sizeof type);
    type.dtype = dtype;
    type.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        type.dims[i].value = dims[i] < 0 ? 0 : dims[i];
        if (dims[i] < 0) {
            CHECK_OK(sbit_graph_symbol(g, "N", &type.dims[i].symbol, &error), error);
        }
    }
    return type;
}

static sbit_value_id build_input(sbit_graph *g, const char *name, int32_t rank, const int64_t *dims)
{
    sbit_value_id id = {0};
    const sbit_type type = build_type(g, SBIT_F32, rank, dims);
    CHECK_OK(sbit_graph_add_value(g, name, &type, &id, &error), error);
    CHECK_OK(sbit_graph_set_input(g, id, true, &error), error);
    return id;
}

static sbit_tensor build_tensor(sbit_dtype dtype, int32_t rank, const int64_t *dims,
                                const void *data)
{
    sbit_tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        t.dims[i] = dims[i];
    }
    memcpy(&t.data, &data, sizeof data); /* lent as read-only */
    return t;
}

static sbit_value_id build_const(sbit_graph *g, const char *name, int32_t rank, const int64_t *dims,
                                 const float *data)
{
    sbit_value_id id = {0};
    const sbit_tensor t = build_tensor(SBIT_F32, rank, dims, data);
    CHECK_OK(sbit_graph_add_constant(g, name, &t, &id, &error), error);
    return id;
}

/* A node with one output named `out`, which names the node too. */
static sbit_value_id build_node(sbit_graph *g, const char *op, const char *out,
                                const sbit_value_id *inputs, size_t input_count)
{
    sbit_node_desc desc;
    sbit_value_id id = {0};
    memset(&desc, 0, sizeof desc);
    CHECK_OK(sbit_graph_add_value(g, out, NULL, &id, &error), error);
    desc.op_type = op;
    desc.name = out;
    desc.inputs = inputs;
    desc.input_count = input_count;
    desc.outputs = &id;
    desc.output_count = 1;
    CHECK_OK(sbit_graph_add_node(g, &desc, NULL, &error), error);
    return id;
}

static sbit_value_id build_node1(sbit_graph *g, const char *op, const char *out, sbit_value_id a)
{
    return build_node(g, op, out, &a, 1);
}

static sbit_value_id build_node2(sbit_graph *g, const char *op, const char *out, sbit_value_id a,
                                 sbit_value_id b)
{
    const sbit_value_id inputs[2] = {a, b};
    return build_node(g, op, out, inputs, 2);
}

static void build_attr_int(sbit_graph *g, sbit_node_id id, const char *name, int64_t i)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_INT;
    attr.i = i;
    CHECK_OK(sbit_graph_set_attr(g, id, &attr, &error), error);
}

static void build_output(sbit_graph *g, sbit_value_id value)
{
    CHECK_OK(sbit_graph_add_output(g, value, &error), error);
}

/* ---- looking */

static sbit_value_id value_of(const sbit_graph *graph, const char *name)
{
    const sbit_value_id id = sbit_graph_find_value(graph, name);
    CHECK_MSG(id.idx != 0, "there is no '%s'", name);
    return id;
}

static const char *name_of(const sbit_graph *graph, sbit_value_id id)
{
    const sbit_value_info *value = sbit_graph_value(graph, id);
    return value != NULL ? value->name : "(none)";
}

/* All nodes as "Op(inputs)->outputs; ...". */
static const char *listing(const sbit_graph *graph)
{
    static char list[4000];
    size_t used = 0;
    list[0] = '\0';
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s(", used == 0 ? "" : " ",
                                 node->op_type);
        for (size_t i = 0; i < node->input_count; i++) {
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ",",
                                 node->inputs[i].idx == 0 ? "-" : name_of(graph, node->inputs[i]));
        }
        used += (size_t)snprintf(list + used, sizeof list - used, ")");
        for (size_t i = 0; i < node->output_count; i++) {
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ",",
                                     node->outputs[i].idx == 0 ? "-"
                                                               : name_of(graph, node->outputs[i]));
        }
    }
    return list;
}

static sbit_graph *body_of(const sbit_graph *graph, const char *node, const char *attr)
{
    const sbit_node *info = sbit_graph_node(graph, sbit_graph_find_node(graph, node));
    const sbit_attr *found = info != NULL ? sbit_node_attr(info, attr) : NULL;
    CHECK_MSG(found != NULL, "node '%s' has no body '%s'", node, attr);
    return found != NULL ? found->g : NULL;
}

/* The exported model, checked; read it until done() destroys graph and document. */
static sbit_onnx_graph *export_of(const sbit_graph *graph, sbit_onnx_doc **doc)
{
    *doc = NULL;
    if (!CHECK_OK(sbit_graph_export(graph, doc, &error), error)) {
        return NULL;
    }
    CHECK_OK(sbit_onnx_check(*doc, &error), error);
    return sbit_onnx_doc_model(*doc)->graph;
}

static const sbit_onnx_tensor *find_init(const sbit_onnx_graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->initializer_count; i++) {
        if (strcmp(graph->initializer[i].name.data, name) == 0) {
            return &graph->initializer[i];
        }
    }
    return NULL;
}

/* ---- import */

TEST(import_reads_a_small_model)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x", "y");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    g->input[0].type = new_type(doc, "N 3 ? N");
    new_init(doc, g, "w", 3);
    new_node(doc, g, "Clip", "clip", "x - w", "c");
    new_node(doc, g, "Foo", "", "c w", "y - z");
    SBIT_ONNX_SET(&g->node[1], SBIT_ONNX_NODE_DOMAIN, domain, text("com.acme"));
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        CHECK_STR(listing(graph), "Clip(x,-,w)c Foo(c,w)y,-,z");
        CHECK_EQ_I64(sbit_graph_opset(graph, ""), 17);
        CHECK_EQ_I64(sbit_graph_opset(graph, "ai.onnx"), 17);
        CHECK_EQ_I64(sbit_graph_opset(graph, "com.acme"), 0);
        const sbit_value_info *x = sbit_graph_value(graph, value_of(graph, "x"));
        CHECK_EQ_I64(x->type.rank, 4);
        CHECK_STR(sbit_graph_symbol_name(graph, x->type.dims[0].symbol), "N");
        CHECK_EQ_I64(x->type.dims[3].symbol, x->type.dims[0].symbol);
        CHECK_EQ_I64(x->type.dims[1].value, 3);
        CHECK_EQ_I64(x->type.dims[1].symbol, 0);
        CHECK_EQ_I64(x->type.dims[2].symbol, SBIT_SYMBOL_ANY);
        const sbit_value_info *w = sbit_graph_value(graph, value_of(graph, "w"));
        CHECK(w->is_constant && !w->is_input);
        CHECK_EQ_I64(w->use_count, 2);
        CHECK_EQ_I64(w->type.dims[0].value, 3);
        CHECK_NEAR(((const float *)w->constant.data)[2], 3, 0);
        char label[100];
        sbit_graph_describe(graph, sbit_graph_first(graph), label, sizeof label);
        CHECK_STR(label, "Clip 'clip'");
        sbit_graph_describe(graph, sbit_graph_next(graph, sbit_graph_first(graph)), label,
                            sizeof label);
        CHECK_STR(label, "com.acme::Foo 'y'");
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* Weights lie anywhere in a file; what operators see is aligned for its type. */
TEST(import_aligns_constants)
{
    static char bytes[68];
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "", "y");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    char *odd = bytes + 1 + (4 - (uintptr_t)bytes % 4) % 4, *even = odd + 31;
    memcpy(odd, ramp, 12);
    memcpy(even, ramp, 12);
    new_init(doc, g, "odd", 3)->raw_data.data = odd;
    new_init(doc, g, "even", 3)->raw_data.data = even;
    new_node(doc, g, "Add", "", "odd even", "y");
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        const sbit_tensor *a = &sbit_graph_value(graph, value_of(graph, "odd"))->constant;
        const sbit_tensor *b = &sbit_graph_value(graph, value_of(graph, "even"))->constant;
        CHECK_EQ_I64((uintptr_t)a->data % 4, 0);
        CHECK(b->data == (void *)even); /* not copied */
        CHECK_NEAR(((const float *)a->data)[1], 2, 0);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(import_turns_constant_nodes_into_constants)
{
    static float floats[] = {1.5f, -2};
    static int64_t ints[] = {7, 8, 9};
    static const struct {
        const char *attr;
        sbit_onnx_attribute_type type;
        sbit_dtype dtype;
        int32_t rank;
        int64_t count;
    } rows[] = {
        {"value", SBIT_ONNX_ATTR_TENSOR, SBIT_F32, 1, 2},
        {"value_float", SBIT_ONNX_ATTR_FLOAT, SBIT_F32, 0, 1},
        {"value_floats", SBIT_ONNX_ATTR_FLOATS, SBIT_F32, 1, 2},
        {"value_int", SBIT_ONNX_ATTR_INT, SBIT_I64, 0, 1},
        {"value_ints", SBIT_ONNX_ATTR_INTS, SBIT_I64, 1, 3},
        {"value_string", SBIT_ONNX_ATTR_STRING, SBIT_STRING, 0, 1},
        {"value_strings", SBIT_ONNX_ATTR_STRINGS, SBIT_STRING, 1, 2},
    };
    static sbit_str strings[2];
    strings[0] = text("ab");
    strings[1] = text("cde");
    sbit_ctx *ctx = make_ctx(NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sbit_onnx_doc *doc = new_model(ctx, "", "y");
        sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
        sbit_onnx_tensor tensor = fill_tensor(doc, "", 2);
        new_node(doc, g, "Identity", "", "c", "y");
        sbit_onnx_attribute *attr =
            new_attr(new_node(doc, g, "Constant", "k", "", "c"), rows[i].attr, rows[i].type);
        attr->t = rows[i].type == SBIT_ONNX_ATTR_TENSOR ? &tensor : NULL;
        attr->f = 1.5f;
        attr->i = 7;
        attr->s = strings[0];
        attr->floats = floats;
        attr->floats_count = 2;
        attr->ints = ints;
        attr->ints_count = 3;
        attr->strings = strings;
        attr->strings_count = 2;
        sbit_graph *graph = import(ctx, doc);
        if (graph != NULL) {
            const sbit_value_info *c = sbit_graph_value(graph, value_of(graph, "c"));
            CHECK_STR(listing(graph), "Identity(c)y");
            CHECK_EQ_I64(c->is_constant, true);
            CHECK_EQ_I64(c->constant.dtype, rows[i].dtype);
            CHECK_EQ_I64(c->constant.rank, rows[i].rank);
            CHECK_EQ_I64(sbit_tensor_count(&c->constant), rows[i].count);
            if (rows[i].dtype == SBIT_STRING) {
                const sbit_str *held = (const sbit_str *)c->constant.data;
                CHECK_STR(held[0].data, "ab");
                CHECK(rows[i].count == 1 || strcmp(held[1].data, "cde") == 0);
            } else if (rows[i].dtype == SBIT_I64) {
                CHECK_EQ_I64(((const int64_t *)c->constant.data)[0], 7);
            } else {
                CHECK_NEAR(((const float *)c->constant.data)[0], i == 0 ? 1.0 : 1.5, 0);
            }
        }
        sbit_graph_destroy(graph);
    }
    sbit_ctx_destroy(ctx);
}

static sbit_onnx_sparse_tensor *new_sparse(sbit_onnx_doc *doc, bool linear, int64_t last)
{
    static int64_t dims[] = {2, 3}, linear_at[2], pairs[4], shape_linear[] = {2}, shape[] = {2, 2};
    sbit_onnx_sparse_tensor *sparse =
        (sbit_onnx_sparse_tensor *)sbit_onnx_alloc(doc, 1, sizeof *sparse);
    sparse->values = (sbit_onnx_tensor *)sbit_onnx_alloc(doc, 1, sizeof *sparse->values);
    sparse->indices = (sbit_onnx_tensor *)sbit_onnx_alloc(doc, 1, sizeof *sparse->indices);
    *sparse->values = fill_tensor(doc, "s", 2);
    linear_at[0] = 1;
    linear_at[1] = last;
    pairs[0] = 0;
    pairs[1] = 1;
    pairs[2] = last / 3;
    pairs[3] = last % 3;
    SBIT_ONNX_SET(sparse->indices, SBIT_ONNX_TENSOR_DATA_TYPE, data_type, SBIT_I64);
    sparse->indices->dims = linear ? shape_linear : shape;
    sparse->indices->dims_count = linear ? 1 : 2;
    sparse->indices->int64_data = linear ? linear_at : pairs;
    sparse->indices->int64_data_count = linear ? 2 : 4;
    sparse->dims = dims;
    sparse->dims_count = 2;
    return sparse;
}

TEST(import_makes_sparse_tensors_dense)
{
    static const float wanted[] = {0, 1, 0, 0, 0, 2};
    sbit_ctx *ctx = make_ctx(NULL);
    for (int row = 0; row < 4; row++) {
        sbit_onnx_doc *doc = new_model(ctx, "", "y");
        sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
        sbit_onnx_sparse_tensor *sparse = new_sparse(doc, row % 2 == 0, 5);
        new_node(doc, g, "Identity", "", "s", "y");
        if (row < 2) {
            g->sparse_initializer = sparse;
            g->sparse_initializer_count = 1;
        } else {
            new_attr(new_node(doc, g, "Constant", "", "", "s"), "sparse_value",
                     SBIT_ONNX_ATTR_SPARSE_TENSOR)
                ->sparse_tensor = sparse;
        }
        sbit_graph *graph = import(ctx, doc);
        if (graph != NULL) {
            const sbit_value_info *s = sbit_graph_value(graph, value_of(graph, "s"));
            CHECK_EQ_I64(s->constant.rank, 2);
            CHECK_MEM(s->constant.data, wanted, sizeof wanted);
        }
        sbit_graph_destroy(graph);
    }
    sbit_onnx_doc *doc = new_model(ctx, "", "s");
    sbit_onnx_doc_model(doc)->graph->sparse_initializer = new_sparse(doc, true, 6);
    sbit_onnx_doc_model(doc)->graph->sparse_initializer_count = 1;
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "'s': index 1 is outside");
    doc = new_model(ctx, "", "s");
    sbit_onnx_doc_model(doc)->graph->sparse_initializer = new_sparse(doc, false, 6);
    sbit_onnx_doc_model(doc)->graph->sparse_initializer_count = 1;
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "outside its shape");
    sbit_ctx_destroy(ctx);
}

TEST(import_sorts_and_finds_cycles)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x", "d");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    new_node(doc, g, "D", "", "c b", "d");
    new_node(doc, g, "B", "", "a", "b");
    new_node(doc, g, "Other", "", "x", "o");
    new_node(doc, g, "C", "", "b", "c");
    new_node(doc, g, "A", "", "x", "a");
    sbit_graph *graph = import(ctx, doc);
    CHECK(graph == NULL || strcmp(listing(graph), "A(x)a B(a)b C(b)c D(c,b)d Other(x)o") == 0);
    sbit_graph_destroy(graph);
    doc = new_model(ctx, "x", "b");
    g = sbit_onnx_doc_model(doc)->graph;
    new_node(doc, g, "Relu", "fine", "x", "f");
    new_node(doc, g, "Add", "first", "f b", "a");
    new_node(doc, g, "Relu", "second", "a", "b");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "cycle: Add 'first'");
    /* the cycle goes through what a body reads */
    doc = new_model(ctx, "x", "b");
    g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_graph *body = new_graph(doc, "", "t");
    new_node(doc, body, "Relu", "", "b", "t");
    body_attr(new_node(doc, g, "If", "if", "x", "a"), "then_branch", body);
    new_node(doc, g, "Relu", "r", "a", "b");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "cycle: If 'if'");
    sbit_ctx_destroy(ctx);
}

TEST(import_refuses_broken_models)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x", "y");
    new_node(doc, sbit_onnx_doc_model(doc)->graph, "Add", "n", "x missing", "y");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "node Add 'n' reads 'missing'");
    doc = new_model(ctx, "x", "y");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "output 'y' is produced by nothing");
    doc = new_model(ctx, "x", "y");
    new_node(doc, sbit_onnx_doc_model(doc)->graph, "Relu", "n", "x", "y");
    new_node(doc, sbit_onnx_doc_model(doc)->graph, "Relu", "m", "x", "y");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "'y' is defined twice (as an output of node Relu 'm'");
    doc = new_model(ctx, "x x", "x");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "'x' is defined twice");
    doc = new_model(ctx, "x", "x");
    new_init(doc, sbit_onnx_doc_model(doc)->graph, "w", 2);
    new_init(doc, sbit_onnx_doc_model(doc)->graph, "w", 2);
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "'w' is defined twice");
    doc = new_model(ctx, "x", "x");
    new_node(doc, sbit_onnx_doc_model(doc)->graph, "", "n", "x", "y");
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "no op_type");
    doc = new_model(ctx, "x", "x");
    sbit_onnx_doc_model(doc)->graph->input[0].type = new_type(doc, "1 2 3 4 5 6 7 8 9");
    refuse(ctx, doc, SBIT_ERR_LIMIT, "'x' has rank 9");
    doc = new_model(ctx, "x", "x");
    sbit_onnx_doc_model(doc)->graph->input[0].type = new_type(doc, "1");
    sbit_onnx_doc_model(doc)->graph->input[0].type->tensor_type->elem_type = 99;
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "'x' has the unknown element type 99");
    doc = new_model(ctx, "x", "x");
    new_init(doc, sbit_onnx_doc_model(doc)->graph, "w", 2)->raw_data.size = 7;
    CHECK(sbit_graph_import(ctx, doc, NULL, &error) != SBIT_OK);
    CHECK_CONTAINS(error.message, "w");
    doc = new_model(ctx, "x", "x");
    sbit_onnx_doc_model(doc)->graph = NULL;
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "no graph");
    sbit_ctx_destroy(ctx);
}

/* IR 3: weights are inputs too. They are not asked for, and leave the inputs when IR 4 comes. */
TEST(initializers_that_are_inputs)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x w v", "y"), *out = NULL;
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_doc_model(doc)->ir_version = 3;
    new_init(doc, g, "w", 2);
    new_init(doc, g, "v", 2);
    new_node(doc, g, "Add", "", "x w", "a");
    new_node(doc, g, "Add", "", "a v", "y");
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        const sbit_value_id w = value_of(graph, "w");
        CHECK_EQ_I64(sbit_graph_input_count(graph), 3);
        CHECK(sbit_graph_value(graph, w)->is_input && sbit_graph_value(graph, w)->is_constant);
        CHECK(sbit__graph_constant(graph, w) != NULL);
        g = export_of(graph, &out);
        if (g != NULL) {
            CHECK_EQ_I64(sbit_onnx_doc_model(out)->ir_version, 3);
            CHECK_EQ_I64(g->input_count, 3);
        }
        sbit_onnx_destroy(out);
        build_const(graph, "new", 0, NULL, ramp);
        g = export_of(graph, &out);
        if (g != NULL) {
            CHECK_EQ_I64(sbit_onnx_doc_model(out)->ir_version, 4);
            CHECK_EQ_I64(g->input_count, 1);
            CHECK_EQ_I64(g->initializer_count, 3);
        }
        sbit_onnx_destroy(out);
    }
    sbit_graph_destroy(graph);
    /* IR 4: the caller may give another value */
    doc = new_model(ctx, "x w", "y");
    new_init(doc, sbit_onnx_doc_model(doc)->graph, "w", 2);
    new_node(doc, sbit_onnx_doc_model(doc)->graph, "Add", "", "x w", "y");
    graph = import(ctx, doc);
    CHECK(graph == NULL || sbit__graph_constant(graph, value_of(graph, "w")) == NULL);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* ---- scopes */

/* x -> If{ then: t = Relu(x); hidden = Neg(h); inner If { q = Add(x, hidden) } }, where "hidden"
 * also names an outer value. */
static sbit_graph *scoped_graph(sbit_ctx *ctx)
{
    sbit_onnx_doc *doc = new_model(ctx, "x cond", "y");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_graph *then_body = new_graph(doc, "", "q2"), *else_body = new_graph(doc, "", "same");
    sbit_onnx_graph *inner = new_graph(doc, "", "q");
    new_node(doc, g, "Exp", "", "x", "h");
    new_node(doc, g, "Abs", "", "x", "hidden");
    body_attr(new_node(doc, then_body, "If", "inner", "cond", "q2"), "then_branch", inner);
    new_node(doc, then_body, "Neg", "", "h", "hidden"); /* after its use, and hiding */
    new_node(doc, inner, "Add", "", "x hidden", "q");
    new_node(doc, else_body, "Relu", "", "hidden", "same");
    sbit_onnx_node *node = new_node(doc, g, "If", "outer", "cond", "y");
    body_attr(node, "then_branch", then_body);
    body_attr(node, "else_branch", else_body);
    return import(ctx, doc);
}

TEST(scopes_resolve_names)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *graph = scoped_graph(ctx);
    sbit_value_id captured[8];
    if (graph == NULL) {
        return;
    }
    const sbit_graph *then_body = body_of(graph, "outer", "then_branch");
    const sbit_graph *else_body = body_of(graph, "outer", "else_branch");
    const sbit_graph *inner = body_of(then_body, "inner", "then_branch");
    CHECK_STR(listing(then_body), "Neg(h)hidden_1 If(cond)q2"); /* sorted; the inner name is new */
    CHECK_STR(listing(inner), "Add(x,hidden_1)q");
    CHECK_STR(listing(else_body), "Relu(hidden)same");
    CHECK(sbit_graph_parent(inner) == then_body && sbit_graph_parent(then_body) == graph);
    const sbit_value_info *x = sbit_graph_value(inner, value_of(inner, "x"));
    CHECK_STR(name_of(then_body, x->outer), "x"); /* through the graph between */
    CHECK_STR(name_of(graph, sbit_graph_value(then_body, x->outer)->outer), "x");
    CHECK_EQ_I64(sbit_graph_captures(graph, sbit_graph_find_node(graph, "outer"), captured, 8), 4);
    CHECK_EQ_I64(sbit_graph_captures(graph, sbit_graph_find_node(graph, "outer"), captured, 1), 4);
    /* x: Exp, Abs, and the body of "outer" */
    sbit_use uses[4];
    CHECK_EQ_I64(sbit_graph_uses(graph, value_of(graph, "x"), uses, 4), 3);
    CHECK(uses[0].body == NULL && uses[1].body == NULL && uses[2].body == then_body);
    CHECK_EQ_I64(uses[2].node.idx, sbit_graph_find_node(graph, "outer").idx);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(scopes_follow_renames_and_types)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *graph = scoped_graph(ctx);
    sbit_onnx_doc *doc = NULL;
    if (graph == NULL) {
        return;
    }
    const sbit_graph *inner =
        body_of(body_of(graph, "outer", "then_branch"), "inner", "then_branch");
    CHECK_OK(sbit_graph_rename_value(graph, value_of(graph, "x"), "image", &error), error);
    CHECK_STR(listing(inner), "Add(image,hidden_1)q");
    CHECK_EQ_I64(sbit_graph_find_value(graph, "x").idx, 0);
    CHECK_STR(name_of(inner, value_of(inner, "image")), "image");
    CHECK_STATUS(sbit_graph_rename_value(graph, value_of(graph, "h"), "q", &error),
                 SBIT_ERR_DUPLICATE, error); /* taken two scopes below */
    const int64_t dims[] = {4};
    const sbit_type type = build_type(graph, SBIT_F32, 1, dims);
    sbit_graph_set_type(graph, value_of(graph, "image"), &type);
    CHECK_EQ_I64(sbit_graph_value(inner, value_of(inner, "image"))->type.dims[0].value, 4);
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    const sbit_onnx_graph *g = export_of(graph, &doc);
    if (g != NULL) {
        CHECK_STR(g->node[2].attribute[0].g->node[1].attribute[0].g->node[0].input[0].data,
                  "image");
    }
    sbit_onnx_destroy(doc);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* New names avoid every scope (field report A1.9: a copied bias took an activation's name). */
TEST(new_names_are_free_everywhere)
{
    static const char *const asked[] = {"x", "h", "q", "same", "hidden", "fresh", "fresh"};
    static const char *const given[] = {"x_1",      "h_1",   "q_1",    "same_1",
                                        "hidden_2", "fresh", "fresh_1"};
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *graph = scoped_graph(ctx);
    if (graph == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        sbit_value_id id = {0};
        CHECK_OK(sbit_graph_add_value(graph, asked[i], NULL, &id, &error), error);
        CHECK_STR(name_of(graph, id), given[i]);
    }
    /* in a body, names of the graphs around it and of its siblings count */
    sbit_value_id id = {0};
    CHECK_OK(sbit_graph_add_value(body_of(graph, "outer", "else_branch"), "q2", NULL, &id, &error),
             error);
    CHECK_STR(name_of(body_of(graph, "outer", "else_branch"), id), "q2_1");
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    /* an erased name is free again */
    sbit_graph_erase_value(graph, value_of(graph, "fresh"));
    CHECK_OK(sbit_graph_add_value(graph, "fresh", NULL, &id, &error), error);
    CHECK_STR(name_of(graph, id), "fresh");
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(erasing_a_node_drops_its_bodies)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *graph = scoped_graph(ctx);
    if (graph == NULL) {
        return;
    }
    const sbit_value_id x = value_of(graph, "x"), y = value_of(graph, "y");
    sbit_graph_erase_node(graph, sbit_graph_find_node(graph, "outer"));
    CHECK_EQ_I64(sbit_graph_value(graph, x)->use_count, 2);
    CHECK_EQ_I64(sbit_graph_value(graph, value_of(graph, "hidden"))->use_count, 0);
    CHECK_OK(sbit_graph_replace_uses(graph, y, value_of(graph, "hidden"), &error), error);
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    CHECK_STR(listing(graph), "Exp(x)h Abs(x)y");
    sbit_value_id id = {0};
    CHECK_OK(sbit_graph_add_value(graph, "q", NULL, &id, &error), error);
    CHECK_STR(name_of(graph, id), "q"); /* the name went with the body */
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(inline_body_moves_everything)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *graph = scoped_graph(ctx);
    sbit_value_id outputs[1];
    sbit_onnx_doc *doc = NULL;
    if (graph == NULL) {
        return;
    }
    const sbit_node_id node = sbit_graph_find_node(graph, "outer");
    CHECK_OK(sbit__graph_inline_body(body_of(graph, "outer", "then_branch"), node, NULL, outputs,
                                     &error),
             error);
    CHECK_OK(sbit_graph_replace_uses(graph, value_of(graph, "y"), outputs[0], &error), error);
    sbit_graph_erase_node(graph, node);
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    CHECK_STR(listing(graph), "Exp(x)h Abs(x)hidden Neg(h)hidden_1 If(cond)y");
    const sbit_graph *inner = body_of(graph, "inner", "then_branch");
    CHECK(sbit_graph_parent(inner) == graph);
    CHECK_STR(listing(inner), "Add(x,hidden_1)q");
    CHECK(export_of(graph, &doc) != NULL);
    sbit_onnx_destroy(doc);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* Loop with body inputs and a constant in the body; the body becomes part of the graph. */
TEST(inline_body_maps_inputs_and_constants)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "n cond x", "y");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_graph *body = new_graph(doc, "i c s", "c s2");
    new_init(doc, body, "one", 1);
    new_node(doc, body, "Add", "add", "s one", "s2");
    body_attr(new_node(doc, g, "Loop", "loop", "n cond x", "y"), "body", body);
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        const sbit_node_id node = sbit_graph_find_node(graph, "loop");
        const sbit_value_id inputs[] = {value_of(graph, "n"), value_of(graph, "cond"),
                                        value_of(graph, "x")};
        sbit_value_id outputs[2], none[3] = {{0}, {0}, {0}};
        sbit_graph *inner = body_of(graph, "loop", "body");
        CHECK_STATUS(sbit__graph_inline_body(inner, node, none, outputs, &error),
                     SBIT_ERR_INVALID_ARGUMENT, error);
        CHECK_OK(sbit__graph_inline_body(inner, node, inputs, outputs, &error), error);
        CHECK_EQ_I64(outputs[0].idx, inputs[1].idx);
        CHECK_OK(sbit_graph_replace_uses(graph, value_of(graph, "y"), outputs[1], &error), error);
        sbit_graph_erase_node(graph, node);
        sbit_graph_erase_value(graph, value_of(graph, "y_1"));
        CHECK_STR(listing(graph), "Add(x,one)y");
        CHECK(sbit_graph_value(graph, value_of(graph, "one"))->is_constant);
        CHECK_OK(sbit_graph_validate(graph, &error), error);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* ---- functions */

TEST(functions_are_inlined)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x", "y"), *out = NULL;
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_function *inner = new_function(doc, "scale", "a opt", "r");
    ref_attr(function_node(doc, inner, "Constant", "", "", "k"), "value_float",
             SBIT_ONNX_ATTR_FLOAT, "factor");
    function_node(doc, inner, "Clip", "", "a - opt", "t");
    sbit_onnx_node *mul = function_node(doc, inner, "Mul", "m", "t k", "r");
    ref_attr(mul, "absent", SBIT_ONNX_ATTR_INT, "nobody_gives_it");
    ref_attr(mul, "level", SBIT_ONNX_ATTR_INT, "depth");
    SBIT_ONNX_SET(&inner->attribute_proto[0], SBIT_ONNX_ATTRIBUTE_NAME, name, text("depth"));
    SBIT_ONNX_SET(&inner->attribute_proto[0], SBIT_ONNX_ATTRIBUTE_TYPE, type, 2);
    SBIT_ONNX_SET(&inner->attribute_proto[0], SBIT_ONNX_ATTRIBUTE_I, i, 5);
    inner->attribute_proto_count = 1;
    sbit_onnx_function *outer = new_function(doc, "twice", "a", "r");
    sbit_onnx_node *call = function_node(doc, outer, "scale", "", "a", "t");
    call_local(call);
    ref_attr(call, "factor", SBIT_ONNX_ATTR_FLOAT, "by"); /* handed on under another name */
    call = function_node(doc, outer, "scale", "", "t a", "r");
    call_local(call);
    float_attr(call, "factor", 7.0f);
    int_attr(call, "depth", 9);
    call = new_node(doc, g, "twice", "go", "x", "y");
    call_local(call);
    float_attr(call, "by", 3.0f);
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        CHECK_STR(listing(graph), "Clip(x,-,-)go/scale/t Mul(go/scale/t,go/scale/k)go/t "
                                  "Clip(go/t,-,x)go/scale/t_1 Mul(go/scale/t_1,go/scale/k_1)y");
        const sbit_value_info *k = sbit_graph_value(graph, value_of(graph, "go/scale/k"));
        CHECK_NEAR(*(const float *)k->constant.data, 3, 0);
        k = sbit_graph_value(graph, value_of(graph, "go/scale/k_1"));
        CHECK_NEAR(*(const float *)k->constant.data, 7, 0);
        const sbit_node *first =
            sbit_graph_node(graph, sbit_graph_value(graph, value_of(graph, "go/t"))->producer);
        const sbit_node *second =
            sbit_graph_node(graph, sbit_graph_value(graph, value_of(graph, "y"))->producer);
        CHECK_STR(first->name, "go/scale/m");
        CHECK_STR(second->name, "go/scale/m_1");
        CHECK_EQ_I64(first->attr_count, 1); /* "absent" is absent */
        CHECK_EQ_I64(sbit_node_int(first, "level", 0), 5);
        CHECK_EQ_I64(sbit_node_int(second, "level", 0), 9);
        if (export_of(graph, &out) != NULL) {
            CHECK_EQ_I64(sbit_onnx_doc_model(out)->functions_count, 0);
        }
        sbit_onnx_destroy(out);
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

/* A body inside a function sees the function's names; one handed in as attribute the caller's. */
TEST(functions_with_bodies)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x t", "y z");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_function *function = new_function(doc, "f", "a", "r same");
    sbit_onnx_graph *mine = new_graph(doc, "", "m"), *theirs = new_graph(doc, "", "n");
    new_node(doc, mine, "Neg", "", "t", "m");   /* the function's t, not the model's */
    new_node(doc, theirs, "Exp", "", "t", "n"); /* the model's t */
    function_node(doc, function, "Relu", "", "a", "t");
    sbit_onnx_node *node = function_node(doc, function, "If", "if", "a", "r");
    body_attr(node, "then_branch", mine);
    ref_attr(node, "else_branch", SBIT_ONNX_ATTR_GRAPH, "other");
    function_node(doc, function, "Identity", "", "a", "same");
    sbit_onnx_node *call = new_node(doc, g, "f", "call", "x", "y z");
    call_local(call);
    body_attr(call, "other", theirs);
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        CHECK_STR(listing(graph), "Relu(x)call/t If(x)y Identity(x)z");
        CHECK_STR(listing(body_of(graph, "call/if", "then_branch")), "Neg(call/t)call/m");
        CHECK_STR(listing(body_of(graph, "call/if", "else_branch")), "Exp(t)n");
    }
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(functions_special_cases)
{
    sbit_ctx *ctx = make_ctx(NULL);
    /* an argument handed through; overloads; outputs that the call omits */
    sbit_onnx_doc *doc = new_model(ctx, "x", "y z");
    sbit_onnx_function *function = new_function(doc, "f", "a", "a b");
    function_node(doc, function, "Relu", "", "a", "b");
    function = new_function(doc, "f", "a", "r s");
    SBIT_ONNX_SET(function, SBIT_ONNX_FUNCTION_OVERLOAD, overload, text("2"));
    function_node(doc, function, "Exp", "", "a", "s");
    function_node(doc, function, "Neg", "", "s", "r");
    call_local(new_node(doc, sbit_onnx_doc_model(doc)->graph, "f", "", "x", "y"));
    sbit_onnx_node *call = new_node(doc, sbit_onnx_doc_model(doc)->graph, "f", "", "x", "z -");
    call_local(call);
    SBIT_ONNX_SET(call, SBIT_ONNX_NODE_OVERLOAD, overload, text("2"));
    sbit_graph *graph = import(ctx, doc);
    CHECK(graph == NULL ||
          strcmp(listing(graph), "Identity(x)y Relu(x)f/b Exp(x)f/s Neg(f/s)z") == 0);
    sbit_graph_destroy(graph);
    /* f calls g calls f */
    doc = new_model(ctx, "x", "y");
    function = new_function(doc, "f", "a", "r");
    call_local(function_node(doc, function, "g", "", "a", "r"));
    function = new_function(doc, "g", "a", "r");
    call_local(function_node(doc, function, "f", "", "a", "r"));
    call_local(new_node(doc, sbit_onnx_doc_model(doc)->graph, "f", "", "x", "y"));
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "function 'f' calls itself");
    /* 2^30 nodes */
    doc = new_model(ctx, "x", "y");
    for (int i = 0; i < 30; i++) {
        static char calls[31][16];
        snprintf(calls[i], sizeof calls[i], "f%d", i);
        snprintf(calls[i + 1], sizeof calls[i + 1], "f%d", i + 1);
        function = new_function(doc, calls[i], "a", "r");
        call_local(function_node(doc, function, i < 29 ? calls[i + 1] : "Relu", "", "a", "t"));
        call_local(function_node(doc, function, i < 29 ? calls[i + 1] : "Relu", "", "t", "r"));
    }
    call_local(new_node(doc, sbit_onnx_doc_model(doc)->graph, "f15", "", "x", "y"));
    graph = import(ctx, doc); /* 2^15 nodes are fine */
    CHECK(graph == NULL || sbit_graph_node_limit(graph) == (1u << 15) + 1);
    sbit_graph_destroy(graph);
    /* errors */
    doc = new_model(ctx, "x", "y");
    function = new_function(doc, "f", "a", "r");
    function_node(doc, function, "Relu", "", "x", "r"); /* the model's name */
    call_local(new_node(doc, sbit_onnx_doc_model(doc)->graph, "f", "", "x", "y"));
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "reads 'x'");
    doc = new_model(ctx, "x", "y");
    new_function(doc, "f", "a", "r");
    call_local(new_node(doc, sbit_onnx_doc_model(doc)->graph, "f", "", "x", "y"));
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "does not produce its output 'r'");
    doc = new_model(ctx, "x", "y");
    function = new_function(doc, "f", "a", "r");
    function_node(doc, function, "Relu", "", "a", "r");
    call_local(new_node(doc, sbit_onnx_doc_model(doc)->graph, "f", "", "x x", "y"));
    refuse(ctx, doc, SBIT_ERR_INVALID_MODEL, "more inputs or outputs");
    sbit_ctx_destroy(ctx);
}

/* ---- edits */

static sbit_graph *new_root(sbit_ctx *ctx)
{
    sbit_graph *graph = NULL;
    CHECK_OK(sbit_graph_create(ctx, 13, &graph, &error), error);
    return graph;
}

TEST(edit_nodes_and_uses)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    const sbit_value_id x = build_input(g, "x", 0, NULL);
    const sbit_value_id a = build_node1(g, "Relu", "a", x);
    const sbit_value_id b = build_node2(g, "Add", "b", x, a);
    const sbit_value_id c = build_node2(g, "Mul", "c", x, x);
    sbit_use uses[8];
    build_output(g, b);
    build_output(g, x);
    CHECK_EQ_I64(sbit_graph_value(g, x)->use_count, 5);
    CHECK_EQ_I64(sbit_graph_uses(g, x, uses, 8), 5);
    CHECK_STR(sbit_graph_node(g, uses[0].node)->op_type, "Relu");
    CHECK_STR(sbit_graph_node(g, uses[1].node)->op_type, "Add");
    CHECK_STR(sbit_graph_node(g, uses[2].node)->op_type, "Mul");
    CHECK_EQ_I64(uses[2].index, 0);
    CHECK_EQ_I64(uses[3].index, 1);
    CHECK(uses[4].node.idx == 0 && uses[4].index == 1);
    CHECK_EQ_I64(sbit_graph_uses(g, x, uses, 2), 5); /* the first two */
    CHECK_STR(sbit_graph_node(g, uses[1].node)->op_type, "Add");
    CHECK_EQ_I64(sbit_graph_uses(g, x, NULL, 0), 5);
    const sbit_node_id add = sbit_graph_value(g, b)->producer;
    CHECK_OK(sbit_graph_set_node_input(g, add, 3, c, &error), error);
    CHECK_STATUS(sbit_graph_validate(g, &error), SBIT_ERR_INVALID_MODEL, error); /* Mul is later */
    CHECK_CONTAINS(error.message, "Add 'b': stands before what it reads");
    CHECK_OK(sbit_graph_sort(g, &error), error);
    CHECK_OK(sbit_graph_validate(g, &error), error);
    CHECK_STR(listing(g), "Relu(x)a Mul(x,x)c Add(x,a,-,c)b");
    sbit_value_id d = {0};
    CHECK_OK(sbit_graph_add_value(g, "d", NULL, &d, &error), error);
    CHECK_OK(sbit_graph_set_node_output(g, add, 0, d, &error), error);
    CHECK_EQ_I64(sbit_graph_value(g, b)->producer.idx, 0);
    CHECK_STATUS(sbit_graph_set_node_output(g, add, 1, a, &error), SBIT_ERR_INVALID_ARGUMENT,
                 error);
    CHECK_CONTAINS(error.message, "'a'");
    CHECK_OK(sbit_graph_set_output(g, 0, d, &error), error);
    sbit_graph_erase_value(g, b);
    CHECK_OK(sbit_graph_set_op(g, add, "ai.onnx", "Max", &error), error);
    CHECK_STR(listing(g), "Relu(x)a Mul(x,x)c Max(x,a,-,c)d");
    sbit__graph_remove_output(g, 0);
    CHECK_EQ_I64(sbit_graph_output_count(g), 1);
    CHECK(!sbit_graph_value(g, d)->is_output && sbit_graph_value(g, x)->is_output);
    sbit_graph_erase_node(g, add);
    sbit_graph_erase_value(g, d);
    CHECK_OK(sbit_graph_validate(g, &error), error);
    CHECK_STR(listing(g), "Relu(x)a Mul(x,x)c");
    CHECK(!sbit_graph_node_alive(g, add) && sbit_graph_node(g, add) == NULL);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

TEST(edit_keeps_order_with_many_inserts)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    const sbit_value_id x = build_input(g, "x", 0, NULL);
    const sbit_value_id last = build_node1(g, "Last", "last", x);
    build_output(g, last);
    for (int i = 0; i < 200; i++) { /* each directly before Last: the gaps run out */
        sbit_node_desc desc;
        sbit_value_id y = {0};
        memset(&desc, 0, sizeof desc);
        CHECK_OK(sbit_graph_add_value(g, "y", NULL, &y, &error), error);
        desc.op_type = "Mid";
        desc.inputs = &x;
        desc.input_count = 1;
        desc.outputs = &y;
        desc.output_count = 1;
        desc.before = sbit_graph_value(g, last)->producer;
        CHECK_OK(sbit_graph_add_node(g, &desc, NULL, &error), error);
    }
    CHECK_OK(sbit_graph_validate(g, &error), error);
    uint32_t seen = 1; /* Last has id 1, so the others come as 2, 3 ... and then 1 */
    for (sbit_node_id id = sbit_graph_first(g); id.idx != 1 && id.idx != 0;
         id = sbit_graph_next(g, id)) {
        CHECK_EQ_I64(id.idx, ++seen);
    }
    CHECK_EQ_I64(seen, 201);
    CHECK(sbit_graph_find_node(g, "Mid_199").idx != 0);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

TEST(edit_refuses_bad_nodes)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    const sbit_value_id x = build_input(g, "x", 0, NULL), bad = {99};
    const sbit_value_id w = build_const(g, "w", 0, NULL, ramp);
    const sbit_value_id a = build_node1(g, "Relu", "a", x);
    const sbit_value_id outputs[] = {x, w, a, bad};
    sbit_node_desc desc;
    memset(&desc, 0, sizeof desc);
    CHECK_STATUS(sbit_graph_add_node(g, &desc, NULL, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    desc.op_type = "Neg";
    for (size_t i = 0; i < 4; i++) {
        desc.outputs = &outputs[i];
        desc.output_count = 1;
        CHECK_STATUS(sbit_graph_add_node(g, &desc, NULL, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    }
    desc.output_count = 0;
    desc.inputs = &bad;
    desc.input_count = 1;
    CHECK_STATUS(sbit_graph_add_node(g, &desc, NULL, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    CHECK_STATUS(sbit_graph_set_input(g, a, true, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    CHECK_STATUS(sbit_graph_set_output(g, 0, a, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    sbit_graph_erase_value(g, a); /* has a producer: nothing happens */
    CHECK(sbit_graph_value_alive(g, a));
    CHECK_OK(sbit_graph_validate(g, &error), error);
    CHECK_STR(listing(g), "Relu(x)a");
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

TEST(edit_attributes)
{
    static const int64_t ints[] = {3, 4};
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    const sbit_value_id y = build_node1(g, "Conv", "y", build_input(g, "x", 0, NULL));
    const sbit_node_id id = sbit_graph_value(g, y)->producer;
    char buffer[] = "SAME";
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = "auto_pad";
    attr.type = SBIT_ONNX_ATTR_STRING;
    attr.s = text(buffer);
    CHECK_OK(sbit_graph_set_attr(g, id, &attr, &error), error);
    buffer[0] = '?'; /* it was copied */
    attr.name = "pads";
    attr.type = SBIT_ONNX_ATTR_INTS;
    attr.ints = ints;
    attr.count = 2;
    CHECK_OK(sbit_graph_set_attr(g, id, &attr, &error), error);
    build_attr_int(g, id, "group", 1);
    build_attr_int(g, id, "group", 2);
    const sbit_node *node = sbit_graph_node(g, id);
    CHECK_EQ_I64(node->attr_count, 3);
    CHECK_STR(sbit_node_string(node, "auto_pad", ""), "SAME");
    CHECK_EQ_I64(sbit_node_attr(node, "pads")->ints[1], 4);
    CHECK(sbit_node_attr(node, "pads")->ints != ints);
    CHECK_EQ_I64(sbit_node_int(node, "group", 0), 2);
    CHECK_EQ_I64(sbit_node_int(node, "none", -5), -5);
    CHECK_NEAR(sbit_node_float(node, "group", 0.5f), 0.5, 0); /* another type */
    sbit_graph_remove_attr(g, id, "pads");
    sbit_graph_remove_attr(g, id, "pads");
    CHECK_EQ_I64(sbit_graph_node(g, id)->attr_count, 2);
    CHECK_EQ_I64(sbit_node_int(sbit_graph_node(g, id), "group", 0), 2);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

/* The names of the model's outputs are its interface. */
TEST(replace_uses_keeps_output_names)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    const sbit_value_id x = build_input(g, "x", 0, NULL);
    const sbit_value_id a = build_node1(g, "Relu", "a", x);
    const sbit_value_id y = build_node1(g, "Identity", "y", a);
    const sbit_value_id z = build_node1(g, "Identity", "z", x);
    const sbit_value_id u = build_node1(g, "Identity", "u", a);
    build_node1(g, "Neg", "reader", y);
    build_output(g, y);
    build_output(g, z);
    build_output(g, u);
    /* an inner value takes the name over */
    CHECK_OK(sbit_graph_replace_uses(g, y, a, &error), error);
    sbit_graph_erase_node(g, sbit_graph_value(g, y)->producer);
    CHECK_STR(name_of(g, a), "y");
    CHECK_STR(name_of(g, y), "y_1");
    sbit_graph_erase_value(g, y);
    CHECK_OK(sbit_graph_validate(g, &error), error);
    CHECK_STR(listing(g), "Relu(x)y Identity(x)z Identity(y)u Neg(y)reader");
    /* an input keeps its own name: an Identity gives the output's */
    CHECK_OK(sbit_graph_replace_uses(g, z, x, &error), error);
    sbit_graph_erase_node(g, sbit_graph_value(g, z)->producer);
    sbit_graph_erase_value(g, z);
    /* another output too */
    CHECK_OK(sbit_graph_replace_uses(g, u, a, &error), error);
    sbit_graph_erase_node(g, sbit_graph_value(g, u)->producer);
    sbit_graph_erase_value(g, u);
    CHECK_OK(sbit_graph_validate(g, &error), error);
    CHECK_STR(listing(g), "Relu(x)y Neg(y)reader Identity(x)z Identity(y)u");
    CHECK_STR(name_of(g, sbit_graph_output(g, 0)), "y");
    CHECK_STR(name_of(g, sbit_graph_output(g, 1)), "z");
    CHECK_STR(name_of(g, sbit_graph_output(g, 2)), "u");
    CHECK_STR(name_of(g, sbit_graph_input(g, 0)), "x");
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

TEST(replace_uses_reaches_captures)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *graph = scoped_graph(ctx);
    if (graph == NULL) {
        return;
    }
    const sbit_value_id x = value_of(graph, "x"), h = value_of(graph, "h");
    const sbit_graph *inner =
        body_of(body_of(graph, "outer", "then_branch"), "inner", "then_branch");
    CHECK_OK(sbit_graph_replace_uses(graph, value_of(graph, "hidden"), h, &error), error);
    CHECK_STR(listing(body_of(graph, "outer", "else_branch")), "Relu(h)same");
    const sbit_value_id fresh = build_input(graph, "fresh", 0, NULL);
    CHECK_OK(sbit_graph_replace_uses(graph, x, fresh, &error), error);
    CHECK_STR(listing(inner), "Add(fresh,hidden_1)q");
    CHECK_STR(listing(graph), "Exp(fresh)h Abs(fresh)hidden If(cond)y");
    CHECK_EQ_I64(sbit_graph_value(graph, x)->use_count, 0);
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(edit_constants)
{
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx *ctx = make_ctx(&heap);
    sbit_graph *g = new_root(ctx);
    const int64_t dims[] = {2};
    const sbit_value_id w = build_const(g, "w", 1, dims, ramp);
    const sbit_value_id x = build_input(g, "x", 0, NULL);
    const sbit_value_id y = build_node2(g, "Add", "y", w, x);
    const sbit_tensor t = build_tensor(SBIT_F32, 1, dims, ramp + 4);
    build_output(g, y);
    CHECK_NEAR(((const float *)sbit_graph_value(g, w)->constant.data)[1], 2, 0);
    for (int i = 0; i < 100; i++) { /* old data goes at once */
        CHECK_OK(sbit_graph_set_constant(g, w, &t, &error), error);
    }
    CHECK_NEAR(((const float *)sbit_graph_value(g, w)->constant.data)[1], 6, 0);
    const int64_t before = heap.live_bytes;
    CHECK_OK(sbit_graph_set_constant(g, w, &t, &error), error);
    CHECK_EQ_I64(heap.live_bytes, before);
    CHECK_OK(sbit_graph_set_constant(g, y, &t, &error), error); /* folding: then the node goes */
    sbit_graph_erase_node(g, sbit_graph_value(g, y)->producer);
    sbit_graph_erase_value(g, w);
    CHECK(heap.live_bytes < before + 200);
    CHECK_OK(sbit_graph_validate(g, &error), error);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* Ten thousand edits of one kind take ten thousand steps: minutes, if something were quadratic. */
TEST(edit_stays_fast)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    sbit_value_id x = build_input(g, "x", 0, NULL);
    const sbit_value_id w = build_const(g, "w", 0, NULL, ramp);
    for (int i = 0; i < 50000; i++) {
        x = build_node2(g, "Add", "y", x, w);
    }
    build_output(g, x);
    for (sbit_node_id id = sbit_graph_first(g); id.idx != 0;) {
        const sbit_node_id next = sbit_graph_next(g, id);
        const sbit_value_id out = sbit_graph_node(g, id)->outputs[0];
        const sbit_value_id in = sbit_graph_node(g, id)->inputs[0];
        if (id.idx % 2 == 0) {
            CHECK_OK(sbit_graph_replace_uses(g, out, in, &error), error);
            CHECK_OK(sbit_graph_set_node_input(g, id, 1, in, &error), error);
        }
        id = next;
    }
    CHECK_OK(sbit_graph_sort(g, &error), error);
    CHECK_EQ_I64(sbit_graph_value(g, w)->use_count, 25000);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

/* ---- clone */

TEST(clone_is_equal_and_independent)
{
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx *ctx = make_ctx(&heap);
    sbit_graph *graph = scoped_graph(ctx), *clone = NULL;
    sbit_onnx_doc *a = NULL, *b = NULL;
    if (graph == NULL) {
        return;
    }
    const int64_t dims[] = {-1, 3};
    const sbit_type type = build_type(graph, SBIT_F32, 2, dims);
    sbit_graph_set_type(graph, value_of(graph, "h"), &type);
    const sbit_value_id w = build_const(graph, "w", 0, NULL, ramp);
    build_node1(graph, "Neg", "gone", w);
    sbit_graph_erase_node(graph, sbit_graph_value(graph, value_of(graph, "gone"))->producer);
    sbit_graph_erase_value(graph, value_of(graph, "gone"));
    CHECK_OK(sbit_graph_clone(graph, &clone, &error), error);
    CHECK_OK(sbit_graph_validate(clone, &error), error);
    CHECK_OK(sbit_graph_export(graph, &a, &error), error);
    CHECK_OK(sbit_graph_export(clone, &b, &error), error);
    CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(a), sbit_onnx_doc_root(b)));
    sbit_onnx_destroy(b);
    CHECK_EQ_I64(value_of(clone, "w").idx, w.idx);
    CHECK(sbit_graph_value(clone, w)->constant.data != sbit_graph_value(graph, w)->constant.data);
    const sbit_type *h = &sbit_graph_value(clone, value_of(clone, "h"))->type;
    CHECK_STR(sbit_graph_symbol_name(clone, h->dims[0].symbol), "N");
    /* changes of one do not reach the other */
    sbit_graph_erase_node(clone, sbit_graph_find_node(clone, "outer"));
    CHECK_OK(sbit_graph_rename_value(clone, value_of(clone, "x"), "renamed", &error), error);
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    CHECK_OK(sbit_graph_export(graph, &b, &error), error);
    CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(a), sbit_onnx_doc_root(b)));
    sbit_onnx_destroy(a);
    sbit_onnx_destroy(b);
    sbit_graph_destroy(clone);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* ---- export */

TEST(export_gives_constants_at_outputs_an_identity)
{
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x cond", "c y x y"), *out = NULL;
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_graph *then_body = new_graph(doc, "", "x"), *else_body = new_graph(doc, "", "k");
    new_init(doc, g, "c", 2);
    new_init(doc, else_body, "k", 2);
    new_node(doc, g, "Add", "add", "c c", "c_value"); /* the name that would be chosen */
    sbit_onnx_node *node = new_node(doc, g, "If", "if", "cond", "y");
    body_attr(node, "then_branch", then_body);
    body_attr(node, "else_branch", else_body);
    sbit_graph *graph = import(ctx, doc);
    g = graph != NULL ? export_of(graph, &out) : NULL;
    if (g != NULL && CHECK_EQ_I64(g->node_count, 4)) {
        CHECK_STR(g->node[0].op_type.data, "Identity");
        CHECK_STR(g->node[0].input[0].data, "c_value_1");
        CHECK_STR(g->node[0].output[0].data, "c");
        CHECK(find_init(g, "c_value_1") != NULL && find_init(g, "c") == NULL);
        CHECK_STR(g->node[1].input[0].data, "c");
        CHECK_STR(g->output[0].name.data, "c");
        CHECK_STR(g->output[2].name.data, "x"); /* input and output at once stays so */
        CHECK_STR(g->node[3].op_type.data, "Identity");
        CHECK_STR(g->node[3].input[0].data, "y"); /* "y" was listed twice */
        CHECK_STR(g->output[3].name.data, "y_output");
        const sbit_onnx_graph *body = g->node[2].attribute[0].g;
        CHECK_EQ_I64(body->node_count, 1); /* an outer value may not be returned directly */
        CHECK_STR(body->node[0].input[0].data, "x");
        CHECK_STR(body->output[0].name.data, "x_output");
        body = g->node[2].attribute[1].g;
        CHECK_STR(body->node[0].input[0].data, "k");
        CHECK_STR(body->output[0].name.data, "k_output");
    }
    sbit_onnx_destroy(out);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(export_keeps_what_the_model_said)
{
    static sbit_onnx_string_entry entry, annotation_entries[2];
    static sbit_onnx_tensor_annotation annotations[2];
    static sbit_onnx_training_info training;
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_onnx_doc *doc = new_model(ctx, "x", "y"), *out = NULL;
    sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    sbit_onnx_graph *g = model->graph;
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_PRODUCER_NAME, producer_name, text("me"));
    SBIT_ONNX_SET(model, SBIT_ONNX_MODEL_DOC_STRING, doc_string, text("about"));
    model->msg.unknown = text("\xba\x3e\x01z"); /* field 999: "z" */
    SBIT_ONNX_SET(&model->opset_import[1], SBIT_ONNX_OPSET_ID_DOMAIN, domain, text("unused"));
    SBIT_ONNX_SET(&model->opset_import[1], SBIT_ONNX_OPSET_ID_VERSION, version, 3);
    model->opset_import_count = 2;
    SBIT_ONNX_SET(&entry, SBIT_ONNX_STRING_ENTRY_KEY, key, text("k"));
    SBIT_ONNX_SET(&entry, SBIT_ONNX_STRING_ENTRY_VALUE, value, text("v"));
    model->metadata_props = &entry;
    model->metadata_props_count = 1;
    training.algorithm = new_graph(doc, "", "");
    new_node(doc, training.algorithm, "Neg", "", "w", "taken");
    model->training_info = &training;
    model->training_info_count = 1;
    sbit_onnx_tensor *w = new_init(doc, g, "w", 2);
    SBIT_ONNX_SET(w, SBIT_ONNX_TENSOR_DOC_STRING, doc_string, text("weights"));
    sbit_onnx_node *node = new_node(doc, g, "Mul", "same", "x w", "a");
    SBIT_ONNX_SET(node, SBIT_ONNX_NODE_DOC_STRING, doc_string, text("mul"));
    int_attr(node, "i", 4);
    SBIT_ONNX_SET(&node->attribute[0], SBIT_ONNX_ATTRIBUTE_DOC_STRING, doc_string, text("four"));
    new_attr(node, "tp", SBIT_ONNX_ATTR_TYPE_PROTO)->tp = new_type(doc, "2 M");
    new_node(doc, g, "Add", "same", "a w", "y"); /* equal names of nodes are kept */
    SBIT_ONNX_SET(&g->value_info[0], SBIT_ONNX_VALUE_INFO_NAME, name, text("a"));
    SBIT_ONNX_SET(&g->value_info[0], SBIT_ONNX_VALUE_INFO_DOC_STRING, doc_string, text("inner"));
    g->value_info[0].type = new_type(doc, "N 2");
    SBIT_ONNX_SET(g->value_info[0].type, SBIT_ONNX_TYPE_DENOTATION, denotation, text("IMAGE"));
    SBIT_ONNX_SET(&g->value_info[1], SBIT_ONNX_VALUE_INFO_NAME, name, text("stale"));
    g->value_info_count = 2;
    for (int i = 0; i < 2; i++) {
        SBIT_ONNX_SET(&annotation_entries[i], SBIT_ONNX_STRING_ENTRY_KEY, key,
                      text("SCALE_TENSOR"));
        SBIT_ONNX_SET(&annotation_entries[i], SBIT_ONNX_STRING_ENTRY_VALUE, value,
                      text(i == 0 ? "w" : "gone"));
        SBIT_ONNX_SET(&annotations[i], SBIT_ONNX_TENSOR_ANNOTATION_TENSOR_NAME, tensor_name,
                      text("a"));
        annotations[i].quant_parameter_tensor_names = &annotation_entries[i];
        annotations[i].quant_parameter_tensor_names_count = 1;
    }
    g->quantization_annotation = annotations;
    g->quantization_annotation_count = 2;
    sbit_graph *graph = import(ctx, doc);
    if (graph != NULL) {
        sbit_value_id id = {0};
        CHECK_OK(sbit_graph_add_value(graph, "taken", NULL, &id, &error), error);
        CHECK_STR(name_of(graph, id), "taken_1"); /* training graphs share the scope */
        sbit_graph_erase_value(graph, id);
        CHECK_OK(sbit_graph_add_metadata(graph, "k", "w", &error), error);
        CHECK_OK(sbit_graph_add_metadata(graph, "k2", "v2", &error), error);
        CHECK_STR(entry.value.data, "v"); /* the document is not changed */
        CHECK_OK(sbit_graph_export(graph, &out, &error), error);
    }
    if (out != NULL) {
        model = sbit_onnx_doc_model(out);
        g = model->graph;
        CHECK_STR(model->producer_name.data, "me");
        CHECK_STR(model->doc_string.data, "about");
        CHECK_EQ_I64(model->msg.unknown.size, 4);
        CHECK_EQ_I64(model->ir_version, 8);
        CHECK_EQ_I64(model->opset_import_count, 2);
        CHECK_EQ_I64(model->training_info_count, 1);
        CHECK_EQ_I64(model->metadata_props_count, 2);
        CHECK_STR(model->metadata_props[0].value.data, "w");
        CHECK_STR(find_init(g, "w")->doc_string.data, "weights");
        CHECK_MEM(find_init(g, "w")->raw_data.data, ramp, 8);
        CHECK_STR(g->node[0].doc_string.data, "mul");
        CHECK_STR(g->node[0].name.data, "same");
        CHECK_STR(g->node[1].name.data, "same");
        CHECK_STR(g->node[0].attribute[0].doc_string.data, "four");
        CHECK_STR(g->node[0].attribute[1].tp->tensor_type->shape->dim[1].dim_param.data, "M");
        CHECK_EQ_I64(g->value_info_count, 1);
        CHECK_STR(g->value_info[0].doc_string.data, "inner");
        CHECK_STR(g->value_info[0].type->denotation.data, "IMAGE");
        CHECK_EQ_I64(g->quantization_annotation_count, 1);
        CHECK_STR(g->quantization_annotation[0].quant_parameter_tensor_names[0].value.data, "w");
    }
    sbit_onnx_destroy(out);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(export_writes_new_types_and_versions)
{
    static const int8_t packed[] = {0x21};
    sbit_ctx *ctx = make_ctx(NULL);
    sbit_graph *g = new_root(ctx);
    sbit_onnx_doc *out = NULL;
    const int64_t dims[] = {-1, 3}, two[] = {2};
    sbit_value_id s = {0};
    const sbit_value_id y = build_node1(g, "Relu", "y", build_input(g, "x", 2, dims));
    sbit_type type = build_type(g, SBIT_F32, 2, dims);
    type.dims[1].value = 0;
    type.dims[1].symbol = SBIT_SYMBOL_ANY;
    sbit_graph_set_type(g, y, &type);
    build_output(g, y);
    type.kind = SBIT_KIND_OPTIONAL;
    type.of = SBIT_KIND_SEQUENCE;
    CHECK_OK(sbit_graph_add_value(g, "s", &type, &s, &error), error);
    CHECK_OK(sbit_graph_set_input(g, s, true, &error), error);
    sbit_onnx_graph *o = export_of(g, &out);
    if (o != NULL) {
        CHECK_EQ_I64(sbit_onnx_doc_model(out)->ir_version, 7); /* opset 13 came with IR 7 */
        const sbit_onnx_shape *shape = o->output[0].type->tensor_type->shape;
        CHECK_STR(shape->dim[0].dim_param.data, "N");
        CHECK_EQ_I64(shape->dim[1].msg.has, 0);
        CHECK_EQ_I64(o->input[0].type->tensor_type->shape->dim[1].dim_value, 3);
        const sbit_onnx_type *inner =
            o->input[1].type->optional_type->elem_type->sequence_type->elem_type;
        CHECK_EQ_I64(inner->tensor_type->elem_type, SBIT_F32);
    }
    sbit_onnx_destroy(out);
    const sbit_tensor t = build_tensor(SBIT_I4, 1, two, packed);
    sbit_value_id w = {0};
    CHECK_OK(sbit_graph_add_constant(g, "w", &t, &w, &error), error);
    CHECK_OK(sbit_graph_set_opset(g, "", 12, &error), error); /* only ever raised */
    CHECK_EQ_I64(sbit_graph_opset(g, ""), 13);
    o = export_of(g, &out);
    if (o != NULL) {
        CHECK_EQ_I64(sbit_onnx_doc_model(out)->ir_version, 10); /* int4 came with IR 10 */
        CHECK_EQ_I64(o->initializer[0].raw_data.size, 1);
    }
    sbit_onnx_destroy(out);
    CHECK_OK(sbit_graph_set_opset(g, "", 23, &error), error);
    if (export_of(g, &out) != NULL) {
        CHECK_EQ_I64(sbit_onnx_doc_model(out)->ir_version, 11);
    }
    sbit_onnx_destroy(out);
    sbit_graph_destroy(g);
    sbit_ctx_destroy(ctx);
}

/* ---- files */

static void check_file(sbit_ctx *ctx, const char *path)
{
    sbit_graph *graph = NULL, *clone = NULL, *again = NULL;
    sbit_onnx_doc *a = NULL, *b = NULL, *c = NULL;
    if (!CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error)) {
        return;
    }
    CHECK_OK(sbit_graph_validate(graph, &error), error);
    CHECK_OK(sbit_graph_clone(graph, &clone, &error), error);
    CHECK_OK(sbit_graph_validate(clone, &error), error);
    if (export_of(graph, &a) != NULL && export_of(clone, &b) != NULL) {
        CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(a), sbit_onnx_doc_root(b)));
    }
    char out[300];
    test_tmp_path("graph_round.onnx", out, sizeof out);
    CHECK_OK(sbit_graph_save(graph, out, NULL, &error), error);
    if (CHECK_OK(sbit_graph_load(ctx, out, &again, &error), error) &&
        export_of(again, &c) != NULL) {
        /* a second round changes nothing any more */
        CHECK(sbit_onnx_equal(SBIT_ONNX_MODEL, sbit_onnx_doc_root(a), sbit_onnx_doc_root(c)));
    }
    sbit_onnx_destroy(a);
    sbit_onnx_destroy(b);
    sbit_onnx_destroy(c);
    sbit_graph_destroy(clone);
    sbit_graph_destroy(again);
    sbit_graph_destroy(graph);
    remove(out);
}

TEST(shared_models_survive)
{
    static const char *const files[] = {
        "zoo/mnist_8",          "zoo/ppocr_cls",           "zoo/yunet_n_dynamic",
        "zoo/ultraface_rfb320", "zoo/ppocrv4_rec",         "zoo/super_resolution_10",
        "zoo/silero_vad_v5",    "zoo/ppocrv4_det",         "zoo/silero_vad_v4",
        "cifar10/resnet18w32",  "cifar10/shufflenetv2",    "cifar10/vggsmall",
        "cifar10/vit_tiny",     "cifar10/rowlstm",         "cifar10/mobilenetv2",
        "cifar10/resnet20",     "cifar10/mobilenetv3s",    "bench/squeezenet1_1",
        "bench/mobilenet_v2",   "bench/mobilenet_v3_small"};
    int found = 0;
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx *ctx = make_ctx(&heap);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char name[100], path[400];
        snprintf(name, sizeof name, "models/%s.onnx", files[i]);
        if (test_shared(name, path, sizeof path)) {
            check_file(ctx, path);
            found++;
        }
    }
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
    if (found == 0) {
        SBIT_TEST_SKIP("no shared models");
    }
}

/* ---- failing allocations */

/* Import of a model with bodies, functions and unaligned data; then edits, a clone and an export.
 */
static sbit_status run_all(sbit_ctx *ctx)
{
    sbit_onnx_doc *doc = NULL, *out = NULL;
    sbit_graph *graph = NULL, *clone = NULL;
    unsigned char bytes[6000];
    size_t size = 0;
    sbit_ctx *builder = make_ctx(NULL); /* the model is built where nothing fails */
    doc = new_model(builder, "x cond", "y r");
    sbit_onnx_graph *g = sbit_onnx_doc_model(doc)->graph;
    sbit_onnx_graph *body = new_graph(doc, "", "t");
    sbit_onnx_function *function = new_function(doc, "f", "a", "r");
    function_node(doc, function, "Exp", "", "a", "e");
    function_node(doc, function, "Neg", "", "e", "r");
    new_init(doc, g, "w", 3);
    new_init(doc, g, "ww", 5);
    new_node(doc, g, "Add", "add", "x w", "a");
    new_node(doc, body, "Relu", "", "a", "t");
    body_attr(new_node(doc, g, "If", "if", "cond", "y"), "then_branch", body);
    call_local(new_node(doc, g, "f", "call", "a", "r"));
    CHECK_OK(sbit_onnx_write(SBIT_ONNX_MODEL, sbit_onnx_doc_root(doc), bytes, sizeof bytes, &size,
                             &error),
             error);
    sbit_onnx_destroy(doc);
    sbit_ctx_destroy(builder);

    sbit_status status = sbit_graph_read(ctx, bytes, size, &graph, &error);
    if (status != SBIT_OK) {
        return status;
    }
    const sbit_value_id a = sbit_graph_find_value(graph, "a"),
                        x = sbit_graph_find_value(graph, "x");
    const sbit_value_id y = sbit_graph_find_value(graph, "y");
    const sbit_tensor tensor = build_tensor(SBIT_F32, 0, NULL, ramp);
    sbit_value_id k = {0}, outputs[1];
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = "n";
    attr.type = SBIT_ONNX_ATTR_INT;
    sbit_graph *inner = body_of(graph, "if", "then_branch");
    status = sbit_graph_replace_uses(graph, a, x, &error);
    if (status == SBIT_OK) {
        status = sbit_graph_add_constant(graph, "w", &tensor, &k, &error);
    }
    if (status == SBIT_OK) {
        status = sbit_graph_rename_value(graph, x, "image", &error);
    }
    if (status == SBIT_OK) {
        status = sbit_graph_replace_uses(graph, sbit_graph_find_value(graph, "r"), y, &error);
    }
    if (status == SBIT_OK) {
        status = sbit_graph_set_attr(graph, sbit_graph_first(graph), &attr, &error);
    }
    sbit_error ignored;
    CHECK_OK(sbit_graph_validate(graph, &ignored), ignored); /* also after a failure */
    if (status == SBIT_OK) {
        const sbit_node_id node = sbit_graph_find_node(graph, "if");
        status = sbit__graph_inline_body(inner, node, NULL, outputs, &error);
        if (status == SBIT_OK) {
            status = sbit_graph_replace_uses(graph, y, outputs[0], &error);
            sbit_graph_erase_node(graph, node);
        } else {
            CHECK_OK(sbit_graph_validate(graph, &ignored), ignored);
        }
    }
    if (status == SBIT_OK) {
        status = sbit_graph_sort(graph, &error);
    }
    if (status == SBIT_OK) {
        status = sbit_graph_clone(graph, &clone, &error);
    }
    if (status == SBIT_OK) {
        status = sbit_graph_export(clone, &out, &error);
    }
    sbit_onnx_destroy(out);
    sbit_graph_destroy(clone);
    sbit_graph_destroy(graph);
    return status;
}

TEST(each_failed_allocation_is_a_status)
{
    for (int64_t n = 1;; n++) {
        test_heap heap = {0, 0, 0, 0};
        sbit_ctx *ctx = make_ctx(&heap);
        heap.fail_at = heap.count + n;
        const sbit_status status = run_all(ctx);
        const bool failed = heap.count >= heap.fail_at;
        CHECK_STATUS(status, failed ? SBIT_ERR_OUT_OF_MEMORY : SBIT_OK, error);
        sbit_ctx_destroy(ctx);
        if (!CHECK_EQ_I64(heap.live_bytes, 0) || !failed) {
            CHECK_MSG(n > 50, "only %d allocations", (int)n);
            break;
        }
    }
}
