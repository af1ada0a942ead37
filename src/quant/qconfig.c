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
    {"EXPORT.INT4", SBIT_KEY_BOOL, "false", 0, 0, NULL,
     "store 4-bit tensors as int4/uint4 (opset 21) instead of clipped 8-bit ones"},
    {"EXPORT.SHARE_LIMIT", SBIT_KEY_FLOAT, "16", 1.0, 1e9, NULL,
     "tensors joined by Concat share a scale if their ranges differ by less than this factor"},
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

static const sbit_key sbit__qconfig_feature_keys[] = {
    {"OBSERVER.LAYOUT", SBIT_KEY_CHOICE, "NCHW", 0, 0, "NCHW|NLC",
     "channel axis of features: 1 or 2"},
    {"QADD.ENABLE_QUANT", SBIT_KEY_BOOL, "false", 0, 0, NULL, "quantize both inputs of Add"},
};

/* Strategies of Sparsebit's tree that have no row here: files that name them load, with their keys
 * checked, and are refused by name when a quantizer is to be made of them. */
typedef struct sbit__qconfig_reserved {
    bool observer; /* else a quantizer */
    const char *name;
    uint32_t targets;
    sbit_key key; /* path NULL: none */
} sbit__qconfig_reserved;

static const sbit__qconfig_reserved sbit__qconfig_planned[] = {
    {true,
     "mse",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {NULL, SBIT_KEY_FLOAT, NULL, 0, 0, NULL, NULL}},
    {true,
     "percentile",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {"PERCENTILE.ALPHA", SBIT_KEY_FLOAT, "0.001", 0.0, 1.0, NULL, "part of the values to cut"}},
    {true,
     "kl_histogram",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {NULL, SBIT_KEY_FLOAT, NULL, 0, 0, NULL, NULL}},
    {true,
     "aciq",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {"ACIQ.DISTRIBUTION", SBIT_KEY_CHOICE, "GAUS", 0, 0, "GAUS|LAPLACE", "assumed distribution"}},
    {false,
     "lsq",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {NULL, SBIT_KEY_FLOAT, NULL, 0, 0, NULL, NULL}},
    {false,
     "lsq+",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {NULL, SBIT_KEY_FLOAT, NULL, 0, 0, NULL, NULL}},
    {false,
     "dorefa",
     SBIT_TARGET_WEIGHT | SBIT_TARGET_FEATURE,
     {NULL, SBIT_KEY_FLOAT, NULL, 0, 0, NULL, NULL}},
    {false,
     "pact",
     SBIT_TARGET_FEATURE,
     {"PACT.ALPHA_VALUE", SBIT_KEY_FLOAT, "10", 0.0, 1e9, NULL, "first clipping value"}},
    {false, "adaround", SBIT_TARGET_WEIGHT, {NULL, SBIT_KEY_FLOAT, NULL, 0, 0, NULL, NULL}},
};

/* >>qconfig tables: the static keys, with choices and the strategies' own keys. */
typedef struct sbit__qconfig_tables {
    sbit__key_table tables[96];
    size_t count;
} sbit__qconfig_tables;

static void sbit__qconfig_add_table(sbit__qconfig_tables *t, const char *prefix,
                                    const sbit_key *keys, size_t count)
{
    if (count > 0 && t->count < SBIT__COUNT_OF(t->tables)) {
        t->tables[t->count].prefix = prefix;
        t->tables[t->count].keys = keys;
        t->tables[t->count++].count = count;
    }
}

/* Walks built-in then user rows of a kind; NULL past the end. */
static const void *sbit__qconfig_row(const sbit_ctx *ctx, enum sbit__registry_kind kind,
                                     size_t index)
{
    size_t built_in = 0, count = 0;
    const void *row = NULL;
    if (kind == SBIT__REG_OBSERVER) {
        while (sbit_observer_at(built_in) != NULL) {
            built_in++;
        }
        row = sbit_observer_at(index);
    } else {
        while (sbit_quantizer_at(built_in) != NULL) {
            built_in++;
        }
        row = sbit_quantizer_at(index);
    }
    const void *const *rows = sbit__registry_rows(ctx, kind, &count);
    return row != NULL ? row : index - built_in < count ? rows[index - built_in] : NULL;
}

