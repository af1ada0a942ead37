/* split */
/* test_recipes.c: what steps, formats and training make of one another. */
#include "../src/quant/quant_private.h"
#include "../src/train/train_private.h"
#include "test.h"
#include "build_graph.h"

/* x[N,4] -> first (3 units) -> Relu -> second (2 units), with labels: small enough to follow. */
#define RECIPE_ROWS 24

typedef struct recipe {
    build b;
    sbit_quant *quant;
    sbit_feed feed;
    sbit_batch batch;
    float x[RECIPE_ROWS * 4];
    int64_t y[RECIPE_ROWS];
    sbit_tensor inputs, targets;
} recipe;

static sbit_value_id recipe_gemm(build *b, const char *name, sbit_value_id x, int in, int out,
                                 const char *bias_dims, uint64_t seed)
{
    char text[40], dims[40];
    sbit_value_id inputs[3] = {x, {0}, {0}};
    const sbit_attr attr = build_int("transB", 1);
    snprintf(text, sizeof text, "%s.weight", name);
    snprintf(dims, sizeof dims, "%d,%d", out, in);
    inputs[1] = build_weights(b, text, dims, seed);
    snprintf(text, sizeof text, "%s.bias", name);
    inputs[2] = build_weights(b, text, bias_dims, seed + 1);
    return build_node(b, "Gemm", name, inputs, 3, &attr, 1);
}

static void recipe_quant(recipe *r, const char *profile, const char *const set[][2])
{
    sbit_qconfig *config = NULL;
    build *b = &r->b;
    build_do(b, sbit_qconfig_create(b->ctx, profile, &config, &b->error), "config");
    for (size_t i = 0; !b->failed && set != NULL && set[i][0] != NULL; i++) {
        build_do(b, sbit_qconfig_set(config, set[i][0], set[i][1], &b->error), set[i][0]);
    }
    if (!b->failed &&
        build_do(b, sbit_quant_create(b->graph, config, &r->quant, &b->error), "quant") &&
        build_do(b, sbit_quant_calibrate(r->quant, &r->feed, &b->error), "calibrate")) {
        build_do(b, sbit_quant_calc_qparams(r->quant, false, false, false, &b->error), "calc");
    }
    sbit_qconfig_destroy(config);
}

static void recipe_data(recipe *r)
{
    sbit_feed_desc desc;
    sbit_rng rng = sbit_rng_seed(4);
    for (int i = 0; i < RECIPE_ROWS * 4; i++) {
        r->x[i] = sbit_rng_normal(&rng);
    }
    for (int i = 0; i < RECIPE_ROWS; i++) {
        r->y[i] = i % 2;
    }
    r->inputs = build_tensor(SBIT_F32, "24,4", r->x);
    r->targets = build_tensor(SBIT_I64, "24", r->y);
    r->batch.samples = RECIPE_ROWS;
    r->batch.inputs = &r->inputs;
    r->batch.targets = &r->targets;
    r->batch.input_count = r->batch.target_count = 1;
    memset(&desc, 0, sizeof desc);
    desc.inputs = &r->inputs;
    desc.targets = &r->targets;
    desc.input_count = desc.target_count = 1;
    build_do(&r->b, sbit_feed_of_tensors(r->b.ctx, &desc, &r->feed, &r->b.error), "feed");
}

/* bias_dims: of the first layer's bias. */
static void recipe_begin(recipe *r, const char *profile, const char *bias_dims,
                         const char *const set[][2])
{
    memset(r, 0, sizeof *r);
    build_begin(&r->b, 21);
    const sbit_value_id x = build_input(&r->b, "x", SBIT_F32, "N,4");
    sbit_value_id y = recipe_gemm(&r->b, "first", x, 4, 3, bias_dims, 5);
    y = build_unary(&r->b, "Relu", "relu", y);
    y = recipe_gemm(&r->b, "second", y, 3, 2, "2", 7);
    build_output(&r->b, y);
    recipe_data(r);
    recipe_quant(r, profile, set);
}

static void recipe_end(recipe *r)
{
    sbit_feed_close(&r->feed);
    sbit_quant_destroy(r->quant);
    build_end(&r->b);
}

/* Output 0 of a graph, run one by one; the caller frees it. */
static float *recipe_run(recipe *r, sbit_graph *graph)
{
    sbit_session *session = NULL;
    sbit_session_desc plain;
    float *out = NULL;
    memset(&plain, 0, sizeof plain);
    plain.disable_fusion = true;
    if (!r->b.failed &&
        build_do(&r->b, sbit_session_create(graph, &plain, &session, &r->b.error), "session") &&
        build_do(&r->b, sbit_session_set_input_at(session, 0, &r->inputs, &r->b.error), "input") &&
        build_do(&r->b, sbit_session_run(session, &r->b.error), "run")) {
        const sbit_tensor *y = &sbit_session_output(session, 0)->tensor;
        out = (float *)malloc(sbit_tensor_bytes(y));
        memcpy(out, y->data, sbit_tensor_bytes(y));
    }
    sbit_session_destroy(session);
    return out;
}

static float *recipe_parameter(sbit_trainer *t, const char *name)
{
    for (size_t p = 0; p < sbit_trainer_parameter_count(t); p++) {
        const sbit_train_parameter w = sbit_trainer_parameter(t, p);
        if (strcmp(w.name, name) == 0) {
            return (float *)w.data.data;
        }
    }
    return NULL;
}

