/* test_readme.c: what README.md says of operators and profiles is what the registries hold. */
#include "../sparsebit.h"
#include "test.h"

#include <stdlib.h> /* getenv, qsort */

static const char *readme_domain(const sbit_op_row *row)
{
    return row->domain == NULL ? "" : row->domain;
}

static int readme_compare(const void *a, const void *b)
{
    const sbit_op_row *x = *(const sbit_op_row *const *)a;
    const sbit_op_row *y = *(const sbit_op_row *const *)b;
    int order = strcmp(readme_domain(x), readme_domain(y));
    order = order != 0 ? order : strcmp(x->op_type, y->op_type);
    return order != 0 ? order : (int)x->since_version - (int)y->since_version;
}

/* "floats, int32": element types, those that come together by one name. */
static void readme_types(uint32_t types, char *text, size_t size)
{
    static const struct {
        const char *name;
        uint32_t types;
    } groups[] = {{"any", SBIT_T_ANY},
                  {"floats", SBIT_T_FLOATS},
                  {"integers", SBIT_T_INTS},
                  {"float8", SBIT_T(SBIT_F8E4M3FN) | SBIT_T(SBIT_F8E4M3FNUZ) |
                                 SBIT_T(SBIT_F8E5M2) | SBIT_T(SBIT_F8E5M2FNUZ)}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        if ((types & groups[i].types) == groups[i].types) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     groups[i].name);
            types &= ~groups[i].types;
        }
    }
    for (int32_t d = 1; d < SBIT_DTYPE_COUNT; d++) {
        if ((types & SBIT_T(d)) != 0) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                     sbit_dtype_name(d));
        }
    }
}

/* "| Abs | 1 6 13 | floats, integers |": every built-in operator that models may hold. */
static const char *readme_operators(void)
{
    static const sbit_op_row *rows[2000];
    static char text[64000];
    size_t count = 0, used = 0;
    for (size_t i = 0; sbit_operator_at(i) != NULL && count < 2000; i++) {
        const sbit_op_row *row = sbit_operator_at(i);
        if (strcmp(readme_domain(row), "sbit") != 0) {
            rows[count++] = row;
        }
    }
    qsort(rows, count, sizeof rows[0], readme_compare);
    for (size_t i = 0; i < count; i++) {
        const char *domain = readme_domain(rows[i]);
        const bool again = i > 0 && readme_domain(rows[i - 1])[0] == domain[0] &&
                           strcmp(rows[i]->op_type, rows[i - 1]->op_type) == 0;
        const bool last = i + 1 == count || strcmp(rows[i]->op_type, rows[i + 1]->op_type) != 0 ||
                          strcmp(domain, readme_domain(rows[i + 1])) != 0;
        char types[200];
        readme_types(rows[i]->types, types, sizeof types);
        if (!again) {
            used += (size_t)snprintf(text + used, sizeof text - used, "| %s%s%s |", domain,
                                     domain[0] != '\0' ? " " : "", rows[i]->op_type);
        }
        used += (size_t)snprintf(text + used, sizeof text - used, " %d",
                                 (int)rows[i]->since_version);
        if (last) {
            used += (size_t)snprintf(text + used, sizeof text - used, " | %s |\n", types);
        }
    }
    return text;
}

/* Between the marks of README.md stands the table. SBIT_UPDATE_README=1 writes it there. */
TEST(readme_lists_the_operators)
{
    static const char begin[] = "<!-- operators -->\n", end[] = "<!-- end -->";
    static const char head[] = "| operator | opset versions | element types |\n|---|---|---|\n";
    const char *wanted = readme_operators();
    char path[512];
    size_t size = 0;
    char *readme = NULL;
    if (test_checkout("README.md", path, sizeof path)) {
        readme = (char *)test_read_file(path, &size);
    }
    const char *from = readme != NULL ? strstr(readme, begin) : NULL;
    const char *to = from != NULL ? strstr(from, end) : NULL;
    if (CHECK(to != NULL)) {
        from += strlen(begin);
        const char *rows = strncmp(from, head, strlen(head)) == 0 ? from + strlen(head) : from;
        const size_t length = (size_t)(to - rows);
        const bool same = length == strlen(wanted) && memcmp(rows, wanted, length) == 0;
        FILE *file = same || getenv("SBIT_UPDATE_README") == NULL ? NULL : fopen(path, "wb");
        if (file != NULL) {
            fwrite(readme, 1, (size_t)(from - readme), file);
            fprintf(file, "%s%s%s", head, wanted, to);
            CHECK(fclose(file) == 0);
        } else {
            CHECK_MSG(same, "%s differs: SBIT_UPDATE_README=1 writes the table", path);
        }
    }
    free(readme);
}

TEST(readme_lists_the_profiles)
{
    char path[512], mention[64];
    size_t size = 0;
    char *readme = NULL;
    if (test_checkout("README.md", path, sizeof path)) {
        readme = (char *)test_read_file(path, &size);
    }
    for (size_t i = 0; CHECK(readme != NULL) && sbit_profile_at(i) != NULL; i++) {
        snprintf(mention, sizeof mention, "`%s`", sbit_profile_at(i)->head.name);
        CHECK_CONTAINS(readme, mention);
    }
    free(readme);
}
