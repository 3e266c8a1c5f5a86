#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "philox.h"
#include "sampler.h"

namespace nb = nanobind;

namespace chairlift {
namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

int32_t size_of(const Vector<int32_t>& values) { return static_cast<int32_t>(values.shape(0)); }

void check_length(const char* name, size_t given, size_t wanted) {
  if (given != wanted) {
    throw std::invalid_argument(std::string(name) + " must have length " + std::to_string(wanted) +
                                ", got " + std::to_string(given));
  }
}

// An array that numpy owns, filled with `value`.
template <class T>
class Filled {
 public:
  Filled(size_t rows, size_t columns, T value)
      : rows_(rows), columns_(columns), values_(new T[std::max<size_t>(rows * columns, 1)]) {
    std::fill_n(values_.get(), rows * columns, value);
  }
  T* data() { return values_.get(); }
  nb::object vector() { return hand_over({rows_}); }
  nb::object matrix() { return hand_over({rows_, columns_}); }

 private:
  nb::object hand_over(std::initializer_list<size_t> shape) {
    T* data = values_.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(data, shape, owner));
  }

  size_t rows_, columns_;
  std::unique_ptr<T[]> values_;
};

// What `sample` and `score` write, and the tuple it becomes.
struct ResultArrays {
  ResultArrays(size_t rows, size_t num_top)
      : statuses(rows, 1, 0),
        token_ids(rows, 1, -1),
        logprobs(rows, 1, std::numeric_limits<float>::quiet_NaN()),
        ranks(rows, 1, 0),
        top_ids(rows, num_top, -1),
        top_logprobs(rows, num_top, -std::numeric_limits<float>::infinity()),
        num_top(static_cast<int32_t>(num_top)) {}

  SampleResult view() {
    return {reinterpret_cast<SampleStatus*>(statuses.data()),
            token_ids.data(),
            logprobs.data(),
            ranks.data(),
            top_ids.data(),
            top_logprobs.data(),
            num_top};
  }
  nb::tuple tuple() {
    return nb::make_tuple(statuses.vector(), token_ids.vector(), logprobs.vector(),
                          ranks.vector(), top_ids.matrix(), top_logprobs.matrix());
  }

  Filled<uint8_t> statuses;
  Filled<int32_t> token_ids;
  Filled<float> logprobs;
  Filled<int32_t> ranks, top_ids;
  Filled<float> top_logprobs;
  int32_t num_top;
};

nb::tuple sample(Sampler& self, const Matrix<float>& logits, const Vector<int32_t>& slots,
                 const Vector<int32_t>& output_positions,
                 std::optional<Matrix<uint32_t>> allowed_bits) {
  const size_t rows = slots.shape(0);
  check_length("logits", logits.shape(0), rows);
  check_length("a row of logits", logits.shape(1), self.vocab_size());
  check_length("output_positions", output_positions.shape(0), rows);
  for (size_t row = 0; row < rows; ++row) {
    if (output_positions(row) < 0) {
      throw std::invalid_argument("output_positions must not be negative, got " +
                                  std::to_string(output_positions(row)));
    }
  }
  if (allowed_bits) {
    check_length("allowed_bits", allowed_bits->shape(0), rows);
    check_length("a row of allowed_bits", allowed_bits->shape(1), self.num_mask_words());
  }
  ResultArrays arrays(rows, self.max_num_logprobs(slots.data(), size_of(slots)));
  {
    nb::gil_scoped_release release;
    self.sample({logits.data(), size_of(slots), slots.data(), output_positions.data(),
                 allowed_bits ? allowed_bits->data() : nullptr},
                arrays.view());
  }
  return arrays.tuple();
}

nb::tuple score(Sampler& self, const Matrix<float>& logits, const Vector<int32_t>& token_ids,
                int32_t num_top) {
  check_length("logits", logits.shape(0), token_ids.shape(0));
  check_length("a row of logits", logits.shape(1), self.vocab_size());
  if (num_top < 0) {
    throw std::invalid_argument("num_top must not be negative, got " + std::to_string(num_top));
  }
  ResultArrays arrays(token_ids.shape(0), num_top);
  {
    nb::gil_scoped_release release;
    self.score(logits.data(), size_of(token_ids), token_ids.data(), arrays.view());
  }
  std::copy_n(token_ids.data(), token_ids.shape(0), arrays.token_ids.data());
  return arrays.tuple();
}

