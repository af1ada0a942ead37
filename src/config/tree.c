/* tree.c: reading, changing and resolving configuration trees. >>config-tree
 *
 * Which keys a tree has is its owner's affair (quant/qconfig.c, sparse/sconfig.c).
 */
#include "config_private.h"

/* Parses text and keeps the document as long as the tree lives. */
static sbit_status sbit__tree_parse(sbit__tree *tree, const char *text, size_t size,
                                    const sbit_yaml **root, sbit_error *error)
{
    sbit_yaml_doc *doc = NULL;
    void *docs = tree->docs;
    SBIT__TRY(sbit__grow(sbit_ctx_allocator(tree->ctx), &docs, &tree->doc_capacity,
                         tree->doc_count + 1, sizeof *tree->docs, error));
    tree->docs = (sbit_yaml_doc **)docs;
    SBIT__TRY(sbit_yaml_parse(tree->ctx, text, size, &doc, error));
    tree->docs[tree->doc_count++] = doc;
    *root = sbit_yaml_root(doc);
    return SBIT_OK;
}

/* >>config-specific */
static sbit_status sbit__specific_fail(const sbit_yaml *at, const char *section, const char *what,
                                       sbit_error *error)
{
    char where[32];
    sbit__yaml_position(at->line, at->column, where, sizeof where);
    return sbit__fail(error, SBIT_ERR_CONFIG, where, "%s: %s.SPECIFIC: %s", where, section, what);
}

/* SPECIFIC: a list of maps glob -> [KEY, value, ...]; a single map is taken too. */
static sbit_status sbit__specific_read(sbit__tree *tree, sbit__section *section, sbit_error *error)
{
    const sbit_yaml *root = sbit_options_find(&section->options, "SPECIFIC")->yaml;
    section->specific_count = 0;
    if (root == NULL || root->kind == SBIT_YAML_NULL) {
        return SBIT_OK;
    }
    if (root->kind == SBIT_YAML_SCALAR) {
        return sbit__specific_fail(root, section->name, "[{\"glob\": [KEY, value]}] is expected",
                                   error);
    }
    const sbit_yaml *maps = root->kind == SBIT_YAML_MAP ? root : root->items;
    const size_t map_count = root->kind == SBIT_YAML_MAP ? 1 : root->count;
    size_t total = 0;
    for (size_t m = 0; m < map_count; m++) {
        if (maps[m].kind != SBIT_YAML_MAP) {
            return sbit__specific_fail(&maps[m], section->name,
                                       "[{\"glob\": [KEY, value]}] is expected", error);
        }
        total += maps[m].count;
    }
    section->specific =
        (sbit__specific *)sbit__arena_array(&tree->arena, total + 1, sizeof *section->specific);
    if (section->specific == NULL) {
        return sbit__fail_oom(error, total * sizeof *section->specific);
    }
    for (size_t m = 0; m < map_count; m++) {
        for (size_t i = 0; i < maps[m].count; i++) {
            const sbit_yaml *entry = &maps[m].items[i];
            sbit__specific *specific = &section->specific[section->specific_count++];
            specific->pattern = entry->key;
            specific->list = entry;
            if (entry->kind != SBIT_YAML_LIST || entry->count % 2 != 0) {
                return sbit__specific_fail(entry, section->name,
                                           "a list [KEY, value, ...] is expected", error);
            }
        }
    }
    return SBIT_OK;
}

