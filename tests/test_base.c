/* split */
/* test_base.c: statuses, memory, checked arithmetic, text, numbers, maps, files. */
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* symlink, mkfifo */
#endif
#include "../src/base/base_private.h"
#include "test.h"

#include <locale.h>   /* setlocale: numbers must not depend on it */
#include <sys/stat.h> /* lstat, mkfifo */
#include <unistd.h>   /* symlink */

/* ---- status */

TEST(status_texts)
{
    CHECK_STR(sbit_status_text(SBIT_OK), "success");
    CHECK_STR(sbit_status_text(SBIT_ERR_PARSE), "malformed input");
    CHECK_STR(sbit_status_text(SBIT_ERR_CANCELLED), "cancelled by the caller");
    CHECK_STR(sbit_status_text((sbit_status)-99), "unknown status");
}

TEST(error_details)
{
    sbit_error error;
    char long_name[700];
    memset(&error, 0, sizeof error);
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    CHECK(sbit__fail(NULL, SBIT_ERR_IO, NULL, "not kept") == SBIT_ERR_IO);
    CHECK(sbit__fail(&error, SBIT_ERR_SHAPE, "conv1", "rank %d", 3) == SBIT_ERR_SHAPE);
    CHECK(error.status == SBIT_ERR_SHAPE);
    CHECK_STR(error.message, "rank 3");
    CHECK_STR(error.where, "conv1");
    /* the old texts may be arguments of the new ones */
    sbit__fail(&error, SBIT_ERR_IO, error.where, "node: %s", error.message);
    CHECK_STR(error.message, "node: rank 3");
    CHECK_STR(error.where, "conv1");
    sbit__fail(&error, SBIT_ERR_IO, long_name, "%s", long_name);
    CHECK_EQ_I64(strlen(error.message), sizeof error.message - 1);
    CHECK_EQ_I64(strlen(error.where), sizeof error.where - 1);
    sbit__fail_at(&error, SBIT_ERR_PARSE, UINT64_C(5000000000), "bad tag");
    CHECK_STR(error.where, "byte 5000000000");
    CHECK(sbit__fail_oom(&error, 77) == SBIT_ERR_OUT_OF_MEMORY);
    CHECK_CONTAINS(error.message, "77 bytes");
}

/* ---- memory */

