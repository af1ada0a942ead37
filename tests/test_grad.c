/* test_grad.c: gradients as nodes. Every rule against central differences: the loss is the sum of
 * the output times fixed random numbers; forward and gradient run in float64. */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_INPUTS 8

typedef struct grad_case {
    const char *op_type;
    const char *dims[MAX_INPUTS]; /* float64 inputs; "" a scalar, "-" omitted, NULL: no more */
    int64_t opset;
    sbit_attr attrs[6];
    size_t attr_count;
    uint32_t skip;    /* bit i: no gradient of input i */
    double low, high; /* range of the inputs; both 0: -1..1 */
    const char *domain;
    size_t made;          /* outputs of the node, if there are more than that */
    size_t outputs;       /* 0: 1; the loss is of the first `outputs` */
    int64_t ints[8];      /* an int64 list as the last input (indices, shapes, axes) ... */
    size_t int_count;     /* ... of this length */
    int ints_at;          /* its place among the inputs */
    sbit_dtype list_type; /* of that list */
    bool twice;           /* the list, at the end */
    bool plain;           /* nothing is lowered */
} grad_case;

static double grad_random(sbit_rng *rng, double low, double high)
{
    return low + (high - low) * ((double)sbit_rng_next(rng) + 0.5) / 4294967296.0;
}

typedef struct grad_run {
    build b;
    sbit_value_id inputs[MAX_INPUTS], loss, grads[MAX_INPUTS];
    sbit_tensor data[MAX_INPUTS];
    size_t count;
    sbit_session *session;
    sbit_dtype dtype;
    bool again; /* LstmGrad makes its gates twice */
} grad_run;

/* Numbers that float32 holds exactly. */
static sbit_tensor grad_tensor(sbit_dtype dtype, const char *dims, sbit_rng *rng, double low,
                               double high)
{
    sbit_tensor t = build_tensor(dtype, dims, NULL);
    const int64_t count = sbit_tensor_count(&t);
    double *data = (double *)malloc((size_t)(count + 1) * sizeof(double));
    for (int64_t i = 0; i < count; i++) {
        const float value = (float)grad_random(rng, low, high);
        if (dtype == SBIT_F32) {
            ((float *)(void *)data)[i] = value;
        } else {
            data[i] = (double)value;
        }
    }
    t.data = data;
    return t;
}

static sbit_attr grad_text(const char *name, const char *text)
{
    sbit_attr attr = build_int(name, 0);
    attr.type = SBIT_ONNX_ATTR_STRING;
    attr.s.data = text;
    attr.s.size = strlen(text);
    return attr;
}

/* loss = sum over outputs of sum(y * r) */
static sbit_value_id grad_loss(build *b, sbit_dtype dtype, const sbit_value_id *outputs,
                               size_t count, sbit_rng *rng)
{
    sbit_value_id loss = {0};
    build_do(b, sbit_infer(b->graph, &b->error), "infer");
    for (size_t i = 0; i < count && !b->failed; i++) {
        const sbit_type *type = &sbit_graph_value(b->graph, outputs[i])->type;
        char dims[128] = "";
        for (int32_t d = 0; d < type->rank; d++) {
            char one[32];
            snprintf(one, sizeof one, "%s%d", d > 0 ? "," : "", (int)type->dims[d].value);
            strcat(dims, one);
        }
        sbit_tensor r = grad_tensor(dtype, dims, rng, -1, 1);
        const sbit_value_id weights = build_constant(b, "r", dtype, dims, r.data);
        free(r.data);
        const sbit_value_id product = build_binary(b, "Mul", "weighted", outputs[i], weights);
        const sbit_attr keep = build_int("keepdims", 0);
        const sbit_value_id sum = build_node(b, "ReduceSum", "sum", &product, 1, &keep, 1);
        loss = loss.idx == 0 ? sum : build_binary(b, "Add", "losses", loss, sum);
    }
    return loss;
}

static void grad_build(grad_run *r, const grad_case *c, sbit_dtype dtype, int32_t threads)
{
    sbit_rng rng = sbit_rng_seed(7);
    sbit_value_id all[MAX_INPUTS + 1], outputs[8], wanted[MAX_INPUTS];
    char name[16];
    size_t n = 0, wants = 0, outs = c->outputs == 0 ? 1 : c->outputs;
    memset(r, 0, sizeof *r);
    r->dtype = dtype;
    build_begin_threads(&r->b, c->opset == 0 ? 17 : c->opset, threads);
    for (size_t i = 0; i < MAX_INPUTS && (c->dims[i] != NULL || (int)n == c->ints_at); i++) {
        if (c->int_count > 0 && (int)n == c->ints_at) {
            char dims[16];
            snprintf(dims, sizeof dims, "%d", (int)c->int_count);
            all[n++] = build_constant(&r->b, "list", c->list_type, dims, c->ints);
        }
        if (c->dims[i] == NULL) {
            break;
        }
        if (c->dims[i][0] == '-') {
            all[n++].idx = 0;
            continue;
        }
        const size_t k = r->count++;
        snprintf(name, sizeof name, "x%d", (int)k);
        r->data[k] = grad_tensor(dtype, c->dims[i], &rng, c->low == c->high ? -1 : c->low,
                                 c->low == c->high ? 1 : c->high);
        r->inputs[k] = all[n++] = build_input(&r->b, name, dtype, c->dims[i]);
        if ((c->skip >> k & 1u) == 0) {
            wanted[wants++] = r->inputs[k];
        }
    }
    if (c->int_count > 0 && (int)n == c->ints_at) {
        char dims[16];
        snprintf(dims, sizeof dims, "%d", (int)c->int_count);
        all[n++] = build_constant(&r->b, "list", c->list_type, dims, c->ints);
    }
    if (c->twice) {
        all[n] = all[n - 1];
        n++;
    }
    build_node_outputs(&r->b, c->domain == NULL ? "" : c->domain, c->op_type, "op", all, n,
                       c->attrs, c->attr_count, outputs, c->made > outs ? c->made : outs);
    r->loss = grad_loss(&r->b, dtype, outputs, outs, &rng);
    sbit_value_id grads[MAX_INPUTS] = {{0}};
    if (r->b.failed ||
        !build_do(&r->b,
                  sbit_graph_add_gradients(r->b.graph, r->loss, wanted, wants, grads, &r->b.error),
                  c->op_type)) {
        return;
    }
    sbit_value_id results[MAX_INPUTS + 1];
    size_t count = 0, k = 0;
    results[count++] = r->loss;
    for (size_t i = 0; i < r->count; i++) {
        if ((c->skip >> i & 1u) == 0) {
            r->grads[i] = grads[k++];
            CHECK_MSG(r->grads[i].idx != 0, "%s: no gradient of input %d", c->op_type, (int)i);
            results[count++] = r->grads[i];
        }
    }
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.outputs = results;
    desc.output_count = count;
    desc.disable_fusion = c->plain;
    build_do(&r->b, sbit_graph_validate(r->b.graph, &r->b.error), "validate");
    build_do(&r->b, sbit_session_create(r->b.graph, &desc, &r->session, &r->b.error), "session");
}

static bool grad_feed(grad_run *r)
{
    for (size_t i = 0; i < r->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", (int)i);
        if (!build_do(&r->b, sbit_session_set_input(r->session, name, &r->data[i], &r->b.error),
                      name)) {
            return false;
        }
    }
    return build_do(&r->b, sbit_session_run(r->session, &r->b.error), "run");
}

static void grad_compare(grad_run *r, const grad_case *c)
{
    const double h = 1e-5;
    size_t at = 1;
    for (size_t i = 0; i < r->count; i++) {
        if ((c->skip >> i & 1u) != 0) {
            continue;
        }
        if (!grad_feed(r)) {
            return;
        }
        const sbit_tensor *out = &sbit_session_output(r->session, at)->tensor;
        const int64_t count = sbit_tensor_count(&r->data[i]);
        double *grad = (double *)malloc((size_t)(count + 1) * sizeof(double));
        double *x = (double *)r->data[i].data, top = 0.0;
        if (!CHECK(out->dtype == SBIT_F64) || !CHECK(sbit_tensor_same_shape(out, &r->data[i]))) {
            free(grad);
            return;
        }
        memcpy(grad, out->data, (size_t)count * sizeof(double));
        for (int64_t k = 0; k < count; k++) {
            top = fabs(grad[k]) > top ? fabs(grad[k]) : top;
        }
        for (int64_t k = 0; k < count; k++) {
            const double saved = x[k];
            double loss[2];
            for (int s = 0; s < 2; s++) {
                x[k] = saved + (s == 0 ? h : -h);
                if (!grad_feed(r)) {
                    free(grad);
                    return;
                }
                loss[s] = ((const double *)sbit_session_output(r->session, 0)->tensor.data)[0];
            }
            x[k] = saved;
            const double want = (loss[0] - loss[1]) / (2.0 * h);
            if (!(fabs(want - grad[k]) <= 1e-4 * fabs(want) + 1e-6 * (top + 1e-3))) {
                CHECK_MSG(false, "%s: gradient %d of input %d is %.9g, by differences %.9g",
                          c->op_type, (int)k, (int)i, grad[k], want);
                break;
            }
        }
        free(grad);
        at++;
    }
}

static void grad_end(grad_run *r)
{
    sbit_session_destroy(r->session);
    for (size_t i = 0; i < r->count; i++) {
        free(r->data[i].data);
    }
    build_end(&r->b);
}

/* float32 against float64, all elements together. */
static void grad_near(const char *what, int form, const sbit_tensor *want, const sbit_tensor *have)
{
    double norm = 0, off = 0;
    for (int64_t i = 0; i < sbit_tensor_count(want); i++) {
        const double x = ((const double *)want->data)[i];
        const double d = x - (double)((const float *)have->data)[i];
        norm += x * x;
        off += d * d;
    }
    CHECK_MSG(sqrt(off) <= 2e-5 * sqrt(norm) + 1e-7, "%s (%d): float32 is off by %g of %g", what, form,
              sqrt(off), sqrt(norm));
}

/* Gradients of float32 with one and three threads, and as the graph says (channels first, which
 * lowering changes), against those of float64. */
static void grad_compare_single(grad_run *r, const grad_case *c)
{
    grad_run single[3];
    bool ok = grad_feed(r);
    for (int k = 0; k < 3; k++) {
        grad_case form = *c;
        form.plain = k == 2;
        grad_build(&single[k], &form, SBIT_F32, k == 1 ? 3 : 1);
        ok = ok && !single[k].b.failed && grad_feed(&single[k]);
    }
    for (size_t at = 1; ok && at < sbit_session_output_count(r->session); at++) {
        const sbit_tensor *want = &sbit_session_output(r->session, at)->tensor;
        const sbit_tensor *one = &sbit_session_output(single[0].session, at)->tensor;
        const sbit_tensor *three = &sbit_session_output(single[1].session, at)->tensor;
        for (int k = 0; k < 3; k += 2) {
            grad_near(c->op_type, k, want, &sbit_session_output(single[k].session, at)->tensor);
        }
        CHECK_MSG(memcmp(one->data, three->data, sbit_tensor_bytes(one)) == 0,
                  "%s: gradient %d depends on the number of threads", c->op_type, (int)at - 1);
    }
    for (int k = 0; k < 3; k++) {
        grad_end(&single[k]);
    }
}

static void grad_check(const grad_case *c)
{
    grad_run r;
    grad_build(&r, c, SBIT_F64, test_threads());
    if (!r.b.failed) {
        grad_compare(&r, c);
        grad_compare_single(&r, c);
    }
    grad_end(&r);
}

/* Shapes too large for differences: only float32 against float64. */
static void grad_check_large(const grad_case *c)
{
    grad_run r;
    grad_build(&r, c, SBIT_F64, test_threads());
    if (!r.b.failed) {
        grad_compare_single(&r, c);
    }
    grad_end(&r);
}

static grad_case grad_of(const char *op_type, const char *a, const char *b, const char *c)
{
    grad_case g;
    memset(&g, 0, sizeof g);
    g.op_type = op_type;
    g.dims[0] = a;
    g.dims[1] = b;
    g.dims[2] = c;
    g.ints_at = -1;
    g.list_type = SBIT_I64;
    return g;
}

static void grad_attr(grad_case *c, sbit_attr attr)
{
    c->attrs[c->attr_count++] = attr;
}

