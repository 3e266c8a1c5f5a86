#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace nb = nanobind;
using namespace nb::literals;

namespace chairlift {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

nb::tuple read_strings(const Bytes& data, size_t start, size_t count) {
  const size_t size = data.shape(0);
  const char* bytes = reinterpret_cast<const char*>(data.data());
  uint64_t length = 0;
  if (start > size || count > (size - start) / sizeof(length)) throw std::out_of_range("data ends");
  nb::object strings = nb::steal(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!strings.is_valid()) throw nb::python_error();
  size_t position = start;
  for (size_t i = 0; i < count; i++) {
    if (size - position < sizeof(length)) throw std::out_of_range("data ends");
    std::memcpy(&length, bytes + position, sizeof(length));
    position += sizeof(length);
    if (length > size - position) throw std::out_of_range("data ends");
    PyObject* text =
        PyUnicode_DecodeUTF8(bytes + position, static_cast<Py_ssize_t>(length), nullptr);
    if (text == nullptr) throw nb::python_error();
    PyList_SET_ITEM(strings.ptr(), static_cast<Py_ssize_t>(i), text);
    position += length;
  }
  return nb::make_tuple(strings, position);
}

}  // namespace

void bind_strings(nb::module_& m) {
  m.def("read_strings", &read_strings, "data"_a, "start"_a, "count"_a,
        "Decode UTF-8 texts that lie end to end, each behind its length in 8 bytes.\n\n"
        "data: [n] uint8, lengths little-endian; start: where the first length stands.\n"
        "Returns the list of texts and where the last one ends. Raises IndexError when data ends\n"
        "before they do, and UnicodeDecodeError.");
}

}  // namespace chairlift