TEST(allocators)
{
    test_heap heap = {0};
    sbit_allocator allocator = test_heap_allocator(&heap);
    sbit_allocator half = allocator;
    half.realloc_fn = NULL;
    CHECK(sbit__allocator_valid(NULL));
    CHECK(sbit__allocator_valid(&allocator));
    CHECK(!sbit__allocator_valid(&half));
    memset(&half, 0, sizeof half);
    CHECK(sbit__allocator_valid(&half));
    CHECK(sbit__allocator_or_default(&half).alloc_fn != NULL);
    CHECK(sbit__allocator_or_default(&allocator).alloc_fn == test_heap_alloc);

    void *empty = sbit__alloc(&allocator, 0);
    CHECK(empty != NULL);
    sbit__free(&allocator, empty, 0);
    sbit__free(&allocator, NULL, 10);
    unsigned char *zeroed = (unsigned char *)sbit__calloc(&allocator, 5, 7);
    for (int i = 0; i < 35; i++) {
        CHECK_EQ_I64(zeroed[i], 0);
    }
    zeroed[34] = 9;
    zeroed = (unsigned char *)sbit__realloc(&allocator, zeroed, 35, 100);
    CHECK_EQ_I64(zeroed[34], 9);
    sbit__free(&allocator, zeroed, 100);
    CHECK(sbit__calloc(&allocator, SIZE_MAX / 2, 3) == NULL);
    for (size_t bytes = 0; bytes < 200; bytes += 33) {
        void *aligned = sbit__alloc_aligned(&allocator, bytes);
        CHECK_EQ_I64((uintptr_t)aligned % 64, 0);
        memset(aligned, 1, bytes);
        sbit__free_aligned(&allocator, aligned, bytes);
    }
    CHECK(sbit__alloc_aligned(&allocator, SIZE_MAX - 5) == NULL);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

TEST(growing_arrays)
{
    test_heap heap = {0};
    const sbit_allocator allocator = test_heap_allocator(&heap);
    void *items = NULL;
    size_t capacity = 0;
    CHECK(sbit__grow(&allocator, &items, &capacity, 3, 8, NULL) == SBIT_OK);
    CHECK(capacity >= 3);
    const size_t old_capacity = capacity;
    void *const old_items = items;
    CHECK(sbit__grow(&allocator, &items, &capacity, SIZE_MAX / 4, 8, NULL) ==
          SBIT_ERR_OUT_OF_MEMORY);
    heap.fail_at = heap.count + 1;
    CHECK(sbit__grow(&allocator, &items, &capacity, 1000, 8, NULL) == SBIT_ERR_OUT_OF_MEMORY);
    CHECK(items == old_items && capacity == old_capacity);
    CHECK(sbit__grow(&allocator, &items, &capacity, 1000, 8, NULL) == SBIT_OK);
    CHECK(capacity >= 1000);
    sbit__free(&allocator, items, capacity * 8);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

TEST(arena_blocks)
{
    test_heap heap = {0};
    const sbit_allocator allocator = test_heap_allocator(&heap);
    sbit__arena arena;
    sbit__arena_init(&arena, &allocator);
    size_t sum = 0;
    for (size_t i = 0; i < 3000; i++) {
        const size_t bytes = i % 100 == 99 ? 20000 : i % 37;
        unsigned char *block = (unsigned char *)sbit__arena_alloc(&arena, bytes);
        if (!CHECK(block != NULL && (uintptr_t)block % 16 == 0)) {
            break;
        }
        for (size_t j = 0; j < bytes; j++) {
            CHECK_EQ_I64(block[j], 0);
        }
        memset(block, 0xff, bytes);
        sum += bytes;
    }
    CHECK(arena.used_bytes >= sum);
    CHECK_STR(sbit__arena_strdup(&arena, "abcdef", 3), "abc");
    CHECK_STR(sbit__arena_printf(&arena, "%s-%d", "x", 42), "x-42");
    CHECK(sbit__arena_array(&arena, SIZE_MAX / 2, 4) == NULL);
    CHECK(sbit__arena_alloc(&arena, SIZE_MAX - 3) == NULL);
    arena.limit_bytes = arena.used_bytes + 64;
    CHECK(sbit__arena_alloc(&arena, 65) == NULL);
    CHECK(sbit__arena_alloc(&arena, 64) != NULL);
    CHECK(sbit__arena_alloc(&arena, 1) == NULL);
    sbit__arena_deinit(&arena);
    CHECK_EQ_I64(heap.live_bytes, 0);
    heap.fail_at = heap.count + 1;
    CHECK(sbit__arena_alloc(&arena, 10) == NULL);
    sbit__arena_deinit(&arena);
}

/* ---- arithmetic */

TEST(checked_arithmetic)
{
    static const int64_t edges[] = {INT64_MIN,  INT64_MIN + 1, -3037000500,   -2,       -1, 0, 1, 2,
                                    3037000499, 3037000500,    INT64_MAX - 1, INT64_MAX};
    size_t size = 7;
    CHECK(!sbit__add_size(SIZE_MAX, 1, &size) && size == 7);
    CHECK(sbit__add_size(SIZE_MAX - 1, 1, &size) && size == SIZE_MAX);
    CHECK(!sbit__mul_size(SIZE_MAX / 2 + 1, 2, &size) && size == SIZE_MAX);
    CHECK(sbit__mul_size(SIZE_MAX, 0, &size) && size == 0);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        for (size_t j = 0; j < sizeof edges / sizeof edges[0]; j++) {
            int64_t got = 77, want = 77;
            bool fits = !__builtin_add_overflow(edges[i], edges[j], &want);
            CHECK_EQ_I64(sbit__add_i64(edges[i], edges[j], &got), fits);
            CHECK_EQ_I64(got, fits ? want : 77);
            got = 77;
            fits = !__builtin_mul_overflow(edges[i], edges[j], &want);
            CHECK_EQ_I64(sbit__mul_i64(edges[i], edges[j], &got), fits);
            CHECK_EQ_I64(got, fits ? want : 77);
        }
    }
}

TEST(dims_counts)
{
    const int64_t plain[] = {2, 3, 4}, negative[] = {2, -1}, empty[] = {5, 0, 7};
    const int64_t huge[] = {INT64_C(1) << 32, INT64_C(1) << 32};
    const int64_t huge_empty[] = {INT64_C(1) << 32, 0, INT64_C(1) << 32};
    int64_t count = -5;
    CHECK(sbit__dims_count(NULL, 0, &count) && count == 1);
    CHECK(sbit__dims_count(plain, 3, &count) && count == 24);
    CHECK(sbit__dims_count(empty, 3, &count) && count == 0);
    CHECK(!sbit__dims_count(negative, 2, &count));
    CHECK(!sbit__dims_count(huge, 2, &count));
    CHECK(!sbit__dims_count(huge_empty, 3, &count)); /* its strides would overflow */
}

/* ---- text */

TEST(text_comparison)
{
    CHECK(sbit__str_eq(sbit__str("ab"), sbit__str("ab")));
    CHECK(!sbit__str_eq(sbit__str("ab"), sbit__str("abc")));
    CHECK(sbit__str_eq(sbit__str(NULL), sbit__str("")));
    CHECK(sbit__streq(NULL, "") && sbit__streq(NULL, NULL) && !sbit__streq(NULL, "a"));
    /* FNV-1a test vectors of its authors */
    CHECK_EQ_I64(sbit__hash_bytes("", 0), UINT64_C(0xcbf29ce484222325));
    CHECK_EQ_I64(sbit__hash_bytes("a", 1), UINT64_C(0xaf63dc4c8601ec8c));
    CHECK_EQ_I64(sbit__hash_bytes("foobar", 6), UINT64_C(0x85944171f73967e8));
    CHECK_EQ_I64(sbit__edit_distance("kitten", "sitting"), 3);
    CHECK_EQ_I64(sbit__edit_distance("", "abc"), 3);
    CHECK_EQ_I64(sbit__edit_distance("minmax", "minmax"), 0);
}

/* Results of Python's fnmatch.fnmatchcase. */
TEST(fnmatch_like_python)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } rows[] = {
        {"a[b-d]e", "ace", true},
        {"a[!b-d]e", "ace", false},
        {"a[]]b", "a]b", true},
        {"a[", "a[", true},
        {"a[b", "a[b", true},
        {"*", "", true},
        {"?", "", false},
        {"a*b*c", "aXbXbc", true},
        {"a*b*c", "aXbXbcd", false},
        {"*.conv?", "layer1.conv2", true},
        {"[a-]", "-", true},
        {"[!]a]", "b", true},
        {"[!]a]", "a", false},
        {"a**", "a", true},
        {"", "", true},
        {"", "a", false},
        {"[--0]", ".", true},
        {"layer[0-9]*.weight", "layer12.0.weight", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_MSG(sbit__fnmatch(rows[i].pattern, rows[i].text) == rows[i].match, "'%s' on '%s'",
                  rows[i].pattern, rows[i].text);
    }
}

