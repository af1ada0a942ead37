#!/bin/sh
# compile_matrix.sh: compiles the two headers in every way that users do; each case is one test.
# Run in tests/. Cases that need no linking only check the syntax: gcc and clang warn there too.
cd "$(dirname "$0")" || exit 1
dir=$(pwd)/build/matrix
rm -rf "$dir"
mkdir -p "$dir"
jobs=$(nproc 2>/dev/null || echo 1)
started=0

common="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wundef -Wcast-qual"
common="$common -Wdouble-promotion -Wvla -Werror -ffp-contract=off -O0 -I.."
c_only="-Wstrict-prototypes -Wmissing-prototypes -Wc++-compat"

# start NAME COMMAND: a case; all run beside each other when the last is known, in this order.
start() {
    started=$((started + 1))
    number=$dir/$(printf %03d $started)
    printf '%s\n' "$1" >"$number.name"
    printf '%s\n' "$2" >"$number.command"
}

# file NAME LINE...: writes a source file.
file() {
    path=$dir/$1
    shift
    printf '%s\n' "$@" >"$path"
}

file onnx_only.c '#include "sparsebit_onnx.h"' 'typedef int nothing;'
file decl.c '#include "sparsebit.h"' '#include "sparsebit.h"' '#include "sparsebit_onnx.h"' \
    'typedef int nothing;'
file onnx_impl.c '#define SPARSEBIT_ONNX_IMPLEMENTATION' '#include "sparsebit_onnx.h"'
file impl.c '#define SPARSEBIT_IMPLEMENTATION' '#include "sparsebit.h"'
file impl_later.c '#include "sparsebit_onnx.h"' '#include "sparsebit.h"' \
    'const char *sbit_user(void);' \
    'const char *sbit_user(void) { return sbit_status_text(SBIT_OK); }' \
    '#define SPARSEBIT_IMPLEMENTATION' '#include "sparsebit.h"'
file impl_repeated.c '#define SPARSEBIT_IMPLEMENTATION' '#include "sparsebit.h"' \
    '#include "sparsebit_onnx.h"' '#include "sparsebit.h"' \
    'const char *sbit_user(void);' \
    'const char *sbit_user(void) { return sbit_status_text(SBIT_OK); }'
file impl_in_two_steps.c '#define SPARSEBIT_ONNX_IMPLEMENTATION' '#include "sparsebit_onnx.h"' \
    '#define SPARSEBIT_IMPLEMENTATION' '#include "sparsebit.h"'
