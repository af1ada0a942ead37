/* pact.c: learned clipping of activations (Choi et al. 2018). >>quantizer-pact
 *
 * As Sparsebit has it (algorithms: section 1.8): the range is 0 .. alpha on affine grids, -alpha ..
 * alpha on symmetric ones, alpha a parameter that starts at PACT.ALPHA_VALUE and is meant to decay.
 * Where it starts from the range of OBSERVER.TYPE (ALPHA_VALUE 0), data with negatives have -alpha
 * .. alpha on affine grids, too.
 * The pair of QuantizeLinear and DequantizeLinear clips by itself, so forward is that pair.
 * backward: dx = g inside the range, dalpha = the sum of g at or above alpha, less that at or below
 * -alpha. (The original adds a term through the scale on symmetric grids: its lower bound is not
 * detached.)
 *
 * State: float alpha, gradient; whether negatives are kept.
 */
#include "../kernels/last_private.h"
#include "../kernels/rows_private.h"
#include "quantizers_private.h"

#include <math.h> /* INFINITY, nextafterf */

#define SBIT__PACT_LEAST 1e-6f /* alpha does not vanish or turn */

typedef struct sbit__pact {
    float alpha, gradient;
    bool both; /* -alpha .. alpha */
} sbit__pact;

static const sbit_key sbit__pact_keys[] = {
    {"PACT.ALPHA_VALUE", SBIT_KEY_FLOAT, "10", 0.0, 1e9, NULL,
     "first clipping value; 0: OBSERVER.TYPE's"},
};

static size_t sbit__pact_state_bytes(const sbit_quantizer_call *call)
{
    (void)call;
    return sizeof(sbit__pact);
}

static float sbit__pact_alpha(const sbit__pact *s)
{
    return s->alpha > SBIT__PACT_LEAST ? s->alpha : SBIT__PACT_LEAST;
}

static sbit_status sbit__pact_scale(const sbit__pact *s, const sbit_quantizer_call *call,
                                    sbit_error *error)
{
    const float alpha = sbit__pact_alpha(s);
    return sbit_grid_scale(call->grid, call->name, s->both ? -alpha : 0.0f, alpha, call->scale,
                           call->zero_point, error);
}

static sbit_status sbit__pact_init(void *state, const sbit_quantizer_call *call,
                                   const sbit_observation *x, sbit_error *error)
{
    sbit__pact *s = (sbit__pact *)state;
    (void)x;
    if (call->grid->parts.count != 1) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "QUANTIZER.TYPE",
                          "tensor '%s': pact works per tensor only; use a per-tensor QSCHEME",
                          call->name);
    }
    s->alpha = (float)sbit_options_float(call->options, "QUANTIZER.PACT.ALPHA_VALUE");
    s->both = call->grid->symmetric;
    if (!(s->alpha > 0.0f)) {
        const float low = (float)(*call->zero_point - call->grid->qmin) * *call->scale;
        const float high = (float)(call->grid->qmax - *call->zero_point) * *call->scale;
        s->alpha = s->both ? (low + high) / 2.0f : low > high ? low : high;
        s->both = low > 0.0f;
    }
    return sbit__pact_scale(s, call, error);
}

static sbit_status sbit__pact_forward(void *state, const sbit_quantizer_call *call,
                                      const sbit_observation *x, float *y, sbit_error *error)
{
    SBIT__TRY(sbit__pact_scale((const sbit__pact *)state, call, error));
    sbit__straight_forward(call, x, call->scale, call->zero_point, y);
    return SBIT_OK;
}

/* What passes the range, and the sum of what does not, in pieces that do not depend on threads. */
enum {
    SBIT__PACT_PIECES = 64,    /* at most */
    SBIT__PACT_PIECE = 16384, /* elements, at least */
    SBIT__PACT_BLOCK = 256    /* that are added up as floats */
};

typedef struct sbit__pact_task {
    sbit_ctx *ctx;
    const float *x, *dy;
    float *dx, lower, alpha;
    bool both;
    int64_t count, piece;
    double sums[SBIT__PACT_PIECES];
} sbit__pact_task;