/* Training runs the quantizers as they are; what is exported computes the same bits. */
static void recipe_trained_is_exported(recipe *r, sbit_trainer *t, int64_t outputs)
{
    sbit_graph *built = NULL;
    sbit_train_report report;
    build *b = &r->b;
    if (build_do(b, sbit_trainer_finish_qat(t, &b->error), "finish") &&
        build_do(b, sbit_quant_build(r->quant, NULL, &built, &b->error), "build") &&
        build_do(b, sbit_trainer_backward(t, &r->batch, &report, &b->error), "backward")) {
        float *out = recipe_run(r, built);
        const float *want = (const float *)sbit_trainer_output(t, 0)->data;
        for (int64_t i = 0; out != NULL && i < RECIPE_ROWS * outputs; i++) {
            if (!CHECK_MSG(out[i] == want[i], "[%d]: exported %.9g, trained %.9g", (int)i,
                           (double)out[i], (double)want[i])) {
                break;
            }
        }
        free(out);
    }
    sbit_graph_destroy(built);
}

/* ---- training after steps */

/* AdaRound, GPTQ and bias correction belong to the weights that they saw. */
TEST(training_replaces_what_steps_decided)
{
    static const char *const set[][2] = {
        {"STEPS", "[gptq, bias_correction]"}, {"W.QUANTIZER.BIT", "3"}, {NULL, NULL}};
    recipe r;
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    recipe_begin(&r, "generic", "3", set);
    desc.learning_rate = 0.1f;
    if (!r.b.failed &&
        build_do(&r.b, sbit_trainer_create_qat(r.quant, &desc, &t, &r.b.error), "trainer")) {
        float *w = recipe_parameter(t, "first.weight"), *bias = recipe_parameter(t, "first.bias");
        for (int i = 0; CHECK(w != NULL) && i < 12; i++) {
            w[i] = -w[i];
        }
        for (int i = 0; CHECK(bias != NULL) && i < 3; i++) {
            bias[i] = 0.25f * (float)i;
        }
        recipe_trained_is_exported(&r, t, 2);
    }
    sbit_trainer_destroy(t);
    recipe_end(&r);
}

/* ---- channels last */

enum {
    PICTURES = 6
};

/* Conv, Relu, MaxPool, Conv, Relu, GlobalAveragePool, Gemm. */
static void picture_graph(build *b)
{
    const int64_t two[2] = {2, 2};
    const sbit_attr pool[2] = {build_ints("kernel_shape", two, 2), build_ints("strides", two, 2)};
    const sbit_attr flat = build_int("axis", 1);
    sbit_value_id at = build_input(b, "x", SBIT_F32, "N,3,12,12");
    at = build_binary(b, "Conv", "first", at, build_weights(b, "first.weight", "70,3,3,3", 3));
    at = build_unary(b, "Relu", "relu", at);
    at = build_node(b, "MaxPool", "pool", &at, 1, pool, 2);
    at = build_binary(b, "Conv", "second", at, build_weights(b, "second.weight", "20,70,3,3", 4));
    at = build_unary(b, "GlobalAveragePool", "mean", build_unary(b, "Relu", "relu2", at));
    at = build_node(b, "Flatten", "flat", &at, 1, &flat, 1);
    build_output(b, recipe_gemm(b, "last", at, 20, 2, "2", 7));
}

/* How many quantizers, gradients of them and of pools have channels last. */
static int picture_layouts(const sbit_trainer *t)
{
    sbit_node_profile nodes[128];
    int last = 0;
    const size_t count = sbit_session_profile(t->session, nodes, SBIT__COUNT_OF(nodes));
    CHECK(count <= SBIT__COUNT_OF(nodes));
    for (size_t i = 0; i < count && i < SBIT__COUNT_OF(nodes); i++) {
        const sbit_node *node = nodes[i].lowered;
        const char *name = node != NULL ? node->op_type : "";
        last += (strcmp(name, "External") == 0 || strcmp(name, "ExternalGrad") == 0 ||
                 strcmp(name, "PoolGrad") == 0) &&
                        sbit_node_int(node, "channels_last", 0) != 0
                    ? 1
                    : 0;
    }
    return last;
}

