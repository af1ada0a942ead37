/* quant_api.h: post-training quantization, step by step as in Sparsebit. >>quant
 *
 * Called by: users, tools, train (QAT). Calls: qconfig, observers, quantizers, passes, exec.
 *
 *     create -> calibrate (pulls from a feed) -> calc_qparams
 *            -> set_quant(true, true) -> forward (test data) ... -> export_onnx
 *
 * or, with data pushed batch by batch: prepare_calibration -> forward ... -> calc_qparams.
 *
 * A sbit_quant owns a simplified copy of the graph and a list of sites: tensors with a quantizer.
 * What is simulated is what is exported: both run the graph with QuantizeLinear and
 * DequantizeLinear nodes that sbit_quant_build makes. One thread at a time.
 */
#ifndef SBIT_QUANT_API_H
#define SBIT_QUANT_API_H

#include "qconfig_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sbit_quant sbit_quant;

/* The short way: simplified, calibrated on the feed (NULL: weights alone, if the configuration
 * needs no data), all steps of the recipe, scales, the graph with Q/DQ nodes. config NULL: 8 bits,
 * profile "generic". `graph` must outlive the result; free that with sbit_graph_destroy. Errors:
 * those of the functions below. */
SPARSEBIT_API sbit_status sbit_quantize(const sbit_graph *graph, const sbit_qconfig *config,
                                        const sbit_feed *feed, sbit_graph **out, sbit_error *error);

/* >>dequantize: models that are quantized already, by whatever tool. sbit_quant_create takes them
 * too: it makes them float and keeps their scales (SCHEDULE.KEEP_SCALES) where sites are the same.
 */
/* True if QuantizeLinear, DequantizeLinear or operators on integers are in it. */
SPARSEBIT_API bool sbit_graph_is_quantized(const sbit_graph *graph);
/* The float model: weights are what their integers stand for; inputs and outputs that were integers
 * are floats. Free with sbit_graph_destroy. Errors: UNSUPPORTED naming what has no float form. */
SPARSEBIT_API sbit_status sbit_dequantize(const sbit_graph *graph, sbit_graph **out,
                                          sbit_error *error);
/* The same model in another format: "qdq", "qoperator". Free with sbit_graph_destroy. Errors:
 * CONFIG (unknown format), UNSUPPORTED (a format of float activations). */
SPARSEBIT_API sbit_status sbit_format_convert(const sbit_graph *graph, const char *format,
                                              sbit_graph **out, sbit_error *error);

/* The attribute `bits` at every QuantizeLinear and DequantizeLinear, as Sparsebit's extra_info has
 * it. No standard knows it: such a file is for tools that do. */
SPARSEBIT_API sbit_status sbit_quant_add_bits(sbit_graph *graph, sbit_error *error);

/* Mean and variance of every BatchNormalization with constant statistics, anew from data, as
 * training would leave them: after pruning, or for what quantized layers compute. Errors: NOT_FOUND
 * if there is none. */
SPARSEBIT_API sbit_status sbit_reestimate_bn(sbit_graph *graph, const sbit_feed *feed,
                                             sbit_error *error);

/* The graph is copied, then simplified (BatchNormalization folded unless SCHEDULE.FUSE_BN is
 * false); config is copied. Everything that can be wrong is reported here, before any work:
 * operators that cannot run, patterns in SPECIFIC that match nothing (warning with the nearest
 * names), bits and schemes the BACKEND refuses. Free with sbit_quant_destroy. */
SPARSEBIT_API sbit_status sbit_quant_create(const sbit_graph *graph, const sbit_qconfig *config,
                                            sbit_quant **out, sbit_error *error);
SPARSEBIT_API void sbit_quant_destroy(sbit_quant *quant); /* NULL is fine */

/* Forgets what observers saw and shows them every sample of the feed, once or as often as they
 * want. Padding is not observed. Errors: those of the feed and of sbit_quant_forward; STATE if the
 * feed is empty and data is needed. */
SPARSEBIT_API sbit_status sbit_quant_calibrate(sbit_quant *quant, const sbit_feed *feed,
                                               sbit_error *error);
SPARSEBIT_API sbit_status sbit_quant_prepare_calibration(sbit_quant *quant, sbit_error *error);

/* True if some observer waits for data. Else (integer weights only, activations float) no batch
 * need be fed between prepare_calibration and calc_qparams. */
SPARSEBIT_API bool sbit_quant_needs_data(const sbit_quant *quant);
/* Runs the model on one batch. Between prepare_calibration and calc_qparams: in float, feeding the
 * observers. After: as set_quant says. names may be NULL if the model has one input. Results stay
 * until the next forward. Errors: NUMERIC naming the tensor with a value that is not finite,
 * SHAPE for inputs that do not fit. */
SPARSEBIT_API sbit_status sbit_quant_forward(sbit_quant *quant, const char *const *names,
                                             const sbit_tensor *inputs, size_t input_count,
                                             sbit_error *error);
SPARSEBIT_API const sbit_value *sbit_quant_output(const sbit_quant *quant, size_t index);

/* Scale and zero point of every site: a pure function of the model, what observers saw and the
 * settings. Called again it gives the same; after sbit_quant_set or sbit_quant_set_site it gives
 * what a fresh start with these settings would, without new data where the statistics allow.
 * asym: observers look again, layer after layer, at the model with what is quantized so far
 * (`weights`, `activations`: which of the two); needs data from sbit_quant_calibrate, whose feed
 * must still be readable. Errors: STATE if data is needed and nothing was fed ("calibration set is
 * empty"), or a changed observer needs a pass. */
