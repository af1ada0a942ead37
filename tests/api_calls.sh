#!/bin/sh
# api_calls.sh: every function that a public header declares is called by the library, the tool or an
# example: what nothing calls is a guess and does not stand there.
cd "$(dirname "$0")/.." || exit 1
code() { # FILE...: without comments and directives
    for file; do
        gcc -fpreprocessed -dD -E -P "$file" 2>/dev/null | grep -v '^#'
    done
}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
code src/*/*_api.h | tr '\n' ' ' | grep -o 'SPARSEBIT_API[^;(]*' | grep -o 'sbit_[a-z0-9_]*$' |
    sort -u >"$dir/declared"
# definitions do not count: their names stand behind SPARSEBIT_API too
code $(find src tools examples -name '*.c' ! -path '*/build/*') | tr '\n' ' ' |
    sed 's/SPARSEBIT_API[^;({]*(/ /g' | grep -o '[a-z_0-9]*' | grep '^sbit_[^_]' | sort -u >"$dir/used"
comm -23 "$dir/declared" "$dir/used" >"$dir/unused"
if [ -s "$dir/unused" ]; then
    echo "declared in a public header, but called by nothing in src/, tools/ and examples/:"
    cat "$dir/unused"
    exit 1
fi
echo "$(wc -l <"$dir/declared") public functions, all called"
