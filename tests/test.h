/* test.h: the frame of every tests/test_*.c, one program each.
 *
 *     #include "../sparsebit.h"            or, where the file's first line is the comment "split",
 *     #include "test.h"                    the headers of ../src
 *
 *     TEST(adds_small_numbers) {
 *         CHECK_EQ_I64(add(1, 2), 3);
 *     }
 *
 * TEST registers itself and main() is here. A failed CHECK prints its place and values; the test
 * goes on. `program part` runs the tests whose name contains `part`. The last line printed is
 * "name: P passed, F failed, S skipped", which counts tests.
 *
 * Environment
 *   SBIT_TEST_QUICK=1         `make quick`: the slowest tests take smaller inputs
 *   SPARSEBIT_REQUIRE=tools   a missing tool is a failure (see run.sh), missing data a skip
 *   SPARSEBIT_REQUIRE=all     every skip is a failure, except SBIT_TEST_SKIP_CPU's
 *   SPARSEBIT_CLI             another command line tool than the one built beside the tests
 *   SPARSEBIT_SHARED          the folder with models and data (default: shared beside the checkout)
 *   SPARSEBIT_FORCE_ISA       the instruction set to run with: test_force_isa(), NULL = best
 *   SPARSEBIT_TEST_THREADS    the number of threads to run with: test_threads(), default 1
 *   SPARSEBIT_ACCEPTANCE      file that test_accept() appends to
 */
#ifndef SBIT_TEST_H
#define SBIT_TEST_H

#include <math.h>    /* fabs, isnan */
#include <stdarg.h>  /* va_list */
#include <stdbool.h> /* bool */
#include <stddef.h>  /* size_t */
#include <stdint.h>  /* int64_t */
#include <stdio.h>   /* printf */
#include <stdlib.h>  /* getenv, malloc */
#include <string.h>  /* strcmp */
#include <time.h>    /* clock */

#ifndef SBIT_TEST_ROOT /* the checkout; set by the Makefile, as are the next three */
#define SBIT_TEST_ROOT ".."
#endif
#ifndef SBIT_TEST_TMP /* folder for scratch files */
#define SBIT_TEST_TMP "build"
#endif
#ifndef SBIT_TEST_BACKEND /* where the ONNX backend data was unpacked */
#define SBIT_TEST_BACKEND "build/onnx-backend"
#endif

#ifndef SBIT_TEST_CLI /* the command line tool, linked with the same code */
#define SBIT_TEST_CLI "build/sparsebit"
#endif

#define TEST_FN static __attribute__((unused))

typedef struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
} test_case;

static struct {
    test_case *first, **last;
    int checks_failed; /* in the test that runs */
    const char *skip_reason;
} test_state;

/* The command line tool to run. */
TEST_FN const char *test_tool(void)
{
    const char *other = getenv("SPARSEBIT_CLI");
    return other != NULL && other[0] != '\0' ? other : SBIT_TEST_CLI;
}

/* Whether the code is instrumented: slower, and hungry for address space. */
TEST_FN bool test_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return true;
#else
    return false;
#endif
#else
    return false;
#endif
}

TEST_FN void test_register(test_case *test)
{
    if (test_state.last == NULL) {
        test_state.last = &test_state.first;
    }
    *test_state.last = test;
    test_state.last = &test->next;
}

