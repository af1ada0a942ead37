/* qconfig.c: Sparsebit's quantization configuration. >>qconfig
 *
 * The tree (algorithms section 1.1): BACKEND, SKIP_TRACE_MODULES, DEVICE, SCHEDULE.*, and under W
 * and A: QSCHEME, QUANTIZER.*, OBSERVER.*, SPECIFIC, A.QADD.*. The keys of each strategy come from
 * its own row. Added here: PLACEMENT, EXPORT.*, QUANTIZER.NARROW_RANGE and POWER_OF_TWO.
 */
#include "quant_private.h"

static const sbit_key sbit__qconfig_top_keys[] = {
    {"BACKEND", SBIT_KEY_CHOICE, "virtual", 0, 0, "virtual|onnxruntime|tensorrt",
     "what the scheme and bits must suit; virtual takes everything"},
    {"PLACEMENT", SBIT_KEY_STRING, "sparsebit", 0, 0, NULL, "placement profile"},
    {"DEVICE", SBIT_KEY_STRING, "cpu", 0, 0, NULL, "accepted for compatibility; always the CPU"},
    {"SKIP_TRACE_MODULES", SBIT_KEY_STRINGS, "", 0, 0, NULL, "layers (globs) that stay float"},
    {"SCHEDULE.FUSE_BN", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "fold BatchNormalization into the layer before it"},
    {"SCHEDULE.BN_TUNING", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "keep BatchNormalization for re-estimation"},
    {"SCHEDULE.DISABLE_UNNECESSARY_QUANT", SBIT_KEY_BOOL, "true", 0, 0, NULL,
     "no quantizer inside what runtimes fuse (Conv + Relu ...)"},
    {"SCHEDULE.ASYM", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "ranges and rounding for what the model quantized so far computes"},
    {"SCHEDULE.KEEP_SCALES", SBIT_KEY_BOOL, "true", 0, 0, NULL,
     "a model that is quantized already keeps its scales where the settings allow"},
    {"STEPS", SBIT_KEY_STRINGS, "", 0, 0, NULL,
     "steps of the recipe: cross_layer, adaround ...; each runs when its stage comes"},
    {"EXPORT.FORMAT", SBIT_KEY_STRING, "qdq", 0, 0, NULL,
     "how the quantized model is written: qdq, weights, qoperator, dynamic, matmul_nbits"},
    {"EXPORT.FOLD_BN", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "BatchNormalization that was kept (FUSE_BN) goes into scales and biases of what is built"},
    {"EXPORT.INT4", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "store 4-bit tensors as int4/uint4 (opset 21) instead of clipped 8-bit ones"},
    {"EXPORT.SHARE_SCALE", SBIT_KEY_CHOICE, "concat", 0, 0, "none|concat|concat_add",
     "operators whose tensors share a scale: Concat (inputs and output), Add (inputs)"},
    {"EXPORT.SHARE_LIMIT", SBIT_KEY_FLOAT, "16", 1.0, 1e9, NULL,
     "but only if their ranges differ by less than this factor"},
    {"EXPORT.SMALLEST_WEIGHT", SBIT_KEY_INT, "0", 0.0, 1e9, NULL,
     "layers whose weight has fewer elements stay float; below about 350 int8 grows the file"},
};

/* Below W and A. The choices of TYPE are filled in from the rows. */
static const sbit_key sbit__qconfig_side_keys[] = {
    {"QSCHEME", SBIT_KEY_CHOICE, NULL, 0, 0,
     "per-tensor-symmetric|per-tensor-affine|per-channel-symmetric|per-channel-affine",
     "granularity and symmetry"},
    {"QUANTIZER.TYPE", SBIT_KEY_CHOICE, "uniform", 0, 0, NULL, "quantizer"},
    {"QUANTIZER.DISABLE", SBIT_KEY_BOOL, "false", 0, 0, NULL, "leave float"},
    {"QUANTIZER.BIT", SBIT_KEY_INT, NULL, 0.0, 16.0, NULL, "bit width, 2 to 16"},
    {"QUANTIZER.NARROW_RANGE", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "symmetric range without the lowest value: -127..127"},
    {"QUANTIZER.POWER_OF_TWO", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "round scales up to powers of two"},
    {"OBSERVER.TYPE", SBIT_KEY_CHOICE, "minmax", 0, 0, NULL, "observer"},
    {"SPECIFIC", SBIT_KEY_YAML, "", 0, 0, NULL, "overrides: [{\"glob\": [KEY, value, ...]}]"},
};