/* "minmax|moving_average": the names of the rows that may be used for `target`. */
static const char *sbit__qconfig_choices(const sbit_ctx *ctx, sbit__arena *arena,
                                         enum sbit__registry_kind kind, uint32_t target)
{
    const char *text = "";
    for (size_t i = 0;; i++) {
        const void *row = sbit__qconfig_row(ctx, kind, i);
        if (row == NULL || text == NULL) {
            return text;
        }
        const bool observer = kind == SBIT__REG_OBSERVER;
        const uint32_t targets = observer ? ((const sbit_observer_row *)row)->targets
                                          : ((const sbit_quantizer_row *)row)->targets;
        if ((targets & target) != 0) {
            const char *name = observer ? ((const sbit_observer_row *)row)->name
                                        : ((const sbit_quantizer_row *)row)->name;
            text = sbit__arena_printf(arena, "%s%s%s", text, text[0] != '\0' ? "|" : "", name);
        }
    }
}

/* The same with the names that have no row yet. */
static const char *sbit__qconfig_all_choices(const sbit_ctx *ctx, sbit__arena *arena,
                                             enum sbit__registry_kind kind, uint32_t target)
{
    const bool observer = kind == SBIT__REG_OBSERVER;
    const char *text = sbit__qconfig_choices(ctx, arena, kind, target);
    for (size_t i = 0; text != NULL && i < SBIT__COUNT_OF(sbit__qconfig_planned); i++) {
        const sbit__qconfig_reserved *planned = &sbit__qconfig_planned[i];
        const bool there = observer ? sbit_lookup_observer(ctx, planned->name) != NULL
                                    : sbit_lookup_quantizer(ctx, planned->name) != NULL;
        if (planned->observer == observer && !there && (planned->targets & target) != 0) {
            text = sbit__arena_printf(arena, "%s|%s", text, planned->name);
        }
    }
    return text;
}

static sbit_status sbit__qconfig_side_init(sbit_qconfig *config, uint32_t target,
                                           sbit__qconfig_side *side, sbit_error *error)
{
    sbit__qconfig_tables t;
    const size_t bytes = sizeof sbit__qconfig_side_keys;
    sbit_key *keys = (sbit_key *)sbit__arena_alloc(&config->arena, bytes);
    if (keys == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    memset(&t, 0, sizeof t);
    memcpy(keys, sbit__qconfig_side_keys, bytes);
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__qconfig_side_keys); i++) {
        if (keys[i].type == SBIT_KEY_CHOICE && keys[i].choices == NULL) {
            const bool observer = keys[i].path[0] == 'O';
            keys[i].choices = sbit__qconfig_all_choices(
                config->ctx, &config->arena, observer ? SBIT__REG_OBSERVER : SBIT__REG_QUANTIZER,
                target);
            if (keys[i].choices == NULL) {
                return sbit__fail_oom(error, 0);
            }
        }
    }
    sbit__qconfig_add_table(&t, "", keys, SBIT__COUNT_OF(sbit__qconfig_side_keys));
    if (target == SBIT_TARGET_FEATURE) {
        sbit__qconfig_add_table(&t, "", sbit__qconfig_feature_keys,
                                SBIT__COUNT_OF(sbit__qconfig_feature_keys));
    }
    const void *row;
    for (size_t i = 0; (row = sbit__qconfig_row(config->ctx, SBIT__REG_OBSERVER, i)) != NULL; i++) {
        const sbit_observer_row *observer = (const sbit_observer_row *)row;
        sbit__qconfig_add_table(&t, "OBSERVER.", observer->keys,
                                (observer->targets & target) != 0 ? observer->key_count : 0);
    }
    for (size_t i = 0; (row = sbit__qconfig_row(config->ctx, SBIT__REG_QUANTIZER, i)) != NULL;
         i++) {
        const sbit_quantizer_row *quantizer = (const sbit_quantizer_row *)row;
        sbit__qconfig_add_table(&t, "QUANTIZER.", quantizer->keys,
                                (quantizer->targets & target) != 0 ? quantizer->key_count : 0);
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__qconfig_planned); i++) {
        const sbit__qconfig_reserved *planned = &sbit__qconfig_planned[i];
        const bool wanted = planned->key.path != NULL && (planned->targets & target) != 0;
        sbit__qconfig_add_table(&t, planned->observer ? "OBSERVER." : "QUANTIZER.", &planned->key,
                                wanted ? 1 : 0);
    }
    return sbit__options_init(&config->arena, t.tables, t.count, &side->options, error);
}

