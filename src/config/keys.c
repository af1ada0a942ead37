/* keys.c: reading YAML maps against key tables. >>keys
 *
 * The one place that checks names, types, ranges and choices of configuration values. What it
 * reads against are the const tables of sbit_key that strategies and trees bring.
 */
#include "config_private.h"

/* Case-insensitive equality of the first `size` characters of b with all of a. */
static bool sbit__keys_same(const char *a, const char *b, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (a[i] == '\0' || sbit__lower(a[i]) != sbit__lower(b[i])) {
            return false;
        }
    }
    return a[size] == '\0';
}

/* Choices also take '-' for '_' and the other way round. */
static bool sbit__keys_same_choice(const char *text, const char *choice, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const char a = text[i] == '_' ? '-' : sbit__lower(text[i]);
        const char b = choice[i] == '_' ? '-' : sbit__lower(choice[i]);
        if (text[i] == '\0' || a != b) {
            return false;
        }
    }
    return text[size] == '\0';
}

SBIT__FN bool sbit__same_word(const char *a, const char *b)
{
    return a != NULL && b != NULL && sbit__keys_same_choice(a, b, strlen(b));
}

static sbit_status sbit__keys_fail(sbit_error *error, const sbit_yaml *at, bool at_key,
                                   const char *path, const char *what)
{
    char where[32];
    where[0] = '\0';
    if (at != NULL && at->line > 0) {
        sbit__yaml_position(at_key ? at->key_line : at->line, at_key ? at->key_column : at->column,
                            where, sizeof where);
    }
    return sbit__fail(error, SBIT_ERR_CONFIG, where, "%s%s%s: %s", where, where[0] ? ": " : "",
                      path, what);
}

SBIT__FN sbit_status sbit__option_fail(const sbit_option *option, const char *section,
                                       const char *what, sbit_error *error)
{
    char path[192];
    sbit_yaml at;
    memset(&at, 0, sizeof at);
    at.line = option->line;
    at.column = option->column;
    snprintf(path, sizeof path, "%s%s%s", section, section[0] != '\0' ? "." : "",
             option->key->path);
    return sbit__keys_fail(error, &at, false, path, what);
}

/* >>keys values */
static sbit_status sbit__keys_bool(sbit_option *option, const sbit_yaml *value, const char *path,
                                   sbit_error *error)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on"};
    for (size_t i = 0; i < SBIT__COUNT_OF(words); i++) {
        if (!value->quoted && sbit__keys_same(words[i], value->text, strlen(value->text))) {
            option->b = (i & 1) != 0;
            return SBIT_OK;
        }
    }
    return sbit__keys_fail(error, value, false, path, "true or false is expected");
}

static sbit_status sbit__keys_number(sbit_option *option, const sbit_yaml *value, const char *path,
                                     sbit_error *error)
{
    const sbit_key *key = option->key;
    const bool is_int = key->type == SBIT_KEY_INT;
    char what[96];
    bool ok = !value->quoted;
    if (is_int) {
        ok = ok && sbit__parse_i64(value->text, &option->i);
        option->f = (double)option->i;
    } else {
        ok = ok && sbit__parse_f64(value->text, &option->f);
        ok = ok && option->f - option->f == 0.0; /* finite */
    }
    if (!ok) {
        return sbit__keys_fail(error, value, false, path,
                               is_int ? "an integer is expected" : "a number is expected");
    }
    if ((key->min != 0.0 || key->max != 0.0) && !(option->f >= key->min && option->f <= key->max)) {
        snprintf(what, sizeof what, "must be in %g to %g", key->min, key->max);
        return sbit__keys_fail(error, value, false, path, what);
    }
    if (!is_int) {
        option->i = option->f > -9e18 && option->f < 9e18 ? (int64_t)option->f : 0;
    }
    return SBIT_OK;
}

static sbit_status sbit__keys_choice(sbit__arena *arena, sbit_option *option,
                                     const sbit_yaml *value, const char *path, sbit_error *error)
{
    char what[256];
    const char *choice = option->key->choices;
    while (*choice != '\0') {
        const char *end = strchr(choice, '|');
        const size_t size = end != NULL ? (size_t)(end - choice) : strlen(choice);
        if (sbit__keys_same_choice(value->text, choice, size)) {
            option->s = sbit__arena_strdup(arena, choice, size);
            return option->s != NULL ? SBIT_OK : sbit__fail_oom(error, size + 1);
        }
        choice += size + (end != NULL ? 1u : 0u);
    }
    snprintf(what, sizeof what, "'%.40s' is not one of %s", value->text, option->key->choices);
    return sbit__keys_fail(error, value, false, path, what);
}