#define TEST(name)                                                                                 \
    static void test_run_##name(void);                                                             \
    static test_case test_case_##name = {#name, test_run_##name, NULL};                            \
    __attribute__((constructor)) static void test_register_##name(void)                            \
    {                                                                                              \
        test_register(&test_case_##name);                                                          \
    }                                                                                              \
    static void test_run_##name(void)

/* ---- checks: each gives whether it held, so that a test can stop: if (!CHECK(p)) { return; } */

__attribute__((format(printf, 3, 4))) TEST_FN bool test_failed(const char *file, int line,
                                                               const char *format, ...)
{
    va_list args;
    if (++test_state.checks_failed <= 20) { /* enough to see; a loop may fail a million times */
        printf("%s:%d: ", file, line);
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        printf("\n");
    }
    return false;
}

TEST_FN bool test_is(bool held)
{
    return held;
}

TEST_FN bool test_eq_i64(const char *file, int line, const char *a_text, int64_t a,
                         const char *b_text, int64_t b)
{
    return a == b || test_failed(file, line, "%s is %lld, but %s is %lld", a_text, (long long)a,
                                 b_text, (long long)b);
}

TEST_FN bool test_near(const char *file, int line, const char *a_text, double a, const char *b_text,
                       double b, double tolerance)
{
    return a == b || fabs(a - b) <= tolerance ||
           test_failed(file, line, "%s is %.9g, but %s is %.9g: off by %.3g, allowed is %.3g",
                       a_text, a, b_text, b, fabs(a - b), tolerance);
}

TEST_FN bool test_str(const char *file, int line, const char *a_text, const char *a,
                      const char *b_text, const char *b)
{
    if (a == NULL || b == NULL) {
        return a == b || test_failed(file, line, "%s is %s, but %s is %s", a_text, a ? a : "NULL",
                                     b_text, b ? b : "NULL");
    }
    return strcmp(a, b) == 0 ||
           test_failed(file, line, "%s is \"%s\", but %s is \"%s\"", a_text, a, b_text, b);
}

TEST_FN bool test_contains(const char *file, int line, const char *text_text, const char *text,
                           const char *part)
{
    return (text != NULL && strstr(text, part) != NULL) ||
           test_failed(file, line, "%s is \"%s\", without \"%s\"", text_text, text ? text : "NULL",
                       part);
}

TEST_FN bool test_mem(const char *file, int line, const char *a_text, const void *a,
                      const char *b_text, const void *b, size_t size)
{
    size_t i = 0;
    while (i < size && ((const unsigned char *)a)[i] == ((const unsigned char *)b)[i]) {
        i++;
    }
    return i == size || test_failed(file, line, "%s and %s differ at byte %lu: %u, %u", a_text,
                                    b_text, (unsigned long)i, ((const unsigned char *)a)[i],
                                    ((const unsigned char *)b)[i]);
}

TEST_FN bool test_status(const char *file, int line, const char *text, int status, int wanted,
                         const char *message, const char *where)
{
    return status == wanted || test_failed(file, line, "%s gave status %d, wanted %d: %s [%s]",
                                           text, status, wanted, message, where);
}

#define CHECK(condition)                                                                           \
    test_is((condition) || test_failed(__FILE__, __LINE__, "not true: %s", #condition))
/* The rest is printed like printf when the condition does not hold. */
#define CHECK_MSG(condition, ...)                                                                  \
    test_is((condition) || test_failed(__FILE__, __LINE__, __VA_ARGS__))
#define CHECK_EQ_I64(a, b) test_eq_i64(__FILE__, __LINE__, #a, (int64_t)(a), #b, (int64_t)(b))
#define CHECK_NEAR(a, b, tolerance)                                                                \
    test_near(__FILE__, __LINE__, #a, (double)(a), #b, (double)(b), (double)(tolerance))
#define CHECK_STR(a, b) test_str(__FILE__, __LINE__, #a, (a), #b, (b))
#define CHECK_CONTAINS(text, part) test_contains(__FILE__, __LINE__, #text, (text), (part))
#define CHECK_MEM(a, b, size) test_mem(__FILE__, __LINE__, #a, (a), #b, (b), (size))
/* error: the sbit_error (not a pointer) that the call was given. */
#define CHECK_OK(status, error)                                                                    \
    test_status(__FILE__, __LINE__, #status, (int)(status), 0, (error).message, (error).where)
#define CHECK_STATUS(status, wanted, error)                                                        \
    test_status(__FILE__, __LINE__, #status, (int)(status), (int)(wanted), (error).message,        \
                (error).where)

/* ---- skipping: leaves the test, which then counts as skipped */

TEST_FN void test_skip(bool may_be_required, const char *reason)
{
    const char *require = getenv("SPARSEBIT_REQUIRE");
    if (may_be_required && require != NULL && strcmp(require, "all") == 0) {
        test_failed("SPARSEBIT_REQUIRE=all", 0, "skipped: %s", reason);
    } else {
        test_state.skip_reason = reason;
    }
}

#define SBIT_TEST_SKIP(reason)                                                                     \
    do {                                                                                           \
        test_skip(true, reason);                                                                   \
        return;                                                                                    \
    } while (0)
#define SBIT_TEST_SKIP_CPU(reason) /* this processor lacks an instruction set */                   \
    do {                                                                                           \
        test_skip(false, reason);                                                                  \
        return;                                                                                    \
    } while (0)

/* ---- files: each fills `path` and returns false when there is no such file */

TEST_FN bool test_file_exists(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        fclose(file);
    }
    return file != NULL;
}

/* A file or folder of the shared material, for example "models/cifar10/resnet20.onnx". */
TEST_FN bool test_shared(const char *name, char *path, size_t size)
{
    static const char *const folders[] = {SBIT_TEST_ROOT "/../shared", SBIT_TEST_ROOT "/shared",
                                          SBIT_TEST_ROOT "/../../shared"};
    const char *folder = getenv("SPARSEBIT_SHARED");
    if (folder != NULL && folder[0] != '\0') {
        snprintf(path, size, "%s/%s", folder, name);
        return test_file_exists(path);
    }
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, size, "%s/%s", folders[i], name);
        if (test_file_exists(path)) {
            return true;
        }
    }
    return false;
}

/* A file of the unpacked ONNX backend data, for example "node/test_add/model.onnx". */
TEST_FN bool test_backend(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", SBIT_TEST_BACKEND, name);
    return test_file_exists(path);
}

/* A file of this checkout, for example "examples/shapes.onnx". */
TEST_FN bool test_checkout(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", SBIT_TEST_ROOT, name);
    return test_file_exists(path);
}

/* The path of a scratch file; give it a name that no other test uses. */
TEST_FN const char *test_tmp_path(const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", SBIT_TEST_TMP, name);
    return path;
}

/* Reads a whole file; free() it. NULL when it cannot be read. A NUL follows the bytes. */
TEST_FN unsigned char *test_read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *data = NULL;
    long length = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        length = ftell(file);
    }
    if (length >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        data = (unsigned char *)malloc((size_t)length + 1);
    }
    if (data != NULL) {
        *size = fread(data, 1, (size_t)length, file);
        data[*size] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    return data;
}

/* ---- run-time choices of the suite's variants */

TEST_FN const char *test_force_isa(void)
{
    const char *isa = getenv("SPARSEBIT_FORCE_ISA");
    return isa != NULL && isa[0] != '\0' ? isa : NULL;
}

TEST_FN int test_threads(void)
{
    const char *threads = getenv("SPARSEBIT_TEST_THREADS");
    return threads != NULL && atoi(threads) > 0 ? atoi(threads) : 1;
}

#if defined(SPARSEBIT_INCLUDED) || defined(SBIT_CORE_API_H) /* sparsebit.h was included before this file */
/* {0} with the suite's instruction set and thread count. */
TEST_FN sbit_ctx_desc test_ctx_desc(void)
{
    sbit_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = test_threads();
    for (int i = 1; i < SBIT_ISA_COUNT && test_force_isa() != NULL; i++) {
        if (strcmp(sbit_isa_name((sbit_isa)i), test_force_isa()) == 0) {
            desc.force_isa = (sbit_isa)i;
        }
    }
    return desc;
}

/* A context of that kind; NULL is a failed check. Free with sbit_ctx_destroy. */
TEST_FN sbit_ctx *test_ctx(void)
{
    const sbit_ctx_desc desc = test_ctx_desc();
    sbit_error error;
    sbit_ctx *ctx = NULL;
    memset(&error, 0, sizeof error);
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    return ctx;
}
#endif

/* Notes a measured value for tests/build/acceptance.json; gives `ok` back. */
TEST_FN bool test_accept(const char *point, double value, double limit, bool ok, const char *unit)
{
    const char *path = getenv("SPARSEBIT_ACCEPTANCE");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "\"%s\": {\"value\": %.9g, \"limit\": %.9g, \"ok\": %s, \"unit\": \"%s\"}\n",
                point, value, limit, ok ? "true" : "false", unit);
        fclose(file);
    }
    printf("%s: %.6g %s, limit %.6g: %s\n", point, value, unit, limit, ok ? "ok" : "MISSED");
    return ok;
}