static const sbit_key sbit__qconfig_weight_keys[] = {
    {"QUANTIZER.GROUP_SIZE", SBIT_KEY_INT, "0", 0.0, 65536.0, NULL,
     "matrices: a scale for each block of so many inputs of an output (opset 21); 0: none"},
};

static const sbit_key sbit__qconfig_activation_keys[] = {
    {"OBSERVER.LAYOUT", SBIT_KEY_CHOICE, "NCHW", 0, 0, "NCHW|NLC",
     "channel axis of activations: 1 or 2"},
    {"QADD.ENABLE_QUANT", SBIT_KEY_BOOL, "false", 0, 0, NULL, "quantize both inputs of Add"},
};

/* The strategies below W and A. */
typedef struct sbit__qconfig_strategy {
    const sbit__kind *kind;
    const char *prefix, *type; /* of its rows' keys; the key that chooses */
    bool observer;
} sbit__qconfig_strategy;

static sbit__qconfig_strategy sbit__qconfig_strategy_at(size_t index)
{
    sbit__qconfig_strategy s = {NULL, "OBSERVER.", "OBSERVER.TYPE", index == 0};
    s.kind = index == 0 ? sbit__kind_observer() : index == 1 ? sbit__kind_quantizer() : NULL;
    s.prefix = index == 0 ? s.prefix : "QUANTIZER.";
    s.type = index == 0 ? s.type : "QUANTIZER.TYPE";
    return s;
}

/* "minmax|moving_average": the names of the rows for `target`; in the arena, NULL: no memory. */
static const char *sbit__qconfig_choices(const sbit_ctx *ctx, sbit__arena *arena,
                                         const sbit__qconfig_strategy *strategy, uint32_t target)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(ctx));
    sbit__row_names(ctx, strategy->kind, target, "|", &text);
    const sbit_head *step;
    const sbit_stage stage = strategy->observer ? SBIT_STAGE_RANGES : SBIT_STAGE_WEIGHTS;
    for (size_t i = 0; (step = sbit__row_at(ctx, sbit__kind_step(), i)) != NULL; i++) {
        if (((const sbit_step_row *)(const void *)step)->stage == stage &&
            (step->targets & target) != 0) {
            sbit__text_printf(&text, "|%s", step->name);
        }
    }
    const char *out = text.failed ? NULL : sbit__arena_printf(arena, "%s", text.data);
    sbit__text_deinit(&text);
    return out;
}

/* >>qconfig tables: the static keys, with choices and the strategies' own keys. */
typedef struct sbit__qconfig_tables {
    sbit__key_table *tables; /* NULL: only counted */
    size_t count;
} sbit__qconfig_tables;

static void sbit__qconfig_add_table(sbit__qconfig_tables *t, const char *prefix,
                                    const sbit_key *keys, size_t count)
{
    if (count > 0 && t->tables != NULL) {
        t->tables[t->count].prefix = prefix;
        t->tables[t->count].keys = keys;
        t->tables[t->count].count = count;
    }
    t->count += count > 0 ? 1 : 0;
}

static void sbit__qconfig_add_tables(sbit__qconfig_tables *t, const sbit_ctx *ctx, uint32_t target,
                                     const sbit_key *side_keys)
{
    t->count = 0;
    sbit__qconfig_add_table(t, "", side_keys, SBIT__COUNT_OF(sbit__qconfig_side_keys));
    if (target == SBIT_TARGET_ACTIVATION) {
        sbit__qconfig_add_table(t, "", sbit__qconfig_activation_keys,
                                SBIT__COUNT_OF(sbit__qconfig_activation_keys));
    } else {
        sbit__qconfig_add_table(t, "", sbit__qconfig_weight_keys,
                                SBIT__COUNT_OF(sbit__qconfig_weight_keys));
    }
    for (size_t k = 0; sbit__qconfig_strategy_at(k).kind != NULL; k++) {
        const sbit__qconfig_strategy strategy = sbit__qconfig_strategy_at(k);
        const sbit_head *row;
        for (size_t i = 0; (row = sbit__row_at(ctx, strategy.kind, i)) != NULL; i++) {
            sbit__qconfig_add_table(t, strategy.prefix, row->keys,
                                    (row->targets & target) != 0 ? row->key_count : 0);
        }
    }
}

