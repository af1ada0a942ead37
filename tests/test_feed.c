/* test_feed.c: data that can be read again: arrays as a feed, preprocessing, padding. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"

/* Sample i of the array is 10 i .. 10 i + 2. */
static float feed_rows[7][3];

static sbit_tensor feed_array(void)
{
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < 3; k++) {
            feed_rows[i][k] = (float)(10 * i + k);
        }
    }
    return build_tensor(SBIT_F32, "7,3", feed_rows);
}

TEST(samples_are_read_in_any_order_and_again)
{
    static const int64_t order[4] = {5, 0, 6, 5};
    static int64_t labels[7] = {3, 1, 4, 1, 5, 9, 2};
    build b;
    sbit_feed feed;
    sbit_feed_desc desc;
    build_begin(&b, 13);
    const sbit_tensor x = feed_array(), y = build_tensor(SBIT_I64, "7", labels);
    memset(&desc, 0, sizeof desc);
    desc.inputs = &x;
    desc.input_count = 1;
    desc.targets = &y;
    desc.target_count = 1;
    CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
    CHECK_EQ_I64(feed.count, 7);
    for (int again = 0; again < 2; again++) {
        sbit_batch batch;
        memset(&batch, 0, sizeof batch);
        CHECK_OK(feed.read(feed.user, order, 4, &batch, &b.error), b.error);
        CHECK_EQ_I64(batch.samples, 4);
        CHECK(batch.names == NULL && batch.input_count == 1 && batch.target_count == 1);
        CHECK_EQ_I64(batch.inputs[0].dims[0], 4);
        for (int i = 0; i < 4; i++) {
            CHECK_MEM((const float *)batch.inputs[0].data + 3 * i, feed_rows[order[i]],
                      3 * sizeof(float));
            CHECK_EQ_I64(((const int64_t *)batch.targets[0].data)[i], labels[order[i]]);
            CHECK_EQ_I64(batch.index[i], order[i]);
        }
    }
    sbit_feed_close(&feed);
    CHECK(feed.read == NULL);
    build_end(&b);
}

/* Batches of two from seven samples, of one size for the model: 2 2 2 1 and a repeated row. */
TEST(the_last_batch_is_padded_for_models_that_need_it)
{
    for (int fixed = 0; fixed < 2; fixed++) {
        build b;
        sbit_feed feed;
        sbit_feed_desc desc;
        sbit_batch batch;
        int64_t at = 0, reads = 0;
        build_begin(&b, 13);
        const sbit_tensor x = feed_array();
        memset(&desc, 0, sizeof desc);
        desc.inputs = &x;
        desc.input_count = 1;
        desc.batch = fixed ? 0 : 2;
        desc.rows = fixed ? 2 : 0;
        CHECK_OK(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), b.error);
        for (; at < feed.count; at += batch.samples, reads++) {
            if (!CHECK_OK(sbit_feed_read(&feed, at, 0, &batch, &b.error), b.error)) {
                break;
            }
            const int64_t samples = at == 6 ? 1 : 2;
            const float *last =
                (const float *)batch.inputs[0].data + 3 * (batch.inputs->dims[0] - 1);
            CHECK_EQ_I64(batch.samples, samples);
            CHECK_EQ_I64(batch.inputs[0].dims[0], fixed ? 2 : samples);
            CHECK_MEM(last, feed_rows[at + samples - 1], 3 * sizeof(float));
        }
        CHECK_EQ_I64(reads, 4);
        CHECK_STATUS(sbit_feed_read(&feed, 7, 0, &batch, &b.error), SBIT_ERR_INVALID_ARGUMENT,
                     b.error);
        sbit_feed_close(&feed);
        build_end(&b);
    }
}

/* (byte / 255 - mean[c]) / std[c] in double, rounded once; channels first and last, bytes and other
 * numbers, few and many elements. */