static sbit_status sbit__keys_strings(sbit__arena *arena, sbit_option *option,
                                      const sbit_yaml *value, const char *path, sbit_error *error)
{
    if (value->kind != SBIT_YAML_LIST && value->kind != SBIT_YAML_NULL) {
        return sbit__keys_fail(error, value, false, path, "a list of names is expected");
    }
    const char **list = (const char **)sbit__arena_array(arena, value->count + 1, sizeof *list);
    if (list == NULL) {
        return sbit__fail_oom(error, value->count * sizeof *list);
    }
    for (size_t i = 0; i < value->count; i++) {
        const sbit_yaml *item = &value->items[i];
        if (item->kind != SBIT_YAML_SCALAR) {
            return sbit__keys_fail(error, item, false, path, "a name is expected");
        }
        list[i] = sbit__arena_strdup(arena, item->text, strlen(item->text));
        if (list[i] == NULL) {
            return sbit__fail_oom(error, strlen(item->text) + 1);
        }
    }
    option->list = list;
    option->list_count = value->count;
    return SBIT_OK;
}

static sbit_status sbit__keys_value(sbit__arena *arena, sbit_option *option, const sbit_yaml *value,
                                    const char *path, sbit_error *error)
{
    if (option->key->type == SBIT_KEY_YAML) {
        option->yaml = value;
        return SBIT_OK;
    }
    if (option->key->type == SBIT_KEY_STRINGS) {
        return sbit__keys_strings(arena, option, value, path, error);
    }
    if (value->kind != SBIT_YAML_SCALAR) {
        return sbit__keys_fail(error, value, false, path, "a single value is expected");
    }
    switch (option->key->type) {
    case SBIT_KEY_BOOL:
        return sbit__keys_bool(option, value, path, error);
    case SBIT_KEY_INT:
    case SBIT_KEY_FLOAT:
        return sbit__keys_number(option, value, path, error);
    case SBIT_KEY_CHOICE:
        return sbit__keys_choice(arena, option, value, path, error);
    default:
        break;
    }
    option->s = sbit__arena_strdup(arena, value->text, strlen(value->text));
    return option->s != NULL ? SBIT_OK : sbit__fail_oom(error, strlen(value->text) + 1);
}

/* >>keys options */
static sbit_option *sbit__options_at(const sbit_options *options, const char *path)
{
    for (size_t i = 0; i < options->count; i++) {
        if (sbit__keys_same(options->items[i].key->path, path, strlen(path))) {
            return &options->items[i];
        }
    }
    return NULL;
}

/* True if `path` names a group of keys: some key is path + "." + more. */
static bool sbit__options_is_group(const sbit_options *options, const char *path)
{
    const size_t size = strlen(path);
    for (size_t i = 0; i < options->count; i++) {
        const char *key = options->items[i].key->path;
        if (strlen(key) > size && key[size] == '.') {
            size_t same = 0;
            while (same < size && sbit__lower(key[same]) == sbit__lower(path[same])) {
                same++;
            }
            if (same == size) {
                return true;
            }
        }
    }
    return false;
}

SBIT__FN bool sbit__options_know(const sbit_options *options, const char *path)
{
    return sbit__options_at(options, path) != NULL || sbit__options_is_group(options, path);
}

static const char *sbit__options_nearest(const sbit_options *options, const char *path)
{
    const char *best = NULL;
    size_t best_distance = strlen(path) / 2 + 2;
    for (size_t i = 0; i < options->count; i++) {
        const size_t distance = sbit__edit_distance(options->items[i].key->path, path);
        if (distance < best_distance) {
            best_distance = distance;
            best = options->items[i].key->path;
        }
    }
    return best;
}

static sbit_status sbit__options_unknown(const sbit_options *options, const char *path,
                                         const char *place, const sbit_yaml *at, bool at_key,
                                         sbit_error *error)
{
    char full[192], what[192];
    const char *nearest = sbit__options_nearest(options, path);
    const char *dot = place[0] != '\0' ? "." : "";
    snprintf(full, sizeof full, "%s%s%.120s", place, dot, path);
    if (nearest != NULL) {
        snprintf(what, sizeof what, "unknown key; did you mean %s%s%.100s?", place, dot, nearest);
    } else {
        snprintf(what, sizeof what, "unknown key");
    }
    return sbit__keys_fail(error, at, at_key, full, what);
}

SBIT__FN sbit_status sbit__options_set(sbit__arena *arena, sbit_options *options, const char *path,
                                       const sbit_yaml *value, const char *place, sbit_error *error)
{
    char full[192];
    sbit_option *option = sbit__options_at(options, path);
    if (option == NULL) {
        return sbit__options_unknown(options, path, place, value, false, error);
    }
    sbit_option changed = *option;
    changed.is_set = true;
    changed.line = value->line;
    changed.column = value->column;
    snprintf(full, sizeof full, "%s%s%s", place, place[0] != '\0' ? "." : "", option->key->path);
    SBIT__TRY(sbit__keys_value(arena, &changed, value, full, error));
    *option = changed;
    return SBIT_OK;
}