/* One step: a sum of what the parameters are then. */
static double picture_step(const char *text, int32_t threads, int *last)
{
    static float x[PICTURES * 3 * 12 * 12];
    static int64_t y[PICTURES];
    sbit_rng rng = sbit_rng_seed(8);
    recipe r;
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    sbit_feed_desc feed;
    sbit_qconfig *config = NULL;
    double sum = 0.0;
    memset(&r, 0, sizeof r);
    memset(&desc, 0, sizeof desc);
    memset(&feed, 0, sizeof feed);
    build_begin_threads(&r.b, 21, threads);
    picture_graph(&r.b);
    for (int i = 0; i < PICTURES * 432; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    for (int i = 0; i < PICTURES; i++) {
        y[i] = i % 2;
    }
    r.inputs = build_tensor(SBIT_F32, "6,3,12,12", x);
    r.targets = build_tensor(SBIT_I64, "6", y);
    r.batch.samples = PICTURES;
    r.batch.inputs = feed.inputs = &r.inputs;
    r.batch.targets = &r.targets;
    r.batch.input_count = r.batch.target_count = feed.input_count = 1;
    feed.batch = PICTURES;
    desc.learning_rate = 0.05f;
    build *b = &r.b;
    if (!b->failed && build_do(b, sbit_feed_of_tensors(b->ctx, &feed, &r.feed, &b->error), "feed") &&
        build_do(b, sbit_qconfig_read(b->ctx, text, strlen(text), &config, &b->error), "config") &&
        build_do(b, sbit_quant_create(b->graph, config, &r.quant, &b->error), "quant") &&
        build_do(b, sbit_quant_calibrate(r.quant, &r.feed, &b->error), "calibrate") &&
        build_do(b, sbit_quant_calc_qparams(r.quant, false, false, false, &b->error), "calc") &&
        build_do(b, sbit_trainer_create_qat(r.quant, &desc, &t, &b->error), "trainer") &&
        build_do(b, sbit_trainer_step(t, &r.batch, NULL, &b->error), "step")) {
        *last = picture_layouts(t);
        for (size_t p = 0; p < sbit_trainer_parameter_count(t); p++) {
            const sbit_tensor w = sbit_trainer_parameter(t, p).data;
            for (int64_t i = 0; i < sbit_tensor_count(&w); i++) { /* one order: exact */
                sum += (double)((const float *)w.data)[i] * (double)(i % 97 + 1);
            }
        }
    }
    sbit_trainer_destroy(t);
    sbit_qconfig_destroy(config);
    recipe_end(&r);
    return sum;
}

/* Quantizers of one scale take activations as convolutions leave them, those of many do not; with any
 * number of threads the same numbers come out. */
TEST(quantized_training_keeps_channels_last)
{
    static const struct {
        const char *weights, *activations, *scheme;
        int last;
    } kinds[] = {{"lsq", "lsq", "per-tensor-affine", 7}, /* of the picture, the pool, the mean; the pool's */
                 {"lsq+", "lsq+", "per-tensor-affine", 7},
                 {"dorefa", "pact", "per-tensor-affine", 7},
                 {"uniform", "uniform", "per-tensor-symmetric", 5}, /* the picture has no gradient */
                 {"lsq", "lsq", "per-channel-symmetric", 1}};
    for (size_t i = 0; i < SBIT__COUNT_OF(kinds); i++) {
        char text[400];
        int last[2] = {0, 0};
        snprintf(text, sizeof text,
                 "PLACEMENT: sparsebit\n"
                 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: %s, BIT: 4}}\n"
                 "A: {QSCHEME: %s, QUANTIZER: {TYPE: %s, BIT: 4}}\n",
                 kinds[i].weights, kinds[i].scheme, kinds[i].activations);
        const double one = picture_step(text, 1, &last[0]);
        const double three = picture_step(text, 3, &last[1]);
        CHECK_MSG(one != 0.0 && one == three, "%s: %.17g, %.17g", kinds[i].activations, one, three);
        CHECK_MSG(last[0] == kinds[i].last, "%s %s: %d", kinds[i].activations, kinds[i].scheme, last[0]);
        CHECK(last[1] == last[0]);
    }
}

/* ---- biases */

TEST(a_bias_of_one_element_is_trained_as_it_is_exported)
{
    static const char *const set[][2] = {{"W.QUANTIZER.BIT", "2"}, {NULL, NULL}}; /* large steps */
    recipe r;
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    recipe_begin(&r, "generic", "1", set);
    desc.learning_rate = 0.1f;
    if (!r.b.failed &&
        build_do(&r.b, sbit_trainer_create_qat(r.quant, &desc, &t, &r.b.error), "trainer")) {
        float *bias = recipe_parameter(t, "first.bias");
        if (CHECK(bias != NULL)) {
            bias[0] = 0.33f; /* no multiple of any scale */
        }
        recipe_trained_is_exported(&r, t, 2);
        const float before = bias != NULL ? bias[0] : 0.0f;
        for (int i = 0; i < 3; i++) {
            build_do(&r.b, sbit_trainer_step(t, &r.batch, NULL, &r.b.error), "step");
        }
        CHECK(bias != NULL && bias[0] != before); /* and it learns */
        recipe_trained_is_exported(&r, t, 2);
    }
    sbit_trainer_destroy(t);
    recipe_end(&r);
}

/* ---- groups that share a scale */

/* Concat of two layers and a Sigmoid whose range is fixed: one scale. Members with quantizers of
 * their own kind, states that own memory, fixed ranges. */
static const sbit_quantizer_row *holder_like(void)
{
    return sbit__quantizer_lsq();
}

typedef struct holder {
    float *own; /* a copy of all scales: owned by the state */
    size_t bytes;
    double lsq; /* the state of lsq begins here, as aligned as double */
} holder;

static size_t holder_bytes(const sbit_quantizer_call *call)
{
    return sizeof(holder) + holder_like()->state_bytes(call);
}

static const sbit_observer_row *holder_statistics(uint32_t target, const sbit_options *options)
{
    (void)target;
    (void)options;
    return sbit__observer_moments();
}

static sbit_status holder_init(void *state, const sbit_quantizer_call *call,
                               const sbit_observation *x, sbit_error *error)
{
    holder *h = (holder *)state;
    h->bytes = (size_t)call->grid->parts.count * sizeof(float);
    h->own = (float *)sbit__alloc(sbit_ctx_allocator(call->ctx), h->bytes);
    return h->own != NULL ? holder_like()->init(&h->lsq, call, x, error) : SBIT_ERR_OUT_OF_MEMORY;
}

