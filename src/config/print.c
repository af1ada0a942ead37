/* print.c: configuration trees as YAML that reads back equal. >>config-print
 */
#include "config_private.h"

typedef struct sbit__tree_printer {
    void (*put)(const char *text, size_t size, void *user);
    void *user;
    bool only_set;
} sbit__tree_printer;

static void sbit__tree_put(const sbit__tree_printer *p, const char *text)
{
    p->put(text, strlen(text), p->user);
}

static void sbit__tree_put_quoted(const sbit__tree_printer *p, const char *text)
{
    sbit__tree_put(p, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            p->put("\\", 1, p->user);
        }
        p->put(text, 1, p->user);
    }
    sbit__tree_put(p, "\"");
}

/* A YAML value in flow style. */
static void sbit__tree_put_yaml(const sbit__tree_printer *p, const sbit_yaml *y)
{
    if (y->kind == SBIT_YAML_SCALAR) {
        if (y->quoted) {
            sbit__tree_put_quoted(p, y->text);
        } else {
            sbit__tree_put(p, y->text);
        }
        return;
    }
    const bool map = y->kind == SBIT_YAML_MAP;
    sbit__tree_put(p, map ? "{" : "[");
    for (size_t i = 0; i < y->count; i++) {
        sbit__tree_put(p, i > 0 ? ", " : "");
        if (map) {
            sbit__tree_put_quoted(p, y->items[i].key);
            sbit__tree_put(p, ": ");
        }
        sbit__tree_put_yaml(p, &y->items[i]);
    }
    sbit__tree_put(p, map ? "}" : "]");
}

static void sbit__tree_put_value(const sbit__tree_printer *p, const sbit_option *option)
{
    char number[40];
    switch (option->key->type) {
    case SBIT_KEY_BOOL:
        sbit__tree_put(p, option->b ? "true" : "false");
        break;
    case SBIT_KEY_INT:
        snprintf(number, sizeof number, "%lld", (long long)option->i);
        sbit__tree_put(p, number);
        break;
    case SBIT_KEY_FLOAT:
        sbit__format_f64(option->f, false, number);
        sbit__tree_put(p, number);
        break;
    case SBIT_KEY_STRINGS:
        sbit__tree_put(p, "[");
        for (size_t i = 0; i < option->list_count; i++) {
            sbit__tree_put(p, i > 0 ? ", " : "");
            sbit__tree_put_quoted(p, option->list[i]);
        }
        sbit__tree_put(p, "]");
        break;
    case SBIT_KEY_STRING:
        sbit__tree_put_quoted(p, option->s);
        break;
    case SBIT_KEY_YAML:
        if (option->yaml != NULL) {
            sbit__tree_put_yaml(p, option->yaml);
        } else {
            sbit__tree_put(p, "[]");
        }
        break;
    default:
        sbit__tree_put(p, option->s != NULL ? option->s : "");
        break;
    }
}

static bool sbit__tree_shown(const sbit__tree_printer *p, const sbit_option *option)
{
    return option->is_set || (!p->only_set && option->key->otherwise != NULL);
}

/* Prints the keys whose path begins with the first `size` characters of `prefix`, grouped. */
static void sbit__tree_put_group(const sbit__tree_printer *p, const sbit_options *options,
                                 const char *prefix, size_t size, int indent)
{
    for (size_t i = 0; i < options->count; i++) {
        const sbit_option *option = &options->items[i];
        const char *path = option->key->path;
        if (strncmp(path, prefix, size) != 0 || !sbit__tree_shown(p, option)) {
            continue;
        }
        const char *dot = strchr(path + size, '.');
        const size_t part = dot != NULL ? (size_t)(dot - path) + 1 : strlen(path);
        bool printed = false; /* the group, with its first member */
        for (size_t j = 0; dot != NULL && j < i && !printed; j++) {
            printed = strncmp(options->items[j].key->path, path, part) == 0 &&
                      sbit__tree_shown(p, &options->items[j]);
        }
        if (printed) {
            continue;
        }
        for (int k = 0; k < indent; k++) {
            sbit__tree_put(p, "  ");
        }
        p->put(path + size, part - size - (dot != NULL ? 1u : 0u), p->user);
        if (dot != NULL) {
            sbit__tree_put(p, ":\n");
            sbit__tree_put_group(p, options, path, part, indent + 1);
        } else {
            sbit__tree_put(p, ": ");
            sbit__tree_put_value(p, option);
            sbit__tree_put(p, "\n");
        }
    }
}

SBIT__FN void sbit__tree_print(const sbit__tree *tree, bool only_set,
                               void (*put)(const char *text, size_t size, void *user), void *user)
{
    sbit__tree_printer p;
    p.put = put;
    p.user = user;
    p.only_set = only_set;
    sbit__tree_put_group(&p, &tree->top, "", 0, 0);
    for (size_t i = 0; i < tree->section_count; i++) {
        sbit__tree_put(&p, tree->sections[i].name);
        sbit__tree_put(&p, ":\n");
        sbit__tree_put_group(&p, &tree->sections[i].options, "", 0, 1);
    }
}
