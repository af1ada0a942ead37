/* test_ops_nn.c: convolutions, pools, products, norms, recurrent layers, Resize and relatives.
 *
 * Numbers are worked by hand, or come from the issues that field-reports.md quotes (A1.2, A3.1,
 * A3.9, A3.11). The ONNX backend data (test_conformance) and ONNX Runtime (interop/check_ops_nn.py)
 * check the same operators broadly; here are the corners that those leave out.
 */
#include "../sparsebit.h"
#include "test.h"

#include "build_graph.h"

/* ---- running a graph of one node */

#define MAX_IN 8

typedef struct nn {
    build b;
    sbit_value_id in[MAX_IN], out[3];
    size_t in_count, out_count;
    sbit_tensor fed[MAX_IN]; /* data NULL: a constant, or omitted */
    sbit_session *session;
} nn;

static void nn_begin(nn *t, int64_t opset)
{
    memset(t, 0, sizeof *t);
    build_begin(&t->b, opset);
}

static void nn_end(nn *t)
{
    sbit_session_destroy(t->session);
    build_end(&t->b);
}

static void nn_feed(nn *t, sbit_dtype dtype, const char *dims, const void *data)
{
    char name[16];
    snprintf(name, sizeof name, "x%d", (int)t->in_count);
    t->fed[t->in_count] = build_tensor(dtype, dims, data);
    t->in[t->in_count++] = build_input(&t->b, name, dtype, dims);
}

static void nn_constant(nn *t, sbit_dtype dtype, const char *dims, const void *data)
{
    char name[16];
    snprintf(name, sizeof name, "w%d", (int)t->in_count);
    t->in[t->in_count++] = build_constant(&t->b, name, dtype, dims, data);
}

static void nn_omit(nn *t)
{
    t->in_count++;
}

static void nn_node(nn *t, const char *op, const sbit_attr *attrs, size_t attr_count,
                    size_t outputs)
{
    build_node_outputs(&t->b, "", op, op, t->in, t->in_count, attrs, attr_count, t->out, outputs);
    t->out_count = outputs;
    for (size_t i = 0; i < outputs; i++) {
        build_output(&t->b, t->out[i]);
    }
}

/* Plans and runs; the first status that is not OK. */
static sbit_status nn_try(nn *t, const sbit_session_desc *desc)
{
    sbit_error *error = &t->b.error;
    sbit_status status = sbit_session_create(t->b.graph, desc, &t->session, error);
    for (size_t i = 0; status == SBIT_OK && i < t->in_count; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", (int)i);
        if (t->fed[i].data != NULL) {
            status = sbit_session_set_input(t->session, name, &t->fed[i], error);
        }
    }
    return status == SBIT_OK ? sbit_session_run(t->session, error) : status;
}

static const float *nn_result(nn *t, size_t index, int64_t count)
{
    const sbit_value *value = sbit_session_output(t->session, index);
    if (!CHECK(value != NULL)) {
        return NULL;
    }
    return CHECK_EQ_I64(sbit_tensor_count(&value->tensor), count)
               ? (const float *)value->tensor.data
               : NULL;
}

/* Runs, compares output 0 and ends. */
static void nn_expect(nn *t, const float *wanted, int64_t count, double tolerance)
{
    if (CHECK_OK(nn_try(t, NULL), t->b.error)) {
        const float *y = nn_result(t, 0, count);
        for (int64_t i = 0; y != NULL && i < count; i++) {
            CHECK_NEAR(y[i], wanted[i], tolerance);
        }
    }
    nn_end(t);
}

/* Any failure will do, as long as it is a status with a sentence that names the node. */
static void nn_expect_failure(nn *t, const char *part)
{
    const sbit_status status = nn_try(t, NULL);
    CHECK_MSG(status != SBIT_OK, "no failure, wanted one about '%s'", part);
    if (status != SBIT_OK) {
        CHECK_CONTAINS(t->b.error.message, part);
    }
    nn_end(t);
}

static sbit_attr nn_string(const char *name, const char *text)
{
    sbit_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.name = name;
    attr.type = SBIT_ONNX_ATTR_STRING;
    attr.s.data = text;
    attr.s.size = strlen(text);
    return attr;
}

static const float counting[32] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                   17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};

/* ---- pools: A3.1 */

/* pytorch#183528: with ceil_mode the divisor counts padding, but not what lies behind it. */
TEST(average_pool_ceil_mode_counts_what_pads_names)
{
    const int64_t kernel[2] = {3, 3}, strides[2] = {2, 2}, pads[4] = {1, 1, 1, 1};
    const sbit_attr attrs[] = {build_ints("kernel_shape", kernel, 2),
                               build_ints("strides", strides, 2), build_ints("pads", pads, 4),
                               build_int("ceil_mode", 1), build_int("count_include_pad", 1)};
    const float wanted[9] = {1.5555556f, 3.3333333f, 2, 6.3333335f, 11, 6, 4.5f, 7.5f, 4};
    nn t;
    nn_begin(&t, 19);
    nn_feed(&t, SBIT_F32, "1,1,4,4", counting);
    nn_node(&t, "AveragePool", attrs, 5, 1);
    nn_expect(&t, wanted, 9, 1e-6);
}

TEST(average_pool_ceil_mode_of_the_onnx_document)
{
    const int64_t kernel[2] = {3, 3}, strides[2] = {2, 2};
    const sbit_attr attrs[] = {build_ints("kernel_shape", kernel, 2),
                               build_ints("strides", strides, 2), build_int("ceil_mode", 1)};
    const float wanted[4] = {6, 7.5f, 12, 13.5f};
    nn t;
    nn_begin(&t, 10);
    nn_feed(&t, SBIT_F32, "1,1,4,4", counting);
    nn_node(&t, "AveragePool", attrs, 3, 1);
    nn_expect(&t, wanted, 4, 1e-6);
}

/* onnxruntime#15446: a last window that would start in the padding behind the input is dropped. */
TEST(max_pool_ceil_mode_drops_windows_of_padding)
{
    const int64_t kernel[3] = {3, 3, 3}, pads[6] = {1, 1, 1, 1, 1, 1};
    const sbit_attr attrs[] = {build_ints("kernel_shape", kernel, 3),
                               build_ints("strides", kernel, 3), build_ints("pads", pads, 6),
                               build_int("ceil_mode", 1)};
    nn t;
    nn_begin(&t, 12);
    float x[180];
    for (int i = 0; i < 180; i++) {
        x[i] = (float)(i % 7);
    }
    nn_feed(&t, SBIT_F32, "1,2,3,6,5", x);
    nn_node(&t, "MaxPool", attrs, 4, 1);
    if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
        char text[64];
        sbit_tensor_describe(&sbit_session_output(t.session, 0)->tensor, text, sizeof text);
        CHECK_STR(text, "float32[1,2,2,3,2]"); /* last axis: (3 - 1) * 3 >= 5 + 1 */
    }
    nn_end(&t);
}

