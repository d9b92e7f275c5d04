#!/bin/sh
# What `cmake --install` puts into a prefix works by itself: ten lines of C and of C++ build and run with pkg-config and with
# find_package(fluxon), against a cluster of the installed programs.
# So does a program of the first release, which knows the headers of that alone.
# usage: install_test.sh BUILD_DIR C_COMPILER CXX_COMPILER
set -eu
build=$1 cc=$2 cxx=$3
case $(grep '^FLUXON_SANITIZE:' "$build/CMakeCache.txt") in
  *=) ;;
  *) echo "SKIPPED: (machine) a sanitized library needs a sanitized program"; exit 77 ;;
esac
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
work=$(mktemp -d /tmp/fluxon-install-XXXXXX)
prefix=$work/prefix
export FLUXON_SHM_ROOT=/dev/shm/${work##*/}
cleanup() {
  [ -x "$prefix/bin/fluxonctl" ] && "$prefix/bin/fluxonctl" --config "$work/fluxon.toml" down >/dev/null 2>&1
  rm -rf "$work" "$FLUXON_SHM_ROOT"
}
trap cleanup EXIT

cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }

cat >"$work/hello.c" <<'END'
#include <fluxon/fluxon.h>
#include <stdio.h>
int main(void) {
  fluxon_connect_options options = {.size = sizeof options, .cluster = "installed"};
  fluxon_client* client;
  fluxon_holder holder = FLUXON_INIT(fluxon_holder);
  if (fluxon_connect(&options, &client) || fluxon_put(client, "c", 1, "from C", 6, NULL, NULL)) return puts(fluxon_last_error()), 1;
  if (fluxon_get(client, "c", 1, NULL, &holder)) return puts(fluxon_last_error()), 1;
  printf("%.*s\n", (int)holder.length, (const char*)holder.data);
  fluxon_release(&holder);
  fluxon_close(client);
  return 0;
}
END
cat >"$work/hello.cpp" <<'END'
#include <fluxon/fluxon.hpp>
#include <iostream>
int main() {
  fluxon::Client client(fluxon::ConnectOptions{.cluster = "installed"});
  client.put("c++", "from C++");
  std::cout << client.get("c++")->text() << "\n";
}
END
cat >"$work/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(hello LANGUAGES C CXX)
find_package(fluxon 0.1 REQUIRED)
add_executable(hello_c hello.c)
add_executable(hello_cpp hello.cpp)
target_link_libraries(hello_c fluxon::fluxon)
target_link_libraries(hello_cpp fluxon::fluxon)
END
printf '[common]\ncluster = "installed"\n[master]\nstate_dir = "%s/state"\n[owner]\nnode = "n0"\nsegment_size = "16MiB"\n' "$work" >"$work/fluxon.toml"
"$prefix/bin/fluxonctl" --config "$work/fluxon.toml" up --detach >"$work/up.log" 2>&1 || { cat "$work/up.log"; exit 1; }

# The programs find the library where they were linked, without LD_LIBRARY_PATH, from a prefix that has been moved since.
check() {
  said=$("$1")
  [ "$said" = "$2" ] || { echo "$1 says '$said', not '$2'"; exit 1; }
}
pc=$(find "$prefix" -name fluxon.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_LIBDIR=/nowhere
libdir=$(pkg-config --variable=libdir fluxon)
[ -e "$libdir/libfluxon.so" ] || { echo "fluxon.pc: libdir=$libdir, without libfluxon.so"; exit 1; }
# Words that the shell must split.
"$cc" -Wall -Wextra -Werror -std=c11 "$work/hello.c" -o "$work/pc_c" $(pkg-config --cflags --libs fluxon) "-Wl,-rpath,$libdir"
"$cxx" -Wall -Wextra -Werror -std=c++20 "$work/hello.cpp" -o "$work/pc_cpp" $(pkg-config --cflags --libs fluxon) "-Wl,-rpath,$libdir"
check "$work/pc_c" "from C"
# A program of the first release, whose symbols are all there under the version that they had then.
abi=${0%/*}/../abi
"$cc" -Wall -Wextra -Werror -std=c11 -isystem "$abi/0.1" "$abi/first_release.c" -o "$work/first_release" -L"$libdir" -lfluxon "-Wl,-rpath,$libdir"
said=$("$work/first_release" installed) || true
[ "$said" = runs ] || { echo "a program of the first release: $said"; exit 1; }
nm -D --with-symbol-versions "$libdir/libfluxon.so" >"$work/exported"
for name in $(sed -n 's/^FLUXON_API .*\b\(fluxon_[a-z_]*\)(.*/\1/p' "$abi/0.1/fluxon/fluxon.h"); do
  grep -qE " T $name@@?FLUXON_0.1$" "$work/exported" || { echo "libfluxon.so lacks $name of release 0.1"; exit 1; }
done
check "$work/pc_cpp" "from C++"

cmake -S "$work" -B "$work/build" -G "$generator" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$work/cmake.log" 2>&1 &&
  cmake --build "$work/build" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
check "$work/build/hello_c" "from C"
check "$work/build/hello_cpp" "from C++"

# A project in C alone, and a compiler that is not told of C++20.
mkdir "$work/plain"
cp "$work/hello.c" "$work/plain"
cat >"$work/plain/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(plain LANGUAGES C)
find_package(fluxon 0.1 REQUIRED)
add_executable(hello_c hello.c)
target_link_libraries(hello_c fluxon::fluxon)
END
cmake -S "$work/plain" -B "$work/plain/build" -G "$generator" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/cmake.log" 2>&1 &&
  cmake --build "$work/plain/build" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log"; exit 1; }
check "$work/plain/build/hello_c" "from C"
said=$("$cxx" -std=c++17 -fsyntax-only "$work/hello.cpp" $(pkg-config --cflags fluxon) 2>&1 | grep -m 1 error:) || true
case $said in
  *"fluxon.hpp needs C++20"*) ;;
  *) echo "of C++17 the compiler says '$said' first"; exit 1 ;;
esac

# Units start what lies beside them.
for unit in fluxon-master.service fluxon-owner@.service fluxon-ssdd@.service; do
  program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$prefix/lib/systemd/system/$unit")
  [ "${program%/*}" = "$prefix/bin" ] && [ -x "$program" ] || { echo "$unit starts '$program', not a program of $prefix"; exit 1; }
done

# Everything that a program needs was installed with it.
for program in fluxon-master fluxon-owner fluxon-ssdd fluxonctl; do
  "$prefix/bin/$program" --version >/dev/null
done
"$prefix/bin/fluxonctl" --config "$work/fluxon.toml" down >/dev/null
if grep -rIl "$build" "$prefix"; then
  echo "these installed files name the build folder"
  exit 1
fi
echo "installed, built and run with pkg-config and find_package"
