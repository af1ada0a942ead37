/* test_infer.c: symbols, followed integers, stale declarations, errors, costs, what is missing. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"
#include "model_text.h"

#define CHECK_TYPE(b, id, text)                                                                    \
    do {                                                                                           \
        char type_text_[200];                                                                      \
        CHECK_STR(build_type_text(b, id, type_text_, sizeof type_text_), text);                    \
    } while (0)

/* ---- symbols and followed integers */

/* x[N,3,8,8] - Conv - Relu - Reshape to (Shape(x)[0], -1), as exporters write Flatten. */
TEST(symbols_go_through_shape_arithmetic)
{
    build b;
    static const int64_t zero = 0, minus_one = -1, axis = 0, pads[4] = {1, 1, 1, 1};
    sbit_attr attr;
    sbit_value_id conv_in[2], gather_in[2], unsqueeze_in[2], concat_in[2];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,8,8");
    conv_in[0] = x;
    conv_in[1] = build_weights(&b, "w", "4,3,3,3", 1);
    attr = build_ints("pads", pads, 4);
    const sbit_value_id conv = build_node(&b, "Conv", "conv", conv_in, 2, &attr, 1);
    const sbit_value_id relu = build_unary(&b, "Relu", "relu", conv);
    gather_in[0] = build_unary(&b, "Shape", "shape", x);
    gather_in[1] = build_constant(&b, "zero", SBIT_I64, "", &zero);
    unsqueeze_in[0] = build_node(&b, "Gather", "gather", gather_in, 2, NULL, 0);
    unsqueeze_in[1] = build_constant(&b, "axes", SBIT_I64, "1", &axis);
    concat_in[0] = build_node(&b, "Unsqueeze", "unsqueeze", unsqueeze_in, 2, NULL, 0);
    concat_in[1] = build_constant(&b, "minus_one", SBIT_I64, "1", &minus_one);
    attr = build_int("axis", 0);
    const sbit_value_id target = build_node(&b, "Concat", "concat", concat_in, 2, &attr, 1);
    const sbit_value_id flat = build_binary(&b, "Reshape", "flat", relu, target);
    build_output(&b, flat);
    if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error)) {
        CHECK_TYPE(&b, conv, "float32[N,4,8,8]");
        CHECK_TYPE(&b, relu, "float32[N,4,8,8]");
        CHECK_TYPE(&b, target, "int64[2]");
        CHECK_TYPE(&b, flat, "float32[N,256]");
        CHECK_EQ_I64(b.warnings, 0);
    }
    build_end(&b);
}

TEST(broadcasting_keeps_symbols)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,1,5");
    const sbit_value_id y = build_input(&b, "y", SBIT_F32, "7,1");
    const sbit_value_id z = build_input(&b, "z", SBIT_F32, "N,?,?");
    const sbit_value_id sum = build_binary(&b, "Add", "sum", x, y);
    const sbit_value_id more = build_binary(&b, "Add", "more", sum, z);
    build_output(&b, more);
    if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error)) {
        CHECK_TYPE(&b, sum, "float32[N,7,5]");
        CHECK_TYPE(&b, more, "float32[N,7,5]");
    }
    build_end(&b);
}

/* ---- declared types are hints (field report A2.12) */

TEST(stale_declarations_lose_with_a_warning)
{
    build b;
    sbit_type stale;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,16,6,6");
    const sbit_value_id y = build_unary(&b, "Relu", "y", x);
    build_output(&b, build_unary(&b, "Relu", "z", y));
    stale = build_type(&b, SBIT_F32, "1,16,5,5");
    if (!b.failed) {
        sbit_graph_set_type(b.graph, y, &stale);
        CHECK_OK(sbit_infer(b.graph, &b.error), b.error);
        CHECK_TYPE(&b, y, "float32[1,16,6,6]");
        CHECK_EQ_I64(b.warnings, 1);
        CHECK_CONTAINS(b.warning, "'y'");
        CHECK_CONTAINS(b.warning, "float32[1,16,5,5]");
        CHECK_CONTAINS(b.warning, "float32[1,16,6,6]");
    }
    build_end(&b);
}

static sbit_status infer_unknown_dim(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    call->out_type[0]->dtype = call->in_type[0]->dtype;
    call->out_type[0]->rank = 2;
    call->out_type[0]->dims[1].value = 3;
    call->out_type[0]->dims[1].symbol = 0;
    return SBIT_OK;
}