static sbit_status sbit__qconfig_new(sbit_ctx *ctx, sbit_qconfig **out, sbit_error *error)
{
    sbit__key_table top;
    const sbit_allocator *a = sbit_ctx_allocator(ctx);
    sbit_qconfig *config = (sbit_qconfig *)sbit__calloc(a, 1, sizeof *config);
    if (config == NULL) {
        return sbit__fail_oom(error, sizeof *config);
    }
    config->ctx = ctx;
    sbit__arena_init(&config->arena, a);
    top.prefix = "";
    top.keys = sbit__qconfig_top_keys;
    top.count = SBIT__COUNT_OF(sbit__qconfig_top_keys);
    sbit_status status = sbit__options_init(&config->arena, &top, 1, &config->top, error);
    if (status == SBIT_OK) {
        status = sbit__qconfig_side_init(config, SBIT_TARGET_WEIGHT, &config->weight, error);
    }
    if (status == SBIT_OK) {
        status = sbit__qconfig_side_init(config, SBIT_TARGET_FEATURE, &config->feature, error);
    }
    if (status != SBIT_OK) {
        sbit_qconfig_destroy(config);
        return status;
    }
    *out = config;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_qconfig_destroy(sbit_qconfig *config)
{
    if (config == NULL) {
        return;
    }
    const sbit_allocator *a = sbit_ctx_allocator(config->ctx);
    for (size_t i = 0; i < config->doc_count; i++) {
        sbit_yaml_destroy(config->docs[i]);
    }
    sbit__free(a, config->docs, config->doc_capacity * sizeof *config->docs);
    sbit__arena_deinit(&config->arena);
    sbit__free(a, config, sizeof *config);
}

/* >>qconfig reading */
/* Parses text and keeps the document as long as the config lives. */
static sbit_status sbit__qconfig_parse(sbit_qconfig *config, const char *text, size_t size,
                                       const sbit_yaml **root, sbit_error *error)
{
    const sbit_allocator *a = sbit_ctx_allocator(config->ctx);
    sbit_yaml_doc *doc = NULL;
    void *docs = config->docs;
    SBIT__TRY(sbit__grow(a, &docs, &config->doc_capacity, config->doc_count + 1,
                         sizeof *config->docs, error));
    config->docs = (sbit_yaml_doc **)docs;
    SBIT__TRY(sbit_yaml_parse(config->ctx, text, size, &doc, error));
    config->docs[config->doc_count++] = doc;
    *root = sbit_yaml_root(doc);
    return SBIT_OK;
}

static sbit_status sbit__qconfig_specific_fail(const sbit_yaml *at, const char *place,
                                               const char *what, sbit_error *error)
{
    char where[32];
    sbit__yaml_position(at->line, at->column, where, sizeof where);
    return sbit__fail(error, SBIT_ERR_CONFIG, where, "%s: %s.SPECIFIC: %s", where, place, what);
}

/* SPECIFIC: a list of maps glob -> [KEY, value, ...]; a single map is taken too. Every flat list
 * is tried on a copy of the options now, so that its mistakes are found at load. */
static sbit_status sbit__qconfig_specific(sbit_qconfig *config, sbit__qconfig_side *side,
                                          const char *place, sbit_error *error)
{
    const sbit_yaml *root = sbit_options_find(&side->options, "SPECIFIC")->yaml;
    side->specific_count = 0;
    if (root == NULL || root->kind == SBIT_YAML_NULL) {
        return SBIT_OK;
    }
    if (root->kind == SBIT_YAML_SCALAR) {
        return sbit__qconfig_specific_fail(root, place, "[{\"glob\": [KEY, value]}] is expected",
                                           error);
    }
    const sbit_yaml *maps = root->kind == SBIT_YAML_MAP ? root : root->items;
    const size_t map_count = root->kind == SBIT_YAML_MAP ? 1 : root->count;
    size_t total = 0;
    for (size_t m = 0; m < map_count; m++) {
        if (maps[m].kind != SBIT_YAML_MAP) {
            return sbit__qconfig_specific_fail(&maps[m], place,
                                               "[{\"glob\": [KEY, value]}] is expected", error);
        }
        total += maps[m].count;
    }
    side->specific =
        (sbit__specific *)sbit__arena_array(&config->arena, total + 1, sizeof *side->specific);
    if (side->specific == NULL) {
        return sbit__fail_oom(error, total * sizeof *side->specific);
    }
    for (size_t m = 0; m < map_count; m++) {
        for (size_t i = 0; i < maps[m].count; i++) {
            const sbit_yaml *entry = &maps[m].items[i];
            sbit__specific *specific = &side->specific[side->specific_count++];
            specific->pattern = entry->key;
            specific->list = entry;
            if (entry->kind != SBIT_YAML_LIST || entry->count % 2 != 0) {
                return sbit__qconfig_specific_fail(entry, place,
                                                   "a list [KEY, value, ...] is expected", error);
            }
        }
    }
    return SBIT_OK;
}

/* Applies a flat list [KEY, value, ...] to options. */
static sbit_status sbit__qconfig_apply(sbit__arena *arena, const sbit__specific *specific,
                                       const char *place, sbit_options *options, sbit_error *error)
{
    for (size_t i = 0; i + 1 < specific->list->count; i += 2) {
        const sbit_yaml *key = &specific->list->items[i];
        if (key->kind != SBIT_YAML_SCALAR) {
            return sbit__qconfig_specific_fail(key, place, "a key is expected", error);
        }
        if (sbit__same_word(key->text, "SPECIFIC")) {
            return sbit__qconfig_specific_fail(key, place, "SPECIFIC cannot be nested", error);
        }
        /* an unknown key is reported where it stands, a wrong value where that stands */
        const bool known = sbit_options_find(options, key->text) != NULL;
        SBIT__TRY(
            sbit__options_set(arena, options, key->text, known ? key + 1 : key, place, error));
    }
    return SBIT_OK;
}

static sbit_status sbit__qconfig_check_side(sbit_qconfig *config, sbit__qconfig_side *side,
                                            const char *place, sbit_error *error)
{
    SBIT__TRY(sbit__options_complete(&side->options, place, error));
    SBIT__TRY(sbit__qconfig_specific(config, side, place, error));
    for (size_t i = 0; i < side->specific_count; i++) {
        sbit_options trial;
        SBIT__TRY(sbit__options_copy(&config->arena, &side->options, &trial, error));
        SBIT__TRY(sbit__qconfig_apply(&config->arena, &side->specific[i], place, &trial, error));
        if (sbit_options_int(&trial, "QUANTIZER.BIT") == 1) {
            return sbit__qconfig_specific_fail(side->specific[i].list, place,
                                               "QUANTIZER.BIT must be 2 to 16", error);
        }
    }
    if (sbit_options_int(&side->options, "QUANTIZER.BIT") == 1) {
        return sbit__fail(error, SBIT_ERR_CONFIG, NULL, "%s.QUANTIZER.BIT must be 2 to 16", place);
    }
    return SBIT_OK;
}

/* Reads the root map: W and A are trees of their own, the rest is the top table's. */
static sbit_status sbit__qconfig_read_root(sbit_qconfig *config, const sbit_yaml *root,
                                           sbit_error *error)
{
    sbit_yaml rest = *root;
    sbit_yaml *items =
        (sbit_yaml *)sbit__arena_array(&config->arena, root->count + 1, sizeof *items);
    if (items == NULL) {
        return sbit__fail_oom(error, root->count * sizeof *items);
    }
    rest.count = 0;
    rest.items = items;
    for (size_t i = 0; root->kind == SBIT_YAML_MAP && i < root->count; i++) {
        const sbit_yaml *entry = &root->items[i];
        const bool weight = sbit__same_word(entry->key, "W");
        if (weight || sbit__same_word(entry->key, "A")) {
            SBIT__TRY(sbit__options_read(
                &config->arena, weight ? &config->weight.options : &config->feature.options, entry,
                weight ? "W" : "A", error));
        } else {
            items[rest.count++] = *entry;
        }
    }
    SBIT__TRY(sbit__options_read(&config->arena, &config->top, &rest, "", error));
    const sbit_option *device = sbit_options_find(&config->top, "DEVICE");
    if (device->is_set && !sbit__same_word(device->s, "cpu")) {
        sbit__log(config->ctx, SBIT_LOG_INFO,
                  "DEVICE: %s is accepted, but this build runs on the CPU", device->s);
    }
    return SBIT_OK;
}

static sbit_status sbit__qconfig_read_text(sbit_qconfig *config, const char *text, size_t size,
                                           sbit_error *error)
{
    const sbit_yaml *root = NULL;
    SBIT__TRY(sbit__qconfig_parse(config, text, size, &root, error));
    SBIT__TRY(sbit__qconfig_read_root(config, root, error));
    SBIT__TRY(sbit__qconfig_check_side(config, &config->weight, "W", error));
    SBIT__TRY(sbit__qconfig_check_side(config, &config->feature, "A", error));
    return sbit_qconfig_validate(config, error);
}

SPARSEBIT_API sbit_status sbit_qconfig_read(sbit_ctx *ctx, const char *text, size_t size,
                                            sbit_qconfig **out, sbit_error *error)
{
    sbit_qconfig *config = NULL;
    if (ctx == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx or out is NULL");
    }
    SBIT__TRY(sbit__qconfig_new(ctx, &config, error));
    const sbit_status status = sbit__qconfig_read_text(config, text, size, error);
    if (status != SBIT_OK) {
        sbit_qconfig_destroy(config);
        return status;
    }
    *out = config;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_qconfig_load(sbit_ctx *ctx, const char *path, sbit_qconfig **out,
                                            sbit_error *error)
{
    sbit__file file;
    if (ctx == NULL || out == NULL || path == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx, path or out is NULL");
    }
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(ctx), path, &file, error));
    const sbit_status status =
        sbit_qconfig_read(ctx, (const char *)file.data, file.size, out, error);
    sbit__file_close(&file);
    return status;
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
    const sbit_profile_row *row = sbit_lookup_profile(ctx, profile != NULL ? profile : "generic");
    if (row == NULL) {
        return sbit__fail(error, SBIT_ERR_NOT_FOUND, profile,
                          "unknown placement profile '%s'; known: %s", profile,
                          sbit__profile_names(ctx, text, sizeof text));
    }
    snprintf(text, sizeof text,
             "PLACEMENT: %s\nSCHEDULE: {FUSE_BN: true}\n"
             "W: {QSCHEME: %s, QUANTIZER: {BIT: 8}}\nA: {QSCHEME: %s, QUANTIZER: {BIT: 8}}\n",
             row->name, sbit__qscheme_name(row->weight_scheme),
             sbit__qscheme_name(row->activation_scheme));
    return sbit_qconfig_read(ctx, text, strlen(text), out, error);
}