/* One axis, by the definitions. Returns the number of windows. */
static int pool_oracle(const float *x, int n, int k, int s, int p, int d, bool ceil_mode,
                       bool count_pad, float *max, float *average)
{
    const int room = n + 2 * p - ((k - 1) * d + 1);
    int out = 0;
    if (room < 0) {
        return -1;
    }
    for (int start = -p; start <= -p + room + (ceil_mode ? s - 1 : 0); start += s) {
        if (start > -p + room && start >= n) {
            break;
        }
        int inside = 0, counted = 0;
        float sum = 0, best = 0;
        for (int i = 0; i < k; i++) {
            const int at = start + i * d;
            counted += at < n + p;
            if (at >= 0 && at < n) {
                best = inside == 0 || x[at] > best ? x[at] : best;
                sum += x[at];
                inside++;
            }
        }
        max[out] = best;
        average[out++] = inside == 0 ? 0 : sum / (float)(count_pad ? counted : inside);
    }
    return out;
}

static void pool_case(const char *op, const float *x, int n, const int64_t *kspd, int64_t ceil_mode,
                      int64_t count_pad, const float *wanted, int count)
{
    const int64_t pads[2] = {kspd[2], kspd[2]};
    const sbit_attr attrs[] = {build_ints("kernel_shape", &kspd[0], 1),
                               build_ints("strides", &kspd[1], 1),
                               build_ints("pads", pads, 2),
                               build_ints("dilations", &kspd[3], 1),
                               build_int("ceil_mode", ceil_mode),
                               build_int("count_include_pad", count_pad)};
    char dims[16];
    nn t;
    snprintf(dims, sizeof dims, "1,1,%d", n);
    nn_begin(&t, 22);
    nn_feed(&t, SBIT_F32, dims, x);
    nn_node(&t, op, attrs, 6, 1);
    if (count < 0) {
        nn_expect_failure(&t, "window");
    } else {
        nn_expect(&t, wanted, count, 1e-6);
    }
}

TEST(pools_agree_with_their_definition)
{
    static const float x[9] = {-3, -1, -4, -1.5f, -9, -2, -6, -5, -3.5f};
    for (int bits = 0; bits < 9 * 3 * 3 * 2 * 2 * 2 * 2; bits++) {
        const int n = bits % 9 + 1, k = bits / 9 % 3 + 1, s = bits / 27 % 3 + 1;
        const int p = bits / 81 % 2, d = bits / 162 % 2 + 1;
        const int ceil_mode = bits / 324 % 2, count_pad = bits / 648 % 2;
        const int64_t kspd[4] = {k, s, p, d};
        float max[32], average[32];
        const int count =
            pool_oracle(x, n, k, s, p, d, ceil_mode != 0, count_pad != 0, max, average);
        pool_case("MaxPool", x, n, kspd, ceil_mode, count_pad, max, count);
        pool_case("AveragePool", x, n, kspd, ceil_mode, count_pad, average, count);
    }
}

/* One rule for windows at edges, inside, with indices and in double: what is no number wins. */
TEST(max_pool_keeps_what_is_no_number)
{
    const int64_t kernel[2] = {3, 3}, pads[4] = {1, 1, 1, 1};
    const sbit_attr attrs[] = {build_ints("kernel_shape", kernel, 2), build_ints("pads", pads, 4)};
    for (int form = 0; form < 4; form++) { /* 1: with indices, 2: float64, 3: global */
        float x[25];
        double x64[25];
        for (int i = 0; i < 25; i++) {
            x[i] = i == 6 ? NAN : (float)i;
            x64[i] = (double)x[i];
        }
        nn t;
        nn_begin(&t, 12);
        nn_feed(&t, form >= 2 ? SBIT_F64 : SBIT_F32, "1,1,5,5",
                form >= 2 ? (const void *)x64 : (const void *)x);
        nn_node(&t, form == 3 ? "GlobalMaxPool" : "MaxPool", attrs, form == 3 ? 0 : 2,
                form == 1 ? 2 : 1);
        if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
            const float *y = nn_result(&t, 0, form == 3 ? 1 : 25);
            for (int i = 0; y != NULL && i < (form == 3 ? 1 : 25); i++) {
                const double got =
                    form >= 2 ? ((const double *)(const void *)y)[i] : (double)y[i];
                CHECK((got != got) == (i / 5 <= 2 && i % 5 <= 2));
            }
        }
        nn_end(&t);
    }
}

/* The gradient looks at the regions itself: a session may run it without the forward node. */
TEST(roi_pool_gradient_refuses_what_the_pool_refuses)
{
    const float roi[5] = {1, 0, 0, 1, 1}; /* of image 1 in a batch of one */
    nn t;
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_F32, "1,1,2,2", counting);
    nn_feed(&t, SBIT_F32, "1,5", roi);
    nn_feed(&t, SBIT_F32, "1,1,1,1", counting);
    build_node_outputs(&t.b, "sbit", "MaxRoiPoolGrad", "g", t.in, 3, NULL, 0, t.out, 1);
    build_output(&t.b, t.out[0]);
    nn_expect_failure(&t, "region 0");
}

TEST(max_pool_indices_by_rows_and_by_columns)
{
    const int64_t kernel[2] = {2, 2};
    for (int order = 0; order < 2; order++) {
        const sbit_attr attrs[] = {build_ints("kernel_shape", kernel, 2),
                                   build_ints("strides", kernel, 2),
                                   build_int("storage_order", order)};
        const float x[8] = {1, 9, 2, 3, 8, 4, 7, 7};
        nn t;
        nn_begin(&t, 12);
        nn_feed(&t, SBIT_F32, "1,1,2,4", x);
        nn_node(&t, "MaxPool", attrs, 3, 2);
        if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
            const int64_t *indices =
                (const int64_t *)(const void *)sbit_session_output(t.session, 1)->tensor.data;
            CHECK_EQ_I64(indices[0], order == 0 ? 1 : 2);
            CHECK_EQ_I64(indices[1], order == 0 ? 6 : 5); /* the first of two equal ones */
        }
        nn_end(&t);
    }
}

TEST(max_unpool_refuses_wild_indices)
{
    const int64_t kernel[2] = {2, 2};
    const sbit_attr attrs[] = {build_ints("kernel_shape", kernel, 2),
                               build_ints("strides", kernel, 2)};
    for (int wild = 0; wild < 3; wild++) {
        const int64_t indices[2] = {5, wild == 0 ? 7 : wild == 1 ? 8 : -1};
        const float wanted[8] = {0, 0, 0, 0, 0, 1, 0, 2};
        nn t;
        nn_begin(&t, 11);
        nn_feed(&t, SBIT_F32, "1,1,1,2", counting);
        nn_feed(&t, SBIT_I64, "1,1,1,2", indices);
        nn_node(&t, "MaxUnpool", attrs, 2, 1);
        if (wild == 0) {
            nn_expect(&t, wanted, 8, 0);
        } else {
            nn_expect_failure(&t, "outside");
        }
    }
}

/* ---- softmax: A3.9 */

