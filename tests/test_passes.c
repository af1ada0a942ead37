/* split */
/* test_passes.c: the simplifier's passes and lifting the opset.
 *
 * Each case is a small graph; the text says which operators must be left, and the graph as it was
 * and as it became run on the same random inputs. Where numbers matter they are worked by hand.
 * interop/check_simplify.py compares whole models with onnxruntime.
 */
#include "../src/exec/exec_private.h"
#include "../src/grad/grad_private.h"
#include "test.h"
#include "build_graph.h"

#define VALUES(...) ((const float[]){__VA_ARGS__})
#define INTS(...) ((const int64_t[]){__VA_ARGS__})
#define IDS(...) ((const sbit_value_id[]){__VA_ARGS__})
static const sbit_value_id NONE = {0};

/* ---- counting operators: "Conv 2 Relu 1", in alphabetical order, bodies included */

static void count_ops(const sbit_graph *graph, char names[][48], int *counts, int *count)
{
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        const sbit_node *node = sbit_graph_node(graph, id);
        int at = 0;
        while (at < *count && strcmp(names[at], node->op_type) < 0) {
            at++;
        }
        if (at == *count || strcmp(names[at], node->op_type) != 0) {
            memmove(names[at + 1], names[at], (size_t)(*count - at) * sizeof names[0]);
            memmove(counts + at + 1, counts + at, (size_t)(*count - at) * sizeof counts[0]);
            snprintf(names[at], sizeof names[at], "%s", node->op_type);
            counts[at] = 0;
            ++*count;
        }
        counts[at]++;
        for (size_t a = 0; a < node->attr_count; a++) {
            const sbit_graph *body = NULL;
            for (size_t i = 0; (body = sbit__graph_attr_body(&node->attrs[a], i)) != NULL; i++) {
                count_ops(body, names, counts, count);
            }
        }
    }
}

static const char *ops_of(const sbit_graph *graph, char *text, size_t size)
{
    static char names[256][48];
    static int counts[256];
    int count = 0;
    size_t used = 0;
    text[0] = '\0';
    count_ops(graph, names, counts, &count);
    for (int i = 0; i < count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s %d", i > 0 ? " " : "", names[i],
                                 counts[i]);
    }
    return text;
}

/* ---- running: unknown dims of inputs become `size` (batches: at most 2), floats lie in -1..1,
 * integers are 1 */

enum {
    MAX_OUTPUTS = 16
};
typedef struct results {
    sbit_tensor tensors[MAX_OUTPUTS];
    size_t count;
} results;

static void feed(sbit_ctx *ctx, const sbit_value_info *input, int64_t size, sbit_rng *rng,
                 sbit_tensor *out)
{
    sbit_error error;
    int64_t dims[SBIT_MAX_RANK];
    for (int32_t i = 0; i < input->type.rank; i++) {
        const bool batch = i == 0 || input->type.rank == 3;
        dims[i] = input->type.dims[i].symbol == 0 ? input->type.dims[i].value
                  : batch && size > 2             ? 2
                                                  : size;
    }
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_tensor_alloc(ctx, input->type.dtype, input->type.rank, dims, out, &error), error);
    for (int64_t i = 0; i < sbit_tensor_count(out); i++) {
        const bool whole = input->type.dtype != SBIT_F32 && input->type.dtype != SBIT_F16;
        sbit__tensor_set_f64(out, i, whole ? 1.0 : (double)(sbit_rng_uniform(rng) * 2.0f - 1.0f));
    }
}

static bool run_graph(sbit_graph *graph, int64_t size, results *out)
{
    sbit_ctx *ctx = sbit_graph_ctx(graph);
    sbit_rng rng = sbit_rng_seed(7);
    sbit_session *session = NULL;
    sbit_tensor inputs[8];
    sbit_error error;
    bool ok = true;
    memset(&error, 0, sizeof error);
    memset(out, 0, sizeof *out);
    memset(inputs, 0, sizeof inputs);
    ok = CHECK_OK(sbit_session_create(graph, NULL, &session, &error), error);
    for (size_t i = 0; ok && i < sbit_session_input_count(session) && i < 8; i++) {
        const sbit_value_info *input = sbit_session_input_info(session, i);
        feed(ctx, input, size, &rng, &inputs[i]);
        ok = CHECK_OK(sbit_session_set_input(session, input->name, &inputs[i], &error), error);
    }
    ok = ok && CHECK_OK(sbit_session_run(session, &error), error);
    for (size_t i = 0; ok && i < sbit_session_output_count(session) && i < MAX_OUTPUTS; i++) {
        const sbit_tensor *result = &sbit_session_output(session, i)->tensor;
        ok = CHECK_OK(sbit__tensor_copy(ctx, result, &out->tensors[i], &error), error);
        out->count = i + 1;
    }
    sbit_session_destroy(session);
    for (size_t i = 0; i < 8; i++) {
        sbit_tensor_free(ctx, &inputs[i]);
    }
    return ok;
}

static void free_results(sbit_ctx *ctx, results *r)
{
    for (size_t i = 0; i < r->count; i++) {
        sbit_tensor_free(ctx, &r->tensors[i]);
    }
}

/* max |a - b| / max |a|, or a huge number where shape or type differ. */
static double difference(const results *a, const results *b)
{
    double worst = 0.0;
    if (a->count != b->count) {
        return 1e30;
    }
    for (size_t i = 0; i < a->count; i++) {
        double most = 1e-6, off = 0.0;
        if (!sbit_tensor_same_shape(&a->tensors[i], &b->tensors[i]) ||
            a->tensors[i].dtype != b->tensors[i].dtype) {
            return 1e30;
        }
        for (int64_t k = 0; k < sbit_tensor_count(&a->tensors[i]); k++) {
            const double x = sbit__tensor_f64_at(&a->tensors[i], k);
            const double y = sbit__tensor_f64_at(&b->tensors[i], k);
            const double d = x == y ? 0.0 : fabs(x - y);
            most = fabs(x) > most ? fabs(x) : most;
            off = d > off || isnan(d) ? d : off;
        }
        worst = off / most > worst || isnan(off) ? off / most : worst;
    }
    return worst;
}

/* ---- a case */

static void check_names(const sbit_graph *a, const sbit_graph *b)
{
    CHECK_EQ_I64(sbit_graph_output_count(a), sbit_graph_output_count(b));
    for (size_t i = 0; i < sbit_graph_output_count(a); i++) {
        CHECK_STR(sbit_graph_value(a, sbit_graph_output(a, i))->name,
                  sbit_graph_value(b, sbit_graph_output(b, i))->name);
    }
    CHECK_EQ_I64(sbit_graph_input_count(a), sbit_graph_input_count(b));
}

#define becomes(b, ops) becomes_at(__LINE__, b, ops, NULL, 1e-5)
/* Simplifies the graph, which must leave these operators and compute the same. */
static void becomes_at(int line, build *b, const char *ops, const sbit_simplify_desc *desc,
                       double tolerance)
{
    char text[1024];
    sbit_graph *before = NULL;
    results x, y;
    if (!CHECK_MSG(!b->failed, "line %d: not built", line)) {
        build_end(b);
        return;
    }
    CHECK_OK(sbit_graph_clone(b->graph, &before, &b->error), b->error);
    if (CHECK_OK(sbit_simplify(b->graph, desc, NULL, &b->error), b->error)) {
        CHECK_MSG(strcmp(ops_of(b->graph, text, sizeof text), ops) == 0,
                  "line %d: it became \"%s\", not \"%s\"", line, text, ops);
        CHECK_OK(sbit_graph_validate(b->graph, &b->error), b->error);
        check_names(before, b->graph);
        for (int64_t size = 1; size <= 3; size += 2) {
            const bool ran = run_graph(before, size, &x);
            if (CHECK_MSG(run_graph(b->graph, size, &y) && ran, "line %d: cannot run", line)) {
                const double off = difference(&x, &y);
                CHECK_MSG(off <= tolerance, "line %d: off by %g", line, off);
            }
            free_results(b->ctx, &x);
            free_results(b->ctx, &y);
        }
    }
    sbit_graph_destroy(before);
    build_end(b);
}

static sbit_attr text_attr(const char *name, const char *value)
{
    return sbit__attr_string(name, value);
}

static sbit_value_id scalar(build *b, float value)
{
    return build_constant(b, "scalar", SBIT_F32, "", &value);
}

static sbit_value_id ints(build *b, const char *name, const char *dims, const int64_t *values)
{
    return build_constant(b, name, SBIT_I64, dims, values);
}

/* ---- dead_code */

TEST(dead_nodes_go_but_random_and_unknown_ones_stay)
{
    build b;
    sbit_value_id outs[1];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id unused = build_unary(&b, "Relu", "unused", x);
    (void)build_unary(&b, "Exp", "unused2", unused);
    (void)build_weights(&b, "unused_constant", "100", 1);
    (void)build_unary(&b, "RandomNormalLike", "random", x);
    build_output(&b, build_unary(&b, "Neg", "y", x));
    build_node_outputs(&b, "com.acme", "Print", "print", &x, 1, NULL, 0, outs, 1);
    CHECK_OK(sbit_graph_set_opset(b.graph, "com.acme", 1, &b.error), b.error);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    char text[256];
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Neg 1 Print 1 RandomNormalLike 1");
    CHECK(sbit_graph_find_value(b.graph, "unused_constant").idx == 0);
    build_end(&b);
}

TEST(weights_that_are_inputs_become_constants_if_asked)
{
    build b;
    sbit_simplify_desc desc;
    memset(&desc, 0, sizeof desc);
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3");
    const sbit_value_id w = build_weights(&b, "w", "3,2", 1);
    const sbit_value_id t = build_weights(&b, "threshold", "2", 2);
    CHECK_OK(sbit_graph_set_input(b.graph, w, true, &b.error), b.error);
    CHECK_OK(sbit_graph_set_input(b.graph, t, true, &b.error), b.error);
    const sbit_value_id y = build_binary(&b, "MatMul", "mm", x, w);
    build_output(&b, build_binary(&b, "Greater", "y", y, build_unary(&b, "Neg", "neg", t)));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_EQ_I64(sbit_graph_input_count(b.graph), 3);
    desc.fix_defaults = true;
    CHECK_OK(sbit_simplify(b.graph, &desc, NULL, &b.error), b.error);
    char text[256];
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Greater 1 MatMul 1 Neg 1");
    CHECK_EQ_I64(sbit_graph_input_count(b.graph), 2);
    CHECK(!sbit_graph_value(b.graph, w)->is_input);
    CHECK(sbit_graph_value(b.graph, t)->is_input);
    build_end(&b);
}

/* ---- tied weights */

/* A weight that is used as it is, and once more behind an operator that only moves or converts it.
 */