static sbit_op_row user_row(const char *op_type,
                            sbit_status (*infer)(const sbit_op_call *, sbit_error *))
{
    sbit_op_row row;
    memset(&row, 0, sizeof row);
    row.domain = "test";
    row.op_type = op_type;
    row.since_version = 1;
    row.types = SBIT_T_ANY;
    row.infer = infer;
    return row;
}

TEST(declared_names_fill_what_cannot_be_computed)
{
    build b;
    sbit_value_id some, foreign, x;
    sbit_type type;
    const sbit_op_row row = user_row("Some", infer_unknown_dim);
    build_begin(&b, 17);
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    x = build_input(&b, "x", SBIT_F32, "N,3");
    build_node_outputs(&b, "test", "Some", "some", &x, 1, NULL, 0, &some, 1);
    build_node_outputs(&b, "test", "Foreign", "foreign", &some, 1, NULL, 0, &foreign, 1);
    const sbit_value_id last = build_unary(&b, "Relu", "last", foreign);
    build_output(&b, last);
    if (!b.failed) {
        type = build_type(&b, SBIT_F32, "kept,3");
        sbit_graph_set_type(b.graph, some, &type);
        type = build_type(&b, SBIT_F16, "4,kept");
        sbit_graph_set_type(b.graph, foreign, &type);
        CHECK_OK(sbit_infer(b.graph, &b.error), b.error);
        CHECK_TYPE(&b, some, "float32[kept,3]");
        CHECK_TYPE(&b, foreign, "float16[4,kept]"); /* no row: as declared */
        CHECK_TYPE(&b, last, "float16[4,kept]");
        CHECK_EQ_I64(b.warnings, 0);
    }
    build_end(&b);
}

/* ---- errors */

TEST(errors_name_the_node_and_both_shapes_and_change_nothing)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,8,2,2");
    const sbit_value_id y = build_input(&b, "y", SBIT_F32, "1,8,1,3");
    const sbit_value_id relu = build_unary(&b, "Relu", "relu", x);
    build_output(&b, build_binary(&b, "Add", "skip_8", relu, y));
    if (!b.failed) {
        CHECK_STATUS(sbit_infer(b.graph, &b.error), SBIT_ERR_SHAPE, b.error);
        CHECK_CONTAINS(b.error.message, "Add 'skip_8'");
        CHECK_CONTAINS(b.error.message, "float32[1,8,2,2]");
        CHECK_CONTAINS(b.error.message, "float32[1,8,1,3]");
        CHECK_TYPE(&b, relu, "undefined[...]");
    }
    build_end(&b);
}

TEST(every_allocation_may_fail)
{
    int64_t failures = 0;
    for (int64_t n = 1;; n++) {
        test_heap heap;
        sbit_ctx_desc desc;
        build b;
        bool done = false;
        memset(&heap, 0, sizeof heap);
        memset(&desc, 0, sizeof desc);
        memset(&b, 0, sizeof b);
        desc.allocator = test_heap_allocator(&heap);
        if (!CHECK_OK(sbit_ctx_create(&desc, &b.ctx, &b.error), b.error) ||
            !CHECK_OK(sbit_graph_create(b.ctx, 17, &b.graph, &b.error), b.error)) {
            return;
        }
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        const sbit_value_id shape = build_unary(&b, "Shape", "shape", x);
        build_output(&b, build_binary(&b, "Reshape", "y", x, shape));
        heap.count = 0;
        heap.fail_at = n;
        const sbit_status status = sbit_infer(b.graph, &b.error);
        done = heap.count < n;
        if (status != SBIT_OK) {
            CHECK_STATUS(status, SBIT_ERR_OUT_OF_MEMORY, b.error);
            failures++;
        }
        build_end(&b);
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (done || n > 1000) {
            CHECK_EQ_I64(status, SBIT_OK);
            break;
        }
    }
    CHECK(failures > 0);
}

/* ---- what is missing */

typedef struct missing {
    int count;
    char text[400];
} missing;

static void note_missing(const sbit_unsupported *item, void *user)
{
    missing *list = (missing *)user;
    const size_t used = strlen(list->text);
    list->count++;
    snprintf(list->text + used, sizeof list->text - used, "%s: %s; ",
             sbit_graph_node(item->graph, item->node)->name, item->reason);
}

