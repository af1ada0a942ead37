/* sconfig_nni.c: lists of entries, as NNI and torch take them, become our tree. >>sconfig-lists
 *
 *     [{op_types: [Conv2d], sparsity: 0.5}, {op_names: [head], exclude: true}]    NNI 1.x, 2.x
 *     [{op_names_re: ["blocks.*"], sparse_ratio: 0.5, granularity: [1, 4]}]       NNI 3.x
 *     [{tensor_fqn: fc.weight, sparsity_level: 0.5, sparse_block_shape: [1, 4]}]  torch.ao.pruning
 *
 * or {pruner: L1FilterPruner, config_list: [...]}: what these tools have in code. Entries are checked
 * against a table of keys where they stand; each becomes entries of SPECIFIC, the last one first,
 * because there the last that matches wins, here the first.
 */
#include "sparse_private.h"

/* >>tables */

static const sbit_key sbit__nni_keys[] = {
    /* what an entry is about */
    {"op_types", SBIT_KEY_STRINGS, "", 0, 0, NULL, "modules"},
    {"op_names", SBIT_KEY_STRINGS, "", 0, 0, NULL, "exact names"},
    {"op_partial_names", SBIT_KEY_STRINGS, "", 0, 0, NULL, "parts of names"},
    {"op_names_re", SBIT_KEY_STRINGS, "", 0, 0, NULL, "regular expressions"},
    {"exclude_op_types", SBIT_KEY_STRINGS, "", 0, 0, NULL, "but not these modules"},
    {"exclude_op_names", SBIT_KEY_STRINGS, "", 0, 0, NULL, "but not these names"},
    {"exclude_op_names_re", SBIT_KEY_STRINGS, "", 0, 0, NULL, "but not what matches"},
    {"tensor_fqn", SBIT_KEY_STRING, "", 0, 0, NULL, "torch: the weight's name"},
    /* what happens to it */
    {"exclude", SBIT_KEY_BOOL, "false", 0, 0, NULL, "is not pruned"},
    {"sparsity", SBIT_KEY_FLOAT, "0", 0.0, 1.0, NULL, "ratio"},
    {"sparsity_per_layer", SBIT_KEY_FLOAT, "0", 0.0, 1.0, NULL, "ratio"},
    {"sparse_ratio", SBIT_KEY_FLOAT, "0", 0.0, 1.0, NULL, "ratio"},
    {"sparsity_level", SBIT_KEY_FLOAT, "0", 0.0, 1.0, NULL, "ratio"},
    {"total_sparsity", SBIT_KEY_FLOAT, "0", 0.0, 1.0, NULL, "ratio of all together"},
    {"max_sparsity_per_layer", SBIT_KEY_FLOAT, "0.99", 0.0, 1.0, NULL, "of one layer"},
    {"max_sparse_ratio", SBIT_KEY_FLOAT, "1", 0.0, 1.0, NULL, "of one layer"},
    {"min_sparse_ratio", SBIT_KEY_FLOAT, "0", 0.0, 1.0, NULL, "of one layer"},
    {"sparse_threshold", SBIT_KEY_FLOAT, "0", 0.0, 1e30, NULL, "what scores less goes"},
    {"granularity", SBIT_KEY_YAML, "", 0, 0, NULL, "out_channel, in_channel, [h, w]"},
    {"sparse_block_shape", SBIT_KEY_YAML, "", 0, 0, NULL, "[h, w]"},
    {"zeros_per_block", SBIT_KEY_INT, "0", 0, 1e6, NULL, "of each block"},
    {"semi_structured_block_size", SBIT_KEY_INT, "0", 0, 1e6, NULL, "half of every block goes"},
    {"nearliness", SBIT_KEY_INT, "0", 0, 1e9, NULL, "width of the band that stays"},
    {"preserve_round", SBIT_KEY_INT, "1", 1, 1e6, NULL, "channels kept are a multiple of it"},
    {"norm", SBIT_KEY_CHOICE, "2", 0, 0, "1|2|L1|L2", "of blocks"},
    {"mask", SBIT_KEY_YAML, "", 0, 0, NULL, "torch: what is pruned from the start: rows or elements"},
    {"prune_bias", SBIT_KEY_BOOL, "true", 0, 0, NULL, "biases of what goes are 0"},
    {"global_group_id", SBIT_KEY_STRING, "", 0, 0, NULL, "ranked together"},
    {"target_names", SBIT_KEY_STRINGS, "", 0, 0, NULL, "weight, bias"},
    {"target_settings", SBIT_KEY_YAML, "", 0, 0, NULL, "{weight: {...}, bias: {...}}"},
    {"apply_method", SBIT_KEY_CHOICE, "mul", 0, 0, "mul", "masks are multiplied with"},
    /* what the graph says by itself */
    {"align", SBIT_KEY_YAML, "", 0, 0, NULL, "masks of biases follow those of weights"},
    {"dependency_group_id", SBIT_KEY_STRING, "", 0, 0, NULL, "layers that must lose the same"},
    {"internal_metric_block", SBIT_KEY_INT, "0", 0, 1e9, NULL, "equal groups of convolutions"},
};

