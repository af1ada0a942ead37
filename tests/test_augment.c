/* split */
/* test_augment.c: pairs of pictures that exchange parts, and their classes. */
#include "../src/train/train_private.h"
#include "test.h"

enum {
    COUNT = 101, /* odd: the one in the middle has no partner */
    CLASSES = 200,
    SIDE = 9,
    PLANE = SIDE * SIDE,
    SIZE = 2 * PLANE
};

/* Picture n, of class n, is n + 1 everywhere. */
typedef struct pictures {
    sbit_ctx *ctx;
    sbit_graph *graph;
    sbit_trainer *t;
    float x[COUNT * SIZE];
    int64_t y[COUNT], index[COUNT];
    sbit_tensor inputs, targets, room[2];
    sbit_batch batch; /* after pictures_mix: the changed one */
} pictures;

static void pictures_open(pictures *p, int32_t threads)
{
    static const int64_t dims[3] = {2, SIDE, SIDE};
    const sbit_value_id none = {0};
    sbit_ctx_desc desc;
    sbit_train_desc train;
    sbit_error error;
    memset(p, 0, sizeof *p);
    memset(&desc, 0, sizeof desc);
    memset(&train, 0, sizeof train);
    desc.threads = threads;
    train.learning_rate = 0.1f;
    CHECK(sbit_ctx_create(&desc, &p->ctx, &error) == SBIT_OK);
    CHECK(sbit_graph_create(p->ctx, 17, &p->graph, &error) == SBIT_OK);
    sbit_builder b = sbit_builder_init(p->graph, 1, &error);
    const sbit_value_id x = sbit_builder_input(&b, "input", 3, dims);
    CHECK(sbit_builder_output(
              &b, "logits",
              sbit_builder_linear(&b, "fc", sbit_builder_op(&b, "Flatten", x, none), CLASSES)) ==
          SBIT_OK);
    CHECK(sbit_trainer_create(p->graph, &train, &p->t, &error) == SBIT_OK);
    for (int64_t n = 0; n < COUNT; n++) {
        p->y[n] = n;
        p->index[n] = 7 * n + 3;
        for (int64_t i = 0; i < SIZE; i++) {
            p->x[n * SIZE + i] = (float)(n + 1);
        }
    }
    p->inputs.dtype = SBIT_F32;
    p->inputs.rank = 4;
    p->inputs.dims[0] = COUNT;
    p->inputs.dims[1] = 2;
    p->inputs.dims[2] = p->inputs.dims[3] = SIDE;
    p->inputs.data = p->x;
    p->targets.dtype = SBIT_I64;
    p->targets.rank = 1;
    p->targets.dims[0] = COUNT;
    p->targets.data = p->y;
}

static sbit_status pictures_mix(pictures *p, float mixup, float cutmix, int64_t epoch,
                                sbit_error *error)
{
    sbit_fit_desc fit;
    memset(&fit, 0, sizeof fit);
    memset(&p->batch, 0, sizeof p->batch);
    p->batch.samples = COUNT;
    p->batch.inputs = &p->inputs;
    p->batch.targets = p->targets.data != NULL ? &p->targets : NULL;
    p->batch.index = p->index;
    p->batch.input_count = 1;
    p->batch.target_count = p->targets.data != NULL ? 1 : 0;
    fit.seed = 3;
    fit.mixup = mixup;
    fit.cutmix = cutmix;
    return sbit__augment_batch(p->t, &fit, epoch, &p->batch, p->room, error);
}

static void pictures_close(pictures *p)
{
    sbit_tensor_free(p->ctx, &p->room[0]);
    sbit_tensor_free(p->ctx, &p->room[1]);
    sbit_trainer_destroy(p->t);
    sbit_graph_destroy(p->graph);
    sbit_ctx_destroy(p->ctx);
}

/* Whether picture n is its own and its partner's pixels alone, the partner's a rectangle that is the
 * same in all channels: *kept is the number of its own of a plane. */
static bool is_cut(const pictures *p, int64_t n, int64_t *kept)
{
    const float *x = (const float *)p->batch.inputs[0].data + n * SIZE;
    int64_t low[2] = {SIDE, SIDE}, high[2] = {-1, -1}, foreign = 0;
    for (int64_t i = 0; i < SIZE; i++) {
        const bool own = x[i] == (float)(n + 1);
        if ((!own && x[i] != (float)(COUNT - n)) || x[i] != x[i % PLANE]) {
            return false;
        }
        const int64_t at[2] = {i % PLANE / SIDE, i % SIDE};
        for (int k = 0; k < 2 && !own; k++) {
            low[k] = at[k] < low[k] ? at[k] : low[k];
            high[k] = at[k] > high[k] ? at[k] : high[k];
        }
        foreign += !own && i < PLANE;
    }
    *kept = PLANE - foreign;
    return foreign == 0 || foreign == (high[0] - low[0] + 1) * (high[1] - low[1] + 1);
}

/* Classes follow the pixels exactly; partners have the same place and share; shares of Beta(1, 1)
 * are all sizes; threads do not matter, the epoch does. */