TEST(numbers_are_normalized_per_channel)
{
    static const double mean[3] = {0.4914, 0.4822, 0.4465}, std[3] = {0.2470, 0.2435, 0.2616};
    static uint8_t bytes[2 * 3 * 20 * 20];
    static int32_t words[2 * 3 * 20 * 20];
    static float y[2 * 3 * 20 * 20];
    sbit_rng rng = sbit_rng_seed(4);
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (int side = 1; side <= 20; side += 19) {
        for (int last = 0; last < 2; last++) {
            const int n = side * side;
            sbit_normalize how;
            memset(&how, 0, sizeof how);
            how.scale = 1.0 / 255.0;
            how.mean = mean;
            how.std = std;
            how.channels = 3;
            how.axis = last ? 3 : 0;
            for (int i = 0; i < 6 * n; i++) {
                bytes[i] = (uint8_t)sbit_rng_below(&rng, 256);
                words[i] = bytes[i];
            }
            for (int wide = 0; wide < 2; wide++) {
                sbit_tensor x = build_tensor(wide ? SBIT_I32 : SBIT_U8, "2,3,1,1",
                                             wide ? (void *)words : (void *)bytes);
                x.dims[last ? 1 : 1] = last ? side : 3;
                x.dims[2] = side;
                x.dims[3] = last ? 3 : side;
                memset(y, 0, sizeof y);
                CHECK_OK(sbit_tensor_normalize(&how, &x, y, &error), error);
                int wrong = 0;
                for (int i = 0; i < 6 * n; i++) {
                    const int c = last ? i % 3 : i / n % 3;
                    const float want =
                        (float)(((double)bytes[i] * (1.0 / 255.0) - mean[c]) / std[c]);
                    wrong += fabsf(y[i] - want) > 0.0f;
                }
                CHECK_EQ_I64(wrong, 0);
            }
        }
    }
    sbit_normalize how;
    memset(&how, 0, sizeof how);
    how.mean = mean;
    how.channels = 3;
    const sbit_tensor x = build_tensor(SBIT_U8, "1,4,1,1", bytes);
    CHECK_STATUS(sbit_tensor_normalize(&how, &x, y, &error), SBIT_ERR_SHAPE, error);
    CHECK_CONTAINS(error.message, "3 channels");
}

TEST(arrays_that_do_not_fit_together_are_refused)
{
    build b;
    sbit_feed feed;
    sbit_feed_desc desc;
    build_begin(&b, 13);
    sbit_tensor x[2];
    x[0] = feed_array();
    x[1] = build_tensor(SBIT_F32, "6,1", feed_rows);
    memset(&desc, 0, sizeof desc);
    desc.inputs = x;
    CHECK_STATUS(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), SBIT_ERR_INVALID_ARGUMENT,
                 b.error);
    desc.input_count = 2;
    CHECK_STATUS(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), SBIT_ERR_SHAPE, b.error);
    CHECK_CONTAINS(b.error.message, "6 samples");
    x[1].dims[0] = 7;
    x[1].dtype = SBIT_I4;
    CHECK_STATUS(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), SBIT_ERR_SHAPE, b.error);
    x[0].dims[0] = 0;
    desc.input_count = 1;
    CHECK_STATUS(sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), SBIT_ERR_SHAPE, b.error);
    build_end(&b);
}

/* ---- calibration pulls */

/* A model with a fixed batch of four and five samples, moving average: the fifth counts once. By
 * hand: r = 0.9 times the mean so far + 0.1 times the sample. */
static float feed_moving_average(void)
{
    static float data[5][2] = {
        {0.0f, 1.0f}, {0.0f, 2.0f}, {0.0f, 1.0f}, {0.0f, 3.0f}, {0.0f, 9.0f}};
    static const float eye[4] = {1.0f, 0.0f, 0.0f, 1.0f};
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    sbit_site site;
    float max = 0.0f;
    build_begin(&b, 13);
    sbit_value_id x = build_input(&b, "x", SBIT_F32, "4,2");
    x = build_binary(&b, "MatMul", "y", x, build_constant(&b, "w", SBIT_F32, "2,2", eye));
    build_output(&b, x);
    build_do(&b, sbit_qconfig_create(b.ctx, "sparsebit", &config, &b.error), "config");
    build_do(&b, sbit_qconfig_set(config, "A.OBSERVER.TYPE", "moving_average", &b.error), "set");
    build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant");
    memset(&desc, 0, sizeof desc);
    const sbit_tensor all = build_tensor(SBIT_F32, "5,2", data);
    desc.inputs = &all;
    desc.input_count = 1;
    desc.rows = 4;
    build_do(&b, sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), "feed");
    if (!b.failed) {
        build_do(&b, sbit_quant_calibrate(quant, &feed, &b.error), "calibrate");
        build_do(&b, sbit_quant_calc_qparams(quant, false, false, false, &b.error), "calc");
    }
    for (size_t i = 0; !b.failed && i < sbit_quant_site_count(quant); i++) {
        CHECK(sbit_quant_site(quant, i, &site) == SBIT_OK);
        max = site.target == SBIT_TARGET_ACTIVATION ? site.max : max;
    }
    sbit_feed_close(&feed);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
    return max;
}