/* Numbers that have another name here. */
static const struct {
    const char *key, *ours;
} sbit__nni_same[] = {
    {"sparsity", "RATIO"},
    {"sparsity_per_layer", "RATIO"},
    {"sparse_ratio", "RATIO"},
    {"sparsity_level", "RATIO"},
    {"total_sparsity", "SCOPE, model, RATIO"},
    {"max_sparsity_per_layer", "MAX_RATIO"},
    {"max_sparse_ratio", "MAX_RATIO"},
    {"min_sparse_ratio", "MIN_RATIO"},
    {"sparse_threshold", "THRESHOLD"},
    {"nearliness", "DIAGONAL"},
    {"preserve_round", "ALIGN"},
};

/* The operators that a module becomes; none: any layer. */
static const struct {
    const char *module, *operators[4];
} sbit__nni_modules[] = {
    {"default", {NULL}},
    {"Conv1d", {"Conv"}},
    {"Conv2d", {"Conv"}},
    {"Conv3d", {"Conv"}},
    {"ConvTranspose1d", {"ConvTranspose"}},
    {"ConvTranspose2d", {"ConvTranspose"}},
    {"ConvTranspose3d", {"ConvTranspose"}},
    {"Linear", {"Gemm", "MatMul"}},
    {"Bilinear", {"Einsum"}},
    {"LSTM", {"LSTM"}},
    {"GRU", {"GRU"}},
    {"RNN", {"RNN"}},
    {"PReLU", {"PRelu"}},
    {"Embedding", {"Gather"}},
    {"EmbeddingBag", {"Gather"}},
    {"BatchNorm1d", {"Gemm", "MatMul", "Conv"}}, /* slim scores the layer in front */
    {"BatchNorm2d", {"Conv", "ConvTranspose"}},
    {"BatchNorm3d", {"Conv", "ConvTranspose"}},
};

/* What is scored, and how, by names that these tools have for it (without Pruner, Sparsifier). */
static const struct {
    const char *name, *strategy;
    bool structured;
    const char *more; /* other keys; NULL: none */
} sbit__nni_pruners[] = {
    {"level", "level", false, NULL},
    {"l1filter", "l1norm", true, NULL},
    {"l1norm", "l1norm", true, NULL},
    {"l2filter", "l2norm", true, NULL},
    {"l2norm", "l2norm", true, NULL},
    {"fpgm", "fpgm", true, NULL},
    {"slim", "slim", true, NULL},
    {"taylorfoweight", "taylor", true, NULL},
    {"taylorfoweightfilter", "taylor", true, NULL},
    {"taylor", "taylor", true, NULL},
    {"activationapozrank", "apoz", true, NULL},
    {"activationapozrankfilter", "apoz", true, NULL},
    {"activationmeanrank", "mean_activation", true, NULL},
    {"activationmeanrankfilter", "mean_activation", true, NULL},
    {"movement", "movement", false, NULL},
    {"softmovement", "soft_movement", false, NULL},
    {"weightnorm", "l2norm", false, NULL},
    {"nearlydiagonal", "level", false, NULL},
    {"wanda", "wanda", false, "WANDA.SQUARED: true\n RANK: layer"},
    {"saliency", "l1norm", true, NULL},
    {"lstmsaliency", "l1norm", true, NULL},
    {"datanorm", "l1norm", false, NULL},
    {"activation", "mean_activation", true, NULL},
};

