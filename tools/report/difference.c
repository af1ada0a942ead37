/* report/difference.c: how much model B differs from model A, the reference.
 *
 * Outputs are compared over all samples, in sessions as they normally run. Inner tensors with the
 * same name in both models are compared over the first samples, in sessions with taps: those of A
 * are kept for one batch, then each is compared as B computes it.
 */
#include "report/difference.h"
#include "base/table.h"
#include "report/unsupported.h"

#include <math.h>   /* isfinite */
#include <stdlib.h> /* calloc */

enum {
    CLI_TAP_SAMPLES = 32,
    CLI_TAP_BATCH = 8
};

/* ---- checks */

/* B must take what A is fed with. */
static int cli_compare_inputs(cli_comparison *c)
{
    if (c->a.input_count != c->b.input_count) {
        return cli_fail("'%s' has %lu inputs, '%s' has %lu: they cannot be compared", c->a.path,
                        (unsigned long)c->a.input_count, c->b.path,
                        (unsigned long)c->b.input_count);
    }
    for (size_t i = 0; i < c->data.input_count; i++) {
        char why[600];
        const char *name = sbit_graph_value(c->a.graph, c->data.inputs[i])->name;
        sbit_value_id id = sbit_graph_find_value(c->b.graph, name);
        if (c->b.input_count == 1) {
            id = c->b.inputs[0];
        }
        if (id.idx == 0 || !sbit_graph_value(c->b.graph, id)->is_input) {
            return cli_fail("'%s' has no input '%s': the models cannot be compared", c->b.path,
                            name);
        }
        const sbit_type *type = &sbit_graph_value(c->b.graph, id)->type;
        sbit_tensor sample = c->data.samples[i];
        if (type->rank > 0 && sample.rank > 0 && type->dims[0].symbol == 0 &&
            !c->data.source->one_by_one) {
            if (c->data.fixed_batch && c->data.batch != type->dims[0].value) {
                return cli_fail("'%s' has a batch of %lld, '%s' of %lld: they cannot be compared",
                                c->a.path, (long long)c->data.batch, c->b.path,
                                (long long)type->dims[0].value);
            }
            c->data.fixed_batch = true;
            c->data.batch = type->dims[0].value;
            sample.dims[0] = c->data.batch;
        }
        if (!c->data.fixed_batch || c->data.source->one_by_one || sample.dims[0] == c->data.batch) {
            if (!cli_type_takes(c->b.graph, type, &sample, why, sizeof why)) {
                return cli_fail("'%s' cannot be fed like '%s': %s", c->b.path, c->a.path, why);
            }
        }
    }
    return CLI_OK;
}

static int cli_compare_outputs(cli_comparison *c)
{
    const size_t a = sbit_graph_output_count(c->a.graph);
    const size_t b = sbit_graph_output_count(c->b.graph);
    c->output_count = a < b ? a : b;
    if (c->output_count > CLI_MAX_INPUTS) {
        c->output_count = CLI_MAX_INPUTS;
    }
    if (a != b) {
        cli_warn("'%s' has %lu outputs, '%s' has %lu: the first %lu are compared", c->a.path,
                 (unsigned long)a, c->b.path, (unsigned long)b, (unsigned long)c->output_count);
    }
    return c->output_count > 0 ? CLI_OK : cli_fail("there are no outputs to compare");
}

/* ---- outputs */

static void cli_count_agreement(cli_comparison *c, const sbit_tensor *a, const sbit_tensor *b)
{
    static float room_a[65536], room_b[65536];
    for (int64_t i = 0; i < c->batch.count; i++) {
        int64_t classes_a = 0, classes_b = 0;
        const float *x = cli_logits(a, i, c->slots, room_a, 65536, &classes_a);
        const float *y = cli_logits(b, i, c->slots, room_b, 65536, &classes_b);
        if (x != NULL && y != NULL && classes_a == classes_b && classes_a > 1) {
            c->ranked++;
            c->agreed += sbit_best_of(x, classes_a) == sbit_best_of(y, classes_b);
        }
    }
}

/* Adds the time that it took to *seconds. */
static int cli_compare_step(cli_comparison *c, sbit_session *session, const cli_model *model,
                            double *seconds)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_set_inputs(session, &c->batch, model->path));
    const double begin = cli_seconds();
    if (sbit_session_run(session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' failed", model->path);
    }
    *seconds += cli_seconds() - begin;
    return CLI_OK;
}