TEST(softmax_flattens_before_version_13)
{
    for (int opset = 11; opset <= 13; opset += 2) {
        const sbit_attr axis = build_int("axis", 1);
        nn t;
        nn_begin(&t, opset);
        float x[24];
        for (int i = 0; i < 24; i++) {
            x[i] = (float)(i * 7 % 5) * 0.5f;
        }
        nn_feed(&t, SBIT_F32, "1,2,3,4", x);
        nn_node(&t, "Softmax", &axis, 1, 1);
        const float *y = CHECK_OK(nn_try(&t, NULL), t.b.error) ? nn_result(&t, 0, 24) : NULL;
        float sum = 0;
        for (int i = 0; y != NULL && i < 24; i++) {
            sum += y[i];
            if (opset == 13 && i < 12) {
                CHECK_NEAR(y[i] + y[i + 12], 1, 1e-6);
            }
        }
        CHECK_NEAR(sum, opset == 11 ? 1 : 12, 1e-5);
        nn_end(&t);
    }
}

TEST(softmax_family_by_hand)
{
    static const char *const ops[3] = {"Softmax", "LogSoftmax", "Hardmax"};
    static const float wanted[3][3] = {{0.09003057f, 0.24472847f, 0.66524096f},
                                       {-2.40760596f, -1.40760596f, -0.40760596f},
                                       {0, 0, 1}};
    for (int i = 0; i < 3; i++) {
        nn t;
        nn_begin(&t, 13);
        nn_feed(&t, SBIT_F32, "3", counting);
        nn_node(&t, ops[i], NULL, 0, 1);
        nn_expect(&t, wanted[i], 3, 2e-6);
    }
}

/* Lines of up to four elements are turned, sixteen at a time. */
TEST(softmax_of_short_lines)
{
    static const char *const dims[4] = {"37,2", "37,3", "37,4", "37,5"};
    float x[37 * 5], wanted[37 * 5];
    for (int n = 2; n <= 5; n++) {
        for (int log_too = 0; log_too < 2; log_too++) {
            nn t;
            for (int i = 0; i < 37; i++) {
                double sum = 0.0;
                for (int k = 0; k < n; k++) {
                    x[i * n + k] = (float)((i * 7 + k * 5) % 11) - 3.0f;
                    sum += exp((double)x[i * n + k]);
                }
                for (int k = 0; k < n; k++) {
                    const double share = exp((double)x[i * n + k]) / sum;
                    wanted[i * n + k] = (float)(log_too ? log(share) : share);
                }
            }
            nn_begin(&t, 13);
            nn_feed(&t, SBIT_F32, dims[n - 2], x);
            nn_node(&t, log_too ? "LogSoftmax" : "Softmax", NULL, 0, 1);
            nn_expect(&t, wanted, 37 * n, 2e-6);
        }
    }
}

/* ---- convolutions */

TEST(conv_three_by_three_of_ones)
{
    static const float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    const float wanted[25] = {12,  21, 27, 33,  24,  33,  54,  63, 72,  51,  63,  99, 108,
                              117, 81, 93, 144, 153, 162, 111, 72, 111, 117, 123, 84};
    const int64_t pads[4] = {1, 1, 1, 1};
    float x[25];
    for (int i = 0; i < 25; i++) {
        x[i] = (float)i;
    }
    for (int constant = 0; constant < 2; constant++) {
        const sbit_attr attr = build_ints("pads", pads, 4);
        nn t;
        nn_begin(&t, 11);
        nn_feed(&t, SBIT_F32, "1,1,5,5", x);
        (constant ? nn_constant : nn_feed)(&t, SBIT_F32, "1,1,3,3", ones);
        nn_node(&t, "Conv", &attr, 1, 1);
        nn_expect(&t, wanted, 25, 1e-4);
    }
}

/* W is [Cin, Cout/g, k]: out channel g * (Cout/g) + j sees input channels of group g only. */
TEST(conv_transpose_groups)
{
    const float x[4] = {1, 2, 10, 20};           /* [1, 2, 2]: one channel for each group */
    const float w[8] = {1, 2, 3, 4, 5, 6, 7, 8}; /* [2, 2, 2] */
    const float bias[4] = {0, 100, 0, 0};
    /* stride 2: no overlap, so that y = x[g] (outer) w[g][j] */
    const float wanted[16] = {1, 2, 2, 4, 103, 104, 106, 108, 50, 60, 100, 120, 70, 80, 140, 160};
    const int64_t stride = 2;
    const sbit_attr attrs[] = {build_int("group", 2), build_ints("strides", &stride, 1)};
    for (int constant = 0; constant < 2; constant++) {
        nn t;
        nn_begin(&t, 11);
        nn_feed(&t, SBIT_F32, "1,2,2", x);
        (constant ? nn_constant : nn_feed)(&t, SBIT_F32, "2,2,2", w);
        nn_constant(&t, SBIT_F32, "4", bias);
        nn_node(&t, "ConvTranspose", attrs, 2, 1);
        nn_expect(&t, wanted, 16, 1e-5);
    }
}

TEST(conv_transpose_overlap_dilation_and_output_padding)
{
    const float x[2] = {1, 10}, w[2] = {1, 2};
    const int64_t stride = 2, dilation = 3, padding = 1, pads[2] = {1, 0};
    const sbit_attr attrs[] = {
        build_ints("strides", &stride, 1), build_ints("dilations", &dilation, 1),
        build_ints("output_padding", &padding, 1), build_ints("pads", pads, 2)};
    /* full: 1 at 0, 2 at 3, 10 at 2, 20 at 5, length 2*1 + 4 + 1 = 7; the first is cut off */
    const float wanted[6] = {0, 10, 2, 0, 20, 0};
    nn t;
    nn_begin(&t, 11);
    nn_feed(&t, SBIT_F32, "1,1,2", x);
    nn_constant(&t, SBIT_F32, "1,1,2", w);
    nn_node(&t, "ConvTranspose", attrs, 4, 1);
    nn_expect(&t, wanted, 6, 1e-6);
}

TEST(conv_in_float16)
{
    const uint16_t x[3] = {0x3c00, 0x4000, 0x4200}; /* 1 2 3 */
    const uint16_t w[2] = {0x3800, 0xbc00};         /* 0.5 -1 */
    nn t;
    nn_begin(&t, 11);
    nn_feed(&t, SBIT_F16, "1,1,3", x);
    nn_constant(&t, SBIT_F16, "1,1,2", w);
    nn_node(&t, "Conv", NULL, 0, 1);
    if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
        const uint16_t *y =
            (const uint16_t *)(const void *)sbit_session_output(t.session, 0)->tensor.data;
        CHECK_NEAR(sbit_f16_to_f32(y[0]), -1.5, 0);
        CHECK_NEAR(sbit_f16_to_f32(y[1]), -2, 0);
    }
    nn_end(&t);
}

/* A1.2: ranks and attribute lengths that do not fit each other. */
TEST(conv_refuses_ranks_that_do_not_fit)
{
    static const char *const dims[] = {"", "2", "2,3", "2,3,1", "2,3,1,1,1"};
    static const char *const ops[] = {"Conv", "ConvTranspose"};
    float w[6] = {0};
    float x[60] = {0};
    for (size_t i = 0; i < 2 * sizeof dims / sizeof dims[0]; i++) {
        nn t;
        nn_begin(&t, 11);
        nn_feed(&t, SBIT_F32, "1,3,4,5", x);
        nn_constant(&t, SBIT_F32, dims[i / 2], w);
        nn_node(&t, ops[i % 2], NULL, 0, 1);
        nn_expect_failure(&t, "rank");
    }
}

