/* test_golden_sparse.c: masks that Sparsebit (G) and NNI (D) gave on fixed inputs; see the README
 * of
 * ../shared/golden. Equal scores may be pruned in another order: then numbers are compared.
 */
#include "../sparsebit.h"
#include "test.h"

#include "golden.h"

typedef struct masks {
    sbit_ctx *ctx;
    sbit_graph *graph;
    sbit_sconfig *config;
    sbit_sparse *sparse;
    sbit_error error;
    int compared;
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

/* A network of a golden folder with a configuration. */
static bool masks_open(masks *m, const sbit_yaml *e, const char *config)
{
    char name[300], path[1024];
    snprintf(name, sizeof name, "golden/%s", golden_text(golden_get(e, "inputs"), "onnx"));
    return CHECK(test_shared(name, path, sizeof path)) &&
           CHECK_OK(sbit_graph_load(m->ctx, path, &m->graph, &m->error), m->error) &&
           CHECK_OK(sbit_sconfig_read(m->ctx, config, strlen(config), &m->config, &m->error),
                    m->error) &&
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
        if (masks_open(&m, e, config)) {
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

static void compare_nni(const char *group, const char *const *prefixes, int least)
{
    masks m;
    golden g, nets;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, group) || !golden_open(&nets, m.ctx, "D_nni_2.10_pruners")) {
        sbit_ctx_destroy(m.ctx);
        SBIT_TEST_SKIP("no shared golden data");
    }
    while ((e = golden_next(&g)) != NULL) {
        char config[300];
        const sbit_yaml *arguments = golden_get(e, "arguments"), *list, *first;
        const char *strategy = NULL;
        for (size_t i = 0; prefixes[i] != NULL; i += 2) {
            strategy = begins(e, prefixes[i]) ? prefixes[i + 1] : strategy;
        }
        list = golden_get(arguments, "config_list");
        if (strategy == NULL || golden_get(e, "error") != NULL ||
            golden_get(e, "known_bug") != NULL || list == NULL || list->count == 0) {
            continue;
        }
        first = &list->items[0];
        const char *ratio = golden_text(first, "sparsity");
        ratio = ratio[0] != '\0' ? ratio : golden_text(first, "sparse_ratio");
        if (ratio[0] == '\0') {
            continue;
        }
        const bool elements = strcmp(strategy, "level") == 0;
        const char *block = strstr(golden_text(e, "id"), "granularity_1x4") != NULL ? ", BLOCK: 1x4"
                            : strstr(golden_text(e, "id"), "in_channel") != NULL ? ", BLOCK: -1x1"
                            : strstr(golden_text(e, "id"), "gran1x4") != NULL    ? ", WITHIN: 1x4"
                            : strstr(golden_text(e, "id"), "gran2x2") != NULL    ? ", WITHIN: 2x2"
                                                                                 : "";
        const bool global = strstr(golden_text(e, "id"), "global") != NULL;
        snprintf(config, sizeof config, "SPARSER: {TYPE: %s, STRATEGY: %s, RATIO: %s%s%s%s}\n",
                 elements ? "unstructured" : "structured", strategy, ratio,
                 strcmp(strategy, "apoz") == 0 || strcmp(strategy, "mean_activation") == 0
                     ? strstr(golden_text(e, "id"), "gelu") != NULL    ? ", ACTIVATION: gelu"
                       : strstr(golden_text(e, "id"), "relu6") != NULL ? ", ACTIVATION: relu6"
                                                                       : ", ACTIVATION: relu"
                     : "",
                 block, global ? ", SCOPE: model, MAX_RATIO: 1.0" : "");
        if (masks_open(&m, e, config)) {
            const sbit_yaml *types = golden_get(first, "op_types");
            const sbit_yaml *names = list->count > 1 ? golden_get(&list->items[1], "op_names")
                                                     : golden_get(first, "exclude_op_names");
            sbit_feed feed;
            const bool fed =
                nni_feed(&nets, m.ctx, golden_text(arguments, "net"),
                         /* taylor's are batches, of activations they are samples */
                         (strcmp(strategy, "taylor") == 0 ? 4 : 1) *
                                 (int64_t)golden_value(arguments, "training_steps") +
                             4 * (int64_t)golden_value(arguments, "statistics_batch_num"),
                         &feed, &m.error);
            if (types != NULL && types->count == 1 && strcmp(types->items[0].text, "Conv2d") == 0) {
                sbit_sparse_set_ratio(m.sparse, "fc*", 0.0, &m.error);
            }
            for (size_t i = 0; names != NULL && i < names->count; i++) { /* excluded */
                CHECK_OK(sbit_sparse_set_ratio(m.sparse, names->items[i].text, 0.0, &m.error),
                         m.error);
            }
            CHECK_OK(sbit_sparse_calc_params(m.sparse, fed ? &feed : NULL, &m.error), m.error);
            compare_masks(&m, &g, e, !elements);
            if (fed) {
                sbit_feed_close(&feed);
            }
        }
        masks_close(&m);
    }
    CHECK_MSG(m.compared > least, "only %d masks", m.compared);
    golden_close(&nets);
    golden_close(&g);
    sbit_ctx_destroy(m.ctx);
}

TEST(nni_2_10_masks)
{
    static const char *const prefixes[] = {"level/rescnn",
                                           "level",
                                           "level/mlp",
                                           "level",
                                           "l1norm/normal",
                                           "l1norm",
                                           "l2norm/normal",
                                           "l2norm",
                                           "fpgm/normal",
                                           "fpgm",
                                           "apoz/normal",
                                           "apoz",
                                           "mean_activation/normal",
                                           "mean_activation",
                                           NULL};
    compare_nni("D_nni_2.10_pruners", prefixes, 100);
}

TEST(nni_1_9_masks)
{
    static const char *const prefixes[] = {"level/rescnn",
                                           "level",
                                           "level/mlp",
                                           "level",
                                           "l1/normal",
                                           "l1norm",
                                           "l2/normal",
                                           "l2norm",
                                           "fpgm/normal",
                                           "fpgm",
                                           "apoz/steps",
                                           "apoz",
                                           "mean_activation/steps",
                                           "mean_activation",
                                           NULL};
    compare_nni("D_nni_1.9_pruners", prefixes, 60);
}

TEST(nni_3_0_masks)
{
    static const char *const prefixes[] = {"level/rescnn",
                                           "level",
                                           "level/mlp",
                                           "level",
                                           "l1norm/ratio",
                                           "l1norm",
                                           "l2norm/ratio",
                                           "l2norm",
                                           "fpgm/ratio",
                                           "fpgm",
                                           NULL};
    compare_nni("D_nni_3.0_pruners", prefixes, 10);
}

TEST(nnis_balanced_masks)
{
    static const char *const balanced[] = {"level_balance", "level", NULL};
    compare_nni("D_nni_2.10_pruners", balanced, 5);
}

/* Gradients of the cross entropy, batches of 4: the same masks in all three versions. */
TEST(nnis_taylor_masks)
{
    static const char *const v1[] = {"taylor/steps", "taylor", NULL};
    static const char *const v2[] = {"taylor/normal", "taylor", NULL};
    static const char *const v3[] = {"taylor/rescnn/0.5", "taylor", "taylor/mlp/0.5", "taylor",
                                     NULL};
    compare_nni("D_nni_1.9_pruners", v1, 11);
    compare_nni("D_nni_2.10_pruners", v2, 19);
    compare_nni("D_nni_3.0_pruners", v3, 11);
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
        type.dims[i].value = i == 1 ? w->dims[1] : i == 0 ? 2 : 5;
    }
    memcpy(&weight.data, &w->f, sizeof w->f);
    trans.name = "transB";
    trans.type = SBIT_ONNX_ATTR_INT;
    trans.i = 1;
    desc.op_type = w->rank == 2 ? "Gemm" : "Conv";
    desc.inputs = in;
    desc.input_count = 2;
    desc.outputs = &y;
    desc.output_count = 1;
    desc.attrs = &trans;
    desc.attr_count = w->rank == 2 ? 1 : 0;
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
