/* test_readme.c: what README.md says of operators and profiles is what the registries hold. */
#include "../sparsebit.h"
#include "test.h"

static int readme_compare(const void *a, const void *b)
{
    const sbit_op_row *x = *(const sbit_op_row *const *)a;
    const sbit_op_row *y = *(const sbit_op_row *const *)b;
    const int order = strcmp(x->op_type, y->op_type);
    return order != 0 ? order : (int)x->since_version - (int)y->since_version;
}

/* "Abs 1 6 13, Acos 7 22, ...": every built-in row of ai.onnx with its since_version. */
static char *readme_operators(void)
{
    static const sbit_op_row *rows[2000];
    static char text[64000];
    size_t count = 0, used = 0;
    for (size_t i = 0; sbit_operator_at(i) != NULL && count < 2000; i++) {
        const sbit_op_row *row = sbit_operator_at(i);
        if (row->domain == NULL || row->domain[0] == '\0') {
            rows[count++] = row;
        }
    }
    qsort(rows, count, sizeof rows[0], readme_compare);
    for (size_t i = 0; i < count; i++) {
        const bool again = i > 0 && strcmp(rows[i]->op_type, rows[i - 1]->op_type) == 0;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %d",
                                 again || i == 0 ? "" : ", ", again ? "" : rows[i]->op_type,
                                 (int)rows[i]->since_version);
    }
    return text;
}

/* Copies the text behind `mark` up to the next "<!--", with runs of blanks as one space. */
static bool readme_section(const char *readme, const char *mark, char *out, size_t size)
{
    const char *at = strstr(readme, mark);
    size_t n = 0;
    if (at == NULL) {
        return false;
    }
    for (at += strlen(mark); *at != '\0' && strncmp(at, "<!--", 4) != 0 && n + 1 < size; at++) {
        const bool blank = *at == ' ' || *at == '\n';
        if (!blank || (n > 0 && out[n - 1] != ' ')) {
            out[n++] = blank ? ' ' : *at;
        }
    }
    while (n > 0 && out[n - 1] == ' ') {
        n--;
    }
    out[n] = '\0';
    return true;
}

TEST(readme_lists_the_operators)
{
    static char listed[64000];
    char path[512];
    size_t size = 0;
    const char *wanted = readme_operators();
    char *readme = NULL;
    if (test_checkout("README.md", path, sizeof path)) {
        readme = (char *)test_read_file(path, &size);
    }
    if (CHECK(readme != NULL) &&
        CHECK(readme_section(readme, "<!-- operators -->", listed, sizeof listed))) {
        CHECK_MSG(strcmp(listed, wanted) == 0, "README.md should list:\n%s", wanted);
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