TEST(conv_refuses_attributes_of_wrong_length)
{
    static const char *const names[] = {"strides", "dilations", "pads", "kernel_shape"};
    static const char *const ops[] = {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"};
    static const int64_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const size_t lengths[] = {0, 1, 3, 5};
    float data[60] = {0};
    for (size_t i = 0; i < 5 * 4 * 4; i++) {
        const char *op = ops[i / 16], *name = names[i / 4 % 4];
        const sbit_attr attrs[] = {build_ints(name, ones, lengths[i % 4]),
                                   build_ints("kernel_shape", ones, 2)};
        nn t;
        nn_begin(&t, 11);
        nn_feed(&t, SBIT_F32, "1,3,4,5", data);
        if (i / 16 < 2) {
            nn_constant(&t, SBIT_F32, "3,3,1,1", data);
        }
        nn_node(&t, op, attrs, i / 4 % 4 == 3 || i / 16 < 2 ? 1 : 2, 1);
        nn_expect_failure(&t, name);
    }
}

static void conv_refuses(const sbit_attr *attr, const char *w_dims, const char *part)
{
    float data[240] = {0};
    nn t;
    nn_begin(&t, 11);
    nn_feed(&t, SBIT_F32, "1,4,4,5", data);
    nn_constant(&t, SBIT_F32, w_dims, data);
    nn_node(&t, "Conv", attr, 1, 1);
    nn_expect_failure(&t, part);
}

TEST(conv_refuses_numbers_that_make_no_sense)
{
    const int64_t minus[4] = {-1, 1, 1, 1}, zero[2] = {0, 1}, huge[2] = {1, INT64_MAX};
    const int64_t kernel[2] = {3, 3};
    const sbit_attr pads = build_ints("pads", minus, 4), strides = build_ints("strides", zero, 2);
    const sbit_attr dilations = build_ints("dilations", huge, 2), none = build_int("group", 0);
    const sbit_attr three = build_int("group", 3), four = build_int("group", 4);
    const sbit_attr shape = build_ints("kernel_shape", kernel, 2);
    const sbit_attr pad = nn_string("auto_pad", "FOO");
    conv_refuses(&pads, "2,4,1,1", "pads");
    conv_refuses(&strides, "2,4,1,1", "strides");
    conv_refuses(&dilations, "2,4,1,1", "dilations");
    conv_refuses(&none, "2,4,1,1", "group");
    conv_refuses(&three, "2,4,1,1", "group");
    conv_refuses(&four, "2,4,1,1", "group");
    conv_refuses(&shape, "2,4,1,1", "kernel_shape");
    conv_refuses(&pad, "2,4,1,1", "FOO");
    conv_refuses(&shape, "2,3,3,3", "channels");
}

/* The same packed weights serve images of any size. */
TEST(conv_of_changing_sizes)
{
    float x[2 * 7 * 9], w[9];
    nn t;
    nn_begin(&t, 11);
    for (int i = 0; i < 126; i++) {
        x[i] = (float)(i % 11);
    }
    for (int i = 0; i < 9; i++) {
        w[i] = (float)(i == 4); /* identity */
    }
    const int64_t pads[4] = {1, 1, 1, 1};
    const sbit_attr attr = build_ints("pads", pads, 4);
    t.in[0] = build_input(&t.b, "x0", SBIT_F32, "N,1,H,W");
    t.in_count = 1;
    nn_constant(&t, SBIT_F32, "1,1,3,3", w);
    nn_node(&t, "Conv", &attr, 1, 1);
    CHECK_OK(sbit_session_create(t.b.graph, NULL, &t.session, &t.b.error), t.b.error);
    static const char *const shapes[] = {"1,1,7,9", "2,1,7,9", "2,1,3,4", "1,1,1,1"};
    for (size_t i = 0; t.session != NULL && i < 4; i++) {
        const sbit_tensor tensor = build_tensor(SBIT_F32, shapes[i], x);
        CHECK_OK(sbit_session_set_input(t.session, "x0", &tensor, &t.b.error), t.b.error);
        if (CHECK_OK(sbit_session_run(t.session, &t.b.error), t.b.error)) {
            const float *y = nn_result(&t, 0, sbit_tensor_count(&tensor));
            CHECK(y != NULL && memcmp(x, y, sbit_tensor_bytes(&tensor)) == 0);
        }
    }
    nn_end(&t);
}

/* ---- products */

TEST(gemm_broadcasts_c_in_every_form)
{
    const float a[4] = {1, 2, 3, 4}, b[6] = {1, 0, 2, 0, 1, 3}; /* a * b = 1 2 8, 3 4 18 */
    const float c[6] = {10, 20, 30, 40, 50, 60};
    static const char *const dims[] = {"", "1", "3", "1,3", "2,1", "2,3", "1,1"};
    static const int index[7][6] = {{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {0, 1, 2, 0, 1, 2},
                                    {0, 1, 2, 0, 1, 2}, {0, 0, 0, 1, 1, 1}, {0, 1, 2, 3, 4, 5},
                                    {0, 0, 0, 0, 0, 0}};
    static const float product[6] = {1, 2, 8, 3, 4, 18};
    const sbit_attr attrs[] = {build_float("alpha", 2), build_float("beta", 0.5f)};
    for (size_t i = 0; i < 7 * 4; i++) {
        const bool scaled = i % 2 == 1, constant = i / 2 % 2 == 1;
        float wanted[6];
        nn t;
        for (int k = 0; k < 6; k++) {
            wanted[k] = scaled ? 2 * product[k] + 0.5f * c[index[i / 4][k]]
                               : product[k] + c[index[i / 4][k]];
        }
        nn_begin(&t, 13);
        nn_feed(&t, SBIT_F32, "2,2", a);
        (constant ? nn_constant : nn_feed)(&t, SBIT_F32, "2,3", b);
        (constant ? nn_constant : nn_feed)(&t, SBIT_F32, dims[i / 4], c);
        nn_node(&t, "Gemm", attrs, scaled ? 2 : 0, 1);
        nn_expect(&t, wanted, 6, 1e-5);
    }
}

TEST(gemm_without_columns_to_sum)
{
    nn t;
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_F32, "2,0", counting);
    nn_feed(&t, SBIT_F32, "0,3", counting);
    nn_feed(&t, SBIT_F32, "2,3", counting);
    nn_node(&t, "Gemm", NULL, 0, 1);
    nn_expect(&t, counting, 6, 0);
}

TEST(matmul_of_integers_wraps)
{
    const int32_t a[2] = {65536, 3}, b[2] = {65536, -2};
    nn t;
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_I32, "2", a);
    nn_feed(&t, SBIT_I32, "2", b);
    nn_node(&t, "MatMul", NULL, 0, 1);
    if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
        const sbit_tensor *y = &sbit_session_output(t.session, 0)->tensor;
        CHECK_EQ_I64(y->rank, 0);
        CHECK_EQ_I64(*(const int32_t *)y->data, -6); /* 2^32 - 6 */
    }
    nn_end(&t);
}

