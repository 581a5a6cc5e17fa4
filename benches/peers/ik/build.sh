#!/usr/bin/env bash
# Build ik_llama.cpp, a fork of llama.cpp that is faster on CPUs, and `ik_bench` with it. Two cores
# need about five minutes.
#
#   ik/build.sh FOLDER            # FOLDER/ik_bench is the program
#
# This needs a C++ compiler, cmake and ninja (`pip install cmake ninja`). The source comes from a
# Python package of a pinned version.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?a folder to build in}
package=ik-llama-cpp-python version=0.1.5
mkdir -p "$folder"
cd "$folder"

source=${package//-/_}-$version/vendor/ik_llama.cpp
if [[ ! -d $source ]]; then
  pip download -q --no-deps --no-binary "$package" -d . "$package==$version"
  tar -xzf "${package//-/_}-$version.tar.gz"
fi
cmake -G Ninja -S "$source" -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_IQK_FA_ALL_QUANTS=OFF \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF
ninja -C build llama ggml
g++ -O2 -std=c++17 -Wall -Wextra -I"$source/include" -I"$source/ggml/include" "$here/ik_bench.cpp" -o ik_bench \
  -Lbuild/src -Lbuild/ggml/src -lllama -lggml -Wl,-rpath,"\$ORIGIN/build/src:\$ORIGIN/build/ggml/src"
echo "$PWD/ik_bench"