/* BIT: 0 disables, as in Sparsebit; one bit cannot be had. */
static sbit_status sbit__qconfig_check_bit(const sbit_options *options, const char *section,
                                           sbit_error *error)
{
    const sbit_option *bit = sbit_options_find(options, "QUANTIZER.BIT");
    return bit->i != 1 ? SBIT_OK : sbit__option_fail(bit, section, "must be in 2 to 16", error);
}

static sbit_status sbit__qconfig_side_init(sbit__tree *tree, uint32_t target, sbit__section *side,
                                           sbit_error *error)
{
    sbit__qconfig_tables t = {NULL, 0};
    const size_t bytes = sizeof sbit__qconfig_side_keys;
    sbit_key *keys = (sbit_key *)sbit__arena_alloc(&tree->arena, bytes);
    if (keys == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    side->check_fn = sbit__qconfig_check_bit;
    memcpy(keys, sbit__qconfig_side_keys, bytes);
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__qconfig_side_keys); i++) {
        for (size_t k = 0; sbit__qconfig_strategy_at(k).kind != NULL; k++) {
            const sbit__qconfig_strategy strategy = sbit__qconfig_strategy_at(k);
            if (sbit__streq(keys[i].path, strategy.type)) {
                keys[i].choices = sbit__qconfig_choices(tree->ctx, &tree->arena, &strategy, target);
                if (keys[i].choices == NULL) {
                    return sbit__fail_oom(error, 0);
                }
            }
        }
    }
    sbit__qconfig_add_tables(&t, tree->ctx, target, keys);
    t.tables = (sbit__key_table *)sbit__arena_array(&tree->arena, t.count, sizeof *t.tables);
    if (t.tables == NULL) {
        return sbit__fail_oom(error, t.count * sizeof *t.tables);
    }
    sbit__qconfig_add_tables(&t, tree->ctx, target, keys);
    return sbit__options_init(&tree->arena, t.tables, t.count, &side->options, error);
}

/* SCHEDULE.NAME for each pass that users registered: whether it runs. Counts; fills keys unless
 * NULL. */