TEST(unsupported_nodes_are_all_listed)
{
    build b;
    missing list;
    sbit_value_id x, f, g;
    const sbit_op_row row = user_row("NoRun", infer_unknown_dim);
    build_begin(&b, 17);
    memset(&list, 0, sizeof list);
    CHECK_OK(sbit_operator_register(b.ctx, &row, &b.error), b.error);
    x = build_input(&b, "x", SBIT_F32, "2,3");
    build_node_outputs(&b, "test", "Foreign", "first", &x, 1, NULL, 0, &f, 1);
    build_node_outputs(&b, "test", "NoRun", "second", &f, 1, NULL, 0, &g, 1);
    const sbit_value_id s = build_input(&b, "s", SBIT_STRING, "2");
    build_output(&b, build_unary(&b, "Relu", "fine", g));
    build_output(&b, build_unary(&b, "Relu", "third", s));
    if (!b.failed) {
        CHECK_EQ_I64(sbit_graph_unsupported(b.graph, note_missing, &list), 3);
        CHECK_EQ_I64(list.count, 3);
        CHECK_STR(list.text, "first: no such operator; second: cannot be executed; "
                             "third: element type string; ");
        CHECK_EQ_I64(sbit_graph_unsupported(b.graph, NULL, NULL), 3);
    }
    build_end(&b);
}

TEST(operators_newer_than_the_model_say_so)
{
    build b;
    missing list;
    build_begin(&b, 13);
    memset(&list, 0, sizeof list);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,3");
    build_output(&b, build_unary(&b, "Mish", "mish", x)); /* since opset 18 */
    if (!b.failed) {
        CHECK_EQ_I64(sbit_graph_unsupported(b.graph, note_missing, &list), 1);
        CHECK_STR(list.text, "mish: not in opset 13; ");
    }
    build_end(&b);
}

/* ---- costs */

TEST(costs_are_counted)
{
    build b;
    sbit_graph_cost cost;
    static const float bias[4] = {0, 0, 0, 0};
    sbit_value_id conv_in[3];
    build_begin(&b, 17);
    conv_in[0] = build_input(&b, "x", SBIT_F32, "2,3,8,8");
    conv_in[1] = build_weights(&b, "w", "4,3,3,3", 1);
    conv_in[2] = build_constant(&b, "b", SBIT_F32, "4", bias);
    const sbit_value_id conv = build_node(&b, "Conv", "conv", conv_in, 3, NULL, 0);
    build_output(&b, build_unary(&b, "Relu", "relu", conv));
    build_weights(&b, "unused", "100", 2);
    if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
        CHECK_OK(sbit_graph_cost_of(b.graph, &cost, &b.error), b.error)) {
        /* 2 images, 4 x 6 x 6 outputs, 27 products each */
        CHECK_EQ_I64(cost.macs, 2 * 4 * 6 * 6 * 27);
        CHECK_EQ_I64(sbit_graph_node_macs(b.graph, sbit_graph_first(b.graph)), cost.macs);
        CHECK_EQ_I64(cost.params, 4 * 27 + 4);
        CHECK_EQ_I64(cost.weight_bytes, 4 * (4 * 27 + 4));
        CHECK_EQ_I64(cost.node_count, 2);
    }
    build_end(&b);
}

TEST(costs_say_what_they_do_not_know)
{
    static const char *const dims[3] = {"2,3,8,8", "2,3,H,W", "N,3,H,W"};
    for (int i = 0; i < 3; i++) {
        build b;
        sbit_graph_cost cost;
        sbit_value_id conv_in[2], y;
        build_begin(&b, 17);
        conv_in[0] = build_input(&b, "x", SBIT_F32, dims[i]);
        conv_in[1] = build_weights(&b, "w", "4,3,3,3", 1);
        y = build_unary(&b, "Relu", "relu", build_node(&b, "Conv", "conv", conv_in, 2, NULL, 0));
        build_output(&b, y); /* Relu has no multiplications to be unsure of */
        if (!b.failed && CHECK_OK(sbit_infer(b.graph, &b.error), b.error) &&
            CHECK_OK(sbit_graph_cost_of(b.graph, &cost, &b.error), b.error)) {
            CHECK_EQ_I64(cost.open_nodes, i == 0 ? 0 : 1);
            CHECK_EQ_I64(cost.macs, (i == 2 ? 1 : 2) * 4 * (i == 0 ? 36 : 1) * 27);
        }
        build_end(&b);
    }
}

/* ---- the table of operators */

