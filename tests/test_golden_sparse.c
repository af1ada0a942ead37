/* test_golden_sparse.c: masks that Sparsebit (G) and NNI (D) gave on fixed inputs; see the README
 * of
 * ../shared/golden. Equal scores may be pruned in another order: then numbers are compared.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"
#include "golden.h"

typedef struct masks {
    sbit_ctx *ctx;
    sbit_graph *graph;
    sbit_sconfig *config;
    sbit_sparse *sparse;
    sbit_error error;
    int compared;
    bool columns; /* of weight_open: the layer's rows lie along axis 1 */
} masks;

static void masks_close(masks *m)
{
    sbit_sparse_destroy(m->sparse);
    sbit_sconfig_destroy(m->config);
    sbit_graph_destroy(m->graph);
    m->sparse = NULL;
    m->config = NULL;
    m->graph = NULL;
}

/* Pairs of key and value, NULL at the end. */
static bool set_more(masks *m, const char *const *more)
{
    for (; more != NULL && more[0] != NULL; more += 2) {
        if (!CHECK_OK(sbit_sconfig_set(m->config, more[0], more[1], &m->error), m->error)) {
            return false;
        }
    }
    return true;
}

/* A network of a golden folder with a configuration, and more of it. */
static bool masks_open(masks *m, const sbit_yaml *e, const char *config, const char *const *more)
{
    char name[300], path[1024];
    snprintf(name, sizeof name, "golden/%s", golden_text(golden_get(e, "inputs"), "onnx"));
    return CHECK(test_shared(name, path, sizeof path)) &&
           CHECK_OK(sbit_graph_load(m->ctx, path, &m->graph, &m->error), m->error) &&
           CHECK_OK(sbit_sconfig_read(m->ctx, config, strlen(config), &m->config, &m->error),
                    m->error) &&
           set_more(m, more) &&
           CHECK_OK(sbit_sparse_create(m->graph, m->config, &m->sparse, &m->error), m->error);
}

/* Our mask of a constant: 1 for every element that has none. */
static bool mask_named(const masks *m, const char *name, const uint8_t **keep, int64_t *count)
{
    for (size_t i = 0; i < sbit_sparse_mask_count(m->sparse); i++) {
        sbit_mask mask;
        if (sbit_sparse_mask(m->sparse, i, &mask) == SBIT_OK && strcmp(mask.name, name) == 0) {
            *keep = mask.keep;
            *count = mask.count;
            return true;
        }
    }
    *keep = NULL;
    return false;
}

/* Rows of equal worth may be exchanged: true if what each prunes is worth the same. */
static bool equal_worth(golden *g, const sbit_yaml *outputs, const char *key, const uint8_t *ours,
                        const golden_array_view *theirs)
{
    char metric[200];
    golden_array_view m;
    double a = 0.0, b = 0.0;
    snprintf(metric, sizeof metric, "metric/%.*s.weight", (int)(strcspn(key + 5, ".")), key + 5);
    const char *name = golden_text(outputs, metric);
    if (name[0] == '\0' || !golden_array(g, name, &m) || m.f == NULL || m.rank != 1) {
        return false;
    }
    const int64_t each = theirs->count / m.count;
    for (int64_t r = 0; r < m.count; r++) {
        a += ours[r * each] == 0 ? (double)m.f[r] : 0.0;
        b += theirs->u8[r * each] == 0 ? (double)m.f[r] : 0.0;
    }
    return fabs(a - b) <= 1e-6 * fabs(b);
}

/* All masks of the entry that belong to weights and biases. */
static void compare_masks(masks *m, golden *g, const sbit_yaml *e, bool with_bias)
{
    const sbit_yaml *outputs = golden_get(e, "outputs");
    for (size_t i = 0; outputs != NULL && i < outputs->count; i++) {
        const char *key = outputs->items[i].key;
        const size_t size = strlen(key);
        const bool weight = size > 7 && strcmp(key + size - 7, ".weight") == 0;
        const bool bias = size > 5 && strcmp(key + size - 5, ".bias") == 0;
        golden_array_view v;
        const uint8_t *keep = NULL;
        int64_t count = 0, zeros = 0, ours = 0, differ = 0;
        if (strncmp(key, "mask/", 5) != 0 || (!weight && !(bias && with_bias)) ||
            !golden_array(g, outputs->items[i].text, &v)) {
            continue;
        }
        const bool has = mask_named(m, key + 5, &keep, &count);
        for (int64_t k = 0; k < v.count; k++) {
            zeros += v.u8[k] == 0;
            ours += has && keep[k] == 0;
            differ += (has ? keep[k] : 1) != v.u8[k];
        }
        CHECK_MSG(!has || count == v.count, "%s: %s has another shape", golden_text(e, "id"), key);
        if (has && zeros == ours && equal_worth(g, outputs, key, keep, &v)) {
            differ = 0;
        }
        CHECK_MSG(zeros == ours && differ == 0, "%s: %s prunes %d, not %d; %d differ",
                  golden_text(e, "id"), key, (int)ours, (int)zeros, (int)differ);
        m->compared++;
    }
}

static bool begins(const sbit_yaml *e, const char *text)
{
    return strncmp(golden_text(e, "id"), text, strlen(text)) == 0;
}

