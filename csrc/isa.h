// Instruction set levels: what this machine can run, which one is used, and how kernels are picked.
//
// A kernel family declares a table of function pointers, defines it once per level in a *_isa.cpp
// file (compiled once per level, see CMakeLists.txt and simd.h), and picks one table at run time:
//
//   struct NormKernels { void (*rms_norm)(...); };
//   CHAIRLIFT_DECLARE_KERNELS(NormKernels, norm_kernels)          // in norm.h
//   CHAIRLIFT_DEFINE_KERNELS(NormKernels, norm_kernels) = {...};  // in norm_isa.cpp
//   norm_kernels(isa).rms_norm(...);                              // at a call
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chairlift {

// Ordered: each level can run whatever the ones before it can.
enum class Isa { portable, avx2, avx512, avx512_bf16, amx };

const char* isa_name(Isa isa);

// Levels this machine and operating system can run, lowest first; asks for AMX state once.
const std::vector<Isa>& available_isas();

// The level of that name. Throws std::invalid_argument naming the available ones if this machine
// cannot run it or there is no such level.
Isa parse_isa(std::string_view name);

// The level to use: environment variable CHAIRLIFT_ISA if set and not empty, else the highest.
// Throws as parse_isa does. Read anew at every call; each model keeps the level it was made with.
Isa current_isa();

}  // namespace chairlift

#if defined(__x86_64__)
#define CHAIRLIFT_DECLARE_KERNELS(Table, name)                        \
  namespace isa_portable { extern const Table name; }                 \
  namespace isa_avx2 { extern const Table name; }                     \
  namespace isa_avx512 { extern const Table name; }                   \
  namespace isa_avx512_bf16 { extern const Table name; }              \
  namespace isa_amx { extern const Table name; }                      \
  inline const Table& name(::chairlift::Isa isa) {                    \
    switch (isa) {                                                    \
      case ::chairlift::Isa::amx: return isa_amx::name;               \
      case ::chairlift::Isa::avx512_bf16: return isa_avx512_bf16::name; \
      case ::chairlift::Isa::avx512: return isa_avx512::name;         \
      case ::chairlift::Isa::avx2: return isa_avx2::name;             \
      default: return isa_portable::name;                             \
    }                                                                 \
  }
#else
#define CHAIRLIFT_DECLARE_KERNELS(Table, name)        \
  namespace isa_portable { extern const Table name; } \
  inline const Table& name(::chairlift::Isa) { return isa_portable::name; }
#endif

// Used inside namespace chairlift::CHAIRLIFT_ISA.
#define CHAIRLIFT_DEFINE_KERNELS(Table, name) extern const Table name
