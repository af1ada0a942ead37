/* sconfig.c: Sparsebit's pruning configuration. >>sconfig
 *
 * The tree (algorithms section 2.1): DEVICE and SPARSER.TYPE, STRATEGY, RATIO. Added here:
 * SPARSER.SPECIFIC, the spelling "structured", and TYPE and STRATEGY in either order.
 */
#include "../config/config_private.h"
#include "sconfig_api.h"

struct sbit_sconfig {
    sbit__tree tree; /* one section: SPARSER */
};

static const char *const sbit__sconfig_strategies[] = {"l1norm"};

#define SBIT__SCONFIG_WORDS "structured|unstructured|structed|l1norm"

static const sbit_key sbit__sconfig_top_keys[] = {
    {"DEVICE", SBIT_KEY_STRING, "cpu", 0, 0, NULL, "accepted for compatibility; always the CPU"},
};

static const sbit_key sbit__sconfig_sparser_keys[] = {
    {"TYPE", SBIT_KEY_CHOICE, NULL, 0, 0, SBIT__SCONFIG_WORDS,
     "structured: whole channels; unstructured: single elements"},
    {"STRATEGY", SBIT_KEY_CHOICE, NULL, 0, 0, SBIT__SCONFIG_WORDS, "how elements are scored"},
    {"RATIO", SBIT_KEY_FLOAT, "0.0", 0.0, 1.0, NULL, "part of every layer to prune"},
    {"SPECIFIC", SBIT_KEY_YAML, "", 0, 0, NULL, "overrides: [{\"glob\": [KEY, value, ...]}]"},
};

/* The strategy named by a key, or NULL: then it says what is pruned. */
static const char *sbit__sconfig_strategy(const sbit_options *options, const char *key)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__sconfig_strategies); i++) {
        if (sbit__streq(sbit_options_string(options, key), sbit__sconfig_strategies[i])) {
            return sbit__sconfig_strategies[i];
        }
    }
    return NULL;
}

static sbit_status sbit__sconfig_check(const sbit_options *options, const char *section,
                                       sbit_error *error)
{
    const bool type = sbit__sconfig_strategy(options, "TYPE") != NULL;
    const bool strategy = sbit__sconfig_strategy(options, "STRATEGY") != NULL;
    if (type && strategy) {
        return sbit__option_fail(sbit_options_find(options, "TYPE"), section,
                                 "must be structured or unstructured", error);
    }
    if (!type && !strategy) {
        return sbit__option_fail(sbit_options_find(options, "STRATEGY"), section,
                                 "must be a strategy: l1norm", error);
    }
    return SBIT_OK;
}

static sbit_status sbit__sconfig_init(sbit__tree *tree, sbit_error *error)
{
    sbit__section *sparser = &tree->sections[0];
    sbit__key_table table;
    table.prefix = "";
    table.keys = sbit__sconfig_top_keys;
    table.count = SBIT__COUNT_OF(sbit__sconfig_top_keys);
    SBIT__TRY(sbit__options_init(&tree->arena, &table, 1, &tree->top, error));
    table.keys = sbit__sconfig_sparser_keys;
    table.count = SBIT__COUNT_OF(sbit__sconfig_sparser_keys);
    SBIT__TRY(sbit__options_init(&tree->arena, &table, 1, &sparser->options, error));
    sparser->name = "SPARSER";
    sparser->check_fn = sbit__sconfig_check;
    tree->section_count = 1;
    return SBIT_OK;
}

static sbit_status sbit__sconfig_verify(sbit__tree *tree, sbit_error *error)
{
    (void)error;
    if (sbit__sconfig_strategy(&tree->sections[0].options, "TYPE") != NULL) {
        sbit__log(tree->ctx, SBIT_LOG_WARNING,
                  "SPARSER.TYPE and STRATEGY are the wrong way round; read as if exchanged");
    }
    return SBIT_OK;
}

static const sbit__tree_kind sbit__sconfig_kind = {sbit__sconfig_init, sbit__sconfig_verify};

static sbit_sconfig *sbit__sconfig_of(sbit__tree *tree)
{
    return (sbit_sconfig *)(void *)tree; /* its only member */
}

SPARSEBIT_API sbit_status sbit_sconfig_read(sbit_ctx *ctx, const char *text, size_t size,
                                            sbit_sconfig **out, sbit_error *error)
{
    sbit__tree *tree = NULL;
    SBIT__TRY(
        sbit__tree_make(ctx, &sbit__sconfig_kind, text, size, out != NULL ? &tree : NULL, error));
    *out = sbit__sconfig_of(tree);
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_sconfig_load(sbit_ctx *ctx, const char *path, sbit_sconfig **out,
                                            sbit_error *error)
{
    sbit__tree *tree = NULL;
    SBIT__TRY(sbit__tree_load(ctx, &sbit__sconfig_kind, path, out != NULL ? &tree : NULL, error));
    *out = sbit__sconfig_of(tree);
    return SBIT_OK;
}

SPARSEBIT_API void sbit_sconfig_destroy(sbit_sconfig *config)
{
    sbit__tree_destroy(config != NULL ? &config->tree : NULL);
}

SPARSEBIT_API sbit_status sbit_sconfig_set(sbit_sconfig *config, const char *path,
                                           const char *value, sbit_error *error)
{
    if (config == NULL || path == NULL || value == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a NULL argument");
    }
    return sbit__tree_set(&config->tree, path, value, error);
}

SPARSEBIT_API void sbit_sconfig_print(const sbit_sconfig *config, bool only_set,
                                      void (*put)(const char *text, size_t size, void *user),
                                      void *user)
{
    sbit__tree_print(&config->tree, only_set, put, user);
}

SPARSEBIT_API sbit_status sbit_sconfig_layer(sbit_sconfig *config, const sbit_graph *graph,
                                             sbit_node_id node, sbit_sparse_settings *out,
                                             sbit_error *error)
{
    sbit__arena arena;
    sbit_options options;
    sbit__arena_init(&arena, sbit_ctx_allocator(config->tree.ctx));
    const sbit_status status =
        sbit__section_resolve(&config->tree.sections[0], graph, node, &arena, &options, error);
    if (status == SBIT_OK) {
        const char *strategy = sbit__sconfig_strategy(&options, "TYPE");
        const char *type = sbit_options_string(&options, strategy != NULL ? "STRATEGY" : "TYPE");
        out->structured = !sbit__streq(type, "unstructured");
        out->strategy = strategy != NULL ? strategy : sbit__sconfig_strategy(&options, "STRATEGY");
        out->ratio = sbit_options_float(&options, "RATIO");
    }
    sbit__arena_deinit(&arena);
    return status;
}
