#!/bin/sh
# source_rules.sh: rules about the sources that no compiler checks; each is one test.
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
# code FILE...: "FILE:LINE" without comments, directives and the texts of strings
code() {
    awk 'FNR == 1 { comment = 0 }
    {
        line = $0
        text = ""
        for (;;) {
            if (comment) {
                at = index(line, "*/")
                if (at == 0) { break }
                line = substr(line, at + 2)
                comment = 0
            }
            at = index(line, "/*")
            if (at == 0) { text = text line; break }
            text = text substr(line, 1, at - 1) " "
            line = substr(line, at + 2)
            comment = 1
        }
        gsub(/"([^"\\]|\\.)*"/, "", text)
        if (text !~ /^[ \t]*#/ && text !~ /^[ \t]*$/) { print FILENAME ":" FNR " " text }
    }' "$@"
}
text() { # FILE...: the same without places, in one line
    code "$@" | sed 's/^[^ ]* //' | tr '\n' ' '
}
# check NAME FILE: passes if the file is empty, else shows it.
check() {
    if [ -s "$2" ]; then
        echo "FAIL $1"
        cat "$2"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

# What nothing calls is a guess and does not stand in a public header. Definitions do not count:
# their names stand behind SPARSEBIT_API too.
text src/*/*_api.h | grep -o 'SPARSEBIT_API[^;(]*' | grep -o 'sbit_[a-z0-9_]*$' | sort -u >"$dir/declared"
text $(find src tools examples -name '*.c' ! -path '*/build/*') |
    sed 's/SPARSEBIT_API[^;({]*(/ /g' | grep -o '[a-z_0-9]*' | grep '^sbit_[^_]' | sort -u >"$dir/used"
comm -23 "$dir/declared" "$dir/used" >"$dir/unused"
check "public functions that nothing in src/, tools/ and examples/ calls" "$dir/unused"

# Names that are macros or types in the headers of Windows, X11, Qt: see compile_matrix.sh, which
# compiles with them, but takes longer.
code src/*/*.[ch] |
    grep -w 'near\|far\|small\|huge\|hyper\|byte\|interface\|slots\|emit\|signals' >"$dir/names"
check "names that are macros or types elsewhere" "$dir/names"

echo "source_rules: $passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