/* >>qconfig use */
SPARSEBIT_API const sbit_profile_row *sbit_qconfig_profile(const sbit_qconfig *config)
{
    return sbit_lookup_profile(config->ctx, sbit_options_string(&config->top, "PLACEMENT"));
}

static sbit_status sbit__qconfig_set_value(sbit_qconfig *config, const char *path,
                                           const char *value, sbit_error *error)
{
    const sbit_yaml *parsed = NULL;
    SBIT__TRY(sbit__qconfig_parse(config, value, strlen(value), &parsed, error));
    const bool side =
        (path[0] == 'W' || path[0] == 'A' || path[0] == 'w' || path[0] == 'a') && path[1] == '.';
    if (!side) {
        return sbit__options_set(&config->arena, &config->top, path, parsed, "", error);
    }
    const bool weight = path[0] == 'W' || path[0] == 'w';
    sbit__qconfig_side *to = weight ? &config->weight : &config->feature;
    SBIT__TRY(sbit__options_set(&config->arena, &to->options, path + 2, parsed, weight ? "W" : "A",
                                error));
    return sbit__qconfig_check_side(config, to, weight ? "W" : "A", error);
}

SPARSEBIT_API sbit_status sbit_qconfig_set(sbit_qconfig *config, const char *path,
                                           const char *value, sbit_error *error)
{
    if (config == NULL || path == NULL || value == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "a NULL argument");
    }
    return sbit__qconfig_set_value(config, path, value, error);
}

