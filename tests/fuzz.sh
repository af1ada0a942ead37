#!/bin/sh
# fuzz.sh [SECONDS]: runs each fuzz_*.c with libFuzzer. Seeds are the files in fuzz_seeds/NAME (for
# fuzz_NAME.c); what a run learns is kept in build/fuzz/NAME, a failing input in build/fuzz.
cd "$(dirname "$0")" || exit 1
if ! echo 'int x;' | clang -fsanitize=fuzzer-no-link,address -xc -c -o /dev/null - 2>/dev/null; then
    exec ./run.sh --skip 'fuzz: no clang with libFuzzer'
fi
options="-max_total_time=${1:-20} -timeout=10 -rss_limit_mb=2048 -verbosity=0 -print_final_stats=1"
set -- "${MAKE:-make} -s -k fuzz-programs"
for file in fuzz_*.c; do
    [ -f "$file" ] || continue
    name=${file%.c}
    corpus=build/fuzz/${name#fuzz_}
    seeds=fuzz_seeds/${name#fuzz_}
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=
    set -- "$@" "build/fuzz/$name $options -artifact_prefix=build/fuzz/ $corpus $seeds"
done
exec ./run.sh "$@"