TEST(tied_weights_are_stored_once)
{
    static const char *const second[3] = {"Transpose", "Reshape", "Cast"};
    for (int k = 0; k < 4; k++) {
        build b;
        sbit_graph_cost cost;
        sbit_attr to = build_int("to", 10);
        build_begin(&b, 17);
        const sbit_value_id ids = build_input(&b, "ids", SBIT_I64, "N");
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,64");
        const sbit_value_id w = build_weights(&b, "w", "64,64", 1);
        const int64_t dims[2] = {-1, 64};
        sbit_value_id in[2], tied;
        in[0] = w;
        in[1] = build_constant(&b, "dims", SBIT_I64, "2", dims);
        build_output(&b, build_binary(&b, "Gather", "rows", w, ids));
        if (k == 2) {
            tied = build_node(&b, "Cast", "tied", &w, 1, &to, 1);
            build_output(&b, build_unary(&b, "Relu", "y", tied));
        } else if (k < 3) {
            tied = build_node(&b, second[k], "tied", in, k == 1 ? 2 : 1, NULL, 0);
            build_output(&b, build_binary(&b, "MatMul", "y", x, tied));
        } else { /* small: folded as before */
            const sbit_value_id s = build_weights(&b, "s", "4,4", 2);
            build_output(&b, build_binary(&b, "Gather", "srows", s, ids));
            tied = build_unary(&b, "Transpose", "tied", s);
            build_output(&b, build_binary(&b, "MatMul", "y", tied, s));
        }
        CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
        CHECK_OK(sbit_graph_cost_of(b.graph, &cost, &b.error), b.error);
        CHECK_MSG(cost.weight_bytes < 64 * 64 * 4 + 300, "%s: %lu bytes of weights",
                  k < 3 ? second[k] : "small", (unsigned long)cost.weight_bytes);
        build_end(&b);
    }
}

/* ---- fold_constants */

TEST(constants_are_folded)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "4");
    const sbit_value_id c = build_constant(&b, "c", SBIT_F32, "4", VALUES(1, 2, 3, 4));
    const sbit_value_id d = build_constant(&b, "d", SBIT_F32, "4", VALUES(10, 20, 30, 40));
    const sbit_value_id sum = build_unary(&b, "Neg", "neg", build_binary(&b, "Add", "sum", c, d));
    build_output(&b, build_binary(&b, "Mul", "y", x, sum));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    char text[256];
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Mul 1");
    const sbit_node *mul = sbit_graph_node(b.graph, sbit_graph_first(b.graph));
    const sbit_value_info *folded = sbit_graph_value(b.graph, mul->inputs[1]);
    if (CHECK(folded->is_constant) && CHECK_EQ_I64(sbit_tensor_count(&folded->constant), 4)) {
        CHECK_MEM(folded->constant.data, VALUES(-11, -22, -33, -44), 16);
    }
    build_end(&b);
}

TEST(a_constant_that_would_grow_is_not_folded)
{
    build b;
    sbit_simplify_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.max_fold_bytes = 256;
    for (int64_t times = 4; times <= 100; times += 96) { /* 16 floats: 256 and 6400 bytes */
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,1");
        const sbit_value_id c = build_weights(&b, "c", "1,16", 1);
        const sbit_value_id repeats = ints(&b, "repeats", "2", INTS(1, times));
        build_output(&b,
                     build_binary(&b, "Add", "y", x, build_binary(&b, "Tile", "t", c, repeats)));
        becomes_at(__LINE__, &b, times == 4 ? "Add 1" : "Add 1 Tile 1", &desc, 0.0);
    }
    /* 400 bytes in the place of 400 bytes; not if both stay */
    for (int shared = 0; shared < 2; shared++) {
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,10");
        const sbit_value_id c = build_weights(&b, "c", "10,10", 1);
        sbit_value_id y = build_binary(&b, "MatMul", "m", x, build_unary(&b, "Transpose", "t", c));
        if (shared) {
            y = build_binary(&b, "MatMul", "n", y, c);
        }
        build_output(&b, y);
        becomes_at(__LINE__, &b, shared ? "MatMul 2 Transpose 1" : "MatMul 1", &desc, 0.0);
    }
}

TEST(random_numbers_and_quantized_weights_are_not_folded)
{
    build b;
    char text[256];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,4");
    const sbit_value_id w = build_weights(&b, "w", "4,3", 1);
    const sbit_value_id scale = scalar(&b, 0.01f);
    const int32_t zero = 0;
    const sbit_attr to = build_int("to", SBIT_I8);
    const sbit_value_id zero_32 = build_constant(&b, "zp", SBIT_I32, "", &zero);
    const sbit_value_id zero_8 = build_node(&b, "Cast", "zp8", &zero_32, 1, &to, 1);
    const sbit_value_id q =
        build_node(&b, "QuantizeLinear", "q", IDS(w, scale, zero_8), 3, NULL, 0);
    const sbit_value_id dq =
        build_node(&b, "DequantizeLinear", "dq", IDS(q, scale, zero_8), 3, NULL, 0);
    const sbit_value_id noise = build_unary(&b, "RandomUniformLike", "noise", w);
    build_output(&b, build_binary(&b, "MatMul", "y", x, build_binary(&b, "Add", "a", dq, noise)));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text),
              "Add 1 DequantizeLinear 1 MatMul 1 QuantizeLinear 1 RandomUniformLike 1");
    build_end(&b);
}

TEST(a_node_that_cannot_be_computed_stays_and_the_others_are_folded)
{
    build b;
    char text[256];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2");
    const sbit_value_id c = build_weights(&b, "c", "2", 1);
    const sbit_value_id index = ints(&b, "index", "1", INTS(5)); /* outside */
    const sbit_value_id bad = build_binary(&b, "Gather", "bad", c, index);
    build_output(&b, build_binary(&b, "Add", "y", x, build_unary(&b, "Exp", "good", c)));
    build_output(&b, build_binary(&b, "Mul", "z", x, bad));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Add 1 Gather 1 Mul 1");
    build_end(&b);
}

/* ---- shape_folding */

static sbit_value_id shape_dim(build *b, sbit_value_id x, int64_t axis)
{
    const sbit_value_id shape = build_unary(b, "Shape", "shape", x);
    const sbit_value_id index = ints(b, "index", "", &axis);
    const sbit_value_id dim = build_binary(b, "Gather", "dim", shape, index);
    return build_binary(b, "Unsqueeze", "dim1", dim, ints(b, "axes", "1", INTS(0)));
}

TEST(a_flatten_by_shape_arithmetic_becomes_0_minus_1)
{
    build b;
    build_begin(&b, 17);
    const sbit_attr axis = build_int("axis", 0);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,2,2");
    const sbit_value_id n = shape_dim(&b, x, 0);
    const sbit_value_id to =
        build_node(&b, "Concat", "to", IDS(n, ints(&b, "c", "1", INTS(12))), 2, &axis, 1);
    const sbit_value_id r = build_binary(&b, "Reshape", "r", build_unary(&b, "Exp", "e", x), to);
    build_output(&b, build_unary(&b, "Neg", "y", r));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    const sbit_node *reshape =
        sbit_graph_node(b.graph, sbit_graph_next(b.graph, sbit_graph_first(b.graph)));
    const sbit_tensor *target = sbit__const_in(b.graph, reshape, 1);
    if (CHECK_STR(reshape->op_type, "Reshape") && CHECK(target != NULL)) {
        CHECK_MEM(target->data, INTS(0, -1), 16);
    }
    becomes(&b, "Exp 1 Neg 1 Reshape 1");
}

TEST(shape_chains_with_one_unknown_fold_and_with_two_do_not)
{
    build b;
    const sbit_attr axis = build_int("axis", 0), allow = build_int("allowzero", 1);
    /* [N, 2, 6, 4] -> [6N, 2, 4]: 6 * N is one unknown */
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2,6,4");
    sbit_value_id six = ints(&b, "six", "1", INTS(6));
    sbit_value_id n6 = build_binary(&b, "Mul", "n6", shape_dim(&b, x, 0), six);
    sbit_value_id to = build_node(&b, "Concat", "to",
                                  IDS(n6, shape_dim(&b, x, 1), shape_dim(&b, x, 3)), 3, &axis, 1);
    build_output(&b, build_node(&b, "Reshape", "y", IDS(x, to), 2, &allow, 1));
    becomes(&b, "Reshape 1");
    /* [N, 2, M] -> [M, N, 2]: neither is where it was */
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,2,M");
    to =
        build_node(&b, "Concat", "to",
                   IDS(shape_dim(&b, x, 2), shape_dim(&b, x, 0), shape_dim(&b, x, 1)), 3, &axis, 1);
    build_output(&b, build_node(&b, "Reshape", "y", IDS(x, to), 2, NULL, 0));
    becomes(&b, "Concat 1 Gather 2 Reshape 1 Shape 1 Unsqueeze 2");
    /* [N, 2, M] -> [N, M, 2]: N stays, M is what is left */
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,2,M");
    to =
        build_node(&b, "Concat", "to",
                   IDS(shape_dim(&b, x, 0), shape_dim(&b, x, 2), shape_dim(&b, x, 1)), 3, &axis, 1);
    build_output(&b, build_node(&b, "Reshape", "y", IDS(x, to), 2, &allow, 1));
    becomes(&b, "Reshape 1");
}

TEST(slices_and_expands_to_the_own_size_fold)
{
    build b;
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,5");
    const sbit_value_id zero = ints(&b, "zero", "1", INTS(0));
    const sbit_value_id s =
        build_node(&b, "Slice", "s", IDS(x, zero, shape_dim(&b, x, 0), zero), 4, NULL, 0);
    const sbit_value_id shape = build_unary(&b, "Shape", "shape", x);
    const sbit_value_id e = build_binary(&b, "Expand", "e", s, shape);
    build_output(&b, build_unary(&b, "Neg", "y", e));
    becomes(&b, "Neg 1");
    build_begin(&b, 17); /* another tensor's size: N and M may differ */
    x = build_input(&b, "x", SBIT_F32, "N,5");
    const sbit_value_id m = build_input(&b, "m", SBIT_F32, "M,5");
    build_output(&b, build_binary(&b, "Expand", "y", x, build_unary(&b, "Shape", "shape", m)));
    becomes(&b, "Expand 1 Shape 1");
}

TEST(declared_shapes_of_inner_values_do_not_decide)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2");
    const sbit_value_id m = build_input(&b, "m", SBIT_I64, "2");
    const sbit_value_id r = build_binary(&b, "Reshape", "r", x, m);
    const sbit_type lie = build_type(&b, SBIT_F32, "N,2"); /* nobody knows what m says */
    sbit_graph_set_type(b.graph, r, &lie);
    const sbit_value_id y = build_binary(&b, "Reshape", "y", r, ints(&b, "t", "2", INTS(-1, 2)));
    sbit_graph_set_type(b.graph, y, &lie);
    build_output(&b, y);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    char text[256];
    CHECK_CONTAINS(ops_of(b.graph, text, sizeof text),
                   "Reshape"); /* one may have joined the other */
    build_end(&b);
}