/* Reads the entries of `map`, whose own path below `place` is `prefix` ("" or "QUANTIZER."). */
static sbit_status sbit__options_read_map(sbit__arena *arena, sbit_options *options,
                                          const sbit_yaml *map, const char *prefix,
                                          const char *place, sbit_error *error)
{
    char path[160], group[164];
    for (size_t i = 0; i < map->count; i++) {
        const sbit_yaml *entry = &map->items[i];
        snprintf(path, sizeof path, "%s%.100s", prefix, entry->key);
        if (sbit__options_at(options, path) != NULL) {
            SBIT__TRY(sbit__options_set(arena, options, path, entry, place, error));
        } else if (!sbit__options_is_group(options, path)) {
            return sbit__options_unknown(options, path, place, entry, true, error);
        } else if (entry->kind == SBIT_YAML_MAP) {
            snprintf(group, sizeof group, "%s.", path);
            SBIT__TRY(sbit__options_read_map(arena, options, entry, group, place, error));
        } else if (entry->kind != SBIT_YAML_NULL) {
            return sbit__keys_fail(error, entry, true, path, "keys are expected below this key");
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__options_read(sbit__arena *arena, sbit_options *options,
                                        const sbit_yaml *map, const char *place, sbit_error *error)
{
    if (map->kind == SBIT_YAML_NULL) {
        return SBIT_OK;
    }
    if (map->kind != SBIT_YAML_MAP) {
        return sbit__keys_fail(error, map, false, place[0] != '\0' ? place : "configuration",
                               "a map of keys is expected");
    }
    return sbit__options_read_map(arena, options, map, "", place, error);
}

/* The default of a key, parsed as if it had been written. */
static sbit_status sbit__options_default(sbit__arena *arena, sbit_option *option, sbit_error *error)
{
    sbit_yaml value;
    memset(&value, 0, sizeof value);
    option->s = "";
    if (option->key->otherwise == NULL || option->key->type == SBIT_KEY_YAML) {
        return SBIT_OK;
    }
    const bool empty_list = option->key->type == SBIT_KEY_STRINGS;
    value.kind = empty_list ? SBIT_YAML_LIST : SBIT_YAML_SCALAR;
    value.text = option->key->otherwise;
    return sbit__keys_value(arena, option, &value, option->key->path, error);
}

SBIT__FN sbit_status sbit__options_init(sbit__arena *arena, const sbit__key_table *tables,
                                        size_t table_count, sbit_options *out, sbit_error *error)
{
    size_t count = 0;
    for (size_t t = 0; t < table_count; t++) {
        count += tables[t].count;
    }
    sbit_options options;
    options.count = 0;
    options.items = (sbit_option *)sbit__arena_array(arena, count + 1, sizeof *options.items);
    sbit_key *keys = (sbit_key *)sbit__arena_array(arena, count + 1, sizeof *keys);
    if (options.items == NULL || keys == NULL) {
        return sbit__fail_oom(error, count * (sizeof *options.items + sizeof *keys));
    }
    for (size_t t = 0; t < table_count; t++) {
        for (size_t k = 0; k < tables[t].count; k++) {
            sbit_key *key = &keys[options.count];
            *key = tables[t].keys[k];
            key->path = sbit__arena_printf(arena, "%s%s", tables[t].prefix, key->path);
            if (key->path == NULL) {
                return sbit__fail_oom(error, 0);
            }
            if (sbit__options_at(&options, key->path) != NULL) {
                continue; /* two strategies may share a key */
            }
            sbit_option *option = &options.items[options.count++];
            option->key = key;
            SBIT__TRY(sbit__options_default(arena, option, error));
        }
    }
    *out = options;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__options_complete(const sbit_options *options, const char *place,
                                            sbit_error *error)
{
    char full[192];
    for (size_t i = 0; i < options->count; i++) {
        const sbit_option *option = &options->items[i];
        if (option->key->otherwise == NULL && !option->is_set) {
            snprintf(full, sizeof full, "%s%s%s", place, place[0] != '\0' ? "." : "",
                     option->key->path);
            return sbit__keys_fail(error, NULL, false, full, "must be set");
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__options_copy(sbit__arena *arena, const sbit_options *from,
                                        sbit_options *to, sbit_error *error)
{
    sbit_option *items = (sbit_option *)sbit__arena_array(arena, from->count + 1, sizeof *items);
    if (items == NULL) {
        return sbit__fail_oom(error, from->count * sizeof *items);
    }
    if (from->count > 0) {
        memcpy(items, from->items, from->count * sizeof *items);
    }
    to->count = from->count;
    to->items = items;
    return SBIT_OK;
}

/* >>keys public */
SPARSEBIT_API const sbit_option *sbit_options_find(const sbit_options *options, const char *path)
{
    return sbit__options_at(options, path);
}

SPARSEBIT_API bool sbit_options_bool(const sbit_options *options, const char *path)
{
    const sbit_option *option = sbit_options_find(options, path);
    return option != NULL && option->b;
}

SPARSEBIT_API int64_t sbit_options_int(const sbit_options *options, const char *path)
{
    const sbit_option *option = sbit_options_find(options, path);
    return option != NULL ? option->i : 0;
}

SPARSEBIT_API double sbit_options_float(const sbit_options *options, const char *path)
{
    const sbit_option *option = sbit_options_find(options, path);
    return option != NULL ? option->f : 0.0;
}

SPARSEBIT_API const char *sbit_options_string(const sbit_options *options, const char *path)
{
    const sbit_option *option = sbit_options_find(options, path);
    return option != NULL && option->s != NULL ? option->s : "";
}
