/* split */
/* test_core.c: context, threads, random numbers, tensors, half precision, registries. */
#include "../src/core/core_private.h"
#include "test.h"

/* ---- context */

TEST(context_defaults)
{
    sbit_ctx *ctx = NULL;
    sbit_error error;
    if (!CHECK_OK(sbit_ctx_create(NULL, &ctx, &error), error)) {
        return;
    }
    CHECK_EQ_I64(sbit_ctx_threads(ctx), 1);
    CHECK(sbit_isa_available(sbit_ctx_isa(ctx)));
    CHECK(sbit_ctx_allocator(ctx)->alloc_fn != NULL);
    for (int isa = (int)sbit_ctx_isa(ctx) + 1; isa <= SBIT_ISA_AVX512VNNI; isa++) {
        CHECK(!sbit_isa_available((sbit_isa)isa)); /* the default is the best one */
    }
    sbit_ctx_destroy(ctx);
    sbit_ctx_destroy(NULL);
}

TEST(context_refuses_bad_descriptions)
{
    sbit_ctx *ctx = NULL;
    sbit_error error;
    sbit_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = 65;
    CHECK_STATUS(sbit_ctx_create(&desc, &ctx, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    CHECK_CONTAINS(error.message, "65");
    desc.threads = -1;
    CHECK_STATUS(sbit_ctx_create(&desc, &ctx, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    desc.threads = 0;
    desc.allocator.alloc_fn = test_heap_alloc;
    CHECK_STATUS(sbit_ctx_create(&desc, &ctx, &error), SBIT_ERR_INVALID_ARGUMENT, error);
    desc.allocator.alloc_fn = NULL;
    desc.force_isa = sbit_isa_available(SBIT_ISA_NEON) ? SBIT_ISA_SSE2 : SBIT_ISA_NEON;
    CHECK_STATUS(sbit_ctx_create(&desc, &ctx, &error), SBIT_ERR_UNSUPPORTED, error);
    CHECK_CONTAINS(error.message, sbit_isa_name(desc.force_isa));
    CHECK(ctx == NULL);
    CHECK(!sbit_isa_available(SBIT_ISA_DEFAULT) && !sbit_isa_available(SBIT_ISA_COUNT));
    CHECK(!sbit_isa_available((sbit_isa)-1) && !sbit_isa_available((sbit_isa)1000));
}

TEST(context_forces_each_available_isa)
{
    for (int isa = 1; isa < SBIT_ISA_COUNT; isa++) {
        sbit_ctx *ctx = NULL;
        sbit_error error;
        sbit_ctx_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.force_isa = (sbit_isa)isa;
        if (sbit_isa_available((sbit_isa)isa) &&
            CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error)) {
            CHECK_EQ_I64(sbit_ctx_isa(ctx), isa);
            sbit_ctx_destroy(ctx);
        }
    }
    CHECK_STR(sbit_isa_name(SBIT_ISA_AVX512VNNI), "avx512vnni");
    CHECK_STR(sbit_isa_name((sbit_isa)99), "unknown");
}

/* What the CPU says through the system, as far as it can be asked: Linux' /proc/cpuinfo. */
TEST(isa_agrees_with_the_system)
{
    size_t size = 0;
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *text = (char *)calloc(1, 100000);
    if (file == NULL || text == NULL) {
        free(text);
        SBIT_TEST_SKIP_CPU("no /proc/cpuinfo");
    }
    size = fread(text, 1, 99999, file);
    fclose(file);
    if (size == 0 || strstr(text, "sse2") == NULL) {
        free(text);
        SBIT_TEST_SKIP_CPU("not an x86");
    }
    const bool avx2 = strstr(text, " avx2") != NULL && strstr(text, " fma") != NULL;
    const bool avx512 = avx2 && strstr(text, " avx512f") != NULL &&
                        strstr(text, " avx512bw") != NULL && strstr(text, " avx512dq") != NULL &&
                        strstr(text, " avx512vl") != NULL;
    const bool vnni256 = avx2 && strstr(text, " avx_vnni") != NULL;
    const bool vnni = avx512 && strstr(text, " avx512_vnni") != NULL;
    CHECK_EQ_I64(sbit_isa_available(SBIT_ISA_AVX2), avx2);
    CHECK_EQ_I64(sbit_isa_available(SBIT_ISA_AVX512), avx512);
    CHECK_EQ_I64(sbit_isa_available(SBIT_ISA_AVX512VNNI), vnni);
    CHECK_EQ_I64(sbit_isa_available(SBIT_ISA_AVX2VNNI), vnni256);
    free(text);
}

static sbit_ctx *make_ctx(int32_t threads, test_heap *heap)
{
    sbit_ctx *ctx = NULL;
    sbit_error error;
    sbit_ctx_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.threads = threads;
    if (heap != NULL) {
        desc.allocator = test_heap_allocator(heap);
    }
    CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error);
    return ctx;
}

TEST(context_survives_each_failed_allocation)
{
    for (int64_t n = 1;; n++) {
        test_heap heap = {0, 0, 0, 0};
        sbit_ctx_desc desc;
        sbit_ctx *ctx = NULL;
        sbit_error error;
        heap.fail_at = n;
        memset(&desc, 0, sizeof desc);
        desc.threads = 3;
        desc.allocator = test_heap_allocator(&heap);
        const sbit_status status = sbit_ctx_create(&desc, &ctx, &error);
        CHECK_STATUS(status, heap.count < n ? SBIT_OK : SBIT_ERR_OUT_OF_MEMORY, error);
        sbit_ctx_destroy(ctx);
        CHECK_EQ_I64(heap.live_bytes, 0);
        if (heap.count < n) {
            break;
        }
    }
}

/* ---- threads */

enum {
    TASK_COUNT = 10007
};
typedef struct counting_task {
    sbit_ctx *ctx; /* not NULL: each index runs a loop of its own */
    unsigned char hits[TASK_COUNT];
    int64_t sum_of_worker[64];
    int64_t bad_workers, bad_inner;
    int32_t threads;
} counting_task;

static void count_inner(void *task, int64_t index, int32_t worker)
{
    (void)worker;
    ((unsigned char *)task)[index]++;
}

static void count_index(void *task, int64_t index, int32_t worker)
{
    counting_task *counting = (counting_task *)task;
    counting->hits[index]++;
    if (worker < 0 || worker >= counting->threads) {
        counting->bad_workers++;
        return;
    }
    counting->sum_of_worker[worker] += index; /* races if two pieces share a worker */
    if (counting->ctx != NULL) {
        unsigned char inner[10] = {0};
        sbit_ctx_parallel(counting->ctx, 10, count_inner, inner);
        for (int i = 0; i < 10; i++) {
            if (inner[i] != 1) {
                counting->bad_inner++;
            }
        }
    }
}

static void check_counting(sbit_ctx *ctx, int64_t count, bool nested)
{
    counting_task *task = (counting_task *)calloc(1, sizeof *task);
    int64_t sum = 0, hits = 0;
    if (task == NULL) {
        return;
    }
    task->ctx = nested ? ctx : NULL;
    task->threads = sbit_ctx_threads(ctx);
    sbit_ctx_parallel(ctx, count, count_index, task);
    for (int64_t i = 0; i < count; i++) {
        hits += task->hits[i] == 1;
    }
    for (int i = 0; i < 64; i++) {
        sum += task->sum_of_worker[i];
    }
    CHECK_EQ_I64(hits, count);
    CHECK_EQ_I64(sum, count * (count - 1) / 2);
    CHECK_EQ_I64(task->bad_workers, 0);
    CHECK_EQ_I64(task->bad_inner, 0);
    free(task);
}

TEST(parallel_runs_each_index_once)
{
    static const int32_t threads[] = {1, 2, 3, 4, 7};
    static const int64_t counts[] = {0, 1, 2, 3, 31, 32, 33, 1000, TASK_COUNT};
    for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++) {
        sbit_ctx *ctx = make_ctx(threads[t], NULL);
        if (ctx == NULL) {
            return;
        }
        CHECK_EQ_I64(sbit_ctx_threads(ctx), threads[t]);
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            check_counting(ctx, counts[c], false);
            check_counting(ctx, counts[c] % 500, true);
        }
        for (int repeat = 0; repeat < 2000; repeat++) {
            check_counting(ctx, 5, false); /* jobs in quick succession */
        }
        sbit_ctx_destroy(ctx);
    }
}

