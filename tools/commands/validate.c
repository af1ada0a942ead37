/* commands/validate.c: `sparsebit validate`: what a quantized model proves by itself, and how it does
 * on data.
 */
#include "base/table.h"
#include "commands/commands.h"
#include "report/difference.h"

#include <math.h>   /* isfinite */
#include <stdlib.h> /* realloc, free */

enum {
    CLI_VALIDATE_ROWS = 5, /* inner tensors, weights and products shown without --json */
    CLI_AGREEMENT = 98     /* percent of equal predictions that are wanted without --agreement */
};

typedef struct cli_validation {
    cli_comparison c;
    sbit_proof *proofs;
    sbit_rounding *roundings;
    size_t products, proof_capacity, weights, weight_capacity, unmatched;
    bool failed;                       /* out of memory */
    double most;                       /* the largest sum, as a part of 2^31 */
    size_t wraps, apart;               /* products that may wrap; that may be further than a step */
    int64_t elements, nearest, other;  /* of all weights */
    double worst, wanted;              /* steps; share of equal predictions */
} cli_validation;

/* ---- what the file proves */

/* Room for one more; NULL: out of memory. */
static void *cli_grow(void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity) {
        return items;
    }
    *capacity = 2 * *capacity + 64;
    return realloc(items, *capacity * size);
}

static void cli_take_proof(const sbit_proof *proof, void *user)
{
    cli_validation *v = (cli_validation *)user;
    sbit_proof *room =
        (sbit_proof *)cli_grow(v->proofs, v->products, &v->proof_capacity, sizeof *room);
    v->failed = v->failed || room == NULL;
    if (v->failed) {
        return;
    }
    v->proofs = room;
    v->proofs[v->products++] = *proof;
    v->most = fmax(v->most, proof->sum / 2147483648.0);
    v->wraps += proof->fits ? 0 : 1;
    v->apart += proof->deviation < 1.0 ? 0 : 1;
}

static void cli_take_rounding(const sbit_rounding *rounding, void *user)
{
    cli_validation *v = (cli_validation *)user;
    sbit_rounding *room =
        (sbit_rounding *)cli_grow(v->roundings, v->weights, &v->weight_capacity, sizeof *room);
    v->failed = v->failed || room == NULL;
    if (v->failed) {
        return;
    }
    v->roundings = room;
    v->roundings[v->weights++] = *rounding;
    v->elements += rounding->count;
    v->nearest += rounding->nearest;
    v->other += rounding->other;
    v->worst = fmax(v->worst, rounding->worst);
}

static int cli_rounding_order(const void *a, const void *b)
{
    const sbit_rounding *x = (const sbit_rounding *)a, *y = (const sbit_rounding *)b;
    return x->worst > y->worst ? -1 : x->worst < y->worst ? 1 : strcmp(x->layer, y->layer);
}

static int cli_proof_order(const void *a, const void *b)
{
    const sbit_proof *x = (const sbit_proof *)a, *y = (const sbit_proof *)b;
    return x->sum > y->sum ? -1 : x->sum < y->sum ? 1 : x->node.idx < y->node.idx ? -1 : 1;
}

/* The file as it is; then both models as they run. */
static int cli_validate_prove(cli_validation *v)
{
    CLI_TRY(cli_model_prepare(v->c.args, &v->c.a));
    sbit_graph_prove(v->c.b.graph, cli_take_proof, v);
    v->unmatched =
        sbit_graph_roundings(v->c.a.graph, v->c.b.graph, cli_take_rounding, v);
    if (v->failed) {
        return cli_fail_memory(v->proof_capacity * sizeof *v->proofs);
    }
    if (v->products + v->weights + v->unmatched == 0) {
        return cli_fail("'%s' has no quantized layers: there is nothing to validate",
                        v->c.b.path);
    }
    if (v->proofs != NULL) {
        qsort(v->proofs, v->products, sizeof *v->proofs, cli_proof_order);
    }
    if (v->roundings != NULL) {
        qsort(v->roundings, v->weights, sizeof *v->roundings, cli_rounding_order);
    }
    return CLI_OK;
}

/* ---- the verdict */

typedef enum cli_verdict {
    CLI_PROVED,
    CLI_NOT_PROVED,
    CLI_MEASURED, /* good enough on this data */
    CLI_TOO_LOW
} cli_verdict;

static const char *cli_verdict_text(cli_verdict verdict)
{
    static const char *const texts[] = {"proved", "NOT proved", "enough", "TOO LOW"};
    return texts[verdict];
}

static cli_verdict cli_accumulators(const cli_validation *v)
{
    return v->wraps == 0 ? CLI_PROVED : CLI_NOT_PROVED;
}

