/* base/args.c: the options of all commands in one table, parsing, and their part of the help text.
 *
 * Options may stand anywhere: "--data SPEC", "--data=SPEC", "-o OUT"; "--" ends them. A command
 * accepts the options it lists; everything else is an error that suggests the nearest name.
 */
#include "base/args.h"
#include "base/system.h"
#include "formats/image.h"

#include <errno.h>  /* ERANGE */
#include <math.h>   /* isfinite */
#include <stdlib.h> /* strtod, strtoll */

typedef enum cli_kind {
    CLI_FLAG,
    CLI_INT,
    CLI_TEXT,
    CLI_CHOICE,  /* one of the words in `choices` */
    CLI_MANY,    /* text, may be repeated */
    CLI_NUMBER,  /* one of the interval in `choices` */
    CLI_NUMBERS, /* "0.485,0.456,0.406" */
    CLI_SIZE     /* "224x224" */
} cli_kind;

typedef struct cli_option {
    const char *name;
    const char *letter; /* "-o"; NULL: none */
    const char *value;  /* as shown in help; NULL: a flag */
    cli_kind kind;
    size_t offset; /* in cli_args */
    long long min, max;
    const char *choices; /* separated by '|'; CLI_NUMBER: "[0,1)", without the 1 */
    const char *doc;     /* lines */
} cli_option;

#define CLI_AT(member) offsetof(cli_args, member)
#define CLI_BIG 1000000000000LL