TEST(padding_is_not_observed)
{
    double want = 1.0;
    static const double rest[4] = {2.0, 1.0, 3.0, 9.0};
    for (int i = 0; i < 4; i++) {
        want = 0.9 * want + 0.1 * rest[i];
    }
    CHECK_NEAR(feed_moving_average(), want, 1e-5);
}

TEST(a_bad_sample_is_named_by_its_number)
{
    static float data[7][4];
    static const float w[8] = {1.0f, 2.0f, 3.0f, 4.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    build b;
    sbit_qconfig *config = NULL;
    sbit_quant *quant = NULL;
    sbit_feed feed;
    sbit_feed_desc desc;
    build_begin(&b, 13);
    const sbit_value_id x = build_input(&b, "x", SBIT_F32, "N,4");
    build_output(&b,
                 build_binary(&b, "MatMul", "y", x, build_constant(&b, "w", SBIT_F32, "4,2", w)));
    build_do(&b, sbit_qconfig_create(b.ctx, NULL, &config, &b.error), "config");
    build_do(&b, sbit_quant_create(b.graph, config, &quant, &b.error), "quant");
    data[5][2] = (float)NAN;
    memset(&desc, 0, sizeof desc);
    const sbit_tensor all = build_tensor(SBIT_F32, "7,4", data);
    desc.inputs = &all;
    desc.input_count = 1;
    desc.batch = 4;
    build_do(&b, sbit_feed_of_tensors(b.ctx, &desc, &feed, &b.error), "feed");
    if (!b.failed) {
        CHECK_STATUS(sbit_quant_calibrate(quant, &feed, &b.error), SBIT_ERR_NUMERIC, b.error);
        CHECK_CONTAINS(b.error.message, "sample 5");
        CHECK_CONTAINS(b.error.message, "'x'");
    }
    sbit_feed_close(&feed);
    sbit_quant_destroy(quant);
    sbit_qconfig_destroy(config);
    build_end(&b);
}

/* .npy files, byte for byte as NumPy writes them (version 1, header padded to 64 bytes). */
TEST(npy_files_become_tensors)
{
    static const char *const path = SBIT_TEST_TMP "/feed.npy";
    static const struct {
        const char *header;
        sbit_status status;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", SBIT_OK},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", SBIT_OK},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3, 4), }", SBIT_OK},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", SBIT_ERR_UNSUPPORTED},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", SBIT_ERR_UNSUPPORTED},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
         SBIT_ERR_UNSUPPORTED},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", SBIT_ERR_PARSE},
    };
    const float values[6] = {1.0f, -2.0f, 3.0f, 4.5f, 0.0f, 6.0f};
    build b;
    build_begin(&b, 13);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char bytes[128 + sizeof values];
        sbit_tensor x;
        memset(&x, 0, sizeof x);
        memset(bytes, ' ', 128);
        memcpy(bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
        memcpy(bytes + 10, cases[i].header, strlen(cases[i].header));
        bytes[127] = '\n';
        memcpy(bytes + 128, values, sizeof values);
        FILE *file = fopen(path, "wb");
        CHECK(file != NULL && fwrite(bytes, 1, sizeof bytes, file) == sizeof bytes);
        fclose(file);
        CHECK_STATUS(sbit_tensor_load_npy(b.ctx, path, &x, &b.error), cases[i].status, b.error);
        if (cases[i].status == SBIT_OK) {
            CHECK_EQ_I64(sbit_tensor_bytes(&x), 24);
            CHECK_MEM(x.data, values, sizeof values);
        }
        sbit_tensor_free(b.ctx, &x);
    }
    build_end(&b);
}
