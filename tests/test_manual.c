/* test_manual.c: the manual's tables of keys, observers, quantizers and profiles are what the rows
 * say. After a change of rows: SBIT_UPDATE_MANUAL=1 build/quick/test_manual writes them anew (then
 * make -C tools amalgamate).
 */
#include "../sparsebit.h"
#include "test.h"

static const char *const manual_parts[2][2] = {
    {"CONFIGURATION KEYS (sbit_qconfig_describe)\n", "\nPRUNING KEYS ("},
    {"PRUNING KEYS (sbit_sconfig_describe)\n", "\nOPTIONS (0 or 1,"},
};

static void manual_keep(const char *text, size_t size, void *user)
{
    char *copy = (char *)malloc(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    *(char **)user = copy;
}

/* The tables of this version; free() them. */
static char *manual_tables(int part)
{
    static const char plain[] = "SPARSER: {TYPE: structured, STRATEGY: l1norm}\n";
    sbit_sconfig *sparse = NULL;
    sbit_ctx *ctx = NULL;
    sbit_qconfig *config = NULL;
    sbit_error error;
    char *text = NULL;
    if (CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error) &&
        CHECK_OK(sbit_qconfig_create(ctx, NULL, &config, &error), error) &&
        CHECK_OK(sbit_sconfig_read(ctx, plain, sizeof plain - 1, &sparse, &error), error)) {
        CHECK_OK(part == 0 ? sbit_qconfig_describe(config, manual_keep, &text, &error)
                           : sbit_sconfig_describe(sparse, manual_keep, &text, &error),
                 error);
    }
    sbit_sconfig_destroy(sparse);
    sbit_qconfig_destroy(config);
    sbit_ctx_destroy(ctx);
    return text;
}

static void manual_lists(int part)
{
    size_t size = 0;
    char *tables = manual_tables(part);
    char *manual = (char *)test_read_file(SBIT_TEST_ROOT "/src/manual.txt", &size);
    char *begin = manual != NULL ? strstr(manual, manual_parts[part][0]) : NULL;
    char *end = begin != NULL ? strstr(begin, manual_parts[part][1]) : NULL;
    if (CHECK(tables != NULL) && CHECK(begin != NULL && end != NULL)) {
        begin += strlen(manual_parts[part][0]);
        const bool same =
            (size_t)(end - begin) == strlen(tables) && memcmp(begin, tables, strlen(tables)) == 0;
        if (!same && getenv("SBIT_UPDATE_MANUAL") != NULL) {
            FILE *f = fopen(SBIT_TEST_ROOT "/src/manual.txt", "wb");
            if (CHECK(f != NULL)) {
                fwrite(manual, 1, (size_t)(begin - manual), f);
                fputs(tables, f);
                fputs(end, f);
                fclose(f);
            }
        } else if (!CHECK(same)) {
            printf("  src/manual.txt is not what the rows say; run this program with "
                   "SBIT_UPDATE_MANUAL=1\n");
        }
        for (const char *line = tables; *line != '\0'; line += strcspn(line, "\n") + 1) {
            CHECK(strcspn(line, "\n") <= 100);
        }
    }
    free(tables);
    free(manual);
}

TEST(manual_lists_the_keys)
{
    manual_lists(0);
    manual_lists(1);
}
