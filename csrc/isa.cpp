#include "isa.h"

#include <cstdlib>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace chairlift {
namespace {

constexpr Isa kAllIsas[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

#if defined(__x86_64__)

// Linux gives a process AMX's 8 KiB of tile registers only on request (since 5.16).
bool request_amx_state() {
  constexpr int kArchRequestXcompPermission = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchRequestXcompPermission, kXfeatureXtiledata) == 0;
}

bool has_amx_bf16() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kAmxInt8 = 1u << 25;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kAll = kAmxBf16 | kAmxTile | kAmxInt8;
  return (d & kAll) == kAll && request_amx_state();
}

bool can_run(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
    case Isa::avx512:
      return can_run(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq");
    case Isa::avx512_bf16:
      return can_run(Isa::avx512) && __builtin_cpu_supports("avx512bf16") &&
             __builtin_cpu_supports("avx512vnni");
    case Isa::amx:
      return can_run(Isa::avx512_bf16) && has_amx_bf16();
  }
  return false;
}

#else

bool can_run(Isa isa) { return isa == Isa::portable; }

#endif

std::vector<Isa> detect() {
  std::vector<Isa> found;
  for (Isa isa : kAllIsas) {
    if (can_run(isa)) found.push_back(isa);
  }
  return found;
}

std::string names(const std::vector<Isa>& isas) {
  std::string joined;
  for (Isa isa : isas) joined += (joined.empty() ? "" : ", ") + std::string(isa_name(isa));
  return joined;
}

}  // namespace

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::avx512_bf16:
      return "avx512_bf16";
    case Isa::amx:
      return "amx";
    default:
      return "portable";
  }
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = detect();
  return found;
}

Isa parse_isa(std::string_view name) {
  for (Isa isa : available_isas()) {
    if (name == isa_name(isa)) return isa;
  }
  throw std::invalid_argument("instruction set '" + std::string(name) +
                              "' cannot run on this machine; available: " +
                              names(available_isas()) + " (see CHAIRLIFT_ISA)");
}

Isa current_isa() {
  const char* forced = std::getenv("CHAIRLIFT_ISA");
  if (forced != nullptr && *forced != '\0') return parse_isa(forced);
  return available_isas().back();
}

}  // namespace chairlift