static int cli_compare_batch(cli_comparison *c, int64_t first, sbit_session *a, sbit_session *b)
{
    CLI_TRY(cli_data_batch(&c->data, first, &c->batch));
    c->slots = c->data.fixed_batch ? c->data.batch : c->batch.count;
    if (c->timed == 0) { /* the first batch plans and packs */
        c->seconds_a = c->seconds_b = 0.0;
    }
    CLI_TRY(cli_compare_step(c, a, &c->a, &c->seconds_a));
    CLI_TRY(cli_compare_step(c, b, &c->b, &c->seconds_b));
    c->timed += first > 0 || c->data.count <= c->data.batch ? c->batch.count : 0;
    for (size_t i = 0; i < c->output_count; i++) {
        const sbit_value *x = sbit_session_output(a, i), *y = sbit_session_output(b, i);
        if (x->kind != SBIT_KIND_TENSOR || y->kind != SBIT_KIND_TENSOR) {
            c->outputs[i].broken = true;
            continue;
        }
        sbit_diff_add(&c->outputs[i], &x->tensor, &y->tensor,
                      cli_used_count(&x->tensor, c->batch.count, c->slots));
        if (i == 0) {
            cli_count_agreement(c, &x->tensor, &y->tensor);
        }
    }
    c->samples += c->batch.count;
    return CLI_OK;
}

static int cli_compare_all(cli_comparison *c)
{
    sbit_session *a = NULL, *b = NULL;
    CLI_TRY(cli_session_create(c->a.graph, NULL, c->a.path, &a));
    int code = cli_session_create(c->b.graph, NULL, c->b.path, &b);
    for (int64_t first = 0; first < c->data.count && code == CLI_OK; first += c->data.batch) {
        cli_progress("compare", first, c->data.count);
        code = cli_compare_batch(c, first, a, b);
    }
    cli_progress("compare", c->data.count, c->data.count);
    sbit_session_destroy(a);
    sbit_session_destroy(b);
    return code;
}

/* ---- inner tensors */

static bool cli_is_inner(const sbit_value_info *info)
{
    return info->producer.idx != 0 && !info->is_constant && !info->is_output &&
           info->type.kind == SBIT_KIND_TENSOR && info->type.dtype == SBIT_F32;
}

static int cli_find_pairs(cli_comparison *c)
{
    const uint32_t limit = sbit_graph_value_limit(c->a.graph);
    c->pairs = (cli_pair *)calloc((size_t)limit + 1, sizeof *c->pairs);
    c->slot_a = (uint32_t *)calloc((size_t)limit + 1, sizeof *c->slot_a);
    c->slot_b =
        (uint32_t *)calloc((size_t)sbit_graph_value_limit(c->b.graph) + 1, sizeof *c->slot_b);
    if (c->pairs == NULL || c->slot_a == NULL || c->slot_b == NULL) {
        return cli_fail_memory((size_t)limit * sizeof *c->pairs);
    }
    for (sbit_node_id node = sbit_graph_first(c->a.graph); node.idx != 0;
         node = sbit_graph_next(c->a.graph, node)) {
        const sbit_node *from = sbit_graph_node(c->a.graph, node);
        for (size_t i = 0; i < from->output_count; i++) {
            const sbit_value_id id = from->outputs[i];
            if (id.idx == 0 || !cli_is_inner(sbit_graph_value(c->a.graph, id))) {
                continue;
            }
            const char *name = sbit_graph_value(c->a.graph, id)->name;
            const sbit_value_id other = sbit_graph_find_value(c->b.graph, name);
            if (other.idx == 0 || !cli_is_inner(sbit_graph_value(c->b.graph, other))) {
                continue;
            }
            cli_pair *pair = &c->pairs[c->pair_count++];
            pair->name = name;
            pair->a = id;
            pair->b = other;
            c->slot_a[id.idx] = c->slot_b[other.idx] = (uint32_t)c->pair_count;
        }
    }
    return CLI_OK;
}

static sbit_status cli_tap_keep(const sbit_graph *graph, sbit_value_id id, const sbit_value *value,
                                void *user, sbit_error *error)
{
    (void)graph;
    cli_comparison *c = (cli_comparison *)user;
    cli_pair *pair = &c->pairs[c->slot_a[id.idx] - 1];
    const sbit_tensor *tensor = &value->tensor;
    if (pair->kept.data == NULL || !sbit_tensor_same_shape(&pair->kept, tensor)) {
        sbit_tensor_free(c->a.ctx, &pair->kept);
        const sbit_status status = sbit_tensor_alloc(c->a.ctx, tensor->dtype, tensor->rank,
                                                     tensor->dims, &pair->kept, error);
        if (status != SBIT_OK) {
            return status;
        }
    }
    if (sbit_tensor_bytes(tensor) > 0) {
        memcpy(pair->kept.data, tensor->data, sbit_tensor_bytes(tensor));
    }
    return SBIT_OK;
}