static void check_numbers(void)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},
                {"-1.5", -1.5},
                {"+2", 2},
                {".5", 0.5},
                {"5.", 5},
                {"1e3", 1000},
                {"1.25E-2", .0125},
                {"0.1", 0.1},
                {"1e400", HUGE_VAL},
                {"-inf", -HUGE_VAL},
                {"INF", HUGE_VAL},
                {"123456789012345678901234567890", 123456789012345678901234567890.0}};
    static const char *const bad[] = {"",   "-",  ".",   "1e",    "1e+", "1,5",  "0x10", "1.5f",
                                      " 1", "1 ", "--1", "1.2.3", "in",  "nane", "e5"};
    double value = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        value = -77;
        CHECK_MSG(sbit__parse_f64(good[i].text, &value) && value == good[i].value, "%s gave %.17g",
                  good[i].text, value);
    }
    CHECK(sbit__parse_f64("NaN", &value) && isnan(value));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_MSG(!sbit__parse_f64(bad[i], &value), "'%s' was taken for a number", bad[i]);
    }
}

TEST(number_parsing)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                          "ps_AF.UTF-8"};
    int64_t i = 5;
    check_numbers();
    for (size_t k = 0; k < sizeof locales / sizeof locales[0]; k++) {
        if (setlocale(LC_ALL, locales[k]) != NULL) { /* decimal commas; few machines have any */
            check_numbers();
            char text[40];
            sbit__format_f64(0.5, false, text);
            CHECK_STR(text, "0.5");
        }
    }
    setlocale(LC_ALL, "C");
    CHECK(sbit__parse_i64("-9223372036854775808", &i) && i == INT64_MIN);
    CHECK(sbit__parse_i64("9223372036854775807", &i) && i == INT64_MAX);
    CHECK(sbit__parse_i64("-0", &i) && i == 0);
    CHECK(sbit__parse_i64("+12", &i) && i == 12);
    i = 5;
    CHECK(!sbit__parse_i64("9223372036854775808", &i) && i == 5);
    CHECK(!sbit__parse_i64("-9223372036854775809", &i));
    CHECK(!sbit__parse_i64("99999999999999999999", &i));
    CHECK(!sbit__parse_i64("", &i) && !sbit__parse_i64("-", &i) && !sbit__parse_i64("1.0", &i));
}