TEST(matmul_refuses_what_does_not_fit)
{
    static const char *const dims[][2] = {{"2,3", "2,3"}, {"", "3"},          {"3", ""},
                                          {"3", "4"},     {"2,2,3", "3,3,1"}, {"2,3", "4"}};
    for (size_t i = 0; i < 6; i++) {
        nn t;
        nn_begin(&t, 13);
        nn_feed(&t, SBIT_F32, dims[i][0], counting);
        nn_feed(&t, SBIT_F32, dims[i][1], counting);
        nn_node(&t, "MatMul", NULL, 0, 1);
        nn_expect_failure(&t, "MatMul");
    }
}

/* ---- fusion: Conv, ConvTranspose, MatMul and Gemm with what the executor joins to them */

static void fused_graph(nn *t, const char *op, const char *x_dims, const char *w_dims,
                        const char *r_dims, const float *data)
{
    nn_begin(t, 17);
    nn_feed(t, SBIT_F32, x_dims, data);
    nn_constant(t, SBIT_F32, w_dims, data + 7);
    const sbit_value_id y = build_node(&t->b, op, "first", t->in, 2, NULL, 0);
    nn_feed(t, SBIT_F32, r_dims, data + 3);
    const sbit_value_id sum = build_binary(&t->b, "Add", "sum", y, t->in[2]);
    build_output(&t->b, build_unary(&t->b, "HardSwish", "last", sum));
}

TEST(fused_epilogues_give_the_same)
{
    static const char *const cases[][4] = {{"Conv", "2,3,5,6", "4,3,1,1", "2,4,5,6"},
                                           {"Conv", "2,3,5,6", "4,3,3,2", "2,4,3,5"},
                                           {"Conv", "1,2,9", "2,2,4", "1,2,6"},
                                           {"ConvTranspose", "1,3,4,4", "3,2,2,2", "1,2,5,5"},
                                           {"MatMul", "3,4,5", "5,6", "3,4,6"},
                                           {"MatMul", "3,4,5", "3,5,6", "3,4,6"},
                                           {"Gemm", "7,5", "5,6", "7,6"}};
    float data[400];
    sbit_rng rng = sbit_rng_seed(3);
    for (int i = 0; i < 400; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sbit_session_desc plain;
        nn a, b;
        memset(&plain, 0, sizeof plain);
        plain.disable_fusion = true;
        fused_graph(&a, cases[i][0], cases[i][1], cases[i][2], cases[i][3], data);
        fused_graph(&b, cases[i][0], cases[i][1], cases[i][2], cases[i][3], data);
        if (CHECK_OK(nn_try(&a, NULL), a.b.error) && CHECK_OK(nn_try(&b, &plain), b.b.error)) {
            const sbit_tensor *y = &sbit_session_output(b.session, 0)->tensor;
            const float *wanted = (const float *)y->data;
            const float *got = nn_result(&a, 0, sbit_tensor_count(y));
            for (int64_t k = 0; got != NULL && k < sbit_tensor_count(y); k++) {
                CHECK_NEAR(got[k], wanted[k], 2e-5);
            }
        }
        nn_end(&a);
        nn_end(&b);
    }
}

/* ---- norms */

TEST(layer_normalization_by_hand)
{
    const float x[4] = {1, 2, 3, 6}, scale[4] = {1, 1, 2, 2}, bias[4] = {0, 1, 0, 1};
    const float wanted[4] = {-1.06904344f, 0.46547828f, 0, 4.20713033f};
    nn t;
    nn_begin(&t, 17);
    nn_feed(&t, SBIT_F32, "1,4", x);
    nn_constant(&t, SBIT_F32, "4", scale);
    nn_constant(&t, SBIT_F32, "4", bias);
    nn_node(&t, "LayerNormalization", NULL, 0, 3);
    if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
        const float *y = nn_result(&t, 0, 4), *mean = nn_result(&t, 1, 1);
        const float *factor = nn_result(&t, 2, 1);
        for (int i = 0; y != NULL && i < 4; i++) {
            CHECK_NEAR(y[i], wanted[i], 2e-6);
        }
        CHECK_NEAR(mean[0], 3, 1e-6);
        CHECK_NEAR(factor[0], 0.53452172, 1e-6); /* 1 / sqrt(3.5 + 1e-5) */
    }
    nn_end(&t);
}

TEST(batch_normalization_trains)
{
    const float x[4] = {1, 3, 5, 7}, one[1] = {1}, zero[1] = {0}, two[1] = {2};
    const sbit_attr attrs[] = {build_int("training_mode", 1), build_float("momentum", 0.75f),
                               build_float("epsilon", 0)};
    nn t;
    nn_begin(&t, 15);
    nn_feed(&t, SBIT_F32, "2,1,2", x);
    nn_constant(&t, SBIT_F32, "1", one);
    nn_constant(&t, SBIT_F32, "1", zero);
    nn_constant(&t, SBIT_F32, "1", two);
    nn_constant(&t, SBIT_F32, "1", one);
    nn_node(&t, "BatchNormalization", attrs, 3, 3);
    if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
        CHECK_NEAR(nn_result(&t, 0, 4)[0], -3 / sqrt(5.0), 1e-6); /* mean 4, variance 5 */
        CHECK_NEAR(nn_result(&t, 1, 1)[0], 2 * 0.75 + 4 * 0.25, 1e-6);
        CHECK_NEAR(nn_result(&t, 2, 1)[0], 1 * 0.75 + 5 * 0.25, 1e-6);
    }
    nn_end(&t);
}

/* A3.18: widths that change from run to run. */
TEST(instance_normalization_of_many_widths)
{
    const float one[2] = {1, 1}, zero[2] = {0, 0};
    float x[2 * 2 * 40];
    sbit_rng rng = sbit_rng_seed(5);
    nn t;
    nn_begin(&t, 6);
    for (int i = 0; i < 160; i++) {
        x[i] = sbit_rng_normal(&rng);
    }
    t.in[0] = build_input(&t.b, "x0", SBIT_F32, "N,2,W");
    t.in_count = 1;
    nn_constant(&t, SBIT_F32, "2", one);
    nn_constant(&t, SBIT_F32, "2", zero);
    nn_node(&t, "InstanceNormalization", NULL, 0, 1);
    CHECK_OK(sbit_session_create(t.b.graph, NULL, &t.session, &t.b.error), t.b.error);
    for (int width = 17; t.session != NULL && width <= 40; width++) {
        char dims[16];
        snprintf(dims, sizeof dims, "%d,2,%d", width % 2 + 1, width);
        const sbit_tensor tensor = build_tensor(SBIT_F32, dims, x);
        CHECK_OK(sbit_session_set_input(t.session, "x0", &tensor, &t.b.error), t.b.error);
        if (!CHECK_OK(sbit_session_run(t.session, &t.b.error), t.b.error)) {
            break;
        }
        const float *y = nn_result(&t, 0, sbit_tensor_count(&tensor));
        double sum = 0, squares = 0;
        for (int i = 0; y != NULL && i < width; i++) {
            sum += (double)y[i];
            squares += (double)y[i] * (double)y[i];
        }
        CHECK_NEAR(sum / width, 0, 1e-5);
        CHECK_NEAR(squares / width, 1, 1e-3);
    }
    nn_end(&t);
}