SPARSEBIT_API sbit_status sbit_quant_calc_qparams(sbit_quant *quant, bool asym, bool weights,
                                                  bool activations, sbit_error *error);
/* What forward simulates from now on; both false: the float model. Before calc_qparams: STATE. */
SPARSEBIT_API sbit_status sbit_quant_set_quant(sbit_quant *quant, bool weights, bool activations,
                                               sbit_error *error);

/* What a build is to hold. {0}: everything. */
typedef struct sbit_quant_build_desc {
    bool float_weights, float_activations; /* leave them as they are */
    const bool *sites;                     /* [site count] which sites to quantize; NULL: all */
    const char *format;                    /* a row's name; NULL: EXPORT.FORMAT */
} sbit_quant_build_desc;
/* A new graph with Q/DQ nodes: weights as integers through DequantizeLinear, activations through
 * pairs. desc may be NULL. Free with sbit_graph_destroy before the quant. */
SPARSEBIT_API sbit_status sbit_quant_build(sbit_quant *quant, const sbit_quant_build_desc *desc,
                                           sbit_graph **out, sbit_error *error);
/* sbit_quant_build(NULL) checked and saved; metadata says how it was made. */
SPARSEBIT_API sbit_status sbit_quant_export_onnx(sbit_quant *quant, const char *path,
                                                 const sbit_onnx_write_desc *desc,
                                                 sbit_error *error);

/* The simplified float graph that the sites refer to. */
SPARSEBIT_API const sbit_graph *sbit_quant_graph(const sbit_quant *quant);

/* >>sites */
typedef struct sbit_site {
    const char *layer;   /* shown name of the layer whose settings it has */
    const char *tensor;  /* name of the value */
    sbit_value_id value; /* of the root graph; none for a tensor of a body */
    uint32_t target;     /* SBIT_TARGET_WEIGHT or SBIT_TARGET_ACTIVATION */
    bool enabled;        /* false: stays float, because of `reason` */
    const char *reason;  /* "" if enabled */
    const char *observer, *quantizer;
    sbit_qparams qparams; /* scale NULL before calc_qparams */
    float min, max;       /* of the observer, over all channels */
} sbit_site;
SPARSEBIT_API size_t sbit_quant_site_count(const sbit_quant *quant);
SPARSEBIT_API sbit_status sbit_quant_site(const sbit_quant *quant, size_t index, sbit_site *out);

/* Why no tensor of a node of sbit_quant_graph (the root) has a quantizer: a constant text; "" if
 * one has. Thread-safe. */
SPARSEBIT_API const char *sbit_quant_reason(const sbit_quant *quant, sbit_node_id node);

/* Wishes for one site beyond the configuration; {0}: none. */
typedef struct sbit_site_change {
    int32_t enable;     /* 1: quantize although the configuration disables it; -1: leave float */
    int32_t bits;       /* 2..16; 0: as configured */
    const float *scale; /* fixed, [grid.parts.count], copied; NULL: computed */
    const int32_t *zero_point; /* goes with scale */
} sbit_site_change;
/* Takes the place of what was asked for before; holds from the next calc_qparams on. Errors:
 * INVALID_ARGUMENT. */
SPARSEBIT_API sbit_status sbit_quant_set_site(sbit_quant *quant, size_t index,
                                              const sbit_site_change *change, sbit_error *error);
/* One key of the configuration, as in sbit_qconfig_set: bits, schemes, observers, SPECIFIC,
 * SKIP_TRACE_MODULES. Sites are found anew (their numbers may change); what observers saw is kept
 * where tensor, observer and its options are the same, wishes for sites too. */
SPARSEBIT_API sbit_status sbit_quant_set(sbit_quant *quant, const char *path, const char *value,
                                         sbit_error *error);

/* What observers saw, to and from a file of this machine: calibrating once, trying many settings.
 * Loading finds sites by tensor, observer and its settings and takes the place of
 * sbit_quant_calibrate. Errors: IO, PARSE; STATE if nothing was observed, the file was made with
 * other weights, or sites of this configuration are not in it (named). */
SPARSEBIT_API sbit_status sbit_quant_save_statistics(const sbit_quant *quant, const char *path,
                                                     sbit_error *error);
SPARSEBIT_API sbit_status sbit_quant_load_statistics(sbit_quant *quant, const char *path,
                                                     sbit_error *error);
/* Adds a file to what was loaded or calibrated, as if one run had seen both. Errors: as loading;
 * STATE if an observer cannot (moving_average: the order matters; kl_histogram, percentile, ort_*:
 * their passes have ended). After an error calibrate or load again. */
SPARSEBIT_API sbit_status sbit_quant_merge_statistics(sbit_quant *quant, const char *path,
                                                      sbit_error *error);

/* Scales in the files of other tools: "tensorrt" (calibration table: activations), "aimet" (JSON
 * encodings), "nni" (calibration_config). Errors: STATE before calc_qparams, NOT_FOUND, IO. */
SPARSEBIT_API sbit_status sbit_quant_save_encodings(sbit_quant *quant, const char *path,
                                                    const char *format, sbit_error *error);
/* Reads any of them: sites that are named there and have the same width and symmetry keep these
 * scales, as sbit_quant_set_site does; *taken: how many. calc_qparams comes behind it. Errors: IO,
 * PARSE, LIMIT (JSON above 16 MiB). */
SPARSEBIT_API sbit_status sbit_quant_load_encodings(sbit_quant *quant, const char *path,
                                                    int64_t *taken, sbit_error *error);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_QUANT_API_H */