TEST(find_takes_the_newest_row_that_the_model_may_use)
{
    build b;
    sbit_op_row user = user_row("Relu", infer_unknown_dim);
    build_begin(&b, 17);
    const sbit_op_row *relu = sbit_operator_find(b.ctx, "ai.onnx", "Relu", 17);
    if (CHECK(relu != NULL)) {
        CHECK_STR(relu->op_type, "Relu");
        CHECK(relu == sbit_operator_find(b.ctx, NULL, "Relu", 17));
        CHECK(relu == sbit_operator_find(b.ctx, "", "Relu", 17));
    }
    CHECK(sbit_operator_find(b.ctx, "", "Relu", 0) == NULL);
    CHECK(sbit_operator_find(b.ctx, "other", "Relu", 17) == NULL);
    for (size_t i = 0; sbit_operator_at(i) != NULL; i++) {
        const sbit_op_row *row = sbit_operator_at(i);
        CHECK_MSG(row->since_version >= 1 && row->infer != NULL &&
                      (row->run != NULL || row->expand != NULL),
                  "row %s", row->op_type);
        CHECK_MSG(sbit_operator_find(b.ctx, row->domain, row->op_type, row->since_version) == row,
                  "two rows for %s-%d", row->op_type, (int)row->since_version);
    }
    user.domain = ""; /* built-in rows may be overridden */
    CHECK_OK(sbit_operator_register(b.ctx, &user, &b.error), b.error);
    CHECK(sbit_operator_find(b.ctx, "", "Relu", 17) == &user);
    CHECK_STATUS(sbit_operator_register(b.ctx, &user, &b.error), SBIT_ERR_DUPLICATE, b.error);
    CHECK_CONTAINS(b.error.message, "Relu");
    user.op_type = "";
    CHECK_STATUS(sbit_operator_register(b.ctx, &user, &b.error), SBIT_ERR_INVALID_ARGUMENT,
                 b.error);
    build_end(&b);
}

/* ---- shapes that depend on values */

static const struct {
    const char *model, *type; /* of y; what is behind = is a constant */
} by_value[] = {
    {"opset 13\nin x f32 2,6\nc s i64 3 = 0 -1 2\nReshape x,s -> y\n", "float32[2,3,2]"},
    {"opset 13\nin x f32 3,1\nc s i64 3 = 2 1 4\nExpand x,s -> y\n", "float32[2,3,4]"},
    {"opset 13\nin x f32 2,3\nc s i64 2 = 2 3\nTile x,s -> y\n", "float32[4,9]"},
    {"opset 13\nin x f32 10,6\nc b i64 1 = -1\nc e i64 1 = -100\nc a i64 1 = 1\nc s i64 1 = -2\n"
     "Slice x,b,e,a,s -> y\n",
     "float32[10,3]"},
    {"opset 13\nin x f32 2,3\nc p i64 4 = 1 0 2 -1\nPad x,p -> y\n", "float32[5,2]"},
    {"opset 13\nc a i64 = 10\nc b i64 = 0\nc c i64 = -3\nRange a,b,c -> y\n", "int64[4]"},
    {"opset 13\nin x f32 3,9\nc k i64 1 = 4\nTopK x,k -> y,i\n", "float32[3,4]"},
    {"opset 13\nin x f32 1,2,4,4\nc s f32 4 = 1 1 2 1.5\nResize x,-,s -> y\n", "float32[1,2,8,6]"},
    {"opset 13\nin x i64 2,3\nc d i64 = 5\nc v f32 2 = 0 1\nOneHot x,d,v -> y axis=1\n",
     "float32[2,5,3]"},
    {"opset 13\nc s i64 3 = 2 0 3\nConstantOfShape s -> y\n", "float32[2,0,3]"},
    {"opset 13\nin x f32 7,2\nc s i64 2 = 3 4\nSplit x,s -> z,y axis=0\n", "float32[4,2]"},
    {"opset 13\nin x f32 2,3\nc a i64 2 = -1 0\nUnsqueeze x,a -> y\n", "float32[1,2,3,1]"},
    {"opset 18\nin x f32 5,6,3\nc s i64 2 = 7 4\nCenterCropPad x,s -> y axes=[1,0]\n",
     "float32[4,7,3]"},
    {"opset 18\nin x f32 2,3,4\nc a i64 2 = -1 0\nReduceMax x,a -> y keepdims=0\n", "float32[3]"},
    {"opset 13\nc x f32 2,2 = 1 0 0 2\nNonZero x -> y\n", "int64[2,2]"},
    {"opset 13\nc x f32 = 0\nNonZero x -> y\n", "int64[1,0]"},
    {"opset 13\nin x f32 4,3\nc k bool 3 = 1 0 1\nCompress x,k -> y axis=0\n", "float32[2,3]"},
    {"opset 13\nc x f32 5 = 2 1 1 3 2\nUnique x -> y\n", "float32[3]"},
    {"opset 13\nc x f32 5 = 2 1 1 3 2\nUnique x -> z,-,y\n", "int64[5]"},
    {"opset 13\nc x f32 3,2 = 2 1 2 1 3 1\nUnique x -> z,-,-,y axis=-2\n", "int64[2]"},
    {"opset 13\nc x f32 3,2 = 2 1 2 1 3 1\nUnique x -> y axis=0\n", "float32[2,2]"},
    {"opset 13\nin x f32 3,2\nUnique x -> z,-,y axis=1\n", "int64[2]"},
    {"opset 13\nin x f32 3,2\nUnique x -> z,-,y\n", "int64[6]"},
    {"opset 13\nc b f32 1,3,4 = 0 0 1 1 0 0 1 1 2 2 3 3\nc s f32 1,1,3 = 0.9 0.8 0.7\nc m i64 1 = 5\n"
     "c t f32 1 = 0.5\nNonMaxSuppression b,s,m,t -> y\n", "int64[2,3]"},
    {"opset 13\nc b f32 1,3,4 = 0 0 1 1 0 0 1 1 2 2 3 3\nc s f32 1,1,3 = 0.9 0.8 0.7\nin m i64 1\n"
     "NonMaxSuppression b,s,m -> y\n", "int64[?,3]"},
    {"opset 20\nConstant -> x value_strings=[Ab_c_d,E_f]\nStringSplit x -> y,n delimiter=_\n", "string[2,3]"},
    {"opset 20\nConstant -> x value_strings=[The,Cat]\n"
     "StringNormalizer x -> y stopwords=[The,A]\n", "string[1]"},
    {"opset 13\nin x f32 2,3\nc k bool 9 = 1 1 0 1 0 0 1 1 1\nCompress x,k -> y\n", "float32[3]"},
};