/* ---- recurrent layers: one input, one hidden, two steps x = 1, 2 */

static void recurrent_case(const char *op, const float *w, const char *w_dims, const float *r,
                           const float *bias, const char *b_dims, const float *peephole,
                           const sbit_attr *attrs, size_t attr_count, const float *wanted)
{
    nn t;
    nn_begin(&t, 14);
    nn_feed(&t, SBIT_F32, "2,1,1", counting);
    nn_constant(&t, SBIT_F32, w_dims, w);
    nn_constant(&t, SBIT_F32, w_dims, r);
    if (bias != NULL) {
        nn_constant(&t, SBIT_F32, b_dims, bias);
    }
    if (peephole != NULL) {
        nn_omit(&t);
        nn_omit(&t);
        nn_omit(&t);
        nn_omit(&t);
        nn_constant(&t, SBIT_F32, "1,3", peephole);
    }
    nn_node(&t, op, attrs, attr_count, 1);
    nn_expect(&t, wanted, 2, 1e-6);
}

TEST(recurrent_layers_by_hand)
{
    const float half[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    const float quarter[4] = {0.25f, 0.25f, 0.25f, 0.25f};
    const float lstm[2] = {0.17426972f, 0.48651755f}, peep[2] = {0.17802732f, 0.51016902f};
    const float peephole[3] = {0.1f, 0.2f, 0.3f};
    const float gru_w[3] = {0.5f, 0.25f, 1}, gru_b[6] = {0, 0, 0, 0, 0, 0.3f};
    const float gru[2] = {0.28753277f, 0.45246491f}, before[2] = {0.31103305f, 0.47126082f};
    const float rnn[2] = {0.46211716f, 0.84288609f}; /* tanh(.5), tanh(1 + .5 * tanh(.5)) */
    const sbit_attr linear = build_int("linear_before_reset", 1);
    recurrent_case("LSTM", half, "1,4,1", quarter, NULL, "", NULL, NULL, 0, lstm);
    recurrent_case("LSTM", half, "1,4,1", quarter, NULL, "", peephole, NULL, 0, peep);
    recurrent_case("GRU", gru_w, "1,3,1", half, NULL, "", NULL, NULL, 0, gru);
    recurrent_case("GRU", gru_w, "1,3,1", half, gru_b, "1,6", NULL, &linear, 1, before);
    recurrent_case("RNN", half, "1,1,1", half, NULL, "", NULL, NULL, 0, rnn);
}

/* Short sequences: zeros behind them, last states of their own, reverse begins at their end. */
TEST(recurrent_sequence_lengths)
{
    static const char *const directions[2] = {"forward", "reverse"};
    const float x[6] = {1, 10, 2, 20, 4, 40}; /* [3, 2, 1] */
    const float one[1] = {1};
    const int32_t lengths[2] = {2, 3};
    sbit_str act = {"Affine", 6}; /* y = x: running sums */
    static const float wanted[2][6] = {{1, 10, 3, 30, 0, 70}, {3, 70, 2, 60, 0, 40}};
    static const float last[2][2] = {{3, 70}, {3, 70}};
    for (int i = 0; i < 2; i++) {
        sbit_attr attrs[2];
        memset(attrs, 0, sizeof attrs);
        attrs[0] = nn_string("direction", directions[i]);
        attrs[1].name = "activations";
        attrs[1].type = SBIT_ONNX_ATTR_STRINGS;
        attrs[1].strings = &act;
        attrs[1].count = 1;
        nn t;
        nn_begin(&t, 14);
        nn_feed(&t, SBIT_F32, "3,2,1", x);
        nn_constant(&t, SBIT_F32, "1,1,1", one);
        nn_constant(&t, SBIT_F32, "1,1,1", one);
        nn_omit(&t);
        nn_feed(&t, SBIT_I32, "2", lengths);
        nn_node(&t, "RNN", attrs, 2, 2);
        if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
            const float *y = nn_result(&t, 0, 6), *h = nn_result(&t, 1, 2);
            for (int k = 0; y != NULL && k < 6; k++) {
                CHECK_NEAR(y[k], wanted[i][k], 1e-5);
            }
            CHECK_NEAR(h[0], last[i][0], 1e-5);
            CHECK_NEAR(h[1], last[i][1], 1e-5);
        }
        nn_end(&t);
    }
}

/* No step was made: the last value of the hidden state is the first one, and Y is 0. */
TEST(recurrent_state_outlives_no_steps)
{
    static const char *const ops[3] = {"RNN", "GRU", "LSTM"};
    const float weights[4] = {1, 1, 1, 1}, state[1] = {0.25f}, x[1] = {5};
    const int32_t lengths[1] = {0};
    for (int i = 0; i < 6; i++) {
        static const char *const gates[3] = {"1,1,1", "1,3,1", "1,4,1"};
        nn t;
        nn_begin(&t, 14);
        nn_feed(&t, SBIT_F32, i < 3 ? "1,1,1" : "0,1,1", x);
        nn_constant(&t, SBIT_F32, gates[i % 3], weights);
        nn_constant(&t, SBIT_F32, gates[i % 3], weights);
        nn_omit(&t);
        if (i < 3) {
            nn_feed(&t, SBIT_I32, "1", lengths);
        } else {
            nn_omit(&t);
        }
        nn_feed(&t, SBIT_F32, "1,1,1", state);
        nn_node(&t, ops[i % 3], NULL, 0, 2);
        if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
            const float *y = nn_result(&t, 0, i < 3 ? 1 : 0), *h = nn_result(&t, 1, 1);
            CHECK(y == NULL || i >= 3 || y[0] == 0.0f);
            CHECK(h != NULL && h[0] == 0.25f);
        }
        nn_end(&t);
    }
}

TEST(recurrent_refuses_what_does_not_fit)
{
    static const char *const dims[][3] = {{"2,1", "1,4,1", "1,4,1"},   {"2,1,1", "1,4", "1,4,1"},
                                          {"2,1,1", "1,3,1", "1,4,1"}, {"2,1,1", "1,4,2", "1,4,1"},
                                          {"2,1,1", "2,4,1", "1,4,1"}, {"2,1,1", "1,4,1", "1,8,1"}};
    for (size_t i = 0; i < 6; i++) {
        nn t;
        nn_begin(&t, 14);
        nn_feed(&t, SBIT_F32, dims[i][0], counting);
        nn_constant(&t, SBIT_F32, dims[i][1], counting);
        nn_constant(&t, SBIT_F32, dims[i][2], counting);
        nn_node(&t, "LSTM", NULL, 0, 1);
        nn_expect_failure(&t, "LSTM");
    }
    const int32_t lengths[1] = {9};
    nn t;
    nn_begin(&t, 14);
    nn_feed(&t, SBIT_F32, "2,1,1", counting);
    nn_constant(&t, SBIT_F32, "1,4,1", counting);
    nn_constant(&t, SBIT_F32, "1,4,1", counting);
    nn_omit(&t);
    nn_feed(&t, SBIT_I32, "1", lengths);
    nn_node(&t, "LSTM", NULL, 0, 1);
    nn_expect_failure(&t, "sequence_lens");
}