/* ---- identity */

TEST(nodes_that_change_nothing_go)
{
    build b;
    const sbit_attr to = build_int("to", SBIT_F32), axis = build_int("axis", 1);
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,4,4");
    sbit_value_id y = build_unary(&b, "Exp", "e", x);
    y = build_unary(&b, "Identity", "i", y);
    y = build_unary(&b, "Dropout", "d", y);
    y = build_node(&b, "Cast", "c", &y, 1, &to, 1);
    y = build_binary(&b, "CastLike", "cl", y, x);
    y = build_binary(&b, "Pad", "p", y, ints(&b, "pads", "8", INTS(0, 0, 0, 0, 0, 0, 0, 0)));
    y = build_node(&b, "Concat", "cc", &y, 1, &axis, 1);
    y = build_unary(&b, "Sum", "sum", y);
    y = build_unary(&b, "Max", "max", y);
    y = build_binary(&b, "Add", "a", y, scalar(&b, 0.0f));
    y = build_binary(&b, "Mul", "m", scalar(&b, 1.0f), y);
    y = build_binary(&b, "Div", "dv", y, scalar(&b, 1.0f));
    y = build_binary(&b, "Sub", "sb", y,
                     build_constant(&b, "z", SBIT_F32, "1,3,1,1", VALUES(0, 0, 0)));
    y = build_node(&b, "Resize", "rs",
                   IDS(y, NONE, build_constant(&b, "sc", SBIT_F32, "4", VALUES(1, 1, 1, 1))), 3,
                   NULL, 0);
    y = build_node(&b, "Slice", "sl",
                   IDS(y, ints(&b, "s", "1", INTS(0)), ints(&b, "en", "1", INTS(INT64_MAX)),
                       ints(&b, "ax", "1", INTS(2))),
                   4, NULL, 0);
    y = build_binary(&b, "Reshape", "r", y, ints(&b, "t", "4", INTS(0, 3, -1, 4)));
    y = build_binary(&b, "Tile", "tile", y, ints(&b, "rep", "4", INTS(1, 1, 1, 1)));
    build_output(&b, build_unary(&b, "Neg", "y", y));
    becomes(&b, "Exp 1 Neg 1");
}

TEST(nodes_that_change_something_stay)
{
    build b;
    const sbit_attr half = build_int("to", SBIT_F16), full = build_int("to", SBIT_F32);
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,1,4");
    /* larger than x, although all its elements are neutral */
    sbit_value_id y = build_binary(&b, "Add", "a", x,
                                   build_constant(&b, "z", SBIT_F32, "1,3,1", VALUES(0, 0, 0)));
    y = build_binary(&b, "Sub", "s", scalar(&b, 0.0f), y); /* 0 - y */
    y = build_node(&b, "Cast", "h", &y, 1, &half, 1);      /* rounds */
    y = build_node(&b, "Cast", "f", &y, 1, &full, 1);
    y = build_node(&b, "Slice", "r", /* reverses */
                   IDS(y, ints(&b, "st", "1", INTS(-1)), ints(&b, "en", "1", INTS(INT64_MIN)),
                       ints(&b, "ax", "1", INTS(2)), ints(&b, "sp", "1", INTS(-1))),
                   5, NULL, 0);
    build_output(&b, y);
    becomes(&b, "Add 1 Cast 2 Slice 1 Sub 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,4");
    build_output(&b, build_unary(&b, "Identity", "y", x)); /* has the output's name */
    becomes(&b, "Identity 1");
}

TEST(dropout_in_training_mode_stays)
{
    build b;
    char text[64];
    const bool yes = true;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id mode = build_constant(&b, "mode", SBIT_BOOL, "", &yes);
    build_output(&b, build_node(&b, "Dropout", "y", IDS(x, NONE, mode), 3, NULL, 0));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Dropout 1");
    build_end(&b);
}

TEST(pairs_that_are_one_node_are_joined)
{
    build b;
    const sbit_attr p = build_ints("perm", INTS(2, 0, 1), 3),
                    q = build_ints("perm", INTS(0, 2, 1), 3);
    const sbit_attr back = build_ints("perm", INTS(1, 2, 0), 3);
    const sbit_attr f64 = build_int("to", SBIT_F64), f32 = build_int("to", SBIT_F32);
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,4");
    sbit_value_id y = build_node(&b, "Transpose", "p", &x, 1, &p, 1);
    build_output(&b, build_node(&b, "Transpose", "q", &y, 1, &q, 1));
    becomes(&b, "Transpose 1");
    build_begin(&b, 17); /* a permutation and its inverse */
    x = build_input(&b, "x", SBIT_F32, "N,3,4");
    y = build_node(&b, "Transpose", "p", &x, 1, &p, 1);
    y = build_node(&b, "Transpose", "b", &y, 1, &back, 1);
    build_output(&b, build_unary(&b, "Neg", "y", y));
    becomes(&b, "Neg 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,3,4");
    y = build_binary(&b, "Reshape", "a", x, ints(&b, "t", "2", INTS(0, 12)));
    y = build_binary(&b, "Unsqueeze", "u", y, ints(&b, "ax", "1", INTS(0)));
    build_output(&b, build_binary(&b, "Squeeze", "y", y, ints(&b, "ax", "1", INTS(0))));
    becomes(&b, "Reshape 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,3");
    y = build_node(&b, "Cast", "up", &x, 1, &f64, 1);
    y = build_node(&b, "Cast", "down", &y, 1, &f32, 1);
    build_output(&b, build_unary(&b, "Neg", "y", y));
    becomes(&b, "Neg 1");
    build_begin(&b, 17); /* only axes of size 1 move: nothing does */
    x = build_input(&b, "x", SBIT_F32, "1,1,N");
    const sbit_attr ones = build_ints("perm", INTS(1, 0, 2), 3);
    y = build_node(&b, "Transpose", "p", &x, 1, &ones, 1);
    build_output(&b, build_unary(&b, "Neg", "y", y));
    becomes(&b, "Neg 1");
}

/* ---- sequences */

TEST(split_to_sequence_becomes_split)
{
    build b;
    sbit_value_id seq;
    const sbit_attr axis = build_int("axis", 1), drop = build_int("keepdims", 0);
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,5");
    const sbit_value_id two = ints(&b, "two", "", INTS(2)); /* pieces of 2, 2, 1 */
    seq = build_node(&b, "SplitToSequence", "seq", IDS(x, two), 2, &axis, 1);
    build_output(
        &b, build_unary(&b, "Neg", "y",
                        build_binary(&b, "SequenceAt", "a", seq, ints(&b, "i", "", INTS(-1)))));
    build_output(&b, build_binary(&b, "SequenceAt", "z", seq, ints(&b, "j", "", INTS(0))));
    const sbit_attr pair[2] = {axis, drop};
    seq = build_node(&b, "SplitToSequence", "each", &x, 1, pair, 2);
    sbit_value_id first = build_binary(&b, "SequenceAt", "f", seq, ints(&b, "k", "", INTS(1)));
    build_output(&b, build_unary(&b, "Exp", "w", first));
    becomes(&b, "Exp 1 Neg 1 Slice 1 Split 1 Squeeze 1");
}

TEST(sequences_that_are_put_together_become_concat)
{
    build b;
    const sbit_attr axis = build_int("axis", 1);
    const sbit_attr fresh[2] = {build_int("axis", 0), build_int("new_axis", 1)};
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2"),
                        y = build_input(&b, "y", SBIT_F32, "N,2");
    sbit_value_id seq = build_binary(&b, "SequenceConstruct", "seq", x, y);
    build_output(&b, build_node(&b, "ConcatFromSequence", "a", &seq, 1, &axis, 1));
    sbit_value_id more = build_node(&b, "SequenceEmpty", "none", NULL, 0, NULL, 0);
    more = build_binary(&b, "SequenceInsert", "one", more, x);
    more = build_node(&b, "SequenceInsert", "two", IDS(more, y, ints(&b, "at", "", INTS(0))), 3,
                      NULL, 0);
    build_output(&b, build_node(&b, "ConcatFromSequence", "b", &more, 1, fresh, 2)); /* y, x */
    const sbit_attr to = build_int("to", SBIT_F32);
    const sbit_value_id length = build_unary(&b, "SequenceLength", "length", more);
    build_output(
        &b, build_binary(&b, "Mul", "c", x, build_node(&b, "Cast", "cast", &length, 1, &to, 1)));
    becomes(&b, "Concat 2 Mul 1 Unsqueeze 2");
}

TEST(a_sequence_that_is_not_known_stays)
{
    build b;
    const sbit_attr axis = build_int("axis", 0);
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,2"); /* N pieces */
    sbit_value_id seq = build_node(&b, "SplitToSequence", "seq", &x, 1, &axis, 1);
    build_output(&b, build_binary(&b, "SequenceAt", "y", seq, ints(&b, "i", "", INTS(0))));
    becomes(&b, "SequenceAt 1 SplitToSequence 1");
}

/* ---- merge_duplicates */

TEST(equal_nodes_are_merged_but_weights_and_random_numbers_are_not)
{
    build b;
    char text[256];
    const sbit_attr first[2] = {build_int("axis", 1), build_float("epsilon", 1e-5f)};
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    sbit_value_id y = build_binary(&b, "Add", "a", build_unary(&b, "Exp", "e1", x),
                                   build_unary(&b, "Exp", "e2", x));
    y = build_binary(&b, "Add", "b", build_binary(&b, "Mul", "m1", y, scalar(&b, 2.0f)),
                     build_binary(&b, "Mul", "m2", y, scalar(&b, 2.0f)));
    y = build_binary(&b, "Add", "c", y, build_node(&b, "Softmax", "s1", &x, 1, first, 1));
    y = build_binary(&b, "Add", "d", y, build_node(&b, "LogSoftmax", "s2", &x, 1, first, 1));
    build_output(&b, y);
    becomes(&b, "Add 4 Exp 1 LogSoftmax 1 Mul 1 Softmax 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "2,4");
    const sbit_value_id w1 = build_weights(&b, "w1", "4", 5), w2 = build_weights(&b, "w2", "4", 5);
    y = build_binary(&b, "Add", "a", build_binary(&b, "Mul", "m", x, w1), w2);
    y = build_binary(&b, "Add", "r", y, build_unary(&b, "RandomNormalLike", "r1", x));
    build_output(&b, build_binary(&b, "Add", "s", y, build_unary(&b, "RandomNormalLike", "r2", x)));
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Add 3 Mul 1 RandomNormalLike 2");
    CHECK(sbit_graph_value_alive(b.graph, w1) && sbit_graph_value_alive(b.graph, w2));
    build_end(&b);
}

/* ONNX Runtime refuses int8 models where two scales share a zero point. */
TEST(zero_points_stay_with_their_scales)
{
    static const float scales[] = {0.1f, 0.2f};
    static const int8_t zero = 3;
    build b;
    sbit_value_id zeros[2];
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    for (int i = 0; i < 2; i++) {
        sbit_value_id in[3];
        in[1] = build_constant(&b, "s", SBIT_F32, "", &scales[i]);
        zeros[i] = in[2] = build_constant(&b, "z", SBIT_I8, "", &zero);
        in[0] = x;
        in[0] = build_node(&b, "QuantizeLinear", "q", in, 3, NULL, 0);
        x = build_unary(&b, "Exp", "e", build_node(&b, "DequantizeLinear", "d", in, 3, NULL, 0));
    }
    build_output(&b, x);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK(sbit_graph_value_alive(b.graph, zeros[0]) && sbit_graph_value_alive(b.graph, zeros[1]));
    build_end(&b);
}

TEST(two_outputs_keep_their_names_when_they_are_equal)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    build_output(&b, build_unary(&b, "Exp", "y", x));
    build_output(&b, build_unary(&b, "Exp", "z", x));
    becomes(&b, "Exp 2");
}