static sbit_status cli_tap_compare(const sbit_graph *graph, sbit_value_id id,
                                   const sbit_value *value, void *user, sbit_error *error)
{
    (void)graph;
    cli_comparison *c = (cli_comparison *)user;
    cli_pair *pair = &c->pairs[c->slot_b[id.idx] - 1];
    (void)error;
    sbit_diff_add(&pair->diff, &pair->kept, &value->tensor,
                  cli_used_count(&pair->kept, c->batch.count, c->slots));
    return SBIT_OK;
}

static int cli_tapped_session(cli_comparison *c, bool first, sbit_session **out)
{
    sbit_session_desc desc;
    sbit_value_id *taps = (sbit_value_id *)calloc(c->pair_count, sizeof *taps);
    if (taps == NULL) {
        return cli_fail_memory(c->pair_count * sizeof *taps);
    }
    for (size_t i = 0; i < c->pair_count; i++) {
        taps[i] = first ? c->pairs[i].a : c->pairs[i].b;
    }
    memset(&desc, 0, sizeof desc);
    desc.tap_fn = first ? cli_tap_keep : cli_tap_compare;
    desc.tap_user = c;
    desc.taps = taps;
    desc.tap_count = c->pair_count;
    const int code = cli_session_create(first ? c->a.graph : c->b.graph, &desc,
                                        first ? c->a.path : c->b.path, out);
    free(taps);
    return code;
}

static int cli_compare_inner(cli_comparison *c)
{
    sbit_session *a = NULL, *b = NULL;
    double ignored = 0.0;
    const int64_t kept = c->data.batch;
    const int64_t end = c->data.count < CLI_TAP_SAMPLES ? c->data.count : (int64_t)CLI_TAP_SAMPLES;
    CLI_TRY(cli_find_pairs(c));
    if (c->pair_count == 0) {
        return CLI_OK;
    }
    if (!c->data.fixed_batch && kept > CLI_TAP_BATCH) {
        c->data.batch = CLI_TAP_BATCH;
    }
    int code = cli_tapped_session(c, true, &a);
    code = code == CLI_OK ? cli_tapped_session(c, false, &b) : code;
    for (int64_t first = 0; first < end && code == CLI_OK; first += c->data.batch) {
        cli_progress("compare layers", first, end);
        code = cli_data_batch(&c->data, first, &c->batch);
        c->slots = c->data.fixed_batch ? c->data.batch : c->batch.count;
        code = code == CLI_OK ? cli_compare_step(c, a, &c->a, &ignored) : code;
        code = code == CLI_OK ? cli_compare_step(c, b, &c->b, &ignored) : code;
    }
    cli_progress("compare layers", end, end);
    c->data.batch = kept;
    sbit_session_destroy(a);
    sbit_session_destroy(b);
    return code;
}

/* ---- showing */

static void cli_json_diff(sbit_json *json, const char *name, const sbit_diff *diff)
{
    sbit_json_open(json, NULL, '{');
    sbit_json_text(json, "name", name);
    sbit_json_number(json, "sqnr_db", sbit_diff_sqnr(diff));
    sbit_json_number(json, "cosine", sbit_diff_cosine(diff));
    sbit_json_number(json, "max_abs", diff->broken ? sbit_diff_cosine(diff) : diff->max_error);
    sbit_json_number(json, "relative_error", sbit_diff_relative(diff));
    sbit_json_bool(json, "equal", !diff->broken && diff->max_error == 0.0);
    sbit_json_bool(json, "within_tolerance", sbit_diff_relative(diff) <= 1e-4);
    sbit_json_bool(json, "comparable", !diff->broken);
    sbit_json_close(json, '}');
}

static const char *cli_output_name(const cli_comparison *c, size_t index)
{
    return sbit_graph_value(c->a.graph, sbit_graph_output(c->a.graph, index))->name;
}