TEST(number_formatting)
{
    static const struct {
        double value;
        bool single;
        const char *text;
    } rows[] = {{0.1, false, "0.1"},
                {(double)0.1f, true, "0.1"},
                {1.0 / 3, false, "0.33333333333333331"},
                {(double)(1.0f / 3), true, "0.333333343"},
                {-0.0, false, "-0"},
                {1e300, false, "1e+300"},
                {123456789, false, "123456789"},
                {HUGE_VAL, false, "inf"},
                {-HUGE_VAL, true, "-inf"},
                {(double)NAN, false, "nan"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[40];
        const size_t size = sbit__format_f64(rows[i].value, rows[i].single, text);
        CHECK_STR(text, rows[i].text);
        CHECK_EQ_I64(size, strlen(rows[i].text));
    }
}

TEST(growing_text)
{
    test_heap heap = {0};
    const sbit_allocator allocator = test_heap_allocator(&heap);
    sbit__text text;
    sbit__text_init(&text, &allocator);
    for (int i = 0; i < 100; i++) {
        sbit__text_printf(&text, "%d,", i);
        sbit__text_append(&text, "xyz", 1);
    }
    sbit__text_f64(&text, 2.5, false);
    CHECK(!text.failed);
    CHECK_EQ_I64(text.size, 10 * 3 + 90 * 4 + 3);
    CHECK_EQ_I64(strlen(text.data), text.size);
    CHECK_CONTAINS(text.data, "98,x99,x2.5");
    heap.fail_at = heap.count + 1;
    for (int i = 0; i < 1000; i++) {
        sbit__text_printf(&text, "%d", i);
    }
    CHECK(text.failed);
    sbit__text_deinit(&text);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

TEST(hash_map)
{
    enum {
        COUNT = 2000
    };
    static char keys[COUNT][20], more[COUNT][20];
    test_heap heap = {0};
    const sbit_allocator allocator = test_heap_allocator(&heap);
    sbit_error error;
    sbit__map map;
    uint32_t value = 0;
    sbit__map_init(&map, &allocator);
    CHECK(!sbit__map_find(&map, "none", &value));
    sbit__map_remove(&map, "none");
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof keys[i], "key%u", i);
        CHECK_OK(sbit__map_set(&map, keys[i], i, &error), error);
    }
    CHECK_OK(sbit__map_set(&map, keys[7], 70000, &error), error);
    CHECK_EQ_I64(map.count, COUNT);
    for (int i = 0; i < COUNT; i += 3) {
        sbit__map_remove(&map, keys[i]);
        sbit__map_remove(&map, keys[i]);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        value = 5555555;
        CHECK_EQ_I64(sbit__map_find(&map, keys[i], &value), i % 3 != 0);
        CHECK_EQ_I64(value, i % 3 == 0 ? 5555555 : i == 7 ? 70000 : i);
    }
    heap.fail_at = heap.count + 1;
    sbit_status status = SBIT_OK;
    for (int i = 0; i < COUNT && status == SBIT_OK; i++) {
        snprintf(more[i], sizeof more[i], "more%d", i);
        status = sbit__map_set(&map, more[i], 1, &error);
    }
    CHECK(status == SBIT_ERR_OUT_OF_MEMORY);
    sbit__map_deinit(&map);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* ---- files */

static bool write_file(const sbit_allocator *allocator, const char *path, const char *data,
                       size_t size, bool commit)
{
    sbit_error error;
    sbit__writer writer;
    if (!CHECK_OK(sbit__writer_open(allocator, path, &writer, &error), error)) {
        return false;
    }
    for (size_t done = 0, part = 1; done < size; part = part * 3 + 1) {
        const size_t take = part < size - done ? part : size - done;
        CHECK_OK(sbit__writer_put(&writer, data + done, take, &error), error);
        done += take;
    }
    CHECK_EQ_I64(writer.written, size);
    if (commit) {
        return CHECK_OK(sbit__writer_commit(&writer, &error), error);
    }
    sbit__writer_abort(&writer);
    return true;
}

TEST(files_are_written_and_read)
{
    enum {
        SIZE = 300000
    };
    static char data[SIZE];
    static const size_t sizes[] = {0, 1, 4096, 65536, 65537, SIZE};
    test_heap heap = {0};
    const sbit_allocator allocator = test_heap_allocator(&heap);
    sbit_error error;
    char path[512], temp[540];
    test_tmp_path("base_file.bin", path, sizeof path);
    snprintf(temp, sizeof temp, "%s.sbit-tmp", path);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (char)(i * 7 + i / 251);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        sbit__file file;
        write_file(&allocator, path, data, sizes[i], true);
        CHECK(!test_file_exists(temp));
        if (CHECK_OK(sbit__file_open(&allocator, path, &file, &error), error)) {
            CHECK_EQ_I64(file.size, sizes[i]);
            CHECK(file.data != NULL);
            CHECK_MEM(file.data, data, sizes[i]);
            sbit__file_close(&file);
            sbit__file_close(&file);
        }
    }
    for (uint64_t offset = 0; offset <= SIZE; offset += 4999) {
        sbit__file file;
        const size_t size = offset + 777 < SIZE ? 777 : (size_t)(SIZE - offset);
        if (CHECK_OK(sbit__file_open_range(&allocator, path, offset, size, &file, &error), error)) {
            CHECK_MEM(file.data, data + offset, size);
            sbit__file_close(&file);
        }
        CHECK_STATUS(
            sbit__file_open_range(&allocator, path, offset, SIZE - offset + 1, &file, &error),
            SBIT_ERR_IO, error);
    }
    sbit__file file;
    CHECK_STATUS(sbit__file_open_range(&allocator, path, UINT64_MAX, 1, &file, &error), SBIT_ERR_IO,
                 error);
    CHECK_EQ_I64(heap.live_bytes, 0);
    remove(path);
}

