/* sconfig.c: Sparsebit's pruning configuration. >>sconfig
 *
 * The tree (algorithms section 2.1): DEVICE and SPARSER.TYPE, STRATEGY, RATIO. Added here:
 * keys of the rows of sparsers, PRUNE_BIAS, MIN_KEPT, ALIGN,
 * SPARSER.SPECIFIC, the spellings "structured" and "unstructured", and TYPE and STRATEGY in either
 * order.
 */
#include "sparse_private.h"

struct sbit_sconfig {
    sbit__tree tree; /* one section: SPARSER */
};

#define SBIT__SCONFIG_TYPES "structured|unstructured|structed|unstructed"

static const sbit_key sbit__sconfig_top_keys[] = {
    {"DEVICE", SBIT_KEY_STRING, "cpu", 0, 0, NULL, "accepted for compatibility; always the CPU"},
};

/* Choices that are NULL are filled in from rows. */
static const sbit_key sbit__sconfig_sparser_keys[] = {
    {"TYPE", SBIT_KEY_CHOICE, NULL, 0, 0, NULL,
     "structured: whole channels; unstructured: single elements"},
    {"STRATEGY", SBIT_KEY_CHOICE, NULL, 0, 0, NULL, "how channels or elements are scored"},
    {"RATIO", SBIT_KEY_FLOAT, "0.0", 0.0, 1.0, NULL, "part of every layer to prune"},
    {"SCOPE", SBIT_KEY_CHOICE, "layer", 0, 0, "layer|model",
     "what is ranked together: RATIO of every layer, or of all of them"},
    {"MAX_RATIO", SBIT_KEY_FLOAT, "0.99", 0.0, 1.0, NULL,
     "SCOPE model, THRESHOLD: of one layer at most"},
    {"MIN_RATIO", SBIT_KEY_FLOAT, "0.0", 0.0, 1.0, NULL, "THRESHOLD: of one layer at least"},
    {"THRESHOLD", SBIT_KEY_FLOAT, "0.0", 0.0, 1e30, NULL,
     "what scores less goes, in place of RATIO; 0: RATIO"},
    {"PRUNE_BIAS", SBIT_KEY_BOOL, "true", 0, 0, NULL,
     "pruned channels are 0; false: what their biases make of them goes into the next layers"},
    {"MIN_KEPT", SBIT_KEY_INT, "1", 1, 1e9, NULL, "channels that every layer keeps at least"},
    {"ALIGN", SBIT_KEY_INT, "1", 1, 1e6, NULL, "channels kept are a multiple of it"},
    {"BLOCK", SBIT_KEY_STRING, "", 0, 0, NULL,
     "unstructured: blocks of rows x columns go, such as 1x4; -1: all of them; a third number counts places of a "
     "kernel (1): -1x1x-1 are whole inputs of a convolution"},
    {"WITHIN", SBIT_KEY_STRING, "", 0, 0, NULL,
     "unstructured: RATIO of every block of rows x columns, such as 1x8, goes (balanced)"},
    {"RANK", SBIT_KEY_CHOICE, "strategy", 0, 0, "strategy|row|layer",
     "unstructured: what elements are ranked among, rows or the layer; as STRATEGY has it"},
    {"MASK", SBIT_KEY_STRING, "", 0, 0, NULL,
     "of SPECIFIC: what is pruned from the start: \"1011\", a digit for each row or element, 0 pruned"},
    {"N_OF_M", SBIT_KEY_STRING, "", 0, 0, NULL,
     "unstructured: 2:4 prunes two of every four neighbours along the inputs, RATIO or not"},
    {"PERMUTE", SBIT_KEY_INT, "0", 0, 1e6, NULL,
     "N_OF_M: so many exchanges of each channel's place are tried, so that more of the scores stays"},
    {"PRUNE_OUTPUTS", SBIT_KEY_STRING, "", 0, 0, NULL,
     "names of outputs of the model that may lose channels, \"a,b\", or all"},
    {"INEXACT_NORM", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "axes that LayerNormalization normalizes may lose channels, which changes the others"},
    {"REPAIR", SBIT_KEY_CHOICE, "none", 0, 0, "none|ridge|batch_norm|both",
     "from data, without training: least squares of the layers behind what goes, new statistics of "
     "BatchNormalization"},
    {"RIDGE.DAMPING", SBIT_KEY_FLOAT, "0.01", 1e-9, 1e3, NULL,
     "REPAIR ridge: pull towards the weights as they were, in mean squares of the inputs"},
    {"RIDGE.POSITIONS", SBIT_KEY_INT, "32", 0, 1e9, NULL,
     "REPAIR ridge: places of each sample that are looked at; 0: all"},
    {"LOSS", SBIT_KEY_CHOICE, "cross_entropy", 0, 0, "cross_entropy|kl|mse|l1|huber|bce",
     "of sparsers that look at gradients: on the model's first output"},
    {"DIAGONAL", SBIT_KEY_INT, "0", 0, 1e9, NULL,
     "unstructured: all but a band of this width (odd) along the diagonal goes, RATIO or not"},
    {"SCHEDULE", SBIT_KEY_CHOICE, "constant", 0, 0, NULL, "how RATIO is reached over steps"},
    {"INITIAL", SBIT_KEY_FLOAT, "0.0", 0.0, 1.0, NULL, "ratio at step 0 of the schedule"},
    {"SEARCH", SBIT_KEY_CHOICE, "uniform", 0, 0, NULL, "how ratios are found that meet a budget"},
    {"SPECIFIC", SBIT_KEY_YAML, "", 0, 0, NULL, "overrides: [{\"glob\": [KEY, value, ...]}]"},
};