/* >>one entry */

typedef struct sbit__nni {
    sbit_ctx *ctx;
    sbit__arena arena;
    sbit__text text;
    sbit_error *error;
} sbit__nni;

static sbit_status sbit__nni_fail(const sbit__nni *n, const sbit_yaml *at, const char *key,
                                  const char *what)
{
    char where[32];
    sbit__yaml_position(at->line, at->column, where, sizeof where);
    return sbit__fail(n->error, SBIT_ERR_CONFIG, where, "%s: %s: %s", where, key, what);
}

/* A name in a pattern: what is special there stands for itself. */
static void sbit__nni_quote(sbit__text *out, const char *name)
{
    out->failed = out->failed || name == NULL;
    for (; name != NULL && *name != '\0'; name++) {
        const bool special = strchr("*?[&!", *name) != NULL;
        if (special) {
            sbit__text_printf(out, "[%c]", *name);
        } else {
            sbit__text_printf(out, "%s%c", *name == '\'' ? "'" : "", *name);
        }
    }
}

/* The operators of a module, up to NULL. */
static sbit_status sbit__nni_operators(const sbit__nni *n, const sbit_yaml *at, const char *key,
                                       const char *module, const char *const **out)
{
    char what[120];
    for (size_t m = 0; m < SBIT__COUNT_OF(sbit__nni_modules); m++) {
        if (sbit__same_word(sbit__nni_modules[m].module, module)) {
            *out = sbit__nni_modules[m].operators;
            return SBIT_OK;
        }
    }
    snprintf(what, sizeof what, "'%.60s' is no module that can be pruned", module);
    return sbit__nni_fail(n, at, key, what);
}

/* A regular expression as it stands in a pattern. */
static sbit_status sbit__nni_regex(const sbit__nni *n, const sbit_yaml *at, const char *key,
                                   const char *regex, sbit__text *out)
{
    if (strpbrk(regex, "(){}&'") != NULL) {
        return sbit__nni_fail(n, at, key, "groups, counts, & and quotes are not known here");
    }
    sbit__text_printf(out, "re:%s", regex);
    return SBIT_OK;
}

/* "&!op:Conv" for each. */
static sbit_status sbit__nni_without(sbit__nni *n, const sbit_yaml *at, const sbit_options *o, sbit__text *out)
{
    static const char *const keys[] = {"exclude_op_names", "exclude_op_names_re"};
    for (size_t k = 0; k < SBIT__COUNT_OF(keys); k++) {
        const sbit_option *option = sbit_options_find(o, keys[k]);
        for (size_t i = 0; i < option->list_count; i++) {
            sbit__text_printf(out, "&!");
            if (k == 1) {
                SBIT__TRY(sbit__nni_regex(n, at, keys[k], option->list[i], out));
            } else {
                sbit__nni_quote(out, option->list[i]);
            }
        }
    }
    const sbit_option *types = sbit_options_find(o, "exclude_op_types");
    for (size_t i = 0; i < types->list_count; i++) {
        const char *const *operators = NULL;
        SBIT__TRY(sbit__nni_operators(n, at, "exclude_op_types", types->list[i], &operators));
        for (size_t k = 0; operators[k] != NULL; k++) {
            sbit__text_printf(out, "&!op:%s", operators[k]);
        }
    }
    return out->failed ? sbit__fail_oom(n->error, out->size) : SBIT_OK;
}