/* ---- an allocator that counts, checks sizes and can fail: test_heap_allocator(&heap). Every n-th allocation fails once: fail_at = n (counted from 1), 0 = never.
 *
 *     for (int64_t n = 1; ; n++) {
 *         test_heap heap = {0};
 *         heap.fail_at = n;
 *         ... run ...
 *         CHECK_EQ_I64(heap.live_bytes, 0);
 *         if (heap.count < n) { break; }      all allocations have had their turn
 *     }
 */
typedef struct test_heap {
    int64_t fail_at, count, live_bytes, peak_bytes;
} test_heap;

#define TEST_HEAP_HEAD 64 /* room for the size in front of each block, keeps the alignment */

TEST_FN void *test_heap_alloc(size_t bytes, void *user)
{
    test_heap *heap = (test_heap *)user;
    if (++heap->count == heap->fail_at) {
        return NULL;
    }
    char *block = (char *)malloc(bytes + TEST_HEAP_HEAD);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    memset(block + TEST_HEAP_HEAD, 0xa5, bytes);
    heap->live_bytes += (int64_t)bytes;
    if (heap->live_bytes > heap->peak_bytes) {
        heap->peak_bytes = heap->live_bytes;
    }
    return block + TEST_HEAP_HEAD;
}

TEST_FN void test_heap_free(void *ptr, size_t bytes, void *user)
{
    test_heap *heap = (test_heap *)user;
    size_t wanted = 0;
    memcpy(&wanted, (char *)ptr - TEST_HEAP_HEAD, sizeof wanted);
    CHECK_EQ_I64(bytes, wanted);
    heap->live_bytes -= (int64_t)wanted;
    free((char *)ptr - TEST_HEAP_HEAD);
}