TEST(sparsebits_masks_of_whole_models)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "G_sparsebit_sparse_and_placement")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        char config[200];
        const sbit_yaml *arguments = golden_get(e, "arguments");
        if (!begins(e, "sparse_model/") || golden_get(e, "error") != NULL ||
            golden_get(e, "known_bug") != NULL) {
            continue;
        }
        snprintf(config, sizeof config, "SPARSER: {TYPE: %s, STRATEGY: l1norm, RATIO: %s}\n",
                 golden_text(arguments, "TYPE"), golden_text(arguments, "RATIO"));
        if (masks_open(&m, e, config, NULL)) {
            if (strcmp(golden_text(arguments, "disable_sparse_before_add"), "true") == 0) {
                sbit_sparse_disable_sparse_before_add(m.sparse);
            }
            CHECK_OK(sbit_sparse_calc_params(m.sparse, NULL, &m.error), m.error);
            compare_masks(&m, &g, e, true);
        }
        masks_close(&m);
    }
    CHECK_MSG(m.compared > 100, "only %d masks", m.compared);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

/* The samples that NNI's activation pruners saw: batches of 4 until there were `steps`. */
static bool nni_feed(golden *g, sbit_ctx *ctx, const char *net, int64_t steps, sbit_feed *feed,
                     sbit_error *error)
{
    char name[120];
    static golden_array_view v, labels;
    static sbit_tensor x, y;
    sbit_feed_desc desc;
    snprintf(name, sizeof name, "net/%s/x", net);
    if (!golden_array(g, name, &v) || v.f == NULL) {
        return false;
    }
    snprintf(name, sizeof name, "net/%s/labels", net);
    if (!golden_array(g, name, &labels)) {
        return false;
    }
    memset(&x, 0, sizeof x);
    memset(&y, 0, sizeof y);
    memset(&desc, 0, sizeof desc);
    if (v.rank < 3) {
        return false;
    }
    x.dtype = SBIT_F32;
    for (int i = 1; i < v.rank; i++) { /* [batches, samples, ...] */
        x.dims[x.rank++] = v.dims[i];
    }
    x.dims[0] = (steps + 3) / 4 * 4 < 4 ? 4 : (steps + 3) / 4 * 4;
    x.dims[0] = x.dims[0] > v.dims[0] * v.dims[1] ? v.dims[0] * v.dims[1] : x.dims[0];
    memcpy(&x.data, &v.f, sizeof v.f);
    y.dtype = SBIT_I64;
    y.rank = 1;
    y.dims[0] = x.dims[0];
    memcpy(&y.data, &labels.u8, sizeof labels.u8);
    desc.inputs = &x;
    desc.input_count = 1;
    desc.targets = &y;
    desc.target_count = 1;
    desc.batch = 4;
    return sbit_feed_of_tensors(ctx, &desc, feed, error) == SBIT_OK;
}

/* The value of a key of the entry's arguments as it stands in the index: JSON is YAML. */
static void raw_argument(const char *line, const char *key, char *out, size_t size)
{
    char quoted[80];
    int depth = 0;
    size_t n = 0;
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *end = strchr(line, '\n'), *at = strstr(line, quoted);
    out[0] = '\0';
    if (at == NULL || (end != NULL && at > end)) {
        return;
    }
    for (at += strlen(quoted); n + 1 < size && at != end && *at != '\0'; at++) {
        depth += *at == '[' || *at == '{' ? 1 : *at == ']' || *at == '}' ? -1 : 0;
        if (depth < 0 || (depth == 0 && *at == ',')) {
            break;
        }
        out[n++] = *at;
    }
    out[n] = '\0';
}

/* What cannot be compared, by a part of its name, and why. */
static const struct {
    const char *version, *id, *why;
} nni_left_out[] = {
    {"", "speedup/", "constants of what goes are dropped, not folded"},
    {"", "dependency_aware/rescnn_dw/", "a depthwise layer is scored by itself: here with those that it hangs on"},
    {"_1.9", "dependency_aware/rescnn_g4/0.25", "layers fill up by their own scores"},
    {"_1.9", "dependency_aware/rescnn_g4/0.7", "layers fill up by their own scores"},
    {"_1.9", "dependency_aware/different_sparsity", "layers fill up by their own scores"},
    {"_1.9", "dependency_aware/one_member_not_in_config", "layers fill up by their own scores"},
    {"_1.9", "/ties", "weights were changed that are in no file"},
    {"", "level/total_sparsity", "mode normal takes it for the ratio of each layer"},
    {"", "taylor/global/mlp", "its share is of elements, not of filters"},
    {"_3.0", "l1norm/global/rescnn", "its share is of elements, not of filters"},
    {"_3.0", "fpgm/global/rescnn", "its share is of elements, not of filters"},
    {"", "movement/", "scores are trained by Adam"},
    {"_3.0", "slim/", "factors are trained by Adam"},
};

static const char *nni_reason(const char *group, const sbit_yaml *e)
{
    for (size_t i = 0; i < sizeof nni_left_out / sizeof *nni_left_out; i++) {
        if (strstr(group, nni_left_out[i].version) != NULL && strstr(golden_text(e, "id"), nni_left_out[i].id) != NULL) {
            return nni_left_out[i].why;
        }
    }
    return NULL;
}