/* ---- fold_batch_norm (A3.11) */

static sbit_value_id batch_norm(build *b, sbit_value_id x, const char *channels)
{
    const sbit_tensor shape = build_tensor(SBIT_F32, channels, NULL);
    sbit_rng rng = sbit_rng_seed(99);
    float var[64], gamma[64];
    sbit_value_id inputs[5];
    for (int64_t i = 0; i < shape.dims[0]; i++) {
        var[i] = 0.1f + sbit_rng_uniform(&rng);
        gamma[i] = sbit_rng_uniform(&rng) * 2.0f - 1.0f; /* some are negative */
    }
    inputs[0] = x;
    inputs[1] = build_constant(b, "gamma", SBIT_F32, channels, gamma);
    inputs[2] = build_weights(b, "beta", channels, 12);
    inputs[3] = build_weights(b, "mean", channels, 13);
    inputs[4] = build_constant(b, "var", SBIT_F32, channels, var);
    const sbit_attr epsilon = build_float("epsilon", 1e-3f);
    return build_node(b, "BatchNormalization", "bn", inputs, 5, &epsilon, 1);
}

/* Conv or ConvTranspose of x[N,6,8,8] with a normalization behind. */
static void linear_norm(int line, const char *op_type, const char *weight, int64_t group,
                        const char *channels, bool bias, const char *ops)
{
    build b;
    const sbit_attr attrs[2] = {build_int("group", group), build_ints("pads", INTS(1, 1, 1, 1), 4)};
    sbit_value_id inputs[3];
    build_begin(&b, 17);
    inputs[0] = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    inputs[1] = build_weights(&b, "conv.weight", weight, 3);
    inputs[2] = bias ? build_weights(&b, "conv.bias", channels, 4) : NONE;
    const sbit_value_id y = build_node(&b, op_type, "conv", inputs, bias ? 3 : 2, attrs, 2);
    build_output(&b, build_unary(&b, "Relu", "y", batch_norm(&b, y, channels)));
    becomes_at(line, &b, ops, NULL, 1e-5);
}

TEST(batch_norm_folds_into_what_is_before)
{
    linear_norm(__LINE__, "Conv", "4,6,3,3", 1, "4", true, "Conv 1 Relu 1");
    linear_norm(__LINE__, "Conv", "4,6,3,3", 1, "4", false, "Conv 1 Relu 1");
    linear_norm(__LINE__, "Conv", "6,1,3,3", 6, "6", false, "Conv 1 Relu 1");
    linear_norm(__LINE__, "Conv", "4,3,3,3", 2, "4", true, "Conv 1 Relu 1");
    linear_norm(__LINE__, "ConvTranspose", "6,4,3,3", 1, "4", true, "ConvTranspose 1 Relu 1");
    linear_norm(__LINE__, "ConvTranspose", "6,1,3,3", 6, "6", false, "ConvTranspose 1 Relu 1");
    linear_norm(__LINE__, "ConvTranspose", "6,2,3,3", 3, "6", true, "ConvTranspose 1 Relu 1");
}

TEST(batch_norm_folds_into_gemm_and_mat_mul)
{
    build b;
    const sbit_attr attrs[3] = {build_int("transB", 1), build_float("alpha", 0.5f),
                                build_float("beta", 2.0f)};
    for (int trans = 0; trans < 2; trans++) {
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,6");
        const sbit_value_id w = build_weights(&b, "w", trans ? "4,6" : "6,4", 1);
        const sbit_value_id c = build_weights(&b, "c", "4", 2);
        const sbit_value_id y =
            build_node(&b, "Gemm", "g", IDS(x, w, c), 3, attrs + (trans ? 0 : 1), trans ? 3 : 2);
        build_output(&b, batch_norm(&b, y, "4"));
        becomes(&b, "Gemm 1");
    }
    for (int add = 0; add < 2; add++) {
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,6");
        sbit_value_id y = build_binary(&b, "MatMul", "m", x, build_weights(&b, "w", "6,4", 1));
        if (add) {
            y = build_binary(&b, "Add", "a", build_weights(&b, "c", "4", 2), y);
        }
        build_output(&b, batch_norm(&b, y, "4"));
        becomes(&b, "Gemm 1"); /* fuse_scalar makes MatMul and Add one */
    }
}

TEST(batch_norm_folds_into_an_unpadded_conv_behind)
{
    build b;
    for (int padded = 0; padded < 2; padded++) {
        for (int64_t group = 1; group <= 3; group += 2) {
            const sbit_attr attrs[2] = {
                build_int("group", group),
                build_ints("pads", INTS(padded, padded, padded, padded), 4)};
            build_begin(&b, 17);
            sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
            x = batch_norm(&b, build_unary(&b, "Relu", "r", x), "6");
            const sbit_value_id w = build_weights(&b, "w", group == 1 ? "4,6,3,3" : "6,2,3,3", 1);
            build_output(&b, build_node(&b, "Conv", "c", IDS(x, w), 2, attrs, 2));
            becomes(&b, padded ? "BatchNormalization 1 Conv 1 Relu 1" : "Conv 1 Relu 1");
        }
    }
}

TEST(batch_norm_stays_where_it_must)
{
    build b;
    char text[128];
    const sbit_attr train = build_int("training_mode", 1);
    build_begin(&b, 17); /* nothing linear before */
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    build_output(&b, batch_norm(&b, build_unary(&b, "Relu", "r", x), "6"));
    becomes(&b, "BatchNormalization 1 Relu 1");
    build_begin(&b, 17); /* the Conv's output is used twice */
    x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    sbit_value_id y = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "6,6,1,1", 1));
    build_output(&b, build_binary(&b, "Add", "y", batch_norm(&b, y, "6"), y));
    becomes(&b, "Add 1 BatchNormalization 1 Conv 1");
    build_begin(&b, 17); /* the Conv's output is an output */
    x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    y = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "6,6,1,1", 1));
    build_output(&b, y);
    build_output(&b, batch_norm(&b, y, "6"));
    becomes(&b, "BatchNormalization 1 Conv 1");
    build_begin(&b, 17); /* training mode, statistics used */
    x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    y = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "6,6,1,1", 1));
    sbit_value_id outs[3], inputs[5];
    inputs[0] = y;
    for (size_t i = 1; i < 5; i++) {
        inputs[i] = build_weights(&b, "p", "6", i);
    }
    build_node_outputs(&b, "", "BatchNormalization", "bn", inputs, 5, &train, 1, outs, 3);
    build_output(&b, outs[0]);
    build_output(&b, outs[1]);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "BatchNormalization 1 Conv 1");
    build_end(&b);
    sbit_simplify_desc keep;
    memset(&keep, 0, sizeof keep);
    keep.keep_batch_norm = true;
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    y = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "6,6,1,1", 1));
    build_output(&b, batch_norm(&b, y, "6"));
    becomes_at(__LINE__, &b, "BatchNormalization 1 Conv 1", &keep, 0.0);
    for (int zeros = 0; zeros < 2; zeros++) { /* a bias in front of it goes only if it is zeros */
        float bias[6] = {0.0f};
        bias[5] = zeros ? 0.0f : 0.5f;
        build_begin(&b, 17);
        sbit_value_id three[3];
        three[0] = build_input(&b, "x", SBIT_F32, "N,6,8,8");
        three[1] = build_weights(&b, "w", "6,6,1,1", 1);
        three[2] = build_constant(&b, "bias", SBIT_F32, "6", bias);
        y = build_node(&b, "Conv", "c", three, 3, NULL, 0);
        build_output(&b, batch_norm(&b, y, "6"));
        CHECK_OK(sbit_simplify(b.graph, &keep, NULL, &b.error), b.error);
        CHECK((sbit_graph_find_value(b.graph, "bias").idx == 0) == (zeros != 0));
        becomes_at(__LINE__, &b, "BatchNormalization 1 Conv 1", &keep, 0.0);
    }
}

TEST(a_folded_weight_keeps_its_name_and_a_shared_one_its_value)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,6,8,8");
    const sbit_value_id w = build_weights(&b, "layer.weight", "6,6,1,1", 1);
    const sbit_value_id shared = build_weights(&b, "shared.weight", "6,6,1,1", 2);
    sbit_value_id y = batch_norm(&b, build_binary(&b, "Conv", "c1", x, w), "6");
    y = batch_norm(&b, build_binary(&b, "Conv", "c2", y, shared), "6");
    y = build_binary(&b, "Conv", "c3", build_unary(&b, "Relu", "r", y), shared);
    build_output(&b, y);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    const sbit_node *conv = sbit_graph_node(b.graph, sbit_graph_find_node(b.graph, "c1"));
    CHECK_STR(sbit_graph_value(b.graph, conv->inputs[1])->name, "layer.weight");
    CHECK_STR(sbit_graph_value(b.graph, conv->inputs[2])->name, "layer.bias");
    conv = sbit_graph_node(b.graph, sbit_graph_find_node(b.graph, "c3"));
    CHECK_STR(sbit_graph_value(b.graph, conv->inputs[1])->name, "shared.weight");
    becomes(&b, "Conv 3 Relu 1");
}

/* ---- fuse_scalar */