TEST(aborted_files_leave_the_old_one)
{
    const sbit_allocator allocator = sbit__allocator_or_default(NULL);
    sbit_error error;
    sbit__file file;
    char path[512], temp[540];
    test_tmp_path("base_abort.bin", path, sizeof path);
    snprintf(temp, sizeof temp, "%s.sbit-tmp", path);
    write_file(&allocator, path, "old", 3, true);
    write_file(&allocator, path, "newer", 5, false);
    CHECK(!test_file_exists(temp));
    /* a forgotten temporary file is in nobody's way, and an old mapping keeps its bytes */
    FILE *stale = fopen(temp, "wb");
    CHECK(stale != NULL && fputs("stale", stale) >= 0 && fclose(stale) == 0);
    if (CHECK_OK(sbit__file_open(&allocator, path, &file, &error), error)) {
        CHECK_MEM(file.data, "old", 3);
        write_file(&allocator, path, "new", 3, true);
        CHECK_MEM(file.data, "old", 3);
        sbit__file_close(&file);
    }
    if (CHECK_OK(sbit__file_open(&allocator, path, &file, &error), error)) {
        CHECK_MEM(file.data, "new", 3);
        sbit__file_close(&file);
    }
    CHECK(test_file_exists(temp));
    remove(temp);
    remove(path);
}