void cli_compare_json(cli_json *json, const cli_comparison *c)
{
    sbit_json_int(&json->to, "samples", c->samples);
    if (c->ranked > 0) {
        sbit_json_number(&json->to, "top1_agreement", (double)c->agreed / (double)c->ranked);
    }
    sbit_json_open(&json->to, "outputs", '[');
    for (size_t i = 0; i < c->output_count; i++) {
        cli_json_diff(&json->to, cli_output_name(c, i), &c->outputs[i]);
    }
    sbit_json_close(&json->to, ']');
    sbit_json_open(&json->to, "tensors", '[');
    for (size_t i = 0; i < c->pair_count; i++) {
        cli_json_diff(&json->to, c->pairs[i].name, &c->pairs[i].diff);
    }
    sbit_json_close(&json->to, ']');
}

static void cli_diff_row(cli_table *table, const char *name, const sbit_diff *diff)
{
    const double sqnr = sbit_diff_sqnr(diff);
    cli_table_cell(table, "%s", name);
    if (diff->broken) {
        cli_table_cell(table, "differs in shape, or has values that are not finite");
        for (int i = 0; i < 3; i++) {
            cli_table_cell(table, "%s", "");
        }
        return;
    }
    if (isfinite(sqnr)) {
        cli_table_cell(table, "%.1f dB", sqnr);
    } else {
        cli_table_cell(table, "equal");
    }
    cli_table_cell(table, "%.6f", sbit_diff_cosine(diff));
    cli_table_cell(table, "%.3g", diff->max_error);
    cli_table_cell(table, "%.3g", sbit_diff_relative(diff));
}

static void cli_diff_heads(cli_table *table, const char *first)
{
    cli_table_begin(table, "<>>>>");
    cli_table_cell(table, "%s", first);
    cli_table_cell(table, "SQNR");
    cli_table_cell(table, "cosine");
    cli_table_cell(table, "max abs");
    cli_table_cell(table, "relative");
}

static int cli_pair_order(const void *a, const void *b)
{
    const cli_pair *p = (const cli_pair *)a, *q = (const cli_pair *)b;
    const double x = sbit_diff_sqnr(&p->diff), y = sbit_diff_sqnr(&q->diff);
    return x < y ? -1 : x > y ? 1 : p->a.idx < q->a.idx ? -1 : 1;
}

int cli_compare_print(cli_comparison *c, size_t rows)
{
    cli_table table;
    cli_diff_heads(&table, "output");
    for (size_t i = 0; i < c->output_count; i++) {
        cli_diff_row(&table, cli_output_name(c, i), &c->outputs[i]);
    }
    CLI_TRY(cli_table_print(&table, stdout));
    if (c->ranked > 0) {
        printf("top-1 agreement %.2f %% (%lld of %lld samples)\n",
               100.0 * (double)c->agreed / (double)c->ranked, (long long)c->agreed,
               (long long)c->ranked);
    } else {
        printf("%lld samples\n", (long long)c->samples);
    }
    if (c->pair_count == 0) {
        printf("no inner tensors have the same name in both models\n");
        return CLI_OK;
    }
    qsort(c->pairs, c->pair_count, sizeof *c->pairs, cli_pair_order);
    cli_diff_heads(&table, "\ninner tensor, worst first");
    for (size_t i = 0; i < c->pair_count && i < rows; i++) {
        cli_diff_row(&table, c->pairs[i].name, &c->pairs[i].diff);
    }
    CLI_TRY(cli_table_print(&table, stdout));
    if (c->pair_count > rows) {
        printf("and %lu more (--json has them all)\n",
               (unsigned long)(c->pair_count - rows));
    }
    return CLI_OK;
}

/* ---- all of it */

int cli_compare_run(cli_comparison *c)
{
    CLI_TRY(cli_model_check_runs(&c->a));
    CLI_TRY(cli_model_check_runs(&c->b));
    CLI_TRY(cli_data_open(c->args, &c->a, "data set", c->args->data, cli_choice_of(c->args),
                          &c->data));
    cli_check_stored_prep(&c->data, &c->a);
    cli_check_stored_prep(&c->data, &c->b);
    CLI_TRY(cli_compare_inputs(c));
    CLI_TRY(cli_compare_outputs(c));
    CLI_TRY(cli_compare_all(c));
    return cli_compare_inner(c);
}

void cli_compare_free(cli_comparison *c)
{
    for (size_t i = 0; i < c->pair_count; i++) {
        sbit_tensor_free(c->a.ctx, &c->pairs[i].kept);
    }
    free(c->pairs);
    free(c->slot_a);
    free(c->slot_b);
    cli_batch_free(c->a.ctx, &c->batch);
    cli_data_close(&c->data);
    cli_model_free(&c->b);
    cli_model_free(&c->a);
}