static sbit_status sbit__qconfig_pass_keys(sbit__tree *tree, sbit_key *keys, size_t *count,
                                           sbit_error *error)
{
    const sbit_head *row;
    *count = 0;
    for (size_t i = 0; (row = sbit__row_at(tree->ctx, sbit__kind_pass(), i)) != NULL; i++) {
        if (sbit_pass_at(i) != NULL || ((const sbit_pass_row *)(const void *)row)->opt_in) {
            continue;
        }
        sbit_key *key = keys != NULL ? &keys[*count] : NULL;
        ++*count;
        if (key == NULL) {
            continue;
        }
        char *path = sbit__arena_printf(&tree->arena, "SCHEDULE.%s", row->name);
        if (path == NULL) {
            return sbit__fail_oom(error, 0);
        }
        for (char *at = path; *at != '\0'; at++) {
            *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
        }
        memset(key, 0, sizeof *key);
        key->path = path;
        key->type = SBIT_KEY_BOOL;
        key->otherwise = "true";
        key->doc = row->doc;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__qconfig_skip(const sbit_qconfig *config, sbit__arena *arena,
                                        sbit_simplify_desc *desc, sbit_error *error)
{
    const sbit_ctx *ctx = config->tree.ctx;
    const sbit_head *row;
    char path[128];
    size_t count = 0, used = 0;
    while (sbit__row_at(ctx, sbit__kind_pass(), count) != NULL) {
        count++;
    }
    const char **skip = (const char **)sbit__arena_array(arena, count + 1, sizeof *skip);
    if (skip == NULL) {
        return sbit__fail_oom(error, count * sizeof *skip);
    }
    for (size_t i = 0; (row = sbit__row_at(ctx, sbit__kind_pass(), i)) != NULL; i++) {
        snprintf(path, sizeof path, "SCHEDULE.%s", row->name);
        const sbit_option *option =
            sbit_pass_at(i) == NULL ? sbit_options_find(&config->tree.top, path) : NULL;
        if (option != NULL && !option->b) {
            skip[used++] = row->name;
        }
    }
    desc->skip = skip;
    desc->skip_count = used;
    return SBIT_OK;
}

/* The top of the tree: its own keys, those of all steps below STEP, switches of users' passes. */
static sbit_status sbit__qconfig_top_init(sbit__tree *tree, sbit_error *error)
{
    const sbit_head *step;
    size_t count = 0, passes = 0;
    while (sbit__row_at(tree->ctx, sbit__kind_step(), count) != NULL) {
        count++;
    }
    SBIT__TRY(sbit__qconfig_pass_keys(tree, NULL, &passes, error));
    sbit__key_table *tables =
        (sbit__key_table *)sbit__arena_array(&tree->arena, count + 2, sizeof *tables);
    sbit_key *keys = (sbit_key *)sbit__arena_array(&tree->arena, passes + 1, sizeof *keys);
    if (tables == NULL || keys == NULL) {
        return sbit__fail_oom(error, (count + 2) * sizeof *tables);
    }
    SBIT__TRY(sbit__qconfig_pass_keys(tree, keys, &passes, error));
    tables[0].prefix = "";
    tables[0].keys = sbit__qconfig_top_keys;
    tables[0].count = SBIT__COUNT_OF(sbit__qconfig_top_keys);
    for (size_t i = 0; (step = sbit__row_at(tree->ctx, sbit__kind_step(), i)) != NULL; i++) {
        tables[i + 1].prefix = "STEP.";
        tables[i + 1].keys = step->keys;
        tables[i + 1].count = step->key_count;
    }
    tables[count + 1].prefix = "";
    tables[count + 1].keys = keys;
    tables[count + 1].count = passes;
    return sbit__options_init(&tree->arena, tables, count + 2, &tree->top, error);
}

static sbit_status sbit__qconfig_init(sbit__tree *tree, sbit_error *error)
{
    SBIT__TRY(sbit__qconfig_top_init(tree, error));
    SBIT__TRY(
        sbit__qconfig_side_init(tree, SBIT_TARGET_WEIGHT, &tree->sections[SBIT__QCONFIG_W], error));
    SBIT__TRY(sbit__qconfig_side_init(tree, SBIT_TARGET_ACTIVATION,
                                      &tree->sections[SBIT__QCONFIG_A], error));
    tree->sections[SBIT__QCONFIG_W].name = "W";
    tree->sections[SBIT__QCONFIG_A].name = "A";
    tree->section_count = 2;
    return SBIT_OK;
}

/* >>qconfig reading */
static sbit_qconfig *sbit__qconfig_of(sbit__tree *tree)
{
    return (sbit_qconfig *)(void *)tree; /* its only member */
}

static sbit_status sbit__qconfig_verify(sbit__tree *tree, sbit_error *error)
{
    return sbit_qconfig_validate(sbit__qconfig_of(tree), error);
}

static const sbit__tree_kind sbit__qconfig_kind = {sbit__qconfig_init, sbit__qconfig_verify, NULL,
                                                    "SPARSER", false};

SPARSEBIT_API sbit_status sbit_qconfig_read(sbit_ctx *ctx, const char *text, size_t size,
                                            sbit_qconfig **out, sbit_error *error)
{
    sbit__tree *tree = NULL;
    SBIT__TRY(
        sbit__tree_make(ctx, &sbit__qconfig_kind, text, size, out != NULL ? &tree : NULL, error));
    *out = sbit__qconfig_of(tree);
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_qconfig_load(sbit_ctx *ctx, const char *path, sbit_qconfig **out,
                                            sbit_error *error)
{
    sbit__tree *tree = NULL;
    SBIT__TRY(sbit__tree_load(ctx, &sbit__qconfig_kind, path, out != NULL ? &tree : NULL, error));
    *out = sbit__qconfig_of(tree);
    return SBIT_OK;
}

SPARSEBIT_API void sbit_qconfig_destroy(sbit_qconfig *config)
{
    sbit__tree_destroy(config != NULL ? &config->tree : NULL);
}

static const char *sbit__qscheme_name(sbit_qscheme scheme)
{
    switch (scheme) {
    case SBIT_QSCHEME_PER_TENSOR_SYMMETRIC:
        return "per-tensor-symmetric";
    case SBIT_QSCHEME_PER_TENSOR_AFFINE:
        return "per-tensor-affine";
    case SBIT_QSCHEME_PER_CHANNEL_SYMMETRIC:
        return "per-channel-symmetric";
    default:
        return "per-channel-affine";
    }
}

SPARSEBIT_API sbit_status sbit_qconfig_create(sbit_ctx *ctx, const char *profile,
                                              sbit_qconfig **out, sbit_error *error)
{
    char text[400];
    if (ctx == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx or out is NULL");
    }
    const sbit_profile_row *row = sbit_profile_find(ctx, profile != NULL ? profile : "generic");
    if (row == NULL) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, profile,
                          "unknown placement profile '%s'; known: %s", profile,
                          sbit__profile_names(ctx, text, sizeof text));
    }
    snprintf(text, sizeof text,
             "PLACEMENT: %s\nSCHEDULE: {FUSE_BN: true}\n"
             "W: {QSCHEME: %s, QUANTIZER: {BIT: 8}}\nA: {QSCHEME: %s, QUANTIZER: {BIT: 8}}\n",
             row->head.name, sbit__qscheme_name(row->weight_scheme),
             sbit__qscheme_name(row->activation_scheme));
    return sbit_qconfig_read(ctx, text, strlen(text), out, error);
}

/* >>qconfig use */
SPARSEBIT_API const sbit_profile_row *sbit_qconfig_profile(const sbit_qconfig *config)
{
    return sbit_profile_find(config->tree.ctx, sbit_options_string(&config->tree.top, "PLACEMENT"));
}

SPARSEBIT_API sbit_status sbit_qconfig_set(sbit_qconfig *config, const char *path,
                                           const char *value, sbit_error *error)
{
    if (config == NULL || path == NULL || value == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a NULL argument");
    }
    return sbit__tree_set(&config->tree, path, value, error);
}

SPARSEBIT_API sbit_status sbit_qconfig_add_step(sbit_qconfig *config, const char *step,
                                                sbit_error *error)
{
    sbit__text text;
    if (config == NULL || step == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a NULL argument");
    }
    const sbit_option *list = sbit_options_find(&config->tree.top, "STEPS");
    sbit__text_init(&text, sbit_ctx_allocator(config->tree.ctx));
    sbit__text_printf(&text, "[");
    for (size_t i = 0; i < list->list_count; i++) {
        if (sbit__same_word(list->list[i], step)) {
            sbit__text_deinit(&text);
            return SBIT_OK;
        }
        sbit__text_printf(&text, "\"%s\", ", list->list[i]);
    }
    sbit__text_printf(&text, "\"%s\"]", step);
    const sbit_status status = text.failed ? sbit__fail_oom(error, 0)
                                           : sbit_qconfig_set(config, "STEPS", text.data, error);
    sbit__text_deinit(&text);
    return status;
}

static bool sbit__qconfig_has(const sbit_options *options, const char *part)
{
    return strstr(sbit_options_string(options, "QSCHEME"), part) != NULL;
}

static sbit_status sbit__qconfig_check_backend(const sbit_qconfig *config, sbit_error *error)
{
    const char *backend = sbit_options_string(&config->tree.top, "BACKEND");
    const sbit_options *w = &config->tree.sections[SBIT__QCONFIG_W].options;
    const sbit_options *a = &config->tree.sections[SBIT__QCONFIG_A].options;
    if (sbit__streq(backend, "virtual")) {
        return SBIT_OK;
    }
    const sbit_options *const sides[] = {w, a};
    for (size_t i = 0; i < SBIT__COUNT_OF(sides); i++) {
        if (sbit_options_int(sides[i], "QUANTIZER.BIT") != 8) {
            return sbit__fail(error, SBIT_ERR_CONFIG, "BACKEND",
                              "%s.QUANTIZER.BIT must be 8 for BACKEND %s; use BACKEND virtual for "
                              "other widths",
                              i == 0 ? "W" : "A", backend);
        }
    }
    if (sbit__streq(backend, "tensorrt") &&
        (!sbit__streq(sbit_options_string(w, "QSCHEME"), "per-channel-symmetric") ||
         !sbit__streq(sbit_options_string(a, "QSCHEME"), "per-tensor-symmetric"))) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "BACKEND",
                          "BACKEND tensorrt needs W.QSCHEME per-channel-symmetric and A.QSCHEME "
                          "per-tensor-symmetric");
    }
    return SBIT_OK;
}