TEST(file_errors_name_the_file)
{
    const sbit_allocator allocator = sbit__allocator_or_default(NULL);
    sbit_error error;
    sbit__file file;
    sbit__writer writer;
    CHECK_STATUS(sbit__file_open(&allocator, "/no/such/file.onnx", &file, &error), SBIT_ERR_IO,
                 error);
    CHECK_CONTAINS(error.message, "/no/such/file.onnx");
    CHECK_CONTAINS(error.message, "no such file");
    CHECK_STATUS(sbit__file_open(&allocator, "/", &file, &error), SBIT_ERR_IO, error);
    CHECK_STATUS(sbit__writer_open(&allocator, "/no/such/folder/x", &writer, &error), SBIT_ERR_IO,
                 error);
    /* the target is a folder: nothing is left behind */
    char path[512], temp[540];
    test_tmp_path("", path, sizeof path);
    path[strlen(path) - 1] = '\0';
    snprintf(temp, sizeof temp, "%s.sbit-tmp", path);
    CHECK_STATUS(sbit__writer_open(&allocator, path, &writer, &error), SBIT_ERR_IO, error);
    CHECK_CONTAINS(error.message, "it is a folder");
    CHECK(!test_file_exists(temp));
}

/* Links stay and lead to the new file; a pipe stays a pipe. */
TEST(file_links_are_written_through)
{
    const sbit_allocator allocator = sbit__allocator_or_default(NULL);
    char target[512], link[512], again[512], pipe[512];
    struct stat info;
    sbit_error error;
    sbit__writer writer;
    test_tmp_path("link-target", target, sizeof target);
    test_tmp_path("link", link, sizeof link);
    test_tmp_path("link-to-link", again, sizeof again);
    test_tmp_path("pipe", pipe, sizeof pipe);
    remove(target);
    remove(link);
    remove(again);
    remove(pipe);
    CHECK(symlink("link-target", link) == 0 && symlink(link, again) == 0);
    for (int i = 0; i < 2; i++) { /* the target is made, then replaced */
        CHECK(write_file(&allocator, again, i == 0 ? "a" : "bc", i == 0 ? 1 : 2, true));
        CHECK(lstat(again, &info) == 0 && S_ISLNK(info.st_mode));
        CHECK(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
        CHECK(lstat(target, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == i + 1);
    }
    CHECK(mkfifo(pipe, 0600) == 0);
    CHECK_STATUS(sbit__writer_open(&allocator, pipe, &writer, &error), SBIT_ERR_IO, error);
    CHECK_CONTAINS(error.message, "no regular file");
    CHECK(lstat(pipe, &info) == 0 && S_ISFIFO(info.st_mode));
    remove(target);
    remove(link);
    CHECK(symlink("link", link) == 0); /* a circle */
    CHECK_STATUS(sbit__writer_open(&allocator, link, &writer, &error), SBIT_ERR_IO, error);
}

TEST(file_allocations_fail)
{
    char path[512];
    test_tmp_path("base_oom.bin", path, sizeof path);
    for (int64_t n = 1;; n++) {
        test_heap heap = {0};
        const sbit_allocator allocator = test_heap_allocator(&heap);
        sbit_error error;
        sbit__writer writer;
        sbit__file file;
        heap.fail_at = n;
        const sbit_status status = sbit__writer_open(&allocator, path, &writer, &error);
        if (status == SBIT_OK) {
            CHECK_OK(sbit__writer_put(&writer, "abc", 3, &error), error);
            CHECK_OK(sbit__writer_commit(&writer, &error), error);
            if (sbit__file_open(&allocator, path, &file, &error) == SBIT_OK) {
                sbit__file_close(&file);
            }
        } else {
            CHECK_STATUS(status, SBIT_ERR_OUT_OF_MEMORY, error);
        }
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (heap.count < n) {
            CHECK(n >= 4);
            break;
        }
    }
    remove(path);
}
