// GCC up to 12 tells its optimiser that _tile_loadconfig reads one pointer, while the instruction reads
// 64 bytes. At -O3 the other bytes of llama.cpp's tile configuration are then never written, and its AMX
// kernels end with SIGSEGV. This macro declares all bytes that are read.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
struct tile_config_bytes {
  unsigned char byte[64];
};
#define _tile_loadconfig(from) \
  __asm__ volatile("ldtilecfg\t%0" : : "m"(*static_cast<const tile_config_bytes *>(static_cast<const void *>(from))))
#endif