/* "1x4" of [1, 4]. */
static sbit_status sbit__nni_block(sbit__nni *n, const sbit_yaml *list, const char *key, int64_t *block)
{
    for (size_t i = 0; i < 2; i++) {
        if (list->kind != SBIT_YAML_LIST || list->count != 2 ||
            list->items[i].kind != SBIT_YAML_SCALAR ||
            !sbit__parse_i64(list->items[i].text, &block[i]) || block[i] == 0 || block[i] < -1) {
            return sbit__nni_fail(n, list, key, "[rows, columns] is expected, -1 for all");
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__nni_granularity(sbit__nni *n, const sbit_options *o, sbit__text *out)
{
    const sbit_option *granularity = sbit_options_find(o, "granularity");
    const sbit_option *shape = sbit_options_find(o, "sparse_block_shape");
    const sbit_option *half = sbit_options_find(o, "semi_structured_block_size");
    const sbit_option *zeros = sbit_options_find(o, "zeros_per_block");
    const sbit_yaml *word = granularity->yaml;
    int64_t block[2] = {0, 0};
    if (word != NULL && word->kind == SBIT_YAML_SCALAR) {
        const bool out_channel = sbit__same_word(word->text, "out_channel");
        if (!out_channel && !sbit__same_word(word->text, "in_channel") &&
            !sbit__same_word(word->text, "per_channel") && !sbit__same_word(word->text, "default")) {
            return sbit__nni_fail(n, word, "granularity",
                                  "default, out_channel, in_channel, per_channel or [h, w]");
        }
        sbit__text_printf(out, "%s",
                          out_channel                                    ? ", TYPE, structured"
                          : sbit__same_word(word->text, "in_channel")  ? ", TYPE, unstructured, BLOCK, -1x1x-1"
                          : sbit__same_word(word->text, "per_channel") ? ", TYPE, unstructured, BLOCK, 1x1x-1"
                                                                       : "");
    } else if (word != NULL || shape->yaml != NULL) {
        SBIT__TRY(sbit__nni_block(n, word != NULL ? word : shape->yaml,
                                  word != NULL ? "granularity" : "sparse_block_shape", block));
    }
    const int64_t size = block[0] * block[1];
    if (zeros->is_set && zeros->i < size) { /* 2:4: of every block of a row */
        if (block[0] != 1 || sbit_options_float(o, "sparsity_level") < 1.0) {
            return sbit__fail(n->error, SBIT_ERR_CONFIG, "zeros_per_block",
                              "zeros_per_block: fewer than a block goes only from blocks of one row, at "
                              "sparsity_level 1");
        }
        sbit__text_printf(out, ", TYPE, unstructured, N_OF_M, \"%lld:%lld\"", (long long)zeros->i,
                          (long long)block[1]);
    } else if (size != 0) {
        sbit__text_printf(out, ", TYPE, unstructured, BLOCK, %lldx%lld", (long long)block[0],
                          (long long)block[1]);
    }
    if (half->i > 0) {
        sbit__text_printf(out, ", TYPE, unstructured, N_OF_M, \"%lld:%lld\"", (long long)half->i / 2,
                          (long long)half->i);
    }
    return SBIT_OK;
}

/* "1011" of [[1, 0], [true, 1]]. */
static sbit_status sbit__nni_mask(sbit__nni *n, const sbit_yaml *at, sbit__text *out)
{
    const bool scalar = at->kind == SBIT_YAML_SCALAR;
    const bool one = scalar && (sbit__streq(at->text, "1") || sbit__same_word(at->text, "true"));
    const bool zero = scalar && (sbit__streq(at->text, "0") || sbit__same_word(at->text, "false"));
    if (at->kind != SBIT_YAML_LIST && !one && !zero) {
        return sbit__nni_fail(n, at, "mask", "lists of 0 and 1 are expected");
    }
    if (scalar) {
        sbit__text_printf(out, one ? "1" : "0");
        return SBIT_OK;
    }
    for (size_t i = 0; i < at->count; i++) {
        SBIT__TRY(sbit__nni_mask(n, &at->items[i], out));
    }
    return SBIT_OK;
}

/* ", RATIO, 0.5, ..." */
static sbit_status sbit__nni_settings(sbit__nni *n, const sbit_options *o, sbit__text *out)
{
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__nni_same); i++) {
        const sbit_option *option = sbit_options_find(o, sbit__nni_same[i].key);
        const bool ratio = sbit__streq(option->key->path, "sparse_ratio");
        const double least = ratio ? sbit_options_float(o, "min_sparse_ratio") : option->f;
        const double most = ratio ? sbit_options_float(o, "max_sparse_ratio") : option->f;
        char number[40];
        sbit__format_f64(option->f < least ? least : option->f > most ? most : option->f, false, number);
        if (option->is_set) {
            sbit__text_printf(out, ", %s, %s", sbit__nni_same[i].ours, number);
        }
    }
    if (sbit_options_bool(o, "exclude")) {
        sbit__text_printf(out, ", RATIO, 0.0");
    }
    if (sbit_options_find(o, "global_group_id")->is_set) {
        sbit__text_printf(out, ", SCOPE, model");
    }
    if (sbit_options_find(o, "norm")->is_set) {
        const char *norm = sbit_options_string(o, "norm");
        sbit__text_printf(out, ", STRATEGY, l%snorm", norm[0] == 'L' ? norm + 1 : norm);
    }
    if (!sbit_options_bool(o, "prune_bias")) {
        sbit__text_printf(out, ", PRUNE_BIAS, false");
    }
    if (sbit_options_find(o, "mask")->yaml != NULL) {
        sbit__text_printf(out, ", MASK, \"");
        SBIT__TRY(sbit__nni_mask(n, sbit_options_find(o, "mask")->yaml, out));
        sbit__text_printf(out, "\"");
    }
    return sbit__nni_granularity(n, o, out);
}

/* target_settings: those of the weight are the entry's; of the bias they are the weight's. */
static sbit_status sbit__nni_targets(sbit__nni *n, const sbit_yaml *at, sbit_options *o)
{
    const sbit_option *names = sbit_options_find(o, "target_names");
    const sbit_yaml *targets = sbit_options_find(o, "target_settings")->yaml;
    for (size_t i = 0; i < names->list_count; i++) {
        if (!sbit__streq(names->list[i], "weight") && !sbit__streq(names->list[i], "bias")) {
            return sbit__nni_fail(n, at, "target_names", "only weight and bias can be pruned");
        }
    }
    for (size_t i = 0; targets != NULL && i < targets->count; i++) {
        const sbit_yaml *target = &targets->items[i];
        if (targets->kind != SBIT_YAML_MAP || target->kind != SBIT_YAML_MAP ||
            (!sbit__streq(target->key, "weight") && !sbit__streq(target->key, "bias"))) {
            return sbit__nni_fail(n, targets, "target_settings", "{weight: {...}, bias: {...}} is expected");
        }
        if (sbit__streq(target->key, "weight")) {
            SBIT__TRY(sbit__options_read(&n->arena, o, target, "target_settings.weight", n->error));
        }
    }
    return SBIT_OK;
}

/* One entry of SPECIFIC. */
static void sbit__nni_put(sbit__nni *n, const char *name, const char *operator_name,
                          const char *without, const char *settings)
{
    const char *op = operator_name != NULL ? operator_name : "";
    sbit__text_printf(&n->text, "  - {'%s%s%s%s%s': [%s]}\n", op[0] != '\0' ? "op:" : "", op,
                      op[0] != '\0' && name[0] != '\0' ? "&" : "",
                      op[0] == '\0' && name[0] == '\0' ? "*" : name, without, settings + 2);
}

/* For a name ("": any), of all types. */
static sbit_status sbit__nni_types(sbit__nni *n, const sbit_yaml *at, const sbit_options *o,
                                   const char *name, const char *without, const char *settings)
{
    const sbit_option *types = sbit_options_find(o, "op_types");
    if (types->list_count == 0) {
        sbit__nni_put(n, name, NULL, without, settings);
    }
    for (size_t i = 0; i < types->list_count; i++) {
        const char *const *operators = NULL;
        SBIT__TRY(sbit__nni_operators(n, at, "op_types", types->list[i], &operators));
        if (operators[0] == NULL) {
            sbit__nni_put(n, name, NULL, without, settings);
        }
        for (size_t k = 0; operators[k] != NULL; k++) {
            sbit__nni_put(n, name, operators[k], without, settings);
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__nni_names(sbit__nni *n, const sbit_yaml *at, const sbit_options *o,
                                   const char *without, const char *settings)
{
    static const char *const keys[] = {"op_names", "op_partial_names", "op_names_re"};
    const char *tensor = sbit_options_string(o, "tensor_fqn");
    bool any = tensor[0] != '\0';
    sbit__text name;
    sbit_status status = SBIT_OK;
    sbit__text_init(&name, sbit_ctx_allocator(n->ctx));
    if (any) {
        const size_t size = strlen(tensor);
        const bool weight = size > 7 && sbit__streq(tensor + size - 7, ".weight"); /* the layer's */
        sbit__nni_quote(&name, sbit__arena_strdup(&n->arena, tensor, weight ? size - 7 : size));
        status = name.failed ? sbit__fail_oom(n->error, size)
                             : sbit__nni_types(n, at, o, name.data, without, settings);
    }
    for (size_t k = 0; k < SBIT__COUNT_OF(keys); k++) {
        const sbit_option *option = sbit_options_find(o, keys[k]);
        for (size_t i = 0; i < option->list_count && status == SBIT_OK; i++) {
            any = true;
            sbit__text_deinit(&name);
            sbit__text_init(&name, sbit_ctx_allocator(n->ctx));
            sbit__text_printf(&name, "%s", k == 1 ? "*" : "");
            if (k == 2) {
                status = sbit__nni_regex(n, at, keys[k], option->list[i], &name);
            } else {
                sbit__nni_quote(&name, option->list[i]);
            }
            sbit__text_printf(&name, "%s", k == 1 ? "*" : "");
            status = status != SBIT_OK ? status
                     : name.failed     ? sbit__fail_oom(n->error, name.size)
                                       : sbit__nni_types(n, at, o, name.data, without, settings);
        }
    }
    sbit__text_deinit(&name);
    if (status == SBIT_OK && !any) {
        if (sbit_options_find(o, "op_types")->list_count == 0) {
            return sbit__nni_fail(n, at, "entry",
                                  "which layers? op_types, op_names, op_partial_names, op_names_re or "
                                  "tensor_fqn is missing");
        }
        status = sbit__nni_types(n, at, o, "", without, settings);
    }
    return status;
}

static bool sbit__nni_says_how_much(const sbit_options *o)
{
    static const char *const keys[] = {"sparsity", "sparsity_per_layer", "sparse_ratio", "sparsity_level",
                                       "total_sparsity", "sparse_threshold", "nearliness",
                                       "semi_structured_block_size", "mask"};
    bool any = sbit_options_bool(o, "exclude");
    for (size_t i = 0; i < SBIT__COUNT_OF(keys); i++) {
        any = any || sbit_options_find(o, keys[i])->is_set;
    }
    return any;
}

static sbit_status sbit__nni_entry(sbit__nni *n, const sbit_yaml *at, sbit__text *without,
                                   sbit__text *settings)
{
    const sbit__key_table table = {"", sbit__nni_keys, SBIT__COUNT_OF(sbit__nni_keys)};
    sbit_options o;
    if (at->kind != SBIT_YAML_MAP) {
        return sbit__nni_fail(n, at, "config_list", "a list of maps is expected");
    }
    SBIT__TRY(sbit__options_init(&n->arena, &table, 1, &o, n->error));
    SBIT__TRY(sbit__options_read(&n->arena, &o, at, "config_list", n->error));
    SBIT__TRY(sbit__nni_targets(n, at, &o));
    SBIT__TRY(sbit__nni_without(n, at, &o, without));
    SBIT__TRY(sbit__nni_settings(n, &o, settings));
    if (!sbit__nni_says_how_much(&o)) {
        return sbit__nni_fail(n, at, "entry", "how much is to go? sparsity, sparse_ratio, sparsity_level, "
                                              "total_sparsity or exclude is missing");
    }
    return settings->failed ? sbit__fail_oom(n->error, settings->size)
                            : sbit__nni_names(n, at, &o, without->size > 0 ? without->data : "",
                                              settings->data);
}

/* >>whole lists */

static sbit_status sbit__nni_pruner(sbit__nni *n, const sbit_yaml *name, bool torch)
{
    const char *strategy = "l1norm", *more = NULL;
    bool structured = !torch;
    if (name != NULL) {
        char word[64] = "";
        size_t m = 0;
        for (const char *c = name->kind == SBIT_YAML_SCALAR ? name->text : ""; *c != '\0'; c++) {
            if (sbit__same_word(c, "pruner") || sbit__same_word(c, "sparsifier")) {
                break;
            }
            const size_t size = strlen(word);
            if (*c != '_' && size + 1 < sizeof word) {
                word[size] = sbit__lower(*c);
                word[size + 1] = '\0';
            }
        }
        while (m < SBIT__COUNT_OF(sbit__nni_pruners) && !sbit__streq(sbit__nni_pruners[m].name, word)) {
            m++;
        }
        if (m == SBIT__COUNT_OF(sbit__nni_pruners)) {
            return sbit__nni_fail(n, name, "pruner",
                                  "no such pruner here: LevelPruner, L1NormPruner, FPGMPruner ...");
        }
        strategy = sbit__nni_pruners[m].strategy;
        structured = sbit__nni_pruners[m].structured;
        more = sbit__nni_pruners[m].more;
    }
    sbit__text_printf(&n->text, "SPARSER:\n TYPE: %s\n STRATEGY: %s\n%s%s%s SPECIFIC:\n",
                      structured ? "structured" : "unstructured", strategy, more != NULL ? " " : "",
                      more != NULL ? more : "", more != NULL ? "\n" : "");
    return SBIT_OK;
}

static bool sbit__nni_has(const sbit_yaml *map, const char *key, const sbit_yaml **out)
{
    for (size_t i = 0; map->kind == SBIT_YAML_MAP && i < map->count; i++) {
        if (sbit__streq(map->items[i].key, key)) {
            *out = &map->items[i];
            return true;
        }
    }
    return false;
}

static sbit_status sbit__nni_list(sbit__nni *n, const sbit_yaml *root, const sbit_yaml *list)
{
    const sbit_yaml *pruner = NULL, *found = NULL;
    const bool torch = list->count > 0 && sbit__nni_has(&list->items[0], "tensor_fqn", &found);
    for (size_t i = 0; root->kind == SBIT_YAML_MAP && i < root->count; i++) {
        const sbit_yaml *at = &root->items[i];
        pruner = sbit__streq(at->key, "pruner") ? at : pruner;
        if (at != list && at != pruner) {
            return sbit__nni_fail(n, at, at->key, "unknown key; pruner and config_list are known here");
        }
    }
    if (list->kind != SBIT_YAML_LIST || list->count == 0) {
        return sbit__nni_fail(n, list, "config_list", "a list of maps is expected");
    }
    SBIT__TRY(sbit__nni_pruner(n, pruner, torch));
    for (size_t i = list->count; i-- > 0;) {
        sbit__text without, settings;
        sbit__text_init(&without, sbit_ctx_allocator(n->ctx));
        sbit__text_init(&settings, sbit_ctx_allocator(n->ctx));
        const sbit_status status = sbit__nni_entry(n, &list->items[i], &without, &settings);
        sbit__text_deinit(&without);
        sbit__text_deinit(&settings);
        SBIT__TRY(status);
    }
    return n->text.failed ? sbit__fail_oom(n->error, n->text.size) : SBIT_OK;
}

SBIT__FN sbit_status sbit__nni_translate(sbit_ctx *ctx, const sbit_yaml *root, sbit__text *out,
                                         sbit_error *error)
{
    const sbit_yaml *list = root->kind == SBIT_YAML_LIST ? root : NULL;
    sbit__nni n;
    if (list == NULL && !sbit__nni_has(root, "config_list", &list)) {
        return SBIT_OK;
    }
    memset(&n, 0, sizeof n);
    n.ctx = ctx;
    n.error = error;
    n.text = *out;
    sbit__arena_init(&n.arena, sbit_ctx_allocator(ctx));
    const sbit_status status = sbit__nni_list(&n, root, list);
    *out = n.text;
    sbit__arena_deinit(&n.arena);
    return status;
}