TEST(factors_and_terms_fold_into_what_is_before)
{
    build b;
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,5,5");
    sbit_value_id y = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "4,3,3,3", 1));
    y = build_binary(&b, "Mul", "m", y, build_weights(&b, "s", "1,4,1,1", 2));
    y = build_binary(&b, "Add", "a", build_weights(&b, "t", "4,1,1", 3), y);
    y = build_binary(&b, "Sub", "r", scalar(&b, 0.25f), y);
    y = build_binary(&b, "Div", "d", y, scalar(&b, 3.0f));
    build_output(&b, y);
    becomes(&b, "Conv 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,2,6");
    y = build_binary(&b, "MatMul", "mm", x, build_weights(&b, "w", "6,4", 1));
    y = build_binary(&b, "Mul", "m", y, build_weights(&b, "s", "4", 2));
    y = build_binary(&b, "Add", "a", y, build_weights(&b, "t", "4", 3));
    build_output(&b, build_binary(&b, "Mul", "n", y, scalar(&b, 0.125f)));
    becomes(&b, "Add 1 MatMul 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,6");
    y = build_binary(&b, "MatMul", "mm", x, build_weights(&b, "w", "6,4", 1));
    build_output(&b, build_binary(&b, "Add", "a", build_weights(&b, "t", "1,4", 3), y));
    becomes(&b, "Gemm 1");
    build_begin(&b, 17);
    const sbit_attr group = build_int("group", 3);
    x = build_input(&b, "x", SBIT_F32, "N,6,5,5");
    y = build_node(&b, "ConvTranspose", "c", IDS(x, build_weights(&b, "w", "6,2,3,3", 1)), 2,
                   &group, 1);
    build_output(&b, build_binary(&b, "Mul", "m", y, build_weights(&b, "s", "6,1,1", 2)));
    becomes(&b, "ConvTranspose 1");
}

TEST(factors_fold_into_an_unpadded_conv_behind)
{
    build b;
    for (int padded = 0; padded < 2; padded++) {
        const sbit_attr pads = build_ints("pads", INTS(padded, padded, padded, padded), 4);
        build_begin(&b, 17);
        sbit_value_id y = build_unary(&b, "Relu", "r", build_input(&b, "x", SBIT_F32, "N,3,5,5"));
        y = build_binary(&b, "Add", "a", y, build_weights(&b, "t", "3,1,1", 3));
        y = build_binary(&b, "Mul", "m", y, build_weights(&b, "s", "1,3,1,1", 2));
        build_output(&b, build_node(&b, "Conv", "c", IDS(y, build_weights(&b, "w", "4,3,3,3", 1)),
                                    2, &pads, 1));
        becomes(&b, padded ? "Add 1 Conv 1 Relu 1" : "Conv 1 Relu 1");
    }
}

TEST(other_factors_and_terms_stay)
{
    build b;
    build_begin(&b, 17); /* along another axis, another number of channels, constant / y */
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,5,5");
    const sbit_value_id c = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "4,3,3,3", 1));
    build_output(&b, build_binary(&b, "Mul", "m", c, build_weights(&b, "s", "1,1,3,1", 2)));
    becomes(&b, "Conv 1 Mul 1");
    build_begin(&b, 17);
    const sbit_value_id x2 = build_input(&b, "x", SBIT_F32, "N,3,5,5");
    const sbit_value_id one =
        build_binary(&b, "Conv", "c", x2, build_weights(&b, "w", "1,3,3,3", 1));
    sbit_value_id y =
        build_binary(&b, "Mul", "m", one, build_weights(&b, "s", "4,1,1", 2)); /* grows */
    y = build_binary(&b, "Conv", "d", y, build_weights(&b, "v", "2,4,1,1", 5));
    build_output(&b, build_binary(&b, "Div", "q", scalar(&b, 2.0f), y));
    becomes(&b, "Conv 2 Div 1 Mul 1");
    build_begin(&b, 17); /* a weight that two nodes use */
    const sbit_value_id x3 = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id w = build_weights(&b, "w", "4,4", 1);
    y = build_binary(&b, "MatMul", "m1", x3, w);
    y = build_binary(&b, "MatMul", "m2", build_binary(&b, "Mul", "s", y, scalar(&b, 2.0f)), w);
    build_output(&b, y);
    becomes(&b, "MatMul 2 Mul 1");
}

/* ---- fuse_patterns */

TEST(clips_are_joined)
{
    build b;
    build_begin(&b, 17);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,16");
    sbit_value_id y = build_binary(&b, "Max", "lo", x, scalar(&b, 0.0f));
    build_output(&b, build_binary(&b, "Min", "hi", scalar(&b, 0.5f), y));
    becomes(&b, "Clip 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,16");
    y = build_node(&b, "Clip", "c", IDS(x, scalar(&b, -0.5f), scalar(&b, 0.5f)), 3, NULL, 0);
    y = build_unary(&b, "Relu", "r", y);
    build_output(&b, build_node(&b, "Clip", "d", IDS(y, scalar(&b, -1.0f)), 2, NULL, 0));
    becomes(&b, "Clip 1");
    build_begin(&b, 17);
    x = build_input(&b, "x", SBIT_F32, "N,16");
    y = build_node(&b, "Clip", "c", IDS(x, scalar(&b, 0.0f)), 2, NULL, 0);
    build_output(&b, y);
    becomes(&b, "Relu 1");
    build_begin(&b, 17); /* ranges that do not meet: everything becomes 0.5, by two nodes */
    x = build_input(&b, "x", SBIT_F32, "N,16");
    y = build_node(&b, "Clip", "c", IDS(x, scalar(&b, -0.5f), scalar(&b, 0.25f)), 3, NULL, 0);
    build_output(&b, build_node(&b, "Clip", "d", IDS(y, scalar(&b, 0.5f)), 2, NULL, 0));
    becomes(&b, "Clip 2");
    build_begin(&b, 9); /* attributes */
    x = build_input(&b, "x", SBIT_F32, "N,16");
    const sbit_attr six[2] = {build_float("min", -9.0f), build_float("max", 0.3f)};
    y = build_unary(&b, "Relu", "r", x);
    build_output(&b, build_node(&b, "Clip", "c", &y, 1, six, 2));
    becomes(&b, "Clip 1");
}

static sbit_value_id clip6(build *b, sbit_value_id x)
{
    const sbit_value_id plus = build_binary(b, "Add", "plus", x, scalar(b, 3.0f));
    return build_node(b, "Clip", "clip", IDS(plus, scalar(b, 0.0f), scalar(b, 6.0f)), 3, NULL, 0);
}

TEST(hard_swish_is_found)
{
    build b;
    const sbit_attr attrs[2] = {build_float("alpha", 1.0f / 6.0f), build_float("beta", 0.5f)};
    for (int form = 0; form < 5; form++) {
        build_begin(&b, form == 4 ? 13 : 14);
        const sbit_value_id in = build_input(&b, "x", SBIT_F32, "N,16");
        const sbit_value_id x = build_binary(&b, "Mul", "wide", in, scalar(&b, 5.0f));
        sbit_value_id y;
        if (form == 0) {
            y = build_binary(&b, "Div", "y", build_binary(&b, "Mul", "m", x, clip6(&b, x)),
                             scalar(&b, 6.0f));
        } else if (form == 1) {
            y = build_binary(&b, "Mul", "y",
                             build_binary(&b, "Div", "d", clip6(&b, x), scalar(&b, 6.0f)), x);
        } else if (form == 2) {
            y = build_binary(&b, "Mul", "y", build_binary(&b, "Mul", "m", x, clip6(&b, x)),
                             scalar(&b, 1.0f / 6.0f));
        } else {
            y = build_binary(&b, "Mul", "y", x,
                             build_node(&b, "HardSigmoid", "h", &x, 1, attrs, 2));
        }
        build_output(&b, y);
        becomes(&b, form == 4 ? "HardSigmoid 1 Mul 2" : "HardSwish 1 Mul 1");
    }
    build_begin(&b, 14); /* of another x, by another number: none */
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,16"),
                        z = build_input(&b, "z", SBIT_F32, "N,16");
    build_output(&b, build_binary(&b, "Div", "y", build_binary(&b, "Mul", "m", z, clip6(&b, x)),
                                  scalar(&b, 6.0f)));
    build_output(&b, build_binary(&b, "Div", "w", build_binary(&b, "Mul", "n", x, clip6(&b, x)),
                                  scalar(&b, 5.0f)));
    becomes(&b, "Add 1 Clip 1 Div 2 Mul 2");
    build_begin(&b, 11);
    const sbit_value_id h = build_input(&b, "x", SBIT_F32, "N,16");
    build_output(&b, build_binary(&b, "Div", "y", clip6(&b, h), scalar(&b, 6.0f)));
    becomes(&b, "HardSigmoid 1");
}

TEST(gelu_is_found)
{
    build b;
    for (int form = 0; form < 4; form++) {
        build_begin(&b, form == 3 ? 18 : 20);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,16");
        const sbit_value_id scaled = form == 1
                                         ? build_binary(&b, "Mul", "s", scalar(&b, 0.70710677f), x)
                                         : build_binary(&b, "Div", "s", x, scalar(&b, 1.4142135f));
        const sbit_value_id e =
            build_binary(&b, "Add", "e1", build_unary(&b, "Erf", "e", scaled), scalar(&b, 1.0f));
        const sbit_value_id half = scalar(&b, 0.5f);
        sbit_value_id y;
        if (form == 0) {
            y = build_binary(&b, "Mul", "y", x, build_binary(&b, "Mul", "h", half, e));
        } else if (form == 1) {
            y = build_binary(&b, "Mul", "y", build_binary(&b, "Mul", "h", x, e), half);
        } else {
            y = build_binary(&b, "Mul", "y", build_binary(&b, "Mul", "h", half, x), e);
        }
        build_output(&b, y);
        becomes(&b, form == 3 ? "Add 1 Div 1 Erf 1 Mul 2" : "Gelu 1");
    }
}

/* Forms of LayerNormalization: bit 0: x * x instead of x ^ 2; bit 1: x - mean computed twice;
 * bit 2: no scale, no bias; bit 3: reciprocal; bit 4: an inner value is an output. */
static sbit_value_id layer_norm(build *b, sbit_value_id x, int form, const char *width)
{
    const sbit_attr axes = build_ints("axes", INTS(-1), 1);
    const sbit_value_id mean = build_node(b, "ReduceMean", "mean", &x, 1, &axes, 1);
    const sbit_value_id d = build_binary(b, "Sub", "d", x, mean);
    const sbit_value_id again = (form & 2) != 0 ? build_binary(b, "Sub", "d2", x, mean) : d;
    const sbit_value_id square = (form & 1) != 0 ? build_binary(b, "Mul", "sq", d, d)
                                                 : build_binary(b, "Pow", "sq", d, scalar(b, 2.0f));
    const sbit_value_id var = build_node(b, "ReduceMean", "var", &square, 1, &axes, 1);
    const sbit_value_id plus = build_binary(b, "Add", "plus", var, scalar(b, 1e-5f));
    const sbit_value_id dev = build_unary(b, "Sqrt", "dev", plus);
    sbit_value_id y = (form & 8) != 0 ? build_binary(b, "Mul", "n", again,
                                                     build_unary(b, "Reciprocal", "rec", dev))
                                      : build_binary(b, "Div", "n", again, dev);
    if ((form & 4) == 0) {
        y = build_binary(b, "Mul", "scaled", y, build_weights(b, "scale", width, 1));
        y = build_binary(b, "Add", "biased", y, build_weights(b, "bias", width, 2));
    }
    if ((form & 16) != 0) {
        build_output(b, var);
    }
    return y;
}