static sbit_status holder_forward(void *state, const sbit_quantizer_call *call,
                                  const sbit_observation *x, float *y, sbit_error *error)
{
    return holder_like()->forward(&((holder *)state)->lsq, call, x, y, error);
}

static sbit_status holder_backward(void *state, const sbit_quantizer_call *call,
                                   const sbit_observation *x, const float *dy, float *dx,
                                   sbit_error *error)
{
    return holder_like()->backward(&((holder *)state)->lsq, call, x, dy, dx, error);
}

/* The scale first, then six more that nothing reads: rows may have any number of parameters. */
static bool holder_parameter(void *state, const sbit_quantizer_call *call, size_t index,
                             sbit_parameter *out)
{
    static float unused[6], gradients[6];
    if (index == 0) {
        return holder_like()->parameter(&((holder *)state)->lsq, call, 0, out);
    }
    memset(out, 0, sizeof *out);
    out->name = "more";
    out->data = unused + (index - 1) % 6;
    out->gradient = gradients + (index - 1) % 6;
    out->count = 1;
    return index < 7;
}

static sbit_status holder_finish(void *state, const sbit_quantizer_call *call,
                                 const sbit_observation *x, float *effective, sbit_error *error)
{
    holder *h = (holder *)state;
    SBIT__TRY(holder_like()->finish(&h->lsq, call, x, effective, error));
    memcpy(h->own, call->scale, h->bytes); /* of this site, nobody else's */
    return SBIT_OK;
}

static void holder_deinit(void *state, const sbit_quantizer_call *call)
{
    holder *h = (holder *)state;
    sbit__free(sbit_ctx_allocator(call->ctx), h->own, h->bytes);
    h->own = NULL;
}

static void group_begin(recipe *r, const char *const set[][2], bool sigmoid)
{
    static const sbit_quantizer_row row = {
        {"holder", "lsq with memory of its own", SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, NULL,
         0},
        holder_bytes,
        NULL,
        NULL,
        holder_statistics,
        holder_init,
        holder_forward,
        holder_backward,
        holder_parameter,
        holder_finish,
        holder_deinit,
        NULL,
    };
    sbit_value_id parts[3];
    const sbit_attr axis = build_int("axis", 1);
    memset(r, 0, sizeof *r);
    build_begin(&r->b, 21);
    build_do(&r->b, sbit_quantizer_register(r->b.ctx, &row, &r->b.error), "row");
    const sbit_value_id x = build_input(&r->b, "x", SBIT_F32, "N,4");
    parts[0] = recipe_gemm(&r->b, "first", x, 4, 3, "3", 5);
    parts[1] = recipe_gemm(&r->b, "second", x, 4, 3, "3", 11);
    parts[2] = build_unary(&r->b, "Sigmoid", "sig", recipe_gemm(&r->b, "third", x, 4, 2, "2", 13));
    const sbit_value_id joined =
        build_node(&r->b, "Concat", "cat", parts, sigmoid ? 3 : 2, &axis, 1);
    build_output(&r->b, recipe_gemm(&r->b, "last", joined, sigmoid ? 8 : 6, 2, "2", 17));
    recipe_data(r);
    recipe_quant(r, "generic", set);
}

static const sbit__site *group_site(const recipe *r, const char *tensor)
{
    for (size_t i = 0; i < r->quant->site_count; i++) {
        if (strcmp(r->quant->sites[i].tensor, tensor) == 0) {
            return &r->quant->sites[i];
        }
    }
    CHECK_MSG(false, "no site on %s", tensor);
    return &r->quant->sites[0];
}

static void group_train(recipe *r)
{
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.learning_rate = 0.05f;
    if (!r->b.failed &&
        build_do(&r->b, sbit_trainer_create_qat(r->quant, &desc, &t, &r->b.error), "trainer")) {
        for (int i = 0; i < 5; i++) {
            build_do(&r->b, sbit_trainer_step(t, &r->batch, NULL, &r->b.error), "step");
        }
        recipe_trained_is_exported(r, t, 2);
    }
    sbit_trainer_destroy(t);
}

TEST(groups_of_states_that_own_memory)
{
    static const char *const set[][2] = {
        {"A.QUANTIZER.TYPE", "holder"}, {"EXPORT.SHARE_LIMIT", "1000"}, {NULL, NULL}};
    recipe r;
    group_begin(&r, set, false);
    group_train(&r);
    CHECK(group_site(&r, "first")->scale[0] == group_site(&r, "cat")->scale[0]);
    CHECK(group_site(&r, "second")->scale[0] == group_site(&r, "cat")->scale[0]);
    recipe_end(&r); /* each state is freed once: the sanitizers look */
}

TEST(groups_of_different_quantizers)
{
    static const char *const set[][2] = {{"A.QUANTIZER.TYPE", "lsq"},
                                         {"A.SPECIFIC",
                                          "[{\"second\": [\"QUANTIZER.TYPE\", \"uniform\"], "
                                          "\"cat\": [\"QUANTIZER.TYPE\", \"holder\"]}]"},
                                         {"EXPORT.SHARE_LIMIT", "1000"},
                                         {NULL, NULL}};
    recipe r;
    group_begin(&r, set, false);
    group_train(&r);
    recipe_end(&r);
}