/* Every entry that has a list of NNI's own and gives masks, read as NNI's list. */
static void compare_nni(const char *group, int all)
{
    masks m;
    golden g, nets;
    int left_out = 0;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, group) || !golden_open(&nets, m.ctx, "D_nni_2.10_pruners")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    for (;;) {
        char config[1600], list[1400], pruner[80], within[40];
        const char *line = g.line + strspn(g.line, " \n");
        const sbit_yaml *e = golden_next(&g), *arguments = golden_get(e, "arguments");
        if (e == NULL) {
            break;
        }
        raw_argument(line, "config_list", list, sizeof list);
        raw_argument(line, "pruner", pruner, sizeof pruner);
        if (list[0] == '\0' || pruner[0] == '\0' || golden_get(e, "error") != NULL || golden_get(e, "known_bug") != NULL) {
            continue;
        }
        if (nni_reason(group, e) != NULL) {
            left_out++;
            continue;
        }
        snprintf(config, sizeof config, "{pruner: %s, config_list: %s}", pruner, list);
        const sbit_yaml *balance = golden_get(arguments, "balance_gran");
        const char *activation = golden_text(arguments, "activation"), *more[7];
        size_t n = 0;
        if (begins(e, "apoz") || begins(e, "mean_activation")) { /* what their classes take beside the list */
            more[n++] = "SPARSER.ACTIVATION";
            more[n++] = activation[0] != '\0' ? activation : "relu";
        }
        if (balance != NULL) {
            snprintf(within, sizeof within, "%sx%s", balance->items[0].text, balance->items[1].text);
            more[n++] = "SPARSER.WITHIN";
            more[n++] = within;
        }
        if (strstr(group, "_1.9") != NULL && begins(e, "slim")) { /* one threshold for all */
            more[n++] = "SPARSER.SCOPE";
            more[n++] = "model";
        }
        more[n] = NULL;
        const bool dependent = strstr(golden_text(e, "id"), "dependency") != NULL;
        if (masks_open(&m, e, config, more)) {
            sbit_feed feed;
            const bool fed = nni_feed(&nets, m.ctx, golden_text(arguments, "net"),
                         /* taylor's are batches, of activations they are samples */
                         (begins(e, "taylor") ? 4 : 1) * (int64_t)golden_value(arguments, "training_steps") +
                             4 * (int64_t)golden_value(arguments, "statistics_batch_num"),
                         &feed, &m.error);
            CHECK_OK((dependent ? sbit_sparse_select : sbit_sparse_calc_params)(m.sparse, fed ? &feed : NULL, &m.error),
                     m.error);
            compare_masks(&m, &g, e, !begins(e, "level"));
            if (fed) {
                sbit_feed_close(&feed);
            }
        }
        masks_close(&m);
    }
    CHECK_MSG(m.compared == all, "%d masks, not %d; %d entries left out", m.compared, all, left_out);
    golden_close(&nets);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

TEST(nni_1_9_masks)
{
    compare_nni("D_nni_1.9_pruners", 427);
}

TEST(nni_2_10_masks)
{
    compare_nni("D_nni_2.10_pruners", 614);
}

TEST(nni_3_0_masks)
{
    compare_nni("D_nni_3.0_pruners", 524);
}

/* ---- torch.ao.pruning: its row masks on the network before, cut by us, against its pruned network
 */

static bool torch_set_rows(masks *m, golden *g, const sbit_yaml *outputs, bool prune_bias)
{
    for (size_t i = 0; i < outputs->count; i++) {
        const char *key = outputs->items[i].key;
        golden_array_view v;
        char name[200];
        if (strncmp(key, "mask/", 5) != 0 || !golden_array(g, outputs->items[i].text, &v)) {
            continue;
        }
        for (int bias = 0; bias < (prune_bias ? 2 : 1); bias++) {
            snprintf(name, sizeof name, "%s.%s", key + 5, bias ? "bias" : "weight");
            const sbit_graph *graph = sbit_sparse_graph(m->sparse);
            const sbit_value_id id = sbit_graph_find_value(graph, name);
            if (id.idx == 0) {
                if (bias) {
                    continue; /* has none */
                }
                return false;
            }
            const int64_t count = sbit_tensor_count(&sbit_graph_value(graph, id)->constant);
            uint8_t *keep = (uint8_t *)malloc((size_t)count);
            for (int64_t k = 0; k < count; k++) {
                keep[k] = v.u8[k / (count / v.count)];
            }
            CHECK_OK(sbit_sparse_set_mask(m->sparse, name, keep, count, &m->error), m->error);
            free(keep);
        }
    }
    return true;
}