/* The other user of a context is a thread of another context's pool. */
static void use_shared_ctx(void *task, int64_t index, int32_t worker)
{
    (void)index;
    (void)worker;
    for (int i = 0; i < 50; i++) {
        check_counting((sbit_ctx *)task, 200, false);
    }
}

TEST(two_threads_share_a_context)
{
    sbit_ctx *users = make_ctx(3, NULL), *shared = make_ctx(3, NULL);
    if (users != NULL && shared != NULL) {
        sbit_ctx_parallel(users, 3, use_shared_ctx, shared);
    }
    sbit_ctx_destroy(users);
    sbit_ctx_destroy(shared);
}

static void reversed_for(int64_t count, sbit_task_fn fn, void *task, void *user)
{
    ++*(int64_t *)user;
    for (int64_t i = count - 1; i >= 0; i--) {
        fn(task, i, (int32_t)(i % 4));
    }
}

TEST(users_parallel_for_is_used)
{
    int64_t calls = 0;
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    desc.threads = 4;
    desc.parallel_for = reversed_for;
    desc.parallel_user = &calls;
    if (CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error)) {
        CHECK_EQ_I64(sbit_ctx_threads(ctx), 4);
        check_counting(ctx, 100, false);
        CHECK_EQ_I64(calls, 1);
        sbit_ctx_destroy(ctx);
    }
}