/* A range that was joined with others' is learned with them. */
TEST(groups_with_a_fixed_range_share_what_is_learned)
{
    static const char *const set[][2] = {
        {"A.QUANTIZER.TYPE", "lsq"}, {"EXPORT.SHARE_LIMIT", "1000"}, {NULL, NULL}};
    recipe r;
    group_begin(&r, set, true);
    group_train(&r);
    CHECK(group_site(&r, "sig")->scale[0] == group_site(&r, "cat")->scale[0]);
    CHECK(group_site(&r, "first")->scale[0] == group_site(&r, "cat")->scale[0]);
    recipe_end(&r);
}

/* ---- memory */

static sbit_status stop_here(const sbit_walk_batch *batch, void *user, sbit_error *error)
{
    (void)batch;
    (void)user;
    (void)error;
    return SBIT_OK;
}

/* A walk with every allocation failing in turn: blocks are given back with the sizes they have. */
TEST(a_walk_out_of_memory_frees_everything)
{
    for (int64_t n = 1;; n++) {
        test_heap heap;
        sbit_ctx_desc desc;
        recipe r;
        sbit_walk *walk = NULL;
        sbit_status status = SBIT_OK;
        bool all_tried = false;
        memset(&heap, 0, sizeof heap);
        memset(&desc, 0, sizeof desc);
        memset(&r, 0, sizeof r);
        desc.allocator = test_heap_allocator(&heap);
        CHECK_OK(sbit_ctx_create(&desc, &r.b.ctx, &r.b.error), r.b.error);
        CHECK_OK(sbit_graph_create(r.b.ctx, 21, &r.b.graph, &r.b.error), r.b.error);
        const sbit_value_id x = build_input(&r.b, "x", SBIT_F32, "N,4");
        sbit_value_id y = recipe_gemm(&r.b, "first", x, 4, 4, "4", 5);
        y = build_binary(&r.b, "Add", "sum", build_unary(&r.b, "Relu", "relu", y), x);
        build_output(&r.b, recipe_gemm(&r.b, "second", y, 4, 2, "2", 7));
        recipe_data(&r);
        recipe_quant(&r, "generic", NULL);
        const sbit_node_id second =
            sbit_graph_value(sbit_quant_graph(r.quant),
                             sbit_graph_find_value(sbit_quant_graph(r.quant), "second"))
                ->producer;
        heap.count = 0;
        heap.fail_at = n;
        status = sbit_walk_create(r.quant, &r.feed, NULL, &walk, &r.b.error);
        if (status == SBIT_OK) {
            status = sbit_walk_to(walk, second, 0, stop_here, NULL, &r.b.error);
        }
        all_tried = heap.count < n;
        heap.fail_at = 0;
        CHECK_MSG(status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY, "allocation %d: %s",
                  (int)n, r.b.error.message);
        sbit_walk_destroy(walk);
        recipe_end(&r);
        CHECK_MSG(heap.live_bytes == 0, "allocation %d: %d bytes are left", (int)n,
                  (int)heap.live_bytes);
        if (all_tried || test_state.checks_failed > 0) {
            CHECK(n > 20);
            break;
        }
    }
}

/* ---- long chains: the number of paths doubles with every node */

static sbit_value_id square_chain(build *b, sbit_value_id x, int length)
{
    char name[20];
    for (int i = 0; i < length; i++) {
        snprintf(name, sizeof name, "square%d", i);
        x = build_binary(b, "Mul", name, x, x);
    }
    return x;
}

TEST(scores_that_are_read_twice_are_followed_once)
{
    recipe r;
    memset(&r, 0, sizeof r);
    build_begin(&r.b, 21);
    const sbit_value_id x = build_input(&r.b, "x", SBIT_F32, "N,4");
    const sbit_value_id mask = build_input(&r.b, "mask", SBIT_F32, "N,3");
    const sbit_value_id first = recipe_gemm(&r.b, "first", x, 4, 3, "3", 5);
    const sbit_value_id masked = build_binary(&r.b, "Add", "masked", first, mask);
    build_output(&r.b, build_unary(&r.b, "Softmax", "soft", square_chain(&r.b, masked, 60)));
    sbit_qconfig *config = NULL;
    if (build_do(&r.b, sbit_qconfig_create(r.b.ctx, "generic", &config, &r.b.error), "config") &&
        build_do(&r.b, sbit_quant_create(r.b.graph, config, &r.quant, &r.b.error), "quant")) {
        for (size_t i = 0; i < r.quant->site_count; i++) { /* scores stay exact all the way */
            CHECK_MSG(strstr(r.quant->sites[i].tensor, "square") == NULL &&
                          strcmp(r.quant->sites[i].tensor, "masked") != 0,
                      "a site on %s", r.quant->sites[i].tensor);
        }
    }
    sbit_qconfig_destroy(config);
    sbit_quant_destroy(r.quant);
    build_end(&r.b);
}

TEST(what_reaches_an_add_is_found_once)
{
    static const char text[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5}\n";
    build b;
    sbit_sconfig *config = NULL;
    sbit_sparse *sparse = NULL;
    build_begin(&b, 21);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id skip = recipe_gemm(&b, "skip", x, 4, 4, "4", 3);
    const sbit_value_id first = recipe_gemm(&b, "first", x, 4, 4, "4", 5);
    const sbit_value_id sum = build_binary(&b, "Add", "sum", square_chain(&b, first, 1), skip);
    build_output(&b, recipe_gemm(&b, "last", sum, 4, 2, "2", 7));
    build_output(&b, square_chain(&b, recipe_gemm(&b, "other", x, 4, 4, "4", 9), 60));
    if (build_do(&b, sbit_sconfig_read(b.ctx, text, strlen(text), &config, &b.error), "config") &&
        build_do(&b, sbit_sparse_create(b.graph, config, &sparse, &b.error), "sparse")) {
        sbit_sparse_disable_sparse_before_add(sparse);
    }
    sbit_sparse_destroy(sparse);
    sbit_sconfig_destroy(config);
    build_end(&b);
}