static void torch_compare(masks *m, golden *g, const sbit_yaml *e, const sbit_graph *shrunk)
{
    golden_array_view x, y;
    sbit_session *session = NULL;
    sbit_graph *run = NULL;
    sbit_tensor in;
    const sbit_yaml *shapes = golden_get(golden_get(e, "values"), "shapes");
    if (!golden_array(g, golden_text(golden_get(e, "inputs"), "x"), &x) ||
        !golden_array(g, golden_text(golden_get(e, "outputs"), "y_pruned"), &y) || x.f == NULL ||
        y.f == NULL) {
        return;
    }
    memset(&in, 0, sizeof in);
    in.dtype = SBIT_F32;
    in.rank = x.rank;
    memcpy(in.dims, x.dims, (size_t)x.rank * sizeof *x.dims);
    memcpy(&in.data, &x.f, sizeof x.f);
    if (CHECK_OK(sbit_graph_clone(shrunk, &run, &m->error), m->error) &&
        CHECK_OK(sbit_session_create(run, NULL, &session, &m->error), m->error) &&
        CHECK_OK(sbit_session_set_input(session, sbit_session_input_info(session, 0)->name, &in,
                                        &m->error),
                 m->error) &&
        CHECK_OK(sbit_session_run(session, &m->error), m->error)) {
        const sbit_tensor *out = &sbit_session_output(session, 0)->tensor;
        double worst = 0.0, largest = 1e-6;
        if (CHECK_MSG(sbit_tensor_count(out) == y.count, "%s: another shape",
                      golden_text(e, "id"))) {
            for (int64_t i = 0; i < y.count; i++) {
                const double d = fabs((double)((const float *)out->data)[i] - (double)y.f[i]);
                worst = d > worst ? d : worst;
                largest = fabs((double)y.f[i]) > largest ? fabs((double)y.f[i]) : largest;
            }
            CHECK_MSG(worst <= 1e-5 * largest, "%s: off by %.3g of %.3g", golden_text(e, "id"),
                      worst, largest);
        }
    }
    for (size_t i = 0; shapes != NULL && i < shapes->count; i++) { /* never larger than torch's */
        const sbit_value_id id = sbit_graph_find_value(shrunk, shapes->items[i].key);
        const sbit_tensor *tensor = id.idx != 0 ? &sbit_graph_value(shrunk, id)->constant : NULL;
        for (int32_t d = 0;
             tensor != NULL && d < tensor->rank && (size_t)tensor->rank == shapes->items[i].count;
             d++) {
            CHECK_MSG(tensor->dims[d] <= atoi(shapes->items[i].items[d].text),
                      "%s: %s keeps %d of axis %d, torch %s", golden_text(e, "id"),
                      shapes->items[i].key, (int)tensor->dims[d], (int)d,
                      shapes->items[i].items[d].text);
        }
    }
    sbit_session_destroy(session);
    sbit_graph_destroy(run);
    m->compared++;
}

TEST(torchs_pruned_networks_are_reproduced)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "E_torch_ao_pruning")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        char config[200], path[1024], name[300];
        const sbit_yaml *inputs = golden_get(e, "inputs"), *outputs = golden_get(e, "outputs");
        const bool prune_bias =
            strcmp(golden_text(golden_get(e, "arguments"), "prune_bias"), "false") != 0;
        sbit_graph *shrunk = NULL;
        if ((!begins(e, "models/") && !begins(e, "activations/")) ||
            golden_get(e, "known_bug") != NULL || golden_get(e, "error") != NULL ||
            golden_text(inputs, "onnx_before")[0] == '\0' ||
            strstr(golden_text(e, "id"), "with_output_layer") != NULL) { /* outputs stay whole */
            continue;
        }
        snprintf(config, sizeof config,
                 "SPARSER: {TYPE: structured, STRATEGY: l1norm, RATIO: 0.5, PRUNE_BIAS: %s}\n",
                 prune_bias ? "true" : "false");
        snprintf(name, sizeof name, "golden/%s", golden_text(inputs, "onnx_before"));
        if (CHECK(test_shared(name, path, sizeof path)) &&
            CHECK_OK(sbit_graph_load(m.ctx, path, &m.graph, &m.error), m.error) &&
            CHECK_OK(sbit_sconfig_read(m.ctx, config, strlen(config), &m.config, &m.error),
                     m.error) &&
            CHECK_OK(sbit_sparse_create(m.graph, m.config, &m.sparse, &m.error), m.error) &&
            torch_set_rows(&m, &g, outputs, prune_bias)) {
            if (CHECK_OK(sbit_sparse_shrink(m.sparse, NULL, &shrunk, &m.error), m.error)) {
                torch_compare(&m, &g, e, shrunk);
            }
            sbit_graph_destroy(shrunk);
        }
        masks_close(&m);
    }
    CHECK_MSG(m.compared > 30, "only %d networks", m.compared);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

/* ---- torch's masks of single weights: blocks by their mean, rows by L1 or distance */

/* Gemm with a weight [rows, columns], or Conv, in front of another Gemm: rows can go. */
static bool weight_open(masks *m, const golden_array_view *w, const char *config)
{
    sbit_tensor weight;
    sbit_type type;
    sbit_value_id in[2], y;
    sbit_node_desc desc;
    sbit_node_id node;
    sbit_attr trans;
    memset(&weight, 0, sizeof weight);
    memset(&type, 0, sizeof type);
    memset(&desc, 0, sizeof desc);
    memset(&trans, 0, sizeof trans);
    weight.dtype = type.dtype = SBIT_F32;
    weight.rank = type.rank = w->rank;
    for (int i = 0; i < w->rank; i++) {
        weight.dims[i] = w->dims[i];
        type.dims[i].value = i == 1 ? w->dims[m->columns ? 0 : 1] : i == 0 ? 2 : 5;
    }
    memcpy(&weight.data, &w->f, sizeof w->f);
    trans.name = "transB";
    trans.type = SBIT_ONNX_ATTR_INT;
    trans.i = 1;
    desc.op_type = w->rank == 2 ? "Gemm" : m->columns ? "ConvTranspose" : "Conv";
    desc.inputs = in;
    desc.input_count = 2;
    desc.outputs = &y;
    desc.output_count = 1;
    desc.attrs = &trans;
    desc.attr_count = w->rank == 2 && !m->columns ? 1 : 0;
    return CHECK_OK(sbit_graph_create(m->ctx, 17, &m->graph, &m->error), m->error) &&
           CHECK_OK(sbit_graph_add_value(m->graph, "x", &type, &in[0], &m->error), m->error) &&
           CHECK_OK(sbit_graph_set_input(m->graph, in[0], true, &m->error), m->error) &&
           CHECK_OK(sbit_graph_add_constant(m->graph, "w.weight", &weight, &in[1], &m->error),
                    m->error) &&
           CHECK_OK(sbit_graph_add_value(m->graph, "y", &type, &y, &m->error), m->error) &&
           CHECK_OK(sbit_graph_add_node(m->graph, &desc, &node, &m->error), m->error) &&
           CHECK_OK(sbit_graph_add_output(m->graph, y, &m->error), m->error) &&
           CHECK_OK(sbit_sconfig_read(m->ctx, config, strlen(config), &m->config, &m->error),
                    m->error) &&
           CHECK_OK(sbit_sparse_create(m->graph, m->config, &m->sparse, &m->error), m->error) &&
           CHECK_OK(sbit_sparse_calc_params(m->sparse, NULL, &m->error), m->error);
}