// Rows that yielded nothing carry token id -1 and are passed over.
void append_rows(Sampler& self, const Vector<int32_t>& slots, const Vector<int32_t>& token_ids) {
  check_length("token_ids", token_ids.shape(0), slots.shape(0));
  for (size_t row = 0; row < slots.shape(0); ++row) {
    if (token_ids(row) >= 0) self.append(slots(row), token_ids(row));
  }
}

}  // namespace

void bind_sampler(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "philox4x32",
      [](PhiloxCounter counter, PhiloxKey key) { return philox4x32(counter, key); }, "counter"_a,
      "key"_a, "Philox4x32-10: four 32-bit counters and two keys to four random 32-bit numbers.");
  m.def("uniform_draw", &uniform_draw, "seed"_a, "position"_a, "choice"_a,
        "The draw in [0, 1) of a seed (64 bits), output position and choice index.");

  nb::class_<SamplingSettings>(m, "SamplingSettings", "One request's sampling settings, by value.")
      .def(nb::init<>())
      .def_prop_rw(
          "temperature", [](const SamplingSettings& s) { return s.draw.temperature; },
          [](SamplingSettings& s, float value) { s.draw.temperature = value; })
      .def_prop_rw(
          "top_k", [](const SamplingSettings& s) { return s.draw.top_k; },
          [](SamplingSettings& s, int32_t value) { s.draw.top_k = value; })
      .def_prop_rw(
          "top_p", [](const SamplingSettings& s) { return s.draw.top_p; },
          [](SamplingSettings& s, double value) { s.draw.top_p = value; })
      .def_prop_rw(
          "min_p", [](const SamplingSettings& s) { return s.draw.min_p; },
          [](SamplingSettings& s, float value) { s.draw.min_p = value; })
      .def_rw("greedy", &SamplingSettings::greedy)
      .def_rw("seed", &SamplingSettings::seed)
      .def_rw("choice", &SamplingSettings::choice)
      .def_rw("repetition_penalty", &SamplingSettings::repetition_penalty)
      .def_rw("presence_penalty", &SamplingSettings::presence_penalty)
      .def_rw("frequency_penalty", &SamplingSettings::frequency_penalty)
      .def_rw("min_tokens", &SamplingSettings::min_tokens)
      .def_rw("num_logprobs", &SamplingSettings::num_logprobs)
      .def_rw("logit_bias", &SamplingSettings::logit_bias)
      .def_rw("end_token_ids", &SamplingSettings::end_token_ids);

  nb::class_<Sampler>(m, "Sampler", "Native half of chairlift.runner.sampler.Sampler.")
      .def(
          "__init__",
          [](Sampler* self, int32_t vocab_size, ThreadTeam& team) {
            new (self) Sampler(vocab_size, team, current_isa());
          },
          "vocab_size"_a, "team"_a, nb::keep_alive<1, 3>())
      .def_prop_ro("vocab_size", &Sampler::vocab_size)
      .def(
          "add",
          [](Sampler& self, int32_t slot, const SamplingSettings& settings,
             const Vector<int32_t>& prompt, const Vector<int32_t>& output) {
            self.add(slot, settings, prompt.data(), static_cast<int64_t>(prompt.shape(0)),
                     output.data(), static_cast<int64_t>(output.shape(0)));
          },
          "slot"_a, "settings"_a, "prompt_token_ids"_a.noconvert(),
          "output_token_ids"_a.noconvert())
      .def("remove", &Sampler::remove, "slot"_a)
      .def("append", &Sampler::append, "slot"_a, "token_id"_a)
      .def("append_rows", &append_rows, "slots"_a.noconvert(), "token_ids"_a.noconvert())
      .def("sample", &sample, "logits"_a.noconvert(), "slots"_a.noconvert(),
           "output_positions"_a.noconvert(), "allowed_bits"_a.noconvert().none() = nb::none(),
           "Returns (statuses [R] u8, token_ids [R] i32, logprobs [R] f32, ranks [R] i32, "
           "top_ids [R, K] i32, top_logprobs [R, K] f32).")
      .def("score", &score, "logits"_a.noconvert(), "token_ids"_a.noconvert(), "num_top"_a,
           "As sample, for given tokens.");
}

}  // namespace chairlift