static bool sbit__qconfig_has(const sbit_options *options, const char *part)
{
    return strstr(sbit_options_string(options, "QSCHEME"), part) != NULL;
}

static sbit_status sbit__qconfig_check_backend(const sbit_qconfig *config, sbit_error *error)
{
    const char *backend = sbit_options_string(&config->top, "BACKEND");
    const sbit_options *w = &config->weight.options;
    const sbit_options *a = &config->feature.options;
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

SPARSEBIT_API sbit_status sbit_qconfig_validate(const sbit_qconfig *config, sbit_error *error)
{
    const sbit_profile_row *profile = sbit_qconfig_profile(config);
    const sbit_options *w = &config->weight.options;
    const sbit_options *a = &config->feature.options;
    SBIT__TRY(sbit__qconfig_check_backend(config, error));
    if (profile == NULL) {
        const sbit_option *option = sbit_options_find(&config->top, "PLACEMENT");
        char names[256], place[32] = "PLACEMENT";
        if (option->line > 0) { /* written in a file */
            snprintf(place, sizeof place, "%d:%d", (int)option->line, (int)option->column);
        }
        return sbit__fail(error, SBIT_ERR_CONFIG, place,
                          "PLACEMENT: unknown profile '%s'; known: %s",
                          sbit_options_string(&config->top, "PLACEMENT"),
                          sbit__profile_names(config->ctx, names, sizeof names));
    }
    if (sbit_options_bool(&config->top, "SCHEDULE.BN_TUNING") &&
        !sbit__qconfig_has(w, "per-channel")) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "SCHEDULE.BN_TUNING",
                          "SCHEDULE.BN_TUNING needs a per-channel W.QSCHEME");
    }
    if (profile->symmetric_only && sbit__qconfig_has(a, "affine")) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "A.QSCHEME",
                          "A.QSCHEME must be symmetric for PLACEMENT %s", profile->name);
    }
    if (!profile->weight_affine && sbit__qconfig_has(w, "affine")) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "W.QSCHEME",
                          "W.QSCHEME must be symmetric for PLACEMENT %s", profile->name);
    }
    return SBIT_OK;
}

