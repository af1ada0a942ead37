/* sparsebit.c: the command line tool: the table of commands, help, exit codes.
 *
 * Exit codes: 0 done, 1 bad input or a failed check, 2 wrong usage. Results go to stdout, messages
 * and progress to stderr. See base/cli.h for the other files.
 */
#include "commands/commands.h"
#include "base/json.h"

#define CLI_PREP " --scale --mean --std --layout --size"

static int cli_help(const cli_args *args);

static const cli_command cli_commands[] = {
    {"info", "MODEL", "what a model contains and whether it can run", "--shape --json", "",
     "Shows inputs, outputs, operator sets, operators, parameters, multiply-accumulates (MACs),\n"
     "bytes by element type, and every operator that this build cannot run. Dims that the model\n"
     "leaves open count as 1; --shape gives them. When all are known, the memory that a session\n"
     "takes with one thread is told, and which nodes find theirs while running only.",
     "sparsebit info model.onnx\nsparsebit info model.onnx --shape input=1x3x224x224 --json",
     cli_info},
    {"check", "MODEL", "what is wrong with a model, all at once", "--json", "",
     "Looks at the file, the format's rules, external data, shapes and operators; tells what is an\n"
     "error and what is likely a mistake. Exit code 1 if there are errors.",
     "sparsebit check model.onnx\nsparsebit check model.onnx --json", cli_check},
    {"convert-opset", "MODEL", "raise or lower the opset of a model", "--to --out --force", "--to --out",
     "Operators whose definition changed in between are rewritten; where that is not possible\n"
     "nothing is written and all such nodes are named. Other domains stay as they are. Downwards,\n"
     "to 7 at the least, what became an input must be a constant: 'simplify' first helps.",
     "sparsebit convert-opset model.onnx --to 17 -o new.onnx", cli_convert_opset},
    {"simplify", "MODEL", "fold constants, remove and fuse operators",
     "--out --force --keep-bn --fix-defaults --skip --only --json", "--out",
     "Rewrites the graph until nothing changes. The result computes the same.",
     "sparsebit simplify model.onnx -o simple.onnx\n"
     "sparsebit simplify model.onnx -o simple.onnx --skip fold_batch_norm",
     cli_simplify},
    {"run", "MODEL", "run a model once", "--input --shape --out --simulate --isa --threads --json", "",
     "Runs the model and shows its outputs; -o DIR also writes each as DIR/NAME.npy.",
     "sparsebit run model.onnx --input input=x.npy -o results\n"
     "sparsebit run model.onnx --shape input=1x3x224x224",
     cli_run},
    {"eval", "MODEL", "accuracy on labelled data",
     "--data --limit --shuffle --seed --from --batch --output --as-is --simulate --isa --threads "
     "--json" CLI_PREP,
     "--data",
     "Simplifies the model, runs it on every sample and counts how often the label has the highest "
     "logit (top-1)\n"
     "or one of the five highest (top-5). With pb:DIR the outputs are compared with the stored\n"
     "ones instead: the check fails above a relative error of 0.001.",
     "sparsebit eval model.onnx --data cifar10:test.bin --mean 0.49,0.48,0.45 --std "
     "0.25,0.24,0.26\n"
     "sparsebit eval model.onnx --data images:photos,labels=labels.txt --size 224x224",
     cli_eval},
    {"quantize", "MODEL", "quantize after training, with calibration data",
     "--config --target --format --set --data --calib --batch --shuffle --seed --stats --input-names --output-names --dynamic --opset --extra-info "
     "--encodings --save-encodings "
     "--save-stats --out --force --eval --limit --auto-exclude --by-time --latency-table --max-drop --mixed-precision "
     "--size-budget --bops-budget --percent --to --prefer --time-budget --output "
     "--threads --json" CLI_PREP,
     "--out ?--data",
     "Simplifies the model, feeds the calibration data to the observers, computes scales and zero\n"
     "points, and writes an ONNX model with QuantizeLinear and DequantizeLinear nodes.\n"
     "Weights alone (--format weights, matmul_nbits, dynamic) need no --data. --limit is for "
     "--eval.\n"
     "--auto-exclude leaves float what costs too much accuracy, --mixed-precision gives each layer "
     "its own\n"
     "width within a budget, --percent more bits to the most sensitive layers; all measure on "
     "--data.\n"
     "--eval with --max-drop alone tries recipes until one loses no more; exit code 1 if none does.",
     "sparsebit quantize model.onnx --data cifar10:train.bin --calib 256 -o int8.onnx\n"
     "sparsebit quantize model.onnx -c qconfig.yaml --target tensorrt --data npy:x.npy -o "
     "int8.onnx\n"
     "sparsebit quantize model.onnx --set A.QUANTIZER.BIT=4 --data npy:x.npy -o int8.onnx\n"
     "sparsebit quantize model.onnx --data cifar10:train.bin --auto-exclude --max-drop 0.5 -o "
     "int8.onnx\n"
     "sparsebit quantize model.onnx --data cifar10:train.bin --mixed-precision --size-budget 0.6x -o "
     "mixed.onnx\n"
     "sparsebit quantize large.onnx --format weights -o weights_int8.onnx\n"
     "sparsebit quantize large.onnx --format matmul_nbits --set W.QUANTIZER.BIT=4 --set "
     "W.QUANTIZER.GROUP_SIZE=32 -o "
     "int4.onnx",
     cli_quantize},
    {"dequantize", "MODEL", "a quantized model as a float model", "--out --force --json", "--out",
     "Removes QuantizeLinear and DequantizeLinear, operators on integers too: weights become what\n"
     "their integers stand for, inputs and outputs that were integers become floats. 'quantize' of "
     "a\n"
     "quantized model does this by itself and keeps its scales (SCHEDULE.KEEP_SCALES).",
     "sparsebit dequantize int8.onnx -o float.onnx", cli_convert},
    {"convert", "MODEL", "a quantized model in another format", "--format --out --force --json",
     "--format --out",
     "Writes Q/DQ pairs as operators on integers (qoperator: QLinearConv, QGemm ...) or the other\n"
     "way round (qdq). Scales and integers stay as they are.",
     "sparsebit convert int8.onnx --format qoperator -o integers.onnx\n"
     "sparsebit convert integers.onnx --format qdq -o int8.onnx",
     cli_convert},
    {"prune", "MODEL", "remove channels, exactly",
     "--config --set --ratio --macs --bytes --latency --latency-table --search --prune-outputs --repair --data --limit --batch --masks --start-masks --save-masks --strict --inexact-norm --mask-only --explain "
     "--out --force "
     "--threads --json" CLI_PREP,
     "--out",
     "Scores the channels of every layer, removes the smallest of each group of channels that "
     "must\n"
     "go together, with everything behind them, and runs the result against the masked model on\n"
     "random inputs, and on --data if it is given. If they differ nothing is written. What cannot\n"
     "be cut exactly is kept; --explain says why.",
     "sparsebit prune model.onnx --ratio 0.5 -o small.onnx\n"
     "sparsebit prune model.onnx -c sconfig.yaml --macs 0.5x -o small.onnx\n"
     "sparsebit prune model.onnx --latency 0.6x --latency-table times.json -o small.onnx\n"
     "sparsebit prune model.onnx --macs 0.5x --search netadapt --set SPARSER.NETADAPT.STEPS=20 --data cifar10:train.bin -o small.onnx\n"
     "sparsebit prune model.onnx --ratio 0.5 --explain -o small.onnx\n"
     "sparsebit prune model.onnx --set SPARSER.TYPE=unstructured --ratio 0.8 --mask-only -o "
     "sparse.onnx",
     cli_prune},
    {"compress", "MODEL", "prune and quantize in one run",
     "--config --ratio --macs --bytes --latency --latency-table --search --repair --data --eval --calib --limit --batch "
     "--explain --out --force --threads --json" CLI_PREP,
     "--config --data --out",
     "One configuration with both parts: SPARSER (as of prune) and W, A (as of quantize). The model is\n"
     "pruned, proven, calibrated on the same --data and quantized; what pruning leaves is the float model\n"
     "that the quantization is compared with.",
     "sparsebit compress model.onnx -c both.yaml --data cifar10:train.bin -o small_int8.onnx\n"
     "sparsebit compress model.onnx -c both.yaml --macs 0.5x --repair ridge --data cifar10:train.bin -o small_int8.onnx",
     cli_compress},
    {"train", "MODEL", "train, finetune, train quantized",
     "--data --val --limit --epochs --batch --optimizer --lr --momentum --decay --schedule "
     "--warmup --flip --shift --cutout --mixup --cutmix --smoothing --clip --ema --micro --checkpoint "
     "--patience --sparse --macs --bytes "
     "--rewind --slim --dampening --observe --anneal --keep-zeros --freeze --freeze-statistics --teacher --distill --features --feature-weight "
     "--resume --log --config --target "
     "--set --calib --shuffle --seed --output --as-is --out --force --threads --json" CLI_PREP,
     "--data --out",
     "Trains the weights on labelled data by the cross entropy; running statistics of\n"
     "BatchNormalization follow. With -c, --target or --set the model is quantized first (--calib\n"
     "samples calibrate) and trained with its quantizers in it: lsq and lsq+ learn their scales.\n"
     "With -s it is pruned, too. The best model on --val is kept; OUT.checkpoint is written after\n"
     "each epoch and on Ctrl-C: what --resume goes on from, exactly.",
     "sparsebit train model.onnx --data cifar10:train.bin --val cifar10:test.bin --epochs 5 -o "
     "better.onnx\n"
     "sparsebit train model.onnx -c lsq_w4a4.yaml --data cifar10:train.bin --epochs 8 --lr 0.01 -o "
     "w4a4.onnx\n"
     "sparsebit train pruned.onnx --teacher model.onnx --data cifar10:train.bin --flip --shift 4 "
     "-o "
     "finetuned.onnx\n"
     "sparsebit train model.onnx -s sconfig.yaml --macs 0.5x -c lsq_w8a8.yaml --teacher model.onnx "
     "--data cifar10:train.bin --val cifar10:test.bin --epochs 10 -o small_int8.onnx",
     cli_train},
    {"compare", "A B", "how much model B differs from model A",
     "--data --limit --shuffle --seed --from --threads --json" CLI_PREP, "--data",
     "Runs both models on the same data. For each output, and for each inner tensor that has the\n"
     "same name in both (on the first 32 samples): signal-to-noise ratio (SQNR), cosine, largest\n"
     "difference, and relative error max|a-b| / max|a|; and how often both rank the same class\n"
     "first.",
     "sparsebit compare model.onnx int8.onnx --data cifar10:test.bin --limit 1000\n"
     "sparsebit compare model.onnx simple.onnx --data npy:x.npy",
     cli_compare},
    {"analyze", "MODEL", "which layers suffer most from being quantized, or pruned",
     "--config --sparsity --target --set --data --calib --limit --shuffle --seed --from --batch --threads --json" CLI_PREP, "--data",
     "Calibrates, then quantizes each layer alone and compares the outputs with those of the float model,\n"
     "on --limit samples (default: 64), --from which they are taken. The float model runs once, each layer\n"
     "costs what lies behind it. Also what is lost at its own output: on float inputs (own), and with all\n"
     "in front quantized (so far). With labels, what the loss gains by one run backwards: to first order\n"
     "(Taylor), and to second order by the Fisher information.",
     "sparsebit analyze model.onnx --data cifar10:train.bin --calib 256 --from 256\n"
     "sparsebit analyze model.onnx --set W.QUANTIZER.BIT=4 --data cifar10:train.bin --json\n"
     "sparsebit analyze model.onnx --sparsity --data cifar10:train.bin",
     cli_analyze},
    {"validate", "FLOAT QUANTIZED", "what a quantized model proves, and does on data",
     "--data --limit --shuffle --seed --from --agreement --strict --as-is --threads "
     "--json" CLI_PREP,
     "--data",
     "Says what the file alone proves: that no int32 sum can wrap whatever the input, that "
     "integers are\n"
     "within one step of exact arithmetic, that every weight is a rounding of its float. Then runs "
     "both\n"
     "models: how often they predict the same class, SQNR, the worst tensors, bytes and time. Exit "
     "code 1\n"
     "if a sum may wrap, integers may be further off, or predictions agree too rarely. Recipes "
     "that\n"
     "move weights further than their neighbours (GPTQ) are told; --strict makes that a failure.",
     "sparsebit validate model.onnx int8.onnx --data cifar10:test.bin\n"
     "sparsebit validate model.onnx int8.onnx --data images:photos --shuffle --seed 1 --from 200",
     cli_validate},
    {"bench", "MODEL", "how long one run takes",
     "--input --shape --threads --iters --profile --explain --simulate --isa --as-is --json", "",
     "Simplifies the model, runs it on the given inputs (random numbers for the others) and shows\n"
     "the median, smallest and mean time. --explain shows what became of each node: whether it\n"
     "runs on integers or in float, as a part of which other node, and why.",
     "sparsebit bench model.onnx --shape input=1x3x224x224\n"
     "sparsebit bench model.onnx --profile --threads 2\n"
     "sparsebit bench int8.onnx --explain",
     cli_bench},
    {"lint", "MODEL", "what a target would quantize and fuse, and why not", "--config --target --set --input --shape --threads --json", "",
     "Shows for each node of the simplified model whether the target quantizes it, what it runs as\n"
     "in this executor (integer, float, as a part of another node), and the reason where it stays\n"
     "float. 'sparsebit help TARGET' shows what a target wants.",
     "sparsebit lint model.onnx --target tensorrt\nsparsebit lint model.onnx --target mcu --json",
     cli_lint},
    {"graph", "MODEL", "draw the graph as text", "--format", "",
     "Prints the graph in the language of Mermaid or Graphviz.",
     "sparsebit graph model.onnx >model.mmd\n"
     "sparsebit graph model.onnx --format dot | dot -Tsvg -o model.svg",
     cli_graph},
    {"operators", "", "what this build can run", "--missing --json", "",
     "Lists every operator with the opset versions at which its definition changed; whether its\n"
     "inputs and outputs can have quantizers, and whether it can be trained through. 'ops' is the\n"
     "same command.",
     "sparsebit operators\nsparsebit operators --json\nsparsebit ops --missing", cli_operators},
    {"strategies", "", "what configurations can name", "--json", "",
     "Lists observers, quantizers, steps, profiles, sparsers, passes, losses, optimizers and\n"
     "schedules. 'sparsebit help NAME' shows the keys of one.",
     "sparsebit strategies\nsparsebit help adam", cli_strategies},
    {"keys", "", "the keys of configurations", "", "",
     "Lists every key of a quantization or pruning configuration with its default, what it takes\n"
     "and means, and the observers, quantizers, steps, profiles, sparsers, schedules and searches\n"
     "that can be named there.",
     "sparsebit keys", cli_keys},
    {"help", "NAME", "explain a command or a strategy", "", "",
     "Shows the options and examples of a command, or the keys of a strategy.",
     "sparsebit help quantize\nsparsebit help moving_average", cli_help},
};