/* ---- places */

/* Products of two activations whose result nothing quantized reads stay float, behind a clamp as
 * without one. */
TEST(a_clamped_product_of_activations_needs_a_reader)
{
    for (int relu = 0; relu < 2; relu++) {
        build b;
        sbit_quant *quant = NULL;
        sbit_qconfig *config = NULL;
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        const sbit_value_id y = build_input(&b, "y", SBIT_F32, "4,4");
        sbit_value_id z = build_binary(&b, "MatMul", "product", x, y);
        z = relu != 0 ? build_unary(&b, "Relu", "clamp", z) : z;
        build_output(&b, build_unary(&b, "Erf", "erf", z));
        if (build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config") &&
            build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant")) {
            CHECK_EQ_I64(sbit_quant_site_count(quant), 2); /* x and y */
        }
        sbit_quant_destroy(quant);
        sbit_qconfig_destroy(config);
        build_end(&b);
    }
}

/* A weight that two layers read with settings of their own: both are units. */
TEST(units_see_every_site_of_a_weight)
{
    build b;
    sbit_quant *quant = NULL;
    sbit_qconfig *config = NULL;
    sbit_unit units[4];
    build_begin(&b, 17);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    const sbit_value_id w = build_weights(&b, "tied", "4,4", 3);
    const sbit_value_id first = build_binary(&b, "MatMul", "first", x, w);
    const sbit_value_id relu = build_unary(&b, "Relu", "relu", first);
    build_output(&b, build_binary(&b, "MatMul", "second", relu, w));
    if (build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config") &&
        build_do(&b,
                 sbit_qconfig_set(config, "W.SPECIFIC", "[{\"second\": [\"QUANTIZER.BIT\", 4]}]",
                                  &b.error),
                 "specific") &&
        build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant")) {
        const size_t count = sbit_quant_units(quant, NULL, units, 4);
        CHECK_EQ_I64(count, 2);
        if (count == 2) {
            const sbit_graph *graph = sbit_quant_graph(quant);
            CHECK_STR(sbit_graph_node(graph, units[0].node)->name, "first");
            CHECK_STR(sbit_graph_node(graph, units[1].node)->name, "second");
            CHECK(units[0].site != units[1].site);
        }
    }
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
}

/* ---- operators on integers */

static size_t count_nodes(const sbit_graph *graph, const char *op)
{
    size_t count = 0;
    for (sbit_node_id id = sbit_graph_first(graph); id.idx != 0; id = sbit_graph_next(graph, id)) {
        count += strcmp(sbit_graph_node(graph, id)->op_type, op) == 0 ? 1 : 0;
    }
    return count;
}

/* x[N,4] -> Gemm(alpha) -> Gemm: QGemm's bias is in units of alpha * scale_x * scale_w, which a
 * bias made for scale_x * scale_w is not. */
TEST(qgemm_takes_alpha_without_a_bias_only)
{
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        recipe r;
        sbit_graph *pairs = NULL, *integers = NULL;
        sbit_quant_build_desc desc;
        sbit_value_id inputs[3];
        sbit_attr attrs[2];
        memset(&r, 0, sizeof r);
        memset(&desc, 0, sizeof desc);
        build_begin(&r.b, 21);
        const sbit_value_id x = build_input(&r.b, "x", SBIT_F32, "N,4");
        attrs[0] = build_float("alpha", 0.375f);
        attrs[1] = build_int("transB", 1);
        inputs[0] = x;
        inputs[1] = build_weights(&r.b, "first.weight", "3,4", 5);
        inputs[2] = build_weights(&r.b, "first.bias", "3", 6);
        const sbit_value_id y =
            build_node(&r.b, "Gemm", "first", inputs, with_bias != 0 ? 3 : 2, attrs, 2);
        build_output(&r.b, recipe_gemm(&r.b, "second", y, 3, 2, "2", 7));
        recipe_data(&r);
        recipe_quant(&r, "generic", NULL);
        desc.format = "qoperator";
        if (!r.b.failed &&
            build_do(&r.b, sbit_quant_build(r.quant, NULL, &pairs, &r.b.error), "pairs") &&
            build_do(&r.b, sbit_quant_build(r.quant, &desc, &integers, &r.b.error), "integers")) {
            float *a = recipe_run(&r, pairs), *b = recipe_run(&r, integers);
            for (int i = 0; a != NULL && b != NULL && i < RECIPE_ROWS * 2; i++) {
                if (!CHECK_NEAR(b[i], a[i], 1e-6)) {
                    break;
                }
            }
            free(a);
            free(b);
        }
        sbit_graph_destroy(pairs);
        sbit_graph_destroy(integers);
        recipe_end(&r);
    }
}