static sbit_status sbit__qconfig_check_steps(const sbit_qconfig *config, sbit_error *error)
{
    const sbit_option *list = sbit_options_find(&config->tree.top, "STEPS");
    sbit_status status = SBIT_OK;
    for (size_t i = 0; i < list->list_count && status == SBIT_OK; i++) {
        const sbit_step_row *row = sbit_step_find(config->tree.ctx, list->list[i]);
        if (row == NULL) {
            sbit__text known;
            char what[400];
            sbit__text_init(&known, sbit_ctx_allocator(config->tree.ctx));
            sbit__row_names(config->tree.ctx, sbit__kind_step(), 0, ", ", &known);
            snprintf(what, sizeof what, "unknown step '%.80s'; known: %.280s", list->list[i],
                     known.failed ? "" : known.data);
            sbit__text_deinit(&known);
            status = sbit__option_fail(list, "", what, error);
        }
    }
    return status;
}

SPARSEBIT_API sbit_status sbit_qconfig_validate(const sbit_qconfig *config, sbit_error *error)
{
    const sbit_profile_row *profile = sbit_qconfig_profile(config);
    const sbit_options *w = &config->tree.sections[SBIT__QCONFIG_W].options;
    const sbit_options *a = &config->tree.sections[SBIT__QCONFIG_A].options;
    SBIT__TRY(sbit__qconfig_check_backend(config, error));
    SBIT__TRY(sbit__qconfig_check_steps(config, error));
    const sbit_format_row *format;
    SBIT__TRY(sbit__format_get(
        config->tree.ctx, sbit_options_string(&config->tree.top, "EXPORT.FORMAT"), &format, error));
    if (profile == NULL) {
        const sbit_option *option = sbit_options_find(&config->tree.top, "PLACEMENT");
        char names[256], what[400];
        snprintf(what, sizeof what, "unknown profile '%.100s'; known: %s", option->s,
                 sbit__profile_names(config->tree.ctx, names, sizeof names));
        return sbit__option_fail(option, "", what, error);
    }
    if (sbit_options_bool(&config->tree.top, "SCHEDULE.BN_TUNING") &&
        !sbit__qconfig_has(w, "per-channel")) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "SCHEDULE.BN_TUNING",
                          "SCHEDULE.BN_TUNING needs a per-channel W.QSCHEME");
    }
    if (sbit__profile_is(profile, SBIT_PROFILE_SYMMETRIC_ONLY) && sbit__qconfig_has(a, "affine")) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "A.QSCHEME",
                          "A.QSCHEME must be symmetric for PLACEMENT %s", profile->head.name);
    }
    if (!sbit__profile_is(profile, SBIT_PROFILE_WEIGHT_AFFINE) && sbit__qconfig_has(w, "affine")) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "W.QSCHEME",
                          "W.QSCHEME must be symmetric for PLACEMENT %s", profile->head.name);
    }
    return SBIT_OK;
}