TEST_FN void *test_heap_realloc(void *ptr, size_t old_bytes, size_t new_bytes, void *user)
{
    void *moved = test_heap_alloc(new_bytes, user);
    if (moved != NULL && ptr != NULL) {
        memcpy(moved, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        test_heap_free(ptr, old_bytes, user);
    }
    return moved;
}

#if defined(SPARSEBIT_ONNX_INCLUDED) || defined(SBIT_BASE_API_H)
TEST_FN sbit_allocator test_heap_allocator(test_heap *heap)
{
    const sbit_allocator allocator = {test_heap_alloc, test_heap_realloc, test_heap_free, heap};
    return allocator;
}
#endif

#ifndef SBIT_TEST_NO_MAIN
int main(int argc, char **argv)
{
    const char *name = strrchr(argv[0], '/') != NULL ? strrchr(argv[0], '/') + 1 : argv[0];
    int passed = 0, failed = 0, skipped = 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* a crash loses nothing that was printed */
    for (test_case *test = test_state.first; test != NULL; test = test->next) {
        if (argc > 1 && strstr(test->name, argv[1]) == NULL) {
            continue;
        }
        test_state.checks_failed = 0;
        test_state.skip_reason = NULL;
        const clock_t begin = clock();
        test->run();
        const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC; /* of processors */
        if (seconds > 0.4) {
            printf("%5.1f s %s\n", seconds, test->name);
        }
        if (test_state.checks_failed > 0) {
            printf("FAIL %s: %d checks failed\n", test->name, test_state.checks_failed);
            failed++;
        } else if (test_state.skip_reason != NULL) {
            printf("SKIP %s: %s\n", test->name, test_state.skip_reason);
            skipped++;
        } else {
            passed++;
        }
    }
    printf("%s: %d passed, %d failed, %d skipped\n", name, passed, failed, skipped);
    return failed > 0;
}
#endif

#endif /* SBIT_TEST_H */
