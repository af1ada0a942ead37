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
    static golden_array_view v;
    static sbit_tensor x;
    sbit_feed_desc desc;
    snprintf(name, sizeof name, "net/%s/x", net);
    if (!golden_array(g, name, &v) || v.f == NULL) {
        return false;
    }
    memset(&x, 0, sizeof x);
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
    desc.inputs = &x;
    desc.input_count = 1;
    return sbit_feed_of_tensors(ctx, &desc, feed, error) == SBIT_OK;
}

static void compare_nni(const char *group, const char *const *prefixes, int least)
{
    masks m;
    golden g;
    const sbit_yaml *e;
    memset(&m, 0, sizeof m);
    CHECK_OK(sbit_ctx_create(NULL, &m.ctx, &m.error), m.error);
    if (!golden_open(&g, m.ctx, group)) {
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
        if (golden_text(first, "sparsity")[0] == '\0') {
            continue;
        }
        const bool elements = strcmp(strategy, "level") == 0;
        snprintf(config, sizeof config, "SPARSER: {TYPE: %s, STRATEGY: %s, RATIO: %s%s}\n",
                 elements ? "unstructured" : "structured", strategy, golden_text(first, "sparsity"),
                 strcmp(strategy, "apoz") == 0 || strcmp(strategy, "mean_activation") == 0
                     ? strstr(golden_text(e, "id"), "gelu") != NULL    ? ", ACTIVATION: gelu"
                       : strstr(golden_text(e, "id"), "relu6") != NULL ? ", ACTIVATION: relu6"
                                                                       : ", ACTIVATION: relu"
                     : "");
        if (masks_open(&m, e, config)) {
            const sbit_yaml *types = golden_get(first, "op_types");
            const sbit_yaml *names =
                list->count > 1 ? golden_get(&list->items[1], "op_names") : NULL;
            sbit_feed feed;
            const bool fed =
                nni_feed(&g, m.ctx, golden_text(arguments, "net"),
                         (int64_t)golden_value(arguments, "training_steps"), &feed, &m.error);
            if (types != NULL && types->count == 1) { /* Conv2d only */
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