const cli_command *cli_command_at(size_t index)
{
    return index < CLI_COUNT_OF(cli_commands) ? &cli_commands[index] : NULL;
}

static const cli_command *cli_find_command(const char *name)
{
    name = strcmp(name, "ops") == 0 ? "operators" : name;
    for (size_t i = 0; i < CLI_COUNT_OF(cli_commands); i++) {
        if (strcmp(cli_commands[i].name, name) == 0) {
            return &cli_commands[i];
        }
    }
    return NULL;
}

static int cli_unknown_command(const char *name)
{
    const char *words[CLI_COUNT_OF(cli_commands)];
    for (size_t i = 0; i < CLI_COUNT_OF(cli_commands); i++) {
        words[i] = cli_commands[i].name;
    }
    const char *near = sbit_word_nearest(name, words, CLI_COUNT_OF(cli_commands));
    return cli_fail_usage(NULL, "unknown command '%s'%s%s%s", name,
                          near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                          near != NULL ? "'?" : "");
}

static void cli_help_all(FILE *to)
{
    fputs("sparsebit " SPARSEBIT_VERSION
          ": quantizes, prunes, trains, simplifies, runs and checks ONNX\n"
          "models\n\n"
          "sparsebit COMMAND ...\n\nCommands\n",
          to);
    for (size_t i = 0; i < CLI_COUNT_OF(cli_commands); i++) {
        fprintf(to, "  %-13s %-15s %s\n", cli_commands[i].name, cli_commands[i].operands,
                cli_commands[i].summary);
    }
    fputs("\n'sparsebit help COMMAND' shows options and examples; 'sparsebit --version' the "
          "version.\n"
          "Exit codes: 0 done, 1 bad input or a failed check, 2 wrong usage.\n"
          "\nExamples\n"
          "  sparsebit info model.onnx\n"
          "  sparsebit quantize model.onnx --data cifar10:train.bin --calib 256 -o int8.onnx\n"
          "  sparsebit eval int8.onnx --data cifar10:test.bin\n",
          to);
}

