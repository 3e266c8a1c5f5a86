// Single operations of the model for Python, so that tests can check each in isolation.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "activation_rows.h"
#include "bf16.h"
#include "file_blocks.h"
#include "gemm.h"
#include "row_kernels.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace chairlift {
namespace {

using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutVector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using OutMatrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using OutBytes = nb::ndarray<int8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Epilogue parse_epilogue(std::string_view name) {
  if (name == "store") return Epilogue::store;
  if (name == "add") return Epilogue::add;
  if (name == "silu_mul") return Epilogue::silu_mul;
  throw std::invalid_argument("epilogue must be store, add or silu_mul, got " + std::string(name));
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

int rows_of(const auto& array) { return static_cast<int>(array.shape(0)); }
int columns_of(const auto& array) { return static_cast<int>(array.shape(1)); }

void write_row(const float* from, int columns, ElementType type, std::byte* to) {
  if (type == ElementType::float32) {
    std::copy_n(from, columns, reinterpret_cast<float*>(to));
  } else {
    std::transform(from, from + columns, reinterpret_cast<uint16_t*>(to), float_to_bf16_bits);
  }
}

void read_row(const std::byte* from, int columns, ElementType type, float* to) {
  if (type == ElementType::float32) {
    std::copy_n(reinterpret_cast<const float*>(from), columns, to);
  } else {
    const uint16_t* bits = reinterpret_cast<const uint16_t*>(from);
    std::transform(bits, bits + columns, to, bf16_bits_to_float);
  }
}

ActivationRows to_rows(const float* values, int rows, int columns, ElementType type) {
  ActivationRows result(rows, columns, type);
  for (int r = 0; r < rows; r++) {
    write_row(values + int64_t(r) * columns, columns, type, result.row(r));
  }
  return result;
}

using Bytes = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

QuantisedRows to_quantised_rows(const float* values, int rows, int columns, uint8_t flip) {
  QuantisedRows result(rows, columns);
  std::vector<float> rotated(static_cast<size_t>(round_up(columns, kRotationBlock)));
  const QuantiseKernels& kernels = quantise_kernels(current_isa());
  for (int r = 0; r < rows; r++) {
    result.scales()[r] = kernels.float32(values + int64_t(r) * columns,
                                         {columns, rotated.data(), result.row(r), flip});
  }
  return result;
}

// A weight matrix and a team, outside of any model.
class Linear {
 public:
  // weights: [out, in]. With `gate_up` the first half of its rows are gates and the second ups.
  // dtype: as for models, or int8.
  Linear(const Matrix& weights, std::string_view dtype, bool gate_up, int num_threads)
      : int8_(dtype == "int8"),
        type_(int8_ ? ElementType::bfloat16 : parse_element_type(dtype)),
        kernels_(gemm_kernels(current_isa())),
        team_(num_threads) {
    const int rows = rows_of(weights), half = rows / 2;
    const int features = gate_up ? 2 * static_cast<int>(round_up(half, kHalfPanel)) : rows;
    const WeightFormat format = int8_ ? WeightFormat::int8 : plain_format(type_);
    matrix_ = {format, features, columns_of(weights), nullptr};
    memory_ = HugeBuffer(matrix_.bytes());
    matrix_.data = memory_.data();
    if (gate_up) {
      pack(weights, 0, half, {0, 2});
      pack(weights, half, rows - half, {kHalfPanel, 2});
    } else {
      pack(weights, 0, rows, {});
    }
  }

  // The same with weights kept as in a GGUF file. rows: [out, bytes of a row].
  Linear(const Bytes& rows, std::string_view tensor_type, int in_features, bool gate_up,
         int num_threads)
      : int8_(false),
        type_(ElementType::bfloat16),
        kernels_(gemm_kernels(current_isa())),
        team_(num_threads) {
    TensorType type;
    require(parse_tensor_type(tensor_type, type) && has_file_format(type),
            "tensor_type must be Q4_0, Q4_1, Q8_0, Q4_K or Q6_K");
    require(in_features % block_length(type) == 0 && row_bytes(type, in_features) == rows.shape(1),
            "rows must hold in_features weights in whole blocks");
    const int count = rows_of(rows), half = count / 2;
    const int features = gate_up ? 2 * static_cast<int>(round_up(half, kHalfPanel)) : count;
    matrix_ = {file_format_of(type), features, in_features, nullptr};
    memory_ = HugeBuffer(matrix_.bytes());
    matrix_.data = memory_.data();
    const auto pack = [&](int first, int num_rows, FeatureRange range) {
      const uint8_t* data = rows.data() + static_cast<size_t>(first) * rows.shape(1);
      pack_rows({type, data, num_rows, in_features}, range, matrix_, team_);
    };
    if (gate_up) {
      pack(0, half, {0, 2});
      pack(half, count - half, {kHalfPanel, 2});
    } else {
      pack(0, count, {});
    }
  }

  // A feature's weights as the kernels see them. out: [in_features].
  void unpack(int feature, const OutVector& out) const {
    require(feature >= 0 && feature < matrix_.out_features, "feature must be one of the matrix's");
    require(static_cast<int>(out.shape(0)) == matrix_.in_features,
            "out must have in_features elements");
    unpack_row(matrix_, feature, out.data());
  }

  // out: [rows, columns]; read by `add`, written in full by all.
  void apply(const Matrix& x, std::string_view epilogue_name, const std::optional<Vector>& bias,
             const OutMatrix& out) {
    const Epilogue epilogue = parse_epilogue(epilogue_name);
    require(columns_of(x) == matrix_.in_features, "x must have as many columns as the weights");
    require(rows_of(x) == rows_of(out), "out must have as many rows as x");
    const int rows = rows_of(x), columns = columns_of(out);
    const ElementType out_type =
        epilogue == Epilogue::silu_mul ? type_ : ElementType::float32;
    const ActivationRows plain = to_rows(x.data(), rows, columns_of(x), type_);
    const QuantisedRows quantised =
        to_quantised_rows(x.data(), rows, columns_of(x), kernels_.int8_input_flip);
    const ActivationRows result = to_rows(out.data(), rows, columns, out_type);
    std::vector<float> padded_bias(static_cast<size_t>(matrix_.num_panels()) * kPanelFeatures);
    if (bias) std::copy_n(bias->data(), bias->shape(0), padded_bias.begin());
    const size_t scratch_bytes = gemm_scratch_bytes(matrix_.padded_in());
    const HugeBuffer scratch(scratch_bytes * static_cast<size_t>(team_.size()));
    SharedWork work(team_.size());
    team_.run([&](int tid) {
      const GemmCall call = {
          .input = int8_ ? reinterpret_cast<const std::byte*>(quantised.row(0)) : plain.row(0),
          .input_stride = int8_ ? quantised.stride() : plain.stride(),
          .input_scales = int8_ ? quantised.scales() : nullptr,
          .num_rows = rows,
          .weights = &matrix_,
          .work = {&work, tid},
          .epilogue = epilogue,
          .bias = bias ? padded_bias.data() : nullptr,
          .out = result.row(0),
          .out_stride = result.stride(),
          .out_columns = columns,
          .next_weights = nullptr,
          .scratch = scratch.data() + scratch_bytes * static_cast<size_t>(tid),
      };
      kernels_.of(matrix_.format)(call);
    });
    for (int r = 0; r < rows; r++) {
      read_row(result.row(r), columns, out_type, out.data() + int64_t(r) * columns);
    }
  }

 private:
  void pack(const Matrix& weights, int first, int count, FeatureRange range) {
    const float* data = weights.data() + static_cast<size_t>(first) * weights.shape(1);
    pack_rows({TensorType::F32, reinterpret_cast<const uint8_t*>(data), count,
               columns_of(weights)},
              range, matrix_, team_);
  }

  const bool int8_;
  const ElementType type_;
  const GemmKernels& kernels_;
  ThreadTeam team_;
  PackedMatrix matrix_;
  HugeBuffer memory_;
};

// Normalises each row of x [rows, size] into out, rounded to `dtype`.
void rms_norm(const Matrix& x, const Vector& weight, float eps, std::string_view dtype,
              const OutMatrix& out) {
  const ElementType type = parse_element_type(dtype);
  const int size = columns_of(x);
  require(weight.shape(0) == x.shape(1), "weight must have as many elements as x has columns");
  require(out.shape(0) == x.shape(0) && out.shape(1) == x.shape(1), "out must be as large as x");
  std::vector<float> padded_weight(static_cast<size_t>(round_up(size, kPanelFeatures)));
  std::copy_n(weight.data(), size, padded_weight.begin());
  const ActivationRows input = to_rows(x.data(), rows_of(x), size, ElementType::float32);
  const ActivationRows result(rows_of(x), size, type);
  const RowKernels& kernels = row_kernels(current_isa());
  for (int r = 0; r < rows_of(x); r++) {
    const RmsNormRow row = {input.float_row(r), padded_weight.data(),
                            static_cast<int64_t>(padded_weight.size()), size, eps};
    if (type == ElementType::float32) {
      kernels.rms_norm_float32(row, result.float_row(r));
    } else {
      kernels.rms_norm_bfloat16(row, reinterpret_cast<uint16_t*>(result.row(r)));
    }
    read_row(result.row(r), size, type, out.data() + int64_t(r) * size);
  }
}

// Rotates and rounds each row of x [rows, size] into out [rows, size rounded up to 64] and
// scales [rows].
void quantise_rows(const Matrix& x, const OutBytes& out, const OutVector& scales) {
  const size_t columns = static_cast<size_t>(round_up(columns_of(x), kRotationBlock));
  require(out.shape(0) == x.shape(0) && out.shape(1) == columns,
          "out must have x's rows and its columns rounded up to 64");
  require(scales.shape(0) == x.shape(0), "scales must have as many elements as x has rows");
  const QuantisedRows rows = to_quantised_rows(x.data(), rows_of(x), columns_of(x), 0);
  for (int r = 0; r < rows_of(x); r++) {
    std::copy_n(rows.row(r), columns, out.data() + static_cast<size_t>(r) * columns);
  }
  std::copy_n(rows.scales(), x.shape(0), scales.data());
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<Linear>(m, "Linear")
      .def(nb::init<const Matrix&, std::string_view, bool, int>(), "weights"_a.noconvert(),
           "dtype"_a, "gate_up"_a, "num_threads"_a)
      .def(nb::init<const Bytes&, std::string_view, int, bool, int>(), "rows"_a.noconvert(),
           "tensor_type"_a, "in_features"_a, "gate_up"_a, "num_threads"_a)
      .def("unpack", &Linear::unpack, "feature"_a, "out"_a.noconvert())
      .def("apply", &Linear::apply, "x"_a.noconvert(), "epilogue"_a, "bias"_a.none(),
           "out"_a.noconvert());
  m.def("quantise_rows", &quantise_rows, "x"_a.noconvert(), "out"_a.noconvert(),
        "scales"_a.noconvert());
  m.def("rms_norm", &rms_norm, "x"_a.noconvert(), "weight"_a.noconvert(), "eps"_a, "dtype"_a,
        "out"_a.noconvert());
}

}  // namespace chairlift
