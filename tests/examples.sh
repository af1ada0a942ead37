#!/bin/sh
# examples.sh FOLDER: runs every example that was built into FOLDER, as a test each, in a scratch
# folder. An example needs no arguments: it makes its own data, prints what it found, and ends with
# status 0. shapes.c only draws pictures for the quickstart.
programs=$(cd "$1" && pwd) || exit 1
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT
tests=$(cd "$(dirname "$0")" && pwd)
set --
for source in "$tests"/../examples/*.c; do
    name=$(basename "$source" .c)
    [ "$name" = shapes ] || set -- "$@" "examples/$name"
done
cd "$scratch" && ln -s "$programs" examples || exit 1
"$tests/run.sh" "$@"