/* ---- Resize and relatives */

static void resize_case(int64_t opset, const char *mode, const char *place, const float *scales,
                        const char *x_dims, const float *wanted, int64_t count)
{
    const sbit_attr attrs[] = {nn_string("mode", mode),
                               nn_string("coordinate_transformation_mode", place)};
    nn t;
    nn_begin(&t, opset);
    nn_feed(&t, SBIT_F32, x_dims, counting);
    if (opset >= 11) {
        nn_omit(&t);
    }
    nn_constant(&t, SBIT_F32, "4", scales);
    nn_node(&t, opset == 9 ? "Upsample" : "Resize", attrs, opset >= 11 ? 2 : 1, 1);
    nn_expect(&t, wanted, count, 1e-6);
}

TEST(resize_by_hand)
{
    const float twice[4] = {1, 1, 2, 2}, wide[4] = {1, 1, 1, 2}, narrow[4] = {1, 1, 1, 0.5f};
    const float nearest[16] = {1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4};
    const float half_pixel[4] = {1, 1.25f, 1.75f, 2};
    const float asymmetric[4] = {1, 1.5f, 2, 2}, corners[4] = {1, 4 / 3.0f, 5 / 3.0f, 2};
    const float odd[2] = {1.5f, 3.5f}, first[2] = {1, 3};
    resize_case(9, "nearest", "", twice, "1,1,2,2", nearest, 16);
    resize_case(10, "nearest", "", twice, "1,1,2,2", nearest, 16);
    resize_case(13, "nearest", "asymmetric", twice, "1,1,2,2", nearest, 16);
    resize_case(13, "linear", "half_pixel", wide, "1,1,1,2", half_pixel, 4);
    resize_case(13, "linear", "asymmetric", wide, "1,1,1,2", asymmetric, 4);
    resize_case(10, "linear", "", wide, "1,1,1,2", asymmetric, 4);
    resize_case(13, "linear", "align_corners", wide, "1,1,1,2", corners, 4);
    resize_case(13, "linear", "half_pixel", narrow, "1,1,1,4", odd, 2);
    resize_case(13, "nearest", "half_pixel", narrow, "1,1,1,4", first, 2);
}

/* Sizes that come from the data: the shape is found while running. */
TEST(resize_with_sizes_as_an_input)
{
    const int64_t sizes[4] = {1, 1, 1, 4};
    const float wanted[4] = {1, 1.25f, 1.75f, 2};
    const sbit_attr mode = nn_string("mode", "linear");
    nn t;
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_F32, "1,1,1,2", counting);
    nn_omit(&t);
    nn_omit(&t);
    nn_feed(&t, SBIT_I64, "4", sizes);
    nn_node(&t, "Resize", &mode, 1, 1);
    nn_expect(&t, wanted, 4, 1e-6);
}

TEST(resize_refuses_what_makes_no_sense)
{
    const float zero[4] = {1, 1, 0, 1}, minus[4] = {1, 1, -2, 1}, wild[4] = {1, 1, NAN, 1};
    const float huge[4] = {1, 1, 1, 3e38f}, ones[4] = {1, 1, 1, 1};
    const float *const scales[] = {zero, minus, wild, huge, ones};
    for (size_t i = 0; i < 6; i++) {
        const sbit_attr mode = nn_string("mode", i == 5 ? "lanczos" : "nearest");
        nn t;
        nn_begin(&t, 13);
        nn_feed(&t, SBIT_F32, "1,1,2,2", counting);
        nn_omit(&t);
        nn_constant(&t, SBIT_F32, i == 4 ? "3" : "4", scales[i < 5 ? i : 4]);
        nn_node(&t, "Resize", &mode, 1, 1);
        nn_expect_failure(&t, i == 5 ? "lanczos" : "scales");
    }
}

TEST(depth_to_space_and_back)
{
    static const char *const modes[2] = {"DCR", "CRD"};
    /* 8 channels of 1 x 1, blocks of 2: two channels of 2 x 2 */
    static const float wanted[2][8] = {{1, 3, 5, 7, 2, 4, 6, 8}, {1, 2, 3, 4, 5, 6, 7, 8}};
    for (int i = 0; i < 2; i++) {
        const sbit_attr attrs[] = {build_int("blocksize", 2), nn_string("mode", modes[i])};
        nn t;
        nn_begin(&t, 13);
        nn_feed(&t, SBIT_F32, "1,8,1,1", counting);
        nn_node(&t, "DepthToSpace", attrs, 2, 1);
        nn_expect(&t, wanted[i], 8, 0);
    }
    const sbit_attr size = build_int("blocksize", 2), none = build_int("blocksize", 0);
    nn t;
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_F32, "1,2,2,2", wanted[0]);
    nn_node(&t, "SpaceToDepth", &size, 1, 1);
    nn_expect(&t, counting, 8, 0);
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_F32, "1,2,2,2", counting);
    nn_node(&t, "SpaceToDepth", &none, 1, 1);
    nn_expect_failure(&t, "blocksize");
    nn_begin(&t, 13);
    nn_feed(&t, SBIT_F32, "1,2,3,2", counting);
    nn_node(&t, "SpaceToDepth", &size, 1, 1);
    nn_expect_failure(&t, "divide");
}

/* ---- shapes with symbols */

static void shape_case(const char *op, const char *x_dims, const char *w_dims,
                       const sbit_attr *attrs, size_t attr_count, const char *wanted)
{
    static float data[4096];
    char text[96];
    nn t;
    nn_begin(&t, 17);
    t.in[0] = build_input(&t.b, "x0", SBIT_F32, x_dims);
    t.in_count = 1;
    for (int i = 0; w_dims != NULL && i < (strcmp(op, "LSTM") == 0 ? 2 : 1); i++) {
        nn_constant(&t, SBIT_F32, w_dims, data);
    }
    nn_node(&t, op, attrs, attr_count, 1);
    if (CHECK_OK(sbit_infer(t.b.graph, &t.b.error), t.b.error)) {
        CHECK_STR(build_type_text(&t.b, t.out[0], text, sizeof text), wanted);
    }
    nn_end(&t);
}