TEST(elementwise_functions)
{
    static const char *const names[] = {
        "Relu",     "LeakyRelu",   "Elu",       "Selu",   "ThresholdedRelu",
        "Sigmoid",  "HardSigmoid", "HardSwish", "Tanh",   "Softplus",
        "Softsign", "Mish",        "Gelu",      "Abs",    "Neg",
        "Erf",      "Exp",         "Sin",       "Cos",    "Sinh",
        "Cosh",     "Asinh",       "Atan",      "Shrink", "Reciprocal",
        "Sqrt",     "Log",         "Identity"};
    for (size_t i = 0; i < COUNT(names); i++) {
        grad_case c = grad_of(names[i], "3,7", NULL, NULL);
        c.opset = 22;
        if (i >= COUNT(names) - 4) {
            c.low = 0.5;
            c.high = 2;
        } else {
            c.low = -4;
            c.high = 4;
        }
        grad_check(&c);
    }
    static const char *const narrow[] = {"Asin", "Acos", "Atanh", "Tan", "Acosh"};
    for (size_t i = 0; i < COUNT(narrow); i++) {
        grad_case c = grad_of(narrow[i], "3,7", NULL, NULL);
        c.low = i == 4 ? 1.2 : -0.9;
        c.high = i == 4 ? 3 : 0.9;
        grad_check(&c);
    }
    grad_case gelu = grad_of("Gelu", "3,7", NULL, NULL);
    gelu.opset = 20;
    grad_attr(&gelu, grad_text("approximate", "tanh"));
    grad_check(&gelu);
    grad_case swish = grad_of("Swish", "3,7", NULL, NULL);
    swish.opset = 24;
    grad_attr(&swish, build_float("alpha", 1.5f));
    grad_check(&swish);
    grad_case clip = grad_of("Clip", "4,5", "", "");
    clip.low = -2;
    clip.high = 2;
    grad_check(&clip); /* its limits, too: both inside the range of x */
    clip.skip = 6;
    grad_check(&clip);
    clip.dims[1] = clip.dims[2] = NULL;
    clip.skip = 0;
    clip.opset = 6;
    grad_attr(&clip, build_float("min", -0.5f));
    grad_attr(&clip, build_float("max", 1.0f));
    grad_check(&clip);
}

TEST(broadcasting)
{
    static const char *const shapes[][2] = {{"2,3,4", "2,3,4"}, {"2,3,4", "4"},   {"2,3,4", "3,1"},
                                            {"1,4", "3,1"},     {"2,1,4", "3,4"}, {"", "2,3"},
                                            {"5", "1"},         {"2,3", "2,1,3"}};
    static const char *const names[] = {"Add", "Sub", "Mul", "Div", "Pow", "Sum", "Mean"};
    for (size_t i = 0; i < COUNT(names); i++) {
        for (size_t k = 0; k < COUNT(shapes); k++) {
            grad_case c = grad_of(names[i], shapes[k][0], shapes[k][1], NULL);
            c.low = 0.5;
            c.high = 2;
            grad_check(&c);
        }
    }
    grad_case slope = grad_of("PRelu", "2,3,4", "3,1", NULL);
    grad_check(&slope);
    grad_case many = grad_of("Sum", "2,3", "3", "2,1");
    grad_check(&many);
}

TEST(matrix_products)
{
    static const char *const shapes[][2] = {{"3,4", "4,5"},
                                            {"2,3,4", "4,5"},
                                            {"2,3,4", "2,4,5"},
                                            {"2,1,3,4", "5,4,2"},
                                            {"3,4", "2,4,5"}};
    for (size_t k = 0; k < COUNT(shapes); k++) {
        grad_case c = grad_of("MatMul", shapes[k][0], shapes[k][1], NULL);
        grad_check(&c);
    }
    for (int mode = 0; mode < 8; mode++) {
        grad_case c = grad_of("Gemm", (mode & 1) != 0 ? "4,3" : "3,4",
                              (mode & 2) != 0 ? "5,4" : "4,5", (mode & 4) != 0 ? "5" : "3,1");
        grad_attr(&c, build_int("transA", mode & 1));
        grad_attr(&c, build_int("transB", mode >> 1 & 1));
        grad_attr(&c, build_float("alpha", 0.5f));
        grad_attr(&c, build_float("beta", (mode & 4) != 0 ? 1.0f : 2.0f));
        grad_check(&c);
    }
}

typedef struct conv_form {
    const char *x, *w, *bias;
    int64_t group, strides[3], pads[6], dilations[3];
    const char *auto_pad;
} conv_form;

static void conv_check(const char *op_type, const conv_form *f, void (*check)(const grad_case *))
{
    grad_case c = grad_of(op_type, f->x, f->w, f->bias);
    size_t spatial = 0;
    for (const char *p = f->x; *p != '\0'; p++) {
        spatial += *p == ',' ? 1 : 0;
    }
    spatial -= 1;
    grad_attr(&c, build_int("group", f->group));
    grad_attr(&c, build_ints("strides", f->strides, spatial));
    grad_attr(&c, build_ints("dilations", f->dilations, spatial));
    grad_attr(&c, f->auto_pad != NULL ? grad_text("auto_pad", f->auto_pad)
                                      : build_ints("pads", f->pads, 2 * spatial));
    check(&c);
}

static const conv_form conv_forms[] = {
    {"2,3,6,5", "4,3,3,3", "4", 1, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
    {"2,3,6,5", "4,3,1,1", NULL, 1, {1, 1}, {0, 0, 0, 0}, {1, 1}, NULL},
    {"2,3,6,5", "4,3,1,1", "4", 1, {2, 2}, {0, 0, 0, 0}, {1, 1}, NULL},
    {"2,4,7,6", "6,2,3,3", "6", 2, {2, 2}, {1, 1, 1, 1}, {1, 1}, NULL},
    {"2,4,7,6", "4,1,3,3", "4", 4, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL}, /* depthwise */
    {"2,4,7,6", "4,1,3,3", NULL, 4, {2, 2}, {1, 1, 1, 1}, {1, 1}, NULL},
    {"1,2,7,6", "6,1,3,2", NULL, 2, {2, 1}, {0, 1, 2, 1}, {1, 2}, NULL}, /* uneven pads */
    {"1,2,9,8", "3,2,3,3", "3", 1, {1, 1}, {2, 2, 2, 2}, {2, 2}, NULL},  /* dilated */
    {"1,2,9,8", "3,2,3,3", "3", 1, {2, 3}, {2, 0, 1, 3}, {2, 2}, NULL},
    {"2,3,6,5", "4,3,3,3", NULL, 1, {2, 2}, {0}, {1, 1}, "SAME_UPPER"},
    {"2,3,6,5", "4,3,2,2", NULL, 1, {1, 1}, {0}, {1, 1}, "SAME_LOWER"},
    {"1,2,5,5", "3,2,2,2", NULL, 1, {1, 1}, {3, 3, 1, 1}, {1, 1}, NULL}, /* pads beyond the kernel
                                                                          */
    {"2,3,9", "4,3,3", "4", 1, {2}, {1, 0}, {1}, NULL},                  /* 1-D */
    {"1,2,3,4,5", "4,1,2,2,2", "4", 2, {1, 2, 1}, {0, 1, 1, 1, 0, 0}, {1, 1, 1}, NULL}, /* 3-D */
    {"1,8,5,5", "8,4,3,3", NULL, 2, {2, 2}, {1, 1, 1, 1}, {1, 1}, NULL},
};

TEST(convolutions)
{
    for (size_t i = 0; i < COUNT(conv_forms); i++) {
        conv_check("Conv", &conv_forms[i], grad_check);
    }
}

/* The session of a loss of the values and the gradients of all r->count inputs. */
static void chain_session(grad_run *r, const sbit_value_id *of, size_t of_count, sbit_rng *rng, bool plain)
{
    sbit_value_id grads[MAX_INPUTS], results[MAX_INPUTS + 1];
    sbit_session_desc desc;
    r->loss = grad_loss(&r->b, r->dtype, of, of_count, rng);
    if (r->b.failed || !build_do(&r->b,
                                 sbit_graph_add_gradients(r->b.graph, r->loss, r->inputs, r->count,
                                                          grads, &r->b.error),
                                 "gradients")) {
        return;
    }
    for (sbit_node_id id = sbit_graph_first(r->b.graph); r->again && id.idx != 0;
         id = sbit_graph_next(r->b.graph, id)) {
        const sbit_attr again = build_int("again", 1);
        if (strcmp(sbit_graph_node(r->b.graph, id)->op_type, "LstmGrad") == 0) {
            build_do(&r->b, sbit_graph_set_attr(r->b.graph, id, &again, &r->b.error), "again");
        }
    }
    results[0] = r->loss;
    memcpy(results + 1, grads, sizeof grads);
    memset(&desc, 0, sizeof desc);
    desc.outputs = results;
    desc.output_count = r->count + 1;
    desc.disable_fusion = plain;
    build_do(&r->b, sbit_session_create(r->b.graph, &desc, &r->session, &r->b.error), "session");
}

/* Sessions of x -> Conv 1x1 -> the form -> Conv 1x1 -> loss: the form stands between others with
 * channels last, however few there are. */
static void conv_chain(grad_run *r, const conv_form *f, sbit_dtype dtype, int32_t threads, bool plain)
{
    sbit_rng rng = sbit_rng_seed(11);
    char dims[4][32];
    int x[4], w[4];
    sbit_value_id at = {0};
    memset(r, 0, sizeof *r);
    r->dtype = dtype;
    r->count = 4;
    build_begin_threads(&r->b, 17, threads);
    CHECK_EQ_I64(sscanf(f->x, "%d,%d,%d,%d", &x[0], &x[1], &x[2], &x[3]), 4);
    CHECK_EQ_I64(sscanf(f->w, "%d,%d,%d,%d", &w[0], &w[1], &w[2], &w[3]), 4);
    snprintf(dims[0], sizeof dims[0], "%s", f->x);
    snprintf(dims[1], sizeof dims[1], "%d,%d,1,1", x[1], x[1]);
    snprintf(dims[2], sizeof dims[2], "%s", f->w);
    snprintf(dims[3], sizeof dims[3], "5,%d,1,1", w[0]);
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        r->data[i] = grad_tensor(dtype, dims[i], &rng, -1, 1);
        r->inputs[i] = build_input(&r->b, name, dtype, dims[i]);
        const sbit_value_id pair[2] = {at, r->inputs[i]};
        const sbit_attr attrs[4] = {build_int("group", f->group), build_ints("strides", f->strides, 2),
                                    build_ints("dilations", f->dilations, 2),
                                    f->auto_pad != NULL ? grad_text("auto_pad", f->auto_pad)
                                                        : build_ints("pads", f->pads, 4)};
        at = i == 0 ? r->inputs[0]
                    : build_node(&r->b, "Conv", i == 2 ? "form" : "beside", pair, 2, attrs,
                                 i == 2 ? 4 : 0);
    }
    chain_session(r, &at, 1, &rng, plain);
}

/* How many gradients of convolutions a session computes, and how many with channels last. */
static void conv_chain_layouts(const grad_run *r, int *all, int *last)
{
    sbit_node_profile nodes[64];
    const size_t count = sbit_session_profile(r->session, nodes, COUNT(nodes));
    *all = *last = 0;
    CHECK(count <= COUNT(nodes));
    for (size_t i = 0; i < count && i < COUNT(nodes); i++) {
        const sbit_node *node = nodes[i].lowered;
        if (node != NULL && (strcmp(node->op_type, "ConvDataGrad") == 0 ||
                             strcmp(node->op_type, "ConvWeightGrad") == 0)) {
            *all += 1;
            *last += sbit_node_int(node, "channels_last", 0) == 1 ? 1 : 0;
        }
    }
}

