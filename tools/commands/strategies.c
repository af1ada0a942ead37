/* commands/strategies.c: the rows that configurations name: observers, quantizers, steps, profiles,
 * sparsers, passes, losses, optimizers, schedules; with their keys.
 */
#include "commands/commands.h"
#include "base/json.h"
#include "base/table.h"
#include "model/model.h"

/* Every kind of row begins with a head; these give it by number and by name. */
#define CLI_KIND(kind, row_type, row_at, row_find)                                                 \
    static const sbit_head *cli_##kind##_at(size_t index)                                          \
    {                                                                                              \
        const row_type *row = row_at(index);                                                       \
        return row != NULL ? &row->head : NULL;                                                    \
    }                                                                                              \
    static const sbit_head *cli_##kind##_find(const sbit_ctx *ctx, const char *name)               \
    {                                                                                              \
        const row_type *row = row_find(ctx, name);                                                 \
        return row != NULL ? &row->head : NULL;                                                    \
    }
CLI_KIND(observer, sbit_observer_row, sbit_observer_at, sbit_observer_find)
CLI_KIND(quantizer, sbit_quantizer_row, sbit_quantizer_at, sbit_quantizer_find)
CLI_KIND(step, sbit_step_row, sbit_step_at, sbit_step_find)
CLI_KIND(format, sbit_format_row, sbit_format_at, sbit_format_find)
CLI_KIND(profile, sbit_profile_row, sbit_profile_at, sbit_profile_find)
CLI_KIND(sparser, sbit_sparser_row, sbit_sparser_at, sbit_sparser_find)
CLI_KIND(sparsity, sbit_sparsity_row, sbit_sparsity_at, sbit_sparsity_find)
CLI_KIND(search, sbit_search_row, sbit_search_at, sbit_search_find)
CLI_KIND(pass, sbit_pass_row, sbit_pass_at, sbit_pass_find)
CLI_KIND(loss, sbit_loss_row, sbit_loss_at, sbit_loss_find)
CLI_KIND(optimizer, sbit_optimizer_row, sbit_optimizer_at, sbit_optimizer_find)
CLI_KIND(rate, sbit_rate_row, sbit_rate_at, sbit_rate_find)

typedef struct cli_kind_of_row {
    const char *name;  /* "observer" */
    const char *place; /* where configurations name it */
    const sbit_head *(*at)(size_t index);
    const sbit_head *(*find)(const sbit_ctx *ctx, const char *name);
} cli_kind_of_row;

static const cli_kind_of_row cli_kinds[] = {
    {"observer", "OBSERVER.TYPE", cli_observer_at, cli_observer_find},
    {"quantizer", "QUANTIZER.TYPE", cli_quantizer_at, cli_quantizer_find},
    {"step", "STEPS", cli_step_at, cli_step_find},
    {"format", "EXPORT.FORMAT", cli_format_at, cli_format_find},
    {"profile", "PLACEMENT, --target", cli_profile_at, cli_profile_find},
    {"sparser", "SPARSER.STRATEGY", cli_sparser_at, cli_sparser_find},
    {"sparsity", "SPARSER.SCHEDULE", cli_sparsity_at, cli_sparsity_find},
    {"search", "SPARSER.SEARCH, --search", cli_search_at, cli_search_find},
    {"pass", "--skip, --only", cli_pass_at, cli_pass_find},
    {"loss", "sbit_train_desc.loss", cli_loss_at, cli_loss_find},
    {"optimizer", "sbit_train_desc.optimizer", cli_optimizer_at, cli_optimizer_find},
    {"rate", "sbit_fit_desc.rate", cli_rate_at, cli_rate_find},
};

static const char *cli_key_type(const sbit_key *key)
{
    static const char *const words[] = {"bool", "int", "float", "text", "", "list", "yaml"};
    return key->type == SBIT_KEY_CHOICE              ? key->choices
           : (size_t)key->type < CLI_COUNT_OF(words) ? words[key->type]
                                                     : "";
}

static void cli_strategy_json(sbit_json *to, const char *kind, const sbit_head *head)
{
    sbit_json_open(to, NULL, '{');
    sbit_json_text(to, "kind", kind);
    sbit_json_text(to, "name", head->name);
    sbit_json_text(to, "doc", head->doc != NULL ? head->doc : "");
    sbit_json_open(to, "keys", '[');
    for (size_t i = 0; i < head->key_count; i++) {
        const sbit_key *key = &head->keys[i];
        sbit_json_open(to, NULL, '{');
        sbit_json_text(to, "path", key->path);
        sbit_json_text(to, "type", cli_key_type(key));
        sbit_json_text(to, "default", key->otherwise);
        sbit_json_text(to, "doc", key->doc);
        sbit_json_close(to, '}');
    }
    sbit_json_close(to, ']');
    sbit_json_close(to, '}');
}