TEST(symbols_pass_through)
{
    const int64_t ones[4] = {1, 1, 1, 1}, twos[2] = {2, 2}, threes[2] = {3, 3};
    const sbit_attr pads = build_ints("pads", ones, 4);
    const sbit_attr strided[] = {build_ints("strides", twos, 2), build_ints("pads", ones, 4)};
    const sbit_attr same[] = {nn_string("auto_pad", "SAME_UPPER"),
                              build_ints("kernel_shape", threes, 2)};
    const sbit_attr block = build_int("blocksize", 2), trans = build_int("transB", 1);
    shape_case("Conv", "N,3,H,W", "8,3,3,3", &pads, 1, "float32[N,8,H,W]");
    shape_case("Conv", "N,3,H,W", "8,3,3,3", strided, 2, "float32[N,8,?,?]");
    shape_case("Conv", "N,3,32,W", "8,3,3,3", strided, 2, "float32[N,8,16,?]");
    shape_case("ConvTranspose", "N,8,H,4", "8,3,2,2", strided, 1, "float32[N,3,?,8]");
    shape_case("MaxPool", "N,C,H,W", NULL, same, 2, "float32[N,C,H,W]");
    shape_case("GlobalAveragePool", "N,C,H,W", NULL, NULL, 0, "float32[N,C,1,1]");
    shape_case("MatMul", "N,T,16", "16,5", NULL, 0, "float32[N,T,5]");
    shape_case("Gemm", "N,16", "5,16", &trans, 1, "float32[N,5]");
    shape_case("LSTM", "T,N,2", "1,8,2", NULL, 0, "float32[T,1,N,2]");
    shape_case("Softmax", "N,?", NULL, NULL, 0, "float32[N,?]");
    shape_case("DepthToSpace", "N,8,H,3", NULL, &block, 1, "float32[N,2,?,6]");
    shape_case("Conv", "?,?,?", "4,1,5", NULL, 0, "float32[?,4,?]");
}

/* ---- einsum */

TEST(einsum_by_hand)
{
    static const struct {
        const char *equation, *a, *b;
        int count;
        float wanted[9];
    } cases[] = {
        {"ij,jk->ik", "2,2", "2,2", 4, {7, 10, 15, 22}},
        {"ij,kj->ik", "2,2", "2,2", 4, {5, 11, 11, 25}},
        {"ji,jk->ki", "2,2", "2,2", 4, {10, 14, 14, 20}},
        {"ij,ij->", "2,2", "2,2", 1, {30}},
        {"ij, ij -> i", "2,2", "2,2", 2, {5, 25}},
        {"i,j", "3", "3", 9, {1, 2, 3, 2, 4, 6, 3, 6, 9}},
        {"...i,...i->...", "2,2", "2,2", 2, {5, 25}},
        {"ii,i->i", "2,2", "2", 2, {1, 8}},
        {"bij,bjk->bik", "2,1,2", "2,2,1", 2, {5, 25}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const sbit_attr equation = nn_string("equation", cases[i].equation);
        nn t;
        nn_begin(&t, 12);
        nn_feed(&t, SBIT_F32, cases[i].a, counting);
        nn_feed(&t, SBIT_F32, cases[i].b, counting);
        nn_node(&t, "Einsum", &equation, 1, 1);
        nn_expect(&t, cases[i].wanted, cases[i].count, 1e-5);
    }
}

TEST(einsum_refuses_bad_equations)
{
    static const char *const equations[] = {"",          "ij",         "ij,jk,kl->il", "ij,jk->iz",
                                            "ij,jk->ii", "ij,j1",      "ij..,jk->ik",  "ijk,jk->ik",
                                            "ij,jk>ik",  "ij,jk->i,k", "ij,ki->jk",    "......,jk"};
    for (size_t i = 0; i < sizeof equations / sizeof equations[0]; i++) {
        const sbit_attr equation = nn_string("equation", equations[i]);
        nn t;
        nn_begin(&t, 12);
        nn_feed(&t, SBIT_F32, "2,3", counting);
        nn_feed(&t, SBIT_F32, "3,4", counting);
        nn_node(&t, "Einsum", &equation, 1, 1);
        nn_expect_failure(&t, "Einsum");
    }
}

/* ---- the number of threads changes no bit */

typedef struct threads_node {
    const char *op, *dims;
    const char *constants[2]; /* dims; NULL: none */
    const sbit_attr *attrs;
    size_t attr_count;
    int64_t opset;
} threads_node;

static void threads_case(const threads_node *node)
{
    static float data[40000];
    static float first[40000];
    sbit_rng rng = sbit_rng_seed(17);
    for (int i = 0; i < 40000; i++) {
        data[i] = sbit_rng_normal(&rng);
    }
    for (int32_t threads = 1; threads <= 4; threads++) {
        sbit_ctx_desc desc;
        nn t;
        memset(&t, 0, sizeof t);
        memset(&desc, 0, sizeof desc);
        desc.threads = threads;
        CHECK_OK(sbit_ctx_create(&desc, &t.b.ctx, &t.b.error), t.b.error);
        CHECK_OK(sbit_graph_create(t.b.ctx, node->opset, &t.b.graph, &t.b.error), t.b.error);
        nn_feed(&t, SBIT_F32, node->dims, data);
        for (int i = 0; i < 2 && node->constants[i] != NULL; i++) {
            nn_constant(&t, SBIT_F32, node->constants[i], data + 100 * (i + 1));
        }
        nn_node(&t, node->op, node->attrs, node->attr_count, 1);
        if (CHECK_OK(nn_try(&t, NULL), t.b.error)) {
            const sbit_tensor *y = &sbit_session_output(t.session, 0)->tensor;
            CHECK(sbit_tensor_bytes(y) <= sizeof first);
            if (threads == 1) {
                memcpy(first, y->data, sbit_tensor_bytes(y));
            }
            CHECK_MEM(first, y->data, sbit_tensor_bytes(y));
        }
        nn_end(&t);
    }
}

TEST(thread_count_changes_nothing)
{
    static const int64_t kernel[2] = {3, 3};
    const sbit_attr pool = build_ints("kernel_shape", kernel, 2),
                    groups = build_int("num_groups", 2);
    const sbit_attr lstm[2] = {build_int("hidden_size", 9),
                               nn_string("direction", "bidirectional")};
    const sbit_attr gru[2] = {build_int("hidden_size", 9), nn_string("direction", "reverse")};
    const threads_node nodes[] = {
        {"Conv", "2,5,17,19", {"6,5,3,3", NULL}, NULL, 0, 11},
        {"ConvTranspose", "2,5,17,19", {"5,6,3,3", NULL}, NULL, 0, 11},
        {"MatMul", "3,37,29", {"29,31", NULL}, NULL, 0, 13},
        {"MatMul", "7,37,29", {"7,29,11", NULL}, NULL, 0, 13},
        {"MatMul", "3,2,1,600", {"3,2,600,10", NULL}, NULL, 0, 13},
        {"MatMul", "1,600", {"600,60", NULL}, NULL, 0, 13},
        {"LSTM", "7,5,6", {"2,36,6", "2,36,9"}, lstm, 2, 14},
        {"LSTM", "7,1,6", {"2,36,6", "2,36,9"}, lstm, 2, 14},
        {"GRU", "7,6,6", {"1,27,6", "1,27,9"}, gru, 2, 14},
        {"MaxPool", "2,5,17,19", {NULL, NULL}, &pool, 1, 12},
        {"AveragePool", "2,5,17,19", {NULL, NULL}, &pool, 1, 12},
        {"GlobalAveragePool", "2,35,17,19", {NULL, NULL}, NULL, 0, 12},
        {"Softmax", "23,41,7", {NULL, NULL}, NULL, 0, 13},
        {"LogSoftmax", "23,41,7", {NULL, NULL}, NULL, 0, 11},
        {"LayerNormalization", "33,41", {"41", "41"}, NULL, 0, 17},
        {"GroupNormalization", "3,6,11,5", {"6", "6"}, &groups, 1, 21},
    };
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        threads_case(&nodes[i]);
    }
}