/* Integer range and storage type: the true width decides the range, storage is the next type. */
static void sbit__settings_range(sbit_grid *grid, bool signed_affine, bool narrow)
{
    const int32_t half = (int32_t)1 << (grid->bits - 1);
    const bool is_signed = grid->symmetric || signed_affine;
    grid->qmin = is_signed ? -half : 0;
    grid->qmax = is_signed ? half - 1 : 2 * half - 1;
    if (narrow && grid->symmetric) {
        grid->qmin = -grid->qmax;
    }
    if (grid->bits > 8) {
        grid->dtype = is_signed ? SBIT_I16 : SBIT_U16;
    } else {
        grid->dtype = is_signed ? SBIT_I8 : SBIT_U8;
    }
}

static sbit_status sbit__settings_check_float8(const sbit__settings *s, const char *side,
                                               sbit_error *error);

SBIT__FN sbit_status sbit__qconfig_resolve(sbit_qconfig *config, uint32_t target,
                                           const sbit_graph *graph, sbit_node_id node,
                                           sbit__arena *arena, sbit__settings *out,
                                           sbit_error *error)
{
    const bool weight = target == SBIT_TARGET_WEIGHT;
    sbit__section *side = &config->tree.sections[weight ? SBIT__QCONFIG_W : SBIT__QCONFIG_A];
    sbit__settings s;
    memset(&s, 0, sizeof s);
    SBIT__TRY(sbit__section_resolve(side, graph, node, arena, &s.options, error));
    s.grid.symmetric = sbit__qconfig_has(&s.options, "symmetric");
    s.per_channel = sbit__qconfig_has(&s.options, "per-channel");
    s.grid.bits = (int32_t)sbit_options_int(&s.options, "QUANTIZER.BIT");
    const sbit_format_row *format =
        sbit_format_find(config->tree.ctx, sbit_options_string(&config->tree.top, "EXPORT.FORMAT"));
    s.disabled = sbit_options_bool(&s.options, "QUANTIZER.DISABLE") || s.grid.bits == 0 ||
                 (!weight && format != NULL && format->float_activations);
    s.grid.power_of_two = sbit_options_bool(&s.options, "QUANTIZER.POWER_OF_TWO");
    s.block = sbit_options_int(&s.options, "QUANTIZER.GROUP_SIZE");
    s.activation_axis =
        sbit__streq(sbit_options_string(&s.options, "OBSERVER.LAYOUT"), "NLC") ? 2 : 1;
    const char *observer = sbit_options_string(&s.options, "OBSERVER.TYPE");
    s.observer = sbit_observer_find(config->tree.ctx, observer);
    s.range_step = s.observer == NULL ? sbit_step_find(config->tree.ctx, observer) : NULL;
    if (s.range_step != NULL) { /* the step finds its range, from this one on */
        s.observer = sbit_observer_find(config->tree.ctx, "minmax");
    }
    const char *type = sbit_options_string(&s.options, "QUANTIZER.TYPE");
    s.quantizer = sbit_quantizer_find(config->tree.ctx, type);
    s.step = s.quantizer == NULL ? sbit_step_find(config->tree.ctx, type) : NULL;
    if (s.step != NULL) { /* the step moves weights on the grid that the range gives */
        s.quantizer = sbit_quantizer_find(config->tree.ctx, "uniform");
    }
    if (s.observer == NULL || s.quantizer == NULL) {
        const sbit__qconfig_strategy strategy =
            sbit__qconfig_strategy_at(s.observer == NULL ? 0 : 1);
        const char *key = strategy.type;
        const char *known = sbit__qconfig_choices(config->tree.ctx, arena, &strategy, target);
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, key,
                          "%s.%s: '%s' is not one of those that this version has: %s", side->name,
                          key, sbit_options_string(&s.options, key), known != NULL ? known : "");
    }
    const sbit_observer_row *asked = sbit__quantizer_statistics(s.quantizer, target, &s.options);
    s.observer = asked != NULL ? asked : s.observer;
    SBIT__TRY(sbit__settings_check_float8(&s, side->name, error));
    const sbit_profile_row *profile = sbit_qconfig_profile(config);
    if (profile->max_bits > 0 && s.grid.bits > profile->max_bits) {
        char name[200];
        sbit_layer_name(graph, node, name, sizeof name);
        return sbit__fail(error, SBIT_ERR_CONFIG, name,
                          "layer '%s': %s.QUANTIZER.BIT is %d, PLACEMENT %s takes at most %d", name,
                          side->name, (int)s.grid.bits, profile->head.name, (int)profile->max_bits);
    }
    sbit__settings_bits(config, target, s.grid.bits, &s);
    *out = s;
    return SBIT_OK;
}