TEST(layer_normalization_is_found)
{
    build b;
    sbit__layer_norm norm;
    for (int form = 0; form < 16; form++) {
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,8");
        build_output(&b, layer_norm(&b, x, form, "8"));
        becomes(&b, "LayerNormalization 1");
    }
    build_begin(&b, 17); /* the variance is used outside */
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,8");
    build_output(&b, layer_norm(&b, x, 16, "8"));
    becomes(&b, "Add 2 Div 1 Mul 1 Pow 1 ReduceMean 2 Sqrt 1 Sub 1");
    build_begin(&b, 13); /* too old, but the pattern is known */
    x = build_input(&b, "x", SBIT_F32, "N,3,8");
    build_output(&b, layer_norm(&b, x, 0, "8"));
    CHECK_OK(sbit_infer(b.graph, &b.error), b.error);
    const sbit_node_id div = sbit_graph_find_node(b.graph, "n");
    if (CHECK(sbit__match_layer_norm(b.graph, div, NULL, &norm))) {
        CHECK_EQ_I64(norm.node_count, 9);
        CHECK_EQ_I64(norm.axis, 2);
        CHECK_NEAR(norm.epsilon, 1e-5, 1e-9);
        CHECK_EQ_I64(norm.x.idx, x.idx);
        CHECK_STR(sbit_graph_value(b.graph, norm.output)->name, "biased");
    }
    becomes(&b, "Add 2 Div 1 Mul 1 Pow 1 ReduceMean 2 Sqrt 1 Sub 1");
}

TEST(an_initial_state_of_zeros_is_left_out)
{
    build b;
    sbit_value_id outs[2];
    const sbit_attr hidden = build_int("hidden_size", 3), axis = build_int("axis", 0);
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "5,N,4");
    const sbit_value_id to = build_node(
        &b, "Concat", "to",
        IDS(ints(&b, "one", "1", INTS(1)), shape_dim(&b, x, 1), ints(&b, "three", "1", INTS(3))), 3,
        &axis, 1);
    const sbit_value_id h = build_unary(&b, "ConstantOfShape", "h", to);
    build_node_outputs(&b, "", "GRU", "gru",
                       IDS(x, build_weights(&b, "w", "1,9,4", 1),
                           build_weights(&b, "r", "1,9,3", 2), NONE, NONE, h),
                       6, &hidden, 1, outs, 2);
    build_output(&b, outs[0]);
    becomes(&b, "GRU 1");
}

/* ---- inline_if */

/* y = If(cond) {Exp x} else {Neg x} */
static sbit_value_id if_of(build *b, sbit_value_id cond, sbit_value_id x)
{
    sbit_attr attrs[2];
    memset(attrs, 0, sizeof attrs);
    for (int i = 0; i < 2 && !b->failed; i++) {
        sbit_value_id inner = {0}, out = {0};
        const sbit_node_id none = {0};
        attrs[i].name = i == 0 ? "then_branch" : "else_branch";
        attrs[i].type = SBIT_ONNX_ATTR_GRAPH;
        CHECK_OK(sbit__graph_new_body(b->graph, &attrs[i].g, &b->error), b->error);
        CHECK_OK(sbit__graph_capture(attrs[i].g, x, &inner, &b->error), b->error);
        CHECK_OK(sbit__emit(attrs[i].g, none, i == 0 ? "Exp" : "Neg", "inner", &inner, 1, NULL, 0,
                            &out, &b->error),
                 b->error);
        CHECK_OK(sbit_graph_add_output(attrs[i].g, out, &b->error), b->error);
    }
    return build_node(b, "If", "if", &cond, 1, attrs, 2);
}

TEST(an_if_that_is_decided_is_inlined)
{
    build b;
    const bool no = false;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id cond = build_constant(&b, "cond", SBIT_BOOL, "", &no);
    build_output(&b, build_unary(&b, "Abs", "y", if_of(&b, cond, x)));
    becomes(&b, "Abs 1 Neg 1");
}