/* Integer range and storage type: the true width decides the range, storage is the next type. */
static void sbit__settings_range(sbit__settings *s, bool signed_affine, bool narrow)
{
    const int32_t half = (int32_t)1 << (s->bits - 1);
    const bool is_signed = s->symmetric || signed_affine;
    s->qmin = is_signed ? -half : 0;
    s->qmax = is_signed ? half - 1 : 2 * half - 1;
    if (narrow && s->symmetric) {
        s->qmin = -s->qmax;
    }
    if (s->bits > 8) {
        s->dtype = is_signed ? SBIT_I16 : SBIT_U16;
    } else {
        s->dtype = is_signed ? SBIT_I8 : SBIT_U8;
    }
}

static const sbit__specific *sbit__qconfig_match(sbit__qconfig_side *side, const sbit_graph *graph,
                                                 sbit_node_id node)
{
    for (size_t i = 0; i < side->specific_count; i++) {
        if (sbit_layer_matches(graph, node, side->specific[i].pattern)) {
            side->specific[i].matched = true;
            return &side->specific[i]; /* the first one wins */
        }
    }
    return NULL;
}

SBIT__FN sbit_status sbit__qconfig_resolve(sbit_qconfig *config, uint32_t target,
                                           const sbit_graph *graph, sbit_node_id node,
                                           sbit__arena *arena, sbit__settings *out,
                                           sbit_error *error)
{
    const bool weight = target == SBIT_TARGET_WEIGHT;
    sbit__qconfig_side *side = weight ? &config->weight : &config->feature;
    const sbit__specific *specific = sbit__qconfig_match(side, graph, node);
    const sbit_profile_row *profile = sbit_qconfig_profile(config);
    sbit__settings s;
    memset(&s, 0, sizeof s);
    SBIT__TRY(sbit__options_copy(arena, &side->options, &s.options, error));
    if (specific != NULL) {
        SBIT__TRY(sbit__qconfig_apply(arena, specific, weight ? "W" : "A", &s.options, error));
    }
    s.symmetric = sbit__qconfig_has(&s.options, "symmetric");
    s.per_channel = sbit__qconfig_has(&s.options, "per-channel");
    s.bits = (int32_t)sbit_options_int(&s.options, "QUANTIZER.BIT");
    s.disabled = sbit_options_bool(&s.options, "QUANTIZER.DISABLE") || s.bits == 0;
    s.bits = s.bits == 0 ? 8 : s.bits; /* Sparsebit's old way to disable */
    s.power_of_two = sbit_options_bool(&s.options, "QUANTIZER.POWER_OF_TWO");
    s.feature_axis = sbit__streq(sbit_options_string(&s.options, "OBSERVER.LAYOUT"), "NLC") ? 2 : 1;
    s.observer =
        sbit_lookup_observer(config->ctx, sbit_options_string(&s.options, "OBSERVER.TYPE"));
    s.quantizer =
        sbit_lookup_quantizer(config->ctx, sbit_options_string(&s.options, "QUANTIZER.TYPE"));
    if (s.observer == NULL || s.quantizer == NULL) {
        const bool observer = s.observer == NULL;
        const char *key = observer ? "OBSERVER.TYPE" : "QUANTIZER.TYPE";
        const char *known = sbit__qconfig_choices(
            config->ctx, arena, observer ? SBIT__REG_OBSERVER : SBIT__REG_QUANTIZER, target);
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, key,
                          "%s.%s: '%s' is not one of those that this version has: %s",
                          weight ? "W" : "A", key, sbit_options_string(&s.options, key),
                          known != NULL ? known : "");
    }
    sbit__settings_range(&s, profile->signed_affine && !weight,
                         sbit_options_bool(&s.options, "QUANTIZER.NARROW_RANGE"));
    *out = s;
    return SBIT_OK;
}