/* "1x4", "-1x1x-1" or "2:4" as two or more numbers; the third is 1 where it is left out. "" leaves all 0. */
static bool sbit__sconfig_numbers(const char *text, char between, size_t most, int64_t *out)
{
    char number[24];
    for (size_t i = 0; i < most; i++) {
        out[i] = i == 2 && text[0] != '\0' ? 1 : 0;
    }
    for (size_t n = 0; n < most && text[0] != '\0'; n++) {
        const char *end = strchr(text, between);
        const size_t size = end != NULL ? (size_t)(end - text) : strlen(text);
        if (size >= sizeof number) {
            return false;
        }
        memcpy(number, text, size);
        number[size] = '\0';
        if (!sbit__parse_i64(number, &out[n]) || (end == NULL && n == 0) || (end != NULL && n + 1 == most)) {
            return false;
        }
        text = end != NULL ? end + 1 : "";
    }
    return true;
}

/* The strategy named by a key, or NULL: then it says what is pruned. */
static const char *sbit__sconfig_strategy(const sbit_options *options, const char *key)
{
    const char *word = sbit_options_string(options, key);
    return word[0] == '\0' || sbit__streq(word, "structured") ||
                   sbit__streq(word, "unstructured") || sbit__streq(word, "structed") ||
                   sbit__streq(word, "unstructed")
               ? NULL
               : word;
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
                                 "must be a strategy, such as l1norm", error);
    }
    static const char *const blocks[] = {"WITHIN", "BLOCK"};
    int64_t pair[3] = {0, 0, 0};
    for (size_t i = 0; i < SBIT__COUNT_OF(blocks); i++) {
        if (!sbit__sconfig_numbers(sbit_options_string(options, blocks[i]), 'x', 2 + i, pair) ||
            (pair[0] != 0) != (pair[1] != 0) || (pair[0] != 0) != (pair[1 + i] != 0) || pair[0] < -1 ||
            pair[1] < -1 || pair[1 + i] < -1) {
            return sbit__option_fail(sbit_options_find(options, blocks[i]), section,
                                     "must be ROWSxCOLUMNS, such as 1x4 or -1x8", error);
        }
    }
    if (!sbit__sconfig_numbers(sbit_options_string(options, "N_OF_M"), ':', 2, pair) || pair[0] < 0 ||
        pair[0] > pair[1] || pair[1] > 1000000) {
        return sbit__option_fail(sbit_options_find(options, "N_OF_M"), section,
                                 "must be N:M, such as 2:4", error);
    }
    const sbit_option *factors = sbit_options_find(options, "LAMBDA.FACTORS");
    for (size_t i = 0; i < factors->list_count; i++) {
        double factor = 0.0;
        if (!sbit__parse_f64(factors->list[i], &factor) || !(factor >= 0.0 && factor <= 1e9)) {
            return sbit__option_fail(factors, section, "must be numbers from 0 on, such as [0, 0.5, 1]", error);
        }
    }
    const int64_t band = sbit_options_int(options, "DIAGONAL");
    return band == 0 || band % 2 == 1
               ? SBIT_OK
               : sbit__option_fail(sbit_options_find(options, "DIAGONAL"), section,
                                   "must be an odd number", error);
}

