/* commands/eval.c: `sparsebit eval`: accuracy on labelled data, or agreement with stored outputs.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "report/measure.h"
#include "report/unsupported.h"

static void cli_json_score(sbit_json *json, const cli_args *args, const cli_data *data,
                           const cli_score *score)
{
    const double samples = (double)score->samples;
    sbit_json_text(json, "model", args->operands[0]);
    sbit_json_int(json, "samples", score->samples);
    if (data->has_labels) {
        sbit_json_number(json, "top1", (double)score->top1 / samples);
        sbit_json_number(json, "top5", (double)score->top5 / samples);
    }
    if (data->has_outputs) {
        sbit_json_int(json, "matched", score->matched);
        sbit_json_number(json, "max_relative_error", score->worst);
    }
    sbit_json_number(json, "ms_per_sample", 1000.0 * score->seconds / samples);
    sbit_json_int(json, "threads", sbit_ctx_threads(data->model->ctx));
    sbit_json_int(json, "batch", data->batch);
    sbit_json_int(json, "peak_bytes", (int64_t)score->peak_bytes);
}

static int cli_show_score(const cli_args *args, const cli_data *data, const cli_score *score)
{
    const double samples = (double)score->samples;
    char text[40];
    if (args->json) {
        cli_json json;
        cli_json_begin(&json);
        sbit_json_open(&json.to, NULL, '{');
        cli_json_score(&json.to, args, data, score);
        sbit_json_close(&json.to, '}');
        return cli_json_print(&json);
    }
    printf("%-10s %lld\n", "samples", (long long)score->samples);
    if (data->has_labels) {
        printf("%-10s %.2f %%\n", "top-1", 100.0 * (double)score->top1 / samples);
        printf("%-10s %.2f %%%s\n", "top-5", 100.0 * (double)score->top5 / samples,
               score->classes <= 5 ? " (there are no more than 5 classes)" : "");
    }
    if (data->has_outputs) {
        printf("%-10s %lld of %lld sets, largest relative error %.3g\n", "matched",
               (long long)score->matched, (long long)score->sets, score->worst);
    }
    printf("%-10s %.4f ms a sample in batches of %lld, %d thread%s\n", "time",
           1000.0 * score->seconds / samples, (long long)data->batch,
           (int)sbit_ctx_threads(data->model->ctx),
           sbit_ctx_threads(data->model->ctx) > 1 ? "s" : "");
    printf("%-10s %s for activations\n", "memory",
           cli_bytes_text((double)score->peak_bytes, text, sizeof text));
    return CLI_OK;
}

static int cli_eval_data(const cli_args *args, cli_model *model, cli_data *data)
{
    cli_range ranges[CLI_MAX_INPUTS];
    cli_score score;
    if (!data->has_labels && !data->has_outputs) {
        return cli_fail("'%s' has no labels to compare with: add ,labels=FILE to the data, or use "
                        "'sparsebit compare' or 'sparsebit run'",
                        args->data);
    }
    cli_check_stored_prep(data, model);
    cli_ranges_stored(data, model, ranges);
    CLI_TRY(cli_evaluate(data, model->graph, model->path, args->simulate, ranges, &score));
    cli_ranges_warn(data, ranges);
    CLI_TRY(cli_show_score(args, data, &score));
    if (score.matched < score.sets) {
        return cli_fail("%lld of %lld sets of outputs differ by more than 0.001",
                        (long long)(score.sets - score.matched), (long long)score.sets);
    }
    return CLI_OK;
}

static int cli_eval_model(const cli_args *args, cli_model *model)
{
    cli_data data;
    CLI_TRY(cli_model_prepare(args, model));
    CLI_TRY(cli_model_check_runs(model));
    CLI_TRY(cli_data_open(args, model, "data set", args->data, cli_choice_of(args), &data));
    const int code = cli_eval_data(args, model, &data);
    cli_data_close(&data);
    return code;
}

int cli_eval(const cli_args *args)
{
    sbit_ctx *ctx = NULL;
    cli_model model;
    CLI_TRY(cli_context_create(args, cli_processor_count(), &ctx));
    int code = cli_model_load(ctx, args->operands[0], &model);
    if (code == CLI_OK) {
        code = cli_eval_model(args, &model);
        cli_model_free(&model);
    }
    sbit_ctx_destroy(ctx);
    return code;
}