# Names that are macros in other people's headers: of Windows, macOS, X11, Qt, the C library.
{
    grep -ho '^ *# *include <[a-z/_]*\.h>' ../src/*/*.[ch] | grep -v 'windows\|intrin\|neon\|cpuid' | sort -u
    cat <<'END'
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif
#define near
#define far
#define huge
#define small char
#define hyper __int64
#define interface struct
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#define VOID void
#define ERROR 0
#define DELETE 0
#define IGNORE 0
#define TRUE 1
#define FALSE 0
#define DOMAIN 1
#define OVERFLOW 3
#define UNDERFLOW 4
#define min(a, b) (((a) < (b)) ? (a) : (b))
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define check(x) broken
#define verify(x) broken
#define require(x, y) broken
#define swap(a, b) broken
#define likely(x) broken
#define unlikely(x) broken
#define major(x) broken
#define minor(x) broken
#define linux 1
#define unix 1
#define Status int
#define Bool int
#define None 0L
#define Success 0
#define Always 2
#define I broken
#define PI 3.14
#define emit
#define slots
#define signals public
#define foreach for
#define SPARSEBIT_IMPLEMENTATION
#include "sparsebit.h"
END
} >"$dir/macros.c"
file windows.c '#include <windows.h>' '#define SPARSEBIT_IMPLEMENTATION' '#include "sparsebit.h"'
file user.c '#include "sparsebit.h"' \
    'int main(void) { return sbit_status_text(SBIT_ERR_IO)[0] == 0 || sbit_dtype_bits(SBIT_F32) != 32; }'
file user_onnx.c '#include "sparsebit_onnx.h"' \
    'int main(void) { return sbit_status_text(SBIT_ERR_IO)[0] == 0 || sbit_dtype_bits(SBIT_F32) != 32; }'

# What an object file may define: names that begin with sbit_ and are not private; in C++ also what the
# standard headers put there.
own_names() {
    printf '%s' "nm -g --defined-only $1 | awk 'NF == 3 && \$3 !~ /^(sbit_[^_]|_ZSt|DW[.]ref[.])/ {print; bad = 1} END {exit bad}'"
}
# What the library never calls: it does not end the program, print, or assert.
calls() {
    printf '%s' "! nm -u $1 | grep -E ' _?(exit|_exit|abort|printf|puts|putchar|perror|fprintf|__assert_fail|__printf_chk|__fprintf_chk)(@.*)?\$'"
}

matrix() { # CC CXX
    cc=$1 c99="$1 -std=c99 $common $c_only" c11="$1 -std=c11 $common $c_only"
    cxx="$2 -std=c++11 $common -x c++" cxx20="$2 -std=c++20 $common -x c++"
    o=$dir/$cc
    for name in onnx_only decl onnx_impl impl impl_later impl_repeated impl_in_two_steps; do
        start "$cc C99 $name" "$c99 -fsyntax-only $dir/$name.c"
    done
    start "$cc C11 impl" "$c11 -fsyntax-only $dir/impl.c"
    start "$cc C99 names that are macros elsewhere" "$c99 -std=gnu99 -Wno-variadic-macros \
        -fsyntax-only $dir/macros.c"
    if [ "$cc" = gcc ]; then # code of one compiler shows what is global
        start "$cc C99 SPARSEBIT_STATIC" "$c99 -DSPARSEBIT_STATIC -c -o $o-static.o $dir/impl.c &&
            test -z \"\$(nm -g --defined-only $o-static.o)\""
    else
        start "$cc C99 SPARSEBIT_STATIC" "$c99 -DSPARSEBIT_STATIC -fsyntax-only $dir/impl.c"
    fi
    for switch in NO_THREADS NO_FILES NO_MMAP NO_SIMD; do
        start "$cc C99 SPARSEBIT_$switch" "$c99 -DSPARSEBIT_$switch=1 -fsyntax-only $dir/impl.c"
    done
    start "$cc C99 without operators that can be left out" "$c99 -o $o-no_ops no_ops.c -lm -lpthread &&
        $o-no_ops"
    start "$cc C99 without files, for size" "$c99 -Os -DSPARSEBIT_NO_FILES=1 -c -o $o-size.o \
        $dir/impl.c"
    start "$cc C: two files, own names only, no exit or print" "$c99 -c -o $o-c.o $dir/impl.c &&
        $c99 -c -o $o-user.o $dir/user.c && $cc -o $o-c $o-c.o $o-user.o -lm -lpthread && $o-c &&
        $(own_names "$o-c.o") && $(calls "$o-c.o")"
    start "$cc C: sparsebit_onnx.h alone" "$c99 -c -o $o-onnx.o $dir/onnx_impl.c &&
        $c99 -o $o-onnx $dir/user_onnx.c $o-onnx.o && $o-onnx && $(own_names "$o-onnx.o")"
    if ! command -v "$2" >/dev/null; then
        skip "no $2"
        return
    fi
    for name in onnx_only decl onnx_impl impl impl_later; do
        start "$cc C++11 $name" "$cxx -fsyntax-only $dir/$name.c"
    done
    start "$cc C++20 impl" "$cxx20 -fsyntax-only $dir/impl.c"
    start "$cc C++11 names that are macros elsewhere" "$cxx -fsyntax-only $dir/macros.c"
    start "$cc C++11 SPARSEBIT_STATIC" "$cxx -DSPARSEBIT_STATIC -fsyntax-only $dir/impl.c"
    start "$cc C++11 without threads, files, SIMD" "$cxx -DSPARSEBIT_NO_THREADS=1 \
        -DSPARSEBIT_NO_FILES=1 -DSPARSEBIT_NO_SIMD=1 -fsyntax-only $dir/impl.c"
    start "$cc C++: two files, own names only" "$cxx -c -o $o-cxx.o $dir/impl.c &&
        $cxx -c -o $o-user-cxx.o $dir/user.c && $2 -o $o-cxx $o-cxx.o $o-user-cxx.o -lm -lpthread &&
        $o-cxx && $(own_names "$o-cxx.o")"
}

# skip REASON [optional]: a missing compiler; an optional one may be missing anywhere.
skipped=0 missing=0
skip() {
    echo "SKIP compile matrix: $1"
    case $2$SPARSEBIT_REQUIRE in
    all | tools | optionalall) missing=$((missing + 1)) ;;
    *) skipped=$((skipped + 1)) ;;
    esac
}

# windows: mingw-w64's compilers take the implementation, behind windows.h too, and the tool.
windows() { # CC CXX
    o=$dir/$1
    # its isfinite() and friends convert to float; its printf checks are those of old C libraries
    mingw="$common -Wno-float-conversion"
    start "$1 C99 impl" "$1 -std=c99 $mingw $c_only -fsyntax-only $dir/impl.c"
    start "$1 C99 impl behind windows.h" "$1 -std=c99 $mingw $c_only -fsyntax-only $dir/windows.c"
    start "$2 C++11 impl behind windows.h" \
        "$2 -std=c++11 $mingw -x c++ -fsyntax-only $dir/windows.c"
    start "$2 C++20 impl" "$2 -std=c++20 $mingw -x c++ -fsyntax-only $dir/impl.c"
    start "$1 tool" "$1 -std=gnu99 -Wall -Wextra -Werror -O0 -I../tools -o $o-sparsebit.exe \
        $(find ../tools -name build -prune -o -name '*.c' ! -name amalgamate.c -print | sort | tr '\n' ' ')"
}

# the longest first
if command -v arm-none-eabi-gcc >/dev/null; then
    start "arm-none-eabi" "arm-none-eabi-gcc -mcpu=cortex-m4 -std=c99 $common $c_only \
        -Wno-conversion -O2 -Wframe-larger-than=2048 -c -o $dir/arm.o $dir/impl.c"
else
    skip 'no arm-none-eabi-gcc' optional
fi
matrix gcc g++
if command -v clang >/dev/null; then
    matrix clang clang++
else
    skip 'no clang'
fi
if command -v x86_64-w64-mingw32-gcc >/dev/null && command -v x86_64-w64-mingw32-g++ >/dev/null; then
    windows x86_64-w64-mingw32-gcc x86_64-w64-mingw32-g++
else
    skip 'no mingw-w64 (gcc-mingw-w64-x86-64, g++-mingw-w64-x86-64)'
fi
if echo '#include <stdlib.h>' | gcc -m32 -xc -fsyntax-only - 2>/dev/null; then
    start "gcc 32 bit" "gcc -m32 -std=c99 $common $c_only -fsyntax-only $dir/impl.c"
fi

start "the headers are those of src/" "${MAKE:-make} -s -C ../tools check-headers"
# listed, or pasted by a listed file that includes it (kernels/vec_sets.c)
start "MANIFEST lists every file of src/" "cd ../src && { sed 's/[ #[].*//' MANIFEST;
    sed -n 's|^#include \"\(vec_.*\)\".*|kernels/\1|p' kernels/*.c; } | sort -u >$dir/listed &&
    ! find * -type f ! -name MANIFEST ! -name '*.md' | sort | comm -13 $dir/listed - | grep ."
if [ -f ../README.md ]; then
    # Each C block of the README that is a program compiles.
    awk -v dir="$dir" '/^```c$/ {n++; inside = 1; next} /^```/ {inside = 0}
        inside {print > (dir "/readme" n ".c")}' ../README.md
    for readme in "$dir"/readme*.c; do
        if grep -q 'main(' "$readme" 2>/dev/null; then
            start "README: ${readme##*/}" "gcc -std=gnu99 -Wall -Wextra -Werror -I.. -fsyntax-only $readme"
        fi
    done
fi
printf '%s\n' "$dir"/*.command | sed 's/[.]command$//' | xargs -P "$jobs" -I{} sh -c \
    'if sh {}.command >{}.log 2>&1; then : >{}.passed; else
         { echo "FAIL $(cat {}.name)"; head -n 8 {}.log; echo "command: $(cat {}.command)"; } >{}.failed
     fi'

cat "$dir"/*.failed 2>/dev/null
passed=$(find "$dir" -name '*.passed' | wc -l)
failed=$(find "$dir" -name '*.failed' | wc -l)
failed=$((failed + missing))
echo "compile_matrix: $passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