static int cli_strategies_json(void)
{
    cli_json json;
    cli_json_begin(&json);
    sbit_json_open(&json.to, NULL, '{');
    sbit_json_open(&json.to, "strategies", '[');
    for (size_t k = 0; k < CLI_COUNT_OF(cli_kinds); k++) {
        const sbit_head *head = NULL;
        for (size_t i = 0; (head = cli_kinds[k].at(i)) != NULL; i++) {
            cli_strategy_json(&json.to, cli_kinds[k].name, head);
        }
    }
    sbit_json_close(&json.to, ']');
    sbit_json_close(&json.to, '}');
    return cli_json_print(&json);
}

int cli_strategies(const cli_args *args)
{
    if (args->json) {
        return cli_strategies_json();
    }
    for (size_t k = 0; k < CLI_COUNT_OF(cli_kinds); k++) {
        const sbit_head *head = NULL;
        printf("%s%s (%s)\n", k > 0 ? "\n" : "", cli_kinds[k].name, cli_kinds[k].place);
        for (size_t i = 0; (head = cli_kinds[k].at(i)) != NULL; i++) {
            printf("  %-22s %s\n", head->name, head->doc != NULL ? head->doc : "");
        }
    }
    printf("\n'sparsebit help NAME' shows the keys of one.\n");
    return CLI_OK;
}

static void cli_profile_list(const char *what, const char *const *words, const char *otherwise)
{
    printf("  %-12s ", what);
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        printf("%s%s", i > 0 ? ", " : "", words[i]);
    }
    printf("%s\n", words == NULL ? otherwise : "");
}

/* What a target wants, from its row. */
static void cli_profile_help(const sbit_profile_row *row)
{
    static const struct {
        uint32_t flag;
        const char *set, *clear;
    } facts[] = {
        {SBIT_PROFILE_OUTPUTS, "inputs and outputs of operators are quantized",
         "inputs of operators are quantized"},
        {SBIT_PROFILE_RESIDUAL_INPUTS, "of a sum, all inputs but that of one layer", NULL},
        {SBIT_PROFILE_SYMMETRIC_ONLY, "no zero points", "zero points"},
        {SBIT_PROFILE_SIGNED_AFFINE, "int8 activations", NULL},
        {SBIT_PROFILE_WEIGHT_AFFINE, "weights may have zero points", "weights are symmetric"},
        {SBIT_PROFILE_INT32_BIAS, "int32 biases", "float biases"},
        {SBIT_PROFILE_RECURRENT_WEIGHTS, "int8 weights of LSTM, GRU, RNN",
         "LSTM, GRU and RNN stay float"},
    };
    printf("\nTarget\n");
    for (size_t i = 0; i < CLI_COUNT_OF(facts); i++) {
        const char *text = (row->flags & facts[i].flag) != 0 ? facts[i].set : facts[i].clear;
        if (text != NULL) {
            printf("  %s\n", text);
        }
    }
    printf("  2 to %d bits\n", row->max_bits > 0 ? row->max_bits : 16);
    cli_profile_list("operators", row->inputs, "all that have integer forms");
    cli_profile_list("sums", row->sums, "none");
    cli_profile_list("clamps", row->clamps, "none");
    for (size_t i = 0; i < row->chain_count; i++) {
        char text[60];
        snprintf(text, sizeof text, "%.40s +", row->chains[i].before);
        cli_profile_list(text, row->chains[i].behind, "");
    }
}

static void cli_strategy_help(const cli_kind_of_row *kind, const sbit_head *head)
{
    printf("%s '%s' (%s)\n\n%s\n", kind->name, head->name, kind->place,
           head->doc != NULL ? head->doc : "");
    if (strcmp(kind->name, "profile") == 0) {
        cli_profile_help((const sbit_profile_row *)(const void *)head);
        return;
    }
    if (head->key_count == 0) {
        printf("\nIt has no keys.\n");
        return;
    }
    printf("\nKeys\n");
    for (size_t i = 0; i < head->key_count; i++) {
        const sbit_key *key = &head->keys[i];
        printf("  %-26s %s (%s; default %s)\n", key->path, key->doc != NULL ? key->doc : "",
               cli_key_type(key), key->otherwise != NULL ? key->otherwise : "none");
    }
}

bool cli_help_strategy(const char *name)
{
    sbit_ctx *ctx = NULL;
    sbit_error error;
    bool found = false;
    if (sbit_ctx_create(NULL, &ctx, &error) != SBIT_OK) {
        return false;
    }
    for (size_t k = 0; k < CLI_COUNT_OF(cli_kinds); k++) {
        const sbit_head *head = cli_kinds[k].find(ctx, name);
        if (head != NULL) {
            fputs(found ? "\n" : "", stdout);
            cli_strategy_help(&cli_kinds[k], head);
            found = true;
        }
    }
    sbit_ctx_destroy(ctx);
    return found;
}