static const cli_option cli_options[] = {
    {"--data", NULL, "SPEC", CLI_TEXT, CLI_AT(data), 0, 0, NULL,
     "what to feed:\n"
     "cifar10:FILE              records of 1 label byte and 3x32x32 bytes\n"
     "npy:FILE[,labels=FILE]    an array [N, ...] for the only input\n"
     "npz:FILE                  one array per input, by name\n"
     "pb:DIR                    DIR/test_data_set_*/input_K.pb (and output_K.pb)\n"
     "images:DIR[,labels=FILE]  pictures (%s) in the order of their names;\n"
     "                          labels: lines \"file, class\""},
    {"--as-is", NULL, NULL, CLI_FLAG, CLI_AT(as_is), 0, 0, NULL,
     "run the graph as it stands in the file instead of simplifying it first"},
    {"--limit", NULL, "N", CLI_INT, CLI_AT(limit), 1, CLI_BIG, NULL, "use at most N samples"},
    {"--from", NULL, "N", CLI_INT, CLI_AT(from), 0, CLI_BIG, NULL,
     "leave out the first N samples: those that calibration took"},
    {"--batch", NULL, "N", CLI_INT, CLI_AT(batch), 1, 65536, NULL,
     "samples per run (default: 32, or what the model demands)"},
    {"--calib", NULL, "N", CLI_INT, CLI_AT(calib), 1, CLI_BIG, NULL,
     "calibrate with the first N samples (default: 256)"},
    {"--shuffle", NULL, NULL, CLI_FLAG, CLI_AT(shuffle), 0, 0, NULL,
     "take samples in random order (for calibration: at random instead of the first ones)"},
    {"--seed", NULL, "K", CLI_INT, CLI_AT(seed), 0, CLI_BIG, NULL,
     "seed of --shuffle, and of train's order and augmentation (default: 0)"},
    {"--config", "-c", "YAML", CLI_TEXT, CLI_AT(config), 0, 0, NULL,
     "configuration of quantize or prune (Sparsebit's format); flags win over it"},
    {"--target", NULL, "PROFILE", CLI_TEXT, CLI_AT(target), 0, 0, NULL,
     "placement profile (default: generic, or the YAML's):"},
    {"--set", NULL, "KEY=VALUE", CLI_MANY, CLI_AT(set), 0, 0, NULL,
     "set one key of the configuration: --set W.QUANTIZER.BIT=4"},
    {"--ratio", NULL, "R", CLI_TEXT, CLI_AT(ratio), 0, 0, NULL,
     "part of every layer that goes, 0 to 1"},
    {"--macs", NULL, "0.5x", CLI_TEXT, CLI_AT(macs), 0, 0, NULL,
     "the smallest ratio that leaves this share of the multiply-accumulates"},
    {"--bytes", NULL, "1MB|0.5x", CLI_TEXT, CLI_AT(bytes), 0, 0, NULL,
     "likewise, of the file: a size or a share"},
    {"--search", NULL, "HOW", CLI_TEXT, CLI_AT(search), 0, 0, NULL,
     "how ratios are found that meet the budget: uniform (default), or from --data, each group its\n"
     "own: sensitivity, greedy, netadapt, annealing, autocompress, admm_training (also with --ratio; 'sparsebit strategies')"},
    {"--latency", NULL, "0.6x", CLI_TEXT, CLI_AT(latency), 0, 0, NULL,
     "likewise, of the time of one run on this machine, with one sample and --threads"},
    {"--latency-table", NULL, "FILE", CLI_TEXT, CLI_AT(latency_table), 0, 0, NULL,
     "times of layers: measured and written if there is no such file, else used as they are"},
    {"--prune-outputs", NULL, "A,B", CLI_TEXT, CLI_AT(prune_outputs), 0, 0, NULL,
     "outputs of the model that may lose channels, or all"},
    {"--repair", NULL, "WHAT", CLI_TEXT, CLI_AT(repair), 0, 0, NULL,
     "ridge, batch_norm or both: from the data, without training, make up for what goes"},
    {"--sparsity", NULL, NULL, CLI_FLAG, CLI_AT(sparsity), 0, 0, NULL,
     "from being pruned: each group of channels alone, at ratios 0.1 to 0.9 (-c, --set: of prune)"},
    {"--masks", NULL, "FILE", CLI_TEXT, CLI_AT(masks), 0, 0, NULL,
     "prune what these masks say: .json, or .npz with an array for each \"layer.weight\" or \"layer.bias\", 0 pruned"},
    {"--start-masks", NULL, "FILE", CLI_TEXT, CLI_AT(start_masks), 0, 0, NULL,
     "likewise, what is pruned before anything is scored"},
    {"--save-masks", NULL, "FILE", CLI_TEXT, CLI_AT(save_masks), 0, 0, NULL,
     "write the masks, as .npz or .json"},
    {"--inexact-norm", NULL, NULL, CLI_FLAG, CLI_AT(inexact_norm), 0, 0, NULL,
     "what LayerNormalization normalizes may lose channels: no masked model is equal to the result"},
    {"--mask-only", NULL, NULL, CLI_FLAG, CLI_AT(mask_only), 0, 0, NULL,
     "set to zero what is pruned and keep all shapes"},
    {"--explain", NULL, NULL, CLI_FLAG, CLI_AT(explain), 0, 0, NULL,
     "why: of every group of channels that is kept, of every node that runs in float"},
    {"--simulate", NULL, NULL, CLI_FLAG, CLI_AT(simulate), 0, 0, NULL,
     "compute what lies between DequantizeLinear and QuantizeLinear in float"},
    {"--eval", NULL, "SPEC", CLI_TEXT, CLI_AT(eval), 0, 0, NULL,
     "measure accuracy before and after on this data"},
    {"--stats", NULL, "FILE", CLI_MANY, CLI_AT(stats), 0, 0, NULL,
     "take what observers saw from a file that --save-stats wrote, instead of --data; given more than "
     "once: of all of them together"},
    {"--save-stats", NULL, "FILE", CLI_TEXT, CLI_AT(save_stats), 0, 0, NULL,
     "write what observers saw: other bits and schemes then need no data"},
    {"--encodings", NULL, "FILE", CLI_TEXT, CLI_AT(encodings), 0, 0, NULL,
     "take scales from a TensorRT calibration table, AIMET encodings or an NNI calibration_config"},
    {"--save-encodings", NULL, "KIND:FILE", CLI_TEXT, CLI_AT(save_encodings), 0, 0, NULL,
     "write the scales as tensorrt, aimet or nni knows them: --save-encodings "
     "tensorrt:calib.cache"},
    {"--input-names", NULL, "A,B", CLI_TEXT, CLI_AT(input_names), 0, 0, NULL,
     "names of the inputs in the file, in their order"},
    {"--output-names", NULL, "A,B", CLI_TEXT, CLI_AT(output_names), 0, 0, NULL,
     "names of the outputs in the file"},
    {"--dynamic", NULL, "NAME:AXIS=SYMBOL", CLI_MANY, CLI_AT(dynamic), 0, 0, NULL,
     "a dim of an input or output (as named in the file) that stays open: input:0=batch"},
    {"--opset", NULL, "N", CLI_INT, CLI_AT(opset), 13, 1000, NULL,
     "ai.onnx opset of the file (default: the model's, or what quantization needs)"},
    {"--extra-info", NULL, NULL, CLI_FLAG, CLI_AT(extra_info), 0, 0, NULL,
     "write OUT_extra.onnx too: Q and DQ nodes have the attribute `bits`, as Sparsebit's export"},
    {"--out", "-o", "OUT", CLI_TEXT, CLI_AT(out), 0, 0, NULL, "where the result is written"},
    {"--force", NULL, NULL, CLI_FLAG, CLI_AT(force), 0, 0, NULL,
     "overwrite the model that is read, if -o names it"},
    {"--input", NULL, "NAME=FILE", CLI_MANY, CLI_AT(input), 0, 0, NULL,
     "feed an input from a .npy or .pb file (NAME= may be left out for the only input);\n"
     "inputs that are not given get random numbers, always the same"},
    {"--shape", NULL, "NAME=1x3x224x224", CLI_MANY, CLI_AT(shape), 0, 0, NULL,
     "dims of an input where the model leaves them open (default: 1 each)"},
    {"--output", NULL, "NAME", CLI_TEXT, CLI_AT(output), 0, 0, NULL,
     "the output [N, classes] to rank (default: the first)"},
    {"--fix-defaults", NULL, NULL, CLI_FLAG, CLI_AT(fix_defaults), 0, 0, NULL,
     "inputs with a default that only serve as weights become constants"},
    {"--keep-bn", NULL, NULL, CLI_FLAG, CLI_AT(keep_bn), 0, 0, NULL,
     "do not fold BatchNormalization into the layer before it"},
    {"--skip", NULL, "PASS", CLI_MANY, CLI_AT(skip), 0, 0, NULL, "do not run this pass"},
    {"--only", NULL, "PASS", CLI_MANY, CLI_AT(only), 0, 0, NULL, "run only the passes named"},
    {"--iters", NULL, "N", CLI_INT, CLI_AT(iters), 1, 1000000, NULL,
     "timed runs (default: as many as fit into 2 seconds, 10 to 1000)"},
    {"--profile", NULL, NULL, CLI_FLAG, CLI_AT(profile), 0, 0, NULL,
     "time of every node, its rate and share of the processor's peak"},
    {"--isa", NULL, "X", CLI_TEXT, CLI_AT(isa), 0, 0, NULL,
     "instruction set: scalar, sse2, avx2, avx2vnni, avx512, avx512vnni, neon, wasm128\n"
     "(default: the best there is)"},
    {"--format", NULL, "NAME", CLI_TEXT, CLI_AT(format), 0, 0, NULL,
     "graph: mermaid (default) or dot; quantize, convert: how the model is written\n"
     "(EXPORT.FORMAT):\n"
     "qdq (default), qoperator, weights, dynamic, matmul_nbits"},
    {"--threads", NULL, "N", CLI_INT, CLI_AT(threads), 1, 64, NULL, "threads (default: %s)"},
    {"--scale", NULL, "S", CLI_NUMBERS, CLI_AT(scale), 0, 0, NULL,
     "x = (byte * S - mean) / std; default: 1/255 for pictures, 1 for arrays"},
    {"--mean", NULL, "A,B,C", CLI_NUMBERS, CLI_AT(mean), 0, 0, NULL,
     "mean per channel, or one for all (default: 0)"},
    {"--std", NULL, "A,B,C", CLI_NUMBERS, CLI_AT(std), 0, 0, NULL,
     "standard deviation per channel, or one for all (default: 1)"},
    {"--layout", NULL, "NCHW|NHWC", CLI_CHOICE, CLI_AT(layout), 0, 0, "NCHW|NHWC",
     "order of the model's input (default: NCHW)"},
    {"--size", NULL, "HxW", CLI_SIZE, CLI_AT(size), 0, 0, NULL,
     "resize pictures (bilinear) until they cover HxW, then cut out the middle"},
    {"--val", NULL, "SPEC", CLI_TEXT, CLI_AT(val), 0, 0, NULL,
     "measure accuracy on this data after each epoch and keep the best model"},
    {"--epochs", NULL, "N", CLI_INT, CLI_AT(epochs), 1, 100000, NULL,
     "how often the data is gone through (default: 1)"},
    {"--optimizer", NULL, "NAME", CLI_TEXT, CLI_AT(optimizer), 0, 0, NULL,
     "sgd, adam or adamw (default: sgd with Nesterov momentum)"},
    {"--lr", NULL, "X", CLI_NUMBER, CLI_AT(lr), 0, 0, "(0,inf)",
     "learning rate (default: 0.01 for sgd, 0.001 for the others)"},
    {"--momentum", NULL, "X", CLI_NUMBER, CLI_AT(momentum), 0, 0, "[0,1)", "of sgd (default: 0.9)"},
    {"--decay", NULL, "X", CLI_NUMBER, CLI_AT(decay), 0, 0, "[0,inf)",
     "weight decay, not of biases (default: 0.0001)"},
    {"--schedule", NULL, "NAME", CLI_TEXT, CLI_AT(schedule), 0, 0, NULL,
     "of the rate: constant, cosine, step, one_cycle (default: cosine)"},
    {"--warmup", NULL, "N", CLI_INT, CLI_AT(warmup), 0, CLI_BIG, NULL,
     "steps in which the rate grows from 0"},
    {"--flip", NULL, NULL, CLI_FLAG, CLI_AT(flip), 0, 0, NULL,
     "mirror half of the pictures, at random"},
    {"--shift", NULL, "N", CLI_INT, CLI_AT(shift), 0, 4096, NULL,
     "move pictures by up to N pixels, at random"},
    {"--cutout", NULL, "N", CLI_INT, CLI_AT(cutout), 0, 4096, NULL,
     "set a square of N pixels to zero, at random"},
    {"--keep-zeros", NULL, NULL, CLI_FLAG, CLI_AT(keep_zeros), 0, 0, NULL,
     "weights that are zero stay zero: of a model pruned with --mask-only"},
    {"--mixup", NULL, "A", CLI_NUMBER, CLI_AT(mixup), 0, 0, "[0,inf)",
     "blend pairs of pictures and their classes by shares of Beta(A, A)"},
    {"--cutmix", NULL, "A", CLI_NUMBER, CLI_AT(cutmix), 0, 0, "[0,inf)",
     "pairs of pictures exchange a rectangle, by such a share; with --mixup each pair does one of them"},
    {"--smoothing", NULL, "X", CLI_NUMBER, CLI_AT(smoothing), 0, 0, "[0,1]",
     "label smoothing, 0 to 1"},
    {"--clip", NULL, "X", CLI_NUMBER, CLI_AT(clip), 0, 0, "[0,inf)",
     "the gradient of all weights together is at most this long"},
    {"--ema", NULL, "X", CLI_NUMBER, CLI_AT(ema), 0, 0, "[0,1)",
     "keep a moving average of the weights, such as 0.999, and write that"},
    {"--micro", NULL, "N", CLI_INT, CLI_AT(micro), 1, CLI_BIG, NULL,
     "run a batch in pieces of N samples, whose gradients add up: takes less memory"},
    {"--checkpoint", NULL, "N", CLI_INT, CLI_AT(checkpoint), 1, CLI_BIG, NULL,
     "keep values of every Nth node or so and compute the others again: takes less memory"},
    {"--patience", NULL, "N", CLI_INT, CLI_AT(patience), 1, 100000, NULL,
     "end after N epochs that were not better on --val"},
    {"--sparse", "-s", "YAML", CLI_TEXT, CLI_AT(sconfig), 0, 0, NULL,
     "pruning configuration: structured cuts channels before training (--macs 0.5x or --bytes\n"
     "for a budget), unstructured masks weights step by step while training (SCHEDULE)"},
    {"--rewind", NULL, NULL, CLI_FLAG, CLI_AT(rewind), 0, 0, NULL,
     "with -s, unstructured: the last masks, then the first weights again (lottery ticket)"},
    {"--slim", NULL, "X", CLI_NUMBER, CLI_AT(slim), 0, 0, "[0,inf)",
     "add X times the sum of |scale| of BatchNormalization to the loss"},
    {"--dampening", NULL, "X", CLI_NUMBER, CLI_AT(dampening), 0, 0, "[0,inf)",
     "pull quantized weights to the middle of their step, such as 0.001"},
    {"--freeze", NULL, "GLOB", CLI_MANY, CLI_AT(freeze), 0, 0, NULL,
     "do not train the weights whose names match"},
    {"--observe", NULL, "X", CLI_NUMBER, CLI_AT(observe), 0, 0, "[0,1)",
     "ranges of uniform activations follow the batches: X of the old range stays in a step, such as 0.99"},
    {"--anneal", NULL, "BITS", CLI_INT, CLI_AT(anneal), 2, 16, NULL,
     "quantizers of fewer bits begin with so many and lose one after the other, until half of the steps"},
    {"--freeze-statistics", NULL, "N", CLI_INT, CLI_AT(freeze_statistics), 1, CLI_BIG, NULL,
     "after N steps BatchNormalization normalizes by its running statistics, which stay"},
    {"--teacher", NULL, "MODEL", CLI_MANY, CLI_AT(teacher), 0, 0, NULL,
     "learn from this model's output too (distillation); of several, from the mean of what they say"},
    {"--distill", NULL, "X", CLI_NUMBER, CLI_AT(distill), 0, 0, "(0,1]",
     "the teachers' part of the loss, above 0 to 1 (default: 0.5)"},
    {"--features", NULL, "GLOB", CLI_TEXT, CLI_AT(features), 0, 0, NULL,
     "learn inner values from the first teacher, too: those named so that have one shape in both"},
    {"--feature-weight", NULL, "X", CLI_NUMBER, CLI_AT(feature_weight), 0, 0, "(0,inf)",
     "what they add: X times their mean squared difference in parts of the mean square (default: 10)"},
    {"--resume", NULL, "FILE", CLI_TEXT, CLI_AT(resume), 0, 0, NULL,
     "go on exactly where this checkpoint (OUT.checkpoint) was made"},
    {"--log", NULL, "FILE", CLI_TEXT, CLI_AT(log), 0, 0, NULL,
     "write epoch, step, loss, rate, accuracy and seconds as CSV, or to *.json one object a line"},
    {"--auto-exclude", NULL, NULL, CLI_FLAG, CLI_AT(auto_exclude), 0, 0, NULL,
     "leave the fewest layers float that keep the loss below --max-drop (step auto_exclude)"},
    {"--by-time", NULL, NULL, CLI_FLAG, CLI_AT(by_time), 0, 0, NULL,
     "leave float the layers that integers make slower here, with one sample and --threads, or by\n"
     "--latency-table (step by_time)"},
    {"--max-drop", NULL, "P", CLI_NUMBER, CLI_AT(max_drop), 0, 0, "[0,100]",
     "points of accuracy that may be lost (default: 0.5); with --eval and without --auto-exclude:\n"
     "search for a recipe that keeps to it, the cheapest first"},
    {"--prefer", NULL, "time|bytes", CLI_CHOICE, CLI_AT(prefer), 0, 0, "time|bytes",
     "try all recipes and take the fastest or the smallest of those that keep to --max-drop"},
    {"--time-budget", NULL, "S", CLI_INT, CLI_AT(time_budget), 1, CLI_BIG, NULL,
     "begin no further recipe after S seconds"},
    {"--mixed-precision", NULL, NULL, CLI_FLAG, CLI_AT(mixed_precision), 0, 0, NULL,
     "choose the width of each layer's weights within a budget (step mixed_precision)"},
    {"--size-budget", NULL, "300KB|0.5x", CLI_TEXT, CLI_AT(size_budget), 0, 0, NULL,
     "of all weights, counted in their bits: a size, or a part of what the configured widths take"},
    {"--bops-budget", NULL, "N|0.5x", CLI_TEXT, CLI_AT(bops_budget), 0, 0, NULL,
     "of bit operations: MACs x width of the weight x width of the input"},
    {"--percent", NULL, "P", CLI_NUMBER, CLI_AT(percent), 0, 0, "[0,100]",
     "give the most sensitive P percent of the layers the width --to (step widen)"},
    {"--to", NULL, "N", CLI_INT, CLI_AT(to), 2, 1000, NULL,
     "quantize: that width (2 to 16; default: 16); convert-opset: that opset"},
    {"--agreement", NULL, "P", CLI_NUMBER, CLI_AT(agreement), 0, 0, "[0,100]",
     "least part of equal predictions, in percent (default: 98)"},
    {"--strict", NULL, NULL, CLI_FLAG, CLI_AT(strict), 0, 0, NULL,
     "validate: fail too if weights are no roundings of the float ones; prune: if layers keep masked rows"},
    {"--missing", NULL, NULL, CLI_FLAG, CLI_AT(missing), 0, 0, NULL,
     "what of the ONNX standard cannot run, and why; exit code 1 if a reason is missing"},
    {"--json", NULL, NULL, CLI_FLAG, CLI_AT(json), 0, 0, NULL, "print one JSON object instead"},
    {"--help", "-h", NULL, CLI_FLAG, CLI_AT(help), 0, 0, NULL, "show this text"},
};