/* >>qconfig printing */
typedef struct sbit__qconfig_printer {
    void (*put)(const char *text, size_t size, void *user);
    void *user;
    bool only_set;
} sbit__qconfig_printer;

static void sbit__qconfig_put(const sbit__qconfig_printer *p, const char *text)
{
    p->put(text, strlen(text), p->user);
}

static void sbit__qconfig_put_quoted(const sbit__qconfig_printer *p, const char *text)
{
    sbit__qconfig_put(p, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            p->put("\\", 1, p->user);
        }
        p->put(text, 1, p->user);
    }
    sbit__qconfig_put(p, "\"");
}

/* A YAML value in flow style. */
static void sbit__qconfig_put_yaml(const sbit__qconfig_printer *p, const sbit_yaml *y)
{
    if (y->kind == SBIT_YAML_SCALAR) {
        if (y->quoted) {
            sbit__qconfig_put_quoted(p, y->text);
        } else {
            sbit__qconfig_put(p, y->text);
        }
        return;
    }
    const bool map = y->kind == SBIT_YAML_MAP;
    sbit__qconfig_put(p, map ? "{" : "[");
    for (size_t i = 0; i < y->count; i++) {
        sbit__qconfig_put(p, i > 0 ? ", " : "");
        if (map) {
            sbit__qconfig_put_quoted(p, y->items[i].key);
            sbit__qconfig_put(p, ": ");
        }
        sbit__qconfig_put_yaml(p, &y->items[i]);
    }
    sbit__qconfig_put(p, map ? "}" : "]");
}

