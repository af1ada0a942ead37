/* step_widen.c: more bits for the most sensitive layers. >>step-widen
 *
 * PERCENT of the layers with weights, those that alone make the most noise in the outputs
 * (>>analyze), get BITS for weights and activations.
 */
#include "analyze_api.h"
#include "trials_private.h"

static const sbit_key sbit__widen_keys[] = {
    {"WIDEN.PERCENT", SBIT_KEY_FLOAT, "5", 0.0, 100.0, NULL, "of the layers with weights"},
    {"WIDEN.BITS", SBIT_KEY_INT, "16", 2.0, 16.0, NULL, "their width"},
};

static void sbit__widen_layer(sbit_quant *quant, const char *layer, int32_t bits)
{
    for (size_t i = 0; i < quant->site_count; i++) {
        if (quant->sites[i].enabled && sbit__streq(quant->sites[i].layer_name, layer)) {
            sbit__site_search_bits(quant, &quant->sites[i], bits);
        }
    }
    sbit__log(quant->ctx, SBIT_LOG_INFO, "widen: layer '%s' gets %d bits", layer, (int)bits);
}

static sbit_status sbit__widen_run(void *state, const sbit_options *options, const sbit_feed *feed,
                                   sbit_error *error)
{
    sbit_quant *quant = (sbit_quant *)state;
    const sbit_allocator *a = sbit_ctx_allocator(quant->ctx);
    const int32_t bits = (int32_t)sbit_options_int(options, "STEP.WIDEN.BITS");
    const size_t bytes = (quant->site_count + 1) * sizeof(sbit_sensitivity);
    size_t count = 0, weights = 0;
    if (quant->profile->max_bits > 0 && bits > quant->profile->max_bits) {
        return sbit__fail(error, SBIT_ERR_CONFIG, "STEP.WIDEN.BITS",
                          "STEP.WIDEN.BITS is %d, PLACEMENT %s takes at most %d", (int)bits,
                          quant->profile->head.name, (int)quant->profile->max_bits);
    }
    sbit_sensitivity *layers = (sbit_sensitivity *)sbit__calloc(a, 1, bytes);
    if (layers == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    const sbit_status status =
        sbit_quant_analyze(quant, feed, layers, quant->site_count + 1, &count, error);
    for (size_t i = 0; i < count; i++) {
        weights += layers[i].weight_bits > 0 ? 1 : 0;
    }
    double left = ceil(sbit_options_float(options, "STEP.WIDEN.PERCENT") / 100.0 * (double)weights);
    for (size_t i = 0; i < count && left > 0.5; i++) {
        if (layers[i].weight_bits > 0) {
            sbit__widen_layer(quant, layers[i].layer, bits);
            left -= 1.0;
        }
    }
    sbit__free(a, layers, bytes);
    return status;
}

SBIT__FN const sbit_step_row *sbit__step_widen(void)
{
    static const sbit_step_row row = {
        {"widen", "more bits for the most sensitive layers",
         SBIT_TARGET_WEIGHT | SBIT_TARGET_ACTIVATION, sbit__widen_keys,
         SBIT__COUNT_OF(sbit__widen_keys)},
        SBIT_STAGE_SEARCH,
        true,
        sbit__widen_run,
    };
    return &row;
}