static cli_verdict cli_requantization(const cli_validation *v)
{
    return v->apart == 0 ? CLI_PROVED : CLI_NOT_PROVED;
}

static cli_verdict cli_weights(const cli_validation *v)
{
    return v->unmatched == 0 && v->nearest + v->other == v->elements ? CLI_PROVED : CLI_NOT_PROVED;
}

static double cli_agreement(const cli_validation *v)
{
    return v->c.ranked > 0 ? (double)v->c.agreed / (double)v->c.ranked : 1.0;
}

static cli_verdict cli_predictions(const cli_validation *v)
{
    return cli_agreement(v) >= v->wanted && !v->c.outputs[0].broken ? CLI_MEASURED : CLI_TOO_LOW;
}

/* Weights that a recipe moved (GPTQ ...) fail with --strict alone. */
static bool cli_validate_passed(const cli_validation *v)
{
    return cli_accumulators(v) == CLI_PROVED && cli_requantization(v) == CLI_PROVED &&
           cli_predictions(v) == CLI_MEASURED &&
           (cli_weights(v) == CLI_PROVED || !v->c.args->strict);
}

static double cli_ms(const cli_validation *v, double seconds)
{
    return v->c.timed > 0 ? 1000.0 * seconds / (double)v->c.timed : 0.0;
}

/* ---- showing */

static void cli_json_proof(sbit_json *json, const sbit_proof *proof)
{
    char name[300];
    sbit_graph_describe(proof->graph, proof->node, name, sizeof name);
    sbit_json_open(json, NULL, '{');
    sbit_json_text(json, "node", name);
    sbit_json_number(json, "largest_sum", proof->sum);
    sbit_json_bool(json, "fits", proof->fits);
    sbit_json_number(json, "deviation_steps", proof->deviation);
    sbit_json_close(json, '}');
}

static void cli_json_rounding(sbit_json *json, const sbit_rounding *rounding)
{
    sbit_json_open(json, NULL, '{');
    sbit_json_text(json, "layer", rounding->layer);
    sbit_json_int(json, "elements", rounding->count);
    sbit_json_int(json, "nearest", rounding->nearest);
    sbit_json_int(json, "other", rounding->other);
    sbit_json_number(json, "worst_steps", rounding->worst);
    sbit_json_close(json, '}');
}

static void cli_json_model(sbit_json *json, const char *key, const cli_validation *v,
                           const cli_model *model, double seconds)
{
    sbit_json_open(json, key, '{');
    sbit_json_text(json, "model", model->path);
    sbit_json_int(json, "bytes", (int64_t)model->file_bytes);
    sbit_json_number(json, "ms_per_sample", cli_ms(v, seconds));
    sbit_json_close(json, '}');
}

static int cli_validate_json(const cli_validation *v)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_bool(&json.to, "passed", cli_validate_passed(v));
    sbit_json_text(&json.to, "accumulators", cli_verdict_text(cli_accumulators(v)));
    sbit_json_text(&json.to, "requantization", cli_verdict_text(cli_requantization(v)));
    sbit_json_text(&json.to, "weights_rounded", cli_verdict_text(cli_weights(v)));
    sbit_json_text(&json.to, "predictions", cli_verdict_text(cli_predictions(v)));
    sbit_json_number(&json.to, "wanted_agreement", v->wanted);
    cli_json_model(&json.to, "float", v, &v->c.a, v->c.seconds_a);
    cli_json_model(&json.to, "quantized", v, &v->c.b, v->c.seconds_b);
    sbit_json_int(&json.to, "weight_elements", v->elements);
    sbit_json_int(&json.to, "nearest", v->nearest);
    sbit_json_int(&json.to, "other", v->other);
    sbit_json_int(&json.to, "weights_without_partner", (int64_t)v->unmatched);
    sbit_json_open(&json.to, "products", '[');
    for (size_t i = 0; i < v->products; i++) {
        cli_json_proof(&json.to, &v->proofs[i]);
    }
    sbit_json_close(&json.to, ']');
    sbit_json_open(&json.to, "weights", '[');
    for (size_t i = 0; i < v->weights; i++) {
        cli_json_rounding(&json.to, &v->roundings[i]);
    }
    sbit_json_close(&json.to, ']');
    cli_compare_json(&json, &v->c);
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

