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
#include "quantizers_private.h"

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

static sbit_status sbit__pact_backward(void *state, const sbit_quantizer_call *call,
                                       const sbit_observation *x, const float *dy, float *dx,
                                       sbit_error *error)
{
    sbit__pact *s = (sbit__pact *)state;
    const float alpha = sbit__pact_alpha(s), lower = s->both ? -alpha : 0.0f;
    const int64_t n = sbit_parts_elements(&x->parts);
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double g = (double)dy[i];
        sum += x->data[i] >= alpha ? g : 0.0;
        sum -= s->both && x->data[i] <= lower ? g : 0.0;
    }
    SBIT__TRY(sbit__pact_scale(s, call, error));
    sbit__straight_backward(call, x, call->scale, call->zero_point, dy, dx, NULL, NULL);
    for (int64_t i = 0; i < n; i++) {
        dx[i] = x->data[i] < lower || x->data[i] > alpha ? 0.0f : dx[i];
    }
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