/* ---- parsing */

static bool cli_listed(const char *names, const char *name)
{
    const size_t size = strlen(name);
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += size) {
        const bool begins = at == names || at[-1] == ' ';
        if (begins && (at[size] == ' ' || at[size] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool cli_accepts(const cli_command *command, const cli_option *option)
{
    return cli_listed(command->options, option->name) || strcmp(option->name, "--help") == 0;
}

static int cli_unknown_option(const cli_command *command, const char *text)
{
    const char *words[CLI_COUNT_OF(cli_options)];
    size_t count = 0;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    for (size_t i = 0; i < CLI_COUNT_OF(cli_options); i++) {
        if (cli_accepts(command, &cli_options[i])) {
            words[count++] = cli_options[i].name;
        } else if (strcmp(cli_options[i].name, name) == 0) {
            return cli_fail_usage(command->name, "'%s' has no option %s", command->name, name);
        }
    }
    const char *near = sbit_word_nearest(name, words, count);
    return cli_fail_usage(command->name, "unknown option '%s'%s%s%s", name,
                          near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                          near != NULL ? "'?" : "");
}

static const cli_option *cli_find_option(const cli_command *command, const char *text)
{
    const size_t size = strcspn(text, "=");
    for (size_t i = 0; i < CLI_COUNT_OF(cli_options); i++) {
        const cli_option *option = &cli_options[i];
        const bool is_name = strlen(option->name) == size && strncmp(option->name, text, size) == 0;
        const bool is_letter = option->letter != NULL && strcmp(option->letter, text) == 0;
        if ((is_name || is_letter) && cli_accepts(command, option)) {
            return option;
        }
    }
    return NULL;
}

bool cli_parse_dims(const char *text, int64_t *dims, int32_t *rank)
{
    *rank = 0;
    while (*rank < SBIT_MAX_RANK && *text >= '0' && *text <= '9') {
        char *end = NULL;
        errno = 0;
        const long long value = strtoll(text, &end, 10);
        if (errno != 0 || value > 0x7fffffffLL) {
            return false;
        }
        dims[(*rank)++] = value;
        if (*end == '\0') {
            return true;
        }
        if (*end != 'x' && *end != ',') {
            return false;
        }
        text = end + 1;
    }
    return false;
}

void cli_split_pair(const char *text, size_t *name_size, const char **value)
{
    const char *equals = strrchr(text, '=');
    *name_size = equals != NULL ? (size_t)(equals - text) : 0;
    *value = equals != NULL ? equals + 1 : text;
}

static int cli_parse_int(const char *command, const cli_option *option, const char *text,
                         int64_t *out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0) {
        return cli_fail_usage(command, "%s '%s' is not a whole number", option->name, text);
    }
    if (value < option->min || value > option->max) {
        const bool empty = value < 1 && strcmp(option->name, "--calib") == 0;
        return cli_fail_usage(command, "%s%s %s must be %lld to %lld",
                              empty ? "calibration set is empty: " : "", option->name, text,
                              option->min, option->max);
    }
    *out = (int64_t)value;
    return CLI_OK;
}

static int cli_parse_numbers(const char *command, const cli_option *option, const char *text,
                             cli_numbers *out)
{
    out->count = 0;
    for (;;) {
        char *end = NULL;
        const double value = strtod(text, &end);
        const bool fits = out->count < CLI_MAX_CHANNELS;
        if (end == text || !isfinite(value) || (*end != ',' && *end != '\0') || !fits) {
            return cli_fail_usage(command, "%s '%s': numbers separated by commas are wanted",
                                  option->name, text);
        }
        out->items[out->count++] = value;
        if (*end == '\0') {
            return CLI_OK;
        }
        text = end + 1;
    }
}

static int cli_parse_number(const char *command, const cli_option *option, const char *text,
                            cli_numbers *out)
{
    char *end = NULL;
    const char *range = option->choices;
    const double value = strtod(text, &end), least = strtod(range + 1, NULL);
    const double most = strtod(strchr(range, ',') + 1, NULL);
    const float single = strtof(text, NULL); /* what is computed with */
    const bool open = range[0] == '(', ends = range[strlen(range) - 1] == ']';
    const bool fits = isfinite(single) && (open ? (double)single > least : value >= least) &&
                      (ends ? value <= most : (double)single < most);
    if (end == text || *end != '\0' || !fits) {
        char upper[40] = "";
        snprintf(upper, sizeof upper, isfinite(most) ? " and %s %g" : "", ends ? "up to" : "below", most);
        return cli_fail_usage(command, "%s '%s': a number %s %g%s is wanted", option->name, text,
                              open ? "above" : "of at least", least, upper);
    }
    out->items[0] = value;
    out->count = 1;
    return CLI_OK;
}

static int cli_parse_choice(const char *command, const cli_option *option, const char *text,
                            const char **out)
{
    const size_t size = strlen(text);
    for (const char *at = option->choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (size > 0 && strncmp(at, text, size) == 0 && (at[size] == '|' || at[size] == '\0')) {
            *out = text;
            return CLI_OK;
        }
    }
    return cli_fail_usage(command, "%s '%s' must be one of %s", option->name, text,
                          option->choices);
}

static int cli_store(const char *command, const cli_option *option, const char *text,
                     cli_args *args)
{
    char *const to = (char *)args + option->offset;
    if (option->kind == CLI_INT) {
        return cli_parse_int(command, option, text, (int64_t *)(void *)to);
    }
    if (option->kind == CLI_NUMBER) {
        return cli_parse_number(command, option, text, (cli_numbers *)(void *)to);
    }
    if (option->kind == CLI_NUMBERS) {
        return cli_parse_numbers(command, option, text, (cli_numbers *)(void *)to);
    }
    if (option->kind == CLI_CHOICE) {
        return cli_parse_choice(command, option, text, (const char **)(void *)to);
    }
    if (option->kind == CLI_TEXT) {
        *(const char **)(void *)to = text;
        return CLI_OK;
    }
    if (option->kind == CLI_MANY) {
        cli_list *list = (cli_list *)(void *)to;
        if (list->count == CLI_MAX_LIST) {
            return cli_fail_usage(command, "%s is given more than %d times", option->name,
                                  CLI_MAX_LIST);
        }
        list->items[list->count++] = text;
        return CLI_OK;
    }
    int64_t dims[SBIT_MAX_RANK];
    int32_t rank = 0;
    int64_t *size = (int64_t *)(void *)to;
    if (!cli_parse_dims(text, dims, &rank) || rank != 2 || dims[0] < 1 || dims[1] < 1 ||
        dims[0] > 16384 || dims[1] > 16384) {
        return cli_fail_usage(command, "%s '%s': height x width is wanted, such as 224x224",
                              option->name, text);
    }
    size[0] = dims[0];
    size[1] = dims[1];
    return CLI_OK;
}

static const char *cli_short_name(const cli_option *option)
{
    return option->letter != NULL ? option->letter : option->name;
}

/* Takes argv[*at] (and its value); moves *at to the last argument used. */
static int cli_take_option(const cli_command *command, int argc, char **argv, int *at,
                           cli_args *out)
{
    const char *text = argv[*at];
    const cli_option *option = cli_find_option(command, text);
    if (option == NULL) {
        return cli_unknown_option(command, text);
    }
    bool *given = &out->given[option - cli_options];
    if (*given && option->kind != CLI_MANY) {
        return cli_fail_usage(command->name, "%s is given twice", cli_short_name(option));
    }
    *given = true;
    const char *equals = text[1] == '-' ? strchr(text, '=') : NULL;
    if (option->value == NULL) {
        if (equals != NULL) {
            return cli_fail_usage(command->name, "%s takes no value", option->name);
        }
        *(bool *)(void *)((char *)out + option->offset) = true;
        return CLI_OK;
    }
    if (equals == NULL && *at + 1 >= argc) {
        return cli_fail_usage(command->name, "%s needs a value: %s %s", text, text, option->value);
    }
    return cli_store(command->name, option, equals != NULL ? equals + 1 : argv[++*at], out);
}

/* Names what is missing, all at once. */
static int cli_check_required(const cli_command *command, const cli_args *args)
{
    char names[200] = "", usual[64];
    size_t count = 0;
    bool missing = false;
    for (size_t i = 0; i < CLI_COUNT_OF(cli_options); i++) {
        missing =
            missing || (cli_listed(command->required, cli_options[i].name) && !args->given[i]);
    }
    for (size_t i = CLI_COUNT_OF(cli_options); i-- > 0 && missing;) { /* -o before --data */
        const cli_option *option = &cli_options[i];
        snprintf(usual, sizeof usual, "?%s", option->name);
        const bool wanted = cli_listed(command->required, usual) && args->stats.count == 0;
        if (!args->given[i] && (wanted || cli_listed(command->required, option->name))) {
            const size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s %s", count++ > 0 ? " and " : "",
                     cli_short_name(option), option->value);
        }
    }
    const char *example = command->examples;
    return missing ? cli_fail_usage(command->name, "%s %s missing, for example:\n  %.*s", names,
                                    count > 1 ? "are" : "is", (int)strcspn(example, "\n"), example)
                   : CLI_OK;
}

/* Options that mean nothing without, or with, another. */
static int cli_check_together(const cli_command *command, const cli_args *args)
{
    for (size_t i = 0; i < CLI_COUNT_OF(cli_options); i++) {
        if (args->given[i] && strcmp(cli_options[i].name, "--seed") == 0 && !args->shuffle &&
            strcmp(command->name, "train") != 0) { /* which shuffles always */
            return cli_fail_usage(command->name, "--seed is for --shuffle, which is not given");
        }
    }
    return CLI_OK;
}

static size_t cli_operand_count(const cli_command *command)
{
    size_t count = command->operands[0] != '\0';
    for (const char *at = command->operands; *at != '\0'; at++) {
        count += *at == ' ';
    }
    return count;
}

int cli_args_parse(const cli_command *command, int argc, char **argv, cli_args *out)
{
    size_t count = 0;
    bool ended = false;
    const size_t wanted = cli_operand_count(command);
    memset(out, 0, sizeof *out);
    out->command = command->name;
    for (int i = 0; i < argc; i++) {
        if (!ended && strcmp(argv[i], "--") == 0) {
            ended = true;
        } else if (!ended && argv[i][0] == '-' && argv[i][1] != '\0') {
            CLI_TRY(cli_take_option(command, argc, argv, &i, out));
        } else if (count == wanted) {
            return cli_fail_usage(command->name, "'%s' is one argument too many", argv[i]);
        } else {
            out->operands[count++] = argv[i];
        }
    }
    if (out->help) {
        return CLI_OK;
    }
    if (count < wanted) {
        return cli_fail_usage(command->name, "%s is missing: sparsebit %s %s",
                              wanted == 2 && count == 1 ? "the second model" : "the model",
                              command->name, command->operands);
    }
    CLI_TRY(cli_check_required(command, out));
    return cli_check_together(command, out);
}

int cli_check_out(const cli_args *args)
{
    CLI_TRY(cli_check_writable("-o", args->out));
    for (size_t i = 0; i < CLI_COUNT_OF(args->operands) && !args->force; i++) {
        if (args->operands[i] != NULL && cli_same_file(args->operands[i], args->out)) {
            return cli_fail("-o '%s' is the model that is read; give another name, or --force to "
                            "overwrite it",
                            args->out);
        }
    }
    return CLI_OK;
}

/* ---- help */

/* Copies text; what stands there as "%s" is `value`. */
static void cli_fill_in(char *to, size_t size, const char *text, const char *value)
{
    const char *at = strstr(text, "%s");
    const int head = at != NULL ? (int)(at - text) : 0;
    snprintf(to, size, "%.*s%s%s", head, text, at != NULL ? value : "", at != NULL ? at + 2 : text);
}

static void cli_help_option(const cli_option *option, const char *threads, FILE *to)
{
    char head[64], doc[1024];
    snprintf(head, sizeof head, "%s%s%s%s%s", option->letter != NULL ? option->letter : "",
             option->letter != NULL ? ", " : "", option->name, option->value != NULL ? " " : "",
             option->value != NULL ? option->value : "");
    const bool pictures = strcmp(option->name, "--data") == 0;
    cli_fill_in(doc, sizeof doc, option->doc, pictures ? cli_image_kinds() : threads);
    const char *line = doc;
    for (const char *title = head; line != NULL; title = "") {
        const size_t size = strcspn(line, "\n");
        if (strlen(title) > 24) {
            fprintf(to, "  %s\n", title);
            title = "";
        }
        fprintf(to, "  %-24s  %.*s\n", title, (int)size, line);
        line = line[size] == '\n' ? line + size + 1 : NULL;
    }
    for (size_t i = 0; strcmp(option->name, "--target") == 0 && sbit_profile_at(i) != NULL; i++) {
        const sbit_profile_row *row = sbit_profile_at(i);
        fprintf(to, "  %-24s    %-12s %s\n", "", row->head.name, row->head.doc);
    }
}

void cli_args_help(const cli_command *command, FILE *to)
{
    const bool one = strcmp(command->name, "bench") == 0;
    fprintf(to, "sparsebit %s %s%s[options]\n\n%s\n", command->name, command->operands,
            command->operands[0] != '\0' ? " " : "", command->about);
    fputs("\nOptions\n", to);
    for (size_t i = 0; i < CLI_COUNT_OF(cli_options); i++) {
        if (cli_accepts(command, &cli_options[i])) {
            cli_help_option(&cli_options[i], one ? "1" : "all processors", to);
        }
    }
    fputs("\nExamples\n", to);
    for (const char *line = command->examples; *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        fprintf(to, "  %.*s\n", (int)size, line);
        line += size + (line[size] == '\n');
    }
}