/* torch rounds where we round down: the ratio that gives `count` of `n`. */
static double ratio_of(int64_t count, int64_t n)
{
    return count >= n ? 1.0 : ((double)count + 0.25) / (double)n;
}

/* What the entry asks for; false: a mix of blocks and elements that is not here. */
static bool torch_config(const sbit_yaml *e, const golden_array_view *w, char *config, size_t size)
{
    const sbit_yaml *arguments = golden_get(e, "arguments");
    const double level = golden_value(arguments, "sparsity_level");
    if (begins(e, "rows/")) {
        const bool fpgm = begins(e, "rows/fpgm");
        const int64_t count = (int64_t)(fpgm ? nearbyint(level * (double)w->dims[0])
                                             : floor(level * (double)w->dims[0]));
        snprintf(config, size,
                 "SPARSER: {TYPE: structured, STRATEGY: %s, RATIO: %.9g, FPGM.P: %d}\n",
                 fpgm ? "fpgm" : "l1norm", count > 0 ? ratio_of(count, w->dims[0]) : 0.0,
                 begins(e, "rows/fpgm_l1") ? 1 : 2);
        return true;
    }
    const sbit_yaml *shape = golden_get(arguments, "sparse_block_shape");
    const char *zeros = golden_text(arguments, "zeros_per_block");
    const int64_t h = shape != NULL && shape->count == 2 ? atoi(shape->items[0].text) : 0;
    const int64_t v = shape != NULL && shape->count == 2 ? atoi(shape->items[1].text) : 0;
    if (h == 0 || (zeros[0] != '\0' && strcmp(zeros, "null") != 0 && atoi(zeros) != h * v)) {
        return false;
    }
    const int64_t blocks = (w->dims[0] + h - 1) / h * ((w->dims[1] + v - 1) / v);
    int64_t count = (int64_t)nearbyint(level * (double)blocks);
    count = level >= 1.0 ? blocks : count > blocks - 1 ? blocks - 1 : count;
    snprintf(config, size,
             "SPARSER: {TYPE: unstructured, STRATEGY: %s, RATIO: %.9g, BLOCK: %dx%d}\n",
             strcmp(golden_text(arguments, "norm"), "1") == 0 ? "level" : "l2norm",
             count > 0 ? ratio_of(count, blocks) : 0.0, (int)h, (int)v);
    return true;
}

TEST(torchs_bands_along_the_diagonal)
{
    static float ones[64 * 64];
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "E_torch_ao_pruning")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    for (int i = 0; i < 64 * 64; i++) {
        ones[i] = 1.0f;
    }
    while ((e = golden_next(&g)) != NULL) {
        const sbit_yaml *shape = golden_get(golden_get(e, "arguments"), "shape");
        const char *band = golden_text(golden_get(e, "arguments"), "nearliness");
        char config[120];
        golden_array_view w, v;
        const uint8_t *keep = NULL;
        int64_t count = 0, differ = 0;
        if (!begins(e, "nearly_diagonal/") || shape == NULL || shape->count != 2 ||
            atoi(band) < 1) {
            continue;
        }
        memset(&w, 0, sizeof w);
        w.rank = 2;
        w.dims[0] = atoi(shape->items[0].text);
        w.dims[1] = atoi(shape->items[1].text);
        w.count = w.dims[0] * w.dims[1];
        w.f = ones;
        snprintf(config, sizeof config,
                 "SPARSER: {TYPE: unstructured, STRATEGY: level, DIAGONAL: %s}\n", band);
        if (atoi(band) % 2 == 0) { /* both refuse it */
            CHECK_STATUS(sbit_sconfig_read(m.ctx, config, strlen(config), &m.config, &m.error),
                         SBIT_ERR_CONFIG, m.error);
            CHECK(golden_get(e, "error") != NULL);
        } else if (golden_get(e, "error") == NULL &&
                   golden_array(&g, golden_text(golden_get(e, "outputs"), "mask"), &v) &&
                   CHECK_EQ_I64(v.count, w.count) && CHECK(w.count <= 64 * 64) &&
                   weight_open(&m, &w, config)) {
            const bool has = mask_named(&m, "w.weight", &keep, &count);
            for (int64_t i = 0; i < w.count; i++) {
                /* the array is of float32 or bytes */
                const int wanted = v.f != NULL ? v.f[i] != 0.0f : v.u8[i];
                differ += (has ? keep[i] : 1) != wanted;
            }
            CHECK_MSG(differ == 0, "%s: %d differ", golden_text(e, "id"), (int)differ);
            m.compared++;
        }
        masks_close(&m);
    }
    CHECK_MSG(m.compared > 5, "only %d masks", m.compared);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