/* Applies a flat list [KEY, value, ...] to a copy of the section's options. */
static sbit_status sbit__specific_apply(sbit__arena *arena, const sbit__section *section,
                                        const sbit__specific *specific, sbit_options *out,
                                        sbit_error *error)
{
    SBIT__TRY(sbit__options_copy(arena, &section->options, out, error));
    for (size_t i = 0; specific != NULL && i + 1 < specific->list->count; i += 2) {
        const sbit_yaml *key = &specific->list->items[i];
        if (key->kind != SBIT_YAML_SCALAR) {
            return sbit__specific_fail(key, section->name, "a key is expected", error);
        }
        if (sbit__same_word(key->text, "SPECIFIC")) {
            return sbit__specific_fail(key, section->name, "SPECIFIC cannot be nested", error);
        }
        /* an unknown key is reported where it stands, a wrong value where that stands */
        const bool known = sbit_options_find(out, key->text) != NULL;
        SBIT__TRY(
            sbit__options_set(arena, out, key->text, known ? key + 1 : key, section->name, error));
    }
    return SBIT_OK;
}

/* Whatever can be wrong in a section by itself, also in the overrides: found at load. */
static sbit_status sbit__section_check(sbit__tree *tree, sbit__section *section, sbit_error *error)
{
    SBIT__TRY(sbit__options_complete(&section->options, section->name, error));
    SBIT__TRY(sbit__specific_read(tree, section, error));
    for (size_t i = 0; i <= section->specific_count; i++) {
        const sbit__specific *specific = i > 0 ? &section->specific[i - 1] : NULL;
        sbit_options trial;
        SBIT__TRY(sbit__specific_apply(&tree->arena, section, specific, &trial, error));
        if (section->check_fn != NULL) {
            SBIT__TRY(section->check_fn(&trial, section->name, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__section_resolve(sbit__section *section, const sbit_graph *graph,
                                           sbit_node_id node, sbit__arena *arena, sbit_options *out,
                                           sbit_error *error)
{
    sbit__specific *specific = NULL;
    for (size_t i = 0; i < section->specific_count && specific == NULL; i++) {
        if (sbit_layer_matches(graph, node, section->specific[i].pattern)) {
            specific = &section->specific[i]; /* the first one wins */
            specific->matched = true;
        }
    }
    return sbit__specific_apply(arena, section, specific, out, error);
}

SBIT__FN const char *sbit__section_pattern(const sbit__section *section, const sbit_graph *graph,
                                           sbit_node_id node)
{
    for (size_t i = 0; i < section->specific_count; i++) {
        if (sbit_layer_matches(graph, node, section->specific[i].pattern)) {
            return section->specific[i].pattern;
        }
    }
    return "";
}

SBIT__FN void sbit__section_warn_unmatched(const sbit__section *section, const sbit_graph *graph,
                                           const char *layers)
{
    char nearest[256], term[SBIT__LAYER_NAME_BYTES];
    for (size_t i = 0; i < section->specific_count; i++) {
        if (!section->specific[i].matched) {
            sbit_layer_suggest(graph, section->specific[i].pattern, nearest, sizeof nearest);
            sbit__log(sbit_graph_ctx(graph), SBIT_LOG_WARNING,
                      "%s.SPECIFIC: '%s' matches no %s; the nearest are: %s", section->name,
                      section->specific[i].pattern, layers, nearest);
        } else if (sbit__layer_idle_exclusion(graph, section->specific[i].pattern, term)) {
            sbit_layer_suggest(graph, term + 1, nearest, sizeof nearest);
            sbit__log(sbit_graph_ctx(graph), SBIT_LOG_WARNING,
                      "%s.SPECIFIC: '%s' in '%s' leaves out no %s; the nearest are: %s", section->name, term,
                      section->specific[i].pattern, layers, nearest);
        }
    }
}

/* >>config-tree reading */
static sbit__section *sbit__tree_section(sbit__tree *tree, const char *name)
{
    for (size_t i = 0; i < tree->section_count; i++) {
        if (sbit__same_word(tree->sections[i].name, name)) {
            return &tree->sections[i];
        }
    }
    return NULL;
}

/* A key that was meant to be a section's; what else is unknown is left to the top table. */
static sbit_status sbit__tree_check_key(const sbit__tree *tree, const sbit_yaml *entry,
                                        sbit_error *error)
{
    const size_t limit = strlen(entry->key) / 2 + 1;
    char where[32];
    for (size_t i = 0; i < tree->section_count; i++) {
        const char *name = tree->sections[i].name;
        if (sbit__edit_distance(name, entry->key) < limit &&
            !sbit__options_know(&tree->top, entry->key)) {
            sbit__yaml_position(entry->key_line, entry->key_column, where, sizeof where);
            return sbit__fail(error, SBIT_ERR_CONFIG, where,
                              "%s: %.100s: unknown key; did you mean %s?", where, entry->key, name);
        }
    }
    return SBIT_OK;
}

/* Reads the root map: sections are tables of their own, the rest is the top table's. */
static bool sbit__tree_is_beside(const sbit__tree_kind *kind, const char *key)
{
    for (const char *at = kind->beside; at != NULL && *at != '\0';) {
        const size_t size = strcspn(at, "|");
        if (size == strlen(key) && strncmp(at, key, size) == 0) {
            return true;
        }
        at += size + (at[size] == '|' ? 1 : 0);
    }
    return false;
}

/* Two trees share the file. */
static bool sbit__tree_shares(sbit__tree *tree, const sbit__tree_kind *kind, const sbit_yaml *root)
{
    bool own = false, beside = false;
    for (size_t i = 0; root->kind == SBIT_YAML_MAP && i < root->count; i++) {
        own = own || sbit__tree_section(tree, root->items[i].key) != NULL;
        beside = beside || sbit__tree_is_beside(kind, root->items[i].key);
    }
    return own && beside;
}

static sbit_status sbit__tree_read_root(sbit__tree *tree, const sbit__tree_kind *kind,
                                        const sbit_yaml *root, sbit_error *error)
{
    const bool shares = sbit__tree_shares(tree, kind, root);
    sbit_yaml rest = *root;
    sbit_yaml *items = (sbit_yaml *)sbit__arena_array(&tree->arena, root->count + 1, sizeof *items);
    if (items == NULL) {
        return sbit__fail_oom(error, root->count * sizeof *items);
    }
    rest.count = 0;
    rest.items = items;
    for (size_t i = 0; root->kind == SBIT_YAML_MAP && i < root->count; i++) {
        const sbit_yaml *entry = &root->items[i];
        sbit__section *section = sbit__tree_section(tree, entry->key);
        if (section != NULL) {
            SBIT__TRY(
                sbit__options_read(&tree->arena, &section->options, entry, section->name, error));
        } else if (!shares || !(sbit__tree_is_beside(kind, entry->key) ||
                                (kind->rest && !sbit__options_know(&tree->top, entry->key)))) {
            SBIT__TRY(sbit__tree_check_key(tree, entry, error));
            items[rest.count++] = *entry;
        }
    }
    return sbit__options_read(&tree->arena, &tree->top, &rest, "", error);
}

/* The root; of the translation, where the text is another tool's. */
static sbit_status sbit__tree_root(sbit__tree *tree, const sbit__tree_kind *kind, const char *text,
                                   size_t size, const sbit_yaml **root, sbit_error *error)
{
    sbit__text ours;
    SBIT__TRY(sbit__tree_parse(tree, text, size, root, error));
    if (kind->translate_fn == NULL) {
        return SBIT_OK;
    }
    sbit__text_init(&ours, sbit_ctx_allocator(tree->ctx));
    sbit_status status = kind->translate_fn(tree->ctx, *root, &ours, error);
    if (status == SBIT_OK && ours.size > 0) {
        status = sbit__tree_parse(tree, ours.data, ours.size, root, error);
    }
    sbit__text_deinit(&ours);
    return status;
}

static sbit_status sbit__tree_read(sbit__tree *tree, const sbit__tree_kind *kind, const char *text,
                                   size_t size, sbit_error *error)
{
    const sbit_yaml *root = NULL;
    SBIT__TRY(sbit__tree_root(tree, kind, text, size, &root, error));
    SBIT__TRY(sbit__tree_read_root(tree, kind, root, error));
    for (size_t i = 0; i < tree->section_count; i++) {
        SBIT__TRY(sbit__section_check(tree, &tree->sections[i], error));
    }
    const sbit_option *device = sbit_options_find(&tree->top, "DEVICE");
    if (device != NULL && device->is_set && !sbit__same_word(device->s, "cpu")) {
        sbit__log(tree->ctx, SBIT_LOG_INFO,
                  "DEVICE: %s is accepted, but this build runs on the CPU", device->s);
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tree_make(sbit_ctx *ctx, const sbit__tree_kind *kind, const char *text,
                                     size_t size, sbit__tree **out, sbit_error *error)
{
    if (ctx == NULL || out == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx or out is NULL");
    }
    sbit__tree *tree = (sbit__tree *)sbit__calloc(sbit_ctx_allocator(ctx), 1, sizeof *tree);
    if (tree == NULL) {
        return sbit__fail_oom(error, sizeof *tree);
    }
    tree->ctx = ctx;
    sbit__arena_init(&tree->arena, sbit_ctx_allocator(ctx));
    sbit_status status = kind->init(tree, error);
    if (status == SBIT_OK) {
        status = sbit__tree_read(tree, kind, text, size, error);
    }
    if (status == SBIT_OK) {
        status = kind->verify_fn(tree, error);
    }
    if (status != SBIT_OK) {
        sbit__tree_destroy(tree);
        return status;
    }
    *out = tree;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__tree_load(sbit_ctx *ctx, const sbit__tree_kind *kind, const char *path,
                                     sbit__tree **out, sbit_error *error)
{
    sbit__file file;
    if (ctx == NULL || path == NULL) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "ctx or path is NULL");
    }
    SBIT__TRY(sbit__file_open(sbit_ctx_allocator(ctx), path, &file, error));
    const sbit_status status =
        sbit__tree_make(ctx, kind, (const char *)file.data, file.size, out, error);
    sbit__file_close(&file);
    return status;
}

SBIT__FN void sbit__tree_destroy(sbit__tree *tree)
{
    if (tree == NULL) {
        return;
    }
    if (tree->holders > 0) {
        tree->holders--;
        return;
    }
    const sbit_allocator *a = sbit_ctx_allocator(tree->ctx);
    for (size_t i = 0; i < tree->doc_count; i++) {
        sbit_yaml_destroy(tree->docs[i]);
    }
    sbit__free(a, tree->docs, tree->doc_capacity * sizeof *tree->docs);
    sbit__arena_deinit(&tree->arena);
    sbit__free(a, tree, sizeof *tree);
}

SBIT__FN sbit_status sbit__tree_set(sbit__tree *tree, const char *path, const char *value,
                                    sbit_error *error)
{
    const sbit_yaml *parsed = NULL;
    const char *dot = strchr(path, '.');
    char name[32] = "";
    if (dot != NULL && (size_t)(dot - path) < sizeof name) {
        memcpy(name, path, (size_t)(dot - path));
        name[dot - path] = '\0';
    }
    sbit__section *section = sbit__tree_section(tree, name);
    SBIT__TRY(sbit__tree_parse(tree, value, strlen(value), &parsed, error));
    if (section == NULL) {
        return sbit__options_set(&tree->arena, &tree->top, path, parsed, "", error);
    }
    sbit_options before;
    SBIT__TRY(sbit__options_copy(&tree->arena, &section->options, &before, error));
    sbit_status status =
        sbit__options_set(&tree->arena, &section->options, dot + 1, parsed, section->name, error);
    if (status == SBIT_OK) {
        status = sbit__section_check(tree, section, error);
    }
    if (status != SBIT_OK) { /* as it was */
        section->options = before;
        SBIT__TRY(sbit__specific_read(tree, section, NULL));
    }
    return status;
}