/* Scales in blocks are no scales of columns. */
TEST(blocks_of_eight_bits_keep_their_pairs)
{
    static const char *const set[][2] = {{"W.QUANTIZER.GROUP_SIZE", "2"}, {NULL, NULL}};
    recipe r;
    sbit_graph *pairs = NULL, *integers = NULL;
    sbit_quant_build_desc desc;
    memset(&r, 0, sizeof r);
    memset(&desc, 0, sizeof desc);
    build_begin(&r.b, 21);
    sbit_value_id x = build_input(&r.b, "x", SBIT_F32, "N,4");
    x = build_binary(&r.b, "MatMul", "first", x, build_weights(&r.b, "first.weight", "4,3", 5));
    build_output(&r.b, recipe_gemm(&r.b, "second", x, 3, 2, "2", 7));
    recipe_data(&r);
    recipe_quant(&r, "generic", set);
    desc.format = "qoperator";
    if (!r.b.failed &&
        build_do(&r.b, sbit_quant_build(r.quant, NULL, &pairs, &r.b.error), "pairs") &&
        build_do(&r.b, sbit_quant_build(r.quant, &desc, &integers, &r.b.error), "integers")) {
        CHECK_EQ_I64(count_nodes(integers, "QLinearMatMul"), 0);
        float *a = recipe_run(&r, pairs), *b = recipe_run(&r, integers);
        for (int i = 0; a != NULL && b != NULL && i < RECIPE_ROWS * 2; i++) {
            if (!CHECK_NEAR(b[i], a[i], 1e-6)) {
                break;
            }
        }
        free(a);
        free(b);
    }
    sbit_graph_destroy(pairs);
    sbit_graph_destroy(integers);
    recipe_end(&r);
}

/* ---- pruning: the constant of a removed channel and a bias of more than one row */

TEST(a_matrix_in_place_of_a_bias_takes_up_no_constants)
{
    static const char text[] =
        "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: false}\n";
    for (int computed = 0; computed < 2; computed++) {
        build b;
        sbit_sconfig *config = NULL;
        sbit_graph *out = NULL;
        sbit_value_id inputs[3];
        build_begin(&b, 21);
        const sbit_attr attr = build_int("transB", 1);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "2,4");
        inputs[0] = recipe_gemm(&b, "first", x, 4, 6, "6", 5);
        inputs[1] = build_weights(&b, "last.weight", "3,6", 7);
        inputs[2] = computed != 0 ? build_input(&b, "c", SBIT_F32, "2,3")
                                  : build_weights(&b, "last.bias", "2,3", 8);
        build_output(&b, build_node(&b, "Gemm", "last", inputs, 3, &attr, 1));
        /* sbit_prune compares what it cut with what was masked */
        if (build_do(&b, sbit_sconfig_read(b.ctx, text, strlen(text), &config, &b.error),
                     "config") &&
            build_do(&b, sbit_prune(b.graph, config, NULL, &out, &b.error), "prune")) {
            const sbit_value_info *w =
                sbit_graph_value(out, sbit_graph_find_value(out, "last.weight"));
            CHECK_EQ_I64(w->constant.dims[1], 6);
        }
        sbit_graph_destroy(out);
        sbit_sconfig_destroy(config);
        build_end(&b);
    }
}

/* One number for all outputs and a scale for each block: the bias stays float. */
TEST(a_bias_of_one_element_behind_blocks)
{
    static const char *const set[][2] = {{"W.QUANTIZER.GROUP_SIZE", "2"}, {NULL, NULL}};
    recipe r;
    sbit_graph *built = NULL;
    recipe_begin(&r, "generic", "1", set);
    if (!r.b.failed &&
        build_do(&r.b, sbit_quant_build(r.quant, NULL, &built, &r.b.error), "build")) {
        float *out = recipe_run(&r, built);
        CHECK(out != NULL);
        free(out);
    }
    sbit_graph_destroy(built);
    recipe_end(&r);
}

/* ---- float8 */

static const char *const float8_set[][2] = {
    {"A.QUANTIZER.TYPE", "float8_e4m3fn"}, {"W.QUANTIZER.TYPE", "float8_e4m3fn"}, {NULL, NULL}};

/* The largest size of each part is 448 steps; there are no zero points, biases stay float. */
TEST(float8_scales_and_files)
{
    recipe r;
    sbit_graph *built = NULL;
    recipe_begin(&r, "generic", "3", float8_set);
    for (size_t i = 0; !r.b.failed && i < r.quant->site_count; i++) {
        const sbit__site *site = &r.quant->sites[i];
        for (int64_t c = 0; c < sbit__site_parts(site); c++) {
            const float most = -site->min[c] > site->max[c] ? -site->min[c] : site->max[c];
            CHECK_NEAR(site->scale[c], most / 448.0f, 1e-7f * most);
            CHECK_EQ_I64(site->zero_point[c], 0);
        }
    }
    if (!r.b.failed &&
        build_do(&r.b, sbit_quant_build(r.quant, NULL, &built, &r.b.error), "build")) {
        CHECK_EQ_I64(sbit_graph_opset(built, ""), 21); /* the model's; 19 is enough */
        for (uint32_t i = 1; i < sbit_graph_value_limit(built); i++) {
            const sbit_value_id id = {i};
            const sbit_value_info *value =
                sbit_graph_value_alive(built, id) ? sbit_graph_value(built, id) : NULL;
            CHECK(value == NULL || !value->is_constant || value->constant.dtype == SBIT_F32 ||
                  value->constant.dtype == SBIT_F8E4M3FN);
        }
        CHECK_EQ_I64(count_nodes(built, "QuantizeLinear"), 2); /* x, relu */
        float *out = recipe_run(&r, built);
        CHECK(out != NULL);
        free(out);
    }
    sbit_graph_destroy(built);
    recipe_end(&r);
}