TEST(torchs_masks_of_weights)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "E_torch_ao_pruning")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        char config[200];
        golden_array_view w, v;
        const uint8_t *keep = NULL;
        int64_t count = 0, ours = 0, theirs = 0, differ = 0;
        if ((!begins(e, "rows/") && !begins(e, "weight_norm/")) || golden_get(e, "error") != NULL ||
            golden_get(e, "known_bug") != NULL ||
            !golden_array(&g, golden_text(golden_get(e, "inputs"), "weight"), &w) || w.f == NULL ||
            !golden_array(&g, golden_text(golden_get(e, "outputs"), "mask"), &v) ||
            !torch_config(e, &w, config, sizeof config)) {
            continue;
        }
        if (weight_open(&m, &w, config)) {
            const bool has = mask_named(&m, "w.weight", &keep, &count);
            for (int64_t i = 0; i < w.count; i++) {
                const int kept = has ? keep[i] : 1, wanted = v.u8[i / (w.count / v.count)];
                ours += kept == 0;
                theirs += wanted == 0;
                differ += kept != wanted;
            }
            const bool ties = strstr(golden_text(e, "id"), "ties") != NULL;
            CHECK_MSG(ours == theirs && (differ == 0 || ties),
                      "%s: %s prunes %d, not %d; %d differ", golden_text(e, "id"), config,
                      (int)ours, (int)theirs, (int)differ);
            m.compared++;
        }
        masks_close(&m);
    }
    CHECK_MSG(m.compared > 100, "only %d masks", m.compared);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

/* ---- torch.nn.utils.prune (F) and Sparsebit's l1norm (G): one weight each */

/* The weight's mask under a configuration, on top of a mask of before (NULL: none). */
static void compare_weight(masks *m, golden *g, const sbit_yaml *e, const char *input, const char *output,
                           const char *config, const golden_array_view *before)
{
    golden_array_view w, v;
    const uint8_t *keep = NULL;
    int64_t count = 0, ours = 0, theirs = 0, differ = 0;
    if (CHECK(golden_array(g, golden_text(golden_get(e, "inputs"), input), &w) && w.f != NULL &&
              golden_array(g, golden_text(golden_get(e, "outputs"), output), &v)) &&
        weight_open(m, &w, config)) {
        if (before != NULL) {
            sbit_mask mask;
            memset(&mask, 0, sizeof mask);
            mask.name = "w.weight";
            mask.keep = before->u8;
            mask.count = before->count;
            CHECK_OK(sbit_sparse_set_masks(m->sparse, &mask, 1, true, &m->error), m->error);
            CHECK_OK(sbit_sparse_calc_params(m->sparse, NULL, &m->error), m->error);
        }
        const bool has = mask_named(m, "w.weight", &keep, &count);
        for (int64_t i = 0; i < w.count; i++) {
            const int kept = has ? keep[i] : 1, wanted = v.u8[i];
            ours += kept == 0;
            theirs += wanted == 0;
            differ += kept != wanted;
        }
        CHECK_MSG(v.count == w.count && ours == theirs && (differ == 0 || strstr(golden_text(e, "id"), "ties") != NULL),
                  "%s: %s prunes %d, not %d; %d differ", golden_text(e, "id"), config, (int)ours, (int)theirs,
                  (int)differ);
        m->compared++;
    }
    masks_close(m);
}

/* torch's amount: a number of units, or a share, rounded half to even. */
static double torch_ratio(const char *amount, int64_t n)
{
    return ratio_of(strchr(amount, '.') != NULL ? (int64_t)nearbyint(atof(amount) * (double)n) : atoi(amount), n);
}

TEST(torchs_own_pruning_functions)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "F_torch_prune_and_quantization")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        const sbit_yaml *arguments = golden_get(e, "arguments"), *twice = golden_get(arguments, "amount");
        golden_array_view w, first;
        char config[200];
        const char *norm = golden_text(arguments, "n");
        if (!begins(e, "prune/") || begins(e, "prune/global")) { /* both weights at once: below */
            continue;
        }
        CHECK(golden_array(&g, golden_text(golden_get(e, "inputs"), "weight"), &w));
        if (begins(e, "prune/ln_structured")) { /* of dim 1 a unit is a column */
            const int dim = atoi(golden_text(arguments, "dim"));
            m.columns = dim == 1 && strcmp(norm, "inf") == 0; /* a block's largest is no sum of elements */
            const bool rows = dim == 0 || m.columns;
            snprintf(config, sizeof config, "SPARSER: {TYPE: %s, STRATEGY: l%snorm, RATIO: %.9g%s}\n",
                     rows ? "structured" : "unstructured", norm, torch_ratio(golden_text(arguments, "amount"), w.dims[dim]),
                     rows ? "" : ", BLOCK: -1x1x-1");
            compare_weight(&m, &g, e, "weight", "mask", config, NULL);
            m.columns = false;
        } else if (twice->count == 2) { /* the second amount is of what the first left */
            char id[120];
            snprintf(id, sizeof id, "prune/l1_unstructured/%s/mask", golden_text(e, "id") + strlen("prune/l1_unstructured_twice/"));
            const bool known = golden_array(&g, id, &first);
            int64_t gone = 0;
            for (int64_t i = 0; known && i < first.count; i++) {
                gone += first.u8[i] == 0;
            }
            gone += (int64_t)nearbyint(atof(twice->items[1].text) * (double)(w.count - gone));
            snprintf(config, sizeof config, "SPARSER: {TYPE: unstructured, STRATEGY: level, RATIO: %.9g}\n",
                     ratio_of(gone, w.count));
            if (CHECK(known)) {
                compare_weight(&m, &g, e, "weight", "mask", config, &first);
            }
        } else {
            snprintf(config, sizeof config, "SPARSER: {TYPE: unstructured, STRATEGY: level, RATIO: %.9g}\n",
                     torch_ratio(golden_text(arguments, "amount"), w.count));
            compare_weight(&m, &g, e, "weight", "mask", config, NULL);
        }
    }
    CHECK_EQ_I64(m.compared, 48);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