static void sbit__pact_range(void *user, int64_t begin, int64_t end, int32_t worker)
{
    sbit__pact_task *task = (sbit__pact_task *)user;
    const sbit__last_kernels *last = sbit__last_of(task->ctx);
    const sbit_kernels *kernels = sbit__kernels(task->ctx);
    /* slope_inside leaves its limits out */
    const float under_alpha = nextafterf(task->alpha, -INFINITY), over_alpha = nextafterf(task->alpha, INFINITY);
    const float under = nextafterf(task->lower, -INFINITY), over = nextafterf(task->lower, INFINITY);
    float part[SBIT__PACT_BLOCK];
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        const int64_t stop = sbit__smaller((i + 1) * task->piece, task->count);
        double sum = 0.0;
        for (int64_t at = i * task->piece; at < stop; at += SBIT__PACT_BLOCK) {
            const int64_t n = sbit__smaller(stop - at, SBIT__PACT_BLOCK);
            const float *x = task->x + at, *dy = task->dy + at;
            last->slope_inside(n, dy, x, under_alpha, NAN, part); /* no upper limit */
            sum += (double)kernels->f32_sum(n, part);
            if (task->both) {
                last->slope_inside(n, dy, x, -INFINITY, over, part);
                sum -= (double)kernels->f32_sum(n, part);
            }
            last->slope_inside(n, dy, x, under, over_alpha, task->dx + at);
        }
        task->sums[i] = sum;
    }
}

static sbit_status sbit__pact_backward(void *state, const sbit_quantizer_call *call,
                                       const sbit_observation *x, const float *dy, float *dx,
                                       sbit_error *error)
{
    sbit__pact *s = (sbit__pact *)state;
    sbit__pact_task task;
    double sum = 0.0;
    task.ctx = call->ctx;
    task.x = x->data;
    task.dy = dy;
    task.dx = dx;
    task.alpha = sbit__pact_alpha(s);
    task.lower = s->both ? -task.alpha : 0.0f;
    task.both = s->both;
    task.count = sbit_parts_elements(&x->parts);
    task.piece = sbit__larger(sbit__div_up(task.count, SBIT__PACT_PIECES), SBIT__PACT_PIECE);
    const int64_t pieces = sbit__div_up(task.count, task.piece);
    SBIT__TRY(sbit__pact_scale(s, call, error));
    sbit__parallel_range(call->ctx, pieces, 1, sbit__pact_range, &task);
    for (int64_t i = 0; i < pieces; i++) {
        sum += task.sums[i];
    }
    sbit__straight_backward(call, x, call->scale, call->zero_point, dx, dx, NULL, NULL);
    s->gradient += (float)sum;
    return SBIT_OK;
}

static bool sbit__pact_parameter(void *state, const sbit_quantizer_call *call, size_t index,
                                 sbit_parameter *out)
{
    sbit__pact *s = (sbit__pact *)state;
    (void)call;
    if (index > 0) {
        return false;
    }
    out->name = "alpha";
    out->data = &s->alpha;
    out->gradient = &s->gradient;
    out->count = 1;
    out->decay = true;
    return true;
}

static sbit_status sbit__pact_finish(void *state, const sbit_quantizer_call *call,
                                     const sbit_observation *x, float *effective, sbit_error *error)
{
    (void)x;
    (void)effective; /* activations only */
    return sbit__pact_scale((const sbit__pact *)state, call, error);
}

SBIT__FN const sbit_quantizer_row *sbit__quantizer_pact(void)
{
    static const sbit_quantizer_row row = {
        {"pact", "learned clipping", SBIT_TARGET_ACTIVATION, sbit__pact_keys,
         SBIT__COUNT_OF(sbit__pact_keys)},
        sbit__pact_state_bytes,
        NULL,
        NULL,
        NULL,
        sbit__pact_init,
        sbit__pact_forward,
        sbit__pact_backward,
        sbit__pact_parameter,
        sbit__pact_finish,
        NULL,
        NULL,
    };
    return &row;
}
