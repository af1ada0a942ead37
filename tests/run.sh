#!/bin/sh
# run.sh [-v] COMMAND...: runs the commands one after another and adds up their results.
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
log=$(mktemp) || exit 1
trap 'rm -f "$log" "$log.status"' EXIT
limit=
if command -v timeout >/dev/null; then
    limit="timeout ${SBIT_TEST_TIMEOUT:-900}"
fi
counts='s/^\(.*[^0-9]\)\{0,1\}\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed, \([0-9][0-9]*\) skipped$/\2 \3 \4/p'
passed=0 failed=0 skipped=0

for command; do
    begin=$(date +%s)
    if $verbose; then
        echo "== $command"
        { sh -c "$command" 2>&1; echo $? >"$log.status"; } | tee "$log"
    else
        $limit sh -c "$command" >"$log" 2>&1
        echo $? >"$log.status"
    fi
    status=$(cat "$log.status")
    # shellcheck disable=SC2046 # three words on purpose
    set -- $(sed -n "$counts" "$log" | tail -n 1)
    if [ $# = 3 ]; then
        p=$1 f=$2 s=$3
    else
        p=1 f=0 s=0
    fi
    if [ "$status" != 0 ] && [ "$f" = 0 ]; then
        f=1
        [ $# = 3 ] || p=0
        echo "exit status $status" >>"$log"
    fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    if ! $verbose; then
        if [ "$f" != 0 ]; then
            tail -n 300 "$log"
        else
            grep '^SKIP' "$log"
        fi
    fi
    echo "-- $command: $p passed, $f failed, $s skipped ($(($(date +%s) - begin)) s)"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