/* Two weights ranked together: a network of two branches. */
TEST(torchs_ranking_of_all_weights)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "F_torch_prune_and_quantization")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        static const char *const names[] = {"linear", "conv"};
        golden_array_view w[2], v[2];
        build b;
        char config[200];
        if (!begins(e, "prune/global")) {
            continue;
        }
        memset(&b, 0, sizeof b);
        b.ctx = m.ctx;
        for (int i = 0; i < 2; i++) {
            char mask[40];
            snprintf(mask, sizeof mask, "mask_%s", names[i]);
            CHECK(golden_array(&g, golden_text(golden_get(e, "inputs"), names[i]), &w[i]) && w[i].f != NULL);
            CHECK(golden_array(&g, golden_text(golden_get(e, "outputs"), mask), &v[i]));
        }
        snprintf(config, sizeof config, "SPARSER: {TYPE: unstructured, STRATEGY: level, SCOPE: model, MAX_RATIO: 1.0, RATIO: %.9g}\n",
                 torch_ratio(golden_text(golden_get(e, "arguments"), "amount"), w[0].count + w[1].count));
        CHECK_OK(sbit_graph_create(m.ctx, 17, &m.graph, &m.error), m.error);
        b.graph = m.graph;
        const char *const dims[] = {"12,7", "10,3,3,3"}, *const in[] = {"2,7", "2,3,5,5"};
        for (int i = 0; i < 2; i++) {
            char weight[40];
            snprintf(weight, sizeof weight, "%s.weight", names[i]);
            sbit_value_id x = build_input(&b, i == 0 ? "x" : "image", SBIT_F32, in[i]);
            const sbit_value_id k = build_constant(&b, weight, SBIT_F32, dims[i], w[i].f);
            const sbit_value_id inputs[2] = {x, k};
            const sbit_attr trans = build_int("transB", 1);
            x = build_node(&b, i == 0 ? "Gemm" : "Conv", names[i], inputs, 2, &trans, i == 0 ? 1 : 0);
            build_output(&b, x);
        }
        if (CHECK(!b.failed) && CHECK_OK(sbit_sconfig_read(m.ctx, config, strlen(config), &m.config, &m.error), m.error) &&
            CHECK_OK(sbit_sparse_create(m.graph, m.config, &m.sparse, &m.error), m.error) &&
            CHECK_OK(sbit_sparse_calc_params(m.sparse, NULL, &m.error), m.error)) {
            for (int i = 0; i < 2; i++) {
                char weight[40];
                const uint8_t *keep = NULL;
                int64_t count = 0, differ = 0;
                snprintf(weight, sizeof weight, "%s.weight", names[i]);
                const bool has = mask_named(&m, weight, &keep, &count);
                for (int64_t k = 0; k < v[i].count; k++) {
                    differ += (has ? keep[k] : 1) != v[i].u8[k];
                }
                CHECK_MSG(differ == 0, "%s: %d of %s differ", golden_text(e, "id"), (int)differ, names[i]);
                m.compared++;
            }
        }
        masks_close(&m);
    }
    CHECK_EQ_I64(m.compared, 8);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

TEST(sparsebits_masks_of_weights)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, "G_sparsebit_sparse_and_placement")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        const sbit_yaml *arguments = golden_get(e, "arguments");
        char config[200];
        if (begins(e, "l1norm/") && !begins(e, "l1norm/unstructed/ties")) { /* all equal ones go there */
            snprintf(config, sizeof config, "SPARSER: {TYPE: %s, STRATEGY: l1norm, RATIO: %s}\n",
                     golden_text(arguments, "TYPE"), golden_text(arguments, "RATIO"));
            compare_weight(&m, &g, e, "weight", "mask", config, NULL);
        }
    }
    CHECK_EQ_I64(m.compared, 29);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

/* ---- schedules: NNI's iterations 0..T, where `already` has been removed for good before */