/* `first` and the names of a kind's rows, "a|b|c"; in the arena. */
static const char *sbit__sconfig_words(sbit__tree *tree, const char *first, const sbit__kind *kind)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(tree->ctx));
    sbit__text_printf(&text, "%s", first);
    sbit__row_names(tree->ctx, kind, 0, "|", &text);
    const char *words = text.failed ? NULL : sbit__arena_printf(&tree->arena, "%s", text.data);
    sbit__text_deinit(&text);
    return words;
}

/* The keys of a kind's rows, one table each. */
static size_t sbit__sconfig_add(const sbit_ctx *ctx, const sbit__kind *kind,
                                sbit__key_table *tables, size_t count)
{
    const sbit_head *row = NULL;
    for (size_t i = 0; (row = sbit__row_at(ctx, kind, i)) != NULL; i++) {
        if (row->key_count > 0 && tables != NULL) {
            tables[count].prefix = "";
            tables[count].keys = row->keys;
            tables[count].count = row->key_count;
        }
        count += row->key_count > 0 ? 1 : 0;
    }
    return count;
}

static sbit_status sbit__sconfig_sparser(sbit__tree *tree, sbit__section *sparser,
                                         sbit_error *error)
{
    const sbit__kind *kinds[3] = {sbit__kind_sparser(), sbit__kind_sparsity(), sbit__kind_search()};
    const char *words[3];
    size_t count = 1;
    for (size_t k = 0; k < SBIT__COUNT_OF(kinds); k++) {
        count = sbit__sconfig_add(tree->ctx, kinds[k], NULL, count);
        words[k] = sbit__sconfig_words(tree, k == 0 ? SBIT__SCONFIG_TYPES "|" : "", kinds[k]);
        if (words[k] == NULL) {
            return sbit__fail_oom(error, sizeof sbit__sconfig_sparser_keys);
        }
    }
    sbit_key *keys = (sbit_key *)sbit__arena_alloc(&tree->arena, sizeof sbit__sconfig_sparser_keys);
    sbit__key_table *tables =
        (sbit__key_table *)sbit__arena_array(&tree->arena, count, sizeof *tables);
    if (keys == NULL || tables == NULL) {
        return sbit__fail_oom(error, sizeof sbit__sconfig_sparser_keys);
    }
    memcpy(keys, sbit__sconfig_sparser_keys, sizeof sbit__sconfig_sparser_keys);
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__sconfig_sparser_keys); i++) {
        if (keys[i].type == SBIT_KEY_CHOICE && keys[i].choices == NULL) {
            keys[i].choices = words[sbit__streq(keys[i].path, "SCHEDULE") ? 1
                                    : sbit__streq(keys[i].path, "SEARCH") ? 2
                                                                          : 0];
        }
    }
    tables[0].prefix = "";
    tables[0].keys = keys;
    tables[0].count = SBIT__COUNT_OF(sbit__sconfig_sparser_keys);
    count = 1;
    for (size_t k = 0; k < SBIT__COUNT_OF(kinds); k++) {
        count = sbit__sconfig_add(tree->ctx, kinds[k], tables, count);
    }
    return sbit__options_init(&tree->arena, tables, count, &sparser->options, error);
}

