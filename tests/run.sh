#!/bin/sh
# run.sh [-v] COMMAND... [-j N COMMAND...]: runs the commands one after another, those behind -j N of
# them beside each other, and adds up their results.
#
# A command reports by a last line "...: P passed, F failed, S skipped"; without such a line it
# counts as one test, which passes if the exit status is 0. A command that ends badly without
# reporting a failure counts as a failure. Shown are each result, every SKIP, and the whole output
# of what failed; -v shows all output. The last line is the total, the exit status 1 on any failure.
#
# run.sh --skip REASON: reports in the same form that a tool is missing: a skip, or a failure under
# SPARSEBIT_REQUIRE=tools or =all. (What needs shared data is skipped by the tests themselves, and
# fails under =all alone.)
if [ "$1" = --skip ]; then
    echo "SKIP $2"
    case $SPARSEBIT_REQUIRE in
    all | tools)
        echo "0 passed, 1 failed, 0 skipped"
        exit 1
        ;;
    esac
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
verbose=false
if [ "$1" = -v ]; then
    verbose=true
    shift
fi
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
limit=
if command -v timeout >/dev/null; then
    limit="timeout ${SBIT_TEST_TIMEOUT:-900}"
fi
counts='s/^\(.*[^0-9]\)\{0,1\}\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed, \([0-9][0-9]*\) skipped$/\2 \3 \4/p'
passed=0 failed=0 skipped=0

# What one command is run by: run_one LOG COMMAND writes LOG, LOG.status and LOG.seconds.
cat >"$dir/run_one" <<'END'
begin=$(date +%s)
$LIMIT sh -c "$2" >"$1" 2>&1
echo $? >"$1.status"
echo $(($(date +%s) - begin)) >"$1.seconds"
END

# report LOG COMMAND
report() {
    status=$(cat "$1.status")
    # shellcheck disable=SC2046 # three words on purpose
    set -- "$1" "$2" $(sed -n "$counts" "$1" | tail -n 1)
    if [ $# = 5 ]; then
        p=$3 f=$4 s=$5
    else
        p=1 f=0 s=0
    fi
    if [ "$status" != 0 ] && [ "$f" = 0 ]; then
        f=1
        [ $# = 5 ] || p=0
        echo "exit status $status" >>"$1"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if ! $verbose; then
        if [ "$f" != 0 ]; then
            tail -n 300 "$1"
        else
            grep '^SKIP' "$1"
        fi
    fi
    echo "-- $2: $p passed, $f failed, $s skipped ($(cat "$1.seconds") s)"
}

while [ $# != 0 ] && [ "$1" != -j ]; do
    if $verbose; then
        echo "== $1"
        begin=$(date +%s)
        { sh -c "$1" 2>&1; echo $? >"$dir/log.status"; } | tee "$dir/log"
        echo $(($(date +%s) - begin)) >"$dir/log.seconds"
    else
        LIMIT=$limit sh "$dir/run_one" "$dir/log" "$1"
    fi
    report "$dir/log" "$1"
    shift
done
if [ "$1" = -j ]; then
    jobs=$2
    shift 2
    number=0
    for command; do
        number=$((number + 1))
        printf '%s' "$command" >"$dir/$number.command"
    done
    seq "$number" | LIMIT=$limit xargs -P "$jobs" -I{} sh -c \
        "sh '$dir/run_one' '$dir/{}' \"\$(cat '$dir/{}.command')\""
    number=0
    for command; do
        number=$((number + 1))
        report "$dir/$number" "$command"
    done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