/* ---- log, progress, registry, clock */

static char logged[64];
static void log_text(sbit_log_level level, const char *message, void *user)
{
    snprintf(logged, sizeof logged, "%d %s %d", (int)level, message, *(int *)user);
}

static bool stop_at_three(const char *what, int64_t done, int64_t total, void *user)
{
    CHECK_STR(what, "calibrate");
    CHECK_EQ_I64(total, 10);
    ++*(int *)user;
    return done < 3;
}

TEST(log_and_progress_reach_the_user)
{
    int mark = 7, calls = 0;
    sbit_ctx_desc desc;
    sbit_ctx *ctx = NULL;
    sbit_error error;
    memset(&desc, 0, sizeof desc);
    desc.logger.log_fn = log_text;
    desc.logger.user = &mark;
    desc.progress.progress_fn = stop_at_three;
    desc.progress.user = &calls;
    if (!CHECK_OK(sbit_ctx_create(&desc, &ctx, &error), error)) {
        return;
    }
    sbit__log(ctx, SBIT_LOG_WARNING, "%s has %d", "x", 3);
    CHECK_STR(logged, "1 x has 3 7");
    CHECK_OK(sbit__progress(ctx, "calibrate", 2, 10, &error), error);
    CHECK_STATUS(sbit__progress(ctx, "calibrate", 3, 10, &error), SBIT_ERR_CANCELLED, error);
    CHECK_CONTAINS(error.message, "calibrate was cancelled at 3 of 10");
    CHECK_EQ_I64(calls, 2);
    sbit_ctx_destroy(ctx);
}

TEST(registry_keeps_rows_in_order)
{
    int rows[50];
    const char kind[] = "a kind", other[] = "another";
    sbit_error error;
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx *ctx = make_ctx(1, &heap);
    if (ctx == NULL) {
        return;
    }
    CHECK(sbit__registry_at(ctx, kind, 0) == NULL);
    for (int i = 0; i < 50; i++) {
        CHECK_OK(sbit__registry_add(ctx, i % 2 == 0 ? kind : other, &rows[i], &error), error);
    }
    for (int i = 0; i < 50; i++) {
        CHECK(sbit__registry_at(ctx, i % 2 == 0 ? kind : other, (size_t)i / 2) == &rows[i]);
    }
    CHECK(sbit__registry_at(ctx, kind, 25) == NULL && sbit__registry_at(ctx, rows, 0) == NULL);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* Parts by hand: tensor, axis, blocks along an axis; and the walk in runs agrees with each
 * element's part. */
static int64_t part_by_hand(const sbit_tensor *t, int32_t axis, int64_t block, int64_t element)
{
    int64_t index[SBIT_MAX_RANK], part = 0, rest = element;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        index[d] = rest % t->dims[d];
        rest /= t->dims[d];
    }
    if (axis < 0) {
        return 0;
    }
    if (block == 0) {
        return index[axis];
    }
    for (int32_t d = 0; d < t->rank; d++) { /* row-major in the shape of the scales */
        const int64_t blocks = (t->dims[axis] + block - 1) / block;
        part = part * (d == axis ? blocks : t->dims[d]) + (d == axis ? index[d] / block : index[d]);
    }
    return part;
}