TEST(few_channels_have_gradients_with_channels_last)
{
    for (size_t i = 0; i < COUNT(conv_forms); i++) {
        grad_run runs[4]; /* float64; float32 as the graph says, with one and with three threads */
        int all = 0, last = 0, spatial = -1;
        for (const char *p = conv_forms[i].x; *p != '\0'; p++) {
            spatial += *p == ',' ? 1 : 0;
        }
        if (spatial != 2) {
            continue;
        }
        bool ok = true;
        for (int k = 0; k < 4; k++) {
            conv_chain(&runs[k], &conv_forms[i], k == 0 ? SBIT_F64 : SBIT_F32, k == 3 ? 3 : 1, k < 2);
            ok = ok && !runs[k].b.failed && grad_feed(&runs[k]);
        }
        if (ok) {
            conv_chain_layouts(&runs[1], &all, &last);
            CHECK_EQ_I64(all, 6);
            CHECK_EQ_I64(last, 0);
            conv_chain_layouts(&runs[2], &all, &last);
            CHECK_EQ_I64(all, 6);
            CHECK_MSG(last == 6, "%s: %d of 6 gradients have channels last", conv_forms[i].w, last);
        }
        for (size_t at = 1; ok && at < 5; at++) {
            const sbit_tensor *want = &sbit_session_output(runs[0].session, at)->tensor;
            const sbit_tensor *two = &sbit_session_output(runs[2].session, at)->tensor;
            const sbit_tensor *three = &sbit_session_output(runs[3].session, at)->tensor;
            for (int k = 1; k < 3; k++) {
                grad_near(conv_forms[i].w, k, want, &sbit_session_output(runs[k].session, at)->tensor);
            }
            CHECK_MSG(memcmp(two->data, three->data, sbit_tensor_bytes(two)) == 0,
                      "%s: gradient %d depends on the number of threads", conv_forms[i].w, (int)at - 1);
        }
        for (int k = 0; k < 4; k++) {
            grad_end(&runs[k]);
        }
    }
}

