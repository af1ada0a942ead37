/* test_manual.c: the manual's tables of keys, observers, quantizers and profiles are what the rows
 * say. After a change of rows: SBIT_UPDATE_MANUAL=1 build/quick/test_manual writes them anew (then
 * make -C tools amalgamate).
 */
#include "../sparsebit.h"
#include "test.h"

#define MANUAL_BEGIN "CONFIGURATION KEYS (sbit_qconfig_describe)\n"
#define MANUAL_END "\nOPTIONS (0 or 1,"

static void manual_keep(const char *text, size_t size, void *user)
{
    char *copy = (char *)malloc(size + 1);
    memcpy(copy, text, size);
    copy[size] = '\0';
    *(char **)user = copy;
}

/* The tables of this version; free() them. */
static char *manual_tables(void)
{
    sbit_ctx *ctx = NULL;
    sbit_qconfig *config = NULL;
    sbit_error error;
    char *text = NULL;
    if (CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error) &&
        CHECK_OK(sbit_qconfig_create(ctx, NULL, &config, &error), error)) {
        CHECK_OK(sbit_qconfig_describe(config, manual_keep, &text, &error), error);
    }
    sbit_qconfig_destroy(config);
    sbit_ctx_destroy(ctx);
    return text;
}

TEST(manual_lists_the_keys)
{
    size_t size = 0;
    char *tables = manual_tables();
    char *manual = (char *)test_read_file(SBIT_TEST_ROOT "/src/manual.txt", &size);
    char *begin = manual != NULL ? strstr(manual, MANUAL_BEGIN) : NULL;
    char *end = begin != NULL ? strstr(begin, MANUAL_END) : NULL;
    if (CHECK(tables != NULL) && CHECK(begin != NULL && end != NULL)) {
        begin += strlen(MANUAL_BEGIN);
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