TEST(float8_is_trained_as_it_is_exported)
{
    recipe r;
    sbit_trainer *t = NULL;
    sbit_train_desc desc;
    memset(&desc, 0, sizeof desc);
    recipe_begin(&r, "generic", "3", float8_set);
    desc.learning_rate = 0.1f;
    if (!r.b.failed &&
        build_do(&r.b, sbit_trainer_create_qat(r.quant, &desc, &t, &r.b.error), "trainer")) {
        for (int i = 0; i < 3; i++) {
            build_do(&r.b, sbit_trainer_step(t, &r.batch, NULL, &r.b.error), "step");
        }
        recipe_trained_is_exported(&r, t, 2);
    }
    sbit_trainer_destroy(t);
    recipe_end(&r);
}

TEST(float8_refuses_what_weighs_steps)
{
    static const char *const bad[][2] = {{"A.QUANTIZER.BIT", "4"}, {"A.OBSERVER.TYPE", "mse"}};
    for (size_t i = 0; i < 2; i++) {
        build b;
        sbit_qconfig *config = NULL;
        sbit_quant *quant = NULL;
        build_begin(&b, 21);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
        build_output(&b, recipe_gemm(&b, "first", x, 4, 3, "3", 5));
        build_do(&b, sbit_qconfig_create(b.ctx, "generic", &config, &b.error), "config");
        build_do(&b, sbit_qconfig_set(config, "A.QUANTIZER.TYPE", "float8_e5m2", &b.error), "type");
        build_do(&b, sbit_qconfig_set(config, bad[i][0], bad[i][1], &b.error), "bad");
        CHECK(sbit_quant_create(b.graph, config, &quant, &b.error) == SBIT_ERR_CONFIG);
        CHECK_CONTAINS(b.error.message, "float8_e5m2");
        sbit_qconfig_destroy(config);
        build_end(&b);
    }
}

/* ---- pairs of other tools */

/* x[2,2] -> DQ(Q) -> Gemm with DQ(weight), DQ(bias) -> Q -> DQ, with the scales given. */
static sbit_graph *foreign(build *b, const float *weight_scale, int64_t axis, float bias_scale,
                           bool zeros_short)
{
    static const int8_t w[4] = {10, -20, 30, 40};
    static const int32_t bias[2] = {100, -50};
    static const uint8_t none[2] = {0, 0};
    static const float unit = 0.1f;
    const sbit_attr along = build_int("axis", axis), turned = build_int("transB", 1);
    sbit_value_id in[3], gemm[3], scale, zero;
    build_begin(b, 17);
    in[0] = build_input(b, "x", SBIT_F32, "2,2");
    scale = in[1] = build_constant(b, "s", SBIT_F32, "", &unit);
    zero = in[2] = build_constant(b, "z", SBIT_U8, "", none);
    in[0] = build_node(b, "QuantizeLinear", "q", in, 3, NULL, 0);
    gemm[0] = build_node(b, "DequantizeLinear", "dq", in, 3, NULL, 0);
    in[0] = build_constant(b, "w", SBIT_I8, "2,2", w);
    in[1] = build_constant(b, "ws", SBIT_F32, "2", weight_scale);
    in[2] = build_constant(b, "wz", SBIT_I8, zeros_short ? "" : "2", none);
    gemm[1] = build_node(b, "DequantizeLinear", "wd", in, 3, &along, 1);
    in[0] = build_constant(b, "b", SBIT_I32, "2", bias);
    in[1] = build_constant(b, "bs", SBIT_F32, "", &bias_scale);
    gemm[2] = build_node(b, "DequantizeLinear", "bd", in, 2, NULL, 0);
    in[0] = build_node(b, "Gemm", "gemm", gemm, 3, &turned, 1);
    in[1] = scale;
    in[2] = zero;
    in[0] = build_node(b, "QuantizeLinear", "q2", in, 3, NULL, 0);
    build_output(b, build_node(b, "DequantizeLinear", "y", in, 3, NULL, 0));
    return b->graph;
}

/* QGemm takes a bias in its own unit and scales along its outputs alone. */
TEST(foreign_pairs_that_no_integer_operator_says)
{
    static const float same[2] = {0.5f, 0.5f}, differ[2] = {0.5f, 0.25f};
    static const struct {
        const float *scales;
        int axis;
        float bias;
        size_t operators;
    } cases[] = {{same, 0, 0.05f, 1}, {same, 0, 0.07f, 0}, {differ, 1, 0.05f, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build b;
        sbit_graph *out = NULL;
        sbit_graph *graph = foreign(&b, cases[i].scales, cases[i].axis, cases[i].bias, false);
        if (build_do(&b, sbit_format_convert(graph, "qoperator", &out, &b.error), "convert")) {
            CHECK_EQ_I64(count_nodes(out, "QGemm"), cases[i].operators);
        }
        sbit_graph_destroy(out);
        build_end(&b);
    }
}

/* Scales and zero points that do not go together are an error, not a read past their end. */
TEST(malformed_pairs_are_refused)
{
    static const float scales[2] = {0.5f, 0.25f};
    build b;
    sbit_graph *out = NULL;
    sbit_graph *graph = foreign(&b, scales, 0, 0.05f, true);
    CHECK(sbit_dequantize(graph, &out, &b.error) == SBIT_ERR_SHAPE);
    build_end(&b);
}