/* One that is not decided is differentiated through the branch that is taken. */
TEST(an_if_has_the_gradient_of_its_branch)
{
    build b;
    float data[3] = {0.5f, -1.0f, 200.0f}; /* exp(200) is infinite */
    sbit_value_id grad = {0};
    sbit_session *session = NULL;
    sbit_session_desc desc;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "3");
    const sbit_value_id cond = build_input(&b, "cond", SBIT_BOOL, "");
    const sbit_attr keep = build_int("keepdims", 0);
    const sbit_value_id y = if_of(&b, cond, x);
    const sbit_value_id loss = build_node(&b, "ReduceSum", "loss", &y, 1, &keep, 1);
    memset(&desc, 0, sizeof desc);
    desc.outputs = &grad;
    desc.output_count = 1;
    if (!b.failed) {
        CHECK_OK(sbit_graph_add_gradients(b.graph, loss, &x, 1, &grad, &b.error), b.error);
        CHECK(grad.idx != 0);
        CHECK_OK(sbit_session_create(b.graph, &desc, &session, &b.error), b.error);
    }
    for (int taken = 0; session != NULL && taken < 2; taken++) {
        bool yes = taken == 1;
        sbit_tensor condition = build_tensor(SBIT_BOOL, "", &yes);
        sbit_tensor tensor = build_tensor(SBIT_F32, "3", data);
        CHECK_OK(sbit_session_set_input(session, "x", &tensor, &b.error), b.error);
        CHECK_OK(sbit_session_set_input(session, "cond", &condition, &b.error), b.error);
        CHECK_OK(sbit_session_run(session, &b.error), b.error);
        const float *g = (const float *)sbit_session_output(session, 0)->tensor.data;
        for (int i = 0; i < (yes ? 2 : 3); i++) {
            CHECK_NEAR((double)g[i], yes ? exp((double)data[i]) : -1.0, 1e-6);
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* FlexAttention of x with itself, in float64: scores get a bias that masks a whole row, weights are
 * squared. With a gradient it is written with others. */
static double flex_run(bool with_gradient, const double *data, double *gradient)
{
    build b;
    sbit_attr attrs[2];
    double bias[9] = {0.3, -0.1, 0.2, 0, 0, 0, 0.5, 0.0, 0.1}, loss = -1.0;
    sbit_value_id wanted[2] = {{0}, {0}}, y = {0};
    sbit_session *session = NULL;
    sbit_session_desc desc;
    bias[3] = bias[4] = bias[5] = bias[7] = -(double)INFINITY;
    memset(attrs, 0, sizeof attrs);
    memset(&desc, 0, sizeof desc);
    build_begin(&b, 24);
    const sbit_value_id x = build_input(&b, "x", SBIT_F64, "1,2,3,2");
    const sbit_value_id more = build_constant(&b, "bias", SBIT_F64, "3,3", bias);
    for (int i = 0; i < 2 && !b.failed; i++) {
        const sbit_type type = sbit__type_unknown();
        const sbit_node_id none = {0};
        sbit_value_id in[2] = {{0}, {0}}, out = {0};
        attrs[i].name = i == 0 ? "score_mod" : "prob_mod";
        attrs[i].type = SBIT_ONNX_ATTR_GRAPH;
        CHECK_OK(sbit__graph_new_body(b.graph, &attrs[i].g, &b.error), b.error);
        CHECK_OK(sbit_graph_add_value(attrs[i].g, "in", &type, &in[0], &b.error), b.error);
        CHECK_OK(sbit_graph_set_input(attrs[i].g, in[0], true, &b.error), b.error);
        in[1] = in[0];
        if (i == 0) {
            CHECK_OK(sbit__graph_capture(attrs[i].g, more, &in[1], &b.error), b.error);
        }
        CHECK_OK(sbit__emit(attrs[i].g, none, i == 0 ? "Add" : "Mul", "inner", in, 2, NULL, 0, &out,
                            &b.error),
                 b.error);
        CHECK_OK(sbit_graph_add_output(attrs[i].g, out, &b.error), b.error);
    }
    const sbit_value_id all[3] = {x, x, x};
    build_node_outputs(&b, "ai.onnx.preview", "FlexAttention", "flex", all, 3, attrs, 2, &y, 1);
    const sbit_attr keep = build_int("keepdims", 0);
    const sbit_value_id square = build_binary(&b, "Mul", "square", y, y);
    const sbit_value_id cube = build_binary(&b, "Mul", "cube", square, y);
    wanted[0] = build_node(&b, "ReduceSum", "loss", &cube, 1, &keep, 1);
    if (with_gradient && !b.failed) {
        CHECK_OK(sbit_graph_add_gradients(b.graph, wanted[0], &x, 1, &wanted[1], &b.error), b.error);
    }
    desc.outputs = wanted;
    desc.output_count = with_gradient ? 2 : 1;
    sbit_tensor tensor = build_tensor(SBIT_F64, "1,2,3,2", data);
    if (!b.failed && CHECK_OK(sbit_session_create(b.graph, &desc, &session, &b.error), b.error) &&
        CHECK_OK(sbit_session_set_input(session, "x", &tensor, &b.error), b.error) &&
        CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
        loss = ((const double *)sbit_session_output(session, 0)->tensor.data)[0];
        if (with_gradient) {
            memcpy(gradient, sbit_session_output(session, 1)->tensor.data, 12 * sizeof *gradient);
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
    return loss;
}

TEST(flex_attention_is_differentiated_through_its_bodies)
{
    double data[12], gradient[12] = {0};
    for (int i = 0; i < 12; i++) {
        data[i] = sin(1.7 * i + 0.3);
    }
    CHECK_NEAR(flex_run(true, data, gradient), flex_run(false, data, NULL), 1e-12);
    for (int i = 0; i < 12; i++) {
        const double saved = data[i];
        data[i] = saved + 1e-5;
        const double up = flex_run(false, data, NULL);
        data[i] = saved - 1e-5;
        CHECK_NEAR(gradient[i], (up - flex_run(false, data, NULL)) / 2e-5, 1e-8);
        data[i] = saved;
    }
}

/* ---- the driver */

static int64_t user_runs;
static sbit_status user_run(sbit_graph *graph, const sbit_simplify_desc *desc, int64_t *changes,
                            sbit_error *error)
{
    (void)desc;
    user_runs++;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        if (strcmp(sbit_graph_node(graph, id)->op_type, "Sinh") == 0) {
            SBIT__TRY(sbit_graph_set_op(graph, id, "", "Cosh", error));
            ++*changes;
        }
    }
    return SBIT_OK;
}

TEST(passes_are_listed_chosen_and_added)
{
    build b;
    char text[128];
    const sbit_pass_row user = {{"cosh", "Sinh becomes Cosh", 0, NULL, 0}, false, user_run};
    const sbit_pass_row opt_in = {{"opt", "only when named", 0, NULL, 0}, true, user_run};
    const char *const wrong[] = {"fold_constant"}, *const skip[] = {"Dead-Code"},
                      *const only[] = {"opt"};
    sbit_simplify_desc desc;
    sbit_simplify_stats stats;
    build_begin(&b, 17);
    for (size_t i = 0; sbit_pass_at(i) != NULL; i++) {
        const sbit_pass_row *row = sbit_pass_at(i);
        CHECK(row->head.name[0] != '\0' && row->head.doc[0] != '\0' && row->run != NULL);
        CHECK(sbit_pass_find(b.ctx, row->head.name) == row);
    }
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    (void)build_unary(&b, "Exp", "unused", x);
    build_output(&b, build_unary(&b, "Sinh", "y", x));
    memset(&desc, 0, sizeof desc);
    desc.skip = wrong;
    desc.skip_count = 1;
    CHECK_STATUS(sbit_simplify(b.graph, &desc, NULL, &b.error), SBIT_ERR_NOT_FOUND, b.error);
    CHECK_CONTAINS(b.error.message, "fold_constants");
    CHECK_CONTAINS(b.error.message, "merge_duplicates");
    desc.skip = skip;
    CHECK_OK(sbit_simplify(b.graph, &desc, &stats, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Exp 1 Sinh 1");
    CHECK_EQ_I64(stats.changes, 0);
    CHECK_EQ_I64(stats.rounds, 1);
    CHECK_OK(sbit_pass_register(b.ctx, &opt_in, &b.error), b.error);
    CHECK_STATUS(sbit_pass_register(b.ctx, &opt_in, &b.error), SBIT_ERR_DUPLICATE, b.error);
    CHECK_OK(sbit_simplify(b.graph, NULL, &stats, &b.error), b.error);
    CHECK_EQ_I64(stats.nodes_before, 2);
    CHECK_EQ_I64(stats.nodes_after, 1);
    CHECK_EQ_I64(user_runs, 0);
    memset(&desc, 0, sizeof desc);
    desc.only = only;
    desc.only_count = 1;
    CHECK_OK(sbit_simplify(b.graph, &desc, &stats, &b.error), b.error);
    CHECK_EQ_I64(user_runs, 2);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Cosh 1");
    CHECK_OK(sbit_graph_set_op(b.graph, sbit_graph_first(b.graph), "", "Sinh", &b.error), b.error);
    CHECK_OK(sbit_pass_register(b.ctx, &user, &b.error), b.error);
    CHECK_OK(sbit_simplify(b.graph, NULL, NULL, &b.error), b.error);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "Cosh 1");
    build_end(&b);
}

static bool stop_at_once(const char *what, int64_t done, int64_t total, void *user)
{
    (void)done, (void)total, (void)user;
    return strcmp(what, "simplify") != 0;
}

/* A small network with work for most passes. */
static sbit_status build_small(sbit_ctx *ctx, sbit_graph **out, sbit_error *error)
{
    build b;
    memset(&b, 0, sizeof b);
    b.ctx = ctx;
    const sbit_status status = sbit_graph_create(ctx, 17, &b.graph, error);
    if (status != SBIT_OK) {
        return status;
    }
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3,4,4");
    sbit_value_id y = build_binary(&b, "Conv", "c", x, build_weights(&b, "w", "4,3,1,1", 1));
    y = build_unary(&b, "Identity", "i", batch_norm(&b, y, "4"));
    y = build_binary(&b, "Min", "six", build_unary(&b, "Relu", "r", y), scalar(&b, 6.0f));
    const sbit_value_id shape = build_unary(&b, "Shape", "shape", y);
    const sbit_value_id four = build_binary(&b, "Gather", "g", shape, ints(&b, "at", "1", INTS(0)));
    const sbit_attr axis = build_int("axis", 0);
    const sbit_value_id to =
        build_node(&b, "Concat", "to", IDS(four, ints(&b, "c64", "1", INTS(64))), 2, &axis, 1);
    y = build_binary(&b, "Reshape", "flat", y, to);
    y = build_binary(&b, "MatMul", "mm", y,
                     build_unary(&b, "Transpose", "t", build_weights(&b, "v", "2,64", 1)));
    build_output(&b, build_binary(&b, "Add", "y", y, build_weights(&b, "bias", "2", 1)));
    *out = b.graph;
    return b.failed ? SBIT_ERR_STATE : SBIT_OK;
}

TEST(a_cancelled_simplification_says_so)
{
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_graph *graph = NULL;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    desc.progress.progress_fn = stop_at_once;
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    CHECK_OK(build_small(ctx, &graph, &error), error);
    CHECK_STATUS(sbit_simplify(graph, NULL, NULL, &error), SBIT_ERR_CANCELLED, error);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(running_out_of_memory_leaves_a_graph_that_computes_the_same)
{
    results wanted, got;
    test_heap heap;
    memset(&wanted, 0, sizeof wanted);
    for (int64_t n = 0;; n++) {
        sbit_ctx_desc desc;
        sbit_ctx *ctx = NULL;
        sbit_graph *graph = NULL;
        sbit_error error;
        char text[128];
        memset(&heap, 0, sizeof heap);
        memset(&desc, 0, sizeof desc);
        memset(&error, 0, sizeof error);
        desc.allocator = test_heap_allocator(&heap);
        CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
        CHECK_OK(build_small(ctx, &graph, &error), error);
        heap.count = 0;
        heap.fail_at = n;
        const sbit_status status = sbit_simplify(graph, NULL, NULL, &error);
        const bool all_tried = n > 0 && heap.count < n;
        CHECK(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY);
        heap.fail_at = 0;
        if (status == SBIT_OK) {
            CHECK_STR(ops_of(graph, text, sizeof text), "Clip 1 Conv 1 Gemm 1 Reshape 1");
        }
        CHECK_OK(sbit_graph_validate(graph, &error), error);
        if (n % 8 == 0 && run_graph(graph, 2, &got)) {
            if (n == 0) {
                sbit_ctx *plain = test_ctx();
                wanted.count = got.count;
                CHECK_OK(sbit__tensor_copy(plain, &got.tensors[0], &wanted.tensors[0], &error),
                         error);
                sbit_ctx_destroy(plain);
            }
            CHECK(difference(&wanted, &got) < 1e-5);
            free_results(ctx, &got);
        }
        sbit_graph_destroy(graph);
        sbit_ctx_destroy(ctx);
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (all_tried || test_state.checks_failed > 0) {
            break;
        }
    }
    sbit_ctx *plain = test_ctx();
    free_results(plain, &wanted);
    sbit_ctx_destroy(plain);
}

/* ---- lift_opset */

#define lifts(b, to, ops) lifts_at(__LINE__, b, to, ops)
static void lifts_at(int line, build *b, int64_t to, const char *ops)
{
    char text[512];
    sbit_graph *before = NULL;
    results x, y;
    CHECK_OK(sbit_graph_clone(b->graph, &before, &b->error), b->error);
    if (CHECK_OK(sbit_graph_lift_opset(b->graph, to, &b->error), b->error)) {
        CHECK_EQ_I64(sbit_graph_opset(b->graph, ""), to);
        CHECK_MSG(strcmp(ops_of(b->graph, text, sizeof text), ops) == 0,
                  "line %d: it became \"%s\", not \"%s\"", line, text, ops);
        CHECK_OK(sbit_graph_validate(b->graph, &b->error), b->error);
        check_names(before, b->graph);
        const bool ran = run_graph(before, 2, &x);
        if (CHECK_MSG(run_graph(b->graph, 2, &y) && ran, "line %d: cannot run", line)) {
            const double off = difference(&x, &y);
            CHECK_MSG(off <= 1e-6, "line %d: off by %g", line, off);
        }
        free_results(b->ctx, &x);
        free_results(b->ctx, &y);
    }
    sbit_graph_destroy(before);
    build_end(b);
}

TEST(old_models_are_lifted)
{
    build b;
    for (int64_t from = 7; from <= 9; from += 2) {
        for (int64_t to = 13; to <= 21; to += 8) {
            const float two[] = {1.0f, 1.0f, 2.0f, 2.0f};
            sbit_attr scales, mode = text_attr("mode", "nearest");
            const sbit_attr clip[2] = {build_float("min", -0.25f), build_float("max", 0.5f)};
            const sbit_attr pad[2] = {build_ints("pads", INTS(0, 0, 1, 1, 0, 0, 0, 2), 8),
                                      build_float("value", 0.75f)};
            const sbit_attr slice[3] = {build_ints("starts", INTS(0, 1), 2),
                                        build_ints("ends", INTS(2, -1), 2),
                                        build_ints("axes", INTS(1, 3), 2)};
            const sbit_attr axis = build_int("axis", 1);
            memset(&scales, 0, sizeof scales);
            scales.name = "scales";
            scales.type = SBIT_ONNX_ATTR_FLOATS;
            scales.floats = two;
            scales.count = 4;
            build_begin(&b, from);
            sbit_value_id y = build_input(&b, "x", SBIT_F32, "N,3,4,5");
            const sbit_attr up[2] = {mode, scales};
            y = from < 9
                    ? build_node(&b, "Upsample", "up", &y, 1, up, 2)
                    : build_node(&b, "Upsample", "up",
                                 IDS(y, build_constant(&b, "sc", SBIT_F32, "4", two)), 2, &mode, 1);
            y = build_node(&b, "Clip", "clip", &y, 1, clip, 2);
            y = build_node(&b, "Pad", "pad", &y, 1, pad, 2);
            y = build_node(&b, "Slice", "slice", &y, 1, slice, 3);
            y = build_unary(&b, "Dropout", "drop", y);
            build_output(&b, build_node(&b, "Softmax", "y", &y, 1, &axis, 1)); /* over 3 axes */
            lifts(&b, to,
                  "Clip 1 Dropout 1 Flatten 1 Pad 1 Reshape 1 Resize 1 Shape 1 Slice 1 Softmax 1");
        }
    }
}

TEST(attributes_become_inputs)
{
    build b;
    sbit_value_id outs[2];
    const sbit_attr axes = build_ints("axes", INTS(1), 1), k = build_int("k", 2),
                    keep = build_int("keepdims", 0);
    const sbit_attr split[2] = {build_int("axis", 1), build_ints("split", INTS(1, 3), 2)},
                    two[2] = {axes, keep};
    build_begin(&b, 9);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4,3");
    sbit_value_id y = build_node(&b, "Unsqueeze", "u", &x, 1, &axes, 1);
    y = build_node(&b, "Squeeze", "s", &y, 1, &axes, 1);
    build_node_outputs(&b, "", "Split", "split", &y, 1, split, 2, outs, 2);
    build_output(&b, build_node(&b, "ReduceSum", "sum", &outs[0], 1, two, 2));
    build_output(&b, build_node(&b, "ReduceMean", "mean", &outs[1], 1, two, 2));
    build_output(&b, build_unary(&b, "ReduceMax", "max", x)); /* all axes */
    build_node_outputs(&b, "", "TopK", "top", &x, 1, &k, 1, outs, 2);
    build_output(&b, outs[0]);
    build_output(&b, outs[1]);
    lifts(&b, 18, "ReduceMax 1 ReduceMean 1 ReduceSum 1 Split 1 Squeeze 1 TopK 1 Unsqueeze 1");
    build_begin(&b, 11); /* equal pieces need their number from opset 18 on */
    x = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_attr one = build_int("axis", 1);
    build_node_outputs(&b, "", "Split", "split", &x, 1, &one, 1, outs, 2);
    build_output(&b, outs[0]);
    build_output(&b, outs[1]);
    lifts(&b, 21, "Split 1");
}

TEST(softmax_along_one_axis_stays_one_node)
{
    build b;
    const sbit_attr axis = build_int("axis", 1);
    build_begin(&b, 11);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,5,1,1");
    build_output(&b, build_unary(&b, "LogSoftmax", "y", x)); /* axis 1 by default then, -1 later */
    const sbit_value_id z = build_input(&b, "z", SBIT_F32, "N,5");
    build_output(&b, build_node(&b, "Softmax", "w", &z, 1, &axis, 1));
    lifts(&b, 13, "LogSoftmax 1 Softmax 1");
}

TEST(what_cannot_be_lifted_is_all_named_and_nothing_is_changed)
{
    build b;
    char text[256];
    sbit_value_id inputs[5], outs[5];
    const sbit_attr spatial = build_int("spatial", 0);
    build_begin(&b, 8);
    inputs[0] = build_input(&b, "x", SBIT_F32, "N,3,4");
    for (size_t i = 1; i < 5; i++) {
        inputs[i] = build_weights(&b, "p", "3,4", i);
    }
    const sbit_value_id y = build_node(&b, "BatchNormalization", "norm", inputs, 5, &spatial, 1);
    build_node_outputs(&b, "", "Dropout", "drop", &y, 1, NULL, 0, outs, 2);
    build_output(&b, outs[0]);
    build_output(&b, outs[1]);
    const sbit_attr clip = build_float("min", 0.0f);
    build_output(&b, build_node(&b, "Clip", "clip", &y, 1, &clip, 1));
    CHECK_STATUS(sbit_graph_lift_opset(b.graph, 13, &b.error), SBIT_ERR_UNSUPPORTED, b.error);
    CHECK_CONTAINS(b.error.message, "BatchNormalization 'norm'");
    CHECK_CONTAINS(b.error.message, "Dropout 'drop'");
    CHECK_EQ_I64(sbit_graph_opset(b.graph, ""), 8);
    CHECK(sbit_node_attr(sbit_graph_node(b.graph, sbit_graph_find_node(b.graph, "clip")), "min") !=
          NULL);
    CHECK_STR(ops_of(b.graph, text, sizeof text), "BatchNormalization 1 Clip 1 Dropout 1");
    CHECK_STATUS(sbit_graph_lift_opset(b.graph, 99, &b.error), SBIT_ERR_UNSUPPORTED, b.error);
    CHECK_OK(sbit_graph_lift_opset(b.graph, 7, &b.error), b.error); /* never lowered */
    CHECK_EQ_I64(sbit_graph_opset(b.graph, ""), 8);
    build_end(&b);
}

TEST(foreign_operators_pass_through)
{
    build b;
    sbit_value_id out;
    build_begin(&b, 9);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,3");
    const sbit_attr clip = build_float("min", 0.0f);
    build_node_outputs(&b, "com.acme", "Clip", "foo", &x, 1, &clip, 1, &out, 1);
    build_output(&b, out);
    CHECK_OK(sbit_graph_set_opset(b.graph, "com.acme", 1, &b.error), b.error);
    CHECK_OK(sbit_graph_lift_opset(b.graph, 13, &b.error), b.error);
    CHECK(sbit_node_attr(sbit_graph_node(b.graph, sbit_graph_first(b.graph)), "min") != NULL);
    build_end(&b);
}

/* ---- whole models */

static void model_becomes(const char *name, const char *ops, int64_t size, double tolerance)
{
    char path[512], text[1024], file[128];
    sbit_graph *graph = NULL, *lifted = NULL;
    results x, y, z;
    sbit_simplify_desc desc;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    desc.fix_defaults = true; /* ultraface_rfb320 lists its weights among the inputs */
    sbit_ctx *ctx = NULL;
    snprintf(file, sizeof file, "models/%s.onnx", name);
    if (!test_shared(file, path, sizeof path)) {
        SBIT_TEST_SKIP("no shared models");
    }
    ctx = test_ctx();
    if (CHECK_OK(sbit_graph_load(ctx, path, &graph, &error), error)) {
        CHECK_OK(sbit_graph_clone(graph, &lifted, &error), error);
        const bool ran = run_graph(graph, size, &x);
        CHECK_OK(sbit_simplify(graph, &desc, NULL, &error), error);
        CHECK_MSG(strcmp(ops_of(graph, text, sizeof text), ops) == 0,
                  "%s became \"%s\", not \"%s\"", name, text, ops);
        CHECK_OK(sbit_graph_validate(graph, &error), error);
        if (CHECK(run_graph(graph, size, &y) && ran)) {
            CHECK_MSG(difference(&x, &y) <= tolerance, "%s: off by %g", name, difference(&x, &y));
        }
        free_results(ctx, &y);
        if (CHECK_OK(sbit_graph_lift_opset(lifted, 21, &error), error) &&
            CHECK(run_graph(lifted, size, &z))) {
            CHECK_MSG(difference(&x, &z) <= 1e-5, "%s lifted: off by %g", name, difference(&x, &z));
        }
        free_results(ctx, &z);
        free_results(ctx, &x);
    }
    sbit_graph_destroy(lifted);
    sbit_graph_destroy(graph);
    sbit_ctx_destroy(ctx);
}

TEST(cifar_networks_are_left_with_nothing_but_the_network)
{
    model_becomes("cifar10/resnet20", "Add 9 Conv 21 Gemm 1 ReduceMean 1 Relu 19 Reshape 1", 2,
                  1e-5);
    model_becomes("cifar10/resnet18w32", "Add 8 Conv 20 Gemm 1 ReduceMean 1 Relu 17 Reshape 1", 2,
                  1e-5);
    model_becomes("cifar10/vggsmall", "Conv 6 Gemm 3 MaxPool 4 Relu 8 Reshape 1", 2, 1e-5);
    model_becomes("cifar10/mobilenetv2", "Add 10 Clip 35 Conv 52 Gemm 1 ReduceMean 1 Reshape 1", 2,
                  1e-5);
    model_becomes(
        "cifar10/mobilenetv3s",
        "Add 4 Conv 38 Gemm 2 HardSigmoid 6 HardSwish 13 Mul 6 ReduceMean 7 Relu 12 Reshape 1", 2,
        1e-5);
    model_becomes("cifar10/shufflenetv2",
                  "Concat 16 Conv 56 Gemm 1 ReduceMean 1 Relu 37 Reshape 33 Split 13 Transpose 16",
                  2, 1e-5);
    model_becomes("cifar10/rowlstm", "Gather 1 Gemm 1 LSTM 2 Reshape 1 Squeeze 2 Transpose 3", 2,
                  1e-5);
    model_becomes(
        "cifar10/vit_tiny",
        "Add 43 Concat 2 Conv 1 Div 6 Erf 6 Expand 1 Gather 1 Gemm 1 LayerNormalization 13 "
        "MatMul 36 Mul 18 Reshape 13 Shape 1 Slice 18 Softmax 6 Squeeze 18 Transpose 19",
        2, 1e-5);
}

TEST(zoo_models_are_simplified)
{
    model_becomes("zoo/mnist_8", "Conv 2 Gemm 1 MaxPool 2 Relu 2 Reshape 1", 1, 1e-5);
    model_becomes("zoo/super_resolution_10", "Conv 4 Relu 3 Reshape 2 Transpose 1", 1, 1e-5);
    model_becomes("zoo/ultraface_rfb320",
                  "Add 3 Concat 5 Conv 52 Div 1 Exp 1 Mul 4 Relu 37 Reshape 8 Slice 4 Softmax 1 "
                  "Sub 1 Transpose 8",
                  1, 1e-5);
    model_becomes("zoo/yunet_n_dynamic",
                  "Add 2 Conv 59 MaxPool 4 Relu 18 Reshape 12 Resize 2 Sigmoid 6 Transpose 12", 64,
                  1e-5);
    model_becomes("zoo/ppocr_cls",
                  "Add 25 Clip 18 Conv 53 Div 18 Gemm 1 GlobalAveragePool 10 HardSigmoid 9 "
                  "MaxPool 1 Mul 27 Relu 15 Reshape 1 Softmax 1",
                  64, 1e-4);
    model_becomes("zoo/ppocrv4_det",
                  "Add 49 Clip 24 Concat 1 Conv 62 ConvTranspose 2 Div 24 GlobalAveragePool 10 "
                  "HardSigmoid 10 Mul 48 Relu 12 Resize 6 Sigmoid 1",
                  192, 1e-4);
    model_becomes("zoo/ppocrv4_rec",
                  "Add 67 AveragePool 1 Clip 28 Concat 1 Conv 38 Div 33 GlobalAveragePool 2 "
                  "HardSigmoid 2 MatMul 13 Mul 60 Pow 5 ReduceMean 10 Relu 2 Reshape 6 Sigmoid 7 "
                  "Slice 6 Softmax 3 Sqrt 5 Squeeze 7 Sub 5 Transpose 9",
                  64, 1e-3);
    model_becomes("zoo/silero_vad_v4",
                  "Add 14 Concat 8 Conv 36 Equal 1 If 1 LSTM 4 Log 2 Mul 2 Neg 2 Pad 2 Pow 4 "
                  "ReduceMean 6 Relu 26 Reshape 2 Sigmoid 2 Slice 20 Sqrt 2 Squeeze 8 Transpose 4 "
                  "Unsqueeze 2",
                  512, 1e-4);
    model_becomes("zoo/silero_vad_v5",
                  "Add 2 Concat 2 Conv 12 Equal 9 Gather 10 Identity 16 If 13 LSTM 2 Not 2 Pad 2 "
                  "Pow 4 ReduceMean 2 Relu 10 Shape 8 Sigmoid 2 Size 2 Slice 4 Sqrt 2 Squeeze 12 "
                  "Unsqueeze 22",
                  256, 1e-4); /* at 8 kHz */
}
