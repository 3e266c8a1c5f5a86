#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "dequant.h"

namespace nb = nanobind;

namespace chairlift {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

Floats dequantize(std::string_view type_name, const Bytes& data, int64_t n) {
  TensorType type;
  if (!parse_tensor_type(type_name, type))
    throw std::invalid_argument("tensor_type must be one of chairlift.model_spec.TensorType, got " +
                                std::string(type_name));
  if (n < 0 || n % block_length(type) != 0)
    throw std::invalid_argument("n must be a multiple of " + std::to_string(block_length(type)) +
                                " for " + std::string(type_name) + ", got " + std::to_string(n));
  if (data.shape(0) != row_bytes(type, n))
    throw std::invalid_argument("data must hold " + std::to_string(row_bytes(type, n)) +
                                " bytes, got " + std::to_string(data.shape(0)));
  auto values = std::make_unique<float[]>(static_cast<size_t>(n));
  {
    nb::gil_scoped_release release;
    dequantize_row(type, data.data(), values.get(), n);
  }
  float* pointer = values.release();
  nb::capsule owner(pointer, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Floats(pointer, {static_cast<size_t>(n)}, owner);
}

}  // namespace

void bind_dequant(nb::module_& m) {
  m.def("dequantize", &dequantize, nb::arg("tensor_type"), nb::arg("data"), nb::arg("n"),
        "Turn n weights of a storage format into float32.\n\n"
        "tensor_type: name of a chairlift.model_spec.TensorType; data: their bytes, [size] uint8;\n"
        "returns [n] float32. Raises ValueError when the three do not fit together.");
}

}  // namespace chairlift
