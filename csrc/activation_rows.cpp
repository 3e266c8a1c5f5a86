#include "activation_rows.h"

#include <stdexcept>
#include <string>

namespace chairlift {
namespace {

int64_t odd_line_stride(int columns, ElementType type) {
  const int64_t per_line = 64 / static_cast<int64_t>(element_bytes(type));
  const int64_t lines = round_up(columns, 32) / per_line;
  return (lines | 1) * per_line;
}

}  // namespace

ElementType parse_element_type(std::string_view name) {
  if (name == "float32") return ElementType::float32;
  if (name == "bfloat16") return ElementType::bfloat16;
  throw std::invalid_argument("dtype must be float32 or bfloat16, got " + std::string(name));
}

ActivationRows::ActivationRows(int max_rows, int columns, ElementType type)
    : element_bytes_(static_cast<int64_t>(element_bytes(type))),
      stride_(odd_line_stride(columns, type)),
      memory_(static_cast<size_t>(round_up(max_rows, kRowPadding) * stride_ * element_bytes_)) {}

}  // namespace chairlift