TEST(nnis_schedules)
{
    golden g;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    const sbit_yaml *e;
    int compared = 0;
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    if (!golden_open(&g, ctx, "D_nni_2.10_pruners")) {
        sbit_ctx_destroy(ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        const sbit_yaml *arguments = golden_get(e, "arguments");
        golden_array_view v;
        const sbit_options none = {0, NULL};
        const sbit_sparsity_row *row =
            sbit_sparsity_find(ctx, begins(e, "schedule/linear") ? "linear"
                                    : begins(e, "schedule/agp")  ? "agp"
                                                                 : "lottery");
        if (!begins(e, "schedule/") ||
            !golden_array(&g, golden_text(golden_get(e, "outputs"), "sparsity"), &v) ||
            v.f == NULL) {
            continue;
        }
        const int64_t total = (int64_t)golden_value(arguments, "total_iteration");
        const double target = golden_value(arguments, "target");
        const double already = golden_value(arguments, "already_shrunk");
        for (int64_t t = 0; t < v.count; t++) {
            double s = row->at(&none, t, total, 0.0, target);
            s = s > already ? (s - already) / (1.0 - already) : 0.0;
            CHECK_MSG(fabs(s - (double)v.f[t]) <= 1e-6, "%s: %.7g at %d, not %.7g",
                      golden_text(e, "id"), s, (int)t, (double)v.f[t]);
        }
        compared++;
    }
    CHECK_MSG(compared > 20, "only %d schedules", compared);
    golden_close(&g);
    sbit_ctx_destroy(ctx);
}

/* What a row of schedules gives is what the original noted. */
static void schedule_is(const sbit_yaml *e, const sbit_sparsity_row *row, const sbit_options *options, int64_t step,
                        int64_t total, double from, double to, double wanted)
{
    const double s = row->at(options, step, total, from, to);
    CHECK_MSG(fabs(s - wanted) <= 1e-6, "%s: %.7g at %d of %d, not %.7g", golden_text(e, "id"), s, (int)step, (int)total,
              wanted);
}

TEST(schedules_of_nni_1_9)
{
    golden g;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    const sbit_yaml *e;
    const sbit_options none = {0, NULL};
    int compared = 0;
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    if (!golden_open(&g, ctx, "D_nni_1.9_pruners")) {
        sbit_ctx_destroy(ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        const sbit_yaml *a = golden_get(e, "arguments");
        golden_array_view v;
        if (golden_get(e, "error") != NULL || (!begins(e, "agp/") && !begins(e, "lottery/"))) {
            continue;
        }
        const sbit_sparsity_row *row = sbit_sparsity_find(ctx, begins(e, "agp/") ? "agp" : "lottery");
        if (begins(e, "agp/") && CHECK(golden_array(&g, golden_text(golden_get(e, "outputs"), "target"), &v))) {
            const int64_t start = atoi(golden_text(a, "start_epoch")), every = atoi(golden_text(a, "frequency"));
            const int64_t span = (atoi(golden_text(a, "end_epoch")) - start - 1) / every * every;
            for (int64_t t = start; t < v.count && t <= start + span; t++) {
                schedule_is(e, row, &none, t - start, span, golden_value(a, "initial_sparsity"),
                            golden_value(a, "final_sparsity"), (double)v.f[t]);
            }
        } else if (CHECK(golden_array(&g, golden_text(golden_get(e, "outputs"), "zeros"), &v) && v.rank == 2)) {
            static const int n[] = {192, 96, 32};
            for (int64_t i = 0; i < v.count; i++) {
                const double s = row->at(&none, i / 3, atoi(golden_text(a, "prune_iterations")), 0.0, golden_value(a, "sparsity"));
                int32_t zeros = 0;
                memcpy(&zeros, v.u8 + i * 4, sizeof zeros);
                CHECK_EQ_I64((int64_t)floor(s * n[i % 3] + 1e-9), zeros);
            }
        }
        compared++;
    }
    CHECK_EQ_I64(compared, 6);
    golden_close(&g);
    sbit_ctx_destroy(ctx);
}

TEST(schedules_of_nni_3_and_torch)
{
    golden g;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    const sbit_yaml *e;
    int compared = 0;
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error);
    for (int torch = 0; torch < 2; torch++) {
        if (!golden_open(&g, ctx, torch ? "E_torch_ao_pruning" : "D_nni_3.0_pruners")) {
            sbit_ctx_destroy(ctx);
            SBIT_TEST_SKIP("no shared golden data");
        }
        while ((e = golden_next(&g)) != NULL) {
            static const double targets[2][3] = {{1.0, 0.6, 0.8}, {0.5, 0.8, 0.0}};
            const sbit_yaml *a = golden_get(e, "arguments");
            const bool cubic = begins(e, "scheduler/cubic");
            golden_array_view v;
            if (!cubic && !begins(e, "schedule/")) {
                continue;
            }
            const sbit_sparsity_row *row = sbit_sparsity_find(
                ctx, cubic ? "cubic" : begins(e, "schedule/linear") ? "linear" : "agp");
            sbit_option items[2];
            const sbit_options options = {row->head.key_count < 2 ? row->head.key_count : 2, items};
            /* torch's total counts steps of delta_t epochs; 10 and 100 by default */
            const bool defaults = golden_get(a, "defaults") != NULL;
            const double delta = defaults ? 10.0 : golden_value(a, "delta_t"), begin = golden_value(a, "init_t");
            const double end = begin + delta * (defaults ? 100.0 : golden_value(a, "total_t"));
            const int64_t total = cubic ? (int64_t)end : atoi(golden_text(a, "total_times"));
            memset(items, 0, sizeof items);
            for (size_t k = 0; k < options.count; k++) {
                items[k].key = &row->head.keys[k];
                items[k].f = k == 0 ? begin / end : 1.0;
            }
            CHECK(golden_array(&g, golden_text(golden_get(e, "outputs"), cubic ? "levels" : "sequence"), &v) &&
                  v.rank == 2 && v.f != NULL);
            for (int64_t i = 0; i < v.count; i++) {
                const int64_t t = i / v.dims[1];
                const bool before = strcmp(golden_text(a, "initially_zero"), "true") == 0 && (double)t < begin;
                if (!before) { /* an INITIAL of 0 until then is a key of nobody's here */
                    schedule_is(e, row, &options, t < total ? t : total, total, golden_value(a, "init_sl"),
                                targets[torch][i % v.dims[1]], (double)v.f[i]);
                }
            }
            compared++;
        }
        golden_close(&g);
    }
    CHECK_EQ_I64(compared, 8);
    sbit_ctx_destroy(ctx);
}