static void sbit__qconfig_put_value(const sbit__qconfig_printer *p, const sbit_option *option)
{
    char number[40];
    switch (option->key->type) {
    case SBIT_KEY_BOOL:
        sbit__qconfig_put(p, option->b ? "true" : "false");
        break;
    case SBIT_KEY_INT:
        snprintf(number, sizeof number, "%lld", (long long)option->i);
        sbit__qconfig_put(p, number);
        break;
    case SBIT_KEY_FLOAT:
        sbit__format_f64(option->f, false, number);
        sbit__qconfig_put(p, number);
        break;
    case SBIT_KEY_STRINGS:
        sbit__qconfig_put(p, "[");
        for (size_t i = 0; i < option->list_count; i++) {
            sbit__qconfig_put(p, i > 0 ? ", " : "");
            sbit__qconfig_put_quoted(p, option->list[i]);
        }
        sbit__qconfig_put(p, "]");
        break;
    case SBIT_KEY_STRING:
        sbit__qconfig_put_quoted(p, option->s);
        break;
    case SBIT_KEY_YAML:
        if (option->yaml != NULL) {
            sbit__qconfig_put_yaml(p, option->yaml);
        } else {
            sbit__qconfig_put(p, "[]");
        }
        break;
    default:
        sbit__qconfig_put(p, option->s != NULL ? option->s : "");
        break;
    }
}

static bool sbit__qconfig_shown(const sbit__qconfig_printer *p, const sbit_option *option)
{
    return option->is_set || (!p->only_set && option->key->otherwise != NULL);
}

/* Prints the keys whose path begins with the first `size` characters of `prefix`, grouped. */
static void sbit__qconfig_put_group(const sbit__qconfig_printer *p, const sbit_options *options,
                                    const char *prefix, size_t size, int indent)
{
    for (size_t i = 0; i < options->count; i++) {
        const sbit_option *option = &options->items[i];
        const char *path = option->key->path;
        if (strncmp(path, prefix, size) != 0 || !sbit__qconfig_shown(p, option)) {
            continue;
        }
        const char *dot = strchr(path + size, '.');
        const size_t part = dot != NULL ? (size_t)(dot - path) + 1 : strlen(path);
        bool printed = false; /* the group, with its first member */
        for (size_t j = 0; dot != NULL && j < i && !printed; j++) {
            printed = strncmp(options->items[j].key->path, path, part) == 0 &&
                      sbit__qconfig_shown(p, &options->items[j]);
        }
        if (printed) {
            continue;
        }
        for (int k = 0; k < indent; k++) {
            sbit__qconfig_put(p, "  ");
        }
        p->put(path + size, part - size - (dot != NULL ? 1u : 0u), p->user);
        if (dot != NULL) {
            sbit__qconfig_put(p, ":\n");
            sbit__qconfig_put_group(p, options, path, part, indent + 1);
        } else {
            sbit__qconfig_put(p, ": ");
            sbit__qconfig_put_value(p, option);
            sbit__qconfig_put(p, "\n");
        }
    }
}

SPARSEBIT_API void sbit_qconfig_print(const sbit_qconfig *config, bool only_set,
                                      void (*put)(const char *text, size_t size, void *user),
                                      void *user)
{
    sbit__qconfig_printer p;
    p.put = put;
    p.user = user;
    p.only_set = only_set;
    sbit__qconfig_put_group(&p, &config->top, "", 0, 0);
    sbit__qconfig_put(&p, "W:\n");
    sbit__qconfig_put_group(&p, &config->weight.options, "", 0, 1);
    sbit__qconfig_put(&p, "A:\n");
    sbit__qconfig_put_group(&p, &config->feature.options, "", 0, 1);
}

static void sbit__qconfig_to_text(const char *text, size_t size, void *user)
{
    sbit__text_append((sbit__text *)user, text, size);
}

SBIT__FN sbit_status sbit__qconfig_clone(const sbit_qconfig *config, sbit_qconfig **out,
                                         sbit_error *error)
{
    sbit__text text;
    sbit__text_init(&text, sbit_ctx_allocator(config->ctx));
    sbit_qconfig_print(config, true, sbit__qconfig_to_text, &text);
    const sbit_status status =
        text.failed ? sbit__fail_oom(error, text.size)
                    : sbit_qconfig_read(config->ctx, text.data, text.size, out, error);
    sbit__text_deinit(&text);
    return status;
}
