/* report/measure.c: accuracy of a graph on a data set, ranges of inputs.
 */
#include "report/measure.h"

#include <math.h>   /* log10, sqrt, fabs, isfinite */
#include <stdlib.h> /* malloc, strtod */

/* ---- ranges of inputs */

int64_t cli_used_count(const sbit_tensor *tensor, int64_t used, int64_t slots)
{
    const int64_t count = sbit_tensor_count(tensor);
    return slots > 0 && tensor->rank > 0 && tensor->dims[0] == slots ? count / slots * used : count;
}

void cli_range_add(cli_range *range, const sbit_tensor *tensor, int64_t used, int64_t slots)
{
    const int64_t count = cli_used_count(tensor, used, slots);
    const double slack = 1e-6 * (range->high - range->low);
    if (!sbit_dtype_is_number(tensor->dtype)) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const double value = sbit_tensor_f64_at(tensor, i);
        range->min = range->count + i == 0 || value < range->min ? value : range->min;
        range->max = range->count + i == 0 || value > range->max ? value : range->max;
        range->sum += value;
        range->outside +=
            range->bounded && (value < range->low - slack || value > range->high + slack) ? 1.0
                                                                                          : 0.0;
    }
    range->count += count;
}

void cli_ranges_stored(const cli_data *data, const cli_model *model, cli_range *ranges)
{
    for (size_t i = 0; i < data->input_count; i++) {
        char key[300];
        char *end = NULL;
        memset(&ranges[i], 0, sizeof ranges[i]);
        snprintf(key, sizeof key, CLI_KEY_RANGE "%s",
                 sbit_graph_value(data->model->graph, data->inputs[i])->name);
        const char *text = cli_model_metadata(model, key);
        if (text == NULL) {
            continue;
        }
        ranges[i].low = strtod(text, &end);
        ranges[i].high = strtod(end, NULL);
        ranges[i].bounded = end != text && ranges[i].high > ranges[i].low;
    }
}

void cli_ranges_warn(const cli_data *data, const cli_range *ranges)
{
    for (size_t i = 0; i < data->input_count; i++) {
        const cli_range *r = &ranges[i];
        const double part = r->count > 0 ? r->outside / (double)r->count : 0.0;
        if (r->bounded && part > 0.2) {
            cli_warn("input clipped %.0f %%: values of '%s' reach from %.4g to %.4g, the model was "
                     "calibrated for %.4g to %.4g; use the same --scale, --mean and --std",
                     100.0 * part, sbit_graph_value(data->model->graph, data->inputs[i])->name,
                     r->min, r->max, r->low, r->high);
        }
    }
}

void cli_check_stored_prep(const cli_data *data, const cli_model *model)
{
    char now[4096];
    const char *stored = cli_model_metadata(model, CLI_KEY_PREP);
    cli_data_prep_text(data, now, sizeof now);
    /* data that is fed as it is may have been prepared elsewhere */
    if (stored != NULL && data->prep.active && strcmp(stored, now) != 0) {
        cli_warn("'%s' was calibrated with other preprocessing: %s; now it is: %s", model->path,
                 stored, now);
    }
}

/* ---- running */

int cli_set_inputs(sbit_session *session, const cli_batch *batch, const char *name)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    for (size_t i = 0; i < batch->input_count; i++) {
        const char *input = batch->names[i];
        if (batch->input_count == 1 && sbit_session_input_count(session) == 1) {
            input = sbit_session_input_info(session, 0)->name;
        }
        if (sbit_session_set_input(session, input, &batch->inputs[i], &error) != SBIT_OK) {
            return cli_fail_library(&error, "cannot feed '%s'", name);
        }
    }
    return CLI_OK;
}

int cli_find_output(const cli_args *args, const sbit_graph *graph, size_t *index)
{
    char names[600] = "";
    for (size_t i = 0; i < sbit_graph_output_count(graph); i++) {
        const char *name = sbit_graph_value(graph, sbit_graph_output(graph, i))->name;
        const size_t at = strlen(names);
        if (args->output == NULL || strcmp(args->output, name) == 0) {
            *index = i;
            return CLI_OK;
        }
        snprintf(names + at, sizeof names - at, "%s%s", i > 0 ? ", " : "", name);
    }
    return args->output == NULL ? cli_fail("the model has no outputs")
                                : cli_fail("--output '%s': there is no such output; there are: %s",
                                           args->output, names);
}