static sbit_status sbit__sconfig_init(sbit__tree *tree, sbit_error *error)
{
    sbit__section *sparser = &tree->sections[0];
    sbit__key_table table;
    table.prefix = "";
    table.keys = sbit__sconfig_top_keys;
    table.count = SBIT__COUNT_OF(sbit__sconfig_top_keys);
    SBIT__TRY(sbit__options_init(&tree->arena, &table, 1, &tree->top, error));
    SBIT__TRY(sbit__sconfig_sparser(tree, sparser, error));
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

static const sbit__tree_kind sbit__sconfig_kind = {sbit__sconfig_init, sbit__sconfig_verify,
                                                    sbit__nni_translate, "W|A", true};

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

SPARSEBIT_API sbit_status sbit_sconfig_describe(const sbit_sconfig *config,
                                                void (*put)(const char *text, size_t size,
                                                            void *user),
                                                void *user, sbit_error *error)
{
    const sbit__described rows[] = {{"Sparsers", sbit__kind_sparser()},
                                    {"Schedules", sbit__kind_sparsity()},
                                    {"Searches", sbit__kind_search()}};
    return sbit__tree_describe(&config->tree, rows, SBIT__COUNT_OF(rows), put, user, error);
}

SBIT__FN sbit_sconfig *sbit__sconfig_hold(sbit_sconfig *config)
{
    config->tree.holders++;
    return config;
}

static uint32_t sbit__sconfig_repair(const char *word)
{
    const uint32_t ridge = SBIT_REPAIR_RIDGE, batch_norm = SBIT_REPAIR_BATCH_NORM;
    return sbit__streq(word, "both")         ? ridge | batch_norm
           : sbit__streq(word, "ridge")      ? ridge
           : sbit__streq(word, "batch_norm") ? batch_norm
                                             : 0u;
}

SBIT__FN sbit_status sbit__sconfig_resolve(sbit_sconfig *config, const sbit_graph *graph,
                                           sbit_node_id node, sbit__arena *arena,
                                           sbit_options *options, sbit_sparse_settings *out,
                                           sbit_error *error)
{
    SBIT__TRY(sbit__section_resolve(&config->tree.sections[0], graph, node, arena, options, error));
    const char *strategy = sbit__sconfig_strategy(options, "TYPE");
    const char *type = sbit_options_string(options, strategy != NULL ? "STRATEGY" : "TYPE");
    strategy = strategy != NULL ? strategy : sbit__sconfig_strategy(options, "STRATEGY");
    out->structured = !sbit__streq(type, "unstructured") && !sbit__streq(type, "unstructed");
    out->strategy = sbit_sparser_find(config->tree.ctx, strategy)->head.name;
    out->ratio = sbit_options_float(options, "RATIO");
    out->whole_model = sbit__streq(sbit_options_string(options, "SCOPE"), "model");
    out->max_ratio = sbit_options_float(options, "MAX_RATIO");
    out->min_ratio = sbit_options_float(options, "MIN_RATIO");
    out->threshold = sbit_options_float(options, "THRESHOLD");
    out->from = sbit__section_pattern(&config->tree.sections[0], graph, node);
    out->prune_bias = sbit_options_bool(options, "PRUNE_BIAS");
    out->diagonal = sbit_options_int(options, "DIAGONAL");
    out->repair = sbit__sconfig_repair(sbit_options_string(options, "REPAIR"));
    out->min_kept = sbit_options_int(options, "MIN_KEPT");
    out->align = sbit_options_int(options, "ALIGN");
    sbit__sconfig_numbers(sbit_options_string(options, "BLOCK"), 'x', 3, out->block);
    sbit__sconfig_numbers(sbit_options_string(options, "WITHIN"), 'x', 2, out->within);
    sbit__sconfig_numbers(sbit_options_string(options, "N_OF_M"), ':', 2, out->n_of_m);
    const char *rank = sbit_options_string(options, "RANK");
    out->by_row = sbit__streq(rank, "row") ||
                  (sbit__streq(rank, "strategy") &&
                   (sbit_sparser_find(config->tree.ctx, strategy)->traits & SBIT_SPARSER_BY_ROW) != 0);
    return SBIT_OK;
}

SBIT__FN const sbit_options *sbit__sconfig_options(const sbit_sconfig *config)
{
    return &config->tree.sections[0].options;
}

SBIT__FN void sbit__sconfig_warn_unmatched(const sbit_sconfig *config, const sbit_graph *graph)
{
    sbit__section_warn_unmatched(&config->tree.sections[0], graph, "layer that is pruned");
}

SPARSEBIT_API sbit_status sbit_sconfig_layer(sbit_sconfig *config, const sbit_graph *graph,
                                             sbit_node_id node, sbit_sparse_settings *out,
                                             sbit_error *error)
{
    sbit__arena arena;
    sbit_options options;
    sbit__arena_init(&arena, sbit_ctx_allocator(config->tree.ctx));
    const sbit_status status =
        sbit__sconfig_resolve(config, graph, node, &arena, &options, out, error);
    sbit__arena_deinit(&arena);
    return status;
}