static int cli_help(const cli_args *args)
{
    const cli_command *command = cli_find_command(args->operands[0]);
    if (command == NULL && cli_help_strategy(args->operands[0])) {
        return CLI_OK;
    }
    if (command == NULL) {
        return cli_unknown_command(args->operands[0]);
    }
    cli_args_help(command, stdout);
    return CLI_OK;
}

static int cli_main(int argc, char **argv)
{
    cli_args args;
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        cli_help_all(stderr);
        return CLI_USAGE;
    }
    const bool asks = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (asks || (strcmp(name, "help") == 0 && argc == 2)) {
        cli_help_all(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        puts("sparsebit " SPARSEBIT_VERSION);
        return CLI_OK;
    }
    const cli_command *command = cli_find_command(name);
    if (command == NULL) {
        return cli_unknown_command(name);
    }
    CLI_TRY(cli_args_parse(command, argc - 2, argv + 2, &args));
    if (args.help) {
        cli_args_help(command, stdout);
        return CLI_OK;
    }
    return command->run(&args);
}

int main(int argc, char **argv)
{
    cli_json_failures(argc, argv);
    int code = cli_main(argc, argv);
    cli_progress_clear();
    cli_json_fail(code);
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_OK) {
        code = cli_fail("stdout cannot be written (is the disk full?)");
    }
    return code;
}
