#!/bin/sh
# compare.sh SPARSEBIT DATA PREPROCESSING MODEL...: prints accuracy, size and time of each model.
sparsebit=$1 data=$2 preprocess=$3
shift 3
# A number of the one-line JSON object that `eval --json` prints.
number() {
    printf '%s' "$report" | tr -d ' \n' | sed -n "s/.*\"$1\":\([-+.0-9eE]*\).*/\1/p"
}
printf '%-28s %10s %12s %14s\n' model top-1 bytes ms/picture
for model; do
    # The options are separate words on purpose.
    # shellcheck disable=SC2086
    report=$("$sparsebit" eval "$model" --data "cifar10:$data" $preprocess --json) || exit 1
    top1=$(number top1)
    if [ -z "$top1" ]; then
        echo "no top1 in: $report" >&2
        exit 1
    fi
    printf '%-28s %9.2f%% %12d %14.4f\n' "${model##*/}" \
        "$(awk -v a="$top1" 'BEGIN {print 100 * a}')" "$(wc -c <"$model")" "$(number ms_per_sample)"
done