SBIT__FN void sbit__settings_bits(const sbit_qconfig *config, uint32_t target, int32_t bits,
                                  sbit__settings *settings)
{
    const sbit_profile_row *profile = sbit_qconfig_profile(config);
    settings->grid.bits = bits != 0 ? bits : 8; /* 0: Sparsebit's old way to disable */
    sbit__settings_range(&settings->grid,
                         sbit__profile_is(profile, SBIT_PROFILE_SIGNED_AFFINE) &&
                             target == SBIT_TARGET_ACTIVATION,
                         sbit_options_bool(&settings->options, "QUANTIZER.NARROW_RANGE"));
    int32_t largest;
    const sbit_dtype float8 = sbit__quantizer_float8(settings->quantizer, &largest);
    if (float8 != SBIT_UNDEFINED) { /* the largest size becomes the largest number */
        settings->grid.dtype = float8;
        settings->grid.bits = 8;
        settings->grid.symmetric = true;
        settings->grid.qmin = -largest;
        settings->grid.qmax = largest;
    }
}

/* Widths, observers and steps that float8 does not go with. */
static sbit_status sbit__settings_check_float8(const sbit__settings *s, const char *side,
                                               sbit_error *error)
{
    static const char *const ranges[] = {"minmax", "moving_average", "percentile", NULL};
    int32_t largest;
    if (s->disabled || sbit__quantizer_float8(s->quantizer, &largest) == SBIT_UNDEFINED) {
        return SBIT_OK;
    }
    if (sbit_options_int(&s->options, "QUANTIZER.BIT") != 8) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "QUANTIZER.BIT",
                          "%s.QUANTIZER.TYPE %s has 8 bits, not %lld", side,
                          s->quantizer->head.name,
                          (long long)sbit_options_int(&s->options, "QUANTIZER.BIT"));
    }
    if (!sbit__word_listed(ranges, s->observer->head.name) || s->range_step != NULL) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "OBSERVER.TYPE",
                          "%s.OBSERVER.TYPE '%s' weighs the steps of integers; %s takes minmax, "
                          "moving_average or percentile",
                          side, sbit_options_string(&s->options, "OBSERVER.TYPE"),
                          s->quantizer->head.name);
    }
    return SBIT_OK;
}