const float *cli_logits(const sbit_tensor *output, int64_t slot, int64_t slots, float *room,
                        int64_t room_count, int64_t *classes)
{
    const int64_t count = sbit_tensor_count(output);
    int32_t wide = 0; /* dims behind the first that are not 1 */
    for (int32_t i = 1; i < output->rank; i++) {
        wide += output->dims[i] != 1;
    }
    const bool fits = output->rank >= 2 && output->dims[0] == slots && wide <= 1;
    *classes = fits && slots > 0 ? count / slots : 0;
    if (*classes < 1 || *classes > room_count || !sbit_dtype_is_number(output->dtype)) {
        return NULL;
    }
    for (int64_t c = 0; c < *classes; c++) {
        room[c] = (float)sbit_tensor_f64_at(output, slot * *classes + c);
    }
    return room;
}

/* ---- evaluation */

enum {
    CLI_CLASSES_MAX = 1 << 20
};

typedef struct cli_evaluation {
    cli_data *data;
    const sbit_graph *graph;
    sbit_session *session;
    const char *name;
    cli_range *ranges;
    size_t output;
    float *room; /* [CLI_CLASSES_MAX] */
    cli_batch batch;
    cli_score *score;
} cli_evaluation;

static const sbit_value_info *cli_output_info(const cli_evaluation *e)
{
    return sbit_graph_value(e->graph, sbit_graph_output(e->graph, e->output));
}

static int cli_score_labels(cli_evaluation *e)
{
    const sbit_value *value = sbit_session_output(e->session, e->output);
    const int64_t slots = e->data->fixed_batch ? e->data->batch : e->batch.count;
    for (int64_t i = 0; i < e->batch.count; i++) {
        int64_t classes = 0;
        const float *logits =
            cli_logits(&value->tensor, i, slots, e->room, CLI_CLASSES_MAX, &classes);
        const int64_t label = e->batch.labels[i];
        if (logits == NULL) {
            char text[200];
            sbit_tensor_describe(&value->tensor, text, sizeof text);
            return cli_fail(
                "output '%s' of '%s' is %s; logits [N, classes] are wanted: choose with "
                "--output NAME",
                cli_output_info(e)->name, e->name, text);
        }
        if (label >= classes) {
            return cli_fail("label %lld, but output '%s' of '%s' has %lld classes; is it the right "
                            "data?",
                            (long long)label, cli_output_info(e)->name, e->name,
                            (long long)classes);
        }
        const int64_t rank = sbit_rank_of(logits, classes, label);
        e->score->top1 += rank < 1;
        e->score->top5 += rank < 5;
        e->score->classes = classes;
    }
    return CLI_OK;
}

static int cli_score_outputs(cli_evaluation *e, int64_t sample)
{
    sbit_tensor wanted[CLI_MAX_INPUTS];
    size_t count = 0;
    bool matches = true;
    int code = cli_pb_outputs(e->data, sample, wanted, CLI_COUNT_OF(wanted), &count);
    for (size_t i = 0; i < count; i++) {
        sbit_diff diff;
        memset(&diff, 0, sizeof diff);
        if (i < sbit_session_output_count(e->session)) {
            const sbit_value *value = sbit_session_output(e->session, i);
            diff.broken = value->kind != SBIT_KIND_TENSOR || value->tensor.dtype != wanted[i].dtype;
            if (!diff.broken) {
                sbit_diff_add(&diff, &wanted[i], &value->tensor, INT64_MAX);
            }
            const double relative = sbit_diff_relative(&diff);
            matches = matches && relative <= 1e-3;
            e->score->worst = relative > e->score->worst ? relative : e->score->worst;
        }
        sbit_tensor_free(e->data->model->ctx, &wanted[i]);
    }
    e->score->sets++;
    e->score->matched += matches && code == CLI_OK;
    return code;
}