TEST(parts_by_hand_and_in_runs)
{
    static const struct {
        int32_t rank;
        int64_t dims[4];
        int32_t axis;
        int64_t block, count;
    } cases[] = {
        {0, {0, 0, 0, 0}, -1, 0, 1}, {1, {7, 0, 0, 0}, -1, 0, 1},  {4, {2, 3, 4, 5}, -1, 0, 1},
        {1, {7, 0, 0, 0}, 0, 0, 7},  {4, {2, 3, 4, 5}, 0, 0, 2},   {4, {2, 3, 4, 5}, 1, 0, 3},
        {4, {2, 3, 4, 5}, 3, 0, 5},  {2, {10, 6, 0, 0}, 0, 4, 18}, {2, {10, 6, 0, 0}, 1, 4, 20},
        {1, {9, 0, 0, 0}, 0, 2, 5},  {4, {2, 10, 2, 2}, 1, 3, 32}, {2, {4, 5, 0, 0}, 1, 8, 4},
        {3, {3, 4, 2, 0}, 0, 2, 16}, {2, {1, 1, 0, 0}, 1, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_tensor t;
        memset(&t, 0, sizeof t);
        t.rank = cases[i].rank;
        memcpy(t.dims, cases[i].dims, sizeof cases[i].dims);
        const sbit_parts parts = sbit_parts_of(&t, cases[i].axis, cases[i].block);
        sbit_runs runs = sbit_runs_of(&parts);
        int64_t at = 0;
        CHECK_EQ_I64(parts.count, cases[i].count);
        CHECK_EQ_I64(sbit_parts_elements(&parts), sbit_tensor_count(&t));
        while (sbit_runs_next(&runs)) {
            CHECK_EQ_I64(runs.at, at);
            CHECK(runs.count > 0);
            for (; at < runs.at + runs.count; at++) {
                CHECK_EQ_I64(runs.part, part_by_hand(&t, cases[i].axis, cases[i].block, at));
                CHECK_EQ_I64(sbit_parts_at(&parts, at), runs.part);
            }
        }
        CHECK_EQ_I64(at, sbit_tensor_count(&t));
    }
    sbit_parts groups = {{2, 7, 3, 1}, {1, 2, 1, 1}, {0, 1, 0, 0}, 4}; /* of 2 channels */
    sbit_runs runs = sbit_runs_of(&groups);
    for (int64_t i = 0; i < 8; i++) {
        CHECK(sbit_runs_next(&runs) && runs.part == i % 4 && runs.count == (i % 4 == 3 ? 3 : 6));
    }
    CHECK(!sbit_runs_next(&runs));
    groups.dims[2] = 0;
    runs = sbit_runs_of(&groups);
    CHECK(!sbit_runs_next(&runs));
}

TEST(clock_goes_forward)
{
    const uint64_t start = sbit__now_ns();
    while (sbit__now_ns() == start) { /* ends only if the clock moves */
    }
    CHECK(sbit__now_ns() > start);
}

/* ---- rng */

/* The numbers that the authors' demonstration prints for pcg32_srandom(42, 54). */
TEST(rng_is_pcg32)
{
    static const uint32_t wanted[] = {0xa15c02b7u, 0x7b47f409u, 0xba1d3330u,
                                      0x83d2f293u, 0xbfa4784bu, 0xcbed606eu};
    sbit_rng rng = sbit_rng_seed(42);
    for (size_t i = 0; i < 6; i++) {
        CHECK_EQ_I64(sbit_rng_next(&rng), wanted[i]);
    }
}

TEST(rng_below_is_even)
{
    int counts[7] = {0};
    sbit_rng rng = sbit_rng_seed(1);
    for (int i = 0; i < 70000; i++) {
        const uint32_t drawn = sbit_rng_below(&rng, 7);
        if (CHECK(drawn < 7)) {
            counts[drawn]++;
        }
    }
    for (int i = 0; i < 7; i++) {
        CHECK_NEAR(counts[i], 10000, 400); /* 4.3 standard deviations of 92.6 */
    }
    CHECK_EQ_I64(sbit_rng_below(&rng, 1), 0);
}

TEST(rng_uniform_and_normal)
{
    double sum = 0, squares = 0, fourth = 0, uniform = 0;
    const int count = 200000;
    sbit_rng rng = sbit_rng_seed(3);
    for (int i = 0; i < count; i++) {
        const double x = (double)sbit_rng_normal(&rng);
        const float u = sbit_rng_uniform(&rng);
        CHECK(u >= 0.0f && u < 1.0f);
        uniform += (double)u;
        sum += x;
        squares += x * x;
        fourth += x * x * x * x;
    }
    CHECK_NEAR(uniform / count, 0.5, 0.003);
    CHECK_NEAR(sum / count, 0.0, 0.01);
    CHECK_NEAR(squares / count, 1.0, 0.015);
    CHECK_NEAR(fourth / count, 3.0, 0.12); /* a normal distribution's kurtosis */
}

/* ---- tensors */

TEST(tensor_alloc_and_free)
{
    static const int64_t dims[] = {2, 3, 5};
    test_heap heap = {0, 0, 0, 0};
    sbit_error error;
    sbit_tensor tensor;
    char text[64], small[12];
    sbit_ctx *ctx = make_ctx(1, &heap);
    if (ctx == NULL) {
        return;
    }
    if (CHECK_OK(sbit_tensor_alloc(ctx, SBIT_F32, 3, dims, &tensor, &error), error)) {
        CHECK_EQ_I64(sbit_tensor_count(&tensor), 30);
        CHECK_EQ_I64(sbit_tensor_bytes(&tensor), 120);
        CHECK_EQ_I64((uintptr_t)tensor.data % 64, 0);
        CHECK_EQ_I64(tensor.dims[3], 0);
        for (int i = 0; i < 30; i++) {
            CHECK_EQ_I64(((const float *)tensor.data)[i], 0);
        }
        sbit_tensor_describe(&tensor, text, sizeof text);
        CHECK_STR(text, "float32[2,3,5]");
        sbit_tensor_describe(&tensor, small, sizeof small);
        CHECK_STR(small, "float32[2,3");
        sbit_tensor_free(ctx, &tensor);
        CHECK(tensor.data == NULL);
    }
    if (CHECK_OK(sbit_tensor_alloc(ctx, SBIT_I4, 3, dims, &tensor, &error), error)) {
        CHECK_EQ_I64(sbit_tensor_bytes(&tensor), 15);
        sbit_tensor_free(ctx, &tensor);
    }
    if (CHECK_OK(sbit_tensor_alloc(ctx, SBIT_F64, 0, NULL, &tensor, &error), error)) {
        CHECK_EQ_I64(sbit_tensor_count(&tensor), 1);
        sbit_tensor_describe(&tensor, text, sizeof text);
        CHECK_STR(text, "float64[]");
        sbit_tensor_free(ctx, &tensor);
    }
    sbit_tensor_free(ctx, NULL);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

TEST(tensor_alloc_refuses)
{
    static const int64_t negative[] = {2, -1}, huge[] = {INT64_MAX / 2, 8};
    static const int64_t ones[] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, large[] = {INT64_MAX};
    sbit_error error;
    sbit_tensor tensor;
    sbit_ctx *ctx = make_ctx(1, NULL);
    if (ctx == NULL) {
        return;
    }
    CHECK_STATUS(sbit_tensor_alloc(ctx, SBIT_F32, 2, negative, &tensor, &error), SBIT_ERR_SHAPE,
                 error);
    CHECK_STATUS(sbit_tensor_alloc(ctx, SBIT_F32, 2, huge, &tensor, &error), SBIT_ERR_LIMIT, error);
    CHECK_STATUS(sbit_tensor_alloc(ctx, SBIT_F32, 1, large, &tensor, &error), SBIT_ERR_LIMIT,
                 error);
    CHECK_STATUS(sbit_tensor_alloc(ctx, SBIT_STRING, 1, large, &tensor, &error), SBIT_ERR_LIMIT,
                 error);
    CHECK_STATUS(sbit_tensor_alloc(ctx, SBIT_F32, 9, ones, &tensor, &error), SBIT_ERR_LIMIT, error);
    CHECK_STATUS(sbit_tensor_alloc(ctx, SBIT_UNDEFINED, 1, ones, &tensor, &error),
                 SBIT_ERR_UNSUPPORTED, error);
    sbit_ctx_destroy(ctx);
}

TEST(tensor_shapes_compare)
{
    sbit_tensor a, b;
    memset(&a, 0, sizeof a);
    a.rank = 2;
    a.dims[0] = 2;
    a.dims[1] = 3;
    b = a;
    CHECK(sbit_tensor_same_shape(&a, &b));
    b.dims[1] = 4;
    CHECK(!sbit_tensor_same_shape(&a, &b));
    b = a;
    b.rank = 1;
    CHECK(!sbit_tensor_same_shape(&a, &b));
}

/* A file written by hand from onnx.proto: dims [2], data_type 1, float_data {1.5, -2}, name "t". */
TEST(tensor_pb_files)
{
    static const unsigned char file_bytes[] = {0x08, 0x02, 0x10, 0x01, 0x22, 0x08, 0,    0,  0xc0,
                                               0x3f, 0,    0,    0,    0xc0, 0x42, 0x01, 't'};
    char path[300];
    sbit_error error;
    sbit_tensor tensor, again;
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx *ctx = make_ctx(1, &heap);
    FILE *file = fopen(test_tmp_path("core_tensor.pb", path, sizeof path), "wb");
    if (ctx == NULL || !CHECK(file != NULL)) {
        return;
    }
    CHECK_EQ_I64(fwrite(file_bytes, 1, sizeof file_bytes, file), sizeof file_bytes);
    fclose(file);
    if (CHECK_OK(sbit_tensor_load_pb(ctx, path, &tensor, &error), error)) {
        CHECK_EQ_I64(tensor.dtype, SBIT_F32);
        CHECK_EQ_I64(tensor.rank, 1);
        CHECK_EQ_I64(tensor.dims[0], 2);
        CHECK_NEAR(((const float *)tensor.data)[0], 1.5, 0);
        CHECK_NEAR(((const float *)tensor.data)[1], -2, 0);
        CHECK_OK(sbit_tensor_save_pb(ctx, path, "t", &tensor, &error), error);
        CHECK_OK(sbit_tensor_load_pb(ctx, path, &again, &error), error);
        CHECK_MEM(tensor.data, again.data, 8);
        sbit_tensor_free(ctx, &again);
        sbit_tensor_free(ctx, &tensor);
    }
    CHECK_STATUS(sbit_tensor_load_pb(ctx, "/no/such/file.pb", &tensor, &error), SBIT_ERR_IO, error);
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

TEST(tensor_strings)
{
    static const int64_t dims[] = {3};
    char path[300], *text = NULL;
    sbit_error error;
    sbit_tensor tensor, again;
    test_heap heap = {0, 0, 0, 0};
    sbit_ctx *ctx = make_ctx(1, &heap);
    test_tmp_path("core_strings.pb", path, sizeof path);
    if (ctx == NULL ||
        !CHECK_OK(sbit__tensor_alloc_strings(ctx, 1, dims, 6, &tensor, &text, &error), error)) {
        return;
    }
    memcpy(text, "ab\0cd", 6);
    ((sbit_str *)tensor.data)[0].data = text;
    ((sbit_str *)tensor.data)[0].size = 2;
    ((sbit_str *)tensor.data)[2].data = text;
    ((sbit_str *)tensor.data)[2].size = 5;
    CHECK_OK(sbit_tensor_save_pb(ctx, path, "s", &tensor, &error), error);
    sbit_tensor_free(ctx, &tensor);
    if (CHECK_OK(sbit_tensor_load_pb(ctx, path, &again, &error), error)) {
        const sbit_str *strings = (const sbit_str *)again.data;
        CHECK_STR(strings[0].data, "ab");
        CHECK_EQ_I64(strings[1].size, 0);
        CHECK_EQ_I64(strings[2].size, 5);
        CHECK_MEM(strings[2].data, "ab\0cd", 6);
        sbit_tensor_free(ctx, &again);
    }
    sbit_ctx_destroy(ctx);
    CHECK_EQ_I64(heap.live_bytes, 0);
}

/* ---- half precision */

TEST(f16_known_values)
{
    static const struct {
        float value;
        uint16_t bits;
    } rows[] = {
        {0.0f, 0x0000},
        {-0.0f, 0x8000},
        {1.0f, 0x3c00},
        {-2.0f, 0xc000},
        {65504.0f, 0x7bff},
        {65519.996f, 0x7bff},
        {65520.0f, 0x7c00},
        {1e30f, 0x7c00},
        {-1e30f, 0xfc00},
        {1.00048828125f, 0x3c00},          /* 1 + 2^-11: tie to even, down */
        {1.00146484375f, 0x3c02},          /* 1 + 3 * 2^-11: tie to even, up */
        {6.103515625e-05f, 0x0400},        /* 2^-14, the smallest normal */
        {6.097555160522461e-05f, 0x03ff},  /* the largest subnormal */
        {5.960464477539063e-08f, 0x0001},  /* 2^-24 */
        {2.9802322387695312e-08f, 0x0000}, /* 2^-25: tie to even, zero */
        {2.98023259404690e-08f, 0x0001},   /* just above */
        {8.940696716308594e-08f, 0x0002},  /* 1.5 * 2^-24: tie to even, up */
        {0.333251953125f, 0x3555},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_MSG(sbit_f32_to_f16(rows[i].value) == rows[i].bits, "row %d: %04x", (int)i,
                  (unsigned)sbit_f32_to_f16(rows[i].value));
    }
    CHECK(isnan((double)sbit_f16_to_f32(sbit_f32_to_f16((float)NAN))));
    CHECK_NEAR(sbit_f16_to_f32(0x0001), 5.960464477539063e-08, 0);
    CHECK_NEAR(sbit_f16_to_f32(0x83ff), -6.097555160522461e-05, 0);
    CHECK(isinf((double)sbit_f16_to_f32(0xfc00)) && sbit_f16_to_f32(0xfc00) < 0.0f);
}

/* Each finite half is its own image; between neighbours the midpoint goes to the even one. */
TEST(f16_rounds_half_to_even_everywhere)
{
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        const float low = sbit_f16_to_f32((uint16_t)bits);
        const float high = sbit_f16_to_f32((uint16_t)(bits + 1));
        const float middle = (low + high) * 0.5f;
        CHECK_EQ_I64(sbit_f32_to_f16(low), bits);
        CHECK_EQ_I64(sbit_f32_to_f16(-low), bits | 0x8000u);
        CHECK_EQ_I64(sbit_f32_to_f16(middle), (bits & 1u) != 0 ? bits + 1 : bits);
        CHECK_EQ_I64(sbit_f32_to_f16(nextafterf(middle, 0.0f)), bits);
        CHECK_EQ_I64(sbit_f32_to_f16(nextafterf(middle, 1e9f)), bits + 1);
    }
}

TEST(bf16_known_values)
{
    CHECK_EQ_I64(sbit_f32_to_bf16(1.0f), 0x3f80);
    CHECK_EQ_I64(sbit_f32_to_bf16(1.00390625f), 0x3f80); /* 1 + 2^-8: tie, down */
    CHECK_EQ_I64(sbit_f32_to_bf16(1.01171875f), 0x3f82); /* 1 + 3 * 2^-8: tie, up */
    CHECK_EQ_I64(sbit_f32_to_bf16(-3.4028235e38f), 0xff80);
    CHECK(isnan((double)sbit_bf16_to_f32(sbit_f32_to_bf16((float)NAN))));
    CHECK_NEAR(sbit_bf16_to_f32(0xc040), -3.0, 0);
}