TEST(pairs_exchange_rectangles_or_blend)
{
    pictures *p = (pictures *)malloc(sizeof *p), *q = (pictures *)malloc(sizeof *q);
    sbit_error error;
    pictures_open(p, 1);
    pictures_open(q, 3);
    for (int how = 1; how < 4; how++) { /* bit 0: mixup, bit 1: cutmix */
        const float mixup = how & 1 ? 1.0f : 0.0f, cutmix = how & 2 ? 1.0f : 0.0f;
        int64_t cuts = 0, small_cuts = 0;
        if (!CHECK(pictures_mix(p, mixup, cutmix, 5, &error) == SBIT_OK) ||
            !CHECK(pictures_mix(q, mixup, cutmix, 5, &error) == SBIT_OK)) {
            break;
        }
        CHECK(memcmp(p->room[0].data, q->room[0].data, sizeof p->x) == 0);
        CHECK(memcmp(p->room[1].data, q->room[1].data, COUNT * CLASSES * sizeof(float)) == 0);
        const float *y = (const float *)p->batch.targets[0].data;
        for (int64_t n = 0; n < COUNT; n++) {
            const int64_t other = COUNT - 1 - n;
            const float *x = (const float *)p->batch.inputs[0].data + n * SIZE;
            const double own = (double)y[n * CLASSES + n], share = n == other ? 1.0 : own;
            int64_t kept = 0;
            const bool cut = is_cut(p, n, &kept);
            CHECK_NEAR(own + (n == other ? 0.0 : (double)y[n * CLASSES + other]), 1.0, 1e-6);
            CHECK(y[n * CLASSES + n] == y[other * CLASSES + other]);
            CHECK(own >= 0.0 && own <= 1.0);
            if (cut) {
                CHECK_NEAR(share, (double)kept / PLANE, 1e-6);
                cuts += n != other;
                small_cuts += n != other && kept > PLANE / 2;
                for (int64_t i = 0; i < PLANE; i++) { /* where this one is foreign, the other is, too */
                    const float *theirs = (const float *)p->batch.inputs[0].data + other * SIZE;
                    CHECK((x[i] == (float)(n + 1)) == (theirs[i] == (float)(other + 1)));
                }
            } else {
                CHECK((how & 1) != 0);
                for (int64_t i = 0; i < SIZE; i++) {
                    CHECK_NEAR((double)x[i], share * (double)(n + 1) + (1.0 - share) * (double)(other + 1), 1e-4);
                }
            }
        }
        CHECK(how == 1 ? cuts == 0 : how == 2 ? cuts == COUNT - 1 : cuts > 20 && cuts < COUNT - 21);
        CHECK(how == 1 || (small_cuts > cuts / 4 && small_cuts < cuts));
        CHECK(pictures_mix(q, mixup, cutmix, 6, &error) == SBIT_OK);
        CHECK(memcmp(p->room[1].data, q->room[1].data, COUNT * CLASSES * sizeof(float)) != 0);
    }
    q->y[70] = CLASSES;
    CHECK(pictures_mix(q, 0.0f, 1.0f, 6, &error) == SBIT_ERR_INVALID_ARGUMENT);
    CHECK_CONTAINS(error.message, "no class of 200");
    q->targets.rank = 2; /* two numbers for each picture, too few, other types, none */
    q->targets.dims[1] = 2;
    CHECK(pictures_mix(q, 1.0f, 0.0f, 6, &error) == SBIT_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "class numbers, one for each sample");
    q->targets.rank = 1;
    q->targets.dims[0] = COUNT - 1;
    CHECK(pictures_mix(q, 1.0f, 0.0f, 6, &error) == SBIT_ERR_UNSUPPORTED);
    q->targets.dims[0] = COUNT;
    q->targets.dtype = SBIT_F32;
    CHECK(pictures_mix(q, 1.0f, 0.0f, 6, &error) == SBIT_ERR_UNSUPPORTED);
    q->targets.data = NULL;
    CHECK(pictures_mix(q, 1.0f, 0.0f, 6, &error) == SBIT_ERR_UNSUPPORTED);
    pictures_close(p);
    pictures_close(q);
    free(p);
    free(q);
}

/* Shares of Beta(a, a): symmetric, of variance 1 / (4 (2a + 1)), for shapes of any size. */
TEST(shares_have_the_variance_of_beta)
{
    static const float shapes[] = {1e-6f, 0.3f, 1.0f, 8.0f, 60.0f, 1e30f};
    pictures *p = (pictures *)malloc(sizeof *p);
    sbit_error error;
    pictures_open(p, 1);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const double variance = 1.0 / (4.0 * (2.0 * (double)shapes[i] + 1.0));
        double count = 0.0, sum = 0.0, squares = 0.0;
        for (int64_t epoch = 0; epoch < 80; epoch++) {
            CHECK(pictures_mix(p, shapes[i], 0.0f, epoch, &error) == SBIT_OK);
            for (int64_t n = 0; n < COUNT / 2; n++) {
                const double share = (double)((const float *)p->batch.targets[0].data)[n * CLASSES + n];
                CHECK(share >= 0.0 && share <= 1.0);
                count += 1.0;
                sum += share;
                squares += (share - 0.5) * (share - 0.5);
            }
        }
        CHECK_NEAR(sum / count, 0.5, 4.0 * sqrt(variance / count) + 1e-7);
        CHECK_NEAR(squares / count, variance, 0.1 * variance + 1e-12);
    }
    pictures_close(p);
    free(p);
}