static int cli_evaluate_batch(cli_evaluation *e, int64_t first)
{
    sbit_error error;
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_data_batch(e->data, first, &e->batch));
    CLI_TRY(cli_set_inputs(e->session, &e->batch, e->name));
    const int64_t slots = e->data->fixed_batch ? e->data->batch : e->batch.count;
    for (size_t i = 0; i < e->batch.input_count && e->ranges != NULL; i++) {
        cli_range_add(&e->ranges[i], &e->batch.inputs[i], e->batch.count, slots);
    }
    if (sbit_session_plan(e->session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' cannot run on this data", e->name);
    }
    const double begin = cli_seconds();
    if (sbit_session_run(e->session, &error) != SBIT_OK) {
        return cli_fail_library(&error, "'%s' failed at sample %lld", e->name, (long long)first);
    }
    e->score->seconds += cli_seconds() - begin;
    if (first == 0) {
        sbit_session_memory memory;
        sbit_session_memory_of(e->session, &memory);
        e->score->peak_bytes =
            memory.activation_bytes + memory.dynamic_bytes;
    }
    if (e->data->has_labels) {
        CLI_TRY(cli_score_labels(e));
    }
    if (e->data->has_outputs) {
        CLI_TRY(cli_score_outputs(e, first));
    }
    e->score->samples += e->batch.count;
    return CLI_OK;
}

static int cli_evaluate_all(cli_evaluation *e)
{
    CLI_TRY(cli_find_output(e->data->args, e->graph, &e->output));
    const sbit_type *type = &cli_output_info(e)->type;
    const sbit_dim last = type->rank == 2 ? type->dims[1] : type->dims[0];
    if (e->data->has_labels && type->rank == 2 && last.symbol == 0 &&
        e->data->classes > last.value) {
        return cli_fail("the labels reach to %lld, but output '%s' of '%s' has %lld classes; is it "
                        "the right data?",
                        (long long)e->data->classes - 1, cli_output_info(e)->name, e->name,
                        (long long)last.value);
    }
    e->room = (float *)malloc(CLI_CLASSES_MAX * sizeof *e->room);
    if (e->room == NULL) {
        return cli_fail_memory(CLI_CLASSES_MAX * sizeof *e->room);
    }
    for (int64_t first = 0; first < e->data->count; first += e->data->batch) {
        cli_progress("evaluate", first, e->data->count);
        CLI_TRY(cli_evaluate_batch(e, first));
    }
    cli_progress("evaluate", e->data->count, e->data->count);
    return CLI_OK;
}

int cli_evaluate(cli_data *data, sbit_graph *graph, const char *name, bool simulate,
                 cli_range *ranges, cli_score *out)
{
    cli_evaluation e;
    sbit_session_desc desc;
    memset(&e, 0, sizeof e);
    memset(&desc, 0, sizeof desc);
    memset(out, 0, sizeof *out);
    desc.disable_integers = simulate;
    e.data = data;
    e.graph = graph;
    e.name = name;
    e.ranges = ranges;
    e.score = out;
    CLI_TRY(cli_session_create(graph, &desc, name, &e.session));
    const int code = cli_evaluate_all(&e);
    sbit_session_destroy(e.session);
    cli_batch_free(data->model->ctx, &e.batch);
    free(e.room);
    return code;
}

int cli_peak_of(cli_data *data, sbit_graph *graph, const char *name, size_t *bytes)
{
    sbit_session *session = NULL;
    sbit_session_memory memory;
    sbit_error error;
    cli_batch batch;
    const int64_t kept = data->batch;
    memset(&batch, 0, sizeof batch);
    memset(&error, 0, sizeof error);
    CLI_TRY(cli_session_create(graph, NULL, name, &session));
    data->batch = data->fixed_batch ? kept : 1;
    int code = cli_data_batch(data, 0, &batch);
    data->batch = kept;
    code = code == CLI_OK ? cli_set_inputs(session, &batch, name) : code;
    if (code == CLI_OK && sbit_session_plan(session, &error) != SBIT_OK) {
        code = cli_fail_library(&error, "'%s' cannot run on this data", name);
    }
    sbit_session_memory_of(session, &memory);
    *bytes = memory.activation_bytes + memory.dynamic_bytes;
    sbit_session_destroy(session);
    cli_batch_free(data->model->ctx, &batch);
    return code;
}