SBIT__FN bool sbit__same_options(const sbit_options *a, const sbit_options *b, const char *prefix)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        const sbit_option *x = &a->items[i], *y = &b->items[i];
        if (x->key->type != SBIT_KEY_YAML && strncmp(x->key->path, prefix, strlen(prefix)) == 0 &&
            (x->b != y->b || x->i != y->i || x->f < y->f || x->f > y->f ||
             !sbit__streq(x->s, y->s))) {
            return false;
        }
    }
    return true;
}

/* >>qconfig printing */
SPARSEBIT_API void sbit_qconfig_print(const sbit_qconfig *config, bool only_set,
                                      void (*put)(const char *text, size_t size, void *user),
                                      void *user)
{
    sbit__tree_print(&config->tree, only_set, put, user);
}

SPARSEBIT_API sbit_status sbit_qconfig_describe(const sbit_qconfig *config,
                                                void (*put)(const char *text, size_t size,
                                                            void *user),
                                                void *user, sbit_error *error)
{
    const sbit__described rows[] = {{"Observers", sbit__kind_observer()},
                                    {"Quantizers", sbit__kind_quantizer()},
                                    {"Steps", sbit__kind_step()},
                                    {"Profiles", sbit__kind_profile()}};
    return sbit__tree_describe(&config->tree, rows, SBIT__COUNT_OF(rows), put, user, error);
}

static void sbit__qconfig_to_text(const char *text, size_t size, void *user)
{
    sbit__text_append((sbit__text *)user, text, size);
}

SBIT__FN sbit_status sbit__qconfig_clone(const sbit_qconfig *config, sbit_qconfig **out,
                                         sbit_error *error)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(config->tree.ctx));
    sbit_qconfig_print(config, true, sbit__qconfig_to_text, &text);
    const sbit_status status =
        text.failed ? sbit__fail_oom(error, text.size)
                    : sbit_qconfig_read(config->tree.ctx, text.data, text.size, out, error);
    sbit__text_deinit(&text);
    return status;
}