/* What comes in of a gradient of x is what comes out of the convolution. */
TEST(gradients_use_winograd_by_their_own_channels)
{
    static const conv_form forms[] = {{"1,16,16,16", "8,16,3,3", NULL, 1, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
                                      {"1,8,16,16", "16,8,3,3", NULL, 1, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL}};
    for (size_t f = 0; f < COUNT(forms); f++) {
        grad_run run;
        sbit_node_profile nodes[64];
        int64_t outputs = 0;
        conv_chain(&run, &forms[f], SBIT_F32, 1, false);
        const size_t count = run.b.failed ? 0 : sbit_session_profile(run.session, nodes, COUNT(nodes));
        for (size_t i = 0; i < count && i < COUNT(nodes); i++) {
            const sbit_node *node = nodes[i].lowered;
            outputs += node != NULL && strcmp(node->op_type, "ConvDataGrad") == 0 ? sbit_node_int(node, "winograd", 0) : 0;
        }
        CHECK_EQ_I64(outputs, f == 0 ? 0 : 4);
        grad_end(&run);
    }
}

/* Weights that are fed and shared, without a gradient: their convolutions stay as they are. */
TEST(fed_weights_without_gradients_keep_channels_first)
{
    build b;
    sbit_session *session = NULL;
    sbit_session_desc desc;
    sbit_node_profile nodes[2];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,9,5,5");
    const sbit_value_id w = build_input(&b, "w", SBIT_F32, "9,9,1,1");
    const sbit_value_id y = build_binary(&b, "Conv", "second", build_binary(&b, "Conv", "first", x, w), w);
    memset(&desc, 0, sizeof desc);
    desc.outputs = &y;
    desc.output_count = 1;
    if (!b.failed && build_do(&b, sbit_session_create(b.graph, &desc, &session, &b.error), "session")) {
        CHECK_EQ_I64(sbit_session_profile(session, nodes, 2), 2);
        CHECK_STR(nodes[0].lowered->op_type, "Conv");
        CHECK_STR(nodes[1].lowered->op_type, "Conv");
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(large_convolutions)
{
    static const conv_form forms[] = {
        {"5,16,19,23", "24,16,3,3", "24", 1, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"5,16,19,23", "24,16,3,3", "24", 1, {2, 2}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"9,40,5,4", "33,40,1,1", NULL, 1, {1, 1}, {0, 0, 0, 0}, {1, 1}, NULL},
        {"3,40,9,9", "33,40,1,1", NULL, 1, {2, 2}, {0, 0, 0, 0}, {1, 1}, NULL},
        {"3,32,17,17", "32,1,3,3", NULL, 32, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"3,32,17,17", "32,1,5,5", NULL, 32, {2, 2}, {2, 2, 2, 2}, {1, 1}, NULL},
        {"2,32,40,41", "48,8,3,3", NULL, 4, {2, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"2,4,1,700", "6,4,1,9", NULL, 1, {1, 1}, {0, 4, 0, 4}, {1, 1}, NULL},
        /* several chunks of images, the last one short */
        {"12,20,40,33", "28,20,3,3", "28", 1, {1, 1}, {2, 2, 2, 2}, {2, 2}, NULL},
        {"31,24,33,30", "20,12,3,5", NULL, 2, {1, 2}, {1, 2, 1, 2}, {1, 1}, NULL},
        {"7,9,30,41", "18,1,3,5", "18", 9, {2, 3}, {0, 2, 1, 3}, {2, 1}, NULL}, /* planes */
        {"40,6,7,7", "12,1,3,3", NULL, 6, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"3,10,13,11", "2,10,5,5", "2", 1, {1, 1}, {2, 2, 2, 2}, {1, 1}, NULL},
    };
    for (size_t i = 0; i < COUNT(forms); i++) {
        conv_check("Conv", &forms[i], grad_check_large);
    }
}

TEST(transposed_convolutions)
{
    static const conv_form forms[] = {
        {"2,3,4,5", "3,4,3,3", "4", 1, {1, 1}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"2,4,4,3", "4,2,3,3", "4", 2, {2, 2}, {1, 1, 1, 1}, {1, 1}, NULL},
        {"1,2,4,3", "2,3,2,3", NULL, 1, {2, 1}, {0, 1, 1, 0}, {1, 2}, NULL},
    };
    for (size_t i = 0; i < COUNT(forms); i++) {
        conv_check("ConvTranspose", &forms[i], grad_check);
    }
}

TEST(pools)
{
    static const int64_t two[] = {2, 2}, three[] = {3, 3}, pads[] = {1, 1, 1, 1},
                         uneven[] = {0, 1, 1, 0};
    for (int mode = 0; mode < 12; mode++) {
        grad_case c = grad_of(mode % 2 == 0 ? "MaxPool" : "AveragePool", "2,2,7,6", NULL, NULL);
        c.opset = 19;
        grad_attr(&c, build_ints("kernel_shape", mode % 4 < 2 ? two : three, 2));
        grad_attr(&c, build_ints("strides", mode % 3 == 0 ? two : three, 2));
        if (mode >= 4) {
            grad_attr(&c, build_ints("pads", mode >= 8 ? uneven : pads, 4));
            grad_attr(&c, build_int("ceil_mode", mode & 1));
        }
        if (mode % 2 == 1) {
            grad_attr(&c, build_int("count_include_pad", mode >> 2 & 1));
        }
        grad_check(&c);
    }
    grad_case average = grad_of("GlobalAveragePool", "2,3,4,5", NULL, NULL);
    grad_check(&average);
    grad_case most = grad_of("GlobalMaxPool", "2,3,4,5", NULL, NULL);
    grad_check(&most);
}

/* x -> Conv 1x1 -> a pool -> Conv 1x1: 70 channels are two units. */
static void pool_chain(grad_run *r, const char *op_type, const sbit_attr *attrs, size_t attr_count,
                       sbit_dtype dtype, int32_t threads, bool plain)
{
    static const char *const dims[] = {"3,5,7,6", "70,5,1,1", "4,70,1,1"};
    sbit_rng rng = sbit_rng_seed(12);
    memset(r, 0, sizeof *r);
    r->dtype = dtype;
    r->count = 3;
    build_begin_threads(&r->b, 19, threads);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        r->data[i] = grad_tensor(dtype, dims[i], &rng, -1, 1);
        r->inputs[i] = build_input(&r->b, name, dtype, dims[i]);
    }
    sbit_value_id at = build_binary(&r->b, "Conv", "first", r->inputs[0], r->inputs[1]);
    at = build_node(&r->b, op_type, "pool", &at, 1, attrs, attr_count);
    at = build_binary(&r->b, "Conv", "second", at, r->inputs[2]);
    chain_session(r, &at, 1, &rng, plain);
}

TEST(pools_have_gradients_with_channels_last)
{
    static const int64_t two[] = {2, 2}, three[] = {3, 3}, uneven[] = {0, 1, 1, 0};
    static const char *const pools[] = {"MaxPool", "AveragePool", "AveragePool", "GlobalMaxPool"};
    for (size_t i = 0; i < COUNT(pools); i++) {
        const sbit_attr attrs[4] = {build_ints("kernel_shape", three, 2), build_ints("strides", two, 2),
                                    build_ints("pads", uneven, 4),
                                    build_int("count_include_pad", i == 2)};
        grad_run runs[4]; /* float64; float32 as the graph says, with one and with three threads */
        bool ok = true;
        int last = 0;
        for (int k = 0; k < 4; k++) {
            pool_chain(&runs[k], pools[i], attrs, i == 0 ? 3 : i == 3 ? 0 : 4, k == 0 ? SBIT_F64 : SBIT_F32,
                       k == 3 ? 3 : 1, k < 2);
            ok = ok && !runs[k].b.failed && grad_feed(&runs[k]);
        }
        sbit_node_profile nodes[64];
        const size_t count = ok ? sbit_session_profile(runs[2].session, nodes, COUNT(nodes)) : 0;
        for (size_t n = 0; n < count; n++) {
            last += nodes[n].lowered != NULL && strcmp(nodes[n].lowered->op_type, "PoolGrad") == 0 &&
                            sbit_node_int(nodes[n].lowered, "channels_last", 0) == 1
                        ? 1
                        : 0;
        }
        CHECK_EQ_I64(last, 1);
        for (size_t at = 1; ok && at < 4; at++) {
            const sbit_tensor *want = &sbit_session_output(runs[0].session, at)->tensor;
            const sbit_tensor *one = &sbit_session_output(runs[2].session, at)->tensor;
            for (int k = 1; k < 3; k++) {
                grad_near(pools[i], k, want, &sbit_session_output(runs[k].session, at)->tensor);
            }
            CHECK_MSG(memcmp(one->data, sbit_session_output(runs[3].session, at)->tensor.data,
                             sbit_tensor_bytes(one)) == 0,
                      "%s: gradient %d depends on the number of threads", pools[i], (int)at - 1);
        }
        for (int k = 0; k < 4; k++) {
            grad_end(&runs[k]);
        }
    }
}

TEST(reductions)
{
    static const int64_t axes[] = {1, -1}, one[] = {0};
    for (int mode = 0; mode < 6; mode++) {
        grad_case c = grad_of(mode % 2 == 0 ? "ReduceMean" : "ReduceSum", "2,3,4", NULL, NULL);
        c.opset = 11;
        grad_attr(&c, build_int("keepdims", mode / 2 == 1 ? 1 : 0));
        if (mode < 4) {
            grad_attr(&c, build_ints("axes", mode < 2 ? axes : one, mode < 2 ? 2 : 1));
        }
        grad_check(&c);
    }
    grad_case listed = grad_of("ReduceMean", "2,3,4", NULL, NULL);
    listed.opset = 18;
    listed.ints[0] = 2;
    listed.ints[1] = 0;
    listed.int_count = 2;
    listed.ints_at = 1;
    grad_check(&listed);
}

static void moves_check(const char *op_type, const char *dims, int64_t opset, const int64_t *ints,
                        size_t count, const sbit_attr *attr)
{
    grad_case c = grad_of(op_type, dims, NULL, NULL);
    c.opset = opset;
    if (count > 0) {
        memcpy(c.ints, ints, count * sizeof *ints);
        c.int_count = count;
        c.ints_at = 1;
    }
    if (attr != NULL) {
        grad_attr(&c, *attr);
    }
    grad_check(&c);
}

TEST(moves)
{
    static const int64_t shape[] = {3, 8}, flat[] = {-1}, perm[] = {2, 0, 1}, wide[] = {2, 3, 4};
    static const int64_t pads[] = {1, 0, 2, 0, 1, 0}, index[] = {2, 0, 2, -1}, ones[] = {1};
    static const int64_t splits[] = {1, 3};
    const sbit_attr by = build_ints("perm", perm, 3), axis1 = build_int("axis", 1);
    moves_check("Reshape", "2,3,4", 17, shape, 2, NULL);
    moves_check("Reshape", "2,3,4", 17, flat, 1, NULL);
    moves_check("Flatten", "2,3,4", 17, NULL, 0, &axis1);
    moves_check("Squeeze", "2,1,4", 17, ones, 1, NULL);
    moves_check("Unsqueeze", "2,4", 17, ones, 1, NULL);
    moves_check("Transpose", "2,3,4", 17, NULL, 0, &by);
    moves_check("Transpose", "2,3,4", 17, NULL, 0, NULL);
    moves_check("Expand", "3,1", 17, wide, 3, NULL);
    moves_check("Pad", "2,3,4", 17, pads, 6, NULL);
    static const int64_t crop[] = {-1, 1, 0, 1};
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    for (int mode = 0; mode < 4; mode++) {
        const sbit_attr how = grad_text("mode", modes[mode]);
        if (mode == 0) {
            moves_check("Pad", "3,4", 19, crop, 4, &how);
        }
        static const int64_t around[] = {1, 2, 1, 0};
        moves_check("Pad", "3,4", 19, around, 4, &how);
    }
    moves_check("Gather", "2,3,4", 17, index, 4, &axis1);
    moves_check("Dropout", "2,3", 17, NULL, 0, NULL);
    grad_case split = grad_of("Split", "2,4,3", NULL, NULL);
    split.opset = 13;
    memcpy(split.ints, splits, sizeof splits);
    split.int_count = 2;
    split.ints_at = 1;
    split.outputs = 2;
    grad_attr(&split, axis1);
    grad_check(&split);
    split.outputs = 1; /* the second is not read: zeros */
    split.ints[0] = 4;
    split.int_count = 1;
    grad_check(&split);
    grad_case concat = grad_of("Concat", "2,3,4", "2,1,4", "2,2,4");
    grad_attr(&concat, axis1);
    grad_check(&concat);
    concat.skip = 2;
    grad_check(&concat);
    static const int64_t starts[] = {1, -1}, ends[] = {3, -5}; /* old form: attributes */
    grad_case slice = grad_of("Slice", "4,5", NULL, NULL);
    slice.opset = 9;
    grad_attr(&slice, build_ints("starts", starts, 1));
    grad_attr(&slice, build_ints("ends", ends, 1));
    grad_check(&slice);
}

TEST(normalizations)
{
    grad_case bn = grad_of("BatchNormalization", "3,4,2,3", "4", "4");
    bn.dims[3] = bn.dims[4] = "4";
    bn.skip = 24;
    bn.low = 0.5;
    bn.high = 2;
    grad_check(&bn);
    bn.domain = "sbit"; /* with the batch's statistics */
    bn.op_type = "BatchNormTrain";
    bn.made = 5;
    grad_check(&bn);
    bn.dims[0] = "5,4";
    grad_check(&bn);
    for (int axis = 1; axis < 3; axis++) {
        grad_case ln = grad_of("LayerNormalization", "2,3,4", axis == 1 ? "3,4" : "4",
                               axis == 1 ? "3,4" : "4");
        grad_attr(&ln, build_int("axis", axis));
        grad_check(&ln);
        ln.op_type = "RMSNormalization";
        ln.opset = 23;
        ln.dims[2] = NULL;
        grad_check(&ln);
    }
    for (int mode = 0; mode < 8; mode++) {
        grad_case s = grad_of(mode % 2 == 0 ? "Softmax" : "LogSoftmax", "2,3,4", NULL, NULL);
        s.opset = mode < 4 ? 13 : 11;
        grad_attr(&s, build_int("axis", 1 + mode / 2 % 2));
        s.low = -3;
        s.high = 3;
        grad_check(&s);
    }
}

/* float32 rows far from 0 keep their digits: the sums of 1000 / sd are taken off in double. */
TEST(normalization_of_a_row_with_a_large_mean)
{
    static const float x[4] = {999.5f, 1000.5f, 999.75f, 1000.25f};
    static const float dy[4] = {1.0f, -2.0f, 0.5f, 3.0f};
    const double inverse = 1.0 / sqrt(0.15625);
    const sbit_attr attr = build_float("epsilon", 0.0f);
    sbit_session *session = NULL;
    sbit_value_id in[2], out[2];
    double dot = 0.0, sum = 0.0;
    build b;
    build_begin(&b, 17);
    in[0] = build_input(&b, "dy", SBIT_F32, "1,4");
    in[1] = build_input(&b, "x", SBIT_F32, "1,4");
    build_node_outputs(&b, "sbit", "NormGrad", "n", in, 2, &attr, 1, out, 2);
    build_output(&b, out[0]);
    build_output(&b, out[1]);
    CHECK_OK(sbit_session_create(b.graph, NULL, &session, &b.error), b.error);
    for (int i = 0; i < 2 && session != NULL; i++) {
        const sbit_tensor tensor = build_tensor(SBIT_F32, "1,4", i == 0 ? dy : x);
        CHECK_OK(sbit_session_set_input_at(session, (size_t)i, &tensor, &b.error), b.error);
    }
    if (session != NULL && CHECK_OK(sbit_session_run(session, &b.error), b.error)) {
        const float *dx = (const float *)sbit_session_output(session, 0)->tensor.data;
        const float *n = (const float *)sbit_session_output(session, 1)->tensor.data;
        for (int i = 0; i < 4; i++) {
            dot += (double)dy[i] * ((double)x[i] - 1000.0) * inverse / 4.0;
            sum += (double)dy[i] / 4.0;
        }
        for (int i = 0; i < 4; i++) {
            const double want = ((double)x[i] - 1000.0) * inverse;
            CHECK_NEAR(n[i], want, 1e-6);
            CHECK_NEAR(dx[i], inverse * ((double)dy[i] - sum - want * dot), 1e-6);
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

TEST(recurrent)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    for (int mode = 0; mode < 3; mode++) {
        grad_case c = grad_of("LSTM", "4,2,3", mode < 2 ? "1,20,3" : "2,20,3",
                              mode < 2 ? "1,20,5" : "2,20,5");
        c.dims[3] = mode < 2 ? "1,40" : "2,40";
        grad_attr(&c, build_int("hidden_size", 5));
        grad_attr(&c, grad_text("direction", directions[mode]));
        c.outputs = 3;
        grad_check(&c);
    }
    for (int mode = 0; mode < 6; mode++) {
        const bool both = mode / 2 == 2;
        grad_case c =
            grad_of("GRU", "4,2,3", both ? "2,15,3" : "1,15,3", both ? "2,15,5" : "1,15,5");
        c.dims[3] = both ? "2,30" : "1,30";
        grad_attr(&c, build_int("hidden_size", 5));
        grad_attr(&c, build_int("linear_before_reset", mode % 2));
        grad_attr(&c, grad_text("direction", directions[mode / 2]));
        c.outputs = 2;
        grad_check(&c);
    }
}

/* An LSTM with states before and behind it, and its gradients; x: steps, samples, features; again: gates are
 * not kept. */
static void lstm_chain(grad_run *r, const char *direction, const int x[3], sbit_dtype dtype, int32_t threads,
                       bool plain, bool again)
{
    const int d = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    const int dims[6][3] = {{x[0], x[1], x[2]}, {d, 96, x[2]},  {d, 96, 24},
                            {d, 192, 0},        {d, x[1], 24}, {d, x[1], 24}};
    const sbit_attr attrs[2] = {build_int("hidden_size", 24), grad_text("direction", direction)};
    sbit_value_id inputs[7], outputs[3] = {{0}, {0}, {0}};
    sbit_rng rng = sbit_rng_seed(13);
    memset(r, 0, sizeof *r);
    memset(inputs, 0, sizeof inputs);
    r->dtype = dtype;
    r->again = again;
    r->count = 6;
    build_begin_threads(&r->b, 17, threads);
    for (size_t i = 0; i < 6; i++) {
        char name[16], text[40];
        snprintf(name, sizeof name, "x%d", (int)i);
        snprintf(text, sizeof text, i == 3 ? "%d,%d" : "%d,%d,%d", dims[i][0], dims[i][1], dims[i][2]);
        r->data[i] = grad_tensor(dtype, text, &rng, -0.5, 0.5);
        r->inputs[i] = inputs[i < 4 ? i : i + 1] = build_input(&r->b, name, dtype, text);
    }
    build_node_outputs(&r->b, "", "LSTM", "op", inputs, 7, attrs, 2, outputs, 3);
    chain_session(r, outputs, 3, &rng, plain);
}

/* What LSTM keeps for its gradient is what the gradient computes again where nothing is kept. */
TEST(kept_gates_are_those_that_are_computed_again)
{
    static const char *const directions[] = {"forward", "reverse", "bidirectional", "forward"};
    for (size_t i = 0; i < COUNT(directions); i++) {
        grad_run runs[4]; /* float64; float32 as the graph says, with one and with three threads */
        bool ok = true, kept = false;
        for (int k = 0; k < 4; k++) {
            const int x[3] = {20, 7, i == 3 ? 0 : 9};
            lstm_chain(&runs[k], directions[i], x, k == 0 ? SBIT_F64 : SBIT_F32, k == 3 ? 3 : 1, k < 2, false);
            ok = ok && !runs[k].b.failed && grad_feed(&runs[k]);
        }
        sbit_node_profile nodes[64];
        const size_t count = ok ? sbit_session_profile(runs[2].session, nodes, COUNT(nodes)) : 0;
        for (size_t n = 0; n < count; n++) {
            kept = kept || (nodes[n].lowered != NULL && strcmp(nodes[n].lowered->op_type, "LSTM") == 0 &&
                            nodes[n].lowered->output_count == 4);
        }
        CHECK(kept);
        for (size_t at = 0; ok && at < 7; at++) {
            const sbit_tensor *want = &sbit_session_output(runs[0].session, at)->tensor;
            const sbit_tensor *again = &sbit_session_output(runs[1].session, at)->tensor;
            grad_near(directions[i], (int)at, want, again);
            for (int k = 2; k < 4; k++) {
                const sbit_tensor *have = &sbit_session_output(runs[k].session, at)->tensor;
                CHECK_MSG(memcmp(have->data, again->data, sbit_tensor_bytes(have)) == 0,
                          "%s, %s threads: result %d is not that of gates that are computed again",
                          directions[i], k == 2 ? "one" : "three", (int)at);
            }
        }
        for (int k = 0; k < 4; k++) {
            grad_end(&runs[k]);
        }
    }
}

/* Gates that are made part by part on the way back are those of all steps at once, also in a last part of few
 * rows. */
TEST(gates_made_twice_are_the_same)
{
    static const int sizes[][3] = {{20, 7, 9}, {25, 2, 9}, {17, 3, 30}, {5, 1, 8}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        grad_run runs[2];
        bool ok = true;
        for (int k = 0; k < 2; k++) {
            lstm_chain(&runs[k], "forward", sizes[i], SBIT_F32, 1, true, k == 1);
            ok = ok && !runs[k].b.failed && grad_feed(&runs[k]);
        }
        CHECK(ok);
        for (size_t at = 1; ok && at < 7; at++) {
            const sbit_tensor *once = &sbit_session_output(runs[0].session, at)->tensor;
            CHECK_MSG(memcmp(once->data, sbit_session_output(runs[1].session, at)->tensor.data,
                             sbit_tensor_bytes(once)) == 0,
                      "%d steps of %d samples: gradient %d is another", sizes[i][0], sizes[i][1], (int)at - 1);
        }
        grad_end(&runs[0]);
        grad_end(&runs[1]);
    }
}

TEST(more_reductions_and_extremes)
{
    static const char *const names[] = {"ReduceL1",        "ReduceL2",  "ReduceLogSumExp",
                                        "ReduceSumSquare", "ReduceMax", "ReduceMin"};
    static const int64_t axes[] = {1};
    for (size_t i = 0; i < COUNT(names); i++) {
        for (int keep = 0; keep < 2; keep++) {
            grad_case c = grad_of(names[i], "2,3,4", NULL, NULL);
            c.opset = 11;
            grad_attr(&c, build_ints("axes", axes, 1));
            grad_attr(&c, build_int("keepdims", keep));
            grad_check(&c);
        }
    }
    grad_case most = grad_of("Max", "2,3,4", "3,1", "4");
    grad_check(&most);
    most.op_type = "Min";
    grad_check(&most);
}

TEST(group_normalization)
{
    grad_case c = grad_of("InstanceNormalization", "2,4,3,2", "4", "4");
    grad_check(&c);
    c.op_type = "GroupNormalization";
    c.opset = 21;
    grad_attr(&c, build_int("num_groups", 2));
    grad_check(&c);
    c.opset = 18;
    c.dims[1] = c.dims[2] = "2";
    grad_check(&c);
}

TEST(more_moves)
{
    static const int64_t repeats[] = {2, 1, 3}, lengths[] = {3, 2};
    const sbit_attr block = build_int("blocksize", 2);
    moves_check("Tile", "1,2,3", 13, repeats, 3, NULL);
    moves_check("DepthToSpace", "1,8,2,3", 13, NULL, 0, &block);
    moves_check("SpaceToDepth", "1,2,4,6", 13, NULL, 0, &block);
    moves_check("ReverseSequence", "4,2,3", 10, lengths, 2, NULL);
    grad_case up = grad_of("Upsample", "1,2,3,2", NULL, NULL);
    static const float scales[] = {1, 1, 2, 3};
    sbit_attr attr = build_int("scales", 0);
    attr.type = SBIT_ONNX_ATTR_FLOATS;
    attr.floats = scales;
    attr.count = 4;
    up.opset = 7;
    grad_attr(&up, attr);
    grad_check(&up);
}

TEST(einsum_forms)
{
    static const char *const forms[][4] = {{"ij,jk->ik", "2,3", "3,4", NULL},
                                           {"bhid, bhjd -> bhij", "2,2,3,4", "2,2,5,4", NULL},
                                           {"ij->ji", "2,3", NULL, NULL},
                                           {"bi,ij,bj->b", "2,3", "3,4", "2,4"},
                                           {"...ij,jk->...ik", "2,3,4,2", "2,3", NULL},
                                           {"...i,...i->...", "2,1,3", "4,3", NULL},
                                           {"i...,i...j->...j", "2,3", "2,3,4", NULL}};
    for (size_t i = 0; i < COUNT(forms); i++) {
        grad_case c = grad_of("Einsum", forms[i][1], forms[i][2], forms[i][3]);
        grad_attr(&c, grad_text("equation", forms[i][0]));
        grad_check(&c);
    }
}

/* ---- the less common operators: one line each: operator, shapes of up to five float inputs, an
 * integer list and its place, attributes as text "name=1 name=0.5 name=[1,2] name='x'" */

typedef struct rare_case {
    const char *op_type;
    int64_t opset;
    const char *dims[8];
    const char *list; /* "2,0,1" */
    int list_at;
    const char *attrs;
    double low, high;
    uint32_t skip;
    size_t outputs, made;
} rare_case;

static size_t rare_ints(const char *text, int64_t *out)
{
    size_t count = 0;
    for (const char *p = text; p != NULL && *p != '\0' && *p != ']'; p += *p == ',' ? 1 : 0) {
        char *end = NULL;
        out[count++] = strtoll(p, &end, 10);
        p = end;
    }
    return count;
}

static void rare_attrs(grad_case *c, const char *text, char *names, int64_t *room)
{
    for (const char *p = text; p != NULL && *p != '\0'; p += *p == ' ' ? 1 : 0) {
        const size_t size = strcspn(p, "=");
        const char *value = p + size + 1;
        memcpy(names, p, size);
        names[size] = '\0';
        p = value + strcspn(value, " ");
        if (*value == '[') {
            const size_t count = rare_ints(value + 1, room);
            grad_attr(c, build_ints(names, room, count));
            room += count;
        } else if (*value == '\'') {
            const size_t length = strcspn(value + 1, "'");
            char *copy = names + size + 1;
            memcpy(copy, value + 1, length);
            copy[length] = '\0';
            grad_attr(c, grad_text(names, copy));
            names = copy + length - size;
        } else if (memchr(value, '.', (size_t)(p - value)) != NULL) {
            grad_attr(c, build_float(names, (float)atof(value)));
        } else {
            grad_attr(c, build_int(names, atoll(value)));
        }
        names += size + 1;
    }
}

static void rare_check_of(const char *domain, const rare_case *r)
{
    char names[512];
    int64_t room[32];
    grad_case c = grad_of(r->op_type, r->dims[0], r->dims[1], r->dims[2]);
    memcpy(c.dims, r->dims, sizeof c.dims);
    c.opset = r->opset;
    c.low = r->low;
    c.high = r->high;
    c.skip = r->skip;
    c.outputs = r->outputs;
    c.made = r->made;
    if (r->list != NULL) {
        c.int_count = rare_ints(r->list, c.ints);
        c.ints_at = r->list_at;
    }
    c.domain = domain;
    rare_attrs(&c, r->attrs, names, room);
    grad_check(&c);
}

static void rare_check(const rare_case *r)
{
    rare_check_of(NULL, r);
}

/* No samples: parameters get zeros. */
TEST(batches_of_nothing)
{
    static const rare_case cases[] = {
        {"Conv", 17, {"0,2,4,4", "3,2,3,3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"Conv", 17, {"0,2,4,4", "2,1,3,3", "2"}, NULL, 0, "group=2", 0, 0, 0, 0, 0},
        {"ConvTranspose", 17, {"0,2,4,4", "2,3,3,3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"MatMul", 17, {"0,3", "3,2"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"MatMul", 17, {"2,0,3", "2,3,2"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"MatMul", 17, {"0,4,3", "3,2"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"Gemm", 17, {"0,3", "2,3", "2"}, NULL, 0, "transB=1", 0, 0, 0, 0, 0},
        {"Add", 17, {"0,3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"PRelu", 17, {"0,3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"LayerNormalization", 17, {"0,4", "4", "4"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"RMSNormalization", 23, {"0,4", "4"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"InstanceNormalization", 17, {"0,3,4", "3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"GroupNormalization", 21, {"0,4,3", "4", "4"}, NULL, 0, "num_groups=2", 0, 0, 0, 0, 0},
        {"BatchNormalization", 17, {"0,3,4", "3", "3", "3", "3"}, NULL, 0, "", 0.5, 1.5, 24, 0, 0},
        {"Einsum", 17, {"0,3", "3,2"}, NULL, 0, "equation='ij,jk->ik'", 0, 0, 0, 0, 0},
        {"Attention", 23, {"0,2,3,4", "0,2,5,4", "0,2,5,4"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"RNN", 17, {"2,0,3", "1,5,3", "1,5,5", "1,10", "-", "1,0,5"}, NULL, 0, "hidden_size=5", 0,
         0, 0, 2, 0},
        {"RNN", 17, {"0,2,3", "1,5,3", "1,5,5", "1,10", "-", "1,2,5"}, NULL, 0, "hidden_size=5", 0,
         0, 0, 2, 0},
        {"LRN", 17, {"0,3,2,2"}, NULL, 0, "size=3", 0, 0, 0, 0, 0},
        {"LpPool", 18, {"0,3,4,4"}, NULL, 0, "kernel_shape=[2,2]", 0, 0, 0, 0, 0},
        {"GridSample", 20, {"0,1,4,4", "0,2,3,2"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"Resize", 19, {"0,2,4,3", "-", "-"}, "0,2,5,7", 3, "mode='linear'", 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rare_check(&cases[i]);
    }
}

/* No steps: the states come through; no sequences: the weights get zeros. */
TEST(recurrent_over_nothing)
{
    for (int mode = 0; mode < 4; mode++) {
        const bool steps = mode / 2 == 1, gru = mode % 2 == 1;
        grad_case c = grad_of(gru ? "GRU" : "LSTM", steps ? "2,0,3" : "0,2,3",
                              gru ? "1,15,3" : "1,20,3", gru ? "1,15,5" : "1,20,5");
        c.dims[3] = gru ? "1,30" : "1,40";
        c.dims[4] = "-";
        c.dims[5] = steps ? "1,0,5" : "1,2,5";
        c.dims[6] = gru ? NULL : c.dims[5];
        grad_attr(&c, build_int("hidden_size", 5));
        c.outputs = gru ? 2 : 3;
        grad_check(&c);
    }
}

TEST(less_common_operators)
{
    static const rare_case cases[] = {
        {"ReduceLogSum", 11, {"2,3,4"}, NULL, 0, "axes=[1] keepdims=0", 0.5, 2, 0, 0, 0},
        {"ReduceLogSum", 18, {"2,3,4"}, "2,0", 1, "keepdims=1", 0.5, 2, 0, 0, 0},
        {"ReduceProd", 11, {"2,3,4"}, NULL, 0, "axes=[1] keepdims=0", 0, 0, 0, 0, 0},
        {"ReduceProd", 18, {"2,3,4"}, "2", 1, "keepdims=1", 0, 0, 0, 0, 0},
        {"LpNormalization", 22, {"2,3,4"}, NULL, 0, "axis=1 p=2", 0, 0, 0, 0, 0},
        {"LpNormalization", 11, {"2,3,4"}, NULL, 0, "axis=-1 p=1", 0.3, 1, 0, 0, 0},
        {"MeanVarianceNormalization", 13, {"2,3,2,3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"MeanVarianceNormalization", 9, {"2,3,4"}, NULL, 0, "axes=[1,-1]", 0, 0, 0, 0, 0},
        {"LRN", 13, {"2,7,2,3"}, NULL, 0, "size=3 alpha=0.7 beta=0.6 bias=1.5", 0, 0, 0, 0, 0},
        {"LRN", 13, {"1,5,3"}, NULL, 0, "size=4 alpha=0.9", 0, 0, 0, 0, 0},
        {"Mod", 13, {"2,3", "3"}, NULL, 0, "fmod=1", 1.1, 1.9, 0, 0, 0},
        {"Trilu", 14, {"2,3,4"}, NULL, 0, "upper=0", 0, 0, 0, 0, 0},
        {"CumSum", 14, {"2,3,4"}, "1", 1, "exclusive=1", 0, 0, 0, 0, 0},
        {"CumSum", 14, {"2,3,4"}, "2", 1, "reverse=1", 0, 0, 0, 0, 0},
        {"LpPool",
         18,
         {"1,2,6,5"},
         NULL,
         0,
         "kernel_shape=[3,2] strides=[2,1] pads=[1,0,1,1] p=2",
         0,
         0,
         0,
         0,
         0},
        {"LpPool", 18, {"1,2,6,5"}, NULL, 0, "kernel_shape=[2,2] p=3", 0, 0, 0, 0, 0},
        {"GlobalLpPool", 22, {"2,3,4,2"}, NULL, 0, "p=2", 0, 0, 0, 0, 0},
        {"GlobalLpPool", 22, {"2,3,4"}, NULL, 0, "p=1", 0, 0, 0, 0, 0},
        {"TopK", 11, {"3,5"}, "2", 1, "axis=1 largest=0", 0, 0, 0, 1, 2},
        {"CenterCropPad", 18, {"4,5"}, "6,3", 1, "", 0, 0, 0, 0, 0},
        {"CumProd", 26, {"2,3,4"}, "1", 1, "", 0, 0, 0, 0, 0},
        {"CumProd", 26, {"2,3,4"}, "-1", 1, "exclusive=1", 0, 0, 0, 0, 0},
        {"CumProd", 26, {"2,5"}, "1", 1, "exclusive=1 reverse=1", 0, 0, 0, 0, 0},
        {"CumProd", 26, {"2,3,4"}, "0", 1, "reverse=1", 0, 0, 0, 0, 0},
        {"Dropout", 13, {"3,40"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"DFT", 17, {"2,5,1"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"DFT", 17, {"2,6,3,2"}, NULL, 0, "axis=2", 0, 0, 0, 0, 0},
        {"DFT", 20, {"2,6,1"}, NULL, 0, "onesided=1", 0, 0, 0, 0, 0},
        {"DFT", 20, {"2,5,2"}, NULL, 0, "inverse=1", 0, 0, 0, 0, 0},
        {"STFT", 17, {"2,11,1", "4"}, "3", 1, "", 0, 0, 0, 0, 0},
        {"STFT", 17, {"2,7,1"}, "2", 1, "onesided=0", 0, 0, 0, 0, 0},
        {"OneHot", 11, {"2,3", "2"}, "3", 1, "axis=1", 0.1, 2.9, 1, 0, 0},
        {"Det", 11, {"3,3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"Det", 11, {"2,2,4,4"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"Det", 11, {"2,1,1"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"GridSample", 16, {"2,3,4,5", "2,3,2,2"}, NULL, 0, "", -0.9, 0.9, 0, 0, 0},
        {"GridSample", 16, {"1,2,4,5", "1,3,4,2"}, NULL, 0, "align_corners=1", -1.4, 1.4, 0, 0, 0},
        {"GridSample", 16, {"1,2,4,5", "1,3,4,2"}, NULL, 0,
         "mode='bicubic' padding_mode='border'", -1.4, 1.4, 0, 0, 0},
        {"GridSample", 20, {"1,2,4,5", "1,3,4,2"}, NULL, 0, "padding_mode='reflection'", -3.3, 3.3,
         0, 0, 0},
        {"GridSample", 20, {"1,2,4,5", "1,3,4,2"}, NULL, 0,
         "mode='cubic' padding_mode='reflection' align_corners=1", -2.7, 2.7, 0, 0, 0},
        {"GridSample", 20, {"1,2,3,4,3", "1,2,2,2,3"}, NULL, 0, "padding_mode='border'", -1.4, 1.4,
         0, 0, 0},
        {"GridSample", 20, {"1,2,4,5", "1,3,4,2"}, NULL, 0, "mode='nearest'", -0.9, 0.9, 2, 0, 0},
        {"RoiAlign", 10, {"2,3,5,6", "2,4"}, "1,0", 2, "output_height=2 output_width=3", 0.2, 4.1,
         2, 0, 0},
        {"RoiAlign", 16, {"2,3,5,6", "3,4"}, "1,0,1", 2,
         "output_height=2 output_width=2 sampling_ratio=2 spatial_scale=0.9", 0.2, 5.9, 2, 0, 0},
        {"RoiAlign", 16, {"2,2,5,6", "3,4"}, "1,0,1", 2,
         "output_height=2 output_width=2 mode='max' sampling_ratio=3", 0.2, 5.9, 2, 0, 0},
        {"MaxRoiPool", 22, {"5,2,5,6", "3,5"}, NULL, 0, "pooled_shape=[2,3] spatial_scale=0.8", 0.2,
         4.1, 2, 0, 0},
        {"SwiGLU", 28, {"3,4", "3,4"}, NULL, 0, "alpha=1.3", -3, 3, 0, 0, 0},
        {"AffineGrid", 20, {"2,2,3"}, "2,1,2,3", 1, "", 0, 0, 0, 0, 0},
        {"AffineGrid", 20, {"1,3,4"}, "1,1,2,1,3", 1, "align_corners=1", 0, 0, 0, 0, 0},
        {"CausalConvWithState", 27, {"2,3,4", "3,1,3", "3", "2,3,2"}, NULL, 0, "activation='silu'",
         0, 0, 0, 2, 0},
        {"CausalConvWithState", 27, {"1,2,3", "2,1,2"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"DeformConv", 19, {"2,2,4,3", "3,2,2,2", "2,8,3,2"}, NULL, 0, "", -0.9, 0.9, 0, 0, 0},
        {"DeformConv", 22, {"1,4,5,4", "4,2,3,2", "1,24,2,4", "4", "1,12,2,4"}, NULL, 0,
         "group=2 offset_group=2 strides=[2,1] pads=[1,1,0,1] dilations=[1,2]", -0.9, 0.9, 0, 0, 0},
        {"DeformConv", 22, {"1,6,4", "4,3,2", "1,2,3"}, NULL, 0, "group=2", -0.9, 0.9, 0, 0, 0},
        {"DeformConv", 22, {"1,2,3,3,3", "1,2,2,2,2", "1,24,2,2,2", "-", "1,8,2,2,2"}, NULL, 0, "",
         -0.9, 0.9, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rare_check(&cases[i]);
    }
}

/* Blocks that overlap, some of them over the edge. */
TEST(blocks_that_are_added_up)
{
    static const int64_t pads[4] = {1, 1, 1, 1};
    grad_case c = grad_of("Col2Im", "2,18,9", NULL, NULL);
    c.opset = 18;
    c.ints[0] = c.ints[1] = 3;
    c.int_count = 2;
    c.ints_at = 1;
    c.twice = true;
    grad_attr(&c, build_ints("pads", pads, 4));
    grad_check(&c);
}

/* The same elements in both directions, types and for any number of threads. */
TEST(dropout_while_training)
{
    static const rare_case c = {"DropoutTrain", 17, {"3,40"}, "7", 1, "ratio=0.4 seed=3",
                                0,              0,  0,        0,   0};
    rare_check_of("sbit", &c);
}

TEST(operators_written_with_others)
{
    static const rare_case cases[] = {
        {"BiasGelu", 17, {"2,3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"FastGelu", 17, {"2,3", "3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"QuickGelu", 17, {"2,3"}, NULL, 0, "alpha=1.702", 0, 0, 0, 0, 0},
        {"FusedMatMul", 17, {"2,3", "4,3"}, NULL, 0, "transB=1 alpha=0.5", 0, 0, 0, 0, 0},
        {"FusedGemm", 17, {"2,3", "3,4", "4"}, NULL, 0, "activation='Tanh'", 0, 0, 0, 0, 0},
        {"SkipLayerNormalization", 17, {"2,3,4", "2,3,4", "4", "4"}, NULL, 0, "", 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rare_check_of("com.microsoft", &cases[i]);
    }
}

TEST(resize_by_weights)
{
    static const char *const modes[] = {"mode='linear'", "mode='cubic'"};
    static const char *const places[] = {
        "",
        "coordinate_transformation_mode='align_corners'",
        "coordinate_transformation_mode='asymmetric'",
        "coordinate_transformation_mode='pytorch_half_pixel' exclude_outside=1",
        "antialias=1",
    };
    static const char *const sizes[] = {"1,2,5,7", "1,2,3,2", "1,2,4,3", "2,3,5,4"};
    for (size_t i = 0; i < COUNT(modes) * COUNT(places) * COUNT(sizes); i++) {
        char attrs[128];
        snprintf(attrs, sizeof attrs, "%s %s", modes[i % 2], places[i / 2 % COUNT(places)]);
        rare_case r = {
            "Resize", 19, {"1,2,4,3", "-", "-"}, sizes[i / 2 / COUNT(places)], 3, attrs, 0, 0, 0,
            0,        0};
        rare_check(&r);
    }
}

TEST(recurrent_forms)
{
    static const rare_case cases[] = {
        {"RNN", 14, {"3,2,3", "1,4,3", "1,4,4", "1,8"}, NULL, 0, "hidden_size=4", 0, 0, 0, 2, 0},
        {"RNN",
         14,
         {"3,2,3", "2,4,3", "2,4,4", "2,8"},
         NULL,
         0,
         "hidden_size=4 direction='bidirectional' clip=0.4",
         0,
         0,
         0,
         2,
         0},
        {"RNN",
         14,
         {"2,3,3", "1,4,3", "1,4,4"},
         NULL,
         0,
         "hidden_size=4 layout=1 direction='reverse'",
         0,
         0,
         0,
         2,
         0},
        {"GRU",
         14,
         {"2,3,3", "1,12,3", "1,12,4", "1,24"},
         NULL,
         0,
         "hidden_size=4 layout=1",
         0,
         0,
         0,
         2,
         0},
        {"GRU",
         14,
         {"3,2,3", "1,12,3", "1,12,4", "1,24"},
         NULL,
         0,
         "hidden_size=4 clip=0.6 linear_before_reset=1",
         0,
         0,
         0,
         2,
         0},
        {"LSTM",
         14,
         {"2,3,3", "1,16,3", "1,16,4", "1,32"},
         NULL,
         0,
         "hidden_size=4 layout=1 input_forget=1",
         0,
         0,
         0,
         3,
         0},
        {"LSTM",
         14,
         {"3,2,3", "2,16,3", "2,16,4", "2,32"},
         NULL,
         0,
         "hidden_size=4 clip=0.7 direction='bidirectional'",
         0,
         0,
         0,
         3,
         0},
        {"LSTM",
         14,
         {"3,2,3", "1,16,3", "1,16,4", "1,32", "-", "1,2,4", "1,2,4", "1,12"},
         NULL,
         0,
         "hidden_size=4",
         0,
         0,
         0,
         3,
         0},
        {"GRU",
         14,
         {"3,2,3", "1,12,3", "1,12,4", "-", "-", "1,2,4"},
         NULL,
         0,
         "hidden_size=4 layout=0 clip=5.0",
         0,
         0,
         0,
         2,
         0},
    };
    static const char *const functions[] = {
        "Relu",        "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
        "HardSigmoid", "Elu",    "Softsign",  "Softplus",        "Sigmoid"};
    for (size_t i = 0; i < COUNT(cases); i++) {
        rare_check(&cases[i]);
    }
    for (size_t i = 0; i < COUNT(functions); i++) {
        sbit_str name;
        sbit_attr attr = build_int("activations", 0);
        grad_case c = grad_of("RNN", "3,2,3", "1,4,3", "1,4,4");
        name.data = functions[i];
        name.size = strlen(functions[i]);
        attr.type = SBIT_ONNX_ATTR_STRINGS;
        attr.strings = &name;
        attr.count = 1;
        c.dims[3] = "1,8";
        c.outputs = 2;
        grad_attr(&c, build_int("hidden_size", 4));
        grad_attr(&c, attr);
        grad_check(&c);
    }
    static const int32_t lengths[] = {3, 1}; /* the list holds them */
    grad_case c = grad_of("LSTM", "3,2,3", "2,16,3", "2,16,4");
    c.dims[3] = "2,32";
    c.outputs = 3;
    c.ints_at = 4;
    c.int_count = 2;
    c.list_type = SBIT_I32;
    memcpy(c.ints, lengths, sizeof lengths);
    grad_attr(&c, build_int("hidden_size", 4));
    grad_attr(&c, grad_text("direction", "bidirectional"));
    grad_check(&c);
}

/* FlexAttention becomes what it is defined by; heads that share keys. (Its bodies: test_passes.) */
TEST(flex_attention)
{
    grad_case c = grad_of("FlexAttention", "2,2,3,4", "2,2,5,4", "2,2,5,3");
    c.domain = "ai.onnx.preview";
    c.opset = 24;
    grad_check(&c);
    c = grad_of("FlexAttention", "2,4,3,4", "2,2,5,4", "2,2,5,3");
    c.domain = "ai.onnx.preview";
    c.opset = 24;
    grad_attr(&c, build_float("scale", 0.7f));
    grad_check(&c);
}

TEST(attention_forms)
{
    static const rare_case cases[] = {
        {"Attention", 23, {"2,2,3,4", "2,2,5,4", "2,2,5,3"}, NULL, 0, "", 0, 0, 0, 0, 0},
        {"Attention",
         23,
         {"1,4,3,4", "1,2,5,4", "1,2,5,4", "3,5"},
         NULL,
         0,
         "scale=0.7",
         0,
         0,
         0,
         0,
         0},
        {"Attention",
         23,
         {"2,3,8", "2,5,4", "2,5,6"},
         NULL,
         0,
         "q_num_heads=4 kv_num_heads=2 softcap=1.5 is_causal=1",
         0,
         0,
         0,
         0,
         0},
        {"Attention",
         23,
         {"1,2,3,4", "1,2,3,4", "1,2,3,3", "3,5", "1,2,2,4", "1,2,2,3"},
         NULL,
         0,
         "is_causal=1",
         0,
         0,
         0,
         1,
         3},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rare_check(&cases[i]);
    }
}

/* The gradient of y = x w + b with x [3,50,inner], w [inner,40]; fused: nodes that give both. */
static void bias_run(sbit_dtype dtype, int64_t inner, int32_t threads, bool plain, sbit_tensor *dw,
                     sbit_tensor *db, int *fused)
{
    sbit_rng rng = sbit_rng_seed(5);
    char dims[32];
    build b;
    sbit_session *session = NULL;
    sbit_session_desc desc;
    sbit_value_id in[3], grads[2] = {{0}, {0}}, outs[2], y;
    sbit_tensor data[3];
    sbit_node_profile nodes[64];
    build_begin_threads(&b, 17, threads);
    snprintf(dims, sizeof dims, "3,50,%d", (int)inner);
    data[0] = grad_tensor(dtype, dims, &rng, -1, 1);
    in[0] = build_input(&b, "x", dtype, dims);
    snprintf(dims, sizeof dims, "%d,40", (int)inner);
    data[1] = grad_tensor(dtype, dims, &rng, -1, 1);
    in[1] = build_input(&b, "w", dtype, dims);
    data[2] = grad_tensor(dtype, "40", &rng, -1, 1);
    in[2] = build_input(&b, "b", dtype, "40");
    y = build_binary(&b, "Add", "y", build_binary(&b, "MatMul", "xw", in[0], in[1]), in[2]);
    const sbit_value_id loss = grad_loss(&b, dtype, &y, 1, &rng);
    build_do(&b, sbit_graph_add_gradients(b.graph, loss, in + 1, 2, grads, &b.error), "gradients");
    memcpy(outs, grads, sizeof outs);
    memset(&desc, 0, sizeof desc);
    desc.outputs = outs;
    desc.output_count = 2;
    desc.disable_fusion = plain;
    build_do(&b, sbit_session_create(b.graph, &desc, &session, &b.error), "session");
    for (int i = 0; i < 3 && !b.failed; i++) {
        static const char *const names[3] = {"x", "w", "b"};
        build_do(&b, sbit_session_set_input(session, names[i], &data[i], &b.error), names[i]);
    }
    *fused = 0;
    if (!b.failed && build_do(&b, sbit_session_run(session, &b.error), "run")) {
        *dw = sbit_session_output(session, 0)->tensor;
        *db = sbit_session_output(session, 1)->tensor;
        dw->data = memcpy(malloc(sbit_tensor_bytes(dw)), dw->data, sbit_tensor_bytes(dw));
        db->data = memcpy(malloc(sbit_tensor_bytes(db)), db->data, sbit_tensor_bytes(db));
        const size_t count = sbit_session_profile(session, nodes, COUNT(nodes));
        for (size_t i = 0; i < count && i < COUNT(nodes); i++) {
            *fused += nodes[i].fused_into.idx == 0 && nodes[i].lowered->output_count == 2 ? 1 : 0;
        }
    }
    sbit_session_destroy(session);
    for (int i = 0; i < 3; i++) {
        free(data[i].data);
    }
    build_end(&b);
}

/* A bias's gradient is made beside its weight's, few rows of which are not packed. */
TEST(gradients_of_weight_and_bias)
{
    static const int64_t inner[] = {60, 10, 200};
    for (size_t i = 0; i < COUNT(inner); i++) {
        sbit_tensor dw[4], db[4];
        int fused = 0;
        memset(dw, 0, sizeof dw);
        memset(db, 0, sizeof db);
        for (int k = 0; k < 4; k++) {
            bias_run(k == 0 ? SBIT_F64 : SBIT_F32, inner[i], k == 2 ? 3 : 1, k == 3, &dw[k], &db[k], &fused);
            CHECK_EQ_I64(fused, k == 1 || k == 2);
        }
        for (int k = 1; k < 4 && db[0].data != NULL && db[k].data != NULL; k++) {
            grad_near("weight", k, &dw[0], &dw[k]);
            grad_near("bias", k, &db[0], &db[k]);
        }
        CHECK(memcmp(dw[1].data, dw[2].data, sbit_tensor_bytes(&dw[1])) == 0);
        CHECK(memcmp(db[1].data, db[2].data, sbit_tensor_bytes(&db[1])) == 0);
        for (int k = 0; k < 4; k++) {
            free(dw[k].data);
            free(db[k].data);
        }
    }
}

/* Queries in several pieces, heads that share keys. */
TEST(attention_of_many_queries)
{
    for (int64_t causal = 0; causal < 2; causal++) {
        grad_case c = grad_of("Attention", "1,4,150,6", "1,2,150,6", "1,2,150,5");
        c.opset = 23;
        grad_attr(&c, build_int("is_causal", causal));
        grad_check_large(&c);
    }
}

/* ---- operators whose other inputs are integers */

/* y = op(x, list [, u]) with a list of any shape in the middle. */
static void indexed_check(const char *op_type, const char *x, const char *index_dims,
                          const int64_t *index, const char *updates, const char *how)
{
    build b;
    const double h = 1e-5;
    sbit_rng rng = sbit_rng_seed(3);
    build_begin(&b, 18);
    sbit_value_id in[3], wanted[2], grads[2] = {{0}, {0}};
    sbit_tensor data[2];
    data[0] = grad_tensor(SBIT_F64, x, &rng, -1, 1);
    data[1] = grad_tensor(SBIT_F64, updates != NULL ? updates : x, &rng, 0.5, 1.5);
    wanted[0] = in[0] = build_input(&b, "x", SBIT_F64, x);
    in[1] = build_constant(&b, "index", SBIT_I64, index_dims, index);
    size_t count = 1;
    if (updates != NULL) {
        wanted[1] = in[2] = build_input(&b, "u", SBIT_F64, updates);
        count = 2;
    }
    static const int64_t kernel[] = {2, 2};
    const sbit_attr attr =
        how != NULL ? grad_text("reduction", how) : build_ints("kernel_shape", kernel, 2);
    const sbit_value_id y = build_node(&b, op_type, "y", in, count + 1, &attr, 1);
    const sbit_value_id loss = grad_loss(&b, SBIT_F64, &y, 1, &rng);
    sbit_session *session = NULL;
    sbit_session_desc desc;
    memset(&desc, 0, sizeof desc);
    if (b.failed ||
        !build_do(&b, sbit_graph_add_gradients(b.graph, loss, wanted, count, grads, &b.error),
                  op_type)) {
        build_end(&b);
        return;
    }
    const sbit_value_id outputs[3] = {loss, grads[0], grads[1]};
    desc.outputs = outputs;
    desc.output_count = count + 1;
    if (build_do(&b, sbit_session_create(b.graph, &desc, &session, &b.error), op_type)) {
        for (size_t i = 0; i < count; i++) {
            double *v = (double *)data[i].data;
            for (int64_t k = 0; !b.failed && k < sbit_tensor_count(&data[i]); k++) {
                double got[3] = {0};
                for (int s = 0; !b.failed && s < 3; s++) { /* middle, up, down */
                    const double keep = v[k];
                    v[k] += s == 1 ? h : s == 2 ? -h : 0;
                    build_do(&b, sbit_session_set_input(session, "x", &data[0], &b.error), "x");
                    if (count > 1) {
                        build_do(&b, sbit_session_set_input(session, "u", &data[1], &b.error), "u");
                    }
                    if (!build_do(&b, sbit_session_run(session, &b.error), op_type)) {
                        break;
                    }
                    const sbit_tensor *out =
                        &sbit_session_output(session, s == 0 ? 1 + i : 0)->tensor;
                    got[s] = ((const double *)out->data)[s == 0 ? k : 0];
                    v[k] = keep;
                }
                const double want = (got[1] - got[2]) / (2 * h);
                CHECK_MSG(fabs(want - got[0]) <= 1e-4 * fabs(want) + 1e-8,
                          "%s %s: gradient %d of input %d is %.9g, by differences %.9g", op_type,
                          how != NULL ? how : "", (int)k, (int)i, got[0], want);
            }
        }
    }
    sbit_session_destroy(session);
    free(data[0].data);
    free(data[1].data);
    build_end(&b);
}

TEST(indexed_operators)
{
    static const char *const how[] = {"none", "add", "mul", "max", "min"};
    static const int64_t rows[] = {2, 0, 1, 1, 2, 0}, twice[] = {2, 0, 1, 1, 0, 1};
    static const int64_t places[] = {0, 2, 2, 1}, blocks[] = {2, 0}, cells[] = {0, 3, 5, 8};
    static const int64_t labels[] = {1, 0, 3, 3, 2, 1};
    for (size_t i = 0; i < COUNT(how); i++) {
        indexed_check("ScatterElements", "3,3", "2,3", i == 0 ? rows : twice, "2,3", how[i]);
        indexed_check("ScatterND", "3,4", "2,2", places, "2", how[i]);
        indexed_check("ScatterND", "3,4", "2,1", blocks, "2,4", how[i]);
    }
    indexed_check("MaxUnpool", "1,1,2,2", "1,1,2,2", cells, NULL, NULL);
    indexed_check("SoftmaxCrossEntropyLoss", "2,4,3", "2,3", labels, NULL, "mean");
    indexed_check("SoftmaxCrossEntropyLoss", "2,4,3", "2,3", labels, NULL, "none");
    indexed_check("NegativeLogLikelihoodLoss", "6,4", "6", labels, NULL, "sum");
}

/* RotaryEmbedding has no float64: it is linear, so that differences of any width are exact. */
TEST(rotary_embedding)
{
    static const rare_case cases[] = {
        {"RotaryEmbedding", 23, {"2,3,4,6", "2,4,3", "2,4,3"}, NULL, 0, "", 0, 0, 6, 0, 0},
        {"RotaryEmbedding",
         23,
         {"2,4,12", "2,4,2", "2,4,2"},
         NULL,
         0,
         "num_heads=2 interleaved=1 rotary_embedding_dim=4",
         0,
         0,
         6,
         0,
         0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char names[512];
        int64_t room[32];
        grad_run r;
        grad_case c =
            grad_of("RotaryEmbedding", cases[i].dims[0], cases[i].dims[1], cases[i].dims[2]);
        c.opset = 23;
        c.skip = 6;
        rare_attrs(&c, cases[i].attrs, names, room);
        grad_build(&r, &c, SBIT_F32, test_threads());
        float *x = (float *)r.data[0].data;
        for (int64_t k = 0; !r.b.failed && k < sbit_tensor_count(&r.data[0]); k++) {
            double loss[2];
            for (int s = 0; s < 2 && grad_feed(&r); s++) {
                loss[s] =
                    (double)((const float *)sbit_session_output(r.session, 0)->tensor.data)[0];
                x[k] += s == 0 ? 1.0f : -1.0f;
            }
            const sbit_tensor *grad = &sbit_session_output(r.session, 1)->tensor;
            CHECK_NEAR((double)((const float *)grad->data)[k], loss[1] - loss[0], 1e-5);
        }
        grad_end(&r);
    }
}

/* scale q' S of every token by the definition, in double; sums times `r`: outputs, then states. */
typedef struct linear_case {
    const char *rule;
    bool decays, rates;
    int64_t decay_size, rate_heads;
} linear_case;

enum {
    LINEAR_N = 2,
    LINEAR_T = 3,
    LINEAR_Q = 4, /* query heads; half as many others */
    LINEAR_K = 2,
    LINEAR_DK = 3,
    LINEAR_DV = 2
};

static double linear_loss(const linear_case *c, const sbit_tensor *data, const float *r_y,
                          const float *r_s)
{
    double loss = 0.0;
    const float *in[6];
    for (int i = 0; i < 6; i++) {
        in[i] = (const float *)data[i].data;
    }
    for (int64_t n = 0; n < LINEAR_N; n++) {
        for (int64_t h = 0; h < LINEAR_K; h++) {
            double s[LINEAR_DK][LINEAR_DV];
            for (int i = 0; i < LINEAR_DK * LINEAR_DV; i++) {
                s[i / LINEAR_DV][i % LINEAR_DV] =
                    (double)in[3][(n * LINEAR_K + h) * LINEAR_DK * LINEAR_DV + i];
            }
            for (int64_t t = 0; t < LINEAR_T; t++) {
                const int64_t token = n * LINEAR_T + t, at = token * LINEAR_K + h;
                const float *k = in[1] + at * LINEAR_DK, *v = in[2] + at * LINEAR_DV;
                const double rate =
                    c->rates ? (double)in[5][token * c->rate_heads + (c->rate_heads > 1 ? h : 0)]
                             : 1.0;
                double seen[LINEAR_DV] = {0};
                for (int i = 0; i < LINEAR_DK; i++) {
                    for (int j = 0; j < LINEAR_DV; j++) {
                        s[i][j] *= c->decays ? exp((double)in[4][at * c->decay_size +
                                                                 (c->decay_size > 1 ? i : 0)])
                                             : 1.0;
                        seen[j] += c->rates ? s[i][j] * (double)k[i] : 0.0;
                    }
                }
                for (int i = 0; i < LINEAR_DK; i++) {
                    for (int j = 0; j < LINEAR_DV; j++) {
                        s[i][j] += (double)k[i] * rate * ((double)v[j] - seen[j]);
                    }
                }
                for (int64_t q = 2 * h; q < 2 * h + 2; q++) {
                    const int64_t row = token * LINEAR_Q + q;
                    for (int i = 0; i < LINEAR_DK * LINEAR_DV; i++) {
                        loss += (double)in[0][row * LINEAR_DK + i / LINEAR_DV] *
                                s[i / LINEAR_DV][i % LINEAR_DV] / sqrt((double)LINEAR_DK) *
                                (double)r_y[row * LINEAR_DV + i % LINEAR_DV];
                    }
                }
            }
            for (int i = 0; i < LINEAR_DK * LINEAR_DV; i++) {
                loss += s[i / LINEAR_DV][i % LINEAR_DV] *
                        (double)r_s[(n * LINEAR_K + h) * LINEAR_DK * LINEAR_DV + i];
            }
        }
    }
    return loss;
}

/* Its states go back in blocks: of 256 tokens 35 are kept, not 258. */
TEST(linear_attention_goes_back_in_little_memory)
{
    grad_run r;
    sbit_session_memory memory;
    grad_case c = grad_of("LinearAttention", "1,256,16", "1,256,16", "1,256,16");
    c.opset = 27;
    c.outputs = 2;
    grad_attr(&c, build_int("q_num_heads", 1));
    grad_attr(&c, build_int("kv_num_heads", 1));
    grad_attr(&c, grad_text("update_rule", "linear"));
    grad_build(&r, &c, SBIT_F32, 1);
    if (!r.b.failed && grad_feed(&r)) {
        sbit_session_memory_of(r.session, &memory);
        CHECK_MSG(memory.activation_bytes < 300000, "%.0f", (double)memory.activation_bytes);
    }
    grad_end(&r);
}

/* LinearAttention has no float64: against differences of the definition, which is computed here. */
TEST(linear_attention)
{
    static const linear_case cases[] = {{"linear", false, false, 1, 1},
                                        {"gated", true, false, 3, 1},
                                        {"delta", false, true, 1, 1},
                                        {"gated_delta", true, true, 1, 2},
                                        {"gated_delta", true, true, 3, 1}};
    const double h = 1e-2;
    for (size_t n = 0; n < COUNT(cases); n++) {
        const linear_case *k = &cases[n];
        grad_run r;
        grad_case c = grad_of("LinearAttention", "2,3,12", "2,3,6", "2,3,4");
        c.dims[3] = "2,2,3,2";
        c.dims[4] = k->decay_size > 1 ? "2,3,6" : "2,3,2";
        c.dims[5] = k->rate_heads > 1 ? "2,3,2" : "2,3,1";
        c.opset = 27;
        c.outputs = 2;
        grad_attr(&c, build_int("q_num_heads", LINEAR_Q));
        grad_attr(&c, build_int("kv_num_heads", LINEAR_K));
        grad_attr(&c, grad_text("update_rule", k->rule));
        grad_build(&r, &c, SBIT_F32, test_threads());
        if (r.b.failed || !grad_feed(&r)) {
            grad_end(&r);
            return;
        }
        const float *r_y = NULL, *r_s = NULL; /* the two constants of the loss */
        for (uint32_t i = 1; i < sbit_graph_value_limit(r.b.graph); i++) {
            const sbit_value_id id = {i};
            const sbit_value_info *info =
                sbit_graph_value_alive(r.b.graph, id) ? sbit_graph_value(r.b.graph, id) : NULL;
            if (info != NULL && info->is_constant && info->constant.rank == 3 && r_y == NULL) {
                r_y = (const float *)info->constant.data;
            } else if (info != NULL && info->is_constant && info->constant.rank == 4) {
                r_s = (const float *)info->constant.data;
            }
        }
        const double loss =
            (double)((const float *)sbit_session_output(r.session, 0)->tensor.data)[0];
        CHECK_NEAR(loss, linear_loss(k, r.data, r_y, r_s), 1e-5);
        for (size_t i = 0; i < r.count; i++) {
            const float *grad = (const float *)sbit_session_output(r.session, 1 + i)->tensor.data;
            float *x = (float *)r.data[i].data;
            for (int64_t at = 0; at < sbit_tensor_count(&r.data[i]); at++) {
                const float saved = x[at];
                double sum = 0.0, width = 0.0;
                for (int s = -2; s < 3; s++) { /* of fourth order */
                    static const double share[5] = {1.0, -8.0, 0.0, 8.0, -1.0};
                    x[at] = saved + (float)(s * h);
                    width = s == 1 ? (double)x[at] - (double)saved : width;
                    sum += share[s + 2] * linear_loss(k, r.data, r_y, r_s);
                }
                x[at] = saved;
                CHECK_MSG(fabs(sum / (12.0 * width) - (double)grad[at]) <= 2e-5,
                          "%s: gradient %d of input %d is %.7g, by differences %.7g", k->rule,
                          (int)at, (int)i, (double)grad[at], sum / (12.0 * width));
            }
        }
        grad_end(&r);
    }
}

/* A value read twice, a value that does not matter, a shape that depends on the value. */
TEST(sums_and_dead_ends)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,3");
    const sbit_value_id lonely = build_input(&b, "lonely", SBIT_F32, "2,3");
    const sbit_value_id square = build_binary(&b, "Mul", "square", x, x);
    const sbit_value_id floor = build_unary(&b, "Floor", "floor", x);
    const sbit_value_id shape = build_unary(&b, "Shape", "shape", x);
    const sbit_value_id again = build_binary(&b, "Reshape", "again", square, shape);
    const sbit_value_id both = build_binary(&b, "Add", "both", again, x);
    const sbit_value_id all = build_binary(&b, "Add", "all", both, floor);
    const sbit_attr keep = build_int("keepdims", 0);
    const sbit_value_id loss = build_node(&b, "ReduceSum", "loss", &all, 1, &keep, 1);
    const sbit_value_id wanted[3] = {x, lonely, loss};
    sbit_value_id grads[3];
    sbit_session *session = NULL;
    sbit_session_desc desc;
    float data[6] = {1.5f, -2, 0, 3, 4, -5};
    const sbit_tensor tensor = build_tensor(SBIT_F32, "2,3", data);
    memset(&desc, 0, sizeof desc);
    if (!b.failed &&
        build_do(&b, sbit_graph_add_gradients(b.graph, loss, wanted, 3, grads, &b.error),
                 "gradients")) {
        CHECK(grads[1].idx == 0);
        CHECK(grads[2].idx != 0);
        desc.outputs = grads;
        desc.output_count = 1;
        if (build_do(&b, sbit_session_create(b.graph, &desc, &session, &b.error), "session") &&
            build_do(&b, sbit_session_set_input(session, "x", &tensor, &b.error), "x") &&
            build_do(&b, sbit_session_run(session, &b.error), "run")) {
            const float *g = (const float *)sbit_session_output(session, 0)->tensor.data;
            for (int i = 0; i < 6; i++) {
                CHECK_NEAR((double)g[i], 2.0 * (double)data[i] + 1.0, 1e-6);
            }
        }
    }
    sbit_session_destroy(session);
    build_end(&b);
}

/* All operators without a gradient are named at once, and nothing is built. */
TEST(missing_gradients_are_named)
{
    build b;
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,3,4,4");
    const sbit_value_id coin = build_unary(&b, "Bernoulli", "coin", x);
    const sbit_attr axis = build_int("axis", 0);
    const sbit_value_id hard = build_node(&b, "Hardmax", "hard", &coin, 1, &axis, 1);
    const sbit_attr keep = build_int("keepdims", 0);
    const sbit_value_id loss = build_node(&b, "ReduceSum", "loss", &hard, 1, &keep, 1);
    sbit_value_id grad;
    const uint32_t limit = sbit_graph_node_limit(b.graph);
    CHECK(sbit_graph_add_gradients(b.graph, loss, &x, 1, &grad, &b.error) == SBIT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(b.error.message, "Bernoulli");
    CHECK_CONTAINS(b.error.message, "Hardmax");
    CHECK(sbit_graph_node_limit(b.graph) == limit);
    build_end(&b);
}

/* What rows say of gradients holds: integers on the way let none pass, and the operator itself is named. */
TEST(rows_say_whether_gradients_pass)
{
    static const struct {
        const char *domain, *op_type;
        bool passes;
    } rows[] = {{"com.microsoft", "DynamicQuantizeMatMul", false}, {"com.microsoft", "MatMulNBits", true},
                {"com.microsoft", "NhwcMaxPool", false},           {"com.microsoft", "QAttention", false},
                {"com.microsoft", "Attention", true},              {"", "DynamicQuantizeLinear", false},
                {"", "If", true},                                  {"", "Relu", true}};
    static const uint8_t bytes[3 * 8] = {1, 2, 3};
    static const float scales[3] = {1.0f, 1.0f, 1.0f};
    for (int k = 0; k < 2; k++) {
        build b;
        sbit_value_id in[3], y = {0}, grad;
        build_begin(&b, 17);
        build_do(&b, sbit_graph_set_opset(b.graph, "com.microsoft", 1, &b.error), "opset");
        for (size_t i = 0; k == 0 && i < COUNT(rows); i++) {
            const sbit_op_row *row = sbit_operator_find(b.ctx, rows[i].domain, rows[i].op_type, 17);
            CHECK_MSG(row != NULL && sbit_operator_has_gradient(row) == rows[i].passes, "%s", rows[i].op_type);
        }
        in[0] = build_input(&b, "x", SBIT_F32, "2,8");
        in[1] = build_constant(&b, "w", SBIT_U8, k == 0 ? "8,3" : "3,1,8", bytes);
        in[2] = build_constant(&b, "s", SBIT_F32, k == 0 ? "1" : "3", scales);
        const sbit_attr attrs[4] = {build_int("K", 8), build_int("N", 3), build_int("bits", 4),
                                    build_int("block_size", 16)};
        build_node_outputs(&b, "com.microsoft", rows[k].op_type, "product", in, 3, attrs, k == 0 ? 0 : 4, &y, 1);
        const sbit_attr keep = build_int("keepdims", 0);
        const sbit_value_id loss = build_node(&b, "ReduceSum", "loss", &y, 1, &keep, 1);
        CHECK_EQ_I64(sbit_graph_add_gradients(b.graph, loss, &in[0], 1, &grad, &b.error),
                     rows[k].passes ? SBIT_OK : SBIT_ERR_UNSUPPORTED);
        CHECK(rows[k].passes || strstr(b.error.message, rows[k].op_type) != NULL);
        build_end(&b);
    }
}

static sbit_status odd_infer(const sbit_op_call *call, sbit_error *error)
{
    (void)error;
    *call->out_type[0] = *call->in_type[0];
    return SBIT_OK;
}

/* A name that is part of another one is listed too. */
TEST(all_missing_gradients_are_listed)
{
    static const sbit_op_row rows[] = {
        {"odd", "ScaleShift", 1, SBIT_T(SBIT_F32), 0, NULL, odd_infer, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL},
        {"odd", "Scale", 1, SBIT_T(SBIT_F32), 0, NULL, odd_infer, NULL, NULL, NULL, NULL, NULL,
         NULL, NULL},
    };
    build b;
    sbit_value_id x, y = {0}, z = {0}, grad;
    build_begin(&b, 17);
    for (size_t i = 0; i < COUNT(rows); i++) {
        build_do(&b, sbit_operator_register(b.ctx, &rows[i], &b.error), "row");
    }
    build_do(&b, sbit_graph_set_opset(b.graph, "odd", 1, &b.error), "opset");
    x = build_input(&b, "x", SBIT_F32, "2,3");
    build_node_outputs(&b, "odd", "ScaleShift", "first", &x, 1, NULL, 0, &y, 1);
    build_node_outputs(&b, "odd", "Scale", "second", &y, 1, NULL, 0, &z, 1);
    const sbit_attr keep = build_int("keepdims", 0);
    const sbit_value_id loss = build_node(&b, "ReduceSum", "loss", &z, 1, &keep, 1);
    CHECK(sbit_graph_add_gradients(b.graph, loss, &x, 1, &grad, &b.error) == SBIT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(b.error.message, "ScaleShift, Scale (");
    build_end(&b);
}