static void cli_print_accumulators(const cli_validation *v)
{
    printf("%-11s int32 sums do not wrap, whatever the input: %lu product%s, the largest sum is "
           "%.3g %% of the limit\n",
           cli_verdict_text(cli_accumulators(v)), (unsigned long)v->products,
           v->products == 1 ? "" : "s", 100.0 * v->most);
    for (size_t i = 0; i < v->wraps && i < CLI_VALIDATE_ROWS; i++) {
        char name[300];
        sbit_graph_describe(v->proofs[i].graph, v->proofs[i].node, name, sizeof name);
        if (isfinite(v->proofs[i].sum)) {
            printf("  %s: up to %.4g\n", name, v->proofs[i].sum);
        } else {
            printf("  %s: the length of its sums is not known\n", name);
        }
    }
}

static void cli_print_requantization(const cli_validation *v)
{
    size_t shown = 0;
    printf("%-11s integers are within one step of exact arithmetic\n",
           cli_verdict_text(cli_requantization(v)));
    for (size_t i = 0; i < v->products && shown < CLI_VALIDATE_ROWS; i++) {
        char name[300];
        if (!(v->proofs[i].deviation < 1.0)) {
            sbit_graph_describe(v->proofs[i].graph, v->proofs[i].node, name, sizeof name);
            printf("  %s: its scales are computed, differ per channel of an activation, or their "
                   "product is no normal number\n",
                   name);
            shown++;
        }
    }
}

static void cli_print_weights(const cli_validation *v)
{
    const double all = v->elements > 0 ? 100.0 / (double)v->elements : 0.0;
    const int64_t moved = v->elements - v->nearest - v->other;
    printf("%-11s weights are roundings of the float ones: %.2f %% to the nearest, %.2f %% to the "
           "other side, %.2f %% moved further (worst: %.3g steps)\n",
           cli_verdict_text(cli_weights(v)), all * (double)v->nearest, all * (double)v->other,
           all * (double)moved, v->worst);
    for (size_t i = 0; i < v->weights && i < CLI_VALIDATE_ROWS && v->roundings[i].worst >= 1.0;
         i++) {
        printf("  %s: up to %.3g steps away\n", v->roundings[i].layer, v->roundings[i].worst);
    }
    if (v->unmatched > 0) {
        printf("  %lu weight%s not found in '%s'\n", (unsigned long)v->unmatched,
               v->unmatched == 1 ? " is" : "s are", v->c.a.path);
    }
}

static int cli_validate_show(cli_validation *v)
{
    char a[40], b[40];
    if (v->c.args->json) {
        return cli_validate_json(v);
    }
    cli_print_accumulators(v);
    cli_print_requantization(v);
    cli_print_weights(v);
    if (v->c.ranked > 0) {
        printf("%-11s predictions agree on %.2f %% of the samples (%.4g %% is wanted)\n",
               cli_verdict_text(cli_predictions(v)), 100.0 * cli_agreement(v), 100.0 * v->wanted);
    } else if (v->c.outputs[0].broken) {
        printf("%-11s outputs differ in shape, or are not finite\n",
               cli_verdict_text(cli_predictions(v)));
    }
    printf("\n%-11s %s -> %s (%.2fx)\n", "file",
           cli_bytes_text((double)v->c.a.file_bytes, a, sizeof a),
           cli_bytes_text((double)v->c.b.file_bytes, b, sizeof b),
           (double)v->c.b.file_bytes / (double)v->c.a.file_bytes);
    printf("%-11s %.4f -> %.4f ms a sample, %d thread%s\n\n", "time", cli_ms(v, v->c.seconds_a),
           cli_ms(v, v->c.seconds_b), (int)sbit_ctx_threads(v->c.a.ctx),
           sbit_ctx_threads(v->c.a.ctx) > 1 ? "s" : "");
    CLI_TRY(cli_compare_print(&v->c, CLI_VALIDATE_ROWS));
    printf("\nverdict: %s\n", cli_validate_passed(v) ? "passed" : "FAILED");
    return CLI_OK;
}

/* ---- the command */

static int cli_validate_run(cli_validation *v)
{
    const cli_args *args = v->c.args;
    v->wanted = (args->agreement.count > 0 ? args->agreement.items[0] : CLI_AGREEMENT) / 100.0;
    CLI_TRY(cli_validate_prove(v));
    CLI_TRY(cli_compare_run(&v->c));
    CLI_TRY(cli_validate_show(v));
    return cli_validate_passed(v) ? CLI_OK : cli_fail("'%s' failed validation", v->c.b.path);
}

int cli_validate(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_validation v;
    memset(&v, 0, sizeof v);
    v.c.args = args;
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &v.c.a);
    code = code == CLI_OK ? cli_model_load(ctx, args->operands[1], &v.c.b) : code;
    code = code == CLI_OK ? cli_validate_run(&v) : code;
    cli_compare_free(&v.c);
    free(v.proofs);
    free(v.roundings);
    sbit_ctx_destroy(ctx);
    return code;
}