TEST(shapes_depend_on_constants)
{
    for (size_t i = 0; i < sizeof by_value / sizeof by_value[0]; i++) {
        char text[600];
        build b;
        model_bytes bytes;
        memset(&b, 0, sizeof b);
        sbit_ctx *ctx = NULL;
        CHECK_OK(sbit_ctx_create(NULL, &ctx, &b.error), b.error);
        snprintf(text, sizeof text, "%sout y ?\n", by_value[i].model);
        b.graph = model_graph(ctx, text, &bytes, &b.error);
        if (b.graph != NULL && CHECK_OK(sbit_infer(b.graph, &b.error), b.error)) {
            const sbit_value_id y = sbit_graph_output(b.graph, 0);
            CHECK_TYPE(&b, y, by_value[i].type);
        }
        sbit_graph_destroy(b.graph);
        sbit_ctx_destroy(ctx);
        free(bytes.data);
    }
}

/* One input more than the operator has. */
TEST(surplus_inputs_of_integer_products_are_errors)
{
    static const char *const models[] = {
        "in x u8 2,3\nin w u8 3,4\nc z u8  = 0\nMatMulInteger x,w,z,z,z -> y broken\nout y ?\n",
        "in x u8 1,1,3,3\nin w u8 1,1,2,2\nc z u8  = 0\nConvInteger x,w,z,z,z -> y broken\nout y ?\n",
        "in x u8 2,3\nin w u8 3,4\nc s f32  = 1.0\nc z u8  = 0\nQLinearMatMul x,s,z,w,s,z,s,z,z -> y broken\nout y ?\n",
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        build b;
        model_bytes bytes;
        memset(&b, 0, sizeof b);
        CHECK_OK(sbit_ctx_create(NULL, &b.ctx, &b.error), b.error);
        b.graph = model_graph(b.ctx, models[i], &bytes, &b.error);
        CHECK(b.graph != NULL && sbit_infer(b.graph, &b.error) == SBIT_ERR_INVALID_MODEL);
        CHECK_MSG(strstr(b.error.message, "'broken': it has") != NULL, "%s", b.error.message);
        sbit_graph_destroy(b.graph);
        sbit_ctx_destroy(b.ctx);
        free(bytes.data);
    }
}
